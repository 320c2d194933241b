//! Between a CreateVolume and a PoolVolume: the spec that is written, and what keeps an object that is there
//! from being the one that is asked for. Pure.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::api::crd::{FINALIZER, Intent, Phase, PoolVolume, PoolVolumeSpec, Reason, VolumeMode};
use crate::api::quantity;
use crate::operator::bytes::{bytes, signed};
use crate::volume::{Error, Nodes, VolumeId, VolumeRequest, WantedUsage};

/// How far the agent has got with an object.
pub fn phase(object: &PoolVolume) -> Phase {
    object.status.as_ref().map_or(Phase::Pending, |status| status.phase)
}

/// Whether no agent has accepted it, so that nothing of it is on a disk.
pub fn never_accepted(object: &PoolVolume) -> bool {
    match phase(object) {
        Phase::Pending | Phase::Rejected | Phase::Failed => true,
        Phase::Accepted | Phase::Ready | Phase::Found | Phase::Deleting => false,
    }
}

/// Whether its agent has a volume of this id on a disk that is another one than the object asks for.
pub fn differs(object: &PoolVolume) -> bool {
    let status = object.status.as_ref().filter(|status| status.phase == Phase::Rejected);
    status.is_some_and(|status| status.reason == Some(Reason::Differs))
}

/// The object that asks `node` for a volume. It has the finalizer from its first moment.
pub fn object(wanted: &VolumeRequest, node: &str) -> PoolVolume {
    let VolumeRequest { name, required, limit, usage, parameters, selector: _, nodes: _, patience: _ } = wanted;
    let (volume_mode, fs_type) = match usage {
        WantedUsage::Block => (VolumeMode::Block, None),
        WantedUsage::Mount(kind) => (VolumeMode::Filesystem, kind.map(|kind| kind.name().to_owned())),
    };
    let spec = PoolVolumeSpec {
        node: node.to_owned(),
        volume_name: name.clone(),
        required: signed(*required),
        limit: limit.map(signed),
        volume_mode,
        fs_type,
        parameters: BTreeMap::clone(parameters),
        size: None,
        intent: Intent::Keep,
    };
    of_spec(VolumeId::of_name(name), spec)
}

/// An object that holds on to its volume.
pub fn of_spec(id: VolumeId, spec: PoolVolumeSpec) -> PoolVolume {
    let metadata = ObjectMeta {
        name: Some(id.to_string()),
        finalizers: Some(vec![FINALIZER.to_owned()]),
        ..ObjectMeta::default()
    };
    PoolVolume { metadata, spec, status: None }
}

/// Whether the request lets the volume be on `node`.
pub fn allows(nodes: &Nodes, node: &str) -> bool {
    match nodes {
        Nodes::Any => true,
        Nodes::Preferred(nodes) | Nodes::AnyOf(nodes) => nodes.iter().any(|allowed| allowed == node),
    }
}

/// The filesystem that the volume has, or was asked for with.
pub fn filesystem(object: &PoolVolume) -> Option<&str> {
    let made = object.status.as_ref().and_then(|status| status.fs_type.as_deref());
    made.or(object.spec.fs_type.as_deref())
}

/// What keeps the object from being what is asked for.
pub fn difference(object: &PoolVolume, wanted: &VolumeRequest) -> Option<String> {
    let spec = &object.spec;
    if spec.volume_name != wanted.name {
        return Some(format!("it was made for the volume name {:?}", spec.volume_name));
    }
    if let Some(size) = object.status.as_ref().and_then(|status| status.size).map(bytes) {
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

/// What the agent says, with the name of its node before it.
pub fn words(object: &PoolVolume) -> Option<String> {
    let message = object.status.as_ref()?.message.as_deref()?;
    let node = format!("node {}", object.spec.node);
    Some(if message.starts_with(&node) { message.to_owned() } else { format!("{node}: {message}") })
}

/// Why an agent did not make it, as an answer to the caller.
pub fn refusal(object: &PoolVolume) -> Error {
    let status = object.status.as_ref();
    let words = words(object).unwrap_or_else(|| format!("node {} refused it without a reason", object.spec.node));
    match status.and_then(|status| status.reason.as_ref()) {
        // Of what failed, too: another volume was faster, no disk took it, or the node could not write it down. Nothing of it is
        // there.
        Some(Reason::Full | Reason::NoSet | Reason::DiskFailed | Reason::JournalFailed) => Error::Exhausted(words),
        Some(Reason::Limit) => Error::OutOfRange(words),
        Some(Reason::Invalid) => Error::Invalid(words),
        // A PersistentVolume tells of it: no other node may make it either.
        Some(Reason::VolumeMissing) => Error::Precondition(words),
        // Its disk has a volume of this id that no object told of.
        Some(Reason::Differs) => Error::Exists(words),
        _ if phase(object) == Phase::Failed => Error::Internal(words),
        _ => Error::Exhausted(words),
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample::{GIB, ready, rejected, wanted};
    use super::*;
    use crate::host::FsKind;

    #[test]
    fn what_was_just_asked_for_is_no_different() {
        let wanted = wanted("pvc-1");
        let mut made = object(&wanted, "n");
        assert_eq!(made.metadata.finalizers.as_deref(), Some(&[FINALIZER.to_owned()][..]));
        assert_eq!(difference(&made, &wanted), None);
        ready(&mut made, GIB);
        assert_eq!(difference(&made, &wanted), None);
        made.status.as_mut().expect("set").fs_type = Some("ext4".to_owned());
        assert_eq!(difference(&made, &wanted), None, "a filesystem left open agrees with any");
    }

    #[test]
    fn every_other_property_is_named() {
        let asked = wanted("pvc-1");
        let mut made = object(&asked, "n");
        ready(&mut made, GIB);
        made.status.as_mut().expect("set").fs_type = Some("ext4".to_owned());
        let differs = |change: &dyn Fn(&mut VolumeRequest)| {
            let mut other = asked.clone();
            change(&mut other);
            difference(&made, &other).unwrap_or_default()
        };
        assert!(differs(&|w| w.name = "pvc-2".into()).contains("pvc-1"));
        assert!(differs(&|w| w.required = 2 * GIB).contains("2Gi are asked for"));
        assert!(differs(&|w| w.limit = Some(GIB / 2)).contains("limit is 512Mi"));
        assert!(differs(&|w| w.usage = WantedUsage::Block).contains("filesystem"));
        assert!(differs(&|w| w.usage = WantedUsage::Mount(Some(FsKind::Xfs))).contains("xfs is asked for"));
        assert!(differs(&|w| w.parameters.clear()).contains("parameters"));
        assert_eq!(differs(&|w| w.usage = WantedUsage::Mount(Some(FsKind::Ext4))), "");
        assert_eq!(differs(&|w| w.required = GIB / 2), "", "larger than asked is what was asked");

        made.status = None;
        let mut other = asked.clone();
        other.required += 1;
        assert!(difference(&made, &other).expect("not made yet").contains("another size"));
        made.spec.volume_mode = VolumeMode::Block;
        assert!(difference(&made, &asked).expect("block").contains("raw block"));
    }

    #[test]
    fn each_refusal_has_the_answer_that_its_caller_can_use() {
        let object = object(&wanted("pvc-1"), "n");
        for reason in ["Full", "NoSet", "Cordoned"] {
            let error = refusal(&rejected(&object, reason));
            assert!(matches!(&error, Error::Exhausted(words) if words.contains("node n: ")), "{reason}: {error:?}");
        }
        assert!(matches!(refusal(&rejected(&object, "Limit")), Error::OutOfRange(_)));
        assert!(matches!(refusal(&rejected(&object, "Invalid")), Error::Invalid(_)));
        assert!(matches!(refusal(&rejected(&object, "Differs")), Error::Exists(_)));
    }

    #[test]
    fn a_place_that_was_lost_to_a_faster_volume_or_a_failing_disk_is_looked_for_elsewhere_and_another_failure_is_not() {
        let object = object(&wanted("pvc-1"), "n");
        let failed = |reason: &str| {
            let mut failed = rejected(&object, reason);
            failed.status.as_mut().expect("set").phase = Phase::Failed;
            refusal(&failed)
        };
        for lost in ["Full", "NoSet", "DiskFailed", "JournalFailed"] {
            assert!(matches!(failed(lost), Error::Exhausted(_)), "{lost}");
        }
        assert!(matches!(failed("Internal"), Error::Internal(_)));
    }
}
