//! Disks and volumes of a pool, made up for tests.

use std::collections::{BTreeMap, BTreeSet};

use super::journal::KnownDisk;
use crate::device::SetName;
use crate::device::label::{Layout, SetRef, VolumeRecord, VolumeUsage};
use crate::host::FsKind;

/// A carved disk of the set `d/s` at `/dev/sda`, as the journal has it.
pub fn known_disk() -> KnownDisk {
    KnownDisk {
        set: SetRef::new(SetName::new("d", "s"), "u"),
        layout: Layout::Carved {},
        path: "/dev/sda".into(),
        model: None,
        hardware: None,
        size: 1,
        written: 0,
        volumes: None,
        unseen: BTreeSet::new(),
    }
}

/// A volume with XFS.
pub fn volume_record(required: u64) -> VolumeRecord {
    VolumeRecord {
        name: "v".to_owned(),
        required,
        limit: None,
        parameters: BTreeMap::new(),
        usage: VolumeUsage::Mount(FsKind::Xfs),
        fs_size: 0,
        found: false,
    }
}
