//! Who else wants a volume: a PersistentVolume with its handle and this node's affinity.

use k8s_openapi::api::core::v1::{Namespace, NodeSelectorTerm, PersistentVolume};
use kube::{Api, Client, ResourceExt as _};

use crate::device::NodeName;
use crate::operator::error::OperatorError;
use crate::volume::{DRIVER_NAME, TOPOLOGY_KEY, VolumeId};

/// The annotation that names the provisioner.
pub const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";

/// The UID that identifies a cluster: that of its `kube-system` namespace.
pub async fn cluster_uid(client: Client) -> Result<String, OperatorError> {
    let namespaces: Api<Namespace> = Api::all(client);
    let what = "reading the namespace kube-system, whose UID names the cluster on its disks";
    let system = namespaces.get("kube-system").await.map_err(OperatorError::api(what))?;
    system.uid().ok_or_else(|| OperatorError::Refused("the namespace kube-system has no UID".to_owned()))
}

/// Whether a PersistentVolume claims the volume for this node.
pub fn claims(volume: &PersistentVolume, id: VolumeId, node: &NodeName) -> bool {
    let Some(spec) = &volume.spec else { return false };
    let handle = id.to_string();
    let ours = spec.csi.as_ref().is_some_and(|csi| csi.driver == DRIVER_NAME && csi.volume_handle == handle);
    let terms = spec.node_affinity.as_ref().and_then(|affinity| affinity.required.as_ref());
    ours && terms.is_some_and(|terms| terms.node_selector_terms.iter().any(|term| names(term, node)))
}

fn names(term: &NodeSelectorTerm, node: &NodeName) -> bool {
    term.match_expressions.iter().flatten().any(|wanted| {
        let values = wanted.values.as_deref().unwrap_or_default();
        wanted.key == TOPOLOGY_KEY && wanted.operator == "In" && matches!(values, [value] if node == value)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn volume(driver: &str, handle: &str, node: &str) -> PersistentVolume {
        let value = serde_json::json!({
            "metadata": {"name": "pvc-1"},
            "spec": {
                "csi": {"driver": driver, "volumeHandle": handle},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [
                    {"matchExpressions": [{"key": TOPOLOGY_KEY, "operator": "In", "values": [node]}]},
                ]}},
            },
        });
        serde_json::from_value(value).expect("a PersistentVolume")
    }

    #[test]
    fn only_a_persistent_volume_of_this_driver_handle_and_node_claims_a_volume() {
        let id = VolumeId::of_name("pvc-1");
        let (handle, n) = (id.to_string(), NodeName::from("n"));
        assert!(claims(&volume(DRIVER_NAME, &handle, "n"), id, &n));
        assert!(!claims(&volume("other.csi", &handle, "n"), id, &n));
        assert!(!claims(&volume(DRIVER_NAME, "x", "n"), id, &n));
        assert!(!claims(&volume(DRIVER_NAME, &handle, "m"), id, &n));
        assert!(!claims(&PersistentVolume::default(), id, &n));
    }
}
