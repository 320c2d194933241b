//! What is wrong with the path of a local PersistentVolume of another provisioner: the checks of Kubernetes'
//! proposal for monitoring local volumes, in its order.

use std::path::PathBuf;

use super::finding::Finding;
use super::observed::of_filesystem;
use super::reason::HealthReason;
use crate::device::PvName;
use crate::host::{Mounted, PathState, name_type, text_type};

/// The UID of a PersistentVolume.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PvUid(String);

/// The UID of the claim that has the volume of a path.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PathClaimUid(String);

text_type!(PvUid);
name_type!(PvUid);
text_type!(PathClaimUid);
name_type!(PathClaimUid);

/// A path of this node that the controller wants checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchedPath {
    /// The PersistentVolume.
    pub volume: PvName,
    pub uid: PvUid,
    pub path: PathBuf,
    /// What the PersistentVolume promises, in bytes.
    pub capacity: u64,
    pub kind: PathKind,
    /// It was a mount point before, or its provisioner makes nothing else.
    pub is_mounted: bool,
    /// `None`: no claim has the volume, so any filesystem or device may be there.
    pub claim: Option<PathClaim>,
}

/// The claim that has the volume of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathClaim {
    pub uid: PathClaimUid,
    /// Which filesystem or device was there first since the claim has the volume; `None`: nobody knows.
    pub identity: Option<String>,
}

/// Which filesystem or device a checkup found at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathIdentity {
    /// The claim that had the volume before the checkup began.
    pub claim: PathClaimUid,
    pub name: String,
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
                    let text = format!("more is used at {path} than the capacity of {} bytes", self.capacity);
                    Finding::new(HealthReason::MisMatchedVolSize, text)
                });
                let inodes = *mounted != Mounted::Nothing && usage.inodes > 0 && usage.inodes_free == 0;
                let inodes = inodes.then(|| {
                    Finding::new(HealthReason::InodesExhausted, format!("the filesystem at {path} has no free inode"))
                });
                // A directory is a part of the node's own filesystem.
                let filesystem = filesystem.filter(|_| *mounted != Mounted::Nothing);
                let filesystem = filesystem.into_iter().flat_map(of_filesystem);
                let filesystem = filesystem.map(|(reason, text)| Finding::new(reason, format!("{text}, at {path}")));
                self.too_large(size).or(used).into_iter().chain(inodes).chain(filesystem).collect()
            }
        }
    }

    /// That another filesystem or device is there than the one that was there first, if both are known. It hides all
    /// else: that would be said of another one.
    pub fn wrong_device(&self, identity: Option<&str>) -> Option<Finding> {
        let (expected, identity) = (self.claim.as_ref()?.identity.as_deref()?, identity?);
        let kind = |identity: &str| identity.split_once('-').map(|(kind, _)| kind.to_owned());
        let is_wrong = kind(expected) == kind(identity) && expected != identity;
        let message = || {
            let path = self.path.display().to_string();
            let path = path.escape_debug();
            format!("{} is at {path} now, and {} was there", identity.escape_debug(), expected.escape_debug())
        };
        is_wrong.then(|| Finding::new(HealthReason::WrongDevice, message()))
    }

    fn too_large(&self, size: Option<u64>) -> Option<Finding> {
        let size = size.filter(|size| self.capacity > *size)?;
        let message = format!("the capacity is {} bytes, and the device has {size}", self.capacity);
        Some(Finding::new(HealthReason::MisMatchedVolSize, message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::{FilesystemState, FsUsage};

    const GIB: u64 = 1 << 30;

    fn reasons(kind: PathKind, is_mounted: bool, state: PathState) -> String {
        let path = "/mnt/a b\nc".into();
        let watched =
            WatchedPath { volume: "v".into(), uid: "u".into(), path, capacity: GIB, kind, is_mounted, claim: None };
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
            assert_eq!(reasons(kind, true, PathState::Absent), "HostPathNotExist");
            assert_eq!(reasons(kind, true, PathState::Other), "HostPathNotExist");
            assert_eq!(reasons(kind, true, PathState::Device { size: None }), "HostPathNotExist");
            assert_eq!(reasons(kind, true, PathState::Device { size: Some(GIB) }), "");
            assert_eq!(reasons(kind, true, PathState::Device { size: Some(GIB - 1) }), "MisMatchedVolSize");
        }
        let directory = directory(Mounted::Nothing, None, FsUsage::default());
        assert_eq!(reasons(Block, false, directory), "HostPathNotExist");
        assert_eq!(reasons(Filesystem, false, directory), "", "some are directories from the beginning");
        assert_eq!(reasons(Filesystem, true, directory), "NotMountPoint");
    }

    #[test]
    fn a_path_that_is_no_mount_point_any_more_is_only_that_whatever_its_directory_is_in() {
        let full = FsUsage { total: 9 * GIB, used: 2 * GIB, inodes: 10, ..FsUsage::default() };
        let broken = FilesystemState { is_read_only: true, errors: Some(1), is_shut_down: true };
        for device_size in [None, Some(GIB - 1), Some(9 * GIB)] {
            let (mounted, usage) = (Mounted::Nothing, full);
            let state = PathState::Directory { mounted, device_size, usage, filesystem: Some(broken) };
            assert_eq!(reasons(PathKind::Filesystem, true, state), "NotMountPoint", "{device_size:?}");
        }
    }

    #[test]
    fn a_filesystem_that_is_mounted_there_is_looked_at_and_the_one_that_a_directory_is_in_is_not() {
        let usage = FsUsage { total: GIB, ..FsUsage::default() };
        let found = |mounted, filesystem| {
            let state = PathState::Directory { mounted, device_size: Some(GIB), usage, filesystem: Some(filesystem) };
            reasons(PathKind::Filesystem, false, state)
        };
        let read_only = FilesystemState { is_read_only: true, ..FilesystemState::default() };
        let shut_down = FilesystemState { is_shut_down: true, errors: Some(3), ..FilesystemState::default() };
        assert_eq!(found(Mounted::Whole, FilesystemState::default()), "");
        assert_eq!(found(Mounted::Whole, read_only), "FilesystemReadOnly");
        assert_eq!(found(Mounted::Part, shut_down), "FilesystemShutDown FilesystemErrors");
        assert_eq!(found(Mounted::Nothing, shut_down), "");
    }

    #[test]
    fn another_filesystem_or_device_is_wrong_and_what_nobody_can_compare_is_not() {
        let wrong = |expected: Option<&str>, identity: Option<&str>| {
            let claim = Some(PathClaim { uid: "c".into(), identity: expected.map(str::to_owned) });
            let (volume, uid) = ("v".into(), "u".into());
            let (path, kind) = ("/mnt/a\nb".into(), PathKind::Filesystem);
            let watched = WatchedPath { volume, uid, path, capacity: GIB, kind, is_mounted: true, claim };
            watched.wrong_device(identity).map(|finding| finding.to_string())
        };
        let message = wrong(Some("fs-a-1"), Some("fs-b-2")).expect("it is another one");
        assert_eq!(message, "WrongDevice: fs-b-2 is at /mnt/a\\nb now, and fs-a-1 was there");
        assert_eq!(wrong(Some("fs-a-1"), Some("fs-a-1")), None);
        assert_eq!(wrong(None, Some("fs-b-2")), None, "nobody knows what was there first");
        assert_eq!(wrong(Some("fs-a-1"), None), None, "nobody knows what is there now");
        assert_eq!(wrong(Some("naa64-x"), Some("serial-y")), None, "they say different things");
        assert_eq!(wrong(Some("eui64-x"), Some("eui128-y")), None, "a disk may say both");
    }

    #[test]
    fn a_volume_must_not_promise_or_use_more_than_there_is() {
        let kind = PathKind::Filesystem;
        let usage = FsUsage { total: GIB - (1 << 20), used: 5, inodes: 10, inodes_free: 1, ..FsUsage::default() };
        assert_eq!(
            reasons(kind, true, directory(Mounted::Whole, Some(GIB), usage)),
            "",
            "a filesystem is smaller than its device"
        );
        assert_eq!(reasons(kind, true, directory(Mounted::Whole, Some(GIB - 1), usage)), "MisMatchedVolSize");
        assert_eq!(reasons(kind, true, directory(Mounted::Whole, None, usage)), "MisMatchedVolSize");
        let over = FsUsage { used: GIB + 1, inodes_free: 0, ..usage };
        assert_eq!(
            reasons(kind, true, directory(Mounted::Whole, Some(9 * GIB), over)),
            "MisMatchedVolSize InodesExhausted"
        );
        assert_eq!(
            reasons(kind, false, directory(Mounted::Nothing, Some(9 * GIB), over)),
            "",
            "it is used by others, too"
        );
        assert_eq!(reasons(kind, true, directory(Mounted::Part, Some(9 * GIB), over)), "InodesExhausted");
    }
}
