//! LocalVolume: the operator's object that names devices by their paths, read into a [`Rule`] for each class.
//!
//! Takes in a document and the node, gives out the rules or everything that is wrong with it. A rule's set is named
//! `<name>/<class>`, so that a label on a disk says which entry took it, and no LocalVolumeSet has such a name. A
//! `managementState` other than `Managed` and `Force` makes it a dry run, as the operator does not touch such objects.

use std::collections::HashMap;
use std::path::{Component, Path, PathBuf};

use serde_json::Value;

use super::metadata::{self, Metadata};
use super::node_selector::{self, Node};
use super::strict::{Case, Field, Invalid, Problems};
use super::tolerations::read_tolerations;
use crate::claim::{Blankness, Filter, NamedPaths, NodeMatch, Provisioning, Reclaim, Rule, Toleration, VolumeMode};
use crate::device::label::{ErasePolicy, Layout, SetRef};
use crate::host::FsKind;

const API_VERSION: &str = "local.storage.openshift.io/v1";
pub const KIND: &str = "LocalVolume";

/// One LocalVolume for one node: a rule for each of its classes, or everything that is wrong with it.
pub fn parse_volume(value: &Value, node: &Node, position: u32) -> Result<Vec<Rule>, Invalid> {
    let problems = Problems::default();
    let rules = read(value, node, position, &problems);
    problems.judge(rules)
}

fn read(value: &Value, node: &Node, position: u32, problems: &Problems) -> Option<Vec<Rule>> {
    let not_it = format!("is not {KIND}");
    let (metadata, mut spec) = metadata::read_object(value, (API_VERSION, KIND), &not_it, problems)?;
    let selects = node_selector::read(spec.field(&["nodeSelector"]), node);
    let tolerations = read_tolerations(&spec.field(&["tolerations"]));
    let states = [("Managed", false), ("Force", false), ("Unmanaged", true), ("Removed", true), ("", false)];
    let is_unmanaged = spec.field(&["managementState"]).one_of(&states, Case::Exact).unwrap_or(false);
    let levels = ["", "Normal", "Debug", "Trace", "TraceAll"].map(|level| (level, ()));
    // The log level of the operator's pods, which do not exist here.
    spec.field(&["logLevel"]).one_of(&levels, Case::Exact);
    let entries = spec.field(&["storageClassDevices"]).list().unwrap_or_default();
    spec.finish();

    let common = Common { metadata: metadata?, node: selects, tolerations, dry_run: is_unmanaged, position };
    let mut first_uses = FirstUses::default();
    Some(entries.into_iter().map(|entry| common.rule(read_entry(entry, &mut first_uses))).collect())
}

/// What all classes of one object have in common.
struct Common {
    metadata: Metadata,
    node: NodeMatch,
    tolerations: Vec<Toleration>,
    dry_run: bool,
    position: u32,
}

/// One entry of `storageClassDevices`.
struct ClassDevices {
    class: String,
    volume_mode: Option<VolumeMode>,
    fs: FsKind,
    named: NamedPaths,
}

impl Common {
    fn rule(&self, entry: ClassDevices) -> Rule {
        let ClassDevices { class, volume_mode, fs, named } = entry;
        let SetRef { name, uid } = &self.metadata.set;
        Rule {
            // Two classes are two owners: a disk must never match the other class by the object's UID.
            set: SetRef::new(name.of_class(&class), format!("{uid}/{class}")),
            created: self.metadata.created.unwrap_or(i64::MAX),
            position: self.position,
            node: self.node,
            tolerations: self.tolerations.clone(),
            class,
            array: None,
            layout: Layout::Whole {},
            host_mount: None,
            provisioning: Provisioning::default(),
            filesystems: None,
            filter: Filter::of_named(),
            blankness: Blankness::default(),
            min_devices: 0,
            max_devices: Some(u32::try_from(named.paths.len()).unwrap_or(u32::MAX)),
            named: Some(named),
            volume_mode,
            fs,
            erase: ErasePolicy::default(),
            reclaim: Reclaim::default(),
            dry_run: self.dry_run,
        }
    }
}

/// The first use of each class and of each path.
#[derive(Default)]
struct FirstUses {
    classes: HashMap<String, String>,
    paths: HashMap<PathBuf, String>,
}

fn read_entry(entry: Field<'_, '_>, first_uses: &mut FirstUses) -> ClassDevices {
    let mut object = entry.object();
    let class_field = object.field(&["storageClassName"]).required();
    let class = class_field.string().unwrap_or_default().to_owned();
    if class_field.is_given() && !metadata::is_object_name(&class) {
        class_field.problem(format!(
            "{class:?} is not a valid name of a StorageClass: use lower case letters, digits, '-' and '.'"
        ));
    }
    if let Some(first) = first_uses.classes.get(&class) {
        class_field.problem(format!("is at {first} too: name all devices of a class in one entry"));
    } else {
        first_uses.classes.insert(class.clone(), class_field.path().to_owned());
    }
    let modes = [("Block", Some(VolumeMode::Block)), ("Filesystem", Some(VolumeMode::Filesystem)), ("", None)];
    let volume_mode = object.field(&["volumeMode"]).one_of(&modes, Case::Any).flatten();
    let kinds = [("ext4", FsKind::Ext4), ("xfs", FsKind::Xfs), ("btrfs", FsKind::Btrfs), ("", FsKind::Ext4)];
    let fs = object.field(&["fsType"]).one_of(&kinds, Case::Exact).unwrap_or(FsKind::Ext4);
    let wipe = object.field(&["forceWipeDevicesAndDestroyAllData"]).boolean().unwrap_or(false);
    let elements = object.field(&["devicePaths"]).list().unwrap_or_default();
    let paths = elements.iter().filter_map(|element| read_path(element, first_uses)).collect();
    object.finish();
    ClassDevices { class, volume_mode, fs, named: NamedPaths { paths, wipe } }
}

fn read_path(field: &Field<'_, '_>, first_uses: &mut FirstUses) -> Option<PathBuf> {
    let text = field.string()?;
    let path = Path::new(text);
    if text.contains(['*', '?', '[']) {
        field.problem(format!(
            "{text:?} has a glob character, but a path names one device: only the paths of a LocalVolumeSet may be \
             globs"
        ));
    } else if !path.starts_with("/dev") || path.components().count() < 3 {
        field.problem(format!("{text:?} is not a device path: it must begin with /dev/"));
    } else if path.components().any(|part| part == Component::ParentDir) {
        field.problem(format!("{text:?} contains `..`: write the path without it"));
    }
    if let Some(first) = first_uses.paths.get(path) {
        field.problem(format!("{text:?} is at {first} too, but a disk can only have one class"));
    }
    first_uses.paths.entry(path.to_owned()).or_insert_with(|| field.path().to_owned());
    Some(path.to_owned())
}

#[cfg(test)]
mod tests;
