//! Which set claims which unclaimed device now.
//!
//! Takes in the sets, all devices, how ripe each is, and how many disks each set has already; gives out
//! the claims, and for each set why it takes what it does not take. The older set wins between
//! contenders. Nothing here depends on the order of the input.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt;

use super::age::Ripeness;
use super::filter::Mismatch;
use super::rule::{Blankness, NodeMatch, Rule};
use crate::device::attachment::{Attachment, Attachments, Reach};
use crate::device::label::{Layout, SetRef};
use crate::device::{Device, DiskId, Standing, Verdict, id};
use crate::host::raw::Kind;
use crate::host::{Health, RawDisk};

/// Everything that an election is decided on.
pub struct Ballot<'a> {
    pub rules: &'a [Rule],
    pub devices: &'a [Device],
    /// How many disks of this node each set has, missing ones too.
    pub claimed: &'a BTreeMap<SetRef, u32>,
    /// How many of the disks of a LocalVolume's class none of its paths leads to now.
    pub astray: &'a BTreeMap<SetRef, u32>,
    /// Ids of the devices that a person gave back: nobody takes them until they are adopted.
    pub given_back: &'a BTreeSet<String>,
    pub ripeness: &'a dyn Fn(&Device) -> Ripeness,
    /// Whether the set's layout fits on the device; the words say what is lacking.
    pub fits: &'a dyn Fn(&Rule, &Device) -> Result<(), String>,
    /// Whether nothing is remembered of a device's bytes that keeps it from a use which wants zeros.
    pub zeros: &'a dyn Fn(&Device) -> Result<(), String>,
    /// Whether it may be a bare device of the pool that has another identity now: whoever takes it wants zeros.
    pub doubted: &'a dyn Fn(&Device) -> bool,
    /// What a device says of its health: asked of those that nothing else keeps from a set that wants to know.
    pub health: &'a dyn Fn(&Device) -> Health,
}

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
    /// Paths of a LocalVolume that lead to no device; filled in by who knows all devices.
    pub missing: Vec<String>,
    /// Kernel names, sorted by device id.
    pub takes: Vec<String>,
    /// What a dry run would take if it were a real one, once it was seen for long enough.
    pub would_take: Vec<String>,
    /// Kernel name and reason of each other device, in the same order; of our own disks only those that the set would have
    /// and another one has.
    pub leaves: Vec<(String, Left)>,
    /// Kernel names of disks that the set has and would not choose now: its filters, its paths or its node selector say
    /// otherwise than when it took them. They stay its own.
    pub deselected: Vec<String>,
}

/// Why a set does not take a device now; `Display` is a sentence for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Left {
    NodeNotSelected,
    /// Another operator takes disks on this node.
    StandsBack,
    /// A LocalVolume, and none of its paths leads to the device.
    NotNamed,
    Filter(Mismatch),
    Verdict(String),
    DoesNotFit(String),
    NotZeros(String),
    Health(String),
    GivenBack,
    UnstableIdentity,
    /// What it is called may be the name of the USB bridge that it is in.
    NamedByBridge,
    /// A partition or a mapped device, and the set cuts its disks into partitions.
    HoldsNoTable,
    OlderSet(SetRef),
    /// The set would have the disk, and another one has it.
    InSet(SetRef),
    Full {
        most: u32,
    },
    /// A LocalVolume that has a disk for each of its paths.
    AllNamed {
        most: u32,
    },
    /// Only the kernel's name leads here, and of what the LocalVolume has some is not where its paths lead.
    Renumbered {
        astray: u32,
    },
    BelowMinimum {
        matching: u32,
        least: u32,
    },
    TooYoung(Ripeness),
    /// The first claim waits until as many devices as the set asks for at least are ripe.
    WaitsForMinimum {
        ripe: u32,
        least: u32,
    },
}

/// The claims of all sets, and what became of each set, in the order in which the sets choose.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Election {
    pub claims: Vec<Claim>,
    pub outcomes: Vec<Outcome>,
}

/// Decides. Each set in its turn, oldest first, takes what it may of the devices that no older one took
/// or waits for.
pub fn elect(ballot: &Ballot<'_>) -> Election {
    let mut rules: Vec<&Rule> = ballot.rules.iter().collect();
    rules.sort_by_key(|rule| (rule.created, rule.position, &rule.set));
    let candidate = |device: &&Device| !is_pool(device) || device.label.is_some();
    let mut devices: Vec<&Device> = ballot.devices.iter().filter(candidate).collect();
    devices.sort_by_key(|device| (&device.id, &device.raw.name));
    let disks = ballot.devices.iter().map(|device| (device.raw.name.as_str(), &device.raw)).collect();
    let attachments = Attachments::new(ballot.devices.iter().map(|device| &device.raw));

    let mut taken = HashMap::new();
    let mut election = Election::default();
    for rule in rules {
        let turn = Turn { ballot, rule, devices: &devices, disks: &disks, attachments: &attachments };
        let outcome = match rule.dry_run {
            false => turn.choose(&mut taken),
            // What it would take stays there for the sets after it.
            true => turn.choose(&mut taken.clone()).not_done(),
        };
        let claims = devices.iter().filter(|device| outcome.takes.contains(&device.raw.name)).map(|device| Claim {
            set: rule.set.clone(),
            device: device.id.clone(),
            name: device.raw.name.clone(),
            layout: if holds_table(&device.raw) { rule.layout.clone() } else { Layout::RawDevice {} },
            zeros: turn.wants_zeros(device),
        });
        election.claims.extend(claims);
        election.outcomes.push(outcome);
    }
    election
}

impl Outcome {
    fn not_done(self) -> Self {
        Self { would_take: self.takes, takes: Vec::new(), ..self }
    }
}

fn is_pool(device: &Device) -> bool {
    device.verdict == Verdict::Ours
}

type Disks<'a> = HashMap<&'a str, &'a RawDisk>;

/// Whether the kernel maps partitions on it: not on a partition, and not on a mapped device.
fn holds_table(raw: &RawDisk) -> bool {
    !matches!(raw.kind, Kind::Partition(_) | Kind::Dm(_))
}

/// One set's turn to choose.
struct Turn<'a> {
    ballot: &'a Ballot<'a>,
    rule: &'a Rule,
    devices: &'a [&'a Device],
    disks: &'a Disks<'a>,
    attachments: &'a Attachments<'a>,
}

impl<'a> Turn<'a> {
    fn choose(&self, taken: &mut HashMap<&'a str, &'a SetRef>) -> Outcome {
        let mut leaves = BTreeMap::new();
        let mut contenders = Vec::new();
        let mut deselected = Vec::new();
        for (index, device) in self.devices.iter().copied().enumerate() {
            match self.suits(device, taken) {
                Ok(()) => contenders.push((index, device, self.ripeness(device))),
                Err(left) if is_pool(device) && !self.is_contested(&left) => {
                    if self.is_own(device) && !matches!(left, Left::InSet(_) | Left::StandsBack) {
                        deselected.push(device.raw.name.clone());
                    }
                }
                Err(left) => drop(leaves.insert(index, left)),
            }
        }
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let (least, matching) = (self.rule.min_devices, count(contenders.len()));
        let ripe = count(contenders.iter().filter(|(_, _, ripeness)| *ripeness == Ripeness::Ripe).count());
        let has = self.ballot.claimed.get(&self.rule.set).copied().unwrap_or(0);
        let first_claim = has == 0;
        let mut room = self.rule.max_devices.map_or(u32::MAX, |most| most.saturating_sub(has));

        let mut takes = HashSet::new();
        // Ripe ones first, so that one that keeps changing does not hold the place of one that does not.
        contenders.sort_by_key(|(index, _, ripeness)| (*ripeness != Ripeness::Ripe, *index));
        for (index, device, ripeness) in contenders {
            let left = if first_claim && matching < least {
                Left::BelowMinimum { matching, least }
            } else if room == 0 {
                let most = self.rule.max_devices.unwrap_or(u32::MAX);
                if self.rule.named.is_some() { Left::AllNamed { most } } else { Left::Full { most } }
            } else {
                // Waited for counts as taken: a younger set must not snatch what makes the minimum.
                room -= 1;
                taken.insert(&device.raw.name, &self.rule.set);
                if ripeness != Ripeness::Ripe {
                    Left::TooYoung(ripeness)
                } else if first_claim && ripe < least {
                    Left::WaitsForMinimum { ripe, least }
                } else {
                    takes.insert(index);
                    continue;
                }
            };
            leaves.insert(index, left);
        }
        let name = |index: usize| self.devices[index].raw.name.clone();
        let mut takes: Vec<usize> = takes.into_iter().collect();
        takes.sort_unstable();
        Outcome {
            set: self.rule.set.clone(),
            missing: Vec::new(),
            takes: takes.into_iter().map(name).collect(),
            would_take: Vec::new(),
            leaves: leaves.into_iter().map(|(index, left)| (name(index), left)).collect(),
            deselected,
        }
    }

    fn ripeness(&self, device: &Device) -> Ripeness {
        if self.rule.dry_run { Ripeness::Ripe } else { (self.ballot.ripeness)(device) }
    }

    /// A disk of the pool is worth a word only to another set that would have it too.
    fn is_contested(&self, left: &Left) -> bool {
        matches!(left, Left::InSet(owner) if !self.is_named_like(owner))
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
        self.is_raw_use(device) || self.rule.blankness == Blankness::Zeros || (self.ballot.doubted)(device)
    }

    fn suits(&self, device: &'a Device, taken: &HashMap<&str, &SetRef>) -> Result<(), Left> {
        match self.rule.node {
            NodeMatch::Selected => {}
            NodeMatch::NotSelected => return Err(Left::NodeNotSelected),
            NodeMatch::StandsBack => return Err(Left::StandsBack),
        }
        if self.rule.named.as_ref().is_some_and(|named| !named.names(&device.raw)) {
            return Err(Left::NotNamed);
        }
        let disk = match &device.raw.kind {
            Kind::Partition(partition) => self.disks.get(partition.disk.as_str()).copied(),
            _ => None,
        };
        self.rule.filter.matches(&device.raw, disk).map_err(Left::Filter)?;
        if self.rule.filter.exclude_network {
            let Attachment { reach, by } = self.attachments.of(&device.raw);
            if reach == Reach::Network {
                return Err(Left::Filter(Mismatch::Network { by }));
            }
        }
        if let Some(expression) = &self.rule.filter.expression {
            expression.selects(device, self.attachments.of(&device.raw)).map_err(Left::Filter)?;
        }
        if let (Verdict::Ours, Some(label)) = (&device.verdict, &device.label) {
            return Err(Left::InSet(label.set.clone()));
        }
        let refused = match (&device.verdict, &device.standing) {
            (Verdict::Unclaimed, Standing::Ready) => None,
            (Verdict::Unclaimed, Standing::NotReady(why)) => Some(why.clone()),
            (Verdict::Theirs(reason), _) => Some(reason.to_string()),
            (Verdict::Unknown(why), _) => Some(why.clone()),
            (Verdict::Foreign { cluster, node }, _) => Some(format!("belongs to node {node} of cluster {cluster}")),
            (Verdict::Ours, _) => Some("in use by the pool".to_owned()),
        };
        if let Some(why) = refused {
            return Err(Left::Verdict(why));
        }
        if self.ballot.given_back.contains(&device.id.text) {
            return Err(Left::GivenBack);
        }
        let astray = self.ballot.astray.get(&self.rule.set).copied().unwrap_or(0);
        if astray > 0 && self.rule.named.as_ref().is_some_and(|named| named.names_by_number_only(&device.raw)) {
            return Err(Left::Renumbered { astray });
        }
        if !holds_table(&device.raw) && matches!(self.rule.layout, Layout::Slots { .. } | Layout::Carved {}) {
            return Err(Left::HoldsNoTable);
        }
        if self.is_raw_use(device) && !device.id.stable {
            return Err(Left::UnstableIdentity);
        }
        if self.is_raw_use(device) && id::may_be_of_bridge(&device.raw, disk) {
            return Err(Left::NamedByBridge);
        }
        (self.ballot.fits)(self.rule, device).map_err(Left::DoesNotFit)?;
        if self.wants_zeros(device) {
            (self.ballot.zeros)(device).map_err(Left::NotZeros)?;
        }
        if let Some(least) = self.rule.filter.min_health {
            least.check(&(self.ballot.health)(device)).map_err(Left::Health)?;
        }
        match taken.get(device.raw.name.as_str()) {
            Some(older) => Err(Left::OlderSet((*older).clone())),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Left {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NodeNotSelected => f.write_str("the set's nodeSelector does not select this node"),
            Self::StandsBack => f.write_str(
                "nothing new is claimed on this node: the Local Storage Operator's diskmaker runs here, or that is not known yet",
            ),
            Self::NotNamed => f.write_str("no path of the LocalVolume leads to it"),
            Self::Filter(mismatch) => mismatch.fmt(f),
            Self::Verdict(why) => f.write_str(why),
            Self::DoesNotFit(why) => write!(f, "does not fit: {why}"),
            Self::NotZeros(why) | Self::Health(why) => f.write_str(why),
            Self::GivenBack => f.write_str("given back; `localpool disk adopt` lets sets claim it again"),
            Self::UnstableIdentity => {
                f.write_str("it is known only by its path, so it cannot be used raw: it may be another disk tomorrow")
            }
            Self::NamedByBridge => f.write_str(
                "it is on USB, so it cannot be used raw: its bridge may give the same name to another disk; a layout with a label \
                 knows its disk by that",
            ),
            Self::HoldsNoTable => f.write_str("it takes no partition table, and the set has a partitioningSpec"),
            Self::InSet(set) => write!(f, "the set {}/{} has it", set.namespace, set.name),
            Self::OlderSet(set) => write!(f, "the older set {}/{} takes it", set.namespace, set.name),
            Self::Full { most } => write!(f, "the set has its maxDeviceCount of {most}"),
            Self::AllNamed { most: 1 } => f.write_str("the LocalVolume has a disk for its one path here already"),
            Self::AllNamed { most } => {
                write!(f, "the LocalVolume has a disk for each of its {most} paths here already")
            }
            Self::Renumbered { astray } => write!(
                f,
                "{astray} of the LocalVolume's disks here {} not where its paths lead, so this name may have been \
                 another disk's: name it by a link of /dev/disk/by-id if it is meant",
                if *astray == 1 { "is" } else { "are" }
            ),
            Self::BelowMinimum { matching, least } => {
                write!(f, "{matching} matching, below the set's minDeviceCount of {least}")
            }
            Self::TooYoung(Ripeness::Waiting(left)) => {
                write!(f, "seen too recently: it must stay as it is for {} s more", left.as_secs_f64().ceil())
            }
            Self::TooYoung(_) => f.write_str("seen too recently: it must stay as it is for a while"),
            Self::WaitsForMinimum { ripe, least } => {
                write!(f, "waits for the set's minDeviceCount of {least}: {ripe} seen for long enough")
            }
        }
    }
}

#[cfg(test)]
mod tests;
