//! `localpool volume abandon`: gives up the object of a volume whose node was deleted. Nothing is erased: no agent is
//! there to do it.

use k8s_openapi::api::core::v1::Node;
use kube::{Api, Client, ResourceExt as _};

use super::objects::VolumeApi;
use super::order::{OrderProgress, abandoned};
use crate::agent::Run;
use crate::operator::client::within;
use crate::operator::error::OperatorError;
use crate::operator::pool_volume::NodeObject;
use crate::operator::write::Write;
use crate::volume::VolumeId;

/// Gives up the volume, or says what would be done. Refuses if the node exists.
pub async fn abandon(client: Client, id: VolumeId, run: Run) -> Result<Vec<String>, OperatorError> {
    let objects = VolumeApi::new(client.clone());
    let name = id.to_string();
    let refused = |words: String| Err(OperatorError::Refused(words));
    let Some(object) = objects.get(&name).await? else {
        return refused(format!("there is no PoolVolume {id}"));
    };
    let node = &object.spec.node;
    let nodes: Api<Node> = Api::all(client);
    let found = within(&format!("reading Node {node}"), nodes.get_metadata_opt(node)).await?;
    if let OrderProgress::Waits { message, .. } = abandoned(&object, NodeObject::of(found)) {
        return refused(format!("volume {id} is not given up: {message}"));
    }
    let claim = object.spec.volume_name.clone();
    let mut lines = vec![match run {
        Run::Dry => format!("would give up volume {id} ({claim}) of the deleted node {node}"),
        Run::Real => format!("gave up volume {id} ({claim}) of the deleted node {node}"),
    }];
    if run == Run::Real {
        let again = || refused(format!("PoolVolume {id} changed meanwhile: run this again"));
        match objects.delete(&object).await? {
            Write::Changed => return again(),
            Write::Done(Some(held)) => match objects.let_go(&held).await? {
                Write::Changed => return again(),
                Write::Done(()) => {}
            },
            Write::Done(None) => {}
        }
    }
    if let Some(persistent) = objects.persistent_volume(&name).await? {
        let name = persistent.name_any();
        lines.push(format!(
            "PersistentVolume {name} still names it: delete its claim, and the PersistentVolume is deleted too"
        ));
    }
    Ok(lines)
}
