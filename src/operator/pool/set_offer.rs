//! The space that a set offers on this node, and the devices that it does not take, by the names that people use. Pure.

use crate::api::crd::{SetOffer, Unmatched};
use crate::claim::{NodeMatch, Rejection, Rule, SetOutcome};
use crate::device::label::SetRef;
use crate::host::KernelName;
use crate::operator::bytes::signed;
use crate::operator::disk::relevance::most_relevant_first;
use crate::operator::node::context::PassSummary;
use crate::operator::set::partitioning::partitioning;
use crate::pool::{DiskView, Pool, Selector, WantedUsage};

/// At most this many devices that a set takes or does not take are named; the others are only counted.
const NAMED: usize = 32;

pub fn offer(pool: &Pool, disks: &[DiskView], pass: &PassSummary, rule: &Rule) -> SetOffer {
    let set = &rule.set;
    let selector = Selector { class: None, set: Some(set.name.clone()) };
    let mount = pool.capacity(&selector, WantedUsage::Mount(None));
    let block = pool.capacity(&selector, WantedUsage::Block);
    let own = || disks.iter().filter(|disk| disk.set.has_name_of(set));
    let (would_take, would_take_omitted) = named(would_take(pass, rule));
    let (unmatched, unmatched_omitted) = named(unmatched(pass, rule));
    SetOffer {
        namespace: set.name.namespace.clone(),
        name: set.name.name.clone(),
        uid: set.uid.to_string(),
        class: rule.class.clone(),
        // Members of an array are no disks of their own.
        devices: signed(own().filter(|disk| disk.member_of().is_none()).count()),
        partitions: signed(own().map(|disk| disk.partitions).sum::<usize>()),
        available: signed(mount.available),
        largest: signed(mount.largest),
        smallest: signed(mount.smallest),
        block_available: signed(block.available),
        block_largest: signed(block.largest),
        block_smallest: signed(block.smallest),
        node_not_selected: rule.node == NodeMatch::NotSelected,
        message: contested(pass, rule),
        would_take,
        would_take_omitted,
        unmatched,
        unmatched_omitted,
        partitioning: partitioning(rule, outcome(pass, rule), disks, pass),
        missing_device_paths: missing(pass, rule),
    }
}

/// Other sets that want devices which this set has or takes: their status names each device, the status of this set
/// only names those sets.
fn contested(pass: &PassSummary, rule: &Rule) -> Option<String> {
    let is_this = |set: &SetRef| set.has_name_of(&rule.set);
    let lost = |(_, rejection): &&(KernelName, Rejection)| matches!(rejection, Rejection::InSet(set) | Rejection::OlderSet(set) if is_this(set));
    let selecting = pass.outcomes.iter().filter_map(|outcome| {
        let devices = outcome.rejected.iter().filter(lost).count();
        (devices > 0).then(|| format!("{} selects {devices} of its devices too", outcome.set))
    });
    let selecting: Vec<String> = selecting.collect();
    (!selecting.is_empty()).then(|| selecting.join(", "))
}

fn outcome<'a>(pass: &'a PassSummary, rule: &Rule) -> Option<&'a SetOutcome> {
    pass.outcomes.iter().find(|outcome| outcome.set == rule.set)
}

/// As many as may be named, and how many more there are.
fn named<T>(mut all: Vec<T>) -> (Vec<T>, i64) {
    let omitted = signed(all.len().saturating_sub(NAMED));
    all.truncate(NAMED);
    (all, omitted)
}

/// What a dry run would take, by the names that people use.
fn would_take(pass: &PassSummary, rule: &Rule) -> Vec<String> {
    // The pass may have used an earlier version of the set.
    let names = outcome(pass, rule).filter(|_| rule.dry_run).into_iter().flat_map(|outcome| &outcome.would_take);
    let names = most_relevant_first(rule, names.collect(), |name| pass.relevance.get(*name).copied());
    names.into_iter().filter_map(|name| pass.links.get(name).cloned()).collect()
}

/// The devices that a set did not take, or could not claim, by the names that people use.
fn unmatched(pass: &PassSummary, rule: &Rule) -> Vec<Unmatched> {
    let reason = |(name, rejection): (&KernelName, Option<&Rejection>)| match (pass.problems.get(name), rejection) {
        (Some(problem), _) => Some(problem.clone()),
        // The message of an election counts seconds, and each second would be a write.
        (None, Some(Rejection::TooYoung(_))) => Some("blank; waits for a second scan before it is claimed".to_owned()),
        (None, rejection) => rejection.map(ToString::to_string),
    };
    let device = |(name, rejection): (&KernelName, Option<&Rejection>)| {
        Some(Unmatched { device: pass.links.get(name)?.clone(), reason: reason((name, rejection))? })
    };
    // The pass may have used a version of the set that selected the node.
    let outcome = outcome(pass, rule).filter(|_| rule.node != NodeMatch::NotSelected);
    // Devices that a LocalVolume does not name do not concern it.
    let rejected = outcome
        .into_iter()
        .flat_map(|outcome| &outcome.rejected)
        .filter(|(_, rejection)| *rejection != Rejection::NotNamed);
    let takes = outcome.into_iter().flat_map(|outcome| &outcome.takes);
    let all = rejected.map(|(name, rejection)| (name, Some(rejection))).chain(takes.map(|name| (name, None))).collect();
    most_relevant_first(rule, all, |(name, _)| pass.relevance.get(*name).copied())
        .into_iter()
        .filter_map(device)
        .collect()
}

fn missing(pass: &PassSummary, rule: &Rule) -> Vec<String> {
    let paths = outcome(pass, rule).into_iter().flat_map(|outcome| &outcome.missing);
    paths.take(NAMED).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claim::sample::rule;
    use crate::host::{DevNo, DeviceKind, RawDisk};
    use crate::operator::disk::relevance::Relevance;

    #[test]
    fn a_node_with_many_devices_names_its_disks_first_and_counts_what_it_does_not_name() {
        let raw = |name: &str, kind| RawDisk::named(name.into(), "/dev/x".into(), DevNo { major: 1, minor: 1 }, kind);
        let devices = (0..40).map(|n| raw(&format!("a-loop{n}"), DeviceKind::Loop(None)));
        let devices: Vec<RawDisk> = devices.chain((0..20).map(|n| raw(&format!("sd{n}"), DeviceKind::Disk))).collect();
        let rule = rule("a");
        let names = || devices.iter().map(|raw| raw.name.clone());
        let outcome = SetOutcome {
            set: rule.set.clone(),
            node: rule.node,
            takes: Vec::new(),
            would_take: names().collect(),
            rejected: names().map(|name| (name, Rejection::Released)).collect(),
            missing: Vec::new(),
            deselected: Vec::new(),
        };
        let pass = PassSummary {
            links: names().map(|name| (name.clone(), format!("/dev/{name}"))).collect(),
            relevance: devices.iter().map(|raw| (raw.name.clone(), Relevance::of(raw))).collect(),
            outcomes: vec![outcome],
            ..PassSummary::default()
        };
        let (unmatched, omitted) = named(unmatched(&pass, &rule));
        assert_eq!((unmatched.len(), omitted), (NAMED, 60 - 32));
        assert_eq!(would_take(&pass, &rule), [] as [String; 0], "it is no dry run any more");
        let rule = Rule { dry_run: true, ..rule };
        let (would_take, omitted) = named(would_take(&pass, &rule));
        assert_eq!((would_take.len(), omitted), (NAMED, 60 - 32));
        for (device, name) in unmatched.iter().map(|unmatched| &unmatched.device).zip(&would_take) {
            assert_eq!(device, name);
        }
        assert!(would_take[..20].iter().all(|name| name.starts_with("/dev/sd")), "{would_take:?}");
    }

    #[test]
    fn a_disk_that_could_not_be_claimed_is_named_with_the_reason_and_one_under_way_is_not() {
        let rule = rule("a");
        let outcome = SetOutcome {
            set: rule.set.clone(),
            node: rule.node,
            takes: vec!["sda".into(), "sdb".into()],
            would_take: Vec::new(),
            rejected: vec![("sdc".into(), Rejection::Released)],
            missing: Vec::new(),
            deselected: Vec::new(),
        };
        let link = |name: &str| (name.into(), format!("/dev/{name}"));
        let pass = PassSummary {
            links: ["sda", "sdb", "sdc"].map(link).into(),
            problems: [("sda".into(), "nothing is claimed".to_owned())].into(),
            outcomes: vec![outcome],
            ..PassSummary::default()
        };
        let reason_of: Vec<_> = unmatched(&pass, &rule).into_iter().map(|one| (one.device, one.reason)).collect();
        let reason_of = |device: &str| reason_of.iter().find(|one| one.0 == device).map(|one| one.1.as_str());
        assert_eq!((reason_of("/dev/sda"), reason_of("/dev/sdb")), (Some("nothing is claimed"), None));
        assert!(reason_of("/dev/sdc").is_some_and(|reason| reason == Rejection::Released.to_string()));
    }

    #[test]
    fn a_set_of_other_nodes_has_no_word_of_the_devices_of_this_one() {
        let rule = Rule { node: NodeMatch::NotSelected, ..rule("a") };
        let outcome = SetOutcome {
            set: rule.set.clone(),
            node: NodeMatch::Selected,
            takes: vec!["sda".into()],
            would_take: Vec::new(),
            rejected: vec![("sdb".into(), Rejection::Released)],
            missing: Vec::new(),
            deselected: Vec::new(),
        };
        let pass = PassSummary {
            links: ["sda", "sdb"].map(|name| (name.into(), format!("/dev/{name}"))).into(),
            problems: [("sda".into(), "nothing is claimed".to_owned())].into(),
            outcomes: vec![outcome],
            ..PassSummary::default()
        };
        assert_eq!(unmatched(&pass, &rule), []);
        let now = Rule { node: NodeMatch::Selected, ..rule };
        assert_eq!(unmatched(&pass, &now).len(), 2);
    }

    #[test]
    fn a_set_is_told_which_others_want_its_devices_too() {
        let lost = |name: &str, rejection| (name.into(), rejection);
        let outcome = |of: &str, rejected| SetOutcome {
            set: rule(of).set,
            node: NodeMatch::Selected,
            takes: Vec::new(),
            would_take: Vec::new(),
            rejected,
            missing: Vec::new(),
            deselected: Vec::new(),
        };
        let again = SetRef { uid: "made again".into(), ..rule("a").set };
        let late = vec![
            lost("sda", Rejection::InSet(again)),
            lost("sdb", Rejection::OlderSet(rule("a").set)),
            lost("sdc", Rejection::InSet(rule("c").set)),
            lost("sdd", Rejection::Released),
        ];
        let pass =
            PassSummary { outcomes: vec![outcome("a", Vec::new()), outcome("late", late)], ..PassSummary::default() };
        let message = format!("{} selects 2 of its devices too", rule("late").set.name);
        assert_eq!(contested(&pass, &rule("a")), Some(message));
        assert_eq!(contested(&pass, &rule("late")), None);
    }
}
