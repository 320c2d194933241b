//! The port `Volumes` on the objects of a cluster: asks the node's agent through a PoolVolume, and waits for its answer
//! on the watch. `create`, `delete` and `expand` decide the next step; this module does it, with a file for each verb.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::erased::Erased;
use super::modes::Modes;
use super::node_capacity::NodeState;
use super::objects::VolumeApi;
use super::offered::Candidate;
use super::refused_modes::RefusedModes;
use super::{modes, node_capacity, offered};
use crate::api::crd::PoolVolume;
use crate::claim::Rule;
use crate::device::NodeName;
use crate::host::chain;
use crate::operator::node_ready::openness;
use crate::operator::pool::agent_life;
use crate::operator::pool_volume::{self, NodeObject};
use crate::operator::stores::Stores;
use crate::operator::volume::latest_volume::LatestVolume;
use crate::volume::{
    Capacity, Error, Nodes, Selector, Volume, VolumeId, VolumeLocks, VolumeRequest, Volumes, WantedUsage,
};

/// How long to wait for a deletion or an expansion.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(20);
/// How long an agent has to notice a change.
const NOTICE_TIMEOUT: Duration = Duration::from_secs(3);
/// The longest time between the answer and the end of a caller's timeout.
const MARGIN: Duration = Duration::from_secs(1);

mod deleting;
mod expanding;
mod making;

/// Volumes of a cluster.
#[derive(Clone)]
pub struct ClusterVolumes {
    pub(in crate::operator) objects: VolumeApi,
    pub(in crate::operator) stores: Stores,
    pub(in crate::operator) locks: VolumeLocks,
    pub(in crate::operator) refused_modes: RefusedModes,
    pub(in crate::operator) erased: Erased,
}

impl ClusterVolumes {
    /// What is known of a node, for a new volume.
    fn state(&self, node: &NodeName) -> NodeState {
        match (self.stores.nodes.get(node), self.silence(node)) {
            (None, _) => NodeState::Missing,
            (Some(_), Some(words)) => NodeState::Silent(words),
            (Some(object), None) => NodeState::Answers(openness(&object)),
        }
    }

    /// That a node's agent does not answer, in words.
    fn silence(&self, node: &NodeName) -> Option<String> {
        let pool = self.stores.pools.get(node)?;
        let ready = agent_life::silence(&pool)?;
        Some(format!("node {node}, since {}: {}", ready.last_transition_time.0, ready.message))
    }

    pub(super) fn node_exists(&self, node: &NodeName) -> bool {
        self.stores.nodes.get(node).is_some()
    }

    fn node_of(&self, volume: &PoolVolume) -> NodeObject {
        NodeObject::of(self.stores.nodes.get(&volume.spec.node))
    }

    /// Without a view of the cluster no call can be answered.
    fn synced(&self) -> Result<(), Error> {
        self.stores.are_synced().then_some(()).ok_or_else(|| {
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
        task.await.unwrap_or_else(|e| Err(Error::Internal(format!("a bug ended the operation: {e}"))))
    }

    async fn look_again(&self, latest: &mut LatestVolume, id: VolumeId) -> Result<(), Error> {
        latest.learn(self.objects.volume(id).await.map_err(unknown)?);
        Ok(())
    }
}

/// The volume of an object that is Ready.
fn answer(object: Option<&PoolVolume>) -> Result<Volume, Error> {
    let volume = object.and_then(|object| pool_volume::volume(object, NodeObject::Exists));
    volume.ok_or_else(|| Error::Internal("the object of the volume is Ready and has no size".to_owned()))
}

/// It is not known whether a request that failed was done: the caller comes back.
fn unknown(error: crate::operator::OperatorError) -> Error {
    match error.code() {
        // The API server would refuse the same request again.
        Some(400 | 403 | 422) => Error::Internal(chain(&error)),
        _ => Error::Aborted(chain(&error)),
    }
}

/// Which node is asked for a volume, or why none can serve it.
impl ClusterVolumes {
    fn choose(&self, wanted: &VolumeRequest, tried: &[NodeName]) -> Result<NodeName, Error> {
        let candidates = self.offered(&wanted.selector, Some(wanted.usage))?;
        let modes = self.modes(wanted, &candidates);
        if let Some(node) = modes.refused(&wanted.nodes) {
            // Only if the scheduler may have chosen the node.
            if wanted.nodes != Nodes::Any {
                self.refused_modes.note(&wanted.selector, node, wanted.usage, Instant::now());
            }
            return Err(modes.refusal(node, wanted));
        }
        let named = match &wanted.nodes {
            Nodes::Preferred(nodes) | Nodes::AnyOf(nodes) => Some(nodes.as_slice()),
            Nodes::Any => None,
        };
        let mut rooms = self.rooms(named, &wanted.selector, Some(wanted.usage));
        rooms.retain(|node, _| !modes.bars(node));
        node_capacity::choose(wanted, &rooms, |node| self.state(node), tried)
    }

    /// The room of the named nodes, or of all.
    fn rooms(
        &self,
        named: Option<&[NodeName]>,
        selector: &Selector,
        usage: Option<WantedUsage>,
    ) -> BTreeMap<NodeName, Capacity> {
        let (pools, promised) = match named {
            None => (self.stores.pools.all(), self.stores.volumes.all_groups()),
            Some(named) => {
                let named: BTreeSet<&NodeName> = named.iter().collect();
                let pools = named.iter().filter_map(|node| self.stores.pools.get(node)).collect();
                (pools, named.iter().flat_map(|node| self.stores.volumes.group(node)).collect())
            }
        };
        node_capacity::rooms(borrowed(&pools), borrowed(&promised), selector, usage)
    }

    fn modes(&self, wanted: &VolumeRequest, candidates: &[Candidate]) -> Modes {
        let rules: Vec<&Rule> = candidates.iter().flat_map(|candidate| candidate.rules(&wanted.selector)).collect();
        let mut pools = self.stores.pools.all();
        pools.retain(|pool| self.node_exists(&pool.node()));
        modes::modes(&wanted.selector, wanted.usage, &rules, borrowed(&pools))
    }

    /// The sets and LocalVolumes that the request means, or why none can serve it on any node.
    fn offered(&self, selector: &Selector, usage: Option<WantedUsage>) -> Result<Vec<Candidate>, Error> {
        // A request that names neither class nor set is served by any.
        if *selector == Selector::default() {
            return Ok(Vec::new());
        }
        let Stores { sets, local_volumes, read_sets, read_volumes, .. } = &self.stores;
        let (all_sets, all_volumes) = (sets.all(), local_volumes.all());
        let mut candidates = offered::candidates(selector, &all_sets, read_sets.of_any_node(&all_sets));
        candidates.extend(offered::candidates(selector, &all_volumes, read_volumes.of_any_node(&all_volumes)));
        match offered::rules(selector, &candidates) {
            Ok(rules) => usage.map_or(Ok(()), |usage| offered::allows(selector, &rules, usage))?,
            // It may be a LocalVolume that is not read yet.
            Err(_) if candidates.is_empty() && !local_volumes.is_synced() => {}
            Err(error) => return Err(error),
        }
        Ok(candidates)
    }
}

fn borrowed<K>(objects: &[Arc<K>]) -> impl Iterator<Item = &K> {
    objects.iter().map(Arc::as_ref)
}

impl Volumes for ClusterVolumes {
    const WEIGHED_BEFORE: bool = true;

    async fn create(&self, wanted: VolumeRequest) -> Result<Volume, Error> {
        let id = VolumeId::of_name(&wanted.name);
        let made = self.to_its_end(id, |this| this.make(id, wanted)).await?;
        tracing::info!(volume = %id, name = made.name, node = made.node.as_str(), size = made.size, "the volume is there");
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
        let object = self.stores.volumes.get(&name);
        if let (None, Some(why)) = (&object, self.stores.volumes.unread(&name)) {
            return Err(Error::Aborted(format!(
                "PoolVolume {name} is there, and cannot be read by this version: {why}"
            )));
        }
        Ok(object.and_then(|object| pool_volume::volume(&object, self.node_of(&object))))
    }

    async fn list(&self) -> Result<Vec<Volume>, Error> {
        self.synced()?;
        let all = self.stores.volumes.all();
        Ok(all.iter().filter_map(|object| pool_volume::volume(object, self.node_of(object))).collect())
    }

    async fn capacity(
        &self,
        selector: Selector,
        usage: Option<WantedUsage>,
        node: Option<NodeName>,
    ) -> Result<Capacity, Error> {
        self.synced()?;
        if self.offered(&selector, None).is_err() {
            return Ok(Capacity::ANYTHING);
        }
        let refused = || self.refused_modes.of(&selector, node.as_ref()?, Instant::now());
        let usage = usage.or_else(refused);
        let mut rooms = self.rooms(node.as_ref().map(std::slice::from_ref), &selector, usage);
        rooms.retain(|name, _| self.node_exists(name));
        Ok(node_capacity::total(rooms.values()))
    }
}
