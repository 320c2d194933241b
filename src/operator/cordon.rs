//! Cordons of disks in a DevicePool: what a person chose in the spec, and what an earlier agent found. Pure but for the
//! time of a condition.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition as KubeCondition;

use super::condition::condition;
use super::health;
use crate::api::crd::{DevicePool, DiskOrder};
use crate::device::DiskId;
use crate::health::Condition;
use crate::pool::{CordonChoice, DiskView};

/// At most this many ids that are no disks are named; the others are only counted.
const NAMED: usize = 16;

/// What a person has chosen, by disk.
pub fn chosen(pool: &DevicePool) -> BTreeMap<DiskId, CordonChoice> {
    let choice = |cordon| if cordon { CordonChoice::Cordoned } else { CordonChoice::Open };
    let disks = pool.spec.disks.iter();
    disks.filter_map(|(id, disk)| Some((id.clone(), choice(disk.cordon?)))).collect()
}

/// Disks that are to become empty, or that nobody waits for any more: if such a disk is here, it takes no new volumes.
pub fn closed_by_order(pool: &DevicePool) -> BTreeMap<DiskId, CordonChoice> {
    let disks = pool.spec.disks.iter().filter(|(_, disk)| disk.order.is_some_and(DiskOrder::closes));
    disks.map(|(id, _)| (id.clone(), CordonChoice::Ordered)).collect()
}

/// Why disks were not fit for new volumes when their health was last written.
pub fn found(pool: &DevicePool) -> BTreeMap<DiskId, String> {
    let disks = pool.status.iter().flat_map(|status| &status.disks);
    let unfit = |condition: Condition| {
        condition.findings().iter().find(|finding| finding.reason.cordons()).map(ToString::to_string)
    };
    disks.filter_map(|disk| Some((disk.id.clone(), unfit(health::condition(&disk.health))?))).collect()
}

/// The condition that says whether the disks of the spec are in the pool; `None`: the spec names none.
pub fn disks_found(
    before: &[KubeCondition],
    chosen: &BTreeMap<DiskId, CordonChoice>,
    disks: &[DiskView],
) -> Option<KubeCondition> {
    let is_unknown = |id: &&DiskId| !disks.iter().any(|disk| disk.id == **id);
    let unknown: Vec<&str> = chosen.keys().filter(is_unknown).map(DiskId::as_str).collect();
    let (named, others) = unknown.split_at(unknown.len().min(NAMED));
    let others = if others.is_empty() { String::new() } else { format!(", and {} more", others.len()) };
    let (reason, message) = match unknown.is_empty() {
        true => ("InPool", "all disks of spec.disks are in this node's pool".to_owned()),
        false => {
            let named = named.join(", ");
            ("NotInPool", format!("spec.disks names ids that are not in this node's pool: {named}{others}"))
        }
    };
    (!chosen.is_empty()).then(|| condition(before, "DisksFound", unknown.is_empty(), reason, message, None))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pool(disks: Value, health: Value) -> DevicePool {
        let disk = json!({
            "id": "gpt-1", "path": "/dev/sda", "layout": "Carved", "set": "d/s", "size": 1, "free": 1, "volumes": 0,
            "state": "Ready", "health": health,
        });
        let pool = json!({
            "apiVersion": "localpool.dev/v1alpha1", "kind": "DevicePool", "metadata": {"name": "n"},
            "spec": {"disks": disks}, "status": {"disks": [disk]},
        });
        serde_json::from_value(pool).expect("a DevicePool")
    }

    #[test]
    fn a_person_closes_or_opens_a_disk_and_one_without_a_value_is_as_its_health_says() {
        let disks = json!({"gpt-1": {"cordon": true}, "gpt-2": {"cordon": false}, "gpt-3": {}});
        let chosen = chosen(&pool(disks, json!([])));
        let expected = [("gpt-1", CordonChoice::Cordoned), ("gpt-2", CordonChoice::Open)];
        assert_eq!(chosen, expected.map(|(id, choice)| (DiskId::named(id), choice)).into());
        let found = disks_found(&[], &chosen, &[]).expect("the spec names disks");
        assert_eq!((found.status.as_str(), found.reason.as_str()), ("False", "NotInPool"));
        assert!(found.message.ends_with("pool: gpt-1, gpt-2"), "{}", found.message);
        assert_eq!(disks_found(&[], &BTreeMap::new(), &[]), None);
        let many = (10..40).map(|number| (DiskId::named(number.to_string()), CordonChoice::Open)).collect();
        let message = disks_found(&[], &many, &[]).expect("the spec names disks").message;
        assert!(message.ends_with(" 24, 25, and 14 more"), "{message}");
    }

    #[test]
    fn of_what_an_earlier_agent_found_only_what_cordons_is_remembered() {
        let found = |reason: &str| {
            found(&pool(json!({}), json!([{"reason": reason, "severity": "Degraded", "message": "words"}])))
        };
        let unfit = "DiskFailing: words".to_owned();
        assert_eq!(found("DiskFailing"), [(DiskId::named("gpt-1"), unfit)].into());
        assert_eq!(found("DiskWornOut"), BTreeMap::new());
    }
}
