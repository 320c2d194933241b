//! CreateVolume: asks one node after the other, and waits for its answer.

use jiff::Timestamp;
use kube::ResourceExt as _;
use tokio::time::Instant;

use super::{ClusterVolumes, MARGIN, answer, unknown};
use crate::api::crd::{Phase, PoolVolume};
use crate::device::NodeName;
use crate::operator::client::is_object_name;
use crate::operator::pool_volume;
use crate::operator::volume::create::{AfterWithdrawal, CreateFacts, CreateStep, WaitUntil, step};
use crate::operator::volume::latest_volume::LatestVolume;
use crate::operator::volume::new_volume;
use crate::operator::write::Write;
use crate::volume::{Error, Volume, VolumeId, VolumeRequest};

impl ClusterVolumes {
    pub(super) async fn make(self, id: VolumeId, wanted: VolumeRequest) -> Result<Volume, Error> {
        let began = Instant::now();
        let silent_at = began + wanted.timeout * 3 / 4;
        let over_at = began + wanted.timeout.saturating_sub(MARGIN.min(wanted.timeout / 8));
        let mut latest = LatestVolume::new(&self.stores.volumes, id);
        let mut own = None;
        let mut refusal: Option<Error> = None;
        let mut tried = Vec::new();
        loop {
            let object = latest.look();
            if let Some(pending) = object.as_deref().filter(|object| pool_volume::phase(object) == Phase::Pending) {
                own = pending.uid();
            }
            let now = Instant::now();
            let silence = object.as_ref().and_then(|object| self.silence(&object.spec.node));
            let facts = CreateFacts {
                silence: silence.as_deref(),
                own_uid: own.as_deref(),
                node_exists: object.as_ref().is_none_or(|object| self.node_exists(&object.spec.node)),
                silent: now >= silent_at,
                over: now >= over_at,
            };
            // It is too late to ask another node.
            if let Some(refusal) = refusal.take_if(|_| object.is_none() && facts.silent) {
                return Err(refusal);
            }
            match step(&wanted, object.as_deref(), facts) {
                CreateStep::Make => {
                    // If no node remains to ask, the last refusal is the better answer.
                    let node = self.choose(&wanted, &tried).map_err(|error| refusal.take().unwrap_or(error))?;
                    refusal = None;
                    own = self.ask(&mut latest, id, self.object(&wanted, id, &node).await?).await?.or(own);
                }
                CreateStep::Wait(WaitUntil::Silent) => latest.changed(silent_at).await,
                CreateStep::Wait(WaitUntil::Over) => latest.changed(over_at).await,
                CreateStep::Withdraw(then) => {
                    let Some(object) = object else { continue };
                    match self.objects.withdraw(&object).await.map_err(unknown)? {
                        Write::Changed => self.look_again(&mut latest, id).await?,
                        Write::Done(()) => {
                            latest.learn(None);
                            match then {
                                AfterWithdrawal::Again => {}
                                AfterWithdrawal::Elsewhere(error) => {
                                    tried.push(object.spec.node.clone());
                                    refusal = Some(error);
                                }
                                AfterWithdrawal::Answer(error) => return Err(error),
                            }
                        }
                    }
                }
                CreateStep::Answer(Ok(())) => return answer(object.as_deref()),
                CreateStep::Answer(Err(error)) => return Err(error),
            }
        }
    }

    /// What asks the node for the volume, with whether the volume is new.
    async fn object(&self, wanted: &VolumeRequest, id: VolumeId, node: &NodeName) -> Result<PoolVolume, Error> {
        let mut object = pool_volume::object(wanted, node);
        let now = Timestamp::now();
        let named = match is_object_name(&wanted.name) {
            true => self.objects.persistent_volume_named(&wanted.name).await.map_err(unknown)?,
            false => None,
        };
        if !new_volume::was_made(named.as_ref(), id) {
            new_volume::say(&mut object, now);
        }
        Ok(object)
    }

    /// Creates the object, and returns its UID; if another writer was faster, looks at the present object.
    async fn ask(&self, latest: &mut LatestVolume, id: VolumeId, object: PoolVolume) -> Result<Option<String>, Error> {
        match self.objects.create(&object).await.map_err(unknown)? {
            Write::Done(made) => {
                let uid = made.uid();
                latest.learn(Some(made));
                Ok(uid)
            }
            Write::Changed => self.look_again(latest, id).await.map(|()| None),
        }
    }
}
