//! The roles, whose output is a log on standard error: they end at once with a status if they cannot start; if they
//! can, they serve until they are stopped, whoever reads.

use std::ffi::OsString;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, ChildStderr};
use std::sync::mpsc::channel;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use localpool::host::StateDir;
use localpool_testing::pid;
use nix::sys::signal::{Signal, kill};

use crate::Sink::{self, Closed, Full, Kept};
use crate::answers::Answers;
use crate::{AT_MOST, ROLES, World, arguments, ended, folder};

const SINKS: [(Sink, Sink); 6] =
    [(Kept, Kept), (Closed, Kept), (Full, Kept), (Kept, Closed), (Kept, Full), (Full, Full)];

/// Each role with all its files in the folder of the test, and no port that somebody else may have.
fn role(name: &str, world: &World) -> Vec<OsString> {
    let with_state = |options: &str| {
        let state = ["--state-dir".into(), world.state.clone().into(), "--node-name".into(), "nobody".into()];
        arguments(options).into_iter().chain(state)
    };
    let path = |option: &str, name: &str| [option.into(), world.folder.join(name).into()];
    match name {
        "standalone" => {
            let paths = path("--sets", "sets.yaml").into_iter().chain(path("--socket", "standalone.sock"));
            with_state("standalone").chain(paths).collect()
        }
        "node" => with_state("node --http 127.0.0.1:0").chain(path("--kubelet-dir", "kubelet")).collect(),
        "controller" => {
            let options = arguments("controller --http 127.0.0.1:0 --namespace none --pod-name nobody");
            options.into_iter().chain(path("--socket", "controller.sock")).collect()
        }
        "discovery" => with_state("discovery --namespace none").collect(),
        _ => panic!("{name} is no role that this test knows: say how it is begun, and how it ends at once"),
    }
}

/// From then on a signal requests a stop, and does not kill.
fn await_begun(child: &Child) {
    let caught = 1_u64 << (Signal::SIGTERM as u32 - 1);
    let until = Instant::now() + AT_MOST;
    loop {
        let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
        let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
        if u64::from_str_radix(mask.trim(), 16).unwrap() & caught != 0 {
            return;
        }
        assert!(Instant::now() < until, "it catches no signal: {status}");
        thread::sleep(Duration::from_millis(5));
    }
}

fn check_that_it_ends(world: &World, name: &str, arguments: &[OsString]) {
    for (out, err) in SINKS {
        let what = format!("{name}, out {out:?}, err {err:?}");
        let output = ended(world.spawn(arguments, out, err), &what);
        assert_eq!(output.status.code(), Some(1), "{what}: {output:?}");
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(err != Kept || text.contains("localpool: "), "{what} does not say why: {text}");
        assert!(output.stdout.is_empty(), "{what} prints: {output:?}");
    }
}

#[test]
fn a_role_that_cannot_begin_ends_with_a_status_whoever_reads() {
    let folder = folder();
    // Without a cluster; and the role that needs none, without its sets.
    let world = World::without_anybody(folder.path());
    fs::remove_file(folder.path().join("sets.yaml")).unwrap();
    for name in ROLES {
        check_that_it_ends(&world, name, &role(name, &world));
    }
}

#[test]
fn a_node_whose_name_its_label_cannot_hold_ends_with_a_sentence_before_it_begins() {
    let folder = folder();
    let world = World::without_anybody(folder.path());
    let named = |name: &str| {
        let arguments = role("node", &world).into_iter();
        arguments.map(|word| if word == "nobody" { name.into() } else { word }).collect::<Vec<OsString>>()
    };
    let answer = |name: &str| {
        let output = ended(world.spawn(&named(name), Kept, Kept), name);
        assert_eq!(output.status.code(), Some(1), "{name}: {output:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let sentence =
        "the name of this node has 64 characters, and the label topology.localpool.dev/node that it gets holds 63";
    let (long, fits) = ("n".repeat(64), "n".repeat(63));
    let refused = answer(&long);
    assert!(refused.contains(sentence) && refused.contains(&format!("{long:?}")), "{refused}");
    assert!(!world.state.exists(), "it began");
    check_that_it_ends(&world, "node", &named(&long));
    // With this name it ends as well, as there is no cluster: for another reason, and later.
    let other = answer(&fits);
    assert!(!other.contains("the name of this node"), "{other}");
    assert!(world.state.exists(), "it did not begin: {other}");
}

/// Starts it, waits until it has logged these words, and stops it.
fn check_that_it_serves(world: &World, name: &str, arguments: &[OsString], log: &str) {
    let mut logged_after = Duration::ZERO;
    for (out, err) in SINKS {
        let what = format!("{name}, out {out:?}, err {err:?}");
        let begun = Instant::now();
        let mut child = world.spawn(arguments, out, err);
        await_begun(&child);
        let pid = pid(&child);
        let text = match child.stderr.take() {
            Some(pipe) => {
                let text = until_said(pipe, log, &what);
                logged_after = logged_after.max(begun.elapsed());
                Some(text)
            }
            // Nobody sees its log, so it gets as much time as the run whose log was read.
            None => {
                thread::sleep(logged_after.saturating_sub(begun.elapsed()));
                None
            }
        };
        assert!(child.try_wait().unwrap().is_none(), "{what} has ended: {:?}", ended(child, &what));
        kill(pid, Signal::SIGTERM).unwrap();
        let output = ended(child, &what);
        assert_eq!(output.status.code(), Some(0), "{what}: {output:?}");
        let rest = text.map(|rest| rest.join().unwrap());
        assert!(
            rest.is_none_or(|rest| rest.contains("stopping") && !rest.contains("panicked")),
            "{what} stopped in no good order"
        );
    }
}

/// Waits for words in a log; returns the thread that reads the rest of it.
fn until_said(pipe: ChildStderr, message: &str, what: &str) -> JoinHandle<String> {
    let (found, finds) = channel();
    let wanted = message.to_owned();
    let reader = thread::spawn(move || {
        let mut text = String::new();
        for line in BufReader::new(pipe).lines() {
            text.push_str(&line.unwrap());
            text.push('\n');
            if text.contains(&wanted) {
                let _ = found.send(());
            }
        }
        text
    });
    finds.recv_timeout(AT_MOST).unwrap_or_else(|_| panic!("{what} has not logged {message:?}"));
    reader
}

#[test]
fn a_role_serves_on_until_it_is_stopped_whoever_reads() {
    let folder = folder();
    let answers = Answers::begin(folder.path());
    let world = World::with(folder.path(), &answers);
    // Another process is the agent: the two roles that would touch disks are up, wait, and touch none.
    let state = StateDir::open(&answers.state).unwrap();
    let _lock = state.try_lock().unwrap().expect("nobody has it");
    for (name, log) in [
        ("standalone", "waiting, touching nothing"),
        ("node", "waiting, touching nothing"),
        ("controller", "serving CSI"),
        // It gets its devices from the agent that answers, and looks at none itself.
        ("discovery", "reports its devices"),
    ] {
        check_that_it_serves(&world, name, &role(name, &world), log);
    }
    assert!(!folder.path().join("standalone.sock").exists(), "it served without the lock");
}
