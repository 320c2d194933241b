//! `localpool disk drain`, the verb of the order Drain of a DevicePool: orders it, and says what is on the disk and what a
//! person does next.
//!
//! Takes in the id of the disk; reads the DevicePool, the PoolVolumes and the PersistentVolumes, and writes the order. What
//! it says is pure (`next_steps`).

mod next_steps;

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::PersistentVolume;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt as _};
use serde_json::json;

use self::next_steps::{DrainedDisk, ordering, report};
use super::client::{find_in_pages, within};
use super::error::OperatorError;
use super::write::{self, Write};
use crate::agent::Run;
use crate::api::crd::{DevicePool, DiskOrder, PoolVolume};
use crate::device::{DiskId, NodeName};
use crate::volume::DRIVER_NAME;

/// How many objects one answer holds.
const PAGE: u32 = 500;

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

/// The DevicePools that have the disk, or an order for it.
async fn pools_with(pools: &Api<DevicePool>, disk: &DiskId) -> Result<Vec<DevicePool>, OperatorError> {
    let has_it = |pool: &DevicePool| {
        let mut status = pool.status.iter();
        status.any(|status| {
            status.disks.iter().any(|one| one.id == *disk) || status.orders.iter().any(|order| order.disk == *disk)
        })
    };
    let fetch = async |params| within("listing DevicePools", pools.list(&params)).await;
    all_of(fetch, has_it).await
}

/// The volumes that are on the disk, and those that it was chosen for.
async fn volumes_on(client: Client, disk: &DiskId, node: &NodeName) -> Result<Vec<PoolVolume>, OperatorError> {
    let volumes: Api<PoolVolume> = Api::all(client);
    let here = format!("spec.node={node}");
    let fetch = async |params: ListParams| within("listing PoolVolumes", volumes.list(&params.fields(&here))).await;
    let is_on_it = |volume: &PoolVolume| {
        let mut status = volume.status.iter();
        status.any(|status| status.disk.as_ref() == Some(disk))
    };
    all_of(fetch, is_on_it).await
}

/// The PersistentVolumes of these volumes, by the names of their objects. One that a person wrote may have any name.
async fn named_by(client: Client, volumes: &[PoolVolume]) -> Result<BTreeMap<String, PersistentVolume>, OperatorError> {
    if volumes.is_empty() {
        return Ok(BTreeMap::new());
    }
    let persistent: Api<PersistentVolume> = Api::all(client);
    let fetch = async |params| within("listing PersistentVolumes", persistent.list(&params)).await;
    let is_of_one = |one: &PersistentVolume| {
        handle(one).is_some_and(|handle| volumes.iter().any(|volume| volume.name_any() == handle))
    };
    let found = all_of(fetch, is_of_one).await?;
    Ok(found.into_iter().filter_map(|one| Some((handle(&one)?.to_owned(), one))).collect())
}

fn handle(volume: &PersistentVolume) -> Option<&str> {
    let csi = volume.spec.as_ref()?.csi.as_ref()?;
    (csi.driver == DRIVER_NAME).then_some(csi.volume_handle.as_str())
}

/// All objects of a list that are wanted; of those that are not, only one page is kept at a time.
async fn all_of<K: Clone, Page>(
    fetch: impl Fn(ListParams) -> Page,
    is_wanted: impl Fn(&K) -> bool,
) -> Result<Vec<K>, OperatorError>
where
    Page: Future<Output = Result<kube::core::ObjectList<K>, OperatorError>>,
{
    let mut found = Vec::new();
    let keep = |items: Vec<K>| -> Option<()> {
        found.extend(items.into_iter().filter(|one| is_wanted(one)));
        None
    };
    find_in_pages(ListParams::default().limit(PAGE), fetch, keep).await?;
    Ok(found)
}
