//! A pod that waits for the speed of its disk, as the proposal's sidecar does: for a file, without the API. And the set that
//! the controller writes for a NodeDiskSetup.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures::FutureExt as _;
use serde_json::{Value, json};

use crate::check::{Needs, Space, check};
use crate::cluster::{HOME, SOON, eventually, kubectl, run};
use crate::pods::As;

/// Whether the claim of a pod has the annotation.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Consent {
    Given,
    NotGiven,
}

const MAP: &str = "localpool-node-tuner";

fn setup(space: &Space, is_disabled: bool) -> Value {
    json!({
        "apiVersion": "localpool.dev/v1alpha1", "kind": "NodeDiskSetup", "metadata": {"name": space.namespace},
        "spec": {"diskSetupDisabled": true, "pvProvisionerDisabled": true, "diskBenchmarkDisabled": is_disabled},
    })
}

/// A pod with a claim and the results; it runs at once, and its main program would wait for the file.
async fn running(space: &Space, class: &str, name: &str, consent: Consent) -> String {
    let mut claim = space.claim(name, class, "32Mi");
    if consent == Consent::Given {
        claim["metadata"]["annotations"] = json!({"localpool.dev/benchmark": "true"});
    }
    space.create(&claim).await;
    let mut pod = space.pod(name, name, As::Folder);
    let results = json!({"name": "tuner", "configMap": {"name": MAP, "optional": true}});
    pod["spec"]["volumes"].as_array_mut().unwrap().push(results);
    let mounted = json!({"name": "tuner", "mountPath": "/tuner"});
    pod["spec"]["containers"][0]["volumeMounts"].as_array_mut().unwrap().push(mounted);
    space.create(&pod).await;
    space.until_running(name).await;
    let claim = space.get("PersistentVolumeClaim", space.here(), name).await.unwrap();
    let volume = space.get("PersistentVolume", None, claim["spec"]["volumeName"].as_str().unwrap()).await.unwrap();
    format!("/tuner/iosetup-{}", volume["metadata"]["uid"].as_str().unwrap())
}

/// kubelet shows a new key within a minute or two.
async fn until_shown(space: &Space, pod: &str, file: &str) -> String {
    let line = format!("test -e {file} && cat {file} && echo .");
    eventually(&format!("{pod} sees {file}"), 4 * SOON, async || space.try_shell(pod, &line).await).await
}

#[test]
fn a_node_disk_setup_has_a_set_that_follows_it_and_goes_with_it() {
    check(Needs::Machine, async |space| {
        let nobody = json!({"nodeSelector": {"localpool.dev/nobody-has": &space.namespace}});
        let setup = json!({
            "apiVersion": "localpool.dev/v1alpha1", "kind": "NodeDiskSetup", "metadata": {"name": space.namespace},
            "spec": {"placement": nobody, "pvProvisionerDisabled": true, "diskBenchmarkDisabled": true},
        });
        space.create(&setup).await;
        let set = format!("node-disk-setup-{}", space.namespace);
        let until = async |what: &str, holds: &dyn Fn(&Value) -> bool| {
            space.until("LocalVolumeSet", Some(HOME), &set, what, holds).await
        };
        until("is made", &|set| set["spec"]["layout"] == "Directory").await;
        let more = json!({"spec": {"minDeviceCount": 3}});
        space.patch("NodeDiskSetup", None, &space.namespace, &more).await;
        until("follows", &|set| set["spec"]["minDeviceCount"] == 3).await;
        space.delete("NodeDiskSetup", None, &space.namespace).await;
        space.until_gone("LocalVolumeSet", Some(HOME), &set).await;
    });
}

#[test]
fn a_pod_waits_for_the_file_of_its_volume_and_goes_on_though_the_disk_cannot_be_measured() {
    check(Needs::Machine, async |space| {
        space.create(&setup(space, false)).await;
        // Its volumes come in a later second.
        tokio::time::sleep(Duration::from_secs(2)).await;
        let class = space.class("ext4", "WaitForFirstConsumer").await;
        // Nobody measures for this one, and its pod goes on at once.
        let file = running(space, &class, "silent", Consent::NotGiven).await;
        assert_eq!(until_shown(space, "silent", &file).await, ".\n");
        let pools = space.list("DevicePool", None).await;
        let asked = |pool: &Value| pool["spec"]["benchmarks"].as_array().is_some_and(|asked| !asked.is_empty());
        assert!(!pools.iter().any(asked), "{pools:?}");
        space.remove_pod("silent").await;
        space.remove_claim("silent").await;

        let file = running(space, &class, "failing", Consent::Given).await;
        // The volume is too small for a benchmark.
        assert_eq!(until_shown(space, "failing", &file).await, ".\n");
        let failed = async || {
            let pools = space.list("DevicePool", None).await;
            let disks = pools.iter().flat_map(|pool| pool["status"]["disks"].as_array().cloned().unwrap_or_default());
            let results: Vec<Value> = disks.map(|disk| disk["benchmark"].clone()).collect();
            let is_it = |result: &Value| {
                result["state"] == "Failed"
                    && result["message"].as_str().is_some_and(|why| why.contains("needs 640 MiB"))
            };
            if results.iter().any(is_it) { Ok(()) } else { Err(results) }
        };
        eventually("a DevicePool says why", SOON, failed).await;

        let disabled = json!({"spec": {"diskBenchmarkDisabled": true}});
        space.patch("NodeDiskSetup", None, &space.namespace, &disabled).await;
        let file = running(space, &class, "disabled", Consent::Given).await;
        assert_eq!(until_shown(space, "disabled", &file).await, ".\n");

        for name in ["failing", "disabled"] {
            space.remove_pod(name).await;
            space.remove_claim(name).await;
        }
        let keys = async || {
            let map = space.get("ConfigMap", space.here(), MAP).await;
            match map.and_then(|map| map["data"].as_object().cloned()).unwrap_or_default() {
                keys if keys.is_empty() => Ok(()),
                keys => Err(keys),
            }
        };
        eventually("the keys went with the volumes", SOON, keys).await;
        space.delete("NodeDiskSetup", None, &space.namespace).await;
    });
}

/// The chart of this tree: commands may run in the pods of this namespace, or of none.
async fn allow(space: Option<&str>) {
    let chart = concat!(env!("CARGO_MANIFEST_DIR"), "/charts/localpool");
    let value = space.map(|space| format!("controller.nodeDiskSetup.execNamespaces={{{space}}}"));
    let set = value.iter().flat_map(|value| ["--set", value]);
    let upgrade = ["upgrade", "localpool", chart, "--namespace", HOME];
    run("helm", &upgrade.into_iter().chain(set).collect::<Vec<_>>()).await;
    kubectl(&["-n", HOME, "rollout", "status", "deployment/localpool-controller", "--timeout=5m"]).await;
}

/// A pod whose init container waits for the result, as the proposal's sidecar does, and leaves it for the main one.
fn that_waits(space: &Space) -> Value {
    let line = "echo 4321 >/data/speed; readlink /proc/self/ns/mnt >/data/waits; \
                until ls /tuner/iosetup-* >/dev/null 2>&1; do sleep 1; done; cat /tuner/iosetup-* >/data/result";
    let mut pod = space.pod("waits", "waits", As::Folder);
    let results = json!({"name": "tuner", "configMap": {"name": MAP, "optional": true}});
    pod["spec"]["volumes"].as_array_mut().unwrap().push(results);
    let mounts = json!([{"name": "data", "mountPath": "/data"}, {"name": "tuner", "mountPath": "/tuner"}]);
    pod["spec"]["initContainers"] = json!([{
        "name": "tune", "image": pod["spec"]["containers"][0]["image"], "imagePullPolicy": "IfNotPresent",
        "command": ["sh", "-c", line], "volumeMounts": mounts,
    }]);
    pod
}

async fn play_in_pod(space: &Space) {
    // It reads what the container that waits has written into the volume, and says where it runs itself.
    let line = "speed=$(cat /data/speed) && readlink /proc/self/ns/mnt >/data/runs && hostname >/data/host && \
                echo told >&2 && printf 'disks:\n- mountpoint: /data\n  read_iops: %s\n  read_bandwidth: 2\n  \
                write_iops: 3\n  write_bandwidth: 4\n' \"$speed\"";
    let mut object = setup(space, false);
    object["spec"]["diskBenchmarkOptions"] =
        json!({"mountPoint": "/data", "runIn": "Pod", "command": ["sh", "-c", line], "timeoutSeconds": 60});
    space.create(&object).await;
    // Its volumes come in a later second.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let class = space.class("ext4", "WaitForFirstConsumer").await;
    let mut claim = space.claim("waits", &class, "32Mi");
    claim["metadata"]["annotations"] = json!({"localpool.dev/benchmark": "true"});
    space.create(&claim).await;
    space.create(&that_waits(space)).await;
    // kubelet shows a new key within a minute or two.
    let running = async || match space.get("Pod", space.here(), "waits").await {
        Some(pod) if pod["status"]["phase"] == "Running" => Ok(()),
        pod => Err(pod.map(|pod| pod["status"].clone())),
    };
    eventually("the pod goes on", 6 * SOON, running).await;
    space.until_running("waits").await;
    let result = space.shell("waits", "cat /data/result").await;
    assert!(result.contains("mountpoint: /data") && result.contains("read_iops: 4321"), "{result}");
    assert_eq!(space.shell("waits", "cat /data/host").await, "waits\n");
    let spaces = space.shell("waits", "cat /data/waits /data/runs").await;
    let [waits, runs] = spaces.lines().collect::<Vec<_>>()[..] else { panic!("{spaces}") };
    assert_eq!(waits, runs, "in the mount namespace of the container that waits");
    let setup = space.get("NodeDiskSetup", None, &space.namespace).await.unwrap();
    let conditions = setup["status"]["conditions"].as_array().unwrap();
    let in_pods = conditions.iter().find(|condition| condition["type"] == "BenchmarksInPods").unwrap();
    assert_eq!(in_pods["status"], "True", "{in_pods}");
    space.remove_pod("waits").await;
    space.remove_claim("waits").await;
}

#[test]
fn the_command_of_a_setup_runs_in_the_pod_that_waits_and_the_pod_goes_on_with_what_it_printed() {
    check(Needs::Machine, async |space| {
        allow(Some(&space.namespace)).await;
        let ended = AssertUnwindSafe(play_in_pod(space)).catch_unwind().await;
        space.delete("NodeDiskSetup", None, &space.namespace).await;
        allow(None).await;
        ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
}
