//! A state directory that was lost, on a node whose volumes others still know of.

mod fake_node;

use std::sync::Arc;
use std::time::Duration;

use fake_node::{MIB, Node, id, request, rule};
use localpool::agent::{Verb, inventory};
use localpool::device::label::{ErasePolicy, Layout};
use localpool::host::Geometry;
use localpool::host::fake::{FakeHost, Platter};
use localpool::pool::{LostVolume, PoolError, WantedUsage};

const BLOCK: WantedUsage = WantedUsage::Block;

type Told = Result<Vec<(String, Option<LostVolume>)>, String>;

fn geometry() -> Geometry {
    Geometry { size: 64 * MIB, sector: 512, offloads_zeroes: true }
}

/// A node that is told of volumes.
fn start(host: &Arc<FakeHost>, layout: &Layout, told: &Told) -> Node {
    let node = Node::start(host, vec![rule(layout, ErasePolicy::Discard)], Duration::ZERO).expect("starts");
    let told = told.clone();
    let Node { pool, agent } = node;
    Node { pool, agent: agent.asking_for_own(Box::new(move || told.clone())) }
}

/// A bare device with a volume, and what its object says.
fn pool() -> (Arc<FakeHost>, Arc<Platter>, Told) {
    let host = Arc::new(FakeHost::default());
    let device = host.add_disk("fake0", "SERIAL-0", geometry());
    let mut node = start(&host, &Layout::RawDevice {}, &Ok(Vec::new()));
    node.passes().expect("claims");
    let (view, _) = node.pool.create(&request("a", BLOCK, MIB)).expect("made");
    let volume = LostVolume { id: view.id, set: view.set, record: view.record.expect("described") };
    (host, device, Ok(vec![(view.disk, Some(volume))]))
}

/// The state directory is lost, and the disk has another serial since: a new machine, another driver, a quirk of a kernel.
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
    // Another disk of the size is no suspect once it was read.
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
    // Lost, or from before the volume: then the agent knows of it when it would claim.
    for older in [None, Some("{\"format\": 1}")] {
        host.state.lose();
        if let Some(text) = older {
            localpool::host::Host::state(&*host).store("journal.json", text).expect("stored");
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
    let adopt = |dry_run| Verb::AdoptDisk { disk: "/dev/fake0".to_owned(), dry_run };
    let said = node.agent.verb(&adopt(true)).expect("could be").join("\n");
    assert!(said.contains("would take") && said.contains(&id("a").to_string()), "{said}");
    node.agent.verb(&adopt(false)).expect("a person says so");
    node.passes().expect("looks");
    assert!(node.pool.usable(id("a")).is_ok());
    assert_eq!(device.write_count(), writes, "its data is as it was");
    node.pool.delete(id("a")).expect("as any other");
}

#[test]
fn a_label_that_a_tenant_wrote_joins_no_pool_after_the_state_directory_was_lost() {
    let elsewhere = Arc::new(FakeHost::default());
    let forged = elsewhere.add_disk("fake0", "SERIAL-9", geometry());
    start(&elsewhere, &Layout::Carved {}, &Ok(Vec::new())).passes().expect("claims");
    let (host, device, told) = pool();
    device.put_content(forged.content());
    host.state.lose();
    let mut node = start(&host, &Layout::Carved {}, &Err("no answer".to_owned()));
    let refused = node.passes().expect_err("nobody has told yet");
    assert!(refused.contains("no answer"), "{refused}");
    for told in [&told, &Err("no answer".to_owned())] {
        node = start(&host, &Layout::Carved {}, told);
        node.passes().expect("looks");
        assert!(node.pool.members().is_empty() && device.content() == forged.content());
    }
}
