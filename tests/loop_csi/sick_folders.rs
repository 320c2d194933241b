//! What happens to volumes that are folders of one filesystem, past the driver: what befalls a mount is in the health of
//! one of them, and what befalls the filesystem in that of all.

use std::fs::{self, File};
use std::path::PathBuf;
use std::time::Duration;

use localpool_testing::{MIB, found_async, run, text};

use crate::client::{Client, Made, create, mount};
use crate::directories::{begin, paths, pool_mount, published, taken_down};
use crate::driver::{Driver, SOON};
use crate::health::{await_reasons, cover};
use crate::lab::Lab;

/// Two volumes of one filesystem, in use.
struct Folders {
    _driver: Driver,
    client: Client,
    one: Made,
    two: Made,
    of_one: PathBuf,
    of_two: PathBuf,
    event: PathBuf,
}

impl Folders {
    async fn of(lab: &Lab, (driver, mut client): (Driver, Client)) -> Self {
        let (one, two) = (published(lab, &mut client, "one").await, published(lab, &mut client, "two").await);
        let [of_one, of_two] = ["one", "two"].map(|name| paths(lab, name).1);
        let event = lab.path("event");
        fs::create_dir(&event).unwrap();
        let mut folders = Self { _driver: driver, client, one, two, of_one, of_two, event };
        folders.are(&[], &[]).await;
        folders
    }

    async fn are(&mut self, one: &[&str], two: &[&str]) {
        await_reasons(&mut self.client, &self.one.id, one).await;
        await_reasons(&mut self.client, &self.two.id, two).await;
    }

    /// The same of what no event reports: a change of another mount makes a checkup due.
    async fn are_at_next_event(&mut self, one: &[&str], two: &[&str]) {
        cover(&self.event);
        self.are(one, two).await;
        run("umount", &[text(&self.event)]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn loop_what_somebody_does_to_the_mount_of_a_folder_is_in_its_health_alone() {
    let lab = crate::lab!();
    let mut folders = Folders::of(&lab, begin(&lab).await).await;
    let (one, two) = (folders.of_one.clone(), folders.of_two.clone());
    let staging = paths(&lab, "one").0;

    run("umount", &[text(&one)]);
    folders.are(&["NotMountPoint"], &[]).await;
    folders.client.publish(&folders.one.id, &staging, &one, &mount("xfs")).await.unwrap();
    folders.are(&[], &[]).await;

    cover(&one);
    folders.are(&["WrongDevice"], &[]).await;
    run("umount", &[text(&one)]);
    folders.are(&[], &[]).await;

    // Another folder of the same filesystem, above the right one and in its place.
    fs::write(two.join("file"), "of two").unwrap();
    run("mount", &["--bind", text(&two), text(&one)]);
    let entries = await_reasons(&mut folders.client, &folders.one.id, &["WrongDevice"]).await;
    assert!(entries[0].message.contains("another mount covers the volume at"), "{entries:?}");
    let stats = folders.client.stats(&folders.one.id, &one).await.unwrap();
    assert!(stats.usage.iter().all(|line| line.used == 0), "the other one was measured: {stats:?}");
    run("umount", &[text(&one)]);
    folders.are(&[], &[]).await;
    run("umount", &[text(&one)]);
    run("mount", &["--bind", text(&two), text(&one)]);
    let entries = await_reasons(&mut folders.client, &folders.one.id, &["WrongDevice"]).await;
    assert!(entries[0].message.contains("what is mounted is not the present device"), "{entries:?}");
    run("umount", &[text(&one)]);
    folders.client.publish(&folders.one.id, &staging, &one, &mount("xfs")).await.unwrap();
    folders.are(&[], &[]).await;
    assert_eq!(fs::read_dir(&one).unwrap().count(), 0, "and nothing of the other one is there");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn loop_a_filesystem_that_turns_read_only_or_shuts_down_is_in_the_health_of_all_its_folders_until_it_is_well() {
    let lab = crate::lab!();
    let mut folders = Folders::of(&lab, begin(&lab).await).await;
    let (one, staging) = (folders.of_one.clone(), paths(&lab, "one").0);
    fs::write(one.join("file"), "kept").unwrap();
    run("sync", &["-f", text(&one)]);
    run("mount", &["-o", "remount,ro", text(&staging)]);
    folders.are(&["FilesystemReadOnly"], &["FilesystemReadOnly"]).await;
    run("mount", &["-o", "remount,rw", text(&staging)]);
    folders.are(&[], &[]).await;

    run("xfs_io", &["-x", "-c", "shutdown", text(&one)]);
    folders.are_at_next_event(&["FilesystemShutDown"], &["FilesystemShutDown"]).await;

    // While a pod has one of them the kernel would mount the dead one again. Nobody calls the disk lost for that.
    taken_down(&lab, &mut folders.client, "two", &folders.two.clone()).await;
    let (staging_of_two, _) = paths(&lab, "two");
    folders.client.stage(&folders.two.id, &staging_of_two, &mount("xfs")).await.expect_err("it has shut down");
    folders.are_at_next_event(&["FilesystemShutDown"], &[]).await;
    folders.client.stage(&folders.two.id, &staging_of_two, &mount("xfs")).await.expect_err("it has shut down");

    // docs/health.md, "Mount a volume again".
    for (name, made) in [("one", folders.one.clone()), ("two", folders.two.clone())] {
        taken_down(&lab, &mut folders.client, name, &made).await;
    }
    folders.are(&[], &[]).await;
    // kubelet calls again and again.
    let mut client = folders.client.clone();
    let stage = async || client.stage(&folders.one.id, &staging, &mount("xfs")).await;
    found_async(SOON, Duration::from_millis(200), stage).await.unwrap();
    folders.client.publish(&folders.one.id, &staging, &one, &mount("xfs")).await.unwrap();
    folders.are(&[], &[]).await;
    assert_eq!(fs::read_to_string(one.join("file")).unwrap(), "kept");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn loop_a_filesystem_that_shut_down_while_nobody_had_a_volume_of_it_serves_a_new_volume() {
    let lab = crate::lab!();
    let (_driver, mut client) = begin(&lab).await;
    run("xfs_io", &["-x", "-c", "shutdown", text(&pool_mount(&lab).expect("mounted"))]);
    // The provisioner calls again and again.
    let late = || create(&lab.named("late"), "many", 5 * MIB, &mount("xfs"));
    let made = async || client.try_create(late()).await;
    found_async(SOON, Duration::from_millis(200), made).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn loop_a_filesystem_without_a_free_inode_is_in_the_health_of_all_its_folders() {
    let lab = crate::lab!();
    let (driver, _) = begin(&lab).await;
    let at = pool_mount(&lab).expect("mounted");
    // Of its space inodes may take 1 %. Just how many these are, in whole chunks, the kernel works out when it mounts it.
    run("xfs_growfs", &["-m", "1", text(&at)]);
    let start = driver.start.clone();
    driver.stop();
    run("umount", &[text(&at)]);
    let mut folders = Folders::of(&lab, start.ready().await).await;
    let made = (0..).take_while(|n| File::create(folders.of_two.join(format!("{n}"))).is_ok()).count();
    assert!((1000..100_000).contains(&made), "{made} files");
    folders.are_at_next_event(&["InodesExhausted"], &["InodesExhausted"]).await;
    let entries = await_reasons(&mut folders.client, &folders.one.id, &["InodesExhausted"]).await;
    assert!(entries[0].message.contains("shares with others"), "{entries:?}");
}
