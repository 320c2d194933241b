//! A pool filesystem on a mount of an administrator, over its life: mounted for the pool, left, released.
//!
//! The administrator's path is only looked at. What is done starts from the root that is open then, and later from that of
//! a mount of the pool's own, which was proven to be of the same device with the same diskUUID (docs/adr/0022).

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::below::Below;
use super::found::{aside, prove, prove_config, prove_limits, read_claim, sweep};
use super::mounted_carrier::MountedCarrier;
use super::open::Cleared;
use super::{KIND, PoolFilesystem, PoolFilesystemState};
use crate::device::{Owner, VolumeId, label::SetRef};
use crate::host::{
    DevNo, FilesystemRoot, Mount, MountSource, MountedFilesystem, SHORT_DEVICE_LOCK_TIMEOUT, TargetKind, chain,
};
use crate::pool::{
    directory::{CONFIG, VOLUMES},
    earlier::LastSeen,
    error::PoolError,
    filesystem_claim::{CLAIM, FilesystemClaim, OWN_FOLDER},
    filesystem_error::FilesystemError,
    journal_store::JournalStore,
    named_filesystem::NamedFilesystem,
    opening_error::OpeningError,
    view::Standing,
};

impl PoolFilesystem {
    /// It is at its path, as an entry says: mounts it for the pool and reads it. `is_held`: a person gave it up while it
    /// was away.
    pub fn arrive_mounted(
        &self,
        entry: NamedFilesystem,
        owner: &Owner,
        last_seen: &LastSeen,
        is_held: bool,
    ) -> Result<(), OpeningError> {
        let Some(carrier) = self.carrier.mount() else { return Err(OpeningError::NoEntry) };
        let mut state = self.lock.lock();
        state.root = None;
        carrier.change(|shown| shown.entry = entry.clone());
        let opened = self.open_mounted(&mut state, carrier, &entry, owner, last_seen);
        let opened = opened
            .and_then(|()| if is_held { self.write_claim(&state, |claim| claim.given_up = true) } else { Ok(()) });
        if let Err(error) = &opened {
            self.close(&mut state, carrier, Standing::NotReady(chain(error)));
        }
        opened
    }

    fn open_mounted(
        &self,
        state: &mut PoolFilesystemState,
        carrier: &MountedCarrier,
        entry: &NamedFilesystem,
        owner: &Owner,
        last_seen: &LastSeen,
    ) -> Result<(), OpeningError> {
        let found = prove(self.host.as_ref(), entry, carrier.uuid, owner)?;
        let claim = read_claim(&found.root, carrier.uuid, owner)?.ok_or(OpeningError::NoClaim)?;
        let node = PathBuf::from(&found.mount.source);
        let root = self.mount_again(&state.at, &node, &found)?;
        prove_config(&*root, carrier.uuid, owner)?;
        let device = found.mount.device;
        // Nothing of ours keeps the administrator's mount busy from here on.
        drop(found);
        let size = root.usage().map_err(OpeningError::system("looked at"))?.total;
        let root: Arc<dyn FilesystemRoot> = Arc::new(Below::new(root, OWN_FOLDER));
        self.prove_only_one(&*root, device, last_seen)?;
        carrier.change(|shown| (shown.claim, shown.size, shown.device) = (claim, size, Some(device)));
        prove_limits(&*root, carrier.shown().claim.quota)?;
        self.take_in(state, root, node, last_seen)?;
        carrier.change(|shown| shown.standing = Standing::Ready);
        Ok(())
    }

    /// Nobody has one of its volumes from another device: else one of the two is a copy, and both would be written.
    fn prove_only_one(
        &self,
        root: &dyn FilesystemRoot,
        device: DevNo,
        last_seen: &LastSeen,
    ) -> Result<(), OpeningError> {
        let here = root.names(Path::new(VOLUMES)).map_err(OpeningError::system("read"))?;
        let ids = here.into_iter().chain(last_seen.volumes.iter().map(VolumeId::to_string));
        let in_filesystem = |id: String| self.carrier.in_filesystem(&Path::new(VOLUMES).join(id));
        let folders: BTreeSet<PathBuf> = ids.map(|id| Path::new("/").join(in_filesystem(id))).collect();
        let mounts = self.host.mounts();
        let table = mounts.table().map_err(OpeningError::system("looked for"))?;
        // A disk that was unplugged may be back as another device: what pods still have of it, nobody writes to.
        let is_dead = |mount: &Mount| mounts.filesystem_state(mount).is_ok_and(|found| found.is_shut_down);
        let is_other = |mount: &Mount| mount.device != device && folders.contains(&mount.root);
        match table.into_iter().find(|mount| is_other(mount) && !is_dead(mount)) {
            Some(mount) => Err(OpeningError::Elsewhere { at: mount.target, source_device: mount.source }),
            None => Ok(()),
        }
    }

    /// Mounts the device of a mount for the pool, and opens its root.
    fn mount_again(
        &self,
        at: &Path,
        node: &Path,
        found: &MountedFilesystem,
    ) -> Result<Arc<dyn FilesystemRoot>, OpeningError> {
        let mounts = self.host.mounts();
        if !mounts.is_from(&found.mount, MountSource::whole(node)) {
            return Err(OpeningError::NoDevice(node.to_owned()));
        }
        if self.clear(at, Some(node))? == Cleared::Free {
            mounts.make_target(at, TargetKind::Directory).map_err(OpeningError::system("mounted"))?;
            mounts.mount(node, at, KIND, &self.options()).map_err(OpeningError::system("mounted"))?;
        }
        let root = mounts.open_root(at, node).map_err(OpeningError::system("opened"))?;
        let table = mounts.table().map_err(OpeningError::system("looked for"))?;
        match table.iter().rfind(|mount| mount.target == at).is_some_and(|mount| mount.device == found.mount.device) {
            true => Ok(root),
            false => Err(OpeningError::NoDevice(node.to_owned())),
        }
    }

    /// It is not at its path any more, or must not be used. False: it is busy with an operation that does not end.
    pub fn leave_mounted(&self, standing: Standing) -> bool {
        let (Some(carrier), Ok(mut state)) = (self.carrier.mount(), self.lock_within(SHORT_DEVICE_LOCK_TIMEOUT)) else {
            return false;
        };
        self.close(&mut state, carrier, standing);
        true
    }

    fn close(&self, state: &mut PoolFilesystemState, carrier: &MountedCarrier, standing: Standing) {
        state.root = None;
        state.standing = standing.clone();
        carrier.change(|shown| shown.standing = standing);
        if let Err(error) = self.host.mounts().detach(&state.at) {
            tracing::warn!(disk = %self.id, error = %chain(&error), "the mount of a filesystem that is not used stays");
        }
    }

    /// The set that has it from now on.
    pub fn rename_set(&self, set: SetRef) -> Result<(), OpeningError> {
        let state = self.lock.lock();
        self.write_claim(&state, |claim| claim.set = set)
    }

    /// A person decided that it is used again, with all that is on it.
    pub fn take_back(&self) -> Result<(), OpeningError> {
        let state = self.lock.lock();
        self.write_claim(&state, |claim| claim.given_up = false)
    }

    fn write_claim(
        &self,
        state: &PoolFilesystemState,
        change: impl FnOnce(&mut FilesystemClaim),
    ) -> Result<(), OpeningError> {
        let Some(carrier) = self.carrier.mount() else { return Ok(()) };
        let Some(root) = &state.root else { return Err(OpeningError::NotOpen) };
        let mut claim = carrier.shown().claim.clone();
        change(&mut claim);
        root.write(Path::new(CLAIM), &claim.text()).map_err(OpeningError::system("marked"))?;
        carrier.change(|shown| shown.claim = claim);
        Ok(())
    }

    /// It has no volumes: the pool's folder goes, and nothing else. Whoever has put something into it keeps it.
    pub fn release_mounted(&self, journal: &JournalStore) -> Result<(), PoolError> {
        let mut state = self.lock_in_time()?;
        self.can_release()?;
        let Some(carrier) = self.carrier.mount() else { return Ok(()) };
        self.prove_empty(&*self.root(&state)?)?;
        let unchanged = |source| FilesystemError::Unchanged { disk: self.id.clone(), source };
        let root = self.host.mounts().open_root(&state.at, &state.node).map_err(unchanged)?;
        // First: stopped in between, no set takes what is released.
        journal.release_filesystem(&self.id)?;
        let aside = aside();
        root.rename(Path::new(OWN_FOLDER), &aside).map_err(unchanged)?;
        sweep(&*root, &aside);
        drop(root);
        self.close(&mut state, carrier, Standing::NotReady("it is being released".to_owned()));
        tracing::info!(disk = %self.id, path = %carrier.path().display(), "released a named filesystem; its {CONFIG} stays");
        Ok(())
    }
}
