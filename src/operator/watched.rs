//! Local PersistentVolumes of other provisioners in the DevicePool: what the controller wants looked at, and what the
//! agent found. Pure but for the time of what is new.

use crate::api::crd::{DevicePoolStatus, WatchedVolume, WatchedVolumeStatus};
use crate::claim::VolumeMode;
use crate::health::{Board, PathKind, PathReport, WatchedPath};
use crate::operator::{bytes::unsigned, health};

pub fn path(volume: &WatchedVolume) -> WatchedPath {
    let WatchedVolume { name, uid, path, capacity, volume_mode, mount_point } = volume.clone();
    let kind = match volume_mode {
        VolumeMode::Filesystem => PathKind::Filesystem,
        VolumeMode::Block => PathKind::Block,
    };
    let (path, capacity) = (path.into(), unsigned(capacity));
    WatchedPath { volume: name, uid, path, capacity, kind, is_mounted: mount_point }
}

/// Until the first look, what an earlier agent found stays.
pub fn statuses(board: &Board, before: &DevicePoolStatus) -> Vec<WatchedVolumeStatus> {
    let Some(reports) = board.paths() else { return before.persistent_volumes.clone() };
    let status = |PathReport { watched, is_mount_point, condition }| {
        let WatchedPath { volume: name, uid, .. } = watched;
        let known = before.persistent_volumes.iter().find(|known| known.uid == uid);
        let health = health::entries(known.map_or(&[], |known| &known.health), &condition);
        WatchedVolumeStatus { name, uid, mount_point: is_mount_point, health }
    };
    reports.into_iter().map(status).collect()
}
