//! The progress of the disks of a set with a partitioningSpec: waiting, being laid out, done.
//!
//! Takes in a set, the result of the last election for it, and the pool's disks; gives out a line for each disk that it
//! has or is about to take. Pure. It replaces the ConfigMap of the proposal, and is derived from the disks each time,
//! so that no record of it can be lost or wrong.

use crate::api::crd::{DiskPartitioning, PartitioningState};
use crate::claim::{Rejection, Rule, SetOutcome};
use crate::host::KernelName;
use crate::operator::node::context::PassSummary;
use crate::pool::DiskView;

/// More disks than a node ever has; `disks` still has all of them.
const MOST: usize = 256;

pub fn partitioning(
    rule: &Rule,
    outcome: Option<&SetOutcome>,
    disks: &[DiskView],
    pass: &PassSummary,
) -> Vec<DiskPartitioning> {
    if !rule.layout.cuts() || rule.dry_run {
        return Vec::new();
    }
    let line = |device: String, state| DiskPartitioning { device, state };
    let own = |disk: &&DiskView| disk.set.has_name_of(&rule.set);
    let name = |disk: &DiskView| disk.path.file_name().map(|name| KernelName::from(&*name.to_string_lossy()));
    let link = |name: &KernelName| pass.links.get(name).cloned();
    let done: Vec<&DiskView> = disks.iter().filter(own).collect();
    let is_done = |wanted: &KernelName| done.iter().any(|disk| name(disk).as_ref() == Some(wanted));

    let mut lines: Vec<DiskPartitioning> = Vec::new();
    for disk in &done {
        let known = name(disk).and_then(|name| link(&name));
        lines.push(line(known.unwrap_or_else(|| disk.path.display().to_string()), PartitioningState::Done));
    }
    for taken in outcome.into_iter().flat_map(|outcome| &outcome.takes).filter(|taken| !is_done(taken)) {
        // A failed claim is tried again, and is not under way meanwhile.
        let failed = pass.problems.contains_key(taken);
        let state = if failed { PartitioningState::Unpartitioned } else { PartitioningState::Partitioning };
        lines.extend(link(taken).map(|link| line(link, state)));
    }
    let waits = |rejection: &Rejection| matches!(rejection, Rejection::TooYoung(_) | Rejection::WaitsForMinimum { .. });
    let waiting = outcome.into_iter().flat_map(|outcome| &outcome.rejected).filter(|(_, rejection)| waits(rejection));
    for (name, _) in waiting.filter(|(name, _)| !is_done(name)) {
        lines.extend(link(name).map(|link| line(link, PartitioningState::Unpartitioned)));
    }
    lines.sort_by(|a, b| a.device.cmp(&b.device));
    lines.truncate(MOST);
    lines
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::claim::NodeMatch;
    use crate::claim::Ripeness;
    use crate::claim::sample::rule;
    use crate::device::DiskId;
    use crate::device::label::Layout;
    use crate::device::sample::set;
    use crate::pool::Standing;

    const SLOTS: Layout = Layout::Slots { size: None, count: Some(3) };

    fn disk(path: &str, of: &str) -> DiskView {
        DiskView {
            id: DiskId::named(format!("gpt-{path}")),
            path: path.into(),
            model: None,
            layout: SLOTS,
            array: None,
            set: set(of),
            size: 9,
            free: 9,
            erasing: 0,
            reserved: 0,
            erasure: crate::pool::Erasure::default(),
            volumes: 0,
            partitions: 3,
            standing: Standing::Ready,
            host_mount: crate::pool::HostMount::None,
            owned: true,
            busy: None,
            failing: None,
            array_problem: None,
            cordon: None,
        }
    }

    fn summary(problems: &[&str]) -> PassSummary {
        let link = |name: &str| (name.into(), format!("/dev/disk/by-id/{name}"));
        PassSummary {
            links: ["sda", "sdb", "sdc", "sdd", "sde"].map(link).into(),
            outcomes: Vec::new(),
            problems: problems.iter().map(|name| ((*name).into(), "EIO".to_owned())).collect::<BTreeMap<_, _>>(),
            ..PassSummary::default()
        }
    }

    fn outcome(takes: &[&str], rejected: &[(&str, Rejection)]) -> SetOutcome {
        SetOutcome {
            set: set("a"),
            node: NodeMatch::Selected,
            takes: takes.iter().map(|name| (*name).into()).collect(),
            would_take: Vec::new(),
            rejected: rejected.iter().map(|(name, why)| ((*name).into(), why.clone())).collect(),
            missing: Vec::new(),
            deselected: Vec::new(),
        }
    }

    #[test]
    fn each_disk_of_a_set_that_partitions_is_waiting_under_way_or_done() {
        let rule = Rule { layout: SLOTS, ..rule("a") };
        let disks = [disk("/dev/sda", "a"), disk("/dev/sdz", "a"), disk("/dev/sdy", "b")];
        let rejected = [
            ("sdb", Rejection::TooYoung(Ripeness::Unseen)),
            ("sdc", Rejection::WaitsForMinimum { ripe: 1, least: 2 }),
            ("sdx", Rejection::Released),
        ];
        let lines = partitioning(&rule, Some(&outcome(&["sda", "sdd", "sde"], &rejected)), &disks, &summary(&["sde"]));
        let lines: Vec<_> = lines.iter().map(|line| (line.device.as_str(), line.state)).collect();
        let (waits, under_way, done) =
            (PartitioningState::Unpartitioned, PartitioningState::Partitioning, PartitioningState::Done);
        assert_eq!(
            lines,
            [
                ("/dev/disk/by-id/sda", done),
                ("/dev/disk/by-id/sdb", waits),
                ("/dev/disk/by-id/sdc", waits),
                ("/dev/disk/by-id/sdd", under_way),
                ("/dev/disk/by-id/sde", waits),
                ("/dev/sdz", done),
            ]
        );
    }

    #[test]
    fn a_set_that_cuts_nothing_and_a_dry_run_have_no_such_list() {
        let taken = outcome(&["sda"], &[]);
        for rule in [rule("a"), Rule { layout: SLOTS, dry_run: true, ..rule("a") }] {
            assert_eq!(partitioning(&rule, Some(&taken), &[disk("/dev/sdb", "a")], &summary(&[])), []);
        }
    }
}
