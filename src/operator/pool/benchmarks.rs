//! Measures the disks that the controller asks for, one after the other: when nobody else uses the disk, when that has
//! been idle for a while, and only what the API server still asks for right before it. Where the controller runs a command in
//! a pod, it only says when the disk is idle, and what came of the command.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use kube::Api;
use tokio::time::Instant;

use crate::agent::{BenchmarkError, BenchmarkPace, DiskAway, DiskBenchmarker, DiskUse};
use crate::api::crd::{BenchmarkRequest, DevicePool};
use crate::device::{DiskId, VolumeId};
use crate::host::{DiskFigures, chain};
use crate::operator::api_server::client;
use crate::operator::api_server::error::{OperatorError, error_message};
use crate::operator::disk::benchmarks::{
    ANOTHER, BenchmarkOutcome, INTERRUPTED, asked, in_pod as in_pod_outcome, is_begun_by_another, runs_in_pod,
};
use crate::operator::node::context::NodeOperator;

/// Which part of the time a disk that counts as idle may be busy: a new filesystem of ext4 is still being written, slowly,
/// when it is mounted.
const IDLE_PART: u32 = 5;

/// How long a look at a disk, and its benchmark, may take. A disk that hangs costs a thread, and holds up no other disk.
const LOOK_TIMEOUT: Duration = Duration::from_secs(30);
const BENCHMARK_TIMEOUT: Duration = Duration::from_secs(300);
/// How long the API server may take to have that a benchmark begins.
const WRITE_TIMEOUT: Duration = Duration::from_secs(60);

/// Since when the pods of a request wait.
type Waits = BTreeMap<(DiskId, Timestamp), Instant>;

/// Runs until the process ends.
pub async fn keep(operator: NodeOperator) {
    let Some(benchmarker) = operator.benchmarker.clone() else { return };
    let BenchmarkPace { again, .. } = benchmarker.pace;
    let mut changed = operator.changed.subscribe();
    let mut waits = Waits::new();
    loop {
        let open = operator.benchmarks.open();
        waits.retain(|(disk, of), _| open.iter().any(|asked| asked.disk == *disk && asked.requested.0 == *of));
        let in_pod = open.iter().find(|request| runs_in_pod(request)).map(|request| request.disk.clone());
        for request in &open {
            let is_held_up = in_pod.as_ref().is_some_and(|disk| *disk != request.disk);
            if is_held_up && in_pod_outcome(request).is_none() {
                // One of a node at a time: they share its processors and its bus.
                if operator.benchmarks.set(request, BenchmarkOutcome::Waits(ANOTHER.to_owned())) {
                    operator.pool_changed();
                }
                continue;
            }
            match serve(&operator, &benchmarker, request, &mut waits).await {
                Ok(Some(outcome)) => {
                    if operator.benchmarks.set(request, outcome) {
                        operator.pool_changed();
                    }
                }
                Ok(None) => {}
                Err(error) => tracing::warn!(
                    disk = request.disk.as_str(),
                    error = error_message(&error),
                    "a disk is not measured before the API server says that it still has to be"
                ),
            }
        }
        match open.is_empty() {
            true => {
                if changed.changed().await.is_err() {
                    return;
                }
            }
            false => tokio::time::sleep(again).await,
        }
    }
}

/// `None`: there is nothing to say of it.
async fn serve(
    operator: &NodeOperator,
    benchmarker: &DiskBenchmarker,
    request: &BenchmarkRequest,
    waits: &mut Waits,
) -> Result<Option<BenchmarkOutcome>, OperatorError> {
    if let Some(outcome) = in_pod_outcome(request) {
        return Ok(Some(outcome));
    }
    // `None`: the agent ends.
    let Some(idle) = idle(benchmarker, &request.disk, &waiting(request)).await else { return Ok(None) };
    let why = match idle {
        Ok(()) if request.pod.is_some() => return Ok(Some(BenchmarkOutcome::Idle)),
        Ok(()) => match begin(operator, request).await? {
            Beginning::NotAsked => return Ok(None),
            Beginning::Interrupted => return Ok(Some(BenchmarkOutcome::Failed(INTERRUPTED.to_owned()))),
            Beginning::NotNow(why) => Err(BenchmarkError::Away(why)),
            Beginning::With(live) => match run(benchmarker, &live.disk, &waiting(&live)).await {
                Some(answer) => answer,
                None => return Ok(None),
            },
        },
        Err(why) => Err(why),
    };
    Ok(Some(match why {
        Ok(figures) => BenchmarkOutcome::Measured(figures),
        Err(BenchmarkError::Failed(error)) => BenchmarkOutcome::Failed(chain(&error)),
        // No pod waits yet.
        Err(why @ BenchmarkError::NotMounted) => BenchmarkOutcome::Waits(chain(&why)),
        Err(why @ (BenchmarkError::InUse(_) | BenchmarkError::Away(_))) => {
            let key = (request.disk.clone(), request.requested.0);
            let since = *waits.entry(key).or_insert_with(Instant::now);
            let timeout = benchmarker.pace.timeout;
            match since.elapsed() < timeout {
                true => BenchmarkOutcome::Waits(chain(&why)),
                false => {
                    BenchmarkOutcome::Failed(format!("pods have waited for {} s: {}", timeout.as_secs(), chain(&why)))
                }
            }
        }
    }))
}

/// The volumes whose pods wait.
fn waiting(request: &BenchmarkRequest) -> BTreeSet<VolumeId> {
    request.volumes.iter().copied().collect()
}

/// Whether a benchmark may begin now.
enum Beginning {
    NotAsked,
    /// An earlier process had begun.
    Interrupted,
    NotNow(DiskAway),
    /// As it is asked now.
    With(BenchmarkRequest),
}

/// Notes in the API server that the disk is being measured: it may end the agent or the machine, and then it must not be
/// tried again. What is asked is read before that and after it: the watch may lag behind a controller that does not want
/// it any more, or for fewer volumes.
async fn begin(operator: &NodeOperator, request: &BenchmarkRequest) -> Result<Beginning, OperatorError> {
    let Some(pool) = live(operator).await? else { return Ok(Beginning::NotAsked) };
    if asked(request, &pool).is_none() {
        return Ok(Beginning::NotAsked);
    }
    if is_begun_by_another(request, &pool, &operator.process) {
        return Ok(Beginning::Interrupted);
    }
    operator.benchmarks.set(request, BenchmarkOutcome::Begins);
    operator.pool_changed();
    if tokio::time::timeout(WRITE_TIMEOUT, operator.benchmarks.until_begun(request)).await.is_err() {
        return Ok(Beginning::NotNow(DiskAway::NotTaken));
    }
    Ok(after_note(request, live(operator).await?.as_ref()))
}

/// Whether it goes on after the API server has that it begins. A command in a pod that was noted before that runs by now, and
/// one that comes after it is refused.
fn after_note(request: &BenchmarkRequest, live: Option<&DevicePool>) -> Beginning {
    let Some((pool, asked)) = live.and_then(|pool| Some((pool, asked(request, pool)?))) else {
        return Beginning::NotNow(DiskAway::NotAsked);
    };
    match pool.spec.benchmarks.iter().any(runs_in_pod) {
        true => Beginning::NotNow(DiskAway::CommandRuns),
        false => Beginning::With(asked.clone()),
    }
}

/// Whether nobody but those who wait uses the disk, for a while.
async fn idle(
    benchmarker: &DiskBenchmarker,
    disk: &DiskId,
    waiting: &BTreeSet<VolumeId>,
) -> Option<Result<(), BenchmarkError>> {
    let watch = benchmarker.pace.watch;
    let look = || {
        let (of, disk, waiting) = (benchmarker.clone(), disk.clone(), waiting.clone());
        within(LOOK_TIMEOUT, move || of.place(&disk, &waiting).map(|_| of.busy_time(&disk)))
    };
    let before = match look().await? {
        Ok(before) => before,
        Err(why) => return Some(Err(why)),
    };
    tokio::time::sleep(watch).await;
    let after = match look().await? {
        Ok(after) => after,
        Err(why) => return Some(Err(why)),
    };
    Some(judge(before.zip(after), watch).map_err(BenchmarkError::InUse))
}

/// For how long a disk was busy before and after a time; `None`: nobody knows.
fn judge(busy: Option<(Duration, Duration)>, watch: Duration) -> Result<(), DiskUse> {
    let Some((before, after)) = busy else { return Err(DiskUse::NotSaid) };
    match after.checked_sub(before) {
        Some(busy) if busy <= watch / IDLE_PART => Ok(()),
        Some(_) => Err(DiskUse::Busy),
        None => Err(DiskUse::Exchanged),
    }
}

async fn run(
    benchmarker: &DiskBenchmarker,
    disk: &DiskId,
    waiting: &BTreeSet<VolumeId>,
) -> Option<Result<DiskFigures, BenchmarkError>> {
    let (of, disk, waiting) = (benchmarker.clone(), disk.clone(), waiting.clone());
    within(BENCHMARK_TIMEOUT, move || of.benchmark(&disk, &waiting)).await
}

/// Asks a disk. `None`: the agent ends.
async fn within<T: Send + 'static>(
    limit: Duration,
    ask: impl FnOnce() -> Result<T, BenchmarkError> + Send + 'static,
) -> Option<Result<T, BenchmarkError>> {
    match tokio::time::timeout(limit, tokio::task::spawn_blocking(ask)).await {
        Ok(answer) => answer.ok(),
        Err(_) => Some(Err(BenchmarkError::Away(DiskAway::NotAnswering(limit.as_secs())))),
    }
}

/// The DevicePool of this node, as the API server has it.
async fn live(operator: &NodeOperator) -> Result<Option<DevicePool>, OperatorError> {
    let api: Api<DevicePool> = Api::all(operator.client.clone());
    let node = &operator.node;
    client::within(&format!("reading DevicePool {node}"), api.get_opt(node)).await
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::operator::disk::sample::pool_of_disk;

    const AT: &str = "2026-03-01T00:00:00Z";

    #[test]
    fn a_disk_is_idle_if_it_was_busy_for_a_fifth_of_the_time_and_not_if_nobody_knows() {
        let [watch, before] = [10, 3].map(Duration::from_secs);
        let after = |millis| Some((before, before + Duration::from_millis(millis)));
        assert_eq!(judge(after(0), watch), Ok(()));
        assert_eq!(judge(after(2000), watch), Ok(()));
        assert_eq!(judge(after(2001), watch), Err(DiskUse::Busy));
        assert!(judge(None, watch).is_err());
        assert!(judge(Some((before, Duration::ZERO)), watch).is_err(), "it counts from its own beginning");
    }

    #[test]
    fn an_agent_measures_nothing_while_the_object_says_that_a_command_runs_in_a_pod() {
        let pool = |pod: Value| {
            let other = json!({"disk": "gpt-2", "requested": AT, "volumes": [], "pod": pod});
            let own = json!({"disk": "gpt-1", "requested": AT, "volumes": []});
            pool_of_disk(&json!({ "benchmarks": [own, other] }), &json!({}))
        };
        let begun = pool(json!({"tries": 1, "begun": {"pod": "s/p", "container": "c", "until": AT}}));
        let idle = pool(json!({"tries": 1}));
        let request = idle.spec.benchmarks[0].clone();
        assert!(matches!(after_note(&request, Some(&begun)), Beginning::NotNow(DiskAway::CommandRuns)));
        assert!(matches!(after_note(&request, Some(&idle)), Beginning::With(_)));
        assert!(matches!(after_note(&request, None), Beginning::NotNow(DiskAway::NotAsked)));
    }

    #[tokio::test]
    async fn a_disk_that_does_not_answer_is_waited_for_no_longer_than_that() {
        let (hang, hangs) = std::sync::mpsc::channel::<()>();
        let asked = within(Duration::from_millis(10), move || {
            // Until the test ends.
            let _ = hangs.recv();
            Ok(())
        });
        let Some(Err(BenchmarkError::Away(why))) = asked.await else { panic!("it answered") };
        assert!(matches!(why, DiskAway::NotAnswering(_)), "{why}");
        drop(hang);
        assert!(matches!(within(LOOK_TIMEOUT, || Ok(7)).await, Some(Ok(7))));
    }
}
