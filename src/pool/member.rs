//! A place in the pool, labelled or bare: the verbs that both kinds know.

pub mod room;

use std::sync::Arc;

use uuid::Uuid;

use super::bare::BareDevice;
use super::cordon::Cordon;
use super::erase::{Progress, work};
use super::error::{BareError, PoolError};
use super::filesystem::PoolFilesystem;
use super::filesystem_error::FilesystemError;
use super::journal::KnownDisk;
use super::journal_store::JournalStore;
use super::labelled::LabelledDisk;
use super::plan::{Adoption, delete, describe_volume, formatted, give_other_id, grown, set_found};
use super::view::{DiskView, Standing, VolumeView};
use super::worker_flag::WorkerFlag;
use crate::claim::Rule;
use crate::device::label::{ErasePolicy, VolumeRecord};
use crate::device::{DiskId, VolumeId};
use crate::host::{KernelName, RawDisk, chain};

/// A member of the pool.
#[derive(Clone)]
pub enum Member {
    Labelled(Arc<LabelledDisk>),
    /// With the labelled disk that it is on, if there is one.
    Filesystem(Arc<PoolFilesystem>),
    Bare(Arc<BareDevice>),
}

impl Member {
    /// Looks whether what is open of it can still be read. A filesystem that cannot is not used from now on, and `true` says
    /// that the next pass has to open it again.
    pub fn look_again(&self) -> bool {
        let Self::Filesystem(filesystem) = self else { return false };
        let unreadable = filesystem.prove_readable().inspect_err(|error| {
            tracing::error!(disk = %filesystem.id, error = %chain(error), "the filesystem of a disk is opened again");
        });
        unreadable.is_err()
    }

    pub fn id(&self) -> &DiskId {
        match self {
            Self::Labelled(member) => &member.id,
            Self::Filesystem(member) => &member.id,
            Self::Bare(member) => &member.id,
        }
    }

    /// The disk with our label that it is, or is on.
    pub fn labelled(&self) -> Option<&Arc<LabelledDisk>> {
        match self {
            Self::Labelled(disk) => Some(disk),
            Self::Filesystem(member) => member.carrier.disk(),
            Self::Bare(_) => None,
        }
    }

    /// What is remembered of a disk with our label should it be away at the next start; `None`: that cannot be told.
    pub fn known(&self) -> Option<KnownDisk> {
        match self {
            Self::Labelled(disk) => disk.known(),
            Self::Filesystem(member) => member.known(),
            Self::Bare(_) => None,
        }
    }

    /// As which device it is or was here, by the kernel's name.
    pub fn kernel_name(&self) -> Option<KernelName> {
        match self {
            Self::Labelled(disk) => Some(disk.shown().raw.name.clone()),
            Self::Filesystem(member) => Some(member.carrier.disk()?.shown().raw.name.clone()),
            Self::Bare(device) => device.shown().raw.as_ref().map(|raw| raw.name.clone()),
        }
    }

    /// The device that it is open as; `None`: it cannot be used.
    pub fn usable_raw(&self) -> Option<RawDisk> {
        match self {
            Self::Labelled(disk) => Some(disk.shown()).filter(|shown| shown.is_usable()).map(|shown| shown.raw.clone()),
            Self::Filesystem(member) => Self::Labelled(Arc::clone(member.carrier.disk()?)).usable_raw(),
            Self::Bare(device) => Some(device.shown())
                .filter(|shown| shown.standing == Standing::Ready)
                .and_then(|shown| shown.raw.clone()),
        }
    }

    pub fn rule(&self) -> Option<Arc<Rule>> {
        match self {
            Self::Labelled(member) => member.shown().rule.clone(),
            Self::Filesystem(member) => member.carrier.rule(),
            Self::Bare(member) => member.shown().rule.clone(),
        }
    }

    pub fn views(&self) -> Vec<VolumeView> {
        match self {
            Self::Labelled(member) => member.views(),
            Self::Filesystem(member) => member.views(),
            Self::Bare(member) => member.view().into_iter().collect(),
        }
    }

    pub fn view(&self, id: VolumeId) -> Option<VolumeView> {
        match self {
            Self::Labelled(member) => member.view(id),
            Self::Filesystem(member) => member.view(id),
            Self::Bare(member) => member.view().filter(|view| view.id == id),
        }
    }

    pub fn disk_view(&self) -> Option<DiskView> {
        match self {
            Self::Labelled(member) => Some(member.disk_view()),
            Self::Filesystem(member) => Some(member.disk_view()),
            Self::Bare(member) => member.disk_view(),
        }
    }

    /// The filesystem whose volumes can shrink; `None`: none of its volumes can.
    pub fn shrinks(&self) -> Option<&PoolFilesystem> {
        match self {
            Self::Filesystem(member) if member.is_limited() => Some(member),
            Self::Labelled(_) | Self::Filesystem(_) | Self::Bare(_) => None,
        }
    }

    /// Why it takes no new volumes, as the disk itself says.
    pub fn cordon(&self) -> Option<Cordon> {
        match self {
            Self::Filesystem(member) => member.carrier.shown().cordon(),
            Self::Labelled(disk) => disk.shown().cordon(),
            Self::Bare(_) => None,
        }
    }

    /// Whether its disk is here and in order.
    pub fn is_usable(&self) -> bool {
        match self {
            Self::Labelled(member) => member.shown().is_usable(),
            Self::Filesystem(member) => member.is_usable(),
            Self::Bare(member) => member.shown().standing == Standing::Ready,
        }
    }

    /// Why what is on the disk cannot be asked for now, as it goes on after the disk's name. The journal has what is on
    /// a bare device.
    pub fn why_unusable(&self) -> Option<String> {
        match self {
            Self::Labelled(member) => member.shown().standing.why_away(),
            Self::Filesystem(member) => member.standing().why_away(),
            Self::Bare(_) => None,
        }
    }

    /// The kernel has the volume mapped as the disk says.
    pub fn remap(&self) -> Result<(), PoolError> {
        match self {
            Self::Labelled(member) => Ok(member.lock_in_time()?.disk()?.recover_mappings()?),
            Self::Filesystem(_) | Self::Bare(_) => Ok(()),
        }
    }

    pub fn delete(&self, id: VolumeId) -> Result<(), PoolError> {
        let policy = self.rule().map_or(ErasePolicy::default(), |rule| rule.erase);
        match self {
            Self::Labelled(member) => {
                let mut state = member.lock_in_time()?;
                match state.disk()?.change(|content| delete(content, id, policy, Uuid::new_v4())) {
                    Err(error) => match error.busy() {
                        Some(why) => Err(PoolError::InUse { id, why }),
                        None => Err(error.into()),
                    },
                    Ok(()) => Ok(()),
                }
            }
            Self::Filesystem(member) => match member.delete(id) {
                Err(error @ FilesystemError::Mounted(_)) => Err(PoolError::InUse { id, why: error.to_string() }),
                done => Ok(done?),
            },
            Self::Bare(member) => match member.delete(id, policy) {
                Err(BareError::Busy(busy)) => Err(PoolError::InUse { id, why: busy.to_string() }),
                done => Ok(done?),
            },
        }
    }

    /// Whether some of its space is being erased.
    pub fn is_erasing(&self) -> bool {
        match self {
            Self::Labelled(member) => member.shown().content.erasing().next().is_some(),
            Self::Filesystem(member) => member.is_erasing(),
            Self::Bare(_) => false,
        }
    }

    /// A filesystem is about to be made. A labelled disk says by itself whether it was: only a bare one must be asked.
    pub fn begin_format(&self, id: VolumeId) -> Result<(), PoolError> {
        match self {
            Self::Labelled(_) | Self::Filesystem(_) => Ok(()),
            Self::Bare(member) => Ok(member.begin_format(id)?),
        }
    }

    pub fn mark_formatted(&self, view: &VolumeView) -> Result<(), PoolError> {
        match self {
            Self::Labelled(member) => Ok(member.change(|content| formatted(content, view.id))?),
            // A folder has no filesystem of its own.
            Self::Filesystem(_) => Ok(()),
            Self::Bare(member) => Ok(member.change_volume(view.id, |volume| {
                (volume.formatting, volume.formatted) = (false, true);
                volume.record.fs_size = view.size;
            })?),
        }
    }

    pub fn mark_grown(&self, id: VolumeId, size: u64) -> Result<(), PoolError> {
        match self {
            Self::Labelled(member) => Ok(member.change(|content| grown(content, id, size))?),
            Self::Filesystem(_) => Ok(()),
            Self::Bare(member) => Ok(member.change_volume(id, |volume| volume.record.fs_size = size)?),
        }
    }

    /// Whether the volume waits for its adoption.
    pub fn set_found(&self, id: VolumeId, adoption: Adoption) -> Result<(), PoolError> {
        let found = adoption.waits();
        match self {
            Self::Labelled(member) => Ok(member.change(|content| set_found(content, id, adoption))?),
            Self::Filesystem(member) => Ok(member.change_record(id, |record| record.found = found)?),
            Self::Bare(member) => Ok(member.change_volume(id, |volume| volume.record.found = found)?),
        }
    }

    /// The journal describes what is on a bare device.
    pub fn describe_volume(&self, id: VolumeId, record: &VolumeRecord) -> Result<(), PoolError> {
        match self {
            Self::Labelled(member) => Ok(member.change(|content| describe_volume(content, id, record))?),
            Self::Filesystem(member) => Ok(member.describe_volume(id, record)?),
            Self::Bare(_) => Ok(()),
        }
    }

    /// Makes one of several volumes of an id another one. The journal has the fresh id before the disk has.
    pub fn give_other_id(
        &self,
        id: VolumeId,
        fresh: VolumeId,
        name: &str,
        journal: &JournalStore,
    ) -> Result<(), PoolError> {
        match self {
            Self::Labelled(member) => {
                let (begun, done) = {
                    let mut state = member.lock_in_time()?;
                    if !state.is_usable() {
                        let why = self.why_unusable().unwrap_or_else(|| Standing::MISSING.to_owned());
                        return Err(PoolError::DiskAway { id, disk: member.id.clone(), why });
                    }
                    let mut known = state.known();
                    // It goes without having been deleted.
                    known.unseen.insert(id);
                    let disk = state.disk()?;
                    let begun = journal.begin(fresh, &member.id, known)?;
                    (begun, disk.change(|content| give_other_id(content, id, fresh, name)))
                };
                let Err(error) = done else { return Ok(()) };
                if error.left_no_trace() {
                    begun.withdraw()?;
                }
                Err(match error.busy() {
                    Some(why) => PoolError::InUse { id, why },
                    None => error.into(),
                })
            }
            Self::Filesystem(member) => match member.give_other_id(id, fresh, name, journal) {
                Err(PoolError::Filesystem(error @ FilesystemError::Mounted(_))) => {
                    Err(PoolError::InUse { id, why: error.to_string() })
                }
                done => done,
            },
            Self::Bare(member) => match member.give_other_id(id, fresh, name) {
                Err(BareError::Busy(busy)) => Err(PoolError::InUse { id, why: busy.to_string() }),
                done => Ok(done?),
            },
        }
    }

    pub fn work(&self) -> Result<Progress, PoolError> {
        match self {
            Self::Labelled(member) => Ok(work(member)?),
            Self::Filesystem(member) => member.work(),
            Self::Bare(member) => Ok(member.work()?),
        }
    }

    /// Both copies of the label say the same afterwards.
    pub fn mirror(&self) -> Result<(), PoolError> {
        match self.labelled() {
            Some(disk) => Ok(disk.lock().disk()?.mirror()?),
            None => Ok(()),
        }
    }

    pub fn worker(&self) -> &WorkerFlag {
        match self {
            Self::Labelled(member) => &member.worker,
            Self::Filesystem(member) => member.carrier.worker(),
            Self::Bare(member) => &member.worker,
        }
    }
}
