//! Bare devices: what a tenant makes inside one is the tenant's, and no disk of the machine.

use std::process::Command;

use localpool_testing::{MIB, eventually, run, text};

use crate::client::{block, create, mount};
use crate::content::{pattern, write_synced};
use crate::driver::{SOON, Start, WHOLE, set};
use crate::lab::Disk;

/// A partition that the kernel maps, as udev does when the last process that had the disk open for writing closes it.
fn map(disk: &Disk) {
    run("partx", &["--add", disk.path()]);
    assert_eq!(disk.mapped(), [format!("{}p1", disk.name())]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn loop_a_partition_that_a_tenant_made_inside_a_bare_volume_is_never_given_to_another() {
    let lab = crate::lab!();
    let disk = lab.disk("bare", 64 * MIB);
    let part = std::path::PathBuf::from(format!("{}p1", disk.path()));
    let parts = set(&lab, "parts", "none.img", WHOLE);
    let parts = parts.replace("[loop]", "[part]").replace(text(&lab.path("none.img")), text(&part));
    let sets = set(&lab, "bare", "bare.img", "layout: RawDevice") + &parts;
    let start = Start::new(&lab, &sets);
    let (driver, mut client) = start.ready().await;
    let all = client.capacity("bare", &block()).await;
    let made = client.create(create(&lab.named("vm"), "bare", MIB, &block())).await;
    let (staging, target) = (lab.path("staging"), lab.path("target"));
    client.stage(&made.id, &staging, &block()).await.unwrap();
    client.publish(&made.id, &staging, &target, &block()).await.unwrap();
    // The kernel cannot be asked to read it again, which sgdisk reports by its status.
    let _ = Command::new("sgdisk").args(["--new=1:2048:+16M", text(&target)]).output().unwrap();
    client.unpublish(&made.id, &target).await.unwrap();
    driver.stop();
    let table = disk.fingerprint();
    map(&disk);

    let (driver, mut client) = start.ready().await;
    assert_eq!(client.capacity("parts", &block()).await, (0, 0), "the tenant's partition is on offer");
    assert_eq!(disk.mapped(), [] as [String; 0], "it stays mapped");
    driver.await_verdict(&disk.node, "Ours", &format!("in pool as a bare device, holds volume {}", made.id));
    // The tenant maps it while the driver runs: the driver sees it, and does not touch it.
    map(&disk);
    disk.announce();
    driver.await_verdict(&part, "Theirs", "which belongs to a pool disk, by the user of that volume");
    assert_eq!(client.capacity("parts", &block()).await, (0, 0));
    assert!(client.try_create(create(&lab.named("second"), "parts", MIB, &block())).await.is_err());
    assert_eq!(disk.fingerprint(), table, "something was written to the tenant's volume");

    client.delete(&made.id).await.unwrap();
    client.await_capacity("bare", &block(), all).await;
    assert!(eventually(SOON, || disk.mapped().is_empty()), "the next tenant's volume has a partition of the last one");
    assert!(disk.is_blank());
    assert_eq!(client.capacity("parts", &block()).await, (0, 0));
    driver.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn loop_a_filesystem_that_an_older_journal_does_not_know_of_is_not_made_again() {
    let lab = crate::lab!();
    let disk = lab.disk("bare", 64 * MIB);
    let start = Start::new(&lab, &set(&lab, "bare", "bare.img", "layout: RawDevice"));
    let (driver, mut client) = start.ready().await;
    let made = client.create(create(&lab.named("fs"), "bare", MIB, &mount("ext4"))).await;
    let (journal, staging) = (start.state.join("journal.json"), lab.path("staging"));
    let older = std::fs::read(&journal).unwrap();
    client.stage(&made.id, &staging, &mount("ext4")).await.unwrap();
    write_synced(&staging.join("data"), &pattern(5, 100_000)).unwrap();
    client.unstage(&made.id, &staging).await.unwrap();
    driver.stop();
    std::fs::write(&journal, older).unwrap();
    let before = disk.fingerprint();

    let (driver, mut client) = start.ready().await;
    driver.await_verdict(&disk.node, "Ours", "claim disputed");
    assert!(client.stage(&made.id, &staging, &mount("ext4")).await.is_err());
    assert!(
        driver.cli_ok(&["disk", "adopt", disk.path(), "--dry-run"]).contains("a filesystem of this volume is kept")
    );
    assert_eq!(disk.fingerprint(), before, "something was written");
    driver.cli_ok(&["disk", "adopt", disk.path()]);
    client.stage(&made.id, &staging, &mount("ext4")).await.unwrap();
    assert!(std::fs::read(staging.join("data")).unwrap() == pattern(5, 100_000));
    client.unstage(&made.id, &staging).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn loop_a_filesystem_that_somebody_makes_on_a_free_bare_device_is_left_alone() {
    let lab = crate::lab!();
    let disk = lab.disk("bare", 64 * MIB);
    let (driver, mut client) = Start::new(&lab, &set(&lab, "bare", "bare.img", "layout: RawDevice")).ready().await;
    driver.await_verdict(&disk.node, "Ours", "free");
    run("mkfs.ext4", &["-q", "-F", disk.path()]);
    let before = disk.fingerprint();
    for capability in [block(), mount("ext4")] {
        assert!(client.try_create(create(&lab.named("new"), "bare", MIB, &capability)).await.is_err());
    }
    driver.await_verdict(&disk.node, "Ours", "claim disputed: the device should be free, but holds ext4");
    assert_eq!(disk.fingerprint(), before, "something was written");
}
