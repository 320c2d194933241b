//! etcd is put back from a backup that is older than the disks, as docs/troubleshooting.md says: its revision goes
//! back, and whatever goes on from a later one hears nothing.

use serde_json::{Value, json};

use crate::check::{Needs, Space, check};
use crate::cluster::{HOME, kubectl, name, run};
use crate::machine::Machine;
use crate::page::{section, typed};
use crate::pods::As;
use crate::sets::MIB;

/// How much later the revision is than that of the backup: more than all writes of the next minutes.
const LATER: usize = 2000;
const OBJECTS: usize = 20;
/// Pods whose volumes are deleted after the backup.
const DELETED: [&str; 2] = ["deleted", "deleted-too"];

async fn stopped(machine: &Machine, names: &[&str]) {
    for name in names {
        machine.cluster(&["stop", name]).await;
    }
}

async fn started(machine: &Machine, names: &[&str]) {
    for name in names {
        machine.cluster(&["start", name]).await;
    }
}

async fn copied(machine: &Machine, from: &str, to: &str) {
    let [from, to] = [from, to].map(|name| machine.folder.join(name).to_str().unwrap().to_owned());
    run("rm", &["-rf", &to]).await;
    run("cp", &["-a", &from, &to]).await;
}

async fn backed_up(machine: &Machine) {
    stopped(machine, &["etcd"]).await;
    copied(machine, "etcd", "etcd-backup").await;
    started(machine, &["etcd"]).await;
}

/// As the page and Kubernetes' own documentation say: no API server runs meanwhile, and all other components
/// begin again after it.
async fn put_back(machine: &Machine) {
    stopped(machine, &["apiserver", "etcd"]).await;
    copied(machine, "etcd-backup", "etcd").await;
    started(machine, &["etcd", "apiserver"]).await;
    for name in ["controller-manager", "scheduler", "kubelet"] {
        machine.cluster(&["restart", name]).await;
    }
}

async fn restarted() {
    let page = section("troubleshooting.md", "etcd was put back from a backup");
    typed(&page.command("rollout restart", &[])).await;
    for what in ["deployment/localpool-controller", "daemonset/localpool-node"] {
        kubectl(&["-n", HOME, "rollout", "status", what, "--timeout=5m"]).await;
    }
}

/// Controller and agent hear of what is on the disks, and of a choice of a person, before anybody restarts them.
async fn hears_by_itself(space: &Space, node: &str, deleted: &[&str], made: &str) {
    for deleted in deleted {
        space.until_health(deleted, "VolumeMissing").await;
    }
    space.until("PoolVolume", None, made, "is found", |volume| volume["status"]["phase"] == "Found").await;
    let set = format!("{}/old", space.namespace);
    let is_of_now = |pool: &Value| {
        let disks = pool["status"]["disks"].as_array();
        disks.into_iter().flatten().any(|one| one["set"] == *set && one["volumes"] == 2)
    };
    space.until("DevicePool", None, node, "has the volumes of now, not of the backup", is_of_now).await;
    let cordon = |wanted: bool| json!({"spec": {"cordon": wanted}});
    let says = |reason: &'static str| {
        move |pool: &Value| {
            let conditions = pool["status"]["conditions"].as_array();
            conditions.into_iter().flatten().any(|one| one["type"] == "Ready" && one["reason"] == reason)
        }
    };
    space.patch("DevicePool", None, node, &cordon(true)).await;
    space.until("DevicePool", None, node, "is cordoned", says("Cordoned")).await;
    space.patch("DevicePool", None, node, &cordon(false)).await;
}

/// To many objects at once: writes to one of them are refused while another one is under way.
async fn many_writes(space: &Space) {
    let writes = (0..OBJECTS).map(async |number| {
        let name = format!("writes-{number}");
        let account = json!({"apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": {"name": name, "namespace": space.namespace}});
        space.create(&account).await;
        for write in 0..LATER / OBJECTS {
            let label = json!({"metadata": {"labels": {"write": write.to_string()}}});
            space.patch("ServiceAccount", space.here(), &name, &label).await;
        }
    });
    futures::future::join_all(writes).await;
}

/// The page, for volumes that were deleted after the backup and one that was made after it.
async fn played(space: &Space, node: &str, deleted: &[&str], made: &str) {
    for (pod, deleted) in DELETED.into_iter().zip(deleted) {
        space.remove_pod(pod).await;
        space.remove_claim(pod).await;
        space.until_gone("PoolVolume", None, deleted).await;
    }
    space.used_again("made", made, node).await;
    assert_eq!(space.shell_soon("made", "cat /data/line").await.trim(), "made");
    space.erased("made", made).await;
}

/// Claims are served again.
async fn makes_volumes(space: &Space) {
    let (disk, class) = space.own_disk("new", 256 * MIB).await;
    space.running("new", &class, "64Mi", As::Folder).await;
    space.remove_pod("new").await;
    space.remove_claim("new").await;
    space.remove_disk("new", &disk).await;
}

#[test]
fn etcd_is_put_back_from_a_backup_older_than_the_disks_as_the_page_says() {
    check(Needs::Machine, async |space| {
        let (machine, node) = (space.machine(), space.nodes().await.remove(0));
        let (disk, class) = space.own_disk("old", 512 * MIB).await;
        let mut volumes = Vec::new();
        for pod in ["kept"].into_iter().chain(DELETED) {
            space.running(pod, &class, "64Mi", As::Folder).await;
            volumes.push(space.volume_of(&space.namespace, pod).await);
        }
        space.shell("kept", "echo kept >/data/line && sync").await;
        let (kept, deleted) = volumes.split_first().expect("they were made");
        let deleted: Vec<&str> = deleted.iter().map(name).collect();
        backed_up(machine).await;
        for (pod, deleted) in DELETED.into_iter().zip(&deleted) {
            space.remove_pod(pod).await;
            space.remove_claim(pod).await;
            space.until_gone("PoolVolume", None, deleted).await;
        }
        space.running("made", &class, "64Mi", As::Folder).await;
        space.shell("made", "echo made >/data/line && sync").await;
        let made = space.volume_of(&space.namespace, "made").await;
        many_writes(space).await;

        put_back(machine).await;
        hears_by_itself(space, &node, &deleted, name(&made)).await;
        restarted().await;
        played(space, &node, &deleted, name(&made)).await;
        makes_volumes(space).await;
        let now = space.get("PoolVolume", None, name(kept)).await.expect("it was there");
        assert_eq!(now["status"]["phase"], "Ready");
        assert_eq!(space.shell_soon("kept", "cat /data/line").await.trim(), "kept");
        let pod = space.get("Pod", space.here(), "kept").await.expect("it was there");
        assert_eq!(pod["status"]["containerStatuses"][0]["restartCount"], 0);
        space.remove_pod("kept").await;
        space.remove_claim("kept").await;
        space.remove_disk("old", &disk).await;
    });
}
