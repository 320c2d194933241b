//! Devices that are made of others: arrays, mappings, multipath, loop devices, caches.

use localpool::host::DeviceKind;

use crate::{FS, HERE, machine, shown};

#[test]
fn arrays_know_their_level_state_and_uuid_and_hold_their_members() {
    let m = machine("md-raid");
    assert_eq!(m.names(), ["md0", "md0p1", "md5", "md127", "nvme0n1", "nvme0n2", "sda", "sda1", "sdb", "sdb1"]);
    let md = |name: &str| match &m.disk(name).kind {
        DeviceKind::Md(md) => (shown(&md.uuid).to_owned(), shown(&md.level).to_owned(), shown(&md.state).to_owned()),
        other => panic!("{name} is {other:?}"),
    };
    let text = |a: &str, b: &str, c: &str| (a.to_owned(), b.to_owned(), c.to_owned());
    assert_eq!(md("md0"), text("3c2b1a09-8f7e-6d5c-4b3a-291807f6e5d4", "raid1", "clean"));
    assert_eq!(md("md127"), text("00112233-4455-6677-8899-aabbccddeeff", "raid0", "active"), "from udev");
    assert_eq!(md("md5"), text("-", "-", "inactive"));
    assert_eq!(m.disk("md0").slaves, ["sda1", "sdb1"]);
    assert_eq!(m.disk("md127").slaves, ["nvme0n1", "nvme0n2"]);
    assert_eq!((&m.disk("sda1").holders, &m.disk("nvme0n2").holders), (&vec!["md0".into()], &vec!["md127".into()]));
    assert!(m.disk("sda").holders.is_empty(), "the partition is held, not the disk");
    assert_eq!(m.links("md0"), ["disk/by-id/md-uuid-3c2b1a09:8f7e6d5c:4b3a2918:07f6e5d4"]);
    assert_eq!(m.links("md127"), ["disk/by-id/md-uuid-00112233:44556677:8899aabb:ccddeeff"], "from udev");
    assert_eq!((m.mounts("md0p1"), m.disk("md5").size), (vec![("/", HERE, FS)], 0));
    assert_eq!(m.disk("md0").transport, None);
}

#[test]
fn mappings_know_their_name_uuid_and_suspension_and_are_found_by_every_name() {
    let m = machine("dm");
    let dm = |name: &str| match &m.disk(name).kind {
        DeviceKind::Dm(dm) => (dm.name.clone(), dm.uuid.get(..4).unwrap_or("").to_owned(), dm.suspended),
        other => panic!("{name} is {other:?}"),
    };
    assert_eq!(dm("dm-0"), ("vg0-root".into(), "LVM-".into(), false));
    assert_eq!(dm("dm-2"), ("luks-data".into(), "CRYP".into(), false));
    assert_eq!(dm("dm-3"), ("frozen".into(), "".into(), true));
    assert_eq!((shown(&m.disk("dm-0").state), shown(&m.disk("dm-3").state)), ("running", "suspended"));
    assert_eq!(m.disk("sda1").holders, ["dm-0", "dm-1"]);
    assert_eq!(
        (m.disk("dm-3").slaves.clone(), m.disk("dm-2").holders.clone()),
        (vec!["dm-2".into()], vec!["dm-3".into()])
    );
    assert!(m.disk("dm-1").swap && m.disks.iter().filter(|disk| disk.swap).count() == 1, "a swap file is no device");
    assert_eq!(m.mounts("dm-0"), [("/", HERE, FS)]);
    assert_eq!(m.mounts("dm-2"), [("/srv/data of all", HERE, FS)]);
    assert_eq!(m.links("dm-0"), ["disk/by-id/dm-name-vg0-root", "mapper/vg0-root"]);
    assert_eq!(m.links("dm-2"), ["mapper/luks-data"], "a node that libdevmapper made itself");
    assert_eq!(m.links("sda1"), ["disk/by-id/lvm-pv-uuid-xYz"]);
    assert!(m.disk("dm-3").read_only && m.disk("dm-3").unreadable.is_none());
}

#[test]
fn both_paths_of_a_multipath_map_are_held_by_it() {
    let m = machine("multipath");
    for path in ["sda", "sdb"] {
        assert_eq!(
            (m.disk(path).holders.as_slice(), shown(&m.disk(path).transport)),
            (["dm-0".into()].as_slice(), "fc")
        );
        assert_eq!(shown(&m.disk(path).wwid), "naa.624a93704d1a2b3c5d6e7f8000011234");
    }
    let DeviceKind::Dm(map) = &m.disk("dm-0").kind else { panic!("no map") };
    assert_eq!(map.uuid, "mpath-3624a93704d1a2b3c5d6e7f8000011234");
    assert_eq!((m.disk("dm-0").slaves.len(), m.disk("dm-0").holders.as_slice()), (2, ["dm-1".into()].as_slice()));
    assert!(m.links("sda").is_empty(), "the links of the unit are the map's");
    assert_eq!(m.links("dm-0").len(), 3);
}

#[test]
fn loop_devices_tell_bound_from_unbound_and_deleted_from_merely_called_so() {
    use std::os::unix::fs::MetadataExt;
    let m = machine("loops");
    assert_eq!(m.names(), ["loop0", "loop0p1", "loop1", "loop2", "loop10"]);
    let backing = |name: &str| match &m.disk(name).kind {
        DeviceKind::Loop(backing) => backing.clone(),
        other => panic!("{name} is {other:?}"),
    };
    let file = std::fs::metadata(m.root().join("srv/disk.img")).unwrap();
    let bound = backing("loop0").unwrap();
    assert_eq!(
        (bound.file, bound.inode, bound.deleted),
        (m.root().join("srv/disk.img"), Some((file.dev(), file.ino())), false)
    );
    let gone = backing("loop1").unwrap();
    assert_eq!((gone.file, gone.inode, gone.deleted), (m.root().join("srv/gone.img"), None, true));
    let odd = backing("loop2").unwrap();
    assert_eq!((odd.file, odd.deleted), (m.root().join("srv/really (deleted)"), false));
    assert!(odd.inode.is_some() && m.disk("loop2").read_only);
    assert_eq!((backing("loop10"), m.disk("loop10").size, m.disk("loop10").diskseq), (None, 0, None));
    assert_eq!(m.disk("loop0").partitions, ["loop0p1"]);
    assert!(
        m.disk("loop0p1").offloads_zeroes && m.disk("loop0p1").diskseq == Some(8),
        "a partition has its disk's queue"
    );
}

#[test]
fn cache_disks_are_held_though_sysfs_lists_no_holder() {
    let m = machine("bcache");
    assert_eq!(m.disk("vda").holders, ["bcache0"]);
    assert_eq!(m.disk("vdb").holders, ["bcache0"], "found through the set");
    assert_eq!(m.disk("vdc1").holders, ["bcache"], "a set that serves nobody yet");
    assert!(m.disk("vdc").holders.is_empty());
    assert_eq!(m.disk("bcache0").kind, DeviceKind::Other("bcache".into()));
    assert!(m.disk("bcache0").holders.is_empty(), "its backing device does not hold it");
}
