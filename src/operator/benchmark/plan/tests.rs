use serde_json::{Value, json};

use super::super::sample;
use super::*;
use crate::operator::set::sample::node;
use crate::volume::VolumeId;

const SINCE: &str = "2026-02-01T00:00:00Z";
const CAME: &str = "2026-03-01T00:00:00Z";
const NOW: &str = "2026-03-01T00:01:00Z";
const DISK: &str = "gpt-1";

/// A cluster of one node, whose disk is `disk`.
struct Cluster {
    setups: Setups,
    view: View,
    consents: Consents,
    maps: Vec<Arc<ConfigMap>>,
    pods: PodsSeen,
}

impl Cluster {
    fn new(volumes: &[(&str, &str)], disk: Value, requests: Value) -> Self {
        let view = View {
            persistent: volumes
                .iter()
                .map(|(name, space)| sample::persistent(name, space, CAME, "Filesystem").into())
                .collect(),
            volumes: volumes
                .iter()
                .map(|(name, _)| {
                    let volume = sample::volume(name, "n", Some(DISK));
                    (volume.name_any().parse().expect("an id"), Arc::new(volume))
                })
                .collect(),
            nodes: vec![node("n", &[("disk", "ssd")])],
            pools: vec![sample::pool("n", Value::Null, vec![sample::disk(DISK, disk)], requests).into()],
            ..View::default()
        };
        let consents = Self::consents(volumes.iter().map(|(name, _)| *name));
        Self { setups: Self::setups(json!({})), view, consents, maps: Vec::new(), pods: PodsSeen::default() }
    }

    /// The claims of these volumes consent, and no others.
    fn consents<'a>(volumes: impl IntoIterator<Item = &'a str>) -> Consents {
        Consents::of(&volumes.into_iter().map(|name| sample::claim(name, "true").into()).collect::<Vec<_>>())
    }

    fn setups(spec: Value) -> Setups {
        Setups::of(vec![sample::setup("s", SINCE, spec).into()])
    }

    fn with_map(mut self, namespace: &str, data: Value, written: Value) -> Self {
        self.maps.push(sample::map(namespace, data, written).into());
        self
    }

    fn plan(&self) -> BenchmarkPlan {
        let Self { setups, view, consents, maps, pods } = self;
        let sets = &OwnSets::of("localpool", &[]);
        let now = NOW.parse().expect("a time");
        BenchmarkPlan::of(&BenchmarkFacts {
            setups,
            view,
            consents,
            maps,
            pods,
            sets,
            unwritten: &BTreeMap::new(),
            now,
        })
    }

    /// The values that are written, by namespace and PersistentVolume.
    fn values(&self) -> Vec<(String, Vec<(String, String)>)> {
        let values = |map: ResultMap| map.values.into_iter().map(|(uid, value)| (uid.to_string(), value)).collect();
        self.plan().maps.into_iter().map(|(space, _, map)| (space.to_string(), values(map))).collect()
    }
}

fn measured(of: &str) -> Value {
    json!({"benchmark": {"requested": of, "state": "Measured", "figures": sample::FIGURES}})
}

fn said() -> String {
    io_properties::document("/var/lib/scylla", sample::FIGURES).expect("it can be said")
}

fn one(space: &str, values: &[(&str, String)]) -> Vec<(String, Vec<(String, String)>)> {
    vec![(space.to_owned(), values.iter().map(|(uid, value)| ((*uid).to_owned(), value.clone())).collect())]
}

#[test]
fn the_volumes_of_a_measured_disk_get_its_figures_in_one_write_for_each_namespace() {
    let cluster = Cluster::new(&[("a", "x"), ("b", "x"), ("c", "y")], measured(SINCE), json!([]));
    let mut expected = one("x", &[("uid-a", said()), ("uid-b", said())]);
    expected.extend(one("y", &[("uid-c", said())]));
    assert_eq!(cluster.values(), expected);
    let plan = cluster.plan();
    assert!(plan.requests.is_empty() && plan.due.is_none());
    assert!(plan.maps.iter().all(|(_, seen, map)| seen.is_none() && map.written.len() == map.values.len()));
}

#[test]
fn volumes_of_a_disk_that_nobody_measured_are_asked_for_once_and_nothing_is_written_for_them() {
    let mut cluster = Cluster::new(&[("a", "x"), ("b", "y")], json!({}), json!([]));
    let plan = cluster.plan();
    assert!(plan.maps.is_empty() && plan.due.is_some());
    let [(_, requests)] = &plan.requests[..] else { panic!("one pool: {:?}", plan.requests) };
    let [request] = &requests[..] else { panic!("one disk: {requests:?}") };
    assert_eq!((request.disk.as_str(), request.volumes.len()), (DISK, 2));
    assert_eq!(request.requested.0.to_string(), NOW);
    let [(_, status)] = &plan.statuses[..] else { panic!("one status") };
    assert_eq!((status.nodes, status.volumes, status.waiting), (1, 2, 2));

    // It stands from now on, whatever the time is.
    let asked = json!([{"disk": DISK, "requested": "2026-03-01T00:00:30Z", "volumes": request.volumes}]);
    let waits = json!({"benchmark": {"requested": "2026-03-01T00:00:30Z", "state": "Waiting"}});
    for disk in [json!({}), waits] {
        cluster.view.pools = vec![sample::pool("n", Value::Null, vec![sample::disk(DISK, disk)], asked.clone()).into()];
        assert!(cluster.plan().requests.is_empty());
    }
    // Its result is there, so it goes.
    let of = "2026-03-01T00:00:30Z";
    cluster.view.pools = vec![sample::pool("n", Value::Null, vec![sample::disk(DISK, measured(of))], asked).into()];
    assert_eq!(cluster.values().len(), 2);
    assert!(matches!(&cluster.plan().requests[..], [(_, requests)] if requests.is_empty()));
}

#[test]
fn nothing_is_written_twice_and_a_key_that_is_there_stays_as_somebody_made_it() {
    let at = CAME.parse::<Timestamp>().expect("a time").as_second();
    let data = json!({"iosetup-uid-a": "somebody's", "iosetup-uid-b": ""});
    let mut cluster = Cluster::new(&[("a", "x"), ("b", "x")], measured(SINCE), json!([])).with_map(
        "x",
        data,
        json!({"uid-a": at, "uid-b": at}),
    );
    assert!(cluster.plan().maps.is_empty());
    // Another switch changes nothing that was written.
    cluster.setups = Cluster::setups(json!({"diskBenchmarkDisabled": true}));
    assert!(cluster.plan().maps.is_empty());
    // A value that was there before anything was written here is not claimed.
    let by_hand = Cluster::new(&[("a", "x")], measured(SINCE), json!([])).with_map(
        "x",
        json!({"iosetup-uid-a": "theirs"}),
        json!({}),
    );
    assert!(by_hand.plan().maps.is_empty());
}

#[test]
fn a_deleted_key_is_measured_again_and_the_figures_of_before_are_not_written() {
    let at = CAME.parse::<Timestamp>().expect("a time").as_second();
    let deleted =
        |disk: Value| Cluster::new(&[("a", "x")], disk, json!([])).with_map("x", json!({}), json!({"uid-a": at}));
    let before = deleted(measured(CAME)).plan();
    assert!(before.maps.is_empty(), "what was written is still noted");
    assert_eq!(before.requests.len(), 1);
    let after = deleted(measured("2026-03-01T00:00:30Z"));
    assert_eq!(after.values(), one("x", &[("uid-a", said())]));
    assert!(after.plan().requests.is_empty());
}

#[test]
fn a_volume_whose_claim_does_not_consent_is_in_no_request_though_another_one_of_its_disk_does() {
    let mut cluster = Cluster::new(&[("a", "x"), ("b", "x"), ("c", "x")], json!({}), json!([]));
    cluster.consents =
        Consents::of(&[("a", "true"), ("b", "false")].map(|(name, word)| sample::claim(name, word).into()));
    let plan = cluster.plan();
    let [(_, requests)] = &plan.requests[..] else { panic!("one pool: {:?}", plan.requests) };
    assert_eq!(requests[0].volumes, [VolumeId::of_name("a")]);
    assert_eq!(cluster.values(), one("x", &[("uid-b", String::new())]), "the claim of c is not seen yet");
}

#[test]
fn a_noted_time_that_is_still_to_come_is_nobodys_and_makes_no_benchmark_again_and_again() {
    let at = |time: &str| time.parse::<Timestamp>().expect("a time").as_second();
    let noted = |time: &str| {
        let map = json!({"uid-a": at(time)});
        Cluster::new(&[("a", "x")], measured("2026-03-01T00:00:30Z"), json!([])).with_map("x", json!({}), map)
    };
    let future = noted("2036-03-01T00:00:00Z");
    assert_eq!(future.values(), one("x", &[("uid-a", said())]));
    assert!(future.plan().requests.is_empty());
    assert_eq!(noted(NOW).plan().requests.len(), 1, "that one was deleted now");
}

#[test]
fn a_key_goes_with_its_persistent_volume_and_stays_while_that_is_released() {
    let at = CAME.parse::<Timestamp>().expect("a time").as_second();
    let data = json!({"iosetup-uid-a": "1", "iosetup-uid-gone": "2", "iosetup-theirs": "3"});
    let mut cluster =
        Cluster::new(&[("a", "x")], json!({}), json!([])).with_map("x", data, json!({"uid-a": at, "uid-gone": at}));
    let mut released = sample::persistent("a", "x", CAME, "Filesystem");
    released.phase = BindingPhase::Released;
    cluster.view.persistent = vec![released.into()];
    assert_eq!(cluster.values(), one("x", &[("uid-a", "1".to_owned())]));
    cluster.view.persistent.clear();
    assert_eq!(cluster.values(), one("x", &[]));
    cluster.setups = Setups::default();
    assert_eq!(cluster.values(), one("x", &[]), "also without any NodeDiskSetup");
}

#[test]
fn a_volume_that_no_setup_is_for_or_that_nothing_is_known_of_gets_no_key() {
    let mut cluster = Cluster::new(&[("a", "x")], measured(SINCE), json!([]));
    cluster.setups = Cluster::setups(json!({"placement": {"nodeSelector": {"disk": "hdd"}}}));
    assert!(cluster.values().is_empty());
    let [(_, status)] = &cluster.plan().statuses[..] else { panic!("one status") };
    assert_eq!((status.nodes, status.conditions[0].reason.as_str()), (0, "SelectsNoNode"));
    cluster.setups = Cluster::setups(json!({"localDisksPath": "/"}));
    assert!(cluster.values().is_empty());
    let [(_, status)] = &cluster.plan().statuses[..] else { panic!("one status") };
    assert_eq!((status.conditions[0].status.as_str(), status.conditions[0].reason.as_str()), ("False", "Invalid"));
    assert!(status.conditions[0].message.contains("localDisksPath"));

    cluster.setups = Cluster::setups(json!({}));
    assert_eq!(cluster.values().len(), 1);
    let mut unbound = sample::persistent("a", "x", CAME, "Filesystem");
    unbound.phase = BindingPhase::Pending;
    cluster.view.persistent = vec![unbound.into()];
    assert!(cluster.values().is_empty());
    cluster.view.persistent = vec![sample::persistent("a", "x", CAME, "Filesystem").into()];
    cluster.view.volumes.clear();
    assert!(cluster.values().is_empty(), "its object is unknown");
}

#[test]
fn five_thousand_volumes_of_one_namespace_are_one_write_and_those_without_room_get_the_empty_value() {
    let names: Vec<String> = (0..5000).map(|number| format!("pvc-{number}")).collect();
    let volumes: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "x")).collect();
    let cluster = Cluster::new(&volumes, measured(SINCE), json!([]));
    let plan = cluster.plan();
    let [(namespace, _, map)] = &plan.maps[..] else { panic!("one map") };
    let with_figures = map.values.values().filter(|value| !value.is_empty()).count();
    assert_eq!((map.values.len(), with_figures), (5000, FIGURES_AT_MOST));
    let bytes = map.object(namespace, None)["data"].to_string().len();
    assert!(bytes < 1 << 20, "{bytes}");
}

/// The request of the only disk, of a cluster in which the agent says this of it and this is asked of it in a pod.
fn in_pods(allowed: &[&str], says: Value, pod: Value) -> Cluster {
    let of = "2026-03-01T00:00:30Z";
    let mut result = json!({"requested": of, "state": "Waiting"});
    result.as_object_mut().expect("an object").extend(says.as_object().expect("an object").clone());
    let mut volumes = ["a", "b"].map(VolumeId::of_name);
    volumes.sort();
    let mut request = json!({"disk": DISK, "requested": of, "volumes": volumes});
    request["pod"] = pod;
    let mut cluster = Cluster::new(&[("a", "x"), ("b", "y")], json!({"benchmark": result}), json!([request]));
    cluster.setups = Cluster::setups(json!({"diskBenchmarkOptions": {"runIn": "Pod", "command": ["iotune"]}}));
    cluster.pods.allowed = allowed.iter().map(|space| (*space).into()).collect();
    cluster
}

fn claims(plan: &BenchmarkPlan) -> Vec<String> {
    let pods = plan.starts.iter().flat_map(|start| &start.wanted.pods);
    pods.map(|of| format!("{}/{}", of.namespace, of.claim)).collect()
}

#[test]
fn a_command_may_begin_in_the_pods_of_listed_namespaces_when_the_agent_says_that_the_disk_is_idle() {
    let idle = || json!({"idle": true});
    let plan = in_pods(&["x"], idle(), json!({"tries": 0})).plan();
    assert!(plan.requests.is_empty(), "{:?}", plan.requests);
    assert_eq!(claims(&plan), ["x/a"]);
    assert_eq!(plan.starts[0].wanted.command.command, ["iotune"]);
    assert!(plan.asked.contains(&plan.starts[0].key));
    let both = in_pods(&["x", "y"], idle(), json!({"tries": 0})).plan();
    assert_eq!(claims(&both), ["x/a", "y/b"]);

    for (what, says, pod) in [
        ("the agent has not said it", json!({}), json!({"tries": 0})),
        ("it said so of another request", json!({"idle": true, "requested": CAME}), json!({"tries": 0})),
        ("it is over", json!({"idle": true, "state": "Failed"}), json!({"tries": 0})),
        (
            "it runs",
            idle(),
            json!({"tries": 1, "begun": {"pod": "x/a", "container": "c", "until": "2026-03-01T00:09:00Z"}}),
        ),
        ("it ended", idle(), json!({"tries": 1, "ended": {"message": "no"}})),
        ("it is the agent that measures", idle(), Value::Null),
    ] {
        let plan = in_pods(&["x"], says, pod).plan();
        assert!(plan.starts.is_empty(), "{what}: {:?}", plan.starts);
    }
    let mut busy = in_pods(&["x"], idle(), json!({"tries": 0}));
    let of_other = ("n".into(), DiskId::named("gpt-2"), NOW.parse().expect("a time"));
    busy.pods.runs.insert(of_other, crate::operator::benchmark::in_pod::SeenRun::Running);
    assert!(busy.plan().starts.is_empty(), "one of a node at a time");
    let mut silent = in_pods(&["x"], idle(), json!({"tries": 0}));
    let mut pool = (*silent.view.pools[0]).clone();
    let ready = crate::operator::volume::sample::status_condition("Ready", "Unknown", "AgentSilent", "");
    pool.status.as_mut().expect("one").conditions = vec![ready];
    silent.view.pools = vec![pool.into()];
    assert!(silent.plan().starts.is_empty(), "nobody knows whether it is still idle");
}

#[test]
fn where_nothing_may_be_run_in_pods_the_agent_is_asked_and_the_condition_says_so() {
    let condition = |plan: &BenchmarkPlan| {
        let [(_, status)] = &plan.statuses[..] else { panic!("one status") };
        let found = status.conditions.iter().find(|condition| condition.type_ == "BenchmarksInPods");
        found.map(|condition| (condition.reason.clone(), condition.message.clone())).expect("it has one")
    };
    for (allowed, words) in [(&[][..], "has no namespace"), (&["z"], "does not have namespaces x, y")] {
        let plan = in_pods(allowed, json!({}), json!({"tries": 0})).plan();
        assert!(matches!(&plan.requests[..], [(_, requests)] if requests[0].pod.is_none()), "{:?}", plan.requests);
        let (reason, message) = condition(&plan);
        assert!(reason == "NoExecRight" && message.contains(words), "{reason}: {message}");
    }
    let mut refused = in_pods(&["x", "y"], json!({}), Value::Null);
    refused.pods.refused = ["x".into(), "y".into()].into();
    let (reason, message) = condition(&refused.plan());
    assert!(reason == "NoExecRight" && message.contains("anything in namespaces x, y"), "{reason}: {message}");
    assert!(refused.plan().requests.is_empty(), "it is asked as it has to be");
    let one = in_pods(&["x"], json!({}), json!({"tries": 0}));
    assert!(one.plan().requests.is_empty(), "one pod is enough");
    assert_eq!(condition(&one.plan()).0, "NoExecRight", "the other one waits for that of another namespace");
    let all = in_pods(&["x", "y"], json!({}), json!({"tries": 0}));
    assert_eq!(
        condition(&all.plan()),
        ("RunsInPods".to_owned(), "the command runs in pods of namespaces x, y".to_owned())
    );
    let mut waits = all;
    let key = ("n".into(), DiskId::named(DISK), NOW.parse().expect("a time"));
    waits.pods.waits.insert(key, "pod x/a has no such container".to_owned());
    let (reason, message) = condition(&waits.plan());
    assert_eq!(
        (reason.as_str(), message.as_str()),
        ("NoContainer", "disk gpt-1 of node n is idle: pod x/a has no such container")
    );
}

#[test]
fn a_command_that_has_begun_stays_in_the_object_though_nobody_waits_any_more_until_its_end_is_written() {
    let begun = json!({"tries": 1, "begun": {"pod": "x/a", "container": "c", "until": "2026-03-01T00:09:00Z"}});
    let mut gone = in_pods(&["x"], json!({}), begun.clone());
    gone.view.persistent.clear();
    assert!(gone.plan().requests.is_empty(), "it is the same disk that it writes to");
    let key = gone.plan().asked.into_iter().next().expect("it is asked");
    gone.pods
        .runs
        .insert(key, crate::operator::benchmark::in_pod::SeenRun::Ended(crate::api::crd::CommandEnded::default()));
    let plan = gone.plan();
    let [(_, requests)] = &plan.requests[..] else { panic!("one pool: {:?}", plan.requests) };
    assert!(requests[0].pod.as_ref().is_some_and(|pod| pod.begun.is_none() && pod.ended.is_some()));
    let mut read = in_pods(&["x"], json!({"state": "Failed"}), begun);
    read.view.persistent.clear();
    assert!(matches!(&read.plan().requests[..], [(_, requests)] if requests.is_empty()), "the agent has taken it in");
}
