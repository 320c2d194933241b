//! In which namespaces a real API server takes sets: those that the chart names.

use localpool_testing::eventually;
use serde_json::{Value, json};

use super::apiserver::TIMEOUT;
use super::helm::{self, name};
use super::lab::Lab;

const ALL: [&str; 2] = ["--set", "admission.setNamespaces={*}"];

fn set(namespace: &str, kind: &str) -> Value {
    json!({
        "apiVersion": "local.storage.openshift.io/v1alpha1", "kind": kind,
        "metadata": {"name": "disks", "namespace": namespace},
        "spec": {"storageClassName": "fast"},
    })
}

fn local_volume(namespace: &str) -> Value {
    let mut made = set(namespace, "LocalVolume");
    made["apiVersion"] = json!("local.storage.openshift.io/v1");
    made["spec"] =
        json!({"storageClassDevices": [{"storageClassName": "fast", "devicePaths": ["/dev/disk/by-id/one"]}]});
    made
}

#[test]
fn a_set_is_made_in_a_named_namespace_only_and_one_that_is_elsewhere_can_only_go() {
    let Some(lab) = Lab::start(&ALL) else { return };
    let Some(helm) = helm::one() else { return };
    lab.server.admin(&["create", "namespace", "openshift-local-storage"], "");
    let create = |object: &Value| lab.server.try_as_admin(&["create", "-f", "-"], &object.to_string());
    let before = create(&set("default", "LocalVolumeSet"));
    assert!(before.taken, "without the policy: {}", before.output);

    let objects = helm.objects(&[]);
    let policy: Vec<&Value> = objects.iter().filter(|object| name(object) == "localpool-sets").collect();
    assert_eq!(policy.len(), 2);
    for object in policy {
        lab.server.admin(&["apply", "-f", "-"], &object.to_string());
    }
    let kube_system = set("kube-system", "LocalVolumeSet").to_string();
    let is_refused = || !lab.server.try_as_admin(&["create", "--dry-run=server", "-f", "-"], &kube_system).taken;
    assert!(eventually(TIMEOUT, is_refused), "the policy holds nobody");
    for elsewhere in [set("kube-system", "LocalVolumeSet"), local_volume("default")] {
        let answer = create(&elsewhere);
        let says = "it may only be in one of the namespaces localpool, openshift-local-storage; make it there, or add its \
                    namespace to the value admission.setNamespaces";
        assert!(!answer.taken && answer.output.contains(says), "{elsewhere}: {}", answer.output);
    }
    for named in ["localpool", "openshift-local-storage"] {
        for object in [set(named, "LocalVolumeSet"), local_volume(named)] {
            let answer = create(&object);
            assert!(answer.taken, "{object}: {}", answer.output);
        }
    }

    let patch = |change: &str| {
        let args = ["--namespace=default", "patch", "localvolumeset", "disks", "--type=merge", "--patch", change];
        lab.server.try_as_admin(&args, "")
    };
    let wipes = patch(r#"{"spec": {"forceWipeDevicesAndDestroyAllData": true}}"#);
    assert!(!wipes.taken, "{}", wipes.output);
    let labelled = patch(r#"{"metadata": {"labels": {"team": "a"}, "finalizers": ["example.com/last"]}}"#);
    assert!(labelled.taken, "{}", labelled.output);
    lab.server.admin(&["--namespace=default", "delete", "localvolumeset", "disks", "--wait=false"], "");
    let released = patch(r#"{"metadata": {"finalizers": null}}"#);
    assert!(released.taken, "a set that is deleted can go: {}", released.output);
}

#[test]
fn with_one_namespace_the_message_names_it_alone() {
    for helm in helm::both().into_iter().flatten() {
        // Null is what `helm upgrade --reuse-values` of an earlier release comes to.
        for none in ["admission.setNamespaces=[]", "admission.setNamespaces=null"] {
            let objects = helm.objects(&["--set-json", none]);
            let policy = objects.iter().find(|object| name(object) == "localpool-sets").unwrap();
            let message = policy["spec"]["validations"][0]["message"].as_str().unwrap();
            assert!(message.contains("it may only be in the namespace localpool; make it there"), "{none}: {message}");
        }
    }
}
