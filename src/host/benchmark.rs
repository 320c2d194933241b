//! Measures what a disk can do: fio, on a file without a name in a filesystem that is on the disk.
//!
//! Takes in a mount and how much it may take; gives out [`DiskFigures`]. The file is never in a folder, so nobody sees it,
//! no name of somebody else can be meant instead of it, and the kernel frees its space when it is closed, also after a
//! crash. No device is opened.

use std::fs;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::fcntl::{OFlag, open, posix_fallocate};
use nix::sys::stat::Mode;
use nix::sys::statvfs::fstatvfs;
use serde_json::Value;

use super::command::TimedCommand;
use super::disk_figures::{BenchmarkBounds, DiskFigures, MachineModel};
use super::error::HostError;
use super::mount;
use super::port::Mount;

const FIO: &str = "fio";
/// A part of the free space that a pod, which waits meanwhile, does not miss.
const PART_OF_FREE: u64 = 10;
/// A smaller file says nothing of a disk.
const LEAST: u64 = 64 << 20;
const MIB: u64 = 1 << 20;
/// What fio needs beside its run: to begin, and to end when the last requests are through.
const MARGIN: Duration = Duration::from_secs(30);

/// What a run does to the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Read,
    Write,
}

/// One run of fio.
struct FioRun {
    way: Way,
    rw: &'static str,
    block: &'static str,
    depth: &'static str,
    /// Threads that share the file.
    jobs: &'static str,
}

const WRITE: FioRun = FioRun { way: Way::Write, rw: "write", block: "1m", depth: "32", jobs: "1" };
const RANDOM_WRITE: FioRun = FioRun { way: Way::Write, rw: "randwrite", block: "4k", depth: "64", jobs: "4" };
const READ: FioRun = FioRun { way: Way::Read, rw: "read", block: "1m", depth: "32", jobs: "1" };
const RANDOM_READ: FioRun = FioRun { way: Way::Read, rw: "randread", block: "4k", depth: "64", jobs: "4" };

/// Measures in the filesystem of this mount, by the mount table below that /proc.
pub fn benchmark(proc: &Path, mount: &Mount, bounds: BenchmarkBounds) -> Result<DiskFigures, HostError> {
    let file = UnnamedFile::make(proc, mount, bounds.most_bytes)?;
    let run = |run: &FioRun, size: u64| file.run(run, size, bounds.run);
    let written = run(&WRITE, file.size)?;
    let write_iops = run(&RANDOM_WRITE, file.size)?.iops;
    // What was never written is no read from a disk.
    let size = written_part(written.bytes, file.size).ok_or_else(|| HostError::Unsupported {
        what: format!("the disk of {} is too slow to be measured", mount.target.display()),
    })?;
    let read_bandwidth = run(&READ, size)?.bandwidth;
    let read_iops = run(&RANDOM_READ, size)?.iops;
    Ok(DiskFigures { read_iops, read_bandwidth, write_iops, write_bandwidth: written.bandwidth })
}

/// How much of a file of this size was written in a row, from its beginning, in whole MiB; `None`: nothing.
fn written_part(bytes: u64, size: u64) -> Option<u64> {
    let part = bytes.min(size) / MIB * MIB;
    (part > 0).then_some(part)
}

/// An open file that is in no folder, with space of its own.
struct UnnamedFile {
    file: OwnedFd,
    size: u64,
    target: PathBuf,
}

impl UnnamedFile {
    fn make(proc: &Path, mount: &Mount, most: u64) -> Result<Self, HostError> {
        let target = mount.target.clone();
        let failed = |what: &'static str| {
            let object = target.display().to_string();
            move |errno: nix::errno::Errno| HostError::Io { what, object, source: errno.into() }
        };
        let flags = OFlag::O_TMPFILE | OFlag::O_RDWR | OFlag::O_CLOEXEC;
        let file =
            open(&target, flags, Mode::S_IRUSR | Mode::S_IWUSR).map_err(failed("make a file without a name in"))?;
        // The number of the file's device does not say it: each subvolume of btrfs has its own.
        let device = mount::device_of(proc, file.as_fd()).map_err(failed("look at the filesystem at"))?;
        if device != Some(mount.device) {
            return Err(HostError::Changed { path: target, why: "another filesystem is there now".to_owned() });
        }
        let space = fstatvfs(&file).map_err(failed("measure"))?;
        let free = space.blocks_available().saturating_mul(space.fragment_size());
        let size = size_of_file(free, most).ok_or_else(|| HostError::Unsupported { what: too_full(&target, free) })?;
        let length = i64::try_from(size).unwrap_or(i64::MAX);
        posix_fallocate(&file, 0, length).map_err(failed("reserve space for a benchmark in"))?;
        Ok(Self { file, size, target })
    }

    /// The name of the descriptor: the only way to the file, and of no use when it is closed.
    fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd())
    }

    fn run(&self, run: &FioRun, size: u64, time: Duration) -> Result<Speed, HostError> {
        let FioRun { way, rw, block, depth, jobs } = run;
        let args = [
            "--name=localpool".to_owned(),
            format!("--filename={}", self.path()),
            format!("--size={size}"),
            format!("--rw={rw}"),
            format!("--bs={block}"),
            format!("--iodepth={depth}"),
            format!("--numjobs={jobs}"),
            format!("--runtime={}", time.as_secs().max(1)),
            "--time_based".to_owned(),
            "--ioengine=libaio".to_owned(),
            "--direct=1".to_owned(),
            "--thread".to_owned(),
            "--group_reporting".to_owned(),
            // It never makes or removes a file.
            "--allow_file_create=0".to_owned(),
            "--output-format=json".to_owned(),
        ];
        let finished = TimedCommand::new(FIO, time + MARGIN).ends_with_us().args(args).run()?;
        speed_of(&finished.stdout, *way).ok_or_else(|| HostError::Io {
            what: "understand what fio says of",
            object: self.target.display().to_string(),
            source: std::io::Error::other("its output has no speed"),
        })
    }
}

/// A tenth of what is free, in whole MiB, and at most this many bytes; `None`: that is too little.
fn size_of_file(free: u64, most: u64) -> Option<u64> {
    let size = (free / PART_OF_FREE).min(most) / MIB * MIB;
    (size >= LEAST).then_some(size)
}

fn too_full(target: &Path, free: u64) -> String {
    let (free, needed) = (free / MIB, LEAST * PART_OF_FREE / MIB);
    format!("{} has {free} MiB free, and a benchmark needs {needed} MiB", target.display())
}

/// What one run reached.
#[derive(Debug, PartialEq, Eq)]
struct Speed {
    /// In the whole run.
    bytes: u64,
    bandwidth: u64,
    iops: u64,
}

/// Of the JSON that fio prints; `None`: it did nothing, or says something else.
fn speed_of(output: &str, way: Way) -> Option<Speed> {
    // It may have warnings before it.
    let output: Value = serde_json::from_str(output.get(output.find('{')?..)?).ok()?;
    let job = output.get("jobs")?.get(0)?;
    if job.get("error")?.as_i64()? != 0 {
        return None;
    }
    let kind = job.get(match way {
        Way::Read => "read",
        Way::Write => "write",
    })?;
    let bytes = kind.get("io_bytes")?.as_u64()?;
    let bandwidth = kind.get("bw_bytes")?.as_u64()?;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "requests in a second, by fio's count")]
    let iops = kind.get("iops")?.as_f64()?.max(0.0) as u64;
    (bandwidth > 0 && iops > 0).then_some(Speed { bytes, bandwidth, iops })
}

/// What DMI says of the machine, below its /sys.
pub fn machine_model(sys: &Path) -> MachineModel {
    let said = |name: &str| {
        let text = fs::read_to_string(sys.join("class/dmi/id").join(name)).ok()?;
        let text = text.trim();
        (!text.is_empty() && text.len() <= 128 && !text.contains(char::is_control)).then(|| text.to_owned())
    };
    MachineModel { vendor: said("sys_vendor"), product: said("product_name"), bios: said("bios_version") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_benchmark_takes_a_tenth_of_what_is_free_and_never_more_than_it_may() {
        const GIB: u64 = 1 << 30;
        assert_eq!(size_of_file(100 * GIB, GIB), Some(GIB));
        assert_eq!(size_of_file(5 * GIB, GIB), Some(512 * MIB));
        assert_eq!(size_of_file(640 * MIB, GIB), Some(LEAST));
        assert_eq!(size_of_file(640 * MIB - 1, GIB), None);
        assert_eq!(size_of_file(0, GIB), None);
    }

    #[test]
    fn only_what_was_written_is_read() {
        assert_eq!(written_part(3 * LEAST, LEAST), Some(LEAST), "it began again");
        assert_eq!(written_part(10 * MIB + 4096, LEAST), Some(10 * MIB));
        assert_eq!(written_part(MIB - 1, LEAST), None);
    }

    #[test]
    fn what_fio_says_is_read_and_nothing_that_it_did_not_do() {
        let says = |error: i64, bytes: u64, iops: f64| {
            let kind = format!(r#"{{"io_bytes": 70000, "bw_bytes": {bytes}, "iops": {iops:?}}}"#);
            let none = r#"{"io_bytes": 0, "bw_bytes": 0, "iops": 0.0}"#;
            format!(r#"{{"fio version": "fio-3.33", "jobs": [{{"error": {error}, "read": {none}, "write": {kind}}}]}}"#)
        };
        let speed = || Some(Speed { bytes: 70_000, bandwidth: 4096, iops: 1 });
        assert_eq!(speed_of(&says(0, 4096, 1.9), Way::Write), speed());
        let warned = format!("fio: a warning\n{}", says(0, 4096, 1.0));
        assert_eq!(speed_of(&warned, Way::Write), speed());
        assert_eq!(speed_of(&says(0, 4096, 1.0), Way::Read), None, "it read nothing");
        assert_eq!(speed_of(&says(5, 4096, 1.0), Way::Write), None, "it failed");
        for broken in ["", "{", "words", "{}", r#"{"jobs": []}"#, r#"{"jobs": [{"error": 0, "write": {}}]}"#] {
            assert_eq!(speed_of(broken, Way::Write), None, "{broken:?}");
        }
    }

    #[test]
    fn the_firmware_says_what_the_machine_is_and_a_machine_without_such_firmware_says_nothing() {
        let sys = tempfile::tempdir().unwrap();
        assert_eq!(machine_model(sys.path()), MachineModel::default());
        let folder = sys.path().join("class/dmi/id");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("sys_vendor"), "Amazon EC2\n").unwrap();
        fs::write(folder.join("product_name"), "i3en.large\n").unwrap();
        fs::write(folder.join("bios_version"), " \n").unwrap();
        let expected =
            MachineModel { vendor: Some("Amazon EC2".to_owned()), product: Some("i3en.large".to_owned()), bios: None };
        assert_eq!(machine_model(sys.path()), expected);
        fs::write(folder.join("sys_vendor"), "a\u{1b}[2Jb\n").unwrap();
        fs::write(folder.join("product_name"), "x".repeat(129)).unwrap();
        assert_eq!(machine_model(sys.path()), MachineModel::default(), "what no firmware says");
    }
}
