//! Which disks of the pool take no new volumes, and why. Values only.
//!
//! Takes in what checkups judge and what a person chooses; a choice counts more. A cordon concerns new volumes: those
//! that the disk has, or that it was already named for, are made, grow and are deleted as always.

use std::collections::BTreeMap;
use std::sync::{PoisonError, RwLock};

use crate::device::DiskId;

/// What a person has chosen for a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CordonChoice {
    Cordoned,
    /// Whatever checkups find.
    Open,
}

/// What a checkup makes of a disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fitness {
    Fit,
    /// In words for people.
    Unfit(String),
    /// It has not answered yet, or is away: what was known before counts.
    NotKnown,
}

/// Why a person's cordon is there, in words.
const CHOSEN: &str = "a person has cordoned it";

/// The cordons of a pool.
#[derive(Debug, Default)]
pub struct Cordons(RwLock<Known>);

#[derive(Debug, Default)]
struct Known {
    /// Why a disk is not fit for new volumes; `None`: it is fit.
    judged: BTreeMap<DiskId, Option<String>>,
    chosen: BTreeMap<DiskId, CordonChoice>,
}

impl Known {
    fn why(&self, disk: &DiskId) -> Option<String> {
        match self.chosen.get(disk) {
            Some(CordonChoice::Cordoned) => Some(CHOSEN.to_owned()),
            Some(CordonChoice::Open) => None,
            None => self.judged.get(disk).cloned().flatten(),
        }
    }

    fn cordoned(&self) -> BTreeMap<DiskId, String> {
        let disks = self.judged.keys().chain(self.chosen.keys());
        disks.filter_map(|disk| Some((disk.clone(), self.why(disk)?))).collect()
    }
}

impl Cordons {
    /// What a checkup makes of all disks of the pool. Gives whether any cordon is another one now, as all that change
    /// them do.
    pub fn judge(&self, disks: BTreeMap<DiskId, Fitness>) -> bool {
        self.change(|known| {
            known.judged.retain(|disk, _| disks.contains_key(disk));
            for (disk, fitness) in disks {
                match fitness {
                    Fitness::Fit => known.judged.insert(disk, None),
                    Fitness::Unfit(why) => known.judged.insert(disk, Some(why)),
                    Fitness::NotKnown => None,
                };
            }
        })
    }

    /// What an earlier process made of disks: it counts until a checkup of this one knows better.
    pub fn remember(&self, unfit: BTreeMap<DiskId, String>) -> bool {
        self.change(|known| {
            for (disk, why) in unfit {
                known.judged.entry(disk).or_insert(Some(why));
            }
        })
    }

    /// All that persons choose. A disk that is not named is as checkups judge it.
    pub fn choose(&self, chosen: BTreeMap<DiskId, CordonChoice>) -> bool {
        self.change(|known| known.chosen = chosen)
    }

    /// Why a disk takes no new volumes; `None`: it takes some.
    pub fn why(&self, disk: &DiskId) -> Option<String> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).why(disk)
    }

    fn change(&self, change: impl FnOnce(&mut Known)) -> bool {
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let before = known.cordoned();
        change(&mut known);
        known.cordoned() != before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk(name: &str) -> DiskId {
        DiskId::named(name)
    }

    fn unfit(why: &str) -> Fitness {
        Fitness::Unfit(why.to_owned())
    }

    #[test]
    fn a_person_decides_and_otherwise_the_last_checkup_that_had_an_answer() {
        let cordons = Cordons::default();
        let why = || cordons.why(&disk("a"));
        assert!(cordons.judge([(disk("a"), unfit("it fails")), (disk("b"), Fitness::Fit)].into()));
        assert_eq!((why().as_deref(), cordons.why(&disk("b"))), (Some("it fails"), None));
        assert!(cordons.choose([(disk("a"), CordonChoice::Open), (disk("b"), CordonChoice::Cordoned)].into()));
        assert_eq!((why(), cordons.why(&disk("b")).as_deref()), (None, Some(CHOSEN)));
        assert!(
            !cordons.judge([(disk("a"), unfit("it is slow")), (disk("b"), unfit("it fails"))].into()),
            "overridden"
        );
        assert!(cordons.choose(BTreeMap::new()));
        assert_eq!((why().as_deref(), cordons.why(&disk("b")).as_deref()), (Some("it is slow"), Some("it fails")));
        assert!(!cordons.judge([(disk("a"), Fitness::NotKnown), (disk("b"), Fitness::NotKnown)].into()));
        assert!(cordons.judge([(disk("a"), Fitness::Fit)].into()));
        assert_eq!((why(), cordons.why(&disk("b"))), (None, None), "b is no disk of the pool any more");
    }

    #[test]
    fn what_an_earlier_process_found_counts_until_the_disk_has_answered_to_this_one() {
        let cordons = Cordons::default();
        let found = || [(disk("a"), "it fails".to_owned())].into();
        assert!(cordons.remember(found()) && !cordons.remember(found()));
        assert!(!cordons.judge([(disk("a"), Fitness::NotKnown)].into()));
        assert_eq!(cordons.why(&disk("a")).as_deref(), Some("it fails"));
        assert!(cordons.judge([(disk("a"), Fitness::Fit)].into()));
        assert!(!cordons.remember(found()), "this process knows better");
        assert_eq!(cordons.why(&disk("a")), None);
    }
}
