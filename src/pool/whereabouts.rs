//! Where a volume is, and where it may be: not knowing is not absence, and an id on two disks is no volume at all.
//!
//! Each volume is in the journal as being on its disk before the disk has it, and leaves the journal only when the disk
//! was read without it. So the journal knows of each disk that is away at least what is on it. Only a disk that it says
//! nothing of (an earlier version wrote it, or the journal was lost and the disk cannot be opened) may hold anything.

use std::collections::{BTreeMap, BTreeSet};

use super::cordon::WAS_GIVEN_UP;
use super::device_pool::Pool;
use super::error::PoolError;
use super::member::Member;
use super::view::{Doubt, Knowledge, Standing, Unasked, VolumeView};
use crate::device::{DiskId, VolumeId};

impl Unasked {
    fn error(self, id: VolumeId) -> PoolError {
        let Self { disk, why, listed: _, knowledge } = self;
        let way_out = match knowledge {
            Knowledge::Whole | Knowledge::Part => format!("bring the disk back, or {}", give_up(&disk)),
            Knowledge::None => {
                "the state directory, which would record that, was empty when this process started; repair the disk, \
                 or unplug it"
                    .to_owned()
            }
        };
        let why = format!("{why}, and the volume may be on it: {way_out}");
        PoolError::DiskAway { id, disk, why }
    }
}

fn give_up(disk: &DiskId) -> String {
    format!("unplug it and give it up with `localpool disk give-up {disk}`")
}

impl Pool {
    /// All volumes, by id.
    pub fn volumes(&self) -> Vec<VolumeView> {
        let mut views: Vec<VolumeView> = self.members().iter().flat_map(Member::views).collect();
        self.mark_conflicts(&mut views);
        views.sort_by(|a, b| (a.id, &a.disk).cmp(&(b.id, &b.disk)));
        views
    }

    pub fn volume(&self, id: VolumeId) -> Result<VolumeView, PoolError> {
        self.find(id).map(|(_, view)| view)
    }

    /// A volume that may be used: described, not waiting for adoption, on a disk that is here.
    pub fn usable(&self, id: VolumeId) -> Result<VolumeView, PoolError> {
        self.find_usable(id).map(|(_, view)| view)
    }

    /// One that is in conflict says so in its view.
    pub(super) fn find(&self, id: VolumeId) -> Result<(Member, VolumeView), PoolError> {
        self.all_of(id).into_iter().next().ok_or(PoolError::NoSuchVolume { id })
    }

    /// The one volume of that id.
    pub(super) fn find_sound(&self, id: VolumeId) -> Result<(Member, VolumeView), PoolError> {
        let (member, view) = self.find(id)?;
        match view.conflict.clone() {
            Some(why) => Err(PoolError::Conflict { id, why }),
            None => Ok((member, view)),
        }
    }

    pub(super) fn find_usable(&self, id: VolumeId) -> Result<(Member, VolumeView), PoolError> {
        let found = self.find_sound(id);
        if matches!(found, Err(PoolError::NoSuchVolume { .. })) {
            self.is_nowhere_else(id)?;
        }
        let (member, view) = found?;
        let disk = view.disk.clone();
        match (&view.record, view.standing.why_away()) {
            (None, _) => Err(PoolError::NotDescribed { id, disk }),
            (Some(_), None) if view.given_up => {
                let why = format!("{WAS_GIVEN_UP}: `localpool disk adopt {disk}` takes it back");
                Err(PoolError::DiskAway { id, disk, why })
            }
            (Some(record), _) if record.found => Err(PoolError::Found { id }),
            (Some(_), Some(why)) => Err(PoolError::DiskAway { id, disk, why }),
            (Some(_), None) => Ok((member, view)),
        }
    }

    /// The disks of the pool that cannot be asked now.
    pub fn unasked(&self) -> Vec<Unasked> {
        let why = |disk: &DiskId| match self.member(disk) {
            Some(member) => member.why_unusable(),
            None => Some(self.unread_of(disk).map_or_else(|| Standing::MISSING.to_owned(), |unread| unread.why)),
        };
        let mut unasked = Vec::new();
        for (disk, known) in self.journal().known(|disk| why(disk).is_some()) {
            let knowledge = if known.volumes.is_some() { Knowledge::Whole } else { Knowledge::Part };
            let (why, listed) = (why(&disk), known.volumes.unwrap_or_default());
            unasked.extend(why.map(|why| Unasked { disk, why, listed, knowledge }));
        }
        for (disk, claim) in self.journal().bare_claims().into_iter().filter(|(disk, _)| self.member(disk).is_none()) {
            let listed = claim.volume.iter().map(|volume| volume.id).collect();
            let why = "was not read yet".to_owned();
            unasked.push(Unasked { disk, why, listed, knowledge: Knowledge::Whole });
        }
        // A journal that was lost does not name a filesystem that was not read yet, or that cannot be read.
        for member in self.members() {
            let Member::Filesystem(filesystem) = &member else { continue };
            let disk = &filesystem.id;
            if let Some(why) = member.why_unusable().filter(|_| unasked.iter().all(|one| one.disk != *disk)) {
                let (disk, listed) = (disk.clone(), BTreeSet::new());
                unasked.push(Unasked { disk, why, listed, knowledge: Knowledge::Part });
            }
        }
        let is_listed = |one: &Unasked| unasked.iter().any(|other| other.disk == one.disk);
        let unread: Vec<Unasked> = self.unread().into_iter().filter(|one| !is_listed(one)).collect();
        unasked.extend(unread.into_iter().filter(|one| self.member(&one.disk).is_none()));
        unasked
    }

    /// Why a volume that no disk here has may not be made: it may be on a disk that cannot be asked. A disk of which
    /// nothing is known keeps no new volume waiting; should both have it, they are in conflict.
    pub(super) fn may_be_made(&self, id: VolumeId) -> Result<(), PoolError> {
        self.is_nowhere_else(id)?;
        let unasked = self.unasked().into_iter().find(|one| one.listed.contains(&id));
        unasked.map_or(Ok(()), |one| Err(one.error(id)))
    }

    /// A volume that no disk here has is on none that the journal should know, and does not.
    pub(super) fn is_nowhere_else(&self, id: VolumeId) -> Result<(), PoolError> {
        self.journal().sound()?;
        let lost = self.journal().lost().into_iter();
        let mut on = lost.filter(|(_, claim)| claim.volumes().any(|volume| volume.id == id));
        let Some((disk, _)) = on.next() else { return Ok(()) };
        let not_known = || {
            format!(
                "is not known to the journal of this node, which was lost or is older than the volume; it is not touched, and \
                 not read, until `localpool disk adopt {disk}` takes it back with the volume"
            )
        };
        // One that has a claim says itself what contradicts it.
        let why = match self.member(&disk) {
            Some(Member::Bare(device)) => device.shown().standing.why_away(),
            Some(Member::Labelled(_) | Member::Filesystem(_)) | None => None,
        };
        let why = why.unwrap_or_else(not_known);
        Err(PoolError::DiskAway { id, disk, why })
    }

    /// Why a volume that no disk here has may not be called deleted.
    pub fn may_be_called_deleted(&self, id: VolumeId) -> Result<(), PoolError> {
        if !self.is_scanned() {
            return Err(PoolError::NotScanned { id });
        }
        if !self.journal().knows_volumes() {
            return Err(PoolError::VolumesNotRead { id });
        }
        self.is_nowhere_else(id)?;
        let may_hold = |one: &Unasked| one.listed.contains(&id) || one.knowledge != Knowledge::Whole;
        let unasked = self.unasked().into_iter().find(may_hold);
        unasked.map_or(Ok(()), |one| Err(one.error(id)))
    }

    /// What is not known of a volume that no disk here has, and that its object reports on that disk.
    pub fn doubt(&self, id: VolumeId, reported_on: Option<&DiskId>) -> Doubt {
        if let Err(error) = self.may_be_made(id) {
            return Doubt::Of(error.to_string());
        }
        if let Some(disk) = reported_on {
            match self.member(disk).map(|member| member.why_unusable()) {
                // It holds up nothing new, nor that what was on it is deleted: nobody waits for it any more.
                None if self.journal().has_given_up(disk) && self.journal().knows_volumes() => {
                    return Doubt::GivenUp(format!(
                        "disk {disk} was given up: the volume is lost unless the disk comes back, and \
                         a deletion erases nothing"
                    ));
                }
                None => return Doubt::Of(format!("disk {disk} is not there; is it unplugged or dead?")),
                Some(Some(why)) => return Doubt::Of(format!("disk {disk} {why}")),
                Some(None) => {}
            }
        }
        match self.may_be_called_deleted(id) {
            Ok(()) => Doubt::None,
            Err(error) => Doubt::General(error.to_string()),
        }
    }

    /// Says of each volume that is on several disks, or may be, that nobody knows which of them is right.
    pub(super) fn mark_conflicts(&self, views: &mut [VolumeView]) {
        let unasked = self.unasked();
        let doubtful = doubtful(views, &unasked);
        let mut disks = BTreeMap::<VolumeId, Vec<(DiskId, Option<String>)>>::new();
        for view in views.iter().filter(|view| doubtful.contains(&view.id)) {
            disks.entry(view.id).or_default().push((view.disk.clone(), view.standing.why_away()));
        }
        for one in unasked {
            for id in &one.listed {
                if let Some(disks) = disks.get_mut(id)
                    && disks.iter().all(|(disk, _)| *disk != one.disk)
                {
                    disks.push((one.disk.clone(), Some(one.why.clone())));
                }
            }
        }
        for view in views.iter_mut().filter(|view| disks.contains_key(&view.id)) {
            // Its disk may say by itself that it cannot be used.
            let several = disks.get(&view.id).filter(|disks| disks.len() > 1).map(|disks| message_of(view.id, disks));
            view.conflict = several.or(view.conflict.take());
        }
    }

    /// The views of one volume, each with its member: of a sound one there is one.
    pub(super) fn all_of(&self, id: VolumeId) -> Vec<(Member, VolumeView)> {
        let found = self.members().into_iter().filter_map(|member| member.view(id).map(|view| (member, view)));
        let (members, mut views): (Vec<Member>, Vec<VolumeView>) = found.unzip();
        if !views.is_empty() {
            self.mark_conflicts(&mut views);
        }
        members.into_iter().zip(views).collect()
    }
}

/// The volumes that are on several disks, or may be: of thousands none is.
fn doubtful(views: &[VolumeView], unasked: &[Unasked]) -> BTreeSet<VolumeId> {
    let mut once = BTreeSet::new();
    let is_listed = |id: &VolumeId| unasked.iter().any(|one| one.listed.contains(id));
    let is_doubtful = |id: &VolumeId| !once.insert(*id) || is_listed(id);
    views.iter().map(|view| view.id).filter(is_doubtful).collect()
}

fn message_of(id: VolumeId, disks: &[(DiskId, Option<String>)]) -> String {
    let on = |(disk, away): &(DiskId, Option<String>)| match away {
        Some(why) => format!("{disk}, which {why}"),
        None => disk.to_string(),
    };
    let named: Vec<String> = disks.iter().map(on).collect();
    let way_out = match disks.iter().find(|(_, away)| away.is_some()) {
        Some((disk, _)) => format!("bring that disk back, or {}", give_up(disk)),
        None => format!("`localpool volume settle {id} --keep DISK` chooses one"),
    };
    format!(
        "it is, or may be, on several disks: {}; none of them is used until it is known which one is right: {way_out}",
        named.join("; and on ")
    )
}
