/// Which disk and which size.
mod choice {
    use super::super::*;
    use crate::host::FsKind;

    fn slots(disk: u32, mib: &[u64]) -> DiskOffer<u32> {
        let places = (2..).zip(mib).map(|(n, m)| (Site::Slot(n), Extent { start: 0, end: m * MIB })).collect();
        DiskOffer { disk, places, room: Extents::default(), volume_ends: Vec::new(), least: MIB }
    }

    fn carved(disk: u32, mib: u64) -> DiskOffer<u32> {
        let room = Extents::from_iter([Extent { start: 2 * MIB, end: (2 + mib) * MIB }]);
        DiskOffer { disk, places: Vec::new(), room, volume_ends: Vec::new(), least: MIB }
    }

    fn demand(required: u64, limit: Option<u64>) -> Demand {
        Demand { usage: VolumeUsage::Block, required: required * MIB, limit: limit.map(|l| l * MIB) }
    }

    #[test]
    fn the_smallest_slot_that_holds_the_volume_is_taken() {
        let offers = [slots(0, &[100, 30]), slots(1, &[20, 10])];
        assert_eq!(choose(&offers, &demand(15, None)), Ok((1, Site::Slot(2))));
        assert_eq!(choose(&offers, &demand(21, None)), Ok((0, Site::Slot(3))));
        assert_eq!(choose(&offers, &demand(0, None)), Ok((1, Site::Slot(3))));
    }

    #[test]
    fn a_limit_below_the_slot_is_told_apart_from_a_full_pool() {
        let offers = [slots(0, &[100])];
        assert!(
            matches!(choose(&offers, &demand(50, Some(60))), Err(NoPlace::Limit { limit, least, .. }) if least == 100 * MIB && limit == 60 * MIB)
        );
        assert_eq!(choose(&offers, &demand(101, None)), Err(NoPlace::Full { required: 101 * MIB, largest: 100 * MIB }));
        assert_eq!(choose::<u32>(&[], &demand(1, None)), Err(NoPlace::NoDisk));
        assert!(matches!(choose(&offers, &demand(u64::MAX / MIB, None)), Err(NoPlace::Full { .. })));
    }

    #[test]
    fn a_size_is_raised_to_the_filesystems_minimum_unless_the_limit_forbids_it() {
        let xfs = |limit: Option<u64>| Demand { usage: VolumeUsage::Mount(FsKind::Xfs), ..demand(10, limit) };
        let offers = [DiskOffer { least: minimum(xfs(None).usage), ..carved(0, 1000) }];
        let (_, site) = choose(&offers, &xfs(None)).expect("there is room");
        assert!(matches!(site, Site::Space(e) if e.len() == 300 * MIB));
        let err = choose(&offers, &xfs(Some(299))).expect_err("too small for xfs");
        assert_eq!(
            err.to_string(),
            "the limit of 313524224 bytes is below the 314572800 bytes (300.0 MiB) that a filesystem of type xfs needs"
        );
    }

    #[test]
    fn carved_space_is_taken_before_a_slot_that_would_be_wasted() {
        let offers = [slots(0, &[100]), carved(1, 50)];
        assert!(matches!(choose(&offers, &demand(20, None)), Ok((1, Site::Space(_)))));
        assert_eq!(choose(&offers, &demand(51, None)), Ok((0, Site::Slot(2))));
    }

    #[test]
    fn capacity_is_the_sum_and_the_largest_place_and_nothing_below_the_minimum() {
        let offers = [slots(0, &[100, 30]), carved(1, 50)];
        let block = capacity(&offers);
        assert_eq!(block, Capacity { available: 180 * MIB, largest: 100 * MIB, smallest: MIB });
        let xfs = offers.each_ref().map(|offer| DiskOffer { least: 300 * MIB, ..offer.clone() });
        assert_eq!(capacity(&xfs), Capacity::default());
        assert_eq!(capacity(&offers[..1]).smallest, 30 * MIB);
        // A filesystem of its own beside folders of another one.
        let [slots, folders] = offers;
        let both = [DiskOffer { least: 300 * MIB, ..slots }, folders];
        assert_eq!(capacity(&both), Capacity { available: 50 * MIB, largest: 50 * MIB, smallest: MIB });
    }

    #[test]
    fn of_disks_with_different_least_sizes_those_that_take_smaller_volumes_come_first() {
        let offers = [DiskOffer { least: 40 * MIB, ..slots(0, &[50]) }, carved(1, 30)];
        let disk = |demand: Demand| choose(&offers, &demand).map(|(disk, _)| disk);
        assert_eq!((disk(demand(5, None)), disk(demand(35, None))), (Ok(1), Ok(0)));
        assert_eq!(disk(demand(60, None)), Err(NoPlace::Full { required: 60 * MIB, largest: 50 * MIB }));
        assert!(matches!(disk(demand(35, Some(38))), Err(NoPlace::Limit { least, .. }) if least == 40 * MIB));
    }
}

/// Where in carved space.
mod placement {
    use proptest::prelude::*;

    use super::super::*;

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
