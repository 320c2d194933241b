//! The LocalVolumeSet of a NodeDiskSetup: what it has to be, and what is there. Pure.
//!
//! It selects no node that an older NodeDiskSetup has, whether that one sets up disks or not: the set says so itself, so
//! no agent takes a disk for it that a later look of the controller would leave to the other.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::{Resource as _, ResourceExt as _};
use serde_json::{Map, Value, json};

use super::setups::{ReadSetup, Setups};
use crate::api::crd::{LocalVolumeSet, NodeDiskSetup};
use crate::api::{DiskSetup, DisksUse};
use crate::device::SetName;

/// The set of a NodeDiskSetup has its name, after this.
const PREFIX: &str = "node-disk-setup-";
/// The most bytes of a name.
const LONGEST: usize = 253;
/// So that people find it. The owner reference says whose it is.
const LABELS: [(&str, &str); 2] =
    [("app.kubernetes.io/managed-by", "localpool"), ("localpool.dev/component", "node-disk-setup")];

/// The sets of the namespace in which those of NodeDiskSetups are.
pub struct OwnSets<'a> {
    namespace: &'a str,
    found: BTreeMap<String, &'a Arc<LocalVolumeSet>>,
}

/// What has to become of the set of a NodeDiskSetup.
#[derive(Clone, Debug, PartialEq)]
pub enum OwnSet {
    /// There is none, and none is wanted.
    Absent,
    /// It is as it has to be, or has to stay as it is.
    Kept,
    Missing(Box<LocalVolumeSet>),
    /// It has to become this.
    Differs(Box<LocalVolumeSet>),
    /// It cannot be made, and why.
    Refused(String),
}

impl<'a> OwnSets<'a> {
    pub fn of(namespace: &'a str, sets: &'a [Arc<LocalVolumeSet>]) -> Self {
        let here = sets.iter().filter(|set| set.namespace().as_deref() == Some(namespace));
        Self { namespace, found: here.map(|set| (set.name_any(), set)).collect() }
    }

    pub fn name(&self, setup: &NodeDiskSetup) -> SetName {
        SetName::new(self.namespace, name(setup))
    }

    /// The set of the NodeDiskSetup at this place among all.
    pub fn state(&self, setups: &Setups, place: usize) -> OwnSet {
        let Some(ReadSetup { object, reading, nodes: _ }) = setups.all().get(place) else { return OwnSet::Absent };
        let found = self.found.get(&name(object)).copied();
        // Whoever made a slip loses nothing by it.
        let Ok(setup) = reading else { return if found.is_some() { OwnSet::Kept } else { OwnSet::Absent } };
        let Some(found) = found else {
            return match setup.disks {
                DisksUse::AsTheyAre => OwnSet::Absent,
                DisksUse::SetUp if name(object).len() > LONGEST => {
                    let most = LONGEST - PREFIX.len();
                    OwnSet::Refused(format!(
                        "metadata.name is too long for the name of a set: take one of {most} bytes"
                    ))
                }
                DisksUse::SetUp => OwnSet::Missing(Box::new(self.made(object, self.spec(setups, place, setup)))),
            };
        };
        if !is_of(found, object) {
            let why = match found.owner_references().iter().any(|owner| owner.kind == NodeDiskSetup::kind(&())) {
                true => "is of a NodeDiskSetup that had this name, and goes with it",
                false => "was made by somebody else: delete it, or give the NodeDiskSetup another name",
            };
            return OwnSet::Refused(format!("LocalVolumeSet {} {why}", self.name(object)));
        }
        let spec = Value::from(self.spec(setups, place, setup));
        if found.spec == spec {
            return OwnSet::Kept;
        }
        // One of a list may come without its kind.
        let LocalVolumeSet { api_version, kind, .. } = self.made(object, Map::new());
        let metadata = found.metadata.clone();
        OwnSet::Differs(Box::new(LocalVolumeSet { api_version, kind, metadata, spec, status: None }))
    }

    fn spec(&self, setups: &Setups, place: usize, setup: &DiskSetup) -> Map<String, Value> {
        let mut spec = setup.set.clone();
        if setup.disks == DisksUse::AsTheyAre {
            spec.insert("dryRun".to_owned(), true.into());
        }
        let older: Vec<Value> = setups.all().iter().take(place).map(|older| self.nodes_of(older)).collect();
        if !older.is_empty() {
            spec.insert("nodeExclusions".to_owned(), older.into());
        }
        spec
    }

    /// The nodes that an object has. One with a slip has those that it had before; without a set, those that it is meant for,
    /// or all if nobody can say: what a younger one takes would not be given back when the slip is corrected.
    fn nodes_of(&self, ReadSetup { object, reading, nodes }: &ReadSetup) -> Value {
        let set = self.found.get(&name(object)).filter(|set| reading.is_err() && is_of(set, object));
        let selector = set.map_or(nodes.as_ref(), |set| set.spec.get("nodeSelector"));
        selector.cloned().unwrap_or_else(every_node)
    }

    fn made(&self, setup: &NodeDiskSetup, spec: Map<String, Value>) -> LocalVolumeSet {
        let owner = OwnerReference {
            api_version: NodeDiskSetup::api_version(&()).into_owned(),
            kind: NodeDiskSetup::kind(&()).into_owned(),
            name: setup.name_any(),
            uid: setup.uid().unwrap_or_default(),
            controller: Some(true),
            block_owner_deletion: None,
        };
        let labels = LABELS.map(|(key, value)| (key.to_owned(), value.to_owned()));
        let metadata = ObjectMeta {
            name: Some(name(setup)),
            namespace: Some(self.namespace.to_owned()),
            labels: Some(labels.into()),
            owner_references: Some(vec![owner]),
            ..ObjectMeta::default()
        };
        LocalVolumeSet {
            api_version: LocalVolumeSet::api_version(&()).into_owned(),
            kind: LocalVolumeSet::kind(&()).into_owned(),
            metadata,
            spec: spec.into(),
            status: None,
        }
    }
}

fn name(setup: &NodeDiskSetup) -> String {
    format!("{PREFIX}{}", setup.name_any())
}

fn is_of(set: &LocalVolumeSet, setup: &NodeDiskSetup) -> bool {
    set.owner_references().iter().any(|owner| Some(&owner.uid) == setup.metadata.uid.as_ref())
}

/// A selector selects nothing without a requirement. No node has an empty name.
fn every_node() -> Value {
    let every = json!({"key": "metadata.name", "operator": "NotIn", "values": [""]});
    json!({"nodeSelectorTerms": [{"matchFields": [every]}]})
}

#[cfg(test)]
mod tests;
