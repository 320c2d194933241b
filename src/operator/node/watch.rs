//! Watches: a mirror of some objects, and of this node's PoolVolumes. A kind that the API server does not
//! serve (its CRD is gone) is waited for; what was known of it stays known until it is listed again.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, PoisonError, RwLock};

use futures::StreamExt as _;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use tokio::sync::Notify;
use uuid::Uuid;

use super::NodeOperator;
use crate::api::crd::PoolVolume;
use crate::operator::words;

/// Keeps `changed` told of all objects of a watch: once they were listed, and after each change.
pub async fn mirror<K>(api: Api<K>, config: watcher::Config, mut changed: impl FnMut(&BTreeMap<String, Arc<K>>))
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let mut objects = BTreeMap::new();
    let mut listing = BTreeMap::new();
    let mut trouble = Trouble::default();
    let mut events = std::pin::pin!(watcher(api, config).default_backoff());
    let key = |object: &K| format!("{}/{}", object.namespace().unwrap_or_default(), object.name_any());
    while let Some(event) = events.next().await {
        match trouble.told(&K::plural(&()), event) {
            None => {}
            Some(Event::Init) => listing = BTreeMap::new(),
            Some(Event::InitApply(object)) => {
                listing.insert(key(&object), Arc::new(object));
            }
            Some(Event::InitDone) => {
                objects = std::mem::take(&mut listing);
                changed(&objects);
            }
            Some(Event::Apply(object)) => {
                objects.insert(key(&object), Arc::new(object));
                changed(&objects);
            }
            Some(Event::Delete(object)) => {
                objects.remove(&key(&object));
                changed(&objects);
            }
        }
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

    fn forget(&self, object: &PoolVolume) -> Option<Uuid> {
        let id = id_of(object)?;
        let mut objects = self.objects.write().unwrap_or_else(PoisonError::into_inner);
        let objects = objects.as_mut()?;
        if objects.get(&id).is_some_and(|known| known.uid() == object.uid()) {
            objects.remove(&id);
        }
        Some(id)
    }

    fn replace(&self, all: Objects) {
        *self.objects.write().unwrap_or_else(PoisonError::into_inner) = Some(all);
        self.listed.notify_one();
    }
}

/// An object whose name is no id is not one of ours: nothing is done about it.
pub fn id_of(object: &PoolVolume) -> Option<Uuid> {
    let id: crate::volume::VolumeId = object.name_any().parse().ok()?;
    Some(id.uuid())
}

fn version(object: &PoolVolume) -> u64 {
    object.resource_version().and_then(|text| text.parse().ok()).unwrap_or_default()
}

/// Keeps `known` in step, and has each volume looked at that changed.
pub async fn volumes(operator: NodeOperator, known: Known) {
    let config = watcher::Config::default().fields(&format!("spec.node={}", operator.node));
    let mut listing = BTreeMap::new();
    let mut trouble = Trouble::default();
    let api: Api<PoolVolume> = Api::all(operator.client.clone());
    let mut events = std::pin::pin!(watcher(api, config).default_backoff());
    while let Some(event) = events.next().await {
        match trouble.told("poolvolumes", event) {
            None => {}
            Some(Event::Init) => listing = BTreeMap::new(),
            Some(Event::InitApply(object)) => {
                if let Some(id) = id_of(&object) {
                    listing.insert(id, Arc::new(object));
                }
            }
            Some(Event::InitDone) => known.replace(std::mem::take(&mut listing)),
            Some(Event::Apply(object)) => {
                let id = id_of(&object);
                known.learn(object);
                if let Some(id) = id {
                    operator.look_at(id);
                }
            }
            Some(Event::Delete(object)) => {
                if let Some(id) = known.forget(&object) {
                    operator.look_at(id);
                }
            }
        }
    }
}
