//! A disk of the pool that is here and cannot be read: it is not gone, and nothing takes its place.

use std::sync::Arc;

use localpool::agent::{Run, Verb};
use localpool::host::{
    DeviceKind, Dm, Extent,
    fake::{FakeHost, Fault, Platter, SparseBytes},
};
use localpool::pool::Standing;

use crate::node::{BLOCK, MIB, Node, adopt, carved, geometry, id, problem, request, standing, start};

/// A disk with volume `a` after a scan.
fn with_volume() -> (Arc<FakeHost>, Arc<Platter>, Node) {
    let (host, disk, mut node) = carved();
    node.pool.create(&request("a", BLOCK, MIB)).expect("made");
    node.passes().expect("a pass");
    (host, disk, node)
}

fn cannot_be_read(disk: &Platter) {
    disk.inject(Fault { what: "read", range: Extent { start: 0, end: 64 * MIB }, times: u32::MAX });
}

/// An exact copy that nobody has looked at yet.
fn copy_of(host: &FakeHost, disk: &Platter) -> (Arc<Platter>, SparseBytes) {
    let copy = host.add_disk("fake1", "SERIAL-9", geometry());
    copy.put_content(disk.content());
    let content = copy.content();
    (copy, content)
}

fn passes(node: &mut Node) {
    node.agent.event(&"fake0".into());
    node.passes().expect("a pass");
}

#[test]
fn it_is_not_called_missing_and_cannot_be_forgotten_and_comes_back_as_soon_as_it_is_read() {
    for mounted in [false, true] {
        let (_, disk, mut node) = with_volume();
        let member = node.pool.labelled_disks()[0].clone();
        disk.set_in_use(2, mounted);
        cannot_be_read(&disk);
        passes(&mut node);
        let Standing::NotReady(why) = standing(&node) else { panic!("{:?}", standing(&node)) };
        assert!(why.starts_with("could not be read: "), "{why}");
        assert!(problem(&mut node, "fake0").starts_with("could not be read: "));
        assert!(!node.pool.forget(&member.id).expect("asked"), "it is here");
        assert!(node.agent.verb(&Verb::ReleaseDisk { disk: member.id.to_string(), run: Run::Real }).is_err());
        assert!(node.pool.delete(id("a")).is_err() && node.pool.usable(id("a")).is_err());
        disk.clear_faults();
        node.passes().expect("no event tells that it can be read");
        node.pool.usable(id("a")).expect("it is back");
    }
}

#[test]
fn a_copy_does_not_take_its_place_before_it_is_adopted() {
    for (restart, mounted) in [(false, false), (false, true), (true, false), (true, true)] {
        let (host, disk, mut node) = with_volume();
        disk.set_in_use(2, mounted);
        let (copy, content) = copy_of(&host, &disk);
        cannot_be_read(&disk);
        if restart {
            node = start(&host);
        }
        passes(&mut node);
        let usable = node.pool.usable(id("a")).map(|view| view.node);
        assert!(usable.is_err(), "it is served from the copy: {usable:?}");
        assert!(copy.content() == content, "the copy was written");
        let why = problem(&mut node, "fake1");
        assert!(why.contains("the original is present, as /dev/fake0, and could not be read: "), "{why}");

        node.agent.verb(&adopt("/dev/fake1", Run::Real)).expect("a person says so");
        assert_eq!(problem(&mut node, "fake1"), "");
        assert_eq!(node.pool.usable(id("a")).expect("served").node, std::path::Path::new("/dev/fake1p2"));
        // That gave the other disk up: it is not the pool's when it can be read again.
        disk.clear_faults();
        for _ in 0..2 {
            passes(&mut node);
        }
        assert_eq!(node.pool.usable(id("a")).expect("served").node, std::path::Path::new("/dev/fake1p2"));
        node = start(&host);
        passes(&mut node);
        assert_eq!(node.pool.usable(id("a")).expect("served").node, std::path::Path::new("/dev/fake1p2"));
    }
}

#[test]
fn a_disk_that_nothing_tells_from_another_one_is_the_disk_as_long_as_it_is_there() {
    let host = Arc::new(FakeHost::default());
    let disk = host.add_disk("fake0", "", geometry());
    host.edit("fake0", |raw| (raw.serial, raw.wwid) = (None, None));
    let mut node = start(&host);
    node.passes().expect("claims");
    node.pool.create(&request("a", BLOCK, MIB)).expect("made");
    node.passes().expect("a pass");
    let (copy, content) = copy_of(&host, &disk);
    cannot_be_read(&disk);
    passes(&mut node);
    assert!(node.pool.usable(id("a")).is_err() && copy.content() == content);
}

#[test]
fn nor_is_it_replaced_by_a_copy_after_a_restart() {
    let host = Arc::new(FakeHost::default());
    let disk = host.add_disk("fake0", "", geometry());
    host.edit("fake0", |raw| (raw.serial, raw.wwid) = (None, None));
    let mut node = start(&host);
    node.passes().expect("claims");
    node.pool.create(&request("a", BLOCK, MIB)).expect("made");
    node.passes().expect("a pass");
    let member = node.pool.labelled_disks()[0].id.clone();
    let (copy, content) = copy_of(&host, &disk);
    cannot_be_read(&disk);
    drop(node);
    let mut node = start(&host);
    node.passes().expect("a pass");
    assert!(node.pool.usable(id("a")).is_err(), "served from the copy");
    assert!(copy.content() == content, "the copy was written");
    assert!(!node.pool.forget(&member).expect("asked"), "it is here");
}

#[test]
fn a_disk_that_was_moved_out_of_a_dock_is_used_though_the_empty_dock_is_still_there() {
    let (host, _, mut node) = with_volume();
    let platter = host.unplug("fake0").expect("it was there");
    host.plug("fake1", "SERIAL-2", platter);
    host.add_disk("fake0", "SERIAL-1", geometry());
    host.edit("fake0", |raw| (raw.size, raw.transport) = (0, Some("usb".to_owned())));
    node.passes().expect("a pass");
    assert_eq!(problem(&mut node, "fake1"), "");
    node.pool.usable(id("a")).expect("it is the same disk");
}

#[test]
fn a_mirror_that_became_the_disk_is_used_though_the_old_disk_is_a_leg_of_it_and_fails() {
    let (host, disk, mut node) = with_volume();
    host.add_disk("dm-0", "", geometry()).put_content(disk.content());
    host.edit("dm-0", |raw| (raw.kind, raw.serial) = (volume_group(), None));
    node.passes().expect("sees both");
    host.unplug("fake0");
    node.passes().expect("a pass");
    node.agent.verb(&adopt("/dev/dm-0", Run::Real)).expect("adopted");
    node.passes().expect("a pass");
    let leg = host.add_disk("fake0", "SERIAL-1", geometry());
    host.edit("fake0", |raw| raw.holders = vec!["dm-0".into()]);
    host.edit("dm-0", |raw| raw.slaves = vec!["fake0".into()]);
    cannot_be_read(&leg);
    passes(&mut node);
    node.pool.usable(id("a")).expect("the mirror has it");
}

#[test]
fn after_a_restart_or_a_replug_it_is_known_by_its_hardware_and_is_not_missing() {
    for restart in [false, true] {
        let (host, disk, mut node) = with_volume();
        let member = node.pool.labelled_disks()[0].id.clone();
        if restart {
            cannot_be_read(&disk);
            node = start(&host);
        } else {
            host.unplug("fake0");
            node.passes().expect("a pass");
            assert_eq!(standing(&node), Standing::Missing);
            cannot_be_read(&disk);
            host.plug("fake5", "SERIAL-1", Arc::clone(&disk));
        }
        node.passes().expect("a pass");
        let view = node.pool.disk_views().remove(0);
        let Standing::NotReady(why) = &view.standing else { panic!("{restart}: {view:?}") };
        assert!(why.contains("could not be read"), "{why}");
        assert!(!node.pool.forget(&member).expect("asked"), "it is here");
        let released = node.agent.verb(&Verb::ReleaseDisk { disk: member.to_string(), run: Run::Real });
        let why = released.expect_err("it is here").to_string();
        assert!(why.contains("could not be read") && why.contains("unplug it"), "{why}");
        let why = node.pool.delete(id("a")).expect_err("it is on that disk").to_string();
        assert!(why.contains("could not be read"), "{why}");
        disk.clear_faults();
        node.passes().expect("a pass");
        node.pool.usable(id("a")).expect("it is back");
    }
}

#[test]
fn it_is_forgotten_once_it_is_unplugged() {
    let (host, disk, mut node) = with_volume();
    let member = node.pool.labelled_disks()[0].id.clone();
    cannot_be_read(&disk);
    passes(&mut node);
    host.unplug("fake0");
    node.passes().expect("a pass");
    assert_eq!(standing(&node), Standing::Missing);
    node.agent.verb(&Verb::ReleaseDisk { disk: member.to_string(), run: Run::Real }).expect("it is away");
    assert!(node.pool.disk_views().is_empty());
}

/// A device that the host has built on a tenant's volume, and that shows what the tenant wrote there.
fn tenants(host: &FakeHost, kind: DeviceKind) -> (Arc<Platter>, SparseBytes) {
    let (_, forged, _) = carved();
    let built = host.add_disk("dm-0", "", geometry());
    built.put_content(forged.content());
    host.edit("dm-0", |raw| {
        raw.kind = kind;
        raw.serial = None;
        raw.slaves = vec!["fake0".into()];
    });
    host.edit("fake0", |raw| raw.holders = vec!["dm-0".into()]);
    let content = built.content();
    (built, content)
}

fn volume_group() -> DeviceKind {
    DeviceKind::Dm(Dm { name: "vg-lv".to_owned(), uuid: "LVM-abc".to_owned(), suspended: false })
}

#[test]
fn a_label_that_a_tenant_wrote_into_what_he_built_on_a_volume_makes_no_pool_disk() {
    for restart in [false, true] {
        let (host, disk, mut node) = with_volume();
        let (built, content) = tenants(&host, volume_group());
        node.passes().expect("a pass");
        assert_eq!(node.pool.labelled_disks().len(), 1, "it is a tenant's");
        cannot_be_read(&disk);
        if restart {
            node = start(&host);
        }
        passes(&mut node);
        let made = node.pool.create(&request("b", BLOCK, MIB)).map(|(view, _)| view.node);
        assert!(made.is_err(), "in another tenant's volume: {made:?}");
        assert!(node.pool.labelled_disks().iter().all(|disk| disk.shown().raw.name != "dm-0"));
        assert!(built.content() == content, "something was written");
    }
}

#[test]
fn what_is_built_on_a_disk_that_was_never_ours_is_used_by_its_own_label_where_it_is_multipath() {
    let host = Arc::new(FakeHost::default());
    let below = host.add_disk("fake0", "SERIAL-1", geometry());
    tenants(&host, DeviceKind::Dm(Dm { uuid: "mpath-1".to_owned(), name: "m".to_owned(), suspended: false }));
    cannot_be_read(&below);
    let mut node = start(&host);
    node.passes().expect("a pass");
    assert_eq!(node.pool.labelled_disks().len(), 1, "a path that fails is what multipath is for");
}
