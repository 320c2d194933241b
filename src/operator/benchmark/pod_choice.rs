//! In which container of which pod a command runs, or why in none now. Pure.

use k8s_openapi::api::core::v1::{Container, ContainerStatus, Pod};
use kube::ResourceExt as _;

use super::in_pod::{PodOf, WantedCommand};
use super::io_properties::is_same_path;
use crate::device::NodeName;
use crate::operator::persistent_volume::pod_pvcs::pvc_names;

/// A container that runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodTarget {
    pub namespace: String,
    pub pod: String,
    pub container: String,
}

/// Chooses among the pods of the claim's namespace. A claim that two pods use has none: one of them may be at work.
pub fn choose(pods: &[Pod], of: &PodOf, node: &NodeName, wanted: &WantedCommand) -> Result<PodTarget, String> {
    let PodOf { namespace, claim } = of;
    let uses = |pod: &&Pod| !has_ended(pod) && pvc_names(pod).contains(claim);
    let using: Vec<&Pod> = pods.iter().filter(uses).collect();
    let pod = match using[..] {
        [] => return Err(format!("no pod uses claim {namespace}/{claim}")),
        [pod] => pod,
        [first, second, ..] => {
            let (first, second) = (first.name_any(), second.name_any());
            return Err(format!(
                "pods {first} and {second} both use claim {namespace}/{claim}: one of them may be at work"
            ));
        }
    };
    let name = pod.name_any();
    if pod.metadata.deletion_timestamp.is_some() {
        return Err(format!("pod {namespace}/{name} is being deleted"));
    }
    let on = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
    if on != Some(node.as_str()) {
        let on = on.map_or_else(|| "no node yet".to_owned(), |on| format!("node {on}"));
        return Err(format!("pod {namespace}/{name} is on {on}"));
    }
    let container = container(pod, of, wanted).map_err(|why| format!("pod {namespace}/{name}: {why}"))?;
    Ok(PodTarget { namespace: namespace.to_string(), pod: name, container })
}

/// Whether nothing of a pod runs any more, or will.
fn has_ended(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

/// In the order in which they start: an init container that runs holds up all after it.
fn containers(pod: &Pod) -> Vec<&Container> {
    let spec = pod.spec.iter();
    spec.flat_map(|spec| spec.init_containers.iter().flatten().chain(&spec.containers)).collect()
}

fn container(pod: &Pod, of: &PodOf, wanted: &WantedCommand) -> Result<String, String> {
    let all = containers(pod);
    let mount_point = &wanted.mount_point;
    match &wanted.command.container {
        Some(name) => {
            let Some(container) = all.iter().find(|container| container.name == *name) else {
                let names: Vec<&str> = all.iter().map(|container| container.name.as_str()).collect();
                return Err(format!("it has no container {name:?}; it has {}", names.join(", ")));
            };
            if !mounts(pod, of, container, mount_point) {
                return Err(format!("container {name} does not mount claim {} at {mount_point}", of.claim));
            }
            state(pod, name).map_err(|state| format!("container {name} does not run: {state}"))?;
            Ok(name.clone())
        }
        None => {
            let mounting: Vec<&&Container> =
                all.iter().filter(|container| mounts(pod, of, container, mount_point)).collect();
            if mounting.is_empty() {
                return Err(format!("no container mounts claim {} at {mount_point}", of.claim));
            }
            let running = mounting.iter().find(|container| state(pod, &container.name).is_ok());
            running.map(|container| container.name.clone()).ok_or_else(|| {
                let say = |container: &&&Container| {
                    let name = &container.name;
                    state(pod, name).err().map(|state| format!("{name} ({state})"))
                };
                let states: Vec<String> = mounting.iter().filter_map(say).collect();
                format!("no container that mounts claim {} runs: {}", of.claim, states.join(", "))
            })
        }
    }
}

fn mounts(pod: &Pod, of: &PodOf, container: &Container, mount_point: &str) -> bool {
    let name = pod.name_any();
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    let is_claim = |volume: &&k8s_openapi::api::core::v1::Volume| match &volume.persistent_volume_claim {
        Some(pvc) => pvc.claim_name == of.claim.as_str(),
        None => volume.ephemeral.is_some() && format!("{name}-{}", volume.name) == of.claim.as_str(),
    };
    let names: Vec<&str> = volumes.filter(is_claim).map(|volume| volume.name.as_str()).collect();
    let mut mounted = container.volume_mounts.iter().flatten();
    mounted.any(|mount| names.contains(&mount.name.as_str()) && is_same_path(&mount.mount_path, mount_point))
}

/// Whether a container runs, or what it does instead.
fn state(pod: &Pod, container: &str) -> Result<(), String> {
    let statuses = pod.status.iter().flat_map(|status| {
        status.init_container_statuses.iter().flatten().chain(status.container_statuses.iter().flatten())
    });
    let status = statuses.filter(|status| status.name == container).find_map(|status: &ContainerStatus| {
        let state = status.state.as_ref()?;
        let reason = |word: Option<&String>| word.cloned().unwrap_or_else(|| "no reason is said".to_owned());
        Some(match (&state.running, &state.waiting, &state.terminated) {
            (Some(_), ..) => Ok(()),
            (None, Some(waiting), _) => Err(format!("waiting, {}", reason(waiting.reason.as_ref()))),
            (None, None, Some(ended)) => Err(format!("ended, {}", reason(ended.reason.as_ref()))),
            (None, None, None) => Err("not started".to_owned()),
        })
    });
    status.unwrap_or_else(|| Err("not started".to_owned()))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::{Value, json};

    use super::*;
    use crate::api::PodCommand;

    /// A pod whose init container `wait` runs, and whose container `main` does not yet. Both have the volume.
    fn pod(name: &str, change: impl FnOnce(&mut Value)) -> Pod {
        let container = |name: &str| {
            let mounts = json!([{"name": "data", "mountPath": "/data/"}, {"name": "other", "mountPath": "/other"}]);
            json!({"name": name, "volumeMounts": mounts})
        };
        let mut pod = json!({
            "metadata": {"name": name, "namespace": "s"},
            "spec": {
                "nodeName": "n",
                "volumes": [
                    {"name": "data", "persistentVolumeClaim": {"claimName": "c"}},
                    {"name": "other", "persistentVolumeClaim": {"claimName": "d"}},
                ],
                "initContainers": [{"name": "copy"}, container("wait")],
                "containers": [container("main")],
            },
            "status": {
                "phase": "Pending",
                "initContainerStatuses": [status("copy", "terminated"), status("wait", "running")],
                "containerStatuses": [status("main", "waiting")],
            },
        });
        change(&mut pod);
        serde_json::from_value(pod).expect("a pod")
    }

    fn status(name: &str, state: &str) -> Value {
        let state = json!({state: match state {
            "running" => json!({}),
            "terminated" => json!({"exitCode": 0, "reason": "Completed"}),
            _ => json!({"reason": "PodInitializing"}),
        }});
        json!({"name": name, "state": state, "image": "i", "imageID": "i", "ready": false, "restartCount": 0})
    }

    fn chosen(pods: &[Pod], container: Option<&str>, mount_point: &str) -> Result<String, String> {
        let of = PodOf { namespace: "s".into(), claim: "c".into() };
        let command = PodCommand {
            command: vec!["iotune".to_owned()],
            container: container.map(str::to_owned),
            timeout: Duration::from_secs(1),
        };
        let wanted = WantedCommand { command, mount_point: mount_point.to_owned(), pods: vec![of.clone()] };
        choose(pods, &of, &"n".into(), &wanted).map(|target| {
            assert_eq!(target.namespace, "s");
            format!("{}/{}", target.pod, target.container)
        })
    }

    fn why(pods: &[Pod], container: Option<&str>, mount_point: &str) -> String {
        chosen(pods, container, mount_point).expect_err("none now")
    }

    #[test]
    fn it_is_the_first_container_that_runs_and_has_the_volume_unless_one_is_named() {
        let waiting = [pod("a", |_| {}), pod("z", |pod| pod["spec"]["volumes"] = json!([]))];
        assert_eq!(chosen(&waiting, None, "/data").as_deref(), Ok("a/wait"));
        assert_eq!(chosen(&waiting, Some("wait"), "/data/").as_deref(), Ok("a/wait"));
        let both = pod("a", |pod| pod["status"]["containerStatuses"] = json!([status("main", "running")]));
        assert_eq!(chosen(std::slice::from_ref(&both), None, "/data").as_deref(), Ok("a/wait"));
        assert_eq!(chosen(&[both], Some("main"), "/data").as_deref(), Ok("a/main"));
        let ephemeral = pod("x", |pod| pod["spec"]["volumes"][0] = json!({"name": "data", "ephemeral": {}}));
        assert_eq!(why(&[ephemeral], None, "/data"), "no pod uses claim s/c");
        let own = pod("x", |pod| pod["spec"]["volumes"][0] = json!({"name": "data", "ephemeral": {}}));
        let of = PodOf { namespace: "s".into(), claim: "x-data".into() };
        assert!(mounts(&own, &of, containers(&own)[1], "/data"));
    }

    #[test]
    fn a_container_that_is_not_there_or_does_not_run_or_has_no_volume_is_named_with_what_is_there() {
        let waiting = [pod("a", |_| {})];
        assert_eq!(
            why(&waiting, Some("scylla"), "/data"),
            "pod s/a: it has no container \"scylla\"; it has copy, wait, main"
        );
        assert_eq!(
            why(&waiting, Some("main"), "/data"),
            "pod s/a: container main does not run: waiting, PodInitializing"
        );
        assert_eq!(why(&waiting, Some("copy"), "/data"), "pod s/a: container copy does not mount claim c at /data");
        assert_eq!(
            why(&waiting, Some("wait"), "/other"),
            "pod s/a: container wait does not mount claim c at /other",
            "that is another claim"
        );
        assert_eq!(why(&waiting, None, "/var/lib/scylla"), "pod s/a: no container mounts claim c at /var/lib/scylla");
        let ended = pod("a", |pod| {
            pod["status"]["initContainerStatuses"] = json!([status("wait", "terminated")]);
            pod["status"]["containerStatuses"] = Value::Null;
        });
        let said = "pod s/a: no container that mounts claim c runs: wait (ended, Completed), main (not started)";
        assert_eq!(why(&[ended], None, "/data"), said);
        let new = pod("a", |pod| pod["status"] = json!({"phase": "Pending"}));
        assert_eq!(why(&[new], Some("wait"), "/data"), "pod s/a: container wait does not run: not started");
    }

    #[test]
    fn a_pod_that_ended_does_not_count_and_one_that_is_deleted_or_elsewhere_is_waited_for() {
        let ended = pod("old", |pod| pod["status"]["phase"] = "Failed".into());
        assert_eq!(why(std::slice::from_ref(&ended), None, "/data"), "no pod uses claim s/c");
        assert_eq!(chosen(&[ended, pod("a", |_| {})], None, "/data").as_deref(), Ok("a/wait"));
        let deleted = pod("a", |pod| pod["metadata"]["deletionTimestamp"] = "2026-03-01T00:00:00Z".into());
        assert_eq!(why(&[deleted], None, "/data"), "pod s/a is being deleted");
        let elsewhere = pod("a", |pod| pod["spec"]["nodeName"] = "other".into());
        assert_eq!(why(&[elsewhere], None, "/data"), "pod s/a is on node other");
        let unplaced = pod("a", |pod| pod["spec"]["nodeName"] = Value::Null);
        assert_eq!(why(&[unplaced], None, "/data"), "pod s/a is on no node yet");
    }

    #[test]
    fn a_claim_that_two_pods_use_has_none_as_one_of_them_may_be_at_work() {
        let two =
            [pod("a", |_| {}), pod("b", |pod| pod["metadata"]["deletionTimestamp"] = "2026-03-01T00:00:00Z".into())];
        assert_eq!(why(&two, None, "/data"), "pods a and b both use claim s/c: one of them may be at work");
    }
}
