//! What the cluster asks of this node, from the objects. Pure.
//!
//! Takes in the sets and LocalVolumes, the Node, its DevicePool, and the pods of the Local Storage Operator; gives out
//! the rules, and what prevents them from claiming anything new.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node as KubeNode, Pod, Taint};
use kube::ResourceExt;

use super::parsed::Parsed;
use crate::api::{
    Invalid, Node,
    crd::{DevicePool, LocalVolume, LocalVolumeSet},
};
use crate::claim::{NodeMatch, Rule, Toleration, TolerationOperator};
use crate::device::{DiskId, NodeName, SetName};
use crate::health::WatchedPath;
use crate::operator::api_server::object_key::ObjectKey;
use crate::operator::api_server::store::{ByKey, Revision};
use crate::operator::crds::definition::NotBelieved;
use crate::operator::{
    disk::cordon,
    disk::filesystems::{DEFAULT_DISKS, DefaultDisks},
    node::watched,
};

/// What is asked of this node now.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeConfig {
    /// Sets, LocalVolumes and the DevicePool were listed, and the node was read: a rule or a cordon that is not
    /// here does not exist.
    pub complete: bool,
    /// By name: a rule, or what is wrong with the set. A LocalVolume has one for each class, named `<name>/<class>`, or
    /// `<name>/*` with what is wrong with it.
    pub sets: BTreeMap<SetName, Result<Rule, Invalid>>,
    pub cordoned: bool,
    /// The disks for which a person has chosen something.
    pub disks: BTreeSet<DiskId>,
    /// The default disks that the Node asks for, or why that cannot be read.
    pub default_disks: DefaultDisks,
    /// Whether the DevicePool exists.
    pub pool_exists: bool,
    /// How many times an earlier version of the DevicePool came back: etcd was put back from a backup, and the
    /// status is from its time.
    pub pool_restored: u64,
    /// Why nothing new is claimed, whatever the sets say.
    pub held_back: Option<NotBelieved>,
    /// Why LocalVolumes claim nothing new.
    pub volumes_held_back: Option<NotBelieved>,
    /// Whether another operator takes disks here.
    pub diskmaker: Diskmaker,
    /// Paths of PersistentVolumes of other provisioners that the agent looks at.
    pub watched: Vec<WatchedPath>,
}

/// The Local Storage Operator's program that takes disks, on this node. If it runs, two programs would choose among the
/// same blank disks, and neither knows that the other waits.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Diskmaker {
    #[default]
    NotKnown,
    Absent,
    /// Its pod.
    Runs(ObjectKey),
}

impl NodeConfig {
    pub fn rules(&self) -> Vec<Rule> {
        self.sets.values().filter_map(|set| set.as_ref().ok().cloned()).collect()
    }
}

/// The objects that make a config.
#[derive(Clone, Default)]
pub(super) struct NodeObjects {
    pub sets: Option<ByKey<LocalVolumeSet>>,
    pub volumes: Option<ByKey<LocalVolume>>,
    pub node: Option<Arc<KubeNode>>,
    pub pool: Option<Option<Arc<DevicePool>>>,
    pub pool_seen: Option<Revision<DevicePool>>,
    pub pool_restored: u64,
    pub schema: Option<Result<(), NotBelieved>>,
    pub volume_schema: Option<Result<(), NotBelieved>>,
    pub diskmakers: Option<ByKey<Pod>>,
    /// How many times sets or LocalVolumes were reported.
    pub report_count: u64,
}

impl NodeObjects {
    pub fn take_in_pool(&mut self, pool: Option<Arc<DevicePool>>) {
        if let Some(pool) = &pool {
            let now = Revision::of(pool.as_ref());
            self.pool_restored += u64::from(self.pool_seen.as_ref().is_some_and(|seen| seen.is_after(&now)));
            self.pool_seen = Some(now);
        }
        self.pool = Some(pool);
    }
}

/// The readings of the sets and LocalVolumes: each spec is read once, until it or the node's labels change.
#[derive(Default)]
pub(super) struct Readers {
    sets: Parsed<LocalVolumeSet>,
    volumes: Parsed<LocalVolume>,
}

/// The config that these objects make; `readers` only avoid reading a spec twice.
pub(super) fn node_config_of(objects: &NodeObjects, name: &NodeName, readers: &Readers) -> NodeConfig {
    let NodeObjects { sets, volumes, node, pool, schema, volume_schema, diskmakers, .. } = objects;
    let diskmaker = diskmaker(diskmakers.as_ref());
    let held = |schema: &Option<Result<(), NotBelieved>>, kind| match schema {
        Some(Ok(())) => None,
        Some(Err(why)) => Some(why.clone()),
        None => Some(NotBelieved::NotRead { kind }),
    };
    let (held_back, volumes_held_back) = (held(schema, "LocalVolumeSet"), held(volume_schema, "LocalVolume"));
    let (labels, taints) = match node {
        Some(node) => {
            (node.labels().clone(), node.spec.as_ref().and_then(|spec| spec.taints.clone()).unwrap_or_default())
        }
        None => (BTreeMap::new(), Vec::new()),
    };
    let here = Node { name: name.clone(), labels };
    // Claimed disks stay with their set: this only prevents new claims.
    let admitted = |mut rule: Rule, held_back: &Option<NotBelieved>| {
        let is_tainted = || taints.iter().any(|taint| keeps_off(taint, &rule.tolerations));
        rule.node = match rule.node {
            NodeMatch::Selected if held_back.is_some() => NodeMatch::HeldBack,
            NodeMatch::Selected if is_tainted() => NodeMatch::Tainted,
            NodeMatch::Selected if diskmaker != Diskmaker::Absent => NodeMatch::StandsBack,
            node => node,
        };
        rule
    };
    let all_sets: Vec<_> = sets.iter().flat_map(BTreeMap::values).cloned().collect();
    let of_sets = all_sets
        .iter()
        .zip(readers.sets.of(&all_sets, &here))
        .flat_map(|(set, reading)| rules_of(name_of(set.as_ref()), &reading, |rule| admitted(rule, &held_back)));
    let all_volumes: Vec<_> = volumes.iter().flat_map(BTreeMap::values).cloned().collect();
    let of_volumes = all_volumes.iter().zip(readers.volumes.of(&all_volumes, &here)).flat_map(|(volume, reading)| {
        rules_of(name_of(volume.as_ref()).of_class("*"), &reading, |rule| admitted(rule, &volumes_held_back))
    });
    let pool_object = pool.as_ref().and_then(Option::as_ref);
    NodeConfig {
        complete: sets.is_some() && volumes.is_some() && node.is_some() && pool.is_some(),
        sets: of_sets.chain(of_volumes).collect(),
        cordoned: pool_object.is_some_and(|pool| pool.spec.cordon),
        disks: pool_object.map(|pool| cordon::named(pool)).unwrap_or_default(),
        default_disks: DefaultDisks::of(node.as_ref().and_then(|node| node.annotations().get(DEFAULT_DISKS))),
        pool_exists: pool_object.is_some(),
        pool_restored: objects.pool_restored,
        held_back: held_back.filter(|_| sets.is_some()),
        volumes_held_back: volumes_held_back.filter(|_| volumes.as_ref().is_some_and(|all| !all.is_empty())),
        diskmaker,
        watched: pool_object.iter().flat_map(|pool| &pool.spec.persistent_volumes).map(watched::path).collect(),
    }
}

fn name_of(object: &impl ResourceExt) -> SetName {
    SetName::new(object.namespace().unwrap_or_default(), object.name_any())
}

/// The rules of one object by their names, or what is wrong with it under `otherwise`.
fn rules_of(
    otherwise: SetName,
    reading: &Result<Vec<Rule>, Invalid>,
    admitted: impl Fn(Rule) -> Rule,
) -> Vec<(SetName, Result<Rule, Invalid>)> {
    match reading {
        Ok(rules) => {
            let named = |rule: &Rule| (rule.set.name.clone(), Ok(admitted(rule.clone())));
            rules.iter().map(named).collect()
        }
        Err(problems) => vec![(otherwise, Err(problems.clone()))],
    }
}

/// Whether one of the pods takes disks, or will soon: a pod that has ended does not.
fn diskmaker(pods: Option<&ByKey<Pod>>) -> Diskmaker {
    let Some(pods) = pods else { return Diskmaker::NotKnown };
    let ended = |pod: &Pod| {
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        matches!(phase, Some("Succeeded" | "Failed"))
    };
    let running = pods.iter().find(|(_, pod)| !ended(pod));
    running.map_or(Diskmaker::Absent, |(name, _)| Diskmaker::Runs(name.clone()))
}

/// The taints that a DaemonSet's pods always tolerate.
const TOLERATED: [&str; 7] = [
    "node.kubernetes.io/disk-pressure",
    "node.kubernetes.io/memory-pressure",
    "node.kubernetes.io/network-unavailable",
    "node.kubernetes.io/not-ready",
    "node.kubernetes.io/pid-pressure",
    "node.kubernetes.io/unreachable",
    "node.kubernetes.io/unschedulable",
];

/// Whether a taint keeps a set off the node, by the rules of a DaemonSet.
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

    fn objects(spec: serde_json::Value, taints: serde_json::Value) -> NodeObjects {
        let node = json!({"metadata": {"name": "n", "labels": {"zone": "a"}}, "spec": {"taints": taints}});
        NodeObjects {
            sets: Some(BTreeMap::from([("d/s".into(), set(spec))])),
            volumes: Some(BTreeMap::new()),
            node: Some(Arc::new(serde_json::from_value(node).expect("a node"))),
            pool: Some(None),
            schema: Some(Ok(())),
            volume_schema: Some(Ok(())),
            diskmakers: Some(BTreeMap::new()),
            report_count: 1,
            pool_seen: None,
            pool_restored: 0,
        }
    }

    #[test]
    fn a_pool_of_an_earlier_version_was_restored_and_one_of_a_later_one_was_not() {
        let pool = |version: &str| {
            let value = json!({"apiVersion": "localpool.dev/v1alpha1", "kind": "DevicePool",
                "metadata": {"name": "n", "uid": "u", "resourceVersion": version}, "spec": {}});
            Some(Arc::new(serde_json::from_value(value).expect("a DevicePool")))
        };
        let mut objects = objects(json!({"storageClassName": "fast"}), json!([]));
        let mut restored = |pool| {
            objects.take_in_pool(pool);
            config_of(&objects).pool_restored
        };
        assert_eq!([restored(pool("90")), restored(pool("100")), restored(pool("100"))], [0; 3]);
        assert_eq!([restored(pool("80")), restored(pool("101")), restored(None)], [1; 3]);
        assert_eq!(restored(pool("100")), 2, "the backup is of before its deletion");
    }

    fn config_of(objects: &NodeObjects) -> NodeConfig {
        node_config_of(objects, &"n".into(), &Readers::default())
    }

    fn rule(objects: &NodeObjects) -> Result<Rule, Invalid> {
        config_of(objects).sets[&SetName::new("d", "s")].clone()
    }

    #[test]
    fn a_set_becomes_a_rule_with_the_identity_of_its_object() {
        let rule = rule(&objects(json!({"storageClassName": "fast"}), json!([]))).expect("valid");
        assert_eq!((rule.set.uid.as_str(), rule.class.as_str(), rule.node), ("u", "fast", NodeMatch::Selected));
        assert_eq!(rule.created, 1_767_225_600);
    }

    #[test]
    fn an_unknown_field_makes_no_rule_and_is_named() {
        let message =
            rule(&objects(json!({"storageClassName": "fast", "dryrun": true}), json!([]))).expect_err("refused");
        let message = message.to_string();
        assert!(message.contains("dryrun") && message.contains("dryRun"), "{message}");
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
            (json!({"key": "gpu", "value": "no"}), NodeMatch::Tainted),
            (json!({"key": "gpu", "operator": "Exists", "effect": "NoExecute"}), NodeMatch::Tainted),
            (json!({"key": "other", "operator": "Exists"}), NodeMatch::Tainted),
        ] {
            assert_eq!(tolerates(toleration.clone()), node, "{toleration}");
        }
        let own = json!([{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}]);
        assert_eq!(rule(&objects(json!({"storageClassName": "fast"}), own)).expect("valid").node, NodeMatch::Selected);
    }

    #[test]
    fn under_a_crd_of_another_version_nothing_new_is_claimed_and_it_is_said() {
        let mut objects = objects(json!({"storageClassName": "fast"}), json!([]));
        objects.schema = Some(Err(NotBelieved::Replaced));
        assert_eq!(rule(&objects).expect("valid").node, NodeMatch::HeldBack);
        assert_eq!(config_of(&objects).held_back, Some(NotBelieved::Replaced));
        objects.schema = None;
        assert_eq!(rule(&objects).expect("valid").node, NodeMatch::HeldBack);
    }

    #[test]
    fn where_the_operators_diskmaker_runs_the_sets_stand_back_and_go_on_when_it_is_gone() {
        let pod = |phase: &str| {
            let pod = json!({"metadata": {"name": "diskmaker-manager-x"}, "status": {"phase": phase}});
            let pod: Pod = serde_json::from_value(pod).expect("a pod");
            Some(BTreeMap::from([("storage/diskmaker-manager-x".into(), Arc::new(pod))]))
        };
        let mut objects = objects(json!({"storageClassName": "fast"}), json!([]));
        for phase in ["Running", "Pending", "Unknown"] {
            objects.diskmakers = pod(phase);
            assert_eq!(rule(&objects).expect("valid").node, NodeMatch::StandsBack, "{phase}");
            let runs = Diskmaker::Runs("storage/diskmaker-manager-x".into());
            assert_eq!(config_of(&objects).diskmaker, runs, "{phase}");
        }
        for (pods, node) in [
            (pod("Succeeded"), NodeMatch::Selected),
            (pod("Failed"), NodeMatch::Selected),
            (Some(BTreeMap::new()), NodeMatch::Selected),
            (None, NodeMatch::StandsBack),
        ] {
            objects.diskmakers = pods;
            assert_eq!(rule(&objects).expect("valid").node, node);
            assert!(config_of(&objects).complete, "what is here goes on in any case");
        }
    }

    #[test]
    fn nothing_is_complete_before_sets_node_and_pool_were_read() {
        let whole = objects(json!({"storageClassName": "fast"}), json!([]));
        assert!(config_of(&whole).complete);
        assert!(!config_of(&NodeObjects { sets: None, ..whole.clone() }).complete);
        assert!(!config_of(&NodeObjects { volumes: None, ..whole.clone() }).complete);
        assert!(!config_of(&NodeObjects { pool: None, ..whole.clone() }).complete);
        assert!(!config_of(&NodeObjects { node: None, ..whole }).complete);
    }

    #[test]
    fn a_local_volume_is_a_rule_for_each_class_beside_the_sets_and_weighed_like_them() {
        let volume = |spec: serde_json::Value| {
            let value = json!({
                "apiVersion": "local.storage.openshift.io/v1", "kind": "LocalVolume",
                "metadata": {"name": "s", "namespace": "d", "uid": "v", "creationTimestamp": "2026-01-01T00:00:00Z"},
                "spec": spec,
            });
            Some(BTreeMap::from([("d/s".into(), Arc::new(serde_json::from_value(value).expect("a volume")))]))
        };
        let devices = json!([
            {"storageClassName": "a", "devicePaths": ["/dev/sdb"]}, {"storageClassName": "b", "devicePaths": ["/dev/sdc"]},
        ]);
        let mut objects = objects(json!({"storageClassName": "fast"}), json!([]));
        objects.volumes = volume(json!({"storageClassDevices": devices}));
        let key = |name: &str| SetName::new("d", name);
        let names = |config: &NodeConfig| config.sets.keys().map(|name| name.name.clone()).collect::<Vec<_>>();
        assert_eq!(names(&config_of(&objects)), ["s", "s/a", "s/b"], "a set of that name is another object");
        assert_eq!(config_of(&objects).rules().len(), 3);

        objects.volume_schema = Some(Err(NotBelieved::Replaced));
        let config = config_of(&objects);
        let node = |name: &str| config.sets[&key(name)].as_ref().map(|rule| rule.node);
        assert_eq!((node("s"), node("s/a")), (Ok(NodeMatch::Selected), Ok(NodeMatch::HeldBack)));
        assert_eq!((config.held_back.clone(), config.volumes_held_back.clone()), (None, Some(NotBelieved::Replaced)));

        objects.volumes = volume(json!({"storageClassDevices": devices, "dryRun": true}));
        let config = config_of(&objects);
        assert_eq!(names(&config), ["s", "s/*"]);
        assert!(
            config.sets[&key("s/*")]
                .as_ref()
                .is_err_and(|invalid| invalid.to_string().contains("spec.dryRun: unknown field"))
        );
    }
}
