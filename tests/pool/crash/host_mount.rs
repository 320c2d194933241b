//! The life of a disk whose filesystem the node has mounted for others, stopped after each effect: once the path was
//! told to anybody, the mount is at that path, once, with what was written there.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use localpool::claim::Rule;
use localpool::device::label::{ErasePolicy, Layout, Quota};
use localpool::host::fake::{FakeHost, Fate};
use localpool::host::{FilesystemRoot, FsKind, Geometry, Host, Mount, chain};
use localpool::pool::{HostMount, PoolError, WantedUsage};

use super::{ENDS, End, disk};
use crate::node::{MIB, Node, id, request, rule};

const XFS: WantedUsage = WantedUsage::Mount(Some(FsKind::Xfs));
const BEFORE: &str = "/mnt/raid-disks";
/// What the set says from some day on: it is for filesystems that were mounted nowhere yet.
const AFTER: &str = "/srv/disks";
const FILE: &str = "host/file";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Claim,
    Mount,
    WriteForOthers,
    Create,
    /// The set names another folder from here on.
    AnotherFolder,
    Delete,
    RemoveForOthers,
    Release,
}

const LIFE: [Step; 8] = [
    Step::Claim,
    Step::Mount,
    Step::WriteForOthers,
    Step::Create,
    Step::AnotherFolder,
    Step::Delete,
    Step::RemoveForOthers,
    Step::Release,
];

#[derive(Clone, Debug, Default)]
struct Acknowledged {
    /// Where the status of the disk said that it is mounted.
    at: Option<PathBuf>,
    has_volume: bool,
    has_file: bool,
    pending: Option<Step>,
    done: usize,
}

fn machine() -> Arc<FakeHost> {
    let host = Arc::new(FakeHost::default());
    host.add_disk("fake0", "SERIAL-1", Geometry { size: 512 * MIB, ..disk(512, true) });
    host
}

fn start(host: &Arc<FakeHost>, folder: &str) -> Result<Node, String> {
    let layout = Layout::Directory { quota: Quota::None };
    let rule = rule(&layout, ErasePolicy::Discard);
    Node::start(host, vec![Rule { host_mount: Some(folder.into()), ..rule }], Duration::ZERO)
}

fn folder(done: usize) -> &'static str {
    let another = LIFE.iter().position(|step| *step == Step::AnotherFolder).expect("one of them");
    if done > another { AFTER } else { BEFORE }
}

/// What is mounted that is not the pool's own.
fn for_others(host: &FakeHost) -> Vec<Mount> {
    let table = host.mounts().table().expect("read");
    table.into_iter().filter(|mount| !mount.target.starts_with(host.own_mounts())).collect()
}

fn root(host: &FakeHost, node: &Node) -> Result<Arc<dyn FilesystemRoot>, String> {
    let view = node.pool.disk_views().pop().ok_or("no disk")?;
    let at = host.own_mounts().join(view.id.as_str());
    host.mounts().open_root(&at, Path::new("/dev/fake0p2")).map_err(|error| chain(&error))
}

fn host_mount(node: &Node) -> HostMount {
    node.pool.disk_views().pop().map_or(HostMount::None, |view| view.host_mount)
}

fn mounted(node: &mut Node, acknowledged: &mut Acknowledged) -> Result<(), String> {
    node.passes()?;
    node.pool.work_until_idle().map_err(|error| chain(&error))?;
    let HostMount::At(at) = host_mount(node) else { return Err(format!("{:?}", host_mount(node))) };
    acknowledged.at = Some(at);
    Ok(())
}

fn step(
    node: &mut Node,
    host: &Arc<FakeHost>,
    step: Step,
    acknowledged: &mut Acknowledged,
) -> Result<Option<Node>, String> {
    let message = |error: PoolError| chain(&error);
    match step {
        Step::Claim => {
            node.passes()?;
            let is_usable = node.pool.members().iter().any(|member| member.is_usable());
            is_usable.then_some(()).ok_or("not claimed")?;
        }
        Step::Mount => mounted(node, acknowledged)?,
        Step::WriteForOthers => {
            root(host, node)?.write(Path::new(FILE), "theirs").map_err(|error| chain(&error))?;
            acknowledged.has_file = true;
        }
        Step::Create => {
            node.pool.create(&request("a", XFS, 3 * MIB)).map_err(message)?;
            acknowledged.has_volume = true;
        }
        Step::AnotherFolder => {
            let mut other = start(host, AFTER)?;
            mounted(&mut other, acknowledged)?;
            return Ok(Some(other));
        }
        Step::Delete => {
            node.pool.delete(id("a")).map_err(message)?;
            acknowledged.has_volume = false;
            node.pool.work_until_idle().map_err(message)?;
        }
        Step::RemoveForOthers => {
            acknowledged.has_file = false;
            root(host, node)?.remove_file(Path::new(FILE)).map_err(|error| chain(&error))?;
        }
        Step::Release => {
            for member in node.pool.members() {
                node.pool.release(&member).map_err(message)?;
            }
        }
    }
    Ok(None)
}

fn run(host: &Arc<FakeHost>, acknowledged: &mut Acknowledged) -> Result<(), String> {
    let mut node = start(host, folder(acknowledged.done))?;
    if (1..LIFE.len()).contains(&acknowledged.done) {
        node.passes()?;
    }
    while let Some(next) = LIFE.into_iter().nth(acknowledged.done) {
        acknowledged.pending = Some(next);
        if let Some(other) = step(&mut node, host, next, acknowledged)? {
            node = other;
        }
        acknowledged.pending = None;
        acknowledged.done += 1;
    }
    Ok(())
}

fn check(host: &Arc<FakeHost>, acknowledged: &Acknowledged, at: &str) {
    let mut node = start(host, folder(acknowledged.done)).unwrap_or_else(|error| panic!("{at}: {error}"));
    node.passes().unwrap_or_else(|error| panic!("{at}: {error}"));
    node.pool.work_until_idle().unwrap_or_else(|error| panic!("{at}: {error}"));
    if acknowledged.has_volume {
        let usable = node.pool.usable(id("a"));
        let is_going = acknowledged.pending == Some(Step::Delete);
        assert!(usable.is_ok() || is_going, "{at}: {usable:?}");
    }
    if node.pool.members().is_empty() {
        assert!(acknowledged.at.is_none() && for_others(host).is_empty(), "{at}: {:?}", for_others(host));
        return;
    }
    let HostMount::At(path) = host_mount(&node) else { panic!("{at}: {:?}", host_mount(&node)) };
    assert!(acknowledged.at.as_ref().is_none_or(|told| *told == path), "{at}: it was at {:?}", acknowledged.at);
    let mounts = for_others(host);
    let [mount] = &mounts[..] else { panic!("{at}: {mounts:?}") };
    assert_eq!((&mount.target, mount.root.as_path()), (&path, Path::new("/host")), "{at}");
    if acknowledged.has_file {
        let root = root(host, &node).unwrap_or_else(|error| panic!("{at}: {error}"));
        assert_eq!(root.read(Path::new(FILE)).expect("read").as_deref(), Some("theirs"), "{at}");
    }
}

#[test]
fn a_filesystem_that_is_mounted_for_others_is_at_its_path_after_a_stop_at_any_effect() {
    let whole = machine();
    run(&whole, &mut Acknowledged::default()).expect("the life without a stop");
    assert!(for_others(&whole).is_empty(), "released: {:?}", for_others(&whole));
    let effects = whole.power.spent();
    assert!(effects > 40, "a life has many effects: {effects}");
    for n in 1..=effects {
        for end in ENDS {
            let at = format!("{end:?} after effect {n} of {effects}");
            let host = machine();
            let mut acknowledged = Acknowledged::default();
            host.power.cut_after(n);
            let stopped = run(&host, &mut acknowledged);
            assert!(stopped.is_err() && host.power.is_off(), "{at}: it was not stopped: {stopped:?}");
            if matches!(end, End::PowerCut(Fate::Unreadable)) && acknowledged.done == 0 {
                // The disk is not yet provably ours, so it is not touched.
                continue;
            }
            match end {
                End::PowerCut(fate) => host.reboot(fate),
                End::Killed => host.restart_process(),
            }
            if acknowledged.pending != Some(Step::Release) {
                check(&host, &acknowledged, &at);
            }
            run(&host, &mut acknowledged).unwrap_or_else(|error| {
                panic!("{at}: the rest of its life fails at {:?}: {error}", acknowledged.pending)
            });
            assert!(for_others(&host).is_empty(), "{at}: released: {:?}", for_others(&host));
        }
    }
}
