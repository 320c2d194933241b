//! What a bare device shows against what the journal says of it: before it is cleaned, given out, or erased with the
//! volume that it had. Where the two differ somebody else has put something there, and a person decides.

use std::sync::Arc;

use super::{BareDevice, BareState, NotReady, whole};
use crate::device::{
    DiskId, VolumeId,
    label::{Hardware, VolumeUsage},
};
use crate::host::{Access, Disk, Extent, HostError, Openers, Probe, RawDisk, Signature};
use crate::pool::{
    erase::{reads_all_zeros, samples_are_zero},
    error::BareError,
    journal::{BareClaim, LostClaim},
};

/// How it begins what is said of a claim that the device contradicts.
const DISPUTED: &str = "claim disputed";
/// Where filesystems, volume groups and tables begin.
const HEAD: u64 = 1 << 20;

impl BareDevice {
    /// What is on a device that was zeros when it was claimed or erased: it has another user, or the journal is wrong.
    pub(super) fn found_on(
        &self,
        raw: &RawDisk,
        disk: &dyn Disk,
        claim: &BareClaim,
    ) -> Result<Option<String>, BareError> {
        let away = |why: String| BareError::Away { disk: self.id.clone(), why };
        let contents = match self.host.probe(raw) {
            Probe::Read(contents) => contents,
            Probe::Failed(why) => return Err(away(format!("could not be read: {why}"))),
            Probe::NotRead => return Err(away("was not read".to_owned())),
        };
        let signature = contents.signatures.into_iter().next().map(|signature| signature.kind);
        if let Some(found) = signature.or(contents.table) {
            return Ok(Some(found));
        }
        // What somebody wrote most likely begins or ends there. Behind the claim's end the device may have gained
        // anything.
        let end = claim.size.min(disk.geometry().size);
        let ends = [Extent { start: 0, end: end.min(HEAD) }, Extent { start: end.saturating_sub(HEAD), end }];
        let mut is_blank = samples_are_zero(disk, whole(disk.geometry().size))?;
        for extent in ends {
            is_blank = is_blank && reads_all_zeros(disk, extent)?;
        }
        Ok((!is_blank).then(|| "data".to_owned()))
    }

    /// Nobody has the device, and nobody has put anything on it: asked while nobody else can. Else it is disputed from
    /// here on.
    pub(super) fn prove_blank(&self, state: &mut BareState, claim: &BareClaim) -> Result<(), BareError> {
        let raw = self.here(state)?;
        let held = self.host.open(raw, Access::Alone).map_err(BareError::opening)?;
        let Some(found) = self.found_on(raw, &*held, claim)? else { return Ok(()) };
        let why = disputed(claim, &found);
        tracing::warn!(disk = %self.id, why, "a bare device is not touched");
        state.becomes_not_ready(NotReady::Disputed(why));
        let why = state.standing.why_away().unwrap_or_default();
        Err(BareError::Away { disk: self.id.clone(), why })
    }

    /// What somebody has put on a device since its volume was deleted, as far as that can be told from what the volume
    /// had itself: it is not erased with it then.
    pub(super) fn put_there(
        &self,
        raw: &RawDisk,
        disk: &dyn Disk,
        claim: &BareClaim,
    ) -> Result<Option<String>, BareError> {
        let Some(erasing) = &claim.erasing else { return Ok(None) };
        let found = match (erasing.cursor, claim.erasing_usage) {
            // A block volume had whatever it had.
            (0, None | Some(VolumeUsage::Block)) => None,
            (0, Some(VolumeUsage::Mount(_))) => self.not_of(erasing.was, raw),
            (cursor, _) => {
                let head = Extent { start: 0, end: cursor.min(HEAD) };
                let is_zero = reads_all_zeros(disk, head)? && samples_are_zero(disk, whole(cursor))?;
                (!is_zero).then(|| format!("data in its first {} bytes, which were erased already", cursor))
            }
        };
        Ok(found.map(|found| {
            format!(
                "{DISPUTED}: volume {} was deleted and should be erased here, but the device holds {found}; `localpool \
                 disk adopt` erases it anyway, and `localpool disk release` keeps it unchanged",
                erasing.was
            )
        }))
    }

    /// What is on the device and not the filesystem of that volume.
    fn not_of(&self, volume: VolumeId, raw: &RawDisk) -> Option<String> {
        let contents = match self.host.probe(raw) {
            Probe::Read(contents) => contents,
            Probe::Failed(why) => return Some(format!("content that could not be read: {why}")),
            Probe::NotRead => return Some("content that was not read".to_owned()),
        };
        let own = volume.to_string();
        let is_own =
            |signature: &Signature| signature.uuid.as_ref().is_some_and(|uuid| uuid.eq_ignore_ascii_case(&own));
        // What else looks like something beside it, files may look like.
        if contents.signatures.iter().any(is_own) {
            return None;
        }
        contents.signatures.into_iter().next().map(|signature| signature.kind).or(contents.table)
    }

    /// Before a chunk is erased: nobody has the device, and nobody has put anything there. Nobody gets it before the
    /// handle goes. `None`: it stays as it is, and why is said.
    pub(super) fn may_erase(
        &self,
        state: &mut BareState,
        claim: &BareClaim,
    ) -> Result<Option<Arc<dyn Disk>>, BareError> {
        let alone = self.host.open(self.here(state)?, Access::Alone);
        // Not before each chunk: that asks all processes. After the last one it is given on.
        let is_at_either_end = |disk: &dyn Disk| {
            let whole = disk.geometry().size.max(claim.size);
            claim.erasing.as_ref().is_none_or(|erasing| erasing.cursor == 0 || erasing.cursor >= whole)
        };
        let unopened = |disk: Arc<dyn Disk>| match is_at_either_end(&*disk) {
            true => disk.prove_unopened(Openers::All).map(|()| disk),
            false => Ok(disk),
        };
        let alone = alone.and_then(unopened);
        let disk = match alone {
            Ok(disk) => disk,
            Err(busy @ HostError::Busy { .. }) => {
                let why = format!("{busy}: not erased before that ends; tried again");
                if state.busy.as_ref() != Some(&why) {
                    tracing::warn!(disk = %self.id, why, "the bare device of a deleted volume is not touched");
                    state.busy = Some(why);
                }
                return Ok(None);
            }
            Err(error) => return Err(BareError::Open(error)),
        };
        if state.busy.is_some() {
            state.busy = None;
        }
        let found = self.put_there(self.here(state)?, &*disk, claim)?;
        if let Some(why) = found {
            tracing::warn!(disk = %self.id, why, "a bare device is not touched");
            state.becomes_not_ready(NotReady::Disputed(why));
            return Ok(None);
        }
        Ok(Some(disk))
    }
}

pub(super) fn disputed(claim: &BareClaim, found: &str) -> String {
    match &claim.volume {
        None => format!(
            "{DISPUTED}: the device should be free, but holds {found}; `localpool disk adopt` erases it and offers it \
             again"
        ),
        Some(volume) => format!(
            "{DISPUTED}: volume {} has no filesystem yet, according to the journal, but the device holds {found}; was the \
             journal restored from a backup? `localpool disk adopt` keeps a filesystem of this volume, and gives up anything \
             else",
            volume.id
        ),
    }
}

/// Two records of the device say two things, and either may be the older one.
pub(super) fn contradicted(id: &DiskId, claim: &BareClaim, reported: &LostClaim) -> String {
    let settle = |volume: &VolumeId| format!("`localpool volume settle {volume} --keep {id}`");
    let is = match (&claim.volume, &claim.erasing) {
        (Some(volume), _) => format!("it holds volume {}", volume.id),
        (None, Some(erasing)) => format!("volume {} is being erased there", erasing.was),
        (None, None) => "it is free".to_owned(),
    };
    let volumes: Vec<String> =
        reported.volumes().map(|one| format!("volume {} ({})", one.id, one.record.name)).collect();
    let way_out = match (&reported.volume, &claim.volume) {
        (None, _) => "the version that wrote it can say more".to_owned(),
        (Some(_), None) if reported.others.is_empty() => format!(
            "`localpool disk adopt {id}` takes it with that volume, and `localpool disk release {id}` gives the volume up"
        ),
        (Some(_), of_claim) => {
            let all = reported.volumes().map(|one| &one.id).chain(of_claim.iter().map(|one| &one.id));
            let verbs: Vec<String> = all.map(settle).collect();
            format!("to keep the right one, use {}", verbs.join(" or "))
        }
    };
    let named = match volumes.is_empty() {
        true => "a volume that this version cannot read".to_owned(),
        false => volumes.join(" and "),
    };
    format!(
        "{DISPUTED}: according to the PoolVolumes, {named} is on the device, but according to the journal, {is}; one \
         of the two was restored from a backup: the node's root disk, or etcd. {way_out}"
    )
}

pub(super) fn too_small(claim: &BareClaim, size: u64) -> String {
    format!("{DISPUTED}: the device has {size} bytes, but was claimed with {}", claim.size)
}

/// What distinguishes a device from the one that was claimed, though both have one identity: the disk that it is on, as
/// a copy of a disk has the same partitions.
pub(super) fn on_another_disk(claim: &BareClaim, whole: Option<&Hardware>) -> Option<String> {
    let was = claim.hardware.as_ref()?;
    let is = match whole {
        Some(whole) if !was.differs_from(whole) => return None,
        Some(whole) => format!("it is on the disk {whole}"),
        None => "it is not known which disk it is on".to_owned(),
    };
    let then = match &claim.volume {
        Some(volume) => format!("takes it as it is, with volume {}", volume.id),
        None => "erases it and offers it again".to_owned(),
    };
    Some(format!(
        "{DISPUTED}: the device was claimed on the disk {was}, but {is}; it may be a copy: bring that disk back, or, \
         if that is impossible, `localpool disk adopt` {then}"
    ))
}
