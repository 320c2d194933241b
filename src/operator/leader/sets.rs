//! Writes StorageClasses and statuses for the objects of users.
//!
//! Takes in sets, LocalVolumes and what the nodes offer for them; creates a missing class, and writes a status that
//! differs. Only the leader does this.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::PostParams;
use kube::runtime::events::EventType;
use kube::{Api, Resource, ResourceExt as _};

use super::Leader;
use crate::host::chain;
use crate::operator::api_server::client::within;
use crate::operator::api_server::store::Store;
use crate::operator::api_server::write::{Write, write_status};
use crate::operator::crds::owner::CrdOwnership;
use crate::operator::event::EventNote;
use crate::operator::set::class::{self, Class, ClassName};
use crate::operator::set::offers::offers_of;
use crate::operator::set::parsed::Parsed;
use crate::operator::set::summary::{SetStatus, Summary};

/// The state of a class, and whether everything that can be done for it was done.
struct ClassWork {
    class: Class,
    is_done: bool,
}

impl Leader {
    /// Writes the statuses of one kind of objects. `made` has the state of each class. Returns whether everything was
    /// done.
    pub(super) async fn statuses<K: SetStatus>(
        &self,
        store: &Store<K>,
        parsed: &Parsed<K>,
        made: &mut BTreeMap<ClassName, Class>,
    ) -> bool {
        if !store.is_synced() {
            return true;
        }
        let (nodes, pools) = (self.cluster.stores.nodes.all(), self.cluster.pools());
        let mut objects = store.all();
        // A class of several sets carries the name of the oldest.
        objects.sort_by_key(|object| (object.creation_timestamp().map(|time| time.0), object.name_any()));
        let ownership = CrdOwnership::of::<K>(&self.cluster.client);
        let mut is_done = true;
        let read = objects.iter().zip(parsed.of_any_node(&objects));
        for (object, reading) in read.filter(|(object, _)| object.meta().deletion_timestamp.is_none()) {
            let summary = Summary::of(&**object, &reading, &nodes);
            for class in summary.classes() {
                is_done &= self.know_class(class, &**object, &ownership, made).await;
            }
            let offers = offers_of(pools.iter().map(Arc::as_ref), |name| object.is_own(name));
            let (status, events) = object.decide(&summary, made, &offers);
            if object.status() == Some(&status) {
                continue;
            }
            let may_write = self.cluster.may_write(&ownership).await;
            if may_write == Some(true) {
                let written = write_status(&self.cluster.client, &**object, &status).await;
                is_done &= match self.cluster.metrics.note(K::WORK, written) {
                    Some(Write::Done(_)) => self.cluster.write_events(object.object_ref(&()), "Claim", &events).await,
                    Some(Write::Changed) => true,
                    None => false,
                };
            }
            is_done &= may_write.is_some();
        }
        is_done
    }

    /// Adds the state of the class to `made`, after making it where it is missing. Whether everything that can be done
    /// was done.
    async fn know_class<K: Resource<DynamicType = ()>>(
        &self,
        name: &ClassName,
        object: &K,
        ownership: &CrdOwnership,
        made: &mut BTreeMap<ClassName, Class>,
    ) -> bool {
        if made.contains_key(name) {
            return true;
        }
        let ClassWork { class, is_done } = match class::class_of(self.classes.get(name.as_str()).as_deref()) {
            Class::Missing => self.make_class(name, object, ownership).await,
            class => ClassWork { class, is_done: true },
        };
        made.insert(name.clone(), class);
        is_done
    }

    async fn make_class<K: Resource<DynamicType = ()>>(
        &self,
        name: &ClassName,
        object: &K,
        ownership: &CrdOwnership,
    ) -> ClassWork {
        match self.cluster.may_write(ownership).await {
            Some(true) => {}
            other => return ClassWork { class: Class::Missing, is_done: other.is_some() },
        }
        let api: Api<StorageClass> = Api::all(self.cluster.client.clone());
        let what = format!("creating StorageClass {name}");
        let class = class::make(name, object);
        match within(&what, api.create(&PostParams::default(), &class)).await {
            Ok(class) => {
                self.cluster.metrics.note("classes", Ok(()));
                let kind = K::kind(&());
                let note = format!("StorageClass {} was created for the {kind}", class.name_any());
                let event = EventNote { type_: EventType::Normal, reason: "StorageClassCreated".to_owned(), note };
                let published = self.cluster.write_events(object.object_ref(&()), "CreateStorageClass", &[event]).await;
                ClassWork { class: Class::Ours, is_done: published }
            }
            // Another writer was first; the watch will show it.
            Err(error) if error.is_conflict() => ClassWork { class: Class::Missing, is_done: true },
            // The same request would be refused again.
            Err(error) if error.code() == Some(422) => {
                ClassWork { class: Class::Refused(chain(&error)), is_done: true }
            }
            Err(error) => {
                self.cluster.metrics.failed("classes", &error);
                ClassWork { class: Class::Missing, is_done: false }
            }
        }
    }
}
