//! A journal that cannot be read: what only the journal knows is refused in words, and everything else continues.

use std::sync::Arc;
use std::time::Duration;

use localpool::agent::{PassReport, Run, Verb, inventory};
use localpool::device::label::{ErasePolicy, Layout};
use localpool::host::Host;
use localpool::host::fake::{FakeHost, Platter};

use crate::node::{BLOCK, MIB, Node, geometry, id, request, rule};

const JOURNAL: &str = "journal.json";

fn start(host: &Arc<FakeHost>, layout: &Layout) -> Node {
    let mut rule = rule(layout, ErasePolicy::Discard);
    rule.set.uid = format!("{layout:?}").into();
    Node::start(host, vec![rule], Duration::ZERO).expect("starts")
}

/// A labelled disk with the volume `labelled`, a bare one with the volume `bare`, and the text of their journal.
fn pool() -> (Arc<FakeHost>, [Arc<Platter>; 2], String) {
    let host = Arc::new(FakeHost::default());
    let disk = host.add_disk("fake0", "SERIAL-0", geometry());
    let mut node = start(&host, &Layout::Carved {});
    node.passes().expect("claims");
    node.pool.create(&request("labelled", BLOCK, MIB)).expect("made");
    drop(node);
    let device = host.add_disk("fake1", "SERIAL-1", geometry());
    let mut node = start(&host, &Layout::RawDevice {});
    node.passes().expect("claims");
    node.pool.create(&request("bare", BLOCK, MIB)).expect("made");
    let text = host.state().load(JOURNAL).expect("read").expect("there is one");
    (host, [disk, device], text)
}

/// What damage may do to it.
fn damaged(text: &str) -> [String; 4] {
    let middle = text.len() / 2;
    [String::new(), text[..middle].to_owned(), text.replace(':', ";"), text.replace("\"format\": 1", "\"format\": 99")]
}

#[test]
fn a_damaged_journal_stops_no_labelled_disk_and_nothing_is_taken_made_or_called_deleted() {
    let (host, _, text) = pool();
    for damaged in damaged(&text) {
        host.state().store(JOURNAL, &damaged).expect("stored");
        let blank = host.add_disk("fake2", "SERIAL-2", geometry());
        for layout in [Layout::Carved {}, Layout::RawDevice {}] {
            let mut node = start(&host, &layout);
            let pass = node.passes().expect("a pass");
            assert!(node.pool.usable(id("labelled")).is_ok(), "{damaged}: it is on the disk");
            let release = Verb::ReleaseDisk { disk: "/dev/fake0".to_owned(), run: Run::Dry };
            let refused = [
                node.agent.verb(&release).expect_err("it would not be remembered").to_string(),
                node.pool.usable(id("bare")).expect_err("nobody knows where it is").to_string(),
                node.pool.create(&request("new", BLOCK, MIB)).expect_err("it may be somewhere").to_string(),
                node.pool.delete(id("gone")).expect_err("it may be somewhere").to_string(),
                pass.problems["fake2"].clone(),
            ];
            for message in refused {
                for word in [JOURNAL, "`localpool state set-aside journal`"] {
                    assert!(message.contains(word), "{message}");
                }
            }
            assert_eq!(blank.write_count(), 0, "{damaged}");
        }
        assert_eq!(host.state().load(JOURNAL).expect("read").as_deref(), Some(&*damaged), "it is as it was");
        host.unplug("fake2");
    }
}

#[test]
fn what_a_tenant_wrote_into_a_bare_device_is_not_read_while_the_journal_is_damaged_nor_after_it_was_set_aside() {
    // A disk that an agent of this node labelled, copied byte by byte.
    let elsewhere = Arc::new(FakeHost::default());
    let forged = elsewhere.add_disk("fake0", "SERIAL-9", geometry());
    start(&elsewhere, &Layout::Carved {}).passes().expect("claims");
    let (host, [_, device], text) = pool();
    device.put_content(forged.content());
    let before = device.content();
    host.state().store(JOURNAL, &text.replace(':', ";")).expect("stored");
    let bare = |pass: &PassReport| {
        pass.snapshot.devices.iter().find(|device| device.raw.name == "fake1").cloned().expect("here")
    };

    let mut node = start(&host, &Layout::Carved {});
    let pass = node.passes().expect("a pass");
    assert_eq!((node.pool.labelled_disks().len(), bare(&pass).label), (1, None));
    node.agent.verb(&Verb::SetAsideJournal { run: Run::Real }).expect("done");
    for layout in [Layout::Carved {}, Layout::RawDevice {}] {
        node = start(&host, &layout);
        let pass = node.passes().expect("a pass");
        assert_eq!((node.pool.labelled_disks().len(), bare(&pass).label), (1, None), "after a restart as well");
        assert!(device.content() == before, "it was written");
    }
}

#[test]
fn a_damaged_journal_is_kept_beside_a_new_one_and_its_bare_devices_are_left_until_they_are_adopted() {
    let (host, [_, device], text) = pool();
    let damaged = text.replace(':', ";");
    host.state().store(JOURNAL, &damaged).expect("stored");
    let mut node = start(&host, &Layout::RawDevice {});
    node.passes().expect("a pass");
    let lines = node.agent.verb(&Verb::SetAsideJournal { run: Run::Dry }).expect("said").join("\n");
    assert!(lines.contains("would keep") && lines.contains("SERIAL-1"), "{lines}");
    assert_eq!(host.state().load(JOURNAL).expect("read").as_deref(), Some(&*damaged), "a dry run does nothing");

    let lines = node.agent.verb(&Verb::SetAsideJournal { run: Run::Real }).expect("done").join("\n");
    let kept = lines.split_whitespace().find(|word| word.starts_with("journal.damaged-")).expect("its name");
    assert_eq!(host.state().load(kept).expect("read").as_deref(), Some(&*damaged));
    let refused = node.agent.verb(&Verb::SetAsideJournal { run: Run::Real }).expect_err("it is new").to_string();
    assert!(refused.contains("nothing is wrong with it"), "{refused}");

    let writes = device.write_count();
    for restart in [false, true] {
        if restart {
            node = start(&host, &Layout::RawDevice {});
        }
        let pass = node.passes().expect("a pass");
        assert!(node.pool.usable(id("labelled")).is_ok() && node.pool.bare_devices().is_empty());
        let shown = inventory(&node.pool, &pass);
        let note = shown.iter().find(|shown| shown.device.raw.name == "fake1").and_then(|shown| shown.note.clone());
        assert!(note.clone().is_some_and(|note| note.contains("localpool disk adopt /dev/fake1")), "{note:?}");
        host.add_disk("fake2", "SERIAL-2", geometry());
        node.passes().expect("a pass");
        assert_eq!(node.pool.bare_devices().len(), 1, "what is nobody's is claimed");
        let id = node.pool.bare_devices()[0].id.clone();
        node.pool.release(&node.pool.member(&id).expect("it is")).expect("released");
        node.agent.verb(&Verb::AdoptDisk { disk: "/dev/fake2".to_owned(), run: Run::Real }).expect("as before");
        host.unplug("fake2");
    }
    node.passes().expect("a pass");
    let adopt = |run| Verb::AdoptDisk { disk: "/dev/fake1".to_owned(), run };
    node.agent.verb(&adopt(Run::Dry)).expect("could be");
    node.passes().expect("a pass");
    assert!(node.pool.bare_devices().is_empty() && device.write_count() == writes);
    node.agent.verb(&adopt(Run::Real)).expect("a person says so");
    node.passes().expect("a pass");
    assert_eq!(node.pool.bare_devices().len(), 1, "blank, it is claimed again");
}
