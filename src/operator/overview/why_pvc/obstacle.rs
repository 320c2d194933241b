//! What keeps one node from giving a claim its volume now: everything, so that nobody removes one thing and meets the
//! next.

use std::fmt::{self, Display, Formatter};

use k8s_openapi::api::core::v1::{Node, Pod, Taint, Toleration};
use kube::ResourceExt as _;
use serde_json::{Value, json};

use super::case::PvcCase;
use super::wanted::PvcWanted;
use crate::api::crd::{DevicePool, DiskState, DiskStatus, SetOffer};
use crate::api::node_selector::may_select;
use crate::api::quantity;
use crate::device::{DiskId, NodeName};
use crate::operator::bytes::unsigned;
use crate::operator::node::kube_node;
use crate::operator::node::ready::{NodeReadiness, readiness};
use crate::operator::node::startup_taint::STARTUP_TAINT;
use crate::operator::pool::agent_life::silence;
use crate::operator::volume::node_capacity::{rooms, selects};
use crate::volume::TOPOLOGY_KEY;

/// How many devices of a node are named that no set takes.
const NAMED: usize = 3;

/// A node, as far as a claim is concerned.
pub struct NodeCase<'c> {
    pub name: NodeName,
    /// `None`: only its DevicePool is there.
    pub node: Option<&'c Node>,
    pub pool: Option<&'c DevicePool>,
    /// Whether a set of the class selects it.
    pub selected: bool,
}

impl<'c> NodeCase<'c> {
    /// What the sets of the claim offer here.
    pub fn offers(&self, wanted: &PvcWanted<'_>) -> Vec<&'c SetOffer> {
        let offers = self.pool.into_iter().filter_map(|pool| pool.status.as_ref()).flat_map(|status| &status.sets);
        offers.filter(|offer| selects(&wanted.selector, offer)).collect()
    }
}

/// One thing that keeps a node from giving the volume; `Display` is a part of a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Obstacle {
    PoolCordoned,
    NodeCordoned,
    DiskCordoned {
        disk: DiskId,
        why: String,
    },
    /// The pod may not run there.
    PodElsewhere {
        pod: String,
        why: String,
    },
    AgentSilent {
        why: String,
    },
    /// The node has the taint that keeps pods off until its agent is ready.
    AgentStarting,
    NodeNotReady,
    DiskAway {
        disk: DiskId,
        path: String,
        why: String,
    },
    TooSmall {
        largest: u64,
        required: u64,
        free: u64,
        erasing: u64,
    },
    /// The smallest volume that it can give is larger than the claim allows.
    TooLarge {
        smallest: u64,
        limit: u64,
    },
    NoDisk {
        why: Vec<String>,
    },
    /// The sets that have disks there do not allow the mode of the claim.
    OtherMode,
    /// The allowedTopologies of the class name other nodes.
    OtherTopology,
    NoPool,
    NodeGone,
}

impl Display for Obstacle {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::PoolCordoned => write!(f, "its DevicePool is cordoned (spec.cordon)"),
            Self::NodeCordoned => write!(f, "the node is cordoned"),
            Self::DiskCordoned { disk, why } => write!(f, "disk {disk} takes no new volumes: {why}"),
            Self::PodElsewhere { pod, why } => write!(f, "pod {pod} cannot run there: {why}"),
            Self::AgentSilent { why } => write!(f, "its agent does not answer: {why}"),
            Self::AgentStarting => write!(f, "its agent is not ready yet: it has the taint {STARTUP_TAINT}"),
            Self::NodeNotReady => write!(f, "the node is not ready"),
            Self::DiskAway { disk, path, why } => write!(f, "disk {disk} ({path}) {why}"),
            Self::TooSmall { largest: 0, required: _, free: 0, erasing } => {
                write!(f, "its disks are full{}", erasing_text(*erasing))
            }
            Self::TooSmall { largest, required, free, erasing } => {
                let (largest, required, free) =
                    (quantity::short(*largest), quantity::short(*required), quantity::short(*free));
                write!(f, "its largest free place has {largest} of the {required}, and {free} are free")?;
                f.write_str(&erasing_text(*erasing))
            }
            Self::TooLarge { smallest, limit } => {
                let (smallest, limit) = (quantity::short(*smallest), quantity::short(*limit));
                write!(f, "its smallest volume would have {smallest}, and the claim allows {limit}")
            }
            Self::NoDisk { why } if why.is_empty() => write!(f, "no disk there belongs to a set of the class"),
            Self::NoDisk { why } => write!(f, "no disk there belongs to a set of the class: {}", why.join("; ")),
            Self::OtherMode => write!(f, "the sets that have disks there do not allow the volumeMode of the claim"),
            Self::OtherTopology => write!(f, "the allowedTopologies of the StorageClass do not name it"),
            Self::NoPool => write!(f, "no agent of localpool has reported there"),
            Self::NodeGone => write!(f, "its Node was deleted"),
        }
    }
}

fn erasing_text(bytes: u64) -> String {
    if bytes == 0 {
        String::new()
    } else {
        format!("; {} of deleted volumes are still being erased", quantity::short(bytes))
    }
}

/// Everything that keeps the node from giving the volume; empty: it can.
pub fn obstacles(case: &PvcCase, wanted: &PvcWanted<'_>, at: &NodeCase<'_>) -> Vec<Obstacle> {
    let mut found = of_node(case, at);
    let Some(pool) = at.pool else {
        found.push(Obstacle::NoPool);
        return found;
    };
    found.extend(pool.spec.cordon.then_some(Obstacle::PoolCordoned));
    found.extend(silent(pool));
    found.extend(of_disks(case, wanted, at, pool));
    found
}

/// What the agent's silence is, if it is silent.
pub fn silent(pool: &DevicePool) -> Option<Obstacle> {
    let ready = silence(pool)?;
    let since = ready.last_transition_time.0;
    Some(Obstacle::AgentSilent { why: format!("{}, since {since}", ready.message) })
}

fn of_node(case: &PvcCase, at: &NodeCase<'_>) -> Vec<Obstacle> {
    let Some(node) = at.node else { return vec![Obstacle::NodeGone] };
    let mut found = Vec::new();
    found.extend((readiness(Some(node)) == NodeReadiness::NotReady).then_some(Obstacle::NodeNotReady));
    let spec = node.spec.as_ref();
    found.extend(spec.and_then(|spec| spec.unschedulable).unwrap_or(false).then_some(Obstacle::NodeCordoned));
    found.extend((!is_in_topology(case, node)).then_some(Obstacle::OtherTopology));
    // One pod that can run there is enough.
    let reasons: Option<Vec<Obstacle>> = case.pods.iter().map(|pod| keeps_off(pod, node)).collect();
    found.extend(reasons.into_iter().flatten().next());
    found
}

/// Whether the class allows the node: terms are alternatives, and within one everything must hold.
fn is_in_topology(case: &PvcCase, node: &Node) -> bool {
    let terms = case.class.iter().flat_map(|class| class.allowed_topologies.iter().flatten());
    let terms: Vec<_> = terms.map(|term| term.match_label_expressions.iter().flatten()).collect();
    let name = node.name_any();
    let has = |key: &str, values: &[String]| {
        let label = node.labels().get(key).or((key == TOPOLOGY_KEY).then_some(&name));
        label.is_some_and(|label| values.contains(label))
    };
    terms.is_empty() || terms.into_iter().any(|mut term| term.all(|wanted| has(&wanted.key, &wanted.values)))
}

/// Why a pod cannot run on a node, as far as its node selector and its tolerations say.
fn keeps_off(pod: &Pod, node: &Node) -> Option<Obstacle> {
    let spec = pod.spec.as_ref()?;
    let because = |why: String| Some(Obstacle::PodElsewhere { pod: pod.name_any(), why });
    match spec.node_name.as_deref() {
        Some(name) if name == node.name_any() => return None,
        Some(name) => return because(format!("it is on node {name}")),
        None => {}
    }
    let labels = node.labels();
    let mut selector = spec.node_selector.iter().flatten();
    if let Some((key, value)) = selector.find(|(key, value)| labels.get(*key) != Some(value)) {
        return because(format!("its nodeSelector wants {key}={value}"));
    }
    let affinity = spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
    let required = affinity.and_then(|one| one.required_during_scheduling_ignored_during_execution.as_ref());
    let required = required.map(|required| serde_json::to_value(required).unwrap_or(Value::Null));
    if required.is_some_and(|required| !may_select(&required, &kube_node::selectable(node))) {
        return because("its nodeAffinity does not select the node".to_owned());
    }
    let tolerations = spec.tolerations.as_deref().unwrap_or_default();
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default();
    // A node that is cordoned or not ready has these taints, too.
    let is_own = |taint: &&Taint| !taint.key.starts_with("node.kubernetes.io/");
    let unfit = taints.iter().filter(is_own).filter(|taint| !is_tolerated(taint, tolerations));
    let (starting, lasting): (Vec<_>, Vec<_>) = unfit.partition(|taint| taint.key == STARTUP_TAINT);
    match lasting.first() {
        Some(taint) => because(format!("it does not tolerate the taint {}", taint_text(taint))),
        None => starting.first().map(|_| Obstacle::AgentStarting),
    }
}

fn taint_text(Taint { key, value, effect, .. }: &Taint) -> String {
    match value.as_deref() {
        Some(value) if !value.is_empty() => format!("{key}={value}:{effect}"),
        _ => format!("{key}:{effect}"),
    }
}

fn is_tolerated(taint: &Taint, tolerations: &[Toleration]) -> bool {
    let tolerates = |one: &Toleration| {
        let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
        let same_effect = given(&one.effect).is_none_or(|effect| effect == taint.effect);
        let same_key = given(&one.key).is_none_or(|key| key == taint.key);
        let exists = one.operator.as_deref() == Some("Exists");
        let same_value = one.value.as_deref().unwrap_or_default() == taint.value.as_deref().unwrap_or_default();
        same_effect && same_key && (exists || same_value)
    };
    taint.effect == "PreferNoSchedule" || tolerations.iter().any(tolerates)
}

/// What keeps the disks of a node from giving the volume.
fn of_disks(case: &PvcCase, wanted: &PvcWanted<'_>, at: &NodeCase<'_>, pool: &DevicePool) -> Vec<Obstacle> {
    let offers: Vec<&SetOffer> = at.offers(wanted);
    let (with, without): (Vec<&SetOffer>, Vec<&SetOffer>) = offers.into_iter().partition(|offer| offer.devices > 0);
    if with.is_empty() {
        return vec![Obstacle::NoDisk { why: unmatched(pool, &without) }];
    }
    let able: Vec<&SetOffer> = with.into_iter().filter(|offer| wanted.allowed_by(&offer.set_name())).collect();
    if able.is_empty() {
        return vec![Obstacle::OtherMode];
    }
    // As if nobody had cordoned it: that is another obstacle.
    let mut open = pool.clone();
    open.spec.cordon = false;
    open.status.iter_mut().for_each(|status| status.conditions.clear());
    let room = rooms([&open], &case.volumes, &wanted.selector, Some(wanted.usage)).into_values().next();
    let room = room.unwrap_or_default();
    if room.largest >= wanted.required.max(1) {
        let too_large = wanted.limit.filter(|limit| room.smallest > *limit);
        return too_large.map(|limit| Obstacle::TooLarge { smallest: room.smallest, limit }).into_iter().collect();
    }
    let is_its = |disk: &&DiskStatus| able.iter().any(|offer| offer.set_name().to_string() == disk.set);
    let disks: Vec<&DiskStatus> = pool.status.iter().flat_map(|status| &status.disks).filter(is_its).collect();
    let mut found: Vec<Obstacle> = disks.iter().filter_map(|disk| of_disk(disk)).collect();
    // If each of its disks is closed, that is all there is to say of its room.
    if found.is_empty() || found.len() < disks.len() {
        let erasing = disks.iter().map(|disk| unsigned::<u64>(disk.erasing)).sum();
        let free = room.available;
        found.push(Obstacle::TooSmall { largest: room.largest, required: wanted.required, free, erasing });
    }
    found
}

fn of_disk(disk: &DiskStatus) -> Option<Obstacle> {
    let DiskStatus { id, path, state, state_since, message, cordon, .. } = disk;
    let since = state_since.as_ref().map_or_else(String::new, |since| format!(", since {}", since.0));
    let away = |why: String| Some(Obstacle::DiskAway { disk: id.clone(), path: path.clone(), why });
    match (state, cordon) {
        (DiskState::Missing, _) => away(format!("is missing{since}")),
        (DiskState::NotReady, _) => {
            let why = message.as_deref().unwrap_or("its agent does not say why");
            away(format!("cannot be used{since}: {why}"))
        }
        (DiskState::Ready, Some(why)) => Some(Obstacle::DiskCordoned { disk: id.clone(), why: why.clone() }),
        (DiskState::Ready, None) => None,
    }
}

/// Why no disk of the node is in one of these sets.
fn unmatched(pool: &DevicePool, offers: &[&SetOffer]) -> Vec<String> {
    let conditions = pool.status.iter().flat_map(|status| &status.conditions);
    let held = conditions.filter(|condition| condition.type_ == "Claiming" && condition.status != "True");
    let held = held.map(|condition| format!("nothing new is claimed there: {}", condition.message));
    let would_take = offers.iter().filter(|offer| !offer.would_take.is_empty());
    let would_take =
        would_take.map(|offer| format!("{} would take {} there", offer.set_name(), offer.would_take.join(", ")));
    let said = offers.iter().filter_map(|offer| offer.message.clone());
    let devices: Vec<_> = offers.iter().flat_map(|offer| &offer.unmatched).collect();
    let named = devices.iter().take(NAMED).map(|device| format!("{}: {}", device.device, device.reason));
    let omitted: i64 = offers.iter().map(|offer| offer.unmatched_omitted).sum();
    let more = devices.len().saturating_sub(NAMED).saturating_add(unsigned(omitted));
    let more = (more > 0).then(|| format!("and {more} more devices"));
    held.chain(would_take).chain(said).chain(named).chain(more).collect()
}

/// What removes a cordon.
pub fn uncordon_line(node: &NodeName) -> String {
    format!("kubectl patch devicepool {node} --type=merge -p '{}'", json!({"spec": {"cordon": false}}))
}
