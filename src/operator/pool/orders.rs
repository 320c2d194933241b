//! Carries out what persons order for disks: each time something changed that an order may wait for, and only what the
//! API server still has right before it.

use std::sync::Arc;
use std::time::Duration;

use kube::Api;
use tokio::sync::watch as channel;

use crate::agent::{OrderRead, Verb};
use crate::api::crd::{DevicePool, DiskOrderStatus, OrderState};
use crate::device::DiskId;
use crate::operator::api_server::client::within;
use crate::operator::api_server::error::{OperatorError, error_message};
use crate::operator::disk::orders::{ArrayAbove, OrderStep, after, is_ordered, step, unconfirmed};
use crate::operator::node::context::{NodeOperator, PassSummary};
use crate::operator::set::node_config::NodeConfig;
use crate::pool::{DiskView, Pool};
use crate::volume::VolumeId;

/// The wait after the API server did not say that an order stands: no event announces when it can, and an order that
/// was given again may look as if nothing had changed.
const CONFIRM_RETRY: Duration = Duration::from_secs(5);

/// Runs until the process ends. `named` gives the volumes on a disk their names for people, and adds those that the
/// disk was chosen for.
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
            let outcome = serve(&operator, &order, &named).await.unwrap_or_else(|why| {
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

/// What the pool has of a disk that something is ordered for.
struct OrderedDisk {
    view: Option<DiskView>,
    volumes: Vec<VolumeId>,
    /// The array that it is a member of, and the volumes on that.
    array: Option<(DiskId, Vec<VolumeId>)>,
    /// That is not in the pool, and may hold data.
    lacks_array: bool,
}

impl OrderedDisk {
    fn read(pool: &Pool, id: &DiskId) -> Self {
        let (views, volumes) = (pool.disk_views(), pool.volumes());
        let on = |id: &DiskId| volumes.iter().filter(|volume| volume.disk == *id).map(|volume| volume.id).collect();
        let view = views.iter().find(|view| view.id == *id).cloned();
        let array = view.as_ref().and_then(DiskView::member_of);
        let array = array.and_then(|array| views.iter().find(|view| view.array == Some(array)));
        let array = array.map(|array| (array.id.clone(), on(&array.id)));
        Self { view, volumes: on(id), array, lacks_array: pool.lacks_array_of(id) }
    }
}

/// `None`: the agent ends.
async fn serve(
    operator: &NodeOperator,
    order: &DiskOrderStatus,
    named: impl Fn(&DiskId, Vec<VolumeId>) -> Vec<String>,
) -> Result<Option<(OrderState, String)>, Unconfirmed> {
    let (pool, id) = (Arc::clone(&operator.pool), order.disk.clone());
    let Ok(read) = tokio::task::spawn_blocking(move || OrderedDisk::read(&pool, &id)).await else { return Ok(None) };
    let OrderedDisk { view, volumes, array, lacks_array } = read;
    let on_it = named(&order.disk, volumes);
    let array = match array {
        Some((id, volumes)) => ArrayAbove::Here { on_it: named(&id, volumes), id },
        None if lacks_array => ArrayAbove::Lacking,
        None => ArrayAbove::None,
    };
    let task = match step(order.order, view.as_ref(), &on_it, &array) {
        OrderStep::Waits(why) => return Ok(Some((OrderState::Waiting, why))),
        OrderStep::Done(what) => return Ok(Some((OrderState::Done, what))),
        OrderStep::Due(task) => task,
    };
    let answer = loop {
        if !stands(operator, order).await.map_err(Unconfirmed::NotKnown)? {
            tracing::info!(disk = order.disk.as_str(), order = ?order.order, "an order was taken back, and is not carried out");
            return Err(Unconfirmed::TakenBack);
        }
        let (agent, confirmed) = (operator.agent_handle.clone(), OrderRead::now());
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
