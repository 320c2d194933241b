//! What the cluster asks of this node: its sets as rules, whether it is cordoned, what its taints keep off, and whether
//! the Local Storage Operator works there too.
//!
//! `rules` is pure; `keep` watches and hands the rules to the pool's keeper, only when they changed.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use k8s_openapi::api::core::v1::{Node as KubeNode, Pod, Taint};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::runtime::watcher;
use kube::{Api, ResourceExt as _};
use tokio::sync::{mpsc, watch as channel};

use super::NodeOperator;
use super::watch::mirror;
use crate::api::crd::{DevicePool, LocalVolumeSet, has_our_schema, set_crd};
use crate::api::{Node, parse_set};
use crate::device::rule::{NodeMatch, Rule, Toleration, TolerationOperator};
use crate::host::chain;

/// What is asked of this node now.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct World {
    /// The sets were listed, and the node was read: what no set asks for is really not asked for.
    pub complete: bool,
    /// By namespace and name: a rule, or what is wrong with the set.
    pub sets: BTreeMap<(String, String), Result<Rule, String>>,
    pub cordoned: bool,
    /// Whether the DevicePool is there at all.
    pub pool_exists: bool,
    /// Why nothing new is claimed, whatever the sets say.
    pub held_back: Option<String>,
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
    node: Option<Arc<KubeNode>>,
    pool: Option<Option<Arc<DevicePool>>>,
    schema: Option<Result<(), String>>,
    diskmakers: Option<BTreeMap<String, Arc<Pod>>>,
}

/// Watches the sets, the node and its DevicePool, and keeps `world` and the pool's rules in step.
pub async fn keep(operator: NodeOperator, world: channel::Sender<Arc<World>>) {
    let objects = Arc::new(Mutex::new(Objects::default()));
    let (notify, mut changed) = mpsc::channel::<()>(1);
    let update = |change: Box<dyn FnOnce(&mut Objects) + Send>| {
        change(&mut objects.lock().unwrap_or_else(PoisonError::into_inner));
        // One waiting notice is enough: whoever takes it looks at everything.
        let _ = notify.try_send(());
    };
    let named = watcher::Config::default().fields(&format!("metadata.name={}", operator.node));
    let sets = mirror(Api::<LocalVolumeSet>::all(operator.client.clone()), watcher::Config::default(), |sets| {
        let sets = sets.clone();
        update(Box::new(move |objects| objects.sets = Some(sets)));
    });
    let node = mirror(Api::<KubeNode>::all(operator.client.clone()), named.clone(), |nodes| {
        let node = nodes.values().next().cloned();
        update(Box::new(move |objects| objects.node = node));
    });
    let pool = mirror(Api::<DevicePool>::all(operator.client.clone()), named, |pools| {
        let pool = pools.values().next().cloned();
        update(Box::new(move |objects| objects.pool = Some(pool)));
    });
    let on_node = watcher::Config::default().labels(DISKMAKER).fields(&format!("spec.nodeName={}", operator.node));
    let diskmakers = mirror(Api::<Pod>::all(operator.client.clone()), on_node, |pods| {
        let pods = pods.clone();
        update(Box::new(move |objects| objects.diskmakers = Some(pods)));
    });
    let decide = async {
        let mut handed_over = Vec::new();
        while changed.recv().await.is_some() {
            let mut now = objects.lock().unwrap_or_else(PoisonError::into_inner).clone();
            if now.schema.is_none() && now.sets.is_some() {
                let schema = schema(&operator).await;
                now.schema = schema.clone();
                objects.lock().unwrap_or_else(PoisonError::into_inner).schema = schema;
            }
            let next = Arc::new(look(&now, &operator.node));
            if **world.borrow() == *next {
                continue;
            }
            let rules = next.rules();
            if next.complete && rules != handed_over {
                operator.keeper.set_rules(rules.clone());
                handed_over = rules;
            }
            world.send_replace(next);
        }
    };
    tokio::join!(sets, node, pool, diskmakers, decide);
}

/// Whether the cluster's CRD of the sets is one that this code knows: under another, fields may be pruned that
/// would have kept a disk out. `None`: it could not be read, and will be asked again.
async fn schema(operator: &NodeOperator) -> Option<Result<(), String>> {
    let crds: Api<CustomResourceDefinition> = Api::all(operator.client.clone());
    let name = set_crd().name_any();
    match crds.get(&name).await {
        Ok(crd) if has_our_schema(&crd) => Some(Ok(())),
        Ok(_) => Some(Err(format!(
            "the CRD {name} is not of this version of localpool, so nothing new is claimed: `localpool crds --apply` brings it up to date"
        ))),
        Err(error) => {
            tracing::warn!(
                crd = name,
                error = chain(&error),
                "the CRD could not be read; nothing is claimed until it is"
            );
            None
        }
    }
}

/// The world that these objects make. Pure.
fn look(objects: &Objects, name: &str) -> World {
    let Objects { sets, node, pool, schema, diskmakers } = objects;
    let diskmaker = diskmaker(diskmakers.as_ref());
    let held_back = match schema {
        Some(Ok(())) => None,
        Some(Err(why)) => Some(why.clone()),
        None => Some("the CRD of LocalVolumeSet has not been read yet".to_owned()),
    };
    let (labels, taints) = match node {
        Some(node) => {
            (node.labels().clone(), node.spec.as_ref().and_then(|spec| spec.taints.clone()).unwrap_or_default())
        }
        None => (BTreeMap::new(), Vec::new()),
    };
    let here = Node { name: name.to_owned(), labels };
    let rule = |set: &LocalVolumeSet| -> Result<Rule, String> {
        let value = serde_json::to_value(set).map_err(|error| error.to_string())?;
        let parsed = parse_set(&value, &here, 0);
        let mut rule =
            parsed.map_err(|problems| problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))?;
        // Disks that are claimed already stay with their set: this only keeps new claims off.
        if held_back.is_some() || taints.iter().any(|taint| keeps_off(taint, &rule.tolerations)) {
            rule.node = NodeMatch::NotSelected;
        } else if rule.node == NodeMatch::Selected && diskmaker != Diskmaker::Absent {
            rule.node = NodeMatch::StandsBack;
        }
        Ok(rule)
    };
    let key = |set: &LocalVolumeSet| (set.namespace().unwrap_or_default(), set.name_any());
    let pool_object = pool.as_ref().and_then(Option::as_ref);
    World {
        complete: sets.is_some() && node.is_some(),
        sets: sets.iter().flat_map(BTreeMap::values).map(|set| (key(set), rule(set))).collect(),
        cordoned: pool_object.is_some_and(|pool| pool.spec.cordon),
        // Before the watch has said anything it is taken for there: it is not written twice.
        pool_exists: pool.is_none() || pool_object.is_some(),
        held_back: held_back.filter(|_| sets.is_some()),
        diskmaker,
    }
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
            node: Some(Arc::new(serde_json::from_value(node).expect("a node"))),
            pool: Some(None),
            schema: Some(Ok(())),
            diskmakers: Some(BTreeMap::new()),
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
        assert!(!look(&Objects { node: None, ..whole }, "n").complete);
    }
}
