use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::claim::{
    ballot::Candidacy,
    mismatch::Mismatch,
    named::NamedPaths,
    rule::{Filter, MinHealth, Rule},
    sample::rule,
    unfit::LayoutError,
    wipe::NotWiped,
};
use crate::device::{
    Believed, Device, DeviceType, NotFree, Reason, Verdict, id,
    label::ArrayLevel,
    sample::{device, disk, dm, partition, set, unclaimed},
};
use crate::host::{Health, RawDisk};

fn ripe(_: &Device) -> Ripeness {
    Ripeness::Ripe
}

fn anything_fits(_: &Rule, _: &Device) -> Result<(), LayoutError> {
    Ok(())
}

fn candidacies_of(devices: &[Device], ripeness: &dyn Fn(&Device) -> Ripeness) -> BTreeMap<KernelName, Candidacy> {
    let candidacy =
        |device: &Device| Candidacy { ripeness: ripeness(device), health: Some(says(device)), ..Candidacy::default() };
    devices.iter().map(|device| (device.raw.name.clone(), candidacy(device))).collect()
}

/// What an election is decided on, of which a test changes a part.
struct Case<'a> {
    rules: &'a [Rule],
    devices: &'a [Device],
    candidacies: BTreeMap<KernelName, Candidacy>,
    claimed: BTreeMap<SetRef, u32>,
    open_places: BTreeMap<SetRef, u32>,
    astray: BTreeMap<SetRef, u32>,
    released: BTreeSet<DiskId>,
    fits: fn(&Rule, &Device) -> Result<(), LayoutError>,
    lacks: BTreeMap<SetRef, LayoutError>,
}

impl<'a> Case<'a> {
    fn new(rules: &'a [Rule], devices: &'a [Device]) -> Self {
        Self {
            rules,
            devices,
            candidacies: candidacies_of(devices, &ripe),
            claimed: BTreeMap::new(),
            open_places: BTreeMap::new(),
            astray: BTreeMap::new(),
            released: BTreeSet::new(),
            fits: anything_fits,
            lacks: BTreeMap::new(),
        }
    }

    fn ballot(&self) -> Ballot<'_> {
        let Self { rules, devices, candidacies, claimed, open_places, astray, released, fits, lacks } = self;
        Ballot { rules, devices, candidacies, claimed, open_places, astray, released, fits: *fits, lacks }
    }

    fn elect(&self) -> Election {
        elect(&self.ballot())
    }
}

fn run(rules: &[Rule], devices: &[Device], has: &[(&str, u32)], ripeness: &dyn Fn(&Device) -> Ripeness) -> Election {
    let claimed = has.iter().map(|(name, count)| (set(name), *count)).collect();
    Case { candidacies: candidacies_of(devices, ripeness), claimed, ..Case::new(rules, devices) }.elect()
}

/// A disk says how it is by its name.
fn says(device: &Device) -> Health {
    match &*device.raw.name {
        "well" => Health::Passed,
        "failing" => Health::Failing("critical warning: spare space is low".to_owned()),
        _ => Health::Unknown("it is fake".to_owned()),
    }
}

fn disks(names: &[&str]) -> Vec<Device> {
    names.iter().map(|name| unclaimed(name)).collect()
}

fn took<'e>(election: &'e Election, name: &str) -> Vec<&'e str> {
    election.claims.iter().filter(|claim| claim.set.name.name == name).map(|claim| claim.name.as_str()).collect()
}

fn rejection(election: &Election, name: &str, device: &str) -> Rejection {
    let outcome = election.outcomes.iter().find(|outcome| outcome.set.name.name == name).unwrap();
    outcome.rejected.iter().find(|(name, _)| name == device).unwrap().1.clone()
}

fn bounded(name: &str, least: u32, most: Option<u32>) -> Rule {
    Rule { min_devices: least, max_devices: most, ..rule(name) }
}

#[test]
fn the_older_set_wins_then_the_first_in_the_file_then_the_name() {
    let devices = disks(&["sda"]);
    let aged = |name, created, position| Rule { created, position, ..rule(name) };
    for (rules, winner) in [
        ([aged("a", 20, 0), aged("b", 10, 5)], "b"),
        ([aged("a", 10, 2), aged("b", 10, 1)], "b"),
        ([aged("b", 10, 0), aged("a", 10, 0)], "a"),
        ([aged("a", i64::MAX, 0), aged("b", 1, 1)], "b"),
    ] {
        let election = run(&rules, &devices, &[], &ripe);
        assert_eq!(took(&election, winner), ["sda"]);
        let loser = if winner == "a" { "b" } else { "a" };
        assert_eq!(rejection(&election, loser, "sda"), Rejection::OlderSet(set(winner)));
    }
}

#[test]
fn the_expression_of_a_set_is_asked_last_of_its_filters_and_what_it_cannot_say_is_left() {
    let expression = |text| Some(crate::claim::expression::Expression::parse(text).unwrap());
    let asks = |name, text| Rule { filter: Filter { expression: expression(text), ..rule("x").filter }, ..rule(name) };
    let (devices, named) = (disks(&["sda", "sdb"]), "device.name == 'sdb'");
    let election = run(&[asks("a", named), asks("b", "device.size")], &devices, &[], &ripe);
    assert_eq!((took(&election, "a"), took(&election, "b")), (vec!["sdb"], vec![]));
    assert_eq!(rejection(&election, "a", "sda").to_string(), "the expression is not true for it: device.name == 'sdb'");
    assert!(rejection(&election, "b", "sda").to_string().contains("it returns a number, not true or false"));
    let small = Rule { filter: Filter { max_size: Some(1), ..asks("c", named).filter }, ..rule("c") };
    assert!(matches!(
        rejection(&run(&[small], &devices, &[], &ripe), "c", "sda"),
        Rejection::Filter(Mismatch::TooLarge { .. })
    ));
}

#[test]
fn a_set_takes_what_does_not_say_that_it_fails_or_only_what_says_that_it_is_well_or_does_not_ask() {
    let asks = |min_health| Rule { filter: Filter { min_health, ..rule("x").filter }, ..rule("a") };
    let devices = disks(&["failing", "silent", "well"]);
    let took_by = |min_health| {
        let election = run(&[asks(min_health)], &devices, &[], &ripe);
        let why = election.outcomes[0].rejected.iter().map(|(_, rejection)| rejection.to_string()).collect::<Vec<_>>();
        (took(&election, "a").into_iter().map(str::to_owned).collect::<Vec<_>>(), why)
    };
    let failing = "its SMART status says that it is failing (critical warning: spare space is low)";
    let silent = "it does not report its health (it is fake), and minHealth is Passed";
    let texts = |texts: &[&str]| texts.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    assert_eq!(took_by(None), (texts(&["failing", "silent", "well"]), vec![]));
    assert_eq!(took_by(Some(MinHealth::NotFailing)), (texts(&["silent", "well"]), texts(&[failing])));
    assert_eq!(took_by(Some(MinHealth::Passed)), (texts(&["well"]), texts(&[failing, silent])));
    let unasked = Device { verdict: Verdict::Unknown("busy".into()), ..unclaimed("never") };
    let (rules, devices) = ([asks(Some(MinHealth::Passed)), asks(None)], [unasked, unclaimed("well")]);
    let case = Case::new(&rules, &devices);
    assert_eq!(
        devices_to_ask(&case.ballot()),
        BTreeSet::from(["well".into()]),
        "the other one could not be taken anyway"
    );
    let election = case.elect();
    assert_eq!(rejection(&election, "a", "never"), Rejection::Verdict(NotFree::Unknown("busy".to_owned())));
}

#[test]
fn a_dry_run_takes_nothing_keeps_nothing_from_others_and_says_what_it_would_take() {
    let mut devices = disks(&["sda", "sdb", "sdc"]);
    devices[1].verdict = Verdict::Theirs(Reason::CdRom);
    let dry = Rule { dry_run: true, max_devices: Some(1), ..rule("dry") };
    let young = |_: &Device| Ripeness::Waiting(Duration::from_secs(60));
    for ripeness in [&ripe as &dyn Fn(&Device) -> Ripeness, &young] {
        let election = run(std::slice::from_ref(&dry), &devices, &[], ripeness);
        assert_eq!(took(&election, "dry"), Vec::<&str>::new());
        assert_eq!(election.outcomes[0].would_take, ["sda"]);
        assert_eq!(rejection(&election, "dry", "sdb"), Rejection::Verdict(NotFree::Theirs(Reason::CdRom)));
        assert_eq!(rejection(&election, "dry", "sdc"), Rejection::Full { most: 1 });
    }
    // The younger set is not held up by it; it is held up by an older one.
    let younger = Rule { created: 1, ..rule("real") };
    let election = run(&[dry.clone(), younger], &devices, &[], &ripe);
    assert_eq!(took(&election, "real"), ["sda", "sdc"]);
    let election = run(&[Rule { created: 2, ..dry }, rule("real")], &devices, &[], &ripe);
    assert_eq!(election.outcomes[1].would_take, [""; 0]);
    assert_eq!(rejection(&election, "dry", "sda"), Rejection::OlderSet(set("real")));
}

#[test]
fn network_disks_are_left_where_a_set_excludes_them() {
    let mut devices = disks(&["sda", "nvme0n1"]);
    devices[1].raw.model = Some("Amazon Elastic Block Store".into());
    let local = Rule { filter: Filter { exclude_network: true, ..rule("x").filter }, ..rule("local") };
    let message = "its data comes over a network (Amazon EBS), and excludeNetworkDisks is set";
    let election = run(std::slice::from_ref(&local), &devices, &[], &ripe);
    assert_eq!(took(&election, "local"), ["sda"]);
    assert_eq!(rejection(&election, "local", "nvme0n1").to_string(), message);
    // Asked before an expression, which would say no too.
    let expression = Some(crate::claim::expression::Expression::parse("device.name == 'sda'").unwrap());
    let both = Rule { filter: Filter { expression, ..local.filter.clone() }, ..local };
    assert_eq!(rejection(&run(&[both], &devices, &[], &ripe), "local", "nvme0n1").to_string(), message);
    assert_eq!(took(&run(&[rule("any")], &devices, &[], &ripe), "any").len(), 2);
}

#[test]
fn a_device_that_was_released_is_left_and_its_set_says_so() {
    let devices = disks(&["sda", "sdb"]);
    let released = BTreeSet::from([devices[0].id.clone()]);
    let election = Case { released, ..Case::new(&[rule("any")], &devices) }.elect();
    assert_eq!(took(&election, "any"), ["sdb"]);
    assert_eq!(rejection(&election, "any", "sda"), Rejection::Released);
}

#[test]
fn the_maximum_counts_what_the_set_has_already() {
    let devices = disks(&["sda", "sdb", "sdc"]);
    for (has, takes) in [(0, 2), (1, 1), (2, 0), (7, 0)] {
        let election = run(&[bounded("a", 0, Some(2))], &devices, &[("a", has)], &ripe);
        assert_eq!(took(&election, "a").len(), takes, "has {has}");
    }
    let election = run(&[bounded("a", 0, Some(2))], &devices, &[], &ripe);
    assert_eq!(rejection(&election, "a", "sdc"), Rejection::Full { most: 2 });
}

#[test]
fn the_minimum_holds_back_only_the_first_claim() {
    let devices = disks(&["sda", "sdb"]);
    let election = run(&[bounded("a", 3, None)], &devices, &[], &ripe);
    assert_eq!(election.claims, []);
    assert_eq!(rejection(&election, "a", "sda"), Rejection::BelowMinimum { matching: 2, least: 3 });
    assert_eq!(took(&run(&[bounded("a", 3, None)], &devices, &[("a", 1)], &ripe), "a"), ["sda", "sdb"]);
    assert_eq!(took(&run(&[bounded("a", 2, None)], &devices, &[], &ripe), "a"), ["sda", "sdb"]);
}

#[test]
fn what_a_set_below_its_minimum_cannot_use_goes_to_the_next() {
    let rules = [bounded("a", 3, None), Rule { created: 1, ..rule("b") }];
    assert_eq!(took(&run(&rules, &disks(&["sda", "sdb"]), &[], &ripe), "b"), ["sda", "sdb"]);
}

#[test]
fn what_an_older_set_waits_for_is_not_snatched_by_a_younger() {
    let rules = [bounded("a", 3, None), Rule { created: 1, ..rule("b") }];
    let young = |device: &Device| match device.raw.name.as_str() {
        "sdc" => Ripeness::Waiting(Duration::from_secs(9)),
        _ => Ripeness::Ripe,
    };
    let election = run(&rules, &disks(&["sda", "sdb", "sdc"]), &[], &young);
    assert_eq!(election.claims, []);
    assert_eq!(rejection(&election, "a", "sda"), Rejection::WaitsForMinimum { ripe: 2, least: 3 });
    assert_eq!(rejection(&election, "a", "sdc").to_string(), "seen too recently: it must stay unchanged for 9 s more");
    assert_eq!(rejection(&election, "b", "sda"), Rejection::OlderSet(set("a")));
}

#[test]
fn what_waits_for_a_kernel_with_quota_is_not_snatched_by_a_younger_set_and_what_has_no_place_is() {
    let rules = [bounded("a", 0, Some(1)), Rule { created: 1, ..rule("b") }];
    let devices = disks(&["sda", "sdb"]);
    let why = LayoutError::NoQuota { why: "the kernel has none".to_owned() };
    let election = Case { lacks: BTreeMap::from([(set("a"), why.clone())]), ..Case::new(&rules, &devices) }.elect();
    assert_eq!(rejection(&election, "a", "sda"), Rejection::DoesNotFit(why));
    assert_eq!(rejection(&election, "a", "sdb"), Rejection::Full { most: 1 });
    assert_eq!(rejection(&election, "b", "sda"), Rejection::OlderSet(set("a")));
    assert_eq!((took(&election, "a"), took(&election, "b")), (vec![], vec!["sdb"]));
}

#[test]
fn a_device_that_is_not_ripe_does_not_hold_the_place_of_one_that_is() {
    let unseen = |device: &Device| if device.raw.name == "sda" { Ripeness::Unseen } else { Ripeness::Ripe };
    let election = run(&[bounded("a", 0, Some(1))], &disks(&["sda", "sdb"]), &[], &unseen);
    assert_eq!(took(&election, "a"), ["sdb"]);
}

#[test]
fn only_unclaimed_and_unmistakable_devices_are_taken() {
    let mut devices = disks(&["sda", "sdb", "sdc", "sdd", "sde"]);
    devices[0].verdict = Verdict::Theirs(Reason::Busy);
    devices[1].verdict = Verdict::Unknown("x".into());
    devices[2].verdict = Verdict::Foreign { cluster: "c".into(), node: "n".into() };
    devices[3].believed = Believed::No("copy".into());
    devices[4].verdict = Verdict::Ours;
    let election = run(&[rule("a")], &devices, &[], &ripe);
    assert_eq!(election.claims, []);
    assert_eq!(election.outcomes[0].rejected.len(), 4, "a pool disk needs no explanation");
    assert_eq!(rejection(&election, "a", "sda").to_string(), Reason::Busy.to_string());
    assert_eq!(rejection(&election, "a", "sdd"), Rejection::Verdict(NotFree::Disbelieved("copy".into())));
}

#[test]
fn a_set_is_told_of_disks_that_it_selects_and_another_set_has_and_of_no_other_pool_disk() {
    let mut devices = disks(&["sda", "sdb"]);
    for device in &mut devices {
        device.verdict = Verdict::Ours;
        device.label = Some(crate::device::sample::label("c", "n").into());
    }
    let owner = devices[0].label.as_ref().unwrap().set.clone();
    devices[1].raw.size = 1 << 20;
    let large = Filter { min_size: 1 << 30, ..crate::claim::sample::filter() };
    let own = Rule { set: SetRef { uid: "made again".into(), ..owner.clone() }, ..rule("own") };
    let election = run(&[own, Rule { filter: large, ..rule("late") }], &devices, &[], &ripe);
    assert_eq!(election.claims, []);
    let own = election.outcomes.iter().find(|outcome| outcome.set.name.name != "late").unwrap();
    assert_eq!((&*own.rejected, &*own.deselected), (&[][..], &[][..]));
    let late = election.outcomes.iter().find(|outcome| outcome.set.name.name == "late").unwrap();
    assert_eq!(late.rejected, [("sda".into(), Rejection::InSet(owner.clone()))]);
    assert_eq!(late.deselected, [""; 0]);
    assert_eq!(late.rejected[0].1.to_string(), format!("the set {} has it", owner.name));
}

#[test]
fn a_set_knows_its_disks_that_it_would_not_choose_any_more_and_keeps_them() {
    let mut devices = disks(&["sda", "sdb"]);
    for device in &mut devices {
        device.verdict = Verdict::Ours;
        device.label = Some(crate::device::sample::label("c", "n").into());
    }
    let set = devices[0].label.as_ref().unwrap().set.clone();
    devices[1].raw.size = 1 << 20;
    let deselected = |rule: Rule| run(&[rule], &devices, &[], &ripe).outcomes.remove(0).deselected;
    let now = |rule: Rule| Rule { set: set.clone(), ..rule };
    let large = Filter { min_size: 1 << 30, ..crate::claim::sample::filter() };
    assert_eq!(deselected(now(Rule { filter: large.clone(), ..rule("x") })), ["sdb"]);
    assert_eq!(deselected(now(rule("x"))), [""; 0]);
    assert_eq!(deselected(now(Rule { node: NodeMatch::NotSelected, ..rule("x") })), ["sda", "sdb"]);
    for node in [NodeMatch::HeldBack, NodeMatch::Tainted, NodeMatch::StandsBack] {
        assert_eq!(deselected(now(Rule { node, ..rule("x") })), [""; 0], "{node:?}");
    }
    assert_eq!(deselected(Rule { filter: large, ..rule("another") }), [""; 0]);
}

#[test]
fn a_disk_without_stable_identity_is_labelled_but_never_used_raw() {
    let nameless = [device(disk("sda"), Verdict::Unclaimed)];
    assert_eq!(took(&run(&[rule("a")], &nameless, &[], &ripe), "a"), ["sda"]);
    let bare = Rule { layout: Layout::RawDevice {}, ..rule("a") };
    assert_eq!(rejection(&run(&[bare], &nameless, &[], &ripe), "a", "sda"), Rejection::UnstableIdentity);
}

#[test]
fn a_disk_that_has_only_the_names_of_its_usb_bridge_is_labelled_but_never_used_raw() {
    let bare = || Rule { layout: Layout::RawDevice {}, ..rule("a") };
    let bridged = |name| RawDisk { transport: Some("usb".to_owned()), wwid: Some("naa.5000".to_owned()), ..disk(name) };
    let docked = [device(bridged("sda"), Verdict::Unclaimed)];
    assert_eq!(took(&run(&[rule("a")], &docked, &[], &ripe), "a"), ["sda"]);
    assert_eq!(rejection(&run(&[bare()], &docked, &[], &ripe), "a", "sda"), Rejection::NamedByBridge);
    let sata = RawDisk { transport: Some("sata".to_owned()), ..bridged("sda") };
    assert_eq!(took(&run(&[bare()], &[device(sata, Verdict::Unclaimed)], &[], &ripe), "a"), ["sda"]);
    // A GUID goes with the disk; the place of a partition does not.
    for (guid, is_taken) in [(Some("6c6f6361-0000-4000-8000-000000000001"), true), (Some("9f2c1a3b-01"), false)] {
        let whole = device(bridged("sda"), Verdict::Theirs(Reason::Busy));
        let part = partition("sda", 1, guid);
        let part = Device { id: id::hardware_id(&part, Some(&whole.raw)).into(), ..device(part, Verdict::Unclaimed) };
        let parts =
            Rule { filter: Filter { types: vec![DeviceType::Part], ..crate::claim::sample::filter() }, ..bare() };
        let elected = run(&[parts], &[whole, part], &[], &ripe);
        assert_eq!(took(&elected, "a") == ["sda1"], is_taken, "{elected:?}");
    }
}

#[test]
fn what_holds_no_table_is_taken_as_the_bare_device_or_not_at_all() {
    let guid = "6c6f6361-0000-4000-8000-000000000001";
    let part = device(partition("sda", 1, Some(guid)), Verdict::Unclaimed);
    let mpath = device(dm("dm-0", "mpath-3600", &[]), Verdict::Unclaimed);
    let devices = [mpath, part, unclaimed("sdb")];
    let types = vec![DeviceType::Disk, DeviceType::Part, DeviceType::Mpath];
    let all = Rule { filter: Filter { types, ..crate::claim::sample::filter() }, ..rule("a") };
    let election = run(std::slice::from_ref(&all), &devices, &[], &ripe);
    let layouts: Vec<_> = election.claims.iter().map(|claim| (claim.name.as_str(), claim.layout.clone())).collect();
    let bare = Layout::RawDevice {};
    assert_eq!(layouts, [("dm-0", bare.clone()), ("sda1", bare), ("sdb", Layout::Whole {})]);
    for layout in [Layout::Carved {}, Layout::Slots { size: None, count: Some(2) }] {
        let election = run(&[Rule { layout, ..all.clone() }], &devices, &[], &ripe);
        assert_eq!(took(&election, "a"), ["sdb"]);
        assert_eq!(rejection(&election, "a", "dm-0"), Rejection::HoldsNoTable);
    }
}

/// One class of a LocalVolume.
fn naming(name: &str, paths: &[&str]) -> Rule {
    let named = NamedPaths { paths: paths.iter().map(std::path::PathBuf::from).collect(), wipe: false };
    let max_devices = u32::try_from(paths.len()).ok();
    Rule { filter: Filter::of_named(), named: Some(named), max_devices, ..rule(name) }
}

#[test]
fn a_local_volume_takes_what_it_names_and_nothing_else_and_no_more_disks_than_it_has_paths() {
    let devices = disks(&["sda", "sdb", "sdc"]);
    let two = [naming("lv/fast", &["/dev/sdb", "/dev/sdx"])];
    let election = run(&two, &devices, &[], &ripe);
    assert_eq!(took(&election, "lv/fast"), ["sdb"]);
    assert_eq!(rejection(&election, "lv/fast", "sda"), Rejection::NotNamed);
    let election = run(&two, &devices, &[("lv/fast", 2)], &ripe);
    assert_eq!(rejection(&election, "lv/fast", "sdb"), Rejection::AllNamed { most: 2 });
    assert!(run(&[naming("lv/fast", &[])], &devices, &[], &ripe).claims.is_empty());
}

#[test]
fn a_partition_that_is_named_is_used_bare() {
    let guid = "6c6f6361-0000-4000-8000-000000000001";
    let devices = [device(partition("sda", 1, Some(guid)), Verdict::Unclaimed), unclaimed("sda")];
    let election = run(&[naming("lv/fast", &["/dev/sda1"])], &devices, &[], &ripe);
    assert_eq!(took(&election, "lv/fast"), ["sda1"]);
    assert_eq!(election.claims[0].layout, Layout::RawDevice {});
}

/// Two disks are named, one of them by its number; that one got another number at the last reboot.
#[test]
fn a_number_that_another_disk_has_by_now_takes_no_second_disk() {
    let mut devices = disks(&["sdb", "sdd"]);
    devices[1].raw.links = vec!["/dev/disk/by-id/stable".into()];
    let rules = [naming("lv/fast", &["/dev/sdb", "/dev/disk/by-id/stable", "/dev/disk/by-id/on-another-node"])];
    let (claimed, astray) = (BTreeMap::from([(set("lv/fast"), 1)]), BTreeMap::from([(set("lv/fast"), 1)]));
    let election = Case { claimed, astray, ..Case::new(&rules, &devices) }.elect();
    assert_eq!(rejection(&election, "lv/fast", "sdb"), Rejection::Renumbered { astray: 1 });
    assert_eq!(took(&election, "lv/fast"), ["sdd"], "its link says which disk it is");
}

#[test]
fn between_a_local_volume_and_a_set_the_older_takes_the_disk() {
    let devices = disks(&["sdb"]);
    for (volume, set, taker) in [(1, 2, "lv/fast"), (2, 1, "all")] {
        let rules =
            [Rule { created: volume, ..naming("lv/fast", &["/dev/sdb"]) }, Rule { created: set, ..rule("all") }];
        let election = run(&rules, &devices, &[], &ripe);
        assert_eq!(took(&election, taker), ["sdb"]);
        let other = if taker == "all" { "lv/fast" } else { "all" };
        assert_eq!(rejection(&election, other, "sdb").to_string(), format!("the older set default/{taker} takes it"));
    }
}

#[test]
fn a_set_of_other_nodes_takes_nothing_and_says_so_once_and_not_of_each_device() {
    let mut devices = disks(&["sda", "sdb"]);
    devices[1].verdict = Verdict::Theirs(Reason::Busy);
    let elsewhere = Rule { node: NodeMatch::NotSelected, ..rule("a") };
    let election = run(&[elsewhere, rule("b")], &devices, &[], &ripe);
    assert_eq!((took(&election, "a"), took(&election, "b")), (vec![], vec!["sda"]));
    let nodes: Vec<_> = election.outcomes.iter().map(|one| (one.node, one.rejected.len())).collect();
    assert_eq!(nodes, [(NodeMatch::NotSelected, 0), (NodeMatch::Selected, 1)]);
}

#[test]
fn a_layout_that_does_not_fit_takes_nothing() {
    let devices = disks(&["sda"]);
    let fits = |_: &Rule, _: &Device| Err(LayoutError::NoRoom { size: 3 });
    let election = Case { fits, ..Case::new(&[rule("a")], &devices) }.elect();
    assert_eq!(
        rejection(&election, "a", "sda").to_string(),
        "does not fit: the disk has 3 bytes, which is too small for volumes beside the label and both partition tables"
    );
}

/// A disk with a filesystem, that a LocalVolume orders to be destroyed.
fn with_content(name: &str) -> Device {
    let reason = Reason::HasSignature { kind: "ext4".into(), label: None };
    Device { verdict: Verdict::Theirs(reason), ..unclaimed(name) }
}

fn ordering(name: &str, paths: &[&str]) -> Rule {
    let rule = naming(name, paths);
    Rule { named: rule.named.map(|named| NamedPaths { wipe: true, ..named }), ..rule }
}

fn wiped(election: &Election) -> Vec<&str> {
    election.wipes.iter().map(|wipe| wipe.name.as_str()).collect()
}

/// An election on these disks, where the content of each may go when it has been there for so long.
fn run_on_content(
    rules: &[Rule],
    devices: &[Device],
    has: &[(&str, u32)],
    wipe: Result<Ripeness, NotWiped>,
) -> Election {
    let mut case = Case::new(rules, devices);
    case.claimed = has.iter().map(|(name, count)| (set(name), *count)).collect();
    for device in devices.iter().filter(|device| device.verdict != Verdict::Unclaimed) {
        case.candidacies.get_mut(&device.raw.name).unwrap().wipe = Some(wipe.clone());
    }
    case.elect()
}

#[test]
fn content_goes_for_the_set_that_orders_it_and_would_take_the_disk_next() {
    let devices = [with_content("sdb")];
    let order = ordering("lv/fast", &["/dev/sdb"]);
    let judged = |rules: &[Rule], has, wipe| {
        let election = run_on_content(rules, &devices, has, wipe);
        assert!(election.claims.is_empty(), "it is not blank");
        let is_wiped = wiped(&election) == ["sdb"];
        (is_wiped, rejection(&election, "lv/fast", "sdb").to_string())
    };
    let ripe = || Ok(Ripeness::Ripe);
    let soon = "; it will be wiped when it has stayed unchanged for a while, as the LocalVolume orders";
    let (is_wiped, text) = judged(std::slice::from_ref(&order), &[], ripe());
    assert!(is_wiped && text.ends_with(soon), "{text}");
    let (is_wiped, text) = judged(std::slice::from_ref(&order), &[], Ok(Ripeness::Waiting(Duration::from_secs(3))));
    assert!(!is_wiped && text.ends_with(soon), "{text}");
    let (is_wiped, text) = judged(std::slice::from_ref(&order), &[], Err(NotWiped::InUse));
    assert!(!is_wiped && text.ends_with("; not wiped: a device in use is never wiped"), "{text}");
    let (is_wiped, text) = judged(std::slice::from_ref(&order), &[("lv/fast", 1)], ripe());
    assert!(!is_wiped && text.contains("not wiped: the LocalVolume already has a disk for its only path"), "{text}");
    let dry = Rule { dry_run: true, ..order.clone() };
    let (is_wiped, text) = judged(&[dry], &[], ripe());
    assert!(!is_wiped && text.contains("it would be wiped first"), "{text}");

    // An older set would take it if it were blank, and has nothing of it destroyed itself.
    let older = Rule { created: -1, ..rule("older") };
    let (is_wiped, text) = judged(&[older.clone(), order.clone()], &[], ripe());
    assert!(!is_wiped && text.contains("not wiped: the older set default/older takes it"), "{text}");
    let election = run_on_content(&[older, order.clone()], &devices, &[], ripe());
    let reason = devices[0].verdict.clone();
    let Verdict::Theirs(reason) = reason else { panic!() };
    assert_eq!(rejection(&election, "older", "sdb"), Rejection::Verdict(NotFree::Theirs(reason)));
    // Nor does one that has no place for it keep it from the other.
    let full = Rule { created: -1, max_devices: Some(1), ..rule("full") };
    assert!(judged(&[full, order], &[("full", 1)], ripe()).0);
}

#[test]
fn a_blank_disk_comes_before_one_whose_content_goes_and_counts_without_it() {
    let devices = [with_content("sda"), unclaimed("sdb")];
    let one = Rule { max_devices: Some(1), ..ordering("lv/fast", &["/dev/sda", "/dev/sdb"]) };
    let election = run_on_content(&[one], &devices, &[], Ok(Ripeness::Ripe));
    assert_eq!((took(&election, "lv/fast"), wiped(&election)), (vec!["sdb"], vec![]));
    // Two are enough for its minimum, and the blank one alone is not.
    let two = Rule { min_devices: 2, ..ordering("lv/fast", &["/dev/sda", "/dev/sdb"]) };
    let election = run_on_content(&[two], &devices, &[], Ok(Ripeness::Ripe));
    assert_eq!((took(&election, "lv/fast"), wiped(&election)), (vec![], vec!["sda"]));
    assert_eq!(rejection(&election, "lv/fast", "sdb"), Rejection::BelowMinimum { matching: 1, least: 2 });
}

proptest! {
    #[test]
    fn the_election_does_not_depend_on_the_order_of_its_input(
        ages in prop::collection::vec((0i64..3, 0u32..4, prop::option::of(0u32..4), 0u64..3), 1..5),
        fates in prop::collection::vec((0u8..3, 1u64..4), 1..9),
        order in any::<prop::sample::Index>(),
        has in prop::collection::vec(0u32..3, 5),
    ) {
        let mut rules: Vec<Rule> = ages.iter().enumerate().map(|(n, (created, least, most, size))| Rule {
            created: *created,
            filter: Filter { min_size: size << 30, ..crate::claim::sample::filter() },
            ..bounded(&format!("set{n}"), *least, *most)
        }).collect();
        let mut devices: Vec<Device> = fates.iter().enumerate().map(|(n, (fate, size))| {
            let mut device = unclaimed(&format!("sd{n}"));
            device.raw.size = size << 30;
            if *fate == 0 { device.verdict = Verdict::Theirs(Reason::Busy); }
            device
        }).collect();
        let young = |device: &Device| if device.raw.devno.minor.is_multiple_of(3) { Ripeness::Unseen } else { Ripeness::Ripe };
        let claimed: BTreeMap<SetRef, u32> = rules.iter().map(|rule| rule.set.clone()).zip(has).collect();
        let vote = |rules: &[Rule], devices: &[Device]| {
            Case { claimed: claimed.clone(), candidacies: candidacies_of(devices, &young), ..Case::new(rules, devices) }.elect()
        };
        let first = vote(&rules, &devices);
        let (r, d) = (order.index(rules.len()), order.index(devices.len()));
        rules.rotate_left(r);
        devices.rotate_left(d);
        devices.reverse();
        prop_assert_eq!(&vote(&rules, &devices), &first);

        let mut names: Vec<_> = first.claims.iter().map(|claim| &claim.name).collect();
        names.sort();
        names.dedup();
        prop_assert_eq!(names.len(), first.claims.len(), "no device goes to two sets");
        for rule in &rules {
            let takes = u32::try_from(took(&first, &rule.set.name.name).len()).unwrap();
            let has = claimed[&rule.set];
            prop_assert!(rule.max_devices.is_none_or(|most| takes == 0 || has + takes <= most));
            prop_assert!(takes == 0 || has > 0 || takes >= rule.min_devices.min(rule.max_devices.unwrap_or(u32::MAX)));
        }
    }
}

#[test]
fn a_set_that_stands_back_on_a_node_takes_nothing_and_says_that_somebody_else_may() {
    let back = Rule { node: NodeMatch::StandsBack, ..rule("a") };
    let election = run(&[back], &disks(&["sda"]), &[], &ripe);
    assert!(election.claims.is_empty());
    let message = rejection(&election, "a", "sda").to_string();
    assert!(
        message.starts_with("nothing new is claimed on this node: the Local Storage Operator's diskmaker"),
        "{message}"
    );
}

fn array(name: &str, least: u32, most: Option<u32>) -> Rule {
    Rule { array: Some(ArrayLevel::Raid0), ..bounded(name, least, most) }
}

#[test]
fn a_set_that_makes_an_array_waits_until_all_devices_that_match_are_ripe_and_takes_them_together() {
    let devices = disks(&["sda", "sdb", "sdc"]);
    let young = |device: &Device| match &*device.raw.name {
        "sdc" => Ripeness::Waiting(Duration::from_secs(5)),
        _ => Ripeness::Ripe,
    };
    let rules = [array("a", 0, None)];
    let waiting = run(&rules, &devices, &[], &young);
    assert!(waiting.claims.is_empty(), "{:?}", waiting.claims);
    let why = rejection(&waiting, "a", "sda").to_string();
    assert!(why.contains("made of all 3 devices that match, 2 of which"), "{why}");
    assert_eq!(took(&run(&rules, &devices, &[], &ripe), "a"), ["sda", "sdb", "sdc"]);
    // As many as it may have are all that it waits for.
    assert_eq!(took(&run(&[array("a", 0, Some(2))], &devices, &[], &young), "a"), ["sda", "sdb"]);
    assert_eq!(took(&run(&[rule("a")], &devices, &[], &young), "a"), ["sda", "sdb"], "one by one, without an array");
}

#[test]
fn an_array_takes_no_more_members_but_those_that_it_lacks_before_it_is_made() {
    let devices = disks(&["sdd", "sde"]);
    let rules = [array("a", 0, None)];
    let whole = run(&rules, &devices, &[("a", 3)], &ripe);
    assert!(whole.claims.is_empty());
    assert_eq!(rejection(&whole, "a", "sdd"), Rejection::ArrayIsWhole);
    let with_younger = run(&[array("a", 0, None), rule("b")], &devices, &[("a", 3)], &ripe);
    assert_eq!(took(&with_younger, "b"), ["sdd", "sde"], "a younger set gets what has no place there");
    let claimed = BTreeMap::from([(set("a"), 2)]);
    let open_places = BTreeMap::from([(set("a"), 1)]);
    let lacking = Case { claimed, open_places, ..Case::new(&rules, &devices) }.elect();
    assert_eq!(took(&lacking, "a"), ["sdd"]);
}

#[test]
fn a_device_that_holds_no_table_is_no_member_of_an_array() {
    let part = device(partition("sda", 1, Some("6c6f6361-0000-4000-8000-000000000001")), Verdict::Unclaimed);
    let rules = [Rule { filter: Filter::any_of(vec![DeviceType::Part]), ..array("a", 0, None) }];
    let election = run(&rules, &[part], &[], &ripe);
    assert!(election.claims.is_empty());
    assert_eq!(election.outcomes[0].rejected.len(), 1);
}
