//! What becomes of volumes that are folders: the record first, then the folder.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;

use super::{PoolFilesystem, PoolFilesystemState, limits::set_limit, open::read_record, others::prove_space};
use crate::device::VolumeId;
use crate::device::label::{Label, VolumeRecord};
use crate::host::{DeviceLockGuard, FilesystemRoot, HostError, MountSource};
use crate::pool::{
    directory::{DirectoryRecord, MAKING, TRASH, VOLUMES, folder, record_file, trash_name},
    error::{ApplyError, PoolError},
    filesystem_error::FilesystemError,
    journal_store::JournalStore,
    plan::{PlannedVolume, Site, relabel},
    view::Standing,
};

/// As mkfs leaves the root of a filesystem.
const OF_VOLUME: u32 = 0o755;

impl PoolFilesystem {
    /// Makes the volume where it was placed. The journal has it on the disk before the disk has it.
    pub fn create(
        &self,
        site: Site,
        volume: &PlannedVolume,
        journal: &JournalStore,
        timeout: Duration,
    ) -> Result<(), PoolError> {
        let disk = &self.id;
        let taken = || FilesystemError::Taken { disk: disk.clone() };
        let mut state = self.lock_within(timeout)?;
        let root = self.root(&state)?;
        let Site::Space(space) = site else { return Err(taken().into()) };
        prove_space(&self.carrier, &state, &*root, space.len())?;
        {
            let table = state.table.read();
            let room = table.room(self.provisioning());
            if table.volumes().contains_key(&volume.id) || space.len() > room.free.min(room.largest) {
                return Err(taken().into());
            }
        }
        self.prove_limits(&mut state, &*root)?;
        let project = self.fresh_project(&state, &*root)?;
        self.mark_used()?;
        let begun = journal.begin(volume.id, disk, self.known_in(&state, journal)?)?;
        let record = DirectoryRecord::new(space.len(), project, volume.record.clone());
        let made = self.make(&mut state, &*root, volume.id, &record);
        match made {
            Ok(()) => {
                state.table.change().insert(volume.id, Some(record));
                Ok(())
            }
            Err(error) => {
                let left_no_trace = error.left_no_trace();
                self.lost(&mut state, &error);
                drop(state);
                if left_no_trace {
                    begun.withdraw()?;
                }
                Err(error.into())
            }
        }
    }

    fn make(
        &self,
        state: &mut PoolFilesystemState,
        root: &dyn FilesystemRoot,
        id: VolumeId,
        record: &DirectoryRecord,
    ) -> Result<(), FilesystemError> {
        let unchanged = |source| FilesystemError::unchanged(&self.id, source);
        let (making, made) = (folder(MAKING, id), folder(VOLUMES, id));
        root.write(&record_file(id), &record.text()).map_err(unchanged)?;
        if let Some(project) = record.project {
            set_limit(root, project, record.size).map_err(unchanged)?;
        }
        // A try that failed half way may have left one that is not as it should be.
        if root.names(Path::new(MAKING)).map_err(unchanged)?.contains(&id.to_string()) {
            let name = Uuid::new_v4().simple().to_string();
            root.rename(&making, &Path::new(TRASH).join(&name)).map_err(unchanged)?;
            state.table.change().trash_mut().add(name);
        }
        root.make_folder(&making, OF_VOLUME).map_err(unchanged)?;
        if let Some(project) = record.project {
            root.put_in_project(&making, project).map_err(unchanged)?;
        }
        root.rename(&making, &made).map_err(self.failed())
    }

    /// A release by its set asks whether it had volumes.
    fn mark_used(&self) -> Result<(), ApplyError> {
        let Some(disk) = self.carrier.disk() else { return Ok(()) };
        let mut carrier = disk.lock_in_time()?;
        let disk = carrier.disk()?;
        if disk.content().label.used {
            return Ok(());
        }
        disk.change(|content| Ok(relabel(Label { used: true, ..content.pruned_label() })))
    }

    /// From the rename on the volume does not exist; its folder is removed in the background.
    pub fn delete(&self, id: VolumeId) -> Result<(), FilesystemError> {
        let mut state = self.lock_in_time()?;
        let root = self.root(&state)?;
        self.prove_unmounted(&state, id)?;
        let size = state.table.read().record(id).map_or(0, |record| record.size);
        let name = trash_name(id, size, Uuid::new_v4());
        if let Err(source) = root.rename(&folder(VOLUMES, id), &Path::new(TRASH).join(&name)) {
            // What is still in its place was not moved, and stops nobody else.
            let names = root.names(Path::new(VOLUMES));
            if names.is_ok_and(|names| names.contains(&id.to_string())) {
                return Err(FilesystemError::Unchanged { disk: self.id.clone(), source });
            }
            return self.done(&mut state, Err(self.failed()(source)));
        }
        {
            let mut table = state.table.change();
            table.remove(id);
            table.trash_mut().add(name);
        }
        // Without a folder it describes nothing.
        let removed = root.remove_file(&record_file(id)).map_err(self.failed());
        self.done(&mut state, removed)
    }

    fn prove_unmounted(&self, state: &PoolFilesystemState, id: VolumeId) -> Result<(), FilesystemError> {
        let mounts = self.host.mounts();
        let unchanged = |source| FilesystemError::Unchanged { disk: self.id.clone(), source };
        let root = Path::new("/").join(self.carrier.in_filesystem(&folder(VOLUMES, id)));
        let source = MountSource { device: &state.node, root: &root };
        let table = mounts.table().map_err(unchanged)?;
        match table.iter().find(|mount| mounts.is_from(mount, source)) {
            Some(mount) => Err(FilesystemError::Mounted(mount.target.display().to_string())),
            None => Ok(()),
        }
    }

    /// Grows a volume to at least `required` bytes.
    pub fn expand(&self, id: VolumeId, required: u64) -> Result<(), PoolError> {
        let mut state = self.lock_in_time()?;
        let record = state.table.read().record(id).cloned();
        let mut record = record.ok_or_else(|| PoolError::NotDescribed { id, disk: self.id.clone() })?;
        if required <= record.size {
            return Ok(());
        }
        let size = required.next_multiple_of(super::MIB);
        let root = self.root(&state)?;
        prove_space(&self.carrier, &state, &*root, size - record.size)?;
        let growable_to = state.table.read().room(self.provisioning()).growable(record.size);
        if size > growable_to {
            return Err(PoolError::CannotGrow { id, wanted: required, growable_to });
        }
        self.prove_limits(&mut state, &*root)?;
        (record.size, record.volume.required) = (size, required);
        self.resize(&mut state, &*root, id, record)
    }

    /// Changes the record of a volume that has one.
    pub fn change_record(&self, id: VolumeId, change: impl FnOnce(&mut VolumeRecord)) -> Result<(), FilesystemError> {
        let mut state = self.lock_in_time()?;
        let Some(mut record) = state.table.read().record(id).cloned() else { return Ok(()) };
        change(&mut record.volume);
        self.describe(&mut state, id, record)
    }

    /// A volume whose record was lost gets it again, with the size that it is asked for with, or what its files use. A
    /// record that can be read by now is taken as it is; one that may be sound, or is of a later version, stays.
    pub fn describe_volume(&self, id: VolumeId, record: &VolumeRecord) -> Result<(), FilesystemError> {
        let mut state = self.lock_in_time()?;
        if state.table.read().volumes().get(&id) != Some(&None) {
            return Ok(());
        }
        let root = self.root(&state)?;
        match read_record(&*root, id) {
            Ok(Some(found)) => state.table.change().insert(id, Some(found)),
            Err(source) if !source.is_lost() => {
                return Err(FilesystemError::Record { id, disk: self.id.clone(), source });
            }
            Ok(None) | Err(_) => self.describe_lost(&mut state, &*root, id, record)?,
        }
        let limited = self.limit_all(&mut state, &*root).map_err(self.failed());
        self.done(&mut state, limited)
    }

    fn describe_lost(
        &self,
        state: &mut DeviceLockGuard<'_, PoolFilesystemState>,
        root: &dyn FilesystemRoot,
        id: VolumeId,
        record: &VolumeRecord,
    ) -> Result<(), FilesystemError> {
        let unchanged = |source| FilesystemError::Unchanged { disk: self.id.clone(), source };
        let project = self.found_project(state, root, id)?;
        let used = project.map(|project| root.project_usage(project)).transpose().map_err(unchanged)?;
        let used = used.map_or(0, |usage| usage.bytes);
        let size = record.required.max(used).max(super::MIB).next_multiple_of(super::MIB);
        self.describe(state, id, DirectoryRecord::new(size, project, record.clone()))
    }

    /// Makes one of several volumes of an id another one, found, with its data as it is.
    pub fn give_other_id(
        &self,
        id: VolumeId,
        fresh: VolumeId,
        name: &str,
        journal: &JournalStore,
    ) -> Result<(), PoolError> {
        let mut state = self.lock_in_time()?;
        let root = self.root(&state)?;
        self.prove_unmounted(&state, id)?;
        let mut known = self.known_in(&state, journal)?;
        // It goes without having been deleted.
        known.unseen.insert(id);
        let _begun = journal.begin(fresh, &self.id, known)?;
        let record = state.table.read().record(id).cloned().map(|mut record| {
            (record.volume.name, record.volume.found) = (name.to_owned(), true);
            record
        });
        // The old record stays until no folder has its id: stopped in between, the volume is still described.
        let done = record.iter().try_for_each(|record| root.write(&record_file(fresh), &record.text()));
        let done = done.and_then(|()| root.rename(&folder(VOLUMES, id), &folder(VOLUMES, fresh)));
        let done = done.and_then(|()| root.remove_file(&record_file(id))).map_err(self.failed());
        self.done(&mut state, done)?;
        {
            let mut table = state.table.change();
            table.remove(id);
            table.insert(fresh, record);
        }
        // What was said of the one is to be said of the other.
        let limited = self.limit_all(&mut state, &*root).map_err(self.failed());
        Ok(self.done(&mut state, limited)?)
    }

    pub(super) fn describe(
        &self,
        state: &mut DeviceLockGuard<'_, PoolFilesystemState>,
        id: VolumeId,
        record: DirectoryRecord,
    ) -> Result<(), FilesystemError> {
        let root = self.root(state)?;
        // One of the two texts is there, and either describes the volume.
        let unchanged = |source| FilesystemError::unchanged(&self.id, source);
        root.write(&record_file(id), &record.text()).map_err(unchanged)?;
        state.table.change().insert(id, Some(record));
        Ok(())
    }

    pub(super) fn root(&self, state: &PoolFilesystemState) -> Result<Arc<dyn FilesystemRoot>, FilesystemError> {
        let away = |why| FilesystemError::Away { disk: self.id.clone(), why };
        if let Some(why) = self.carrier.shown().standing.why_away().or_else(|| state.standing.why_away()) {
            return Err(away(why));
        }
        state.root.clone().ok_or_else(|| away(Standing::MISSING.to_owned()))
    }

    pub(super) fn failed(&self) -> impl Fn(HostError) -> FilesystemError + use<> {
        let disk = self.id.clone();
        move |source| FilesystemError::Failed { disk: disk.clone(), source }
    }

    pub(super) fn done<T>(
        &self,
        state: &mut PoolFilesystemState,
        done: Result<T, FilesystemError>,
    ) -> Result<T, FilesystemError> {
        done.inspect_err(|error| self.lost(state, error))
    }

    /// After a change that failed half way nobody knows what is there: it is read again before anything else is done.
    fn lost(&self, state: &mut PoolFilesystemState, error: &FilesystemError) {
        if let FilesystemError::Failed { .. } = error {
            state.root = None;
            state.standing = Standing::NotReady(crate::host::chain(error));
        }
    }
}
