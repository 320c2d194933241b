//! Claims and pods: what users write, as JSON, and what a test does with them.

use serde_json::{Value, json};

use crate::check::Space;
use crate::cluster::{DRIVER, SOON, attempt, eventually};

/// An object, with some of its fields set to something else.
pub trait With {
    fn with(self, pointer: &str, value: Value) -> Self;
}

impl With for Value {
    /// `pointer` is a JSON pointer; whatever is missing on the way is created, as objects.
    fn with(mut self, pointer: &str, value: Value) -> Self {
        let mut at = &mut self;
        for word in pointer.trim_start_matches('/').split('/') {
            at = match word.parse::<usize>() {
                Ok(index) if at.is_array() => &mut at[index],
                _ => &mut at[word.replace("~1", "/")],
            };
        }
        *at = value;
        self
    }
}

/// How a pod sees a claim: at /data, or as the device /dev/data.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum As {
    Folder,
    Device,
}

impl Space {
    pub fn claim(&self, name: &str, class: &str, size: &str) -> Value {
        json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {"name": name, "namespace": self.namespace},
            "spec": {
                "storageClassName": class,
                "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": size}},
            },
        })
    }

    pub fn block_claim(&self, name: &str, class: &str, size: &str) -> Value {
        self.claim(name, class, size).with("/spec/volumeMode", json!("Block"))
    }

    /// A class for this check alone, on the carved disks, with a filesystem.
    pub async fn class(&self, fs_type: &str, binding: &str) -> String {
        let parameters = json!({"class": "local-carved", "csi.storage.k8s.io/fstype": fs_type});
        self.class_with(fs_type, binding, parameters).await
    }

    pub async fn class_with(&self, word: &str, binding: &str, parameters: Value) -> String {
        // Classes are cluster-wide, so it has the check's name; it is removed with the check.
        let name = format!("{}-{word}", self.namespace);
        let class = json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name},
            "provisioner": DRIVER,
            "parameters": parameters,
            "volumeBindingMode": binding,
            "allowVolumeExpansion": true,
        });
        self.create(&class).await;
        name
    }

    /// A pod that waits, with one claim.
    pub fn pod(&self, name: &str, claim: &str, seen: As) -> Value {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": self.namespace},
            "spec": {
                "terminationGracePeriodSeconds": 1,
                "containers": [{"name": "app", "image": self.image, "imagePullPolicy": "IfNotPresent"}],
                "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}],
            },
        });
        match seen {
            As::Folder => pod.with("/spec/containers/0/volumeMounts", json!([{"name": "data", "mountPath": "/data"}])),
            As::Device => {
                pod.with("/spec/containers/0/volumeDevices", json!([{"name": "data", "devicePath": "/dev/data"}]))
            }
        }
    }

    /// A claim and a pod that uses it, both called `name`; returns when the pod is running.
    pub async fn running(&self, name: &str, class: &str, size: &str, seen: As) {
        let claim = match seen {
            As::Folder => self.claim(name, class, size),
            As::Device => self.block_claim(name, class, size),
        };
        self.create(&claim).await;
        self.create(&self.pod(name, name, seen)).await;
        self.until_running(name).await;
    }

    pub async fn until_running(&self, pod: &str) -> Value {
        self.until("Pod", self.here(), pod, "is ready", is_ready).await
    }

    pub async fn until_bound(&self, claim: &str) -> Value {
        let bound = |claim: &Value| claim["status"]["phase"] == "Bound";
        self.until("PersistentVolumeClaim", self.here(), claim, "is bound", bound).await
    }

    /// Deletes a pod and waits until it is gone, with its mounts.
    pub async fn remove_pod(&self, pod: &str) {
        self.delete("Pod", self.here(), pod).await;
        self.until_gone("Pod", self.here(), pod).await;
    }

    /// Deletes a claim, and waits until its PersistentVolume is gone too, if that is to be deleted.
    pub async fn remove_claim(&self, claim: &str) {
        let pv = self.get("PersistentVolumeClaim", self.here(), claim).await;
        let pv = pv.and_then(|claim| claim["spec"]["volumeName"].as_str().map(str::to_owned));
        self.delete("PersistentVolumeClaim", self.here(), claim).await;
        self.until_gone("PersistentVolumeClaim", self.here(), claim).await;
        if let Some(pv) = pv {
            let kept = self.get("PersistentVolume", None, &pv).await;
            if kept.is_some_and(|pv| pv["spec"]["persistentVolumeReclaimPolicy"] == "Delete") {
                self.until_gone("PersistentVolume", None, &pv).await;
            }
        }
    }

    /// Runs a line of shell in a pod.
    pub async fn shell(&self, pod: &str, line: &str) -> String {
        self.try_shell(pod, line).await.unwrap_or_else(|output| panic!("{output}"))
    }

    pub async fn try_shell(&self, pod: &str, line: &str) -> Result<String, String> {
        attempt("kubectl", &["--namespace", &self.namespace, "exec", pod, "--", "sh", "-c", line]).await
    }

    /// As `shell`, while the connection to the pod may still fail.
    pub async fn shell_soon(&self, pod: &str, line: &str) -> String {
        eventually(&format!("`{line}` in pod {pod}"), SOON, async || self.try_shell(pod, line).await).await
    }
}

pub fn is_ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array();
    conditions.into_iter().flatten().any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}
