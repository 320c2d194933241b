use super::*;
use crate::pool::FilesystemReason;
use crate::pool::config_file::ConfigProblem;
use crate::pool::directory::DocumentError;

fn uuid(number: u128) -> Uuid {
    Uuid::from_u128(number)
}

fn at(name: &str) -> NamedFilesystem {
    NamedFilesystem {
        name: name.into(),
        path: format!("/mnt/{name}").into(),
        quota: Quota::Project,
        allows_scheduling: true,
        tags: Default::default(),
        reserved: None,
        stray_fields: Vec::new(),
    }
}

/// XFS with project quota on the disk with this number, and this file.
fn facts(disk: u32, config: ConfigFile) -> FilesystemFacts {
    FilesystemFacts {
        device: DevNo { major: 8, minor: disk },
        fsid: u64::from(disk),
        kind: "xfs".to_owned(),
        size: 1 << 30,
        is_read_only: false,
        whose: None,
        quota: Some(Ok(QuotaState::Enforced)),
        config,
    }
}

fn found(disk: u32, config: ConfigFile) -> FilesystemLook {
    FilesystemLook::Found(facts(disk, config))
}

/// Names `a`, `b` and so on: what is known of each, and what is at its path.
fn judged(all: &[(Option<u128>, FilesystemLook)]) -> Vec<FilesystemVerdict> {
    let disks: Vec<NamedFilesystem> = ["a", "b", "c", "d"].into_iter().map(at).collect();
    let named = disks.iter().zip(all);
    let looked = named.map(|(disk, (known, look))| LookedAt { disk, known: known.map(uuid), look });
    judge(&looked.collect::<Vec<_>>())
}

fn ready(number: u128) -> FilesystemVerdict {
    FilesystemVerdict::Judged { uuid: Some(uuid(number)), problem: None }
}

fn not_ready(number: Option<u128>, problem: FilesystemProblem) -> FilesystemVerdict {
    FilesystemVerdict::not_ready(number.map(uuid), problem)
}

fn names(names: &[&str]) -> Vec<FilesystemName> {
    names.iter().map(|name| (*name).into()).collect()
}

fn ours(number: u128) -> ConfigFile {
    ConfigFile::Ours(uuid(number))
}

/// A row: the promise, what is known and found of each name, and what follows for each.
type Row = (&'static str, Vec<(Option<u128>, FilesystemLook)>, Vec<FilesystemVerdict>);

/// Each branch of `syncDiskStatus`, in the proposal's order.
fn branches() -> Vec<Row> {
    let same_new = |others: &[&str]| {
        not_ready(None, FilesystemProblem::DuplicateFilesystem { existing: Vec::new(), new: names(others) })
    };
    let same_existing = |existing: &[&str], new: &[&str]| {
        not_ready(None, FilesystemProblem::DuplicateFilesystem { existing: names(existing), new: names(new) })
    };
    let wrong =
        |known, found| not_ready(Some(known), FilesystemProblem::WrongDisk { known: uuid(known), found: uuid(found) });
    let missing = |known| not_ready(Some(known), FilesystemProblem::ConfigMissing { known: uuid(known) });
    let duplicate = |known, of, others: &[&str]| {
        not_ready(known, FilesystemProblem::DuplicateUuid { uuid: uuid(of), others: names(others) })
    };
    vec![
        ("one name, known, and the file says the same", vec![(Some(1), found(1, ours(1)))], vec![ready(1)]),
        ("one name, known, and the file says another", vec![(Some(1), found(1, ours(2)))], vec![wrong(1, 2)]),
        ("one name, known, and no file", vec![(Some(1), found(1, ConfigFile::Absent))], vec![missing(1)]),
        (
            "one name, known, and it has lost its file, or another one has",
            vec![(Some(1), found(1, ConfigFile::Lost(uuid(1)))), (Some(2), found(2, ConfigFile::Lost(uuid(3))))],
            vec![not_ready(Some(1), FilesystemProblem::ConfigLost(uuid(1))), missing(2)],
        ),
        (
            "one name, new, and a filesystem that has lost its file",
            vec![(None, found(1, ConfigFile::Lost(uuid(1))))],
            vec![not_ready(Some(1), FilesystemProblem::ConfigLost(uuid(1)))],
        ),
        (
            "the same beside a copy that has its file: none of them by order",
            vec![(None, found(1, ConfigFile::Lost(uuid(1)))), (None, found(2, ours(1)))],
            vec![duplicate(None, 1, &["b"]), duplicate(None, 1, &["a"])],
        ),
        ("one name, new, and a file that nobody else has", vec![(None, found(1, ours(1)))], vec![ready(1)]),
        (
            "one name, new, and a file whose UUID an existing disk has",
            vec![(Some(1), found(1, ours(1))), (None, found(2, ours(1)))],
            vec![ready(1), duplicate(None, 1, &["a"])],
        ),
        (
            "the same, although the existing disk is away",
            vec![(Some(1), FilesystemLook::Nothing(NoMountPoint::NotMounted)), (None, found(2, ours(1)))],
            vec![
                not_ready(
                    Some(1),
                    FilesystemProblem::NotMounted { why: NoMountPoint::NotMounted, known: Some(uuid(1)) },
                ),
                duplicate(None, 1, &["a"]),
            ],
        ),
        (
            "two new names with copies of one file: none of them by order",
            vec![(None, found(1, ours(1))), (None, found(2, ours(1)))],
            vec![duplicate(None, 1, &["b"]), duplicate(None, 1, &["a"])],
        ),
        ("one name, new, and no file", vec![(None, found(1, ConfigFile::Absent))], vec![FilesystemVerdict::Begin]),
        (
            "several new names on one filesystem",
            vec![(None, found(1, ConfigFile::Absent)), (None, found(1, ConfigFile::Absent))],
            vec![same_new(&["b"]), same_new(&["a"])],
        ),
        (
            "several new names on one filesystem that has a file",
            vec![(None, found(1, ours(1))), (None, found(1, ours(1)))],
            vec![same_new(&["b"]), same_new(&["a"])],
        ),
        (
            "an existing name and new ones on one filesystem",
            vec![(Some(1), found(1, ours(1))), (None, found(1, ours(1))), (None, found(1, ours(1)))],
            vec![ready(1), same_existing(&["a"], &["c"]), same_existing(&["a"], &["b"])],
        ),
        (
            "several existing names on one filesystem: the diskUUID says which is valid",
            vec![(Some(1), found(1, ours(2))), (Some(2), found(1, ours(2)))],
            vec![wrong(1, 2), ready(2)],
        ),
        (
            "several existing names with one diskUUID: nothing says which is valid",
            vec![(Some(1), found(1, ours(1))), (Some(1), found(1, ours(1)))],
            vec![duplicate(Some(1), 1, &["b"]), duplicate(Some(1), 1, &["a"])],
        ),
        (
            "several existing names on one filesystem without a file",
            vec![(Some(1), found(1, ConfigFile::Absent)), (Some(2), found(1, ConfigFile::Absent))],
            vec![missing(1), missing(2)],
        ),
        (
            "names on different filesystems do not disturb each other",
            vec![(Some(1), found(1, ours(1))), (None, found(2, ours(2))), (None, found(3, ConfigFile::Absent))],
            vec![ready(1), ready(2), FilesystemVerdict::Begin],
        ),
    ]
}

#[test]
fn each_branch_of_the_proposal_has_its_outcome() {
    for (promise, all, expected) in branches() {
        assert_eq!(judged(&all), expected, "{promise}");
    }
}

#[test]
fn an_xfs_whose_fsid_is_another_after_a_remount_stays_the_disk_that_it_is() {
    let mut again = facts(1, ours(1));
    again.fsid = 0xdead_beef;
    again.device = DevNo { major: 253, minor: 9 };
    assert_eq!(judged(&[(Some(1), FilesystemLook::Found(again))]), [ready(1)]);
    // Copies of ext4 have one fsid, and are two filesystems.
    let [mut one, mut other] = [1, 2].map(|disk| facts(disk, ours(u128::from(disk))));
    (one.fsid, other.fsid) = (7, 7);
    let both = judged(&[(None, FilesystemLook::Found(one)), (None, FilesystemLook::Found(other))]);
    assert_eq!(both, [ready(1), ready(2)]);
}

#[test]
fn an_unmounted_path_is_not_ready_whether_or_not_it_had_a_disk_and_nothing_begins_there() {
    let all = [
        NoMountPoint::Absent,
        NoMountPoint::Link,
        NoMountPoint::NoFolder,
        NoMountPoint::NotMounted,
        NoMountPoint::Part,
    ];
    for why in all {
        for known in [None, Some(1)] {
            let problem = FilesystemProblem::NotMounted { why, known: known.map(uuid) };
            assert_eq!(judged(&[(known, FilesystemLook::Nothing(why))]), [not_ready(known, problem)], "{why:?}");
        }
    }
    let message = FilesystemProblem::NotMounted { why: NoMountPoint::NotMounted, known: Some(uuid(1)) }.to_string();
    assert_eq!(
        message,
        "at its path nothing is mounted there, and the filesystem with diskUUID \
         00000000-0000-0000-0000-000000000001 was: mount it; nothing is written there before a filesystem is"
    );
}

#[test]
fn a_file_that_is_damaged_or_of_another_node_makes_neither_a_new_disk_nor_a_known_one_ready() {
    for known in [None, Some(1)] {
        let unusable = UnusableFile { file: CONFIG, why: ConfigProblem::Refused(DocumentError::Newer(2).into()) };
        let problem = FilesystemProblem::ConfigUnusable(unusable.clone());
        let unusable = ConfigFile::Unusable(unusable);
        assert_eq!(judged(&[(known, found(1, unusable))]), [not_ready(known, problem)]);
    }
}

#[test]
fn without_quota_a_filesystem_is_refused_with_that_reason_and_used_if_none_is_wanted() {
    let states = [
        (None, "ext4 has no project quota that localpool uses; xfs has"),
        (Some(Ok(QuotaState::NotCounted)), "the filesystem is mounted without project quota"),
        (Some(Ok(QuotaState::NotEnforced)), "the filesystem has its project quota switched off"),
        (Some(Err(HostError::Unsupported { what: "the kernel has none".to_owned() }.into())), "the kernel has none"),
    ];
    for (quota, why) in states {
        let kind = if quota.is_none() { "ext4" } else { "xfs" }.to_owned();
        let look = |config| {
            FilesystemLook::Found(FilesystemFacts { quota: quota.clone(), kind: kind.clone(), ..facts(1, config) })
        };
        let of = |quota, known, look: &FilesystemLook| {
            let disk = NamedFilesystem { quota, ..at("a") };
            judge(&[LookedAt { disk: &disk, known, look }]).remove(0)
        };
        let said = |verdict: FilesystemVerdict| match verdict {
            FilesystemVerdict::Judged { uuid, problem: Some(problem) } => {
                (uuid, FilesystemReason::from(&problem).word(), chain(&problem))
            }
            other => panic!("{why}: {other:?}"),
        };
        let (none, word, message) = said(of(Quota::Project, None, &look(ConfigFile::Absent)));
        assert_eq!((none, word), (None, "NoQuota"), "and no file is written");
        assert!(message.contains(why) && message.contains("`quota: none`"), "{message}");
        let (known, word, _) = said(of(Quota::Project, Some(uuid(1)), &look(ours(1))));
        assert_eq!((known, word), (Some(uuid(1)), "NoQuota"));
        assert_eq!(of(Quota::None, None, &look(ConfigFile::Absent)), FilesystemVerdict::Begin);
        assert_eq!(of(Quota::None, Some(uuid(1)), &look(ours(1))), ready(1));
    }
}

#[test]
fn what_is_the_systems_or_localpools_own_or_of_another_type_or_read_only_gets_no_file() {
    type Change = fn(&mut FilesystemFacts);
    let changes: [(Change, &str); 5] = [
        (|found| found.whose = Some(Whose::System), "SystemFilesystem"),
        (|found| found.whose = Some(Whose::Localpool), "LocalpoolFilesystem"),
        (|found| found.kind = "tmpfs".to_owned(), "FilesystemNotSupported"),
        (|found| found.kind = "nfs4".to_owned(), "FilesystemNotSupported"),
        (|found| found.is_read_only = true, "ReadOnly"),
    ];
    for (change, word) in changes {
        let mut found = facts(1, ConfigFile::Absent);
        change(&mut found);
        let verdict = judged(&[(None, FilesystemLook::Found(found))]).remove(0);
        let FilesystemVerdict::Judged { uuid: None, problem: Some(problem) } = &verdict else { panic!("{verdict:?}") };
        assert_eq!(FilesystemReason::from(problem).word(), word);
    }
}

#[test]
fn a_path_that_is_no_place_for_a_mount_is_not_looked_at() {
    let of = |path: &str, stray: &[&'static str]| {
        let disk = NamedFilesystem { path: path.into(), stray_fields: stray.to_vec(), ..at("a") };
        // Whatever is there.
        let look = found(1, ConfigFile::Absent);
        let verdict = judge(&[LookedAt { disk: &disk, known: None, look: &look }]).remove(0);
        match verdict {
            FilesystemVerdict::Judged { problem: Some(problem @ FilesystemProblem::Entry(_)), .. } => {
                problem.to_string()
            }
            other => panic!("{path}: {other:?}"),
        }
    };
    assert_eq!(of("/", &[]), "`/` is the node's own filesystem: mount another one, and name its mount point");
    for path in ["", "mnt/a", "/mnt/../etc", "/.."] {
        assert_eq!(of(path, &[]), format!("its path {path:?} has to begin with `/`, without `.` and `..`"));
    }
    assert!(of("/mnt/a", &["cordon", "order"]).starts_with("beside `path` there must be no cordon and order"));
}

#[test]
fn while_another_new_name_may_lead_to_the_same_filesystem_neither_gets_a_file() {
    let free = || (None, found(1, ConfigFile::Absent));
    assert_eq!(judged(&[free(), (None, FilesystemLook::Pending)]), [FilesystemVerdict::Wait, FilesystemVerdict::Wait]);
    let silent = not_ready(None, FilesystemProblem::Silent(30));
    let both = judged(&[free(), (None, FilesystemLook::Silent(30))]);
    assert_eq!(both, [FilesystemVerdict::Begin, silent], "one that hangs holds up only itself");
    let known = judged(&[free(), (Some(2), FilesystemLook::Pending)]);
    assert_eq!(known, [FilesystemVerdict::Begin, FilesystemVerdict::Wait], "an existing one is what its UUID says");
}

#[test]
fn of_two_names_on_one_filesystem_each_message_names_the_other_and_which_exists() {
    let both = FilesystemProblem::DuplicateFilesystem { existing: Vec::new(), new: names(&["a", "b"]) };
    assert_eq!(
        both.to_string(),
        "it is the same filesystem as that of a, b, and all of them are new: remove one of the entries"
    );
    let beside = FilesystemProblem::DuplicateFilesystem { existing: names(&["a"]), new: names(&["b"]) };
    assert_eq!(
        beside.to_string(),
        "it is the same filesystem as that of the existing disk a: remove one of the entries"
    );
    let duplicate = FilesystemProblem::DuplicateUuid { uuid: uuid(1), others: names(&["a"]) };
    assert!(duplicate.to_string().starts_with("duplicate UUID: a has 00000000-0000-0000-0000-000000000001, too"));
}
