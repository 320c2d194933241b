use super::*;
use crate::api::parse_sets;
use crate::device::{DeviceType, SetName};

/// The manifest of the operator's documentation, with all possible fields.
const OPERATORS: &str = r#"
apiVersion: "local.storage.openshift.io/v1"
kind: "LocalVolume"
metadata:
  name: "local-disks"
  namespace: "openshift-local-storage"
spec:
  logLevel: Normal
  managementState: Managed
  nodeSelector:
    nodeSelectorTerms:
    - matchExpressions:
        - key: kubernetes.io/hostname
          operator: In
          values:
          - node-a
  tolerations:
    - key: localstorage
      operator: Equal
      value: "localstorage"
  storageClassDevices:
    - storageClassName: "local-sc"
      forceWipeDevicesAndDestroyAllData: false
      volumeMode: Filesystem
      fsType: xfs
      devicePaths:
        - /dev/disk/by-id/wwn-0x5000c500a1b2c3d4
        - /dev/sdc
    - storageClassName: "localblock-sc"
      forceWipeDevicesAndDestroyAllData: true
      volumeMode: Block
      devicePaths: [/dev/sdd]
"#;

fn rules(text: &str) -> Vec<Rule> {
    let (rules, errors) = parse_sets(text, &Node::standalone("node-a"));
    assert!(errors.is_empty(), "{errors:?}");
    rules
}

fn refusal(text: &str) -> String {
    let (rules, errors) = parse_sets(text, &Node::standalone("node-a"));
    assert!(rules.is_empty(), "{rules:?}");
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

fn volume(spec: &str) -> String {
    format!("apiVersion: local.storage.openshift.io/v1\nkind: LocalVolume\nmetadata: {{name: lv}}\nspec: {spec}\n")
}

fn entries(entries: &str) -> String {
    volume(&format!("{{storageClassDevices: [{entries}]}}"))
}

#[test]
fn the_operators_manifest_is_a_rule_for_each_class() {
    let rules = rules(OPERATORS);
    let [fs, block] = rules.as_slice() else { panic!("{rules:?}") };
    assert_eq!(fs.set.name, SetName::new("openshift-local-storage", "local-disks/local-sc"));
    assert_eq!((fs.class.as_str(), fs.volume_mode, fs.fs), ("local-sc", Some(VolumeMode::Filesystem), FsKind::Xfs));
    let paths = ["/dev/disk/by-id/wwn-0x5000c500a1b2c3d4", "/dev/sdc"].map(PathBuf::from).to_vec();
    assert_eq!(fs.named, Some(NamedPaths { paths, wipe: false }));
    assert_eq!((fs.max_devices, fs.min_devices, fs.layout.clone()), (Some(2), 0, Layout::Whole {}));
    assert_eq!((fs.filter.min_size, fs.filter.types.contains(&DeviceType::Lvm)), (0, true), "any size, any sort");
    assert_eq!((fs.tolerations.len(), fs.dry_run), (1, false));
    assert_eq!((block.class.as_str(), block.volume_mode), ("localblock-sc", Some(VolumeMode::Block)));
    assert_eq!(block.named, Some(NamedPaths { paths: vec!["/dev/sdd".into()], wipe: true }));
    assert_ne!(fs.set.uid, block.set.uid, "two owners");
    assert!(rules.iter().all(|rule| rule.node == NodeMatch::Selected));
    let elsewhere = parse_sets(OPERATORS, &Node::standalone("node-b")).0;
    assert!(elsewhere.iter().all(|rule| rule.node == NodeMatch::NotSelected));
}

#[test]
fn absent_fields_mean_what_they_mean_in_a_set_and_nothing_is_wiped() {
    let rules = rules(&entries("{storageClassName: fast, devicePaths: [/dev/sdb]}"));
    let rule = &rules[0];
    assert_eq!((rule.node, rule.volume_mode, rule.fs), (NodeMatch::Selected, None, FsKind::Ext4));
    assert!(!rule.named.as_ref().unwrap().wipe);
    assert_eq!(rule.set.name, SetName::new("default", "lv/fast"));
}

#[test]
fn an_entry_without_paths_and_an_object_without_entries_take_nothing_as_with_the_operator() {
    assert_eq!(rules(&volume("{}")), []);
    assert_eq!(rules(&entries("{storageClassName: fast}"))[0].max_devices, Some(0));
}

#[test]
fn what_the_operator_would_leave_alone_is_a_dry_run() {
    for (state, dry) in [("Managed", false), ("Force", false), ("Unmanaged", true), ("Removed", true), ("\"\"", false)]
    {
        let spec = format!("{{managementState: {state}, storageClassDevices: [{{storageClassName: a}}]}}");
        assert_eq!(rules(&volume(&spec))[0].dry_run, dry, "{state}");
    }
}

#[test]
fn every_slip_is_named_with_its_place() {
    let first = "spec.storageClassDevices[0]";
    for (entry, says) in [
        ("{devicePaths: [/dev/sdb]}", format!("{first}.storageClassName: is required")),
        ("{storageClassName: Fast}", "not a valid name of a StorageClass".to_owned()),
        ("{storageClassName: a/b}", "not a valid name of a StorageClass".to_owned()),
        ("{storageClassName: a, devicePaths: [sdb]}", format!("{first}.devicePaths[0]: \"sdb\" is not a device path")),
        ("{storageClassName: a, devicePaths: [/dev]}", "is not a device path".to_owned()),
        ("{storageClassName: a, devicePaths: [/development/x]}", "is not a device path".to_owned()),
        ("{storageClassName: a, devicePaths: [/var/a.img]}", "it must begin with /dev/".to_owned()),
        ("{storageClassName: a, devicePaths: [/dev/../etc/x]}", "contains `..`".to_owned()),
        ("{storageClassName: a, devicePaths: ['/dev/sd*']}", "has a glob character".to_owned()),
        ("{storageClassName: a, devicePaths: /dev/sdb}", format!("{first}.devicePaths: must be a list")),
        ("{storageClassName: a, fsType: zfs}", "is not one of ext4, xfs, btrfs".to_owned()),
        ("{storageClassName: a, forceWipeDevices: true}", "forceWipeDevices: unknown field".to_owned()),
        ("{storageClassName: a, forceWipeDevicesAndDestroyAllData: 'yes'}", "must be true or false".to_owned()),
        (
            "{storageClassName: a, devicePaths: [/dev/sdb]}, {storageClassName: b, devicePaths: [/dev//sdb]}",
            format!("is at {first}.devicePaths[0] too"),
        ),
        ("{storageClassName: a, devicePaths: [/dev/sdb, /dev/sdb]}", format!("is at {first}.devicePaths[0] too")),
        ("{storageClassName: a}, {storageClassName: a}", format!("is at {first}.storageClassName too")),
    ] {
        let message = refusal(&entries(entry));
        assert!(message.contains(&says), "{entry}: {message}");
    }
    for (spec, says) in [
        ("{managementState: managed}", "is not one of Managed"),
        ("{logLevel: Loud}", "is not one of"),
        ("{dryRun: true}", "spec.dryRun: unknown field"),
        ("{foo: bar}", "spec.foo: unknown field"),
    ] {
        let message = refusal(&volume(spec));
        assert!(message.contains(says), "{spec}: {message}");
    }
    let version = volume("{}").replace("io/v1\n", "io/v1alpha1\n");
    assert!(refusal(&version).contains("apiVersion: is not local.storage.openshift.io/v1"), "{version}");
}

#[test]
fn a_file_may_hold_sets_and_local_volumes_and_one_that_is_wrong_loses_no_other() {
    let set = "apiVersion: local.storage.openshift.io/v1alpha1\nkind: LocalVolumeSet\nmetadata: {name: lv}\nspec: {storageClassName: all}\n";
    let bad = entries("{storageClassName: b, devicePaths: [x]}").replace("name: lv", "name: bad");
    let good = entries("{storageClassName: fast, devicePaths: [/dev/sdb]}");
    let (rules, errors) =
        parse_sets(&format!("{set}---\n{bad}---\n{good}---\n{good}---\nkind: Pod\n"), &Node::standalone("n"));
    let names: Vec<(&str, u32)> = rules.iter().map(|rule| (rule.set.name.name.as_str(), rule.position)).collect();
    assert_eq!(names, [("lv", 0), ("lv/fast", 1)], "a set and a LocalVolume may have one name");
    let messages: Vec<String> = errors.iter().map(ToString::to_string).collect();
    assert_eq!(messages.len(), 3, "{messages:?}");
    assert!(messages[0].starts_with("document 2 ") && messages[0].contains("default/bad"), "{messages:?}");
    assert!(messages[1].contains("document 3 has this namespace and name already"), "{messages:?}");
    assert!(messages[2].contains("kind: is neither LocalVolumeSet nor LocalVolume"), "{messages:?}");
}
