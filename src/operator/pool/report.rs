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

use super::set_offer::offer;
use crate::api::{
    crd::{DevicePool, DevicePoolSpec, DevicePoolStatus, DiskState, DiskStatus, PoolReason, SetOffer},
    quantity,
};
use crate::device::DiskId;
use crate::health::Board;
use crate::host::chain;
use crate::operator::{
    api_server::client::within,
    api_server::error::{OperatorError, error_message},
    bytes::{signed, unsigned},
    disk::{
        cordon,
        events::{DiskEvent, EventDisk, ReportedDisks},
        filesystems, orders,
        status::{disk_status, disks_healthy},
    },
    event::queue::EventSubject,
    node::{
        context::{NodeOperator, PassSummary},
        watched,
    },
    set::node_config::{Diskmaker, NodeConfig},
    status::condition::{Holds, condition},
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
        // An agent that has just started keeps what the one before it wrote: its times, and what nobody has answered
        // this one yet. Where that cannot be read, nothing is written over it.
        let before = match (&self.status, config.pool_exists) {
            (Some(written), _) => written.clone(),
            (None, true) => read(operator).await?,
            (None, false) => DevicePoolStatus::default(),
        };
        operator.benchmarks.remember(&before);
        let reported = self.reported.get_or_insert_with(|| ReportedDisks::after(before.disks.clone()));
        let (pool, board, wiped) = (Arc::clone(&operator.pool), operator.health.clone(), Arc::clone(&pass));
        let (orders, agent) = (operator.orders.all(), Arc::clone(&operator.process));
        let ordered = orders::events(&before.orders, &orders);
        let (benchmarks, machine) = (operator.benchmarks.clone(), operator.machine.clone());
        let made = tokio::task::spawn_blocking(move || {
            let disks = pool.disk_views();
            let erased: BTreeMap<DiskId, u64> =
                disks.iter().map(|disk| (disk.id.clone(), disk.erasure.volumes)).collect();
            let mut status = status(&pool, &disks, (&board, &agent), &pass, &config, &before);
            status.disks.iter_mut().for_each(|disk| disk.benchmark = benchmarks.of(&disk.id));
            (DevicePoolStatus { orders, machine, ..status }, erased)
        });
        let Ok((status, erased)) = made.await else { return Ok(()) };
        if self.status.as_ref() != Some(&status) {
            let written = write(operator, &status).await?;
            operator.benchmarks.written(written.status.as_ref());
            self.object = written.object_ref(&());
        }
        let ordered = ordered.into_iter().map(|(disk, note)| DiskEvent { disk: EventDisk::Pool(disk), note });
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

/// The status as it is in the API server.
async fn read(operator: &NodeOperator) -> Result<DevicePoolStatus, OperatorError> {
    let (api, name) = (Api::<DevicePool>::all(operator.client.clone()), &operator.node);
    let found = within(&format!("reading DevicePool {name}"), api.get_opt(name)).await?;
    Ok(found.and_then(|pool| pool.status).unwrap_or_default())
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

/// The content of the status, by the process `agent`. Conditions that have not changed keep their times from `before`.
fn status(
    pool: &Pool,
    disks: &[DiskView],
    (board, agent): (&Board, &str),
    pass: &PassSummary,
    config: &NodeConfig,
    before: &DevicePoolStatus,
) -> DevicePoolStatus {
    let sets = set_offers(pool, disks, pass, config);
    let total = |of: fn(&DiskView) -> u64| quantity::short(disks.iter().map(of).sum());
    let largest = sets.iter().map(|set| set.largest.max(set.block_largest)).max().unwrap_or(0);
    let statuses: Vec<DiskStatus> =
        disks.iter().map(|view| disk_status(view, &board.of_disk(view), &before.disks, agent)).collect();
    let healthy = disks_healthy(&before.conditions, &statuses);
    let disks_found = cordon::disks_found(&before.conditions, &config.disks, disks);
    let named = board.filesystems();
    let default_disks = filesystems::default_disks(&before.conditions, &config.default_disks, &named);
    let count = |is_so: fn(&&DiskStatus) -> bool| signed(statuses.iter().filter(is_so).count());
    DevicePoolStatus {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        agent: Some(agent.to_owned()),
        disk_count: signed(disks.len()),
        missing_disks: count(|disk| disk.state == DiskState::Missing),
        unhealthy_disks: count(|disk| disk.state != DiskState::Missing && !disk.health.is_empty()),
        cordoned_disks: count(|disk| disk.cordon.is_some()),
        volume_count: signed(disks.iter().map(|disk| disk.volumes).sum::<usize>()),
        size: total(DiskView::own_size),
        free: total(|disk| disk.free),
        largest: quantity::short(unsigned(largest)),
        disks: statuses,
        disk_status: filesystems::statuses(&named, &before.disk_status),
        sets,
        persistent_volumes: watched::statuses(board, before, agent),
        machine: None,
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
        .chain(default_disks)
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
        return condition(before, "Claiming", Holds::False, PoolReason::JournalDamaged.word(), chain(&error), None);
    }
    if let Some(why) = volumes_unread {
        let text = format!(
            "the PoolVolumes of this node were not read, so nothing is claimed, and bare devices offer no space: {why}"
        );
        return condition(before, "Claiming", Holds::False, PoolReason::VolumesNotRead.word(), text, None);
    }
    let (holds, reason, message) = match (&config.held_back, &config.diskmaker) {
        (Some(why), _) => (Holds::False, PoolReason::HeldBack, why.to_string()),
        (None, Diskmaker::Runs(pod)) => {
            let text = format!(
                "the Local Storage Operator's diskmaker (pod {pod}) takes disks on this node, so nothing new is claimed; what the pool has keeps working"
            );
            (Holds::False, PoolReason::DiskmakerRuns, text)
        }
        (None, Diskmaker::NotKnown) => {
            let text = "it is not known yet whether the Local Storage Operator's diskmaker runs on this node";
            (Holds::Unknown, PoolReason::NotKnown, text.to_owned())
        }
        (None, Diskmaker::Absent) => (Holds::True, PoolReason::AgentReady, "the sets claim disks here".to_owned()),
    };
    condition(before, "Claiming", holds, reason.word(), message, None)
}

#[cfg(test)]
mod tests {

    use super::*;
    use crate::operator::crds::definition::NotBelieved;

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
