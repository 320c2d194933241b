//! What the runner promises, shown with a shell as the program.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;

use super::running::{TAIL, starting};
use super::*;

fn shell(script: &str, limit: Duration) -> TimedCommand {
    TimedCommand::new("sh", limit).args(["-c", script])
}

const LONG: Duration = Duration::from_secs(20);

#[test]
fn a_command_gives_its_output_and_its_code() {
    let done = shell("echo out; echo err >&2; exit 3", LONG).run_allowing(&[0, 3]).unwrap();
    assert_eq!((done.stdout.as_str(), done.stderr.as_str(), done.code()), ("out\n", "err\n", Some(3)));
}

#[test]
fn a_code_that_is_not_allowed_is_an_error_with_the_last_lines() {
    let error = shell("echo first >&2; echo last >&2; exit 4", LONG).run().unwrap_err();
    assert_eq!(error.to_string(), "sh failed with exit code 4: first; last");
    let error = shell("echo only on stdout; exit 8", LONG).run().unwrap_err();
    assert_eq!(error.to_string(), "sh failed with exit code 8: only on stdout");
    let error = shell("exit 1", LONG).run().unwrap_err();
    assert_eq!(error.to_string(), "sh failed with exit code 1: it printed no error");
}

#[test]
fn a_death_by_signal_is_an_error_that_names_the_signal() {
    let error = shell("kill -SEGV $$", LONG).run().unwrap_err();
    assert!(error.to_string().contains("signal SIGSEGV"), "{error}");
}

#[test]
fn a_command_that_hangs_is_stopped_in_time_with_all_its_children() {
    let dir = tempfile::tempdir().unwrap();
    let pid_file = dir.path().join("pid");
    let script = format!("sleep 1000 & echo $! > {}; wait", pid_file.display());
    let began = Instant::now();
    let error = shell(&script, Duration::from_secs(1)).run().unwrap_err();
    assert!(began.elapsed() < LONG, "{:?}", began.elapsed());
    assert_eq!(error.to_string(), "sh did not end within 1 s and was stopped");

    let grandchild = fs::read_to_string(pid_file).unwrap();
    let state = || fs::read_to_string(format!("/proc/{}/stat", grandchild.trim())).unwrap_or_default();
    let gone = |stat: String| stat.is_empty() || stat.contains(") Z");
    let until = Instant::now() + LONG;
    while !gone(state()) {
        assert!(Instant::now() < until, "the grandchild lives: {}", state());
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_flood_of_output_is_cut_to_its_tail_and_does_not_stop_the_command() {
    let script = "i=0; while [ $i -lt 40000 ]; do echo line-number-$i; i=$((i+1)); done; echo the-end";
    let done = shell(script, LONG).run().unwrap();
    assert!(done.stdout.len() <= TAIL);
    assert!(done.stdout.len() > TAIL / 2);
    assert!(done.stdout.ends_with("line-number-39999\nthe-end\n"));
}

#[test]
fn an_endless_flood_is_stopped_in_time() {
    let began = Instant::now();
    let error = TimedCommand::new("yes", Duration::from_millis(300)).run().unwrap_err();
    assert!(matches!(error, HostError::Timeout { .. }), "{error}");
    assert!(began.elapsed() < LONG, "{:?}", began.elapsed());
}

#[test]
fn a_grandchild_that_keeps_the_pipes_does_not_hold_up_the_answer() {
    let began = Instant::now();
    // In a group of its own (setsid), so the kill after a timeout does not reach it; it ends by itself.
    let done = shell("setsid sleep 10 & echo started", LONG).run().unwrap();
    assert_eq!(done.stdout, "started\n");
    assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
}

#[test]
fn a_missing_program_is_named_with_the_package_that_has_it() {
    let dir = tempfile::tempdir().unwrap();
    let missing =
        |program| TimedCommand::new(program, LONG).search_path(dir.path().as_os_str()).run().unwrap_err().to_string();
    assert_eq!(missing("mkfs.xfs"), "mkfs.xfs is not installed; it is in the Debian package xfsprogs");
    assert_eq!(missing("no-such-tool"), "no-such-tool is not installed");
}

#[test]
fn a_program_that_may_not_be_run_is_an_error_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("mkfs.ext4");
    fs::write(&file, "#!/bin/sh\n").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    let error = TimedCommand::new("mkfs.ext4", LONG).search_path(dir.path().as_os_str()).run().unwrap_err();
    assert_eq!(error.to_string(), "start mkfs.ext4");
}

#[test]
fn the_environment_is_clean_and_the_program_is_no_child_of_our_terminal() {
    let done = TimedCommand::new("env", LONG).run().unwrap();
    let names: Vec<&str> = done.stdout.lines().filter_map(|line| line.split('=').next()).collect();
    let mut sorted = names.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, ["BLKID_FILE", "LC_ALL", "PATH"]);
    assert!(done.stdout.contains("LC_ALL=C\n"));
    assert_eq!(TimedCommand::new("pwd", LONG).run().unwrap().stdout, "/\n");
}

#[test]
fn stdin_is_empty() {
    assert_eq!(shell("wc -c", LONG).run().unwrap().stdout.trim(), "0");
}

#[test]
fn last_lines_are_cut_between_characters() {
    let text = "é".repeat(SHOWN_BYTES);
    let end = last_lines(&text);
    assert!(end.starts_with('…') && end.len() <= SHOWN_BYTES + '…'.len_utf8());
}

#[test]
fn a_close_that_hangs_keeps_no_program_from_starting_and_no_other_device_from_being_closed() {
    let (hangs, hanging) = mpsc::channel();
    let (end, ended) = mpsc::channel::<()>();
    let closing = thread::spawn(move || {
        for_good(|| {
            hangs.send(()).unwrap();
            let _ = ended.recv();
        });
    });
    hanging.recv().unwrap();
    let (reply, answer) = mpsc::channel();
    thread::spawn(move || {
        for_good(|| ());
        reply.send(shell("exit 0", LONG).run().is_ok())
    });
    let answered = answer.recv_timeout(Duration::from_secs(60));
    assert!(answered.expect("it waits for a device that it has nothing to do with"));
    drop(end);
    closing.join().unwrap();
}

#[test]
fn what_is_closed_for_good_has_no_copy_in_a_program_that_began_to_start_meanwhile() {
    let let_go = Arc::new(AtomicBool::new(false));
    let copy = Arc::clone(&let_go);
    let (go_on, goes_on) = mpsc::channel::<()>();
    let (forked, has_forked) = mpsc::channel();
    for_good(|| {
        thread::spawn(move || {
            let start = starting();
            forked.send(()).unwrap();
            let _ = goes_on.recv();
            // Its exec, which closes the copy.
            thread::sleep(Duration::from_millis(50));
            copy.store(true, Ordering::Release);
            drop(start);
        });
        has_forked.recv_timeout(Duration::from_secs(60)).expect("no start waits for the close itself");
        drop(go_on);
    });
    assert!(let_go.load(Ordering::Acquire));
}
