//! What a PersistentVolume says of a volume whose own object is missing. Pure.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{NodeSelector, PersistentVolume};
use kube::ResourceExt as _;

use crate::api::crd::{Intent, PoolVolumeSpec};
use crate::api::quantity;
use crate::claim::VolumeMode;
use crate::device::NodeName;
use crate::operator::bytes::signed;
use crate::volume::TOPOLOGY_KEY;

/// Why a PersistentVolume does not say where its data is.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum HandleError {
    #[error("has no spec")]
    NoSpec,
    #[error("names no node by {TOPOLOGY_KEY}")]
    NoNode,
}

/// The spec that orders the erasure of the volume, or why there is none.
pub fn order(volume: &PersistentVolume) -> Result<PoolVolumeSpec, HandleError> {
    let spec = volume.spec.as_ref().ok_or(HandleError::NoSpec)?;
    let required = spec.node_affinity.as_ref().and_then(|affinity| affinity.required.as_ref());
    let node = required.and_then(node).ok_or(HandleError::NoNode)?;
    let capacity = spec.capacity.as_ref().and_then(|capacity| capacity.get("storage"));
    let bytes = capacity.and_then(|quantity| quantity::parse(&quantity.0).ok()).unwrap_or_default();
    let block = spec.volume_mode.as_deref() == Some("Block");
    let csi = spec.csi.as_ref();
    Ok(PoolVolumeSpec {
        node,
        volume_name: volume.name_any(),
        required: signed(bytes),
        limit: None,
        volume_mode: if block { VolumeMode::Block } else { VolumeMode::Filesystem },
        fs_type: csi.and_then(|csi| csi.fs_type.clone()).filter(|text| !block && !text.is_empty()),
        parameters: BTreeMap::new(),
        size: None,
        intent: Intent::Delete,
        order: None,
        keep: None,
    })
}

/// The claim that it is bound to, as `namespace/name`.
pub fn bound_to(volume: &PersistentVolume) -> Option<String> {
    let phase = volume.status.as_ref().and_then(|status| status.phase.as_deref());
    let claim = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref());
    let text = |word: Option<&String>| word.cloned().unwrap_or_default();
    let claim = claim.map(|claim| format!("{}/{}", text(claim.namespace.as_ref()), text(claim.name.as_ref())));
    (phase == Some("Bound")).then(|| claim.unwrap_or_else(|| "it does not say which".to_owned()))
}

fn node(selector: &NodeSelector) -> Option<NodeName> {
    let requirements = selector.node_selector_terms.iter().flat_map(|term| term.match_expressions.iter().flatten());
    let mut ours = requirements.filter(|requirement| requirement.key == TOPOLOGY_KEY && requirement.operator == "In");
    match ours.next()?.values.as_deref()? {
        [node] => Some(node.as_str().into()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn persistent(affinity: serde_json::Value) -> PersistentVolume {
        let volume = json!({
            "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "pvc-1"},
            "spec": {
                "capacity": {"storage": "2Gi"}, "volumeMode": "Filesystem", "nodeAffinity": affinity,
                "csi": {"driver": "csi.localpool.dev", "volumeHandle": "x", "fsType": "xfs"},
            },
        });
        serde_json::from_value(volume).expect("a PersistentVolume")
    }

    fn affinity(key: &str, values: &[&str]) -> serde_json::Value {
        json!({"required": {"nodeSelectorTerms": [{"matchExpressions": [
            {"key": key, "operator": "In", "values": values},
        ]}]}})
    }

    #[test]
    fn a_persistent_volume_tells_where_its_data_is() {
        let spec = order(&persistent(affinity(TOPOLOGY_KEY, &["n"]))).expect("it says");
        assert_eq!((spec.node.as_str(), spec.required, spec.intent), ("n", 2 << 30, Intent::Delete));
        assert_eq!((spec.volume_name.as_str(), spec.fs_type.as_deref()), ("pvc-1", Some("xfs")));
    }

    #[test]
    fn one_that_does_not_say_which_node_is_refused() {
        for affinity in [json!(null), affinity("kubernetes.io/hostname", &["n"]), affinity(TOPOLOGY_KEY, &["n", "m"])] {
            assert_eq!(order(&persistent(affinity)), Err(HandleError::NoNode));
        }
    }
}
