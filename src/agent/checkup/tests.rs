use super::*;
use crate::agent::Reconciler;
use crate::agent::kept_targets::KeptTargets;
use crate::claim::{Rule, sample};
use crate::device::Owner;
use crate::host::fake::{FakeHost, Platter};
use crate::host::{
    ArrayState, DiskWarning, FilesystemState, FsKind, FsUsage, Geometry, Health, IoErrors, TargetAccess, WriteCounts,
};
use crate::pool::{CreateRequest, Selector, VolumeView, WantedUsage, Workers};

mod again;
mod arrays;
mod changes;
mod cordons;
mod filesystems;
mod folders;
mod numbers;
mod paths;

pub(in crate::agent) struct Node {
    pub(in crate::agent) host: Arc<FakeHost>,
    agent: Reconciler,
    pub(in crate::agent) checkup: Checkup,
    board: Board,
    targets: KeptTargets,
    disks: Vec<Arc<Platter>>,
}

/// The md array below this disk lacks so many members.
pub(in crate::agent) fn degrade(host: &FakeHost, disk: &str, lacks: u32) {
    let (level, state) = (Some("raid5".to_owned()), "active".to_owned());
    let array = ArrayState { name: "md127".into(), level, state, degraded: Some(lacks), disks: Some(3) };
    host.set_arrays(disk, vec![array]);
}

pub(in crate::agent) fn node() -> Node {
    node_of(sample::rule("set"))
}

/// A pool of two disks, `fake0` and `fake1`, of which no report is known.
fn node_of(rule: Rule) -> Node {
    node_with(["fake0", "fake1"], rule)
}

fn node_with(names: [&str; 2], rule: Rule) -> Node {
    let host = Arc::new(FakeHost::default());
    let geometry = Geometry { size: 64 << 20, sector: 512, offloads_zeroes: true };
    let disks = names.map(|name| host.add_disk(name, name, geometry)).into();
    running_on(host, disks, rule)
}

/// An agent that has just begun on this machine.
fn running_on(host: Arc<FakeHost>, disks: Vec<Arc<Platter>>, rule: Rule) -> Node {
    begun_on(host, disks, rule, 2)
}

/// The same, as soon as it uses this many disks.
fn begun_on(host: Arc<FakeHost>, disks: Vec<Arc<Platter>>, rule: Rule, usable: usize) -> Node {
    let owner = Owner { cluster: "c".to_owned(), node: "n".into() };
    let pool = Arc::new(Pool::open(host.clone(), owner, Workers::Caller).expect("a pool"));
    let mut agent = Reconciler::new(host.clone(), Arc::clone(&pool), Duration::ZERO, vec![rule]);
    while pool.usable_disks().len() < usable {
        agent.pass().expect("a pass");
    }
    let board = Board::default();
    let mut targets = KeptTargets::new(host.clone(), board.clone());
    targets.recall().expect("read");
    let checkup = Checkup::new(host.clone(), pool, board.clone(), agent.reports());
    agent.reports().all_changed();
    Node { host, agent, checkup, board, targets, disks }
}

impl Node {
    fn checkup(&mut self) -> bool {
        !self.change().is_empty()
    }

    fn change(&mut self) -> HealthChange {
        self.checkup.run(&(Arc::new(|| {}) as Answered))
    }

    /// The kernel name of the disk of a volume.
    fn disk_of(&self, view: &VolumeView) -> &'static str {
        if view.node.to_string_lossy().contains("fake0") { "fake0" } else { "fake1" }
    }

    /// The reasons of the disk with this kernel name; of one that is away, those of the other disk.
    fn reasons(&self, name: &str) -> Vec<String> {
        let path = std::path::Path::new("/dev").join(name);
        let view = self.checkup.pool.disk_views().into_iter().find(|view| view.path == path).expect("in the pool");
        self.board.of_disk(&view).findings().iter().map(|finding| finding.reason.to_string()).collect()
    }
}

fn warning(warning: DiskWarning) -> DiskReport {
    DiskReport { warnings: vec![warning], ..DiskReport::of(Health::Failing("words".to_owned())) }
}

#[test]
fn a_disk_of_the_pool_is_asked_once_an_hour_and_after_an_event_and_what_it_reports_is_seen_and_goes() {
    let mut node = node();
    let asked = node.host.health_asked();
    node.checkup();
    node.host.set_report("fake0", warning(DiskWarning::Unreliable));
    assert!(!node.checkup() && node.host.health_asked() == asked + 2, "each was asked once");
    node.agent.reports().changed(&"fake0".into());
    assert!(node.checkup());
    assert_eq!(node.reasons("fake0"), ["DiskFailing"]);
    assert_eq!(node.reasons("fake1"), [] as [String; 0]);
    assert_eq!(node.host.health_asked(), asked + 3);
    node.host.set_health("fake0", Health::Passed);
    node.host.advance(Duration::from_secs(3600));
    assert!(node.checkup());
    assert_eq!(node.reasons("fake0"), [] as [String; 0]);
    assert_eq!(node.host.health_asked(), asked + 5);
}

#[test]
fn a_counter_of_the_kernel_that_rises_is_seen_at_the_next_checkup_and_goes_when_it_has_stood_still() {
    let mut node = node();
    node.checkup();
    node.host.advance(Duration::from_secs(600));
    node.host.set_io_errors("fake0", IoErrors { errors: 9, timeouts: 0 });
    node.checkup();
    assert_eq!(node.reasons("fake0"), [] as [String; 0], "errors of before are no news");
    node.host.set_io_errors("fake0", IoErrors { errors: 29, timeouts: 0 });
    node.host.advance(Duration::from_secs(60));
    assert!(node.checkup());
    assert_eq!(node.reasons("fake0"), ["DiskIoErrors"]);
    node.host.advance(Duration::from_secs(540));
    assert!(!node.checkup());
    node.host.advance(Duration::from_secs(60));
    assert!(node.checkup());
    assert_eq!(node.reasons("fake0"), [] as [String; 0]);
}

#[test]
fn an_array_that_loses_members_is_a_reason_of_the_disk_on_it_and_of_its_volumes_until_it_is_rebuilt() {
    let mut node = node();
    let view = mounted(&node);
    let (name, other) = if node.disk_of(&view) == "fake0" { ("fake0", "fake1") } else { ("fake1", "fake0") };
    node.checkup();
    for (degraded, reasons) in [(1, vec!["ArrayDegraded"]), (2, vec!["ArrayFailed"]), (0, vec![])] {
        degrade(&node.host, name, degraded);
        assert!(node.checkup());
        assert_eq!(node.reasons(name), reasons);
        assert_eq!(volume_reasons(&node, &view), reasons);
        assert_eq!(node.reasons(other), [] as [String; 0]);
        let cordons = node.checkup.pool.disk_views().into_iter().filter_map(|disk| disk.cordon);
        assert_eq!(cordons.count(), reasons.len(), "it takes no new volumes");
        assert!(!node.checkup(), "nothing changed");
    }
}

#[test]
fn a_disk_that_does_not_answer_delays_no_other_and_is_named_when_it_has_had_its_time() {
    let mut node = node();
    node.disks[0].set_hangs(true);
    node.host.set_report("fake1", warning(DiskWarning::SpareLow));
    node.checkup();
    assert_eq!(node.reasons("fake1"), ["DiskSpareLow"]);
    assert_eq!(node.reasons("fake0"), [] as [String; 0], "it may be asleep");
    node.host.advance(timeout::DEVICE_TIMEOUT);
    assert!(node.checkup());
    assert_eq!(node.reasons("fake0"), ["DiskNotAnswering"]);
    let asked = node.host.health_asked();
    node.checkup();
    assert_eq!(node.host.health_asked(), asked, "it is not asked again before it answers");

    // The answer makes a checkup due.
    let (answered, due) = std::sync::mpsc::channel();
    node.agent.reports().all_changed();
    node.disks[1].set_hangs(true);
    let answered = std::sync::Mutex::new(answered);
    let answered = move || answered.lock().expect("no bug").send(()).expect("somebody waits");
    node.checkup.run(&(Arc::new(answered) as Answered));
    node.disks.iter().for_each(|disk| disk.set_hangs(false));
    due.recv().expect("an answer");
    while node.reasons("fake0") != [] as [String; 0] {
        node.checkup();
    }
}

#[test]
fn a_disk_that_answers_reads_and_ends_no_write_is_named_until_one_ends() {
    let mut node = node();
    let mut reasons_at = |under_way, counted| {
        node.host.set_writes("fake0", WriteCounts { under_way, counted });
        node.host.advance(EVERY);
        node.checkup();
        node.reasons("fake0")
    };
    let reasons =
        [(0, 5), (2, 5), (2, 5), (2, 5), (2, 6)].map(|(under_way, counted)| reasons_at(under_way, counted).join(" "));
    assert_eq!(reasons, ["", "", "", "DiskWritesStuck", "DiskWritesStuck"], "what comes and goes is one change");
    node.host.advance(EVERY * 10);
    node.checkup();
    assert_eq!(node.reasons("fake0"), [""; 0]);
}

#[test]
fn a_stale_report_is_not_called_fresh_and_none_from_before_a_replug_counts() {
    let mut node = node();
    node.host.set_report("fake0", warning(DiskWarning::Unreliable));
    node.checkup();
    assert_eq!(node.reasons("fake0"), ["DiskFailing"]);
    let mut disks = node.checkup.pool.usable_disks().into_iter();
    let (id, raw) = disks.find(|(_, raw)| raw.name == "fake0").expect("it is here");
    let fresh = |node: &Node, raw: &RawDisk| node.agent.reports().fresh(raw, node.host.monotonic(), EVERY).is_some();
    assert!(fresh(&node, &raw));
    node.host.advance(EVERY);
    assert!(!fresh(&node, &raw), "it is as old as it may be");
    assert!(!fresh(&node, &RawDisk { diskseq: Some(99), ..raw }), "it is of another device");

    assert!(node.board.report(&id).is_some());
    let platter = node.host.unplug("fake0").expect("it was there");
    node.agent.pass().expect("a pass");
    node.checkup();
    assert_eq!(node.board.report(&id), None, "it is away");
    node.host.set_health("fake0", Health::Unknown("it says nothing yet".to_owned()));
    node.host.plug("fake0", "fake0", platter);
    while node.checkup.pool.usable_disks().len() < 2 {
        node.agent.pass().expect("a pass");
    }
    node.checkup();
    assert_eq!(node.reasons("fake0"), [] as [String; 0], "the old report is of the device that left");
    assert_eq!(node.board.report(&id), None);
}

#[test]
fn a_disk_that_is_gone_keeps_what_was_wrong_with_it_and_its_counters_begin_again() {
    let mut node = node();
    node.host.set_report("fake0", warning(DiskWarning::Unreliable));
    node.checkup();
    node.host.unplug("fake0");
    node.agent.pass().expect("a pass");
    assert_eq!(node.reasons("fake0"), ["DiskMissing", "DiskFailing"]);
    assert!(node.checkup());
    assert_eq!(node.reasons("fake0"), ["DiskMissing"], "what it reported then is not known of it now");
}

#[test]
fn nvme_disks_and_devices_without_timeouts_are_asked_at_each_checkup_as_no_event_announces_what_happens_to_them() {
    let mut raw = node().checkup.pool.usable_disks().remove(0).1;
    for (name, kept) in [("sda", REMEMBERED_FOR), ("nvme0n1", EVERY), ("vda", EVERY), ("dm-0", EVERY)] {
        raw.name = name.into();
        assert_eq!(keep(&raw), kept, "{name}");
    }
}

/// A volume with ext4, mounted at `/target` for kubelet.
fn mounted(node: &Node) -> VolumeView {
    let view = made(node, WantedUsage::Mount(Some(FsKind::Ext4)));
    node.host.filesystems().make(FsKind::Ext4, &view.node, view.id.uuid()).expect("a filesystem");
    node.host.mounts().mount(&view.node, "/target".as_ref(), FsKind::Ext4, &[]).expect("mounted");
    node.board.mounted(view.id, "/target".as_ref(), node.board.unmounts());
    view
}

/// A block volume, published at `/target` for kubelet.
fn bound(node: &Node) -> VolumeView {
    let view = made(node, WantedUsage::Block);
    node.host.mounts().bind(&view.node, "/target".as_ref(), TargetAccess::ReadWrite).expect("bound");
    node.board.mounted(view.id, "/target".as_ref(), node.board.unmounts());
    view
}

fn made(node: &Node, usage: WantedUsage) -> VolumeView {
    made_as(&node.checkup.pool, "v", usage)
}

fn made_as(pool: &Pool, name: &str, usage: WantedUsage) -> VolumeView {
    let request = CreateRequest {
        id: VolumeId::of_name(name),
        name: format!("pvc-{name}"),
        required: 1 << 20,
        limit: None,
        usage,
        parameters: BTreeMap::new(),
        selector: Selector::default(),
    };
    pool.create(&request).expect("a volume").0
}

fn volume_reasons(node: &Node, view: &VolumeView) -> Vec<String> {
    node.board.of_volume(view).findings().iter().map(|finding| finding.reason.to_string()).collect()
}

#[test]
fn a_filesystem_that_turns_read_only_or_shuts_down_is_seen_and_is_well_again_after_its_repair() {
    let mut node = node();
    let view = mounted(&node);
    node.checkup();
    assert_eq!(volume_reasons(&node, &view), [] as [String; 0]);
    let state = FilesystemState::default();
    for (state, reasons) in [
        (FilesystemState { is_read_only: true, ..state }, vec!["FilesystemReadOnly"]),
        (
            FilesystemState { is_shut_down: true, errors: Some(3), ..state },
            vec!["FilesystemShutDown", "FilesystemErrors"],
        ),
        (state, vec![]),
    ] {
        node.host.set_filesystem_state("/target".as_ref(), state);
        assert!(node.checkup());
        assert_eq!(volume_reasons(&node, &view), reasons);
    }
}

#[test]
fn a_volume_that_somebody_unmounts_is_no_mount_point_and_one_that_kubelet_unmounts_is_well() {
    let mut node = node();
    let view = mounted(&node);
    node.checkup();
    node.host.mounts().unmount("/target".as_ref()).expect("unmounted");
    assert!(node.checkup());
    assert_eq!(volume_reasons(&node, &view), ["NotMountPoint"]);
    node.board.unmounted(view.id, "/target".as_ref());
    assert!(node.checkup());
    assert_eq!(volume_reasons(&node, &view), [] as [String; 0]);
}

#[test]
fn a_disk_that_always_takes_longer_than_a_moment_is_heard_and_is_not_called_silent() {
    let mut node = node();
    node.host.set_report("fake0", warning(DiskWarning::Unreliable));
    let (answered, due) = std::sync::mpsc::channel();
    let answered = std::sync::Mutex::new(answered);
    let answered = move || answered.lock().expect("no bug").send(()).expect("somebody waits");
    let answered: Answered = Arc::new(answered);
    node.disks[0].set_hangs(true);
    node.checkup.run(&answered);
    node.disks[0].set_hangs(false);
    due.recv().expect("an answer");
    // The next question would be as slow.
    node.disks[0].set_hangs(true);
    let asked = node.host.health_asked();
    node.host.advance(timeout::DEVICE_TIMEOUT);
    assert!(!node.checkup.run(&answered).is_empty());
    assert_eq!(node.reasons("fake0"), ["DiskFailing"]);
    assert_eq!(node.host.health_asked(), asked, "the late answer counts");
    node.disks[0].set_hangs(false);
}

#[test]
fn what_was_found_on_a_disk_stays_until_it_has_answered_again() {
    let mut node = node();
    let view = mounted(&node);
    node.host.set_report("fake0", warning(DiskWarning::Unreliable));
    node.host.set_report("fake1", warning(DiskWarning::Unreliable));
    node.host.set_filesystem_state("/target".as_ref(), FilesystemState { is_read_only: true, ..Default::default() });
    node.checkup();
    assert_eq!(volume_reasons(&node, &view), ["FilesystemReadOnly", "DiskFailing"]);
    node.disks.iter().for_each(|disk| disk.set_hangs(true));
    node.host.mounts.gate.set_hangs_at(Some("filesystem_state"));
    node.agent.reports().all_changed();
    assert!(!node.checkup(), "nothing is known to be otherwise");
    assert_eq!(volume_reasons(&node, &view), ["FilesystemReadOnly", "DiskFailing"]);
    // Which mounts there are is known without the disk.
    node.host.mounts().unmount("/target".as_ref()).expect("unmounted");
    assert!(node.checkup());
    assert_eq!(volume_reasons(&node, &view)[0], "NotMountPoint");
    node.disks.iter().for_each(|disk| disk.set_hangs(false));
    node.host.mounts.gate.set_hangs_at(None);
}

#[test]
fn a_filesystem_that_cannot_be_asked_is_as_it_was_when_it_answered_until_it_is_unmounted() {
    let mut node = node();
    let view = mounted(&node);
    node.host.set_filesystem_state("/target".as_ref(), FilesystemState { is_read_only: true, ..Default::default() });
    node.checkup();
    node.host.mounts.set_filesystem_error("/target".as_ref(), Some(nix::libc::EACCES));
    assert!(!node.checkup(), "that says nothing new");
    assert_eq!(volume_reasons(&node, &view), ["FilesystemReadOnly"]);
    node.board.unmounted(view.id, "/target".as_ref());
    node.host.mounts().unmount("/target".as_ref()).expect("unmounted");
    assert!(node.checkup());
    assert_eq!(volume_reasons(&node, &view), [] as [String; 0]);
}

#[test]
fn a_filesystem_that_has_shut_down_is_so_though_it_no_longer_says_what_of_it_is_used() {
    let mut node = node();
    let view = mounted(&node);
    let full = FsUsage { inodes: 10, ..FsUsage::default() };
    node.host.mounts.set_usage("/target".as_ref(), full);
    node.checkup();
    assert_eq!(volume_reasons(&node, &view), ["InodesExhausted"]);
    // As xfs does.
    node.host.set_filesystem_state("/target".as_ref(), FilesystemState { is_shut_down: true, ..Default::default() });
    node.host.mounts.set_usage_error("/target".as_ref(), nix::libc::EIO);
    node.host.advance(Duration::from_secs(600));
    assert!(node.checkup());
    assert_eq!(volume_reasons(&node, &view), ["FilesystemShutDown", "InodesExhausted"]);
    node.host.mounts().unmount("/target".as_ref()).expect("unmounted");
    node.board.unmounted(view.id, "/target".as_ref());
    assert!(node.checkup());
    node.host.advance(Duration::from_secs(600));
    assert!(node.checkup());
    assert_eq!(volume_reasons(&node, &view), [] as [String; 0], "nothing is mounted any more");
}

#[test]
fn a_volume_that_is_published_while_a_checkup_runs_is_not_missed_at_its_target() {
    let mut node = node();
    let view = mounted(&node);
    let (host, board) = (Arc::clone(&node.host), node.board.clone());
    host.mounts.gate.set_hangs_at(Some("filesystem_state"));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            host.mounts.gate.until_somebody_waits();
            host.mounts().bind("/target".as_ref(), "/second".as_ref(), TargetAccess::ReadWrite).expect("bound");
            board.mounted(view.id, "/second".as_ref(), board.unmounts());
            host.mounts.gate.set_hangs_at(None);
        });
        node.checkup();
    });
    assert_eq!(volume_reasons(&node, &view), [] as [String; 0]);
}

#[test]
fn a_disk_that_was_plugged_in_again_has_counted_nothing_under_our_eyes() {
    let mut node = node();
    node.host.set_io_errors("fake0", IoErrors { errors: 1, timeouts: 0 });
    node.checkup();
    let platter = node.host.unplug("fake0").expect("it was there");
    node.agent.pass().expect("a pass");
    node.host.plug("fake0", "fake0", platter);
    while node.checkup.pool.usable_disks().len() < 2 {
        node.agent.pass().expect("a pass");
    }
    node.host.set_io_errors("fake0", IoErrors { errors: 99, timeouts: 0 });
    node.checkup();
    assert_eq!(node.reasons("fake0"), [] as [String; 0]);
}

#[test]
fn a_mount_whose_source_has_another_name_is_looked_at_where_the_volume_is_expected() {
    let mut node = node();
    let view = mounted(&node);
    node.host.mounts.set_source("/target".as_ref(), "/dev/mapper/other");
    node.checkup();
    assert_eq!(volume_reasons(&node, &view), [] as [String; 0]);
    node.host.set_filesystem_state("/target".as_ref(), FilesystemState { is_read_only: true, ..Default::default() });
    assert!(node.checkup());
    assert_eq!(volume_reasons(&node, &view), ["FilesystemReadOnly"]);
}

#[test]
fn a_question_that_fails_once_takes_nothing_back_that_the_disk_reported_before() {
    let mut node = node();
    node.host.set_report("fake0", warning(DiskWarning::Unreliable));
    node.checkup();
    assert_eq!(node.reasons("fake0"), ["DiskFailing"]);
    node.host.set_health("fake0", Health::Unknown("the command failed".to_owned()));
    node.agent.reports().all_changed();
    node.checkup();
    assert_eq!(node.reasons("fake0"), ["DiskFailing"]);
    node.host.set_health("fake0", Health::Passed);
    node.agent.reports().all_changed();
    node.checkup();
    assert_eq!(node.reasons("fake0"), [] as [String; 0]);
}

#[test]
fn a_block_volume_that_is_unmounted_covered_shrunk_or_read_only_is_seen_and_is_well_again() {
    let mut node = node();
    let view = bound(&node);
    let (host, target) = (Arc::clone(&node.host), std::path::Path::new("/target"));
    let mut expect = |reasons: &[&str]| {
        node.checkup();
        assert_eq!(volume_reasons(&node, &view), reasons);
    };
    expect(&[]);
    host.mounts().bind("/dev/null".as_ref(), target, TargetAccess::ReadWrite).expect("bound");
    expect(&["WrongDevice"]);
    host.mounts().unmount(target).expect("unmounted");
    expect(&[]);
    host.mounts().unmount(target).expect("unmounted");
    expect(&["NotMountPoint"]);
    host.mounts().bind(&view.node, target, TargetAccess::ReadWrite).expect("bound");
    host.mounts().set_access(&view.node, TargetAccess::ReadOnly).expect("set");
    expect(&["DeviceReadOnly"]);
    host.mounts().set_access(&view.node, TargetAccess::ReadWrite).expect("set");
    host.mounts.set_device_size(&view.node, view.size - 512);
    expect(&["CapacityAboveDevice"]);
    host.mounts.set_device_size(&view.node, view.size);
    expect(&[]);
}

#[test]
fn a_block_volume_that_is_published_read_only_is_well_on_a_read_only_device() {
    let mut node = node();
    let view = made(&node, WantedUsage::Block);
    node.host.mounts().set_access(&view.node, TargetAccess::ReadOnly).expect("set");
    node.host.mounts().bind(&view.node, "/target".as_ref(), TargetAccess::ReadOnly).expect("bound");
    node.board.mounted(view.id, "/target".as_ref(), node.board.unmounts());
    node.checkup();
    assert_eq!(volume_reasons(&node, &view), [] as [String; 0]);
}

#[test]
fn a_mount_of_a_device_that_left_is_not_the_volume_when_its_disk_is_back_under_another_name() {
    let mut node = node();
    let before = mounted(&node);
    node.checkup();
    let name = node.disk_of(&before);
    let platter = node.host.unplug(name).expect("it was there");
    node.agent.pass().expect("a pass");
    node.host.plug("fake7", name, platter);
    while node.checkup.pool.usable_disks().len() < 2 {
        node.agent.pass().expect("a pass");
    }
    let view = node.checkup.pool.volume(before.id).expect("it is back");
    assert_ne!(view.node, before.node);
    node.checkup();
    assert_eq!(volume_reasons(&node, &view), ["WrongDevice"]);
}

#[test]
fn a_dead_mount_that_has_the_name_of_a_volumes_device_is_not_that_volumes() {
    let mut node = node();
    let view = made(&node, WantedUsage::Mount(Some(FsKind::Ext4)));
    let other = if node.disk_of(&view) == "fake0" { "/dev/fake1" } else { "/dev/fake0" };
    node.host.mounts().mount(other.as_ref(), "/dead".as_ref(), FsKind::Ext4, &[]).expect("mounted");
    node.host.mounts.set_source("/dead".as_ref(), view.node.to_str().expect("text"));
    node.host.set_filesystem_state("/dead".as_ref(), FilesystemState { is_shut_down: true, ..Default::default() });
    node.checkup();
    assert_eq!(volume_reasons(&node, &view), [] as [String; 0]);
}
