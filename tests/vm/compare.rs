//! The same disks by the eyes of lsblk and blkid: where they see something, we never see nothing; facts are the same.

use serde_json::Value;

use crate::bench::Bench;
use crate::report::Report;

/// How often what is different may be looked at again.
const LOOKS: usize = 3;

pub fn check(bench: &mut Bench, report: &mut Report) {
    let names =
        ["lsblk and `localpool devices` give the same facts", "what blkid sees something on is never called Unclaimed"];
    if !names.iter().any(|name| report.wants(name)) {
        return;
    }
    report.check(names[0], || {
        let mut found = differences(bench);
        for _ in 0..LOOKS {
            if found.is_empty() {
                break;
            }
            // lsblk tells what udev has on record, which may be from before the disk was written to.
            let trigger = "timeout 60 udevadm trigger --action=change --subsystem-match=block --settle || true";
            bench.guest.run(trigger);
            found = differences(bench);
        }
        assert!(found.is_empty(), "{}", found.join("\n"));
    });
    report.check(names[1], || {
        let devices = bench.by_path();
        // Whoever reads a suspended device waits until it goes on.
        let nodes: Vec<&str> = devices
            .iter()
            .filter(|(_, device)| device["verdict"] == "Unclaimed")
            .map(|(path, _)| path.as_str())
            .collect();
        assert!(nodes.len() > 10, "only {nodes:?} are free");
        let seen = bench
            .guest
            .run(&format!("blkid --probe --output export {0} || true; wipefs --no-act {0}", nodes.join(" ")));
        // Of a partition, blkid also tells about its entry in the table around it.
        let telling =
            |line: &&str| !line.starts_with("DEVNAME=") && !line.starts_with("PART_ENTRY_") && !line.is_empty();
        let seen: Vec<&str> = seen.lines().filter(telling).collect();
        assert!(seen.is_empty(), "{}", seen.join("\n"));
    });
}

/// What lsblk says otherwise than we.
fn differences(bench: &mut Bench) -> Vec<String> {
    let devices = bench.by_path();
    let text = bench.guest.run("lsblk --json --bytes --list --output KNAME,SIZE,ROTA,RO,LOG-SEC,MODEL,TYPE,FSTYPE");
    let listed: Value = serde_json::from_str(&text).unwrap();
    let mut differences = Vec::new();
    let mut compared = 0;
    for theirs in listed["blockdevices"].as_array().unwrap() {
        let Some(ours) = theirs["kname"].as_str().and_then(|name| devices.get(&format!("/dev/{name}"))) else {
            differences.push(format!("only lsblk has {}", theirs["kname"]));
            continue;
        };
        compared += 1;
        let model = |value: &Value| value.as_str().unwrap_or_default().trim().to_owned();
        let pairs = [
            ("size", ours["size"] == theirs["size"]),
            ("rotational", ours["rotational"] == theirs["rota"]),
            ("read-only", ours["readOnly"] == theirs["ro"]),
            ("sector", ours["sectorSize"] == theirs["log-sec"]),
            ("model", model(&ours["model"]) == model(&theirs["model"])),
            ("filesystem", ours["fstype"].is_null() || ours["fstype"] == theirs["fstype"]),
        ];
        let wrong = pairs.iter().filter(|(_, same)| !same).map(|(what, _)| what);
        differences.extend(wrong.map(|what| format!("{what}: {ours} and {theirs}")));
    }
    assert!(compared > 60, "only {compared} devices were compared");
    differences
}
