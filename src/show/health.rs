//! `localpool health`: what is wrong with the disks and volumes of this node, and with local PersistentVolumes of other
//! provisioners, since when, and what to do; which disks take no new volumes, and what is still to be erased.
//!
//! Takes in conditions, gives out text. Pure: prints nothing.

use jiff::SignedDuration;
use serde::Serialize;

use super::devices::{Format, ShowError};
use crate::device::Size;
use crate::health::{Condition, Finding, PathReport};
use crate::pool::{CORDONED, DiskView, Standing, VolumeView};

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

/// Whoever asks how long erasing still takes gets an answer also where nothing is left. Of a disk that cannot be used
/// nobody knows.
const NOTHING_TO_ERASE: &str = "no disk that can be used has deleted volumes that are still to be erased\n";

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct HealthList {
    disks: usize,
    volumes: usize,
    /// The agent that runs now has looked at least once.
    checked: bool,
    /// Disks that are here and have not ended what this agent has asked them: what else is wrong is not known.
    unanswered: usize,
    /// Volumes of which nobody knows yet whether they are mounted where they should be.
    mounts_unknown: usize,
    /// Local ones of other provisioners whose paths were looked at.
    persistent_volumes: usize,
    unhealthy: Vec<HealthRow>,
    cordoned: Vec<CordonRow>,
    erasing: Vec<ErasureRow>,
}

/// All findings, those of disks first, then all cordoned disks, then what is still to be erased, with a final line end. `paths` are those of local
/// PersistentVolumes of other provisioners; `None`: there was no checkup yet.
pub fn render(
    disks: &[(DiskView, Condition)],
    volumes: &[(VolumeView, Condition)],
    paths: Option<&[PathReport]>,
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
    let checked = paths.is_some();
    let paths = paths.unwrap_or_default();
    let owes =
        |(view, condition): &&(DiskView, Condition)| view.standing == Standing::Ready && !condition.is_answered();
    let of_paths = paths.iter().flat_map(|PathReport { watched, is_mount_point: _, identity: _, condition }| {
        let named = ("PersistentVolume", watched.volume.to_string(), watched.path.display().to_string());
        condition.findings().iter().map(move |finding| row(named.clone(), finding))
    });
    let list = HealthList {
        disks: disks.len(),
        volumes: volumes.len(),
        checked,
        unanswered: disks.iter().filter(owes).count(),
        mounts_unknown: volumes.iter().filter(|(_, condition)| !condition.knows_mounts()).count(),
        persistent_volumes: paths.len(),
        unhealthy: of_disks.chain(of_volumes).chain(of_paths).collect(),
        cordoned: disks.iter().filter_map(|(view, _)| cordon_row(view)).collect(),
        erasing: disks.iter().filter_map(|(view, _)| erasure_row(view)).collect(),
    };
    Ok(match format {
        Format::Json => serde_json::to_string_pretty(&list).map_err(ShowError::Json)? + "\n",
        Format::Yaml => serde_saphyr::to_string(&list).map_err(ShowError::Yaml)?,
        Format::Name => list.unhealthy.iter().map(|row| format!("{}\n", row.id)).collect(),
        Format::Table | Format::Wide => text(&list),
    })
}

fn row((kind, id, name): (&'static str, String, String), finding: &Finding) -> HealthRow {
    let Finding { reason, message, since, found_by: _ } = finding;
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
    let HealthList {
        disks,
        volumes,
        checked,
        unanswered,
        mounts_unknown,
        persistent_volumes,
        unhealthy,
        cordoned,
        erasing,
    } = list;
    let mut text = String::new();
    let unasked = match (checked, unanswered, mounts_unknown) {
        (false, _, _) => Some("the agent has just started, and has not looked yet".to_owned()),
        (true, 0, 0) => None,
        (true, 0, many) => Some(format!("where {} had been mounted when this agent began", counted(*many, "volume"))),
        (true, many, _) => Some(format!("{many} of {} did not answer this agent yet", counted(*disks, "disk"))),
    };
    if let Some(why) = &unasked {
        text.push_str(&format!("not all is known yet: {why}\n"));
    }
    if unhealthy.is_empty() && unasked.is_none() {
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
    if erasing.is_empty() {
        text.push_str(NOTHING_TO_ERASE);
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
    use std::time::Duration;

    use super::*;
    use crate::device::{DiskId, VolumeId};
    use crate::health::{AnswerOf, Board, CheckupResult, HealthReason, PathKind, WatchedPath};
    use crate::pool::sample::known_disk;
    use crate::pool::{Cordon, Erasure, KnownDisk};

    fn disk() -> DiskView {
        let known = KnownDisk { path: "/dev/sda\u{1b}".into(), ..known_disk() };
        DiskView::absent(DiskId::named("gpt-1"), known)
    }

    #[test]
    fn what_is_wrong_is_said_with_its_time_and_what_to_do_and_a_healthy_node_in_a_line() {
        let since = Some("2026-11-26T04:00:00.75Z".parse().expect("a time"));
        let gone = Finding { since, ..Finding::new(HealthReason::DiskMissing, "disk gpt-1 is not there") };
        let sick = [(disk(), Condition::from(gone))];
        let text = render(&sick, &[], Some(&[]), Format::Table).expect("it can be written");
        let lines: Vec<&str> = text.lines().collect();
        let head = "disk gpt-1 (/dev/sda\\u{1b}): DiskMissing, Inaccessible, since 2026-11-26T04:00:00Z";
        assert_eq!(lines[..2], [head, "    disk gpt-1 is not there"]);
        assert!(lines[2].contains("localpool disk give-up") && lines.len() == 4, "{text}");
        assert_eq!(format!("{}\n", lines[3]), NOTHING_TO_ERASE);
        let json = render(&sick, &[], Some(&[]), Format::Json).expect("it can be written");
        let value: serde_json::Value = serde_json::from_str(&json).expect("JSON");
        assert_eq!((value["disks"].as_u64(), value["unhealthy"][0]["reason"].as_str()), (Some(1), Some("DiskMissing")));
        let healthy =
            render(&[(disk(), Condition::default())], &[], Some(&[]), Format::Wide).expect("it can be written");
        assert_eq!(healthy, format!("healthy: 1 disk and 0 volumes\n{NOTHING_TO_ERASE}"));
    }

    #[test]
    fn nobody_is_called_healthy_before_somebody_has_answered() {
        let view = DiskView { standing: Standing::Ready, ..disk() };
        let board = Board::default();
        let printed = |format| {
            let disks = [(view.clone(), board.of_disk(&view))];
            render(&disks, &[], board.paths().as_deref(), format).expect("it can be written")
        };
        let has_not = "not all is known yet: the agent has just started, and has not looked yet\n";
        assert_eq!(printed(Format::Table), format!("{has_not}{NOTHING_TO_ERASE}"));
        let look = |answers: &[AnswerOf]| {
            let answered_disks = [(view.id.clone(), answers.iter().copied().collect())].into();
            let result = CheckupResult { answered_disks, ..CheckupResult::default() };
            board.update(result, jiff::Timestamp::UNIX_EPOCH, Duration::ZERO);
        };
        look(&[AnswerOf::Kernel]);
        let owes = "not all is known yet: 1 of 1 disk did not answer this agent yet\n";
        assert_eq!(printed(Format::Table), format!("{owes}{NOTHING_TO_ERASE}"));
        let value: serde_json::Value = serde_json::from_str(&printed(Format::Json)).expect("JSON");
        assert_eq!((&value["checked"], &value["unanswered"]), (&true.into(), &1.into()));
        look(&[AnswerOf::Kernel, AnswerOf::Questions]);
        let healthy = format!("healthy: 1 disk and 0 volumes\n{NOTHING_TO_ERASE}");
        assert_eq!(printed(Format::Table), healthy, "one without a report has answered too");
    }

    #[test]
    fn nobody_is_called_healthy_before_it_is_known_where_volumes_had_been_mounted() {
        let volume = VolumeView {
            id: VolumeId::of_name("v"),
            record: None,
            size: 1,
            formatted: false,
            growable_to: 1,
            set: disk().set,
            disk: disk().id,
            standing: Standing::Ready,
            given_up: false,
            conflict: None,
            node: Default::default(),
            directory: None,
        };
        let printed = |condition: Condition, format| {
            let volumes = [(volume.clone(), condition)];
            render(&[], &volumes, Some(&[]), format).expect("it can be written")
        };
        let healthy = format!("healthy: 0 disks and 1 volume\n{NOTHING_TO_ERASE}");
        assert_eq!(printed(Condition::default(), Format::Table), healthy);
        let unknown = || Condition::default().unheard();
        let text = "not all is known yet: where 1 volume had been mounted when this agent began\n";
        assert_eq!(printed(unknown(), Format::Table), format!("{text}{NOTHING_TO_ERASE}"));
        let value: serde_json::Value = serde_json::from_str(&printed(unknown(), Format::Json)).expect("JSON");
        assert_eq!(value["mountsUnknown"], 1);
    }

    #[test]
    fn how_much_is_still_to_be_erased_is_said_and_how_long_that_takes_once_it_is_known() {
        let erasing = |bytes| {
            let erasure = Erasure { volumes: 0, bytes, time: Duration::from_secs(2), left: 90 << 30 };
            [(DiskView { erasure, ..disk() }, Condition::default())]
        };
        let text = render(&erasing(0), &[], Some(&[]), Format::Table).expect("it can be written");
        let message = "disk gpt-1 (/dev/sda\\u{1b}): 90.0 GiB of deleted volumes are still to be erased";
        assert_eq!(text, format!("healthy: 1 disk and 0 volumes\n{message}; how fast is not known yet\n"));
        let text = render(&erasing(2 << 30), &[], Some(&[]), Format::Table).expect("it can be written");
        let time = "; at 1.0 GiB a second that takes 1m 30s\n";
        assert_eq!(text, format!("healthy: 1 disk and 0 volumes\n{message}{time}"));
        let json = render(&erasing(2 << 30), &[], Some(&[]), Format::Json).expect("it can be written");
        let value: serde_json::Value = serde_json::from_str(&json).expect("JSON");
        assert_eq!(
            (&value["erasing"][0]["left"], &value["erasing"][0]["seconds"]),
            (&(90_u64 << 30).into(), &90.into())
        );
    }

    #[test]
    fn a_disk_that_takes_no_new_volumes_is_said_also_where_nothing_is_wrong() {
        let cordoned = [(DiskView { cordon: Some(Cordon::Chosen), ..disk() }, Condition::default())];
        let text = render(&cordoned, &[], Some(&[]), Format::Table).expect("it can be written");
        let message = "disk gpt-1 (/dev/sda\\u{1b}): it takes no new volumes: a person has cordoned it\n";
        assert_eq!(text, format!("healthy: 1 disk and 0 volumes\n{message}{NOTHING_TO_ERASE}"));
        let json = render(&cordoned, &[], Some(&[]), Format::Json).expect("it can be written");
        let value: serde_json::Value = serde_json::from_str(&json).expect("JSON");
        assert_eq!((&value["cordoned"][0]["id"], &value["cordoned"][0]["by"]), (&"gpt-1".into(), &"person".into()));
    }

    #[test]
    fn a_persistent_volume_of_another_provisioner_whose_path_is_not_well_is_said_by_its_name_and_nothing_is_healthy() {
        let report = |volume: &str, findings: Vec<Finding>| {
            let (path, kind) = (format!("/mnt/{volume}\n").into(), PathKind::Filesystem);
            let (volume, uid) = (volume.into(), "u".into());
            let watched = WatchedPath { volume, uid, path, capacity: 1, kind, is_mounted: true, claim: None };
            PathReport { watched, is_mount_point: false, identity: None, condition: Condition::of(findings) }
        };
        let since = Some("2026-11-26T04:00:00Z".parse().expect("a time"));
        let lost = Finding { since, ..Finding::new(HealthReason::NotMountPoint, "nothing is mounted there any more") };
        let full = Finding { since, ..Finding::new(HealthReason::MisMatchedVolSize, "it is too small") };
        let paths = [report("well", vec![]), report("lost", vec![lost]), report("full", vec![full])];
        let disks = [(disk(), Condition::default())];
        let text = render(&disks, &[], Some(&paths), Format::Table).expect("it can be written");
        let lines: Vec<&str> = text.lines().collect();
        let head = "PersistentVolume lost (/mnt/lost\\n): NotMountPoint, Inaccessible, since 2026-11-26T04:00:00Z";
        assert_eq!(lines[..2], [head, "    nothing is mounted there any more"]);
        assert!(lines[2].contains("Stop its pods") && lines.len() == 7, "{text}");
        assert!(lines[3].starts_with("PersistentVolume full (/mnt/full\\n): MisMatchedVolSize, Degraded, "), "{text}");
        let json = render(&disks, &[], Some(&paths), Format::Json).expect("it can be written");
        let value: serde_json::Value = serde_json::from_str(&json).expect("JSON");
        assert_eq!(value["persistentVolumes"], 3);
        let keys = ["kind", "id", "name", "reason", "severity"];
        let row = |at: usize| keys.map(|key| value["unhealthy"][at][key].as_str().unwrap_or_default());
        assert_eq!(row(0), ["PersistentVolume", "lost", "/mnt/lost\n", "NotMountPoint", "Inaccessible"]);
        assert_eq!(row(1), ["PersistentVolume", "full", "/mnt/full\n", "MisMatchedVolSize", "Degraded"]);
        let well = render(&disks, &[], Some(&paths[..1]), Format::Table).expect("it can be written");
        let healthy = "healthy: 1 disk, 0 volumes and 1 local PersistentVolume of other provisioners\n";
        assert_eq!(well, format!("{healthy}{NOTHING_TO_ERASE}"));
    }
}
