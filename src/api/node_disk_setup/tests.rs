use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::api::parse_set;
use crate::claim::{NodeMatch, Rule};
use crate::device::label::{ArrayLevel, Layout, Quota};

fn object(spec: &Value) -> Value {
    json!({"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": "all"}, "spec": spec})
}

fn parse(spec: &Value) -> Result<DiskSetup, Vec<String>> {
    parse_disk_setup(&object(spec)).map_err(|Invalid(problems)| problems.iter().map(ToString::to_string).collect())
}

fn node(name: &str, labels: &[(&str, &str)]) -> Node {
    let labels: BTreeMap<String, String> =
        labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    Node { name: name.into(), labels }
}

/// What its set is to the agent of a node.
fn rule(setup: &DiskSetup, node: &Node) -> Rule {
    let set = json!({
        "apiVersion": "local.storage.openshift.io/v1alpha1", "kind": "LocalVolumeSet", "metadata": {"name": "s"},
        "spec": setup.set,
    });
    parse_set(&set, node, 0).expect("a valid set")
}

#[test]
fn without_a_field_it_is_the_proposal_s_setup_of_all_local_disks_of_all_nodes() {
    let setup = parse(&json!({})).expect("valid");
    assert_eq!(setup.disks, DisksUse::SetUp);
    let options = BenchmarkOptions {
        precomputed: PrecomputedUse::Use,
        mount_point: "/var/lib/scylla".to_owned(),
        place: BenchmarkPlace::Node,
    };
    assert_eq!(setup.benchmark, Some(options));
    let rule = rule(&setup, &node("n", &[]));
    assert_eq!((rule.class.as_str(), rule.array), ("local-raid-disks", Some(ArrayLevel::Raid0)));
    assert_eq!(rule.layout, Layout::Directory { quota: Quota::Project });
    assert_eq!(rule.host_mount.as_deref(), Some("/mnt/raid-disks".as_ref()));
    assert!(rule.filter.exclude_network, "what is attached over a network is never taken");
    assert_eq!(rule.node, NodeMatch::Selected);
    assert!(!rule.dry_run);
}

#[test]
fn each_part_alone_can_be_off() {
    let off = parse(&json!({"diskSetupDisabled": true})).expect("valid");
    assert_eq!(off.disks, DisksUse::AsTheyAre);
    assert!(off.benchmark.is_some());
    let unoffered = parse(&json!({"pvProvisionerDisabled": true, "pvProvisionerOptions": {"storageClass": "x"}}));
    let unoffered = unoffered.expect("valid");
    let rule_of = rule(&unoffered, &node("n", &[]));
    assert_eq!(unoffered.disks, DisksUse::SetUp);
    assert!(rule_of.class.is_empty() && rule_of.host_mount.is_some(), "the mount is there, and no class offers it");
    let usage = crate::device::label::VolumeUsage::Mount(crate::host::FsKind::Xfs);
    assert!(!rule_of.allows(usage) && rule(&off, &node("n", &[])).allows(usage));
    assert_eq!(parse(&json!({"diskBenchmarkDisabled": true})).expect("valid").benchmark, None);
    // As the version before asked for it.
    let none = parse(&json!({"diskSetupDisabled": true, "pvProvisionerDisabled": true})).expect("valid");
    assert_eq!(none.disks, DisksUse::AsTheyAre);
}

#[test]
fn its_fields_are_those_of_its_set() {
    let spec = json!({
        "placement": {"tolerations": [{"key": "scylla", "operator": "Exists"}]},
        "localDisksPath": "/var/lib/disks",
        "pvProvisionerOptions": {"storageClass": "fast"},
        "deviceInclusionSpec": {"transports": ["nvme"]},
        "deviceExclusionSpec": {"deviceNameFilter": ["sda"]},
        "minDeviceCount": 2, "maxDeviceCount": 4, "quota": "none",
        "diskBenchmarkOptions": {"ignorePrecomputed": true, "mountPoint": "/data"},
    });
    let setup = parse(&spec).expect("valid");
    let rule = rule(&setup, &node("n", &[]));
    assert_eq!((rule.class.as_str(), rule.min_devices, rule.max_devices), ("fast", 2, Some(4)));
    assert_eq!(rule.host_mount.as_deref(), Some("/var/lib/disks".as_ref()));
    assert_eq!(rule.layout, Layout::Directory { quota: Quota::None });
    assert_eq!(rule.tolerations.len(), 1);
    assert!(rule.filter.exclude_network && rule.filter.exclude_names.len() == 1);
    let options = BenchmarkOptions {
        precomputed: PrecomputedUse::Ignore,
        mount_point: "/data".to_owned(),
        place: BenchmarkPlace::Node,
    };
    assert_eq!(setup.benchmark, Some(options));
}

/// A term of an affinity.
fn term(key: &str, value: &str) -> Value {
    json!({"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]})
}

fn affinity(terms: &Value) -> Value {
    json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}})
}

#[test]
fn labels_and_any_term_of_the_affinity_select_a_node_and_an_empty_term_does_not() {
    let terms = json!([term("zone", "a"), term("zone", "b"), {}, {"matchFields": [
        {"key": "metadata.name", "operator": "In", "values": ["one"]},
    ]}]);
    let setup = parse(&json!({"placement": {"nodeSelector": {"pool": "scylla"}, "affinity": affinity(&terms)}}));
    let setup = setup.expect("valid");
    for (name, labels, is_selected) in [
        ("n", &[("pool", "scylla"), ("zone", "a")][..], true),
        ("n", &[("pool", "scylla"), ("zone", "b")], true),
        ("n", &[("pool", "scylla"), ("zone", "c")], false),
        ("n", &[("pool", "scylla")], false),
        ("one", &[("pool", "scylla")], true),
        ("one", &[("pool", "web")], false),
        ("n", &[("zone", "a")], false),
    ] {
        let node = node(name, labels);
        assert_eq!(setup.selects(&node), is_selected, "{name} {labels:?}");
        let of_set = rule(&setup, &node).node == NodeMatch::Selected;
        assert_eq!(of_set, is_selected, "its set selects the same nodes: {name} {labels:?}");
    }
}

#[test]
fn what_localpool_does_not_read_of_a_placement_is_refused_by_name() {
    for (placement, expected) in [
        (json!({"affinity": {"podAffinity": {}}}), "spec.placement.affinity.podAffinity: localpool does not read it"),
        (json!({"affinity": {"podAntiAffinity": {}}}), "spec.placement.affinity.podAntiAffinity: localpool does not"),
        (
            json!({"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}}}),
            "spec.placement.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution: localpool does not",
        ),
        (
            json!({"affinity": affinity(&json!([]))}),
            "spec.placement.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms: must",
        ),
        (json!({"tolerations": [{"effect": "Never", "operator": "Exists"}]}), "spec.placement.tolerations[0].effect"),
        (json!({"nodeSelector": {"a": true}}), "spec.placement.nodeSelector: a: true is not a string"),
        (json!({"nodeSelector": ["a"]}), "spec.placement.nodeSelector: must be an object"),
        (json!({"nodeName": "a"}), "spec.placement.nodeName: unknown field"),
    ] {
        let refused = parse(&json!({"placement": placement})).expect_err("refused");
        assert!(refused.iter().any(|problem| problem.starts_with(expected)), "{expected}: {refused:?}");
        assert_eq!(refused.len(), 1, "{refused:?}");
    }
}

/// A spec whose command runs in the pod.
fn in_pod(more: Value) -> Value {
    let mut options = json!({"runIn": "Pod", "command": ["iotune"]});
    options.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    json!({ "diskBenchmarkOptions": options })
}

#[test]
fn a_command_in_the_pod_has_ten_minutes_and_any_container_unless_the_object_says_otherwise() {
    let place = |spec: Value| parse(&spec).expect("valid").benchmark.expect("one").place;
    let command = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let by_default =
        PodCommand { command: command(&["iotune"]), container: None, timeout: std::time::Duration::from_secs(600) };
    assert_eq!(place(in_pod(json!({}))), BenchmarkPlace::Pod(by_default));
    let said = BenchmarkPlace::Pod(PodCommand {
        command: command(&["sh", "-c", "", "a b"]),
        container: Some("wait-1".to_owned()),
        timeout: std::time::Duration::from_secs(60),
    });
    assert_eq!(
        place(in_pod(json!({"command": ["sh", "-c", "", "a b"], "container": "wait-1", "timeoutSeconds": 60}))),
        said
    );
    assert_eq!(place(json!({"diskBenchmarkOptions": {"runIn": "Node"}})), BenchmarkPlace::Node);
}

#[test]
fn slips_are_named_by_the_field_in_which_they_are() {
    for (spec, expected) in [
        (json!({"diskBenchmarkDisable": true}), "spec.diskBenchmarkDisable: unknown field; did you mean diskBench"),
        (json!({"diskBenchmarkOptions": {"ignorePrecomputed": "yes"}}), "must be true or false"),
        (json!({"diskBenchmarkOptions": {"mountPoint": "data"}}), "\"data\" is not a path in the pod"),
        (json!({"diskBenchmarkOptions": {"mountPoint": "/a\nb"}}), "is not a path in the pod"),
        (
            json!({"diskBenchmarkOptions": {"runIn": "Pod"}}),
            "spec.diskBenchmarkOptions.command: is required with runIn: Pod",
        ),
        (
            json!({"diskBenchmarkOptions": {"runIn": "pod"}}),
            "spec.diskBenchmarkOptions.runIn: \"pod\" is not one of Node, Pod",
        ),
        (json!({"diskBenchmarkOptions": {"command": ["a"]}}), "spec.diskBenchmarkOptions.command: is for runIn: Pod"),
        (json!({"diskBenchmarkOptions": {"container": "a"}}), "spec.diskBenchmarkOptions.container: is for runIn: Pod"),
        (
            json!({"diskBenchmarkOptions": {"timeoutSeconds": 9}}),
            "spec.diskBenchmarkOptions.timeoutSeconds: is for runIn",
        ),
        (in_pod(json!({"command": []})), "spec.diskBenchmarkOptions.command: names no program"),
        (in_pod(json!({"command": [" "]})), "spec.diskBenchmarkOptions.command: names no program"),
        (in_pod(json!({"command": "iotune"})), "spec.diskBenchmarkOptions.command: must be a list"),
        (in_pod(json!({"command": ["iotune", 3]})), "spec.diskBenchmarkOptions.command[1]: must be a string"),
        (in_pod(json!({"command": ["a\u{0}"]})), "spec.diskBenchmarkOptions.command: has a NUL"),
        (in_pod(json!({"command": ["a".repeat(8193)]})), "spec.diskBenchmarkOptions.command: has more than 8192 bytes"),
        (in_pod(json!({"container": "A b"})), "spec.diskBenchmarkOptions.container: \"A b\" is not the name of"),
        (in_pod(json!({"timeoutSeconds": 0})), "spec.diskBenchmarkOptions.timeoutSeconds: 0 is not between 1 and 3600"),
        (json!({"diskSetupDisabled": "yes"}), "spec.diskSetupDisabled: must be true or false"),
        (json!({"localDisksPath": "/"}), "spec.localDisksPath: is /, which has the node's system"),
        (json!({"localDisksPath": "mnt"}), "spec.localDisksPath: \"mnt\" is not a path of a folder on the node"),
        (json!({"localDisksPath": "/mnt/../etc"}), "spec.localDisksPath: \"/mnt/../etc\" must be written without"),
        (json!({"localDisksPath": "/mnt/"}), "spec.localDisksPath: \"/mnt/\" must be written without"),
        (json!({"localDisksPath": "/dev/disks"}), "spec.localDisksPath: is below /dev"),
        (json!({"localDisksPath": 5}), "spec.localDisksPath: must be a string"),
        (json!({"pvProvisionerOptions": {"storageClass": " "}}), "spec.pvProvisionerOptions.storageClass: is empty"),
        (json!({"pvProvisionerOptions": {"class": "a"}}), "spec.pvProvisionerOptions.class: unknown field"),
        (json!({"deviceInclusionSpec": {"transport": ["nvme"]}}), "spec.deviceInclusionSpec.transport: unknown field"),
        (json!({"deviceInclusionSpec": {"deviceTypes": ["part"]}}), "is for whole disks"),
        (
            json!({"deviceExclusionSpec": {"excludeNetworkDisks": false}}),
            "spec.deviceExclusionSpec: excludeNetworkDisks cannot be false",
        ),
        (json!({"minDeviceCount": 3, "maxDeviceCount": 2}), "spec.maxDeviceCount: is below minDeviceCount 3"),
        (json!({"dryRun": true}), "spec.dryRun: unknown field"),
    ] {
        let refused = parse(&spec).expect_err("refused");
        assert!(refused.iter().any(|problem| problem.contains(expected)), "{expected}: {refused:?}");
        assert_eq!(refused.len(), 1, "{refused:?}");
    }
    let other = json!({"apiVersion": API_VERSION, "kind": "LocalVolumeSet", "metadata": {"name": "a"}, "spec": {}});
    assert!(parse_disk_setup(&other).is_err());
}

/// Labels of few names and values, so that some selectors select something.
fn some_labels() -> impl Strategy<Value = BTreeMap<String, String>> {
    proptest::collection::btree_map("[ab]", "[xy]", 0..3)
}

fn some_term() -> impl Strategy<Value = Value> {
    let requirement = ("[ab]", proptest::sample::select(vec!["In", "NotIn", "Exists", "DoesNotExist"]), "[xy]");
    let requirement = requirement.prop_map(|(key, operator, value)| match operator {
        "In" | "NotIn" => json!({"key": key, "operator": operator, "values": [value]}),
        _ => json!({"key": key, "operator": operator}),
    });
    proptest::collection::vec(requirement, 0..3).prop_map(|all| json!({ "matchExpressions": all }))
}

proptest! {
    #[test]
    fn a_placement_selects_what_its_labels_and_its_affinity_select(
        wanted in some_labels(),
        terms in proptest::option::of(proptest::collection::vec(some_term(), 1..3)),
        has in some_labels(),
    ) {
        let mut placement = json!({"nodeSelector": wanted});
        if let Some(terms) = &terms {
            placement["affinity"] = affinity(&json!(terms));
        }
        let setup = parse(&json!({"placement": placement})).expect("valid");
        let node = Node { name: "n".into(), labels: has.clone() };
        let by_labels = wanted.iter().all(|(key, value)| has.get(key) == Some(value));
        let by_terms = terms.is_none_or(|terms| may_select(&json!({"nodeSelectorTerms": terms}), &node));
        prop_assert_eq!(setup.selects(&node), by_labels && by_terms);
        prop_assert_eq!(rule(&setup, &node).node == NodeMatch::Selected, by_labels && by_terms);
    }
}
