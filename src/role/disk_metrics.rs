//! The agent's metrics of each disk of the pool, of each class that they are offered to, and of each set that has them:
//! as many as there are disks, classes and sets, however many volumes there are.
//!
//! Takes in the pool, its health, the counters of the kernel and what the last pass saw, which it reads at a scrape;
//! `count` is pure.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use prometheus::{IntCounterVec, IntGaugeVec, Registry};
use tokio::sync::watch::Receiver;

use super::registry::{counters, gauges};
use crate::claim::{NodeMatch, Rejection, SetOutcome};
use crate::device::{DiskId, SetName, signed};
use crate::health::Board;
use crate::host::{DiskReport, Host, IoErrors, KernelName, RawDisk};
use crate::operator::agent::PassSummary;
use crate::pool::{ClassDisks, DiskView, Pool, Selector, Standing, WantedUsage};

/// The states of a disk, as labels.
pub const STATES: [&str; 3] = ["ready", "missing", "not_ready"];

/// What disks report of themselves, as far as they do.
#[derive(Clone)]
struct SelfReport {
    temperature: IntGaugeVec,
    wear: IntGaugeVec,
    spare: IntGaugeVec,
    pending: IntGaugeVec,
    reallocated: IntGaugeVec,
    media_errors: IntCounterVec,
    error_log: IntCounterVec,
}

impl SelfReport {
    fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let gauges = |name: &str, help: &str| gauges(registry, name, help, &["disk"]);
        let counters = |name: &str, help: &str| counters(registry, name, help, &["disk"]);
        Ok(Self {
            temperature: gauges("localpool_disk_temperature_celsius", "The temperature that a disk reports.")?,
            wear: gauges(
                "localpool_disk_wear_percent",
                "How much of its rated endurance a disk has used, as it reports; may be above 100.",
            )?,
            spare: gauges("localpool_disk_spare_percent", "How much spare space a disk has left, as it reports.")?,
            pending: gauges("localpool_disk_pending_sectors", "Sectors that a disk cannot read now, as it reports.")?,
            reallocated: gauges(
                "localpool_disk_reallocated_sectors",
                "Sectors that a disk has replaced by spare ones, as it reports.",
            )?,
            media_errors: counters(
                "localpool_disk_media_errors_total",
                "Data that a disk could not read or correct in all its life, as it reports.",
            )?,
            error_log: counters(
                "localpool_disk_error_log_entries_total",
                "Entries that the error log of an NVMe disk has had in all its life.",
            )?,
        })
    }

    fn reset(&self) {
        let gauges = [&self.temperature, &self.wear, &self.spare, &self.pending, &self.reallocated];
        gauges.into_iter().for_each(IntGaugeVec::reset);
        [&self.media_errors, &self.error_log].into_iter().for_each(IntCounterVec::reset);
    }

    fn set(&self, disk: &str, report: &DiskReport) {
        let DiskReport {
            health: _,
            warnings: _,
            unanswered: _,
            media_errors,
            pending_sectors,
            reallocated_sectors,
            error_log_entries,
            spare_percent,
            spare_threshold_percent: _,
            used_percent,
            temperature_celsius,
        } = report;
        let gauges = [
            (&self.temperature, temperature_celsius.map(i64::from)),
            (&self.wear, used_percent.map(i64::from)),
            (&self.spare, spare_percent.map(i64::from)),
            (&self.pending, pending_sectors.map(signed)),
            (&self.reallocated, reallocated_sectors.map(signed)),
        ];
        for (gauge, value) in gauges {
            value.into_iter().for_each(|value| gauge.with_label_values(&[disk]).set(value));
        }
        for (counter, count) in [(&self.media_errors, media_errors), (&self.error_log, error_log_entries)] {
            count.iter().for_each(|count| counter.with_label_values(&[disk]).inc_by(*count));
        }
    }
}

#[derive(Clone)]
pub struct DiskMetrics {
    bytes: IntGaugeVec,
    state: IntGaugeVec,
    unhealthy: IntGaugeVec,
    errors: IntCounterVec,
    erased: IntCounterVec,
    reported: SelfReport,
    classes: IntGaugeVec,
}

impl DiskMetrics {
    pub fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let gauges = |name: &str, help: &str, labels: &[&str]| gauges(registry, name, help, labels);
        let counters = |name: &str, help: &str, labels: &[&str]| counters(registry, name, help, labels);
        Ok(Self {
            errors: counters(
                "localpool_disk_errors_total",
                "Commands to a disk that failed or timed out since the kernel found it, if its driver counts them.",
                &["disk", "kind"],
            )?,
            erased: counters(
                "localpool_disk_erased_bytes_total",
                "Bytes of deleted volumes that were erased on a disk since the agent began.",
                &["disk"],
            )?,
            reported: SelfReport::new(registry)?,
            bytes: gauges(
                "localpool_disk_bytes",
                "Bytes of a disk: size, free, erasing, and reserved, which are kept free of volumes. A member of an array has \
                 none: its array has them.",
                &["disk", "kind"],
            )?,
            state: gauges("localpool_disk_state", "1 for the state that a disk has, else 0.", &["disk", "state"])?,
            unhealthy: gauges(
                "localpool_disk_unhealthy",
                "1 for each thing that is wrong with a disk.",
                &["disk", "reason"],
            )?,
            classes: gauges(
                "localpool_class_bytes",
                "Bytes of a class on this node: the size of its disks, of those that can have several volumes (divisible), \
                 what they can give to new volumes (available), and the largest of these.",
                &["class", "kind"],
            )?,
        })
    }

    /// Disks that are gone are not reported any more.
    pub fn read_disks(&self, disks: &[DiskView], health: &Board) {
        for gauges in [&self.bytes, &self.state, &self.unhealthy] {
            gauges.reset();
        }
        self.erased.reset();
        self.reported.reset();
        for disk in disks {
            let id = disk.id.as_str();
            self.erased.with_label_values(&[id]).inc_by(disk.erasure.bytes);
            for (kind, bytes) in
                [("size", disk.own_size()), ("free", disk.free), ("erasing", disk.erasing), ("reserved", disk.reserved)]
            {
                self.bytes.with_label_values(&[id, kind]).set(signed(bytes));
            }
            for name in STATES {
                self.state.with_label_values(&[id, name]).set(i64::from(state(&disk.standing) == name));
            }
            health.report(&disk.id).iter().for_each(|report| self.reported.set(id, report));
            for finding in health.of_disk(disk).findings() {
                self.unhealthy.with_label_values(&[id, finding.reason.word()]).set(1);
            }
        }
    }

    /// The kernel counts from zero again when it finds a disk again, and so does the counter.
    pub fn read_errors(&self, disks: &[(DiskId, RawDisk)], host: &dyn Host) {
        self.errors.reset();
        for (disk, raw) in disks {
            let Some(IoErrors { errors, timeouts }) = host.io_errors(raw) else { continue };
            for (kind, count) in [("failed", errors), ("timed_out", timeouts)] {
                self.errors.with_label_values(&[disk.as_str(), kind]).inc_by(count);
            }
        }
    }

    pub fn read_classes(&self, pool: &Pool) {
        self.classes.reset();
        for (class, ClassDisks { size, divisible, sets }) in pool.classes() {
            let (mut available, mut largest) = (0, 0);
            for set in sets {
                let selector = Selector { class: Some(class.clone()), set: Some(set) };
                let [mount, block] =
                    [WantedUsage::Mount(None), WantedUsage::Block].map(|usage| pool.capacity(&selector, usage));
                // Both uses share the space of a set, and two sets have disks of their own.
                let offered = mount.or(block);
                (available, largest) = (available + offered.available, offered.largest.max(largest));
            }
            let kinds = [("size", size), ("divisible", divisible), ("available", available), ("largest", largest)];
            for (kind, bytes) in kinds {
                self.classes.with_label_values(&[class.as_str(), kind]).set(signed(bytes));
            }
        }
    }
}

pub fn state(standing: &Standing) -> &'static str {
    match standing {
        Standing::Ready => "ready",
        Standing::Missing => "missing",
        Standing::NotReady(_) => "not_ready",
    }
}

/// A figure of a set: its metric's name, its help text, and where it is in [`Counts`].
type Figure = (&'static str, &'static str, fn(&Counts) -> usize);

/// What the last pass saw, if there was one.
type PassReceiver = Receiver<Option<Arc<PassSummary>>>;

const FIGURES: [Figure; 10] = [
    ("disks", "Disks of this node that the set has, including missing ones. An array is one disk.", |counts| {
        counts.disks
    }),
    ("partitions", "Partitions on them: slots, taken or free, or volumes.", |counts| counts.partitions),
    ("volumes", "Volumes on them.", |counts| counts.volumes),
    ("unmatched_disks", "Devices of this node that the set does not take.", |counts| counts.unmatched),
    (
        "orphaned_disks",
        "Disks whose set does not exist, so that they offer no space, or whose set would not choose them any more.",
        |counts| counts.orphaned,
    ),
    ("missing_disks", "Disks of the set that are missing.", |counts| counts.missing),
    ("missing_paths", "Paths of a LocalVolume that lead to no device of this node.", |counts| counts.missing_paths),
    ("not_ready_disks", "Disks of the set that are present, but cannot be used.", |counts| counts.not_ready),
    ("unstable_disks", "Disks whose hardware has no stable name: no serial and no WWN.", |counts| counts.unstable),
    (
        "mismatched_disks",
        "Disks whose hardware reports another name than when they were claimed: firmware, cabling, or a copy.",
        |counts| counts.mismatched,
    ),
];

/// What each set has on this node, what it does not take, and which of its disks need attention. It means the same as
/// with the Local Storage Operator, as far as disks without links can (docs/migrating-from-lso.md).
#[derive(Clone)]
pub struct SetMetrics {
    /// Not there before the first pass: an alert counts on that.
    discovered: IntGaugeVec,
    figures: Vec<IntGaugeVec>,
    source: Arc<OnceLock<PassReceiver>>,
}

/// The figures of one set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    disks: usize,
    partitions: usize,
    volumes: usize,
    unmatched: usize,
    orphaned: usize,
    missing: usize,
    missing_paths: usize,
    not_ready: usize,
    unstable: usize,
    mismatched: usize,
}

impl SetMetrics {
    pub fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let help = "All devices of this node, whoever owns them.";
        let discovered = gauges(registry, "localpool_discovered_devices", help, &[])?;
        let mut figures = Vec::new();
        for (name, help, _) in FIGURES {
            figures.push(gauges(registry, &format!("localpool_set_{name}"), help, &["namespace", "set"])?);
        }
        Ok(Self { discovered, figures, source: Arc::default() })
    }

    /// Reports what `passes` has from now on.
    pub fn watch(&self, passes: PassReceiver) {
        let _ = self.source.set(passes);
    }

    pub fn read(&self, disks: &[DiskView]) {
        let Some(passes) = self.source.get() else { return };
        let Some(pass) = passes.borrow().clone() else { return };
        self.discovered.with_label_values::<&str>(&[]).set(signed(pass.links.len()));
        let sets = count(disks, &pass);
        for (gauges, (_, _, figure)) in self.figures.iter().zip(FIGURES) {
            // Sets that are gone are not reported any more.
            gauges.reset();
            for (SetName { namespace, name }, counts) in &sets {
                gauges.with_label_values(&[namespace, name]).set(signed(figure(counts)));
            }
        }
    }
}

/// By name: sets that exist, unless they select other nodes and have no disk here, and sets that only disks still name.
fn count(disks: &[DiskView], pass: &PassSummary) -> BTreeMap<SetName, Counts> {
    let mut sets: BTreeMap<_, Counts> = BTreeMap::new();
    // Figures of a set of other nodes would be zeros on each node.
    let concerns_node =
        |outcome: &&SetOutcome| outcome.node != NodeMatch::NotSelected || !outcome.deselected.is_empty();
    for outcome in pass.outcomes.iter().filter(concerns_node) {
        // Devices that a LocalVolume does not name do not concern it, and a disk that another set has is matched.
        let is_unmatched = |rejection: &Rejection| !matches!(rejection, Rejection::NotNamed | Rejection::InSet(_));
        let unmatched =
            |(name, rejection): &&(KernelName, Rejection)| pass.links.contains_key(name) && is_unmatched(rejection);
        let unmatched = outcome.rejected.iter().filter(unmatched).count();
        let counts = sets.entry(outcome.set.name.clone()).or_default();
        counts.unmatched += unmatched;
        counts.missing_paths += outcome.missing.len();
        counts.orphaned += outcome.deselected.len();
    }
    for disk in disks {
        let counts = sets.entry(disk.set.name.clone()).or_default();
        counts.disks += usize::from(disk.member_of().is_none());
        counts.partitions += disk.partitions;
        counts.volumes += disk.volumes;
        counts.orphaned += usize::from(!disk.owned);
        counts.missing += usize::from(disk.standing == Standing::Missing);
        counts.not_ready += usize::from(matches!(disk.standing, Standing::NotReady(_)));
        counts.unstable += usize::from(pass.unstable.contains(&disk.id));
        counts.mismatched += usize::from(pass.mismatched.contains(&disk.id));
    }
    sets
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use tokio::sync::watch;

    use super::*;
    use crate::device::label::{ArrayLevel, ArrayPlace, Layout, SetRef};

    fn set(name: &str) -> SetRef {
        SetRef::new(SetName::new("d", name), "u")
    }

    fn disk(id: &str, of: &str, standing: Standing) -> DiskView {
        DiskView {
            id: DiskId::named(id),
            path: "/dev/sda".into(),
            model: None,
            layout: Layout::Carved {},
            array: None,
            set: set(of),
            size: 0,
            free: 0,
            erasing: 0,
            reserved: 0,
            erasure: crate::pool::Erasure::default(),
            volumes: 2,
            partitions: 3,
            standing,
            host_mount: crate::pool::HostMount::None,
            owned: of != "gone",
            busy: None,
            failing: None,
            array_problem: None,
            cordon: None,
        }
    }

    fn summary() -> PassSummary {
        let rejected = [
            ("sdb", Rejection::Released),
            ("sdc", Rejection::NotNamed),
            ("sdd", Rejection::InSet(set("other"))),
            ("loop0", Rejection::Released),
        ];
        let rejected = rejected.map(|(name, why)| (name.into(), why)).to_vec();
        let missing = vec!["/dev/sdx".to_owned()];
        let (takes, would_take, deselected) = (Vec::new(), Vec::new(), vec!["sda".into()]);
        let node = NodeMatch::Selected;
        let outcome = SetOutcome { set: set("fast"), node, takes, would_take, rejected, missing, deselected };
        let links = ["sda", "sdb", "sdc", "sdd"].map(|name| (name.into(), format!("/dev/{name}")));
        PassSummary {
            links: BTreeMap::from(links),
            relevance: BTreeMap::new(),
            outcomes: vec![outcome],
            problems: BTreeMap::new(),
            wiped: Vec::new(),
            unstable: BTreeSet::from([DiskId::named("a")]),
            mismatched: BTreeSet::from([DiskId::named("b")]),
            knows_all: true,
            volumes_unread: None,
        }
    }

    #[test]
    fn each_set_is_counted_with_what_it_has_what_it_leaves_and_what_is_wrong() {
        let not_ready = Standing::NotReady("torn".to_owned());
        let disks =
            [disk("a", "fast", Standing::Ready), disk("b", "fast", not_ready), disk("c", "gone", Standing::Missing)];
        let counts = count(&disks, &summary());
        let fast = Counts {
            disks: 2,
            partitions: 6,
            volumes: 4,
            // Not counted: what no path names, what another set has, and a loop device without a file.
            unmatched: 1,
            orphaned: 1,
            missing: 0,
            missing_paths: 1,
            not_ready: 1,
            unstable: 1,
            mismatched: 1,
        };
        let gone = Counts { disks: 1, partitions: 3, volumes: 2, orphaned: 1, missing: 1, ..Counts::default() };
        let of = |name: &str| SetName::new("d", name);
        assert_eq!(counts, BTreeMap::from([(of("fast"), fast), (of("gone"), gone)]));
    }

    #[test]
    fn a_set_of_other_nodes_is_counted_only_where_it_has_disks_all_the_same() {
        let mut pass = summary();
        let [outcome] = &mut pass.outcomes[..] else { panic!("one set") };
        (outcome.node, outcome.rejected, outcome.missing) = (NodeMatch::NotSelected, Vec::new(), Vec::new());
        let of = |name: &str| SetName::new("d", name);
        let orphaned = Counts { orphaned: 1, ..Counts::default() };
        assert_eq!(count(&[], &pass), BTreeMap::from([(of("fast"), orphaned)]));
        pass.outcomes[0].deselected.clear();
        assert_eq!(count(&[], &pass), BTreeMap::new());
        assert_eq!(count(&[disk("a", "fast", Standing::Ready)], &pass)[&of("fast")].disks, 1);
    }

    #[test]
    fn an_array_is_one_disk_of_its_set() {
        let place =
            ArrayPlace { array: uuid::Uuid::nil(), level: ArrayLevel::Raid0, place: 0, count: 1, chunk: 1 << 19 };
        let member = DiskView { layout: Layout::Member(place), ..disk("a", "fast", Standing::Ready) };
        let counts = count(&[member, disk("array", "fast", Standing::Ready)], &PassSummary::default());
        assert_eq!(counts[&SetName::new("d", "fast")].disks, 1);
    }

    #[test]
    fn a_set_that_is_gone_is_not_told_of_any_more() {
        let metrics = SetMetrics::new(&Registry::new()).expect("fresh names");
        let (see, looked) = watch::channel(Some(Arc::new(summary())));
        metrics.watch(looked);
        metrics.read(&[disk("a", "fast", Standing::Ready)]);
        let families = || metrics.figures.iter().map(|gauges| prometheus::core::Collector::collect(gauges)[0].clone());
        let reported = || families().map(|family| family.get_metric().len()).sum::<usize>();
        assert_eq!(reported(), FIGURES.len());
        see.send_replace(Some(Arc::new(PassSummary::default())));
        metrics.read(&[]);
        assert_eq!(reported(), 0);
    }
}
