//! A device with the pool's note, and the message about its owner.

use crate::device::{Believed, Device, Verdict};
use crate::host::DeviceKind;

/// A device, and the pool's note if it is in the pool: `in pool, 3.2 GiB free`.
#[derive(Clone, Debug)]
pub struct ListedDevice {
    pub device: Device,
    pub note: Option<String>,
}

/// Whose a device is and why, in the words of the table.
pub fn verdict_and_reason(shown: &ListedDevice) -> (&'static str, String) {
    let ListedDevice { device, note } = shown;
    let note_or = |otherwise: &str| note.clone().unwrap_or_else(|| otherwise.to_owned());
    let (verdict, reason) = match &device.verdict {
        Verdict::Unclaimed => ("Unclaimed", note_or("blank and not in use")),
        Verdict::Ours if device.label.is_some() => ("Ours", note_or("in pool")),
        Verdict::Ours if matches!(device.raw.kind, DeviceKind::Partition(_)) => {
            ("Ours", note_or("a partition of a pool disk"))
        }
        Verdict::Ours => ("Ours", note_or("in pool as a bare device")),
        Verdict::Foreign { cluster, node } => {
            let whose = format!("in the pool of node {node}, cluster {cluster}");
            let adopt = match device.label {
                Some(_) => format!("; `localpool disk adopt {}` takes it over", device.id),
                None => String::new(),
            };
            ("Theirs", whose + &adopt)
        }
        Verdict::Theirs(reason) => ("Theirs", reason.to_string()),
        Verdict::Unknown(why) => ("Unknown", why.clone()),
    };
    match &device.believed {
        Believed::Yes => (verdict, reason),
        Believed::No(why) => (verdict, format!("{reason}; not ready: {why}")),
    }
}

/// Why nobody may take a device, if so. Without the pool's note, which changes with each volume.
pub fn refusal(shown: &ListedDevice) -> Option<String> {
    let Device { verdict, believed, .. } = &shown.device;
    let free = *verdict == Verdict::Unclaimed && *believed == Believed::Yes;
    (!free).then(|| verdict_and_reason(&ListedDevice { device: shown.device.clone(), note: None }).1)
}
