//! This node's PoolVolumes, as far as the agent knows them.
//!
//! Takes in the watch of them (`queue`), and the answers to the agent's own writes; gives out objects by id.

use std::sync::Arc;

use tokio::sync::watch;

use crate::api::crd::PoolVolume;
use crate::operator::api_server::store::{ListCount, Store, StoreState};
use crate::volume::VolumeId;

/// This node's PoolVolumes. An object whose name is no id is ignored: localpool did not make it.
#[derive(Clone)]
pub struct KnownVolumes(Store<PoolVolume>);

impl Default for KnownVolumes {
    fn default() -> Self {
        Self(Store::new(|a, b| a == b))
    }
}

impl KnownVolumes {
    /// For the watch, which keeps it in step.
    pub fn store(&self) -> &Store<PoolVolume> {
        &self.0
    }

    /// Whether they were listed once.
    pub fn is_complete(&self) -> bool {
        self.0.changes().borrow().lists > 0
    }

    /// Signals each list.
    pub fn relists(&self) -> Relists {
        Relists { changes: self.0.changes(), last: 0 }
    }

    /// The last state that could be read.
    pub fn get(&self, id: VolumeId) -> Option<Arc<PoolVolume>> {
        self.0.get(&id.to_string())
    }

    /// Its object exists, but this version cannot read its present state.
    pub fn is_unread(&self, id: VolumeId) -> bool {
        self.0.unread(&id.to_string()).is_some()
    }

    pub fn ids(&self) -> Vec<VolumeId> {
        self.0.by_key().keys().filter_map(|key| key.as_str().parse().ok()).collect()
    }

    /// For [`Self::learn`]: read it before the request is sent.
    pub fn list_count(&self) -> ListCount {
        self.0.list_count()
    }

    /// Takes in an object from the answer to our own request, which was sent after `sent` lists.
    pub fn learn(&self, object: PoolVolume, sent: ListCount) {
        self.0.learn(object, sent);
    }
}

/// Signals each list.
pub struct Relists {
    changes: watch::Receiver<StoreState>,
    last: u64,
}

impl Relists {
    /// Waits for the next list; several at once count as one. May be dropped at any time.
    pub async fn next(&mut self) {
        let last = self.last;
        let lists = self.changes.wait_for(|state| state.lists != last).await.map(|state| state.lists);
        match lists {
            Ok(lists) => self.last = lists,
            // The store ends only when the process does.
            Err(_) => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::stream;
    use kube::core::DeserializeGuard;
    use kube::runtime::watcher::Event;
    use serde_json::json;

    use super::super::queue::changed_volume;
    use super::*;
    use crate::api::crd::Phase;
    use crate::operator::api_server::watch::{decoded, follow};

    const A: &str = "00000000-0000-5000-8000-00000000000a";
    const B: &str = "00000000-0000-5000-8000-00000000000b";

    type Guard = DeserializeGuard<PoolVolume>;

    /// An object as it comes over the wire: one that is not of this version is not readable.
    fn object(name: &str, version: u32, phase: &str) -> Guard {
        of_uid(name, name, version, phase)
    }

    fn of_uid(name: &str, uid: &str, version: u32, phase: &str) -> Guard {
        let value = json!({
            "apiVersion": "localpool.dev/v1alpha1", "kind": "PoolVolume",
            "metadata": {"name": name, "uid": uid, "resourceVersion": version.to_string()},
            "spec": {"node": "n", "volumeName": "v", "required": 1, "volumeMode": "Block"},
            "status": {"phase": phase},
        });
        serde_json::from_value(value).expect("guarded")
    }

    fn read(name: &str, uid: &str, version: u32, phase: &str) -> PoolVolume {
        of_uid(name, uid, version, phase).0.expect("readable")
    }

    fn id(name: &str) -> VolumeId {
        name.parse().expect("an id")
    }

    fn phase_of(known: &KnownVolumes, name: &str) -> Option<Phase> {
        known.get(id(name)).map(|object| object.status.as_ref().expect("set").phase)
    }

    /// Returns the volumes to look at.
    async fn take(known: &KnownVolumes, events: impl IntoIterator<Item = Event<Guard>>) -> Vec<VolumeId> {
        let mut due = Vec::new();
        let events = stream::iter(events.into_iter().map(Ok).collect::<Vec<_>>());
        follow(&known.0, "PoolVolumes", events, decoded, |event| due.extend(changed_volume(&event))).await;
        due
    }

    fn list(objects: impl IntoIterator<Item = Guard>) -> Vec<Event<Guard>> {
        let objects = objects.into_iter().map(Event::InitApply);
        [Event::Init].into_iter().chain(objects).chain([Event::InitDone]).collect()
    }

    #[tokio::test]
    async fn a_volume_that_this_version_cannot_read_holds_up_no_other() {
        let known = KnownVolumes::default();
        assert!(!known.is_complete());
        take(&known, list([object(A, 1, "Melting"), object(B, 2, "Ready")])).await;
        assert!(known.is_complete());
        assert_eq!((phase_of(&known, A), phase_of(&known, B)), (None, Some(Phase::Ready)));
        assert_eq!(take(&known, [Event::Apply(object(B, 3, "Melting"))]).await, Vec::<VolumeId>::new());
        assert_eq!(phase_of(&known, B), Some(Phase::Ready), "the last that was known of it stays");
        assert_eq!(take(&known, [Event::Apply(object(A, 4, "Ready"))]).await, [id(A)]);
        assert_eq!(phase_of(&known, A), Some(Phase::Ready));
        assert_eq!(known.ids(), [id(A), id(B)]);
        assert_eq!(take(&known, [Event::Delete(object(B, 5, "Melting"))]).await, [id(B)], "it goes all the same");
        assert_eq!(phase_of(&known, B), None);
    }

    #[tokio::test]
    async fn a_volume_that_cannot_be_read_is_there_all_the_same_until_it_can_be_or_goes() {
        let known = KnownVolumes::default();
        let unread = || [A, B].map(|name| known.is_unread(id(name)));
        take(&known, list([object(A, 1, "Melting"), object(B, 2, "Ready")])).await;
        assert_eq!(unread(), [true, false]);
        assert_eq!(take(&known, [Event::Apply(object(B, 3, "Melting"))]).await, Vec::<VolumeId>::new());
        assert_eq!(unread(), [true, true], "what was known of it is not what it says now");
        assert_eq!(take(&known, [Event::Apply(object(A, 4, "Ready"))]).await, [id(A)]);
        assert_eq!(take(&known, [Event::Delete(object(B, 5, "Melting"))]).await, [id(B)]);
        assert_eq!(unread(), [false, false]);
        // A list is complete.
        take(&known, [Event::Apply(object(A, 6, "Melting"))]).await;
        take(&known, list([])).await;
        assert_eq!((unread(), known.ids()), ([false, false], vec![]));
    }

    #[tokio::test]
    async fn an_object_whose_name_is_no_id_is_nobodys_to_look_at() {
        let known = KnownVolumes::default();
        take(&known, list([object("mine", 1, "Ready"), object(A, 2, "Ready")])).await;
        assert_eq!(take(&known, [Event::Apply(object("mine", 3, "Ready"))]).await, Vec::<VolumeId>::new());
        assert_eq!(known.ids(), [id(A)]);
    }

    #[tokio::test]
    async fn each_list_rings_once_and_several_at_once_are_one() {
        async fn rings(lists: &mut Relists) -> bool {
            futures::FutureExt::now_or_never(lists.next()).is_some()
        }
        let known = KnownVolumes::default();
        let mut lists = known.relists();
        assert!(!rings(&mut lists).await);
        for events in [list([object(A, 1, "Ready")]), list([object(A, 1, "Ready")])] {
            take(&known, events).await;
        }
        assert!(rings(&mut lists).await && !rings(&mut lists).await);
        take(&known, [Event::Apply(object(A, 2, "Ready"))]).await;
        assert!(!rings(&mut lists).await, "that was no list");
        take(&known, list([object(A, 2, "Ready")])).await;
        assert!(rings(&mut lists).await);
    }

    #[tokio::test]
    async fn a_late_answer_to_a_write_makes_nothing_readable_and_is_no_news_over_a_later_state() {
        let known = KnownVolumes::default();
        let version = || known.get(id(A)).and_then(|object| object.metadata.resource_version.clone());
        take(&known, list([object(A, 3, "Accepted")])).await;
        known.learn(read(A, A, 5, "Ready"), known.list_count());
        assert_eq!(version().as_deref(), Some("5"), "the watch has not shown it yet");
        take(&known, [Event::Apply(object(A, 4, "Accepted"))]).await;
        assert_eq!(version().as_deref(), Some("5"), "a watch that lags undoes nothing");
        take(&known, [Event::Apply(object(A, 7, "Melting"))]).await;
        known.learn(read(A, A, 6, "Ready"), known.list_count());
        assert!(known.is_unread(id(A)));
        assert_eq!(version().as_deref(), Some("5"), "it is older than what cannot be read");
        known.learn(read(A, A, 8, "Ready"), known.list_count());
        assert_eq!((known.is_unread(id(A)), version().as_deref()), (true, Some("8")), "the watch has the last word");
        take(&known, [Event::Apply(object(A, 8, "Ready"))]).await;
        assert_eq!((known.is_unread(id(A)), version().as_deref()), (false, Some("8")));
    }

    #[tokio::test]
    async fn a_late_answer_about_an_object_that_was_deleted_is_no_news_over_the_one_that_took_its_name() {
        let known = KnownVolumes::default();
        let uid = || known.get(id(A)).and_then(|object| object.metadata.uid.clone());
        take(&known, list([of_uid(A, "first", 3, "Accepted")])).await;
        let second =
            |phase| [Event::Delete(of_uid(A, "first", 5, "Ready")), Event::Apply(of_uid(A, "second", 6, phase))];
        take(&known, second("Pending")).await;
        known.learn(read(A, "first", 4, "Ready"), known.list_count());
        assert_eq!(uid().as_deref(), Some("second"));
        take(&known, second("Melting")).await;
        assert!(known.is_unread(id(A)));
        known.learn(read(A, "first", 4, "Ready"), known.list_count());
        assert_eq!(uid().as_deref(), Some("second"));
        // The watch reports the end of an earlier object, not of the one that our own write created.
        known.learn(read(A, "third", 9, "Ready"), known.list_count());
        take(&known, [Event::Delete(of_uid(A, "second", 8, "Ready"))]).await;
        assert_eq!((uid().as_deref(), known.is_unread(id(A))), (Some("third"), false));
    }
}
