//! Which place on which disk a volume gets, and how much there is to give. Pure.
//!
//! A carved volume grows into the free space right behind it. So a placement leaves room to grow, for the new volume
//! and for the one before it, as long as that refuses no volume which best fit would still have room for: the largest
//! free extent of the pool never gets smaller than best fit leaves it.

use std::collections::BTreeSet;

use super::content::Content;
use super::cordon::Cordon;
use super::extents::{Extents, MIB};
use super::plan::Site;
use super::view::CORDONED;
use crate::device::{DiskId, Size, label::VolumeUsage};
use crate::host::Extent;

/// What a request wants, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Demand {
    pub usage: VolumeUsage,
    pub required: u64,
    pub limit: Option<u64>,
}

/// What one disk has to give for one usage.
#[derive(Clone, Debug)]
pub struct DiskOffer<D> {
    pub disk: D,
    /// Places of a fixed size: free slots.
    pub places: Vec<(Site, Extent)>,
    /// Space to carve from, and where the volumes before it end.
    pub room: Extents,
    pub volume_ends: Vec<u64>,
    /// The least size of a volume there, in bytes.
    pub least: u64,
}

/// Why there is no place; the words are for people.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoPlace {
    #[error("no disk of the pool offers volumes here")]
    NoDisk,
    #[error("the limit of {limit} bytes is below the {least} bytes ({}) that {why}", Size(*least))]
    Limit { limit: u64, least: u64, why: String },
    #[error("{} ({required} bytes) were asked for, and the largest free place has {} ({largest})", Size(*required), Size(*largest))]
    Full { required: u64, largest: u64 },
    #[error("disk {disk} has room, but {CORDONED}: {why}")]
    Cordoned { disk: DiskId, why: Cordon },
}

/// Bytes that a pool can give now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capacity {
    pub available: u64,
    /// What one CreateVolume would get.
    pub largest: u64,
    /// The least that one CreateVolume gives.
    pub smallest: u64,
}

impl Capacity {
    /// More than anybody asks for: the request itself is refused, when it comes.
    pub const ANYTHING: Self = Self { available: 1 << 60, largest: 1 << 60, smallest: 0 };

    /// What the same space gives where either of two uses may be asked for.
    pub fn or(self, other: Self) -> Self {
        match (self.largest, other.largest) {
            (_, 0) => self,
            (0, _) => other,
            _ => Self {
                available: self.available.max(other.available),
                largest: self.largest.max(other.largest),
                smallest: self.smallest.min(other.smallest),
            },
        }
    }
}

/// The least size of a volume: whole MiB, and what its filesystem needs.
pub fn minimum(usage: VolumeUsage) -> u64 {
    match usage {
        VolumeUsage::Mount(kind) => kind.minimum_bytes().next_multiple_of(MIB),
        VolumeUsage::Block => MIB,
    }
}

/// What a labelled disk offers. Raw block volumes get clean space only, unless the device zeroes by itself.
pub fn offer<D>(disk: D, content: &Content, usage: VolumeUsage) -> DiskOffer<D> {
    let clean_only = usage == VolumeUsage::Block && !content.geometry.offloads_zeroes;
    let clean = content.clean();
    let givable = |e: &Extent| !clean_only || clean.contains(e);
    let places = match content.carves() {
        true => Vec::new(),
        false => content
            .free_places()
            .into_iter()
            .filter(|(_, e)| givable(e))
            .map(|(number, extent)| (Site::Slot(number), extent))
            .collect(),
    };
    let room = match (content.carves() && content.free_number().is_some(), clean_only) {
        (false, _) => Extents::default(),
        (true, true) => content.unpartitioned().intersection(&clean).aligned(MIB),
        (true, false) => content.unpartitioned(),
    };
    let volume_ends = content.volumes().map(|v| v.entry.extent.end).collect();
    DiskOffer { disk, places, room, volume_ends, least: minimum(usage) }
}

/// Picks a place: of disks whose volumes may be smallest first.
pub fn choose<D: Copy>(offers: &[DiskOffer<D>], demand: &Demand) -> Result<(D, Site), NoPlace> {
    let sizes: BTreeSet<u64> = offers.iter().map(|offer| offer.least).collect();
    let mut refused = NoPlace::NoDisk;
    for least in sizes {
        let alike: Vec<&DiskOffer<D>> = offers.iter().filter(|offer| offer.least == least).collect();
        match choose_among(&alike, demand, least) {
            Ok(found) => return Ok(found),
            // That a limit is in the way says more than that they are full.
            Err(error @ NoPlace::Limit { .. }) => refused = error,
            Err(error) if refused == NoPlace::NoDisk => refused = error,
            Err(_) => {}
        }
    }
    match refused {
        NoPlace::Full { required, largest: _ } => Err(NoPlace::Full { required, largest: capacity(offers).largest }),
        refused => Err(refused),
    }
}

/// Carved space first, as it wastes nothing; else the smallest slot that holds the volume.
fn choose_among<D: Copy>(offers: &[&DiskOffer<D>], demand: &Demand, least: u64) -> Result<(D, Site), NoPlace> {
    let required = demand.required.max(least);
    if let Some(limit) = demand.limit.filter(|limit| *limit < least) {
        let why = match demand.usage {
            VolumeUsage::Mount(kind) if least == minimum(demand.usage) => {
                format!("a filesystem of type {} needs", kind.name())
            }
            VolumeUsage::Mount(_) => "a folder of a filesystem has at least".to_owned(),
            VolumeUsage::Block => "a partition has at least".to_owned(),
        };
        return Err(NoPlace::Limit { limit, least, why });
    }
    let carved_size = required.checked_next_multiple_of(MIB);
    let carvable = carved_size.filter(|size| demand.limit.is_none_or(|limit| *size <= limit));
    let rooms: Vec<Room<D>> = offers
        .iter()
        .map(|o| Room { disk: o.disk, free: o.room.clone(), volume_ends: o.volume_ends.clone() })
        .collect();
    if let Some(found) = carvable.and_then(|size| place(&rooms, size)) {
        return Ok((found.disk, Site::Space(found.extent)));
    }
    let places =
        || offers.iter().flat_map(|o| o.places.iter().map(move |(site, extent)| (o.disk, *site, extent.len())));
    let fits = |len: &u64| *len >= required && demand.limit.is_none_or(|limit| *len <= limit);
    if let Some((disk, site, _)) = places().filter(|(_, _, len)| fits(len)).min_by_key(|(_, _, len)| *len) {
        return Ok((disk, site));
    }
    let too_large = places().map(|(_, _, len)| len).filter(|len| *len >= required).min();
    let rounded = carved_size.filter(|size| rooms.iter().any(|r| r.free.largest() >= *size));
    match (demand.limit, too_large.into_iter().chain(rounded).min()) {
        (Some(limit), Some(least)) => {
            Err(NoPlace::Limit { limit, least, why: "the smallest place that holds the volume has".to_owned() })
        }
        _ => Err(NoPlace::Full { required, largest: 0 }),
    }
}

/// What there is to give, over all offers made for one usage.
pub fn capacity<D>(offers: &[DiskOffer<D>]) -> Capacity {
    let places =
        || offers.iter().flat_map(|o| o.places.iter().map(|(_, e)| e.len()).filter(move |len| *len >= o.least));
    let rooms = || offers.iter().flat_map(|o| o.room.iter().map(Extent::len).filter(move |len| *len >= o.least));
    let largest = places().chain(rooms()).max().unwrap_or(0);
    let carving = offers.iter().filter(|o| o.room.iter().any(|e| e.len() >= o.least)).map(|o| o.least).min();
    let smallest = carving.or(places().min()).unwrap_or(0);
    Capacity { available: places().chain(rooms()).sum(), largest, smallest }
}

/// The free space of one disk and where its volumes end.
#[derive(Clone, Debug)]
pub struct Room<D> {
    pub disk: D,
    /// Free space that may be given, in whole MiB.
    pub free: Extents,
    /// Ends of the volumes that could grow into it.
    pub volume_ends: Vec<u64>,
}

/// A place for a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement<D> {
    pub disk: D,
    pub extent: Extent,
}

/// What a candidate is worth; larger is better, in the order of the fields.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Score {
    /// The least room to grow that the new volume and the one before it keep.
    growth: u64,
    /// Best fit: the smaller the hole, the better.
    hole: std::cmp::Reverse<u64>,
    disk: std::cmp::Reverse<usize>,
    start: std::cmp::Reverse<u64>,
}

/// Picks a place for `size` bytes, or `None` where no free extent holds them.
pub fn place<D: Copy>(rooms: &[Room<D>], size: u64) -> Option<Placement<D>> {
    let size = size.checked_next_multiple_of(MIB)?;
    let holes = || {
        rooms.iter().enumerate().flat_map(move |(index, room)| {
            room.free.iter().filter(move |hole| hole.len() >= size).map(move |hole| (index, room, *hole))
        })
    };
    let (best_index, _, best) = holes().min_by_key(|(index, _, hole)| (hole.len(), *index, hole.start))?;
    let floor = largest_after(rooms, best_index, best, &Extent { start: best.start, end: best.start + size });
    holes()
        .flat_map(|(index, room, hole)| candidates(hole, size).into_iter().map(move |e| (index, room, hole, e)))
        .filter(|(index, _, hole, extent)| largest_after(rooms, *index, *hole, extent) >= floor)
        .max_by_key(|(index, room, hole, extent)| Score {
            growth: growth(room, *hole, extent),
            hole: std::cmp::Reverse(hole.len()),
            disk: std::cmp::Reverse(*index),
            start: std::cmp::Reverse(extent.start),
        })
        .map(|(_, room, _, extent)| Placement { disk: room.disk, extent })
}

/// The start, the end, and the middle of what is left over.
fn candidates(hole: Extent, size: u64) -> [Extent; 3] {
    let spare = hole.len() - size;
    [0, spare / 2 / MIB * MIB, spare].map(|skip| Extent { start: hole.start + skip, end: hole.start + skip + size })
}

/// The largest free extent of the pool if `extent` were taken out of `hole`.
fn largest_after<D>(rooms: &[Room<D>], index: usize, hole: Extent, extent: &Extent) -> u64 {
    let others = rooms
        .iter()
        .enumerate()
        .flat_map(|(i, room)| room.free.iter().filter(move |e| !(i == index && **e == hole)))
        .map(Extent::len);
    others.chain([extent.start - hole.start, hole.end - extent.end]).max().unwrap_or(0)
}

fn growth<D>(room: &Room<D>, hole: Extent, extent: &Extent) -> u64 {
    let behind = hole.end - extent.end;
    match room.volume_ends.contains(&hole.start) {
        true => behind.min(extent.start - hole.start),
        false => behind,
    }
}

#[cfg(test)]
mod tests;
