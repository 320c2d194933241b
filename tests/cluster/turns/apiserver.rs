//! The apiserver is away for longer than any lease lasts.

use std::path::Path;
use std::time::Duration;

use localpool::rpc::client::connect;
use localpool::rpc::proto;
use localpool::rpc::proto::node_client::NodeClient;
use serde_json::{Value, json};

use crate::check::{Needs, Space, check};
use crate::cluster::{SOON, eventually, name};
use crate::peace::{disturbing, quietly};
use crate::pods::{As, With as _};

/// Leaders lose their leases after 15 s. Meanwhile everybody retries at longer and longer intervals, so each second
/// here costs the check two.
const AWAY: Duration = Duration::from_secs(20);

/// A pod that writes down the time each second.
async fn ticking(space: &Space) {
    space.create(&space.claim("ticks", "local-carved", "64Mi")).await;
    let line = "trap 'exit 0' TERM; while :; do date +%s >>/data/ticks; sync; sleep 1; done";
    let pod = space.pod("ticks", "ticks", As::Folder).with("/spec/containers/0/command", json!(["sh", "-c", line]));
    space.create(&pod).await;
    space.until_running("ticks").await;
}

fn capability() -> proto::VolumeCapability {
    let mount = proto::volume_capability::MountVolume { fs_type: "ext4".to_owned(), ..Default::default() };
    proto::VolumeCapability {
        access_mode: Some(proto::volume_capability::AccessMode {
            mode: proto::volume_capability::access_mode::Mode::SingleNodeMultiWriter.into(),
        }),
        access_type: Some(proto::volume_capability::AccessType::Mount(mount)),
    }
}

/// What a kubelet does for a pod with a volume that exists; returns the content of its file.
async fn stage_and_publish(kubelet: &Path, id: &str) -> String {
    let socket = kubelet.join("plugins/csi.localpool.dev/csi.sock");
    let connected = async || connect(&socket).await;
    let mut node = NodeClient::new(eventually("the agent's socket answers", SOON, connected).await);
    let folder = kubelet.join("plugins/kubernetes.io/csi/csi.localpool.dev/check");
    let (staging, target) = (folder.join("globalmount"), folder.join("mount"));
    std::fs::create_dir_all(&staging).unwrap();
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    let (volume_id, capability) = (id.to_owned(), Some(capability()));
    let stage = proto::NodeStageVolumeRequest {
        volume_id: volume_id.clone(),
        staging_target_path: text(&staging),
        volume_capability: capability.clone(),
        ..Default::default()
    };
    node.node_stage_volume(stage).await.expect("it is staged");
    let publish = proto::NodePublishVolumeRequest {
        volume_id: volume_id.clone(),
        staging_target_path: text(&staging),
        target_path: text(&target),
        volume_capability: capability,
        ..Default::default()
    };
    node.node_publish_volume(publish).await.expect("it is published");
    let found = std::fs::read_to_string(target.join("file")).expect("the machine sees what the agent mounted");
    let unpublish = proto::NodeUnpublishVolumeRequest { volume_id: volume_id.clone(), target_path: text(&target) };
    node.node_unpublish_volume(unpublish).await.expect("it is unpublished");
    let unstage = proto::NodeUnstageVolumeRequest { volume_id, staging_target_path: text(&staging) };
    node.node_unstage_volume(unstage).await.expect("it is unstaged");
    std::fs::remove_dir_all(folder).unwrap();
    found
}

/// A volume that nobody uses, with a line.
async fn idle(space: &Space) -> Value {
    let class = space.class("ext4", "WaitForFirstConsumer").await;
    space.running("idle", &class, "64Mi", As::Folder).await;
    space.shell("idle", "echo kept >/data/file && sync").await;
    let idle = space.volume_of(&space.namespace, "idle").await;
    space.remove_pod("idle").await;
    idle
}

async fn outage(space: &Space, idle: &str) {
    let machine = space.machine();
    let kubelet = machine.folder.join("kubelet");
    machine.cluster(&["stop", "apiserver"]).await;
    let begun = std::time::Instant::now();
    let outage = async {
        // First as it is still running, then after a restart with nobody to ask.
        assert_eq!(stage_and_publish(&kubelet, idle).await, "kept\n");
        let agent = machine.processes(&["localpool", "node"]);
        assert_eq!(agent.len(), 1, "one agent: {agent:?}");
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(agent[0]), nix::sys::signal::Signal::SIGKILL).unwrap();
        let another = async || {
            let now = machine.processes(&["localpool", "node"]);
            if now.len() == 1 && now != agent { Ok(()) } else { Err(now) }
        };
        eventually("kubelet starts the agent again", SOON, another).await;
        assert_eq!(stage_and_publish(&kubelet, idle).await, "kept\n");
        // And a container of a pod with a volume.
        let ticks = machine.processes(&["sh", "-c"]);
        assert!(!ticks.is_empty(), "the pod runs");
    };
    let ended = futures::FutureExt::catch_unwind(std::panic::AssertUnwindSafe(outage)).await;
    tokio::time::sleep(AWAY.saturating_sub(begun.elapsed())).await;
    machine.cluster(&["start", "apiserver"]).await;
    if let Err(panic) = ended {
        std::panic::resume_unwind(panic);
    }
}

#[test]
fn pods_run_on_and_volumes_are_staged_without_the_apiserver() {
    check(Needs::Machine, async |space| {
        let idle = quietly(async {
            ticking(space).await;
            idle(space).await
        })
        .await;
        disturbing(async {
            outage(space, name(&idle)).await;
            let text = space.shell_soon("ticks", "cat /data/ticks").await;
            let ticks: Vec<u64> = text.lines().map(|line| line.parse().unwrap()).collect();
            let gap = ticks.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap();
            assert!(gap < 10, "the pod did not write for {gap} s");
            let pod = space.get("Pod", space.here(), "ticks").await.unwrap();
            assert_eq!(pod["status"]["containerStatuses"][0]["restartCount"], 0);
            space.create(&space.pod("idle", "idle", As::Folder)).await;
            space.until_running("idle").await;
            assert_eq!(space.shell_soon("idle", "cat /data/file").await, "kept\n");
            space.running("new", "local-carved", "64Mi", As::Folder).await;
            let healthy = |node: &Value| crate::pods::is_ready(node);
            let node = space.nodes().await.remove(0);
            space.until("Node", None, &node, "is ready", healthy).await;
        })
        .await;
    });
}
