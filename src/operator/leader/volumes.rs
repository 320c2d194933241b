//! What the leader does with volumes without a node or without a claim.
//!
//! Takes in all PoolVolumes; withdraws those that nobody asks for any more, and marks or gives up those of a deleted
//! node.

use jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::runtime::events::EventType;
use kube::{Api, Resource as _, ResourceExt as _};
use serde_json::json;

use super::Leader;
use crate::api::crd::PoolVolume;
use crate::operator::client::within;
use crate::operator::error::OperatorError;
use crate::operator::event::EventNote;
use crate::operator::pool_volume::NodeObject;
use crate::operator::volume::objects::Write;
use crate::operator::volume::{deleted_node, leftover};

impl Leader {
    /// Returns whether everything was done, and when the next object becomes a leftover.
    pub(super) async fn volumes(&self) -> (bool, Option<Timestamp>) {
        let mut done = true;
        let mut next: Option<Timestamp> = None;
        let now = Timestamp::now();
        for volume in self.stores.volumes.all() {
            match leftover::due(&volume, self.retention) {
                Some(due) if due <= now => {
                    done &= self.note("leftovers", self.objects.withdraw(&volume).await);
                    continue;
                }
                Some(due) => next = Some(next.map_or(due, |next| next.min(due))),
                None => {}
            }
            let node = NodeObject::of(self.stores.nodes.get(&volume.spec.node));
            let Some(act) = deleted_node::decide(&volume, node, self.gone) else { continue };
            // A watch may be behind, so ask the API server itself whether a node is gone.
            let result = match node == NodeObject::Exists || !self.exists(&volume.spec.node).await.unwrap_or(true) {
                true => self.act(&volume, act).await,
                false => continue,
            };
            match result {
                Ok(events) => {
                    self.note("nodes", Ok(()));
                    done &= self.publish_events(volume.object_ref(&()), "WatchNode", &events).await;
                }
                Err(error) => done &= self.note("nodes", Err::<(), _>(error)),
            }
        }
        (done, next)
    }

    /// Returns what has to be reported.
    async fn act(
        &self,
        volume: &PoolVolume,
        act: deleted_node::NodeGoneAction,
    ) -> Result<Vec<EventNote>, OperatorError> {
        let node = &volume.spec.node;
        let warning =
            |reason: &str, note: String| EventNote { type_: EventType::Warning, reason: reason.to_owned(), note };
        let (conditions, events) = match act {
            deleted_node::NodeGoneAction::Release => {
                let held = match self.objects.delete(volume).await? {
                    Write::Done(held) => held,
                    Write::Changed => return Ok(Vec::new()),
                };
                if let Some(held) = held {
                    self.objects.let_go(&held).await?;
                }
                let note = format!("node {node} was deleted, and its volume was given up; nothing was erased");
                return Ok(vec![warning("NodeDeletedVolumeReleased", note)]);
            }
            deleted_node::NodeGoneAction::Mark(conditions) => {
                let note = format!("node {node}, whose disk holds the volume, was deleted");
                (conditions, vec![warning("NodeDeleted", note)])
            }
            deleted_node::NodeGoneAction::Clear(conditions) => {
                let event = EventNote {
                    type_: EventType::Normal,
                    reason: "NodeBack".to_owned(),
                    note: format!("node {node} is back"),
                };
                (conditions, vec![event])
            }
        };
        let api: Api<PoolVolume> = Api::all(self.client.clone());
        let name = volume.name_any();
        let change = json!({
            "metadata": { "resourceVersion": volume.resource_version() },
            "status": { "conditions": conditions },
        });
        let what = format!("writing the status of PoolVolume {name}");
        match within(&what, api.patch_status(&name, &PatchParams::default(), &Patch::Merge(&change))).await {
            Ok(_) => Ok(events),
            // It changed: the watch starts another pass.
            Err(error) if error.is_conflict() || error.is_not_found() => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }
}
