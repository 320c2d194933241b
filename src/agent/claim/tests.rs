use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use super::*;
use crate::agent::{
    reconciler::PassReport,
    verb::{Run, Verb},
};
use crate::claim::{Blankness, NoAnswer, Promise, sample};
use crate::device::{Owner, VolumeId, label::Layout};
use crate::host::{
    Extent, ForeignLink, Geometry,
    fake::{FakeHost, Fault, Platter},
};
use crate::pool::{CreateRequest, ErrandKey, Pool, Selector, Standing, WantedUsage, Workers};

/// Two blank disks, and a set that takes one.
fn machine() -> (Arc<FakeHost>, Reconciler) {
    let host = Arc::new(FakeHost::default());
    let geometry = Geometry { size: 64 << 20, sector: 512, offloads_zeroes: true };
    for name in ["fake0", "fake1"] {
        host.add_disk(name, name, geometry);
    }
    let owner = Owner { cluster: "c".to_owned(), node: "n".into() };
    let pool = Arc::new(Pool::open(host.clone(), owner, Workers::Caller).expect("a pool"));
    let rule = Rule { max_devices: Some(1), ..sample::rule("set") };
    let agent = Reconciler::new(host.clone(), pool, Duration::ZERO, vec![rule]);
    (host, agent)
}

fn passes(agent: &mut Reconciler, count: usize) -> (Vec<KernelName>, PassReport) {
    let passes: Vec<PassReport> = (0..count).map(|_| agent.pass().expect("a pass")).collect();
    let claimed = passes.iter().flat_map(|pass| pass.claimed.clone()).collect();
    (claimed, passes.into_iter().next_back().expect("at least one"))
}

fn promise() -> Promise {
    Promise { volume: "pv-1".into(), provisioner: None, path: "/dev/fake0".into(), device: None }
}

#[test]
fn a_disk_that_another_persistent_volume_promises_is_left_and_the_next_one_is_taken_instead() {
    let (host, agent) = machine();
    let mut agent = agent.asking_promises(Box::new(|| Ok(vec![promise()])));
    let (claimed, last) = passes(&mut agent, 4);
    assert_eq!(claimed, ["fake1"]);
    assert_eq!(host.platter("fake0").expect("a disk").write_count(), 0);
    assert!(last.ripe_in.is_none(), "the set is full: nothing is asked any more");
}

#[test]
fn a_promise_is_told_with_its_disk_and_asked_for_again_until_it_is_over() {
    let (host, agent) = machine();
    host.unplug("fake1");
    let promises = Arc::new(Mutex::new(vec![promise()]));
    let shared = Arc::clone(&promises);
    let mut agent = agent.asking_promises(Box::new(move || Ok(shared.lock().expect("no panic").clone())));
    let (claimed, last) = passes(&mut agent, 3);
    let message = "the PersistentVolume pv-1 promises it";
    assert!(claimed.is_empty());
    assert!(matches!(&last.snapshot.devices[0].verdict, Verdict::Theirs(reason) if reason.to_string() == message));
    assert_eq!(last.problems["fake0"], message);
    assert!(last.ripe_in.is_some_and(|time| time > Duration::ZERO), "no event announces when it is over");
    promises.lock().expect("no panic").clear();
    assert_eq!(passes(&mut agent, 1).0, ["fake0"]);
}

#[test]
fn nothing_is_claimed_while_promises_cannot_be_told_and_nothing_is_asked_without_a_claim() {
    let (host, agent) = machine();
    let asked = Arc::new(Mutex::new(0));
    let count = Arc::clone(&asked);
    let mut agent = agent.asking_promises(Box::new(move || {
        *count.lock().expect("no panic") += 1;
        Err(NoAnswer::Failed("the API server is away".into()))
    }));
    let (claimed, last) = passes(&mut agent, 3);
    assert!(claimed.is_empty());
    let message = "nothing is claimed while it is not known which devices other PersistentVolumes promise: the API \
                 server is away";
    assert_eq!(last.problems.values().next().map(String::as_str), Some(message));
    assert!(["fake0", "fake1"].iter().all(|name| host.platter(name).expect("a disk").write_count() == 0));
    let before = *asked.lock().expect("no panic");
    agent.set_rules(Vec::new());
    passes(&mut agent, 3);
    assert_eq!((before, *asked.lock().expect("no panic")), (2, 2), "the first pass only saw the disks");
}

#[test]
fn an_api_server_that_is_away_is_asked_again_by_the_clock_and_that_of_another_cluster_is_not() {
    let away = || NoAnswer::Failed("it is away".into());
    let other = || NoAnswer::OtherCluster("it is that of another cluster".into());
    let cases: [(fn() -> NoAnswer, _); 2] = [(away, Some(Duration::from_secs(1))), (other, None)];
    for (why, again) in cases {
        let (_host, agent) = machine();
        let mut agent = agent.asking_promises(Box::new(move || Err(why())));
        let (claimed, last) = passes(&mut agent, 2);
        assert_eq!((claimed.len(), last.ripe_in), (0, again), "{:?}", last.problems);
    }
}

#[test]
fn an_api_server_that_takes_its_time_keeps_no_pass_waiting_and_its_answer_makes_one_due() {
    let (host, agent) = machine();
    let (answers, given) = std::sync::mpsc::channel::<Vec<Promise>>();
    let mut agent = agent.asking_promises(Box::new(move || given.recv().map_err(|gone| NoAnswer::Failed(gone.into()))));
    let (due, called) = std::sync::mpsc::channel();
    agent.pool().on_nudge(move || {
        let _ = due.send(());
    });
    let (claimed, last) = passes(&mut agent, 3);
    assert!(claimed.is_empty());
    let text = "nothing is claimed while it is not known which devices have the volumes of this node: the API server \
                 or localpool's controller has not answered yet";
    assert_eq!(last.problems.values().next().map(String::as_str), Some(text));
    assert!(host.platter("fake0").expect("a disk").write_count() == 0);
    answers.send(vec![promise()]).expect("somebody asks");
    called.recv().expect("a pass is due");
    assert_eq!(passes(&mut agent, 1).0, ["fake1"]);
}

/// One blank disk that the next pass claims.
fn ripe() -> (Arc<FakeHost>, Reconciler) {
    let (host, mut agent) = machine();
    host.unplug("fake1");
    agent.pass().expect("a pass");
    (host, agent)
}

#[test]
fn a_claim_that_another_program_stood_in_the_way_of_is_tried_again_by_the_clock() {
    for (at, hold) in Platter::HOLDS.into_iter().enumerate() {
        let (host, mut agent) = ripe();
        host.before_the_next_claim(move |disk| hold(disk, true));
        let (claimed, last) = passes(&mut agent, 1);
        assert_eq!((claimed.len(), last.ripe_in), (0, Some(Duration::from_secs(1))), "{at}: {:?}", last.problems);
        hold(&host.platter("fake0").expect("a disk"), false);
        assert_eq!(passes(&mut agent, 1).0, ["fake0"], "{at}");
    }
}

#[test]
fn a_claim_of_a_disk_that_could_not_be_read_at_the_last_moment_is_tried_again_by_the_clock() {
    let (host, mut agent) = ripe();
    // Read once by the scan and once by the confirmation; the probe right before the first write fails.
    host.before_the_next_claim(|disk| disk.lose(Extent { start: 0, end: 512 }));
    let (claimed, last) = passes(&mut agent, 1);
    assert_eq!((claimed.len(), last.ripe_in), (0, Some(Duration::from_secs(1))), "{:?}", last.problems);
    assert!(last.problems["fake0"].contains("Input/output error"), "{:?}", last.problems);
    host.platter("fake0").expect("a disk").poke(0, &[0; 512]);
    assert_eq!(passes(&mut agent, 2).0, ["fake0"]);
}

#[test]
fn a_disk_that_is_not_blank_any_more_is_looked_at_once_more_and_then_waits_for_an_event() {
    let (host, mut agent) = ripe();
    host.before_the_next_claim(|disk| disk.poke(510, &[0x55, 0xaa]));
    let (claimed, last) = passes(&mut agent, 1);
    assert_eq!((claimed.len(), last.ripe_in), (0, Some(Duration::from_secs(1))), "{:?}", last.problems);
    assert_eq!(last.problems["fake0"], "it is not blank any more");
    assert_eq!(passes(&mut agent, 1).1.ripe_in, None, "nothing but an event would change it");
    assert_eq!(host.platter("fake0").expect("a disk").write_count(), 0);
}

#[test]
fn the_next_disk_of_a_set_is_claimed_without_an_event_when_the_first_is_not_blank_any_more() {
    let (host, mut agent) = machine();
    agent.pass().expect("a pass");
    host.before_the_next_claim(|disk| disk.poke(510, &[0x55, 0xaa]));
    let mut claimed = Vec::new();
    for _ in 0..4 {
        let pass = agent.pass().expect("a pass");
        claimed.extend(pass.claimed);
        if pass.ripe_in.is_none() {
            break;
        }
    }
    assert_eq!(claimed, ["fake1"]);
}

#[test]
fn a_link_to_a_disk_of_ours_changes_nothing_and_one_to_a_blank_disk_keeps_it() {
    let (host, mut agent) = machine();
    host.edit("fake0", |raw| raw.offered = ForeignLink::By("/mnt/disks/a".into()));
    assert_eq!(passes(&mut agent, 3).0, ["fake1"]);
    host.edit("fake1", |raw| raw.offered = ForeignLink::By("/mnt/disks/b".into()));
    let (_, last) = passes(&mut agent, 2);
    assert_eq!(last.snapshot.devices[1].verdict, Verdict::Ours);
    let Verdict::Theirs(reason) = &last.snapshot.devices[0].verdict else { panic!("{:?}", last.snapshot.devices[0]) };
    assert_eq!(reason.to_string(), "fake0 is offered by a link: /mnt/disks/a");
}

const GEOMETRY: Geometry = Geometry { size: 64 << 20, sector: 512, offloads_zeroes: true };

/// The agent starts, with what its state directory remembers.
fn start(host: &Arc<FakeHost>, rules: Vec<Rule>) -> Reconciler {
    let owner = Owner { cluster: "c".to_owned(), node: "n".into() };
    let pool = Arc::new(Pool::open(host.clone(), owner, Workers::Caller).expect("a pool"));
    Reconciler::new(host.clone(), pool, Duration::ZERO, rules)
}

fn volume(agent: &Reconciler, id: u128) -> Result<(), String> {
    let request = CreateRequest {
        id: VolumeId::from_u128(id),
        name: format!("volume-{id}"),
        required: 1 << 20,
        limit: None,
        usage: WantedUsage::Block,
        parameters: BTreeMap::new(),
        selector: Selector::default(),
    };
    agent.pool().create(&request).map(drop).map_err(|error| error.to_string())
}

#[test]
fn a_disk_that_is_away_when_the_agent_starts_keeps_its_place_until_it_is_given_up() {
    let rule = || Rule { max_devices: Some(1), ..sample::rule("set") };
    let host = Arc::new(FakeHost::default());
    host.add_disk("fake0", "A", GEOMETRY);
    let mut agent = start(&host, vec![rule()]);
    assert_eq!(passes(&mut agent, 3).0, ["fake0"]);
    let id = agent.pool().labelled_disks()[0].id.clone();
    let platter = host.unplug("fake0").expect("it was there");
    host.add_disk("fake1", "B", GEOMETRY);

    let mut agent = start(&host, vec![rule()]);
    let (claimed, last) = passes(&mut agent, 3);
    assert_eq!((claimed, agent.pool().labelled_disks().len()), (vec![], 0));
    assert_eq!(last.outcomes[0].rejected[0].1.to_string(), "the set has reached its maxDeviceCount of 1");
    let views = agent.pool().disk_views();
    assert_eq!((views.len(), &views[0].id, &views[0].standing), (1, &id, &Standing::Missing));
    assert_eq!((views[0].path.to_str(), views[0].size), (Some("/dev/fake0"), GEOMETRY.size));

    // It comes back under another name, and is one disk, not two.
    host.plug("fake2", "A", Arc::clone(&platter));
    passes(&mut agent, 1);
    let views = agent.pool().disk_views();
    assert_eq!((views.len(), &views[0].standing, views[0].path.to_str()), (1, &Standing::Ready, Some("/dev/fake2")));
    host.unplug("fake2");

    let release = |disk: &str, run| Verb::ReleaseDisk { disk: disk.to_owned(), run };
    let mut agent = start(&host, vec![rule()]);
    passes(&mut agent, 1);
    assert!(agent.verb(&release("wwid-none", Run::Real)).is_err());
    let messages = agent.verb(&release(id.as_str(), Run::Dry)).expect("it is missing");
    assert!(messages[0].starts_with("would give up") && messages[0].contains("/dev/fake2"), "{messages:?}");
    assert_eq!(agent.pool().disk_views().len(), 1);
    agent.verb(&release(id.as_str(), Run::Real)).expect("it is missing");
    assert_eq!(agent.pool().disk_views(), []);
    assert_eq!(passes(&mut agent, 2).0, ["fake1"]);
    // Given up was only that it is missed: what is on it still is ours.
    host.plug("fake0", "A", platter);
    passes(&mut agent, 1);
    assert_eq!(agent.pool().labelled_disks().len(), 2);
}

#[test]
fn a_disk_that_was_released_is_not_missed_after_the_next_start() {
    let host = Arc::new(FakeHost::default());
    host.add_disk("fake0", "A", GEOMETRY);
    let mut agent = start(&host, vec![sample::rule("set")]);
    passes(&mut agent, 3);
    agent.verb(&Verb::ReleaseDisk { disk: "/dev/fake0".to_owned(), run: Run::Real }).expect("it is empty");
    assert_eq!(start(&host, Vec::new()).pool().disk_views(), []);
}

/// A firmware or a hypervisor gives a disk another serial: nothing on it says that it is a volume of the pool.
#[test]
fn a_bare_device_with_a_volume_that_changes_its_identity_is_taken_by_no_set() {
    let bare = || Rule { layout: Layout::RawDevice {}, max_devices: Some(1), ..sample::rule("bare") };
    let other = || Rule { layout: Layout::Carved {}, created: 1, ..sample::rule("other") };
    let host = Arc::new(FakeHost::default());
    let platter: Arc<Platter> = host.add_disk("fake0", "A", GEOMETRY);
    let mut agent = start(&host, vec![bare()]);
    passes(&mut agent, 3);
    volume(&agent, 1).expect("made");
    platter.poke(30 << 20, b"what a tenant wrote, and nobody recognises");
    let before = platter.write_count();
    host.unplug("fake0");
    host.plug("fake0", "A of another firmware", Arc::clone(&platter));
    for mut agent in [agent, start(&host, Vec::new())] {
        agent.set_rules(vec![bare(), other()]);
        let (claimed, last) = passes(&mut agent, 4);
        assert_eq!((claimed, platter.write_count()), (vec![], before));
        let messages: Vec<String> = last.outcomes.iter().map(|outcome| outcome.rejected[0].1.to_string()).collect();
        assert!(messages[1].contains("it holds unrecognised data"), "{messages:?}");
    }
    // Another disk of the size is no suspect once it was read, and one of another size is none at all.
    host.add_disk("fake1", "B", GEOMETRY);
    host.add_disk("fake2", "C", Geometry { size: 65 << 20, ..GEOMETRY }).poke(30 << 20, b"dust");
    let mut agent = start(&host, vec![bare(), other()]);
    let mut claimed = passes(&mut agent, 6).0;
    claimed.sort();
    assert_eq!(claimed, ["fake1", "fake2"]);
}

#[test]
fn a_set_that_is_made_again_has_its_bare_devices_again_and_counts_them() {
    let rule = |uid: &str, layout| {
        let mut rule = Rule { layout, max_devices: Some(1), ..sample::rule("bare") };
        rule.set.uid = uid.into();
        rule
    };
    // A set of whole disks has bare devices where it selects partitions or mapped devices.
    for again in [Layout::RawDevice {}, Layout::Whole {}] {
        let host = Arc::new(FakeHost::default());
        host.add_disk("fake0", "A", GEOMETRY);
        let mut agent = start(&host, vec![rule("one", Layout::RawDevice {})]);
        assert_eq!(passes(&mut agent, 3).0, ["fake0"]);
        agent.set_rules(vec![rule("two", again)]);
        host.add_disk("fake1", "B", GEOMETRY);
        assert_eq!(passes(&mut agent, 4).0, [""; 0]);
        assert_eq!(agent.pool().journal().bare_claims()[0].1.set.uid, "two");
        volume(&agent, 1).expect("it offers its device");
    }
}

#[test]
fn a_set_that_is_made_again_while_a_disk_of_it_is_away_counts_that_disk() {
    let rule = |uid: &str, layout: &Layout| {
        let mut rule = Rule { layout: layout.clone(), max_devices: Some(1), ..sample::rule("set") };
        rule.set.uid = uid.into();
        rule
    };
    for (layout, restart) in [Layout::Carved {}, Layout::RawDevice {}].iter().flat_map(|l| [(l, false), (l, true)]) {
        let host = Arc::new(FakeHost::default());
        host.add_disk("fake0", "A", GEOMETRY);
        let mut agent = start(&host, vec![rule("one", layout)]);
        assert_eq!(passes(&mut agent, 3).0, ["fake0"]);
        let platter = host.unplug("fake0").expect("it was there");
        passes(&mut agent, 1);
        host.add_disk("fake1", "B", GEOMETRY);
        let again = vec![rule("two", layout)];
        if restart {
            agent = start(&host, again);
        } else {
            agent.set_rules(again);
        }
        let (claimed, last) = passes(&mut agent, 4);
        assert_eq!(claimed, [""; 0], "{layout:?} {restart}");
        assert_eq!(last.outcomes[0].rejected[0].1.to_string(), "the set has reached its maxDeviceCount of 1");
        host.plug("fake0", "A", platter);
        passes(&mut agent, 2);
        volume(&agent, 1).expect("it offers its disk");
        // A set of that name and another layout has none of them.
        agent.set_rules(vec![rule("three", &Layout::Slots { size: None, count: Some(2) })]);
        assert_eq!(passes(&mut agent, 4).0, ["fake1"], "{layout:?} {restart}");
    }
}

#[test]
fn the_first_disks_of_a_set_are_claimed_together_also_where_they_must_be_read_first() {
    let host = Arc::new(FakeHost::default());
    for name in ["fake0", "fake1", "fake2"] {
        host.add_disk(name, name, GEOMETRY);
    }
    // Where only who wants zeros reads.
    let range = Extent { start: 40 << 20, end: 41 << 20 };
    host.platter("fake2").expect("a disk").inject(Fault { what: "read", range, times: u32::MAX });
    let rule = Rule { min_devices: 3, blankness: Blankness::Zeros, ..sample::rule("set") };
    let mut agent = start(&host, vec![rule.clone()]);
    assert_eq!(passes(&mut agent, 4).0, [""; 0]);
    agent.set_rules(vec![Rule { min_devices: 2, ..rule }]);
    assert_eq!(passes(&mut agent, 4).0, ["fake0", "fake1"]);
}

#[test]
fn a_blank_disk_that_a_program_writes_to_is_not_claimed_before_that_ends() {
    for layout in [Layout::Whole {}, Layout::RawDevice {}] {
        let (host, mut agent) = machine();
        host.unplug("fake1");
        agent.rules = vec![Arc::new(Rule { layout, ..sample::rule("set") })];
        let disk = host.platter("fake0").expect("a disk");
        // A test of a new disk has it open for hours, and writes patterns that nothing recognises.
        disk.set_opened(true);
        let (claimed, last) = passes(&mut agent, 4);
        assert!(claimed.is_empty() && agent.pool.members().is_empty(), "{claimed:?}");
        assert_eq!(disk.write_count(), 0);
        assert!(last.problems["fake0"].contains("open in"), "{:?}", last.problems);
        assert!(last.ripe_in.is_some_and(|time| time > Duration::ZERO), "no event announces when it is over");
        disk.set_opened(false);
        assert_eq!(passes(&mut agent, 3).0, ["fake0"]);
    }
}

#[test]
fn a_disk_that_hangs_before_its_claim_is_written_is_not_claimed_for_a_set_that_is_gone_when_it_answers() {
    for layout in [Layout::Whole {}, Layout::RawDevice {}] {
        let (host, mut agent) = machine();
        host.unplug("fake1");
        let rule = Rule { layout, ..sample::rule("set") };
        agent.set_rules(vec![rule.clone()]);
        agent.errands.wait_at_most(Duration::from_secs(3));
        host.before_the_next_claim(|platter| platter.set_hangs_at(Some("probe")));
        let mut last = passes(&mut agent, 1).1;
        while !agent.errands.is_waiting_for(&(&last.snapshot.devices[0].id).into()) {
            last = passes(&mut agent, 1).1;
        }
        agent.set_rules(Vec::new());
        let (disk, id) = (host.platter("fake0").expect("a disk"), ErrandKey::from(&last.snapshot.devices[0].id));
        disk.set_hangs(false);
        while agent.errands.is_waiting_for(&id) {
            std::thread::yield_now();
        }
        assert!(disk.write_count() == 0 && agent.pool.members().is_empty(), "{:?}", agent.pool.disk_views());
        agent.set_rules(vec![rule]);
        assert_eq!(passes(&mut agent, 4).0, ["fake0"]);
    }
}
