//! Where on which disk a carved volume goes. Pure.
//!
//! A carved volume grows into the free space right behind it. So a placement leaves room to grow, for
//! the new volume and for the one before it, as long as that refuses no volume which best fit would
//! still have room for: the largest free extent of the pool never gets smaller than best fit leaves it.

use super::extents::{ExtentSet, MIB};
use crate::host::Extent;

/// The free space of one disk and where its volumes end.
#[derive(Clone, Debug)]
pub struct Room<D> {
    pub disk: D,
    /// Free space that may be given, in whole MiB.
    pub free: ExtentSet,
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
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn room(disk: u32, free: &[(u64, u64)], ends: &[u64]) -> Room<u32> {
        Room {
            disk,
            free: free.iter().map(|(a, b)| Extent { start: a * MIB, end: b * MIB }).collect(),
            volume_ends: ends.iter().map(|e| e * MIB).collect(),
        }
    }

    fn placed(rooms: &[Room<u32>], mib: u64) -> Option<(u32, u64)> {
        place(rooms, mib * MIB).map(|p| (p.disk, p.extent.start / MIB))
    }

    #[test]
    fn the_first_volume_starts_the_disk_and_can_grow_to_its_end() {
        assert_eq!(placed(&[room(0, &[(2, 102)], &[])], 10), Some((0, 2)));
    }

    #[test]
    fn room_to_grow_is_left_where_another_disk_keeps_the_largest_extent() {
        let rooms = [room(0, &[(12, 102)], &[12]), room(1, &[(2, 102)], &[])];
        assert_eq!(placed(&rooms, 10), Some((0, 52)), "half way, and disk 1 stays whole");
    }

    #[test]
    fn the_only_large_extent_is_never_split_for_the_sake_of_growth() {
        let place = placed(&[room(0, &[(12, 102)], &[12])], 10);
        assert!(matches!(place, Some((0, 12 | 92))), "{place:?}");
    }

    #[test]
    fn a_hole_that_fits_exactly_is_taken_before_the_large_one_is_cut() {
        let rooms = [room(0, &[(12, 22), (30, 102)], &[12, 30])];
        assert_eq!(placed(&rooms, 10), Some((0, 12)));
        assert_eq!(placed(&rooms, 73), None);
    }

    proptest! {
        #[test]
        fn a_placement_fits_and_never_costs_a_volume_that_best_fit_would_still_hold(
            cuts in prop::collection::vec(prop::collection::btree_set(2u64..200, 0..8), 1..4),
            mib in 1u64..120,
        ) {
            let rooms: Vec<_> = cuts.iter().enumerate().map(|(i, cut)| {
                let cut: Vec<_> = cut.iter().copied().collect();
                let free: Vec<_> = cut.chunks_exact(2).map(|c| (c[0], c[1])).collect();
                let ends: Vec<_> = free.iter().map(|f| f.0).collect();
                room(u32::try_from(i).unwrap(), &free, &ends)
            }).collect();
            let largest = |rooms: &[Room<u32>]| rooms.iter().map(|r| r.free.largest()).max().unwrap_or(0);
            match place(&rooms, mib * MIB) {
                None => prop_assert!(largest(&rooms) < mib * MIB),
                Some(place) => {
                    let take = |extent: Extent, disk: u32| {
                        let mut after = rooms.clone();
                        after[disk as usize].free.remove(extent);
                        largest(&after)
                    };
                    prop_assert!(rooms[place.disk as usize].free.contains(&place.extent));
                    prop_assert_eq!(place.extent.len(), mib * MIB);
                    let (hole, disk) = rooms.iter()
                        .flat_map(|r| r.free.iter().map(move |e| (*e, r.disk)))
                        .filter(|(e, _)| e.len() >= mib * MIB)
                        .min_by_key(|(e, _)| e.len()).unwrap();
                    let best = Extent { start: hole.start, end: hole.start + mib * MIB };
                    prop_assert!(take(place.extent, place.disk) >= take(best, disk));
                }
            }
        }
    }
}
