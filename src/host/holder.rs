//! Who uses a device: for the words of a refusal, and for uses that the kernel does not report by itself.
//!
//! Takes in its number, asks sysfs and /proc; gives out words, or nothing if nobody in sight has it.

use std::fs;
use std::path::{Path, PathBuf};

use nix::libc;

use super::block::Openers;
use super::in_use::swap_devices;
use super::links::{names_in, node_number};
use super::mountinfo::namespaces;
use super::raw::DevNo;

/// `held by dm-3 (vg0-data)`, `mounted at /mnt`, `used as swap`, `open in qemu (pid 7)`.
pub(super) fn of(device: DevNo) -> Option<String> {
    held(Path::new("/sys"), device).or_else(|| mounted(device)).or_else(|| swapped(device)).or_else(|| opened(device))
}

/// The kernel's own devices over it: LVM, md, LUKS, multipath.
fn held(sys: &Path, device: DevNo) -> Option<String> {
    let holders = sys.join(format!("dev/block/{device}/holders"));
    let by = names_in(&holders).ok()?.into_iter().next()?.to_string_lossy().into_owned();
    let mapping = fs::read_to_string(sys.join("block").join(&by).join("dm/name")).unwrap_or_default();
    Some(match mapping.trim() {
        "" => format!("held by {by}"),
        name => format!("held by {by} ({name})"),
    })
}

/// Its filesystem, in any mount namespace in sight.
fn mounted(device: DevNo) -> Option<String> {
    let found = namespaces(Path::new("/proc")).ok()?;
    let mut mounts = found.iter().filter_map(|namespace| namespace.mounts.as_ref().ok()).flatten();
    let mount = mounts.find(|mount| {
        // btrfs has a number of its own, and names the device as its source.
        mount.device == device || (mount.device.major == 0 && is_node_of(Path::new(&mount.source), device))
    })?;
    Some(format!("mounted at {}", mount.target.display()))
}

fn swapped(device: DevNo) -> Option<String> {
    let used = swap_devices(fs::read("/proc/swaps").ok()?);
    used.iter().any(|path| is_node_of(path, device)).then(|| "used as swap".to_owned())
}

/// A process with a descriptor of it; the one with the lowest number.
fn opened(device: DevNo) -> Option<String> {
    let pid = processes().into_iter().find(|pid| has_open(*pid, device, |_, to| to.starts_with("/dev/")))?;
    Some(describe(pid))
}

/// A loop device over it, or another process than this one with a descriptor of it, by whatever path it was opened.
/// Files that a process opened over a network are not looked at.
pub(super) fn opened_elsewhere(device: DevNo, who: Openers) -> Option<String> {
    let has_it = |pid: &u32| {
        let mut local = None;
        has_open(*pid, device, |descriptor, to| {
            (to.starts_with("/dev/") || is_local(*pid, descriptor, local.get_or_insert_with(|| local_mounts(*pid))))
                && (who == Openers::All || may_write(*pid, descriptor))
        })
    };
    let by_process = || processes().into_iter().filter(|pid| *pid != std::process::id()).find(has_it).map(describe);
    looped(Path::new("/sys"), device, who).or_else(by_process)
}

/// A loop device whose file is a node of this one.
fn looped(sys: &Path, device: DevNo, who: Openers) -> Option<String> {
    let read = |device: &Path, name: &str| fs::read_to_string(device.join(name)).unwrap_or_default();
    let over = names_in(&sys.join("block")).ok()?.into_iter().find(|name| {
        let device_over = sys.join("block").join(name);
        let file = read(&device_over, "loop/backing_file");
        let counts = || who == Openers::All || read(&device_over, "ro").trim() == "0";
        !file.is_empty() && is_node_of(Path::new(file.trim_end()), device) && counts()
    })?;
    Some(format!("below {}", over.to_string_lossy()))
}

fn processes() -> Vec<u32> {
    let names = names_in(Path::new("/proc")).unwrap_or_default();
    let mut processes: Vec<u32> = names.iter().filter_map(|name| name.to_str()?.parse().ok()).collect();
    processes.sort_unstable();
    processes
}

fn describe(pid: u32) -> String {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    format!("open in {} (pid {pid})", name.trim())
}

/// Whether the process has the device open. Only descriptors that `may_ask` allows, by number and link, are looked at:
/// a stat of any other file may wait for a server.
fn has_open(pid: u32, device: DevNo, mut may_ask: impl FnMut(&str, &Path) -> bool) -> bool {
    let folder = PathBuf::from(format!("/proc/{pid}/fd"));
    let descriptors = names_in(&folder).unwrap_or_default();
    descriptors.iter().filter_map(|name| name.to_str()).any(|name| {
        let descriptor = folder.join(name);
        fs::read_link(&descriptor).is_ok_and(|to| to.is_absolute() && may_ask(name, &to))
            && node_number(&descriptor) == Some(device)
    })
}

/// Filesystems where no stat waits for a server.
const LOCAL: [&str; 7] = ["devtmpfs", "tmpfs", "overlay", "ext4", "xfs", "btrfs", "rootfs"];

/// The ids of a process's mounts of such filesystems.
fn local_mounts(pid: u32) -> Vec<String> {
    let table = fs::read_to_string(format!("/proc/{pid}/mountinfo")).unwrap_or_default();
    let local = |line: &str| {
        let kind = line.split_once(" - ")?.1.split(' ').next()?;
        LOCAL.contains(&kind).then(|| line.split(' ').next().unwrap_or_default().to_owned())
    };
    table.lines().filter_map(local).collect()
}

fn is_local(pid: u32, descriptor: &str, mounts: &[String]) -> bool {
    let mount = fdinfo_field(pid, descriptor, "mnt_id:");
    mount.is_some_and(|mount| mounts.contains(&mount))
}

/// By the flags of the descriptor. If they cannot be read, it has been closed.
fn may_write(pid: u32, descriptor: &str) -> bool {
    let flags = fdinfo_field(pid, descriptor, "flags:").and_then(|flags| i32::from_str_radix(&flags, 8).ok());
    flags.is_some_and(|flags| flags & libc::O_ACCMODE != libc::O_RDONLY)
}

fn fdinfo_field(pid: u32, descriptor: &str, what: &str) -> Option<String> {
    let info = fs::read_to_string(format!("/proc/{pid}/fdinfo/{descriptor}")).unwrap_or_default();
    info.lines().find_map(|line| line.strip_prefix(what)).map(|value| value.trim().to_owned())
}

fn is_node_of(path: &Path, device: DevNo) -> bool {
    path.starts_with("/dev/") && node_number(path) == Some(device)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mapping_over_a_partition_is_told_by_its_name_and_an_array_by_the_kernels() {
        let sys = tempfile::tempdir().expect("a directory");
        let make = |path: &str| fs::create_dir_all(sys.path().join(path)).expect("made");
        make("dev/block/259:2/holders/dm-3");
        make("dev/block/259:3/holders/md127");
        make("dev/block/259:4/holders");
        make("block/dm-3/dm");
        fs::write(sys.path().join("block/dm-3/dm/name"), "vg0-data\n").expect("written");
        let holder = |minor| held(sys.path(), DevNo { major: 259, minor });
        assert_eq!(holder(2).as_deref(), Some("held by dm-3 (vg0-data)"));
        assert_eq!(holder(3).as_deref(), Some("held by md127"));
        assert_eq!((holder(4), holder(5)), (None, None));
    }
}
