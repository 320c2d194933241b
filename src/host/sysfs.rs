//! Every block device of a Linux machine, from its /sys, /proc, /dev, /run and /mnt. Opens no device but
//! a bound loop device, to ask which file it has.
//!
//! Takes in the five roots, so that a machine may be a folder; gives out [`RawDisk`]s. A device that
//! goes away meanwhile is left out; one that cannot be read says so in `unreadable`.

mod counters;
mod directory;
mod disk;
mod foreign_link;
mod identity;
mod same_array;
mod slot_light;

use std::time::Duration;

use directory::Directory;
use disk::Reader;
use identity::NumaNodes;

use super::error::HostError;
use super::health::{IoErrors, WriteCounts};
use super::in_use;
use super::links::DevTree;
use super::natural_order::natural_order;
use super::raw::RawDisk;
use super::roots::Roots;
use super::slot_light::{Lit, SlotLight};
use super::udev::UdevDatabase;

/// All block devices: each disk, then its partitions by number.
pub fn scan(roots: &Roots) -> Result<Vec<RawDisk>, HostError> {
    let folder = roots.sys.join("block");
    let failed = |source| HostError::Io {
        what: "cannot list the block devices in",
        object: folder.display().to_string(),
        source,
    };
    let block = Directory::open(&folder).map_err(failed)?;
    let mut entries = block.entries(".").map_err(failed)?;
    entries.sort_by(|a, b| natural_order(a, b));

    let mut reader = Reader { block, dev: &roots.dev, numa: NumaNodes::default() };
    let mut disks: Vec<RawDisk> = entries.iter().flat_map(|entry| reader.disk(entry)).collect();
    let udev = UdevDatabase::read(&roots.run, &mut disks);
    let tree = DevTree::read(&roots.dev, &disks)?;
    tree.name_links(&mut disks, &udev);
    in_use::mark(roots, &tree, &mut disks)?;
    foreign_link::mark(&roots.mnt, &tree, &mut disks);
    Ok(disks)
}

/// See [`Host::writes`](super::port::Host::writes).
pub fn writes(roots: &Roots, disk: &RawDisk) -> Option<WriteCounts> {
    counters::writes(&roots.sys.join("block"), disk)
}

/// See [`Host::busy_time`](super::port::Host::busy_time).
pub fn busy_time(roots: &Roots, disk: &RawDisk) -> Option<Duration> {
    counters::busy_time(&roots.sys.join("block"), disk)
}

/// What the kernel counted of a disk; see [`Host::io_errors`](super::port::Host::io_errors).
pub fn io_errors(roots: &Roots, disk: &RawDisk) -> Option<IoErrors> {
    counters::io_errors(&roots.sys.join("block"), disk)
}

/// The light of the slot that a disk is in; see [`Host::slot_light`](super::port::Host::slot_light).
pub fn slot_light(roots: &Roots, disk: &RawDisk) -> Option<SlotLight> {
    slot_light::find(&roots.sys, disk)
}

/// An error, if an md array is not the one that was scanned any more.
pub fn prove_same_array(roots: &Roots, array: &RawDisk) -> Result<(), HostError> {
    same_array::prove(roots, array)
}

/// Turns it on or off.
pub fn set_slot_light(roots: &Roots, disk: &RawDisk, lit: Lit) -> Result<SlotLight, HostError> {
    slot_light::set(&roots.sys, disk, lit)
}
