//! The placement of a NodeDiskSetup as a set has it: a nodeSelector with terms, and tolerations.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::api::node_selector::{self, Node};
use crate::api::strict::{Field, Object};
use crate::api::tolerations::read_tolerations;

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

/// Which nodes it is for.
pub(super) struct NodePlacement {
    /// `None`: all.
    pub node_selector: Option<Value>,
    pub tolerations: Option<Value>,
}

impl NodePlacement {
    pub fn read(spec: &mut Object<'_, '_>) -> Self {
        let mut placement = spec.field(&["placement"]).object();
        let labels = labels(&placement.field(&["nodeSelector"]));
        let mut affinity = placement.field(&["affinity"]).object();
        let mut of_nodes = affinity.field(&["nodeAffinity"]).object();
        let required = of_nodes.field(&[REQUIRED]);
        let terms = terms(&required);
        // For its mistakes alone.
        node_selector::read(required, &Node::standalone("any"));
        not_read(&of_nodes.field(&[PREFERRED]), "a node is selected or not, so only what is required is read");
        of_nodes.finish();
        for of_pods in ["podAffinity", "podAntiAffinity"] {
            not_read(&affinity.field(&[of_pods]), "the disks of a node do not depend on its pods: select nodes");
        }
        affinity.finish();
        let tolerations = placement.field(&["tolerations"]);
        read_tolerations(&tolerations);
        let tolerations = tolerations.value().cloned();
        placement.finish();
        Self { node_selector: node_selector(&labels, terms), tolerations }
    }
}

/// The alternatives of the affinity, each of which has the labels, too.
fn node_selector(labels: &BTreeMap<String, String>, terms: Option<Vec<Value>>) -> Option<Value> {
    let of_labels: Vec<Value> =
        labels.iter().map(|(key, value)| json!({"key": key, "operator": "In", "values": [value]})).collect();
    let terms = match terms {
        None if of_labels.is_empty() => return None,
        None => vec![json!({"matchExpressions": of_labels})],
        Some(terms) => terms.into_iter().map(|term| with(term, &of_labels)).collect(),
    };
    Some(json!({"nodeSelectorTerms": terms}))
}

fn with(mut term: Value, of_labels: &[Value]) -> Value {
    let is_empty = |name: &str| term[name].as_array().is_none_or(Vec::is_empty);
    // It selects nothing, and would select something with them.
    if of_labels.is_empty() || (is_empty("matchExpressions") && is_empty("matchFields")) {
        return term;
    }
    let mut all = term["matchExpressions"].as_array().cloned().unwrap_or_default();
    all.extend_from_slice(of_labels);
    if let Some(term) = term.as_object_mut() {
        term.insert("matchExpressions".to_owned(), all.into());
    }
    term
}

/// As they are written; whoever reads the selector says what is wrong with them.
fn terms(required: &Field<'_, '_>) -> Option<Vec<Value>> {
    required.value()?.get("nodeSelectorTerms")?.as_array().cloned()
}

fn labels(field: &Field<'_, '_>) -> BTreeMap<String, String> {
    let Some(labels) = field.map() else { return BTreeMap::new() };
    let text = |(name, value): (&String, &Value)| match value {
        Value::String(text) => Some((name.clone(), text.clone())),
        other => {
            field.problem(format!("{name}: {other} is not a string: quote it"));
            None
        }
    };
    labels.iter().filter_map(text).collect()
}

/// A field of the proposal, or of a type of Kubernetes, that means something else than localpool does.
fn not_read(field: &Field<'_, '_>, instead: &str) {
    if field.is_given() {
        field.problem(format!("localpool does not read it: {instead}"));
    }
}
