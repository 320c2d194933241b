//! The one thing to do about a claim that waits: what is nearest to a volume.

use kube::ResourceExt as _;

use super::case::{EventKind, PvcCase, node_of};
use super::obstacle::{NodeCase, Obstacle, uncordon_line};
use super::wanted::PvcWanted;
use crate::api::quantity;
use crate::device::NodeName;
use crate::operator::overview::asked_disk::why_line;
use crate::show::shell_word;

/// Why there is no volume, and what to do.
#[derive(Debug, PartialEq, Eq)]
pub struct NextStep {
    pub why: String,
    pub next: String,
}

/// A node, the largest volume that it could give now, and what keeps it from giving the one that is wanted.
pub type NodeFound<'n> = (&'n NodeCase<'n>, u64, Vec<Obstacle>);

/// The nodes that can give the volume now.
fn able<'n>(nodes: &'n [NodeFound<'n>]) -> Vec<&'n NodeFound<'n>> {
    nodes.iter().filter(|(.., obstacles)| obstacles.is_empty()).collect()
}

pub fn room_for_all(nodes: &[NodeFound<'_>]) -> Option<(NodeName, u64)> {
    nodes.iter().map(|(node, largest, _)| (node.name.clone(), *largest)).max_by_key(|(_, largest)| *largest)
}

pub fn next_step(case: &PvcCase, wanted: &PvcWanted<'_>, nodes: &[NodeFound<'_>], others: usize) -> NextStep {
    if let Some((node, largest, _)) = able(nodes).into_iter().max_by_key(|(_, largest, _)| *largest) {
        return given(case, wanted, &node.name, *largest);
    }
    let required = quantity::short(wanted.required);
    let Some((node, nearest)) = nearest(nodes) else {
        return NextStep {
            why: format!("no set of {} selects one of the {others} nodes", wanted.selector),
            next: "correct the nodeSelector of the set, or label a node that it is to select".to_owned(),
        };
    };
    let why = match room_for_all(nodes).filter(|(_, largest)| *largest > 0) {
        Some((at, largest)) if largest < wanted.required => {
            format!("no node can give {required}: the largest volume now is {} on node {at}", quantity::short(largest))
        }
        _ => format!("no node can give {required} now: node {}: {nearest}", node.name),
    };
    NextStep { why, next: of(case, &node.name, nearest) }
}

/// The node with the fewest obstacles, and the first of them; between equals, the easiest one.
fn nearest<'n>(nodes: &'n [NodeFound<'n>]) -> Option<(&'n NodeCase<'n>, &'n Obstacle)> {
    let easiest = |obstacles: &'n [Obstacle]| obstacles.iter().max_by_key(|obstacle| effort(obstacle));
    let all = nodes.iter().filter_map(|(node, _, obstacles)| Some((*node, obstacles.len(), easiest(obstacles)?)));
    let nearest = all.min_by_key(|(node, count, obstacle)| (*count, effort(obstacle), node.name.clone()));
    nearest.map(|(node, _, obstacle)| (node, obstacle))
}

/// How much a person has to do about it, in an order; what cannot be changed there comes last.
fn effort(obstacle: &Obstacle) -> usize {
    match obstacle {
        Obstacle::PoolCordoned => 0,
        Obstacle::NodeCordoned => 1,
        Obstacle::DiskCordoned { .. } => 2,
        Obstacle::AgentStarting => 3,
        Obstacle::AgentSilent { .. } => 4,
        Obstacle::PodElsewhere { .. } => 5,
        Obstacle::NodeNotReady => 6,
        Obstacle::DiskAway { .. } => 7,
        Obstacle::TooSmall { .. } => 8,
        Obstacle::TooLarge { .. } => 9,
        Obstacle::OtherMode => 10,
        Obstacle::OtherTopology => 11,
        // A new disk is more than a new claim or class.
        Obstacle::NoDisk { .. } => 12,
        Obstacle::NoPool => 13,
        Obstacle::NodeGone => 14,
    }
}

/// A node can give it: why does nobody ask for it?
fn given(case: &PvcCase, wanted: &PvcWanted<'_>, node: &NodeName, largest: u64) -> NextStep {
    let can = format!("node {node} can give up to {}", quantity::short(largest));
    let namespace = case.name.namespace();
    if wanted.waits_for_pod && case.pods.is_empty() {
        return NextStep {
            why: format!("it waits for a pod, and {can}"),
            next: format!("start a pod that uses the claim {}", case.name.name()),
        };
    }
    if let Some(refused) = case.event.as_ref().filter(|event| event.kind == EventKind::Refused) {
        return NextStep {
            why: format!("the provisioner asked for it and did not get it: {}; {can}", refused.text),
            next: "docs/troubleshooting.md, \"A claim stays Pending\", lists these messages with what to do; if nothing of that \
                   is so any more, it is asked for again in some minutes"
                .to_owned(),
        };
    }
    let runs = "`kubectl localpool status` says whether the controller and its provisioner run; if they do, it is there in a \
                moment";
    let chosen = case.pvc.metadata.annotations.as_ref().and_then(|all| all.get("volume.kubernetes.io/selected-node"));
    if let Some(chosen) = chosen {
        return NextStep {
            why: format!(
                "the scheduler has chosen node {chosen}, and the provisioner has not made the volume there yet; {can}"
            ),
            next: runs.to_owned(),
        };
    }
    if !wanted.waits_for_pod {
        return NextStep { why: format!("{can}, and the provisioner has not asked for it yet"), next: runs.to_owned() };
    }
    match case.pods.iter().all(|pod| node_of(pod).is_some()).then(|| case.pods.first()).flatten() {
        Some(pod) => {
            let (pod, on) = (pod.name_any(), node_of(pod).unwrap_or_default());
            NextStep {
                why: format!(
                    "pod {pod} was put on node {on} without the scheduler, and only the scheduler asks for the volume"
                ),
                next: format!(
                    "make pod {pod} again without spec.nodeName: a nodeSelector with kubernetes.io/hostname does it"
                ),
            }
        }
        None => NextStep {
            why: format!("{can}, and the scheduler has chosen no node for the pods"),
            next: format!("`kubectl -n {namespace} describe pod {}` says what they wait for", case.waiting_pods()),
        },
    }
}

/// What a person does about one obstacle of a node.
pub fn of(case: &PvcCase, node: &NodeName, obstacle: &Obstacle) -> String {
    match obstacle {
        Obstacle::PoolCordoned => uncordon_line(node),
        Obstacle::NodeCordoned => format!("kubectl uncordon {node}"),
        Obstacle::DiskCordoned { disk, why } if why.contains("a person has cordoned it") => {
            format!("kubectl localpool disk uncordon {}", shell_word(disk.as_str()))
        }
        Obstacle::DiskCordoned { disk, .. } => {
            format!("replace disk {disk} of node {node}, or add another one: {}", why_line(node, disk))
        }
        Obstacle::PodElsewhere { pod, why } => {
            format!("change pod {pod} so that it can run on node {node}, or add a disk where it can run: {why}")
        }
        Obstacle::AgentSilent { .. } => format!(
            "see why the agent of node {node} does not run: `kubectl get pods -A -l localpool.dev/component=node \
             --field-selector spec.nodeName={node}`"
        ),
        Obstacle::AgentStarting => format!(
            "wait for the agent of node {node}: `kubectl get pods -A -l localpool.dev/component=node --field-selector \
             spec.nodeName={node}`; when it is ready, the controller removes the taint, if the chart's \
             controller.removeStartupTaint is set"
        ),
        Obstacle::NodeNotReady => format!("`kubectl describe node {node}` says why it is not ready"),
        Obstacle::DiskAway { disk, .. } => {
            format!("{} says what to do about that disk", why_line(node, disk))
        }
        Obstacle::TooSmall { erasing, free, required, .. }
            if free.saturating_add(*erasing) >= *required && *erasing > 0 =>
        {
            format!(
                "wait: node {node} is erasing {} of deleted volumes, and that may be enough",
                quantity::short(*erasing)
            )
        }
        Obstacle::TooSmall { required, .. } => format!(
            "add a disk that a set of the class takes, delete claims that nobody needs, or ask for less than {}: `kubectl \
             localpool disks` shows what is free",
            quantity::short(*required)
        ),
        Obstacle::TooLarge { smallest, .. } => {
            format!("make the claim {} again with a limit of at least {}", case.name, quantity::short(*smallest))
        }
        Obstacle::NoDisk { .. } => format!(
            "add a disk to node {node} that a set of the class takes, or change the set so that it takes one that is there: \
             the reasons are above"
        ),
        Obstacle::OtherMode => "make the claim again with the other volumeMode, or with another class".to_owned(),
        Obstacle::OtherTopology => {
            format!("make the StorageClass again with node {node} in its allowedTopologies, or without them")
        }
        Obstacle::NoPool => format!(
            "see whether the agent runs on node {node}: `kubectl get pods -A -l localpool.dev/component=node \
             --field-selector spec.nodeName={node}`"
        ),
        Obstacle::NodeGone => format!("add a node, or bring node {node} back"),
    }
}
