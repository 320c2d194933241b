//! `localpool volume erase`, and the order Erase of a PoolVolume: erases a volume that no PersistentVolume names, as
//! DeleteVolume would.

use k8s_openapi::api::core::v1::Node;
use kube::{Api, Client, ResourceExt as _};

use super::objects::VolumeApi;
use super::order::{OrderFacts, OrderProgress, progress};
use crate::agent::Run;
use crate::api::crd::{Intent, VolumeOrder};
use crate::operator::client::within;
use crate::operator::error::OperatorError;
use crate::operator::pool_volume::{NodeObject, is_unclaimed};
use crate::operator::write::Write;
use crate::volume::VolumeId;

/// Orders the erasure, or says what would be done. Refuses while a PersistentVolume names the volume, and while nobody
/// can know that no PersistentVolume is about to.
pub async fn erase(client: Client, id: VolumeId, run: Run) -> Result<Vec<String>, OperatorError> {
    let objects = VolumeApi::new(client.clone());
    let name = id.to_string();
    let Some(object) = objects.get(&name).await? else {
        return Err(OperatorError::Refused(format!("there is no PoolVolume {id}")));
    };
    let node = object.spec.node.clone();
    let nodes: Api<Node> = Api::all(client);
    let found = within(&format!("reading Node {node}"), nodes.get_metadata_opt(&node)).await?;
    // By its handle alone: one for another node, or that a person wrote, names it too.
    let named = objects.persistent_volume(&name).await?.map(|persistent| persistent.name_any());
    let facts = OrderFacts {
        persistent_volume: named.as_deref(),
        unclaimed: is_unclaimed(&object),
        node: NodeObject::of(found),
        // Who types the verb decides now.
        refused: false,
    };
    match progress(&object, VolumeOrder::Erase, facts) {
        OrderProgress::Waits { message, .. }
        | OrderProgress::Refused { message, .. }
        | OrderProgress::Done(message) => {
            return Err(OperatorError::Refused(format!("volume {id} is not erased: {message}")));
        }
        OrderProgress::Due => {}
    }
    let status = object.status.clone().unwrap_or_default();
    let disk = status.disk.map_or_else(|| "its disk".to_owned(), |disk| format!("disk {disk}"));
    let size = status.capacity.unwrap_or_default();
    let what = format!("volume {id} ({}, {size}) on {disk} of node {node}", object.spec.volume_name);
    if run == Run::Dry {
        return Ok(vec![format!("would erase {what}: its data is lost")]);
    }
    let again = || OperatorError::Refused(format!("PoolVolume {id} changed meanwhile: run this again"));
    let ordered = match object.spec.intent {
        Intent::Delete => object,
        Intent::Keep => match objects.order_erasure(&object).await? {
            Write::Done(ordered) => ordered,
            Write::Changed => return Err(again()),
        },
    };
    if let Write::Changed = objects.delete(&ordered).await? {
        return Err(again());
    }
    Ok(vec![
        format!("ordered the agent of node {node} to erase {what}"),
        format!(
            "the PoolVolume disappears when that is done; until then, `kubectl get poolvolume {id} -o wide` says why not"
        ),
    ])
}
