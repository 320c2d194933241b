//! Which set claims which unclaimed device now, and which one has the content of a disk destroyed first.
//!
//! Takes in a [`Ballot`]; gives out claims, wipes, and for each set why it rejects what it does not take. The older set
//! wins between contenders. A disk is wiped for a LocalVolume that would take it if it were blank, so an older set, a
//! disk that was released and the count of paths hold there too. Nothing here depends on the order of the input. Pure.

mod suits;

use std::collections::{BTreeMap, BTreeSet};

use self::suits::{Hall, SetTurn, TakenBy, holds_table, is_pool};
use super::ballot::Ballot;
use super::rejection::{ContentFate, Rejection};
use super::ripeness::Ripeness;
use super::rule::NodeMatch;
use crate::device::label::{Layout, SetRef};
use crate::device::{Device, DiskId, NotFree};
use crate::host::KernelName;

/// A device that a set takes now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ElectedClaim {
    pub set: SetRef,
    pub device: DiskId,
    /// Kernel name at the scan that this was decided on.
    pub name: KernelName,
    /// The set's layout; `RawDevice` for a partition or a mapped device, which hold no table.
    pub layout: Layout,
    /// It must read as zeros.
    pub zeros: bool,
}

/// What an election means for one set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetOutcome {
    pub set: SetRef,
    /// Whether the set selects this node. If not, no device is rejected: that would be said of each.
    pub node: NodeMatch,
    /// Paths of a LocalVolume that lead to no device.
    pub missing: Vec<String>,
    /// Kernel names, sorted by device id.
    pub takes: Vec<KernelName>,
    /// What a dry run would take if it were a real one, once it was seen for long enough.
    pub would_take: Vec<KernelName>,
    /// Kernel name and reason of each other device, in the same order; of our own disks only those that the set would
    /// have and another one has.
    pub rejected: Vec<(KernelName, Rejection)>,
    /// Kernel names of disks that the set has and would not choose now: its filters, its paths or its node selector say
    /// otherwise than when it took them. They stay its own.
    pub deselected: Vec<KernelName>,
}

/// A disk whose content goes now, as the set that would take it next orders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ElectedWipe {
    pub set: SetRef,
    /// Kernel name at the scan that this was decided on.
    pub name: KernelName,
}

/// The claims of all sets, and what became of each set, in the order in which the sets choose.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Election {
    pub claims: Vec<ElectedClaim>,
    pub wipes: Vec<ElectedWipe>,
    pub outcomes: Vec<SetOutcome>,
}

/// Decides. Each set in its turn, oldest first, takes what it may of the devices that no older one took or waits for.
pub fn elect(ballot: &Ballot<'_>) -> Election {
    let hall = Hall::new(ballot);
    let mut taken = TakenBy::new();
    let mut election = Election::default();
    for rule in hall.rules() {
        let turn = SetTurn { hall: &hall, rule };
        let SetChoice { outcome, wipes } = match rule.dry_run {
            false => turn.choose(&mut taken),
            // What it would take stays there for the sets after it.
            true => turn.choose(&mut taken.clone()).not_done(),
        };
        let claims =
            hall.devices.iter().filter(|device| outcome.takes.contains(&device.raw.name)).map(|device| ElectedClaim {
                set: rule.set.clone(),
                device: device.id.clone(),
                name: device.raw.name.clone(),
                layout: if holds_table(&device.raw) { rule.layout.clone() } else { Layout::RawDevice {} },
                zeros: turn.wants_zeros(device),
            });
        election.claims.extend(claims);
        election.wipes.extend(wipes.into_iter().map(|name| ElectedWipe { set: rule.set.clone(), name }));
        election.outcomes.push(outcome);
    }
    election
}

/// Kernel names of the devices whose health decides: nothing else keeps them from a set that wants to know it.
pub fn devices_to_ask(ballot: &Ballot<'_>) -> BTreeSet<KernelName> {
    let hall = Hall::new(ballot);
    let mut names = BTreeSet::new();
    for rule in ballot.rules.iter().filter(|rule| rule.filter.min_health.is_some()) {
        let turn = SetTurn { hall: &hall, rule };
        let asked = hall.devices.iter().filter(|device| {
            let may_have = turn.selects(device).is_ok() && (device.free().is_ok() || turn.is_wipeable(device));
            may_have && turn.can_use(device).is_ok()
        });
        names.extend(asked.map(|device| device.raw.name.clone()));
    }
    names
}

/// What one set takes, and what it has wiped.
struct SetChoice {
    outcome: SetOutcome,
    wipes: Vec<KernelName>,
}

impl SetChoice {
    fn not_done(self) -> Self {
        let SetOutcome { takes, .. } = self.outcome;
        Self { outcome: SetOutcome { would_take: takes, takes: Vec::new(), ..self.outcome }, wipes: Vec::new() }
    }
}

/// A device that a set would have.
struct Contender<'a> {
    /// Its place among all of them.
    index: usize,
    device: &'a Device,
    ripeness: Ripeness,
    /// It would, were it blank: why it is not.
    content: Option<NotFree>,
}

/// What a set finds when it looks at all devices.
#[derive(Default)]
struct Contention<'a> {
    contenders: Vec<Contender<'a>>,
    /// By the device's place among all of them.
    rejected: BTreeMap<usize, Rejection>,
    /// Its own disks that it would not choose today, by kernel name.
    deselected: Vec<KernelName>,
}

impl<'a> SetTurn<'_, 'a> {
    fn choose(&self, taken: &mut TakenBy<'a>) -> SetChoice {
        let Contention { mut contenders, mut rejected, deselected } = self.contend(taken);
        // Blank ones first, and of these ripe ones, so that one that keeps changing does not hold the place of one that
        // does not.
        contenders.sort_by_key(|one| (one.content.is_some(), one.ripeness != Ripeness::Ripe, one.index));
        let (mut takes, mut wipes) = (BTreeSet::new(), Vec::new());
        let mut quota = SetQuota::of(self, &contenders);
        for contender in contenders {
            let place = self.unless_lacking(quota.next(&contender));
            let Contender { index, device, ripeness: _, content } = contender;
            if !place.as_ref().is_err_and(is_no_place) {
                // Waited for counts as taken: a younger set must not snatch what makes the minimum.
                taken.insert(&device.raw.name, &self.rule.set);
            }
            let why = match (content, place) {
                (None, Ok(())) => {
                    takes.insert(index);
                    continue;
                }
                (None, Err(why)) => why,
                (Some(content), Ok(())) => {
                    if self.orders_wipe() && !self.rule.dry_run {
                        wipes.push(device.raw.name.clone());
                    }
                    self.content(content, ContentFate::Wipe)
                }
                (Some(content), Err(Rejection::TooYoung(_))) => self.content(content, ContentFate::Wipe),
                (Some(content), Err(why)) => self.content(content, ContentFate::Reject(Box::new(why))),
            };
            rejected.insert(index, why);
        }
        let name = |index: usize| self.hall.devices[index].raw.name.clone();
        let outcome = SetOutcome {
            set: self.rule.set.clone(),
            node: self.rule.node,
            missing: self.missing(),
            takes: takes.into_iter().map(name).collect(),
            would_take: Vec::new(),
            rejected: rejected.into_iter().map(|(index, why)| (name(index), why)).collect(),
            deselected,
        };
        SetChoice { outcome, wipes }
    }

    /// What the machine lacks for the set's layout keeps each device from it for which there is a place.
    fn unless_lacking(&self, place: Result<(), Rejection>) -> Result<(), Rejection> {
        match self.hall.ballot.lacks.get(&self.rule.set) {
            Some(why) if !place.as_ref().is_err_and(is_no_place) => Err(Rejection::DoesNotFit(why.clone())),
            Some(_) | None => place,
        }
    }

    /// Which devices the set would have, if there is a place for them.
    fn contend(&self, taken: &TakenBy<'a>) -> Contention<'a> {
        let mut contention = Contention::default();
        let Contention { contenders, rejected, deselected } = &mut contention;
        for (index, device) in self.hall.devices.iter().copied().enumerate() {
            match self.suits(device, taken) {
                Ok(()) => contenders.push(Contender { index, device, ripeness: self.ripeness(device), content: None }),
                Err(why) if is_pool(device) && !self.is_contested(&why) => {
                    let is_kept = matches!(
                        why,
                        Rejection::InSet(_) | Rejection::HeldBack | Rejection::Tainted | Rejection::StandsBack
                    );
                    if self.is_own(device) && !is_kept {
                        deselected.push(device.raw.name.clone());
                    }
                }
                Err(Rejection::Verdict(why)) if self.hall.candidacy(device).wipe.is_some() => {
                    match self.suits_when_wiped(device, taken) {
                        Ok(ripeness) => contenders.push(Contender { index, device, ripeness, content: Some(why) }),
                        Err(then) => drop(rejected.insert(index, self.content(why, then))),
                    }
                }
                Err(Rejection::NodeNotSelected) => {}
                Err(why) => drop(rejected.insert(index, why)),
            }
        }
        contention
    }

    fn missing(&self) -> Vec<String> {
        let named = self.rule.named.as_ref().filter(|_| self.rule.node == NodeMatch::Selected);
        let all = || self.hall.ballot.devices.iter().map(|device| &device.raw);
        named.map_or_else(Vec::new, |named| named.missing(all()))
    }
}

/// How many of its contenders a set may still take, and from how many on.
struct SetQuota {
    least: u32,
    /// None that it has counts for the minimum any more.
    is_first: bool,
    most: u32,
    room: u32,
    is_named: bool,
    /// What it takes first becomes an array, and takes no more later.
    is_array: bool,
    /// Of all contenders, and of those that are ripe; first of the blank ones.
    matching: [u32; 2],
    ripe: [u32; 2],
}

impl SetQuota {
    fn of(turn: &SetTurn<'_, '_>, contenders: &[Contender<'_>]) -> Self {
        let rule = turn.rule;
        let has = turn.hall.ballot.claimed.get(&rule.set).copied().unwrap_or(0);
        let count = |wanted: &dyn Fn(&&Contender<'_>) -> bool| {
            u32::try_from(contenders.iter().filter(wanted).count()).unwrap_or(u32::MAX)
        };
        let open_places = turn.hall.ballot.open_places.get(&rule.set).copied().unwrap_or(0);
        let is_array = rule.array.is_some();
        let is_ripe = |one: &&Contender<'_>| one.ripeness == Ripeness::Ripe;
        let is_blank = |one: &&Contender<'_>| one.content.is_none();
        Self {
            least: rule.min_devices,
            is_first: has == 0,
            most: rule.max_devices.unwrap_or(u32::MAX),
            room: match is_array && has > 0 {
                true => open_places,
                false => rule.max_devices.map_or(u32::MAX, |most| most.saturating_sub(has)),
            },
            is_named: rule.named.is_some(),
            is_array,
            matching: [count(&is_blank), count(&|_| true)],
            ripe: [count(&|one| is_blank(one) && is_ripe(one)), count(&is_ripe)],
        }
    }

    /// What becomes of the next contender. One with content counts among all, as those that are blank do not count on
    /// it.
    fn next(&mut self, one: &Contender<'_>) -> Result<(), Rejection> {
        let among = usize::from(one.content.is_some());
        let (matching, ripe) = (self.matching[among], self.ripe[among]);
        let least = self.least;
        if self.is_first && matching < least {
            return Err(Rejection::BelowMinimum { matching, least });
        }
        if self.room == 0 && self.is_array && !self.is_first {
            return Err(Rejection::ArrayIsWhole);
        }
        if self.room == 0 {
            let most = self.most;
            return Err(if self.is_named { Rejection::AllNamed { most } } else { Rejection::Full { most } });
        }
        self.room -= 1;
        if one.ripeness != Ripeness::Ripe {
            Err(Rejection::TooYoung(one.ripeness))
        } else if self.is_first && ripe < least {
            Err(Rejection::WaitsForMinimum { ripe, least })
        } else if self.is_first && self.is_array && ripe < matching.min(self.most) {
            Err(Rejection::WaitsForAll { ripe, all: matching.min(self.most) })
        } else {
            Ok(())
        }
    }
}

/// The set has enough, or there are not enough for it.
fn is_no_place(why: &Rejection) -> bool {
    matches!(
        why,
        Rejection::BelowMinimum { .. } | Rejection::Full { .. } | Rejection::AllNamed { .. } | Rejection::ArrayIsWhole
    )
}

#[cfg(test)]
mod tests;
