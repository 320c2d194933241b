//! A disk that is replaced by another one, or whose size differs between the kernel and the table, under background
//! work.

use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use localpool::device::label::{ErasePolicy, Layout};
use localpool::host::fake::{FakeHost, Platter};
use localpool::host::{Extent, FsKind, Geometry, Host, Mounts as _};
use localpool::pool::{Standing, WantedUsage};
use localpool::volume::{AccessType, NodeVolumes, PublishRequest, StageRequest, TargetAccess, VolumeId, VolumeLocks};

use crate::node::{BLOCK, MIB, Node, carved, geometry, id, request, rule, start};

#[test]
fn what_was_erased_on_one_disk_is_not_written_down_as_erased_on_its_copy() {
    let (host, disk, mut node) = carved();
    node.pool.create(&request("a", BLOCK, 8 * MIB)).expect("made");
    node.pool.work_until_idle().expect("mirrors");
    let at = disk.mapping(2).expect("mapped");
    disk.poke(at.start + 300 * 1024, &[0x77; 4096]);
    node.pool.delete(id("a")).expect("deleted");
    node.passes().expect("a pass");
    disk.set_hangs_at(Some("zero"));
    let member = node.pool.members()[0].clone();
    let working = thread::spawn(move || drop(member.work()));
    disk.until_somebody_waits();
    let copy: Arc<Platter> = host.add_disk("fake1", "SERIAL-9", geometry());
    copy.put_content(disk.content());
    host.unplug("fake0");
    node.passes().expect("a pass");
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
    node.passes().expect("a pass");
    let writes = disk.write_count();
    node.passes().expect("a pass");
    assert_eq!(disk.write_count(), writes, "it is closed and opened again by each pass");
}

fn bare(host: &Arc<FakeHost>) -> Node {
    let mut node =
        Node::start(host, vec![rule(&Layout::RawDevice {}, ErasePolicy::Discard)], Duration::ZERO).expect("starts");
    node.passes().expect("a pass");
    node
}

/// The worker has looked at the device as it was, and then a pass notices that it is larger.
#[test]
fn what_a_bare_device_gained_while_its_erasure_came_to_its_end_is_erased_and_offered() {
    let host = Arc::new(FakeHost::default());
    let disk = host.add_disk("fake0", "serial-0", geometry());
    let mut node = bare(&host);
    node.pool.create(&request("a", BLOCK, MIB)).expect("made");
    node.pool.delete(id("a")).expect("deleted");
    let device = node.pool.bare_devices()[0].clone();
    while device.disk_view().expect("claimed").erasure.left > 0 {
        device.work().expect("erases");
    }
    disk.set_hangs_at(Some("read"));
    let worker = device.clone();
    let working = thread::spawn(move || worker.work().map(drop));
    disk.until_somebody_waits();
    // What it reads under the lock comes before what it reads beside the passes.
    while device.lock_within(Duration::from_millis(100)).is_err() {
        disk.let_one_through();
        disk.until_somebody_waits();
    }
    host.unplug("fake0");
    let grown = host.add_disk("fake0", "serial-0", Geometry { size: 2 * geometry().size, ..geometry() });
    grown.put_content(disk.content());
    grown.poke(geometry().size + MIB, &[0x77; 4096]);
    node.passes().expect("a pass");
    disk.set_hangs_at(None);
    let _ = working.join().expect("no bug");
    node.passes().expect("a pass");
    node.pool.work_until_idle().expect("erases");
    let view = node.pool.bare_devices()[0].disk_view().expect("claimed");
    assert_eq!((view.size, view.free), (2 * geometry().size, 2 * geometry().size));
    node.pool.create(&request("b", BLOCK, 2 * geometry().size)).expect("made");
    assert!(grown.is_zero(Extent { start: 0, end: 2 * geometry().size }), "bytes of a are in b");
}

/// A bare device with volume `a` comes back as fake1. While its opening hangs, another tenant's disk has its old name,
/// and `does` runs. After the opening, returns the result of `does`, and whether the other disk is unchanged.
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
    // By now its old handle is closed, so its name is free.
    let other = host.add_disk("fake0", "serial-7", geometry());
    other.poke(0, &[0x77; 4096]);
    let before = other.content();
    let machine: Arc<dyn Host> = Arc::clone(&host) as Arc<dyn Host>;
    let volumes = NodeVolumes::new(machine, pool, VolumeLocks::default());
    let doing = thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(does(&volumes))
    });
    // Whoever waits for the device's lock gets it only after the opening.
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
            access_type: AccessType::Block,
            access: TargetAccess::ReadWrite,
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
            access_type: AccessType::Mount { fs: None, flags: Vec::new() },
        };
        volumes.stage(stage).await.map_err(|e| e.to_string())
    });
    assert!(is_as_it_was, "a filesystem was made on another disk: {staged:?}");
}

fn publish(name: &str, access_type: AccessType, access: TargetAccess) -> PublishRequest {
    PublishRequest {
        id: VolumeId::of_name(name),
        staging: format!("/staging-{name}"),
        target: format!("/target-{name}"),
        access_type,
        access,
        single_target: false,
    }
}

/// What is mounted, by target, in order.
fn targets(host: &FakeHost) -> Vec<String> {
    let table = host.mounts.table().expect("it is memory");
    table.iter().map(|mount| mount.target.display().to_string()).collect()
}

/// The bare device of `x` is gone, and another disk, with its kernel name, has `y`: taking down one must not take down
/// the other.
async fn x_is_away_and_y_has_its_name(usage: WantedUsage, access_type: AccessType) {
    let host = Arc::new(FakeHost::default());
    host.add_disk("fake0", "serial-0", geometry());
    let mut node = bare(&host);
    node.pool.create(&request("x", usage, MIB)).expect("made");
    assert_eq!(node.pool.volume(id("x")).expect("there").node, Path::new("/dev/fake0"));
    host.unplug("fake0");
    let other = host.add_disk("fake0", "serial-7", geometry());
    node.passes().expect("claims the other");
    node.pool.create(&request("y", usage, MIB)).expect("made");
    assert_eq!(node.pool.volume(id("x")).expect("known").standing, Standing::Missing);
    assert_eq!(node.pool.volume(id("y")).expect("there").node, Path::new("/dev/fake0"));

    let machine: Arc<dyn Host> = Arc::clone(&host) as Arc<dyn Host>;
    let volumes = NodeVolumes::new(machine, Arc::clone(&node.pool), VolumeLocks::default());
    let [x, y] = ["x", "y"].map(VolumeId::of_name);
    let is_mounted = matches!(access_type, AccessType::Mount { .. });
    let stage = |name: &str| StageRequest {
        id: VolumeId::of_name(name),
        staging: format!("/staging-{name}"),
        access_type: access_type.clone(),
    };
    volumes.stage(stage("y")).await.expect("y is here");
    volumes.publish(publish("y", access_type.clone(), TargetAccess::of(!is_mounted))).await.expect("y is here");
    let (before, writes, mounted) = (other.content(), other.write_count(), targets(&host));
    let is_read_only = || host.mounts.is_read_only(Path::new("/dev/fake0")).expect("it is memory");
    let check = |after: &str| {
        assert!(other.content() == before && other.write_count() == writes, "{after}: the disk of y was written");
        assert_eq!(targets(&host), mounted, "{after}");
        assert_eq!(other.is_in_use(0), is_mounted, "{after}");
        assert_eq!(is_read_only(), !is_mounted, "{after}");
    };

    volumes.stage(stage("x")).await.expect_err("x is away");
    volumes.publish(publish("x", access_type.clone(), TargetAccess::ReadWrite)).await.expect_err("x is away");
    check("x was to be published");
    for path in ["/target-y", "/staging-y"].iter().filter(|path| mounted.contains(&(**path).to_owned())) {
        volumes.unpublish(x, path).await.expect_err("y is there");
        volumes.unstage(x, path).await.expect_err("y is there");
        let stats = volumes.stats(x, path).await.expect("of x it says that it is missing");
        assert!(stats.usage.is_none() && stats.condition.word() == "DiskMissing", "{stats:?}");
    }
    check("x was to be taken down where y is");
    volumes.unpublish(x, "/target-x").await.expect("nothing is there");
    volumes.unstage(x, "/staging-x").await.expect("nothing is there");
    check("x was taken down");
    node.passes().expect("a pass");
    check("the agent looked");

    volumes.unpublish(y, "/target-y").await.expect("x has nothing to do with it");
    volumes.unstage(y, "/staging-y").await.expect("x has nothing to do with it");
    assert_eq!(targets(&host), Vec::<String>::new());
    assert!(!other.is_in_use(0) && !is_read_only());
    assert_eq!(node.pool.volume(id("x")).expect("known").standing, Standing::Missing);
    node.pool.delete(id("y")).expect("as any other");
    node.pool.delete(id("x")).expect_err("nobody knows what is on its device");
}

#[tokio::test]
async fn a_published_device_that_has_the_name_of_a_missing_one_is_left_when_that_is_taken_down_and_comes_down_itself() {
    x_is_away_and_y_has_its_name(BLOCK, AccessType::Block).await;
}

#[tokio::test]
async fn a_mounted_device_that_has_the_name_of_a_missing_one_is_left_when_that_is_taken_down_and_comes_down_itself() {
    let ext4 = WantedUsage::Mount(Some(FsKind::Ext4));
    x_is_away_and_y_has_its_name(ext4, AccessType::Mount { fs: None, flags: Vec::new() }).await;
}
