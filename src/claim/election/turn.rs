//! What the sets of an election choose from, and the turn of one of them.

use std::collections::HashMap;

use crate::claim::{
    ballot::{Ballot, Candidacy},
    ripeness::Ripeness,
    rule::Rule,
};
use crate::device::{Attachments, Device, NotFree, Verdict, label::SetRef};
use crate::host::{KernelName, RawDisk};

/// What is the same for all sets of an election.
pub(super) struct Hall<'a> {
    pub(super) ballot: &'a Ballot<'a>,
    /// Those that some set may have, in the order in which all of them choose.
    pub(super) devices: Vec<&'a Device>,
    pub(super) disks: HashMap<&'a KernelName, &'a RawDisk>,
    pub(super) attachments: Attachments<'a>,
    pub(super) unknown: Candidacy,
}

impl<'a> Hall<'a> {
    pub(super) fn new(ballot: &'a Ballot<'a>) -> Self {
        let is_bare = |device: &Device| ballot.candidacies.get(&device.raw.name).is_some_and(|known| known.is_bare);
        let candidate = |device: &&Device| !is_bare(device) && (!is_pool(device) || device.label.is_some());
        let mut devices: Vec<&Device> = ballot.devices.iter().filter(candidate).collect();
        devices.sort_by_key(|device| (&device.id, &device.raw.name));
        let candidates = ballot.devices.iter().filter(|device| !is_bare(device));
        let raws: Vec<&RawDisk> = candidates.map(|device| &device.raw).collect();
        let disks = raws.iter().map(|raw| (&raw.name, *raw)).collect();
        Self { ballot, devices, disks, attachments: Attachments::new(raws), unknown: Candidacy::default() }
    }

    pub(super) fn rules(&self) -> Vec<&'a Rule> {
        let mut rules: Vec<&Rule> = self.ballot.rules.iter().collect();
        rules.sort_by_key(|rule| (rule.created, rule.position, &rule.set));
        rules
    }

    pub(super) fn candidacy(&self, device: &Device) -> &Candidacy {
        self.ballot.candidacies.get(&device.raw.name).unwrap_or(&self.unknown)
    }
}

/// Who took or waits for a device, by kernel name.
pub(super) type TakenBy<'a> = HashMap<&'a KernelName, &'a SetRef>;

pub(super) fn is_pool(device: &Device) -> bool {
    device.verdict == Verdict::Ours
}

/// A device that a set would have.
pub(super) struct Contender<'a> {
    /// Its place among all of them.
    pub(super) index: usize,
    pub(super) device: &'a Device,
    pub(super) ripeness: Ripeness,
    /// It would, were it blank: why it is not.
    pub(super) content: Option<NotFree>,
}

/// One set's turn to choose.
pub(super) struct SetTurn<'h, 'a> {
    pub(super) hall: &'h Hall<'a>,
    pub(super) rule: &'a Rule,
}
