//! The statuses that an agent writes on a PoolVolume. Pure but for the time of a condition.

use kube::runtime::events::EventType;

use super::resize::Resize;
use crate::api::{
    crd::{HealthEntry, Phase, PoolVolume, PoolVolumeStatus, VolumeReason},
    quantity,
};
use crate::device::{DiskId, NodeName, label::VolumeUsage};
use crate::health::{Condition, Finding, HealthReason};
use crate::host::chain;
use crate::operator::bytes::{signed, unsigned};
use crate::operator::pool_volume::{HEALTHY, RequestError};
use crate::operator::volume::volume_health::{healths, is_reason_by_controller, state};
use crate::operator::{event::EventNote, status::health};
use crate::pool::{BareError, NoPlace, PoolError, VolumeView};

/// Why a volume is not made or not deleted: one word for the controller, a sentence for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub reason: VolumeReason,
    pub message: String,
}

impl Refusal {
    /// What the object asks for makes no sense.
    pub fn invalid(why: &RequestError) -> Self {
        Self { reason: VolumeReason::Invalid, message: chain(why) }
    }

    pub fn of(error: &PoolError, node: &NodeName) -> Self {
        let reason = match error {
            _ if error.is_locked() => VolumeReason::Locked,
            _ if error.is_full() => VolumeReason::Full,
            PoolError::NoPlace(NoPlace::Limit { .. }) => VolumeReason::Limit,
            PoolError::NoPlace(NoPlace::Full { .. } | NoPlace::NoDisk | NoPlace::Cordoned { .. }) => VolumeReason::Full,
            PoolError::NoSet(_) => VolumeReason::NoSet,
            PoolError::WhichClass(_) => VolumeReason::Invalid,
            PoolError::Differs { .. } => VolumeReason::Differs,
            PoolError::InUse { .. } => VolumeReason::InUse,
            PoolError::Found { .. } => VolumeReason::Found,
            PoolError::DiskAway { .. } | PoolError::NotScanned { .. } | PoolError::VolumesNotRead { .. } => {
                VolumeReason::DiskMissing
            }
            PoolError::Conflict { .. } | PoolError::NotSettled { .. } => VolumeReason::Conflict,
            PoolError::NotDescribed { .. } => VolumeReason::NotDescribed,
            PoolError::BeingZeroed { .. } => VolumeReason::BeingZeroed,
            // An object asks for no smaller size.
            PoolError::CannotGrow { .. } | PoolError::CannotShrink { .. } => VolumeReason::CannotGrow,
            PoolError::NoSuchVolume { .. } => VolumeReason::NoSuchVolume,
            PoolError::Journal(_)
            | PoolError::Bare(_)
            | PoolError::Filesystem(_)
            | PoolError::Apply(_)
            | PoolError::Hangs { .. } => VolumeReason::Internal,
        };
        Self { reason, message: format!("node {node}: {}", chain(error)) }
    }

    /// Why an attempt to make a volume failed, if the reason is the disk or the node. `None`: somebody else, or another
    /// pass, decides what happens.
    pub fn not_made(error: &PoolError) -> Option<Self> {
        let reason = match error {
            PoolError::Journal(_) | PoolError::Bare(BareError::Journal(_)) => VolumeReason::JournalFailed,
            PoolError::Bare(_) | PoolError::Filesystem(_) | PoolError::Apply(_) | PoolError::Hangs { .. } => {
                VolumeReason::DiskFailed
            }
            PoolError::NoSuchVolume { .. }
            | PoolError::NoPlace(_)
            | PoolError::NoSet(_)
            | PoolError::WhichClass(_)
            | PoolError::Differs { .. }
            | PoolError::CannotGrow { .. }
            | PoolError::CannotShrink { .. }
            | PoolError::InUse { .. }
            | PoolError::Found { .. }
            | PoolError::DiskAway { .. }
            | PoolError::NotScanned { .. }
            | PoolError::VolumesNotRead { .. }
            | PoolError::Conflict { .. }
            | PoolError::NotSettled { .. }
            | PoolError::NotDescribed { .. }
            | PoolError::BeingZeroed { .. } => return None,
        };
        Some(Self { reason, message: chain(error) })
    }

    /// The same refusal, for when the agent stops trying.
    pub fn given_up(self, node: &NodeName, disk: Option<&DiskId>, times: u32) -> Self {
        let Self { reason, message } = self;
        let what = match &reason {
            VolumeReason::JournalFailed => "the state directory failed".to_owned(),
            _ => format!("disk {} failed", disk.map_or("", DiskId::as_str)),
        };
        Self { reason, message: format!("node {node}: {what} {times} times, the last time with: {message}") }
    }
}

/// It will be made on that disk: written before the first write to the disk.
pub fn accepted(disk: &DiskId) -> PoolVolumeStatus {
    PoolVolumeStatus { phase: Phase::Accepted, disk: Some(disk.clone()), ..PoolVolumeStatus::default() }
}

/// It is accepted, and cannot be made now.
pub fn delayed(object: &PoolVolume, message: String) -> PoolVolumeStatus {
    let disk = object.status.as_ref().and_then(|status| status.disk.clone());
    PoolVolumeStatus { phase: Phase::Accepted, disk, message: Some(message), ..PoolVolumeStatus::default() }
}

pub fn refused(phase: Phase, reason: VolumeReason, message: String) -> PoolVolumeStatus {
    PoolVolumeStatus { phase, reason: Some(reason), message: Some(message), ..PoolVolumeStatus::default() }
}

/// A volume that is on a disk. `agent` is the process that writes it.
pub fn ready(
    object: &PoolVolume,
    view: &VolumeView,
    condition: &Condition,
    phase: Phase,
    agent: &str,
) -> PoolVolumeStatus {
    let before = object.status.as_ref();
    let usage = view.record.as_ref().map(|record| record.usage);
    let fs_type = match usage {
        Some(VolumeUsage::Mount(kind)) => Some(kind.name().to_owned()),
        Some(VolumeUsage::Block) => None,
        // Nothing else records it any more.
        None => before.and_then(|status| status.fs_type.clone()),
    };
    let message = match (phase, &view.conflict) {
        (_, Some(why)) => Some(why.clone()),
        (Phase::Found, None) => Some(format!(
            "found on disk {}, and no PersistentVolume of this node names it: it is kept, but not used; \
             spec.order Adopt, or `localpool volume adopt {}` in the agent's pod, makes it usable",
            view.disk, view.id
        )),
        (_, None) => None,
    };
    let size = size(before, view);
    // A request that was withdrawn does not count as failed any more, and may be made again.
    let wanted = Resize::of(object);
    let open = wanted.is_some_and(|wanted| !wanted.is_met_by(size));
    let before = before.filter(|_| open);
    let observed = match before {
        Some(status) => Resize::observed(status),
        None => wanted.filter(|_| !open),
    };
    let resize_error = before.and_then(|status| status.resize_error.clone());
    PoolVolumeStatus {
        phase,
        reason: view.conflict.as_ref().map(|_| VolumeReason::Conflict),
        message,
        size: Some(size),
        capacity: Some(quantity::short(unsigned(size))),
        growable_to: own_growth(view),
        fs_type,
        disk: Some(view.disk.clone()),
        set: Some(view.set.to_string()),
        shrinks: view.directory.as_ref().is_some_and(|directory| directory.shrinks),
        observed_size: observed.map(|observed| observed.size),
        observed_size_limit: observed.and_then(|observed| observed.limit),
        resize_error,
        ..in_health(object, condition, agent)
    }
}

/// Of a folder whose record cannot be read nothing else says how large it is.
fn size(before: Option<&PoolVolumeStatus>, view: &VolumeView) -> i64 {
    let is_unknown = view.directory.is_some() && view.record.is_none();
    let last = before.and_then(|status| status.size).filter(|_| is_unknown);
    last.unwrap_or_else(|| signed(view.size))
}

/// What it may grow to, if that changes with its neighbours only. All volumes that are folders of a disk grow into the
/// same space: each volume that is made or deleted would have the objects of thousands written again. The DevicePool
/// has what is free.
fn own_growth(view: &VolumeView) -> Option<i64> {
    let grows = view.directory.is_none() && view.growable_to > view.size;
    grows.then(|| signed(view.growable_to))
}

/// A volume that is on no disk here; `doubt` names a disk that may have it and cannot be asked. `agent` is the process
/// that writes it.
pub fn missing(object: &PoolVolume, doubt: Option<String>, agent: &str) -> PoolVolumeStatus {
    let mut status = object.status.clone().unwrap_or_default();
    let disk = status.disk.as_ref().map_or("", DiskId::as_str);
    let found = |worst, message: &str| Condition::from(Finding::new(worst, message));
    let (reason, found, message) = match doubt {
        Some(message) => (VolumeReason::DiskMissing, found(HealthReason::DiskMissing, &message).unheard(), message),
        None => {
            let message = format!("the volume is not on its disk {disk} any more");
            (VolumeReason::VolumeMissing, found(HealthReason::VolumeMissing, &message), message)
        }
    };
    if object.metadata.deletion_timestamp.is_some() {
        let waits = format!("it can only be erased when its disk is back: {message}");
        (status.phase, status.reason, status.message) = (Phase::Deleting, Some(reason), Some(waits));
    }
    let PoolVolumeStatus { health, conditions, .. } = in_health(object, &found, agent);
    PoolVolumeStatus { health, conditions, ..status }
}

/// A deletion that cannot be done yet.
pub fn stuck(object: &PoolVolume, refusal: Refusal) -> PoolVolumeStatus {
    let Refusal { reason, message } = refusal;
    let before = object.status.clone().unwrap_or_default();
    PoolVolumeStatus { phase: Phase::Deleting, reason: Some(reason), message: Some(message), ..before }
}

/// The status as it is written: with the word for people, and the conditions of others unchanged. The agent is the one
/// writer of this status but for the conditions of the leader (`pool_volume::NODE_GONE`, `AGENT_SILENT`, `CONFLICT`,
/// `UNCLAIMED`, `ORDER_DONE`). An agent that lives on
/// while its Node is gone, for example until its pod is removed, would otherwise remove what the leader has written,
/// and the leader would write it again, for ever.
pub fn beside_others(object: &PoolVolume, mut status: PoolVolumeStatus) -> PoolVolumeStatus {
    let before = object.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    status.conditions.retain(|condition| condition.type_ == HEALTHY);
    status.conditions.extend(before.iter().filter(|condition| condition.type_ != HEALTHY).cloned());
    status.state = Some(state(status.phase, &status.health));
    status
}

/// What is new in the health of a volume.
pub fn events(before: &PoolVolume, now: &PoolVolume) -> Vec<EventNote> {
    // What the controller knows of the node is no news of the volume.
    let is_of_agent = |entry: &HealthEntry| !is_reason_by_controller(&HealthReason::from(entry.reason.clone()));
    let health = |object: &PoolVolume| -> Vec<HealthEntry> {
        let all = object.status.iter().flat_map(|status| &status.health);
        all.filter(|entry| is_of_agent(entry)).cloned().collect()
    };
    let recovered = EventNote {
        type_: EventType::Normal,
        reason: "VolumeRecovered".to_owned(),
        note: format!("nothing is wrong with volume {} any more", now.spec.volume_name),
    };
    health::events(&health(before), &health(now), recovered)
}

/// The health of a volume: the list, and the condition with the worst of it.
fn in_health(object: &PoolVolume, now: &Condition, agent: &str) -> PoolVolumeStatus {
    let before = object.status.clone().unwrap_or_default();
    let now = health::after(now, &before.health, agent);
    let (health, healthy) = healths(&before, &now, &before.conditions, Some(agent));
    PoolVolumeStatus { health, conditions: vec![healthy], ..PoolVolumeStatus::default() }
}

#[cfg(test)]
mod tests {
    use super::super::sample::{in_phase, status_condition, view};
    use super::*;
    use crate::api::crd::PoolVolumeSpec;
    use crate::claim::VolumeMode;
    use crate::health::{Face, REASONS, Subject};
    use crate::pool::DirectoryView;

    #[test]
    fn a_wish_that_was_taken_back_is_no_failure_any_more_and_may_be_wished_again() {
        let view = view();
        let spec = PoolVolumeSpec {
            node: "n".into(),
            volume_name: "pvc-1".to_owned(),
            required: 5 << 20,
            limit: None,
            volume_mode: VolumeMode::Block,
            fs_type: None,
            parameters: Default::default(),
            size: Some(9 << 20),
            size_limit: None,
            intent: Default::default(),
            order: None,
            keep: None,
        };
        let mut object = PoolVolume::new(&view.id.to_string(), spec);
        let failed = (Some(9 << 20), Some("no space".to_owned()));
        let (observed_size, resize_error) = failed.clone();
        object.status = Some(PoolVolumeStatus { observed_size, resize_error, ..PoolVolumeStatus::default() });
        let failure_of = |object: &PoolVolume| {
            let status = ready(object, &view, &Condition::default(), Phase::Ready, "a");
            (status.observed_size, status.resize_error)
        };
        assert_eq!(failure_of(&object), failed, "while it stands, it is not tried again");
        object.spec.size = Some(5 << 20);
        assert_eq!(failure_of(&object), (Some(5 << 20), None));
        object.spec.size = None;
        assert_eq!(failure_of(&object), (None, None));
    }

    #[test]
    fn a_volume_that_is_a_folder_does_not_say_what_all_others_on_its_disk_may_grow_to_as_well() {
        let carved = VolumeView { size: 1, growable_to: 9, ..view() };
        let directory = Some(DirectoryView { path: "/at/volumes/a".into(), root: "/volumes/a".into(), shrinks: true });
        let folder = VolumeView { directory, ..carved.clone() };
        let said = |view: &VolumeView| {
            ready(&in_phase(Phase::Ready), view, &Condition::default(), Phase::Ready, "a").growable_to
        };
        assert_eq!((said(&carved), said(&folder)), (Some(9), None));
    }

    #[test]
    fn the_size_of_a_folder_whose_record_cannot_be_read_stays_in_its_object() {
        let mut object = in_phase(Phase::Ready);
        object.status.as_mut().expect("set").size = Some(5 << 30);
        let directory = Some(DirectoryView { path: "/at/volumes/a".into(), root: "/volumes/a".into(), shrinks: true });
        let unread = VolumeView { size: 0, record: None, directory, ..view() };
        let status = ready(&object, &unread, &Condition::default(), Phase::Ready, "a");
        assert_eq!((status.size, status.capacity.as_deref()), (Some(5 << 30), Some("5Gi")));
    }

    #[test]
    fn what_was_found_of_a_volume_stays_while_its_disk_is_not_here_and_goes_with_the_volume() {
        let mut object = in_phase(Phase::Ready);
        let failing = Finding::new(HealthReason::DiskFailing, "words");
        object.status.as_mut().expect("set").health = health::entries(&[], &failing.into(), Some("a"));
        let reasons = |doubt: Option<&str>| -> Vec<(String, Option<String>)> {
            let status = missing(&object, doubt.map(str::to_owned), "b");
            status.health.into_iter().map(|entry| (entry.reason, entry.confirmed_by)).collect()
        };
        let (word, by) = (str::to_owned, Some("b".to_owned()));
        let both = [(word("DiskMissing"), by.clone()), (word("DiskFailing"), None)];
        assert_eq!(reasons(Some("it is away")), both);
        assert_eq!(reasons(None), [(word("VolumeMissing"), by)]);
    }

    #[test]
    fn the_claim_has_an_event_of_each_reason_whose_faces_say_so() {
        for row in REASONS.iter().filter(|row| row.subject != Subject::PersistentVolume) {
            let entry = HealthEntry {
                reason: row.word.to_owned(),
                severity: String::new(),
                message: String::new(),
                since: None,
                confirmed_by: None,
            };
            let (before, mut now) = (in_phase(Phase::Ready), in_phase(Phase::Ready));
            now.status.as_mut().expect("set").health = vec![entry];
            let words: Vec<String> = events(&before, &now).into_iter().map(|note| note.reason).collect();
            let faces = row.faces();
            // What no volume has is in no status of one.
            if faces.contains(&Face::Volume(row.severity)) {
                let wanted: &[&str] = if faces.contains(&Face::Claim) { &[row.word] } else { &[] };
                assert_eq!(words, wanted, "{}", row.word);
            }
        }
    }

    #[test]
    fn whatever_the_agent_says_it_says_beside_the_conditions_of_others() {
        let mut object = in_phase(Phase::Accepted);
        let gone = status_condition("NodeGone", "True", "NodeDeleted", "");
        let old = status_condition(HEALTHY, "True", "Fine", "");
        object.status.as_mut().expect("set").conditions = vec![old.clone(), gone];
        let states = |status: PoolVolumeStatus| beside_others(&object, status).state.expect("said");
        let gone_disk = PoolVolumeStatus { phase: Phase::Ready, ..missing(&object, None, "a") };
        assert_eq!([states(delayed(&object, "later".to_owned())), states(gone_disk)], ["Accepted", "Unusable"]);
        let kinds = |status: PoolVolumeStatus| {
            let status = beside_others(&object, status);
            status.conditions.into_iter().map(|condition| (condition.type_, condition.reason)).collect::<Vec<_>>()
        };
        let kind = |kind: &str, reason: &str| (kind.to_owned(), reason.to_owned());
        let gone = || kind("NodeGone", "NodeDeleted");
        assert_eq!(kinds(delayed(&object, "later".to_owned())), [gone()]);
        assert_eq!(kinds(missing(&object, None, "a")), [kind(HEALTHY, "VolumeMissing"), gone()]);
        let refusal = Refusal { reason: VolumeReason::InUse, message: String::new() };
        assert_eq!(kinds(stuck(&object, refusal)), [kind(HEALTHY, "Fine"), gone()]);
    }
}
