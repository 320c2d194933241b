//! PersistentVolumes that are marked, with the real monitor, and an agent on a fake machine. The monitor writes
//! to all objects, those of other tests too, so each of these tests is alone.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Node, PersistentVolume};
use k8s_openapi::api::events::v1::Event;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use localpool::api::crd::{DevicePool, PoolVolume};
use localpool::host::{FilesystemState, FsUsage, Mounted, PathState, fake::FakeHost};
use localpool::operator::controller::{LeaderStores, Metrics, Monitor, ReservePolicy};
use localpool::volume::{DRIVER_NAME, VolumeId};
use localpool_testing::found_async;
use prometheus::Registry;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::agent::{AGAIN, Stage, TIMEOUT, on, unique};
use crate::cluster;
use crate::leader::until;
use crate::nodes::{make, offering};
use crate::sent::Sent;
use crate::sim::SimNode;

/// A monitor at work, with a short grace.
pub struct Work {
    task: JoinHandle<()>,
    pub metrics: Metrics,
    _own: LeaderStores,
}

impl Drop for Work {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Work {
    fn counts<const N: usize>(&self, reasons: [&str; N]) -> [i64; N] {
        reasons.map(|reason| self.metrics.marked.with_label_values(&[reason]).get())
    }
}

pub fn monitor(stage: &Stage) -> Work {
    monitor_that(stage, ReservePolicy::Never)
}

fn monitor_that(stage: &Stage, reserve: ReservePolicy) -> Work {
    monitor_through(stage, stage.client.clone(), reserve)
}

/// One that writes with that client.
pub fn monitor_through(stage: &Stage, client: Client, reserve: ReservePolicy) -> Work {
    let metrics = Metrics::new(&Registry::new()).expect("fresh names");
    let own = LeaderStores::watch(&stage.client);
    let monitor = Monitor::new(client, stage.caches.clone(), own.volumes.clone(), metrics.clone(), reserve, "test");
    let task = tokio::spawn(monitor.with_grace(SignedDuration::from_secs(1)).run());
    Work { task, metrics, _own: own }
}

/// A PersistentVolume of 1 GiB, with what is given of its spec, bound to a node by its hostname.
pub async fn persistent(client: &Client, name: &str, node: &str, more: Value) {
    let affinity = json!({"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}]});
    let mut spec = json!({
        "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "by-hand",
        "nodeAffinity": {"required": {"nodeSelectorTerms": [affinity]}},
    });
    spec.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    let volume = json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": spec});
    let api: Api<PersistentVolume> = Api::all(client.clone());
    let volume = serde_json::from_value(volume).expect("a PersistentVolume");
    api.create(&PostParams::default(), &volume).await.expect("a new PersistentVolume");
}

pub async fn annotations(client: &Client, name: &str) -> BTreeMap<String, String> {
    Api::<PersistentVolume>::all(client.clone()).get(name).await.expect("there").annotations().clone()
}

/// Waits until these are the annotations of a PersistentVolume, but for the time since when it is lost, and that of the
/// first mark, which it returns.
async fn marked(client: &Client, name: &str, keys: &[&str]) -> Option<String> {
    let found = async || {
        let mut all = annotations(client, name).await;
        let (first, lost) = (all.remove("FirstMarkTime"), all.remove("localpool.dev/unusable-since"));
        assert_eq!(first.is_some(), lost.is_some(), "with each of these the volume is lost");
        let are_marks = all.values().all(|value| value == "yes");
        (are_marks && all.keys().eq(keys) && first.is_some() != keys.is_empty()).then_some(first)
    };
    until(&format!("{name} is marked with {keys:?}"), found).await
}

/// Waits for an Event of each of these keys on a PersistentVolume.
pub async fn events(client: &Client, name: &str, what: &str, keys: &[&str]) {
    let reason = format!("{what}PVSucceeded");
    let expected: Vec<String> =
        keys.iter().map(|key| format!("{what} PV successfully with annotation key: {key}")).collect();
    let api: Api<Event> = Api::all(client.clone());
    let fields = format!("regarding.kind=PersistentVolume,regarding.name={name},reason={reason}");
    let found = async || {
        let events = api.list(&ListParams::default().fields(&fields)).await.expect("listed").items;
        assert!(events.iter().all(|event| event.type_.as_deref() == Some("Normal")), "{events:?}");
        let mut notes: Vec<String> = events.into_iter().filter_map(|event| event.note).collect();
        notes.sort();
        if notes == expected { Ok(()) } else { Err(notes) }
    };
    let found = found_async(TIMEOUT, AGAIN, found).await;
    found.unwrap_or_else(|notes| panic!("{expected:?} on {name}, and there is {notes:?}"));
}

/// Sets the condition Ready of a node, which kubelet sets, and its hostname.
pub async fn ready(client: &Client, name: &str, status: &str) {
    let api: Api<Node> = Api::all(client.clone());
    let labels = json!({"metadata": {"labels": {"kubernetes.io/hostname": name}}});
    api.patch(name, &PatchParams::default(), &Patch::Merge(&labels)).await.expect("there");
    let time = Timestamp::now().to_string();
    let condition = json!({"type": "Ready", "status": status, "reason": "Test", "message": "", "lastTransitionTime": time, "lastHeartbeatTime": time});
    let patch = json!({"status": {"conditions": [condition]}});
    api.patch_status(name, &PatchParams::default(), &Patch::Merge(&patch)).await.expect("there");
}

pub fn next_checkup(node: &SimNode) {
    node.running.as_ref().expect("it runs").checkups.due();
}

fn directory(mounted: Mounted) -> PathState {
    let (usage, filesystem) = (FsUsage::default(), Some(FilesystemState::default()));
    PathState::Directory { mounted, device_size: Some(2 << 30), usage, filesystem }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_local_volume_made_by_hand_is_marked_when_its_path_goes_and_not_any_more_when_it_is_back() {
    let cluster = cluster!(alone);
    let (stage, _, node) = offering(&cluster.client, 64).await;
    let client = &stage.client;
    ready(client, &node.name, "True").await;
    let (name, path) = (unique("local-pv"), "/mnt/disks/a b\nc");
    node.host.mounts.set_path_state(Path::new(path), directory(Mounted::Part));
    persistent(client, &name, &node.name, json!({"local": {"path": path}})).await;
    // It is on no node: nobody looks at it, and it keeps nobody from looking at others.
    let homeless = unique("csi-pv");
    let csi = json!({"driver": DRIVER_NAME, "volumeHandle": VolumeId::of_name(&homeless).to_string()});
    persistent(client, &homeless, &node.name, json!({"csi": csi, "nodeAffinity": null})).await;
    let work = monitor(&stage);
    let pools: Api<DevicePool> = Api::all(client.clone());
    let is_checked = async || {
        let pool = pools.get(&node.name).await.expect("there");
        let listed = pool.spec.persistent_volumes.first()?.clone();
        let found = pool.status?.persistent_volumes.first()?.clone();
        (listed.mount_point && found.mount_point && found.health.is_empty()).then_some(listed)
    };
    let listed = until("the agent looks at the path, which must be a mount point from now on", is_checked).await;
    assert_eq!((listed.name.as_str(), listed.path.as_str(), listed.capacity), (name.as_str(), path, 1 << 30));
    assert_eq!(annotations(client, &name).await, BTreeMap::new());
    // Other tests leave volumes behind.
    let counts = || work.counts(["NotMountPoint", "HostPathNotExist"]);
    let before = counts();

    node.host.mounts.set_path_state(Path::new(path), directory(Mounted::Nothing));
    next_checkup(&node);
    let first = marked(client, &name, &["NotMountPoint"]).await.expect("a time");
    assert!(first.parse::<Timestamp>().is_ok_and(|time| time <= Timestamp::now()), "{first}");
    events(client, &name, "Mark", &["NotMountPoint"]).await;
    assert_eq!(counts(), [before[0] + 1, before[1]]);

    node.host.mounts.set_path_state(Path::new(path), PathState::Absent);
    next_checkup(&node);
    assert_eq!(marked(client, &name, &["HostPathNotExist"]).await, Some(first), "the first mark has its time");
    assert_eq!(counts(), [before[0], before[1] + 1]);
    node.host.mounts.set_path_state(Path::new(path), directory(Mounted::Part));
    next_checkup(&node);
    marked(client, &name, &[]).await;
    events(client, &name, "Unmark", &["HostPathNotExist", "NotMountPoint"]).await;
    assert_eq!(counts(), before);
    assert_eq!(annotations(client, &homeless).await, BTreeMap::new());

    let api: Api<PersistentVolume> = Api::all(client.clone());
    // The controller that ends its protection does not run here.
    let unprotected = json!({"metadata": {"finalizers": null}});
    api.patch(&name, &PatchParams::default(), &Patch::Merge(&unprotected)).await.expect("there");
    api.delete(&name, &DeleteParams::default()).await.expect("there");
    let is_forgotten = async || {
        let pool = pools.get(&node.name).await.expect("there");
        (pool.spec.persistent_volumes.is_empty() && pool.status?.persistent_volumes.is_empty()).then_some(())
    };
    until("nobody looks at it any more", is_forgotten).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn all_volumes_of_a_node_that_is_not_ready_are_marked_and_those_of_other_nodes_and_kinds_are_not() {
    let cluster = cluster!(alone);
    let stage = Stage::new(&cluster.client).await;
    let client = &stage.client;
    let (silent, alive) = (unique("node"), unique("node"));
    for (name, status) in [(&silent, "Unknown"), (&alive, "True")] {
        stage.node(name).await;
        ready(client, name, status).await;
    }
    // More than one pass of the monitor writes.
    let names: Vec<String> = (0..120).map(|_| unique("local-pv")).collect();
    for name in &names {
        persistent(client, name, &silent, json!({"local": {"path": "/mnt/x"}})).await;
    }
    let (other_node, other_kind) = (unique("local-pv"), unique("nfs-pv"));
    persistent(client, &other_node, &alive, json!({"local": {"path": "/mnt/x"}})).await;
    persistent(client, &other_kind, &silent, json!({"nfs": {"server": "s", "path": "/x"}})).await;
    let (sent, counted) = Sent::through(client);
    let _work = monitor_through(&stage, counted, ReservePolicy::Never);
    for name in &names {
        marked(client, name, &["NodeNotReady"]).await;
    }
    sent.assert_at_most(50, Duration::from_secs(1));
    ready(client, &silent, "True").await;
    for name in [&other_node, &other_kind] {
        assert!(!annotations(client, name).await.contains_key("NodeNotReady"), "{name}");
    }
    // No agent runs there, so nobody knows what else holds of them: other marks would stay.
    let none = async |name: &String| (!annotations(client, name).await.contains_key("NodeNotReady")).then_some(());
    for name in &names {
        until("the mark goes", async || none(name).await).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_of_the_pool_has_the_marks_of_its_disk_as_long_as_they_hold() {
    let cluster = cluster!(alone);
    let (stage, label, node) = offering(&cluster.client, 64).await;
    let client = &stage.client;
    ready(client, &node.name, "True").await;
    let name = unique("pvc");
    let volume = make(&stage, &label, &name, on(&node.name), 16).await.expect("there is room");
    let unnamed = make(&stage, &label, &unique("pvc"), on(&node.name), 16).await.expect("there is room");
    let csi = json!({"driver": DRIVER_NAME, "volumeHandle": volume.id.to_string()});
    persistent(client, &name, &node.name, json!({"csi": csi, "capacity": {"storage": "16Mi"}})).await;
    let work = monitor(&stage);
    let platter = node.host.unplug("fake0").expect("it was there");
    node.pool().nudge();
    marked(client, &name, &["DiskMissing"]).await;
    node.host.plug("fake0", "fake0", platter);
    node.pool().nudge();
    marked(client, &name, &[]).await;

    let is_unclaimed = |object: &PoolVolume| {
        object.status.iter().flat_map(|status| &status.conditions).any(|condition| condition.type_ == "Unclaimed")
    };
    let object = async |id: VolumeId| stage.objects.get(&id.to_string()).await.expect("there");
    until("nobody has it", async || is_unclaimed(&object(unnamed.id).await).then_some(())).await;
    // Those of other tests, too.
    let is_counted = async || {
        let all = stage.objects.list(&ListParams::default()).await.expect("listed").items;
        let count = all.iter().filter(|object| is_unclaimed(object)).count();
        (work.metrics.unclaimed.get() == i64::try_from(count).expect("few")).then_some(count)
    };
    assert!(until("as many are counted as say it", &is_counted).await > 0);
    assert!(!is_unclaimed(&object(volume.id).await));
    let csi = json!({"csi": {"driver": DRIVER_NAME, "volumeHandle": unnamed.id.to_string()}});
    let found = unique("found-again");
    persistent(client, &found, &node.name, csi).await;
    until("somebody has it", async || (!is_unclaimed(&object(unnamed.id).await)).then_some(())).await;
    until("it is not counted any more", &is_counted).await;
    let promises_too_much = async || annotations(client, &found).await.remove("MisMatchedVolSize");
    assert_eq!(until("it promises 1 GiB, and has 16 MiB", promises_too_much).await, "yes");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_of_a_node_that_is_created_again_has_the_mark_of_the_node_and_then_that_of_its_disk() {
    let cluster = cluster!(alone);
    let (stage, label, mut node) = offering(&cluster.client, 64).await;
    let client = &stage.client;
    ready(client, &node.name, "True").await;
    let (name, host) = (unique("pvc"), node.name.clone());
    let volume = make(&stage, &label, &name, on(&host), 16).await.expect("there is room");
    let csi = json!({"driver": DRIVER_NAME, "volumeHandle": volume.id.to_string()});
    persistent(client, &name, &host, json!({"csi": csi, "capacity": {"storage": "16Mi"}})).await;
    let _work = monitor(&stage);
    node.kill().await;
    stage.delete_node(&host).await;
    let first = marked(client, &name, &["NodeGone"]).await;

    // Another machine with that name: it has none of the disks, and knows nothing of them.
    let mut again = SimNode::of(client, &host, json!({"sim": label}), FakeHost::default()).await;
    ready(client, &host, "True").await;
    assert_eq!(marked(client, &name, &["DiskMissing"]).await, first, "it was never well in between");
    let object = stage.objects.get(&volume.id.to_string()).await.expect("it is kept");
    assert!(object.metadata.deletion_timestamp.is_none());
    assert!(again.pool().volumes().is_empty(), "it was made again");
    events(client, &name, "Mark", &["DiskMissing", "NodeGone"]).await;
    events(client, &name, "Unmark", &["NodeGone"]).await;
    // The old machine after all.
    again.kill().await;
    node.run(client);
    marked(client, &name, &[]).await;
    node.kill().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_marked_volume_that_nobody_has_is_reserved_where_that_is_wanted_until_it_is_well() {
    let cluster = cluster!(alone);
    let stage = Stage::new(&cluster.client).await;
    let client = &stage.client;
    let (node, name) = (unique("node"), unique("local-pv"));
    stage.node(&node).await;
    ready(client, &node, "Unknown").await;
    persistent(client, &name, &node, json!({"local": {"path": "/mnt/x"}})).await;
    let api: Api<PersistentVolume> = Api::all(client.clone());
    // No controller of Kubernetes runs here.
    let available = json!({"status": {"phase": "Available"}});
    api.patch_status(&name, &PatchParams::default(), &Patch::Merge(&available)).await.expect("there");
    let claim = async || api.get(&name).await.expect("there").spec.expect("a spec").claim_ref;
    let _work = monitor_that(&stage, ReservePolicy::In("space".into()));
    let reserved = until("a claim that does not exist", claim).await;
    assert_eq!((reserved.namespace.as_deref(), reserved.uid), (Some("space"), None));
    ready(client, &node, "True").await;
    until("anybody may bind it", async || claim().await.is_none().then_some(())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_path_that_its_provisioner_always_mounts_must_be_mounted_and_marks_of_a_copy_go() {
    let cluster = cluster!(alone);
    let (stage, _, node) = offering(&cluster.client, 64).await;
    let client = &stage.client;
    ready(client, &node.name, "True").await;
    let set = |path: &str, state| node.host.mounts.set_path_state(Path::new(path), state);
    set("/mnt/static", directory(Mounted::Nothing));
    set("/mnt/local-storage/block", PathState::Device { size: Some(1 << 30) });
    set("/mnt/plain", directory(Mounted::Nothing));
    let api: Api<PersistentVolume> = Api::all(client.clone());
    let made = async |path: &str, mode: &str, annotations: Value| {
        let name = unique("local-pv");
        persistent(client, &name, &node.name, json!({"local": {"path": path}, "volumeMode": mode})).await;
        let patch = Patch::Merge(json!({"metadata": {"annotations": annotations}}));
        api.patch(&name, &PatchParams::default(), &patch).await.expect("there");
        name
    };
    let by = json!({"pv.kubernetes.io/provisioned-by": format!("local-volume-provisioner-{}-1234", node.name)});
    let [mounts, block] =
        [made("/mnt/static", "Filesystem", by.clone()).await, made("/mnt/local-storage/block", "Block", by).await];
    let old = "2020-01-01T00:00:00Z";
    let of_another = json!({"NotMountPoint": "yes", "FirstMarkTime": old, "localpool.dev/unusable-since": old});
    let copy = made("/mnt/plain", "Filesystem", of_another).await;
    let _work = monitor(&stage);
    let has = async |name: &str, mark: &str| annotations(client, name).await.contains_key(mark).then_some(());
    until("it is not mounted, and never was", async || has(&mounts, "NotMountPoint").await).await;
    marked(client, &copy, &[]).await;
    assert_eq!(has(&block, "FirstMarkTime").await, None);
    // The device behind the link is gone.
    set("/mnt/local-storage/block", PathState::Device { size: None });
    next_checkup(&node);
    until("its device is gone", async || has(&block, "HostPathNotExist").await).await;
    set("/mnt/static", directory(Mounted::Whole));
    next_checkup(&node);
    until("it is mounted", async || has(&mounts, "NotMountPoint").await.is_none().then_some(())).await;
    assert_eq!(has(&copy, "FirstMarkTime").await, None, "it need not be a mount point");
}

#[tokio::test(flavor = "multi_thread")]
async fn another_filesystem_at_the_path_of_a_bound_volume_is_marked_until_the_first_one_is_back() {
    let cluster = cluster!(alone);
    let (stage, _, node) = offering(&cluster.client, 64).await;
    let client = &stage.client;
    ready(client, &node.name, "True").await;
    let (name, path) = (unique("local-pv"), Path::new("/mnt/disks/one"));
    node.host.mounts.set_path_state(path, directory(Mounted::Whole));
    let shows = |identity: &str| {
        node.host.mounts.set_path_identity(path, Some(identity));
        next_checkup(&node);
    };
    shows("fs-first");
    let claim = json!({"namespace": "default", "name": "data", "uid": "claim-1"});
    persistent(client, &name, &node.name, json!({"local": {"path": path}, "claimRef": claim})).await;
    let _work = monitor(&stage);
    let pools: Api<DevicePool> = Api::all(client.clone());
    // What must be there, and what the agent says.
    let is = async |expected: Option<&str>, found: Option<&str>| {
        let pool = pools.get(&node.name).await.expect("there");
        let known = pool.status?.persistent_volumes.first()?.identity.clone();
        let listed = pool.spec.persistent_volumes.first()?.identity.clone();
        (listed.as_deref() == expected && known.as_deref() == found).then_some(())
    };
    until("the agent looks, and does not say which one it is: nobody has it", async || is(None, None).await).await;
    // It is formatted again; nobody looks before it is bound.
    node.host.mounts.set_path_identity(path, Some("fs-second"));
    let bound = Patch::Merge(json!({"status": {"phase": "Bound"}}));
    let api: Api<PersistentVolume> = Api::all(client.clone());
    api.patch_status(&name, &PatchParams::default(), &bound).await.expect("there");
    let second = Some("fs-second");
    until("the controller remembers what is there now", async || is(second, second).await).await;
    shows("fs-third");
    let marks = async |are_there: bool| {
        let all = annotations(client, &name).await;
        let has = |key: &str| all.contains_key(key) == are_there;
        assert!(!all.contains_key("localpool.dev/unusable-since"), "its data is not lost");
        (has("WrongDevice") && has("FirstMarkTime")).then_some(())
    };
    until("it is marked", async || marks(true).await).await;
    events(client, &name, "Mark", &["WrongDevice"]).await;
    is(second, Some("fs-third")).await.expect("the first one stays what must be there");
    shows("fs-second");
    until("the first one is back", async || marks(false).await).await;
    events(client, &name, "Unmark", &["WrongDevice"]).await;
    // Whoever replaces it on purpose says so.
    shows("fs-third");
    until("it is marked", async || marks(true).await).await;
    let mut spec = pools.get(&node.name).await.expect("there").spec;
    spec.persistent_volumes[0].identity = None;
    let change = Patch::Merge(json!({"spec": {"persistentVolumes": spec.persistent_volumes}}));
    pools.patch(&node.name, &PatchParams::default(), &change).await.expect("there");
    let third = Some("fs-third");
    until("it is what must be there from now on", async || is(third, third).await).await;
    until("it is not marked any more", async || marks(false).await).await;
}
