//! DeleteVolume: orders the erasure of a volume, and waits until its node has let the object go.

use kube::ResourceExt as _;
use tokio::time::Instant;

use super::{CHANGE_TIMEOUT, ClusterVolumes, LatestVolume, NOTICE_TIMEOUT, unknown};
use crate::api::crd::{Intent, PoolVolume};
use crate::operator::api_server::object_key::{ObjectName, Uid};
use crate::operator::api_server::write::Write;
use crate::operator::kube_volume::PersistentVolume;
use crate::operator::pool_volume;
use crate::operator::volume::delete::{DeleteFacts, DeleteStep, step};
use crate::operator::volume::erased::PersistentVolumeId;
use crate::operator::volume::handle;
use crate::volume::{Error, VolumeId};

impl ClusterVolumes {
    pub(super) async fn erase(self, id: VolumeId) -> Result<(), Error> {
        let (grace_at, over_at) = (Instant::now() + NOTICE_TIMEOUT, Instant::now() + CHANGE_TIMEOUT);
        let mut latest = LatestVolume::new(&self.stores.volumes, id);
        latest.read_again(&self.objects).await?;
        let (mut persistent, mut ordered, mut persistent_id) = (None, false, None);
        loop {
            let object = latest.current();
            ordered |= object.as_ref().is_some_and(|object| object.spec.intent == Intent::Delete);
            let now = Instant::now();
            let node_exists = object.as_ref().is_none_or(|object| self.stores.nodes.get(&object.spec.node).is_some());
            let (grace, over) = (now >= grace_at, now >= over_at);
            let facts = DeleteFacts { node_exists, persistent: persistent == Some(true), ordered, grace, over };
            let act = step(object.as_deref(), facts);
            let done = match (act, object) {
                (DeleteStep::Answer(answer), _) => {
                    if let (Ok(()), Some(persistent_id)) = (&answer, persistent_id) {
                        self.erased.note(id, persistent_id);
                    }
                    return answer;
                }
                (DeleteStep::Trace, _) => {
                    let Some(volume) = self.trace(id).await? else { return Ok(()) };
                    let Some(object) = self.order_of(id, &volume)? else { return Ok(()) };
                    persistent_id = named(&volume);
                    self.objects.create(&object).await.map(|done| done.map(Some))
                }
                // Read only now, when it matters: the object may have been written again since the call began.
                (DeleteStep::Withdraw, Some(_)) if persistent.is_none() => {
                    persistent = Some(self.persistent.naming(&id.to_string()).await.map_err(unknown)?.is_some());
                    continue;
                }
                (DeleteStep::Withdraw, Some(object)) => match self.objects.withdraw(&object).await.map_err(unknown)? {
                    Write::Done(()) => return Ok(()),
                    Write::Changed => Ok(Write::Changed),
                },
                (DeleteStep::Order, Some(object)) => {
                    if let Some(volume) = self.persistent.naming_object(&object).await.map_err(unknown)? {
                        unbound(id, &volume)?;
                        persistent_id = named(&volume);
                    }
                    self.objects.order_erasure(&object).await.map(|done| done.map(Some))
                }
                (DeleteStep::Delete, Some(object)) => self.objects.delete(&object).await,
                (_, _) => {
                    latest.changed(if now < grace_at { grace_at } else { over_at }).await;
                    continue;
                }
            };
            match done.map_err(unknown)? {
                Write::Done(now) => latest.learn(now),
                Write::Changed => latest.read_again(&self.objects).await?,
            }
        }
    }

    /// The PersistentVolume of a volume whose object is missing, unless its deletion was answered.
    async fn trace(&self, id: VolumeId) -> Result<Option<PersistentVolume>, Error> {
        if let Some(erased) = self.erased.of(id) {
            let still = self.persistent.get(&erased.name).await.map_err(unknown)?;
            if still.as_ref().and_then(named).as_ref() == Some(&erased) {
                return Ok(None);
            }
        }
        self.persistent.naming(&id.to_string()).await.map_err(unknown)
    }

    /// The object that orders the erasure of a volume whose own object is missing; `None` if its node is missing too.
    fn order_of(&self, id: VolumeId, volume: &PersistentVolume) -> Result<Option<PoolVolume>, Error> {
        unbound(id, volume)?;
        let spec = handle::order(volume).map_err(|why| {
            let name = volume.name_any();
            Error::Precondition(format!("volume {id} has no object, and its PersistentVolume {name} {why}"))
        })?;
        if self.stores.nodes.get(&spec.node).is_none() {
            tracing::info!(volume = %id, node = spec.node.as_str(), "deleted without erasing data: neither its object nor its \
                                                            node exists");
            return Ok(None);
        }
        Ok(Some(pool_volume::of_spec(id, spec)))
    }
}

/// What identifies a PersistentVolume.
fn named(volume: &PersistentVolume) -> Option<PersistentVolumeId> {
    Some(PersistentVolumeId { name: ObjectName::of(volume), uid: Uid::of(volume)? })
}

/// A volume that is bound to a claim is never erased: the provisioner asks only for released ones.
fn unbound(id: VolumeId, volume: &PersistentVolume) -> Result<(), Error> {
    match volume.bound_to() {
        None => Ok(()),
        Some(claim) => Err(Error::Precondition(format!(
            "volume {id} is not deleted: its PersistentVolume {} is Bound to the claim {claim}; delete that claim first",
            volume.name_any()
        ))),
    }
}
