//! What an election of this node is decided on: what is known of each device, and how many disks each set has.
//!
//! Takes in a snapshot and the sets; gives out what each of them takes. A device is asked for its health only if the
//! election depends on it.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::agent::{
    decide::{OF_BARE, owner},
    reconciler::Reconciler,
    wipe::{as_if_blank, orders_wipe_of},
};
use crate::claim::{Ballot, Candidacy, Election, LayoutError, Rule, devices_to_ask, elect};
use crate::device::{
    Device, DiskId, Snapshot,
    label::{Layout, SetRef},
};
use crate::host::{Geometry, KernelName};
use crate::pool::{data_area, places};

impl Reconciler {
    /// What these sets take, and have wiped.
    pub(in crate::agent) fn elect(&mut self, snapshot: &Snapshot, rules: &[Rule]) -> Election {
        let (counts, astray, released) =
            (self.counts(rules), self.astray(snapshot, rules), self.pool.journal().released());
        let candidacies = self.candidacies(snapshot, rules);
        let ballot = Ballot {
            rules,
            devices: &snapshot.devices,
            candidacies: &candidacies,
            claimed: &counts,
            astray: &astray,
            released: &released,
            fits,
        };
        let asked = devices_to_ask(&ballot);
        if asked.is_empty() {
            return elect(&ballot);
        }
        let mut candidacies = candidacies.clone();
        for device in snapshot.devices.iter().filter(|device| asked.contains(&device.raw.name)) {
            let health = self.memory.healths.of(&self.host, &device.raw, snapshot.at);
            candidacies.entry(device.raw.name.clone()).or_default().health = Some(health);
        }
        elect(&Ballot { candidacies: &candidacies, ..ballot })
    }

    /// What is known of each device, without asking any.
    fn candidacies(&self, snapshot: &Snapshot, rules: &[Rule]) -> BTreeMap<KernelName, Candidacy> {
        let doubts = self.doubts(snapshot);
        let of = |device: &Device| Candidacy {
            ripeness: self.memory.watch.ripeness(device),
            is_bare: self.pool.bare_claim_of(snapshot, device).is_some(),
            may_be_ours: doubts.are_of(&device.raw),
            not_zeros: self.memory.blanks.known(device, snapshot.at).err(),
            health: None,
            wipe: rules
                .iter()
                .any(|rule| orders_wipe_of(rule, device))
                .then(|| doubts.may_wipe(device, snapshot).map(|()| self.memory.wipes.ripeness(&as_if_blank(device)))),
        };
        snapshot.devices.iter().map(|device| (device.raw.name.clone(), of(device))).collect()
    }

    /// The disks of the pool, those that are away too, each by its id and with the set that it counts for. Of a set
    /// that was made again, those count as well on which its UID cannot be written now.
    fn placed(&self, rules: &[Rule]) -> Vec<(SetRef, DiskId)> {
        let of = |set: SetRef, layouts: &[Layout]| owner(&set, layouts, rules).map_or(set, |rule| rule.set.clone());
        let labelled = self.pool.labelled_disks().into_iter().map(|member| {
            let label = Arc::clone(&member.shown().content.label);
            (of(label.set.clone(), std::slice::from_ref(&label.layout)), member.id.clone())
        });
        let bare = self.pool.journal().bare_claims().into_iter().map(|(id, claim)| (of(claim.set, &OF_BARE), id));
        let absent = self.pool.absent().into_iter().map(|(id, disk)| (of(disk.set, &[disk.layout]), id));
        labelled.chain(bare).chain(absent).collect()
    }

    /// How many disks each set has.
    pub(super) fn counts(&self, rules: &[Rule]) -> BTreeMap<SetRef, u32> {
        let mut counts = BTreeMap::new();
        let under_way = self.claims_under_way.iter().filter(|(id, _)| self.errands.is_waiting_for(&(*id).into()));
        let under_way = under_way.map(|(_, (_, set))| set.clone());
        for set in self.placed(rules).into_iter().map(|(set, _)| set).chain(under_way) {
            *counts.entry(set).or_default() += 1;
        }
        counts
    }

    /// How many disks each class of a LocalVolume has that none of its paths leads to now, missing ones too.
    fn astray(&self, snapshot: &Snapshot, rules: &[Rule]) -> BTreeMap<SetRef, u32> {
        let is = |device: &&Device, id: &DiskId| {
            device.id == *id || self.pool.bare_claim_of(snapshot, device).is_some_and(|(bare, _)| bare == *id)
        };
        let here = |id: &DiskId| snapshot.devices.iter().find(|device| is(device, id));
        let of = self.placed(rules);
        let mut astray = BTreeMap::new();
        for rule in rules {
            let Some(named) = &rule.named else { continue };
            let own = of.iter().filter(|(set, _)| *set == rule.set);
            let lost = own.filter(|(_, id)| !here(id).is_some_and(|device| named.names(&device.raw))).count();
            astray.insert(rule.set.clone(), u32::try_from(lost).unwrap_or(u32::MAX));
        }
        astray
    }
}

/// Whether a rule's layout fits on a device.
fn fits(rule: &Rule, device: &Device) -> Result<(), LayoutError> {
    let geometry = Geometry { size: device.raw.size, sector: device.raw.logical_sector, offloads_zeroes: false };
    match rule.layout.carves() {
        true => data_area(&geometry).map(drop),
        false => places(&geometry, &rule.layout).map(drop),
    }
}
