//! What others do to a disk of the pool while it is in use, and what a bare device gains by growing.

use std::sync::Arc;
use std::time::Duration;

use localpool::agent::{Reconciler, Run};
use localpool::device::{
    Owner, Verdict,
    label::{ErasePolicy, Layout},
};
use localpool::host::{
    Extent, Geometry, Host,
    fake::{FakeDisk, FakeHost, Platter},
    table::{Entry, Name, Table, backup_bytes, primary_bytes, read_copies},
};
use localpool::pool::{Adoption, Made, Pool, Workers};
use uuid::Uuid;

use super::started;
use crate::node::{BLOCK, MIB, Node, adopt, carved, geometry, id, problem, request, rule, start};

/// What is done with a pool, and its name.
type Doing = (&'static str, fn(&Pool));

/// Both copies of a table, written as by a tool that asks nobody.
fn put(disk: &Platter, table: &Table) {
    disk.poke(512, &primary_bytes(table));
    let backup = backup_bytes(table);
    disk.poke(disk.geometry.size - backup.len() as u64, &backup);
}

fn table(disk: &Arc<Platter>) -> Table {
    let handle = FakeDisk { platter: Arc::clone(disk), name: "fake0".to_owned() };
    read_copies(&handle).primary.expect("a table")
}

/// An admin makes a partition of their own, and writes all over it.
fn unknown_partition(disk: &Arc<Platter>, number: u32, extent: Extent) {
    let entry = Entry {
        kind: Uuid::from_u128(0x7e15),
        guid: Uuid::from_u128(9),
        extent,
        attributes: 0,
        name: Name::tail("theirs"),
    };
    put(disk, &table(disk).with(number, Some(entry)).expect("room"));
    for at in (extent.start..extent.end).step_by(1 << 20) {
        disk.poke(at, &[0xaa; 4096]);
    }
}

fn is_whole(disk: &Platter, extent: Extent) -> bool {
    (extent.start..extent.end).step_by(1 << 20).all(|at| {
        let mut buf = [0; 4096];
        disk.peek(at, &mut buf);
        buf == [0xaa; 4096]
    })
}

const THEIRS: Extent = Extent { start: 20 * MIB, end: 30 * MIB };

#[test]
fn a_partition_that_somebody_made_in_free_space_meanwhile_is_not_zeroed_by_cleaning() {
    let host = Arc::new(FakeHost::default());
    let disk = host.add_disk("fake0", "SERIAL-1", Geometry { offloads_zeroes: false, ..geometry() });
    let mut node = start(&host);
    node.passes().expect("claims");
    unknown_partition(&disk, 7, THEIRS);
    let _ = node.pool.work_until_idle();
    assert!(is_whole(&disk, THEIRS), "cleaning zeroed it");
}

#[test]
fn a_partition_that_somebody_made_in_free_space_meanwhile_is_not_zeroed_for_a_new_volume_or_a_growth() {
    let (_host, disk, node) = carved();
    node.pool.create(&request("a", BLOCK, 4 * MIB)).expect("made");
    unknown_partition(&disk, 7, THEIRS);
    let before = disk.content();
    node.pool.create(&request("b", BLOCK, 50 * MIB)).expect_err("it is not free");
    assert!(is_whole(&disk, THEIRS), "a new volume zeroed it");
    assert!(disk.content() == before, "something was written");

    let (_host, disk, node) = carved();
    node.pool.create(&request("a", BLOCK, 4 * MIB)).expect("made");
    unknown_partition(&disk, 7, THEIRS);
    node.pool.expand(id("a"), 50 * MIB, None).expect_err("it is not free");
    assert!(is_whole(&disk, THEIRS), "a growth zeroed it");
}

#[test]
fn a_partition_that_somebody_made_in_place_of_a_deleted_volume_is_not_erased() {
    let (_host, disk, node) = carved();
    let made = node.pool.create(&request("a", BLOCK, 16 * MIB)).expect("made").0;
    node.pool.delete(id("a")).expect("deleted");
    let now = table(&disk);
    let (number, entry) = now.entries().iter().map(|(n, e)| (*n, e.clone())).nth(1).expect("what is erased");
    assert_eq!(entry.extent.len(), made.size);
    put(&disk, &now.with(number, None).expect("gone"));
    unknown_partition(&disk, number, entry.extent);
    let _ = node.pool.work_until_idle();
    assert!(is_whole(&disk, entry.extent), "the erasure zeroed it");
}

#[test]
fn a_label_is_not_written_over_what_somebody_made_of_the_disk_meanwhile() {
    let plans: [Doing; 3] = [
        ("create", |pool| drop(pool.create(&request("b", BLOCK, MIB)))),
        ("delete", |pool| drop(pool.delete(id("a")))),
        ("adopt", |pool| drop(pool.disown_volume(id("a")))),
    ];
    for (name, plan) in plans {
        let (_host, disk, node) = carved();
        node.pool.create(&request("a", BLOCK, MIB)).expect("made");
        node.pool.work_until_idle().expect("mirrors");
        // A filesystem over the whole disk, made by a tool that asks nobody.
        disk.put_content(Default::default());
        for at in (0..64 * MIB).step_by(65536) {
            disk.poke(at, &[0x55; 65536]);
        }
        disk.poke(1080, &[0x53, 0xef]);
        let before = disk.content();
        plan(&node.pool);
        assert!(disk.content() == before, "{name}: it was written over");
    }
}

#[test]
fn what_a_tenant_wrote_behind_the_old_end_of_a_bare_device_that_has_grown_is_erased_with_his_volume() {
    let host = Arc::new(FakeHost::default());
    let disk = host.add_disk("fake0", "SERIAL-1", geometry());
    let mut node = started(&host, &Layout::RawDevice {});
    node.passes().expect("claims");
    node.pool.create(&request("a", BLOCK, MIB)).expect("made");

    // The whole device is the tenant's, grown or not.
    host.unplug("fake0");
    let grown = host.add_disk("fake0", "SERIAL-1", Geometry { size: 128 * MIB, ..geometry() });
    grown.put_content(disk.content());
    node.passes().expect("a pass");
    node.pool.usable(id("a")).expect("it is here");
    grown.poke(101 * MIB + 4096, &[0x77; 4096]);
    node.pool.delete(id("a")).expect("deleted");
    node.pool.work_until_idle().expect("erases");
    let behind = Extent { start: 64 * MIB, end: 128 * MIB };
    let shown = node.pool.create(&request("b", BLOCK, MIB)).is_ok();
    assert!(!shown || grown.is_zero(behind), "the next tenant reads what the last one wrote");
}

#[test]
fn a_verb_that_waited_for_a_bare_device_while_its_volume_became_another_one_does_nothing_to_that() {
    let host = Arc::new(FakeHost::default());
    let disk = host.add_disk("fake0", "SERIAL-1", geometry());
    let mut node = started(&host, &Layout::RawDevice {});
    node.passes().expect("claims");
    node.pool.create(&request("a", BLOCK, MIB)).expect("made");
    disk.poke(MIB, &[0x77; 4096]);
    let member = node.pool.members().remove(0);
    // A conflict that was settled in the meantime.
    member.give_other_id(id("a"), id("aside"), "aside", node.pool.journal()).expect("settled");
    let view = node.pool.volume(id("aside")).expect("it is there");
    member.delete(id("a")).expect_err("it is not there");
    member.set_found(id("a"), Adoption::Done).expect_err("nor to be adopted");
    node.pool.work_until_idle().expect("nothing to do");
    assert_eq!(node.pool.volume(id("aside")).expect("it is there"), view);
    assert!(!disk.is_zero(Extent { start: MIB, end: 2 * MIB }), "it was erased");
}

#[test]
fn what_a_free_bare_device_has_gained_by_growing_is_zeroed_before_a_tenant_sees_it() {
    let host = Arc::new(FakeHost::default());
    let disk = host.add_disk("fake0", "SERIAL-1", geometry());
    let mut node = started(&host, &Layout::RawDevice {});
    node.passes().expect("claims");
    node.pool.create(&request("a", BLOCK, MIB)).expect("made");
    node.pool.delete(id("a")).expect("deleted");
    node.pool.work_until_idle().expect("erased");

    host.unplug("fake0");
    let grown = host.add_disk("fake0", "SERIAL-1", Geometry { size: 128 * MIB, ..geometry() });
    grown.put_content(disk.content());
    grown.poke(101 * MIB + 4096, &[0x77; 4096]);
    node.passes().expect("a pass");
    let made = node.pool.create(&request("b", BLOCK, MIB)).expect("made").0;
    assert_eq!(made.size, 128 * MIB);
    assert!(grown.is_zero(Extent { start: 0, end: 128 * MIB }), "the tenant reads what was there");
}

#[test]
fn a_disk_that_another_node_took_over_while_it_is_in_use_here_is_not_written_any_more() {
    let plans: [Doing; 2] = [
        ("create", |pool| drop(pool.create(&request("b", BLOCK, MIB)))),
        ("disown", |pool| drop(pool.disown_volume(id("a")))),
    ];
    for (name, plan) in plans {
        let (_host, disk, mut node) = carved();
        node.pool.create(&request("a", BLOCK, MIB)).expect("made");
        node.pool.work_until_idle().expect("mirrors");
        // The other node sees the same disk.
        let there = Arc::new(FakeHost::default());
        let seen = there.add_disk("fake5", "SERIAL-1", geometry());
        seen.put_content(disk.content());
        let owner = Owner { cluster: "test".to_owned(), node: "node-2".into() };
        let machine: Arc<dyn Host> = Arc::clone(&there) as Arc<dyn Host>;
        let pool = Arc::new(Pool::open(Arc::clone(&machine), owner, Workers::Caller).expect("a pool"));
        let mut other = Reconciler::new(machine, pool, Duration::ZERO, Vec::new());
        other.pass().expect("a pass");
        other.verb(&adopt("/dev/fake5", Run::Real)).expect("taken over");
        disk.put_content(seen.content());

        let before = disk.content();
        plan(&node.pool);
        assert!(disk.content() == before, "{name}: it was written over");
        node.agent.event(&"fake0".into());
        let pass = node.passes().expect("a pass");
        assert!(
            matches!(pass.snapshot.devices[0].verdict, Verdict::Foreign { .. }),
            "{:?}",
            pass.snapshot.devices[0].verdict
        );
    }
}

#[test]
fn a_disk_that_was_released_on_other_hardware_than_it_was_claimed_on_stays_unclaimed() {
    let (host, disk, mut node) = carved();
    // Another bus, another id.
    host.unplug("fake0");
    host.plug("fake0", "SERIAL-2", Arc::clone(&disk));
    node.passes().expect("a pass");
    let member = node.pool.members().remove(0);
    node.agent.give_up(&member).expect("released");
    for _ in 0..2 {
        assert!(node.passes().expect("a pass").claimed.is_empty());
        assert!(node.pool.members().is_empty(), "{:?}", node.pool.disk_views());
        drop(node);
        node =
            Node::start(&host, vec![rule(&Layout::Carved {}, ErasePolicy::Discard)], Duration::ZERO).expect("starts");
    }
}

/// A snapshot of one disk, restored onto another one by a storage system without any notice.
#[test]
fn a_disk_that_becomes_a_copy_of_another_one_while_it_is_in_use_does_not_become_a_member_with_its_volumes() {
    let host = Arc::new(FakeHost::default());
    let disks = ["fake0", "fake1"].map(|name| host.add_disk(name, name, geometry()));
    let mut node = start(&host);
    node.passes().expect("claims");
    let made = node.pool.create(&request("a", BLOCK, MIB)).expect("made").0;
    node.pool.work_until_idle().expect("mirrors");
    node.passes().expect("a pass");
    let other = node.pool.labelled_disks().into_iter().find(|member| member.id != made.disk).expect("two");
    let copy = usize::from(other.shown().raw.name == "fake1");
    disks[copy].put_content(disks[1 - copy].content());
    let before = disks[copy].content();

    let made_there = node.pool.create_on(&request("b", BLOCK, MIB), Some(&other.id));
    assert!(!matches!(made_there, Ok(Made::Volume(..))), "{made_there:?}");
    node.pool.usable(id("a")).expect("it is where it was");
    for _ in 0..3 {
        node.agent.pass().expect("a pass");
        node.pool.usable(id("a")).expect("it is where it was");
        assert!(disks[copy].content() == before, "something was written");
    }
    assert!(problem(&mut node, ["fake0", "fake1"][copy]).contains("same identity"));
    node.pool.create(&request("b", BLOCK, MIB)).expect("on the disk that is left");
    assert!(disks[copy].content() == before, "something was written");
}
