//! What a real API server lets the controller do with ConfigMaps: one name of each namespace, and nothing else.

use super::lab::{BY_DEFAULT, SWITCHED_ON};

#[test]
fn the_controller_makes_and_watches_one_config_map_of_a_namespace_and_sees_no_other() {
    let Some(lab) = SWITCHED_ON.lab() else { return };
    let token = lab.token("localpool-controller", None);
    let map = |name: &str| {
        format!("{{apiVersion: v1, kind: ConfigMap, metadata: {{name: {name}, namespace: default}}, data: {{a: b}}}}")
    };
    let apply = |name: &str| {
        let args = ["apply", "--server-side", "--force-conflicts", "--field-manager=localpool-node-tuner", "-f", "-"];
        lab.server.kubectl(&token, &args, &map(name))
    };
    // kubectl reads what it applies, which the controller does not.
    let others = apply("others");
    assert!(!others.taken && others.output.contains("cannot"), "{}", others.output);
    let raw = |verb: &[&str]| lab.server.kubectl(&token, verb, "");
    for (path, taken) in [
        ("/api/v1/configmaps?fieldSelector=metadata.name%3Dlocalpool-node-tuner", true),
        ("/api/v1/configmaps?fieldSelector=metadata.name%3Dothers", false),
        ("/api/v1/configmaps", false),
        ("/api/v1/namespaces/kube-system/configmaps", false),
        ("/api/v1/namespaces/default/configmaps/localpool-node-tuner", false),
        ("/apis/localpool.dev/v1alpha1/nodedisksetups", true),
    ] {
        let answer = raw(&["get", "--raw", path]);
        assert_eq!(answer.taken, taken, "{path}: {}", answer.output);
    }
    for (verb, name, may) in [
        ("create", "localpool-node-tuner", true),
        ("patch", "localpool-node-tuner", true),
        ("delete", "localpool-node-tuner", false),
        ("update", "localpool-node-tuner", false),
        ("patch", "others", false),
        ("create", "others", false),
    ] {
        let object = format!("configmaps/{name}");
        let answer = raw(&["auth", "can-i", verb, &object, "--namespace=default"]);
        assert_eq!(answer.taken, may, "{verb} {name}: {}", answer.output);
    }
}

#[test]
fn without_the_value_the_controller_reads_no_config_map() {
    let Some(lab) = BY_DEFAULT.lab() else { return };
    let token = lab.token("localpool-controller", None);
    let path = "/api/v1/configmaps?fieldSelector=metadata.name%3Dlocalpool-node-tuner";
    let answer = lab.server.kubectl(&token, &["get", "--raw", path], "");
    assert!(!answer.taken && answer.output.contains("forbidden"), "{}", answer.output);
}

#[test]
fn the_controller_makes_sets_beside_itself_alone_and_the_one_node_disk_setup_that_a_value_asks_for() {
    let Some(lab) = SWITCHED_ON.lab() else { return };
    let token = lab.token("localpool-controller", None);
    let set = |namespace: &str, name: &str| {
        let spec = "{hostMountPath: /mnt/raid-disks, layout: Directory, array: {level: raid0}}";
        let set = format!(
            "{{apiVersion: local.storage.openshift.io/v1alpha1, kind: LocalVolumeSet, \
             metadata: {{name: {name}, namespace: {namespace}}}, spec: {spec}}}"
        );
        lab.server.kubectl(&token, &["create", "-f", "-"], &set)
    };
    let made = set("localpool", "node-disk-setup-a");
    assert!(made.taken, "a set without a class is only mounted: {}", made.output);
    assert!(!set("default", "node-disk-setup-a").taken);
    let refused =
        lab.server.kubectl(&token, &["delete", "-n", "localpool", "localvolumesets", "node-disk-setup-a"], "");
    assert!(!refused.taken, "it goes with its NodeDiskSetup: {}", refused.output);
    for (verb, object, may) in [
        ("create", "nodedisksetups/local-raid-disks", true),
        ("patch", "nodedisksetups/local-raid-disks", true),
        ("delete", "nodedisksetups/local-raid-disks", false),
        ("patch", "nodedisksetups/other", false),
    ] {
        let answer = lab.server.kubectl(&token, &["auth", "can-i", verb, object], "");
        assert_eq!(answer.taken, may, "{verb} {object}: {}", answer.output);
    }
}
