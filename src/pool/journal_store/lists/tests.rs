use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::*;
use crate::device::{
    HardwareId, SetName,
    label::{Layout, Quota, SetRef},
};
use crate::host::Host;
use crate::host::fake::FakeHost;
use crate::pool::journal::JOURNAL;
use crate::pool::journal_store::JournalStore;

const A: VolumeId = VolumeId::from_u128(1);
const B: VolumeId = VolumeId::from_u128(2);

fn opened(host: &Arc<FakeHost>) -> JournalStore {
    JournalStore::open(Arc::clone(host) as Arc<dyn Host>).expect("a journal")
}

fn new() -> (Arc<FakeHost>, JournalStore) {
    let host = Arc::new(FakeHost::default());
    let store = opened(&host);
    (host, store)
}

fn disk(volumes: &[VolumeId]) -> KnownDisk {
    KnownDisk {
        set: SetRef::new(SetName::new("d", "s"), "u"),
        layout: Layout::Directory { quota: Quota::None },
        path: "/dev/fake0".into(),
        model: None,
        hardware: None,
        size: 1 << 30,
        written: 1,
        volumes: Some(volumes.iter().copied().collect()),
        unseen: BTreeSet::new(),
    }
}

/// As who has the lock of the filesystem says it, where a list is there.
fn without_volumes() -> KnownDisk {
    KnownDisk { volumes: None, ..disk(&[]) }
}

fn one() -> DiskId {
    DiskId::named("one")
}

fn text(host: &FakeHost, name: &str) -> String {
    host.state().load(name).expect("read").unwrap_or_default()
}

fn scan(store: &JournalStore, id: &DiskId, volumes: &[VolumeId]) {
    let before = store.before_scan();
    store.know(id, disk(volumes), &before).expect("written");
}

/// What may be on a disk, and what no scan has found there.
fn on(store: &JournalStore, id: &DiskId) -> Option<(Vec<VolumeId>, Vec<VolumeId>)> {
    let (_, known) = store.known(|disk| disk == id).pop()?;
    Some((known.volumes?.into_iter().collect(), known.unseen.into_iter().collect()))
}

#[test]
fn a_volume_costs_a_line_and_the_journal_says_nothing_of_it() {
    let (host, store) = new();
    scan(&store, &one(), &[]);
    let journal = text(&host, JOURNAL);
    assert!(!journal.contains("\"volumes\""), "{journal}");
    drop(store.begin(A, &one(), without_volumes()).expect("written"));
    scan(&store, &one(), &[A]);
    drop(store.begin(B, &one(), without_volumes()).expect("written"));
    scan(&store, &one(), &[B]);
    assert_eq!(text(&host, JOURNAL), journal, "it is not written again");
    let list = text(&host, &document(&one()));
    assert_eq!(list, format!("localpool volumes 1\n+{A}\n={A}\n+{B}\n-{A}\n={B}\n"));
    let store = opened(&host);
    assert_eq!(on(&store, &one()), Some((vec![B], vec![])));
    assert_eq!(store.last_seen(&one()).volumes, BTreeSet::from([B]));
    scan(&store, &one(), &[B]);
    assert_eq!(text(&host, &document(&one())), list, "nothing has changed");
}

#[test]
fn a_volume_stays_on_the_list_until_what_was_begun_has_ended_and_a_later_scan_does_not_find_it() {
    let (_host, store) = new();
    let begun = store.begin(A, &one(), disk(&[])).expect("written");
    scan(&store, &one(), &[]);
    assert_eq!(on(&store, &one()), Some((vec![A], vec![A])), "the scan may be older than the volume");
    let before = store.before_scan();
    drop(begun);
    drop(store.begin(B, &one(), without_volumes()).expect("written"));
    store.know(&one(), disk(&[A]), &before).expect("written");
    assert_eq!(on(&store, &one()), Some((vec![A, B], vec![B])));
    scan(&store, &one(), &[B]);
    assert_eq!(on(&store, &one()), Some((vec![B], vec![])));
}

#[test]
fn what_was_withdrawn_is_on_no_list_unless_it_may_have_been_there_before() {
    let (host, store) = new();
    store.begin(A, &one(), disk(&[])).expect("written").withdraw().expect("written");
    assert!(store.known(|_| true).is_empty(), "a disk that was released meanwhile is not missed");
    assert_eq!(text(&host, &document(&one())), "");
    // One that was not scanned has more.
    store.begin(A, &one(), disk(&[B])).expect("written").withdraw().expect("written");
    assert_eq!(on(&store, &one()), Some((vec![B], vec![])));
    drop(store.begin(A, &one(), without_volumes()).expect("written"));
    store.begin(A, &one(), without_volumes()).expect("written").withdraw().expect("nothing to write");
    assert_eq!(on(&store, &one()), Some((vec![A, B], vec![A])), "the first time may have left it there");
}

#[test]
fn a_volume_that_is_begun_on_one_disk_is_on_no_other_list_nor_on_one_when_it_is_on_a_disk_with_partitions() {
    let (host, store) = new();
    let [two, three, bare] = ["two", "three", "bare"].map(DiskId::named);
    scan(&store, &one(), &[A, B]);
    scan(&store, &two, &[]);
    drop(store.begin(A, &two, without_volumes()).expect("written"));
    assert_eq!((on(&store, &one()), on(&store, &two)), (Some((vec![B], vec![])), Some((vec![A], vec![A]))));
    let carved = KnownDisk { layout: Layout::Carved {}, ..disk(&[]) };
    drop(store.begin(A, &three, carved).expect("written"));
    assert_eq!((on(&store, &two), on(&store, &three)), (Some((vec![], vec![])), Some((vec![A], vec![A]))));
    // It goes from there to a folder again.
    drop(store.begin(A, &one(), without_volumes()).expect("written"));
    assert_eq!((on(&store, &one()), on(&store, &three)), (Some((vec![A, B], vec![A])), Some((vec![], vec![]))));
    // And to a bare device.
    let claim = crate::pool::journal::BareClaim::new(disk(&[]).set, 5);
    store.claim_bare(&bare, claim).expect("written");
    let volume = crate::pool::journal::BareVolume {
        id: A,
        record: crate::device::label::VolumeRecord {
            name: "a".to_owned(),
            required: 1,
            limit: None,
            parameters: BTreeMap::new(),
            usage: crate::device::label::VolumeUsage::Block,
            fs_size: 0,
            found: false,
        },
        formatting: false,
        formatted: false,
    };
    store.change_bare(&bare, |claim| claim.volume = Some(volume)).expect("written");
    assert_eq!(on(&store, &one()), Some((vec![B], vec![])));
    assert_eq!(on(&opened(&host), &one()), Some((vec![B], vec![])));
}

#[test]
fn a_disk_that_is_not_known_any_more_has_no_list() {
    let (host, store) = new();
    let forget: [fn(&JournalStore); 3] = [
        |store| assert!(store.forget(&one()).expect("written")),
        |store| assert!(store.let_go(&one()).expect("written")),
        |store| store.release_labelled(HardwareId::named("wwid-one"), &one()).expect("written"),
    ];
    for forget in forget {
        scan(&store, &one(), &[A]);
        assert!(text(&host, &document(&one())).contains(&A.to_string()));
        forget(&store);
        assert_eq!((text(&host, &document(&one())), on(&store, &one())), (String::new(), None));
        // It is another one from now on.
        scan(&store, &one(), &[]);
        assert_eq!(on(&store, &one()), Some((vec![], vec![])));
    }
}

#[test]
fn a_list_that_was_lost_or_damaged_says_nothing_until_its_disk_is_scanned() {
    for damage in [None, Some("localpool volumes 1\n+x\n"), Some("localpool volumes 2\n"), Some("")] {
        let (host, store) = new();
        scan(&store, &one(), &[A]);
        match damage {
            None => host.state().remove(&document(&one())).expect("removed"),
            Some(text) => host.state().store(&document(&one()), text).expect("written"),
        }
        let store = opened(&host);
        assert_eq!(on(&store, &one()), None, "{damage:?}");
        assert_eq!(store.known(|_| true).len(), 1, "the disk is known");
        assert!(!store.has_list(&one()));
        drop(store.begin(B, &one(), disk(&[A])).expect("written"));
        assert_eq!(on(&opened(&host), &one()), Some((vec![A, B], vec![B])), "{damage:?}");
    }
}

#[test]
fn a_line_that_was_cut_off_is_gone_and_nothing_is_added_behind_it() {
    let (host, store) = new();
    scan(&store, &one(), &[A]);
    host.state().append(&document(&one()), "+0000").expect("written");
    let store = opened(&host);
    assert_eq!(on(&store, &one()), Some((vec![A], vec![])));
    drop(store.begin(B, &one(), without_volumes()).expect("written"));
    assert_eq!(text(&host, &document(&one())), format!("localpool volumes 1\n={A}\n+{B}\n"));
}

#[test]
fn a_line_that_could_not_be_added_is_not_known_and_the_next_one_writes_all() {
    let (host, store) = new();
    scan(&store, &one(), &[A]);
    host.state.set_full(true);
    assert!(store.begin(B, &one(), without_volumes()).is_err());
    assert_eq!(on(&store, &one()), Some((vec![A], vec![])));
    host.state.set_full(false);
    drop(store.begin(B, &one(), without_volumes()).expect("written"));
    assert_eq!(text(&host, &document(&one())), format!("localpool volumes 1\n={A}\n+{B}\n"));
    // Somebody emptied the directory.
    host.state().remove(&document(&one())).expect("removed");
    let before = store.before_scan();
    assert!(store.know(&one(), disk(&[B]), &before).is_err());
    scan(&store, &one(), &[B]);
    assert_eq!(text(&host, &document(&one())), format!("localpool volumes 1\n={B}\n"));
}

#[test]
fn a_first_list_that_cannot_be_written_says_what_was_found_and_not_that_nothing_is_there() {
    let (host, store) = new();
    host.state.set_full(true);
    let before = store.before_scan();
    assert!(store.know(&one(), disk(&[A]), &before).is_err());
    assert!(store.lists.has_volume(&one(), A) || !store.has_list(&one()));
    assert!(store.begin(B, &one(), disk(&[A])).is_err());
    host.state.set_full(false);
    scan(&store, &one(), &[A]);
    assert_eq!(on(&opened(&host), &one()), Some((vec![A], vec![])));
}

#[test]
fn a_list_that_is_mostly_of_the_past_is_written_whole() {
    let (host, store) = new();
    scan(&store, &one(), &[A]);
    for _ in 0..1200 {
        store.begin(B, &one(), without_volumes()).expect("written").withdraw().expect("written");
    }
    let list = text(&host, &document(&one()));
    assert!(list.lines().count() < 1100, "{} lines", list.lines().count());
    assert_eq!(on(&opened(&host), &one()), Some((vec![A], vec![])));
}

#[test]
fn while_the_journal_cannot_be_used_a_list_counts_in_the_process_and_is_written_with_the_next_journal() {
    let (host, store) = new();
    scan(&store, &one(), &[A]);
    let list = text(&host, &document(&one()));
    host.state().store(JOURNAL, "{").expect("written");
    let store = opened(&host);
    scan(&store, &one(), &[B]);
    assert_eq!(on(&store, &one()), Some((vec![B], vec![])));
    assert!(store.begin(A, &one(), without_volumes()).is_err());
    assert_eq!(text(&host, &document(&one())), list, "it is as it was");
    store.set_aside().expect("a new one");
    scan(&store, &one(), &[B]);
    assert_eq!(on(&opened(&host), &one()), Some((vec![B], vec![])));
}

#[test]
fn what_an_earlier_build_has_in_the_journal_is_taken_over() {
    let (host, store) = new();
    scan(&store, &one(), &[A, B]);
    host.state().remove(&document(&one())).expect("removed");
    let journal = text(&host, JOURNAL);
    let mut document_of_old: serde_json::Value = serde_json::from_str(&journal).expect("JSON");
    let known = &mut document_of_old["filesystems"]["one"];
    known["volumes"] = serde_json::json!([A, B]);
    known["unseen"] = serde_json::json!([B]);
    host.state().store(JOURNAL, &document_of_old.to_string()).expect("written");
    let store = opened(&host);
    assert_eq!(on(&store, &one()), Some((vec![A, B], vec![B])));
    scan(&store, &one(), &[A, B]);
    assert_eq!(on(&opened(&host), &one()), Some((vec![A, B], vec![])));
    drop(store.begin(VolumeId::from_u128(3), &DiskId::named("two"), disk(&[])).expect("written"));
    assert!(!text(&host, JOURNAL).contains("\"volumes\""));
}

#[test]
fn what_an_earlier_build_wrote_into_the_journal_beside_a_list_may_be_there_as_well() {
    let (host, store) = new();
    scan(&store, &one(), &[A]);
    // The earlier build reads no list, and has made B since.
    let journal = text(&host, JOURNAL);
    let mut of_earlier: serde_json::Value = serde_json::from_str(&journal).expect("JSON");
    of_earlier["filesystems"]["one"]["volumes"] = serde_json::json!([A, B]);
    host.state().store(JOURNAL, &of_earlier.to_string()).expect("written");
    let store = opened(&host);
    assert_eq!(on(&store, &one()), Some((vec![A, B], vec![B])));
    // Its disk is away, and others are written down meanwhile.
    drop(store.begin(VolumeId::from_u128(3), &DiskId::named("two"), disk(&[])).expect("written"));
    assert_eq!(on(&opened(&host), &one()), Some((vec![A, B], vec![B])));
    scan(&store, &one(), &[A, B]);
    assert_eq!(on(&opened(&host), &one()), Some((vec![A, B], vec![])));
    scan(&store, &one(), &[A]);
    assert_eq!(on(&opened(&host), &one()), Some((vec![A], vec![])), "it is written over");
}
