//! Cordons of disks in a DevicePool: what a person chose in the spec, and what an earlier agent found. Pure but for the
//! time of a condition.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition as KubeCondition;
use serde_json::Value;

use crate::api::{
    crd::{DevicePool, DiskChoice, DiskOrder, PoolReason},
    quantity,
};
use crate::device::DiskId;
use crate::health::{Condition, Finding};
use crate::operator::status::condition::condition;
use crate::operator::status::health;
use crate::pool::{CordonChoice, DiskView, EarlierCordon};

/// At most this many ids that are no disks are named; the others are only counted.
const NAMED: usize = 16;

/// What a person has chosen, by disk.
pub fn chosen(pool: &DevicePool) -> BTreeMap<DiskId, CordonChoice> {
    let choice = |cordon| if cordon { CordonChoice::Cordoned } else { CordonChoice::Open };
    let disks = pool.spec.pool_disks();
    disks.filter_map(|(id, disk)| Some((id.clone(), choice(disk.cordon?)))).collect()
}

/// The disks for which a person has chosen anything but an order. What needs a `path` has a meaning for none of them.
pub fn named(pool: &DevicePool) -> BTreeSet<DiskId> {
    let disks = pool.spec.pool_disks();
    let is_named = |disk: &DiskChoice| {
        let DiskChoice { path: _, allow_scheduling, tags, quota, cordon, reserved, order: _ } = disk;
        let needs_path = allow_scheduling.is_some() || !tags.is_empty() || quota.is_some();
        cordon.is_some() || reserved.is_some() || needs_path
    };
    disks.filter(|(_, disk)| is_named(disk)).map(|(id, _)| id.clone()).collect()
}

/// Bytes that a person has written. More than can be said in a number is all.
pub fn bytes(reserved: &Value) -> u64 {
    match reserved {
        Value::String(text) => quantity::parse(text).unwrap_or(u64::MAX),
        number => number.as_u64().unwrap_or(u64::MAX),
    }
}

/// What a person reserves of disks, in bytes.
pub fn reserved(pool: &DevicePool) -> BTreeMap<DiskId, u64> {
    let disks = pool.spec.pool_disks();
    disks.filter_map(|(id, disk)| Some((id.clone(), bytes(disk.reserved.as_ref()?)))).collect()
}

/// Disks that are to become empty, or that nobody waits for any more: if such a disk is here, it takes no new volumes.
pub fn closed_by_order(pool: &DevicePool) -> BTreeMap<DiskId, CordonChoice> {
    let disks = pool.spec.pool_disks().filter(|(_, disk)| disk.order.is_some_and(DiskOrder::closes));
    disks.map(|(id, _)| (id.clone(), CordonChoice::Ordered)).collect()
}

/// Why disks were not fit for new volumes when their health was last written.
pub fn found(pool: &DevicePool) -> BTreeMap<DiskId, Vec<EarlierCordon>> {
    let disks = pool.status.iter().flat_map(|status| &status.disks);
    let earlier = |finding: &Finding| EarlierCordon { what: finding.reason.to_string(), why: finding.to_string() };
    let unfit = |condition: Condition| -> Vec<EarlierCordon> {
        condition.findings().iter().filter(|finding| finding.reason.cordons()).map(earlier).collect()
    };
    let found = disks.map(|disk| (disk.id.clone(), unfit(health::condition(&disk.health))));
    found.filter(|(_, unfit)| !unfit.is_empty()).collect()
}

/// The condition that says whether the disks of the spec are in the pool; `None`: the spec names none.
pub fn disks_found(before: &[KubeCondition], chosen: &BTreeSet<DiskId>, disks: &[DiskView]) -> Option<KubeCondition> {
    let is_unknown = |id: &&DiskId| !disks.iter().any(|disk| disk.id == **id);
    let unknown: Vec<&str> = chosen.iter().filter(is_unknown).map(DiskId::as_str).collect();
    let (named, others) = unknown.split_at(unknown.len().min(NAMED));
    let others = if others.is_empty() { String::new() } else { format!(", and {} more", others.len()) };
    let (reason, message) = match unknown.is_empty() {
        true => (PoolReason::InPool, "all disks of spec.disks are in this node's pool".to_owned()),
        false => {
            let named = named.join(", ");
            (PoolReason::NotInPool, format!("spec.disks names ids that are not in this node's pool: {named}{others}"))
        }
    };
    (!chosen.is_empty()).then(|| condition(before, "DisksFound", unknown.is_empty(), reason.word(), message, None))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::sample::pool_of_disk;
    use super::*;

    fn pool(disks: Value, health: Value) -> DevicePool {
        pool_of_disk(&json!({"disks": disks}), &json!({"health": health}))
    }

    #[test]
    fn a_person_closes_or_opens_a_disk_and_one_without_a_value_is_as_its_health_says() {
        let disks = json!({"gpt-1": {"cordon": true}, "gpt-2": {"cordon": false}, "gpt-3": {}});
        let pool = pool(disks, json!([]));
        let chosen = chosen(&pool);
        let expected = [("gpt-1", CordonChoice::Cordoned), ("gpt-2", CordonChoice::Open)];
        assert_eq!(chosen, expected.map(|(id, choice)| (DiskId::named(id), choice)).into());
        let found = disks_found(&[], &named(&pool), &[]).expect("the spec names disks");
        assert_eq!((found.status.as_str(), found.reason.as_str()), ("False", "NotInPool"));
        assert!(found.message.ends_with("pool: gpt-1, gpt-2"), "{}", found.message);
        assert_eq!(disks_found(&[], &BTreeSet::new(), &[]), None);
        let many = (10..40).map(|number| DiskId::named(number.to_string())).collect();
        let message = disks_found(&[], &many, &[]).expect("the spec names disks").message;
        assert!(message.ends_with(" 24, 25, and 14 more"), "{message}");
    }

    #[test]
    fn what_a_person_reserves_is_a_number_or_a_quantity_and_too_much_is_all() {
        let disks = json!({
            "gpt-1": {"reserved": "10Gi"}, "gpt-2": {"reserved": 5_000_000_000_u64}, "gpt-3": {"cordon": true},
            "gpt-4": {"reserved": "9999E"}, "gpt-5": {"reserved": 0}, "gpt-6": {"reserved": null},
        });
        let expected = [("gpt-1", 10 << 30), ("gpt-2", 5_000_000_000), ("gpt-4", u64::MAX), ("gpt-5", 0)];
        let expected = expected.map(|(id, bytes)| (DiskId::named(id), bytes));
        assert_eq!(reserved(&pool(disks, json!([]))), expected.into());
    }

    #[test]
    fn of_what_an_earlier_agent_found_only_what_cordons_is_remembered() {
        let found = |reason: &str| {
            found(&pool(json!({}), json!([{"reason": reason, "severity": "Degraded", "message": "words"}])))
        };
        let unfit = EarlierCordon { what: "DiskFailing".to_owned(), why: "DiskFailing: words".to_owned() };
        assert_eq!(found("DiskFailing"), [(DiskId::named("gpt-1"), vec![unfit])].into());
        assert_eq!(found("DiskWornOut"), BTreeMap::new());
    }
}
