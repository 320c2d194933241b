//! Each reason that a checkup finds, on a whole node: it is caused, every object that has room for it tells it, and
//! none any more after its repair. A new reason of a checkup needs a cause here. The monitor writes to all objects, so
//! each of these tests is alone.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::PersistentVolume;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use localpool::api::crd::{CLAIM_UID_ANNOTATION, DevicePool, DevicePoolStatus, DiskStatus, HealthEntry};
use localpool::health::{HealthReason, LossScope, REASONS, ReasonRow, Severity, Source, Subject};
use localpool::host::fake::FakeHost;
use localpool::host::{
    ArrayState, DiskReport, DiskWarning, FilesystemState, FsKind, FsUsage, Geometry, Health, Host as _, IoErrors,
    Mounted, PathState, TargetAccess, TargetKind, WriteCounts,
};
use localpool::volume::{DRIVER_NAME, VolumeId};
use localpool_testing::{MIB, found_async};
use serde_json::json;

use crate::agent::{Stage, TIMEOUT, on, unique};
use crate::cluster;
use crate::events::{events, events_by_uid};
use crate::leader::{namespace, until};
use crate::marks::{annotations, monitor, next_checkup, persistent, ready};
use crate::nodes::{make, object, offering, set};
use crate::silent::{AgentPod, lead_after};
use crate::sim::SimNode;

/// A reason, and what has it: a volume that is mounted, alone on its disk; or a path.
pub struct Case {
    pub row: &'static ReasonRow,
    /// The PersistentVolume.
    pub name: String,
    pub place: Place,
}

pub enum Place {
    Disk { id: VolumeId, disk: String, node: PathBuf, size: u64, target: PathBuf, claim: String },
    Path(PathBuf),
}

fn reports(warning: DiskWarning) -> DiskReport {
    DiskReport { warnings: vec![warning], ..DiskReport::of(Health::Failing("words".to_owned())) }
}

/// What every disk reports that is well. It has a past.
fn well() -> DiskReport {
    DiskReport { media_errors: Some(5), ..DiskReport::of(Health::Passed) }
}

fn array(lacks: u32) -> Vec<ArrayState> {
    let (level, state) = (Some("raid5".to_owned()), "active".to_owned());
    vec![ArrayState { name: "md127".into(), level, state, degraded: Some(lacks), disks: Some(3) }]
}

impl Case {
    /// Causes it, or repairs it.
    pub fn play(&self, host: &FakeHost, is_sick: bool) {
        let mounts = host.mounts();
        let (disk, node, size, target) = match &self.place {
            Place::Disk { disk, node, size, target, .. } => (disk.as_str(), node.as_path(), *size, target.as_path()),
            Place::Path(path) => return self.play_path(host, path, is_sick),
        };
        let report = |sick: DiskReport| host.set_report(disk, if is_sick { sick } else { well() });
        let state = |sick: FilesystemState| {
            host.set_filesystem_state(target, if is_sick { sick } else { FilesystemState::default() });
        };
        match self.row.word {
            "DiskNotAnswering" => host.platter(disk).expect("a disk").set_hangs_at(is_sick.then_some("report")),
            "DiskWritesStuck" => {
                let (under_way, counted) = if is_sick { (2, 5) } else { (0, 7) };
                host.set_writes(disk, WriteCounts { under_way, counted });
            }
            "DiskReadOnly" => report(reports(DiskWarning::ReadOnly)),
            "DiskFailing" => report(reports(DiskWarning::Unreliable)),
            "DiskSpareLow" => report(reports(DiskWarning::SpareLow)),
            "DiskTemperature" => report(reports(DiskWarning::Temperature)),
            "DiskWornOut" => report(DiskReport { used_percent: Some(104), ..well() }),
            "ArrayFailed" => host.set_arrays(disk, array(if is_sick { 2 } else { 0 })),
            "ArrayDegraded" => host.set_arrays(disk, array(u32::from(is_sick))),
            // These rise as long as it is sick.
            "DiskMediaErrors" | "DiskIoErrors" => {}
            "NotMountPoint" if is_sick => mounts.unmount(target).expect("unmounted"),
            "NotMountPoint" => mounts.mount(node, target, FsKind::Ext4, &[]).expect("mounted"),
            "WrongDevice" if is_sick => {
                mounts.bind("/dev/null".as_ref(), target, TargetAccess::ReadWrite).expect("bound");
            }
            "WrongDevice" => mounts.unmount(target).expect("unmounted"),
            "DeviceReadOnly" => {
                let access = if is_sick { TargetAccess::ReadOnly } else { TargetAccess::ReadWrite };
                mounts.set_access(node, access).expect("set");
            }
            "CapacityAboveDevice" => host.mounts.set_device_size(node, size - u64::from(is_sick) * 512),
            "FilesystemReadOnly" => state(FilesystemState { is_read_only: true, ..FilesystemState::default() }),
            "FilesystemShutDown" => state(FilesystemState { is_shut_down: true, ..FilesystemState::default() }),
            "FilesystemErrors" => state(FilesystemState { errors: Some(3), ..FilesystemState::default() }),
            "InodesExhausted" => {
                let inodes_free = u64::from(!is_sick);
                host.mounts.set_usage(target, FsUsage { inodes: 10, inodes_free, ..FsUsage::default() });
            }
            other => panic!("nobody knows how to cause {other}"),
        }
    }

    fn play_path(&self, host: &FakeHost, path: &Path, is_sick: bool) {
        let directory = |size, filesystem| PathState::Directory {
            mounted: Mounted::Part,
            device_size: Some(size),
            usage: FsUsage::default(),
            filesystem: Some(filesystem),
        };
        let well = FilesystemState::default();
        let size = 1 << 30;
        let sick = match self.row.word {
            "HostPathNotExist" => PathState::Absent,
            "MisMatchedVolSize" => directory(size - 1, well),
            "FilesystemReadOnly" => directory(size, FilesystemState { is_read_only: true, ..well }),
            "FilesystemShutDown" => directory(size, FilesystemState { is_shut_down: true, ..well }),
            "FilesystemErrors" => directory(size, FilesystemState { errors: Some(3), ..well }),
            other => panic!("nobody knows how to cause {other}"),
        };
        host.mounts.set_path_state(path, if is_sick { sick } else { directory(size, well) });
    }

    /// What counts up while it is sick.
    fn rises(&self, host: &FakeHost, tick: u64) {
        let Place::Disk { disk, .. } = &self.place else { return };
        match self.row.word {
            "DiskMediaErrors" => host.set_report(disk, DiskReport { media_errors: Some(5 + tick), ..well() }),
            "DiskIoErrors" => host.set_io_errors(disk, IoErrors { errors: 20 * tick, timeouts: 0 }),
            _ => {}
        }
    }

    pub fn reason(&self) -> HealthReason {
        HealthReason::from(self.row.word.to_owned())
    }

    /// `false`: it is another one's, or the reason is none of a disk.
    fn is_of(&self, disk: &DiskStatus) -> bool {
        let is_here = |name: &str| disk.path == format!("/dev/{name}");
        matches!(&self.place, Place::Disk { disk, .. } if is_here(disk)) && self.row.subject == Subject::Disk
    }
}

/// What the objects say of one case.
#[derive(Debug, PartialEq)]
struct Shown {
    health: Vec<(String, String)>,
    /// Status and reason of the condition, and the word for people.
    healthy: Option<(String, String, Option<String>)>,
    marks: BTreeSet<String>,
    /// About the claim.
    events: Vec<String>,
}

/// What they must say, and once it was sick.
fn expected(case: &Case, is_sick: bool) -> Shown {
    let row = case.row;
    let word = |word: &str| word.to_owned();
    let mut marks = BTreeSet::new();
    if is_sick && row.marks() {
        marks.insert(word("FirstMarkTime"));
        // The proposal has one word for both.
        marks.insert(word(if row.word == "CapacityAboveDevice" { "MisMatchedVolSize" } else { row.word }));
        let is_lost = match (&case.place, case.reason().loss()) {
            (_, LossScope::All) | (Place::Disk { .. }, LossScope::Own) | (Place::Path(_), LossScope::Paths) => true,
            (_, LossScope::Never | LossScope::Own | LossScope::Paths) => false,
        };
        marks.extend(is_lost.then(|| word("localpool.dev/unusable-since")));
    }
    let is_volume = matches!(case.place, Place::Disk { .. });
    let state = if is_sick && row.severity >= Severity::Inaccessible { "Unusable" } else { "Ready" };
    let healthy = if is_sick { ("False", row.word) } else { ("True", "Healthy") };
    let mut events: Vec<String> = vec![format!("{} x1", row.word)];
    if !is_sick {
        events.push(word("VolumeRecovered x1"));
    }
    events.sort();
    Shown {
        health: is_sick.then(|| (word(row.word), word(row.severity.word()))).into_iter().collect(),
        healthy: is_volume.then(|| (word(healthy.0), word(healthy.1), Some(word(state)))),
        marks,
        events: if is_volume { events } else { Vec::new() },
    }
}

fn words(health: &[HealthEntry]) -> Vec<(String, String)> {
    assert!(health.iter().all(|entry| entry.since.is_some() && !entry.message.is_empty()), "{health:?}");
    health.iter().map(|entry| (entry.reason.clone(), entry.severity.clone())).collect()
}

fn condition<'c>(all: &'c [Condition], kind: &str) -> Option<&'c Condition> {
    all.iter().find(|condition| condition.type_ == kind)
}

/// What all objects say of each case.
async fn told(stage: &Stage, node: &str, cases: &[Case]) -> Vec<Shown> {
    let (events, status) = (events_by_uid(stage).await, pool(stage, node).await.1);
    let one = async |case: &Case| {
        let marks = annotations(&stage.client, &case.name).await.into_keys().collect();
        match &case.place {
            Place::Disk { id, claim, .. } => {
                let status = stage.objects.get(&id.to_string()).await.expect("there").status.expect("set");
                let healthy = condition(&status.conditions, "Healthy");
                let healthy = healthy.map(|healthy| (healthy.status.clone(), healthy.reason.clone(), status.state));
                let events = events.get(claim).into_iter().flatten().map(|(event, _)| event.clone()).collect();
                Shown { health: words(&status.health), healthy, marks, events }
            }
            Place::Path(_) => {
                let found = status.persistent_volumes.iter().find(|found| found.name == case.name);
                let health = found.map(|found| words(&found.health)).unwrap_or_default();
                Shown { health, healthy: None, marks, events: Vec::new() }
            }
        }
    };
    futures::future::join_all(cases.iter().map(one)).await
}

pub async fn pool(stage: &Stage, node: &str) -> (String, DevicePoolStatus) {
    let pool = Api::<DevicePool>::all(stage.client.clone()).get(node).await.expect("there");
    (pool.uid().expect("stored"), pool.status.unwrap_or_default())
}

/// Waits until all objects say what they must, while the clock of the machine goes on and its agent does checkups.
pub async fn all_tell(stage: &Stage, node: &SimNode, cases: &[Case], is_sick: bool) {
    let mut tick = 0;
    let mut poll = async || {
        tick += 1;
        for case in cases.iter().filter(|_| is_sick) {
            case.rises(&node.host, tick);
        }
        // What comes and goes stays for ten minutes.
        node.host.advance(Duration::from_secs(if is_sick { 60 } else { 601 }));
        next_checkup(node);
        let mut wrong = Vec::new();
        for (case, found) in cases.iter().zip(told(stage, &node.name, cases).await) {
            let expected = expected(case, is_sick);
            if found != expected {
                wrong.push(format!("{}: {found:?}, not {expected:?}", case.row.word));
            }
        }
        if wrong.is_empty() { Ok(()) } else { Err(wrong) }
    };
    let mut last = Vec::new();
    let told = async {
        while let Err(wrong) = poll().await {
            last = wrong;
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    };
    let in_time = tokio::time::timeout(TIMEOUT, told).await;
    in_time.unwrap_or_else(|_| panic!("sick: {is_sick}; {}", last.join("\n")));
}

/// What the DevicePool says of its disks, and the Events about them.
async fn pool_tells(stage: &Stage, node: &str, cases: &[Case], is_sick: bool) {
    let sick: Vec<&Case> = cases.iter().filter(|case| is_sick && case.row.subject == Subject::Disk).collect();
    let poll = async || {
        let (uid, status) = pool(stage, node).await;
        let mut wrong = Vec::new();
        for disk in &status.disks {
            let case = sick.iter().find(|case| case.is_of(disk));
            let expected: Vec<(String, String)> =
                case.iter().map(|case| (case.row.word.to_owned(), case.row.severity.word().to_owned())).collect();
            let cordons = case.is_some_and(|case| case.reason().cordons());
            if words(&disk.health) != expected || disk.cordon.is_some() != cordons {
                wrong.push(format!("{disk:?}, not {expected:?}"));
            }
        }
        let healthy = condition(&status.conditions, "DisksHealthy").expect("said");
        let found = (healthy.status.as_str(), healthy.reason.as_str(), status.unhealthy_disks);
        let count = i64::try_from(sick.len()).expect("few");
        let expected = match is_sick {
            // The first of the worst.
            true => ("False", "DiskNotAnswering", count),
            false => ("True", "Healthy", 0),
        };
        let begins = format!("{count} of {} disks: ", status.disks.len());
        if found != expected || (is_sick && !healthy.message.starts_with(&begins)) {
            wrong.push(format!("{healthy:?}, not {expected:?}"));
        }
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        for (event, _) in events(stage, &uid).await {
            *counts.entry(event).or_default() += 1;
        }
        for case in cases.iter().filter(|case| case.row.subject == Subject::Disk) {
            let event = format!("{} x1", case.row.word);
            if counts.get(&event) != Some(&1) {
                wrong.push(format!("{event} is not once in {counts:?}"));
            }
        }
        let of_disks = cases.iter().filter(|case| case.row.subject == Subject::Disk);
        let (disks, cordoned) = (of_disks.clone().count(), of_disks.filter(|case| case.reason().cordons()).count());
        for (event, count) in
            [("DiskCordoned x1", cordoned), ("DiskRecovered x1", disks), ("DiskUncordoned x1", cordoned)]
        {
            let count = if is_sick && event != "DiskCordoned x1" { 0 } else { count };
            if counts.get(event).copied().unwrap_or(0) != count {
                wrong.push(format!("{event} is not {count} times in {counts:?}"));
            }
        }
        if wrong.is_empty() { Ok(()) } else { Err(wrong) }
    };
    let told = found_async(TIMEOUT, Duration::from_millis(500), poll).await;
    told.unwrap_or_else(|wrong| panic!("sick: {is_sick}; {}", wrong.join("\n")));
}

/// The reasons of paths, and those of volumes and their disks.
fn rows() -> [Vec<&'static ReasonRow>; 2] {
    let of_checkups = REASONS.iter().filter(|row| row.source == Source::Checkup);
    let (paths, volumes) = of_checkups.partition(|row| row.subject == Subject::PersistentVolume);
    [paths, volumes]
}

/// A path, or a disk with a mounted volume, for each reason; all are well.
pub async fn cases(stage: &Stage, label: &str, node: &SimNode) -> Vec<Case> {
    let [paths, volumes] = rows();
    let names: Vec<String> = volumes.iter().map(|_| unique("pvc")).collect();
    let making = names.iter().map(|name| make(stage, label, name, on(&node.name), 32));
    let made = futures::future::join_all(making).await;
    let mut cases = Vec::new();
    for ((row, name), made) in volumes.into_iter().zip(names).zip(made) {
        let id = made.unwrap_or_else(|error| panic!("{name}: {error}")).id;
        let view = node.pool().usable(id).expect("made");
        let disk = node.pool().disk_views().into_iter().find(|disk| disk.id == view.disk).expect("it has one").path;
        let disk = disk.file_name().expect("a name").to_string_lossy().into_owned();
        let target = PathBuf::from(format!("/pods/{name}"));
        node.host.filesystems().make(FsKind::Ext4, &view.node, id.uuid()).expect("a filesystem");
        node.host.mounts().mount(&view.node, &target, FsKind::Ext4, &[]).expect("mounted");
        node.host.mounts().make_target(&target, TargetKind::Directory).expect("made");
        node.board.mounted(id, &target, node.board.unmounts());
        let claim = unique("uid");
        let spec = json!({
            "csi": {"driver": DRIVER_NAME, "volumeHandle": id.to_string()}, "capacity": {"storage": "32Mi"},
            "claimRef": {"namespace": "default", "name": name, "uid": claim},
        });
        persistent(&stage.client, &name, &node.name, spec).await;
        let volumes: Api<PersistentVolume> = Api::all(stage.client.clone());
        // No controller of Kubernetes runs here.
        let bound = Patch::Merge(json!({"status": {"phase": "Bound"}}));
        volumes.patch_status(&name, &PatchParams::default(), &bound).await.expect("there");
        object(stage, id, |object| object.annotation(CLAIM_UID_ANNOTATION) == Some(&claim)).await;
        cases.push(Case {
            row,
            name,
            place: Place::Disk { id, disk, node: view.node, size: view.size, target, claim },
        });
    }
    let of_filesystems = ["FilesystemReadOnly", "FilesystemShutDown", "FilesystemErrors"];
    let of_filesystems = REASONS.iter().filter(|row| of_filesystems.contains(&row.word));
    for row in paths.into_iter().chain(of_filesystems) {
        let (name, path) = (unique("local-pv"), PathBuf::from(format!("/mnt/{}", row.word)));
        let case = Case { row, name, place: Place::Path(path.clone()) };
        case.play(&node.host, false);
        persistent(&stage.client, &case.name, &node.name, json!({"local": {"path": path}})).await;
        cases.push(case);
    }
    cases
}

/// Waits until the agent has looked at each disk and path while it was well.
async fn all_are_checked(stage: &Stage, node: &SimNode, paths: usize) {
    until("all are looked at", async || {
        let status = pool(stage, &node.name).await.1;
        let found = status.persistent_volumes.iter().filter(|found| found.health.is_empty()).count();
        let disks = node.pool().disk_views().into_iter().all(|disk| node.board.report(&disk.id).is_some());
        (found == paths && disks).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_reason_that_a_checkup_finds_is_told_by_all_objects_until_its_repair() {
    let cluster = cluster!(alone);
    let stage = Stage::new(&cluster.client).await;
    let (label, mut node) = well_node(&stage).await;
    let _monitor = monitor(&stage);
    let cases = cases(&stage, &label, &node).await;
    let paths = cases.iter().filter(|case| matches!(case.place, Place::Path(_))).count();
    all_are_checked(&stage, &node, paths).await;

    for case in &cases {
        case.play(&node.host, true);
    }
    all_tell(&stage, &node, &cases, true).await;
    pool_tells(&stage, &node.name, &cases, true).await;
    for case in &cases {
        case.play(&node.host, false);
    }
    all_tell(&stage, &node, &cases, false).await;
    pool_tells(&stage, &node.name, &cases, false).await;
    node.kill().await;
}

/// A node with a disk for each reason, of which none has room for two volumes, and the label of its set.
pub async fn well_node(stage: &Stage) -> (String, SimNode) {
    let (label, host) = (unique("sim"), FakeHost::default());
    set(&stage.client, &label).await;
    let volumes = rows()[1].len();
    for number in 0..volumes {
        // NVMe disks are asked at each checkup.
        let name = format!("nvme{number}n1");
        host.add_disk(&name, &unique("SERIAL"), Geometry { size: 64 * MIB, sector: 512, offloads_zeroes: true });
        host.set_report(&name, well());
        host.set_io_errors(&name, IoErrors::default());
        host.set_writes(&name, WriteCounts { under_way: 0, counted: 5 });
    }
    let node = SimNode::of(&stage.client, &unique("sim"), json!({"sim": label}), host).await;
    ready(&stage.client, &node.name, "True").await;
    let has_all = |status: &DevicePoolStatus| status.disks.len() == volumes;
    let known = |pool: &DevicePool| pool.status.as_ref().is_some_and(has_all);
    stage.known(|caches| caches.pools.get(&node.name).is_some_and(|pool| known(&pool))).await;
    (label, node)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_whose_agent_is_silent_is_marked_until_the_agent_answers() {
    let cluster = cluster!(alone);
    let (stage, label, mut node) = offering(&cluster.client, 64).await;
    ready(&stage.client, &node.name, "True").await;
    let (space, name) = (namespace(&stage.client).await, unique("pvc"));
    let volume = make(&stage, &label, &name, on(&node.name), 16).await.expect("there is room");
    let csi = json!({"driver": DRIVER_NAME, "volumeHandle": volume.id.to_string()});
    persistent(&stage.client, &name, &node.name, json!({"csi": csi, "capacity": {"storage": "16Mi"}})).await;
    let pod = AgentPod::of(&stage.client, &space, &node.name).await;
    pod.is_ready("True", Timestamp::now()).await;
    let _leader = lead_after(&stage, &space, 1);
    let _monitor = monitor(&stage);
    // It may be silent for a while, and no pod of it is lost: it is no loss.
    for (is_ready, marks) in [("False", vec!["AgentSilent", "FirstMarkTime"]), ("True", vec![])] {
        pod.is_ready(is_ready, Timestamp::now()).await;
        let has_marks = async || annotations(&stage.client, &name).await.into_keys().eq(marks.clone()).then_some(());
        until(&format!("its marks are {marks:?}"), has_marks).await;
    }
    crate::marks::events(&stage.client, &name, "Mark", &["AgentSilent"]).await;
    crate::marks::events(&stage.client, &name, "Unmark", &["AgentSilent"]).await;
    node.kill().await;
}
