//! Writes StorageClasses and statuses for the objects of users.
//!
//! Takes in sets, LocalVolumes and what the nodes offer for them; creates a missing class, and writes a status that
//! differs. Only the leader does this.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::{Patch, PatchParams, PostParams};
use kube::runtime::events::EventType;
use kube::{Api, Resource, ResourceExt as _};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use super::Leader;
use crate::api::crd::{LocalVolume, LocalVolumeSet};
use crate::host::chain;
use crate::operator::client::within;
use crate::operator::crd_owner::Whose;
use crate::operator::error::OperatorError;
use crate::operator::event::EventNote;
use crate::operator::set::class::{self, Class};
use crate::operator::set::{local_volume, status};

/// The state of a class, and whether everything that can be done for it was done.
struct ClassWork {
    class: Class,
    is_done: bool,
}

impl Leader {
    /// `made` has the state of each class.
    pub(super) async fn sets(&self, made: &mut BTreeMap<String, Class>) -> bool {
        let (nodes, pools) = (self.stores.nodes.all(), self.pools());
        let mut sets = self.stores.sets.all();
        // A class of several sets carries the name of the oldest.
        sets.sort_by_key(|set| (set.metadata.creation_timestamp.as_ref().map(|time| time.0), set.name_any()));
        let whose = Whose::of::<LocalVolumeSet>(&self.client);
        let mut done = true;
        let readings = self.stores.read_sets.of_any_node(&sets);
        let read_sets = sets.iter().zip(readings).filter(|(set, _)| set.metadata.deletion_timestamp.is_none());
        for (set, reading) in read_sets {
            let read = status::read(set, &reading, &nodes);
            let class = match &read {
                // A dry run creates nothing, not even a class.
                status::SetSummary::Invalid(_) | status::SetSummary::Valid { dry_run: true, .. } => None,
                status::SetSummary::Valid { class: name, .. } => {
                    done &= self.know_class(name, &**set, &whose, made).await;
                    made.get(name)
                }
            };
            let offers = status::offers(set, pools.iter().map(Arc::as_ref));
            let (status, events) = status::decide(set, &read, class, &offers);
            if set.status.as_ref() == Some(&status) {
                continue;
            }
            let may_write = self.may_write(&whose).await;
            if may_write == Some(true) {
                let written = self.note("sets", self.write_status(&**set, &status).await);
                done &= written && self.publish_events(set.object_ref(&()), "Claim", &events).await;
            }
            done &= may_write.is_some();
        }
        done
    }

    pub(super) async fn local_volumes(&self, made: &mut BTreeMap<String, Class>) -> bool {
        let (nodes, pools) = (self.stores.nodes.all(), self.pools());
        let mut volumes = self.stores.local_volumes.all();
        volumes
            .sort_by_key(|volume| (volume.metadata.creation_timestamp.as_ref().map(|time| time.0), volume.name_any()));
        if volumes.is_empty() || !self.stores.local_volumes.is_synced() {
            return true;
        }
        let whose = Whose::of::<LocalVolume>(&self.client);
        let mut done = true;
        let readings = self.stores.read_volumes.of_any_node(&volumes);
        let read_volumes =
            volumes.iter().zip(readings).filter(|(volume, _)| volume.metadata.deletion_timestamp.is_none());
        for (volume, reading) in read_volumes {
            let read = local_volume::read(volume, &reading, &nodes);
            if let local_volume::LocalVolumeSummary::Valid { classes, unmanaged: false, .. } = &read {
                for name in classes.iter().filter(|name| !name.is_empty()) {
                    done &= self.know_class(name, &**volume, &whose, made).await;
                }
            }
            let offers = local_volume::offers(volume, pools.iter().map(Arc::as_ref));
            let (status, events) = local_volume::decide(volume, &read, made, &offers);
            if volume.status.as_ref() == Some(&status) {
                continue;
            }
            let may_write = self.may_write(&whose).await;
            if may_write == Some(true) {
                let written = self.note("local volumes", self.write_status(&**volume, &status).await);
                done &= written && self.publish_events(volume.object_ref(&()), "Claim", &events).await;
            }
            done &= may_write.is_some();
        }
        done
    }

    /// Adds the state of the class to `made`, after making it where it is missing. Whether everything that can be done
    /// was done.
    async fn know_class<K: Resource<DynamicType = ()>>(
        &self,
        name: &str,
        object: &K,
        whose: &Whose,
        made: &mut BTreeMap<String, Class>,
    ) -> bool {
        if made.contains_key(name) {
            return true;
        }
        let ClassWork { class, is_done } = match class::look(self.classes.get(name).as_deref()) {
            Class::Missing => self.make_class(name, object, whose).await,
            class => ClassWork { class, is_done: true },
        };
        made.insert(name.to_owned(), class);
        is_done
    }

    async fn make_class<K: Resource<DynamicType = ()>>(&self, name: &str, object: &K, whose: &Whose) -> ClassWork {
        match self.may_write(whose).await {
            Some(true) => {}
            other => return ClassWork { class: Class::Missing, is_done: other.is_some() },
        }
        let api: Api<StorageClass> = Api::all(self.client.clone());
        let what = format!("creating StorageClass {name}");
        let class = class::make(name, object);
        match within(&what, api.create(&PostParams::default(), &class)).await {
            Ok(class) => {
                self.note("classes", Ok(()));
                let kind = K::kind(&());
                let note = format!("StorageClass {} was created for the {kind}", class.name_any());
                let event = EventNote { type_: EventType::Normal, reason: "StorageClassCreated".to_owned(), note };
                let published = self.publish_events(object.object_ref(&()), "CreateStorageClass", &[event]).await;
                ClassWork { class: Class::Ours, is_done: published }
            }
            // Another writer was first; the watch will show it.
            Err(error) if error.is_conflict() => ClassWork { class: Class::Missing, is_done: true },
            // The same request would be refused again.
            Err(error) if error.code() == Some(422) => {
                ClassWork { class: Class::Refused(chain(&error)), is_done: true }
            }
            Err(error) => ClassWork { class: Class::Missing, is_done: self.note("classes", Err::<(), _>(error)) },
        }
    }

    /// An object that is gone has no status.
    async fn write_status<K, S>(&self, object: &K, status: &S) -> Result<(), OperatorError>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned,
        S: Serialize,
    {
        let (namespace, name) = (object.namespace().unwrap_or_default(), object.name_any());
        let api: Api<K> = Api::namespaced(self.client.clone(), &namespace);
        let what = format!("writing the status of {} {namespace}/{name}", K::kind(&()));
        let patch = Patch::Merge(json!({ "status": status }));
        match within(&what, api.patch_status(&name, &PatchParams::default(), &patch)).await {
            Err(error) if !error.is_not_found() => Err(error),
            _ => Ok(()),
        }
    }
}
