//! What a person may ask of the pool: releasing disks here, those that are away in `forget`, taking them over in
//! `adopt`, finding them in `locate`. Each verb can say what it would do instead.

mod adopt;
mod carry_out;
mod forget;
pub(super) mod journal;
mod locate;
mod settle;

use std::path::{Path, PathBuf};

use super::question::OwnError;
use super::reconciler::Reconciler;
use super::verb::{Run, Verb};
use crate::device::{self, Device, DiscoveryError, DiskId, Snapshot, Verdict};
use crate::host::HostError;
use crate::pool::{ApplyError, Member, PoolError};
use crate::show::ListedDevice;

/// Why a verb was not done.
#[derive(Debug, thiserror::Error)]
pub enum AdminError {
    #[error("this node has no disk {0}; `localpool devices -o wide` lists ids, paths and links")]
    NoSuchDisk(String),
    #[error("{disk} is the id of several devices, {}: name one of them by its path", list(paths))]
    Several { disk: String, paths: Vec<PathBuf> },
    #[error("{disk} is not in the pool: {why}")]
    NotInPool { disk: String, why: String },
    #[error("{disk} cannot be taken over: {why}")]
    NotAdoptable { disk: String, why: String },
    #[error(
        "{disk} ({}) is not missing: {why}; only a missing disk is given up: name it by its id in status.disks of the \
         DevicePool",
        at.display()
    )]
    Here { disk: DiskId, at: PathBuf, why: String },
    #[error("this node has no disk {disk}, and the API server does not report whether a volume of this node is on it")]
    VolumesNotRead {
        disk: DiskId,
        #[source]
        source: OwnError,
    },
    #[error("{0} is missing: it can be given up, or released when it is back")]
    Missing(DiskId),
    #[error("{disk} cannot be used now: {why}")]
    NotYet { disk: DiskId, why: String },
    #[error("{disk} is missing, so its slot is not known; look for {was}")]
    NotLocatable { disk: DiskId, was: String },
    #[error(
        "Linux knows no light of the slot of {} ({disk}): neither an enclosure, nor an LED of a PCIe port, nor an attention \
         indicator of a PCIe slot; find the disk by {marks}",
        path.display()
    )]
    NoLight { disk: DiskId, path: PathBuf, marks: String },
    #[error("the light of the slot could not be changed")]
    Light(#[source] HostError),
    #[error("the machine's disks could not be read")]
    Look(#[from] DiscoveryError),
    #[error("the disk could not be opened")]
    Open(#[source] HostError),
    #[error(transparent)]
    Disk(#[from] ApplyError),
    #[error(transparent)]
    Pool(#[from] PoolError),
}

impl AdminError {
    fn not_in_pool(text: &str, device: &Device) -> Self {
        let why = crate::show::verdict_and_reason(&ListedDevice { device: device.clone(), note: None }).1;
        Self::NotInPool { disk: text.to_owned(), why }
    }
}

/// What a person calls `text`: a path or a link before an id, which several may have. Of these, the one that may be
/// used.
fn called<'s>(snapshot: &'s Snapshot, text: &str) -> Vec<&'s Device> {
    let path = Path::new(text);
    let is_there = |device: &&Device| device.raw.path == path || device.raw.links.iter().any(|link| link == path);
    let there: Vec<&Device> = snapshot.devices.iter().filter(is_there).collect();
    if !there.is_empty() {
        return there;
    }
    let named: Vec<&Device> = snapshot.devices.iter().filter(|device| device.id.as_str() == text).collect();
    match named.iter().find(|device| device.verdict == Verdict::Ours && device.believed == device::Believed::Yes) {
        Some(used) => vec![used],
        None => named,
    }
}

fn list(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(" and ")
}

impl Reconciler {
    /// Does what a person asked, or says what it would do.
    pub fn verb(&mut self, verb: &Verb) -> Result<Vec<String>, AdminError> {
        match verb {
            Verb::ReleaseDisk { disk, run } => self.release(disk, *run),
            Verb::GiveUpDisk { disk, run } => self.give_up_named(disk, *run),
            Verb::AdoptDisk { disk, run } => self.adopt(disk, *run),
            Verb::Order { disk, task } => self.carry_out(disk, *task),
            Verb::LocateDisk { disk, lit, run } => self.locate(disk, *lit, *run),
            Verb::SettleVolume { volume, keep, run } => self.settle(*volume, keep, *run),
            Verb::SetAsideJournal { run } => self.set_aside_journal(*run),
            Verb::PlanSets { sets } => self.preview(sets),
        }
    }

    /// A device, and its member where it has one: a bare device's by its hardware, whatever it carries.
    fn find(&mut self, text: &str) -> Result<(Snapshot, Device, Option<Member>), AdminError> {
        let snapshot = self.look()?;
        let device = match &called(&snapshot, text)[..] {
            [] => return Err(AdminError::NoSuchDisk(text.to_owned())),
            [one] => Device::clone(one),
            several => {
                let paths = several.iter().map(|device| device.raw.path.clone()).collect();
                return Err(AdminError::Several { disk: text.to_owned(), paths });
            }
        };
        let bare = self.pool().bare_member_of(&snapshot, &device).map(Member::Bare);
        // A copy is not the member that has its id, nor is a disk of another node.
        let is_it = device.verdict == Verdict::Ours && device.believed == device::Believed::Yes;
        let labelled = self.pool().member(&device.id).filter(|member| is_it && member.labelled().is_some());
        let member = bare.or(labelled);
        Ok((snapshot, device, member))
    }

    fn release(&mut self, text: &str, run: Run) -> Result<Vec<String>, AdminError> {
        // What is released is written down there: a dry run says so, too.
        self.pool().journal().sound().map_err(PoolError::from)?;
        let found = match self.find(text) {
            Err(AdminError::NoSuchDisk(id)) => return self.forget(&DiskId::named(id), run),
            // Copies of a disk that is away have its id.
            Ok((_, _, None)) | Err(AdminError::Several { .. }) if self.is_missing(text) => {
                return self.forget(&DiskId::named(text), run);
            }
            Ok((snapshot, device, None)) if self.has_lost(&snapshot.bare_id(&device)) => {
                return self.give_up_lost(&snapshot.bare_id(&device), run);
            }
            found => found?,
        };
        self.release_found(text, found, run)
    }

    /// Releases a device that is here.
    fn release_found(
        &mut self,
        text: &str,
        (snapshot, device, member): (Snapshot, Device, Option<Member>),
        run: Run,
    ) -> Result<Vec<String>, AdminError> {
        let member = member.ok_or_else(|| AdminError::not_in_pool(text, &device))?;
        let path = device.raw.path.display();
        let what = match &member {
            Member::Labelled(member) => {
                member.lock_in_time()?.disk()?.can_release()?;
                run.tense("wipe", "wiped") + " label and partition tables"
            }
            Member::Filesystem(filesystem) => {
                filesystem.can_release().map_err(PoolError::from)?;
                filesystem.carrier.lock_in_time()?.disk()?.can_release()?;
                run.tense("wipe", "wiped") + " label, partition tables and filesystem"
            }
            Member::Bare(member) => {
                member.can_release().map_err(PoolError::from)?;
                run.tense("end", "ended") + " the bare claim"
            }
        };
        let given_up = self.given_up_with(member.id());
        if run == Run::Real {
            self.give_up(&member)?;
        }
        let mut lines = vec![
            format!("{what} of {path} ({})", device.id),
            format!("no set claims it again until `localpool disk adopt {path}`"),
        ];
        lines.extend(given_up);
        if snapshot.bare_id(&device).is_path() {
            lines.push(format!(
                "it has no serial or WWN: if it gets another path than {path}, a set that selects it may claim it"
            ));
        }
        Ok(lines)
    }
}
