//! A memory of devices: each is remembered for as long as it is the same device.
//!
//! Takes in what was learnt of a device and when; gives it out again until the device is another one, has another size,
//! or has had an event. Not every change of a disk causes an event, so whoever asks says how old an answer may be.

use std::collections::HashMap;
use std::time::Duration;

use crate::host::{Incarnation, KernelName, RawDisk};

/// How long a scan believes the reason against a disk before it reads the content again.
pub const REMEMBERED_FOR: Duration = Duration::from_secs(3600);

/// By kernel name.
#[derive(Debug)]
pub struct Remembered<T>(HashMap<KernelName, Memo<T>>);

/// The memory of one device.
#[derive(Clone, Debug)]
pub struct Memo<T> {
    of: Incarnation,
    size: u64,
    /// Monotonic time when it was learnt.
    pub at: Duration,
    pub what: T,
}

impl<T> Default for Remembered<T> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<T> Remembered<T> {
    pub fn keep(&mut self, raw: &RawDisk, at: Duration, what: T) {
        self.0.insert(raw.name.clone(), Memo { of: raw.incarnation(), size: raw.size, at, what });
    }

    pub fn get(&self, raw: &RawDisk) -> Option<&Memo<T>> {
        self.0.get(&raw.name).filter(|kept| (kept.of, kept.size) == (raw.incarnation(), raw.size))
    }

    /// The same, if it is younger than `keep`.
    pub fn fresh(&self, raw: &RawDisk, now: Duration, keep: Duration) -> Option<&T> {
        let kept = self.get(raw).filter(|kept| now.saturating_sub(kept.at) < keep);
        kept.map(|kept| &kept.what)
    }

    /// A device, a partition of it, or its disk had an event; by kernel name.
    pub fn changed(&mut self, name: &KernelName) {
        self.forget(|kept| name.is_or_is_on(kept) || kept.is_or_is_on(name));
    }

    pub fn forget(&mut self, which: impl Fn(&KernelName) -> bool) {
        self.0.retain(|kept, _| !which(kept));
    }

    /// Events were lost: each device may have had one.
    pub fn all_changed(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::sample::disk;

    const HOUR: Duration = Duration::from_secs(3600);

    fn remembered(names: &[&str]) -> Remembered<u32> {
        let mut remembered = Remembered::default();
        names.iter().for_each(|name| remembered.keep(&disk(name), Duration::ZERO, 7));
        remembered
    }

    #[test]
    fn it_is_of_the_very_device_as_large_as_then_and_no_older_than_is_asked_for() {
        let remembered = remembered(&["sda"]);
        let sda = disk("sda");
        assert_eq!(remembered.fresh(&sda, HOUR / 2, HOUR), Some(&7));
        assert_eq!(remembered.fresh(&sda, HOUR, HOUR), None);
        assert_eq!(remembered.get(&sda).map(|kept| (kept.at, kept.what)), Some((Duration::ZERO, 7)));
        assert!(remembered.get(&RawDisk { diskseq: Some(99), ..sda.clone() }).is_none());
        assert!(remembered.get(&RawDisk { size: sda.size + 512, ..sda }).is_none());
        assert!(remembered.get(&disk("sdb")).is_none());
    }

    #[test]
    fn an_event_of_a_disk_or_its_partition_forgets_both_and_no_other() {
        for event in ["sda", "sda1"] {
            let mut remembered = remembered(&["sda", "sda1", "sdb", "sdaa"]);
            remembered.changed(&event.into());
            let known = ["sda", "sda1", "sdb", "sdaa"].map(|name| remembered.get(&disk(name)).is_some());
            assert_eq!(known, [false, false, true, true], "{event}");
        }
        let mut remembered = remembered(&["sda"]);
        remembered.all_changed();
        assert!(remembered.get(&disk("sda")).is_none());
    }
}
