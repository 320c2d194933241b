//! What the cluster has of one kind, kept by a watch, and a bell that rings when it changes.
//!
//! Takes in a watch, gives out objects by name and a channel to wait on. A kind that the API server does not
//! know yet (its CRD comes later) is waited for and said once; an object that cannot be read stops only itself.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::pin::pin;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};
use std::time::Duration;

use futures::StreamExt as _;
use kube::core::{DeserializeGuard, PartialObjectMeta};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::utils::Backoff;
use kube::runtime::watcher::{self, Config, Event, watcher};
use kube::{Api, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use tokio::sync::watch;

use crate::host::chain;

/// How long to wait after a watch that failed: at first, and at most.
const FIRST_WAIT: Duration = Duration::from_millis(500);
const LONGEST_WAIT: Duration = Duration::from_secs(10);

/// How much of the cluster is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Known {
    /// All objects were read, and the API server still serves the kind.
    pub synced: bool,
    version: u64,
}

/// The objects of one kind.
pub struct Cache<K>(Arc<Inner<K>>);

struct Inner<K> {
    objects: RwLock<Objects<K>>,
    known: watch::Sender<Known>,
    /// Whether two states of an object are the same to whoever waits for changes.
    same: fn(&K, &K) -> bool,
    /// What some of them are looked for by.
    group_of: fn(&K) -> Option<&str>,
}

type ByKey<K> = BTreeMap<String, Arc<K>>;

struct Objects<K> {
    all: ByKey<K>,
    groups: BTreeMap<String, ByKey<K>>,
}

impl<K> Default for Objects<K> {
    fn default() -> Self {
        Self { all: BTreeMap::new(), groups: BTreeMap::new() }
    }
}

impl<K> Objects<K> {
    fn insert(&mut self, key: String, object: Arc<K>, group_of: fn(&K) -> Option<&str>) -> Option<Arc<K>> {
        let before = self.remove(&key, group_of);
        if let Some(group) = group_of(&object) {
            self.groups.entry(group.to_owned()).or_default().insert(key.clone(), Arc::clone(&object));
        }
        self.all.insert(key, object);
        before
    }

    fn remove(&mut self, key: &str, group_of: fn(&K) -> Option<&str>) -> Option<Arc<K>> {
        let before = self.all.remove(key)?;
        if let Some(group) = group_of(&before)
            && let Some(members) = self.groups.get_mut(group)
        {
            members.remove(key);
            if members.is_empty() {
                self.groups.remove(group);
            }
        }
        Some(before)
    }
}

impl<K> Clone for Cache<K> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

/// `namespace/name`, or the name alone.
fn key<K: ResourceExt>(object: &K) -> String {
    match object.namespace() {
        Some(namespace) => format!("{namespace}/{}", object.name_any()),
        None => object.name_any(),
    }
}

impl<K: ResourceExt> Cache<K> {
    pub fn new(same: fn(&K, &K) -> bool) -> Self {
        Self::grouped(same, |_| None)
    }

    /// One whose objects are looked for by something else, too.
    pub fn grouped(same: fn(&K, &K) -> bool, group_of: fn(&K) -> Option<&str>) -> Self {
        let (known, _) = watch::channel(Known::default());
        Self(Arc::new(Inner { objects: RwLock::default(), known, same, group_of }))
    }

    fn read(&self) -> RwLockReadGuard<'_, Objects<K>> {
        self.0.objects.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// By name, or `namespace/name`.
    pub fn get(&self, key: &str) -> Option<Arc<K>> {
        self.read().all.get(key).cloned()
    }

    /// All of them, by name.
    pub fn all(&self) -> Vec<Arc<K>> {
        self.read().all.values().cloned().collect()
    }

    /// Those of one group, by name.
    pub fn group(&self, group: &str) -> Vec<Arc<K>> {
        self.read().groups.get(group).into_iter().flat_map(BTreeMap::values).cloned().collect()
    }

    /// Those that are in any group.
    pub fn all_groups(&self) -> Vec<Arc<K>> {
        self.read().groups.values().flat_map(BTreeMap::values).cloned().collect()
    }

    pub fn is_synced(&self) -> bool {
        self.0.known.borrow().synced
    }

    /// Wakes with each change.
    pub fn changes(&self) -> watch::Receiver<Known> {
        self.0.known.subscribe()
    }

    fn replace(&self, all: ByKey<K>) {
        let mut objects = Objects::default();
        for (key, object) in all {
            objects.insert(key, object, self.0.group_of);
        }
        *self.0.objects.write().unwrap_or_else(PoisonError::into_inner) = objects;
        self.0.known.send_modify(|known| *known = Known { synced: true, version: known.version + 1 });
    }

    fn put(&self, object: K) {
        let (key, object) = (key(&object), Arc::new(object));
        let before = self.0.objects.write().unwrap_or_else(PoisonError::into_inner).insert(
            key,
            Arc::clone(&object),
            self.0.group_of,
        );
        if before.is_none_or(|before| !(self.0.same)(&before, &object)) {
            self.0.known.send_modify(|known| known.version += 1);
        }
    }

    fn remove(&self, key: &str) {
        let before = self.0.objects.write().unwrap_or_else(PoisonError::into_inner).remove(key, self.0.group_of);
        if before.is_some() {
            self.0.known.send_modify(|known| known.version += 1);
        }
    }

    fn lose(&self) {
        self.0.known.send_if_modified(|known| std::mem::replace(&mut known.synced, false));
    }
}

/// Watches full objects for ever.
pub async fn keep<K>(cache: Cache<K>, api: Api<DeserializeGuard<K>>, what: &'static str)
where
    K: Resource<DynamicType = ()> + DeserializeOwned + Clone + Debug + Send + Sync + 'static,
{
    keep_some(cache, api, Config::default(), what).await;
}

/// The same of those that a selector selects.
pub async fn keep_some<K>(cache: Cache<K>, api: Api<DeserializeGuard<K>>, config: Config, what: &'static str)
where
    K: Resource<DynamicType = ()> + DeserializeOwned + Clone + Debug + Send + Sync + 'static,
{
    let open = |guard: DeserializeGuard<K>| {
        let metadata = guard.meta().clone();
        guard.0.map_err(|invalid| {
            let name = metadata.name.unwrap_or_default();
            tracing::warn!(name, "an object of {what} cannot be read and is left out: {}", invalid.error);
            match metadata.namespace {
                Some(namespace) => format!("{namespace}/{name}"),
                None => name,
            }
        })
    };
    follow(&cache, watcher(api, config), open, what).await;
}

/// Watches the metadata of objects for ever.
pub async fn keep_metadata<K>(cache: Cache<PartialObjectMeta<K>>, api: Api<PartialObjectMeta<K>>, what: &'static str)
where
    K: Resource<DynamicType = ()> + Clone + Debug + Send + Sync + 'static,
{
    follow(&cache, watcher(api, Config::default()), Ok, what).await;
}

async fn follow<K: ResourceExt, T: ResourceExt>(
    cache: &Cache<K>,
    events: impl futures::Stream<Item = watcher::Result<Event<T>>> + Send,
    open: impl Fn(T) -> Result<K, String>,
    what: &'static str,
) {
    let slim = |mut object: T| {
        object.managed_fields_mut().clear();
        open(object)
    };
    let mut events = pin!(events.backoff(Patience::default()));
    let mut fresh = ByKey::new();
    let mut said = None;
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Init) => fresh.clear(),
            Ok(Event::InitApply(object)) => {
                if let Ok(object) = slim(object) {
                    fresh.insert(key(&object), Arc::new(object));
                }
            }
            Ok(Event::InitDone) => {
                if said.take().is_some() {
                    tracing::info!("{what} can be read again");
                }
                cache.replace(std::mem::take(&mut fresh));
            }
            Ok(Event::Apply(object)) => match slim(object) {
                Ok(object) => cache.put(object),
                Err(key) => cache.remove(&key),
            },
            Ok(Event::Delete(object)) => cache.remove(&key(&object)),
            Err(error) => {
                let missing = is_missing(&error);
                if missing {
                    cache.lose();
                }
                let words = chain(&error);
                if said.as_ref() != Some(&words) {
                    match missing {
                        true => tracing::warn!(
                            "the API server does not know {what} yet; install the CRDs (localpool crds --apply); \
                             not ready until then"
                        ),
                        false => tracing::warn!("watching {what} failed and is tried again: {words}"),
                    }
                    said = Some(words);
                }
            }
        }
    }
}

/// Whether the API server knows no such kind.
fn is_missing(error: &watcher::Error) -> bool {
    match error {
        watcher::Error::InitialListFailed(kube::Error::Api(status))
        | watcher::Error::WatchStartFailed(kube::Error::Api(status))
        | watcher::Error::WatchFailed(kube::Error::Api(status)) => status.code == 404,
        watcher::Error::WatchError(status) => status.code == 404,
        _ => false,
    }
}

/// Doubles from the first wait to the longest.
struct Patience(Duration);

impl Default for Patience {
    fn default() -> Self {
        Self(FIRST_WAIT)
    }
}

impl Iterator for Patience {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        let wait = self.0;
        self.0 = (wait * 2).min(LONGEST_WAIT);
        Some(wait)
    }
}

impl Backoff for Patience {
    fn reset(&mut self) {
        self.0 = FIRST_WAIT;
    }
}

#[cfg(test)]
impl<K: ResourceExt> Cache<K> {
    /// One that has been read.
    pub fn of(objects: impl IntoIterator<Item = K>, same: fn(&K, &K) -> bool) -> Self {
        let cache = Self::new(same);
        cache.replace(objects.into_iter().map(|object| (key(&object), Arc::new(object))).collect());
        cache
    }
}

#[cfg(test)]
mod tests {
    use futures::stream;
    use k8s_openapi::api::core::v1::Node;

    use super::*;

    type Meta = PartialObjectMeta<Node>;

    fn node(name: &str, version: &str) -> Meta {
        let mut node = Meta::default();
        node.metadata.name = Some(name.to_owned());
        node.metadata.labels = Some([("v".to_owned(), version.to_owned())].into());
        node
    }

    fn status(code: u16) -> watcher::Error {
        let status = kube::core::Status { code, ..kube::core::Status::default() };
        watcher::Error::InitialListFailed(kube::Error::Api(Box::new(status)))
    }

    async fn play(cache: &Cache<Meta>, events: Vec<watcher::Result<Event<Meta>>>) {
        follow(cache, stream::iter(events), Ok, "nodes").await;
    }

    #[tokio::test]
    async fn a_list_replaces_what_was_there_and_a_watch_changes_it() {
        let cache = Cache::new(|a: &Meta, b| a.metadata.labels == b.metadata.labels);
        assert!(!cache.is_synced());
        play(&cache, vec![Ok(Event::Init), Ok(Event::InitApply(node("a", "1")))]).await;
        assert!(!cache.is_synced() && cache.all().is_empty(), "half a list is none");
        play(&cache, vec![Ok(Event::Init), Ok(Event::InitApply(node("b", "1"))), Ok(Event::InitDone)]).await;
        assert!(cache.is_synced() && cache.get("a").is_none() && cache.get("b").is_some());
        let mut changes = cache.changes();
        play(&cache, vec![Ok(Event::Apply(node("b", "1")))]).await;
        assert!(!changes.has_changed().expect("open"), "nothing that matters changed");
        play(&cache, vec![Ok(Event::Apply(node("b", "2"))), Ok(Event::Delete(node("b", "2")))]).await;
        assert!(changes.has_changed().expect("open") && cache.all().is_empty());
        changes.mark_unchanged();
        play(&cache, vec![Ok(Event::Delete(node("b", "2")))]).await;
        assert!(!changes.has_changed().expect("open"));
    }

    #[tokio::test]
    async fn a_group_is_what_its_objects_say_now() {
        fn group_of(node: &Meta) -> Option<&str> {
            node.metadata.labels.as_ref()?.get("v").map(String::as_str)
        }
        let cache = Cache::grouped(|_: &Meta, _| false, group_of);
        let names = |group: &str| cache.group(group).iter().map(|node| node.name_any()).collect::<Vec<_>>();
        let list = [Event::Init, Event::InitApply(node("a", "1")), Event::InitApply(node("b", "1")), Event::InitDone];
        play(&cache, list.map(Ok).into()).await;
        assert_eq!((names("1"), names("2")), (vec!["a".to_owned(), "b".to_owned()], vec![]));
        play(&cache, vec![Ok(Event::Apply(node("a", "2"))), Ok(Event::Delete(node("b", "1")))]).await;
        assert_eq!((names("1"), names("2")), (vec![], vec!["a".to_owned()]));
        play(&cache, vec![Ok(Event::Init), Ok(Event::InitDone)]).await;
        assert!(cache.all_groups().is_empty());
    }

    #[tokio::test]
    async fn a_kind_that_the_server_does_not_know_is_not_ready_until_it_is_served() {
        let cache = Cache::new(|_: &Meta, _| false);
        play(&cache, vec![Ok(Event::Init), Ok(Event::InitDone)]).await;
        play(&cache, vec![Err(status(500))]).await;
        assert!(cache.is_synced(), "what is known stays known while the server is away");
        play(&cache, vec![Err(status(404))]).await;
        assert!(!cache.is_synced());
        play(&cache, vec![Ok(Event::Init), Ok(Event::InitDone)]).await;
        assert!(cache.is_synced());
    }

    #[test]
    fn waits_grow_to_their_limit() {
        let waits: Vec<u128> = Patience::default().take(7).map(|wait| wait.as_millis()).collect();
        assert_eq!(waits, [500, 1000, 2000, 4000, 8000, 10_000, 10_000]);
    }
}
