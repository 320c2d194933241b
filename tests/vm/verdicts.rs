//! `localpool devices` says of each disk of each case whose it is, and why.

use std::collections::HashMap;
use std::time::Instant;

use serde_json::Value;

use crate::bench::Bench;
use crate::cases::{Judged, Said};
use crate::images;
use crate::report::Report;

pub fn check(bench: &mut Bench, report: &mut Report) {
    let before = images::checksums(bench, |_| true);
    judge(bench, report, "", |judged| Some(judged.now));
    report.check("a look writes to no disk", || {
        let changed = images::changed(&before, &images::checksums(bench, |_| true));
        assert!(changed.is_empty(), "{changed:?}");
    });
}

/// Compares all devices with what `wanted` says of them.
pub fn judge(bench: &mut Bench, report: &mut Report, suffix: &str, wanted: impl Fn(&Judged) -> Option<Said>) {
    let nodes = nodes(bench);
    let devices: HashMap<String, Value> =
        bench.devices().into_iter().map(|device| (device["path"].as_str().unwrap().to_owned(), device)).collect();
    for case in &bench.cases {
        for judged in &case.judged {
            let Some(said) = wanted(judged) else { continue };
            let name = format!("{} [{}]{suffix}: {}", case.name, judged.node, said.verdict);
            let node = nodes.get(&judged.node).filter(|node| !node.is_empty());
            report.outcome(&name, Instant::now(), compare(node.and_then(|node| devices.get(node)), said));
        }
    }
}

fn compare(device: Option<&Value>, said: Said) -> Result<(), String> {
    let device = device.ok_or("there is no such device")?;
    let (verdict, reason) = (device["verdict"].as_str().unwrap(), device["reason"].as_str().unwrap());
    if verdict == said.verdict && reason.contains(said.words) {
        return Ok(());
    }
    Err(format!("{} is {verdict}: {reason}\nand not {}: {}", device["path"], said.verdict, said.words))
}

/// The node of each judged device, as the kernel names it now.
pub fn nodes(bench: &mut Bench) -> HashMap<String, String> {
    let words: Vec<String> =
        bench.cases.iter().flat_map(|case| &case.judged).map(|judged| judged.node.clone()).collect();
    let script: String = words.iter().map(|node| format!("echo \"$( ({node}) || true )\"\n")).collect();
    let said = bench.guest.run(&script);
    words.into_iter().zip(said.lines().map(str::to_owned)).collect()
}
