//! Examples: our own parser accepts the sets, those of the documentation too; each class that an example asks for is
//! offered; and the README names every file. The documentation of sets has every field.

use std::collections::{BTreeMap, BTreeSet};

use localpool::api::crd::set_crd;
use localpool::api::{Node, parse_disk_setup, parse_sets};
use serde_json::Value;

use super::helm::{name, of_kind, parse};
use super::repository;

fn texts() -> BTreeMap<String, String> {
    let entries = std::fs::read_dir(repository().join("examples")).unwrap().map(|entry| entry.unwrap().path());
    let manifests = entries.filter(|path| path.extension().is_some_and(|extension| extension == "yaml"));
    manifests
        .map(|path| {
            let file = path.file_name().unwrap().to_str().unwrap().to_owned();
            (file, std::fs::read_to_string(path).unwrap())
        })
        .collect()
}

fn objects() -> Vec<Value> {
    texts().values().flat_map(|text| parse(text)).collect()
}

/// Every `storageClassName` below this value.
fn asked_for(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                match (key.as_str(), value) {
                    ("storageClassName", Value::String(class)) => drop(found.insert(class.clone())),
                    _ => asked_for(value, found),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| asked_for(item, found)),
        _ => {}
    }
}

#[test]
fn every_set_of_the_examples_is_taken_by_our_parser() {
    let node = Node { name: "node".into(), labels: BTreeMap::default() };
    let mut layouts = BTreeSet::new();
    for (file, text) in texts().into_iter().filter(|(file, _)| file.starts_with("set-")) {
        let (rules, errors) = parse_sets(&text, &node);
        assert!(errors.is_empty(), "{file}: {errors:?}");
        assert_eq!(rules.len(), 1, "{file}");
        layouts.insert(format!("{:?}", rules[0].layout).split([' ', '(', '{']).next().unwrap().to_owned());
    }
    assert_eq!(layouts.len(), 4, "one of each layout: {layouts:?}");
}

#[test]
fn the_set_for_a_trial_takes_nothing_but_loop_devices_on_files_of_its_name() {
    let set: Value = parse(&texts()["set-loop.yaml"]).remove(0);
    let include = &set["spec"]["deviceInclusionSpec"];
    assert_eq!(include["deviceTypes"], serde_json::json!(["loop"]));
    let paths: Vec<&str> = include["paths"].as_array().unwrap().iter().map(|path| path.as_str().unwrap()).collect();
    assert!(!paths.is_empty() && paths.iter().all(|path| path.ends_with("/localpool-disk-*.img")), "{paths:?}");
}

#[test]
fn the_local_volume_of_the_examples_is_a_rule_for_each_class_and_destroys_nothing() {
    let node = Node { name: "node".into(), labels: BTreeMap::default() };
    let (rules, errors) = parse_sets(&texts()["local-volume.yaml"], &node);
    assert!(errors.is_empty() && rules.len() == 2, "{errors:?} {rules:?}");
    assert!(rules.iter().all(|rule| rule.named.as_ref().is_some_and(|named| !named.wipe && !named.paths.is_empty())));
}

#[test]
fn every_node_disk_setup_of_the_examples_and_of_its_documentation_is_taken_by_our_parser_and_is_for_chosen_nodes() {
    let documentation = std::fs::read_to_string(repository().join("docs/node-disk-setup.md")).unwrap();
    let blocks = documentation.split("```yaml\n").skip(1).filter_map(|rest| rest.split("```").next());
    let shown: Vec<Value> = blocks.filter(|block| block.contains("kind: NodeDiskSetup")).flat_map(parse).collect();
    let examples = objects();
    let all: Vec<&Value> = of_kind(&examples, "NodeDiskSetup").into_iter().chain(&shown).collect();
    assert!(all.len() >= 2, "{all:?}");
    for object in all {
        let setup = parse_disk_setup(object).unwrap_or_else(|invalid| panic!("{}: {invalid}", name(object)));
        assert!(
            setup.node_selector().is_some(),
            "{}: whoever applies it as it is gives it no other node",
            name(object)
        );
    }
}

#[test]
fn every_class_that_the_examples_ask_for_is_offered_by_a_set_or_a_class_of_them() {
    let objects = objects();
    let mut offered: BTreeSet<&str> = BTreeSet::new();
    for set in of_kind(&objects, "LocalVolumeSet") {
        assert!(offered.insert(set["spec"]["storageClassName"].as_str().unwrap()), "{}", name(set));
    }
    for volume in of_kind(&objects, "LocalVolume") {
        for entry in volume["spec"]["storageClassDevices"].as_array().unwrap() {
            assert!(offered.insert(entry["storageClassName"].as_str().unwrap()), "{}", name(volume));
        }
    }
    for setup in of_kind(&objects, "NodeDiskSetup") {
        assert!(offered.insert(setup["spec"]["pvProvisionerOptions"]["storageClass"].as_str().unwrap()));
    }
    for class in of_kind(&objects, "StorageClass") {
        assert_eq!(class["provisioner"], "csi.localpool.dev");
        assert_eq!(class["volumeBindingMode"], "WaitForFirstConsumer");
        let of = class["parameters"]["class"].as_str().unwrap();
        assert!(offered.contains(of), "{} offers the disks of {of}, which no set has", name(class));
    }
    offered.extend(of_kind(&objects, "StorageClass").into_iter().map(name));
    let mut asked = BTreeSet::new();
    objects
        .iter()
        .filter(|object| object["kind"] != "LocalVolumeSet" && object["kind"] != "LocalVolume")
        .for_each(|object| asked_for(object, &mut asked));
    assert!(!asked.is_empty());
    for class in &asked {
        assert!(offered.contains(class.as_str()), "nobody offers {class}");
    }
}

#[test]
fn the_readme_of_the_examples_names_every_file() {
    let readme = std::fs::read_to_string(repository().join("examples/README.md")).unwrap();
    for file in texts().keys() {
        assert!(readme.contains(&format!("[{file}]({file})")), "{file}");
    }
}

fn documentation() -> String {
    std::fs::read_to_string(repository().join("docs/local-volume-sets.md")).unwrap()
}

/// The names of all fields of an object in a schema, and of the objects in it that have more than one field of their
/// own.
fn fields(schema: &Value, found: &mut BTreeSet<String>) {
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        found.insert(name.clone());
        // Fields of Kubernetes are documented there.
        if name.ends_with("Spec") {
            fields(field, found);
        }
    }
}

#[test]
fn every_field_of_a_set_is_in_the_tables_of_its_documentation() {
    let crd = serde_json::to_value(set_crd()).unwrap();
    let mut names = BTreeSet::new();
    fields(&crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"], &mut names);
    assert!(names.len() > 30 && names.contains("dryRun") && names.contains("numaNodes"), "{names:?}");
    let text = documentation();
    let cells: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("| ")?.split(" | ").next()).collect();
    for name in names {
        assert!(cells.iter().any(|cell| cell.contains(&format!("`{name}`"))), "{name} is in no table");
    }
}

#[test]
fn every_whole_set_of_the_documentation_is_taken_by_our_parser() {
    let node = Node { name: "node".into(), labels: BTreeMap::default() };
    let text = documentation();
    let blocks = text.split("```yaml\n").skip(1).filter_map(|rest| rest.split("```").next());
    let whole: Vec<&str> = blocks.filter(|block| block.contains("kind: LocalVolumeSet")).collect();
    assert!(whole.len() >= 3, "{whole:?}");
    for block in whole {
        let (rules, errors) = parse_sets(block, &node);
        assert!(errors.is_empty() && rules.len() == 1, "{block}: {errors:?}");
    }
}
