//! What a NodeDiskSetup asks of disks, as the spec of a LocalVolumeSet: one array of all local disks of a node, one
//! filesystem on it, mounted at a path, and offered to a class.

use serde_json::{Map, Value, json};

use super::placement::NodePlacement;
use crate::api::crd::DEFAULT_CLASS;
use crate::api::local_volume_set::{self, parse_set};
use crate::api::node_selector::Node;
use crate::api::strict::{Invalid, Object, Problem, Problems};

pub(super) const NODE_SELECTOR: &str = "nodeSelector";
const PATH: &str = "/mnt/raid-disks";
const EXCLUSION: &str = "deviceExclusionSpec";
const NETWORK: &str = "excludeNetworkDisks";

/// Fields that it has under the names of the set. Their mistakes are found when the set is read.
const OF_SET: [&str; 5] = ["deviceInclusionSpec", EXCLUSION, "minDeviceCount", "maxDeviceCount", "quota"];
/// Fields that have another name in the set, and there what they are here.
const RENAMED: [(&str, &str); 2] = [
    ("spec.hostMountPath", "spec.localDisksPath"),
    ("spec.storageClassName", "spec.pvProvisionerOptions.storageClass"),
];

/// The spec of the set of an object.
pub(super) fn read(spec: &mut Object<'_, '_>, placement: &NodePlacement, problems: &Problems) -> Map<String, Value> {
    let mut set = Map::new();
    let is_offered = !spec.field(&["pvProvisionerDisabled"]).boolean().unwrap_or(false);
    let mut options = spec.field(&["pvProvisionerOptions"]).object();
    let class_field = options.field(&["storageClass"]);
    let class = class_field.string().unwrap_or(DEFAULT_CLASS);
    options.finish();
    if is_offered {
        set.insert("storageClassName".to_owned(), class.into());
    }
    let path = spec.field(&["localDisksPath"]).string().unwrap_or(PATH);
    for (name, value) in [("array", json!({"level": "raid0"})), ("layout", "Directory".into())] {
        set.insert(name.to_owned(), value);
    }
    set.insert("hostMountPath".to_owned(), path.into());
    set.extend(placement.node_selector.clone().map(|selector| (NODE_SELECTOR.to_owned(), selector)));
    set.extend(placement.tolerations.clone().map(|tolerations| ("tolerations".to_owned(), tolerations)));
    for name in OF_SET {
        set.extend(spec.field(&[name]).value().map(|value| (name.to_owned(), value.clone())));
    }
    exclude_network(spec, &mut set);
    check(&set, problems);
    set
}

/// Whatever else is excluded, disks of a network are.
fn exclude_network(spec: &mut Object<'_, '_>, set: &mut Map<String, Value>) {
    let exclusion = set.entry(EXCLUSION).or_insert_with(|| json!({}));
    let Some(exclusion) = exclusion.as_object_mut() else { return };
    if exclusion.insert(NETWORK.to_owned(), true.into()) == Some(Value::Bool(false)) {
        let why = "cannot be false: a NodeDiskSetup takes local disks alone; make a LocalVolumeSet for others";
        spec.field(&[EXCLUSION]).problem(format!("{NETWORK} {why}"));
    }
}

/// Reads the set as an agent does.
fn check(spec: &Map<String, Value>, problems: &Problems) {
    let (api_version, kind) = local_volume_set::TYPE;
    let set = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "a"}, "spec": spec});
    let Err(Invalid(found)) = parse_set(&set, &Node::standalone("any"), 0) else { return };
    // The placement has said what is wrong with it.
    let is_of_placement =
        |path: &str| ["spec.nodeSelector", "spec.tolerations"].iter().any(|one| path.starts_with(one));
    for Problem { path, what } in found.into_iter().filter(|problem| !is_of_placement(&problem.path)) {
        let here = RENAMED.iter().find(|(in_set, _)| *in_set == path).map(|(_, here)| (*here).to_owned());
        problems.add(here.unwrap_or(path), what);
    }
}
