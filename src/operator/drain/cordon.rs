//! `localpool disk cordon` and `uncordon`: what a person chooses for one disk, written into its DevicePool.

use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};

use super::next_steps::{no_disk, of_several};
use super::objects::pools_with;
use crate::agent::Run;
use crate::api::crd::{DevicePool, DiskChoice};
use crate::device::DiskId;
use crate::operator::error::OperatorError;
use crate::operator::write::{self, Write};

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
            write(&pools, &pool, &disk, json!({"cordon": true})).await?;
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
    let of = format!("disk {disk} of node {}", pool.name_any());
    let choice = pool.spec.disks.get(&disk).cloned().unwrap_or_default();
    let first = match (choice.cordon, run) {
        (None, _) => format!("{of} is not cordoned by a person"),
        (Some(_), Run::Dry) => format!("would uncordon {of}"),
        (Some(_), Run::Real) => {
            let is_all = DiskChoice { cordon: None, ..choice.clone() } == DiskChoice::default();
            write(&pools, &pool, &disk, if is_all { Value::Null } else { json!({"cordon": null}) }).await?;
            format!("uncordoned {of}")
        }
    };
    let closed = choice.order.filter(|order| order.closes());
    let ordered =
        closed.map(|order| format!("{order:?} is ordered for it: as long as this is so, it takes no new volumes"));
    let end = "its health decides whether it takes new volumes; `cordon: false` in spec.disks of the DevicePool opens it \
               whatever its health";
    Ok([first].into_iter().chain(ordered).chain([end.to_owned()]).collect())
}

async fn write(pools: &Api<DevicePool>, pool: &DevicePool, disk: &DiskId, choice: Value) -> Result<(), OperatorError> {
    let name = pool.name_any();
    // Of the object that was seen, whatever else anybody writes into it meanwhile.
    let change = json!({ "metadata": {"uid": pool.uid()}, "spec": {"disks": {disk.as_str(): choice}} });
    match write::patch(pools, &name, &format!("changing DevicePool {name}"), change).await? {
        Write::Done(_) => Ok(()),
        Write::Changed => Err(OperatorError::Refused(format!("DevicePool {name} changed meanwhile: run this again"))),
    }
}

/// The one pool that has the disk.
async fn pool_of(pools: &Api<DevicePool>, disk: &DiskId) -> Result<DevicePool, OperatorError> {
    let has_it = |pool: &DevicePool| {
        let mut status = pool.status.iter();
        status.any(|status| status.disks.iter().any(|one| one.id == *disk))
    };
    let mut found = pools_with(pools, disk).await?;
    found.retain(has_it);
    match (found.pop(), &found[..]) {
        (Some(pool), []) => Ok(pool),
        (None, _) => Err(OperatorError::Refused(no_disk(disk))),
        (Some(pool), others) => {
            Err(OperatorError::Refused(of_several(disk, &others.iter().chain([&pool]).collect::<Vec<_>>())))
        }
    }
}
