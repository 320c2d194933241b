use super::super::sample;
use super::*;
use crate::api::{Node, crd::LocalVolumeSet, parse_set};
use crate::claim::{NodeMatch, Rule};

const OLD: &str = "2026-01-01T00:00:00Z";
const YOUNG: &str = "2026-01-02T00:00:00Z";

/// One that sets up the disks of nodes with this pool, or of all.
fn setup(name: &str, created: &str, pool: Option<&str>, more: Value) -> Arc<NodeDiskSetup> {
    let mut spec = json!({"diskSetupDisabled": false});
    if let Some(pool) = pool {
        spec["placement"] = json!({"nodeSelector": {"pool": pool}});
    }
    spec.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    Arc::new(sample::setup(name, created, spec))
}

/// The set of an object by its name, with these that are there.
fn state(setups: &[Arc<NodeDiskSetup>], name: &str, sets: &[Arc<LocalVolumeSet>]) -> OwnSet {
    let setups = Setups::of(setups.to_vec());
    let place = setups.all().iter().position(|one| one.object.name_any() == name).expect("it is there");
    OwnSets::of("localpool", sets).state(&setups, place)
}

fn missing(state: OwnSet) -> LocalVolumeSet {
    match state {
        OwnSet::Missing(set) => *set,
        other => panic!("{other:?}"),
    }
}

fn differs(state: OwnSet) -> LocalVolumeSet {
    match state {
        OwnSet::Differs(set) => *set,
        other => panic!("{other:?}"),
    }
}

/// What the set is to the agent of a node of this pool.
fn rule(set: &LocalVolumeSet, pool: &str) -> Rule {
    let node = Node { name: "n".into(), labels: [("pool".to_owned(), pool.to_owned())].into() };
    parse_set(&serde_json::to_value(set).expect("JSON"), &node, 0).expect("a valid set")
}

#[test]
fn its_set_is_its_own_in_the_namespace_of_the_release_and_is_kept_as_it_is() {
    let setups = [setup("a", OLD, None, json!({}))];
    let set = missing(state(&setups, "a", &[]));
    assert_eq!((set.name_any().as_str(), set.namespace().as_deref()), ("node-disk-setup-a", Some("localpool")));
    let owner = &set.owner_references()[0];
    assert_eq!((owner.kind.as_str(), owner.uid.as_str()), ("NodeDiskSetup", "uid-a"));
    assert_eq!(rule(&set, "x").node, NodeMatch::Selected);
    let there = [Arc::new(set)];
    assert_eq!(state(&setups, "a", &there), OwnSet::Kept);
    let changed = [setup("a", OLD, None, json!({"minDeviceCount": 4}))];
    assert_eq!(rule(&differs(state(&changed, "a", &there)), "x").min_devices, 4);
}

#[test]
fn a_setup_that_is_switched_off_has_no_set_or_one_that_takes_nothing_more() {
    let off = || [setup("a", OLD, None, json!({"diskSetupDisabled": true}))];
    assert_eq!(state(&off(), "a", &[]), OwnSet::Absent);
    let there = [Arc::new(missing(state(&[setup("a", OLD, None, json!({}))], "a", &[])))];
    let dry = differs(state(&off(), "a", &there));
    assert!(rule(&dry, "x").dry_run, "what it has stays its own");
    assert_eq!(state(&off(), "a", &[Arc::new(dry)]), OwnSet::Kept);
}

#[test]
fn after_a_slip_its_set_stays_as_it_was() {
    let there = [Arc::new(missing(state(&[setup("a", OLD, None, json!({}))], "a", &[])))];
    let slip = [setup("a", OLD, None, json!({"localDiskPath": "/mnt"}))];
    assert_eq!([state(&slip, "a", &there), state(&slip, "a", &[])], [OwnSet::Kept, OwnSet::Absent]);
}

#[test]
fn of_two_for_one_node_only_the_set_of_the_older_one_selects_it() {
    let setups = [setup("young", YOUNG, None, json!({})), setup("old", OLD, Some("x"), json!({}))];
    let young = missing(state(&setups, "young", &[]));
    assert_eq!([rule(&young, "x").node, rule(&young, "y").node], [NodeMatch::NotSelected, NodeMatch::Selected]);
    let old = missing(state(&setups, "old", &[]));
    assert_eq!([rule(&old, "x").node, rule(&old, "y").node], [NodeMatch::Selected, NodeMatch::NotSelected]);
}

#[test]
fn an_older_one_has_its_nodes_also_if_it_is_for_all_sets_up_nothing_or_has_a_slip() {
    let young = || setup("young", YOUNG, None, json!({}));
    let all = [young(), setup("old", OLD, None, json!({}))];
    assert_eq!(rule(&missing(state(&all, "young", &[])), "y").node, NodeMatch::NotSelected);
    let off = [young(), setup("old", OLD, Some("x"), json!({"diskSetupDisabled": true}))];
    assert_eq!(rule(&missing(state(&off, "young", &[])), "x").node, NodeMatch::NotSelected);
    let there = [Arc::new(missing(state(&[setup("old", OLD, Some("x"), json!({}))], "old", &[])))];
    let slip = [young(), setup("old", OLD, Some("y"), json!({"slip": 1}))];
    let young = missing(state(&slip, "young", &there));
    assert_eq!([rule(&young, "x").node, rule(&young, "y").node], [NodeMatch::NotSelected, NodeMatch::Selected]);
}

#[test]
fn an_older_one_that_never_was_valid_has_the_nodes_that_it_is_meant_for_or_all_if_nobody_can_say() {
    let nodes = |more: Value| {
        let setups = [setup("young", YOUNG, None, json!({})), setup("old", OLD, Some("x"), more)];
        assert_eq!(state(&setups, "old", &[]), OwnSet::Absent, "it takes nothing itself");
        let young = missing(state(&setups, "young", &[]));
        [rule(&young, "x").node, rule(&young, "y").node]
    };
    let of_x = [NodeMatch::NotSelected, NodeMatch::Selected];
    assert_eq!(nodes(json!({"slip": 1})), of_x);
    assert_eq!(nodes(json!({"minDeviceCount": "four"})), of_x);
    let nobody_knows = [NodeMatch::NotSelected; 2];
    assert_eq!(nodes(json!({"placement": {"nodeSelectors": {"pool": "x"}}})), nobody_knows);
    assert_eq!(nodes(json!({"placement": {"nodeSelector": {"pool": 7}}})), nobody_knows);
    // Without a placement it is for all.
    assert_eq!(nodes(json!({"placement": null, "slip": 1})), nobody_knows);
}

#[test]
fn a_younger_one_that_is_not_valid_keeps_no_node_from_an_older_one() {
    let setups = [setup("young", YOUNG, None, json!({"slip": 1})), setup("old", OLD, None, json!({}))];
    assert_eq!(rule(&missing(state(&setups, "old", &[])), "x").node, NodeMatch::Selected);
}

#[test]
fn a_slip_in_an_older_one_that_sets_up_nothing_gives_its_nodes_to_nobody() {
    let of = |older: Value| [setup("young", YOUNG, None, json!({})), setup("old", OLD, Some("x"), older)];
    let there = [Arc::new(missing(state(&of(json!({"diskSetupDisabled": true})), "young", &[])))];
    assert_eq!(rule(&there[0], "x").node, NodeMatch::NotSelected);
    assert_eq!(state(&of(json!({"diskSetupDisable": true})), "young", &there), OwnSet::Kept, "nobody takes its disks");
    let mended = of(json!({"diskSetupDisabled": true, "minDeviceCount": 2}));
    assert_eq!(state(&mended, "young", &there), OwnSet::Kept);
    let gone = [setup("young", YOUNG, None, json!({}))];
    assert_eq!(rule(&differs(state(&gone, "young", &there)), "x").node, NodeMatch::Selected, "it was deleted");
}

#[test]
fn a_set_of_somebody_else_is_never_written() {
    let setups = [setup("a", OLD, None, json!({}))];
    let mut foreign = missing(state(&setups, "a", &[]));
    foreign.metadata.owner_references.as_mut().expect("one")[0].uid = "uid-before".to_owned();
    let OwnSet::Refused(why) = state(&setups, "a", &[Arc::new(foreign.clone())]) else { panic!("refused") };
    assert!(why.contains("localpool/node-disk-setup-a is of a NodeDiskSetup that had this name"), "{why}");
    foreign.metadata.owner_references = None;
    let OwnSet::Refused(why) = state(&setups, "a", &[Arc::new(foreign.clone())]) else { panic!("refused") };
    assert!(why.contains("was made by somebody else"), "{why}");
    foreign.metadata.namespace = Some("other".to_owned());
    assert!(matches!(state(&setups, "a", &[Arc::new(foreign)]), OwnSet::Missing(_)), "that one is no obstacle");
    let mut long = NodeDiskSetup::clone(&setup(&"x".repeat(240), OLD, None, json!({})));
    long.metadata.uid = Some("a-uid".to_owned());
    let long = [Arc::new(long)];
    let OwnSet::Refused(why) = state(&long, &"x".repeat(240), &[]) else { panic!("refused") };
    assert!(why.contains("take one of 237 bytes"), "{why}");
}
