//! What another program writes on a disk of the pool: it is seen, and not written over.

use std::sync::Arc;

use localpool::device::Verdict;
use localpool::device::label::Label;
use localpool::device::record::{Half, NewestCopy, read_label, write_label};
use localpool::host::fake::{FakeHost, Fault, Platter};
use localpool::host::table::{Entry, Name, Table, backup_bytes, primary_bytes, read_copies};
use localpool::host::{Extent, Geometry};
use localpool::pool::Standing;
use uuid::Uuid;

use crate::damage::{at_rest, shared};
use crate::node::{BLOCK, MIB, carved, geometry, request, standing, start};

/// What another program does to a disk.
type Program = Box<dyn FnOnce(&Platter) + Send>;

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
    let pass = node.agent.pass().expect("a pass");
    assert!(pass.problems["fake0"].contains("the label of node node-2"), "{:?}", pass.problems);
    assert!(disk.content() == before);
}

#[test]
fn what_comes_between_the_last_scan_and_the_claim_is_seen_and_not_written_over() {
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
        let mut output = String::new();
        for _ in 0..3 {
            output += &node.agent.pass().expect("a pass").problems.remove("fake0").unwrap_or_default();
        }
        assert!(output.contains("not blank any more"), "{output}");
        assert_eq!((node.pool.members().len(), disk.write_count()), (0, writes), "nothing was written");
    }
}

#[test]
fn space_of_an_unknown_partition_that_came_and_went_is_never_called_clean() {
    let host = Arc::new(FakeHost::default());
    let disk = host.add_disk("fake0", "SERIAL-1", Geometry { offloads_zeroes: false, ..geometry() });
    let mut node = start(&host);
    node.passes().expect("claims");
    node.pool.work_until_idle().expect("cleans all");
    drop(node);
    let table = read_copies(&shared(&disk)).primary.expect("our table");
    let extent = Extent { start: 20 * MIB, end: 30 * MIB };
    let (kind, guid) = (Uuid::from_u128(0x7e15), Uuid::from_u128(9));
    let unknown_partition = Entry { kind, guid, extent, attributes: 0, name: Name::tail("theirs") };
    let put = |table: &Table| {
        disk.poke(512, &primary_bytes(table));
        let backup = backup_bytes(table);
        disk.poke(64 * MIB - backup.len() as u64, &backup);
    };
    put(&table.with(7, Some(unknown_partition)).expect("room"));
    node = start(&host);
    node.passes().expect("a pass");
    drop(node);
    disk.poke(extent.start + MIB, &[0xaa; 4096]);
    put(&table);

    node = start(&host);
    node.passes().expect("a pass");
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
        let pass = node.passes().expect("a pass");
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
        node.passes().expect("a pass");
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
    node.passes().expect("a pass");
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
    let pass = node.passes().expect("a pass");
    assert!(disk.content() == before, "something was written: {:?}", pass.snapshot.devices[0].verdict);
}
