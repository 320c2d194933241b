use std::time::Duration;

use super::*;
use crate::device::VolumeId;
use crate::host::fake::{FakeHost, Fate};
use crate::host::{Geometry, Mounted, PathState, TargetAccess};

fn machine() -> Arc<FakeHost> {
    let host = Arc::new(FakeHost::default());
    host.add_disk("fake0", "S", Geometry { size: 1 << 20, sector: 512, offloads_zeroes: true });
    host
}

/// A process of the agent that has read what the one before it left.
fn process(host: &Arc<FakeHost>) -> (KeptTargets, Board) {
    let board = Board::default();
    let mut kept = KeptTargets::new(Arc::clone(host) as Arc<dyn Host>, board.clone());
    kept.recall().expect("read");
    (kept, board)
}

fn id() -> VolumeId {
    VolumeId::of_name("v")
}

fn targets(board: &Board) -> Vec<String> {
    board.targets(id()).iter().map(|target| target.display().to_string()).collect()
}

/// What a process expects that begins now.
fn next(host: &Arc<FakeHost>) -> Vec<String> {
    targets(&process(host).1)
}

/// Targets where the volume is not mounted any more, as the process that ends now left them; each path exists.
fn left(host: &Arc<FakeHost>, paths: &[&str]) {
    let (mut kept, board) = process(host);
    for path in paths {
        host.mounts.set_path_state(path.as_ref(), PathState::Other);
        board.mounted(id(), path.as_ref(), board.unmounts());
    }
    kept.keep().expect("kept");
}

fn text(host: &FakeHost) -> String {
    host.state().load(TARGETS).expect("read").unwrap_or_default()
}

#[test]
fn the_next_process_expects_what_was_mounted_and_not_unmounted_for_kubelet() {
    let host = machine();
    left(&host, &["/a", "/b"]);
    let (mut kept, board) = process(&host);
    assert_eq!(targets(&board), ["/a", "/b"]);
    board.unmounted(id(), "/a".as_ref());
    kept.keep().expect("kept");
    assert_eq!(next(&host), ["/b"]);
    board.update(
        crate::health::CheckupResult { gone: [id()].into(), ..Default::default() },
        jiff::Timestamp::UNIX_EPOCH,
        Duration::ZERO,
    );
    kept.keep().expect("kept");
    assert_eq!(next(&host), [""; 0], "the volume was deleted");
}

#[test]
fn after_a_start_of_the_machine_or_of_a_node_that_is_a_container_nothing_is_missed() {
    let host = machine();
    left(&host, &["/a"]);
    host.set_machine_start("boot-2", 1);
    assert_eq!(next(&host), [""; 0]);
    left(&host, &["/a"]);
    host.set_machine_start("boot-2", 2);
    assert_eq!(next(&host), [""; 0], "the kernel runs on, and the mounts went with process 1");
    left(&host, &["/a"]);
    host.reboot(Fate::Whole);
    host.mounts.set_path_state("/a".as_ref(), PathState::Other);
    assert_eq!(next(&host), [""; 0]);
    left(&host, &["/a"]);
    assert_eq!(next(&host), ["/a"], "the same start");
}

#[test]
fn a_target_whose_path_is_gone_is_forgotten_and_does_not_come_back_with_a_later_process() {
    let host = machine();
    left(&host, &["/a", "/gone"]);
    host.mounts.set_path_state("/gone".as_ref(), PathState::Absent);
    let (mut kept, board) = process(&host);
    assert_eq!(targets(&board), ["/a"]);
    kept.keep().expect("kept");
    host.mounts.set_path_state("/gone".as_ref(), PathState::Other);
    assert_eq!(next(&host), ["/a"], "somebody made such a path again");
}

#[test]
fn what_cannot_be_looked_at_counts_as_there_and_where_something_is_mounted_nobody_looks() {
    let host = machine();
    left(&host, &["/denied", "/mounted", "/directory"]);
    host.mounts.set_path_error("/denied".as_ref(), nix::libc::EACCES);
    host.mounts().bind("/dev/fake0".as_ref(), "/mounted".as_ref(), TargetAccess::ReadWrite).expect("bound");
    // A look there would hang.
    host.mounts.gate.set_hangs_at(Some("/mounted"));
    let (mounted, usage) = (Mounted::Nothing, crate::host::FsUsage::default());
    let directory = PathState::Directory { mounted, device_size: None, usage, filesystem: None };
    host.mounts.set_path_state("/directory".as_ref(), directory);
    assert_eq!(next(&host), ["/denied", "/directory", "/mounted"]);
    host.mounts.set_table_error(Some(nix::libc::EIO));
    host.mounts.set_path_state("/directory".as_ref(), PathState::Absent);
    assert_eq!(next(&host), ["/denied", "/directory", "/mounted"], "without the table all of them are there");
}

#[test]
fn a_document_that_cannot_be_read_is_not_written_over_and_nobody_says_that_nothing_is_missed() {
    let host = machine();
    left(&host, &["/a"]);
    let before = text(&host);
    host.state.set_unreadable(true);
    let board = Board::default();
    let mut kept = KeptTargets::new(Arc::clone(&host) as Arc<dyn Host>, board.clone());
    kept.recall().expect_err("it cannot be read");
    assert!(!board.is_recalled());
    board.mounted(id(), "/b".as_ref(), board.unmounts());
    host.state.set_unreadable(false);
    assert_eq!(text(&host), before);
    kept.recall().expect("read");
    assert_eq!(targets(&board), ["/a", "/b"]);
    assert!(board.is_recalled());
}

#[test]
fn a_document_that_is_damaged_or_of_another_format_says_nothing_and_is_replaced() {
    let host = machine();
    left(&host, &["/a"]);
    let good = text(&host);
    for bad in ["", "{", "[]", &good[..good.len() / 2], &good.replace("\"format\":1", "\"format\":2")] {
        host.state().store(TARGETS, bad).expect("stored");
        let (mut kept, board) = process(&host);
        assert_eq!(targets(&board), [""; 0], "{bad}");
        assert!(board.is_recalled());
        kept.keep().expect("kept");
        assert!(text(&host).starts_with("{\"format\":1,\"bootId\":\"boot-1\",\"firstProcess\":1,"), "{}", text(&host));
    }
}

#[test]
fn nothing_is_written_while_nothing_changes_and_after_a_failed_write_it_is_written_again() {
    let host = machine();
    let (mut kept, board) = process(&host);
    kept.keep().expect("kept");
    assert_eq!(host.state.stored(TARGETS), 0, "no volume, and no document");
    board.mounted(id(), "/a".as_ref(), board.unmounts());
    host.state.set_full(true);
    kept.keep().expect_err("there is no room");
    host.state.set_full(false);
    for _ in 0..3 {
        kept.keep().expect("kept");
        board.mounted(id(), "/a".as_ref(), board.unmounts());
    }
    assert_eq!(host.state.stored(TARGETS), 1);
    board.unmounted(id(), "/a".as_ref());
    board.mounted(id(), "/a".as_ref(), board.unmounts());
    kept.keep().expect("kept");
    assert_eq!(host.state.stored(TARGETS), 1, "it is as it was");
    host.mounts.set_path_state("/a".as_ref(), PathState::Other);
    process(&host).0.keep().expect("kept");
    assert_eq!(host.state.stored(TARGETS), 1, "a process that begins writes nothing either");
}
