use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Node;

use super::*;
use crate::api::crd::CLAIM_ANNOTATION;
use crate::health::HealthReason;
use crate::operator::volume::sample::{in_phase, pool};

fn node(ready: &str) -> Arc<Node> {
    let since = "2026-01-01T00:00:00Z";
    let node = json!({
        "metadata": {"name": "n", "labels": {"kubernetes.io/hostname": "n"}},
        "status": {"conditions": [{"type": "Ready", "status": ready, "lastTransitionTime": since}]},
    });
    Arc::new(serde_json::from_value(node).expect("a Node"))
}

fn local(name: &str) -> Arc<PersistentVolume> {
    let terms = json!([{"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["n"]}]}]);
    let value = json!({
        "metadata": {"name": name, "uid": name},
        "spec": {"local": {"path": "/mnt/x"}, "nodeAffinity": {"required": {"nodeSelectorTerms": terms}}},
    });
    Arc::new(serde_json::from_value(value).expect("a PersistentVolume"))
}

/// What the API server makes of a merge patch of the annotations.
fn patched(volume: &PersistentVolume, change: &MarkChange) -> Arc<PersistentVolume> {
    let mut volume = volume.clone();
    let annotations = volume.metadata.annotations.get_or_insert_default();
    for (key, value) in &change.annotations {
        match value {
            Some(value) => drop(annotations.insert(key.clone(), value.clone())),
            None => drop(annotations.remove(key)),
        }
    }
    Arc::new(volume)
}

type Volumes = BTreeMap<String, Arc<PersistentVolume>>;

fn planned(planner: &mut Planner, volumes: &Volumes, ready: &str, seconds: i64) -> Vec<PlannedWrite> {
    let view = View { persistent: volumes.values().cloned().collect(), nodes: vec![node(ready)], ..View::default() };
    let monotonic = SignedDuration::from_secs(seconds);
    let wall = Timestamp::from_second(1_767_225_600 + seconds).expect("a time");
    PlannedWrite::all_of(planner.plan(&view, Now { wall, monotonic }))
}

/// What one pass writes, and how many writes wait for the next one.
fn pass(planner: &mut Planner, volumes: &Volumes, ready: &str, seconds: i64) -> (Vec<PlannedWrite>, usize) {
    let all = planned(planner, volumes, ready, seconds);
    Refusals::new().select(all, PlannedWrite::key, WRITES, Duration::ZERO)
}

fn carry_out(volumes: &mut Volumes, writes: Vec<PlannedWrite>) {
    for write in writes {
        let PlannedWrite::Marks(volume, change) = write else { panic!("only marks change") };
        volumes.insert(volume.name_any(), patched(&volume, &change));
    }
}

#[test]
fn a_rack_of_5000_volumes_is_marked_and_unmarked_with_50_writes_in_a_pass_and_none_twice() {
    let named = (0..5_000).map(|n| format!("v-{n}"));
    let mut volumes: Volumes = named.map(|name| (name.clone(), local(&name))).collect();
    let mut planner = Planner::new(SignedDuration::from_secs(60), ReservePolicy::Never);
    for (begins, ready, is_marked) in [(0, "Unknown", true), (200, "True", false)] {
        let (writes, waiting) = pass(&mut planner, &volumes, ready, begins);
        assert_eq!((writes.len(), waiting), (0, 0), "the grace is not over");
        let due = begins + 60;
        let (writes, waiting) = pass(&mut planner, &volumes, ready, due);
        assert_eq!((writes.len(), waiting), (50, 4_950));
        carry_out(&mut volumes, writes);
        let (writes, waiting) = pass(&mut planner, &volumes, ready, due);
        assert_eq!((writes.len(), waiting), (50, 4_900));
        carry_out(&mut volumes, writes);
        // The other 98 passes at once: each looks at all of them.
        let others = planned(&mut planner, &volumes, ready, due);
        carry_out(&mut volumes, others);
        let (writes, waiting) = pass(&mut planner, &volumes, ready, due);
        assert_eq!((writes.len(), waiting), (0, 0));
        assert!(volumes.values().all(|volume| volume.annotations().contains_key("NodeNotReady") == is_marked));
    }
}

#[test]
fn what_people_and_agents_wait_for_is_not_behind_the_marks_of_a_rack() {
    let mut plan = MarkPlan::default();
    let change = || MarkChange::default();
    plan.changes = (0..5_000).map(|n| (local(&format!("v-{n}")), change())).collect();
    let volume = Arc::new(in_phase(crate::api::crd::Phase::Ready));
    let annotations = |key| VolumeChange::Annotations(BTreeMap::from([(key, Some("pv".to_owned()))]));
    plan.volumes.changes = vec![
        (Arc::clone(&volume), VolumeChange::Conditions(Vec::new())),
        (Arc::clone(&volume), annotations(CLAIM_ANNOTATION)),
        (Arc::clone(&volume), annotations(PERSISTENT_VOLUME_ANNOTATION)),
        (Arc::clone(&volume), VolumeChange::CarryOut(VolumeOrder::Erase)),
    ];
    plan.watch_lists = vec![(Arc::new(pool("n", [0; 3])), WatchList::default())];
    let (writes, _) = Refusals::new().select(PlannedWrite::all_of(plan), PlannedWrite::key, WRITES, Duration::ZERO);
    assert!(
        matches!(&writes[0], PlannedWrite::Volume(_, change) if *change == annotations(PERSISTENT_VOLUME_ANNOTATION))
    );
    assert!(matches!(writes[1], PlannedWrite::Volume(_, VolumeChange::CarryOut(VolumeOrder::Erase))));
    assert!(matches!(writes[2], PlannedWrite::WatchList(..)));
    assert!(writes[3..].iter().all(|write| matches!(write, PlannedWrite::Marks(..))));
}

#[tokio::test]
async fn what_a_pass_finds_is_counted_until_another_leader_counts() {
    let metrics = Metrics::new(&prometheus::Registry::new()).expect("fresh names");
    let nowhere = kube::Config::new("http://127.0.0.1:9".parse().expect("an address"));
    let (client, volumes) = (Client::try_from(nowhere).expect("a client"), Store::of([], |_, _| false));
    let monitor = Monitor::new(client, Stores::default(), volumes, metrics.clone(), ReservePolicy::Never, "test");
    let counts = || {
        let marked = ["DiskMissing", "NotMountPoint"].map(|reason| metrics.marked.with_label_values(&[reason]).get());
        (marked, metrics.unclaimed.get(), metrics.unwatched.get())
    };
    let counted = |reason: HealthReason| {
        let mut plan = MarkPlan { unwatched: 3, marked: [(reason, 2)].into(), ..MarkPlan::default() };
        plan.volumes.unclaimed = 4;
        monitor.count(&plan);
        counts()
    };
    assert_eq!(counted(HealthReason::DiskMissing), ([2, 0], 4, 3));
    assert_eq!(counted(HealthReason::NotMountPoint), ([0, 2], 4, 3), "one that holds for no volume is not counted");
    drop(monitor);
    assert_eq!(counts(), ([0, 0], 0, 0));
}
