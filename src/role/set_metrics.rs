//! The agent's metrics of each set: what it has on this node, what it does not take, and which of its disks need
//! attention. They mean the same as those of the Local Storage Operator, as far as disks without links can
//! (docs/migrating-from-lso.md).
//!
//! Takes in the pool's disks and what the last pass saw; `count` is pure.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use prometheus::{IntGaugeVec, Registry};
use tokio::sync::watch::Receiver;

use super::registry::gauges;
use crate::claim::Rejection;
use crate::device::{SetName, signed};
use crate::host::KernelName;
use crate::operator::node::PassSummary;
use crate::pool::{DiskView, Standing};

/// A figure of a set: its metric's name, its help text, and where it is in [`Counts`].
type Figure = (&'static str, &'static str, fn(&Counts) -> usize);

/// What the last pass saw, if there was one.
type PassReceiver = Receiver<Option<Arc<PassSummary>>>;

const FIGURES: [Figure; 10] = [
    ("disks", "Disks of this node that the set has, including missing ones.", |counts| counts.disks),
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

/// The gauges, and where their values come from.
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

/// By name: sets that exist, and sets that only disks still name.
fn count(disks: &[DiskView], pass: &PassSummary) -> BTreeMap<SetName, Counts> {
    let mut sets: BTreeMap<_, Counts> = BTreeMap::new();
    for outcome in &pass.outcomes {
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
        counts.disks += 1;
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
    use crate::claim::SetOutcome;
    use crate::device::{
        DiskId,
        label::{Layout, SetRef},
    };

    fn set(name: &str) -> SetRef {
        SetRef::new(SetName::new("d", name), "u")
    }

    fn disk(id: &str, of: &str, standing: Standing) -> DiskView {
        DiskView {
            id: DiskId::named(id),
            path: "/dev/sda".into(),
            model: None,
            layout: Layout::Carved {},
            set: set(of),
            size: 0,
            free: 0,
            erasing: 0,
            erasure: crate::pool::Erasure::default(),
            volumes: 2,
            partitions: 3,
            standing,
            owned: of != "gone",
            held: None,
            failing: None,
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
        let outcome = SetOutcome { set: set("fast"), takes, would_take, rejected, missing, deselected };
        let links = ["sda", "sdb", "sdc", "sdd"].map(|name| (name.into(), format!("/dev/{name}")));
        PassSummary {
            links: BTreeMap::from(links),
            sorts: BTreeMap::new(),
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
