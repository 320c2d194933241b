//! Journal and object of a volume say different things: a person says which is right, and only a real difference
//! counts.

use std::time::Duration;

use localpool::agent::{Run, Verb};
use localpool::device::label::{ErasePolicy, Layout};
use localpool::host::Host as _;
use localpool::pool::{Change, JOURNAL, LostVolume, ReportedVolume};

use crate::journal::{Reported, STATES, older, pool, start};
use crate::node::{BLOCK, MIB, Node, id, request, rule};

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
        let (host, device, reported) = older(state);
        let before = device.content();
        let mut node = start(&host, &Layout::RawDevice {}, &reported);
        node.passes().expect("a pass");
        let refusal: Vec<String> = verbs.iter().map(|verb| node.agent.verb(verb).expect("it can").join("\n")).collect();
        assert!(refusal[0].contains("would ") && !refusal[1].contains("would "), "{refusal:?}");
        let kept = if matches!(&verbs[1], Verb::SettleVolume { volume, .. } if *volume == id("a")) { "a" } else { "b" };
        for is_new in [false, true] {
            if is_new {
                node = start(&host, &Layout::RawDevice {}, &reported);
            }
            let pass = node.passes().expect("a pass");
            assert_eq!(pass.problems.get("fake0"), None, "{state}, kept {kept}");
            node.pool.usable(id(kept)).expect("a person has said so");
        }
        assert!(device.content() == before, "{state}: something was written");
        // By now the object of the forgotten volume may be there as well.
        let both = reported.as_ref().expect("told").iter().flat_map(|b| {
            let volume = b.volume.clone().map(|volume| LostVolume { id: id("a"), ..volume });
            [ReportedVolume { id: Some(id("a")), volume, ..b.clone() }, b.clone()]
        });
        node = start(&host, &Layout::RawDevice {}, &Ok(both.collect()));
        assert_eq!(node.passes().expect("a pass").problems.get("fake0"), None, "{state}, kept {kept}");
        if state == "volume" {
            let refused = node.agent.verb(&adopt(Run::Dry)).expect_err("nothing is in dispute").to_string();
            assert!(refused.contains("already"), "{refused}");
        }
        node.pool.delete(id(kept)).expect("as any other");
        node.pool.work_until_idle().expect("erased");
        // The object of the missing volume may outlive the other volume.
        let mut node = start(&host, &Layout::RawDevice {}, &reported);
        assert_eq!(node.passes().expect("a pass").problems.get("fake0"), None, "{state}, kept {kept}");
        node.pool.create(&request("d", BLOCK, MIB)).expect("as before");
    }
}

#[test]
fn a_dispute_of_two_records_is_ended_by_a_person_and_not_by_an_object_that_goes() {
    for state in STATES {
        let (host, device, reported) = older(state);
        start(&host, &Layout::RawDevice {}, &reported).passes().expect("a pass");
        let before = device.content();
        // Deleted by hand; that erases nothing.
        let mut node = start(&host, &Layout::RawDevice {}, &Ok(Vec::new()));
        let pass = node.passes().expect("a pass");
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
    let (host, device, reported) = older("free");
    let before = device.content();
    let mut node = start(&host, &Layout::RawDevice {}, &reported);
    node.passes().expect("a pass");
    let release = |run| Verb::ReleaseDisk { disk: "/dev/fake0".to_owned(), run };
    for run in [Run::Dry, Run::Real] {
        let output = node.agent.verb(&release(run)).expect("a person gives it up").join("\n");
        assert!(output.contains(&format!("volume {}", id("b"))) && output.contains("erases nothing"), "{output}");
    }
    node.passes().expect("a pass");
    assert!(node.pool.members().is_empty());
    assert_eq!(node.pool.delete(id("b")).expect("nobody waits"), Change::AlreadySo);
    assert!(device.content() == before, "something was written");
    // Blanked by hand; the volume's object may still be there.
    device.poke(30 * MIB, &[0; 4096]);
    let adopt = Verb::AdoptDisk { disk: "/dev/fake0".to_owned(), run: Run::Real };
    node.agent.verb(&adopt).expect("sets may have it");
    for is_new in [false, true] {
        if is_new {
            node = start(&host, &Layout::RawDevice {}, &reported);
        }
        node.passes().expect("claims");
        assert_eq!(node.pool.members().len(), 1, "{is_new}");
        node.pool.create(&request("c", BLOCK, MIB)).expect("it is free");
        node.pool.delete(id("c")).expect("deleted");
        node.pool.work_until_idle().expect("erased");
    }
}

/// The erasure has ended, the object is not yet let go as the API server is away, and meanwhile the device is released.
#[test]
fn the_object_of_a_volume_that_was_erased_holds_nothing_up_after_its_device_was_released() {
    let (host, _, reported) = pool();
    let mut node = start(&host, &Layout::RawDevice {}, &reported);
    node.passes().expect("a pass");
    node.pool.delete(id("a")).expect("deleted");
    node.pool.work_until_idle().expect("erased");
    let release = Verb::ReleaseDisk { disk: "/dev/fake0".to_owned(), run: Run::Real };
    node.agent.verb(&release).expect("released");
    let mut node = start(&host, &Layout::RawDevice {}, &reported);
    node.passes().expect("a pass");
    assert_eq!(node.pool.delete(id("a")).expect("it is erased"), Change::AlreadySo);
}

#[test]
fn where_both_records_have_one_volume_another_object_of_the_device_disputes_nothing() {
    let (host, _, a) = pool();
    let a = a.expect("told");
    // An object from a backup beside the object of the volume that is there.
    let stale = older("erased").2.expect("told").remove(0);
    let stale = ReportedVolume { disk: a[0].disk.clone(), ..stale };
    for reported in [vec![stale.clone(), a[0].clone()], vec![a[0].clone(), stale]] {
        let mut node = start(&host, &Layout::RawDevice {}, &Ok(reported));
        let pass = node.passes().expect("a pass");
        assert_eq!(pass.problems.get("fake0"), None);
        node.pool.usable(id("a")).expect("both say so");
    }
}

/// Before an agent runs, and while it does not answer: a scan must not overwrite what the agent wrote.
#[test]
fn a_plan_of_sets_writes_nothing_into_a_journal_with_a_dispute() {
    let (host, _, reported) = older("free");
    start(&host, &Layout::RawDevice {}, &reported).passes().expect("a pass");
    let journal = || host.state().load(JOURNAL).expect("read").expect("there");
    let before = journal();
    let mut node = Node::start(&host, Vec::new(), Duration::ZERO).expect("starts");
    let sets = vec![rule(&Layout::Carved {}, ErasePolicy::Discard)];
    node.agent.verb(&Verb::PlanSets { sets }).expect("planned");
    assert_eq!(journal(), before);
}

#[test]
fn a_dispute_stays_where_nobody_can_be_asked() {
    let (host, device, reported) = older("erasing");
    start(&host, &Layout::RawDevice {}, &reported).passes().expect("a pass");
    let before = device.content();
    // As a command does if no agent runs.
    let rules = vec![rule(&Layout::RawDevice {}, ErasePolicy::Discard)];
    let mut node = Node::start(&host, rules, Duration::ZERO).expect("starts");
    let pass = node.passes().expect("a pass");
    assert!(pass.problems["fake0"].contains("localpool disk adopt"), "{:?}", pass.problems);
    node.pool.work_until_idle().expect("nothing to do");
    assert!(device.content() == before, "something was written");
}

/// The report of an object contradicts nothing if its volume was deleted, or was not made yet.
#[test]
fn an_object_that_is_behind_the_journal_or_before_it_disputes_nothing() {
    let (host, _, volume_a) = pool();
    let mut node = start(&host, &Layout::RawDevice {}, &volume_a);
    node.passes().expect("a pass");
    node.pool.delete(id("a")).expect("deleted");
    let is_free = |reported: &Reported| {
        let mut node = start(&host, &Layout::RawDevice {}, reported);
        let pass = node.passes().expect("a pass");
        (pass.problems.get("fake0").cloned(), node.pool.volumes().len())
    };
    assert_eq!(is_free(&volume_a), (None, 0), "being erased");
    node.pool.work_until_idle().expect("erased");
    assert_eq!(is_free(&volume_a), (None, 0), "erased, and its object is not gone yet");
    node.pool.create(&request("b", BLOCK, MIB)).expect("made");
    assert_eq!(is_free(&volume_a), (None, 1));
    node.pool.delete(id("b")).expect("deleted");
    node.pool.work_until_idle().expect("erased");
    let only_to_be = volume_a.map(|reported| vec![ReportedVolume { is_made: false, ..reported[0].clone() }]);
    assert_eq!(is_free(&only_to_be), (None, 0), "accepted, and stopped before the journal");
    let other = Ok(vec![ReportedVolume { id: Some(id("x")), ..only_to_be.expect("told").remove(0) }]);
    let disk = || "/dev/fake0".to_owned();
    let mut node = start(&host, &Layout::RawDevice {}, &other);
    node.passes().expect("a pass");
    node.agent.verb(&Verb::ReleaseDisk { disk: disk(), run: Run::Real }).expect("released");
    node = start(&host, &Layout::RawDevice {}, &other);
    node.passes().expect("a pass");
    let adopted = node.agent.verb(&Verb::AdoptDisk { disk: disk(), run: Run::Dry }).expect("it is blank").join("\n");
    assert!(adopted.contains("let sets claim"), "{adopted}");
}
