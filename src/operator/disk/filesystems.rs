//! The filesystems that a person names in `spec.disks` of a DevicePool with a `path`: what is written of them, and what
//! `status.diskStatus` says. Pure but for the time of a condition.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition as KubeCondition;
use serde::Deserialize;
use serde_json::Value;

use crate::api::crd::{DevicePool, DiskChoice, FolderQuota, NamedDiskStatus, PoolReason};
use crate::device::FilesystemName;
use crate::device::label::Quota;
use crate::health::{DEFAULT_DISK, EarlierFilesystems, FilesystemBoard, FilesystemReport, FilesystemUse};
use crate::host::chain;
use crate::operator::bytes::signed;
use crate::operator::disk::cordon;
use crate::operator::status::condition::{Holds, condition};
use crate::pool::{FilesystemReason, NamedFilesystem};

const READY: &str = "Ready";
const SCHEDULABLE: &str = "Schedulable";

/// Whether a condition holds, its reason, its message.
type Said = (Holds, FilesystemReason, String);

/// What is named.
pub fn named(pool: &DevicePool) -> Vec<NamedFilesystem> {
    let disks = pool.spec.disks.iter();
    disks.filter_map(|(name, choice)| filesystem(name.as_str(), choice)).collect()
}

fn filesystem(name: &str, choice: &DiskChoice) -> Option<NamedFilesystem> {
    let DiskChoice { path, allow_scheduling, tags, quota, cordon, reserved, order } = choice;
    let stray = [("cordon", cordon.is_some()), ("order", order.is_some())];
    Some(NamedFilesystem {
        name: name.into(),
        path: path.as_ref()?.into(),
        quota: match quota {
            None | Some(FolderQuota::Project) => Quota::Project,
            Some(FolderQuota::None) => Quota::None,
        },
        allows_scheduling: allow_scheduling.unwrap_or(true),
        tags: tags.iter().cloned().collect(),
        reserved: reserved.as_ref().map(cordon::bytes),
        stray_fields: stray.into_iter().filter(|(_, is_given)| *is_given).map(|(field, _)| field).collect(),
    })
}

/// The annotation of a Node with its default disks: a list in JSON of the entries that `spec.disks` would have.
pub const DEFAULT_DISKS: &str = "localpool.dev/default-disks";

/// What a node asks for.
#[derive(Clone, Debug, PartialEq)]
pub enum DefaultDisks {
    /// They have no names yet.
    Asked(Vec<NamedFilesystem>),
    /// The annotation cannot be read: why.
    Unread(String),
}

impl Default for DefaultDisks {
    fn default() -> Self {
        Self::Asked(Vec::new())
    }
}

impl DefaultDisks {
    pub fn of(annotation: Option<&String>) -> Self {
        let Some(text) = annotation else { return Self::default() };
        let entry = |entry: DefaultDisk| filesystem(DEFAULT_DISK, &entry.choice());
        match serde_json::from_str::<Vec<DefaultDisk>>(text) {
            Ok(entries) => Self::Asked(entries.into_iter().filter_map(entry).collect()),
            Err(why) => Self::Unread(why.to_string()),
        }
    }

    pub fn asked(&self) -> Option<Vec<NamedFilesystem>> {
        match self {
            Self::Asked(asked) => Some(asked.clone()),
            Self::Unread(_) => None,
        }
    }
}

/// An entry of the annotation. A field that is misspelt would be a field that says nothing.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct DefaultDisk {
    path: String,
    allow_scheduling: Option<bool>,
    quota: Option<FolderQuota>,
    #[serde(default)]
    tags: Vec<String>,
    reserved: Option<Value>,
}

impl DefaultDisk {
    fn choice(self) -> DiskChoice {
        let Self { path, allow_scheduling, quota, tags, reserved } = self;
        DiskChoice { path: Some(path), allow_scheduling, quota, tags, reserved, cordon: None, order: None }
    }
}

/// What the status of an earlier agent says. A diskUUID that cannot be read is none: the file says it again.
pub fn earlier(pool: &DevicePool) -> EarlierFilesystems {
    let all = || pool.status.iter().flat_map(|status| &status.disk_status);
    let known = |(name, status): (&FilesystemName, &NamedDiskStatus)| Some((name.clone(), status.disk_uuid?));
    let given = |(name, status): (&FilesystemName, &NamedDiskStatus)| {
        name.starts_with(DEFAULT_DISK).then(|| (status.path.clone().into(), name.clone()))
    };
    EarlierFilesystems { known: all().filter_map(known).collect(), given: all().filter_map(given).collect() }
}

/// The condition about the default disks; `None`: the node asks for none.
pub fn default_disks(before: &[KubeCondition], asked: &DefaultDisks, board: &FilesystemBoard) -> Option<KubeCondition> {
    let said = |holds: bool, reason: PoolReason, message| {
        Some(condition(before, "DefaultDisks", holds, reason.word(), message, None))
    };
    match asked {
        DefaultDisks::Unread(why) => {
            said(false, PoolReason::AnnotationInvalid, format!("the annotation {DEFAULT_DISKS} of the node: {why}"))
        }
        DefaultDisks::Asked(asked) if asked.is_empty() => None,
        DefaultDisks::Asked(_) => {
            let unnamed = board.why_unnamed();
            let why: Vec<String> =
                unnamed.iter().map(|(path, why)| format!("{}: {}", path.display(), chain(why))).collect();
            match why.is_empty() {
                true => said(true, PoolReason::Named, "status.diskStatus has each default disk of the node".to_owned()),
                false => {
                    let text = format!("the annotation {DEFAULT_DISKS} of the node asks for {}", why.join("; "));
                    said(false, PoolReason::NotMounted, text)
                }
            }
        }
    }
}

/// What is said of each name. What an earlier agent has said stays until this one has judged the name, unless the name
/// was removed in between.
pub fn statuses(
    board: &FilesystemBoard,
    before: &BTreeMap<FilesystemName, NamedDiskStatus>,
) -> BTreeMap<FilesystemName, NamedDiskStatus> {
    let status = |(disk, report): (NamedFilesystem, Option<FilesystemReport>)| {
        let name = disk.name.clone();
        let said = before.get(&name);
        let status = match report {
            Some(report) => status(report, board.use_of(&name), said),
            None => {
                let stays = said.filter(|_| !board.was_removed(&disk.name));
                stays.cloned().unwrap_or_else(|| not_looked_at(&disk))
            }
        };
        (name, status)
    };
    board.reports().into_iter().map(status).collect()
}

fn not_looked_at(disk: &NamedFilesystem) -> NamedDiskStatus {
    let reason = FilesystemReason::NotLookedAt;
    let waits = |kind| condition(&[], kind, Holds::Unknown, reason.word(), "its path was not looked at yet", None);
    NamedDiskStatus {
        path: disk.path.display().to_string(),
        conditions: [READY, SCHEDULABLE].map(waits).into(),
        ..NamedDiskStatus::default()
    }
}

fn status(report: FilesystemReport, of: FilesystemUse, before: Option<&NamedDiskStatus>) -> NamedDiskStatus {
    let before = before.map_or::<&[KubeCondition], _>(&[], |before| &before.conditions);
    let said = |kind, (holds, reason, message): Said| condition(before, kind, holds, reason.word(), message, None);
    let conditions = vec![said(READY, ready(&report)), said(SCHEDULABLE, schedulable(&report, of))];
    let FilesystemReport { disk, uuid, filesystem, device: _, problem: _ } = report;
    let (filesystem, size) = filesystem.unzip();
    NamedDiskStatus {
        path: disk.path.display().to_string(),
        disk_uuid: uuid,
        filesystem,
        size: size.map(signed),
        conditions,
    }
}

fn ready(report: &FilesystemReport) -> Said {
    match &report.problem {
        None => {
            (Holds::True, FilesystemReason::Mounted, "the filesystem with its diskUUID is mounted there".to_owned())
        }
        Some(problem) => (Holds::False, problem.into(), chain(problem)),
    }
}

fn schedulable(report: &FilesystemReport, of: FilesystemUse) -> Said {
    let no = |reason, why: &str| (Holds::False, reason, why.to_owned());
    if report.problem.is_some() {
        return no(FilesystemReason::NotReady, "it is not ready");
    }
    match of {
        FilesystemUse::Refused(why) => (Holds::False, FilesystemReason::NotTaken, why),
        FilesystemUse::GivenUp => no(
            FilesystemReason::GivenUp,
            "it was given up: order Adopt for its id, which status.disks has, to use it again",
        ),
        FilesystemUse::Released => no(
            FilesystemReason::Released,
            "it was released: order Adopt for its id, fs- and the diskUUID, to have it taken again",
        ),
        _ if !report.disk.allows_scheduling => {
            no(FilesystemReason::SchedulingDisabled, "its entry says `allowScheduling: false`")
        }
        FilesystemUse::NotChosen => no(
            FilesystemReason::NotChosen,
            "no LocalVolumeSet of this node takes it: one with `filesystems` does whose tags it has, and whose quota",
        ),
        FilesystemUse::Taken(set) => (Holds::True, FilesystemReason::InPool, format!("set {set} has volumes there")),
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use jiff::Timestamp;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use serde_json::json;
    use uuid::Uuid;

    use super::*;
    use crate::health::WantedFilesystems;
    use crate::host::NoMountPoint;
    use crate::operator::disk::cordon;
    use crate::pool::{FilesystemProblem, NoDefaultDisk};

    fn pool(disks: Value, status: Value) -> DevicePool {
        let pool = json!({
            "apiVersion": "localpool.dev/v1alpha1", "kind": "DevicePool", "metadata": {"name": "n"},
            "spec": {"disks": disks}, "status": {"diskStatus": status},
        });
        serde_json::from_value(pool).expect("a DevicePool")
    }

    fn wants(board: &FilesystemBoard, pool: &DevicePool) -> bool {
        board.name(WantedFilesystems { named: named(pool), defaults: Some(Vec::new()) }, &earlier(pool))
    }

    fn report(disk: &NamedFilesystem, uuid: Option<Uuid>, problem: Option<FilesystemProblem>) -> FilesystemReport {
        let filesystem = Some(("xfs".to_owned(), 5));
        FilesystemReport { disk: disk.clone(), uuid, filesystem, device: None, problem }
    }

    #[test]
    fn an_entry_with_a_path_is_a_filesystem_with_a_name_of_a_persons_choice_and_no_disk_of_the_pool() {
        let pool = pool(
            json!({
                "fast": {"path": "/mnt/fast", "tags": ["nvme"], "reserved": "1Gi"},
                "other": {"path": "/mnt/o", "quota": "none", "allowScheduling": false, "cordon": true, "order": "Drain"},
                "gpt-1": {"cordon": true},
            }),
            json!({}),
        );
        let [fast, other] = &named(&pool)[..] else { panic!("two: {:?}", named(&pool)) };
        assert_eq!((fast.name.as_str(), fast.quota, fast.allows_scheduling), ("fast", Quota::Project, true));
        assert_eq!(fast.refused(), None);
        assert_eq!((other.quota, other.allows_scheduling), (Quota::None, false));
        assert_eq!(other.stray_fields, ["cordon", "order"]);
        let ids: Vec<String> = cordon::named(&pool).iter().map(ToString::to_string).collect();
        assert_eq!(ids, ["gpt-1"]);
        assert_eq!((cordon::chosen(&pool).len(), cordon::reserved(&pool).len()), (1, 0));
        assert_eq!(cordon::closed_by_order(&pool).len(), 0);
    }

    #[test]
    fn without_a_path_what_needs_one_is_said_to_be_of_no_disk() {
        let pool =
            pool(json!({"fast": {"allowScheduling": true}, "b": {"tags": ["x"]}, "c": {"quota": "none"}}), json!({}));
        assert_eq!(named(&pool), []);
        assert_eq!(cordon::named(&pool).len(), 3);
    }

    #[test]
    fn each_outcome_is_a_condition_with_reason_message_and_a_time_that_moves_only_with_the_outcome() {
        let pool = pool(json!({"a": {"path": "/mnt/a"}, "b": {"path": "/mnt/b", "allowScheduling": false}}), json!({}));
        let board = FilesystemBoard::default();
        assert!(wants(&board, &pool));
        let said = |status: &NamedDiskStatus| {
            let one = |condition: &KubeCondition| {
                format!("{} {} {}: {}", condition.type_, condition.status, condition.reason, condition.message)
            };
            status.conditions.iter().map(one).collect::<Vec<_>>()
        };
        let first = statuses(&board, &BTreeMap::new());
        assert_eq!(said(&first["a"])[0], "Ready Unknown NotLookedAt: its path was not looked at yet");
        let all = named(&pool);
        let uuid = Uuid::from_u128(7);
        board.update(vec![report(&all[0], Some(uuid), None), report(&all[1], Some(uuid), None)]);
        let mut ready = statuses(&board, &first);
        assert_eq!(
            said(&ready["a"]),
            [
                "Ready True Mounted: the filesystem with its diskUUID is mounted there",
                "Schedulable False NotChosen: no LocalVolumeSet of this node takes it: one with `filesystems` does whose \
                 tags it has, and whose quota"
            ]
        );
        assert_eq!(
            said(&ready["b"])[1],
            "Schedulable False SchedulingDisabled: its entry says `allowScheduling: false`"
        );
        assert_eq!(ready["a"].disk_uuid, Some(uuid));
        for condition in ready.values_mut().flat_map(|status| &mut status.conditions) {
            condition.last_transition_time = Time(Timestamp::UNIX_EPOCH);
        }
        assert_eq!(statuses(&board, &ready), ready, "nothing has changed, so nothing is written");
        let problem = FilesystemProblem::ConfigMissing { known: uuid };
        board.update(vec![report(&all[0], Some(uuid), Some(problem.clone()))]);
        let missing = statuses(&board, &ready);
        assert_eq!(said(&missing["a"])[0], format!("Ready False ConfigMissing: {problem}"));
        assert_eq!(said(&missing["a"])[1], "Schedulable False NotReady: it is not ready");
        assert!(missing["a"].conditions[0].last_transition_time > ready["a"].conditions[0].last_transition_time);
        assert_eq!(missing["a"].disk_uuid, Some(uuid), "what it was stays known");
    }

    #[test]
    fn what_the_pool_makes_of_one_that_is_ready_is_the_reason_of_schedulable() {
        let pool = pool(json!({"a": {"path": "/mnt/a", "tags": ["x"], "reserved": "1Ki"}}), json!({}));
        let board = FilesystemBoard::default();
        wants(&board, &pool);
        let all = named(&pool);
        assert_eq!((all[0].tags.len(), all[0].reserved), (1, Some(1024)));
        board.update(vec![report(&all[0], Some(Uuid::from_u128(7)), None)]);
        let said = || {
            let status = &statuses(&board, &BTreeMap::new())["a"];
            let schedulable = &status.conditions[1];
            format!("{} {}: {}", schedulable.status, schedulable.reason, schedulable.message)
        };
        let set = FilesystemUse::Taken(crate::device::SetName::new("n", "s"));
        for (of, words) in [
            (set, "True InPool: set n/s has volumes there"),
            (FilesystemUse::Refused("it has one already".to_owned()), "False NotTaken: it has one already"),
            (FilesystemUse::GivenUp, "False GivenUp: it was given up: order Adopt"),
            (FilesystemUse::Released, "False Released: it was released: order Adopt"),
            (FilesystemUse::NotChosen, "False NotChosen: no LocalVolumeSet of this node takes it"),
        ] {
            assert!(board.set_use(&"a".into(), of.clone()) && !board.set_use(&"a".into(), of), "it is news once");
            assert!(said().starts_with(words), "{}", said());
        }
        assert!(!board.set_use(&"other".into(), FilesystemUse::Released), "nobody named it");
    }

    #[test]
    fn a_nodes_annotation_asks_for_default_disks_and_what_is_wrong_with_it_is_a_condition() {
        let of = |text: &str| DefaultDisks::of(Some(&text.to_owned()));
        assert_eq!(DefaultDisks::of(None), DefaultDisks::default());
        let asked = of(r#"[{"path": "/mnt/a", "quota": "none", "allowScheduling": false}, {"path": "/mnt/b"}]"#);
        let paths: Vec<(PathBuf, Quota)> =
            asked.asked().unwrap_or_default().into_iter().map(|disk| (disk.path, disk.quota)).collect();
        assert_eq!(paths, [("/mnt/a".into(), Quota::None), ("/mnt/b".into(), Quota::Project)]);
        let board = FilesystemBoard::default();
        let said = |asked: &DefaultDisks| {
            default_disks(&[], asked, &board).map(|said| format!("{} {}: {}", said.status, said.reason, said.message))
        };
        assert_eq!(said(&DefaultDisks::default()), None);
        for wrong in ["", "{}", "[{}]", r#"[{"path": "/mnt/a", "qouta": "none"}]"#, r#"[{"path": 1}]"#] {
            let said = said(&of(wrong)).unwrap_or_default();
            assert!(
                said.starts_with("False AnnotationInvalid: the annotation localpool.dev/default-disks of"),
                "{said}"
            );
        }
        let wanted = WantedFilesystems { defaults: asked.asked(), ..WantedFilesystems::default() };
        board.name(wanted, &EarlierFilesystems::default());
        board.name_default("/mnt/a".as_ref(), Err(NoDefaultDisk::NotMounted(NoMountPoint::NotMounted)));
        let text = "False NotMounted: the annotation localpool.dev/default-disks of the node asks for /mnt/a: nothing is \
                    mounted there";
        assert_eq!(said(&asked).as_deref(), Some(text));
        board.name_default("/mnt/a".as_ref(), Ok(0xfd00));
        assert!(said(&asked).is_some_and(|said| said.starts_with("True Named: ")));
        let named = statuses(&board, &BTreeMap::new());
        assert_eq!(named.keys().collect::<Vec<_>>(), ["default-disk-fd00"]);
        let pool = pool(json!({}), serde_json::to_value(&named).expect("JSON"));
        assert_eq!(earlier(&pool).given, BTreeMap::from([("/mnt/a".into(), "default-disk-fd00".into())]));
    }

    #[test]
    fn what_an_earlier_agent_knew_is_known_and_what_it_said_stays_until_this_one_has_looked() {
        let uuid = Uuid::from_u128(7);
        let status = json!({
            "a": {"path": "/mnt/a", "diskUUID": uuid.to_string()}, "gone": {"path": "/x", "diskUUID": "no UUID"},
        });
        let pool = pool(json!({"a": {"path": "/mnt/a"}}), status);
        assert_eq!(earlier(&pool).known, BTreeMap::from([("a".into(), uuid)]));
        let board = FilesystemBoard::default();
        wants(&board, &pool);
        let all = named(&pool);
        let before = pool.status.expect("it has one").disk_status;
        let after = statuses(&board, &before);
        assert_eq!(after.keys().collect::<Vec<_>>(), ["a"]);
        assert_eq!(after["a"], before["a"]);
        // Removed and added again: what was said is of another filesystem.
        board.name(WantedFilesystems::default(), &EarlierFilesystems::default());
        board.name(WantedFilesystems { named: all, defaults: None }, &EarlierFilesystems::default());
        let again = &statuses(&board, &before)["a"];
        assert_eq!((again.disk_uuid, again.conditions[0].reason.as_str()), (None, "NotLookedAt"));
    }
}
