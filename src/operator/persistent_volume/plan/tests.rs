use serde_json::{Value, json};

use super::super::volume_plan::VolumeChange;
use super::*;
use crate::api::crd::{
    CLAIM_ANNOTATION, CLAIM_UID_ANNOTATION, HealthEntry, PERSISTENT_VOLUME_ANNOTATION, Phase, VolumeOrder,
};
use crate::api::quantity;
use crate::operator::bytes::signed;
use crate::operator::kube_volume::{FIRST_MARK_TIME, PvcReference};
use crate::operator::persistent_volume::reserve::Reservation;
use crate::operator::volume::sample::{in_phase, pool, status_condition};
use crate::volume::{DRIVER_NAME, TOPOLOGY_KEY};

const GRACE: i64 = 60;

fn node(name: &str, hostname: &str, ready: &str) -> Arc<Node> {
    let node = json!({
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": hostname, "zone": "z"}},
        "status": {"conditions": [{"type": "Ready", "status": ready, "lastTransitionTime": "2026-01-01T00:00:00Z"}]},
    });
    Arc::new(serde_json::from_value(node).expect("a Node"))
}

fn affinity(key: &str, values: &[&str]) -> Value {
    json!({"required": {"nodeSelectorTerms": [{"matchExpressions": [{"key": key, "operator": "In", "values": values}]}]}})
}

fn local(name: &str, affinity: Value) -> Arc<PersistentVolume> {
    let value = json!({
        "metadata": {"name": name, "uid": name},
        "spec": {"local": {"path": "/mnt/x"}, "nodeAffinity": affinity},
    });
    Arc::new(serde_json::from_value(value).expect("a PersistentVolume"))
}

fn own(id: VolumeId, phase: &str) -> Arc<PersistentVolume> {
    let value = json!({
        "metadata": {"name": "pvc-1", "uid": "u"},
        "spec": {"csi": {"driver": DRIVER_NAME, "volumeHandle": id.to_string()}, "nodeAffinity": affinity(TOPOLOGY_KEY, &["n"])},
        "status": {"phase": phase},
    });
    Arc::new(serde_json::from_value(value).expect("a PersistentVolume"))
}

fn at(seconds: i64) -> Now {
    Now {
        wall: Timestamp::from_second(1_767_225_600 + seconds).expect("a time"),
        monotonic: SignedDuration::from_secs(seconds),
    }
}

/// `name: marks` of each change.
fn words(plan: &MarkPlan) -> Vec<String> {
    let word = |(volume, change): &(Arc<PersistentVolume>, MarkChange)| {
        let unmarked = change.unmarked.iter().map(|key| format!("-{key}"));
        let all: Vec<String> = change.marked.iter().cloned().chain(unmarked).collect();
        format!("{}: {}", volume.name_any(), all.join(" "))
    };
    plan.changes.iter().map(word).collect()
}

#[test]
fn a_local_volume_has_the_node_that_its_affinity_selects_by_whatever_label() {
    let nodes = [node("n", "host-n", "True"), node("m", "m", "True")];
    let index = NodeIndex::of(&nodes);
    let home = |affinity| index.home(&local("v", affinity));
    assert_eq!(home(affinity("kubernetes.io/hostname", &["host-n"])), Home::Node("n".into()));
    assert_eq!(home(affinity("kubernetes.io/hostname", &["n"])), Home::Gone("n".into()), "it is no hostname");
    assert_eq!(home(affinity("kubernetes.io/hostname", &["gone"])), Home::Gone("gone".into()));
    assert_eq!(home(affinity("kubernetes.io/hostname", &["m", "host-n"])), Home::NotOne);
    assert_eq!(home(affinity("kubernetes.io/hostname", &["m", "gone"])), Home::Node("m".into()));
    assert_eq!(home(affinity("zone", &["z"])), Home::NotOne);
    assert_eq!(home(json!(null)), Home::NotOne);
    let by_field = json!({"required": {"nodeSelectorTerms": [
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]},
    ]}});
    assert_eq!(home(by_field), Home::Node("n".into()));
}

#[test]
fn a_volume_of_the_driver_that_promises_more_than_it_has_is_marked_after_the_grace_and_unmarked_when_it_fits() {
    let mut planner = Planner::new(SignedDuration::from_secs(GRACE), ReservePolicy::Never);
    let mut volume = in_phase(Phase::Ready);
    volume.spec.node = "n".into();
    let id: VolumeId = volume.name_any().parse().expect("an id");
    volume.status.as_mut().expect("set").size = Some(1 << 30);
    let view = |capacity: &str, annotations: Value| {
        let mut persistent = PersistentVolume::clone(&own(id, "Bound"));
        persistent.capacity = signed(quantity::parse(capacity).expect("a capacity"));
        persistent.metadata.annotations = serde_json::from_value(annotations).expect("annotations");
        View {
            persistent: vec![Arc::new(persistent)],
            volumes: [(id, Arc::new(volume.clone()))].into(),
            nodes: vec![node("n", "n", "True")],
            ..View::default()
        }
    };
    let mut plan = |capacity: &str, annotations: Value, seconds| {
        let plan = planner.plan(&view(capacity, annotations), at(seconds));
        (words(&plan), plan.due, plan.marked.values().sum::<i64>())
    };
    let none = || json!({});
    assert_eq!(plan("1Gi", none(), 1000), (vec![], None, 0));
    assert_eq!(plan("2Gi", none(), 1005), (vec![], Some(SignedDuration::from_secs(GRACE)), 0), "it may be growing");
    let (marked, due, count) = plan("2Gi", none(), 1065);
    assert_eq!((marked, due, count), (vec!["pvc-1: MisMatchedVolSize".to_owned()], None, 1));
    let is_marked = || json!({"MisMatchedVolSize": "yes", "FirstMarkTime": "2026-01-01T00:01:05Z"});
    assert_eq!(plan("2Gi", is_marked(), 1066).0, [] as [String; 0]);
    assert_eq!(plan("1Gi", is_marked(), 1067).0, ["pvc-1: -MisMatchedVolSize"]);
}

#[test]
fn volumes_of_a_node_that_is_not_ready_are_marked_after_the_grace_and_unmarked_after_it() {
    let mut planner = Planner::new(SignedDuration::from_secs(GRACE), ReservePolicy::Never);
    let volume = local("v", affinity("kubernetes.io/hostname", &["n"]));
    let view = |ready: &str, volume: &Arc<PersistentVolume>| View {
        persistent: vec![Arc::clone(volume)],
        nodes: vec![node("n", "n", ready)],
        ..View::default()
    };
    let plan = planner.plan(&view("Unknown", &volume), at(10));
    assert_eq!((words(&plan), plan.due), (vec![], Some(SignedDuration::from_secs(50))));
    assert_eq!(words(&planner.plan(&view("Unknown", &volume), at(60))), ["v: NodeNotReady"]);
    let (mut marked, since) = ((*volume).clone(), "2026-01-01T00:01:00Z");
    marked.metadata.annotations = Some(
        [("NodeNotReady", "yes"), (FIRST_MARK_TIME, since), (marks::UNUSABLE_SINCE, since)]
            .map(|(k, v)| (k.to_owned(), v.to_owned()))
            .into(),
    );
    let marked = Arc::new(marked);
    let plan = planner.plan(&view("True", &marked), at(70));
    assert_eq!((words(&plan), plan.due), (vec![], Some(SignedDuration::from_secs(60))), "it may go again");
    assert_eq!(words(&planner.plan(&view("True", &marked), at(130))), ["v: -NodeNotReady"]);
    let gone = View { nodes: vec![], ..view("True", &volume) };
    assert_eq!(words(&planner.plan(&gone, at(200))), [""; 0]);
    assert_eq!(words(&planner.plan(&gone, at(260))), ["v: NodeGone"]);
}

#[test]
fn a_volume_of_this_driver_has_the_marks_of_its_health_and_loses_them_with_it() {
    let mut planner = Planner::new(SignedDuration::from_secs(GRACE), ReservePolicy::Never);
    let mut volume = in_phase(Phase::Ready);
    let id: VolumeId = volume.name_any().parse().expect("an id");
    let entry = |reason: &str| HealthEntry {
        reason: reason.to_owned(),
        severity: String::new(),
        message: String::new(),
        since: None,
        confirmed_by: None,
    };
    volume.status.as_mut().expect("set").health = vec![entry("DiskMissing"), entry("DiskTemperature")];
    let view = |volume: &PoolVolume, persistent: Arc<PersistentVolume>| View {
        persistent: vec![persistent],
        volumes: [(id, Arc::new(volume.clone()))].into(),
        nodes: vec![node("n", "n", "True")],
        ..View::default()
    };
    assert_eq!(words(&planner.plan(&view(&volume, own(id, "Bound")), at(100))), ["pvc-1: DiskMissing"]);
    let mut marked = (*own(id, "Bound")).clone();
    marked.metadata.annotations = Some(
        [("DiskMissing", "yes"), ("FirstMarkTime", "2026-01-01T00:01:00Z")]
            .map(|(k, v)| (k.to_owned(), v.to_owned()))
            .into(),
    );
    volume.status.as_mut().expect("set").health = vec![];
    assert_eq!(words(&planner.plan(&view(&volume, Arc::new(marked)), at(101))), ["pvc-1: -DiskMissing"]);
}

#[test]
fn a_volume_whose_object_is_gone_is_missing_unless_it_is_being_deleted_or_cannot_be_read() {
    let id = VolumeId::of_name("pvc-1");
    let missing = |phase: &str, unread: bool| {
        let mut planner = Planner::new(SignedDuration::from_secs(GRACE), ReservePolicy::Never);
        let view = View {
            persistent: vec![own(id, phase)],
            unread: unread.then_some(id).into_iter().collect(),
            nodes: vec![node("n", "n", "True")],
            ..View::default()
        };
        assert_eq!(words(&planner.plan(&view, at(100))), [""; 0]);
        words(&planner.plan(&view, at(160)))
    };
    assert_eq!(missing("Bound", false), ["pvc-1: VolumeMissing"]);
    assert_eq!(missing("Released", false), [""; 0]);
    assert_eq!(missing("Bound", true), [""; 0]);
}

#[test]
fn a_volume_that_no_persistent_volume_names_is_counted_after_ten_times_the_grace() {
    let mut planner = Planner::new(SignedDuration::from_secs(GRACE), ReservePolicy::Never);
    let volume = Arc::new(in_phase(Phase::Ready));
    let id: VolumeId = volume.name_any().parse().expect("an id");
    let view = |persistent| View { persistent, volumes: [(id, Arc::clone(&volume))].into(), ..View::default() };
    let plan = planner.plan(&view(vec![]), at(0));
    assert_eq!(
        (plan.volumes.unclaimed, plan.volumes.changes.len(), plan.due),
        (0, 0, Some(SignedDuration::from_mins(10)))
    );
    let claimed = View { nodes: vec![node("n", "n", "True")], ..view(vec![own(id, "Bound")]) };
    assert_eq!(planner.plan(&claimed, at(300)).due, None, "it begins again");
    assert_eq!(planner.plan(&view(vec![]), at(301)).volumes.unclaimed, 0);
    let plan = planner.plan(&view(vec![]), at(901));
    assert_eq!((plan.volumes.unclaimed, plan.volumes.changes.len()), (1, 1));
    let mut marked = (*volume).clone();
    marked.status.as_mut().expect("set").conditions = match &plan.volumes.changes[0].1 {
        VolumeChange::Conditions(all) => all.clone(),
        other => panic!("{other:?}"),
    };
    let after = View { volumes: [(id, Arc::new(marked))].into(), ..View::default() };
    let plan = Planner::new(SignedDuration::from_secs(GRACE), ReservePolicy::Never).plan(&after, at(902));
    assert_eq!((plan.volumes.unclaimed, plan.volumes.changes.len()), (1, 0), "another leader takes nothing back");
}

#[test]
fn a_volume_of_this_driver_whose_object_and_node_are_gone_is_marked_for_both() {
    let id = VolumeId::of_name("pvc-1");
    let mut planner = Planner::new(SignedDuration::from_secs(GRACE), ReservePolicy::Never);
    let view = View { persistent: vec![own(id, "Bound")], ..View::default() };
    assert_eq!(words(&planner.plan(&view, at(0))), [""; 0]);
    assert_eq!(words(&planner.plan(&view, at(60))), ["pvc-1: VolumeMissing NodeGone"]);
}

#[test]
fn an_order_to_erase_is_carried_out_when_no_persistent_volume_names_the_volume_and_the_claim_is_written_once() {
    let mut volume = in_phase(Phase::Found);
    volume.spec.order = Some(VolumeOrder::Erase);
    let id: VolumeId = volume.name_any().parse().expect("an id");
    let mut planner = Planner::new(SignedDuration::from_secs(GRACE), ReservePolicy::Never);
    let mut changes = |volume: &PoolVolume, persistent: Vec<Arc<PersistentVolume>>| {
        let volumes = [(id, Arc::new(volume.clone()))].into();
        let view = View { persistent, volumes, nodes: vec![node("n", "n", "True")], ..View::default() };
        let plan = planner.plan(&view, at(0)).volumes;
        plan.changes.into_iter().map(|(_, change)| change).collect::<Vec<_>>()
    };
    assert!(changes(&volume, vec![]).contains(&VolumeChange::CarryOut(VolumeOrder::Erase)));
    let mut bound = (*own(id, "Bound")).clone();
    bound.pvc = Some(PvcReference { namespace: Some("d".into()), name: Some("data".into()), uid: Some("c1".into()) });
    let bound = Arc::new(bound);
    let named = changes(&volume, vec![Arc::clone(&bound)]);
    let written = [
        (CLAIM_ANNOTATION, Some("d/data".to_owned())),
        (CLAIM_UID_ANNOTATION, Some("c1".to_owned())),
        (PERSISTENT_VOLUME_ANNOTATION, Some("pvc-1".to_owned())),
    ];
    assert_eq!(named[0], VolumeChange::Annotations(written.clone().into()));
    assert!(matches!(&named[1..], [VolumeChange::Conditions(_)]), "{named:?}");
    volume.spec.order = None;
    let written = written.map(|(key, value)| (key.to_owned(), value.expect("written")));
    volume.metadata.annotations = Some(written.into());
    assert_eq!(changes(&volume, vec![bound]), [], "nothing is written twice");
    let gone = [(CLAIM_UID_ANNOTATION, None), (PERSISTENT_VOLUME_ANNOTATION, None)];
    let expected = [VolumeChange::Annotations(gone.into())];
    assert_eq!(changes(&volume, vec![]), expected, "the claim that had it last stays known, and nobody has it");
}

#[test]
fn a_list_that_is_full_says_how_many_volumes_are_not_watched_and_they_are_counted() {
    let volumes = (0..1003).map(|n| local(&format!("v{n:04}"), affinity("kubernetes.io/hostname", &["n"])));
    let mut pool = DevicePool::new("n", Default::default());
    let view = |pool: &DevicePool, persistent: Vec<Arc<PersistentVolume>>| {
        let pools = vec![Arc::new(pool.clone())];
        View { persistent, pools, nodes: vec![node("n", "n", "True")], ..View::default() }
    };
    let all: Vec<Arc<PersistentVolume>> = volumes.collect();
    let mut planner = Planner::new(SignedDuration::from_secs(GRACE), ReservePolicy::Never);
    let plan = planner.plan(&view(&pool, all.clone()), at(0));
    let [(_, list)] = &plan.watch_lists[..] else { panic!("{:?}", plan.watch_lists) };
    assert_eq!((list.volumes.len(), list.omitted, plan.unwatched), (1000, 3, 3));
    pool.spec.persistent_volumes = list.volumes.clone();
    pool.spec.persistent_volumes_omitted = 3;
    let again = planner.plan(&view(&pool, all.clone()), at(1));
    assert_eq!((again.watch_lists.len(), again.unwatched), (0, 3), "nothing is written twice");
    let fewer = planner.plan(&view(&pool, all[..1000].to_vec()), at(2));
    let [(_, list)] = &fewer.watch_lists[..] else { panic!("{:?}", fewer.watch_lists) };
    assert_eq!((list.volumes.len(), list.omitted, fewer.unwatched), (1000, 0, 0));
}

/// The DevicePool of `n`, whose agent answers or does not for this reason, and has found this at the path of `v`.
fn watching(silence: Option<&str>, found: &[&str]) -> DevicePool {
    let mut pool = pool("n", [0; 3]);
    let health: Vec<Value> =
        found.iter().map(|reason| json!({"reason": reason, "severity": "Inaccessible", "message": ""})).collect();
    let seen = json!({"name": "v", "uid": "v", "mountPoint": true, "health": health});
    let ready = silence.map_or_else(
        || status_condition("Ready", "True", "AgentReady", ""),
        |why| status_condition("Ready", "Unknown", why, ""),
    );
    let status = pool.status.as_mut().expect("set");
    status.persistent_volumes = vec![serde_json::from_value(seen).expect("what was found")];
    status.conditions = vec![ready];
    pool
}

#[test]
fn a_local_volume_whose_agent_is_silent_says_so_beside_what_was_found_last() {
    let mut planner = Planner::new(SignedDuration::from_secs(GRACE), ReservePolicy::Never);
    let mut volume = (*local("v", affinity("kubernetes.io/hostname", &["n"]))).clone();
    let mut plan = |pool: DevicePool, annotations: Value| {
        volume.metadata.annotations = serde_json::from_value(annotations).expect("annotations");
        let (persistent, nodes) = (vec![Arc::new(volume.clone())], vec![node("n", "n", "True")]);
        planner.plan(&View { persistent, nodes, pools: vec![Arc::new(pool)], ..View::default() }, at(100))
    };
    let marked = |more: &[&str]| {
        let marks = more.iter().map(|key| (*key, json!("yes")));
        let times = [FIRST_MARK_TIME, marks::UNUSABLE_SINCE].map(|key| (key, json!("2026-01-01T00:01:00Z")));
        Value::Object(marks.chain(times).map(|(key, value)| (key.to_owned(), value)).collect())
    };
    let lost = ["NotMountPoint"];
    assert_eq!(words(&plan(watching(None, &lost), json!({}))), ["v: NotMountPoint"]);
    let silent = plan(watching(Some("AgentSilent"), &lost), marked(&lost));
    assert_eq!(words(&silent), ["v: AgentSilent"]);
    assert_eq!(silent.marked.get(&HealthReason::AgentSilent), Some(&1));
    let both = ["NotMountPoint", "AgentSilent"];
    assert_eq!(words(&plan(watching(Some("AgentSilent"), &lost), marked(&both))), [""; 0], "once");
    assert_eq!(words(&plan(watching(Some("NodeNotReady"), &lost), marked(&both))), ["v: -AgentSilent"], "the node is");
    assert_eq!(words(&plan(watching(None, &[]), marked(&both))), ["v: -NotMountPoint -AgentSilent"]);
}

#[test]
fn a_local_volume_that_no_agent_looks_at_is_counted_until_its_node_has_one_or_is_gone() {
    let unwatched = |affinity: Value, nodes: Vec<Arc<Node>>, pools: Vec<Arc<DevicePool>>| {
        let mut planner = Planner::new(SignedDuration::from_secs(GRACE), ReservePolicy::Never);
        let id = VolumeId::of_name("pvc-1");
        let persistent = vec![local("v", affinity), own(id, "Bound")];
        planner.plan(&View { persistent, nodes, pools, ..View::default() }, at(100)).unwatched
    };
    let (here, there) = (|| vec![node("n", "n", "True")], || affinity("kubernetes.io/hostname", &["n"]));
    assert_eq!(unwatched(there(), here(), vec![]), 1, "no agent");
    assert_eq!(unwatched(there(), here(), vec![Arc::new(watching(None, &[]))]), 0);
    assert_eq!(unwatched(there(), vec![], vec![]), 0, "it is marked with NodeGone");
    let two = vec![node("n", "n", "True"), node("m", "m", "True")];
    assert_eq!(unwatched(affinity("zone", &["z"]), two, vec![Arc::new(watching(None, &[]))]), 1, "which of them?");
    assert_eq!(unwatched(json!(null), here(), vec![Arc::new(watching(None, &[]))]), 1);
}

#[test]
fn a_marked_volume_of_this_driver_that_nobody_has_is_reserved_too() {
    let mut planner = Planner::new(SignedDuration::from_secs(GRACE), ReservePolicy::In("space".into()));
    let mut volume = in_phase(Phase::Ready);
    let id: VolumeId = volume.name_any().parse().expect("an id");
    let mut reserved = |reasons: &[&str], persistent: &Arc<PersistentVolume>| {
        let entry = |reason: &&str| HealthEntry {
            reason: (*reason).to_owned(),
            severity: String::new(),
            message: String::new(),
            since: None,
            confirmed_by: None,
        };
        volume.status.as_mut().expect("set").health = reasons.iter().map(entry).collect();
        let view = View {
            persistent: vec![Arc::clone(persistent)],
            volumes: [(id, Arc::new(volume.clone()))].into(),
            nodes: vec![node("n", "n", "True")],
            ..View::default()
        };
        planner.plan(&view, at(100)).reservations.into_iter().map(|(_, change)| change).collect::<Vec<_>>()
    };
    let free = own(id, "Available");
    assert_eq!(reserved(&["DiskFailing"], &free), [Reservation::Begins]);
    assert_eq!(reserved(&["DiskTemperature"], &free), [], "that is no mark");
    assert_eq!(reserved(&["DiskFailing"], &own(id, "Bound")), []);
    let mut kept = (*free).clone();
    let name = Some("localpool-marked-u".into());
    kept.pvc = Some(PvcReference { namespace: Some("space".into()), name, uid: None });
    let kept = Arc::new(kept);
    assert_eq!(reserved(&["DiskFailing"], &kept), []);
    assert_eq!(reserved(&[], &kept), [Reservation::Ends]);
}
