//! Clusters as the controller would have them in memory, for tests of the page: a small one with some trouble, as many nodes as
//! one likes that are well, and names that would break a page.

use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::StatusPage;
use crate::api::crd::{CLAIM_ANNOTATION, CLAIM_UID_ANNOTATION, DevicePool};
use crate::operator::api_server::store::Store;
use crate::operator::overview::claim_pod::PodVolumes;
use crate::operator::stores::Stores;
use crate::volume::VolumeId;

const TIB: u64 = 1 << 40;

/// Objects, as an API server has them.
#[derive(Clone, Debug, Default)]
pub struct ClusterSample {
    pub pools: Vec<Value>,
    pub volumes: Vec<Value>,
    pub nodes: Vec<Value>,
    pub sets: Vec<Value>,
    pub pods: Vec<Value>,
}

fn store<K: kube::ResourceExt + DeserializeOwned>(objects: Vec<Value>) -> Store<K> {
    Store::of(objects.into_iter().map(|object| serde_json::from_value(object).expect("an object")), |_, _| false)
}

/// These are all pods that there are, as a watch brings them.
pub fn list_pods(page: &StatusPage, pods: &[Value]) {
    let read = |pod: &Value| serde_json::from_value::<PodVolumes>(pod.clone()).expect("a pod");
    page.pods.pods.replace(pods.iter().map(read).filter(PodVolumes::uses_claims).map(PodVolumes::trimmed).collect());
}

/// A pod that uses claims of its namespace.
pub fn pod(namespace: &str, name: &str, claims: &[&str]) -> Value {
    let volume = |claim: &&str| json!({"name": claim, "persistentVolumeClaim": {"claimName": claim}});
    let volumes: Vec<Value> = claims.iter().map(volume).collect();
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": namespace},
        "spec": {"containers": [], "volumes": volumes},
    })
}

/// All but the pods.
impl From<ClusterSample> for Stores {
    fn from(ClusterSample { pools, volumes, nodes, sets, pods: _ }: ClusterSample) -> Self {
        Self {
            pools: store(pools),
            volumes: store(volumes),
            nodes: store(nodes),
            sets: store(sets),
            local_volumes: store(Vec::new()),
            ..Self::default()
        }
    }
}

/// So many nodes with so many disks, on each of which is a volume.
pub fn well(nodes: usize, disks: usize) -> ClusterSample {
    let mut sample = ClusterSample::default();
    for at in 1..=nodes {
        sample.add_node(&format!("worker-{at:02}"), disks, at);
    }
    sample.sets.push(set("fast", "DevicesClaimed", &format!("{} devices on {nodes} nodes", nodes * disks), true));
    sample
}

/// A cluster in which something of each kind is wrong.
pub fn troubled() -> ClusterSample {
    let mut sample = well(9, 6);
    sample.fail("worker-03", 2, "DiskFailing", "SMART: the disk says that it will fail soon");
    sample.disk("worker-07", 1)["state"] = json!("Missing");
    sample.disk("worker-07", 1)["stateSince"] = json!("2026-11-30T22:14:07Z");
    sample.fail("worker-07", 1, "DiskMissing", "the disk is missing since 2026-11-30T22:14:07Z");
    sample.disk("worker-05", 3)["cordon"] = json!("a person has cordoned it");
    let silent = json!([{"type": "Ready", "status": "Unknown", "reason": "AgentSilent", "message": "no answer",
                         "lastTransitionTime": "2026-11-30T23:51:40Z"}]);
    sample.pool("worker-09")["status"]["conditions"] = silent;
    let on_it = |volume: &&mut Value| volume["spec"]["node"] == "worker-09";
    sample.volumes.iter_mut().filter(on_it).for_each(|volume| volume["status"]["state"] = json!("Unknown"));
    let offer = json!({"namespace": "localpool", "name": "bulk", "class": "bulk", "devices": 0, "partitions": 0,
                       "available": 0, "largest": 0, "smallest": 0, "blockAvailable": 0, "blockLargest": 0,
                       "blockSmallest": 0, "wouldTake": ["/dev/sdh", "/dev/sdi"]});
    sample.pool("worker-04")["status"]["sets"].as_array_mut().expect("a list").push(offer);
    sample.sets.push(set("bulk", "DryRun", "dry run: would take 2 devices on 1 node", false));
    sample
}

/// Names as a hostile disk, person or tenant may choose them, where the API server lets them.
pub fn hostile() -> ClusterSample {
    let mut sample = well(1, 2);
    let evil = "<script>document.title='owned'</script>\" onmouseover='x' <b>\u{202e}&amp;";
    let disk = sample.disk("worker-01", 0);
    (disk["model"], disk["set"], disk["message"]) = (json!(evil), json!(evil), json!(evil));
    disk["path"] = json!("/dev/disk/by-id/<img src=x onerror=alert(1)>");
    disk["id"] = json!("serial $(reboot) 'x'");
    sample.fail("worker-01", 0, "<script>", evil);
    sample.pool("worker-01")["status"]["sets"][0]["unmatched"] = json!([{"device": evil, "reason": evil}]);
    sample.volumes[1]["metadata"]["annotations"] =
        json!({CLAIM_ANNOTATION: format!("shop/{evil}"), CLAIM_UID_ANNOTATION: "u"});
    sample.pods.push(pod("shop", evil, &[evil]));
    sample.pods.push(pod("shop", &format!("{evil}2"), &[evil]));
    sample.sets.push(set("<i>", "Invalid", evil, false));
    sample
}

fn set(name: &str, reason: &str, message: &str, holds: bool) -> Value {
    let condition = |kind: &str, status: bool, reason: &str, message: &str| {
        json!({"type": kind, "status": if status { "True" } else { "False" }, "reason": reason, "message": message,
               "lastTransitionTime": "2026-11-30T08:00:00Z"})
    };
    let valid = reason != "Invalid";
    json!({
        "apiVersion": "local.storage.openshift.io/v1alpha1", "kind": "LocalVolumeSet",
        "metadata": {"name": name, "namespace": "localpool"}, "spec": {"storageClassName": name},
        "status": {"conditions": [
            condition("Available", holds, reason, message),
            condition("Valid", valid, if valid { "Valid" } else { reason }, message),
        ]},
    })
}

impl ClusterSample {
    pub fn pool(&mut self, node: &str) -> &mut Value {
        self.pools.iter_mut().find(|pool| pool["metadata"]["name"] == node).expect("a pool")
    }

    pub fn disk(&mut self, node: &str, at: usize) -> &mut Value {
        &mut self.pool(node)["status"]["disks"][at]
    }

    /// The disk gets a reason, and so do the volumes on it.
    pub fn fail(&mut self, node: &str, at: usize, reason: &str, message: &str) {
        let health = json!([{"reason": reason, "severity": "Degraded", "message": message}]);
        let disk = self.disk(node, at);
        disk["health"] = health.clone();
        let id = disk["id"].clone();
        let on_it = |volume: &&mut Value| volume["status"]["disk"] == id;
        self.volumes.iter_mut().filter(on_it).for_each(|volume| volume["status"]["health"] = health.clone());
    }

    fn add_node(&mut self, name: &str, disks: usize, seed: usize) {
        const APPS: [(&str, &str, &str); 5] = [
            ("shop", "data", "postgres"),
            ("search", "data", "elastic"),
            ("logs", "store", "loki"),
            ("queue", "data", "kafka"),
            ("media", "cache", "web"),
        ];
        self.nodes.push(json!({"metadata": {"name": name}}));
        let mut all = Vec::new();
        for at in 0..disks {
            let letter = char::from(b'b' + u8::try_from(at % 24).expect("small"));
            let id = format!("{:08x}-0000-4000-8000-{seed:06x}{at:06x}", seed * 31 + at);
            all.push(json!({
                "id": id, "path": format!("/dev/sd{letter}"), "model": "SAMSUNG MZ7L33T8HBLT-00A07", "layout": "Carved",
                "set": "localpool/fast", "size": 4 * TIB, "free": TIB, "volumes": 1, "state": "Ready",
                "stateSince": "2026-11-02T09:30:00Z",
            }));
            let (namespace, volume, app) = APPS[(seed + at) % APPS.len()];
            let number = seed * disks + at;
            let claim = format!("{volume}-{app}-{number}");
            self.pods.push(pod(namespace, &format!("{app}-{number}"), &[&claim]));
            if app == "web" {
                self.pods.push(pod(namespace, &format!("{app}-{number}-warm"), &[&claim]));
            }
            self.volumes.push(json!({
                "metadata": {"name": VolumeId::of_name(&format!("{name}-{at}")).to_string(),
                             "annotations": {CLAIM_ANNOTATION: format!("{namespace}/{claim}"), CLAIM_UID_ANNOTATION: claim}},
                "spec": {"node": name, "volumeName": format!("pvc-{seed}-{at}"), "required": TIB, "volumeMode": "Filesystem"},
                "status": {"phase": "Ready", "size": 3 * TIB, "fsType": "xfs", "disk": id, "set": "localpool/fast"},
            }));
        }
        let mut pool =
            serde_json::to_value(DevicePool::new(name, crate::api::crd::DevicePoolSpec::default())).expect("ours");
        pool["status"] = json!({
            "version": env!("CARGO_PKG_VERSION"), "disks": all,
            "sets": [{"namespace": "localpool", "name": "fast", "class": "fast", "devices": disks, "partitions": disks,
                      "available": TIB, "largest": TIB, "smallest": 1, "blockAvailable": TIB, "blockLargest": TIB,
                      "blockSmallest": 1, "unmatched": [{"device": "/dev/sda", "reason": "it is mounted at /"}]}],
            "conditions": [{"type": "Ready", "status": "True", "reason": "AgentReady", "message": "",
                            "lastTransitionTime": "2026-11-02T09:30:00Z"}],
        });
        self.pools.push(pool);
    }
}
