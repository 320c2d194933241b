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
use super::disk_status::disk_status;
use crate::api::{
    crd::{DevicePool, DevicePoolSpec, DevicePoolStatus, DiskState, DiskStatus, SetOffer, Unmatched},
    quantity,
};
use crate::claim::{Rejection, Rule, SetOutcome};
use crate::device::{DiskId, label::SetRef};
use crate::health::Board;
use crate::host::{KernelName, chain};
use crate::operator::watched;
use crate::operator::{
    bytes::{signed, unsigned},
    condition::{Holds, condition},
    error::{OperatorError, error_message},
    event_queue::EventSubject,
    node_context::{NodeOperator, PassSummary},
    relevance::nearest_first,
    set::{
        node_config::{Diskmaker, NodeConfig},
        partitioning::partitioning,
    },
};
use crate::pool::{DiskView, Pool, Selector, StoreError, WantedUsage};

/// Changes come in bursts; one write serves all within this time.
const SETTLE: Duration = Duration::from_millis(100);
/// The wait after a failed write.
const STATUS_RETRY: Duration = Duration::from_secs(5);
/// At most this many devices that a set takes or does not take are named; the others are only counted.
const NAMED: usize = 32;
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
        if !config.pool_exists {
            self.status = None;
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
        let made = tokio::task::spawn_blocking(move || {
            let disks = pool.disk_views();
            let erased: BTreeMap<DiskId, u64> = disks.iter().map(|disk| (disk.id.clone(), disk.erased)).collect();
            (status(&pool, &disks, &board, &pass, &config, &before.unwrap_or_default()), erased)
        });
        let Ok((status, erased)) = made.await else { return Ok(()) };
        if self.status.as_ref() != Some(&status) {
            self.object = write(operator, &status).await?.object_ref(&());
        }
        for DiskEvent { disk, note } in reported.take_in(&status.disks, erased, &wiped.wiped) {
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
    let sets: Vec<SetOffer> = config
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
        .collect();
    let total = |of: fn(&DiskView) -> u64| quantity::short(disks.iter().map(of).sum());
    let largest = sets.iter().map(|set| set.largest.max(set.block_largest)).max().unwrap_or(0);
    let statuses: Vec<DiskStatus> =
        disks.iter().map(|view| disk_status(view, &board.of_disk(view), &before.disks)).collect();
    let count = |is_so: fn(&&DiskStatus) -> bool| signed(statuses.iter().filter(is_so).count());
    DevicePoolStatus {
        disk_count: signed(disks.len()),
        missing_disks: count(|disk| disk.state == DiskState::Missing),
        unhealthy_disks: count(|disk| disk.state != DiskState::Missing && !disk.health.is_empty()),
        volume_count: signed(disks.iter().map(|disk| disk.volumes).sum::<usize>()),
        size: total(|disk| disk.size),
        free: total(|disk| disk.free),
        largest: quantity::short(unsigned(largest)),
        disks: statuses,
        sets,
        persistent_volumes: watched::statuses(board, before),
        // The controller writes the others: applying this one leaves them.
        conditions: vec![claiming(
            pool.journal().sound().err(),
            pass.volumes_unread.as_deref(),
            config,
            &before.conditions,
        )],
    }
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

fn offer(pool: &Pool, disks: &[DiskView], pass: &PassSummary, rule: &Rule) -> SetOffer {
    let set = &rule.set;
    let selector = Selector { class: None, set: Some(set.name.clone()) };
    let mount = pool.capacity(&selector, WantedUsage::Mount(None));
    let block = pool.capacity(&selector, WantedUsage::Block);
    let own = || disks.iter().filter(|disk| disk.set.has_name_of(set));
    let (would_take, would_take_omitted) = named(would_take(pass, rule));
    let (unmatched, unmatched_omitted) = named(unmatched(pass, rule));
    SetOffer {
        namespace: set.name.namespace.clone(),
        name: set.name.name.clone(),
        uid: set.uid.clone(),
        class: rule.class.clone(),
        devices: signed(own().count()),
        partitions: signed(own().map(|disk| disk.partitions).sum::<usize>()),
        available: signed(mount.available),
        largest: signed(mount.largest),
        smallest: signed(mount.smallest),
        block_available: signed(block.available),
        block_largest: signed(block.largest),
        block_smallest: signed(block.smallest),
        message: contested(pass, rule),
        would_take,
        would_take_omitted,
        unmatched,
        unmatched_omitted,
        partitioning: partitioning(rule, outcome(pass, rule), disks, pass),
        missing_device_paths: missing(pass, rule),
    }
}

/// Other sets that want devices which this set has or takes: their status names each device, the status of this set
/// only names those sets.
fn contested(pass: &PassSummary, rule: &Rule) -> Option<String> {
    let is_this = |set: &SetRef| set.has_name_of(&rule.set);
    let lost = |(_, rejection): &&(KernelName, Rejection)| matches!(rejection, Rejection::InSet(set) | Rejection::OlderSet(set) if is_this(set));
    let wishes = pass.outcomes.iter().filter_map(|outcome| {
        let devices = outcome.rejected.iter().filter(lost).count();
        (devices > 0).then(|| format!("{} selects {devices} of its devices too", outcome.set))
    });
    let wishes: Vec<String> = wishes.collect();
    (!wishes.is_empty()).then(|| wishes.join(", "))
}

fn outcome<'a>(pass: &'a PassSummary, rule: &Rule) -> Option<&'a SetOutcome> {
    pass.outcomes.iter().find(|outcome| outcome.set == rule.set)
}

/// As many as may be named, and how many more there are.
fn named<T>(mut all: Vec<T>) -> (Vec<T>, i64) {
    let omitted = signed(all.len().saturating_sub(NAMED));
    all.truncate(NAMED);
    (all, omitted)
}

/// What a dry run would take, by the names that people use.
fn would_take(pass: &PassSummary, rule: &Rule) -> Vec<String> {
    // The pass may have used an earlier version of the set.
    let names = outcome(pass, rule).filter(|_| rule.dry_run).into_iter().flat_map(|outcome| &outcome.would_take);
    let names = nearest_first(rule, names.collect(), |name| pass.sorts.get(*name).copied());
    names.into_iter().filter_map(|name| pass.links.get(name).cloned()).collect()
}

/// The devices that a set did not take, or could not claim, by the names that people use.
fn unmatched(pass: &PassSummary, rule: &Rule) -> Vec<Unmatched> {
    let reason = |(name, rejection): (&KernelName, Option<&Rejection>)| match (pass.problems.get(name), rejection) {
        (Some(problem), _) => Some(problem.clone()),
        // The message of an election counts seconds, and each second would be a write.
        (None, Some(Rejection::TooYoung(_))) => Some("blank; waits for a second look before it is claimed".to_owned()),
        (None, rejection) => rejection.map(ToString::to_string),
    };
    let device = |(name, rejection): (&KernelName, Option<&Rejection>)| {
        Some(Unmatched { device: pass.links.get(name)?.clone(), reason: reason((name, rejection))? })
    };
    let outcome = outcome(pass, rule);
    // Devices that a LocalVolume does not name do not concern it.
    let rejected = outcome
        .into_iter()
        .flat_map(|outcome| &outcome.rejected)
        .filter(|(_, rejection)| *rejection != Rejection::NotNamed);
    let takes = outcome.into_iter().flat_map(|outcome| &outcome.takes);
    let all = rejected.map(|(name, rejection)| (name, Some(rejection))).chain(takes.map(|name| (name, None))).collect();
    nearest_first(rule, all, |(name, _)| pass.sorts.get(*name).copied()).into_iter().filter_map(device).collect()
}

fn missing(pass: &PassSummary, rule: &Rule) -> Vec<String> {
    let paths = outcome(pass, rule).into_iter().flat_map(|outcome| &outcome.missing);
    paths.take(NAMED).cloned().collect()
}

#[cfg(test)]
mod tests {

    use super::*;
    use crate::claim::sample::rule;
    use crate::host::{DevNo, DeviceKind, RawDisk};
    use crate::operator::crd_definition::NotBelieved;
    use crate::operator::relevance::Sort;

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
    fn a_node_with_many_devices_names_its_disks_first_and_counts_what_it_does_not_name() {
        let raw = |name: &str, kind| RawDisk::named(name.into(), "/dev/x".into(), DevNo { major: 1, minor: 1 }, kind);
        let devices = (0..40).map(|n| raw(&format!("a-loop{n}"), DeviceKind::Loop(None)));
        let devices: Vec<RawDisk> = devices.chain((0..20).map(|n| raw(&format!("sd{n}"), DeviceKind::Disk))).collect();
        let rule = rule("a");
        let names = || devices.iter().map(|raw| raw.name.clone());
        let outcome = SetOutcome {
            set: rule.set.clone(),
            takes: Vec::new(),
            would_take: names().collect(),
            rejected: names().map(|name| (name, Rejection::Released)).collect(),
            missing: Vec::new(),
            deselected: Vec::new(),
        };
        let pass = PassSummary {
            links: names().map(|name| (name.clone(), format!("/dev/{name}"))).collect(),
            sorts: devices.iter().map(|raw| (raw.name.clone(), Sort::of(raw))).collect(),
            outcomes: vec![outcome],
            ..PassSummary::default()
        };
        let (unmatched, omitted) = named(unmatched(&pass, &rule));
        assert_eq!((unmatched.len(), omitted), (NAMED, 60 - 32));
        assert_eq!(would_take(&pass, &rule), [] as [String; 0], "it is no dry run any more");
        let rule = Rule { dry_run: true, ..rule };
        let (would_take, omitted) = named(would_take(&pass, &rule));
        assert_eq!((would_take.len(), omitted), (NAMED, 60 - 32));
        for (device, name) in unmatched.iter().map(|unmatched| &unmatched.device).zip(&would_take) {
            assert_eq!(device, name);
        }
        assert!(would_take[..20].iter().all(|name| name.starts_with("/dev/sd")), "{would_take:?}");
    }

    #[test]
    fn a_disk_that_could_not_be_claimed_is_named_with_the_reason_and_one_under_way_is_not() {
        let rule = rule("a");
        let outcome = SetOutcome {
            set: rule.set.clone(),
            takes: vec!["sda".into(), "sdb".into()],
            would_take: Vec::new(),
            rejected: vec![("sdc".into(), Rejection::Released)],
            missing: Vec::new(),
            deselected: Vec::new(),
        };
        let link = |name: &str| (name.into(), format!("/dev/{name}"));
        let pass = PassSummary {
            links: ["sda", "sdb", "sdc"].map(link).into(),
            problems: [("sda".into(), "nothing is claimed".to_owned())].into(),
            outcomes: vec![outcome],
            ..PassSummary::default()
        };
        let reason_of: Vec<_> = unmatched(&pass, &rule).into_iter().map(|one| (one.device, one.reason)).collect();
        let reason_of = |device: &str| reason_of.iter().find(|one| one.0 == device).map(|one| one.1.as_str());
        assert_eq!((reason_of("/dev/sda"), reason_of("/dev/sdb")), (Some("nothing is claimed"), None));
        assert!(reason_of("/dev/sdc").is_some_and(|reason| reason == Rejection::Released.to_string()));
    }

    #[test]
    fn a_set_is_told_which_others_want_its_devices_too() {
        let lost = |name: &str, rejection| (name.into(), rejection);
        let outcome = |of: &str, rejected| SetOutcome {
            set: rule(of).set,
            takes: Vec::new(),
            would_take: Vec::new(),
            rejected,
            missing: Vec::new(),
            deselected: Vec::new(),
        };
        let again = SetRef { uid: "made again".to_owned(), ..rule("a").set };
        let late = vec![
            lost("sda", Rejection::InSet(again)),
            lost("sdb", Rejection::OlderSet(rule("a").set)),
            lost("sdc", Rejection::InSet(rule("c").set)),
            lost("sdd", Rejection::Released),
        ];
        let pass =
            PassSummary { outcomes: vec![outcome("a", Vec::new()), outcome("late", late)], ..PassSummary::default() };
        let words = format!("{} selects 2 of its devices too", rule("late").set.name);
        assert_eq!(contested(&pass, &rule("a")), Some(words));
        assert_eq!(contested(&pass, &rule("late")), None);
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
