//! The two-scans rule: nothing is claimed that appeared a moment ago.
//!
//! Takes in scans of all devices, events and monotonic time; gives out how ripe a device is. Ripe is one
//! that was seen unclaimed and unchanged at two scans at least the minimum age apart, with no event of
//! it in between. It stands in for what cannot be asked: whether somebody is about to format the disk.

use std::collections::HashMap;
use std::time::Duration;

use crate::device::{Device, DiskId, Verdict};
use crate::host::{Incarnation, KernelName, Probe};

/// What a device must stay to become ripe.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Fingerprint {
    id: DiskId,
    incarnation: Incarnation,
    size: u64,
    probe: Probe,
}

/// How long a device has been unchanged.
#[derive(Debug)]
struct Clock {
    fingerprint: Fingerprint,
    first: Duration,
    last: Duration,
    scans: u32,
}

/// How far an unclaimed device is on its way to a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ripeness {
    Ripe,
    /// A scan after this much more time can make it ripe.
    Waiting(Duration),
    /// Not seen unclaimed, or changed since: its clock has not begun.
    Unseen,
}

/// The unclaimed devices and since when they have been so, by kernel name.
#[derive(Debug)]
pub struct Watchlist {
    min_age: Duration,
    clocks: HashMap<KernelName, Clock>,
}

impl Watchlist {
    pub fn new(min_age: Duration) -> Self {
        Self { min_age, clocks: HashMap::new() }
    }

    /// A scan of all devices, at the monotonic time when it began.
    pub fn observe(&mut self, now: Duration, devices: &[Device]) {
        let mut before = std::mem::take(&mut self.clocks);
        for device in devices.iter().filter(|device| device.verdict == Verdict::Unclaimed) {
            let fingerprint = Fingerprint::of(device);
            let same = before.remove(&device.raw.name).filter(|clock| clock.fingerprint == fingerprint);
            let clock = match same {
                Some(clock) => Clock { last: now, scans: clock.scans.saturating_add(1), ..clock },
                None => Clock { fingerprint, first: now, last: now, scans: 1 },
            };
            self.clocks.insert(device.raw.name.clone(), clock);
        }
    }

    /// An event of a device or of one of its partitions, by kernel name.
    pub fn changed(&mut self, name: &KernelName) {
        self.clocks.retain(|of, _| !name.is_or_is_on(of));
    }

    /// Events were lost: each device may have had one.
    pub fn all_changed(&mut self) {
        self.clocks.clear();
    }

    /// How long until a device is ripe; `None`: it is, or was not seen free.
    pub fn wait(&self, device: &Device) -> Option<Duration> {
        match self.ripeness(device) {
            Ripeness::Waiting(time) => Some(time),
            Ripeness::Ripe | Ripeness::Unseen => None,
        }
    }

    pub fn ripeness(&self, device: &Device) -> Ripeness {
        let unclaimed = device.verdict == Verdict::Unclaimed;
        let clock = self.clocks.get(&device.raw.name).filter(|_| unclaimed);
        let Some(clock) = clock.filter(|clock| clock.fingerprint == Fingerprint::of(device)) else {
            return Ripeness::Unseen;
        };
        let age = clock.last.saturating_sub(clock.first);
        if clock.scans >= 2 && age >= self.min_age {
            Ripeness::Ripe
        } else {
            Ripeness::Waiting(self.min_age.saturating_sub(age))
        }
    }
}

impl Fingerprint {
    fn of(device: &Device) -> Self {
        Self {
            id: device.id.clone(),
            incarnation: device.raw.incarnation(),
            size: device.raw.size,
            probe: device.probe.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use uuid::Uuid;

    use super::*;
    use crate::device::{Discovery, Owner, Reason, sample::unclaimed};
    use crate::host::{FsKind, Geometry, Host, fake::FakeHost};

    const DEFAULT: Duration = Duration::from_secs(60);

    fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_disk_that_is_formatted_30_s_after_it_appears_is_never_ripe() {
        let mut list = Watchlist::new(DEFAULT);
        let blank = unclaimed("sda");
        let signature = Reason::HasSignature { kind: "ext4".into(), label: None };
        let formatted = Device { verdict: Verdict::Theirs(signature), ..unclaimed("sda") };
        for second in 0..300 {
            let device = if second < 30 { &blank } else { &formatted };
            list.observe(s(second), std::slice::from_ref(device));
            assert_ne!(list.ripeness(device), Ripeness::Ripe, "after {second} s");
            // Nor for one who still believes in the blank disk of before.
            assert_ne!(list.ripeness(&blank), Ripeness::Ripe, "after {second} s");
        }
    }

    #[test]
    fn a_disk_seen_once_and_61_s_later_is_ripe() {
        let mut list = Watchlist::new(DEFAULT);
        let disk = unclaimed("sda");
        assert_eq!(list.ripeness(&disk), Ripeness::Unseen);
        list.observe(s(100), std::slice::from_ref(&disk));
        assert_eq!(list.ripeness(&disk), Ripeness::Waiting(DEFAULT));
        list.observe(s(159), std::slice::from_ref(&disk));
        assert_eq!(list.ripeness(&disk), Ripeness::Waiting(s(1)));
        list.observe(s(161), std::slice::from_ref(&disk));
        assert_eq!(list.ripeness(&disk), Ripeness::Ripe);
    }

    #[test]
    fn one_scan_is_never_enough_even_without_a_minimum_age() {
        let mut list = Watchlist::new(Duration::ZERO);
        let disk = unclaimed("sda");
        list.observe(s(5), std::slice::from_ref(&disk));
        assert_eq!(list.ripeness(&disk), Ripeness::Waiting(Duration::ZERO));
        list.observe(s(5), std::slice::from_ref(&disk));
        assert_eq!(list.ripeness(&disk), Ripeness::Ripe);
    }

    #[test]
    fn time_alone_ripens_nothing() {
        let mut list = Watchlist::new(DEFAULT);
        let disk = unclaimed("sda");
        list.observe(s(0), std::slice::from_ref(&disk));
        list.observe(s(30), std::slice::from_ref(&disk));
        // There was no scan for an hour; the age is that of the scans.
        assert_eq!(list.ripeness(&disk), Ripeness::Waiting(s(30)));
    }

    #[test]
    fn each_change_restarts_the_clock() {
        let changes: [fn(&mut Device); 5] = [
            |device| device.id = DiskId::named(format!("{}x", device.id)),
            |device| device.raw.devno.minor += 1,
            |device| device.raw.diskseq = Some(99),
            |device| device.raw.size += 512,
            |device| device.probe = Probe::NotRead,
        ];
        for (index, change) in changes.into_iter().enumerate() {
            let mut list = Watchlist::new(DEFAULT);
            let mut disk = unclaimed("sda");
            list.observe(s(0), std::slice::from_ref(&disk));
            change(&mut disk);
            assert_eq!(list.ripeness(&disk), Ripeness::Unseen, "change {index}");
            list.observe(s(61), std::slice::from_ref(&disk));
            assert_eq!(list.ripeness(&disk), Ripeness::Waiting(DEFAULT), "change {index}");
            list.observe(s(122), std::slice::from_ref(&disk));
            assert_eq!(list.ripeness(&disk), Ripeness::Ripe, "change {index}");
        }
    }

    #[test]
    fn events_of_the_disk_and_absence_restart_its_clock_and_nobody_elses() {
        let mut list = Watchlist::new(DEFAULT);
        let disks = ["sda", "sdb", "nvme0n1", "nvme0n10"].map(unclaimed);
        let ripe = |list: &Watchlist| -> Vec<&str> {
            disks.iter().filter(|d| list.ripeness(d) == Ripeness::Ripe).map(|d| &*d.raw.name).collect()
        };
        list.observe(s(0), &disks);
        list.changed(&"sda1".into());
        list.changed(&"nvme0n1".into());
        list.observe(s(60), &disks);
        assert_eq!(ripe(&list), ["sdb", "nvme0n10"]);
        list.observe(s(61), &disks[..1]);
        list.observe(s(121), &disks);
        assert_eq!(ripe(&list), ["sda"]);
        list.all_changed();
        list.observe(s(122), &disks);
        assert_eq!(ripe(&list), Vec::<&str>::new());
    }

    #[test]
    fn a_disk_formatted_30_s_after_it_appears_is_never_ripe_and_one_left_alone_is_after_61_s() {
        let fake = Arc::new(FakeHost::default());
        let geometry = Geometry { size: 64 << 20, sector: 512, offloads_zeroes: true };
        for (name, serial) in [("sda", "SN-sda"), ("sdb", "SN-sdb")] {
            fake.add_disk(name, serial, geometry);
        }
        let host = Arc::clone(&fake) as Arc<dyn Host>;
        let mut discovery = Discovery::new(Owner { cluster: "c".into(), node: "n".into() }, DEFAULT);
        let (mut list, mut ripened) = (Watchlist::new(DEFAULT), Vec::new());
        for second in 0..=61 {
            if second == 30 {
                let made = host.filesystems().make(FsKind::Ext4, Path::new("/dev/sda"), Uuid::nil());
                made.expect("nobody has it");
            }
            let snapshot = discovery.scan(&host).expect("a scan");
            list.observe(snapshot.at, &snapshot.devices);
            let ripe = snapshot.devices.iter().filter(|device| list.ripeness(device) == Ripeness::Ripe);
            ripened.extend(ripe.map(|device| (second, device.raw.name.clone())));
            fake.advance(s(1));
        }
        assert_eq!(ripened, [(60, "sdb".into()), (61, "sdb".into())]);
    }
}
