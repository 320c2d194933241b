//! On which of its nodes the disks of a NodeDiskSetup are ready, and what keeps them from it elsewhere. Pure.

use crate::api::crd::{DevicePool, DiskState, DiskStatus, SetOffer, SetupReason, Unmatched};
use crate::device::{NodeName, SetName};
use crate::operator::bytes::signed;
use crate::operator::disk::member::MEMBER;
use crate::operator::pool::agent_life::silence;

/// How many nodes are named: the message stays the same size, whatever happens to a cluster.
const MOST_NAMED: usize = 8;
/// How many reasons a node has in it.
const MOST_REASONS: usize = 3;

/// Where the disks of one NodeDiskSetup are ready.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DisksReadiness {
    pub ready: usize,
    pub nodes: usize,
    /// What keeps the others from it, by node.
    pub problems: Vec<(NodeName, String)>,
}

impl DisksReadiness {
    /// `pools` are the nodes, each with what its agent reports.
    pub fn of<'a>(set: &SetName, pools: impl IntoIterator<Item = (NodeName, Option<&'a DevicePool>)>) -> Self {
        let mut readiness = Self::default();
        for (node, pool) in pools {
            readiness.nodes += 1;
            match problem(set, pool) {
                None => readiness.ready += 1,
                Some(problem) => readiness.problems.push((node, problem)),
            }
        }
        readiness
    }

    pub fn reason(&self) -> SetupReason {
        match (self.nodes, self.problems.is_empty()) {
            (0, _) => SetupReason::SelectsNoNode,
            (_, true) => SetupReason::DisksReady,
            (_, false) => SetupReason::DisksNotReady,
        }
    }

    pub fn message(&self) -> String {
        let Self { ready, nodes, problems } = self;
        let mut message = format!("the disks of {ready} of {nodes} nodes are ready");
        for (at, (node, problem)) in problems.iter().take(MOST_NAMED).enumerate() {
            message += if at == 0 { ": " } else { "; " };
            message += &format!("{node}: {problem}");
        }
        if let Some(more) = problems.len().checked_sub(MOST_NAMED + 1) {
            message += &format!("; and {} more", more + 1);
        }
        message
    }
}

/// Why the disks of a node are not ready; `None`: they are.
fn problem(set: &SetName, pool: Option<&DevicePool>) -> Option<String> {
    // What it reported last may be long ago.
    if pool.is_some_and(|pool| silence(pool).is_some()) {
        return Some("its agent says nothing any more, so nobody knows how its disks are".to_owned());
    }
    let Some(status) = pool.and_then(|pool| pool.status.as_ref()) else {
        return Some("no agent reports its disks".to_owned());
    };
    let set_text = set.to_string();
    let own = || status.disks.iter().filter(|disk| disk.set == set_text);
    let (members, offered): (Vec<&DiskStatus>, Vec<&DiskStatus>) = own().partition(|disk| disk.layout == MEMBER);
    // What is said of a member is about the array, but says which disk it is.
    let unusable = |disk: &&&DiskStatus| disk.state != DiskState::Ready;
    if let Some(disk) = members.iter().chain(&offered).find(unusable) {
        let message = disk.message.clone().unwrap_or_else(|| format!("it is {:?}", disk.state));
        return Some(format!("disk {} ({}): {message}", disk.id, disk.path));
    }
    let unmounted = offered.iter().find(|disk| disk.host_path.is_none());
    if let Some(disk) = unmounted {
        let message = disk.message.clone().unwrap_or_else(|| "its filesystem is not mounted yet".to_owned());
        return Some(format!("disk {} ({}): {message}", disk.id, disk.path));
    }
    if offered.is_empty() {
        let offer = status.sets.iter().find(|offer| offer.set_name() == *set);
        return Some(nothing_taken(offer, !members.is_empty()));
    }
    None
}

fn nothing_taken(offer: Option<&SetOffer>, has_members: bool) -> String {
    if has_members {
        return "the array of its disks was not made or started yet".to_owned();
    }
    let Some(offer) = offer else { return "its agent has not read the set yet".to_owned() };
    let elsewhere = offer.node_not_selected.then(|| "the set does not select this node".to_owned());
    let why = elsewhere.or_else(|| offer.message.clone()).or_else(|| reasons(offer));
    format!("no disk is taken: {}", why.unwrap_or_else(|| "it has no local disk that nobody uses".to_owned()))
}

/// Why devices are not taken, those that almost are first. Those with the same reason are told together, so that all disks
/// that a person waits for are in the message.
fn reasons(offer: &SetOffer) -> Option<String> {
    let mut groups: Vec<(&str, &str, usize)> = Vec::new();
    for Unmatched { device, reason } in &offer.unmatched {
        match groups.iter_mut().find(|(known, ..)| known == reason) {
            Some((.., others)) => *others += 1,
            None => groups.push((reason, device, 0)),
        }
    }
    let told = |(reason, device, others): &(&str, &str, usize)| match others {
        0 => format!("{device}: {reason}"),
        others => format!("{device} and {others} more: {reason}"),
    };
    let mut said: Vec<String> = groups.iter().take(MOST_REASONS).map(told).collect();
    let untold: usize = groups.iter().skip(MOST_REASONS).map(|(.., others)| others + 1).sum();
    let untold = signed(untold) + offer.unmatched_omitted;
    said.extend((untold > 0).then(|| format!("and {untold} more devices")));
    (!groups.is_empty()).then(|| said.join(", "))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pool(disks: Value, sets: Value) -> DevicePool {
        let object = json!({
            "apiVersion": "localpool.dev/v1alpha1", "kind": "DevicePool", "metadata": {"name": "n"}, "spec": {},
            "status": {"disks": disks, "sets": sets},
        });
        serde_json::from_value(object).expect("a pool")
    }

    fn disk(id: &str, layout: &str, more: Value) -> Value {
        let mut disk = json!({
            "id": id, "path": format!("/dev/{id}"), "layout": layout, "set": "d/s", "size": 1, "free": 1, "volumes": 0,
            "state": "Ready",
        });
        disk.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        disk
    }

    fn of(pools: &[Option<DevicePool>]) -> DisksReadiness {
        let pools = pools.iter().enumerate();
        let pools = pools.map(|(at, pool)| (NodeName::from(format!("n{at}").as_str()), pool.as_ref()));
        DisksReadiness::of(&SetName::new("d", "s"), pools)
    }

    fn message(disks: Value, sets: Value) -> String {
        of(&[Some(pool(disks, sets))]).message()
    }

    #[test]
    fn a_node_is_ready_whose_array_is_mounted_and_whose_members_are_there() {
        let mounted = json!({"hostPath": "/mnt/raid-disks/gpt-a"});
        let disks = json!([disk("gpt-m", "Member", json!({})), disk("gpt-a", "Directory", mounted)]);
        let readiness = of(&[Some(pool(disks, json!([])))]);
        assert_eq!((readiness.ready, readiness.reason()), (1, SetupReason::DisksReady));
        assert_eq!(readiness.message(), "the disks of 1 of 1 nodes are ready");
    }

    #[test]
    fn what_keeps_a_node_from_it_is_said_with_the_disk() {
        let away = json!({"state": "Missing", "message": "is missing"});
        let degraded = json!({"state": "NotReady", "message": "its array needs all of its members"});
        let disks = json!([disk("gpt-m", "Member", away), disk("gpt-a", "Directory", degraded)]);
        let said = message(disks, json!([]));
        assert!(said.ends_with("0 of 1 nodes are ready: n0: disk gpt-m (/dev/gpt-m): is missing"), "{said}");
        let unmounted = json!({"message": "it is not mounted at /mnt/raid-disks/gpt-a: it is a symbolic link"});
        let said = message(json!([disk("gpt-a", "Directory", unmounted)]), json!([]));
        assert!(said.contains("n0: disk gpt-a (/dev/gpt-a): it is not mounted at /mnt"), "{said}");
        assert!(
            message(json!([disk("gpt-m", "Member", json!({}))]), json!([])).contains("was not made or started yet")
        );
    }

    #[test]
    fn a_node_without_such_a_disk_says_why_none_was_taken() {
        let offer = |more: Value| {
            let mut offer = json!({
                "namespace": "d", "name": "s", "class": "c", "devices": 0, "partitions": 0, "available": 0, "largest": 0,
                "smallest": 0, "blockAvailable": 0, "blockLargest": 0, "blockSmallest": 0,
            });
            offer.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
            json!([offer])
        };
        let unmatched = json!({"unmatched": [
            {"device": "/dev/sda", "reason": "sda is mounted at /"},
            {"device": "/dev/sdb", "reason": "too few"}, {"device": "/dev/sdc", "reason": "too few"},
            {"device": "/dev/sdd", "reason": "x"}, {"device": "/dev/sde", "reason": "y"},
        ], "unmatchedOmitted": 2});
        let said = message(json!([]), offer(unmatched));
        let expected = "no disk is taken: /dev/sda: sda is mounted at /, /dev/sdb and 1 more: too few, /dev/sdd: x, and 3 more devices";
        assert!(said.ends_with(expected), "{said}");
        assert!(message(json!([]), offer(json!({"message": "is tainted"}))).ends_with("no disk is taken: is tainted"));
        let of_other = message(json!([]), offer(json!({"nodeNotSelected": true, "message": "is tainted"})));
        assert!(of_other.ends_with("no disk is taken: the set does not select this node"), "{of_other}");
        assert!(message(json!([]), json!([])).contains("has not read the set yet"));
        assert!(of(&[None]).message().contains("n0: no agent reports its disks"));
        assert_eq!(of(&[]).reason(), SetupReason::SelectsNoNode);
    }

    #[test]
    fn the_message_names_a_few_nodes_and_counts_the_others() {
        let nodes: Vec<Option<DevicePool>> = (0..20).map(|_| None).collect();
        let said = of(&nodes).message();
        assert!(said.starts_with("the disks of 0 of 20 nodes") && said.ends_with("; and 12 more"), "{said}");
    }
}
