//! Layouts as arithmetic: which extents a disk offers, before any volume. Pure.
//!
//! Takes in a disk's geometry and a [`Layout`], gives out the extents of its slots or the room that
//! volumes are carved from.

use super::extents::MIB;
use crate::claim::LayoutError;
use crate::device::label::{DATA_START, Layout};
use crate::host::table::SLOTS;
use crate::host::{Extent, FsKind, Geometry};

/// GPT has 128 entries; entry 1 is the label.
pub const MAX_VOLUMES: usize = SLOTS as usize - 1;
/// The backup table: 128 entries of 128 bytes and a header sector, at the end of the disk.
const BACKUP_ENTRIES: u64 = SLOTS as u64 * 128;
/// Ends of partitions lie on this, so that a 4096-byte filesystem block is never cut.
const END_ALIGNMENT: u64 = 4096;

/// The room for volumes: from behind the label to before the backup table.
pub fn data_area(geometry: &Geometry) -> Result<Extent, LayoutError> {
    let sector = u64::from(geometry.sector);
    let tables_end = BACKUP_ENTRIES.next_multiple_of(sector) + sector;
    let end = geometry.size.saturating_sub(tables_end) / END_ALIGNMENT * END_ALIGNMENT;
    match end >= DATA_START + MIB {
        true => Ok(Extent { start: DATA_START, end }),
        false => Err(LayoutError::NoRoom { size: geometry.size }),
    }
}

/// The places that exist before any volume does: all slots, or the one of a whole disk; none where
/// partitions are carved.
pub fn places(geometry: &Geometry, layout: &Layout) -> Result<Vec<Extent>, LayoutError> {
    let area = data_area(geometry)?;
    match *layout {
        Layout::Carved {} => Ok(Vec::new()),
        Layout::RawDevice {} => Ok(vec![Extent { start: 0, end: geometry.size }]),
        Layout::Whole {} | Layout::Member(_) => Ok(vec![area]),
        // What a claim makes there is the filesystem.
        Layout::Directory { .. } => directories(&area),
        Layout::Slots { size: None, count: None } => Err(LayoutError::Neither),
        Layout::Slots { size: Some(size), count: None } => by_size(area, size),
        Layout::Slots { size: None, count: Some(count) } => by_count(area, u64::from(count)),
        Layout::Slots { size: Some(size), count: Some(count) } => by_both(area, size, u64::from(count)),
    }
}

fn directories(area: &Extent) -> Result<Vec<Extent>, LayoutError> {
    let least = FsKind::Xfs.minimum_bytes();
    match area.len() >= least {
        true => Ok(vec![*area]),
        false => Err(LayoutError::DoesNotHold { count: 1, each: least, needed: least, room: area.len() }),
    }
}

/// Fills the disk with slots of `size`; a remainder of 1 MiB or more is a slot too.
fn by_size(area: Extent, size: u64) -> Result<Vec<Extent>, LayoutError> {
    let (each, stride) = slot(size)?;
    if area.len() < each {
        return Err(LayoutError::DoesNotHold { count: 1, each, needed: each, room: area.len() });
    }
    // The last slot need not be followed by its alignment gap.
    let whole = (area.len() - each) / stride + 1;
    let rest_start = area.start + whole * stride;
    let rest = area.end.saturating_sub(rest_start) / MIB * MIB;
    let count = whole + u64::from(rest >= MIB);
    limit(count)?;
    let mut slots = row(area.start, each, stride, whole);
    if rest >= MIB {
        slots.push(Extent { start: rest_start, end: rest_start + rest });
    }
    Ok(slots)
}

/// Equal slots, as large as whole MiB allow.
fn by_count(area: Extent, count: u64) -> Result<Vec<Extent>, LayoutError> {
    limit(count)?;
    let each = area.len().checked_div(count).ok_or(LayoutError::Neither)? / MIB * MIB;
    if each < MIB {
        return Err(LayoutError::DoesNotHold { count, each: MIB, needed: count * MIB, room: area.len() });
    }
    Ok(row(area.start, each, each, count))
}

/// That many of that size; the rest stays unpartitioned.
fn by_both(area: Extent, size: u64, count: u64) -> Result<Vec<Extent>, LayoutError> {
    limit(count)?;
    let (each, stride) = slot(size)?;
    let last = count.checked_sub(1).ok_or(LayoutError::Neither)?;
    let needed = last.saturating_mul(stride).saturating_add(each);
    if needed > area.len() {
        return Err(LayoutError::DoesNotHold { count, each, needed, room: area.len() });
    }
    Ok(row(area.start, each, stride, count))
}

/// The exact size (in whole 4096 bytes) and the distance from one start to the next.
fn slot(size: u64) -> Result<(u64, u64), LayoutError> {
    let too_large = LayoutError::DoesNotHold { count: 1, each: size, needed: size, room: 0 };
    match size {
        0..MIB => Err(LayoutError::TooSmall { each: size, least: MIB }),
        _ => {
            let each = size.checked_next_multiple_of(END_ALIGNMENT);
            each.and_then(|each| Some((each, each.checked_next_multiple_of(MIB)?))).ok_or(too_large)
        }
    }
}

fn row(start: u64, each: u64, stride: u64, count: u64) -> Vec<Extent> {
    (0..count).map(|i| Extent { start: start + i * stride, end: start + i * stride + each }).collect()
}

fn limit(count: u64) -> Result<(), LayoutError> {
    match count <= MAX_VOLUMES as u64 {
        true => Ok(()),
        false => Err(LayoutError::TooMany { count, most: MAX_VOLUMES }),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const GIB: u64 = 1 << 30;

    fn disk(size: u64) -> Geometry {
        Geometry { size, sector: 512, offloads_zeroes: true }
    }

    fn slots(size: u64, partition: Option<u64>, count: Option<u32>) -> Result<Vec<u64>, LayoutError> {
        let places = places(&disk(size), &Layout::Slots { size: partition, count })?;
        Ok(places.iter().map(Extent::len).collect())
    }

    #[test]
    fn the_seeds_example_makes_three_partitions_of_30g_on_a_disk_of_100g_and_leaves_the_rest() {
        assert_eq!(slots(100_000_000_000, Some(30_000_000_000), Some(3)), Ok(vec![30_000_001_024; 3]));
    }

    #[test]
    fn size_alone_fills_the_disk_and_the_remainder_is_a_slot_too() {
        assert_eq!(slots(10 * GIB, Some(3 * GIB), None), Ok(vec![3 * GIB, 3 * GIB, 3 * GIB, GIB - 3 * MIB]));
        assert_eq!(slots(9 * GIB + 3 * MIB, Some(3 * GIB), None), Ok(vec![3 * GIB; 3]));
    }

    #[test]
    fn count_alone_divides_the_disk_into_equal_slots() {
        assert_eq!(slots(GIB, None, Some(16)), Ok(vec![63 * MIB; 16]));
    }

    #[test]
    fn a_disk_that_cannot_hold_count_times_size_is_refused_with_the_numbers() {
        let err = slots(90_000_000_000, Some(30_000_000_000), Some(3)).expect_err("tables take room too");
        assert!(err.to_string().starts_with("3 partitions of 30000001024 bytes need"), "{err}");
    }

    #[test]
    fn more_partitions_than_entries_are_refused_with_the_number() {
        assert_eq!(slots(GIB, Some(MIB), None), Err(LayoutError::TooMany { count: 1021, most: MAX_VOLUMES }));
        assert_eq!(slots(1 << 40, None, Some(128)), Err(LayoutError::TooMany { count: 128, most: MAX_VOLUMES }));
        assert_eq!(slots(GIB, None, None), Err(LayoutError::Neither));
        assert_eq!(slots(GIB, None, Some(0)), Err(LayoutError::Neither));
        assert_eq!(slots(GIB, Some(0), None), Err(LayoutError::TooSmall { each: 0, least: MIB }));
        assert!(slots(GIB, Some(u64::MAX), Some(2)).is_err());
    }

    #[test]
    fn a_whole_disk_volume_is_two_mib_and_a_table_smaller_than_the_disk() {
        let whole = places(&disk(GIB), &Layout::Whole {}).expect("it has room");
        assert_eq!(whole, [Extent { start: 2 * MIB, end: GIB - 20480 }]);
        assert!(places(&disk(3 * MIB), &Layout::Whole {}).is_err());
        assert!(places(&disk(0), &Layout::Whole {}).is_err());
    }

    proptest! {
        #[test]
        fn slots_never_overlap_start_on_a_mib_and_stay_inside_the_data_area(
            mib in 1u64..100_000, sector in prop::sample::select(vec![512u32, 4096]),
            size in prop::option::of(0u64..(1 << 36)), count in prop::option::of(0u32..200),
        ) {
            let geometry = Geometry { size: mib * MIB, sector, offloads_zeroes: false };
            if let Ok(slots) = places(&geometry, &Layout::Slots { size, count }) {
                let area = data_area(&geometry).unwrap();
                prop_assert!(!slots.is_empty() && slots.len() <= MAX_VOLUMES);
                prop_assert!(slots.iter().all(|s| area.contains(s) && s.start % MIB == 0 && s.end % 4096 == 0));
                prop_assert!(slots.windows(2).all(|w| w[0].end <= w[1].start));
            }
        }
    }
}
