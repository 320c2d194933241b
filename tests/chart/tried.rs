//! What a real apiserver lets each part do, with the chart's roles and policies in it: a node's agent that writes
//! another node's objects, an order to erase from somebody who may not give one, the CRD job with nothing but its own
//! role.

use localpool::volume::VolumeId;

use super::apiserver::Answer;
use super::lab::{BY_DEFAULT, Lab};

pub fn pool(node: &str) -> String {
    serde_json::json!({
        "apiVersion": "localpool.dev/v1alpha1", "kind": "DevicePool", "metadata": {"name": node}, "spec": {},
    })
    .to_string()
}

/// The CSI name of the only volume that a node has here.
fn csi_name(node: &str) -> String {
    format!("pvc-of-{node}")
}

/// The name of its object.
fn of(node: &str) -> String {
    VolumeId::of_name(&csi_name(node)).to_string()
}

pub fn volume(node: &str, intent: &str) -> String {
    serde_json::json!({
        "apiVersion": "localpool.dev/v1alpha1", "kind": "PoolVolume", "metadata": {"name": of(node)},
        "spec": {"node": node, "volumeName": csi_name(node), "required": 1, "volumeMode": "Block", "intent": intent},
    })
    .to_string()
}

/// The same, with an order that only a person gives.
fn ordered(node: &str) -> String {
    let mut volume: serde_json::Value = serde_json::from_str(&volume(node, "Keep")).unwrap();
    volume["spec"]["order"] = serde_json::json!("Erase");
    volume.to_string()
}

/// An Event about the pool of a node, as the agent of another or its own may write it.
fn event(instance: &str, controller: &str) -> String {
    serde_json::json!({
        "apiVersion": "events.k8s.io/v1", "kind": "Event",
        "metadata": {"name": format!("of-{instance}"), "namespace": "default"},
        "eventTime": "2026-01-01T00:00:00.000000Z", "type": "Normal", "reason": "DiskReturned", "action": "Checkup",
        "reportingController": controller, "reportingInstance": instance,
        "regarding": {"apiVersion": "localpool.dev/v1alpha1", "kind": "DevicePool", "name": instance},
    })
    .to_string()
}

/// A status by server-side apply, which reads nothing before.
fn status(kind: &str, name: &str, status: serde_json::Value) -> String {
    serde_json::json!({
        "apiVersion": "localpool.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "status": status,
    })
    .to_string()
}

/// The policies have to hold by themselves, so agents and the controller get every right to localpool's objects.
fn give_every_right(lab: &Lab) {
    let everything = ["create", "clusterrole", "everything", "--verb=*", "--resource=*.localpool.dev"];
    lab.server.admin(&everything, "");
    for account in ["localpool-node", "localpool-controller"] {
        let subject = format!("--serviceaccount=localpool:{account}");
        let name = format!("everything-{account}");
        lab.server.admin(&["create", "clusterrolebinding", &name, "--clusterrole=everything", &subject], "");
        lab.wait_for_right(account, &["*", "poolvolumes.localpool.dev"], true);
    }
}

const APPLY_STATUS: &[&str] = &["apply", "--server-side", "--subresource=status", "--field-manager=agent", "-f", "-"];

#[test]
fn an_agent_writes_its_own_nodes_objects_and_nobody_but_the_controller_orders_an_erasure() {
    // Alone: what it gives to every agent would hide from other tests what the chart's roles lack.
    let Some(lab) = Lab::start(&[]) else { return };
    give_every_right(&lab);
    let one = lab.token("localpool-node", Some("agent-one"));
    let two = lab.token("localpool-node", Some("agent-two"));
    let nodeless = lab.token("localpool-node", None);
    let controller = lab.token("localpool-controller", None);
    let (of_one, of_two) = (&*of("one"), &*of("two"));
    let create = ["create", "-f", "-"].as_slice();
    fn merge<'a>(kind: &'a str, name: &'a str, patch: &'a str) -> Vec<&'a str> {
        vec!["patch", kind, name, "--type=merge", "--patch", patch]
    }
    let cordon = merge("devicepool", "one", r#"{"spec":{"cordon":true}}"#);
    let finalizer = merge("poolvolume", of_one, r#"{"metadata":{"finalizers":["localpool.dev/volume"]}}"#);
    let let_go = merge("poolvolume", of_one, r#"{"metadata":{"finalizers":null}}"#);
    let grow = merge("poolvolume", of_one, r#"{"spec":{"size":2}}"#);
    let erase = merge("poolvolume", of_one, r#"{"spec":{"intent":"Delete"}}"#);
    let delete_one = ["delete", "poolvolume", of_one, "--wait=false"];
    let delete_two = ["delete", "poolvolume", of_two, "--wait=false"];
    let count: &[&str] = &["apply", "--server-side", "--field-manager=agent", "--force-conflicts", "-f", "-"];
    let again = |instance| {
        let mut event: serde_json::Value = serde_json::from_str(&event("one", "csi.localpool.dev")).unwrap();
        event["series"] = serde_json::json!({"count": 2, "lastObservedTime": "2026-01-01T00:00:00.000000Z"});
        event["reportingInstance"] = serde_json::json!(instance);
        event.to_string()
    };
    let report = |name| status("PoolVolume", name, serde_json::json!({"phase": "Accepted"}));
    let disks = |name| status("DevicePool", name, serde_json::json!({"diskCount": 3}));

    let (yes, other_node, spec) = (None, Some("may not write"), Some("never the spec"));
    let no_node = Some("does not say which node");
    let order = "only the controller of localpool orders";
    // In this order: who, what, with which text, and why it is refused.
    let tries: Vec<(&str, &[&str], String, Option<&str>)> = vec![
        (&one, create, pool("one"), yes),
        (&one, create, pool("two"), other_node),
        (&two, create, pool("two"), yes),
        (&nodeless, APPLY_STATUS, disks("one"), no_node),
        (&one, APPLY_STATUS, disks("one"), yes),
        (&two, APPLY_STATUS, disks("one"), other_node),
        (&one, &cordon, String::new(), spec),
        (&one, &["delete", "devicepool", "two"], String::new(), other_node),
        (&one, create, volume("two", "Keep"), other_node),
        (&one, create, volume("one", "Delete"), Some("forbidden")),
        (&one, create, ordered("one"), Some("never an order of a person")),
        (&one, create, volume("one", "Keep"), yes),
        (&controller, create, volume("two", "Keep"), yes),
        (&one, &finalizer, String::new(), yes),
        (&one, APPLY_STATUS, report(of_one), yes),
        (&one, APPLY_STATUS, report(of_two), other_node),
        (&two, APPLY_STATUS, report(of_one), other_node),
        (&one, &grow, String::new(), spec),
        (&controller, &grow, String::new(), yes),
        (&one, &erase, String::new(), Some("forbidden")),
        (&two, &delete_one, String::new(), other_node),
        (&one, &delete_two, String::new(), other_node),
        (&nodeless, &delete_one, String::new(), no_node),
        (&controller, &erase, String::new(), yes),
        (&one, create, event("one", "csi.localpool.dev"), yes),
        (&one, create, event("two", "csi.localpool.dev"), other_node),
        (&one, create, event("one", "kubelet"), Some("Events of csi.localpool.dev")),
        (&nodeless, create, event("one", "csi.localpool.dev"), no_node),
        (&one, count, again("one"), yes),
        (&two, count, again("one"), other_node),
        (&two, count, again("two"), Some("immutable")),
        // After the order, the rest of the object can still be written.
        (&one, APPLY_STATUS, report(of_one), yes),
        (&controller, &delete_one, String::new(), yes),
        (&one, &let_go, String::new(), yes),
        (&one, &["get", "secrets", "--namespace=localpool"], String::new(), Some("forbidden")),
        (&controller, &["get", "secrets", "--namespace=localpool"], String::new(), Some("forbidden")),
        (&controller, &["--namespace=localpool", "create", "token", "localpool-provisioner"], String::new(), yes),
        (
            &controller,
            &["--namespace=localpool", "create", "token", "localpool-node"],
            String::new(),
            Some("forbidden"),
        ),
    ];
    for (number, (who, what, text, refused)) in tries.into_iter().enumerate() {
        let Answer { taken, output } = lab.server.kubectl(who, what, &text);
        match refused {
            None => assert!(taken, "try {number}: {what:?} {text}: {output}"),
            Some(why) => {
                assert!(!taken && output.contains(why), "try {number}: {what:?} {text} was not refused: {output}")
            }
        }
    }
    // Not even by an administrator, who has every right.
    for (what, text) in [
        (create.to_vec(), volume("one", "Delete")),
        (merge("poolvolume", of_two, r#"{"spec":{"intent":"Delete"}}"#), String::new()),
    ] {
        let Answer { taken, output } = lab.server.try_as_admin(&what, &text);
        assert!(!taken && output.contains(order), "{what:?}: {output}");
    }
    let left = lab.server.admin(&["get", "poolvolumes", "--output=name"], "");
    assert_eq!(left.trim(), format!("poolvolume.localpool.dev/{of_two}"));
}

fn persistent(name: &str, claim: Option<&str>) -> String {
    let term = serde_json::json!({"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["one"]}]});
    let mut volume = serde_json::json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "by-hand",
            "local": {"path": "/mnt/x"}, "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
        },
    });
    if let Some(claim) = claim {
        volume["spec"]["claimRef"] = serde_json::json!({"namespace": "localpool", "name": claim});
    }
    volume.to_string()
}

/// By default it reserves none, and yet a reservation of earlier can end.
#[test]
fn the_controller_annotates_persistent_volumes_and_ends_its_reservations_and_changes_nothing_else() {
    let Some(lab) = BY_DEFAULT.lab() else { return };
    let controller = lab.token("localpool-controller", None);
    for (name, claim) in [("unclaimed", None), ("reserved", Some("localpool-marked-u")), ("by-hand", Some("data"))] {
        lab.server.admin(&["create", "-f", "-"], &persistent(name, claim));
    }
    let refused = Some("writes annotations of PersistentVolumes");
    for (name, patch, refused) in [
        ("unclaimed", r#"{"metadata":{"annotations":{"NotMountPoint":"yes"}}}"#, None),
        ("unclaimed", r#"{"metadata":{"annotations":{"NotMountPoint":null}}}"#, None),
        ("unclaimed", r#"{"metadata":{"labels":{"a":"b"}}}"#, refused),
        ("unclaimed", r#"{"metadata":{"finalizers":null}}"#, refused),
        ("unclaimed", r#"{"spec":{"persistentVolumeReclaimPolicy":"Delete"}}"#, refused),
        ("unclaimed", r#"{"spec":{"claimRef":{"namespace":"localpool","name":"localpool-marked-u"}}}"#, refused),
        ("by-hand", r#"{"spec":{"claimRef":null}}"#, refused),
        ("reserved", r#"{"spec":{"claimRef":null,"persistentVolumeReclaimPolicy":"Delete"}}"#, refused),
        ("reserved", r#"{"spec":{"claimRef":null}}"#, None),
    ] {
        let what = ["patch", "persistentvolume", name, "--type=merge", "--patch", patch];
        let Answer { taken, output } = lab.server.kubectl(&controller, &what, "");
        match refused {
            None => assert!(taken, "{name} {patch}: {output}"),
            Some(why) => assert!(!taken && output.contains(why), "{name} {patch} was not refused: {output}"),
        }
    }
}

/// A disk of the node with its one volume on it, which a pod in another namespace uses.
fn on_a_disk(lab: &Lab, node: &str, disk: &str) {
    let create = |object: serde_json::Value| lab.server.admin(&["create", "-f", "-"], &object.to_string());
    let report = |kind: &str, name: &str, status: serde_json::Value| {
        let status = serde_json::json!({ "status": status }).to_string();
        lab.server.admin(&["patch", kind, name, "--subresource=status", "--type=merge", "-p", &status], "");
    };
    let known = serde_json::json!({
        "id": disk, "path": "/dev/sda", "layout": "Carved", "set": "d/s", "size": 1, "free": 1, "volumes": 0,
        "state": "Ready",
    });
    lab.server.admin(&["create", "-f", "-"], &pool(node));
    report("devicepool", node, serde_json::json!({"disks": [known]}));
    lab.server.admin(&["create", "-f", "-"], &volume(node, "Keep"));
    report("poolvolume", &of(node), serde_json::json!({"phase": "Ready", "disk": disk}));
    let mut named: serde_json::Value = serde_json::from_str(&persistent("of-a-disk", None)).unwrap();
    let csi = serde_json::json!({"driver": "csi.localpool.dev", "volumeHandle": of(node)});
    named["spec"].as_object_mut().unwrap().remove("local");
    named["spec"]["csi"] = csi;
    named["spec"]["claimRef"] = serde_json::json!({"namespace": "shop", "name": "data"});
    create(named);
    lab.server.admin(&["create", "namespace", "shop"], "");
    // No controller of Kubernetes runs here.
    lab.server.admin(&["--namespace", "shop", "create", "serviceaccount", "default"], "");
    create(serde_json::json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "db-0", "namespace": "shop"},
        "spec": {
            "automountServiceAccountToken": false, "containers": [{"name": "db", "image": "none"}],
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
        },
    }));
}

/// Where docs/troubleshooting.md says that these commands run, and where they must not.
#[test]
fn a_volume_is_given_up_and_a_disk_drained_in_the_controllers_pod_and_definitions_are_applied_in_the_jobs_alone() {
    let Some(lab) = BY_DEFAULT.lab() else { return };
    lab.server.admin(&["create", "-f", "-"], &volume("gone", "Keep"));
    let id = of("gone");
    let abandon = ["volume", "abandon", id.as_str()];
    let Answer { taken, output } = lab.localpool("localpool-node", &abandon);
    assert!(!taken && output.contains("forbidden"), "{output}");
    let Answer { taken, output } = lab.localpool("localpool-controller", &abandon);
    assert!(taken && output.contains("gave up"), "{output}");
    on_a_disk(lab, "one", "gpt-1");
    let drain = ["disk", "drain", "gpt-1"];
    let Answer { taken, output } = lab.localpool("localpool-node", &drain);
    assert!(!taken && output.contains("forbidden"), "{output}");
    let Answer { taken, output } = lab.localpool("localpool-controller", &drain);
    assert!(taken && output.contains("ordered Drain"), "{output}");
    assert!(output.contains("claim shop/data (used by pod db-0)"), "{output}");
    lab.server.admin(&["delete", "poolvolume", &of("one")], "");
    let Answer { taken, output } = lab.localpool("localpool-controller", &drain);
    assert!(taken, "{output}");
    // The line that it prints is one that the API server takes.
    let next = output.lines().find_map(|line| line.split_once("kubectl ")).expect("what is next").1;
    let words: Vec<&str> = next.split(' ').map(|word| word.trim_matches('\'')).collect();
    lab.server.admin(&words, "");
    let order = ["get", "devicepool", "one", "-o", "jsonpath={.spec.disks.gpt-1.order}"];
    assert_eq!(lab.server.admin(&order, ""), "Release");
    for account in ["localpool-node", "localpool-controller"] {
        let Answer { taken, output } = lab.localpool(account, &["crds", "--apply"]);
        assert!(!taken && output.contains("forbidden"), "{account}: {output}");
    }
}
