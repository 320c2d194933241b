//! One volume on two disks: neither is used before a person decides which one it is, and the data of the other one is
//! kept.

use localpool_testing::MIB;
use tonic::Code;

use crate::client::{assert_refused, create, mount};
use crate::driver::{CARVED, Start, cli, set};
use crate::dry_run::documents;

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn loop_a_conflict_is_shown_and_settled_by_command() {
    let lab = crate::lab!();
    let sets = set(&lab, "one", "one.img", CARVED) + &set(&lab, "other", "other.img", CARVED);
    let start = Start::new(&lab, &sets);
    let one = lab.disk("one", 128 * MIB);
    let (driver, mut client) = start.ready().await;
    let name = lab.named("pvc");
    let made = client.create(create(&name, "one", 16 * MIB, &mount("ext4"))).await;
    let staging = lab.path("staging");
    client.stage(&made.id, &staging, &mount("ext4")).await.unwrap();
    std::fs::write(staging.join("file"), "kept").unwrap();
    client.unstage(&made.id, &staging).await.unwrap();
    driver.stop();
    one.detach();
    // Nobody remembers the disk that is away, so the same volume is made a second time.
    std::fs::remove_dir_all(&start.state).unwrap();
    let other = lab.disk("other", 128 * MIB);
    let (driver, mut client) = start.ready().await;
    assert_eq!(client.create(create(&name, "other", 16 * MIB, &mount("ext4"))).await.id, made.id);
    driver.stop();
    let one = lab.attach(&one.image, 512);
    let (driver, mut client) = start.ready().await;
    for disk in [&one, &other] {
        driver.await_verdict(&disk.node, "Ours", "1 volume");
    }

    let refused = client.stage(&made.id, &staging, &mount("ext4")).await;
    assert_refused(refused, Code::FailedPrecondition, &["on several disks", "localpool volume settle"]);
    assert_refused(client.delete(&made.id).await, Code::FailedPrecondition, &["on several disks"]);
    let volumes: serde_json::Value = serde_json::from_str(&driver.cli_ok(&["volumes", "-o", "json"])).unwrap();
    let rows = volumes["volumes"].as_array().unwrap_or_else(|| panic!("{volumes}"));
    assert_eq!(rows.iter().filter(|row| row["id"] == made.id.as_str()).count(), 2, "{volumes}");
    let devices: serde_json::Value = serde_json::from_str(&driver.cli_ok(&["devices", "-o", "json"])).unwrap();
    let device = devices["devices"].as_array().unwrap().iter().find(|device| device["path"] == one.path());
    let keep = device.unwrap()["diskId"].as_str().unwrap_or_else(|| panic!("{devices}")).to_owned();
    let before = [one.fingerprint(), other.fingerprint()];
    driver.stop();
    let state = documents(&start.state);
    let dry = ["volume", "settle", &made.id, "--keep", &keep, "--dry-run", "--node-name", &start.node];
    let alone = cli(&start.state, &dry);
    let output = String::from_utf8_lossy(&alone.stdout);
    assert_eq!([one.fingerprint(), other.fingerprint()], before, "a dry run without an agent wrote to a disk");
    assert_eq!(documents(&start.state), state, "a dry run without an agent wrote to the state directory");
    assert!(
        alone.status.success() && output.contains("would") && output.contains("no agent uses the state directory"),
        "{alone:?}"
    );
    let (driver, mut client) = start.ready().await;
    let output = driver.cli_ok(&["volume", "settle", &made.id, "--keep", &keep, "--dry-run"]);
    assert!(output.contains("would"), "{output}");
    assert_eq!([one.fingerprint(), other.fingerprint()], before, "a dry run wrote to a disk");

    driver.cli_ok(&["volume", "settle", &made.id, "--keep", &keep]);
    client.stage(&made.id, &staging, &mount("ext4")).await.unwrap();
    assert_eq!(std::fs::read_to_string(staging.join("file")).unwrap(), "kept");
    client.unstage(&made.id, &staging).await.unwrap();
    // The data of the other disk is still there, for whoever wants it.
    let volumes = driver.cli_ok(&["volumes"]);
    assert!(volumes.lines().any(|line| line.contains("Found") && !line.contains(&made.id)), "{volumes}");
    client.delete(&made.id).await.unwrap();
    driver.stop();
}
