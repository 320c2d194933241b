//! What the tasks of one agent share, and what a pass of the pool saw that they report.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use jiff::Timestamp;
use kube::Client;
use tokio::sync::{mpsc, watch as channel};

use crate::agent::{AgentHandle, CheckupHandle, DiskBenchmarker, PassReport, WipedDisk};
use crate::api::crd::DevicePool;
use crate::claim::SetOutcome;
use crate::device::{Device, DiskId, HardwareId, NodeName, Verdict, VolumeId, id, label::Label};
use crate::health::{Board, HealthChange, WantedFilesystems, WatchedPath};
use crate::host::{KernelName, MachineModel};
use crate::operator::disk::benchmarks::DiskBenchmarks;
use crate::operator::disk::cordon;
use crate::operator::disk::filesystems;
use crate::operator::disk::orders::DiskOrders;
use crate::operator::disk::relevance::Relevance;
use crate::operator::event::queue::{EventQueue, QueuedEvents};
use crate::operator::node::question::Questions;
use crate::pool::{NamedFilesystem, Pool};
use crate::volume::VolumeLocks;

/// What a pass saw that the DevicePool reports.
#[derive(Clone, Debug, Default)]
pub struct PassSummary {
    /// The name for people of each device, by kernel name.
    pub links: BTreeMap<KernelName, String>,
    /// What each device is to a person who looks for a disk, by kernel name.
    pub relevance: BTreeMap<KernelName, Relevance>,
    pub outcomes: Vec<SetOutcome>,
    /// What prevents the use of a disk, by kernel name.
    pub problems: BTreeMap<KernelName, String>,
    /// The last disks that were wiped.
    pub wiped: Vec<WipedDisk>,
    /// Pool disks whose hardware has no stable name, and those whose hardware has another name than the one in their
    /// label; by disk id.
    pub unstable: BTreeSet<DiskId>,
    pub mismatched: BTreeSet<DiskId>,
    /// The pass used the sets and what the PoolVolumes say: before that, a member that offers nothing may still have
    /// room.
    pub knows_all: bool,
    /// Why the PoolVolumes of this node could not be read.
    pub volumes_unread: Option<String>,
}

impl PassSummary {
    pub fn of(pass: &PassReport) -> Self {
        let PassReport { snapshot, problems, outcomes, claimed: _, wiped, knows_all, volumes_unread, ripe_in: _ } =
            pass;
        let link = |device: &Device| (device.raw.name.clone(), device.link.display().to_string());
        // A loop device without a file is not reported as a device that a set does not take.
        let links = snapshot.devices.iter().filter(|device| device.raw.size > 0).map(link).collect();
        let relevance =
            snapshot.devices.iter().map(|device| (device.raw.name.clone(), Relevance::of(&device.raw))).collect();
        let labelled = || snapshot.devices.iter().filter_map(|device| Some((device, device.label.as_ref()?)));
        let ids = |wanted: &dyn Fn(&Device, &Label) -> bool| -> BTreeSet<DiskId> {
            let found = labelled().filter(|(device, label)| device.verdict == Verdict::Ours && wanted(device, label));
            found.map(|(device, _)| device.id.clone()).collect()
        };
        let unstable = ids(&|device, _| id::hardware_id(&device.raw, None).is_path());
        let mismatched = ids(&|device, label| is_other(&id::hardware_id(&device.raw, None), &label.hardware.id));
        let (outcomes, problems, wiped) = (outcomes.clone(), problems.clone(), wiped.clone());
        let (knows_all, volumes_unread) = (*knows_all, volumes_unread.clone());
        Self { links, relevance, outcomes, problems, wiped, unstable, mismatched, knows_all, volumes_unread }
    }
}

/// Whether a disk's hardware, by its present name, is not the one in its label. A path proves nothing, on either side:
/// such a disk is reported as one without a stable name. Otherwise no move of a disk to hardware without a serial would
/// ever be complete.
fn is_other(hardware: &HardwareId, recorded: &HardwareId) -> bool {
    hardware.is_stable() && recorded.is_stable() && hardware != recorded
}

/// Requests to the API server that change something, by kind: what a volume costs the API server.
#[derive(Debug, Default)]
pub struct Writes {
    pub volume: AtomicU64,
    pub pool: AtomicU64,
}

/// What the tasks of one agent share.
#[derive(Clone)]
pub struct NodeOperator {
    pub(in crate::operator) client: Client,
    pub(in crate::operator) questions: Questions,
    pub(in crate::operator) pool: Arc<Pool>,
    pub(in crate::operator) agent_handle: AgentHandle,
    pub(in crate::operator) locks: VolumeLocks,
    pub(in crate::operator) node: NodeName,
    /// Which process of the agent this is: when it began.
    pub(in crate::operator) process: Arc<str>,
    pub(in crate::operator) events: EventQueue,
    /// Volumes to look at again.
    pub(in crate::operator) dirty: mpsc::UnboundedSender<VolumeId>,
    /// The pool changed: its status has to be written.
    pub(in crate::operator) changed: Arc<channel::Sender<u64>>,
    pub(in crate::operator) writes: Arc<Writes>,
    pub(in crate::operator) health: Board,
    pub(in crate::operator) orders: DiskOrders,
    pub(in crate::operator) benchmarks: DiskBenchmarks,
    /// What the firmware says of this machine.
    pub(in crate::operator) machine: Option<MachineModel>,
    /// `None`: nobody measures the disks of this pool.
    pub(in crate::operator) benchmarker: Option<DiskBenchmarker>,
    /// Those that fill the board; `None`: nobody looks at the health of this pool.
    pub(in crate::operator) checkups: Option<CheckupHandle>,
    /// This node's clock: the ages of requests are measured by it.
    pub(in crate::operator) clock: fn() -> Timestamp,
}

impl NodeOperator {
    pub fn new(
        client: Client,
        questions: Questions,
        pool: Arc<Pool>,
        agent_handle: AgentHandle,
        locks: VolumeLocks,
        writes: Arc<Writes>,
    ) -> (Self, Inbox) {
        let (dirty, volumes) = mpsc::unbounded_channel();
        let (events, queued) = EventQueue::new();
        let (changed, _) = channel::channel(0);
        let node = pool.owner().node.as_str().into();
        let (changed, clock) = (Arc::new(changed), Timestamp::now);
        let process = clock().to_string().into();
        (
            Self {
                client,
                questions,
                pool,
                agent_handle,
                locks,
                node,
                process,
                events,
                dirty,
                changed,
                writes,
                health: Board::default(),
                orders: DiskOrders::default(),
                benchmarks: DiskBenchmarks::default(),
                benchmarker: None,
                machine: None,
                checkups: None,
                clock,
            },
            Inbox { volumes, events: queued },
        )
    }

    /// Reports the health that is on this board; `checkups` are those that fill it.
    pub fn with_health(self, health: Board, checkups: CheckupHandle) -> Self {
        Self { health, checkups: Some(checkups), ..self }
    }

    /// Measures disks that the controller asks for.
    pub fn with_benchmarker(self, benchmarker: DiskBenchmarker) -> Self {
        let machine = Some(benchmarker.machine()).filter(|machine| *machine != MachineModel::default());
        Self { benchmarker: Some(benchmarker), machine, ..self }
    }

    /// Measures the age of requests by another clock.
    #[cfg(any(test, feature = "testing"))]
    pub fn by_clock(self, clock: fn() -> Timestamp) -> Self {
        Self { clock, ..self }
    }

    /// The paths of PersistentVolumes to look at from now on.
    pub(in crate::operator) fn watch(&self, paths: &[WatchedPath]) {
        if let Some(checkups) = self.checkups.as_ref().filter(|_| self.health.watch(paths.to_vec())) {
            checkups.due();
        }
    }

    /// The orders for disks, and the disks that take no new volumes: as a person chose, and as an earlier agent found,
    /// until this one has looked.
    pub(in crate::operator) fn take_in_disks(&self, pool: Option<&DevicePool>) {
        let cordons = self.pool.cordons();
        let remembered = cordons.remember(pool.map(cordon::found).unwrap_or_default());
        let mut chosen = pool.map(cordon::chosen).unwrap_or_default();
        chosen.extend(pool.map(cordon::closed_by_order).unwrap_or_default());
        let ordered = self.orders.take_in(pool);
        let reserved = self.pool.reserve(pool.map(cordon::reserved).unwrap_or_default());
        let measured = self.benchmarks.take_in(pool);
        if cordons.choose(chosen) || remembered || ordered || reserved || measured {
            self.pool_changed();
        }
    }

    /// The filesystems that a person has named, and those that the node asks for, if that can be read; and what an earlier
    /// agent knew of them.
    pub(in crate::operator) fn name_filesystems(
        &self,
        pool: Option<&DevicePool>,
        defaults: Option<Vec<NamedFilesystem>>,
    ) {
        // One that is deleted is written again, and then names none.
        let Some(pool) = pool else { return };
        let wanted = WantedFilesystems { named: filesystems::named(pool), defaults };
        let changed = self.health.filesystems().name(wanted, &filesystems::earlier(pool));
        if let Some(checkups) = self.checkups.as_ref().filter(|_| changed) {
            checkups.due();
        }
        if changed {
            self.pool_changed();
            self.pool.nudge();
        }
    }

    /// Only what a checkup changed is looked at: the DevicePool, and these volumes.
    pub(in crate::operator) fn take_in_health(&self, change: HealthChange) {
        if change.is_of_pool() {
            self.pool_changed();
        }
        change.volumes.into_iter().for_each(|id| self.enqueue(id));
    }

    pub(in crate::operator) fn enqueue(&self, id: VolumeId) {
        let _ = self.dirty.send(id);
    }

    pub(in crate::operator) fn pool_changed(&self) {
        self.changed.send_modify(|count| *count = count.wrapping_add(1));
    }

    pub(in crate::operator) fn count(&self, counter: impl Fn(&Writes) -> &AtomicU64) {
        counter(&self.writes).fetch_add(1, Ordering::Relaxed);
    }
}

/// Receives the volumes to look at, and the Events to write.
pub struct Inbox {
    pub(in crate::operator) volumes: mpsc::UnboundedReceiver<VolumeId>,
    pub(in crate::operator) events: QueuedEvents,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{Snapshot, label::Hardware, sample};

    fn pool_disk(name: &str, serial: Option<&str>, claimed_as: &str) -> Device {
        let mut raw = sample::disk(name);
        raw.serial = serial.map(str::to_owned);
        let mut label = sample::label("c", "n");
        label.hardware = Hardware { id: HardwareId::named(claimed_as), model: None, serial: None };
        let mut device = sample::device(raw, Verdict::Ours);
        device.id = DiskId::named(format!("disk-{name}"));
        Device { label: Some(label.into()), ..device }
    }

    #[test]
    fn pool_disks_without_a_name_that_stays_and_those_with_another_than_their_label_says_are_told() {
        let named = id::hardware_id(&pool_disk("sda", Some("S1"), "").raw, None);
        let nameless = id::hardware_id(&pool_disk("sdc", None, "").raw, None);
        let mut devices = vec![
            pool_disk("sda", Some("S1"), named.as_str()),
            pool_disk("sdb", Some("S2"), named.as_str()),
            pool_disk("sdc", None, nameless.as_str()),
            // Only the path was known at the claim.
            pool_disk("sdf", Some("S6"), "path-/dev/sdx"),
            // Its content came from a disk with a serial.
            pool_disk("sdg", None, named.as_str()),
            sample::unclaimed("sdd"),
        ];
        // Another node's label does not concern us.
        let foreign = Verdict::Foreign { cluster: "c".to_owned(), node: "other".into() };
        devices.push(Device { verdict: foreign, ..pool_disk("sde", None, "x") });
        let set = Snapshot { at: std::time::Duration::ZERO, devices };
        let summary = PassSummary::of(&PassReport::of_scan(set));
        assert_eq!(summary.mismatched, BTreeSet::from([DiskId::named("disk-sdb")]));
        assert_eq!(summary.unstable, BTreeSet::from(["disk-sdc", "disk-sdg"].map(DiskId::named)));
    }
}
