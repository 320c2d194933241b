//! What NodeDiskSetups ask of disks: the real part of the leader, and agents on fake machines. The leader writes about all
//! objects, those of other tests too, so each of these tests is alone.

use std::path::Path;
use std::time::Duration;

use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use localpool::api::crd::{DevicePool, DiskStatus, LocalVolumeSet, NodeDiskSetup};
use localpool::host::{Geometry, fake::FakeHost};
use localpool::operator::controller::{BenchmarkRecorder, DiskSetupSettings, LeaderStores, Metrics};
use localpool_testing::MIB;
use prometheus::Registry;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::agent::{Stage, unique};
use crate::cluster;
use crate::leader::until;
use crate::sim::SimNode;

const SPACE: &str = "default";

/// The leader's part at work.
struct Work {
    task: JoinHandle<()>,
    _own: LeaderStores,
}

impl Drop for Work {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn lead(stage: &Stage, settings: DiskSetupSettings) -> Work {
    let metrics = Metrics::new(&Registry::new()).expect("fresh names");
    let own = LeaderStores::watch(&stage.client);
    let (client, volumes) = (stage.client.clone(), own.volumes.clone());
    let recorder = BenchmarkRecorder::new(client, SPACE, stage.caches.clone(), volumes, metrics);
    Work { task: tokio::spawn(recorder.run(settings)), _own: own }
}

fn setups(client: &Client) -> Api<NodeDiskSetup> {
    Api::all(client.clone())
}

/// A NodeDiskSetup of this name for the nodes with this label.
async fn setup(client: &Client, name: &str, label: &str, more: Value) {
    let mut spec = json!({
        "placement": {"nodeSelector": {"sim": label}}, "deviceInclusionSpec": {"minSize": 0},
        "pvProvisionerOptions": {"storageClass": label},
    });
    spec.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    let object = json!({
        "apiVersion": "localpool.dev/v1alpha1", "kind": "NodeDiskSetup", "metadata": {"name": name}, "spec": spec,
    });
    let object = serde_json::from_value(object).expect("one");
    setups(client).create(&PostParams::default(), &object).await.expect("a new one");
    // Which of two is older is told by the second.
    tokio::time::sleep(Duration::from_millis(1100)).await;
}

async fn change(client: &Client, name: &str, spec: Value) {
    let change = Patch::Merge(json!({ "spec": spec }));
    setups(client).patch(name, &PatchParams::default(), &change).await.expect("there");
}

/// The set of that NodeDiskSetup, once it is so.
async fn set(client: &Client, name: &str, is: impl Fn(&LocalVolumeSet) -> bool) -> LocalVolumeSet {
    let api: Api<LocalVolumeSet> = Api::namespaced(client.clone(), SPACE);
    let name = format!("node-disk-setup-{name}");
    until(&format!("the set {name}"), async || api.get_opt(&name).await.expect("an answer").filter(|set| is(set))).await
}

/// `status reason: message` of a condition, once it has these words.
async fn told(client: &Client, name: &str, kind: &str, words: &str) -> String {
    until(&format!("{kind} of {name} says {words}"), async || {
        let status = setups(client).get(name).await.expect("there").status?;
        let condition = status.conditions.into_iter().find(|condition| condition.type_ == kind)?;
        let said = format!("{} {}: {}", condition.status, condition.reason, condition.message);
        said.contains(words).then_some(said)
    })
    .await
}

/// A node with that many blank disks.
async fn node(client: &Client, label: &str, disks: u32) -> SimNode {
    let host = FakeHost::default();
    for number in 0..disks {
        let geometry = Geometry { size: 512 * MIB, sector: 512, offloads_zeroes: true };
        host.add_disk(&format!("fake{number}"), &format!("S-{label}-{number}"), geometry);
    }
    SimNode::of(client, &unique("sim"), json!({"sim": label}), host).await
}

async fn disks(client: &Client, node: &SimNode) -> Vec<DiskStatus> {
    let pool = Api::<DevicePool>::all(client.clone()).get_opt(&node.name).await.expect("an answer");
    pool.and_then(|pool| pool.status).map(|status| status.disks).unwrap_or_default()
}

/// The array of a node, once the node has it mounted.
async fn mounted(client: &Client, node: &SimNode) -> DiskStatus {
    until(&format!("{} has its array mounted", node.name), async || {
        disks(client, node).await.into_iter().find(|disk| disk.host_path.is_some())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_local_disks_of_a_node_become_one_array_that_is_mounted_and_offered_and_stays_when_it_is_switched_off() {
    let cluster = cluster!(alone);
    let stage = Stage::new(&cluster.client).await;
    let (client, name) = (&stage.client, unique("setup"));
    let _work = lead(&stage, DiskSetupSettings::Kept);
    setup(client, &name, &name, json!({"minDeviceCount": 2})).await;
    let made = set(client, &name, |_| true).await;
    let owner = &made.owner_references()[0];
    assert_eq!((owner.kind.as_str(), owner.name.as_str()), ("NodeDiskSetup", name.as_str()), "it goes with it");
    let mut sim = node(client, &name, 2).await;
    let array = mounted(client, &sim).await;
    assert_eq!((array.layout.as_str(), array.set.as_str()), ("Directory", &*format!("{SPACE}/node-disk-setup-{name}")));
    let at = format!("/mnt/raid-disks/{}", array.id);
    assert_eq!(array.host_path.as_deref(), Some(at.as_str()));
    assert_eq!(disks(client, &sim).await.iter().filter(|disk| disk.layout == "Member").count(), 2);
    told(client, &name, "DisksReady", "True DisksReady: the disks of 1 of 1 nodes are ready").await;
    told(client, &name, "Accepted", "sets up the disks").await;

    change(client, &name, json!({"localDisksPath": "/srv/disks", "diskSetupDisabled": true})).await;
    set(client, &name, |set| set.spec["dryRun"] == true && set.spec["hostMountPath"] == "/srv/disks").await;
    told(client, &name, "Accepted", "keeps the disks that it has and takes no more").await;
    sim.kill().await;
    sim.run(client);
    assert_eq!(mounted(client, &sim).await.host_path, Some(at), "where it was");
    told(client, &name, "DisksReady", "True DisksReady").await;

    change(client, &name, json!({"pvProvisionerDisabled": true})).await;
    set(client, &name, |set| set.spec.get("storageClassName").is_none()).await;
    let unoffered = async || {
        let pool = Api::<DevicePool>::all(client.clone()).get(&sim.name).await.expect("there");
        let offer = pool.status?.sets.into_iter().find(|offer| offer.name.ends_with(&name))?;
        (offer.class.is_empty() && offer.available == 0 && offer.devices > 0).then_some(())
    };
    until("no class offers it", unoffered).await;
    change(client, &name, json!({"diskSetupDisable": false})).await;
    told(client, &name, "Accepted", "False Invalid: spec.diskSetupDisable: unknown field").await;
    sim.kill().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_for_one_node_the_younger_one_never_takes_its_disks_and_says_whose_they_are() {
    let cluster = cluster!(alone);
    let stage = Stage::new(&cluster.client).await;
    let (client, old, young) = (&stage.client, unique("old"), unique("young"));
    let _work = lead(&stage, DiskSetupSettings::Kept);
    setup(client, &old, &old, json!({"maxDeviceCount": 1})).await;
    setup(client, &young, &old, json!({})).await;
    set(client, &young, |set| set.spec["nodeExclusions"].is_array()).await;
    // The older one leaves a disk, and there is nobody else for it.
    let mut sim = node(client, &old, 2).await;
    let array = mounted(client, &sim).await;
    assert_eq!(array.set, format!("{SPACE}/node-disk-setup-{old}"));
    told(client, &young, "Accepted", &format!("{} of {old}", sim.name)).await;
    told(client, &young, "DisksReady", "False SelectsNoNode").await;
    let of_old = |disk: &DiskStatus| disk.set == array.set;
    assert!(disks(client, &sim).await.iter().all(of_old));
    // One that sets up nothing has its nodes as well.
    change(client, &old, json!({"diskSetupDisabled": true})).await;
    set(client, &old, |set| set.spec["dryRun"] == true).await;
    let exclusions = set(client, &young, |_| true).await.spec["nodeExclusions"].clone();
    assert!(exclusions.to_string().contains(&old), "{exclusions}");
    assert!(disks(client, &sim).await.iter().all(of_old));
    sim.kill().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_older_one_that_never_was_valid_keeps_its_nodes_from_a_younger_one_until_it_is_corrected() {
    let cluster = cluster!(alone);
    let stage = Stage::new(&cluster.client).await;
    let (client, old, young) = (&stage.client, unique("old"), unique("young"));
    let _work = lead(&stage, DiskSetupSettings::Kept);
    setup(client, &old, &old, json!({"localDisksPath": "/"})).await;
    setup(client, &young, &old, json!({})).await;
    let mut sim = node(client, &old, 2).await;
    told(client, &old, "Accepted", "False Invalid: spec.localDisksPath").await;
    // Other tests may have left older ones that are not valid either.
    let said = told(client, &young, "Accepted", &old).await;
    assert!(said.contains("; it takes no disk of the nodes of older ones that are not valid: "), "{said}");
    let why = format!("{}: no disk is taken: the set does not select this node", sim.name);
    told(client, &young, "DisksReady", &why).await;
    change(client, &old, json!({"localDisksPath": "/mnt/raid-disks"})).await;
    let array = mounted(client, &sim).await;
    assert_eq!(array.set, format!("{SPACE}/node-disk-setup-{old}"));
    sim.kill().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_path_that_cannot_be_mounted_on_is_told_with_the_node_and_the_disk() {
    let cluster = cluster!(alone);
    let stage = Stage::new(&cluster.client).await;
    let (client, name) = (&stage.client, unique("setup"));
    let _work = lead(&stage, DiskSetupSettings::Kept);
    setup(client, &name, &name, json!({})).await;
    let mut sim = node(client, &name, 0).await;
    told(client, &name, "DisksReady", &format!("{}: no disk is taken: it has no local disk", sim.name)).await;
    // Below a link nothing is mounted, so nothing is taken for it.
    sim.host.mounts.set_unshown(Path::new("/mnt"), Some("/mnt/raid-disks is a symbolic link"));
    let geometry = Geometry { size: 512 * MIB, sector: 512, offloads_zeroes: true };
    sim.host.add_disk("fake0", "S-late", geometry);
    sim.pool().nudge();
    let said = told(client, &name, "DisksReady", "is a symbolic link").await;
    let taken = format!("{}: no disk is taken: /dev/fake0: ", sim.name);
    assert!(
        said.starts_with("False DisksNotReady: the disks of 0 of 1 nodes are ready: ") && said.contains(&taken),
        "{said}"
    );
    sim.host.mounts.set_unshown(Path::new("/mnt"), None);
    told(client, &name, "DisksReady", "True DisksReady").await;
    sim.kill().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_set_of_that_name_that_somebody_else_made_is_not_written() {
    let cluster = cluster!(alone);
    let stage = Stage::new(&cluster.client).await;
    let (client, name) = (&stage.client, unique("setup"));
    let spec = json!({"storageClassName": "mine", "nodeSelector": {"nodeSelectorTerms": [{}]}});
    let object = json!({
        "apiVersion": "local.storage.openshift.io/v1alpha1", "kind": "LocalVolumeSet",
        "metadata": {"name": format!("node-disk-setup-{name}"), "namespace": SPACE}, "spec": spec,
    });
    let api: Api<LocalVolumeSet> = Api::namespaced(client.clone(), SPACE);
    let object = serde_json::from_value(object).expect("a set");
    let made = api.create(&PostParams::default(), &object).await.expect("a new one");
    stage.known(|caches| caches.sets.get(&format!("{SPACE}/{}", made.name_any())).is_some()).await;
    let _work = lead(&stage, DiskSetupSettings::Kept);
    setup(client, &name, &name, json!({})).await;
    told(client, &name, "DisksReady", "False SetRefused: no disk is set up: LocalVolumeSet default/node-disk-setup")
        .await;
    assert_eq!(set(client, &name, |_| true).await.spec, spec);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_one_of_the_chart_is_made_if_it_is_not_there_and_never_changed() {
    let cluster = cluster!(alone);
    let stage = Stage::new(&cluster.client).await;
    let (client, name) = (&stage.client, "local-raid-disks");
    {
        let _work = lead(&stage, DiskSetupSettings::KeptWithDefault);
        let made = async || setups(client).get_opt(name).await.expect("an answer");
        assert_eq!(until("it is made", made).await.spec, json!({}));
        set(client, name, |set| set.spec["storageClassName"] == "local-raid-disks").await;
        change(client, name, json!({"diskSetupDisabled": true})).await;
        set(client, name, |set| set.spec["dryRun"] == true).await;
    }
    let again = lead(&stage, DiskSetupSettings::KeptWithDefault);
    told(client, name, "Accepted", "True").await;
    assert_eq!(setups(client).get(name).await.expect("there").spec, json!({"diskSetupDisabled": true}));
    drop(again);
    // It selects the nodes of all other tests.
    setups(client).delete(name, &DeleteParams::default()).await.expect("there");
    let sets: Api<LocalVolumeSet> = Api::namespaced(client.clone(), SPACE);
    sets.delete(&format!("node-disk-setup-{name}"), &DeleteParams::default()).await.expect("there");
}
