//! Copies and older states of pool disks: what is remembered of them, and how a person makes one the disk.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::admin::AdminError;
use super::reconciler::Reconciler;
use super::verb::Run;
use crate::device::{
    Believed, Device, DiskId, HardwareId, Snapshot, Verdict, VolumeId,
    duplicate::{Identities, Identity, seen_together, stable_hardware_id},
    id,
    label::Hardware,
    record::{self, Record},
};
use crate::host::{Access, HostError, chain};
use crate::pool::{Earlier, PoolError, Standing::Missing, earlier};

impl Reconciler {
    /// Which hardware our disks are: what is in use now, else what the journal says. What is here has no other's path.
    pub(super) fn identities(&self) -> Identities {
        let journal = self.pool.journal();
        let mut identities = journal.identities();
        for (id, known) in journal.known(|_| true) {
            // Of those with copies it says itself which one is the disk, or that nobody knows.
            identities.entry(id).or_insert(Identity { original: known.hardware, copies: BTreeSet::new() });
        }
        for member in self.pool.labelled_disks() {
            let shown = member.shown();
            let here = Some(id::hardware_id(&shown.raw, None)).filter(|_| shown.standing != Missing);
            let identity = identities.entry(member.id.clone()).or_default();
            identity.original = match identity.original.take() {
                Some(known) if !shown.is_usable() => Some(known),
                known => here.or(known),
            };
        }
        identities
    }

    /// The hardware that each disk of the pool, here or away, was last on, by disk id. Where nothing tells it from
    /// others that is its path: enough to doubt what else calls itself by its name, and never to believe it.
    pub(super) fn last_on(&self) -> BTreeMap<DiskId, HardwareId> {
        let identities = self.identities();
        let known = self.pool.journal().known(|_| true).into_iter();
        let paths = known.map(|(id, known)| (id, known.hardware.unwrap_or_else(|| HardwareId::of_path(&known.path))));
        let members = self.pool.labelled_disks().into_iter().map(|member| member.id.clone());
        let mut last: BTreeMap<DiskId, HardwareId> = paths.collect();
        for id in members.chain(last.keys().cloned()).collect::<Vec<_>>() {
            if let Some(original) = identities.get(&id).and_then(|identity| identity.original.clone()) {
                last.insert(id, original);
            }
        }
        last
    }

    /// What can be told again later.
    fn in_use(&self) -> Vec<(DiskId, HardwareId)> {
        let used = |member: &crate::pool::LabelledDisk| {
            let shown = member.shown();
            let used = stable_hardware_id(&shown.raw).filter(|_| shown.is_usable())?;
            Some((member.id.clone(), used))
        };
        self.pool.labelled_disks().iter().filter_map(|member| used(member)).collect()
    }

    /// Writes down what is a copy. A disk that was moved may still be listed where it was, so that takes two looks
    /// which see the same, the second with nothing remembered. Gives whether that one is due.
    pub(super) fn remember_copies(&mut self, snapshot: &Snapshot) -> bool {
        let mut found = seen_together(&snapshot.devices);
        let known = self.pool.journal().identities();
        let is_known = |id: &DiskId, copy: &HardwareId| known.get(id).is_some_and(|known| known.copies.contains(copy));
        found.retain(|id, found| found.copies.iter().any(|copy| !is_known(id, copy)));
        let before = std::mem::replace(&mut self.together, found.clone());
        let (sure, unsure): (Identities, Identities) =
            found.into_iter().partition(|(id, found)| before.get(id) == Some(found));
        for device in snapshot.devices.iter().filter(|device| unsure.contains_key(&device.id)) {
            self.memory.discovery.changed(&device.raw.name);
        }
        let used = self.in_use();
        let written = self.pool.journal().identify(|identities| {
            for (id, found) in sure {
                tracing::warn!(disk = id.as_str(), copies = ?found.copies, "a disk of the pool has copies; none of them replaces it automatically");
                let identity = identities.entry(id).or_default();
                identity.copies.extend(found.copies);
                identity.original = found.original.or(identity.original.take());
            }
            // A disk with copies may come back on other hardware.
            for (id, used) in used {
                identities.entry(id).and_modify(|identity| identity.original = Some(used));
            }
        });
        if let Err(error) = written {
            tracing::warn!(error = %chain(&error), "which disks are copies would not be known after a restart");
        }
        !unsure.is_empty()
    }

    /// Takes a disk of the pool as it is, which is an earlier state of what was here last; `None`: it is none.
    pub fn adopt_older(&mut self, device: &Device, run: Run) -> Result<Option<Vec<String>>, AdminError> {
        let id = device.id.clone();
        let journal = Arc::clone(self.pool.journal());
        let is_used = self.pool.labelled_disk(&id).is_some_and(|member| member.shown().is_usable());
        let (Verdict::Ours, Some(label), false) = (&device.verdict, &device.label, is_used) else { return Ok(None) };
        let (host, raw, last_seen) = (Arc::clone(&self.host), device.raw.clone(), journal.last_seen(&id));
        let found = self.errand(&id, move || -> Result<Option<Earlier>, HostError> {
            let disk = host.open(&raw, Access::Look)?;
            Ok(match record::read_record(&*disk) {
                Record::Ours(own) => earlier(&own, &last_seen),
                _ => None,
            })
        });
        let found = found.map_err(|hangs| PoolError::Hangs { on: (&id).into(), hangs })?.map_err(AdminError::Open)?;
        let Some(found) = found else { return Ok(None) };
        let mut lines = vec![format!("{} {} as it is: {found}", run.tense("take", "took"), device.raw.path.display())];
        let is_gone = |volume: &VolumeId| match &found {
            Earlier::Label { .. } => !label.volumes.contains_key(volume),
            Earlier::Table { gone } => gone.contains(volume),
        };
        for (volume, record) in label.volumes.iter().filter(|(volume, _)| !is_gone(volume)) {
            lines.push(format!("volume {volume} ({}) has the data of this disk", record.name));
        }
        lines.extend(self.given_up(&id, is_gone));
        if run == Run::Real {
            self.relabel(device, |_| ())?;
        }
        Ok(Some(lines))
    }

    /// Of what was last seen on a disk that is taken as it is, in words: what is not on it.
    pub(in crate::agent) fn given_up(&self, disk: &DiskId, is_gone: impl Fn(&VolumeId) -> bool) -> Vec<String> {
        let known = self.pool.journal().known(|id| id == disk).into_iter().filter_map(|(_, known)| known.volumes);
        let gone = known.flatten().filter(is_gone);
        gone.map(|volume| format!("volume {volume} is not on it, and is given up")).collect()
    }

    /// Makes this device the disk, where several devices have the label of one. The others are its copies from then on.
    pub fn adopt_copy(&mut self, snapshot: &Snapshot, device: &Device, run: Run) -> Result<Vec<String>, AdminError> {
        let path = device.raw.path.display().to_string();
        let refused = |why: String| AdminError::NotAdoptable { disk: path.clone(), why };
        let Some(own) = stable_hardware_id(&device.raw) else {
            return Err(refused(
                "its hardware cannot be told apart from that of the others: unplug those instead".to_owned(),
            ));
        };
        let is_other = |other: &&Device| other.id == device.id && other.raw.name != device.raw.name;
        let others: Vec<&Device> = snapshot.devices.iter().filter(is_other).collect();
        for other in &others {
            let there = other.raw.path.display();
            if other.believed == Believed::Yes {
                return Err(refused(format!("the original is present, as {there}: unplug that first to use this one")));
            }
            if stable_hardware_id(&other.raw).as_ref() == Some(&own) {
                return Err(refused(format!("{there} seems to be the same hardware: unplug that first")));
            }
        }
        let Some(label) = &device.label else { return Err(refused("it has no label".to_owned())) };
        let was = self.identities().remove(&device.id).unwrap_or_default().original;
        let was = was.or(Some(label.hardware.id.clone())).filter(|was| *was != own);
        let mut copies: BTreeSet<HardwareId> =
            others.iter().filter_map(|other| stable_hardware_id(&other.raw)).collect();
        copies.extend(was.filter(|was| !was.is_path()));

        let mut lines = vec![format!("{} {path} ({own}) the pool disk {}", run.tense("make", "made"), device.id)];
        lines.extend(copies.iter().map(|copy| format!("{copy} is its copy from then on, and is not used")));
        for (id, record) in &label.volumes {
            lines.push(format!("volume {id} ({}) has the data of this disk", record.name));
        }
        lines.extend(self.given_up(&device.id, |volume| !label.volumes.contains_key(volume)));
        if run == Run::Real {
            // The label first: as long as the journal calls it a copy, all this can be done again.
            let hardware = Hardware::of(own.clone(), &device.raw);
            self.relabel(device, |label| label.hardware = hardware)?;
            let written = self.pool.journal().identify(|identities| {
                let identity = identities.entry(device.id.clone()).or_default();
                identity.copies.extend(copies);
                identity.copies.remove(&own);
                identity.original = Some(own);
            });
            written.map_err(PoolError::from)?;
        }
        Ok(lines)
    }
}
