//! A folder of the run's own and all that hangs on it: image files, loop devices on them, mounts, processes.
//!
//! What belongs to it is found by looking at the machine, so that it can be tidied up after a stop at any
//! moment: a second process, the janitor, waits for the end of the first, and then tidies up what is left.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use localpool::host::{Mounts, RealMounts};
use localpool_testing::loops::{LoopDevice, attached};
use nix::sys::signal::{SigSet, Signal, kill};
use nix::unistd::Pid;

use crate::pace::{Pace, Size};
use crate::process::printed;

/// Marks every process that is started in the lab.
const LAB: &str = "LOCALPOOL_BENCH_LAB";
/// Makes this binary the janitor of that folder; it does not belong to it.
const TIDY: &str = "LOCALPOOL_BENCH_TIDY";
/// Where to make the folder, instead of the places below.
const WHERE: &str = "LOCALPOOL_BENCH_DIR";
/// What a run needs at its widest, with room to spare.
const NEEDED: Size = Size { full: 14 << 30, short: 5 << 30 };

/// The folder; dropping it tidies up.
pub struct Lab {
    dir: PathBuf,
    pace: Pace,
    janitor: Child,
    alive: Option<ChildStdin>,
}

/// An image file with a loop device on it.
pub struct Disk(LoopDevice);

/// How an image file is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Image {
    /// Its blocks belong to it, and were never written.
    Allocated,
    /// Nothing.
    Sparse,
}

impl Lab {
    pub fn new(pace: Pace) -> Result<Self> {
        let parent = place(pace.of(NEEDED))?;
        let dir = tempfile::Builder::new().prefix("localpool-bench-").tempdir_in(&parent)?.keep();
        let mut janitor = Command::new("/proc/self/exe")
            .env(TIDY, &dir)
            .stdin(Stdio::piped())
            // Ctrl-C is for the foreground.
            .process_group(0)
            .spawn()
            .context("starting the janitor")?;
        let alive = janitor.stdin.take();
        Ok(Self { dir, pace, janitor, alive })
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub fn pace(&self) -> Pace {
        self.pace
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// A command whose process is the lab's.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command.env(LAB, &self.dir).stdin(Stdio::null());
        command
    }

    /// Runs a tool to its end; gives its output.
    pub fn run(&self, program: &str, args: &[&str]) -> Result<String> {
        printed(self.command(program).args(args))
    }

    pub fn unmount(&self, target: &Path) -> Result<()> {
        Ok(RealMounts.unmount(target)?)
    }

    pub fn disk(&self, name: &str, size: u64, image: Image) -> Result<Disk> {
        let file = self.path(name);
        let text = file.to_str().ok_or_else(|| anyhow!("the path of the lab is not UTF-8"))?;
        fs::File::create_new(&file)?.set_len(size)?;
        if image == Image::Allocated {
            self.run("fallocate", &["--length", &size.to_string(), text])?;
        }
        Ok(Disk(LoopDevice::attach(&file, &["--find"])))
    }

    /// Disks that are called `NAME-0.img`, `NAME-1.img` and so on.
    pub fn disks(&self, name: &str, count: u64, size: u64, image: Image) -> Result<Vec<Disk>> {
        (0..count).map(|n| self.disk(&format!("{name}-{n}.img"), size, image)).collect()
    }
}

impl Disk {
    pub fn path(&self) -> &Path {
        &self.0.node
    }

    pub fn image(&self) -> &Path {
        &self.0.image
    }

    pub fn text(&self) -> &str {
        self.0.path()
    }

    /// Kernel name.
    pub fn name(&self) -> &str {
        self.0.name()
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        self.0.detach_if_mine();
        let _ = fs::remove_file(self.image());
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        if let Err(error) = sweep(&self.dir) {
            eprintln!("peers: {} is not tidied up: {error:#}", self.dir.display());
        }
        drop(self.alive.take());
        let _ = self.janitor.wait();
    }
}

/// A folder on a filesystem that is not memory.
fn place(needed: u64) -> Result<PathBuf> {
    let wished = std::env::var_os(WHERE).map(PathBuf::from);
    let places = wished.map_or_else(|| vec!["/var/tmp".into(), env!("CARGO_TARGET_TMPDIR").into()], |dir| vec![dir]);
    let mut refused = Vec::new();
    for dir in places {
        match check_place(&dir, needed) {
            Ok(()) => return Ok(dir),
            Err(error) => refused.push(format!("{}: {error:#}", dir.display())),
        }
    }
    bail!("no place for the image files ({WHERE} may name one): {}", refused.join("; "))
}

fn check_place(dir: &Path, needed: u64) -> Result<()> {
    let kind = nix::sys::statfs::statfs(dir)?;
    let in_memory = [nix::sys::statfs::TMPFS_MAGIC, nix::sys::statfs::FsType(0x8584_58f6)];
    if in_memory.contains(&kind.filesystem_type()) {
        bail!("it is in memory");
    }
    let free = RealMounts.usage(dir)?.available;
    if free < needed {
        bail!("{} GiB are free, and {} are needed", free >> 30, needed >> 30);
    }
    Ok(())
}

/// What this process is if it was started as the janitor.
pub fn janitor() -> Option<ExitCode> {
    let dir = PathBuf::from(std::env::var_os(TIDY)?);
    // Whatever stops the first process must not stop this one.
    let _ = SigSet::all().thread_block();
    let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
    if !dir.exists() {
        return Some(ExitCode::SUCCESS);
    }
    match sweep(&dir) {
        Ok(()) => {
            eprintln!("peers: stopped midway; {} and its loop devices are tidied up", dir.display());
            Some(ExitCode::SUCCESS)
        }
        Err(error) => {
            eprintln!("peers: stopped midway, and {} is not tidied up: {error:#}", dir.display());
            Some(ExitCode::FAILURE)
        }
    }
}

/// Ends, unmounts, detaches and removes whatever is left. May be repeated.
fn sweep(dir: &Path) -> Result<()> {
    until("its processes end", || {
        let running = processes(dir);
        for pid in &running {
            let _ = kill(*pid, Signal::SIGKILL);
        }
        Ok(running.is_empty())
    })?;
    until("its mounts are gone", || {
        let mounts: Vec<_> = RealMounts.table()?.into_iter().filter(|mount| mount.target.starts_with(dir)).collect();
        for mount in mounts.iter().rev() {
            RealMounts.unmount(&mount.target)?;
        }
        Ok(mounts.is_empty())
    })?;
    attached(dir).iter().for_each(LoopDevice::detach);
    Ok(fs::remove_dir_all(dir)?)
}

fn until(what: &str, mut holds: impl FnMut() -> Result<bool>) -> Result<()> {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !holds()? {
        if Instant::now() > deadline {
            bail!("waited 10 s in vain until {what}");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// Processes with the lab in their environment. (A zombie has none, and needs no killing.)
fn processes(dir: &Path) -> Vec<Pid> {
    let mark = format!("{LAB}={}", dir.display());
    let is_ours = |pid: i32| {
        let environ = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environ.split(|byte| *byte == 0).any(|one| one == mark.as_bytes())
    };
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|pid| is_ours(*pid)).map(Pid::from_raw).collect()
}
