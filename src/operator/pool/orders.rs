//! Carries out what persons order for disks: each time something changed that an order may wait for.

use std::sync::Arc;

use tokio::sync::watch as channel;

use crate::agent::Verb;
use crate::api::crd::{DiskOrderStatus, OrderState};
use crate::device::DiskId;
use crate::operator::disk_orders::{OrderStep, after, step};
use crate::operator::node_context::{NodeOperator, PassSummary};
use crate::operator::set::node_config::NodeConfig;
use crate::volume::VolumeId;

/// Runs until the process ends. `named` gives the volumes on a disk their names for people, and adds those that the disk
/// was chosen for.
pub async fn keep(
    operator: NodeOperator,
    mut passes: channel::Receiver<Option<Arc<PassSummary>>>,
    mut configs: channel::Receiver<Arc<NodeConfig>>,
    named: impl Fn(&DiskId, Vec<VolumeId>) -> Vec<String>,
) {
    let mut changed = operator.changed.subscribe();
    loop {
        tokio::select! {
            ok = passes.changed() => if ok.is_err() { return },
            ok = configs.changed() => if ok.is_err() { return },
            ok = changed.changed() => if ok.is_err() { return },
        }
        // Before that, the pool may not have its disks yet.
        if !passes.borrow_and_update().as_ref().is_some_and(|pass| pass.knows_all) {
            continue;
        }
        for order in operator.orders.open() {
            let outcome = look(&operator, &order, &named).await;
            if outcome.is_some_and(|outcome| operator.orders.set(&order, outcome)) {
                operator.pool_changed();
            }
        }
    }
}

/// `None`: the agent ends.
async fn look(
    operator: &NodeOperator,
    order: &DiskOrderStatus,
    named: impl Fn(&DiskId, Vec<VolumeId>) -> Vec<String>,
) -> Option<(OrderState, String)> {
    let (pool, id) = (Arc::clone(&operator.pool), order.disk.clone());
    let read = tokio::task::spawn_blocking(move || {
        let view = pool.disk_views().into_iter().find(|view| view.id == id);
        let volumes = pool.volumes().into_iter().filter(|volume| volume.disk == id).map(|volume| volume.id);
        (view, volumes.collect::<Vec<_>>())
    });
    let (view, volumes) = read.await.ok()?;
    let on_it = named(&order.disk, volumes);
    let task = match step(order.order, view.as_ref(), &on_it) {
        OrderStep::Waits(why) => return Some((OrderState::Waiting, why)),
        OrderStep::Done(what) => return Some((OrderState::Done, what)),
        OrderStep::Due(task) => task,
    };
    let (agent, disk) = (operator.agent_handle.clone(), order.disk.clone());
    let answer = tokio::task::spawn_blocking(move || agent.verb(Verb::Order { disk, task })).await.ok()?.ok()?;
    let outcome = after(answer);
    if outcome.0 == OrderState::Done {
        tracing::warn!(disk = order.disk.as_str(), order = ?order.order, "a person's order is carried out: {}", outcome.1);
    }
    Some(outcome)
}
