//! The disk is the record: it survives the loss of everything else, and of half of itself.

use std::fs;
use std::path::PathBuf;

use localpool_testing::{MIB, eventually, run, text};
use tonic::Code;

use crate::client::{Client, Made, assert_refused, create, mount};
use crate::content::{pattern, write_synced};
use crate::driver::{CARVED, Driver, SOON, Start, cli, set, verdict_in};
use crate::lab::{Disk, Lab};

/// A carved disk with a volume that has data, its driver stopped.
struct Kept {
    disk: Disk,
    start: Start,
    made: Made,
    staging: PathBuf,
    /// What the disk could offer before.
    free: (u64, u64),
}

impl Kept {
    async fn new(lab: &Lab, sector: u32) -> Self {
        let disk = lab.disk_of("pool", 128 * MIB, sector);
        let start = Start::new(lab, &set(lab, "fast", "pool*.img", CARVED));
        let (driver, mut client) = start.ready().await;
        let free = client.capacity("fast", &mount("ext4")).await;
        // The journal remembers on which disk the volume is: its id is created on no other one.
        let name = lab.named(&format!("kept-{sector}"));
        let made = client.create(create(&name, "fast", 20 * MIB, &mount("ext4"))).await;
        let kept = Self { disk, start, made, staging: lab.path("staging"), free };
        client.stage(&kept.made.id, &kept.staging, &mount("ext4")).await.unwrap();
        write_synced(&kept.staging.join("data"), &pattern(5, 100_000)).unwrap();
        client.unstage(&kept.made.id, &kept.staging).await.unwrap();
        kept.disk.settle();
        driver.stop();
        kept
    }

    /// The volume is there, once, and has its data.
    async fn assert_whole(&self, client: &mut Client) {
        assert_eq!(client.ids().await, std::slice::from_ref(&self.made.id));
        client.stage(&self.made.id, &self.staging, &mount("ext4")).await.unwrap();
        assert!(fs::read(self.staging.join("data")).unwrap() == pattern(5, 100_000));
        client.unstage(&self.made.id, &self.staging).await.unwrap();
    }

    /// The driver of another node, with its own state directory.
    async fn other_node(&self, lab: &Lab) -> (Driver, Client) {
        let mut start = Start::named(lab, "other", &fs::read_to_string(&self.start.sets).unwrap());
        start.node = format!("other-{}", self.start.node);
        start.ready().await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn loop_volumes_survive_the_loss_of_the_state_directory() {
    let lab = crate::lab!();
    let kept = Kept::new(&lab, 512).await;
    fs::remove_dir_all(&kept.start.state).unwrap();
    kept.disk.unmap();
    let (driver, mut client) = kept.start.ready().await;
    kept.assert_whole(&mut client).await;
    client.delete(&kept.made.id).await.unwrap();
    client.await_capacity("fast", &mount("ext4"), kept.free).await;
    driver.stop();
    kept.disk.assert_tables_verify();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn loop_a_disk_of_another_node_is_left_alone_until_it_and_its_volumes_are_adopted() {
    let lab = crate::lab!();
    let kept = Kept::new(&lab, 512).await;
    let (id, path) = (kept.made.id.as_str(), kept.disk.path());
    kept.disk.unmap();
    let before = (kept.disk.fingerprint(), kept.disk.writes());
    let (driver, mut client) = kept.other_node(&lab).await;
    kept.disk.announce();
    driver.await_verdict(&kept.disk.node, "Theirs", &format!("in the pool of node {}", kept.start.node));
    assert_eq!(client.capacity("fast", &mount("ext4")).await, (0, 0));
    assert_eq!(client.ids().await, [] as [String; 0]);
    assert_refused(client.stage(id, &kept.staging, &mount("ext4")).await, Code::NotFound, &[id]);
    let output = driver.cli_ok(&["disk", "adopt", path, "--dry-run"]);
    assert!(output.contains("would") && output.contains(id) && output.contains(&kept.start.node), "{output}");
    assert_eq!((kept.disk.fingerprint(), kept.disk.writes()), before, "a dry run wrote to the disk");

    driver.cli_ok(&["disk", "adopt", path]);
    driver.await_verdict(&kept.disk.node, "Ours", "1 volume");
    assert_eq!(client.ids().await, [] as [String; 0], "a found volume is not listed");
    let refused = client.stage(id, &kept.staging, &mount("ext4")).await;
    assert_refused(refused, Code::FailedPrecondition, &[&format!("localpool volume adopt {id}")]);
    assert_refused(client.delete(id).await, Code::FailedPrecondition, &["volume adopt"]);
    let taken = client.try_create(create(&lab.named("kept-512"), "fast", 20 * MIB, &mount("ext4"))).await;
    assert_refused(taken, Code::FailedPrecondition, &["volume adopt"]);
    assert!(client.capacity("fast", &mount("ext4")).await.0 < 110 * MIB, "its space is used");
    let adopted = kept.disk.fingerprint();
    assert!(driver.cli_ok(&["volume", "adopt", id, "--dry-run"]).contains("would"));
    assert_eq!(kept.disk.fingerprint(), adopted, "a dry run wrote to the disk");
    driver.cli_ok(&["volume", "adopt", id]);
    driver.cli_ok(&["volume", "adopt", id]);
    kept.assert_whole(&mut client).await;
    driver.stop();
    kept.disk.assert_tables_verify();
    // The node that had it sees that it belongs to another node now.
    let (driver, _client) = kept.start.ready().await;
    driver.await_verdict(&kept.disk.node, "Theirs", "in the pool of node other-");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn loop_a_disk_of_another_machine_of_the_same_node_name_is_left_alone_until_it_is_adopted() {
    let lab = crate::lab!();
    let kept = Kept::new(&lab, 512).await;
    kept.disk.unmap();
    let before = (kept.disk.fingerprint(), kept.disk.writes());
    let start = Start::named(&lab, "other", &fs::read_to_string(&kept.start.sets).unwrap());
    assert_eq!(start.node, kept.start.node);
    fs::create_dir(&start.state).unwrap();
    fs::write(start.state.join("standalone"), format!("standalone-{}\n", uuid::Uuid::from_u128(7))).unwrap();
    let (driver, mut client) = start.ready().await;
    driver.await_verdict(&kept.disk.node, "Theirs", &format!("in the pool of node {}", kept.start.node));
    assert_eq!(client.ids().await, [] as [String; 0]);
    assert_eq!((kept.disk.fingerprint(), kept.disk.writes()), before, "it was written");
    driver.cli_ok(&["disk", "adopt", kept.disk.path()]);
    driver.await_verdict(&kept.disk.node, "Ours", "1 volume");
    driver.cli_ok(&["volume", "adopt", &kept.made.id]);
    kept.assert_whole(&mut client).await;
    driver.stop();
    // It belongs to the other node now, also for commands while no agent runs.
    let alone = cli(&kept.start.state, &["devices", "--node-name", &kept.start.node, "-o", "json"]);
    let (verdict, reason) = verdict_in(&String::from_utf8(alone.stdout).unwrap(), &kept.disk.node);
    assert!(verdict == "Theirs" && reason.contains("in the pool of node"), "{verdict} {reason}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn loop_a_state_directory_that_names_no_machine_keeps_its_disks() {
    let lab = crate::lab!();
    let start = Start::new(&lab, &set(&lab, "fast", "pool*.img", CARVED));
    let named = start.state.join("standalone");
    fs::create_dir(&start.state).unwrap();
    // As labels were before machines were distinguished.
    fs::write(&named, "standalone\n").unwrap();
    let kept = Kept::new(&lab, 512).await;
    fs::remove_file(&named).unwrap();
    let (driver, mut client) = kept.start.ready().await;
    kept.assert_whole(&mut client).await;
    assert_eq!(fs::read_to_string(&named).unwrap(), "standalone\n");
    driver.stop();
    fs::write(&named, "").unwrap();
    let refused = kept.start.spawn().end();
    assert!(!refused.success());
    let log = kept.start.log();
    assert!(log.contains("does not say which machine this is"), "{log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn loop_a_command_goes_on_where_the_agents_socket_is_there_and_nobody_answers() {
    let lab = crate::lab!();
    let kept = Kept::new(&lab, 512).await;
    // The socket of an agent that was killed while a disk hangs under it.
    let socket = kept.start.state.join("agent.sock");
    let _ = fs::remove_file(&socket);
    let _silent = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let alone = cli(&kept.start.state, &["devices", "--node-name", &kept.start.node, "-o", "json"]);
    let (verdict, reason) = verdict_in(&String::from_utf8(alone.stdout).unwrap(), &kept.disk.node);
    assert_eq!(verdict, "Ours", "{reason}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn loop_a_disk_is_released_only_empty_and_stays_blank_until_it_is_adopted() {
    let lab = crate::lab!();
    let kept = Kept::new(&lab, 512).await;
    let (driver, mut client) = kept.start.ready().await;
    let path = kept.disk.path();
    let before = kept.disk.fingerprint();
    let output = driver.cli_refused(&["disk", "release", path]);
    assert!(output.contains("1 volume"), "{output}");
    assert_eq!(kept.disk.fingerprint(), before);
    client.delete(&kept.made.id).await.unwrap();
    assert!(eventually(SOON, || driver.verdict(&kept.disk.node).1.contains("0 volumes")
        && driver.cli(&["disk", "release", path, "--dry-run"]).status.success()));
    let before = kept.disk.fingerprint();
    assert!(driver.cli_ok(&["disk", "release", path, "--dry-run"]).contains("would wipe"));
    assert_eq!(kept.disk.fingerprint(), before, "a dry run wrote to the disk");
    driver.cli_ok(&["disk", "release", path]);
    assert!(kept.disk.is_blank(), "something is left on it");
    assert_eq!(kept.disk.mapped(), [] as [String; 0]);
    kept.disk.announce();
    driver.await_verdict(&kept.disk.node, "Unclaimed", "released; ");
    driver.stop();
    let (driver, mut client) = kept.start.ready().await;
    driver.await_verdict(&kept.disk.node, "Unclaimed", "released; ");
    assert!(kept.disk.is_blank(), "the set took it again after a restart");
    assert_eq!(client.capacity("fast", &mount("ext4")).await, (0, 0));
    driver.cli_ok(&["disk", "adopt", path]);
    driver.await_verdict(&kept.disk.node, "Ours", "0 volumes");
    client.create(create(&lab.named("again"), "fast", 20 * MIB, &mount("ext4"))).await;
    let output = driver.cli_refused(&["disk", "release", "/dev/nowhere"]);
    assert!(output.contains("/dev/nowhere") && output.contains("localpool devices"), "{output}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn loop_a_copy_of_a_pool_disk_is_not_ready_and_the_original_goes_on() {
    let lab = crate::lab!();
    let kept = Kept::new(&lab, 512).await;
    let (driver, mut client) = kept.start.ready().await;
    let copy = lab.path("pool-copy.img");
    run("cp", &["--sparse=always", text(&kept.disk.image), text(&copy)]);
    let before = kept.disk.fingerprint();
    let copy = lab.attach(&copy, 512);
    let why = driver.await_verdict(&copy.node, "Ours", "not ready");
    assert!(why.contains("same identity") && why.contains(kept.disk.path()), "{why}");
    let (_, reason) = driver.verdict(&kept.disk.node);
    assert!(!reason.contains("not ready") && reason.contains("1 volume"), "{reason}");
    assert_eq!((kept.disk.fingerprint(), copy.fingerprint()), (before, before), "one of them was written");
    assert_eq!((copy.writes(), copy.mapped()), (0, vec![]));
    kept.assert_whole(&mut client).await;
    // Also after a restart, when both are seen at once.
    driver.stop();
    let (driver, mut client) = kept.start.ready().await;
    driver.await_verdict(&copy.node, "Ours", "not ready");
    kept.assert_whole(&mut client).await;
    assert_eq!((copy.fingerprint(), copy.writes()), (before, 0));
    // The original leaves, at once and over a restart: its place stays empty until a person decides otherwise.
    driver.stop();
    let original = kept.disk.fingerprint();
    kept.disk.detach();
    for _ in 0..2 {
        let (driver, mut client) = kept.start.ready().await;
        driver.await_verdict(&copy.node, "Ours", &format!("`localpool disk adopt {}`", copy.path()));
        let refused = client.stage(&kept.made.id, &kept.staging, &mount("ext4")).await;
        assert!(refused.is_err(), "the copy is used");
        let dry = driver.cli_ok(&["disk", "adopt", copy.path(), "--dry-run"]);
        assert!(dry.contains("would make") && dry.contains(&kept.made.id), "{dry}");
        driver.stop();
    }
    assert_eq!((copy.fingerprint(), copy.writes()), (before, 0));
    let (driver, mut client) = kept.start.ready().await;
    driver.cli_ok(&["disk", "adopt", copy.path()]);
    driver.await_verdict(&copy.node, "Ours", "1 volume");
    kept.assert_whole(&mut client).await;
    let back = lab.attach(&kept.disk.image, 512);
    driver.await_verdict(&back.node, "Ours", &format!("{} is the hardware", copy.path()));
    kept.assert_whole(&mut client).await;
    assert_eq!((back.fingerprint(), back.writes()), (original, 0));
    driver.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn loop_a_label_copy_that_was_torn_costs_no_volume() {
    let lab = crate::lab!();
    let kept = Kept::new(&lab, 512).await;
    let halves = [MIB, MIB + MIB / 2];
    let sequence = |at: &u64| u64::from_le_bytes(kept.disk.read(at + 32, 8).try_into().unwrap());
    let newer = halves.into_iter().max_by_key(sequence).unwrap();
    assert_ne!(sequence(&halves[0]), sequence(&halves[1]));
    kept.disk.write(newer, &[0; 4096]);
    let (driver, mut client) = kept.start.ready().await;
    kept.assert_whole(&mut client).await;
    let free = client.capacity("fast", &mount("ext4")).await;
    let other = client.create(create(&lab.named("other"), "fast", 20 * MIB, &mount("ext4"))).await;
    assert!(sequence(&newer) > 0, "the torn copy is the one that is written next");
    client.delete(&other.id).await.unwrap();
    client.await_capacity("fast", &mount("ext4"), free).await;
    driver.stop();
    kept.disk.assert_tables_verify();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn loop_either_copy_of_the_table_is_enough_and_the_other_is_written_again() {
    let lab = crate::lab!();
    for sector in [512, 4096] {
        let kept = Kept::new(&lab, sector).await;
        let (sector, size) = (u64::from(sector), kept.disk.size());
        let entries = 128 * 128;
        // Protective MBR, header, entries; entries, header.
        for (start, end) in [(0, 2 * sector + entries), (size - entries - sector, size)] {
            kept.disk.unmap();
            kept.disk.write(start, &vec![0; usize::try_from(end - start).unwrap()]);
            let (driver, mut client) = kept.start.ready().await;
            driver.await_verdict(&kept.disk.node, "Ours", "1 volume");
            kept.assert_whole(&mut client).await;
            driver.stop();
            kept.disk.assert_tables_verify();
        }
        kept.disk.detach();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn loop_a_disk_whose_label_is_gone_in_both_copies_is_unknown_and_left_alone() {
    let lab = crate::lab!();
    let kept = Kept::new(&lab, 512).await;
    kept.disk.unmap();
    for half in [MIB, MIB + MIB / 2] {
        kept.disk.write(half, &[0; 4096]);
    }
    let before = (kept.disk.fingerprint(), kept.disk.writes());
    let (driver, _client) = kept.start.ready().await;
    driver.await_verdict(&kept.disk.node, "Unknown", "label");
    kept.disk.announce();
    driver.await_verdict(&kept.disk.node, "Unknown", "label");
    assert_eq!((kept.disk.fingerprint(), kept.disk.writes()), before);
}
