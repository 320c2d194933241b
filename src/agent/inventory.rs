//! All devices of a pass, with a note for people.
//!
//! Takes in what the pass saw, and the pool as it is by now; gives out devices, each pool disk with what it has free
//! and each free one with why no set takes it.

use super::reconciler::PassReport;
use crate::claim::{NodeMatch, Rejection, SetOutcome};
use crate::device::{Device, DiskId, Size, Verdict};
use crate::host::DeviceKind;
use crate::pool::{BareClaim, BareDevice, CORDONED, Content, FAILING, LabelledDisk, LostClaim, Member, Pool, Standing};
use crate::show::ListedDevice;

pub fn inventory(pool: &Pool, pass: &PassReport) -> Vec<ListedDevice> {
    let lost = pool.journal().lost();
    let note = |device: &Device| -> Option<String> {
        if let Some(problem) = pass.problems.get(&device.raw.name) {
            return Some(match device.verdict {
                _ if pool.bare_member_of(&pass.snapshot, device).is_some() => {
                    format!("in pool as a bare device, but not ready: {problem}")
                }
                Verdict::Ours => format!("in pool, but not ready: {problem}"),
                Verdict::Unclaimed | Verdict::Foreign { .. } | Verdict::Theirs(_) | Verdict::Unknown(_) => {
                    format!("not claimed: {problem}")
                }
            });
        }
        match device.verdict {
            Verdict::Ours => match pool.labelled_disk(&device.id) {
                Some(member) => Some(member_note(&member) + &apart(pool, &member.id)),
                None if lost.contains_key(&pass.snapshot.bare_id(device)) => {
                    Some(lost_note(device, &lost[&pass.snapshot.bare_id(device)]))
                }
                None => partition_note(pool, pass, device),
            },
            Verdict::Unclaimed if pool.journal().released().contains(&device.id) => {
                Some(format!("released; `localpool disk adopt {}` lets sets claim it again", device.raw.path.display()))
            }
            Verdict::Unclaimed => Some(unclaimed_note(&pass.outcomes, device)),
            Verdict::Foreign { .. } | Verdict::Theirs(_) | Verdict::Unknown(_) => None,
        }
    };
    let shown = |device: &Device| {
        let mut device = device.clone();
        let note = match pool.bare_member_of(&pass.snapshot, &device) {
            // It may have been claimed since the scan.
            Some(member) => {
                device.verdict = Verdict::Ours;
                note(&device).or_else(|| Some(bare_note(pool, &member) + &apart(pool, &member.id)))
            }
            None => note(&device),
        };
        ListedDevice { note, device }
    };
    pass.snapshot.devices.iter().map(shown).collect()
}

/// A remark of the pool about a disk, beside its content.
fn apart(pool: &Pool, disk: &DiskId) -> String {
    let member = pool.member(disk);
    let failing = pool.failure(disk).map(|why| format!("; {FAILING}: {why}"));
    let cordon = member.as_ref().and_then(|member| pool.cordon(member)).map(|why| format!("; {CORDONED}: {why}"));
    let unmounted = match &member {
        Some(Member::Filesystem(filesystem)) => {
            filesystem.disk_view().host_mount.problem().map(|why| format!("; {why}"))
        }
        Some(Member::Labelled(_) | Member::Bare(_)) | None => None,
    };
    unmounted.into_iter().chain(failing).chain(cordon).collect()
}

fn bare_note(pool: &Pool, member: &BareDevice) -> String {
    let message = match pool.journal().bare_claim(&member.id) {
        Some(BareClaim { volume: Some(volume), .. }) => format!("holds volume {}", volume.id),
        Some(BareClaim { erasing: Some(_), .. }) => match &member.shown().busy {
            Some(busy) => format!("to be erased; {busy}"),
            None => "being erased".to_owned(),
        },
        Some(BareClaim { size, .. }) => format!("{} free", Size(size)),
        None => "its claim has just ended".to_owned(),
    };
    format!("in pool as a bare device, {message}")
}

fn member_note(member: &LabelledDisk) -> String {
    let shown = member.shown();
    let content = &shown.content;
    let volumes = content.volumes().count();
    let plural = if volumes == 1 { "" } else { "s" };
    let mut message = match &shown.standing {
        Standing::Ready => format!("in pool, {} free, {volumes} volume{plural}", Size(content.free().total())),
        Standing::NotReady(why) => format!("in pool, but not ready: {why}"),
        Standing::Missing => "in pool, but missing".to_owned(),
    };
    let erasing: u64 = content.erasing().map(|(_, entry, _)| entry.extent.len()).sum();
    if erasing > 0 {
        message.push_str(&format!(", {} being erased", Size(erasing)));
    }
    if let (Standing::Ready, Some(busy)) = (&shown.standing, shown.busy()) {
        message.push_str(&format!("; {busy}"));
    }
    if shown.rule.is_none() {
        message.push_str(&unowned(content));
    }
    message
}

/// The purpose of a partition of a pool disk.
fn partition_note(pool: &Pool, pass: &PassReport, device: &Device) -> Option<String> {
    let DeviceKind::Partition(partition) = &device.raw.kind else { return None };
    let disk = pass.snapshot.devices.iter().find(|disk| disk.raw.name == partition.disk)?;
    let member = pool.labelled_disk(&disk.id)?;
    let shown = member.shown();
    let content = &shown.content;
    if content.label_entry().is_some_and(|(number, _)| number == partition.number) {
        return Some(format!("label of {}, kept open so that nobody else takes the disk", disk.raw.path.display()));
    }
    let volume = content.volumes().find(|volume| volume.number == partition.number)?;
    let name = volume.record.map_or_else(|| volume.id().to_string(), |record| record.name.clone());
    Some(format!("volume {name}"))
}

fn unowned(content: &Content) -> String {
    let set = &content.label.set;
    format!("; its set {set} does not exist: it offers no space")
}

fn unclaimed_note(outcomes: &[SetOutcome], device: &Device) -> String {
    let reasons: Vec<String> = outcomes
        .iter()
        .filter_map(|outcome| {
            // A LocalVolume has nothing to say of a device that it does not name.
            let mut rejected = outcome.rejected.iter().filter(|(_, rejection)| *rejection != Rejection::NotNamed);
            let (_, rejection) = rejected.find(|(name, _)| *name == device.raw.name)?;
            Some(format!("set {}: {rejection}", outcome.set))
        })
        .collect();
    let is_elsewhere = outcomes.iter().all(|outcome| outcome.node == NodeMatch::NotSelected);
    match (outcomes.is_empty(), is_elsewhere, reasons.is_empty()) {
        (true, ..) => "blank and not in use; no set selects it".to_owned(),
        (false, true, _) => "blank and not in use; no set selects this node".to_owned(),
        (false, false, true) => "blank and not in use".to_owned(),
        (false, false, false) => format!("blank and not in use; {}", reasons.join("; ")),
    }
}

fn lost_note(device: &Device, lost: &LostClaim) -> String {
    let of = match &lost.volume {
        Some(volume) => format!("of volume {} ({}), which the journal does not know", volume.id, volume.record.name),
        None => "of the pool, according to a journal that was lost".to_owned(),
    };
    let path = device.raw.path.display();
    format!("a bare device {of}; it is not read, used or claimed until `localpool disk adopt {path}`")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claim::sample::rule;
    use crate::device::sample::unclaimed;

    #[test]
    fn sets_of_other_nodes_are_one_sentence_and_only_where_there_is_no_other_set() {
        let outcome = |name: &str, node, rejected| SetOutcome {
            set: rule(name).set,
            node,
            missing: Vec::new(),
            takes: Vec::new(),
            would_take: Vec::new(),
            rejected,
            deselected: Vec::new(),
        };
        let elsewhere = |name: &str| outcome(name, NodeMatch::NotSelected, Vec::new());
        let here = |rejected| outcome("here", NodeMatch::Selected, rejected);
        let note = |outcomes: &[SetOutcome]| unclaimed_note(outcomes, &unclaimed("sda"));
        assert_eq!(note(&[]), "blank and not in use; no set selects it");
        assert_eq!(note(&[elsewhere("a"), elsewhere("b")]), "blank and not in use; no set selects this node");
        assert_eq!(note(&[elsewhere("a"), here(Vec::new())]), "blank and not in use");
        let released = here(vec![("sda".into(), Rejection::Released)]);
        let said = note(&[elsewhere("a"), released]);
        assert_eq!(said, format!("blank and not in use; set {}: {}", rule("here").set, Rejection::Released));
    }
}
