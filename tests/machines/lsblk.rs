//! The same devices as lsblk sees them, on the machines of text, on this one, and on a server of 256 disks.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use localpool::host::sysfs::scan;
use localpool::host::{DeviceKind, RawDisk, Roots};
use localpool_testing::{machines, skipped};

use crate::{machine, shown, texts};

/// Name, size, read-only, removable, rotational, sectors: what both lsblk and we read.
type Facts = BTreeSet<(String, u64, bool, bool, bool, u32, u32)>;

fn ours(disks: &[RawDisk]) -> Facts {
    let facts = |disk: &RawDisk| {
        let RawDisk { size, read_only, removable, rotational, logical_sector, physical_sector, .. } = *disk;
        (disk.name.to_string(), size, read_only, removable, rotational, logical_sector, physical_sector)
    };
    disks.iter().map(facts).collect()
}

fn lsblk(sysroot: Option<&Path>) -> Option<Facts> {
    let mut command = Command::new("lsblk");
    command.args(["-a", "-b", "-r", "-n", "-o", "KNAME,SIZE,RO,RM,ROTA,LOG-SEC,PHY-SEC"]);
    if let Some(sysroot) = sysroot {
        command.arg("--sysroot").arg(sysroot);
    }
    let Ok(output) = command.output() else {
        skipped("needs lsblk");
        return None;
    };
    let text = String::from_utf8(output.stdout).unwrap();
    let parse = |line: &str| {
        let [name, size, ro, rm, rota, logical, physical] = line.split(' ').collect::<Vec<_>>()[..] else {
            panic!("lsblk says {line}")
        };
        let number = |text: &str| text.parse::<u32>().unwrap();
        let flag = |text: &str| number(text) != 0;
        (name.to_owned(), size.parse().unwrap(), flag(ro), flag(rm), flag(rota), number(logical), number(physical))
    };
    Some(text.lines().map(parse).collect())
}

#[test]
fn this_machine_is_as_lsblk_sees_it() {
    // Meanwhile other tests bind loop devices: only devices that were the same before and after are compared, also by
    // their sequence number.
    let before = scan(&Roots::default()).unwrap();
    let theirs = lsblk(None);
    let after = scan(&Roots::default()).unwrap();
    let still: Vec<RawDisk> = before.into_iter().filter(|disk| after.contains(disk)).collect();
    assert!(!still.is_empty(), "{after:?}");
    assert!(still.iter().all(|disk| disk.unreadable.is_none()), "{still:?}");
    let Some(theirs) = theirs else { return };
    let ours = ours(&still);
    let names: BTreeSet<&String> = ours.iter().map(|(name, ..)| name).collect();
    let theirs: Facts = theirs.into_iter().filter(|(name, ..)| names.contains(name)).collect();
    assert_eq!(ours, theirs);
}

#[test]
fn the_machines_are_as_lsblk_sees_them() {
    for (name, _) in texts().filter(|(name, _)| name != "failing") {
        let m = machine(&name);
        if let Some(theirs) = lsblk(Some(m.root())) {
            assert_eq!(ours(&m.disks), theirs, "{name}");
        }
    }
}

#[test]
fn a_server_of_256_disks_is_read_whole() {
    let folder = tempfile::tempdir().unwrap();
    machines::nvme_server(folder.path(), 256);
    let started = std::time::Instant::now();
    let disks = scan(&Roots::under(folder.path())).unwrap();
    eprintln!("scan of 256 disks and 256 partitions: {:?}", started.elapsed());
    assert_eq!(disks.len(), 512);
    let whole: Vec<&RawDisk> = disks.iter().filter(|disk| disk.kind == DeviceKind::Disk).collect();
    assert_eq!((whole.len(), whole[0].name.as_str(), whole[255].name.as_str()), (256, "nvme0n1", "nvme255n1"));
    for disk in whole {
        assert!(disk.links.len() == 2 && disk.partitions.len() == 1 && disk.serial.is_some(), "{disk:?}");
        assert_eq!((shown(&disk.transport), disk.unreadable.as_deref()), ("nvme", None));
        assert!(matches!(disk.numa_node, Some(0 | 1)));
    }
    assert_eq!(disks.iter().flat_map(|disk| &disk.wwid).collect::<BTreeSet<_>>().len(), 256);
    assert!(
        disks.iter().filter(|disk| !disk.mounts.is_empty()).all(|disk| matches!(disk.kind, DeviceKind::Partition(_)))
    );
    if let Some(theirs) = lsblk(Some(folder.path())) {
        assert_eq!(ours(&disks), theirs);
    }
}
