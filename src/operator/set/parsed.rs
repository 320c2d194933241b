//! Sets and LocalVolumes as our own strict parser reads them, for a node: each spec is read once, however often it is
//! asked for. Its expression is compiled then, too.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use k8s_openapi::api::core::v1::Node as KubeNode;
use kube::Resource;
use serde::Serialize;
use serde_json::{Value, json};

use crate::api::{
    Invalid, Node,
    crd::{LocalVolume, LocalVolumeSet},
    node_selector::may_select,
    parse_set, parse_volume,
};
use crate::claim::Rule;
use crate::operator::api_server::object_key::{ObjectKey, Uid};
use crate::operator::node::kube_node;

/// The rules of one object, or all that is wrong with it.
pub type ParsedRules = Arc<Result<Vec<Rule>, Invalid>>;

/// A kind of object that says which disks may be used.
pub trait SetObject: Resource<DynamicType = ()> + Serialize {
    fn spec(&self) -> &Value;

    fn parse(value: &Value, node: &Node) -> Result<Vec<Rule>, Invalid>;

    /// The classes that it names, even if it is not valid.
    fn classes(&self) -> Vec<&str>;
}

impl SetObject for LocalVolumeSet {
    fn spec(&self) -> &Value {
        &self.spec
    }

    fn parse(value: &Value, node: &Node) -> Result<Vec<Rule>, Invalid> {
        parse_set(value, node, 0).map(|rule| vec![rule])
    }

    fn classes(&self) -> Vec<&str> {
        self.spec["storageClassName"].as_str().into_iter().collect()
    }
}

impl SetObject for LocalVolume {
    fn spec(&self) -> &Value {
        &self.spec
    }

    fn parse(value: &Value, node: &Node) -> Result<Vec<Rule>, Invalid> {
        parse_volume(value, node, 0)
    }

    fn classes(&self) -> Vec<&str> {
        let devices = self.spec["storageClassDevices"].as_array().into_iter().flatten();
        devices.filter_map(|devices| devices["storageClassName"].as_str()).collect()
    }
}

/// The readings of the objects of one kind.
pub struct Parsed<K>(Arc<Mutex<Readings<K>>>);

/// A rule says the UID of its object.
type ReadingKey<K> = (ObjectKey, Option<Uid<K>>);

struct Readings<K> {
    /// The node that they are for.
    node: Node,
    readings: BTreeMap<ReadingKey<K>, (Arc<K>, ParsedRules)>,
}

impl<K> Clone for Parsed<K> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<K> Default for Parsed<K> {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Readings { node: Node::standalone("any"), readings: BTreeMap::new() })))
    }
}

impl<K: SetObject> Parsed<K> {
    /// The readings of all given objects, in their order; forgets readings of other objects, and for another node.
    pub fn of(&self, objects: &[Arc<K>], node: &Node) -> Vec<ParsedRules> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.node != *node {
            *known = Readings { node: node.clone(), readings: BTreeMap::new() };
        }
        let mut before = std::mem::take(&mut known.readings);
        let mut readings = Vec::new();
        for object in objects {
            let key = (ObjectKey::of(&**object), Uid::of(&**object));
            let reading = match before.remove(&key) {
                Some((before, reading)) if before.spec() == object.spec() => reading,
                _ => Arc::new(read(&**object, node)),
            };
            known.readings.insert(key, (Arc::clone(object), Arc::clone(&reading)));
            readings.push(reading);
        }
        readings
    }

    /// The same, if the node does not matter.
    pub fn of_any_node(&self, objects: &[Arc<K>]) -> Vec<ParsedRules> {
        self.of(objects, &Node::standalone("any"))
    }
}

/// Reads an object as this node's agent would.
fn read<K: SetObject>(object: &K, node: &Node) -> Result<Vec<Rule>, Invalid> {
    let mut value = serde_json::to_value(object).map_err(Invalid::whole)?;
    // Items of a list may come without these fields.
    (value["apiVersion"], value["kind"]) = (json!(K::api_version(&())), json!(K::kind(&())));
    K::parse(&value, node)
}

/// How many nodes the valid nodeSelector of a spec selects, but for those of its nodeExclusions.
pub fn selected(spec: &Value, nodes: &[impl AsRef<KubeNode>]) -> usize {
    let selector = spec.get("nodeSelector").filter(|selector| !selector.is_null());
    let exclusions = spec.get("nodeExclusions").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let selects = |node: &KubeNode| {
        let node = kube_node::selectable(node);
        let is_excluded = || exclusions.iter().any(|selector| may_select(selector, &node));
        selector.is_none_or(|selector| may_select(selector, &node)) && !is_excluded()
    };
    nodes.iter().filter(|node| selects(node.as_ref())).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claim::NodeMatch;

    fn set(class: &str, size: &str) -> Arc<LocalVolumeSet> {
        let set = json!({
            "apiVersion": "v", "kind": "k", "metadata": {"name": "s", "namespace": "d", "uid": "u"},
            "spec": {"storageClassName": class, "deviceInclusionSpec": {"minSize": size}},
        });
        Arc::new(serde_json::from_value(set).expect("a set"))
    }

    #[test]
    fn a_spec_is_read_once_until_it_is_another() {
        let parsed = Parsed::default();
        let read = |set: &Arc<LocalVolumeSet>| parsed.of_any_node(std::slice::from_ref(set)).remove(0);
        let first = read(&set("fast", "1Gi"));
        assert!(Arc::ptr_eq(&first, &read(&set("fast", "1Gi"))), "its status may have changed, its spec has not");
        let other = read(&set("slow", "1Gi"));
        assert_eq!(other.as_ref().as_ref().expect("valid")[0].class, "slow");
        let wrong = read(&set("slow", "much"));
        assert!(wrong.as_ref().as_ref().is_err_and(|invalid| invalid.first().contains("minSize")), "{wrong:?}");
        assert!(parsed.of_any_node(&[]).is_empty());
        assert!(!Arc::ptr_eq(&wrong, &read(&set("slow", "much"))), "what is gone is forgotten");
    }

    #[test]
    fn a_spec_is_read_again_for_a_node_of_other_labels() {
        let mut set = (*set("fast", "1Gi")).clone();
        set.spec["nodeSelector"] =
            json!({"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]});
        let (set, parsed) = (Arc::new(set), Parsed::default());
        let read = |zone: &str| {
            let labels = BTreeMap::from([("zone".to_owned(), zone.to_owned())]);
            parsed.of(std::slice::from_ref(&set), &Node { name: "n".into(), labels }).remove(0)
        };
        let selected = |reading: &ParsedRules| reading.as_ref().as_ref().expect("valid")[0].node;
        let first = read("a");
        assert!(Arc::ptr_eq(&first, &read("a")));
        let moved = read("b");
        assert_eq!((selected(&first), selected(&moved)), (NodeMatch::Selected, NodeMatch::NotSelected));
    }
}
