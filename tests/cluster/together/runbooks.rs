//! What the runbooks say to look at: each command is typed as it is on its page. Stories of other checks have what is
//! wrong there, and check whether the command shows it.

use std::panic::AssertUnwindSafe;

use futures::FutureExt as _;
use kube::api::{DynamicObject, PostParams};
use serde_json::{Value, json};

use crate::check::{Needs, Space, check};
use crate::cluster::{SOON, eventually, name};
use crate::page::{section, typed};
use crate::pods::With as _;
use crate::runbook::commands;

/// The name of a LocalVolume whose path leads nowhere, and of a set whose deletion does not end.
const GONE: &str = "gone";
const PATH: &str = "/dev/disk/by-id/none";
/// A node that nobody has. Another test makes the one that pages name.
const ABSENT: &str = "worker-that-is-away";

fn path_missing(space: &Space) -> Value {
    json!({
        "apiVersion": "local.storage.openshift.io/v1", "kind": "LocalVolume",
        "metadata": {"name": GONE, "namespace": space.namespace},
        "spec": {"storageClassDevices": [
            {"storageClassName": format!("{}-path", space.namespace), "devicePaths": [PATH]},
        ]},
    })
}

/// The finalizer of somebody else keeps it.
async fn deletion_stuck(space: &Space) {
    let set = space.set(GONE, "/nowhere/*").with("/metadata/finalizers", json!(["example.com/cleanup"]));
    space.create(&set).await;
    space.delete("LocalVolumeSet", space.here(), GONE).await;
    let metric = "localpool_controller_set_deletion_timestamp_seconds";
    space.until_served("controller", metric, &[&space.namespace, GONE]).await;
}

/// An admission policy of the cluster refuses the StorageClass of a set: the controller tries again and again.
async fn reconcile_errors(space: &Space) {
    let set = space.set("refused", "/nowhere/*");
    let class = set["spec"]["storageClassName"].as_str().unwrap();
    let rule = json!({"apiGroups": ["storage.k8s.io"], "apiVersions": ["v1"], "operations": ["CREATE"],
        "resources": ["storageclasses"]});
    let refusal = json!({"expression": format!("object.metadata.name != '{class}'"), "reason": "Forbidden",
        "message": "a test refuses it"});
    let api = "admissionregistration.k8s.io/v1";
    allowed(space).await;
    let policy = json!({"apiVersion": api, "kind": "ValidatingAdmissionPolicy", "metadata": {"name": space.namespace},
        "spec": {"matchConstraints": {"resourceRules": [rule]}, "validations": [refusal]}});
    space.create(&policy).await;
    let binding = json!({"apiVersion": api, "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": space.namespace},
        "spec": {"policyName": space.namespace, "validationActions": ["Deny"]}});
    space.create(&binding).await;
    // The API server reads policies from its own cache.
    let object = json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": class},
        "provisioner": "example.com/none"});
    let object: DynamicObject = serde_json::from_value(object).unwrap();
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    let is_refused = async || match space.api("StorageClass", None).create(&dry_run, &object).await {
        Err(kube::Error::Api(status)) if status.code == 403 => Ok(()),
        other => Err(format!("{other:?}")),
    };
    eventually("the policy is in force", SOON, is_refused).await;
    space.create(&set).await;
    space.until_served("controller", "localpool_controller_reconcile_errors_total", &["classes"]).await;
}

async fn allowed(space: &Space) {
    for kind in ["ValidatingAdmissionPolicyBinding", "ValidatingAdmissionPolicy"] {
        space.delete(kind, None, &space.namespace).await;
        space.until_gone(kind, None, &space.namespace).await;
    }
}

/// Types all of them.
async fn typed_all(space: &Space) {
    space.create(&path_missing(space)).await;
    let class = space.class("ext4", "Immediate").await;
    space.create(&space.claim("data", &class, "64Mi")).await;
    tokio::join!(deletion_stuck(space), reconcile_errors(space), space.until_bound("data"));
    let is_told = |volume: &Value| volume["status"]["missingDevicePaths"][0]["path"] == PATH;
    space.until("LocalVolume", space.here(), GONE, "its path is missing", is_told).await;

    let agent = space.agent_pod().await;
    let node = agent["spec"]["nodeName"].as_str().unwrap();
    let commands = commands();
    for shown_command in &commands {
        // `NAME` is the head of a column elsewhere.
        let is_of_gone = shown_command.command.contains("NAMESPACE");
        let values = if is_of_gone { of_gone(space) } else { [("localpool-node-x2k4d", name(&agent)); 2] };
        let said = shown_command.typed(if shown_command.is_about_nothing() { ABSENT } else { node }, &values).await;
        let message = match &*shown_command.alert {
            "LocalpoolPathMissing" if shown_command.command.contains("missingDevicePaths") => PATH,
            "LocalpoolSetDeletionStuck" => "example.com/cleanup",
            "LocalpoolReconcileErrors" => "a test refuses it",
            _ => continue,
        };
        assert!(said.contains(message), "{}: {said}", shown_command.alert);
    }
    assert!(commands.len() > 40, "only {} commands", commands.len());
}

fn of_gone(space: &Space) -> [(&str, &str); 2] {
    [("NAMESPACE", &space.namespace), (" NAME ", " gone ")]
}

#[test]
fn each_command_of_a_runbook_that_only_looks_works_and_has_the_heads_that_its_page_shows() {
    check(Needs::Machine, async |space| {
        let ended = AssertUnwindSafe(typed_all(space)).catch_unwind().await;
        // Also after a failure: with its finalizer the set would stay, and its namespace.
        let page = section("runbooks/LocalpoolSetDeletionStuck.md", "Do");
        typed(&page.command("\"finalizers\":null", &of_gone(space))).await;
        space.delete("LocalVolumeSet", space.here(), "refused").await;
        for set in [GONE, "refused"] {
            space.until_gone("LocalVolumeSet", space.here(), set).await;
        }
        allowed(space).await;
        ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
}
