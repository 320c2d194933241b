//! Passes over a machine on which one disk hangs: the others are served, and it is when it answers.

use std::sync::mpsc;
use std::thread;

use super::*;
use crate::claim::sample;
use crate::device::{Owner, VolumeId, label::Layout};
use crate::host::{
    FsKind, Geometry,
    fake::{FakeHost, Platter},
};
use crate::pool::{CreateRequest, Selector, Standing, WantedUsage, Workers};

/// Long enough for what does not hang, on a busy machine: half of it, as long as something else hangs.
const BOUND: Duration = Duration::from_secs(3);
/// Far more than anything here takes on a busy machine.
const AT_MOST: Duration = Duration::from_secs(60);
const MIB: u64 = 1 << 20;

fn start(host: &Arc<FakeHost>, rule: &Rule) -> Reconciler {
    let owner = Owner { cluster: "c".to_owned(), node: "n".into() };
    let pool = Arc::new(Pool::open(host.clone(), owner, Workers::Caller).expect("a pool"));
    let mut agent = Reconciler::new(host.clone(), pool, Duration::ZERO, vec![rule.clone()]);
    agent.memory.discovery = agent.memory.discovery.waiting_at_most(BOUND);
    agent.errands.wait_at_most(BOUND);
    agent
}

fn disks(host: &FakeHost) -> [Arc<Platter>; 2] {
    let geometry = Geometry { size: 64 * MIB, sector: 512, offloads_zeroes: true };
    ["fake0", "fake1"].map(|name| host.add_disk(name, name, geometry))
}

/// Passes until something is so; what is not in time never is.
fn until<T>(agent: &mut Reconciler, what: impl Fn(&Reconciler, &PassReport) -> Option<T>) -> T {
    let until = std::time::Instant::now() + AT_MOST;
    loop {
        let pass = agent.pass().expect("a pass");
        if let Some(found) = what(agent, &pass) {
            return found;
        }
        assert!(std::time::Instant::now() < until, "{:?}, {:?}", pass.problems, agent.pool.disk_views());
    }
}

fn ready(agent: &Reconciler) -> usize {
    agent.pool.disk_views().iter().filter(|disk| disk.standing == Standing::Ready).count()
}

/// A pass; one that does not end hangs.
fn pass(mut agent: Reconciler) -> (Reconciler, PassReport) {
    let (reply, answer) = mpsc::channel();
    thread::spawn(move || {
        let pass = agent.pass().expect("a pass");
        reply.send((agent, pass)).is_ok()
    });
    answer.recv_timeout(AT_MOST).expect("a pass waits for a disk that hangs")
}

#[test]
fn a_disk_of_the_pool_that_hangs_while_it_is_opened_keeps_no_start_waiting_and_joins_when_it_answers() {
    let host = Arc::new(FakeHost::default());
    let [sick, _well] = disks(&host);
    let rule = sample::rule("set");
    until(&mut start(&host, &rule), |agent, _| (ready(agent) == 2).then_some(()));
    // A table that must be mended: the scan only reads, and the opening writes.
    sick.poke(64 * MIB - 512, &[0; 512]);
    sick.set_hangs_at(Some("write"));

    let mut agent = start(&host, &rule);
    for _ in 0..2 {
        let report;
        (agent, report) = pass(agent);
        assert_eq!(ready(&agent), 1, "the other one serves");
        assert!(report.problems["fake0"].contains("more than 3s"), "{:?}", report.problems);
        assert!(report.ripe_in.is_some(), "no event announces when it answers");
    }
    sick.set_hangs(false);
    until(&mut agent, |agent, _| (ready(agent) == 2).then_some(()));
    assert_eq!(agent.pool.disk_views().len(), 2);
}

#[test]
fn a_bare_device_of_the_pool_that_hangs_keeps_no_start_waiting_and_joins_when_it_answers() {
    for what in ["all", "read"] {
        let host = Arc::new(FakeHost::default());
        let [sick, _well] = disks(&host);
        let rule = Rule { layout: Layout::RawDevice {}, ..sample::rule("set") };
        until(&mut start(&host, &rule), |agent, _| (ready(agent) == 2).then_some(()));
        sick.set_hangs_at(Some(what));

        let (mut agent, report) = pass(start(&host, &rule));
        assert_eq!(ready(&agent), 1, "{what}: the other one serves");
        assert!(report.problems.contains_key("fake0"), "{what}: {:?}", report.problems);
        assert!(report.ripe_in.is_some(), "{what}: no event announces when it answers");
        sick.set_hangs(false);
        until(&mut agent, |agent, _| (ready(agent) == 2).then_some(()));
    }
}

#[test]
fn a_disk_that_hangs_while_it_is_claimed_keeps_its_place_in_the_set_and_no_other_from_being_claimed() {
    for (most, others) in [(None, 1), (Some(1), 0)] {
        let host = Arc::new(FakeHost::default());
        let [sick, _well] = disks(&host);
        let mut agent = start(&host, &Rule { max_devices: most, ..sample::rule("set") });
        sick.set_hangs_at(Some("write"));
        for _ in 0..4 {
            agent = pass(agent).0;
        }
        assert_eq!(ready(&agent), others, "{most:?} at most");
        sick.set_hangs(false);
        until(&mut agent, |agent, _| (ready(agent) == others + 1).then_some(()));
        assert_eq!(agent.pool.disk_views().len(), others + 1, "{most:?} at most");
    }
}

#[test]
fn an_operation_that_hangs_under_a_disks_lock_holds_up_no_pass_even_where_the_disk_has_left() {
    let host = Arc::new(FakeHost::default());
    let [sick, _well] = disks(&host);
    let rule = sample::rule("set");
    let mut agent = start(&host, &rule);
    until(&mut agent, |agent, _| (ready(agent) == 2).then_some(()));
    let pool = Arc::clone(&agent.pool);
    let request = CreateRequest {
        id: VolumeId::from_u128(1),
        name: "one".to_owned(),
        required: 16 * MIB,
        limit: None,
        usage: WantedUsage::Mount(Some(FsKind::Ext4)),
        parameters: BTreeMap::new(),
        selector: Selector::default(),
    };
    let (view, _) = pool.create(&request).expect("room");
    let name = view.node.to_string_lossy().contains("fake0");
    let (name, disk) = if name { ("fake0", sick) } else { ("fake1", host.platter("fake1").expect("it is here")) };
    disk.set_hangs_at(Some("write"));
    let deleting = thread::spawn(move || pool.delete(request.id));
    disk.until_somebody_waits();

    agent.set_rules(vec![rule.clone()]);
    let (again, report) = pass(agent);
    assert!(report.problems[name].contains("another operation on it"), "{:?}", report.problems);
    host.unplug(name);
    let (mut agent, report) = pass(again);
    assert!(report.ripe_in.is_some(), "it is to leave when the operation has ended");
    disk.set_hangs(false);
    deleting.join().expect("no bug").expect("it answers again");
    until(&mut agent, |agent, _| (ready(agent) == 1).then_some(()));
}

#[test]
fn a_disk_that_is_unplugged_while_it_hangs_leaves_all_time_to_the_others_and_its_claim_is_not_begun_twice() {
    let host = Arc::new(FakeHost::default());
    let [sick, _well] = disks(&host);
    let mut agent = start(&host, &sample::rule("set"));
    sick.set_hangs_at(Some("write"));
    let raw = host.scan().expect("a scan").remove(0);
    let id = ErrandKey::Disk(crate::device::id::hardware_id(&raw, None).into());
    while !agent.errands.is_waiting_for(&id) {
        agent = pass(agent).0;
    }
    host.unplug("fake0");
    agent = pass(agent).0;
    assert_eq!(agent.errands.timeout(), BOUND);
    assert!(agent.errands.is_waiting_for(&id), "it is under way, should the disk come back");
    sick.set_hangs(false);
}
