//! A PoolVolume as the edges see it. Pure.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition as KubeCondition;
use kube::ResourceExt as _;

use super::spec::{filesystem, phase};
use crate::api::crd::{Phase, PoolVolume, VolumeMode};
use crate::device::label::VolumeUsage;
use crate::operator::bytes::bytes;
use crate::volume::{Condition, Volume};

/// Type of the condition that says how a volume is.
pub const HEALTHY: &str = "Healthy";
/// Type of the condition, and reason, of a volume whose Node object was deleted.
pub const NODE_GONE: &str = "NodeGone";

/// Whether the Node object of a volume is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeObject {
    Exists,
    Deleted,
}

impl NodeObject {
    pub fn of<T>(found: Option<T>) -> Self {
        if found.is_some() { Self::Exists } else { Self::Deleted }
    }
}

/// The volume of an object; `None` where there is none that a caller may know of.
pub fn volume(object: &PoolVolume, node: NodeObject) -> Option<Volume> {
    let status = object.status.as_ref().filter(|_| phase(object) == Phase::Ready)?;
    let usage = match object.spec.volume_mode {
        VolumeMode::Block => Some(VolumeUsage::Block),
        VolumeMode::Filesystem => filesystem(object).and_then(|text| text.parse().ok()).map(VolumeUsage::Mount),
    };
    let condition = match node {
        NodeObject::Exists => condition(&status.conditions),
        NodeObject::Deleted => {
            Condition::abnormal(NODE_GONE, format!("node {} does not exist any more", object.spec.node))
        }
    };
    Some(Volume {
        id: object.name_any().parse().ok()?,
        name: object.spec.volume_name.clone(),
        size: bytes(status.size?),
        usage,
        node: object.spec.node.clone(),
        found: false,
        condition,
    })
}

fn condition(conditions: &[KubeCondition]) -> Condition {
    match conditions.iter().find(|condition| condition.type_ == HEALTHY && condition.status == "False") {
        Some(KubeCondition { reason, message, .. }) => Condition::abnormal(reason.clone(), message.clone()),
        None => Condition::healthy(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample::{GIB, in_phase, status_condition};
    use super::*;
    use crate::host::FsKind;
    use crate::volume::VolumeId;

    #[test]
    fn only_a_ready_volume_is_seen() {
        for phase in [Phase::Pending, Phase::Rejected, Phase::Failed, Phase::Accepted, Phase::Found, Phase::Deleting] {
            assert_eq!(volume(&in_phase(phase), NodeObject::Exists), None, "{phase:?}");
        }
        let seen = volume(&in_phase(Phase::Ready), NodeObject::Exists).expect("Ready");
        assert_eq!(seen.id, VolumeId::of_name("pvc-1"));
        assert_eq!((seen.size, seen.node.as_str(), seen.usage), (GIB, "n", Some(VolumeUsage::Mount(FsKind::Ext4))));
        assert!(!seen.condition.abnormal);
        let mut by_hand = in_phase(Phase::Ready);
        by_hand.metadata.name = Some("mine".to_owned());
        assert_eq!(volume(&by_hand, NodeObject::Exists), None);
    }

    #[test]
    fn its_condition_is_what_the_agent_says_and_its_nodes_absence() {
        let mut object = in_phase(Phase::Ready);
        object.status.as_mut().expect("set").conditions =
            vec![status_condition(HEALTHY, "False", "DiskMissing", "unplugged")];
        let seen = |node| volume(&object, node).expect("Ready").condition;
        assert_eq!(seen(NodeObject::Exists), Condition::abnormal("DiskMissing", "unplugged".to_owned()));
        assert_eq!(seen(NodeObject::Deleted).reason, NODE_GONE);
    }
}
