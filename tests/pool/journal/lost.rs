//! The journal was lost: what the objects of volumes say is all that is known of a disk.

use std::sync::Arc;
use std::time::Duration;

use localpool::agent::{Run, Verb, inventory};
use localpool::claim::NoAnswer;
use localpool::device::Verdict;
use localpool::device::label::Layout;
use localpool::host::fake::FakeHost;
use localpool::host::{Host as _, chain};
use localpool::pool::{Change, Doubt, JOURNAL, PoolError, ReportedVolume};

use crate::journal::{older, pool, reported, reporting, start};
use crate::node::{BLOCK, MIB, Node, geometry, id, request};

/// The state directory is lost, and since then the disk has another serial: a new machine, another driver, a quirk of a
/// kernel.
#[test]
fn a_lost_device_of_a_volume_that_has_another_identity_by_now_is_taken_by_no_set() {
    let (host, device, reported) = pool();
    device.poke(30 * MIB, b"what a tenant wrote, and nobody recognises");
    let before = device.write_count();
    host.unplug("fake0").expect("it was there");
    host.state.lose();
    host.plug("fake0", "SERIAL-0 of another firmware", Arc::clone(&device));
    let mut node = start(&host, &Layout::Carved {}, &reported);
    node.passes().expect("a pass");
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
    let (host, device, reported) = pool();
    let writes = device.write_count();
    // The journal is lost, or older than the volume: then the agent learns of the volume when it would claim.
    for older in [None, Some("{\"format\": 1}")] {
        host.state.lose();
        if let Some(text) = older {
            host.state().store(JOURNAL, text).expect("stored");
        }
        for layout in [Layout::RawDevice {}, Layout::Carved {}] {
            let mut node = start(&host, &layout, &reported);
            let pass = node.passes().expect("a pass");
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
    node.passes().expect("a pass");
    assert!(node.pool.members().is_empty(), "it is remembered without those who told");
    let adopt = |run| Verb::AdoptDisk { disk: "/dev/fake0".to_owned(), run };
    let refusal = node.agent.verb(&adopt(Run::Dry)).expect("could be").join("\n");
    assert!(refusal.contains("would take") && refusal.contains(&id("a").to_string()), "{refusal}");
    node.agent.verb(&adopt(Run::Real)).expect("a person says so");
    node.passes().expect("a pass");
    assert!(node.pool.usable(id("a")).is_ok());
    assert_eq!(device.write_count(), writes, "its data is as it was");
    node.pool.delete(id("a")).expect("as any other");
}

#[test]
fn a_label_that_a_tenant_wrote_joins_no_pool_after_the_state_directory_was_lost_or_put_back() {
    let elsewhere = Arc::new(FakeHost::default());
    let forged = elsewhere.add_disk("fake0", "SERIAL-9", geometry());
    start(&elsewhere, &Layout::Carved {}, &Ok(Vec::new())).passes().expect("claims");
    let (host, device, reported) = pool();
    device.put_content(forged.content());
    let none = || Err("no answer".to_owned());
    host.state.lose();
    let mut node = start(&host, &Layout::Carved {}, &none());
    let refused = node.passes().expect_err("nobody has told yet");
    assert!(refused.contains("no answer"), "{refused}");
    for reported in [&reported, &none()] {
        node = start(&host, &Layout::Carved {}, reported);
        node.passes().expect("a pass");
        assert!(node.pool.members().is_empty() && device.content() == forged.content());
    }
    // An older journal than the volume: what the pool has is served without the reports, and what it does not know
    // waits.
    host.state.lose();
    host.state().store(JOURNAL, "{\"format\": 1}").expect("stored");
    for reported in [&none(), &reported, &none()] {
        node = start(&host, &Layout::Carved {}, reported);
        let pass = node.passes().expect("a pass");
        assert!(node.pool.members().is_empty() && device.content() == forged.content(), "{reported:?}");
        assert_eq!(pass.volumes_unread.as_deref(), reported.as_ref().err().map(|_| "no answer"));
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
        for (reported, members) in [Err("no answer".to_owned()), Ok(Vec::new())].into_iter().zip(members) {
            let mut node = start(&host, &Layout::Carved {}, &reported);
            let pass = node.passes().expect("a pass");
            assert_eq!(node.pool.members().len(), members, "{journal:?} {reported:?}");
            assert_eq!(pass.ripe_in.is_some(), reported.is_err(), "it asks again");
        }
    }
}

/// As `localpool devices` does if no agent runs: it makes no pass, and perhaps has no journal.
#[test]
fn a_scan_that_has_nobody_to_ask_shows_a_disk_of_ours_as_ours() {
    let host = Arc::new(FakeHost::default());
    host.add_disk("fake0", "SERIAL-0", geometry());
    start(&host, &Layout::Carved {}, &Ok(Vec::new())).passes().expect("claims");
    for journal in [None, Some("{\"format\": 1}")] {
        host.state.lose();
        if let Some(text) = journal {
            host.state().store(JOURNAL, text).expect("stored");
        }
        let mut node = Node::start(&host, Vec::new(), Duration::ZERO).expect("starts");
        let snapshot = node.agent.scan().expect("a scan");
        assert_eq!(snapshot.devices[0].verdict, Verdict::Ours, "{journal:?}");
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
            let reported = Ok(if is_first { vec![a, b] } else { vec![b, a] });
            let before = device.content();
            host.state.lose();
            let mut node = start(&host, &layout, &reported);
            node.passes().expect("a pass");
            let adopt = Verb::AdoptDisk { disk: "/dev/fake0".to_owned(), run: Run::Real };
            let refused = node.agent.verb(&adopt).expect_err("which of the two?").to_string();
            for volume in ["a", "b"] {
                assert!(refused.contains(&format!("settle {}", id(volume))), "{refused}");
                node.pool.delete(id(volume)).expect_err("it may be there");
            }
            let settle = Verb::SettleVolume { volume: id("a"), keep: "/dev/fake0".to_owned(), run: Run::Real };
            let refusal = node.agent.verb(&settle).expect("a person says so").join("\n");
            assert!(refusal.contains(&id("b").to_string()) && refusal.contains("erases nothing"), "{refusal}");
            for is_new in [false, true] {
                if is_new {
                    node = start(&host, &layout, &reported);
                }
                node.passes().expect("a pass");
                assert!(node.pool.usable(id("a")).is_ok() && device.content() == before);
                assert_eq!(node.pool.delete(id("b")).expect("it is not there"), Change::AlreadySo);
            }
        }
    }
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
    let mut agent = node.agent.asking_for_volumes(Box::new(slow));
    agent.set_rules(Vec::new());
    let mut known = 0;
    for _ in 0..200 {
        let Ok(pass) = agent.pass() else { continue };
        assert!(pass.knows_all || known == 0, "it knew once why nobody tells");
        known += u32::from(pass.knows_all);
        if known == 5 {
            return;
        }
    }
    panic!("it never went on");
}

#[test]
fn a_dead_disk_that_the_journal_never_knew_is_given_up_by_its_id() {
    for layout in [Layout::Carved {}, Layout::RawDevice {}] {
        let host = Arc::new(FakeHost::default());
        host.add_disk("fake0", "SERIAL-0", geometry());
        let mut node = start(&host, &layout, &Ok(Vec::new()));
        node.passes().expect("claims");
        node.pool.create(&request("a", BLOCK, MIB)).expect("made");
        let reported = reported(&node, "a");
        let disk = node.pool.members()[0].id().clone();
        let platter = host.unplug("fake0").expect("it was there");
        host.state.lose();
        let mut node = start(&host, &layout, &reported);
        node.passes().expect("a pass");
        let release = |disk: &str, run| Verb::ReleaseDisk { disk: disk.to_owned(), run };
        let refused = node.agent.verb(&release("gpt-none", Run::Dry)).expect_err("nobody knows it").to_string();
        assert!(refused.contains("this node has no disk gpt-none"), "{refused}");
        let refusal = node.agent.verb(&release(disk.as_str(), Run::Dry)).expect("could be").join("\n");
        assert!(refusal.contains("would give up") && refusal.contains(&format!("volume {}", id("a"))), "{refusal}");
        assert!(!matches!(node.pool.doubt(id("a"), Some(&disk)), Doubt::GivenUp(_)), "a dry run changes nothing");
        node.agent.verb(&release(disk.as_str(), Run::Real)).expect("given up");
        for is_new in [false, true] {
            if is_new {
                node = start(&host, &layout, &reported);
                node.passes().expect("a pass");
            }
            let doubt = node.pool.doubt(id("a"), Some(&disk));
            assert!(matches!(doubt, Doubt::GivenUp(_)), "{layout:?} {is_new}: {doubt:?}");
            assert_eq!(node.pool.delete(id("a")).expect("nobody waits"), Change::AlreadySo);
        }
        let writes = platter.write_count();
        host.plug("fake0", "SERIAL-0", Arc::clone(&platter));
        node.passes().expect("a pass");
        let is_back = node.pool.volume(id("a")).is_ok();
        assert_eq!((is_back, is_back || platter.write_count() == writes), (layout == Layout::Carved {}, true));
    }
}

#[test]
fn a_disk_is_not_given_up_as_unknown_while_nobody_tells_which_are() {
    let host = Arc::new(FakeHost::default());
    let mut node = start(&host, &Layout::Carved {}, &Ok(Vec::new()));
    node.passes().expect("a pass");
    node.agent = node.agent.asking_for_volumes(reporting(Err("no answer".to_owned())));
    let release = Verb::ReleaseDisk { disk: "gpt-old".to_owned(), run: Run::Real };
    let refused = chain(&node.agent.verb(&release).expect_err("nobody tells"));
    assert!(refused.contains("gpt-old") && refused.contains("no answer"), "{refused}");
}
