//! Fake mounts: a table in memory that keeps its devices busy, as the kernel does.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use super::gate::Gate;
use super::tree::FakeRoot;
use super::{Inventory, locked};
use crate::host::error::HostError;
use crate::host::filesystem_root::FilesystemRoot;
use crate::host::filesystem_state::FilesystemState;
use crate::host::fs_usage::FsUsage;
use crate::host::port::{DeviceLimits, FsKind, Mount, MountSource, Mounts, PathState, TargetAccess, TargetKind};
use crate::host::raw::DevNo;

/// The mount table and the targets that were made.
pub struct FakeMounts {
    inventory: Arc<Mutex<Inventory>>,
    state: Mutex<State>,
    /// The gate of `usage` and `filesystem_state`, and of each path that is looked at, by its name.
    pub gate: Gate,
}

#[derive(Default)]
struct State {
    /// Target and the device node that it came from, in mount order.
    mounts: Vec<(Mount, PathBuf)>,
    targets: BTreeMap<PathBuf, TargetKind>,
    read_only: BTreeSet<PathBuf>,
    /// Sizes by device node; all others are as they were made.
    shrunk: BTreeMap<PathBuf, u64>,
    /// By target; all others are well.
    filesystems: BTreeMap<PathBuf, FilesystemState>,
    /// By target; all others report nothing.
    usages: BTreeMap<PathBuf, FsUsage>,
    /// All others are absent; the number of an error where there is one.
    paths: BTreeMap<PathBuf, Result<PathState, i32>>,
}

impl FakeMounts {
    pub(super) fn new(inventory: Arc<Mutex<Inventory>>) -> Self {
        Self { inventory, state: Mutex::default(), gate: Gate::default() }
    }

    pub(super) fn forget_all(&self) {
        *locked(&self.state) = State::default();
    }

    pub(super) fn set_filesystem_state(&self, target: &Path, state: FilesystemState) {
        locked(&self.state).filesystems.insert(target.to_owned(), state);
    }

    /// What a filesystem reports where it is mounted from now on.
    pub fn set_usage(&self, target: &Path, usage: FsUsage) {
        locked(&self.state).usages.insert(target.to_owned(), usage);
    }

    pub fn set_path_state(&self, path: &Path, state: PathState) {
        locked(&self.state).paths.insert(path.to_owned(), Ok(state));
    }

    /// A look at the path fails from now on.
    pub fn set_path_error(&self, path: &Path, errno: i32) {
        locked(&self.state).paths.insert(path.to_owned(), Err(errno));
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
        Ok(locked(&self.state).mounts.iter().map(|(mount, _)| mount.clone()).collect())
    }

    fn mount(&self, device: &Path, target: &Path, kind: FsKind, options: &[String]) -> Result<(), HostError> {
        if locked(&self.inventory).resolve(device).is_none() {
            return Err(HostError::Unsupported { what: format!("{} is not there", device.display()) });
        }
        self.hold(device, true);
        let mount = Mount {
            device: DevNo { major: 0, minor: 0 },
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

    fn open_root(&self, target: &Path, node: &Path) -> Result<Arc<dyn FilesystemRoot>, HostError> {
        let changed = || HostError::Changed { path: target.to_owned(), why: "another filesystem is there".to_owned() };
        let state = locked(&self.state);
        let top = state.mounts.iter().rev().find(|(mount, _)| mount.target == target);
        top.filter(|(mount, device)| device == node && mount.root == Path::new("/")).ok_or_else(changed)?;
        let (platter, number) = locked(&self.inventory).resolve(node).ok_or_else(changed)?;
        let start = platter.mapping(number).map_or(0, |extent| extent.start);
        let size = platter.mapping(number).map_or(platter.geometry.size, |extent| extent.len());
        Ok(Arc::new(FakeRoot { platter, start, size }))
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

    fn is_from(&self, mount: &Mount, source: MountSource<'_>) -> bool {
        let shows_root = match mount.fs_type.as_str() {
            "devtmpfs" => source.is_whole(),
            _ => source.has(&mount.root),
        };
        let state = locked(&self.state);
        shows_root && state.mounts.iter().any(|(known, device)| known == mount && device == source.device)
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
        Ok(locked(&self.state).usages.get(path).copied().unwrap_or_default())
    }

    fn filesystem_state(&self, mount: &Mount) -> Result<FilesystemState, HostError> {
        self.gate.pass("filesystem_state");
        Ok(locked(&self.state).filesystems.get(&mount.target).copied().unwrap_or_default())
    }

    fn path_state(&self, path: &Path) -> Result<PathState, HostError> {
        // A path may hang alone.
        self.gate.pass(&path.to_string_lossy());
        let found = locked(&self.state).paths.get(path).copied().unwrap_or(Ok(PathState::Absent));
        found.map_err(|errno| HostError::Io {
            what: "look at",
            object: path.display().to_string(),
            source: std::io::Error::from_raw_os_error(errno),
        })
    }
}
