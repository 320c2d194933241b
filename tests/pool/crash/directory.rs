//! The life of a disk whose volumes are folders, stopped after each effect.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use localpool::claim::Rule;
use localpool::device::label::{ErasePolicy, Layout, Quota};
use localpool::host::fake::{FakeHost, Fate};
use localpool::host::{FilesystemRoot, FsKind, Geometry, Host, chain};
use localpool::pool::{PoolError, VolumeView, WantedUsage};

use super::{ENDS, End, disk};
use crate::node::{MIB, Node, id, request, rule};

const XFS: WantedUsage = WantedUsage::Mount(Some(FsKind::Xfs));

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Claim,
    Create(&'static str, u64),
    Write(&'static str, &'static str),
    Expand(&'static str, u64),
    Delete(&'static str),
    Work,
    Release,
}

const LIFE: [Step; 13] = [
    Step::Claim,
    Step::Create("a", 3 * MIB),
    Step::Write("a", "of a"),
    Step::Create("b", 5 * MIB),
    Step::Write("b", "of b"),
    Step::Expand("b", 9 * MIB),
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
struct Told {
    volumes: BTreeMap<&'static str, (u64, Option<&'static str>)>,
    pending: Option<Step>,
    done: usize,
}

fn rules() -> Vec<Rule> {
    vec![Rule { fs: FsKind::Xfs, ..rule(&Layout::Directory { quota: Quota::None }, ErasePolicy::Discard) }]
}

fn start(host: &Arc<FakeHost>) -> Result<Node, String> {
    Node::start(host, rules(), Duration::ZERO)
}

fn machine() -> Arc<FakeHost> {
    let host = Arc::new(FakeHost::default());
    host.add_disk("fake0", "SERIAL-1", Geometry { size: 512 * MIB, ..disk(512, true) });
    host
}

/// The filesystem as its tenants see it, and the file of one of them.
fn file(host: &FakeHost, view: &VolumeView) -> (Arc<dyn FilesystemRoot>, PathBuf) {
    let directory = view.directory.as_ref().expect("it is a folder");
    let at = directory.path.ancestors().nth(2).expect("it is in the pool's mount");
    let root = host.mounts().open_root(at, &view.node).expect("mounted");
    (root, directory.root.strip_prefix("/").expect("absolute").join("file"))
}

fn step(node: &mut Node, host: &FakeHost, step: Step, told: &mut Told) -> Result<(), String> {
    let words = |error: PoolError| chain(&error);
    match step {
        Step::Claim => {
            node.passes()?;
            let is_usable = node.pool.members().iter().any(|member| member.is_usable());
            return if is_usable { Ok(()) } else { Err("not claimed".to_owned()) };
        }
        Step::Create(name, size) => {
            let (view, _) = node.pool.create(&request(name, XFS, size)).map_err(words)?;
            assert_eq!(view.size, size, "just what was asked for");
            told.volumes.insert(name, (size, None));
        }
        Step::Write(name, text) => {
            let (root, file) = file(host, &node.pool.usable(id(name)).map_err(words)?);
            root.write(&file, text).map_err(|error| chain(&error))?;
            told.volumes.get_mut(name).expect("it exists").1 = Some(text);
        }
        Step::Expand(name, size) => {
            assert_eq!(node.pool.expand(id(name), size, None).map_err(words)?.size, size);
            told.volumes.get_mut(name).expect("it exists").0 = size;
        }
        Step::Delete(name) => {
            node.pool.delete(id(name)).map_err(words)?;
            told.volumes.remove(name);
        }
        Step::Work => node.pool.work_until_idle().map_err(words)?,
        Step::Release => {
            for member in node.pool.members() {
                node.pool.release(&member).map_err(words)?;
            }
        }
    }
    Ok(())
}

fn run(host: &Arc<FakeHost>, told: &mut Told) -> Result<(), String> {
    let mut node = start(host)?;
    if (1..LIFE.len()).contains(&told.done) {
        node.passes()?;
    }
    while let Some(next) = LIFE.get(told.done).copied() {
        told.pending = Some(next);
        step(&mut node, host, next, told)?;
        told.pending = None;
        told.done += 1;
    }
    Ok(())
}

fn free(node: &Node) -> u64 {
    node.pool.disk_views().iter().map(|disk| disk.free).sum()
}

fn check(host: &Arc<FakeHost>, told: &Told, at: &str) {
    let mut node = start(host).unwrap_or_else(|error| panic!("{at}: {error}"));
    node.passes().unwrap_or_else(|error| panic!("{at}: {error}"));
    let is_pending = |name: &str| match told.pending {
        Some(Step::Create(of, _) | Step::Delete(of)) => of == name,
        _ => false,
    };
    for (name, (size, text)) in &told.volumes {
        let view = match node.pool.usable(id(name)) {
            Ok(view) => view,
            Err(PoolError::NoSuchVolume { .. }) if is_pending(name) => continue,
            Err(error) => panic!("{at}: {name}: {error}"),
        };
        assert!(view.size >= *size, "{at}: {name} shrank");
        let (root, file) = file(host, &view);
        let found = root.read(&file).expect("read");
        assert!(text.is_none_or(|text| found.as_deref() == Some(text)), "{at}: {name} has {found:?}, not {text:?}");
    }
    for view in node.pool.volumes() {
        let known = ["a", "b"].into_iter().find(|name| id(name) == view.id).expect("one of them");
        assert!(told.volumes.contains_key(known) || is_pending(known), "{at}: nobody was told of {known}");
        let (root, file) = file(host, &view);
        let wrote = told.volumes.get(known).and_then(|told| told.1);
        let found = root.read(&file).expect("read");
        let may_be = found.is_none() || found.as_deref() == wrote || told.pending == Some(Step::Delete(known));
        let is_write = matches!(told.pending, Some(Step::Write(of, _)) if of == known);
        assert!(may_be || is_write, "{at}: {known} shows {found:?}");
    }
    node.pool.work_until_idle().unwrap_or_else(|error| panic!("{at}: {error}"));
    if node.pool.members().iter().any(|member| member.is_usable()) {
        let used: u64 = node.pool.volumes().iter().map(|view| view.size).sum();
        let fresh = machine();
        let mut empty = start(&fresh).expect("starts");
        empty.passes().expect("claims");
        assert_eq!(free(&node) + used, free(&empty), "{at}: space is lost");
        let view = node.pool.disk_views().remove(0);
        let root = host.mounts().open_root(&host.own_mounts().join(view.id.as_str()), Path::new("/dev/fake0p2"));
        let root = root.unwrap_or_else(|error| panic!("{at}: {error}"));
        for folder in ["making", "trash"] {
            assert_eq!(root.names(Path::new(folder)).expect("read"), [""; 0], "{at}: in {folder}");
        }
    }
}

#[test]
fn a_disk_of_folders_converges_after_a_stop_at_any_effect() {
    let whole = machine();
    run(&whole, &mut Told::default()).expect("the life without a stop");
    let effects = whole.power.spent();
    assert!(effects > 40, "a life has many effects: {effects}");
    for n in 1..=effects {
        for end in ENDS {
            let at = format!("{end:?} after effect {n} of {effects}");
            let host = machine();
            let mut told = Told::default();
            host.power.cut_after(n);
            let stopped = run(&host, &mut told);
            assert!(stopped.is_err() && host.power.is_off(), "{at}: it was not stopped: {stopped:?}");
            if matches!(end, End::PowerCut(Fate::Unreadable)) && told.done == 0 {
                // The disk is not yet provably ours, so it is not touched.
                continue;
            }
            match end {
                End::PowerCut(fate) => host.reboot(fate),
                End::Killed => host.restart_process(),
            }
            if told.pending != Some(Step::Release) {
                check(&host, &told, &at);
            }
            let rest = run(&host, &mut told);
            rest.unwrap_or_else(|error| panic!("{at}: the rest of its life fails at {:?}: {error}", told.pending));
        }
    }
}
