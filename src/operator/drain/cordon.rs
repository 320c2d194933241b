//! `localpool disk cordon` and `uncordon`: what a person chooses for one disk, written into its DevicePool.

use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};

use super::holder::{disk_status, holder};
use super::objects::{pools_with, write_choice};
use crate::agent::Run;
use crate::api::crd::{DevicePool, DiskChoice};
use crate::device::DiskId;
use crate::health::HealthReason;
use crate::operator::api_server::error::OperatorError;

/// How the reason of a cordon begins that nobody's choice covers (`Cordon::GivenUp`).
const GIVEN_UP: &str = "GivenUp";

/// No new volumes on this disk, whatever its health.
pub async fn cordon(client: Client, disk: DiskId, run: Run) -> Result<Vec<String>, OperatorError> {
    let pools: Api<DevicePool> = Api::all(client);
    let pool = pool_of(&pools, &disk).await?;
    let of = format!("disk {disk} of node {}", pool.name_any());
    let is_so = pool.spec.disks.get(&disk).is_some_and(|choice| choice.cordon == Some(true));
    let first = match (is_so, run) {
        (true, _) => format!("{of} is cordoned already"),
        (false, Run::Dry) => format!("would cordon {of}"),
        (false, Run::Real) => {
            write_choice(&pools, &pool, &disk, json!({"cordon": true})).await?;
            format!("cordoned {of}")
        }
    };
    Ok(vec![
        first,
        "no new volumes are made on it; those that it has can be used, grow and be deleted as always".to_owned(),
        format!("`localpool disk uncordon {disk}` takes this back"),
    ])
}

/// As its health says again: nobody opens a sick disk by mistake.
pub async fn uncordon(client: Client, disk: DiskId, run: Run) -> Result<Vec<String>, OperatorError> {
    let pools: Api<DevicePool> = Api::all(client);
    let pool = pool_of(&pools, &disk).await?;
    let choice = pool.spec.disks.get(&disk).cloned().unwrap_or_default();
    if choice.cordon.is_some() && run == Run::Real {
        let is_all = DiskChoice { cordon: None, ..choice } == DiskChoice::default();
        let choice = if is_all { Value::Null } else { json!({"cordon": null}) };
        write_choice(&pools, &pool, &disk, choice).await?;
    }
    Ok(uncordoned_lines(&pool, &disk, run))
}

/// What is, or would be, done to the disk of `pool` as it was before, and whether it takes new volumes then.
fn uncordoned_lines(pool: &DevicePool, disk: &DiskId, run: Run) -> Vec<String> {
    let of = format!("disk {disk} of node {}", pool.name_any());
    let choice = pool.spec.disks.get(disk);
    let chosen = choice.and_then(|choice| choice.cordon);
    let first = match chosen {
        None => format!("{of} is not cordoned by a person"),
        Some(true) => format!("{} {of}", run.tense("uncordon", "uncordoned")),
        Some(false) => format!("{} what opened {of} whatever its health", run.tense("remove", "removed")),
    };
    let of_node = pool.spec.cordon.then(|| "its whole node is cordoned, by spec.cordon of the DevicePool".to_owned());
    let ordered = choice.and_then(|choice| choice.order).filter(|order| order.closes());
    let ordered = ordered.map(|order| format!("{order:?} is ordered for it"));
    let status = disk_status(pool, disk);
    // A person's choice replaces every other reason to cordon the disk, except that it was given up.
    let said = status.and_then(|status| status.cordon.clone());
    let said = said.filter(|message| chosen.is_none() && ordered.is_none() || message.starts_with(GIVEN_UP));
    let is_said = said.is_some();
    let health = status.into_iter().flat_map(|status| &status.health);
    let unfit = health.filter(|entry| !is_said && HealthReason::from(entry.reason.clone()).cordons());
    let unfit = unfit.map(|entry| format!("{}: {}", entry.reason, entry.message));
    let why: Vec<String> = of_node.into_iter().chain(ordered).chain(said).chain(unfit).collect();
    let last = match &why[..] {
        [] => "nothing that its DevicePool says now keeps new volumes from it".to_owned(),
        why => format!("it takes no new volumes: {}", why.join("; ")),
    };
    vec![first, last]
}

/// The one pool that has the disk.
async fn pool_of(pools: &Api<DevicePool>, disk: &DiskId) -> Result<DevicePool, OperatorError> {
    let known = pools_with(pools, disk).await?;
    holder(disk, &known).cloned().map_err(|none| OperatorError::Refused(none.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(spec: &Value, more: Value) -> Vec<String> {
        let mut status = json!({
            "id": "gpt-1", "path": "/dev/sda", "layout": "Carved", "set": "d/s", "size": 9, "free": 9, "volumes": 0,
            "state": "Ready",
        });
        let Value::Object(more) = more else { panic!("a map") };
        status.as_object_mut().expect("a map").extend(more);
        let pool = json!({
            "apiVersion": "localpool.dev/v1alpha1", "kind": "DevicePool", "metadata": {"name": "n"}, "spec": spec,
            "status": {"disks": [status]},
        });
        uncordoned_lines(&serde_json::from_value(pool).expect("ours"), &DiskId::named("gpt-1"), Run::Real)
    }

    #[test]
    fn who_takes_a_cordon_back_reads_whether_the_disk_takes_new_volumes_then_and_why_not() {
        let chosen = |choice: Value| json!({"disks": {"gpt-1": choice}});
        let sick = json!({"health": [
            {"reason": "DiskFailing", "severity": "Degraded", "message": "it fails"},
            {"reason": "DiskWornOut", "severity": "Degraded", "message": "it is old"},
        ]});
        let takes = "nothing that its DevicePool says now keeps new volumes from it";
        let opened = said(&chosen(json!({"cordon": true})), json!({"cordon": "a person has cordoned it"}));
        assert_eq!(opened, ["uncordoned disk gpt-1 of node n", takes]);
        let closed = said(&chosen(json!({"cordon": false})), sick.clone());
        assert_eq!(closed[0], "removed what opened disk gpt-1 of node n whatever its health");
        assert_eq!(closed[1], "it takes no new volumes: DiskFailing: it fails");
        let none = said(&json!({}), json!({"cordon": "it fails"}));
        assert_eq!(none, ["disk gpt-1 of node n is not cordoned by a person", "it takes no new volumes: it fails"]);
        let held = said(&chosen(json!({"cordon": true})), json!({"cordon": "GivenUp: it was given up"}));
        assert_eq!(held[1], "it takes no new volumes: GivenUp: it was given up");
        let ordered = said(&chosen(json!({"cordon": true, "order": "Drain"})), json!({"cordon": "a person has"}));
        assert_eq!(ordered[1], "it takes no new volumes: Drain is ordered for it");
        let node = said(&json!({"cordon": true}), json!({}));
        assert_eq!(node[1], "it takes no new volumes: its whole node is cordoned, by spec.cordon of the DevicePool");
    }
}
