//! The sets take every disk that is free and selected, and nothing else; every other disk keeps each byte.

use std::collections::{BTreeMap, BTreeSet};

use crate::bench::Bench;
use crate::report::Report;
use crate::verdicts::{nodes, printed};
use crate::{arrays, directories, driver, hotplug, images, storm};

/// A device without a label does not say which set has it; only one set selects such devices.
const BARE: &str = "a bare device";

/// The disks of other checks; the set of each has its name, or that before the last letter.
fn others() -> impl Iterator<Item = String> {
    let own = [storm::disk(), directories::disk()].into_iter().chain(arrays::disks());
    hotplug::disks().into_iter().chain(own).map(|disk| disk.name)
}

fn set_of(serial: &str) -> String {
    let set = arrays::SETS.into_iter().find(|set| serial.starts_with(set));
    format!("vm/{}", set.unwrap_or(serial))
}

/// Disks that the sets take, by the words that lead to them, with the set.
fn wanted(bench: &Bench) -> BTreeMap<String, String> {
    let all = bench.cases.iter().flat_map(|case| &case.judged);
    let set = |set: &str| if set == "shared" { BARE.to_owned() } else { format!("vm/{set}") };
    let own = others().map(|serial| (format!("disk {serial}"), set_of(&serial)));
    all.filter_map(|judged| Some((judged.node.clone(), set(judged.set?)))).chain(own).collect()
}

/// What the pool has, by the words that lead to it if a case has some; else by its node.
fn found(bench: &mut Bench) -> BTreeMap<String, String> {
    let mut names: BTreeMap<String, String> = nodes(bench).into_iter().map(|(node, path)| (path, node)).collect();
    let others: Vec<String> = others().map(|serial| format!("disk {serial}")).collect();
    names.extend(printed(bench, &others).into_iter().zip(others));
    let devices = bench.by_path().into_values();
    // Those that localpool made are known by their disks.
    let is_array = |set: &str| arrays::SETS.iter().any(|of| set == format!("vm/{of}"));
    let devices = devices.filter(|device| device["type"] != "raid" || !device["set"].as_str().is_some_and(is_array));
    let ours = devices.filter(|device| device["verdict"] == "Ours" && device["type"] != "part");
    let row = |device: serde_json::Value| {
        let path = device["path"].as_str().unwrap().to_owned();
        (names.get(&path).cloned().unwrap_or(path), device["set"].as_str().unwrap_or(BARE).to_owned())
    };
    ours.map(row).collect()
}

pub fn check(bench: &mut Bench, report: &mut Report) {
    let names = [
        "each set takes the disks that are free and its own, and nothing else",
        "a disk that no set may have keeps each byte",
    ];
    if !names.iter().any(|name| report.wants(name)) {
        return;
    }
    let not_taken: BTreeSet<String> = {
        let all = bench.cases.iter().filter(|case| case.judged.iter().all(|judged| judged.set.is_none()));
        all.map(|case| case.name.to_owned()).collect()
    };
    let before = images::checksums(bench, |case| not_taken.contains(case.name));
    bench.driver();
    report.check(names[0], || {
        bench.eventually("the sets take their disks", |bench| {
            let (wanted, found) = (wanted(bench), found(bench));
            let missing: Vec<_> = wanted.iter().filter(|(node, set)| found.get(*node) != Some(set)).collect();
            if missing.is_empty() { Ok(()) } else { Err(format!("not yet: {missing:?}")) }
        });
        // Long enough for the driver to take anything else that it would.
        std::thread::sleep(3 * driver::MIN_AGE);
        let (wanted, found) = (wanted(bench), found(bench));
        let more: Vec<_> = found.iter().filter(|(node, _)| !wanted.contains_key(*node)).collect();
        assert!(more.is_empty(), "taken, and not to be taken: {more:?}");
    });
    report.check(names[1], || {
        let changed = images::changed(&before, &images::checksums(bench, |case| not_taken.contains(case.name)));
        assert!(changed.is_empty(), "{changed:?}");
    });
}
