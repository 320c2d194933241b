//! Whether what is on a device may be destroyed, where a LocalVolume names it and orders so.
//!
//! Takes in a device among all devices, gives out leave or why it is [`NotWiped`]. Pure. The order is about
//! content only: it is no answer to a verdict that speaks of use, of sort, or of another's disk. The writes, with
//! the checks right before them, are in `agent/wipe.rs`.

use std::fmt;

use crate::device::{Device, Reason, Verdict, id};
use crate::host::{DeviceKind, Probe, ProbeResult, RawDisk};

/// Why a device is not wiped; `Display` ends a sentence for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotWiped {
    /// Nothing to destroy.
    Blank,
    /// The pool's, another node's, or one that nobody knows enough of.
    NotTheirs,
    InUse,
    BadSort,
    HasPartitions,
    /// Another provisioner offers it or has promised it.
    Promised,
    /// A partition or a mapped device: it carries no label, so what it holds may be a volume of this pool whose
    /// record was lost with the node's state.
    Bare,
    /// Another device is or may be the same disk.
    Twin(String),
    /// The device of a volume of this pool is away, and this one may be it under another identity.
    MayBeOurs,
}

/// Whether nothing but its content keeps a device out of the pool, and that content may go.
pub fn may_wipe(device: &Device, all: &[Device]) -> Result<(), NotWiped> {
    match &device.verdict {
        Verdict::Unclaimed => return Err(NotWiped::Blank),
        Verdict::Ours | Verdict::Foreign { .. } | Verdict::Unknown(_) => return Err(NotWiped::NotTheirs),
        Verdict::Theirs(reason) => by_reason(reason)?,
    }
    let whole = matches!(device.raw.kind, DeviceKind::Disk | DeviceKind::Loop(Some(_)));
    let plain = device.raw.partitions.is_empty() && device.raw.holders.is_empty();
    let is_read = matches!(&device.probe, Probe::Read(ProbeResult { busy: false, .. }));
    match (whole, plain, is_read) {
        (false, ..) => return Err(NotWiped::Bare),
        (_, false, _) => return Err(NotWiped::InUse),
        (.., false) => return Err(NotWiped::NotTheirs),
        (true, true, true) => {}
    }
    match twin(&device.raw, all) {
        Some(name) => Err(NotWiped::Twin(name)),
        None => Ok(()),
    }
}

/// Written out, so that a new reason is decided on and not forgotten.
fn by_reason(reason: &Reason) -> Result<(), NotWiped> {
    match reason {
        Reason::HasSignature { .. } | Reason::HasTable { .. } => Ok(()),
        Reason::HasPartitions { .. } => Err(NotWiped::HasPartitions),
        Reason::Offered { .. } | Reason::Promised { .. } => Err(NotWiped::Promised),
        Reason::Mounted { .. }
        | Reason::Swap { .. }
        | Reason::NodeBound { .. }
        | Reason::Held { .. }
        | Reason::DiskInUse { .. }
        | Reason::Busy
        | Reason::Component { .. }
        | Reason::OnPoolVolume { .. }
        | Reason::OfSet { .. }
        | Reason::OnGivenUp { .. }
        | Reason::LoopOverDevice { .. } => Err(NotWiped::InUse),
        Reason::NoMedium
        | Reason::CdRom
        | Reason::Floppy
        | Reason::RamDisk
        | Reason::Zram
        | Reason::Network
        | Reason::ReadOnly { .. }
        | Reason::Removable { .. }
        | Reason::NotRunning { .. }
        | Reason::BackingDeleted { .. }
        | Reason::Zoned { .. }
        | Reason::BootPartition { .. }
        | Reason::TooSmall { .. } => Err(NotWiped::BadSort),
        Reason::SameIdentity { others, .. } => {
            Err(NotWiped::Twin(others.first().map(|path| path.display().to_string()).unwrap_or_default()))
        }
    }
}

/// Another way to the same disk, by which somebody may use it.
fn twin(raw: &RawDisk, all: &[Device]) -> Option<String> {
    let own = id::hardware_id(raw, None);
    let same = |other: &&Device| {
        let partition = matches!(other.raw.kind, DeviceKind::Partition(_));
        !partition && other.raw.name != raw.name && id::hardware_id(&other.raw, None) == own
    };
    let found = all.iter().filter(|_| !own.is_path()).find(same)?;
    Some(found.raw.path.display().to_string())
}

impl fmt::Display for NotWiped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Blank => f.write_str("there is nothing on it"),
            Self::NotTheirs => f.write_str("localpool only wipes known content, and never a disk of a pool"),
            Self::InUse => f.write_str("a device in use is never wiped"),
            Self::BadSort => f.write_str("it is rejected for another reason than its content"),
            Self::HasPartitions => f.write_str("delete the partitions first, if nothing on them is needed"),
            Self::Promised => f.write_str("another provisioner offers it"),
            Self::Bare => f.write_str(
                "a partition or a mapped device may hold a volume whose record was lost: `wipefs --all` blanks it",
            ),
            Self::MayBeOurs => f.write_str(
                "the device of a volume is missing, and this may be that one with another serial or WWN: \
                 `wipefs --all` blanks it if it is not",
            ),
            Self::Twin(path) => write!(f, "{path}, which is in use, may be the same disk"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{
        DiskId, Holder,
        sample::{device, disk, dm, loop_over, partition, unclaimed},
    };

    fn theirs(reason: Reason) -> Device {
        Device { verdict: Verdict::Theirs(reason), ..unclaimed("sda") }
    }

    fn ext4() -> Reason {
        Reason::HasSignature { kind: "ext4".into(), label: None }
    }

    #[test]
    fn only_content_may_be_destroyed_whatever_else_is_told_of_a_device() {
        let (sda, target) = (|| crate::host::KernelName::from("sda"), || "/mnt".into());
        let table = [
            (ext4(), Ok(())),
            (Reason::HasTable { kind: "gpt".into() }, Ok(())),
            (Reason::HasPartitions { names: vec!["sda1".into()] }, Err(NotWiped::HasPartitions)),
            (Reason::Mounted { device: sda(), target: target() }, Err(NotWiped::InUse)),
            (Reason::Swap { device: sda() }, Err(NotWiped::InUse)),
            (Reason::NodeBound { device: sda(), target: target() }, Err(NotWiped::InUse)),
            (Reason::Held { device: sda(), by: "dm-0".into(), how: Holder::Mapped }, Err(NotWiped::InUse)),
            (Reason::DiskInUse { disk: sda(), why: Box::new(ext4()) }, Err(NotWiped::InUse)),
            (Reason::Busy, Err(NotWiped::InUse)),
            (Reason::Component { of: "md0".into(), how: Holder::Array }, Err(NotWiped::InUse)),
            (Reason::OnPoolVolume { below: sda() }, Err(NotWiped::InUse)),
            (Reason::LoopOverDevice { device: "/dev/sdb".into() }, Err(NotWiped::InUse)),
            (Reason::NoMedium, Err(NotWiped::BadSort)),
            (Reason::CdRom, Err(NotWiped::BadSort)),
            (Reason::Floppy, Err(NotWiped::BadSort)),
            (Reason::RamDisk, Err(NotWiped::BadSort)),
            (Reason::Zram, Err(NotWiped::BadSort)),
            (Reason::Network, Err(NotWiped::BadSort)),
            (Reason::ReadOnly { device: sda() }, Err(NotWiped::BadSort)),
            (Reason::Removable { device: sda() }, Err(NotWiped::BadSort)),
            (Reason::NotRunning { device: sda(), state: "offline".into() }, Err(NotWiped::BadSort)),
            (Reason::BackingDeleted { file: target() }, Err(NotWiped::BadSort)),
            (Reason::Zoned { model: "host-managed".into() }, Err(NotWiped::BadSort)),
            (Reason::BootPartition { label: "BIOS".into() }, Err(NotWiped::BadSort)),
            (Reason::TooSmall { size: 1 }, Err(NotWiped::BadSort)),
            (
                Reason::SameIdentity { id: DiskId::named("x"), others: vec!["/dev/sdb".into()] },
                Err(NotWiped::Twin("/dev/sdb".into())),
            ),
        ];
        for (reason, expected) in table {
            let device = theirs(reason.clone());
            assert_eq!(may_wipe(&device, std::slice::from_ref(&device)), expected, "{reason:?}");
        }
        let foreign = Verdict::Foreign { cluster: "c".into(), node: "n".into() };
        for (verdict, expected) in [
            (Verdict::Unclaimed, NotWiped::Blank),
            (Verdict::Ours, NotWiped::NotTheirs),
            (foreign, NotWiped::NotTheirs),
            (Verdict::Unknown("?".into()), NotWiped::NotTheirs),
        ] {
            assert_eq!(may_wipe(&Device { verdict, ..unclaimed("sda") }, &[]), Err(expected));
        }
    }

    #[test]
    fn what_carries_no_label_is_never_wiped() {
        let verdict = || Verdict::Theirs(ext4());
        for raw in [partition("sda", 1, None), dm("dm-0", "mpath-3600", &[]), dm("dm-1", "LVM-abc", &[])] {
            assert_eq!(may_wipe(&device(raw, verdict()), &[]), Err(NotWiped::Bare));
        }
        for raw in [disk("sda"), loop_over("loop0", "/a.img")] {
            assert_eq!(may_wipe(&device(raw, verdict()), &[]), Ok(()));
        }
    }

    #[test]
    fn a_disk_that_shows_more_than_its_verdict_says_is_spared() {
        let named = |names: &[&str]| names.iter().map(|name| (*name).into()).collect();
        let partitioned = RawDisk { partitions: named(&["sda1"]), ..disk("sda") };
        let held = RawDisk { holders: named(&["dm-0"]), ..disk("sda") };
        for raw in [partitioned, held] {
            assert_eq!(may_wipe(&device(raw, Verdict::Theirs(ext4())), &[]), Err(NotWiped::InUse));
        }
        for probe in [Probe::NotRead, Probe::Read(ProbeResult { busy: true, ..ProbeResult::default() })] {
            assert_eq!(may_wipe(&Device { probe, ..theirs(ext4()) }, &[]), Err(NotWiped::NotTheirs));
        }
    }

    #[test]
    fn a_second_way_to_the_same_disk_spares_it() {
        let path =
            |name: &str, wwid: &str| device(RawDisk { wwid: Some(wwid.into()), ..disk(name) }, Verdict::Theirs(ext4()));
        let all = [path("sda", "naa.1"), path("sdb", "naa.1"), path("sdc", "naa.2")];
        assert_eq!(may_wipe(&all[0], &all), Err(NotWiped::Twin("/dev/sdb".into())));
        assert_eq!(may_wipe(&all[2], &all), Ok(()));
    }
}
