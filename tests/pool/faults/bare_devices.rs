//! What others, and tenants, write on a bare device: it decides nothing, and nothing of it is written over.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use localpool::agent::{PassReport, Run, Verb};
use localpool::claim::{Filter, Rule};
use localpool::device::label::{ErasePolicy, Layout, SetRef};
use localpool::device::{DeviceType, Reason, SetName, Verdict};
use localpool::host::fake::FakeHost;
use localpool::host::{Access, Extent, FsKind, Geometry, Host};
use localpool::pool::{JOURNAL, PoolError, Standing, WantedUsage};
use uuid::Uuid;

use crate::faults::{mkfs, partition};
use crate::node::{BLOCK, MIB, Node, adopt, carved, geometry, id, problem, request, rule, standing};

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
    let pass = disputed.agent.pass().expect("a pass");
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
    free.agent.pass().expect("a pass");
    assert!(adopt(&mut free).contains("erase"));
    assert!(platter.is_zero(Extent { start: 0, end: geometry().size }));
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
    let pass = node.passes().expect("a pass");
    assert_eq!(node.pool.members().len(), 1, "{:?}", node.pool.disk_views());
    let of = |pass: &PassReport| {
        pass.snapshot.devices.iter().find(|device| device.raw.name == *name).expect("it").verdict.clone()
    };
    assert!(matches!(of(&pass), Verdict::Theirs(Reason::OnPoolVolume { .. })), "{:?}", of(&pass));
    assert_eq!(platter.mapping(1), None, "it is not left mapped when the device joins");

    let device = host.scan().expect("a scan").remove(0);
    let disk = host.open(&device, Access::ReadOnly).expect("opens");
    disk.map(1, Extent { start: MIB, end: 17 * MIB }).expect("mapped again");
    platter.set_in_use(1, true);
    assert!(matches!(node.pool.delete(id("a")), Err(PoolError::InUse { .. })), "somebody uses it");
    platter.set_in_use(1, false);
    node.pool.delete(id("a")).expect("deleted");
    disk.map(1, Extent { start: MIB, end: 17 * MIB }).expect("mapped once more");
    node.pool.work_until_idle().expect("erased");
    assert_eq!(platter.mapping(1), None, "it is not there for the next tenant");
    node.passes().expect("a pass");
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
    let pass = node.passes().expect("a pass");
    assert_eq!(standing(&node), Standing::Ready, "{:?}", pass.problems);
    assert_eq!((node.pool.labelled_disks().len(), journal(&node)), (1, 1));
    assert!(!pass.problems.contains_key("fake0"), "{:?}", pass.problems);
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
        node.passes().expect("a pass");
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
    node.passes().expect("a pass");
    assert_eq!(node.pool.usable(id("a")).expect("usable").standing, Standing::Ready);

    let platter = host.unplug("fake5").expect("it was there");
    node.passes().expect("a pass");
    node.agent.verb(&release(Run::Real)).expect("given up");
    assert!(node.pool.disk_views().is_empty() && node.pool.volumes().is_empty());
    host.plug("fake0", "serial-0", Arc::clone(&platter));
    node.passes().expect("a pass");
    assert!(node.pool.members().is_empty(), "no set claims it by itself");
    let mut data = [0; 4096];
    platter.peek(MIB, &mut data);
    assert!(data == [0x77; 4096], "its data is there");
}
