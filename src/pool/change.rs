//! What becomes of a volume that is there. A verb looks before it acts and may be repeated: what is so already is
//! success.

use std::time::Duration;

use super::choose::NoPlace;
use super::device_pool::Pool;
use super::error::PoolError;
use super::member::Member;
use super::plan::Adoption;
use super::request::Change;
use super::view::VolumeView;
use crate::device::label::VolumeRecord;
use crate::device::{DiskId, VolumeId};
use crate::host::{FsUsage, HostError, chain};

/// How long an expansion waits for the erasure of the space that it needs.
const ERASE_WAIT: Duration = Duration::from_secs(2);

impl Pool {
    /// Deletes a volume; its space is erased in the background. Not there, and on no disk that is away: success. On a
    /// disk that was given up and is back, too, but nothing is erased: who deleted it took the disk for dead.
    pub fn delete(&self, id: VolumeId) -> Result<Change, PoolError> {
        let may_be_called_deleted = self.may_be_called_deleted(id);
        if matches!(self.find(id), Err(PoolError::NoSuchVolume { .. })) {
            return may_be_called_deleted.map(|()| Change::AlreadySo);
        }
        let (_, view) = self.find_sound(id)?;
        if view.given_up {
            self.keep(&view);
            return Ok(Change::Kept);
        }
        let (member, _) = self.find_usable(id)?;
        member.delete(id)?;
        self.note(&member);
        Ok(Change::Done)
    }

    /// Should its disk be adopted, nobody gets the volume unasked.
    fn keep(&self, view: &VolumeView) {
        if view.record.as_ref().is_some_and(|record| !record.found)
            && let Err(error) = self.disown_volume(view.id)
        {
            tracing::warn!(volume = %view.id, error = %chain(&error), "the label does not say yet that it was deleted");
        }
    }

    /// Grows a volume to at least `required` bytes. One that can shrink does so where `limit` is below its size.
    pub fn expand(&self, id: VolumeId, required: u64, limit: Option<u64>) -> Result<VolumeView, PoolError> {
        let (member, view) = self.find_usable(id)?;
        if let Some(limit) = limit.filter(|limit| *limit < view.size) {
            if let Some(filesystem) = member.shrinks() {
                filesystem.shrink(id, required, limit)?;
                return self.grown(&member, id);
            }
            let why = "the volume already has".to_owned();
            return Err(NoPlace::Limit { limit, least: view.size, why }.into());
        }
        // What is behind the volume may be on its way to free space: worth a moment.
        let grown = self.background().worked().attempt(ERASE_WAIT, || {
            // Asked first: an erasure that ends in between has freed what was refused.
            let erasing = member.is_erasing();
            match member.expand(&view, required) {
                Err(PoolError::CannotGrow { .. }) if erasing => {
                    self.background().give(&member);
                    None
                }
                done => Some(done),
            }
        });
        let done = grown.unwrap_or_else(|| member.expand(&view, required));
        if done.is_err() && member.look_again() {
            self.nudge();
        }
        self.goes_on(&member, done)?;
        self.grown(&member, id)
    }

    /// How full a volume is, in bytes and inodes, where a quota of its own says that; `None`: its filesystem does.
    pub fn quota_usage(&self, view: &VolumeView) -> Option<Result<FsUsage, HostError>> {
        match self.member(&view.disk)? {
            Member::Filesystem(filesystem) => {
                let usage = filesystem.usage(view.id);
                // It was until this moment.
                if usage.is_some() && !filesystem.is_usable() {
                    self.nudge();
                }
                usage
            }
            Member::Labelled(_) | Member::Bare(_) => None,
        }
    }

    /// A volume could not be used as it should: a filesystem of the pool that cannot be read any more is opened again.
    pub fn look_again(&self, view: &VolumeView) {
        if self.member(&view.disk).is_some_and(|member| member.look_again()) {
            self.nudge();
        }
    }

    fn grown(&self, member: &Member, id: VolumeId) -> Result<VolumeView, PoolError> {
        self.note(member);
        self.background().give(member);
        self.volume(id)
    }

    /// Before mkfs: whether it may be done, whatever is there.
    pub fn begin_format(&self, id: VolumeId) -> Result<(), PoolError> {
        self.find_usable(id)?.0.begin_format(id)
    }

    /// Writes down that mkfs has ended and was synced.
    pub fn mark_formatted(&self, id: VolumeId) -> Result<(), PoolError> {
        let (member, view) = self.find_usable(id)?;
        member.mark_formatted(&view)?;
        self.note(&member);
        self.background().give(&member);
        Ok(())
    }

    /// Writes down that the filesystem fills its volume of `size` bytes.
    pub fn mark_grown(&self, id: VolumeId, size: u64) -> Result<(), PoolError> {
        let (member, _) = self.find_usable(id)?;
        member.mark_grown(id, size)?;
        self.note(&member);
        self.background().give(&member);
        Ok(())
    }

    /// Makes a found volume usable.
    pub fn adopt_volume(&self, id: VolumeId) -> Result<Change, PoolError> {
        let (member, change) = self.adoptable(id)?;
        if change == Change::Done {
            member.set_found(id, Adoption::Done)?;
            self.note(&member);
        }
        Ok(change)
    }

    /// What that would do.
    pub fn would_adopt_volume(&self, id: VolumeId) -> Result<Change, PoolError> {
        Ok(self.adoptable(id)?.1)
    }

    fn adoptable(&self, id: VolumeId) -> Result<(Member, Change), PoolError> {
        let (member, view) = self.find_sound(id)?;
        match &view.record {
            None => Err(PoolError::NotDescribed { id, disk: view.disk }),
            Some(record) if !record.found => Ok((member, Change::AlreadySo)),
            Some(_) => Ok((member, Change::Done)),
        }
    }

    /// A volume on that disk whose label has lost its description, which others have. Gives it as it is then.
    pub fn describe_volume(&self, id: VolumeId, disk: &DiskId, record: &VolumeRecord) -> Result<VolumeView, PoolError> {
        let (member, view) = self.find_sound(id)?;
        if view.record.is_none() && view.disk == *disk {
            member.describe_volume(id, record)?;
            self.note(&member);
            self.background().give(&member);
        }
        self.volume(id)
    }

    /// A volume that nobody asks for: kept, and not usable until it is adopted. The disk remembers.
    pub fn disown_volume(&self, id: VolumeId) -> Result<(), PoolError> {
        let (member, view) = self.find_sound(id)?;
        match &view.record {
            None => Err(PoolError::NotDescribed { id, disk: view.disk }),
            Some(record) if record.found => Ok(()),
            Some(_) => {
                member.set_found(id, Adoption::Waits)?;
                self.note(&member);
                Ok(())
            }
        }
    }
}
