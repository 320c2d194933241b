//! What is known of the objects of one kind, and a notification when it changes.
//!
//! Takes in the events of a watch (`watch`), and the answers to our own writes; gives out objects by name and in
//! groups, and a channel to wait on. An object that cannot be read (a later version wrote it) is still there: its last
//! known state stays, and what it takes stays taken.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, atomic};

use kube::ResourceExt;
use tokio::sync::watch;

use crate::device::NodeName;
use crate::operator::api_server::object_key::{ObjectKey, Uid};

/// How much of the cluster is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreState {
    /// All objects were read, and the API server still serves the kind.
    pub synced: bool,
    /// How many times they were listed.
    pub(in crate::operator) lists: u64,
    version: u64,
}

impl StoreState {
    /// Another text after each change.
    pub fn tag(self) -> String {
        format!("{}{}", self.version, if self.synced { "" } else { "?" })
    }
}

/// The objects of one kind.
pub struct Store<K>(Arc<Inner<K>>);

struct Inner<K> {
    objects: RwLock<Objects<K>>,
    known: watch::Sender<StoreState>,
    /// Whether two states of an object are the same to whoever waits for changes.
    same: fn(&K, &K) -> bool,
    /// Nobody has answered for the API server since the last list. That is no change of any object.
    unanswered: atomic::AtomicBool,
}

impl<K> Clone for Store<K> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

pub type ByKey<K> = BTreeMap<ObjectKey, Arc<K>>;

/// An object, or that it cannot be read.
pub(in crate::operator) type Decoded<K> = Result<K, UnreadObject<K>>;

/// An object that cannot be read.
pub(in crate::operator) struct UnreadObject<K> {
    pub key: ObjectKey,
    pub revision: Revision<K>,
    pub why: String,
    /// Its value in its group, if no older state of it is known.
    pub stand_in: Option<Arc<K>>,
}

/// A message about an object: that it cannot be read, or that it can be read again.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::operator) enum Readability {
    Lost { key: ObjectKey, why: String },
    Back { key: ObjectKey },
}

/// How many lists a store has taken in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ListCount(u64);

/// Identifies an object, and its version.
#[derive(Clone, Debug)]
pub(in crate::operator) struct Revision<K> {
    uid: Option<Uid<K>>,
    version: Option<u64>,
}

impl<K> Revision<K> {
    /// Of an object of the kind `K`, in whatever form it came.
    pub fn of(object: &impl ResourceExt) -> Self {
        let version = object.resource_version().and_then(|text| text.parse().ok());
        Self { uid: object.uid().map(Uid::from), version }
    }

    /// Resource versions are numbers that grow, over all objects of a kind; one that is no number counts as newer.
    pub fn is_after(&self, other: &Self) -> bool {
        match (self.version, other.version) {
            (Some(this), Some(other)) => this > other,
            _ => true,
        }
    }

    /// An object that was deleted and created again has another UID.
    fn is_of_the_object(&self, other: &Self) -> bool {
        self.uid == other.uid
    }
}

impl<K> PartialEq for Revision<K> {
    fn eq(&self, other: &Self) -> bool {
        self.is_of_the_object(other) && self.version == other.version
    }
}

impl<K: ResourceExt> Store<K> {
    pub fn new(same: fn(&K, &K) -> bool) -> Self {
        Self::grouped(same, |_| None)
    }

    /// A store whose objects are also found by their node.
    pub fn grouped(same: fn(&K, &K) -> bool, group_of: fn(&K) -> Option<NodeName>) -> Self {
        let (known, _) = watch::channel(StoreState::default());
        let objects = RwLock::new(Objects::new(group_of));
        Self(Arc::new(Inner { objects, known, same, unanswered: atomic::AtomicBool::new(false) }))
    }

    fn read(&self) -> RwLockReadGuard<'_, Objects<K>> {
        self.0.objects.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Objects<K>> {
        self.0.objects.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// By name: of a kind without namespaces.
    pub fn get(&self, name: &str) -> Option<Arc<K>> {
        self.read().all.get(name).cloned()
    }

    /// All of them, by name.
    pub fn all(&self) -> Vec<Arc<K>> {
        self.read().all.values().cloned().collect()
    }

    pub(in crate::operator) fn by_key(&self) -> ByKey<K> {
        self.read().all.clone()
    }

    /// The objects of one node, by name.
    pub fn group(&self, node: &NodeName) -> Vec<Arc<K>> {
        self.read().groups.get(node).into_iter().flat_map(BTreeMap::values).cloned().collect()
    }

    /// The objects that are in any group.
    pub fn all_groups(&self) -> Vec<Arc<K>> {
        self.read().groups.values().flat_map(BTreeMap::values).cloned().collect()
    }

    /// Why an existing object cannot be read; by name, of a kind without namespaces.
    pub fn unread(&self, name: &str) -> Option<String> {
        self.read().unread.get(name).map(|unread| unread.why.clone())
    }

    pub fn is_synced(&self) -> bool {
        self.0.known.borrow().synced
    }

    /// Whether what is known is that of before: nobody answers for the API server.
    pub fn is_old(&self) -> bool {
        self.0.unanswered.load(atomic::Ordering::Relaxed)
    }

    pub(in crate::operator) fn set_old(&self, is_old: bool) {
        self.0.unanswered.store(is_old, atomic::Ordering::Relaxed);
    }

    /// What is known now.
    pub fn state(&self) -> StoreState {
        *self.0.known.borrow()
    }

    /// Wakes with each change.
    pub fn changes(&self) -> watch::Receiver<StoreState> {
        self.0.known.subscribe()
    }

    fn ring(&self) {
        self.0.known.send_modify(|known| known.version += 1);
    }

    /// Takes in a list, which is complete.
    pub(in crate::operator) fn replace(&self, listed: Vec<Decoded<K>>) -> Vec<Readability> {
        let mut objects = self.write();
        let mut next = Objects::new(objects.group_of);
        next.list_count = ListCount(objects.list_count.0 + 1);
        let before = std::mem::replace(&mut *objects, next);
        let readings = listed.into_iter().filter_map(|object| match object {
            Ok(object) => {
                let key = ObjectKey::of(&object);
                objects.note_version(&Revision::of(&object));
                objects.insert(key.clone(), Arc::new(object));
                before.unread.contains_key(&key).then_some(Readability::Back { key })
            }
            Err(unread) => {
                objects.note_version(&unread.revision);
                let (lost, known) = (before.newly_unread(&unread), before.all.get(&unread.key).cloned());
                objects.insert_unread(unread, known);
                lost
            }
        });
        let readings = readings.collect();
        drop(objects);
        self.0.known.send_modify(|known| {
            *known = StoreState { synced: true, lists: known.lists + 1, version: known.version + 1 };
        });
        readings
    }

    /// Takes in an object from a watch.
    pub(in crate::operator) fn put(&self, object: Decoded<K>) -> Option<Readability> {
        match object {
            Ok(object) => self.put_read(object),
            Err(unread) => self.put_unread(unread),
        }
    }

    fn put_read(&self, object: K) -> Option<Readability> {
        let (key, revision, object) = (ObjectKey::of(&object), Revision::of(&object), Arc::new(object));
        let mut objects = self.write();
        objects.note_version(&revision);
        let was_unread = objects.end_unread(&key);
        // A watch that lags behind our own write must not undo what we know.
        let known = objects.all.get(&key).map(|known| Revision::of(&**known));
        let lags = known.is_some_and(|known| known != revision && !revision.is_after(&known));
        let changed = !lags && {
            let before = objects.insert(key.clone(), Arc::clone(&object));
            before.is_none_or(|before| !(self.0.same)(&before, &object))
        };
        drop(objects);
        if was_unread || changed {
            self.ring();
        }
        was_unread.then_some(Readability::Back { key })
    }

    fn put_unread(&self, unread: UnreadObject<K>) -> Option<Readability> {
        let mut objects = self.write();
        objects.note_version(&unread.revision);
        let lost = objects.newly_unread(&unread);
        let known = objects.take(&unread.key);
        objects.insert_unread(unread, known);
        drop(objects);
        self.ring();
        lost
    }

    /// For [`Self::learn`]: read it before the request is sent.
    pub(in crate::operator) fn list_count(&self) -> ListCount {
        self.read().list_count
    }

    /// Takes in an object from an answer to our own write or read, which was sent after `sent` lists; one that is
    /// older than what is known changes nothing. Only the watch decides whether an object can be read: an answer may be
    /// late.
    pub(in crate::operator) fn learn(&self, object: K, sent: ListCount) {
        let (key, revision) = (ObjectKey::of(&object), Revision::of(&object));
        let mut objects = self.write();
        let after_known = objects.all.get(&key).is_none_or(|known| revision.is_after(&Revision::of(&**known)));
        let after_unread = objects.unread.get(&key).is_none_or(|unread| revision.is_after(&unread.revision));
        if !after_known || !after_unread || objects.is_gone(&key, &revision, sent) {
            return;
        }
        objects.insert(key, Arc::new(object));
        drop(objects);
        self.ring();
    }

    /// Takes in that an object is gone; there may be another one of its name.
    pub(in crate::operator) fn remove(&self, gone: &impl ResourceExt) {
        let (key, revision) = (ObjectKey::of(gone), Revision::of(gone));
        let mut objects = self.write();
        objects.note_version(&revision);
        let unread = objects.unread.get(&key).is_some_and(|unread| unread.revision.is_of_the_object(&revision))
            && objects.end_unread(&key);
        let known = objects.all.get(&key).is_some_and(|known| Revision::of(&**known).is_of_the_object(&revision))
            && objects.take(&key).is_some();
        drop(objects);
        if unread || known {
            self.ring();
        }
    }

    /// The API server does not serve the kind.
    pub(in crate::operator) fn lose(&self) {
        self.0.known.send_if_modified(|known| std::mem::replace(&mut known.synced, false));
    }

    /// The API server serves the kind; what is known stays valid.
    pub(in crate::operator) fn find(&self) {
        self.0.known.send_if_modified(|known| {
            let lost = known.lists > 0 && !known.synced;
            known.synced |= lost;
            lost
        });
    }
}

/// The objects by name and in groups, and those that cannot be read.
struct Objects<K> {
    all: ByKey<K>,
    groups: BTreeMap<NodeName, ByKey<K>>,
    /// Those that cannot be read as they are now.
    unread: BTreeMap<ObjectKey, Unread<K>>,
    /// The newest version that the watch has reported since the list.
    newest: u64,
    list_count: ListCount,
    /// The key by which some of them are found.
    group_of: fn(&K) -> Option<NodeName>,
}

struct Unread<K> {
    revision: Revision<K>,
    why: String,
    /// The value in its group, if no older state of it is known.
    stand_in: Option<Arc<K>>,
}

impl<K: ResourceExt> Objects<K> {
    fn new(group_of: fn(&K) -> Option<NodeName>) -> Self {
        let (all, groups, unread) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self { all, groups, unread, newest: 0, list_count: ListCount::default(), group_of }
    }

    fn note_version(&mut self, revision: &Revision<K>) {
        self.newest = self.newest.max(revision.version.unwrap_or_default());
    }

    /// Whether an object that is not there may be gone since: a state of it was reported before, or the list came after
    /// the request. A list does not tell its own version, which can be newer than all of its objects.
    fn is_gone(&self, key: &ObjectKey, revision: &Revision<K>, sent: ListCount) -> bool {
        let is_there = self.all.contains_key(key) || self.unread.contains_key(key);
        let was_reported = revision.version.is_some_and(|version| version <= self.newest);
        !is_there && (was_reported || sent != self.list_count)
    }

    /// That it cannot be read, once for each reason.
    fn newly_unread(&self, unread: &UnreadObject<K>) -> Option<Readability> {
        let UnreadObject { key, why, .. } = unread;
        let is_known = self.unread.get(key).is_some_and(|before| before.why == *why);
        (!is_known).then(|| Readability::Lost { key: key.clone(), why: why.clone() })
    }

    fn insert(&mut self, key: ObjectKey, object: Arc<K>) -> Option<Arc<K>> {
        let before = self.take(&key);
        self.join(&key, &object);
        self.all.insert(key, object);
        before
    }

    /// Its last known state counts, else its stand-in. The state of an earlier object of its name does not count: that
    /// object is gone.
    fn insert_unread(&mut self, unread: UnreadObject<K>, known: Option<Arc<K>>) {
        let UnreadObject { key, revision, why, stand_in } = unread;
        let known = known.filter(|known| Revision::of(&**known).is_of_the_object(&revision));
        let stand_in = stand_in.filter(|_| known.is_none());
        if let Some(stand_in) = &stand_in {
            self.join(&key, stand_in);
        }
        if let Some(known) = known {
            self.insert(key.clone(), known);
        }
        self.unread.insert(key, Unread { revision, why, stand_in });
    }

    /// Removes what counts for it; it stays unreadable.
    fn take(&mut self, key: &ObjectKey) -> Option<Arc<K>> {
        if let Some(stand_in) = self.unread.get_mut(key).and_then(|unread| unread.stand_in.take()) {
            self.leave(key, &stand_in);
        }
        let before = self.all.remove(key)?;
        self.leave(key, &before);
        Some(before)
    }

    /// Whether it could not be read until now.
    fn end_unread(&mut self, key: &ObjectKey) -> bool {
        let Some(Unread { stand_in, .. }) = self.unread.remove(key) else { return false };
        if let Some(stand_in) = stand_in {
            self.leave(key, &stand_in);
        }
        true
    }

    fn join(&mut self, key: &ObjectKey, object: &Arc<K>) {
        if let Some(group) = (self.group_of)(object) {
            self.groups.entry(group).or_default().insert(key.clone(), Arc::clone(object));
        }
    }

    fn leave(&mut self, key: &ObjectKey, object: &K) {
        if let Some(group) = (self.group_of)(object)
            && let Some(members) = self.groups.get_mut(&group)
        {
            members.remove(key);
            if members.is_empty() {
                self.groups.remove(&group);
            }
        }
    }
}

#[cfg(any(test, feature = "testing"))]
mod sample;
#[cfg(test)]
mod tests;
