use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::api::crd::set_crd;
use crate::claim::sample::lists;
use crate::claim::{
    Blankness, ElementKind, Expression, Filter, Glob, LIST_FILTERS, MinHealth, NodeMatch, Toleration,
    TolerationOperator, VALUE_FILTERS, ValueFilter,
};

const WHOLE: &str = include_str!("fixtures/whole_disks.yaml");
const FLASH: &str = include_str!("fixtures/flash_with_filesystem.yaml");
const SLOTS: &str = include_str!("fixtures/three_slots.yaml");
const EVERYTHING: &str = include_str!("fixtures/everything.yaml");

fn worker() -> Node {
    Node::standalone("worker-0")
}

/// A minimal set with these lines in its spec.
fn set(name: &str, spec: &str) -> String {
    let spec: String = spec.lines().map(|line| format!("  {line}\n")).collect();
    format!(
        "apiVersion: {API_VERSION}\nkind: {KIND}\nmetadata:\n  name: {name}\nspec:\n  storageClassName: fast\n{spec}"
    )
}

fn rule(spec: &str) -> Rule {
    let (mut rules, errors) = parse_sets(&set("a", spec), &worker());
    assert_eq!(errors, [], "{spec}");
    rules.pop().unwrap()
}

/// The error about a spec that must be refused.
fn refusal(spec: &str) -> String {
    let (rules, errors) = parse_sets(&set("a", spec), &worker());
    assert_eq!(rules, [], "{spec}");
    errors[0].to_string()
}

fn only(text: &str) -> Rule {
    let (mut rules, errors) = parse_sets(text, &worker());
    assert_eq!(errors, []);
    assert_eq!(rules.len(), 1);
    rules.pop().unwrap()
}

#[test]
fn the_first_example_of_the_proposal_is_whole_disks() {
    let rule = only(WHOLE);
    assert_eq!(rule.node, NodeMatch::Selected);
    assert_eq!((rule.class.as_str(), rule.layout), ("example-storageclass", Layout::Whole {}));
    assert_eq!((rule.min_devices, rule.max_devices), (5, Some(10)));
    assert_eq!((rule.volume_mode, rule.fs), (Some(VolumeMode::Block), FsKind::Ext4));
    assert_eq!((rule.filter.types, rule.filter.rotational), (vec![DeviceType::Disk], vec![true, false]));
    assert_eq!((rule.filter.min_size, rule.filter.max_size), (10_000_000_000, Some(100_000_000_000)));
    assert_eq!(parse_sets(WHOLE, &Node::standalone("worker-7")).0[0].node, NodeMatch::NotSelected);
}

#[test]
fn the_second_example_with_its_own_spellings_means_what_today_s_would() {
    let rule = only(FLASH);
    assert_eq!((rule.volume_mode, rule.fs), (Some(VolumeMode::Filesystem), FsKind::Ext4));
    assert_eq!(rule.filter.types, [DeviceType::Disk, DeviceType::Part]);
    assert_eq!(rule.filter.rotational, [false]);
    let names = lists(&[("models", &["SAMSUNG", "Crucial_CT525MX3"]), ("vendors", &["ATA", "ST2000LM"])]);
    assert_eq!(rule.filter.lists, names);
    let today = FLASH
        .replace("fstype:", "fsType:")
        .replace("deviceMechanicalProperty:", "deviceMechanicalProperties:")
        .replace("volumeMode: filesystem", "volumeMode: Filesystem")
        .replace("RawDisk", "disk")
        .replace("Partition", "part");
    assert_ne!(today, FLASH);
    assert_eq!(only(&today), only(FLASH));
    assert_eq!(only(&FLASH.replace("deviceTypes:", "devices:")), only(FLASH));
    assert_eq!(only(&FLASH.replace("fstype:", "filesystem:")), only(FLASH));
}

#[test]
fn the_example_of_partitioning_is_three_slots_of_30_g() {
    let slots = Layout::Slots { size: Some(30_000_000_000), count: Some(3) };
    assert_eq!(only(SLOTS).layout, slots);
    assert_eq!(only(&SLOTS.replace("    size:", "    partSize:")).layout, slots);
}

#[test]
fn every_field_is_read() {
    let rule = only(EVERYTHING);
    assert_eq!(rule.set.name.namespace, "openshift-local-storage");
    assert_eq!(rule.set.uid, "5b0e7a52-90d5-4e0e-9a43-0d8f1f5d6d3a");
    assert_eq!(rule.created, 1_767_323_045);
    assert_eq!(rule.node, NodeMatch::NotSelected);
    let storage = Toleration {
        key: Some("node-role.kubernetes.io/storage".into()),
        operator: TolerationOperator::Exists,
        value: None,
        effect: Some("NoSchedule".into()),
        seconds: None,
    };
    let spot = Toleration {
        key: Some("spot".into()),
        operator: TolerationOperator::Equal,
        value: Some("true".into()),
        effect: None,
        seconds: Some(60),
    };
    assert_eq!(rule.tolerations, [storage, spot]);
    assert_eq!(rule.layout, Layout::RawDevice {});
    assert_eq!((rule.erase, rule.reclaim, rule.fs), (ErasePolicy::Zero, Reclaim::Release, FsKind::Xfs));
    assert_eq!((rule.min_devices, rule.max_devices, rule.blankness), (0, Some(3), Blankness::Zeros));
    let filter = Filter {
        types: vec![DeviceType::Disk, DeviceType::Part, DeviceType::Loop, DeviceType::Mpath],
        rotational: vec![false],
        min_size: 0,
        max_size: Some(2 << 40),
        lists: lists(&[
            ("models", &["SSD"]),
            ("vendors", &["ata"]),
            ("paths", &["/dev/disk/by-id/nvme-*"]),
            ("serials", &["s6px*"]),
            ("wwns", &["0x5002538*", "eui.0025*"]),
            ("transports", &["nvme", "sata"]),
            ("sectorSizes", &["512", "4096"]),
            ("numaNodes", &["0", "1"]),
        ]),
        exclude_names: globs(&["sd[a-c]", "nvme0*"]),
        exclude_network: true,
        expression: Some(Expression::parse("device.size > 0 && !device.removable").unwrap()),
        min_health: Some(MinHealth::NotFailing),
    };
    assert_eq!(rule.filter, filter);
}

#[test]
fn each_list_is_read_as_its_row_says() {
    for list in LIST_FILTERS {
        let element = |word: &&str| match list.elements {
            ElementKind::Numbers { .. } => (*word).to_owned(),
            ElementKind::Parts | ElementKind::Words | ElementKind::Globs(_) => format!("{word:?}"),
        };
        let elements: Vec<String> = list.example.iter().map(element).collect();
        let spec = format!("deviceInclusionSpec: {{{}: [{}]}}", list.field, elements.join(", "));
        assert_eq!(rule(&spec).filter.lists, lists(&[(list.field, list.example)]), "{spec}");
    }
}

#[test]
fn each_value_is_read_and_is_in_the_set_that_has_every_field() {
    for ValueFilter { section, field, example, .. } in VALUE_FILTERS {
        let spec = format!("{}: {{{field}: {example}}}", section.field());
        assert_ne!(rule(&spec).filter, rule("").filter, "{spec}");
        assert!(EVERYTHING.contains(&format!("    {field}: ")), "{field} is not in fixtures/everything.yaml");
    }
}

#[test]
fn defaults_are_the_operators() {
    let rule = rule("");
    assert_eq!(rule.filter.types, [DeviceType::Disk]);
    assert_eq!((rule.filter.min_size, rule.filter.max_size), (1 << 30, None));
    assert_eq!((rule.node, rule.volume_mode, rule.fs), (NodeMatch::Selected, None, FsKind::Ext4));
    assert_eq!((rule.layout, rule.erase, rule.reclaim), (Layout::Whole {}, ErasePolicy::Discard, Reclaim::Keep));
    assert_eq!((rule.min_devices, rule.max_devices, rule.created), (0, None, i64::MAX));
    assert_eq!((rule.blankness, rule.filter.expression), (Blankness::Signatures, None));
}

#[test]
fn no_list_of_types_means_disk_and_an_empty_one_selects_nothing() {
    for absent in ["deviceInclusionSpec: {}", "deviceInclusionSpec: {deviceTypes: null}", "deviceInclusionSpec:"] {
        assert_eq!(rule(absent).filter.types, [DeviceType::Disk], "{absent}");
    }
    assert_eq!(rule("deviceInclusionSpec: {deviceTypes: []}").filter.types, []);
}

#[test]
fn an_explicit_min_size_of_0_is_none() {
    for zero in ["0", "\"0\"", "0Gi"] {
        assert_eq!(rule(&format!("deviceInclusionSpec: {{minSize: {zero}}}")).filter.min_size, 0, "{zero}");
    }
    rule("partitioningSpec: {partSize: 30G}\ndeviceInclusionSpec: {minSize: 0}");
    assert_eq!(rule("deviceInclusionSpec: {minSize: 1e9}").filter.min_size, 1_000_000_000);
    assert_eq!(rule("deviceInclusionSpec: {minSize: 1.5Gi}").filter.min_size, 3 << 29);
}

#[test]
fn the_three_forms_of_partitioning_and_dynamic_are_layouts() {
    for (spec, layout) in [
        ("{partSize: 10Gi}", Layout::Slots { size: Some(10 << 30), count: None }),
        ("{count: 4}", Layout::Slots { size: None, count: Some(4) }),
        ("{partSize: 1Mi, count: 127}", Layout::Slots { size: Some(1 << 20), count: Some(127) }),
        ("{mode: Dynamic}", Layout::Carved {}),
        ("null", Layout::Whole {}),
    ] {
        assert_eq!(rule(&format!("partitioningSpec: {spec}")).layout, layout, "{spec}");
    }
    assert_eq!(rule("layout: Whole").layout, Layout::Whole {});
}

#[test]
fn a_set_of_folders_says_how_much_of_its_disks_they_may_be_promised() {
    for (spec, reserved, percent) in [
        ("", 0, 100),
        ("overprovision: 200", 0, 200),
        ("reserved: 10Gi", 10 << 30, 100),
        ("overprovision: 10000\nreserved: 0", 0, 10_000),
        ("overprovision: null\nreserved: null", 0, 100),
    ] {
        let rule = rule(&format!("layout: Directory\n{spec}"));
        assert_eq!(rule.layout, Layout::Directory { quota: Quota::Project });
        assert_eq!(rule.provisioning, Provisioning { reserved, percent }, "{spec}");
    }
}

/// Each refused spec and a part of its error.
#[test]
fn specs_that_contradict_themselves_or_the_rules_are_refused_with_a_message() {
    let cases = [
        ("partitioningSpec: {}", "spec.partitioningSpec.mode: is missing, and so are partSize and count"),
        ("partitioningSpec: {count: 128}", "count: is 128; a disk takes at most 127"),
        ("partitioningSpec: {count: 0}", "0 is not between 1"),
        ("partitioningSpec: {count: -3}", "-3 is not between 1"),
        ("partitioningSpec: {partSize: 0}", "is 0; a partition has at least 1Mi"),
        ("partitioningSpec: {partSize: -1Gi}", "-1Gi is negative"),
        ("partitioningSpec: {partSize: 9Ei}", "9Ei is more than 2^63-1 bytes"),
        ("partitioningSpec: {mode: Dynamic, count: 2}", "is Dynamic, which allows neither"),
        ("partitioningSpec: {mode: dynamic}", "\"dynamic\" is not one of Dynamic"),
        ("partitioningSpec: {size: 1Gi, partSize: 2Gi}", "partSize: disagrees with size"),
        ("partitioningSpec: {partSize: 1Gi}\nlayout: RawDevice", "cannot be combined with a partitioningSpec"),
        ("layout: Carved", "\"Carved\" is not one of Whole, Directory, RawDevice"),
        ("layout: Directory\nquota: user", "\"user\" is not one of project, none"),
        ("quota: none", "spec.quota: is for the layout Directory alone"),
        ("layout: Directory\nquota: none\nvolumeMode: Block", "the layout Directory has no raw block volumes"),
        ("layout: Directory\nquota: none\nfsType: ext4", "spec.fsType: must be xfs"),
        ("layout: Directory\nquota: none\nerasePolicy: zero", "spec.erasePolicy: is zero, and nothing"),
        ("layout: Directory\nquota: none\npartitioningSpec: {count: 2}", "cannot be combined with a partitioningSpec"),
        ("overprovision: 200", "spec.overprovision: is for the layout Directory alone"),
        ("layout: Whole\nreserved: 1Gi", "spec.reserved: is for the layout Directory alone"),
        ("layout: Directory\noverprovision: 99", "99 is not between 100 and 10000"),
        ("layout: Directory\noverprovision: 10001", "10001 is not between 100 and 10000"),
        ("layout: Directory\noverprovision: 200%", "must be a whole number"),
        ("layout: Directory\nreserved: -1", "is negative"),
        ("layout: Directory\nreserved: 10%", "is not a quantity"),
        (
            "partitioningSpec: {count: 2}\ndeviceInclusionSpec: {deviceTypes: [Partition]}",
            "a partition is not partitioned again",
        ),
        (
            "partitioningSpec: {partSize: 30G}\ndeviceInclusionSpec: {minSize: 29G, maxSize: 100G}",
            "is 30G, more than spec.deviceInclusionSpec.minSize 29G",
        ),
        (
            "partitioningSpec: {partSize: 30G}\ndeviceInclusionSpec: {maxSize: 20G}",
            "is 30G, more than spec.deviceInclusionSpec.maxSize 20G",
        ),
        ("deviceInclusionSpec: {minSize: 2Gi, maxSize: 1Gi}", "maxSize: is below minSize 2Gi: no device"),
        ("deviceInclusionSpec: {maxSize: 1Mi}", "is below minSize 1Gi (the default)"),
        ("deviceInclusionSpec: {minSize: 10GB}", "\"10GB\" is not a quantity"),
        ("deviceInclusionSpec: {deviceTypes: [lvm]}", "deviceTypes[0]: \"lvm\" is not one of disk, part"),
        ("deviceInclusionSpec: {deviceTypes: disk}", "must be a list, not the string \"disk\""),
        ("deviceInclusionSpec: {deviceMechanicalProperty: [SSD]}", "\"SSD\" is not one of Rotational, NonRotational"),
        ("deviceInclusionSpec: {deviceTypes: [disk], devices: [part]}", "disagrees with devices"),
        ("deviceInclusionSpec: {models: [\"\"]}", "models[0]: is empty"),
        ("deviceInclusionSpec: {vendors: [4711]}", "vendors[0]: must be a string, not the number 4711"),
        ("deviceInclusionSpec: {paths: [\"/dev/sd[\"]}", "the glob \"/dev/sd[\" has a [ without its ]"),
        ("deviceInclusionSpec: {minsize: 1Gi}", "unknown field; did you mean minSize?"),
        ("deviceExclusionSpec: {deviceNameFilter: [\"[\"]}", "has a [ without its ]"),
        ("minDeviceCount: -1", "-1 is not between 0"),
        ("maxDeviceCount: 2147483648", "2147483648 is not between 0 and 2147483647"),
        ("maxDeviceCount: \"5\"", "must be a whole number, not the string \"5\""),
        ("minDeviceCount: 4\nmaxDeviceCount: 3", "is below minDeviceCount 4"),
        ("volumeMode: Both", "\"Both\" is not one of Block, Filesystem"),
        ("fsType: ntfs", "\"ntfs\" is not one of ext4, xfs, btrfs"),
        ("fsType: xfs\nfstype: ext4", "disagrees with fstype"),
        ("erasePolicy: shred", "\"shred\" is not one of discard, zero, none"),
        ("reclaim: Delete", "\"Delete\" is not one of Keep, Release"),
        ("deviceInclusionSpec: {minHealth: Good}", "minHealth: \"Good\" is not one of NotFailing, Passed"),
        ("blankness: zeros", "\"zeros\" is not one of Signatures, Zeros"),
        ("dryRun: yes", "dryRun: must be true or false"),
        ("deviceInclusionSpec: {serials: [\"[\"]}", "has a [ without its ]"),
        ("deviceInclusionSpec: {sectorSizes: [520]}", "sectorSizes[0]: is 520: a sector has 512, 4096"),
        ("deviceInclusionSpec: {sectorSizes: [\"4096\"]}", "sectorSizes[0]: must be a whole number"),
        ("deviceExclusionSpec: {excludeNetworkDisks: 1}", "excludeNetworkDisks: must be true or false"),
        ("deviceInclusionSpec: {numaNodes: [-1]}", "-1 is not between 0"),
        ("deviceInclusionSpec: {transport: [nvme]}", "unknown field; did you mean transports?"),
        ("deviceInclusionSpec: {expression: \"\"}", "spec.deviceInclusionSpec.expression: is empty"),
        (
            "deviceInclusionSpec: {expression: \"device.siz > 0\"}",
            "expression: `device` has no \"siz\"; it has attachedBy,",
        ),
        ("deviceInclusionSpec: {expression: \"device.size >\"}", "expression: is not valid CEL: line 1, column 14: "),
        ("deviceInclusionSpec: {expression: true}", "expression: must be a string, not the boolean true"),
        ("dryrun: true", "unknown field; did you mean dryRun?"),
        ("partitionSpec: {count: 2}", "unknown field; did you mean partitioningSpec?"),
        ("tolerations: [{operator: Equal}]", "must be Exists if there is no key"),
        ("tolerations: [{key: a, operator: Exists, value: b}]", "must not be Exists with a value"),
        ("tolerations: [{key: a, effect: Never}]", "\"Never\" is not one of NoSchedule"),
        ("storageClassName: slow", "duplicate"),
        ("nodeSelector: {}", "nodeSelectorTerms: is required"),
    ];
    for (spec, piece) in cases {
        let message = refusal(spec);
        assert!(message.contains(piece), "{spec}\n{message}");
    }
}

/// An API server refuses a word that the schema lacks, and the agent one that it cannot read.
#[test]
fn a_word_that_a_set_may_have_is_in_the_schema() {
    let crd = serde_json::to_value(set_crd()).expect("JSON");
    let spec = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties";
    for field in [
        "layout",
        "quota",
        "volumeMode",
        "blankness",
        "erasePolicy",
        "reclaim",
        "partitioningSpec/properties/mode",
        "deviceInclusionSpec/properties/minHealth",
    ] {
        let listed = crd.pointer(&format!("{spec}/{field}/enum")).and_then(Value::as_array).expect("a list of words");
        let listed: BTreeSet<String> = listed.iter().filter_map(Value::as_str).map(str::to_lowercase).collect();
        let wrong = match field.split_once("/properties/") {
            Some((object, field)) => refusal(&format!("{object}: {{{field}: nosuchword}}")),
            None => refusal(&format!("{field}: nosuchword")),
        };
        let (_, known) = wrong.split_once("is not one of ").expect("it names the words");
        let known = known.split(';').next().into_iter().flat_map(|known| known.split(", ")).map(str::to_lowercase);
        let known: BTreeSet<String> = known.collect();
        assert_eq!(listed, known, "{field}");
    }
}

#[test]
fn each_field_that_a_set_may_have_is_in_the_schema() {
    let crd = serde_json::to_value(set_crd()).expect("JSON");
    let schema = |place: &str| crd.pointer(&format!("/spec/versions/0/schema/openAPIV3Schema/properties/{place}"));
    let set: Value = serde_saphyr::from_str(EVERYTHING).expect("YAML");
    for object in ["spec", "spec/deviceInclusionSpec", "spec/deviceExclusionSpec"] {
        let fields = set.pointer(&format!("/{object}")).and_then(Value::as_object).expect("an object");
        let place = object.replace('/', "/properties/");
        for field in fields.keys() {
            assert!(schema(&format!("{place}/properties/{field}")).is_some(), "{object}/{field}");
        }
    }
}

#[test]
fn all_that_is_wrong_with_a_filter_is_told_in_the_order_that_it_has_always_had() {
    let wrong = "[5, \"\", \"[\", -1, 513, 70000, null, {}]";
    let fields = [
        "numaNodes",
        "sectorSizes",
        "transports",
        "wwns",
        "serials",
        "paths",
        "vendors",
        "models",
        "maxSize",
        "minSize",
        "deviceMechanicalProperties",
        "deviceTypes",
        "expression",
        "minHealth",
        "serial",
    ];
    let include: String = fields.map(|field| format!("  {field}: {wrong}\n")).concat();
    let no_lists: String = ["models", "serials", "numaNodes"].map(|field| format!("  {field}: x\n")).concat();
    let messages = [include, no_lists].map(|lines| refusal(&format!("deviceInclusionSpec:\n{lines}"))).join("\n\n");
    crate::device::sample::holds("api/local_volume_set/golden/problems", &(messages.replace("; ", ";\n") + "\n"));
}

#[test]
fn at_most_64_name_filters_are_taken() {
    let list = |count: usize| format!("deviceExclusionSpec: {{deviceNameFilter: [{}]}}", vec!["sda"; count].join(", "));
    assert_eq!(rule(&list(64)).filter.exclude_names.len(), 64);
    assert!(refusal(&list(65)).contains("has 65 patterns; at most 64"));
}

#[test]
fn all_that_is_wrong_is_told_at_once_with_document_line_and_name() {
    let text = format!(
        "{WHOLE}---\n{}",
        set("b", "volumeMod: Block\nminDeviceCount: -1").replace("  storageClassName: fast\n", "")
    );
    let (rules, errors) = parse_sets(&text, &worker());
    assert_eq!(rules.len(), 1);
    let message = errors[0].to_string();
    let first_line = WHOLE.lines().count() + 2;
    assert!(message.starts_with(&format!("document 2 (line {first_line}, default/b): ")), "{message}");
    for piece in ["storageClassName: is required", "volumeMod: unknown field; did you mean volumeMode?", "-1 is not"] {
        assert!(message.contains(piece), "{message}");
    }
}

#[test]
fn a_bad_document_stops_only_itself() {
    let text = [
        set("a", ""),
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\ndata: {}\n".to_owned(),
        "kind: [broken\n".to_owned(),
        "just text\n".to_owned(),
        "- a list\n".to_owned(),
        set("a", "maxDeviceCount: 9"),
        set("B", ""),
        set("c", "").replace("v1alpha1", "v1"),
        format!("kind: {KIND}\napiVersion: {API_VERSION}\nmetadata: {{name: d}}\n"),
        set("e", ""),
        set("a", ""),
    ]
    .join("---\n");
    let (rules, errors) = parse_sets(&text, &worker());
    let names: Vec<_> = rules.iter().map(|rule| (rule.set.name.name.as_str(), rule.position)).collect();
    assert_eq!(names, [("a", 0), ("e", 1)]);
    let messages: Vec<_> = errors.iter().map(|error| (error.document, error.to_string())).collect();
    for ((document, message), (expected, piece)) in messages.iter().zip([
        (2, "kind: is neither LocalVolumeSet nor LocalVolume"),
        (3, "not valid YAML"),
        (4, "must be an object, not the string \"just text\""),
        (5, "must be an object, not a list"),
        (6, "default/a): metadata.name: document 1 has this namespace and name already"),
        (7, "\"B\" is not a name"),
        (8, "apiVersion: is not local.storage.openshift.io/v1alpha1"),
        (9, "spec: is required"),
        (11, "document 1 has this namespace and name already"),
    ]) {
        assert_eq!(*document, expected, "{message}");
        assert!(message.contains(piece), "{message}");
    }
    assert_eq!(messages.len(), 9);
}

#[test]
fn the_same_name_in_another_namespace_is_another_set() {
    let other = set("a", "").replace("name: a", "name: a\n  namespace: other");
    let (rules, errors) = parse_sets(&format!("{}---\n{other}", set("a", "")), &worker());
    assert_eq!(errors, []);
    assert_ne!(rules[0].set.uid, rules[1].set.uid);
}

#[test]
fn an_empty_file_has_no_sets_and_no_errors() {
    for text in ["", "\n", "# nothing\n", "---\n---\n"] {
        assert_eq!(parse_sets(text, &worker()), (vec![], vec![]), "{text:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_file_cut_short_never_panics_and_never_yields_another_set(cut in 0..EVERYTHING.len()) {
        prop_assume!(EVERYTHING.is_char_boundary(cut));
        let (rules, _) = parse_sets(&EVERYTHING[..cut], &worker());
        for rule in rules {
            prop_assert_eq!(rule.set, only(EVERYTHING).set);
        }
    }

    #[test]
    fn no_text_makes_it_panic(text in "(---\n|[a-z]{1,4}: |[a-z0-9]{1,3}|\n|  |- |[\\[\\]{}\"'&*|>%#:,]){0,40}") {
        parse_sets(&text, &worker());
    }
}

#[test]
fn a_set_says_where_its_filesystems_are_mounted_and_may_be_offered_to_nobody() {
    assert_eq!(rule("layout: Directory").host_mount, None);
    let mounted = rule("layout: Directory\nhostMountPath: /mnt/raid-disks");
    assert_eq!(mounted.host_mount.as_deref(), Some("/mnt/raid-disks".as_ref()));
    let unoffered = set("a", "layout: Directory\nhostMountPath: /mnt/d").replace("  storageClassName: fast\n", "");
    assert_eq!(only(&unoffered).class, "");
    let (_, errors) = parse_sets(&unoffered.replace("  hostMountPath: /mnt/d\n", ""), &worker());
    assert!(errors[0].to_string().contains("spec.storageClassName: is required"), "{errors:?}");
    for (spec, words) in [
        ("hostMountPath: /mnt/d", "spec.hostMountPath: is for the layout Directory alone"),
        ("layout: Directory\nhostMountPath: /", "spec.hostMountPath: is /"),
        ("layout: Directory\nhostMountPath: /mnt//d", "must be written without //"),
        ("layout: Directory\nhostMountPath: /proc/d", "is below /proc"),
        ("layout: Directory\nhostMountPath: d", "is not a path of a folder on the node"),
    ] {
        let refused = refusal(spec);
        assert!(refused.contains(words), "{spec}: {refused}");
    }
}

#[test]
fn a_node_of_an_exclusion_is_not_selected_whatever_the_selector_says() {
    let excluding = |name: &str| {
        let term = format!("{{key: metadata.name, operator: In, values: [{name}]}}");
        rule(&format!("nodeExclusions: [{{nodeSelectorTerms: [{{matchFields: [{term}]}}]}}]")).node
    };
    assert_eq!([excluding("worker-0"), excluding("other")], [NodeMatch::NotSelected, NodeMatch::Selected]);
    assert!(refusal("nodeExclusions: [{}]").contains("spec.nodeExclusions[0].nodeSelectorTerms: is required"));
}

fn globs(patterns: &[&str]) -> Vec<Glob> {
    patterns.iter().map(|pattern| Glob::parse(pattern).unwrap()).collect()
}

#[test]
fn an_array_is_asked_for_with_its_level_and_refused_where_it_cannot_be_made() {
    assert_eq!(rule("layout: Directory").array, None);
    let asked = rule("array: {level: raid0}\nlayout: Directory\nminDeviceCount: 4");
    assert_eq!((asked.array, asked.min_devices), (Some(ArrayLevel::Raid0), 4));
    assert_eq!(asked.layout, Layout::Directory { quota: Quota::Project });
    for (spec, words) in [
        ("array: {}", "array.level"),
        ("array: {level: raid5}", "array.level"),
        ("array: {level: raid0, members: 2}", "members"),
        ("array: {level: raid0}\nlayout: RawDevice", "cannot be combined with the layout RawDevice"),
        ("array: {level: raid0}\nreclaim: Release", "reclaim: cannot be Release with an array"),
        ("array: {level: raid0}\ndeviceInclusionSpec: {deviceTypes: [disk, part]}", "is for whole disks"),
        ("array: {level: raid0}\ndeviceInclusionSpec: {deviceTypes: [mpath]}", "is for whole disks"),
    ] {
        let refused = refusal(spec);
        assert!(refused.contains(words), "{spec}: {refused}");
    }
}

#[test]
fn a_set_takes_named_filesystems_by_their_tags_and_no_disks() {
    assert_eq!(rule("layout: Directory").filesystems, None);
    let tags = |spec: &str| rule(&format!("layout: Directory\n{spec}")).filesystems.expect("it takes some").tags;
    assert_eq!(tags("filesystems: {}").len(), 0);
    assert_eq!(tags("filesystems: {tags: [nvme, new]}").into_iter().collect::<Vec<_>>(), ["new", "nvme"]);
    let taken = rule("layout: Directory\nfilesystems: {}\nquota: none\nreserved: 1Gi\noverprovision: 200");
    assert_eq!(taken.layout, Layout::Directory { quota: Quota::None });
    assert!(taken.filter.types.is_empty(), "no device is of a type that it takes");
    for (spec, words) in [
        ("filesystems: {}", "spec.filesystems: is for the layout Directory alone"),
        ("layout: Directory\nfilesystems: {tag: [a]}", "tag"),
        ("layout: Directory\nfilesystems: {tags: ['']}", "spec.filesystems.tags: has an empty word"),
        (
            "layout: Directory\nfilesystems: {}\narray: {level: raid0}",
            "spec.array: cannot be combined with filesystems",
        ),
        ("layout: Directory\nfilesystems: {}\nminDeviceCount: 1", "spec.minDeviceCount: cannot be combined"),
        ("layout: Directory\nfilesystems: {}\ndeviceInclusionSpec: {minSize: 1Gi}", "spec.deviceInclusionSpec: cannot"),
        ("layout: Directory\nfilesystems: {}\nhostMountPath: /mnt/d", "spec.hostMountPath: cannot be combined"),
        ("layout: Directory\nfilesystems: {}\nreclaim: Release", "spec.reclaim: cannot be Release with filesystems"),
        ("filesystems: {}\npartitioningSpec: {count: 2}", "spec.partitioningSpec: cannot be combined with filesystems"),
    ] {
        let refused = refusal(spec);
        assert!(refused.contains(words), "{spec}: {refused}");
    }
}
