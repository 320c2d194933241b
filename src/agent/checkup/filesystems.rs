//! The filesystems that an administrator named: looks at their paths, and gives new ones their diskUUID. One that hangs
//! leaves the others their answer.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use uuid::Uuid;

use super::asking::{Answered, Asking};
use crate::device::{DiskId, Owner};
use crate::health::{FilesystemBoard, FilesystemReport};
use crate::host::timeout::Late;
use crate::host::{DevNo, FsKind, Host, Mount, MountSource, MountedFilesystem, SharedError, timeout};
use crate::pool::{
    ConfigFile, FilesystemFacts, FilesystemLook, FilesystemVerdict, LookedAt, NamedFilesystem, NoDefaultDisk, Pool,
    Whose, begin_config, judge, read_config,
};

/// Asks what is mounted at the path of each name.
pub struct FilesystemCheckup {
    asking: Asking<PathBuf, FilesystemLook>,
    /// What was seen last; it counts until there is another answer.
    last: BTreeMap<PathBuf, FilesystemLook>,
    /// Looks that write. One that hangs may go on whenever it can.
    beginning: BTreeMap<PathBuf, Late>,
}

/// What is localpool's own, and of which node and cluster it is.
struct OwnDevices {
    owner: Owner,
    /// Devices of the pool's filesystems.
    filesystems: BTreeSet<DevNo>,
    /// Nodes of volumes that are devices.
    volumes: Vec<PathBuf>,
}

impl OwnDevices {
    fn of(host: &dyn Host, pool: &Pool) -> Self {
        let own = host.own_mounts();
        let table = host.mounts().table().unwrap_or_default();
        // A named filesystem is mounted there again while the pool uses it, and is an administrator's all the same.
        let is_named = |mount: &Mount| {
            mount.target.file_name().is_some_and(|name| DiskId::named(name.to_string_lossy()).is_filesystem())
        };
        let is_own = |mount: &&Mount| mount.target.starts_with(&own) && !is_named(mount);
        let filesystems = table.iter().filter(is_own).map(|mount| mount.device);
        let volumes = pool.volumes().into_iter().filter(|view| view.directory.is_none()).map(|view| view.node);
        Self { owner: pool.owner().clone(), filesystems: filesystems.collect(), volumes: volumes.collect() }
    }

    fn whose(&self, host: &dyn Host, found: &MountedFilesystem) -> Option<Whose> {
        if found.is_of_system {
            return Some(Whose::System);
        }
        let is_from = |node: &PathBuf| host.mounts().is_from(&found.mount, MountSource::whole(node));
        let is_ours = self.filesystems.contains(&found.mount.device) || self.volumes.iter().any(is_from);
        is_ours.then_some(Whose::Localpool)
    }
}

/// What a look may change.
#[derive(Clone)]
enum Begins {
    Nothing,
    /// The filesystem of this device gets this diskUUID, if it has none, and it is not late.
    With(DevNo, Uuid, Late),
}

impl FilesystemCheckup {
    pub fn new() -> Self {
        Self { asking: Asking::new(), last: BTreeMap::new(), beginning: BTreeMap::new() }
    }

    /// Looks at each path; gives whether what is reported has changed.
    pub fn check(&mut self, host: &Arc<dyn Host>, pool: &Pool, board: &FilesystemBoard, answered: &Answered) -> bool {
        let unnamed = board.unnamed();
        let is_looked_at = |disk: &NamedFilesystem| disk.refused().is_none();
        let all = board.named().into_iter().map(|(disk, _)| disk).chain(unnamed.clone());
        let paths: BTreeSet<PathBuf> = all.filter(is_looked_at).map(|disk| disk.path).collect();
        self.asking.forget(|path| paths.contains(path));
        self.last.retain(|path, _| paths.contains(path));
        self.end_late(|path| paths.contains(path));
        if paths.is_empty() && unnamed.is_empty() {
            return board.update(self.reports(&board.named(), host));
        }
        let ours = Arc::new(OwnDevices::of(host.as_ref(), pool));
        for path in &paths {
            self.ask(host, &ours, path, Begins::Nothing, answered);
        }
        let mut changed = false;
        for disk in &unnamed {
            let refused = |why| Some(Err(NoDefaultDisk::Entry(why)));
            let found = disk.refused().map_or_else(|| self.look_at(disk, host).fsid(), refused);
            changed |= found.is_some_and(|found| board.name_default(&disk.path, found));
        }
        let named = board.named();
        let begun = self.begun(&named, host);
        self.end_late(|path| begun.contains_key(path));
        for (path, device) in begun {
            let is_hanging = self.asking.is_waiting_for(&path);
            let late = Late::default();
            self.ask(host, &ours, &path, Begins::With(device, Uuid::new_v4(), late.clone()), answered);
            if !is_hanging {
                self.beginning.insert(path, late);
            }
        }
        board.update(self.reports(&named, host)) | changed
    }

    /// Looks at other paths than these write nothing any more: the name was removed, or they hang for so long that it was
    /// reported.
    fn end_late(&mut self, goes_on: impl Fn(&Path) -> bool) {
        self.beginning.retain(|path, late| {
            let goes_on = goes_on(path);
            if !goes_on {
                late.set();
            }
            goes_on
        });
    }

    fn ask(&mut self, host: &Arc<dyn Host>, ours: &Arc<OwnDevices>, path: &Path, begins: Begins, answered: &Answered) {
        let (of, ours, asked, again) = (Arc::clone(host), Arc::clone(ours), path.to_owned(), Arc::clone(answered));
        let question = move || look(of.as_ref(), &ours, &asked, begins);
        if let Some(answer) = self.asking.ask(&path.to_owned(), host.monotonic(), question, move || again()) {
            self.last.insert(path.to_owned(), answer.what);
        }
    }

    /// The paths of those that get a diskUUID, and what is mounted there.
    fn begun(&self, named: &[(NamedFilesystem, Option<Uuid>)], host: &Arc<dyn Host>) -> BTreeMap<PathBuf, DevNo> {
        let looks = self.looks(named, host);
        let all = looked_at(named, &looks);
        let begun = all.iter().zip(judge(&all)).filter(|(_, verdict)| *verdict == FilesystemVerdict::Begin);
        let place = |one: &LookedAt<'_>| match one.look {
            FilesystemLook::Found(found) => Some((one.disk.path.clone(), found.device)),
            _ => None,
        };
        begun.filter_map(|(one, _)| place(one)).collect()
    }

    fn reports(&self, named: &[(NamedFilesystem, Option<Uuid>)], host: &Arc<dyn Host>) -> Vec<FilesystemReport> {
        let looks = self.looks(named, host);
        let all = looked_at(named, &looks);
        let report = |(one, verdict): (&LookedAt<'_>, FilesystemVerdict)| {
            let FilesystemVerdict::Judged { uuid, problem } = verdict else { return None };
            let (filesystem, device) = match one.look {
                FilesystemLook::Found(found) => (Some((found.kind.clone(), found.size)), Some(found.device)),
                _ => (None, None),
            };
            Some(FilesystemReport { disk: one.disk.clone(), uuid, filesystem, device, problem })
        };
        all.iter().zip(judge(&all)).filter_map(report).collect()
    }

    fn looks(&self, named: &[(NamedFilesystem, Option<Uuid>)], host: &Arc<dyn Host>) -> Vec<FilesystemLook> {
        named.iter().map(|(disk, _)| self.look_at(disk, host)).collect()
    }

    fn look_at(&self, disk: &NamedFilesystem, host: &Arc<dyn Host>) -> FilesystemLook {
        match self.asking.is_overdue(&disk.path, host.monotonic()) {
            true => FilesystemLook::Silent(timeout::DEVICE_TIMEOUT.as_secs()),
            false => self.last.get(&disk.path).cloned().unwrap_or(FilesystemLook::Pending),
        }
    }
}

fn looked_at<'a>(named: &'a [(NamedFilesystem, Option<Uuid>)], looks: &'a [FilesystemLook]) -> Vec<LookedAt<'a>> {
    let with_look = named.iter().zip(looks);
    with_look.map(|((disk, known), look)| LookedAt { disk, known: *known, look }).collect()
}

/// Opens what is mounted at a path, and only for as long as it looks: whoever unmounts it finds it busy meanwhile.
fn look(host: &dyn Host, ours: &OwnDevices, path: &Path, begins: Begins) -> FilesystemLook {
    let found = match host.mounts().mounted_filesystem(path) {
        Ok(Ok(found)) => found,
        Ok(Err(nothing)) => return FilesystemLook::Nothing(nothing),
        Err(error) => return FilesystemLook::Failed(error.into()),
    };
    let size = match found.root.usage() {
        Ok(usage) => usage.total,
        Err(error) => return FilesystemLook::Failed(error.into()),
    };
    let whose = ours.whose(host, &found);
    let config = match begins {
        Begins::With(device, uuid, late) if device == found.mount.device && whose.is_none() => {
            let config = begin_config(found.root.as_ref(), uuid, &ours.owner, &late);
            if config == ConfigFile::Ours(uuid) {
                tracing::info!(path = %path.display(), %uuid, "gave a filesystem its diskUUID");
            }
            config
        }
        Begins::With(..) | Begins::Nothing => read_config(found.root.as_ref(), &ours.owner),
    };
    let MountedFilesystem { mount, fsid, is_of_system: _, root } = found;
    let is_xfs = mount.fs_type == FsKind::Xfs.name();
    FilesystemLook::Found(FilesystemFacts {
        device: mount.device,
        fsid,
        size,
        is_read_only: mount.options.iter().any(|option| option == "ro"),
        whose,
        quota: is_xfs.then(|| root.quota_state().map_err(SharedError::from)),
        config,
        kind: mount.fs_type,
    })
}
