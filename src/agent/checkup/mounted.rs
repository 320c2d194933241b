//! The mounts of the pool's volumes, and how the filesystems and devices behind them are.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::device::label::VolumeUsage;
use crate::device::{DiskId, VolumeId};
use crate::health::{VolumeObservation, VolumePlaces};
use crate::host::{Host, HostError, Mount};
use crate::pool::{Standing, VolumeView};

/// A volume, and what its disk is asked about it.
#[derive(Clone, Debug)]
pub struct PlacedVolume {
    pub id: VolumeId,
    pub places: VolumePlaces,
    node: PathBuf,
    /// Of its filesystem, as far as nothing else is on top; none for a block volume.
    mounts: Vec<Mount>,
    is_directory: bool,
}

/// By disk: one that hangs leaves the others their answer.
pub type ByDisk = BTreeMap<DiskId, Vec<PlacedVolume>>;

/// Where each volume is expected to be mounted.
pub type Expected = BTreeMap<VolumeId, BTreeSet<PathBuf>>;

/// The rows of the mount table, found by what is known of a volume.
struct TableIndex<'a> {
    by_source: BTreeMap<&'a str, Vec<&'a Mount>>,
    /// The last one is the topmost.
    by_target: BTreeMap<&'a Path, Vec<&'a Mount>>,
}

impl<'a> TableIndex<'a> {
    fn of(table: &'a [Mount]) -> Self {
        let mut index = Self { by_source: BTreeMap::new(), by_target: BTreeMap::new() };
        for mount in table {
            index.by_source.entry(&mount.source).or_default().push(mount);
            index.by_target.entry(&mount.target).or_default().push(mount);
        }
        index
    }

    fn at(&self, target: &Path) -> &[&'a Mount] {
        self.by_target.get(target).map(Vec::as_slice).unwrap_or_default()
    }
}

/// Finds the mounts of all volumes in one pass through the table: we mount each filesystem by the path of its node. The
/// kernel may call that by another name, and a bound device node has no name there: those are looked for where the
/// volume is expected. The number counts: the name may be that of an earlier disk, whose mount is still there.
pub fn by_disk(host: &dyn Host, views: &[VolumeView], table: &[Mount], expected: &Expected) -> ByDisk {
    let index = TableIndex::of(table);
    let mut found = ByDisk::new();
    for view in views.iter().filter(|view| view.standing == Standing::Ready) {
        let Some(record) = &view.record else { continue };
        let expected = expected.get(&view.id).into_iter().flatten();
        let mut ours: Vec<&Mount> = expected.clone().flat_map(|target| index.at(target)).copied().collect();
        let is_filesystem = matches!(record.usage, VolumeUsage::Mount(_));
        let named = view.node.to_str().filter(|_| is_filesystem).and_then(|node| index.by_source.get(node));
        ours.extend(named.into_iter().flatten().filter(|mount| expected.clone().all(|at| *at != mount.target)));
        ours.retain(|mount| host.mounts().is_from(mount, view.source()));

        let targets: BTreeSet<PathBuf> = ours.iter().map(|mount| mount.target.clone()).collect();
        let is_covered = |target: &&PathBuf| index.at(target).last().is_some_and(|top| !ours.contains(top));
        let places = VolumePlaces {
            capacity: view.size,
            covered: targets.iter().chain(expected).filter(is_covered).cloned().collect(),
            is_writable: ours.iter().any(|mount| mount.options.iter().all(|option| option != "ro")),
            targets,
        };
        // A question at a covered target would be about what covers it.
        let can_be_asked = |mount: &&Mount| is_filesystem && !places.covered.contains(&mount.target);
        let mounts = ours.into_iter().filter(can_be_asked).cloned().collect();
        let is_directory = view.directory.is_some();
        let volume = PlacedVolume { id: view.id, places, node: view.node.clone(), mounts, is_directory };
        found.entry(view.disk.clone()).or_default().push(volume);
    }
    found
}

/// Looks at the volumes of one disk. It may block for as long as the disk does.
pub fn observe(host: &Arc<dyn Host>, volumes: Vec<PlacedVolume>) -> Vec<(VolumeId, VolumeObservation)> {
    volumes.into_iter().map(|volume| (volume.id, of_volume(host, volume))).collect()
}

fn of_volume(host: &Arc<dyn Host>, volume: PlacedVolume) -> VolumeObservation {
    let PlacedVolume { id: _, places, node, mounts, is_directory } = volume;
    let device = host.mounts().device_limits(&node);
    let mut observation = VolumeObservation { places, device, ..VolumeObservation::default() };
    for mount in &mounts {
        match host.mounts().filesystem_state(mount) {
            // All mounts of a volume are of one filesystem.
            Ok(state) if observation.state.is_none() => {
                observation.state = Some(state);
                // That of a filesystem which others use as well says nothing of this volume.
                observation.usage = host.mounts().usage(&mount.target).ok().filter(|_| !is_directory);
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
