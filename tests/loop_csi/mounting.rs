//! Staging and publishing: flags, read-only, and paths that are not what they should be.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, symlink};
use std::path::Path;

use localpool_testing::MIB;
use tonic::Code;

use crate::client::{Client, Made, assert_refused, block, create, mount, mount_with, publish, stage};
use crate::driver::{CARVED, Driver, Start, WHOLE, set};
use crate::lab::{Lab, mount_table};

async fn begin(lab: &Lab) -> (Driver, Client) {
    lab.disk("pool", 256 * MIB);
    Start::new(lab, &set(lab, "fast", "pool.img", CARVED)).ready().await
}

async fn staged(lab: &Lab, client: &mut Client, name: &str) -> Made {
    let made = client.create(create(&lab.named(name), "fast", 20 * MIB, &mount("ext4"))).await;
    client.stage(&made.id, &lab.path("staging"), &mount("ext4")).await.unwrap();
    made
}

fn options(target: &Path) -> String {
    let table = mount_table();
    let top = table.iter().rfind(|mount| mount.target == target).expect("it is mounted");
    format!(",{},", top.options)
}

fn is_mounted(target: &Path) -> bool {
    mount_table().iter().any(|mount| mount.target == target)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn loop_what_is_published_read_only_cannot_be_written() {
    let lab = crate::lab!();
    let (_driver, mut client) = begin(&lab).await;
    let (staging, read, write) = (lab.path("staging"), lab.path("read"), lab.path("write"));
    let made = staged(&lab, &mut client, "m").await;
    let mut request = publish(&made.id, &staging, &read, &mount("ext4"));
    request.readonly = true;
    client.node.node_publish_volume(request.clone()).await.unwrap();
    client.node.node_publish_volume(request).await.unwrap();
    client.publish(&made.id, &staging, &write, &mount("ext4")).await.unwrap();
    fs::write(write.join("file"), "data").unwrap();
    let refused = fs::write(read.join("other"), "data").unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    assert_eq!(fs::read_to_string(read.join("file")).unwrap(), "data", "and it can be read");

    let made = client.create(create(&lab.named("b"), "fast", 20 * MIB, &block())).await;
    let target = lab.path("device");
    let mut request = publish(&made.id, &staging, &target, &block());
    request.readonly = true;
    client.node.node_publish_volume(request).await.unwrap();
    let written = OpenOptions::new().write(true).open(&target).and_then(|device| {
        device.write_all_at(&[1; 4096], 0)?;
        device.sync_all()
    });
    assert!(written.is_err(), "a read-only raw block volume was written");
    let writable = client.publish(&made.id, &staging, &lab.path("device-2"), &block()).await;
    assert_refused(writable, Code::FailedPrecondition, &["read-only or writable"]);
    client.unpublish(&made.id, &target).await.unwrap();
    client.publish(&made.id, &staging, &target, &block()).await.unwrap();
    OpenOptions::new().write(true).open(&target).unwrap().write_all_at(&[1; 4096], 0).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn loop_mount_flags_reach_the_mount_and_unknown_ones_are_refused_by_name() {
    let lab = crate::lab!();
    let (_driver, mut client) = begin(&lab).await;
    let made = client.create(create(&lab.named("m"), "fast", 20 * MIB, &mount("ext4"))).await;
    let (staging, target) = (lab.path("staging"), lab.path("target"));
    for bad in [&["noatme"][..], &["noatime", "frobnicate=7"], &["bind"], &["remount"]] {
        let refused = client.node.node_stage_volume(stage(&made.id, &staging, &mount_with("ext4", bad))).await;
        assert_refused(refused, Code::InvalidArgument, &[bad[bad.len() - 1], "mount"]);
        assert!(!is_mounted(&staging));
    }
    let good = mount_with("ext4", &["noatime", "nodev"]);
    client.stage(&made.id, &staging, &good).await.unwrap();
    client.publish(&made.id, &staging, &target, &good).await.unwrap();
    for path in [&staging, &target] {
        let options = options(path);
        assert!(options.contains(",noatime,") && options.contains(",nodev,"), "{}: {options}", path.display());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn loop_a_volume_that_is_not_staged_is_not_published() {
    let lab = crate::lab!();
    let (_driver, mut client) = begin(&lab).await;
    let made = client.create(create(&lab.named("m"), "fast", 20 * MIB, &mount("ext4"))).await;
    let (staging, target) = (lab.path("staging"), lab.path("target"));
    let refused = client.publish(&made.id, &staging, &target, &mount("ext4")).await;
    assert_refused(refused, Code::FailedPrecondition, &["not staged", "staging"]);
    let mut without = publish(&made.id, &staging, &target, &mount("ext4"));
    without.staging_target_path.clear();
    let refused = client.node.node_publish_volume(without).await;
    assert_refused(refused, Code::FailedPrecondition, &["staging_target_path"]);
    assert!(!target.exists());
    let refused = client.stats(&made.id, &target).await;
    assert_refused(refused, Code::NotFound, &[&made.id]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn loop_a_busy_target_stays_published_and_is_said_to_be_busy() {
    let lab = crate::lab!();
    let (_driver, mut client) = begin(&lab).await;
    let made = staged(&lab, &mut client, "m").await;
    let (staging, target) = (lab.path("staging"), lab.path("target"));
    client.publish(&made.id, &staging, &target, &mount("ext4")).await.unwrap();
    let mut open = File::create(target.join("open")).unwrap();
    let refused = client.unpublish(&made.id, &target).await;
    assert_refused(refused, Code::FailedPrecondition, &["target_path", "in use"]);
    assert!(is_mounted(&target));
    open.write_all(b"goes on").unwrap();
    drop(open);
    client.unpublish(&made.id, &target).await.unwrap();
    assert!(!target.exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn loop_a_path_that_is_a_symlink_or_a_file_is_refused_and_left_alone() {
    let lab = crate::lab!();
    let (_driver, mut client) = begin(&lab).await;
    let elsewhere = lab.path("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    let (link, file) = (lab.path("link"), lab.path("file"));
    symlink(&elsewhere, &link).unwrap();
    fs::write(&file, "precious").unwrap();
    let made = client.create(create(&lab.named("m"), "fast", 20 * MIB, &mount("ext4"))).await;
    for (path, message) in [(&link, "symlink"), (&file, "directory")] {
        let refused = client.stage(&made.id, path, &mount("ext4")).await;
        assert_refused(refused, Code::FailedPrecondition, &["staging_target_path", message]);
    }
    client.stage(&made.id, &lab.path("staging"), &mount("ext4")).await.unwrap();
    for (path, message) in [(&link, "symlink"), (&file, "directory")] {
        let refused = client.publish(&made.id, &lab.path("staging"), path, &mount("ext4")).await;
        assert_refused(refused, Code::FailedPrecondition, &["target_path", message]);
    }
    let device = client.create(create(&lab.named("b"), "fast", 20 * MIB, &block())).await;
    for path in [&link, &elsewhere] {
        let refused = client.publish(&device.id, &lab.path("staging"), path, &block()).await;
        assert_refused(refused, Code::FailedPrecondition, &["target_path"]);
    }
    for path in [&link, &file] {
        let refused = client.unpublish(&made.id, path).await;
        assert_refused(refused, Code::FailedPrecondition, &["target_path"]);
    }
    assert_eq!(fs::read_to_string(&file).unwrap(), "precious");
    assert_eq!(fs::read_link(&link).unwrap(), elsewhere);
    assert!(!is_mounted(&elsewhere) && fs::read_dir(&elsewhere).unwrap().count() == 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn loop_what_lies_in_a_target_directory_is_not_lost() {
    let lab = crate::lab!();
    let (_driver, mut client) = begin(&lab).await;
    let made = staged(&lab, &mut client, "m").await;
    let target = lab.path("target");
    fs::create_dir(&target).unwrap();
    fs::write(target.join("precious"), "data").unwrap();
    client.publish(&made.id, &lab.path("staging"), &target, &mount("ext4")).await.unwrap();
    assert!(!target.join("precious").exists(), "the volume covers it");
    let left = client.unpublish(&made.id, &target).await;
    assert_refused(left, Code::FailedPrecondition, &["target_path", "not empty"]);
    assert!(!is_mounted(&target));
    assert_eq!(fs::read_to_string(target.join("precious")).unwrap(), "data");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn loop_a_mount_of_somebody_else_is_neither_covered_nor_taken_down() {
    let lab = crate::lab!();
    let (_driver, mut client) = begin(&lab).await;
    let made = staged(&lab, &mut client, "m").await;
    let other = client.create(create(&lab.named("o"), "fast", 20 * MIB, &mount("ext4"))).await;
    client.stage(&other.id, &lab.path("other"), &mount("ext4")).await.unwrap();
    let others_mount = lab.path("foreign");
    fs::create_dir(&others_mount).unwrap();
    let none: Option<&str> = None;
    nix::mount::mount(Some("tmpfs"), &others_mount, Some("tmpfs"), nix::mount::MsFlags::empty(), none).unwrap();
    fs::write(others_mount.join("precious"), "data").unwrap();
    for path in [lab.path("other"), others_mount.clone()] {
        let refused = client.publish(&made.id, &lab.path("staging"), &path, &mount("ext4")).await;
        assert_refused(refused, Code::FailedPrecondition, &["target_path", "another mount"]);
        let refused = client.unpublish(&made.id, &path).await;
        assert_refused(refused, Code::FailedPrecondition, &["target_path", "another mount"]);
        let refused = client.unstage(&made.id, &path).await;
        assert_refused(refused, Code::FailedPrecondition, &["staging_target_path", "another mount"]);
        assert!(is_mounted(&path), "{} was taken down", path.display());
    }
    assert_eq!(fs::read_to_string(others_mount.join("precious")).unwrap(), "data");
}

/// A bound device node holds nothing open, and would lead to the next device that gets its number.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn loop_a_published_block_volume_is_not_deleted_though_nobody_has_it_open() {
    let lab = crate::lab!();
    let layouts = [("carved", CARVED), ("whole", WHOLE), ("bare", "layout: RawDevice")];
    let sets: Vec<_> = layouts.iter().map(|(name, layout)| set(&lab, name, &format!("{name}.img"), layout)).collect();
    for (name, _) in layouts {
        lab.disk(name, 64 * MIB);
    }
    let (_driver, mut client) = Start::new(&lab, &sets.concat()).ready().await;
    for (class, _) in layouts {
        let made = client.create(create(&lab.named(class), class, 20 * MIB, &block())).await;
        let target = lab.path(class);
        client.publish(&made.id, &lab.path("staging"), &target, &block()).await.unwrap();
        fs::OpenOptions::new().write(true).open(&target).unwrap().write_all_at(b"precious", 0).unwrap();
        assert_refused(client.delete(&made.id).await, Code::FailedPrecondition, &[&made.id, "in use"]);
        let mut read = [0; 8];
        File::open(&target).unwrap().read_exact_at(&mut read, 0).unwrap();
        assert_eq!(&read, b"precious", "{class}");
        client.unpublish(&made.id, &target).await.unwrap();
        client.delete(&made.id).await.unwrap();
    }
}
