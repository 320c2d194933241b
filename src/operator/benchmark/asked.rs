//! What the agent of a node is asked to measure, and which command may begin in a pod now. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::in_pod::{self, PodsSeen, RunKey, SeenRun, WantedCommand};
use crate::api::crd::{BenchmarkRequest, BenchmarkState, DevicePool, DiskBenchmark};
use crate::device::{DiskId, VolumeId};
use crate::operator::disk::benchmarks::runs_in_pod;
use crate::operator::pool::agent_life::silence;
use crate::operator::status::second::to_second;

/// Who waits for the speed of a disk.
#[derive(Debug, Default)]
pub struct Waiting {
    pub volumes: BTreeSet<VolumeId>,
    /// `None`: nothing may be run in a pod of theirs, or is to be.
    pub command: Option<WantedCommand>,
}

/// A command that may begin as soon as there is a container for it.
#[derive(Debug)]
pub struct PodStart {
    pub pool: Arc<DevicePool>,
    pub key: RunKey,
    pub wanted: WantedCommand,
}

/// What the object of a pool has to say. A command that has begun stays until it is over, whoever waits.
pub fn requests(
    pool: &DevicePool,
    waiting: &BTreeMap<DiskId, Waiting>,
    pods: &PodsSeen,
    now: jiff::Timestamp,
) -> Vec<BenchmarkRequest> {
    let next = |is_wanted: bool, disk: &DiskId, requested: &Time, open: Option<&BenchmarkRequest>| {
        let key = (pool.node(), disk.clone(), requested.0);
        in_pod::next(is_wanted, open.and_then(|open| open.pod.as_ref()), pods.runs.get(&key), now)
    };
    let of_waiting = waiting.iter().map(|(disk, Waiting { volumes, command })| {
        let open = open(pool, disk);
        let requested = open.map_or_else(|| Time(to_second(now)), |open| open.requested.clone());
        let pod = next(command.is_some(), disk, &requested, open);
        BenchmarkRequest { disk: disk.clone(), requested, volumes: volumes.iter().copied().collect(), pod }
    });
    let of_nobody = pool.spec.benchmarks.iter().filter(|request| !waiting.contains_key(&request.disk));
    let begun = of_nobody.filter_map(|request| {
        let open = open(pool, &request.disk)?;
        let pod = next(false, &request.disk, &request.requested, Some(open))?;
        Some(BenchmarkRequest { pod: Some(pod), ..request.clone() })
    });
    let mut all: Vec<BenchmarkRequest> = of_waiting.chain(begun).collect();
    all.sort_by(|a, b| a.disk.cmp(&b.disk));
    all
}

/// The command that may begin on the node of a pool: one of a node at a time, when its agent says that the disk is idle.
pub fn start(pool: &Arc<DevicePool>, waiting: &BTreeMap<DiskId, Waiting>, pods: &PodsSeen) -> Option<PodStart> {
    let node = pool.node();
    let runs_here = pods.runs.iter().any(|((of, ..), run)| *of == node && *run == SeenRun::Running);
    let results = || pool.status.iter().flat_map(|status| &status.disks).filter_map(|disk| disk.benchmark.as_ref());
    let is_measured = results().any(|result| result.state == BenchmarkState::Measuring);
    if runs_here || is_measured || silence(pool).is_some() || pool.spec.benchmarks.iter().any(runs_in_pod) {
        return None;
    }
    pool.spec.benchmarks.iter().find_map(|request| {
        let is_fresh = request.pod.as_ref().is_some_and(|pod| pod.begun.is_none() && pod.ended.is_none());
        let is_idle = result(pool, &request.disk)
            .is_some_and(|result| result.idle && result.requested == request.requested && !result.state.is_over());
        let wanted = waiting.get(&request.disk)?.command.as_ref().filter(|_| is_fresh && is_idle)?;
        let key = (node.clone(), request.disk.clone(), request.requested.0);
        // One that was given up is written first.
        (!matches!(pods.runs.get(&key), Some(SeenRun::Ended(_)))).then(|| PodStart {
            pool: Arc::clone(pool),
            key,
            wanted: wanted.clone(),
        })
    })
}

/// What the agent says of a disk.
fn result<'a>(pool: &'a DevicePool, disk: &DiskId) -> Option<&'a DiskBenchmark> {
    let mut disks = pool.status.iter().flat_map(|status| &status.disks);
    disks.find(|known| known.id == *disk).and_then(|known| known.benchmark.as_ref())
}

/// The request for this disk, unless it has its result.
fn open<'a>(pool: &'a DevicePool, disk: &DiskId) -> Option<&'a BenchmarkRequest> {
    let request = pool.spec.benchmarks.iter().find(|request| request.disk == *disk)?;
    let is_over =
        result(pool, disk).is_some_and(|result| result.requested == request.requested && result.state.is_over());
    (!is_over).then_some(request)
}
