//! Filesystems that an administrator mounted and named in a DevicePool, with a real agent on a fake machine.

use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{Patch, PatchParams};
use localpool::agent::Run;
use localpool::api::crd::{DevicePool, FolderQuota, NamedDiskStatus};
use localpool::host::{FsKind, Geometry, Host as _, Mounts as _};
use localpool::operator::drain::{AddedDisk, add};
use localpool_testing::MIB;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::agent::Stage;
use crate::cluster;
use crate::leader::{at_rest, until};
use crate::nodes::offering;
use crate::sim::SimNode;

const CONFIG: &str = "localpool-disk.cfg";

async fn patch(stage: &Stage, node: &str, disks: Value) {
    let pools: Api<DevicePool> = Api::all(stage.client.clone());
    let spec = json!({"spec": {"disks": disks}});
    pools.patch(node, &PatchParams::default(), &Patch::Merge(spec)).await.expect("there");
}

/// Waits until a named filesystem is ready or not for that reason.
async fn is_so(stage: &Stage, node: &SimNode, name: &str, reason: &str) -> NamedDiskStatus {
    let pools: Api<DevicePool> = Api::all(stage.client.clone());
    until(&format!("{name} of {} is {reason}", node.name), async || {
        // As the event of a mount would.
        node.running.as_ref().expect("it runs").checkups.due();
        let mut all = pools.get(&node.name).await.expect("there").status?.disk_status;
        let is_it = |status: &NamedDiskStatus| {
            status.conditions.iter().any(|said| said.type_ == "Ready" && said.reason == reason)
        };
        all.remove(name).filter(is_it)
    })
    .await
}

fn mount(node: &SimNode, disk: &str, path: &str) {
    let quota = ["prjquota".to_owned()];
    let device = Path::new("/dev").join(disk);
    node.host.mounts.mount(&device, Path::new(path), FsKind::Xfs, &quota).expect("mounted");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_named_filesystem_has_its_disk_uuid_and_conditions_in_the_status_and_keeps_them_over_a_restart_and_a_reboot()
{
    // A set that another test makes is a reason to write.
    let cluster = cluster!(alone);
    let (stage, _, mut node) = offering(&cluster.client, 512).await;
    for disk in ["mine", "blank"] {
        // In use, so that no set claims it.
        node.host.add_disk(disk, disk, Geometry { size: 64 * MIB, sector: 512, offloads_zeroes: true });
        let device = Path::new("/dev").join(disk);
        node.host.filesystems().make(FsKind::Xfs, &device, Uuid::new_v4()).expect("made");
    }
    mount(&node, "mine", "/mnt/mine");
    patch(&stage, &node.name, json!({"mine": {"path": "/mnt/mine", "tags": ["fast"]}, "root": {"path": "/"}})).await;
    let ready = is_so(&stage, &node, "mine", "Mounted").await;
    let uuid = ready.disk_uuid.expect("it has one");
    assert_eq!((ready.filesystem.as_deref(), ready.path.as_str()), (Some("xfs"), "/mnt/mine"));
    assert_eq!(ready.conditions[1].reason, "NotChosen");
    is_so(&stage, &node, "root", "EntryInvalid").await;
    let root = node.host.mounts.open_root(Path::new("/mnt/mine"), Path::new("/dev/mine")).expect("its root");
    assert!(root.read(Path::new(CONFIG)).expect("read").is_some_and(|text| text.contains(&uuid.to_string())));

    // Nothing is written while nothing changes.
    let written = || node.running.as_ref().expect("it runs").writes.pool.load(Ordering::Relaxed);
    let checkups = async || {
        for _ in 0..5 {
            node.running.as_ref().expect("it runs").checkups.due();
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    };
    at_rest("nothing changes, and it writes", async || written(), checkups).await;

    // A reboot: another disk is at the path, and this agent has only the status.
    node.kill().await;
    node.host.mounts.unmount(Path::new("/mnt/mine")).expect("unmounted");
    mount(&node, "blank", "/mnt/mine");
    node.run(&stage.client);
    let missing = is_so(&stage, &node, "mine", "ConfigMissing").await;
    assert_eq!(missing.disk_uuid, Some(uuid));
    let blank = node.host.mounts.open_root(Path::new("/mnt/mine"), Path::new("/dev/blank")).expect("its root");
    assert_eq!(blank.names(Path::new("")).expect("listed"), [""; 0]);
    node.host.mounts.unmount(Path::new("/mnt/mine")).expect("unmounted");
    mount(&node, "mine", "/mnt/mine");
    let again = is_so(&stage, &node, "mine", "Mounted").await;
    assert_eq!(again.disk_uuid, Some(uuid));

    patch(&stage, &node.name, json!({"mine": null, "root": null})).await;
    let pools: Api<DevicePool> = Api::all(stage.client.clone());
    until("the status names none any more", async || {
        pools.get(&node.name).await.expect("there").status?.disk_status.is_empty().then_some(())
    })
    .await;
    node.kill().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_is_added_by_a_verb_under_a_random_name_once_and_a_node_asks_for_default_disks_by_an_annotation() {
    let cluster = cluster!(shared);
    let (stage, _, mut node) = offering(&cluster.client, 512).await;
    for disk in ["one", "two"] {
        node.host.add_disk(disk, disk, Geometry { size: 64 * MIB, sector: 512, offloads_zeroes: true });
        let device = Path::new("/dev").join(disk);
        node.host.filesystems().make(FsKind::Xfs, &device, Uuid::new_v4()).expect("made");
        mount(&node, disk, &format!("/mnt/{disk}"));
    }
    node.host.mounts.set_fsid(Path::new("/dev/two"), 0xfd00);
    let disk = AddedDisk {
        node: node.name.as_str().into(),
        path: "/mnt/one".to_owned(),
        name: None,
        quota: FolderQuota::Project,
    };
    let names = async || {
        let pools: Api<DevicePool> = Api::all(stage.client.clone());
        let spec = pools.get(&node.name).await.expect("there").spec;
        spec.disks.keys().map(ToString::to_string).collect::<Vec<_>>()
    };
    let lines = add(stage.client.clone(), disk.clone(), Run::Dry).await.expect("it would be named");
    assert!(lines[0].starts_with("would name /mnt/one of node"), "{lines:?}");
    assert_eq!(names().await, [""; 0]);
    add(stage.client.clone(), disk.clone(), Run::Real).await.expect("named");
    let [name] = &names().await[..] else { panic!("one name") };
    assert!(name.starts_with("disk-"), "{name}");
    is_so(&stage, &node, name, "Mounted").await;
    let again = add(stage.client.clone(), disk, Run::Real).await.expect_err("it has one").to_string();
    assert!(again.contains("has a name already"), "{again}");

    let nodes: Api<Node> = Api::all(stage.client.clone());
    let asked = json!({"metadata": {"annotations": {"localpool.dev/default-disks": "[{\"path\": \"/mnt/two\"}]"}}});
    nodes.patch(&node.name, &PatchParams::default(), &Patch::Merge(asked)).await.expect("there");
    let default = is_so(&stage, &node, "default-disk-fd00", "Mounted").await;
    assert_eq!(default.path, "/mnt/two");
    node.kill().await;
}
