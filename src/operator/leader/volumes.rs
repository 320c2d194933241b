//! What the leader does with volumes without a node, without an agent that answers, or without a claim.
//!
//! Takes in all PoolVolumes; withdraws those that nobody asks for any more, writes conditions of those whose node is
//! deleted or silent, and gives up those of a deleted node if that is wanted.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::runtime::events::EventType;
use kube::{Api, Resource as _, ResourceExt as _};
use serde_json::json;

use super::{Leader, Pass, WRITES, WRITES_INTERVAL};
use crate::api::crd::PoolVolume;
use crate::device::NodeName;
use crate::operator::api_server::error::OperatorError;
use crate::operator::api_server::write::{Write, patch_status};
use crate::operator::event::EventNote;
use crate::operator::pool::agent_life::silence;
use crate::operator::pool::disk_homes::DiskHomes;
use crate::operator::volume::leftover;
use crate::operator::volume::node_conditions::{self, NodeAction, NodeConditions, NodeLife};

impl Leader {
    /// The next object becomes a leftover when it is due.
    pub(super) async fn volumes(&self) -> Pass {
        let mut pass = Pass::done();
        let mut writes = 0;
        let now = Timestamp::now();
        let pools = self.cluster.stores.pools.all();
        let silences: BTreeMap<NodeName, &Condition> =
            pools.iter().filter_map(|pool| Some((pool.node(), silence(pool)?))).collect();
        let homes = DiskHomes::of(&pools);
        for volume in self.cluster.stores.volumes.all() {
            match leftover::due(&volume, self.retention) {
                Some(due) if due <= now => {
                    pass.is_done &=
                        self.cluster.metrics.note("leftovers", self.objects.withdraw(&volume).await).is_some();
                    continue;
                }
                Some(due) => pass.due_in(due.duration_since(now)),
                None => {}
            }
            let node = match (self.cluster.stores.nodes.get(&volume.spec.node), silences.get(&volume.spec.node)) {
                (None, _) => NodeLife::Deleted,
                (Some(_), Some(ready)) => NodeLife::Silent(ready),
                (Some(_), None) => NodeLife::Answers,
            };
            let elsewhere = homes.elsewhere(&volume);
            let Some(act) = node_conditions::decide(&volume, node, elsewhere, self.gone) else { continue };
            // A watch may be behind, so ask the API server itself whether a node is gone.
            if matches!(node, NodeLife::Deleted) && self.cluster.exists(&volume.spec.node).await.unwrap_or(true) {
                continue;
            }
            writes += 1;
            if writes > WRITES {
                pass.due_in(WRITES_INTERVAL);
                break;
            }
            pass.is_done &= match self.cluster.metrics.note("nodes", self.act(&volume, act).await) {
                Some(event) => self.cluster.write_events(volume.object_ref(&()), "WatchNode", event.as_slice()).await,
                None => false,
            };
        }
        pass
    }

    /// Returns what has to be reported.
    async fn act(&self, volume: &PoolVolume, act: NodeAction) -> Result<Option<EventNote>, OperatorError> {
        let NodeConditions { conditions, health, state, event } = match act {
            NodeAction::Release => return self.give_up(volume).await,
            NodeAction::Write(written) => written,
        };
        let api: Api<PoolVolume> = Api::all(self.cluster.client.clone());
        let name = volume.name_any();
        let what = format!("writing the status of PoolVolume {name}");
        let seen = json!({ "resourceVersion": volume.resource_version() });
        let change =
            json!({ "metadata": seen, "status": { "conditions": conditions, "health": health, "state": state } });
        match patch_status(&api, &name, &what, change).await? {
            Write::Done(_) => Ok(event),
            Write::Changed => Ok(None),
        }
    }

    async fn give_up(&self, volume: &PoolVolume) -> Result<Option<EventNote>, OperatorError> {
        let finalized = match self.objects.delete(volume).await? {
            Write::Done(finalized) => finalized,
            Write::Changed => return Ok(None),
        };
        if let Some(finalized) = finalized {
            self.objects.let_go(&finalized).await?;
        }
        let node = &volume.spec.node;
        let note = format!("node {node} was deleted, and its volume was given up; nothing was erased");
        Ok(Some(EventNote { type_: EventType::Warning, reason: "NodeDeletedVolumeReleased".to_owned(), note }))
    }
}
