//! The paths of local PersistentVolumes of other provisioners: one that hangs or fails, beside one that answers.

use std::path::Path;
use std::sync::mpsc;

use super::*;
use crate::health::{PathClaim, PathClaimUid, PathIdentity, PathKind, WatchedPath};
use crate::host::{FsUsage, Mounted, PathState};

/// Two paths that must be mount points, and are.
fn watching() -> Node {
    let node = node();
    let watched = ["/mnt/one", "/mnt/other"].map(|path| {
        set(&node, path, Mounted::Whole);
        let kind = PathKind::Filesystem;
        WatchedPath {
            volume: path.into(),
            uid: path.into(),
            path: path.into(),
            capacity: 1,
            kind,
            is_mounted: true,
            claim: None,
        }
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
    let paths = node.board.paths().expect("a checkup").into_iter().map(|path| path.condition.word().to_owned());
    paths.collect::<Vec<_>>().try_into().expect("two")
}

#[test]
fn a_path_that_hangs_is_named_when_it_has_had_its_time_and_the_other_has_its_answer() {
    let mut node = watching();
    node.checkup();
    assert_eq!(found(&node), ["Healthy", "Healthy"]);
    node.host.mounts.gate.set_hangs_at(Some("/mnt/one"));
    set(&node, "/mnt/other", Mounted::Nothing);
    node.checkup();
    assert_eq!(found(&node), ["Healthy", "NotMountPoint"], "its disk may be asleep, and what was seen last counts");
    node.host.advance(timeout::DEVICE_TIMEOUT);
    set(&node, "/mnt/other", Mounted::Whole);
    assert!(node.checkup());
    assert_eq!(found(&node), ["DiskNotAnswering", "Healthy"]);
    node.checkup();
    assert_eq!(node.host.mounts.gate.waiting(), 1, "it is not asked again before it answers");
    node.host.mounts.gate.set_hangs_at(None);
    while found(&node)[0] != "Healthy" {
        node.checkup();
    }
}

#[test]
fn a_path_whose_device_answers_with_an_error_has_shut_down_and_what_this_process_may_not_see_says_nothing() {
    use nix::libc::{EACCES, EIO, ESTALE};
    let mut node = watching();
    let mut check = |errno| {
        node.host.mounts.set_path_error(Path::new("/mnt/one"), errno);
        node.checkup();
        found(&node)
    };
    assert_eq!(check(EIO), ["FilesystemShutDown", "Healthy"]);
    assert_eq!(check(ESTALE), ["FilesystemShutDown", "Healthy"], "its server does not know it any more");
    assert_eq!(check(EACCES), ["FilesystemShutDown", "Healthy"], "what was found before stays");
    set(&node, "/mnt/one", Mounted::Whole);
    assert!(node.checkup());
    assert_eq!(found(&node), ["Healthy", "Healthy"]);
}

#[test]
fn a_path_that_an_agent_may_not_see_from_its_start_is_neither_well_nor_lost() {
    let mut node = watching();
    node.host.mounts.set_path_error(Path::new("/mnt/one"), nix::libc::EACCES);
    node.checkup();
    // What is not reported is marked as before, and is no reason for a reaction.
    let reported: Vec<_> = node.board.paths().expect("a checkup").into_iter().map(|path| path.watched.path).collect();
    assert_eq!(reported, [std::path::PathBuf::from("/mnt/other")]);
}

#[test]
fn what_was_found_of_a_filesystem_stays_while_nobody_knows_it_and_it_is_mounted() {
    let mut node = watching();
    let mut check = |mounted, filesystem| {
        set_filesystem(&node, "/mnt/one", mounted, filesystem);
        node.checkup();
        found(&node)[0].clone()
    };
    let shut_down = FilesystemState { is_shut_down: true, ..FilesystemState::default() };
    assert_eq!(check(Mounted::Whole, None), "Healthy");
    assert_eq!(check(Mounted::Whole, Some(shut_down)), "FilesystemShutDown");
    assert_eq!(check(Mounted::Whole, None), "FilesystemShutDown");
    assert_eq!(check(Mounted::Whole, None), "FilesystemShutDown");
    assert_eq!(check(Mounted::Nothing, None), "NotMountPoint");
    assert_eq!(check(Mounted::Whole, None), "Healthy", "another one may be mounted there now");
}

#[test]
fn another_filesystem_at_a_path_is_the_wrong_one_until_the_first_is_back_and_hides_how_it_is() {
    let mut node = watching();
    let mut watched = node.board.watched();
    watched[0].claim = Some(PathClaim { uid: "c".into(), identity: Some("fs-first".to_owned()) });
    node.board.watch(watched);
    let mut check = |identity, filesystem| {
        node.host.mounts.set_path_identity(Path::new("/mnt/one"), identity);
        set_filesystem(&node, "/mnt/one", Mounted::Whole, Some(filesystem));
        node.checkup();
        let reports = node.board.paths().expect("a checkup");
        let message = reports[0].condition.findings().iter().map(|finding| finding.reason.to_string());
        (message.collect::<Vec<_>>().join(" "), reports[0].identity.clone().map(|identity| identity.name))
    };
    let (well, shut_down) =
        (FilesystemState::default(), FilesystemState { is_shut_down: true, ..FilesystemState::default() });
    let is = |message: &str, identity: Option<&str>| (message.to_owned(), identity.map(str::to_owned));
    assert_eq!(check(Some("fs-first"), well), is("", Some("fs-first")));
    assert_eq!(check(Some("fs-other"), shut_down), is("WrongDevice", Some("fs-other")));
    assert_eq!(check(None, well), is("", None), "nobody says which it is");
    assert_eq!(check(Some("fs-other"), well), is("WrongDevice", Some("fs-other")));
    assert_eq!(check(Some("fs-first"), shut_down), is("FilesystemShutDown", Some("fs-first")));
    set(&node, "/mnt/one", Mounted::Nothing);
    node.checkup();
    assert_eq!(node.board.paths().expect("a checkup")[0].identity, None);
    assert_eq!(found(&node), ["NotMountPoint", "Healthy"]);
}

#[test]
fn which_filesystem_is_at_a_path_is_said_only_by_a_look_that_began_after_the_claim_had_the_volume() {
    let mut node = watching();
    let one = Path::new("/mnt/one");
    let watch = |node: &Node, claim: Option<&str>| {
        let mut watched = node.board.watched();
        watched[0].claim = claim.map(|uid| PathClaim { uid: uid.into(), identity: None });
        node.board.watch(watched);
    };
    let said = |node: &Node| {
        let identity = node.board.paths().expect("a checkup")[0].identity.clone();
        identity.map(|PathIdentity { claim, name }| format!("{claim} {name}"))
    };
    node.host.mounts.set_path_identity(one, Some("fs-old"));
    node.checkup();
    assert_eq!(said(&node), None, "no claim has it");
    watch(&node, Some("c"));
    node.checkup();
    assert_eq!(said(&node).as_deref(), Some("c fs-old"));
    // A checkup that is under way when another claim gets the volume answers what was there before.
    node.host.mounts.gate.set_hangs_at(Some("/mnt/one"));
    let (answer, answered) = mpsc::channel();
    let answered_late = move || answer.send(()).expect("somebody waits");
    node.checkup.run(&(Arc::new(answered_late) as Answered));
    watch(&node, Some("d"));
    node.host.mounts.gate.set_hangs_at(None);
    answered.recv().expect("it answers");
    node.host.mounts.set_path_identity(one, Some("fs-new"));
    node.checkup();
    assert_eq!(said(&node), None, "another disk may have been there");
    while said(&node).is_none() {
        node.checkup();
    }
    assert_eq!(said(&node).as_deref(), Some("d fs-new"));
    watch(&node, None);
    node.checkup();
    assert_eq!(said(&node), None);
}

#[test]
fn volumes_that_share_a_path_have_an_answer_each_for_their_own_claim() {
    let mut node = watching();
    let mut watched = node.board.watched();
    watched[1].path = "/mnt/one".into();
    for (watched, uid) in watched.iter_mut().zip(["c", "d"]) {
        watched.claim = Some(PathClaim { uid: uid.into(), identity: Some("fs-1".to_owned()) });
    }
    node.board.watch(watched);
    node.host.mounts.set_path_identity(Path::new("/mnt/one"), Some("fs-1"));
    node.checkup();
    assert_eq!(found(&node), ["Healthy", "Healthy"]);
    let claims: Vec<PathClaimUid> =
        node.board.paths().expect("a checkup").into_iter().filter_map(|path| Some(path.identity?.claim)).collect();
    assert_eq!(claims, ["c", "d"]);
}
