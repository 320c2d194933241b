//! What becomes of volumes that are folders: the record first, then the folder.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;

use super::{PoolFilesystem, PoolFilesystemState};
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
        let disk = &self.carrier.id;
        let taken = || FilesystemError::Taken { disk: disk.clone() };
        let mut state = self.lock_within(timeout)?;
        let root = self.root(&state)?;
        let Site::Space(space) = site else { return Err(taken().into()) };
        if state.volumes.contains_key(&volume.id) || space.len() > state.free() {
            return Err(taken().into());
        }
        self.mark_used()?;
        let begun = journal.begin(volume.id, disk, self.known_in(&state)?)?;
        let record = DirectoryRecord::new(space.len(), volume.record.clone());
        let made = self.make(&*root, volume.id, &record);
        match made {
            Ok(()) => {
                Arc::make_mut(&mut state.volumes).insert(volume.id, Some(record));
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

    fn make(&self, root: &dyn FilesystemRoot, id: VolumeId, record: &DirectoryRecord) -> Result<(), FilesystemError> {
        let unchanged = |source| FilesystemError::Unchanged { disk: self.carrier.id.clone(), source };
        let (making, made) = (folder(MAKING, id), folder(VOLUMES, id));
        root.write(&record_file(id), &record.text()).map_err(unchanged)?;
        // A try that failed half way may have left one that is not as it should be.
        if root.names(Path::new(MAKING)).map_err(unchanged)?.contains(&id.to_string()) {
            root.rename(&making, &Path::new(TRASH).join(Uuid::new_v4().simple().to_string())).map_err(unchanged)?;
        }
        root.make_folder(&making, OF_VOLUME).map_err(unchanged)?;
        root.rename(&making, &made).map_err(self.failed())
    }

    /// A release by its set asks whether it had volumes.
    fn mark_used(&self) -> Result<(), ApplyError> {
        let mut carrier = self.carrier.lock_in_time()?;
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
        let size = state.volumes.get(&id).and_then(Option::as_ref).map_or(0, |record| record.size);
        let name = trash_name(id, size, Uuid::new_v4());
        if let Err(source) = root.rename(&folder(VOLUMES, id), &Path::new(TRASH).join(&name)) {
            // What is still in its place was not moved, and stops nobody else.
            let names = root.names(Path::new(VOLUMES));
            if names.is_ok_and(|names| names.contains(&id.to_string())) {
                return Err(FilesystemError::Unchanged { disk: self.carrier.id.clone(), source });
            }
            return self.done(&mut state, Err(self.failed()(source)));
        }
        Arc::make_mut(&mut state.volumes).remove(&id);
        state.trash.push(name);
        // Without a folder it describes nothing.
        let removed = root.remove_file(&record_file(id)).map_err(self.failed());
        self.done(&mut state, removed)
    }

    fn prove_unmounted(&self, state: &PoolFilesystemState, id: VolumeId) -> Result<(), FilesystemError> {
        let mounts = self.host.mounts();
        let unchanged = |source| FilesystemError::Unchanged { disk: self.carrier.id.clone(), source };
        let root = Path::new("/").join(folder(VOLUMES, id));
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
        let record = state.volumes.get(&id).cloned().flatten();
        let record = record.ok_or_else(|| PoolError::NotDescribed { id, disk: self.carrier.id.clone() })?;
        if required <= record.size {
            return Ok(());
        }
        let size = required.next_multiple_of(super::MIB);
        let growable_to = record.size + state.free();
        if size > growable_to {
            return Err(PoolError::CannotGrow { id, wanted: required, growable_to });
        }
        let volume = VolumeRecord { required, ..record.volume };
        Ok(self.describe(&mut state, id, DirectoryRecord::new(size, volume))?)
    }

    /// Changes the record of a volume that has one.
    pub fn change_record(&self, id: VolumeId, change: impl FnOnce(&mut VolumeRecord)) -> Result<(), FilesystemError> {
        let mut state = self.lock_in_time()?;
        let Some(mut record) = state.volumes.get(&id).cloned().flatten() else { return Ok(()) };
        change(&mut record.volume);
        self.describe(&mut state, id, record)
    }

    /// A volume whose record was lost gets it again, with the size that it was asked for with.
    pub fn describe_volume(&self, id: VolumeId, record: &VolumeRecord) -> Result<(), FilesystemError> {
        let mut state = self.lock_in_time()?;
        if state.volumes.get(&id) != Some(&None) {
            return Ok(());
        }
        let size = record.required.max(super::MIB).next_multiple_of(super::MIB);
        self.describe(&mut state, id, DirectoryRecord::new(size, record.clone()))
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
        let mut known = self.known_in(&state)?;
        // It goes without having been deleted.
        known.unseen.insert(id);
        let _begun = journal.begin(fresh, &self.carrier.id, known)?;
        let record = state.volumes.get(&id).cloned().flatten().map(|record| {
            let volume = VolumeRecord { name: name.to_owned(), found: true, ..record.volume };
            DirectoryRecord::new(record.size, volume)
        });
        // The old record stays until no folder has its id: stopped in between, the volume is still described.
        let done = record.iter().try_for_each(|record| root.write(&record_file(fresh), &record.text()));
        let done = done.and_then(|()| root.rename(&folder(VOLUMES, id), &folder(VOLUMES, fresh)));
        let done = done.and_then(|()| root.remove_file(&record_file(id))).map_err(self.failed());
        self.done(&mut state, done)?;
        let volumes = Arc::make_mut(&mut state.volumes);
        volumes.remove(&id);
        volumes.insert(fresh, record);
        Ok(())
    }

    fn describe(
        &self,
        state: &mut DeviceLockGuard<'_, PoolFilesystemState>,
        id: VolumeId,
        record: DirectoryRecord,
    ) -> Result<(), FilesystemError> {
        let root = self.root(state)?;
        // One of the two texts is there, and either describes the volume.
        let unchanged = |source| FilesystemError::Unchanged { disk: self.carrier.id.clone(), source };
        root.write(&record_file(id), &record.text()).map_err(unchanged)?;
        Arc::make_mut(&mut state.volumes).insert(id, Some(record));
        Ok(())
    }

    pub(super) fn root(&self, state: &PoolFilesystemState) -> Result<Arc<dyn FilesystemRoot>, FilesystemError> {
        let away = |why| FilesystemError::Away { disk: self.carrier.id.clone(), why };
        if let Some(why) = self.carrier.shown().standing.why_away().or_else(|| state.standing.why_away()) {
            return Err(away(why));
        }
        state.root.clone().ok_or_else(|| away(Standing::MISSING.to_owned()))
    }

    pub(super) fn failed(&self) -> impl Fn(HostError) -> FilesystemError + use<> {
        let disk = self.carrier.id.clone();
        move |source| FilesystemError::Failed { disk: disk.clone(), source }
    }

    fn done<T>(&self, state: &mut PoolFilesystemState, done: Result<T, FilesystemError>) -> Result<T, FilesystemError> {
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
