//! Volumes that are folders (`layout: Directory`), with real agents on fake machines, from the claim to the free space.

use std::sync::Arc;

use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use localpool::api::crd::{LocalVolumeSet, Phase, PoolVolume};
use localpool::host::fake::{Fate, Fault};
use localpool::host::{Extent, FsKind, Host};
use localpool::operator::controller::Stores;
use localpool::volume::{
    AccessType, Capacity, Error, NodeVolumes, PublishRequest, Selector, StageRequest, TargetAccess, VolumeId,
    Volumes as _, WantedUsage,
};
use localpool_testing::MIB;
use serde_json::{Value, json};

use crate::agent::{Stage, on, unique, wanted};
use crate::cluster;
use crate::leader::until;
use crate::nodes::{make, offers};
use crate::sim::SimNode;

/// A set with these fields for the nodes with the label of its name.
pub fn set(label: &str, fields: &Value) -> Value {
    let selected = json!({"matchExpressions": [{"key": "sim", "operator": "In", "values": [label]}]});
    let mut spec = json!({
        "storageClassName": label, "nodeSelector": {"nodeSelectorTerms": [selected]},
        "deviceInclusionSpec": {"minSize": 0}, "layout": "Directory",
    });
    let fields = fields.as_object().expect("fields").clone();
    spec.as_object_mut().expect("an object").extend(fields);
    json!({
        "apiVersion": "local.storage.openshift.io/v1alpha1", "kind": "LocalVolumeSet",
        "metadata": {"name": label, "namespace": "default"}, "spec": spec,
    })
}

pub async fn apply(client: &Client, set: Value) -> kube::Result<LocalVolumeSet> {
    let sets: Api<LocalVolumeSet> = Api::namespaced(client.clone(), "default");
    sets.create(&PostParams::default(), &serde_json::from_value(set).expect("a set")).await
}

/// A node with one disk of that many MiB, on which a set with these fields has its folders; and that set's label.
pub async fn offering(client: &Client, mib: u64, fields: Value) -> (Stage, String, SimNode) {
    let stage = Stage::new(client).await;
    let label = unique("folders");
    apply(client, set(&label, &fields)).await.expect("a new set");
    stage.known(|caches| caches.sets.get(&format!("default/{label}")).is_some()).await;
    let node = SimNode::start(&stage, &unique("sim"), &label, mib).await;
    offers(&stage, &node.name, 1).await;
    (stage, label, node)
}

fn class(label: &str) -> Selector {
    Selector { class: Some(label.to_owned()), set: None }
}

/// What the controller says that there is to give on a node, before the scheduler knows the mode.
pub async fn room(stage: &Stage, label: &str, node: &SimNode) -> Capacity {
    stage.volumes.capacity(class(label), None, Some(node.name.as_str().into())).await.expect("an answer")
}

/// Waits until just that is to give on a node: the agent settles before it reports.
pub async fn has_room(stage: &Stage, label: &str, node: &SimNode, available: u64) -> Capacity {
    until(&format!("{available} bytes on {}", node.name), async || {
        let room = room(stage, label, node).await;
        (room.available == available).then_some(room)
    })
    .await
}

fn mount() -> AccessType {
    AccessType::Mount { fs: None, flags: Vec::new() }
}

async fn publish(kubelet: &NodeVolumes, id: VolumeId) {
    let staging = format!("/staging/{id}");
    let stage = StageRequest { id, staging: staging.clone(), access_type: mount() };
    kubelet.stage(stage).await.expect("staged");
    let target = format!("/pods/{id}");
    let (access_type, access) = (mount(), TargetAccess::ReadWrite);
    let publish = PublishRequest { id, staging, target, access_type, access, single_target: false };
    kubelet.publish(publish).await.expect("published");
}

async fn unpublish(kubelet: &NodeVolumes, id: VolumeId) {
    kubelet.unpublish(id, &format!("/pods/{id}")).await.expect("unpublished");
    kubelet.unstage(id, &format!("/staging/{id}")).await.expect("unstaged");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_gets_a_folder_of_its_size_and_gives_the_space_back_when_the_folder_is_gone() {
    let cluster = cluster!(shared);
    let (stage, label, mut node) = offering(&cluster.client, 512, json!({})).await;
    let before = room(&stage, &label, &node).await;
    assert_eq!((before.largest, before.smallest), (before.available / MIB * MIB, MIB));
    let name = unique("pvc");
    let made = make(&stage, &label, &name, on(&node.name), 100).await.expect("there is room");
    let id = made.id;
    assert_eq!((made.size, made.usage), (100 * MIB, Some(localpool::device::label::VolumeUsage::Mount(FsKind::Xfs))));
    assert_eq!(make(&stage, &label, &name, on(&node.name), 100).await.expect("found"), made);
    let view = node.pool().usable(id).expect("it is there");
    assert!(view.directory.is_some_and(|folder| folder.path.ends_with(format!("volumes/{id}"))));
    has_room(&stage, &label, &node, before.available - 100 * MIB).await;

    let host: Arc<dyn Host> = Arc::clone(&node.host) as Arc<dyn Host>;
    let kubelet = NodeVolumes::new(host, Arc::clone(node.pool()), node.locks.clone());
    publish(&kubelet, id).await;
    let stats = kubelet.stats(id, &format!("/pods/{id}")).await.expect("measured");
    assert_eq!(stats.usage.as_ref().map(|usage| usage.total), Some(100 * MIB), "{stats:?}");
    let refused = stage.volumes.delete(id).await.expect_err("a pod has it");
    assert!(matches!(&refused, Error::Precondition(why) if why.contains("it is mounted at /")), "{refused:?}");
    unpublish(&kubelet, id).await;

    // What is removed in the background is looked at first.
    let platter = node.host.platter("fake0").expect("a disk");
    platter.set_hangs_at(Some("tree"));
    // The provisioner asks again until the agent has noticed that nobody uses it any more.
    until("the folder is in the trash", async || stage.volumes.delete(id).await.ok()).await;
    assert!(stage.is_gone(id).await);
    let erasing = |caches: &Stores| {
        let pool = caches.pools.get(&node.name)?;
        let disk = pool.status.as_ref()?.disks.first()?;
        Some((disk.erasing, disk.volumes))
    };
    stage.known(|caches| erasing(caches) == Some((100 << 20, 0))).await;
    let during = room(&stage, &label, &node).await;
    assert_eq!(during.available, before.available - 100 * MIB, "its files are there still");
    platter.set_hangs_at(None);
    has_room(&stage, &label, &node, before.available).await;
    node.kill().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_for_a_device_or_another_filesystem_is_refused_with_the_reason_and_no_node_is_asked() {
    let cluster = cluster!(shared);
    let (stage, label, mut node) = offering(&cluster.client, 512, json!({"quota": "none"})).await;
    for (usage, why) in [
        (WantedUsage::Block, "volumes are folders, which are no devices"),
        (WantedUsage::Mount(Some(FsKind::Ext4)), "folders of xfs, and ext4 is asked for"),
    ] {
        let mut wish = wanted(&unique("pvc"), on(&node.name));
        (wish.required, wish.usage, wish.selector) = (MIB, usage, class(&label));
        wish.parameters = [("class".to_owned(), label.clone())].into();
        let id = VolumeId::of_name(&wish.name);
        let refused = stage.volumes.create(wish).await.expect_err("no folder");
        assert!(matches!(&refused, Error::Invalid(message) if message.contains(why)), "{refused:?}");
        assert!(stage.is_gone(id).await);
    }
    assert!(node.pool().volumes().is_empty());
    node.kill().await;
}

/// At each of its first steps on the disk the power fails, and the agent that comes after answers the call.
#[tokio::test(flavor = "multi_thread")]
async fn a_folder_that_was_half_made_when_its_agent_ended_is_made_once_by_the_next_one() {
    let cluster = cluster!(shared);
    let (stage, label, mut node) = offering(&cluster.client, 512, json!({})).await;
    let before = room(&stage, &label, &node).await.available;
    for effects in 1..=8 {
        let name = unique("pvc");
        let id = VolumeId::of_name(&name);
        node.host.power.cut_after(effects);
        // The provisioner comes back after a refusal, too: without power its disk is none that is offered.
        let at = on(&node.name);
        let making = until("it is made", async || make(&stage, &label, &name, at.clone(), 10).await.ok());
        let restart = async {
            let is_over = async || (node.host.power.is_off() || node.pool().usable(id).is_ok()).then_some(());
            until("the power is off, or it is made", is_over).await;
            node.kill().await;
            node.host.reboot(Fate::Lost);
            node.run(&cluster.client);
        };
        let (made, ()) = tokio::join!(making, restart);
        assert_eq!(made.size, 10 * MIB, "cut after {effects}");
        until("it is there", async || node.pool().usable(id).ok()).await;
        let views = node.pool().volumes();
        assert_eq!(views.iter().filter(|view| view.id == id).count(), 1, "cut after {effects}: {views:?}");
    }
    has_room(&stage, &label, &node, before - 80 * MIB).await;
    node.kill().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_folder_has_no_object_of_its_many_neighbours_written_again() {
    let cluster = cluster!(shared);
    let (stage, label, mut node) = offering(&cluster.client, 512, json!({})).await;
    let before = room(&stage, &label, &node).await.available;
    let first = make(&stage, &label, &unique("pvc"), on(&node.name), 1).await.expect("there is room");
    let version = async || {
        let object = stage.see(first.id, "Ready", |object| phase(object) == Phase::Ready).await;
        (object.metadata.resource_version, object.status.and_then(|status| status.growable_to))
    };
    let written = version().await;
    assert_eq!(written.1, None);
    for _ in 0..20 {
        make(&stage, &label, &unique("pvc"), on(&node.name), 1).await.expect("there is room");
    }
    node.pool().nudge();
    has_room(&stage, &label, &node, before - 21 * MIB).await;
    assert_eq!(version().await, written);
    node.kill().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_grows_and_shrinks_by_a_limit_while_it_is_used_and_what_stands_in_the_way_is_told() {
    let cluster = cluster!(shared);
    let (stage, label, mut node) = offering(&cluster.client, 512, json!({})).await;
    let before = room(&stage, &label, &node).await.available;
    let id = make(&stage, &label, &unique("pvc"), on(&node.name), 100).await.expect("there is room").id;
    let grown = stage.volumes.expand(id, 150 * MIB - 1, None).await.expect("there is room");
    assert_eq!(grown.size, 150 * MIB);
    has_room(&stage, &label, &node, before - 150 * MIB).await;
    let too_much = stage.volumes.expand(id, before + MIB, None).await.expect_err("there is not so much");
    assert!(matches!(&too_much, Error::OutOfRange(why) if why.contains("can grow to")), "{too_much:?}");

    let at = node.host.own_mounts().join(node.pool().disk_views()[0].id.as_str());
    let root = node.host.mounts().open_root(&at, std::path::Path::new("/dev/fake0p2")).expect("mounted");
    let file = std::path::PathBuf::from(format!("volumes/{id}/file"));
    root.write(&file, &"x".repeat(5 << 20)).expect("it has room");
    let refused = stage.volumes.expand(id, MIB, Some(4 * MIB)).await.expect_err("its files use more");
    assert!(matches!(&refused, Error::OutOfRange(why) if why.contains("cannot shrink to")), "{refused:?}");
    let spec = |object: &PoolVolume| (object.spec.size, object.spec.size_limit);
    let back = stage.see(id, "withdrawn", |object| object.spec.size_limit.is_none()).await;
    assert_eq!(spec(&back), (Some(150 << 20), None));
    let shrunk = stage.volumes.expand(id, 10 * MIB, Some(40 * MIB + 1)).await.expect("its files have room");
    assert_eq!(shrunk.size, 40 * MIB);
    has_room(&stage, &label, &node, before - 40 * MIB).await;
    let after = stage.see(id, "nobody asks for it any more", |object| object.spec.size_limit.is_none()).await;
    assert_eq!(spec(&after), (Some(40 << 20), None));
    // An agent that begins finds nothing to do.
    node.kill().await;
    node.run(&cluster.client);
    until("it is there", async || node.pool().usable(id).ok().filter(|view| view.size == 40 * MIB)).await;
    assert_eq!(stage.volumes.expand(id, MIB, Some(40 * MIB)).await.expect("it has that").size, 40 * MIB);
    drop(root);
    node.kill().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn on_a_filesystem_that_files_have_filled_nothing_grows_or_is_made_and_the_reason_is_told() {
    let cluster = cluster!(shared);
    let (stage, label, mut node) = offering(&cluster.client, 512, json!({"overprovision": 200})).await;
    let id = make(&stage, &label, &unique("pvc"), on(&node.name), 10).await.expect("there is room").id;
    let platter = node.host.platter("fake0").expect("a disk");
    platter.inject(Fault { what: "tree full", range: Extent { start: 0, end: 512 << 20 }, times: u32::MAX });
    let refused = stage.volumes.expand(id, 100 * MIB, None).await.expect_err("there is no space");
    assert!(matches!(&refused, Error::OutOfRange(why) if why.contains("is full")), "{refused:?}");
    let refused = make(&stage, &label, &unique("pvc"), on(&node.name), 10).await.expect_err("there is no space");
    assert!(matches!(&refused, Error::Exhausted(why) if why.contains("is full")), "{refused:?}");
    platter.clear_faults();
    assert_eq!(stage.volumes.expand(id, 100 * MIB, None).await.expect("it has space").size, 100 * MIB);
    node.kill().await;
}

/// What an earlier state of the object, or a call that ended long ago, asks for.
#[tokio::test(flavor = "multi_thread")]
async fn a_folder_does_not_become_smaller_for_an_object_that_is_older_than_its_size() {
    let cluster = cluster!(shared);
    let (stage, label, mut node) = offering(&cluster.client, 512, json!({})).await;
    let id = make(&stage, &label, &unique("pvc"), on(&node.name), 50).await.expect("there is room").id;
    node.kill().await;
    let objects: Api<PoolVolume> = Api::all(cluster.client.clone());
    let spec = json!({"spec": {"size": 10 << 20, "sizeLimit": 20 << 20}});
    let patched = objects.patch(&id.to_string(), &PatchParams::default(), &Patch::Merge(spec)).await.expect("patched");
    stage.say(&patched, json!({"size": 30 << 20})).await.expect("an earlier state");
    node.run(&cluster.client);
    let error = |object: &PoolVolume| object.status.as_ref().and_then(|status| status.resize_error.clone());
    let told = stage.see(id, "refused", |object| error(object).is_some()).await;
    let why = error(&told).expect("seen");
    assert!(why.contains("has to be asked again"), "{why}");
    assert_eq!(node.pool().usable(id).expect("it is there").size, 50 * MIB);
    assert_eq!(told.status.and_then(|status| status.size), Some(50 << 20));
    node.kill().await;
}

fn phase(object: &PoolVolume) -> Phase {
    object.status.as_ref().map_or(Phase::Pending, |status| status.phase)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_disks_of_a_set_are_promised_as_often_as_it_says_and_what_it_reserves_is_nobodys() {
    let cluster = cluster!(shared);
    let (stage, label, mut node) = offering(&cluster.client, 512, json!({"overprovision": 250})).await;
    let room_of = room(&stage, &label, &node).await;
    let (available, largest) = (room_of.available, room_of.largest);
    assert!(largest < 512 * MIB && available / MIB >= largest / MIB * 5 / 2 - 2, "{room_of:?}");
    let mib = largest / MIB;
    let too_large = make(&stage, &label, &unique("pvc"), on(&node.name), mib + 1).await.expect_err("more than all");
    assert!(matches!(too_large, Error::Exhausted(_)), "{too_large:?}");
    for promised in 1..=2 {
        make(&stage, &label, &unique("pvc"), on(&node.name), mib).await.expect("promised");
        has_room(&stage, &label, &node, available - promised * mib * MIB).await;
    }
    let rest = (available - 2 * mib * MIB) / MIB;
    let last = make(&stage, &label, &unique("pvc"), on(&node.name), rest + 1).await.expect_err("the bound");
    assert!(matches!(last, Error::Exhausted(_)), "{last:?}");
    let half = make(&stage, &label, &unique("pvc"), on(&node.name), rest).await.expect("the rest");
    let grown = stage.volumes.expand(half.id, half.size + MIB, None).await.expect_err("the bound");
    assert!(matches!(grown, Error::OutOfRange(_)), "{grown:?}");
    node.kill().await;

    let (stage, label, mut node) = offering(&cluster.client, 512, json!({"reserved": "200Mi"})).await;
    let kept = room(&stage, &label, &node).await;
    assert_eq!(kept.largest / MIB, mib - 200, "{kept:?}");
    node.kill().await;
}

/// The API server says so, before any agent reads it.
#[tokio::test]
async fn a_set_that_asks_of_folders_what_they_cannot_be_is_refused_by_the_api_server() {
    let cluster = cluster!(shared);
    let label = unique("folders");
    for (fields, why) in [
        (json!({"volumeMode": "Block"}), "the layout Directory has no raw block volumes"),
        (json!({"fsType": "ext4"}), "spec.fsType must be xfs with the layout Directory"),
        (json!({"erasePolicy": "zero"}), "spec.erasePolicy cannot be zero"),
        (json!({"partitioningSpec": {"mode": "Dynamic"}}), "cannot be combined with a partitioningSpec"),
        (json!({"layout": "Whole", "quota": "none"}), "spec.quota is for the layout Directory alone"),
        (json!({"layout": "Whole", "overprovision": 200}), "spec.overprovision is for the layout Directory alone"),
        (json!({"layout": "Whole", "reserved": "1Gi"}), "spec.reserved is for the layout Directory alone"),
        (json!({"overprovision": 99}), "should be greater than or equal to 100"),
        (json!({"quota": "user"}), "supported values: \"project\", \"none\""),
    ] {
        let refused = apply(&cluster.client, set(&label, &fields)).await.expect_err("refused").to_string();
        assert!(refused.contains(why), "{fields}: {refused}");
    }
    let all =
        json!({"quota": "none", "overprovision": 200, "reserved": "1Gi", "fsType": "xfs", "volumeMode": "Filesystem"});
    apply(&cluster.client, set(&label, &all)).await.expect("a valid one");
}
