//! `localpool volume erase`, and the order Erase of a PoolVolume: erases a volume that no PersistentVolume names, as
//! DeleteVolume would.

use kube::{Client, ResourceExt as _};

use super::objects::VolumeApi;
use super::order::{OrderFacts, OrderProgress, is_refused, progress};
use crate::agent::Run;
use crate::api::crd::{Intent, PoolVolume, VolumeOrder};
use crate::operator::api_server::error::OperatorError;
use crate::operator::api_server::write::Write;
use crate::operator::kube_volume::LivePersistentVolumes;
use crate::operator::node::kube_node;
use crate::operator::pool_volume::{NodeObject, is_unclaimed};
use crate::volume::VolumeId;

/// Who wants a volume erased.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AskedBy {
    /// A person who types the verb decides now.
    Verb,
    /// An order that was refused stays refused.
    Order,
}

/// Orders the erasure, or says what would be done.
pub async fn erase(client: Client, id: VolumeId, run: Run) -> Result<Vec<String>, OperatorError> {
    match VolumeApi::new(client.clone()).volume(id).await? {
        Some(object) => erase_of(client, object, AskedBy::Verb, run).await,
        None => Err(OperatorError::Refused(format!("there is no PoolVolume {id}"))),
    }
}

/// The same for an object that was just read: if it changes meanwhile, nothing is done. Refuses while a
/// PersistentVolume names the volume, and while nobody can know that no PersistentVolume is about to.
pub async fn erase_of(
    client: Client,
    object: PoolVolume,
    asked: AskedBy,
    run: Run,
) -> Result<Vec<String>, OperatorError> {
    let objects = VolumeApi::new(client.clone());
    let id = object.name_any();
    let node = object.spec.node.clone();
    let found = kube_node::live_metadata(&client, &node).await?;
    // By its handle alone: one for another node, or that a person wrote, names it too.
    let named = LivePersistentVolumes::new(client).naming(&id).await?.map(|persistent| persistent.name_any());
    let facts = OrderFacts {
        persistent_volume: named.as_deref(),
        unclaimed: is_unclaimed(&object),
        node: NodeObject::of(found),
        refused: asked == AskedBy::Order && is_refused(&object),
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
