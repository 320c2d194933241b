//! Processes that were killed and cannot end: a thread of theirs waits in the kernel for a disk that hangs.
//!
//! Takes in a process and /proc; gives out whether such a process can still do more than what its threads wait for, and
//! which devices that concerns. Its descriptors, and with them its locks, stay until the last thread is gone.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use nix::libc;

use super::links::{names_in, node_number};
use super::mountinfo::devno;
use super::process_start::began;
use super::raw::DevNo;

/// Where the bit of SIGKILL is in the masks of /proc: they begin with signal 1.
const KILLED: u64 = 1 << (libc::SIGKILL - 1);
/// How much of a path that a thread opens is read: enough to see what it is.
const PREFIX: &[u8] = b"/dev/";

/// A process that was killed. Nothing of it runs in user space any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dying {
    pub pid: i32,
    /// When it began, in ticks since the boot, if that could be read: after its end its number may belong to another
    /// process.
    began: Option<u64>,
}

/// What one of its threads still does.
#[derive(Debug, PartialEq, Eq)]
enum ThreadWait {
    /// It waits for this device: what it began there may still complete and be written.
    For(DevNo),
    /// It waits for something whose end changes nothing that others rely on.
    Harmlessly,
}

impl Dying {
    /// The process that has this number now.
    pub fn who_has(pid: i32) -> Self {
        Self { pid, began: began(Path::new("/proc"), pid) }
    }

    /// `pid`, if it was killed and all its threads only wait, in calls that we understand. `None`: it lives, is gone,
    /// or may still change something unknown.
    pub fn of(pid: i32) -> Option<Self> {
        // Asked first: a process that gets the number after that is alive.
        let who = Self::who_has(pid);
        waits_for(Path::new("/proc"), pid).flatten().map(|_| who)
    }

    /// Whether it may still write to this device, its disk, or another partition of that disk. Only `false` is certain.
    pub fn may_write(&self, device: DevNo) -> bool {
        let waits = waits_for(Path::new("/proc"), self.pid);
        // Asked last: if it is the same process now, it was the same all the time.
        if matches!((self.began, Self::who_has(self.pid).began), (Some(was), Some(now)) if was != now) {
            return false;
        }
        match waits {
            // It is gone.
            None => false,
            Some(None) => true,
            Some(Some(devices)) => devices.into_iter().any(|waited| whole(waited) == whole(device)),
        }
    }
}

/// The disk of a partition; any other device is one by itself.
fn whole(device: DevNo) -> DevNo {
    let partition = PathBuf::from(format!("/sys/dev/block/{device}"));
    let disk = match partition.join("partition").try_exists() {
        Ok(true) => fs::read_to_string(partition.join("../dev")).ok(),
        _ => None,
    };
    disk.and_then(|number| devno(number.trim().as_bytes())).unwrap_or(device)
}

/// The devices that the threads of a killed process wait for: `Some(None)` if it was not killed or nobody can know,
/// `None` if no thread of it remains.
fn waits_for(proc: &Path, pid: i32) -> Option<Option<BTreeSet<DevNo>>> {
    let tasks = proc.join(pid.to_string()).join("task");
    let mut devices = BTreeSet::new();
    let mut any = false;
    for task in names_in(&tasks).ok()? {
        let task = tasks.join(task);
        let Ok(status) = fs::read_to_string(task.join("status")) else { continue };
        if has_ended(&status) {
            continue;
        }
        any = true;
        if !is_killed(&status) {
            return Some(None);
        }
        match waits(&task) {
            Some(ThreadWait::For(device)) => drop(devices.insert(device)),
            Some(ThreadWait::Harmlessly) => {}
            None => return Some(None),
        }
    }
    any.then_some(Some(devices))
}

fn has_ended(status: &str) -> bool {
    field(status, "State:").is_some_and(|state| state.starts_with(['Z', 'X']))
}

/// SIGKILL waits for the thread to come back from the kernel.
fn is_killed(status: &str) -> bool {
    let mask = |name| field(status, name).and_then(|mask| u64::from_str_radix(mask, 16).ok()).unwrap_or(0);
    (mask("SigPnd:") | mask("ShdPnd:")) & KILLED != 0
}

fn field<'s>(status: &'s str, name: &str) -> Option<&'s str> {
    status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim)
}

/// What a thread waits for, by the call that it is in; `None` if that could be anything.
fn waits(task: &Path) -> Option<ThreadWait> {
    let call = fs::read_to_string(task.join("syscall")).ok()?;
    let (number, arguments) = parse_call(&call)?;
    match number {
        libc::SYS_write
        | libc::SYS_pwrite64
        | libc::SYS_pwritev
        | libc::SYS_ioctl
        | libc::SYS_fsync
        | libc::SYS_fdatasync
        | libc::SYS_fallocate => device_of(task, arguments[0]).map(ThreadWait::For),
        libc::SYS_read | libc::SYS_pread64 | libc::SYS_preadv | libc::SYS_getdents64 => Some(ThreadWait::Harmlessly),
        libc::SYS_fstat | libc::SYS_newfstatat | libc::SYS_statx | libc::SYS_statfs | libc::SYS_fstatfs => {
            Some(ThreadWait::Harmlessly)
        }
        libc::SYS_readlinkat | libc::SYS_flock => Some(ThreadWait::Harmlessly),
        // An open in the state directory could be the end of a write that a later write has followed since.
        libc::SYS_openat => opens_device(task, arguments[1]).then_some(ThreadWait::Harmlessly),
        _ => None,
    }
}

/// Number and arguments of the call that a thread is blocked in: none if it runs, or is in no call.
fn parse_call(text: &str) -> Option<(libc::c_long, Vec<u64>)> {
    let mut words = text.split_whitespace();
    let number = words.next()?.parse().ok()?;
    let arguments: Option<Vec<u64>> =
        words.map(|word| u64::from_str_radix(word.trim_start_matches("0x"), 16).ok()).collect();
    arguments.filter(|arguments| arguments.len() >= 6).map(|arguments| (number, arguments))
}

fn device_of(task: &Path, descriptor: u64) -> Option<DevNo> {
    let link = task.join("fd").join(descriptor.to_string());
    // The link is looked at before it is followed: a stat of a file elsewhere may wait for a server.
    fs::read_link(&link).ok().filter(|to| to.starts_with("/dev/"))?;
    node_number(&link)
}

/// Whether the path that a thread wants to open is one of a device.
fn opens_device(task: &Path, address: u64) -> bool {
    let memory: PathBuf = task.join("mem");
    let mut begin = [0; PREFIX.len()];
    let read = fs::File::open(memory).and_then(|memory| memory.read_exact_at(&mut begin, address));
    read.is_ok() && begin == PREFIX
}

#[cfg(test)]
mod tests {
    use super::*;

    const KILLED_AND_WAITING: &str =
        "Name:\tlocalpool\nState:\tD (disk sleep)\nSigPnd:\t0000000000000100\nShdPnd:\t0\n";
    const ENDED: &str = "Name:\tlocalpool\nState:\tZ (zombie)\nSigPnd:\t0\nShdPnd:\t0\n";
    const ALIVE: &str =
        "Name:\tlocalpool\nState:\tS (sleeping)\nSigPnd:\t0000000000000000\nShdPnd:\t0000000000004000\n";

    /// A process of these threads: their status, and the call that each is in.
    fn process(threads: &[(&str, &str)]) -> tempfile::TempDir {
        let proc = tempfile::tempdir().expect("a directory");
        for (index, (status, call)) in threads.iter().enumerate() {
            let task = proc.path().join(format!("7/task/{}", 7 + index));
            fs::create_dir_all(task.join("fd")).expect("made");
            fs::write(task.join("status"), status).expect("written");
            fs::write(task.join("syscall"), call).expect("written");
            std::os::unix::fs::symlink("/dev/null", task.join("fd/5")).expect("linked");
            std::os::unix::fs::symlink("/etc/hostname", task.join("fd/6")).expect("linked");
        }
        proc
    }

    fn call(number: libc::c_long, descriptor: u64) -> String {
        format!("{number} {descriptor:#x} 0x7f00 0x1000 0x0 0x0 0x0 0x7ffc 0x7f01\n")
    }

    fn found(threads: &[(&str, &str)]) -> Option<Option<BTreeSet<DevNo>>> {
        waits_for(process(threads).path(), 7)
    }

    #[test]
    fn a_killed_process_whose_threads_only_read_is_dying_and_may_write_nothing() {
        let reading = call(libc::SYS_pread64, 5);
        assert_eq!(found(&[(ENDED, ""), (KILLED_AND_WAITING, &reading)]), Some(Some(BTreeSet::new())));
        assert_eq!(found(&[(ENDED, ""), (ENDED, "")]), None, "nothing of it is left");
    }

    #[test]
    fn one_that_lives_or_may_still_change_a_file_is_not_dying() {
        let reading = call(libc::SYS_pread64, 5);
        for thread in [
            (ALIVE, reading.as_str()),
            (KILLED_AND_WAITING, "running\n"),
            (KILLED_AND_WAITING, "-1 0x7ffc 0x7f01\n"),
            (KILLED_AND_WAITING, &call(libc::SYS_pwrite64, 5)),
            (KILLED_AND_WAITING, &call(libc::SYS_pwrite64, 6)),
            (KILLED_AND_WAITING, &call(libc::SYS_fsync, 9)),
            (KILLED_AND_WAITING, &call(libc::SYS_renameat2, 5)),
            (KILLED_AND_WAITING, &call(libc::SYS_openat, 5)),
        ] {
            assert_eq!(found(&[(KILLED_AND_WAITING, &reading), thread]), Some(None), "{thread:?}");
        }
    }

    #[test]
    fn this_process_is_alive() {
        let pid = i32::try_from(std::process::id()).expect("a pid");
        assert_eq!(Dying::of(pid), None);
        assert!(Dying::who_has(pid).may_write(DevNo { major: 8, minor: 0 }), "it may do anything");
    }

    #[test]
    fn one_that_ended_may_write_nothing_whoever_has_its_number_by_now() {
        let Dying { pid, began } = Dying::who_has(i32::try_from(std::process::id()).expect("a pid"));
        let ended = Dying { pid, began: Some(began.expect("it is here") - 1) };
        assert!(!ended.may_write(DevNo { major: 8, minor: 0 }), "its number is that of a process that lives");
    }

    #[test]
    fn the_time_when_a_process_began_is_found_behind_any_name() {
        let proc = process(&[(ALIVE, "")]);
        let stat = "7 (a) b 1 2 (c)) D 1 7 7 0 -1 4194560 60 0 0 0 1 2 0 0 20 0 3 0 4711 900 12 18446744073709551615\n";
        fs::write(proc.path().join("7/stat"), stat).expect("written");
        assert_eq!(began(proc.path(), 7), Some(4711));
        assert_eq!(began(proc.path(), 8), None, "there is none");
    }
}
