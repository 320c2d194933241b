//! The scans of a machine's disks: the one file here that asks a `Host`.
//!
//! Takes in a host, gives out every device with its verdict. Content is read
//! only where it can still decide, and what denies a device is believed for a while; what would free a
//! device for a claim is read again at each scan, and once more by [`Discovery::reread`] before a claim. A device that
//! hangs when it is opened or read is *Unknown*, and the scan goes on without it.

mod error;
mod snapshot;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

pub use self::error::DiscoveryError;
pub use self::snapshot::{Snapshot, disk_of};
use super::disk_id::{DiskId, HardwareId};
use super::duplicate::{self, Identities};
use super::id;
use super::judged::{Believed, Device, Verdict};
use super::ownership::{Evidence, Machine, Owner};
use super::record::judged_record;
use super::remembered::{Memo, Remembered};
use super::withheld::Withholding;
use crate::host::{
    Access, BlockDevice, Host, Incarnation, KernelName, Probe, ProbeResult, RawDisk, chain,
    timeout::{self, Timeouts},
};

/// The scans of one machine, and what they remember of each other.
#[derive(Debug)]
pub struct Discovery {
    owner: Owner,
    /// Reads what a device says of itself.
    read: fn(&dyn BlockDevice) -> Evidence,
    /// The devices that are claimed bare.
    bare: BTreeSet<DiskId>,
    /// Those that were, and may have a tenant's bytes on them.
    given_up: BTreeSet<DiskId>,
    identities: Identities,
    withholding: Withholding,
    /// The hardware that each disk of the pool was last on.
    last_on: BTreeMap<DiskId, HardwareId>,
    /// How long a scan believes what an earlier one read.
    keep: Duration,
    cache: Remembered<ReadContent>,
    timeouts: Timeouts<DeviceKey>,
    /// Whether the last scan of everything met a device that could not be read.
    has_failed: bool,
}

/// A device that is asked: another one under the same name is another.
type DeviceKey = (KernelName, Incarnation);

/// The content that was read from a device.
#[derive(Clone, Debug)]
struct ReadContent {
    record: Option<Evidence>,
    probe: Probe,
}

/// Which devices a scan reads again.
#[derive(Clone, Copy)]
enum Scope<'s> {
    All,
    /// One device and its disk; of the others only what is remembered counts.
    One {
        name: &'s KernelName,
        disk: Option<&'s KernelName>,
    },
}

/// The input of one scan.
struct ScanInput<'l, 'r> {
    host: &'l Arc<dyn Host>,
    scope: Scope<'l>,
    machine: &'l Machine<'r>,
    raws: &'r [RawDisk],
    /// The content that is remembered, and believed.
    known: &'l HashMap<&'r KernelName, Memo<ReadContent>>,
}

impl Discovery {
    pub fn new(owner: Owner, keep: Duration) -> Self {
        Self {
            owner,
            read: judged_record,
            bare: BTreeSet::new(),
            given_up: BTreeSet::new(),
            identities: Identities::new(),
            withholding: Withholding::default(),
            last_on: BTreeMap::new(),
            keep,
            cache: Remembered::default(),
            timeouts: Timeouts::new(timeout::DEVICE_TIMEOUT),
            has_failed: false,
        }
    }

    /// The same with another timeout for a device that hangs.
    #[cfg(any(test, feature = "testing"))]
    pub fn waiting_at_most(mut self, bound: Duration) -> Self {
        self.timeouts = Timeouts::new(bound);
        self
    }

    /// Which devices are claimed bare now, from here on nothing on them is read, and nothing on them is
    /// anything but a tenant's.
    pub fn claimed_bare(&mut self, ids: BTreeSet<DiskId>) {
        self.bare = ids;
    }

    /// Which devices were claimed bare and given up with what was on them: nothing there is a record.
    pub fn given_up(&mut self, ids: BTreeSet<DiskId>) {
        self.given_up = ids;
    }

    /// Which hardware our disks are, and which are copies of them, from here on; and the hardware that each was last
    /// on, also where that is but a path.
    pub fn identities_are(&mut self, identities: Identities, last_on: BTreeMap<DiskId, HardwareId>) {
        (self.identities, self.last_on) = (identities, last_on);
    }

    /// Which devices a scan of all of them withholds, from here on.
    pub fn withhold(&mut self, withholding: Withholding) {
        self.withholding = withholding;
    }

    /// Whether a device still owes an answer to the last scan: no event announces when it gives one.
    pub fn is_waiting_for(&self, raw: &RawDisk) -> bool {
        self.timeouts.is_waiting_for(&device_key(raw))
    }

    /// Whether a device could not be read at the last scan of all of them: no event announces when that is over.
    pub fn has_failed(&self) -> bool {
        self.has_failed
    }

    /// Whether a device has not answered yet.
    pub fn is_waiting(&self) -> bool {
        self.timeouts.is_waiting()
    }

    /// A hint that a device or one of its partitions changed, by kernel name.
    pub fn changed(&mut self, name: &KernelName) {
        self.cache.changed(name);
    }

    /// A hint that anything may have changed.
    pub fn all_changed(&mut self) {
        self.cache.all_changed();
    }

    pub fn scan(&mut self, host: &Arc<dyn Host>) -> Result<Snapshot, DiscoveryError> {
        let mut snapshot = self.scan_within(host, Scope::All)?;
        for device in &mut snapshot.devices {
            let Some(why) = self.withholding.of(device) else { continue };
            device.verdict = Verdict::Unknown(why.to_string());
            device.label = None;
            // It is read again once it is withheld no more.
            self.cache.changed(&device.raw.name);
        }
        Ok(snapshot)
    }

    /// The last scan before a claim: the device as it is now, read again, if it still is the one that was
    /// decided on, and free.
    pub fn reread(&mut self, host: &Arc<dyn Host>, was: &Device) -> Result<Device, DiscoveryError> {
        let now = self.rescan(host, was)?;
        match now.free() {
            Ok(()) => Ok(now),
            Err(why) => Err(DiscoveryError::NotFree { name: now.raw.name, why }),
        }
    }

    /// The last scan before a disk is wiped, or an array is claimed for the set of its disks: read again, it must be in all
    /// as it was when that was decided.
    pub fn reread_unchanged(&mut self, host: &Arc<dyn Host>, was: &Device) -> Result<Device, DiscoveryError> {
        let now = self.rescan(host, was)?;
        let state = |device: &Device| (device.verdict.clone(), device.probe.clone(), device.believed.clone());
        if state(&now) == state(was) {
            return Ok(now);
        }
        match now.free() {
            Err(why) if why.retryable() => {
                // That may pass, so the next scan reads it again.
                self.cache.changed(&now.raw.name);
                Err(DiscoveryError::NotSeen { name: now.raw.name, why })
            }
            Ok(()) | Err(_) => Err(DiscoveryError::ChangedContent { name: now.raw.name }),
        }
    }

    /// The same device, read again, whatever is on it by now.
    fn rescan(&mut self, host: &Arc<dyn Host>, was: &Device) -> Result<Device, DiscoveryError> {
        let name = was.raw.name.clone();
        let disk = was.raw.kind.partition().map(|partition| &partition.disk);
        let snapshot = self.scan_within(host, Scope::One { name: &name, disk })?;
        let Some(now) = snapshot.devices.into_iter().find(|device| device.raw.name == name) else {
            return Err(DiscoveryError::Gone { name });
        };
        let same = |device: &Device| (device.id.clone(), device.raw.incarnation(), device.raw.size);
        if same(&now) != same(was) {
            return Err(DiscoveryError::Changed { name });
        }
        Ok(now)
    }

    fn scan_within(&mut self, host: &Arc<dyn Host>, scope: Scope<'_>) -> Result<Snapshot, DiscoveryError> {
        let at = host.monotonic();
        let raws = host.scan().map_err(DiscoveryError::Scan)?;
        let here: HashSet<DeviceKey> = raws.iter().map(device_key).collect();
        self.timeouts.forget(|key| here.contains(key));
        let (owner, last_on, identities) = (self.owner.clone(), self.last_on.clone(), self.identities.clone());
        let machine = Machine::new(&owner, &raws).knowing(&last_on, &identities);
        let believed = |raw: &RawDisk| self.cache.get(raw).filter(|kept| self.believes(raw, kept, at, scope)).cloned();
        let known: HashMap<&KernelName, Memo<ReadContent>> =
            raws.iter().filter_map(|raw| Some((&raw.name, believed(raw)?))).collect();

        let input = ScanInput { host, scope, machine: &machine, raws: &raws, known: &known };
        let mut records = self.records(&input);
        let probes = self.probes(&input, &mut records);
        if let Scope::All = scope {
            self.has_failed = records.values().any(|record| matches!(record, Evidence::Failed(_)))
                || probes.values().any(|probe| matches!(probe, Probe::Failed(_)));
        }
        let devices: Vec<Device> = raws.iter().map(|raw| device(&machine, raw, &records, &probes)).collect();
        self.remember(&devices, &known, &records, at, scope);
        let mut set = Snapshot { at, devices };
        duplicate::settle(&mut set.devices, &self.identities);
        duplicate::settle_unread(&mut set.devices, &self.last_on);
        Ok(set)
    }

    /// The records of the devices that may carry one, by kernel name.
    fn records<'r>(&mut self, input: &ScanInput<'_, 'r>) -> HashMap<&'r KernelName, Evidence> {
        let ScanInput { host, scope, machine, raws, known } = *input;
        let recorded = |raw: &RawDisk| {
            let id = DiskId::from(id::hardware_id(raw, machine.disk_of(raw)));
            let given_up = || self.given_up.contains(&id).then_some(Evidence::GivenUp);
            self.bare.contains(&id).then_some(Evidence::Bare).or_else(given_up)
        };
        let mut records: HashMap<&KernelName, Evidence> =
            raws.iter().filter_map(|raw| Some((&raw.name, recorded(raw)?))).collect();
        for raw in raws.iter().filter(|raw| machine.may_carry_record(raw)) {
            if records.contains_key(&raw.name) {
                continue;
            }
            let remembered = known.get(&raw.name).and_then(|cached| cached.what.record.clone());
            if let Some(record) = remembered.or_else(|| scope.covers(&raw.name).then(|| self.record_of(host, raw))) {
                records.insert(&raw.name, record);
            }
        }
        records
    }

    /// The content of the devices, by kernel name, if only that decides. May read their records again.
    fn probes<'r>(
        &mut self,
        input: &ScanInput<'_, 'r>,
        records: &mut HashMap<&'r KernelName, Evidence>,
    ) -> HashMap<&'r KernelName, Probe> {
        let ScanInput { host, scope, machine, raws, known } = *input;
        let mut probes = HashMap::new();
        for raw in raws.iter().filter(|raw| scope.covers(&raw.name) || known.contains_key(&raw.name)) {
            if !machine.needs_probe(raw, records) {
                continue;
            }
            let denied = known.get(&raw.name).filter(|cached| denies(&cached.what.probe));
            if let Some(cached) = denied {
                probes.insert(&raw.name, cached.what.probe.clone());
            } else if scope.covers(&raw.name) {
                // Nothing remembered may free a device: its record is read again with its content.
                let is_recorded = matches!(records.get(&raw.name), Some(Evidence::Bare | Evidence::GivenUp));
                if known.contains_key(&raw.name) && machine.may_carry_record(raw) && !is_recorded {
                    records.insert(&raw.name, self.record_of(host, raw));
                }
                if machine.needs_probe(raw, records) {
                    probes.insert(&raw.name, self.probe_of(host, raw));
                }
            }
        }
        probes
    }

    fn record_of(&mut self, host: &Arc<dyn Host>, raw: &RawDisk) -> Evidence {
        let (asked, disk, read) = (Arc::clone(host), raw.clone(), self.read);
        let open_and_read = move || match asked.open(&disk, Access::ReadOnly) {
            Ok(disk) => read(&*disk),
            Err(error) => Evidence::Failed(chain(&error)),
        };
        self.timeouts.ask(&device_key(raw), open_and_read).unwrap_or_else(|error| Evidence::Failed(chain(&error)))
    }

    fn probe_of(&mut self, host: &Arc<dyn Host>, raw: &RawDisk) -> Probe {
        let (asked, disk) = (Arc::clone(host), raw.clone());
        let probed = self.timeouts.ask(&device_key(raw), move || asked.probe(&disk));
        probed.unwrap_or_else(|error| Probe::Failed(chain(&error)))
    }

    fn believes(&self, raw: &RawDisk, cached: &Memo<ReadContent>, now: Duration, scope: Scope<'_>) -> bool {
        match scope {
            Scope::All => now.saturating_sub(cached.at) < self.keep,
            Scope::One { .. } => !scope.covers(&raw.name),
        }
    }

    fn remember(
        &mut self,
        devices: &[Device],
        known: &HashMap<&KernelName, Memo<ReadContent>>,
        records: &HashMap<&KernelName, Evidence>,
        at: Duration,
        scope: Scope<'_>,
    ) {
        let before = std::mem::take(&mut self.cache);
        if let Scope::One { .. } = scope {
            self.cache = before;
        }
        for Device { raw, probe, .. } in devices.iter().filter(|device| scope.covers(&device.raw.name)) {
            let read_at = known.get(&raw.name).map_or(at, |cached| cached.at);
            let passes =
                |record: &&Evidence| matches!(record, Evidence::Failed(_) | Evidence::Bare | Evidence::GivenUp);
            let record = records.get(&raw.name).filter(|record| !passes(record)).cloned();
            self.cache.keep(raw, read_at, ReadContent { record, probe: probe.clone() });
        }
    }
}

impl Scope<'_> {
    fn covers(self, name: &KernelName) -> bool {
        match self {
            Self::All => true,
            Self::One { name: one, disk } => name == one || Some(name) == disk,
        }
    }
}

/// Content that keeps a device out of every claim. Not that it was busy: that is over when its user is, of
/// which nobody tells.
fn denies(probe: &Probe) -> bool {
    matches!(probe, Probe::Read(ProbeResult { table, signatures, busy: _ }) if table.is_some() || !signatures.is_empty())
}

fn device_key(raw: &RawDisk) -> DeviceKey {
    (raw.name.clone(), raw.incarnation())
}

fn device(
    machine: &Machine<'_>,
    raw: &RawDisk,
    records: &HashMap<&KernelName, Evidence>,
    probes: &HashMap<&KernelName, Probe>,
) -> Device {
    let probe = probes.get(&raw.name).cloned().unwrap_or(Probe::NotRead);
    let verdict = machine.judge(raw, &probe, records);
    // A label on what is not judged by it says nothing: a tenant may have written it.
    let label = match &verdict {
        Verdict::Ours | Verdict::Foreign { .. } => records.get(&raw.name).and_then(Evidence::label).cloned(),
        Verdict::Unclaimed | Verdict::Theirs(_) | Verdict::Unknown(_) => None,
    };
    Device {
        id: id::identify(raw, machine.disk_of(raw), label.as_deref()),
        link: id::best_link(raw),
        verdict,
        label,
        probe,
        unread: machine.unread(raw, records),
        believed: Believed::Yes,
        raw: raw.clone(),
    }
}

#[cfg(test)]
mod tests;
