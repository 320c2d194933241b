//! The port `Volumes` on the objects of a cluster: asks the node's agent through a PoolVolume, and waits for its answer
//! on the watch. `create`, `delete` and `expand` decide the next step; this module does it; `deleting` and `expanding` have a verb each.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::ResourceExt as _;
use tokio::sync::watch;
use tokio::time::Instant;

use super::create::{AfterWithdrawal, CreateFacts, CreateStep, WaitUntil, say_new, step, was_made};
use super::eligible::NodeChoice;
use super::erased::Erased;
use super::node_capacity;
use super::objects::VolumeApi;
use super::refused_modes::RefusedModes;
use crate::api::crd::{Phase, PoolVolume};
use crate::device::NodeName;
use crate::host::chain;
use crate::operator::api_server::object_key::Uid;
use crate::operator::api_server::store::{Revision, Store, StoreState};
use crate::operator::api_server::write::Write;
use crate::operator::kube_volume::LivePersistentVolumes;
use crate::operator::pool_volume::{self, NodeObject};
use crate::operator::stores::Stores;
use crate::volume::{Capacity, Error, Selector, Volume, VolumeId, VolumeLocks, VolumeRequest, Volumes, WantedUsage};

/// How long to wait for a deletion or an expansion.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(20);
/// How long an agent has to notice a change.
const NOTICE_TIMEOUT: Duration = Duration::from_secs(3);
/// The longest time between the answer and the end of a caller's timeout.
const MARGIN: Duration = Duration::from_secs(1);

mod deleting;
mod expanding;

/// Volumes of a cluster.
#[derive(Clone)]
pub struct ClusterVolumes {
    pub(in crate::operator) objects: VolumeApi,
    pub(in crate::operator) persistent: LivePersistentVolumes,
    pub(in crate::operator) stores: Stores,
    pub(in crate::operator) locks: VolumeLocks,
    pub(in crate::operator) refused_modes: RefusedModes,
    pub(in crate::operator) erased: Erased,
}

impl ClusterVolumes {
    /// Which node is asked for a volume.
    fn nodes(&self) -> NodeChoice<'_> {
        NodeChoice { stores: &self.stores, refused_modes: &self.refused_modes }
    }

    fn node_exists(&self, node: &NodeName) -> bool {
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
}

/// The volume of an object that is Ready.
fn answer(object: Option<&PoolVolume>) -> Result<Volume, Error> {
    let volume = object.and_then(|object| pool_volume::volume(object, NodeObject::Exists));
    volume.ok_or_else(|| Error::Internal("the object of the volume is Ready and has no size".to_owned()))
}

/// It is not known whether a request that failed was done: the caller comes back.
fn unknown(error: crate::operator::api_server::error::OperatorError) -> Error {
    match error.code() {
        // The API server would refuse the same request again.
        Some(400 | 403 | 422) => Error::Internal(chain(&error)),
        _ => Error::Aborted(chain(&error)),
    }
}

/// CreateVolume asks one node after the other, and waits for its answer.
impl ClusterVolumes {
    async fn make(self, id: VolumeId, wanted: VolumeRequest) -> Result<Volume, Error> {
        let began = Instant::now();
        let silent_at = began + wanted.timeout * 3 / 4;
        let over_at = began + wanted.timeout.saturating_sub(MARGIN.min(wanted.timeout / 8));
        let mut latest = LatestVolume::new(&self.stores.volumes, id);
        let mut own = None;
        let mut refusal: Option<Error> = None;
        let mut tried = Vec::new();
        loop {
            let object = latest.current();
            if let Some(pending) = object.as_deref().filter(|object| pool_volume::phase(object) == Phase::Pending) {
                own = pending.uid();
            }
            let now = Instant::now();
            let silence = object.as_ref().and_then(|object| self.nodes().silence(&object.spec.node));
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
                    let node = self.nodes().choose(&wanted, &tried).map_err(|error| refusal.take().unwrap_or(error))?;
                    refusal = None;
                    own = self.ask(&mut latest, self.object(&wanted, id, &node).await?).await?.or(own);
                }
                CreateStep::Wait(WaitUntil::Silent) => latest.changed(silent_at).await,
                CreateStep::Wait(WaitUntil::Over) => latest.changed(over_at).await,
                CreateStep::Withdraw(then) => {
                    let Some(object) = object else { continue };
                    match self.objects.withdraw(&object).await.map_err(unknown)? {
                        Write::Changed => latest.read_again(&self.objects).await?,
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
        let named = self.persistent.get(&wanted.name.as_str().into()).await.map_err(unknown)?;
        if !was_made(named.as_ref(), id) {
            say_new(&mut object, now);
        }
        Ok(object)
    }

    /// Creates the object, and returns its UID; if another writer was faster, looks at the present object.
    async fn ask(&self, latest: &mut LatestVolume, object: PoolVolume) -> Result<Option<String>, Error> {
        match self.objects.create(&object).await.map_err(unknown)? {
            Write::Done(made) => {
                let uid = made.uid();
                latest.learn(Some(made));
                Ok(uid)
            }
            Write::Changed => latest.read_again(&self.objects).await.map(|()| None),
        }
    }
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
        if self.nodes().offered(&selector, None).is_err() {
            return Ok(Capacity::ANYTHING);
        }
        let refused = || self.refused_modes.of(&selector, node.as_ref()?, Instant::now());
        let usage = usage.or_else(refused);
        let mut rooms = self.nodes().rooms(node.as_ref().map(std::slice::from_ref), &selector, usage);
        rooms.retain(|name, _| self.node_exists(name));
        Ok(node_capacity::total(rooms.values()))
    }
}

/// One PoolVolume, as one call knows it: its last state, from the watch or from the answers to our own requests,
/// whichever is newer. A watch that lags behind our own write must not undo what we know.
///
/// The store does not do this: an answer that an object is gone would need a memory of gone objects there, for all
/// calls, until the next list.
struct LatestVolume {
    store: Store<PoolVolume>,
    changes: watch::Receiver<StoreState>,
    name: String,
    last: Option<Arc<PoolVolume>>,
    /// The watch has shown the object that `last` is a state of.
    watched: bool,
    /// Objects that are gone, though the watch may still show them.
    gone: Vec<Uid<PoolVolume>>,
}

impl LatestVolume {
    fn new(store: &Store<PoolVolume>, id: VolumeId) -> Self {
        let (changes, name) = (store.changes(), id.to_string());
        let mut latest = Self { store: store.clone(), changes, name, last: None, watched: false, gone: Vec::new() };
        latest.current();
        latest
    }

    /// What is known now.
    fn current(&mut self) -> Option<Arc<PoolVolume>> {
        // Before the store is read: a change during that then signals again.
        self.changes.borrow_and_update();
        let shown = self.store.get(&self.name);
        let shown = shown.filter(|object| Uid::of(&**object).is_none_or(|uid| !self.gone.contains(&uid)));
        match (&shown, &self.last) {
            (Some(new), Some(old)) if newer(new, old) || new.uid() == old.uid() => {
                self.watched = true;
                if newer(new, old) {
                    self.last = shown;
                }
            }
            (Some(_), None) => (self.last, self.watched) = (shown, true),
            (Some(_), Some(_)) => {}
            (None, Some(old)) if self.watched => {
                self.gone.extend(Uid::of(&**old));
                (self.last, self.watched) = (None, false);
            }
            (None, _) => {}
        }
        self.last.clone()
    }

    /// Takes in what the API server has now.
    async fn read_again(&mut self, objects: &VolumeApi) -> Result<(), Error> {
        let object = objects.get(&self.name).await.map_err(unknown)?;
        self.learn(object);
        Ok(())
    }

    /// Takes in the answer to a request.
    fn learn(&mut self, object: Option<PoolVolume>) {
        match object {
            Some(object) => {
                let same = self.last.as_ref().is_some_and(|last| last.uid() == object.uid());
                if !same {
                    self.gone.extend(self.last.as_ref().and_then(|last| Uid::of(&**last)));
                    self.watched = false;
                }
                self.last = Some(Arc::new(object));
            }
            None => {
                self.gone.extend(self.last.take().and_then(|last| Uid::of(&*last)));
                self.watched = false;
            }
        }
    }

    /// Waits for any change, at most until then.
    async fn changed(&mut self, until: Instant) {
        // The watch ends only when the process does; the time limit holds either way.
        let _ = tokio::time::timeout_at(until, self.changes.changed()).await;
    }
}

fn newer(new: &PoolVolume, old: &PoolVolume) -> bool {
    Revision::<PoolVolume>::of(new).is_after(&Revision::of(old))
}

#[cfg(test)]
mod tests {
    use super::super::sample::in_phase;
    use super::*;
    use crate::api::crd::Phase;

    fn state(uid: &str, version: u32) -> PoolVolume {
        let mut object = in_phase(Phase::Pending);
        object.metadata.uid = Some(uid.to_owned());
        object.metadata.resource_version = Some(version.to_string());
        object
    }

    fn latest(shown: Option<PoolVolume>) -> LatestVolume {
        let id = state("a", 1).name_any().parse().expect("an id");
        LatestVolume::new(&Store::of(shown, |_, _| false), id)
    }

    fn show(latest: &mut LatestVolume, shown: Option<PoolVolume>) {
        latest.store = Store::of(shown, |_, _| false);
    }

    fn latest_of(latest: &mut LatestVolume) -> Option<(String, String)> {
        latest.current().map(|object| (object.uid().expect("set"), object.resource_version().expect("set")))
    }

    fn is(uid: &str, version: &str) -> Option<(String, String)> {
        Some((uid.to_owned(), version.to_owned()))
    }

    #[test]
    fn a_watch_that_lags_behind_our_own_write_undoes_nothing() {
        let mut latest = latest(None);
        assert_eq!(latest_of(&mut latest), None);
        latest.learn(Some(state("a", 5)));
        assert_eq!(latest_of(&mut latest), is("a", "5"), "the watch has not shown it yet");
        show(&mut latest, Some(state("a", 4)));
        assert_eq!(latest_of(&mut latest), is("a", "5"));
        show(&mut latest, Some(state("a", 7)));
        assert_eq!(latest_of(&mut latest), is("a", "7"));
        show(&mut latest, None);
        assert_eq!(latest_of(&mut latest), None, "the watch has shown it before, so it is gone");
    }

    #[test]
    fn what_was_withdrawn_stays_gone_though_the_watch_still_shows_it() {
        let mut latest = latest(Some(state("a", 5)));
        assert_eq!(latest_of(&mut latest), is("a", "5"));
        latest.learn(None);
        assert_eq!(latest_of(&mut latest), None);
        latest.learn(Some(state("b", 9)));
        assert_eq!(latest_of(&mut latest), is("b", "9"));
        show(&mut latest, None);
        assert_eq!(latest_of(&mut latest), is("b", "9"), "that was the end of the former one");
        show(&mut latest, Some(state("b", 9)));
        assert_eq!(latest_of(&mut latest), is("b", "9"));
        show(&mut latest, Some(state("c", 11)));
        assert_eq!(latest_of(&mut latest), is("c", "11"));
    }
}
