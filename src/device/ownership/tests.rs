use std::sync::Arc;

use proptest::prelude::*;

use super::super::sample::{GIB, blank, disk, dm, label, loop_over, md, partition, with_kind};
use super::facts::NOT_READ;
use super::*;
use crate::device::reason::FLOOR;
use crate::host::{ForeignLink, MountUse, ProbeResult, Signature};

const GUID: &str = "6c6f6361-0000-4000-8000-000000000001";

fn owner() -> Owner {
    Owner { cluster: "c".into(), node: "n".into() }
}

fn ours() -> Evidence {
    Evidence::Valid(Arc::new(label("c", "n")))
}

/// The verdict on `name` among `all`, blank and without record unless `evidence` has another one.
fn judge_with(all: &[RawDisk], name: &str, probe: &Probe, evidence: &[(&str, Evidence)]) -> Verdict {
    let owner = owner();
    let machine = Machine::new(&owner, all);
    let evidence: HashMap<KernelName, Evidence> =
        evidence.iter().map(|(name, evidence)| ((*name).into(), evidence.clone())).collect();
    let mut records: HashMap<&KernelName, Evidence> = all.iter().map(|raw| (&raw.name, Evidence::None)).collect();
    records.extend(evidence.iter().map(|(name, evidence)| (name, evidence.clone())));
    machine.judge(machine.get(&name.into()).unwrap(), probe, &records)
}

fn judge(all: &[RawDisk], name: &str) -> Verdict {
    judge_with(all, name, &blank(), &[])
}

fn why(all: &[RawDisk], name: &str) -> String {
    match judge(all, name) {
        Verdict::Theirs(reason) => reason.to_string(),
        other => panic!("{name} is {other:?}"),
    }
}

fn used(raw: RawDisk, target: &str, how: MountHow) -> RawDisk {
    RawDisk { mounts: vec![MountUse { target: target.into(), namespace: 4_026_531_841, how }], ..raw }
}

fn mounted(raw: RawDisk, target: &str) -> RawDisk {
    used(raw, target, MountHow::Filesystem)
}

fn over(raw: RawDisk, partitions: &[&str], holders: &[&str]) -> RawDisk {
    let own = |names: &[&str]| names.iter().map(|name| (*name).into()).collect();
    RawDisk { partitions: own(partitions), holders: own(holders), ..raw }
}

#[test]
fn a_blank_disk_loop_or_partition_is_unclaimed() {
    assert_eq!(judge(&[disk("sda")], "sda"), Verdict::Unclaimed);
    assert_eq!(judge(&[loop_over("loop0", "/var/a.img")], "loop0"), Verdict::Unclaimed);
    let all = [over(disk("sda"), &["sda1"], &[]), partition("sda", 1, Some(GUID))];
    assert_eq!(judge(&all, "sda1"), Verdict::Unclaimed);
    let mpath = [over(disk("sda"), &[], &["dm-0"]), dm("dm-0", "mpath-3600", &["sda"])];
    assert_eq!(judge(&mpath, "dm-0"), Verdict::Unclaimed);
}

type Change = fn(&mut RawDisk);

/// Every sort of refusal that a device's own facts give, and a piece of the sentence for it.
#[test]
fn each_refusal_names_what_was_found() {
    let cases: [(Change, &str); 17] = [
        (|raw| raw.read_only = true, "sda is read-only"),
        (|raw| raw.removable = true, "sda is removable"),
        (|raw| raw.state = Some("offline".into()), "its state is offline"),
        (|raw| raw.state = Some("suspended".into()), "its state is suspended"),
        (|raw| raw.size = FLOOR - 512, "smaller than 8.0 MiB: 7.9 MiB"),
        (|raw| *raw = mounted(raw.clone(), "/var/lib"), "sda is mounted at /var/lib"),
        (|raw| raw.swap = true, "sda is used as swap"),
        (|raw| *raw = used(raw.clone(), "/pods/x/dev", MountHow::Node), "bind-mounted at /pods/x/dev"),
        (|raw| raw.holders = vec!["bcache0".into()], "sda is held by bcache0, a bcache device"),
        (|raw| raw.holders = vec!["drbd1".into()], "sda is held by drbd1, another device"),
        (|raw| raw.partitions = vec!["sda1".into(), "sda2".into()], "has partitions: sda1, sda2"),
        (|raw| raw.size = 0, "no medium"),
        (|raw| raw.kind = DeviceKind::Rom, "a CD-ROM"),
        (|raw| raw.kind = DeviceKind::Floppy, "a floppy"),
        (|raw| raw.kind = DeviceKind::Ram, "a RAM disk"),
        (|raw| raw.kind = DeviceKind::Zram, "zram"),
        (|raw| raw.kind = DeviceKind::Network, "a disk of another machine"),
    ];
    for (change, piece) in cases {
        let mut raw = disk("sda");
        change(&mut raw);
        let sentence = why(&[raw], "sda");
        assert!(sentence.contains(piece), "{sentence:?} lacks {piece:?}");
    }
    let running = ["running", "live"].map(|state| RawDisk { state: Some(state.into()), ..disk("sda") });
    assert!(running.into_iter().all(|raw| judge(&[raw], "sda") == Verdict::Unclaimed));
}

#[test]
fn content_of_any_sort_makes_it_theirs() {
    let signature = Signature {
        kind: "ext4".into(),
        usage: "filesystem".into(),
        label: Some("data".into()),
        uuid: None,
        offset: 1080,
    };
    let cases = [
        (
            ProbeResult { signatures: vec![signature.clone()], ..ProbeResult::default() },
            "holds ext4 with the label \"data\"",
        ),
        (ProbeResult { table: Some("gpt".into()), ..ProbeResult::default() }, "has a partition table (gpt)"),
        (ProbeResult { busy: true, ..ProbeResult::default() }, "opened exclusively by another program"),
        (ProbeResult { busy: true, table: Some("dos".into()), signatures: vec![signature] }, "opened exclusively"),
    ];
    for (contents, piece) in cases {
        let verdict = judge_with(&[disk("sda")], "sda", &Probe::Read(contents), &[]);
        let Verdict::Theirs(reason) = &verdict else { panic!("{verdict:?}") };
        assert!(reason.to_string().contains(piece), "{reason}");
    }
}

#[test]
fn a_table_that_only_our_own_eyes_see_is_enough_and_says_nothing_of_a_partition() {
    let all = [disk("sda"), disk("sdb"), partition("sdb", 1, Some(GUID))];
    let damaged = |name| [(name, Evidence::OtherTable("a gpt whose entries are damaged".into()))];
    let Verdict::Theirs(reason) = judge_with(&all, "sda", &blank(), &damaged("sda")) else { panic!("not theirs") };
    assert!(reason.to_string().starts_with("has a partition table (a gpt whose entries are damaged)"), "{reason}");
    assert_eq!(judge_with(&all, "sdb1", &blank(), &damaged("sdb")), Verdict::Unclaimed);
}

#[test]
fn what_was_not_or_cannot_be_read_is_unknown() {
    let all = [disk("sda")];
    let unknown = |why: &str| Verdict::Unknown(why.to_owned());
    assert_eq!(judge_with(&all, "sda", &Probe::NotRead, &[]), unknown(NOT_READ));
    assert_eq!(judge_with(&all, "sda", &Probe::Failed("EIO".into()), &[]), unknown("could not be read: EIO"));
    let failed = [("sda", Evidence::Failed("EIO".into()))];
    assert_eq!(judge_with(&all, "sda", &blank(), &failed), unknown("could not be read: EIO"));
    let blind = [RawDisk { unreadable: Some("holders of sda".into()), ..disk("sda") }, partition("sda", 1, Some(GUID))];
    for name in ["sda", "sda1"] {
        assert_eq!(judge_with(&blind, name, &blank(), &[("sda", ours())]), unknown("holders of sda"), "{name}");
    }
    assert!(matches!(judge(&[with_kind("x0", DeviceKind::Other("hidden".into()))], "x0"), Verdict::Unknown(_)));
    assert!(matches!(judge(&[partition("sdq", 1, Some(GUID))], "sdq1"), Verdict::Unknown(_)));
}

#[test]
fn nothing_is_unclaimed_before_its_record_and_that_of_its_disk_were_looked_for() {
    let owner = owner();
    let all = [over(disk("sda"), &["sda1"], &[]), partition("sda", 1, Some(GUID)), disk("sdb")];
    let machine = Machine::new(&owner, &all);
    for name in ["sda1", "sdb"] {
        let verdict = machine.judge(machine.get(&name.into()).unwrap(), &blank(), &HashMap::new());
        assert_eq!(verdict, Verdict::Unknown(NOT_READ.into()), "{name}");
    }
    let failed = HashMap::from([(&all[0].name, Evidence::Failed("EIO".into()))]);
    assert!(matches!(machine.judge(&all[1], &blank(), &failed), Verdict::Unknown(_)));
}

#[test]
fn facts_decide_before_a_failed_read_does() {
    let all = [mounted(disk("sda"), "/")];
    let verdict = judge_with(&all, "sda", &Probe::NotRead, &[("sda", Evidence::Failed("EIO".into()))]);
    assert!(matches!(verdict, Verdict::Theirs(Reason::Mounted { .. })));
}

#[test]
fn a_label_of_this_cluster_and_node_makes_it_ours_though_its_volumes_are_mounted() {
    let all = [
        over(disk("sda"), &["sda1", "sda2"], &[]),
        partition("sda", 1, Some(GUID)),
        mounted(over(partition("sda", 2, Some(GUID)), &[], &["dm-5"]), "/pods/a"),
    ];
    for name in ["sda", "sda1", "sda2"] {
        assert_eq!(judge_with(&all, name, &Probe::NotRead, &[("sda", ours())]), Verdict::Ours, "{name}");
    }
    for (cluster, node) in [("c", "other"), ("other", "n")] {
        let foreign = Evidence::Valid(Arc::new(label(cluster, node)));
        let expected = Verdict::Foreign { cluster: cluster.into(), node: node.into() };
        for name in ["sda", "sda2"] {
            assert_eq!(judge_with(&all, name, &blank(), &[("sda", foreign.clone())]), expected);
        }
    }
}

#[test]
fn a_damaged_or_newer_label_is_unknown_and_never_unclaimed() {
    let all = [disk("sda"), partition("sda", 1, Some(GUID))];
    let record = || [("sda", Evidence::Unreadable("format 9 is newer than 1".into()))];
    for name in ["sda", "sda1"] {
        let Verdict::Unknown(why) = judge_with(&all, name, &blank(), &record()) else { panic!("{name}") };
        assert!(why.contains("format 9 is newer than 1"), "{why}");
    }
}

#[test]
fn a_use_of_a_partition_or_of_anything_above_it_is_found() {
    let all = [
        over(disk("sda"), &["sda1"], &[]),
        over(partition("sda", 1, Some(GUID)), &[], &["dm-0"]),
        over(dm("dm-0", "CRYPT-x", &["sda1"]), &[], &["dm-1"]),
        mounted(dm("dm-1", "LVM-x", &["dm-0"]), "/home"),
    ];
    for name in ["sda", "sda1", "dm-0", "dm-1"] {
        assert_eq!(why(&all, name), "dm-1 is mounted at /home", "{name}");
    }
    let mut circle = all.to_vec();
    circle[3].holders = vec!["dm-0".into()];
    circle[3].mounts.clear();
    assert!(why(&circle, "sda").contains("is held by"), "devices that hold each other end the walk");
}

#[test]
fn what_is_most_dangerous_is_said_first() {
    let mut raw = over(mounted(disk("sda"), "/"), &["sda1"], &["bcache0"]);
    raw.mounts.push(MountUse { target: "/x".into(), namespace: 1, how: MountHow::Node });
    raw.swap = true;
    raw.read_only = true;
    raw.removable = true;
    let steps: [(Change, &str); 6] = [
        (|raw| raw.mounts.retain(|used| used.how == MountHow::Node), "sda is mounted at /"),
        (|raw| raw.swap = false, "sda is used as swap; `swapoff /dev/sda` ends that"),
        (|raw| raw.mounts.clear(), "the device node of sda is bind-mounted at /x: a raw block volume"),
        (|raw| raw.holders.clear(), "sda is held by bcache0, a bcache device"),
        (|raw| raw.read_only = false, "sda is read-only"),
        (|raw| raw.removable = false, "sda is removable"),
    ];
    for (mend, sentence) in steps {
        assert_eq!(why(&[raw.clone()], "sda"), sentence);
        mend(&mut raw);
    }
    assert_eq!(why(&[raw], "sda"), "has partitions: sda1");
}

#[test]
fn paths_of_a_multipath_device_and_members_of_an_array_are_theirs_whatever_they_show() {
    for built in [dm("dm-0", "mpath-3600", &["sda"]), md("md0", &["sda"])] {
        let all = [over(disk("sda"), &["sda1"], &[&built.name]), partition("sda", 1, Some(GUID)), built.clone()];
        let records = [("sda", ours()), (built.name.as_str(), ours())];
        for name in ["sda", "sda1"] {
            let verdict = judge_with(&all, name, &blank(), &records);
            assert!(matches!(verdict, Verdict::Theirs(Reason::Component { .. })), "{name}: {verdict:?}");
        }
        let owner = owner();
        assert!(!Machine::new(&owner, &all).may_carry_record(&all[0]));
    }
}

#[test]
fn a_partition_of_a_disk_in_use_as_a_whole_is_theirs() {
    let disks = [
        mounted(disk("sda"), "/old"),
        RawDisk { swap: true, ..disk("sda") },
        over(disk("sda"), &["sda1"], &["dm-3"]),
        used(disk("sda"), "/pod", MountHow::Node),
    ];
    for whole in disks {
        let all = [whole, partition("sda", 1, Some(GUID)), dm("dm-3", "CRYPT-x", &["sda"])];
        let sentence = why(&all, "sda1");
        assert!(sentence.starts_with("its disk sda is in use as a whole: "), "{sentence}");
    }
    for bad in [RawDisk { removable: true, ..disk("sda") }, RawDisk { kind: DeviceKind::Network, ..disk("sda") }] {
        assert!(matches!(judge(&[bad, partition("sda", 1, Some(GUID))], "sda1"), Verdict::Theirs(_)));
    }
}

#[test]
fn boot_partitions_are_never_taken() {
    for (label, taken) in [("BIOS boot partition", false), ("boot", false), ("EFI-SYSTEM-BOOT", false), ("data", true)]
    {
        let mut part = partition("sda", 1, Some(GUID));
        let DeviceKind::Partition(own) = &mut part.kind else { unreachable!() };
        own.part_label = Some(label.into());
        assert_eq!(judge(&[disk("sda"), part], "sda1") == Verdict::Unclaimed, taken, "{label}");
    }
}

#[test]
fn loop_devices_over_block_devices_are_theirs_and_so_is_what_they_are_over() {
    let mut by_link = disk("sda");
    by_link.links = vec!["/dev/disk/by-id/wwn-1".into()];
    for file in ["/dev/sda", "/dev/disk/by-id/wwn-1"] {
        let all = [by_link.clone(), loop_over("loop0", file)];
        assert!(why(&all, "loop0").starts_with("a loop device over the block device"), "{file}");
        assert_eq!(why(&all, "sda"), "sda is held by loop0, a loop device");
    }
    assert_eq!(judge(&[loop_over("loop0", "/dev/shm/a.img")], "loop0"), Verdict::Unclaimed);
}

#[test]
fn a_label_that_a_tenant_wrote_into_a_volume_makes_nothing_ours() {
    let volume = used(partition("sda", 2, Some(GUID)), "/var/lib/kubelet/x/dev/pod", MountHow::Node);
    let kubelets = loop_over("loop0", "/var/lib/kubelet/x/dev/pod");
    let unlisted = loop_over("loop1", "/var/lib/kubelet/plugins/kubernetes.io/csi/volumeDevices/pv/dev/pod");
    let tenants = [
        dm("dm-0", "LVM-x", &["sda2"]),
        dm("dm-1", "mpath-fake", &["dm-0"]),
        md("md0", &["sda2"]),
        dm("dm-2", "CRYPT-x", &["loop0"]),
        dm("dm-3", "LVM-y", &["loop1"]),
    ];
    let mut all = vec![over(disk("sda"), &["sda2"], &[]), volume, kubelets, unlisted];
    all.extend(tenants);
    let names = ["loop0", "loop1", "dm-0", "dm-1", "md0", "dm-2", "dm-3"];
    let mut records = vec![("sda", ours())];
    records.extend(names.map(|name| (name, ours())));
    for name in names {
        let verdict = judge_with(&all, name, &blank(), &records);
        assert!(matches!(verdict, Verdict::Theirs(_)), "{name}: {verdict:?}");
    }
    assert_eq!(judge_with(&all, "sda2", &blank(), &records), Verdict::Ours);
}

#[test]
fn a_device_claimed_bare_is_ours_whatever_it_shows_and_all_that_is_on_it_is_its_tenants() {
    // A whole disk, in which a tenant made a table, an array and a volume group; and a partition of somebody's disk.
    let all = [
        over(disk("sda"), &["sda1", "sda2"], &["md127"]),
        over(partition("sda", 1, Some(GUID)), &[], &["md127"]),
        over(partition("sda", 2, None), &[], &["dm-0"]),
        md("md127", &["sda", "sda1"]),
        partition("md127", 1, None),
        dm("dm-0", "LVM-x", &["sda2"]),
        dm("dm-1", "CRYPT-x", &["dm-0"]),
        over(disk("sdb"), &["sdb1", "sdb2"], &[]),
        over(partition("sdb", 1, None), &[], &["dm-2"]),
        partition("sdb", 2, Some(GUID)),
        dm("dm-2", "LVM-y", &["sdb1"]),
    ];
    let bare = [("sda", Evidence::Bare), ("sdb1", Evidence::Bare), ("sdb", Evidence::OtherTable("gpt".into()))];
    let mut evidence = bare.to_vec();
    // What a tenant wrote there reads as one of our labels, and one of them has the id of another bare device.
    evidence.extend([("md127", ours()), ("dm-0", ours()), ("dm-1", Evidence::Bare), ("sda1", Evidence::Bare)]);
    for name in ["sda", "sdb1"] {
        assert_eq!(judge_with(&all, name, &Probe::NotRead, &evidence), Verdict::Ours, "{name}");
    }
    for name in ["sda1", "sda2", "md127", "md127p1", "dm-0", "dm-1", "dm-2"] {
        let verdict = judge_with(&all, name, &blank(), &evidence);
        assert!(matches!(verdict, Verdict::Theirs(Reason::OnPoolVolume { .. })), "{name}: {verdict:?}");
    }
    assert_eq!(judge_with(&all, "sdb2", &blank(), &evidence), Verdict::Unclaimed, "beside it nothing has changed");
}

#[test]
fn a_loop_device_is_judged_like_a_disk_otherwise() {
    let mut gone = loop_over("loop0", "/a.img");
    let DeviceKind::Loop(Some(backing)) = &mut gone.kind else { unreachable!() };
    backing.deleted = true;
    assert_eq!(why(&[gone], "loop0"), "its backing file /a.img was deleted: the data ends with the loop device");
    let unbound = RawDisk { size: 0, ..with_kind("loop1", DeviceKind::Loop(None)) };
    assert!(why(&[unbound], "loop1").starts_with("no medium"));
    let all = [RawDisk { read_only: true, ..loop_over("loop2", "/a.squashfs") }];
    assert_eq!(why(&all, "loop2"), "loop2 is read-only");
    assert_eq!(judge_with(&[loop_over("loop3", "/b")], "loop3", &Probe::NotRead, &[("loop3", ours())]), Verdict::Ours);
}

#[test]
fn a_suspended_mapped_device_is_never_read() {
    let mut raw = dm("dm-0", "mpath-3600", &[]);
    let DeviceKind::Dm(own) = &mut raw.kind else { unreachable!() };
    own.suspended = true;
    let owner = owner();
    let all = [raw];
    let machine = Machine::new(&owner, &all);
    assert!(!machine.may_carry_record(&all[0]));
    assert!(!machine.needs_probe(&all[0], &HashMap::from([(&all[0].name, Evidence::None)])));
    assert_eq!(why(&all, "dm-0"), "dm-0 is not running: its state is suspended");
}

#[test]
fn zoned_disks_that_must_be_written_in_order_are_theirs() {
    for (zoned, taken) in [("host-managed", false), ("host-aware", true)] {
        let all = [RawDisk { zoned: Some(zoned.into()), ..disk("sda") }];
        assert_eq!(judge(&all, "sda") == Verdict::Unclaimed, taken, "{zoned}");
    }
}

#[test]
fn each_disk_of_256_is_judged_by_what_is_on_it() {
    let mut all = Vec::new();
    for n in 0..256 {
        let name = format!("sd{n}x");
        all.push(over(disk(&name), &[&format!("{name}1")], &[]));
        all.push(mounted(partition(&name, 1, Some(GUID)), "/m"));
    }
    let owner = owner();
    let records: HashMap<&KernelName, Evidence> = all.iter().map(|raw| (&raw.name, Evidence::None)).collect();
    let machine = Machine::new(&owner, &all);
    let theirs = all.iter().filter(|raw| matches!(machine.judge(raw, &blank(), &records), Verdict::Theirs(_))).count();
    assert_eq!(theirs, 512);
}

proptest! {
    /// One bad fact is enough, however innocent all others are.
    #[test]
    fn any_single_sign_of_use_keeps_a_disk_from_being_unclaimed(which in 0usize..12, rotational: bool, size in FLOOR..1000 * GIB) {
        let mut raw = RawDisk { rotational, size, ..disk("sda") };
        let mut probe = blank();
        let mut record = Evidence::None;
        let read = |contents| Probe::Read(contents);
        match which {
            0 => raw = mounted(raw, "/"),
            1 => raw.swap = true,
            2 => raw.holders.push("md0".into()),
            3 => raw.partitions.push("sda1".into()),
            4 => raw.read_only = true,
            5 => raw.removable = true,
            6 => raw.state = Some("blocked".into()),
            7 => probe = read(ProbeResult { busy: true, ..ProbeResult::default() }),
            8 => probe = read(ProbeResult { table: Some("PMBR".into()), ..ProbeResult::default() }),
            9 => probe = Probe::NotRead,
            10 => record = Evidence::Unreadable("torn".into()),
            _ => raw.unreadable = Some("x".into()),
        }
        let verdict = judge_with(&[raw], "sda", &probe, &[("sda", record)]);
        prop_assert_ne!(&verdict, &Verdict::Unclaimed);
        prop_assert_ne!(&verdict, &Verdict::Ours);
    }
}

#[test]
fn a_disk_that_a_link_of_another_provisioner_offers_is_theirs_and_so_is_all_of_it() {
    let link = "/mnt/local-storage/fast/nvme-x";
    let offered = |raw: RawDisk| RawDisk { offered: ForeignLink::By(link.into()), ..raw };
    let message = |name: &str| format!("{name} is offered by a link: {link}");
    assert_eq!(why(&[offered(disk("sda"))], "sda"), message("sda"));
    let part = [over(disk("sda"), &["sda1"], &[]), offered(partition("sda", 1, Some(GUID)))];
    assert_eq!((why(&part, "sda"), why(&part, "sda1")), (message("sda1"), message("sda1")));
    let whole = [over(offered(disk("sda")), &["sda1"], &[]), partition("sda", 1, Some(GUID))];
    assert_eq!(why(&whole, "sda1"), message("sda"));
    let ours = judge_with(&[offered(disk("sda"))], "sda", &blank(), &[("sda", ours())]);
    assert_eq!(ours, Verdict::Ours, "a link takes no disk away from us");
}

#[test]
fn where_it_cannot_be_told_whether_a_link_offers_a_disk_it_is_unknown_unless_it_is_ours_or_in_use() {
    let not_known = |raw: RawDisk| RawDisk { offered: ForeignLink::NotKnown("no leave to look".into()), ..raw };
    assert_eq!(judge(&[not_known(disk("sda"))], "sda"), Verdict::Unknown("no leave to look".into()));
    assert_eq!(judge_with(&[not_known(disk("sda"))], "sda", &blank(), &[("sda", ours())]), Verdict::Ours);
    assert_eq!(why(&[mounted(not_known(disk("sda")), "/")], "sda"), "sda is mounted at /");
}
