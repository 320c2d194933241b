use k8s_openapi::api::core::v1::Event;
use serde_json::{Value, json};

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;

use super::super::{PvcAsked, PvcEvent};
use super::*;
use crate::api::crd::{DevicePool, LocalVolumeSet, NodeDiskSetup};
use crate::operator::volume::sample::{GIB, in_phase, pool, status_condition};

fn read<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).expect("an object")
}

fn node(name: &str) -> Value {
    json!({"metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}}, "spec": {},
           "status": {"conditions": [{"type": "Ready", "status": "True"}]}})
}

fn pod(spec: Value) -> Pod {
    read(json!({"metadata": {"name": "db-0", "namespace": "app"}, "spec": spec}))
}

/// A claim of 2 GiB of class `fast` that one pod waits for, and no node.
fn case() -> PvcCase {
    let pvc = json!({
        "metadata": {"name": "data", "namespace": "app", "uid": "u-1"},
        "spec": {"storageClassName": "fast", "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "2Gi"}}},
        "status": {"phase": "Pending"},
    });
    let class = json!({
        "metadata": {"name": "fast"}, "provisioner": "csi.localpool.dev", "parameters": {"class": "fast"},
        "volumeBindingMode": "WaitForFirstConsumer", "reclaimPolicy": "Delete",
    });
    PvcCase {
        name: "app/data".parse().expect("a name"),
        pvc: read(pvc),
        class: Some(read(class)),
        persistent: None,
        pods: vec![pod(json!({"containers": []}))],
        event: None,
        sets: vec![set(json!({}))],
        local_volumes: Vec::new(),
        disk_setups: Vec::new(),
        pools: Vec::new(),
        volumes: Vec::new(),
        nodes: Vec::new(),
    }
}

fn set(more: Value) -> Arc<LocalVolumeSet> {
    let mut spec = json!({"storageClassName": "fast"});
    spec.as_object_mut().expect("a map").extend(more.as_object().expect("a map").clone());
    let metadata = json!({"name": "s", "namespace": "d", "uid": "u"});
    Arc::new(read(json!({"apiVersion": "v", "kind": "k", "metadata": metadata, "spec": spec})))
}

/// With one node `n`, whose pool has this much for class `fast`.
fn with_node(largest: u64) -> PvcCase {
    let mut one = case();
    one.nodes = vec![read(node("n"))];
    one.pools = vec![pool("n", [largest, largest, u64::from(largest > 0)])];
    one
}

fn disk(pool: &mut DevicePool, more: Value) {
    let mut disk = json!({"id": "gpt-1", "path": "/dev/sdb", "layout": "Carved", "set": "d/s", "size": 9 * GIB,
                          "free": 0, "volumes": 0, "state": "Ready"});
    disk.as_object_mut().expect("a map").extend(more.as_object().expect("a map").clone());
    pool.status.as_mut().expect("set").disks.push(read(disk));
}

/// The obstacles of the one node.
fn at_n(case: &PvcCase) -> (Vec<String>, String) {
    let answer = explain(case);
    assert_eq!(answer.nodes.len(), 1, "{answer}");
    (answer.nodes[0].obstacles.clone(), answer.next)
}

fn ends(case: &PvcCase, why: &str, next: &str) {
    let answer = explain(case);
    assert!(answer.why.contains(why), "{why:?} is not in\n{answer}");
    assert!(answer.next.contains(next), "{next:?} is not in\n{answer}");
}

#[test]
fn a_claim_is_named_with_its_namespace_in_either_way_and_not_in_two() {
    let name = |claim: &str, namespace: Option<&str>| {
        let asked = PvcAsked { claim: claim.to_owned(), namespace: namespace.map(str::to_owned) };
        asked.name("of-context").map(|name| name.to_string()).map_err(|error| error.to_string())
    };
    assert_eq!(name("data", None), Ok("of-context/data".to_owned()));
    assert_eq!(name("data", Some("app")), Ok("app/data".to_owned()));
    assert_eq!(name("app/data", None), Ok("app/data".to_owned()));
    assert_eq!(name("app/data", Some("app")), Ok("app/data".to_owned()));
    assert!(name("app/data", Some("web")).is_err_and(|error| error.contains("--namespace names web")));
    assert!(name("Data", None).is_err_and(|error| error.contains("NAMESPACE/NAME")));
}

#[test]
fn a_claim_that_nobody_of_localpool_serves_says_who_does() {
    let mut other = with_node(9);
    other.class.as_mut().expect("set").provisioner = "other.csi".to_owned();
    ends(&other, "come from other.csi", "kubectl -n app describe pvc data");
    let mut none = with_node(9);
    none.pvc.spec.as_mut().expect("set").storage_class_name = None;
    ends(&none, "no default one", "storageclass.kubernetes.io/is-default-class=true");
    none.pvc.spec.as_mut().expect("set").storage_class_name = Some(String::new());
    ends(&none, "the empty StorageClass", "create a PersistentVolume");
    let mut missing = with_node(9);
    missing.class = None;
    ends(&missing, "no StorageClass fast, though s names it", "kubectl localpool status");
    missing.sets = vec![set(json!({"dryrun": true}))];
    ends(&missing, "makes it when s is valid, and LocalVolumeSet d/s", "its condition Valid");
    ends(&missing, "dryrun", "correct the set");
    missing.sets.clear();
    ends(&missing, "there is no StorageClass fast", "`kubectl get sc` lists; otherwise create a LocalVolumeSet");
    // A set beside it would take its disks.
    let setup = |status: Value| -> Arc<NodeDiskSetup> {
        Arc::new(read(json!({
            "apiVersion": "localpool.dev/v1alpha1", "kind": "NodeDiskSetup", "metadata": {"name": "tuned"},
            "spec": {"pvProvisionerOptions": {"storageClass": "fast"}}, "status": status,
        })))
    };
    missing.disk_setups = vec![setup(Value::Null)];
    ends(
        &missing,
        "it comes with NodeDiskSetup tuned, and the controller has not read it",
        "kubectl edit nodedisksetup tuned",
    );
    missing.disk_setups = vec![setup(json!({"message": "spec.localDiskPath: unknown field", "conditions": []}))];
    ends(&missing, "tuned, and spec.localDiskPath: unknown field", "kubectl edit nodedisksetup tuned");
}

#[test]
fn a_claim_that_no_set_can_serve_says_what_is_wrong_with_it_or_with_the_set() {
    let mut shared = with_node(9);
    shared.pvc.spec.as_mut().expect("set").access_modes = Some(vec!["ReadWriteMany".to_owned()]);
    ends(&shared, "ReadWriteMany", "ReadWriteOnce");
    let mut unserved = with_node(9);
    unserved.sets.clear();
    ends(&unserved, "no LocalVolumeSet and no LocalVolume gives disks to class fast", "storageClassName: fast");
    let parameters = |one: &mut PvcCase, all: Value| {
        one.class.as_mut().expect("set").parameters = Some(read(all));
    };
    parameters(&mut unserved, json!({"class": "quick"}));
    ends(&unserved, "class quick", "otherwise create a LocalVolumeSet with storageClassName: quick");
    let mut contradiction = with_node(9);
    parameters(&mut contradiction, json!({"class": "quick", "set": "d/s"}));
    ends(&contradiction, "gives disks to", "`kubectl get sc fast -o yaml`");
    let mut wrong = with_node(9);
    wrong.sets = vec![set(json!({"dryrun": true}))];
    ends(&wrong, "is not valid", "its condition Valid");
    let mut block = with_node(9);
    block.sets = vec![set(json!({"volumeMode": "Block"}))];
    ends(&block, "volumeMode Block only", "the other volumeMode");
    let mut filesystem = with_node(9);
    let parameters = filesystem.class.as_mut().and_then(|class| class.parameters.as_mut()).expect("set");
    parameters.insert("csi.storage.k8s.io/fstype".to_owned(), "zfs".to_owned());
    ends(&filesystem, "zfs", "ext4, xfs or btrfs");
}

#[test]
fn a_claim_or_a_class_that_the_provisioner_refuses_is_not_said_to_be_there_in_a_moment() {
    let claim = |more: Value| {
        let mut one = with_node(9);
        let mut spec = serde_json::to_value(one.pvc.spec.take()).expect("a spec");
        spec.as_object_mut().expect("a map").extend(more.as_object().expect("a map").clone());
        one.pvc.spec = Some(read(spec));
        one
    };
    let source = json!({"kind": "PersistentVolumeClaim", "name": "other"});
    ends(&claim(json!({"dataSource": source})), "PersistentVolumeClaim other", "without dataSource");
    ends(&claim(json!({"dataSourceRef": source})), "PersistentVolumeClaim other", "without dataSource");
    ends(&claim(json!({"selector": {"matchLabels": {"a": "b"}}})), "it has a selector", "without selector");
    let class = |parameters: Value| {
        let mut one = with_node(9);
        one.class.as_mut().expect("set").parameters = Some(read(parameters));
        one
    };
    ends(&class(json!({"class": "fast", "raid": "1"})), "raid is unknown", "make StorageClass fast again");
    ends(&class(json!({"class": ""})), "class is empty", "make StorageClass fast again");
    ends(&class(json!({"set": "s"})), "NAMESPACE/NAME", "make StorageClass fast again");
    let fine = class(json!({"class": "fast", "csi.storage.k8s.io/fstype": "xfs"}));
    ends(&fine, "node n can give up to", "describe pod");
    let mut refused = with_node(9);
    refused.event = PvcEvent::of(read(
        json!({"metadata": {"name": "e"}, "involvedObject": {}, "reason": "ProvisioningFailed", "message": "it does not clone"}),
    ));
    let annotations = [("volume.kubernetes.io/selected-node".to_owned(), "n".to_owned())];
    refused.pvc.metadata.annotations = Some(annotations.into());
    ends(&refused, "ProvisioningFailed: it does not clone", "\"A claim stays Pending\"");
}

#[test]
fn a_pod_that_was_put_on_a_node_by_hand_waits_for_ever_and_the_answer_says_how_it_does_not() {
    let mut one = with_node(9);
    one.pods = vec![pod(json!({"containers": [], "nodeName": "n"}))];
    ends(&one, "pod db-0 was put on node n without the scheduler", "nodeSelector");
    one.pods.push(pod(json!({"containers": []})));
    one.pods.push(pod(json!({"containers": []})));
    ends(&one, "the scheduler has chosen no node", "`kubectl -n app describe pod db-0 db-0`");
}

#[test]
fn a_pod_that_has_ended_uses_nothing() {
    let of = |phase: &str| super::super::case::is_ended(&read(json!({"metadata": {}, "status": {"phase": phase}})));
    assert_eq!(["Succeeded", "Failed", "Running", "Pending"].map(of), [true, true, false, false]);
}

#[test]
fn a_node_that_can_give_it_is_named_and_what_it_waits_for() {
    let mut one = with_node(9);
    ends(&one, "node n can give up to 9Gi, and the scheduler has chosen no node", "kubectl -n app describe pod db-0");
    assert_eq!(explain(&one).nodes[0].largest, 9 * GIB);
    one.pods.clear();
    ends(&one, "it waits for a pod", "start a pod that uses the claim data");
    let annotations = [("volume.kubernetes.io/selected-node".to_owned(), "n".to_owned())];
    one.pvc.metadata.annotations = Some(annotations.into());
    one.pods = case().pods;
    ends(&one, "the scheduler has chosen node n", "kubectl localpool status");
}

#[test]
fn everything_that_keeps_a_node_from_giving_it_is_said_and_the_easiest_thing_is_named() {
    let mut one = with_node(9);
    one.pools[0].spec.cordon = true;
    let (said, next) = at_n(&one);
    assert_eq!(said, ["its DevicePool is cordoned (spec.cordon)"]);
    assert!(next.starts_with("kubectl patch devicepool n") && next.contains("\"cordon\":false"), "{next}");
    let mut one = with_node(9);
    one.nodes = vec![read(json!({"metadata": {"name": "n"}, "spec": {"unschedulable": true}}))];
    assert_eq!(at_n(&one), (vec!["the node is cordoned".to_owned()], "kubectl uncordon n".to_owned()));
    let mut one = with_node(9);
    let silent = vec![status_condition("Ready", "Unknown", "AgentSilent", "its pod is not ready")];
    one.pools[0].status.as_mut().expect("set").conditions = silent;
    let (said, next) = at_n(&one);
    assert!(said[0].contains("does not answer: its pod is not ready, since 1970"), "{said:?}");
    assert!(next.contains("spec.nodeName=n"), "{next}");
    one.pools[0].spec.cordon = true;
    assert_eq!(at_n(&one).0.len(), 2);
    let mut one = with_node(9);
    one.nodes = vec![read(
        json!({"metadata": {"name": "n"}, "status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}),
    )];
    let (said, next) = at_n(&one);
    assert_eq!(
        (said.join("|"), next.as_str()),
        ("the node is not ready".to_owned(), "`kubectl describe node n` says why it is not ready")
    );
    one.nodes.clear();
    assert_eq!(at_n(&one).0, ["its Node was deleted"]);
    let mut one = with_node(9);
    one.pools.clear();
    let (said, next) = at_n(&one);
    assert_eq!(said, ["no agent of localpool has reported there"]);
    assert!(next.contains("see whether the agent runs on node n"), "{next}");
}

#[test]
fn a_disk_that_takes_nothing_is_named_with_the_reason() {
    let mut one = with_node(0);
    disk(&mut one.pools[0], json!({"cordon": "a person has cordoned it"}));
    let (said, next) = at_n(&one);
    assert_eq!(said, ["disk gpt-1 takes no new volumes: a person has cordoned it"]);
    assert_eq!(next, "kubectl localpool disk uncordon gpt-1");
    for (cordon, line) in [
        ("a person has cordoned it", "kubectl localpool disk uncordon 'serial-$(x)'"),
        ("DiskFailing: it fails", "`kubectl localpool why disk n/'serial-$(x)'`"),
    ] {
        let mut one = with_node(0);
        disk(&mut one.pools[0], json!({"id": "serial-$(x)", "cordon": cordon}));
        let (_, next) = at_n(&one);
        assert!(next.ends_with(line), "a name is one word of a shell: {next}");
    }
    let mut one = with_node(0);
    disk(&mut one.pools[0], json!({"cordon": "DiskFailing: it fails"}));
    let (said, next) = at_n(&one);
    assert_eq!(said, ["disk gpt-1 takes no new volumes: DiskFailing: it fails"]);
    assert!(next.contains("why disk n/gpt-1"), "{next}");
    let mut one = with_node(0);
    disk(&mut one.pools[0], json!({"state": "Missing", "stateSince": "2026-01-02T03:04:05Z"}));
    assert_eq!(at_n(&one).0, ["disk gpt-1 (/dev/sdb) is missing, since 2026-01-02T03:04:05Z"]);
    let mut one = with_node(0);
    disk(&mut one.pools[0], json!({"state": "NotReady", "message": "two copies"}));
    disk(&mut one.pools[0], json!({"id": "gpt-2"}));
    disk(&mut one.pools[0], json!({"id": "gpt-3", "set": "d/other", "state": "Missing"}));
    let said = at_n(&one).0;
    assert_eq!(said, ["disk gpt-1 (/dev/sdb) cannot be used: two copies", "its disks are full"]);
}

#[test]
fn a_place_that_is_too_small_says_how_small_and_whether_waiting_helps() {
    let mut one = with_node(1);
    disk(&mut one.pools[0], json!({"free": GIB}));
    let (said, next) = at_n(&one);
    assert_eq!(said, ["its largest free place has 1Gi of the 2Gi, and 1Gi are free"]);
    assert!(next.contains("add a disk") && next.contains("less than 2Gi"), "{next}");
    ends(&one, "no node can give 2Gi: the largest volume now is 1Gi on node n", "delete claims");
    one.pools[0].status.as_mut().expect("set").disks[0].erasing = 5 << 30;
    let (said, next) = at_n(&one);
    assert!(said[0].ends_with("; 5Gi of deleted volumes are still being erased"), "{said:?}");
    assert!(next.starts_with("wait: node n is erasing 5Gi"), "{next}");
    let mut promised = with_node(3);
    promised.volumes = vec![in_phase(Phase::Pending), in_phase(Phase::Accepted)];
    assert_eq!(at_n(&promised).0, ["its largest free place has 1Gi of the 2Gi, and 1Gi are free"]);
    let mut slots = with_node(9);
    slots.pools = vec![pool("n", [9, 9, 5])];
    let resources = json!({"requests": {"storage": "2Gi"}, "limits": {"storage": "4Gi"}});
    slots.pvc.spec.as_mut().expect("set").resources = Some(read(resources));
    let (said, next) = at_n(&slots);
    assert_eq!(said, ["its smallest volume would have 5Gi, and the claim allows 4Gi"]);
    assert!(next.contains("a limit of at least 5Gi"), "{next}");
}

#[test]
fn a_node_without_a_disk_of_the_class_says_what_its_devices_are_refused_for() {
    let mut one = with_node(0);
    let status = one.pools[0].status.as_mut().expect("set");
    status.sets[0].devices = 0;
    let unmatched = |n: usize| json!({"device": format!("/dev/sd{n}"), "reason": format!("reason {n}")});
    status.sets[0].unmatched = (0..5).map(|n| read(unmatched(n))).collect();
    status.sets[0].unmatched_omitted = 2;
    status.conditions.push(status_condition("Claiming", "False", "Held", "another owner's CRD"));
    let said = at_n(&one).0.join("|");
    for part in [
        "no disk there belongs",
        "nothing new is claimed there: another owner's CRD",
        "/dev/sd0: reason 0",
        "/dev/sd2: reason 2",
        "and 4 more devices",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert!(!said.contains("/dev/sd3"), "{said}");
    let mut dry = with_node(0);
    dry.sets = vec![set(json!({"dryRun": true}))];
    let status = dry.pools[0].status.as_mut().expect("set");
    status.sets[0].devices = 0;
    status.sets[0].would_take = vec!["/dev/sdb".to_owned()];
    assert!(at_n(&dry).0[0].contains("d/s would take /dev/sdb there"));
    assert!(explain(&dry).to_string().contains("a dry run that claims nothing"));
}

#[test]
fn a_node_whose_sets_are_for_the_other_mode_is_told_from_one_that_is_full() {
    let mut one = with_node(9);
    let other = json!({"apiVersion": "v", "kind": "k", "metadata": {"name": "raw", "namespace": "d", "uid": "r"},
                       "spec": {"storageClassName": "fast", "volumeMode": "Block"}});
    one.sets.push(Arc::new(read(other)));
    one.pools[0].status.as_mut().expect("set").sets[0].name = "raw".to_owned();
    let (said, next) = at_n(&one);
    assert_eq!(said, ["the sets that have disks there do not allow the volumeMode of the claim"]);
    assert!(next.contains("the other volumeMode"), "{next}");
    for name in ["a", "z"] {
        one.nodes.push(read(node(name)));
        let mut without = pool(name, [0, 0, 0]);
        without.status.as_mut().expect("set").sets[0].devices = 0;
        one.pools.push(without);
    }
    ends(&one, "do not allow the volumeMode", "the other volumeMode");
}

#[test]
fn nodes_of_which_the_same_is_to_be_said_are_one_line() {
    let mut many = case();
    for count in 0..12 {
        many.nodes.push(read(node(&format!("n{count:02}"))));
        many.pools.push(pool(&format!("n{count:02}"), [1, 1, 1]));
    }
    let text = explain(&many).to_string();
    let nodes: Vec<&str> = text.lines().filter(|line| line.contains("could give up to 1Gi")).collect();
    assert_eq!(nodes.len(), 1, "{text}");
    assert!(nodes[0].starts_with("nodes   n00, n01, ") && nodes[0].contains(", n07 and 4 more could give"), "{text}");
}

#[test]
fn a_pod_that_cannot_run_where_the_room_is_is_named_with_what_keeps_it_off() {
    let keeps = |spec: Value, node: Value| {
        let mut one = with_node(9);
        one.pods = vec![pod(spec)];
        one.nodes = vec![read(node)];
        at_n(&one).0.join("|")
    };
    let tainted =
        json!({"metadata": {"name": "n"}, "spec": {"taints": [{"key": "gpu", "value": "a", "effect": "NoSchedule"}]}});
    let said = keeps(json!({"containers": []}), tainted.clone());
    assert_eq!(said, "pod db-0 cannot run there: it does not tolerate the taint gpu=a:NoSchedule");
    for tolerations in [
        json!([{"operator": "Exists"}]),
        json!([{"key": "gpu", "value": "a"}]),
        json!([{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}]),
    ] {
        assert_eq!(keeps(json!({"containers": [], "tolerations": tolerations}), tainted.clone()), "");
    }
    let other = json!([{"key": "gpu", "value": "b"}]);
    assert!(keeps(json!({"containers": [], "tolerations": other}), tainted).contains("gpu=a"));
    let soft = json!({"metadata": {"name": "n"}, "spec": {"taints": [{"key": "gpu", "effect": "PreferNoSchedule"}]}});
    assert_eq!(keeps(json!({"containers": []}), soft), "");
    let said = keeps(json!({"containers": [], "nodeSelector": {"zone": "b"}}), node("n"));
    assert_eq!(said, "pod db-0 cannot run there: its nodeSelector wants zone=b");
    let terms = json!([{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["b"]}]}]);
    let affinity =
        json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}});
    assert!(keeps(json!({"containers": [], "affinity": affinity}), node("n")).contains("nodeAffinity"));
    assert!(keeps(json!({"containers": [], "nodeName": "m"}), node("n")).contains("it is on node m"));
    let starting = json!({"metadata": {"name": "n"},
                          "spec": {"taints": [{"key": "localpool.dev/agent-not-ready", "effect": "NoSchedule"}]}});
    let mut one = with_node(9);
    one.nodes = vec![read(starting)];
    let (said, next) = at_n(&one);
    assert_eq!(said, ["its agent is not ready yet: it has the taint localpool.dev/agent-not-ready"]);
    assert!(next.starts_with("wait for the agent of node n"), "{next}");
    let mut two = with_node(9);
    two.pods = vec![pod(json!({"containers": [], "nodeSelector": {"zone": "b"}})), pod(json!({"containers": []}))];
    assert_eq!(at_n(&two).0, [""; 0], "one pod that can run there is enough");
}

#[test]
fn a_node_that_the_class_does_not_allow_is_told() {
    let with = |key: &str, value: &str| {
        let mut one = with_node(9);
        let terms = json!([{"matchLabelExpressions": [{"key": key, "values": [value]}]}]);
        one.class.as_mut().expect("set").allowed_topologies = Some(read(terms));
        one
    };
    assert_eq!(at_n(&with("topology.localpool.dev/node", "n")).0, [""; 0]);
    let other = with("topology.localpool.dev/node", "m");
    assert_eq!(at_n(&other).0, ["the allowedTopologies of the StorageClass do not name it"]);
    let zone = with("topology.kubernetes.io/zone", "a");
    ends(&zone, "have the key topology.kubernetes.io/zone", "make StorageClass fast again");
}

#[test]
fn the_node_that_is_nearest_to_giving_it_is_the_one_that_is_spoken_of() {
    let mut two = with_node(1);
    two.nodes.push(read(node("m")));
    let mut cordoned = pool("m", [9, 9, 1]);
    cordoned.spec.cordon = true;
    two.pools.push(cordoned);
    let answer = explain(&two);
    assert_eq!(answer.nodes.iter().map(|one| one.node.as_str()).collect::<Vec<_>>(), ["m", "n"]);
    assert!(answer.next.starts_with("kubectl patch devicepool m"), "{answer}");
    two.nodes.push(read(node("o")));
    two.pools.push(pool("o", [5, 5, 1]));
    ends(&two, "node o can give up to 5Gi", "describe pod");
}

#[test]
fn nodes_that_no_set_selects_are_counted_and_not_listed() {
    let nowhere = json!({"nodeSelector": {"nodeSelectorTerms": [
        {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["m"]}]}]}});
    let mut one = case();
    one.sets = vec![set(nowhere)];
    one.nodes = vec![read(node("n")), read(node("o"))];
    let answer = explain(&one);
    assert_eq!((answer.nodes.len(), answer.other_nodes), (0, 2));
    ends(&one, "selects one of the 2 nodes", "correct the nodeSelector");
    one.nodes.push(read(node("m")));
    one.pools = vec![pool("m", [9, 9, 1]), pool("n", [9, 9, 1])];
    let answer = explain(&one);
    let named: Vec<_> = answer.nodes.iter().map(|one| one.node.as_str()).collect();
    assert_eq!((named, answer.other_nodes), (vec!["m", "n"], 1), "n has disks of the set that selected it before");
}

#[test]
fn a_volume_that_an_agent_has_in_hand_is_waited_for_and_one_that_was_refused_says_why() {
    let of_claim = |phase| {
        let mut volume = in_phase(phase);
        volume.spec.volume_name = "pvc-u-1".to_owned();
        volume.spec.required = 2 << 30;
        volume
    };
    let mut one = with_node(9);
    one.volumes = vec![of_claim(Phase::Accepted)];
    ends(&one, "the agent of node n is making it", "nothing");
    one.volumes = vec![of_claim(Phase::Pending)];
    ends(&one, "has not answered yet", "nothing");
    let silent = vec![status_condition("Ready", "Unknown", "AgentSilent", "gone")];
    one.pools[0].status.as_mut().expect("set").conditions = silent;
    ends(&one, "has not answered yet", "spec.nodeName=n");
    let mut one = with_node(0);
    let mut refused = crate::operator::volume::sample::rejected(&of_claim(Phase::Pending), "Full");
    refused.metadata.name = Some("id".to_owned());
    one.volumes = vec![refused];
    let text = explain(&one).to_string();
    assert!(text.contains("PoolVolume id on node n: Rejected, Full: because of Full"), "{text}");
}

#[test]
fn a_claim_that_has_its_volume_says_where_that_is_and_how_it_is() {
    let volume = in_phase(Phase::Ready);
    let id = volume.name_any();
    let persistent =
        |source: Value| read(json!({"metadata": {"name": "pvc-1"}, "spec": source, "status": {"phase": "Bound"}}));
    let csi = |driver: &str| json!({"csi": {"driver": driver, "volumeHandle": id}});
    let mut one = with_node(9);
    one.pvc.spec.as_mut().expect("set").volume_name = Some("pvc-1".to_owned());
    ends(&one, "names PersistentVolume pvc-1, and there is none", "kubectl localpool volumes");
    one.persistent = Some(persistent(csi("other.csi")));
    ends(&one, "not of localpool", "kubectl describe pv pvc-1");
    one.persistent = Some(persistent(csi("csi.localpool.dev")));
    ends(&one, "there is no PoolVolume", "kubectl localpool status");
    one.volumes = vec![volume.clone()];
    let of_claim = |namespace: &str, name: &str, uid: &str| {
        let spec = json!({"csi": {"driver": "csi.localpool.dev", "volumeHandle": id},
                          "claimRef": {"namespace": namespace, "name": name, "uid": uid}});
        Some(persistent(spec))
    };
    one.persistent = of_claim("app", "first", "u-0");
    ends(&one, "PersistentVolume pvc-1 belongs to claim app/first", "without volumeName");
    one.persistent = of_claim("web", "data", "u-1");
    ends(&one, "belongs to claim web/data", "without volumeName");
    one.persistent = of_claim("app", "data", "u-0");
    ends(&one, "an earlier claim app/data", "without volumeName");
    one.persistent = of_claim("app", "data", "u-1");
    ends(&one, "nothing is wrong with it", "the volume stays on node n, so pod db-0 has to run there");
    one.pods = vec![pod(json!({"containers": [], "nodeName": "n"}))];
    ends(&one, "nothing is wrong with it", "nothing");
    let health = json!({"reason": "DiskMissing", "severity": "Inaccessible", "message": "it was unplugged"});
    one.volumes[0].status.as_mut().expect("set").health = vec![read(health)];
    let action = crate::health::HealthReason::from("DiskMissing".to_owned()).row().expect("known").action;
    ends(&one, "DiskMissing: it was unplugged", action);
    let later = json!({"reason": "TooWarm", "severity": "Degraded", "message": "hot"});
    one.volumes[0].status.as_mut().expect("set").health = vec![read(later)];
    ends(&one, "TooWarm: hot", "docs/health.md");
    one.volumes = vec![in_phase(Phase::Found)];
    ends(&one, "found on a disk", "kubectl describe poolvolume");
}

#[test]
fn a_claim_that_is_being_deleted_waits_for_its_pods() {
    let mut one = with_node(9);
    one.pvc =
        read(json!({"metadata": {"name": "data", "namespace": "app", "deletionTimestamp": "2026-01-01T00:00:00Z"}}));
    ends(&one, "being deleted", "stop the pods that use it: db-0");
    one.pods.clear();
    ends(&one, "being deleted", "nothing");
}

#[test]
fn the_last_warning_is_shown_in_one_line_and_commands_no_terminal() {
    let event = |message: &str| -> Event {
        read(
            json!({"metadata": {"name": "e"}, "involvedObject": {}, "reason": "ProvisioningFailed", "message": message,
                    "lastTimestamp": "2026-01-01T00:00:00Z"}),
        )
    };
    let mut one = with_node(9);
    one.event = PvcEvent::of(event("rpc error:\n\u{1b}[31mred\n"));
    let text = explain(&one).to_string();
    assert!(text.contains("event   ProvisioningFailed: rpc error:\u{fffd}\u{fffd}[31mred\n"), "{text}");
    assert_eq!(PvcEvent::of(read(json!({"metadata": {}, "involvedObject": {}}))), None);
}
