//! Volumes that are kept within their sizes: each folder is a project of the filesystem, with a hard limit.
//!
//! The project is in the volume's record before the folder exists, and belongs to nobody else while a byte or an inode
//! has it. The record says what the limit must be: it is set again whenever the filesystem is opened. The record of a
//! volume that grows is written before its limit is set, and that of one that shrinks after. What fails for one volume
//! is no matter of the others.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::{MIB, PoolFilesystem, PoolFilesystemState};
use crate::device::VolumeId;
use crate::device::label::Quota;
use crate::host::{
    DeviceLockGuard, FilesystemRoot, FsUsage, HostError, ProjectId, QuotaState, SHORT_DEVICE_LOCK_TIMEOUT, chain,
};
use crate::pool::{
    choose::NoPlace,
    directory::{DirectoryRecord, DirectoryRecords, VOLUMES, folder, is_of_volumes, unlimited},
    error::PoolError,
    filesystem_error::FilesystemError,
    view::Standing,
};

impl PoolFilesystem {
    /// Whether the label asks for limits.
    pub fn is_limited(&self) -> bool {
        self.carrier.layout().quota() == Some(Quota::Project)
    }

    /// Sets the limit of each volume as its record says. What has the same project as another stays as it is. What
    /// fails for one volume keeps that one from being used, and no other. An error is the filesystem's own.
    pub(super) fn limit_all(
        &self,
        state: &mut PoolFilesystemState,
        root: &dyn FilesystemRoot,
    ) -> Result<(), HostError> {
        if !self.is_limited() {
            return Ok(());
        }
        let mut failed = BTreeMap::new();
        let (mut quarrels, limits) = wanted_limits(state.table.read().volumes());
        for (id, project, size) in limits {
            if let Err(error) = limit_one(root, id, project, size) {
                let why = chain(&error);
                let again = "it is tried again at each look at the disks, and each minute while folders are removed";
                failed.insert(id, format!("its limit could not be set: {why}; {again}"));
            }
        }
        if !failed.is_empty() {
            // Where this fails, too, it is no matter of one volume.
            root.names(Path::new(VOLUMES))?;
        }
        state.limits_failed = (!failed.is_empty()).then(|| self.host.monotonic());
        quarrels.extend(failed);
        let known = Arc::clone(&state.unlimited);
        for (id, why) in quarrels.iter().filter(|(id, why)| known.get(*id) != Some(*why)) {
            tracing::error!(volume = %id, why, "a volume cannot be kept within its size, and is not used");
        }
        state.unlimited = Arc::new(quarrels);
        Ok(())
    }

    /// What could not be set may be possible by now. Removals may take hours: it does not wait for the last of them.
    pub(super) fn limit_again(&self) -> Result<(), FilesystemError> {
        let mut state = self.lock.lock();
        let Some(failed) = state.limits_failed else { return Ok(()) };
        let is_removing = state.table.read().trash().next().is_some();
        if is_removing && self.host.monotonic().saturating_sub(failed) < LIMIT_AGAIN {
            return Ok(());
        }
        // One that is opened again sets them then.
        let Ok(root) = self.root(&state) else { return Ok(()) };
        let limited = self.limit_all(&mut state, &*root).map_err(self.failed());
        self.done(&mut state, limited)
    }

    /// Before a limit is promised: that limits hold. Where they are switched off the filesystem is unusable until it is
    /// opened again.
    pub(super) fn prove_limits(
        &self,
        state: &mut PoolFilesystemState,
        root: &dyn FilesystemRoot,
    ) -> Result<(), FilesystemError> {
        if !self.is_limited() {
            return Ok(());
        }
        let disk = self.id.clone();
        let found = root.quota_state().map_err(|source| FilesystemError::Unchanged { disk: disk.clone(), source })?;
        match found.why_off() {
            None => Ok(()),
            Some(why) => {
                state.root = None;
                state.standing = Standing::NotReady(format!("its filesystem {why}"));
                Err(FilesystemError::Away { disk, why: why.to_owned() })
            }
        }
    }

    /// A project for a new volume; `None`: there are no limits.
    pub(super) fn fresh_project(
        &self,
        state: &PoolFilesystemState,
        root: &dyn FilesystemRoot,
    ) -> Result<Option<ProjectId>, FilesystemError> {
        if !self.is_limited() {
            return Ok(None);
        }
        let mut unanswered = 0;
        for project in state.table.read().free_projects() {
            // Files of a volume that was deleted may be there still, or be open.
            match root.project_usage(project) {
                Ok(usage) if usage.is_unused() => return Ok(Some(project)),
                Ok(_) => {}
                Err(source) if unanswered == MOST_UNANSWERED => {
                    return Err(FilesystemError::Unchanged { disk: self.id.clone(), source });
                }
                Err(_) => unanswered += 1,
            }
        }
        Err(FilesystemError::NoProject { disk: self.id.clone() })
    }

    /// The project that the folder of a volume without a record is of, or a new one for it.
    pub(super) fn found_project(
        &self,
        state: &PoolFilesystemState,
        root: &dyn FilesystemRoot,
        id: VolumeId,
    ) -> Result<Option<ProjectId>, FilesystemError> {
        if !self.is_limited() {
            return Ok(None);
        }
        let unchanged = |source| FilesystemError::Unchanged { disk: self.id.clone(), source };
        let found = root.project_of(&folder(VOLUMES, id)).map_err(unchanged)?;
        let is_taken = state.table.read().names_project(found);
        match !is_of_volumes(found) || is_taken {
            true => self.fresh_project(state, root),
            false => Ok(Some(found)),
        }
    }

    /// Makes a volume smaller: at most `limit` bytes, at least `required`, and more than its files use.
    pub fn shrink(&self, id: VolumeId, required: u64, limit: u64) -> Result<(), PoolError> {
        let mut state = self.lock_in_time()?;
        let record = state.table.read().record(id).cloned();
        let mut record = record.ok_or_else(|| PoolError::NotDescribed { id, disk: self.id.clone() })?;
        let least = required.max(MIB).next_multiple_of(MIB);
        let size = limit / MIB * MIB;
        if size < least {
            let why = "the volume would have, as it has whole MiB".to_owned();
            return Err(NoPlace::Limit { limit, least, why }.into());
        }
        // Somebody else was faster.
        if record.size <= size {
            return Ok(());
        }
        let root = self.root(&state)?;
        self.prove_limits(&mut state, &*root)?;
        let Some(project) = record.project else {
            return Err(PoolError::Conflict { id, why: "its record names no project".to_owned() });
        };
        // The limit first: nothing that is written meanwhile is more than what is looked at.
        let (before, root) = (record.size, &*root);
        let lowered = set_limit(root, project, size).map_err(self.failed());
        self.done(&mut state, lowered)?;
        (record.size, record.volume.required) = (size, size);
        let done = self.prove_shrinks(root, id, project, size);
        let done = done.and_then(|()| Ok(self.describe(&mut state, id, record)?));
        if done.is_err() {
            let restored = set_limit(root, project, before).map_err(self.failed());
            self.done(&mut state, restored)?;
        }
        done
    }

    /// Its files are counted in its project, and use less than `size` bytes.
    fn prove_shrinks(
        &self,
        root: &dyn FilesystemRoot,
        id: VolumeId,
        project: ProjectId,
        size: u64,
    ) -> Result<(), PoolError> {
        let unchanged = |source| FilesystemError::Unchanged { disk: self.id.clone(), source };
        if root.project_of(&folder(VOLUMES, id)).map_err(unchanged)? != project {
            let why = format!(
                "its folder is not of project {project} any more, so nobody knows what its files use; the next start of \
                 the agent puts it back"
            );
            return Err(PoolError::Conflict { id, why });
        }
        let used = root.project_usage(project).map_err(unchanged)?.bytes;
        if used >= size { Err(PoolError::CannotShrink { id, wanted: size, used }) } else { Ok(()) }
    }

    /// For a larger size: the record first, then the limit. Stopped in between, the next opening sets it.
    pub(super) fn resize(
        &self,
        state: &mut DeviceLockGuard<'_, PoolFilesystemState>,
        root: &dyn FilesystemRoot,
        id: VolumeId,
        record: DirectoryRecord,
    ) -> Result<(), PoolError> {
        let (project, size) = (record.project, record.size);
        self.describe(state, id, record)?;
        let limited = project.map_or(Ok(()), |project| set_limit(root, project, size)).map_err(self.failed());
        Ok(self.done(state, limited)?)
    }

    /// How full a volume is, by its quota; `None`: it has none, or cannot be asked. Waits for no other operation.
    pub fn usage(&self, id: VolumeId) -> Option<Result<FsUsage, HostError>> {
        let shown = self.shown();
        let (project, size) = shown.table.read().record(id).map(|record| (record.project, record.size))?;
        let root = shown.root.as_ref().and_then(Weak::upgrade)?;
        let project = project.filter(|_| self.is_usable())?;
        let usage = || -> Result<FsUsage, HostError> {
            if root.quota_state()? != QuotaState::Enforced {
                self.distrust();
            }
            Ok(root.project_usage(project)?.of_volume(size, &root.usage()?))
        };
        Some(usage())
    }

    /// Its limits do not hold any more. If others have it now, the next measurement says so again.
    fn distrust(&self) {
        let Ok(mut state) = self.lock_within(SHORT_DEVICE_LOCK_TIMEOUT) else { return };
        if let Some(root) = state.root.clone()
            && let Err(error) = self.prove_limits(&mut state, &*root)
        {
            tracing::error!(disk = %self.id, %error, "no volume of it is kept within its size");
        }
    }
}

/// How often limits that could not be set are tried again while folders are removed.
const LIMIT_AGAIN: Duration = Duration::from_secs(60);

/// If more projects than this cannot be asked, the fault is not with these projects.
const MOST_UNANSWERED: u32 = 8;

/// The limit of a volume: its project, and bytes.
type WantedLimit = (VolumeId, ProjectId, u64);

/// The volumes that no limit can hold, and why; and the limits of the others.
fn wanted_limits(volumes: &DirectoryRecords) -> (BTreeMap<VolumeId, String>, Vec<WantedLimit>) {
    let quarrels = unlimited(volumes);
    let limit = |(id, record): (&VolumeId, &Option<Arc<DirectoryRecord>>)| {
        let record = record.as_ref().filter(|_| !quarrels.contains_key(id))?;
        Some((*id, record.project?, record.size))
    };
    let limits = volumes.iter().filter_map(limit).collect();
    (quarrels, limits)
}

/// The folder of a volume is of its project, and that has its limit.
fn limit_one(root: &dyn FilesystemRoot, id: VolumeId, project: ProjectId, size: u64) -> Result<(), HostError> {
    let folder = folder(VOLUMES, id);
    if root.project_of(&folder)? != project {
        tracing::warn!(volume = %id, %project, "the folder of a volume was not of its project, and is again");
        root.put_in_project(&folder, project)?;
    }
    if root.project_usage(project)?.is_limited_to(size) { Ok(()) } else { set_limit(root, project, size) }
}

/// A limit is set when it can be read.
pub(super) fn set_limit(root: &dyn FilesystemRoot, project: ProjectId, size: u64) -> Result<(), HostError> {
    root.limit_project(project, size)?;
    let found = root.project_usage(project)?;
    if found.is_limited_to(size) {
        return Ok(());
    }
    let most = found.most_bytes.map_or_else(|| "none".to_owned(), |most| format!("{most} bytes"));
    let what = format!("project {project} did not get {size} bytes as its only limit: its limit of bytes is {most}");
    Err(HostError::Unsupported { what })
}
