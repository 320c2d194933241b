//! That no server of these tests outlives their process, and that those that are shared are started once.
//!
//! The process that ends is this program once more, with this one test.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Write as _, stdin};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use localpool_testing::{Running, eventually, found};

use crate::server::{self, FOLDER, Server};

/// The test process: what it shall do when it is told to.
const END: &str = "LOCALPOOL_TEST_END";
const ALL: Duration = Duration::from_secs(120);
/// An API server without its etcd ends by itself later.
const GONE: Duration = Duration::from_secs(60);

#[tokio::test]
async fn servers_that_tests_share_are_started_once_and_not_again_when_nobody_uses_them_for_a_moment() {
    let url = async || server::shared().await.map(|cluster| cluster.server.url());
    let Some(first) = url().await else { return };
    assert_eq!(url().await, Some(first));
}

#[test]
fn nothing_of_a_server_stays_when_the_process_of_the_tests_ends_panics_or_is_killed() {
    let Some(program) = server::program() else { return };
    if let Some(end) = std::env::var_os(END) {
        return play(&program, end.to_str().expect("ours"));
    }
    for end in ["return", "panic", "kill", "kill at once"] {
        let mut tests = Tests::begin(end, None);
        let folder = tests.folder();
        if end != "kill at once" {
            let has_all = || processes_in(&folder).len() == 3;
            assert!(eventually(ALL, has_all), "etcd, the API server, and what removes their folder");
        }
        tests.end();
        let is_gone = || processes_in(&folder).is_empty() && !folder.exists();
        assert!(eventually(GONE, is_gone), "{end}: {} {:?}", folder.display(), processes_in(&folder));
    }
}

#[test]
fn a_folder_that_cannot_be_removed_is_not_tried_for_ever() {
    if server::program().is_none() {
        return;
    }
    let instead = tempfile::tempdir().expect("a folder");
    std::os::unix::fs::symlink("/bin/false", instead.path().join("rm")).expect("a link");
    let mut tests = Tests::begin("kill", Some(instead.path()));
    let folder = tests.folder();
    assert!(eventually(ALL, || processes_in(&folder).len() == 3));
    tests.end();
    let has_ended = eventually(ALL, || processes_in(&folder).is_empty());
    for process in processes_in(&folder) {
        let _ = Command::new("kill").arg("-9").arg(process.to_string()).status();
    }
    assert!(has_ended && folder.exists());
}

/// What this test does as the process that ends: its server is one that nobody drops.
fn play(program: &Path, end: &str) {
    static LEFT: OnceLock<Server> = OnceLock::new();
    LEFT.get_or_init(|| Server::start(program));
    let mut line = String::new();
    stdin().read_line(&mut line).expect("a pipe");
    assert_eq!(end, "return", "it was told to fail");
}

struct Tests {
    process: Running,
    /// Where no other test removes what this one leaves behind.
    base: tempfile::TempDir,
    end: &'static str,
}

impl Tests {
    /// With other programs than those of this machine, if they are in a folder.
    fn begin(end: &'static str, instead: Option<&Path>) -> Self {
        let name = "servers::nothing_of_a_server_stays_when_the_process_of_the_tests_ends_panics_or_is_killed";
        let mut command = Command::new(std::env::current_exe().expect("it runs"));
        let base = tempfile::tempdir().expect("a folder");
        command.args(["--exact", name, "--nocapture"]).env(END, end).env("TMPDIR", base.path()).stdin(Stdio::piped());
        if let Some(instead) = instead {
            let path = std::env::var("PATH").expect("there is one");
            command.env("PATH", format!("{}:{path}", instead.display()));
        }
        let process: Child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("this program");
        Self { process: Running(process), base, end }
    }

    /// The folder of its server, as soon as there is one.
    fn folder(&self) -> PathBuf {
        let prefix = format!("{FOLDER}{}-", self.process.id());
        let look = || {
            let mut entries = fs::read_dir(self.base.path()).expect("readable").flatten();
            let ours = entries.find(|entry| entry.file_name().to_string_lossy().starts_with(&prefix));
            ours.map(|entry| entry.path()).ok_or("no folder")
        };
        found(ALL, Duration::from_millis(1), look).expect("it makes one")
    }

    fn end(&mut self) {
        let is_killed = self.end.starts_with("kill");
        if is_killed {
            self.process.kill().expect("it runs");
        } else {
            self.process.stdin.take().expect("a pipe").write_all(b"\n").expect("it reads");
        }
        let code = self.process.wait().expect("it ends").code();
        assert_eq!((code.is_none(), code == Some(0)), (is_killed, self.end == "return"), "{}: {code:?}", self.end);
    }
}

/// The processes that have this folder in their arguments.
fn processes_in(folder: &Path) -> BTreeSet<u32> {
    let folder = folder.to_str().expect("text").as_bytes();
    let has_it = |process: &u32| {
        let arguments = fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
        arguments.windows(folder.len()).any(|part| part == folder)
    };
    let all = fs::read_dir("/proc").expect("readable").flatten();
    all.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(has_it).collect()
}
