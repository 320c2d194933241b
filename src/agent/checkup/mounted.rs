//! The mounts of the pool's volumes, and how the filesystems on them are.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use crate::device::label::VolumeUsage;
use crate::device::{DiskId, VolumeId};
use crate::health::VolumeObservation;
use crate::host::{Host, HostError, Mount};
use crate::pool::{Standing, VolumeView};

/// The mounts of a volume with a filesystem, by disk: one disk that hangs leaves the others their answer.
pub type ByDisk = BTreeMap<DiskId, Vec<(VolumeId, Vec<Mount>)>>;

/// Where each volume is expected to be mounted.
pub type Expected = BTreeMap<VolumeId, BTreeSet<PathBuf>>;

/// Finds the mounts of all volumes in one pass through the table: we mount each by the path of its node. The kernel may
/// call that by another name; the number is asked for where a volume is not found.
pub fn by_disk(host: &dyn Host, views: &[VolumeView], table: &[Mount], expected: &Expected) -> ByDisk {
    let mut by_source: BTreeMap<&str, Vec<&Mount>> = BTreeMap::new();
    for mount in table {
        by_source.entry(&mount.source).or_default().push(mount);
    }
    let mut found = ByDisk::new();
    for view in views.iter().filter(|view| view.standing == Standing::Ready && has_filesystem(view)) {
        let mounts = view.node.to_str().and_then(|node| by_source.get(node));
        let mut mounts: Vec<Mount> = mounts.into_iter().flatten().map(|mount| (*mount).clone()).collect();
        let lost = expected.get(&view.id).map(|expected| expected - &targets(&mounts)).filter(|lost| !lost.is_empty());
        if let Some(lost) = lost {
            let at_lost = table.iter().filter(|mount| lost.contains(&mount.target));
            mounts.extend(at_lost.filter(|mount| host.mounts().is_of(mount, &view.node)).cloned());
        }
        found.entry(view.disk.clone()).or_default().push((view.id, mounts));
    }
    found
}

fn has_filesystem(view: &VolumeView) -> bool {
    view.record.as_ref().is_some_and(|record| matches!(record.usage, VolumeUsage::Mount(_)))
}

pub fn targets(mounts: &[Mount]) -> BTreeSet<PathBuf> {
    mounts.iter().map(|mount| mount.target.clone()).collect()
}

/// Looks at the filesystems of one disk. It may block for as long as the disk does.
pub fn observe(host: &Arc<dyn Host>, volumes: Vec<(VolumeId, Vec<Mount>)>) -> Vec<(VolumeId, VolumeObservation)> {
    volumes.into_iter().map(|(id, mounts)| (id, of_volume(host, &mounts))).collect()
}

fn of_volume(host: &Arc<dyn Host>, mounts: &[Mount]) -> VolumeObservation {
    let mut observation = VolumeObservation { targets: targets(mounts), ..VolumeObservation::default() };
    for mount in mounts {
        match host.mounts().filesystem_state(mount) {
            // All mounts of a volume are of one filesystem.
            Ok(state) if observation.state.is_none() => {
                observation.state = Some(state);
                observation.usage = host.mounts().usage(&mount.target).ok();
            }
            Ok(_) => {}
            Err(HostError::Changed { .. }) if is_still_there(host, mount) => {
                observation.hidden.insert(mount.target.clone());
            }
            // It has just been unmounted, or cannot be read: that is no finding.
            Err(_) => {}
        }
    }
    observation
}

fn is_still_there(host: &Arc<dyn Host>, mount: &Mount) -> bool {
    host.mounts().table().is_ok_and(|table| table.contains(mount))
}
