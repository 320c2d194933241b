//! A disk of the pool is held: the kernel refuses tools and operators that ask for a whole disk.

use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::process::Command;

use localpool_testing::{MIB, eventually, run, text};

use crate::client::{Client, block, create, mount};
use crate::driver::{CARVED, Driver, SOON, Start, set};
use crate::lab::Disk;

/// Each of them would destroy the disk, and none asks first.
const DESTROYERS: [&[&str]; 5] = [
    &["mkfs.ext4", "-q", "-F"],
    &["mkfs.xfs", "-q", "-f"],
    &["mkfs.btrfs", "-q", "-f"],
    &["wipefs", "--all"],
    &["blockdev", "--rereadpt"],
];

fn assert_held(disk: &Disk) {
    let before = disk.fingerprint();
    assert!(disk.mapped().contains(&format!("{}p1", disk.name())));
    let asked = OpenOptions::new().read(true).custom_flags(nix::libc::O_EXCL).open(&disk.node);
    assert_eq!(asked.map(drop).map_err(|error| error.kind()), Err(ErrorKind::ResourceBusy));
    for words in DESTROYERS {
        let refused = Command::new(words[0]).args(&words[1..]).arg(&disk.node).output().unwrap();
        assert!(!refused.status.success(), "{words:?} worked");
    }
    assert_eq!(disk.fingerprint(), before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn loop_nobody_who_asks_for_a_whole_disk_gets_one_of_the_pool() {
    let lab = crate::lab!();
    let disk = lab.disk("held", 256 * MIB);
    let start = Start::new(&lab, &set(&lab, "held", "held.img", CARVED));
    let (driver, _client): (Driver, Client) = start.ready().await;
    driver.await_verdict(&disk.node, "Ours", "0 volumes");
    assert_held(&disk);
    // Also after a restart, whatever ended the driver, and with volumes mounted or not.
    driver.kill();
    let (driver, _client) = start.ready().await;
    assert_held(&disk);
    driver.stop();
    let (driver, mut client) = start.ready().await;
    let made = client.create(create(&lab.named("fs"), "held", 32 * MIB, &mount("ext4"))).await;
    client.create(create(&lab.named("raw"), "held", 8 * MIB, &block())).await;
    assert_held(&disk);
    let staging = lab.path("staging");
    client.stage(&made.id, &staging, &mount("ext4")).await.unwrap();
    assert_held(&disk);
    client.unstage(&made.id, &staging).await.unwrap();
    // Its partitions have their own reasons; `devices` without options leaves them out.
    driver.stop();
    let (driver, mut client) = start.ready().await;
    let partition = |number: u32| PathBuf::from(format!("{}p{number}", disk.path()));
    driver.await_verdict(&partition(1), "Ours", &format!("label of {}, kept open", disk.path()));
    driver.await_verdict(&partition(2), "Ours", &format!("volume {}", lab.named("fs")));
    driver.await_verdict(&partition(3), "Ours", &format!("volume {}", lab.named("raw")));
    let table = driver.cli_ok(&["devices"]);
    assert!(table.contains(disk.path()) && !table.contains(&format!("{}p", disk.path())), "{table}");
    assert!(driver.cli_ok(&["devices", "-o", "wide"]).contains(&format!("{}p2 ", disk.path())));
    for id in client.ids().await {
        client.delete(&id).await.unwrap();
    }
    // A released disk is anybody's.
    let released = || driver.cli(&["disk", "release", disk.path()]).status.success();
    assert!(eventually(SOON, released));
    run("mkfs.ext4", &["-q", "-F", text(&disk.node)]);
}
