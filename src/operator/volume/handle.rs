//! What a PersistentVolume says of a volume whose own object is missing. Pure.

use std::collections::BTreeMap;

use kube::ResourceExt as _;

use crate::api::crd::{Intent, PoolVolumeSpec};
use crate::claim::VolumeMode;
use crate::operator::kube_volume::{NodeAffinity, PersistentVolume};
use crate::volume::TOPOLOGY_KEY;

/// A PersistentVolume does not say on which node its data is.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("names no node by {TOPOLOGY_KEY}")]
pub struct NoNode;

/// The spec that orders the erasure of the volume, or why there is none.
pub fn order(volume: &PersistentVolume) -> Result<PoolVolumeSpec, NoNode> {
    let is_block = volume.volume_mode == VolumeMode::Block;
    Ok(PoolVolumeSpec {
        node: volume.affinity.as_ref().and_then(NodeAffinity::node).ok_or(NoNode)?,
        volume_name: volume.name_any(),
        required: volume.capacity,
        limit: None,
        volume_mode: volume.volume_mode,
        fs_type: volume.fs_type.clone().filter(|text| !is_block && !text.is_empty()),
        parameters: BTreeMap::new(),
        size: None,
        size_limit: None,
        intent: Intent::Delete,
        order: None,
        keep: None,
    })
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
            assert_eq!(order(&persistent(affinity)), Err(NoNode));
        }
    }
}
