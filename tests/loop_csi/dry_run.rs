//! What a set would take: a dry run and `localpool set plan` report it, and touch nothing.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::Path;

use localpool_testing::{MIB, text};
use tonic::Code;

use crate::client::{assert_refused, block, create};
use crate::driver::{CARVED, Start, cli, set};

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn loop_a_dry_run_claims_nothing_and_leaves_its_disks_to_others() {
    let lab = crate::lab!();
    let disk = lab.disk("pool", 64 * MIB);
    let dry = set(&lab, "dry", "pool.img", &format!("dryRun: true\n  {CARVED}"));
    let (driver, mut client) = Start::named(&lab, "alone", &dry).ready_at_once().await;
    driver.await_verdict(&disk.node, "Unclaimed", "blank and not in use");
    let none = client.try_create(create(&lab.named("pvc-1"), "dry", MIB, &block())).await;
    assert_refused(none, Code::ResourceExhausted, &["dry"]);
    assert_eq!(disk.writes(), 0);
    driver.stop();
    // The dry one is the older, as it is first in the file.
    let both = dry + &set(&lab, "real", "pool.img", CARVED);
    let (driver, mut client) = Start::named(&lab, "both", &both).ready().await;
    driver.await_verdict(&disk.node, "Ours", "in pool");
    client.create(create(&lab.named("pvc-1"), "real", MIB, &block())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn loop_a_plan_names_each_device_and_why_it_is_left_with_an_agent_or_without() {
    let lab = crate::lab!();
    let (own, small) = (lab.disk("pool", 64 * MIB), lab.disk("new-small", 16 * MIB));
    let file = lab.path("wanted.yaml");
    let wanted = set(&lab, "wanted", "new-*.img", CARVED).replace("minSize: '0'", "minSize: 32Mi");
    fs::write(&file, &wanted).unwrap();
    let nobody = lab.path("nobody.state");
    let plan = ["set", "plan", "--file", text(&file)];
    let says = |lines: &str, disk: &crate::lab::Disk, verb: &str, message: &str| {
        let line = lines.lines().find(|line| line.split_whitespace().nth(1) == Some(disk.path()));
        let line = line.unwrap_or_else(|| panic!("{} is not in {lines}", disk.path()));
        assert!(line.trim_start().starts_with(verb) && line.contains(message), "{line}");
    };
    let start = Start::new(&lab, &set(&lab, "fast", "pool.img", CARVED));
    let (driver, _client) = start.ready_at_once().await;
    driver.await_verdict(&own.node, "Ours", "in pool");
    let large = lab.disk("new-large", 64 * MIB);
    driver.await_verdict(&large.node, "Unclaimed", "blank");
    let asked = driver.cli_ok(&plan);
    assert!(asked.starts_with("set default/wanted would take 1 of "), "{asked}");
    assert!(!asked.contains(&format!("{} ", own.path())), "a disk of the pool is nobody's to take: {asked}");
    let without_agent = cli(&nobody, &plan);
    let without_agent = String::from_utf8(without_agent.stdout).unwrap();
    for lines in [&asked, &without_agent] {
        says(lines, &large, "take", "64.0 MiB");
        says(lines, &small, "leave", "is below minSize 33554432");
    }
    fs::write(&file, wanted.replace("minSize", "minsize")).unwrap();
    let refused = driver.cli_refused(&plan);
    assert!(refused.contains("spec.deviceInclusionSpec.minsize: unknown field; did you mean minSize?"), "{refused}");
    assert_eq!((large.writes(), small.writes(), nobody.exists()), (0, 0, false));
}

/// All that is in a folder, by name.
pub fn documents(dir: &Path) -> BTreeMap<OsString, Vec<u8>> {
    let entries = fs::read_dir(dir).unwrap().flatten().filter(|entry| entry.file_type().unwrap().is_file());
    entries.map(|entry| (entry.file_name(), fs::read(entry.path()).unwrap())).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn loop_a_dry_run_without_an_agent_writes_nothing_anywhere_and_says_what_it_cannot_know() {
    let lab = crate::lab!();
    let disk = lab.disk("pool", 64 * MIB);
    let start = Start::new(&lab, &set(&lab, "fast", "pool.img", CARVED));
    let (driver, _client) = start.ready().await;
    driver.await_verdict(&disk.node, "Ours", "in pool");
    let running = driver.cli_ok(&["disk", "release", "--dry-run", disk.path()]);
    assert!(running.contains("would wipe") && !running.contains("no agent"), "{running}");
    driver.stop();
    // Without its backup, a start would repair the table; and no partition of the disk is mapped.
    disk.unmap();
    disk.write(disk.size() - 33 * 512, &[0; 33 * 512]);
    let before = (disk.fingerprint(), disk.writes(), disk.mapped());
    let state = documents(&start.state);
    let nobody = lab.path("nobody.state");
    let says = |state: &Path, node: &str, verb: &str, words: &[&str]| {
        let out = cli(state, &["disk", verb, "--dry-run", disk.path(), "--node-name", node]);
        let output = String::from_utf8_lossy(&out.stdout);
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        for words in words {
            assert!(output.contains(words), "{words:?} is not in {output}");
        }
        assert_eq!((disk.fingerprint(), disk.writes(), disk.mapped()), before, "a dry run changed the disk");
    };
    let mend = format!("would first complete on {} what the agent", disk.path());
    says(&start.state, &start.node, "release", &[&mend, "would wipe", "no agent uses the state directory"]);
    says(&nobody, &start.node, "release", &[&mend, "would wipe", "without the journal", "assumed to be `standalone-"]);
    says(&nobody, "other", "adopt", &["would write the label", "to node other", "no agent uses the state directory"]);
    assert_eq!(documents(&start.state), state, "a dry run changed the state directory");
    assert!(!nobody.exists(), "a dry run made a state directory");
    // Even in another process, the real release does what the dry run announced.
    let done = cli(&start.state, &["disk", "release", disk.path(), "--node-name", &start.node]);
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    assert!(disk.is_blank());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn loop_a_dry_run_for_a_volume_or_a_document_without_an_agent_writes_nothing_anywhere() {
    let lab = crate::lab!();
    let disk = lab.disk("pool", 64 * MIB);
    let start = Start::new(&lab, &set(&lab, "fast", "pool.img", CARVED));
    let (driver, mut client) = start.ready().await;
    let made = client.create(create(&lab.named("pvc"), "fast", MIB, &block())).await;
    disk.settle();
    driver.stop();
    // What a start would repair, and documents that are to be set aside.
    disk.unmap();
    disk.write(disk.size() - 33 * 512, &[0; 33 * 512]);
    let journal = start.state.join("journal.json");
    let text = fs::read(&journal).unwrap();
    fs::write(&journal, &text[..text.len() / 2]).unwrap();
    // It must match the label, or the disk would be nobody's to write.
    fs::copy(start.state.join("standalone"), start.state.join("cluster")).unwrap();
    let before = (disk.fingerprint(), disk.writes(), disk.mapped());
    let (state, nobody) = (documents(&start.state), lab.path("nobody.state"));
    let verbs: [(&[&str], [&str; 2]); 4] = [
        (&["volume", "adopt", &made.id], ["no agent uses the state directory", "no agent uses the state directory"]),
        (
            &["volume", "settle", &made.id, "--keep", disk.path()],
            ["no agent uses the state directory", "no agent uses the state directory"],
        ),
        (&["state", "set-aside", "journal"], ["would keep journal.json", "there is no journal.json"]),
        (&["state", "set-aside", "cluster"], ["would keep cluster", "names no cluster"]),
    ];
    for (verb, words) in verbs {
        for (folder, words) in [&start.state, &nobody].into_iter().zip(words) {
            let out = cli(folder, &[verb, &["--dry-run", "--node-name", &start.node]].concat());
            let output = [out.stdout, out.stderr].map(|bytes| String::from_utf8(bytes).unwrap()).concat();
            let after = (disk.fingerprint(), disk.writes(), disk.mapped());
            assert_eq!(after, before, "{verb:?} changed the disk");
            assert_eq!(documents(&start.state), state, "{verb:?} changed the state directory");
            assert!(!nobody.exists(), "{verb:?} made a state directory");
            assert!(output.contains(words), "{verb:?} in {}: {words:?} is not in {output}", folder.display());
        }
    }
}
