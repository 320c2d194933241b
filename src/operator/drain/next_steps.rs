//! What `localpool disk drain` says: what is ordered, what is on the disk, and the lines that a
//! person types next. Pure.

use std::collections::{BTreeMap, BTreeSet};

use kube::ResourceExt as _;
use serde_json::{Value, json};

use super::holder::{Holders, NoHolder, disk_status, nodes};
use super::objects::persistent_of;
use super::pvc_pods::PvcPods;
use crate::agent::Run;
use crate::api::crd::{DevicePool, DiskOrder, DiskOrderStatus, DiskState, DiskStatus, OrderState, Phase, PoolVolume};
use crate::api::quantity;
use crate::device::{DiskId, NodeName, VolumeId};
use crate::operator::api_server::error::{OperatorError, error_message};
use crate::operator::bytes::unsigned;
use crate::operator::disk::member::arrays_of;
use crate::operator::kube_volume::PersistentVolume;
use crate::operator::persistent_volume::reserve::is_reservation;
use crate::operator::pool::agent_life::silence;
use crate::operator::pool_volume::phase;
use crate::operator::volume::PvcName;

/// Whether there is something to order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ordering {
    Due,
    /// This is ordered, and empties the disk as well.
    Already(DiskOrder),
    /// The disk left the pool by an order.
    Left,
}

impl Ordering {
    pub fn is_due(self) -> bool {
        self == Self::Due
    }
}

/// Why nobody can empty the disk.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotDrained {
    #[error(transparent)]
    NoHolder(#[from] NoHolder),
    #[error(
        "disk {disk} is missing on node {node}, and nobody can empty it there; if it does not come back, give it up: \
         {}",
        order_line(node, disk, DiskOrder::GiveUp)
    )]
    Away { disk: DiskId, node: NodeName },
    #[error(
        "disk {disk} is a member of an array, and its volumes are on that: drain and release {} instead; releasing one member \
         then releases all of them",
        arrays.iter().map(DiskId::as_str).collect::<Vec<_>>().join(", ")
    )]
    Member { disk: DiskId, arrays: Vec<DiskId> },
    #[error("GiveUp is ordered for disk {disk} in DevicePool {pool}: remove that order first")]
    GiveUpOrdered { disk: DiskId, pool: NodeName },
}

/// The pool that has the disk now, and whether the verb orders anything there; or why not.
pub fn ordering<'p>(disk: &DiskId, pools: &'p [DevicePool]) -> Result<(&'p DevicePool, Ordering), NotDrained> {
    let Holders { here, missing } = Holders::of(disk, pools);
    let pool = match (&here[..], &missing[..]) {
        ([pool], _) => *pool,
        ([], [missing, ..]) => return Err(NotDrained::Away { disk: disk.clone(), node: missing.node() }),
        ([], []) => {
            let left = pools.iter().find(|pool| order_status(pool, disk).is_some_and(took_out));
            let none = || NoHolder::Unknown { disk: disk.clone() };
            return Ok((left.ok_or_else(none)?, Ordering::Left));
        }
        (several, _) => return Err(NoHolder::Several { disk: disk.clone(), nodes: nodes(several) }.into()),
    };
    let member = pool.status.as_ref().zip(disk_status(pool, disk));
    let arrays = member.into_iter().flat_map(|(status, member)| arrays_of(member, status));
    let arrays: Vec<DiskId> = arrays.map(|array| array.id.clone()).collect();
    if !arrays.is_empty() {
        return Err(NotDrained::Member { disk: disk.clone(), arrays });
    }
    match pool.spec.disks.get(disk).and_then(|choice| choice.order) {
        None | Some(DiskOrder::Adopt) => Ok((pool, Ordering::Due)),
        Some(order @ (DiskOrder::Drain | DiskOrder::Release)) => Ok((pool, Ordering::Already(order))),
        Some(DiskOrder::GiveUp) => Err(NotDrained::GiveUpOrdered { disk: disk.clone(), pool: pool.node() }),
    }
}

/// Whether the disk is not in the pool any more because of this.
fn took_out(order: &DiskOrderStatus) -> bool {
    match order.order {
        DiskOrder::Release | DiskOrder::GiveUp => order.state == OrderState::Done,
        DiskOrder::Drain | DiskOrder::Adopt => false,
    }
}

fn order_status<'p>(pool: &'p DevicePool, disk: &DiskId) -> Option<&'p DiskOrderStatus> {
    pool.status.as_ref()?.orders.iter().find(|order| order.disk == *disk)
}

/// What was read about a disk that is to become empty.
pub struct DrainedDisk<'a> {
    pub disk: &'a DiskId,
    pub pool: &'a DevicePool,
    pub ordering: Ordering,
    /// Those that are on it, or are about to be.
    pub volumes: &'a [PoolVolume],
    /// The PersistentVolumes of these.
    pub named: &'a BTreeMap<VolumeId, PersistentVolume>,
    /// The pods that use their claims, or why these are not known.
    pub pods: &'a Result<PvcPods, OperatorError>,
}

/// The claims of these volumes.
pub fn pvcs(volumes: &[PoolVolume], named: &BTreeMap<VolumeId, PersistentVolume>) -> BTreeSet<PvcName> {
    volumes.iter().filter_map(|volume| pvc_of(volume, persistent_of(volume, named))).collect()
}

/// One line for each thing, in the order in which a person does them.
pub fn report(drained: &DrainedDisk<'_>, run: Run) -> Vec<String> {
    let DrainedDisk { disk, pool, ordering, volumes, named, pods } = drained;
    let on_it =
        volumes.iter().map(|volume| on_disk(volume, persistent_of(volume, named), pods.as_ref().ok())).collect();
    let (node, status) = (pool.node(), disk_status(pool, disk));
    let (order, status) = match (ordering, status) {
        (Ordering::Left, _) | (_, None) => return left(drained, on_it),
        (Ordering::Due, Some(status)) => (due(&node, run), status),
        (Ordering::Already(order), Some(status)) => (already(pool, disk, *order), status),
    };
    let model = status.model.as_ref().map_or_else(String::new, |model| format!(", {model}"));
    let mut lines = vec![format!("disk {disk} ({}{model}) of node {node}, set {}", status.path, status.set), order];
    lines.extend(silence(pool).map(|ready| {
        let since = ready.last_transition_time.0;
        format!("its agent does not answer, since {since}: {}; what follows is what it wrote last", ready.message)
    }));
    let unnamed = usize::try_from(status.volumes).unwrap_or(0).saturating_sub(volumes.len());
    let unnamed_text = (unnamed > 0).then(|| {
        format!(
            "volumes on it that no PoolVolume names: {unnamed}; `localpool volumes -o wide` in the agent's pod lists them"
        )
    });
    let head = "next: copy the data of each away, stop its pods, and then:";
    lines.extend(volume_lines(on_it, unnamed_text.into_iter().chain(unknown_pods(pods)), head));
    lines.push(end(disk, &node, status, *ordering, volumes.len() + unnamed));
    lines
}

/// Each volume, and under `head` the lines that delete them.
fn volume_lines(on_it: Vec<DeletableVolume>, more: impl Iterator<Item = String>, head: &str) -> Vec<String> {
    let lines: Vec<String> = on_it.iter().map(|one| one.line.clone()).collect();
    let deletions: Vec<String> = on_it.into_iter().flat_map(|one| one.deletions).collect();
    let head = (!deletions.is_empty()).then(|| head.to_owned());
    let deletions = deletions.into_iter().map(|line| format!("  {line}"));
    lines.into_iter().chain(more).chain(head).chain(deletions).collect()
}

/// How a person finds the pods that this command could not read.
fn unknown_pods(pods: &Result<PvcPods, OperatorError>) -> Option<String> {
    let error = pods.as_ref().err()?;
    Some(format!(
        "which pods use the claims is not known: {}; `kubectl -n NAMESPACE describe pvc NAME` shows them as Used By",
        error_message(error)
    ))
}

fn due(node: &NodeName, run: Run) -> String {
    match run {
        Run::Dry => format!("would order Drain for it in DevicePool {node}: then it takes no new volumes"),
        Run::Real => {
            format!("ordered Drain for it in DevicePool {node}: it takes no new volumes as long as this is ordered")
        }
    }
}

fn already(pool: &DevicePool, disk: &DiskId, order: DiskOrder) -> String {
    let so_far = match order_status(pool, disk).filter(|status| status.order == order) {
        Some(status) => format!("{:?}: {}", status.state, status.message),
        None => "the agent has not seen this yet".to_owned(),
    };
    format!("{order:?} is ordered for it already, so it takes no new volumes; {so_far}")
}

/// Of a disk that left the pool by an order: what comes after that.
fn left(drained: &DrainedDisk<'_>, on_it: Vec<DeletableVolume>) -> Vec<String> {
    let DrainedDisk { disk, pool, pods, .. } = drained;
    let node = pool.node();
    let done = order_status(pool, disk).map_or_else(String::new, |status| {
        let since = status.since.as_ref().map_or_else(String::new, |since| format!(", since {}", since.0));
        format!("; {:?} is {:?}{since}: {}", status.order, status.state, status.message)
    });
    let mut lines = vec![format!("disk {disk} is not in the pool of node {node} any more{done}")];
    let head = "next: delete what was on it, which erases nothing, and its pods:";
    lines.extend(volume_lines(on_it, unknown_pods(pods).into_iter(), head));
    let insert = "next: remove the disk, and insert the new one; a set that selects it claims it when it was blank for a \
                  minute. The node's disks are now:";
    lines.push(insert.to_owned());
    let disks = pool.status.iter().flat_map(|status| &status.disks);
    lines.extend(disks.map(|one| format!("  {} ({}), {:?}, set {}", one.id, one.path, one.state, one.set)));
    let forget = spec_line(&node, disk, &Value::Null);
    lines.push(format!("last, when the new disk is one of them, remove the order for the old one: {forget}"));
    lines
}

/// How it ends, and what comes after that.
fn end(disk: &DiskId, node: &NodeName, status: &DiskStatus, ordering: Ordering, volumes: usize) -> String {
    let release = order_line(node, disk, DiskOrder::Release);
    let is_done = "`status.orders` of the DevicePool says Done";
    match (status.state, volumes, status.erasing) {
        (DiskState::NotReady, _, _) => {
            let why = status.message.as_deref().unwrap_or("its agent does not say why");
            format!("what is on it is not known, and the order waits, as the disk cannot be used: {why}")
        }
        (_, 0, erasing) if erasing > 0 => {
            let left = quantity::short(unsigned(erasing));
            format!("no volume is on it, and {left} of deleted ones are being erased: {is_done} after that")
        }
        (_, 0, _) if ordering == Ordering::Already(DiskOrder::Release) => {
            "no volume is on it: the agent wipes its label, and then it can be removed".to_owned()
        }
        (_, 0, _) => format!(
            "no volume is on it. Next: find it, by `localpool disk locate {disk}` in the agent's pod, and make it blank; when that \
             is Done, remove it: {release}"
        ),
        (DiskState::Ready | DiskState::Missing, _, _) => {
            format!("when the disk is empty, {is_done}, and this command says what is next")
        }
    }
}

/// The line that orders something for a disk.
fn order_line(node: &NodeName, disk: &DiskId, order: DiskOrder) -> String {
    spec_line(node, disk, &json!({ "order": order }))
}

/// The line that changes what the spec says of a disk.
fn spec_line(node: &NodeName, disk: &DiskId, choice: &Value) -> String {
    let spec = json!({"spec": {"disks": {disk.as_str(): choice}}});
    // An id may have any character of a serial number.
    let spec = spec.to_string().replace('\'', r"'\''");
    format!("kubectl patch devicepool {node} --type merge -p '{spec}'")
}

/// A line about a volume, and those that delete it.
struct DeletableVolume {
    line: String,
    deletions: Vec<String>,
}

fn on_disk(volume: &PoolVolume, persistent: Option<&PersistentVolume>, pods: Option<&PvcPods>) -> DeletableVolume {
    let id = volume.name_any();
    let phase = phase(volume);
    let size = volume.status.as_ref().and_then(|status| status.capacity.clone());
    let size = size.map_or_else(String::new, |size| format!(", {size}"));
    let pvc = pvc_of(volume, persistent);
    let of_claim = match (&pvc, volume.claim()) {
        (Some(pvc), _) => {
            let used = pods.map_or_else(String::new, |pods| format!(" ({})", pods.used_by(pvc)));
            format!(", claim {pvc}{used}")
        }
        (None, Some(had)) => format!(", which claim {} had", had.escape_debug()),
        (None, None) => String::new(),
    };
    let of_persistent = match persistent {
        Some(persistent) => format!(", PersistentVolume {}", persistent.name_any()),
        None => ", no PersistentVolume".to_owned(),
    };
    // A volume stays in the phase Ready when its disk dies; its state does not.
    let state = volume.status.as_ref().and_then(|status| status.state.clone());
    let state = state.unwrap_or_else(|| format!("{phase:?}"));
    let line = format!("volume {id} ({state}{size}){of_persistent}{of_claim}");
    let deletions = match phase {
        Phase::Deleting => Vec::new(),
        Phase::Pending | Phase::Accepted | Phase::Rejected | Phase::Failed if persistent.is_none() => Vec::new(),
        Phase::Pending | Phase::Accepted | Phase::Rejected | Phase::Failed | Phase::Ready | Phase::Found => {
            deletions(volume, persistent, pvc.as_ref())
        }
    };
    let line = match (phase, deletions.is_empty()) {
        // It is being erased, unless its agent says what keeps it from that.
        (Phase::Deleting, _) => match volume.status.as_ref().and_then(|status| status.message.as_ref()) {
            Some(why) => format!("{line}: its deletion waits: {why}"),
            None => line + ": it is being erased",
        },
        (_, true) => line + ": it is not made yet",
        (_, false) => line,
    };
    DeletableVolume { line, deletions }
}

/// The claim that the PersistentVolume is for, as long as that exists.
fn pvc_of(volume: &PoolVolume, persistent: Option<&PersistentVolume>) -> Option<PvcName> {
    let persistent = persistent.filter(|one| !one.phase.is_released())?;
    let pvc = persistent.pvc.as_ref();
    // Nobody has it, and nobody binds it.
    if pvc.is_some_and(is_reservation) {
        return None;
    }
    let named = pvc.and_then(|pvc| Some(format!("{}/{}", pvc.namespace.as_ref()?, pvc.name.as_ref()?)));
    // It becomes a part of a line for a shell.
    named.as_deref().or(volume.claim())?.parse().ok()
}

fn deletions(volume: &PoolVolume, persistent: Option<&PersistentVolume>, pvc: Option<&PvcName>) -> Vec<String> {
    let id = volume.name_any();
    let erase = format!("kubectl patch poolvolume {id} --type merge -p '{{\"spec\":{{\"order\":\"Erase\"}}}}'");
    let Some(persistent) = persistent else { return vec![erase] };
    let name = persistent.name_any();
    let policy = (persistent.reclaim_policy.as_deref() != Some("Delete"))
        .then(|| format!("kubectl patch pv {name} -p '{{\"spec\":{{\"persistentVolumeReclaimPolicy\":\"Delete\"}}}}'"));
    match pvc {
        Some(pvc) => policy.into_iter().chain([pvc.deletion()]).collect(),
        // It is deleted with its volume as soon as the policy says so.
        None if persistent.phase.is_released() => policy.into_iter().collect(),
        None => vec![format!("kubectl delete pv {name}"), erase],
    }
}

#[cfg(test)]
mod tests;
