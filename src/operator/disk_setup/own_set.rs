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
        let Some(ReadSetup { object, reading }) = setups.all().get(place) else { return OwnSet::Absent };
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
        let older = setups.all().iter().take(place).filter_map(|older| self.nodes_of(older));
        let mut older: Vec<Value> = older.collect();
        older.extend(self.kept_exclusions(setups, place, &older));
        if !older.is_empty() {
            spec.insert("nodeExclusions".to_owned(), older.into());
        }
        spec
    }

    /// What its set excludes now and need not, as long as an older object has a slip and no set: nobody knows which nodes
    /// are that one's, so none of them is taken from it.
    fn kept_exclusions(&self, setups: &Setups, place: usize, needed: &[Value]) -> Vec<Value> {
        let older = &setups.all()[..place];
        let is_unknown = older.iter().any(|older| older.reading.is_err() && self.nodes_of(older).is_none());
        let own = setups.all().get(place).map(|own| &own.object).filter(|_| is_unknown);
        let found = own.and_then(|own| self.found.get(&name(own)).filter(|set| is_of(set, own)));
        let excluded = found.and_then(|set| set.spec.get("nodeExclusions")?.as_array());
        excluded.into_iter().flatten().filter(|nodes| !needed.contains(nodes)).cloned().collect()
    }

    /// The nodes that an object has; `None`: none. One with a slip has those that it had before.
    fn nodes_of(&self, ReadSetup { object, reading }: &ReadSetup) -> Option<Value> {
        let selector = match reading {
            Ok(setup) => setup.node_selector().cloned(),
            Err(_) => {
                let set = self.found.get(&name(object)).filter(|set| is_of(set, object))?;
                set.spec.get("nodeSelector").cloned()
            }
        };
        Some(selector.unwrap_or_else(every_node))
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
