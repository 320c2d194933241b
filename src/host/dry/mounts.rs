//! The mounts of a machine on which nothing is changed: looked at, and not made or ended.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{DryHost, refused};
use crate::host::error::HostError;
use crate::host::filesystem_root::FilesystemRoot;
use crate::host::filesystem_state::FilesystemState;
use crate::host::fs_usage::FsUsage;
use crate::host::port::{
    DeviceLimits, FsKind, Mount, MountSource, MountedFilesystem, Mounts, NoMountPoint, PathState, TargetAccess,
    TargetKind,
};
use crate::host::project_quota::ModuleLoading;

impl Mounts for DryHost {
    fn table(&self) -> Result<Vec<Mount>, HostError> {
        self.real.mounts().table()
    }

    fn mount(&self, _: &Path, target: &Path, _: FsKind, _: &[String]) -> Result<(), HostError> {
        refused("mount at", target)
    }

    fn bind(&self, _: &Path, target: &Path, _: TargetAccess) -> Result<(), HostError> {
        refused("mount at", target)
    }

    fn unmount(&self, target: &Path) -> Result<(), HostError> {
        refused("unmount", target)
    }

    fn detach(&self, target: &Path) -> Result<(), HostError> {
        refused("unmount", target)
    }

    fn supports_project_quota(&self, _: ModuleLoading) -> Result<(), HostError> {
        self.real.mounts().supports_project_quota(ModuleLoading::Forbidden)
    }

    fn open_root(&self, target: &Path, _: &Path) -> Result<Arc<dyn FilesystemRoot>, HostError> {
        refused("write below", target)
    }

    fn mounted_filesystem(&self, path: &Path) -> Result<Result<MountedFilesystem, NoMountPoint>, HostError> {
        refused("write below", path)
    }

    fn make_target(&self, target: &Path, _: TargetKind) -> Result<(), HostError> {
        refused("make", target)
    }

    fn remove_target(&self, target: &Path) -> Result<(), HostError> {
        refused("remove", target)
    }

    fn has_target(&self, target: &Path) -> Result<bool, HostError> {
        self.real.mounts().has_target(target)
    }

    fn is_from(&self, mount: &Mount, source: MountSource<'_>) -> bool {
        self.real.mounts().is_from(mount, source)
    }

    fn can_show_on_host(&self, folder: &Path) -> Result<(), HostError> {
        self.real.mounts().can_show_on_host(folder)
    }

    fn show_on_host(&self, _: &Path, at: &Path) -> Result<(), HostError> {
        refused("mount at", at)
    }

    fn stale_bind_of(&self, table: &[Mount], node: &Path) -> Option<PathBuf> {
        self.real.mounts().stale_bind_of(table, node)
    }

    fn is_read_only(&self, node: &Path) -> Result<bool, HostError> {
        self.real.mounts().is_read_only(node)
    }

    fn set_access(&self, node: &Path, _: TargetAccess) -> Result<(), HostError> {
        refused("change who may write to", node)
    }

    fn device_limits(&self, node: &Path) -> Option<DeviceLimits> {
        self.real.mounts().device_limits(node)
    }

    fn usage(&self, path: &Path) -> Result<FsUsage, HostError> {
        self.real.mounts().usage(path)
    }

    fn filesystem_state(&self, mount: &Mount) -> Result<FilesystemState, HostError> {
        self.real.mounts().filesystem_state(mount)
    }

    fn path_state(&self, path: &Path) -> Result<PathState, HostError> {
        self.real.mounts().path_state(path)
    }

    fn path_identity(&self, path: &Path) -> Option<String> {
        self.real.mounts().path_identity(path)
    }
}
