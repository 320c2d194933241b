//! What a probe finds, compared with what the real tools make.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::process::{Command, Stdio};

use localpool::host::{BlockDevice, Filesystems, PartitionMap, Probe, ProbeResult, RealFilesystems, signature};
use localpool_testing::{MIB, run};

use crate::fixture::{Loop, SECTORS, extent};
use crate::needs_root;

fn probed(disk: &Loop) -> ProbeResult {
    match signature::probe(&disk.raw()) {
        Probe::Read(contents) => contents,
        other => panic!("{other:?}"),
    }
}

fn kinds(disk: &Loop) -> Vec<String> {
    probed(disk).signatures.into_iter().map(|signature| signature.kind).collect()
}

fn write(disk: &Loop, offset: u64, data: &[u8]) {
    OpenOptions::new().write(true).open(&disk.node).unwrap().write_all_at(data, offset).unwrap();
}

/// The label sector of an LVM physical volume, its checksum left zero.
fn physical_volume() -> [u8; 512] {
    let mut header = [0_u8; 512];
    header[..8].copy_from_slice(b"LABELONE");
    header[8] = 1;
    header[20] = 32;
    header[24..32].copy_from_slice(b"LVM2 001");
    header[32..64].copy_from_slice(b"abcdefghijklmnopqrstuvwxyz012345");
    header
}

#[test]
fn loop_a_blank_disk_has_nothing_and_is_busy_only_while_somebody_holds_it() {
    needs_root!();
    for sector in SECTORS {
        let disk = Loop::new(64 * MIB, sector);
        assert_eq!(probed(&disk), ProbeResult::default());
        let holder = OpenOptions::new().read(true).custom_flags(nix::libc::O_EXCL).open(&disk.node).unwrap();
        assert_eq!(probed(&disk), ProbeResult { busy: true, ..ProbeResult::default() });
        drop(holder);
        assert_eq!(probed(&disk), ProbeResult::default());
    }
}

#[test]
fn loop_filesystems_and_swap_are_recognised_with_label_and_uuid() {
    needs_root!();
    const UUID: &str = "6a52ad1e-1b6c-4c86-9d22-0c1ad0f1f5aa";
    for sector in SECTORS {
        for (program, args, kind, usage) in [
            ("mkfs.ext4", ["-q", "-L", "data", "-U", UUID].as_slice(), "ext4", "filesystem"),
            ("mkfs.xfs", &["-q", "-L", "data", "-m", &format!("uuid={UUID}")], "xfs", "filesystem"),
            ("mkfs.btrfs", &["-q", "-L", "data", "-U", UUID], "btrfs", "filesystem"),
            ("mkswap", &["-L", "data", "-U", UUID], "swap", "other"),
        ] {
            let disk = Loop::new(320 * MIB, sector);
            run(program, &[args, &[disk.path()]].concat());
            let found = probed(&disk);
            let [one] = &found.signatures[..] else { panic!("{kind}: {found:?}") };
            assert_eq!((one.kind.as_str(), one.usage.as_str()), (kind, usage));
            assert_eq!((one.label.as_deref(), one.uuid.as_deref()), (Some("data"), Some(UUID)));
            assert_eq!(found.table, None, "{kind}");
        }
    }
}

#[test]
fn loop_two_filesystems_on_one_disk_are_two_signatures() {
    needs_root!();
    let disk = Loop::new(320 * MIB, 512);
    run("mkfs.ext4", &["-q", disk.path()]);
    // The superblock of a btrfs, as another mkfs leaves it behind.
    let old = Loop::new(128 * MIB, 512);
    run("mkfs.btrfs", &["-q", old.path()]);
    let mut superblock = [0; 4096];
    File::open(&old.node).unwrap().read_exact_at(&mut superblock, 64 << 10).unwrap();
    write(&disk, 64 << 10, &superblock);

    let mut both = kinds(&disk);
    both.sort();
    assert_eq!(both, ["btrfs", "ext4"]);
    let one = RealFilesystems::default().identify(&disk.node).unwrap().unwrap();
    assert_eq!((one.kind.as_str(), one.uuid), ("ambivalent: ext4, btrfs", None));
}

#[test]
fn loop_a_physical_volume_of_lvm_is_recognised_even_with_a_wrong_checksum() {
    needs_root!();
    let disk = Loop::new(64 * MIB, 512);
    write(&disk, 512, &physical_volume());
    let found = probed(&disk);
    assert_eq!(kinds(&disk), ["LVM2_member"]);
    assert_eq!((found.signatures[0].usage.as_str(), found.signatures[0].offset), ("raid", 512 + 24));
}

#[test]
fn loop_a_signature_in_the_last_sector_counts_as_much_as_one_in_the_first() {
    needs_root!();
    for sector in SECTORS {
        let disk = Loop::new(64 * MIB, sector);
        write(&disk, 64 * MIB - 512, b"$XIDE$");
        let found = probed(&disk);
        assert_eq!(found.signatures.len(), 1, "{found:?}");
        assert_eq!(found.signatures[0].kind, "lsi_mega_raid_member");
    }
}

#[test]
fn loop_a_gpt_is_seen_with_either_copy_and_by_its_backup_alone() {
    needs_root!();
    for sector in SECTORS {
        let disk = Loop::new(64 * MIB, sector);
        run("sgdisk", &["--clear", disk.path()]);
        assert_eq!(probed(&disk).table.as_deref(), Some("gpt"));
        let step = u64::from(sector);
        // The backup alone, with and without the protective MBR before it.
        write(&disk, step, &vec![0; sector as usize]);
        assert!(probed(&disk).table.is_some_and(|table| table.starts_with("gpt")));
        write(&disk, 0, &vec![0; sector as usize]);
        assert_eq!(probed(&disk).table.as_deref(), Some("gpt (backup only)"));
        write(&disk, 64 * MIB - step, &vec![0; sector as usize]);
        assert_eq!(probed(&disk).table, None);
    }
}

#[test]
fn loop_a_gpt_of_the_other_sector_size_is_seen() {
    needs_root!();
    for [made, shown] in [[512, 4096], [4096, 512]] {
        let disk = Loop::new(64 * MIB, made);
        run("sgdisk", &["--clear", disk.path()]);
        run("losetup", &["--sector-size", &shown.to_string(), disk.path()]);
        assert_eq!(probed(&disk).table.as_deref(), Some("gpt (damaged)"), "made with {made}");
        write(&disk, 0, &[0; 16384]);
        assert_eq!(probed(&disk).table.as_deref(), Some("gpt (backup only)"), "made with {made}");
    }
}

#[test]
fn loop_dos_tables_and_bare_boot_sectors_are_tables_and_that_of_fat_is_none() {
    needs_root!();
    let disk = Loop::new(64 * MIB, 512);
    let mut sfdisk = Command::new("sfdisk")
        .args(["--quiet", "--no-reread", "--no-tell-kernel", disk.path()])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    sfdisk.stdin.take().unwrap().write_all(b"label: dos\n2048,20480,83\n").unwrap();
    assert!(sfdisk.wait().unwrap().success());
    assert_eq!(probed(&disk).table.as_deref(), Some("dos"));

    write(&disk, 0, &[0; 512]);
    assert_eq!(probed(&disk).table, None);
    write(&disk, 510, &[0x55, 0xaa]);
    assert!(probed(&disk).table.is_some());

    // A protective MBR without any GPT.
    write(&disk, 446, &[0, 0, 2, 0, 0xee, 0xff, 0xff, 0xff, 1, 0, 0, 0, 0xff, 0xff, 1, 0]);
    let table = probed(&disk).table.unwrap();
    assert_eq!(table, "protective MBR");
}

#[test]
fn loop_a_probe_reads_the_medium_and_not_a_page_that_went_stale() {
    needs_root!();
    let disk = Loop::new(64 * MIB, 512);
    let open = disk.own();
    // A reader fills the page cache of the whole disk; the open disk keeps it alive.
    File::open(&disk.node).unwrap().read_exact(&mut vec![0; 1 << 20]).unwrap();
    // Written through a partition, which has a cache of its own.
    open.map(1, extent(0, 32)).unwrap();
    run("mkswap", &[open.node(1).to_str().unwrap()]);
    let mut stale = [0; 4096];
    File::open(&disk.node).unwrap().read_exact(&mut stale).unwrap();
    assert_ne!(&stale[4086..], b"SWAPSPACE2", "this kernel keeps one cache: the test shows nothing");
    assert_eq!(kinds(&disk), ["swap"]);
    let mut direct = [0; 10];
    open.read_at(4086, &mut direct).unwrap();
    assert_eq!(&direct, b"SWAPSPACE2");
}

#[test]
fn loop_a_disk_that_is_gone_or_unbound_is_failed_and_never_blank() {
    needs_root!();
    let disk = Loop::aside(8 * MIB, 512, 232);
    let scanned = disk.raw();
    run("losetup", &["--detach", disk.path()]);
    let Probe::Failed(message) = signature::probe(&scanned) else { panic!("an unbound device is not blank") };
    assert!(message.contains("is not the same device as before"), "{message}");
    let unbound = localpool::host::RawDisk { diskseq: None, ..scanned };
    let Probe::Failed(message) = signature::probe(&unbound) else { panic!("an unbound device is not blank") };
    assert!(message.contains("has no size"), "{message}");
}
