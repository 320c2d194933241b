//! What is answered to the questions of agents, from all PersistentVolumes. Pure.

use std::collections::BTreeMap;

use kube::ResourceExt as _;
use serde_json::Value;

use crate::api::crd::{DevicePool, NamedVolume, PoolAnswer, PoolQuestion, PromisedPath};
use crate::api::{Node, node_selector};
use crate::operator::bytes::signed;
use crate::operator::kube_volume::{NODE_LABELS, NodeAffinity, PROVISIONED_BY, PersistentVolume};
use crate::volume::VolumeId;

/// How much an answer holds, so that the object stays small enough. No node has so many disks.
const MOST_PROMISES: usize = 1000;
const MOST_BYTES: usize = 256 << 10;

/// What one reading of all PersistentVolumes says.
#[derive(Debug, Default)]
pub struct Reading {
    /// Those of other provisioners that name a path. There may be as many as disks in the cluster, and as many nodes
    /// may ask: most of them are found by a label and its value.
    paths: Vec<OtherVolume>,
    by_label: BTreeMap<(&'static str, String), Vec<usize>>,
    /// Those whose nodes are not known by such a label.
    others: Vec<usize>,
    own: BTreeMap<VolumeId, Vec<PersistentVolume>>,
}

#[derive(Debug)]
struct OtherVolume {
    promise: PromisedPath,
    required: Option<Value>,
}

/// The question of a node that has no answer yet.
pub fn unanswered(pool: &DevicePool) -> Option<&PoolQuestion> {
    let question = pool.status.as_ref()?.question.as_ref()?;
    let is_answered = pool.spec.answer.as_ref().is_some_and(|answer| answer.token == question.token);
    (!is_answered).then_some(question)
}

impl Reading {
    /// Takes in some PersistentVolumes of the reading.
    pub fn add(&mut self, volume: PersistentVolume) {
        if let Some(id) = volume.own() {
            self.own.entry(id).or_default().push(volume);
            return;
        }
        let Some(path) = volume.path() else { return };
        let index = self.paths.len();
        match volume.affinity.as_ref().and_then(NodeAffinity::labels) {
            Some(labels) => {
                labels.into_iter().for_each(|label| self.by_label.entry(label).or_default().push(index));
            }
            None => self.others.push(index),
        }
        let provisioner = volume.annotations().get(PROVISIONED_BY).cloned();
        let promise = PromisedPath { name: volume.name_any(), provisioner, path: path.to_owned() };
        let required = volume.affinity.as_ref().and_then(NodeAffinity::selector);
        self.paths.push(OtherVolume { promise, required });
    }

    /// The answer to a question of this node. The reading must have begun after the question was seen.
    pub fn answer(&self, question: &PoolQuestion, here: &Node) -> PoolAnswer {
        let PoolQuestion { token, promises, volumes } = question;
        let all = if *promises { self.promises(here) } else { Vec::new() };
        let (count, mut bytes) = (all.len(), 0);
        let fits = |promise: &PromisedPath| {
            let PromisedPath { name, provisioner, path } = promise;
            bytes += name.len() + provisioner.as_ref().map_or(0, String::len) + path.len();
            bytes <= MOST_BYTES
        };
        let promises: Vec<PromisedPath> = all.into_iter().take(MOST_PROMISES).take_while(fits).collect();
        let promises_omitted = signed(count - promises.len());
        let named = volumes.iter().filter_map(|id| self.named(*id, here)).collect();
        PoolAnswer { token: token.clone(), promises, promises_omitted, named }
    }

    /// The paths that PersistentVolumes name on this node. An affinity that cannot be understood excludes no node.
    fn promises(&self, here: &Node) -> Vec<PromisedPath> {
        let of_label = |key: &'static str| {
            let value = here.labels.get(key)?;
            self.by_label.get(&(key, value.clone()))
        };
        let mut found: Vec<usize> =
            NODE_LABELS.into_iter().filter_map(of_label).flatten().chain(&self.others).copied().collect();
        found.sort_unstable();
        found.dedup();
        let found = found.into_iter().map(|index| &self.paths[index]);
        let is_here =
            |other: &&OtherVolume| other.required.as_ref().is_none_or(|terms| node_selector::may_select(terms, here));
        found.filter(is_here).map(|other| other.promise.clone()).collect()
    }

    fn named(&self, id: VolumeId, here: &Node) -> Option<NamedVolume> {
        let naming = self.own.get(&id)?.iter().find(|found| found.names(id, &here.name))?;
        Some(NamedVolume { volume: id.to_string(), persistent_volume: naming.name_any() })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::volume::{DRIVER_NAME, TOPOLOGY_KEY};

    fn volume(name: &str, spec: &Value) -> PersistentVolume {
        let annotations = json!({PROVISIONED_BY: "local-volume-provisioner-n"});
        let volume = json!({"metadata": {"name": name, "annotations": annotations}, "spec": spec});
        serde_json::from_value(volume).expect("a PersistentVolume")
    }

    fn reading(volumes: impl IntoIterator<Item = PersistentVolume>) -> Reading {
        let mut reading = Reading::default();
        volumes.into_iter().for_each(|volume| reading.add(volume));
        reading
    }

    fn node() -> Node {
        let mut node = Node::standalone("n");
        node.labels.insert("zone".to_owned(), "a".to_owned());
        node
    }

    fn asked(promises: bool, volumes: &[VolumeId]) -> PoolQuestion {
        PoolQuestion { token: "t".to_owned(), promises, volumes: volumes.to_owned() }
    }

    /// The one path that is promised.
    fn promised(spec: &Value) -> Option<String> {
        let answer = reading([volume("local-pv-1", spec)]).answer(&asked(true, &[]), &node());
        let promise = answer.promises.into_iter().next()?;
        let expected = ("local-pv-1", Some("local-volume-provisioner-n"));
        assert_eq!((promise.name.as_str(), promise.provisioner.as_deref()), expected);
        Some(promise.path)
    }

    fn term(key: &str, operator: &str, values: &[&str]) -> Value {
        json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]})
    }

    fn affinity(terms: &[Value]) -> Value {
        json!({"required": {"nodeSelectorTerms": terms}})
    }

    #[test]
    fn local_and_host_paths_of_this_node_are_promised_and_nothing_else() {
        let path = "/mnt/local-storage/fast/nvme-x";
        let hostname = |node: &str| affinity(&[term("kubernetes.io/hostname", "In", &[node])]);
        let local = |affinity: Value| promised(&json!({"local": {"path": path}, "nodeAffinity": affinity}));
        assert_eq!(local(hostname("n")).as_deref(), Some(path));
        assert_eq!(local(hostname("m")), None);
        assert_eq!(promised(&json!({"hostPath": {"path": "/dev/sdx"}})).as_deref(), Some("/dev/sdx"), "of every node");
        assert_eq!(promised(&json!({"csi": {"driver": DRIVER_NAME, "volumeHandle": "x"}})), None);
        assert_eq!(promised(&json!({"nfs": {"path": "/dev/sda", "server": "s"}})), None);
    }

    #[test]
    fn the_nodes_of_a_path_are_those_that_its_affinity_may_select_however_it_is_found() {
        let here = [
            affinity(&[term("zone", "In", &["a"])]),
            affinity(&[term("zone", "Near", &["a"])]),
            affinity(&[term("kubernetes.io/hostname", "In", &["m"]), term("zone", "Exists", &[])]),
            affinity(&[term("kubernetes.io/hostname", "In", &["m", "n"])]),
            affinity(&[term("kubernetes.io/hostname", "In", &["m"]), term("kubernetes.io/hostname", "In", &["n"])]),
            affinity(&[term("kubernetes.io/hostname", "NotIn", &["m"])]),
            affinity(&[json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]})]),
            affinity(&[]),
            json!({}),
        ];
        let elsewhere = [
            affinity(&[term("zone", "In", &["b"])]),
            affinity(&[term(TOPOLOGY_KEY, "In", &["n"])]),
            affinity(&[json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["m"]}]})]),
        ];
        let is_here =
            |affinity: &Value| promised(&json!({"local": {"path": "/x"}, "nodeAffinity": affinity})).is_some();
        here.iter().for_each(|affinity| assert!(is_here(affinity), "{affinity}"));
        elsewhere.iter().for_each(|affinity| assert!(!is_here(affinity), "the node has no such label: {affinity}"));
    }

    #[test]
    fn an_answer_without_room_for_all_promises_says_how_many_are_missing() {
        let many = |count: usize, length: usize| {
            let path = |index: usize| format!("/{index:0>length$}");
            let volumes = (0..count).map(|n| volume("v", &json!({"hostPath": {"path": path(n)}})));
            let answer = reading(volumes).answer(&asked(true, &[]), &node());
            (answer.promises.len(), answer.promises_omitted)
        };
        assert_eq!(many(MOST_PROMISES, 10), (MOST_PROMISES, 0));
        assert_eq!(many(MOST_PROMISES + 7, 10), (MOST_PROMISES, 7));
        let (here, missing) = many(MOST_PROMISES, 4000);
        assert!(missing > 0 && here < 70 && here + 900 < MOST_PROMISES, "{here} {missing}");
        let no = reading([volume("v", &json!({"hostPath": {"path": "/x"}}))]).answer(&asked(false, &[]), &node());
        assert_eq!(no.promises, [], "nobody asked");
    }

    #[test]
    fn a_volume_is_named_by_its_handle_and_this_nodes_affinity_whatever_else_names_it() {
        let (id, other) = (VolumeId::of_name("pvc-1"), VolumeId::of_name("pvc-2"));
        let own = |name: &str, node: &str| {
            let csi = json!({"driver": DRIVER_NAME, "volumeHandle": id.to_string()});
            volume(name, &json!({"csi": csi, "nodeAffinity": affinity(&[term(TOPOLOGY_KEY, "In", &[node])])}))
        };
        let named = |volumes: Vec<PersistentVolume>| {
            let answer = reading(volumes).answer(&asked(false, &[id, other]), &node());
            answer.named.into_iter().map(|one| (one.volume, one.persistent_volume)).collect::<Vec<_>>()
        };
        let by = |name: &str| vec![(id.to_string(), name.to_owned())];
        assert_eq!(named(vec![own("elsewhere", "m"), own("by-hand", "n")]), by("by-hand"));
        assert_eq!(named(vec![own("elsewhere", "m")]), []);
    }

    #[test]
    fn a_question_is_unanswered_until_the_answer_has_its_token() {
        let mut pool = DevicePool::new("n", Default::default());
        assert_eq!(unanswered(&pool), None);
        pool.status.get_or_insert_default().question = Some(asked(true, &[]));
        assert_eq!(unanswered(&pool), Some(&asked(true, &[])));
        for (token, is_answered) in [("s", false), ("t", true)] {
            pool.spec.answer = Some(PoolAnswer { token: token.to_owned(), ..PoolAnswer::default() });
            assert_eq!(unanswered(&pool).is_none(), is_answered, "{token}");
        }
    }
}
