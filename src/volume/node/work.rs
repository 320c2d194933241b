//! The blocking half: does what `publish` decides.

use std::path::Path;
use std::sync::Arc;

use super::refusal::{bad_target, failed, known_path, measured, mount_failed, occupied};
use crate::device::{VolumeId, label::VolumeUsage};
use crate::health::Board;
use crate::host::{FsKind, Host, HostError, Mount, TargetAccess, TargetKind, chain};
use crate::pool::{Pool, VolumeView};
use crate::volume::error::Error;
use crate::volume::publish::{AccessType, AtTarget, agreed, at_target, may_be_a_volume, mount_text, published};
use crate::volume::request::{PublishRequest, Stats};

/// The blocking half.
pub(super) struct Work {
    pub(super) host: Arc<dyn Host>,
    pub(super) pool: Arc<Pool>,
    pub(super) health: Board,
}

/// What to do with a target once nothing is mounted there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AfterUnmount {
    KeepTarget,
    RemoveTarget,
}

impl Work {
    fn mount_table(&self) -> Result<Vec<Mount>, Error> {
        self.host.mounts().table().map_err(|e| failed("read the mount table", e))
    }

    fn ours<'a>(&self, table: &'a [Mount], view: &VolumeView) -> Vec<&'a Mount> {
        table.iter().filter(|mount| self.host.mounts().is_from(mount, view.source())).collect()
    }

    fn usable(&self, id: VolumeId) -> Result<(VolumeView, VolumeUsage), Error> {
        let view = self.pool.usable(id)?;
        let usage = view.record.as_ref().map(|record| record.usage);
        let usage = usage.ok_or_else(|| Error::Precondition(format!("volume {id} is not described")))?;
        Ok((view, usage))
    }

    /// Refuses a device that has the number of an earlier one which is still published somewhere: whoever has that node
    /// would share this volume.
    fn prove_unshared(&self, table: &[Mount], view: &VolumeView) -> Result<(), Error> {
        let Some(target) = self.host.mounts().stale_bind_of(table, &view.node) else { return Ok(()) };
        Err(Error::Precondition(format!(
            "the device of volume {}, {}, has the number of one that was published at {} and is gone: a program that \
             has that node open would share this volume; call NodeUnpublishVolume for that path, or unmount it",
            view.id,
            view.node.display(),
            target.display()
        )))
    }

    pub(super) fn stage(&self, id: VolumeId, staging: &Path, access_type: &AccessType) -> Result<(), Error> {
        let (view, usage) = self.usable(id)?;
        let (unmounts, table) = (self.health.unmounts(), self.mount_table()?);
        self.prove_unshared(&table, &view)?;
        let AccessType::Mount { flags, .. } = access_type else {
            return agreed(usage, access_type).map(drop);
        };
        let Some(kind) = agreed(usage, access_type)? else { return Ok(()) };
        match at_target(&table, &self.ours(&table, &view), staging) {
            AtTarget::This(_) => {
                self.health.mounted(id, staging, unmounts);
                return Ok(());
            }
            AtTarget::Other(what) => return Err(occupied("staging_target_path", staging, &what)),
            AtTarget::Nothing => {}
        }
        let mounts = self.host.mounts();
        if let Some(directory) = &view.directory {
            return self.stage_directory(&view, &directory.path, staging, flags);
        }
        self.ready_filesystem(&view, kind)?;
        mounts.make_target(staging, TargetKind::Directory).map_err(|e| bad_target("staging_target_path", e))?;
        mounts.mount(&view.node, staging, kind, flags).map_err(|e| mount_failed(flags, e))?;
        self.health.mounted(id, staging, self.health.unmounts());
        // A filesystem that could not grow while it was mounted, or whose partition grew while it was not, grows now.
        match kind {
            FsKind::Ext4 => Ok(()),
            FsKind::Xfs | FsKind::Btrfs => self.grow(&self.pool.usable(id)?, kind, Some(staging)),
        }
    }

    /// A folder is mounted as its filesystem is, with whatever options that has.
    fn stage_directory(&self, view: &VolumeView, path: &Path, staging: &Path, flags: &[String]) -> Result<(), Error> {
        if !flags.is_empty() {
            let flags = flags.join(",");
            let message =
                format!("mount_flags {flags} cannot be had: the volume is a folder of a filesystem that others use");
            return Err(Error::Invalid(message));
        }
        let mounts = self.host.mounts();
        mounts.make_target(staging, TargetKind::Directory).map_err(|e| bad_target("staging_target_path", e))?;
        if let Err(error) = mounts.bind(path, staging, TargetAccess::ReadWrite) {
            // A filesystem that has shut down works again when the pool has mounted it again: the next call finds it so.
            self.pool.look_again(view);
            return Err(failed("bind-mount the volume", error));
        }
        self.health.mounted(view.id, staging, self.health.unmounts());
        Ok(())
    }

    /// Grows the filesystem if the record says that it does not fill its volume.
    fn grow(&self, view: &VolumeView, kind: FsKind, mounted_at: Option<&Path>) -> Result<(), Error> {
        if view.directory.is_some() || view.record.as_ref().is_none_or(|record| record.fs_size >= view.size) {
            return Ok(());
        }
        match self.host.filesystems().grow(kind, &view.node, mounted_at) {
            Ok(()) => Ok(self.pool.mark_grown(view.id, view.size)?),
            Err(error @ HostError::Unsupported { .. }) => Err(Error::Precondition(format!(
                "the filesystem cannot grow now and will when the volume is staged next: {}",
                chain(&error)
            ))),
            Err(error) => Err(failed("grow the filesystem", error)),
        }
    }

    /// Whether mkfs ended is not probed: a bit on the disk records it.
    fn ready_filesystem(&self, view: &VolumeView, kind: FsKind) -> Result<(), Error> {
        let filesystems = self.host.filesystems();
        if !view.formatted {
            self.pool.begin_format(view.id)?;
            // The device that was proved blank has the present name; another device may have the old one by now.
            let now = self.pool.usable(view.id)?;
            if now.node != view.node {
                let (was, is) = (view.node.display(), now.node.display());
                return Err(Error::Precondition(format!(
                    "volume {} was at {was} but is at {is} now: call again",
                    view.id
                )));
            }
            filesystems.make(kind, &view.node, view.id.uuid()).map_err(|e| failed("make the filesystem", e))?;
            return Ok(self.pool.mark_formatted(view.id)?);
        }
        let found = filesystems.identify(&view.node).map_err(|e| failed("look for the filesystem", e))?;
        match found {
            Some(found) if found.kind == kind.name() && found.uuid.is_none_or(|uuid| uuid == view.id.uuid()) => {
                filesystems.check(kind, &view.node).map_err(|e| failed("check the filesystem", e))?;
                match kind {
                    FsKind::Ext4 => self.grow(view, kind, None),
                    FsKind::Xfs | FsKind::Btrfs => Ok(()),
                }
            }
            Some(found) => Err(Error::Precondition(format!(
                "volume {} was formatted with {}, and {} is there now (UUID {}): it is not touched",
                view.id,
                kind.name(),
                found.kind,
                found.uuid.map_or_else(|| "unknown".to_owned(), |u| u.to_string()),
            ))),
            None => Err(Error::Precondition(format!(
                "volume {} was formatted with {}, and no filesystem is there now: it is not touched",
                view.id,
                kind.name()
            ))),
        }
    }

    pub(super) fn publish(&self, request: &PublishRequest, staging: &Path, target: &Path) -> Result<(), Error> {
        let (view, usage) = self.usable(request.id)?;
        let kind = agreed(usage, &request.access_type)?;
        let (unmounts, table) = (self.health.unmounts(), self.mount_table()?);
        self.prove_unshared(&table, &view)?;
        let ours = self.ours(&table, &view);
        match at_target(&table, &ours, target) {
            AtTarget::This(access) if access == request.access => {
                self.health.mounted(request.id, target, unmounts);
                return Ok(());
            }
            AtTarget::This(_) => {
                let message = format!("the volume is published at {} with another readonly flag", target.display());
                return Err(Error::Exists(message));
            }
            AtTarget::Other(what) => return Err(occupied("target_path", target, &what)),
            AtTarget::Nothing => {}
        }
        let elsewhere = published(&ours, staging);
        if let Some(other) = elsewhere.first().filter(|_| request.single_target) {
            let message = format!("the volume can only be published once, and is published at {}", other.display());
            return Err(Error::Precondition(message));
        }
        match kind {
            Some(_) => self.publish_mount(&ours, staging, target, request.access)?,
            None => self.publish_block(&view, &elsewhere, target, request.access)?,
        }
        self.health.mounted(request.id, target, self.health.unmounts());
        Ok(())
    }

    fn publish_mount(&self, ours: &[&Mount], staging: &Path, target: &Path, access: TargetAccess) -> Result<(), Error> {
        if !ours.iter().any(|mount| mount.target == staging) {
            let message = format!("the volume is not staged at {}: call NodeStageVolume first", staging.display());
            return Err(Error::Precondition(message));
        }
        let mounts = self.host.mounts();
        mounts.make_target(target, TargetKind::Directory).map_err(|e| bad_target("target_path", e))?;
        mounts.bind(staging, target, access).map_err(|e| failed("bind-mount the volume", e))
    }

    /// A read-only bind of a device node still lets writers in, so the device itself is made read-only. That holds for
    /// all its targets, so they must agree.
    fn publish_block(
        &self,
        view: &VolumeView,
        elsewhere: &[&Path],
        target: &Path,
        access: TargetAccess,
    ) -> Result<(), Error> {
        let mounts = self.host.mounts();
        let is_read_only = mounts.is_read_only(&view.node).map_err(|e| failed("look at the device", e))?;
        if is_read_only != access.is_read_only() {
            if !elsewhere.is_empty() {
                let message = "a raw block volume is either read-only or writable at all its targets".to_owned();
                return Err(Error::Precondition(message));
            }
            mounts.set_access(&view.node, access).map_err(|e| failed("set the device's read-only flag", e))?;
        }
        mounts.make_target(target, TargetKind::File).map_err(|e| bad_target("target_path", e))?;
        mounts.bind(&view.node, target, access).map_err(|e| failed("bind-mount the device node", e))
    }

    /// Unmounts everything at `path`, and removes the target if `after` says so.
    pub(super) fn take_down(&self, id: VolumeId, field: &str, path: &Path, after: AfterUnmount) -> Result<(), Error> {
        let mounts = self.host.mounts();
        let table = self.mount_table()?;
        let stacked: Vec<&Mount> = table.iter().filter(|mount| mount.target == path).collect();
        if let Some(other) = self.mount_of_another(id, &stacked) {
            return Err(occupied(field, path, &mount_text(other)));
        }
        self.health.unmounted(id, path);
        for _ in &stacked {
            mounts.unmount(path).map_err(|e| bad_target(field, e))?;
        }
        if after == AfterUnmount::KeepTarget {
            return Ok(());
        }
        self.make_writable(id)?;
        mounts.remove_target(path).map_err(|e| bad_target(field, e))
    }

    /// Makes a raw block volume without a target writable again: a bare device that stayed read-only could not be
    /// erased.
    fn make_writable(&self, id: VolumeId) -> Result<(), Error> {
        let Ok((view, VolumeUsage::Block)) = self.usable(id) else { return Ok(()) };
        let (mounts, table) = (self.host.mounts(), self.mount_table()?);
        if !self.ours(&table, &view).is_empty() {
            return Ok(());
        }
        let made = mounts.is_read_only(&view.node).and_then(|is_read_only| match is_read_only {
            true => mounts.set_access(&view.node, TargetAccess::ReadWrite),
            false => Ok(()),
        });
        // A dead device must not keep a target mounted.
        if let Err(error) = made {
            tracing::warn!(volume = %id, error = %chain(&error), "the device may still be read-only");
        }
        Ok(())
    }

    /// A mount that cannot be this volume's. The remains of a mount whose disk is gone do not show whose they were;
    /// they count as the volume's, as they must be unmounted.
    fn mount_of_another<'a>(&self, id: VolumeId, stacked: &[&'a Mount]) -> Option<&'a Mount> {
        if stacked.is_empty() {
            return None;
        }
        let volumes = self.pool.volumes();
        // Of thousands of folders on one device the path tells most.
        let may_be = |view: &VolumeView, mount: &Mount| {
            view.directory.as_ref().is_none_or(|directory| mount.root.starts_with(&directory.root))
        };
        let is_of = |view: &VolumeView, mount: &Mount| {
            view.id != id && may_be(view, mount) && self.host.mounts().is_from(mount, view.source())
        };
        let is_other = |mount: &Mount| volumes.iter().any(|view| is_of(view, mount));
        stacked.iter().copied().find(|mount| !may_be_a_volume(mount) || is_other(mount))
    }

    pub(super) fn stats(&self, id: VolumeId, path: &str) -> Result<Stats, Error> {
        let view = self.pool.volume(id)?;
        let path = known_path(id, path)?;
        let condition = self.health.of_volume(&view);
        let (unmounts, table) = (self.health.unmounts(), self.mount_table()?);
        let ours = self.ours(&table, &view);
        if let AtTarget::This(_) = at_target(&table, &ours, &path) {
            // kubelet asks about what it has published: so it is expected there after a restart of the agent as well.
            self.health.mounted(id, &path, unmounts);
            let is_block = view.record.as_ref().is_some_and(|record| record.usage == VolumeUsage::Block);
            let usage = || match self.pool.quota_usage(&view) {
                Some(of_quota) => of_quota,
                None => self.host.mounts().usage(&path),
            };
            let usage = if is_block { None } else { measured(usage(), &condition)? };
            return Ok(Stats { size: view.size, usage, condition });
        }
        let is_its = ours.iter().any(|mount| mount.target == path) || self.health.targets(id).contains(&path);
        let condition = match (is_its, table.iter().any(|mount| mount.target == path)) {
            (true, true) => condition.and_covered(&path),
            (true, false) => condition.and_unmounted(&path),
            (false, true) if !condition.is_accessible() => condition,
            (false, _) => {
                return Err(Error::NotFound(format!("volume {id} is not published or staged at {}", path.display())));
            }
        };
        Ok(Stats { size: view.size, usage: None, condition })
    }

    pub(super) fn expand(&self, id: VolumeId, path: &str, required: u64) -> Result<u64, Error> {
        self.pool.volume(id)?;
        let path = known_path(id, path)?;
        let (view, usage) = self.usable(id)?;
        let table = self.mount_table()?;
        let ours = self.ours(&table, &view);
        if !ours.iter().any(|mount| mount.target == path) {
            return Err(Error::NotFound(format!("volume {id} is not published or staged at {}", path.display())));
        }
        if required > view.size {
            let message = format!("volume {id} has {} bytes, and {required} are asked for: expand it first", view.size);
            return Err(Error::OutOfRange(message));
        }
        if let VolumeUsage::Mount(kind) = usage {
            self.grow(&view, kind, Some(&path))?;
        }
        Ok(view.size)
    }
}
