//! The status of each LocalVolume, from what the nodes report of its classes. Pure but for the clock of conditions.

use std::collections::{BTreeMap, BTreeSet};

use kube::ResourceExt as _;
use serde_json::{Value, json};

use super::class::{Class, ClassName};
use super::offers::{Offers, claimed, listed, sum, unmatched};
use super::status::{AVAILABLE, CLASS, NAMED, VALID, class_state, events};
use super::summary::{SetStatus, Summary};
use crate::api::crd::{LocalVolume, LocalVolumeStatus, SetOffer, SetReason};
use crate::device::{NodeName, SetName};
use crate::operator::{
    bytes::{int32, unsigned},
    event::{EventNote, clip},
    status::condition::{ConditionState, condition},
};

/// Each path leads to a device, on each selected node.
pub const FOUND: &str = "DevicePathsFound";

impl SetStatus for LocalVolume {
    type Status = LocalVolumeStatus;

    const WORK: &'static str = "local volumes";

    fn status(&self) -> Option<&LocalVolumeStatus> {
        self.status.as_ref()
    }

    /// The offers of its classes.
    fn is_own(&self, offer: &SetName) -> bool {
        offer.is_class_of(&SetName::new(self.namespace().unwrap_or_default(), self.name_any()))
    }

    fn decide(
        &self,
        summary: &Summary,
        made: &BTreeMap<ClassName, Class>,
        offers: &Offers<'_>,
    ) -> (LocalVolumeStatus, Vec<EventNote>) {
        let before = self.status.clone().unwrap_or_default();
        let generation = self.metadata.generation;
        let now = |kind: &str, (holds, reason, message): ConditionState<SetReason>| {
            condition(&before.conditions, kind, holds, reason.word(), clip(message), generation)
        };
        let mut conditions = vec![now(AVAILABLE, available(summary, offers)), now(VALID, summary.valid())];
        if matches!(summary, Summary::Valid { claims_nothing: false, .. }) {
            conditions.push(now(FOUND, found(offers)));
        }
        conditions.extend(class_state(summary, made).map(|state| now(CLASS, state)));
        let gone = |node: &NodeName, path: &String| json!({"node": node, "path": path});
        let (missing_device_paths, missing_device_paths_omitted) =
            listed(offers, |offer| &offer.missing_device_paths, gone);
        let (unmatched_devices, unmatched_devices_omitted) = unmatched(offers);
        let nodes: BTreeSet<&NodeName> = offers.iter().map(|(node, _)| node).collect();
        let state = self.spec.get("managementState").and_then(Value::as_str).filter(|state| !state.is_empty());
        let status = LocalVolumeStatus {
            observed_generation: generation.unwrap_or_default(),
            management_state: state.unwrap_or("Managed").to_owned(),
            ready_replicas: int32(nodes.len()),
            total_provisioned_device_count: int32(sum(offers, |offer| offer.devices)),
            missing_device_paths,
            missing_device_paths_omitted,
            unmatched_devices,
            unmatched_devices_omitted,
            conditions,
        };
        let mut events = events(&before.conditions, &status.conditions);
        // The condition names each missing disk; there is one Event, when the condition turns.
        events.dedup();
        (status, events)
    }
}

fn found(offers: &Offers<'_>) -> ConditionState<SetReason> {
    let away = away(offers);
    match away.is_empty() {
        true => (true, SetReason::Found, "every path leads to a device".to_owned()),
        false => (false, SetReason::Missing, format!("no device is there for {}", away.join(", "))),
    }
}

/// `node: path` of each path that leads to no device.
fn away(offers: &Offers<'_>) -> Vec<String> {
    let of = |(node, offer): &(NodeName, &SetOffer)| {
        let node = node.clone();
        offer.missing_device_paths.iter().map(move |path| format!("{node}: {path}")).collect::<Vec<_>>()
    };
    offers.iter().flat_map(of).collect()
}

/// Its message is what `kubectl get` shows, so the most important thing comes first.
fn available(summary: &Summary, offers: &Offers<'_>) -> ConditionState<SetReason> {
    let problem = match summary {
        Summary::Valid { claims_nothing: true, .. } => {
            Some((SetReason::Unmanaged, "its managementState says that nothing new is claimed".to_owned()))
        }
        Summary::Valid { paths: 0, .. } => Some((SetReason::NoDevicePaths, "it names no devicePaths".to_owned())),
        other => other.problem(),
    };
    claimed(offers, problem, |message| with_offers(message, offers))
}

/// The nodes' reports, after the main message: why devices are not taken, and which are missing.
fn with_offers(first: String, offers: &Offers<'_>) -> String {
    let mut reports: BTreeSet<String> =
        offers.iter().filter_map(|(node, offer)| Some(format!("{node}: {}", offer.message.as_deref()?))).collect();
    reports.extend(offers.iter().flat_map(|(node, offer)| {
        offer.unmatched.iter().map(move |one| format!("{node}: {}: {}", one.device, one.reason))
    }));
    reports.extend(away(offers).into_iter().map(|path| format!("{path} is not there")));
    let not_named = |(_, offer): &(NodeName, &SetOffer)| unsigned::<usize>(offer.unmatched_omitted);
    let omitted: usize = offers.iter().map(not_named).sum();
    let more = match reports.len().saturating_sub(NAMED) + omitted {
        0 => String::new(),
        more => format!("; and {more} more"),
    };
    let reports: Vec<String> = [first].into_iter().chain(reports.into_iter().take(NAMED)).collect();
    reports.join("; ") + &more
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use k8s_openapi::api::core::v1::Node as KubeNode;
    use kube::runtime::events::EventType;

    use super::super::offers::offers_of;
    use super::super::parsed::Parsed;
    use super::super::sample::{local_volume, node};
    use super::*;
    use crate::api::crd::{DevicePool, DevicePoolSpec, DevicePoolStatus, Unmatched};

    fn summary(volume: &LocalVolume, nodes: &[Arc<KubeNode>]) -> Summary {
        Summary::of(volume, &Parsed::default().of_any_node(&[Arc::new(volume.clone())])[0], nodes)
    }

    fn pool(name: &str, offers: Vec<SetOffer>) -> DevicePool {
        let mut pool = DevicePool::new(name, DevicePoolSpec::default());
        pool.status = Some(DevicePoolStatus { sets: offers, ..DevicePoolStatus::default() });
        pool
    }

    fn offer(class: &str, devices: i64) -> SetOffer {
        SetOffer { namespace: "storage".to_owned(), name: format!("lv/{class}"), devices, ..SetOffer::default() }
    }

    fn status_of(volume: &LocalVolume, pools: &[DevicePool]) -> (LocalVolumeStatus, Vec<EventNote>) {
        let summary = summary(volume, &[node("a", &[("disk", "yes")]), node("b", &[])]);
        let classes = ["fast", "slow"].map(|class| (ClassName::from(class), Class::Ours));
        volume.decide(&summary, &BTreeMap::from(classes), &offers_of(pools, |name| volume.is_own(name)))
    }

    fn says(status: &LocalVolumeStatus, kind: &str) -> (String, String, String) {
        let found = status.conditions.iter().find(|condition| condition.type_ == kind).expect("the condition is there");
        (found.status.clone(), found.reason.clone(), found.message.clone())
    }

    fn owned(status: &str, reason: &str, message: &str) -> (String, String, String) {
        (status.to_owned(), reason.to_owned(), message.to_owned())
    }

    #[test]
    fn what_its_classes_have_on_the_nodes_is_summed_up_and_told_once() {
        let mut volume = local_volume("lv", &["/dev/sdb"]);
        let other = SetOffer { name: "lvx/fast".to_owned(), ..offer("fast", 9) };
        let set = SetOffer { name: "lv".to_owned(), ..offer("fast", 9) };
        let pools =
            [pool("a", vec![offer("fast", 1), offer("slow", 1), other, set]), pool("b", vec![offer("fast", 1)])];
        let (status, events) = status_of(&volume, &pools);
        assert_eq!((status.total_provisioned_device_count, status.ready_replicas), (3, 2));
        assert_eq!((status.observed_generation, status.management_state.as_str()), (3, "Managed"));
        assert_eq!(says(&status, AVAILABLE), owned("True", "DevicesClaimed", "3 devices on 2 nodes"));
        assert_eq!(says(&status, FOUND).0, "True");
        assert_eq!(says(&status, CLASS).1, "Ready");
        assert_eq!(events.len(), 1, "{events:?}");
        volume.status = Some(status.clone());
        assert_eq!(status_of(&volume, &pools), (status, vec![]), "the same world is the same status, and no news");
    }

    #[test]
    fn a_path_that_leads_nowhere_and_a_disk_that_is_left_are_told_with_their_node() {
        let volume = local_volume("lv", &["/dev/sdb", "/dev/sdc"]);
        let mut nothing = offer("fast", 0);
        nothing.missing_device_paths = vec!["/dev/sdc".to_owned()];
        nothing.unmatched = vec![Unmatched { device: "/dev/sdb".to_owned(), reason: "holds ext4".to_owned() }];
        let (status, _) = status_of(&volume, &[pool("a", vec![nothing])]);
        assert_eq!(status.missing_device_paths, [json!({"node": "a", "path": "/dev/sdc"})]);
        assert_eq!(status.unmatched_devices[0]["reason"], "holds ext4");
        assert_eq!(says(&status, FOUND), owned("False", "Missing", "no device is there for a: /dev/sdc"));
        let message = "no device is claimed yet; a: /dev/sdb: holds ext4; a: /dev/sdc is not there";
        assert_eq!(says(&status, AVAILABLE), owned("False", "NoDevices", message));
    }

    #[test]
    fn of_lists_that_are_too_long_the_status_says_how_much_it_leaves_out() {
        let volume = local_volume("lv", &["/dev/sdb"]);
        let mut full = offer("fast", 0);
        full.missing_device_paths = (0..50).map(|n| format!("/dev/gone{n}")).collect();
        let unmatched = |n| Unmatched { device: format!("/dev/sd{n}"), reason: "holds ext4".to_owned() };
        (full.unmatched, full.unmatched_omitted) = ((0..32).map(unmatched).collect(), 5);
        let (status, _) = status_of(&volume, &["a", "b", "c"].map(|node| pool(node, vec![full.clone()])));
        assert_eq!((status.missing_device_paths.len(), status.missing_device_paths_omitted), (64, 150 - 64));
        assert_eq!((status.unmatched_devices.len(), status.unmatched_devices_omitted), (64, 3 * 37 - 64));
        assert_eq!(status.missing_device_paths.last(), Some(&json!({"node": "c", "path": "/dev/gone20"})));
    }

    #[test]
    fn why_nothing_is_claimed_is_told_by_the_first_reason() {
        let mut volume = local_volume("lv", &[]);
        assert_eq!(says(&status_of(&volume, &[]).0, AVAILABLE).1, "NoDevicePaths");
        volume = local_volume("lv", &["/dev/sdb"]);
        assert_eq!(says(&status_of(&volume, &[]).0, AVAILABLE).1, "NoDevices");
        let term = json!({"matchExpressions": [{"key": "disk", "operator": "In", "values": ["no"]}]});
        volume.spec["nodeSelector"] = json!({"nodeSelectorTerms": [term]});
        assert_eq!(says(&status_of(&volume, &[]).0, AVAILABLE).1, "NoNodeSelected");
        volume.spec["managementState"] = json!("Removed");
        let (status, _) = status_of(&volume, &[]);
        assert_eq!((says(&status, AVAILABLE).1.as_str(), status.management_state.as_str()), ("Unmanaged", "Removed"));
        volume.spec["storageClassDevices"][0]["devicePaths"] = json!(["sdb"]);
        let (status, events) = status_of(&volume, &[]);
        assert_eq!(says(&status, AVAILABLE).1, "Invalid");
        assert!(says(&status, VALID).2.contains("devicePaths[0]"), "{status:?}");
        assert!(matches!(events.as_slice(), [EventNote { type_: EventType::Warning, .. }]), "{events:?}");
    }

    #[test]
    fn a_class_that_is_anothers_is_told_before_those_that_are_ours() {
        let volume = local_volume("lv", &["/dev/sdb"]);
        let summary = summary(&volume, &[node("a", &[])]);
        let other = Class::OtherProvisioner { provisioner: "other.example".to_owned() };
        let classes = BTreeMap::from([("fast".into(), Class::Ours), ("slow".into(), other)]);
        let (status, _) = volume.decide(&summary, &classes, &Offers::new());
        assert_eq!(says(&status, CLASS).1, "ForeignProvisioner");
    }
}
