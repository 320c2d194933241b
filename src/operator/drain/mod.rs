//! `localpool disk drain`, the verb of the order Drain of a DevicePool: orders it, and says what is on the disk and what a
//! person does next. Beside it `disk cordon` and `uncordon`, and
//! `pool forget`.
//!
//! Takes in the id of the disk; reads the DevicePool, the PoolVolumes and the PersistentVolumes, and writes the order. What
//! it says is pure (`next_steps`).

mod cordon;
mod forget;
mod next_steps;
mod objects;

use kube::{Api, Client, ResourceExt as _};
use serde_json::json;

pub use self::cordon::{cordon, uncordon};
pub use self::forget::forget;
use self::next_steps::{DrainedDisk, ordering, report};
use self::objects::{named_by, pools_with, volumes_on};
use super::error::OperatorError;
use super::write::{self, Write};
use crate::agent::Run;
use crate::api::crd::{DevicePool, DiskOrder};
use crate::device::DiskId;

/// Orders that the disk takes no new volumes, unless that is ordered already, and says what is on it.
pub async fn drain(client: Client, disk: DiskId, run: Run) -> Result<Vec<String>, OperatorError> {
    let pools: Api<DevicePool> = Api::all(client.clone());
    let known = pools_with(&pools, &disk).await?;
    let (pool, ordering) = ordering(&disk, &known).map_err(OperatorError::Refused)?;
    let volumes = volumes_on(client.clone(), &disk, &pool.node()).await?;
    let named = named_by(client, &volumes).await?;
    if ordering.is_due() && run == Run::Real {
        let name = pool.name_any();
        // The agent often writes the status meanwhile, and an order that another person gives meanwhile loses nothing by this
        // one.
        let change = json!({
            "metadata": {"uid": pool.uid()},
            "spec": {"disks": {disk.as_str(): {"order": DiskOrder::Drain}}},
        });
        if let Write::Changed = write::patch(&pools, &name, &format!("changing DevicePool {name}"), change).await? {
            return Err(OperatorError::Refused(format!("DevicePool {name} changed meanwhile: run this again")));
        }
    }
    Ok(report(&DrainedDisk { disk: &disk, pool, ordering, volumes: &volumes, named: &named }, run))
}
