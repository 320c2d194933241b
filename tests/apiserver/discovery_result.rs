//! The result of a node, as a real API server takes it: from rows that a test made up, and from the program itself on
//! this machine's devices, without an agent and with one.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use localpool::api::crd::{DeviceState, DiscoveredDevice, LocalVolumeDiscoveryResult};
use localpool::device::FactValue;
use localpool::device::NodeName;
use localpool::operator::discovery::{Reporter, result_name};
use localpool::show::DeviceRow;
use localpool_testing::loops::{LoopDevice, TempLoop};
use localpool_testing::{Running, is_root};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::agent::unique;
use crate::cluster;
use crate::leader::{namespace, until};
use crate::server::Cluster;

type Results = Api<LocalVolumeDiscoveryResult>;

/// As an agent sends it, with more facts.
fn with(path: &str, verdict: &str, refusal: Option<&str>, more: Value) -> DeviceRow {
    let mut row = json!({
        "path": path, "link": format!("/dev/disk/by-id/of-{}", path.rsplit('/').next().expect("a name")),
        "diskId": format!("wwid-{path}"), "verdict": verdict, "refusal": refusal, "size": 1_u64 << 40, "type": "disk",
        "attachment": "Unknown", "sectorSize": 512, "physicalSectorSize": 512, "discard": false,
    });
    row.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    serde_json::from_value(row).expect("a row")
}

fn row(path: &str, verdict: &str, refusal: Option<&str>) -> DeviceRow {
    with(path, verdict, refusal, json!({}))
}

async fn found(
    results: &Results,
    node: &NodeName,
    what: &str,
    holds: impl Fn(&LocalVolumeDiscoveryResult) -> bool,
) -> LocalVolumeDiscoveryResult {
    until(what, async || results.get_opt(&result_name(node)).await.expect("an answer").filter(&holds)).await
}

fn devices(result: &LocalVolumeDiscoveryResult) -> &[DiscoveredDevice] {
    result.status.as_ref().map(|status| status.discovered_devices.as_slice()).unwrap_or_default()
}

#[tokio::test]
async fn a_result_is_written_only_when_something_changed_and_made_again_where_it_was_changed_or_deleted() {
    let cluster = cluster!(shared);
    let (space, node) = (namespace(&cluster.client).await, NodeName::from(unique("worker")));
    let results: Results = Api::namespaced(cluster.client.clone(), &space);
    let (rows, watched) = watch::channel(None);
    let reporter = Reporter {
        client: cluster.client.clone(),
        namespace: space.clone(),
        node: node.clone(),
        resync: Duration::from_secs(2),
    };
    let task = tokio::spawn(reporter.clone().run(watched.clone()));
    let send = |some: Vec<DeviceRow>| drop(rows.send_replace(Some(Arc::new(some))));
    send(vec![row("/dev/sda", "Theirs", Some("sda1 is mounted at /")), row("/dev/sdb", "Unclaimed", None)]);
    let first = found(&results, &node, "two devices", |result| devices(result).len() == 2).await;
    assert_eq!(first.spec.node_name, node);
    for label in ["local.storage.openshift.io/discovery-node", "discovery-result-node"] {
        assert_eq!(first.labels().get(label), Some(&node.to_string()));
    }
    assert!(first.owner_references().is_empty(), "it stays when discovery goes");
    let states: Vec<_> = devices(&first).iter().map(|device| device.status.state).collect();
    assert_eq!(states, [DeviceState::NotAvailable, DeviceState::Available]);
    let time = first.status.as_ref().expect("a status").discovered_time_stamp.clone();
    assert!(time.ends_with('Z') && time.len() == "2020-03-09T08:37:19Z".len(), "{time}");

    // The result leaves out words that come and go with each volume.
    send(vec![
        with("/dev/sda", "Theirs", Some("sda1 is mounted at /"), json!({"reason": "other words"})),
        row("/dev/sdb", "Unclaimed", None),
    ]);
    // Longer than a resync, which looks and finds nothing to write.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let same = results.get(&result_name(&node)).await.expect("it is there");
    assert_eq!(same.resource_version(), first.resource_version(), "nothing changed");

    let change = json!({"status": {"discoveredDevices": []}, "metadata": {"labels": null}});
    results.patch_status(&result_name(&node), &PatchParams::default(), &Patch::Merge(&change)).await.expect("taken");
    found(&results, &node, "a change by hand is taken back", |result| devices(result).len() == 2).await;
    results.delete(&result_name(&node), &DeleteParams::default()).await.expect("it is there");
    send(vec![row("/dev/sdb", "Unclaimed", None)]);
    found(&results, &node, "it was deleted by hand", |result| devices(result).len() == 1).await;

    // A restart writes nothing either.
    task.abort();
    let before = results.get(&result_name(&node)).await.expect("it is there").resource_version();
    let task = tokio::spawn(reporter.run(watched));
    send(vec![row("/dev/sdb", "Unclaimed", None)]);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(results.get(&result_name(&node)).await.expect("it is there").resource_version(), before);
    task.abort();
}

#[tokio::test]
async fn a_node_with_thousands_of_disks_and_hostile_names_has_a_result_too() {
    let cluster = cluster!(shared);
    let (space, node) = (namespace(&cluster.client).await, NodeName::from(unique("n".repeat(200).as_str())));
    let results: Results = Api::namespaced(cluster.client.clone(), &space);
    let model = "evil\u{1b}[2J\u{0}\u{fffd}\n\"".to_owned() + &"é".repeat(40);
    let many = |n: u32| {
        let children: Vec<String> = (0..9).map(|child| format!("/dev/disk{n}p{child}")).collect();
        let more = json!({"model": model, "serial": format!("S{n:08}"), "children": children});
        with(&format!("/dev/disk{n}"), "Theirs", Some("has partitions: a, b, c, d and 5 more"), more)
    };
    let mut all: Vec<DeviceRow> = (0..6000).map(many).collect();
    all.push(row("/dev/sdfree", "Unclaimed", None));
    // What the schema has no word for would have the API server refuse all of them.
    all.push(with("/dev/sdlater", "Unclaimed", None, json!({"attachment": "InOrbit", "numaNode": 1_i64 << 40})));
    let (rows, watched) = watch::channel(Some(Arc::new(all)));
    let resync = Duration::from_secs(3600);
    let reporter = Reporter { client: cluster.client.clone(), namespace: space, node: node.clone(), resync };
    let task = tokio::spawn(reporter.run(watched));
    rows.send_modify(|_| {});
    let result = found(&results, &node, "a status", |result| result.status.is_some()).await;
    let status = result.status.as_ref().expect("a status");
    assert_eq!((status.device_count, status.available_count), (6002, 2));
    assert!(status.omitted_count > 0 && devices(&result).len() > 1000);
    for path in ["/dev/sdfree", "/dev/sdlater"] {
        assert!(devices(&result).iter().any(|device| device.facts().text("path") == Some(path)), "{path}");
    }
    task.abort();
}

/// `localpool discovery`, as its pod starts it.
struct Program(Running, PathBuf);

impl Program {
    fn start(cluster: &Cluster, name: &str, args: &[String]) -> Self {
        let log = cluster.server.path(&format!("{name}.log"));
        let file = std::fs::File::create(&log).expect("ours");
        let child = Command::new(env!("CARGO_BIN_EXE_localpool"))
            .args(args)
            .env("KUBECONFIG", cluster.server.kubeconfig())
            .stdin(Stdio::null())
            .stderr(file)
            .spawn()
            .expect("the program starts");
        Self(Running(child), log)
    }

    /// Ends it as the kubelet does; gives its log.
    fn stop(mut self) -> String {
        self.0.terminate();
        self.0.wait().expect("it is ours");
        std::fs::read_to_string(&self.1).expect("its log")
    }

    async fn said(&self, message: &str) {
        until(message, async || {
            let log = std::fs::read_to_string(&self.1).expect("its log");
            log.contains(message).then_some(())
        })
        .await;
    }
}

async fn has(
    results: &Results,
    node: &NodeName,
    what: &str,
    disk: &LoopDevice,
    state: DeviceState,
) -> DiscoveredDevice {
    let of = |result: &LocalVolumeDiscoveryResult| {
        devices(result)
            .iter()
            .find(|device| device.facts().text("path") == Some(disk.path()) && device.status.state == state)
            .cloned()
    };
    of(&found(results, node, what, |result| of(result).is_some()).await).expect("it was just there")
}

#[tokio::test]
async fn loop_a_disk_that_is_added_is_in_the_result_without_an_agent_and_with_one() {
    let cluster = cluster!(shared);
    if !is_root() {
        return;
    }
    let (space, node) = (namespace(&cluster.client).await, NodeName::from(unique("worker")));
    let results: Results = Api::namespaced(cluster.client.clone(), &space);
    let folder = tempfile::tempdir().expect("a folder");
    let state = folder.path().to_owned();
    let shared = [format!("--state-dir={}", state.display()), format!("--node-name={node}")];
    let args = [&["discovery".to_owned(), format!("--namespace={space}")][..], &shared].concat();
    let discovery = Program::start(&cluster, &format!("{node}-discovery"), &args);
    discovery.said("reading the disks without one").await;
    found(&results, &node, "a result", |result| result.status.is_some()).await;

    let begun = Instant::now();
    let alone = TempLoop::new(64 << 20, &["--find"]);
    let device = has(&results, &node, "a disk that was added", &alone, DeviceState::Available).await;
    eprintln!("without an agent, a new disk is in the result after {:?}", begun.elapsed());
    let facts = device.facts();
    assert_eq!((facts.text("type"), facts.get("size")), (Some("loop"), Some(&FactValue::Bytes(64 << 20))));
    assert_eq!(device.status.reason, None);

    let sets = folder.path().join("sets.yaml");
    std::fs::write(&sets, set_for(&alone.image)).expect("ours");
    let socket = folder.path().join("csi.sock");
    let args = [
        &["standalone".to_owned(), format!("--sets={}", sets.display()), format!("--socket={}", socket.display())][..],
        &["--device-min-age=0s".to_owned()],
        &shared,
    ]
    .concat();
    let agent = Program::start(&cluster, &format!("{node}-agent"), &args);
    discovery.said("the agent of this node reports its devices").await;
    let is_claimed = |result: &LocalVolumeDiscoveryResult| {
        let is_it = |device: &&DiscoveredDevice| device.facts().text("path") == Some(alone.path());
        let status = devices(result).iter().find(is_it).map(|device| &device.status);
        status.is_some_and(|it| it.state == DeviceState::NotAvailable && it.reason.as_deref() == Some("in pool"))
    };
    found(&results, &node, "the agent claimed it", is_claimed).await;
    let begun = Instant::now();
    let second = TempLoop::new(64 << 20, &["--find"]);
    has(&results, &node, "another one, by the agent", &second, DeviceState::Available).await;
    eprintln!("with an agent, a new disk is in the result after {:?}", begun.elapsed());
    let gone = second.node.clone();
    drop(second);
    let absent = |result: &LocalVolumeDiscoveryResult| {
        devices(result).iter().all(|device| device.facts().text("path") != gone.to_str())
    };
    found(&results, &node, "a disk that was removed is not in it", absent).await;

    let log = agent.stop();
    assert!(!log.contains("calls were still under way"), "a stop does not wait for those who listen: {log}");
    discovery.said("stopped reporting").await;
    discovery.said("no agent answers on this node").await;
    let third = TempLoop::new(64 << 20, &["--find"]);
    has(&results, &node, "and again without an agent", &third, DeviceState::Available).await;
    drop(discovery);
    results.get(&result_name(&node)).await.expect("the result stays");
}

fn set_for(image: &Path) -> String {
    format!(
        "apiVersion: local.storage.openshift.io/v1alpha1\nkind: LocalVolumeSet\nmetadata: {{name: own}}\n\
         spec:\n  storageClassName: own\n  deviceInclusionSpec:\n    deviceTypes: [loop]\n    minSize: 1Mi\n    paths: [{}]\n",
        image.display()
    )
}
