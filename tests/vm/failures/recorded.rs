//! What the agent reports of each failure, as a file: what the real kernel is held to here, the tests of the operator feed
//! to each object.

use std::path::Path;

use serde_json::{Value, json};

use super::groups::{Failure, groups};

const FILE: &str = "tests/fixtures/failures.json";

/// Whether the file has what the guest's agent must report, or writes it: `UPDATE_DOCS=1 cargo test -F testing --test vm`.
/// Needs no guest.
pub fn hold() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(FILE);
    let text = serde_json::to_string_pretty(&all()).unwrap() + "\n";
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    let there = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(there == text, "{FILE} is not what the vm tier expects: UPDATE_DOCS=1 cargo test -F testing --test vm");
}

fn all() -> Value {
    let one = |group: &str, failure: &Failure| {
        let filesystem = format!("{:?}", failure.usage);
        json!({"failure": group, "volume": filesystem, "reasons": failure.reasons, "afterRepair": failure.held})
    };
    let groups = groups();
    let each = groups.iter().flat_map(|group| group.failures.iter().map(|failure| one(group.name, failure)));
    let mut all: Vec<Value> = each.collect();
    all.dedup();
    Value::Array(all)
}
