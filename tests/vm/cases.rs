//! Every disk of the guest: how it is made, and whose the driver must say it is.
//!
//! A case has one or more disks, a script that makes them look as its name says (`$D`, `$D2`, … are their nodes), and
//! the verdict with words of the reason, now and after a power cut. What no script can make in a guest is written byte
//! by byte, as the format's own tools would write it.

use crate::disks::{Bus, Disk};

pub struct Case {
    pub name: &'static str,
    pub disks: Vec<Disk>,
    pub fill: String,
    pub judged: Vec<Judged>,
    /// The user of the disk may write to it at any time.
    pub is_busy: bool,
}

/// A device and the verdict that it must get.
pub struct Judged {
    /// A bash command that prints its node.
    pub node: String,
    pub now: Expected,
    /// The verdict after a power cut, if it is another one; `None` for a device that does not come back by itself.
    pub later: Option<Expected>,
    /// The set that takes it.
    pub set: Option<&'static str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expected {
    pub verdict: &'static str,
    /// A part of the reason.
    pub message: &'static str,
}

pub const UNCLAIMED: Expected = Expected { verdict: "Unclaimed", message: "blank and not in use" };

const fn theirs(message: &'static str) -> Expected {
    Expected { verdict: "Theirs", message }
}

const fn unknown(message: &'static str) -> Expected {
    Expected { verdict: "Unknown", message }
}

/// A case of one disk, or of several that are all judged alike.
fn case<const N: usize>(name: &'static str, disks: [Disk; N], fill: &str, now: Expected) -> Case {
    let judged =
        disks.iter().map(|disk| Judged { node: format!("disk {}", disk.serial), now, later: Some(now), set: None });
    let judged = judged.collect();
    Case { name, disks: disks.to_vec(), fill: fill.to_owned(), judged, is_busy: false }
}

impl Case {
    /// The verdict on its disks after a power cut.
    fn later(mut self, expected: Expected) -> Self {
        self.judged.iter_mut().for_each(|judged| judged.later = Some(expected));
        self
    }

    /// One of its disks gets another verdict.
    fn but(mut self, index: usize, now: Expected, later: Expected) -> Self {
        (self.judged[index].now, self.judged[index].later) = (now, Some(later));
        self
    }

    /// Where its disks are, if no serial of their own leads to them.
    fn seen_at<const N: usize>(mut self, nodes: [&str; N]) -> Self {
        self.judged.iter_mut().zip(nodes).for_each(|(judged, node)| judged.node = node.to_owned());
        self
    }

    /// Something that is built on its disks.
    fn on_it(mut self, node: &str, now: Expected, later: Option<Expected>) -> Self {
        self.judged.push(Judged { node: node.to_owned(), now, later, set: None });
        self
    }

    /// The set that takes its unclaimed devices.
    fn taken_by(mut self, set: &'static str) -> Self {
        self.judged
            .iter_mut()
            .filter(|judged| judged.now.verdict == "Unclaimed")
            .for_each(|judged| judged.set = Some(set));
        self
    }

    fn busy(self) -> Self {
        Self { is_busy: true, ..self }
    }

    /// Whether nobody uses its disks, neither the host nor a set: they are somebody's only by what is on them. Such
    /// disks can be pulled out.
    pub fn is_idle(&self) -> bool {
        let is_idle = |judged: &Judged| judged.now.verdict == "Theirs" && judged.later == Some(judged.now);
        let can_leave = |disk: &Disk| matches!(disk.bus, Bus::Nvme | Bus::Scsi | Bus::Virtio | Bus::Usb);
        !self.is_busy && self.judged.iter().all(is_idle) && self.disks.iter().all(can_leave)
    }

    /// The script with the nodes of its disks.
    pub fn script(&self) -> String {
        let node = |(at, disk): (usize, &Disk)| match at {
            0 => format!("D=$(disk {})\n", disk.serial),
            _ => format!("D{}=$(disk {})\n", at + 1, disk.serial),
        };
        self.disks.iter().enumerate().map(node).collect::<String>() + &self.fill
    }
}

fn nvme(name: &str) -> Disk {
    Disk::new(name, Bus::Nvme)
}

fn scsi(name: &str) -> Disk {
    Disk::new(name, Bus::Scsi)
}

fn virtio(name: &str) -> Disk {
    Disk::new(name, Bus::Virtio)
}

pub fn cases() -> Vec<Case> {
    [blank(), of_a_bad_sort(), not_disks(), signatures(), tables(), in_use(), layered(), records(), alike()]
        .into_iter()
        .flatten()
        .collect()
}

fn blank() -> Vec<Case> {
    vec![
        case("blank NVMe", [nvme("blank-nvme")], "", UNCLAIMED).taken_by("nvme"),
        case("blank NVMe with sectors of 4096", [nvme("blank-nvme-4kn").sector(4096)], "", UNCLAIMED).taken_by("nvme"),
        case("blank SCSI SSD", [scsi("blank-ssd")], "", UNCLAIMED).taken_by("flash"),
        case("blank SCSI hard disk", [scsi("blank-hdd").turning()], "", UNCLAIMED).taken_by("turning"),
        case("blank SCSI with sectors of 4096", [scsi("blank-4kn").sector(4096)], "", UNCLAIMED).taken_by("flash"),
        case("blank SATA SSD", [Disk::new("blank-sata", Bus::Sata)], "", UNCLAIMED).taken_by("flash"),
        case("blank virtio", [virtio("blank-virtio")], "", UNCLAIMED).taken_by("turning"),
        case("blank virtio with sectors of 4096", [virtio("blank-virtio-4kn").sector(4096)], "", UNCLAIMED)
            .taken_by("turning"),
        case("blank fixed USB disk", [Disk::new("blank-usb", Bus::Usb)], "", UNCLAIMED).taken_by("turning"),
        case("wiped after it had ext4", [scsi("wiped")], "mkfs.ext4 -q $D; wipefs -q --all $D", UNCLAIMED)
            .taken_by("flash"),
    ]
}

fn of_a_bad_sort() -> Vec<Case> {
    let removable = theirs("is removable");
    let read_only = theirs("is read-only");
    let drive = theirs("a CD-ROM or DVD drive");
    vec![
        case("removable USB disk", [Disk::new("usb-stick", Bus::Usb).removable()], "", removable),
        case("removable SCSI disk", [scsi("scsi-removable").removable()], "", removable),
        case("CD-ROM drive with a disc", [Disk::new("cdrom", Bus::Cdrom).read_only()], "", drive)
            .seen_at(["readlink -f /dev/disk/by-id/scsi-0QEMU_QEMU_CD-ROM_cdrom"]),
        case("CD-ROM drive without a disc", [Disk::new("cdrom-empty", Bus::Cdrom).mib(0)], "", drive)
            .seen_at(["readlink -f /dev/disk/by-id/scsi-0QEMU_QEMU_CD-ROM_cdrom-empty"]),
        case("read-only SCSI disk", [scsi("scsi-read-only").read_only()], "", read_only),
        case("read-only virtio disk", [virtio("virtio-read-only").read_only()], "", read_only),
        case("read-only disk with ext4", [scsi("used-read-only").used().read_only()], "", read_only),
        case("NVMe with zones", [Disk::new("nvme-zoned", Bus::Zoned)], "", theirs("a zoned disk (host-managed)")),
        case("disk of 4 MiB", [scsi("tiny").mib(4)], "", theirs("smaller than")),
        case(
            "disk that is offline",
            [scsi("offline")],
            "echo offline >/sys/block/${D#/dev/}/device/state",
            theirs("is not running: its state is offline"),
        )
        .later(UNCLAIMED),
    ]
}

/// Block devices without a disk of the guest; none of them outlives a power cut.
fn not_disks() -> Vec<Case> {
    let on_none = |name, fill, node: &str, expected| case(name, [], fill, expected).on_it(node, expected, None);
    vec![
        on_none(
            "compressed RAM",
            "modprobe zram num_devices=1; echo 64M >/sys/block/zram0/disksize",
            "echo /dev/zram0",
            theirs("compressed RAM (zram)"),
        ),
        // Its size is zero, and a server may be connected at any time.
        on_none(
            "nbd without a server",
            "modprobe nbd nbds_max=1",
            "echo /dev/nbd0",
            theirs("a disk of another machine, reached over the network"),
        ),
        on_none(
            "loop device whose file was deleted",
            "truncate -s 64M /run/deleted.img; losetup /dev/loop6 /run/deleted.img; rm /run/deleted.img",
            "echo /dev/loop6",
            theirs("its backing file /run/deleted.img was deleted"),
        ),
    ]
}

fn signatures() -> Vec<Case> {
    let zfs = r#"perl -e 'open my $f, "+<", $ARGV[0] or die;
        for (0..15) { seek $f, 131072 + $_ * 1024, 0; print $f pack "Q<Q<Q<", 0x00bab10c, 5000, $_ + 1 }' $D"#;
    let iso = "mkdir -p /run/iso; cp /usr/lib/ISOLINUX/isolinux.bin /run/iso
        xorriso -as mkisofs -quiet -o /run/hybrid.iso -isohybrid-mbr /usr/lib/ISOLINUX/isohdpfx.bin \
            -b isolinux.bin -c boot.cat -no-emul-boot -boot-load-size 4 -boot-info-table /run/iso
        dd if=/run/hybrid.iso of=$D bs=1M conv=fsync status=none";
    let luks = "cryptsetup luksFormat --type luks2 --pbkdf pbkdf2 --pbkdf-force-iterations 1000 -q $D <<<secret";
    let nobody = "udevadm settle && test -z \"$(ls /sys/block/${D#/dev/}/holders)\"";
    // udev assembles the array again whenever one of its disks was written to.
    let apart = format!(
        "mdadm --quiet --create /dev/md/apart --metadata=1.0 --level=0 --raid-devices=2 --run $D $D2\n{}\n{}",
        take_apart("$D2", "wipefs -q --all $D2"),
        take_apart("$D", nobody),
    );
    let ddf = format!(
        "mdadm --create /dev/md/ddf --metadata=ddf --level=container --raid-devices=1 --force --run $D\n{}",
        take_apart("$D", nobody)
    );
    vec![
        case("ext4 on NVMe", [nvme("ext4-nvme")], "mkfs.ext4 -q $D", theirs("holds ext4")),
        case("ext4 on sectors of 4096", [scsi("ext4-4kn").sector(4096)], "mkfs.ext4 -q $D", theirs("holds ext4")),
        case(
            "ext4 with a label",
            [virtio("ext4-label")],
            "mkfs.ext4 -q -L data $D",
            theirs("holds ext4 with the label \"data\""),
        ),
        case(
            "ext4 on a SCSI hard disk",
            [scsi("used-hdd").turning().model("Turning 7200")],
            "mkfs.ext4 -q $D",
            theirs("holds ext4"),
        ),
        case(
            "xfs on SATA",
            [Disk::new("used-sata", Bus::Sata).mib(320).model("Solid State 870").wwn(0x5000_c500_0000_0003)],
            "mkfs.xfs -q $D",
            theirs("holds xfs"),
        ),
        case(
            "FAT on a fixed USB disk",
            [Disk::new("used-usb", Bus::Usb)],
            "mkfs.vfat --mbr=n $D",
            theirs("holds vfat"),
        ),
        case("xfs", [scsi("xfs").mib(320)], "mkfs.xfs -q $D", theirs("holds xfs")),
        case(
            "xfs on NVMe with sectors of 4096",
            [nvme("xfs-nvme-4kn").mib(320).sector(4096)],
            "mkfs.xfs -q $D",
            theirs("holds xfs"),
        ),
        case(
            "btrfs of two disks",
            [scsi("btrfs-a"), scsi("btrfs-b")],
            "mkfs.btrfs -q -m raid1 -d raid1 $D $D2",
            theirs("holds btrfs"),
        ),
        case("LVM physical volume", [scsi("lvm-pv")], "pvcreate -q $D", theirs("holds LVM2_member")),
        case("LUKS closed", [nvme("luks-closed")], luks, theirs("holds crypto_LUKS")),
        case("swap that is off", [virtio("swap-off")], "mkswap -q $D", theirs("holds swap")),
        case("ZFS label", [scsi("zfs")], zfs, theirs("holds zfs_member")),
        case(
            "Ceph BlueStore label",
            [scsi("ceph")],
            "printf 'bluestore block device\\n3a1c7e9e-52a5-4a07-8d52-111111111111\\n' | dd of=$D conv=fsync,notrunc status=none",
            theirs("holds ceph_bluestore"),
        ),
        case(
            "Oracle ASM label",
            [scsi("oracle-asm")],
            "printf ORCLDISKDATA01 | dd of=$D bs=1 seek=32 conv=fsync,notrunc status=none",
            theirs("holds oracleasm"),
        ),
        case("NTFS", [scsi("ntfs")], "mkntfs -q -Q -F $D", theirs("holds ntfs")),
        case("FAT without a table", [scsi("vfat")], "mkfs.vfat --mbr=n $D", theirs("holds vfat")),
        case(
            "ISO image without a table",
            [scsi("iso-plain")],
            "xorriso -as mkisofs -quiet -o /run/plain.iso /etc/systemd; dd if=/run/plain.iso of=$D bs=1M conv=fsync status=none",
            theirs("holds iso9660"),
        ),
        case("ISO hybrid image, whose table the kernel reads", [scsi("iso-hybrid")], iso, theirs("has partitions:")),
        case("RAID signature in the last sector", [scsi("ddf")], &ddf, theirs("holds ddf_raid_member"))
            .later(theirs(""))
            .busy(),
        case(
            "member of an array that is not assembled",
            [scsi("md-apart-a"), scsi("md-apart-b")],
            &apart,
            theirs("holds linux_raid_member"),
        )
        // At boot, udev starts to assemble it.
        .later(theirs("a RAID array"))
        .but(1, UNCLAIMED, UNCLAIMED)
        .taken_by("flash"),
    ]
}

/// Stops whatever holds a disk, until `then` succeeds.
fn take_apart(disk: &str, then: &str) -> String {
    format!(
        "for try in {{1..30}}; do
            for holder in $(N={disk} && ls /sys/block/${{N#/dev/}}/holders); do mdadm --quiet --stop /dev/$holder || true; done
            ! {{ {then}; }} 2>/dev/null || break
            sleep 0.3
        done; {then}"
    )
}

fn tables() -> Vec<Case> {
    let protective = r"printf '\x00\x00\x02\x00\xee\xff\xff\xff\x01\x00\x00\x00\xff\xff\x04\x00' | dd of=$D bs=1 seek=446 conv=notrunc status=none
        printf '\x55\xaa' | dd of=$D bs=1 seek=510 conv=notrunc,fsync status=none";
    let one = theirs("has partitions:");
    vec![
        case("GPT without partitions", [scsi("gpt-empty")], "sgdisk -o $D >/dev/null", theirs("has a partition table (gpt)")),
        case("GPT without partitions on sectors of 4096", [nvme("gpt-empty-4kn").sector(4096)], "sgdisk -o $D >/dev/null",
            theirs("has a partition table (gpt)")),
        case("GPT with one partition", [scsi("gpt-one")], "sgdisk -n 1:0:0 $D >/dev/null; udevadm settle", one)
            .on_it("disk gpt-one 1", UNCLAIMED, Some(UNCLAIMED)),
        case("GPT with a partition that holds ext4", [nvme("gpt-ext4")],
            "sgdisk -n 1:0:0 $D >/dev/null; udevadm settle; mkfs.ext4 -q ${D}p1", one)
            .on_it("disk gpt-ext4 1", theirs("holds ext4"), None),
        case("GPT with a boot partition", [scsi("gpt-boot")], "sgdisk -n 1:0:0 -c '1:BIOS boot' $D >/dev/null; udevadm settle", one)
            .on_it("disk gpt-boot 1", theirs("the machine boots from it"), None),
        case("protective MBR only", [scsi("mbr-protective")], protective, theirs("has a partition table (protective MBR)")),
        case("GPT whose primary is damaged", [scsi("gpt-damaged")],
            "sgdisk -n 1:0:+32M $D >/dev/null; udevadm settle; partx --delete $D
             printf '\\xff\\xff\\xff\\xff' | dd of=$D bs=1 seek=528 conv=notrunc,fsync status=none; partx --delete $D || true",
            theirs("has a partition table (gpt")).later(theirs("")),
        case("GPT of which only the backup is left", [scsi("gpt-backup")],
            "sgdisk -o $D >/dev/null; dd if=/dev/zero of=$D bs=512 count=34 conv=notrunc,fsync status=none",
            theirs("has a partition table (gpt (backup only))")),
        case("DOS table without partitions", [scsi("dos-empty")], "echo label:dos | sfdisk -q $D", theirs("has a partition table (dos)")),
        case("DOS table with a partition", [virtio("dos-one")], "echo 'type=83' | sfdisk -q --label dos $D; udevadm settle", one),
    ]
}

fn in_use() -> Vec<Case> {
    // udev may have it open in the same way for a moment.
    let hold = r#"setsid perl -e 'use Fcntl; my $f;
            until (sysopen $f, $ARGV[0], O_RDWR | O_EXCL) { select undef, undef, undef, 0.1 }
            open my $mark, ">", "/run/exclusive"; close $mark; sleep' $D >/dev/null 2>&1 &
        until [[ -e /run/exclusive ]]; do sleep 0.1; done"#;
    vec![
        case("mounted", [scsi("mounted")], "mkfs.ext4 -q $D; mkdir -p /srv/mounted; mount -r $D /srv/mounted", theirs("is mounted at /srv/mounted"))
            .later(theirs("holds ext4")),
        case("mounted in another namespace", [scsi("mounted-elsewhere")],
            "mkfs.ext4 -q $D; mkdir -p /srv/elsewhere
             setsid unshare --mount --propagation private bash -c \"umount /opt && mount -r $D /srv/elsewhere && touch /run/elsewhere && exec sleep infinity\" >/dev/null 2>&1 &
             until [[ -e /run/elsewhere ]]; do sleep 0.1; done; ! findmnt $D",
            theirs("is mounted at /srv/elsewhere")).later(theirs("holds ext4")),
        case("a partition of it is mounted", [scsi("part-mounted")],
            "sgdisk -n 1:0:+64M -n 2:0:0 $D >/dev/null; udevadm settle; mkfs.ext4 -q ${D}1; mkdir -p /srv/part; mount -r ${D}1 /srv/part",
            theirs("1 is mounted at /srv/part")).later(theirs("has partitions:"))
            .on_it("disk part-mounted 2", UNCLAIMED, None),
        case("btrfs of two disks, mounted", [scsi("btrfs-mounted-a"), scsi("btrfs-mounted-b")],
            "mkfs.btrfs -q -m raid1 -d raid1 $D $D2; mkdir -p /srv/btrfs; udevadm settle; mount -r $D /srv/btrfs",
            theirs("is mounted at /srv/btrfs")).later(theirs("holds btrfs")),
        case("swap that is on", [scsi("swap-on")], "mkswap -q $D; swapon $D", theirs("is used as swap")).later(theirs("holds swap")).busy(),
        case("its node is bind-mounted", [virtio("node-bound")], "touch /run/pod-device; mount --bind $D /run/pod-device",
            theirs("is bind-mounted at /run/pod-device")).later(UNCLAIMED),
        // The link uses the world wide name, so it always leads to this disk.
        case("the Local Storage Operator's link leads to it", [scsi("offered").wwn(0x5000_c500_0000_0002)],
            "udevadm settle; mkdir -p /mnt/local-storage/fast; ln -s /dev/disk/by-id/wwn-0x5000c50000000002 /mnt/local-storage/fast/
             [[ $(readlink -f /mnt/local-storage/fast/*) == $D ]]",
            theirs("is offered by a link: /mnt/local-storage/fast/wwn-0x5000c50000000002")),
        case("held open by O_EXCL", [scsi("exclusive")], hold, theirs("opened exclusively by another program")).later(UNCLAIMED),
        case("a loop device is over it", [scsi("under-loop")], "losetup /dev/loop7 $D", theirs("is held by loop7, a loop device")).later(UNCLAIMED)
            .on_it("echo /dev/loop7", theirs("a loop device over the block device"), None),
    ]
}

fn layered() -> Vec<Case> {
    let luks = "cryptsetup luksFormat --type luks2 --pbkdf pbkdf2 --pbkdf-force-iterations 1000 -q $D <<<secret
        cryptsetup open $D opened <<<secret; udevadm settle";
    let waiting = format!(
        "mdadm --quiet --create /dev/md/waiting --metadata=1.2 --level=0 --raid-devices=2 --run $D $D2\n{}
         udevadm settle; ls /sys/block/${{D#/dev/}}/holders | grep -q md || mdadm --quiet --incremental $D; udevadm settle",
        take_apart("$D2", "wipefs -q --all $D2"),
    );
    let mapped = theirs("a device-mapper device");
    let path = theirs("a multipath device");
    vec![
        case("LUKS open", [scsi("luks-open")], luks, mapped).later(theirs("holds crypto_LUKS"))
            .on_it("readlink -f /dev/mapper/opened", UNCLAIMED, None),
        case("LVM with a volume", [scsi("lvm-vg")],
            "pvcreate -q $D; vgcreate -q guestvg $D; lvcreate -q -y -L 64M -n blank guestvg; udevadm settle", mapped)
            .on_it("readlink -f /dev/guestvg/blank", UNCLAIMED, Some(UNCLAIMED)),
        case("members of a running array", [scsi("md-a"), scsi("md-b")],
            "mdadm --quiet --create /dev/md/running --metadata=1.2 --level=1 --raid-devices=2 --assume-clean --run $D $D2; udevadm settle",
            theirs("a RAID array")).busy()
            .on_it("readlink -f /dev/md/running", UNCLAIMED, None),
        case("member of an array that misses another", [nvme("md-waiting-a"), nvme("md-waiting-b")],
            &waiting,
            theirs("a RAID array")).but(1, UNCLAIMED, UNCLAIMED).taken_by("nvme"),
        case("bcache backing disk", [scsi("bcache")],
            "make-bcache -B $D >/dev/null; udevadm settle; [[ -e /dev/bcache0 ]] || echo $D >/sys/fs/bcache/register; udevadm settle",
            theirs("a bcache device")).busy()
            .on_it("echo /dev/bcache0", unknown("an unknown type of device: bcache"), None),
        case("bcache label, nobody uses it", [scsi("bcache-idle")],
            "make-bcache -B $D >/dev/null; udevadm settle; echo 1 >/sys/block/${D#/dev/}/bcache/stop; udevadm settle
             for try in {1..50}; do [[ ! -e /sys/block/${D#/dev/}/bcache ]] || sleep 0.2; done", theirs("holds bcache"))
            .later(theirs("bcache")).busy(),
        case("under a suspended mapping", [scsi("suspended")],
            "dmsetup create frozen --table \"0 $(blockdev --getsz $D) linear $D 0\"; udevadm settle; dmsetup suspend frozen", mapped)
            .later(UNCLAIMED)
            .on_it("readlink -f /dev/mapper/frozen", theirs("is not running: its state is suspended"), None),
        Case {
            name: "two paths to one disk",
            disks: vec![
                scsi("shared").path_to("shared", 0x5000_c500_0000_0001),
                scsi("shared-again").path_to("shared", 0x5000_c500_0000_0001),
            ],
            fill: "multipath -r; udevadm settle; multipath -ll".to_owned(),
            judged: vec![
                Judged { node: "disk shared | sed -n 1p".into(), now: path, later: Some(path), set: None },
                Judged { node: "disk shared | sed -n 2p".into(), now: path, later: Some(path), set: None },
                Judged { node: "readlink -f /dev/mapper/mpatha".into(), now: UNCLAIMED, later: None, set: Some("shared") },
            ],
            is_busy: false,
        },
    ]
}

fn records() -> Vec<Case> {
    let ours = Expected { verdict: "Ours", message: "in pool" };
    let one_of_two = Expected { verdict: "Ours", message: "has the same identity" };
    let damaged = unknown("carries a localpool label that cannot be used");
    let foreign = theirs("in the pool of node elsewhere");
    let mut copied = case(
        "our own record, and a copy of it by dd",
        [scsi("ours"), scsi("ours-copy")],
        "claim-once guest $D; dd if=$D of=$D2 bs=1M conv=fsync status=none",
        ours,
    )
    // On another bus, none of them is the hardware that is on record.
    .later(one_of_two)
    .but(1, one_of_two, one_of_two);
    copied.judged.iter_mut().for_each(|judged| judged.set = Some("earlier"));
    vec![
        copied,
        case("another node's record", [scsi("foreign")], "claim-once elsewhere $D", foreign),
        case(
            "our own record, damaged",
            [scsi("label-damaged")],
            "claim-once guest $D; dd if=/dev/zero of=$D bs=1M seek=1 count=1 conv=fsync,notrunc status=none",
            damaged,
        ),
    ]
}

fn alike() -> Vec<Case> {
    let other = theirs("has the same identity (serial-QEMU_HARDDISK-twin) as /dev/sd");
    // They come back as virtio, which has no model.
    let later = theirs("has the same identity (serial--twin) as /dev/vd");
    let twin = |name| Disk::new(name, Bus::Usb).serial("twin");
    vec![
        case("two blank disks with one serial", [twin("twin-a"), twin("twin-b")], "", other)
            .later(later)
            .seen_at(["disk twin | sed -n 1p", "disk twin | sed -n 2p"]),
    ]
}
