//! StatefulSets of three, whose pods are on different disks: what a reaction to a lost disk does with them.

use std::time::Duration;

use serde_json::{Value, json};

use crate::check::Space;
use crate::cluster::{eventually, name};
use crate::machine::Disk;
use crate::page::{in_the_controllers_pod, section, typed};
use crate::pods::{As, With as _, is_ready};
use crate::sets::MIB;

/// After the interval, one after the other.
const IN_TIME: Duration = Duration::from_secs(300);

/// Three disks of the node with room for one volume each, and one to spare.
pub struct RealDisks(Vec<Disk>);

impl RealDisks {
    pub async fn new(space: &Space) -> Self {
        let mut disks = Vec::new();
        for number in 0..4 {
            disks.push(space.machine().disk(&format!("{}-{number}", space.namespace), 128 * MIB).await);
        }
        let images: Vec<&str> = disks.iter().map(|disk| disk.image.to_str().unwrap()).collect();
        let set = space.set("real", "-").with("/spec/deviceInclusionSpec/paths", json!(images));
        that_ask(space, &set, disks.len()).await;
        Self(disks)
    }

    pub async fn remove(&self, space: &Space) {
        space.delete("LocalVolumeSet", space.here(), "real").await;
        space.until_gone("LocalVolumeSet", space.here(), "real").await;
        for disk in &self.0 {
            space.machine().remove(space, disk).await;
        }
    }
}

/// A set of so many disks. Its class and the namespace ask for the reaction.
pub async fn that_ask(space: &Space, set: &Value, disks: usize) {
    let asks = json!({"metadata": {"labels": {"localpool.dev/reaction": "StatefulSet"}}});
    space.patch("Namespace", None, &space.namespace, &asks).await;
    space.create(set).await;
    space.until_claimed(name(set), i64::try_from(disks).unwrap()).await;
    space.patch("StorageClass", None, &format!("{}-{}", space.namespace, name(set)), &asks).await;
}

/// A StatefulSet; a budget of its pods allows one to be away. Each pod has these claims of the class of a set.
pub async fn set_of_three(space: &Space, name: &str, claims: &[&str], class: &str, placement: Value) {
    let spec = space.claim("any", &format!("{}-{class}", space.namespace), "100Mi")["spec"].clone();
    let template = |claim: &&str| json!({"metadata": {"name": claim}, "spec": spec.clone()});
    let templates: Vec<Value> = claims.iter().map(template).collect();
    let mut pod = space.pod("any", "-", As::Folder).with("/spec/volumes", json!([]));
    let mount = |claim: &&str| json!({"name": claim, "mountPath": format!("/{claim}")});
    let mounts: Vec<Value> = claims.iter().map(mount).collect();
    pod = pod.with("/spec/containers/0/volumeMounts", json!(mounts));
    for (key, value) in placement.as_object().unwrap() {
        pod["spec"][key] = value.clone();
    }
    let labels = json!({"app": name});
    let object = json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet",
        "metadata": {"name": name, "namespace": space.namespace},
        "spec": {
            "serviceName": name, "replicas": 3, "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod["spec"]},
            "volumeClaimTemplates": templates,
        },
    });
    space.create(&object).await;
    let selector = format!("app={name}");
    space.kubectl(&["create", "pdb", name, "--min-available=2", "--selector", &selector]).await;
    for replica in 0..3 {
        space.until_running(&format!("{name}-{replica}")).await;
    }
}

/// One pod of a set, with what it has.
pub struct Member {
    pub pod: Value,
    pub claims: Vec<Value>,
    pub volumes: Vec<Value>,
}

impl Member {
    pub async fn of(space: &Space, pod: &str) -> Self {
        let pod = space.get("Pod", space.here(), pod).await.expect("the pod");
        let (mut claims, mut volumes) = (Vec::new(), Vec::new());
        for volume in pod["spec"]["volumes"].as_array().into_iter().flatten() {
            let Some(claim) = volume["persistentVolumeClaim"]["claimName"].as_str() else { continue };
            let claim = space.get("PersistentVolumeClaim", space.here(), claim).await.expect("its claim");
            let volume = claim["spec"]["volumeName"].as_str().expect("a claim that is bound");
            volumes.push(space.get("PersistentVolume", None, volume).await.expect("its volume"));
            claims.push(claim);
        }
        Self { pod, claims, volumes }
    }

    pub fn name(&self) -> &str {
        name(&self.pod)
    }

    pub fn uid(&self) -> &Value {
        &self.pod["metadata"]["uid"]
    }

    pub fn node(&self) -> &str {
        self.pod["spec"]["nodeName"].as_str().expect("it is scheduled")
    }

    /// Its PoolVolumes.
    pub fn handles(&self) -> Vec<&str> {
        self.volumes.iter().map(|volume| volume["spec"]["csi"]["volumeHandle"].as_str().unwrap()).collect()
    }

    /// No claim of it was deleted, and no reaction to a volume of it has begun.
    pub async fn is_kept(&self, space: &Space) {
        for (claim, volume) in self.claims.iter().zip(&self.volumes) {
            let now = space.get("PersistentVolumeClaim", space.here(), name(claim)).await.expect("the claim");
            assert_eq!(now["metadata"]["uid"], claim["metadata"]["uid"]);
            assert!(now["metadata"]["deletionTimestamp"].is_null(), "{now}");
            let now = space.get("PersistentVolume", None, name(volume)).await.expect("the volume");
            assert!(now["metadata"]["annotations"]["localpool.dev/reaction"].is_null(), "{now}");
        }
    }

    /// Nor was its pod.
    pub async fn is_untouched(&self, space: &Space) {
        self.is_kept(space).await;
        let now = space.get("Pod", space.here(), self.name()).await.expect("the pod");
        assert_eq!(&now["metadata"]["uid"], self.uid(), "{}", self.name());
        assert!(now["metadata"]["deletionTimestamp"].is_null(), "{now}");
    }

    /// Each volume is known to be lost.
    pub async fn is_lost(&self, space: &Space) {
        let is_lost = |volume: &Value| volume["metadata"]["annotations"]["localpool.dev/unusable-since"].is_string();
        for volume in &self.volumes {
            space.until("PersistentVolume", None, name(volume), "is lost", is_lost).await;
        }
    }

    /// The disk of each volume is back, with the volume.
    pub async fn is_well(&self, space: &Space) {
        let is_well = |volume: &Value| {
            let conditions = volume["status"]["conditions"].as_array();
            volume["status"]["phase"] == "Ready"
                && conditions.into_iter().flatten().any(|one| one["type"] == "Healthy" && one["status"] == "True")
        };
        for handle in self.handles() {
            space.until("PoolVolume", None, handle, "its disk is back, with it", is_well).await;
        }
    }

    /// Each volume says why nothing is done.
    pub async fn is_held(&self, space: &Space, why: &str) {
        let says = |volume: &Value| {
            let conditions = volume["status"]["conditions"].as_array();
            conditions.into_iter().flatten().any(|one| one["type"] == "Reaction" && one["reason"] == why)
        };
        for handle in self.handles() {
            space.until("PoolVolume", None, handle, &format!("is held: {why}"), says).await;
        }
    }

    /// The pod has other claims, on other volumes, and is ready.
    pub async fn is_whole_again(&self, space: &Space) -> Self {
        let poll = async || {
            for claim in &self.claims {
                let now = space.get("PersistentVolumeClaim", space.here(), name(claim)).await.ok_or("no claim")?;
                if now["metadata"]["uid"] == claim["metadata"]["uid"] || now["status"]["phase"] != "Bound" {
                    return Err("no new claim");
                }
            }
            let now = space.get("Pod", space.here(), self.name()).await.ok_or("no pod")?;
            if now["metadata"]["uid"] != *self.uid() && is_ready(&now) { Ok(()) } else { Err("no new pod") }
        };
        eventually(&format!("{} is whole again", self.name()), IN_TIME, poll).await;
        Self::of(space, self.name()).await
    }

    /// What it had waits for a person, who decides that nobody needs it.
    pub async fn let_go(&self, space: &Space) {
        self.is_well(space).await;
        for (claim, volume) in self.claims.iter().zip(&self.volumes) {
            is_retained(space, claim, name(volume)).await;
            let policy = json!({"spec": {"persistentVolumeReclaimPolicy": "Delete"}});
            space.patch("PersistentVolume", None, name(volume), &policy).await;
            space.until_gone("PersistentVolume", None, name(volume)).await;
        }
    }

    /// The same for volumes whose node never comes back, as docs/troubleshooting.md says.
    pub async fn is_forgotten(&self, space: &Space) {
        let page = section("troubleshooting.md", "A node never comes back");
        for (claim, volume) in self.claims.iter().zip(&self.volumes) {
            is_retained(space, claim, name(volume)).await;
        }
        let dry_run = page.command("pool forget --dry-run", &[("NODE", self.node())]);
        let told = in_the_controllers_pod(&dry_run).await;
        assert!(self.handles().iter().all(|volume| told.contains(volume)), "{told}");
        in_the_controllers_pod(&dry_run.replace("--dry-run ", "")).await;
        space.until_gone("DevicePool", None, self.node()).await;
        for (volume, handle) in self.volumes.iter().zip(self.handles()) {
            space.until_gone("PoolVolume", None, handle).await;
            typed(&page.command("kubectl delete pv NAME", &[("NAME", name(volume))])).await;
        }
    }
}

/// The reaction has ended, and nobody else gets the data.
async fn is_retained(space: &Space, claim: &Value, volume: &str) {
    let reacted = |volume: &Value| {
        volume["metadata"]["annotations"]["localpool.dev/reacted"].is_string()
            && volume["metadata"]["annotations"]["localpool.dev/reaction"].is_null()
            && volume["status"]["phase"] == "Released"
    };
    let kept = space.until("PersistentVolume", None, volume, "the reaction has ended", reacted).await;
    assert_eq!(kept["spec"]["persistentVolumeReclaimPolicy"], "Retain");
    assert_eq!(kept["spec"]["claimRef"]["uid"], claim["metadata"]["uid"]);
}

pub async fn members(space: &Space, set: &str) -> Vec<Member> {
    let mut all = Vec::new();
    for replica in 0..3 {
        all.push(Member::of(space, &format!("{set}-{replica}")).await);
    }
    all
}

/// With the claims of its pods.
pub async fn remove_set(space: &Space, set: &str) {
    space.delete("StatefulSet", space.here(), set).await;
    for replica in 0..3 {
        space.remove_pod(&format!("{set}-{replica}")).await;
    }
    for claim in space.list("PersistentVolumeClaim", space.here()).await {
        if name(&claim).contains(&format!("-{set}-")) {
            space.remove_claim(name(&claim)).await;
        }
    }
}
