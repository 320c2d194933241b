//! Which set claims which unclaimed device now, and which one has the content of a disk destroyed first.
//!
//! Takes in a [`Ballot`]; gives out claims, wipes, and for each set why it rejects what it does not take. The older set wins
//! between contenders. A disk is wiped for a LocalVolume that would take it if it were blank, so an older set, a disk that was
//! given back and the count of paths hold there too. Nothing here depends on the order of the input. Pure.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::ballot::{Ballot, Facts};
use super::filter::Mismatch;
use super::rejection::{Rejection, Then};
use super::ripeness::Ripeness;
use super::rule::{Blankness, NodeMatch, Rule};
use crate::device::attachment::{Attachment, Attachments, Reach};
use crate::device::label::{Layout, SetRef};
use crate::device::{Device, DiskId, Standing, Verdict, id};
use crate::host::raw::Kind;
use crate::host::{Health, RawDisk};

/// A device that a set takes now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    pub set: SetRef,
    pub device: DiskId,
    /// Kernel name at the look that this was decided on.
    pub name: String,
    /// The set's layout; `RawDevice` for a partition or a mapped device, which hold no table.
    pub layout: Layout,
    /// It must read as zeros.
    pub zeros: bool,
}

/// What an election means for one set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    pub set: SetRef,
    /// Paths of a LocalVolume that lead to no device.
    pub missing: Vec<String>,
    /// Kernel names, sorted by device id.
    pub takes: Vec<String>,
    /// What a dry run would take if it were a real one, once it was seen for long enough.
    pub would_take: Vec<String>,
    /// Kernel name and reason of each other device, in the same order; of our own disks only those that the set would have
    /// and another one has.
    pub rejected: Vec<(String, Rejection)>,
    /// Kernel names of disks that the set has and would not choose now: its filters, its paths or its node selector say
    /// otherwise than when it took them. They stay its own.
    pub deselected: Vec<String>,
}

/// A disk whose content goes now, as the set that would take it next orders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wipe {
    pub set: SetRef,
    /// Kernel name at the look that this was decided on.
    pub name: String,
}

/// The claims of all sets, and what became of each set, in the order in which the sets choose.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Election {
    pub claims: Vec<Claim>,
    pub wipes: Vec<Wipe>,
    pub outcomes: Vec<Outcome>,
}

/// Decides. Each set in its turn, oldest first, takes what it may of the devices that no older one took or waits for.
pub fn elect(ballot: &Ballot<'_>) -> Election {
    let hall = Hall::new(ballot);
    let mut taken = Taken::new();
    let mut election = Election::default();
    for rule in hall.rules() {
        let turn = Turn { hall: &hall, rule };
        let Choice { outcome, wipes } = match rule.dry_run {
            false => turn.choose(&mut taken),
            // What it would take stays there for the sets after it.
            true => turn.choose(&mut taken.clone()).not_done(),
        };
        let claims =
            hall.devices.iter().filter(|device| outcome.takes.contains(&device.raw.name)).map(|device| Claim {
                set: rule.set.clone(),
                device: device.id.clone(),
                name: device.raw.name.clone(),
                layout: if holds_table(&device.raw) { rule.layout.clone() } else { Layout::RawDevice {} },
                zeros: turn.wants_zeros(device),
            });
        election.claims.extend(claims);
        election.wipes.extend(wipes.into_iter().map(|name| Wipe { set: rule.set.clone(), name }));
        election.outcomes.push(outcome);
    }
    election
}

/// Kernel names of the devices whose health decides: nothing else keeps them from a set that wants to know it.
pub fn to_ask(ballot: &Ballot<'_>) -> BTreeSet<String> {
    let hall = Hall::new(ballot);
    let mut names = BTreeSet::new();
    for rule in ballot.rules.iter().filter(|rule| rule.filter.min_health.is_some()) {
        let turn = Turn { hall: &hall, rule };
        let asked = hall.devices.iter().filter(|device| {
            let may_have = turn.selects(device).is_ok() && (is_free(device).is_ok() || turn.is_wipeable(device));
            may_have && turn.can_use(device).is_ok()
        });
        names.extend(asked.map(|device| device.raw.name.clone()));
    }
    names
}

/// What is the same for all sets of an election.
struct Hall<'a> {
    ballot: &'a Ballot<'a>,
    /// Those that some set may have, in the order in which all of them choose.
    devices: Vec<&'a Device>,
    disks: HashMap<&'a str, &'a RawDisk>,
    attachments: Attachments<'a>,
    unknown: Facts,
}

impl<'a> Hall<'a> {
    fn new(ballot: &'a Ballot<'a>) -> Self {
        let is_bare = |device: &Device| ballot.facts.get(&device.raw.name).is_some_and(|facts| facts.is_bare);
        let candidate = |device: &&Device| !is_bare(device) && (!is_pool(device) || device.label.is_some());
        let mut devices: Vec<&Device> = ballot.devices.iter().filter(candidate).collect();
        devices.sort_by_key(|device| (&device.id, &device.raw.name));
        let candidates = ballot.devices.iter().filter(|device| !is_bare(device));
        let raws: Vec<&RawDisk> = candidates.map(|device| &device.raw).collect();
        let disks = raws.iter().map(|raw| (raw.name.as_str(), *raw)).collect();
        Self { ballot, devices, disks, attachments: Attachments::new(raws), unknown: Facts::default() }
    }

    fn rules(&self) -> Vec<&'a Rule> {
        let mut rules: Vec<&Rule> = self.ballot.rules.iter().collect();
        rules.sort_by_key(|rule| (rule.created, rule.position, &rule.set));
        rules
    }

    fn facts(&self, device: &Device) -> &Facts {
        self.ballot.facts.get(&device.raw.name).unwrap_or(&self.unknown)
    }
}

/// Who took or waits for a device, by kernel name.
type Taken<'a> = HashMap<&'a str, &'a SetRef>;

/// What one set takes, and what it has wiped.
struct Choice {
    outcome: Outcome,
    wipes: Vec<String>,
}

impl Choice {
    fn not_done(self) -> Self {
        let Outcome { takes, .. } = self.outcome;
        Self { outcome: Outcome { would_take: takes, takes: Vec::new(), ..self.outcome }, wipes: Vec::new() }
    }
}

fn is_pool(device: &Device) -> bool {
    device.verdict == Verdict::Ours
}

/// Whether the kernel maps partitions on it: not on a partition, and not on a mapped device.
fn holds_table(raw: &RawDisk) -> bool {
    !matches!(raw.kind, Kind::Partition(_) | Kind::Dm(_))
}

/// Nobody has it.
fn is_free(device: &Device) -> Result<(), String> {
    match (&device.verdict, &device.standing) {
        (Verdict::Unclaimed, Standing::Ready) => Ok(()),
        (Verdict::Unclaimed, Standing::NotReady(why)) | (Verdict::Unknown(why), _) => Err(why.clone()),
        (Verdict::Theirs(reason), _) => Err(reason.to_string()),
        (Verdict::Foreign { cluster, node }, _) => Err(format!("belongs to node {node} of cluster {cluster}")),
        (Verdict::Ours, _) => Err("in use by the pool".to_owned()),
    }
}

/// A device that a set would have.
struct Contender<'a> {
    /// Its place among all of them.
    index: usize,
    device: &'a Device,
    ripeness: Ripeness,
    /// It would, were it blank: why it is not.
    content: Option<String>,
}

/// One set's turn to choose.
struct Turn<'h, 'a> {
    hall: &'h Hall<'a>,
    rule: &'a Rule,
}

impl<'a> Turn<'_, 'a> {
    fn choose(&self, taken: &mut Taken<'a>) -> Choice {
        let mut rejected = BTreeMap::new();
        let mut contenders = Vec::new();
        let mut deselected = Vec::new();
        for (index, device) in self.hall.devices.iter().copied().enumerate() {
            match self.suits(device, taken) {
                Ok(()) => contenders.push(Contender { index, device, ripeness: self.ripeness(device), content: None }),
                Err(why) if is_pool(device) && !self.is_contested(&why) => {
                    if self.is_own(device) && !matches!(why, Rejection::InSet(_) | Rejection::StandsBack) {
                        deselected.push(device.raw.name.clone());
                    }
                }
                Err(Rejection::Verdict(why)) if self.hall.facts(device).wipe.is_some() => {
                    match self.suits_when_wiped(device, taken) {
                        Ok(ripeness) => contenders.push(Contender { index, device, ripeness, content: Some(why) }),
                        Err(then) => drop(rejected.insert(index, self.content(why, then))),
                    }
                }
                Err(why) => drop(rejected.insert(index, why)),
            }
        }
        // Blank ones first, and of these ripe ones, so that one that keeps changing does not hold the place of one that does
        // not.
        contenders.sort_by_key(|one| (one.content.is_some(), one.ripeness != Ripeness::Ripe, one.index));
        let (mut takes, mut wipes) = (BTreeSet::new(), Vec::new());
        let mut places = Places::of(self, &contenders);
        for Contender { index, device, ripeness, content } in contenders {
            let outcome = places.next(ripeness, content.is_some());
            if !matches!(
                outcome,
                Err(Rejection::BelowMinimum { .. } | Rejection::Full { .. } | Rejection::AllNamed { .. })
            ) {
                // Waited for counts as taken: a younger set must not snatch what makes the minimum.
                taken.insert(&device.raw.name, &self.rule.set);
            }
            let why = match (content, outcome) {
                (None, Ok(())) => {
                    takes.insert(index);
                    continue;
                }
                (None, Err(why)) => why,
                (Some(content), Ok(())) => {
                    if self.orders_wipe() && !self.rule.dry_run {
                        wipes.push(device.raw.name.clone());
                    }
                    self.content(content, Then::Wipe)
                }
                (Some(content), Err(Rejection::TooYoung(_))) => self.content(content, Then::Wipe),
                (Some(content), Err(why)) => self.content(content, Then::Reject(Box::new(why))),
            };
            rejected.insert(index, why);
        }
        let name = |index: usize| self.hall.devices[index].raw.name.clone();
        let outcome = Outcome {
            set: self.rule.set.clone(),
            missing: self.missing(),
            takes: takes.into_iter().map(name).collect(),
            would_take: Vec::new(),
            rejected: rejected.into_iter().map(|(index, why)| (name(index), why)).collect(),
            deselected,
        };
        Choice { outcome, wipes }
    }

    fn missing(&self) -> Vec<String> {
        let named = self.rule.named.as_ref().filter(|_| self.rule.node == NodeMatch::Selected);
        let all = || self.hall.ballot.devices.iter().map(|device| &device.raw);
        named.map_or_else(Vec::new, |named| named.missing(all()))
    }

    fn ripeness(&self, device: &Device) -> Ripeness {
        if self.rule.dry_run { Ripeness::Ripe } else { self.hall.facts(device).ripeness }
    }

    /// A disk of the pool is worth a word only to another set that would have it too.
    fn is_contested(&self, why: &Rejection) -> bool {
        matches!(why, Rejection::InSet(owner) if !self.is_named_like(owner))
    }

    fn is_own(&self, device: &Device) -> bool {
        device.label.as_ref().is_some_and(|label| self.is_named_like(&label.set))
    }

    /// This set, or an earlier one of its name.
    fn is_named_like(&self, set: &SetRef) -> bool {
        (&set.namespace, &set.name) == (&self.rule.set.namespace, &self.rule.set.name)
    }

    fn is_raw_use(&self, device: &Device) -> bool {
        !holds_table(&device.raw) || self.rule.layout == Layout::RawDevice {}
    }

    fn wants_zeros(&self, device: &Device) -> bool {
        self.is_raw_use(device) || self.rule.blankness == Blankness::Zeros || self.hall.facts(device).may_be_ours
    }

    fn orders_wipe(&self) -> bool {
        self.rule.named.as_ref().is_some_and(|named| named.wipe)
    }

    fn is_wipeable(&self, device: &Device) -> bool {
        matches!(self.hall.facts(device).wipe, Some(Ok(_)))
    }

    /// What is said of a device that is not blank: only a set that orders its content to go says what becomes of that.
    fn content(&self, why: String, then: Then) -> Rejection {
        match (self.orders_wipe(), then) {
            (false, _) => Rejection::Verdict(why),
            (true, Then::Wipe) if self.rule.dry_run => Rejection::Content { why, then: Then::WouldWipe },
            (true, then) => Rejection::Content { why, then },
        }
    }

    fn suits(&self, device: &'a Device, taken: &Taken<'_>) -> Result<(), Rejection> {
        self.selects(device)?;
        is_free(device).map_err(Rejection::Verdict)?;
        self.may_take(device, taken)
    }

    /// The same of a device whose content may go, were it blank; and since when that content has been there.
    fn suits_when_wiped(&self, device: &'a Device, taken: &Taken<'_>) -> Result<Ripeness, Then> {
        let ripeness = match &self.hall.facts(device).wipe {
            Some(Ok(ripeness)) => *ripeness,
            Some(Err(spared)) => return Err(Then::Spare(spared.clone())),
            None => Ripeness::Unseen,
        };
        self.may_take(device, taken).map_err(|why| Then::Reject(Box::new(why)))?;
        Ok(if self.rule.dry_run { Ripeness::Ripe } else { ripeness })
    }

    /// By what the set says of devices.
    fn selects(&self, device: &'a Device) -> Result<(), Rejection> {
        match self.rule.node {
            NodeMatch::Selected => {}
            NodeMatch::NotSelected => return Err(Rejection::NodeNotSelected),
            NodeMatch::StandsBack => return Err(Rejection::StandsBack),
        }
        if self.rule.named.as_ref().is_some_and(|named| !named.names(&device.raw)) {
            return Err(Rejection::NotNamed);
        }
        self.rule.filter.matches(&device.raw, self.disk_of(device)).map_err(Rejection::Filter)?;
        if self.rule.filter.exclude_network {
            let Attachment { reach, by } = self.hall.attachments.of(&device.raw);
            if reach == Reach::Network {
                return Err(Rejection::Filter(Mismatch::Network { by }));
            }
        }
        if let Some(expression) = &self.rule.filter.expression {
            expression.selects(device, self.hall.attachments.of(&device.raw)).map_err(Rejection::Filter)?;
        }
        match (&device.verdict, &device.label) {
            (Verdict::Ours, Some(label)) => Err(Rejection::InSet(label.set.clone())),
            _ => Ok(()),
        }
    }

    /// The disk that a partition is on.
    fn disk_of(&self, device: &Device) -> Option<&'a RawDisk> {
        match &device.raw.kind {
            Kind::Partition(partition) => self.hall.disks.get(partition.disk.as_str()).copied(),
            _ => None,
        }
    }

    /// Whether a device that nobody has is of use to the set.
    fn can_use(&self, device: &'a Device) -> Result<(), Rejection> {
        let ballot = self.hall.ballot;
        if ballot.given_back.contains(&device.id.text) {
            return Err(Rejection::GivenBack);
        }
        let astray = ballot.astray.get(&self.rule.set).copied().unwrap_or(0);
        if astray > 0 && self.rule.named.as_ref().is_some_and(|named| named.names_by_number_only(&device.raw)) {
            return Err(Rejection::Renumbered { astray });
        }
        if !holds_table(&device.raw) && matches!(self.rule.layout, Layout::Slots { .. } | Layout::Carved {}) {
            return Err(Rejection::HoldsNoTable);
        }
        if self.is_raw_use(device) && !device.id.stable {
            return Err(Rejection::UnstableIdentity);
        }
        if self.is_raw_use(device) && id::may_be_of_bridge(&device.raw, self.disk_of(device)) {
            return Err(Rejection::NamedByBridge);
        }
        (ballot.fits)(self.rule, device).map_err(Rejection::DoesNotFit)?;
        match &self.hall.facts(device).not_zeros {
            Some(why) if self.wants_zeros(device) => Err(Rejection::NotZeros(why.clone())),
            _ => Ok(()),
        }
    }

    fn may_take(&self, device: &'a Device, taken: &Taken<'_>) -> Result<(), Rejection> {
        self.can_use(device)?;
        if let Some(least) = self.rule.filter.min_health {
            let silent = || Health::Unknown("it was not asked".to_owned());
            let health = self.hall.facts(device).health.clone().unwrap_or_else(silent);
            least.check(&health).map_err(Rejection::Health)?;
        }
        match taken.get(device.raw.name.as_str()) {
            Some(older) => Err(Rejection::OlderSet((*older).clone())),
            None => Ok(()),
        }
    }
}

/// How many of its contenders a set may still take, and from how many on.
struct Places {
    least: u32,
    /// None that it has counts for the minimum any more.
    is_first: bool,
    most: u32,
    room: u32,
    is_named: bool,
    /// Of all contenders, and of those that are ripe; first of the blank ones.
    matching: [u32; 2],
    ripe: [u32; 2],
}

impl Places {
    fn of(turn: &Turn<'_, '_>, contenders: &[Contender<'_>]) -> Self {
        let rule = turn.rule;
        let has = turn.hall.ballot.claimed.get(&rule.set).copied().unwrap_or(0);
        let count = |wanted: &dyn Fn(&&Contender<'_>) -> bool| {
            u32::try_from(contenders.iter().filter(wanted).count()).unwrap_or(u32::MAX)
        };
        let is_ripe = |one: &&Contender<'_>| one.ripeness == Ripeness::Ripe;
        let is_blank = |one: &&Contender<'_>| one.content.is_none();
        Self {
            least: rule.min_devices,
            is_first: has == 0,
            most: rule.max_devices.unwrap_or(u32::MAX),
            room: rule.max_devices.map_or(u32::MAX, |most| most.saturating_sub(has)),
            is_named: rule.named.is_some(),
            matching: [count(&is_blank), count(&|_| true)],
            ripe: [count(&|one| is_blank(one) && is_ripe(one)), count(&is_ripe)],
        }
    }

    /// What becomes of the next contender. One with content counts among all, as those that are blank do not count on it.
    fn next(&mut self, ripeness: Ripeness, has_content: bool) -> Result<(), Rejection> {
        let (matching, ripe) = (self.matching[usize::from(has_content)], self.ripe[usize::from(has_content)]);
        let least = self.least;
        if self.is_first && matching < least {
            return Err(Rejection::BelowMinimum { matching, least });
        }
        if self.room == 0 {
            let most = self.most;
            return Err(if self.is_named { Rejection::AllNamed { most } } else { Rejection::Full { most } });
        }
        self.room -= 1;
        if ripeness != Ripeness::Ripe {
            Err(Rejection::TooYoung(ripeness))
        } else if self.is_first && ripe < least {
            Err(Rejection::WaitsForMinimum { ripe, least })
        } else {
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests;
