//! The real binary as a process of a test: started with its own socket and state directory, killed at the end.

use std::collections::HashSet;
use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use localpool_testing::loops::attached;
use localpool_testing::{eventually, set_of_images, text};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::client::Client;
use crate::lab::Lab;

pub const BINARY: &str = env!("CARGO_BIN_EXE_localpool");
/// The limit for everything that has to happen by itself; if it takes longer, something has gone wrong.
pub const SOON: Duration = Duration::from_secs(60);

/// No call of a test may take longer.
const LIMIT: Duration = Duration::from_secs(60);

/// The configuration that a driver starts with.
#[derive(Clone)]
pub struct Start {
    pub socket: PathBuf,
    pub state: PathBuf,
    pub sets: PathBuf,
    pub node: String,
    pub min_age: String,
    /// The wall clock of its process: a file with its offset, as libfaketime reads it.
    pub clock: Option<PathBuf>,
    log: PathBuf,
    lab: PathBuf,
}

pub struct Driver {
    pub start: Start,
    child: Child,
}

impl Start {
    /// Writes the sets to a file; starts nothing.
    pub fn new(lab: &Lab, sets: &str) -> Self {
        Self::named(lab, "driver", sets)
    }

    /// For a test with more than one driver.
    pub fn named(lab: &Lab, name: &str, sets: &str) -> Self {
        let file = lab.path(&format!("{name}.yaml"));
        fs::write(&file, sets).unwrap();
        Self {
            socket: lab.path(&format!("{name}.sock")),
            state: lab.path(&format!("{name}.state")),
            sets: file,
            node: lab.node(),
            min_age: "0s".to_owned(),
            clock: None,
            log: lab.path(&format!("{name}.log")),
            lab: lab.dir.clone(),
        }
    }

    pub fn spawn(&self) -> Driver {
        let log = File::options().create(true).append(true).open(&self.log).unwrap();
        let mut command = Command::new(BINARY);
        if let Some(clock) = &self.clock {
            command.env("LD_PRELOAD", faketime()).env("FAKETIME_TIMESTAMP_FILE", clock);
            command.envs([("FAKETIME_NO_CACHE", "1"), ("FAKETIME_DONT_FAKE_MONOTONIC", "1")]);
            // A line with a date for each call.
            command.env("LOCALPOOL_LOG", "info,h2=debug");
        }
        let child = command
            .args(["standalone", "--socket", text(&self.socket), "--state-dir", text(&self.state)])
            .args(["--sets", text(&self.sets), "--node-name", &self.node, "--device-min-age", &self.min_age])
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        Driver { start: self.clone(), child }
    }

    /// Starts it, and waits until it answers that it is ready, and has looked at each disk of the lab. Drivers of other
    /// tests hold a blank disk exclusively while they look at it; then the first scan reports that, and a later one
    /// takes the disk.
    pub async fn ready(&self) -> (Driver, Client) {
        let (driver, client) = self.ready_at_once().await;
        let mut held = Vec::new();
        let settled = eventually(SOON, || {
            let list = driver.cli_ok(&["devices", "-o", "json"]);
            let verdicts = attached(&self.lab).into_iter().map(|disk| verdict_in(&list, &disk.node));
            held = verdicts.filter(|(_, why)| why.contains("exclusively") || why.contains("not claimed")).collect();
            held.is_empty()
        });
        assert!(settled, "disks of the lab are held by others: {held:?}");
        (driver, client)
    }

    pub async fn ready_at_once(&self) -> (Driver, Client) {
        let mut driver = self.spawn();
        let client = driver.client().await;
        (driver, client)
    }

    /// The same, with its log in another file.
    pub fn logging_to(self, log: &str) -> Self {
        Self { log: PathBuf::from(log), ..self }
    }

    pub fn log(&self) -> String {
        // Reading a device would never end.
        if !self.log.is_file() {
            return format!("it logs to {}", self.log.display());
        }
        fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Driver {
    pub async fn client(&mut self) -> Client {
        let until = Instant::now() + SOON;
        loop {
            if let Ok(mut client) = Client::connect(&self.start.socket, LIMIT).await
                && client.is_ready().await
            {
                return client;
            }
            let ended = self.child.try_wait().unwrap();
            assert!(ended.is_none() && Instant::now() < until, "{ended:?}: {}", self.start.log());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    pub fn pid(&self) -> Pid {
        localpool_testing::pid(&self.child)
    }

    /// SIGKILL: no handler runs, nothing is tidied up.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        let status = self.child.wait().unwrap();
        assert_eq!(status.signal(), Some(9), "it ended before it was killed: {}", self.start.log());
    }

    /// SIGKILL of a driver that cannot end because a disk hangs under it. Dropping the result waits for its end.
    pub fn kill_in_vain(mut self) -> Self {
        self.child.kill().unwrap();
        // Without this, a client that connects before the next driver runs would find this one's socket, and wait.
        fs::remove_file(&self.start.socket).unwrap();
        self
    }

    pub fn terminate(&self) {
        kill(self.pid(), Signal::SIGTERM).unwrap();
    }

    /// SIGTERM; it must end in good order.
    pub fn stop(mut self) {
        self.terminate();
        let status = self.end();
        assert_eq!(status.code(), Some(0), "{}", self.start.log());
    }

    /// Waits until the process has ended by itself.
    pub fn end(&mut self) -> ExitStatus {
        let mut status = None;
        let ended = eventually(SOON, || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        assert!(ended, "it runs on: {}", self.start.log());
        status.unwrap()
    }

    /// Whether one of its threads waits for a disk, uninterruptibly.
    pub fn waits_in_the_kernel(&self) -> bool {
        let Ok(tasks) = fs::read_dir(format!("/proc/{}/task", self.pid())) else { return false };
        let status = |task: fs::DirEntry| fs::read_to_string(task.path().join("status")).unwrap_or_default();
        tasks.flatten().any(|task| status(task).contains("State:\tD"))
    }

    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Stops every thread of the driver until `resume`: meanwhile none of its writes is on the way to a disk.
    pub fn hold(&self) -> Held {
        kill(self.pid(), Signal::SIGSTOP).unwrap();
        let held = Held(self.pid());
        let stands = || {
            let tasks = fs::read_dir(format!("/proc/{}/task", self.pid())).unwrap();
            let status = |task: fs::DirEntry| fs::read_to_string(task.path().join("status")).unwrap_or_default();
            tasks.flatten().all(|task| status(task).contains("State:\tT"))
        };
        assert!(eventually(SOON, stands), "it does not stop: {}", self.start.log());
        held
    }

    /// A verb of the command line, on this driver's state directory.
    pub fn cli(&self, arguments: &[&str]) -> Output {
        cli(&self.start.state, arguments)
    }

    /// The output of a verb that must succeed.
    pub fn cli_ok(&self, arguments: &[&str]) -> String {
        let out = self.cli(arguments);
        assert!(out.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8(out.stdout).unwrap()
    }

    /// The message of a verb that must be refused.
    pub fn cli_refused(&self, arguments: &[&str]) -> String {
        let out = self.cli(arguments);
        assert!(!out.status.success(), "{arguments:?} was done: {}", String::from_utf8_lossy(&out.stdout));
        String::from_utf8(out.stderr).unwrap()
    }

    /// Verdict and reason of a device, from the running agent.
    pub fn verdict(&self, node: &Path) -> (String, String) {
        let list = self.cli_ok(&["devices", "-o", "json"]);
        verdict_in(&list, node)
    }

    /// Waits until a device has this verdict, and these words in its reason.
    pub fn await_verdict(&self, node: &Path, verdict: &str, message: &str) -> String {
        let mut last = (String::new(), String::new());
        let came = eventually(SOON, || {
            // The agent may not have seen yet that it is there.
            let found = found_in(&self.cli_ok(&["devices", "-o", "json"]), node);
            last = found.unwrap_or_default();
            last.0 == verdict && last.1.contains(message)
        });
        assert!(came, "{} is {last:?}, not {verdict} with {message:?}: {}", node.display(), self.start.log());
        last.1
    }
}

/// A stopped process; it continues when this is dropped.
pub struct Held(Pid);

impl Held {
    /// A process that was stopped already.
    pub fn stopped(process: Pid) -> Self {
        Self(process)
    }

    pub fn resume(self) {}

    pub fn is_gone(&self) -> bool {
        // A zombie has nothing open any more.
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.0)).unwrap_or_default();
        stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with('Z'))
    }

    /// Ends the tool by a signal, as the OOM killer would.
    pub fn kill(self) {
        kill(self.0, Signal::SIGKILL).unwrap();
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let _ = kill(self.0, Signal::SIGCONT);
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            let log = self.start.log();
            // If it repeats itself, apart from the time, the first line is enough: what came before says more.
            let mut output = HashSet::new();
            let news = log.lines().filter(|line| output.insert(line.split_once(' ').map_or(*line, |(_, rest)| rest)));
            let news: Vec<&str> = news.collect();
            let tail: Vec<&str> = news.into_iter().rev().take(30).collect();
            eprintln!("the driver's last lines:\n  {}", tail.into_iter().rev().collect::<Vec<_>>().join("\n  "));
        }
    }
}

/// Debian's libfaketime, which is in a folder of the machine's architecture.
fn faketime() -> PathBuf {
    let folders = fs::read_dir("/usr/lib").unwrap().flatten().map(|entry| entry.path());
    let mut found = folders.map(|folder| folder.join("faketime/libfaketime.so.1")).filter(|library| library.exists());
    found.next().expect("libfaketime is installed: scripts/deps test")
}

pub fn cli(state: &Path, arguments: &[&str]) -> Output {
    Command::new(BINARY).args(arguments).args(["--state-dir", text(state)]).output().unwrap()
}

pub fn verdict_in(list: &str, node: &Path) -> (String, String) {
    found_in(list, node).unwrap_or_else(|| panic!("{} is not listed: {list}", node.display()))
}

/// `None`: it is not listed.
fn found_in(list: &str, node: &Path) -> Option<(String, String)> {
    let list: Value = serde_json::from_str(list).unwrap();
    let device = list["devices"].as_array().unwrap().iter().find(|device| device["path"] == text(node))?;
    let word = |key: &str| device[key].as_str().unwrap().to_owned();
    Some((word("verdict"), word("reason")))
}

/// A LocalVolumeSet of that name and class over the images of a lab that the glob matches.
pub fn set(lab: &Lab, name: &str, images: &str, layout: &str) -> String {
    set_of_images(name, name, layout, &lab.path(images))
}

pub const WHOLE: &str = "layout: Whole";
pub const CARVED: &str = "partitioningSpec: {mode: Dynamic}";
pub const BARE: &str = "layout: RawDevice";
