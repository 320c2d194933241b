//! A state directory that was lost or restored from a backup, on a node whose volumes are still known elsewhere.

mod fake_node;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use fake_node::{MIB, Node, id, request, rule};
use localpool::agent::{Run, Verb, inventory};
use localpool::claim::{NoAnswer, Reclaim, Rule};
use localpool::device::Verdict;
use localpool::device::label::{ErasePolicy, Layout};
use localpool::host::fake::{FakeHost, Platter};
use localpool::host::{FsKind, Geometry, Host as _, chain};
use localpool::pool::{AskVolumes, Change, Doubt, JOURNAL, LostVolume, PoolError, ReportedVolume, WantedUsage};

const BLOCK: WantedUsage = WantedUsage::Block;

type Told = Result<Vec<ReportedVolume>, String>;

fn geometry() -> Geometry {
    Geometry { size: 64 * MIB, sector: 512, offloads_zeroes: true }
}

/// Gives this answer each time.
fn telling(told: Told) -> AskVolumes {
    Box::new(move || told.clone().map_err(|why| NoAnswer::Failed(why.into())))
}

/// A node that gets a list of its volumes.
fn start(host: &Arc<FakeHost>, layout: &Layout, told: &Told) -> Node {
    let node = Node::start(host, vec![rule(layout, ErasePolicy::Discard)], Duration::ZERO).expect("starts");
    let Node { pool, agent } = node;
    Node { pool, agent: agent.asking_for_own(telling(told.clone())) }
}

/// A bare device with a volume, and the report of its object.
fn pool() -> (Arc<FakeHost>, Arc<Platter>, Told) {
    let host = Arc::new(FakeHost::default());
    let device = host.add_disk("fake0", "SERIAL-0", geometry());
    let mut node = start(&host, &Layout::RawDevice {}, &Ok(Vec::new()));
    node.passes().expect("claims");
    node.pool.create(&request("a", BLOCK, MIB)).expect("made");
    let told = told(&node, "a");
    (host, device, told)
}

/// The report of a volume's object.
fn told(node: &Node, name: &str) -> Told {
    let view = node.pool.volume(id(name)).expect("there");
    let volume = Some(LostVolume { id: view.id, set: view.set, record: view.record.expect("described") });
    Ok(vec![ReportedVolume { disk: view.disk, id: Some(view.id), volume, is_made: true }])
}

/// The state directory is lost, and since then the disk has another serial: a new machine, another driver, a quirk of a
/// kernel.
#[test]
fn a_lost_device_of_a_volume_that_has_another_identity_by_now_is_taken_by_no_set() {
    let (host, device, told) = pool();
    device.poke(30 * MIB, b"what a tenant wrote, and nobody recognises");
    let before = device.write_count();
    host.unplug("fake0").expect("it was there");
    host.state.lose();
    host.plug("fake0", "SERIAL-0 of another firmware", Arc::clone(&device));
    let mut node = start(&host, &Layout::Carved {}, &told);
    node.passes().expect("looks");
    assert_eq!((node.pool.members().len(), device.write_count()), (0, before));
    // Another disk of the same size is no suspect once it was read.
    host.add_disk("fake1", "SERIAL-1", geometry());
    node.passes().expect("claims");
    let claimed: Vec<String> = node.pool.disk_views().iter().map(|disk| disk.path.display().to_string()).collect();
    assert_eq!(claimed, ["/dev/fake1"]);
    assert_eq!(device.write_count(), before);
}

#[test]
fn a_device_of_a_volume_that_the_journal_does_not_know_is_nobodys_until_it_is_taken_back() {
    let (host, device, told) = pool();
    let writes = device.write_count();
    // The journal is lost, or older than the volume: then the agent learns of the volume when it would claim.
    for older in [None, Some("{\"format\": 1}")] {
        host.state.lose();
        if let Some(text) = older {
            host.state().store(JOURNAL, text).expect("stored");
        }
        for layout in [Layout::RawDevice {}, Layout::Carved {}] {
            let mut node = start(&host, &layout, &told);
            let pass = node.passes().expect("looks");
            assert_eq!((node.pool.members().len(), device.write_count()), (0, writes), "{layout:?}");
            let shown = inventory(&node.pool, &pass);
            let note = shown[0].note.clone().unwrap_or_default();
            assert!(note.contains(&format!("volume {}", id("a"))) && note.contains("localpool disk adopt"), "{note}");
            for error in [
                node.pool.usable(id("a")).expect_err("not now"),
                node.pool.create(&request("a", BLOCK, MIB)).expect_err("not elsewhere"),
                node.pool.delete(id("a")).expect_err("not now"),
            ] {
                let PoolError::DiskAway { why, .. } = &error else { panic!("{error}") };
                assert!(why.contains("localpool disk adopt"), "{why}");
            }
        }
    }
    let mut node = start(&host, &Layout::RawDevice {}, &Ok(Vec::new()));
    node.passes().expect("looks");
    assert!(node.pool.members().is_empty(), "it is remembered without those who told");
    let adopt = |run| Verb::AdoptDisk { disk: "/dev/fake0".to_owned(), run };
    let said = node.agent.verb(&adopt(Run::Dry)).expect("could be").join("\n");
    assert!(said.contains("would take") && said.contains(&id("a").to_string()), "{said}");
    node.agent.verb(&adopt(Run::Real)).expect("a person says so");
    node.passes().expect("looks");
    assert!(node.pool.usable(id("a")).is_ok());
    assert_eq!(device.write_count(), writes, "its data is as it was");
    node.pool.delete(id("a")).expect("as any other");
}

#[test]
fn a_label_that_a_tenant_wrote_joins_no_pool_after_the_state_directory_was_lost_or_put_back() {
    let elsewhere = Arc::new(FakeHost::default());
    let forged = elsewhere.add_disk("fake0", "SERIAL-9", geometry());
    start(&elsewhere, &Layout::Carved {}, &Ok(Vec::new())).passes().expect("claims");
    let (host, device, told) = pool();
    device.put_content(forged.content());
    let none = || Err("no answer".to_owned());
    host.state.lose();
    let mut node = start(&host, &Layout::Carved {}, &none());
    let refused = node.passes().expect_err("nobody has told yet");
    assert!(refused.contains("no answer"), "{refused}");
    for told in [&told, &none()] {
        node = start(&host, &Layout::Carved {}, told);
        node.passes().expect("looks");
        assert!(node.pool.members().is_empty() && device.content() == forged.content());
    }
    // An older journal than the volume: what the pool has is served without the reports, and what it does not know
    // waits.
    host.state.lose();
    host.state().store(JOURNAL, "{\"format\": 1}").expect("stored");
    for told in [&none(), &told, &none()] {
        node = start(&host, &Layout::Carved {}, told);
        let pass = node.passes().expect("looks");
        assert!(node.pool.members().is_empty() && device.content() == forged.content(), "{told:?}");
        assert_eq!(pass.untold.as_deref(), told.as_ref().err().map(|_| "no answer"));
    }
}

#[test]
fn a_disk_of_ours_that_the_journal_does_not_know_joins_when_others_have_told_and_a_known_one_at_once() {
    let host = Arc::new(FakeHost::default());
    host.add_disk("fake0", "SERIAL-0", geometry());
    start(&host, &Layout::Carved {}, &Ok(Vec::new())).passes().expect("claims");
    for (journal, members) in [(None, [1, 1]), (Some("{\"format\": 1}"), [0, 1])] {
        if let Some(text) = journal {
            host.state().store(JOURNAL, text).expect("stored");
        }
        for (told, members) in [Err("no answer".to_owned()), Ok(Vec::new())].into_iter().zip(members) {
            let mut node = start(&host, &Layout::Carved {}, &told);
            let pass = node.passes().expect("looks");
            assert_eq!(node.pool.members().len(), members, "{journal:?} {told:?}");
            assert_eq!(pass.ripe_in.is_some(), told.is_err(), "it asks again");
        }
    }
}

/// As `localpool devices` does if no agent runs: it makes no pass, and perhaps has no journal.
#[test]
fn a_look_that_has_nobody_to_ask_shows_a_disk_of_ours_as_ours() {
    let host = Arc::new(FakeHost::default());
    host.add_disk("fake0", "SERIAL-0", geometry());
    start(&host, &Layout::Carved {}, &Ok(Vec::new())).passes().expect("claims");
    for journal in [None, Some("{\"format\": 1}")] {
        host.state.lose();
        if let Some(text) = journal {
            host.state().store(JOURNAL, text).expect("stored");
        }
        let mut node = Node::start(&host, Vec::new(), Duration::ZERO).expect("starts");
        let set = node.agent.look().expect("looks");
        assert_eq!(set.devices[0].verdict, Verdict::Ours, "{journal:?}");
    }
}

/// A device whose first volume is in the journal, in one of its states, and that has another volume since.
fn older(state: &str) -> (Arc<FakeHost>, Arc<Platter>, Told) {
    let host = Arc::new(FakeHost::default());
    let device = host.add_disk("fake0", "SERIAL-0", geometry());
    let mut node = start(&host, &Layout::RawDevice {}, &Ok(Vec::new()));
    node.passes().expect("claims");
    let journal = || host.state().load(JOURNAL).expect("read").expect("there");
    let mut older = BTreeMap::from([("free", journal())]);
    node.pool.create(&request("a", BLOCK, MIB)).expect("made");
    older.insert("volume", journal());
    node.pool.delete(id("a")).expect("deleted");
    older.insert("erasing", journal());
    node.pool.work_until_idle().expect("erased");
    older.insert("erased", journal());
    node.pool.create(&request("b", WantedUsage::Mount(Some(FsKind::Ext4)), MIB)).expect("made");
    let told = told(&node, "b");
    drop(node);
    // Where a look reads only if it knows of the volume.
    device.poke(30 * MIB, b"what a tenant wrote, and nobody recognises");
    host.state().store(JOURNAL, &older[state]).expect("put back");
    (host, device, told)
}

const STATES: [&str; 4] = ["free", "volume", "erasing", "erased"];

#[test]
fn a_volume_that_is_younger_than_the_journal_is_neither_erased_nor_called_deleted_nor_given_to_another() {
    for state in STATES {
        for is_late in [false, true] {
            let (host, device, told) = older(state);
            let before = device.content();
            let mut node = start(&host, &Layout::RawDevice {}, &Err("no answer".to_owned()));
            if is_late {
                node.passes().expect("looks");
                node.pool.create(&request("c", BLOCK, MIB)).expect_err("nobody has told yet");
                node.pool.delete(id("b")).expect_err("nobody has told yet");
                let disk = &told.as_ref().expect("told")[0].disk;
                assert_ne!(node.pool.doubt(id("b"), Some(disk)), Doubt::None, "{state}");
                node.pool.work_until_idle().expect("nothing to do yet");
                node.agent = node.agent.asking_for_own(telling(told));
            } else {
                node = start(&host, &Layout::RawDevice {}, &told);
            }
            let pass = node.passes().expect("looks");
            node.pool.work_until_idle().expect("nothing to do");
            node.pool.create(&request("c", BLOCK, MIB)).expect_err("not another's");
            let error = node.pool.delete(id("b")).expect_err("not erased, so not deleted");
            assert!(matches!(error, PoolError::DiskAway { .. }), "{state} {is_late}: {error}");
            if state == "volume" {
                node.pool.usable(id("a")).expect_err("it may be there no more");
                node.pool.delete(id("a")).expect_err("it would erase another");
            }
            let why = pass.problems["fake0"].clone();
            let way_out = if state == "volume" { "localpool volume settle" } else { "localpool disk adopt" };
            assert!(why.contains(&id("b").to_string()) && why.contains(way_out), "{why}");
            assert!(device.content() == before, "{state} {is_late}: something was written");
        }
    }
}

#[test]
fn a_person_says_whether_the_journal_or_the_object_is_the_older_one() {
    let adopt = |run| Verb::AdoptDisk { disk: "/dev/fake0".to_owned(), run };
    let settle = |volume, run| Verb::SettleVolume { volume: id(volume), keep: "/dev/fake0".to_owned(), run };
    for (state, verbs) in [
        ("free", vec![adopt(Run::Dry), adopt(Run::Real)]),
        ("erasing", vec![adopt(Run::Dry), adopt(Run::Real)]),
        ("volume", vec![settle("b", Run::Dry), settle("b", Run::Real)]),
        ("volume", vec![settle("a", Run::Dry), settle("a", Run::Real)]),
    ] {
        let (host, device, told) = older(state);
        let before = device.content();
        let mut node = start(&host, &Layout::RawDevice {}, &told);
        node.passes().expect("looks");
        let said: Vec<String> = verbs.iter().map(|verb| node.agent.verb(verb).expect("it can").join("\n")).collect();
        assert!(said[0].contains("would ") && !said[1].contains("would "), "{said:?}");
        let kept = if matches!(&verbs[1], Verb::SettleVolume { volume, .. } if *volume == id("a")) { "a" } else { "b" };
        for is_new in [false, true] {
            if is_new {
                node = start(&host, &Layout::RawDevice {}, &told);
            }
            let pass = node.passes().expect("looks");
            assert_eq!(pass.problems.get("fake0"), None, "{state}, kept {kept}");
            node.pool.usable(id(kept)).expect("a person has said so");
        }
        assert!(device.content() == before, "{state}: something was written");
        // By now the object of the forgotten volume may be there as well.
        let both = told.as_ref().expect("told").iter().flat_map(|b| {
            let volume = b.volume.clone().map(|volume| LostVolume { id: id("a"), ..volume });
            [ReportedVolume { id: Some(id("a")), volume, ..b.clone() }, b.clone()]
        });
        node = start(&host, &Layout::RawDevice {}, &Ok(both.collect()));
        assert_eq!(node.passes().expect("looks").problems.get("fake0"), None, "{state}, kept {kept}");
        if state == "volume" {
            let refused = node.agent.verb(&adopt(Run::Dry)).expect_err("nothing is in dispute").to_string();
            assert!(refused.contains("already"), "{refused}");
        }
        node.pool.delete(id(kept)).expect("as any other");
        node.pool.work_until_idle().expect("erased");
        // The object of the missing volume may outlive the other volume.
        let mut node = start(&host, &Layout::RawDevice {}, &told);
        assert_eq!(node.passes().expect("looks").problems.get("fake0"), None, "{state}, kept {kept}");
        node.pool.create(&request("d", BLOCK, MIB)).expect("as before");
    }
}

#[test]
fn a_dispute_of_two_records_is_ended_by_a_person_and_not_by_an_object_that_goes() {
    for state in STATES {
        let (host, device, told) = older(state);
        start(&host, &Layout::RawDevice {}, &told).passes().expect("looks");
        let before = device.content();
        // Deleted by hand; that erases nothing.
        let mut node = start(&host, &Layout::RawDevice {}, &Ok(Vec::new()));
        let pass = node.passes().expect("looks");
        node.pool.work_until_idle().expect("nothing to do");
        let why = pass.problems["fake0"].clone();
        let adopt = Verb::AdoptDisk { disk: "/dev/fake0".to_owned(), run: Run::Real };
        match state {
            "volume" => {
                let refused = node.agent.verb(&adopt).expect_err("which of the two?").to_string();
                assert!(
                    refused.contains("localpool volume settle") && why.contains("localpool volume settle"),
                    "{why}"
                );
            }
            _ => drop(node.agent.verb(&adopt).expect("the PoolVolume was right")),
        }
        assert!(device.content() == before, "{state}: something was written");
    }
}

#[test]
fn a_disputed_device_is_released_with_the_volume_of_its_object() {
    let (host, device, told) = older("free");
    let before = device.content();
    let mut node = start(&host, &Layout::RawDevice {}, &told);
    node.passes().expect("looks");
    let release = |run| Verb::ReleaseDisk { disk: "/dev/fake0".to_owned(), run };
    for run in [Run::Dry, Run::Real] {
        let said = node.agent.verb(&release(run)).expect("a person gives it up").join("\n");
        assert!(said.contains(&format!("volume {}", id("b"))) && said.contains("erases nothing"), "{said}");
    }
    node.passes().expect("looks");
    assert!(node.pool.members().is_empty());
    assert_eq!(node.pool.delete(id("b")).expect("nobody waits"), Change::AlreadySo);
    assert!(device.content() == before, "something was written");
    // Blanked by hand; the volume's object may still be there.
    device.poke(30 * MIB, &[0; 4096]);
    let adopt = Verb::AdoptDisk { disk: "/dev/fake0".to_owned(), run: Run::Real };
    node.agent.verb(&adopt).expect("sets may have it");
    for is_new in [false, true] {
        if is_new {
            node = start(&host, &Layout::RawDevice {}, &told);
        }
        node.passes().expect("claims");
        assert_eq!(node.pool.members().len(), 1, "{is_new}");
        node.pool.create(&request("c", BLOCK, MIB)).expect("it is free");
        node.pool.delete(id("c")).expect("deleted");
        node.pool.work_until_idle().expect("erased");
    }
}

#[test]
fn of_several_volumes_that_objects_have_on_one_device_a_person_says_which_is_there() {
    let (_, _, b) = older("erased");
    let b = b.expect("told").remove(0);
    for layout in [Layout::RawDevice {}, Layout::Carved {}] {
        for is_first in [false, true] {
            let (host, device, a) = pool();
            let a = a.expect("told").remove(0);
            let b = ReportedVolume { disk: a.disk.clone(), ..b.clone() };
            let told = Ok(if is_first { vec![a, b] } else { vec![b, a] });
            let before = device.content();
            host.state.lose();
            let mut node = start(&host, &layout, &told);
            node.passes().expect("looks");
            let adopt = Verb::AdoptDisk { disk: "/dev/fake0".to_owned(), run: Run::Real };
            let refused = node.agent.verb(&adopt).expect_err("which of the two?").to_string();
            for volume in ["a", "b"] {
                assert!(refused.contains(&format!("settle {}", id(volume))), "{refused}");
                node.pool.delete(id(volume)).expect_err("it may be there");
            }
            let settle = Verb::SettleVolume { volume: id("a"), keep: "/dev/fake0".to_owned(), run: Run::Real };
            let said = node.agent.verb(&settle).expect("a person says so").join("\n");
            assert!(said.contains(&id("b").to_string()) && said.contains("erases nothing"), "{said}");
            for is_new in [false, true] {
                if is_new {
                    node = start(&host, &layout, &told);
                }
                node.passes().expect("looks");
                assert!(node.pool.usable(id("a")).is_ok() && device.content() == before);
                assert_eq!(node.pool.delete(id("b")).expect("it is not there"), Change::AlreadySo);
            }
        }
    }
}

#[test]
fn an_object_that_this_version_cannot_read_keeps_its_device_from_an_older_journal() {
    for state in STATES {
        let (host, device, told) = older(state);
        let unread = told.expect("told").into_iter().map(|told| ReportedVolume { volume: None, ..told }).collect();
        let before = device.content();
        let mut node = start(&host, &Layout::RawDevice {}, &Ok(unread));
        let pass = node.passes().expect("looks");
        node.pool.work_until_idle().expect("nothing to do");
        node.pool.create(&request("c", BLOCK, MIB)).expect_err("it is not free");
        assert!(pass.problems["fake0"].contains("this version cannot read"), "{:?}", pass.problems);
        assert!(device.content() == before, "{state}: something was written");
    }
}

/// The erasure has ended, the object is not yet let go as the API server is away, and meanwhile the device is released.
#[test]
fn the_object_of_a_volume_that_was_erased_holds_nothing_up_after_its_device_was_given_back() {
    let (host, _, told) = pool();
    let mut node = start(&host, &Layout::RawDevice {}, &told);
    node.passes().expect("looks");
    node.pool.delete(id("a")).expect("deleted");
    node.pool.work_until_idle().expect("erased");
    let release = Verb::ReleaseDisk { disk: "/dev/fake0".to_owned(), run: Run::Real };
    node.agent.verb(&release).expect("given back");
    let mut node = start(&host, &Layout::RawDevice {}, &told);
    node.passes().expect("looks");
    assert_eq!(node.pool.delete(id("a")).expect("it is erased"), Change::AlreadySo);
}

#[test]
fn a_list_that_fails_slowly_keeps_no_later_pass_from_going_on_without_it() {
    let host = Arc::new(FakeHost::default());
    host.state().store(JOURNAL, "{\"format\": 1}").expect("stored");
    let node = Node::start(&host, Vec::new(), Duration::ZERO).expect("starts");
    let slow = || {
        std::thread::sleep(Duration::from_millis(400));
        Err(NoAnswer::Failed("no answer".into()))
    };
    let mut agent = node.agent.asking_for_own(Box::new(slow));
    agent.set_rules(Vec::new());
    let mut known = false;
    for _ in 0..6 {
        let Ok(pass) = agent.pass() else { continue };
        assert!(pass.knows_all || !known, "it knew once why nobody tells");
        known |= pass.knows_all;
    }
    assert!(known, "it never went on");
}

#[test]
fn a_device_that_an_older_journal_has_as_given_up_and_that_has_another_volume_since_is_nobodys() {
    let (host, device, told) = older("free");
    let mut node = start(&host, &Layout::RawDevice {}, &told);
    node.passes().expect("looks");
    let release = Verb::ReleaseDisk { disk: "/dev/fake0".to_owned(), run: Run::Real };
    node.agent.verb(&release).expect("given up");
    let given_up = host.state().load(JOURNAL).expect("read").expect("there");
    device.poke(30 * MIB, &[0; 4096]);
    let adopt = Verb::AdoptDisk { disk: "/dev/fake0".to_owned(), run: Run::Real };
    node.agent.verb(&adopt).expect("sets may have it");
    node.passes().expect("claims");
    node.pool.create(&request("c", BLOCK, MIB)).expect("made");
    let later = self::told(&node, "c");
    drop(node);
    host.state().store(JOURNAL, &given_up).expect("put back");
    for (told, name, is_there) in [(&told, "b", false), (&later, "c", true)] {
        let mut node = start(&host, &Layout::RawDevice {}, told);
        node.passes().expect("looks");
        assert_eq!(node.pool.delete(id(name)).is_err(), is_there, "{name}");
    }
}

#[test]
fn a_device_that_an_older_journal_has_as_given_back_and_that_has_a_volume_since_is_nobodys_and_is_taken_back() {
    let (host, device, _) = pool();
    let mut node = start(&host, &Layout::RawDevice {}, &Ok(Vec::new()));
    node.passes().expect("looks");
    node.pool.delete(id("a")).expect("deleted");
    node.pool.work_until_idle().expect("erased");
    let verb = |node: &mut Node, adopt| {
        let (disk, run) = ("/dev/fake0".to_owned(), Run::Real);
        let verb = if adopt { Verb::AdoptDisk { disk, run } } else { Verb::ReleaseDisk { disk, run } };
        node.agent.verb(&verb).expect("done").join("\n")
    };
    verb(&mut node, false);
    let older = host.state().load(JOURNAL).expect("read").expect("there");
    verb(&mut node, true);
    node.passes().expect("claims");
    node.pool.create(&request("b", BLOCK, MIB)).expect("made");
    let told = told(&node, "b");
    host.state().store(JOURNAL, &older).expect("put back");
    let before = device.content();
    let mut node = start(&host, &Layout::RawDevice {}, &told);
    node.passes().expect("looks");
    node.pool.delete(id("b")).expect_err("not erased, so not deleted");
    assert!(verb(&mut node, true).contains(&format!("with volume {}", id("b"))));
    node.passes().expect("looks");
    node.pool.usable(id("b")).expect("taken back");
    assert!(device.content() == before, "something was written");
}

#[test]
fn where_both_records_have_one_volume_another_object_of_the_device_disputes_nothing() {
    let (host, _, a) = pool();
    let a = a.expect("told");
    // An object from a backup beside the object of the volume that is there.
    let stale = older("erased").2.expect("told").remove(0);
    let stale = ReportedVolume { disk: a[0].disk.clone(), ..stale };
    for told in [vec![stale.clone(), a[0].clone()], vec![a[0].clone(), stale]] {
        let mut node = start(&host, &Layout::RawDevice {}, &Ok(told));
        let pass = node.passes().expect("looks");
        assert_eq!(pass.problems.get("fake0"), None);
        node.pool.usable(id("a")).expect("both say so");
    }
}

#[test]
fn a_set_that_gives_disks_back_gives_none_back_that_an_older_journal_calls_done_with() {
    for told_first in [false, true] {
        let (host, device, told) = older("erased");
        let before = device.content();
        let release = Rule { reclaim: Reclaim::Release, ..rule(&Layout::RawDevice {}, ErasePolicy::Discard) };
        let node = Node::start(&host, vec![release], Duration::ZERO).expect("starts");
        let told = if told_first { told } else { Err("no answer".to_owned()) };
        let mut node = Node { pool: node.pool, agent: node.agent.asking_for_own(telling(told)) };
        node.passes().expect("looks");
        assert_eq!(node.pool.members().len(), 1, "{told_first}: it was given back");
        assert!(device.content() == before);
    }
}

/// Before an agent runs, and while it does not answer: a look must not overwrite what the agent wrote.
#[test]
fn a_plan_of_sets_writes_nothing_into_a_journal_with_a_dispute() {
    let (host, _, told) = older("free");
    start(&host, &Layout::RawDevice {}, &told).passes().expect("looks");
    let journal = || host.state().load(JOURNAL).expect("read").expect("there");
    let before = journal();
    let mut node = Node::start(&host, Vec::new(), Duration::ZERO).expect("starts");
    let sets = vec![rule(&Layout::Carved {}, ErasePolicy::Discard)];
    node.agent.verb(&Verb::PlanSets { sets }).expect("planned");
    assert_eq!(journal(), before);
}

#[test]
fn a_dispute_stays_where_nobody_can_be_asked() {
    let (host, device, told) = older("erasing");
    start(&host, &Layout::RawDevice {}, &told).passes().expect("looks");
    let before = device.content();
    // As a command does if no agent runs.
    let rules = vec![rule(&Layout::RawDevice {}, ErasePolicy::Discard)];
    let mut node = Node::start(&host, rules, Duration::ZERO).expect("starts");
    let pass = node.passes().expect("looks");
    assert!(pass.problems["fake0"].contains("localpool disk adopt"), "{:?}", pass.problems);
    node.pool.work_until_idle().expect("nothing to do");
    assert!(device.content() == before, "something was written");
}

/// The report of an object contradicts nothing if its volume was deleted, or was not made yet.
#[test]
fn an_object_that_is_behind_the_journal_or_before_it_disputes_nothing() {
    let (host, _, volume_a) = pool();
    let mut node = start(&host, &Layout::RawDevice {}, &volume_a);
    node.passes().expect("looks");
    node.pool.delete(id("a")).expect("deleted");
    let is_free = |told: &Told| {
        let mut node = start(&host, &Layout::RawDevice {}, told);
        let pass = node.passes().expect("looks");
        (pass.problems.get("fake0").cloned(), node.pool.volumes().len())
    };
    assert_eq!(is_free(&volume_a), (None, 0), "being erased");
    node.pool.work_until_idle().expect("erased");
    assert_eq!(is_free(&volume_a), (None, 0), "erased, and its object is not gone yet");
    node.pool.create(&request("b", BLOCK, MIB)).expect("made");
    assert_eq!(is_free(&volume_a), (None, 1));
    node.pool.delete(id("b")).expect("deleted");
    node.pool.work_until_idle().expect("erased");
    let only_to_be = volume_a.map(|told| vec![ReportedVolume { is_made: false, ..told[0].clone() }]);
    assert_eq!(is_free(&only_to_be), (None, 0), "accepted, and stopped before the journal");
    let other = Ok(vec![ReportedVolume { id: Some(id("x")), ..only_to_be.expect("told").remove(0) }]);
    let disk = || "/dev/fake0".to_owned();
    let mut node = start(&host, &Layout::RawDevice {}, &other);
    node.passes().expect("looks");
    node.agent.verb(&Verb::ReleaseDisk { disk: disk(), run: Run::Real }).expect("given back");
    node = start(&host, &Layout::RawDevice {}, &other);
    node.passes().expect("looks");
    let adopted = node.agent.verb(&Verb::AdoptDisk { disk: disk(), run: Run::Dry }).expect("it is blank").join("\n");
    assert!(adopted.contains("let sets claim"), "{adopted}");
}

#[test]
fn a_dead_disk_that_the_journal_never_knew_is_given_up_by_its_id() {
    for layout in [Layout::Carved {}, Layout::RawDevice {}] {
        let host = Arc::new(FakeHost::default());
        host.add_disk("fake0", "SERIAL-0", geometry());
        let mut node = start(&host, &layout, &Ok(Vec::new()));
        node.passes().expect("claims");
        node.pool.create(&request("a", BLOCK, MIB)).expect("made");
        let told = told(&node, "a");
        let disk = node.pool.members()[0].id().clone();
        let platter = host.unplug("fake0").expect("it was there");
        host.state.lose();
        let mut node = start(&host, &layout, &told);
        node.passes().expect("looks");
        let release = |disk: &str, run| Verb::ReleaseDisk { disk: disk.to_owned(), run };
        let refused = node.agent.verb(&release("gpt-none", Run::Dry)).expect_err("nobody knows it").to_string();
        assert!(refused.contains("this node has no disk gpt-none"), "{refused}");
        let said = node.agent.verb(&release(disk.as_str(), Run::Dry)).expect("could be").join("\n");
        assert!(said.contains("would give up") && said.contains(&format!("volume {}", id("a"))), "{said}");
        assert!(!matches!(node.pool.doubt(id("a"), Some(&disk)), Doubt::GivenUp(_)), "a dry run changes nothing");
        node.agent.verb(&release(disk.as_str(), Run::Real)).expect("given up");
        for is_new in [false, true] {
            if is_new {
                node = start(&host, &layout, &told);
                node.passes().expect("looks");
            }
            let doubt = node.pool.doubt(id("a"), Some(&disk));
            assert!(matches!(doubt, Doubt::GivenUp(_)), "{layout:?} {is_new}: {doubt:?}");
            assert_eq!(node.pool.delete(id("a")).expect("nobody waits"), Change::AlreadySo);
        }
        let writes = platter.write_count();
        host.plug("fake0", "SERIAL-0", Arc::clone(&platter));
        node.passes().expect("looks");
        let is_back = node.pool.volume(id("a")).is_ok();
        assert_eq!((is_back, is_back || platter.write_count() == writes), (layout == Layout::Carved {}, true));
    }
}

#[test]
fn a_disk_is_not_given_up_as_unknown_while_nobody_tells_which_are() {
    let host = Arc::new(FakeHost::default());
    let mut node = start(&host, &Layout::Carved {}, &Ok(Vec::new()));
    node.passes().expect("looks");
    node.agent = node.agent.asking_for_own(telling(Err("no answer".to_owned())));
    let release = Verb::ReleaseDisk { disk: "gpt-old".to_owned(), run: Run::Real };
    let refused = chain(&node.agent.verb(&release).expect_err("nobody tells"));
    assert!(refused.contains("gpt-old") && refused.contains("no answer"), "{refused}");
}
