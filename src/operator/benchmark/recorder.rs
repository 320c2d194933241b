//! Writes what is planned: results, requests to agents, sets of disks, statuses. Only the leader does this, and only where the
//! administrator gave it the rights.
//!
//! Each pass looks at everything and writes what differs. It starts when something changed, when the previous pass did not
//! do everything, or when an agent has had its time.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::runtime::watcher;
use kube::{Api, Client};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::asked::PodStart;
use super::consent::{self, Consents};
use super::plan::{BenchmarkFacts, BenchmarkPlan};
use super::pod_runs::{PodCommands, PodRuns, begun};
use super::recorded_write::{RecordedKey, RecordedWrite};
use super::result_map::MAP_NAME;
use super::writer::{RecordWriter, without_managers};
use crate::api::crd::{BenchmarkRequest, NodeDiskSetup};
use crate::operator::api_server::error::{OperatorError, error_message};
use crate::operator::api_server::object_key::Uid;
use crate::operator::api_server::store::Store;
use crate::operator::api_server::watch::{Watched, decoded, keep};
use crate::operator::api_server::write::Write;
use crate::operator::disk_setup::own_set::OwnSets;
use crate::operator::disk_setup::setups::Setups;
use crate::operator::kube_volume::PersistentVolume;
use crate::operator::metrics::Metrics;
use crate::operator::persistent_volume::refusals::{Refusals, WriteEnd};
use crate::operator::persistent_volume::view::View;
use crate::operator::stores::Stores;

/// Changes come in bursts; a pass waits for the end of one. It looks at all PersistentVolumes, and one write of a
/// ConfigMap serves all volumes of its namespace.
const SETTLE: Duration = Duration::from_secs(1);
/// How many objects one pass writes, and how long after it the next one begins.
const WRITES: usize = 50;
const WRITES_INTERVAL: Duration = Duration::from_secs(1);
/// The name of this work in metrics and logs.
const WORK: &str = "benchmarks";
/// How long after a refusal the object that the administrator asks for is made again.
const DEFAULT_AGAIN: Duration = Duration::from_secs(10);

/// What is done about NodeDiskSetups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskSetupSettings {
    /// Nobody reads them.
    Ignored,
    /// What they ask for is done.
    Kept,
    /// And one with all defaults is made if it is not there.
    KeptWithDefault,
}

/// The part of the leader that keeps the results, for one replica.
pub struct BenchmarkRecorder {
    writer: RecordWriter,
    persistent: Store<PersistentVolume>,
    metrics: Metrics,
    /// As far as it is read whether they consent.
    claims: Store<PersistentVolumeClaim>,
    commands: PodCommands,
}

/// What a pass leaves to the next one.
struct RecorderMemory {
    refusals: Refusals<RecordedKey>,
    pods: PodRuns,
    /// The NodeDiskSetups whose set could not be written the last time, and why.
    unwritten: BTreeMap<Uid<NodeDiskSetup>, String>,
}

impl BenchmarkRecorder {
    /// `persistent` are all PersistentVolumes, as the leader watches them.
    pub fn new(
        client: Client,
        namespace: &str,
        stores: Stores,
        persistent: Store<PersistentVolume>,
        metrics: Metrics,
    ) -> Self {
        let (setups, maps) = (Store::new(|a, b| a == b), Store::new(|a, b| a == b));
        let commands = PodCommands::new(client.clone(), []);
        let claims = Store::new(consent::is_same);
        let writer = RecordWriter { client, namespace: namespace.to_owned(), stores, setups, maps };
        Self { writer, persistent, metrics, claims, commands }
    }

    /// With commands in pods.
    pub fn with_commands(self, commands: PodCommands) -> Self {
        Self { commands, ..self }
    }

    /// Runs until it is dropped, if there is anything to do.
    pub async fn run(self, settings: DiskSetupSettings) {
        if settings == DiskSetupSettings::Ignored {
            return;
        }
        let RecordWriter { client, setups, maps, stores, .. } = &self.writer;
        let mut watches = JoinSet::new();
        let watched = Watched::all(Api::all(client.clone()), "NodeDiskSetups");
        watches.spawn(keep(setups.clone(), watched, decoded));
        // By such a field, RBAC knows the one name that is read.
        let named = watcher::Config::default().fields(&format!("metadata.name={MAP_NAME}"));
        let watched = Watched::some(Api::all(client.clone()), named, "ConfigMaps");
        watches.spawn(keep(maps.clone(), watched, |map| decoded(map).map(without_managers)));
        let watched = Watched::all(Api::all(client.clone()), "PersistentVolumeClaims");
        watches.spawn(keep(self.claims.clone(), watched, |claim| decoded(claim).map(consent::for_store)));
        let mut changes = stores.changes().and(self.persistent.changes());
        changes = changes.and(setups.changes()).and(maps.changes()).and(self.claims.changes());
        let (refusals, unwritten, began) = (Refusals::new(), BTreeMap::new(), Instant::now());
        let mut memory =
            RecorderMemory { refusals, unwritten, pods: PodRuns::new(client.clone(), self.commands.clone()) };
        loop {
            // Any change after this starts another pass.
            changes.mark_unchanged();
            let due = match self.is_synced() {
                true => {
                    let made = match settings {
                        DiskSetupSettings::KeptWithDefault => self.writer.make_default().await,
                        DiskSetupSettings::Kept | DiskSetupSettings::Ignored => Ok(()),
                    };
                    let due = self.pass(&mut memory, began.elapsed()).await;
                    due.into_iter().chain(self.metrics.note(WORK, made).is_none().then_some(DEFAULT_AGAIN)).min()
                }
                false => None,
            };
            tokio::select! {
                _ = tokio::time::timeout(due.unwrap_or(Duration::MAX), changes.next()) => {}
                () = memory.pods.ended() => {}
            }
            tokio::time::sleep(SETTLE).await;
        }
    }

    fn is_synced(&self) -> bool {
        let RecordWriter { stores, setups, maps, .. } = &self.writer;
        let are_own_synced = setups.is_synced() && maps.is_synced() && self.claims.is_synced();
        stores.are_synced() && self.persistent.is_synced() && are_own_synced
    }

    /// Returns when there is something to do even if nothing changes.
    async fn pass(&self, memory: &mut RecorderMemory, now: Duration) -> Option<Duration> {
        let RecordWriter { stores, setups, maps, namespace, .. } = &self.writer;
        let setups = Setups::of(setups.all());
        let (view, maps) = (View::of(stores, &self.persistent), maps.all());
        let consents = Consents::of(&self.claims.all());
        let all_sets = stores.sets.all();
        let facts = BenchmarkFacts {
            setups: &setups,
            view: &view,
            consents: &consents,
            maps: &maps,
            pods: &memory.pods.seen(),
            sets: &OwnSets::of(namespace, &all_sets),
            unwritten: &memory.unwritten,
            now: Timestamp::now(),
        };
        let mut plan = BenchmarkPlan::of(&facts);
        memory.pods.retain(|key| plan.asked.contains(key));
        for start in std::mem::take(&mut plan.starts) {
            let _ = self.metrics.note(WORK, self.start(&mut memory.pods, &start).await);
        }
        let due = plan.due.map(|due| Duration::try_from(due).unwrap_or_default());
        let next = self.write(RecordedWrite::all_of(plan, &setups), memory, now).await;
        due.into_iter().chain(next).min()
    }

    /// Returns when there is more to write.
    async fn write(&self, all: Vec<RecordedWrite>, memory: &mut RecorderMemory, now: Duration) -> Option<Duration> {
        let RecorderMemory { refusals, unwritten, .. } = memory;
        let wanted: Vec<RecordedKey> = all.iter().filter_map(RecordedWrite::key).collect();
        unwritten.retain(|setup, _| wanted.contains(&RecordedKey::Set(setup.clone())));
        let (writes, waiting) = refusals.select(all, RecordedWrite::key, WRITES, now);
        let (mut pass, mut written, mut told) = (WriteEnd::Done, false, false);
        for write in writes {
            let (answer, key) = (self.writer.carry_out(&write).await, write.key());
            if let Some(RecordedKey::Set(setup)) = &key {
                told |= match &answer {
                    Ok(()) => unwritten.remove(setup).is_some(),
                    Err(error) => {
                        let why = error_message(error);
                        unwritten.insert(setup.clone(), why.clone()) != Some(why)
                    }
                };
            }
            let end = match self.metrics.note(WORK, answer) {
                Some(()) => WriteEnd::Done,
                None => WriteEnd::Refused,
            };
            refusals.written(key, end);
            match end {
                WriteEnd::Done => written = true,
                WriteEnd::Refused => pass = WriteEnd::Refused,
            }
        }
        let next = ((waiting > 0 && written) || told).then_some(WRITES_INTERVAL);
        next.into_iter().chain(refusals.end(pass, now)).min()
    }

    /// Begins a command, if there is a container for it and the API server takes that it begins.
    async fn start(&self, pods: &mut PodRuns, start: &PodStart) -> Result<(), OperatorError> {
        let PodStart { pool, key, wanted } = start;
        let Some(target) = pods.find(key, wanted).await? else { return Ok(()) };
        let mut requests = pool.spec.benchmarks.clone();
        let is_it = |request: &&mut BenchmarkRequest| request.disk == key.1 && request.requested.0 == key.2;
        let Some(of) = requests.iter_mut().find(is_it).and_then(|request| request.pod.as_mut()) else { return Ok(()) };
        of.tries += 1;
        of.begun = Some(begun(&target, wanted.command.timeout, Timestamp::now()));
        if let Write::Done(_) = self.writer.write_requests(pool, &requests).await? {
            pods.begin(key.clone(), target, wanted);
        }
        Ok(())
    }
}
