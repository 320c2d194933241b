//! Local PersistentVolumes of other provisioners in the DevicePool: what the controller wants looked at, and what the
//! agent found. Pure but for the time of what is new.

use crate::api::crd::{DevicePoolStatus, WatchedVolume, WatchedVolumeStatus};
use crate::claim::VolumeMode;
use crate::health::{Board, PathClaim, PathIdentity, PathKind, PathReport, WatchedPath};
use crate::operator::{bytes::unsigned, status::health};

pub fn path(volume: &WatchedVolume) -> WatchedPath {
    let WatchedVolume { name, uid, path, capacity, volume_mode, mount_point, claim_uid, identity } = volume.clone();
    let kind = match volume_mode {
        VolumeMode::Filesystem => PathKind::Filesystem,
        VolumeMode::Block => PathKind::Block,
    };
    let (path, capacity) = (path.into(), unsigned(capacity));
    let claim = claim_uid.map(|uid| PathClaim { uid: uid.into(), identity });
    WatchedPath { volume: name.into(), uid: uid.into(), path, capacity, kind, is_mounted: mount_point, claim }
}

/// Until the first checkup, what an earlier agent found stays. `agent` is the process that writes it.
pub fn statuses(board: &Board, before: &DevicePoolStatus, agent: &str) -> Vec<WatchedVolumeStatus> {
    let Some(reports) = board.paths() else { return before.persistent_volumes.clone() };
    let status = |PathReport { watched, is_mount_point, identity, condition }| {
        let WatchedPath { volume: name, uid, .. } = watched;
        let known = before.persistent_volumes.iter().find(|known| uid == *known.uid);
        let health = health::entries(known.map_or(&[], |known| &known.health), &condition, Some(agent));
        let (claim_uid, identity) = identity.map(|PathIdentity { claim, name }| (claim.to_string(), name)).unzip();
        let (name, uid) = (name.to_string(), uid.to_string());
        WatchedVolumeStatus { name, uid, mount_point: is_mount_point, claim_uid, identity, health }
    };
    reports.into_iter().map(status).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use jiff::Timestamp;

    use super::*;
    use crate::health::{CheckupResult, PathResult};

    #[test]
    fn which_filesystem_is_there_goes_into_the_status_with_the_claim_for_which_it_was_looked_at() {
        let volume = |claim: &str| WatchedVolume {
            name: "v".to_owned(),
            uid: "u".to_owned(),
            path: "/x".to_owned(),
            capacity: 1,
            volume_mode: VolumeMode::Filesystem,
            mount_point: true,
            claim_uid: Some(claim.to_owned()),
            identity: Some("fs-1".to_owned()),
        };
        let board = Board::default();
        board.watch(vec![path(&volume("first"))]);
        let is = |uid: &str| Some(PathClaim { uid: uid.into(), identity: Some("fs-1".to_owned()) });
        assert_eq!(board.watched()[0].claim, is("first"));
        let identity = Some(PathIdentity { claim: "first".into(), name: "fs-2".to_owned() });
        let paths = [("u".into(), PathResult { identity, ..PathResult::default() })].into();
        board.update(CheckupResult { paths, ..CheckupResult::default() }, Timestamp::UNIX_EPOCH, Duration::ZERO);
        let said = || {
            let status = statuses(&board, &DevicePoolStatus::default(), "a").remove(0);
            (status.claim_uid.unwrap_or_default(), status.identity.unwrap_or_default())
        };
        assert_eq!(said(), ("first".to_owned(), "fs-2".to_owned()));
        board.watch(vec![path(&volume("second"))]);
        assert_eq!(said(), ("first".to_owned(), "fs-2".to_owned()), "nobody has looked for the second one yet");
    }
}
