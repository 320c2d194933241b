//! Disks of the pool with damage: sectors that cannot be read, and partitions that somebody else has.

mod fake_node;

use std::sync::Arc;
use std::time::Duration;

use fake_node::{MIB, Node, id, request, rule};
use localpool::device::label::{ErasePolicy, Layout, VolumeRecord};
use localpool::device::record::{Sequenced, read_label};
use localpool::host::fake::{FakeHost, Fault, Platter};
use localpool::host::{Access, Extent, FsKind, Geometry, Host};
use localpool::pool::apply::agent::Agent;
use localpool::pool::apply::member::{Standing, VolumeView};
use localpool::pool::apply::pool::{Owner, Pool, WantedUsage, Workers};

const BLOCK: WantedUsage = WantedUsage::Block;

fn geometry() -> Geometry {
    Geometry { size: 64 * MIB, sector: 512, offloads_zeroes: true }
}

fn carved() -> (Arc<FakeHost>, Arc<Platter>, Node) {
    let host = Arc::new(FakeHost::default());
    let disk = host.add_disk("fake0", "SERIAL-1", geometry());
    let mut node = start(&host);
    node.passes().expect("claims");
    (host, disk, node)
}

fn start(host: &Arc<FakeHost>) -> Node {
    Node::start(host, vec![rule(&Layout::Carved {}, ErasePolicy::Discard)], Duration::ZERO).expect("starts")
}

fn standing(node: &Node) -> Standing {
    node.pool.members()[0].lock().standing()
}

/// Two volumes on a disk at rest; what is on it, and what is said of the volumes.
fn at_rest(sector: u32) -> (Arc<FakeHost>, Arc<Platter>, Vec<VolumeView>) {
    let host = Arc::new(FakeHost::default());
    let disk = host.add_disk("fake0", "SERIAL-1", Geometry { sector, ..geometry() });
    let mut node = start(&host);
    node.passes().expect("claims");
    let ext4 = WantedUsage::Mount(Some(FsKind::Ext4));
    node.pool.create(&request("fs", ext4, 16 * MIB)).expect("room");
    node.pool.mark_formatted(id("fs")).expect("written");
    node.pool.create(&request("raw", BLOCK, MIB)).expect("room");
    node.pool.work_until_idle().expect("writes the older label copy, too");
    (host, disk, node.pool.volumes())
}

#[test]
fn each_sector_of_table_and_label_that_cannot_be_read_is_written_again_and_costs_no_volume() {
    for sector in [512, 4096] {
        let (host, disk, volumes) = at_rest(sector);
        let content = disk.content();
        let sector = u64::from(sector);
        let copy = sector + (128 * 128_u64).next_multiple_of(sector);
        let end = disk.geometry.size;
        for area in [0..sector + copy, end - copy..end, MIB..2 * MIB] {
            for start_of in area.clone().step_by(usize::try_from(sector).expect("small")) {
                let lost = Extent { start: start_of, end: start_of + sector };
                disk.put_content(content.clone());
                disk.lose(lost);
                let mut node = start(&host);
                let pass = node.passes().expect("looks");
                assert!(pass.problems.is_empty(), "{lost}: {:?}", pass.problems);
                assert_eq!(node.pool.volumes(), volumes, "{lost}");
                for volume in &volumes {
                    node.pool.usable(volume.id).unwrap_or_else(|e| panic!("{lost}: {e}"));
                }
                // Of the label's room only its text is read, and matters.
                if area.start != MIB || start_of % (MIB / 2) < 4096 {
                    assert!(disk.is_readable(lost), "{lost} is written again");
                }
            }
        }
    }
}

#[test]
fn a_sector_of_a_table_that_is_lost_under_a_running_disk_fails_no_request() {
    for (start_of, end) in [(0, 512), (512, 1024), (1024, 1536), (64 * MIB - 512, 64 * MIB)] {
        let (_host, disk, node) = carved();
        let lost = Extent { start: start_of, end };
        disk.lose(lost);
        node.pool.create(&request("new", BLOCK, MIB)).unwrap_or_else(|e| panic!("{lost}: {e}"));
        assert_eq!(standing(&node), Standing::Ready);
    }
}

#[test]
fn a_sector_that_cannot_be_written_again_keeps_its_disk_out_and_says_so() {
    let (host, disk, _) = at_rest(512);
    let header = Extent { start: 512, end: 1024 };
    disk.lose(header);
    disk.inject(Fault { what: "write", range: header, times: u32::MAX });
    let mut node = start(&host);
    let pass = node.passes().expect("looks");
    assert!(pass.problems["fake0"].contains("could not mend the partition table"), "{:?}", pass.problems);
    disk.clear_faults();
    node.passes().expect("looks");
    node.pool.usable(id("fs")).expect("back");
}

#[test]
fn what_a_change_wrote_is_soon_in_both_label_copies_without_anybody_asking() {
    let host = Arc::new(FakeHost::default());
    host.add_disk("fake0", "SERIAL-1", geometry());
    let machine: Arc<dyn Host> = Arc::clone(&host) as Arc<dyn Host>;
    let owner = Owner { cluster: "test".to_owned(), node: "node-1".to_owned() };
    let pool = Arc::new(Pool::open(Arc::clone(&machine), owner, Workers::Threads).expect("a pool"));
    let rules = vec![rule(&Layout::Carved {}, ErasePolicy::Discard)];
    let mut agent = Agent::new(Arc::clone(&machine), Arc::clone(&pool), Duration::ZERO, rules);
    for _ in 0..3 {
        agent.pass().expect("looks");
    }
    let raw = machine.scan().expect("a scan").remove(0);
    let disk = machine.open(&raw, Access::Look).expect("opens");
    let settles = |what: &dyn Fn(&VolumeRecord) -> bool| {
        for _ in 0..1000 {
            let copies = read_label(&*disk);
            let says = |copy: &Result<Sequenced, _>| {
                copy.as_ref().is_ok_and(|copy| copy.label.volumes.get(&id("new")).is_some_and(what))
            };
            if says(&copies.a) && says(&copies.b) {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("one copy stays behind");
    };
    pool.create(&request("new", WantedUsage::Mount(Some(FsKind::Ext4)), 16 * MIB)).expect("made");
    settles(&|_| true);
    pool.mark_formatted(id("new")).expect("written");
    settles(&|record| record.fs_size == 16 * MIB);
    pool.expand(id("new"), 20 * MIB, None).expect("room");
    settles(&|record| record.required == 20 * MIB);
    pool.mark_grown(id("new"), 20 * MIB).expect("written");
    settles(&|record| record.fs_size == 20 * MIB);
    pool.stop();
}
