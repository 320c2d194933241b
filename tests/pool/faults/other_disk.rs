//! A volume that is, or may be, on another disk as well: it is made, deleted and used on one only.

use std::collections::BTreeSet;

use localpool::agent::{Run, Verb};
use localpool::device::label::Layout;
use localpool::host::Extent;
use localpool::host::fake::{Fate, Fault, Platter};
use localpool::pool::{Change, Destination, Made, PoolError};

use crate::faults::{started, two_disks};
use crate::node::{BLOCK, MIB, Node, carved, geometry, id, request, start};

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
        node.passes().expect("a pass");
        let error = node.pool.create(&request("new", BLOCK, MIB)).expect_err("it may be on the disk that is away");
        let PoolError::DiskAway { disk, .. } = &error else { panic!("{error:?}") };
        assert!(error.to_string().contains(&format!("localpool disk give-up {disk}")), "{error}");
        assert!(matches!(node.pool.delete(id("new")), Err(PoolError::DiskAway { .. })), "nobody knows that it is gone");
        assert!(large.content() == before, "the other disk was written");
    }
    node.pool.create(&request("other", BLOCK, MIB)).expect("another id is not held up");
    node.pool.delete(id("other")).expect("nor its deletion");
    small.clear_faults();
    host.plug("fake0", "fake0", platter);
    node.passes().expect("a pass");
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
    fresh.passes().expect("a pass");
    assert!(matches!(fresh.pool.delete(id("a")), Err(PoolError::DiskAway { .. })));
    assert!(matches!(fresh.pool.delete(id("never")), Ok(Change::AlreadySo)), "what was never on it is not there");

    // The journal is lost, and the disk is here but cannot be opened: it may contain anything.
    host.state.lose();
    host.plug("fake0", "SERIAL-1", platter);
    disk.poke(64 * MIB - 512, &[0; 512]);
    disk.inject(Fault { what: "lock", range: Extent { start: 0, end: u64::MAX }, times: u32::MAX });
    let mut lost = start(&host);
    lost.passes().expect("a pass");
    assert!(lost.pool.volume(id("a")).is_err(), "it is not open");
    for name in ["a", "never"] {
        assert!(matches!(lost.pool.delete(id(name)), Err(PoolError::DiskAway { .. })), "{name}");
    }
    assert!(matches!(lost.pool.create(&request("a", BLOCK, MIB)), Err(PoolError::DiskAway { .. })), "its label has it");
    lost.pool.create(&request("new", BLOCK, MIB)).expect("a new volume is not held up");
    disk.clear_faults();
    lost.passes().expect("a pass");
    lost.pool.delete(id("a")).expect("it is there");
    assert!(matches!(lost.pool.delete(id("a")), Ok(Change::AlreadySo)));

    // Nothing waits for a volume that was deleted before the disk left.
    host.unplug("fake0");
    lost.passes().expect("a pass");
    let mut fresh = start(&host);
    fresh.passes().expect("a pass");
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

    let is_refused = |node: &Node, message: &str| {
        let errors = [
            node.pool.usable(id("a")).expect_err("usable"),
            node.pool.create(&request("a", BLOCK, MIB)).expect_err("created"),
            node.pool.delete(id("a")).expect_err("deleted"),
            node.pool.expand(id("a"), 3 * MIB, None).expect_err("grown"),
            node.pool.adopt_volume(id("a")).expect_err("adopted"),
            node.pool.would_adopt_volume(id("a")).expect_err("a dry run says the same"),
        ];
        for error in errors {
            assert!(matches!(&error, PoolError::Conflict { why, .. } if why.contains(message)), "{error:?}");
        }
    };
    for restart in [false, true] {
        if restart {
            node = start(&host);
        }
        node.passes().expect("a pass");
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
        node.passes().expect("a pass");
        is_refused(&node, "localpool disk give-up");
    }
    let settle = Verb::SettleVolume { volume: id("a"), keep: "/dev/fake1".to_owned(), run: Run::Real };
    let away = node.pool.absent()[0].0.clone();
    let refused = node.agent.verb(&settle).expect_err("one is away").to_string();
    assert!(refused.contains(away.as_str()), "{refused}");
    node.agent.verb(&Verb::ReleaseDisk { disk: away.to_string(), run: Run::Real }).expect("given up");
    node.passes().expect("a pass");
    assert!(node.pool.usable(id("a")).is_ok(), "a person gave the other one up");
    // It comes back after all.
    host.plug("fake0", "SERIAL-1", platter);
    node.passes().expect("a pass");
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
        node.passes().expect("a pass");
        let settle = |keep: &str, run| Verb::SettleVolume { volume: id("a"), keep: keep.to_owned(), run };

        let before = (disk.content(), other.content());
        let refusal = node.agent.verb(&settle("/dev/fake0", Run::Dry)).expect("a dry run").join("\n");
        assert!(refusal.contains("would keep") && refusal.contains("/dev/fake1p2"), "{refusal}");
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
            node.passes().expect("a pass");
            if settled.is_ok() {
                node.pool.usable(id("a")).expect("what was said to be done is done");
            } else if node.pool.usable(id("a")).is_err() {
                node.agent.verb(&settle("/dev/fake0", Run::Real)).expect("a repeat");
            }
        } else {
            host.power.restore();
        }
        node.passes().expect("a pass");
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
