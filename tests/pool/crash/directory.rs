//! The life of a disk whose volumes are folders, stopped after each effect.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use localpool::claim::Rule;
use localpool::device::label::{ErasePolicy, Layout, Quota};
use localpool::health::FilesystemBoard;
use localpool::host::fake::{FakeHost, Fate};
use localpool::host::{FilesystemRoot, FsKind, Geometry, Host, HostError, ProjectId, chain};
use localpool::pool::{OWN_FOLDER, PoolError, VolumeView, WantedUsage};

use super::{ENDS, End, disk};
use crate::mounted;
use crate::node::{MIB, Node, id, request, rule};

const XFS: WantedUsage = WantedUsage::Mount(Some(FsKind::Xfs));

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Claim,
    Create(&'static str, u64),
    Write(&'static str, &'static str),
    Expand(&'static str, u64),
    /// Only where limits tell what its files use.
    Shrink(&'static str, u64),
    Delete(&'static str),
    Work,
    Release,
}

const LIFE: [Step; 14] = [
    Step::Claim,
    Step::Create("a", 3 * MIB),
    Step::Write("a", "of a"),
    Step::Create("b", 5 * MIB),
    Step::Write("b", "of b"),
    Step::Expand("b", 9 * MIB),
    Step::Shrink("b", 7 * MIB),
    Step::Delete("a"),
    Step::Work,
    Step::Create("a", MIB),
    Step::Delete("b"),
    Step::Delete("a"),
    Step::Work,
    Step::Release,
];

/// What callers were told: the size of each volume, and what its tenant wrote.
#[derive(Clone, Debug, Default)]
struct Acknowledged {
    volumes: BTreeMap<&'static str, (u64, Option<&'static str>)>,
    pending: Option<Step>,
    done: usize,
}

/// How its volumes are kept within their sizes, and who made its filesystem.
#[derive(Clone, Copy)]
struct Kept(Quota, Made);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Made {
    ByPool,
    /// By an administrator, who has mounted and named it.
    ByAdministrator,
}

impl Kept {
    fn start(self, host: &Arc<FakeHost>) -> Result<Node, String> {
        let Self(quota, made) = self;
        match made {
            Made::ByPool => {
                let rule = Rule { fs: FsKind::Xfs, ..rule(&Layout::Directory { quota }, ErasePolicy::Discard) };
                Node::start(host, vec![rule], Duration::ZERO)
            }
            Made::ByAdministrator => {
                if mounted::is_unmounted(host, PATH) {
                    mounted::mount(host, "fake0", PATH);
                }
                let board = FilesystemBoard::default();
                mounted::name(&board, &[mounted::entry("fast", PATH)]);
                mounted::look(host, &board);
                mounted::start(host, vec![mounted::rule(quota, &[])], &board)
            }
        }
    }

    fn machine(self) -> Arc<FakeHost> {
        let host = Arc::new(FakeHost::default());
        host.add_disk("fake0", "SERIAL-1", Geometry { size: 512 * MIB, ..disk(512, true) });
        if self.1 == Made::ByAdministrator {
            mounted::make(&host, "fake0");
            mounted::mount(&host, "fake0", PATH);
            mounted::begin(&host, PATH);
            mounted::root(&host, "fake0", PATH).write(Path::new("photos"), "of the administrator").expect("written");
        }
        host
    }

    /// The root of the pool's own mount, and where in it the pool's folders are.
    fn pool_root(self, host: &FakeHost, node: &Node) -> (Result<Arc<dyn FilesystemRoot>, HostError>, &'static Path) {
        let (device, below) = match self.1 {
            Made::ByPool => ("/dev/fake0p2", ""),
            Made::ByAdministrator => ("/dev/fake0", OWN_FOLDER),
        };
        let view = node.pool.disk_views().remove(0);
        (host.mounts().open_root(&host.own_mounts().join(view.id.as_str()), Path::new(device)), Path::new(below))
    }

    fn life(self) -> impl Iterator<Item = Step> {
        LIFE.into_iter().filter(move |step| self.0 == Quota::Project || !matches!(step, Step::Shrink(..)))
    }
}

/// Where an administrator has it.
const PATH: &str = "/mnt/fast";

/// The filesystem as its tenants see it, and the file of one of them.
fn file(host: &FakeHost, view: &VolumeView) -> (Arc<dyn FilesystemRoot>, PathBuf) {
    let directory = view.directory.as_ref().expect("it is a folder");
    let parts = directory.root.components().count() - 1;
    let at = directory.path.ancestors().nth(parts).expect("it is in the pool's mount");
    let root = host.mounts().open_root(at, &view.node).expect("mounted");
    (root, directory.root.strip_prefix("/").expect("absolute").join("file"))
}

fn step(node: &mut Node, host: &FakeHost, step: Step, acknowledged: &mut Acknowledged) -> Result<(), String> {
    let message = |error: PoolError| chain(&error);
    match step {
        Step::Claim => {
            node.passes()?;
            let is_usable = node.pool.members().iter().any(|member| member.is_usable());
            return if is_usable { Ok(()) } else { Err("not claimed".to_owned()) };
        }
        Step::Create(name, size) => {
            let (view, _) = node.pool.create(&request(name, XFS, size)).map_err(message)?;
            assert_eq!(view.size, size, "just what was asked for");
            acknowledged.volumes.insert(name, (size, None));
        }
        Step::Write(name, text) => {
            let (root, file) = file(host, &node.pool.usable(id(name)).map_err(message)?);
            root.write(&file, text).map_err(|error| chain(&error))?;
            // More than one step removes.
            let below = file.with_file_name("below");
            root.make_folder(&below, 0o755).map_err(|error| chain(&error))?;
            root.write(&below.join("file"), text).map_err(|error| chain(&error))?;
            acknowledged.volumes.get_mut(name).expect("it exists").1 = Some(text);
        }
        Step::Expand(name, size) => {
            assert_eq!(node.pool.expand(id(name), size, None).map_err(message)?.size, size);
            acknowledged.volumes.get_mut(name).expect("it exists").0 = size;
        }
        Step::Shrink(name, size) => {
            assert_eq!(node.pool.expand(id(name), size, Some(size)).map_err(message)?.size, size);
            acknowledged.volumes.get_mut(name).expect("it exists").0 = size;
        }
        Step::Delete(name) => {
            node.pool.delete(id(name)).map_err(message)?;
            acknowledged.volumes.remove(name);
        }
        Step::Work => node.pool.work_until_idle().map_err(message)?,
        Step::Release => {
            for member in node.pool.members() {
                node.pool.release(&member).map_err(message)?;
            }
        }
    }
    Ok(())
}

fn run(kept: Kept, host: &Arc<FakeHost>, acknowledged: &mut Acknowledged) -> Result<(), String> {
    let mut node = kept.start(host)?;
    if (1..kept.life().count()).contains(&acknowledged.done) {
        node.passes()?;
    }
    while let Some(next) = kept.life().nth(acknowledged.done) {
        acknowledged.pending = Some(next);
        step(&mut node, host, next, acknowledged)?;
        acknowledged.pending = None;
        acknowledged.done += 1;
    }
    Ok(())
}

fn free(node: &Node) -> u64 {
    node.pool.disk_views().iter().map(|disk| disk.free).sum()
}

/// Each volume has a project of its own, and its size is the limit.
fn check_limits(host: &FakeHost, node: &Node, at: &str) {
    let mut projects = BTreeSet::new();
    for view in node.pool.volumes() {
        let (root, file) = file(host, &view);
        let project = root.project_of(file.parent().expect("a folder")).expect("asked");
        assert!(project != ProjectId::NONE && projects.insert(project), "{at}: project {project} of {view:?}");
        assert_eq!(root.project_usage(project).expect("asked").most_bytes, Some(view.size), "{at}: {view:?}");
    }
}

fn check(kept: Kept, host: &Arc<FakeHost>, acknowledged: &Acknowledged, at: &str) {
    let mut node = kept.start(host).unwrap_or_else(|error| panic!("{at}: {error}"));
    node.passes().unwrap_or_else(|error| panic!("{at}: {error}"));
    let is_pending = |name: &str| match acknowledged.pending {
        Some(Step::Create(of, _) | Step::Delete(of)) => of == name,
        _ => false,
    };
    for (name, (size, text)) in &acknowledged.volumes {
        let view = match node.pool.usable(id(name)) {
            Ok(view) => view,
            Err(PoolError::NoSuchVolume { .. }) if is_pending(name) => continue,
            Err(error) => panic!("{at}: {name}: {error}"),
        };
        let least = match acknowledged.pending {
            Some(Step::Shrink(of, to)) if of == *name => to,
            _ => *size,
        };
        assert!(view.size >= least, "{at}: {name} shrank");
        let (root, file) = file(host, &view);
        let found = root.read(&file).expect("read");
        assert!(text.is_none_or(|text| found.as_deref() == Some(text)), "{at}: {name} has {found:?}, not {text:?}");
    }
    for view in node.pool.volumes() {
        let known = ["a", "b"].into_iter().find(|name| id(name) == view.id).expect("one of them");
        assert!(acknowledged.volumes.contains_key(known) || is_pending(known), "{at}: nobody was told of {known}");
        let (root, file) = file(host, &view);
        let wrote = acknowledged.volumes.get(known).and_then(|acknowledged| acknowledged.1);
        let found = root.read(&file).expect("read");
        let may_be = found.is_none() || found.as_deref() == wrote || acknowledged.pending == Some(Step::Delete(known));
        let is_write = matches!(acknowledged.pending, Some(Step::Write(of, _)) if of == known);
        assert!(may_be || is_write, "{at}: {known} shows {found:?}");
    }
    if kept.0 == Quota::Project {
        check_limits(host, &node, at);
    }
    let (used, found): (u64, u64) = (node.pool.volumes().iter().map(|view| view.size).sum(), free(&node));
    let erasing: u64 = node.pool.disk_views().iter().map(|disk| disk.erasing).sum();
    node.pool.work_until_idle().unwrap_or_else(|error| panic!("{at}: {error}"));
    if node.pool.members().iter().any(|member| member.is_usable()) {
        let fresh = kept.machine();
        let mut empty = kept.start(&fresh).expect("starts");
        empty.passes().expect("claims");
        assert_eq!(free(&node) + used, free(&empty), "{at}: space is lost");
        assert_eq!(found + used + erasing, free(&empty), "{at}: what is being removed is counted");
        let (root, below) = kept.pool_root(host, &node);
        let root = root.unwrap_or_else(|error| panic!("{at}: {error}"));
        for folder in ["making", "trash"] {
            assert_eq!(root.names(&below.join(folder)).expect("read"), [""; 0], "{at}: in {folder}");
        }
    }
}

/// A release takes what is the pool's, and nothing else; one that was stopped is finished by the next look.
fn check_left(kept: Kept, host: &Arc<FakeHost>, at: &str) {
    kept.start(host).unwrap_or_else(|error| panic!("{at}: {error}")).passes().expect("a pass");
    let mut left = mounted::root(host, "fake0", PATH).names(Path::new("")).expect("read");
    left.sort();
    assert_eq!(left, ["localpool-disk.cfg", "photos"], "{at}");
}

fn stop_everywhere(kept: Kept) {
    let whole = kept.machine();
    let before = whole.power.spent();
    run(kept, &whole, &mut Acknowledged::default()).expect("the life without a stop");
    let effects = whole.power.spent() - before;
    if kept.1 == Made::ByAdministrator {
        check_left(kept, &whole, "the life without a stop");
    }
    assert!(effects > 40, "a life has many effects: {effects}");
    for n in 1..=effects {
        for end in ENDS {
            let at = format!("{end:?} after effect {n} of {effects}");
            let host = kept.machine();
            let mut acknowledged = Acknowledged::default();
            host.power.cut_after(n);
            let stopped = run(kept, &host, &mut acknowledged);
            // Once the pool's folder is out of its place, what is left of it is nobody's.
            let is_swept = kept.1 == Made::ByAdministrator && acknowledged.done == kept.life().count();
            assert!((stopped.is_err() || is_swept) && host.power.is_off(), "{at}: it was not stopped: {stopped:?}");
            if matches!(end, End::PowerCut(Fate::Unreadable)) && acknowledged.done == 0 {
                // The disk is not yet provably ours, so it is not touched.
                continue;
            }
            match end {
                End::PowerCut(fate) => host.reboot(fate),
                End::Killed => host.restart_process(),
            }
            if acknowledged.pending != Some(Step::Release) {
                check(kept, &host, &acknowledged, &at);
            }
            let rest = run(kept, &host, &mut acknowledged);
            rest.unwrap_or_else(|error| {
                panic!("{at}: the rest of its life fails at {:?}: {error}", acknowledged.pending)
            });
            if kept.1 == Made::ByAdministrator {
                check_left(kept, &host, &at);
            }
        }
    }
}

#[test]
fn a_disk_of_folders_converges_after_a_stop_at_any_effect() {
    stop_everywhere(Kept(Quota::None, Made::ByPool));
}

#[test]
fn a_disk_of_folders_with_limits_converges_after_a_stop_at_any_effect() {
    stop_everywhere(Kept(Quota::Project, Made::ByPool));
}

#[test]
fn a_filesystem_of_an_administrator_converges_after_a_stop_at_any_effect_and_keeps_what_is_his() {
    stop_everywhere(Kept(Quota::Project, Made::ByAdministrator));
}

#[test]
fn a_filesystem_of_an_administrator_without_limits_converges_after_a_stop_at_any_effect() {
    stop_everywhere(Kept(Quota::None, Made::ByAdministrator));
}
