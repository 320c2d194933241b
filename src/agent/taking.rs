//! Which of the disks that an election chose are claimed and wiped in this pass. Pure.
//!
//! Takes in the election and what was asked after it: whether the disks read as zeros, and what other provisioners promise. Gives
//! out actions, which `claim` and `wipe` perform.

use std::collections::{BTreeMap, BTreeSet};

use super::decide::Action;
use crate::claim::{Elected, Promise, Rule, Wipe, promised};
use crate::device::discovery::Snapshot;
use crate::device::label::SetRef;
use crate::host::{KernelName, RawDisk};

/// What was found where zeros had to be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ZeroCheck {
    /// Sets that chose a disk which holds something: each chooses anew in the next pass, as its counts hold for disks that it may
    /// have.
    pub wrong: BTreeSet<SetRef>,
    /// Kernel names of the disks that could not be read.
    pub unread: BTreeSet<KernelName>,
}

/// `has`: how many disks each set has.
pub fn claims(chosen: Vec<Elected>, read: &ZeroCheck, rules: &[Rule], has: &BTreeMap<SetRef, u32>) -> Vec<Action> {
    let stands = |claim: &Elected| !read.wrong.contains(&claim.set) && !read.unread.contains(&claim.name);
    let stand: Vec<Elected> = chosen.into_iter().filter(stands).collect();
    // The first disks of a set are claimed together, or not yet: those that could not be read may be of no use to it.
    let is_enough = |claim: &&Elected| {
        let rule = rules.iter().find(|rule| rule.set == claim.set);
        let least = rule.map_or(0, |rule| rule.min_devices.min(rule.max_devices.unwrap_or(u32::MAX)));
        let now = stand.iter().filter(|other| other.set == claim.set).count();
        has.contains_key(&claim.set) || u32::try_from(now).unwrap_or(u32::MAX) >= least
    };
    stand.iter().filter(is_enough).cloned().map(Action::Claim).collect()
}

/// What is on a disk may be the data of a volume that another provisioner gave out.
pub fn wipes(chosen: Vec<Wipe>, promises: &[Promise], snapshot: &Snapshot) -> Vec<Action> {
    let all: Vec<&RawDisk> = snapshot.devices.iter().map(|device| &device.raw).collect();
    let decided = |wipe: Wipe| {
        let at = snapshot.devices.iter().position(|device| device.raw.name == wipe.name)?;
        Some(match promised(promises, &snapshot.devices[at].raw, &all) {
            Some(why) => Action::Spare { wipe, why },
            None => Action::Wipe { at, wipe },
        })
    };
    chosen.into_iter().filter_map(decided).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::claim::sample;
    use crate::device::label::Layout;
    use crate::device::reason::Reason;
    use crate::device::sample::unclaimed;

    fn claim(set: &str, name: &str) -> Elected {
        let set = sample::rule(set).set;
        let device = unclaimed(name).id;
        Elected { set, device, name: name.into(), layout: Layout::Carved {}, zeros: true }
    }

    fn claimed(chosen: &[Elected], read: &ZeroCheck, rule: Rule, has: &BTreeMap<SetRef, u32>) -> Vec<KernelName> {
        let name = |action| match action {
            Action::Claim(claim) => claim.name,
            other => panic!("{other:?}"),
        };
        claims(chosen.to_vec(), read, &[rule], has).into_iter().map(name).collect()
    }

    #[test]
    fn the_first_disks_of_a_set_are_claimed_together_or_not_yet() {
        let two = || Rule { min_devices: 2, ..sample::rule("fast") };
        let chosen = [claim("fast", "sda"), claim("fast", "sdb")];
        let none = BTreeMap::new();
        assert_eq!(claimed(&chosen, &ZeroCheck::default(), two(), &none), ["sda", "sdb"]);
        let unread = ZeroCheck { unread: BTreeSet::from(["sda".into()]), ..ZeroCheck::default() };
        assert_eq!(claimed(&chosen, &unread, two(), &none), [""; 0]);
        let has = BTreeMap::from([(two().set, 1)]);
        assert_eq!(claimed(&chosen, &unread, two(), &has), ["sdb"]);
        let at_most_one = Rule { max_devices: Some(1), ..two() };
        assert_eq!(claimed(&chosen[1..], &ZeroCheck::default(), at_most_one, &none), ["sdb"]);
    }

    #[test]
    fn a_set_that_chose_a_disk_with_something_on_it_claims_nothing_in_this_pass() {
        let chosen = [claim("fast", "sda"), claim("fast", "sdb")];
        let wrong = ZeroCheck { wrong: BTreeSet::from([chosen[0].set.clone()]), ..ZeroCheck::default() };
        assert_eq!(claimed(&chosen, &wrong, sample::rule("fast"), &BTreeMap::new()), [""; 0]);
    }

    #[test]
    fn a_disk_that_others_promise_keeps_what_is_on_it() {
        let snapshot = Snapshot { at: Duration::ZERO, devices: vec![unclaimed("sda"), unclaimed("sdb")] };
        let wipe = |name: &str| Wipe { set: sample::rule("fast").set, name: name.into() };
        let promise = Promise { volume: "pv-1".to_owned(), provisioner: None, path: "/dev/sda".into(), device: None };
        let decided = wipes(vec![wipe("sda"), wipe("sdb"), wipe("sdz")], &[promise], &snapshot);
        let why = Reason::Promised { volume: "pv-1".to_owned(), provisioner: None };
        assert_eq!(decided, [Action::Spare { wipe: wipe("sda"), why }, Action::Wipe { at: 1, wipe: wipe("sdb") }]);
    }
}
