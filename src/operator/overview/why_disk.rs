//! Why a disk takes no new volumes, or is in no pool, and what to do. Pure.
//!
//! Takes in what the node's agent has reported, and what discovery has seen; gives out a [`DiskAnswer`].

use std::fmt::{self, Display, Formatter};

use serde::Serialize;
use serde_json::json;

use super::asked_disk::{DiskAsked, why_line};
use super::discovered;
use super::disks::ClusterDisk;
use super::volumes::{ClusterVolume, PodsOfPvc, WantedVolumes, volumes};
use super::why_pvc::AnswerStep;
use crate::api::crd::{
    DevicePool, DiskOrder, DiskOrderStatus, DiskState, DiskStatus, HealthEntry, LocalVolumeDiscoveryResult, OrderState,
    PoolVolume, SetOffer,
};
use crate::api::quantity;
use crate::device::NodeName;
use crate::health::HealthReason;
use crate::operator::api_server::error::OperatorError;
use crate::operator::api_server::object_key::ObjectName;
use crate::operator::bytes::unsigned;
use crate::operator::disk::member::{arrays_of, is_member};
use crate::operator::kube_volume::PersistentVolume;
use crate::operator::pool::agent_life::silence;
use crate::show::shell_word;

/// How many disks are named to whoever asks about one that nobody knows.
const NAMED: usize = 16;

/// What is known of the node.
pub struct DiskCase {
    pub asked: DiskAsked,
    pub pool: Option<DevicePool>,
    /// Those of the node.
    pub volumes: Vec<PoolVolume>,
    pub persistent: Vec<PersistentVolume>,
    pub pods: PodsOfPvc,
    pub results: Vec<LocalVolumeDiscoveryResult>,
}

/// For people and programs. Field names stay; new ones may come.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DiskAnswer {
    pub node: NodeName,
    /// What its DevicePool says of it; nothing: it is in no pool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk: Option<ClusterDisk>,
    pub steps: Vec<AnswerStep>,
    /// Those on it.
    pub volumes: Vec<ClusterVolume>,
    pub why: String,
    pub next: String,
}

pub fn explain(case: &DiskCase) -> Result<DiskAnswer, OperatorError> {
    let found = match &case.pool {
        Some(pool) => case.asked.one_of(pool)?.map(|disk| (pool, disk)),
        None => None,
    };
    match found {
        Some((pool, disk)) => Ok(replacement(case, disk).unwrap_or_else(|| of_pool(case, pool, disk))),
        None => outside(case).ok_or_else(|| OperatorError::Refused(unknown(case))),
    }
}

/// What has the path of a missing disk now, if a person asks for the path.
fn replacement(case: &DiskCase, missing: &DiskStatus) -> Option<DiskAnswer> {
    let id = &missing.id;
    if missing.state != DiskState::Missing || case.asked.is(id.as_str()) {
        return None;
    }
    let mut answer = outside(case)?;
    let text = format!("disk {id} had this path, and is missing: {}", why_line(&case.asked.node, id));
    answer.steps.push(AnswerStep::new("disk", text));
    Some(answer)
}

/// Nobody has reported such a disk.
fn unknown(case: &DiskCase) -> String {
    let DiskAsked { node, disk } = &case.asked;
    let Some(pool) = &case.pool else {
        return format!(
            "node {node} has no DevicePool, and no discovery has seen a disk {disk} there: `kubectl localpool status` shows \
             the nodes whose agents have reported"
        );
    };
    let status = pool.status.iter();
    let disks = status.clone().flat_map(|status| &status.disks).map(|disk| disk.path.as_str());
    let devices = status.flat_map(|status| &status.sets).flat_map(|set| &set.unmatched).map(|one| one.device.as_str());
    let mut known: Vec<&str> = disks.chain(devices).collect();
    known.sort_unstable();
    known.dedup();
    let more = known.len().saturating_sub(NAMED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let named = known.iter().take(NAMED).copied().collect::<Vec<_>>().join(", ");
    let reported = if known.is_empty() { " no disk at all".to_owned() } else { format!(": {named}{more}") };
    let why = if is_selected_by_none(case) { ", and no set selects that node" } else { "" };
    format!(
        "the agent of node {node} has reported no disk {disk}{why}; it has reported{reported}. `localpool devices` in its pod \
         lists all"
    )
}

fn of_pool(case: &DiskCase, pool: &DevicePool, disk: &DiskStatus) -> DiskAnswer {
    let node = pool.node();
    let shown = ClusterDisk::of(pool, disk);
    let on_it = WantedVolumes { disk: Some(disk.id.clone()), ..WantedVolumes::default() };
    let volumes = volumes(&case.volumes, &case.persistent, &case.pods, &on_it);
    let mut steps = vec![AnswerStep::new("disk", disk_text(disk, &node))];
    let state = disk.message.as_ref().map_or_else(|| shown.state.clone(), |why| format!("{}: {why}", shown.state));
    let since = shown.since.as_ref().map_or_else(String::new, |since| format!(", since {since}"));
    steps.push(AnswerStep::new("state", state + &since));
    for entry in &disk.health {
        steps.push(AnswerStep::new("health", health_text(entry)));
    }
    let order = orders(pool, disk).next();
    steps.extend(
        order.map(|order| {
            AnswerStep::new("order", format!("{:?} is {:?}: {}", order.order, order.state, order.message))
        }),
    );
    steps.extend(volumes.iter().map(|volume| AnswerStep::new("volume", volume_text(volume))));
    let (why, next) = in_pool(pool, disk, order);
    DiskAnswer { node, disk: Some(shown), steps, volumes, why, next }
}

fn orders<'p>(pool: &'p DevicePool, disk: &DiskStatus) -> impl Iterator<Item = &'p DiskOrderStatus> {
    let id = disk.id.clone();
    pool.status.iter().flat_map(|status| &status.orders).filter(move |order| order.disk == id)
}

fn disk_text(disk: &DiskStatus, node: &NodeName) -> String {
    let model = disk.model.as_ref().map_or_else(String::new, |model| format!(", {model}"));
    let (size, free) = (quantity::short(unsigned(disk.size)), quantity::short(unsigned(disk.free)));
    let DiskStatus { id, path, layout, set, volumes, .. } = disk;
    format!("{id} ({path}{model}) of node {node}, set {set}, {layout}: {size}, {free} free, {volumes} volumes")
}

/// What is wrong, and since when.
fn health_text(entry: &HealthEntry) -> String {
    let HealthEntry { reason, severity, message, since, confirmed_by: _ } = entry;
    let since = since.as_ref().map_or_else(String::new, |since| format!(", since {}", since.0));
    format!("{reason}, {severity}{since}: {message}")
}

fn volume_text(volume: &ClusterVolume) -> String {
    let claim = match (&volume.namespace, &volume.claim, &volume.persistent_volume) {
        (Some(namespace), Some(claim), Some(_)) => format!("claim {namespace}/{claim}"),
        (Some(namespace), Some(claim), None) => format!("no PersistentVolume; claim {namespace}/{claim} had it"),
        _ => "no claim".to_owned(),
    };
    let pods = match &volume.pods[..] {
        [] => String::new(),
        pods => format!(", pods {}", pods.iter().map(ObjectName::as_str).collect::<Vec<_>>().join(", ")),
    };
    let size = quantity::short(volume.size);
    let health = if volume.health == volume.state { String::new() } else { format!(", {}", volume.health) };
    format!("{}, {size}, {}{health}: {claim}{pods}", volume.id, volume.state)
}

/// Why a disk of the pool takes no new volumes, and what to do.
fn in_pool(pool: &DevicePool, disk: &DiskStatus, order: Option<&DiskOrderStatus>) -> (String, String) {
    let (node, id, word) = (pool.node(), &disk.id, shell_word(disk.id.as_str()));
    if let Some(ready) = silence(pool) {
        let row = HealthReason::from(ready.reason.clone()).row();
        let next =
            row.map_or_else(|| "docs/health.md says what to do about it".to_owned(), |row| row.action.to_owned());
        return (format!("the agent of its node does not answer: {}", ready.message), next);
    }
    let action = disk.health.iter().find_map(|entry| {
        let row = HealthReason::from(entry.reason.clone()).row()?;
        Some((format!("{}: {}", entry.reason, entry.message), row.action.to_owned()))
    });
    let is_closed = disk.state != DiskState::Ready || disk.cordon.is_some();
    if let (Some(order), true) = (order.filter(|order| order.order.closes()), is_closed) {
        let why = format!("{:?} is ordered for it", order.order);
        let state = format!("{:?}: {}", order.state, order.message);
        let next = match (order.order, order.state) {
            (DiskOrder::Drain, OrderState::Waiting) => {
                format!(
                    "{state}: `kubectl localpool disk drain {word}` prints what is on it, and the lines that delete it"
                )
            }
            _ => state,
        };
        return (why, next);
    }
    match (disk.state, &disk.cordon) {
        (DiskState::Missing, _) => {
            let why = "the node does not have it now".to_owned();
            let patch = json!({"spec": {"disks": {id.as_str(): {"order": "GiveUp"}}}});
            let patch = shell_word(&patch.to_string());
            let give_up = format!("kubectl patch devicepool {node} --type=merge -p {patch}");
            (why, format!("bring it back; only if it is gone for good, give it up, with all volumes on it: {give_up}"))
        }
        (DiskState::NotReady, _) => action.unwrap_or_else(|| {
            let why = disk.message.clone().unwrap_or_else(|| "its agent does not say why".to_owned());
            (
                format!("it cannot be used: {why}"),
                "docs/troubleshooting.md lists these messages with what to do".to_owned(),
            )
        }),
        (DiskState::Ready, Some(why)) if why.contains("a person has cordoned it") => {
            ("a person has cordoned it".to_owned(), format!("kubectl localpool disk uncordon {word}"))
        }
        (DiskState::Ready, Some(why)) => {
            let (_, next) = action.unwrap_or_else(|| (String::new(), format!("kubectl localpool disk drain {word}")));
            (format!("it takes no new volumes: {why}"), next)
        }
        (DiskState::Ready, None) if pool.spec.cordon => {
            let patch = json!({"spec": {"cordon": false}});
            let line = format!("kubectl patch devicepool {node} --type=merge -p '{patch}'");
            ("it is well, and its whole node is cordoned by spec.cordon of the DevicePool".to_owned(), line)
        }
        (DiskState::Ready, None) if offers(pool).all(|offer| offer.set_name().to_string() != disk.set) => {
            set_gone(disk)
        }
        (DiskState::Ready, None) if is_member(disk) => of_member(pool, disk, action),
        (DiskState::Ready, None) => open(disk, action),
    }
}

/// A disk that has no volumes itself.
fn of_member(pool: &DevicePool, disk: &DiskStatus, action: Option<(String, String)>) -> (String, String) {
    let (node, status) = (pool.node(), pool.status.iter());
    let arrays = status.flat_map(|status| arrays_of(disk, status));
    let arrays: Vec<String> = arrays.map(|array| why_line(&node, &array.id)).collect();
    let is_member = "it is a member of an array, and its volumes are on that";
    let why = action.map(|(why, _)| why).or_else(|| disk.message.clone());
    let why = why.map_or_else(|| is_member.to_owned(), |why| format!("{is_member}; {why}"));
    let next = match arrays.is_empty() {
        true => "nothing, until its array runs".to_owned(),
        false => arrays.join(" and "),
    };
    (why, next)
}

fn offers(pool: &DevicePool) -> impl Iterator<Item = &SetOffer> {
    pool.status.iter().flat_map(|status| &status.sets)
}

/// Its set was deleted, or the agent does not know it: nobody gives its room to a claim.
fn set_gone(disk: &DiskStatus) -> (String, String) {
    let set = &disk.set;
    let why = disk.message.clone().unwrap_or_else(|| format!("its set {set} does not exist: it offers no space"));
    (why, format!("make the LocalVolumeSet or LocalVolume {set} again, as it was"))
}

/// A disk that takes new volumes.
fn open(disk: &DiskStatus, action: Option<(String, String)>) -> (String, String) {
    if let Some((why, next)) = action {
        return (format!("it takes new volumes, and {why}"), next);
    }
    match (disk.free, disk.erasing) {
        (free, _) if free > 0 => {
            let free = quantity::short(unsigned(free));
            (format!("it is well, and takes new volumes: {free} are free"), "nothing".to_owned())
        }
        (_, erasing) if erasing > 0 => {
            let erasing = quantity::short(unsigned(erasing));
            (format!("it is full; {erasing} of deleted volumes are still being erased"), "wait".to_owned())
        }
        _ => ("it is full".to_owned(), "delete claims that nobody needs, or add a disk".to_owned()),
    }
}

/// A device that no pool has, as the sets' reasons and discovery show it.
fn outside(case: &DiskCase) -> Option<DiskAnswer> {
    let offers: Vec<&SetOffer> =
        case.pool.iter().filter_map(|pool| pool.status.as_ref()).flat_map(|one| &one.sets).collect();
    let mut steps = Vec::new();
    let mut takers = Vec::new();
    for offer in offers {
        let set = offer.set_name();
        let refused = offer.unmatched.iter().filter(|one| case.asked.is(&one.device));
        steps.extend(
            refused.map(|one| AnswerStep::new("set", format!("{set} does not take {}: {}", one.device, one.reason))),
        );
        if offer.would_take.iter().any(|device| case.asked.is(device)) {
            steps.push(AnswerStep::new("set", format!("{set} would take it, and is a dry run")));
            takers.push(set);
        }
    }
    steps.extend(discovered::steps(&case.asked, &case.results));
    let first = steps.first()?.text.clone();
    let is_free = !steps.iter().any(|step| step.about == "set") && discovered::is_available(&case.asked, &case.results);
    let (why, next) = match takers.first() {
        Some(set) => {
            let (namespace, name) = (&set.namespace, &set.name);
            let patch = json!({"spec": {"dryRun": false}});
            let line = format!("kubectl -n {namespace} patch localvolumeset {name} --type=merge -p '{patch}'");
            (format!("set {set}, which would take it, is a dry run"), line)
        }
        None if is_free => (
            match is_selected_by_none(case) {
                true => "it is free, and no set selects its node",
                false => "it is free, and no set of its node speaks of it",
            }
            .to_owned(),
            "create a LocalVolumeSet that takes it, or let the nodeSelector of one select its node: docs/local-volume-sets.md"
                .to_owned(),
        ),
        None => (
            format!("no set takes it: {first}"),
            "nothing, if it is not meant for volumes; otherwise change the set, or the disk, so that this reason is gone: \
             docs/local-volume-sets.md has the order of all questions"
                .to_owned(),
        ),
    };
    Some(DiskAnswer { node: case.asked.node.clone(), disk: None, steps, volumes: Vec::new(), why, next })
}

/// Then no set speaks of a device of the node that is in no pool.
fn is_selected_by_none(case: &DiskCase) -> bool {
    let status = case.pool.as_ref().and_then(|pool| pool.status.as_ref());
    status.is_some_and(|status| status.sets.iter().all(|offer| offer.node_not_selected))
}

impl Display for DiskAnswer {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { node: _, disk: _, steps, volumes: _, why, next } = self;
        AnswerStep::write_all(f, steps)?;
        AnswerStep::write_end(f, why, next)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::operator::volume::sample::{in_phase, pool, status_condition};

    fn read<T: serde::de::DeserializeOwned>(value: Value) -> T {
        serde_json::from_value(value).expect("an object")
    }

    /// The disk `gpt-1` of node `n`, with this beside what a disk has.
    fn case(more: Value) -> DiskCase {
        let mut disk = json!({"id": "gpt-1", "path": "/dev/sdb", "layout": "Carved", "set": "d/s", "size": 9 << 30,
                              "free": 1 << 30, "volumes": 1, "state": "Ready"});
        disk.as_object_mut().expect("a map").extend(more.as_object().expect("a map").clone());
        let mut pool = pool("n", [9, 9, 1]);
        pool.status.as_mut().expect("set").disks = vec![read(disk)];
        let asked = "n/sdb".parse().expect("a disk");
        let (volumes, persistent, pods, results) = Default::default();
        DiskCase { asked, pool: Some(pool), volumes, persistent, pods, results }
    }

    fn ends(case: &DiskCase, why: &str, next: &str) {
        let answer = explain(case).expect("it is known");
        assert!(answer.why.contains(why) && answer.next.contains(next), "{why:?} and {next:?}:\n{answer}");
    }

    #[test]
    fn a_disk_is_named_by_its_node_and_its_id_or_the_end_of_a_path() {
        for (text, is) in [
            ("n/sdb", true),
            ("n//dev/sdb", true),
            ("n/dev/sdb", true),
            ("n/gpt-1", true),
            ("n/db", false),
            ("n/sdc", false),
        ] {
            let one = DiskCase { asked: text.parse().expect("a disk"), ..case(json!({})) };
            assert_eq!(explain(&one).is_ok(), is, "{text}");
        }
        for bad in ["sdb", "/sdb", "n/", "n//", ""] {
            assert!(bad.parse::<DiskAsked>().is_err_and(|error| error.to_string().contains("NODE/DISK")), "{bad}");
        }
    }

    #[test]
    fn a_member_of_an_array_says_what_keeps_the_array_and_where_to_look() {
        let message = "its array needs all of its members";
        let mut case = case(json!({"layout": "Member", "message": message, "volumes": 0, "free": 0}));
        ends(&case, &format!("its volumes are on that; {message}"), "until its array runs");
        let disks = &mut case.pool.as_mut().expect("set").status.as_mut().expect("set").disks;
        let (id, path) = (crate::device::DiskId::named("gpt-array"), "/dev/md127".to_owned());
        let array = DiskStatus { id, path, layout: "Carved".to_owned(), ..disks[0].clone() };
        disks.push(array);
        ends(&case, "it is a member of an array", "why disk n/gpt-array");
    }

    #[test]
    fn a_disk_of_the_pool_says_what_closes_it_and_what_opens_it() {
        ends(&case(json!({})), "it is well, and takes new volumes: 1Gi are free", "nothing");
        ends(&case(json!({"free": 0, "erasing": 1 << 30})), "1Gi of deleted volumes", "wait");
        ends(&case(json!({"free": 0})), "it is full", "delete claims");
        ends(&case(json!({"state": "Missing"})), "does not have it now", "kubectl patch devicepool n");
        let quoted = r#"-p '{"spec":{"disks":{"serial-a'\''$(reboot)":{"order":"GiveUp"}}}}'"#;
        ends(&case(json!({"state": "Missing", "id": "serial-a'$(reboot)"})), "does not have it now", quoted);
        ends(&case(json!({"state": "NotReady", "message": "two copies"})), "two copies", "docs/troubleshooting.md");
        let cordoned = case(json!({"cordon": "a person has cordoned it"}));
        ends(&cordoned, "a person has cordoned it", "kubectl localpool disk uncordon gpt-1");
        let sick = json!([{"reason": "DiskFailing", "severity": "Degraded", "message": "it fails",
                           "since": "2026-11-26T04:00:00Z"}]);
        let text = explain(&case(json!({"health": sick}))).expect("known").to_string();
        assert!(text.contains("DiskFailing, Degraded, since 2026-11-26T04:00:00Z: it fails"), "{text}");
        let action = HealthReason::from("DiskFailing".to_owned()).row().expect("known").action;
        ends(&case(json!({"cordon": "it fails", "health": sick})), "it takes no new volumes: it fails", action);
        ends(&case(json!({"health": sick})), "it takes new volumes, and DiskFailing: it fails", action);
        let mut ordered = case(json!({"cordon": "Drain is ordered for it"}));
        let order = json!({"disk": "gpt-1", "order": "Drain", "state": "Waiting", "message": "1 volume is on it"});
        ordered.pool.as_mut().and_then(|pool| pool.status.as_mut()).expect("set").orders = vec![read(order)];
        ends(&ordered, "Drain is ordered for it", "Waiting: 1 volume is on it: `kubectl localpool disk drain gpt-1`");
        let gone = case(json!({"set": "d/old", "message": "its set d/old does not exist: it offers no space"}));
        ends(&gone, "its set d/old does not exist", "make the LocalVolumeSet or LocalVolume d/old again");
        let mut node = case(json!({}));
        node.pool.as_mut().expect("set").spec.cordon = true;
        ends(&node, "its whole node is cordoned", "\"cordon\":false");
        let silent = status_condition("Ready", "Unknown", "AgentSilent", "no answer");
        node.pool.as_mut().and_then(|pool| pool.status.as_mut()).expect("set").conditions = vec![silent];
        ends(&node, "does not answer: no answer", HealthReason::AgentSilent.row().expect("known").action);
    }

    #[test]
    fn a_path_that_a_missing_disk_had_is_that_of_the_device_which_has_it_now() {
        let mut one = case(json!({"state": "Missing"}));
        let status = one.pool.as_mut().and_then(|pool| pool.status.as_mut()).expect("set");
        status.sets[0].unmatched = vec![read(json!({"device": "/dev/sdb", "reason": "it is too small"}))];
        ends(&one, "no set takes it: d/s does not take /dev/sdb", "change the set");
        let text = explain(&one).expect("known").to_string();
        assert!(!text.contains("GiveUp") && text.contains("why disk n/gpt-1"), "{text}");
        one.asked = "n/gpt-1".parse().expect("a disk");
        ends(&one, "the node does not have it now", "GiveUp");
    }

    #[test]
    fn the_volumes_of_a_disk_are_listed_with_their_claims() {
        let mut one = case(json!({}));
        let mut volume = in_phase(crate::api::crd::Phase::Ready);
        volume.metadata.annotations =
            Some([(crate::api::crd::CLAIM_ANNOTATION.to_owned(), "app/data".to_owned())].into());
        volume.status.as_mut().expect("set").disk = Some(crate::device::DiskId::named("gpt-1"));
        let elsewhere = in_phase(crate::api::crd::Phase::Ready);
        one.volumes = vec![volume, elsewhere];
        let answer = explain(&one).expect("known");
        assert_eq!(answer.volumes.len(), 1);
        assert!(answer.to_string().contains("no PersistentVolume; claim app/data had it"), "{answer}");
    }

    #[test]
    fn a_device_that_no_set_takes_has_the_reason_of_each_set_and_of_discovery() {
        let mut one = case(json!({}));
        one.asked = "n/sdc".parse().expect("a disk");
        let status = one.pool.as_mut().and_then(|pool| pool.status.as_mut()).expect("set");
        status.sets[0].unmatched = vec![read(json!({"device": "/dev/sdc", "reason": "it is too small"}))];
        ends(&one, "no set takes it: d/s does not take /dev/sdc: it is too small", "change the set");
        let status = one.pool.as_mut().and_then(|pool| pool.status.as_mut()).expect("set");
        status.sets[0].unmatched.clear();
        status.sets[0].would_take = vec!["/dev/sdc".to_owned()];
        ends(&one, "is a dry run", "kubectl -n d patch localvolumeset s");
        one.pool = None;
        one.results = vec![read(json!({
            "metadata": {"name": "r", "namespace": "d"}, "spec": {"nodeName": "n"},
            "status": {"discoveredTimeStamp": "", "deviceCount": 1, "availableCount": 0,
                       "discoveredDevices": [{"path": "/dev/sdc", "status": {"state": "NotAvailable", "reason": "mounted"}}]},
        }))];
        ends(&one, "says NotAvailable of /dev/sdc: mounted", "change the set");
        let devices = |one: &mut DiskCase, state: &str| {
            let device = json!([{"path": "/dev/sdc", "status": {"state": state}}]);
            one.results[0].status.as_mut().expect("set").discovered_devices = read(device);
        };
        devices(&mut one, "Available");
        ends(&one, "it is free, and no set of its node speaks of it", "create a LocalVolumeSet that takes it");
        let mut elsewhere = case(json!({}));
        (elsewhere.asked, elsewhere.results) = (one.asked.clone(), one.results.clone());
        let status = elsewhere.pool.as_mut().and_then(|pool| pool.status.as_mut()).expect("set");
        status.sets[0].node_not_selected = true;
        ends(&elsewhere, "it is free, and no set selects its node", "let the nodeSelector of one select its node");
        elsewhere.results.clear();
        let error = explain(&elsewhere).expect_err("nobody speaks of it").to_string();
        assert!(
            error.contains("has reported no disk sdc, and no set selects that node; it has reported: /dev"),
            "{error}"
        );
        devices(&mut one, "NotAvailable");
        ends(&one, "says NotAvailable", "nothing, if it is not meant for volumes");
        one.results[0].spec.node_name = "m".into();
        let error = explain(&one).expect_err("of another node").to_string();
        assert!(error.contains("node n has no DevicePool"), "{error}");
        let mut other = case(json!({}));
        other.asked = "n/sdz".parse().expect("a disk");
        let error = explain(&other).expect_err("unknown").to_string();
        assert!(error.contains("no disk sdz; it has reported: /dev/sdb"), "{error}");
        other.pool.as_mut().and_then(|pool| pool.status.as_mut()).expect("set").disks.clear();
        let error = explain(&other).expect_err("unknown").to_string();
        assert!(error.contains("it has reported no disk at all. "), "{error}");
    }
}
