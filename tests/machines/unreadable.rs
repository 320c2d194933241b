//! What cannot be read, or changes while it is read: it says why, and stops nothing else.

use localpool::host::Roots;
use localpool::host::sysfs::scan;
use localpool_testing::machines;

use crate::{machine, shown, texts};

#[test]
fn a_device_that_cannot_be_read_says_why_and_stops_only_itself() {
    let m = machine("failing");
    assert_eq!(
        m.names(),
        ["dm-0", "sda", "vda", "vda1", "vdb", "vdc", "vdd", "vde", "vde1", "vdf", "vdg", "vdg1", "vdh", "vdi", "vdi1"]
    );
    let why = |name: &str| shown(&m.disk(name).unreadable).to_owned();
    assert_eq!(why("vda"), "size cannot be read: Is a directory (os error 21)");
    assert_eq!(why("vda1"), "its disk vda: size cannot be read: Is a directory (os error 21)");
    assert_eq!(why("vdb"), "ro is missing");
    assert_eq!(why("vdc"), "size is 36028797018963968 sectors, which no disk has");
    assert_eq!(why("vdd"), "queue/logical_block_size is `none`, not a number in range");
    assert_eq!(why("dm-0"), "dm/suspended is missing");
    assert_eq!((why("vde"), why("vde1")), ("-".into(), "size is missing".into()), "a partition stops only itself");
    let wwid =
        "vpd_pg80 cannot be read: Is a directory (os error 21); wwid cannot be read: Is a directory (os error 21)";
    assert_eq!(why("sda"), wwid, "or it would be taken for another disk");
    assert_eq!(m.disk("vdg").partitions, ["vdg1"], "a partition that cannot be read is one");
    assert_eq!(why("vdg1"), "its directory in sysfs cannot be read: Not a directory (os error 20)");
    assert_eq!(why("vdh"), "its record of udev cannot be read: Is a directory (os error 21)");
    assert!(m.disk("vdi1").read_only && m.disk("vdi1").unreadable.is_none());
    assert_eq!(why("vdf"), "dev is missing; dev is ``, not a device number");
}

#[test]
fn a_mount_table_that_makes_no_sense_leaves_no_device_known_to_be_free() {
    let folder = tempfile::tempdir().unwrap();
    let (_, text) = texts().find(|(name, _)| name == "cloud").unwrap();
    machines::build(
        folder.path(),
        &format!("{text}[mounts 7 4026532111]\n| 1 1 8:1 / /x rw - ext4 /dev/sda1 rw\n| what is this\n"),
    );
    let disks = scan(&Roots::under(folder.path())).unwrap();
    for disk in &disks {
        let why = disk.unreadable.as_deref().unwrap();
        assert_eq!(
            why,
            "the mounts of namespace 4026532111 cannot be parsed: line 2: no device number in the third field"
        );
    }
    let table = folder.path().join("proc/7/mountinfo");
    std::fs::remove_file(&table).unwrap();
    assert!(scan(&Roots::under(folder.path())).unwrap().iter().all(|disk| disk.unreadable.is_none()), "it has ended");
    std::fs::create_dir(&table).unwrap();
    let error = scan(&Roots::under(folder.path())).unwrap_err();
    assert!(error.to_string().ends_with("proc/7"), "{error}");
    std::fs::remove_dir_all(folder.path().join("proc/self")).unwrap();
    std::fs::remove_dir_all(folder.path().join("proc/7")).unwrap();
    let error = scan(&Roots::under(folder.path())).unwrap_err();
    assert!(error.to_string().ends_with("proc/self/mountinfo"), "{error}");
}

#[test]
fn a_sysfs_that_changes_while_it_is_read_gives_devices_that_are_whole_or_say_what_is_missing() {
    let folder = tempfile::tempdir().unwrap();
    machines::nvme_server(folder.path(), 12);
    let roots = Roots::under(folder.path());
    let whole = scan(&roots).unwrap();
    let homes: Vec<_> =
        (0..12).map(|n| std::fs::canonicalize(folder.path().join(format!("sys/block/nvme{n}n1"))).unwrap()).collect();
    let stop = std::sync::atomic::AtomicBool::new(false);
    let (mut seen, mut gone, mut output) = (0, 0, 0);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            // Whole disks leave and come back, and lose a file for a moment.
            for n in (0..homes.len()).cycle() {
                if stop.load(std::sync::atomic::Ordering::Relaxed) {
                    return;
                }
                let away = homes[n].with_extension("away");
                std::fs::rename(&homes[n], &away).unwrap();
                std::thread::yield_now();
                std::fs::rename(&away, &homes[n]).unwrap();
                let size = homes[n].join("size");
                let kept = std::fs::read(&size).unwrap();
                std::fs::remove_file(&size).unwrap();
                std::thread::yield_now();
                std::fs::write(&size, kept).unwrap();
            }
        });
        for _ in 0..300 {
            let disks = scan(&roots).unwrap();
            gone += whole.len() - disks.len();
            for disk in &disks {
                match &disk.unreadable {
                    Some(_) => output += 1,
                    None => {
                        let before = whole.iter().find(|before| before.name == disk.name).unwrap();
                        assert_eq!((disk.size, disk.devno, &disk.kind), (before.size, before.devno, &before.kind));
                        assert_eq!(disk.wwid, before.wwid, "{}", disk.name);
                        seen += 1;
                    }
                }
            }
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    assert!(seen > 0 && gone > 0 && output > 0, "whole {seen}, gone {gone}, with something missing {output}");
}
