//! A disk that has an earlier state of its own: an earlier table, label or content was put back under the same disk.

use std::sync::Arc;

use localpool::agent::Run;
use localpool::host::Extent;
use localpool::host::fake::{FakeHost, Platter};
use localpool::pool::Change;

use crate::node::{BLOCK, MIB, MOUNT, Node, adopt, carved, id, problem, request, start};

#[test]
fn a_snapshot_that_is_put_back_under_the_same_serial_is_not_used_either() {
    for restart in [false, true] {
        let (host, disk, mut node) = carved();
        node.pool.create(&request("a", BLOCK, MIB)).expect("made");
        let earlier = disk.content();
        node.pool.create(&request("b", BLOCK, MIB)).expect("made");
        node.passes().expect("a pass");
        if restart {
            drop(node);
            disk.put_content(earlier);
            node = start(&host);
        } else {
            host.unplug("fake0");
            node.passes().expect("a pass");
            disk.put_content(earlier);
            host.plug("fake0", "SERIAL-1", Arc::clone(&disk));
        }
        is_refused_until_it_is_adopted(&host, &disk, node);
    }
}

#[test]
fn a_state_from_before_the_last_change_is_not_used_though_no_pass_came_since() {
    type Verb = fn(&Node);
    let changes: [(&str, Verb); 7] = [
        ("create", |node| drop(node.pool.create(&request("b", BLOCK, MIB)).expect("made"))),
        ("delete", |node| assert_eq!(node.pool.delete(id("c")).expect("deleted"), Change::Done)),
        ("expand", |node| drop(node.pool.expand(id("a"), 4 * MIB, None).expect("grown"))),
        ("format", |node| node.pool.mark_formatted(id("d")).expect("formatted")),
        ("grow the filesystem", |node| node.pool.mark_grown(id("d"), MIB).expect("grown")),
        ("disown", |node| node.pool.disown_volume(id("a")).expect("disowned")),
        ("adopt", |node| assert_eq!(node.pool.adopt_volume(id("e")).expect("adopted"), Change::Done)),
    ];
    for (what, change) in changes {
        let (host, disk, mut node) = carved();
        for (name, usage) in [("c", BLOCK), ("d", MOUNT), ("e", BLOCK), ("a", BLOCK)] {
            node.pool.create(&request(name, usage, MIB)).expect("made");
        }
        node.pool.disown_volume(id("e")).expect("disowned");
        node.pool.work_until_idle().expect("mirrors");
        node.passes().expect("a pass");
        let earlier = disk.content();
        change(&node);
        // As if it had just been killed.
        drop(node);
        disk.put_content(earlier);
        let mut node = start(&host);
        let why = problem(&mut node, "fake0");
        assert!(why.contains("in an earlier state"), "{what}: {why:?}");
        assert!(node.pool.usable(id("a")).is_err() && node.pool.delete(id("a")).is_err(), "{what}");
    }
}

#[test]
fn what_is_known_of_a_disk_after_a_change_is_what_it_is_also_where_the_journal_cannot_be_written() {
    let (host, _, mut node) = carved();
    node.pool.create(&request("a", BLOCK, MIB)).expect("made");
    node.passes().expect("a pass");
    host.state.set_full(true);
    node.pool.expand(id("a"), 2 * MIB, None).expect("the disk has it");
    node.pool.delete(id("a")).expect("the disk has it");
    host.state.set_full(false);
    node.passes().expect("a pass");
    node = start(&host);
    assert_eq!(problem(&mut node, "fake0"), "");
}

#[test]
fn a_label_copy_that_rots_after_an_adoption_makes_no_earlier_state() {
    let (host, disk, mut node) = carved();
    node.pool.create(&request("a", BLOCK, MIB)).expect("made");
    node.pool.work_until_idle().expect("mirrors");
    node.passes().expect("a pass");
    let earlier = disk.content();
    node.pool.create(&request("b", BLOCK, MIB)).expect("made");
    drop(node);
    disk.put_content(earlier);
    let mut node = start(&host);
    node.passes().expect("a pass");
    node.agent.verb(&adopt("/dev/fake0", Run::Real)).expect("adopted");
    assert_eq!(problem(&mut node, "fake0"), "");
    node.pool.work_until_idle().expect("mirrors");
    node.passes().expect("a pass");
    drop(node);
    let number = |at: u64| {
        let mut bytes = [0; 8];
        disk.peek(at + 32, &mut bytes);
        u64::from_le_bytes(bytes)
    };
    let (a, b) = (MIB, MIB + (512 << 10));
    let newest = if number(a) > number(b) { a } else { b };
    disk.lose(Extent { start: newest, end: newest + 4096 });
    let mut node = start(&host);
    assert_eq!(problem(&mut node, "fake0"), "");
}

/// Volume `a` is on that disk, `b` is not.
pub fn is_refused_until_it_is_adopted(host: &Arc<FakeHost>, disk: &Arc<Platter>, mut node: Node) {
    let is = disk.content();
    for restart in [false, true] {
        if restart {
            node = start(host);
        }
        let why = problem(&mut node, "fake0");
        assert!(why.contains("in an earlier state") && why.contains("disk adopt /dev/fake0"), "{why:?}");
        assert!(node.pool.usable(id("a")).is_err(), "it may have other data by now");
        assert!(node.pool.delete(id("b")).is_err(), "nobody knows that it is gone");
        assert!(node.pool.create(&request("b", BLOCK, MIB)).is_err(), "nor that it is nowhere");
    }
    let says = node.agent.verb(&adopt("/dev/fake0", Run::Dry)).expect("would do it").join("\n");
    assert!(says.contains(&format!("volume {} is not on it", id("b"))), "{says}");
    assert!(!problem(&mut node, "fake0").is_empty(), "a dry run changes nothing");
    assert!(disk.content() == is, "something was written");
    node.agent.verb(&adopt("/dev/fake0", Run::Real)).expect("adopted");
    assert_eq!(problem(&mut node, "fake0"), "");
    node.pool.usable(id("a")).expect("it is there");
    node.pool.delete(id("b")).expect("it is on no disk");
    node = start(host);
    assert_eq!(problem(&mut node, "fake0"), "");
}

#[test]
fn an_earlier_state_that_is_put_back_under_a_disk_in_use_is_not_written_over() {
    let (_, disk, mut node) = carved();
    node.pool.create(&request("a", BLOCK, MIB)).expect("made");
    let earlier = disk.content();
    node.pool.create(&request("b", BLOCK, MIB)).expect("made");
    node.pool.delete(id("b")).expect("deleted");
    node.passes().expect("a pass");
    disk.put_content(earlier.clone());
    assert!(node.pool.create(&request("c", BLOCK, MIB)).is_err());
    assert!(disk.content() == earlier, "something was written");
    assert!(problem(&mut node, "fake0").contains("in an earlier state"));
}

/// Both copies of the partition table, with the protective MBR.
fn tables(disk: &Platter) -> [(u64, Vec<u8>); 2] {
    [(0, 34 * 512), (disk.geometry.size - 33 * 512, 33 * 512)].map(|(at, len)| {
        let mut bytes = vec![0; len];
        disk.peek(at, &mut bytes);
        (at, bytes)
    })
}

fn put_back(disk: &Platter, tables: &[(u64, Vec<u8>)]) {
    tables.iter().for_each(|(at, bytes)| disk.poke(*at, bytes));
}

#[test]
fn under_an_older_partition_table_nothing_is_given_away_and_the_volumes_that_it_lacks_come_back_with_the_newer_one() {
    for restart in [false, true] {
        let (host, disk, mut node) = carved();
        node.pool.create(&request("a", BLOCK, MIB)).expect("made");
        let older = tables(&disk);
        node.pool.create(&request("b", BLOCK, MIB)).expect("made");
        node.pool.work_until_idle().expect("writes the older copy of the label, too");
        node.passes().expect("a pass");
        let newer = tables(&disk);
        if restart {
            drop(node);
            put_back(&disk, &older);
            node = start(&host);
        } else {
            put_back(&disk, &older);
            assert!(node.pool.create(&request("c", BLOCK, MIB)).is_err());
        }
        let is = disk.content();
        for _ in 0..2 {
            let why = problem(&mut node, "fake0");
            assert!(why.contains(&format!("lacks the partition of volume {}", id("b"))), "{why:?}");
        }
        assert!(node.pool.usable(id("b")).is_err() && node.pool.delete(id("b")).is_err(), "its data is there");
        assert!(
            node.pool.create(&request("b", BLOCK, MIB)).is_err()
                && node.pool.create(&request("c", BLOCK, MIB)).is_err()
        );
        node.pool.work_until_idle().expect("there is nothing to do");
        assert!(disk.content() == is, "something was written");

        put_back(&disk, &newer);
        assert_eq!(problem(&mut node, "fake0"), "");
        node.pool.usable(id("b")).expect("it is back");
        // That was intended.
        node.passes().expect("a pass");
        drop(node);
        put_back(&disk, &older);
        node = start(&host);
        let says = node.agent.verb(&adopt("/dev/fake0", Run::Dry)).expect("would do it").join("\n");
        assert!(says.contains(&format!("volume {} is not on it, and is given up", id("b"))), "{says}");
        assert!(!problem(&mut node, "fake0").is_empty(), "a dry run changes nothing");
        node.agent.verb(&adopt("/dev/fake0", Run::Real)).expect("adopted");
        assert_eq!(problem(&mut node, "fake0"), "");
        node.pool.usable(id("a")).expect("it is there");
        node.pool.delete(id("b")).expect("it is on no disk");
    }
}

#[test]
fn what_was_deleted_or_never_made_is_not_missed_in_a_table() {
    let (host, _, mut node) = carved();
    node.pool.create(&request("a", BLOCK, MIB)).expect("made");
    node.passes().expect("a pass");
    for is_erased in [false, true] {
        node.pool.delete(id("a")).expect("deleted");
        if is_erased {
            node.pool.work_until_idle().expect("erases");
        }
        node = start(&host);
        assert_eq!(problem(&mut node, "fake0"), "");
        node.pool.work_until_idle().expect("erases");
        node.pool.create(&request("a", BLOCK, MIB)).expect("created again");
        node.passes().expect("a pass");
    }
}
