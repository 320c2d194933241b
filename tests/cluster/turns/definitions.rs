//! All objects of localpool are deleted under running pods, and then their definitions.

use std::panic::AssertUnwindSafe;

use futures::FutureExt as _;
use kube::api::ListParams;
use serde_json::{Value, json};

use crate::check::{Needs, Space, check};
use crate::cluster::{HOME, SOON, eventually, kubectl, name, run};
use crate::peace::{disturbing, quietly};
use crate::pods::As;

const DEFINITIONS: [&str; 3] =
    ["poolvolumes.localpool.dev", "devicepools.localpool.dev", "localvolumesets.local.storage.openshift.io"];

async fn until_ready(space: &Space, volumes: &[Value]) {
    for volume in volumes {
        let back = |now: &Value| {
            now["metadata"]["uid"] != volume["metadata"]["uid"]
                && now["status"]["phase"] == "Ready"
                && now["spec"]["volumeName"] == volume["spec"]["volumeName"]
        };
        space.until("PoolVolume", None, name(volume), "is back and Ready", back).await;
    }
}

/// Two pods, in two layouts, with a line each.
async fn pods(space: &Space) -> Vec<Value> {
    let mut volumes = Vec::new();
    for (pod, class) in [("one", "local-carved"), ("two", "local-slots")] {
        space.running(pod, class, "64Mi", As::Folder).await;
        space.shell(pod, &format!("echo {pod} >/data/file && sync")).await;
        volumes.push(space.volume_of(&space.namespace, pod).await);
    }
    volumes
}

async fn run_on(space: &Space) {
    for pod in ["one", "two"] {
        assert_eq!(space.shell(pod, "echo more >>/data/more && cat /data/file").await.trim(), pod);
        let pod = space.get("Pod", space.here(), pod).await.unwrap();
        assert_eq!(pod["status"]["containerStatuses"][0]["restartCount"], 0);
    }
}

/// A new pod stages and publishes the volume that is there, and sees its line.
async fn are_made_again(space: &Space) {
    for pod in ["one", "two"] {
        space.remove_pod(pod).await;
        space.create(&space.pod(pod, pod, As::Folder)).await;
        space.until_running(pod).await;
        assert_eq!(space.shell(pod, "cat /data/file").await.trim(), pod);
    }
}

#[test]
fn all_pool_volumes_and_device_pools_deleted_under_running_pods_come_back() {
    check(Needs::Machine, async |space| {
        let volumes = quietly(pods(space)).await;
        disturbing(async {
            kubectl(&["delete", "poolvolumes,devicepools", "--all", "--timeout=5m"]).await;
            until_ready(space, &volumes).await;
            let node = volumes[0]["spec"]["node"].as_str().unwrap();
            let complete = |pool: &Value| pool["status"]["diskCount"].as_u64() > Some(0);
            space.until("DevicePool", None, node, "is back", complete).await;
            run_on(space).await;
            are_made_again(space).await;
        })
        .await;
    });
}

/// The API server answers for every kind from its own cache: after a start it may not be able to delete objects yet.
async fn until_known(space: &Space) {
    for kind in ["PoolVolume", "DevicePool", "LocalVolumeSet"] {
        let listed = async || space.api(kind, None).list(&ListParams::default().match_any()).await.map(drop);
        eventually("the API server knows the kind", SOON, listed).await;
    }
}

/// The sets of all checks, as somebody would create them.
async fn sets(space: &Space) -> Vec<Value> {
    let all = space.list("LocalVolumeSet", None).await;
    let kept = |set: &Value| {
        json!({
            "apiVersion": "local.storage.openshift.io/v1alpha1", "kind": "LocalVolumeSet",
            "metadata": {"name": set["metadata"]["name"], "namespace": set["metadata"]["namespace"]},
            "spec": set["spec"],
        })
    };
    all.iter().map(kept).collect()
}

/// Creates them again, and the objects that people had created.
async fn define(space: &Space, sets: &[Value]) {
    run(env!("CARGO_BIN_EXE_localpool"), &["crds", "--apply"]).await;
    let folder = space.machine().work.join("sets");
    // For a moment after it accepted the definitions the API server may not serve them.
    let applied = async || crate::cluster::attempt("kubectl", &["apply", "-f", folder.to_str().unwrap()]).await;
    eventually("the sets are there again", SOON, applied).await;
    for set in sets.iter().filter(|set| set["metadata"]["namespace"] != HOME) {
        // The namespace of a check that has ended may be going.
        if let Err(error) = space.try_create(set).await {
            eprintln!("{}: {error}", set["metadata"]);
        }
    }
}

#[test]
fn pods_run_on_without_the_definitions_and_everything_is_back_when_they_are() {
    check(Needs::Machine, async |space| {
        let volumes = quietly(pods(space)).await;
        disturbing(async {
            until_known(space).await;
            let sets = sets(space).await;
            let ended = AssertUnwindSafe(without_definitions(space)).catch_unwind().await;
            // Also after a failure, for the checks that follow.
            define(space, &sets).await;
            ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            until_ready(space, &volumes).await;
            for set in ["whole", "slots", "carved"] {
                let claimed = |set: &Value| set["status"]["totalProvisionedDeviceCount"].as_u64() > Some(0);
                space.until("LocalVolumeSet", Some(HOME), set, "has its disks again", claimed).await;
            }
            run_on(space).await;
            space.running("three", "local-carved", "64Mi", As::Folder).await;
        })
        .await;
    });
}

async fn without_definitions(space: &Space) {
    kubectl(&[&["delete", "crd", "--timeout=5m"], &DEFINITIONS[..]].concat()).await;
    run_on(space).await;
    are_made_again(space).await;

    // A start does not need them either.
    let agents = space.machine().processes(&["localpool", "node"]);
    for pid in &agents {
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(*pid), nix::sys::signal::Signal::SIGKILL).unwrap();
    }
    let another = async || {
        let now = space.machine().processes(&["localpool", "node"]);
        if now.len() == agents.len() && now != agents { Ok(()) } else { Err(now) }
    };
    eventually("the agent is started again", SOON, another).await;
    kubectl(&["-n", HOME, "rollout", "status", "daemonset/localpool-node", "--timeout=5m"]).await;
    are_made_again(space).await;
}
