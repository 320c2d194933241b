use std::sync::Arc;

use jiff::SignedDuration;

use super::super::live::{EvictionAnswer, PodFacts, PvcFacts};
use super::super::marked::HomeState;
use super::super::record::UnreadableRecord;
use super::super::sample::{live, lost, minutes_ago, now, pod, view};
use super::super::tally::NodeTally;
use super::super::view::PodRef;
use super::*;
use crate::health::HealthReason;
use crate::operator::kube_volume::PersistentVolume;
use crate::operator::status::steady::Lasting;

const WAIT: Lasting<()> = Lasting::In(SignedDuration::from_secs(1));

fn deeds(view: &ReactionView) -> Vec<Deed> {
    decide(view).into_iter().map(|step| step.deed).collect()
}

fn deed(view: &ReactionView) -> Deed {
    let all = deeds(view);
    assert_eq!(all.len(), 1, "{all:?}");
    all.into_iter().next().expect("one")
}

/// The record that begins here.
fn begun(view: &ReactionView) -> ReactionRecord {
    match deed(view) {
        Deed::Begin(record) => record,
        other => panic!("{other:?}"),
    }
}

/// Carried out: the record is written, and the data is kept.
fn with_record(volume: MarkedVolume) -> MarkedVolume {
    let record = begun(&view(vec![volume.clone()]));
    let mut volume = volume.with(retain);
    volume.record = Some(Ok(record));
    volume
}

fn retain(volume: &mut PersistentVolume) {
    volume.reclaim_policy = Some("Retain".to_owned());
}

/// The same view, and what a test changes in what was read of its only volume.
fn changed(volume: &MarkedVolume, change: impl FnOnce(&mut LiveFacts)) -> ReactionView {
    let mut view = view(vec![volume.clone()]);
    change(view.live.get_mut(&volume.uid).expect("read"));
    view
}

fn in_mode(mode: ReactionMode, mut view: ReactionView) -> ReactionView {
    view.settings.mode = mode;
    view
}

fn reference(pod: &PodFacts) -> PodRef {
    pod.reference(&"db".into())
}

fn uid(text: &str) -> Uid<PersistentVolume> {
    text.into()
}

fn of_pod(live: &mut LiveFacts, change: impl FnOnce(&mut PodFacts)) {
    change(live.pods.iter_mut().find(|pod| pod.uses_pvc).expect("it uses the claim"));
}

#[test]
fn a_lost_volume_is_read_its_budget_is_asked_and_then_it_begins() {
    let volume = lost("a", 1);
    let mut view = view(vec![volume.clone()]);
    let read = view.live.remove(&volume.uid).expect("read");
    assert_eq!(deed(&view), Deed::Read);
    view.live.insert(volume.uid.clone(), LiveFacts { eviction: None, ..read.clone() });
    assert_eq!(deed(&view), Deed::AskEviction(reference(&PodFacts { uses_pvc: true, ..pod("a", 1) })));
    view.live.insert(volume.uid.clone(), read);
    let record = begun(&view);
    assert_eq!((record.pvc.name.as_str(), record.pod.as_str(), record.policy.as_str()), ("data-a-1", "a-1", "Delete"));
    assert_eq!((record.reason.as_str(), record.began), ("DiskMissing", view.now));
}

#[test]
fn what_was_read_of_another_state_of_the_volume_decides_nothing() {
    for change in [
        |live: &mut LiveFacts| live.volume = None,
        |live: &mut LiveFacts| {
            let found = live.volume.as_mut().expect("set");
            Arc::make_mut(found).metadata.resource_version = Some("2".to_owned());
        },
    ] {
        assert_eq!(deeds(&changed(&lost("a", 1), change)), []);
        assert_eq!(deeds(&changed(&with_record(lost("a", 1)), change)), []);
    }
}

#[test]
fn nothing_is_deleted_unless_mode_class_and_namespace_ask_for_it() {
    let volume = lost("a", 1);
    assert_eq!(deeds(&in_mode(ReactionMode::Off, view(vec![volume.clone()]))), []);
    assert_eq!(deed(&in_mode(ReactionMode::DryRun, view(vec![volume.clone()]))), Deed::Explain(Why::DryRun));
    let mut not_chosen = volume.clone();
    not_chosen.class.is_chosen = false;
    assert_eq!(deed(&view(vec![not_chosen])), Deed::Explain(Why::ClassNotChosen));
    let view = changed(&volume, |live| live.namespace.is_chosen = false);
    assert_eq!(deed(&view), Deed::Explain(Why::NamespaceNotChosen));
}

/// A view for each reason why a volume does not begin.
fn held(why: Why) -> Option<ReactionView> {
    let volume = lost("a", 1);
    let with = |change: &dyn Fn(&mut MarkedVolume)| {
        let mut volume = volume.clone();
        change(&mut volume);
        view(vec![volume])
    };
    let view_with = |change: &dyn Fn(&mut ReactionView)| {
        let mut view = view(vec![volume.clone()]);
        change(&mut view);
        view
    };
    let live_with = |change: &dyn Fn(&mut LiveFacts)| changed(&volume, change);
    let path = |phase: BindingPhase| {
        let mut volume = volume.clone().with(|volume| volume.phase = phase);
        volume.backing = Backing::Path("/x".to_owned());
        volume
    };
    Some(match why {
        Why::ClassNotChosen => with(&|volume| volume.class.is_chosen = false),
        // It is in no view: it has no loss.
        Why::MarkNotCounted => return None,
        Why::DiskElsewhere => with(&|volume| volume.is_elsewhere = true),
        Why::Recovering => with(&|volume| volume.lost_since = Some(minutes_ago(4))),
        Why::NodeNotFenced => with(&|volume| volume.home = HomeState::NotReady),
        Why::NodeIsBack => with(&|volume| volume.losses = [HealthReason::NodeNotReady].into()),
        Why::NobodyKnows => with(&|volume| volume.home = HomeState::Silent),
        Why::ClockJumped => view_with(&|view| view.past.clock = WAIT),
        Why::ManyNodesBad => view_with(&|view| view.nodes = NodeTally { bad: 3, all: 20 }),
        Why::TooManyAtOnce => view(vec![volume.clone(), with_record(lost("b", 0))]),
        Why::TooManyInAnHour => {
            let before = (0..4).map(|ordinal| {
                let mut volume = with_record(lost(&format!("b{ordinal}"), 1));
                let record = volume.record.take().and_then(Result::ok).expect("begun");
                volume.reacted = Some(record.ended(HowEnded::Finished, minutes_ago(1)));
                volume.losses.clear();
                volume
            });
            view(before.chain([volume.clone()]).collect())
        }
        Why::Paused => with(&|volume| volume.is_paused = true),
        Why::ImmediateBinding => with(&|volume| volume.class.is_immediate = true),
        Why::RecordUnreadable => with(&|volume| volume.record = Some(Err(UnreadableRecord))),
        Why::NamespaceNotChosen => live_with(&|live| live.namespace.is_chosen = false),
        Why::ClaimElsewhere => live_with(&|live| live.pvc.as_mut().expect("set").uid = "another".into()),
        Why::NoPod => live_with(&|live| live.pods.retain(|pod| !pod.uses_pvc)),
        Why::OtherPodUsesClaim => live_with(&|live| live.pods[1].uses_pvc = true),
        Why::NotStatefulSet => live_with(&|live| of_pod(live, |pod| pod.stateful_set = None)),
        Why::NotFromTemplate => {
            live_with(&|live| live.stateful_set.as_mut().expect("set").templates = vec!["other".to_owned()])
        }
        Why::SetEnds => live_with(&|live| live.stateful_set.as_mut().expect("set").first_ordinal = 2),
        Why::OnlyReplica => live_with(&|live| {
            let stateful_set = live.stateful_set.as_mut().expect("set");
            (stateful_set.replicas, stateful_set.first_ordinal) = (1, 1);
        }),
        Why::SetBusy => {
            let mut view = view(vec![volume.clone(), with_record(lost("a", 0))]);
            view.settings.at_once = 2;
            view
        }
        Why::SetNotHealthy => live_with(&|live| live.pods[1].is_ready = false),
        Why::EarlierPodNotReady => live_with(&|live| {
            let stateful_set = live.stateful_set.as_mut().expect("set");
            (stateful_set.is_ordered, stateful_set.replicas) = (true, 5);
            live.pods.extend([pod("a", 3), pod("a", 4)]);
            live.pods.retain(|pod| pod.name != "a-0");
        }),
        Why::Refused => live_with(&|live| live.eviction = Some(EvictionAnswer::Failed)),
        Why::BudgetExhausted => live_with(&|live| live.eviction = Some(EvictionAnswer::Refused)),
        Why::DryRun => in_mode(ReactionMode::DryRun, view(vec![volume.clone()])),
        Why::MadeByHand => view(vec![path(BindingPhase::Available)]).also_lost(),
        Why::HasData => view(vec![path(BindingPhase::Released)]).also_lost(),
        // Of what is under way: the tests below.
        Why::PolicyChanged
        | Why::SwitchedOff
        | Why::WaitsForSet
        | Why::WaitsForPod
        | Why::WaitsForClaim
        | Why::WaitsForBinding
        | Why::WaitsForReady => {
            return None;
        }
    })
}

impl ReactionView {
    /// A path is lost by other marks than a disk.
    fn also_lost(mut self) -> Self {
        for volume in &mut self.volumes {
            volume.losses = [HealthReason::HostPathNotExist].into();
        }
        self
    }
}

#[test]
fn each_why_has_a_view_that_gives_it() {
    for why in Why::ALL {
        let Some(view) = held(*why) else { continue };
        let steps = decide(&view);
        let ours = steps.iter().find(|step| step.volume == "pv-a-1").unwrap_or_else(|| panic!("{why:?}: {steps:?}"));
        assert_eq!(ours.deed, Deed::Explain(*why), "{steps:?}");
    }
}

#[test]
fn a_node_is_lost_when_it_is_gone_or_fenced_and_not_before() {
    let with = |home, losses: &[HealthReason], node: Option<&str>| {
        let mut volume = lost("a", 1);
        (volume.home, volume.losses) = (home, losses.iter().cloned().collect());
        let view = changed(&volume, |live| live.node = node.map(Uid::from));
        deed(&view)
    };
    use HealthReason::{DiskMissing, NodeGone, NodeNotReady};
    let begins = |deed| matches!(deed, Deed::Begin(_));
    assert!(begins(with(HomeState::Gone, &[NodeGone], None)));
    assert_eq!(with(HomeState::Gone, &[NodeGone], Some("new")), Deed::Explain(Why::NodeIsBack), "the watch was late");
    assert_eq!(with(HomeState::Gone, &[DiskMissing], None), Deed::Explain(Why::Recovering), "it is marked soon");
    assert!(begins(with(HomeState::Fenced, &[NodeNotReady], Some("u"))));
    assert_eq!(with(HomeState::NotReady, &[NodeNotReady, DiskMissing], Some("u")), Deed::Explain(Why::NodeNotFenced));
    assert_eq!(with(HomeState::Silent, &[DiskMissing], Some("u")), Deed::Explain(Why::NobodyKnows));
    assert!(begins(with(HomeState::Ready, &[DiskMissing, NodeNotReady], Some("u"))));
}

#[test]
fn what_the_agent_that_runs_now_has_not_found_itself_deletes_no_claim_and_what_it_has_found_besides_does() {
    use HealthReason::{DiskNotAnswering, DiskReadOnly, NodeNotReady};
    let with = |losses: &[HealthReason], unconfirmed: &[HealthReason]| {
        let mut volume = lost("a", 1);
        volume.losses = losses.iter().cloned().collect();
        volume.unconfirmed = unconfirmed.iter().cloned().collect();
        deed(&view(vec![volume]))
    };
    assert_eq!(with(&[DiskReadOnly], &[DiskReadOnly]), Deed::Explain(Why::NobodyKnows));
    assert_eq!(with(&[DiskReadOnly, NodeNotReady], &[DiskReadOnly]), Deed::Explain(Why::NobodyKnows));
    let both = [DiskNotAnswering, DiskReadOnly];
    let Deed::Begin(record) = with(&both, &[DiskReadOnly]) else { panic!("it does not answer this one either") };
    assert_eq!(record.reason, "DiskNotAnswering");
    assert!(matches!(with(&both, &[]), Deed::Begin(_)));
}

#[test]
fn the_claim_goes_before_the_pod_and_the_data_is_kept_before_both() {
    let volume = with_record(lost("a", 1));
    let record = begun(&view(vec![lost("a", 1)]));
    assert_eq!(deed(&view(vec![volume.clone()])), Deed::DeletePvc(record.pvc.clone()));
    let lax = volume.clone().with(|volume| volume.reclaim_policy = None);
    assert!(matches!(deed(&view(vec![lax])), Deed::Cancel(_, Why::PolicyChanged)), "the deletion would take the data");
    let asked = changed(&volume, |live| live.eviction = None);
    assert!(matches!(deed(&asked), Deed::AskEviction(_)), "a deleted claim cannot be kept");

    // The old pod holds the claim.
    let deleted = |live: &mut LiveFacts| live.pvc.as_mut().expect("set").is_deleted = true;
    let running = changed(&volume, deleted);
    assert_eq!(deed(&running), Deed::Evict(reference(&pod("a", 1))));
    let ending = changed(&volume, |live| {
        deleted(live);
        of_pod(live, |pod| pod.is_deleted = true);
    });
    assert_eq!(deed(&ending), Deed::Explain(Why::WaitsForPod));

    // The new pod waits until the old claim has gone; then nobody makes the new one.
    let unscheduled = |live: &mut LiveFacts| of_pod(live, |pod| (pod.uid, pod.node) = ("new".into(), None));
    let waiting = changed(&volume, |live| {
        deleted(live);
        unscheduled(live);
    });
    assert_eq!(deed(&waiting), Deed::Explain(Why::WaitsForClaim));
    let stuck = changed(&volume, |live| {
        live.pvc = None;
        unscheduled(live);
    });
    assert_eq!(deed(&stuck), Deed::Evict(reference(&PodFacts { uid: "new".into(), ..pod("a", 1) })));

    // The StatefulSet is slow.
    let none = changed(&volume, |live| {
        live.pvc = None;
        live.pods.retain(|pod| !pod.uses_pvc);
    });
    assert_eq!(deed(&none), Deed::Explain(Why::WaitsForSet));
    let held = changed(&volume, |live| {
        deleted(live);
        live.pods.retain(|pod| !pod.uses_pvc);
    });
    assert_eq!(deed(&held), Deed::Explain(Why::WaitsForClaim));

    // The StatefulSet has made both again.
    let new_pvc = |live: &mut LiveFacts, is_bound| {
        live.pvc = Some(PvcFacts { uid: "new".into(), is_bound, ..PvcFacts::default() });
    };
    let unbound = changed(&volume, |live| new_pvc(live, false));
    assert_eq!(deed(&unbound), Deed::Explain(Why::WaitsForBinding));
    let starting = changed(&volume, |live| new_pvc(live, true));
    assert_eq!(deed(&starting), Deed::Explain(Why::WaitsForReady));
    let whole = changed(&volume, |live| {
        new_pvc(live, true);
        of_pod(live, |pod| pod.is_ready = true);
    });
    assert_eq!(deed(&whole), Deed::Finish(record));
}

#[test]
fn a_volume_that_is_well_again_or_may_not_go_is_cancelled_before_its_claim_goes_and_not_after() {
    let volume = with_record(lost("a", 1));
    let cancelled = |view: &ReactionView| match deed(view) {
        Deed::Cancel(_, why) => why,
        other => panic!("{other:?}"),
    };
    let mut well = volume.clone();
    well.losses.clear();
    assert_eq!(cancelled(&view(vec![well.clone()])), Why::MarkNotCounted);
    let moved = MarkedVolume { is_elsewhere: true, ..volume.clone() };
    assert_eq!(cancelled(&view(vec![moved])), Why::DiskElsewhere);
    let mut many = view(vec![volume.clone()]);
    many.nodes = NodeTally { bad: 3, all: 20 };
    assert_eq!(cancelled(&many), Why::ManyNodesBad);
    let refused = changed(&volume, |live| live.eviction = Some(EvictionAnswer::Refused));
    assert_eq!(cancelled(&refused), Why::BudgetExhausted);
    let new_node = changed(&volume, |live| live.node = Some("another".into()));
    assert_eq!(cancelled(&new_node), Why::NodeIsBack, "a node of the same name has other disks");
    let mut paused = volume.clone();
    paused.is_paused = true;
    assert_eq!(cancelled(&view(vec![paused.clone()])), Why::Paused);

    // A controller that has just taken over.
    let mut new = view(vec![volume]);
    new.past.seen.clear();
    assert_eq!(deed(&new), Deed::Explain(Why::Recovering));

    let gone = |live: &mut LiveFacts| live.pvc.as_mut().expect("set").is_deleted = true;
    assert!(matches!(deed(&changed(&well, gone)), Deed::Evict(_)), "a claim that is being deleted cannot be kept");
    assert_eq!(deed(&changed(&paused, gone)), Deed::Explain(Why::Paused));
}

#[test]
fn switched_off_it_is_taken_back_or_stops() {
    let volume = with_record(lost("a", 1));
    let gone = |live: &mut LiveFacts| live.pvc = None;
    for mode in [ReactionMode::Off, ReactionMode::DryRun] {
        assert!(matches!(deed(&in_mode(mode, view(vec![volume.clone()]))), Deed::Cancel(_, Why::SwitchedOff)));
        assert!(matches!(deed(&in_mode(mode, changed(&volume, gone))), Deed::Stop(..)));
    }
    let rebound = volume.clone().with(|volume| volume.pvc = None);
    assert!(matches!(deed(&changed(&rebound, gone)), Deed::Stop(..)), "somebody binds the volume again");
    let unlabelled = changed(&volume, |live| (live.pvc, live.namespace.is_chosen) = (None, false));
    assert!(matches!(deed(&unlabelled), Deed::Stop(..)));
    for end in [
        |live: &mut LiveFacts| live.stateful_set = None,
        |live: &mut LiveFacts| live.stateful_set.as_mut().expect("set").replicas = 1,
    ] {
        let ends = changed(&volume, |live| {
            live.pvc = None;
            end(live);
        });
        assert!(matches!(deed(&ends), Deed::Stop(..)), "nobody makes the pod again");
    }
}

#[test]
fn one_begins_in_a_pass_and_a_new_one_only_when_the_last_is_whole() {
    let sets = ["a", "b", "c"];
    let mut view = view(sets.iter().map(|stateful_set| lost(stateful_set, 1)).collect());
    view.settings.at_once = 2;
    let begins = |view: &ReactionView| deeds(view).iter().filter(|deed| matches!(deed, Deed::Begin(_))).count();
    assert_eq!(begins(&view), 1);
    view.volumes[0] = with_record(lost("a", 1));
    assert_eq!(begins(&view), 1);
    view.volumes[1] = with_record(lost("b", 1));
    assert_eq!(begins(&view), 0);
    let record = view.volumes[0].record.take().and_then(Result::ok).expect("begun");
    view.volumes[0].reacted = Some(record.ended(HowEnded::Finished, minutes_ago(0)));
    view.volumes[0].losses.clear();
    assert_eq!(begins(&view), 1);
}

#[test]
fn all_lost_claims_of_a_pod_go_before_the_pod_does() {
    let data = with_record(lost("a", 1));
    let mut log = lost("a", 1).with(|volume| {
        volume.metadata.uid = Some("log".to_owned());
        let pvc = volume.pvc.as_mut().expect("set");
        (pvc.name, pvc.uid) = (Some("log-a-1".into()), Some("claim-log".into()));
        volume.metadata.name = Some("log".to_owned());
    });
    let of_log = |volume: &MarkedVolume| {
        let pvc =
            PvcFacts { uid: "claim-log".into(), volume: Some("log".into()), is_bound: true, ..PvcFacts::default() };
        LiveFacts { pvc: Some(pvc), volume: Some(Arc::clone(&volume.volume)), ..live(&lost("a", 1)) }
    };
    log.uid = uid("log");
    let view_of = |log: &MarkedVolume, data_live: LiveFacts| {
        let mut view = view(vec![data.clone()]);
        view.past.seen.insert(uid("log"), Lasting::Yes(()));
        view.live.insert(uid("log"), of_log(log));
        view.live.insert(data.uid.clone(), data_live);
        view.volumes.push(log.clone());
        view
    };
    let data_live = live(&data);
    let all = deeds(&view_of(&log, data_live.clone()));
    assert!(matches!(all.as_slice(), [Deed::DeletePvc(_), Deed::Begin(_)]), "beside the other: {all:?}");
    let mut late = data_live.clone();
    late.pvc.as_mut().expect("set").is_deleted = true;
    let all = deeds(&view_of(&log, late));
    assert!(matches!(all.as_slice(), [Deed::Explain(Why::WaitsForClaim), Deed::Begin(_)]), "not without it: {all:?}");
    let Deed::Begin(record) = all[1].clone() else { unreachable!() };
    log.record = Some(Ok(record));
    log = log.with(retain);
    let mut deleted = data_live;
    deleted.pvc.as_mut().expect("set").is_deleted = true;
    let all = deeds(&view_of(&log, deleted.clone()));
    assert!(matches!(all.as_slice(), [Deed::Explain(Why::WaitsForClaim), Deed::DeletePvc(_)]), "{all:?}");
    let mut view = view_of(&log, deleted);
    view.live.get_mut(&uid("log")).expect("set").pvc.as_mut().expect("set").is_deleted = true;
    let all = deeds(&view);
    assert!(matches!(all.as_slice(), [Deed::Evict(_), Deed::Evict(_)]), "{all:?}");
}

#[test]
fn a_volume_begins_when_it_was_lost_for_the_interval_and_not_a_second_before() {
    let lost_for = |seconds| {
        let lost_since = Some(now() - SignedDuration::from_secs(seconds));
        deed(&view(vec![MarkedVolume { lost_since, ..lost("a", 1) }]))
    };
    assert_eq!(lost_for(299), Deed::Explain(Why::Recovering));
    assert!(matches!(lost_for(300), Deed::Begin(_)), "{:?}", lost_for(300));
}

/// A local PersistentVolume that nobody has.
fn unbound(annotation: &str, mark: HealthReason) -> MarkedVolume {
    let mut volume = lost("a", 1).with(|volume| {
        volume.phase = BindingPhase::Available;
        volume.pvc = None;
        let annotations = [(annotation.to_owned(), "somebody".to_owned())].into();
        volume.metadata.annotations = Some(annotations);
    });
    volume.backing = Backing::Path("/x".to_owned());
    volume.losses = [mark].into();
    volume
}

#[test]
fn an_unbound_local_volume_is_deleted_if_it_stays_lost_and_somebody_makes_it_again() {
    let volume = unbound(PROVISIONED_BY, HealthReason::HostPathNotExist);
    let early = MarkedVolume { lost_since: Some(minutes_ago(4)), ..volume.clone() };
    assert_eq!(deed(&view(vec![early])), Deed::Explain(Why::Recovering));
    let late = changed(&volume, |live| live.losses.clear());
    assert_eq!(deed(&late), Deed::Explain(Why::Recovering), "its agent finds it again");
    let mut reacted = volume.clone();
    reacted.reacted = with_record(lost("a", 1)).record.and_then(Result::ok);
    assert_eq!(deed(&view(vec![reacted])), Deed::Explain(Why::HasData), "somebody is about to bind it again");
    assert_eq!(deed(&view(vec![volume.clone()])), Deed::DeleteVolume);
    assert_eq!(deed(&in_mode(ReactionMode::DryRun, view(vec![volume.clone()]))), Deed::Explain(Why::DryRun));
    assert_eq!(deeds(&in_mode(ReactionMode::Off, view(vec![volume.clone()]))), []);
    let by_hand = unbound("x", HealthReason::HostPathNotExist);
    assert_eq!(deed(&view(vec![by_hand])), Deed::Explain(Why::MadeByHand));
    let mut own = volume.clone();
    own.backing = lost("a", 1).backing;
    assert_eq!(deeds(&view(vec![own])), []);
    let many: Vec<MarkedVolume> =
        (0..12).map(|number| MarkedVolume { uid: uid(&format!("pv-a-{number}")), ..volume.clone() }).collect();
    let mut many = view(many);
    many.live.clear();
    assert_eq!(deeds(&many), vec![Deed::Read; 10], "no more are deleted in a pass");
}

#[test]
fn an_unbound_local_volume_is_deleted_for_each_loss_but_not_while_its_node_may_write() {
    use HealthReason::{HostPathNotExist, NodeGone, NodeNotReady, NotMountPoint};
    let with = |home, mark, node: Option<&str>| {
        let volume = MarkedVolume { home, ..unbound(PROVISIONED_BY, mark) };
        deed(&changed(&volume, |live| live.node = node.map(Uid::from)))
    };
    for mark in [HostPathNotExist, NotMountPoint] {
        assert_eq!(with(HomeState::Ready, mark.clone(), Some("u")), Deed::DeleteVolume, "{mark}");
        assert_eq!(with(HomeState::Silent, mark.clone(), Some("u")), Deed::Explain(Why::NobodyKnows), "{mark}");
    }
    assert_eq!(with(HomeState::Gone, NodeGone, None), Deed::DeleteVolume);
    assert_eq!(with(HomeState::Gone, NodeGone, Some("new")), Deed::Explain(Why::NodeIsBack), "the watch was late");
    assert_eq!(with(HomeState::Fenced, NodeNotReady, Some("u")), Deed::DeleteVolume);
    assert_eq!(with(HomeState::NotReady, NodeNotReady, Some("u")), Deed::Explain(Why::NodeNotFenced));
    assert_eq!(with(HomeState::Ready, NodeNotReady, Some("u")), Deed::Explain(Why::NodeIsBack));
}

#[test]
fn of_five_thousand_volumes_ten_are_read_and_always_those_that_have_begun() {
    let mut view = view((0..5000).map(|number| lost(&format!("s{number}"), 1)).collect());
    view.live.clear();
    let reads = |view: &ReactionView| deeds(view).iter().filter(|deed| **deed == Deed::Read).count();
    assert_eq!(reads(&view), 10);
    let first: Vec<_> = decide(&view).into_iter().map(|step| step.volume).collect();
    for first in &first[..4] {
        let volume = view.volumes.iter().find(|volume| volume.uid == *first).expect("it is one");
        let paused = LiveFacts { namespace: Default::default(), ..live(volume) };
        view.live.insert(first.clone(), paused);
    }
    assert_eq!(reads(&view), 6, "in the same pass");
    (view.settings.at_once, view.settings.per_hour) = (6000, 6000);
    view.volumes.iter_mut().skip(4900).for_each(|volume| *volume = with_record(volume.clone()));
    assert_eq!(reads(&view), 106);
}

#[test]
fn what_was_read_must_say_what_the_marks_say() {
    let volume = lost("a", 1);
    let waits = |change: &dyn Fn(&mut LiveFacts)| {
        assert_eq!(deed(&changed(&volume, change)), Deed::Explain(Why::Recovering));
        let begun = changed(&with_record(volume.clone()), change);
        assert!(matches!(deed(&begun), Deed::Cancel(_, Why::Recovering)), "{:?}", deed(&begun));
    };
    waits(&|live| live.losses.clear());
    waits(&|live| live.losses = [HealthReason::DiskReadOnly].into());
    waits(&|live| live.home = Some(HomeState::Silent));
    waits(&|live| live.ready_since = Some(minutes_ago(4)));
    waits(&|live| live.ready_since = None);
}

#[test]
fn a_majority_on_volumes_that_are_well_stays() {
    let with = |replicas: i32, ready: &[i32], lost_too: &[i32]| {
        let mut view = view(vec![lost("a", 1)]);
        let live = view.live.get_mut(&uid("pv-a-1")).expect("read");
        live.stateful_set.as_mut().expect("set").replicas = replicas;
        live.pods.retain(|pod| pod.uses_pvc);
        live.pods.extend(ready.iter().map(|ordinal| pod("a", *ordinal)));
        view.volumes.extend(lost_too.iter().map(|ordinal| lost("a", *ordinal)));
        let steps = decide(&view);
        steps.into_iter().find(|step| step.volume == "pv-a-1").expect("a step").deed
    };
    let may = |deed| matches!(deed, Deed::Begin(_));
    assert_eq!(with(3, &[3, 4], &[]), Deed::Explain(Why::SetNotHealthy), "the set does not want these any more");
    assert!(may(with(2, &[0], &[])));
    assert!(may(with(3, &[0, 2], &[])));
    assert_eq!(with(4, &[0, 2], &[]), Deed::Explain(Why::SetNotHealthy), "two of four are no majority");
    assert!(may(with(4, &[0, 2, 3], &[])));
    assert!(may(with(5, &[0, 2, 3], &[])));
    assert_eq!(with(5, &[0, 2, 3], &[2]), Deed::Explain(Why::SetNotHealthy), "a ready pod on a lost disk is no copy");
    let mut shut = view(vec![lost("a", 1), MarkedVolume { losses: [].into(), ..lost("a", 2) }]);
    assert_eq!(
        decide(&shut)[0].deed,
        Deed::Explain(Why::SetNotHealthy),
        "nor is one on a filesystem that has shut down"
    );
    shut.volumes[1].is_unusable = false;
    assert!(may(decide(&shut)[0].deed.clone()));
}

#[test]
fn the_next_pod_of_a_set_waits_for_an_hour_after_the_last_one() {
    let ended = |minutes, how| {
        let mut other = with_record(lost("a", 0));
        let record = other.record.take().and_then(Result::ok).expect("begun");
        other.reacted = Some(record.ended(how, minutes_ago(minutes)));
        other.losses.clear();
        other.is_unusable = false;
        let steps = decide(&view(vec![lost("a", 1), other]));
        steps.into_iter().find(|step| step.volume == "pv-a-1").expect("a step").deed
    };
    assert_eq!(ended(59, HowEnded::Finished), Deed::Explain(Why::SetBusy), "its data may still be copied");
    assert!(matches!(ended(61, HowEnded::Finished), Deed::Begin(_)));
    assert!(matches!(ended(-480, HowEnded::Finished), Deed::Begin(_)), "a clock was wrong");
    let mut deleted = view(vec![lost("a", 1)]);
    let record = with_record(lost("a", 0)).record.and_then(Result::ok).expect("begun");
    deleted.past.ended = vec![record.ended(HowEnded::Finished, minutes_ago(10))];
    assert_eq!(deed(&deleted), Deed::Explain(Why::SetBusy), "its PersistentVolume was deleted since");
    assert!(matches!(ended(1, HowEnded::Cancelled), Deed::Begin(_)), "nothing was moved");
}

#[test]
fn what_was_taken_back_begins_again_after_another_interval() {
    let cancelled = |minutes| {
        let mut volume = with_record(lost("a", 1));
        let record = volume.record.take().and_then(Result::ok).expect("begun");
        volume.reacted = Some(record.ended(HowEnded::Cancelled, minutes_ago(minutes)));
        deed(&view(vec![volume]))
    };
    assert_eq!(cancelled(4), Deed::Explain(Why::Recovering));
    let Deed::Begin(record) = cancelled(6) else { panic!("{:?}", cancelled(6)) };
    assert_eq!(record.policy, "Delete", "the policy that it had first");
}

#[test]
fn a_ready_pod_is_not_evicted_while_others_of_its_set_are_away() {
    let volume = with_record(lost("a", 1));
    let with = |is_ready, others: bool| {
        let view = changed(&volume, |live| {
            live.pvc.as_mut().expect("set").is_deleted = true;
            live.pods[0].is_ready = is_ready;
            live.pods[1].is_ready = others;
        });
        deed(&view)
    };
    assert!(matches!(with(true, true), Deed::Evict(_)));
    assert_eq!(with(true, false), Deed::Explain(Why::SetNotHealthy), "it still serves");
    let mut many = changed(&volume, |live| {
        live.pvc.as_mut().expect("set").is_deleted = true;
        live.pods[0].is_ready = true;
    });
    many.past.calm = WAIT;
    assert_eq!(deed(&many), Deed::Explain(Why::ManyNodesBad));
    assert!(matches!(with(false, false), Deed::Evict(_)), "it does not");
}

#[test]
fn a_record_that_was_copied_to_another_volume_does_nothing_there() {
    let mut copy = with_record(lost("a", 1));
    let record = copy.record.clone();
    copy = lost("b", 1).with(retain);
    copy.record = record;
    assert_eq!(deed(&view(vec![copy])), Deed::Explain(Why::RecordUnreadable));
}

#[test]
fn a_pod_of_another_set_with_a_longer_name_is_within_the_budget() {
    let other = with_record(lost("redis", 1));
    let mut longer = lost("x", 1).with(|volume| {
        let pvc = volume.pvc.as_mut().expect("set");
        pvc.name = Some("data-cache-redis-1".into());
    });
    longer.uid = uid("pv-x-1");
    let mut view = view(vec![longer, other]);
    let live = view.live.get_mut(&uid("pv-x-1")).expect("read");
    live.stateful_set.as_mut().expect("set").name = "cache-redis".into();
    live.pods.iter_mut().for_each(|pod| pod.name = pod.name.as_str().replace("x-", "cache-redis-").into());
    let steps = decide(&view);
    let ours = steps.iter().find(|step| step.volume == "pv-x-1").expect("a step");
    assert_eq!(ours.deed, Deed::Explain(Why::TooManyAtOnce));
}

#[test]
fn a_pod_whose_other_volume_is_on_its_way_to_another_node_is_not_moved() {
    let mut moved = lost("a", 1).with(|volume| {
        let pvc = volume.pvc.as_mut().expect("set");
        (pvc.name, pvc.uid) = (Some("log-a-1".into()), Some("claim-log".into()));
    });
    (moved.uid, moved.is_elsewhere) = (uid("pv-log"), true);
    let mut view = view(vec![lost("a", 1)]);
    view.volumes.push(moved);
    let live = view.live.get_mut(&uid("pv-a-1")).expect("read");
    live.stateful_set.as_mut().expect("set").templates.push("log".to_owned());
    let deeds: Vec<Deed> = decide(&view).into_iter().map(|step| step.deed).collect();
    assert_eq!(deeds, [Deed::Explain(Why::DiskElsewhere), Deed::Explain(Why::DiskElsewhere)]);
}

#[test]
fn a_claim_that_the_set_does_not_make_any_more_ends_it() {
    let view = changed(&with_record(lost("a", 1)), |live| {
        live.pvc.as_mut().expect("set").is_deleted = true;
        live.stateful_set.as_mut().expect("set").templates = vec!["log".to_owned()];
        of_pod(live, |pod| pod.uses_pvc = false);
    });
    assert!(matches!(deed(&view), Deed::Stop(_, Why::NotFromTemplate)));
}

#[test]
fn a_node_that_comes_and_goes_does_not_hold_the_place_of_others() {
    let mut view = view(vec![with_record(lost("a", 1))]);
    view.past.seen.insert(uid("pv-a-1"), WAIT);
    assert_eq!(deed(&view), Deed::Explain(Why::Recovering));
    let Some(Ok(record)) = &mut view.volumes[0].record else { panic!("begun") };
    record.began = minutes_ago(11);
    assert!(matches!(deed(&view), Deed::Cancel(_, Why::Recovering)));
}

#[test]
fn a_refused_step_is_taken_back() {
    let mut view = view(vec![with_record(lost("a", 1))]);
    view.past.refused.insert(uid("pv-a-1"));
    assert!(matches!(deed(&view), Deed::Cancel(_, Why::Refused)));
}

#[test]
fn a_claim_is_deleted_in_the_same_calm_in_which_it_may_begin() {
    let mut view = view(vec![with_record(lost("a", 1))]);
    assert!(matches!(deed(&view), Deed::DeletePvc(_)));
    // Whoever has just taken over may have seen the volume for longer than the cluster.
    view.past.calm = WAIT;
    assert_eq!(deed(&view), Deed::Explain(Why::ManyNodesBad));
    let calm = std::mem::replace(&mut view.past.clock, WAIT);
    assert_eq!(deed(&view), Deed::Explain(Why::ClockJumped));
    view.past.clock = calm;
    // What can be taken back does not wait for it.
    view.volumes[0].losses.clear();
    assert!(matches!(deed(&view), Deed::Cancel(_, Why::MarkNotCounted)));
}

#[test]
fn a_disk_on_another_node_takes_it_back_also_if_nobody_has_seen_the_volume_lost() {
    let moved = MarkedVolume { is_elsewhere: true, ..with_record(lost("a", 1)) };
    let mut view = view(vec![moved]);
    view.past.seen.clear();
    assert!(matches!(deed(&view), Deed::Cancel(_, Why::DiskElsewhere)), "{:?}", deed(&view));
}

#[test]
fn the_times_that_objects_have_count_later_by_what_nobody_has_watched() {
    let unwatched = |minutes, change: &dyn Fn(&mut ReactionView)| {
        let mut view = view(vec![lost("a", 1)]);
        view.past.unwatched = SignedDuration::from_mins(minutes);
        change(&mut view);
        deed(&view)
    };
    // It has been lost for ten minutes.
    assert!(matches!(unwatched(5, &|_| {}), Deed::Begin(_)));
    assert_eq!(unwatched(6, &|_| {}), Deed::Explain(Why::Recovering));
    let ready = |view: &mut ReactionView| {
        view.live.values_mut().for_each(|live| live.ready_since = Some(minutes_ago(9)));
    };
    assert!(matches!(unwatched(4, &ready), Deed::Begin(_)));
    assert_eq!(unwatched(5, &ready), Deed::Explain(Why::Recovering));
}
