//! What is known of a claim, and of all that could serve it.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, Node, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::ResourceExt as _;

use crate::api::crd::{DevicePool, LocalVolume, LocalVolumeSet, NodeDiskSetup, PoolVolume};
use crate::operator::api_server::error::{OperatorError, error_message};
use crate::operator::kube_volume::PersistentVolume;
use crate::operator::volume::PvcName;

/// What is known of a claim, and of all that could serve it.
pub struct PvcCase {
    pub name: PvcName,
    pub pvc: PersistentVolumeClaim,
    /// That of the claim, if there is one of that name.
    pub class: Option<StorageClass>,
    /// The one that the claim names.
    pub persistent: Option<PersistentVolume>,
    /// Those that use the claim.
    pub pods: Vec<Pod>,
    /// The last warning about it.
    pub event: Option<PvcEvent>,
    pub sets: Vec<Arc<LocalVolumeSet>>,
    pub local_volumes: Vec<Arc<LocalVolume>>,
    pub disk_setups: Vec<Arc<NodeDiskSetup>>,
    pub pools: Vec<DevicePool>,
    pub volumes: Vec<PoolVolume>,
    pub nodes: Vec<Node>,
}

/// The reason of the provisioner's warning that it did not make the volume.
const PROVISIONING_FAILED: &str = "ProvisioningFailed";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// The provisioner has asked for the volume, and did not get it.
    Refused,
    Other,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PvcEvent {
    pub at: Option<Timestamp>,
    pub kind: EventKind,
    pub text: String,
}

impl PvcEvent {
    pub fn of(event: Event) -> Option<Self> {
        let series = event.series.and_then(|series| series.last_observed_time).map(|time| time.0);
        let once = event.event_time.map(|time| time.0);
        let at = series.or(event.last_timestamp.map(|time| time.0)).or(once).or(event.first_timestamp.map(|t| t.0));
        let (reason, message) = (event.reason.unwrap_or_default(), event.message?);
        let kind = if reason == PROVISIONING_FAILED { EventKind::Refused } else { EventKind::Other };
        Some(Self { at, kind, text: format!("{reason}: {}", message.trim()) })
    }

    /// Whoever may not read Events learns everything else.
    pub fn unread(error: &OperatorError) -> Self {
        Self { at: None, kind: EventKind::Other, text: format!("not known: {}", error_message(error)) }
    }
}

/// A pod that has ended uses nothing any more.
pub fn is_ended(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

/// The node that a pod is on, or was put on.
pub fn node_of(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref().filter(|node| !node.is_empty())
}

impl PvcCase {
    /// Those that use the claim, and where each is.
    pub fn pods_text(&self) -> String {
        if self.pods.is_empty() {
            return "no pod uses it".to_owned();
        }
        let text = |pod: &Pod| {
            let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
            let mut waits = conditions.filter(|one| one.type_ == "PodScheduled" && one.status == "False");
            let name = pod.name_any();
            match (node_of(pod), waits.next().and_then(|one| one.message.as_deref())) {
                (Some(node), _) => format!("{name} on node {node}"),
                (None, Some(message)) => format!("{name}, not scheduled: {message}"),
                (None, None) => format!("{name}, not scheduled"),
            }
        };
        self.pods.iter().map(text).collect::<Vec<_>>().join("; ")
    }

    /// Those that are on no node, as kubectl takes them.
    pub fn waiting_pods(&self) -> String {
        let waiting = self.pods.iter().filter(|pod| node_of(pod).is_none());
        waiting.map(|pod| pod.name_any()).collect::<Vec<_>>().join(" ")
    }

    pub fn pod_names(&self) -> String {
        self.pods.iter().map(|pod| pod.name_any()).collect::<Vec<_>>().join(", ")
    }
}
