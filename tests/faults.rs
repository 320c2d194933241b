//! Disks that fail, leave, come back, grow and are copied, on a fake machine that does all this on purpose.

#[path = "faults/copied_bare.rs"]
mod copied_bare;
#[path = "faults/dead.rs"]
mod dead;
mod fake_node;
#[path = "faults/given_up.rs"]
mod given_up;
#[path = "faults/nothing_known.rs"]
mod nothing_known;
#[path = "faults/older.rs"]
mod older;
#[path = "faults/older_journal.rs"]
mod older_journal;
#[path = "faults/put_there.rs"]
mod put_there;
#[path = "faults/swapped.rs"]
mod swapped;
#[path = "faults/underneath.rs"]
mod underneath;
#[path = "faults/unread.rs"]
mod unread;
#[path = "faults/zeroing.rs"]
mod zeroing;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use fake_node::{MIB, Node, id, request, rule};
use localpool::agent::{PassReport, Run, Verb};
use localpool::claim::{Filter, Reclaim, Rule};
use localpool::device::{
    DeviceType, Reason, SetName, Verdict,
    label::{ErasePolicy, Layout, SetRef},
};
use localpool::host::{
    Access, DeviceKind, Extent, FsKind, Geometry, Host, Partition,
    fake::{FakeHost, Fate, Fault, Platter},
};
use localpool::pool::{Change, Destination, JOURNAL, Made, PoolError, Selector, Standing, WantedUsage};
use uuid::Uuid;

const BLOCK: WantedUsage = WantedUsage::Block;

fn geometry() -> Geometry {
    Geometry { size: 64 * MIB, sector: 512, offloads_zeroes: true }
}

fn carved() -> (Arc<FakeHost>, Arc<Platter>, Node) {
    let host = Arc::new(FakeHost::default());
    let disk = host.add_disk("fake0", "SERIAL-1", geometry());
    let mut node = start(&host);
    node.passes().expect("claims");
    (host, disk, node)
}

fn start(host: &Arc<FakeHost>) -> Node {
    Node::start(host, vec![rule(&Layout::Carved {}, ErasePolicy::Discard)], Duration::ZERO).expect("starts")
}

fn standing(node: &Node) -> Standing {
    node.pool.labelled_disks()[0].lock().standing()
}

#[test]
fn a_table_copy_that_cannot_be_written_makes_the_disk_not_ready_until_it_can_and_nothing_is_acknowledged() {
    let primary = Extent { start: 512, end: 34 * 512 };
    let backup = Extent { start: 64 * MIB - 33 * 512, end: 64 * MIB };
    let label = Extent { start: MIB, end: 2 * MIB };
    for range in [primary, backup, label] {
        let (_host, disk, mut node) = carved();
        node.pool.create(&request("kept", BLOCK, MIB)).expect("a healthy disk");
        disk.inject(Fault { what: "write", range, times: u32::MAX });
        let error = node.pool.create(&request("new", BLOCK, MIB)).expect_err("it cannot be written");
        assert!(matches!(error, PoolError::Apply(_)), "{error:?}");
        assert!(matches!(standing(&node), Standing::NotReady(_)), "{range}: {:?}", standing(&node));
        assert!(
            matches!(node.pool.create(&request("other", BLOCK, MIB)), Err(PoolError::NoSet(_))),
            "it offers nothing"
        );
        assert_eq!(node.pool.volumes().len(), 1, "{range}: what was not acknowledged is not there");

        disk.clear_faults();
        node.passes().expect("looks");
        assert_eq!(standing(&node), Standing::Ready, "{range}");
        node.pool.create(&request("new", BLOCK, MIB)).expect("a retry");
        assert_eq!(node.pool.volumes().len(), 2);
    }
}

#[test]
fn who_cannot_get_the_lock_of_a_disk_has_changed_nothing_and_may_come_back() {
    let (_host, disk, mut node) = carved();
    node.pool.create(&request("kept", BLOCK, MIB)).expect("a healthy disk");
    let (before, mapping) = (disk.content(), disk.mapping(2));
    disk.inject(Fault { what: "lock", range: Extent { start: 0, end: u64::MAX }, times: u32::MAX });
    let is_locked = |error| matches!(error, PoolError::Apply(error) if error.is_locked());
    assert!(is_locked(node.pool.create(&request("new", BLOCK, MIB)).expect_err("no lock")));
    assert!(is_locked(node.pool.expand(id("kept"), 2 * MIB, None).expect_err("no lock")));
    assert!(is_locked(node.pool.delete(id("kept")).expect_err("no lock")));
    assert!(disk.content() == before, "something was written");
    assert_eq!(disk.mapping(2), mapping, "the volume is mapped as before");
    assert_eq!(standing(&node), Standing::Ready);

    disk.clear_faults();
    node.pool.create(&request("new", BLOCK, MIB)).expect("a retry");
    node.pool.delete(id("kept")).expect("a retry");
    assert_eq!(node.pool.volumes().len(), 1);
    node.passes().expect("looks");
    node.pool.work_until_idle().expect("erases");
}

#[test]
fn a_disk_whose_lock_others_keep_when_it_comes_is_looked_at_again_soon_without_an_event() {
    let (host, disk, node) = carved();
    drop(node);
    // A table that must be repaired, which needs the lock.
    disk.poke(64 * MIB - 512, &[0; 512]);
    disk.inject(Fault { what: "lock", range: Extent { start: 0, end: u64::MAX }, times: u32::MAX });
    let mut node = start(&host);
    let pass = node.agent.pass().expect("looks");
    assert!(pass.problems["fake0"].contains("other processes hold its lock"), "{:?}", pass.problems);
    assert!(pass.ripe_in.is_some_and(|wait| wait <= Duration::from_secs(1)), "{:?}", pass.ripe_in);
    disk.clear_faults();
    assert_eq!(node.agent.pass().expect("looks").problems.len(), 0);
    assert_eq!(standing(&node), Standing::Ready);
}

#[test]
fn a_disk_that_fails_to_sync_acknowledges_nothing() {
    let (_host, disk, node) = carved();
    disk.inject(Fault { what: "sync", range: Extent { start: 0, end: u64::MAX }, times: 1 });
    assert!(node.pool.create(&request("new", BLOCK, MIB)).is_err());
    assert!(node.pool.volumes().is_empty());
}

#[test]
fn space_that_cannot_be_zeroed_is_never_given_to_a_raw_volume() {
    let (_host, disk, node) = carved();
    disk.inject(Fault { what: "zero", range: Extent { start: 2 * MIB, end: 64 * MIB }, times: u32::MAX });
    assert!(node.pool.create(&request("raw", BLOCK, MIB)).is_err());
    assert!(node.pool.volumes().is_empty());
    let ext4 = WantedUsage::Mount(Some(FsKind::Ext4));
    node.pool.create(&request("fs", ext4, 16 * MIB)).expect("a filesystem shows nothing of it");
}

#[test]
fn a_disk_that_fails_before_anything_is_made_leaves_the_volume_to_another_and_one_that_fails_later_does_not() {
    let zeros = Fault { what: "zero", range: Extent { start: 2 * MIB, end: 64 * MIB }, times: u32::MAX };
    let label = Fault { what: "write", range: Extent { start: MIB, end: 2 * MIB }, times: u32::MAX };
    let primary = Fault { what: "write", range: Extent { start: 512, end: 34 * 512 }, times: u32::MAX };
    let lock = Fault { what: "lock", range: Extent { start: 0, end: u64::MAX }, times: u32::MAX };
    let slot = Layout::Slots { size: None, count: Some(1) };
    let cases = [
        (&slot, &zeros, true),
        (&slot, &label, true),
        (&slot, &lock, true),
        (&slot, &primary, false),
        (&Layout::RawDevice {}, &zeros, true),
    ];
    for (layout, fault, goes_on) in cases {
        let host = Arc::new(FakeHost::default());
        // The smallest that holds a volume is chosen.
        let [small, large] = [("fake0", 64), ("fake1", 96)]
            .map(|(name, mib)| host.add_disk(name, name, Geometry { size: mib * MIB, ..geometry() }));
        let mut node = Node::start(&host, vec![rule(layout, ErasePolicy::Discard)], Duration::ZERO).expect("starts");
        node.passes().expect("claims");
        small.inject(fault.clone());
        let writes = large.write_count();

        let made = node.pool.create(&request("new", BLOCK, MIB));
        assert_eq!(made.is_ok(), goes_on, "{layout:?} {fault:?}: {made:?}");
        assert_eq!(node.pool.volumes().len(), usize::from(goes_on), "{layout:?} {fault:?}");
        assert_eq!(large.write_count() > writes, goes_on, "{layout:?} {fault:?}");
        if *fault == zeros {
            let error = node.pool.create(&request("more", BLOCK, MIB)).expect_err("the large one is full");
            let words = format!("{error:?}");
            assert!(words.contains("Io("), "it says what fails, not that nothing is free: {words}");
        }
    }
}

/// Two disks, of which the smaller one is chosen first.
fn two_disks(layout: &Layout) -> (Arc<FakeHost>, [Arc<Platter>; 2], Node) {
    let host = Arc::new(FakeHost::default());
    let disks = [("fake0", 64), ("fake1", 96)]
        .map(|(name, mib)| host.add_disk(name, name, Geometry { size: mib * MIB, ..geometry() }));
    let mut node = started(&host, layout);
    node.passes().expect("claims");
    (host, disks, node)
}

fn started(host: &Arc<FakeHost>, layout: &Layout) -> Node {
    Node::start(host, vec![rule(layout, ErasePolicy::Discard)], Duration::ZERO).expect("starts")
}

#[test]
fn a_volume_that_was_begun_on_a_disk_is_not_made_on_another_one_before_that_disk_was_read_again() {
    let slot = Layout::Slots { size: None, count: Some(1) };
    let primary = Extent { start: 512, end: 34 * 512 };
    let (host, [small, large], mut node) = two_disks(&slot);
    small.inject(Fault { what: "write", range: primary, times: u32::MAX });
    node.pool.create(&request("new", BLOCK, MIB)).expect_err("the disk fails");
    let platter = host.unplug("fake0").expect("it was there");
    let before = large.content();
    for restart in [false, true] {
        if restart {
            node = started(&host, &slot);
        }
        node.passes().expect("looks");
        let error = node.pool.create(&request("new", BLOCK, MIB)).expect_err("it may be on the disk that is away");
        let PoolError::DiskAway { disk, .. } = &error else { panic!("{error:?}") };
        assert!(error.to_string().contains(&format!("localpool disk release {disk}")), "{error}");
        assert!(matches!(node.pool.delete(id("new")), Err(PoolError::DiskAway { .. })), "nobody knows that it is gone");
        assert!(large.content() == before, "the other disk was written");
    }
    node.pool.create(&request("other", BLOCK, MIB)).expect("another id is not held up");
    node.pool.delete(id("other")).expect("nor its deletion");
    small.clear_faults();
    host.plug("fake0", "fake0", platter);
    node.passes().expect("looks");
    node.pool.create(&request("new", BLOCK, MIB)).expect("the disk says whether it is there");
    assert_eq!(node.pool.volumes().len(), 1);
    node.pool.delete(id("new")).expect("deleted");
    assert!(node.pool.volumes().is_empty());
}

#[test]
fn a_deletion_is_not_answered_while_the_volume_may_be_on_a_disk_that_is_away_or_cannot_be_opened() {
    let (host, disk, mut node) = carved();
    node.pool.create(&request("a", BLOCK, MIB)).expect("made");
    host.add_disk("fake1", "SERIAL-2", geometry());
    node.passes().expect("claims the second");
    let platter = host.unplug("fake0").expect("it was there");
    let mut fresh = start(&host);
    assert!(fresh.pool.delete(id("a")).is_err(), "nothing was looked at yet");
    fresh.passes().expect("looks");
    assert!(matches!(fresh.pool.delete(id("a")), Err(PoolError::DiskAway { .. })));
    assert!(matches!(fresh.pool.delete(id("never")), Ok(Change::AlreadySo)), "what was never on it is not there");

    // The journal is lost, and the disk is here but cannot be opened: it may contain anything.
    host.state.lose();
    host.plug("fake0", "SERIAL-1", platter);
    disk.poke(64 * MIB - 512, &[0; 512]);
    disk.inject(Fault { what: "lock", range: Extent { start: 0, end: u64::MAX }, times: u32::MAX });
    let mut lost = start(&host);
    lost.passes().expect("looks");
    assert!(lost.pool.volume(id("a")).is_err(), "it is not open");
    for name in ["a", "never"] {
        assert!(matches!(lost.pool.delete(id(name)), Err(PoolError::DiskAway { .. })), "{name}");
    }
    assert!(matches!(lost.pool.create(&request("a", BLOCK, MIB)), Err(PoolError::DiskAway { .. })), "its label has it");
    lost.pool.create(&request("new", BLOCK, MIB)).expect("a new volume is not held up");
    disk.clear_faults();
    lost.passes().expect("looks");
    lost.pool.delete(id("a")).expect("it is there");
    assert!(matches!(lost.pool.delete(id("a")), Ok(Change::AlreadySo)));

    // Nothing waits for a volume that was deleted before the disk left.
    host.unplug("fake0");
    lost.passes().expect("looks");
    let mut fresh = start(&host);
    fresh.passes().expect("looks");
    assert!(matches!(fresh.pool.delete(id("a")), Ok(Change::AlreadySo)));
}

#[test]
fn a_volume_is_made_on_the_disk_that_was_named_beforehand_and_no_other_disk_is_written() {
    let (_host, [small, large], node) = two_disks(&Layout::Slots { size: None, count: Some(1) });
    let wanted = |name| request(name, BLOCK, MIB);
    let Ok(Destination::On(named)) = node.pool.place(&wanted("a"), &BTreeSet::new()) else { panic!("there is room") };
    let writes = large.write_count();
    small.inject(Fault { what: "write", range: Extent { start: MIB, end: 2 * MIB }, times: 1 });
    assert!(matches!(node.pool.create_on(&wanted("a"), Some(&named)), Ok(Made::Failed(_))));
    let Ok(Destination::On(other)) = node.pool.place(&wanted("a"), &BTreeSet::from([named.clone()])) else {
        panic!("the other one has room")
    };
    assert_ne!(named, other);
    assert_eq!(large.write_count(), writes, "the other disk was written before anybody was told of it");
    assert!(matches!(node.pool.create_on(&wanted("a"), Some(&other)), Ok(Made::Volume(view, _)) if view.disk == other));
    assert!(matches!(node.pool.create_on(&wanted("b"), Some(&other)), Ok(Made::Full)));
    assert!(matches!(node.pool.place(&wanted("a"), &BTreeSet::new()), Ok(Destination::There)));
}

#[test]
fn a_volume_on_two_disks_is_usable_on_neither_and_is_said_to_be_so_also_while_one_of_them_is_away() {
    let (host, disk, node) = carved();
    node.pool.create(&request("a", BLOCK, MIB)).expect("made");
    let platter = host.unplug("fake0").expect("it was there");
    // An earlier version forgot that it was begun.
    host.state.lose();
    host.add_disk("fake1", "SERIAL-2", geometry());
    let mut node = start(&host);
    node.passes().expect("claims the second");
    node.pool.create(&request("a", BLOCK, 2 * MIB)).expect("nobody knows better");
    host.plug("fake0", "SERIAL-1", platter);
    let before = disk.content();

    let is_refused = |node: &Node, words: &str| {
        let errors = [
            node.pool.usable(id("a")).expect_err("usable"),
            node.pool.create(&request("a", BLOCK, MIB)).expect_err("created"),
            node.pool.delete(id("a")).expect_err("deleted"),
            node.pool.expand(id("a"), 3 * MIB, None).expect_err("grown"),
            node.pool.adopt_volume(id("a")).expect_err("adopted"),
            node.pool.would_adopt_volume(id("a")).expect_err("a dry run says the same"),
        ];
        for error in errors {
            assert!(matches!(&error, PoolError::Conflict { why, .. } if why.contains(words)), "{error:?}");
        }
    };
    for restart in [false, true] {
        if restart {
            node = start(&host);
        }
        node.passes().expect("looks");
        let views = node.pool.volumes();
        assert_eq!(views.len(), 2);
        assert!(views.iter().all(|view| view.conflict.is_some()), "{views:?}");
        is_refused(&node, "localpool volume settle");
        assert!(disk.content() == before, "one of them was written");
    }
    // If one of them is away, the other one is not the right one either.
    let platter = host.unplug("fake0").expect("it was there");
    for restart in [false, true] {
        if restart {
            node = start(&host);
        }
        node.passes().expect("looks");
        is_refused(&node, "localpool disk release");
    }
    let settle = Verb::SettleVolume { volume: id("a"), keep: "/dev/fake1".to_owned(), run: Run::Real };
    let away = node.pool.absent()[0].0.clone();
    let refused = node.agent.verb(&settle).expect_err("one is away").to_string();
    assert!(refused.contains(away.as_str()), "{refused}");
    node.agent.verb(&Verb::ReleaseDisk { disk: away.to_string(), run: Run::Real }).expect("given up");
    node.passes().expect("looks");
    assert!(node.pool.usable(id("a")).is_ok(), "a person gave the other one up");
    // It comes back after all.
    host.plug("fake0", "SERIAL-1", platter);
    node.passes().expect("looks");
    is_refused(&node, "localpool volume settle");
}

#[test]
fn a_conflict_is_settled_by_the_disk_that_is_kept_and_nothing_of_the_other_one_is_lost_at_any_stop() {
    let bytes = |disk: &Platter| {
        let mut bytes = [0; 4096];
        disk.peek(2 * MIB, &mut bytes);
        bytes
    };
    for cut in 0..12 {
        let (host, disk, node) = carved();
        node.pool.create(&request("a", BLOCK, MIB)).expect("made");
        disk.poke(2 * MIB, &[0xaa; 4096]);
        let platter = host.unplug("fake0").expect("it was there");
        host.state.lose();
        let other = host.add_disk("fake1", "SERIAL-2", geometry());
        let mut node = start(&host);
        node.passes().expect("claims the second");
        node.pool.create(&request("a", BLOCK, 2 * MIB)).expect("nobody knows better");
        other.poke(2 * MIB, &[0xbb; 4096]);
        host.plug("fake0", "SERIAL-1", platter);
        node.passes().expect("looks");
        let settle = |keep: &str, run| Verb::SettleVolume { volume: id("a"), keep: keep.to_owned(), run };

        let before = (disk.content(), other.content());
        let said = node.agent.verb(&settle("/dev/fake0", Run::Dry)).expect("a dry run").join("\n");
        assert!(said.contains("would keep") && said.contains("/dev/fake1p2"), "{said}");
        assert!((disk.content(), other.content()) == before, "a dry run writes nothing");
        assert!(node.agent.verb(&settle("/dev/nothing", Run::Real)).is_err());
        other.set_in_use(2, true);
        let refused = node.agent.verb(&settle("/dev/fake0", Run::Real)).expect_err("in use").to_string();
        assert!(refused.contains("in use"), "{refused}");
        other.set_in_use(2, false);
        assert_eq!(node.pool.volumes().len(), 2);

        if cut > 0 {
            host.power.cut_after(cut);
        }
        let settled = node.agent.verb(&settle("/dev/fake0", Run::Real));
        if host.power.is_off() {
            host.reboot(if cut % 2 == 0 { Fate::Torn } else { Fate::Lost });
            node = start(&host);
            node.passes().expect("looks");
            if settled.is_ok() {
                node.pool.usable(id("a")).expect("what was said to be done is done");
            } else if node.pool.usable(id("a")).is_err() {
                node.agent.verb(&settle("/dev/fake0", Run::Real)).expect("a repeat");
            }
        } else {
            host.power.restore();
        }
        node.passes().expect("looks");
        let kept = node.pool.usable(id("a")).expect("usable");
        assert!(kept.node.starts_with("/dev/fake0p2"), "{kept:?}");
        let views = node.pool.volumes();
        let aside = views.iter().find(|view| view.id != id("a")).expect("the other one is kept");
        assert_eq!((views.len(), aside.size), (2, 2 * MIB));
        assert!(matches!(node.pool.usable(aside.id), Err(PoolError::Found { .. })), "and is nobody's");
        assert_eq!((bytes(&disk), bytes(&other)), ([0xaa; 4096], [0xbb; 4096]));
        assert_eq!(node.pool.would_adopt_volume(aside.id).expect("found"), Change::Done);
        node.pool.adopt_volume(aside.id).expect("adopted");
        assert_eq!(node.pool.would_adopt_volume(aside.id).expect("usable"), Change::AlreadySo);
        node.pool.delete(aside.id).expect("deleted");
        node.pool.work_until_idle().expect("erased");
        assert_eq!((bytes(&disk), bytes(&other)), ([0xaa; 4096], [0; 4096]));
        node.pool.delete(id("a")).expect("deleted");
    }
}

#[test]
fn an_erasure_that_fails_keeps_the_space_and_goes_on_later() {
    let (_host, disk, mut node) = carved();
    node.pool.create(&request("a", BLOCK, 8 * MIB)).expect("made");
    node.pool.delete(id("a")).expect("deleted");
    disk.inject(Fault { what: "zero", range: Extent { start: 2 * MIB, end: 64 * MIB }, times: u32::MAX });
    assert!(node.pool.work_until_idle().is_err());
    let free = |node: &Node| node.pool.labelled_disks()[0].lock().content().free().total();
    assert_eq!(free(&node), 53 * MIB, "what is not erased is not free");
    disk.clear_faults();
    node.passes().expect("looks");
    node.pool.work_until_idle().expect("erased");
    assert_eq!(free(&node), 61 * MIB);
}

#[test]
fn a_disk_that_another_process_holds_is_not_used_and_not_written_before_that_one_lets_go() {
    let (host, disk, mut node) = carved();
    node.pool.create(&request("a", BLOCK, MIB)).expect("made");
    drop(node);
    host.restart_process();
    disk.set_in_use(1, true);
    // As while that process writes its tables: opening the disk would repair them.
    disk.poke(geometry().size - 512, &[0; 512]);
    let before = disk.content();
    let mapped: Vec<_> = (1..5).map(|number| disk.mapping(number)).collect();
    node = start(&host);
    let pass = node.passes().expect("looks");
    let why = &pass.problems["fake0"];
    assert!(why.contains("another process") && why.contains("in use"), "{why}");
    assert!(node.pool.usable(id("a")).is_err());
    assert!(disk.content() == before, "it was written");
    assert_eq!((1..5).map(|number| disk.mapping(number)).collect::<Vec<_>>(), mapped);
    disk.set_in_use(1, false);
    node.passes().expect("looks");
    node.pool.usable(id("a")).expect("it is free again");
    assert!(disk.content() != before, "and mended");
}

#[test]
fn what_a_killed_process_wrote_and_did_not_sync_is_synced_before_anybody_is_told_that_it_is_there() {
    let mut found = BTreeSet::new();
    for effects in 0..16 {
        let (host, _, node) = carved();
        host.power.cut_after(effects);
        let made = node.pool.create(&request("a", BLOCK, MIB));
        drop(node);
        host.restart_process();
        let looked = |host| {
            let mut node = start(host);
            node.passes().expect("looks");
            node.pool.volume(id("a")).is_ok()
        };
        let is_there = looked(&host);
        host.reboot(Fate::Lost);
        assert_eq!(looked(&host), is_there, "after {effects} effects, of which the create is {made:?}");
        found.insert((made.is_ok(), is_there));
    }
    assert!(found.contains(&(false, true)), "none was killed between its last write and the sync: {found:?}");
}

#[test]
fn a_disk_that_leaves_and_comes_back_under_another_name_has_the_same_volumes_and_others_go_on() {
    let (host, _, mut node) = carved();
    node.pool.create(&request("a", BLOCK, MIB)).expect("made");
    host.add_disk("fake1", "SERIAL-2", geometry());
    node.passes().expect("claims the second");

    let platter = host.unplug("fake0").expect("it was there");
    node.passes().expect("looks");
    let gone = node.pool.volume(id("a")).expect("it is remembered");
    assert_eq!(gone.standing, Standing::Missing);
    assert!(matches!(node.pool.delete(id("a")), Err(PoolError::DiskAway { .. })), "nothing is lost by a request");
    node.pool.create(&request("b", BLOCK, MIB)).expect("the other disk goes on");

    host.plug("fake7", "SERIAL-1", platter);
    node.passes().expect("looks");
    let back = node.pool.usable(id("a")).expect("it is back");
    assert!(back.node.starts_with("/dev/fake7p2"), "{:?}", back.node);
    node.pool.delete(id("a")).expect("and can be deleted");
}

#[test]
fn a_copy_of_a_pool_disk_is_not_used_and_the_original_stays_ready() {
    let (host, disk, mut node) = carved();
    node.pool.create(&request("a", BLOCK, MIB)).expect("made");
    let copy = host.add_disk("fake1", "SERIAL-9", geometry());
    copy.put_content(disk.content());
    let before = copy.content();
    let pass = node.passes().expect("looks");
    assert_eq!(standing(&node), Standing::Ready);
    assert_eq!(node.pool.labelled_disks().len(), 1);
    assert!(pass.problems.contains_key("fake1"), "{:?}", pass.problems);
    node.pool.create(&request("b", BLOCK, MIB)).expect("the original goes on");
    assert!(copy.content() == before, "the copy is untouched");

    // Both copies are on hardware that no label names: neither is used.
    host.unplug("fake0");
    let another = host.add_disk("fake2", "SERIAL-8", geometry());
    another.put_content(copy.content());
    let mut fresh = start(&host);
    fresh.passes().expect("looks");
    assert!(fresh.pool.labelled_disks().is_empty(), "nobody can tell which one is right");
}

fn problem(node: &mut Node, name: &str) -> String {
    node.passes().expect("looks").problems.get(name).cloned().unwrap_or_default()
}

fn adopt(disk: &str, run: Run) -> Verb {
    Verb::AdoptDisk { disk: disk.to_owned(), run }
}

#[test]
fn a_known_copy_never_takes_the_place_of_its_original_until_it_is_adopted() {
    let (host, disk, mut node) = carved();
    node.pool.create(&request("a", BLOCK, MIB)).expect("made");
    let copy = host.add_disk("fake1", "SERIAL-9", geometry());
    copy.put_content(disk.content());
    let before = copy.content();
    assert!(problem(&mut node, "fake1").contains("same identity"));
    assert!(
        node.agent.verb(&adopt("/dev/fake1", Run::Dry)).expect_err("not beside it").to_string().contains("/dev/fake0")
    );

    // However long it is away, and also for a process that has not seen both.
    let original = host.unplug("fake0").expect("it was there");
    for restart in [false, true, true] {
        if restart {
            node = start(&host);
        }
        let why = problem(&mut node, "fake1");
        assert!(why.contains("a copy of the pool disk") && why.contains("(serial-Fake_Disk-SERIAL-1)"), "{why}");
        assert!(node.pool.usable(id("a")).is_err(), "its volume is away");
        let dry = node.agent.verb(&adopt("/dev/fake1", Run::Dry)).expect("it could be").join("\n");
        assert!(dry.contains("would make /dev/fake1") && dry.contains(&id("a").to_string()), "{dry}");
    }
    assert!(copy.content() == before, "the copy is untouched");
    host.plug("fake5", "SERIAL-1", Arc::clone(&original));
    assert!(problem(&mut node, "fake1").contains("/dev/fake5 is the hardware that the label was written on"));
    assert_eq!((standing(&node), node.pool.usable(id("a")).is_ok()), (Standing::Ready, true));

    host.unplug("fake5");
    node.passes().expect("looks");
    node.agent.verb(&adopt("/dev/fake1", Run::Real)).expect("adopted");
    node.passes().expect("looks");
    node.pool.usable(id("a")).expect("it is the disk now");
    node.pool.create(&request("b", BLOCK, MIB)).expect("and is written to");
    // The earlier original is a copy from then on: beside the other one, and alone after a restart.
    host.plug("fake0", "SERIAL-1", original);
    assert!(problem(&mut node, "fake0").contains("/dev/fake1 is the hardware that the label was written on"));
    assert!(node.pool.usable(id("b")).is_ok());
    host.unplug("fake1");
    let mut node = start(&host);
    assert!(problem(&mut node, "fake0").contains("a copy of the pool disk"));
    assert!(node.pool.labelled_disks().is_empty());
}

#[test]
fn a_disk_that_comes_back_on_other_hardware_joins_where_that_was_never_seen_beside_it() {
    let (host, disk, mut node) = carved();
    node.pool.create(&request("a", BLOCK, MIB)).expect("made");
    let copy = host.add_disk("fake1", "SERIAL-9", geometry());
    copy.put_content(disk.content());
    node.passes().expect("looks");
    // A known copy is away when the disk moves to another bus; at once, and over a restart.
    let copy = host.unplug("fake1").expect("it was there");
    let mut disk = host.unplug("fake0").expect("it was there");
    for (number, restart) in [(2, false), (3, true)] {
        host.plug("fake0", &format!("SERIAL-BY-BUS-{number}"), Arc::clone(&disk));
        if restart {
            node = start(&host);
        }
        node.passes().expect("looks");
        node.pool.usable(id("a")).expect("it is the same disk");
        host.plug("fake1", "SERIAL-9", Arc::clone(&copy));
        assert!(problem(&mut node, "fake1").contains("/dev/fake0 is the hardware that the label was written on"));
        node.pool.usable(id("a")).expect("a copy takes nobody's disk away");
        host.unplug("fake1");
        disk = host.unplug("fake0").expect("it was there");
    }
}

#[test]
fn a_disk_that_is_still_listed_where_it_was_makes_no_copy_of_itself() {
    let (host, disk, mut node) = carved();
    node.pool.create(&request("a", BLOCK, MIB)).expect("made");
    host.plug("fake1", "SERIAL-1-BY-USB", disk);
    assert!(node.agent.pass().expect("looks").ripe_in == Some(Duration::ZERO), "two looks, at once");
    host.unplug("fake0");
    node.passes().expect("looks");
    node.pool.usable(id("a")).expect("it was moved");
}

#[test]
fn of_several_disks_that_nobody_can_tell_apart_none_is_used_until_one_is_adopted_though_the_others_leave() {
    let (host, disk, node) = carved();
    node.pool.create(&request("a", BLOCK, MIB)).expect("made");
    drop(node);
    let copy = host.add_disk("fake1", "SERIAL-9", geometry());
    copy.put_content(disk.content());
    // Both are on other buses at once: the label names neither.
    for (name, serial) in [("fake0", "SERIAL-A"), ("fake1", "SERIAL-B")] {
        let platter = host.unplug(name).expect("it was there");
        host.plug(name, serial, platter);
    }
    let mut node = start(&host);
    assert!(problem(&mut node, "fake0").contains("`localpool disk adopt /dev/fake0`"));
    host.unplug("fake1");
    assert!(problem(&mut node, "fake0").contains("it is not known which one is the disk"));
    host.plug("fake1", "SERIAL-B", copy);
    node.passes().expect("looks");
    node.agent.verb(&adopt("/dev/fake0", Run::Real)).expect("adopted");
    assert_eq!(problem(&mut node, "fake0"), "");
    node.pool.usable(id("a")).expect("usable");
}

#[test]
fn releasing_a_copy_does_nothing_to_the_original() {
    let (host, disk, mut node) = carved();
    host.add_disk("fake1", "SERIAL-9", geometry()).put_content(disk.content());
    node.passes().expect("looks");
    let release = Verb::ReleaseDisk { disk: "/dev/fake1".to_owned(), run: Run::Real };
    let error = node.agent.verb(&release).expect_err("it is not in the pool").to_string();
    assert!(error.contains("same identity"), "{error}");
    assert_eq!(standing(&node), Standing::Ready);
}

#[test]
fn a_disk_that_has_grown_keeps_its_volumes_and_gives_the_new_room_to_carved_ones_only() {
    for layout in [Layout::Carved {}, Layout::Slots { size: None, count: Some(2) }] {
        let host = Arc::new(FakeHost::default());
        let disk = host.add_disk("fake0", "SERIAL-1", geometry());
        let rules = || vec![rule(&layout, ErasePolicy::Discard)];
        let mut node = Node::start(&host, rules(), Duration::ZERO).expect("starts");
        node.passes().expect("claims");
        node.pool.create(&request("a", BLOCK, MIB)).expect("made");
        let places = |node: &Node| node.pool.labelled_disks()[0].lock().content().free().total();
        let before = places(&node);

        host.unplug("fake0");
        let larger = Geometry { size: 128 * MIB, ..geometry() };
        let grown = host.add_disk("fake0", "SERIAL-1", larger);
        grown.put_content(disk.content());
        node.passes().expect("looks");
        assert!(node.pool.usable(id("a")).is_ok());
        let gained = places(&node) - before;
        match layout {
            Layout::Carved {} => assert_eq!(gained, 64 * MIB),
            _ => assert_eq!(gained, 0, "a grown device gets no new slots"),
        }
        let mut tail = [0; 8];
        grown.peek(128 * MIB - 512, &mut tail);
        assert_eq!(&tail, b"EFI PART", "the backup is at the end again");
    }
}

#[test]
fn a_disk_that_is_formatted_30_seconds_after_it_appears_is_never_claimed_by_default() {
    let host = Arc::new(FakeHost::default());
    let disk = host.add_disk("fake0", "SERIAL-1", geometry());
    let rules = vec![rule(&Layout::Carved {}, ErasePolicy::Discard)];
    let mut node = Node::start(&host, rules, Duration::from_secs(60)).expect("starts");
    node.agent.pass().expect("looks");
    host.advance(Duration::from_secs(30));
    host.filesystems().make(FsKind::Ext4, std::path::Path::new("/dev/fake0"), id("theirs").uuid()).expect("formatted");
    let before = disk.content();
    for _ in 0..10 {
        host.advance(Duration::from_secs(30));
        node.agent.pass().expect("looks");
    }
    assert!(node.pool.members().is_empty());
    assert!(disk.content() == before, "and it was not written to");

    let blank = host.add_disk("fake1", "SERIAL-2", geometry());
    node.agent.pass().expect("looks");
    host.advance(Duration::from_secs(59));
    assert!(node.agent.pass().expect("looks").claimed.is_empty(), "too young");
    assert_eq!(blank.write_count(), 0);
    host.advance(Duration::from_secs(1));
    assert_eq!(node.agent.pass().expect("looks").claimed, ["fake1"]);
}

#[test]
fn a_released_disk_is_blank_and_stays_unclaimed_until_it_is_adopted() {
    let (_host, disk, mut node) = carved();
    node.pool.create(&request("a", BLOCK, MIB)).expect("made");
    let release = |run| Verb::ReleaseDisk { disk: "/dev/fake0".to_owned(), run };
    assert!(node.agent.verb(&release(Run::Real)).is_err(), "it holds a volume");
    node.pool.delete(id("a")).expect("deleted");
    assert!(node.agent.verb(&release(Run::Real)).is_err(), "it is being erased");
    node.pool.work_until_idle().expect("erased");
    let before = disk.content();
    node.agent.verb(&release(Run::Dry)).expect("a dry run");
    assert!(disk.content() == before);
    node.agent.verb(&release(Run::Real)).expect("released");
    assert!(disk.is_zero(Extent { start: 0, end: 64 * MIB }));
    node.passes().expect("looks");
    assert!(node.pool.members().is_empty(), "not claimed again");
    node.agent.verb(&Verb::AdoptDisk { disk: "/dev/fake0".to_owned(), run: Run::Real }).expect("adopted");
    node.passes().expect("looks");
    assert_eq!(node.pool.labelled_disks().len(), 1);
}

#[test]
fn of_a_disk_that_only_its_path_names_a_release_says_for_how_long_it_holds() {
    for (serial, lines) in [("S", 2), ("", 3)] {
        let host = Arc::new(FakeHost::default());
        host.add_disk("fake0", serial, geometry());
        let set = rule(&Layout::Carved {}, ErasePolicy::Discard);
        let mut node = Node::start(&host, vec![set], Duration::ZERO).expect("starts");
        node.passes().expect("claims");
        let release = Verb::ReleaseDisk { disk: "/dev/fake0".to_owned(), run: Run::Real };
        let said = node.agent.verb(&release).expect("released");
        assert_eq!(said.len(), lines, "{said:?}");
        assert!(lines < 3 || said[2].contains("no serial or WWN"), "{said:?}");
    }
}

#[test]
fn a_set_that_reclaims_by_release_gives_a_disk_back_after_its_last_volume_and_not_before_its_first() {
    for layout in [Layout::Carved {}, Layout::RawDevice {}] {
        let host = Arc::new(FakeHost::default());
        let disk = host.add_disk("fake0", "SERIAL-1", geometry());
        let mut set = rule(&layout, ErasePolicy::Discard);
        set.reclaim = Reclaim::Release;
        let mut node = Node::start(&host, vec![set], Duration::ZERO).expect("starts");
        node.passes().expect("claims");
        assert_eq!(node.pool.members().len(), 1, "an unused disk is kept");
        node.pool.create(&request("a", BLOCK, MIB)).expect("made");
        node.passes().expect("looks");
        node.pool.delete(id("a")).expect("deleted");
        node.passes().expect("looks");
        assert_eq!(node.pool.members().len(), 1, "it is not erased yet");
        node.pool.work_until_idle().expect("erased");
        node.passes().expect("looks");
        assert!(node.pool.members().is_empty(), "{layout:?}");
        assert!(disk.is_zero(Extent { start: 0, end: 64 * MIB }), "{layout:?}");
        node.passes().expect("looks");
        assert!(node.pool.members().is_empty(), "no set claims it again by itself");
    }
}

#[test]
fn adopting_a_disputed_device_erases_a_free_one_and_never_a_volume() {
    let host = Arc::new(FakeHost::default());
    let platter = host.add_disk("fake0", "serial-0", geometry());
    let start = || Node::start(&host, vec![rule(&Layout::RawDevice {}, ErasePolicy::Discard)], Duration::ZERO);
    let adopt = |node: &mut Node| {
        let verb = Verb::AdoptDisk { disk: "/dev/fake0".to_owned(), run: Run::Real };
        let lines = node.agent.verb(&verb).expect("adopted");
        node.pool.work_until_idle().expect("works");
        lines.join("\n")
    };
    let mut node = start().expect("starts");
    node.passes().expect("claims");
    node.pool.create(&request("a", WantedUsage::Block, MIB)).expect("made");
    platter.poke(MIB, &[0x77; 4096]);
    // The device was replaced by a smaller one, as far as the journal shows.
    let device = node.pool.bare_devices()[0].id.clone();
    node.pool.journal().change_bare(&device, |claim| claim.size += MIB).expect("written");
    let mut disputed = start().expect("starts");
    let pass = disputed.agent.pass().expect("looks");
    assert!(pass.problems["fake0"].contains("claim disputed"), "{:?}", pass.problems);
    assert!(disputed.pool.usable(id("a")).is_err());
    let lines = adopt(&mut disputed);
    assert!(lines.contains("as it is") && !lines.contains("erase"), "{lines}");
    let mut data = [0; 4096];
    platter.peek(MIB, &mut data);
    assert!(data == [0x77; 4096], "the volume's data is there");
    assert_eq!(disputed.pool.usable(id("a")).expect("usable").size, geometry().size);

    disputed.pool.delete(id("a")).expect("deleted");
    disputed.pool.work_until_idle().expect("erased");
    platter.poke(0, &[0x77; 4096]);
    let mut free = start().expect("starts");
    free.agent.pass().expect("looks");
    assert!(adopt(&mut free).contains("erase"));
    assert!(platter.is_zero(Extent { start: 0, end: geometry().size }));
}

/// Adds a partition as the kernel shows one, of 16 MiB on a disk.
fn partition(host: &FakeHost, disk: &str, guid: &str) -> String {
    let extent = Extent { start: MIB, end: 17 * MIB };
    let whole = host.scan().expect("looks").into_iter().find(|raw| raw.name == disk).expect("it is there");
    host.open(&whole, Access::Look).expect("opens").map(1, extent).expect("mapped");
    let name = format!("{disk}p1");
    host.add_disk(&name, "", Geometry { size: extent.len(), ..geometry() });
    let own = Partition {
        disk: disk.into(),
        number: 1,
        start: extent.start,
        part_uuid: Some(guid.to_owned()),
        part_label: None,
    };
    host.edit(&name, |raw| raw.kind = DeviceKind::Partition(own));
    host.edit(disk, |raw| raw.partitions = vec![name.as_str().into()]);
    name
}

#[test]
fn a_partition_that_a_tenant_made_on_a_bare_device_is_given_to_nobody_and_unmapped() {
    let host = Arc::new(FakeHost::default());
    let platter = host.add_disk("fake0", "serial-0", geometry());
    let whole = rule(&Layout::RawDevice {}, ErasePolicy::Discard);
    let parts = Rule {
        set: SetRef::new(SetName::new("default", "parts"), "2"),
        filter: Filter::any_of(vec![DeviceType::Part]),
        ..rule(&Layout::Whole {}, ErasePolicy::Discard)
    };
    let start = || Node::start(&host, vec![whole.clone(), parts.clone()], Duration::ZERO).expect("starts");
    let mut node = start();
    node.passes().expect("claims");
    node.pool.create(&request("a", BLOCK, MIB)).expect("made");
    drop(node);

    // Blank, and a bare device of the pool by its identity: a tenant can write any GUID.
    let name = partition(&host, "fake0", "6c6f6361-0000-4000-8000-000000000001");
    let mut node = start();
    let pass = node.passes().expect("looks");
    assert_eq!(node.pool.members().len(), 1, "{:?}", node.pool.disk_views());
    let of = |pass: &PassReport| {
        pass.snapshot.devices.iter().find(|device| device.raw.name == *name).expect("it").verdict.clone()
    };
    assert!(matches!(of(&pass), Verdict::Theirs(Reason::OnPoolVolume { .. })), "{:?}", of(&pass));
    assert_eq!(platter.mapping(1), None, "it is not left mapped when the device joins");

    let device = host.scan().expect("looks").remove(0);
    let disk = host.open(&device, Access::Look).expect("opens");
    disk.map(1, Extent { start: MIB, end: 17 * MIB }).expect("mapped again");
    platter.set_in_use(1, true);
    assert!(matches!(node.pool.delete(id("a")), Err(PoolError::InUse { .. })), "somebody uses it");
    platter.set_in_use(1, false);
    node.pool.delete(id("a")).expect("deleted");
    disk.map(1, Extent { start: MIB, end: 17 * MIB }).expect("mapped once more");
    node.pool.work_until_idle().expect("erased");
    assert_eq!(platter.mapping(1), None, "it is not there for the next tenant");
    node.passes().expect("looks");
    assert_eq!(node.pool.members().len(), 1, "the erased device is not offered twice");
}

#[test]
fn a_label_that_a_tenant_wrote_on_a_bare_device_takes_no_disk_out_of_the_pool() {
    let (host, disk, node) = carved();
    drop(node);
    let bare = host.add_disk("fake1", "serial-1", Geometry { size: 128 * MIB, ..geometry() });
    let bare_rule = Rule {
        set: SetRef::new(SetName::new("default", "bare"), "2"),
        ..rule(&Layout::RawDevice {}, ErasePolicy::Discard)
    };
    let rules = || vec![rule(&Layout::Carved {}, ErasePolicy::Discard), bare_rule.clone()];
    let journal = |node: &Node| node.pool.bare_devices().len();
    let mut node = Node::start(&host, vec![bare_rule.clone()], Duration::ZERO).expect("starts");
    node.passes().expect("claims");
    assert_eq!(journal(&node), 1);
    drop(node);
    bare.put_content(disk.content());
    // The pool disk has moved to another bus since it was claimed, so its label does not say which of the two it is.
    host.edit("fake0", |raw| raw.serial = Some("SERIAL-1-BY-USB".to_owned()));
    let mut node = Node::start(&host, rules(), Duration::ZERO).expect("starts");
    let pass = node.passes().expect("looks");
    assert_eq!(standing(&node), Standing::Ready, "{:?}", pass.problems);
    assert_eq!((node.pool.labelled_disks().len(), journal(&node)), (1, 1));
    assert!(!pass.problems.contains_key("fake0"), "{:?}", pass.problems);
}

/// What mkfs does, an admin's or ours.
fn mkfs(host: &FakeHost, uuid: Uuid) {
    host.filesystems().make(FsKind::Ext4, Path::new("/dev/fake0"), uuid).expect("made");
}

#[test]
fn what_somebody_puts_on_a_free_bare_device_is_not_written_over_by_cleaning_or_by_a_new_volume() {
    let ext4 = WantedUsage::Mount(Some(FsKind::Ext4));
    // Cleaned in advance, or zeroed at once.
    for offloads_zeroes in [false, true] {
        let host = Arc::new(FakeHost::default());
        let disk = host.add_disk("fake0", "serial-0", Geometry { offloads_zeroes, ..geometry() });
        let rules = vec![rule(&Layout::RawDevice {}, ErasePolicy::Discard)];
        let mut node = Node::start(&host, rules, Duration::ZERO).expect("starts");
        node.passes().expect("claims");
        mkfs(&host, Uuid::from_u128(5));
        let before = disk.content();
        if !offloads_zeroes {
            node.pool.work_until_idle().expect_err("it is not cleaned");
        }
        for usage in [BLOCK, ext4] {
            node.pool.create(&request("a", usage, MIB)).expect_err("it is not given out");
        }
        let why = problem(&mut node, "fake0");
        assert!(why.contains("claim disputed: the device should be free, but holds ext4"), "{why}");
        assert!(disk.content() == before, "something was written");
        node.agent.verb(&adopt("/dev/fake0", Run::Real)).expect("adopted");
        node.pool.work_until_idle().expect("erased");
        node.pool.create(&request("a", BLOCK, MIB)).expect("it is offered again");
    }
}

#[test]
fn a_filesystem_is_made_over_nothing_that_was_not_begun_here_and_one_of_the_volume_itself_is_kept() {
    let ext4 = WantedUsage::Mount(Some(FsKind::Ext4));
    // Somebody else's, or the volume's own, which a journal from a backup does not know.
    for uuid in [Uuid::from_u128(5), id("a").uuid()] {
        let host = Arc::new(FakeHost::default());
        let disk = host.add_disk("fake0", "serial-0", geometry());
        let start = || Node::start(&host, vec![rule(&Layout::RawDevice {}, ErasePolicy::Discard)], Duration::ZERO);
        let mut node = start().expect("starts");
        node.passes().expect("claims");
        node.pool.create(&request("a", ext4, MIB)).expect("made");
        let older = host.state().load(JOURNAL).expect("read").expect("it is there");
        mkfs(&host, uuid);
        let before = disk.content();
        node.pool.begin_format(id("a")).expect_err("something is there");
        assert!(node.pool.usable(id("a")).is_err(), "and a person must say what it is");
        host.state().store(JOURNAL, &older).expect("restored");

        let mut node = start().expect("starts");
        let why = problem(&mut node, "fake0");
        assert!(why.contains("claim disputed") && why.contains("restored from a backup"), "{why}");
        node.agent.verb(&adopt("/dev/fake0", Run::Real)).expect("adopted");
        assert!(disk.content() == before, "something was written");
        assert_eq!(node.pool.usable(id("a")).expect("usable").formatted, uuid == id("a").uuid());
        node.pool.begin_format(id("a")).expect("what is not the volume's may go now");
    }
}

#[test]
fn a_filesystem_whose_making_was_stopped_is_made_again() {
    let host = Arc::new(FakeHost::default());
    host.add_disk("fake0", "serial-0", geometry());
    let start = || Node::start(&host, vec![rule(&Layout::RawDevice {}, ErasePolicy::Discard)], Duration::ZERO);
    let mut node = start().expect("starts");
    node.passes().expect("claims");
    node.pool.create(&request("a", WantedUsage::Mount(Some(FsKind::Ext4)), MIB)).expect("made");
    node.pool.begin_format(id("a")).expect("begun");
    mkfs(&host, id("a").uuid());
    let mut node = start().expect("starts");
    assert_eq!(problem(&mut node, "fake0"), "");
    node.pool.begin_format(id("a")).expect("it was begun here");
    node.pool.mark_formatted(id("a")).expect("written");
    assert!(node.pool.usable(id("a")).expect("usable").formatted);
}

#[test]
fn a_bare_device_that_is_away_is_missed_with_its_volume_until_it_is_given_up_by_its_id() {
    let host = Arc::new(FakeHost::default());
    host.add_disk("fake0", "serial-0", geometry());
    let rules = || vec![rule(&Layout::RawDevice {}, ErasePolicy::Discard)];
    let mut node = Node::start(&host, rules(), Duration::ZERO).expect("starts");
    node.passes().expect("claims");
    let device = node.pool.bare_devices()[0].id.clone();
    let release = |run| Verb::ReleaseDisk { disk: device.to_string(), run };
    node.pool.create(&request("a", BLOCK, MIB)).expect("made");
    let platter = host.unplug("fake0").expect("it was there");
    platter.poke(MIB, &[0x77; 4096]);
    // Whether or not the agent has seen it since its start.
    for restart in [false, true] {
        if restart {
            node = Node::start(&host, rules(), Duration::ZERO).expect("starts");
        }
        node.passes().expect("looks");
        let missed = node.pool.volume(id("a")).expect("it is remembered");
        assert_eq!((missed.standing, missed.node), (Standing::Missing, PathBuf::new()), "another has its node by now");
        assert!(matches!(node.pool.delete(id("a")), Err(PoolError::DiskAway { .. })), "nothing is lost by a request");
        assert!(node.pool.place(&request("b", BLOCK, MIB), &BTreeSet::new()).is_err(), "it offers nothing");
        let lines = node.agent.verb(&release(Run::Dry)).expect("it could be").join("\n");
        assert!(lines.contains("would give up") && lines.contains("is given up"), "{lines}");
        assert_eq!(node.pool.disk_views().len(), 1, "a dry run does nothing");
    }
    // It comes back, also for an agent that has not seen it before.
    host.plug("fake5", "serial-0", platter);
    node.passes().expect("looks");
    assert_eq!(node.pool.usable(id("a")).expect("usable").standing, Standing::Ready);

    let platter = host.unplug("fake5").expect("it was there");
    node.passes().expect("looks");
    node.agent.verb(&release(Run::Real)).expect("given up");
    assert!(node.pool.disk_views().is_empty() && node.pool.volumes().is_empty());
    host.plug("fake0", "serial-0", Arc::clone(&platter));
    node.passes().expect("looks");
    assert!(node.pool.members().is_empty(), "no set claims it by itself");
    let mut data = [0; 4096];
    platter.peek(MIB, &mut data);
    assert!(data == [0x77; 4096], "its data is there");
}

#[test]
fn a_deleted_set_keeps_its_volumes_and_offers_nothing_and_one_made_anew_takes_the_disk_over() {
    let (host, _, node) = carved();
    node.pool.create(&request("a", BLOCK, MIB)).expect("made");
    drop(node);
    let mut orphaned = Node::start(&host, Vec::new(), Duration::ZERO).expect("starts");
    orphaned.passes().expect("looks");
    assert!(orphaned.pool.usable(id("a")).is_ok(), "the volume stays");
    assert!(matches!(orphaned.pool.create(&request("b", BLOCK, MIB)), Err(PoolError::NoSet(_))));

    let remade = |uid: &str, layout: Layout| {
        let mut set = rule(&layout, ErasePolicy::Discard);
        set.set.uid = uid.to_owned();
        set
    };
    let other = vec![remade("2", Layout::Whole {})];
    let mut other = Node::start(&host, other, Duration::ZERO).expect("starts");
    other.passes().expect("looks");
    assert!(other.pool.create(&request("b", BLOCK, MIB)).is_err(), "another layout is another set");

    let mut node = Node::start(&host, vec![remade("2", Layout::Carved {})], Duration::ZERO).expect("starts");
    node.passes().expect("looks");
    node.pool.create(&request("b", BLOCK, MIB)).expect("it offers again");
    assert_eq!(node.pool.labelled_disks()[0].lock().content().label.set.uid, "2", "and the label says so");
}

#[test]
fn a_disk_that_is_being_cleaned_offers_all_its_space_to_filesystems_and_the_clean_part_to_raw_volumes() {
    let host = Arc::new(FakeHost::default());
    let slow = Geometry { size: 256 * MIB, offloads_zeroes: false, ..geometry() };
    host.add_disk("fake0", "SERIAL-1", slow);
    let mut node = start(&host);
    node.passes().expect("claims");
    let offered = |wanted| node.pool.capacity(&Selector::default(), wanted).available;
    let ext4 = WantedUsage::Mount(Some(FsKind::Ext4));
    assert_eq!((offered(ext4), offered(BLOCK)), (253 * MIB, 0), "nothing is clean yet");
    node.pool.members()[0].work().expect("one chunk");
    let clean = offered(BLOCK);
    assert!((62 * MIB..253 * MIB).contains(&clean), "{clean}");
    assert_eq!(offered(ext4), 253 * MIB, "a filesystem takes space as it is");
    node.pool.create(&request("fs", ext4, 200 * MIB)).expect("it fits nowhere but over what is still dirty");
    node.pool.work_until_idle().expect("cleaned");
    assert_eq!(offered(BLOCK), 53 * MIB);
}
