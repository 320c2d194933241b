//! The memory of devices from one pass to the next, and how much of it an event leaves.
//!
//! Takes in what scans, questions and wipes found, and the events of devices; each part says how long it believes what
//! it has.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use super::blank::Blanks;
use super::health::Healths;
use super::host_paths::HostPaths;
use crate::claim::Watchlist;
use crate::device::{Discovery, Owner, REMEMBERED_FOR, Remembered, Snapshot};
use crate::host::{Incarnation, KernelName};

/// How many wiped disks are remembered for those who report them.
const WIPED: usize = 16;

/// A disk that was wiped by this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WipedDisk {
    /// Counts them.
    pub number: u64,
    pub path: PathBuf,
    /// By whose order, and what was on it.
    pub message: String,
}

pub(super) struct Memory {
    /// What was read of them.
    pub discovery: Discovery,
    /// Since when they have been free.
    pub watch: Watchlist,
    /// Disks that are to be wiped, and since when they have been as they are.
    pub wipes: Watchlist,
    /// The content that was destroyed on disks that are blank since: reported until they are not blank any more.
    pub wiped: Remembered<String>,
    /// The last ones, whatever became of them.
    pub last_wiped: Vec<WipedDisk>,
    /// Disks whose claim will not be tried again until something happens to them.
    pub refused: Remembered<()>,
    /// The data that was found where zeros had to be.
    pub blanks: Blanks,
    /// Their reports about their health.
    pub healths: Healths,
    /// Folders of the node that filesystems are to be mounted below.
    pub host_paths: HostPaths,
}

/// How long a part believes what it has.
#[derive(Clone, Copy, PartialEq, Eq)]
enum BelievedUntil {
    /// Until the device has an event, or we write to it.
    Write,
    /// Until the device has an event.
    Event,
}

/// A part that an event of a device concerns.
trait Forgets {
    /// A device or one of its partitions had an event, by kernel name.
    fn changed(&mut self, name: &KernelName);

    /// Events were lost: each device may have had one.
    fn all_changed(&mut self);
}

/// By the methods that a part has for this.
macro_rules! forgets {
    ($($part:ty),+) => {
        $(impl Forgets for $part {
            fn changed(&mut self, name: &KernelName) {
                <$part>::changed(self, name);
            }

            fn all_changed(&mut self) {
                <$part>::all_changed(self);
            }
        })+
    };
}

forgets!(Discovery, Watchlist, Remembered<()>, Blanks);

impl Forgets for Healths {
    fn changed(&mut self, name: &KernelName) {
        self.reports().changed(name);
    }

    fn all_changed(&mut self) {
        self.reports().all_changed();
    }
}

impl Memory {
    pub fn new(owner: Owner, min_age: Duration) -> Self {
        Self {
            discovery: Discovery::new(owner, REMEMBERED_FOR),
            watch: Watchlist::new(min_age),
            wipes: Watchlist::new(min_age),
            wiped: Remembered::default(),
            last_wiped: Vec::new(),
            refused: Remembered::default(),
            blanks: Blanks::default(),
            healths: Healths::default(),
            host_paths: HostPaths::default(),
        }
    }

    /// All that an event concerns. What was wiped is reported for as long as it is so.
    fn parts_mut(&mut self) -> [(BelievedUntil, &mut dyn Forgets); 6] {
        let Self { discovery, watch, wipes, wiped: _, last_wiped: _, refused, blanks, healths, host_paths: _ } = self;
        [
            (BelievedUntil::Write, discovery),
            (BelievedUntil::Write, watch),
            (BelievedUntil::Write, wipes),
            (BelievedUntil::Event, refused),
            (BelievedUntil::Event, blanks),
            (BelievedUntil::Event, healths),
        ]
    }

    /// A device or one of its partitions had an event, by kernel name.
    pub fn changed(&mut self, name: &KernelName) {
        for (_, part) in self.parts_mut() {
            part.changed(name);
        }
    }

    /// Events were lost: each device may have had one.
    pub fn all_changed(&mut self) {
        for (_, part) in self.parts_mut() {
            part.all_changed();
        }
    }

    /// Whether a disk that cannot be claimed is worth one more scan: this pass saw it otherwise, and the next one may
    /// take another disk in its place. After that only an event of the disk says more.
    pub fn is_first_refusal(&mut self, snapshot: &Snapshot, name: &KernelName) -> bool {
        let Some(device) = snapshot.devices.iter().find(|device| device.raw.name == *name) else { return false };
        let is_first = self.refused.get(&device.raw).is_none();
        self.refused.keep(&device.raw, snapshot.at, ());
        is_first
    }

    pub fn was_wiped(&mut self, path: PathBuf, message: String) {
        let number = self.last_wiped.last().map_or(1, |last| last.number + 1);
        self.last_wiped.push(WipedDisk { number, path, message });
        let too_many = self.last_wiped.len().saturating_sub(WIPED);
        self.last_wiped.drain(..too_many);
    }

    /// A question that hung on a device that is gone keeps nobody waiting.
    pub fn forget_gone(&mut self, snapshot: &Snapshot) {
        let here: BTreeSet<Incarnation> = snapshot.devices.iter().map(|device| device.raw.incarnation()).collect();
        self.blanks.forget(|key| here.contains(key));
        self.healths.forget(|key| here.contains(key));
    }

    /// We changed its content: its clocks start again.
    pub fn wrote(&mut self, name: &KernelName) {
        for (until, part) in self.parts_mut() {
            if until == BelievedUntil::Write {
                part.changed(name);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::sample::disk;

    #[test]
    fn what_only_an_event_ends_outlasts_a_write_of_ours() {
        let owner = Owner { cluster: "c".to_owned(), node: "n".into() };
        let mut memory = Memory::new(owner, Duration::ZERO);
        let raw = disk("sda");
        memory.refused.keep(&raw, Duration::ZERO, ());
        memory.wrote(&raw.name);
        assert!(memory.refused.get(&raw).is_some());
        memory.changed(&raw.name);
        assert!(memory.refused.get(&raw).is_none());
    }
}
