//! LocalVolumeSet: every field of the operator's manifests and of our additions, read into a [`Rule`].
//!
//! Takes in a file of documents and the node, gives out a rule for each valid one and an error for each
//! other. The known misspellings of the proposals' examples are accepted (`devices`, `fstype`,
//! `filesystem`, `deviceMechanicalProperty`, `size`); a second spelling with another value is not.

mod filesystems;
mod filter;
mod host_mount;

use std::collections::HashMap;

use serde_json::Value;

use self::filter::ReadFilter;
use super::documents::{self, Document};
use super::metadata::{self, Metadata};
use super::node_selector::{self, Node};
use super::set_error::SetError;
use super::strict::{Case, Field, Invalid, Object, Problem, Problems};
use super::tolerations::read_tolerations;
use super::{local_volume, quantity};
use crate::claim::{Blankness, Filter, NodeMatch, OVERPROVISION, Provisioning, Reclaim, Rule, VolumeMode};
use crate::device::{
    DeviceType, SetName,
    label::{ArrayLevel, ErasePolicy, Layout, Quota},
};
use crate::host::{FsKind, table::SLOTS};

const API_VERSION: &str = "local.storage.openshift.io/v1alpha1";
const KIND: &str = "LocalVolumeSet";
pub(super) const TYPE: (&str, &str) = (API_VERSION, KIND);
/// A partition table has 128 entries, and one of them is the label.
const MOST_PARTITIONS: i64 = SLOTS as i64 - 1;
/// Partitions are aligned to this; a smaller partition would be lost to rounding.
const LEAST_PARTITION: u64 = 1 << 20;

/// The sets and LocalVolumes of a file for one node. Sets that do not select the node are included, and marked so.
pub fn parse_sets(text: &str, node: &Node) -> (Vec<Rule>, Vec<SetError>) {
    let mut rules = Vec::new();
    let mut errors = Vec::new();
    let mut first: HashMap<(String, SetName), usize> = HashMap::new();
    for Document { number, line, value } in documents::split(text) {
        let error = |name, problems| SetError { document: number, line, name, problems };
        let value = match value {
            Ok(value) => value,
            Err(problem) => {
                errors.push(error(None, Invalid(vec![problem])));
                continue;
            }
        };
        let position = u32::try_from(rules.len()).unwrap_or(u32::MAX);
        let kind = value.get("kind").and_then(Value::as_str).unwrap_or(KIND);
        let parsed = match kind {
            local_volume::KIND => local_volume::parse_volume(&value, node, position),
            _ => parse_set(&value, node, position).map(|rule| vec![rule]),
        };
        let named = name_of(&value);
        let key = (kind.to_owned(), named.clone().unwrap_or_default());
        match (parsed, first.get(&key)) {
            (Err(problems), _) => errors.push(error(named, problems)),
            (Ok(new), None) => {
                first.insert(key, number);
                rules.extend(new);
            }
            (Ok(_), Some(earlier)) => {
                let what = format!("document {earlier} has this namespace and name already");
                errors.push(error(named, Invalid(vec![Problem { path: "metadata.name".into(), what }])));
            }
        }
    }
    (rules, errors)
}

/// Namespace and name, as far as they can be read.
fn name_of(value: &Value) -> Option<SetName> {
    let metadata = value.get("metadata")?;
    let name = metadata.get("name")?.as_str()?;
    let namespace = metadata.get("namespace").and_then(Value::as_str).unwrap_or("default");
    Some(SetName::new(namespace, name))
}

/// One set for one node, or everything that is wrong with it.
pub fn parse_set(value: &Value, node: &Node, position: u32) -> Result<Rule, Invalid> {
    let problems = Problems::default();
    let rule = read_set(value, node, position, &problems);
    problems.judge(rule)
}

fn read_set(value: &Value, node: &Node, position: u32, problems: &Problems) -> Option<Rule> {
    let neither = format!("is neither {KIND} nor {}: only these say which disks may be used", local_volume::KIND);
    let (metadata, spec) = metadata::read_object(value, (API_VERSION, KIND), &neither, problems)?;
    read_spec(spec, metadata, node, position)
}

fn read_spec(mut spec: Object<'_, '_>, metadata: Option<Metadata>, node: &Node, position: u32) -> Option<Rule> {
    let host_mount_field = spec.field(&["hostMountPath"]);
    let host_mount = host_mount::read(&host_mount_field);
    let class_name = read_class(&mut spec, &host_mount_field);
    let selects = read_nodes(&mut spec, node);
    let tolerations = read_tolerations(&spec.field(&["tolerations"]));
    let (min_devices, max_devices) = read_counts(&mut spec);
    let modes = [("Block", VolumeMode::Block), ("Filesystem", VolumeMode::Filesystem)];
    let mode_field = spec.field(&["volumeMode"]);
    let volume_mode = mode_field.one_of(&modes, Case::Any);
    let kinds = [("ext4", FsKind::Ext4), ("xfs", FsKind::Xfs), ("btrfs", FsKind::Btrfs)];
    let fs_field = spec.field(&["fsType", "fstype", "filesystem"]);
    let fs = fs_field.one_of(&kinds, Case::Exact);
    let policies = [("discard", ErasePolicy::Discard), ("zero", ErasePolicy::Zero), ("none", ErasePolicy::None)];
    let erase_field = spec.field(&["erasePolicy"]);
    let erase = erase_field.one_of(&policies, Case::Exact);
    let reclaims = [("Keep", Reclaim::Keep), ("Release", Reclaim::Release)];
    let reclaim_field = spec.field(&["reclaim"]);
    let reclaim = reclaim_field.one_of(&reclaims, Case::Exact);
    let blanks = [("Signatures", Blankness::Signatures), ("Zeros", Blankness::Zeros)];
    let blankness = spec.field(&["blankness"]).one_of(&blanks, Case::Exact);
    let dry_run = spec.field(&["dryRun"]).boolean().unwrap_or(false);
    let filter = filter::read(&mut spec);
    let layout = read_layout(&mut spec, &filter);
    let array = read_array(&mut spec, &layout, &filter);
    refuse_beside_array((&reclaim_field, reclaim), array);
    let provisioning = read_provisioning(&mut spec, &layout);
    let filesystems = filesystems::read(&mut spec, &layout, reclaim);
    host_mount::refuse_elsewhere(&host_mount_field, &layout);
    if layout.is_directory() {
        refuse_beside_directory((&mode_field, volume_mode), (&fs_field, fs), (&erase_field, erase));
    }
    spec.finish();

    let Metadata { set, created } = metadata?;
    let default_fs = if layout.is_directory() { FsKind::Xfs } else { FsKind::Ext4 };
    Some(Rule {
        set,
        created: created.unwrap_or(i64::MAX),
        position,
        node: selects,
        tolerations,
        class: class_name.to_owned(),
        array,
        layout,
        host_mount,
        provisioning,
        // No device is of a type that it takes.
        filter: if filesystems.is_some() { Filter::any_of(Vec::new()) } else { filter.rule },
        filesystems,
        blankness: blankness.unwrap_or_default(),
        named: None,
        min_devices,
        max_devices,
        volume_mode,
        fs: fs.unwrap_or(default_fs),
        erase: erase.unwrap_or_default(),
        reclaim: reclaim.unwrap_or_default(),
        dry_run,
    })
}

/// The fewest and the most devices of a node.
fn read_counts(spec: &mut Object<'_, '_>) -> (u32, Option<u32>) {
    let most = spec.field(&["maxDeviceCount"]);
    let max_devices = count(&most);
    let min_devices = count(&spec.field(&["minDeviceCount"])).unwrap_or(0);
    if max_devices.is_some_and(|max_devices| max_devices < min_devices) {
        most.problem(format!("is below minDeviceCount {min_devices}: nothing could ever be claimed"));
    }
    (min_devices, max_devices)
}

fn read_nodes(spec: &mut Object<'_, '_>, node: &Node) -> NodeMatch {
    let selects = node_selector::read(spec.field(&["nodeSelector"]), node);
    match node_selector::any_selects(&spec.field(&["nodeExclusions"]), node) {
        true => NodeMatch::NotSelected,
        false => selects,
    }
}

/// The class that offers the disks. Without one they are only mounted.
fn read_class<'v>(spec: &mut Object<'v, '_>, host_mount: &Field<'_, '_>) -> &'v str {
    let class = spec.field(&["storageClassName"]);
    let class = if host_mount.is_given() { class } else { class.required() };
    let name = class.string().unwrap_or_default();
    if class.is_given() && name.trim().is_empty() {
        class.problem("is empty");
    }
    name
}

/// The array that the disks of the set become.
fn read_array(spec: &mut Object<'_, '_>, layout: &Layout, filter: &ReadFilter) -> Option<ArrayLevel> {
    let field = spec.field(&["array"]);
    if !field.is_given() {
        return None;
    }
    if layout.is_bare() {
        field.problem("cannot be combined with the layout RawDevice: the members of an array have labels");
    }
    let is_whole = |kind: &DeviceType| !matches!(kind, DeviceType::Part | DeviceType::Lvm | DeviceType::Mpath);
    if !filter.rule.types.iter().all(is_whole) {
        field.problem("is for whole disks: leave the device types part, lvm and mpath out");
    }
    let mut object = field.object();
    let level = object.field(&["level"]).required().one_of(&[("raid0", ArrayLevel::Raid0)], Case::Exact);
    object.finish();
    level
}

fn refuse_beside_array((field, reclaim): (&Field<'_, '_>, Option<Reclaim>), array: Option<ArrayLevel>) {
    if array.is_some() && reclaim == Some(Reclaim::Release) {
        field.problem("cannot be Release with an array: its members would stay");
    }
}

fn read_provisioning(spec: &mut Object<'_, '_>, layout: &Layout) -> Provisioning {
    let percent_field = spec.field(&["overprovision"]);
    let (least, most) = (i64::from(*OVERPROVISION.start()), i64::from(*OVERPROVISION.end()));
    let percent = percent_field.integer(least, most).and_then(|percent| u32::try_from(percent).ok());
    let reserved_field = spec.field(&["reserved"]);
    let reserved = reserved_field.quantity();
    for field in [&percent_field, &reserved_field] {
        if field.is_given() && !layout.is_directory() {
            field.problem("is for the layout Directory alone");
        }
    }
    let Provisioning { reserved: no_bytes, percent: as_much } = Provisioning::default();
    Provisioning { reserved: reserved.unwrap_or(no_bytes), percent: percent.unwrap_or(as_much) }
}

/// Folders of one filesystem are no block devices, have its type, and cannot be overwritten.
fn refuse_beside_directory(
    (mode_field, mode): (&Field<'_, '_>, Option<VolumeMode>),
    (fs_field, fs): (&Field<'_, '_>, Option<FsKind>),
    (erase_field, erase): (&Field<'_, '_>, Option<ErasePolicy>),
) {
    if mode == Some(VolumeMode::Block) {
        mode_field.problem("is Block, and the layout Directory has no raw block volumes");
    }
    if fs.is_some_and(|fs| fs != FsKind::Xfs) {
        fs_field.problem("must be xfs with the layout Directory, or be left out");
    }
    if erase == Some(ErasePolicy::Zero) {
        erase_field.problem("is zero, and nothing on a filesystem that volumes share can be overwritten");
    }
}

fn count(field: &Field<'_, '_>) -> Option<u32> {
    u32::try_from(field.integer(0, i64::from(i32::MAX))?).ok()
}

fn read_layout(spec: &mut Object<'_, '_>, filter: &ReadFilter) -> Layout {
    #[derive(Clone, Copy)]
    enum LayoutName {
        Whole,
        Directory,
        RawDevice,
    }
    let named_field = spec.field(&["layout"]);
    let names =
        [("Whole", LayoutName::Whole), ("Directory", LayoutName::Directory), ("RawDevice", LayoutName::RawDevice)];
    let named = named_field.one_of(&names, Case::Exact);
    let partitioning = spec.field(&["partitioningSpec"]);
    let quota_field = spec.field(&["quota"]);
    let quota = quota_field.one_of(&[("project", Quota::Project), ("none", Quota::None)], Case::Exact);
    if quota_field.is_given() && !matches!(named, Some(LayoutName::Directory)) {
        quota_field.problem("is for the layout Directory alone");
    }
    if !partitioning.is_given() {
        return match named {
            Some(LayoutName::Directory) => Layout::Directory { quota: quota.unwrap_or(Quota::Project) },
            Some(LayoutName::RawDevice) => Layout::RawDevice {},
            Some(LayoutName::Whole) | None => Layout::Whole {},
        };
    }
    if named.is_some() {
        named_field.problem("cannot be combined with a partitioningSpec, which chooses the layout itself");
    }
    if filter.rule.types.contains(&DeviceType::Part) {
        partitioning.problem("cannot be combined with the device type Partition: a partition is not partitioned again");
    }
    read_partitioning(partitioning, filter)
}

fn read_partitioning(field: Field<'_, '_>, filter: &ReadFilter) -> Layout {
    let path = field.path().to_owned();
    let mut object = field.object();
    let size_field = object.field(&["partSize", "size"]);
    let size = size_field.quantity();
    let count_field = object.field(&["count"]);
    let count = count_field.integer(1, i64::MAX);
    let mode_field = object.field(&["mode"]);
    let dynamic = mode_field.one_of(&[("Dynamic", ())], Case::Exact).is_some();
    let written = size_field.is_given() || count_field.is_given();
    if dynamic && written {
        mode_field
            .problem("is Dynamic, which allows neither partSize nor count: each volume gets the size that it requests");
    }
    if object.is_given() && !written && !mode_field.is_given() {
        mode_field
            .problem(format!("is missing, and so are partSize and count: {path} must say how to partition the disks"));
    }
    if let Some(size) = size {
        check_part_size(&size_field, size, filter);
    }
    if let Some(count) = count.filter(|count| *count > MOST_PARTITIONS) {
        count_field.problem(format!(
            "is {count}; a disk takes at most {MOST_PARTITIONS} (128 partition entries, of which one is the label)"
        ));
    }
    object.finish();
    if dynamic {
        return Layout::Carved {};
    }
    Layout::Slots { size, count: count.and_then(|count| u32::try_from(count).ok()) }
}

fn check_part_size(field: &Field<'_, '_>, size: u64, filter: &ReadFilter) {
    if size < LEAST_PARTITION {
        field.problem(format!("is {}; a partition has at least 1Mi", quantity::format(size)));
    }
    // An explicit 0 means no minimum, so it is not compared.
    let given_min = filter.given_min.filter(|bytes| *bytes > 0);
    for (name, bound) in [("minSize", given_min), ("maxSize", filter.given_max)] {
        if let Some(bound) = bound.filter(|bound| *bound < size) {
            let (bound, size) = (quantity::format(bound), quantity::format(size));
            field.problem(format!(
                "is {size}, more than {}.{name} {bound}: such a disk could not hold one",
                filter.path
            ));
        }
    }
}

#[cfg(test)]
mod tests;
