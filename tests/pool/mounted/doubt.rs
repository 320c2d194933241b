//! Named filesystems of which too little is known: copies that pods use the original of, and those that nobody could look
//! at yet.

use localpool::device::SetName;
use localpool::device::label::SetRef;
use localpool::host::FilesystemState;

use super::*;

const CLAIM: &str = "localpool/claim.json";

/// Copies what the pool has on one filesystem to another.
fn copy(from: &dyn FilesystemRoot, to: &dyn FilesystemRoot) {
    let file = |path: &str| {
        let text = from.read(Path::new(path)).expect("read").expect("there");
        to.write(Path::new(path), &text).expect("written");
    };
    let folder = |path: &str| to.make_folder(Path::new(path), 0o755).expect("made");
    let names = |path: &str| from.names(Path::new(path)).expect("read");
    file(HIS[0]);
    folder("localpool");
    names("localpool").iter().filter(|name| !name.contains('.')).for_each(|name| folder(&format!("localpool/{name}")));
    names("localpool/volumes").iter().for_each(|name| folder(&format!("localpool/volumes/{name}")));
    names("localpool/records").iter().for_each(|name| file(&format!("localpool/records/{name}")));
    file(CLAIM);
}

#[test]
fn a_copy_at_its_path_is_not_used_while_a_pod_has_a_volume_of_the_original() {
    let mut lab = Lab::taken();
    lab.create("a", MIB).expect("made");
    let folder = lab.node.pool.usable(id("a")).expect("there").directory.expect("it is a folder");
    let pod = Path::new("/pods/a");
    lab.host.mounts.make_target(pod, TargetKind::Directory).expect("made");
    lab.host.mounts.bind(&folder.path, pod, TargetAccess::ReadWrite).expect("bound");
    mount(&lab.host, "slow", SLOW);
    copy(&*root(&lab.host, "fast", FAST), &*root(&lab.host, "slow", SLOW));
    root(&lab.host, "slow", SLOW).make_folder(Path::new("localpool/making/left"), 0o700).expect("made");
    unmount(&lab.host, SLOW);
    unmount(&lab.host, FAST);
    mount(&lab.host, "slow", FAST);
    for restarted in [false, true] {
        if restarted {
            lab.restart(vec![rule(Quota::Project, &[])]);
        }
        lab.pass();
        let Standing::NotReady(why) = lab.standing() else { panic!("{restarted}: {:?}", lab.standing()) };
        assert!(why.contains("/pods/a") && why.contains("another device"), "{why}");
        assert!(lab.node.pool.usable(id("a")).is_err() && lab.create("b", MIB).is_err());
        let names = root(&lab.host, "slow", FAST).names(Path::new("localpool/making")).expect("read");
        assert_eq!(names, ["left"], "nothing is changed there");
    }
    // What pods have of a disk that is dead nobody writes to.
    lab.host.set_filesystem_state(pod, FilesystemState { is_shut_down: true, ..FilesystemState::default() });
    lab.pass();
    lab.node.pool.usable(id("a")).expect("it is on another device by now");
    lab.host.set_filesystem_state(pod, FilesystemState::default());
    unmount(&lab.host, FAST);
    mount(&lab.host, "fast", FAST);
    lab.pass();
    lab.node.pool.usable(id("a")).expect("it is back");
    // Once nobody has the original any more an administrator may have moved it to another device.
    unmount(&lab.host, "/pods/a");
    unmount(&lab.host, FAST);
    mount(&lab.host, "slow", FAST);
    lab.pass();
    lab.node.pool.usable(id("a")).expect("it is used");
}

#[test]
fn where_the_journal_was_lost_nothing_is_called_deleted_that_a_named_filesystem_may_have() {
    let mut lab = Lab::taken();
    lab.create("a", MIB).expect("made");
    let its = root(&lab.host, "fast", FAST);
    lab.host.state.lose();
    lab.restart(vec![rule(Quota::Project, &[])]);
    lab.node.passes().expect("a pass");
    let refused = |lab: &Lab, at: &str| {
        let why = lab.node.pool.may_be_called_deleted(id("a")).expect_err(at);
        lab.node.pool.delete(id("a")).expect_err(at);
        chain(&why)
    };
    let why = refused(&lab, "nobody has looked at its path");
    assert!(why.contains("not looked at"), "{why}");
    for file in [HIS[0], CLAIM] {
        let text = its.read(Path::new(file)).expect("read").expect("there");
        its.write(Path::new(file), "{").expect("written");
        lab.pass();
        let why = refused(&lab, file);
        assert!(why.contains("cut short or damaged"), "{why}");
        its.write(Path::new(file), &text).expect("written");
    }
    lab.pass();
    lab.node.pool.usable(id("a")).expect("it is there");
    lab.node.pool.may_be_called_deleted(id("b")).expect("all was read");
}

#[test]
fn a_filesystem_that_cannot_be_opened_after_a_restart_is_not_ready_and_nobody_gives_it_up() {
    let mut lab = Lab::taken();
    lab.create("a", MIB).expect("made");
    let disk = lab.disk();
    let its = root(&lab.host, "fast", FAST);
    its.rename(Path::new("localpool"), Path::new("elsewhere")).expect("moved");
    lab.restart(vec![rule(Quota::Project, &[])]);
    lab.pass();
    let Standing::NotReady(why) = lab.standing() else { panic!("{:?}", lab.standing()) };
    assert!(why.contains("the folder localpool with claim.json is not there"), "{why}");
    let give_up = || Verb::GiveUpDisk { disk: disk.clone(), run: Run::Real };
    lab.verb(give_up()).expect_err("it is mounted");
    its.rename(Path::new("elsewhere"), Path::new("localpool")).expect("moved back");
    lab.pass();
    lab.node.pool.usable(id("a")).expect("it is back");
    // Its volumes are given up by who says that it does not come back.
    its.rename(Path::new("localpool"), Path::new("elsewhere")).expect("moved");
    lab.restart(vec![rule(Quota::Project, &[])]);
    unmount(&lab.host, FAST);
    lab.pass();
    lab.verb(give_up()).expect("it is away");
}

#[test]
fn a_release_that_was_refused_leaves_nothing_behind() {
    let mut lab = Lab::taken();
    let disk = lab.disk();
    root(&lab.host, "fast", FAST).make_folder(Path::new("localpool/volumes/lost+found"), 0o700).expect("somebody's");
    let why = lab.verb(Verb::ReleaseDisk { disk: disk.clone(), run: Run::Real }).expect_err("somebody's");
    assert!(why.contains("volumes/lost+found"), "{why}");
    unmount(&lab.host, FAST);
    lab.pass();
    lab.verb(Verb::GiveUpDisk { disk: disk.clone(), run: Run::Real }).expect("given up");
    mount(&lab.host, "fast", FAST);
    lab.pass();
    assert_eq!(lab.of(), FilesystemUse::GivenUp);
    lab.verb(Verb::AdoptDisk { disk, run: Run::Real }).expect("adopted");
    lab.pass();
    assert!(matches!(lab.of(), FilesystemUse::Taken(_)), "{:?}", lab.of());
}

#[test]
fn nobody_gives_up_a_filesystem_before_its_path_was_looked_at() {
    let mut lab = Lab::taken();
    lab.create("a", MIB).expect("made");
    let disk = lab.disk();
    lab.restart(vec![rule(Quota::Project, &[])]);
    lab.node.passes().expect("a pass");
    assert!(matches!(lab.standing(), Standing::NotReady(why) if why.contains("not looked at")), "{:?}", lab.standing());
    for verb in [Verb::GiveUpDisk { disk: disk.clone(), run: Run::Real }, Verb::ReleaseDisk { disk, run: Run::Real }] {
        lab.verb(verb).expect_err("it is mounted, and nobody has seen it yet");
    }
    lab.pass();
    lab.node.pool.usable(id("a")).expect("it is there");
}

#[test]
fn one_that_hangs_while_it_is_taken_is_not_taken_when_it_answers_and_nobody_names_it_any_more() {
    let mut lab = Lab::new(rule(Quota::Project, &["nvme"]), entry("fast", FAST));
    name(&lab.board, &[NamedFilesystem { tags: tags(&["nvme"]), ..entry("fast", FAST) }]);
    look(&lab.host, &lab.board);
    let gate = &lab.host.mounts.gate;
    gate.set_hangs_at(Some(FAST));
    lab.node.passes().expect("it holds up no pass");
    gate.until_somebody_waits();
    name(&lab.board, &[]);
    gate.set_hangs_at(None);
    std::thread::sleep(Duration::from_millis(300));
    lab.node.passes().expect("a pass");
    assert_eq!(lab.names(), HIS);
    // It is taken by the next pass that finds it named.
    name(&lab.board, &[NamedFilesystem { tags: tags(&["nvme"]), ..entry("fast", FAST) }]);
    lab.pass();
    assert_eq!(lab.standing(), Standing::Ready);
}

#[test]
fn of_two_sets_the_first_keeps_it_also_when_it_chooses_it_no_more_and_another_name_is_the_same_filesystem() {
    let mut lab = Lab::taken();
    lab.create("a", MIB).expect("made");
    let other = || Rule { set: SetRef::new(SetName::new("n", "other"), "other"), ..rule(Quota::Project, &[]) };
    lab.restart(vec![other(), rule(Quota::Project, &["nvme"])]);
    lab.pass();
    assert_eq!(lab.of(), FilesystemUse::NotChosen);
    lab.node.pool.usable(id("a")).expect("it stays");
    lab.create("b", MIB).expect_err("nobody offers it");
    lab.restart(vec![other(), rule(Quota::Project, &[])]);
    // In one step, as an administrator edits it.
    name(&lab.board, &[entry("renamed", FAST)]);
    lab.pass();
    assert_eq!((lab.node.pool.disk_views().len(), lab.standing()), (1, Standing::Ready));
    lab.create("b", MIB).expect("its set takes it");
    assert_eq!(lab.node.pool.usable(id("b")).expect("there").set, rule(Quota::Project, &[]).set);
}

#[test]
fn a_claim_of_another_node_or_a_later_version_is_not_touched_and_nothing_is_made_there() {
    let mut lab = Lab::taken();
    lab.create("a", MIB).expect("made");
    let its = root(&lab.host, "fast", FAST);
    let sound = its.read(Path::new(CLAIM)).expect("read").expect("there");
    let wrong = [("\"node-1\"", "\"node-2\""), ("\"test\"", "\"another\""), ("\"format\": 1", "\"format\": 2")];
    for (from, to) in wrong {
        let text = sound.replace(from, to);
        assert_ne!(text, sound);
        its.write(Path::new(CLAIM), &text).expect("written");
        lab.restart(vec![rule(Quota::Project, &[])]);
        lab.pass();
        assert!(matches!(lab.standing(), Standing::NotReady(_)), "{to}: {:?}", lab.standing());
        assert!(lab.create("b", MIB).is_err() && lab.node.pool.delete(id("a")).is_err());
        assert_eq!(its.read(Path::new(CLAIM)).expect("read"), Some(text));
    }
    its.write(Path::new(CLAIM), &sound).expect("written");
    lab.pass();
    lab.node.pool.usable(id("a")).expect("it is back");
}
