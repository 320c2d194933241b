//! Watches: a mirror of some objects, and of this node's PoolVolumes. A kind that the API server does not
//! serve (its CRD is gone) is waited for; what was known of it stays known until it is listed again. An object that cannot
//! be read (a later version wrote it) holds up no other: the last that was known of it stays.

use std::collections::BTreeMap;
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

use super::NodeOperator;
use crate::api::crd::PoolVolume;
use crate::operator::words;

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
    let mut trouble = Trouble::default();
    let mut events = std::pin::pin!(events);
    let key =
        |object: &DeserializeGuard<K>| format!("{}/{}", object.namespace().unwrap_or_default(), object.name_any());
    while let Some(event) = events.next().await {
        match trouble.told(&K::plural(&()), event) {
            None => {}
            Some(Event::Init) => listing = BTreeMap::new(),
            Some(Event::InitApply(object)) => {
                let key = key(&object);
                if let Some(object) = readable(object).map(Arc::new).or_else(|| objects.get(&key).cloned()) {
                    listing.insert(key, object);
                }
            }
            Some(Event::InitDone) => {
                objects = std::mem::take(&mut listing);
                changed(&objects);
            }
            Some(Event::Apply(object)) => {
                let key = key(&object);
                if let Some(object) = readable(object) {
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

/// The object, where this version can read it; that it cannot is said.
fn readable<K: Resource<DynamicType = ()>>(object: DeserializeGuard<K>) -> Option<K> {
    let (what, name) = (K::plural(&()), object.name_any());
    let read = object.0.inspect_err(|invalid| {
        tracing::warn!(%what, name, "an object cannot be read, and nothing is done about it: {}", invalid.error);
    });
    read.ok()
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

type Objects = BTreeMap<Uuid, Arc<PoolVolume>>;

/// This node's PoolVolumes, as far as the API server has told of them.
#[derive(Clone, Default)]
pub struct Known {
    objects: Arc<RwLock<Option<Objects>>>,
    listed: Arc<Notify>,
}

impl Known {
    /// Whether they were listed once.
    pub fn is_complete(&self) -> bool {
        self.objects.read().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Returns after each list.
    pub async fn listed(&self) {
        self.listed.notified().await;
    }

    pub fn get(&self, id: Uuid) -> Option<Arc<PoolVolume>> {
        self.objects.read().unwrap_or_else(PoisonError::into_inner).as_ref()?.get(&id).cloned()
    }

    pub fn ids(&self) -> Vec<Uuid> {
        let objects = self.objects.read().unwrap_or_else(PoisonError::into_inner);
        objects.iter().flat_map(BTreeMap::keys).copied().collect()
    }

    /// An object as a write of ours or an event gave it; an older one than is known is not news.
    pub fn learn(&self, object: PoolVolume) {
        let Some(id) = id_of(&object) else { return };
        let mut objects = self.objects.write().unwrap_or_else(PoisonError::into_inner);
        let Some(objects) = objects.as_mut() else { return };
        let newer =
            objects.get(&id).is_none_or(|known| known.uid() != object.uid() || version(known) <= version(&object));
        if newer {
            objects.insert(id, Arc::new(object));
        }
    }

    fn forget(&self, object: &impl ResourceExt) -> Option<Uuid> {
        let id = id_of(object)?;
        let mut objects = self.objects.write().unwrap_or_else(PoisonError::into_inner);
        let objects = objects.as_mut()?;
        if objects.get(&id).is_some_and(|known| known.uid() == object.uid()) {
            objects.remove(&id);
        }
        Some(id)
    }

    /// Takes over an event; gives the volume that is to be looked at because of it.
    fn take(&self, listing: &mut Objects, event: Event<DeserializeGuard<PoolVolume>>) -> Option<Uuid> {
        match event {
            Event::Init => listing.clear(),
            Event::InitApply(object) => {
                let id = id_of(&object)?;
                let object = readable(object).map(Arc::new).or_else(|| self.get(id))?;
                listing.insert(id, object);
            }
            Event::InitDone => self.replace(std::mem::take(listing)),
            Event::Apply(object) => {
                let id = id_of(&object)?;
                self.learn(readable(object)?);
                return Some(id);
            }
            Event::Delete(object) => return self.forget(&object),
        }
        None
    }

    fn replace(&self, all: Objects) {
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
pub async fn volumes(operator: NodeOperator, known: Known) {
    let config = watcher::Config::default().fields(&format!("spec.node={}", operator.node));
    let mut listing = Objects::new();
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

    fn phase_of(known: &Known, name: &str) -> Option<Phase> {
        known.get(id(name)).map(|object| object.status.as_ref().expect("set").phase)
    }

    #[test]
    fn a_volume_that_this_version_cannot_read_holds_up_no_other() {
        let (known, mut listing) = (Known::default(), Objects::new());
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
