//! The command line as a process, whatever happens to its output: a reader that goes away ends it quietly, a full disk
//! gives a sentence and a status, and no panic reaches a user. Walks clap's own tree, so that a new subcommand is tried
//! automatically: with nobody to ask, and with an agent and an API server that answer.
//!
//! No request changes anything but a folder of the test: each verb runs dry if it can, and names things that do not
//! exist.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod answers;
mod clusters;
mod roles;
mod shells;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use clap::CommandFactory;
use localpool::cli::{Cli, Plugin};
use localpool_testing::pid;
use nix::sys::signal::{Signal, kill};

use answers::Answers;

/// They serve until they are stopped, and print only a log, on standard error: `roles` has them.
const ROLES: [&str; 4] = ["standalone", "node", "controller", "discovery"];
/// As root it would show everything, which tests/loop_demo covers; here it finds no place to begin.
const DEMO: &str = "demo";
/// The id of nothing: for a volume, a disk or a name.
const NOBODY: &str = "00000000-0000-4000-8000-000000000000";
/// The id of a volume that no PersistentVolume names, on a node that exists.
const FOUND: &str = "00000000-0000-5000-8000-00000000000f";
/// A node that has a volume, and is gone.
const GONE: &str = "gone";
/// 128 plus the number of SIGPIPE: a shell's status for a program that the signal ended.
const ENDED_BY_SIGPIPE: i32 = 141;
/// Far more than any of them takes.
const AT_MOST: Duration = Duration::from_secs(120);
/// Of one comparison: far more than disks come and go.
const TRIES: usize = 20;

/// A pipe must not be inherited by the child of another test before its reader is closed.
static SPAWN: Mutex<()> = Mutex::new(());

/// Where an output goes.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Sink {
    Kept,
    Closed,
    Full,
}

use Sink::{Closed, Full, Kept};

impl Sink {
    fn open(self) -> Stdio {
        match self {
            Self::Kept => Stdio::piped(),
            Self::Closed => std::io::pipe().unwrap().1.into(),
            Self::Full => File::options().write(true).open("/dev/full").unwrap().into(),
        }
    }
}

/// What a program knows of commands.
type Definition = fn() -> clap::Command;

/// The names of the program, each with its own commands.
const PROGRAMS: [(&str, Definition); 2] = [("localpool", Cli::command), ("kubectl-localpool", Plugin::command)];

/// What a command finds around it.
#[derive(Clone)]
struct World {
    /// The name by which the program is called.
    program: &'static str,
    folder: PathBuf,
    state: PathBuf,
    kubeconfig: PathBuf,
}

impl World {
    /// No agent, no state directory and no cluster.
    fn without_anybody(folder: &Path) -> Self {
        let [state, kubeconfig] = ["state", "no-cluster"].map(|name| folder.join(name));
        Self { program: "localpool", folder: folder.to_owned(), state, kubeconfig }
    }

    fn with(folder: &Path, answers: &Answers) -> Self {
        let (state, kubeconfig) = (answers.state.clone(), answers.kubeconfig.clone());
        Self { program: "localpool", folder: folder.to_owned(), state, kubeconfig }
    }

    /// The same for the program under another name.
    fn called(&self, program: &'static str) -> Self {
        Self { program, ..self.clone() }
    }

    fn spawn(&self, arguments: &[OsString], out: Sink, err: Sink) -> Child {
        let mut command = Command::new(env!("CARGO_BIN_EXE_localpool"));
        command.arg0(self.program);
        command.args(arguments).stdin(Stdio::null());
        for name in std::env::vars_os().map(|(name, _)| name) {
            if name.to_string_lossy().starts_with("LOCALPOOL_") || name.to_string_lossy().starts_with("KUBERNETES_") {
                command.env_remove(name);
            }
        }
        command.env("KUBECONFIG", &self.kubeconfig).env("HOME", &self.folder);
        if arguments.first().is_some_and(|word| word == DEMO) {
            command.env("TMPDIR", self.folder.join("no-room"));
        }
        let _turn = SPAWN.lock().unwrap_or_else(PoisonError::into_inner);
        command.stdout(out.open()).stderr(err.open()).spawn().unwrap()
    }

    fn run(&self, arguments: &[OsString], out: Sink, err: Sink) -> Output {
        ended(self.spawn(arguments, out, err), &format!("{arguments:?}, out {out:?}, err {err:?}"))
    }

    /// With and without a reader, and on a full disk. Returns its output when both streams are read.
    fn check(&self, arguments: &[OsString]) -> Output {
        let (well, unheard, [closed, full]) = self.runs_of_one_machine(arguments);
        assert!(
            well.status.success() == well.stderr.is_empty(),
            "{arguments:?} says no success or no failure: {well:?}"
        );
        for (err, unheard) in unheard {
            assert_eq!(unheard.status.code(), well.status.code(), "{arguments:?} with standard error {err:?}");
            assert_eq!(unheard.stdout, well.stdout, "{arguments:?} with standard error {err:?}");
        }
        if well.stdout.is_empty() {
            // It had no output to lose.
            for (out, unread) in [(Closed, closed), (Full, full)] {
                assert_eq!(unread.status.code(), well.status.code(), "{arguments:?} with standard output {out:?}");
                assert_eq!(unread.stderr, well.stderr, "{arguments:?} with standard output {out:?}");
            }
            return well;
        }
        assert!(well.status.success(), "{arguments:?} prints and fails: {well:?}");
        assert_eq!(closed.status.code(), Some(ENDED_BY_SIGPIPE), "{arguments:?}: {closed:?}");
        assert_eq!(String::from_utf8_lossy(&closed.stderr), "", "{arguments:?} is not quiet without a reader");
        assert_eq!(full.status.code(), Some(1), "{arguments:?}: {full:?}");
        let output = String::from_utf8_lossy(&full.stderr);
        assert!(
            output.starts_with("localpool: ") && output.contains("No space left on device"),
            "{arguments:?}: {output}"
        );
        assert_eq!(output.lines().count(), 1, "{arguments:?}: {output}");
        assert_eq!(self.run(arguments, Full, Full).status.code(), Some(1), "{arguments:?} with nowhere to say it");
        well
    }

    /// Runs of a command with both streams read, with an unread standard error, and with an unread standard output,
    /// during which the machine stayed as it was: others attach and detach disks on it, and `devices` shows them.
    fn runs_of_one_machine(&self, arguments: &[OsString]) -> (Output, [(Sink, Output); 2], [Output; 2]) {
        for _ in 0..TRIES {
            let well = self.run(arguments, Kept, Kept);
            let unheard = [Closed, Full].map(|err| (err, self.run(arguments, Kept, err)));
            let unread = [Closed, Full].map(|out| self.run(arguments, out, Kept));
            let again = self.run(arguments, Kept, Kept);
            if (again.status, &again.stdout, &again.stderr) == (well.status, &well.stdout, &well.stderr) {
                return (well, unheard, unread);
            }
        }
        panic!("{arguments:?} says something else each time, {TRIES} times");
    }

    /// The calls of a subcommand that ends by itself: with the arguments that it needs, and with each optional one.
    fn forms(&self, arguments: &[OsString], command: &clap::Command) -> Vec<Vec<OsString>> {
        let mut forms = vec![arguments.to_vec()];
        let (always, at_times): (Vec<_>, Vec<_>) =
            command.get_arguments().partition(|arg| arg.is_required_set() || arg.get_id() == "dry_run");
        let state = command.get_arguments().filter(|arg| arg.get_id() == "state_dir");
        for arg in always.into_iter().chain(state) {
            forms = forms.into_iter().flat_map(|form| self.with_each(&form, arg)).collect();
        }
        let other = |arg: &&&clap::Arg| !["state_dir", "help", "version"].contains(&arg.get_id().as_str());
        let beside: Vec<_> = at_times.iter().filter(other).flat_map(|arg| self.with_each(&forms[0], arg)).collect();
        forms.into_iter().chain(beside).collect()
    }

    /// A form with one more argument, with each of its values: those that are listed, or one that fits and one that
    /// does not.
    fn with_each(&self, form: &[OsString], arg: &clap::Arg) -> Vec<Vec<OsString>> {
        let mut option: Vec<OsString> = form.to_vec();
        option.extend(arg.get_long().map(|long| format!("--{long}").into()));
        if !arg.get_action().takes_values() {
            return vec![option];
        }
        let paths = |names: &[&str]| names.iter().map(|name| self.folder.join(name).into()).collect::<Vec<OsString>>();
        let values: Vec<OsString> = match arg.get_id().as_str() {
            "state_dir" => vec![self.state.clone().into()],
            "file" => paths(&["sets.yaml", "no-sets.yaml"]),
            "archive" => paths(&["no/bundle.tar.gz"]).into_iter().chain(["-".into()]).collect::<Vec<OsString>>(),
            "install_in" => paths(&["rules", "sets.yaml"]),
            "volume" => [NOBODY, FOUND].map(OsString::from).to_vec(),
            "node_disk" => vec![format!("somebody/{NOBODY}").into(), "somebody".into()],
            "node" => [GONE, "somebody"].map(OsString::from).to_vec(),
            "claim" => ["default/data", "data"].map(OsString::from).to_vec(),
            "output" => ["table", "wide", "json", "yaml", "xml"].map(OsString::from).to_vec(),
            _ if arg.get_possible_values().is_empty() => vec![NOBODY.into()],
            _ => arg.get_possible_values().iter().map(|value| value.get_name().into()).collect(),
        };
        values.into_iter().map(|value| option.iter().cloned().chain([value]).collect()).collect()
    }
}

/// Its output, once it has ended by itself and without a panic. A process that does not end is a failure, not a wait.
fn ended(child: Child, what: &str) -> Output {
    let pid = pid(&child);
    let (end, ends) = channel::<()>();
    let watch = thread::spawn(move || {
        if ends.recv_timeout(AT_MOST) == Err(RecvTimeoutError::Timeout) {
            kill(pid, Signal::SIGKILL).unwrap();
        }
    });
    let output = child.wait_with_output().unwrap();
    drop(end);
    watch.join().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!text.contains("panicked"), "{what}: {text}");
    assert_eq!(output.status.signal(), None, "{what}: {text}");
    assert_ne!(output.status.code(), Some(101), "{what}: {text}");
    output
}

/// Every command and subcommand, by its words.
fn commands(program: fn() -> clap::Command) -> Vec<(Vec<OsString>, clap::Command)> {
    let mut root = program();
    root.build();
    let mut found = Vec::new();
    let mut open = vec![(Vec::new(), root)];
    while let Some((arguments, command)) = open.pop() {
        for below in command.get_subcommands().filter(|below| below.get_name() != "help") {
            let arguments: Vec<OsString> = arguments.iter().cloned().chain([below.get_name().into()]).collect();
            open.push((arguments, below.clone()));
        }
        found.push((arguments, command));
    }
    found
}

/// Those that do something, without the roles.
fn verbs(program: fn() -> clap::Command) -> Vec<(Vec<OsString>, clap::Command)> {
    let is_role = |arguments: &[OsString]| ROLES.iter().any(|role| arguments[0] == *role);
    commands(program)
        .into_iter()
        .filter(|(arguments, command)| !command.has_subcommands() && !is_role(arguments))
        .collect()
}

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let set = "apiVersion: local.storage.openshift.io/v1alpha1\nkind: LocalVolumeSet\nmetadata: {name: none}\n\
               spec:\n  storageClassName: none\n  deviceInclusionSpec: {deviceTypes: [loop], paths: [/nothing]}\n";
    fs::write(folder.path().join("sets.yaml"), set).unwrap();
    folder
}

fn arguments(text: &str) -> Vec<OsString> {
    text.split(' ').map(OsString::from).collect()
}

#[test]
fn every_subcommand_survives_a_reader_that_is_gone_and_a_full_disk() {
    let folder = folder();
    let answers = Answers::begin(folder.path());
    let worlds = [World::without_anybody(folder.path()), World::with(folder.path(), &answers)];
    let all = PROGRAMS.map(|(name, program)| (worlds.each_ref().map(|world| world.called(name)), verbs(program)));
    for (worlds, (arguments, command)) in
        all.iter().flat_map(|(worlds, verbs)| verbs.iter().map(move |verb| (worlds, verb)))
    {
        let forms =
            worlds.iter().flat_map(|world| world.forms(arguments, command).into_iter().map(move |form| (world, form)));
        let printed = forms.filter(|(world, form)| !world.check(form).stdout.is_empty()).count();
        assert!(printed > 0 || arguments[0] == DEMO, "{arguments:?} has printed nothing, and so is not tried");
    }
    assert!(!worlds[0].state.exists(), "a state directory was made");
}

#[test]
fn every_help_and_every_refusal_survives_a_reader_that_is_gone_and_a_full_disk() {
    let folder = folder();
    let world = World::without_anybody(folder.path());
    assert!(world.check(&arguments("--version")).status.success());
    for (name, program) in PROGRAMS {
        every_help_and_every_refusal(&world.called(name), &commands(program));
    }
}

fn every_help_and_every_refusal(world: &World, commands: &[(Vec<OsString>, clap::Command)]) {
    for (command, _) in commands {
        let with = |before: &[&str], after: &[&str]| {
            let [before, after] = [before, after].map(|arguments| arguments.iter().map(OsString::from));
            before.chain(command.iter().cloned()).chain(after).collect::<Vec<OsString>>()
        };
        for help in [with(&[], &["--help"]), with(&["help"], &[])] {
            let output = world.check(&help);
            assert!(output.status.success() && !output.stdout.is_empty(), "{help:?}: {output:?}");
        }
        let refused = world.check(&with(&[], &["--no-such-option"]));
        assert_eq!(refused.status.code(), Some(2), "{command:?}: {refused:?}");
    }
    for (command, tree) in commands {
        // Without what it needs: a subcommand, or an argument.
        if tree.has_subcommands() || tree.get_arguments().any(clap::Arg::is_required_set) {
            let refused = world.check(command);
            assert_eq!(refused.status.code(), Some(2), "{command:?}: {refused:?}");
        }
    }
}

/// All that is below a folder: what is in it, and when it was written.
fn all_below(folder: &Path) -> BTreeMap<PathBuf, (Vec<u8>, i64, i64)> {
    let mut found = BTreeMap::new();
    for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        let about = fs::symlink_metadata(&path).unwrap();
        if about.is_dir() {
            found.extend(all_below(&path));
        }
        let bytes = if about.is_file() { fs::read(&path).unwrap() } else { Vec::new() };
        found.insert(path, (bytes, about.mtime(), about.mtime_nsec()));
    }
    found
}

#[test]
fn a_dry_run_of_every_verb_leaves_the_state_directory_and_the_cluster_as_they_are() {
    let folder = folder();
    let answers = Answers::begin(folder.path());
    // As it looks when something is to be set aside, and nobody answers.
    let left = folder.path().join("left");
    fs::create_dir(&left).unwrap();
    fs::write(left.join("journal.json"), "{\"format\": 1, \"raw\": {").unwrap();
    fs::write(left.join("cluster"), "a-cluster\n").unwrap();
    let left = World { state: left, ..World::with(folder.path(), &answers) };
    let before = all_below(folder.path());
    let mut tried = BTreeSet::new();
    for world in [World::without_anybody(folder.path()), left] {
        for (arguments, command) in verbs(Cli::command) {
            if !command.get_arguments().any(|arg| arg.get_id() == "dry_run") {
                continue;
            }
            for form in world.forms(&arguments, &command) {
                let output = world.run(&form, Kept, Kept);
                assert!(!output.status.success() || !output.stdout.is_empty(), "{form:?} says nothing");
                assert!(all_below(folder.path()) == before, "{form:?} wrote something");
            }
            tried.insert(arguments);
        }
    }
    let asked = answers.asked();
    assert!(asked.iter().any(|asked| asked.contains("/poolvolumes/")), "the cluster was not asked: {asked:?}");
    assert!(asked.iter().all(|asked| asked.starts_with("GET ")), "the cluster was written to: {asked:?}");
    for verb in [
        "disk cordon",
        "disk uncordon",
        "disk drain",
        "disk add",
        "disk locate",
        "disk release",
        "disk give-up",
        "disk adopt",
        "pool forget",
        "volume adopt",
        "volume settle",
        "volume abandon",
        "volume erase",
        "state set-aside",
    ] {
        assert!(tried.contains(&arguments(verb)), "{verb} has no dry run any more");
    }
}

#[test]
fn every_subcommand_that_is_tried_apart_is_there() {
    let all = commands(Cli::command);
    for apart in ROLES.into_iter().chain([DEMO]) {
        assert!(all.iter().any(|(arguments, _)| *arguments == [OsString::from(apart)]), "there is no {apart} any more");
    }
}
