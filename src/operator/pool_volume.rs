//! Between what a caller asks for, a PoolVolume, and what the pool is asked for: each conversion once, for the
//! controller and the agent. Pure.
//!
//! Takes in a CreateVolume, an object, or the description on a disk; gives out the object that asks a node for a
//! volume, the request that an object means, the volume that a caller sees, how an object differs from a request, and
//! the room that it is promised.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition as KubeCondition;
use kube::ResourceExt as _;
use kube::api::ObjectMeta;
use kube::core::DynamicObject;

use crate::api::{
    crd::{FINALIZER, Intent, Phase, PoolVolume, PoolVolumeSpec, PoolVolumeStatus, VolumeReason},
    quantity,
};
use crate::claim::VolumeMode;
use crate::device::{
    NodeName, SetName,
    label::{VolumeRecord, VolumeUsage},
};
use crate::health::{Condition, Finding, HealthReason};
use crate::host::{FsKind, UnknownFilesystem};
use crate::operator::bytes::{signed, unsigned};
use crate::operator::status::health;
use crate::pool::{CreateRequest, Selector, VolumeView, WantedUsage};
use crate::volume::{Error, Nodes, Volume, VolumeId, VolumeRequest};

/// A CreateVolume answers, and withdraws its object, long before this.
const STALE: SignedDuration = SignedDuration::from_mins(10);

/// Type of the condition with the health of a volume.
pub const HEALTHY: &str = "Healthy";
/// Type of the condition, and reason, of a volume whose Node object was deleted.
pub const NODE_GONE: &str = "NodeGone";
/// Type of the condition of a volume whose agent does not answer.
pub const AGENT_SILENT: &str = "AgentSilent";
/// Type of the condition of a volume whose disk another node has: `HealthReason::DiskElsewhere`.
pub const CONFLICT: &str = "Conflict";
/// Type of the condition of a volume that no PersistentVolume has named for a while.
pub const UNCLAIMED: &str = "Unclaimed";

/// How far the agent has got with an object.
pub fn phase(object: &PoolVolume) -> Phase {
    object.status.as_ref().map_or(Phase::Pending, |status| status.phase)
}

/// Whether no agent has accepted it, so that no disk has any part of it.
pub fn never_accepted(object: &PoolVolume) -> bool {
    match phase(object) {
        Phase::Pending | Phase::Rejected | Phase::Failed => true,
        Phase::Accepted | Phase::Ready | Phase::Found | Phase::Deleting => false,
    }
}

/// The node that a volume is promised on: it takes room there, and is on no disk yet.
pub fn promised_on(volume: &PoolVolume) -> Option<&NodeName> {
    matches!(phase(volume), Phase::Pending | Phase::Accepted).then_some(&volume.spec.node)
}

/// The promise of a volume that this version cannot read: all that it asks for, unless its size shows that it is on a
/// disk, where the DevicePool counts it. If its node and size cannot be read either, no room can be reserved for it.
pub fn unread(object: &DynamicObject) -> Option<PoolVolume> {
    let (spec, status) = (&object.data["spec"], &object.data["status"]);
    if status["size"].as_i64().is_some_and(|size| size > 0) {
        return None;
    }
    let parameters = spec["parameters"].as_object().into_iter().flatten();
    let spec = PoolVolumeSpec {
        node: spec["node"].as_str()?.into(),
        volume_name: spec["volumeName"].as_str().unwrap_or_default().to_owned(),
        required: spec["required"].as_i64()?,
        limit: None,
        volume_mode: VolumeMode::Block,
        fs_type: None,
        parameters: parameters.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect(),
        size: None,
        size_limit: None,
        intent: Intent::Keep,
        order: None,
        keep: None,
    };
    let mut volume = PoolVolume::new(&object.name_any(), spec);
    volume.status = Some(PoolVolumeStatus { phase: Phase::Accepted, ..PoolVolumeStatus::default() });
    Some(volume)
}

/// Whether the leader has written that no PersistentVolume has named it for a while.
pub fn is_unclaimed(volume: &PoolVolume) -> bool {
    volume.status.iter().flat_map(|status| &status.conditions).any(|condition| condition.type_ == UNCLAIMED)
}

/// Whether its agent has a volume with this id on a disk, but not the volume that the object asks for.
pub fn differs(object: &PoolVolume) -> bool {
    let status = object.status.as_ref().filter(|status| status.phase == Phase::Rejected);
    status.is_some_and(|status| status.reason == Some(VolumeReason::Differs))
}

/// The object that asks `node` for a volume. It is created with the finalizer.
pub fn object(wanted: &VolumeRequest, node: &NodeName) -> PoolVolume {
    let VolumeRequest { name, required, limit, usage, parameters, selector: _, nodes: _, timeout: _ } = wanted;
    of_spec(VolumeId::of_name(name), spec(node, name, (*required, *limit), *usage, parameters))
}

/// A volume that is kept, and about which nothing else was ordered.
fn spec(
    node: &NodeName,
    name: &str,
    (required, limit): (u64, Option<u64>),
    usage: WantedUsage,
    parameters: &BTreeMap<String, String>,
) -> PoolVolumeSpec {
    let (volume_mode, fs_type) = match usage {
        WantedUsage::Block => (VolumeMode::Block, None),
        WantedUsage::Mount(kind) => (VolumeMode::Filesystem, kind.map(|kind| kind.name().to_owned())),
    };
    PoolVolumeSpec {
        node: node.to_owned(),
        volume_name: name.to_owned(),
        required: signed(required),
        limit: limit.map(signed),
        volume_mode,
        fs_type,
        parameters: parameters.clone(),
        size: None,
        size_limit: None,
        intent: Intent::Keep,
        order: None,
        keep: None,
    }
}

/// An object with our finalizer.
pub fn of_spec(id: VolumeId, spec: PoolVolumeSpec) -> PoolVolume {
    let metadata = ObjectMeta {
        name: Some(id.to_string()),
        finalizers: Some(vec![FINALIZER.to_owned()]),
        ..ObjectMeta::default()
    };
    PoolVolume { metadata, spec, status: None }
}

/// Whether the request allows `node`.
pub fn allows(nodes: &Nodes, node: &NodeName) -> bool {
    match nodes {
        Nodes::Any => true,
        Nodes::Preferred(nodes) | Nodes::AnyOf(nodes) => nodes.iter().any(|allowed| allowed == node),
    }
}

/// The filesystem that the volume has, or that was asked for.
pub fn filesystem(object: &PoolVolume) -> Option<&str> {
    let made = object.status.as_ref().and_then(|status| status.fs_type.as_deref());
    made.or(object.spec.fs_type.as_deref())
}

/// How the object differs from what is asked for.
pub fn difference(object: &PoolVolume, wanted: &VolumeRequest) -> Option<String> {
    let spec = &object.spec;
    if spec.volume_name != wanted.name {
        return Some(format!("it was made for the volume name {:?}", spec.volume_name));
    }
    if let Some(size) = object.status.as_ref().and_then(|status| status.size).map(unsigned) {
        if size < wanted.required {
            let asked = quantity::format(wanted.required);
            return Some(format!("it has {}, and {asked} are asked for", quantity::format(size)));
        }
        if let Some(limit) = wanted.limit.filter(|limit| *limit < size) {
            let limit = quantity::format(limit);
            return Some(format!("it has {}, and the limit is {limit}", quantity::format(size)));
        }
    } else if spec.required != signed(wanted.required) || spec.limit != wanted.limit.map(signed) {
        return Some("it was asked for with another size".to_owned());
    }
    match (spec.volume_mode, wanted.usage) {
        (VolumeMode::Block, WantedUsage::Mount(_)) => return Some("it is a raw block volume".to_owned()),
        (VolumeMode::Filesystem, WantedUsage::Block) => return Some("it is a volume with a filesystem".to_owned()),
        (VolumeMode::Filesystem, WantedUsage::Mount(Some(kind))) => {
            let made = filesystem(object).unwrap_or("the filesystem of its set");
            if made != kind.name() {
                return Some(format!("it has {made}, and {} is asked for", kind.name()));
            }
        }
        (VolumeMode::Block, WantedUsage::Block) | (VolumeMode::Filesystem, WantedUsage::Mount(None)) => {}
    }
    (spec.parameters != wanted.parameters).then(|| "it was made with other parameters".to_owned())
}

/// The agent's message, with the name of its node before it.
pub fn agent_message(object: &PoolVolume) -> Option<String> {
    let message = object.status.as_ref()?.message.as_deref()?;
    let node = format!("node {}", object.spec.node);
    Some(if message.starts_with(&node) { message.to_owned() } else { format!("{node}: {message}") })
}

/// Why an agent did not make it, as an answer to the caller.
pub fn refusal(object: &PoolVolume) -> Error {
    let status = object.status.as_ref();
    let message =
        agent_message(object).unwrap_or_else(|| format!("node {} refused it without a reason", object.spec.node));
    match status.and_then(|status| status.reason.as_ref()) {
        // Failed volumes too: another volume was faster, no disk took it, or the node could not record it. No disk has
        // any part of it.
        Some(VolumeReason::Full | VolumeReason::NoSet | VolumeReason::DiskFailed | VolumeReason::JournalFailed) => {
            Error::Exhausted(message)
        }
        Some(VolumeReason::Limit) => Error::OutOfRange(message),
        Some(VolumeReason::Invalid) => Error::Invalid(message),
        // It has a PersistentVolume: no other node may make it either.
        Some(VolumeReason::VolumeMissing) => Error::Precondition(message),
        // Its disk has a volume with this id that has no object.
        Some(VolumeReason::Differs) => Error::Exists(message),
        Some(
            VolumeReason::Cordoned
            | VolumeReason::Stale
            | VolumeReason::InUse
            | VolumeReason::Found
            | VolumeReason::DiskMissing
            | VolumeReason::Conflict
            | VolumeReason::NotDescribed
            | VolumeReason::BeingZeroed
            | VolumeReason::CannotGrow
            | VolumeReason::NoSuchVolume
            | VolumeReason::Locked
            | VolumeReason::Internal
            | VolumeReason::Other(_),
        )
        | None => match phase(object) {
            Phase::Failed => Error::Internal(message),
            Phase::Pending | Phase::Rejected | Phase::Accepted | Phase::Ready | Phase::Found | Phase::Deleting => {
                Error::Exhausted(message)
            }
        },
    }
}

/// Why an object that no agent has answered is not served any more: no caller waits for it, so nobody would use its
/// volume.
pub fn stale(object: &PoolVolume, now: Timestamp) -> Option<String> {
    let age = now.duration_since(object.metadata.creation_timestamp.as_ref()?.0);
    (age > STALE).then(|| {
        format!(
            "it was requested {} minutes ago by this node's clock, and no CreateVolume call lasts that long; if it is \
             still needed, it is requested again",
            age.as_mins()
        )
    })
}

/// Why an object is no request.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    #[error("the volume {volume:?} has the id {id}, not {object}: this object was not made by the driver")]
    OtherId { volume: String, id: VolumeId, object: String },
    #[error("spec.{field} is negative: {value}")]
    Negative { field: &'static str, value: i64 },
    #[error("spec.fsType")]
    Filesystem(#[source] UnknownFilesystem),
}

/// The request that an object means, or why it is not valid.
pub fn request(object: &PoolVolume) -> Result<CreateRequest, RequestError> {
    let spec = &object.spec;
    let id = VolumeId::of_name(&spec.volume_name);
    let name = object.name_any();
    if id.to_string() != name {
        return Err(RequestError::OtherId { volume: spec.volume_name.clone(), id, object: name });
    }
    let bytes = |field, value: i64| u64::try_from(value).map_err(|_| RequestError::Negative { field, value });
    let usage = match (spec.volume_mode, &spec.fs_type) {
        (VolumeMode::Block, _) => WantedUsage::Block,
        (VolumeMode::Filesystem, None) => WantedUsage::Mount(None),
        (VolumeMode::Filesystem, Some(text)) => {
            WantedUsage::Mount(Some(text.parse::<FsKind>().map_err(RequestError::Filesystem)?))
        }
    };
    let parameter = |name: &str| spec.parameters.get(name).cloned();
    Ok(CreateRequest {
        id,
        name: spec.volume_name.clone(),
        required: bytes("required", spec.required)?,
        limit: spec.limit.map(|limit| bytes("limit", limit)).transpose()?,
        usage,
        parameters: spec.parameters.clone(),
        selector: Selector { class: parameter("class"), set: parameter("set").as_deref().map(SetName::parse) },
    })
}

/// The object of a volume that has none, from what its disk says.
pub fn restored(view: &VolumeView, record: &VolumeRecord, node: &NodeName) -> PoolVolume {
    let VolumeRecord { name, required, limit, parameters, usage, fs_size: _, found: _ } = record;
    let usage = match usage {
        VolumeUsage::Block => WantedUsage::Block,
        VolumeUsage::Mount(kind) => WantedUsage::Mount(Some(*kind)),
    };
    of_spec(view.id, spec(node, name, (*required, *limit), usage, parameters))
}

/// Whether the Node object of a volume exists.
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

/// The volume of an object; `None` if callers must not see a volume yet.
pub fn volume(object: &PoolVolume, node: NodeObject) -> Option<Volume> {
    let status = object.status.as_ref().filter(|_| phase(object) == Phase::Ready)?;
    let usage = match object.spec.volume_mode {
        VolumeMode::Block => Some(VolumeUsage::Block),
        VolumeMode::Filesystem => filesystem(object).and_then(|text| text.parse().ok()).map(VolumeUsage::Mount),
    };
    let found = unhealthy(status);
    let condition = match node {
        NodeObject::Exists => found,
        NodeObject::Deleted => beside_node_gone(found, object),
    };
    Some(Volume {
        id: object.name_any().parse().ok()?,
        name: object.spec.volume_name.clone(),
        size: unsigned(status.size?),
        usage,
        node: object.spec.node.clone(),
        found: false,
        condition,
    })
}

/// What its status says, and that its node is gone. The leader may not have written that yet.
fn beside_node_gone(found: Condition, object: &PoolVolume) -> Condition {
    if found.findings().iter().any(|finding| finding.reason == HealthReason::NodeGone) {
        return found;
    }
    let gone = Finding::new(HealthReason::NodeGone, node_gone_message(object));
    Condition::of(found.findings().iter().cloned().chain([gone]).collect())
}

/// What every face says of a volume whose Node object was deleted.
pub fn node_gone_message(object: &PoolVolume) -> String {
    format!(
        "node {} does not exist any more; its disk may still hold the data. Bring the node back, or give the volume up: order \
         Abandon in spec.order, or run `localpool volume abandon` in the controller's pod",
        object.spec.node
    )
}

/// What is wrong with a volume. An agent of an earlier version writes the worst of it only, as a condition.
pub fn unhealthy(status: &PoolVolumeStatus) -> Condition {
    let unhealthy =
        status.conditions.iter().find(|condition| condition.type_ == HEALTHY && condition.status == "False");
    match unhealthy {
        Some(KubeCondition { reason, message, .. }) if status.health.is_empty() => {
            Finding::new(HealthReason::from(reason.clone()), message.clone()).into()
        }
        Some(_) => health::condition(&status.health),
        None => Condition::default(),
    }
}

#[cfg(test)]
mod tests;
