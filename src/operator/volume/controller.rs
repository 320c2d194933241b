//! The port `Volumes` on the objects of a cluster: asks the node's agent through a PoolVolume, and waits for its answer
//! on the watch. `create`, `delete` and `expand` decide the next step; this module does it, with a file for each verb.

use std::time::Duration;

use tokio::time::Instant;

use super::erased::Erased;
use super::in_vain::InVain;
use super::objects::VolumeApi;
use super::spec::NodeObject;
use super::{node_capacity, spec};
use crate::api::crd::PoolVolume;
use crate::host::chain;
use crate::operator::controller::caches::Caches;
use crate::operator::volume::latest::Sight;
use crate::volume::{Capacity, Error, Selector, Volume, VolumeId, VolumeLocks, VolumeRequest, Volumes, WantedUsage};

/// How long to wait for a deletion or an expansion.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long an agent has to notice a change.
const GRACE: Duration = Duration::from_secs(3);
/// The longest time between the answer and the end of a caller's patience.
const MARGIN: Duration = Duration::from_secs(1);

mod deleting;
mod expanding;
mod making;

/// Volumes of a cluster.
#[derive(Clone)]
pub struct ClusterVolumes {
    pub(in crate::operator) objects: VolumeApi,
    pub(in crate::operator) caches: Caches,
    pub(in crate::operator) locks: VolumeLocks,
    pub(in crate::operator) in_vain: InVain,
    pub(in crate::operator) erased: Erased,
}

impl ClusterVolumes {
    pub(super) fn node_exists(&self, node: &str) -> bool {
        self.caches.nodes.get(node).is_some()
    }

    fn node_of(&self, volume: &PoolVolume) -> NodeObject {
        NodeObject::of(self.caches.nodes.get(&volume.spec.node))
    }

    /// Without a view of the cluster no call can be answered.
    fn synced(&self) -> Result<(), Error> {
        self.caches.are_synced().then_some(()).ok_or_else(|| {
            Error::Aborted("the controller does not know the cluster's objects yet; try again".to_owned())
        })
    }

    /// Runs to its end, whether or not the caller waits for it: nothing stays half done.
    async fn to_its_end<T, F>(&self, id: VolumeId, work: impl FnOnce(Self) -> F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Error>> + Send + 'static,
    {
        self.synced()?;
        let guard = self.locks.hold(id)?;
        let work = work(self.clone());
        let task = tokio::spawn(async move {
            let result = work.await;
            drop(guard);
            result
        });
        task.await.unwrap_or_else(|e| Err(Error::Internal(format!("the operation ended in a bug: {e}"))))
    }

    async fn look_again(&self, sight: &mut Sight, id: VolumeId) -> Result<(), Error> {
        sight.learn(self.objects.get(&id.to_string()).await.map_err(unknown)?);
        Ok(())
    }
}

/// The volume of an object that is Ready.
fn answer(object: Option<&PoolVolume>) -> Result<Volume, Error> {
    let volume = object.and_then(|object| spec::volume(object, NodeObject::Exists));
    volume.ok_or_else(|| Error::Internal("the object of the volume is Ready and has no size".to_owned()))
}

/// It is not known whether a request that failed was done: the caller comes back.
fn unknown(error: crate::operator::Error) -> Error {
    match error.code() {
        // The API server would refuse the same request again.
        Some(400 | 403 | 422) => Error::Internal(chain(&error)),
        _ => Error::Aborted(chain(&error)),
    }
}

impl Volumes for ClusterVolumes {
    const WEIGHED_BEFORE: bool = true;

    async fn create(&self, wanted: VolumeRequest) -> Result<Volume, Error> {
        let id = VolumeId::of_name(&wanted.name);
        let made = self.to_its_end(id, |this| this.make(id, wanted)).await?;
        tracing::info!(volume = %id, name = made.name, node = made.node, size = made.size, "the volume is there");
        Ok(made)
    }

    async fn delete(&self, id: VolumeId) -> Result<(), Error> {
        self.to_its_end(id, |this| this.erase(id)).await?;
        tracing::info!(volume = %id, "the volume is gone");
        Ok(())
    }

    async fn expand(&self, id: VolumeId, required: u64, limit: Option<u64>) -> Result<Volume, Error> {
        let grown = self.to_its_end(id, |this| this.grow(id, required, limit)).await?;
        tracing::info!(volume = %id, size = grown.size, "the volume is large enough");
        Ok(grown)
    }

    async fn get(&self, id: VolumeId) -> Result<Option<Volume>, Error> {
        self.synced()?;
        let name = id.to_string();
        let object = self.caches.volumes.get(&name);
        if let (None, Some(why)) = (&object, self.caches.volumes.unread(&name)) {
            return Err(Error::Aborted(format!(
                "PoolVolume {name} is there, and cannot be read by this version: {why}"
            )));
        }
        Ok(object.and_then(|object| spec::volume(&object, self.node_of(&object))))
    }

    async fn list(&self) -> Result<Vec<Volume>, Error> {
        self.synced()?;
        let all = self.caches.volumes.all();
        Ok(all.iter().filter_map(|object| spec::volume(object, self.node_of(object))).collect())
    }

    async fn capacity(
        &self,
        selector: Selector,
        usage: Option<WantedUsage>,
        node: Option<String>,
    ) -> Result<Capacity, Error> {
        self.synced()?;
        if self.offered(&selector, None).is_err() {
            return Ok(Capacity::ANYTHING);
        }
        let in_vain = || self.in_vain.of(&selector, node.as_deref()?, Instant::now());
        let usage = usage.or_else(in_vain);
        let mut rooms = self.rooms(node.as_ref().map(std::slice::from_ref), &selector, usage);
        rooms.retain(|name, _| self.node_exists(name));
        Ok(node_capacity::total(rooms.values()))
    }
}
