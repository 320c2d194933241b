use super::super::volume::sample::{self, GIB, in_phase, ready, rejected, status_condition, wanted};
use super::*;
use crate::api::crd::HealthEntry;
use crate::device::VolumeId;
use crate::host::chain;

#[test]
fn what_was_just_asked_for_is_no_different() {
    let wanted = wanted("pvc-1");
    let mut made = object(&wanted, &"n".into());
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
    let mut made = object(&asked, &"n".into());
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
    let object = object(&wanted("pvc-1"), &"n".into());
    for reason in ["Full", "NoSet", "Cordoned"] {
        let error = refusal(&rejected(&object, reason));
        assert!(matches!(&error, Error::Exhausted(message) if message.contains("node n: ")), "{reason}: {error:?}");
    }
    assert!(matches!(refusal(&rejected(&object, "Limit")), Error::OutOfRange(_)));
    assert!(matches!(refusal(&rejected(&object, "Invalid")), Error::Invalid(_)));
    assert!(matches!(refusal(&rejected(&object, "Differs")), Error::Exists(_)));
}

#[test]
fn a_place_that_was_lost_to_a_faster_volume_or_a_failing_disk_is_looked_for_elsewhere_and_another_failure_is_not() {
    let object = object(&wanted("pvc-1"), &"n".into());
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
    let view = VolumeView { record: Some(record.clone()), ..sample::view() };
    (view, record)
}

#[test]
fn an_object_that_was_written_again_from_the_disk_asks_for_just_what_is_there() {
    for usage in [VolumeUsage::Block, VolumeUsage::Mount(FsKind::Xfs)] {
        let (view, record) = view(usage);
        let object = restored(&view, &record, &"n".into());
        let request = request(&object).expect("a valid object");
        assert_eq!(request.id, view.id);
        assert_eq!(request.selector.class.as_deref(), Some("fast"));
        assert_eq!(crate::pool::difference(&record, view.size, &request), None);
    }
}

#[test]
fn an_object_that_is_older_than_any_call_is_stale_and_one_without_an_age_is_not() {
    let (view, record) = view(VolumeUsage::Block);
    let mut object = restored(&view, &record, &"n".into());
    let at = |minutes| Timestamp::UNIX_EPOCH + SignedDuration::from_mins(minutes);
    assert_eq!(stale(&object, at(99)), None);
    object.metadata.creation_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(at(0)));
    assert_eq!(stale(&object, at(10)), None);
    assert_eq!(stale(&object, at(-5)), None, "another clock");
    assert!(stale(&object, at(11)).expect("nobody waits").contains("11 minutes"));
}

#[test]
fn an_object_made_by_hand_is_refused_with_a_message() {
    let (view, record) = view(VolumeUsage::Block);
    let object = restored(&view, &record, &"n".into());
    let refused = |change: &dyn Fn(&mut PoolVolume)| {
        let mut object = object.clone();
        change(&mut object);
        chain(&request(&object).expect_err("refused"))
    };
    assert!(refused(&|o| o.metadata.name = Some("mine".to_owned())).contains("not made by the driver"));
    assert!(refused(&|o| o.spec.required = -1).contains("spec.required is negative"));
    let zfs =
        |o: &mut PoolVolume| (o.spec.volume_mode, o.spec.fs_type) = (VolumeMode::Filesystem, Some("zfs".to_owned()));
    assert!(refused(&zfs).starts_with("spec.fsType: "));
}

#[test]
fn only_a_ready_volume_is_seen() {
    for phase in [Phase::Pending, Phase::Rejected, Phase::Failed, Phase::Accepted, Phase::Found, Phase::Deleting] {
        assert_eq!(volume(&in_phase(phase), NodeObject::Exists), None, "{phase:?}");
    }
    let ready = volume(&in_phase(Phase::Ready), NodeObject::Exists).expect("Ready");
    assert_eq!(ready.id, VolumeId::of_name("pvc-1"));
    assert_eq!((ready.size, ready.node.as_str(), ready.usage), (GIB, "n", Some(VolumeUsage::Mount(FsKind::Ext4))));
    assert!(ready.condition.is_healthy());
    let mut by_hand = in_phase(Phase::Ready);
    by_hand.metadata.name = Some("mine".to_owned());
    assert_eq!(volume(&by_hand, NodeObject::Exists), None);
}

#[test]
fn its_condition_is_what_the_agent_says_and_its_nodes_absence() {
    let mut object = in_phase(Phase::Ready);
    object.status.as_mut().expect("set").conditions =
        vec![status_condition(HEALTHY, "False", "DiskMissing", "unplugged")];
    let condition = |node| volume(&object, node).expect("Ready").condition;
    assert_eq!(condition(NodeObject::Exists), Finding::new(HealthReason::DiskMissing, "unplugged").into());
    let gone = Finding::new(HealthReason::NodeGone, node_gone_message(&object));
    let both = vec![gone, Finding::new(HealthReason::DiskMissing, "unplugged")];
    assert_eq!(condition(NodeObject::Deleted), Condition::of(both), "the leader has not written it yet");
    let entry = |reason: &str, message: &str| HealthEntry {
        reason: reason.to_owned(),
        severity: "Degraded".to_owned(),
        message: message.to_owned(),
        since: None,
        confirmed_by: None,
    };
    let list = vec![entry("DiskMissing", "unplugged"), entry("DiskTemperature", "71 °C")];
    object.status.as_mut().expect("set").health = list;
    let condition = volume(&object, NodeObject::Exists).expect("Ready").condition;
    assert_eq!(condition.message(), "unplugged; 71 °C", "all that a later agent says is wrong");

    let message = node_gone_message(&object);
    object.status.as_mut().expect("set").health.push(entry(NODE_GONE, &message));
    let condition = volume(&object, NodeObject::Deleted).expect("Ready").condition;
    assert_eq!(condition.message(), format!("unplugged; {message}; 71 °C"), "what the leader has written is said once");
}
