//! Volumes that are folders of one filesystem on a disk of the pool.

use std::fs;
use std::path::{Path, PathBuf};

use localpool::csi::proto::volume_usage::Unit;
use localpool_testing::{MIB, eventually};
use tonic::Code;

use crate::client::{Client, Made, assert_refused, block, create, mount, mount_with, usage};
use crate::driver::{Driver, SOON, Start, set};
use crate::lab::{Lab, mount_table};

const DIRECTORY: &str = "layout: Directory\n  quota: none";

async fn begin(lab: &Lab) -> (Driver, Client) {
    lab.disk("pool", 400 * MIB);
    Start::new(lab, &set(lab, "many", "pool.img", DIRECTORY)).ready().await
}

fn paths(lab: &Lab, name: &str) -> (PathBuf, PathBuf) {
    (lab.path(&format!("{name}-staging")), lab.path(&format!("{name}-target")))
}

async fn published(lab: &Lab, client: &mut Client, name: &str) -> Made {
    let made = client.create(create(&lab.named(name), "many", 5 * MIB, &mount("xfs"))).await;
    let (staging, target) = paths(lab, name);
    client.stage(&made.id, &staging, &mount("xfs")).await.unwrap();
    client.publish(&made.id, &staging, &target, &mount("xfs")).await.unwrap();
    made
}

async fn taken_down(lab: &Lab, client: &mut Client, name: &str, made: &Made) {
    let (staging, target) = paths(lab, name);
    client.unpublish(&made.id, &target).await.unwrap();
    client.unstage(&made.id, &staging).await.unwrap();
}

/// The pool's own mount of the filesystem.
fn pool_mount(lab: &Lab) -> Option<PathBuf> {
    let below = lab.path("driver.state").join("filesystems");
    mount_table().iter().find(|mount| mount.target.starts_with(&below)).map(|mount| mount.target.clone())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn loop_volumes_that_are_folders_live_beside_each_other_and_leave_nothing() {
    let lab = crate::lab!();
    let (_driver, mut client) = begin(&lab).await;
    let before = client.capacity("many", &mount("xfs")).await;
    let one = published(&lab, &mut client, "one").await;
    let two = published(&lab, &mut client, "two").await;
    assert_eq!((one.size, two.size), (5 * MIB, 5 * MIB));
    let [(_, of_one), (_, of_two)] = ["one", "two"].map(|name| paths(&lab, name));
    fs::write(of_one.join("file"), "of one").unwrap();
    assert_eq!(fs::read_dir(&of_two).unwrap().count(), 0, "each sees its own");
    let stats = client.stats(&one.id, &of_one).await.unwrap();
    assert!(usage(&stats, Unit::Inodes).is_some() && !stats.volume_condition.unwrap().abnormal);
    let (grown, on_node) = client.expand(&one.id, 9 * MIB, 0).await.unwrap();
    assert_eq!(grown, 9 * MIB);
    if on_node {
        assert_eq!(client.node_expand(&one.id, &of_one, grown).await.unwrap(), grown);
    }
    let after = client.capacity("many", &mount("xfs")).await;
    assert_eq!(after.0, before.0 - 14 * MIB);

    assert_refused(client.delete(&one.id).await, Code::FailedPrecondition, &["it is mounted at", "one"]);
    assert_eq!(fs::read_to_string(of_one.join("file")).unwrap(), "of one");
    for (name, made) in [("one", &one), ("two", &two)] {
        taken_down(&lab, &mut client, name, made).await;
        client.delete(&made.id).await.unwrap();
    }
    client.await_capacity("many", &mount("xfs"), before).await;
    let at = pool_mount(&lab).expect("mounted");
    for folder in ["volumes", "records", "making", "trash"] {
        assert_eq!(fs::read_dir(at.join(folder)).unwrap().count(), 0, "{folder}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn loop_a_killed_driver_leaves_folders_mounted_and_the_next_one_has_them() {
    let lab = crate::lab!();
    let (driver, mut client) = begin(&lab).await;
    let made = published(&lab, &mut client, "one").await;
    let (staging, target) = paths(&lab, "one");
    fs::write(target.join("file"), "data").unwrap();
    let start = driver.start.clone();
    driver.kill();
    fs::write(target.join("other"), "meanwhile").unwrap();
    let (_driver, mut client) = start.ready().await;
    client.publish(&made.id, &staging, &target, &mount("xfs")).await.unwrap();
    let again = client.create(create(&lab.named("one"), "many", 5 * MIB, &mount("xfs"))).await;
    assert_eq!(again, made);
    assert_eq!(mount_table().iter().filter(|mount| mount.target.starts_with(&lab.dir)).count(), 3, "no mount twice");
    assert_eq!(fs::read_to_string(target.join("file")).unwrap(), "data");
    taken_down(&lab, &mut client, "one", &made).await;
    client.delete(&made.id).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn loop_what_a_folder_cannot_be_is_refused_in_words() {
    let lab = crate::lab!();
    let (_driver, mut client) = begin(&lab).await;
    let refused = client.try_create(create(&lab.named("b"), "many", MIB, &block())).await;
    assert!(refused.is_err(), "{refused:?}");
    let made = client.create(create(&lab.named("m"), "many", MIB, &mount(""))).await;
    let flags = client.stage(&made.id, &lab.path("staging"), &mount_with("", &["noatime"])).await;
    assert_refused(flags, Code::InvalidArgument, &["noatime", "a folder of a filesystem that others use"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn loop_a_released_disk_of_folders_is_blank() {
    let lab = crate::lab!();
    let disk = lab.disk("pool", 400 * MIB);
    let (driver, mut client) = Start::new(&lab, &set(&lab, "many", "pool.img", DIRECTORY)).ready().await;
    let made = client.create(create(&lab.named("m"), "many", MIB, &mount("xfs"))).await;
    let refused = driver.cli(&["disk", "release", disk.path()]);
    let words = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && words.contains("still holds 1 volumes"), "{words}");
    client.delete(&made.id).await.unwrap();
    let released = || driver.cli(&["disk", "release", disk.path()]).status.success();
    assert!(eventually(SOON, released), "{:?}", driver.cli(&["disk", "release", disk.path()]));
    assert_eq!(pool_mount(&lab), None);
    assert!(!Path::new(&format!("{}p2", disk.path())).exists());
}
