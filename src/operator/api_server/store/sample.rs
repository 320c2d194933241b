//! Stores for tests, without a watch.

use kube::ResourceExt;

use super::Store;

impl<K: ResourceExt> Store<K> {
    /// Objects that could be read.
    pub fn of(objects: impl IntoIterator<Item = K>, same: fn(&K, &K) -> bool) -> Self {
        let store = Self::new(same);
        store.replace(objects.into_iter().map(Ok).collect());
        store
    }

    /// An object as a watch brings it.
    pub fn hold(&self, object: K) {
        self.put(Ok(object));
    }
}
