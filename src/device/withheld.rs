//! Devices that nothing may be begun with, whatever is on them: the agent knows why, and no device can say it.
//!
//! Values only; `discovery` gives such a device its verdict.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::disk_id::{DiskId, HardwareId};
use super::duplicate::stable_hardware_id;
use super::judged::{Device, Verdict};
use crate::host::KernelName;

/// Why a device is withheld.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Withheld {
    /// The bytes there are a part of localpool's own work.
    ClaimUnderWay,
    /// A tenant may have written its label.
    UnknownLabel,
}

/// The devices that one scan withholds.
#[derive(Clone, Debug, Default)]
pub struct Withholding {
    /// The disks that a claim is under way on.
    pub claims: BTreeSet<KernelName>,
    /// The labelled disks that the journal knows, each with its hardware, if that is known. Other labels do not count.
    /// `None`: every label counts.
    pub known: Option<BTreeMap<DiskId, Option<HardwareId>>>,
}

impl Withholding {
    /// Why this device is withheld, if it is.
    pub fn of(&self, device: &Device) -> Option<Withheld> {
        if self.claims.contains(&device.raw.name) {
            return Some(Withheld::ClaimUnderWay);
        }
        let known = self.known.as_ref().filter(|_| device.label.is_some() && device.verdict == Verdict::Ours)?;
        let is_its = |hardware: &Option<HardwareId>| hardware.is_none() || *hardware == stable_hardware_id(&device.raw);
        let is_known = known.get(&device.id).is_some_and(is_its);
        (!is_known).then_some(Withheld::UnknownLabel)
    }
}

impl fmt::Display for Withheld {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ClaimUnderWay => "it is being claimed, and has not answered yet",
            Self::UnknownLabel => {
                "it has a label of this node, but the journal does not know it: it joins the pool when the API server \
                 has listed the volumes of this node"
            }
        })
    }
}
