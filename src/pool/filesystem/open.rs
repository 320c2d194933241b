//! A pool filesystem is made once, mounted at a place of its own, and read.
//!
//! Making it is a fact that the table records, as mkfs is (docs/adr/0004-mkfs-is-a-fact.md): a bit says that it is
//! there, with its folders and its configuration file. What is not there although the bit is set is a reason not to use
//! it, and never one to make it again.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, RwLock};

use uuid::Uuid;

use super::found::{OF_ROOT, prove_limits};
use super::others::measure;
use super::{KIND, PoolFilesystem, PoolFilesystemState, SharedTable};
use crate::device::label::{FORMATTED, Quota};
use crate::device::{Owner, VolumeId};
use crate::host::{
    FilesystemRoot, FsIdentity, HostError, ModuleLoading, Mount, MountSource, QuotaState, SHORT_DEVICE_LOCK_TIMEOUT,
    TargetKind, chain,
};
use crate::pool::{
    directory::{
        CONFIG, Contents, DirectoryRecord, DirectoryRecords, FOLDERS, FilesystemConfig, HOST, HOST_MOUNT, MAKING,
        RECORDS, TRASH, VOLUMES, capacity, record_file, trash_size, trashed_volume,
    },
    directory_table::DirectoryTable,
    earlier::LastSeen,
    filesystem_claim::CLAIM,
    filesystem_error::{FilesystemError, RecordError},
    opening_error::OpeningError,
    plan::prepared,
    view::Standing,
};

/// Its partition, as the table has it.
struct Place {
    node: PathBuf,
    uuid: Uuid,
    is_made: bool,
}

impl PoolFilesystem {
    /// The carrier is open: makes the filesystem if nobody has, mounts it and reads it. Open already: success.
    /// `last_seen`: the volumes that it had then.
    pub fn arrive(&self, owner: &Owner, last_seen: &LastSeen) -> Result<(), OpeningError> {
        let mut state = self.lock.lock();
        let opened = self.open(&mut state, owner, last_seen);
        if let Err(error) = &opened {
            state.root = None;
            state.standing = Standing::NotReady(chain(error));
            // A filesystem that has shut down works when it is mounted again, once its last user is gone; one without
            // quota has it then. What a person switched off there, he can switch on.
            if let OpeningError::System { .. } | OpeningError::QuotaOff(QuotaState::NotCounted) = error {
                self.take_off_host_if_dead(&mut state);
                let _ = self.host.mounts().detach(&state.at);
            }
        }
        opened
    }

    fn open(&self, state: &mut PoolFilesystemState, owner: &Owner, last_seen: &LastSeen) -> Result<(), OpeningError> {
        let place = self.place()?;
        // One that is there says by itself whether limits hold on it.
        if self.is_limited() && !place.is_made {
            self.supports_quota()?;
        }
        let config = FilesystemConfig::new(place.uuid, owner);
        if !place.is_made {
            self.make_once(&state.at, &place)?;
        }
        let root = self.mount(&state.at, &place)?;
        let quota = if self.is_limited() { Quota::Project } else { Quota::None };
        prove_limits(&*root, quota)?;
        if !place.is_made {
            begin(&*root, &config).map_err(OpeningError::system("filled with its first folders"))?;
            self.carrier.disk().ok_or(OpeningError::NoEntry)?.change(|content| Ok(prepared(content)))?;
            tracing::info!(disk = %self.id, uuid = %place.uuid, "made a filesystem for volumes");
        }
        let text = root.read(Path::new(CONFIG)).map_err(OpeningError::system("read"))?;
        let text = text.ok_or_else(|| OpeningError::Config { why: "it is not there".to_owned() })?;
        config.accepts(&text).map_err(|error| OpeningError::Config { why: chain(&error) })?;
        self.take_in(state, root, place.node, last_seen)
    }

    /// Reads what is on a filesystem that was proven to be the one, and uses it from then on.
    pub(super) fn take_in(
        &self,
        state: &mut PoolFilesystemState,
        root: Arc<dyn FilesystemRoot>,
        node: PathBuf,
        last_seen: &LastSeen,
    ) -> Result<(), OpeningError> {
        let names = root.names(Path::new("")).map_err(OpeningError::system("read"))?;
        if let Some(missing) = FOLDERS.iter().find(|folder| !names.iter().any(|name| name == *folder)) {
            return Err(OpeningError::NoFolder(missing));
        }
        read(state, &*root, last_seen)?;
        self.limit_all(state, &*root).map_err(OpeningError::system("limited"))?;
        measure(&self.carrier, state, &*root)?;
        (state.node, state.root, state.standing) = (node, Some(root), Standing::Ready);
        Ok(())
    }

    pub(super) fn options(&self) -> Vec<String> {
        // The disk that is away may still be mounted with its UUID, as pods use it.
        let mut options = vec!["nouuid".to_owned()];
        options.extend(self.is_limited().then(|| "prjquota".to_owned()));
        options
    }

    fn supports_quota(&self) -> Result<(), OpeningError> {
        self.host.mounts().supports_project_quota(ModuleLoading::Allowed).map_err(OpeningError::NoQuota)
    }

    /// One that was made, and not written down before this process, has no volumes yet.
    fn make_once(&self, at: &Path, place: &Place) -> Result<(), OpeningError> {
        if self.carrier.shown().used {
            return Err(OpeningError::EarlierTable);
        }
        let filesystems = self.host.filesystems();
        let found = filesystems.identify(&place.node).map_err(OpeningError::system("looked for"))?;
        if found.is_some_and(|found| found.kind == KIND.name() && found.uuid == Some(place.uuid)) {
            return Ok(());
        }
        self.clear(at, None)?;
        filesystems.make(KIND, &place.node, place.uuid).map_err(OpeningError::system("made"))
    }

    fn place(&self) -> Result<Place, OpeningError> {
        let mut carrier = self.carrier.disk().ok_or(OpeningError::NoEntry)?.lock_within(SHORT_DEVICE_LOCK_TIMEOUT)?;
        let disk = carrier.disk()?;
        let (number, entry) = disk.content().pool_filesystem().ok_or(OpeningError::NoEntry)?;
        let (uuid, is_made) = (entry.guid, entry.attributes & FORMATTED != 0);
        Ok(Place { node: disk.disk().node(number), uuid, is_made })
    }

    /// Mounted once, for as long as the disk is here; an agent before this one may have done it.
    fn mount(&self, at: &Path, place: &Place) -> Result<Arc<dyn FilesystemRoot>, OpeningError> {
        let found = self.host.filesystems().identify(&place.node).map_err(OpeningError::system("looked for"))?;
        let is_it = |found: &FsIdentity| found.kind == KIND.name() && found.uuid == Some(place.uuid);
        match found {
            Some(found) if is_it(&found) => {}
            Some(FsIdentity { kind, uuid }) => {
                let uuid = uuid.map_or_else(|| "unknown".to_owned(), |uuid| uuid.to_string());
                return Err(OpeningError::Other { found: format!("{kind} with UUID {uuid}") });
            }
            None => return Err(OpeningError::Other { found: "no filesystem".to_owned() }),
        }
        let mounts = self.host.mounts();
        if self.clear(at, Some(&place.node))? == Cleared::Free {
            mounts.make_target(at, TargetKind::Directory).map_err(OpeningError::system("mounted"))?;
            if let Err(error) = mounts.mount(&place.node, at, KIND, &self.options()) {
                // Which words a kernel without quota has for that is not known.
                if self.is_limited() {
                    self.supports_quota()?;
                }
                return Err(OpeningError::system("mounted")(error));
            }
        }
        mounts.open_root(at, &place.node).map_err(OpeningError::system("opened"))
    }

    /// Takes away what an earlier disk of this id has left at its place; what `kept` is the node of stays.
    pub(super) fn clear(&self, at: &Path, kept: Option<&Path>) -> Result<Cleared, OpeningError> {
        let mounts = self.host.mounts();
        loop {
            let table = mounts.table().map_err(OpeningError::system("looked for"))?;
            let Some(top) = table.iter().rev().find(|mount| mount.target == at) else { return Ok(Cleared::Free) };
            if kept.is_some_and(|node| mounts.is_from(top, MountSource::whole(node))) {
                return Ok(Cleared::Kept);
            }
            if top.fs_type != KIND.name() {
                return Err(OpeningError::Occupied(at.to_owned()));
            }
            mounts.detach(at).map_err(OpeningError::system("mounted"))?;
        }
    }

    /// What is open here cannot be read any more, as when it has shut down: it is not used before it was opened again. As
    /// long as pods have volumes of it mounted, the kernel would only mount the same dead one again: then it stays as
    /// it is, and its volumes keep the reason that they have.
    pub fn prove_readable(&self) -> Result<(), FilesystemError> {
        let mut state = self.lock_within(SHORT_DEVICE_LOCK_TIMEOUT)?;
        let root = self.root(&state)?;
        match root.names(Path::new("")).map(drop).map_err(self.failed()) {
            Err(_) if self.is_held(&state) => Ok(()),
            read => self.done(&mut state, read),
        }
    }

    /// Whether somebody else has a mount of it. Of a named one an administrator has, who mounts it anew.
    fn is_held(&self, state: &PoolFilesystemState) -> bool {
        let table = self.host.mounts().table().unwrap_or_default();
        let Some(own) = table.iter().find(|mount| mount.target == state.at) else { return false };
        let on_host = self.on_host();
        let is_others = |mount: &&Mount| mount.target != state.at && !on_host.contains(mount);
        self.carrier.disk().is_some() && table.iter().filter(is_others).any(|mount| mount.device == own.device)
    }

    /// Its disk left: the handle goes, what was on it is remembered.
    pub fn leave(&self) {
        let Ok(mut state) = self.lock_within(SHORT_DEVICE_LOCK_TIMEOUT) else { return };
        state.root = None;
        state.standing = Standing::Missing;
        self.take_off_host(&mut state);
        if let Err(error) = self.host.mounts().detach(&state.at) {
            tracing::warn!(disk = %self.id, error = %chain(&error), "the mount of a filesystem that is gone stays");
        }
    }

    /// Whether nothing is on it, and nothing is left of what was.
    pub fn can_release(&self) -> Result<(), FilesystemError> {
        let shown = self.shown();
        if let Some(why) = shown.standing.why_away() {
            return Err(FilesystemError::Away { disk: self.id.clone(), why });
        }
        let table = shown.table.read();
        match (table.volumes().len(), table.trash().len()) {
            (0, 0) => Ok(()),
            (volumes, erasing) => Err(FilesystemError::NotEmpty { volumes, erasing }),
        }
    }

    /// Whoever put something there meanwhile keeps it.
    pub(super) fn prove_empty(&self, root: &dyn FilesystemRoot) -> Result<(), FilesystemError> {
        let unchanged = |source| FilesystemError::Unchanged { disk: self.id.clone(), source };
        let is_file = |name: &String| [CONFIG, HOST_MOUNT, CLAIM].iter().any(|file| name.contains(file));
        let is_ours = |name: &String| FOLDERS.contains(&name.as_str()) || name == HOST || is_file(name);
        let mut others = root.names(Path::new("")).map_err(unchanged)?;
        others.retain(|name| !is_ours(name));
        for folder in [VOLUMES, MAKING, TRASH, HOST] {
            let names = root.names(Path::new(folder)).map_err(unchanged)?;
            others.extend(names.into_iter().map(|name| format!("{folder}/{name}")));
        }
        match others.is_empty() {
            true => Ok(()),
            false => Err(FilesystemError::Others(others.join(", "))),
        }
    }

    /// It has no volumes, and is not mounted for the pool any more: its disk can be released.
    pub fn prepare_release(&self) -> Result<(), FilesystemError> {
        let mut state = self.lock_in_time()?;
        self.can_release()?;
        self.prove_empty(&*self.root(&state)?)?;
        self.end_host_mount(&mut state)?;
        // Whoever had it could write until this moment.
        self.prove_empty(&*self.root(&state)?)?;
        state.root = None;
        state.standing = Standing::NotReady("it is being released".to_owned());
        let unchanged = |source| FilesystemError::Unchanged { disk: self.id.clone(), source };
        self.host.mounts().unmount(&state.at).map_err(unchanged)
    }
}

/// What is at the place of a mount.
#[derive(PartialEq, Eq)]
pub(super) enum Cleared {
    Free,
    Kept,
}

/// The configuration file last: it says that all the others are there.
fn begin(root: &dyn FilesystemRoot, config: &FilesystemConfig) -> Result<(), HostError> {
    FOLDERS.iter().try_for_each(|folder| root.make_folder(Path::new(folder), OF_ROOT))?;
    root.write(Path::new(CONFIG), &config.text())
}

/// Takes in what is there, and ends what was begun.
fn read(state: &mut PoolFilesystemState, root: &dyn FilesystemRoot, last_seen: &LastSeen) -> Result<(), OpeningError> {
    let failed = OpeningError::system("read");
    for name in root.names(Path::new(MAKING)).map_err(&failed)? {
        // It never was a volume.
        let trash = Path::new(TRASH).join(Uuid::new_v4().simple().to_string());
        root.rename(&Path::new(MAKING).join(&name), &trash).map_err(&failed)?;
    }
    let names = |folder| root.names(Path::new(folder)).map_err(&failed);
    let contents = Contents::of(&names(VOLUMES)?, &names(RECORDS)?);
    let (trash, strange): (Vec<String>, Vec<String>) =
        names(TRASH)?.into_iter().partition(|name| trash_size(name).is_some());
    // A deletion moves the folder before the record goes.
    let deleted: BTreeSet<VolumeId> = trash.iter().filter_map(|name| trashed_volume(name)).collect();
    if let Some(lost) = contents.stale.iter().find(|id| last_seen.volumes.contains(id) && !deleted.contains(id)) {
        return Err(OpeningError::Lost(*lost));
    }
    for (folder, name) in
        contents.strange.iter().map(|name| (VOLUMES, name)).chain(strange.iter().map(|name| (TRASH, name)))
    {
        tracing::warn!(at = %state.at.display(), folder, name, "the pool has not put that there; it is not touched");
    }
    for id in &contents.stale {
        root.remove_file(&record_file(*id)).map_err(&failed)?;
    }
    let mut volumes: DirectoryRecords = BTreeMap::new();
    for id in contents.volumes {
        let record = read_record(root, id).unwrap_or_else(|error| {
            tracing::error!(volume = %id, error = chain(&error), "the record of a volume cannot be read");
            None
        });
        volumes.insert(id, record.map(Arc::new));
    }
    let capacity = capacity(root.usage().map_err(&failed)?.total);
    state.table = SharedTable(Arc::new(RwLock::new(DirectoryTable::new(volumes, trash, capacity))));
    Ok(())
}

/// `None`: there is none.
pub(super) fn read_record(root: &dyn FilesystemRoot, id: VolumeId) -> Result<Option<DirectoryRecord>, RecordError> {
    let text = root.read(&record_file(id))?;
    Ok(text.map(|text| DirectoryRecord::parse(&text)).transpose()?)
}
