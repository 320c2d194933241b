//! The same disks as lsblk and blkid see them: if they see something, we never see nothing; facts are the same.

use serde_json::Value;

use crate::bench::Bench;
use crate::report::Report;

/// How often to look again at what differs.
const ATTEMPTS: usize = 3;

pub fn check(bench: &mut Bench, report: &mut Report) {
    let names =
        ["lsblk and `localpool devices` give the same facts", "what blkid sees something on is never called Unclaimed"];
    if !names.iter().any(|name| report.wants(name)) {
        return;
    }
    report.check(names[0], || {
        let mut found = differences(bench);
        for _ in 0..ATTEMPTS {
            if found.is_empty() {
                break;
            }
            // lsblk reports udev's record, which may be older than the last write to the disk.
            let trigger = "timeout 60 udevadm trigger --action=change --subsystem-match=block --settle || true";
            bench.guest.run(trigger);
            found = differences(bench);
        }
        assert!(found.is_empty(), "{}", found.join("\n"));
    });
    report.check(names[1], || {
        let devices = bench.by_path();
        // A read of a suspended device waits until that is resumed.
        let nodes: Vec<&str> = devices
            .iter()
            .filter(|(_, device)| device["verdict"] == "Unclaimed")
            .map(|(path, _)| path.as_str())
            .collect();
        assert!(nodes.len() > 10, "only {nodes:?} are free");
        let seen = bench
            .guest
            .run(&format!("blkid --probe --output export {0} || true; wipefs --no-act {0}", nodes.join(" ")));
        // For a partition, blkid also reports its entry in the table around it.
        let telling =
            |line: &&str| !line.starts_with("DEVNAME=") && !line.starts_with("PART_ENTRY_") && !line.is_empty();
        let seen: Vec<&str> = seen.lines().filter(telling).collect();
        assert!(seen.is_empty(), "{}", seen.join("\n"));
    });
}

/// What lsblk reports differently.
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
