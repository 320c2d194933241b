//! Disks that are not localpool's: never claimed, never written, and each with a reason that a person can read.

use std::process::Command;
use std::time::Duration;

use localpool_testing::{MIB, eventually, run, text};

use crate::client::{block, create};
use crate::driver::{BARE, SOON, Start, WHOLE, cli, set, verdict_in};
use crate::lab::{Disk, Lab};

/// A disk with something on it, and the words that must be in its reason.
struct Taken {
    disk: Disk,
    message: &'static str,
}

fn with_content(lab: &Lab, name: &str, message: &'static str, prepare: impl FnOnce(&str)) -> Taken {
    let image = lab.image(&format!("pool-{name}"), 64 * MIB);
    prepare(text(&image));
    Taken { disk: lab.attach(&image, 512), message }
}

fn dos_table(image: &str) {
    let mut sector = [0; 512];
    // One Linux partition of 16 MiB at 1 MiB.
    sector[446..462].copy_from_slice(&[0, 0, 0, 0, 0x83, 0, 0, 0, 0, 8, 0, 0, 0, 0x80, 0, 0]);
    sector[510..].copy_from_slice(&[0x55, 0xaa]);
    std::fs::File::options()
        .write(true)
        .open(image)
        .and_then(|file| std::os::unix::fs::FileExt::write_all_at(&file, &sector, 0))
        .unwrap();
}

/// The label of an LVM physical volume, in the second sector.
fn lvm_label(image: &str) {
    let mut sector = [0; 512];
    sector[..8].copy_from_slice(b"LABELONE");
    sector[8..16].copy_from_slice(&1_u64.to_le_bytes());
    sector[20..24].copy_from_slice(&32_u32.to_le_bytes());
    sector[24..32].copy_from_slice(b"LVM2 001");
    sector[32..64].copy_from_slice(b"abcdefABCDEFghijGHIJklmnKLMNopqr");
    // LVM starts its CRC from a number of its own, and does not invert.
    let mut crc = crc32fast::Hasher::new_with_initial(!0xf597_a6cf);
    crc.update(&sector[20..]);
    sector[16..20].copy_from_slice(&(!crc.finalize()).to_le_bytes());
    std::fs::File::options()
        .write(true)
        .open(image)
        .and_then(|file| std::os::unix::fs::FileExt::write_all_at(&file, &sector, 512))
        .unwrap();
}

fn only_a_backup_table(image: &str) {
    run("sgdisk", &["--new=1:2048:+16M", image]);
    let zeros = vec![0; 34 * 512];
    std::fs::File::options()
        .write(true)
        .open(image)
        .and_then(|file| std::os::unix::fs::FileExt::write_all_at(&file, &zeros, 0))
        .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn loop_a_disk_with_anything_on_it_is_never_taken_though_a_set_selects_it() {
    let lab = crate::lab!();
    let taken = [
        with_content(&lab, "ext4", "holds ext4", |image| drop(run("mkfs.ext4", &["-q", image]))),
        with_content(&lab, "dos", "partition table (dos)", dos_table),
        with_content(&lab, "gpt", "partition table (gpt)", |image| drop(run("sgdisk", &["--new=1:2048:+16M", image]))),
        with_content(&lab, "backup", "partition table", only_a_backup_table),
        with_content(&lab, "swap", "holds swap", |image| drop(run("mkswap", &[image]))),
        with_content(&lab, "lvm", "holds LVM2_member", lvm_label),
        with_content(&lab, "mounted", "mounted at", |image| drop(run("mkfs.ext4", &["-q", image]))),
        with_content(&lab, "below", "a loop device", |_| ()),
    ];
    let [.., mounted, below] = &taken;
    std::fs::create_dir(lab.path("mnt")).unwrap();
    run("mount", &["-o", "ro,noload", mounted.disk.path(), text(&lab.path("mnt"))]);
    let above = run("losetup", &["--find", "--show", below.disk.path()]);
    let _above = Detach(above.trim().to_owned());
    let beside = lab.disk("beside", 64 * MIB);
    let free = lab.disk("pool-free", 64 * MIB);
    let all = || taken.iter().map(|taken| &taken.disk).chain([&beside]);
    let before: Vec<_> = all().map(|disk| (disk.fingerprint(), disk.writes())).collect();

    let (driver, mut client) = Start::new(&lab, &set(&lab, "fast", "pool-*.img", WHOLE)).ready().await;
    driver.await_verdict(&free.node, "Ours", "in pool");
    client.create(create(&lab.named("pvc-1"), "fast", MIB, &block())).await;
    for Taken { disk, message } in &taken {
        disk.announce();
        driver.await_verdict(&disk.node, "Theirs", message);
    }
    let (verdict, reason) = driver.verdict(&beside.node);
    assert_eq!(verdict, "Unclaimed", "{reason}");
    assert!(reason.contains("set default/fast"), "why no set takes it: {reason}");
    driver.stop();
    // No agent runs any more: a scan now shows the same, and creates nothing.
    let alone = cli(&lab.path("nobody"), &["devices", "-o", "json"]);
    let list = String::from_utf8(alone.stdout).unwrap();
    for Taken { disk, message } in &taken {
        let (verdict, reason) = verdict_in(&list, &disk.node);
        assert!(verdict == "Theirs" && reason.contains(message), "{verdict} {reason}");
    }
    assert!(!lab.path("nobody").exists());
    let after: Vec<_> = all().map(|disk| (disk.fingerprint(), disk.writes())).collect();
    assert_eq!(after, before, "a disk that is not ours was written");
    assert!(free.writes() > 0, "the counters count");
}

/// A loop device over a block device is in no directory of the lab.
struct Detach(String);

impl Drop for Detach {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["--detach", &self.0]).output();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn loop_a_disk_that_is_formatted_before_its_time_is_never_taken() {
    let lab = crate::lab!(alone);
    let mut start = Start::new(&lab, &set(&lab, "fast", "pool-*.img", WHOLE));
    // Far longer than a busy machine needs to attach and to format them.
    start.min_age = "15s".to_owned();
    let (driver, _client) = start.ready().await;
    let formatted = lab.disk("pool-formatted", 64 * MIB);
    let witness = lab.disk("pool-witness", 64 * MIB);
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert_eq!((formatted.writes(), witness.writes()), (0, 0), "it was claimed before its time");
    // Without udev here, no event reports it; the second scan has to see it.
    run("mkfs.ext4", &["-q", formatted.path()]);
    let before = formatted.fingerprint();
    driver.await_verdict(&witness.node, "Ours", "in pool");
    driver.await_verdict(&formatted.node, "Theirs", "holds ext4");
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(formatted.fingerprint(), before);
    assert_eq!(run("blkid", &["-p", "-s", "TYPE", "-o", "value", formatted.path()]).trim(), "ext4");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn loop_a_bare_device_of_an_agent_that_another_one_knows_nothing_of_is_not_taken_by_that() {
    let lab = crate::lab!();
    let disk = lab.disk("pool", 64 * MIB);
    let sets = set(&lab, "fast", "pool.img", BARE);
    let (driver, mut client) = Start::new(&lab, &sets).ready().await;
    driver.await_verdict(&disk.node, "Ours", "in pool");
    // A volume without any trace of its content: a scan finds a blank device.
    let made = client.create(create(&lab.named("pvc-1"), "fast", MIB, &block())).await;
    let (other, _client) = Start::named(&lab, "other", &sets).ready_at_once().await;
    other.await_verdict(&disk.node, "Unclaimed", "locked by localpool");
    assert!(!other.cli_ok(&["devices"]).contains("Ours"));
    other.stop();
    client.delete(&made.id).await.unwrap();
    driver.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn loop_a_disk_that_somebody_holds_open_is_taken_when_he_lets_go_and_not_before() {
    let lab = crate::lab!();
    let disk = lab.disk("pool", 64 * MIB);
    let held =
        std::os::unix::fs::OpenOptionsExt::custom_flags(std::fs::OpenOptions::new().read(true), nix::libc::O_EXCL)
            .open(&disk.node)
            .unwrap();
    let (driver, _client) = Start::new(&lab, &set(&lab, "fast", "pool.img", WHOLE)).ready_at_once().await;
    driver.await_verdict(&disk.node, "Theirs", "exclusively");
    assert_eq!(disk.writes(), 0);
    drop(held);
    assert!(eventually(SOON, || driver.verdict(&disk.node).0 == "Ours"), "it is not looked at again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn loop_a_blank_disk_that_a_program_has_open_to_write_is_not_claimed_before_that_ends() {
    let lab = crate::lab!();
    let disk = lab.disk("tested", 64 * MIB);
    // As a test of a new disk keeps it open: not exclusively, and for long. A process that only reads keeps nobody from
    // it.
    let reader = std::fs::File::open(&disk.node).unwrap();
    let writer = std::fs::File::options().write(true).open(&disk.node).unwrap();
    let start = Start::new(&lab, &set(&lab, "tested", "tested.img", WHOLE));
    let (driver, _client) = start.ready_at_once().await;
    driver.await_verdict(&disk.node, "Unclaimed", "open in");
    assert!(disk.is_blank());
    drop(writer);
    driver.await_verdict(&disk.node, "Ours", "in pool");
    drop(reader);
    driver.stop();
}
