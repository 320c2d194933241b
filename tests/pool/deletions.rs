//! Deleted volumes that are folders: their space counts until it is free, and what cannot be removed, or hangs, keeps
//! nothing else.

use std::path::Path;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use localpool::agent::Checkup;
use localpool::claim::Rule;
use localpool::device::label::{ErasePolicy, Layout, Quota};
use localpool::health::Board;
use localpool::host::fake::{FakeHost, Fault, Platter};
use localpool::host::{Extent, FilesystemRoot, FsKind, Geometry, Host, TargetAccess, TargetKind, chain};
use localpool::pool::{JOURNAL, Pool};
use localpool::volume::VolumeId;

use crate::directory_quota::{self, SIZE, XFS, create, folder, limited, message_of, project, root};
use crate::hangs::answers;
use crate::node::{MIB, Node, id, request, rule};

const EVERYWHERE: Extent = Extent { start: 0, end: SIZE };

fn start(host: &Arc<FakeHost>) -> Node {
    let rule = Rule { fs: FsKind::Xfs, ..rule(&Layout::Directory { quota: Quota::None }, ErasePolicy::Discard) };
    Node::start(host, vec![rule], Duration::ZERO).expect("starts")
}

fn one_disk() -> (Arc<FakeHost>, Arc<Platter>, Node) {
    let host = Arc::new(FakeHost::default());
    let disk = host.add_disk("fake0", "SERIAL-1", Geometry { size: SIZE, sector: 512, offloads_zeroes: true });
    let mut node = start(&host);
    node.passes().expect("claims");
    (host, disk, node)
}

/// A volume with some files.
fn filled(node: &Node, root: &dyn FilesystemRoot, name: &str, size: u64) {
    create(node, name, size);
    for file in ["one", "two", "three"] {
        root.write(&folder(name).join(file), "of a tenant").expect("written");
    }
}

/// Free and erasing bytes, of all disks.
fn space(pool: &Pool) -> (u64, u64) {
    let disks = pool.disk_views();
    (disks.iter().map(|disk| disk.free).sum(), disks.iter().map(|disk| disk.erasing).sum())
}

fn trash(root: &dyn FilesystemRoot) -> Vec<String> {
    root.names(Path::new("trash")).expect("read")
}

#[test]
fn a_deleted_volume_counts_with_all_of_its_size_until_its_last_file_is_gone() {
    let (host, _disk, node) = one_disk();
    let root = root(&host, &node);
    let (before, _) = space(&node.pool);
    filled(&node, &*root, "a", 8 * MIB);
    node.pool.delete(id("a")).expect("deleted");
    let member = node.pool.members().remove(0);
    let mut steps = 0;
    while !trash(&*root).is_empty() {
        assert_eq!(space(&node.pool), (before - 8 * MIB, 8 * MIB), "after {steps} steps");
        member.work().expect("removes");
        steps += 1;
    }
    assert_eq!((steps, space(&node.pool)), (4, (before, 0)));
    assert_eq!(node.pool.disk_views()[0].erasure.volumes, 1);
}

#[test]
fn what_cannot_be_removed_keeps_nothing_else_and_says_why_and_goes_when_it_can() {
    let (host, disk, node) = one_disk();
    let root = root(&host, &node);
    let (before, _) = space(&node.pool);
    for name in ["a", "b", "c"] {
        filled(&node, &*root, name, MIB);
        node.pool.delete(id(name)).expect("deleted");
    }
    disk.inject(Fault { what: "tree remove", range: EVERYWHERE, times: 1 });
    let why = message_of(node.pool.work_until_idle());
    assert!(why.contains("1 folders of deleted volumes could not be removed: remove trash/"), "{why}");
    assert_eq!((trash(&*root).len(), space(&node.pool)), (1, (before - MIB, MIB)));
    create(&node, "d", MIB);
    node.pool.work_until_idle().expect("it can be removed now");
    assert_eq!((trash(&*root).len(), space(&node.pool)), (0, (before - MIB, 0)));
}

#[test]
fn a_filesystem_that_removes_nothing_any_more_is_tried_once_for_each_folder_and_then_left_alone() {
    let (host, disk, node) = one_disk();
    let root = root(&host, &node);
    for name in ["a", "b", "c"] {
        filled(&node, &*root, name, MIB);
        node.pool.delete(id(name)).expect("deleted");
    }
    disk.inject(Fault { what: "tree remove", range: EVERYWHERE, times: 100 });
    for _ in 0..2 {
        let why = message_of(node.pool.work_until_idle());
        assert!(why.contains("3 folders of deleted volumes could not be removed"), "{why}");
    }
    disk.clear_faults();
    node.pool.work_until_idle().expect("removed");
    assert!(trash(&*root).is_empty());
}

#[test]
fn a_folder_that_somebody_fills_while_it_is_removed_keeps_no_other() {
    for filled_on in ["a", "b"] {
        let (host, _disk, node) = one_disk();
        let root = root(&host, &node);
        for name in ["a", "b"] {
            filled(&node, &*root, name, MIB);
            node.pool.delete(id(name)).expect("deleted");
        }
        let was = id(filled_on).to_string();
        let kept = trash(&*root).into_iter().find(|name| name.starts_with(&was)).expect("it is there");
        let member = node.pool.members().remove(0);
        let mut steps = 0;
        while trash(&*root).len() > 1 {
            assert!(steps < 1000, "the other one is not removed");
            // As a process that is in it still.
            let late = Path::new("trash").join(&kept).join(format!("late-{steps}"));
            root.write(&late, "of a tenant").expect("written");
            member.work().expect("removes");
            steps += 1;
        }
        assert_eq!(trash(&*root), [kept]);
        node.pool.work_until_idle().expect("nobody fills it any more");
        assert!(trash(&*root).is_empty());
    }
}

#[test]
fn what_somebody_put_beside_deleted_folders_stays() {
    let (host, _disk, node) = one_disk();
    let root = root(&host, &node);
    filled(&node, &*root, "a", MIB);
    root.make_folder(Path::new("trash/of-a-person"), 0o700).expect("made");
    root.write(Path::new("trash/of-a-person/file"), "kept").expect("written");
    drop(node);
    let mut node = start(&host);
    node.passes().expect("a pass");
    node.pool.delete(id("a")).expect("deleted");
    node.pool.work_until_idle().expect("removed");
    assert_eq!(trash(&*root), ["of-a-person"]);
    assert_eq!(root.read(Path::new("trash/of-a-person/file")).expect("read").as_deref(), Some("kept"));
    let member = node.pool.members().remove(0);
    let refused = message_of(node.pool.release(&member));
    assert!(refused.contains("do not belong to the pool: trash/of-a-person"), "{refused}");
}

#[test]
fn what_a_creation_that_failed_has_left_is_removed_without_another_start() {
    let (host, disk, node) = limited();
    let root = root(&host, &node);
    disk.inject(Fault { what: "tree project", range: EVERYWHERE, times: 1 });
    assert!(node.pool.create(&request("a", XFS, MIB)).is_err());
    assert_eq!(root.names(Path::new("making")).expect("read").len(), 1);
    create(&node, "a", MIB);
    assert_eq!(trash(&*root).len(), 1);
    node.pool.work_until_idle().expect("removed");
    assert!(trash(&*root).is_empty());
    node.pool.delete(id("a")).expect("deleted");
    node.pool.work_until_idle().expect("removed");
    let member = node.pool.members().remove(0);
    node.pool.release(&member).expect("nothing is left");
}

#[test]
fn a_file_that_is_open_still_counts_as_being_erased_until_its_project_uses_nothing() {
    let (host, _disk, node) = limited();
    let root = root(&host, &node);
    let (before, _) = space(&node.pool);
    create(&node, "a", 8 * MIB);
    create(&node, "b", MIB);
    let of_a = project(&*root, "a");
    // As a file of the volume that nobody can find any more, and somebody has open.
    root.make_folder(Path::new("unlinked"), 0o700).expect("made");
    root.put_in_project(Path::new("unlinked"), of_a).expect("put");
    for name in ["a", "b"] {
        node.pool.delete(id(name)).expect("deleted");
    }
    let why = message_of(node.pool.work_until_idle());
    assert!(why.contains(&format!("1 files (0 bytes) that count as its own are open still, or are elsewhere on the filesystem with its project {of_a}")), "{why}");
    assert_eq!((trash(&*root).len(), space(&node.pool)), (1, (before - 8 * MIB, 8 * MIB)));
    create(&node, "c", MIB);
    assert_ne!(project(&*root, "c"), of_a, "it belongs to nobody else meanwhile");
    // The next start knows it as well.
    let node = directory_quota::again(&host, node);
    assert!(node.pool.work_until_idle().is_err());
    assert_eq!(space(&node.pool), (before - 9 * MIB, 8 * MIB));
    root.remove_empty(Path::new("unlinked")).expect("closed");
    node.pool.work_until_idle().expect("it is free");
    assert_eq!(space(&node.pool), (before - MIB, 0));
}

#[test]
fn a_folder_whose_files_are_open_still_keeps_no_other_waiting_and_goes_when_they_are_closed() {
    let (host, _disk, node) = limited();
    let root = root(&host, &node);
    let names = ["a", "b", "c", "d"];
    for name in names {
        filled(&node, &*root, name, MIB);
    }
    // Files of the first three that nobody can find any more, and somebody has open.
    for name in &names[..3] {
        let open = Path::new(name);
        root.make_folder(open, 0o700).expect("made");
        root.put_in_project(open, project(&*root, name)).expect("put");
    }
    for name in names {
        node.pool.delete(id(name)).expect("deleted");
    }
    let member = node.pool.members().remove(0);
    let mut steps = 0;
    while trash(&*root).len() > 3 {
        assert!(steps < 50, "the one that is closed waits for the others");
        member.work().expect("removes");
        steps += 1;
    }
    for name in &names[..3] {
        root.remove_empty(Path::new(name)).expect("closed");
    }
    node.pool.work_until_idle().expect("nobody has called them stuck");
    assert!(trash(&*root).is_empty());
}

#[test]
fn a_removal_that_hangs_has_nobody_wait_but_its_worker() {
    let (_host, sick, node) = one_disk();
    for name in ["a", "b"] {
        create(&node, name, MIB);
    }
    node.pool.delete(id("a")).expect("deleted");
    sick.set_hangs_at(Some("tree remove"));
    let (pool, (ended, end)) = (Arc::clone(&node.pool), mpsc::channel());
    let worker = thread::spawn(move || ended.send(pool.work_until_idle().map_err(|error| chain(&error))));
    sick.until_somebody_waits();
    // Of the same filesystem as well.
    let pool = &node.pool;
    assert_eq!(answers("a list", pool, |pool| pool.volumes().len()), 1);
    answers("an expansion", pool, |pool| pool.expand(id("b"), 2 * MIB, None)).expect("there is room");
    answers("capacity", pool, |pool| pool.capacity(&Default::default(), XFS));
    assert!(answers("a look", pool, space).1 == MIB);
    answers("a create", pool, |pool| pool.create(&request("c", XFS, MIB))).expect("there is room");
    assert!(end.try_recv().is_err(), "it hangs still");
    sick.set_hangs(false);
    end.recv().expect("it ends").expect("removed");
    worker.join().expect("no bug").expect("it was heard");
    assert_eq!(space(&node.pool).1, 0);
}

#[test]
fn a_volume_that_is_made_or_deleted_costs_the_journal_nothing() {
    let (host, _disk, mut node) = one_disk();
    create(&node, "a", MIB);
    node.pool.work_until_idle().expect("the label is in both copies");
    node.passes().expect("a pass");
    let journal = || host.state().load(JOURNAL).expect("read").expect("there");
    let before = journal();
    for n in 0..20 {
        create(&node, &format!("v{n}"), MIB);
    }
    node.passes().expect("a pass");
    for n in 0..20 {
        node.pool.delete(id(&format!("v{n}"))).expect("deleted");
    }
    node.pool.work_until_idle().expect("removed");
    node.passes().expect("a pass");
    assert_eq!(journal(), before, "it is not written");
    assert!(!before.contains(&id("a").to_string()), "{before}");
    drop(node);
    host.unplug("fake0");
    let mut node = start(&host);
    node.passes().expect("a pass");
    assert!(message_of(node.pool.delete(id("a"))).contains("is missing"), "it is known to be on a disk that is away");
    node.pool.delete(id("v1")).expect("and the others are known not to be");
}

#[test]
fn a_checkup_asks_the_machine_nothing_for_each_volume_that_nobody_uses() {
    let (host, _disk, node) = one_disk();
    for n in 0..200 {
        create(&node, &format!("v{n}"), MIB);
    }
    let mounted = node.pool.volume(id("v7")).expect("made");
    let target = Path::new("/pods/v7");
    host.mounts().make_target(target, TargetKind::Directory).expect("made");
    host.mounts().bind(&mounted.directory.expect("a folder").path, target, TargetAccess::ReadWrite).expect("bound");
    let machine = Arc::clone(&host) as Arc<dyn Host>;
    let (board, reports) = (Board::default(), node.agent.reports());
    let mut checkup = Checkup::new(machine, Arc::clone(&node.pool), board.clone(), reports);
    let before = host.mounts.asked();
    checkup.run(&(Arc::new(|| ()) as Arc<dyn Fn() + Send + Sync>));
    let asked = host.mounts.asked() - before;
    assert!((1..10).contains(&asked), "it asked {asked} times of its mounts");
    let condition = |volume: VolumeId| board.of_volume(&node.pool.volume(volume).expect("there"));
    assert!(condition(id("v8")) == condition(id("v9")));
}
