//! Filesystems that an administrator mounted and named: found by a descriptor of their root, and given a diskUUID.

use std::fs;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _, symlink};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use localpool::agent::{Checkup, Reconciler};
use localpool::claim::{FilesystemChoice, Filter, Rule, sample};
use localpool::device::Owner;
use localpool::device::label::{Layout, Quota};
use localpool::health::{Board, EarlierFilesystems, FilesystemReport, WantedFilesystems};
use localpool::host::{
    Filesystems, FsKind, Mounts, NoMountPoint, RealFilesystems, RealHost, RealMounts, Roots, StateDir, TargetAccess,
    chain,
};
use localpool::pool::{
    CreateRequest, FilesystemReason, NamedFilesystem, Pool, Selector, Standing, WantedUsage, Workers,
};
use localpool::volume::VolumeId;
use localpool_testing::{MIB, run};
use uuid::Uuid;

use crate::fixture::{Loop, Target, mount};
use crate::needs_root;

const CONFIG: &str = "localpool-disk.cfg";

fn with(kind: FsKind) -> Loop {
    let disk = Loop::new(320 * MIB, 512);
    RealFilesystems::default().make(kind, &disk.node, Uuid::new_v4()).unwrap();
    disk
}

fn no_mount_point(path: &Path) -> NoMountPoint {
    RealMounts.mounted_filesystem(path).unwrap().expect_err("no filesystem is mounted there")
}

#[test]
fn loop_only_a_filesystem_that_is_mounted_from_its_root_on_is_found_and_no_link_leads_to_it() {
    needs_root!();
    for kind in [FsKind::Ext4, FsKind::Xfs] {
        let disk = with(kind);
        let [target, part] = ["mnt", "part"].map(|name| Target::new(&disk, name));
        assert_eq!(no_mount_point(&target.0), NoMountPoint::NotMounted);
        assert_eq!(no_mount_point(&disk.file("nowhere")), NoMountPoint::Absent);
        mount(&disk.node, &target, kind);
        let found = RealMounts.mounted_filesystem(&target.0).unwrap().unwrap();
        assert_eq!((found.mount.device, found.mount.fs_type.as_str()), (disk.raw().devno, kind.name()));
        assert!(!found.is_of_system);
        let stat = std::process::Command::new("stat").args(["-f", "-c", "%i"]).arg(&target.0).output().unwrap();
        assert_eq!(String::from_utf8(stat.stdout).unwrap().trim(), format!("{:x}", found.fsid));
        let folder = target.0.join("folder");
        fs::create_dir(&folder).unwrap();
        assert_eq!(no_mount_point(&folder), NoMountPoint::NotMounted, "a folder of it");
        RealMounts.bind(&folder, &part.0, TargetAccess::ReadWrite).unwrap();
        assert_eq!(no_mount_point(&part.0), NoMountPoint::Part);
        let link = disk.file("link");
        symlink(&target.0, &link).unwrap();
        assert_eq!(no_mount_point(&link), NoMountPoint::Link);
        assert_eq!(no_mount_point(&link.join("folder")), NoMountPoint::Link, "on the way");
        let file = disk.file("file");
        fs::write(&file, "").unwrap();
        assert_eq!(no_mount_point(&file), NoMountPoint::NoFolder);
    }
    assert_eq!(no_mount_point(Path::new("/")), NoMountPoint::NotMounted, "it is on top of nothing");
}

#[test]
fn loop_what_is_written_by_a_root_is_never_below_its_mount_point() {
    needs_root!();
    let disk = with(FsKind::Ext4);
    let target = Target::new(&disk, "mnt");
    mount(&disk.node, &target, FsKind::Ext4);
    let found = RealMounts.mounted_filesystem(&target.0).unwrap().unwrap();
    // Between the look and the write somebody takes the mount away.
    RealMounts.detach(&target.0).unwrap();
    found.root.write(Path::new("file"), "text").unwrap();
    drop(found);
    assert_eq!(fs::read_dir(&target.0).unwrap().count(), 0, "nothing is in the folder below");
    mount(&disk.node, &target, FsKind::Ext4);
    assert_eq!(fs::read_to_string(target.0.join("file")).unwrap(), "text");
}

#[test]
fn loop_what_has_the_name_of_a_file_that_is_being_written_is_neither_opened_nor_cut_nor_removed_unless_a_write_left_it()
{
    needs_root!();
    let disk = with(FsKind::Ext4);
    let target = Target::new(&disk, "mnt");
    mount(&disk.node, &target, FsKind::Ext4);
    let root = RealMounts.mounted_filesystem(&target.0).unwrap().unwrap().root;
    let [file, aside, other] = ["file", ".file.new", "other"].map(|name| target.0.join(name));
    let refused = || {
        let error = chain(&root.write(Path::new("file"), "text").expect_err("something has its name"));
        assert!(error.contains(".file.new"), "{error}");
        assert!(!file.exists());
        fs::symlink_metadata(&aside).expect("it is still there");
        run("rm", &["-r", &aside.display().to_string()]);
    };
    fs::write(&other, "theirs").unwrap();
    fs::hard_link(&other, &aside).unwrap();
    refused();
    symlink(&other, &aside).unwrap();
    refused();
    assert_eq!(fs::read_to_string(&other).unwrap(), "theirs");
    // Somebody reads from it, so that nothing would wait to write: the text would go there.
    nix::unistd::mkfifo(&aside, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let mut reader = fs::OpenOptions::new().read(true).custom_flags(nix::libc::O_NONBLOCK).open(&aside).unwrap();
    refused();
    let mut text = String::new();
    std::io::Read::read_to_string(&mut reader, &mut text).unwrap();
    assert_eq!(text, "");
    fs::create_dir(&aside).unwrap();
    refused();
    // A write that was stopped.
    fs::write(&aside, "a longer text, half of it").unwrap();
    root.write(Path::new("file"), "text").unwrap();
    assert_eq!(fs::read_to_string(&file).unwrap(), "text");
    assert!(!aside.exists());
    root.write(Path::new("file"), "another").unwrap();
    assert_eq!(fs::read_to_string(&file).unwrap(), "another");
}

/// The checkups of an agent of this machine that claims no disk, and its passes.
struct Agent {
    checkup: Checkup,
    board: Board,
    pool: Arc<Pool>,
    passes: Reconciler,
    _state: tempfile::TempDir,
}

impl Drop for Agent {
    /// What the pool has mounted must not outlive its folder.
    fn drop(&mut self) {
        for filesystem in self.pool.mounted_filesystems() {
            filesystem.leave_mounted(Standing::Missing);
        }
    }
}

impl Agent {
    fn new() -> Self {
        Self::with(Vec::new())
    }

    fn with(rules: Vec<Rule>) -> Self {
        let state = tempfile::tempdir().unwrap();
        let host = Arc::new(RealHost::new(Roots::default(), RealFilesystems::default(), StateDir::at(state.path())));
        let owner = Owner { cluster: "c".to_owned(), node: "n".into() };
        let pool = Arc::new(Pool::open(host.clone(), owner, Workers::Caller).unwrap());
        let board = Board::default();
        let agent = Reconciler::new(host.clone(), Arc::clone(&pool), Duration::from_secs(3600), rules);
        let mut agent = agent.attending(board.filesystems());
        agent.pass().unwrap();
        let checkup = Checkup::new(host, Arc::clone(&pool), board.clone(), agent.reports());
        Self { checkup, board, pool, passes: agent, _state: state }
    }

    /// Looks until each name is ready, or not ready for that reason; gives the diskUUIDs. A look that takes longer than a
    /// moment, on a machine with other work, is heard by a later checkup.
    fn finds(&mut self, named: &[(&str, &Path)], words: &[&str]) -> Vec<Option<Uuid>> {
        let disk = |(name, path): &(&str, &Path)| NamedFilesystem {
            name: (*name).into(),
            path: path.to_path_buf(),
            quota: Quota::None,
            allows_scheduling: true,
            tags: Default::default(),
            reserved: None,
            stray_fields: Vec::new(),
        };
        let wanted = WantedFilesystems { named: named.iter().map(disk).collect(), defaults: Some(Vec::new()) };
        self.board.filesystems().name(wanted, &EarlierFilesystems::default());
        let word = |report: &FilesystemReport| {
            report.problem.as_ref().map_or("ready", |problem| FilesystemReason::from(problem).word())
        };
        let mut seen = Vec::new();
        for _ in 0..200 {
            self.checkup.run(&(Arc::new(|| {}) as Arc<dyn Fn() + Send + Sync>));
            seen = self.board.filesystems().reports().into_iter().filter_map(|(_, report)| report).collect();
            if seen.iter().map(word).collect::<Vec<_>>() == words {
                return seen.iter().map(|report| report.uuid).collect();
            }
        }
        panic!("not {words:?}, but {seen:?}");
    }
}

#[test]
fn loop_a_named_filesystem_keeps_its_disk_uuid_and_neither_an_unmounted_path_nor_another_disk_gets_one() {
    needs_root!();
    let (one, other) = (with(FsKind::Xfs), with(FsKind::Ext4));
    let target = Target::new(&one, "mnt");
    let mut agent = Agent::new();
    let mut finds = |word| agent.finds(&[("one", &target.0)], &[word])[0];
    let below = || fs::read_dir(&target.0).unwrap().count();
    assert_eq!((finds("NotMounted"), below()), (None, 0));
    mount(&one.node, &target, FsKind::Xfs);
    let uuid = finds("ready");
    let text = fs::read_to_string(target.0.join(CONFIG)).unwrap();
    let id = uuid.expect("it has one").to_string();
    assert!(text.contains(&id) && text.contains("\"node\": \"n\""), "{text}");
    assert_eq!(below(), 1, "nothing else is there");
    assert_eq!(finds("ready"), uuid);
    // A reboot, and the mount is forgotten.
    RealMounts.unmount(&target.0).unwrap();
    assert_eq!((finds("NotMounted"), below()), (uuid, 0));
    // Another disk is mounted there.
    mount(&other.node, &target, FsKind::Ext4);
    assert_eq!(finds("ConfigMissing"), uuid);
    assert!(!target.0.join(CONFIG).exists());
    fs::write(target.0.join(CONFIG), text.replace(&id, &Uuid::new_v4().to_string())).unwrap();
    assert_eq!(finds("WrongDisk"), uuid);
    fs::write(target.0.join(CONFIG), &text[..30]).unwrap();
    assert_eq!(finds("ConfigUnusable"), uuid);
    assert_eq!(fs::read_to_string(target.0.join(CONFIG)).unwrap(), text[..30]);
    RealMounts.unmount(&target.0).unwrap();
    mount(&one.node, &target, FsKind::Xfs);
    assert_eq!(finds("ready"), uuid);
}

#[test]
fn loop_two_names_on_one_filesystem_are_refused_and_a_copy_of_a_disk_has_a_duplicate_uuid() {
    needs_root!();
    let disk = with(FsKind::Ext4);
    let [target, again, third] = ["mnt", "again", "third"].map(|name| Target::new(&disk, name));
    mount(&disk.node, &target, FsKind::Ext4);
    mount(&disk.node, &again, FsKind::Ext4);
    let mut agent = Agent::new();
    let both = [("one", &*target.0), ("other", &*again.0)];
    agent.finds(&both, &["DuplicateFilesystem", "DuplicateFilesystem"]);
    assert!(!target.0.join(CONFIG).exists());
    let uuid = agent.finds(&both[..1], &["ready"])[0];
    assert!(uuid.is_some(), "alone, it is used");
    assert_eq!(agent.finds(&both, &["ready", "DuplicateFilesystem"]), [uuid, None]);
    RealMounts.unmount(&again.0).unwrap();
    RealMounts.unmount(&target.0).unwrap();
    // A copy of all bytes: even its fsid is the same.
    let copy = Loop::new(320 * MIB, 512);
    let (from, to) = (format!("if={}", disk.image.display()), format!("of={}", copy.path()));
    run("dd", &[&from, &to, "bs=1M", "conv=fsync,notrunc", "status=none"]);
    mount(&disk.node, &target, FsKind::Ext4);
    mount(&copy.node, &third, FsKind::Ext4);
    let both = [("copy", &*third.0), ("one", &*target.0)];
    assert_eq!(agent.finds(&both, &["DuplicateUUID", "ready"]), [None, uuid]);
}

/// This kernel has no quota for XFS.
fn of_filesystems() -> Rule {
    let filesystems = Some(FilesystemChoice::default());
    let (layout, filter) = (Layout::Directory { quota: Quota::None }, Filter::any_of(Vec::new()));
    Rule { layout, filter, filesystems, fs: FsKind::Xfs, ..sample::rule("set") }
}

#[test]
fn loop_a_set_has_folders_on_a_named_filesystem_that_can_be_unmounted_and_nothing_is_written_where_it_was() {
    needs_root!();
    let disk = with(FsKind::Xfs);
    let [target, pod] = ["mnt", "pod"].map(|name| Target::new(&disk, name));
    let mut agent = Agent::with(vec![of_filesystems()]);
    let named = [("one", &*target.0)];
    mount(&disk.node, &target, FsKind::Xfs);
    fs::write(target.0.join("photos"), "of the administrator").unwrap();
    agent.finds(&named, &["ready"]);
    agent.passes.pass().unwrap();
    let id = VolumeId::of_name("a");
    let request = CreateRequest {
        id,
        name: "a".to_owned(),
        required: 10 * MIB,
        limit: None,
        usage: WantedUsage::Mount(Some(FsKind::Xfs)),
        parameters: Default::default(),
        selector: Selector::default(),
    };
    let (view, _) = agent.pool.create(&request).unwrap();
    let own = target.0.join("localpool");
    assert_eq!(fs::metadata(&own).unwrap().permissions().mode() & 0o777, 0o700);
    assert!(own.join("volumes").join(id.to_string()).is_dir());
    RealMounts.bind(&view.directory.as_ref().unwrap().path, &pod.0, TargetAccess::ReadWrite).unwrap();
    let of_pod = || RealMounts.table().unwrap().into_iter().find(|mount| mount.target == *pod.0).unwrap();
    assert!(RealMounts.is_from(&of_pod(), view.source()), "{:?}", of_pod());
    fs::write(pod.0.join("file"), "of a tenant").unwrap();
    agent.pool.delete(id).expect_err("a pod has it");
    RealMounts.unmount(&pod.0).unwrap();

    // The pool keeps nobody from that.
    RealMounts.unmount(&target.0).unwrap();
    agent.finds(&named, &["NotMounted"]);
    agent.passes.pass().unwrap();
    assert!(agent.pool.usable(id).is_err() && agent.pool.create(&request).is_err());
    assert_eq!(fs::read_dir(&target.0).unwrap().count(), 0, "nothing is in the folder below");
    let device = disk.raw().devno;
    assert!(RealMounts.table().unwrap().iter().all(|mount| mount.device != device), "it is mounted nowhere");

    mount(&disk.node, &target, FsKind::Xfs);
    agent.finds(&named, &["ready"]);
    agent.passes.pass().unwrap();
    agent.pool.usable(id).unwrap();
    let file = own.join("volumes").join(id.to_string()).join("file");
    assert_eq!(fs::read_to_string(file).unwrap(), "of a tenant");
    agent.pool.delete(id).unwrap();
    agent.pool.work_until_idle().unwrap();
    let member = agent.pool.members().remove(0);
    agent.pool.release(&member).unwrap();
    let mut left: Vec<_> = fs::read_dir(&target.0).unwrap().map(|one| one.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, [CONFIG, "photos"]);
    agent.finds(&named, &["ready"]);
    agent.passes.pass().unwrap();
    assert!(!own.exists() && agent.pool.members().is_empty(), "no set takes it again");
}
