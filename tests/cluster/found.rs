//! Volumes that were found on a disk: as docs/troubleshooting.md says, a pod uses them again, or they are erased.

use serde_json::{Value, json};

use crate::check::Space;
use crate::cluster::kubectl;
use crate::page::{in_the_controllers_pod, section, typed};
use crate::pods::{As, With as _};
use crate::simulated::SIMULATED;

impl Space {
    /// A pod on this node; its claim has the same name.
    pub fn pinned(&self, pod: &str, node: &str) -> Value {
        self.pod(pod, pod, As::Folder)
            .with("/spec/nodeSelector", json!({"kubernetes.io/hostname": node}))
            .with("/spec/tolerations", json!([{"key": SIMULATED, "operator": "Exists"}]))
    }

    pub async fn until_health(&self, volume: &str, reason: &str) {
        let has_it = |volume: &Value| {
            volume["status"]["health"].as_array().into_iter().flatten().any(|entry| entry["reason"] == reason)
        };
        self.until("PoolVolume", None, volume, &format!("has the reason {reason}"), has_it).await;
    }

    pub async fn persistent_volume(&self, claim: &str) -> String {
        self.until_bound(claim).await["spec"]["volumeName"].as_str().unwrap().to_owned()
    }

    /// A volume that was found has a PersistentVolume and a claim again, and a pod uses it.
    pub async fn used_again(&self, claim: &str, volume: &str, node: &str) {
        let of_claim = format!("{}/{claim}", self.namespace);
        let verb = section("troubleshooting.md", "A disk moves to another node")
            .command("volume pv --claim", &[("NAMESPACE/NAME", &of_claim), ("VOLUME", volume)]);
        let file = self.machine().work.join(format!("{claim}.yaml"));
        std::fs::write(&file, in_the_controllers_pod(&verb).await).unwrap();
        kubectl(&["apply", "-f", file.to_str().unwrap()]).await;
        self.create(&self.pinned(claim, node)).await;
        self.until_running(claim).await;
        self.until("PoolVolume", None, volume, "is Ready", |volume| volume["status"]["phase"] == "Ready").await;
    }

    /// With its PersistentVolume, which says Retain, and what is on the disk.
    pub async fn erased(&self, claim: &str, volume: &str) {
        let kept = self.persistent_volume(claim).await;
        self.remove_pod(claim).await;
        self.remove_claim(claim).await;
        let page = section("troubleshooting.md", "A volume whose PersistentVolume is gone");
        typed(&page.command("kubectl patch pv NAME", &[("NAME", &kept)])).await;
        self.until_gone("PoolVolume", None, volume).await;
    }
}
