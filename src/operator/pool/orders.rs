//! Carries out what persons order for disks: each time something changed that an order may wait for, and only what the API
//! server still has right before it.

use std::sync::Arc;
use std::time::Duration;

use kube::Api;
use tokio::sync::watch as channel;

use crate::agent::{Confirmed, Verb};
use crate::api::crd::{DevicePool, DiskOrderStatus, OrderState};
use crate::device::DiskId;
use crate::operator::client::within;
use crate::operator::disk_orders::{OrderStep, after, is_ordered, step, unconfirmed};
use crate::operator::error::{OperatorError, error_message};
use crate::operator::node_context::{NodeOperator, PassSummary};
use crate::operator::set::node_config::NodeConfig;
use crate::volume::VolumeId;

/// The wait after the API server did not say that an order stands: no event tells when it can, and an order that was given
/// again may look as if nothing had changed.
const CONFIRM_RETRY: Duration = Duration::from_secs(5);

/// Runs until the process ends. `named` gives the volumes on a disk their names for people, and adds those that the disk
/// was chosen for.
pub async fn keep(
    operator: NodeOperator,
    mut passes: channel::Receiver<Option<Arc<PassSummary>>>,
    mut configs: channel::Receiver<Arc<NodeConfig>>,
    named: impl Fn(&DiskId, Vec<VolumeId>) -> Vec<String>,
) {
    let mut changed = operator.changed.subscribe();
    let mut unconfirmed_any = false;
    loop {
        tokio::select! {
            ok = passes.changed() => if ok.is_err() { return },
            ok = configs.changed() => if ok.is_err() { return },
            ok = changed.changed() => if ok.is_err() { return },
            () = tokio::time::sleep(CONFIRM_RETRY), if unconfirmed_any => {}
        }
        // Before that, the pool may not have its disks yet.
        if !passes.borrow_and_update().as_ref().is_some_and(|pass| pass.knows_all) {
            continue;
        }
        unconfirmed_any = false;
        for order in operator.orders.open() {
            let outcome = look(&operator, &order, &named).await.unwrap_or_else(|why| {
                unconfirmed_any = true;
                why.outcome()
            });
            if outcome.is_some_and(|outcome| operator.orders.set(&order, outcome)) {
                operator.pool_changed();
            }
        }
    }
}

/// Why an order is not carried out now.
enum Unconfirmed {
    TakenBack,
    NotKnown(OperatorError),
}

impl Unconfirmed {
    fn outcome(&self) -> Option<(OrderState, String)> {
        match self {
            // The watch shows it later; until then the status says what it said.
            Self::TakenBack => None,
            Self::NotKnown(error) => Some(unconfirmed(&error_message(error))),
        }
    }
}

/// `None`: the agent ends.
async fn look(
    operator: &NodeOperator,
    order: &DiskOrderStatus,
    named: impl Fn(&DiskId, Vec<VolumeId>) -> Vec<String>,
) -> Result<Option<(OrderState, String)>, Unconfirmed> {
    let (pool, id) = (Arc::clone(&operator.pool), order.disk.clone());
    let read = tokio::task::spawn_blocking(move || {
        let view = pool.disk_views().into_iter().find(|view| view.id == id);
        let volumes = pool.volumes().into_iter().filter(|volume| volume.disk == id).map(|volume| volume.id);
        (view, volumes.collect::<Vec<_>>())
    });
    let Ok((view, volumes)) = read.await else { return Ok(None) };
    let on_it = named(&order.disk, volumes);
    let task = match step(order.order, view.as_ref(), &on_it) {
        OrderStep::Waits(why) => return Ok(Some((OrderState::Waiting, why))),
        OrderStep::Done(what) => return Ok(Some((OrderState::Done, what))),
        OrderStep::Due(task) => task,
    };
    let answer = loop {
        if !stands(operator, order).await.map_err(Unconfirmed::NotKnown)? {
            tracing::info!(disk = order.disk.as_str(), order = ?order.order, "an order was taken back, and is not carried out");
            return Err(Unconfirmed::TakenBack);
        }
        let (agent, confirmed) = (operator.agent_handle.clone(), Confirmed::now());
        let verb = Verb::Order { disk: order.disk.clone(), task };
        match tokio::task::spawn_blocking(move || agent.carry_out(verb, confirmed)).await {
            Ok(Ok(Some(answer))) => break answer,
            Ok(Ok(None)) => {}
            Ok(Err(_)) | Err(_) => return Ok(None),
        }
    };
    let outcome = after(answer);
    if outcome.0 == OrderState::Done {
        tracing::warn!(disk = order.disk.as_str(), order = ?order.order, "a person's order is carried out: {}", outcome.1);
    }
    Ok(Some(outcome))
}

/// Asks the API server: the watch may lag behind somebody who took the order back, or ordered something else.
async fn stands(operator: &NodeOperator, order: &DiskOrderStatus) -> Result<bool, OperatorError> {
    let api: Api<DevicePool> = Api::all(operator.client.clone());
    let node = &operator.node;
    let live = within(&format!("reading DevicePool {node}"), api.get_opt(node)).await?;
    Ok(live.is_some_and(|live| is_ordered(order, &live)))
}
