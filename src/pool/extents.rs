//! Disk space as sorted, disjoint extents, and their arithmetic. Pure.

use crate::host::Extent;

/// Partitions start and grow in steps of this.
pub const MIB: u64 = 1 << 20;

/// Bytes of a disk, held as sorted extents with gaps between them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Extents(Vec<Extent>);

impl Extents {
    pub fn iter(&self) -> impl Iterator<Item = &Extent> {
        self.0.iter()
    }

    pub fn as_slice(&self) -> &[Extent] {
        &self.0
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn total(&self) -> u64 {
        self.0.iter().map(Extent::len).sum()
    }

    pub fn largest(&self) -> u64 {
        self.0.iter().map(Extent::len).max().unwrap_or(0)
    }

    pub fn contains(&self, range: &Extent) -> bool {
        range.is_empty() || self.0.iter().any(|e| e.contains(range))
    }

    pub fn insert(&mut self, range: Extent) {
        if range.is_empty() {
            return;
        }
        let mut merged = range;
        self.0.retain(|e| {
            let apart = e.end < merged.start || merged.end < e.start;
            if !apart {
                merged = Extent { start: merged.start.min(e.start), end: merged.end.max(e.end) };
            }
            apart
        });
        let at = self.0.partition_point(|e| e.start < merged.start);
        self.0.insert(at, merged);
    }

    pub fn remove(&mut self, range: Extent) {
        if range.is_empty() {
            return;
        }
        let cut = |e: &Extent| {
            let before = Extent { start: e.start, end: e.end.min(range.start) };
            let after = Extent { start: e.start.max(range.end), end: e.end };
            [before, after].into_iter().filter(|part| part.start < part.end)
        };
        self.0 = self.0.iter().flat_map(cut).collect();
    }

    /// What is in both.
    pub fn intersection(&self, other: &Extents) -> Extents {
        let mut both = Extents::default();
        for a in &self.0 {
            for b in other.0.iter().filter(|b| a.overlaps(b)) {
                both.insert(Extent { start: a.start.max(b.start), end: a.end.min(b.end) });
            }
        }
        both
    }

    /// What is in this one only.
    pub fn minus(&self, other: &Extents) -> Extents {
        let mut rest = self.clone();
        for range in &other.0 {
            rest.remove(*range);
        }
        rest
    }

    /// Each extent cut to whole steps of `step`; what is smaller goes.
    pub fn aligned(&self, step: u64) -> Extents {
        self.0
            .iter()
            .filter_map(|e| {
                let start = e.start.checked_next_multiple_of(step)?;
                let end = e.end / step * step;
                (start < end).then_some(Extent { start, end })
            })
            .collect()
    }
}

impl FromIterator<Extent> for Extents {
    fn from_iter<I: IntoIterator<Item = Extent>>(extents: I) -> Self {
        let mut set = Extents::default();
        for extent in extents {
            set.insert(extent);
        }
        set
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bits(set: &Extents) -> Vec<bool> {
        (0..64).map(|i| set.iter().any(|e| e.start <= i && i < e.end)).collect()
    }

    proptest! {
        #[test]
        fn a_set_of_extents_behaves_as_a_set_of_bytes_and_stays_sorted_with_gaps(
            steps in prop::collection::vec((any::<bool>(), 0u64..64, 0u64..64), 0..30)
        ) {
            let mut set = Extents::default();
            let mut model = vec![false; 64];
            for (add, a, b) in steps {
                let range = Extent { start: a.min(b), end: a.max(b) };
                if add { set.insert(range) } else { set.remove(range) }
                for i in range.start..range.end {
                    model[usize::try_from(i).unwrap()] = add;
                }
                prop_assert_eq!(&bits(&set), &model);
                prop_assert!(set.as_slice().windows(2).all(|w| w[0].end < w[1].start));
                prop_assert!(set.iter().all(|e| !e.is_empty()));
            }
        }

        #[test]
        fn intersection_and_difference_split_a_set_in_two(
            a in prop::collection::vec((0u64..64, 0u64..64), 0..8),
            b in prop::collection::vec((0u64..64, 0u64..64), 0..8),
        ) {
            let set = |v: Vec<(u64, u64)>| -> Extents {
                v.into_iter().map(|(x, y)| Extent { start: x.min(y), end: x.max(y) }).collect()
            };
            let (a, b) = (set(a), set(b));
            let (both, only) = (a.intersection(&b), a.minus(&b));
            prop_assert_eq!(both.total() + only.total(), a.total());
            prop_assert_eq!(both.intersection(&only).total(), 0);
        }
    }
}
