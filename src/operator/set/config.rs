//! What the cluster asks of this node: its sets and LocalVolumes as rules, whether it is cordoned, what its taints keep
//! off, and whether the Local Storage Operator works there too.
//!
//! `rules` is pure; `keep` watches and hands the rules to the agent, only when they changed.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node as KubeNode, Pod, Taint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::DeserializeGuard;
use kube::runtime::watcher;
use kube::{Api, ResourceExt as _};
use serde::Serialize;
use serde_json::Value;
use tokio::sync::{mpsc, watch as channel};

use crate::api::crd::{DevicePool, LocalVolume, LocalVolumeSet};
use crate::api::strict::Problem;
use crate::api::{Node, parse_set, parse_volume};
use crate::claim::{NodeMatch, Rule, Toleration, TolerationOperator};
use crate::operator::node::context::NodeOperator;
use crate::operator::node::definition::{Definition, Definitions};
use crate::operator::watch::mirror;

/// What is asked of this node now.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct World {
    /// Sets and LocalVolumes were listed, and the node was read: what nobody asks for is really not asked for.
    pub complete: bool,
    /// By namespace and name: a rule, or what is wrong with the set. A LocalVolume is one for each class, named
    /// `<name>/<class>`, or `<name>/*` with what is wrong with it.
    pub sets: BTreeMap<(String, String), Result<Rule, String>>,
    pub cordoned: bool,
    /// Whether the DevicePool is there at all.
    pub pool_exists: bool,
    /// Why nothing new is claimed, whatever the sets say.
    pub held_back: Option<String>,
    /// The same of LocalVolumes alone.
    pub volumes_held_back: Option<String>,
    /// Whether another operator takes disks here.
    pub diskmaker: Diskmaker,
}

/// The Local Storage Operator's program that takes disks, on this node. Where it runs, two would choose among the same
/// blank disks, and neither knows of the other's wait.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Diskmaker {
    #[default]
    NotKnown,
    Absent,
    /// The pod, for people.
    Runs(String),
}

/// After a CRD was replaced, until the API server certainly serves by the new one.
const SETTLED: Duration = Duration::from_secs(5);
/// A CRD that could not be read is asked for again after this.
const UNREAD: Duration = Duration::from_secs(30);
/// The pods of the operator's DaemonSet.
const DISKMAKER: &str = "app=diskmaker-manager";

impl World {
    pub fn rules(&self) -> Vec<Rule> {
        self.sets.values().filter_map(|set| set.as_ref().ok().cloned()).collect()
    }
}

/// The objects that a world is made of.
#[derive(Clone, Default)]
struct Objects {
    sets: Option<BTreeMap<String, Arc<LocalVolumeSet>>>,
    volumes: Option<BTreeMap<String, Arc<LocalVolume>>>,
    node: Option<Arc<KubeNode>>,
    pool: Option<Option<Arc<DevicePool>>>,
    schema: Option<Result<(), String>>,
    volume_schema: Option<Result<(), String>>,
    diskmakers: Option<BTreeMap<String, Arc<Pod>>>,
    /// How often sets or LocalVolumes were told of.
    told: u64,
}

/// Which specs there are, by UID: under which definition one was written is asked when it is new, as another owner's may
/// have come in between and pruned it. A definition that comes later prunes what is stored too, as it is read, and the
/// generation stays: so the spec itself is compared.
#[derive(Debug, Default, PartialEq)]
struct Written {
    sets: Specs,
    volumes: Specs,
}

type Specs = BTreeMap<Option<String>, (Option<i64>, Value)>;

impl Objects {
    fn written(&self) -> Written {
        let of = |metadata: &ObjectMeta, spec: &Value| (metadata.uid.clone(), (metadata.generation, spec.clone()));
        Written {
            sets: self.sets.iter().flat_map(BTreeMap::values).map(|set| of(&set.metadata, &set.spec)).collect(),
            volumes: self.volumes.iter().flat_map(BTreeMap::values).map(|one| of(&one.metadata, &one.spec)).collect(),
        }
    }
}

/// Watches the sets, the node and its DevicePool, and keeps `world` and the pool's rules in step.
pub async fn keep(operator: NodeOperator, world: channel::Sender<Arc<World>>) {
    loop {
        // Before anything is listed: what is seen from now on was decoded by these or by later ones.
        let definitions = Definitions::read(&operator.client).await;
        follow(&operator, &world, &definitions).await;
        tokio::time::sleep(SETTLED).await;
    }
}

/// Returns when the definitions are others than at the beginning; by then nothing new is claimed.
async fn follow(operator: &NodeOperator, world: &channel::Sender<Arc<World>>, definitions: &Definitions) {
    let objects = Arc::new(Mutex::new(Objects {
        schema: definitions.of_sets.schema("nothing new is claimed"),
        volume_schema: definitions.of_volumes.schema("LocalVolumes claim nothing new"),
        // Without their CRD there are none; the watch tells when it comes.
        volumes: (definitions.of_volumes == Definition::Absent).then(BTreeMap::new),
        ..Objects::default()
    }));
    let (notify, mut changed) = mpsc::channel::<()>(1);
    let update = |change: Box<dyn FnOnce(&mut Objects) + Send>| {
        change(&mut objects.lock().unwrap_or_else(PoisonError::into_inner));
        // One waiting notice is enough: whoever takes it looks at everything.
        let _ = notify.try_send(());
    };
    let named = watcher::Config::default().fields(&format!("metadata.name={}", operator.node));
    let sets = mirror(
        Api::<DeserializeGuard<LocalVolumeSet>>::all(operator.client.clone()),
        watcher::Config::default(),
        |sets| {
            let sets = sets.clone();
            update(Box::new(move |objects| (objects.sets, objects.told) = (Some(sets), objects.told + 1)));
        },
    );
    let volumes = mirror(
        Api::<DeserializeGuard<LocalVolume>>::all(operator.client.clone()),
        watcher::Config::default(),
        |volumes| {
            let volumes = volumes.clone();
            update(Box::new(move |objects| (objects.volumes, objects.told) = (Some(volumes), objects.told + 1)));
        },
    );
    let node = mirror(Api::<DeserializeGuard<KubeNode>>::all(operator.client.clone()), named.clone(), |nodes| {
        let node = nodes.values().next().cloned();
        update(Box::new(move |objects| objects.node = node));
    });
    let pool = mirror(Api::<DeserializeGuard<DevicePool>>::all(operator.client.clone()), named, |pools| {
        let pool = pools.values().next().cloned();
        update(Box::new(move |objects| objects.pool = Some(pool)));
    });
    let on_node = watcher::Config::default().labels(DISKMAKER).fields(&format!("spec.nodeName={}", operator.node));
    let diskmakers = mirror(Api::<DeserializeGuard<Pod>>::all(operator.client.clone()), on_node, |pods| {
        let pods = pods.clone();
        update(Box::new(move |objects| objects.diskmakers = Some(pods)));
    });
    let decide = async {
        let ours = definitions.of_sets.is_ours() && definitions.of_volumes.is_ours();
        let mut handed_over = None;
        let (mut judged, mut told) = (Written::default(), 0);
        while changed.recv().await.is_some() {
            let mut now = objects.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let written = now.written();
            // While it is another owner's, each list that begins anew may be the first of ours.
            let asks = written != judged || (!ours && now.told != told);
            let replaced = asks && Definitions::read(&operator.client).await != *definitions;
            if replaced {
                let why = || Some(Err("a CRD of the sets has just changed: they are read anew".to_owned()));
                (now.schema, now.volume_schema) = (why(), why());
            }
            (judged, told) = (written, now.told);
            let next = Arc::new(look(&now, &operator.node));
            let rules = next.rules();
            if next.complete && handed_over.as_ref() != Some(&rules) {
                operator.agent_handle.set_rules(rules.clone());
                handed_over = Some(rules);
            }
            if **world.borrow() != *next {
                world.send_replace(next);
            }
            if replaced {
                return;
            }
        }
    };
    let watches = async { tokio::join!(sets, volumes, node, pool, diskmakers) };
    tokio::select! {
        _ = watches => {}
        () = decide => {}
        () = tokio::time::sleep(UNREAD), if definitions.are_unread() => {}
    }
}

/// The world that these objects make. Pure.
fn look(objects: &Objects, name: &str) -> World {
    let Objects { sets, volumes, node, pool, schema, volume_schema, diskmakers, told: _ } = objects;
    let diskmaker = diskmaker(diskmakers.as_ref());
    let held = |schema: &Option<Result<(), String>>, kind: &str| match schema {
        Some(Ok(())) => None,
        Some(Err(why)) => Some(why.clone()),
        None => Some(format!("the CRD of {kind} has not been read yet")),
    };
    let (held_back, volumes_held_back) = (held(schema, "LocalVolumeSet"), held(volume_schema, "LocalVolume"));
    let (labels, taints) = match node {
        Some(node) => {
            (node.labels().clone(), node.spec.as_ref().and_then(|spec| spec.taints.clone()).unwrap_or_default())
        }
        None => (BTreeMap::new(), Vec::new()),
    };
    let here = Node { name: name.to_owned(), labels };
    // Disks that are claimed already stay with their set: this only keeps new claims off.
    let admitted = |mut rule: Rule, held_back: &Option<String>| {
        if held_back.is_some() || taints.iter().any(|taint| keeps_off(taint, &rule.tolerations)) {
            rule.node = NodeMatch::NotSelected;
        } else if rule.node == NodeMatch::Selected && diskmaker != Diskmaker::Absent {
            rule.node = NodeMatch::StandsBack;
        }
        rule
    };
    let of_set = |set: &Arc<LocalVolumeSet>| {
        let rule = parsed(&**set, |value| parse_set(value, &here, 0)).map(|rule| admitted(rule, &held_back));
        ((set.namespace().unwrap_or_default(), set.name_any()), rule)
    };
    let of_volume = |volume: &Arc<LocalVolume>| {
        let namespace = volume.namespace().unwrap_or_default();
        match parsed(&**volume, |value| parse_volume(value, &here, 0)) {
            Ok(rules) => {
                let key = |rule: &Rule| (namespace.clone(), rule.set.name.clone());
                rules.into_iter().map(|rule| (key(&rule), Ok(admitted(rule, &volumes_held_back)))).collect()
            }
            Err(problem) => vec![((namespace, format!("{}/*", volume.name_any())), Err(problem))],
        }
    };
    let of_sets = sets.iter().flat_map(BTreeMap::values).map(of_set);
    let of_volumes = volumes.iter().flat_map(BTreeMap::values).flat_map(of_volume);
    let pool_object = pool.as_ref().and_then(Option::as_ref);
    World {
        complete: sets.is_some() && volumes.is_some() && node.is_some(),
        sets: of_sets.chain(of_volumes).collect(),
        cordoned: pool_object.is_some_and(|pool| pool.spec.cordon),
        // Before the watch has said anything it is taken for there: it is not written twice.
        pool_exists: pool.is_none() || pool_object.is_some(),
        held_back: held_back.filter(|_| sets.is_some()),
        volumes_held_back: volumes_held_back.filter(|_| volumes.as_ref().is_some_and(|all| !all.is_empty())),
        diskmaker,
    }
}

/// What our own parser makes of an object, or its words.
fn parsed<T>(object: &impl Serialize, parse: impl Fn(&Value) -> Result<T, Vec<Problem>>) -> Result<T, String> {
    let value = serde_json::to_value(object).map_err(|error| error.to_string())?;
    parse(&value).map_err(|problems| problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))
}

/// Whether one of the pods takes disks, or is about to: one that has ended does not.
fn diskmaker(pods: Option<&BTreeMap<String, Arc<Pod>>>) -> Diskmaker {
    let Some(pods) = pods else { return Diskmaker::NotKnown };
    let ended = |pod: &Pod| {
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        matches!(phase, Some("Succeeded" | "Failed"))
    };
    let running = pods.iter().find(|(_, pod)| !ended(pod));
    running.map_or(Diskmaker::Absent, |(name, _)| Diskmaker::Runs(name.clone()))
}

/// What a DaemonSet's pods tolerate by themselves.
const TOLERATED: [&str; 7] = [
    "node.kubernetes.io/disk-pressure",
    "node.kubernetes.io/memory-pressure",
    "node.kubernetes.io/network-unavailable",
    "node.kubernetes.io/not-ready",
    "node.kubernetes.io/pid-pressure",
    "node.kubernetes.io/unreachable",
    "node.kubernetes.io/unschedulable",
];

/// Whether a taint keeps a set off the node, weighed as for a DaemonSet.
fn keeps_off(taint: &Taint, tolerations: &[Toleration]) -> bool {
    if taint.effect == "PreferNoSchedule" || TOLERATED.contains(&taint.key.as_str()) {
        return false;
    }
    !tolerations.iter().any(|toleration| {
        let Toleration { key, operator, value, effect, seconds: _ } = toleration;
        let same_effect = effect.as_ref().is_none_or(|effect| *effect == taint.effect);
        let same_key = key.as_ref().is_none_or(|key| *key == taint.key);
        let same_value = match operator {
            TolerationOperator::Exists => true,
            TolerationOperator::Equal => {
                value.as_deref().unwrap_or_default() == taint.value.as_deref().unwrap_or_default()
            }
        };
        same_effect && same_key && same_value
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn set(spec: serde_json::Value) -> Arc<LocalVolumeSet> {
        let value = json!({
            "apiVersion": "local.storage.openshift.io/v1alpha1", "kind": "LocalVolumeSet",
            "metadata": {"name": "s", "namespace": "d", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": spec,
        });
        Arc::new(serde_json::from_value(value).expect("a set"))
    }

    fn objects(spec: serde_json::Value, taints: serde_json::Value) -> Objects {
        let node = json!({"metadata": {"name": "n", "labels": {"zone": "a"}}, "spec": {"taints": taints}});
        Objects {
            sets: Some(BTreeMap::from([("d/s".to_owned(), set(spec))])),
            volumes: Some(BTreeMap::new()),
            node: Some(Arc::new(serde_json::from_value(node).expect("a node"))),
            pool: Some(None),
            schema: Some(Ok(())),
            volume_schema: Some(Ok(())),
            diskmakers: Some(BTreeMap::new()),
            told: 1,
        }
    }

    fn rule(objects: &Objects) -> Result<Rule, String> {
        look(objects, "n").sets[&("d".to_owned(), "s".to_owned())].clone()
    }

    #[test]
    fn a_set_becomes_a_rule_with_the_identity_of_its_object() {
        let rule = rule(&objects(json!({"storageClassName": "fast"}), json!([]))).expect("valid");
        assert_eq!((rule.set.uid.as_str(), rule.class.as_str(), rule.node), ("u", "fast", NodeMatch::Selected));
        assert_eq!(rule.created, 1_767_225_600);
    }

    #[test]
    fn an_unknown_field_makes_no_rule_and_is_named() {
        let words =
            rule(&objects(json!({"storageClassName": "fast", "dryrun": true}), json!([]))).expect_err("refused");
        assert!(words.contains("dryrun") && words.contains("dryRun"), "{words}");
    }

    #[test]
    fn a_taint_that_the_set_does_not_tolerate_keeps_new_claims_off() {
        let taint = json!([{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]);
        let tolerates = |toleration: serde_json::Value| {
            let spec = json!({"storageClassName": "fast", "tolerations": [toleration]});
            rule(&objects(spec, taint.clone())).expect("valid").node
        };
        for (toleration, node) in [
            (json!({"key": "gpu", "operator": "Exists"}), NodeMatch::Selected),
            (json!({"key": "gpu", "value": "yes"}), NodeMatch::Selected),
            (json!({"operator": "Exists"}), NodeMatch::Selected),
            (json!({"key": "gpu", "value": "no"}), NodeMatch::NotSelected),
            (json!({"key": "gpu", "operator": "Exists", "effect": "NoExecute"}), NodeMatch::NotSelected),
            (json!({"key": "other", "operator": "Exists"}), NodeMatch::NotSelected),
        ] {
            assert_eq!(tolerates(toleration.clone()), node, "{toleration}");
        }
        let own = json!([{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}]);
        assert_eq!(rule(&objects(json!({"storageClassName": "fast"}), own)).expect("valid").node, NodeMatch::Selected);
    }

    #[test]
    fn a_spec_that_was_pruned_as_it_was_read_is_another_though_its_generation_is_the_same() {
        let written = |spec| objects(spec, json!([])).written();
        let dry = || json!({"storageClassName": "fast", "dryRun": true});
        assert_eq!(written(dry()), written(dry()));
        assert_ne!(written(dry()), written(json!({"storageClassName": "fast"})));
    }

    #[test]
    fn under_a_crd_of_another_version_nothing_new_is_claimed_and_it_is_said() {
        let mut objects = objects(json!({"storageClassName": "fast"}), json!([]));
        objects.schema = Some(Err("old".to_owned()));
        assert_eq!(rule(&objects).expect("valid").node, NodeMatch::NotSelected);
        assert_eq!(look(&objects, "n").held_back.as_deref(), Some("old"));
        objects.schema = None;
        assert_eq!(rule(&objects).expect("valid").node, NodeMatch::NotSelected);
    }

    #[test]
    fn where_the_operators_diskmaker_runs_the_sets_stand_back_and_go_on_when_it_is_gone() {
        let pod = |phase: &str| {
            let pod = json!({"metadata": {"name": "diskmaker-manager-x"}, "status": {"phase": phase}});
            let pod: Pod = serde_json::from_value(pod).expect("a pod");
            Some(BTreeMap::from([("storage/diskmaker-manager-x".to_owned(), Arc::new(pod))]))
        };
        let mut objects = objects(json!({"storageClassName": "fast"}), json!([]));
        for phase in ["Running", "Pending", "Unknown"] {
            objects.diskmakers = pod(phase);
            assert_eq!(rule(&objects).expect("valid").node, NodeMatch::StandsBack, "{phase}");
            let runs = Diskmaker::Runs("storage/diskmaker-manager-x".to_owned());
            assert_eq!(look(&objects, "n").diskmaker, runs, "{phase}");
        }
        for (pods, node) in [
            (pod("Succeeded"), NodeMatch::Selected),
            (pod("Failed"), NodeMatch::Selected),
            (Some(BTreeMap::new()), NodeMatch::Selected),
            (None, NodeMatch::StandsBack),
        ] {
            objects.diskmakers = pods;
            assert_eq!(rule(&objects).expect("valid").node, node);
            assert!(look(&objects, "n").complete, "what is here goes on in any case");
        }
    }

    #[test]
    fn nothing_is_complete_before_sets_and_node_were_read() {
        let whole = objects(json!({"storageClassName": "fast"}), json!([]));
        assert!(look(&whole, "n").complete);
        assert!(!look(&Objects { sets: None, ..whole.clone() }, "n").complete);
        assert!(!look(&Objects { volumes: None, ..whole.clone() }, "n").complete);
        assert!(!look(&Objects { node: None, ..whole }, "n").complete);
    }

    #[test]
    fn a_local_volume_is_a_rule_for_each_class_beside_the_sets_and_weighed_like_them() {
        let volume = |spec: serde_json::Value| {
            let value = json!({
                "apiVersion": "local.storage.openshift.io/v1", "kind": "LocalVolume",
                "metadata": {"name": "s", "namespace": "d", "uid": "v", "creationTimestamp": "2026-01-01T00:00:00Z"},
                "spec": spec,
            });
            Some(BTreeMap::from([("d/s".to_owned(), Arc::new(serde_json::from_value(value).expect("a volume")))]))
        };
        let devices = json!([
            {"storageClassName": "a", "devicePaths": ["/dev/sdb"]}, {"storageClassName": "b", "devicePaths": ["/dev/sdc"]},
        ]);
        let mut objects = objects(json!({"storageClassName": "fast"}), json!([]));
        objects.volumes = volume(json!({"storageClassDevices": devices}));
        let key = |name: &str| ("d".to_owned(), name.to_owned());
        let names = |world: &World| world.sets.keys().map(|(_, name)| name.clone()).collect::<Vec<_>>();
        assert_eq!(names(&look(&objects, "n")), ["s", "s/a", "s/b"], "a set of that name is another object");
        assert_eq!(look(&objects, "n").rules().len(), 3);

        objects.volume_schema = Some(Err("the operator's".to_owned()));
        let world = look(&objects, "n");
        let node = |name: &str| world.sets[&key(name)].as_ref().map(|rule| rule.node);
        assert_eq!((node("s"), node("s/a")), (Ok(NodeMatch::Selected), Ok(NodeMatch::NotSelected)));
        assert_eq!((world.held_back.clone(), world.volumes_held_back.as_deref()), (None, Some("the operator's")));

        objects.volumes = volume(json!({"storageClassDevices": devices, "dryRun": true}));
        let world = look(&objects, "n");
        assert_eq!(names(&world), ["s", "s/*"]);
        assert!(world.sets[&key("s/*")].as_ref().is_err_and(|words| words.contains("spec.dryRun: unknown field")));
    }
}
