//! Parts of schemas that several of our kinds have in common.

use serde_json::{Value, json};

pub fn text(description: &str) -> Value {
    json!({"type": "string", "description": description})
}

pub fn integer(description: &str) -> Value {
    json!({"type": "integer", "format": "int64", "description": description})
}

fn texts(description: &str) -> Value {
    json!({"type": "array", "description": description, "items": {"type": "string"}})
}

/// A list of objects with these fields.
pub fn objects(description: &str, properties: &Value) -> Value {
    json!({"type": "array", "description": description, "items": {"type": "object", "properties": properties}})
}

fn requirements(of: &str) -> Value {
    let fields = json!({
        "key": text(&format!("The {of}.")),
        "operator": text("In, NotIn, Exists, DoesNotExist, Gt or Lt."),
        "values": texts("What its value is compared with: several for In and NotIn, one number for Gt and Lt, none for the others."),
    });
    let mut list = objects(&format!("Each must hold, by a {of} of the node."), &fields);
    list["items"]["required"] = json!(["key", "operator"]);
    list["items"]["x-kubernetes-preserve-unknown-fields"] = json!(true);
    list
}

/// A NodeSelector of Kubernetes. The API server keeps unknown fields of a term, so that we can name them: without its
/// misspelt field a term would select nothing, and nobody would know.
pub fn node_selector() -> Value {
    let terms = json!({"matchExpressions": requirements("label"), "matchFields": requirements("field")});
    let mut terms = objects("A node is selected if one of these holds for it.", &terms);
    terms["items"]["x-kubernetes-preserve-unknown-fields"] = json!(true);
    json!({
        "type": "object",
        "description": "The nodes that it applies to. Absent: all nodes.",
        "required": ["nodeSelectorTerms"],
        "properties": {"nodeSelectorTerms": terms},
    })
}

pub fn tolerations() -> Value {
    let fields = json!({
        "key": text("The key of the taint. Absent, with the operator Exists: all taints."),
        "operator": text("Equal or Exists. Default: Equal."),
        "value": text("The value of the taint, for the operator Equal."),
        "effect": text("NoSchedule, PreferNoSchedule or NoExecute. Absent: all of them."),
        "tolerationSeconds": integer("Accepted, as in a pod; it changes nothing."),
    });
    objects("The taints of nodes that it applies to all the same, as in a pod.", &fields)
}

pub fn conditions() -> Value {
    let fields = json!({
        "type": text("What it is about."),
        "status": {"type": "string", "enum": ["True", "False", "Unknown"], "description": "Whether it holds."},
        "reason": text("Why, in one word for machines."),
        "message": text("Why, in a sentence for people."),
        "lastTransitionTime": {"type": "string", "format": "date-time", "description": "Since when the status is this one."},
        "observedGeneration": integer("The generation of the object that it is about."),
    });
    let mut list = objects("What holds of it, and what does not.", &fields);
    list["items"]["required"] = json!(["type", "status", "lastTransitionTime", "reason", "message"]);
    list
}

/// A device of a node, with these fields more.
pub fn devices(description: &str, more: &[(&str, Value)]) -> Value {
    let mut fields = json!({"node": text("The name of the node."), "device": text("The path of the device there.")});
    for (name, field) in more {
        fields[*name] = field.clone();
    }
    objects(description, &fields)
}

pub fn column(name: &str, kind: &str, path: &str) -> Value {
    json!({"name": name, "type": kind, "jsonPath": path})
}

/// A number that serde leaves out of an object.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
pub(super) fn is_zero(number: &i64) -> bool {
    *number == 0
}
