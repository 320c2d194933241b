//! LocalVolumeDiscovery: read strictly, so that a mistake in it is reported and has no other effect.
//!
//! Takes in the object and a node, gives out what its DaemonSet needs, and whether it selects the node.

use serde_json::Value;

use super::crd::DISCOVERY_NAME;
use super::metadata;
use super::node_selector::{self, Node};
use super::strict::{Invalid, Object, Problems};
use super::tolerations::read_tolerations;
use crate::claim::NodeMatch;

/// A valid spec.
#[derive(Clone, Debug, PartialEq)]
pub struct DiscoverySpec {
    /// A NodeSelector of Kubernetes, as it was written.
    pub node_selector: Option<Value>,
    /// Tolerations of Kubernetes, as they were written.
    pub tolerations: Option<Value>,
    pub node: NodeMatch,
}

pub fn parse_discovery(value: &Value, node: &Node) -> Result<DiscoverySpec, Invalid> {
    let problems = Problems::default();
    let read = {
        let mut object = Object::root(value, &problems);
        object.ignore(&["apiVersion", "kind", "status"]);
        let metadata = metadata::read(object.field(&["metadata"]));
        if metadata.is_some_and(|metadata| metadata.set.name.name != DISCOVERY_NAME) {
            problems
                .add("metadata.name", format!("is not {DISCOVERY_NAME}: the only LocalVolumeDiscovery has this name"));
        }
        // All of its fields are optional.
        let mut spec = object.field(&["spec"]).object();
        let node = node_selector::read(spec.field(&["nodeSelector"]), node);
        let _ = read_tolerations(&spec.field(&["tolerations"]));
        spec.finish();
        object.finish();
        let given = |name: &str| value["spec"].get(name).filter(|field| !field.is_null()).cloned();
        DiscoverySpec { node_selector: given("nodeSelector"), tolerations: given("tolerations"), node }
    };
    problems.judge(Some(read))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parse(name: &str, spec: &Value) -> Result<DiscoverySpec, Vec<String>> {
        let read = parse_discovery(&json!({"metadata": {"name": name}, "spec": spec}), &Node::standalone("worker-0"));
        read.map_err(|Invalid(problems)| problems.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn the_proposals_example_is_read_but_for_its_name() {
        let spec = json!({"nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": [
            {"key": "kubernetes.io/hostname", "operator": "In", "values": ["worker-0", "worker-1"]},
        ]}]}});
        let read = parse(DISCOVERY_NAME, &spec).expect("valid");
        assert_eq!((read.node, read.node_selector.as_ref()), (NodeMatch::Selected, Some(&spec["nodeSelector"])));
        let refused = parse("example-autodetect", &spec).expect_err("refused");
        assert_eq!(
            refused,
            ["metadata.name: is not auto-discover-devices: the only LocalVolumeDiscovery has this name"]
        );
    }

    #[test]
    fn an_empty_one_is_for_every_node() {
        for spec in [Value::Null, json!({}), json!({"nodeSelector": null, "tolerations": null})] {
            let read = parse(DISCOVERY_NAME, &spec).expect("valid");
            assert_eq!(read, DiscoverySpec { node_selector: None, tolerations: None, node: NodeMatch::Selected });
        }
    }

    #[test]
    fn slips_are_named() {
        for (spec, choices) in [
            (json!({"nodeSelectors": {}}), "spec.nodeSelectors: unknown field; did you mean nodeSelector?"),
            (json!({"tolerations": [{"operator": "Exist"}]}), "is not one of Equal, Exists"),
            (json!({"tolerations": {"key": "a"}}), "spec.tolerations"),
            (json!([1]), "spec"),
        ] {
            let refused = parse(DISCOVERY_NAME, &spec).expect_err("refused");
            assert!(refused.iter().any(|problem| problem.contains(choices)), "{spec}: {refused:?}");
        }
    }
}
