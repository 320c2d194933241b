//! Which disks the controller asks this node's agent to measure, and how far each is. Pure.
//!
//! Takes in the DevicePool and what became of a request; gives out the open requests, and what the status says of a disk.
//! A result stays until the next request for its disk.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use kube::runtime::events::EventType;
use tokio::sync::watch;

use crate::api::crd::{
    BenchmarkRequest, BenchmarkState, CommandBegun, CommandEnded, DevicePool, DevicePoolStatus, DiskBenchmark,
    DiskStatus, PodBenchmark,
};
use crate::device::DiskId;
use crate::host::DiskFigures;
use crate::operator::event::{EventNote, clip};

/// Said of a disk whose benchmark did not come to its end.
pub const INTERRUPTED: &str = "the agent or the machine ended while it was measured, and that may be why; delete the key of \
                               a volume on it to try again";

/// Said of a disk while another one is being measured.
pub const ANOTHER: &str = "another disk of the node is being measured";

/// Said of a disk that is idle.
const FOR_COMMAND: &str = "it is idle: the command may run in the pod";

/// The requests of a node, and the last result of each disk.
#[derive(Clone, Debug, Default)]
pub struct DiskBenchmarks {
    known: Arc<Mutex<KnownBenchmarks>>,
    /// What the API server has of each disk.
    written: watch::Sender<BTreeMap<DiskId, DiskBenchmark>>,
}

#[derive(Debug, Default)]
struct KnownBenchmarks {
    requests: Vec<BenchmarkRequest>,
    results: BTreeMap<DiskId, DiskBenchmark>,
    /// The disks whose result is of this process.
    own: BTreeSet<DiskId>,
}

/// What became of a request.
#[derive(Clone, Debug, PartialEq)]
pub enum BenchmarkOutcome {
    Waits(String),
    /// The controller may run its command in a pod.
    Idle,
    /// It is about to be measured.
    Begins,
    Measured(DiskFigures),
    Failed(String),
}

impl DiskBenchmarks {
    /// Takes in the object. Gives whether anything is asked that was not.
    pub fn take_in(&self, pool: Option<&DevicePool>) -> bool {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        pool.iter().flat_map(|pool| &pool.status).for_each(|status| known.remember(status));
        let requests = pool.map(|pool| pool.spec.benchmarks.clone()).unwrap_or_default();
        let changed = known.requests != requests;
        known.requests = requests;
        changed
    }

    /// What the API server says of the disks before this process writes anything.
    pub fn remember(&self, status: &DevicePoolStatus) {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).remember(status);
    }

    pub fn of(&self, disk: &DiskId) -> Option<DiskBenchmark> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).results.get(disk).cloned()
    }

    /// Those without a result.
    pub fn open(&self) -> Vec<BenchmarkRequest> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let is_over = |request: &&BenchmarkRequest| {
            let result = known.results.get(&request.disk).filter(|result| result.requested == request.requested);
            result.is_some_and(|result| result.state.is_over())
        };
        known.requests.iter().filter(|request| !is_over(request)).cloned().collect()
    }

    /// Gives whether that is news.
    pub fn set(&self, request: &BenchmarkRequest, outcome: BenchmarkOutcome) -> bool {
        let idle = outcome == BenchmarkOutcome::Idle;
        let (state, message, figures) = match outcome {
            BenchmarkOutcome::Idle => (BenchmarkState::Waiting, Some(FOR_COMMAND.to_owned()), None),
            BenchmarkOutcome::Waits(why) => (BenchmarkState::Waiting, Some(clip(why)), None),
            BenchmarkOutcome::Begins => (BenchmarkState::Measuring, None, None),
            BenchmarkOutcome::Measured(figures) => (BenchmarkState::Measured, None, Some(figures)),
            BenchmarkOutcome::Failed(why) => (BenchmarkState::Failed, Some(clip(why)), None),
        };
        let now = DiskBenchmark { requested: request.requested.clone(), state, message, figures, idle };
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.own.insert(request.disk.clone());
        if state == BenchmarkState::Measuring {
            known.not_idle_any_more();
        }
        known.results.insert(request.disk.clone(), now.clone()) != Some(now)
    }

    /// The API server has this status now, as it answered.
    pub fn written(&self, status: Option<&DevicePoolStatus>) {
        let disks = status.iter().flat_map(|status| &status.disks);
        let now = disks.filter_map(|disk| Some((disk.id.clone(), disk.benchmark.clone()?))).collect();
        self.written.send_replace(now);
    }

    /// Ends when the API server has that this request is being measured.
    pub async fn until_begun(&self, request: &BenchmarkRequest) {
        let mut written = self.written.subscribe();
        let is_there = |written: &BTreeMap<DiskId, DiskBenchmark>| is_begun(request, written.get(&request.disk));
        // The sender is here.
        let _ = written.wait_for(is_there).await;
    }
}

impl KnownBenchmarks {
    /// While a disk is measured, nobody looks at the others. Whether one that was idle still is, only the next look at it says.
    fn not_idle_any_more(&mut self) {
        for other in self.results.values_mut().filter(|other| other.idle) {
            (other.idle, other.message) = (false, Some(ANOTHER.to_owned()));
        }
    }

    /// What the status says of a disk holds, unless this process knows it itself. What an earlier one began has failed.
    fn remember(&mut self, status: &DevicePoolStatus) {
        for disk in status.disks.iter().filter(|disk| !self.own.contains(&disk.id)).collect::<Vec<_>>() {
            let Some(result) = disk.benchmark.clone() else { continue };
            let result = match result.state {
                BenchmarkState::Measuring => {
                    self.own.insert(disk.id.clone());
                    let message = Some(clip(INTERRUPTED.to_owned()));
                    DiskBenchmark { state: BenchmarkState::Failed, message, ..result }
                }
                // Whether the disk is still idle nobody knows.
                BenchmarkState::Waiting | BenchmarkState::Measured | BenchmarkState::Failed => {
                    DiskBenchmark { idle: false, ..result }
                }
            };
            self.results.insert(disk.id.clone(), result);
        }
    }
}

fn is_begun(request: &BenchmarkRequest, result: Option<&DiskBenchmark>) -> bool {
    result.is_some_and(|now| now.requested == request.requested && now.state == BenchmarkState::Measuring)
}

/// What the object asks for this disk since the same time: what a watch has shown may be over, or of fewer volumes.
pub fn asked<'a>(request: &BenchmarkRequest, pool: &'a DevicePool) -> Option<&'a BenchmarkRequest> {
    let is_it = |asked: &&BenchmarkRequest| asked.disk == request.disk && asked.requested == request.requested;
    pool.spec.benchmarks.iter().find(is_it)
}

/// What is to be said of a disk whose command has begun or ended in a pod: nothing has to be looked at for that.
pub fn in_pod(request: &BenchmarkRequest) -> Option<BenchmarkOutcome> {
    let PodBenchmark { tries: _, begun, ended } = request.pod.as_ref()?;
    if let Some(CommandEnded { figures, message }) = ended {
        return Some(match (figures, message) {
            (Some(figures), _) => BenchmarkOutcome::Measured(*figures),
            (None, why) => BenchmarkOutcome::Failed(why.clone().unwrap_or_else(|| "the command failed".to_owned())),
        });
    }
    let CommandBegun { pod, container, until: _ } = begun.as_ref()?;
    Some(BenchmarkOutcome::Waits(format!("the command runs in container {container} of pod {pod}")))
}

/// Whether a command runs in a pod.
pub fn runs_in_pod(request: &BenchmarkRequest) -> bool {
    request.pod.as_ref().is_some_and(|pod| pod.begun.is_some() && pod.ended.is_none())
}

/// Whether another process than this one has begun with that, by the object.
pub fn is_begun_by_another(request: &BenchmarkRequest, pool: &DevicePool, process: &str) -> bool {
    let Some(status) = pool.status.as_ref().filter(|status| status.agent.as_deref() != Some(process)) else {
        return false;
    };
    let disk = status.disks.iter().find(|disk| disk.id == request.disk);
    is_begun(request, disk.and_then(|disk| disk.benchmark.as_ref()))
}

/// What is new about the speed of a disk.
pub fn event(before: Option<&DiskStatus>, now: &DiskStatus) -> Option<EventNote> {
    let result = now.benchmark.as_ref()?;
    if before.and_then(|before| before.benchmark.as_ref()) == Some(result) {
        return None;
    }
    let message = result.message.as_deref().unwrap_or_default();
    let (type_, reason, note) = match (result.state, result.figures) {
        (BenchmarkState::Measured, Some(DiskFigures { read_iops, read_bandwidth, write_iops, write_bandwidth })) => {
            let note = format!(
                "disk {} was measured: reads {read_iops} IOPS, {read_bandwidth} B/s; writes {write_iops} IOPS, {write_bandwidth} B/s",
                now.id
            );
            (EventType::Normal, "DiskMeasured", note)
        }
        (BenchmarkState::Failed, _) => {
            let note = format!("disk {} was not measured, and pods go on without its figures: {message}", now.id);
            (EventType::Warning, "DiskNotMeasured", note)
        }
        (BenchmarkState::Measured | BenchmarkState::Waiting | BenchmarkState::Measuring, _) => return None,
    };
    Some(EventNote { type_, reason: reason.to_owned(), note })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::sample::pool_of_disk;
    use super::*;
    use crate::device::VolumeId;

    const FIRST: &str = "2026-03-01T00:00:00Z";
    const SECOND: &str = "2026-03-02T00:00:00Z";
    const FIGURES: DiskFigures = DiskFigures { read_iops: 1, read_bandwidth: 2, write_iops: 3, write_bandwidth: 4 };

    fn pool(requests: Value, benchmark: Value) -> DevicePool {
        pool_of_disk(&json!({"benchmarks": requests}), &json!({"benchmark": benchmark}))
    }

    fn request(at: &str) -> Value {
        json!([{"disk": "gpt-1", "requested": at, "volumes": [VolumeId::of_name("v")]}])
    }

    #[test]
    fn a_request_is_open_until_it_has_a_result_and_the_next_one_is_open_again() {
        let known = DiskBenchmarks::default();
        assert!(known.take_in(Some(&pool(request(FIRST), Value::Null))) && known.open().len() == 1);
        assert!(!known.take_in(Some(&pool(request(FIRST), Value::Null))), "nothing new is asked");
        let first = known.open().remove(0);
        let waits = || BenchmarkOutcome::Waits("words".to_owned());
        assert!(known.set(&first, waits()) && !known.set(&first, waits()), "the same is no news");
        assert_eq!(known.open().len(), 1);
        assert!(known.set(&first, BenchmarkOutcome::Measured(FIGURES)));
        assert!(known.open().is_empty());
        known.take_in(Some(&pool(json!([]), Value::Null)));
        assert_eq!(known.of(&first.disk).and_then(|result| result.figures), Some(FIGURES), "it stays");
        assert!(known.take_in(Some(&pool(request(SECOND), Value::Null))));
        assert_eq!(known.open().len(), 1);
        let fewer = json!([{"disk": "gpt-1", "requested": FIRST, "volumes": []}]);
        let live = pool(fewer, Value::Null);
        assert_eq!(asked(&first, &live).map(|live| live.volumes.len()), Some(0), "as it is now");
        assert_eq!(asked(&first, &pool(request(SECOND), Value::Null)), None);
        assert_eq!(asked(&first, &pool(json!([]), Value::Null)), None);
    }

    #[test]
    fn what_an_earlier_process_began_has_failed_and_what_this_one_began_goes_on() {
        let begun = || pool(request(FIRST), json!({"requested": FIRST, "state": "Measuring"}));
        let known = DiskBenchmarks::default();
        known.take_in(Some(&begun()));
        assert!(known.open().is_empty(), "it may have ended the machine");
        let failed = known.of(&DiskId::named("gpt-1")).expect("a result");
        assert_eq!((failed.state, failed.message.as_deref()), (BenchmarkState::Failed, Some(INTERRUPTED)));
        // The watch is behind: it still says so, or says what was before.
        known.take_in(Some(&pool(request(FIRST), json!({"requested": FIRST, "state": "Waiting"}))));
        assert!(known.open().is_empty());
        known.take_in(Some(&pool(request(SECOND), json!({"requested": FIRST, "state": "Measuring"}))));
        assert_eq!(known.open().len(), 1, "that was asked for afterwards");

        let own = DiskBenchmarks::default();
        own.take_in(Some(&pool(request(FIRST), Value::Null)));
        own.set(&own.open()[0], BenchmarkOutcome::Begins);
        own.take_in(Some(&begun()));
        assert_eq!(own.open().len(), 1);
        let behind = DiskBenchmarks::default();
        behind.take_in(Some(&pool(request(FIRST), Value::Null)));
        behind.remember(&begun().status.expect("one"));
        assert!(behind.open().is_empty(), "the API server says more than the watch");
    }

    #[test]
    fn another_process_has_begun_if_the_object_names_another_one() {
        let mut begun = pool(request(FIRST), json!({"requested": FIRST, "state": "Measuring"}));
        let [first, second] = [FIRST, SECOND].map(|at| pool(request(at), Value::Null).spec.benchmarks.remove(0));
        for (agent, is_of_another) in [(None, true), (Some("a"), true), (Some("b"), false)] {
            begun.status.as_mut().expect("one").agent = agent.map(str::to_owned);
            assert_eq!(is_begun_by_another(&first, &begun, "b"), is_of_another, "{agent:?}");
            assert!(!is_begun_by_another(&second, &begun, "b"), "that is another request");
        }
    }

    #[tokio::test]
    async fn a_benchmark_has_begun_when_the_api_server_has_it() {
        use futures::FutureExt as _;
        let known = DiskBenchmarks::default();
        let [first, second] = [FIRST, SECOND].map(|at| pool(request(at), Value::Null).spec.benchmarks.remove(0));
        let has_begun = |request: &BenchmarkRequest| known.until_begun(request).now_or_never().is_some();
        known.set(&first, BenchmarkOutcome::Begins);
        assert!(!has_begun(&first), "nothing is written");
        for (state, is_begun) in [("Waiting", false), ("Measuring", true)] {
            let written = pool(json!([]), json!({"requested": FIRST, "state": state}));
            known.written(written.status.as_ref());
            assert_eq!((has_begun(&first), has_begun(&second)), (is_begun, false), "{state}");
        }
        // A CustomResourceDefinition that does not know it drops it.
        known.written(pool(json!([]), Value::Null).status.as_ref());
        assert!(!has_begun(&first));
    }

    #[test]
    fn the_next_agent_knows_what_the_status_says_and_tries_again_what_waited() {
        for (state, open) in [("Measured", 0), ("Failed", 0), ("Waiting", 1)] {
            let known = DiskBenchmarks::default();
            known.take_in(Some(&pool(request(FIRST), json!({"requested": FIRST, "state": state}))));
            assert_eq!(known.open().len(), open, "{state}");
            assert!(known.of(&DiskId::named("gpt-1")).is_some());
        }
        let known = DiskBenchmarks::default();
        known.take_in(None);
        assert_eq!(known.of(&DiskId::named("gpt-1")), None);
    }

    #[test]
    fn only_what_is_new_is_an_event() {
        let disk = |benchmark: Value| pool(json!([]), benchmark).status.expect("one").disks.remove(0);
        let figures = json!({"readIops": 1, "readBandwidth": 2, "writeIops": 3, "writeBandwidth": 4});
        let measured = disk(json!({"requested": FIRST, "state": "Measured", "figures": figures}));
        let failed = disk(json!({"requested": FIRST, "state": "Failed", "message": "no fio"}));
        let reason = |before: &DiskStatus, now: &DiskStatus| event(Some(before), now).map(|event| event.reason);
        assert_eq!(reason(&failed, &measured).as_deref(), Some("DiskMeasured"));
        assert_eq!(reason(&measured, &measured), None);
        let event = event(None, &failed).expect("an Event");
        assert_eq!((event.reason.as_str(), event.note.ends_with("no fio")), ("DiskNotMeasured", true));
        let waiting = disk(json!({"requested": FIRST, "state": "Waiting", "message": "busy"}));
        assert_eq!((reason(&failed, &waiting), reason(&waiting, &disk(Value::Null))), (None, None));
    }

    #[test]
    fn of_a_command_in_a_pod_the_agent_says_what_the_object_says_and_of_an_idle_disk_that_it_is_idle() {
        let request = |pod: Value| {
            let asked = json!([{"disk": "gpt-1", "requested": FIRST, "volumes": [], "pod": pod}]);
            pool(asked, Value::Null).spec.benchmarks.remove(0)
        };
        let begun = json!({"tries": 1, "begun": {"pod": "s/p", "container": "c", "until": FIRST}});
        let ended = |of: Value| json!({"tries": 1, "ended": of});
        assert_eq!(in_pod(&request(Value::Null)), None);
        assert_eq!(in_pod(&request(json!({"tries": 1}))), None, "it has to be looked at");
        let runs = BenchmarkOutcome::Waits("the command runs in container c of pod s/p".to_owned());
        assert_eq!(in_pod(&request(begun.clone())), Some(runs));
        let measured = in_pod(&request(ended(json!({ "figures": FIGURES }))));
        assert_eq!(measured, Some(BenchmarkOutcome::Measured(FIGURES)));
        let failed = in_pod(&request(ended(json!({"message": "no"}))));
        assert_eq!(failed, Some(BenchmarkOutcome::Failed("no".to_owned())));
        assert!(matches!(in_pod(&request(ended(json!({})))), Some(BenchmarkOutcome::Failed(_))));
        assert!(runs_in_pod(&request(begun)) && !runs_in_pod(&request(ended(json!({})))));

        let known = DiskBenchmarks::default();
        let request = request(json!({"tries": 0}));
        known.set(&request, BenchmarkOutcome::Idle);
        let idle = known.of(&request.disk).expect("it is said");
        assert!(idle.idle && idle.state == BenchmarkState::Waiting);
        known.set(&request, BenchmarkOutcome::Waits("busy".to_owned()));
        assert!(known.of(&request.disk).is_some_and(|result| !result.idle));
        // While another disk is measured, nobody looks at this one.
        known.set(&request, BenchmarkOutcome::Idle);
        let other = BenchmarkRequest { disk: DiskId::named("gpt-2"), pod: None, ..request.clone() };
        known.set(&other, BenchmarkOutcome::Begins);
        assert!(
            known.of(&request.disk).is_some_and(|result| !result.idle && result.message.as_deref() == Some(ANOTHER))
        );
        // What an earlier process has said of it nobody knows now.
        let next = DiskBenchmarks::default();
        next.take_in(Some(&pool(json!([]), json!({"requested": FIRST, "state": "Waiting", "idle": true}))));
        assert!(next.of(&request.disk).is_some_and(|result| !result.idle));
    }
}
