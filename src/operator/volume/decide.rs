//! What an agent does about one volume, from its object and what is on its disks. Pure.
//!
//! A deletion without `intent: Delete` erases nothing: the object goes, and is restored from the disk. A volume whose
//! disk is away is neither made again nor forgotten.

use kube::ResourceExt as _;

use super::resize::Resize;
use crate::api::crd::{FINALIZER, Intent, Phase, PoolVolume};
use crate::device::{NodeName, label::VolumeRecord};
use crate::operator::bytes::signed;

/// What is on the disks of this node.
#[derive(Clone, Copy, Debug)]
pub enum OnDisk<'a> {
    Nothing,
    /// It may be on a disk that cannot be asked now: the one that the object names, or one that had it.
    DiskAway,
    /// It was on a disk that a person gave up while the disk was away; should that be back, it is held with the volume.
    GivenUp,
    /// A disk cannot be asked, and nothing is known of its volumes: a volume may still be made, but none is called
    /// deleted.
    NotKnown,
    Volume {
        record: Option<&'a VolumeRecord>,
        size: u64,
    },
}

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VolumeAction {
    Nothing,
    /// Accept or reject it; if accepted, make it.
    Consider,
    /// It was accepted: make it, or find that it is made.
    Make,
    /// It was accepted, and may be on a disk that cannot be asked now: report which disk.
    Wait,
    /// Erase it, then let the object go.
    Delete,
    /// Let the object go; the disk is not touched.
    LetGo,
    /// Give it that size, then report the result.
    Resize(Resize),
    /// Report its state.
    Report,
    /// A volume without an object: write one.
    Restore,
}

/// Decides about one volume of `node`.
pub fn decide(object: Option<&PoolVolume>, node: &NodeName, disk: OnDisk<'_>) -> VolumeAction {
    let Some(object) = object else {
        return match disk {
            OnDisk::Volume { record: Some(_), .. } => VolumeAction::Restore,
            // A volume without a description has no name for an object; the DevicePool reports it.
            OnDisk::Volume { record: None, .. }
            | OnDisk::Nothing
            | OnDisk::DiskAway
            | OnDisk::GivenUp
            | OnDisk::NotKnown => VolumeAction::Nothing,
        };
    };
    if object.spec.node != *node {
        return VolumeAction::Nothing;
    }
    let phase = object.status.as_ref().map_or(Phase::Pending, |status| status.phase);
    if object.metadata.deletion_timestamp.is_some() {
        return going(object, disk);
    }
    if object.spec.intent == Intent::Delete {
        // The erasure was ordered, and the object is not deleted yet: that follows. Nothing is made in between.
        return VolumeAction::Nothing;
    }
    match (phase, disk) {
        (Phase::Pending, OnDisk::Nothing | OnDisk::DiskAway | OnDisk::GivenUp | OnDisk::NotKnown) => {
            VolumeAction::Consider
        }
        (Phase::Accepted, OnDisk::DiskAway) => VolumeAction::Wait,
        // Accepted by an agent that did not name the disk before it wrote to it: any disk may have it.
        (Phase::Accepted, OnDisk::NotKnown) if names_no_disk(object) => VolumeAction::Wait,
        (Phase::Accepted, OnDisk::Nothing | OnDisk::GivenUp | OnDisk::NotKnown) => VolumeAction::Make,
        // The controller withdraws these.
        (Phase::Rejected | Phase::Failed, OnDisk::Nothing | OnDisk::DiskAway | OnDisk::GivenUp | OnDisk::NotKnown) => {
            VolumeAction::Nothing
        }
        (_, OnDisk::Volume { record: None, .. }) => VolumeAction::Report,
        (Phase::Ready | Phase::Deleting, OnDisk::Volume { size, .. }) => match wanted_size(object, size) {
            Some(wanted) => VolumeAction::Resize(wanted),
            None => VolumeAction::Report,
        },
        (_, OnDisk::Volume { .. }) | (Phase::Ready | Phase::Found | Phase::Deleting, _) => VolumeAction::Report,
    }
}

fn names_no_disk(object: &PoolVolume) -> bool {
    object.status.as_ref().is_none_or(|status| status.disk.is_none())
}

fn going(object: &PoolVolume, disk: OnDisk<'_>) -> VolumeAction {
    if !object.finalizers().iter().any(|finalizer| finalizer == FINALIZER) {
        return VolumeAction::Nothing;
    }
    match (object.spec.intent, disk) {
        (Intent::Delete, OnDisk::Volume { .. }) => VolumeAction::Delete,
        // The volume may be on the disk that is away: without the object its data would stay there for ever. An object
        // has no status if it was written from the volume's PersistentVolume.
        (Intent::Delete, OnDisk::DiskAway | OnDisk::NotKnown) => VolumeAction::Report,
        // A person said that nobody waits for the disk. If it comes back, the volume is found there.
        (Intent::Delete, OnDisk::Nothing | OnDisk::GivenUp) | (Intent::Keep, _) => VolumeAction::LetGo,
    }
}

/// The size that the spec asks for, if the volume has another one and that was not tried in vain. One that it was given,
/// and does not have any more, it is given again.
fn wanted_size(object: &PoolVolume, size: u64) -> Option<Resize> {
    let failed = object.status.as_ref().filter(|status| status.resize_error.is_some());
    let tried = failed.and_then(Resize::observed);
    Resize::of(object).filter(|wanted| wanted.size >= 0 && !wanted.is_met_by(signed(size)) && tried != Some(*wanted))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;
    use crate::api::crd::{PoolVolumeSpec, PoolVolumeStatus};
    use crate::claim::VolumeMode;
    use crate::device::{DiskId, label::VolumeUsage};

    const ALL: [Phase; 7] =
        [Phase::Pending, Phase::Rejected, Phase::Accepted, Phase::Failed, Phase::Ready, Phase::Found, Phase::Deleting];

    fn object(phase: Phase) -> PoolVolume {
        let spec = PoolVolumeSpec {
            node: "n".into(),
            volume_name: "pvc-1".to_owned(),
            required: 1 << 20,
            limit: None,
            volume_mode: VolumeMode::Block,
            fs_type: None,
            parameters: BTreeMap::new(),
            size: None,
            size_limit: None,
            intent: Intent::Keep,
            order: None,
            keep: None,
        };
        let mut object = PoolVolume::new("v", spec);
        object.metadata.finalizers = Some(vec![FINALIZER.to_owned()]);
        object.status = Some(PoolVolumeStatus { phase, ..PoolVolumeStatus::default() });
        object
    }

    fn decide(object: Option<&PoolVolume>, node: &str, disk: OnDisk<'_>) -> VolumeAction {
        super::decide(object, &node.into(), disk)
    }

    fn deleted(phase: Phase, intent: Intent) -> PoolVolume {
        let mut object = object(phase);
        object.metadata.deletion_timestamp = Some(Time(jiff::Timestamp::UNIX_EPOCH));
        object.spec.intent = intent;
        object
    }

    fn record() -> VolumeRecord {
        VolumeRecord {
            name: "pvc-1".to_owned(),
            required: 1 << 20,
            limit: None,
            parameters: BTreeMap::new(),
            usage: VolumeUsage::Block,
            fs_size: 0,
            found: false,
        }
    }

    #[test]
    fn a_deletion_by_hand_never_erases_whatever_the_phase_and_the_disk() {
        let record = record();
        for phase in ALL {
            for disk in [
                OnDisk::Nothing,
                OnDisk::DiskAway,
                OnDisk::GivenUp,
                OnDisk::NotKnown,
                OnDisk::Volume { record: Some(&record), size: 1 },
                OnDisk::Volume { record: None, size: 1 },
            ] {
                assert_eq!(
                    decide(Some(&deleted(phase, Intent::Keep)), "n", disk),
                    VolumeAction::LetGo,
                    "{phase:?} {disk:?}"
                );
            }
        }
        assert_eq!(decide(None, "n", OnDisk::Volume { record: Some(&record), size: 1 }), VolumeAction::Restore);
    }

    #[test]
    fn only_an_ordered_deletion_erases_and_an_order_alone_waits_for_the_deletion() {
        let record = record();
        let volume = OnDisk::Volume { record: Some(&record), size: 1 << 20 };
        for phase in ALL {
            assert_eq!(decide(Some(&deleted(phase, Intent::Delete)), "n", volume), VolumeAction::Delete, "{phase:?}");
            let mut ordered = object(phase);
            ordered.spec.intent = Intent::Delete;
            for disk in [volume, OnDisk::Nothing, OnDisk::DiskAway] {
                assert_eq!(decide(Some(&ordered), "n", disk), VolumeAction::Nothing, "{phase:?}");
            }
        }
    }

    #[test]
    fn an_ordered_deletion_is_not_let_go_while_the_volume_may_be_on_a_disk_that_is_away_whatever_the_phase() {
        let mut traced = deleted(Phase::Pending, Intent::Delete);
        traced.status = None;
        for object in ALL.map(|phase| deleted(phase, Intent::Delete)).into_iter().chain([traced]) {
            for disk in [OnDisk::DiskAway, OnDisk::NotKnown] {
                assert_eq!(decide(Some(&object), "n", disk), VolumeAction::Report, "{:?} {disk:?}", object.status);
            }
            for disk in [OnDisk::Nothing, OnDisk::GivenUp] {
                assert_eq!(decide(Some(&object), "n", disk), VolumeAction::LetGo, "{:?} {disk:?}", object.status);
            }
        }
    }

    #[test]
    fn another_nodes_object_is_never_acted_on() {
        let record = record();
        for phase in ALL {
            for object in [object(phase), deleted(phase, Intent::Delete), deleted(phase, Intent::Keep)] {
                let volume = OnDisk::Volume { record: Some(&record), size: 1 };
                assert_eq!(decide(Some(&object), "other", volume), VolumeAction::Nothing);
            }
        }
    }

    #[test]
    fn a_volume_is_made_once_and_not_again_while_its_disk_is_away() {
        assert_eq!(decide(Some(&object(Phase::Pending)), "n", OnDisk::Nothing), VolumeAction::Consider);
        let mut named = object(Phase::Accepted);
        named.status.as_mut().expect("set above").disk = Some(DiskId::named("gpt-1"));
        for (object, act) in [(named, VolumeAction::Make), (object(Phase::Accepted), VolumeAction::Wait)] {
            assert_eq!(decide(Some(&object), "n", OnDisk::Nothing), VolumeAction::Make);
            assert_eq!(decide(Some(&object), "n", OnDisk::NotKnown), act, "it may have been begun on any disk");
        }
        assert_eq!(decide(Some(&object(Phase::Accepted)), "n", OnDisk::DiskAway), VolumeAction::Wait);
        for phase in [Phase::Ready, Phase::Found, Phase::Deleting] {
            for disk in [OnDisk::Nothing, OnDisk::DiskAway, OnDisk::GivenUp] {
                assert_eq!(decide(Some(&object(phase)), "n", disk), VolumeAction::Report, "{phase:?}");
            }
        }
        for phase in [Phase::Rejected, Phase::Failed] {
            assert_eq!(decide(Some(&object(phase)), "n", OnDisk::Nothing), VolumeAction::Nothing);
        }
    }

    #[test]
    fn growth_is_tried_once_for_each_size() {
        let record = record();
        let volume = |size| OnDisk::Volume { record: Some(&record), size };
        let mut asked = object(Phase::Ready);
        asked.spec.size = Some(5 << 20);
        assert_eq!(
            decide(Some(&asked), "n", volume(1 << 20)),
            VolumeAction::Resize(Resize { size: 5 << 20, limit: None })
        );
        assert_eq!(decide(Some(&asked), "n", volume(5 << 20)), VolumeAction::Report);
        asked.status.as_mut().expect("set above").observed_size = Some(5 << 20);
        assert_eq!(
            decide(Some(&asked), "n", volume(1 << 20)),
            VolumeAction::Resize(Resize { size: 5 << 20, limit: None }),
            "it had that size, and lost it"
        );
        asked.status.as_mut().expect("set above").resize_error = Some("no space".to_owned());
        assert_eq!(decide(Some(&asked), "n", volume(1 << 20)), VolumeAction::Report);
    }
}
