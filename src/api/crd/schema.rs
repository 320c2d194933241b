//! Parts of schemas that several of our kinds have in common.

use serde_json::{Value, json};

pub fn text(description: &str) -> Value {
    json!({"type": "string", "description": description})
}

pub fn integer(description: &str) -> Value {
    json!({"type": "integer", "format": "int64", "description": description})
}

fn requirements() -> Value {
    json!({"type": "array", "items": {
        "type": "object",
        "required": ["key", "operator"],
        "properties": {
            "key": {"type": "string"},
            "operator": {"type": "string"},
            "values": {"type": "array", "items": {"type": "string"}},
        },
    }})
}

/// A NodeSelector of Kubernetes.
pub fn node_selector() -> Value {
    json!({
        "type": "object",
        "description": "The nodes that it applies to. Absent: all nodes.",
        "required": ["nodeSelectorTerms"],
        "properties": {"nodeSelectorTerms": {"type": "array", "items": {
            "type": "object",
            "properties": {"matchExpressions": requirements(), "matchFields": requirements()},
        }}},
    })
}

pub fn tolerations() -> Value {
    json!({"type": "array", "items": {"type": "object", "properties": {
        "key": {"type": "string"}, "operator": {"type": "string"}, "value": {"type": "string"},
        "effect": {"type": "string"}, "tolerationSeconds": {"type": "integer", "format": "int64"},
    }}})
}

pub fn conditions() -> Value {
    json!({"type": "array", "items": {
        "type": "object",
        "required": ["type", "status", "lastTransitionTime", "reason", "message"],
        "properties": {
            "type": {"type": "string"}, "status": {"type": "string", "enum": ["True", "False", "Unknown"]},
            "reason": {"type": "string"}, "message": {"type": "string"},
            "lastTransitionTime": {"type": "string", "format": "date-time"},
            "observedGeneration": {"type": "integer", "format": "int64"},
        },
    }})
}

pub fn column(name: &str, kind: &str, path: &str) -> Value {
    json!({"name": name, "type": kind, "jsonPath": path})
}
