//! `localpool devices` says whose each disk of each case is, and why.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::bench::Bench;
use crate::cases::{Case, Expected, Judged};
use crate::images;
use crate::report::Report;

pub fn check(bench: &mut Bench, report: &mut Report) {
    let name = "a scan writes to no disk";
    let before = if report.wants(name) { images::checksums(bench, |_| true) } else { BTreeMap::new() };
    judge(bench, report, "", |judged| Some(judged.now));
    report.check(name, || {
        let changed = images::changed(&before, &images::checksums(bench, |_| true));
        assert!(changed.is_empty(), "{changed:?}");
    });
}

/// How long udev, md and multipath may still be busy with what was made, or found at boot.
const AT_WORK: Duration = Duration::from_secs(90);

/// Compares all devices with what `wanted` says about them.
pub fn judge(bench: &mut Bench, report: &mut Report, suffix: &str, wanted: impl Fn(&Judged) -> Option<Expected>) {
    let begun = Instant::now();
    let all = bench.cases.iter().flat_map(|case| case.judged.iter().map(move |judged| (case, judged)));
    let mut names = all.filter_map(|(case, judged)| Some(name(case, judged, suffix, wanted(judged)?)));
    if !names.any(|name| report.wants(&name)) {
        return;
    }
    let outcomes = loop {
        let outcomes = compared(bench, suffix, &wanted);
        let all_are_right = outcomes.iter().all(|(_, outcome)| outcome.is_ok());
        if all_are_right || begun.elapsed() > AT_WORK {
            break outcomes;
        }
        std::thread::sleep(Duration::from_secs(1));
    };
    for (name, outcome) in outcomes {
        report.outcome(&name, begun, outcome);
    }
}

/// Each check by its name, with what is wrong now.
fn compared(
    bench: &mut Bench,
    suffix: &str,
    wanted: impl Fn(&Judged) -> Option<Expected>,
) -> Vec<(String, Result<(), String>)> {
    let nodes = nodes(bench);
    let devices = bench.by_path();
    let mut outcomes = Vec::new();
    for case in &bench.cases {
        for judged in &case.judged {
            let Some(expected) = wanted(judged) else { continue };
            let node = nodes.get(&judged.node).filter(|node| !node.is_empty());
            let name = name(case, judged, suffix, expected);
            outcomes.push((name, compare(node.and_then(|node| devices.get(node)), expected)));
        }
    }
    outcomes
}

fn name(case: &Case, judged: &Judged, suffix: &str, expected: Expected) -> String {
    format!("{} [{}]{suffix}: {}", case.name, judged.node, expected.verdict)
}

fn compare(device: Option<&Value>, expected: Expected) -> Result<(), String> {
    let device = device.ok_or("there is no such device")?;
    let (verdict, reason) = (device["verdict"].as_str().unwrap(), device["reason"].as_str().unwrap());
    if verdict == expected.verdict && reason.contains(expected.message) {
        return Ok(());
    }
    Err(format!("{} is {verdict}: {reason}\nand not {}: {}", device["path"], expected.verdict, expected.message))
}

/// The node of each judged device, by its present kernel name.
pub fn nodes(bench: &mut Bench) -> HashMap<String, String> {
    let words: Vec<String> =
        bench.cases.iter().flat_map(|case| &case.judged).map(|judged| judged.node.clone()).collect();
    let nodes = printed(bench, &words);
    words.into_iter().zip(nodes).collect()
}

/// The output of each of these bash commands. Starting a program for each disk would take minutes.
pub fn printed(bench: &mut Bench, words: &[String]) -> Vec<String> {
    let lookup = r#"ALL=$(disk)
disk() {
    local serial node part status=1
    while read -r serial node; do
        if [[ $serial == "$1" ]]; then
            part=${2:-}
            [[ -z $part || $node != *[0-9] ]] || part=p$part
            echo "$node$part"
            status=0
        fi
    done <<<"$ALL"
    return $status
}
"#;
    let lines: String = words.iter().map(|words| format!("echo \"$( ({words}) || true )\"\n")).collect();
    bench.guest.run(&(lookup.to_owned() + &lines)).lines().map(str::to_owned).collect()
}
