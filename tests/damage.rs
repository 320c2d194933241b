//! Disks of the pool with damage: sectors that cannot be read, and partitions that others use.

mod fake_node;

use std::sync::Arc;
use std::time::Duration;

use fake_node::{MIB, Node, id, request, rule};
use localpool::agent::Reconciler;
use localpool::device::{
    Owner, Verdict,
    label::{ErasePolicy, Label, Layout, VolumeRecord},
    record::{Half, NewestCopy, Sequenced, read_label, write_label},
};
use localpool::host::{
    Access, Extent, FsKind, Geometry, Host,
    fake::{FakeDisk, FakeHost, Fate, Fault, Platter},
    table::{Entry, Name, Table, backup_bytes, primary_bytes, read_copies},
};
use localpool::pool::{JOURNAL, Pool, PoolError, Selector, Standing, VolumeView, WantedUsage, Workers};
use uuid::Uuid;

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
    node.pool.labelled_disks()[0].lock().standing()
}

/// Two volumes on a disk at rest; the disk, and how the volumes are reported.
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
        let journal = host.state().load(JOURNAL).expect("read").expect("there is one");
        let sector = u64::from(sector);
        let copy = sector + (128 * 128_u64).next_multiple_of(sector);
        let end = disk.geometry.size;
        for area in [0..sector + copy, end - copy..end, MIB..2 * MIB] {
            for start_of in area.clone().step_by(usize::try_from(sector).expect("small")) {
                let lost = Extent { start: start_of, end: start_of + sector };
                disk.put_content(content.clone());
                host.state().store(JOURNAL, &journal).expect("the state of that time");
                disk.lose(lost);
                let mut node = start(&host);
                let pass = node.passes().expect("looks");
                assert!(pass.problems.is_empty(), "{lost}: {:?}", pass.problems);
                assert_eq!(node.pool.volumes(), volumes, "{lost}");
                for volume in &volumes {
                    node.pool.usable(volume.id).unwrap_or_else(|e| panic!("{lost}: {e}"));
                }
                // In the space of the label only its text is read, and matters.
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
fn what_somebody_has_of_a_deleted_volume_keeps_out_only_itself_and_is_erased_when_it_is_let_go() {
    let (host, disk, mut node) = carved();
    node.pool.create(&request("gone", BLOCK, 8 * MIB)).expect("room");
    node.pool.create(&request("kept", BLOCK, MIB)).expect("room");
    let extent = Extent { start: 2 * MIB, end: 10 * MIB };
    disk.poke(extent.start, &[0xaa; 4096]);
    node.pool.delete(id("gone")).expect("unused");
    drop(node);
    host.reboot(Fate::Whole);
    // The host's LVM has found an earlier tenant's volume group in it.
    disk.set_in_use(2, true);

    node = start(&host);
    let pass = node.passes().expect("looks");
    assert!(pass.problems.is_empty(), "{:?}", pass.problems);
    assert!(pass.ripe_in.is_some(), "no event tells when it is let go");
    node.pool.usable(id("kept")).expect("its neighbour has nothing to do with it");
    let view = &node.pool.disk_views()[0];
    assert_eq!((&view.standing, view.erasing), (&Standing::Ready, 8 * MIB));
    assert!(view.held.as_ref().is_some_and(|held| held.contains("fake0p2 is in use")), "{:?}", view.held);
    node.pool.work_until_idle().expect("there is nothing that it could do");
    assert!(!disk.is_zero(extent), "it is not erased under who has it");
    node.pool.delete(id("kept")).expect("unused");
    node.pool.work_until_idle().expect("erases");
    assert_eq!(node.pool.disk_views()[0].erasing, 8 * MIB, "and what comes after it is erased");
    let member = node.pool.members().remove(0);
    assert!(node.pool.release(&member).is_err(), "a disk of which somebody has a part is not given back");

    disk.set_in_use(2, false);
    node.agent.pass().expect("looks");
    node.pool.work_until_idle().expect("erases");
    let view = &node.pool.disk_views()[0];
    assert_eq!((&view.held, view.erasing, disk.mapping(2)), (&None, 0, None));
    assert!(disk.is_zero(extent));
}

#[test]
fn a_free_slot_that_somebody_has_is_not_offered_and_what_he_wrote_is_never_shown_to_a_tenant() {
    let host = Arc::new(FakeHost::default());
    let disk = host.add_disk("fake0", "SERIAL-1", Geometry { offloads_zeroes: false, ..geometry() });
    let slots = || vec![rule(&Layout::Slots { size: None, count: Some(2) }, ErasePolicy::Discard)];
    let start = || Node::start(&host, slots(), Duration::ZERO).expect("starts");
    let mut node = start();
    node.passes().expect("claims");
    node.pool.work_until_idle().expect("cleans both");
    let whole = node.pool.capacity(&Selector::default(), BLOCK).available;
    drop(node);
    host.reboot(Fate::Whole);
    disk.set_in_use(2, true);

    node = start();
    node.passes().expect("looks");
    node.pool.work_until_idle().expect("nothing to do");
    assert_eq!(node.pool.capacity(&Selector::default(), BLOCK).available, whole / 2);
    let slot = disk.mapping(2).expect("the kernel still has it");
    disk.poke(slot.start + MIB, &[0xaa; 4096]);
    drop(node);
    // Whether or not the agent sees that it was let go.
    disk.set_in_use(2, false);
    node = start();
    node.passes().expect("looks");
    for name in ["one", "two"] {
        node.pool.work_until_idle().expect("cleans");
        node.pool.create(&request(name, BLOCK, MIB)).expect("a slot");
    }
    assert!(disk.is_zero(slot), "a raw block volume shows only zeros at first");
}

#[test]
fn a_delete_of_a_volume_in_use_says_who_has_it() {
    let (_host, disk, node) = carved();
    node.pool.create(&request("used", BLOCK, MIB)).expect("room");
    disk.set_in_use(2, true);
    let error = node.pool.delete(id("used")).expect_err("it is in use");
    assert!(matches!(error, PoolError::InUse { .. }) && error.to_string().ends_with("fake0p2 is in use"), "{error}");
}

#[test]
fn a_sector_that_cannot_be_written_again_keeps_its_disk_out_and_says_so() {
    let (host, disk, _) = at_rest(512);
    let header = Extent { start: 512, end: 1024 };
    disk.lose(header);
    disk.inject(Fault { what: "write", range: header, times: u32::MAX });
    let mut node = start(&host);
    let pass = node.passes().expect("looks");
    assert!(pass.problems["fake0"].contains("could not repair the partition table"), "{:?}", pass.problems);
    disk.clear_faults();
    node.passes().expect("looks");
    node.pool.usable(id("fs")).expect("back");
}

#[test]
fn a_sector_of_free_space_that_cannot_be_zeroed_keeps_no_other_space_from_being_cleaned() {
    let host = Arc::new(FakeHost::default());
    let disk = host.add_disk("fake0", "SERIAL-1", Geometry { offloads_zeroes: false, ..geometry() });
    let mut node = start(&host);
    node.passes().expect("claims");
    let bad = Extent { start: 20 * MIB, end: 20 * MIB + 512 };
    disk.inject(Fault { what: "zero", range: bad, times: u32::MAX });
    let told = node.pool.work_until_idle().expect_err("it is told when all else is done");
    assert!(told.to_string().contains("clean"), "{told}");
    let left = node.pool.labelled_disks()[0].lock().content().dirty();
    assert!(left.contains(&bad) && left.total() <= 16 * MIB, "{left:?}");
    assert!(!node.pool.labelled_disks()[0].lock().is_unmirrored(), "nor the label from its second copy");
    node.pool.create(&request("a", BLOCK, MIB)).expect("room");
    disk.clear_faults();
    node.passes().expect("looks");
    node.pool.work_until_idle().expect("cleaned");
    assert!(node.pool.labelled_disks()[0].lock().content().dirty().is_empty());
}

/// A machine with a disk of the pool, whose background work is done by threads.
fn with_workers() -> (Arc<dyn Host>, Arc<Platter>, Arc<Pool>) {
    let host = Arc::new(FakeHost::default());
    let platter = host.add_disk("fake0", "SERIAL-1", geometry());
    let machine: Arc<dyn Host> = Arc::clone(&host) as Arc<dyn Host>;
    let owner = Owner { cluster: "test".to_owned(), node: "node-1".into() };
    let pool = Arc::new(Pool::open(Arc::clone(&machine), owner, Workers::Threads).expect("a pool"));
    let rules = vec![rule(&Layout::Carved {}, ErasePolicy::Discard)];
    let mut agent = Reconciler::new(Arc::clone(&machine), Arc::clone(&pool), Duration::ZERO, rules);
    for _ in 0..3 {
        agent.pass().expect("looks");
    }
    (machine, platter, pool)
}

#[test]
fn what_a_change_wrote_is_soon_in_both_label_copies_without_anybody_asking() {
    let (machine, _, pool) = with_workers();
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

#[test]
fn a_stop_waits_for_background_work_that_is_about_to_end_so_that_both_tables_say_the_same() {
    let (_machine, platter, pool) = with_workers();
    pool.create(&request("one", BLOCK, 16 * MIB)).expect("made");
    pool.delete(id("one")).expect("deleted");
    // The erasure ends in a write of the tables.
    platter.set_hangs_at(Some("zero"));
    pool.kick();
    platter.until_somebody_waits();
    let answers = {
        let platter = Arc::clone(&platter);
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(50));
            platter.set_hangs_at(None);
        })
    };
    pool.stop();
    assert!(pool.members().iter().all(|member| !member.has_worker()), "somebody works on after the stop");
    pool.kick();
    assert!(pool.members().iter().all(|member| !member.has_worker()), "and somebody begins");
    answers.join().expect("no bug");
}

/// What another program does to a disk.
type Program = Box<dyn FnOnce(&Platter) + Send>;

/// The disk as seen by another node that shares it.
fn shared(disk: &Arc<Platter>) -> FakeDisk {
    FakeDisk { platter: Arc::clone(disk), name: "fake0".to_owned() }
}

#[test]
fn a_disk_that_another_node_labelled_meanwhile_is_not_opened_and_not_written() {
    let (_host, disk, mut node) = carved();
    let copies = read_label(&shared(&disk));
    let newest = [&copies.a, &copies.b].into_iter().flatten().max_by_key(|copy| copy.sequence).expect("a label");
    let theirs = Label { node: "node-2".into(), ..newest.label.clone() };
    for _ in 0..2 {
        let copies = read_label(&shared(&disk));
        let sequence = [&copies.a, &copies.b].into_iter().flatten().map(|copy| copy.sequence).max().expect("a label");
        let half = if copies.a.as_ref().is_ok_and(|copy| copy.sequence == sequence) { Half::A } else { Half::B };
        write_label(&shared(&disk), &theirs, Some(NewestCopy { half, sequence })).expect("written");
    }
    // The agent has to open it again, and relies on what it read before.
    disk.inject(Fault { what: "write", range: Extent { start: 2 * MIB, end: 64 * MIB }, times: 1 });
    node.pool.create(&request("new", BLOCK, MIB)).expect_err("a write fails");
    disk.clear_faults();
    let before = disk.content();
    let pass = node.agent.pass().expect("looks");
    assert!(pass.problems["fake0"].contains("the label of node node-2"), "{:?}", pass.problems);
    assert!(disk.content() == before);
}

#[test]
fn what_comes_between_the_last_look_and_the_claim_is_seen_and_not_written_over() {
    let dos = |disk: &Platter| disk.poke(510, &[0x55, 0xaa]);
    // Somebody's label with volumes, without its table, is not recognised by any probe.
    let (_, donor, node) = carved();
    node.pool.create(&request("v", BLOCK, MIB)).expect("room");
    node.pool.work_until_idle().expect("writes both copies");
    let mut label = vec![0; 65536];
    donor.peek(MIB, &mut label);
    let bereft = move |disk: &Platter| disk.poke(MIB, &label);
    let programs: [Program; 2] = [Box::new(dos), Box::new(bereft)];
    for program in programs {
        let host = Arc::new(FakeHost::default());
        let disk = host.add_disk("fake0", "SERIAL-1", geometry());
        let mut node = start(&host);
        let writes = disk.write_count();
        host.before_the_next_claim(program);
        let mut said = String::new();
        for _ in 0..3 {
            said += &node.agent.pass().expect("looks").problems.remove("fake0").unwrap_or_default();
        }
        assert!(said.contains("not blank any more"), "{said}");
        assert_eq!((node.pool.members().len(), disk.write_count()), (0, writes), "nothing was written");
    }
}

#[test]
fn space_of_a_foreign_partition_that_came_and_went_is_never_called_clean() {
    let host = Arc::new(FakeHost::default());
    let disk = host.add_disk("fake0", "SERIAL-1", Geometry { offloads_zeroes: false, ..geometry() });
    let mut node = start(&host);
    node.passes().expect("claims");
    node.pool.work_until_idle().expect("cleans all");
    drop(node);
    let table = read_copies(&shared(&disk)).primary.expect("our table");
    let extent = Extent { start: 20 * MIB, end: 30 * MIB };
    let (kind, guid) = (Uuid::from_u128(0x7e15), Uuid::from_u128(9));
    let foreign = Entry { kind, guid, extent, attributes: 0, name: Name::tail("theirs") };
    let put = |table: &Table| {
        disk.poke(512, &primary_bytes(table));
        let backup = backup_bytes(table);
        disk.poke(64 * MIB - backup.len() as u64, &backup);
    };
    put(&table.with(7, Some(foreign)).expect("room"));
    node = start(&host);
    node.passes().expect("looks");
    drop(node);
    disk.poke(extent.start + MIB, &[0xaa; 4096]);
    put(&table);

    node = start(&host);
    node.passes().expect("looks");
    assert!(!node.pool.labelled_disks()[0].lock().content().clean().contains(&extent));
    node.pool.work_until_idle().expect("cleans it");
    assert!(disk.is_zero(extent));
}

#[test]
fn a_filesystem_that_was_made_over_a_table_of_ours_is_not_written_over() {
    let ext4 = (0, 2048, 1080, [0x53, 0xef].as_slice());
    let xfs = (0, 4096, 0, b"XFSB".as_slice());
    let lvm = (0, 2048, 512, b"LABELONE".as_slice());
    // Beside a sound MBR and header, in the entries; and in place of the MBR alone.
    let md_behind = (4096, 4352, 4096, [0xfc, 0x4e, 0x2b, 0xa9].as_slice());
    let md_in_front = (0, 256, 0, [0xfc, 0x4e, 0x2b, 0xa9].as_slice());
    let words = ["ext4", "xfs", "LVM", "md array", "md array"];
    for ((start_of, end, at, magic), word) in [ext4, xfs, lvm, md_behind, md_in_front].into_iter().zip(words) {
        // mkfs leaves the MBR's place zero.
        let (host, disk, volumes) = at_rest(512);
        let whole = disk.content();
        let first = if start_of == 0 { 510 } else { start_of };
        disk.poke(start_of, &vec![0; usize::try_from(end.max(first + 2) - start_of).expect("short")]);
        disk.poke(at, magic);
        let before = disk.content();
        let mut node = start(&host);
        let pass = node.passes().expect("looks");
        let verdict = pass.snapshot.devices[0].verdict.clone();
        assert!(disk.content() == before, "{word}: it was written over, {verdict:?}");
        let Verdict::Unknown(why) = verdict else { panic!("{word}: {verdict:?}") };
        assert!(why.contains(word) && why.contains("wipefs"), "{why}");
        assert!(node.pool.members().is_empty(), "{word}: {:?}", node.pool.disk_views());
        for name in volumes.iter().map(|volume| volume.id) {
            assert!(node.pool.delete(name).is_err(), "{word}: nobody knows that it is gone");
        }

        // A person removes it again.
        disk.poke(at, &vec![0; magic.len()]);
        node.agent.event(&"fake0".into());
        node.passes().expect("looks");
        assert_eq!(node.pool.volumes().len(), volumes.len(), "{word}");
        assert_eq!(standing(&node), Standing::Ready, "{word}");
        drop(node);
        let end_of_table = 34 * 512;
        let (mut was, mut is) = (vec![0; end_of_table], vec![0; end_of_table]);
        disk.peek(0, &mut is);
        disk.put_content(whole);
        disk.peek(0, &mut was);
        assert!(was == is, "{word}: the table is whole again");
    }
}

#[test]
fn a_filesystem_that_was_made_while_a_claim_or_a_release_was_stopped_is_not_written_over() {
    let (host, disk, volumes) = at_rest(512);
    let mut node = start(&host);
    node.passes().expect("looks");
    for volume in &volumes {
        node.pool.delete(volume.id).expect("deleted");
    }
    node.pool.work_until_idle().expect("erased");
    // Stopped after each of its writes; the copy at the end is the last but one.
    let member = node.pool.members().remove(0);
    let backup = Extent { start: disk.geometry.size - 33 * 512, end: disk.geometry.size };
    disk.inject(Fault { what: "zero", range: backup, times: u32::MAX });
    disk.inject(Fault { what: "write", range: backup, times: u32::MAX });
    assert!(node.pool.release(&member).is_err(), "it is stopped");
    drop(node);
    disk.clear_faults();
    disk.poke(1080, &[0x53, 0xef]);
    let before = disk.content();
    let mut node = start(&host);
    let pass = node.passes().expect("looks");
    assert!(disk.content() == before, "something was written: {:?}", pass.snapshot.devices[0].verdict);
}

#[test]
fn a_sector_that_cannot_be_zeroed_keeps_no_other_deleted_volume_from_being_erased() {
    for offloads_zeroes in [true, false] {
        let host = Arc::new(FakeHost::default());
        let disk = host.add_disk("fake0", "SERIAL-1", Geometry { offloads_zeroes, ..geometry() });
        let mut node = start(&host);
        node.passes().expect("claims");
        node.pool.work_until_idle().expect("cleans");
        let sick = node.pool.create(&request("sick", BLOCK, 4 * MIB)).expect("made").0;
        node.pool.create(&request("well", BLOCK, 4 * MIB)).expect("made");
        let extent = node.pool.labelled_disks()[0].shown().content.volume(sick.id).expect("there").entry.extent;
        let sector = Extent { start: extent.start + MIB, end: extent.start + MIB + 512 };
        disk.inject(Fault { what: "zero", range: sector, times: u32::MAX });
        for name in ["sick", "well"] {
            node.pool.delete(id(name)).expect("deleted");
        }
        for _ in 0..20 {
            // It fails and reports that; a pass has it tried again.
            let _ = node.pool.work_until_idle();
        }
        let erasing: Vec<u64> = node.pool.disk_views().iter().map(|view| view.erasing).collect();
        assert_eq!(erasing, [4 * MIB], "only what cannot be zeroed waits");
        disk.clear_faults();
        node.pool.work_until_idle().expect("erases");
        assert_eq!(node.pool.disk_views()[0].erasing, 0);
    }
}
