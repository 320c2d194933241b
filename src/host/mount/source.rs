//! Which mounts are from a source, by what mountinfo says of them. Pure.

use std::path::Path;

use crate::host::port::{Mount, MountSource};
use crate::host::raw::DevNo;

/// Whether `mount` is of a filesystem on the device of `source`, which has the number `device`, and from its directory.
pub fn is_of_filesystem(mount: &Mount, source: MountSource<'_>, device: DevNo) -> bool {
    // btrfs shows a number of its own; what it was mounted from is its source.
    let is_its_device =
        mount.device == device || (mount.device.major == 0 && Path::new(&mount.source) == source.device);
    is_its_device && source.has(&mount.root)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::mountinfo;

    const XFS: DevNo = DevNo { major: 7, minor: 0 };
    const BTRFS: DevNo = DevNo { major: 7, minor: 1 };

    /// As Linux 6.18 wrote it.
    const TABLE: &str = r"21 44 0:5 /loop0 /t/node rw,nosuid - devtmpfs devtmpfs rw,size=4096k
65 44 7:0 / /t/whole rw,relatime - xfs /dev/loop0 rw,inode64,logbufs=8,logbsize=32k,noquota
66 44 7:0 /volumes/a /t/a rw,relatime - xfs /dev/loop0 rw,inode64,logbufs=8,logbsize=32k,noquota
67 44 7:0 /volumes/b /t/b rw,relatime - xfs /dev/loop0 rw,inode64,logbufs=8,logbsize=32k,noquota
68 44 7:0 /volumes/a/sub /t/sub rw,relatime - xfs /dev/loop0 rw,inode64,logbufs=8,logbsize=32k,noquota
69 44 7:0 /volumes/ab /t/ab rw,relatime - xfs /dev/loop0 rw,inode64,logbufs=8,logbsize=32k,noquota
70 44 7:0 /volumes/a/with\040space /t/with\040space rw,relatime - xfs /dev/loop0 rw,inode64,noquota
71 44 7:0 /volumes/a//deleted /t/removed rw,relatime - xfs /dev/loop0 rw,inode64,logbufs=8,logbsize=32k,noquota
72 44 7:0 /volumes/a/sub/c//deleted /t/removed-below rw,relatime - xfs /dev/loop0 rw,inode64,logbufs=8,noquota
73 44 7:0 /volumes/a/deleted /t/named-deleted rw,relatime - xfs /dev/loop0 rw,inode64,logbufs=8,logbsize=32k,noquota
74 44 7:0 /volumes/a /t/covered rw,relatime - xfs /dev/loop0 rw,inode64,logbufs=8,logbsize=32k,noquota
75 74 7:0 /volumes/b /t/covered rw,relatime - xfs /dev/loop0 rw,inode64,logbufs=8,logbsize=32k,noquota
76 44 7:0 /.localpool/trash/r1 /t/in-trash rw,relatime - xfs /dev/loop0 rw,inode64,logbufs=8,logbsize=32k,noquota
77 44 7:2 /volumes/a /t/other-device rw,relatime - xfs /dev/loop2 rw,inode64,logbufs=8,logbsize=32k,noquota
81 44 0:39 / /t/btrfs rw,relatime - btrfs /dev/loop1 rw,discard=async,space_cache=v2,subvolid=5,subvol=/
82 44 0:39 /@a /t/@a rw,relatime - btrfs /dev/loop1 rw,discard=async,space_cache=v2,subvolid=256,subvol=/@a
83 44 0:39 /@b /t/@b rw,relatime - btrfs /dev/loop1 rw,discard=async,space_cache=v2,subvolid=257,subvol=/@b
84 82 0:39 /@a/v /t/@a/v rw,relatime - btrfs /dev/loop1 rw,discard=async,space_cache=v2,subvolid=256,subvol=/@a
";

    /// Last parts of the targets of what is from the source.
    fn found(source: MountSource<'_>, device: DevNo) -> Vec<String> {
        let table = mountinfo::parse(TABLE).expect("a table");
        let ours = table.iter().filter(|mount| is_of_filesystem(mount, source, device));
        ours.map(|mount| mount.target.strip_prefix("/t").expect("below it").display().to_string()).collect()
    }

    fn of(root: &str) -> Vec<String> {
        found(MountSource { device: Path::new("/dev/loop0"), root: Path::new(root) }, XFS)
    }

    #[test]
    fn two_directories_of_one_filesystem_are_told_apart_and_one_below_is_a_use_of_its_volume() {
        assert_eq!(of("/volumes/a"), ["a", "sub", "with space", "named-deleted", "covered"]);
        assert_eq!(of("/volumes/b"), ["b", "covered"]);
        assert_eq!(of("/volumes/ab"), ["ab"]);
        assert_eq!(of("/volumes/a/with space"), ["with space"]);
        assert_eq!(of("/volumes/none"), [""; 0]);
    }

    #[test]
    fn of_two_mounts_at_a_target_each_is_of_its_own_volume() {
        let table = mountinfo::parse(TABLE).expect("a table");
        let stacked = table.iter().filter(|mount| mount.target == Path::new("/t/covered"));
        let is_of = |root| {
            let source = MountSource { device: Path::new("/dev/loop0"), root: Path::new(root) };
            stacked.clone().map(|mount| is_of_filesystem(mount, source, XFS)).collect::<Vec<_>>()
        };
        assert_eq!((is_of("/volumes/a"), is_of("/volumes/b")), (vec![true, false], vec![false, true]));
    }

    #[test]
    fn a_directory_that_was_removed_or_moved_away_is_of_no_volume_though_one_has_its_path() {
        for gone in ["removed", "removed-below", "in-trash"] {
            assert!(!of("/volumes/a").contains(&gone.to_owned()), "{gone}");
        }
    }

    #[test]
    fn each_mount_of_its_filesystem_is_a_use_of_a_volume_that_is_a_device() {
        let all = found(MountSource::whole(Path::new("/dev/loop0")), XFS);
        assert_eq!((all.len(), all.first().map(String::as_str)), (12, Some("whole")));
        assert!(all.contains(&"removed".to_owned()) && !all.contains(&"other-device".to_owned()));
    }

    #[test]
    fn subvolumes_of_btrfs_are_found_by_the_name_of_their_device_and_told_apart() {
        let from = |root| found(MountSource { device: Path::new("/dev/loop1"), root: Path::new(root) }, BTRFS);
        assert_eq!(from("/"), ["btrfs", "@a", "@b", "@a/v"]);
        assert_eq!(from("/@a"), ["@a", "@a/v"]);
        assert_eq!(from("/@b"), ["@b"]);
    }
}
