//! The verbs about disks and nodes that need objects only: `localpool disk drain`, which orders Drain and says what is
//! on the disk and what a person does next, `disk cordon` and `uncordon`, `disk add`, and `pool forget`.
//!
//! Takes in the id of the disk or the name of the node; reads the DevicePools, the PoolVolumes, the PersistentVolumes
//! and the pods of their claims, and writes what is chosen or ordered. What is said is pure (`holder`, `next_steps`).

mod add;
mod cordon;
mod forget;
mod holder;
mod next_steps;
mod objects;
mod pvc_pods;

use kube::{Api, Client};
use serde_json::json;

pub use self::add::{AddedDisk, add};
pub use self::cordon::{cordon, uncordon};
pub use self::forget::forget;
use self::next_steps::{DrainedDisk, ordering, pvcs, report};
use self::objects::{named_by, pools_with, volumes_on, write_choice};
use self::pvc_pods::PvcPods;
use crate::agent::Run;
use crate::api::crd::{DevicePool, DiskOrder};
use crate::device::DiskId;
use crate::operator::api_server::error::OperatorError;

/// Orders that the disk takes no new volumes, unless that is ordered already, and says what is on it.
pub async fn drain(client: Client, disk: DiskId, run: Run) -> Result<Vec<String>, OperatorError> {
    let pools: Api<DevicePool> = Api::all(client.clone());
    let known = pools_with(&pools, &disk).await?;
    let (pool, ordering) = ordering(&disk, &known).map_err(|why| OperatorError::Refused(why.to_string()))?;
    // First of all, as new volumes come to the disk until then, and the lists below may take long.
    if ordering.is_due() && run == Run::Real {
        write_choice(&pools, pool, &disk, json!({"order": DiskOrder::Drain})).await?;
    }
    let volumes = volumes_on(client.clone(), &disk, &pool.node()).await?;
    let named = named_by(client.clone(), &volumes).await?;
    // Who may not list pods drains a disk all the same.
    let pods = PvcPods::read(&client, &pvcs(&volumes, &named)).await;
    Ok(report(&DrainedDisk { disk: &disk, pool, ordering, volumes: &volumes, named: &named, pods: &pods }, run))
}
