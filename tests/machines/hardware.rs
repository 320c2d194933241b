//! Disks of NVMe, SCSI, SATA, virtio, USB and older drivers, and what is no disk: kinds, identities, sizes.

use localpool::host::{DevNo, DeviceKind};

use crate::{FS, HERE, machine, shown};

#[test]
fn nvme_namespaces_are_disks_and_hidden_paths_are_not() {
    let m = machine("nvme-server");
    assert_eq!(m.names(), ["nvme0n1", "nvme0n1p1", "nvme0n1p2", "nvme0n2", "nvme1n1"]);
    let first = m.disk("nvme0n1");
    assert_eq!(
        (first.kind.clone(), first.size, first.devno),
        (DeviceKind::Disk, 2_000_398_934_016, DevNo { major: 259, minor: 0 })
    );
    assert_eq!(shown(&first.model), "INTEL SSDPE2KX040T8");
    assert_eq!(shown(&first.serial), "BTLJ918302HG4P0DGN");
    assert_eq!(shown(&first.wwid), "eui.01000000010000005cd2e4b1a2c35051");
    assert_eq!(shown(&m.disk("nvme0n2").wwid), "eui.01000000020000005cd2e4b1a2c35051");
    assert_eq!((shown(&first.transport), shown(&first.state), &first.vendor), ("nvme", "live", &None));
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
        (shown(&boot.part_label), shown(&boot.part_uuid)),
        ("EFI System Partition", "6d1f0c1e-2f2a-4f0e-9b57-0f4f4c9a5a01")
    );
    let DeviceKind::Partition(root) = &m.disk("nvme0n1p2").kind else { panic!("no partition") };
    assert_eq!(shown(&root.part_uuid), "6d1f0c1e-2f2a-4f0e-9b57-0f4f4c9a5a02", "lower case");
    assert_eq!(m.mounts("nvme0n1p2"), [("/", 4026531841, FS)]);
    assert!(m.mounts("nvme0n1").is_empty() && m.mounts("nvme0n2").is_empty());
}

#[test]
fn a_multipath_head_has_the_transport_of_its_controllers_and_names_no_single_one() {
    let m = machine("nvme-server");
    let head = m.disk("nvme1n1");
    assert_eq!((head.kind.clone(), shown(&head.transport), shown(&head.model)), (DeviceKind::Disk, "tcp", "Linux"));
    assert_eq!((shown(&head.wwid), head.numa_node), ("uuid.4a3e5a0d-7a1f-4e9e-8f0a-52d9e6b3c101", None));
    assert_eq!((head.logical_sector, head.size), (4096, 1 << 40));
    assert_eq!(m.links("nvme1n1"), ["disk/by-id/nvme-uuid.4a3e5a0d-7a1f-4e9e-8f0a-52d9e6b3c101"]);
}

#[test]
fn scsi_disks_are_named_from_their_vital_product_data_where_the_kernel_does_not() {
    let m = machine("sas-server");
    assert_eq!(m.names(), ["sda", "sdb", "sdc", "sdd", "sdaa"]);
    let hdd = m.disk("sda");
    assert_eq!((shown(&hdd.serial), shown(&hdd.wwid)), ("ZL20ABCD0000C1234567", "naa.5000c500d6a1b2c3"));
    assert_eq!((shown(&hdd.vendor), shown(&hdd.model)), ("SEAGATE", "ST16000NM002G"));
    assert!(hdd.rotational && !hdd.discards && !hdd.offloads_zeroes);
    assert_eq!((hdd.logical_sector, hdd.physical_sector, hdd.diskseq, hdd.numa_node), (512, 4096, None, Some(1)));
    let ssd = m.disk("sdb");
    assert_eq!((shown(&ssd.serial), shown(&ssd.wwid)), ("Y0A0A0ABT9N8", "naa.58ce38ee21a0b1c9"));
    assert!(!ssd.rotational && ssd.discards && ssd.offloads_zeroes);
    for name in ["sda", "sdb", "sdc", "sdd"] {
        assert_eq!(shown(&m.disk(name).transport), "sas", "{name}");
        assert_eq!(m.disk(name).kind, DeviceKind::Disk, "{name}");
    }
}

#[test]
fn zones_and_states_and_controllers_without_a_bus_are_told() {
    let m = machine("sas-server");
    assert_eq!((shown(&m.disk("sdc").zoned), m.disk("sdc").logical_sector), ("host-managed", 4096));
    assert_eq!(m.disk("sda").zoned, None);
    assert_eq!((shown(&m.disk("sdd").state), m.disk("sdd").read_only), ("offline", true));
    let raid = m.disk("sdaa");
    assert_eq!((&raid.transport, raid.numa_node, shown(&raid.model)), (&None, None, "PERC H740P Mini"));
    assert_eq!(shown(&raid.wwid), "naa.6d0946604d1a2b0025c0ffee0a1b2c3d");
}

#[test]
fn a_laptop_has_a_disk_with_a_dos_table_and_a_rom_drive() {
    let m = machine("sata-laptop");
    assert_eq!(m.names(), ["sda", "sda1", "sda5", "sr0"]);
    let disk = m.disk("sda");
    assert_eq!((shown(&disk.transport), shown(&disk.serial)), ("sata", "S3Z1NB0K123456X"));
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
    assert_eq!((&rom.kind, rom.removable, shown(&rom.serial)), (&DeviceKind::Rom, true, "K9OF1234567"));
    assert_eq!((shown(&rom.transport), shown(&rom.model)), ("sata", "DVDRAM GUD1N"));
}

#[test]
fn a_virtual_machine_without_udev_has_what_sysfs_knows() {
    let m = machine("virtio-vm");
    assert_eq!(m.names(), ["sda", "vda", "vda1", "vdb"]);
    let root = m.disk("vda");
    assert_eq!((&root.serial, shown(&root.vendor), shown(&root.transport)), (&None, "0x1af4", "virtio"));
    assert!(root.discards && !root.offloads_zeroes && root.links.is_empty());
    let data = m.disk("vdb");
    assert_eq!((shown(&data.serial), data.read_only, data.offloads_zeroes), ("data-disk-7", true, true));
    let scsi = m.disk("sda");
    assert_eq!((shown(&scsi.transport), shown(&scsi.serial)), ("virtio", "pvc-1234"));
    assert_eq!(shown(&scsi.wwid), "t10.Google  PersistentDisk  pvc-1234");
    assert_eq!(m.mounts("vda1"), [("/", 4026531841, FS)]);
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
    assert_eq!((shown(&card.model), shown(&card.serial), shown(&card.transport)), ("DG4032", "0x4a1b2c3d", "mmc"));
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
        (&far.wwid, shown(&far.transport), far.rotational),
        (&None, "sata", true),
        "a disk's name is not its partition's"
    );
}

#[test]
fn usb_disks_are_removable_where_they_say_so_and_cannot_drive_a_terminal() {
    let m = machine("usb");
    let stick = m.disk("sda");
    assert_eq!((shown(&stick.transport), stick.removable, shown(&stick.model)), ("usb", true, "Ultra_[2J Fit"));
    assert!(m.disk("sda1").removable, "with its partitions");
    assert_eq!((m.disk("sdb").size, m.disk("sdb").removable), (0, true));
    let drive = m.disk("sdc");
    assert_eq!((drive.removable, shown(&drive.serial)), (false, "575833314"), "the serial is udev's");
    assert_eq!(m.links("sdc"), ["disk/by-id/usb-WD_Elements_25A2_575833314-0:0"]);
}

#[test]
fn in_a_pod_udevs_database_stands_in_for_its_links_and_fills_only_gaps() {
    let m = machine("pod");
    let disk = m.disk("sda");
    assert_eq!((shown(&disk.serial), shown(&disk.wwid)), ("PHDV6400000A480BGN", "naa.55cd2e404b6b0001"));
    assert_eq!(
        m.links("sda"),
        ["disk/by-id/ata-INTEL_SSDSC2BB480G7_PHDV6400000A480BGN", "disk/by-id/wwn-0x55cd2e404b6b0001"],
        "no link outside disk and mapper, none that two devices claim"
    );
    let other = m.disk("sdb");
    assert_eq!((shown(&other.serial), shown(&other.wwid)), ("KRN1", "naa.55cd2e404b6b0002"), "sysfs goes before udev");
    let DeviceKind::Partition(part) = &m.disk("sda1").kind else { panic!("no partition") };
    assert_eq!(
        (shown(&part.part_uuid), shown(&part.part_label)),
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
