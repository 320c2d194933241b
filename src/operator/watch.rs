//! Watches: a mirror of some objects, and of this node's PoolVolumes. A kind that the API server does not
//! serve (its CRD is gone) is waited for; what was known of it stays known until it is listed again. An object that cannot
//! be read (a later version wrote it) holds up no other: the last that was known of it stays.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::{Arc, PoisonError, RwLock};

use futures::{Stream, StreamExt as _};
use kube::core::DeserializeGuard;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use tokio::sync::Notify;
use uuid::Uuid;

use super::error::words;
use super::node::context::NodeOperator;
use crate::api::crd::PoolVolume;

/// Keeps `changed` told of all objects of a watch: once they were listed, and after each change.
pub async fn mirror<K>(
    api: Api<DeserializeGuard<K>>,
    config: watcher::Config,
    changed: impl FnMut(&BTreeMap<String, Arc<K>>),
) where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
{
    reflect(watcher(api, config).default_backoff(), changed).await;
}

async fn reflect<K>(
    events: impl Stream<Item = watcher::Result<Event<DeserializeGuard<K>>>>,
    mut changed: impl FnMut(&BTreeMap<String, Arc<K>>),
) where
    K: Resource<DynamicType = ()>,
{
    let mut objects: BTreeMap<String, Arc<K>> = BTreeMap::new();
    let mut listing = BTreeMap::new();
    let (mut trouble, mut unread) = (Trouble::default(), UnreadSaid::default());
    let mut events = std::pin::pin!(events);
    let key =
        |object: &DeserializeGuard<K>| format!("{}/{}", object.namespace().unwrap_or_default(), object.name_any());
    while let Some(event) = events.next().await {
        match trouble.told(&K::plural(&()), event) {
            None => {}
            Some(Event::Init) => listing = BTreeMap::new(),
            Some(Event::InitApply(object)) => {
                let key = key(&object);
                if let Some(object) = unread.open(object).map(Arc::new).or_else(|| objects.get(&key).cloned()) {
                    listing.insert(key, object);
                }
            }
            Some(Event::InitDone) => {
                objects = std::mem::take(&mut listing);
                changed(&objects);
            }
            Some(Event::Apply(object)) => {
                let key = key(&object);
                if let Some(object) = unread.open(object) {
                    objects.insert(key, Arc::new(object));
                    changed(&objects);
                }
            }
            Some(Event::Delete(object)) => {
                objects.remove(&key(&object));
                changed(&objects);
            }
        }
    }
}

/// The objects that this version cannot read, by name, each with the reason.
#[derive(Default)]
struct UnreadSaid(BTreeMap<String, String>);

impl UnreadSaid {
    /// The object, where this version can read it; that it cannot is said once.
    fn open<K: Resource<DynamicType = ()>>(&mut self, object: DeserializeGuard<K>) -> Option<K> {
        let (what, namespace, name) = (K::plural(&()), object.namespace().unwrap_or_default(), object.name_any());
        let key = format!("{namespace}/{name}");
        match object.0 {
            Ok(object) => {
                self.0.remove(&key);
                Some(object)
            }
            Err(invalid) => {
                if self.is_news(&key, &invalid.error) {
                    tracing::warn!(
                        %what, namespace, name,
                        "an object cannot be read, and nothing is done about it: {}", invalid.error
                    );
                }
                None
            }
        }
    }

    fn is_news(&mut self, key: &str, why: &str) -> bool {
        self.0.insert(key.to_owned(), why.to_owned()).is_none_or(|before| before != why)
    }
}

/// Says a failure of a watch once, and that it is over.
#[derive(Default)]
struct Trouble {
    last: Option<String>,
}

impl Trouble {
    fn told<K>(&mut self, what: &str, event: Result<Event<K>, watcher::Error>) -> Option<Event<K>> {
        match event {
            Ok(event) => {
                // The list has begun to come in only when its first object or its end does.
                if !matches!(event, Event::Init) && self.last.take().is_some() {
                    tracing::info!(what, "the API server answers again");
                }
                Some(event)
            }
            Err(error) => {
                let words = words(&error);
                if self.last.as_ref() != Some(&words) {
                    tracing::warn!(what, error = words, "cannot watch; trying again, and working with what is known");
                    self.last = Some(words);
                }
                None
            }
        }
    }
}

/// What there is.
#[derive(Default)]
struct WatchedVolumes {
    /// As each was read last.
    read: BTreeMap<Uuid, Arc<PoolVolume>>,
    /// Those of which nobody here knows what they say now.
    unread: BTreeSet<Uuid>,
}

/// A list that comes in, and what was said of its objects.
#[derive(Default)]
struct Listing {
    objects: WatchedVolumes,
    said: UnreadSaid,
}

/// This node's PoolVolumes, as far as the API server has told of them.
#[derive(Clone, Default)]
pub struct KnownVolumes {
    objects: Arc<RwLock<Option<WatchedVolumes>>>,
    listed: Arc<Notify>,
}

impl KnownVolumes {
    /// Whether they were listed once.
    pub fn is_complete(&self) -> bool {
        self.objects.read().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Returns after each list.
    pub async fn listed(&self) {
        self.listed.notified().await;
    }

    /// As it was read last.
    pub fn get(&self, id: Uuid) -> Option<Arc<PoolVolume>> {
        self.objects.read().unwrap_or_else(PoisonError::into_inner).as_ref()?.read.get(&id).cloned()
    }

    /// Its object is there, and this version cannot read what it says now.
    pub fn is_unread(&self, id: Uuid) -> bool {
        let objects = self.objects.read().unwrap_or_else(PoisonError::into_inner);
        objects.as_ref().is_some_and(|objects| objects.unread.contains(&id))
    }

    pub fn ids(&self) -> Vec<Uuid> {
        let objects = self.objects.read().unwrap_or_else(PoisonError::into_inner);
        objects.iter().flat_map(|objects| objects.read.keys()).copied().collect()
    }

    /// An object as a write of ours or an event gave it; an older one than is known is not news.
    pub fn learn(&self, object: PoolVolume) {
        let Some(id) = id_of(&object) else { return };
        let mut objects = self.objects.write().unwrap_or_else(PoisonError::into_inner);
        let Some(WatchedVolumes { read, .. }) = objects.as_mut() else { return };
        let newer = read.get(&id).is_none_or(|known| known.uid() != object.uid() || version(known) <= version(&object));
        if newer {
            read.insert(id, Arc::new(object));
        }
    }

    fn mark(&self, id: Uuid, is_unread: bool) {
        let mut objects = self.objects.write().unwrap_or_else(PoisonError::into_inner);
        let Some(WatchedVolumes { unread, .. }) = objects.as_mut() else { return };
        if is_unread {
            unread.insert(id);
        } else {
            unread.remove(&id);
        }
    }

    fn forget(&self, object: &impl ResourceExt) -> Option<Uuid> {
        let id = id_of(object)?;
        self.mark(id, false);
        let mut objects = self.objects.write().unwrap_or_else(PoisonError::into_inner);
        let WatchedVolumes { read, .. } = objects.as_mut()?;
        if read.get(&id).is_some_and(|known| known.uid() == object.uid()) {
            read.remove(&id);
        }
        Some(id)
    }

    /// Takes over an event; gives the volume that is to be looked at because of it.
    fn take(&self, listing: &mut Listing, event: Event<DeserializeGuard<PoolVolume>>) -> Option<Uuid> {
        let Listing { objects, said } = listing;
        match event {
            Event::Init => *objects = WatchedVolumes::default(),
            Event::InitApply(object) => {
                let id = id_of(&object)?;
                let read = said.open(object).map(Arc::new);
                if read.is_none() {
                    objects.unread.insert(id);
                }
                objects.read.insert(id, read.or_else(|| self.get(id))?);
            }
            Event::InitDone => self.replace(std::mem::take(objects)),
            Event::Apply(object) => {
                let id = id_of(&object)?;
                let read = said.open(object);
                self.mark(id, read.is_none());
                self.learn(read?);
                return Some(id);
            }
            Event::Delete(object) => return self.forget(&object),
        }
        None
    }

    fn replace(&self, all: WatchedVolumes) {
        *self.objects.write().unwrap_or_else(PoisonError::into_inner) = Some(all);
        self.listed.notify_one();
    }
}

/// An object whose name is no id is not one of ours: nothing is done about it.
pub fn id_of(object: &impl ResourceExt) -> Option<Uuid> {
    let id: crate::volume::VolumeId = object.name_any().parse().ok()?;
    Some(id.uuid())
}

fn version(object: &PoolVolume) -> u64 {
    object.resource_version().and_then(|text| text.parse().ok()).unwrap_or_default()
}

/// Keeps `known` in step, and has each volume looked at that changed.
pub async fn volumes(operator: NodeOperator, known: KnownVolumes) {
    let config = watcher::Config::default().fields(&format!("spec.node={}", operator.node));
    let mut listing = Listing::default();
    let mut trouble = Trouble::default();
    let api: Api<DeserializeGuard<PoolVolume>> = Api::all(operator.client.clone());
    let mut events = std::pin::pin!(watcher(api, config).default_backoff());
    while let Some(event) = events.next().await {
        let told = trouble.told("poolvolumes", event);
        if let Some(id) = told.and_then(|event| known.take(&mut listing, event)) {
            operator.look_at(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::stream;
    use serde_json::json;

    use super::*;
    use crate::api::crd::Phase;

    const A: &str = "00000000-0000-5000-8000-00000000000a";
    const B: &str = "00000000-0000-5000-8000-00000000000b";

    /// As it comes over the wire: what is not of this version is not readable.
    fn object(name: &str, version: u32, phase: &str) -> DeserializeGuard<PoolVolume> {
        let value = json!({
            "apiVersion": "localpool.dev/v1alpha1", "kind": "PoolVolume",
            "metadata": {"name": name, "uid": name, "resourceVersion": version.to_string()},
            "spec": {"node": "n", "volumeName": "v", "required": 1, "volumeMode": "Block"},
            "status": {"phase": phase},
        });
        serde_json::from_value(value).expect("guarded")
    }

    fn id(name: &str) -> Uuid {
        name.parse().expect("an id")
    }

    fn phase_of(known: &KnownVolumes, name: &str) -> Option<Phase> {
        known.get(id(name)).map(|object| object.status.as_ref().expect("set").phase)
    }

    #[test]
    fn a_volume_that_this_version_cannot_read_holds_up_no_other() {
        let (known, mut listing) = (KnownVolumes::default(), Listing::default());
        let mut take = |event| known.take(&mut listing, event);
        take(Event::Init);
        take(Event::InitApply(object(A, 1, "Melting")));
        take(Event::InitApply(object(B, 2, "Ready")));
        take(Event::InitDone);
        assert!(known.is_complete());
        assert_eq!((phase_of(&known, A), phase_of(&known, B)), (None, Some(Phase::Ready)));
        assert_eq!(take(Event::Apply(object(B, 3, "Melting"))), None);
        assert_eq!(phase_of(&known, B), Some(Phase::Ready), "the last that was known of it stays");
        assert_eq!(take(Event::Apply(object(A, 4, "Ready"))), Some(id(A)));
        assert_eq!(phase_of(&known, A), Some(Phase::Ready));
        assert_eq!(take(Event::Delete(object(B, 5, "Melting"))), Some(id(B)), "it goes all the same");
        assert_eq!(phase_of(&known, B), None);
    }

    #[test]
    fn a_volume_that_cannot_be_read_is_there_all_the_same_until_it_can_be_or_goes() {
        let (known, mut listing) = (KnownVolumes::default(), Listing::default());
        let mut take = |event| known.take(&mut listing, event);
        take(Event::Init);
        take(Event::InitApply(object(A, 1, "Melting")));
        take(Event::InitApply(object(B, 2, "Ready")));
        take(Event::InitDone);
        let unread = || [A, B].map(|name| known.is_unread(id(name)));
        assert_eq!(unread(), [true, false]);
        assert_eq!(take(Event::Apply(object(B, 3, "Melting"))), None);
        assert_eq!(unread(), [true, true], "what was known of it is not what it says now");
        assert_eq!(take(Event::Apply(object(A, 4, "Ready"))), Some(id(A)));
        assert_eq!(take(Event::Delete(object(B, 5, "Melting"))), Some(id(B)));
        assert_eq!(unread(), [false, false]);
        // A list says all there is.
        take(Event::Apply(object(A, 6, "Melting")));
        take(Event::Init);
        take(Event::InitDone);
        assert_eq!(unread(), [false, false]);
    }

    #[test]
    fn that_an_object_cannot_be_read_is_said_once_until_it_can_be_or_the_reason_is_another() {
        let mut unread = UnreadSaid::default();
        assert!(unread.is_news("a", "no such phase"));
        assert!(!unread.is_news("a", "no such phase"));
        assert!(unread.is_news("b", "no such phase"));
        assert!(unread.is_news("a", "no such mode"));
        unread.0.remove("a");
        assert!(unread.is_news("a", "no such mode"));
    }

    #[tokio::test]
    async fn a_mirrored_object_that_this_version_cannot_read_holds_up_no_other() {
        let events = [
            Event::Init,
            Event::InitApply(object(A, 1, "Melting")),
            Event::InitApply(object(B, 2, "Ready")),
            Event::InitDone,
            Event::Apply(object(B, 3, "Melting")),
            Event::Apply(object(A, 4, "Ready")),
            Event::Init,
            Event::InitApply(object(A, 5, "Melting")),
            Event::InitDone,
        ];
        let mut seen = Vec::new();
        reflect(stream::iter(events.map(Ok)), |objects| seen.push(objects.keys().cloned().collect::<Vec<_>>())).await;
        let key = |name: &str| format!("/{name}");
        assert_eq!(seen, [vec![key(B)], vec![key(A), key(B)], vec![key(A)]]);
    }
}
