//! Volumes that are folders of one filesystem on a disk of the pool.

use std::fs;
use std::path::{Path, PathBuf};

use localpool::host::{ModuleLoading, Mounts, RealMounts};
use localpool::rpc::proto::volume_usage::Unit;
use localpool_testing::{MIB, eventually, run, skipped, text};
use tonic::Code;

use crate::client::{Client, Made, assert_refused, block, create, mount, mount_with, usage};
use crate::driver::{Driver, SOON, Start, set};
use crate::lab::{Lab, mount_table};

const DIRECTORY: &str = "layout: Directory\n  quota: none";

pub async fn begin(lab: &Lab) -> (Driver, Client) {
    lab.disk("pool", 400 * MIB);
    Start::new(lab, &set(lab, "many", "pool.img", DIRECTORY)).ready().await
}

pub fn paths(lab: &Lab, name: &str) -> (PathBuf, PathBuf) {
    (lab.path(&format!("{name}-staging")), lab.path(&format!("{name}-target")))
}

pub async fn published(lab: &Lab, client: &mut Client, name: &str) -> Made {
    let made = client.create(create(&lab.named(name), "many", 5 * MIB, &mount("xfs"))).await;
    let (staging, target) = paths(lab, name);
    client.stage(&made.id, &staging, &mount("xfs")).await.unwrap();
    client.publish(&made.id, &staging, &target, &mount("xfs")).await.unwrap();
    made
}

pub async fn taken_down(lab: &Lab, client: &mut Client, name: &str, made: &Made) {
    let (staging, target) = paths(lab, name);
    client.unpublish(&made.id, &target).await.unwrap();
    client.unstage(&made.id, &staging).await.unwrap();
}

/// The pool's own mount of the filesystem.
pub fn pool_mount(lab: &Lab) -> Option<PathBuf> {
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
async fn loop_what_a_folder_cannot_be_is_refused_with_a_message() {
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
    let message = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && message.contains("still holds 1 volumes"), "{message}");
    client.delete(&made.id).await.unwrap();
    let released = || driver.cli(&["disk", "release", disk.path()]).status.success();
    assert!(eventually(SOON, released), "{:?}", driver.cli(&["disk", "release", disk.path()]));
    assert_eq!(pool_mount(&lab), None);
    assert!(!Path::new(&format!("{}p2", disk.path())).exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn loop_without_quota_in_the_kernel_a_set_that_does_not_do_without_takes_no_disk() {
    let lab = crate::lab!();
    if RealMounts.supports_project_quota(ModuleLoading::Allowed).is_ok() {
        skipped("the kernel has quota for XFS");
        return;
    }
    let disk = lab.disk("pool", 400 * MIB);
    let start = Start::new(&lab, &set(&lab, "many", "pool.img", "layout: Directory"));
    let (driver, mut client) = start.ready_at_once().await;
    driver.await_verdict(&disk.node, "Unclaimed", "blank and not in use");
    let plan = driver.cli_ok(&["set", "plan", "--file", text(&start.sets)]);
    let line = plan.lines().find(|line| line.contains(disk.path())).unwrap_or_else(|| panic!("{plan}"));
    let why = "nothing would keep a folder within the size of its volume: the kernel ";
    assert!(line.contains(why) && line.contains("with `quota: none` sizes are only counted"), "{line}");
    let refused = client.try_create(create(&lab.named("m"), "many", MIB, &mount("xfs"))).await;
    assert_refused(refused, Code::ResourceExhausted, &["many"]);
    assert_eq!(disk.writes(), 0, "it stays blank");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn loop_a_folder_that_nothing_limits_does_not_shrink() {
    let lab = crate::lab!();
    let (_driver, mut client) = begin(&lab).await;
    let made = client.create(create(&lab.named("m"), "many", 5 * MIB, &mount("xfs"))).await;
    let refused = client.expand(&made.id, MIB, 2 * MIB).await;
    assert_refused(refused, Code::OutOfRange, &["that the volume already has"]);
}

/// How much there is in the folders of deleted volumes, entries at their tops.
fn left_in_trash(lab: &Lab) -> usize {
    let trash = pool_mount(lab).expect("mounted").join("trash");
    let trees = fs::read_dir(trash).unwrap().flatten();
    // One may go while it is looked at.
    trees.map(|tree| fs::read_dir(tree.path()).map_or(0, |entries| entries.count() + 1)).sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn loop_while_a_hundred_thousand_files_are_removed_all_else_is_answered_and_a_stop_ends_it_for_now() {
    let lab = crate::lab!();
    lab.disk("pool", 700 * MIB);
    let sets = set(&lab, "many", "pool.img", DIRECTORY);
    let (driver, mut client) = Start::new(&lab, &sets).ready().await;
    let before = client.capacity("many", &mount("xfs")).await;
    let made = published(&lab, &mut client, "big").await;
    let (_, target) = paths(&lab, "big");
    (0..100_000).for_each(|n| drop(fs::File::create(target.join(n.to_string())).unwrap()));
    taken_down(&lab, &mut client, "big", &made).await;
    client.delete(&made.id).await.unwrap();
    assert!(left_in_trash(&lab) > 90_000, "the answer waits for no file");
    client.delete(&made.id).await.unwrap();

    let other = published(&lab, &mut client, "other").await;
    taken_down(&lab, &mut client, "other", &other).await;
    client.delete(&other.id).await.unwrap();
    assert!(client.ids().await.is_empty());
    let left = left_in_trash(&lab);
    assert!(left > 1, "all of that was answered while it was being removed");
    let now = client.capacity("many", &mount("xfs")).await;
    assert!(now.0 < before.0, "{now:?}, and {before:?} when all is free");

    let start = driver.start.clone();
    driver.stop();
    assert!(!start.log().contains("background work is interrupted"), "{}", start.log());
    let at_stop = left_in_trash(&lab);
    assert!(at_stop > 1 && at_stop <= left, "{at_stop} of {left}");
    let (driver, _) = start.ready_at_once().await;
    driver.kill();
    let (_driver, mut client) = start.ready().await;
    client.await_capacity("many", &mount("xfs"), before).await;
    assert_eq!(left_in_trash(&lab), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn loop_what_is_mounted_in_a_deleted_folder_keeps_that_one_alone_and_is_named() {
    let lab = crate::lab!();
    let disk = lab.disk("pool", 400 * MIB);
    let sets = set(&lab, "many", "pool.img", DIRECTORY);
    let (driver, mut client) = Start::new(&lab, &sets).ready().await;
    let before = client.capacity("many", &mount("xfs")).await;
    let made = published(&lab, &mut client, "used").await;
    let (_, target) = paths(&lab, "used");
    fs::create_dir_all(target.join("a/b")).unwrap();
    fs::write(target.join("file"), "of a tenant").unwrap();
    taken_down(&lab, &mut client, "used", &made).await;
    let at = pool_mount(&lab).expect("mounted");
    let inside = at.join("volumes").join(&made.id).join("a/b");
    run("mount", &["-t", "tmpfs", "none", text(&inside)]);
    fs::write(inside.join("file"), "of somebody").unwrap();
    client.delete(&made.id).await.unwrap();

    let other = client.create(create(&lab.named("other"), "many", 5 * MIB, &mount("xfs"))).await;
    client.delete(&other.id).await.unwrap();
    client.await_capacity("many", &mount("xfs"), (before.0 - 5 * MIB, before.1 - 5 * MIB)).await;
    let why =
        driver.await_verdict(&disk.node, "Ours", "/a/b cannot be removed: something is mounted there: unmount it");
    assert!(why.contains("1 folders of deleted volumes could not be removed"), "{why}");
    let stuck = mount_table().into_iter().find(|mount| mount.target.starts_with(at.join("trash"))).expect("mounted");
    assert_eq!(fs::read_to_string(stuck.target.join("file")).unwrap(), "of somebody");
    assert!(!stuck.target.ancestors().nth(2).unwrap().join("file").exists(), "all else is gone");
    run("umount", &[text(&stuck.target)]);
    client.await_capacity("many", &mount("xfs"), before).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn loop_an_immutable_volume_is_deleted() {
    let lab = crate::lab!();
    let (_driver, mut client) = begin(&lab).await;
    let before = client.capacity("many", &mount("xfs")).await;
    let made = published(&lab, &mut client, "kept").await;
    let (_, target) = paths(&lab, "kept");
    fs::write(target.join("file"), "for good").unwrap();
    run("chattr", &["+i", text(&target.join("file")), text(&target)]);
    taken_down(&lab, &mut client, "kept", &made).await;
    client.delete(&made.id).await.unwrap();
    client.await_capacity("many", &mount("xfs"), before).await;
}
