//! Which place on which disk a volume gets, and how much there is to give. Pure.

use super::content::Content;
use super::extents::{ExtentSet, MIB};
use super::placement::{Room, place};
use super::plan::Site;
use crate::device::label::VolumeUsage;
use crate::device::size::Size;
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
    pub room: ExtentSet,
    pub volume_ends: Vec<u64>,
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
        (false, _) => ExtentSet::default(),
        (true, true) => content.unpartitioned().intersection(&clean).aligned(MIB),
        (true, false) => content.unpartitioned(),
    };
    let volume_ends = content.volumes().map(|v| v.entry.extent.end).collect();
    DiskOffer { disk, places, room, volume_ends }
}

/// Picks a place: carved space first, as it wastes nothing; else the smallest slot that holds the volume.
pub fn choose<D: Copy>(offers: &[DiskOffer<D>], wish: &Demand) -> Result<(D, Site), NoPlace> {
    if offers.is_empty() {
        return Err(NoPlace::NoDisk);
    }
    let least = minimum(wish.usage);
    let required = wish.required.max(least);
    if let Some(limit) = wish.limit.filter(|limit| *limit < least) {
        let why = match wish.usage {
            VolumeUsage::Block => "a partition has at least".to_owned(),
            VolumeUsage::Mount(kind) => format!("a filesystem of type {} needs", kind.name()),
        };
        return Err(NoPlace::Limit { limit, least, why });
    }
    let carved_size = required.checked_next_multiple_of(MIB);
    let carvable = carved_size.filter(|size| wish.limit.is_none_or(|limit| *size <= limit));
    let rooms: Vec<Room<D>> = offers
        .iter()
        .map(|o| Room { disk: o.disk, free: o.room.clone(), volume_ends: o.volume_ends.clone() })
        .collect();
    if let Some(found) = carvable.and_then(|size| place(&rooms, size)) {
        return Ok((found.disk, Site::Space(found.extent)));
    }
    let places =
        || offers.iter().flat_map(|o| o.places.iter().map(move |(site, extent)| (o.disk, *site, extent.len())));
    let fits = |len: &u64| *len >= required && wish.limit.is_none_or(|limit| *len <= limit);
    if let Some((disk, site, _)) = places().filter(|(_, _, len)| fits(len)).min_by_key(|(_, _, len)| *len) {
        return Ok((disk, site));
    }
    let too_large = places().map(|(_, _, len)| len).filter(|len| *len >= required).min();
    let rounded = carved_size.filter(|size| rooms.iter().any(|r| r.free.largest() >= *size));
    match (wish.limit, too_large.into_iter().chain(rounded).min()) {
        (Some(limit), Some(least)) => {
            Err(NoPlace::Limit { limit, least, why: "the smallest place that holds the volume has".to_owned() })
        }
        _ => Err(NoPlace::Full { required, largest: capacity(offers, wish.usage).largest }),
    }
}

/// What there is to give, over all offers made for one usage.
pub fn capacity<D>(offers: &[DiskOffer<D>], usage: VolumeUsage) -> Capacity {
    let least = minimum(usage);
    let places = || offers.iter().flat_map(|o| o.places.iter().map(|(_, e)| e.len())).filter(|len| *len >= least);
    let rooms = || offers.iter().flat_map(|o| o.room.iter().map(Extent::len)).filter(|len| *len >= least);
    let largest = places().chain(rooms()).max().unwrap_or(0);
    let smallest = match (rooms().next(), places().min()) {
        (Some(_), _) => least,
        (None, Some(place)) => place,
        (None, None) => 0,
    };
    Capacity { available: places().chain(rooms()).sum(), largest, smallest }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::FsKind;

    fn slots(disk: u32, mib: &[u64]) -> DiskOffer<u32> {
        let places = (2..).zip(mib).map(|(n, m)| (Site::Slot(n), Extent { start: 0, end: m * MIB })).collect();
        DiskOffer { disk, places, room: ExtentSet::default(), volume_ends: Vec::new() }
    }

    fn carved(disk: u32, mib: u64) -> DiskOffer<u32> {
        let room = ExtentSet::from_iter([Extent { start: 2 * MIB, end: (2 + mib) * MIB }]);
        DiskOffer { disk, places: Vec::new(), room, volume_ends: Vec::new() }
    }

    fn wish(required: u64, limit: Option<u64>) -> Demand {
        Demand { usage: VolumeUsage::Block, required: required * MIB, limit: limit.map(|l| l * MIB) }
    }

    #[test]
    fn the_smallest_slot_that_holds_the_volume_is_taken() {
        let offers = [slots(0, &[100, 30]), slots(1, &[20, 10])];
        assert_eq!(choose(&offers, &wish(15, None)), Ok((1, Site::Slot(2))));
        assert_eq!(choose(&offers, &wish(21, None)), Ok((0, Site::Slot(3))));
        assert_eq!(choose(&offers, &wish(0, None)), Ok((1, Site::Slot(3))));
    }

    #[test]
    fn a_limit_below_the_slot_is_told_apart_from_a_full_pool() {
        let offers = [slots(0, &[100])];
        assert!(
            matches!(choose(&offers, &wish(50, Some(60))), Err(NoPlace::Limit { limit, least, .. }) if least == 100 * MIB && limit == 60 * MIB)
        );
        assert_eq!(choose(&offers, &wish(101, None)), Err(NoPlace::Full { required: 101 * MIB, largest: 100 * MIB }));
        assert_eq!(choose::<u32>(&[], &wish(1, None)), Err(NoPlace::NoDisk));
        assert!(matches!(choose(&offers, &wish(u64::MAX / MIB, None)), Err(NoPlace::Full { .. })));
    }

    #[test]
    fn a_size_is_raised_to_the_filesystems_minimum_unless_the_limit_forbids_it() {
        let xfs = |limit: Option<u64>| Demand { usage: VolumeUsage::Mount(FsKind::Xfs), ..wish(10, limit) };
        let (_, site) = choose(&[carved(0, 1000)], &xfs(None)).expect("there is room");
        assert!(matches!(site, Site::Space(e) if e.len() == 300 * MIB));
        let err = choose(&[carved(0, 1000)], &xfs(Some(299))).expect_err("too small for xfs");
        assert_eq!(
            err.to_string(),
            "the limit of 313524224 bytes is below the 314572800 bytes (300.0 MiB) that a filesystem of type xfs needs"
        );
    }

    #[test]
    fn carved_space_is_taken_before_a_slot_that_would_be_wasted() {
        let offers = [slots(0, &[100]), carved(1, 50)];
        assert!(matches!(choose(&offers, &wish(20, None)), Ok((1, Site::Space(_)))));
        assert_eq!(choose(&offers, &wish(51, None)), Ok((0, Site::Slot(2))));
    }

    #[test]
    fn capacity_is_the_sum_and_the_largest_place_and_nothing_below_the_minimum() {
        let offers = [slots(0, &[100, 30]), carved(1, 50)];
        let block = capacity(&offers, VolumeUsage::Block);
        assert_eq!(block, Capacity { available: 180 * MIB, largest: 100 * MIB, smallest: MIB });
        assert_eq!(capacity(&offers, VolumeUsage::Mount(FsKind::Xfs)), Capacity::default());
        assert_eq!(capacity(&offers[..1], VolumeUsage::Block).smallest, 30 * MIB);
    }
}
