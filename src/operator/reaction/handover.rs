//! The durations that a leader leaves to the next one: for how long it has watched what it waits for. Pure.
//!
//! Takes in what one leader remembers; gives out a text, and of a text what the next leader may count as its own.
//! `lease_annotation` keeps the text. Only durations are taken over, by a clock that does not jump, and only what the
//! next leader finds as it was. All that is odd is refused as a whole: then it counts from zero, as the first leader.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::confirmed::AgentProcess;
use super::marked::HomeState;
use crate::operator::api_server::object_key::Uid;
use crate::operator::kube_volume::PersistentVolume;

/// How long at least, and at most, a leader watches before it acts, whatever the one before has seen. A leader that
/// dies with its rack leaves one that sees no bad node until Kubernetes has seen them: the lease of
/// kube-controller-manager (15 s, and 2 s to try again), the grace of a node (50 s) and the period of the check (5 s).
const OWN_WATCH: (SignedDuration, SignedDuration) = (SignedDuration::from_secs(150), SignedDuration::from_mins(10));
/// How old a text may be. Within that, nobody has watched.
const YOUNG: SignedDuration = SignedDuration::from_mins(1);
const VERSION: u32 = 1;
/// The longest text, in bytes, and what of it is not volumes.
const MOST: usize = 64 << 10;
const HEAD: usize = 256;

/// Durations are in seconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Handover {
    version: u32,
    /// By the clock of the leader that wrote it.
    written: Timestamp,
    /// For how long the bad nodes have been few.
    calm: u32,
    /// How many are few, in percent.
    max_bad_nodes: u8,
    /// For how long the clocks have agreed.
    steady_clock: u32,
    /// How much of the time before nobody has watched.
    unwatched: u32,
    /// By the state of the node, and the process of its agent: another one begins again.
    lost: BTreeMap<LastingHome, BTreeMap<AgentProcess, BTreeMap<Uid<PersistentVolume>, u32>>>,
}

/// The state of a node in which the time of a loss is taken over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
enum LastingHome {
    Ready,
    Fenced,
}

impl LastingHome {
    fn of(home: HomeState) -> Option<Self> {
        match home {
            HomeState::Ready => Some(Self::Ready),
            HomeState::Fenced => Some(Self::Fenced),
            // The Node may have been there while nobody led.
            HomeState::Gone => None,
            // Nothing is done in these states, and with another one the time begins again.
            HomeState::Silent | HomeState::NotReady => None,
        }
    }
}

/// The durations that a leader has watched in the cluster.
#[derive(Clone, Copy, Debug)]
pub struct CalmWatched {
    /// For how long the bad nodes have been few.
    pub calm: SignedDuration,
    /// How many are few, in percent.
    pub max_bad_nodes: u8,
    pub steady_clock: SignedDuration,
    pub unwatched: SignedDuration,
}

/// A volume, and the process of the agent that has found it lost; `None`: it does not say.
pub type LossKey = (Uid<PersistentVolume>, Option<AgentProcess>);
/// The time for which a leader has watched one volume: for how long it was lost, with its node as it is.
pub type LossWatched = (LossKey, HomeState, SignedDuration);

impl Handover {
    /// Takes in those that were lost for longest, as many as there is room for. `None`: there is none whose time may be
    /// taken over.
    pub fn of(now: Timestamp, cluster: CalmWatched, lost: Vec<LossWatched>) -> Option<Self> {
        let lasting = |(loss, home, lasted): LossWatched| Some((LastingHome::of(home)?, loss, lasted));
        let mut all: Vec<_> = lost.into_iter().filter_map(lasting).collect();
        all.sort_by(|(_, a, short), (_, b, long)| long.cmp(short).then_with(|| a.cmp(b)));
        let (mut handover, mut room) = (Self::empty(now), MOST - HEAD);
        for (home, (uid, process), lasted) in all {
            let of_home = handover.lost.entry(home).or_default();
            let process = process.unwrap_or_default();
            // Two quotes, a colon, ten digits and a comma; for a process two braces instead of the digits.
            let of_process = if of_home.contains_key(&process) { 0 } else { process.as_str().len() + 6 };
            let Some(rest) = room.checked_sub(uid.to_string().len() + 14 + of_process) else { break };
            room = rest;
            of_home.entry(process).or_default().insert(uid, whole_seconds(lasted));
        }
        let CalmWatched { calm, max_bad_nodes, steady_clock, unwatched } = cluster;
        handover.max_bad_nodes = max_bad_nodes;
        (handover.calm, handover.steady_clock) = (whole_seconds(calm), whole_seconds(steady_clock));
        // Rounded up.
        handover.unwatched = whole_seconds(unwatched + SignedDuration::from_millis(999));
        (!handover.lost.is_empty()).then_some(handover)
    }

    /// One by which nothing is taken over.
    pub fn empty(now: Timestamp) -> Self {
        let (calm, max_bad_nodes, steady_clock, unwatched) = (0, 0, 0, 0);
        Self { version: VERSION, written: now, calm, max_bad_nodes, steady_clock, unwatched, lost: BTreeMap::new() }
    }

    /// `None`: it cannot be read, or is of another version.
    pub fn read(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok().filter(|read: &Self| read.version == VERSION)
    }

    /// The value of the annotation.
    pub fn text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Whether all that another one, left before, says still holds. Else that must not stay: what it says has ended.
    pub fn goes_on_from(&self, before: &Self) -> bool {
        let lasts =
            |((home, process), volume, lasted): ((&LastingHome, &AgentProcess), &Uid<PersistentVolume>, &u32)| {
                let now = self.lost.get(home).and_then(|lost| lost.get(process)?.get(volume));
                now.is_some_and(|now| now >= lasted)
            };
        let groups = before
            .lost
            .iter()
            .flat_map(|(home, lost)| lost.iter().map(move |(process, volumes)| ((home, process), volumes)));
        let mut lost = groups.flat_map(|(group, volumes)| volumes.iter().map(move |(uid, left)| (group, uid, left)));
        self.calm >= before.calm && self.steady_clock >= before.steady_clock && lost.all(lasts)
    }

    /// Whether the Lease was renewed at about this time. One that was renewed long after has had a leader that left
    /// nothing; long before, a clock was wrong.
    pub fn is_of_time(&self, renewed: Timestamp) -> bool {
        renewed.duration_since(self.written).abs() <= YOUNG
    }

    /// How long ago it was written; `None`: too long, or not yet.
    pub fn age(&self, now: Timestamp) -> Option<SignedDuration> {
        let age = now.duration_since(self.written);
        is_young(age).then_some(age)
    }

    pub fn cluster(&self) -> CalmWatched {
        let [calm, steady_clock, unwatched] = [self.calm, self.steady_clock, self.unwatched].map(duration);
        CalmWatched { calm, max_bad_nodes: self.max_bad_nodes, steady_clock, unwatched }
    }

    /// For how long the bad nodes have been few where so many percent are: a leader that allowed more of them has seen
    /// nothing of it.
    pub fn calm_by(&self, max_bad_nodes: u8) -> SignedDuration {
        if self.max_bad_nodes <= max_bad_nodes { duration(self.calm) } else { SignedDuration::ZERO }
    }

    /// For how long the volume was lost, with its node in this state.
    pub fn lost(&self, (volume, process): &LossKey, home: HomeState) -> SignedDuration {
        let process = process.clone().unwrap_or_default();
        let lasted = LastingHome::of(home).and_then(|home| self.lost.get(&home)?.get(&process)?.get(volume));
        lasted.copied().map_or(SignedDuration::ZERO, duration)
    }
}

/// How long a leader watches before it acts: half of the interval, because that is longer where Kubernetes needs longer
/// to see a dead node.
pub fn own_watch(interval: SignedDuration) -> SignedDuration {
    let (least, most) = OWN_WATCH;
    (interval / 2).clamp(least, most)
}

/// Whether this is the age of a text that counts.
pub fn is_young(age: SignedDuration) -> bool {
    !age.is_negative() && age <= YOUNG
}

fn whole_seconds(duration: SignedDuration) -> u32 {
    u32::try_from(duration.as_secs().max(0)).unwrap_or(u32::MAX)
}

fn duration(seconds: u32) -> SignedDuration {
    SignedDuration::from_secs(seconds.into())
}

#[cfg(test)]
mod tests;
