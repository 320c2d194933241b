//! The light of the slot that a disk is in: a person finds the disk by it.

use std::fmt;
use std::path::PathBuf;

/// Whether it is lit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lit {
    On,
    Off,
}

impl fmt::Display for Lit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::On => "on",
            Self::Off => "off",
        })
    }
}

/// A light that the enclosure has for one slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotLight {
    /// The file of sysfs that turns it on and off.
    pub path: PathBuf,
    pub lit: Lit,
}
