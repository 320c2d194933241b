//! Carries steps out: each request names the UID and the version of the object that was read.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::api::{DeleteParams, Preconditions};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};

use super::evict::{EvictionRun, evict};
use super::live::{EvictionAnswer, LiveFacts};
use super::marked::MarkedVolume;
use super::record::{HowEnded, REACTED, RECORD, RETAIN, ReactionRecord};
use super::view::{Deed, PodRef};
use crate::operator::api_server::client::within;
use crate::operator::api_server::error::OperatorError;
use crate::operator::api_server::store::Store;
use crate::operator::api_server::write::{Write, patch};
use crate::operator::kube_volume::PersistentVolume;

/// The outcome of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeedOutcome {
    Done,
    /// Somebody else was first: look again.
    Changed,
    /// A PodDisruptionBudget does not allow the eviction now.
    Refused,
}

impl From<Write<()>> for DeedOutcome {
    fn from(write: Write<()>) -> Self {
        match write {
            Write::Done(()) => Self::Done,
            Write::Changed => Self::Changed,
        }
    }
}

pub struct Performer {
    client: Client,
    volumes: Store<PersistentVolume>,
}

impl Performer {
    pub fn new(client: Client, volumes: Store<PersistentVolume>) -> Self {
        Self { client, volumes }
    }

    pub async fn perform(
        &self,
        volume: &MarkedVolume,
        live: Option<&LiveFacts>,
        deed: &Deed,
    ) -> Result<DeedOutcome, OperatorError> {
        let done = match deed {
            Deed::Begin(record) => self.patch(volume, json!({RECORD: record.written()}), Some(RETAIN)).await?,
            Deed::Cancel(record, _) => self.end(volume, record, HowEnded::Cancelled).await?,
            Deed::Finish(record) => self.end(volume, record, HowEnded::Finished).await?,
            Deed::Stop(record, _) => self.end(volume, record, HowEnded::Stopped).await?,
            Deed::DeletePvc(pvc) => {
                let api = Api::namespaced(self.client.clone(), pvc.namespace.as_str());
                let version = live.and_then(|live| live.pvc.as_ref()).map(|pvc| pvc.resource_version.clone());
                let exactly = Preconditions { uid: Some(pvc.uid.to_string()), resource_version: version };
                let what = format!("deleting PersistentVolumeClaim {}/{}", pvc.namespace, pvc.name);
                delete::<PersistentVolumeClaim>(&api, pvc.name.as_str(), exactly, &what).await?
            }
            Deed::DeleteVolume => {
                let (name, meta) = (volume.volume.name_any(), &volume.volume.metadata);
                let exactly = Preconditions { uid: meta.uid.clone(), resource_version: meta.resource_version.clone() };
                let api = Api::all(self.client.clone());
                delete::<PersistentVolume>(&api, &name, exactly, &format!("deleting PersistentVolume {name}")).await?
            }
            Deed::Evict(pod) => return self.evict(pod, EvictionRun::Real).await,
            Deed::Read | Deed::AskEviction(_) | Deed::Explain(_) => Write::Done(()),
        };
        Ok(done.into())
    }

    /// `None`: it is another pod now.
    pub async fn may_evict(&self, pod: &PodRef) -> Result<Option<EvictionAnswer>, OperatorError> {
        Ok(match self.evict(pod, EvictionRun::Dry).await? {
            DeedOutcome::Done => Some(EvictionAnswer::Allowed),
            DeedOutcome::Refused => Some(EvictionAnswer::Refused),
            DeedOutcome::Changed => None,
        })
    }

    async fn end(
        &self,
        volume: &MarkedVolume,
        record: &ReactionRecord,
        how: HowEnded,
    ) -> Result<Write<()>, OperatorError> {
        let ended = record.ended(how, Timestamp::now());
        self.patch(volume, json!({RECORD: null, REACTED: ended.written()}), None).await
    }

    async fn patch(
        &self,
        volume: &MarkedVolume,
        annotations: Value,
        policy: Option<&str>,
    ) -> Result<Write<()>, OperatorError> {
        let (api, name, meta) = (Api::all(self.client.clone()), volume.volume.name_any(), &volume.volume.metadata);
        let sent = self.volumes.list_count();
        let metadata = json!({"uid": meta.uid, "resourceVersion": meta.resource_version, "annotations": annotations});
        let mut change = json!({"metadata": metadata});
        if let Some(policy) = policy {
            change["spec"] = json!({"persistentVolumeReclaimPolicy": policy});
        }
        let what = format!("writing the reaction into PersistentVolume {name}");
        let written = patch(&api, &name, &what, change).await?;
        Ok(written.map(|written| self.volumes.learn(written, sent)))
    }

    async fn evict(&self, pod: &PodRef, run: EvictionRun) -> Result<DeedOutcome, OperatorError> {
        match evict(&self.client, pod, run).await {
            Err(error) if error.is_too_many_requests() => Ok(DeedOutcome::Refused),
            answer => Ok(Write::of(answer)?.into()),
        }
    }
}

async fn delete<K>(api: &Api<K>, name: &str, exactly: Preconditions, what: &str) -> Result<Write<()>, OperatorError>
where
    K: Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let params = DeleteParams { preconditions: Some(exactly), ..DeleteParams::default() };
    Ok(Write::of(within(what, api.delete(name, &params)).await)?.map(drop))
}
