//! Fake mounts: a table in memory that keeps its devices busy, as the kernel does.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use super::gate::Gate;
use super::tree::FakeRoot;
use super::{Inventory, locked};
use crate::host::error::HostError;
use crate::host::filesystem_root::FilesystemRoot;
use crate::host::filesystem_state::FilesystemState;
use crate::host::fs_usage::FsUsage;
use crate::host::port::{
    DeviceLimits, FsKind, Mount, MountSource, MountedFilesystem, Mounts, NoMountPoint, PathState, TargetAccess,
    TargetKind,
};
use crate::host::project_quota::{ModuleLoading, ProjectId};
use crate::host::raw::DevNo;

/// The option of a mount with project quota.
const QUOTA: &str = "prjquota";

/// The mount table and the targets that were made.
pub struct FakeMounts {
    inventory: Arc<Mutex<Inventory>>,
    state: Mutex<State>,
    quota: Arc<Mutex<FakeQuota>>,
    was_asked_to_load: AtomicBool,
    asked: AtomicUsize,
    measured: AtomicUsize,
    /// The gate of `usage` and `filesystem_state`, and of each path that is looked at, by its name.
    pub gate: Gate,
}

/// What there is of project quota.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FakeQuota {
    /// Each filesystem that is mounted with `prjquota` has it.
    #[default]
    AsMounted,
    /// The kernel knows none.
    NotInKernel,
    /// A person has switched its enforcement off.
    SwitchedOff,
    /// A limit that is set changes nothing, and nobody says so.
    Ignored,
    /// What filesystems have of this project cannot be read.
    Damaged(ProjectId),
}

#[derive(Default)]
struct State {
    /// Target and the device node that it came from, in mount order.
    mounts: Vec<(Mount, PathBuf)>,
    /// The number of the error with which each look at the table ends.
    unreadable: Option<i32>,
    targets: BTreeMap<PathBuf, TargetKind>,
    read_only: BTreeSet<PathBuf>,
    /// Sizes by device node; all others are as they were made.
    shrunk: BTreeMap<PathBuf, u64>,
    /// By target; all others are well.
    filesystems: BTreeMap<PathBuf, FilesystemState>,
    /// By target: the number of the error with which each question ends.
    failing: BTreeMap<PathBuf, i32>,
    /// By target, or the number of an error; all others report nothing.
    usages: BTreeMap<PathBuf, Result<FsUsage, i32>>,
    /// All others are absent, but for targets; the number of an error where there is one.
    paths: BTreeMap<PathBuf, Result<PathState, i32>>,
    /// Nobody says it of all others.
    identities: BTreeMap<PathBuf, String>,
    /// By device node; all others have the number of their device.
    fsids: BTreeMap<PathBuf, u64>,
    /// The paths of the host at which nothing can be mounted, and why.
    unshown: BTreeMap<PathBuf, String>,
    /// At all others, where no filesystem is mounted, there is a folder.
    no_mount_points: BTreeMap<PathBuf, NoMountPoint>,
}

impl State {
    /// Why nothing can be mounted at a path.
    fn unshown(&self, at: &Path) -> Option<String> {
        self.unshown.iter().find(|(above, _)| at.starts_with(above)).map(|(_, why)| why.clone())
    }
}

impl FakeMounts {
    pub(super) fn new(inventory: Arc<Mutex<Inventory>>) -> Self {
        Self {
            inventory,
            state: Mutex::default(),
            quota: Arc::default(),
            was_asked_to_load: AtomicBool::default(),
            asked: AtomicUsize::default(),
            measured: AtomicUsize::default(),
            gate: Gate::default(),
        }
    }

    /// How often somebody asked whose a mount is, or what the kernel has of a device.
    pub fn asked(&self) -> usize {
        self.asked.load(Ordering::Relaxed)
    }

    /// How often somebody asked a filesystem how full it is.
    pub fn measured(&self) -> usize {
        self.measured.load(Ordering::Relaxed)
    }

    pub(super) fn forget_all(&self) {
        *locked(&self.state) = State::default();
    }

    /// What there is of project quota from now on.
    pub fn set_quota(&self, quota: FakeQuota) {
        *locked(&self.quota) = quota;
    }

    /// Somebody has asked for quota in a way that has the kernel load a module.
    pub fn was_asked_to_load(&self) -> bool {
        self.was_asked_to_load.load(Ordering::Relaxed)
    }

    pub(super) fn set_filesystem_state(&self, target: &Path, state: FilesystemState) {
        locked(&self.state).filesystems.insert(target.to_owned(), state);
    }

    /// What a filesystem reports where it is mounted from now on.
    pub fn set_usage(&self, target: &Path, usage: FsUsage) {
        locked(&self.state).usages.insert(target.to_owned(), Ok(usage));
    }

    /// A filesystem does not say how much of it is used from now on.
    pub fn set_usage_error(&self, target: &Path, errno: i32) {
        locked(&self.state).usages.insert(target.to_owned(), Err(errno));
    }

    pub fn set_path_state(&self, path: &Path, state: PathState) {
        locked(&self.state).paths.insert(path.to_owned(), Ok(state));
    }

    /// Which filesystem or device is at a path from now on; `None`: nobody says.
    pub fn set_path_identity(&self, path: &Path, identity: Option<&str>) {
        let identities = &mut locked(&self.state).identities;
        match identity {
            Some(identity) => drop(identities.insert(path.to_owned(), identity.to_owned())),
            None => drop(identities.remove(path)),
        }
    }

    /// The kernel has the filesystem on a device under another number from now on.
    pub fn set_fsid(&self, node: &Path, fsid: u64) {
        locked(&self.state).fsids.insert(node.to_owned(), fsid);
    }

    /// What is at a path where no filesystem is mounted.
    pub fn set_no_mount_point(&self, path: &Path, what: NoMountPoint) {
        locked(&self.state).no_mount_points.insert(path.to_owned(), what);
    }

    /// A look at the filesystem of a mount fails from now on; `None`: it is answered again.
    pub fn set_filesystem_error(&self, target: &Path, errno: Option<i32>) {
        let mut state = locked(&self.state);
        state.failing.remove(target);
        state.failing.extend(errno.map(|errno| (target.to_owned(), errno)));
    }

    /// Nothing can be mounted at a path of the host or below it from now on, and why; `None`: it can.
    pub fn set_unshown(&self, at: &Path, why: Option<&str>) {
        let mut state = locked(&self.state);
        state.unshown.remove(at);
        state.unshown.extend(why.map(|why| (at.to_owned(), why.to_owned())));
    }

    /// A look at the path fails from now on.
    pub fn set_path_error(&self, path: &Path, errno: i32) {
        locked(&self.state).paths.insert(path.to_owned(), Err(errno));
    }

    /// The table cannot be read from now on; `None`: it can.
    pub fn set_table_error(&self, errno: Option<i32>) {
        locked(&self.state).unreadable = errno;
    }

    /// The table calls the source of a mount by another of its names from now on.
    pub fn set_source(&self, target: &Path, source: &str) {
        let mut state = locked(&self.state);
        state
            .mounts
            .iter_mut()
            .filter(|(mount, _)| mount.target == target)
            .for_each(|(mount, _)| mount.source = source.to_owned());
    }

    /// The kernel has the device with another size from now on.
    pub fn set_device_size(&self, node: &Path, size: u64) {
        locked(&self.state).shrunk.insert(node.to_owned(), size);
    }

    fn hold(&self, device: &Path, held: bool) {
        if let Some((platter, number)) = locked(&self.inventory).resolve(device) {
            platter.set_in_use(number, held);
        }
    }
}

impl Mounts for FakeMounts {
    fn table(&self) -> Result<Vec<Mount>, HostError> {
        let state = locked(&self.state);
        if let Some(errno) = state.unreadable {
            let source = std::io::Error::from_raw_os_error(errno);
            return Err(HostError::Io { what: "read", object: "the mount table".to_owned(), source });
        }
        Ok(state.mounts.iter().map(|(mount, _)| mount.clone()).collect())
    }

    fn mount(&self, device: &Path, target: &Path, kind: FsKind, options: &[String]) -> Result<(), HostError> {
        if locked(&self.inventory).resolve(device).is_none() {
            return Err(HostError::Unsupported { what: format!("{} is not there", device.display()) });
        }
        if *locked(&self.quota) == FakeQuota::NotInKernel && options.iter().any(|word| word == QUOTA) {
            let source = std::io::Error::from_raw_os_error(nix::libc::EINVAL);
            return Err(HostError::Io { what: "mount", object: device.display().to_string(), source });
        }
        self.hold(device, true);
        let mount = Mount {
            device: locked(&self.inventory).number(device).unwrap_or(DevNo { major: 0, minor: 0 }),
            root: PathBuf::from("/"),
            target: target.to_owned(),
            fs_type: format!("{kind:?}").to_lowercase(),
            source: device.display().to_string(),
            options: options.to_vec(),
        };
        locked(&self.state).mounts.push((mount, device.to_owned()));
        Ok(())
    }

    fn bind(&self, source: &Path, target: &Path, access: TargetAccess) -> Result<(), HostError> {
        let mut state = locked(&self.state);
        let above = state.mounts.iter().rev().find(|(mount, _)| source.starts_with(&mount.target)).cloned();
        let below = above.map(|(mount, device)| {
            let inner = source.strip_prefix(&mount.target).unwrap_or(Path::new(""));
            let root = if inner.as_os_str().is_empty() { mount.root.clone() } else { mount.root.join(inner) };
            (Mount { root, ..mount }, device)
        });
        let (mut mount, device) = below.unwrap_or_else(|| {
            let mount = Mount {
                device: DevNo { major: 0, minor: 5 },
                root: PathBuf::from("/").join(source.file_name().unwrap_or_default()),
                target: target.to_owned(),
                fs_type: "devtmpfs".to_owned(),
                source: "devtmpfs".to_owned(),
                options: Vec::new(),
            };
            (mount, source.to_owned())
        });
        mount.target = target.to_owned();
        if access == TargetAccess::ReadOnly {
            mount.options.push("ro".to_owned());
        }
        state.mounts.push((mount, device));
        Ok(())
    }

    fn unmount(&self, target: &Path) -> Result<(), HostError> {
        let mut state = locked(&self.state);
        let Some(index) = state.mounts.iter().rposition(|(mount, _)| mount.target == target) else {
            return Ok(());
        };
        let (_, device) = state.mounts.remove(index);
        let still = state.mounts.iter().any(|(mount, from)| *from == device && mount.fs_type != "devtmpfs");
        drop(state);
        self.hold(&device, still);
        Ok(())
    }

    fn detach(&self, target: &Path) -> Result<(), HostError> {
        self.unmount(target)
    }

    fn supports_project_quota(&self, loading: ModuleLoading) -> Result<(), HostError> {
        self.was_asked_to_load.fetch_or(loading == ModuleLoading::Allowed, Ordering::Relaxed);
        match *locked(&self.quota) {
            FakeQuota::NotInKernel => {
                Err(HostError::Unsupported { what: "the kernel was built without quota for XFS".to_owned() })
            }
            FakeQuota::AsMounted | FakeQuota::SwitchedOff | FakeQuota::Ignored | FakeQuota::Damaged(_) => Ok(()),
        }
    }

    fn open_root(&self, target: &Path, node: &Path) -> Result<Arc<dyn FilesystemRoot>, HostError> {
        let changed = || HostError::Changed { path: target.to_owned(), why: "another filesystem is there".to_owned() };
        let state = locked(&self.state);
        let top = state.mounts.iter().rev().find(|(mount, _)| mount.target == target);
        let (top, _) =
            top.filter(|(mount, device)| device == node && mount.root == Path::new("/")).ok_or_else(changed)?;
        let counts = top.options.iter().any(|word| word == QUOTA);
        let (platter, number) = locked(&self.inventory).resolve(node).ok_or_else(changed)?;
        let start = platter.mapping(number).map_or(0, |extent| extent.start);
        let size = platter.mapping(number).map_or(platter.geometry.size, |extent| extent.len());
        Ok(Arc::new(FakeRoot { platter, start, size, counts, quota: Arc::clone(&self.quota) }))
    }

    fn mounted_filesystem(&self, path: &Path) -> Result<Result<MountedFilesystem, NoMountPoint>, HostError> {
        // A path may hang alone.
        self.gate.pass(&path.to_string_lossy());
        let state = locked(&self.state);
        let is_there = |(mount, _): &&(Mount, PathBuf)| mount.target == path;
        let Some((mount, node)) = state.mounts.iter().rev().find(is_there).cloned() else {
            return Ok(Err(state.no_mount_points.get(path).copied().unwrap_or(NoMountPoint::NotMounted)));
        };
        if mount.root != Path::new("/") {
            return Ok(Err(NoMountPoint::Part));
        }
        let is_of_system = state.mounts.iter().any(|(one, from)| one.target == Path::new("/") && *from == node);
        let fsid = state.fsids.get(&node).copied().unwrap_or_else(|| u64::from(mount.device.minor));
        drop(state);
        let root = self.open_root(path, &node)?;
        Ok(Ok(MountedFilesystem { mount, fsid, is_of_system, root }))
    }

    fn make_target(&self, target: &Path, kind: TargetKind) -> Result<(), HostError> {
        let mut state = locked(&self.state);
        match state.targets.insert(target.to_owned(), kind) {
            Some(other) if other != kind => {
                state.targets.insert(target.to_owned(), other);
                Err(HostError::Unsupported { what: format!("{} is a {other:?}", target.display()) })
            }
            _ => Ok(()),
        }
    }

    fn remove_target(&self, target: &Path) -> Result<(), HostError> {
        locked(&self.state).targets.remove(target);
        Ok(())
    }

    fn has_target(&self, target: &Path) -> Result<bool, HostError> {
        Ok(self.path_state(target)? != PathState::Absent)
    }

    fn is_from(&self, mount: &Mount, source: MountSource<'_>) -> bool {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let shows_root = match mount.fs_type.as_str() {
            "devtmpfs" => source.is_whole(),
            _ => source.has(&mount.root),
        };
        let state = locked(&self.state);
        shows_root && state.mounts.iter().any(|(known, device)| known == mount && device == source.device)
    }

    fn can_show_on_host(&self, folder: &Path) -> Result<(), HostError> {
        let state = locked(&self.state);
        match state.unshown(folder) {
            Some(what) => Err(HostError::Unsupported { what }),
            None => Ok(()),
        }
    }

    fn show_on_host(&self, source: &Path, at: &Path) -> Result<(), HostError> {
        if let Some(why) = locked(&self.state).unshown(at) {
            return Err(HostError::Unsupported { what: why });
        }
        self.bind(source, at, TargetAccess::ReadWrite)
    }

    fn hide_from_host(&self, at: &Path) -> Result<(), HostError> {
        if let Some(why) = locked(&self.state).unshown(at) {
            return Err(HostError::Busy { object: why });
        }
        self.unmount(at)
    }

    fn stale_bind_of(&self, _: &[Mount], _: &Path) -> Option<PathBuf> {
        None
    }

    fn is_read_only(&self, node: &Path) -> Result<bool, HostError> {
        Ok(locked(&self.state).read_only.contains(node))
    }

    fn set_access(&self, node: &Path, access: TargetAccess) -> Result<(), HostError> {
        let mut state = locked(&self.state);
        match access {
            TargetAccess::ReadOnly => state.read_only.insert(node.to_owned()),
            TargetAccess::ReadWrite => state.read_only.remove(node),
        };
        Ok(())
    }

    fn device_limits(&self, node: &Path) -> Option<DeviceLimits> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let state = locked(&self.state);
        let size = state.shrunk.get(node).copied().or_else(|| {
            let (platter, number) = locked(&self.inventory).resolve(node)?;
            match number {
                0 => Some(platter.geometry.size),
                number => platter.mapping(number).map(|extent| extent.len()),
            }
        })?;
        Some(DeviceLimits { size, is_read_only: state.read_only.contains(node) })
    }

    fn usage(&self, path: &Path) -> Result<FsUsage, HostError> {
        self.gate.pass("usage");
        self.measured.fetch_add(1, Ordering::Relaxed);
        let of = |errno| {
            let source = std::io::Error::from_raw_os_error(errno);
            HostError::Io { what: "look at", object: path.display().to_string(), source }
        };
        locked(&self.state).usages.get(path).copied().unwrap_or(Ok(FsUsage::default())).map_err(of)
    }

    fn filesystem_state(&self, mount: &Mount) -> Result<FilesystemState, HostError> {
        self.gate.pass("filesystem_state");
        if let Some(errno) = locked(&self.state).failing.get(&mount.target) {
            let source = std::io::Error::from_raw_os_error(*errno);
            return Err(HostError::Io { what: "look at", object: mount.target.display().to_string(), source });
        }
        Ok(locked(&self.state).filesystems.get(&mount.target).copied().unwrap_or_default())
    }

    fn path_identity(&self, path: &Path) -> Option<String> {
        locked(&self.state).identities.get(path).cloned()
    }

    fn path_state(&self, path: &Path) -> Result<PathState, HostError> {
        // A path may hang alone.
        self.gate.pass(&path.to_string_lossy());
        let state = locked(&self.state);
        let made = || if state.targets.contains_key(path) { PathState::Other } else { PathState::Absent };
        let found = state.paths.get(path).copied().unwrap_or_else(|| Ok(made()));
        found.map_err(|errno| HostError::Io {
            what: "look at",
            object: path.display().to_string(),
            source: std::io::Error::from_raw_os_error(errno),
        })
    }
}
