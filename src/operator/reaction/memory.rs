//! The memory of one process from pass to pass. Nothing depends on it but delays: what is under way is in records.
//! Some of it is handed over to the next leader.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};

use super::handover::{CalmWatched, Handover, LossKey};
use super::in_flight::{is_copying, is_within};
use super::marked::{HomeState, MarkedVolume};
use super::record::ReactionRecord;
use super::settings::ReactionSettings;
use super::tally::NodeTally;
use super::view::{Deed, ReactionPast, ReactionStep};
use super::why::Why;
use crate::operator::api_server::object_key::Uid;
use crate::operator::kube_volume::PersistentVolume;
use crate::operator::persistent_volume::plan::Now;
use crate::operator::status::steady::{Lasting, Steady};

/// How far the wall clock may move against the monotonic one between two passes.
const JUMP: SignedDuration = SignedDuration::from_secs(30);
/// A pass that comes so long after the one before has not watched what was between them: the process was stopped.
const STOPPED: SignedDuration = SignedDuration::from_mins(2);
/// So is one that waited so long for the next pass: twice as long as it would, and as long as the lease is its own.
const OVERSLEPT: SignedDuration = SignedDuration::from_mins(1);
const HOUR: SignedDuration = SignedDuration::from_hours(1);

/// The memory that one pass leaves to the next one.
#[derive(Debug)]
pub struct ReactionMemory {
    interval: SignedDuration,
    /// By which bad nodes are few.
    max_bad_nodes: u8,
    /// How long it watches itself, whatever was handed over.
    own_watch: SignedDuration,
    /// Counts from the first pass on.
    handover: Option<Handover>,
    last_pass: Option<SignedDuration>,
    /// When the last pass ended.
    waits_since: Option<SignedDuration>,
    /// How much of the time before nobody has watched, and since when that was so.
    unwatched: Option<(SignedDuration, SignedDuration)>,
    /// With the process of the agent: a node that comes back, or an agent, begins again.
    seen: Steady<LossKey, HomeState>,
    bad: Steady<(), Bad>,
    clock: ClockWatch,
    last_read: BTreeMap<Uid<PersistentVolume>, SignedDuration>,
    /// The last reason that was reported of a volume without a PoolVolume, which would say it.
    reported: BTreeMap<Uid<PersistentVolume>, Why>,
    /// When each began: also of PersistentVolumes that were deleted since.
    began: BTreeSet<(Timestamp, Uid<PersistentVolume>)>,
    /// Reactions that ended while their pods may still copy.
    ended: BTreeMap<Uid<PersistentVolume>, ReactionRecord>,
    refused: BTreeSet<Uid<PersistentVolume>>,
    /// The reason why nothing is done about each volume, since it was last decided about.
    waiting: BTreeMap<Uid<PersistentVolume>, Why>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bad {
    Few,
    Many,
}

impl ReactionMemory {
    pub fn new(settings: &ReactionSettings, own_watch: SignedDuration) -> Self {
        let interval = settings.recover_after;
        Self {
            interval,
            max_bad_nodes: settings.max_bad_nodes,
            own_watch,
            handover: None,
            last_pass: None,
            waits_since: None,
            unwatched: None,
            seen: Steady::new(interval),
            bad: Steady::new(interval),
            clock: ClockWatch::default(),
            last_read: BTreeMap::new(),
            reported: BTreeMap::new(),
            began: BTreeSet::new(),
            ended: BTreeMap::new(),
            refused: BTreeSet::new(),
            waiting: BTreeMap::new(),
        }
    }

    /// The first pass takes over what the leader before has left.
    pub fn take_over(&mut self, handover: Handover) {
        self.handover = Some(handover);
    }

    /// Counts from zero: nobody knows what was meanwhile.
    pub fn begin_again(&mut self) {
        (self.handover, self.unwatched) = (None, None);
        (self.seen, self.bad) = (Steady::new(self.interval), Steady::new(self.interval));
    }

    /// The durations that the next leader may take over; `None`: no time counts of any volume that may be moved.
    pub fn handover(&self, volumes: &[MarkedVolume], now: Now) -> Option<Handover> {
        let lasted = |volume: &MarkedVolume| {
            let loss = (volume.uid.clone(), volume.process.clone());
            let (home, lasted) = self.seen.lasted(&loss, now.monotonic)?;
            Some((loss, home, lasted))
        };
        let may_be_moved = |volume: &&MarkedVolume| volume.class.is_chosen && volume.is_lost() && volume.waits();
        let lost = volumes.iter().filter(may_be_moved).filter_map(lasted).collect();
        let calm = match self.bad.lasted(&(), now.monotonic) {
            Some((Bad::Few, lasted)) => lasted,
            Some((Bad::Many, _)) | None => SignedDuration::ZERO,
        };
        let steady_clock = self.clock.lasted(self.interval, now.monotonic);
        let unwatched = self.unwatched(now.monotonic);
        let max_bad_nodes = self.max_bad_nodes;
        Handover::of(now.wall, CalmWatched { calm, max_bad_nodes, steady_clock, unwatched }, lost)
    }

    /// A pass has ended at this monotonic time: from now on the process only waits.
    pub fn end_pass(&mut self, now: SignedDuration) {
        self.waits_since = Some(now);
    }

    /// The part of the time before that the pass which begins may count.
    fn begin_pass(&mut self, now: Now) -> Option<Handover> {
        let before = self.last_pass.replace(now.monotonic);
        let is_longer = |since: Option<SignedDuration>, most| since.is_some_and(|since| now.monotonic - since > most);
        if is_longer(before, STOPPED) || is_longer(self.waits_since.take(), OVERSLEPT) {
            self.begin_again();
        }
        let handover = self.handover.take()?;
        let age = handover.age(now.wall)?;
        let CalmWatched { calm: _, max_bad_nodes: _, steady_clock, unwatched } = handover.cluster();
        self.unwatched = Some((unwatched + age, now.monotonic));
        self.clock.take_over(steady_clock, self.interval, now);
        Some(handover)
    }

    /// As long as this process has not watched for the whole interval itself.
    fn unwatched(&self, now: SignedDuration) -> SignedDuration {
        let counts = self.unwatched.filter(|(_, since)| now - *since < self.interval);
        counts.map_or(SignedDuration::ZERO, |(unwatched, _)| unwatched)
    }

    /// Takes in what a pass found, and forgets all other volumes.
    pub fn take_in(&mut self, volumes: &[MarkedVolume], nodes: NodeTally, max_bad: u8, now: Now) -> ReactionPast {
        let handover = self.begin_pass(now);
        let most = (self.interval - self.own_watch).max(SignedDuration::ZERO);
        let there: BTreeSet<&Uid<PersistentVolume>> = volumes.iter().map(|volume| &volume.uid).collect();
        let lost: BTreeMap<&Uid<PersistentVolume>, &MarkedVolume> =
            volumes.iter().filter(|volume| volume.is_lost()).map(|volume| (&volume.uid, volume)).collect();
        self.seen.keep(|(uid, process)| lost.get(uid).is_some_and(|volume| volume.process == *process));
        self.last_read.retain(|uid, _| there.contains(uid));
        self.reported.retain(|uid, _| there.contains(uid));
        let waiting: BTreeSet<&Uid<PersistentVolume>> =
            volumes.iter().filter(|volume| volume.waits()).map(|volume| &volume.uid).collect();
        self.waiting.retain(|uid, _| waiting.contains(uid));
        let of_record =
            |uid: &Uid<PersistentVolume>| volumes.iter().any(|volume| volume.uid == *uid && volume.record.is_some());
        self.refused.retain(of_record);
        let observe = |(uid, volume): (&Uid<PersistentVolume>, &MarkedVolume)| {
            let loss = (uid.clone(), volume.process.clone());
            let already =
                handover.as_ref().map_or(SignedDuration::ZERO, |left| left.lost(&loss, volume.home).min(most));
            let seen = match self.seen.observe(&loss, volume.home, already, now.monotonic) {
                Lasting::Yes(_) => Lasting::Yes(()),
                Lasting::In(left) => Lasting::In(left),
            };
            (uid.clone(), seen)
        };
        let seen = lost.into_iter().map(observe).collect();
        let bad = if nodes.are_many(max_bad) { Bad::Many } else { Bad::Few };
        let already = match (bad, &handover) {
            (Bad::Few, Some(left)) => left.calm_by(max_bad).min(most),
            (Bad::Few, None) | (Bad::Many, _) => SignedDuration::ZERO,
        };
        let calm = match self.bad.observe(&(), bad, already, now.monotonic) {
            Lasting::Yes(Bad::Few) => Lasting::Yes(()),
            Lasting::Yes(Bad::Many) => Lasting::In(self.interval),
            Lasting::In(left) => Lasting::In(left),
        };
        let clock = self.clock.observe(self.interval, now);
        let lately = self.lately(volumes, now.wall);
        let (ended, refused) = (self.ended.values().cloned().collect(), self.refused.clone());
        let unwatched = self.unwatched(now.monotonic);
        ReactionPast { seen, calm, clock, unwatched, lately, ended, refused }
    }

    /// How many have begun within an hour.
    fn lately(&mut self, volumes: &[MarkedVolume], now: Timestamp) -> usize {
        for volume in volumes {
            let record = volume.record.iter().filter_map(|record| record.as_ref().ok());
            self.began.extend(record.chain(&volume.reacted).map(|record| (record.began, volume.uid.clone())));
        }
        self.began.retain(|(began, _)| is_within(*began, now, HOUR));
        let ended = volumes.iter().filter_map(|volume| Some((volume.uid.clone(), volume.reacted.clone()?)));
        self.ended.extend(ended);
        self.ended.retain(|_, record| is_copying(record, now));
        self.began.len()
    }

    /// A step of it was refused, and not by a budget.
    pub fn refused(&mut self, uid: &Uid<PersistentVolume>) {
        self.refused.insert(uid.clone());
    }

    /// How many volumes each reason holds back, after these steps. Of a volume that waits for its turn,
    /// the last one counts.
    pub fn waiting(&mut self, steps: &[ReactionStep]) -> BTreeMap<Why, i64> {
        for ReactionStep { volume, deed } in steps {
            match deed {
                Deed::Read => None,
                Deed::Explain(why) => self.waiting.insert(volume.clone(), *why),
                Deed::AskEviction(_)
                | Deed::Begin(_)
                | Deed::DeletePvc(_)
                | Deed::Evict(_)
                | Deed::Cancel(..)
                | Deed::Finish(_)
                | Deed::Stop(..)
                | Deed::DeleteVolume => self.waiting.remove(volume),
            };
        }
        let mut counts = BTreeMap::new();
        for why in self.waiting.values() {
            *counts.entry(*why).or_default() += 1;
        }
        counts
    }

    /// Those whose last read is longest ago first.
    pub fn sort(&self, volumes: &mut [MarkedVolume]) {
        volumes.sort_by_key(|volume| self.last_read.get(&volume.uid).copied());
    }

    pub fn note_read(&mut self, uid: &Uid<PersistentVolume>, now: Now) {
        self.last_read.insert(uid.clone(), now.monotonic);
    }

    /// Something was done since.
    pub fn forget(&mut self, uid: &Uid<PersistentVolume>) {
        self.reported.remove(uid);
    }

    pub fn reported(&self, uid: &Uid<PersistentVolume>) -> Option<Why> {
        self.reported.get(uid).copied()
    }

    pub fn tell(&mut self, uid: &Uid<PersistentVolume>, why: Why) {
        self.reported.insert(uid.clone(), why);
    }
}

/// Compares the wall clock with the monotonic one.
#[derive(Debug, Default)]
struct ClockWatch {
    /// Their difference at the last pass.
    offset: Option<SignedDuration>,
    jumped: Option<SignedDuration>,
}

impl ClockWatch {
    /// For how long they have agreed, at most the interval.
    fn lasted(&self, interval: SignedDuration, now: SignedDuration) -> SignedDuration {
        self.jumped.map_or(interval, |jumped| (now - jumped).min(interval))
    }

    /// A jump that another leader has seen holds this one as well.
    fn take_over(&mut self, lasted: SignedDuration, interval: SignedDuration, now: Now) {
        if lasted < interval {
            self.jumped = Some(now.monotonic - lasted);
        }
    }

    fn observe(&mut self, interval: SignedDuration, Now { wall, monotonic }: Now) -> Lasting<()> {
        let offset = wall.duration_since(Timestamp::UNIX_EPOCH) - monotonic;
        if self.offset.is_some_and(|before| (offset - before).abs() > JUMP) {
            self.jumped = Some(monotonic);
        }
        self.offset = Some(offset);
        let left = self.jumped.map(|jumped| interval - (monotonic - jumped));
        left.filter(|left| left.is_positive()).map_or(Lasting::Yes(()), Lasting::In)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::health::HealthReason;
    use crate::operator::kube_volume::BindingPhase;
    use crate::operator::reaction::sample::{lost, settings};

    fn secs(seconds: i64) -> SignedDuration {
        SignedDuration::from_secs(seconds)
    }

    fn at(wall: i64, monotonic: i64) -> Now {
        Now { wall: Timestamp::from_second(wall).expect("a time"), monotonic: secs(monotonic) }
    }

    fn memory() -> ReactionMemory {
        ReactionMemory::new(&settings(), secs(150))
    }

    /// Some passes up to this time.
    fn passes(memory: &mut ReactionMemory, volumes: &[MarkedVolume], nodes: NodeTally, until: i64) -> ReactionPast {
        let before = memory.last_pass.map_or(until, |last| last.as_secs());
        for between in (before..until).step_by(60).skip(1) {
            memory.take_in(volumes, nodes, 10, at(1000 + between, between));
        }
        memory.take_in(volumes, nodes, 10, at(1000 + until, until))
    }

    #[test]
    fn a_jump_of_the_clock_counts_for_the_interval_and_a_slow_drift_does_not() {
        let mut clock = ClockWatch::default();
        let mut observe = |wall, monotonic| clock.observe(secs(300), at(wall, monotonic));
        assert_eq!(observe(1000, 0), Lasting::Yes(()));
        assert_eq!(observe(1050, 30), Lasting::Yes(()), "20 s");
        assert_eq!(observe(1100, 60), Lasting::Yes(()), "another 20 s");
        assert_eq!(observe(5000, 90), Lasting::In(secs(300)));
        assert_eq!(observe(5010, 100), Lasting::In(secs(290)));
        assert_eq!(observe(1400, 400), Lasting::In(secs(300)), "back again");
        assert_eq!(observe(1700, 700), Lasting::Yes(()));
    }

    #[test]
    fn a_volume_is_seen_lost_for_the_interval_and_again_after_it_was_well_or_its_node_was_back() {
        let mut memory = memory();
        let (lost, well) = (lost("db", 1), MarkedVolume { losses: [].into(), ..lost("db", 1) });
        let fenced = MarkedVolume { home: HomeState::Fenced, ..lost.clone() };
        let mut seen = |volume: &MarkedVolume, now| {
            let volumes = std::slice::from_ref(volume);
            passes(&mut memory, volumes, NodeTally::default(), now).seen.remove(&volume.uid)
        };
        assert_eq!(seen(&lost, 0), Some(Lasting::In(secs(300))));
        assert_eq!(seen(&lost, 300), Some(Lasting::Yes(())));
        assert_eq!(seen(&well, 310), None);
        assert_eq!(seen(&lost, 320), Some(Lasting::In(secs(300))));
        assert_eq!(seen(&lost, 610), Some(Lasting::In(secs(10))));
        assert_eq!(seen(&fenced, 620), Some(Lasting::In(secs(300))));
        assert_eq!(seen(&fenced, 920), Some(Lasting::Yes(())));
    }

    #[test]
    fn an_agent_that_starts_again_begins_the_interval_again_and_while_it_has_not_found_it_none_runs() {
        let mut memory = memory();
        let by = |process: &str, losses: &BTreeSet<HealthReason>| MarkedVolume {
            process: Some(process.into()),
            unconfirmed: losses.clone(),
            ..lost("db", 1)
        };
        let (none, all) = (BTreeSet::new(), lost("db", 1).losses);
        let mut seen = |volume: &MarkedVolume, now| {
            let volumes = std::slice::from_ref(volume);
            passes(&mut memory, volumes, NodeTally::default(), now).seen.remove(&volume.uid)
        };
        assert_eq!(seen(&by("a", &none), 0), Some(Lasting::In(secs(300))));
        assert_eq!(seen(&by("a", &none), 300), Some(Lasting::Yes(())));
        assert_eq!(seen(&by("b", &none), 310), Some(Lasting::In(secs(300))), "no pass saw what was in between");
        assert_eq!(seen(&by("c", &all), 320), None);
        assert_eq!(seen(&by("c", &all), 900), None, "however long nobody knows");
        assert_eq!(seen(&by("c", &none), 910), Some(Lasting::In(secs(300))));
        assert_eq!(seen(&by("c", &none), 1210), Some(Lasting::Yes(())));
    }

    #[test]
    fn a_process_that_was_stopped_begins_again() {
        let (mut memory, lost) = (memory(), [lost("db", 1)]);
        let few = NodeTally { bad: 1, all: 20 };
        passes(&mut memory, &lost, few, 0);
        assert_eq!(passes(&mut memory, &lost, few, 240).calm, Lasting::In(secs(60)));
        let past = memory.take_in(&lost, few, 10, at(1361, 361));
        assert_eq!((past.calm, past.seen[&lost[0].uid]), (Lasting::In(secs(300)), Lasting::In(secs(300))));
    }

    #[test]
    fn a_process_that_was_stopped_while_it_waited_for_a_pass_has_not_watched() {
        let (few, lost) = (NodeTally { bad: 1, all: 20 }, [lost("db", 1)]);
        let after = |ended: i64, next: i64| {
            let mut memory = memory();
            memory.take_in(&lost, few, 10, at(1180, 180));
            memory.end_pass(secs(ended));
            memory.take_in(&lost, few, 10, at(1000 + next, next)).seen[&lost[0].uid]
        };
        assert_eq!(after(181, 211), Lasting::In(secs(269)));
        // The lease ends after 30 s, and the wait is as long.
        assert_eq!(after(181, 242), Lasting::In(secs(300)));
        assert_eq!(after(240, 299), Lasting::In(secs(181)), "the pass took long, and the watches went on");
    }

    #[test]
    fn those_that_were_not_read_for_longest_come_first() {
        let mut memory = memory();
        let names = |volumes: &[MarkedVolume]| volumes.iter().map(|volume| volume.uid.clone()).collect::<Vec<_>>();
        let mut volumes = vec![lost("a", 0), lost("b", 0), lost("c", 0)];
        memory.note_read(&"pv-a-0".into(), at(1010, 10));
        memory.note_read(&"pv-b-0".into(), at(1005, 5));
        memory.sort(&mut volumes);
        assert_eq!(names(&volumes), ["pv-c-0", "pv-b-0", "pv-a-0"]);
    }

    #[test]
    fn it_is_calm_again_when_few_nodes_were_bad_for_the_interval_and_a_new_leader_waits_as_long() {
        let mut memory = memory();
        let mut calm = |bad, now| passes(&mut memory, &[], NodeTally { bad, all: 20 }, now).calm;
        assert_eq!(calm(0, 0), Lasting::In(secs(300)));
        assert_eq!(calm(2, 300), Lasting::Yes(()));
        assert_eq!(calm(3, 310), Lasting::In(secs(300)));
        assert_eq!(calm(3, 900), Lasting::In(secs(300)), "as long as they are many");
        assert_eq!(calm(2, 910), Lasting::In(secs(300)));
        assert_eq!(calm(2, 1209), Lasting::In(secs(1)));
        assert_eq!(calm(2, 1210), Lasting::Yes(()));
    }
    #[test]
    fn what_does_not_wait_any_more_is_not_counted_and_what_ended_is_remembered() {
        let mut memory = memory();
        let take = |memory: &mut ReactionMemory, volumes: &[MarkedVolume]| {
            memory.take_in(volumes, NodeTally::default(), 10, at(1_767_268_800, 0)).ended.len()
        };
        let (uid, why) = ("pv-db-1".into(), Why::NotStatefulSet);
        let lost = lost("db", 1);
        take(&mut memory, std::slice::from_ref(&lost));
        assert_eq!(memory.waiting(&[ReactionStep { volume: uid, deed: Deed::Explain(why) }]), [(why, 1)].into());
        take(&mut memory, std::slice::from_ref(&lost));
        assert_eq!(memory.waiting(&[]), [(why, 1)].into());
        let mut moved = lost.with(|volume| volume.phase = BindingPhase::Released);
        assert_eq!(take(&mut memory, std::slice::from_ref(&moved)), 0);
        assert_eq!(memory.waiting(&[]), [].into(), "a person moved it");
        let record = json!({"volume": "pv-db-1", "claim": {"namespace": "n", "name": "c", "uid": "u"},
            "set": {"name": "s", "uid": "s"}, "pod": "p", "reason": "r", "policy": "Delete",
            "began": "2026-01-01T11:50:00Z", "ended": {"at": "2026-01-01T11:55:00Z", "how": "Finished"}});
        moved.reacted = Some(serde_json::from_value(record).expect("a record"));
        assert_eq!(take(&mut memory, &[moved]), 1);
        assert_eq!(take(&mut memory, &[]), 1, "its PersistentVolume was deleted");
    }
}
