//! Destroying what is on a disk, where a LocalVolume names the disk and orders it: the last scan, and the writes.
//!
//! The election says which (`claim/election.rs`). The disk must have shown the same content for the minimum age since
//! the order was seen. Afterwards it is a blank disk like any other.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use self::error::WipeError;
use super::again::Again;
use super::decide::ContentAction;
use super::known_disks::inform;
use super::pass_state::PassState;
use super::reconciler::Reconciler;
use crate::claim::{ElectedWipe, NodeMatch, Rule};
use crate::device::{Device, Memo, Snapshot, Verdict};
use crate::host::{
    Access, BlockDevice, Extent, Host, KernelName, Openers, Probe, ProbeResult, RawDisk, chain,
    table::{Mbr, TableError, read_copies},
    timeout::Late,
};
use crate::pool::zero;

mod error;

/// Zeroed at both ends: every table, and every signature that libblkid looks for near the end (md, ZFS, LVM).
const ENDS: u64 = 1 << 20;
/// Zeroed around each signature that was found anywhere else.
const AROUND: u64 = 8192;

impl Reconciler {
    /// Since when the content that is ordered to go has been where it is.
    pub(super) fn watch_content(&mut self, snapshot: &Snapshot, rules: &[Rule]) {
        let doubts = self.doubts(snapshot);
        let is_due = |device: &&Device| {
            rules.iter().any(|rule| !rule.dry_run && orders_wipe_of(rule, device))
                // What a bare device of the pool holds is a tenant's.
                && self.pool.bare_claim_of(snapshot, device).is_none()
                && doubts.may_wipe(device, snapshot).is_ok()
        };
        let due: Vec<Device> = snapshot.devices.iter().filter(is_due).map(as_if_blank).collect();
        self.memory.wipes.observe(snapshot.at, &due);
    }

    pub(super) fn wipe(&mut self, actions: Vec<ContentAction>, snapshot: &Snapshot, pass: &mut PassState) {
        for action in actions {
            match action {
                ContentAction::Wipe { at, wipe } => self.wipe_at(at, &wipe, snapshot, pass),
                ContentAction::Spare { wipe, why } => {
                    tracing::warn!(disk = wipe.name.as_str(), problem = %why, "a disk was not wiped");
                    pass.again.add(Again::Wipe, why.may_pass());
                    pass.problems.insert(wipe.name.clone(), not_wiped(&wipe, &why.to_string()));
                }
            }
        }
    }

    fn wipe_at(&mut self, at: usize, wipe: &ElectedWipe, snapshot: &Snapshot, pass: &mut PassState) {
        let was = &snapshot.devices[at];
        match self.wipe_one(was) {
            Ok(content) => {
                let message = format!("it was wiped, as LocalVolume {} orders; {content}", by(wipe));
                tracing::warn!(disk = %was.id, path = %was.raw.path.display(), "{message}");
                self.memory.wiped.keep(&was.raw, snapshot.at, message.clone());
                self.memory.was_wiped(was.raw.path.clone(), message.clone());
                pass.problems.insert(wipe.name.clone(), message);
                pass.wiped += 1;
            }
            Err(error) => {
                let problem = chain(&error);
                tracing::warn!(disk = %was.id, path = %was.raw.path.display(), problem, "a disk was not wiped");
                pass.again.add(Again::Wipe, error.retryable());
                pass.problems.insert(wipe.name.clone(), not_wiped(wipe, &problem));
            }
        }
    }

    /// When the next disk may be wiped.
    pub(super) fn wipe_in(&self, snapshot: &Snapshot) -> Option<Duration> {
        snapshot.devices.iter().filter_map(|device| self.memory.wipes.wait(&as_if_blank(device))).min()
    }

    /// The content that was destroyed on a disk is reported until the disk is not blank any more.
    pub(super) fn report_wiped(&mut self, snapshot: &Snapshot, problems: &mut BTreeMap<KernelName, String>) {
        let before = std::mem::take(&mut self.memory.wiped);
        for device in snapshot.devices.iter().filter(|device| device.verdict == Verdict::Unclaimed) {
            let Some(Memo { at, what: message, .. }) = before.get(&device.raw) else { continue };
            problems.insert(device.raw.name.clone(), message.clone());
            self.memory.wiped.keep(&device.raw, *at, message.clone());
        }
    }

    /// The last scan, the exclusive open, the writes, and a scan of what is left. Gives what was destroyed.
    fn wipe_one(&mut self, was: &Device) -> Result<String, WipeError> {
        inform(&mut self.memory.discovery, &self.pool);
        let now = self.memory.discovery.reread_unchanged(&self.host, was)?;
        let Probe::Read(contents) = &now.probe else { return Err(WipeError::NotKnown) };
        let (host, raw, found) = (Arc::clone(&self.host), now.raw.clone(), contents.clone());
        let wiped = self.errands.errand_now(&now.id, move |late| destroy(&*host, &raw, &found, late));
        wiped??;
        self.memory.wrote(&now.raw.name);
        let blank = self.memory.discovery.reread(&self.host, &now);
        blank.map_err(WipeError::StillThere)?;
        Ok(description(contents))
    }
}

/// The exclusive open and the writes.
fn destroy(host: &dyn Host, raw: &RawDisk, contents: &ProbeResult, late: &Late) -> Result<(), WipeError> {
    let disk = host.open(raw, Access::Claim)?;
    disk.prove_unopened(Openers::Writers)?;
    // Once more, now that nobody else can have it alone: the order is old where the open took long.
    match host.probe(raw) {
        Probe::Read(now) if (&now.table, &now.signatures) == (&contents.table, &contents.signatures) => {}
        Probe::Failed(why) => return Err(WipeError::Probe(why)),
        Probe::Read(_) | Probe::NotRead => return Err(WipeError::Changed),
    }
    let mapped = disk.mapped()?;
    if !mapped.is_empty() {
        return Err(WipeError::Mapped);
    }
    let _quiet = disk.exclusive()?;
    prove_without_partitions(&*disk, contents)?;
    late.check()?;
    for extent in extents(&*disk, contents) {
        zero(&*disk, extent)?;
    }
    Ok(())
}

/// Whether a set of this node has the content of a device destroyed, if it may; a dry run would.
pub(super) fn orders_wipe_of(rule: &Rule, device: &Device) -> bool {
    let named = rule.named.as_ref().filter(|named| named.wipe && rule.node == NodeMatch::Selected);
    named.is_some_and(|named| named.names(&device.raw))
}

pub(super) fn as_if_blank(device: &Device) -> Device {
    Device { verdict: Verdict::Unclaimed, ..device.clone() }
}

pub(super) fn not_wiped(wipe: &ElectedWipe, why: &str) -> String {
    format!("LocalVolume {} orders to wipe it: {why}", by(wipe))
}

fn by(wipe: &ElectedWipe) -> String {
    wipe.set.to_string()
}

fn description(contents: &ProbeResult) -> String {
    let signature = |found: &crate::host::Signature| {
        let label = found.label.as_ref().map_or_else(String::new, |label| format!(" with the label {label:?}"));
        let uuid = found.uuid.as_ref().map_or_else(String::new, |uuid| format!(", UUID {uuid}"));
        format!("{}{label}{uuid}", found.kind)
    };
    let mut all: Vec<String> = contents.signatures.iter().map(signature).collect();
    all.extend(contents.table.iter().map(|kind| format!("an empty partition table ({kind})")));
    if all.is_empty() {
        all.push("a partition table".to_owned());
    }
    format!("it held {}", all.join(" and "))
}

/// A table may be there, but no partition in it, whether the kernel has mapped it or not. What cannot be read for
/// certain has partitions.
fn prove_without_partitions(disk: &dyn BlockDevice, contents: &ProbeResult) -> Result<(), WipeError> {
    let copies = read_copies(disk);
    let mut empty = false;
    for copy in [copies.primary, copies.backup] {
        match copy {
            Ok(table) if table.entries().is_empty() => empty = true,
            Ok(_) => return Err(WipeError::Partitions),
            Err(TableError::NoSignature { .. }) => {}
            Err(damage) => return Err(WipeError::Table(damage)),
        }
    }
    match copies.other_sector {
        Ok(None) => {}
        Ok(Some(sector)) => return Err(WipeError::OtherSector(sector)),
        Err(error) => return Err(error.into()),
    }
    match copies.mbr {
        Ok(Mbr::None) => Ok(()),
        Ok(Mbr::Protective) if empty => Ok(()),
        Ok(Mbr::Protective) => Err(WipeError::TableLost),
        // The boot sector of a filesystem that libblkid knows, with code where a table would be.
        Ok(Mbr::Dos { .. }) if contents.table.is_none() && !contents.signatures.is_empty() => Ok(()),
        Ok(Mbr::Dos { records: 0 }) => Ok(()),
        Ok(Mbr::Dos { .. } | Mbr::Hybrid) => Err(WipeError::Partitions),
        Err(error) => Err(error.into()),
    }
}

/// Both ends, and what was found between them; in whole sectors.
fn extents(disk: &dyn BlockDevice, contents: &ProbeResult) -> Vec<Extent> {
    let geometry = disk.geometry();
    let end = geometry.size - geometry.size % u64::from(geometry.sector);
    let ends = [Extent { start: 0, end: end.min(ENDS) }, Extent { start: end.saturating_sub(ENDS), end }];
    let around = contents.signatures.iter().map(|found| {
        let start = found.offset.min(end) / 4096 * 4096;
        Extent { start, end: end.min(start.saturating_add(AROUND)) }
    });
    ends.into_iter().chain(around).filter(|extent| !extent.is_empty()).collect()
}

#[cfg(test)]
mod tests;
