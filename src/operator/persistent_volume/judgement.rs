//! What is wrong with a PersistentVolume: what its agent reports, and whether its node is there.

use std::collections::BTreeSet;

use jiff::SignedDuration;

use crate::api::crd::HealthEntry;
use crate::health::HealthReason;
use crate::operator::node::ready::NodeReadiness;
use crate::operator::status::steady::Lasting;

/// What is wrong with one PersistentVolume, as far as it is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judgement {
    /// Also those by which it is marked and of which nobody knows whether they still hold.
    pub reasons: BTreeSet<HealthReason>,
    /// After this time it may be another one, even if nothing changes.
    pub due: Option<SignedDuration>,
}

/// What is known of a volume besides its node.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reported<'a> {
    NotYet,
    /// All that its agent found.
    Entries(&'a [HealthEntry]),
    /// Its PoolVolume does not exist.
    Absent(Lasting<()>),
}

/// Whether the agent of a volume's node still looks at it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watcher {
    /// What is reported says so itself, or there is nobody.
    InReport,
    Answers,
    Silent,
}

/// What a PersistentVolume promises, compared with what its volume has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PromisedSize {
    /// It holds, or only the agent can compare.
    Fits,
    Above(Lasting<()>),
}

/// `present` are the reasons by which it is marked now.
pub fn judge(
    node: Lasting<NodeReadiness>,
    reported: Reported<'_>,
    watcher: Watcher,
    promise: PromisedSize,
    present: &BTreeSet<HealthReason>,
) -> Judgement {
    let of_node = [HealthReason::NodeNotReady, HealthReason::NodeGone];
    let of_volume = || present.iter().filter(|reason| !of_node.contains(reason)).cloned().collect();
    let (mut reasons, mut due): (BTreeSet<HealthReason>, _) = match reported {
        Reported::NotYet => (of_volume(), None),
        Reported::Entries(entries) => {
            // Of the node more is known here, and what is written in each volume may be late.
            let reasons = entries.iter().map(|entry| mark_of(HealthReason::from(entry.reason.clone())));
            (reasons.filter(|reason| !of_node.contains(reason)).collect(), None)
        }
        Reported::Absent(Lasting::Yes(())) => ([HealthReason::VolumeMissing].into(), None),
        Reported::Absent(Lasting::In(wait)) => (of_volume(), Some(wait)),
    };
    match watcher {
        Watcher::InReport => {}
        Watcher::Answers => drop(reasons.remove(&HealthReason::AgentSilent)),
        Watcher::Silent => drop(reasons.insert(HealthReason::AgentSilent)),
    }
    match promise {
        PromisedSize::Fits => {}
        PromisedSize::Above(Lasting::Yes(())) => drop(reasons.insert(HealthReason::MisMatchedVolSize)),
        // Neither marked nor unmarked for it.
        PromisedSize::Above(Lasting::In(wait)) => {
            reasons.extend(present.get(&HealthReason::MisMatchedVolSize).cloned());
            due = due.into_iter().chain([wait]).min();
        }
    }
    match node {
        Lasting::Yes(NodeReadiness::Ready) => {}
        Lasting::Yes(NodeReadiness::NotReady) => drop(reasons.insert(HealthReason::NodeNotReady)),
        Lasting::Yes(NodeReadiness::Gone) => drop(reasons.insert(HealthReason::NodeGone)),
        // Neither marked nor unmarked for it.
        Lasting::In(wait) => {
            reasons.extend(of_node.into_iter().filter(|reason| present.contains(reason)));
            due = due.into_iter().chain([wait]).min();
        }
    }
    Judgement { reasons, due }
}

/// Kubernetes' proposal has one word for a PersistentVolume whose device is too small, whoever made it.
fn mark_of(reason: HealthReason) -> HealthReason {
    match reason {
        HealthReason::CapacityAboveDevice => HealthReason::MisMatchedVolSize,
        reason => reason,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAIT: SignedDuration = SignedDuration::from_secs(7);

    fn words(judgement: &Judgement) -> Vec<&str> {
        judgement.reasons.iter().map(HealthReason::word).collect()
    }

    fn entry(reason: &str) -> HealthEntry {
        HealthEntry {
            reason: reason.to_owned(),
            severity: String::new(),
            message: String::new(),
            since: None,
            confirmed_by: None,
        }
    }

    #[test]
    fn what_the_agent_reports_and_the_state_of_the_node_are_reasons() {
        let none = BTreeSet::new();
        let entries = [entry("DiskMissing")];
        let judged = judge(
            Lasting::Yes(NodeReadiness::Ready),
            Reported::Entries(&entries),
            Watcher::InReport,
            PromisedSize::Fits,
            &none,
        );
        assert_eq!((words(&judged), judged.due), (vec!["DiskMissing"], None));
        let judged = judge(
            Lasting::Yes(NodeReadiness::NotReady),
            Reported::Entries(&entries),
            Watcher::InReport,
            PromisedSize::Fits,
            &none,
        );
        assert_eq!(words(&judged), ["DiskMissing", "NodeNotReady"]);
        let judged = judge(
            Lasting::Yes(NodeReadiness::Ready),
            Reported::Entries(&[entry("CapacityAboveDevice")]),
            Watcher::InReport,
            PromisedSize::Fits,
            &none,
        );
        assert_eq!(words(&judged), ["MisMatchedVolSize"]);
    }

    #[test]
    fn while_nobody_knows_what_is_wrong_marks_stay_but_for_those_of_the_node() {
        let present = [HealthReason::NotMountPoint, HealthReason::NodeNotReady].into();
        let judged = |node| {
            words(&judge(Lasting::Yes(node), Reported::NotYet, Watcher::InReport, PromisedSize::Fits, &present))
                .join(" ")
        };
        assert_eq!(judged(NodeReadiness::Ready), "NotMountPoint");
        assert_eq!(judged(NodeReadiness::NotReady), "NotMountPoint NodeNotReady");
        assert_eq!(judged(NodeReadiness::Gone), "NotMountPoint NodeGone");
    }

    #[test]
    fn a_volume_that_promises_too_much_keeps_its_mark_while_a_new_leader_does_not_know_for_how_long() {
        for (present, expected) in
            [(vec![], vec![]), (vec![HealthReason::MisMatchedVolSize], vec!["MisMatchedVolSize"])]
        {
            let (ready, promise) = (Lasting::Yes(NodeReadiness::Ready), PromisedSize::Above(Lasting::In(WAIT)));
            let judged =
                judge(ready, Reported::Entries(&[]), Watcher::InReport, promise, &present.into_iter().collect());
            assert_eq!((words(&judged), judged.due), (expected, Some(WAIT)));
        }
    }

    #[test]
    fn a_node_that_has_just_changed_neither_marks_nor_unmarks() {
        for (present, expected) in [(vec![], vec![]), (vec![HealthReason::NodeNotReady], vec!["NodeNotReady"])] {
            let judged = judge(
                Lasting::In(WAIT),
                Reported::Entries(&[]),
                Watcher::InReport,
                PromisedSize::Fits,
                &present.into_iter().collect(),
            );
            assert_eq!((words(&judged), judged.due), (expected, Some(WAIT)));
        }
    }

    #[test]
    fn a_volume_without_an_object_is_missing_after_a_while() {
        let (ready, present) = (Lasting::Yes(NodeReadiness::Ready), [HealthReason::DiskMissing].into());
        let judged = judge(ready, Reported::Absent(Lasting::In(WAIT)), Watcher::InReport, PromisedSize::Fits, &present);
        assert_eq!((words(&judged), judged.due), (vec!["DiskMissing"], Some(WAIT)));
        let judged = judge(ready, Reported::Absent(Lasting::Yes(())), Watcher::InReport, PromisedSize::Fits, &present);
        assert_eq!((words(&judged), judged.due), (vec!["VolumeMissing"], None));
    }

    #[test]
    fn one_that_has_promised_too_much_for_a_while_is_marked_and_unmarked_when_it_fits() {
        let ready = Lasting::Yes(NodeReadiness::Ready);
        let judged = |promise| {
            let judged = judge(ready, Reported::Entries(&[]), Watcher::InReport, promise, &BTreeSet::new());
            (words(&judged).join(" "), judged.due)
        };
        assert_eq!(judged(PromisedSize::Fits), (String::new(), None));
        assert_eq!(judged(PromisedSize::Above(Lasting::In(WAIT))), (String::new(), Some(WAIT)), "it may be growing");
        assert_eq!(judged(PromisedSize::Above(Lasting::Yes(()))), ("MisMatchedVolSize".to_owned(), None));
    }

    #[test]
    fn an_agent_that_is_silent_adds_that_to_what_it_said_last_and_takes_nothing_back() {
        let entries = [entry("NotMountPoint")];
        let judged = |reported, watcher, present: &[HealthReason]| {
            let (ready, present) = (Lasting::Yes(NodeReadiness::Ready), present.iter().cloned().collect());
            words(&judge(ready, reported, watcher, PromisedSize::Fits, &present)).join(" ")
        };
        let silent = [HealthReason::AgentSilent];
        assert_eq!(judged(Reported::Entries(&entries), Watcher::Silent, &[]), "NotMountPoint AgentSilent");
        assert_eq!(judged(Reported::Entries(&entries), Watcher::Answers, &silent), "NotMountPoint");
        assert_eq!(judged(Reported::NotYet, Watcher::Silent, &[]), "AgentSilent");
        assert_eq!(judged(Reported::NotYet, Watcher::Answers, &silent), "", "it has not looked yet, and it speaks");
        assert_eq!(judged(Reported::NotYet, Watcher::InReport, &silent), "AgentSilent", "there is nobody any more");
    }
}
