//! The DevicePool's status: what this node has, what it can offer, and which devices it does not take. Written on a
//! change.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition as KubeCondition;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Resource as _};
use serde_json::json;
use tokio::sync::watch as channel;

use super::disk_events::{DiskEvent, ReportedDisks};
use super::disk_status::{disk_status, disks_healthy};
use super::set_offer::offer;
use crate::api::{
    crd::{DevicePool, DevicePoolSpec, DevicePoolStatus, DiskState, DiskStatus, SetOffer},
    quantity,
};
use crate::device::DiskId;
use crate::health::Board;
use crate::host::chain;
use crate::operator::watched;
use crate::operator::{
    bytes::{signed, unsigned},
    condition::{Holds, condition},
    cordon, disk_orders,
    error::{OperatorError, error_message},
    event_queue::EventSubject,
    node_context::{NodeOperator, PassSummary},
    set::node_config::{Diskmaker, NodeConfig},
};
use crate::pool::{DiskView, Pool, StoreError};

/// Changes come in bursts; one write serves all within this time.
const SETTLE: Duration = Duration::from_millis(100);
/// The wait after a failed write.
const STATUS_RETRY: Duration = Duration::from_secs(5);
/// The field manager of the status.
const MANAGER: &str = "localpool-agent";

/// Writes the status whenever its content has changed, and Events about what is new in it.
pub async fn keep(
    operator: NodeOperator,
    mut passes: channel::Receiver<Option<Arc<PassSummary>>>,
    mut configs: channel::Receiver<Arc<NodeConfig>>,
) {
    let mut changed = operator.changed.subscribe();
    let mut report = PoolReport::default();
    let mut failed = false;
    loop {
        let wait = if failed { STATUS_RETRY } else { Duration::MAX };
        tokio::select! {
            ok = passes.changed() => if ok.is_err() { return },
            ok = configs.changed() => if ok.is_err() { return },
            ok = changed.changed() => if ok.is_err() { return },
            () = sleep(wait) => {}
        }
        tokio::time::sleep(SETTLE).await;
        let (Some(pass), config) = (passes.borrow_and_update().clone(), configs.borrow_and_update().clone()) else {
            continue;
        };
        changed.mark_unchanged();
        if !config.complete || !pass.knows_all {
            continue;
        }
        failed = match report.write(&operator, pass, config).await {
            Ok(()) => false,
            Err(error) => {
                tracing::warn!(
                    error = error_message(&error),
                    "the DevicePool's status is not up to date; trying again"
                );
                true
            }
        };
    }
}

/// What was written.
#[derive(Default)]
struct PoolReport {
    status: Option<DevicePoolStatus>,
    /// `NodeConfig::pool_restored` as it was then.
    restored: u64,
    /// The object that has it, for its Events.
    object: ObjectReference,
    reported: Option<ReportedDisks>,
}

impl PoolReport {
    /// Writes the status if it has changed, and Events about what is new in it.
    async fn write(
        &mut self,
        operator: &NodeOperator,
        pass: Arc<PassSummary>,
        config: Arc<NodeConfig>,
    ) -> Result<(), OperatorError> {
        if !config.pool_exists || config.pool_restored != self.restored {
            (self.status, self.restored) = (None, config.pool_restored);
        }
        // An agent that has just started keeps the times that the one before it wrote.
        let before = match (&self.status, config.pool_exists) {
            (Some(written), _) => Some(written.clone()),
            (None, true) => read(operator).await,
            (None, false) => Some(DevicePoolStatus::default()),
        };
        let disks = before.as_ref().map(|before| before.disks.clone());
        let reported = self.reported.get_or_insert_with(|| ReportedDisks::after(disks));
        let (pool, board, wiped) = (Arc::clone(&operator.pool), operator.health.clone(), Arc::clone(&pass));
        let orders = operator.orders.all();
        let ordered = before.as_ref().map(|before| disk_orders::events(&before.orders, &orders)).unwrap_or_default();
        let made = tokio::task::spawn_blocking(move || {
            let disks = pool.disk_views();
            let erased: BTreeMap<DiskId, u64> =
                disks.iter().map(|disk| (disk.id.clone(), disk.erasure.volumes)).collect();
            let status = status(&pool, &disks, &board, &pass, &config, &before.unwrap_or_default());
            (DevicePoolStatus { orders, ..status }, erased)
        });
        let Ok((status, erased)) = made.await else { return Ok(()) };
        if self.status.as_ref() != Some(&status) {
            self.object = write(operator, &status).await?.object_ref(&());
        }
        let ordered = ordered.into_iter().map(|(disk, note)| DiskEvent { disk: disk.to_string(), note });
        for DiskEvent { disk, note } in reported.take_in(&status.disks, erased, &wiped.wiped).into_iter().chain(ordered)
        {
            // By which Events of several disks are kept apart.
            let field_path = Some(format!("status.disks{{{disk}}}"));
            let about = ObjectReference { field_path, ..self.object.clone() };
            operator.events.put(EventSubject::Object(Box::new(about)), "Checkup", note);
        }
        self.status = Some(status);
        Ok(())
    }
}

async fn sleep(time: Duration) {
    match time {
        Duration::MAX => std::future::pending().await,
        time => tokio::time::sleep(time).await,
    }
}

/// The status as it is in the API server; `None` where it cannot be read: then its times begin now.
async fn read(operator: &NodeOperator) -> Option<DevicePoolStatus> {
    let api: Api<DevicePool> = Api::all(operator.client.clone());
    let found = api.get_opt(&operator.node).await.ok()?;
    Some(found.and_then(|pool| pool.status).unwrap_or_default())
}

async fn write(operator: &NodeOperator, status: &DevicePoolStatus) -> Result<DevicePool, OperatorError> {
    let api: Api<DevicePool> = Api::all(operator.client.clone());
    let name = &operator.node;
    let failed = || OperatorError::api(format!("writing the status of DevicePool {name}"));
    let params = PatchParams::apply(MANAGER).force();
    let patch = json!({"apiVersion": "localpool.dev/v1alpha1", "kind": "DevicePool", "status": status});
    operator.count(|writes| &writes.pool);
    match api.patch_status(name, &params, &Patch::Apply(&patch)).await {
        Ok(written) => return Ok(written),
        Err(kube::Error::Api(status)) if status.code == 404 => {}
        Err(error) => return Err(failed()(error)),
    }
    let pool = DevicePool::new(name, DevicePoolSpec::default());
    match api.create(&PostParams::default(), &pool).await {
        Ok(_) => {}
        Err(kube::Error::Api(status)) if status.code == 409 => {}
        Err(error) => return Err(OperatorError::api(format!("making DevicePool {name}"))(error)),
    }
    api.patch_status(name, &params, &Patch::Apply(&patch)).await.map_err(failed())
}

/// The content of the status. Conditions that have not changed keep their times from `before`.
fn status(
    pool: &Pool,
    disks: &[DiskView],
    board: &Board,
    pass: &PassSummary,
    config: &NodeConfig,
    before: &DevicePoolStatus,
) -> DevicePoolStatus {
    let sets = set_offers(pool, disks, pass, config);
    let total = |of: fn(&DiskView) -> u64| quantity::short(disks.iter().map(of).sum());
    let largest = sets.iter().map(|set| set.largest.max(set.block_largest)).max().unwrap_or(0);
    let statuses: Vec<DiskStatus> =
        disks.iter().map(|view| disk_status(view, &board.of_disk(view), &before.disks)).collect();
    let healthy = disks_healthy(&before.conditions, &statuses);
    let disks_found = cordon::disks_found(&before.conditions, &config.disks, disks);
    let count = |is_so: fn(&&DiskStatus) -> bool| signed(statuses.iter().filter(is_so).count());
    DevicePoolStatus {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        disk_count: signed(disks.len()),
        missing_disks: count(|disk| disk.state == DiskState::Missing),
        unhealthy_disks: count(|disk| disk.state != DiskState::Missing && !disk.health.is_empty()),
        cordoned_disks: count(|disk| disk.cordon.is_some()),
        volume_count: signed(disks.iter().map(|disk| disk.volumes).sum::<usize>()),
        size: total(|disk| disk.size),
        free: total(|disk| disk.free),
        largest: quantity::short(unsigned(largest)),
        disks: statuses,
        sets,
        persistent_volumes: watched::statuses(board, before),
        orders: Vec::new(),
        // Another field manager writes it: applying this leaves it.
        question: None,
        // The controller writes the others: applying these leaves them.
        conditions: [claiming(
            pool.journal().sound().err(),
            pass.volumes_unread.as_deref(),
            config,
            &before.conditions,
        )]
        .into_iter()
        .chain([healthy])
        .chain(disks_found)
        .collect(),
    }
}

/// What this node offers to each set, or why the set is not valid.
fn set_offers(pool: &Pool, disks: &[DiskView], pass: &PassSummary, config: &NodeConfig) -> Vec<SetOffer> {
    config
        .sets
        .iter()
        .map(|(name, set)| match set {
            Ok(rule) => {
                let held_back = if rule.named.is_some() { &config.volumes_held_back } else { &config.held_back };
                let offer = offer(pool, disks, pass, rule);
                SetOffer {
                    message: held_back.as_ref().map(ToString::to_string).or_else(|| offer.message.clone()),
                    ..offer
                }
            }
            Err(problem) => SetOffer {
                namespace: name.namespace.clone(),
                name: name.name.clone(),
                message: Some(problem.to_string()),
                ..SetOffer::default()
            },
        })
        .collect()
}

/// Whether new disks are claimed at all.
fn claiming(
    damaged: Option<StoreError>,
    volumes_unread: Option<&str>,
    config: &NodeConfig,
    before: &[KubeCondition],
) -> KubeCondition {
    if let Some(error) = damaged {
        return condition(before, "Claiming", Holds::False, "JournalDamaged", chain(&error), None);
    }
    if let Some(why) = volumes_unread {
        let words = format!(
            "the PoolVolumes of this node were not read, so nothing is claimed, and bare devices offer no space: {why}"
        );
        return condition(before, "Claiming", Holds::False, "VolumesNotRead", words, None);
    }
    let (holds, reason, message) = match (&config.held_back, &config.diskmaker) {
        (Some(why), _) => (Holds::False, "HeldBack", why.to_string()),
        (None, Diskmaker::Runs(pod)) => {
            let words = format!(
                "the Local Storage Operator's diskmaker (pod {pod}) takes disks on this node, so nothing new is claimed; what the pool has keeps working"
            );
            (Holds::False, "DiskmakerRuns", words)
        }
        (None, Diskmaker::NotKnown) => {
            let words = "it is not known yet whether the Local Storage Operator's diskmaker runs on this node";
            (Holds::Unknown, "NotKnown", words.to_owned())
        }
        (None, Diskmaker::Absent) => (Holds::True, "AgentReady", "the sets claim disks here".to_owned()),
    };
    condition(before, "Claiming", holds, reason, message, None)
}

#[cfg(test)]
mod tests {

    use super::*;
    use crate::operator::crd_definition::NotBelieved;

    fn claiming_of(config: NodeConfig) -> (String, String) {
        let KubeCondition { type_, status, reason, .. } = claiming(None, None, &config, &[]);
        assert_eq!(type_, "Claiming");
        (status, reason)
    }

    #[test]
    fn a_damaged_journal_is_said_to_whoever_looks_from_afar() {
        let damaged = StoreError::Damaged("it is cut short".to_owned());
        let KubeCondition { status, reason, message, .. } = claiming(Some(damaged), None, &NodeConfig::default(), &[]);
        assert_eq!((status.as_str(), reason.as_str()), ("False", "JournalDamaged"));
        assert!(message.contains("journal.json") && message.contains("it is cut short"), "{message}");
    }

    #[test]
    fn a_pool_says_whether_it_claims_and_what_keeps_it_from_it() {
        let word = |status: &str, reason: &str| (status.to_owned(), reason.to_owned());
        let runs = || Diskmaker::Runs("storage/diskmaker-manager-x".into());
        assert_eq!(claiming_of(NodeConfig::default()), word("Unknown", "NotKnown"));
        assert_eq!(
            claiming_of(NodeConfig { diskmaker: Diskmaker::Absent, ..NodeConfig::default() }),
            word("True", "AgentReady")
        );
        assert_eq!(
            claiming_of(NodeConfig { diskmaker: runs(), ..NodeConfig::default() }),
            word("False", "DiskmakerRuns")
        );
        let held = NodeConfig { diskmaker: runs(), held_back: Some(NotBelieved::Replaced), ..NodeConfig::default() };
        assert_eq!(claiming_of(held), word("False", "HeldBack"));
    }
}
