//! What the verbs of one disk read: the DevicePools that have it, and the volumes on it.

use std::collections::{BTreeMap, BTreeSet};

use kube::api::ListParams;
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};

use super::holder::disk_status;
use crate::api::crd::{DevicePool, PoolVolume};
use crate::device::{DiskId, NodeName, VolumeId};
use crate::operator::api_server::client::{find_in_pages, within};
use crate::operator::api_server::error::OperatorError;
use crate::operator::api_server::write::{self, Write};
use crate::operator::kube_volume::{LivePersistentVolumes, PersistentVolume};

/// How many objects one answer holds.
const PAGE: u32 = 500;

/// Changes what the spec of a DevicePool says of a disk. Others may write the object meanwhile: the agent its status,
/// another person another part of its spec. All that they write stays. Another DevicePool of that name is not changed.
/// Gives what the API server has kept.
pub async fn write_choice(
    pools: &Api<DevicePool>,
    pool: &DevicePool,
    disk: &DiskId,
    choice: Value,
) -> Result<DevicePool, OperatorError> {
    let name = pool.name_any();
    let change = json!({ "metadata": {"uid": pool.uid()}, "spec": {"disks": {disk.as_str(): choice}} });
    match write::patch(pools, &name, &format!("changing DevicePool {name}"), change).await? {
        Write::Done(kept) => Ok(kept),
        Write::Changed => Err(OperatorError::Refused(format!("DevicePool {name} changed meanwhile: run this again"))),
    }
}

/// The DevicePools that have the disk, or an order for it.
pub async fn pools_with(pools: &Api<DevicePool>, disk: &DiskId) -> Result<Vec<DevicePool>, OperatorError> {
    let has_it = |pool: &DevicePool| {
        let mut orders = pool.status.iter().flat_map(|status| &status.orders);
        disk_status(pool, disk).is_some() || orders.any(|order| order.disk == *disk)
    };
    let fetch = async |params| within("listing DevicePools", pools.list(&params)).await;
    all_of(fetch, has_it).await
}

/// The volumes that are on the disk, and those that it was chosen for.
pub async fn volumes_on(client: Client, disk: &DiskId, node: &NodeName) -> Result<Vec<PoolVolume>, OperatorError> {
    let volumes: Api<PoolVolume> = Api::all(client);
    let here = format!("spec.node={node}");
    let fetch = async |params: ListParams| within("listing PoolVolumes", volumes.list(&params.fields(&here))).await;
    let is_on_it = |volume: &PoolVolume| {
        let mut status = volume.status.iter();
        status.any(|status| status.disk.as_ref() == Some(disk))
    };
    all_of(fetch, is_on_it).await
}

/// The PersistentVolumes of these volumes. One that a person wrote may have any name.
pub async fn named_by(
    client: Client,
    volumes: &[PoolVolume],
) -> Result<BTreeMap<VolumeId, PersistentVolume>, OperatorError> {
    if volumes.is_empty() {
        return Ok(BTreeMap::new());
    }
    let wanted: BTreeSet<VolumeId> = volumes.iter().filter_map(id).collect();
    let mut named = BTreeMap::new();
    let take = |one: PersistentVolume| {
        if let Some(id) = one.own().filter(|id| wanted.contains(id)) {
            named.insert(id, one);
        }
    };
    LivePersistentVolumes::new(client).each(take).await?;
    Ok(named)
}

/// The PersistentVolume of a volume, among those of several.
pub fn persistent_of<'n>(
    volume: &PoolVolume,
    named: &'n BTreeMap<VolumeId, PersistentVolume>,
) -> Option<&'n PersistentVolume> {
    named.get(&id(volume)?)
}

/// `None`: a person made the object, under another name.
fn id(volume: &PoolVolume) -> Option<VolumeId> {
    volume.name_any().parse().ok()
}

/// All objects of a list that are wanted; of those that are not, only one page is kept at a time.
pub async fn all_of<K: Clone, Page>(
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
