//! Volumes that are folders of one filesystem on a disk of a set (`layout: Directory`).

use serde_json::{Value, json};

use crate::check::{Needs, Space, check};
use crate::cluster::{SOON, eventually};
use crate::machine::Disk;
use crate::pods::As;
use crate::sets::Folders;

async fn status_of(space: &Space, disk: &Disk) -> Value {
    space.disk_status(disk).await.expect("its DevicePool names the disk")
}

/// Waits until the disk has that many bytes free, and that many volumes.
async fn until_free(space: &Space, disk: &Disk, free: i64, volumes: i64) {
    let is_so = async || {
        let status = status_of(space, disk).await;
        let is_so = status["free"] == free && status["volumes"] == volumes && status["erasing"].is_null();
        if is_so { Ok(()) } else { Err(status) }
    };
    eventually(&format!("{volumes} volumes leave {free} bytes"), 2 * SOON, is_so).await;
}

#[test]
fn pods_share_the_filesystem_of_a_disk_each_with_a_folder_that_grows_and_gives_its_space_back() {
    check(Needs::Machine, async |space| {
        let Folders { disk, class, counts } = space.own_folders("many").await;
        let before = status_of(space, &disk).await;
        assert_eq!(before["layout"], "Directory", "{before}");
        let free = before["free"].as_i64().unwrap();
        for name in ["first", "second"] {
            space.running_in(&class, name, "16Mi").await;
            space.shell(name, &format!("echo {name} >/data/file")).await;
        }
        for name in ["first", "second"] {
            assert_eq!(space.shell(name, "cat /data/file; ls /data").await, format!("{name}\nfile\n"));
        }
        until_free(space, &disk, free - 32 * 1024 * 1024, 2).await;
        let volume = space.volume_of(&space.namespace, "first").await;
        assert_eq!((&volume["status"]["fsType"], &volume["status"]["capacity"]), (&json!("xfs"), &json!("16Mi")));

        let fill = "dd if=/dev/zero of=/data/much bs=1M count=24 2>&1; true";
        if counts {
            let full = space.shell("first", fill).await;
            assert!(full.contains("No space left on device"), "{full}");
            space.shell("second", "dd if=/dev/zero of=/data/much bs=1M count=8 2>/dev/null").await;
        }
        space.grow("first", "48Mi").await;
        let filled = space.shell("first", fill).await;
        assert!(!filled.contains("No space left"), "it has room now: {filled}");
        assert_eq!(space.shell("first", "cat /data/file").await, "first\n");
        let pod = space.get("Pod", space.here(), "first").await.unwrap();
        assert_eq!(pod["status"]["containerStatuses"][0]["restartCount"], 0, "the pod has run on");

        for name in ["first", "second"] {
            space.remove_pod(name).await;
            space.remove_claim(name).await;
        }
        until_free(space, &disk, free, 0).await;
        space.remove_disk("many", &disk).await;
    });
}

#[test]
fn a_claim_for_a_device_of_a_set_whose_volumes_are_folders_is_told_why_there_is_none() {
    check(Needs::Machine, async |space| {
        let Folders { disk, class, .. } = space.own_folders("many").await;
        space.create(&space.block_claim("raw", &class, "16Mi")).await;
        space.create(&space.pod("raw", "raw", As::Device)).await;
        space.event("raw", &["ProvisioningFailed", "volumes are folders, which are no devices"]).await;
        space.remove_pod("raw").await;
        space.remove_claim("raw").await;
        space.remove_disk("many", &disk).await;
    });
}
