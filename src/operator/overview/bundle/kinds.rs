//! The kinds of objects of a bundle, and which of each are localpool's. Pure.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Pod;
use serde_json::Value;

use super::super::node_summary::COMPONENT_LABEL;
use super::super::volumes::PodsOfPvc;
use crate::device::NodeName;
use crate::operator::api_server::object_key::ObjectKey;
use crate::volume::DRIVER_NAME;

/// A kind of which a bundle has objects. Secrets and ConfigMaps are none of them.
pub struct BundledKind {
    pub group: &'static str,
    pub version: &'static str,
    pub kind: &'static str,
    pub plural: &'static str,
    pub which: Which,
}

/// Which objects of a kind are in the bundle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    All,
    /// Those of localpool's class.
    Classes,
    /// Those of this driver.
    PersistentVolumes,
    /// Those of one of its classes.
    Claims,
    /// localpool's own pods.
    Pods,
    /// Those of the namespaces where it runs.
    Leases,
    /// Those about an object of the bundle, a node, or a pod that uses one of the claims, and those of a namespace where it runs.
    Events,
}

const LSO: &str = "local.storage.openshift.io";

const fn of(
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    plural: &'static str,
    which: Which,
) -> BundledKind {
    BundledKind { group, version, kind, plural, which }
}

/// In an order in which what is ours of one follows from those before it.
pub const KINDS: [BundledKind; 14] = [
    of("localpool.dev", "v1alpha1", "DevicePool", "devicepools", Which::All),
    of("localpool.dev", "v1alpha1", "PoolVolume", "poolvolumes", Which::All),
    of("localpool.dev", "v1alpha1", "NodeDiskSetup", "nodedisksetups", Which::All),
    of(LSO, "v1alpha1", "LocalVolumeSet", "localvolumesets", Which::All),
    of(LSO, "v1", "LocalVolume", "localvolumes", Which::All),
    of(LSO, "v1alpha1", "LocalVolumeDiscovery", "localvolumediscoveries", Which::All),
    of(LSO, "v1alpha1", "LocalVolumeDiscoveryResult", "localvolumediscoveryresults", Which::All),
    of("storage.k8s.io", "v1", "StorageClass", "storageclasses", Which::Classes),
    of("", "v1", "PersistentVolume", "persistentvolumes", Which::PersistentVolumes),
    of("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims", Which::Claims),
    of("", "v1", "Node", "nodes", Which::All),
    of("", "v1", "Pod", "pods", Which::Pods),
    of("coordination.k8s.io", "v1", "Lease", "leases", Which::Leases),
    of("", "v1", "Event", "events", Which::Events),
];

/// What is known to be localpool's.
#[derive(Debug, Default)]
pub struct OwnObjects {
    /// Where its pods are.
    namespaces: BTreeSet<String>,
    classes: BTreeSet<String>,
    /// The UIDs of the objects in the bundle.
    uids: BTreeSet<String>,
    /// The names of the nodes: kubelet's Events have no UID of them.
    nodes: BTreeSet<NodeName>,
    pods_of_pvcs: PodsOfPvc,
    /// The pods that use one of the claims.
    users: BTreeSet<ObjectKey>,
}

impl OwnObjects {
    pub fn of(pods: &[Pod], pods_of_pvcs: PodsOfPvc) -> Self {
        let namespaces = pods.iter().filter_map(kube::ResourceExt::namespace).collect();
        Self { namespaces, pods_of_pvcs, ..Self::default() }
    }

    /// The namespaces in which such objects are looked for; `None`: all.
    pub fn namespaces_of(&self, kind: &BundledKind) -> Option<&BTreeSet<String>> {
        matches!(kind.which, Which::Pods | Which::Leases).then_some(&self.namespaces)
    }

    /// Whether an object belongs into the bundle.
    pub fn has(&self, kind: &BundledKind, object: &Value) -> bool {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        match kind.which {
            Which::All | Which::Leases => true,
            Which::Classes => object["provisioner"] == DRIVER_NAME,
            Which::PersistentVolumes => object["spec"]["csi"]["driver"] == DRIVER_NAME,
            Which::Claims => self.classes.contains(&text(&object["spec"]["storageClassName"])),
            Which::Pods => object["metadata"]["labels"][COMPONENT_LABEL].is_string(),
            Which::Events => {
                let about = &object["involvedObject"];
                self.uids.contains(&text(&about["uid"]))
                    || self.namespaces.contains(&text(&object["metadata"]["namespace"]))
                    || about["kind"] == "Node" && about["name"].as_str().is_some_and(|name| self.nodes.contains(name))
                    || about["kind"] == "Pod" && self.users.contains(&key(about))
            }
        }
    }

    pub fn learn(&mut self, kind: &BundledKind, object: &Value) {
        self.uids.extend(object["metadata"]["uid"].as_str().map(str::to_owned));
        let name = || object["metadata"]["name"].as_str().map(str::to_owned);
        match (kind.which, kind.kind) {
            (Which::Classes, _) => self.classes.extend(name()),
            (_, "Node") => self.nodes.extend(name().map(NodeName::from)),
            (Which::Claims, _) => {
                let metadata = &object["metadata"];
                let namespace = metadata["namespace"].as_str().unwrap_or_default();
                let pods = self.pods_of_pvcs.get(&key(metadata)).into_iter().flatten();
                self.users.extend(pods.map(|pod| ObjectKey::new(namespace, pod.as_str())));
            }
            _ => {}
        }
    }
}

/// Of what has a namespace and a name.
fn key(object: &Value) -> ObjectKey {
    let text = |field: &str| object[field].as_str().unwrap_or_default();
    ObjectKey::new(text("namespace"), text("name"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn kind(plural: &str) -> &'static BundledKind {
        KINDS.iter().find(|kind| kind.plural == plural).expect("it is one")
    }

    #[test]
    fn no_kind_of_a_bundle_holds_secrets() {
        assert!(KINDS.iter().all(|kind| !["secrets", "configmaps"].contains(&kind.plural)));
    }

    #[test]
    fn what_is_ours_follows_from_what_was_seen_before() {
        let pod: Pod =
            serde_json::from_value(json!({"metadata": {"name": "p", "namespace": "localpool"}})).expect("a pod");
        let users = PodsOfPvc::from([("app/data".into(), ["db-0".into()].into())]);
        let mut own = OwnObjects::of(&[pod], users);
        assert_eq!(own.namespaces_of(kind("pods")).map(BTreeSet::len), Some(1));
        assert_eq!(own.namespaces_of(kind("events")), None);
        let class = json!({"metadata": {"name": "fast", "uid": "c"}, "provisioner": DRIVER_NAME});
        assert!(own.has(kind("storageclasses"), &class));
        assert!(!own.has(kind("storageclasses"), &json!({"provisioner": "other.csi"})));
        let claim = json!({"metadata": {"uid": "u", "name": "data", "namespace": "app"},
                           "spec": {"storageClassName": "fast"}});
        assert!(!own.has(kind("persistentvolumeclaims"), &claim), "its class is not known yet");
        own.learn(kind("storageclasses"), &class);
        assert!(own.has(kind("persistentvolumeclaims"), &claim));
        let event =
            |uid: &str, namespace: &str| json!({"involvedObject": {"uid": uid}, "metadata": {"namespace": namespace}});
        assert!(!own.has(kind("events"), &event("u", "app")) && own.has(kind("events"), &event("x", "localpool")));
        let about = |kind: &str, name: &str| json!({"involvedObject": {"kind": kind, "namespace": "app", "name": name}, "metadata": {"namespace": "app"}});
        assert!(!own.has(kind("events"), &about("Pod", "db-0")), "its claim is not known yet");
        own.learn(kind("persistentvolumeclaims"), &claim);
        assert!(own.has(kind("events"), &about("Pod", "db-0")) && !own.has(kind("events"), &about("Pod", "web-0")));
        own.learn(kind("nodes"), &json!({"metadata": {"name": "n", "uid": "of-n"}}));
        let of_kubelet =
            json!({"involvedObject": {"kind": "Node", "name": "n", "uid": "n"}, "metadata": {"namespace": "default"}});
        assert!(own.has(kind("events"), &of_kubelet), "kubelet takes the name for the UID, or none");
        assert!(own.has(kind("events"), &event("u", "app")));
        assert!(!own.has(kind("pods"), &json!({"metadata": {"labels": {}}})));
        assert!(own.has(kind("pods"), &json!({"metadata": {"labels": {COMPONENT_LABEL: "node"}}})));
        assert!(own.has(kind("persistentvolumes"), &json!({"spec": {"csi": {"driver": DRIVER_NAME}}})));
        assert!(!own.has(kind("persistentvolumes"), &json!({"spec": {"local": {"path": "/x"}}})));
    }
}
