//! A pool filesystem is made once, mounted at a place of its own, and read.
//!
//! Making it is a fact that the table records, as mkfs is (docs/adr/0004-mkfs-is-a-fact.md): a bit says that it is there,
//! with its folders and its configuration file. What is not there although the bit is set is a reason not to use it, and
//! never one to make it again.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use uuid::Uuid;

use super::{DirectoryRecords, KIND, PoolFilesystem, PoolFilesystemState};
use crate::device::{Owner, label::FORMATTED};
use crate::host::{FilesystemRoot, FsIdentity, HostError, MountSource, SHORT_DEVICE_LOCK_TIMEOUT, TargetKind, chain};
use crate::pool::{
    directory::{
        CONFIG, Contents, DirectoryRecord, FOLDERS, FilesystemConfig, MAKING, RECORDS, TRASH, VOLUMES, capacity,
        record_file,
    },
    filesystem_error::FilesystemError,
    opening_error::OpeningError,
    plan::prepared,
    view::Standing,
};

/// Read, write and enter for root; the others come to volumes by mounts of their own.
const OF_ROOT: u32 = 0o700;

/// Its partition, as the table has it.
struct Place {
    node: PathBuf,
    uuid: Uuid,
    is_made: bool,
}

impl PoolFilesystem {
    /// The carrier is open: makes the filesystem if nobody has, mounts it and reads it. Open already: success.
    pub fn arrive(&self, owner: &Owner) -> Result<(), OpeningError> {
        let mut state = self.lock.lock();
        let opened = self.open(&mut state, owner);
        if let Err(error) = &opened {
            state.root = None;
            state.standing = Standing::NotReady(chain(error));
        }
        opened
    }

    fn open(&self, state: &mut PoolFilesystemState, owner: &Owner) -> Result<(), OpeningError> {
        let place = self.place()?;
        let config = FilesystemConfig::new(place.uuid, owner);
        if !place.is_made {
            let filesystems = self.host.filesystems();
            self.clear(&state.at, None)?;
            filesystems.make(KIND, &place.node, place.uuid).map_err(OpeningError::system("made"))?;
        }
        let root = self.mount(&state.at, &place)?;
        if !place.is_made {
            begin(&*root, &config).map_err(OpeningError::system("filled with its first folders"))?;
            self.carrier.lock_in_time()?.disk()?.change(|content| Ok(prepared(content)))?;
            tracing::info!(disk = %self.carrier.id, uuid = %place.uuid, "made a filesystem for volumes");
        }
        let text = root.read(Path::new(CONFIG)).map_err(OpeningError::system("read"))?;
        let text = text.ok_or_else(|| OpeningError::Config { why: "it is not there".to_owned() })?;
        config.accepts(&text).map_err(|error| OpeningError::Config { why: chain(&error) })?;
        read(state, &*root).map_err(OpeningError::system("read"))?;
        state.node = place.node;
        state.root = Some(root);
        state.standing = Standing::Ready;
        Ok(())
    }

    fn place(&self) -> Result<Place, OpeningError> {
        let mut carrier = self.carrier.lock_within(SHORT_DEVICE_LOCK_TIMEOUT)?;
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
            // The disk that is away may still be mounted with its UUID, as pods use it.
            let options = ["nouuid".to_owned()];
            mounts.mount(&place.node, at, KIND, &options).map_err(OpeningError::system("mounted"))?;
        }
        mounts.open_root(at, &place.node).map_err(OpeningError::system("opened"))
    }

    /// Takes away what an earlier disk of this id has left at its place; what `kept` is the node of stays.
    fn clear(&self, at: &Path, kept: Option<&Path>) -> Result<Cleared, OpeningError> {
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

    /// Its disk left: the handle goes, what it held is remembered.
    pub fn leave(&self) {
        let Ok(mut state) = self.lock_within(SHORT_DEVICE_LOCK_TIMEOUT) else { return };
        state.root = None;
        state.standing = Standing::Missing;
        if let Err(error) = self.host.mounts().detach(&state.at) {
            tracing::warn!(disk = %self.carrier.id, error = %chain(&error), "the mount of a filesystem that is gone stays");
        }
    }

    /// Whether nothing is on it, and nothing is left of what was.
    pub fn can_release(&self) -> Result<(), FilesystemError> {
        let shown = self.shown();
        if let Some(why) = shown.standing.why_away() {
            return Err(FilesystemError::Away { disk: self.carrier.id.clone(), why });
        }
        match (shown.volumes.len(), shown.trash.len()) {
            (0, 0) => Ok(()),
            (volumes, erasing) => Err(FilesystemError::NotEmpty { volumes, erasing }),
        }
    }

    /// It has no volumes, and is not mounted for the pool any more: its disk can be released.
    pub fn prepare_release(&self) -> Result<(), FilesystemError> {
        let mut state = self.lock_in_time()?;
        self.can_release()?;
        state.root = None;
        state.standing = Standing::NotReady("it is being released".to_owned());
        let unchanged = |source| FilesystemError::Unchanged { disk: self.carrier.id.clone(), source };
        self.host.mounts().unmount(&state.at).map_err(unchanged)
    }
}

/// What is at the place of a mount.
#[derive(PartialEq, Eq)]
enum Cleared {
    Free,
    Kept,
}

/// The configuration file last: it says that all the others are there.
fn begin(root: &dyn FilesystemRoot, config: &FilesystemConfig) -> Result<(), HostError> {
    FOLDERS.iter().try_for_each(|folder| root.make_folder(Path::new(folder), OF_ROOT))?;
    root.write(Path::new(CONFIG), &config.text())
}

/// Takes in what is there, and ends what was begun.
fn read(state: &mut PoolFilesystemState, root: &dyn FilesystemRoot) -> Result<(), HostError> {
    for name in root.names(Path::new(MAKING))? {
        // It never was a volume.
        root.rename(&Path::new(MAKING).join(&name), &Path::new(TRASH).join(Uuid::new_v4().simple().to_string()))?;
    }
    let contents = Contents::of(&root.names(Path::new(VOLUMES))?, &root.names(Path::new(RECORDS))?);
    for name in &contents.strange {
        tracing::warn!(at = %state.at.display(), name, "a folder among the volumes is none; it is not touched");
    }
    for id in &contents.stale {
        root.remove_file(&record_file(*id))?;
    }
    let mut volumes: DirectoryRecords = BTreeMap::new();
    for id in contents.volumes {
        let text = root.read(&record_file(id))?;
        let record = text.map(|text| DirectoryRecord::parse(&text)).transpose().unwrap_or_else(|error| {
            tracing::error!(volume = %id, error = %chain(&error), "the record of a volume cannot be read");
            None
        });
        volumes.insert(id, record);
    }
    state.volumes = Arc::new(volumes);
    state.trash = root.names(Path::new(TRASH))?;
    state.capacity = capacity(root.usage()?.total);
    Ok(())
}
