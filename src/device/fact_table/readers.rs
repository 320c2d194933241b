//! Facts that take more than a field of what the kernel says, and the names of those that others ask for.

use std::path::Path;

use crate::device::fact::{FactValue, Facts, Observed};
use crate::host::{DeviceKind, Probe, RawDisk};

// Those that somebody asks for by name.
pub const PATH: &str = "path";
pub const VERDICT: &str = "verdict";
pub const REFUSAL: &str = "refusal";
pub const CHILDREN: &str = "children";
pub const EMPTY: &str = "empty";
pub const POOL_PARTITION: &str = "poolPartition";
pub(super) const LINK: &str = "link";
pub(super) const ATTACHED_BY: &str = "attachedBy";
pub(super) const ROTATIONAL: &str = "rotational";

pub(super) const PROPERTIES: [&str; 2] = ["Rotational", "NonRotational"];

pub(super) fn device_id(facts: &Facts) -> Option<FactValue> {
    let link = facts.text(LINK)?;
    (facts.text(PATH) != Some(link)).then(|| FactValue::Text(link.to_owned()))
}

pub(super) fn property(facts: &Facts) -> Option<FactValue> {
    let [turns, does_not] = PROPERTIES;
    let word = if facts.holds(ROTATIONAL) { turns } else { does_not };
    Some(FactValue::Text(word.to_owned()))
}

/// `naa.5000…` is `0x5000…` to udev; a T10 name is no world wide number.
pub(super) fn wwn(wwid: &str) -> Option<String> {
    match wwid.split_once('.') {
        Some(("naa", number)) => Some(format!("0x{number}")),
        Some(("eui" | "nvme" | "uuid", _)) => Some(wwid.to_owned()),
        _ => None,
    }
}

pub(super) fn by_path(raw: &RawDisk) -> Option<String> {
    let link = raw.links.iter().find(|link| link.parent() == Some(Path::new("/dev/disk/by-path")))?;
    Some(link.display().to_string())
}

pub(super) fn fstype(observed: &Observed<'_>) -> Option<String> {
    let signed = match &observed.device.probe {
        Probe::Read(contents) => contents.signatures.first().map(|signature| signature.kind.clone()),
        Probe::NotRead | Probe::Failed(_) => None,
    };
    signed.or_else(|| observed.raw().fs_type.clone())
}

pub(super) fn is_empty(raw: &RawDisk) -> bool {
    raw.size == 0 && raw.unreadable.is_none() && !matches!(raw.kind, DeviceKind::Dm(_) | DeviceKind::Md(_))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_world_wide_name_is_written_as_lsblk_writes_it() {
        assert_eq!(wwn("naa.5000c500a1b2c3d4").as_deref(), Some("0x5000c500a1b2c3d4"));
        assert_eq!(wwn("eui.0025385791b2a3c4").as_deref(), Some("eui.0025385791b2a3c4"));
        assert_eq!(wwn("t10.ATA     Samsung"), None);
    }
}
