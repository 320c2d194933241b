//! What one replica does for all: StorageClasses, the status of sets and LocalVolumes, and volumes whose node is gone.
//!
//! Each pass looks at the whole and writes what differs; it begins when something changed, or when the one
//! before could not do all, or when
//! something is due. `set::{class, status, local_volume}`, `volume::{deleted_node, leftover}` and
//! `pool::deleted_node` decide and are pure; this does it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Node, ObjectReference};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::core::DeserializeGuard;
use kube::runtime::events::{Recorder, Reporter};
use kube::{Api, Client, Resource, ResourceExt as _};
use serde_json::json;
use tokio::task::JoinSet;

use super::Error;
use super::controller::{Caches, Metrics};
use super::store;
use super::store::Cache;
use super::volume::objects::{Objects, Outcome, within};
use crate::api::crd::{DevicePool, LocalVolume, LocalVolumeSet, LocalVolumeSetStatus, LocalVolumeStatus, PoolVolume};
use crate::host::backoff::Backoff;
use crate::host::chain;
use crate::operator::crd_owner::Whose;
use crate::operator::event::{News, Tone};
use crate::operator::set::class::Class;
use crate::operator::set::status::Read;
pub use crate::operator::volume::deleted_node::Gone;
use crate::volume::DRIVER_NAME;

/// Changes come in crowds; a pass waits for the end of one.
const SETTLE: Duration = Duration::from_millis(250);
/// How long a pass that could not do all is not tried again: at first, and at most.
const FIRST_WAIT: Duration = Duration::from_secs(2);
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// How long what nobody asks for any more is left as it is.
const LEFT_FOR: SignedDuration = SignedDuration::from_mins(10);

/// The work of the leader.
pub struct Leader {
    pub(in crate::operator) client: Client,
    pub(in crate::operator) caches: Caches,
    pub(in crate::operator) classes: Cache<StorageClass>,
    pub(in crate::operator) objects: Objects,
    pub(in crate::operator) recorder: Recorder,
    pub(in crate::operator) metrics: Metrics,
    pub(in crate::operator) gone: Gone,
    pub(in crate::operator) left_for: SignedDuration,
}

/// How a pass ended.
pub(in crate::operator) struct Pass {
    /// Nothing is left to be tried again.
    pub(in crate::operator) done: bool,
    /// When there is something to do though nothing changes.
    pub(in crate::operator) due: Option<Timestamp>,
}

impl Leader {
    pub fn new(client: Client, caches: Caches, metrics: Metrics, gone: Gone, identity: &str) -> Self {
        let reporter = Reporter { controller: DRIVER_NAME.to_owned(), instance: Some(identity.to_owned()) };
        Self {
            caches,
            classes: Cache::new(|a, b| a == b),
            objects: Objects::new(client.clone()),
            recorder: Recorder::new(client.clone(), reporter),
            metrics,
            gone,
            left_for: LEFT_FOR,
            client,
        }
    }

    /// Takes back after another time what nobody asks for any more.
    pub fn leaving_for(self, left_for: SignedDuration) -> Self {
        Self { left_for, ..self }
    }

    /// Works until it is dropped.
    pub async fn run(self) {
        let mut tasks = JoinSet::new();
        let api = Api::<DeserializeGuard<StorageClass>>::all(self.client.clone());
        tasks.spawn(store::keep(self.classes.clone(), api, "StorageClasses"));
        let (mut changes, mut classes) = (self.caches.changes(), self.classes.changes());
        let mut backoff = Backoff::new(FIRST_WAIT, LONGEST_WAIT);
        let mut left = crate::operator::pool::deleted_node::Left::default();
        loop {
            // What changes from here on begins another pass.
            changes.seen();
            classes.borrow_and_update();
            let Pass { done, due } = match self.caches.are_synced() && self.classes.is_synced() {
                true => self.pass(&mut left).await,
                false => Pass { done: true, due: None },
            };
            let until = due.map_or(Duration::MAX, |due| {
                Duration::try_from(due.duration_since(Timestamp::now())).unwrap_or_default()
            });
            let again = backoff.after(!done).map_or(until, |wait| until.min(wait));
            let _ = tokio::time::timeout(again, async {
                tokio::select! {
                    () = changes.next() => {}
                    _ = classes.changed() => {}
                }
            })
            .await;
            tokio::time::sleep(SETTLE).await;
        }
    }

    pub(in crate::operator) async fn pass(&self, left: &mut crate::operator::pool::deleted_node::Left) -> Pass {
        let mut made = BTreeMap::new();
        let sets = self.sets(&mut made).await;
        let local_volumes = self.local_volumes(&mut made).await;
        let (volumes, leftover) = self.volumes().await;
        let (pools, unused) = self.unused_pools(left).await;
        Pass { done: sets && local_volumes && volumes && pools, due: leftover.into_iter().chain(unused).min() }
    }

    /// Counts a write, and says what went wrong.
    pub(in crate::operator) fn note<T>(&self, controller: &str, result: Result<T, Error>) -> bool {
        match result {
            Ok(_) => {
                self.metrics.writes.with_label_values(&[controller]).inc();
                true
            }
            Err(error) => {
                self.metrics.errors.with_label_values(&[controller]).inc();
                tracing::warn!(controller, "{}; it is tried again", chain(&error));
                false
            }
        }
    }

    pub(in crate::operator) async fn tell(&self, about: ObjectReference, action: &str, news: &[News]) -> bool {
        let mut done = true;
        for news in news {
            let event = news.event(action);
            let request = self.recorder.publish(&event, &about);
            let told = within("writing an Event", request).await;
            done &= told.is_ok() || self.note("events", told);
        }
        done
    }

    /// What nodes say that exist: nobody brings up to date what one said that was deleted.
    pub(in crate::operator) fn pools(&self) -> Vec<Arc<DevicePool>> {
        let mut pools = self.caches.pools.all();
        pools.retain(|pool| self.caches.nodes.get(&pool.name_any()).is_some());
        pools
    }

    /// `made` is how it stands with each class.
    pub(in crate::operator) async fn sets(&self, made: &mut BTreeMap<String, Class>) -> bool {
        let (nodes, pools) = (self.caches.nodes.all(), self.pools());
        let mut sets = self.caches.sets.all();
        // A class of several sets carries the name of the oldest.
        sets.sort_by_key(|set| (set.metadata.creation_timestamp.as_ref().map(|time| time.0), set.name_any()));
        let whose = Whose::of::<LocalVolumeSet>(&self.client);
        let mut done = true;
        let readings = self.caches.read_sets.of(&sets);
        let read_sets = sets.iter().zip(readings).filter(|(set, _)| set.metadata.deletion_timestamp.is_none());
        for (set, reading) in read_sets {
            let read = crate::operator::set::status::read(set, &reading, &nodes);
            let class = match &read {
                // A dry run leaves nothing behind, not even a class.
                Read::Invalid(_) | Read::Valid { dry_run: true, .. } => None,
                Read::Valid { class: name, .. } => {
                    if !made.contains_key(name) {
                        let (class, ok) = self.class(name, &**set, &whose).await;
                        done &= ok;
                        made.insert(name.clone(), class);
                    }
                    made.get(name)
                }
            };
            let offers = crate::operator::set::status::offers(set, pools.iter().map(Arc::as_ref));
            let (status, news) = crate::operator::set::status::decide(set, &read, class, &offers);
            if set.status.as_ref() == Some(&status) {
                continue;
            }
            let may_write = self.may_write(&whose).await;
            if may_write == Some(true) {
                let written = self.note("sets", self.write(set, &status).await);
                done &= written && self.tell(set.object_ref(&()), "Claim", &news).await;
            }
            done &= may_write.is_some();
        }
        done
    }

    pub(in crate::operator) async fn local_volumes(&self, made: &mut BTreeMap<String, Class>) -> bool {
        let (nodes, pools) = (self.caches.nodes.all(), self.pools());
        let mut volumes = self.caches.local_volumes.all();
        volumes
            .sort_by_key(|volume| (volume.metadata.creation_timestamp.as_ref().map(|time| time.0), volume.name_any()));
        if volumes.is_empty() || !self.caches.local_volumes.is_synced() {
            return true;
        }
        let whose = Whose::of::<LocalVolume>(&self.client);
        let mut done = true;
        let readings = self.caches.read_volumes.of(&volumes);
        let read_volumes =
            volumes.iter().zip(readings).filter(|(volume, _)| volume.metadata.deletion_timestamp.is_none());
        for (volume, reading) in read_volumes {
            let read = crate::operator::set::local_volume::read(volume, &reading, &nodes);
            if let crate::operator::set::local_volume::Read::Valid { classes, left_alone: false, .. } = &read {
                for name in classes.iter().filter(|name| !name.is_empty()) {
                    if !made.contains_key(name) {
                        let (class, ok) = self.class(name, &**volume, &whose).await;
                        done &= ok;
                        made.insert(name.clone(), class);
                    }
                }
            }
            let offers = crate::operator::set::local_volume::offers(volume, pools.iter().map(Arc::as_ref));
            let (status, news) = crate::operator::set::local_volume::decide(volume, &read, made, &offers);
            if volume.status.as_ref() == Some(&status) {
                continue;
            }
            let may_write = self.may_write(&whose).await;
            if may_write == Some(true) {
                let written = self.note("local volumes", self.write_volume(volume, &status).await);
                done &= written && self.tell(volume.object_ref(&()), "Claim", &news).await;
            }
            done &= may_write.is_some();
        }
        done
    }

    /// Whether something may be written about objects of a kind; `None`: that could not be asked.
    pub(in crate::operator) async fn may_write(&self, whose: &Whose) -> Option<bool> {
        match whose.are_ours().await {
            Ok(ours) => Some(ours),
            Err(error) => {
                self.note("definitions", Err::<(), _>(error));
                None
            }
        }
    }

    pub(in crate::operator) async fn write_volume(
        &self,
        volume: &LocalVolume,
        status: &LocalVolumeStatus,
    ) -> Result<(), Error> {
        let (namespace, name) = (volume.namespace().unwrap_or_default(), volume.name_any());
        let api: Api<LocalVolume> = Api::namespaced(self.client.clone(), &namespace);
        let what = format!("writing the status of LocalVolume {namespace}/{name}");
        let patch = Patch::Merge(json!({ "status": status }));
        match within(&what, api.patch_status(&name, &PatchParams::default(), &patch)).await {
            Err(error) if !error.is_not_found() => Err(error),
            _ => Ok(()),
        }
    }

    /// How it stands with the class, and whether that is all that can be done.
    pub(in crate::operator) async fn class<K: Resource<DynamicType = ()>>(
        &self,
        name: &str,
        object: &K,
        whose: &Whose,
    ) -> (Class, bool) {
        let found = crate::operator::set::class::look(self.classes.get(name).as_deref());
        if found != Class::Missing {
            return (found, true);
        }
        match self.may_write(whose).await {
            Some(true) => {}
            other => return (Class::Missing, other.is_some()),
        }
        let api: Api<StorageClass> = Api::all(self.client.clone());
        let what = format!("creating StorageClass {name}");
        let class = crate::operator::set::class::make(name, object);
        match within(&what, api.create(&PostParams::default(), &class)).await {
            Ok(class) => {
                self.note("classes", Ok(()));
                let kind = K::kind(&());
                let note = format!("StorageClass {} was made for the {kind}", class.name_any());
                let news = News { tone: Tone::Normal, reason: "StorageClassCreated".to_owned(), note };
                let told = self.tell(object.object_ref(&()), "CreateStorageClass", &[news]).await;
                (Class::Ours, told)
            }
            // Somebody was first; the watch will show it.
            Err(error) if error.is_conflict() => (Class::Missing, true),
            // The same request would be refused again.
            Err(error) if error.code() == Some(422) => (Class::Refused(chain(&error)), true),
            Err(error) => (Class::Missing, self.note("classes", Err::<(), _>(error))),
        }
    }

    pub(in crate::operator) async fn write(
        &self,
        set: &LocalVolumeSet,
        status: &LocalVolumeSetStatus,
    ) -> Result<(), Error> {
        let (namespace, name) = (set.namespace().unwrap_or_default(), set.name_any());
        let api: Api<LocalVolumeSet> = Api::namespaced(self.client.clone(), &namespace);
        let what = format!("writing the status of LocalVolumeSet {namespace}/{name}");
        let patch = Patch::Merge(json!({ "status": status }));
        match within(&what, api.patch_status(&name, &PatchParams::default(), &patch)).await {
            Err(error) if !error.is_not_found() => Err(error),
            _ => Ok(()),
        }
    }

    /// Whether all was done, and when the next object becomes a leftover.
    pub(in crate::operator) async fn volumes(&self) -> (bool, Option<Timestamp>) {
        let mut done = true;
        let mut next: Option<Timestamp> = None;
        let now = Timestamp::now();
        for volume in self.caches.volumes.all() {
            match crate::operator::volume::leftover::due(&volume, self.left_for) {
                Some(due) if due <= now => {
                    done &= self.note("leftovers", self.objects.withdraw(&volume).await);
                    continue;
                }
                Some(due) => next = Some(next.map_or(due, |next| next.min(due))),
                None => {}
            }
            let exists = self.caches.nodes.get(&volume.spec.node).is_some();
            let Some(act) = crate::operator::volume::deleted_node::decide(&volume, exists, self.gone) else { continue };
            // A watch may be behind; that a node is gone is asked of the API server itself.
            let result = match exists || !self.exists(&volume.spec.node).await.unwrap_or(true) {
                true => self.act(&volume, act).await,
                false => continue,
            };
            match result {
                Ok(news) => {
                    self.note("nodes", Ok(()));
                    done &= self.tell(volume.object_ref(&()), "WatchNode", &news).await;
                }
                Err(error) => done &= self.note("nodes", Err::<(), _>(error)),
            }
        }
        (done, next)
    }

    /// Deletes DevicePools that no agent brings up to date any more; gives whether all was done, and when the next one is
    /// due.
    pub(in crate::operator) async fn unused_pools(
        &self,
        left: &mut crate::operator::pool::deleted_node::Left,
    ) -> (bool, Option<Timestamp>) {
        let volumes = self.caches.volumes.all();
        let used =
            |name: &str| self.caches.nodes.get(name).is_some() || volumes.iter().any(|volume| volume.spec.node == name);
        let (due, next) = left.due(self.caches.pools.all(), used, self.left_for, Timestamp::now());
        let mut done = true;
        for pool in due {
            // A watch may be behind.
            if !self.exists(&pool.name_any()).await.unwrap_or(true) {
                done &= self.note("nodes", self.delete_pool(&pool).await);
            }
        }
        (done, next)
    }

    pub(in crate::operator) async fn delete_pool(&self, pool: &DevicePool) -> Result<(), Error> {
        let (api, name) = (Api::<DevicePool>::all(self.client.clone()), pool.name_any());
        let exactly = Preconditions { uid: pool.uid(), resource_version: pool.resource_version() };
        let params = DeleteParams { preconditions: Some(exactly), ..DeleteParams::default() };
        let what = format!("deleting DevicePool {name}, whose node was deleted");
        match within(&what, api.delete(&name, &params)).await {
            Err(error) if !error.is_not_found() && !error.is_conflict() => Err(error),
            _ => Ok(()),
        }
    }

    pub(in crate::operator) async fn exists(&self, node: &str) -> Result<bool, Error> {
        let api: Api<Node> = Api::all(self.client.clone());
        Ok(within(&format!("reading Node {node}"), api.get_metadata_opt(node)).await?.is_some())
    }

    /// Gives what there is to tell.
    pub(in crate::operator) async fn act(
        &self,
        volume: &PoolVolume,
        act: crate::operator::volume::deleted_node::Act,
    ) -> Result<Vec<News>, Error> {
        let node = &volume.spec.node;
        let warning = |reason: &str, note: String| News { tone: Tone::Warning, reason: reason.to_owned(), note };
        let (conditions, news) = match act {
            crate::operator::volume::deleted_node::Act::Release => {
                let held = match self.objects.delete(volume).await? {
                    Outcome::Done(held) => held,
                    Outcome::Changed => return Ok(Vec::new()),
                };
                if let Some(held) = held {
                    self.objects.let_go(&held).await?;
                }
                let note = format!("node {node} was deleted, and its volume was given up; nothing was erased");
                return Ok(vec![warning("NodeDeletedVolumeReleased", note)]);
            }
            crate::operator::volume::deleted_node::Act::Mark(conditions) => {
                let note = format!("node {node}, whose disk holds the volume, was deleted");
                (conditions, vec![warning("NodeDeleted", note)])
            }
            crate::operator::volume::deleted_node::Act::Clear(conditions) => {
                let news =
                    News { tone: Tone::Normal, reason: "NodeBack".to_owned(), note: format!("node {node} is back") };
                (conditions, vec![news])
            }
        };
        let api: Api<PoolVolume> = Api::all(self.client.clone());
        let name = volume.name_any();
        let change = json!({
            "metadata": { "resourceVersion": volume.resource_version() },
            "status": { "conditions": conditions },
        });
        let what = format!("writing the status of PoolVolume {name}");
        match within(&what, api.patch_status(&name, &PatchParams::default(), &Patch::Merge(&change))).await {
            Ok(_) => Ok(news),
            // It changed: the watch begins another pass.
            Err(error) if error.is_conflict() || error.is_not_found() => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }
}
