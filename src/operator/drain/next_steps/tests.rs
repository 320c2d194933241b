use serde_json::{Value, json};

use super::*;
use crate::operator::volume::sample::in_phase;

const DISK: &str = "gpt-1";

fn disk() -> DiskId {
    DiskId::named(DISK)
}

fn id(volume: &PoolVolume) -> VolumeId {
    volume.name_any().parse().expect("an id")
}

/// `more` is what the status of the disk has beside the rest.
fn pool(node: &str, order: Value, more: Value) -> DevicePool {
    let mut status = json!({
        "id": DISK, "path": "/dev/sda", "model": "M", "layout": "Carved", "set": "d/s", "size": 9, "free": 9,
        "volumes": 0, "state": "Ready",
    });
    let Value::Object(more) = more else { panic!("a map") };
    status.as_object_mut().expect("a map").extend(more);
    let pool = json!({
        "apiVersion": "localpool.dev/v1alpha1", "kind": "DevicePool", "metadata": {"name": node},
        "spec": {"disks": {DISK: {"order": order}}},
        "status": {"disks": [status], "orders": [{"disk": DISK, "order": "Drain", "state": "Waiting", "message": "m"}]},
    });
    serde_json::from_value(pool).expect("a DevicePool")
}

fn persistent(phase: &str, policy: &str, claim: Value) -> PersistentVolume {
    let value = json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "pvc-1"},
        "spec": {"persistentVolumeReclaimPolicy": policy, "claimRef": claim}, "status": {"phase": phase},
    });
    serde_json::from_value(value).expect("a PersistentVolume")
}

fn said(pool: &DevicePool, on_it: &[(PoolVolume, Option<PersistentVolume>)], run: Run) -> Vec<String> {
    said_with(pool, on_it, run, &Ok(PvcPods::default()))
}

fn said_with(
    pool: &DevicePool,
    on_it: &[(PoolVolume, Option<PersistentVolume>)],
    run: Run,
    pods: &Result<PvcPods, OperatorError>,
) -> Vec<String> {
    let pools = [pool.clone()];
    let (pool, ordering) = ordering(&disk(), &pools).expect("it is there");
    let volumes: Vec<PoolVolume> = on_it.iter().map(|(volume, _)| volume.clone()).collect();
    let named = on_it.iter().filter_map(|(volume, one)| Some((id(volume), one.clone()?))).collect();
    report(&DrainedDisk { disk: &disk(), pool, ordering, volumes: &volumes, named: &named, pods }, run)
}

/// The lines that a person would type for a volume.
fn typed(volume: PoolVolume, persistent: Option<PersistentVolume>) -> Vec<String> {
    let lines = said(&pool("n", json!(null), json!({"volumes": 1})), &[(volume, persistent)], Run::Dry);
    lines.iter().filter_map(|line| line.strip_prefix("  ")).map(str::to_owned).collect()
}

const ERASE: &str = r#"{"spec":{"order":"Erase"}}"#;
const POLICY: &str = r#"kubectl patch pv pvc-1 -p '{"spec":{"persistentVolumeReclaimPolicy":"Delete"}}'"#;

#[test]
fn each_volume_is_named_with_its_claim_and_deleted_by_the_lines_that_its_persistent_volume_asks_for() {
    let claim = json!({"namespace": "d", "name": "data"});
    let lines = said(
        &pool("n", json!(null), json!({"volumes": 2})),
        &[(in_phase(Phase::Ready), Some(persistent("Bound", "Delete", claim.clone())))],
        Run::Dry,
    );
    let id = in_phase(Phase::Ready).name_any();
    assert_eq!(lines[0], "disk gpt-1 (/dev/sda, M) of node n, set d/s");
    assert!(lines[1].starts_with("would order Drain"), "{lines:#?}");
    assert_eq!(lines[2], format!("volume {id} (Ready), PersistentVolume pvc-1, claim d/data (used by no pod)"));
    assert!(lines[3].starts_with("volumes on it that no PoolVolume names: 1;"), "{lines:#?}");
    assert!(lines[4].contains("copy the data"), "{lines:#?}");
    assert_eq!(lines[5], "  kubectl -n d delete pvc data");
    assert!(lines[6].starts_with("when the disk is empty") && lines.len() == 7, "{lines:#?}");

    let ready = || in_phase(Phase::Ready);
    let kept = persistent("Bound", "Retain", claim.clone());
    assert_eq!(typed(ready(), Some(kept)), [POLICY, "kubectl -n d delete pvc data"]);
    assert_eq!(typed(ready(), Some(persistent("Released", "Retain", claim.clone()))), [POLICY]);
    assert_eq!(typed(ready(), Some(persistent("Released", "Delete", claim))), [""; 0], "it is on its way");
    let free = typed(ready(), Some(persistent("Available", "Retain", json!(null))));
    assert_eq!((free.len(), free[0].as_str()), (2, "kubectl delete pv pvc-1"));
    assert!(free[1].ends_with(&format!("-p '{ERASE}'")), "{free:?}");
    let reserved = json!({"namespace": "localpool", "name": "localpool-marked-u"});
    assert_eq!(typed(ready(), Some(persistent("Available", "Retain", reserved))), free, "that claim does not exist");
    let found = typed(in_phase(Phase::Found), None);
    assert_eq!(found, [format!("kubectl patch poolvolume {id} --type merge -p '{ERASE}'")]);
    for phase in [Phase::Deleting, Phase::Accepted] {
        assert_eq!(typed(in_phase(phase), None), [""; 0], "{phase:?}");
    }
    let mut stuck = in_phase(Phase::Deleting);
    let of = |volume: PoolVolume| {
        said(&pool("n", json!(null), json!({"volumes": 1})), &[(volume, None)], Run::Dry).remove(2)
    };
    stuck.status.as_mut().expect("set").message = None;
    assert!(of(stuck.clone()).ends_with(": it is being erased"), "{}", of(stuck));
    stuck.status.as_mut().expect("set").message = Some("a pod has it open".to_owned());
    assert!(of(stuck.clone()).ends_with(": its deletion waits: a pod has it open"), "{}", of(stuck));
}

#[test]
fn the_pods_of_each_claim_are_named_and_if_they_are_not_known_how_a_person_finds_them() {
    let volume = in_phase(Phase::Ready);
    let claim: PvcName = "d/data".parse().expect("a name");
    let named =
        BTreeMap::from([(id(&volume), persistent("Bound", "Delete", json!({"namespace": "d", "name": "data"})))]);
    assert_eq!(pvcs(std::slice::from_ref(&volume), &named), BTreeSet::from([claim.clone()]));
    let pod = json!({
        "metadata": {"name": "db-0"},
        "spec": {"containers": [], "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]},
    });
    let mut pods = PvcPods::default();
    pods.take_in(&[&claim], &[serde_json::from_value(pod).expect("a pod")]);
    let on_it = [(volume.clone(), named.get(&id(&volume)).cloned())];
    let has_one = pool("n", json!(null), json!({"volumes": 1}));
    let lines = said_with(&has_one, &on_it, Run::Dry, &Ok(pods));
    assert!(lines[2].ends_with(", claim d/data (used by pod db-0)"), "{lines:#?}");
    assert!(lines.iter().all(|line| !line.contains("not known")), "{lines:#?}");
    let forbidden = || Err(OperatorError::Refused("pods is forbidden".to_owned()));
    let lines = said_with(&has_one, &on_it, Run::Dry, &forbidden());
    assert!(lines[2].ends_with(", claim d/data"), "{lines:#?}");
    assert!(lines[3].contains("is not known: pods is forbidden; `kubectl -n NAMESPACE describe pvc"), "{lines:#?}");
    assert!(lines.iter().any(|line| line.contains("kubectl -n d delete pvc data")), "{lines:#?}");
}

#[test]
fn a_name_that_no_object_can_have_gets_into_no_line_for_a_shell() {
    let bad = json!({"namespace": "d", "name": "x; reboot"});
    let lines = typed(in_phase(Phase::Ready), Some(persistent("Bound", "Delete", bad)));
    assert!(lines.iter().all(|line| !line.contains("reboot")), "{lines:?}");
    let line = order_line(&"n".into(), &DiskId::named("serial-a'b"), DiskOrder::Drain);
    assert!(line.contains(r"serial-a'\''b"), "{line}");
}

#[test]
fn what_comes_next_is_said_at_each_step_and_a_disk_that_cannot_be_read_is_not_called_empty() {
    let last = |order: Value, more: Value| said(&pool("n", order, more), &[], Run::Real).pop().expect("lines");
    let empty = last(json!("Drain"), json!({}));
    assert!(empty.ends_with(r#"'{"spec":{"disks":{"gpt-1":{"order":"Release"}}}}'"#), "{empty}");
    assert!(last(json!("Drain"), json!({"erasing": 1 << 30})).contains("1Gi of deleted ones are being erased"));
    assert!(last(json!("Release"), json!({})).contains("the agent wipes its label"));
    assert!(last(json!("Drain"), json!({"volumes": 1})).starts_with("when the disk is empty"));
    let unread = last(json!("Drain"), json!({"state": "NotReady", "message": "bad sectors"}));
    assert!(unread.contains("not known") && unread.contains("bad sectors"), "{unread}");
}

#[test]
fn an_order_that_empties_the_disk_is_not_replaced_and_one_that_gives_it_up_refuses() {
    let pools = |order: Value| [pool("n", order, json!({}))];
    let ordered = |order: Value| ordering(&disk(), &pools(order)).map(|(_, ordering)| ordering);
    assert_eq!(ordered(json!(null)), Ok(Ordering::Due));
    assert_eq!(ordered(json!("Adopt")), Ok(Ordering::Due));
    assert_eq!(ordered(json!("Drain")), Ok(Ordering::Already(DiskOrder::Drain)));
    assert_eq!(ordered(json!("Release")), Ok(Ordering::Already(DiskOrder::Release)));
    let refused = ordered(json!("GiveUp")).expect_err("refused").to_string();
    assert!(refused.contains("remove that order first"), "{refused}");
    let again = &said(&pools(json!("Drain"))[0], &[], Run::Real)[1];
    assert_eq!(again, "Drain is ordered for it already, so it takes no new volumes; Waiting: m");
    let mut silent = pools(json!("Drain"));
    let ready = json!([{"type": "Ready", "status": "Unknown", "reason": "AgentSilent", "message": "no pod",
        "lastTransitionTime": "2026-11-26T04:00:00Z"}]);
    silent[0].status.as_mut().expect("set").conditions = serde_json::from_value(ready).expect("conditions");
    let old = &said(&silent[0], &[], Run::Real)[2];
    assert!(old.starts_with("its agent does not answer, since 2026-11-26T04:00:00Z: no pod"), "{old}");
    let new = &said(&pools(json!("Release"))[0], &[], Run::Real)[1];
    assert!(new.ends_with("the agent has not seen this yet"), "{new}");
}

#[test]
fn the_node_that_has_the_disk_now_is_meant_and_a_disk_that_nobody_has_is_not_drained() {
    let missing = || pool("old", json!(null), json!({"state": "Missing"}));
    let pools = [missing(), pool("new", json!(null), json!({}))];
    assert_eq!(ordering(&disk(), &pools).expect("it is there").0.name_any(), "new");
    let away = [missing()];
    let why = |pools: &[DevicePool]| ordering(&disk(), pools).expect_err("nobody has it").to_string();
    assert!(why(&away).contains(r#""order":"GiveUp""#));
    let both = [pool("a", json!(null), json!({})), pool("b", json!(null), json!({}))];
    assert!(why(&both).contains("nodes a and b"));
    assert!(why(&[]).contains("no DevicePool has a disk gpt-1"));
}

#[test]
fn of_a_disk_that_left_by_an_order_is_said_how_the_new_one_comes_and_which_set_has_it() {
    let gone = |order: &str, state: &str| {
        let mut pool = pool("n", json!(order), json!({}));
        let status = pool.status.as_mut().expect("set");
        status.disks[0].id = DiskId::named("gpt-2");
        let order = json!([{"disk": DISK, "order": order, "state": state, "message": "wiped"}]);
        status.orders = serde_json::from_value(order).expect("orders");
        pool
    };
    let lines = said(&gone("Release", "Done"), &[], Run::Real);
    assert_eq!(lines[0], "disk gpt-1 is not in the pool of node n any more; Release is Done: wiped");
    assert!(lines[1].starts_with("next: remove the disk, and insert the new one"), "{lines:#?}");
    assert_eq!(lines[2], "  gpt-2 (/dev/sda), Ready, set d/s");
    assert!(lines[3].ends_with(r#"'{"spec":{"disks":{"gpt-1":null}}}'"#) && lines.len() == 4, "{lines:#?}");
    let mut dead = in_phase(Phase::Ready);
    dead.status.as_mut().expect("set").state = Some("Unusable".to_owned());
    let lost = [(dead, None)];
    let lines = said(&gone("GiveUp", "Done"), &lost, Run::Dry);
    assert!(lines[1].starts_with("volume ") && lines[1].contains(" (Unusable)"), "{lines:#?}");
    assert!(lines[2].contains("erases nothing"), "{lines:#?}");
    assert!(ordering(&disk(), &[gone("Release", "Waiting")]).is_err(), "a slip in the id");
}

#[test]
fn a_member_of_an_array_is_not_drained_and_the_array_is_named() {
    let mut pools = [pool("n", json!(null), json!({"layout": "Member"}))];
    assert!(ordering(&disk(), &pools).is_ok(), "its array has left the pool");
    let status = pools[0].status.as_mut().expect("set");
    let array = status.disks[0].clone();
    status.disks.push(DiskStatus { id: DiskId::named("gpt-array"), layout: "Carved".to_owned(), ..array.clone() });
    status.disks.push(DiskStatus {
        id: DiskId::named("gpt-2"),
        layout: "Carved".to_owned(),
        set: "d/t".into(),
        ..array
    });
    let refused = ordering(&disk(), &pools).expect_err("nothing is on it alone").to_string();
    assert!(refused.contains("drain and release gpt-array instead;"), "{refused}");
}
