//! A folder of a pool filesystem that the node has mounted for others than localpool, where its set says.
//!
//! The pool's own mount is in the agent's mount namespace, and shows volumes and records. This one is a bind of one
//! folder in which nothing of the pool is: whoever gets it can change no volume and no record. Where it is mounted is
//! written on the filesystem itself, so it stays there, also without its set. It is made again after each start.

use std::path::{Component, Path, PathBuf};

use super::{KIND, PoolFilesystem, PoolFilesystemState};
use crate::host::{FilesystemRoot, HostError, Mount, MountSource, chain};
use crate::pool::{
    directory::{HOST, HOST_MOUNT, HostMountRecord},
    filesystem_error::FilesystemError,
    view::HostMount,
};

/// As mkfs leaves the root of a filesystem.
const OF_HOST: u32 = 0o755;

impl PoolFilesystem {
    /// Mounts it where it has to be, if it is not there. Gives whether there is news of it.
    pub(super) fn keep_host_mount(&self) -> bool {
        let mut state = self.lock.lock();
        let is_removing = state.table.read().trash().next().is_some();
        // Removals may take hours, in many turns.
        if is_removing && state.host_mount.path().is_some() {
            return false;
        }
        // One that is not open is mounted when it is.
        let Ok(root) = self.root(&state) else { return false };
        let kept = match self.mount_for_host(&state, &*root) {
            Ok(Some(at)) => HostMount::At(at),
            Ok(None) => HostMount::None,
            Err(error) => HostMount::Failed(chain(&error)),
        };
        let is_news = state.host_mount != kept;
        if is_news {
            if let Some(why) = kept.problem() {
                tracing::warn!(disk = %self.id, why, "a filesystem cannot be mounted for the node; it is tried again");
            }
            state.host_mount = kept;
        }
        is_news
    }

    /// It has to be mounted for the node, and is not.
    pub fn lacks_host_mount(&self) -> bool {
        self.is_usable() && self.shown().host_mount.problem().is_some()
    }

    fn mount_for_host(
        &self,
        state: &PoolFilesystemState,
        root: &dyn FilesystemRoot,
    ) -> Result<Option<PathBuf>, FilesystemError> {
        let record = self.host_mount_record(root)?;
        let wanted = || {
            let rule = self.carrier.rule().filter(|_| self.carrier.disk().is_some())?;
            Some(rule.host_mount.as_ref()?.join(self.id.as_str()))
        };
        let Some(at) = record.as_ref().map(|record| record.path.clone()).or_else(wanted) else { return Ok(None) };
        let mounts = self.host.mounts();
        let unshown = |source| FilesystemError::NotOnHost { at: at.clone(), source };
        let table = mounts.table().map_err(unshown)?;
        let own = table.iter().rfind(|mount| mount.target == state.at);
        // The disk was away while no agent ran, and is another device now: such a mount leads nowhere.
        let is_other = |own: &Mount, mount: &Mount| (own.device, &own.source) != (mount.device, &mount.source);
        let is_stale = |mount: &Mount| is_its_kind(mount) && own.is_some_and(|own| is_other(own, mount));
        match table.iter().rfind(|mount| mount.target == at) {
            Some(mount) if is_whole(&mount.root) && mounts.is_from(mount, source(&state.node)) => {}
            Some(mount) if !is_stale(mount) => {
                let what = "something else is mounted there: unmount it".to_owned();
                return Err(unshown(HostError::Unsupported { what }));
            }
            found => {
                if found.is_some() {
                    mounts.detach(&at).map_err(unshown)?;
                }
                root.make_folder(Path::new(HOST), OF_HOST).map_err(unshown)?;
                mounts.show_on_host(&state.at.join(HOST), &at).map_err(unshown)?;
                tracing::info!(disk = %self.id, at = %at.display(), "mounted a filesystem for others on the node");
            }
        }
        // Only now: a path that never was of any use can still be changed.
        if record.is_none() {
            root.write(Path::new(HOST_MOUNT), &HostMountRecord::new(&at).text()).map_err(unshown)?;
        }
        Ok(Some(at))
    }

    /// What is written on it; only its own name can be there.
    fn host_mount_record(&self, root: &dyn FilesystemRoot) -> Result<Option<HostMountRecord>, FilesystemError> {
        let disk = self.id.clone();
        let text = root.read(Path::new(HOST_MOUNT)).map_err(|source| FilesystemError::Unchanged { disk, source })?;
        let Some(text) = text else { return Ok(None) };
        let unread = |why: String| FilesystemError::HostMountUnread { why };
        let record = HostMountRecord::parse(&text).map_err(|error| unread(chain(&error)))?;
        let is_plain = |part: Component<'_>| matches!(part, Component::RootDir | Component::Normal(_));
        let is_own = record.path.file_name().is_some_and(|name| name == self.id.as_str());
        match is_own && record.path.is_absolute() && record.path.components().all(is_plain) {
            true => Ok(Some(record)),
            false => Err(unread(format!("{} is no path of this disk", record.path.display()))),
        }
    }

    /// Its device is gone or answers no more: nobody comes to a dead filesystem by it, and it keeps none from being
    /// mounted anew.
    pub(super) fn take_off_host(&self, state: &mut PoolFilesystemState) {
        state.host_mount = HostMount::None;
        self.on_host().iter().for_each(|mount| self.detach_from_host(mount));
    }

    /// It could not be opened now. Whoever works on it goes on, unless it has shut down: then it works again when its last
    /// mount is gone.
    pub(super) fn take_off_host_if_dead(&self, state: &mut PoolFilesystemState) {
        state.host_mount = HostMount::None;
        let is_dead = |mount: &&Mount| self.host.mounts().filesystem_state(mount).is_ok_and(|found| found.is_shut_down);
        self.on_host().iter().filter(is_dead).for_each(|mount| self.detach_from_host(mount));
    }

    fn detach_from_host(&self, Mount { target, .. }: &Mount) {
        if let Err(error) = self.host.mounts().detach(target) {
            tracing::warn!(at = %target.display(), error = %chain(&error), "the mount of a filesystem that is gone stays");
        }
    }

    /// Before its disk is released. Whoever uses it keeps it.
    pub(super) fn end_host_mount(&self, state: &mut PoolFilesystemState) -> Result<(), FilesystemError> {
        for Mount { target: at, .. } in self.on_host() {
            let in_use = |source| FilesystemError::HostMountUsed { at: at.clone(), source };
            self.host.mounts().hide_from_host(&at).map_err(in_use)?;
        }
        state.host_mount = HostMount::None;
        Ok(())
    }

    /// Where it is mounted, by what the mount table says alone: its device may be gone, and nothing was read.
    pub(super) fn on_host(&self) -> Vec<Mount> {
        let own = self.host.own_mounts();
        let table = self.host.mounts().table().unwrap_or_default();
        let is_its = |target: &Path| target.file_name().is_some_and(|name| name == self.id.as_str());
        let is_on_host = |mount: &Mount| is_its(&mount.target) && !mount.target.starts_with(&own);
        table.into_iter().filter(|mount| is_its_kind(mount) && is_on_host(mount)).collect()
    }
}

/// That folder of a pool filesystem, on whatever device it was.
fn is_its_kind(mount: &Mount) -> bool {
    mount.fs_type == KIND.name() && is_whole(&mount.root)
}

/// The whole folder, and not one that is in it.
fn is_whole(root: &Path) -> bool {
    root == Path::new("/").join(HOST)
}

fn source(node: &Path) -> MountSource<'_> {
    MountSource { device: node, root: Path::new("/host") }
}
