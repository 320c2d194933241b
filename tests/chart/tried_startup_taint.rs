//! What a real API server lets the controller change in a Node: its own taint goes, and nothing else.

use serde_json::{Value, json};

use super::helm;
use super::lab::{BY_DEFAULT, Lab, SWITCHED_ON};

const ON: [&str; 2] = ["--set", "controller.removeStartupTaint=true"];
const TAINT: &str = "localpool.dev/agent-not-ready";

fn taint(key: &str) -> Value {
    json!({"key": key, "effect": "NoSchedule"})
}

/// A node with these taints, cordoned.
fn tainted(lab: &Lab, name: &str, keys: &[&str]) {
    let taints: Vec<Value> = keys.iter().map(|key| taint(key)).collect();
    let node = json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {"zone": "a"}},
        "spec": {"taints": taints, "unschedulable": true},
    });
    lab.server.admin(&["create", "-f", "-"], &node.to_string());
}

#[test]
fn the_controller_removes_its_own_taint_from_a_node_and_changes_nothing_else_in_it() {
    let Some(lab) = SWITCHED_ON.lab() else { return };
    tainted(lab, "new", &["other", TAINT]);
    let taints = || lab.server.admin(&["get", "node", "new", "-o", "jsonpath={.spec.taints}"], "");
    let before: Vec<Value> = serde_json::from_str(&taints()).unwrap();
    let token = lab.token("localpool-controller", None);
    let patch = |change: &Value| {
        lab.server.kubectl(&token, &["patch", "node", "new", "--type=merge", "--patch", &change.to_string()], "")
    };
    // The API server gives taints of its own to a new node.
    let rest: Vec<Value> = before.iter().filter(|taint| taint["key"] != TAINT).cloned().collect();
    let with = |more: &[&str]| [&rest[..], &more.iter().map(|key| taint(key)).collect::<Vec<_>>()].concat();
    for wrong in [
        json!({"spec": {"taints": []}}),
        json!({"spec": {"taints": with(&[TAINT, "mine"])}}),
        json!({"spec": {"taints": with(&["mine"])}}),
        json!({"spec": {"taints": [taint(TAINT)]}}),
        json!({"spec": {"taints": rest, "unschedulable": false}}),
        json!({"spec": {"taints": rest}, "metadata": {"labels": {"zone": "b"}}}),
        json!({"spec": {"taints": rest}, "metadata": {"annotations": {"a": "b"}}}),
        json!({"spec": {"taints": rest}, "metadata": {"finalizers": ["localpool.dev/mine"]}}),
    ] {
        let answer = patch(&wrong);
        assert!(!answer.taken && answer.output.contains(TAINT), "{wrong}: {}", answer.output);
    }
    let answer = patch(&json!({"spec": {"taints": rest}}));
    assert!(answer.taken, "{}", answer.output);
    assert_eq!(serde_json::from_str::<Vec<Value>>(&taints()).unwrap(), rest);
}

#[test]
fn without_the_value_the_controller_may_write_no_node_and_without_the_policy_the_value_is_refused() {
    let Some(lab) = BY_DEFAULT.lab() else { return };
    tainted(lab, "new", &[TAINT]);
    let token = lab.token("localpool-controller", None);
    let patch = r#"{"spec":{"taints":null}}"#;
    let answer = lab.server.kubectl(&token, &["patch", "node", "new", "--type=merge", "--patch", patch], "");
    assert!(!answer.taken && answer.output.contains("cannot patch"), "{}", answer.output);
    let Some(helm) = helm::one() else { return };
    let refused = helm.template(helm::KUBERNETES[0], &[&ON[..], &["--set", "admission.enabled=false"]].concat());
    assert!(String::from_utf8_lossy(&refused.stderr).contains("controller.removeStartupTaint needs admission.enabled"));
}
