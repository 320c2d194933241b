//! What is wrong with the path of a local PersistentVolume of another provisioner: the checks of Kubernetes'
//! proposal for monitoring local volumes, in its order.

use std::path::PathBuf;

use super::finding::Finding;
use super::observed::of_filesystem;
use super::reason::HealthReason;
use crate::host::{Mounted, PathState};

/// A path of this node that the controller wants checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchedPath {
    /// The name and the UID of the PersistentVolume.
    pub volume: String,
    pub uid: String,
    pub path: PathBuf,
    /// What the PersistentVolume promises, in bytes.
    pub capacity: u64,
    pub kind: PathKind,
    /// It was a mount point before, or its provisioner makes nothing else.
    pub is_mounted: bool,
}

/// What a PersistentVolume is to its pods (`volumeMode`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathKind {
    /// A directory, or a device whose filesystem kubelet mounts.
    Filesystem,
    Block,
}

impl WatchedPath {
    /// The first that is wrong is the only finding, as it hides the others. How the filesystem is comes beside it: the
    /// proposal does not ask.
    pub fn findings(&self, state: &PathState) -> Vec<Finding> {
        let path = self.path.display().to_string();
        let path = path.escape_debug();
        let not_there = |what: &str| vec![Finding::new(HealthReason::HostPathNotExist, format!("{path} {what}"))];
        match (state, self.kind) {
            (PathState::Absent, _) => not_there("does not exist"),
            (PathState::Device { size: None }, _) => not_there("leads to a device that is gone"),
            (PathState::Device { size: Some(size) }, _) => self.too_large(Some(*size)).into_iter().collect(),
            (PathState::Directory { .. } | PathState::Other, PathKind::Block) => not_there("is no block device"),
            (PathState::Other, PathKind::Filesystem) => not_there("is neither a directory nor a block device"),
            (PathState::Directory { mounted: Mounted::Nothing, .. }, PathKind::Filesystem) if self.is_mounted => {
                vec![Finding::new(HealthReason::NotMountPoint, format!("nothing is mounted at {path} any more"))]
            }
            (PathState::Directory { mounted, device_size, usage, filesystem }, PathKind::Filesystem) => {
                let size = device_size.or((usage.total > 0).then_some(usage.total));
                // A part of a filesystem is not all that is used of it.
                let used = *mounted == Mounted::Whole && self.capacity > 0 && usage.used > self.capacity;
                let used = used.then(|| {
                    let words = format!("more is used at {path} than the capacity of {} bytes", self.capacity);
                    Finding::new(HealthReason::MisMatchedVolSize, words)
                });
                let inodes = *mounted != Mounted::Nothing && usage.inodes > 0 && usage.inodes_free == 0;
                let inodes = inodes.then(|| {
                    Finding::new(HealthReason::InodesExhausted, format!("the filesystem at {path} has no free inode"))
                });
                // A directory is a part of the node's own filesystem.
                let filesystem = filesystem.filter(|_| *mounted != Mounted::Nothing);
                let filesystem = filesystem.into_iter().flat_map(of_filesystem);
                let filesystem = filesystem.map(|(reason, words)| Finding::new(reason, format!("{words}, at {path}")));
                self.too_large(size).or(used).into_iter().chain(inodes).chain(filesystem).collect()
            }
        }
    }

    fn too_large(&self, size: Option<u64>) -> Option<Finding> {
        let size = size.filter(|size| self.capacity > *size)?;
        let words = format!("the capacity is {} bytes, and the device has {size}", self.capacity);
        Some(Finding::new(HealthReason::MisMatchedVolSize, words))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::{FilesystemState, FsUsage};

    const GIB: u64 = 1 << 30;

    fn words(kind: PathKind, is_mounted: bool, state: PathState) -> String {
        let path = "/mnt/a b\nc".into();
        let watched =
            WatchedPath { volume: "v".to_owned(), uid: "u".to_owned(), path, capacity: GIB, kind, is_mounted };
        let found = watched.findings(&state);
        assert!(found.iter().all(|finding| !finding.message.contains('\n')), "{found:?}");
        found.iter().map(|finding| finding.reason.word()).collect::<Vec<_>>().join(" ")
    }

    fn directory(mounted: Mounted, device_size: Option<u64>, usage: FsUsage) -> PathState {
        PathState::Directory { mounted, device_size, usage, filesystem: None }
    }

    #[test]
    fn a_path_must_lead_to_what_the_volume_is() {
        use PathKind::{Block, Filesystem};
        for kind in [Block, Filesystem] {
            assert_eq!(words(kind, true, PathState::Absent), "HostPathNotExist");
            assert_eq!(words(kind, true, PathState::Other), "HostPathNotExist");
            assert_eq!(words(kind, true, PathState::Device { size: None }), "HostPathNotExist");
            assert_eq!(words(kind, true, PathState::Device { size: Some(GIB) }), "");
            assert_eq!(words(kind, true, PathState::Device { size: Some(GIB - 1) }), "MisMatchedVolSize");
        }
        let directory = directory(Mounted::Nothing, None, FsUsage::default());
        assert_eq!(words(Block, false, directory), "HostPathNotExist");
        assert_eq!(words(Filesystem, false, directory), "", "some are directories from the beginning");
        assert_eq!(words(Filesystem, true, directory), "NotMountPoint");
    }

    #[test]
    fn a_path_that_is_no_mount_point_any_more_is_only_that_whatever_its_directory_is_in() {
        let full = FsUsage { total: 9 * GIB, used: 2 * GIB, inodes: 10, ..FsUsage::default() };
        let broken = FilesystemState { is_read_only: true, errors: Some(1), is_shut_down: true };
        for device_size in [None, Some(GIB - 1), Some(9 * GIB)] {
            let (mounted, usage) = (Mounted::Nothing, full);
            let state = PathState::Directory { mounted, device_size, usage, filesystem: Some(broken) };
            assert_eq!(words(PathKind::Filesystem, true, state), "NotMountPoint", "{device_size:?}");
        }
    }

    #[test]
    fn a_filesystem_that_is_mounted_there_is_looked_at_and_the_one_that_a_directory_is_in_is_not() {
        let usage = FsUsage { total: GIB, ..FsUsage::default() };
        let found = |mounted, filesystem| {
            let state = PathState::Directory { mounted, device_size: Some(GIB), usage, filesystem: Some(filesystem) };
            words(PathKind::Filesystem, false, state)
        };
        let read_only = FilesystemState { is_read_only: true, ..FilesystemState::default() };
        let shut_down = FilesystemState { is_shut_down: true, errors: Some(3), ..FilesystemState::default() };
        assert_eq!(found(Mounted::Whole, FilesystemState::default()), "");
        assert_eq!(found(Mounted::Whole, read_only), "FilesystemReadOnly");
        assert_eq!(found(Mounted::Part, shut_down), "FilesystemShutDown FilesystemErrors");
        assert_eq!(found(Mounted::Nothing, shut_down), "");
    }

    #[test]
    fn a_volume_must_not_promise_or_use_more_than_there_is() {
        let kind = PathKind::Filesystem;
        let usage = FsUsage { total: GIB - (1 << 20), used: 5, inodes: 10, inodes_free: 1, ..FsUsage::default() };
        assert_eq!(
            words(kind, true, directory(Mounted::Whole, Some(GIB), usage)),
            "",
            "a filesystem is smaller than its device"
        );
        assert_eq!(words(kind, true, directory(Mounted::Whole, Some(GIB - 1), usage)), "MisMatchedVolSize");
        assert_eq!(words(kind, true, directory(Mounted::Whole, None, usage)), "MisMatchedVolSize");
        let over = FsUsage { used: GIB + 1, inodes_free: 0, ..usage };
        assert_eq!(
            words(kind, true, directory(Mounted::Whole, Some(9 * GIB), over)),
            "MisMatchedVolSize InodesExhausted"
        );
        assert_eq!(
            words(kind, false, directory(Mounted::Nothing, Some(9 * GIB), over)),
            "",
            "it is used by others, too"
        );
        assert_eq!(words(kind, true, directory(Mounted::Part, Some(9 * GIB), over)), "InodesExhausted");
    }
}
