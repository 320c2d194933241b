//! The objects of one kind as they are known: by name, in groups, and those that cannot be read.
//!
//! Takes in objects, and what stands for one that cannot be read; gives out what counts. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

type ByKey<K> = BTreeMap<String, Arc<K>>;

pub(super) struct CachedObjects<K> {
    pub all: ByKey<K>,
    pub groups: BTreeMap<String, ByKey<K>>,
    /// Those that cannot be read as they are now, each with the reason.
    pub unread: BTreeMap<String, String>,
    /// What counts for those of them of which nothing older is known.
    stand_ins: ByKey<K>,
}

/// An object that cannot be read.
pub(super) struct UnreadObject<K> {
    pub key: String,
    pub why: String,
    /// What it counts as in its group, where nothing older is known of it.
    pub stand_in: Option<Arc<K>>,
}

impl<K> Default for CachedObjects<K> {
    fn default() -> Self {
        Self { all: BTreeMap::new(), groups: BTreeMap::new(), unread: BTreeMap::new(), stand_ins: BTreeMap::new() }
    }
}

impl<K> CachedObjects<K> {
    pub fn insert(&mut self, key: String, object: Arc<K>, group_of: fn(&K) -> Option<&str>) -> Option<Arc<K>> {
        let before = self.remove(&key, group_of);
        self.join(&key, &object, group_of);
        self.all.insert(key, object);
        before
    }

    /// What was known of it counts, else what stands in for it.
    pub fn insert_unread(&mut self, unread: UnreadObject<K>, before: Option<Arc<K>>, group_of: fn(&K) -> Option<&str>) {
        let UnreadObject { key, why, stand_in } = unread;
        self.remove(&key, group_of);
        match (before, stand_in) {
            (Some(before), _) => drop(self.insert(key.clone(), before, group_of)),
            (None, Some(stand_in)) => {
                self.join(&key, &stand_in, group_of);
                self.stand_ins.insert(key.clone(), stand_in);
            }
            (None, None) => {}
        }
        self.unread.insert(key, why);
    }

    pub fn remove(&mut self, key: &str, group_of: fn(&K) -> Option<&str>) -> Option<Arc<K>> {
        self.unread.remove(key);
        if let Some(stand_in) = self.stand_ins.remove(key) {
            self.leave(key, &stand_in, group_of);
        }
        let before = self.all.remove(key)?;
        self.leave(key, &before, group_of);
        Some(before)
    }

    fn join(&mut self, key: &str, object: &Arc<K>, group_of: fn(&K) -> Option<&str>) {
        if let Some(group) = group_of(object) {
            self.groups.entry(group.to_owned()).or_default().insert(key.to_owned(), Arc::clone(object));
        }
    }

    fn leave(&mut self, key: &str, object: &K, group_of: fn(&K) -> Option<&str>) {
        if let Some(group) = group_of(object)
            && let Some(members) = self.groups.get_mut(group)
        {
            members.remove(key);
            if members.is_empty() {
                self.groups.remove(group);
            }
        }
    }
}
