//! Platforms: each file of examples/values is in docs/platforms.md, both Helms render it alike, and an API server takes what
//! comes out; and what the values for them do.

use std::collections::BTreeSet;
use std::path::PathBuf;

use serde_json::{Value, json};

use super::apiserver::ApiServer;
use super::helm::{self, Helm, KUBERNETES, name, of_kind};
use super::repository;

fn files() -> Vec<PathBuf> {
    let entries = std::fs::read_dir(repository().join("examples/values")).unwrap();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

fn rendered(helm: &Helm, platform: &str) -> Vec<Value> {
    let file = repository().join(format!("examples/values/{platform}.yaml"));
    helm.objects(&["--values", file.to_str().unwrap()])
}

fn pod<'a>(objects: &'a [Value], kind: &str) -> &'a Value {
    &of_kind(objects, kind)[0]["spec"]["template"]["spec"]
}

#[test]
fn every_file_of_values_is_in_the_table_of_platforms_and_the_table_names_no_other() {
    let page = std::fs::read_to_string(repository().join("docs/platforms.md")).unwrap();
    let named: BTreeSet<&str> =
        page.split("](../examples/values/").skip(1).map(|rest| rest.split(')').next().unwrap()).collect();
    let there: Vec<PathBuf> = files();
    let there: BTreeSet<&str> = there.iter().map(|path| path.file_name().unwrap().to_str().unwrap()).collect();
    assert_eq!(named, there);
}

#[test]
fn an_api_server_takes_what_both_helms_render_for_every_platform() {
    let Some(helms) = helm::both() else { return };
    let Some(server) = ApiServer::start() else { return };
    server.admin(&["create", "namespace", "localpool"], "");
    // The quota for GKE is an object that a reader copies.
    let page = std::fs::read_to_string(repository().join("docs/platforms.md")).unwrap();
    let (_, quota) = page.split_once("```yaml\n").unwrap();
    server.admin(&["create", "--dry-run=server", "-f", "-"], quota.split("```").next().unwrap());
    for file in files() {
        let values = ["--values", file.to_str().unwrap()];
        for kubernetes in KUBERNETES {
            let [three, four] = helms.each_ref().map(|helm| {
                let done = helm.template(kubernetes, &values);
                assert!(done.status.success(), "{file:?}: {}", String::from_utf8_lossy(&done.stderr));
                String::from_utf8(done.stdout).unwrap()
            });
            let sorted = |text: &str| {
                let mut objects = helm::parse(text);
                objects.sort_by_key(|object| (object["kind"].to_string(), name(object).to_owned()));
                objects
            };
            assert_eq!(sorted(&three), sorted(&four), "{file:?}");
            server.admin(&["create", "--dry-run=server", "-f", "-"], &three);
        }
    }
}

#[test]
fn openshift_lets_the_agent_and_discovery_be_privileged_and_gives_user_ids_to_all_else() {
    let Some(helm) = helm::one() else { return };
    let objects = rendered(&helm, "openshift");
    let bindings: Vec<&Value> = of_kind(&objects, "RoleBinding")
        .into_iter()
        .filter(|binding| binding["roleRef"]["name"].as_str().unwrap().starts_with("system:openshift:scc:"))
        .collect();
    let bound = |binding: &&Value| (binding["roleRef"]["name"].clone(), binding["subjects"].clone());
    let subject =
        |part: &str| json!([{"kind": "ServiceAccount", "name": format!("localpool-{part}"), "namespace": "localpool"}]);
    let privileged = json!("system:openshift:scc:privileged");
    assert_eq!(
        bindings.iter().map(bound).collect::<Vec<_>>(),
        [(privileged.clone(), subject("node")), (privileged, subject("discovery"))]
    );
    for kind in ["Deployment", "Job"] {
        let context = &pod(&objects, kind)["securityContext"];
        assert_eq!(context, &json!({"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}}), "{kind}");
    }
    let plain = helm.objects(&[]);
    assert!(!plain.iter().any(|object| object.to_string().contains("openshift:scc")));
    for kind in ["Deployment", "Job"] {
        let context = &pod(&plain, kind)["securityContext"];
        assert_eq!((&context["runAsUser"], &context["fsGroup"]), (&json!(65532), &json!(65532)), "{kind}");
    }
}

#[test]
fn where_the_root_cannot_be_written_no_directory_is_asked_for_but_what_the_system_has() {
    let Some(helm) = helm::one() else { return };
    for platform in ["talos", "bottlerocket"] {
        let objects = rendered(&helm, platform);
        let discovery = super::pods::discovery(&objects)["spec"]["template"]["spec"].clone();
        for pod in [pod(&objects, "DaemonSet"), &discovery] {
            let volumes = pod["volumes"].as_array().unwrap();
            let paths = volumes.iter().filter_map(|volume| volume["hostPath"]["path"].as_str());
            let there = ["/dev", "/run/", "/var/"];
            for path in paths {
                assert!(there.iter().any(|root| path.starts_with(root)), "{platform}: {path}");
            }
        }
    }
}

#[test]
fn a_user_id_that_is_null_is_left_out() {
    let Some(helms) = helm::both() else { return };
    for helm in helms {
        let objects = helm.objects(&["--set-json", "podSecurityContext={\"runAsUser\":null,\"fsGroup\":null}"]);
        let context = &pod(&objects, "Deployment")["securityContext"];
        assert_eq!((&context["runAsUser"], &context["fsGroup"]), (&Value::Null, &Value::Null), "{context}");
        assert_eq!(context["runAsGroup"], 65532);
    }
}

#[test]
fn a_class_of_ones_own_has_the_parameters_of_the_set_and_what_else_it_says() {
    let Some(helm) = helm::one() else { return };
    let classes = json!([
        {"name": "fast", "class": "local-carved"},
        {"name": "kept", "class": "local-carved", "default": true, "reclaimPolicy": "Retain", "volumeBindingMode": "Immediate",
         "allowVolumeExpansion": false, "mountOptions": ["noatime"], "parameters": {"csi.storage.k8s.io/fstype": "xfs"},
         "annotations": {"a": "b"}, "labels": {"team": "storage"}},
    ]);
    let objects = helm.objects(&["--set-json", &format!("storageClasses={classes}")]);
    let [fast, kept] = of_kind(&objects, "StorageClass")[..] else { panic!("two classes") };
    for (key, value) in [
        ("provisioner", json!("csi.localpool.dev")),
        ("parameters", json!({"class": "local-carved"})),
        ("volumeBindingMode", json!("WaitForFirstConsumer")),
        ("reclaimPolicy", json!("Delete")),
        ("allowVolumeExpansion", json!(true)),
        ("mountOptions", Value::Null),
    ] {
        assert_eq!(fast[key], value, "{key}");
    }
    assert!(fast["metadata"]["annotations"].is_null());
    for (key, value) in [
        ("parameters", json!({"class": "local-carved", "csi.storage.k8s.io/fstype": "xfs"})),
        ("volumeBindingMode", json!("Immediate")),
        ("reclaimPolicy", json!("Retain")),
        ("allowVolumeExpansion", json!(false)),
        ("mountOptions", json!(["noatime"])),
    ] {
        assert_eq!(kept[key], value, "{key}");
    }
    let annotations = json!({"storageclass.kubernetes.io/is-default-class": "true", "a": "b"});
    assert_eq!(kept["metadata"]["annotations"], annotations);
    assert_eq!(kept["metadata"]["labels"]["team"], "storage");
}

#[test]
fn common_labels_are_on_every_object_and_in_no_selector() {
    let Some(helm) = helm::one() else { return };
    let on = "commonLabels.team=storage,serviceMonitor.enabled=true,prometheusRule.enabled=true,grafanaDashboard.enabled=true";
    let on = format!("{on},controller.reaction.mode=On,openshift.enabled=true");
    let objects = helm.objects(&["--set", &on]);
    assert!(objects.len() > 30, "{}", objects.len());
    for object in &objects {
        assert_eq!(object["metadata"]["labels"]["team"], "storage", "{} {}", object["kind"], name(object));
        assert!(!object["spec"]["selector"].to_string().contains("team"), "{} {}", object["kind"], name(object));
    }
    let discovery = super::pods::discovery(&objects);
    assert_eq!(discovery["metadata"]["labels"]["team"], "storage");
    assert!(!discovery["spec"]["selector"].to_string().contains("team"));
}

#[test]
fn the_role_that_every_viewer_gets_only_reads_and_the_one_that_gives_disks_away_is_aggregated_nowhere() {
    let Some(helm) = helm::one() else { return };
    let objects = helm.objects(&[]);
    let role = |role: &str| of_kind(&objects, "ClusterRole").into_iter().find(|object| name(object) == role).unwrap();
    let aggregated = |object: &Value| object["metadata"]["labels"].to_string().contains("aggregate-to");
    let aggregates: Vec<&str> =
        of_kind(&objects, "ClusterRole").into_iter().filter(|one| aggregated(one)).map(name).collect();
    assert_eq!(aggregates, ["localpool-view"]);
    for rule in role("localpool-view")["rules"].as_array().unwrap() {
        assert_eq!(rule["verbs"], json!(["get", "list", "watch"]));
    }
    let admin = role("localpool-admin")["rules"].to_string();
    assert!(admin.contains("localvolumesets") && admin.contains("delete") && !admin.contains("/status"), "{admin}");
    let none = helm.objects(&["--set", "roles.view=false,roles.admin=false"]);
    let names: Vec<&str> = of_kind(&none, "ClusterRole").into_iter().map(name).collect();
    assert!(!names.iter().any(|name| ["localpool-view", "localpool-admin"].contains(name)), "{names:?}");
}

#[test]
fn the_controller_comes_to_a_node_that_has_the_startup_taint_only_where_it_removes_it() {
    let Some(helm) = helm::one() else { return };
    let tolerations = |values: &[&str]| pod(&helm.objects(values), "Deployment")["tolerations"].clone();
    let own = json!({"key": "localpool.dev/agent-not-ready", "operator": "Exists"});
    assert_eq!(tolerations(&[]), Value::Null);
    assert_eq!(tolerations(&["--set", "controller.removeStartupTaint=true"]), json!([own]));
    let more = json!([{"key": "other", "operator": "Exists"}]);
    let set = format!("controller={{\"removeStartupTaint\":true,\"tolerations\":{more}}}");
    assert_eq!(tolerations(&["--set-json", &set]), json!([more[0], own]));
}

#[test]
fn the_pods_say_which_part_and_version_they_are_whatever_the_chart_and_the_image_are_called() {
    let Some(helm) = helm::one() else { return };
    let objects = helm.objects(&["--set", "nameOverride=disks,image.tag=9.9.9"]);
    for (kind, part) in [("DaemonSet", "node"), ("Deployment", "controller"), ("Job", "crds")] {
        let labels = &of_kind(&objects, kind)[0]["spec"]["template"]["metadata"]["labels"];
        assert_eq!(labels["localpool.dev/component"], part);
        assert_eq!(labels["app.kubernetes.io/version"], "9.9.9");
        let selector = &of_kind(&objects, kind)[0]["spec"]["selector"];
        assert!(!selector.to_string().contains("localpool.dev/component"), "{selector}");
    }
}
