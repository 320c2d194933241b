//! A disk in memory that loses what was not synced, tears its last write, and fails on purpose.
//!
//! Every durable effect (write, zero, sync) is counted by the machine; where the count says so, the power
//! goes: from then on each call fails, and the content is what a real disk might hold afterwards.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::bytes::SparseBytes;
use super::effect::Effect;
use super::gate::Gate;
use super::power::{Fate, Power};
use super::tree::Tree;
use crate::host::block::{BlockDevice, Disk, Geometry, IoError, Mapping, Openers, PartitionMap};
use crate::host::error::HostError;
use crate::host::extent::Extent;
use crate::host::table::read_copies;

/// The platter: outlives every handle, process and power cut.
pub struct Platter {
    pub name: String,
    pub geometry: Geometry,
    power: Arc<Power>,
    state: Mutex<State>,
    gate: Gate,
    /// The filesystems on it, by where they begin.
    trees: Mutex<BTreeMap<u64, Tree>>,
}

#[derive(Default)]
struct State {
    /// What a read sees now.
    now: SparseBytes,
    /// What was there at the last sync.
    synced: SparseBytes,
    /// Effects since then, in order.
    pending: Vec<Effect>,
    mapped: BTreeMap<u32, Extent>,
    /// Partitions that somebody has open exclusively, as a mount has; 0 is the whole disk.
    in_use: Vec<u32>,
    /// Another process has it open, and not exclusively.
    is_opened: bool,
    faults: Vec<Fault>,
    writes: u64,
}

/// An operation that is to fail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// `read`, `write`, `zero` or `sync`; `lock`: others keep the lock of the node; `tree write`, `tree make`, `tree move`,
    /// `tree remove`, `tree limit` or `tree project`: a change of its filesystem; `tree full`: there is no
    /// space for a file; `record read`: the record of a folder.
    pub what: &'static str,
    /// Fails where it touches this range.
    pub range: Extent,
    /// How many times; `u32::MAX` is always.
    pub times: u32,
}

impl Platter {
    pub fn new(name: &str, geometry: Geometry, power: Arc<Power>) -> Self {
        Self {
            name: name.to_owned(),
            geometry,
            power,
            state: Mutex::default(),
            gate: Gate::default(),
            trees: Mutex::default(),
        }
    }

    pub(super) fn trees(&self) -> MutexGuard<'_, BTreeMap<u64, Tree>> {
        self.trees.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn check_power(&self) -> std::io::Result<()> {
        self.power.check()
    }

    /// Counts a durable effect that is none on its bytes, which fails as `what` does.
    pub(super) fn spend_on(&self, what: &'static str) -> std::io::Result<()> {
        self.until_it_answers(what);
        self.power.check()?;
        if self.fails(what) {
            return Err(std::io::Error::from_raw_os_error(nix::libc::EIO));
        }
        self.power.spend()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on whoever opens, probes, reads or writes it waits, until a test lets it answer again.
    pub fn set_hangs(&self, is_hanging: bool) {
        self.set_hangs_at(is_hanging.then_some("all"));
    }

    /// The same for one sort of operation, those of [`Fault`]; `None`: it answers again.
    pub fn set_hangs_at(&self, what: Option<&'static str>) {
        self.gate.set_hangs_at(what);
    }

    /// Returns when it answers.
    pub(super) fn until_it_answers(&self, what: &'static str) {
        self.gate.pass(what);
    }

    /// Answers one of those that wait for it.
    pub fn let_one_through(&self) {
        self.gate.let_one_through();
    }

    /// Returns when somebody waits for it.
    pub fn until_somebody_waits(&self) {
        self.gate.until_somebody_waits();
    }

    /// Reads without counting, failing or asking for power: for the checks of a test.
    pub fn peek(&self, offset: u64, buf: &mut [u8]) {
        self.state().now.read(offset, buf);
    }

    /// Writes as a tenant does through its partition: on the platter at once.
    pub fn poke(&self, offset: u64, data: &[u8]) {
        let mut state = self.state();
        state.now.write(offset, data);
        state.synced.write(offset, data);
    }

    /// From now on reads of that range fail, until it is written.
    pub fn lose(&self, range: Extent) {
        let mut state = self.state();
        state.now.lose(range);
        state.synced.lose(range);
    }

    pub fn is_readable(&self, range: Extent) -> bool {
        self.state().now.is_readable(range)
    }

    pub fn is_zero(&self, range: Extent) -> bool {
        self.state().now.is_zero(range)
    }

    pub fn content(&self) -> SparseBytes {
        self.state().now.clone()
    }

    pub fn put_content(&self, content: SparseBytes) {
        let mut state = self.state();
        state.now = content.clone();
        state.synced = content;
        state.pending.clear();
    }

    /// Writes, zeroes and syncs that reached this disk so far.
    pub fn write_count(&self) -> u64 {
        self.state().writes
    }

    pub fn inject(&self, fault: Fault) {
        self.state().faults.push(fault);
    }

    pub fn clear_faults(&self) {
        self.state().faults.clear();
    }

    pub fn set_in_use(&self, number: u32, in_use: bool) {
        let mut state = self.state();
        state.in_use.retain(|n| *n != number);
        if in_use {
            state.in_use.push(number);
        }
    }

    /// Another process opens it without asking for it alone, or closes it.
    pub fn set_opened(&self, is_opened: bool) {
        self.state().is_opened = is_opened;
    }

    /// Each way in which another program stands in the way of whoever wants the disk, with whether it does now.
    pub const HOLDS: [fn(&Self, bool); 3] = [Self::set_alone, Self::set_opened, Self::set_locked];

    fn set_alone(&self, is_held: bool) {
        self.set_in_use(0, is_held);
    }

    fn set_locked(&self, is_held: bool) {
        match is_held {
            true => self.inject(Fault { what: "lock", range: Extent { start: 0, end: u64::MAX }, times: u32::MAX }),
            false => self.clear_faults(),
        }
    }

    pub fn is_in_use(&self, number: u32) -> bool {
        self.state().in_use.contains(&number)
    }

    pub fn mapping(&self, number: u32) -> Option<Extent> {
        self.state().mapped.get(&number).copied()
    }

    /// What the power cut leaves: mounts and mappings are gone, unsynced effects meet their fate.
    pub fn power_cycle(&self, fate: Fate) {
        self.trees().values_mut().for_each(Tree::forget_limits);
        let mut state = self.state();
        let pending = std::mem::take(&mut state.pending);
        let mut content = state.synced.clone();
        let last = pending.len().saturating_sub(1);
        for (index, effect) in pending.iter().enumerate() {
            match (fate, index == last) {
                (Fate::Lost, _) => {}
                (Fate::LastLost, true) => {}
                (Fate::Torn, true) => drop(effect.tear(u64::from(self.geometry.sector), &mut content)),
                (Fate::Unreadable, true) => {
                    let stopped_in = effect.tear(u64::from(self.geometry.sector), &mut content);
                    content.lose(stopped_in);
                }
                _ => effect.apply(&mut content),
            }
        }
        state.now = content.clone();
        state.synced = content;
        state.mapped.clear();
        state.in_use.clear();
        state.is_opened = false;
    }

    /// The power is back: the kernel maps every entry of a sound primary table, whatever it is there for.
    pub(super) fn boot(self: &Arc<Self>) {
        let disk = FakeDisk { platter: Arc::clone(self), name: self.name.clone() };
        if let Ok(table) = read_copies(&disk).primary {
            let entries = table.entries().iter().map(|(number, entry)| (*number, entry.extent));
            self.state().mapped.extend(entries);
        }
    }

    fn begin(&self, what: &'static str, range: Extent) -> Result<MutexGuard<'_, State>, IoError> {
        let error = |source: std::io::Error| IoError { what, disk: self.name.clone().into(), range, source };
        self.until_it_answers(what);
        self.power.check().map_err(error)?;
        let mut state = self.state();
        if range.end > self.geometry.size {
            return Err(error(std::io::Error::from_raw_os_error(nix::libc::ENOSPC)));
        }
        match state.meets_fault(what, range) {
            true => Err(error(std::io::Error::from_raw_os_error(nix::libc::EIO))),
            false => Ok(state),
        }
    }

    /// Whether an operation on all of it fails this time.
    pub(super) fn fails(&self, what: &'static str) -> bool {
        self.state().meets_fault(what, Extent { start: 0, end: self.geometry.size })
    }

    /// Performs an effect unless the power goes with it: then it is pending, and its fate decides.
    fn perform(&self, what: &'static str, range: Extent, effect: Effect) -> Result<(), IoError> {
        let mut state = self.begin(what, range)?;
        state.writes += 1;
        effect.apply(&mut state.now);
        state.pending.push(effect);
        drop(state);
        self.power.spend().map_err(|source| IoError { what, disk: self.name.clone().into(), range, source })
    }
}

impl State {
    fn meets_fault(&mut self, what: &'static str, range: Extent) -> bool {
        let is_it = |fault: &&mut Fault| fault.times > 0 && fault.what == what && touches(fault.range, range);
        let Some(fault) = self.faults.iter_mut().find(is_it) else { return false };
        fault.times = fault.times.saturating_sub(u32::from(fault.times != u32::MAX));
        true
    }
}

fn touches(a: Extent, b: Extent) -> bool {
    a.overlaps(&b) || b.is_empty()
}

/// A handle to a platter under the name that it has now, as an open file descriptor is.
pub struct FakeDisk {
    pub platter: Arc<Platter>,
    pub name: String,
}

impl BlockDevice for FakeDisk {
    fn geometry(&self) -> Geometry {
        self.platter.geometry
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), IoError> {
        let range = Extent { start: offset, end: offset + buf.len() as u64 };
        let state = self.platter.begin("read", range)?;
        if !state.now.is_readable(range) {
            let source = std::io::Error::from_raw_os_error(nix::libc::EIO);
            return Err(IoError { what: "read", disk: self.name.clone().into(), range, source });
        }
        state.now.read(offset, buf);
        Ok(())
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> Result<(), IoError> {
        let range = Extent { start: offset, end: offset + data.len() as u64 };
        let sector = u64::from(self.platter.geometry.sector);
        assert!(
            range.start.is_multiple_of(sector) && range.end.is_multiple_of(sector),
            "a misaligned O_DIRECT write of {range}"
        );
        self.platter.perform("write", range, Effect::Write(offset, data.to_vec()))
    }

    fn zero(&self, range: Extent) -> Result<(), IoError> {
        self.platter.perform("zero", range, Effect::Zero(range))
    }

    fn discard(&self, range: Extent) -> Result<(), IoError> {
        self.platter.begin("discard", range).map(drop)
    }

    fn sync(&self) -> Result<(), IoError> {
        let nothing = Extent { start: 0, end: 0 };
        // The power may go before the flush reaches the medium: it counts first.
        self.platter.begin("sync", nothing).map(drop)?;
        self.platter.power.spend().map_err(|source| IoError {
            what: "sync",
            disk: self.name.clone().into(),
            range: nothing,
            source,
        })?;
        let mut state = self.platter.state();
        state.writes += 1;
        state.synced = state.now.clone();
        state.pending.clear();
        Ok(())
    }
}

impl PartitionMap for FakeDisk {
    fn mapped(&self) -> Result<Vec<Mapping>, HostError> {
        self.platter.power.check().map_err(|e| self.host_error("list partitions of", e))?;
        Ok(self
            .platter
            .state()
            .mapped
            .iter()
            .map(|(number, extent)| Mapping { number: *number, extent: *extent })
            .collect())
    }

    fn map(&self, number: u32, extent: Extent) -> Result<(), HostError> {
        self.platter.power.check().map_err(|e| self.host_error("map a partition of", e))?;
        let mut state = self.platter.state();
        let clash =
            state.mapped.iter().any(|(n, e)| (*n == number && *e != extent) || (*n != number && e.overlaps(&extent)));
        if clash {
            return Err(HostError::Busy { object: format!("{}p{number}", self.name) });
        }
        state.mapped.insert(number, extent);
        Ok(())
    }

    fn unmap(&self, number: u32) -> Result<(), HostError> {
        self.platter.power.check().map_err(|e| self.host_error("unmap a partition of", e))?;
        let mut state = self.platter.state();
        if state.in_use.contains(&number) {
            return Err(HostError::Busy { object: format!("{}p{number}", self.name) });
        }
        state.mapped.remove(&number);
        Ok(())
    }

    fn resize(&self, number: u32, extent: Extent) -> Result<(), HostError> {
        self.platter.power.check().map_err(|e| self.host_error("resize a partition of", e))?;
        let mut state = self.platter.state();
        if state.mapped.iter().any(|(n, e)| *n != number && e.overlaps(&extent)) {
            return Err(HostError::Busy { object: format!("{}p{number}", self.name) });
        }
        state.mapped.insert(number, extent);
        Ok(())
    }

    fn prove_unused(&self, number: u32) -> Result<(), HostError> {
        match self.platter.is_in_use(number) {
            true => Err(HostError::Busy { object: format!("{}p{number}", self.name) }),
            false => Ok(()),
        }
    }

    /// There are no others here whom a hold could keep out.
    fn hold(&self, number: u32) -> Result<(), HostError> {
        self.prove_unused(number)
    }

    fn node(&self, number: u32) -> PathBuf {
        PathBuf::from(format!("/dev/{}p{number}", self.name))
    }
}

impl Disk for FakeDisk {
    fn prove_unopened(&self, _: Openers) -> Result<(), HostError> {
        match self.platter.state().is_opened {
            true => Err(HostError::Busy { object: format!("/dev/{}, open in dd (pid 7),", self.name) }),
            false => Ok(()),
        }
    }

    fn exclusive(&self) -> Result<Box<dyn Send + '_>, HostError> {
        self.platter.power.check().map_err(|e| self.host_error("lock", e))?;
        let locked = self.platter.begin("lock", Extent { start: 0, end: 0 });
        drop(locked.map_err(|_| HostError::Busy { object: format!("{}, locked by others,", self.name) })?);
        Ok(Box::new(()))
    }

    fn path(&self) -> PathBuf {
        PathBuf::from(format!("/dev/{}", self.name))
    }
}

impl FakeDisk {
    fn host_error(&self, what: &'static str, source: std::io::Error) -> HostError {
        HostError::Io { what, object: self.name.clone(), source }
    }
}
