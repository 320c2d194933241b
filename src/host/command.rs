//! Runs external programs: the one place that starts a process.
//!
//! Takes in a program, its arguments, a time limit and perhaps a secret for its stdin; gives out its exit
//! code and the tail of what it wrote. It never waits longer than the limit, whatever the program does:
//! hang, flood its output, or leave a child behind that holds the pipes.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ChildStdin, ExitStatus, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use super::HostError;

/// Where programs are looked for: fixed, so that nobody's environment chooses what root runs.
const SEARCH_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// How much of each output stream is kept: the end, where the reason stands.
const TAIL: usize = 64 << 10;
/// How long a killed program may take to go. One that waits for a dead disk may never go, and is left behind.
const KILL_GRACE: Duration = Duration::from_secs(2);
/// How often a program that has just said something, and a silent one, are looked at.
const SHORTEST_PAUSE: Duration = Duration::from_micros(100);
const LONGEST_PAUSE: Duration = Duration::from_millis(20);
/// How much of the output an error shows.
const WORDS: usize = 2 << 10;

/// Held from the fork to the exec of every program. In between, the child has a copy of each descriptor of
/// ours, close-on-exec or not.
static STARTING: Mutex<()> = Mutex::new(());

/// Closes an exclusive descriptor such that nobody has a copy of it afterwards: else the kernel may go on to
/// call the device busy while another thread starts a program.
pub(super) fn close_for_good(file: File) {
    let _no_copies = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
    drop(file);
}

/// A program to run, with all that it gets.
#[derive(Debug)]
pub struct Command {
    program: String,
    args: Vec<OsString>,
    stdin: Input,
    limit: Duration,
    search_path: OsString,
}

/// What a program reads from its stdin. Never printed.
enum Input {
    Nothing,
    Secret(Vec<u8>),
}

/// A program that ended by itself. `stdout` and `stderr` are the last 64 KiB of each.
#[derive(Debug)]
pub struct Finished {
    program: String,
    status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
}

impl Command {
    pub fn new(program: &str, limit: Duration) -> Self {
        Self {
            program: program.to_owned(),
            args: Vec::new(),
            stdin: Input::Nothing,
            limit,
            search_path: SEARCH_PATH.into(),
        }
    }

    pub fn args<A: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.args.extend(args.into_iter().map(|arg| arg.as_ref().to_owned()));
        self
    }

    pub fn secret_stdin(mut self, secret: Vec<u8>) -> Self {
        self.stdin = Input::Secret(secret);
        self
    }

    /// Looks for the program elsewhere.
    pub fn search_path(mut self, path: &OsStr) -> Self {
        self.search_path = path.to_owned();
        self
    }

    /// Runs it; any exit code but 0 is an error.
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
        let failed = |what| {
            let object = self.program.clone();
            move |source| HostError::Io { what, object, source }
        };
        let until = Instant::now() + self.limit;
        let mut running = Running::start(&self)?;
        let status = match running.attend(until).map_err(failed("run"))? {
            Some(status) => status,
            None => {
                running.kill();
                return Err(HostError::Timeout { program: self.program, seconds: self.limit.as_secs() });
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
        let said = if self.stderr.trim().is_empty() { &self.stdout } else { &self.stderr };
        HostError::Command { program: self.program, status, stderr: last_words(said) }
    }
}

/// The end of an output, on one line, as an error message has it.
fn last_words(text: &str) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let mut words = lines.join("; ");
    if words.len() > WORDS {
        let cut = (words.len() - WORDS..).find(|at| words.is_char_boundary(*at)).unwrap_or(words.len());
        words = format!("…{}", &words[cut..]);
    }
    if words.is_empty() { "it said nothing".to_owned() } else { words }
}

/// A started program with our ends of its pipes.
struct Running {
    child: Child,
    stdin: Option<(ChildStdin, Vec<u8>)>,
    stdout: Stream,
    stderr: Stream,
}

impl Running {
    fn start(command: &Command) -> Result<Self, HostError> {
        let mut child = {
            let _copies = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
            process(command).spawn().map_err(|source| start_error(&command.program, source))?
        };
        let stdout = Stream::new(child.stdout.take());
        let stderr = Stream::new(child.stderr.take());
        let stdin = match (&command.stdin, child.stdin.take()) {
            (Input::Secret(secret), Some(pipe)) => Some((pipe, secret.clone())),
            _ => None,
        };
        let running = Self { child, stdin, stdout, stderr };
        if let Err(source) = running.make_nonblocking() {
            running.kill();
            return Err(HostError::Io { what: "talk to", object: command.program.clone(), source });
        }
        Ok(running)
    }

    fn make_nonblocking(&self) -> io::Result<()> {
        let pipes = [
            self.stdin.as_ref().map(|(pipe, _)| pipe.as_fd()),
            self.stdout.pipe.as_ref().map(|pipe| pipe.as_fd()),
            self.stderr.pipe.as_ref().map(|pipe| pipe.as_fd()),
        ];
        for pipe in pipes.into_iter().flatten() {
            // Nothing else is set on a new pipe of ours.
            fcntl(pipe, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        }
        Ok(())
    }

    /// Feeds and drains the pipes until the program itself has ended, or the time is over (`None`). Pipes
    /// that a grandchild keeps open are not waited for.
    fn attend(&mut self, until: Instant) -> io::Result<Option<ExitStatus>> {
        let mut pause = SHORTEST_PAUSE;
        loop {
            // Asked before the last drain: all that the program wrote is in the pipes by then.
            let ended = self.child.try_wait()?;
            let moved = self.move_data()?;
            if ended.is_some() {
                return Ok(ended);
            }
            if Instant::now() >= until {
                return Ok(None);
            }
            pause = if moved { SHORTEST_PAUSE } else { (pause * 2).min(LONGEST_PAUSE) };
            self.wait_for_data(pause)?;
        }
    }

    fn move_data(&mut self) -> io::Result<bool> {
        let fed = feed(&mut self.stdin)?;
        let out = self.stdout.drain()?;
        let err = self.stderr.drain()?;
        Ok(fed || out || err)
    }

    /// Sleeps until a pipe is ready, at most `pause`.
    fn wait_for_data(&self, pause: Duration) -> io::Result<()> {
        let mut ready: Vec<PollFd<'_>> = [&self.stdout, &self.stderr]
            .into_iter()
            .filter_map(|stream| stream.pipe.as_ref())
            .map(|pipe| PollFd::new(pipe.as_fd(), PollFlags::POLLIN))
            .collect();
        ready.extend(self.stdin.as_ref().map(|(pipe, _)| PollFd::new(pipe.as_fd(), PollFlags::POLLOUT)));
        let millis = u16::try_from(pause.as_millis()).unwrap_or(u16::MAX).max(1);
        if ready.is_empty() {
            // Both outputs are closed: the program is about to end, or has sent itself to the background.
            thread::sleep(pause);
            return Ok(());
        }
        match poll(&mut ready, PollTimeout::from(millis)) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Kills the whole group. What cannot be killed (it waits for a dead disk) is left to a thread that waits.
    fn kill(mut self) {
        if let Ok(pid) = i32::try_from(self.child.id()) {
            // The child is not reaped yet, so its number cannot be another group's. ESRCH: it has just gone.
            let _ = killpg(Pid::from_raw(pid), Signal::SIGKILL);
        }
        let until = Instant::now() + KILL_GRACE;
        while Instant::now() < until {
            match self.child.try_wait() {
                Ok(None) => thread::sleep(Duration::from_millis(2)),
                Ok(Some(_)) | Err(_) => return,
            }
        }
        tracing::warn!(pid = self.child.id(), "a killed command does not go; its disk may be dead");
        thread::spawn(move || self.child.wait());
    }
}

/// One output pipe and the tail of what came out of it.
struct Stream {
    pipe: Option<Box<dyn Pipe>>,
    tail: Vec<u8>,
}

trait Pipe: Read + AsFd {}
impl<P: Read + AsFd> Pipe for P {}

impl Stream {
    fn new(pipe: Option<impl Read + AsFd + 'static>) -> Self {
        Self { pipe: pipe.map(|pipe| Box::new(pipe) as Box<dyn Pipe>), tail: Vec::new() }
    }

    /// Takes what is there now, but at most one tail's worth: a flood must not keep us from the clock.
    fn drain(&mut self) -> io::Result<bool> {
        let mut piece = [0; 8 << 10];
        let mut taken = 0;
        let mut closed = false;
        while let Some(pipe) = &mut self.pipe
            && taken < TAIL
        {
            match pipe.read(&mut piece) {
                Ok(0) => {
                    // The program is about to end: worth a look at once.
                    self.pipe = None;
                    closed = true;
                }
                Ok(count) => {
                    self.tail.extend_from_slice(&piece[..count]);
                    taken += count;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            if self.tail.len() > 2 * TAIL {
                self.tail.drain(..self.tail.len() - TAIL);
            }
        }
        Ok(taken > 0 || closed)
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.tail[self.tail.len().saturating_sub(TAIL)..]).into_owned()
    }
}

/// Writes what the pipe takes now, and closes it after the last byte.
fn feed(stdin: &mut Option<(ChildStdin, Vec<u8>)>) -> io::Result<bool> {
    let Some((pipe, rest)) = stdin else { return Ok(false) };
    let wrote = match pipe.write(rest) {
        Ok(count) => {
            rest.drain(..count);
            count > 0
        }
        Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => false,
        // The program does not want the rest; whether that is an error its exit code says.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
            rest.clear();
            false
        }
        Err(error) => return Err(error),
    };
    if rest.is_empty() {
        *stdin = None;
    }
    Ok(wrote)
}

fn process(command: &Command) -> std::process::Command {
    let mut process = std::process::Command::new(&command.program);
    process
        .args(&command.args)
        .env_clear()
        .env("PATH", &command.search_path)
        // Messages are matched and shown: always in the one language.
        .env("LC_ALL", "C")
        // mkfs.btrfs fills libblkid's cache file otherwise.
        .env("BLKID_FILE", "/dev/null")
        // A directory that is no volume's, so that the program keeps none busy.
        .current_dir("/")
        .process_group(0)
        .stdin(match command.stdin {
            Input::Nothing => Stdio::null(),
            Input::Secret(_) => Stdio::piped(),
        })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    process
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
        "cryptsetup" => "cryptsetup-bin",
        "mdadm" => "mdadm",
        "smartctl" => "smartmontools",
        _ => return None,
    })
}

impl fmt::Debug for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nothing => "nothing",
            Self::Secret(_) => "secret",
        })
    }
}

#[cfg(test)]
mod tests;
