//! CSI 1.13's health messages, made from conditions. The calls are those of the services. Pure.

use crate::health::{Condition, Finding, HealthReason, Severity};
use crate::rpc::proto::node_get_storage_health_response::StorageBackendHealth;
use crate::rpc::proto::volume_health::VolumeHealthEntry;
use crate::rpc::proto::{StorageHealthErrorType, VolumeHealth, VolumeHealthErrorType};
use crate::volume::VolumeId;

/// The most entries that Kubernetes keeps of a volume or of the storage of a node, and the most bytes of a message: the
/// API server would refuse the whole status of a pod with more (PodVolumeHealth and StorageHealth of Kubernetes 1.37).
const MOST_ENTRIES: usize = 16;
const MOST_BYTES: usize = 1024;

pub fn volume_health(id: VolumeId, condition: &Condition) -> VolumeHealth {
    let entry = |finding: &Finding| VolumeHealthEntry {
        status: status(finding.reason.severity()).into(),
        reason: finding.reason.to_string(),
        message: shortened(finding.message.clone()),
    };
    // The worst come first.
    let entries = condition.findings().iter().take(MOST_ENTRIES).map(entry).collect();
    VolumeHealth { volume_id: id.to_string(), health_statuses: entries }
}

/// A message that Kubernetes accepts.
fn shortened(mut message: String) -> String {
    const CUT: &str = " …";
    if message.len() > MOST_BYTES {
        let end = (0..=MOST_BYTES - CUT.len()).rev().find(|at| message.is_char_boundary(*at));
        message.truncate(end.unwrap_or_default());
        message += CUT;
    }
    message
}

fn status(severity: Severity) -> VolumeHealthErrorType {
    match severity {
        Severity::Degraded => VolumeHealthErrorType::Degraded,
        Severity::Inaccessible => VolumeHealthErrorType::Inaccessible,
        Severity::DataLoss => VolumeHealthErrorType::DataLoss,
    }
}

/// The storage of a node, from the conditions of all disks of its pool. Each reason is one entry, which names its
/// disks: CSI allows a reason only once. One bad disk of several degrades the storage; it is unreachable when no disk
/// can be used.
pub fn storage_health(disks: &[(String, Condition)]) -> Vec<StorageBackendHealth> {
    let is_reachable = disks.iter().any(|(_, condition)| condition.is_accessible());
    let mut entries: Vec<(HealthReason, Vec<String>)> = Vec::new();
    for (disk, condition) in disks {
        for Finding { reason, message, .. } in condition.findings() {
            let text = format!("disk {disk}: {message}");
            match entries.iter_mut().find(|(known, _)| known == reason) {
                Some((_, all)) => all.push(text),
                None => entries.push((reason.clone(), vec![text])),
            }
        }
    }
    let entry = |(reason, all): (HealthReason, Vec<String>)| {
        let is_lost = !is_reachable && reason.severity() != Severity::Degraded;
        let status = match is_lost {
            true => StorageHealthErrorType::StorageUnreachable,
            false => StorageHealthErrorType::StorageDegraded,
        };
        let message = shortened(all.join("; "));
        StorageBackendHealth { status: status.into(), reason: reason.to_string(), message, volume_capability: None }
    };
    entries.sort_by_key(|(reason, _)| std::cmp::Reverse(reason.severity()));
    entries.into_iter().take(MOST_ENTRIES).map(entry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::health::{Face, REASONS};

    fn condition(reasons: &[HealthReason]) -> Condition {
        Condition::of(reasons.iter().map(|reason| Finding::new(reason.clone(), "words")).collect())
    }

    #[test]
    fn a_volume_has_an_entry_for_each_reason_the_worst_first_and_none_when_it_is_healthy() {
        let id = VolumeId::of_name("pvc-1");
        let sick = condition(&[HealthReason::DiskTemperature, HealthReason::VolumeMissing, HealthReason::DiskMissing]);
        let health = volume_health(id, &sick);
        assert_eq!(health.volume_id, id.to_string());
        let entries: Vec<_> = health.health_statuses.iter().map(|one| (one.status(), one.reason.as_str())).collect();
        assert_eq!(
            entries,
            [
                (VolumeHealthErrorType::DataLoss, "VolumeMissing"),
                (VolumeHealthErrorType::Inaccessible, "DiskMissing"),
                (VolumeHealthErrorType::Degraded, "DiskTemperature"),
            ]
        );
        assert_eq!(volume_health(id, &Condition::default()).health_statuses, []);
    }

    #[test]
    fn each_reason_has_the_statuses_that_its_faces_say() {
        for row in REASONS {
            let one = condition(&[HealthReason::from(row.word.to_owned())]);
            let storage = |others: &[(String, Condition)]| {
                storage_health(&[&[("a".to_owned(), one.clone())][..], others].concat())[0].status()
            };
            for face in row.faces() {
                match face {
                    Face::Volume(_) => {
                        let health = volume_health(VolumeId::of_name("v"), &one);
                        let [entry] = &health.health_statuses[..] else { panic!("{}: {health:?}", row.word) };
                        // `DATA_LOSS` is DataLoss.
                        let word = entry.status().as_str_name().replace('_', "").to_lowercase();
                        assert_eq!(face.text(row).to_lowercase(), format!("volume `{word}`"), "{}", row.word);
                    }
                    Face::Storage { .. } => {
                        let degraded = StorageHealthErrorType::StorageDegraded;
                        assert_eq!(storage(&[("b".to_owned(), Condition::default())]), degraded, "{}", row.word);
                        let alone = storage(&[]);
                        let is_said = face.text(row).contains("StorageUnreachable");
                        assert_eq!(alone != degraded, is_said, "{}: {alone:?}", row.word);
                    }
                    Face::Disk | Face::Claim | Face::Mark(_) | Face::Cordon => {}
                }
            }
        }
    }

    #[test]
    fn one_bad_disk_degrades_the_storage_and_without_a_good_one_it_is_unreachable() {
        let disk = |name: &str, reasons: &[HealthReason]| (name.to_owned(), condition(reasons));
        let entries = |disks: &[(String, Condition)]| -> Vec<(StorageHealthErrorType, String, String)> {
            let entries = storage_health(disks).into_iter();
            entries.map(|one| (one.status(), one.reason.clone(), one.message)).collect()
        };
        let gone = |message: &str, status| (status, "DiskMissing".to_owned(), message.to_owned());
        let (a, b) = (disk("a", &[HealthReason::DiskMissing]), disk("b", &[HealthReason::DiskMissing]));
        let degraded = StorageHealthErrorType::StorageDegraded;
        assert_eq!(entries(&[a.clone(), disk("c", &[])]), [gone("disk a: words", degraded)]);
        let unreachable = StorageHealthErrorType::StorageUnreachable;
        assert_eq!(entries(&[a, b]), [gone("disk a: words; disk b: words", unreachable)]);
        assert_eq!(entries(&[disk("c", &[])]), []);
        assert_eq!(entries(&[]), [], "a node without disks lacks nothing");
    }

    #[test]
    fn no_message_is_longer_and_no_list_larger_than_kubernetes_accepts_and_the_worst_stay() {
        let id = VolumeId::of_name("pvc-1");
        let long = Condition::of(vec![Finding::new(HealthReason::DiskMissing, "ä".repeat(900))]);
        let health = volume_health(id, &long);
        let message = &health.health_statuses[0].message;
        assert!(message.len() <= 1024 && message.ends_with('…') && message.starts_with('ä'), "{message}");
        let disk = |number: usize| {
            let reason = HealthReason::from(format!("Reason{number}"));
            (format!("disk-{number}"), Condition::of(vec![Finding::new(reason, "words")]))
        };
        let mut disks: Vec<(String, Condition)> = (0..20).map(disk).collect();
        disks.push(("dead".to_owned(), condition(&[HealthReason::VolumeMissing])));
        let entries = storage_health(&disks);
        assert_eq!((entries.len(), entries[0].reason.as_str()), (16, "VolumeMissing"));
    }
}
