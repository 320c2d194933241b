//! What happens to a volume past the driver is in its health: seen by an event of the mount table, on every face, and
//! gone with its cause.

use std::fs;
use std::path::Path;
use std::time::Duration;

use localpool::rpc::proto::VolumeHealthErrorType;
use localpool::rpc::proto::volume_health::VolumeHealthEntry;
use localpool_testing::{MIB, eventually, found_async, run, text};
use tonic::Code;

use crate::client::{Client, block, create, mount};
use crate::driver::{CARVED, Driver, SOON, Start, set};

pub async fn await_reasons(client: &mut Client, id: &str, reasons: &[&str]) -> Vec<VolumeHealthEntry> {
    let poll = async || {
        let entries = client.node_health(id).await;
        let is_so = entries.iter().map(|entry| entry.reason.as_str()).eq(reasons.iter().copied());
        if is_so { Ok(entries) } else { Err(entries) }
    };
    let came = found_async(SOON, Duration::from_millis(50), poll).await;
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
    await_healthy(&driver).await;

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

    // No event reports these two: a change of another mount makes a checkup due.
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

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn loop_what_somebody_unmounts_is_missed_by_each_next_agent_until_its_target_is_unmounted_for_kubelet_or_gone() {
    let lab = crate::lab!();
    let _disk = lab.disk("pool-1", 128 * MIB);
    let start = Start::new(&lab, &set(&lab, "fast", "pool-*.img", CARVED));
    let (driver, mut client) = start.ready().await;
    let (staging, target) = (lab.path("staging"), lab.path("target"));
    let made = client.create(create(&lab.named("pvc-1"), "fast", 32 * MIB, &mount("ext4"))).await;
    client.stage(&made.id, &staging, &mount("ext4")).await.unwrap();
    client.publish(&made.id, &staging, &target, &mount("ext4")).await.unwrap();
    await_reasons(&mut client, &made.id, &[]).await;
    await_kept(&start, &[&staging, &target], &[]);

    // It ends as a crash does, and somebody unmounts while no agent runs.
    driver.kill();
    run("umount", &[text(&target)]);
    let (driver, mut client) = start.ready().await;
    let entries = await_reasons(&mut client, &made.id, &["NotMountPoint"]).await;
    assert!(entries[0].message.ends_with(text(&target)), "{entries:?}");
    let stats = client.stats(&made.id, &target).await.unwrap();
    assert!(stats.usage.iter().all(|line| line.used == 0), "what is below the target was measured: {stats:?}");
    assert!(stats.volume_condition.unwrap().message.starts_with("NotMountPoint: "));
    let stats = client.stats(&made.id, &staging).await.unwrap();
    assert!(stats.usage.iter().any(|line| line.used > 0), "it is mounted there: {stats:?}");

    // It is missed again by one that ends in good order, and after it is mounted by none.
    driver.stop();
    let (driver, mut client) = start.ready().await;
    await_reasons(&mut client, &made.id, &["NotMountPoint"]).await;
    client.publish(&made.id, &staging, &target, &mount("ext4")).await.unwrap();
    await_reasons(&mut client, &made.id, &[]).await;
    driver.stop();
    let (driver, mut client) = start.ready().await;
    await_healthy(&driver).await;

    // kubelet unmounts it, and the next agent does not miss it.
    client.unpublish(&made.id, &target).await.unwrap();
    driver.stop();
    await_kept(&start, &[&staging], &[&target]);
    let (driver, mut client) = start.ready().await;
    await_healthy(&driver).await;

    // docs/health.md, "A target that nobody unmounts".
    run("umount", &[text(&staging)]);
    await_reasons(&mut client, &made.id, &["NotMountPoint"]).await;
    run("rmdir", &[text(&staging)]);
    driver.stop();
    let (driver, mut client) = start.ready().await;
    await_kept(&start, &[], &[&staging]);
    await_reasons(&mut client, &made.id, &[]).await;
    assert!(client.stats(&made.id, &staging).await.is_err(), "it is not there, and should not be");
    driver.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn loop_after_a_start_of_the_machine_no_volume_is_missed_where_it_was_mounted_before() {
    let lab = crate::lab!();
    let _disk = lab.disk("pool-1", 128 * MIB);
    let start = Start::new(&lab, &set(&lab, "fast", "pool-*.img", CARVED));
    let (driver, mut client) = start.ready().await;
    let (staging, target) = (lab.path("staging"), lab.path("device"));
    let made = client.create(create(&lab.named("pvc-1"), "fast", 32 * MIB, &block())).await;
    client.publish(&made.id, &staging, &target, &block()).await.unwrap();
    await_kept(&start, &[&target], &[]);
    driver.stop();
    run("umount", &[text(&target)]);

    // As the next start of the machine finds it.
    let (document, boot_id) = (start.state.join("targets.json"), "/proc/sys/kernel/random/boot_id");
    let (kept, boot_id) = (fs::read_to_string(&document).unwrap(), fs::read_to_string(boot_id).unwrap());
    assert!(kept.contains(boot_id.trim()), "{kept}");
    fs::write(&document, kept.replace(boot_id.trim(), "an-earlier-start")).unwrap();
    let (driver, mut client) = start.ready().await;
    await_kept(&start, &[], &[&target]);
    await_reasons(&mut client, &made.id, &[]).await;
    assert_eq!(client.stats(&made.id, &target).await.unwrap_err().code(), Code::NotFound);
    driver.stop();
    // The same document without that.
    fs::write(&document, kept).unwrap();
    let (_driver, mut client) = start.ready().await;
    await_reasons(&mut client, &made.id, &["NotMountPoint"]).await;
    client.unpublish(&made.id, &target).await.unwrap();
    await_reasons(&mut client, &made.id, &[]).await;
}

/// Waits until nothing is wrong with the one volume and its disk, which has answered.
async fn await_healthy(driver: &Driver) {
    let poll = async || {
        let printed = driver.cli_ok(&["health"]);
        if printed.starts_with("healthy: 1 disk and 1 volume") { Ok(()) } else { Err(printed) }
    };
    found_async(SOON, Duration::from_millis(50), poll).await.unwrap_or_else(|printed| panic!("{printed}"));
}

/// Waits until the document of the state directory has these targets, and none of the others.
fn await_kept(start: &Start, targets: &[&Path], others: &[&Path]) {
    let mut kept = String::new();
    let is_so = || {
        kept = fs::read_to_string(start.state.join("targets.json")).unwrap_or_default();
        let has = |target: &&Path| kept.contains(&format!("{target:?}"));
        targets.iter().all(has) && !others.iter().any(has)
    };
    assert!(eventually(SOON, is_so), "{kept}");
}

/// Another filesystem over the volume.
pub fn cover(target: &Path) {
    run("mount", &["-t", "tmpfs", "-o", "size=1m", "cover", text(target)]);
}
