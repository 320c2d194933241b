//! The command line as a process, whatever becomes of its output: a reader that goes away ends it quietly, a disk that is
//! full is a sentence and a status, and no panic reaches a user. Walks clap's own tree, so that a new subcommand is tried
//! by itself.
//!
//! Nothing is asked for that changes anything: each verb is a dry run where it has one, names things that are not there,
//! and knows neither an agent nor a cluster.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, PoisonError};

use clap::CommandFactory;
use localpool::cli::Cli;

/// They serve until they are stopped; what they print is a log, on standard error. `tests/loop_csi` has a driver that
/// cannot write it, `tests/loop_demo` the demo.
const RUN_ON: [&str; 5] = ["standalone", "node", "controller", "discovery", "demo"];
/// Of nothing: a volume's id where one is asked for, a disk's, a name.
const NOBODY: &str = "00000000-0000-4000-8000-000000000000";
/// 128 and the number of SIGPIPE: what a shell says of a program that it ended.
const ENDED_BY_SIGPIPE: i32 = 141;

/// A pipe must not be inherited by the child of another test before its reader is closed.
static SPAWN: Mutex<()> = Mutex::new(());

/// What an output leads to.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Sink {
    Kept,
    Closed,
    Full,
}

impl Sink {
    fn open(self) -> Stdio {
        match self {
            Self::Kept => Stdio::piped(),
            Self::Closed => std::io::pipe().unwrap().1.into(),
            Self::Full => File::options().write(true).open("/dev/full").unwrap().into(),
        }
    }
}

fn run(words: &[OsString], folder: &Path, out: Sink, err: Sink) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_localpool"));
    command.args(words).stdin(Stdio::null());
    for name in std::env::vars_os().map(|(name, _)| name) {
        if name.to_string_lossy().starts_with("LOCALPOOL_") || name.to_string_lossy().starts_with("KUBERNETES_") {
            command.env_remove(name);
        }
    }
    command.env("KUBECONFIG", folder.join("no-cluster")).env("HOME", folder);
    let child = {
        let _turn = SPAWN.lock().unwrap_or_else(PoisonError::into_inner);
        command.stdout(out.open()).stderr(err.open()).spawn().unwrap()
    };
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!said.contains("panicked"), "{words:?}, out {out:?}, err {err:?}: {said}");
    assert_eq!(output.status.signal(), None, "{words:?}, out {out:?}, err {err:?}: {said}");
    assert_ne!(output.status.code(), Some(101), "{words:?}, out {out:?}, err {err:?}: {said}");
    output
}

/// Every command and subcommand, by its words.
fn commands() -> Vec<(Vec<OsString>, clap::Command)> {
    let mut root = Cli::command();
    root.build();
    let mut found = Vec::new();
    let mut open = vec![(Vec::new(), root)];
    while let Some((words, command)) = open.pop() {
        for below in command.get_subcommands().filter(|below| below.get_name() != "help") {
            let words: Vec<OsString> = words.iter().cloned().chain([below.get_name().into()]).collect();
            open.push((words, below.clone()));
        }
        found.push((words, command));
    }
    found
}

/// Arguments with which a subcommand ends by itself and changes nothing.
fn arguments(command: &clap::Command, folder: &Path) -> Vec<OsString> {
    let mut words: Vec<OsString> = Vec::new();
    for arg in command.get_arguments() {
        let value: OsString = match arg.get_id().as_str() {
            "dry_run" => {
                words.push("--dry-run".into());
                continue;
            }
            "state_dir" => folder.join("state").into(),
            "file" => folder.join("sets.yaml").into(),
            _ if arg.is_required_set() => NOBODY.into(),
            _ => continue,
        };
        words.extend(arg.get_long().map(|long| format!("--{long}").into()));
        words.push(value);
    }
    words
}

/// Each with and without a reader, on a full disk, and with a standard error that cannot be written.
fn check(words: &[OsString], folder: &Path) {
    let well = run(words, folder, Sink::Kept, Sink::Kept);
    for err in [Sink::Closed, Sink::Full] {
        let unheard = run(words, folder, Sink::Kept, err);
        assert_eq!(unheard.status.code(), well.status.code(), "{words:?} with standard error {err:?}");
    }
    if well.stdout.is_empty() {
        return;
    }
    assert!(well.status.success(), "{words:?} prints and fails: {well:?}");
    let closed = run(words, folder, Sink::Closed, Sink::Kept);
    assert_eq!(closed.status.code(), Some(ENDED_BY_SIGPIPE), "{words:?}: {closed:?}");
    assert_eq!(String::from_utf8_lossy(&closed.stderr), "", "{words:?} is not quiet without a reader");
    let full = run(words, folder, Sink::Full, Sink::Kept);
    assert_eq!(full.status.code(), Some(1), "{words:?}: {full:?}");
    let said = String::from_utf8_lossy(&full.stderr);
    assert!(said.starts_with("localpool: ") && said.contains("No space left on device"), "{words:?}: {said}");
    assert_eq!(said.lines().count(), 1, "{words:?}: {said}");
}

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let set = "apiVersion: local.storage.openshift.io/v1alpha1\nkind: LocalVolumeSet\nmetadata: {name: none}\n\
               spec:\n  storageClassName: none\n  deviceInclusionSpec: {deviceTypes: [loop], paths: [/nothing]}\n";
    fs::write(folder.path().join("sets.yaml"), set).unwrap();
    folder
}

#[test]
fn every_subcommand_survives_a_reader_that_is_gone_and_a_full_disk() {
    let folder = folder();
    let mut printed = 0;
    for (words, command) in commands() {
        let runs_on = words.first().is_some_and(|first| RUN_ON.iter().any(|role| *first == *role));
        if command.has_subcommands() || runs_on {
            continue;
        }
        let all: Vec<OsString> = words.iter().cloned().chain(arguments(&command, folder.path())).collect();
        printed += usize::from(!run(&all, folder.path(), Sink::Kept, Sink::Kept).stdout.is_empty());
        check(&all, folder.path());
    }
    assert!(printed >= 3, "of all subcommands only {printed} printed anything: this test tries nothing");
    assert!(!folder.path().join("state").exists(), "a state directory was made");
}

#[test]
fn every_help_survives_a_reader_that_is_gone_and_a_full_disk() {
    let folder = folder();
    check(&["--version".into()], folder.path());
    for (words, _) in commands() {
        let with = |option: &str| words.iter().cloned().chain([option.into()]).collect::<Vec<OsString>>();
        check(&with("--help"), folder.path());
        check(&with("--no-such-option"), folder.path());
    }
}

#[test]
fn every_subcommand_that_is_left_out_is_there() {
    let all = commands();
    for role in RUN_ON {
        assert!(all.iter().any(|(words, _)| *words == [OsString::from(role)]), "there is no {role} any more");
    }
}
