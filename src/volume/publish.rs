//! Decisions about mounts, from the mount table and a request. Pure.

use std::path::{Path, PathBuf};

use super::error::Error;
use crate::device::label::VolumeUsage;
use crate::host::{FsKind, Mount, TargetAccess};

/// The longest path that the kernel accepts.
const MAX_PATH: usize = 4096;

/// What a capability asks of a mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccessType {
    Block,
    Mount { fs: Option<FsKind>, flags: Vec<String> },
}

/// What is at a target now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AtTarget {
    Nothing,
    /// This volume.
    This(TargetAccess),
    /// Something else is mounted there.
    Other(String),
}

/// A path from a request: absolute, and without steps that lead elsewhere.
pub fn checked_path(field: &str, text: &str) -> Result<PathBuf, Error> {
    let invalid = |why: &str| Err(Error::Invalid(format!("{field} {why}")));
    let path = Path::new(text);
    if text.is_empty() {
        return invalid("is missing");
    }
    if text.len() > MAX_PATH {
        return invalid("is longer than 4096 bytes");
    }
    if !path.is_absolute() || text.contains('\0') {
        return invalid(&format!("is not an absolute path: {text:?}"));
    }
    if path.components().any(|c| matches!(c, std::path::Component::ParentDir)) {
        return invalid(&format!("must not contain '..': {text:?}"));
    }
    Ok(path.components().collect())
}

/// The filesystem to mount: the one that the volume was made for, which a request may repeat but not change.
pub fn agreed(usage: VolumeUsage, access_type: &AccessType) -> Result<Option<FsKind>, Error> {
    match (usage, access_type) {
        (VolumeUsage::Block, AccessType::Block) => Ok(None),
        (VolumeUsage::Mount(made), AccessType::Mount { fs, .. }) if fs.is_none_or(|fs| fs == made) => Ok(Some(made)),
        (VolumeUsage::Mount(made), AccessType::Mount { .. }) => {
            Err(Error::Invalid(format!("the volume was made for {}, not for the fs_type of this request", made.name())))
        }
        (VolumeUsage::Block, AccessType::Mount { .. }) => {
            Err(Error::Invalid("the volume is a raw block volume and cannot be mounted as a filesystem".to_owned()))
        }
        (VolumeUsage::Mount(_), AccessType::Block) => {
            Err(Error::Invalid("the volume has a filesystem and cannot be published as a raw block device".to_owned()))
        }
    }
}

/// What is mounted at `target`; the topmost mount counts. `ours` are the mounts of this volume's device.
pub fn at_target(table: &[Mount], ours: &[&Mount], target: &Path) -> AtTarget {
    match table.iter().rev().find(|mount| mount.target == target) {
        None => AtTarget::Nothing,
        Some(top) if ours.contains(&top) => AtTarget::This(access(top)),
        Some(top) => AtTarget::Other(mount_text(top)),
    }
}

pub fn mount_text(mount: &Mount) -> String {
    format!("{} ({})", mount.source, mount.fs_type)
}

/// Whether a mount could be a volume: a filesystem of a kind that we make, or a node that is bound from a directory of
/// devices.
pub fn may_be_a_volume(mount: &Mount) -> bool {
    let made = FsKind::ALL.iter().any(|kind| kind.name() == mount.fs_type);
    let node = matches!(mount.fs_type.as_str(), "devtmpfs" | "tmpfs") && mount.root != Path::new("/");
    made || node
}

fn access(mount: &Mount) -> TargetAccess {
    TargetAccess::of(mount.options.iter().any(|option| option == "ro"))
}

/// The targets a volume is published at, besides `staging`.
pub fn published<'a>(ours: &[&'a Mount], staging: &Path) -> Vec<&'a Path> {
    ours.iter().map(|mount| mount.target.as_path()).filter(|target| *target != staging).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::DevNo;

    fn mount(target: &str, options: &[&str]) -> Mount {
        Mount {
            device: DevNo { major: 8, minor: 1 },
            root: PathBuf::from("/"),
            target: PathBuf::from(target),
            fs_type: "ext4".to_owned(),
            source: "/dev/sda1".to_owned(),
            options: options.iter().map(|&o| o.to_owned()).collect(),
        }
    }

    #[test]
    fn a_path_that_is_relative_climbs_or_is_overlong_is_refused_by_its_fields_name() {
        assert!(checked_path("target_path", "/a/b").is_ok());
        for bad in ["", "a/b", "/a/../b", "/a\0b", &format!("/{}", "a".repeat(4096))] {
            let error = checked_path("target_path", bad).expect_err(bad);
            assert!(error.to_string().starts_with("target_path "), "{error}");
        }
        assert_eq!(checked_path("x", "/a//b/./c/").expect("it is fine"), Path::new("/a/b/c"));
    }

    #[test]
    fn the_topmost_mount_at_a_target_decides() {
        let table = [mount("/t", &["rw"]), mount("/t", &["ro"]), mount("/other", &[])];
        assert_eq!(at_target(&table, &[&table[0]], Path::new("/t")), AtTarget::Other("/dev/sda1 (ext4)".to_owned()));
        assert_eq!(at_target(&table, &[&table[1]], Path::new("/t")), AtTarget::This(TargetAccess::ReadOnly));
        assert_eq!(at_target(&table, &[], Path::new("/none")), AtTarget::Nothing);
    }

    #[test]
    fn what_is_no_filesystem_of_ours_and_no_bound_node_is_no_volume() {
        let of = |fs_type: &str, root: &str| Mount {
            fs_type: fs_type.to_owned(),
            root: PathBuf::from(root),
            ..mount("/t", &[])
        };
        assert!(may_be_a_volume(&of("xfs", "/")) && may_be_a_volume(&of("devtmpfs", "/loop1p2")));
        assert!(may_be_a_volume(&of("tmpfs", "/sda1")), "/dev may be a tmpfs");
        for (fs_type, root) in [("tmpfs", "/"), ("devtmpfs", "/"), ("overlay", "/"), ("proc", "/"), ("nfs4", "/")] {
            assert!(!may_be_a_volume(&of(fs_type, root)), "{fs_type}");
        }
    }

    #[test]
    fn a_volume_is_used_as_what_it_was_made_for() {
        let mount = |fs| AccessType::Mount { fs, flags: Vec::new() };
        assert_eq!(agreed(VolumeUsage::Mount(FsKind::Xfs), &mount(None)).expect("agrees"), Some(FsKind::Xfs));
        assert!(agreed(VolumeUsage::Mount(FsKind::Xfs), &mount(Some(FsKind::Ext4))).is_err());
        assert!(agreed(VolumeUsage::Block, &mount(None)).is_err());
        assert!(agreed(VolumeUsage::Mount(FsKind::Ext4), &AccessType::Block).is_err());
        assert_eq!(agreed(VolumeUsage::Block, &AccessType::Block).expect("agrees"), None);
    }
}
