//! What happens to a volume past the driver is in its health: seen by an event of the mount table, on every face, and
//! gone with its cause.

use std::path::Path;
use std::time::Duration;

use localpool::csi::proto::VolumeHealthErrorType;
use localpool::csi::proto::volume_health::VolumeHealthEntry;
use localpool_testing::{MIB, found_async, run, text};

use crate::client::{Client, block, create, mount};
use crate::driver::{CARVED, Driver, SOON, Start, set};

async fn await_reasons(client: &mut Client, id: &str, reasons: &[&str]) -> Vec<VolumeHealthEntry> {
    let look = async || {
        let entries = client.node_health(id).await;
        let is_so = entries.iter().map(|entry| entry.reason.as_str()).eq(reasons.iter().copied());
        if is_so { Ok(entries) } else { Err(entries) }
    };
    let came = found_async(SOON, Duration::from_millis(50), look).await;
    came.unwrap_or_else(|entries| panic!("{entries:?}, not {reasons:?}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn loop_what_somebody_unmounts_is_in_the_health_of_the_volume_until_it_is_mounted_again() {
    let lab = crate::lab!();
    let _disk = lab.disk("pool-1", 128 * MIB);
    let (driver, mut client): (Driver, Client) =
        Start::new(&lab, &set(&lab, "fast", "pool-*.img", CARVED)).ready().await;
    let (staging, target) = (lab.path("staging"), lab.path("target"));
    let made = client.create(create(&lab.named("pvc-1"), "fast", 32 * MIB, &mount("ext4"))).await;
    client.stage(&made.id, &staging, &mount("ext4")).await.unwrap();
    client.publish(&made.id, &staging, &target, &mount("ext4")).await.unwrap();
    await_reasons(&mut client, &made.id, &[]).await;
    assert!(driver.cli_ok(&["health"]).starts_with("healthy: 1 disk and 1 volume"));

    run("umount", &[text(&target)]);
    let entries = await_reasons(&mut client, &made.id, &["NotMountPoint"]).await;
    assert_eq!(entries[0].status(), VolumeHealthErrorType::Inaccessible);
    assert!(entries[0].message.contains(text(&target)), "{entries:?}");
    let stats = client.stats(&made.id, &target).await.unwrap();
    let condition = stats.volume_condition.unwrap();
    assert!(condition.abnormal && condition.message.starts_with("NotMountPoint: "), "{condition:?}");
    assert_eq!(client.controller_health(&made.id).await, entries);
    let listed = client.unhealthy().await;
    assert!(matches!(&listed[..], [one] if one.volume_id == made.id && one.health_statuses == entries), "{listed:?}");
    let output = driver.cli_ok(&["health"]);
    assert!(output.contains("NotMountPoint, Inaccessible, since 20") && output.contains(&made.id), "{output}");

    client.publish(&made.id, &staging, &target, &mount("ext4")).await.unwrap();
    await_reasons(&mut client, &made.id, &[]).await;
    assert!(client.unhealthy().await.is_empty() && client.controller_health(&made.id).await.is_empty());

    run("mount", &["-o", "remount,ro", text(&staging)]);
    await_reasons(&mut client, &made.id, &["FilesystemReadOnly"]).await;
    run("mount", &["-o", "remount,rw", text(&staging)]);
    await_reasons(&mut client, &made.id, &[]).await;

    cover(&target);
    await_reasons(&mut client, &made.id, &["WrongDevice"]).await;
    let stats = client.stats(&made.id, &target).await.unwrap();
    assert!(stats.usage.iter().all(|line| line.used == 0), "the cover was measured: {stats:?}");
    assert!(stats.volume_condition.unwrap().message.starts_with("WrongDevice: "));
    run("umount", &[text(&target)]);
    await_reasons(&mut client, &made.id, &[]).await;

    client.unpublish(&made.id, &target).await.unwrap();
    run("umount", &[text(&staging)]);
    await_reasons(&mut client, &made.id, &["NotMountPoint"]).await;
    client.unstage(&made.id, &staging).await.unwrap();
    await_reasons(&mut client, &made.id, &[]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn loop_what_happens_to_the_device_of_a_block_volume_is_in_its_health_until_it_is_mended() {
    let lab = crate::lab!();
    let _disk = lab.disk("pool-1", 128 * MIB);
    let (_driver, mut client): (Driver, Client) =
        Start::new(&lab, &set(&lab, "fast", "pool-*.img", CARVED)).ready().await;
    let (staging, target) = (lab.path("staging"), lab.path("device"));
    let made = client.create(create(&lab.named("pvc-1"), "fast", 32 * MIB, &block())).await;
    client.publish(&made.id, &staging, &target, &block()).await.unwrap();
    await_reasons(&mut client, &made.id, &[]).await;

    run("mount", &["--bind", "/dev/null", text(&target)]);
    await_reasons(&mut client, &made.id, &["WrongDevice"]).await;
    run("umount", &[text(&target)]);
    await_reasons(&mut client, &made.id, &[]).await;

    run("umount", &[text(&target)]);
    await_reasons(&mut client, &made.id, &["NotMountPoint"]).await;
    client.publish(&made.id, &staging, &target, &block()).await.unwrap();
    await_reasons(&mut client, &made.id, &[]).await;

    // No event tells of these two: a change of another mount makes a checkup due.
    let event = lab.path("event");
    std::fs::create_dir(&event).unwrap();
    let mut due = async |reasons: &[&str]| {
        cover(&event);
        await_reasons(&mut client, &made.id, reasons).await;
        run("umount", &[text(&event)]);
    };
    run("blockdev", &["--setro", text(&target)]);
    due(&["DeviceReadOnly"]).await;
    run("blockdev", &["--setrw", text(&target)]);
    due(&[]).await;

    let of = |column: &str| run("lsblk", &["--noheadings", "--nodeps", "--output", column, text(&target)]);
    let partition = format!("/sys/dev/block/{}/partition", of("MAJ:MIN").trim());
    let number = std::fs::read_to_string(partition).unwrap().trim().to_owned();
    let disk = format!("/dev/{}", of("PKNAME").trim());
    let sectors = |bytes: u64| (bytes / 512).to_string();
    run("resizepart", &[&disk, &number, &sectors(16 * MIB)]);
    due(&["CapacityAboveDevice"]).await;
    run("resizepart", &[&disk, &number, &sectors(32 * MIB)]);
    due(&[]).await;

    client.unpublish(&made.id, &target).await.unwrap();
    await_reasons(&mut client, &made.id, &[]).await;
}

/// Another filesystem over the volume.
fn cover(target: &Path) {
    run("mount", &["-t", "tmpfs", "-o", "size=1m", "cover", text(target)]);
}
