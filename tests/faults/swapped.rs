//! A disk whose place another one takes, or whose size the kernel and the table count differently, under background work.

use std::sync::Arc;
use std::thread;

use localpool::host::Geometry;
use localpool::host::fake::{FakeHost, Platter};
use localpool::pool::labelled::Standing;

use crate::fake_node::{MIB, id, request};
use crate::{BLOCK, carved, geometry, start};

#[test]
fn what_was_erased_on_one_disk_is_not_written_down_as_erased_on_its_copy() {
    let (host, disk, mut node) = carved();
    node.pool.create(&request("a", BLOCK, 8 * MIB)).expect("made");
    node.pool.work_until_idle().expect("mirrors");
    let at = disk.mapping(2).expect("mapped");
    disk.poke(at.start + 300 * 1024, &[0x77; 4096]);
    node.pool.delete(id("a")).expect("deleted");
    node.passes().expect("looks");
    disk.set_hangs_at(Some("zero"));
    let member = node.pool.members()[0].clone();
    let working = thread::spawn(move || drop(member.work()));
    disk.until_somebody_waits();
    let copy: Arc<Platter> = host.add_disk("fake1", "SERIAL-9", geometry());
    copy.put_content(disk.content());
    host.unplug("fake0");
    node.passes().expect("looks");
    assert_eq!(node.pool.labelled_disks()[0].shown().standing, Standing::Ready);
    disk.set_hangs_at(None);
    working.join().expect("no bug");
    node.pool.work_until_idle().expect("erases");
    let mut bytes = vec![0; 8 << 20];
    copy.peek(at.start, &mut bytes);
    let dirty = bytes.iter().filter(|byte| **byte != 0).count();
    let made = node.pool.create(&request("z", BLOCK, 50 * MIB));
    copy.peek(at.start, &mut bytes);
    let seen = bytes.iter().filter(|byte| **byte != 0).count();
    assert_eq!((dirty, seen), (0, 0), "bytes of a are in z: {made:?}");
}

#[test]
fn a_disk_that_ends_inside_a_sector_is_opened_once() {
    let host = Arc::new(FakeHost::default());
    let disk = host.add_disk("fake0", "SERIAL-1", Geometry { sector: 4096, ..geometry() });
    host.edit("fake0", |raw| raw.size += 512);
    let mut node = start(&host);
    node.passes().expect("claims");
    node.pool.create(&request("a", BLOCK, MIB)).expect("made");
    node.pool.work_until_idle().expect("mirrors");
    node.passes().expect("looks");
    let writes = disk.write_count();
    node.passes().expect("looks");
    assert_eq!(disk.write_count(), writes, "it is closed and opened again by each pass");
}
