//! The speed of disks, for pods that wait for it: the real part of the leader, and an agent on a fake machine. The leader
//! writes about all objects, those of other tests too, so each of these tests is alone.

use std::path::Path;
use std::time::Duration;

use futures::TryStreamExt as _;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolume, PersistentVolumeClaim};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::{Api, Client, ResourceExt as _};
use localpool::api::crd::{BenchmarkState, DevicePool, DiskBenchmark, NodeDiskSetup};
use localpool::host::{DiskFigures, FsKind, Geometry, MachineModel, Mounts as _, fake::FakeHost, fake::FakeSpeed};
use localpool::operator::controller::{BenchmarkRecorder, DiskSetupSettings, LeaderStores, Metrics, PodCommands};
use localpool::volume::{DRIVER_NAME, VolumeId};
use localpool_testing::MIB;
use prometheus::Registry;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::agent::{Stage, on, unique};
use crate::cluster;
use crate::leader::{namespace, until};
use crate::marks::persistent;
use crate::nodes::{make, offering, offers, set};
use crate::sim::SimNode;

pub const MAP: &str = "localpool-node-tuner";
pub const FIGURES: DiskFigures =
    DiskFigures { read_iops: 1111, read_bandwidth: 2_222_222, write_iops: 333, write_bandwidth: 4_444_444 };

/// The recorder at work.
pub struct Work {
    task: JoinHandle<()>,
    _own: LeaderStores,
}

impl Drop for Work {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn record(stage: &Stage) -> Work {
    record_with(stage, None)
}

/// One that may run commands in pods.
pub fn record_with(stage: &Stage, commands: Option<PodCommands>) -> Work {
    let metrics = Metrics::new(&Registry::new()).expect("fresh names");
    let own = LeaderStores::watch(&stage.client);
    let recorder =
        BenchmarkRecorder::new(stage.client.clone(), "default", stage.caches.clone(), own.volumes.clone(), metrics);
    let recorder = commands.into_iter().fold(recorder, BenchmarkRecorder::with_commands);
    Work { task: tokio::spawn(recorder.run(DiskSetupSettings::Kept)), _own: own }
}

/// A NodeDiskSetup for the nodes with this label.
pub async fn setup(client: &Client, label: &str, more: Value) -> Api<NodeDiskSetup> {
    let mut spec = json!({
        "diskSetupDisabled": true, "pvProvisionerDisabled": true, "placement": {"nodeSelector": {"sim": label}},
    });
    spec.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    let object = json!({
        "apiVersion": "localpool.dev/v1alpha1", "kind": "NodeDiskSetup", "metadata": {"name": label}, "spec": spec,
    });
    let api: Api<NodeDiskSetup> = Api::all(client.clone());
    api.create(&PostParams::default(), &serde_json::from_value(object).expect("one")).await.expect("a new one");
    // Its volumes come in a later second.
    tokio::time::sleep(Duration::from_millis(1100)).await;
    api
}

/// A volume on the node, whose claim of this namespace is bound and consents, and the key of its result.
pub async fn bound(stage: &Stage, label: &str, node: &str, space: &str) -> (String, String) {
    bound_by(stage, label, node, space, json!({"localpool.dev/benchmark": "true"})).await
}

/// One whose claim has these annotations.
async fn bound_by(stage: &Stage, label: &str, node: &str, space: &str, annotations: Value) -> (String, String) {
    let name = unique("pvc");
    let claim = json!({
        "metadata": {"name": name, "annotations": annotations},
        "spec": {
            "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "16Mi"}},
            "storageClassName": "by-hand", "volumeName": name,
        },
    });
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(stage.client.clone(), space);
    let claim = serde_json::from_value(claim).expect("a claim");
    let uid = claims.create(&PostParams::default(), &claim).await.expect("a new one").uid();
    let volume = make(stage, label, &name, on(node), 16).await.expect("there is room");
    let csi = json!({"driver": DRIVER_NAME, "volumeHandle": volume.id.to_string()});
    let claim = json!({"kind": "PersistentVolumeClaim", "namespace": space, "name": name, "uid": uid});
    persistent(&stage.client, &name, node, json!({"csi": csi, "claimRef": claim})).await;
    let api: Api<PersistentVolume> = Api::all(stage.client.clone());
    let status = json!({"status": {"phase": "Bound"}});
    let made = api.patch_status(&name, &PatchParams::default(), &Patch::Merge(&status)).await.expect("there");
    (name, format!("iosetup-{}", made.uid().expect("one")))
}

/// As kubelet does for a pod.
pub fn mount(node: &SimNode, name: &str) {
    let id = VolumeId::of_name(name);
    let view = node.pool().volume(id).expect("it is there");
    let target = format!("/kubelet/{name}");
    node.host.mounts.mount(&view.node, Path::new(&target), FsKind::Ext4, &[]).expect("mounted");
}

pub async fn map(client: &Client, space: &str) -> Option<ConfigMap> {
    Api::<ConfigMap>::namespaced(client.clone(), space).get_opt(MAP).await.expect("an answer")
}

pub async fn value(client: &Client, space: &str, key: &str) -> Option<String> {
    map(client, space).await?.data?.remove(key)
}

pub async fn until_value(client: &Client, space: &str, key: &str) -> String {
    until(&format!("{key} is in {space}"), async || value(client, space, key).await).await
}

/// As the proposal's sidecar reads it: with the figures of the only disk.
pub fn document(DiskFigures { read_iops, read_bandwidth, write_iops, write_bandwidth }: DiskFigures) -> String {
    format!(
        "disks:\n- mountpoint: /var/lib/scylla\n  read_iops: {read_iops}\n  read_bandwidth: {read_bandwidth}\n  \
         write_iops: {write_iops}\n  write_bandwidth: {write_bandwidth}\n"
    )
}

pub async fn measured(client: &Client, node: &str, is: impl Fn(&DiskBenchmark) -> bool) -> DiskBenchmark {
    let api: Api<DevicePool> = Api::all(client.clone());
    let of_disk = async || {
        let pool = api.get(node).await.expect("there");
        pool.status?.disks.into_iter().find_map(|disk| disk.benchmark).filter(&is)
    };
    until("the DevicePool says what became of it", of_disk).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_is_measured_once_for_the_pods_that_wait_and_again_when_a_key_is_deleted() {
    let cluster = cluster!(alone);
    let (stage, label, node) = offering(&cluster.client, 128).await;
    let (client, space) = (&stage.client, namespace(&cluster.client).await);
    node.host.set_speed(FakeSpeed::Figures(FIGURES));
    let setups = setup(client, &label, json!({})).await;
    let _work = record(&stage);
    let (first, key) = bound(&stage, &label, &node.name, &space).await;
    let waiting = measured(client, &node.name, |result| result.state == BenchmarkState::Waiting).await;
    assert!(waiting.message.is_some_and(|why| why.contains("mounted")), "no pod is there yet");
    assert_eq!(value(client, &space, &key).await, None);
    // kubelet has it mounted where nobody sees it, so its pod waits.
    let (id, hidden) = (VolumeId::of_name(&first), Path::new("/kubelet/hidden"));
    node.board.mounted(id, hidden, node.board.unmounts());
    let says = |words: &'static str| {
        move |result: &DiskBenchmark| result.message.as_ref().is_some_and(|why| why.contains(words))
    };
    measured(client, &node.name, says("no mount that can be written")).await;
    node.board.unmounted(id, hidden);
    let (other, _) = bound_by(&stage, &label, &node.name, &space, json!({})).await;
    let other = VolumeId::of_name(&other);
    node.board.mounted(other, hidden, node.board.unmounts());
    mount(&node, &first);
    measured(client, &node.name, says("does not wait")).await;
    node.board.unmounted(other, hidden);
    assert_eq!(until_value(client, &space, &key).await, document(FIGURES));
    measured(client, &node.name, |result| result.figures == Some(FIGURES)).await;

    // Nobody measures again for another volume of the disk, though that is mounted and the disk would be slower.
    let slower = DiskFigures { read_iops: 1, ..FIGURES };
    node.host.set_speed(FakeSpeed::Figures(slower));
    let other_space = namespace(client).await;
    let (second, other) = bound(&stage, &label, &node.name, &other_space).await;
    mount(&node, &second);
    assert_eq!(until_value(client, &other_space, &other).await, document(FIGURES));
    let version = map(client, &space).await.expect("there").resource_version();
    let (_, third) = bound(&stage, &label, &node.name, &other_space).await;
    until_value(client, &other_space, &third).await;
    assert_eq!(map(client, &space).await.expect("there").resource_version(), version, "nothing of it changed");

    // The second one is at work now, so the disk is in use until its pod ends.
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), &space);
    let without = json!({"data": {&key: null}});
    maps.patch(MAP, &PatchParams::default(), &Patch::Merge(&without)).await.expect("there");
    let in_use = |result: &DiskBenchmark| result.message.as_ref().is_some_and(|why| why.contains("does not wait"));
    measured(client, &node.name, in_use).await;
    assert_eq!(value(client, &space, &key).await, None);
    node.host.mounts.unmount(Path::new(&format!("/kubelet/{second}"))).expect("unmounted");
    assert_eq!(until_value(client, &space, &key).await, document(slower));

    let volumes: Api<PersistentVolume> = Api::all(client.clone());
    let unprotected = json!({"metadata": {"finalizers": null}});
    volumes.patch(&first, &PatchParams::default(), &Patch::Merge(&unprotected)).await.expect("there");
    volumes.delete(&first, &DeleteParams::default()).await.expect("there");
    let is_gone = async || value(client, &space, &key).await.is_none().then_some(());
    until("the key goes with its PersistentVolume", is_gone).await;
    let is_told = async || {
        let status = setups.get(&label).await.expect("there").status?;
        ((status.nodes, status.volumes, status.waiting) == (1, 3, 0)).then_some(status)
    };
    let status = until("the NodeDiskSetup says so", is_told).await;
    assert_eq!((status.conditions[0].type_.as_str(), status.conditions[0].status.as_str()), ("Accepted", "True"));
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_waits_gets_an_empty_value_where_it_is_disabled_fails_or_the_volume_was_there_before() {
    let cluster = cluster!(alone);
    let (stage, label, node) = offering(&cluster.client, 128).await;
    let (client, space) = (&stage.client, namespace(&cluster.client).await);
    let (old, old_key) = bound(&stage, &label, &node.name, &space).await;
    // In use since long before.
    mount(&node, &old);
    tokio::time::sleep(Duration::from_millis(1100)).await;
    let setups = setup(client, &label, json!({})).await;
    let _work = record(&stage);
    assert_eq!(until_value(client, &space, &old_key).await, "");
    node.host.mounts.unmount(Path::new(&format!("/kubelet/{old}"))).expect("unmounted");

    // A pod that waits for nothing: nobody writes to its volume.
    node.host.set_speed(FakeSpeed::Figures(FIGURES));
    let (silent, silent_key) = bound_by(&stage, &label, &node.name, &space, json!({})).await;
    mount(&node, &silent);
    assert_eq!(until_value(client, &space, &silent_key).await, "");
    node.host.mounts.unmount(Path::new(&format!("/kubelet/{silent}"))).expect("unmounted");

    node.host.set_speed(FakeSpeed::Unsupported("fio is not installed"));
    let (failing, failing_key) = bound(&stage, &label, &node.name, &space).await;
    mount(&node, &failing);
    assert_eq!(until_value(client, &space, &failing_key).await, "");
    let failed = measured(client, &node.name, |result| result.state == BenchmarkState::Failed).await;
    assert!(failed.message.is_some_and(|why| why.contains("fio is not installed")));

    let disabled = json!({"spec": {"diskBenchmarkDisabled": true}});
    setups.patch(&label, &PatchParams::default(), &Patch::Merge(&disabled)).await.expect("there");
    let (_, key) = bound(&stage, &label, &node.name, &space).await;
    assert_eq!(until_value(client, &space, &key).await, "");

    let wrong = json!({"spec": {"localDisksPath": "/"}});
    setups.patch(&label, &PatchParams::default(), &Patch::Merge(&wrong)).await.expect("there");
    let is_refused = async || {
        let condition = setups.get(&label).await.expect("there").status?.conditions.remove(0);
        (condition.status == "False" && condition.message.contains("spec.localDisksPath")).then_some(())
    };
    until("it names the field that is wrong", is_refused).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_known_machine_has_its_published_figures_before_any_pod_and_measures_if_they_are_ignored() {
    let cluster = cluster!(alone);
    let stage = Stage::new(&cluster.client).await;
    let (client, space, label) = (&stage.client, namespace(&cluster.client).await, unique("sim"));
    set(client, &label).await;
    let host = FakeHost::default();
    host.add_disk("fake0", &unique("serial"), Geometry { size: 128 * MIB, sector: 512, offloads_zeroes: true });
    host.edit("fake0", |disk| disk.model = Some("Amazon EC2 NVMe Instance Storage".to_owned()));
    let text = |text: &str| Some(text.to_owned());
    host.set_model(MachineModel { vendor: text("Amazon EC2"), product: text("i3en.large"), bios: text("1.0") });
    host.set_speed(FakeSpeed::Figures(FIGURES));
    let node = SimNode::of(client, &unique("sim"), json!({"sim": label}), host).await;
    offers(&stage, &node.name, 116).await;
    let setups = setup(client, &label, json!({})).await;
    let _work = record(&stage);
    let (_, key) = bound(&stage, &label, &node.name, &space).await;
    let published = DiskFigures {
        read_iops: 43_315,
        read_bandwidth: 330_301_440,
        write_iops: 33_177,
        write_bandwidth: 165_675_008,
    };
    assert_eq!(until_value(client, &space, &key).await, document(published));

    let ignoring = json!({"spec": {"diskBenchmarkOptions": {"ignorePrecomputed": true}}});
    setups.patch(&label, &PatchParams::default(), &Patch::Merge(&ignoring)).await.expect("there");
    let (name, key) = bound(&stage, &label, &node.name, &space).await;
    mount(&node, &name);
    assert_eq!(until_value(client, &space, &key).await, document(FIGURES));
}

/// Asks for the disk of the node, for this volume, as the controller does.
async fn ask(client: &Client, node: &str, volume: &str, requested: &str) {
    let api: Api<DevicePool> = Api::all(client.clone());
    let disk = api.get(node).await.expect("there").status.expect("one").disks.remove(0).id;
    let request = json!({"disk": disk, "requested": requested, "volumes": [VolumeId::of_name(volume).to_string()]});
    let change = json!({"spec": {"benchmarks": [request]}});
    api.patch(node, &PatchParams::default(), &Patch::Merge(&change)).await.expect("there");
}

#[tokio::test(flavor = "multi_thread")]
async fn that_a_disk_is_being_measured_is_written_before_and_the_next_agent_does_not_try_it_again() {
    let cluster = cluster!(alone);
    let (stage, label, mut node) = offering(&cluster.client, 128).await;
    let (client, api) = (&stage.client, Api::<DevicePool>::all(cluster.client.clone()));
    node.host.set_speed(FakeSpeed::Figures(FIGURES));
    let name = unique("pvc");
    make(&stage, &label, &name, on(&node.name), 16).await.expect("there is room");
    mount(&node, &name);
    let version = api.get(&node.name).await.expect("there").resource_version().expect("one");
    let only = WatchParams::default().fields(&format!("metadata.name={}", node.name));
    let mut seen = Box::pin(api.watch(&only, &version).await.expect("a watch"));
    ask(client, &node.name, &name, "2026-03-01T00:00:00Z").await;
    let mut states = Vec::new();
    while states.last() != Some(&BenchmarkState::Measured) {
        let event = seen.try_next().await.expect("a watch").expect("it is measured before the watch ends");
        let WatchEvent::Modified(pool) = event else { continue };
        let results = pool.status.into_iter().flat_map(|status| status.disks).filter_map(|disk| disk.benchmark);
        states.extend(results.map(|result| result.state));
    }
    assert!(states.contains(&BenchmarkState::Measuring), "{states:?}");

    // The next one ends the machine.
    node.kill().await;
    let again = "2026-03-02T00:00:00Z";
    ask(client, &node.name, &name, again).await;
    let mut status = serde_json::to_value(api.get(&node.name).await.expect("there").status).expect("one");
    status["disks"][0]["benchmark"] = json!({"requested": again, "state": "Measuring"});
    status["agent"] = "another".into();
    let begun = json!({"status": status});
    api.patch_status(&node.name, &PatchParams::default(), &Patch::Merge(&begun)).await.expect("there");
    node.run(client);
    let is_over =
        |result: &DiskBenchmark| result.requested.0.to_string() == again && result.state != BenchmarkState::Measuring;
    let failed = measured(client, &node.name, is_over).await;
    assert_eq!(failed.state, BenchmarkState::Failed);
    assert!(failed.message.is_some_and(|why| why.contains("ended while it was measured")));
}
