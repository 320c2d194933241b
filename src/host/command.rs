//! Runs external programs: the one place that starts a process.
//!
//! Takes in a program, its arguments and a time limit; gives out its exit code and the tail of what it wrote. It never
//! waits longer than the limit, even if the program hangs, floods its output, or leaves a child behind that holds the
//! pipes.

mod running;

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use self::running::Running;
use super::error::HostError;
use super::ioctl;

/// Where programs are looked for: fixed, so that nobody's environment chooses what root runs.
const SEARCH_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// How many bytes of the output an error shows, from its end.
const SHOWN_BYTES: usize = 2 << 10;

/// Closes an exclusive descriptor such that no copy of it remains. Otherwise the kernel may still call the device busy
/// while another thread starts a program.
pub(super) fn close_for_good(file: File) {
    for_good(|| drop(file));
}

/// The close itself may wait for a disk that hangs, so it does not run under the lock that all starts need. It begins
/// while no program is being started: the last copy should be closed here, and not by an exec that others wait for.
/// Afterwards it waits for any start that began before the descriptor was gone.
fn for_good(close: impl FnOnce()) {
    drop(running::starting());
    close();
    drop(running::starting());
}

/// A program to run, with all that it gets and the time that it may take.
#[derive(Debug)]
pub struct TimedCommand {
    program: String,
    args: Vec<OsString>,
    limit: Duration,
    search_path: OsString,
    after_us: AfterUs,
}

/// What happens to a program when the process that started it is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AfterUs {
    GoesOn,
    Ends,
}

/// A program that ended by itself. `stdout` and `stderr` are the last 64 KiB of each.
#[derive(Debug)]
pub struct Finished {
    program: String,
    status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
}

impl TimedCommand {
    pub fn new(program: &str, limit: Duration) -> Self {
        Self {
            program: program.to_owned(),
            args: Vec::new(),
            limit,
            search_path: SEARCH_PATH.into(),
            after_us: AfterUs::GoesOn,
        }
    }

    /// The program must not outlive this process: what it writes to may be somebody else's by then.
    pub fn ends_with_us(self) -> Self {
        Self { after_us: AfterUs::Ends, ..self }
    }

    pub fn args<A: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.args.extend(args.into_iter().map(|arg| arg.as_ref().to_owned()));
        self
    }

    /// Looks for the program elsewhere.
    pub fn search_path(mut self, path: &OsStr) -> Self {
        self.search_path = path.to_owned();
        self
    }

    /// Runs it; any exit code other than 0 is an error.
    pub fn run(self) -> Result<Finished, HostError> {
        self.run_allowing(&[0])
    }

    /// Runs it; the codes in `good` are not errors.
    pub fn run_allowing(self, good: &[i32]) -> Result<Finished, HostError> {
        let finished = self.finish()?;
        match finished.status.code() {
            Some(code) if good.contains(&code) => Ok(finished),
            _ => Err(finished.into_error()),
        }
    }

    fn finish(self) -> Result<Finished, HostError> {
        let until = Instant::now() + self.limit;
        let mut running = Running::start(&mut process(&self)).map_err(|source| start_error(&self.program, source))?;
        let status = match running.attend(until) {
            Ok(Some(status)) => status,
            Ok(None) => {
                running.kill();
                return Err(HostError::Timeout { program: self.program, seconds: self.limit.as_secs() });
            }
            Err(source) => {
                running.kill();
                return Err(HostError::Io { what: "wait for", object: self.program, source });
            }
        };
        let Running { stdout, stderr, .. } = running;
        Ok(Finished { program: self.program, status, stdout: stdout.text(), stderr: stderr.text() })
    }
}

impl Finished {
    pub fn code(&self) -> Option<i32> {
        self.status.code()
    }

    fn into_error(self) -> HostError {
        let status = match (self.status.code(), self.status.signal()) {
            (Some(code), _) => format!("exit code {code}"),
            (None, Some(signal)) => match Signal::try_from(signal) {
                Ok(name) => format!("signal {name}"),
                Err(_) => format!("signal {signal}"),
            },
            (None, None) => "an unknown status".to_owned(),
        };
        // Some programs (e2fsck) say why on stdout.
        let output = if self.stderr.trim().is_empty() { &self.stdout } else { &self.stderr };
        HostError::Command { program: self.program, status, stderr: last_lines(output) }
    }
}

/// The end of an output, on one line, as an error message has it.
fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let mut end = lines.join("; ");
    if end.len() > SHOWN_BYTES {
        let cut = (end.len() - SHOWN_BYTES..).find(|at| end.is_char_boundary(*at)).unwrap_or(end.len());
        end = format!("…{}", &end[cut..]);
    }
    if end.is_empty() { "it printed no error".to_owned() } else { end }
}

fn start_error(program: &str, source: io::Error) -> HostError {
    if source.kind() != io::ErrorKind::NotFound {
        return HostError::Io { what: "start", object: program.to_owned(), source };
    }
    let what = match debian_package(program) {
        Some(package) => format!("{program} is not installed; it is in the Debian package {package}"),
        None => format!("{program} is not installed"),
    };
    HostError::Unsupported { what }
}

fn debian_package(program: &str) -> Option<&'static str> {
    Some(match program {
        "mkfs.ext4" | "e2fsck" | "resize2fs" => "e2fsprogs",
        "mkfs.xfs" | "xfs_growfs" => "xfsprogs",
        "mkfs.btrfs" | "btrfs" => "btrfs-progs",
        "losetup" => "mount",
        "fio" => "fio",
        "mdadm" => "mdadm",
        _ => return None,
    })
}

fn process(command: &TimedCommand) -> std::process::Command {
    let mut process = std::process::Command::new(&command.program);
    process
        .args(&command.args)
        .env_clear()
        .env("PATH", &command.search_path)
        // Messages are matched and shown, so they are always in one language.
        .env("LC_ALL", "C")
        // Otherwise mkfs.btrfs fills libblkid's cache file.
        .env("BLKID_FILE", "/dev/null")
        // A directory outside of all volumes, so that the program keeps none of them busy.
        .current_dir("/")
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    if command.after_us == AfterUs::Ends {
        ioctl::end_with_parent(&mut process);
    }
    process
}

#[cfg(test)]
mod tests;
