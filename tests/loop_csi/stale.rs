//! Bound device nodes whose device has gone: their users reach the device that has got the number since.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use localpool_testing::{MIB, run, text};
use tonic::Code;

use crate::client::{assert_refused, block, create, mount};
use crate::driver::{CARVED, Start, set};
use crate::lab::Disk;

/// The kernel's number of a block device, through a node of it or a bind mount of that.
fn number(node: &Path) -> u64 {
    fs::metadata(node).unwrap().rdev()
}

/// Removes all partitions, as the kernel does when it reads a table again, and adds them again in such an order that
/// the partition gets the number `wanted`: the kernel gives out the lowest that is free.
fn renumber(disk: &Disk, partition: u32, wanted: u64) {
    let node = disk.node.with_file_name(format!("{}p{partition}", disk.name()));
    let mapped: Vec<u32> = disk.mapped().iter().map(|name| name.rsplit('p').next().unwrap().parse().unwrap()).collect();
    let add = |number: &u32| drop(run("partx", &["--add", "--nr", &number.to_string(), disk.path()]));
    // Other programs on this machine get numbers, too.
    for _ in 0..20 {
        disk.unmap();
        for other in mapped.iter().filter(|other| **other != partition) {
            add(&partition);
            if number(&node) == wanted {
                let there = disk.mapped();
                let is_away = |other: &&u32| !there.contains(&format!("{}p{other}", disk.name()));
                mapped.iter().filter(is_away).for_each(add);
                return;
            }
            run("partx", &["--delete", "--nr", &partition.to_string(), disk.path()]);
            add(other);
        }
    }
    panic!("{} does not get the number that another partition had", node.display());
}

/// The number of the partition that a volume is in.
fn partition(disk: &Disk, id: &str) -> u32 {
    let numbers = disk.mapped().into_iter().map(|name| name.rsplit('p').next().unwrap().parse().unwrap());
    let guid = |number: u32| run("sfdisk", &["--part-uuid", disk.path(), &number.to_string()]).trim().to_lowercase();
    numbers.into_iter().find(|number| guid(*number) == id).expect("a partition of the volume's id")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn loop_a_volume_whose_device_has_a_number_that_is_bound_elsewhere_is_shared_with_nobody() {
    let lab = crate::lab!(alone);
    let disk = lab.disk("pool", 256 * MIB);
    let start = Start::new(&lab, &set(&lab, "fast", "pool.img", CARVED));
    let (driver, mut client) = start.ready().await;
    let (staging, target, other_target) = (lab.path("staging"), lab.path("target"), lab.path("other-target"));
    let one = client.create(create(&lab.named("one"), "fast", 16 * MIB, &block())).await;
    let other = client.create(create(&lab.named("other"), "fast", 16 * MIB, &block())).await;
    let files = client.create(create(&lab.named("files"), "fast", 16 * MIB, &mount("ext4"))).await;
    client.publish(&one.id, &staging, &target, &block()).await.unwrap();
    let bound = number(&target);
    let numbers = [&other.id, &files.id].map(|id| partition(&disk, id));
    driver.kill();

    for (id, partition) in [&other.id, &files.id].into_iter().zip(numbers) {
        renumber(&disk, partition, bound);
        let (driver, mut client) = start.ready().await;
        let words = [text(&target), id.as_str(), "NodeUnpublishVolume"];
        if id == &other.id {
            let shared = client.publish(id, &staging, &other_target, &block()).await;
            assert_refused(shared, Code::FailedPrecondition, &words);
        } else {
            let shared = client.stage(id, &staging, &mount("ext4")).await;
            assert_refused(shared, Code::FailedPrecondition, &words);
        }
        assert!(client.stats(id, &target).await.is_err(), "{id} is not published there");
        let deleted = client.delete(id).await;
        assert_refused(deleted, Code::FailedPrecondition, &[text(&target)]);
        driver.kill();
    }

    let (driver, mut client) = start.ready().await;
    client.unpublish(&one.id, &target).await.unwrap();
    for id in [&one.id, &other.id] {
        client.publish(id, &staging, &target, &block()).await.unwrap();
        assert!(client.stats(id, &target).await.is_ok(), "{id}");
        client.unpublish(id, &target).await.unwrap();
    }
    client.stage(&files.id, &staging, &mount("ext4")).await.unwrap();
    client.unstage(&files.id, &staging).await.unwrap();
    for id in [&one.id, &other.id, &files.id] {
        client.delete(id).await.unwrap();
    }
    driver.stop();
}
