use std::collections::BTreeSet;
use std::sync::Arc;

use super::JournalStore;
use crate::device::{
    DiskId, HardwareId, SetName, VolumeId,
    label::{Layout, SetRef},
};
use crate::host::fake::FakeHost;
use crate::pool::journal::KnownDisk;

const A: VolumeId = VolumeId::from_u128(1);
const B: VolumeId = VolumeId::from_u128(2);

fn store() -> JournalStore {
    JournalStore::open(Arc::new(FakeHost::default())).expect("a journal")
}

fn disk(volumes: &[VolumeId]) -> KnownDisk {
    KnownDisk {
        set: SetRef::new(SetName::new("d", "s"), "u"),
        layout: Layout::Carved {},
        path: "/dev/fake0".into(),
        model: None,
        hardware: None,
        size: 1 << 30,
        written: 1,
        volumes: Some(volumes.iter().copied().collect()),
        unseen: BTreeSet::new(),
    }
}

fn named(text: &str) -> DiskId {
    DiskId::named(text)
}

fn one() -> DiskId {
    named("one")
}

fn scan(store: &JournalStore, id: &DiskId, volumes: &[VolumeId]) {
    let before = store.before_scan();
    store.know(id, disk(volumes), &before).expect("written");
}

fn on(store: &JournalStore, id: &DiskId) -> Vec<VolumeId> {
    let known = store.known(|disk| disk == id).pop();
    known.and_then(|(_, known)| known.volumes).into_iter().flatten().collect()
}

#[test]
fn a_scan_that_began_before_a_change_does_not_take_back_what_was_noted_of_it() {
    let store = store();
    scan(&store, &one(), &[A]);
    let (before, found) = (store.before_scan(), disk(&[A]));
    store.note(&one(), 2, || Some(KnownDisk { written: 2, ..disk(&[]) })).expect("written");
    store.know(&one(), found, &before).expect("written");
    assert_eq!((store.last_seen(&one()).written, on(&store, &one())), (2, vec![]));
}

#[test]
fn of_several_changes_at_once_one_is_written_and_a_disk_that_was_released_is_not_missed() {
    let store = store();
    scan(&store, &one(), &[A]);
    store.note(&one(), 2, || Some(KnownDisk { written: 4, ..disk(&[]) })).expect("written");
    store.note(&one(), 4, || panic!("it was seen by the one before")).expect("nothing to write");
    store.release_labelled(HardwareId::named("wwid-one"), &one()).expect("written");
    store.note(&one(), 5, || panic!("it is not missed any more")).expect("nothing to write");
    assert!(store.known(|_| true).is_empty() && store.has_given_up(&one()));
}

#[test]
fn a_disk_that_was_given_up_is_to_be_held_until_its_label_says_so() {
    let store = store();
    scan(&store, &one(), &[A]);
    assert!(store.let_go(&one()).expect("written"));
    // It was being opened meanwhile, and is in the pool as it was.
    scan(&store, &one(), &[A]);
    assert!(store.is_to_be_held(&one()) && !store.has_given_up(&one()));
    store.is_held(&one()).expect("written");
    assert!(!store.is_to_be_held(&one()));
}

#[test]
fn a_volume_stays_on_its_disk_until_what_was_begun_has_ended_and_a_later_scan_does_not_find_it() {
    let store = store();
    let begun = store.begin(A, &one(), disk(&[])).expect("written");
    scan(&store, &one(), &[]);
    assert_eq!(on(&store, &one()), [A], "the scan may be older than the volume");
    // Another one begins with what was found before, and ends during a scan.
    let before = store.before_scan();
    drop(begun);
    drop(store.begin(B, &one(), disk(&[])).expect("written"));
    store.know(&one(), disk(&[A]), &before).expect("written");
    assert_eq!(on(&store, &one()), [A, B]);
    scan(&store, &one(), &[B]);
    assert_eq!(on(&store, &one()), [B]);
}

#[test]
fn what_was_withdrawn_is_on_no_disk_unless_it_may_have_been_there_before() {
    let store = store();
    store.begin(A, &one(), disk(&[])).expect("written").withdraw().expect("written");
    assert!(store.known(|_| true).is_empty(), "a disk that was released meanwhile is not missed");
    scan(&store, &one(), &[]);
    store.begin(A, &one(), disk(&[])).expect("written").withdraw().expect("written");
    assert_eq!(on(&store, &one()), Vec::<VolumeId>::new());
    drop(store.begin(A, &one(), disk(&[])).expect("written"));
    store.begin(A, &one(), disk(&[])).expect("written").withdraw().expect("nothing to write");
    assert_eq!(on(&store, &one()), [A], "the first time may have left it there");
    drop(store.begin(A, &named("two"), disk(&[])).expect("written"));
    assert_eq!((on(&store, &one()), on(&store, &named("two"))), (Vec::new(), vec![A]));
}
