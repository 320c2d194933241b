//! What a scan says about twenty-four machines that are kept as text, about a generated one, and about this one.
//!
//! The machines are in fixtures/machines; loop_scan.rs has what needs real devices.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "fixtures/machines/loader.rs"]
mod loader;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use localpool::device::{Attachments, Reach};
use localpool::host::{
    DevNo, DeviceKind, MountHow, MountUse, ProvisionerOffer, RawDisk, Roots, UNSEEN_NAMESPACE, sysfs::scan,
};

struct Machine {
    folder: tempfile::TempDir,
    disks: Vec<RawDisk>,
}

impl Machine {
    fn root(&self) -> &Path {
        self.folder.path()
    }

    fn names(&self) -> Vec<&str> {
        self.disks.iter().map(|disk| disk.name.as_str()).collect()
    }

    fn disk(&self, name: &str) -> &RawDisk {
        self.disks.iter().find(|disk| disk.name == name).unwrap_or_else(|| panic!("no {name} in {:?}", self.names()))
    }

    /// Links without the machine's folder.
    fn links(&self, name: &str) -> Vec<&str> {
        let dev = self.root().join("dev");
        self.disk(name).links.iter().map(|link| link.strip_prefix(&dev).unwrap().to_str().unwrap()).collect()
    }

    fn mounts(&self, name: &str) -> Vec<(&str, u64, MountHow)> {
        let mounts = self.disk(name).mounts.iter();
        mounts.map(|MountUse { target, namespace, how }| (target.to_str().unwrap(), *namespace, *how)).collect()
    }
}

fn texts() -> impl Iterator<Item = (String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/machines");
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    files
        .filter(|file| file.extension().is_some_and(|extension| extension == "txt"))
        .map(|file| (file.file_stem().unwrap().to_str().unwrap().to_owned(), std::fs::read_to_string(&file).unwrap()))
}

fn machine(name: &str) -> Machine {
    let (_, text) = texts().find(|(found, _)| found == name).unwrap_or_else(|| panic!("no machine {name}"));
    let folder = tempfile::tempdir().unwrap();
    loader::build(folder.path(), &text);
    let disks = scan(&Roots::under(folder.path())).unwrap();
    Machine { folder, disks }
}

fn words(text: &Option<String>) -> &str {
    text.as_deref().unwrap_or("-")
}

const HERE: u64 = 4026531840;
const FS: MountHow = MountHow::Filesystem;

#[test]
fn nvme_namespaces_are_disks_and_hidden_paths_are_not() {
    let m = machine("nvme-server");
    assert_eq!(m.names(), ["nvme0n1", "nvme0n1p1", "nvme0n1p2", "nvme0n2", "nvme1n1"]);
    let first = m.disk("nvme0n1");
    assert_eq!(
        (first.kind.clone(), first.size, first.devno),
        (DeviceKind::Disk, 2_000_398_934_016, DevNo { major: 259, minor: 0 })
    );
    assert_eq!(words(&first.model), "INTEL SSDPE2KX040T8");
    assert_eq!(words(&first.serial), "BTLJ918302HG4P0DGN");
    assert_eq!(words(&first.wwid), "eui.01000000010000005cd2e4b1a2c35051");
    assert_eq!(words(&m.disk("nvme0n2").wwid), "eui.01000000020000005cd2e4b1a2c35051");
    assert_eq!((words(&first.transport), words(&first.state), &first.vendor), ("nvme", "live", &None));
    assert_eq!((first.numa_node, first.diskseq), (Some(0), Some(1)));
    assert!(first.offloads_zeroes && first.discards && !first.rotational && !first.removable && !first.read_only);
    assert_eq!(first.partitions, ["nvme0n1p1", "nvme0n1p2"]);
    assert_eq!(
        m.links("nvme0n1"),
        [
            "disk/by-id/nvme-INTEL_SSDPE2KX040T8_BTLJ918302HG4P0DGN_1",
            "disk/by-id/nvme-eui.01000000010000005cd2e4b1a2c35051",
            "disk/by-path/pci-0000:18:00.0-nvme-1"
        ]
    );
    let DeviceKind::Partition(boot) = &m.disk("nvme0n1p1").kind else { panic!("no partition") };
    assert_eq!((boot.disk.as_str(), boot.number, boot.start), ("nvme0n1", 1, 1 << 20));
    assert_eq!(
        (words(&boot.part_label), words(&boot.part_uuid)),
        ("EFI System Partition", "6d1f0c1e-2f2a-4f0e-9b57-0f4f4c9a5a01")
    );
    let DeviceKind::Partition(root) = &m.disk("nvme0n1p2").kind else { panic!("no partition") };
    assert_eq!(words(&root.part_uuid), "6d1f0c1e-2f2a-4f0e-9b57-0f4f4c9a5a02", "lower case");
    assert_eq!(m.mounts("nvme0n1p2"), [("/", 4026531841, FS)]);
    assert!(m.mounts("nvme0n1").is_empty() && m.mounts("nvme0n2").is_empty());
}

#[test]
fn a_multipath_head_has_the_transport_of_its_controllers_and_names_no_single_one() {
    let m = machine("nvme-server");
    let head = m.disk("nvme1n1");
    assert_eq!((head.kind.clone(), words(&head.transport), words(&head.model)), (DeviceKind::Disk, "tcp", "Linux"));
    assert_eq!((words(&head.wwid), head.numa_node), ("uuid.4a3e5a0d-7a1f-4e9e-8f0a-52d9e6b3c101", None));
    assert_eq!((head.logical_sector, head.size), (4096, 1 << 40));
    assert_eq!(m.links("nvme1n1"), ["disk/by-id/nvme-uuid.4a3e5a0d-7a1f-4e9e-8f0a-52d9e6b3c101"]);
}

#[test]
fn scsi_disks_are_named_from_their_vital_product_data_where_the_kernel_does_not() {
    let m = machine("sas-server");
    assert_eq!(m.names(), ["sda", "sdb", "sdc", "sdd", "sdaa"]);
    let hdd = m.disk("sda");
    assert_eq!((words(&hdd.serial), words(&hdd.wwid)), ("ZL20ABCD0000C1234567", "naa.5000c500d6a1b2c3"));
    assert_eq!((words(&hdd.vendor), words(&hdd.model)), ("SEAGATE", "ST16000NM002G"));
    assert!(hdd.rotational && !hdd.discards && !hdd.offloads_zeroes);
    assert_eq!((hdd.logical_sector, hdd.physical_sector, hdd.diskseq, hdd.numa_node), (512, 4096, None, Some(1)));
    let ssd = m.disk("sdb");
    assert_eq!((words(&ssd.serial), words(&ssd.wwid)), ("Y0A0A0ABT9N8", "naa.58ce38ee21a0b1c9"));
    assert!(!ssd.rotational && ssd.discards && ssd.offloads_zeroes);
    for name in ["sda", "sdb", "sdc", "sdd"] {
        assert_eq!(words(&m.disk(name).transport), "sas", "{name}");
        assert_eq!(m.disk(name).kind, DeviceKind::Disk, "{name}");
    }
}

#[test]
fn zones_and_states_and_controllers_without_a_bus_are_told() {
    let m = machine("sas-server");
    assert_eq!((words(&m.disk("sdc").zoned), m.disk("sdc").logical_sector), ("host-managed", 4096));
    assert_eq!(m.disk("sda").zoned, None);
    assert_eq!((words(&m.disk("sdd").state), m.disk("sdd").read_only), ("offline", true));
    let raid = m.disk("sdaa");
    assert_eq!((&raid.transport, raid.numa_node, words(&raid.model)), (&None, None, "PERC H740P Mini"));
    assert_eq!(words(&raid.wwid), "naa.6d0946604d1a2b0025c0ffee0a1b2c3d");
}

#[test]
fn a_laptop_has_a_disk_with_a_dos_table_and_a_rom_drive() {
    let m = machine("sata-laptop");
    assert_eq!(m.names(), ["sda", "sda1", "sda5", "sr0"]);
    let disk = m.disk("sda");
    assert_eq!((words(&disk.transport), words(&disk.serial)), ("sata", "S3Z1NB0K123456X"));
    assert_eq!(
        m.links("sda"),
        ["disk/by-id/ata-Samsung_SSD_860_EVO_500GB_S3Z1NB0K123456X", "disk/by-id/wwn-0x5002538e40a1b2c3"]
    );
    assert_eq!(
        m.links("sda1"),
        [
            "disk/by-id/ata-Samsung_SSD_860_EVO_500GB_S3Z1NB0K123456X-part1",
            "disk/by-uuid/0f9e8d7c-1111-4222-8333-444455556666"
        ]
    );
    let DeviceKind::Partition(root) = &m.disk("sda1").kind else { panic!("no partition") };
    assert_eq!(root.part_uuid, None, "a DOS table's made-up id has the number in it");
    assert!(m.disk("sda5").swap && !m.disk("sda1").swap && !disk.swap);
    let rom = m.disk("sr0");
    assert_eq!((&rom.kind, rom.removable, words(&rom.serial)), (&DeviceKind::Rom, true, "K9OF1234567"));
    assert_eq!((words(&rom.transport), words(&rom.model)), ("sata", "DVDRAM GUD1N"));
}

#[test]
fn a_virtual_machine_without_udev_has_what_sysfs_knows() {
    let m = machine("virtio-vm");
    assert_eq!(m.names(), ["sda", "vda", "vda1", "vdb"]);
    let root = m.disk("vda");
    assert_eq!((&root.serial, words(&root.vendor), words(&root.transport)), (&None, "0x1af4", "virtio"));
    assert!(root.discards && !root.offloads_zeroes && root.links.is_empty());
    let data = m.disk("vdb");
    assert_eq!((words(&data.serial), data.read_only, data.offloads_zeroes), ("data-disk-7", true, true));
    let scsi = m.disk("sda");
    assert_eq!((words(&scsi.transport), words(&scsi.serial)), ("virtio", "pvc-1234"));
    assert_eq!(words(&scsi.wwid), "t10.Google  PersistentDisk  pvc-1234");
    assert_eq!(m.mounts("vda1"), [("/", 4026531841, FS)]);
}

#[test]
fn arrays_know_their_level_state_and_uuid_and_hold_their_members() {
    let m = machine("md-raid");
    assert_eq!(m.names(), ["md0", "md0p1", "md5", "md127", "nvme0n1", "nvme0n2", "sda", "sda1", "sdb", "sdb1"]);
    let md = |name: &str| match &m.disk(name).kind {
        DeviceKind::Md(md) => (words(&md.uuid).to_owned(), words(&md.level).to_owned(), words(&md.state).to_owned()),
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
    assert_eq!((words(&m.disk("dm-0").state), words(&m.disk("dm-3").state)), ("running", "suspended"));
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
            (m.disk(path).holders.as_slice(), words(&m.disk(path).transport)),
            (["dm-0".into()].as_slice(), "fc")
        );
        assert_eq!(words(&m.disk(path).wwid), "naa.624a93704d1a2b3c5d6e7f8000011234");
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
fn memory_floppies_flash_and_unknown_drivers_are_not_disks() {
    let m = machine("memory-and-oddities");
    for (name, kind) in [
        ("zram0", DeviceKind::Zram),
        ("ram0", DeviceKind::Ram),
        ("fd0", DeviceKind::Floppy),
        ("mtdblock0", DeviceKind::Other("mtdblock".into())),
        ("nullb0", DeviceKind::Other("nullb".into())),
        ("mmcblk0", DeviceKind::Disk),
        ("mmcblk0boot0", DeviceKind::Other("mmc boot area".into())),
        ("sdq", DeviceKind::Other("SCSI type 7".into())),
    ] {
        assert_eq!(m.disk(name).kind, kind, "{name}");
        assert_eq!(m.disk(name).unreadable, None, "{name}");
    }
    assert!(m.disk("zram0").swap && m.disk("zram0").logical_sector == 4096);
    let card = m.disk("mmcblk0");
    assert_eq!((words(&card.model), words(&card.serial), words(&card.transport)), ("DG4032", "0x4a1b2c3d", "mmc"));
    assert!(card.partitions.is_empty(), "a boot area is a disk of its own");
}

#[test]
fn sizes_and_starts_count_in_512_bytes_whatever_the_sector() {
    let m = machine("four-k-sectors");
    assert_eq!(m.names(), ["sda", "sda1", "sda2", "sda10"], "partitions by number");
    let disk = m.disk("sda");
    assert_eq!((disk.size, disk.logical_sector), (12_000_138_625_024, 4096));
    assert_eq!(disk.partitions, ["sda1", "sda2", "sda10"]);
    let far = m.disk("sda10");
    let DeviceKind::Partition(place) = &far.kind else { panic!("no partition") };
    assert_eq!((place.number, place.start, far.size, far.logical_sector), (10, 10_995_118_374_912, 4096, 4096));
    assert!(far.read_only && !m.disk("sda1").read_only && !disk.read_only);
    assert_eq!(
        (&far.wwid, words(&far.transport), far.rotational),
        (&None, "sata", true),
        "a disk's name is not its partition's"
    );
}

#[test]
fn usb_disks_are_removable_where_they_say_so_and_cannot_drive_a_terminal() {
    let m = machine("usb");
    let stick = m.disk("sda");
    assert_eq!((words(&stick.transport), stick.removable, words(&stick.model)), ("usb", true, "Ultra_[2J Fit"));
    assert!(m.disk("sda1").removable, "with its partitions");
    assert_eq!((m.disk("sdb").size, m.disk("sdb").removable), (0, true));
    let drive = m.disk("sdc");
    assert_eq!((drive.removable, words(&drive.serial)), (false, "575833314"), "the serial is udev's");
    assert_eq!(m.links("sdc"), ["disk/by-id/usb-WD_Elements_25A2_575833314-0:0"]);
}

#[test]
fn use_is_seen_in_other_namespaces_under_other_names_and_as_a_bare_node() {
    let m = machine("in-use");
    assert_eq!(m.mounts("vda1"), [("/", HERE, FS), ("/host/log", 4026532500, FS)]);
    assert_eq!(m.mounts("vdb"), [("/data", 4026532500, FS)], "once for each namespace");
    let node = ("/var/lib/kubelet/plugins/kubernetes.io~csi/volumeDevices/a b/dev/x", HERE, MountHow::Node);
    assert_eq!(m.mounts("vdc"), [node]);
    assert_eq!(m.mounts("vdd1"), [("/var/lib/kubelet/volumeDevices/y", HERE, MountHow::Node)], "a removed node");
    assert_eq!(m.mounts("vdd"), [("/jail/old", 4026532600, FS)], "all that a jailed process shows of its namespace");
    assert_eq!(m.mounts("vde"), [("/srv/many", HERE, FS)], "by its source, over two links");
    assert!(m.mounts("vdf").is_empty());
    assert!(m.disk("vda2").swap && !m.disk("vda").swap, "a swap whose node was removed");
}

#[test]
fn disks_of_other_machines_are_network_disks() {
    let m = machine("cloud");
    for name in ["nbd0", "nbd1", "rbd0", "drbd1000"] {
        assert_eq!(m.disk(name).kind, DeviceKind::Network, "{name}");
    }
    assert_eq!((m.disk("nbd1").size, m.disk("drbd1000").read_only), (0, true));
    assert_eq!((&m.disk("xvda").kind, &m.disk("xvda").transport), (&DeviceKind::Disk, &None));
    let DeviceKind::Partition(part) = &m.disk("rbd0p1").kind else { panic!("no partition") };
    assert_eq!((part.disk.as_str(), part.start), ("rbd0", 4 << 20));
}

#[test]
fn iscsi_disks_are_told_by_their_session() {
    let m = machine("iscsi");
    let lun = m.disk("sdb");
    assert_eq!((words(&lun.transport), words(&lun.state)), ("iscsi", "running"));
    assert_eq!(words(&lun.serial), "a1b2c3d4-e5f6-0718-293a-4b5c6d7e8f90");
    assert_eq!(words(&lun.wwid), "naa.6001405a1b2c3d4e5f60718293a4b5c6");
    assert_eq!(m.links("sdb"), ["disk/by-path/ip-10.0.0.5:3260-iscsi-iqn.2003-01.org.linux-iscsi:data-lun-1"]);
    assert_eq!((words(&m.disk("sdc").state), m.disk("sdc").read_only), ("transport-offline", true));
}

#[test]
fn cache_disks_are_held_though_sysfs_lists_no_holder() {
    let m = machine("bcache");
    assert_eq!(m.disk("vda").holders, ["bcache0"]);
    assert_eq!(m.disk("vdb").holders, ["bcache0"], "found through the set");
    assert_eq!(m.disk("vdc1").holders, ["bcache"], "a set that serves nobody yet");
    assert!(m.disk("vdc").holders.is_empty());
    assert_eq!(m.disk("bcache0").kind, DeviceKind::Other("bcache".into()));
    assert!(m.disk("bcache0").holders.is_empty(), "what it is made of does not hold it");
}

#[test]
fn every_member_of_a_mounted_btrfs_is_in_use() {
    let m = machine("btrfs");
    assert_eq!(m.mounts("dm-0"), [("/", HERE, FS), ("/home", HERE, FS)]);
    assert_eq!(m.mounts("vda1"), m.mounts("dm-0"), "not the source of the mount, and in it");
    let unseen = ("/sys/fs/btrfs/99999999-8888-7777-6666-555555555555", UNSEEN_NAMESPACE, FS);
    assert_eq!(m.mounts("vdc"), [unseen]);
    assert!(m.mounts("vdd").is_empty() && m.mounts("vda").is_empty());
}

#[test]
fn in_a_pod_udevs_database_stands_in_for_its_links_and_fills_only_gaps() {
    let m = machine("pod");
    let disk = m.disk("sda");
    assert_eq!((words(&disk.serial), words(&disk.wwid)), ("PHDV6400000A480BGN", "naa.55cd2e404b6b0001"));
    assert_eq!(
        m.links("sda"),
        ["disk/by-id/ata-INTEL_SSDSC2BB480G7_PHDV6400000A480BGN", "disk/by-id/wwn-0x55cd2e404b6b0001"],
        "no link outside disk and mapper, none that two devices claim"
    );
    let other = m.disk("sdb");
    assert_eq!((words(&other.serial), words(&other.wwid)), ("KRN1", "naa.55cd2e404b6b0002"), "sysfs goes before udev");
    let DeviceKind::Partition(part) = &m.disk("sda1").kind else { panic!("no partition") };
    assert_eq!(
        (words(&part.part_uuid), words(&part.part_label)),
        ("0e1d2c3b-4a59-6877-8695-a4b3c2d1e0f0", "Microsoft basic data")
    );
    assert_eq!(m.mounts("sda1"), [("/", HERE, FS)], "the host's namespace, through its process 1");
}

#[test]
fn kernel_names_with_a_slash_keep_it() {
    let m = machine("raid-array-of-1999");
    assert_eq!(m.names(), ["cciss/c0d0", "cciss/c0d0p1", "etherd/e1.0"]);
    let disk = m.disk("cciss/c0d0");
    assert_eq!((&disk.kind, disk.path.clone()), (&DeviceKind::Disk, m.root().join("dev/cciss/c0d0")));
    assert_eq!(m.links("cciss/c0d0"), ["disk/by-path/pci-0000:02:00.0-cciss-disk0"]);
    let DeviceKind::Partition(part) = &m.disk("cciss/c0d0p1").kind else { panic!("no partition") };
    assert_eq!((part.disk.as_str(), part.start), ("cciss/c0d0", 63 * 512));
    assert_eq!(m.disk("etherd/e1.0").kind, DeviceKind::Network);
}

#[test]
fn a_device_that_cannot_be_read_says_why_and_stops_only_itself() {
    let m = machine("failing");
    assert_eq!(
        m.names(),
        ["dm-0", "sda", "vda", "vda1", "vdb", "vdc", "vdd", "vde", "vde1", "vdf", "vdg", "vdg1", "vdh", "vdi", "vdi1"]
    );
    let why = |name: &str| words(&m.disk(name).unreadable).to_owned();
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
    loader::build(
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
    loader::nvme_server(folder.path(), 12);
    let roots = Roots::under(folder.path());
    let whole = scan(&roots).unwrap();
    let homes: Vec<_> =
        (0..12).map(|n| std::fs::canonicalize(folder.path().join(format!("sys/block/nvme{n}n1"))).unwrap()).collect();
    let stop = std::sync::atomic::AtomicBool::new(false);
    let (mut seen, mut gone, mut said) = (0, 0, 0);
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
                    Some(_) => said += 1,
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
    assert!(seen > 0 && gone > 0 && said > 0, "whole {seen}, gone {gone}, with something missing {said}");
}

#[test]
fn a_device_that_another_provisioners_link_leads_to_is_on_offer() {
    let m = machine("offered");
    let offered = |name: &str| match &m.disk(name).offered {
        ProvisionerOffer::By(link) => link.strip_prefix(m.root()).unwrap().to_str().unwrap().to_owned(),
        ProvisionerOffer::None => "-".to_owned(),
        ProvisionerOffer::NotKnown(why) => panic!("{name}: {why}"),
    };
    assert_eq!(offered("vda"), "mnt/local-storage/fast/virtio-fast");
    assert_eq!(offered("vdb"), "mnt/disks/b");
    assert_eq!(offered("vdc"), "mnt/fast-disks/c", "through another link");
    assert_eq!((offered("vdd").as_str(), offered("vdd1").as_str()), ("-", "mnt/local-storage/slow/vdd1"));
    assert_eq!(offered("vde"), "-", "a folder of these may be a tenant's filesystem");
}

#[test]
fn where_offers_cannot_be_read_no_device_is_known_to_be_free() {
    let m = machine("offered");
    // A path longer than the limit: an error, also for root.
    let deep = "d".repeat(255);
    let roots = Roots { mnt: m.root().join("mnt").join(vec![deep.as_str(); 17].join("/")), ..Roots::under(m.root()) };
    let disks = scan(&roots).unwrap();
    assert!(
        disks.iter().all(|disk| matches!(&disk.offered, ProvisionerOffer::NotKnown(why) if why.contains("too long")))
    );
    assert!(disks.iter().all(|disk| disk.unreadable.is_none()), "what is ours stays ours");
}

#[test]
fn every_device_of_every_machine_has_a_node_under_its_own_dev() {
    let mut machines = 0;
    for (name, _) in texts() {
        let m = machine(&name);
        machines += 1;
        for disk in &m.disks {
            assert_eq!(disk.path, m.root().join("dev").join(disk.name.as_str()), "{name}");
            assert!(disk.links.iter().all(|link| link.starts_with(m.root())), "{name}");
            if name != "failing" {
                assert_eq!(disk.unreadable, None, "{name}: {}", disk.name);
            }
        }
    }
    assert!(machines >= 24, "{machines}");
}

#[test]
fn disks_over_a_network_are_told_from_those_in_the_machine_and_from_what_only_a_hypervisor_knows() {
    use Reach::{Local, Network, Unknown};
    type Disks = [(&'static str, Reach, &'static str)];
    let expected: [(&str, &Disks); 10] = [
        (
            "aws",
            &[
                ("nvme0n1p1", Network, "Amazon EBS"),
                ("nvme1n1", Network, "Amazon EBS"),
                ("nvme2n1", Local, "Amazon EC2 instance store"),
            ],
        ),
        (
            "gcp",
            &[
                ("sda", Network, "Google Persistent Disk"),
                ("sda1", Network, "Google Persistent Disk"),
                ("sdb", Local, "Google Local SSD"),
                ("nvme0n1", Local, "Google Local SSD"),
                ("nvme1n1", Network, "Google Persistent Disk"),
                ("nvme2n1", Local, "Google Local SSD"),
            ],
        ),
        (
            "azure",
            &[
                ("sda", Unknown, "Azure system disk"),
                ("sdb", Local, "Azure temporary disk"),
                ("sdc", Network, "Azure managed disk"),
                ("sdd", Local, "Azure temporary disk"),
                ("sde", Unknown, "Hyper-V"),
                ("nvme0n2", Network, "Azure managed disk"),
                ("nvme1n1", Local, "Azure local NVMe"),
            ],
        ),
        (
            "fabrics",
            &[
                ("nvme1n1", Network, "NVMe over TCP"),
                ("nvme2n1", Network, "NVMe over RDMA"),
                ("nvme3n1", Network, "NVMe over Fibre Channel"),
                ("sdb1", Network, "Fibre Channel"),
                ("dm-0", Network, "Fibre Channel"),
                ("sda", Local, "-"),
            ],
        ),
        ("iscsi", &[("sdb", Network, "iSCSI"), ("sdc", Network, "iSCSI")]),
        (
            "cloud",
            &[
                ("xvda1", Unknown, "Xen"),
                ("nbd0", Network, "nbd"),
                ("rbd0p1", Network, "Ceph RBD"),
                ("drbd1000", Network, "DRBD"),
            ],
        ),
        ("virtio-vm", &[("vda", Unknown, "virtio")]),
        ("sas-server", &[("sda", Local, "-"), ("sdd", Local, "-")]),
        ("sata-laptop", &[("sda1", Local, "-"), ("sr0", Local, "-")]),
        ("nvme-server", &[("nvme0n1", Local, "-"), ("nvme1n1", Network, "NVMe over TCP")]),
    ];
    for (name, disks) in expected {
        let m = machine(name);
        let attachments = Attachments::new(&m.disks);
        for (disk, reach, by) in disks {
            let found = attachments.of(m.disk(disk));
            assert_eq!((found.reach, found.by.unwrap_or("-")), (*reach, *by), "{name}: {disk}");
        }
    }
}

#[test]
fn what_is_mounted_or_swapped_on_says_what_it_holds() {
    let m = machine("sata-laptop");
    assert_eq!((words(&m.disk("sda1").fs_type), words(&m.disk("sda5").fs_type)), ("ext4", "swap"));
    assert_eq!(words(&m.disk("sda").fs_type), "-");
}

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
        eprintln!("skipped: no lsblk on this machine");
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
    loader::nvme_server(folder.path(), 256);
    let started = std::time::Instant::now();
    let disks = scan(&Roots::under(folder.path())).unwrap();
    eprintln!("scan of 256 disks and 256 partitions: {:?}", started.elapsed());
    assert_eq!(disks.len(), 512);
    let whole: Vec<&RawDisk> = disks.iter().filter(|disk| disk.kind == DeviceKind::Disk).collect();
    assert_eq!((whole.len(), whole[0].name.as_str(), whole[255].name.as_str()), (256, "nvme0n1", "nvme255n1"));
    for disk in whole {
        assert!(disk.links.len() == 2 && disk.partitions.len() == 1 && disk.serial.is_some(), "{disk:?}");
        assert_eq!((words(&disk.transport), disk.unreadable.as_deref()), ("nvme", None));
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
