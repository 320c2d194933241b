//! Between a PoolVolume's spec, a request to the pool, and what a label says. Pure.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt as _;
use kube::api::ObjectMeta;

use crate::api::crd::{FINALIZER, Intent, PoolVolume, PoolVolumeSpec, VolumeMode};
use crate::device::label::{VolumeRecord, VolumeUsage};
use crate::device::set_name::SetName;
use crate::host::FsKind;
use crate::operator::bytes::signed;
use crate::pool::{CreateRequest, Selector, VolumeView, WantedUsage};
use crate::volume::VolumeId;

/// A CreateVolume that is still under way is answered, and its object withdrawn, long before this.
const STALE: SignedDuration = SignedDuration::from_mins(10);

/// Why an object that no agent has answered is not carried out any more: nobody waits for it, so its volume would be
/// nobody's.
pub fn stale(object: &PoolVolume, now: Timestamp) -> Option<String> {
    let age = now.duration_since(object.metadata.creation_timestamp.as_ref()?.0);
    (age > STALE).then(|| {
        format!(
            "it was asked for {} minutes ago by this node's clock, and no CreateVolume lasts so long; whoever still wants it asks again",
            age.as_mins()
        )
    })
}

/// The request that an object means, or why it means none.
pub fn request(object: &PoolVolume) -> Result<CreateRequest, String> {
    let spec = &object.spec;
    let id = VolumeId::of_name(&spec.volume_name);
    let name = object.name_any();
    if id.to_string() != name {
        return Err(format!(
            "the volume {:?} has the id {id}, not {name}: this object was not made by the driver",
            spec.volume_name
        ));
    }
    let bytes =
        |field: &str, value: i64| u64::try_from(value).map_err(|_| format!("spec.{field} is negative: {value}"));
    let usage = match (spec.volume_mode, &spec.fs_type) {
        (VolumeMode::Block, _) => WantedUsage::Block,
        (VolumeMode::Filesystem, None) => WantedUsage::Mount(None),
        (VolumeMode::Filesystem, Some(text)) => {
            WantedUsage::Mount(Some(text.parse::<FsKind>().map_err(|error| format!("spec.fsType: {error}"))?))
        }
    };
    let parameter = |name: &str| spec.parameters.get(name).cloned();
    Ok(CreateRequest {
        id: id.uuid(),
        name: spec.volume_name.clone(),
        required: bytes("required", spec.required)?,
        limit: spec.limit.map(|limit| bytes("limit", limit)).transpose()?,
        usage,
        parameters: spec.parameters.clone(),
        selector: Selector { class: parameter("class"), set: parameter("set").as_deref().map(SetName::parse) },
    })
}

/// The object of a volume that has none, from what its disk says.
pub fn restored(view: &VolumeView, record: &VolumeRecord, node: &str) -> PoolVolume {
    let VolumeRecord { name, required, limit, parameters, usage, fs_size: _, found: _ } = record;
    let (volume_mode, fs_type) = match usage {
        VolumeUsage::Block => (VolumeMode::Block, None),
        VolumeUsage::Mount(kind) => (VolumeMode::Filesystem, Some(kind.name().to_owned())),
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
    let metadata = ObjectMeta {
        name: Some(VolumeId::from(view.id).to_string()),
        finalizers: Some(vec![FINALIZER.to_owned()]),
        ..ObjectMeta::default()
    };
    PoolVolume { metadata, spec, status: None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::DiskId;
    use crate::device::label::SetRef;
    use crate::pool::{Standing, difference};

    fn view(usage: VolumeUsage) -> (VolumeView, VolumeRecord) {
        let record = VolumeRecord {
            name: "pvc-1".to_owned(),
            required: 5 << 20,
            limit: Some(9 << 20),
            parameters: BTreeMap::from([("class".to_owned(), "fast".to_owned())]),
            usage,
            fs_size: 0,
            found: false,
        };
        let view = VolumeView {
            id: VolumeId::of_name("pvc-1").uuid(),
            record: Some(record.clone()),
            size: 5 << 20,
            formatted: false,
            growable_to: 5 << 20,
            set: SetRef::new(SetName::new("d", "s"), "u"),
            disk: DiskId::named("gpt-1"),
            standing: Standing::Ready,
            conflict: None,
            node: Default::default(),
        };
        (view, record)
    }

    #[test]
    fn an_object_that_was_made_anew_from_the_disk_asks_for_just_what_is_there() {
        for usage in [VolumeUsage::Block, VolumeUsage::Mount(FsKind::Xfs)] {
            let (view, record) = view(usage);
            let object = restored(&view, &record, "n");
            let request = request(&object).expect("a valid object");
            assert_eq!(request.id, view.id);
            assert_eq!(request.selector.class.as_deref(), Some("fast"));
            assert_eq!(difference(&record, view.size, &request), None);
        }
    }

    #[test]
    fn an_object_that_is_older_than_any_call_is_stale_and_one_without_an_age_is_not() {
        let (view, record) = view(VolumeUsage::Block);
        let mut object = restored(&view, &record, "n");
        let at = |minutes| Timestamp::UNIX_EPOCH + SignedDuration::from_mins(minutes);
        assert_eq!(stale(&object, at(99)), None);
        object.metadata.creation_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(at(0)));
        assert_eq!(stale(&object, at(10)), None);
        assert_eq!(stale(&object, at(-5)), None, "another clock");
        assert!(stale(&object, at(11)).expect("nobody waits").contains("11 minutes"));
    }

    #[test]
    fn an_object_made_by_hand_is_refused_in_words() {
        let (view, record) = view(VolumeUsage::Block);
        let object = restored(&view, &record, "n");
        let refused = |change: &dyn Fn(&mut PoolVolume)| {
            let mut object = object.clone();
            change(&mut object);
            request(&object).expect_err("refused")
        };
        assert!(refused(&|o| o.metadata.name = Some("mine".to_owned())).contains("not made by the driver"));
        assert!(refused(&|o| o.spec.required = -1).contains("spec.required is negative"));
        let zfs = |o: &mut PoolVolume| {
            (o.spec.volume_mode, o.spec.fs_type) = (VolumeMode::Filesystem, Some("zfs".to_owned()))
        };
        assert!(refused(&zfs).starts_with("spec.fsType: "));
    }
}
