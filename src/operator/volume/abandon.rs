//! `localpool volume abandon`: gives up the object of a volume whose node was deleted. Nothing is erased: no agent is
//! there to do it.

use kube::{Client, ResourceExt as _};

use super::objects::VolumeApi;
use super::order::{OrderProgress, abandoned};
use crate::agent::Run;
use crate::api::crd::PoolVolume;
use crate::operator::api_server::error::OperatorError;
use crate::operator::api_server::object_key::ObjectName;
use crate::operator::api_server::write::Write;
use crate::operator::kube_volume::{LivePersistentVolumes, PersistentVolume};
use crate::operator::node::kube_node;
use crate::operator::pool_volume::NodeObject;
use crate::volume::VolumeId;

/// Gives up the volume, or says what would be done. Refuses if the node exists.
pub async fn abandon(client: Client, id: VolumeId, run: Run) -> Result<Vec<String>, OperatorError> {
    let objects = VolumeApi::new(client.clone());
    let Some(object) = objects.volume(id).await? else {
        return Err(OperatorError::Refused(format!("there is no PoolVolume {id}")));
    };
    give_up(client.clone(), &object, run).await?;
    let persistent = LivePersistentVolumes::new(client).naming(&id.to_string()).await?;
    let persistent = persistent.as_ref().map(ObjectName::of);
    Ok(given_up_lines(&object, persistent.as_ref(), run))
}

/// Deletes the object of a volume whose node was deleted, or only looks whether that may be done.
pub async fn give_up(client: Client, object: &PoolVolume, run: Run) -> Result<(), OperatorError> {
    let objects = VolumeApi::new(client.clone());
    let (id, node) = (object.name_any(), &object.spec.node);
    let found = kube_node::live_metadata(&client, node).await?;
    if let OrderProgress::Waits { message, .. } = abandoned(object, NodeObject::of(found)) {
        return Err(OperatorError::Refused(format!("volume {id} is not given up: {message}")));
    }
    if run == Run::Dry {
        return Ok(());
    }
    let again = || Err(OperatorError::Refused(format!("PoolVolume {id} changed meanwhile: run this again")));
    match objects.delete(object).await? {
        Write::Changed => again(),
        Write::Done(None) => Ok(()),
        Write::Done(Some(held)) => match objects.let_go(&held).await? {
            Write::Changed => again(),
            Write::Done(()) => Ok(()),
        },
    }
}

/// What was done, or would be, and what is left to do for the PersistentVolume that names the volume.
pub fn given_up_lines(object: &PoolVolume, persistent: Option<&ObjectName<PersistentVolume>>, run: Run) -> Vec<String> {
    let (id, claim, node) = (object.name_any(), &object.spec.volume_name, &object.spec.node);
    let what = format!("volume {id} ({claim}) of the deleted node {node}");
    let still = persistent.map(|name| {
        format!("PersistentVolume {name} still names it: delete its claim, and the PersistentVolume is deleted too")
    });
    let done = match run {
        Run::Dry => format!("would give up {what}"),
        Run::Real => format!("gave up {what}"),
    };
    [done].into_iter().chain(still).collect()
}
