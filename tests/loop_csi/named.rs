//! LocalVolumes: disks named by their paths are taken, others are not; the data on them is destroyed only by order, and
//! never while somebody uses it.
use localpool_testing::{MIB, run, text};

use crate::client::{block, create};
use crate::driver::{Start, WHOLE, set};
use crate::lab::Disk;

/// A LocalVolume with one class over these devices.
fn local_volume(class: &str, disks: &[&Disk], more: &str) -> String {
    let paths: Vec<&str> = disks.iter().map(|disk| disk.path()).collect();
    format!(
        "---\napiVersion: local.storage.openshift.io/v1\nkind: LocalVolume\nmetadata: {{name: lv-{class}}}\nspec:\n  \
         storageClassDevices:\n    - storageClassName: {class}\n      devicePaths: [{}]\n      {more}\n",
        paths.join(", ")
    )
}

const WIPE: &str = "forceWipeDevicesAndDestroyAllData: true";

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn loop_a_disk_that_a_local_volume_names_is_taken_and_no_other_and_a_name_that_leads_nowhere_is_waited_for() {
    let lab = crate::lab!();
    let (named, beside) = (lab.disk("named", 64 * MIB), lab.disk("beside", 64 * MIB));
    let sets = local_volume("fast", &[&named], "").replace("devicePaths: [", "devicePaths: [/dev/disk/by-id/none, ");
    let (driver, mut client) = Start::new(&lab, &sets).ready().await;
    driver.await_verdict(&named.node, "Ours", "in pool");
    let made = client.create(create(&lab.named("pvc-1"), "fast", MIB, &block())).await;
    let listed = client.list().await;
    assert!(listed.iter().any(|(id, _)| *id == made.id));
    assert_eq!((driver.verdict(&beside.node).0.as_str(), beside.writes()), ("Unclaimed", 0));
    driver.stop();
    // The label says whose it is; the path does not matter any more.
    let other = local_volume("fast", &[&named], "").replace(named.path(), "/dev/disk/by-id/another");
    // The same state and node, with another file.
    let start = Start::new(&lab, &other);
    let (driver, mut client) = start.ready().await;
    driver.await_verdict(&named.node, "Ours", "1 volume");
    client.delete(&made.id).await.unwrap();
    assert_eq!(beside.writes(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn loop_content_is_destroyed_by_order_only_and_never_what_is_mounted_partitioned_or_not_named() {
    let lab = crate::lab!();
    let formatted = |name: &str| {
        let image = lab.image(name, 64 * MIB);
        run("mkfs.ext4", &["-q", text(&image)]);
        lab.attach(&image, 512)
    };
    let partitioned = lab.image("partitioned", 64 * MIB);
    run("sgdisk", &["--new=1:2048:+16M", text(&partitioned)]);
    let (kept, beside, mounted) = (formatted("kept"), formatted("beside"), formatted("mounted"));
    let partitioned = lab.attach(&partitioned, 512);
    let wiped = [formatted("wiped-ext4"), lab.disk("wiped-md", 64 * MIB), lab.disk("wiped-table", 64 * MIB)];
    // A superblock of md at the end (version 1.0), and a table without partitions.
    let at = wiped[1].size() - 8192;
    wiped[1].write(at, &md_superblock(at / 512));
    run("sgdisk", &["--clear", text(&wiped[2].image)]);
    std::fs::create_dir(lab.path("mnt")).unwrap();
    run("mount", &["-o", "ro,noload", mounted.path(), text(&lab.path("mnt"))]);
    let spared = [&kept, &beside, &mounted, &partitioned];
    let before: Vec<_> = spared.iter().map(|disk| (disk.fingerprint(), disk.writes())).collect();

    let ordered = [&wiped[0], &wiped[1], &wiped[2], &mounted, &partitioned];
    let sets = local_volume("keep", &[&kept], "") + &local_volume("wipe", &ordered, WIPE);
    let start = Start::new(&lab, &sets);
    let (driver, mut client) = start.ready_at_once().await;
    for disk in &wiped {
        driver.await_verdict(&disk.node, "Ours", "in pool");
    }
    client.create(create(&lab.named("pvc-1"), "wipe", MIB, &block())).await;
    driver.await_verdict(&kept.node, "Theirs", "holds ext4");
    driver.await_verdict(&beside.node, "Theirs", "holds ext4");
    driver.await_verdict(&mounted.node, "Theirs", "mounted at");
    driver.await_verdict(&partitioned.node, "Theirs", "partition table (gpt)");
    // Once more, and for long enough: the disks that were spared remain untouched.
    for disk in &spared {
        disk.announce();
    }
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    let plan = driver.cli_ok(&["set", "plan", "--file", text(&start.sets)]);
    let line = |disk: &Disk| {
        let wanted = |line: &&str| line.split_whitespace().nth(1) == Some(disk.path());
        plan.lines().filter(wanted).collect::<Vec<_>>().join("\n")
    };
    assert!(line(&mounted).contains("not wiped: a device in use is never wiped"), "{plan}");
    driver.stop();
    let after: Vec<_> = spared.iter().map(|disk| (disk.fingerprint(), disk.writes())).collect();
    assert_eq!(after, before, "a disk that nobody may touch was written");
    let log = start.log();
    for held in ["it held ext4", "it held linux_raid_member", "an empty partition table (gpt)"] {
        assert!(log.contains(held), "{held}: {log}");
    }
    assert!(log.contains("its partition table has partitions"), "{log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn loop_a_disk_that_is_open_exclusively_is_not_wiped_until_it_is_let_go() {
    let lab = crate::lab!();
    let image = lab.image("held", 64 * MIB);
    run("mkfs.ext4", &["-q", text(&image)]);
    let disk = lab.attach(&image, 512);
    let held =
        std::os::unix::fs::OpenOptionsExt::custom_flags(std::fs::OpenOptions::new().read(true), nix::libc::O_EXCL)
            .open(&disk.node)
            .unwrap();
    let before = (disk.fingerprint(), disk.writes());
    let start = Start::new(&lab, &local_volume("wipe", &[&disk], WIPE));
    let (driver, _client) = start.ready_at_once().await;
    let refused = || start.log().contains("a disk was not wiped");
    assert!(localpool_testing::eventually(crate::driver::SOON, refused), "{}", start.log());
    assert_eq!((disk.fingerprint(), disk.writes()), before);
    drop(held);
    driver.await_verdict(&disk.node, "Ours", "in pool");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn loop_what_an_older_set_selects_is_not_wiped_for_a_local_volume() {
    let lab = crate::lab!();
    let image = lab.image("pool", 64 * MIB);
    run("mkfs.ext4", &["-q", text(&image)]);
    let disk = lab.attach(&image, 512);
    let before = (disk.fingerprint(), disk.writes());
    let sets = set(&lab, "older", "pool.img", WHOLE) + &local_volume("wipe", &[&disk], WIPE);
    let (driver, _client) = Start::new(&lab, &sets).ready_at_once().await;
    driver.await_verdict(&disk.node, "Theirs", "holds ext4");
    for _ in 0..3 {
        disk.announce();
        tokio::time::sleep(std::time::Duration::from_millis(400)).await;
    }
    assert_eq!((disk.fingerprint(), disk.writes()), before);
}

/// Version 1.0 of md's superblock, of an array with one device, for the sector that it is written to.
fn md_superblock(sector: u64) -> [u8; 512] {
    let mut block = [0_u8; 512];
    block[..4].copy_from_slice(&0xa92b_4efc_u32.to_le_bytes());
    block[4..8].copy_from_slice(&1_u32.to_le_bytes());
    block[16..32].copy_from_slice(b"0123456789abcdef");
    block[32..36].copy_from_slice(b"data");
    block[144..152].copy_from_slice(&sector.to_le_bytes());
    let words = block.as_chunks::<4>().0.iter().map(|word| u64::from(u32::from_le_bytes(*word)));
    let sum = words.take(64).sum::<u64>();
    let folded = (sum & 0xffff_ffff) + (sum >> 32);
    block[216..220].copy_from_slice(&u32::try_from(folded & 0xffff_ffff).unwrap().to_le_bytes());
    block
}
