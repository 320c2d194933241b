//! Disks that come and go under a running driver. A loop device that is open cannot be detached; so here a disk leaves
//! by losing its size, upon which the driver closes it, and comes back as a copy of what it was, under another name.

use std::fs;

use localpool::rpc::proto::StorageHealthErrorType::{self, StorageDegraded, StorageUnreachable};
use localpool_testing::{MIB, eventually, found_async, run, text};
use tonic::Code;

use crate::client::{Client, assert_refused, block, create, mount};
use crate::content::{first_dirty, pattern, write_synced};
use crate::driver::{CARVED, Driver, SOON, Start, set};
use crate::lab::Disk;

/// Takes a disk away; returns the image that comes back, with everything that the driver has written to it. The driver
/// is stopped meanwhile, as it writes the second copy of a label in the background.
fn take_away(driver: &Driver, disk: &Disk) -> std::path::PathBuf {
    let kept = disk.image.with_extension("kept");
    let held = driver.hold();
    run("cp", &["--sparse=always", text(&disk.image), text(&kept)]);
    fs::File::options().write(true).open(&disk.image).unwrap().set_len(4096).unwrap();
    run("losetup", &["--set-capacity", disk.path()]);
    held.resume();
    disk.announce();
    kept
}

async fn await_condition(client: &mut Client, id: &str, abnormal: bool, message: &str) {
    let poll = async || {
        let listed = client.list().await;
        let (_, condition) = listed.into_iter().find(|(listed, _)| listed == id).expect("it stays listed");
        let is_so = condition.abnormal == abnormal && condition.message.contains(message);
        if is_so { Ok(()) } else { Err(condition) }
    };
    let came = found_async(SOON, std::time::Duration::from_millis(20), poll).await;
    came.unwrap_or_else(|condition| panic!("{condition:?}, not {message:?}"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn loop_a_disk_that_is_attached_under_a_running_driver_joins_the_pool() {
    let lab = crate::lab!();
    let (driver, mut client): (Driver, Client) =
        Start::new(&lab, &set(&lab, "fast", "pool-*.img", CARVED)).ready().await;
    let none = client.try_create(create(&lab.named("pvc-1"), "fast", MIB, &block())).await;
    assert_refused(none, Code::ResourceExhausted, &["fast"]);
    assert_eq!(client.capacity("fast", &block()).await, (0, 0));
    let disk = lab.disk("pool-1", 64 * MIB);
    driver.await_verdict(&disk.node, "Ours", "0 volumes");
    client.create(create(&lab.named("pvc-1"), "fast", MIB, &block())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn loop_a_disk_that_goes_leaves_its_volumes_listed_and_brings_them_back_under_another_name() {
    let lab = crate::lab!();
    let sets = set(&lab, "goes", "goes*.img", CARVED) + &set(&lab, "stays", "stays.img", CARVED);
    let (gone, stays) = (lab.disk("goes", 128 * MIB), lab.disk("stays", 64 * MIB));
    let (driver, mut client) = Start::new(&lab, &sets).ready().await;
    let (staging, target) = (lab.path("staging"), lab.path("target"));
    let free = client.capacity("goes", &block()).await;
    let made = client.create(create(&lab.named("fs"), "goes", 20 * MIB, &mount("ext4"))).await;
    let raw = client.create(create(&lab.named("raw"), "goes", 4 * MIB, &block())).await;
    client.stage(&made.id, &staging, &mount("ext4")).await.unwrap();
    write_synced(&staging.join("data"), &pattern(3, 100_000)).unwrap();
    client.unstage(&made.id, &staging).await.unwrap();
    client.publish(&raw.id, &staging, &target, &block()).await.unwrap();
    fs::write(&target, pattern(4, 4 << 20)).unwrap();
    client.unpublish(&raw.id, &target).await.unwrap();

    let kept = take_away(&driver, &gone);
    for id in [&made.id, &raw.id] {
        await_condition(&mut client, id, true, "DiskMissing").await;
        let got = client.get(id).await.unwrap().status.unwrap().volume_condition.unwrap();
        assert!(got.abnormal && got.message.contains("DiskMissing"), "{got:?}");
        assert_refused(client.delete(id).await, Code::Aborted, &[id, "missing"]);
        assert_refused(client.expand(id, 30 * MIB, 0).await, Code::FailedPrecondition, &[id, "missing"]);
    }
    assert_refused(client.stage(&made.id, &staging, &mount("ext4")).await, Code::FailedPrecondition, &["missing"]);
    let again = client.try_create(create(&lab.named("fs"), "goes", 20 * MIB, &mount("ext4"))).await;
    assert_refused(again, Code::Aborted, &["missing"]);
    assert_eq!(client.capacity("goes", &block()).await, (0, 0));
    // Nobody holds it any more, and other disks are served.
    gone.detach();
    let other = client.create(create(&lab.named("other"), "stays", 4 * MIB, &block())).await;
    client.delete(&other.id).await.unwrap();

    // Somebody else may have the old name now.
    let taker = lab.disk("stranger", 16 * MIB);
    fs::rename(&kept, lab.path("goes-again.img")).unwrap();
    let back = lab.attach_aside(&lab.path("goes-again.img"));
    assert_ne!(back.node, gone.node);
    driver.await_verdict(&back.node, "Ours", "2 volumes");
    for id in [&made.id, &raw.id] {
        await_condition(&mut client, id, false, "Healthy").await;
    }
    client.stage(&made.id, &staging, &mount("ext4")).await.unwrap();
    assert!(fs::read(staging.join("data")).unwrap() == pattern(3, 100_000));
    client.unstage(&made.id, &staging).await.unwrap();
    client.publish(&raw.id, &staging, &target, &block()).await.unwrap();
    assert!(fs::read(&target).unwrap() == pattern(4, 4 << 20));
    client.unpublish(&raw.id, &target).await.unwrap();
    // A deleted volume is erased: the disk's worker came back with it.
    for id in [&made.id, &raw.id] {
        client.delete(id).await.unwrap();
    }
    client.await_capacity("goes", &block(), free).await;
    assert!(eventually(SOON, || first_dirty(&back.image, 2 * MIB, 128 * MIB - 20480).is_none()), "it is not erased");
    assert_eq!((taker.writes(), stays.mapped()), (0, vec![format!("{}p1", stays.name())]));
}

/// Waits until the storage of the node has an entry of this status because so many disks are away, and no other one.
async fn await_storage(client: &mut Client, wanted: Option<(StorageHealthErrorType, usize)>) {
    let poll = async || {
        let entries = client.storage_health().await;
        let found: Vec<_> = entries
            .iter()
            .map(|entry| (entry.status(), entry.reason.as_str(), entry.message.matches(" is not there").count()))
            .collect();
        let wanted: Vec<_> = wanted.iter().map(|(status, disks)| (*status, "DiskMissing", *disks)).collect();
        if found == wanted { Ok(()) } else { Err(entries) }
    };
    let came = found_async(SOON, std::time::Duration::from_millis(20), poll).await;
    came.unwrap_or_else(|entries| panic!("{entries:?}, not {wanted:?}"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn loop_the_storage_of_a_node_is_degraded_without_one_disk_and_unreachable_without_any() {
    let lab = crate::lab!();
    let disks = ["pool-1", "pool-2"].map(|name| lab.disk(name, 64 * MIB));
    let (driver, mut client) = Start::new(&lab, &set(&lab, "fast", "pool-*.img", CARVED)).ready().await;
    await_storage(&mut client, None).await;
    let mut kept = Vec::new();
    for (disk, status) in disks.iter().zip([StorageDegraded, StorageUnreachable]) {
        kept.push(take_away(&driver, disk));
        await_storage(&mut client, Some((status, kept.len()))).await;
        disk.detach();
    }
    let mut back = Vec::new();
    for (kept, wanted) in kept.iter().zip([Some((StorageDegraded, 1)), None]) {
        back.push(lab.attach(kept, 512));
        await_storage(&mut client, wanted).await;
    }
}
