//! Filesystems that an administrator mounted and named, and the volumes that a set has there: chosen, used, unmounted,
//! mixed up, full, released and given up. What is the administrator's stays as it is.

mod doubt;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use localpool::agent::{Run, Verb};
use localpool::claim::{FilesystemChoice, Filter, Rule};
use localpool::device::Owner;
use localpool::device::label::{ErasePolicy, Layout, Quota};
use localpool::health::{EarlierFilesystems, FilesystemBoard, FilesystemReport, FilesystemUse, WantedFilesystems};
use localpool::host::fake::{FakeHost, FakeQuota};
use localpool::host::{
    FilesystemRoot, FsKind, Geometry, Host, Mounts as _, ProjectId, SharedError, TargetAccess, TargetKind, chain,
};
use localpool::pool::{
    FilesystemFacts, FilesystemLook, FilesystemVerdict, LookedAt, NamedFilesystem, PoolError, Standing, WantedUsage,
    judge, read_config,
};
use uuid::Uuid;

use crate::node::{MIB, Node, id, request};

const XFS: WantedUsage = WantedUsage::Mount(Some(FsKind::Xfs));
const SIZE: u64 = 512 * MIB;
const FAST: &str = "/mnt/fast";
const SLOW: &str = "/mnt/slow";

pub fn entry(name: &str, path: &str) -> NamedFilesystem {
    NamedFilesystem {
        name: name.into(),
        path: path.into(),
        quota: Quota::Project,
        allows_scheduling: true,
        tags: BTreeSet::new(),
        reserved: None,
        stray_fields: Vec::new(),
    }
}

fn tags(words: &[&str]) -> BTreeSet<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// A set that takes named filesystems with these tags.
pub fn rule(quota: Quota, words: &[&str]) -> Rule {
    let filesystems = Some(FilesystemChoice { tags: tags(words) });
    let filter = Filter::any_of(Vec::new());
    Rule { filesystems, filter, ..crate::node::rule(&Layout::Directory { quota }, ErasePolicy::Discard) }
}

/// An administrator makes XFS on a disk.
pub fn make(host: &FakeHost, disk: &str) {
    host.filesystems().make(FsKind::Xfs, &Path::new("/dev").join(disk), Uuid::new_v4()).expect("made");
}

pub fn mount(host: &FakeHost, disk: &str, path: &str) {
    let quota = ["prjquota".to_owned()];
    host.mounts.mount(&Path::new("/dev").join(disk), Path::new(path), FsKind::Xfs, &quota).expect("mounted");
}

fn unmount(host: &FakeHost, path: &str) {
    host.mounts.unmount(Path::new(path)).expect("unmounted");
}

pub fn is_unmounted(host: &FakeHost, path: &str) -> bool {
    host.mounts.table().expect("read").iter().all(|mount| mount.target != Path::new(path))
}

pub fn root(host: &FakeHost, disk: &str, path: &str) -> Arc<dyn FilesystemRoot> {
    host.mounts.open_root(Path::new(path), &Path::new("/dev").join(disk)).expect("mounted")
}

fn owner() -> Owner {
    Owner { cluster: "test".to_owned(), node: "node-1".into() }
}

/// It has a diskUUID, as the first checkup gives it.
pub fn begin(host: &FakeHost, path: &str) -> Uuid {
    let uuid = Uuid::new_v4();
    let found = host.mounts.mounted_filesystem(Path::new(path)).expect("looked at").expect("mounted");
    let text = format!(r#"{{"format": 1, "diskUUID": "{uuid}", "cluster": "test", "node": "node-1"}}"#);
    found.root.write(Path::new("localpool-disk.cfg"), &text).expect("written");
    uuid
}

pub fn name(board: &FilesystemBoard, all: &[NamedFilesystem]) {
    let wanted = WantedFilesystems { named: all.to_vec(), defaults: Some(Vec::new()) };
    board.name(wanted, &EarlierFilesystems::default());
}

fn found_at(host: &FakeHost, path: &Path) -> FilesystemLook {
    match host.mounts.mounted_filesystem(path).expect("looked at") {
        Err(nothing) => FilesystemLook::Nothing(nothing),
        Ok(found) => FilesystemLook::Found(FilesystemFacts {
            device: found.mount.device,
            fsid: found.fsid,
            kind: found.mount.fs_type.clone(),
            size: SIZE,
            is_read_only: found.mount.options.iter().any(|option| option == "ro"),
            whose: None,
            quota: Some(found.root.quota_state().map_err(SharedError::from)),
            config: read_config(&*found.root, &owner()),
        }),
    }
}

/// What a checkup finds at each path.
pub fn look(host: &FakeHost, board: &FilesystemBoard) {
    let named = board.named();
    let looks: Vec<FilesystemLook> = named.iter().map(|(disk, _)| found_at(host, &disk.path)).collect();
    let with_looks = named.iter().zip(&looks);
    let all: Vec<LookedAt<'_>> =
        with_looks.map(|((disk, known), look)| LookedAt { disk, known: *known, look }).collect();
    let report = |(one, verdict): (&LookedAt<'_>, FilesystemVerdict)| {
        let FilesystemVerdict::Judged { uuid, problem } = verdict else { return None };
        let device = match one.look {
            FilesystemLook::Found(found) => Some(found.device),
            _ => None,
        };
        Some(FilesystemReport { disk: one.disk.clone(), uuid, filesystem: None, device, problem })
    };
    board.update(all.iter().zip(judge(&all)).filter_map(report).collect());
}

pub fn start(host: &Arc<FakeHost>, rules: Vec<Rule>, board: &FilesystemBoard) -> Result<Node, String> {
    let Node { pool, agent } = Node::start(host, rules, Duration::ZERO)?;
    Ok(Node { pool, agent: agent.attending(board.clone()) })
}

/// A machine on which an administrator mounted `fast`, and a node whose set takes it.
struct Lab {
    host: Arc<FakeHost>,
    board: FilesystemBoard,
    node: Node,
}

impl Lab {
    fn new(rule: Rule, entry: NamedFilesystem) -> Self {
        let host = Arc::new(FakeHost::default());
        for disk in ["fast", "slow"] {
            host.add_disk(disk, disk, Geometry { size: SIZE, sector: 512, offloads_zeroes: true });
            make(&host, disk);
        }
        mount(&host, "fast", FAST);
        begin(&host, FAST);
        root(&host, "fast", FAST).write(Path::new("photos"), "of the administrator").expect("written");
        let board = FilesystemBoard::default();
        name(&board, &[entry]);
        look(&host, &board);
        let mut node = start(&host, vec![rule], &board).expect("starts");
        node.passes().expect("a pass");
        Self { host, board, node }
    }

    fn taken() -> Self {
        let lab = Self::new(rule(Quota::Project, &[]), entry("fast", FAST));
        assert_eq!(lab.standing(), Standing::Ready);
        lab
    }

    /// The checkup looks again, and a pass follows.
    fn pass(&mut self) {
        look(&self.host, &self.board);
        self.node.passes().expect("a pass");
    }

    fn restart(&mut self, rules: Vec<Rule>) {
        self.host.restart_process();
        let board = FilesystemBoard::default();
        name(&board, &self.board.named().into_iter().map(|(entry, _)| entry).collect::<Vec<_>>());
        self.node = start(&self.host, rules, &board).expect("starts");
        self.board = board;
    }

    fn standing(&self) -> Standing {
        self.node.pool.disk_views().remove(0).standing
    }

    fn disk(&self) -> String {
        self.node.pool.disk_views().remove(0).id.to_string()
    }

    fn names(&self) -> Vec<String> {
        let mut names = root(&self.host, "fast", FAST).names(Path::new("")).expect("read");
        names.sort();
        names
    }

    fn of(&self) -> FilesystemUse {
        self.board.use_of(&"fast".into())
    }

    fn create(&self, name: &str, size: u64) -> Result<(), String> {
        self.node.pool.create(&request(name, XFS, size)).map(drop).map_err(|error| chain(&error))
    }

    fn verb(&mut self, verb: Verb) -> Result<String, String> {
        self.node.agent.verb(&verb).map(|lines| lines.join("; ")).map_err(|error| chain(&error))
    }
}

const HIS: [&str; 2] = ["localpool-disk.cfg", "photos"];

#[test]
fn a_set_takes_a_named_filesystem_and_its_volumes_are_folders_below_one_folder_of_the_pool() {
    let lab = Lab::taken();
    let view = lab.node.pool.disk_views().remove(0);
    assert_eq!((view.id.is_filesystem(), view.path.as_path()), (true, Path::new(FAST)));
    assert_eq!(view.free / MIB, SIZE * 98 / 100 / MIB);
    lab.create("a", 5 * MIB).expect("made");
    let volume = lab.node.pool.usable(id("a")).expect("there");
    let folder = volume.directory.clone().expect("it is a folder");
    assert_eq!(folder.root, Path::new("/localpool/volumes").join(volume.id.to_string()));
    assert!(folder.path.starts_with(lab.host.own_mounts()), "pods get it from the pool's own mount: {folder:?}");
    assert_eq!(lab.names(), ["localpool", "localpool-disk.cfg", "photos"]);
    let its = root(&lab.host, "fast", FAST);
    let project = its.project_of(folder.root.strip_prefix("/").expect("absolute")).expect("asked");
    assert_eq!(its.project_usage(project).expect("asked").most_bytes, Some(5 * MIB));
    // As a pod has it.
    lab.host.mounts.make_target(Path::new("/pods/a"), TargetKind::Directory).expect("made");
    lab.host.mounts.bind(&folder.path, Path::new("/pods/a"), TargetAccess::ReadWrite).expect("bound");
    assert!(matches!(lab.node.pool.delete(id("a")), Err(PoolError::InUse { .. })));
    unmount(&lab.host, "/pods/a");
    assert_eq!(lab.node.pool.expand(id("a"), 9 * MIB, None).expect("grows").size, 9 * MIB);
    assert_eq!(lab.node.pool.expand(id("a"), MIB, Some(2 * MIB)).expect("shrinks").size, 2 * MIB);
    lab.node.pool.delete(id("a")).expect("deleted");
    lab.node.pool.work_until_idle().expect("removed");
    assert_eq!(lab.node.pool.disk_views().remove(0).free, view.free);
}

#[test]
fn nothing_is_touched_that_no_set_chooses() {
    let unwanted = [
        (crate::node::rule(&Layout::Directory { quota: Quota::Project }, ErasePolicy::Discard), entry("fast", FAST)),
        (rule(Quota::Project, &["nvme"]), NamedFilesystem { tags: tags(&["hdd"]), ..entry("fast", FAST) }),
        (rule(Quota::Project, &[]), NamedFilesystem { allows_scheduling: false, ..entry("fast", FAST) }),
        (rule(Quota::Project, &[]), NamedFilesystem { quota: Quota::None, ..entry("fast", FAST) }),
        (Rule { dry_run: true, ..rule(Quota::Project, &[]) }, entry("fast", FAST)),
    ];
    for (rule, entry) in unwanted {
        let lab = Lab::new(rule, entry.clone());
        assert_eq!((lab.names(), lab.of()), (HIS.map(str::to_owned).to_vec(), FilesystemUse::NotChosen), "{entry:?}");
        lab.create("a", MIB).expect_err("nobody offers it");
    }
    let both = NamedFilesystem { tags: tags(&["nvme", "new"]), ..entry("fast", FAST) };
    let lab = Lab::new(rule(Quota::Project, &["nvme"]), both);
    assert!(matches!(lab.of(), FilesystemUse::Taken(_)));
}

#[test]
fn a_set_of_filesystems_takes_no_disk_and_a_set_of_disks_no_filesystem() {
    let host = Arc::new(FakeHost::default());
    host.add_disk("fake0", "SERIAL-1", Geometry { size: SIZE, sector: 512, offloads_zeroes: true });
    let board = FilesystemBoard::default();
    let mut node = start(&host, vec![rule(Quota::Project, &[])], &board).expect("starts");
    let pass = node.passes().expect("a pass");
    assert!(pass.claimed.is_empty() && node.pool.members().is_empty());
}

#[test]
fn what_its_entry_says_later_stops_new_volumes_and_keeps_the_others() {
    let mut lab = Lab::taken();
    lab.create("a", MIB).expect("made");
    name(&lab.board, &[NamedFilesystem { allows_scheduling: false, ..entry("fast", FAST) }]);
    lab.pass();
    lab.create("b", MIB).expect_err("it takes no new ones");
    assert_eq!(lab.node.pool.expand(id("a"), 2 * MIB, None).expect("it may grow").size, 2 * MIB);
    name(&lab.board, &[NamedFilesystem { reserved: Some(100 * MIB), ..entry("fast", FAST) }]);
    lab.pass();
    let view = lab.node.pool.disk_views().remove(0);
    assert_eq!((view.reserved, view.free / MIB), (100 * MIB, SIZE * 98 / 100 / MIB - 102));
    lab.create("b", MIB).expect("made");
}

#[test]
fn a_filesystem_that_is_unmounted_is_missing_and_what_is_on_it_is_neither_made_nor_called_deleted() {
    let mut lab = Lab::taken();
    lab.create("a", 5 * MIB).expect("made");
    let disk = lab.disk();
    unmount(&lab.host, FAST);
    lab.pass();
    assert_eq!(lab.standing(), Standing::Missing);
    let own = lab.host.own_mounts();
    assert!(lab.host.mounts.table().expect("read").iter().all(|mount| !mount.target.starts_with(&own)), "it can go");
    // Another one is at its path.
    mount(&lab.host, "slow", FAST);
    lab.pass();
    assert_eq!(root(&lab.host, "slow", FAST).names(Path::new("")).expect("read"), [""; 0], "nothing is written there");
    for restarted in [false, true] {
        if restarted {
            lab.restart(vec![rule(Quota::Project, &[])]);
            lab.pass();
        }
        assert!(lab.node.pool.usable(id("a")).is_err());
        let why = lab.create("a", 5 * MIB).expect_err("it is away");
        assert!(why.contains(&disk) && why.contains("may be on it") || why.contains("is missing"), "{why}");
        assert!(lab.node.pool.may_be_called_deleted(id("a")).is_err() || lab.node.pool.volume(id("a")).is_ok());
        lab.node.pool.delete(id("a")).expect_err("it is away");
    }
    unmount(&lab.host, FAST);
    mount(&lab.host, "fast", FAST);
    lab.pass();
    assert_eq!(lab.node.pool.usable(id("a")).expect("it is back").size, 5 * MIB);
}

#[test]
fn one_that_has_lost_its_file_is_not_ready_and_not_missing_and_nobody_can_give_it_up() {
    let mut lab = Lab::taken();
    lab.create("a", MIB).expect("made");
    let (disk, config) = (lab.disk(), Path::new(HIS[0]));
    let text = root(&lab.host, "fast", FAST).read(config).expect("read").expect("there");
    root(&lab.host, "fast", FAST).remove_file(config).expect("removed");
    lab.pass();
    let Standing::NotReady(why) = lab.standing() else { panic!("{:?}", lab.standing()) };
    assert!(why.contains("has lost localpool-disk.cfg"), "{why}");
    assert!(lab.node.pool.usable(id("a")).is_err() && lab.create("b", MIB).is_err());
    lab.verb(Verb::GiveUpDisk { disk, run: Run::Real }).expect_err("it is there");
    assert!(root(&lab.host, "fast", FAST).read(config).expect("read").is_none(), "nobody writes it");
    // A claim that cannot be read is there all the same.
    let claim = Path::new("localpool/claim.json");
    let of_pool = root(&lab.host, "fast", FAST).read(claim).expect("read").expect("there");
    root(&lab.host, "fast", FAST).write(claim, "{").expect("written");
    lab.pass();
    let Standing::NotReady(why) = lab.standing() else { panic!("{:?}", lab.standing()) };
    assert!(why.contains("localpool/claim.json there cannot be used"), "{why}");
    let disk = lab.disk();
    lab.verb(Verb::GiveUpDisk { disk, run: Run::Real }).expect_err("it is there");
    root(&lab.host, "fast", FAST).write(claim, &of_pool).expect("put back");
    root(&lab.host, "fast", FAST).write(config, &text).expect("put back");
    lab.pass();
    lab.node.pool.usable(id("a")).expect("it is back");
    // Another filesystem in its place says nothing of it.
    unmount(&lab.host, FAST);
    mount(&lab.host, "slow", FAST);
    lab.pass();
    assert_eq!(lab.standing(), Standing::Missing);
}

#[test]
fn a_filesystem_that_was_mounted_without_quota_or_read_only_is_not_used_and_says_why() {
    let mut lab = Lab::taken();
    lab.create("a", MIB).expect("made");
    let device = Path::new("/dev/fast");
    for (option, why) in [("rw", "mounted without project quota"), ("ro", "read-only")] {
        unmount(&lab.host, FAST);
        lab.host.mounts.mount(device, Path::new(FAST), FsKind::Xfs, &[option.to_owned()]).expect("mounted");
        lab.pass();
        let Standing::NotReady(found) = lab.standing() else { panic!("{option}: {:?}", lab.standing()) };
        assert!(found.contains(why), "{option}: {found}");
        assert!(lab.node.pool.usable(id("a")).is_err() && lab.create("b", MIB).is_err());
    }
    unmount(&lab.host, FAST);
    mount(&lab.host, "fast", FAST);
    lab.pass();
    lab.node.pool.usable(id("a")).expect("it is back");
}

#[test]
fn two_filesystems_with_one_disk_uuid_are_not_used_until_one_of_them_is_another() {
    let mut lab = Lab::taken();
    lab.create("a", MIB).expect("made");
    // A copy.
    let text = root(&lab.host, "fast", FAST).read(Path::new(HIS[0])).expect("read").expect("there");
    mount(&lab.host, "slow", SLOW);
    root(&lab.host, "slow", SLOW).write(Path::new(HIS[0]), &text).expect("written");
    let both = [entry("fast", FAST), entry("slow", SLOW)];
    name(&lab.board, &both);
    lab.pass();
    assert_eq!(lab.standing(), Standing::Ready, "the name that had it first");
    assert_eq!(root(&lab.host, "slow", SLOW).names(Path::new("")).expect("read"), [HIS[0]]);
    // Of two that are new nobody knows which one it is.
    lab.restart(vec![rule(Quota::Project, &[])]);
    lab.pass();
    assert!(lab.node.pool.usable(id("a")).is_err());
    assert_eq!(root(&lab.host, "slow", SLOW).names(Path::new("")).expect("read"), [HIS[0]]);
    name(&lab.board, &both[..1]);
    lab.pass();
    lab.node.pool.usable(id("a")).expect("it is known again");
}

#[test]
fn a_folder_of_the_pools_name_that_is_not_its_own_is_not_used_and_what_it_lost_is_not_made_again() {
    let host = Arc::new(FakeHost::default());
    host.add_disk("fast", "fast", Geometry { size: SIZE, sector: 512, offloads_zeroes: true });
    make(&host, "fast");
    mount(&host, "fast", FAST);
    begin(&host, FAST);
    root(&host, "fast", FAST).make_folder(Path::new("localpool"), 0o777).expect("somebody's");
    let board = FilesystemBoard::default();
    name(&board, &[entry("fast", FAST)]);
    look(&host, &board);
    let mut node = start(&host, vec![rule(Quota::Project, &[])], &board).expect("starts");
    node.passes().expect("a pass");
    let FilesystemUse::Refused(why) = board.use_of(&"fast".into()) else { panic!("it is somebody's") };
    assert!(why.contains("has a folder localpool already"), "{why}");
    assert_eq!(root(&host, "fast", FAST).names(Path::new("localpool")).expect("read"), [""; 0]);

    let mut lab = Lab::taken();
    lab.create("a", MIB).expect("made");
    let its = root(&lab.host, "fast", FAST);
    its.rename(Path::new("localpool"), Path::new("elsewhere")).expect("moved");
    lab.restart(vec![rule(Quota::Project, &[])]);
    lab.pass();
    let FilesystemUse::Refused(why) = lab.of() else { panic!("{:?}", lab.of()) };
    assert!(why.contains("the folder localpool with claim.json is not there"), "{why}");
    assert!(!lab.names().contains(&"localpool".to_owned()) && lab.create("a", MIB).is_err());
    its.rename(Path::new("elsewhere"), Path::new("localpool")).expect("moved back");
    lab.pass();
    lab.node.pool.usable(id("a")).expect("it is back");
}

#[test]
fn what_others_use_is_not_promised_and_their_projects_are_not_taken() {
    let lab = Lab::taken();
    let its = root(&lab.host, "fast", FAST);
    let before = lab.node.pool.disk_views().remove(0).free;
    its.make_folder(Path::new("films"), 0o755).expect("made");
    // The number that a first volume would have.
    its.put_in_project(Path::new("films"), ProjectId::new(1 << 30)).expect("set");
    its.write(Path::new("films/one"), &"x".repeat(40 << 20)).expect("written");
    lab.node.pool.work_until_idle().expect("idle");
    let after = lab.node.pool.disk_views().remove(0).free;
    assert!(before - after > 30 * MIB && before - after <= 40 * MIB, "{before} {after}");
    lab.create("a", MIB).expect("made");
    let of = |name: &str| its.project_of(&Path::new("localpool/volumes").join(id(name).to_string())).expect("asked");
    assert_eq!(of("a"), ProjectId::new((1 << 30) + 1));
    // What volumes of the pool use is theirs already.
    its.write(&Path::new("localpool/volumes").join(id("a").to_string()).join("file"), &"x".repeat(1 << 20))
        .expect("written");
    lab.node.pool.work_until_idle().expect("idle");
    let left = lab.node.pool.disk_views().remove(0).free;
    assert!(left <= after - MIB && left > after - MIB - 4096, "but for the text of its record: {left} {after}");
    // Since it was measured last.
    its.write(Path::new("films/two"), &"x".repeat(100 << 20)).expect("written");
    let most = after - MIB;
    let why = lab.create("b", most / MIB * MIB).expect_err("others have it by now");
    assert!(why.contains("the largest free place has"), "{why}");
    lab.create("b", 50 * MIB).expect("there is room for that");
}

#[test]
fn a_set_without_quota_uses_what_has_none_and_counts_all_that_is_used_as_of_others() {
    let host = Arc::new(FakeHost::default());
    host.mounts.set_quota(FakeQuota::NotInKernel);
    host.add_disk("fast", "fast", Geometry { size: SIZE, sector: 512, offloads_zeroes: true });
    make(&host, "fast");
    host.mounts.mount(Path::new("/dev/fast"), Path::new(FAST), FsKind::Xfs, &[]).expect("mounted");
    begin(&host, FAST);
    let board = FilesystemBoard::default();
    name(&board, &[NamedFilesystem { quota: Quota::None, ..entry("fast", FAST) }]);
    look(&host, &board);
    let mut node = start(&host, vec![rule(Quota::None, &[])], &board).expect("starts");
    node.passes().expect("a pass");
    let before = node.pool.disk_views().remove(0).free;
    node.pool.create(&request("a", XFS, 30 * MIB)).expect("made");
    let its = root(&host, "fast", FAST);
    its.write(&Path::new("localpool/volumes").join(id("a").to_string()).join("file"), &"x".repeat(30 << 20))
        .expect("written");
    node.pool.work_until_idle().expect("idle");
    let after = node.pool.disk_views().remove(0).free;
    assert!(before - after > 50 * MIB, "nobody can tell whose it is: {before} {after}");
}

#[test]
fn a_release_takes_the_pools_folder_and_nothing_else_and_no_set_takes_it_before_a_person_says_so() {
    let mut lab = Lab::taken();
    let disk = lab.disk();
    let release = |run| Verb::ReleaseDisk { disk: disk.clone(), run };
    lab.create("a", MIB).expect("made");
    let why = lab.verb(release(Run::Real)).expect_err("it has a volume");
    assert!(why.contains("still holds 1 volumes"), "{why}");
    lab.node.pool.delete(id("a")).expect("deleted");
    lab.node.pool.work_until_idle().expect("removed");
    let would = lab.verb(release(Run::Dry)).expect("it would");
    assert!(would.contains("would remove folder localpool with claim.json of /mnt/fast"), "{would}");
    assert_eq!(lab.names().len(), 3);
    lab.verb(release(Run::Real)).expect("released");
    assert_eq!(lab.names(), HIS);
    lab.pass();
    assert_eq!((lab.names(), lab.of()), (HIS.map(str::to_owned).to_vec(), FilesystemUse::Released));
    let text = root(&lab.host, "fast", FAST).read(Path::new("photos")).expect("read");
    assert_eq!(text.as_deref(), Some("of the administrator"));
    lab.verb(Verb::AdoptDisk { disk, run: Run::Real }).expect("it may be taken");
    lab.pass();
    lab.create("a", MIB).expect("made");
}

#[test]
fn one_that_is_away_can_be_given_up_and_is_held_when_it_is_back_until_it_is_adopted() {
    let mut lab = Lab::taken();
    lab.create("a", MIB).expect("made");
    let disk = lab.disk();
    let give_up = || Verb::GiveUpDisk { disk: disk.clone(), run: Run::Real };
    let why = lab.verb(give_up()).expect_err("it is there");
    assert!(why.contains("is not missing: the filesystem is mounted there"), "{why}");
    unmount(&lab.host, FAST);
    lab.pass();
    lab.verb(give_up()).expect("given up");
    lab.pass();
    lab.node.pool.may_be_called_deleted(id("a")).expect("nobody waits for it");
    mount(&lab.host, "fast", FAST);
    lab.pass();
    assert_eq!(lab.of(), FilesystemUse::GivenUp);
    assert!(lab.node.pool.usable(id("a")).is_err() && lab.create("b", MIB).is_err());
    lab.restart(vec![rule(Quota::Project, &[])]);
    lab.pass();
    assert!(lab.node.pool.usable(id("a")).is_err(), "it is written there");
    lab.verb(Verb::AdoptDisk { disk, run: Run::Real }).expect("adopted");
    lab.pass();
    lab.node.pool.usable(id("a")).expect("it can be used");
    lab.create("b", MIB).expect("made");
}

#[test]
fn without_its_entry_or_its_set_it_takes_nothing_new_and_after_all_files_of_the_agent_are_lost_it_says_whose_it_is() {
    let mut lab = Lab::taken();
    lab.create("a", MIB).expect("made");
    name(&lab.board, &[]);
    lab.pass();
    assert_eq!(lab.standing(), Standing::Missing);
    name(&lab.board, &[entry("fast", FAST)]);
    lab.pass();
    lab.node.pool.usable(id("a")).expect("it is named again");
    lab.restart(Vec::new());
    lab.pass();
    lab.node.pool.usable(id("a")).expect("it is there without a set, too");
    lab.create("b", MIB).expect_err("nobody offers it");
    let again = Rule { created: 5, ..rule(Quota::Project, &[]) };
    lab.restart(vec![again]);
    lab.pass();
    lab.create("b", MIB).expect("the set is there again");
}
