//! `localpool health`: what is wrong with the disks and volumes of this node, and with local PersistentVolumes of other
//! provisioners, since when, and what to do; and which disks take no new volumes.
//!
//! Takes in conditions, gives out text. Pure: prints nothing.

use jiff::SignedDuration;
use serde::Serialize;

use super::devices::{Format, ShowError};
use crate::device::Size;
use crate::health::{Condition, Finding, PathReport};
use crate::pool::{CORDONED, DiskView, VolumeView};

/// A disk, a volume or a PersistentVolume with which something is wrong. Field names stay; new ones may come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct HealthRow {
    /// `disk` or `volume`; `PersistentVolume`: a local one of another provisioner.
    kind: &'static str,
    /// Of a PersistentVolume its name.
    id: String,
    /// The path of a disk or a PersistentVolume, the name of a volume.
    name: String,
    reason: String,
    severity: &'static str,
    /// When the agent that runs now first saw it, in RFC 3339; empty: the agent has only just seen it.
    since: String,
    message: String,
    action: &'static str,
}

/// A disk that takes no new volumes. Field names stay; new ones may come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct CordonRow {
    id: String,
    path: String,
    /// `person` or `health`.
    by: &'static str,
    message: String,
}

/// A disk with deleted volumes that are not erased yet. Field names stay; new ones may come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct ErasureRow {
    id: String,
    path: String,
    /// Bytes that are still to be zeroed.
    left: u64,
    /// Since the agent began; absent: it has zeroed nothing there yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes_per_second: Option<u64>,
    /// The time that it takes at this rate.
    #[serde(skip_serializing_if = "Option::is_none")]
    seconds: Option<u64>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct HealthList {
    disks: usize,
    volumes: usize,
    /// Local ones of other provisioners whose paths were looked at.
    persistent_volumes: usize,
    unhealthy: Vec<HealthRow>,
    cordoned: Vec<CordonRow>,
    erasing: Vec<ErasureRow>,
}

/// All findings, those of disks first, then all cordoned disks, with a final line end. `paths` are those of local
/// PersistentVolumes of other provisioners.
pub fn render(
    disks: &[(DiskView, Condition)],
    volumes: &[(VolumeView, Condition)],
    paths: &[PathReport],
    format: Format,
) -> Result<String, ShowError> {
    let of_disks = disks.iter().flat_map(|(view, condition)| {
        let named = ("disk", view.id.to_string(), view.path.display().to_string());
        condition.findings().iter().map(move |finding| row(named.clone(), finding))
    });
    let of_volumes = volumes.iter().flat_map(|(view, condition)| {
        let name = view.record.as_ref().map(|record| record.name.clone()).unwrap_or_default();
        let named = ("volume", view.id.to_string(), name);
        condition.findings().iter().map(move |finding| row(named.clone(), finding))
    });
    let of_paths = paths.iter().flat_map(|PathReport { watched, is_mount_point: _, condition }| {
        let named = ("PersistentVolume", watched.volume.clone(), watched.path.display().to_string());
        condition.findings().iter().map(move |finding| row(named.clone(), finding))
    });
    let list = HealthList {
        disks: disks.len(),
        volumes: volumes.len(),
        persistent_volumes: paths.len(),
        unhealthy: of_disks.chain(of_volumes).chain(of_paths).collect(),
        cordoned: disks.iter().filter_map(|(view, _)| cordon_row(view)).collect(),
        erasing: disks.iter().filter_map(|(view, _)| erasure_row(view)).collect(),
    };
    Ok(match format {
        Format::Json => serde_json::to_string_pretty(&list).map_err(ShowError::Json)? + "\n",
        Format::Yaml => serde_saphyr::to_string(&list).map_err(ShowError::Yaml)?,
        Format::Table | Format::Wide => text(&list),
    })
}

fn row((kind, id, name): (&'static str, String, String), finding: &Finding) -> HealthRow {
    let Finding { reason, message, since } = finding;
    HealthRow {
        kind,
        id,
        name,
        reason: reason.to_string(),
        severity: reason.severity().word(),
        since: since.map(|since| format!("{since:.0}")).unwrap_or_default(),
        message: message.clone(),
        action: reason.row().map_or("", |row| row.action),
    }
}

fn cordon_row(view: &DiskView) -> Option<CordonRow> {
    let cordon = view.cordon.as_ref()?;
    let (id, path) = (view.id.to_string(), view.path.display().to_string());
    Some(CordonRow { id, path, by: cordon.cause(), message: cordon.to_string() })
}

fn erasure_row(view: &DiskView) -> Option<ErasureRow> {
    let erasure = Some(view.erasure).filter(|erasure| erasure.left > 0)?;
    Some(ErasureRow {
        id: view.id.to_string(),
        path: view.path.display().to_string(),
        left: erasure.left,
        bytes_per_second: erasure.rate(),
        seconds: erasure.remaining().map(|time| time.as_secs()),
    })
}

fn text(list: &HealthList) -> String {
    let HealthList { disks, volumes, persistent_volumes, unhealthy, cordoned, erasing } = list;
    let mut text = String::new();
    if unhealthy.is_empty() {
        let (disks, volumes) = (counted(*disks, "disk"), counted(*volumes, "volume"));
        text.push_str(&match persistent_volumes {
            0 => format!("healthy: {disks} and {volumes}\n"),
            many => {
                let paths = counted(*many, "local PersistentVolume");
                format!("healthy: {disks}, {volumes} and {paths} of other provisioners\n")
            }
        });
    }
    for HealthRow { kind, id, name, reason, severity, since, message, action } in unhealthy {
        let (id, name) = (printed(id), printed(name));
        let since = if since.is_empty() { "now" } else { since };
        text.push_str(&format!("{kind} {id} ({name}): {reason}, {severity}, since {since}\n"));
        for words in [message.as_str(), action].into_iter().filter(|words| !words.is_empty()) {
            text.push_str(&format!("    {words}\n"));
        }
    }
    for CordonRow { id, path, by: _, message } in cordoned {
        text.push_str(&format!("disk {id} ({}): {CORDONED}: {message}\n", printed(path)));
    }
    for ErasureRow { id, path, left, bytes_per_second, seconds } in erasing {
        let left = Size(*left);
        text.push_str(&format!("disk {id} ({}): {left} of deleted volumes are still to be erased", printed(path)));
        match (bytes_per_second, seconds) {
            (Some(rate), Some(seconds)) => {
                let time = SignedDuration::from_secs(i64::try_from(*seconds).unwrap_or(i64::MAX));
                text.push_str(&format!("; at {} a second that takes {time:#}\n", Size(*rate)));
            }
            _ => text.push_str("; how fast is not known yet\n"),
        }
    }
    text
}

/// A name can be any text, and must not control the terminal.
fn printed(name: &str) -> String {
    if name.is_empty() { "-".to_owned() } else { name.escape_debug().to_string() }
}

fn counted(count: usize, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::time::Duration;

    use super::*;
    use crate::device::label::{Layout, SetRef};
    use crate::device::{DiskId, SetName};
    use crate::health::{HealthReason, PathKind, WatchedPath};
    use crate::pool::{Cordon, Erasure, KnownDisk};

    fn disk() -> DiskView {
        let known = KnownDisk {
            set: SetRef::new(SetName::new("d", "s"), "u"),
            layout: Layout::Carved {},
            path: "/dev/sda\u{1b}".into(),
            model: None,
            hardware: None,
            size: 1,
            written: 0,
            volumes: None,
            unseen: BTreeSet::new(),
        };
        DiskView::absent(DiskId::named("gpt-1"), known)
    }

    #[test]
    fn what_is_wrong_is_said_with_its_time_and_what_to_do_and_a_healthy_node_in_a_line() {
        let since = Some("2026-11-26T04:00:00.75Z".parse().expect("a time"));
        let gone = Finding { since, ..Finding::new(HealthReason::DiskMissing, "disk gpt-1 is not there") };
        let sick = [(disk(), Condition::from(gone))];
        let text = render(&sick, &[], &[], Format::Table).expect("it can be written");
        let lines: Vec<&str> = text.lines().collect();
        let head = "disk gpt-1 (/dev/sda\\u{1b}): DiskMissing, Inaccessible, since 2026-11-26T04:00:00Z";
        assert_eq!(lines[..2], [head, "    disk gpt-1 is not there"]);
        assert!(lines[2].contains("localpool disk give-up") && lines.len() == 3, "{text}");
        let json = render(&sick, &[], &[], Format::Json).expect("it can be written");
        let value: serde_json::Value = serde_json::from_str(&json).expect("JSON");
        assert_eq!((value["disks"].as_u64(), value["unhealthy"][0]["reason"].as_str()), (Some(1), Some("DiskMissing")));
        let healthy = render(&[(disk(), Condition::default())], &[], &[], Format::Wide).expect("it can be written");
        assert_eq!(healthy, "healthy: 1 disk and 0 volumes\n");
    }

    #[test]
    fn how_much_is_still_to_be_erased_is_said_and_how_long_that_takes_once_it_is_known() {
        let erasing = |bytes| {
            let erasure = Erasure { volumes: 0, bytes, time: Duration::from_secs(2), left: 90 << 30 };
            [(DiskView { erasure, ..disk() }, Condition::default())]
        };
        let text = render(&erasing(0), &[], &[], Format::Table).expect("it can be written");
        let words = "disk gpt-1 (/dev/sda\\u{1b}): 90.0 GiB of deleted volumes are still to be erased";
        assert_eq!(text, format!("healthy: 1 disk and 0 volumes\n{words}; how fast is not known yet\n"));
        let text = render(&erasing(2 << 30), &[], &[], Format::Table).expect("it can be written");
        let time = "; at 1.0 GiB a second that takes 1m 30s\n";
        assert_eq!(text, format!("healthy: 1 disk and 0 volumes\n{words}{time}"));
        let json = render(&erasing(2 << 30), &[], &[], Format::Json).expect("it can be written");
        let value: serde_json::Value = serde_json::from_str(&json).expect("JSON");
        assert_eq!(
            (&value["erasing"][0]["left"], &value["erasing"][0]["seconds"]),
            (&(90_u64 << 30).into(), &90.into())
        );
    }

    #[test]
    fn a_disk_that_takes_no_new_volumes_is_said_also_where_nothing_is_wrong() {
        let cordoned = [(DiskView { cordon: Some(Cordon::Chosen), ..disk() }, Condition::default())];
        let text = render(&cordoned, &[], &[], Format::Table).expect("it can be written");
        let words = "disk gpt-1 (/dev/sda\\u{1b}): it takes no new volumes: a person has cordoned it\n";
        assert_eq!(text, format!("healthy: 1 disk and 0 volumes\n{words}"));
        let json = render(&cordoned, &[], &[], Format::Json).expect("it can be written");
        let value: serde_json::Value = serde_json::from_str(&json).expect("JSON");
        assert_eq!((&value["cordoned"][0]["id"], &value["cordoned"][0]["by"]), (&"gpt-1".into(), &"person".into()));
    }

    #[test]
    fn a_persistent_volume_of_another_provisioner_whose_path_is_not_well_is_said_by_its_name_and_nothing_is_healthy() {
        let report = |volume: &str, findings: Vec<Finding>| {
            let (path, kind) = (format!("/mnt/{volume}\n").into(), PathKind::Filesystem);
            let (volume, uid) = (volume.to_owned(), "u".to_owned());
            let watched = WatchedPath { volume, uid, path, capacity: 1, kind, is_mounted: true };
            PathReport { watched, is_mount_point: false, condition: Condition::of(findings) }
        };
        let since = Some("2026-11-26T04:00:00Z".parse().expect("a time"));
        let lost = Finding { since, ..Finding::new(HealthReason::NotMountPoint, "nothing is mounted there any more") };
        let full = Finding { since, ..Finding::new(HealthReason::MisMatchedVolSize, "it is too small") };
        let paths = [report("well", vec![]), report("lost", vec![lost]), report("full", vec![full])];
        let disks = [(disk(), Condition::default())];
        let text = render(&disks, &[], &paths, Format::Table).expect("it can be written");
        let lines: Vec<&str> = text.lines().collect();
        let head = "PersistentVolume lost (/mnt/lost\\n): NotMountPoint, Inaccessible, since 2026-11-26T04:00:00Z";
        assert_eq!(lines[..2], [head, "    nothing is mounted there any more"]);
        assert!(lines[2].contains("Stop its pods") && lines.len() == 6, "{text}");
        assert!(lines[3].starts_with("PersistentVolume full (/mnt/full\\n): MisMatchedVolSize, Degraded, "), "{text}");
        let json = render(&disks, &[], &paths, Format::Json).expect("it can be written");
        let value: serde_json::Value = serde_json::from_str(&json).expect("JSON");
        assert_eq!(value["persistentVolumes"], 3);
        let keys = ["kind", "id", "name", "reason", "severity"];
        let row = |at: usize| keys.map(|key| value["unhealthy"][at][key].as_str().unwrap_or_default());
        assert_eq!(row(0), ["PersistentVolume", "lost", "/mnt/lost\n", "NotMountPoint", "Inaccessible"]);
        assert_eq!(row(1), ["PersistentVolume", "full", "/mnt/full\n", "MisMatchedVolSize", "Degraded"]);
        let well = render(&disks, &[], &paths[..1], Format::Table).expect("it can be written");
        assert_eq!(well, "healthy: 1 disk, 0 volumes and 1 local PersistentVolume of other provisioners\n");
    }
}
