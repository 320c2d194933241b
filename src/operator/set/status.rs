//! The status of each LocalVolumeSet, from what the nodes report of it. Pure but for the clock of conditions.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt as _;
use kube::runtime::events::EventType;
use serde_json::json;

use super::class::{Class, ClassName};
use super::offers::{Offers, claimed, count, listed, sum, unmatched};
use super::summary::{SetStatus, Summary};
use crate::api::crd::{LocalVolumeSet, LocalVolumeSetStatus, SetOffer, SetReason};
use crate::device::{NodeName, SetName};
use crate::operator::{
    bytes::{int32, unsigned},
    event::{EventNote, clip},
    status::condition::{ConditionState, condition},
};

/// Devices were claimed on some node.
pub const AVAILABLE: &str = "Available";
/// The spec is valid.
pub const VALID: &str = "Valid";
/// The provisioner of the StorageClass is our driver.
pub const CLASS: &str = "StorageClassReady";
/// At most this many nodes are named in a message.
pub const NAMED: usize = 5;

impl SetStatus for LocalVolumeSet {
    type Status = LocalVolumeSetStatus;

    const WORK: &'static str = "sets";

    fn status(&self) -> Option<&LocalVolumeSetStatus> {
        self.status.as_ref()
    }

    fn is_own(&self, offer: &SetName) -> bool {
        *offer == SetName::new(self.namespace().unwrap_or_default(), self.name_any())
    }

    fn decide(
        &self,
        summary: &Summary,
        made: &BTreeMap<ClassName, Class>,
        offers: &Offers<'_>,
    ) -> (LocalVolumeSetStatus, Vec<EventNote>) {
        let before = self.status.clone().unwrap_or_default();
        let generation = self.metadata.generation;
        let now = |kind: &str, (holds, reason, message): ConditionState<SetReason>| {
            condition(&before.conditions, kind, holds, reason.word(), clip(message), generation)
        };
        let mut conditions = vec![now(AVAILABLE, available(summary, offers)), now(VALID, summary.valid())];
        conditions.extend(class_state(summary, made).map(|state| now(CLASS, state)));
        let (unmatched_devices, unmatched_devices_omitted) = unmatched(offers);
        let shown = |node: &NodeName, device: &String| json!({"node": node, "device": device});
        let (would_take_devices, would_cut) = listed(offers, |offer| &offer.would_take, shown);
        let status = LocalVolumeSetStatus {
            total_provisioned_device_count: int32(sum(offers, |offer| offer.devices)),
            total_provisioned_partition_count: int32(sum(offers, |offer| offer.partitions)),
            observed_generation: generation.unwrap_or_default(),
            unmatched_devices,
            unmatched_devices_omitted,
            would_take_devices,
            would_take_devices_omitted: sum(offers, |offer| offer.would_take_omitted).saturating_add(would_cut),
            conditions,
        };
        let events = events(&before.conditions, &status.conditions);
        (status, events)
    }
}

/// Its message is what `kubectl get` shows, so the most important thing comes first.
fn available(summary: &Summary, offers: &Offers<'_>) -> ConditionState<SetReason> {
    let is_dry_run = matches!(summary, Summary::Valid { claims_nothing: true, .. });
    let problem = summary.problem().or_else(|| is_dry_run.then(|| (SetReason::DryRun, would_take(offers))));
    claimed(offers, problem, |message| with_offers(message, offers))
}

fn would_take(offers: &Offers<'_>) -> String {
    let more = |offer: &SetOffer| unsigned::<usize>(offer.would_take_omitted);
    let devices: usize = offers.iter().map(|(_, offer)| offer.would_take.len().saturating_add(more(offer))).sum();
    let on = offers.iter().filter(|(_, offer)| !offer.would_take.is_empty()).count();
    let would = format!("dry run: would take {} on {}", count(devices, "device"), count(on, "node"));
    with_offers(would, offers)
}

/// The nodes' reports of the set, after the main message.
fn with_offers(first: String, offers: &Offers<'_>) -> String {
    let reports: Vec<String> =
        offers.iter().filter_map(|(node, offer)| Some(format!("{node}: {}", offer.message.as_deref()?))).collect();
    match reports.len() {
        0 => first,
        some => {
            let more = if some > NAMED { format!("; and {} more", count(some - NAMED, "node")) } else { String::new() };
            format!("{first}; {}{more}", reports[..some.min(NAMED)].join("; "))
        }
    }
}

/// The state of its classes. One with a problem matters more than those without.
pub fn class_state(summary: &Summary, made: &BTreeMap<ClassName, Class>) -> Option<ConditionState<SetReason>> {
    let states = summary.classes().filter_map(|name| Some(class_condition(name, made.get(name)?)));
    states.min_by_key(|(holds, ..)| *holds)
}

fn class_condition(name: &ClassName, class: &Class) -> ConditionState<SetReason> {
    match class {
        Class::Ours => (true, SetReason::Ready, format!("StorageClass {name} has the provisioner of localpool")),
        Class::Missing => (false, SetReason::Missing, format!("StorageClass {name} does not exist yet")),
        Class::OtherProvisioner { provisioner } => (
            false,
            SetReason::ForeignProvisioner,
            format!(
                "StorageClass {name} has the provisioner {provisioner} and is not changed; to use the set's disks, \
                 create a StorageClass of localpool with parameters.class {name}"
            ),
        ),
        Class::Refused(why) => (false, SetReason::Refused, format!("StorageClass {name} could not be created: {why}")),
    }
}

/// One Event for each condition that has turned.
pub fn events(before: &[Condition], now: &[Condition]) -> Vec<EventNote> {
    let turned = |condition: &&Condition| {
        let former = before.iter().find(|former| former.type_ == condition.type_);
        former.is_none_or(|former| former.status != condition.status || former.reason != condition.reason)
    };
    let event = |condition: &Condition| {
        let reason = SetReason::from(condition.reason.clone());
        let type_ = match (condition.type_.as_str(), condition.status.as_str(), &reason) {
            (AVAILABLE, "True", _) => EventType::Normal,
            // The other conditions say why.
            (AVAILABLE, _, SetReason::NoNodeSelected) => EventType::Warning,
            (VALID | CLASS, "False", reason) if *reason != SetReason::Missing => EventType::Warning,
            _ => return None,
        };
        Some(EventNote { type_, reason: condition.reason.clone(), note: condition.message.clone() })
    };
    now.iter().filter(turned).filter_map(event).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use k8s_openapi::api::core::v1::Node as KubeNode;

    use super::super::offers::{LEFT, offers_of};
    use super::super::parsed::Parsed;
    use super::super::sample::{node, set};
    use super::*;
    use crate::api::crd::{DevicePool, DevicePoolSpec, DevicePoolStatus, Unmatched};

    fn summary(set: &LocalVolumeSet, nodes: &[impl AsRef<KubeNode>]) -> Summary {
        Summary::of(set, &Parsed::default().of_any_node(&[Arc::new(set.clone())])[0], nodes)
    }

    fn made(class: Class) -> BTreeMap<ClassName, Class> {
        [("fast".into(), class)].into()
    }

    fn pool(name: &str, offer: SetOffer) -> DevicePool {
        let mut pool = DevicePool::new(name, DevicePoolSpec::default());
        pool.status = Some(DevicePoolStatus { sets: vec![offer], ..DevicePoolStatus::default() });
        pool
    }

    fn offer(devices: i64, message: Option<&str>) -> SetOffer {
        SetOffer {
            namespace: "storage".to_owned(),
            name: "disks".to_owned(),
            class: "fast".to_owned(),
            devices,
            partitions: devices * 4,
            message: message.map(str::to_owned),
            ..SetOffer::default()
        }
    }

    fn find<'a>(status: &'a LocalVolumeSetStatus, kind: &str) -> &'a Condition {
        status.conditions.iter().find(|condition| condition.type_ == kind).expect("the condition is there")
    }

    fn is(condition: &Condition) -> (&str, &str) {
        (&condition.status, &condition.reason)
    }

    fn status_of(set: &LocalVolumeSet, pools: &[DevicePool]) -> (LocalVolumeSetStatus, Vec<EventNote>) {
        let summary = summary(set, &[node("a", &[("disk", "yes")]), node("b", &[])]);
        set.decide(&summary, &made(Class::Ours), &offers_of(pools, |name| set.is_own(name)))
    }

    #[test]
    fn what_the_nodes_claimed_is_summed_up_and_told_once() {
        let mut set = set("disks", "fast");
        let pools = [pool("a", offer(2, None)), pool("b", offer(1, None)), pool("c", SetOffer::default())];
        let (status, events) = status_of(&set, &pools);
        assert_eq!((status.total_provisioned_device_count, status.total_provisioned_partition_count), (3, 12));
        assert_eq!(is(find(&status, AVAILABLE)), ("True", "DevicesClaimed"));
        assert_eq!(find(&status, AVAILABLE).message, "3 devices on 2 nodes");
        assert_eq!(is(find(&status, VALID)), ("True", "Valid"));
        assert_eq!(is(find(&status, CLASS)), ("True", "Ready"));
        assert_eq!(events.len(), 1, "{events:?}");
        set.status = Some(status.clone());
        assert_eq!(status_of(&set, &pools), (status, vec![]), "the same world is the same status, and no news");
    }

    #[test]
    fn an_invalid_set_says_what_is_wrong_and_keeps_counting_what_it_has() {
        let mut set = set("disks", "fast");
        set.spec["dryRnu"] = json!(true);
        let (status, events) = status_of(&set, &[]);
        assert_eq!(is(find(&status, AVAILABLE)), ("False", "Invalid"));
        assert!(find(&status, VALID).message.contains("spec.dryRnu: unknown field; did you mean dryRun?"));
        assert!(status.conditions.iter().all(|condition| condition.type_ != CLASS), "no class is asked for");
        assert!(matches!(events.as_slice(), [EventNote { type_: EventType::Warning, .. }]), "{events:?}");
        let (status, _) = status_of(&set, &[pool("a", offer(1, None))]);
        assert_eq!(is(find(&status, AVAILABLE)), ("True", "DevicesClaimed"));
        assert!(find(&status, AVAILABLE).message.contains("1 device on 1 node; nothing new is claimed"));
    }

    #[test]
    fn a_dry_run_says_where_it_would_take_what() {
        let mut set = set("disks", "fast");
        set.spec["dryRun"] = json!(true);
        let would = |devices: &[&str]| SetOffer {
            would_take: devices.iter().map(|device| (*device).to_owned()).collect(),
            would_take_omitted: 5,
            ..offer(0, None)
        };
        let pools = [pool("a", would(&["/dev/sda", "/dev/sdb"])), pool("b", would(&["/dev/sda"]))];
        let (status, _) = status_of(&set, &pools);
        assert_eq!(is(find(&status, AVAILABLE)), ("False", "DryRun"));
        assert_eq!(
            find(&status, AVAILABLE).message,
            "dry run: would take 13 devices on 2 nodes",
            "also those not named"
        );
        assert_eq!(status.would_take_devices_omitted, 10);
        let (a, b) = (json!({"node": "a", "device": "/dev/sdb"}), json!({"node": "b", "device": "/dev/sda"}));
        assert_eq!(status.would_take_devices[1..], [a, b]);
    }

    #[test]
    fn a_selector_that_selects_nothing_is_told() {
        let mut set = set("disks", "fast");
        let select = |value: &str| json!({"nodeSelectorTerms": [{"matchExpressions": [{"key": "disk", "operator": "In", "values": [value]}]}]});
        set.spec["nodeSelector"] = select("no");
        let (status, events) = status_of(&set, &[]);
        assert_eq!(is(find(&status, AVAILABLE)), ("False", "NoNodeSelected"));
        assert_eq!(find(&status, AVAILABLE).message, "nodeSelector selects none of 2 nodes");
        assert_eq!(events.len(), 1);
        set.spec["nodeSelector"] = select("yes");
        let (status, events) = status_of(&set, &[]);
        assert_eq!((is(find(&status, AVAILABLE)), events.len()), (("False", "NoDevices"), 0));
        let all = [node("a", &[("disk", "yes")]), node("b", &[])];
        assert_eq!(
            summary(&set, &all),
            Summary::Valid { classes: vec!["fast".into()], paths: 0, selected: 1, nodes: 2, claims_nothing: false }
        );
        let none: [Arc<KubeNode>; 0] = [];
        let unknown = set.decide(&summary(&set, &none), &BTreeMap::new(), &Vec::new()).0;
        assert_eq!(is(find(&unknown, AVAILABLE)).1, "NoDevices", "a cluster without nodes is not the selector's fault");
    }

    #[test]
    fn the_class_of_another_provisioner_is_told_with_the_way_out() {
        let set = set("disks", "fast");
        let summary = summary(&set, &[node("a", &[])]);
        let other = Class::OtherProvisioner { provisioner: "other.example".to_owned() };
        let (status, events) = set.decide(&summary, &made(other), &Vec::new());
        assert_eq!(is(find(&status, CLASS)), ("False", "ForeignProvisioner"));
        assert!(events[0].note.contains("other.example") && events[0].note.contains("parameters.class fast"));
        let (_, events) = set.decide(&summary, &made(Class::Missing), &Vec::new());
        assert!(events.is_empty(), "it is being made");
    }

    #[test]
    fn what_was_left_and_what_nodes_say_is_told_up_to_a_limit() {
        let set = set("disks", "fast");
        let unmatched = |count: usize| {
            let unmatched = |n: usize| Unmatched { device: format!("/dev/sd{n}"), reason: "too small".to_owned() };
            (0..count).map(unmatched).collect()
        };
        let pools: Vec<_> = (0..9)
            .map(|n| {
                let mut offer = offer(0, Some("no device matches"));
                (offer.unmatched, offer.unmatched_omitted) = (unmatched(20), 2);
                pool(&format!("n{n}"), offer)
            })
            .collect();
        let (status, _) = status_of(&set, &pools);
        assert_eq!(status.unmatched_devices.len(), LEFT);
        assert_eq!(status.unmatched_devices_omitted, 9 * 22 - 64);
        let of_last = status.unmatched_devices.iter().filter(|device| device["node"] == "n8");
        assert_eq!(of_last.count(), 7, "no node's lines keep out another's");
        assert_eq!(status.unmatched_devices[0], json!({"node": "n0", "device": "/dev/sd0", "reason": "too small"}));
        let message = &find(&status, AVAILABLE).message;
        assert!(message.contains("n4: no device matches") && message.ends_with("and 4 nodes more"), "{message}");
    }
}
