//! An agent that starts again: what the one before it has found stays until what must answer for it has answered.

use super::numbers::without_numbers;
use super::*;
use crate::health::{Condition, FoundBy, HealthReason};

/// As an object of an earlier agent has it, which had confirmed it.
fn told(reasons: &[HealthReason]) -> Condition {
    let told = |reason: &HealthReason| Finding {
        found_by: FoundBy::Told(Some("earlier".to_owned())),
        ..Finding::new(reason.clone(), "found before")
    };
    Condition::of(reasons.iter().map(told).collect())
}

fn words(condition: &Condition) -> String {
    condition.findings().iter().map(|finding| finding.reason.to_string()).collect::<Vec<_>>().join(" ")
}

impl Node {
    /// The agent ends, and another one begins on the same machine.
    fn again(self) -> Self {
        let Self { host, agent, checkup, board: _, mut targets, disks } = self;
        targets.keep().expect("kept");
        drop((agent, checkup));
        running_on(host, disks, sample::rule("set"))
    }

    /// What the object of a disk shows that had these.
    fn shows(&self, name: &str, before: &[HealthReason]) -> String {
        let path = std::path::Path::new("/dev").join(name);
        let view = self.checkup.pool.disk_views().into_iter().find(|view| view.path == path).expect("in the pool");
        words(&self.board.of_disk(&view).after(&told(before)))
    }

    fn shows_of(&self, view: &VolumeView, before: &[HealthReason]) -> String {
        words(&self.board.of_volume(view).after(&told(before)))
    }
}

/// A node that starts again, with a volume that is mounted, and the names of its disk and of the other one.
fn mounted_again() -> (Node, VolumeView, &'static str, &'static str) {
    let node = node();
    let view = mounted(&node);
    let names = if node.disk_of(&view) == "fake0" { ("fake0", "fake1") } else { ("fake1", "fake0") };
    (node.again(), view, names.0, names.1)
}

/// Of these and the next ones, those that are no longer held after their cause went.
const OF_REPORT: [HealthReason; 4] =
    [HealthReason::DiskReadOnly, HealthReason::DiskFailing, HealthReason::DiskSpareLow, HealthReason::DiskWornOut];
const OF_FILESYSTEM: [HealthReason; 6] = [
    HealthReason::WrongDevice,
    HealthReason::DeviceReadOnly,
    HealthReason::CapacityAboveDevice,
    HealthReason::FilesystemReadOnly,
    HealthReason::FilesystemShutDown,
    HealthReason::FilesystemErrors,
];
/// What comes and goes: of a report, of the kernel, and of a filesystem.
const HELD: [HealthReason; 4] = [
    HealthReason::DiskMediaErrors,
    HealthReason::DiskIoErrors,
    HealthReason::DiskTemperature,
    HealthReason::InodesExhausted,
];

#[test]
fn a_filesystem_that_was_repaired_is_well_while_the_report_of_its_disk_hangs() {
    let (mut node, view, name, other) = mounted_again();
    assert_eq!(node.shows_of(&view, &OF_FILESYSTEM), words(&told(&OF_FILESYSTEM)), "nobody has looked");
    node.disks.iter().for_each(|disk| disk.set_hangs_at(Some("report")));
    assert!(node.checkup());
    assert_eq!(node.shows_of(&view, &OF_FILESYSTEM), "");
    assert_eq!(node.shows_of(&view, &OF_REPORT), words(&told(&OF_REPORT)));
    assert_eq!(node.shows(name, &OF_REPORT), words(&told(&OF_REPORT)));
    let at_once = [HealthReason::ArrayFailed, HealthReason::ArrayDegraded, HealthReason::NotMountPoint];
    assert_eq!(node.shows_of(&view, &at_once), "", "the kernel has answered");

    node.host.set_health(name, Health::Passed);
    node.host.set_report(other, warning(DiskWarning::SpareLow));
    node.disks.iter().for_each(|disk| disk.set_hangs_at(None));
    while node.reasons(other).is_empty() || !node.shows(name, &OF_REPORT).is_empty() {
        node.checkup();
    }
    assert_eq!(node.shows(other, &OF_REPORT), "DiskSpareLow", "and what still holds is found again");
    assert_eq!(node.shows_of(&view, &OF_REPORT), "");
    assert!(!node.checkup(), "and then nothing changes any more");
}

#[test]
fn a_disk_whose_reports_come_and_whose_filesystem_hangs_does_still_not_answer() {
    let (mut node, view, name, other) = mounted_again();
    let silent = [HealthReason::DiskNotAnswering, HealthReason::DiskFailing, HealthReason::FilesystemErrors];
    node.host.set_health(name, Health::Passed);
    node.host.mounts.gate.set_hangs_at(Some("filesystem_state"));
    node.checkup();
    assert_eq!(node.shows(name, &silent[..2]), "DiskNotAnswering", "its report is there");
    assert_eq!(node.shows_of(&view, &silent), "DiskNotAnswering FilesystemErrors");
    assert_eq!(node.shows(other, &silent[..1]), "", "it owes nothing");
    node.host.advance(timeout::DEVICE_TIMEOUT);
    assert!(node.checkup());
    let found = node.board.of_volume(&view).after(&told(&silent));
    assert_eq!(words(&found), "DiskNotAnswering FilesystemErrors", "once");
    assert_eq!(found.findings()[0].found_by, FoundBy::Itself, "this process has found it, too");
    node.host.mounts.gate.set_hangs_at(None);
    while !node.shows_of(&view, &silent).is_empty() {
        node.checkup();
    }
}

#[test]
fn a_question_that_fails_ends_what_says_that_the_disk_does_not_answer_and_nothing_else() {
    let mut node = node().again();
    node.host.set_health("fake0", Health::Unknown("the command failed".to_owned()));
    node.checkup();
    assert_eq!(node.shows("fake0", &[HealthReason::DiskNotAnswering, HealthReason::DiskFailing]), "DiskFailing");
    node.host.set_health("fake0", Health::Passed);
    node.agent.reports().all_changed();
    assert!(node.checkup());
    assert_eq!(node.shows("fake0", &[HealthReason::DiskNotAnswering, HealthReason::DiskFailing]), "");

    node.host.set_health("fake0", Health::Unknown("the command failed".to_owned()));
    node.agent.reports().all_changed();
    node.checkup();
    assert_eq!(node.shows("fake0", &[HealthReason::DiskFailing]), "", "it has reported once, and that counts");
}

#[test]
fn a_disk_whose_questions_all_fail_for_an_hour_cannot_report_and_is_not_asked_more_often_than_any_other() {
    let mut node = node_with(["sda", "sdb"], sample::rule("set")).again();
    node.host.set_health("sda", Health::Unknown("DID_ERROR".to_owned()));
    node.host.set_health("sdb", Health::Passed);
    let asked = node.host.health_asked();
    for minute in 0..60 {
        node.checkup();
        assert_eq!(node.shows("sda", &OF_REPORT), words(&told(&OF_REPORT)), "minute {minute}");
        assert_eq!(node.host.health_asked(), asked + 2, "one that sleeps would be woken");
        node.host.advance(EVERY);
    }
    assert!(node.checkup());
    assert_eq!(node.host.health_asked(), asked + 4);
    assert_eq!(node.shows("sda", &OF_REPORT), "");
}

#[test]
fn a_filesystem_that_cannot_be_read_has_not_answered() {
    let (mut node, view, ..) = mounted_again();
    node.host.mounts.set_filesystem_error("/target".as_ref(), Some(nix::libc::EACCES));
    node.checkup();
    let sick = [HealthReason::FilesystemReadOnly, HealthReason::DiskNotAnswering];
    assert_eq!(node.shows_of(&view, &sick), "FilesystemReadOnly", "the question has ended");
    node.host.mounts.set_filesystem_error("/target".as_ref(), None);
    assert!(node.checkup());
    assert_eq!(node.shows_of(&view, &sick), "");
}

#[test]
fn a_filesystem_that_was_repaired_is_well_though_a_question_at_one_of_its_mounts_fails_each_time() {
    let (mut node, view, ..) = mounted_again();
    node.host.mounts().bind("/target".as_ref(), "/other".as_ref(), TargetAccess::ReadWrite).expect("bound");
    node.host.mounts.set_filesystem_error("/other".as_ref(), Some(nix::libc::EACCES));
    node.checkup();
    let of_mounts = &OF_FILESYSTEM[..1];
    assert_eq!(node.shows_of(&view, &OF_FILESYSTEM), words(&told(of_mounts)), "what covers that mount nobody knows");
    node.host.mounts.set_filesystem_error("/other".as_ref(), None);
    node.host.mounts.set_filesystem_error("/target".as_ref(), Some(nix::libc::EACCES));
    assert!(!node.checkup(), "the same is known as before");
    node.host.mounts.set_filesystem_error("/target".as_ref(), None);
    assert!(node.checkup());
    assert_eq!(node.shows_of(&view, &OF_FILESYSTEM), "");
}

#[test]
fn another_incarnation_of_a_disk_has_answered_nothing_yet() {
    let (mut node, view, name, other) = mounted_again();
    let sick = [HealthReason::DiskFailing, HealthReason::FilesystemErrors, HealthReason::DiskNotAnswering];
    let (first, all) = (&sick[..1], words(&told(&sick)));
    node.host.set_health(name, Health::Passed);
    // The filesystem owes an answer when its disk leaves, and gives it when the disk is back.
    node.host.mounts.gate.set_hangs_at(Some("filesystem_state"));
    let (answered, due) = std::sync::mpsc::channel();
    let answered = std::sync::Mutex::new(answered);
    let answered: Answered = Arc::new(move || answered.lock().expect("no bug").send(()).expect("somebody waits"));
    node.checkup.run(&answered);
    node.host.mounts.gate.until_somebody_waits();
    assert_eq!(node.shows(name, first), "");
    let platter = node.host.unplug(name).expect("it was there");
    node.agent.pass().expect("a pass");
    platter.set_hangs_at(Some("report"));
    node.host.plug(name, name, Arc::clone(&platter));
    while node.checkup.pool.usable_disks().len() < 2 {
        node.agent.pass().expect("a pass");
    }
    node.host.mounts.gate.set_hangs_at(None);
    due.recv().expect("an answer");
    node.checkup.run(&answered);
    assert_eq!(node.shows(name, first), "DiskFailing", "the report was one of the disk that left");
    assert_eq!(node.shows_of(&view, &sick), all, "and so was the late answer");
    assert_eq!(node.shows(other, &sick[2..]), "");
    platter.set_hangs_at(None);
    while !node.shows_of(&view, &sick).is_empty() {
        node.checkup();
    }
}

#[test]
fn a_loss_that_nobody_has_confirmed_ends_with_the_first_checkup_as_it_did_in_earlier_versions() {
    let mut node = node().again();
    let earlier = [HealthReason::DiskReadOnly, HealthReason::DiskFailing];
    let unconfirmed = |reason: &HealthReason| Finding {
        found_by: FoundBy::Told(None),
        ..Finding::new(reason.clone(), "found by an agent of an earlier version")
    };
    let before = Condition::of(earlier.iter().map(unconfirmed).collect());
    let view = node.checkup.pool.disk_views().remove(0);
    assert_eq!(words(&node.board.of_disk(&view).after(&before)), "DiskReadOnly DiskFailing");
    node.checkup();
    assert_eq!(words(&node.board.of_disk(&view).after(&before)), "DiskFailing", "its controller counts each loss");
}

#[test]
fn a_disk_that_appears_after_the_first_checkup_has_not_answered_either() {
    let node = node();
    node.host.set_health("fake1", Health::Passed);
    let platter = node.host.unplug("fake1").expect("it was there");
    let mut node = Node { disks: vec![Arc::clone(&node.disks[0]), platter], ..node };
    node.agent.pass().expect("a pass");
    node.checkup();
    let view = node.checkup.pool.disk_views().into_iter().find(|view| view.path.ends_with("fake1"));
    let view = view.expect("the journal knows it");
    let shows = |node: &Node| words(&node.board.of_disk(&view).after(&told(&[HealthReason::DiskWornOut])));
    node.host.plug("fake1", "fake1", Arc::clone(&node.disks[1]));
    while node.checkup.pool.usable_disks().len() < 2 {
        node.agent.pass().expect("a pass");
    }
    assert!(shows(&node).ends_with("DiskWornOut"), "{}", shows(&node));
    node.checkup();
    assert!(!shows(&node).contains("DiskWornOut"), "{}", shows(&node));
}

#[test]
fn a_disk_that_does_not_answer_for_its_numbers_is_as_worn_as_an_earlier_agent_found_and_not_as_unfit() {
    let (mut node, view, name, _) = mounted_again();
    let sick = [HealthReason::DiskFailing, HealthReason::DiskWornOut];
    node.host.set_report(name, without_numbers());
    node.checkup();
    assert_eq!((node.shows(name, &sick), node.shows_of(&view, &sick)), ("DiskWornOut".into(), "DiskWornOut".into()));
    node.host.advance(REMEMBERED_FOR);
    node.checkup();
    assert_eq!(node.shows(name, &sick), "", "it cannot answer for them");
    let mut node = node.again();
    node.host.set_report(name, DiskReport::of(Health::Passed));
    node.checkup();
    assert_eq!(node.shows(name, &sick), "", "it has answered");
}

/// What somebody unmounted of the volume of a node that starts again, and whether its target is there.
fn lost_again() -> (Node, VolumeView) {
    let node = node();
    let view = mounted(&node);
    node.host.mounts.set_path_state("/target".as_ref(), crate::host::PathState::Other);
    node.host.mounts().unmount("/target".as_ref()).expect("unmounted");
    (node.again(), view)
}

#[test]
fn a_volume_that_somebody_unmounted_is_missed_by_the_next_agent_until_kubelet_unmounts_it() {
    let (mut node, view) = lost_again();
    assert!(node.checkup());
    assert_eq!(volume_reasons(&node, &view), ["NotMountPoint"]);
    node.board.unmounted(view.id, "/target".as_ref());
    assert!(node.checkup());
    assert_eq!(node.shows_of(&view, &[HealthReason::NotMountPoint]), "");
    let mut node = node.again();
    node.checkup();
    assert_eq!(volume_reasons(&node, &view), [""; 0]);
}

#[test]
fn nothing_is_said_of_a_mount_before_it_is_known_where_volumes_were_mounted() {
    let (mut node, view) = lost_again();
    // As a board whose document cannot be read.
    node.board = Board::default();
    let reports = node.agent.reports();
    node.checkup = Checkup::new(node.host.clone(), Arc::clone(&node.checkup.pool), node.board.clone(), reports);
    node.host.state.set_unreadable(true);
    let mut targets = KeptTargets::new(node.host.clone(), node.board.clone());
    targets.recall().expect_err("it cannot be read");
    node.checkup();
    let lost = [HealthReason::NotMountPoint];
    assert_eq!((node.shows_of(&view, &lost), volume_reasons(&node, &view)), ("NotMountPoint".to_owned(), vec![]));
    node.host.state.set_unreadable(false);
    targets.recall().expect("read");
    assert!(node.checkup());
    assert_eq!(volume_reasons(&node, &view), ["NotMountPoint"]);
}

#[test]
fn a_volume_whose_disk_is_away_when_the_agent_starts_is_missed_when_it_is_back() {
    let node = node();
    let view = mounted(&node);
    let name = node.disk_of(&view);
    node.host.mounts.set_path_state("/target".as_ref(), crate::host::PathState::Other);
    node.host.mounts().unmount("/target".as_ref()).expect("unmounted");
    let platter = node.host.unplug(name).expect("it was there");
    let Node { host, agent, checkup, board: _, mut targets, disks } = node;
    targets.keep().expect("kept");
    drop((agent, checkup));
    let mut node = begun_on(host, disks, sample::rule("set"), 1);
    node.checkup();
    assert_eq!(node.board.targets(view.id), [PathBuf::from("/target")].into(), "its disk may have it");
    node.host.plug(name, name, platter);
    while node.checkup.pool.usable_disks().len() < 2 {
        node.agent.pass().expect("a pass");
    }
    node.checkup();
    assert_eq!(volume_reasons(&node, &view), ["NotMountPoint"]);
}

#[test]
fn what_comes_and_goes_is_held_for_ten_minutes_from_the_first_checkup_of_the_next_agent_on_with_its_time() {
    let (mut node, view, name, _) = mounted_again();
    node.host.set_health(name, Health::Passed);
    // An agent may have to wait for its first checkup.
    node.host.advance(Duration::from_secs(3600));
    node.checkup();
    let since = Some(Timestamp::from_second(5).expect("a time"));
    let told = |reason: &HealthReason| Finding { since, ..Finding::new(reason.clone(), "it was so") };
    let before = Condition::of(HELD.iter().map(told).collect());
    let shown = |node: &Node| node.board.of_volume(&view).after(&before).findings().to_vec();
    assert_eq!(shown(&node), before.findings(), "all have answered");
    node.host.advance(Duration::from_secs(599));
    assert!(!node.checkup());
    assert_eq!(shown(&node), before.findings());
    node.host.advance(Duration::from_secs(1));
    let change = node.change();
    assert!(change.disks.contains(&view.disk) && change.volumes.contains(&view.id), "{change:?}");
    assert_eq!(shown(&node), []);
    assert_eq!(node.shows(name, &HELD[..3]), "");
    node.host.advance(Duration::from_secs(600));
    assert!(!node.checkup(), "it is over once");
}

#[test]
fn what_is_held_and_nobody_has_answered_stays_longer_and_what_is_found_again_is_held_again() {
    let (mut node, view, name, _) = mounted_again();
    node.disks.iter().for_each(|disk| disk.set_hangs_at(Some("report")));
    node.host.set_io_errors(name, IoErrors { errors: 0, timeouts: 0 });
    node.checkup();
    node.host.advance(Duration::from_secs(300));
    node.host.set_io_errors(name, IoErrors { errors: 0, timeouts: 1 });
    node.checkup();
    node.host.advance(Duration::from_secs(300));
    node.checkup();
    let shown = node.board.of_volume(&view).after(&told(&HELD));
    let kept: Vec<_> = shown.findings().iter().filter(|finding| HELD.contains(&finding.reason)).collect();
    let kept: Vec<_> = kept.iter().map(|finding| (finding.reason.word(), &finding.found_by)).collect();
    let earlier = FoundBy::Told(Some("earlier".to_owned()));
    let expected = [("DiskMediaErrors", &earlier), ("DiskIoErrors", &FoundBy::Itself), ("DiskTemperature", &earlier)];
    assert_eq!(kept, expected);
    node.disks.iter().for_each(|disk| disk.set_hangs_at(None));
}

#[test]
fn writes_that_an_earlier_agent_found_stuck_are_stuck_until_one_ends_and_then_for_ten_minutes() {
    let (mut node, view, name, other) = mounted_again();
    let stuck = [HealthReason::DiskWritesStuck];
    let checkup_at = |node: &mut Node, seconds, under_way, counted| {
        node.host.advance(Duration::from_secs(seconds));
        node.host.set_writes(name, WriteCounts { under_way, counted });
        let changed = node.checkup();
        (changed, node.shows(name, &stuck), node.shows_of(&view, &stuck))
    };
    let word = || "DiskWritesStuck".to_owned();
    checkup_at(&mut node, 0, 2, 7);
    // The pods write on, and nothing ends. What is held would be over by now.
    assert_eq!(checkup_at(&mut node, 3600, 2, 7), (true, word(), word()));
    assert_eq!(checkup_at(&mut node, 60, 2, 7), (false, word(), word()));
    assert_eq!(node.shows(other, &stuck), "", "that has no write under way");
    assert_eq!(checkup_at(&mut node, 60, 1, 8), (true, String::new(), String::new()), "one has ended");
    assert_eq!(checkup_at(&mut node, 600, 1, 8), (false, String::new(), String::new()));

    let mut node = node.again();
    node.host.set_writes(name, WriteCounts { under_way: 1, counted: 8 });
    node.checkup();
    node.host.set_writes(name, WriteCounts { under_way: 0, counted: 9 });
    assert!(node.checkup());
    assert_eq!(node.shows(name, &stuck), "DiskWritesStuck", "it is held");
    node.host.advance(Duration::from_secs(600));
    assert!(node.checkup());
    assert_eq!(node.shows(name, &stuck), "");
}
