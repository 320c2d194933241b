//! What a person asks about the whole cluster: `kubectl localpool`.
//!
//! Takes in objects as the API server has them now (`reader`), and gives out what a person reads. Changes nothing. All
//! that decides is pure: `why_pvc` says why a claim has no volume, `why_disk` why a disk takes none, `status` what is
//! wrong; `disks` and `volumes` list, and `bundle` collects all of it for somebody who helps. `page` shows the same rows in a browser,
//! out of what the controller has in memory, and of the pods that `pod_watch` has while somebody looks.

mod asked_disk;
mod bundle;
mod claim_pod;
mod discovered;
mod disks;
mod node_summary;
mod page;
mod pod_watch;
mod problems;
mod reader;
mod status;
mod volumes;
mod why_disk;
mod why_pvc;

use kube::Client;

pub use self::asked_disk::DiskAsked;
pub use self::bundle::{Bundle, bundle};
pub use self::disks::ClusterDisk;
#[cfg(any(test, feature = "testing"))]
pub use self::page::sample as page_sample;
pub use self::page::{ICON, PageFilter, SCRIPT, STYLE, StatusPage};
pub use self::pod_watch::PodWatch;
pub use self::status::ClusterStatus;
pub use self::volumes::{ClusterVolume, VolumeFilter};
pub use self::why_disk::DiskAnswer;
pub use self::why_pvc::{PvcAnswer, PvcAsked};
use crate::api::crd::{DevicePool, PoolVolume};
use crate::device::{DiskId, NodeName};
use crate::operator::api_server::error::OperatorError;

/// Why a claim has no volume, or where its volume is.
pub async fn why_pvc(client: Client, asked: PvcAsked) -> Result<PvcAnswer, OperatorError> {
    let claim = asked.name(client.default_namespace())?;
    Ok(why_pvc::explain(&reader::pvc_case(client, &claim).await?))
}

/// Why a disk takes no new volumes, or is in no pool.
pub async fn why_disk(client: Client, asked: DiskAsked) -> Result<DiskAnswer, OperatorError> {
    why_disk::explain(&reader::disk_case(&client, asked).await?)
}

/// The nodes, the controller, and what is wrong.
pub async fn status(client: Client) -> Result<ClusterStatus, OperatorError> {
    Ok(status::status(&reader::cluster_case(&client).await?, env!("CARGO_PKG_VERSION")))
}

/// The disks of all nodes' pools, or of one node's.
pub async fn disks(client: Client, node: Option<NodeName>) -> Result<Vec<ClusterDisk>, OperatorError> {
    let pools: Vec<DevicePool> = reader::all(&client).await?;
    let found = disks::disks(&pools, node.as_ref());
    if let (Some(node), true) = (&node, found.is_empty()) {
        reader::known_node(&client, node).await?;
    }
    Ok(found)
}

/// The volumes of all nodes, with their claims and pods.
pub async fn volumes(client: Client, filter: VolumeFilter) -> Result<Vec<ClusterVolume>, OperatorError> {
    let all: Vec<PoolVolume> = reader::all(&client).await?;
    if let Some(node) = filter.node.as_ref().filter(|node| all.iter().all(|volume| volume.spec.node != **node)) {
        reader::known_node(&client, node).await?;
    }
    let pools: Vec<DevicePool> = if filter.disk.is_some() { reader::all(&client).await? } else { Vec::new() };
    let wanted = filter.resolved(&pools, &all)?;
    let persistent = reader::own_persistent_volumes(&client).await?;
    let found = volumes::volumes(&all, &persistent, &reader::pods_of_pvcs(&client).await?, &wanted);
    if let (Some(namespace), true) = (&wanted.namespace, found.is_empty()) {
        reader::known_namespace(&client, namespace.as_str()).await?;
    }
    Ok(found)
}

/// The id of a disk that an order is about. `name` is that id, or NODE/ID as the list of disks prints it.
pub async fn disk_id(client: Client, name: String) -> Result<DiskId, OperatorError> {
    match name.parse::<DiskAsked>() {
        Ok(asked) => asked.id(&reader::all(&client).await?),
        Err(_) => Ok(DiskId::named(name)),
    }
}

/// All claims, as `namespace/name`, each with its class and phase.
pub async fn pvcs(client: Client) -> Result<Vec<(String, String)>, OperatorError> {
    reader::pvcs(&client).await
}
