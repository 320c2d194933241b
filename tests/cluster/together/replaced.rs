//! A disk that is taken out of service, as docs/health.md says.

use serde_json::Value;

use crate::check::{Needs, Space, check};
use crate::cluster::{SOON, attempt, eventually, run};
use crate::machine::Disk;
use crate::page::{agent_of, in_the_controllers_pod, section, try_in_the_agents_pod, typed};
use crate::sets::MIB;

/// The command of the page that orders something for a disk.
fn command(order: &str, node: &str, id: &str) -> String {
    let values = [("NODE", node), ("ID", id), ("Release", order)];
    section("health.md", "Orders for a disk").command("kubectl patch devicepool", &values)
}

#[test]
fn a_disk_whose_release_is_ordered_names_the_claims_on_it_and_is_blank_when_they_are_gone() {
    check(Needs::Machine, async |space| {
        let (disk, class) = space.own_disk("old", 256 * MIB).await;
        space.running_in(&class, "data", "64Mi").await;
        let status = space.disk_status(&disk).await.expect("it is in the pool");
        let (id, node) = (status["id"].as_str().unwrap(), space.nodes().await.remove(0));
        typed(&command("Release", &node, id)).await;
        space.until_ordered(&node, id, "Waiting", &format!("{}/data", space.namespace)).await;
        space.shell("data", "echo still >/data/file && sync && cat /data/file").await;
        space.create(&space.claim("late", &class, "64Mi")).await;
        space.create(&space.pod("late", "late", crate::pods::As::Folder)).await;
        space.event("late", &["FailedScheduling"]).await;
        space.remove_pod("late").await;
        space.remove_claim("late").await;
        space.remove_pod("data").await;
        space.remove_claim("data").await;
        space.until_ordered(&node, id, "Done", "wiped").await;
        assert_eq!(run("wipefs", &["--noheadings", disk.path()]).await.trim(), "", "it is blank");
        space.nothing_is_ordered(&node, id).await;
        space.delete("LocalVolumeSet", space.here(), "old").await;
        space.until_gone("LocalVolumeSet", space.here(), "old").await;
        run("losetup", &["--detach", disk.path()]).await;
    });
}

/// A set that selects each disk of this check.
async fn set_for_old_and_new(space: &Space) {
    let images = space.machine().work.join("disks").join(format!("{}-*.img", space.namespace));
    let set = space.set("any", images.to_str().unwrap());
    space.create(&set).await;
    space.until_claimed("any", 1).await;
}

/// Nobody gets a volume on it until that is taken back.
async fn is_cordoned_and_opened(space: &Space, node: &str, id: &str) {
    let page = section("health.md", "A disk that takes no new volumes");
    let has_cordon = |is_so: bool| {
        move |pool: &Value| {
            let disks = pool["status"]["disks"].as_array();
            disks.into_iter().flatten().any(|disk| disk["id"] == id && disk["cordon"].is_null() != is_so)
        }
    };
    in_the_controllers_pod(&page.command("localpool disk cordon ID", &[("ID", id)])).await;
    space.until("DevicePool", None, node, "the disk is cordoned", has_cordon(true)).await;
    in_the_controllers_pod(&page.command("localpool disk uncordon ID", &[("ID", id)])).await;
    space.until("DevicePool", None, node, "the disk is open", has_cordon(false)).await;
    typed(&page.command("\"cordon\":true", &[("NODE", node), ("ID", id)])).await;
    space.until("DevicePool", None, node, "the disk is cordoned", has_cordon(true)).await;
    typed(&page.command("{\"ID\":null}", &[("NODE", node), ("ID", id)])).await;
    space.until("DevicePool", None, node, "the disk is open", has_cordon(false)).await;
}

/// Drains it, by the lines that the verb prints, and releases it; nothing else deletes anything.
async fn is_emptied(space: &Space, node: &str, id: &str) {
    let page = section("health.md", "Replace a disk");
    let dry_run = page.command("disk drain --dry-run", &[("ID", id)]);
    let drain = dry_run.replace("--dry-run ", "");
    let told = typed(&dry_run).await;
    assert!(told.contains("would order Drain"), "{told}");
    let used = format!("claim {}/data (used by pod data)", space.namespace);
    assert!(told.contains(&used), "no {used:?}: {told}");
    typed(&drain).await;
    space.until_ordered(node, id, "Waiting", &format!("{}/data", space.namespace)).await;
    assert_eq!(space.shell("data", "cat /data/file").await, "copied\n");
    space.remove_pod("data").await;
    let lines = typed(&drain).await;
    let deletions: Vec<&str> = lines.lines().filter(|line| line.starts_with("  kubectl ")).collect();
    assert_eq!(deletions.len(), 1, "{lines}");
    typed(deletions[0]).await;
    space.until_ordered(node, id, "Done", "no volume is on it").await;
    // A loop device is in no slot.
    let locate = section("health.md", "Find a disk").command("localpool disk locate ID", &[("ID", id)]);
    let told = try_in_the_agents_pod(node, &locate).await.expect_err("it has no light");
    assert!(told.contains("find the disk by"), "{told}");
    typed(&page.command("\"order\":\"Release\"", &[("NODE", node), ("ID", id)])).await;
    space.until_ordered(node, id, "Done", "wiped").await;
}

async fn is_replaced(space: &Space, old: &Disk) -> Disk {
    let status = space.disk_status(old).await.expect("it is in the pool");
    let (id, node) = (status["id"].as_str().unwrap(), space.nodes().await.remove(0));
    is_cordoned_and_opened(space, &node, id).await;
    is_emptied(space, &node, id).await;
    run("losetup", &["--detach", old.path()]).await;
    let new = space.machine().disk(&format!("{}-new", space.namespace), 256 * MIB).await;
    let page = section("health.md", "Replace a disk");
    let drain = page.command("localpool disk drain ID", &[("ID", id)]);
    let claimed = async || {
        let told = in_the_controllers_pod(&drain).await;
        let is_new = |line: &&str| line.contains(new.path()) && line.ends_with(&format!("set {}/any", space.namespace));
        if told.lines().any(|line| is_new(&line)) { Ok(()) } else { Err(told) }
    };
    eventually("the verb says which set has the new disk", SOON, claimed).await;
    space.nothing_is_ordered(&node, id).await;
    new
}

/// By the verb, when what was deleted is erased.
async fn is_released(space: &Space, disk: &Disk) {
    space.delete("LocalVolumeSet", space.here(), "any").await;
    space.until_gone("LocalVolumeSet", space.here(), "any").await;
    let status = space.disk_status(disk).await.expect("it is in the pool");
    let (id, node) = (status["id"].as_str().unwrap(), space.nodes().await.remove(0));
    let page = section("troubleshooting.md", "Where a command runs");
    let dry_run = format!("{}\n{}", agent_of(&node), page.command("disk release --dry-run", &[("ID", id)]));
    let told = eventually("it can be released", SOON, async || attempt("sh", &["-c", &dry_run]).await).await;
    assert!(told.contains("would wipe") && told.contains(disk.path()), "{told}");
    assert!(space.disk_status(disk).await.is_some(), "it was only looked at");
    typed(&dry_run.replace("--dry-run ", "")).await;
    assert_eq!(run("wipefs", &["--noheadings", disk.path()]).await.trim(), "", "it is blank");
    run("losetup", &["--detach", disk.path()]).await;
}

#[test]
fn a_disk_is_cordoned_drained_and_replaced_as_the_page_says_and_the_set_claims_the_new_one() {
    check(Needs::Machine, async |space| {
        let old = space.machine().disk(&format!("{}-old", space.namespace), 256 * MIB).await;
        set_for_old_and_new(space).await;
        let class = format!("{}-any", space.namespace);
        space.running_in(&class, "data", "64Mi").await;
        space.shell("data", "echo copied >/data/file && sync").await;
        let new = is_replaced(space, &old).await;
        space.running_in(&class, "again", "64Mi").await;
        space.remove_pod("again").await;
        space.remove_claim("again").await;
        is_released(space, &new).await;
    });
}
