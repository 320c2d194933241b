//! What a scan and the kernel's events say about real devices. Needs root; makes its own image files.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use localpool::host::{DeviceEvent, DeviceEvents, DeviceKind, MountHow, RawDisk, Roots, sysfs::scan};

/// Runs a command that must succeed, and returns its output.
fn run(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).output().unwrap();
    assert!(output.status.success(), "{program} {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

fn root() -> bool {
    let root = nix::unistd::geteuid().is_root();
    if !root {
        eprintln!("skipped: needs root for loop devices");
    }
    root
}

/// A loop device on an image; detached, with all mounts below its folder, when dropped.
struct Loop {
    folder: tempfile::TempDir,
    node: String,
}

impl Loop {
    fn attach() -> Self {
        Self::of(16 << 20)
    }

    fn of(size: u64) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let image = folder.path().join("disk.img");
        std::fs::File::create(&image).unwrap().set_len(size).unwrap();
        let node = run("losetup", &["-f", "--show", image.to_str().unwrap()]);
        let _ = Command::new("partx").args(["-d", &node]).stderr(Stdio::null()).status();
        Self { folder, node }
    }

    fn name(&self) -> &str {
        self.node.strip_prefix("/dev/").unwrap()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A second node of the device, in a folder of its own.
    fn plain_node(&self) -> PathBuf {
        let devno = self.scanned().devno;
        let node = self.path("node");
        run("mknod", &[node.to_str().unwrap(), "b", &devno.major.to_string(), &devno.minor.to_string()]);
        node
    }

    fn scanned(&self) -> RawDisk {
        scanned(self.name())
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        for name in ["mnt", "target"] {
            let _ = Command::new("umount").arg("-l").arg(self.path(name)).stderr(Stdio::null()).status();
        }
        // A partition that stays mapped would come back with the next user of the device.
        let _ = Command::new("partx").args(["-d", &self.node]).stderr(Stdio::null()).status();
        let _ = Command::new("losetup").args(["-d", &self.node]).status();
    }
}

fn scanned(name: &str) -> RawDisk {
    scan(&Roots::default()).unwrap().into_iter().find(|disk| disk.name == name).unwrap()
}

/// Waits until no namespace has a mount of the device: a process that another test starts may have copied ours.
fn unmounted(disk: &Loop) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !disk.scanned().mounts.is_empty() {
        assert!(Instant::now() < deadline, "{:?}", disk.scanned().mounts);
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A process that ends with the test.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn loop_a_device_is_known_by_its_file_also_where_no_path_leads_to_it() {
    use std::os::unix::fs::MetadataExt;
    if !root() {
        return;
    }
    let disk = Loop::attach();
    let file = std::fs::metadata(disk.path("disk.img")).unwrap();
    // Another filesystem on top, with another file of that name, as a container would see it.
    let folder = disk.folder.path().to_str().unwrap();
    run("mount", &["-t", "tmpfs", "localpool-test", folder]);
    std::fs::write(disk.path("disk.img"), "another file").unwrap();
    let seen = disk.scanned();
    run("umount", &[folder]);
    let DeviceKind::Loop(Some(backing)) = seen.kind else { panic!("{:?}", seen.kind) };
    assert_eq!(backing.inode, Some((file.dev(), file.ino())));
}

#[test]
fn loop_a_bound_device_shows_its_file_its_size_and_the_partitions_that_the_kernel_maps() {
    if !root() {
        return;
    }
    use std::os::unix::fs::MetadataExt;
    let disk = Loop::attach();
    run("addpart", &[&disk.node, "3", "2048", "4096"]);
    let seen = disk.scanned();
    let file = std::fs::metadata(disk.path("disk.img")).unwrap();
    let DeviceKind::Loop(Some(backing)) = &seen.kind else { panic!("{seen:?}") };
    assert_eq!((backing.inode, backing.deleted, seen.size), (Some((file.dev(), file.ino())), false, 16 << 20));
    assert_eq!(seen.partitions, [&*format!("{}p3", disk.name())]);
    let part = scanned(&seen.partitions[0]);
    let DeviceKind::Partition(place) = &part.kind else { panic!("{part:?}") };
    assert_eq!((place.number, place.start, part.size, part.unreadable), (3, 1 << 20, 2 << 20, None));
    run("delpart", &[&disk.node, "3"]);
    assert!(disk.scanned().partitions.is_empty());
    std::fs::remove_file(disk.path("disk.img")).unwrap();
    let DeviceKind::Loop(Some(backing)) = disk.scanned().kind else { panic!("no file") };
    assert_eq!((backing.file, backing.deleted), (disk.path("disk.img"), true));
}

#[test]
fn loop_a_filesystem_mounted_only_in_another_namespace_is_seen() {
    if !root() {
        return;
    }
    let disk = Loop::attach();
    run("mkfs.ext4", &["-q", &disk.node]);
    std::fs::create_dir(disk.path("mnt")).unwrap();
    assert!(disk.scanned().mounts.is_empty());
    let script = "mount -t ext4 \"$0\" \"$1\" && echo mounted && exec sleep 60";
    let mnt = disk.path("mnt");
    let child = Command::new("unshare")
        .args(["-m", "--propagation", "private", "sh", "-c", script, &disk.node, mnt.to_str().unwrap()])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut process = Process(child);
    let mut line = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(process.0.stdout.take().unwrap()), &mut line).unwrap();
    assert_eq!(line, "mounted\n");
    let seen = disk.scanned().mounts;
    assert_eq!(seen.len(), 1, "{seen:?}");
    assert_eq!((seen[0].target.as_path(), seen[0].how), (mnt.as_path(), MountHow::Filesystem));
    let ours = std::fs::read_link("/proc/self/ns/mnt").unwrap();
    assert_ne!(ours, Path::new(&format!("mnt:[{}]", seen[0].namespace)));
    drop(process);
    unmounted(&disk);
}

#[test]
fn loop_a_device_node_that_is_bind_mounted_is_seen_from_dev_and_from_a_plain_folder() {
    if !root() {
        return;
    }
    let disk = Loop::attach();
    let target = disk.path("target");
    std::fs::write(&target, "").unwrap();
    let plain = disk.plain_node();
    for source in [Path::new(&disk.node), &plain] {
        run("mount", &["--bind", source.to_str().unwrap(), target.to_str().unwrap()]);
        let seen = disk.scanned().mounts;
        let here: Vec<_> = seen.iter().filter(|seen| seen.target == target && seen.how == MountHow::Node).collect();
        assert!(!here.is_empty(), "{}: {seen:?}", source.display());
        run("umount", &[target.to_str().unwrap()]);
        unmounted(&disk);
    }
}

#[test]
fn loop_a_swap_device_is_seen_until_it_is_turned_off() {
    if !root() {
        return;
    }
    let disk = Loop::attach();
    run("mkswap", &[&disk.node]);
    assert!(!disk.scanned().swap);
    for node in [&disk.node, disk.plain_node().to_str().unwrap()] {
        run("swapon", &[node]);
        let seen = disk.scanned().swap;
        run("swapoff", &[node]);
        assert!(seen && !disk.scanned().swap, "{node}");
    }
}

#[test]
fn loop_both_disks_of_a_btrfs_are_in_use_while_one_is_mounted() {
    if !root() {
        return;
    }
    let (first, second) = (Loop::of(256 << 20), Loop::of(256 << 20));
    run("mkfs.btrfs", &["-q", "-d", "raid1", "-m", "raid1", &first.node, &second.node]);
    let mnt = first.path("mnt");
    std::fs::create_dir(&mnt).unwrap();
    assert!(first.scanned().mounts.is_empty() && second.scanned().mounts.is_empty());
    run("mount", &["-t", "btrfs", "-o", &format!("device={}", second.node), &first.node, mnt.to_str().unwrap()]);
    for disk in [&first, &second] {
        let seen = disk.scanned().mounts;
        assert!(seen.iter().any(|seen| seen.target == mnt && seen.how == MountHow::Filesystem), "{seen:?}");
    }
    run("umount", &[mnt.to_str().unwrap()]);
    unmounted(&first);
    unmounted(&second);
}

/// Every socket of the machine gets the flood below, so nobody counts events during it.
static EVENTS: Mutex<()> = Mutex::new(());

#[test]
fn loop_attaching_a_device_makes_a_hint_that_names_it() {
    if !root() {
        return;
    }
    let _alone = EVENTS.lock().unwrap_or_else(PoisonError::into_inner);
    let events = DeviceEvents::subscribe(&Roots::default()).unwrap();
    let disk = Loop::attach();
    let wanted = DeviceEvent::Changed { name: disk.name().into() };
    let deadline = Instant::now() + Duration::from_secs(10);
    while Instant::now() < deadline {
        match events.next(Duration::from_secs(1)).unwrap() {
            Some(DeviceEvent::Overflow) => panic!("overflow of a few events"),
            hint if hint == Some(wanted.clone()) => return,
            _ => {}
        }
    }
    panic!("no event named {} within 10 s", disk.name());
}

#[test]
fn loop_events_that_nobody_reads_become_an_overflow_and_then_flow_again() {
    if !root() {
        return;
    }
    let _alone = EVENTS.lock().unwrap_or_else(PoisonError::into_inner);
    let events = DeviceEvents::subscribe(&Roots::default()).unwrap();
    let disk = Loop::attach();
    let trigger = format!("/sys/block/{}/uevent", disk.name());
    // More than any buffer holds, while nobody reads.
    for _ in 0..20_000 {
        std::fs::write(&trigger, "change").unwrap();
    }
    let mut overflows = 0;
    while let Some(hint) = events.next(Duration::from_millis(100)).unwrap() {
        overflows += u32::from(hint == DeviceEvent::Overflow);
    }
    assert!(overflows > 0);
    std::fs::write(&trigger, "change").unwrap();
    assert!(events.next(Duration::from_secs(5)).unwrap().is_some());
}
