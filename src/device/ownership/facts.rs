//! The verdict by one device's own facts, whatever the others are.

use super::evidence::Evidence;
use crate::device::judged::Verdict;
use crate::device::reason::{FLOOR, Reason};
use crate::host::{DeviceKind, MountHow, Partition, Probe, ProbeResult, RawDisk};

/// States in which SCSI and NVMe take commands; a device without a state has nothing to say.
const RUNNING: [&str; 2] = ["running", "live"];
/// What `Unknown` says of a device that nobody has read.
pub const NOT_READ: &str = "not read yet";

/// What `Unknown` says of an array that our disks are members of.
pub(super) const NO_ARRAY_UUID: &str = "its array UUID is not known yet: neither the kernel nor udev has it";

pub(super) fn unusable_label(why: &str) -> String {
    format!("carries a localpool label that cannot be used: {why}")
}

pub(super) fn mount_of(raw: &RawDisk, how: MountHow) -> Option<Reason> {
    let used = raw.mounts.iter().find(|used| used.how == how)?;
    let (device, target) = (raw.name.clone(), used.target.clone());
    Some(match how {
        MountHow::Filesystem => Reason::Mounted { device, target },
        MountHow::Node => Reason::NodeBound { device, target },
    })
}

pub(super) fn not_running(raw: &RawDisk) -> Option<Reason> {
    let suspended = matches!(&raw.kind, DeviceKind::Dm(dm) if dm.suspended);
    let state = if suspended { Some("suspended") } else { raw.state.as_deref() };
    let state = state.filter(|state| !RUNNING.contains(state))?;
    Some(Reason::NotRunning { device: raw.name.clone(), state: state.to_owned() })
}

/// The questions that are asked of a partition's disk as well.
pub(super) fn of_bad_sort(raw: &RawDisk) -> Option<Reason> {
    let device = || raw.name.clone();
    match &raw.kind {
        DeviceKind::Rom => return Some(Reason::CdRom),
        DeviceKind::Floppy => return Some(Reason::Floppy),
        DeviceKind::Ram => return Some(Reason::RamDisk),
        DeviceKind::Zram => return Some(Reason::Zram),
        DeviceKind::Network => return Some(Reason::Network),
        DeviceKind::Loop(Some(backing)) if backing.deleted => {
            return Some(Reason::BackingDeleted { file: backing.file.clone() });
        }
        DeviceKind::Disk
        | DeviceKind::Partition(_)
        | DeviceKind::Loop(_)
        | DeviceKind::Dm(_)
        | DeviceKind::Md(_)
        | DeviceKind::Other(_) => {}
    }
    if raw.size == 0 {
        return Some(Reason::NoMedium);
    }
    if raw.read_only {
        return Some(Reason::ReadOnly { device: device() });
    }
    if raw.removable {
        return Some(Reason::Removable { device: device() });
    }
    let zoned = raw.zoned.as_ref().filter(|model| *model == "host-managed");
    not_running(raw).or_else(|| zoned.map(|model| Reason::Zoned { model: model.clone() }))
}

pub(super) fn unusable(raw: &RawDisk) -> Option<Reason> {
    if let DeviceKind::Partition(Partition { part_label: Some(label), .. }) = &raw.kind {
        let lower = label.to_lowercase();
        if lower.contains("bios") || lower.contains("boot") {
            return Some(Reason::BootPartition { label: label.clone() });
        }
    }
    if !raw.partitions.is_empty() {
        return Some(Reason::HasPartitions { names: raw.partitions.clone() });
    }
    (raw.size < FLOOR).then_some(Reason::TooSmall { size: raw.size })
}

pub(super) fn by_content(probe: &Probe, record: Option<&Evidence>) -> Verdict {
    // Without an answer to whether it is ours, blank content proves nothing.
    let (record, contents) = match (record, probe) {
        (Some(Evidence::Failed(why)), _) | (_, Probe::Failed(why)) => {
            return Verdict::Unknown(format!("could not be read: {why}"));
        }
        (None, _) | (_, Probe::NotRead) => return Verdict::Unknown(NOT_READ.to_owned()),
        (Some(record), Probe::Read(contents)) => (record, contents),
    };
    let ProbeResult { table, signatures, busy } = contents;
    if *busy {
        return Verdict::Theirs(Reason::Busy);
    }
    // A filesystem says more than the table that its boot sector also looks like.
    if let Some(found) = signatures.first() {
        return Verdict::Theirs(Reason::HasSignature { kind: found.kind.clone(), label: found.label.clone() });
    }
    // Either pair of eyes is enough: ours and libblkid's do not see the same damage.
    let other_table = match record {
        Evidence::OtherTable(message) => Some(message),
        Evidence::None | Evidence::Valid(_) | Evidence::Unreadable(_) => None,
        Evidence::Failed(_) | Evidence::Bare | Evidence::GivenUp => None,
    };
    match table.as_ref().or(other_table) {
        Some(kind) => Verdict::Theirs(Reason::HasTable { kind: kind.clone() }),
        None => Verdict::Unclaimed,
    }
}
