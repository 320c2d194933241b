//! `localpool demo` as a person runs it: it succeeds, writes to no disk but its own, and leaves nothing behind, however
//! it ends. Needs root and loop devices; each run has its own temporary directory, which tells its things from those of
//! others.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use localpool_testing::loops::TempLoop;
use localpool_testing::{eventually, is_root, pid};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

const BINARY: &str = env!("CARGO_BIN_EXE_localpool");
const NOBODY: u32 = 65534;

static TURN: Mutex<()> = Mutex::new(());

/// One demo at a time; `None` without root.
fn turn() -> Option<MutexGuard<'static, ()>> {
    is_root().then(|| TURN.lock().unwrap_or_else(PoisonError::into_inner))
}

/// A blank loop disk that is not the demo's.
struct BlankDisk(TempLoop);

impl BlankDisk {
    /// Writes, discards and flushes that the kernel has counted: fields 5 to 7, 12 to 14 and 16 of the disk's `stat`.
    fn writes(&self) -> Vec<String> {
        let stat = fs::read_to_string(format!("/sys/block/{}/stat", self.0.name())).unwrap();
        let fields: Vec<&str> = stat.split_whitespace().collect();
        [4, 5, 6, 11, 12, 13, 15].iter().map(|index| fields[*index].to_owned()).collect()
    }

    /// Whether all of it still reads as zeros.
    fn is_blank(&self) -> bool {
        let mut image = fs::File::open(&self.0.image).unwrap();
        let mut piece = vec![0; 1 << 20];
        loop {
            let count = image.read(&mut piece).unwrap();
            if count == 0 {
                return true;
            }
            if piece[..count] != vec![0; count] {
                return false;
            }
        }
    }
}

/// A demo that runs, in a temporary directory of its own.
struct Demo {
    child: Child,
    tmp: TempDir,
    /// What it printed so far, up to the line that was waited for.
    printed: Vec<String>,
}

impl Demo {
    fn start() -> Self {
        let tmp = tempfile::Builder::new().prefix("demo").tempdir().unwrap();
        let mut command = Command::new(BINARY);
        command.arg("demo").env("TMPDIR", tmp.path()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Self { child: command.spawn().unwrap(), tmp, printed: Vec::new() }
    }

    /// Reads up to a line with that word, and leaves the rest unread.
    fn wait_for(&mut self, word: &str) {
        let stdout = BufReader::with_capacity(1, self.child.stdout.as_mut().unwrap());
        for line in stdout.lines() {
            self.printed.push(line.unwrap());
            if self.printed.last().unwrap().contains(word) {
                return;
            }
        }
        panic!("it ended without {word:?}: {:#?}", self.printed);
    }

    fn signal(&self, signal: Signal) {
        kill(pid(&self.child), signal).unwrap();
    }

    /// Its directory below the temporary one, while it runs.
    fn lab(&self) -> PathBuf {
        fs::read_dir(self.tmp.path()).unwrap().next().unwrap().unwrap().path()
    }

    fn end(mut self) -> Ended {
        let mut text = self.printed.join("\n");
        // Its pipes have room for the rest of its output.
        let has_ended = eventually(Duration::from_secs(60), || self.child.try_wait().unwrap().is_some());
        assert!(has_ended, "it does not end");
        let mut errors = String::new();
        self.child.stdout.take().unwrap().read_to_string(&mut text).unwrap();
        self.child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
        Ended { status: self.child.wait().unwrap(), text, errors, tmp: self.tmp }
    }
}

struct Ended {
    status: ExitStatus,
    text: String,
    errors: String,
    tmp: TempDir,
}

impl Ended {
    /// Its loop devices, as it named them.
    fn loops(&self) -> Vec<&str> {
        let words = self.text.split(|c: char| c.is_whitespace() || c == ',');
        words.filter_map(|word| word.strip_prefix("/dev/")).filter(|name| name.starts_with("loop")).collect()
    }

    fn expect_nothing_left(&self) {
        let tmp = self.tmp.path();
        let files: Vec<_> = fs::read_dir(tmp).unwrap().collect();
        assert!(files.is_empty(), "files: {files:?}");
        assert_eq!(mentions(Path::new("/proc/self/mountinfo"), tmp), Vec::<String>::new(), "mounts");
        assert_eq!(bound_loops(tmp), Vec::<PathBuf>::new(), "loop devices");
        assert_eq!(processes(tmp), Vec::<String>::new(), "processes");
        for name in self.loops() {
            // Another test may use the device by now, and then the partitions are that test's.
            let device = Path::new("/sys/block").join(name);
            let free = !device.join("loop/backing_file").exists();
            let partitions = fs::read_dir(&device).unwrap().flatten().filter(|e| e.path().join("partition").exists());
            assert!(!free || partitions.count() == 0, "{name} still has partitions");
        }
    }
}

fn mentions(file: &Path, tmp: &Path) -> Vec<String> {
    let text = String::from_utf8_lossy(&fs::read(file).unwrap_or_default()).into_owned();
    text.lines().filter(|line| line.contains(tmp.to_str().unwrap())).map(str::to_owned).collect()
}

fn bound_loops(tmp: &Path) -> Vec<PathBuf> {
    let files = fs::read_dir("/sys/block").unwrap().map(|entry| entry.unwrap().path().join("loop/backing_file"));
    files.filter(|file| !mentions(file, tmp).is_empty()).collect()
}

fn processes(tmp: &Path) -> Vec<String> {
    let lines = fs::read_dir("/proc").unwrap().flatten().flat_map(|entry| mentions(&entry.path().join("cmdline"), tmp));
    lines.collect()
}

fn output(command: &mut Command) -> (Output, String, String) {
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    (output, out, err)
}

#[test]
fn loop_the_demo_does_every_step_and_leaves_a_blank_disk_beside_it_untouched_and_nothing_behind() {
    let Some(_turn) = turn() else { return };
    let blank = BlankDisk(TempLoop::new(2 << 30, &["--find"]));
    let before = blank.writes();
    let ended = Demo::start().end();
    assert!(ended.status.success(), "{}\n{}", ended.text, ended.errors);
    for step in
        ["CreateVolume", "expand", "kill -9, restart", "read back", "read erased range", "everything was removed"]
    {
        assert!(ended.text.contains(step), "{step}: {}", ended.text);
    }
    // The demo saw it as free to take; it stayed whole because no set of the demo selects it.
    let line = ended.text.lines().find(|line| line.starts_with(&format!("{} ", blank.0.path())));
    assert!(line.is_some_and(|line| line.contains("Unclaimed")), "{line:?} in {}", ended.text);
    assert_eq!(blank.writes(), before, "writes, discards and flushes of {}", blank.0.path());
    assert!(blank.is_blank());
    assert_eq!(ended.loops().iter().filter(|name| blank.0.name() == **name).count(), 2, "in the two tables only");
    ended.expect_nothing_left();
}

#[test]
fn loop_a_demo_that_is_stopped_by_a_signal_says_so_and_leaves_nothing_behind() {
    let Some(_turn) = turn() else { return };
    let stops = [
        (Signal::SIGINT, "localpool demo"),
        (Signal::SIGTERM, "make disks"),
        (Signal::SIGINT, "NodeStageVolume"),
        (Signal::SIGTERM, "NodePublishVolume"),
        (Signal::SIGINT, "write"),
        (Signal::SIGHUP, "expand"),
        (Signal::SIGTERM, "kill -9"),
        (Signal::SIGINT, "DeleteVolume"),
    ];
    for (signal, step) in stops {
        let mut demo = Demo::start();
        demo.wait_for(step);
        demo.signal(signal);
        let ended = demo.end();
        assert!(!ended.status.success(), "{signal} at {step}: {}", ended.text);
        assert!(ended.errors.contains(&format!("stopped by {signal}")), "{signal} at {step}: {}", ended.errors);
        ended.expect_nothing_left();
    }
}

#[test]
fn loop_a_demo_whose_driver_dies_fails_with_a_message_and_leaves_nothing_behind() {
    let Some(_turn) = turn() else { return };
    let mut demo = Demo::start();
    demo.wait_for("write");
    let socket = demo.lab().join("csi.sock");
    let is_driver = |line: &String| line.contains("standalone") && line.contains(socket.to_str().unwrap());
    let pids = fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| {
        let lines = mentions(&entry.path().join("cmdline"), demo.tmp.path());
        lines.iter().any(is_driver).then(|| entry.file_name().to_str()?.parse().ok()).flatten()
    });
    let pids: Vec<i32> = pids.collect();
    assert_eq!(pids.len(), 1);
    kill(Pid::from_raw(pids[0]), Signal::SIGKILL).unwrap();
    let ended = demo.end();
    assert!(!ended.status.success(), "{}", ended.text);
    assert!(ended.errors.contains(" of ") && ended.errors.contains("failed"), "{}", ended.errors);
    assert!(ended.text.contains("the driver's last lines:"), "{}", ended.text);
    ended.expect_nothing_left();
}

#[test]
fn loop_a_demo_that_nobody_can_read_says_why_it_fails_and_leaves_nothing_behind() {
    let Some(_turn) = turn() else { return };
    let closed = std::io::pipe().unwrap().1;
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    for (out, code, message) in
        [(Stdio::from(closed), 141, ""), (Stdio::from(full), 1, "could not be printed: standard output could not")]
    {
        let tmp = tempfile::Builder::new().prefix("demo").tempdir().unwrap();
        let mut command = Command::new(BINARY);
        command.arg("demo").env("TMPDIR", tmp.path()).stdout(out).stderr(Stdio::piped());
        let (output, _, errors) = output(&mut command);
        assert_eq!(output.status.code(), Some(code), "{errors}");
        assert!(errors.contains(message) && errors.is_empty() == message.is_empty(), "{errors}");
        Ended { status: output.status, text: String::new(), errors, tmp }.expect_nothing_left();
    }
}

#[test]
fn the_demo_without_root_says_that_it_needs_root_and_does_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let mut command = if nix::unistd::geteuid().is_root() {
        // Others may not be allowed to read the build folder.
        let copy = dir.path().join("localpool");
        fs::copy(BINARY, &copy).unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let mut command = Command::new(copy);
        command.uid(NOBODY).gid(NOBODY);
        command
    } else {
        Command::new(BINARY)
    };
    let (output, out, err) = output(command.arg("demo").env("TMPDIR", dir.path()));
    assert_eq!(output.status.code(), Some(1));
    assert!(err.contains("needs root: run it as root"), "{err}");
    assert_eq!(out, "");
}
