//! Which volumes are due after a pass of the pool: what the pass changed, and what waits for something. Pure.
//!
//! Takes in all volumes as they are on the disks, and the ids of all objects; gives out ids. A node may have thousands of
//! volumes, and a pass comes with each event of a disk: one with which nothing happened costs a comparison.

use std::collections::HashSet;

use crate::device::DiskId;
use crate::operator::node::context::PassSummary;
use crate::pool::VolumeView;
use crate::volume::VolumeId;

/// The volumes as the last pass left them.
#[derive(Debug, Default)]
pub(super) struct SeenVolumes {
    /// Sorted, as the pool gives them.
    views: Vec<VolumeView>,
    knowledge: Option<PassKnowledge>,
}

/// What a pass knew: with more of it, volumes are made that were not before.
type PassKnowledge = (bool, Option<String>);

impl SeenVolumes {
    /// The volumes that are due after a pass that left these: all, if it knew other things than the one before. `objects`
    /// have one of the ids, and `unsettled` are those whose last try left something to be done.
    pub fn take_in(
        &mut self,
        pass: &PassSummary,
        mut views: Vec<VolumeView>,
        objects: HashSet<VolumeId>,
        unsettled: &HashSet<VolumeId>,
    ) -> HashSet<VolumeId> {
        // That changes with each other volume of the disk, and no object says it.
        let folders = views.iter_mut().filter(|view| view.directory.is_some());
        folders.for_each(|view| view.growable_to = view.size);
        let knowledge = (pass.knows_all, pass.volumes_unread.clone());
        let is_as_before = self.knowledge.replace(knowledge.clone()) == Some(knowledge);
        let before = std::mem::replace(&mut self.views, views);
        let on_disk: HashSet<VolumeId> = self.views.iter().map(|view| view.id).collect();
        if !is_as_before {
            return objects.into_iter().chain(on_disk).collect();
        }
        let mut due = changed(&before, &self.views);
        // What has no object or no volume, or cannot be used as it is, waits for what may have come.
        due.extend(on_disk.symmetric_difference(&objects));
        due.extend(
            self.views.iter().filter(|view| view.conflict.is_some() || view.record.is_none()).map(|view| view.id),
        );
        due.extend(unsettled);
        due
    }
}

fn key(view: &VolumeView) -> (VolumeId, &DiskId) {
    (view.id, &view.disk)
}

/// The volumes that are only in one of these sorted lists, or are otherwise in the other.
fn changed(before: &[VolumeView], now: &[VolumeView]) -> HashSet<VolumeId> {
    let (mut before, mut now) = (before.iter().peekable(), now.iter().peekable());
    let mut changed = HashSet::new();
    loop {
        let (first, second) = match (before.peek(), now.peek()) {
            (Some(first), Some(second)) if key(first) == key(second) => (before.next(), now.next()),
            (Some(first), Some(second)) if key(first) < key(second) => (before.next(), None),
            (Some(_), None) => (before.next(), None),
            (_, Some(_)) => (None, now.next()),
            (None, None) => return changed,
        };
        if first != second {
            changed.extend(first.or(second).map(|view| view.id));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::*;
    use crate::pool::{DirectoryView, Standing};

    fn view(number: u128, disk: &str) -> VolumeView {
        let (id, disk) = (VolumeId::from_u128(number), DiskId::named(disk));
        VolumeView { id, disk, record: Some(sample::record()), ..sample::view() }
    }

    fn ids(numbers: &[u128]) -> HashSet<VolumeId> {
        numbers.iter().map(|number| VolumeId::from_u128(*number)).collect()
    }

    /// Many volumes on two disks that all have an object, after a first pass.
    fn many() -> (SeenVolumes, Vec<VolumeView>, HashSet<VolumeId>) {
        let views: Vec<VolumeView> =
            (0..100).map(|number| view(number, if number < 50 { "gpt-1" } else { "gpt-2" })).collect();
        let all: HashSet<VolumeId> = views.iter().map(|view| view.id).collect();
        let mut last = SeenVolumes::default();
        assert_eq!(last.take_in(&complete(), views.clone(), all.clone(), &ids(&[])), all);
        (last, views, all)
    }

    fn complete() -> PassSummary {
        PassSummary { knows_all: true, ..PassSummary::default() }
    }

    #[test]
    fn a_pass_after_which_all_volumes_are_as_before_has_nobody_look_at_one_but_where_something_waits() {
        let (mut last, views, all) = many();
        let mut due = |views: &[VolumeView], objects: &HashSet<VolumeId>, unsettled: &[u128]| {
            last.take_in(&complete(), views.to_vec(), objects.clone(), &ids(unsettled))
        };
        assert_eq!(due(&views, &all, &[]), ids(&[]));
        assert_eq!(due(&views, &all, &[7]), ids(&[7]), "its last try failed");
        let more = all.iter().copied().chain(ids(&[200])).collect();
        assert_eq!(due(&views, &more, &[]), ids(&[200]), "it is on no disk");
        assert_eq!(due(&views, &more, &[]), ids(&[200]), "its disk may be back with any pass");
        assert_eq!(due(&views, &(&all - &ids(&[3])), &[]), ids(&[3]), "it has no object");
    }

    #[test]
    fn what_a_pass_changed_is_due_once_and_what_cannot_be_used_with_each() {
        let (mut last, views, all) = many();
        let mut due = |views: &[VolumeView]| last.take_in(&complete(), views.to_vec(), all.clone(), &ids(&[]));
        let mut missing = views.clone();
        missing[..50].iter_mut().for_each(|view| view.standing = Standing::Missing);
        assert_eq!(due(&missing), (0..50).map(VolumeId::from_u128).collect());
        assert_eq!(due(&missing), ids(&[]));
        assert_eq!(due(&views).len(), 50, "the disk is back");
        let mut grown = views.clone();
        (grown[1].size, grown[98].growable_to) = (9, 9);
        assert_eq!(due(&grown), ids(&[1, 98]));
        let mut folders = grown.clone();
        let directory = DirectoryView { path: "/x".into(), root: "/x".into(), shrinks: true };
        folders.iter_mut().for_each(|view| view.directory = Some(directory.clone()));
        assert_eq!(due(&folders).len(), 100);
        folders.iter_mut().for_each(|view| view.growable_to += 512);
        assert_eq!(due(&folders), ids(&[]), "another volume of the disk was deleted");
        assert_eq!(due(&grown).len(), 100);
        let mut worse = grown.clone();
        worse[5].conflict = Some("on two disks".to_owned());
        worse[6].record = None;
        assert_eq!((due(&worse), due(&worse)), (ids(&[5, 6]), ids(&[5, 6])), "as long as it is so");
        assert_eq!(due(&grown), ids(&[5, 6]));
    }

    #[test]
    fn a_volume_that_comes_goes_moves_or_is_on_two_disks_is_due() {
        let [a, b, c] = [(1, "gpt-1"), (2, "gpt-1"), (3, "gpt-1")].map(|(id, disk)| view(id, disk));
        let b_elsewhere = view(2, "gpt-2");
        let all = [a.clone(), b.clone(), c.clone()];
        for (now, numbers) in [
            (vec![a.clone(), b.clone()], &[3][..]),
            (vec![b.clone(), c.clone()], &[1]),
            (vec![a.clone(), b_elsewhere.clone(), c.clone()], &[2]),
            (vec![a.clone(), b.clone(), b_elsewhere, c.clone()], &[2]),
            (vec![], &[1, 2, 3]),
            (all.to_vec(), &[]),
        ] {
            assert_eq!(changed(&all, &now), ids(numbers), "{now:?}");
            assert_eq!(changed(&now, &all), ids(numbers), "{now:?}");
        }
    }

    #[test]
    fn a_pass_that_knows_more_or_less_than_the_one_before_has_everything_looked_at() {
        let (mut last, views, all) = many();
        let unread = PassSummary { volumes_unread: Some("no answer".to_owned()), ..complete() };
        for pass in [PassSummary::default(), complete(), unread, complete()] {
            assert_eq!(last.take_in(&pass, views.clone(), all.clone(), &ids(&[])), all);
        }
        assert_eq!(last.take_in(&complete(), views, all, &ids(&[])), ids(&[]));
    }
}
