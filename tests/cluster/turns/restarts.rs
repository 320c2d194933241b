//! Data and pods through restarts of everything below them.

use serde_json::{Value, json};

use crate::check::{Needs, Space, check};
use crate::cluster::{HOME, SOON, eventually, name, run};
use crate::peace::{disturbing, quietly};
use crate::pods::{With as _, is_ready};

const REPLICAS: usize = 3;

/// Three replicas, each with a line in its volume. Returns the ids of their containers.
async fn replicas(space: &Space) -> Vec<String> {
    let claim = space.claim("data", "local-carved", "64Mi");
    let template = json!({"metadata": {"name": "data"}, "spec": claim["spec"]});
    let pod = space.pod("any", "-", crate::pods::As::Folder).with("/spec/volumes", json!([]));
    let set = json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet",
        "metadata": {"name": "db", "namespace": space.namespace},
        "spec": {
            "serviceName": "db", "replicas": REPLICAS, "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": {"app": "db"}},
            "template": {"metadata": {"labels": {"app": "db"}}, "spec": pod["spec"]},
            "volumeClaimTemplates": [template],
        },
    });
    space.create(&set).await;
    for replica in names() {
        space.until_running(&replica).await;
        space.shell(&replica, &format!("echo {replica} >/data/name && sync")).await;
    }
    containers(space).await
}

fn names() -> impl Iterator<Item = String> {
    (0..REPLICAS).map(|replica| format!("db-{replica}"))
}

async fn containers(space: &Space) -> Vec<String> {
    let mut ids = Vec::new();
    for replica in names() {
        let pod = space.get("Pod", space.here(), &replica).await.expect("the replica");
        ids.push(pod["status"]["containerStatuses"][0]["containerID"].as_str().unwrap_or_default().to_owned());
    }
    ids
}

/// Each replica has its own line and can write; then each is replaced, and still has it.
async fn have_their_data(space: &Space) {
    for replica in names() {
        let line = "cat /data/name && echo more >>/data/more && sync && wc -l </data/more";
        let output = space.shell_soon(&replica, line).await;
        assert!(output.starts_with(&replica), "{output}");
    }
    for replica in names() {
        let uid = space.get("Pod", space.here(), &replica).await.unwrap()["metadata"]["uid"].clone();
        space.delete("Pod", space.here(), &replica).await;
        let new = |pod: &Value| pod["metadata"]["uid"] != uid && is_ready(pod);
        space.until("Pod", space.here(), &replica, "is created again", new).await;
        assert_eq!(space.shell_soon(&replica, "cat /data/name").await.trim(), replica);
    }
}

/// Waits until the machine can start pods again: a kubelet that has just started knows nothing yet.
async fn until_pods_start(space: &Space) {
    let pod = space.pod("after", "-", crate::pods::As::Folder);
    space.create(&pod.with("/spec/volumes", json!([])).with("/spec/containers/0/volumeMounts", json!([]))).await;
    space.until_running("after").await;
}

/// Waits for an agent that is ready and is not the earlier one.
async fn until_agent_is_back(space: &Space, before: &Value) {
    let id = |pod: &Value| pod["status"]["containerStatuses"][0]["containerID"].clone();
    let poll = async || {
        let pods = space.list("Pod", Some(HOME)).await;
        let agent = |pod: &&Value| pod["metadata"]["labels"]["app.kubernetes.io/component"] == "node";
        let found = pods.iter().find(agent).filter(|pod| is_ready(pod) && id(pod) != id(before));
        found.map(|_| ()).ok_or("not yet")
    };
    eventually("the agent is back", SOON, poll).await;
}

#[test]
fn replicas_keep_their_data_when_their_pods_are_deleted() {
    check(Needs::Cluster, async |space| {
        quietly(async {
            replicas(space).await;
            have_their_data(space).await;
        })
        .await;
    });
}

#[test]
fn replicas_run_on_when_the_driver_is_killed() {
    check(Needs::Machine, async |space| {
        let before = quietly(replicas(space)).await;
        disturbing(async {
            let agent = space.agent_pod().await;
            let processes = space.machine().processes(&["localpool", "node"]);
            assert_eq!(processes.len(), 1, "one agent: {processes:?}");
            let pid = nix::unistd::Pid::from_raw(processes[0]);
            nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).unwrap();
            until_agent_is_back(space, &agent).await;
            assert_eq!(containers(space).await, before, "the replicas have run on");
        })
        .await;
        quietly(have_their_data(space)).await;
    });
}

#[test]
fn replicas_run_on_when_the_kubelet_is_killed_and_started() {
    check(Needs::Machine, async |space| {
        let before = quietly(replicas(space)).await;
        disturbing(async {
            space.machine().cluster(&["restart", "--kill", "kubelet"]).await;
            until_pods_start(space).await;
            assert_eq!(containers(space).await, before, "the replicas have run on");
        })
        .await;
        quietly(have_their_data(space)).await;
        quietly(async {
            let node = space.nodes().await.remove(0);
            let knows = |node: &Value| {
                node["spec"]["drivers"]
                    .as_array()
                    .is_some_and(|all| all.iter().any(|one| one["name"] == crate::cluster::DRIVER))
            };
            space.until("CSINode", None, &node, "knows the driver", knows).await;
        })
        .await;
    });
}

#[test]
fn replicas_run_on_when_containerd_is_killed_and_started() {
    check(Needs::Machine, async |space| {
        let before = quietly(replicas(space)).await;
        disturbing(async {
            space.machine().cluster(&["restart", "--kill", "containerd"]).await;
            until_pods_start(space).await;
            assert_eq!(containers(space).await, before, "the replicas have run on");
        })
        .await;
        quietly(have_their_data(space)).await;
    });
}

#[test]
fn replicas_run_on_when_helm_upgrades_the_driver() {
    check(Needs::Machine, async |space| {
        let before = quietly(replicas(space)).await;
        disturbing(async {
            let agent = space.agent_pod().await;
            let chart = format!("{}/charts/localpool", env!("CARGO_MANIFEST_DIR"));
            let label = format!("node.podLabels.upgraded=at-{}", std::process::id());
            run("helm", &["upgrade", "localpool", &chart, "--namespace", HOME, "--set", &label]).await;
            let words = [
                "-n",
                HOME,
                "rollout",
                "status",
                "daemonset/localpool-node",
                "deployment/localpool-controller",
                "--timeout=5m",
            ];
            crate::cluster::kubectl(&words).await;
            until_agent_is_back(space, &agent).await;
            assert_ne!(name(&space.agent_pod().await), name(&agent), "the agent's pod is another one");
            assert_eq!(containers(space).await, before, "the replicas have run on");
        })
        .await;
        quietly(have_their_data(space)).await;
    });
}
