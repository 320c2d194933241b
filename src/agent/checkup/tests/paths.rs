//! The paths of local PersistentVolumes of other provisioners: one that hangs or fails, beside one that answers.

use std::path::Path;

use super::*;
use crate::health::{PathKind, WatchedPath};
use crate::host::{FsUsage, Mounted, PathState};

/// Two paths that must be mount points, and are.
fn watching() -> Node {
    let node = node();
    let watched = ["/mnt/one", "/mnt/other"].map(|path| {
        set(&node, path, Mounted::Whole);
        let uid = path.to_owned();
        let kind = PathKind::Filesystem;
        WatchedPath { volume: uid.clone(), uid, path: path.into(), capacity: 1, kind, is_mounted: true }
    });
    node.board.watch(watched.into());
    node
}

fn set(node: &Node, path: &str, mounted: Mounted) {
    set_filesystem(node, path, mounted, Some(FilesystemState::default()));
}

fn set_filesystem(node: &Node, path: &str, mounted: Mounted, filesystem: Option<FilesystemState>) {
    let usage = FsUsage::default();
    let state = PathState::Directory { mounted, device_size: Some(1 << 30), usage, filesystem };
    node.host.mounts.set_path_state(Path::new(path), state);
}

/// The worst of each.
fn found(node: &Node) -> [String; 2] {
    let paths = node.board.paths().expect("looked").into_iter().map(|path| path.condition.word().to_owned());
    paths.collect::<Vec<_>>().try_into().expect("two")
}

#[test]
fn a_path_that_hangs_is_named_when_it_has_had_its_time_and_the_other_has_its_answer() {
    let mut node = watching();
    node.look();
    assert_eq!(found(&node), ["Healthy", "Healthy"]);
    node.host.mounts.gate.set_hangs_at(Some("/mnt/one"));
    set(&node, "/mnt/other", Mounted::Nothing);
    node.look();
    assert_eq!(found(&node), ["Healthy", "NotMountPoint"], "its disk may be asleep, and what was seen last counts");
    node.host.advance(timeout::DEVICE_TIMEOUT);
    set(&node, "/mnt/other", Mounted::Whole);
    assert!(node.look());
    assert_eq!(found(&node), ["DiskNotAnswering", "Healthy"]);
    node.look();
    assert_eq!(node.host.mounts.gate.waiting(), 1, "it is not asked again before it answers");
    node.host.mounts.gate.set_hangs_at(None);
    while found(&node)[0] != "Healthy" {
        node.look();
    }
}

#[test]
fn a_path_whose_device_answers_with_an_error_has_shut_down_and_what_this_process_may_not_see_says_nothing() {
    use nix::libc::{EACCES, EIO, ESTALE};
    let mut node = watching();
    let mut look_at = |errno| {
        node.host.mounts.set_path_error(Path::new("/mnt/one"), errno);
        node.look();
        found(&node)
    };
    assert_eq!(look_at(EIO), ["FilesystemShutDown", "Healthy"]);
    assert_eq!(look_at(ESTALE), ["FilesystemShutDown", "Healthy"], "its server does not know it any more");
    assert_eq!(look_at(EACCES), ["FilesystemShutDown", "Healthy"], "what was found before stays");
    set(&node, "/mnt/one", Mounted::Whole);
    assert!(node.look());
    assert_eq!(found(&node), ["Healthy", "Healthy"]);
}

#[test]
fn what_was_found_of_a_filesystem_stays_while_nobody_knows_it_and_it_is_mounted() {
    let mut node = watching();
    let mut look_at = |mounted, filesystem| {
        set_filesystem(&node, "/mnt/one", mounted, filesystem);
        node.look();
        found(&node)[0].clone()
    };
    let shut_down = FilesystemState { is_shut_down: true, ..FilesystemState::default() };
    assert_eq!(look_at(Mounted::Whole, None), "Healthy");
    assert_eq!(look_at(Mounted::Whole, Some(shut_down)), "FilesystemShutDown");
    assert_eq!(look_at(Mounted::Whole, None), "FilesystemShutDown");
    assert_eq!(look_at(Mounted::Whole, None), "FilesystemShutDown");
    assert_eq!(look_at(Mounted::Nothing, None), "NotMountPoint");
    assert_eq!(look_at(Mounted::Whole, None), "Healthy", "another one may be mounted there now");
}
