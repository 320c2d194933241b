//! What one process remembers from pass to pass. Nothing depends on it but delays: what is under way is in records.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};

use super::in_flight::{is_copying, is_within};
use super::marked::{HomeState, MarkedVolume};
use super::record::ReactionRecord;
use super::settings::ReactionSettings;
use super::tally::NodeTally;
use super::view::{Deed, ReactionPast, ReactionStep};
use super::why::Why;
use crate::operator::persistent_volume::plan::Now;
use crate::operator::steady::{Lasting, Steady};

/// How far the wall clock may move against the monotonic one between two passes.
const JUMP: SignedDuration = SignedDuration::from_secs(30);
const HOUR: SignedDuration = SignedDuration::from_hours(1);

/// By the UID of the PersistentVolume.
#[derive(Debug)]
pub struct ReactionMemory {
    interval: SignedDuration,
    /// A node that comes back, or an agent, begins again.
    seen: Steady<String, HomeState>,
    bad: Steady<(), Bad>,
    clock: ClockWatch,
    looked: BTreeMap<String, SignedDuration>,
    /// What a person was told of a volume that has no PoolVolume to say it.
    told: BTreeMap<String, Why>,
    /// When each began: also of PersistentVolumes that were deleted since.
    began: BTreeSet<(Timestamp, String)>,
    /// What ended while its pod may still copy, by the PersistentVolume.
    ended: BTreeMap<String, ReactionRecord>,
    refused: BTreeSet<String>,
    /// What holds each volume back, since it was last decided about.
    held: BTreeMap<String, Why>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bad {
    Few,
    Many,
}

impl ReactionMemory {
    pub fn new(settings: &ReactionSettings) -> Self {
        let interval = settings.recover_after;
        Self {
            interval,
            seen: Steady::new(interval),
            bad: Steady::new(interval),
            clock: ClockWatch::default(),
            looked: BTreeMap::new(),
            told: BTreeMap::new(),
            began: BTreeSet::new(),
            ended: BTreeMap::new(),
            refused: BTreeSet::new(),
            held: BTreeMap::new(),
        }
    }

    /// Takes in what a pass found, and forgets all other volumes.
    pub fn take_in(&mut self, volumes: &[MarkedVolume], nodes: NodeTally, max_bad: u8, now: Now) -> ReactionPast {
        let there: BTreeSet<&String> = volumes.iter().map(|volume| &volume.uid).collect();
        let lost: BTreeMap<&String, &MarkedVolume> =
            volumes.iter().filter(|volume| !volume.losses.is_empty()).map(|volume| (&volume.uid, volume)).collect();
        self.seen.keep(|uid| lost.contains_key(uid));
        self.looked.retain(|uid, _| there.contains(uid));
        self.told.retain(|uid, _| there.contains(uid));
        let waiting: BTreeSet<&String> =
            volumes.iter().filter(|volume| volume.waits()).map(|volume| &volume.uid).collect();
        self.held.retain(|uid, _| waiting.contains(uid));
        let of_record = |uid: &String| volumes.iter().any(|volume| volume.uid == *uid && volume.record.is_some());
        self.refused.retain(of_record);
        let look = |(uid, volume): (&String, &MarkedVolume)| {
            let seen = match self.seen.look(uid, volume.home, SignedDuration::ZERO, now.monotonic) {
                Lasting::Yes(_) => Lasting::Yes(()),
                Lasting::In(left) => Lasting::In(left),
            };
            (uid.clone(), seen)
        };
        let seen = lost.into_iter().map(look).collect();
        let bad = if nodes.are_many(max_bad) { Bad::Many } else { Bad::Few };
        let calm = match self.bad.look(&(), bad, SignedDuration::ZERO, now.monotonic) {
            Lasting::Yes(Bad::Few) => Lasting::Yes(()),
            Lasting::Yes(Bad::Many) => Lasting::In(self.interval),
            Lasting::In(left) => Lasting::In(left),
        };
        let clock = self.clock.look(self.interval, now);
        let lately = self.lately(volumes, now.wall);
        let (ended, refused) = (self.ended.values().cloned().collect(), self.refused.clone());
        ReactionPast { seen, calm, clock, lately, ended, refused }
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
    pub fn refused(&mut self, uid: &str) {
        self.refused.insert(uid.to_owned());
    }

    /// How many volumes each reason holds back, after these steps. Of a volume that waits for its turn, the last one counts.
    pub fn held(&mut self, steps: &[ReactionStep]) -> BTreeMap<Why, i64> {
        for ReactionStep { volume, deed } in steps {
            match deed {
                Deed::Look => None,
                Deed::Report(why) => self.held.insert(volume.clone(), *why),
                _ => self.held.remove(volume),
            };
        }
        let mut counts = BTreeMap::new();
        for why in self.held.values() {
            *counts.entry(*why).or_default() += 1;
        }
        counts
    }

    /// Those whose last look is longest ago first.
    pub fn sort(&self, volumes: &mut [MarkedVolume]) {
        volumes.sort_by_key(|volume| self.looked.get(&volume.uid).copied());
    }

    pub fn looked(&mut self, uid: &str, now: Now) {
        self.looked.insert(uid.to_owned(), now.monotonic);
    }

    /// Something was done since.
    pub fn forget(&mut self, uid: &str) {
        self.told.remove(uid);
    }

    pub fn told(&self, uid: &str) -> Option<Why> {
        self.told.get(uid).copied()
    }

    pub fn tell(&mut self, uid: &str, why: Why) {
        self.told.insert(uid.to_owned(), why);
    }
}

/// Compares the wall clock with the monotonic one.
#[derive(Debug, Default)]
struct ClockWatch {
    /// Their difference at the last look.
    offset: Option<SignedDuration>,
    jumped: Option<SignedDuration>,
}

impl ClockWatch {
    fn look(&mut self, interval: SignedDuration, Now { wall, monotonic }: Now) -> Lasting<()> {
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
    use crate::operator::reaction::sample::{lost, settings};

    fn secs(seconds: i64) -> SignedDuration {
        SignedDuration::from_secs(seconds)
    }

    fn at(wall: i64, monotonic: i64) -> Now {
        Now { wall: Timestamp::from_second(wall).expect("a time"), monotonic: secs(monotonic) }
    }

    fn memory() -> ReactionMemory {
        ReactionMemory::new(&settings())
    }

    #[test]
    fn a_jump_of_the_clock_counts_for_the_interval_and_a_slow_drift_does_not() {
        let mut clock = ClockWatch::default();
        let mut look = |wall, monotonic| clock.look(secs(300), at(wall, monotonic));
        assert_eq!(look(1000, 0), Lasting::Yes(()));
        assert_eq!(look(1050, 30), Lasting::Yes(()), "20 s");
        assert_eq!(look(1100, 60), Lasting::Yes(()), "another 20 s");
        assert_eq!(look(5000, 90), Lasting::In(secs(300)));
        assert_eq!(look(5010, 100), Lasting::In(secs(290)));
        assert_eq!(look(1400, 400), Lasting::In(secs(300)), "back again");
        assert_eq!(look(1700, 700), Lasting::Yes(()));
    }

    #[test]
    fn a_volume_is_seen_lost_for_the_interval_and_again_after_it_was_well_or_its_node_was_back() {
        let mut memory = memory();
        let (lost, well) = (lost("db", 1), MarkedVolume { losses: [].into(), ..lost("db", 1) });
        let fenced = MarkedVolume { home: HomeState::Fenced, ..lost.clone() };
        let mut seen = |volume: &MarkedVolume, now| {
            let volumes = std::slice::from_ref(volume);
            memory.take_in(volumes, NodeTally::default(), 10, at(1000 + now, now)).seen.remove(&volume.uid)
        };
        assert_eq!(seen(&lost, 0), Some(Lasting::In(secs(300))));
        assert_eq!(seen(&lost, 300), Some(Lasting::Yes(())));
        assert_eq!(seen(&well, 310), None);
        assert_eq!(seen(&lost, 320), Some(Lasting::In(secs(300))));
        assert_eq!(seen(&fenced, 620), Some(Lasting::In(secs(300))));
        assert_eq!(seen(&fenced, 920), Some(Lasting::Yes(())));
    }

    #[test]
    fn those_that_were_not_looked_at_for_longest_come_first() {
        let mut memory = memory();
        let names = |volumes: &[MarkedVolume]| volumes.iter().map(|volume| volume.uid.clone()).collect::<Vec<_>>();
        let mut volumes = vec![lost("a", 0), lost("b", 0), lost("c", 0)];
        memory.looked("pv-a-0", at(1010, 10));
        memory.looked("pv-b-0", at(1005, 5));
        memory.sort(&mut volumes);
        assert_eq!(names(&volumes), ["pv-c-0", "pv-b-0", "pv-a-0"]);
    }

    #[test]
    fn it_is_calm_again_when_few_nodes_were_bad_for_the_interval_and_a_new_leader_waits_as_long() {
        let mut memory = memory();
        let mut calm = |bad, now| memory.take_in(&[], NodeTally { bad, all: 20 }, 10, at(1000 + now, now)).calm;
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
        let (uid, why) = ("pv-db-1".to_owned(), Why::NotStatefulSet);
        let lost = lost("db", 1);
        take(&mut memory, std::slice::from_ref(&lost));
        assert_eq!(memory.held(&[ReactionStep { volume: uid, deed: Deed::Report(why) }]), [(why, 1)].into());
        take(&mut memory, std::slice::from_ref(&lost));
        assert_eq!(memory.held(&[]), [(why, 1)].into());
        let mut moved = lost.with(|volume| volume.status.as_mut().expect("set").phase = Some("Released".to_owned()));
        assert_eq!(take(&mut memory, std::slice::from_ref(&moved)), 0);
        assert_eq!(memory.held(&[]), [].into(), "a person moved it");
        let record = json!({"volume": "pv-db-1", "claim": {"namespace": "n", "name": "c", "uid": "u"},
            "set": {"name": "s", "uid": "s"}, "pod": "p", "reason": "r", "policy": "Delete",
            "began": "2026-01-01T11:50:00Z", "ended": {"at": "2026-01-01T11:55:00Z", "how": "Finished"}});
        moved.reacted = Some(serde_json::from_value(record).expect("a record"));
        assert_eq!(take(&mut memory, &[moved]), 1);
        assert_eq!(take(&mut memory, &[]), 1, "its PersistentVolume was deleted");
    }
}
