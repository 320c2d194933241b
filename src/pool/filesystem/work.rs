//! The background work of a pool filesystem: folders of deleted volumes are removed bit by bit, one after another, limits
//! that could not be set are tried again, it is mounted for the node, and the work of its disk is done.
//!
//! What is removed belongs to nobody else, so this holds no lock meanwhile, and a filesystem that hangs has nobody wait
//! but its worker. A stop comes between two calls; the next start finds what is left in the folder itself.

use std::path::Path;
use std::sync::Arc;

use super::others::measure;
use super::{Carrier, PoolFilesystem};
use crate::host::{Emptying, FilesystemRoot, HostError, chain};
use crate::pool::{
    directory::{TRASH, is_of_volumes},
    erase::{GIVE_WAY, Progress, work},
    error::PoolError,
    filesystem_error::FilesystemError,
};

/// How many entries are removed before others have their turn.
const AT_ONCE: usize = 1000;

impl PoolFilesystem {
    pub fn work(&self) -> Result<Progress, PoolError> {
        self.limit_again()?;
        if self.keep_host_mount() {
            return Ok(Progress::Worked);
        }
        if self.is_usable() && self.remove_some()? {
            std::thread::sleep(GIVE_WAY);
            return Ok(Progress::Worked);
        }
        let done = self.work_of_carrier()?;
        // Nothing is left but what cannot be removed; or somebody deleted a volume meanwhile, and found this worker
        // still at it. Whoever has begun since does that.
        let has_more = done == Progress::Idle && self.is_usable() && self.is_erasing();
        if !has_more || !self.carrier.worker().begin() {
            return Ok(done);
        }
        match self.shown().table.change().trash_mut().take_stuck() {
            None => Ok(Progress::Worked),
            Some((why, count)) => Err(FilesystemError::NotRemoved { why, count }.into()),
        }
    }

    fn work_of_carrier(&self) -> Result<Progress, PoolError> {
        match &self.carrier {
            Carrier::Disk(disk) => Ok(work(disk)?),
            Carrier::Mount(mount) => {
                let state = self.lock.lock();
                let measured = self.root(&state).map_or(Ok(()), |root| measure(&self.carrier, &state, &*root));
                // Under the lock: who gives work from now on finds no worker, and starts one.
                mount.worker.end();
                Ok(measured.map(|()| Progress::Idle)?)
            }
        }
    }

    /// A bounded part of the next folder; false: there is none. What cannot be removed waits until all else is gone.
    fn remove_some(&self) -> Result<bool, PoolError> {
        let (root, name) = {
            let state = self.lock.lock();
            let Some(name) = state.table.read().trash().next().map(str::to_owned) else { return Ok(false) };
            (self.root(&state)?, name)
        };
        let folder = Path::new(TRASH).join(&name);
        let removed = match root.empty_some(&folder, AT_ONCE) {
            Ok(Emptying::Begun) => {
                self.lock.lock().table.change().trash_mut().end_turn();
                return Ok(true);
            }
            Ok(Emptying::Empty) => match self.unfreed(&root, &folder) {
                Ok(None) => root.remove_empty(&folder),
                Ok(Some(_)) if self.is_awaited(&name) => return Ok(true),
                Ok(Some(why)) => Err(HostError::Kept { path: folder.display().to_string(), why, others: 0 }),
                Err(error) => Err(error),
            },
            Err(error) => Err(error),
        };
        let state = self.lock.lock();
        let mut table = state.table.change();
        match removed {
            Ok(()) => {
                table.trash_mut().remove(&name);
                self.erased.volume();
            }
            Err(error) => {
                let why = chain(&error);
                // Where the filesystem fails, each of thousands does.
                if !table.trash().has_stuck() {
                    tracing::warn!(disk = %self.id, name, error = why, "a folder of a deleted volume cannot be removed now");
                }
                table.trash_mut().set_aside(&name, why);
            }
        }
        Ok(true)
    }

    /// Whether a folder that is empty has time still until its space is free.
    fn is_awaited(&self, name: &str) -> bool {
        let now = self.host.monotonic();
        self.lock.lock().table.change().trash_mut().await_freed(name, now)
    }

    /// What counts as an empty folder's own still, if anything does. The kernel frees what was removed a moment later,
    /// and what somebody has open when he closes it: until then it is no space for others. Where nothing is counted
    /// nobody can tell.
    fn unfreed(&self, root: &Arc<dyn FilesystemRoot>, folder: &Path) -> Result<Option<String>, HostError> {
        if !self.is_limited() {
            return Ok(None);
        }
        // Gone already, or no folder.
        let Ok(project) = root.project_of(folder) else { return Ok(None) };
        if !is_of_volumes(project) || self.shown().table.read().names_project(project) {
            return Ok(None);
        }
        let used = root.project_usage(project)?;
        // The folder itself is one.
        if used.inodes <= 1 || !self.is_usable() {
            return Ok(None);
        }
        Ok(Some(format!(
            "{} files ({} bytes) that count as its own are open still, or are elsewhere on the filesystem with its \
             project {project}",
            used.inodes - 1,
            used.bytes
        )))
    }
}
