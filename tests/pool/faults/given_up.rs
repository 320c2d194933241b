//! Bare devices that a person gives up together with the tenants' data on them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use localpool::agent::{PassReport, Run, Verb};
use localpool::claim::{Filter, Rule};
use localpool::device::{
    Device, DeviceType, Reason, SetName, Verdict,
    label::{ErasePolicy, Layout, SetRef, VolumeRecord, VolumeUsage},
};
use localpool::host::{
    Extent,
    fake::{FakeHost, Fate, Platter},
};
use localpool::pool::{Attempt, PlannedVolume, Site, Standing, create};

use super::partition;
use crate::node::{BLOCK, MIB, Node, adopt, geometry, id, request, rule};

/// A set of bare disks, one of partitions, and one of whole disks whose name is that of this pool's own set.
fn start(host: &Arc<FakeHost>) -> Node {
    let bare = rule(&Layout::RawDevice {}, ErasePolicy::Discard);
    let set = |name: &str, uid: &str| SetRef::new(SetName::new("default", name), uid);
    let parts = Rule {
        set: set("parts", "2"),
        filter: Filter::any_of(vec![DeviceType::Part]),
        ..rule(&Layout::Whole {}, ErasePolicy::Discard)
    };
    Node::start(host, vec![bare, parts], Duration::ZERO).expect("starts")
}

/// A bare device that was given up while it was away, with its volume, and is back.
fn given_up(write: impl FnOnce(&FakeHost, &Platter)) -> (Arc<FakeHost>, Arc<Platter>, Node) {
    let host = Arc::new(FakeHost::default());
    host.add_disk("fake0", "serial-0", geometry());
    let mut node = start(&host);
    node.passes().expect("claims");
    node.pool.create(&request("a", BLOCK, MIB)).expect("made");
    let id = node.pool.bare_devices()[0].id.clone();
    let platter = host.unplug("fake0").expect("it was there");
    node.passes().expect("a pass");
    node.agent.verb(&Verb::ReleaseDisk { disk: id.to_string(), run: Run::Real }).expect("given up");
    host.plug("fake0", "serial-0", Arc::clone(&platter));
    write(&host, &platter);
    (host, platter, node)
}

fn verdict(pass: &PassReport, name: &str) -> Verdict {
    let is_it = |device: &&Device| device.raw.name == name;
    pass.snapshot.devices.iter().find(is_it).expect("it is there").verdict.clone()
}

#[test]
fn a_partition_on_a_bare_device_that_was_given_up_is_given_to_nobody_by_itself() {
    let guid = "6c6f6361-0000-4000-8000-000000000001";
    let (host, platter, mut node) = given_up(|host, _| drop(partition(host, "fake0", guid)));
    let before = platter.content();
    for restart in [false, true] {
        if restart {
            node = start(&host);
        }
        let pass = node.passes().expect("a pass");
        assert!(node.pool.members().is_empty(), "{:?}", node.pool.disk_views());
        let verdict = verdict(&pass, "fake0p1");
        let Verdict::Theirs(reason @ Reason::OnGivenUp { .. }) = &verdict else { panic!("{verdict:?}") };
        assert!(reason.to_string().contains("localpool disk adopt /dev/fake0"), "{reason}");
        let dry = node.agent.verb(&adopt("/dev/fake0", Run::Dry)).expect("it could be");
        assert!(dry[0].contains("let the content of /dev/fake0"), "{dry:?}");
    }
    assert!(platter.content() == before, "something was written");
    node.agent.verb(&adopt("/dev/fake0", Run::Real)).expect("adopted");
    node.passes().expect("claims");
    assert_eq!(node.pool.members().len(), 1, "a person said that it may be had");
}

#[test]
fn a_label_on_a_bare_device_that_was_given_up_makes_it_no_pool_disk() {
    // A pool disk of this node and set, written by a tenant.
    let other = Arc::new(FakeHost::default());
    let labelled = other.add_disk("fake0", "serial-0", geometry());
    let mut of_pool =
        Node::start(&other, vec![rule(&Layout::Whole {}, ErasePolicy::Discard)], Duration::ZERO).expect("starts");
    of_pool.passes().expect("claims");
    let (host, platter, mut node) = given_up(|_, platter| platter.put_content(labelled.content()));
    let before = platter.content();
    for restart in [false, true] {
        if restart {
            node = start(&host);
        }
        let pass = node.passes().expect("a pass");
        assert!(node.pool.members().is_empty(), "{:?}", node.pool.disk_views());
        assert!(
            matches!(verdict(&pass, "fake0"), Verdict::Theirs(Reason::HasTable { .. })),
            "{:?}",
            pass.snapshot.devices
        );
    }
    assert!(platter.content() == before, "something was written");
}

#[test]
fn a_bare_device_that_was_given_up_and_is_blank_is_claimed_when_it_is_adopted() {
    let (_host, _, mut node) = given_up(|_, _| {});
    node.passes().expect("a pass");
    assert!(node.pool.members().is_empty());
    node.agent.verb(&adopt("/dev/fake0", Run::Real)).expect("adopted");
    node.passes().expect("claims");
    assert_eq!(node.pool.bare_devices().len(), 1);
    assert!(node.pool.journal().given_up().is_empty());
}

#[test]
fn a_labelled_disk_that_was_released_is_not_missed_whenever_that_is_stopped() {
    for cut in 1..40 {
        let host = Arc::new(FakeHost::default());
        host.add_disk("fake0", "SERIAL-1", geometry());
        let start = || {
            let rules = vec![rule(&Layout::Carved {}, ErasePolicy::Discard)];
            Node::start(&host, rules, Duration::ZERO).expect("starts")
        };
        let mut node = start();
        node.passes().expect("claims");
        host.power.cut_after(cut);
        let released = node.agent.verb(&Verb::ReleaseDisk { disk: "/dev/fake0".to_owned(), run: Run::Real });
        let is_cut = host.power.is_off();
        host.power.restore();
        if is_cut {
            host.reboot(Fate::Whole);
            node = start();
        } else {
            released.expect("released");
        }
        node.passes().expect("a pass");
        let missed: Vec<_> =
            node.pool.disk_views().into_iter().filter(|disk| disk.standing == Standing::Missing).collect();
        assert!(missed.is_empty(), "{cut}: {missed:?}");
        if !is_cut {
            return;
        }
    }
    panic!("it was never done");
}

#[test]
fn who_waited_for_a_disk_while_it_was_released_writes_nothing_on_it() {
    let host = Arc::new(FakeHost::default());
    let disk = host.add_disk("fake0", "SERIAL-1", geometry());
    let mut node =
        Node::start(&host, vec![rule(&Layout::Carved {}, ErasePolicy::Discard)], Duration::ZERO).expect("starts");
    node.passes().expect("claims");
    let (member, labelled) = (node.pool.members().remove(0), Arc::clone(&node.pool.labelled_disks()[0]));
    node.pool.release(&member).expect("it is empty");
    let whole = Extent { start: 0, end: disk.geometry.size };
    assert!(disk.is_zero(whole));
    let record = VolumeRecord {
        name: "late".to_owned(),
        required: MIB,
        limit: None,
        parameters: BTreeMap::new(),
        usage: VolumeUsage::Block,
        fs_size: 0,
        found: false,
    };
    let (site, volume) =
        (Site::Space(Extent { start: 2 * MIB, end: 3 * MIB }), PlannedVolume { id: id("late"), record });
    let made = member.create(site, &volume, node.pool.journal(), Duration::from_secs(30));
    assert!(matches!(made, Ok(Attempt::ByOther)), "it is made elsewhere");
    assert!(labelled.change(|content| create(content, site, &volume)).is_err());
    assert!(labelled.lock().disk().is_ok_and(|disk| disk.mirror().is_err()));
    assert!(disk.is_zero(whole), "something was written");
    assert!(node.pool.journal().known(|_| true).is_empty(), "nothing is on it");
}
