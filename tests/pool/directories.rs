//! Volumes that are folders of a filesystem on a disk of the pool.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use localpool::claim::{Provisioning, Rule};
use localpool::device::label::{ErasePolicy, Layout, Quota};
use localpool::host::fake::{FakeHost, Fault, Platter};
use localpool::host::{Extent, FilesystemRoot, FsKind, Geometry, Host, TargetAccess, TargetKind, chain};
use localpool::pool::{Change, CreateRequest, JOURNAL, PoolError, Standing, WantedUsage};

use crate::node::{BLOCK, MIB, MOUNT, Node, id, problem, request, rule};

const XFS: WantedUsage = WantedUsage::Mount(Some(FsKind::Xfs));
const SIZE: u64 = 1 << 30;

fn start(host: &Arc<FakeHost>) -> Node {
    let rule = Rule { fs: FsKind::Xfs, ..rule(&Layout::Directory { quota: Quota::None }, ErasePolicy::Discard) };
    Node::start(host, vec![rule], Duration::ZERO).expect("starts")
}

fn directories() -> (Arc<FakeHost>, Arc<Platter>, Node) {
    let host = Arc::new(FakeHost::default());
    let disk = host.add_disk("fake0", "SERIAL-1", Geometry { size: SIZE, sector: 512, offloads_zeroes: true });
    let mut node = start(&host);
    node.passes().expect("claims");
    (host, disk, node)
}

fn root(host: &FakeHost, node: &Node) -> Arc<dyn FilesystemRoot> {
    let disk = node.pool.disk_views().remove(0);
    let at = host.own_mounts().join(disk.id.as_str());
    host.mounts().open_root(&at, Path::new("/dev/fake0p2")).expect("mounted")
}

fn message_of<T: std::fmt::Debug>(done: Result<T, PoolError>) -> String {
    chain(&done.expect_err("refused"))
}

fn create(node: &Node, name: &str, size: u64) {
    node.pool.create(&request(name, XFS, size)).expect("made");
}

#[test]
fn volumes_are_as_small_as_they_are_asked_for_and_their_sizes_are_counted() {
    let (_host, _disk, node) = directories();
    let before = node.pool.disk_views().remove(0);
    assert!(before.free > SIZE * 9 / 10 && before.free < SIZE, "{}", before.free);
    create(&node, "a", 1);
    create(&node, "b", 5 * MIB);
    let sizes: Vec<u64> = ["a", "b"].iter().map(|name| node.pool.volume(id(name)).expect("made").size).collect();
    assert_eq!(sizes, [MIB, 5 * MIB]);
    let after = node.pool.disk_views().remove(0);
    assert_eq!((after.free, after.volumes), (before.free - 6 * MIB, 2));
    assert!(
        message_of(node.pool.create(&request("c", XFS, SIZE))).contains("the largest free place has"),
        "it is too large"
    );
    assert_eq!(node.pool.capacity(&Default::default(), XFS).smallest, MIB);
}

#[test]
fn a_block_volume_and_another_filesystem_are_refused() {
    let (_host, _disk, node) = directories();
    for usage in [BLOCK, MOUNT] {
        let why = message_of(node.pool.create(&request("v", usage, MIB)));
        assert_eq!(why, "no disk of this node's pool is offered to anybody");
    }
    let open: CreateRequest = request("v", WantedUsage::Mount(None), MIB);
    assert_eq!(node.pool.create(&open).expect("its set says which").1, Change::Done);
    assert_eq!(node.pool.create(&open).expect("again").1, Change::AlreadySo);
}

#[test]
fn a_volume_grows_into_what_nobody_has_and_not_further() {
    let (_host, _disk, node) = directories();
    create(&node, "a", MIB);
    let grown = node.pool.expand(id("a"), 4 * MIB + 1, None).expect("there is room");
    assert_eq!(grown.size, 5 * MIB);
    let why = message_of(node.pool.expand(id("a"), 2 * SIZE, None));
    assert!(why.contains(&format!("can grow to {} bytes", grown.growable_to)), "{why}");
    assert_eq!(node.pool.expand(id("a"), MIB, None).expect("it has that").size, 5 * MIB);
}

#[test]
fn volumes_are_promised_what_their_set_says_and_a_smaller_promise_takes_nothing_from_who_has_it() {
    let host = Arc::new(FakeHost::default());
    host.add_disk("fake0", "SERIAL-1", Geometry { size: SIZE, sector: 512, offloads_zeroes: true });
    let start = |reserved, percent| {
        let provisioning = Provisioning { reserved, percent };
        let layout = Layout::Directory { quota: Quota::None };
        let rule = Rule { fs: FsKind::Xfs, provisioning, ..rule(&layout, ErasePolicy::Discard) };
        let mut node = Node::start(&host, vec![rule], Duration::ZERO).expect("starts");
        node.passes().expect("a pass");
        node
    };
    let capacity = |node: &Node| node.pool.capacity(&Default::default(), XFS);
    let node = start(0, 300);
    let all = capacity(&node).largest;
    let why = message_of(node.pool.create(&request("d", XFS, all + 1)));
    assert!(why.contains("the largest free place has"), "{why}");
    ["a", "b", "c"].iter().for_each(|name| create(&node, name, all));
    assert!(capacity(&node).available < 3 * MIB, "what is no whole MiB is left: {:?}", capacity(&node));
    message_of(node.pool.create(&request("d", XFS, 3 * MIB)));
    drop(node);

    let node = start(100 * MIB, 100);
    assert_eq!((capacity(&node).available, node.pool.disk_views()[0].reserved), (0, 100 * MIB));
    let view = node.pool.usable(id("a")).expect("it has what it has");
    assert_eq!((view.size, view.growable_to), (all, all));
    assert!(message_of(node.pool.expand(id("a"), all + 1, None)).contains("can grow to"));
    for name in ["a", "b", "c"] {
        node.pool.delete(id(name)).expect("deleted");
    }
    node.pool.work_until_idle().expect("removed");
    assert_eq!(capacity(&node).largest, all - 100 * MIB);
}

#[test]
fn a_mounted_volume_is_not_deleted_and_a_deleted_one_counts_until_its_files_are_gone() {
    let (host, _disk, node) = directories();
    let before = node.pool.disk_views().remove(0).free;
    create(&node, "a", 8 * MIB);
    let view = node.pool.volume(id("a")).expect("made");
    let path = view.directory.expect("a folder").path;
    let target = Path::new("/pods/a");
    host.mounts().make_target(target, TargetKind::Directory).expect("made");
    host.mounts().bind(&path, target, TargetAccess::ReadWrite).expect("bound");
    assert!(message_of(node.pool.delete(id("a"))).contains("it is mounted at /pods/a"));
    host.mounts().unmount(target).expect("unmounted");

    root(&host, &node).write(Path::new(&format!("volumes/{}/file", id("a"))), "secret").expect("written");
    node.pool.delete(id("a")).expect("deleted");
    let left = node.pool.disk_views().remove(0);
    assert_eq!((left.free, left.erasing, left.volumes), (before - 8 * MIB, 8 * MIB, 0));
    // A volume of the same name is another one.
    create(&node, "a", MIB);
    node.pool.work_until_idle().expect("removed");
    let after = node.pool.disk_views().remove(0);
    assert_eq!((after.free, after.erasing), (before - MIB, 0));
    let names = root(&host, &node).names(Path::new(&format!("volumes/{}", id("a")))).expect("read");
    assert_eq!(names, [""; 0], "nothing of the first tenant");
}

#[test]
fn volumes_are_there_again_after_a_reboot_and_in_the_hands_of_another_agent() {
    let (host, _disk, node) = directories();
    create(&node, "a", 2 * MIB);
    node.pool.expand(id("a"), 3 * MIB, None).expect("grown");
    drop(node);
    for is_reboot in [false, true] {
        if is_reboot {
            host.reboot(localpool::host::fake::Fate::Lost);
        }
        let mut node = start(&host);
        node.passes().expect("a pass");
        let view = node.pool.usable(id("a")).expect("it is there");
        assert_eq!((view.size, view.record.expect("described").required), (3 * MIB, 3 * MIB));
        let table = host.mounts().table().expect("read");
        assert_eq!(table.len(), 1, "mounted once: {table:?}");
    }
}

#[test]
fn a_disk_that_left_has_its_volumes_away_and_they_are_back_under_another_name() {
    let (host, disk, mut node) = directories();
    create(&node, "a", 2 * MIB);
    host.unplug("fake0");
    node.passes().expect("a pass");
    let view = node.pool.volume(id("a")).expect("it is known");
    assert_eq!(view.standing, Standing::Missing);
    assert!(message_of(node.pool.delete(id("a"))).contains("is missing"));
    assert!(message_of(node.pool.create(&request("b", XFS, MIB))).contains("no disk of this node's pool"));
    host.plug("fake1", "SERIAL-1", disk);
    node.passes().expect("a pass");
    let view = node.pool.usable(id("a")).expect("it is back");
    assert_eq!(view.node, Path::new("/dev/fake1p2"));
    node.pool.delete(id("a")).expect("deleted");
}

/// Somebody changes the disk while no agent runs; gives what stands against it then.
fn found_after(change: impl FnOnce(&FakeHost, &Platter, &dyn FilesystemRoot)) -> (String, Node) {
    let (host, disk, mut node) = directories();
    create(&node, "a", MIB);
    node.passes().expect("a pass");
    change(&host, &disk, &*root(&host, &node));
    drop(node);
    let mut node = start(&host);
    let problem = problem(&mut node, "fake0");
    (problem, node)
}

#[test]
fn a_filesystem_that_is_not_the_one_that_was_made_is_not_touched() {
    let other =
        "{\"format\": 1, \"diskUUID\": \"00000000-0000-0000-0000-000000000007\", \"cluster\": \"c\", \"node\": \"n\"}";
    let config = Path::new("localpool-disk.cfg");
    let (no_config, _) = found_after(|_, _, root| root.remove_file(config).expect("removed"));
    assert!(no_config.contains("localpool-disk.cfg of its filesystem cannot be used: it is not there"), "{no_config}");
    let (of_other, _) = found_after(|_, _, root| root.write(config, other).expect("written"));
    assert!(of_other.contains("it is of disk 00000000-0000-0000-0000-000000000007, not of"), "{of_other}");
    let (cut, node) = found_after(|_, _, root| root.write(config, "{\"form").expect("written"));
    assert!(cut.contains("it is cut short or damaged"), "{cut}");
    // Nothing is said of its volumes but that they cannot be asked for.
    assert!(message_of(node.pool.delete(id("a"))).contains("volume may be on it"), "{:?}", node.pool.volumes());
    let made = |host: &FakeHost, _: &Platter, _: &dyn FilesystemRoot| {
        host.mounts().unmount(&host.mounts().table().expect("read")[0].target.clone()).expect("unmounted");
        let made = host.filesystems().make(FsKind::Ext4, Path::new("/dev/fake0p2"), uuid::Uuid::from_u128(5));
        made.expect("made");
    };
    let (formatted, _) = found_after(made);
    let wanted = "its partition should hold localpool's filesystem, but holds ext4 with UUID \
                  00000000-0000-0000-0000-000000000005";
    assert!(formatted.contains(wanted), "{formatted}");
}

#[test]
fn nothing_is_called_deleted_while_a_filesystem_cannot_be_read_though_the_journal_is_lost() {
    let (host, disk, node) = directories();
    create(&node, "a", MIB);
    root(&host, &node).remove_file(Path::new("localpool-disk.cfg")).expect("removed");
    drop((node, disk));
    host.state.lose();
    let mut node = start(&host);
    node.passes().expect("a pass");
    assert!(message_of(node.pool.delete(id("a"))).contains("volume may be on it"), "{:?}", node.pool.disk_views());
}

#[test]
fn folders_that_a_repair_moved_away_are_missed_and_nothing_of_them_is_forgotten() {
    let moved = |from: &str| {
        let from = from.to_owned();
        found_after(move |_, _, root| {
            root.make_folder(Path::new("lost+found"), 0o700).expect("made");
            root.rename(Path::new(&from), Path::new("lost+found/1234")).expect("moved");
        })
    };
    let (all, node) = moved("volumes");
    assert!(all.contains("its filesystem lacks the folder volumes"), "{all}");
    assert!(message_of(node.pool.delete(id("a"))).contains("volume may be on it"));
    let (one, node) = moved(&format!("volumes/{}", id("a")));
    assert!(one.contains(&format!("the record of volume {}, which was there, and not its folder", id("a"))), "{one}");
    assert!(message_of(node.pool.delete(id("a"))).contains("volume may be on it"));
}

#[test]
fn a_filesystem_with_volumes_is_never_made_again_though_its_table_says_that_it_was_not_made() {
    let (host, disk, node) = directories();
    let mut before = vec![0; 64 << 10];
    let mut after = before.clone();
    let tail = SIZE - (64 << 10);
    create(&node, "a", MIB);
    // The attribute of the second entry is bit 48 of its bytes 48 to 56, in both tables.
    disk.peek(0, &mut before);
    disk.peek(tail, &mut after);
    drop(node);
    let made = disk.clone();
    earlier_table(&made, &before, &after, tail);
    let mut node = start(&host);
    let why = problem(&mut node, "fake0");
    assert!(why.contains("its partition table is older than its filesystem"), "{why}");
}

/// Both tables as they were before the filesystem was made.
fn earlier_table(disk: &Platter, head: &[u8], tail: &[u8], at: u64) {
    let entries = 128 * 128;
    let (mut head, mut tail) = (head.to_vec(), tail.to_vec());
    let last = tail.len();
    let entry = 128 + 48 + 6;
    head[1024 + entry] &= !1;
    tail[last - 512 - entries + entry] &= !1;
    let of = |bytes: &[u8]| crc32fast::hash(bytes);
    for (bytes, header, table) in [(&mut head, 512, 1024), (&mut tail, last - 512, last - 512 - entries)] {
        let sum = of(&bytes[table..table + entries]);
        bytes[header + 88..header + 92].copy_from_slice(&sum.to_le_bytes());
        bytes[header + 16..header + 20].fill(0);
        let sum = of(&bytes[header..header + 92]);
        bytes[header + 16..header + 20].copy_from_slice(&sum.to_le_bytes());
    }
    disk.poke(0, &head);
    disk.poke(at, &tail);
}

#[test]
fn a_disk_with_what_somebody_put_there_is_not_released() {
    let (host, _disk, node) = directories();
    let root = root(&host, &node);
    root.make_folder(Path::new("volumes/of-a-person"), 0o700).expect("made");
    root.make_folder(Path::new("other"), 0o700).expect("made");
    let member = node.pool.members().remove(0);
    let refused = message_of(node.pool.release(&member));
    assert!(refused.contains("that do not belong to the pool: other, volumes/of-a-person"), "{refused}");
    assert!(node.pool.members()[0].is_usable(), "and it is used as before");
}

#[test]
fn a_folder_without_a_record_is_kept_and_offers_nothing_until_it_has_one() {
    let record = format!("records/{}.json", id("a"));
    let (problem, node) = found_after(|_, _, root| root.remove_file(Path::new(&record)).expect("removed"));
    assert_eq!(problem, "");
    assert!(message_of(node.pool.usable(id("a"))).contains("does not describe volume"));
    assert!(
        message_of(node.pool.create(&request("b", XFS, MIB))).contains("were asked for"),
        "nobody knows how large it is"
    );
    let disk = node.pool.disk_views().remove(0).id;
    let described = node.pool.create(&request("a", XFS, MIB));
    assert!(message_of(described).contains("does not describe"));
    let (other, _) = {
        let (_host, _disk, other) = directories();
        create(&other, "a", 3 * MIB);
        (other.pool.volume(id("a")).expect("made").record.expect("described"), ())
    };
    let view = node.pool.describe_volume(id("a"), &disk, &other).expect("described");
    assert_eq!(view.size, 3 * MIB);
    node.pool.create(&request("b", XFS, MIB)).expect("it offers again");
}

#[test]
fn a_change_that_fails_half_way_is_read_again_before_anything_else_is_done() {
    let (_host, disk, mut node) = directories();
    create(&node, "a", MIB);
    let everywhere = Extent { start: 0, end: SIZE };
    disk.inject(Fault { what: "tree move", range: everywhere, times: 1 });
    assert!(node.pool.delete(id("a")).is_err());
    create(&node, "beside", MIB);
    for what in ["tree write", "tree make", "tree move"] {
        disk.inject(Fault { what, range: everywhere, times: 1 });
        let made = node.pool.create(&request(what, XFS, MIB));
        assert!(made.is_err(), "{made:?}");
        node.passes().expect("a pass");
        node.pool.create(&request(what, XFS, MIB)).expect("made now");
    }
    assert_eq!(node.pool.volumes().len(), 5);
}

#[test]
fn a_released_disk_is_not_mounted_any_more_and_one_with_volumes_is_not_released() {
    let (host, _disk, node) = directories();
    create(&node, "a", MIB);
    let member = node.pool.members().remove(0);
    assert!(message_of(node.pool.release(&member)).contains("1 volumes and 0 that are being erased"));
    node.pool.delete(id("a")).expect("deleted");
    assert!(message_of(node.pool.release(&member)).contains("0 volumes and 1 that are being erased"));
    node.pool.work_until_idle().expect("removed");
    node.pool.release(&member).expect("released");
    assert_eq!(host.mounts().table().expect("read"), []);
    assert!(node.pool.members().is_empty());
}

#[test]
fn an_earlier_version_reads_a_journal_with_folders_and_this_one_finds_them_there() {
    let (host, _disk, node) = directories();
    create(&node, "a", MIB);
    let text = host.state().load(JOURNAL).expect("read").expect("there");
    let document: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(document["disks"], serde_json::json!({}), "an earlier version knows no such layout");
    assert_eq!(document["filesystems"].as_object().expect("a map").len(), 1);
    drop(node);
    host.unplug("fake0");
    let mut node = start(&host);
    node.passes().expect("a pass");
    assert!(message_of(node.pool.delete(id("a"))).contains("is missing"), "it is known to be on a disk that is away");
}
