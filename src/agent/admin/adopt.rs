//! `localpool disk adopt`: a person takes a disk over, whatever kept the agent from it.
//!
//! Takes in what the disk is called; gives out what was done or would be. `candidate` decides which way the disk comes
//! in; here is read what that way needs to know of the disk; `adoption` says what is done, and does it.

mod adoption;
mod candidate;

use std::collections::BTreeSet;
use std::sync::Arc;

use self::adoption::{BareContent, DiskAdoption};
use self::candidate::{AdoptionCandidate, BareMembership, Membership, WayIn};
use super::error::AdminError;
use super::find::FoundDevice;
use crate::agent::{known_disks::identities, reconciler::Reconciler, verb::Run};
use crate::device::{
    Believed, Device, DiskId, HardwareId, Snapshot, Verdict, VolumeId,
    duplicate::stable_hardware_id,
    record::{self, Record},
};
use crate::host::{Access, HostError};
use crate::pool::{
    BareClaim, BareVolume, Cordon, Earlier, LabelledDisk, LostClaim, LostVolume, Member, PoolError, earlier,
};

impl Reconciler {
    pub(super) fn adopt(&mut self, text: &str, run: Run) -> Result<Vec<String>, AdminError> {
        if DiskId::named(text).is_filesystem() {
            return self.adopt_mounted(&DiskId::named(text), run);
        }
        let found = self.find(text)?;
        let candidate = self.candidate(text, &found);
        let way = candidate.way_in()?;
        let adoption = self.adoption(&candidate, found, way)?;
        self.run(&adoption, run)
    }

    fn candidate(&self, text: &str, found: &FoundDevice) -> AdoptionCandidate {
        let FoundDevice { snapshot, device, member } = found;
        let journal = self.pool().journal();
        let bare_id = snapshot.bare_id(device);
        let member = match member {
            Some(Member::Bare(member)) => Membership::Bare(Box::new(BareMembership {
                id: member.id.clone(),
                standing: member.shown().standing.clone(),
                reported: journal.contradiction(&member.id),
                has_volume: journal.bare_claim(&member.id).is_some_and(|claim| claim.volume.is_some()),
            })),
            Some(member) if member.cordon() == Some(Cordon::GivenUp) => Membership::GivenUp,
            Some(_) => Membership::Labelled,
            None => Membership::None,
        };
        AdoptionCandidate {
            text: text.to_owned(),
            member,
            lost: journal.lost().remove(&bare_id),
            was_given_up: journal.given_up().contains(&bare_id),
            was_released: journal.released().contains(&device.id),
            is_used: self.pool().labelled_disk(&device.id).is_some_and(|member| member.shown().is_usable()),
            device: device.clone(),
            bare_id,
        }
    }

    /// Reads what the way needs to know.
    fn adoption(
        &mut self,
        candidate: &AdoptionCandidate,
        found: FoundDevice,
        way: WayIn,
    ) -> Result<DiskAdoption, AdminError> {
        let FoundDevice { snapshot, device, member } = found;
        match way {
            WayIn::Copy => self.adoption_of_copy(&snapshot, device),
            WayIn::Reported { id, lost } => self.adoption_of_lost(&device, &id, lost),
            WayIn::Bare { why } => {
                let Some(Member::Bare(member)) = member else { return Err(candidate.in_pool_already()) };
                let claim = self.pool().journal().bare_claim(&member.id);
                let should_be_blank = claim.is_some_and(|claim| claim.should_be_blank());
                let volume = member.view().map(|view| BareContent { id: view.id, should_be_blank });
                Ok(DiskAdoption::Bare { device, member, why, volume })
            }
            WayIn::GivenUp => match member.as_ref().and_then(Member::labelled) {
                Some(member) => {
                    let notes = notes_on_given_up(member);
                    Ok(DiskAdoption::GivenUp { device, member: Arc::clone(member), notes })
                }
                None => Err(candidate.in_pool_already()),
            },
            WayIn::Content => Ok(DiskAdoption::Content { device, id: candidate.bare_id.clone() }),
            WayIn::Earlier => match self.earlier_state(&device)? {
                Some(found) => Ok(self.adoption_of_earlier(device, &found)),
                None => Err(candidate.in_pool_already()),
            },
            WayIn::Foreign => self.adoption_of_foreign(device),
            WayIn::Released => Ok(DiskAdoption::Released { device }),
        }
    }

    /// Several devices have the label of one disk, and this one becomes the disk.
    fn adoption_of_copy(&self, snapshot: &Snapshot, device: Device) -> Result<DiskAdoption, AdminError> {
        let path = device.raw.path.display().to_string();
        let refused = |why: String| AdminError::NotAdoptable { disk: path.clone(), why };
        let Some(hardware) = stable_hardware_id(&device.raw) else {
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
            if stable_hardware_id(&other.raw).as_ref() == Some(&hardware) {
                return Err(refused(format!("{there} seems to be the same hardware: unplug that first")));
            }
        }
        let Some(label) = &device.label else { return Err(refused("it has no label".to_owned())) };
        let was = identities(&self.pool).remove(&device.id).unwrap_or_default().original;
        let was = was.or(Some(label.hardware.id.clone())).filter(|was| *was != hardware);
        let mut copies: BTreeSet<HardwareId> =
            others.iter().filter_map(|other| stable_hardware_id(&other.raw)).collect();
        copies.extend(was.filter(|was| !was.is_path()));
        let gone = self.given_up(&device.id, |volume| !label.volumes.contains_key(volume));
        Ok(DiskAdoption::Copy { device, hardware, copies, gone })
    }

    /// Whether a disk with our label is an earlier state of what was here last.
    fn earlier_state(&mut self, device: &Device) -> Result<Option<Earlier>, AdminError> {
        let id = device.id.clone();
        let (host, raw, last_seen) = (Arc::clone(&self.host), device.raw.clone(), self.pool().journal().last_seen(&id));
        let found = self.errands.errand(&id, move || -> Result<Option<Earlier>, HostError> {
            let disk = host.open(&raw, Access::ReadOnly)?;
            Ok(match record::read_record(&*disk) {
                Record::Ours(own) => earlier(&own, &last_seen),
                Record::Nothing | Record::OtherTable(_) | Record::Unreadable(_) => None,
                Record::UnfinishedClaim(_) | Record::TornClaim { .. } | Record::UnfinishedRelease { .. } => None,
                Record::Broken(_) | Record::Newer(_) => None,
            })
        });
        found.map_err(|hangs| PoolError::Hangs { on: (&id).into(), hangs })?.map_err(AdminError::Open)
    }

    fn adoption_of_earlier(&self, device: Device, found: &Earlier) -> DiskAdoption {
        let label = device.label.as_deref();
        let is_gone = |volume: &VolumeId| match found {
            Earlier::Label { .. } => label.is_none_or(|label| !label.volumes.contains_key(volume)),
            Earlier::Table { gone } => gone.contains(volume),
        };
        let volumes = label.iter().flat_map(|label| &label.volumes).filter(|(volume, _)| !is_gone(volume));
        let kept = volumes.map(|(volume, record)| (*volume, record.name.clone())).collect();
        let gone = self.given_up(&device.id, is_gone);
        DiskAdoption::Earlier { why: found.to_string(), kept, gone, device }
    }

    fn adoption_of_foreign(&self, device: Device) -> Result<DiskAdoption, AdminError> {
        let disk = device.raw.path.display().to_string();
        let (Verdict::Foreign { cluster, node }, Some(label)) = (device.verdict.clone(), device.label.clone()) else {
            return Err(AdminError::NotAdoptable { disk, why: "it has no label".to_owned() });
        };
        if label.layout.is_directory() {
            let why = format!(
                "its volumes are folders of a filesystem that says it is of node {node}, cluster {cluster}; only that node uses it"
            );
            return Err(AdminError::NotAdoptable { disk, why });
        }
        let gone = self.given_up(&device.id, |volume| !label.volumes.contains_key(volume));
        Ok(DiskAdoption::Foreign { device, from: (cluster, node), to: self.pool().owner().clone(), gone })
    }

    /// A bare device that has a claim in PoolVolumes, or in a journal that was lost.
    pub(super) fn adoption_of_lost(
        &mut self,
        device: &Device,
        id: &DiskId,
        lost: LostClaim,
    ) -> Result<DiskAdoption, AdminError> {
        let (device, id) = (device.clone(), id.clone());
        let Some(LostVolume { id: volume, set, record }) = lost.volume else {
            return Ok(DiskAdoption::Unknown { device, id });
        };
        let (host, raw) = (Arc::clone(&self.host), device.raw.clone());
        let answer = self.errands.errand(&id, move || {
            let found = host.filesystems().identify(&raw.path)?.and_then(|found| found.uuid);
            Ok((found, host.open(&raw, Access::ReadOnly)?.geometry().size))
        });
        let hangs = |hangs| PoolError::Hangs { on: (&id).into(), hangs };
        let (found, size) = answer.map_err(hangs)?.map_err(AdminError::Open)?;
        let was = self.pool().journal().bare_claim(&id);
        let erased = was.as_ref().and_then(|claim| claim.erasing.as_ref()).map(|erasing| erasing.cursor);
        let volume = BareVolume { id: volume, record, formatting: false, formatted: found == Some(volume.uuid()) };
        // What it is on is written down when it is opened.
        let claim = BareClaim { used: true, volume: Some(volume.clone()), ..BareClaim::new(set, size) };
        Ok(DiskAdoption::Claim { device, id, claim: Box::new(claim), volume: Box::new(volume), erased })
    }

    /// Volumes that were last seen on a disk which is taken as it is, and that are not on it.
    fn given_up(&self, disk: &DiskId, is_gone: impl Fn(&VolumeId) -> bool) -> Vec<VolumeId> {
        let known = self.pool().journal().known(|id| id == disk).into_iter().filter_map(|(_, known)| known.volumes);
        known.flatten().filter(is_gone).collect()
    }
}

/// The consequences for the volumes of a labelled disk that was given up, and is used again.
fn notes_on_given_up(member: &LabelledDisk) -> Vec<String> {
    let shown = member.shown();
    let notes = shown.content.volumes().map(|volume| {
        let (id, name) = (volume.id(), volume.record.map_or("no name", |record| &record.name));
        match volume.record.is_some_and(|record| record.found) {
            true => {
                format!("volume {id} ({name}) is kept, and not used; `localpool volume adopt {id}` makes it usable")
            }
            false => format!("volume {id} ({name}) can be used again, with its data"),
        }
    });
    notes.collect()
}
