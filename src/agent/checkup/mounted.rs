//! The mounts of the pool's volumes, and how the filesystems and devices behind them are.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::device::label::VolumeUsage;
use crate::device::{DiskId, VolumeId};
use crate::health::{AnsweredAt, SeenUsage, TargetsByVolume, VolumeObservation, VolumePlaces};
use crate::host::{DeviceLimits, FsUsage, Host, HostError, Mount};
use crate::pool::{OWN_FOLDER, Standing, VolumeView};

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

impl PlacedVolume {
    /// A mount of its filesystem that can be written.
    pub fn writable(&self) -> Option<&Mount> {
        self.mounts.iter().find(|mount| mount.options.iter().all(|option| option != "ro"))
    }
}

/// By disk: one that hangs leaves the others their answer.
pub type ByDisk = BTreeMap<DiskId, Vec<PlacedVolume>>;

/// `/`, the folder of all volumes, and that of one.
const FOLDER_PARTS: usize = 3;

/// The folder of a volume that a mount would be of. On a filesystem of an administrator it is one folder deeper.
fn folder_of(mount: &Mount) -> PathBuf {
    let is_deeper = mount.root.strip_prefix("/").is_ok_and(|root| root.starts_with(OWN_FOLDER));
    mount.root.components().take(FOLDER_PARTS + usize::from(is_deeper)).collect()
}

/// The rows of the mount table, found by what is known of a volume.
struct TableIndex<'a> {
    by_source: BTreeMap<&'a str, Vec<&'a Mount>>,
    /// By source and the folder that a volume would be: thousands of volumes have one source.
    by_folder: BTreeMap<&'a str, BTreeMap<PathBuf, Vec<&'a Mount>>>,
    /// The last one is the topmost.
    by_target: BTreeMap<&'a Path, Vec<&'a Mount>>,
}

impl<'a> TableIndex<'a> {
    fn of(table: &'a [Mount]) -> Self {
        let mut index = Self { by_source: BTreeMap::new(), by_folder: BTreeMap::new(), by_target: BTreeMap::new() };
        for mount in table {
            index.by_folder.entry(&mount.source).or_default().entry(folder_of(mount)).or_default().push(mount);
            index.by_source.entry(&mount.source).or_default().push(mount);
            index.by_target.entry(&mount.target).or_default().push(mount);
        }
        index
    }

    /// What its node is mounted from by name, as far as it may be of the volume.
    fn of_volume(&self, view: &VolumeView) -> &[&'a Mount] {
        let Some(node) = view.node.to_str() else { return &[] };
        let found = match &view.directory {
            None => self.by_source.get(node),
            Some(directory) => self.by_folder.get(node).and_then(|folders| folders.get(&directory.root)),
        };
        found.map(Vec::as_slice).unwrap_or_default()
    }

    fn at(&self, target: &Path) -> &[&'a Mount] {
        self.by_target.get(target).map(Vec::as_slice).unwrap_or_default()
    }
}

/// Finds the mounts of all volumes in one pass through the table: we mount each filesystem by the path of its node. The
/// kernel may call that by another name, and a bound device node has no name there: those are looked for where the
/// volume is expected. The number counts: the name may be that of an earlier disk, whose mount is still there.
pub fn by_disk(host: &dyn Host, views: &[VolumeView], table: &[Mount], expected: &TargetsByVolume) -> ByDisk {
    let index = TableIndex::of(table);
    let mut found = ByDisk::new();
    for view in views.iter().filter(|view| view.standing == Standing::Ready) {
        let Some(record) = &view.record else { continue };
        let expected = expected.get(&view.id).into_iter().flatten();
        let mut ours: Vec<&Mount> = expected.clone().flat_map(|target| index.at(target)).copied().collect();
        let is_filesystem = matches!(record.usage, VolumeUsage::Mount(_));
        let named = if is_filesystem { index.of_volume(view) } else { &[] };
        ours.extend(named.iter().copied().filter(|mount| expected.clone().all(|at| *at != mount.target)));
        ours.retain(|mount| host.mounts().is_from(mount, view.source()));
        // Nobody uses that folder, and its disk is looked at by itself.
        if view.directory.is_some() && ours.is_empty() && expected.clone().next().is_none() {
            continue;
        }

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
    let mut nodes = BTreeMap::new();
    let mut observed = Vec::new();
    for volume in volumes {
        let ask = || SeenNode { device: host.mounts().device_limits(&volume.node), shared: None };
        let node = nodes.entry(volume.node.clone()).or_insert_with(ask);
        observed.push((volume.id, of_volume(host, volume, node)));
    }
    observed
}

/// What is asked once for all volumes with one device node: folders share it, and the filesystem on it.
struct SeenNode {
    device: Option<DeviceLimits>,
    /// `None`: none of them has answered yet.
    shared: Option<FsUsage>,
}

fn of_volume(host: &Arc<dyn Host>, volume: PlacedVolume, node: &mut SeenNode) -> VolumeObservation {
    let PlacedVolume { id: _, places, node: _, mounts, is_directory } = volume;
    let mut usage_at = |target: &Path| match is_directory {
        true => {
            node.shared = node.shared.or_else(|| host.mounts().usage(target).ok());
            node.shared.map(SeenUsage::Shared)
        }
        false => host.mounts().usage(target).ok().map(SeenUsage::Own),
    };
    let (mut hidden, mut state, mut usage, mut has_failed) = (BTreeSet::new(), None, None, false);
    for mount in &mounts {
        match host.mounts().filesystem_state(mount) {
            // All mounts of a volume are of one filesystem.
            Ok(found) => {
                state = state.or(Some(found));
                // xfs that has shut down says so, and not how much of it is used.
                usage = usage.or_else(|| usage_at(&mount.target));
            }
            Err(HostError::Changed { .. }) if is_still_there(host, mount) => {
                hidden.insert(mount.target.clone());
            }
            // It has just been unmounted, or cannot be read: that is no finding.
            Err(_) => has_failed = true,
        }
    }
    let answered = match (has_failed, &state) {
        (false, _) => AnsweredAt::EachMount,
        (true, Some(_)) => AnsweredAt::SomeMount,
        (true, None) => AnsweredAt::NoMount,
    };
    VolumeObservation { places, hidden, state, usage, device: node.device, answered }
}

fn is_still_there(host: &Arc<dyn Host>, mount: &Mount) -> bool {
    host.mounts().table().is_ok_and(|table| table.contains(mount))
}
