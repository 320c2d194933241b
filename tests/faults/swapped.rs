//! A disk whose place another one takes, or whose size the kernel and the table count differently, under background work.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use localpool::device::label::{ErasePolicy, Layout};
use localpool::host::fake::{FakeHost, Platter};
use localpool::host::{FsKind, Geometry, Host};
use localpool::pool::{Standing, WantedUsage};
use localpool::volume::{MountWish, NodeVolumes, PublishRequest, StageRequest, VolumeId, VolumeLocks};

use crate::fake_node::{MIB, Node, id, request, rule};
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

fn bare(host: &Arc<FakeHost>) -> Node {
    let mut node =
        Node::start(host, vec![rule(&Layout::RawDevice {}, ErasePolicy::Discard)], Duration::ZERO).expect("starts");
    node.passes().expect("looks");
    node
}

/// A bare device with volume `a` comes back as fake1, and as long as its opening hangs there another tenant's disk has its old
/// name; `does` is done meanwhile. Gives what it gave, once the opening is over, and whether the other disk is as it was.
fn while_another_has_its_name<T: Send + 'static>(
    usage: WantedUsage,
    does: impl AsyncFnOnce(&NodeVolumes) -> T + Send + 'static,
) -> (T, Arc<FakeHost>, bool) {
    let host = Arc::new(FakeHost::default());
    let one = host.add_disk("fake0", "serial-0", geometry());
    let mut node = bare(&host);
    node.pool.create(&request("a", usage, MIB)).expect("made");
    host.unplug("fake0");
    host.plug("fake1", "serial-0", Arc::clone(&one));
    one.set_hangs_at(Some("open"));
    let pool = Arc::clone(&node.pool);
    let looking = thread::spawn(move || drop(node.agent.pass()));
    one.until_somebody_waits();
    // Its old handle is closed by now, so that its name is free.
    let other = host.add_disk("fake0", "serial-7", geometry());
    other.poke(0, &[0x77; 4096]);
    let before = other.content();
    let machine: Arc<dyn Host> = Arc::clone(&host) as Arc<dyn Host>;
    let volumes = NodeVolumes::new(machine, pool, VolumeLocks::default());
    let doing = thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(does(&volumes))
    });
    // What waits for the device's lock gets it only after its opening.
    thread::sleep(Duration::from_millis(300));
    one.set_hangs_at(None);
    looking.join().expect("no bug");
    let done = doing.join().expect("no bug");
    (done, host, other.content() == before)
}

#[test]
fn while_a_bare_device_is_opened_under_another_name_nothing_is_published_from_its_old_one() {
    let (published, host, _) = while_another_has_its_name(BLOCK, async |volumes| {
        let publish = PublishRequest {
            id: VolumeId::of_name("a"),
            staging: "/staging".to_owned(),
            target: "/target".to_owned(),
            wish: MountWish::Block,
            read_only: false,
            single_target: false,
        };
        volumes.publish(publish).await.map_err(|e| e.to_string())
    });
    assert!(published.is_err(), "published from another disk: {:?}", host.mounts().table());
}

#[test]
fn while_a_bare_device_is_opened_under_another_name_no_filesystem_is_made_on_what_has_its_old_one() {
    let ext4 = WantedUsage::Mount(Some(FsKind::Ext4));
    let (staged, _, is_as_it_was) = while_another_has_its_name(ext4, async |volumes| {
        let stage = StageRequest {
            id: VolumeId::of_name("a"),
            staging: "/staging".to_owned(),
            wish: MountWish::Mount { fs: None, flags: Vec::new() },
        };
        volumes.stage(stage).await.map_err(|e| e.to_string())
    });
    assert!(is_as_it_was, "a filesystem was made on another disk: {staged:?}");
}
