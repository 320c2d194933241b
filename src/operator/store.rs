//! What the cluster has of one kind, kept by a watch, and a bell that rings when it changes.
//!
//! Takes in a watch, gives out objects by name and a channel to wait on. A kind that the API server does not
//! know yet (its CRD comes later) is waited for and said once. An object that cannot be read (a later version wrote it)
//! stops only itself, and is there all the same: the last that was known of it stays, and what it takes stays taken.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::pin::pin;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};
use std::time::Duration;

use futures::StreamExt as _;
use kube::core::{DeserializeGuard, DynamicObject, PartialObjectMeta};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Config, Event, watcher};
use kube::{Api, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use tokio::sync::watch;

use super::cached_objects::{CachedObjects, UnreadObject};
use crate::host::backoff::Backoff;
use crate::host::chain;
use crate::operator::error::HOW;

/// How long to wait after a watch that failed: at first, and at most.
const FIRST_WAIT: Duration = Duration::from_millis(500);
const LONGEST_WAIT: Duration = Duration::from_secs(10);

/// How much of the cluster is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheState {
    /// All objects were read, and the API server still serves the kind.
    pub synced: bool,
    version: u64,
}

/// The objects of one kind.
pub struct Cache<K>(Arc<Inner<K>>);

struct Inner<K> {
    objects: RwLock<CachedObjects<K>>,
    known: watch::Sender<CacheState>,
    /// Whether two states of an object are the same to whoever waits for changes.
    same: fn(&K, &K) -> bool,
    /// What some of them are looked for by.
    group_of: fn(&K) -> Option<&str>,
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
        let (known, _) = watch::channel(CacheState::default());
        Self(Arc::new(Inner { objects: RwLock::default(), known, same, group_of }))
    }

    fn read(&self) -> RwLockReadGuard<'_, CachedObjects<K>> {
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
    pub fn changes(&self) -> watch::Receiver<CacheState> {
        self.0.known.subscribe()
    }

    /// Why an object that is there cannot be read; by name, or `namespace/name`.
    pub fn unread(&self, key: &str) -> Option<String> {
        self.read().unread.get(key).cloned()
    }

    fn replace(&self, objects: CachedObjects<K>) {
        *self.0.objects.write().unwrap_or_else(PoisonError::into_inner) = objects;
        self.0.known.send_modify(|known| *known = CacheState { synced: true, version: known.version + 1 });
    }

    fn put_unread(&self, unread: UnreadObject<K>) {
        let before = self.get(&unread.key);
        let mut objects = self.0.objects.write().unwrap_or_else(PoisonError::into_inner);
        objects.insert_unread(unread, before, self.0.group_of);
        drop(objects);
        self.0.known.send_modify(|known| known.version += 1);
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

    /// Says that it cannot be read, once for each reason.
    fn say(&self, unread: &UnreadObject<K>, what: &str) {
        if self.unread(&unread.key).as_ref() != Some(&unread.why) {
            tracing::warn!(
                name = unread.key,
                "an object of {what} cannot be read, and nothing is done about it: {}",
                unread.why
            );
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
        let key = key(&guard);
        guard.0.map_err(|invalid| UnreadObject { key, why: invalid.error, stand_in: None })
    };
    follow(&cache, watcher(api, config), open, what).await;
}

/// Watches full objects for ever; what cannot be read is stood in for by what `stand_in` makes of it.
pub async fn keep_standing_in<K>(
    cache: Cache<K>,
    api: Api<DynamicObject>,
    stand_in: fn(&DynamicObject) -> Option<K>,
    what: &'static str,
) where
    K: Resource<DynamicType = ()> + DeserializeOwned + Clone + Debug + Send + Sync + 'static,
{
    let open = |object: DynamicObject| open_or_stand_in(object, stand_in);
    follow(&cache, watcher(api, Config::default()), open, what).await;
}

fn open_or_stand_in<K>(object: DynamicObject, stand_in: fn(&DynamicObject) -> Option<K>) -> Result<K, UnreadObject<K>>
where
    K: Resource<DynamicType = ()> + DeserializeOwned,
{
    let key = key(&object);
    let standing_in = stand_in(&object).map(Arc::new);
    object.try_parse::<K>().map_err(|error| UnreadObject { key, why: error.to_string(), stand_in: standing_in })
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
    open: impl Fn(T) -> Result<K, UnreadObject<K>>,
    what: &'static str,
) {
    let slim = |mut object: T| {
        object.managed_fields_mut().clear();
        open(object)
    };
    let mut events = pin!(events.backoff(WatchBackoff(Backoff::new(FIRST_WAIT, LONGEST_WAIT))));
    let group_of = cache.0.group_of;
    let mut fresh = CachedObjects::default();
    let mut said = None;
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Init) => fresh = CachedObjects::default(),
            Ok(Event::InitApply(object)) => match slim(object) {
                Ok(object) => drop(fresh.insert(key(&object), Arc::new(object), group_of)),
                Err(unread) => {
                    cache.say(&unread, what);
                    let before = cache.get(&unread.key);
                    fresh.insert_unread(unread, before, group_of);
                }
            },
            Ok(Event::InitDone) => {
                if said.take().is_some() {
                    tracing::info!("{what} can be read again");
                }
                cache.replace(std::mem::take(&mut fresh));
            }
            Ok(Event::Apply(object)) => match slim(object) {
                Ok(object) => cache.put(object),
                Err(unread) => {
                    cache.say(&unread, what);
                    cache.put_unread(unread);
                }
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
                            "the API server does not know {what} yet; {HOW} installs the CRDs; not ready until then"
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

/// Between two tries of a watch, as kube asks for it.
struct WatchBackoff(Backoff);

impl Iterator for WatchBackoff {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        Some(self.0.wait())
    }
}

impl kube::runtime::utils::Backoff for WatchBackoff {
    fn reset(&mut self) {
        self.0.reset();
    }
}

#[cfg(test)]
impl<K: ResourceExt> Cache<K> {
    /// One that has been read.
    pub fn of(objects: impl IntoIterator<Item = K>, same: fn(&K, &K) -> bool) -> Self {
        let cache = Self::new(same);
        let mut all = CachedObjects::default();
        for object in objects {
            all.insert(key(&object), Arc::new(object), cache.0.group_of);
        }
        cache.replace(all);
        cache
    }
}

#[cfg(test)]
mod tests {
    use futures::stream;
    use k8s_openapi::api::core::v1::Node;

    use super::super::volume::node_capacity;
    use super::*;
    use crate::api::crd::PoolVolume;

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

    fn volume(name: &str, phase: &str, size: Option<u64>) -> Event<DynamicObject> {
        let value = serde_json::json!({
            "apiVersion": "localpool.dev/v1alpha1", "kind": "PoolVolume", "metadata": {"name": name},
            "spec": {"node": "n", "volumeName": name, "required": 7, "volumeMode": "Block", "parameters": {"class": "fast"}},
            "status": {"phase": phase, "size": size},
        });
        Event::Apply(serde_json::from_value(value).expect("an object"))
    }

    async fn watched(cache: &Cache<PoolVolume>, events: Vec<Event<DynamicObject>>) {
        let open = |object| open_or_stand_in(object, node_capacity::unread);
        follow(cache, stream::iter(events.into_iter().map(Ok)), open, "PoolVolumes").await;
    }

    fn listed(events: Vec<Event<DynamicObject>>) -> Vec<Event<DynamicObject>> {
        let list = events.into_iter().map(|event| match event {
            Event::Apply(object) => Event::InitApply(object),
            other => other,
        });
        [Event::Init].into_iter().chain(list).chain([Event::InitDone]).collect()
    }

    #[tokio::test]
    async fn a_volume_that_cannot_be_read_is_there_with_what_was_known_of_it_and_stops_no_other() {
        let cache = Cache::<PoolVolume>::grouped(|a, b| a == b, node_capacity::promised_on);
        let promised = || cache.group("n").iter().map(|volume| volume.name_any()).collect::<Vec<_>>();
        watched(&cache, listed(vec![volume("a", "Pending", None), volume("b", "Ready", Some(7))])).await;
        assert_eq!(promised(), ["a"]);
        // Once by the watch and once by a list.
        for events in [
            vec![volume("a", "Melting", None)],
            listed(vec![volume("a", "Melting", None), volume("b", "Ready", Some(7))]),
        ] {
            watched(&cache, events).await;
            assert!(cache.unread("a").is_some_and(|why| why.contains("Melting")));
            assert!(cache.get("a").is_some() && cache.get("b").is_some(), "it was treated as absent");
            assert_eq!(promised(), ["a"], "what it takes stays promised");
        }
        watched(&cache, vec![volume("a", "Ready", Some(7))]).await;
        assert_eq!((cache.unread("a"), promised()), (None, Vec::<String>::new()));
        watched(&cache, vec![volume("a", "Melting", None)]).await;
        watched(&cache, listed(vec![])).await;
        assert!(cache.unread("a").is_none() && cache.get("a").is_none(), "a list says all there is");
    }

    #[tokio::test]
    async fn a_volume_that_could_never_be_read_takes_its_place_until_it_is_on_a_disk_or_goes() {
        let cache = Cache::<PoolVolume>::grouped(|a, b| a == b, node_capacity::promised_on);
        let promised = || cache.group("n").iter().map(|volume| volume.spec.required).sum::<i64>();
        watched(&cache, listed(vec![volume("a", "Melting", None), volume("b", "Melting", Some(7))])).await;
        assert!(cache.unread("a").is_some() && cache.unread("b").is_some());
        assert!(cache.get("a").is_none() && cache.all().is_empty(), "nobody acts on what stands in for it");
        assert_eq!(promised(), 7, "the disk that has b counts it already");
        watched(&cache, vec![volume("a", "Pending", None)]).await;
        assert_eq!((promised(), cache.unread("a")), (7, None), "and is not counted twice");
        let mut changes = cache.changes();
        watched(&cache, vec![volume("c", "Melting", None)]).await;
        assert!(changes.has_changed().expect("open"));
        assert_eq!(promised(), 14);
        let Event::Apply(gone) = volume("c", "Melting", None) else { panic!() };
        watched(&cache, vec![Event::Delete(gone)]).await;
        assert_eq!((promised(), cache.unread("c")), (7, None));
        changes.mark_unchanged();
    }
}
