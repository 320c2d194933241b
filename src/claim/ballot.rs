//! Everything that an election is decided on, as values: who needs to know what a disk says asks it before.

use std::collections::{BTreeMap, BTreeSet};

use super::rejection::NotZeros;
use super::ripeness::Ripeness;
use super::rule::Rule;
use super::unfit::LayoutError;
use super::wipe::NotWiped;
use crate::device::label::SetRef;
use crate::device::{Device, DiskId};
use crate::host::{Health, KernelName};

/// The sets, all devices, and what is known of both.
pub struct Ballot<'a> {
    pub rules: &'a [Rule],
    pub devices: &'a [Device],
    /// By kernel name; of a device that is not there nothing is known.
    pub candidacies: &'a BTreeMap<KernelName, Candidacy>,
    /// How many disks of this node each set has, missing ones too.
    pub claimed: &'a BTreeMap<SetRef, u32>,
    /// How many disks the array of a set still lacks before it is made, if it has one and lacks some.
    pub open_places: &'a BTreeMap<SetRef, u32>,
    /// How many of the disks of a LocalVolume's class none of its paths leads to now.
    pub astray: &'a BTreeMap<SetRef, u32>,
    /// Ids of the devices that a person released: nobody takes them until they are adopted.
    pub released: &'a BTreeSet<DiskId>,
    /// Whether the device can have the set's layout.
    pub fits: fn(&Rule, &Device) -> Result<(), LayoutError>,
    /// What this machine lacks for the layout of a set. Its devices wait for that.
    pub lacks: &'a BTreeMap<SetRef, LayoutError>,
}

/// What is known of a device beside what it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidacy {
    pub ripeness: Ripeness,
    /// A bare device of the pool: no set takes it.
    pub is_bare: bool,
    /// It may be a bare device of the pool that has another identity now: whoever takes it wants zeros.
    pub may_be_ours: bool,
    /// What was read of it that keeps it from a use which wants zeros.
    pub not_zeros: Option<NotZeros>,
    /// What it says; `None`: it was not asked.
    pub health: Option<Health>,
    /// Of a device whose content a set orders to be destroyed: since when that has been there, or why it stays.
    pub wipe: Option<Result<Ripeness, NotWiped>>,
}

impl Default for Candidacy {
    fn default() -> Self {
        Self {
            ripeness: Ripeness::Unseen,
            is_bare: false,
            may_be_ours: false,
            not_zeros: None,
            health: None,
            wipe: None,
        }
    }
}
