//! How a mounted filesystem is: by its options, by what sysfs counts, and by what its root answers.
//!
//! Takes in a mount and the roots of sysfs and proc; gives out a [`FilesystemState`].

use std::ffi::OsString;
use std::fs;
use std::io::{Error, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::libc::{EIO, ENODEV};
use nix::sys::statfs::{BTRFS_SUPER_MAGIC, statfs};

use crate::host::error::HostError;
use crate::host::filesystem_state::FilesystemState;
use crate::host::links::node_number;
use crate::host::mountinfo::Row;
use crate::host::port::Mount;
use crate::host::raw::DevNo;
use crate::host::roots::Roots;
use crate::host::{ioctl, mountinfo};

pub fn filesystem_state(roots: &Roots, mount: &Mount) -> Result<FilesystemState, HostError> {
    let errors = errors(&roots.sys, mount)?;
    let has_aborted = errors.is_some_and(|errors| errors > 0) && has_aborted(&roots.sys, mount);
    Ok(FilesystemState {
        is_read_only: has_aborted || is_read_only(roots, mount)?,
        errors,
        is_shut_down: is_shut_down(mount)?,
    })
}

/// The same, of a mount that somebody else made, as its row in the table of the namespace that it is in says.
/// Of ext4 the place of its last error does not count: nobody has checked it before it was mounted, so that
/// may be of years ago.
pub fn state_of_row(roots: &Roots, Row { mount, has_turned }: &Row) -> Result<FilesystemState, HostError> {
    Ok(FilesystemState {
        // Others may bind it as they like: only its own options say how it was meant.
        is_read_only: *has_turned || has(mount, "emergency_ro"),
        errors: errors(&roots.sys, mount)?,
        is_shut_down: is_shut_down(mount)?,
    })
}

fn has(mount: &Mount, word: &str) -> bool {
    mount.options.iter().any(|option| option == word)
}

/// From Linux 6.15 on, ext4 that found an error and was mounted with `errors=remount-ro` keeps a superblock that is
/// `rw`, and says `emergency_ro` beside it.
fn is_read_only(roots: &Roots, mount: &Mount) -> Result<bool, HostError> {
    if has(mount, "emergency_ro") {
        return Ok(true);
    }
    // The options of a mount do not say whether `ro` is its own or its superblock's. A superblock that is read-only
    // makes all its mounts so, so the table is read again for few of them.
    Ok(has(mount, "ro") && mountinfo::has_turned_read_only(&roots.proc, mount)?)
}

/// ext4 whose journal has aborted refuses each write. On Linux 6.1 with later fixes neither its superblock nor its
/// options say so: only the place of its last error does, which is where a write begins.
fn has_aborted(sys: &Path, mount: &Mount) -> bool {
    let device = is_ext(mount).then(|| device_name(sys, Some(mount.device), mount)).flatten();
    let place = device.map(|device| fs::read_to_string(sys.join("fs/ext4").join(device).join("last_error_func")));
    matches!(place, Some(Ok(place)) if place.trim() == "ext4_journal_check_start")
}

/// - xfs answers EIO to a stat of its root, on every kernel.
/// - ext4 does not. Its options say `shutdown` from Linux 6.15 on. It answers EIO to a question for an extended
///   attribute since it can be shut down (4.11), before it looks for one. A root that cannot be read looks the
///   same, and is as bad.
/// - btrfs turns read-only instead. Its shutdown, an experiment of Linux 6.19, is not noticed.
fn is_shut_down(mount: &Mount) -> Result<bool, HostError> {
    let target = &mount.target;
    let found = match fs::symlink_metadata(target) {
        Ok(found) => found,
        Err(why) if why.raw_os_error() == Some(EIO) => return Ok(true),
        // Another filesystem above it, without its path.
        Err(why) if why.kind() == ErrorKind::NotFound => return Err(changed(target, "its path is gone")),
        Err(source) => return Err(failed("look at", target, source)),
    };
    // A number with major 0 is made up: each subvolume of btrfs has its own.
    let is_other = match mount.device.major {
        0 => mount.fs_type == "btrfs" && !is_btrfs(target)?,
        _ => DevNo::of(found.dev()) != mount.device,
    };
    if is_other {
        return Err(changed(target, "another filesystem is there now"));
    }
    let asked = || ioctl::has_attribute(target, c"user.localpool").err().and_then(|why| why.raw_os_error());
    Ok(has(mount, "shutdown") || (is_ext(mount) && asked() == Some(EIO)))
}

fn is_btrfs(target: &Path) -> Result<bool, HostError> {
    let found = statfs(target).map_err(|errno| failed("look at", target, errno.into()))?;
    Ok(found.filesystem_type() == BTRFS_SUPER_MAGIC)
}

/// ext4's driver mounts its two ancestors too.
fn is_ext(mount: &Mount) -> bool {
    matches!(mount.fs_type.as_str(), "ext2" | "ext3" | "ext4")
}

/// xfs has no counter.
fn errors(sys: &Path, mount: &Mount) -> Result<Option<u64>, HostError> {
    if is_ext(mount) {
        let Some(device) = device_name(sys, Some(mount.device), mount) else { return Ok(None) };
        return counted(&sys.join("fs/ext4").join(device).join("errors_count"), ext4_errors);
    }
    if mount.fs_type == "btrfs" {
        // The mount's own number is made up.
        let Some(device) = device_name(sys, node_number(Path::new(&mount.source)), mount) else { return Ok(None) };
        return btrfs_errors(&sys.join("fs/btrfs"), Path::new(&device));
    }
    Ok(None)
}

/// As folders of sysfs call the device. If it is gone, so is its number there, and the node's name has to do.
fn device_name(sys: &Path, number: Option<DevNo>, mount: &Mount) -> Option<OsString> {
    let link = number.and_then(|number| fs::read_link(sys.join("dev/block").join(number.to_string())).ok());
    let path = link.unwrap_or_else(|| mount.source.clone().into());
    path.file_name().map(ToOwned::to_owned)
}

/// The sum over the devices of the filesystem that `device` belongs to.
fn btrfs_errors(filesystems: &Path, device: &Path) -> Result<Option<u64>, HostError> {
    // The link of a device that is gone leads nowhere, and still is one.
    let is_its_own = |folder: &Path| folder.join("devices").join(device).symlink_metadata().is_ok();
    let Some(folder) = entries(filesystems)?.into_iter().find(|folder| is_its_own(folder)) else { return Ok(None) };
    let mut sum = None;
    for member in entries(&folder.join("devinfo"))? {
        let count = counted(&member.join("error_stats"), btrfs_device_errors)?;
        sum = count.map(|count| count.saturating_add(sum.unwrap_or(0))).or(sum);
    }
    Ok(sum)
}

fn entries(folder: &Path) -> Result<Vec<PathBuf>, HostError> {
    let listed = fs::read_dir(folder).and_then(|all| all.map(|entry| Ok(entry?.path())).collect());
    match listed {
        Err(why) if is_gone(&why) => Ok(Vec::new()),
        listed => listed.map_err(|source| failed("list", folder, source)),
    }
}

/// What an attribute counts; `None` if it is absent, or says that it does not count.
fn counted(file: &Path, parse: fn(&str) -> Option<Option<u64>>) -> Result<Option<u64>, HostError> {
    let text = match fs::read_to_string(file) {
        Ok(text) => text,
        Err(why) if is_gone(&why) => return Ok(None),
        Err(source) => return Err(failed("read", file, source)),
    };
    let no_count = || Error::new(ErrorKind::InvalidData, "it is no count of errors");
    parse(&text).ok_or_else(|| failed("read", file, no_count()))
}

fn ext4_errors(text: &str) -> Option<Option<u64>> {
    text.trim().parse().ok().map(Some)
}

/// Lines such as `write_errs 0`; `invalid` for a device that is missing.
fn btrfs_device_errors(text: &str) -> Option<Option<u64>> {
    if text.trim() == "invalid" {
        return Some(None);
    }
    // The kernel has 32 bits for each, and prints them as a signed number.
    let count = |text: &str| text.parse().ok().or_else(|| Some(u64::from(text.parse::<i32>().ok()?.cast_unsigned())));
    let counts = text.lines().map(|line| count(line.split_once(' ')?.1.trim()));
    let sum = |all: Vec<u64>| all.into_iter().reduce(u64::saturating_add);
    counts.collect::<Option<Vec<_>>>().and_then(sum).map(Some)
}

/// Not there, or unmounted between the opening of its attribute and the read.
fn is_gone(why: &Error) -> bool {
    why.kind() == ErrorKind::NotFound || why.raw_os_error() == Some(ENODEV)
}

fn changed(path: &Path, why: &str) -> HostError {
    HostError::Changed { path: path.to_owned(), why: why.to_owned() }
}

fn failed(what: &'static str, path: &Path, source: Error) -> HostError {
    HostError::Io { what, object: path.display().to_string(), source }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::host::error::chain;

    const HUGE: &str = "18446744073709551616\n";
    const CLEAN: &str = "write_errs 0\nread_errs 0\nflush_errs 0\ncorruption_errs 0\ngeneration_errs 0\n";

    fn mount(fs_type: &str, device: DevNo, source: &str) -> Mount {
        Mount {
            device,
            root: "/".into(),
            target: "/t".into(),
            fs_type: fs_type.to_owned(),
            source: source.to_owned(),
            options: vec!["rw".to_owned()],
        }
    }

    fn write(file: &Path, text: &str) {
        fs::create_dir_all(file.parent().expect("a folder")).expect("a folder");
        fs::write(file, text).expect("a file");
    }

    #[test]
    fn a_count_is_one_number_and_nothing_else() {
        assert_eq!(ext4_errors("7\n"), Some(Some(7)));
        for bad in ["", "\n", "many", "-1", "1 2", "0x1", HUGE, &"9".repeat(1 << 20)] {
            assert_eq!(ext4_errors(bad), None, "{bad:.20}");
        }
    }

    #[test]
    fn the_counts_of_a_btrfs_device_are_added_up_and_a_missing_one_counts_nothing() {
        assert_eq!(btrfs_device_errors(CLEAN), Some(Some(0)));
        assert_eq!(btrfs_device_errors("write_errs 1\nread_errs 20\nlater_errs 300\n"), Some(Some(321)));
        assert_eq!(btrfs_device_errors("write_errs 1\nread_errs 18446744073709551615\n"), Some(Some(u64::MAX)));
        assert_eq!(btrfs_device_errors("write_errs -2147483648\n"), Some(Some(1 << 31)));
        assert_eq!(btrfs_device_errors("invalid\n"), Some(None));
        let huge = format!("write_errs {HUGE}");
        for bad in ["", "\n", "write_errs", "write_errs \n", "write_errs x\n", "write_errs -2147483649\n", &huge] {
            assert_eq!(btrfs_device_errors(bad), None, "{bad}");
        }
    }

    #[test]
    fn ext4_is_found_by_its_number_and_if_the_device_is_gone_by_the_name_of_its_node() {
        let sys = tempfile::tempdir().expect("a folder");
        let sys = sys.path();
        let mounted = mount("ext4", DevNo { major: 104, minor: 1 }, "/dev/disk/by-id/x");
        assert_eq!(errors(sys, &mounted).expect("read"), None);
        fs::create_dir_all(sys.join("dev/block")).expect("a folder");
        symlink("../../devices/x/block/cciss!c0d0/cciss!c0d0p1", sys.join("dev/block/104:1")).expect("a link");
        write(&sys.join("fs/ext4/cciss!c0d0p1/errors_count"), "3\n");
        assert_eq!(errors(sys, &mounted).expect("read"), Some(3));
        write(&sys.join("fs/ext4/sdz/errors_count"), "4\n");
        let gone = mount("ext3", DevNo { major: 8, minor: 1 }, "/dev/sdz");
        assert_eq!(errors(sys, &gone).expect("read"), Some(4));
        assert_eq!(errors(sys, &mount("xfs", gone.device, "/dev/sdz")).expect("read"), None);
        assert!(!has_aborted(sys, &gone));
        for (place, aborted) in [("ext4_journal_check_start\n", true), ("ext4_lookup\n", false), ("\n", false)] {
            write(&sys.join("fs/ext4/sdz/last_error_func"), place);
            assert_eq!(has_aborted(sys, &gone), aborted, "{place}");
            assert!(!has_aborted(sys, &mount("xfs", gone.device, "/dev/sdz")));
        }
        write(&sys.join("fs/ext4/sdz/errors_count"), "no number\n");
        let why = chain(&errors(sys, &gone).expect_err("no number"));
        assert!(why.starts_with("read ") && why.ends_with("errors_count: it is no count of errors"), "{why}");
    }

    #[test]
    fn a_target_that_is_gone_or_has_another_filesystem_says_nothing_of_the_mount_below() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |target: PathBuf, device| Mount { target, ..mount("btrfs", device, "/dev/x") };
        let made_up = DevNo { major: 0, minor: 40 };
        for covered in [at(folder.path().into(), made_up), at(folder.path().join("gone"), made_up)] {
            let why = is_shut_down(&covered).expect_err("it is no btrfs");
            assert!(matches!(why, HostError::Changed { .. }), "{why:?}");
        }
    }

    #[test]
    fn btrfs_is_found_by_one_of_its_devices_and_counts_the_errors_of_all() {
        let sys = tempfile::tempdir().expect("a folder");
        let sys = sys.path();
        let mounted = mount("btrfs", DevNo { major: 0, minor: 40 }, "/dev/no-such-node");
        assert_eq!(errors(sys, &mounted).expect("read"), None);
        let [ours, other] = ["uuid-1", "uuid-2"].map(|uuid| sys.join("fs/btrfs").join(uuid));
        fs::create_dir_all(sys.join("fs/btrfs/features")).expect("a folder");
        for (folder, device) in [(&other, "sdy"), (&ours, "no-such-node")] {
            fs::create_dir_all(folder.join("devices")).expect("a folder");
            symlink("../../../../devices/gone", folder.join("devices").join(device)).expect("a link");
        }
        write(&other.join("devinfo/1/error_stats"), "write_errs 500\n");
        fs::create_dir_all(ours.join("devinfo/1")).expect("a folder");
        assert_eq!(errors(sys, &mounted).expect("read"), None, "before Linux 5.14");
        for (id, text) in [("1", "write_errs 1\nread_errs 2\n"), ("2", "invalid\n"), ("3", "write_errs 40\n")] {
            write(&ours.join("devinfo").join(id).join("error_stats"), text);
        }
        assert_eq!(errors(sys, &mounted).expect("read"), Some(43));
        write(&ours.join("devinfo/2/error_stats"), "");
        assert!(errors(sys, &mounted).is_err());
    }
}
