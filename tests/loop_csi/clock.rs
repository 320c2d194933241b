//! A wall clock that jumps under a running driver: nothing that measures time may rely on it.

use std::fs;

use localpool_testing::MIB;

use crate::client::{Client, block, create, mount};
use crate::content::{pattern, write_synced};
use crate::driver::{CARVED, Driver, Start, set};
use crate::lab::Lab;

/// A driver whose clock is right, and can be changed.
async fn start(lab: &Lab, min_age: &str) -> (Driver, Client) {
    let mut start = Start::new(lab, &set(lab, "fast", "pool-*.img", CARVED));
    start.min_age = min_age.to_owned();
    start.clock = Some(lab.path("clock"));
    set_off(lab, "+0");
    start.ready_at_once().await
}

fn set_off(lab: &Lab, by: &str) {
    fs::write(lab.path("clock.new"), by).unwrap();
    fs::rename(lab.path("clock.new"), lab.path("clock")).unwrap();
}

/// The year that the driver believes in, by its last line.
fn year(driver: &Driver) -> u32 {
    let log = driver.start.log();
    let stamp = log.lines().rev().find_map(|line| line.get(..4)?.parse().ok());
    stamp.unwrap_or_else(|| panic!("no line with a date: {log}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn loop_a_clock_that_jumps_does_not_end_the_time_before_a_claim() {
    let lab = crate::lab!();
    let disk = lab.disk("pool-1", 64 * MIB);
    let (driver, _client) = start(&lab, "1h").await;
    driver.await_verdict(&disk.node, "Unclaimed", "seen too recently");
    let now = year(&driver);
    for (by, jumped) in [("+4000d", now + 10), ("-4000d", now - 11)] {
        set_off(&lab, by);
        // When it is attached, the driver looks at all disks again.
        let other = lab.disk(&format!("pool-in-{jumped}"), 64 * MIB);
        driver.await_verdict(&other.node, "Unclaimed", "seen too recently");
        driver.await_verdict(&disk.node, "Unclaimed", "seen too recently");
        assert!(year(&driver).abs_diff(jumped) <= 1, "the clock did not jump");
    }
    assert_eq!(disk.writes(), 0, "it was claimed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn loop_volumes_are_made_mounted_and_deleted_while_the_clock_jumps() {
    let lab = crate::lab!();
    let disk = lab.disk("pool-1", 256 * MIB);
    let (driver, mut client) = start(&lab, "0s").await;
    driver.await_verdict(&disk.node, "Ours", "in pool");
    let free = client.capacity("fast", &block()).await;
    let now = year(&driver);
    let (staging, kept) = (lab.path("staging"), pattern(7, 100_000));
    let made = client.create(create(&lab.named("kept"), "fast", 32 * MIB, &mount("ext4"))).await;
    client.stage(&made.id, &staging, &mount("ext4")).await.unwrap();
    write_synced(&staging.join("data"), &kept).unwrap();
    for (by, jumped) in [("+4000d", now + 10), ("-4000d", now - 11), ("+0", now)] {
        set_off(&lab, by);
        let raw = client.create(create(&lab.named(by), "fast", MIB, &block())).await;
        client.delete(&raw.id).await.unwrap();
        client.unstage(&made.id, &staging).await.unwrap();
        client.stage(&made.id, &staging, &mount("ext4")).await.unwrap();
        assert!(fs::read(staging.join("data")).unwrap() == kept);
        assert!(year(&driver).abs_diff(jumped) <= 1, "the clock did not jump");
    }
    client.unstage(&made.id, &staging).await.unwrap();
    client.delete(&made.id).await.unwrap();
    client.await_capacity("fast", &block(), free).await;
}
