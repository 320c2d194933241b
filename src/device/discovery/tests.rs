use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use super::super::sample::{disk, dm, label, partition};
use super::*;
use crate::host::{
    Arrays, DeviceKind, Disk, DiskReport, Extent, Filesystems, Geometry, Health, HostError, IoError, IoErrors, Mapping,
    Mounts, PartitionMap, Signature,
};

/// A machine whose disks hold one word each: ``, `ours`, `torn`, `dead`, `busy`, `asleep` or the name of a signature.
#[derive(Default)]
struct Desk {
    now: Mutex<Duration>,
    disks: Mutex<BTreeMap<String, (RawDisk, String)>>,
    opened: Mutex<Vec<String>>,
    probed: Mutex<Vec<String>>,
    /// A probe of an `asleep` disk waits for it.
    gate: Mutex<()>,
}

struct Open(String, String);

impl Desk {
    fn with(disks: &[(&str, &str)]) -> Arc<Self> {
        let desk = Self::default();
        for (name, word) in disks {
            desk.put(RawDisk { serial: Some(format!("SN-{name}")), ..disk(name) }, word);
        }
        Arc::new(desk)
    }

    fn put(&self, raw: RawDisk, word: &str) {
        self.disks.lock().unwrap().insert(raw.name.to_string(), (raw, word.to_owned()));
    }

    fn host(self: &Arc<Self>) -> Arc<dyn Host> {
        Arc::clone(self) as Arc<dyn Host>
    }

    fn wait(&self, seconds: u64) {
        *self.now.lock().unwrap() += Duration::from_secs(seconds);
    }

    /// What was opened and probed since the last question.
    fn touched(&self) -> (String, String) {
        let take = |names: &Mutex<Vec<String>>| std::mem::take(&mut *names.lock().unwrap()).join(" ");
        (take(&self.opened), take(&self.probed))
    }

    fn word(&self, name: &str) -> String {
        self.disks.lock().unwrap()[name].1.clone()
    }
}

impl Host for Desk {
    fn report(&self, _: &RawDisk) -> DiskReport {
        DiskReport::of(Health::Unknown("discovery asks no disk how it is".to_owned()))
    }

    fn io_errors(&self, _: &RawDisk) -> Option<IoErrors> {
        None
    }

    fn scan(&self) -> Result<Vec<RawDisk>, HostError> {
        Ok(self.disks.lock().unwrap().values().map(|(raw, _)| raw.clone()).collect())
    }

    fn probe(&self, disk: &RawDisk) -> Probe {
        self.probed.lock().unwrap().push(disk.name.to_string());
        let word = self.word(&disk.name);
        if word == "dead" {
            return Probe::Failed("dead".into());
        }
        if word == "asleep" {
            drop(self.gate.lock().unwrap());
            return Probe::Read(ProbeResult::default());
        }
        if word == "busy" {
            return Probe::Read(ProbeResult { busy: true, ..ProbeResult::default() });
        }
        let signature = |kind| Signature { kind, usage: "filesystem".into(), label: None, uuid: None, offset: 0 };
        let signatures = [word].into_iter().filter(|word| !word.is_empty()).map(signature).collect();
        Probe::Read(ProbeResult { signatures, ..ProbeResult::default() })
    }

    fn open(&self, disk: &RawDisk, access: Access) -> Result<Arc<dyn Disk>, HostError> {
        assert_eq!(access, Access::ReadOnly, "a scan never opens for writing");
        self.opened.lock().unwrap().push(disk.name.to_string());
        match self.word(&disk.name).as_str() {
            "dead" => Err(HostError::Busy { object: disk.name.to_string() }),
            word => Ok(Arc::new(Open(disk.name.to_string(), word.to_owned()))),
        }
    }

    fn state(&self) -> &dyn crate::host::StateStore {
        unreachable!("a scan remembers nothing on disk")
    }

    fn filesystems(&self) -> &dyn Filesystems {
        unreachable!("a scan makes no filesystem")
    }

    fn md(&self) -> &dyn Arrays {
        unreachable!("a scan makes no array")
    }

    fn mounts(&self) -> &dyn Mounts {
        unreachable!("a scan mounts nothing")
    }

    fn own_mounts(&self) -> PathBuf {
        unreachable!("discovery mounts nothing")
    }

    fn monotonic(&self) -> Duration {
        *self.now.lock().unwrap()
    }
}

impl BlockDevice for Open {
    fn geometry(&self) -> Geometry {
        Geometry { size: 1 << 30, sector: 512, offloads_zeroes: false }
    }

    fn read_at(&self, _: u64, buf: &mut [u8]) -> Result<(), IoError> {
        buf.fill(0);
        buf[..self.1.len()].copy_from_slice(self.1.as_bytes());
        Ok(())
    }

    fn write_at(&self, _: u64, _: &[u8]) -> Result<(), IoError> {
        unreachable!("a scan writes nothing")
    }

    fn zero(&self, _: Extent) -> Result<(), IoError> {
        unreachable!("a scan writes nothing")
    }

    fn discard(&self, _: Extent) -> Result<(), IoError> {
        unreachable!("a scan writes nothing")
    }

    fn sync(&self) -> Result<(), IoError> {
        unreachable!("a scan writes nothing")
    }
}

impl PartitionMap for Open {
    fn mapped(&self) -> Result<Vec<Mapping>, HostError> {
        unreachable!("a scan maps nothing")
    }

    fn map(&self, _: u32, _: Extent) -> Result<(), HostError> {
        unreachable!("a scan maps nothing")
    }

    fn unmap(&self, _: u32) -> Result<(), HostError> {
        unreachable!("a scan maps nothing")
    }

    fn resize(&self, _: u32, _: Extent) -> Result<(), HostError> {
        unreachable!("a scan maps nothing")
    }

    fn prove_unused(&self, _: u32) -> Result<(), HostError> {
        unreachable!("a scan maps nothing")
    }

    fn hold(&self, _: u32) -> Result<(), HostError> {
        unreachable!("a scan maps nothing")
    }

    fn node(&self, _: u32) -> PathBuf {
        unreachable!("a scan maps nothing")
    }
}

impl Disk for Open {
    fn exclusive(&self) -> Result<Box<dyn Send + '_>, HostError> {
        unreachable!("a scan locks nothing")
    }

    fn prove_unopened(&self, _: crate::host::Openers) -> Result<(), HostError> {
        unreachable!("a scan keeps nobody out")
    }

    fn path(&self) -> PathBuf {
        PathBuf::from("/dev").join(&self.0)
    }
}

fn read(device: &dyn BlockDevice) -> Evidence {
    let mut first = [0; 16];
    device.read_at(0, &mut first).unwrap();
    match first.split(|byte| *byte == 0).next().unwrap() {
        b"ours" => Evidence::Valid(Arc::new(label("c", "n"))),
        b"torn" => Evidence::Unreadable("torn".into()),
        _ => Evidence::None,
    }
}

fn discovery() -> Discovery {
    let owner = Owner { cluster: "c".into(), node: "n".into() };
    Discovery { read, ..Discovery::new(owner, Duration::from_secs(60)) }
}

fn verdicts(set: &Snapshot) -> Vec<(&str, &'static str)> {
    let word = |verdict: &Verdict| match verdict {
        Verdict::Unclaimed => "unclaimed",
        Verdict::Ours => "ours",
        Verdict::Foreign { .. } => "foreign",
        Verdict::Theirs(_) => "theirs",
        Verdict::Unknown(_) => "unknown",
    };
    set.devices.iter().map(|device| (device.raw.name.as_str(), word(&device.verdict))).collect()
}

fn find<'s>(set: &'s Snapshot, name: &str) -> &'s Device {
    set.devices.iter().find(|device| device.raw.name == name).unwrap()
}

#[test]
fn a_scan_tells_each_disk_apart_and_gives_pool_disks_their_label() {
    let desk = Desk::with(&[("sda", ""), ("sdb", "ours"), ("sdc", "xfs"), ("sdd", "torn"), ("sde", "dead")]);
    let snapshot = discovery().scan(&desk.host()).unwrap();
    let expected = [("sda", "unclaimed"), ("sdb", "ours"), ("sdc", "theirs"), ("sdd", "unknown"), ("sde", "unknown")];
    assert_eq!(verdicts(&snapshot), expected);
    let pool = find(&snapshot, "sdb");
    assert_eq!(pool.id, DiskId::labelled(pool.label.as_ref().unwrap().disk));
    assert_eq!(find(&snapshot, "sda").id.as_str(), "serial--SN-sda");
    assert_eq!(desk.touched(), ("sda sdb sdc sdd sde".into(), "sda sdc sde".into()), "ours is never probed: O_EXCL");
}

#[test]
fn a_device_claimed_bare_is_not_read_and_what_a_tenant_wrote_on_it_is_neither_a_label_nor_a_rival_of_anything() {
    let guid = "6c6f6361-0000-4000-8000-000000000001";
    // sda is a pool disk; on sdb, which is bare, a tenant wrote its label, and a partition with the GUID of sdc1.
    let desk = Desk::with(&[("sda", "ours"), ("sdb", "ours"), ("sdc", "")]);
    for disk in ["sdb", "sdc"] {
        let whole = desk.disks.lock().unwrap()[disk].0.clone();
        desk.put(RawDisk { partitions: vec![format!("{disk}1").into()], ..whole }, &desk.word(disk));
        desk.put(partition(disk, 1, Some(guid)), "");
    }
    let mut discovery = discovery();
    discovery.claimed_bare([DiskId::named("serial--SN-sdb")].into());
    let snapshot = discovery.scan(&desk.host()).unwrap();
    let expected = [("sda", "ours"), ("sdb", "ours"), ("sdb1", "theirs"), ("sdc", "theirs"), ("sdc1", "unclaimed")];
    assert_eq!(verdicts(&snapshot), expected);
    assert!(snapshot.devices.iter().all(|device| device.believed == Believed::Yes));
    assert_eq!(find(&snapshot, "sdb").label, None);
    let (opened, probed) = desk.touched();
    assert!(!opened.contains("sdb") && !probed.contains("sdb"), "{opened}; {probed}");
    // It is claimed while the content is remembered, and released again.
    discovery.claimed_bare(BTreeSet::new());
    assert_eq!(discovery.scan(&desk.host()).unwrap().devices[1].verdict, Verdict::Ours);
    assert!(desk.touched().0.contains("sdb"), "what is on it counts again, so it is read");
    discovery.claimed_bare([DiskId::named("serial--SN-sdb")].into());
    assert_eq!(find(&discovery.scan(&desk.host()).unwrap(), "sdb").label, None);
    // A partition that is claimed bare itself is that, and not the tenant's of the same GUID.
    discovery.claimed_bare([DiskId::named("serial--SN-sdb"), DiskId::named(format!("part-{guid}"))].into());
    let snapshot = discovery.scan(&desk.host()).unwrap();
    assert_eq!((verdicts(&snapshot)[2], verdicts(&snapshot)[4]), (("sdb1", "theirs"), ("sdc1", "ours")));
}

#[test]
fn a_label_in_a_tenants_volume_gives_no_device_its_name_and_no_pool_disk_a_rival() {
    let desk = Desk::with(&[("sda", "ours")]);
    let guid = "6c6f6361-0000-4000-8000-000000000001";
    let (whole, built) = (desk.disks.lock().unwrap()["sda"].0.clone(), dm("dm-0", "LVM-x", &["sda2"]));
    desk.put(RawDisk { partitions: vec!["sda2".into()], ..whole }, "ours");
    desk.put(RawDisk { holders: vec!["dm-0".into()], ..partition("sda", 2, Some(guid)) }, "ours");
    desk.put(built, "ours");
    let snapshot = discovery().scan(&desk.host()).unwrap();
    assert_eq!(verdicts(&snapshot), [("dm-0", "theirs"), ("sda", "ours"), ("sda2", "ours")]);
    let tenants = find(&snapshot, "dm-0");
    assert_eq!((tenants.label.as_ref(), tenants.id.as_str()), (None, "dm-LVM-x"));
    assert_eq!(find(&snapshot, "sda").believed, Believed::Yes);
}

#[test]
fn nothing_is_opened_that_cannot_be_unclaimed_or_ours() {
    let desk = Desk::with(&[]);
    desk.put(RawDisk { kind: DeviceKind::Rom, ..disk("sr0") }, "");
    desk.put(RawDisk { kind: DeviceKind::Network, ..disk("nbd0") }, "");
    desk.put(RawDisk { size: 0, kind: DeviceKind::Loop(None), ..disk("loop0") }, "");
    desk.put(RawDisk { state: Some("offline".into()), ..disk("sdx") }, "");
    desk.put(RawDisk { swap: true, ..disk("sda") }, "");
    discovery().scan(&desk.host()).unwrap();
    assert_eq!(desk.touched(), ("sda".into(), String::new()), "a disk in use may be ours, but needs no probe");
}

#[test]
fn what_denies_is_believed_for_a_while_and_what_would_free_is_read_each_time() {
    let desk = Desk::with(&[("sda", ""), ("sdb", "ours"), ("sdc", "xfs")]);
    let mut discovery = discovery();
    discovery.scan(&desk.host()).unwrap();
    desk.touched();
    desk.wait(30);
    discovery.scan(&desk.host()).unwrap();
    assert_eq!(desk.touched(), ("sda".into(), "sda".into()));
    desk.wait(30);
    discovery.scan(&desk.host()).unwrap();
    assert_eq!(desk.touched(), ("sda sdb sdc".into(), "sda sdc".into()), "nothing is believed for ever");
}

#[test]
fn that_a_disk_was_busy_is_believed_at_that_scan_only() {
    let desk = Desk::with(&[("sda", "busy")]);
    let mut discovery = discovery();
    assert_eq!(verdicts(&discovery.scan(&desk.host()).unwrap()), [("sda", "theirs")]);
    let raw = desk.disks.lock().unwrap()["sda"].0.clone();
    desk.put(raw, "");
    assert_eq!(verdicts(&discovery.scan(&desk.host()).unwrap()), [("sda", "unclaimed")]);
}

#[test]
fn an_event_or_another_device_under_the_name_is_looked_at_again() {
    let desk = Desk::with(&[("sdb", "ours"), ("sdc", "xfs")]);
    let mut discovery = discovery();
    discovery.scan(&desk.host()).unwrap();
    desk.touched();
    discovery.changed(&"sdc1".into());
    discovery.scan(&desk.host()).unwrap();
    assert_eq!(desk.touched(), ("sdc".into(), "sdc".into()));
    let replaced = RawDisk { diskseq: Some(2), serial: Some("other".into()), ..disk("sdb") };
    desk.put(replaced, "");
    let snapshot = discovery.scan(&desk.host()).unwrap();
    assert_eq!(verdicts(&snapshot), [("sdb", "unclaimed"), ("sdc", "theirs")]);
    desk.touched();
    discovery.all_changed();
    discovery.scan(&desk.host()).unwrap();
    assert_eq!(desk.touched().0, "sdb sdc");
}

#[test]
fn a_withheld_device_is_unknown_without_its_label_and_is_read_again_when_it_counts() {
    let desk = Desk::with(&[("sda", ""), ("sdb", "ours"), ("sdc", "xfs")]);
    let mut discovery = discovery();
    let scanned = discovery.scan(&desk.host()).unwrap();
    let ours = find(&scanned, "sdb").clone();
    let mut scan = |claims: &[&str], known: Option<BTreeMap<DiskId, Option<HardwareId>>>| {
        let claims = claims.iter().map(|name| (*name).into()).collect();
        discovery.withhold(Withholding { claims, known });
        let snapshot = discovery.scan(&desk.host()).unwrap();
        let words: Vec<&str> = verdicts(&snapshot).into_iter().map(|(_, word)| word).collect();
        (words.join(" "), find(&snapshot, "sdb").label.is_some())
    };
    let hardware = |id: &str| Some(BTreeMap::from([(ours.id.clone(), Some(HardwareId::named(id)))]));
    assert_eq!(scan(&["sda", "sdc"], None), ("unknown ours unknown".into(), true), "whatever is on them");
    assert_eq!(scan(&[], Some(BTreeMap::new())), ("unclaimed unknown theirs".into(), false), "nobody knows this label");
    assert_eq!(scan(&[], hardware("serial--other")), ("unclaimed unknown theirs".into(), false), "on other hardware");
    assert_eq!(scan(&[], hardware("serial--SN-sdb")), ("unclaimed ours theirs".into(), true));
    let without = Some(BTreeMap::from([(ours.id.clone(), None)]));
    assert_eq!(scan(&[], without), ("unclaimed ours theirs".into(), true), "its hardware was never known");
    desk.touched();
    scan(&[], Some(BTreeMap::new()));
    desk.touched();
    assert_eq!(scan(&[], None), ("unclaimed ours theirs".into(), true));
    assert!(desk.touched().0.contains("sdb"), "it counts again, so it is read");
}

#[test]
fn a_blank_disk_that_became_ours_without_an_event_is_not_probed_as_blank() {
    let desk = Desk::with(&[("sda", "")]);
    let mut discovery = discovery();
    discovery.scan(&desk.host()).unwrap();
    let raw = find(&discovery.scan(&desk.host()).unwrap(), "sda").raw.clone();
    desk.put(raw, "ours");
    desk.touched();
    assert_eq!(verdicts(&discovery.scan(&desk.host()).unwrap()), [("sda", "ours")]);
    assert_eq!(desk.touched(), ("sda".into(), String::new()));
}

#[test]
fn a_claim_is_confirmed_by_a_fresh_scan_of_that_device_alone() {
    let desk = Desk::with(&[("sda", ""), ("sdb", ""), ("sdc", "xfs")]);
    let mut discovery = discovery();
    let snapshot = discovery.scan(&desk.host()).unwrap();
    desk.touched();
    let sda = find(&snapshot, "sda");
    assert_eq!(discovery.reread(&desk.host(), sda).unwrap().verdict, Verdict::Unclaimed);
    assert_eq!(desk.touched(), ("sda".into(), "sda".into()));

    desk.put(sda.raw.clone(), "ext4");
    let error = discovery.reread(&desk.host(), sda).unwrap_err();
    assert_eq!(
        error.to_string(),
        "sda is not free any more: holds ext4; `wipefs --all` blanks it if nothing on it is needed"
    );
    desk.put(sda.raw.clone(), "ours");
    assert!(matches!(discovery.reread(&desk.host(), sda), Err(DiscoveryError::Changed { .. })));
    desk.put(RawDisk { diskseq: Some(9), ..sda.raw.clone() }, "");
    assert!(matches!(discovery.reread(&desk.host(), sda), Err(DiscoveryError::Changed { .. })));
    desk.disks.lock().unwrap().remove("sda");
    assert!(matches!(discovery.reread(&desk.host(), sda), Err(DiscoveryError::Gone { .. })));
    assert_eq!(verdicts(&discovery.scan(&desk.host()).unwrap()), [("sdb", "unclaimed"), ("sdc", "theirs")]);
}

#[test]
fn a_probe_that_hangs_makes_its_device_unknown_and_is_not_repeated_until_it_ends() {
    let desk = Desk::with(&[("sda", "asleep"), ("sdb", "")]);
    let mut discovery = discovery().waiting_at_most(Duration::from_secs(3));
    let gate = desk.gate.lock().unwrap();
    for probed in ["sda sdb", "sdb"] {
        let snapshot = discovery.scan(&desk.host()).unwrap();
        assert_eq!(verdicts(&snapshot), [("sda", "unknown"), ("sdb", "unclaimed")]);
        let Verdict::Unknown(why) = &find(&snapshot, "sda").verdict else { unreachable!("as was just seen") };
        assert!(why.contains("took more than 3s"), "{why}");
        assert_eq!(desk.touched().1, probed);
        assert!(discovery.is_waiting());
    }
    drop(gate);
    while discovery.is_waiting() {
        discovery.scan(&desk.host()).unwrap();
    }
    let snapshot = discovery.scan(&desk.host()).unwrap();
    assert_eq!(verdicts(&snapshot), [("sda", "unclaimed"), ("sdb", "unclaimed")]);
}

#[test]
fn a_device_that_is_gone_is_not_waited_for() {
    let desk = Desk::with(&[("sda", "asleep")]);
    let mut discovery = discovery().waiting_at_most(Duration::from_secs(3));
    let _gate = desk.gate.lock().unwrap();
    discovery.scan(&desk.host()).unwrap();
    desk.disks.lock().unwrap().clear();
    discovery.scan(&desk.host()).unwrap();
    assert!(!discovery.is_waiting());
}

#[test]
fn a_second_path_that_appears_before_the_claim_stops_it() {
    let desk = Desk::with(&[("sda", "")]);
    let mut discovery = discovery();
    let snapshot = discovery.scan(&desk.host()).unwrap();
    let sda = find(&snapshot, "sda");
    desk.put(RawDisk { name: "sdb".into(), path: "/dev/sdb".into(), ..sda.raw.clone() }, "");
    let error = discovery.reread(&desk.host(), sda).unwrap_err();
    assert!(error.to_string().contains("same identity"), "{error}");
}

#[test]
fn a_partition_is_confirmed_with_its_disk() {
    let guid = "6c6f6361-0000-4000-8000-000000000001";
    let desk = Desk::with(&[]);
    let whole = RawDisk { partitions: vec!["sda1".into()], ..disk("sda") };
    desk.put(whole.clone(), "");
    desk.put(partition("sda", 1, Some(guid)), "");
    let mut discovery = discovery();
    let snapshot = discovery.scan(&desk.host()).unwrap();
    let part = find(&snapshot, "sda1");
    assert_eq!(part.verdict, Verdict::Unclaimed);
    desk.put(whole, "ours");
    assert!(discovery.reread(&desk.host(), part).is_err(), "its disk has become ours: a volume, not a free device");
}
