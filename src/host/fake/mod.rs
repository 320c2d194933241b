//! A machine in memory, beside the real one: for crash tests, and for failures that a real machine
//! cannot be asked for. Nothing here reaches a real disk; its device nodes do not exist.

mod arrays;
mod bytes;
mod disk;
mod effect;
mod filesystems;
mod gate;
mod mounts;
mod power;
mod state;
mod tree;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

pub use arrays::FakeArrays;
pub use bytes::SparseBytes;
pub use disk::{FakeDisk, Fault, Platter};
pub use filesystems::FakeFilesystems;
pub use gate::Gate;
pub use mounts::{FakeMounts, FakeQuota};
pub use power::{Fate, Power};
pub use state::FakeState;

use super::array_state::ArrayState;
use super::block::{Disk, Geometry};
use super::disk_figures::{BenchmarkBounds, DiskFigures, MachineModel};
use super::error::HostError;
use super::extent::Extent;
use super::filesystem_state::FilesystemState;
use super::health::{DiskReport, Health, IoErrors, WriteCounts};
use super::machine_start::MachineStart;
use super::port::{Access, Arrays, Filesystems, Host, Mount, Mounts};
use super::raw::{DevNo, DeviceKind, Probe, ProbeResult, RawDisk, Signature};
use super::slot_light::{Lit, SlotLight};
use super::state::StateStore;
use crate::host::KernelName;

/// The machine. Its disks, like real ones, outlive every process that opens them.
pub struct FakeHost {
    pub power: Arc<Power>,
    inventory: Arc<Mutex<Inventory>>,
    filesystems: FakeFilesystems,
    pub md: FakeArrays,
    pub mounts: FakeMounts,
    pub state: FakeState,
    clock: Mutex<Duration>,
    start: Mutex<Option<MachineStart>>,
    reports: Mutex<BTreeMap<KernelName, DiskReport>>,
    io_errors: Mutex<BTreeMap<KernelName, IoErrors>>,
    writes: Mutex<BTreeMap<KernelName, WriteCounts>>,
    arrays: Mutex<BTreeMap<KernelName, Vec<ArrayState>>>,
    lights: Mutex<BTreeMap<KernelName, Lit>>,
    busy: Mutex<BTreeMap<KernelName, Duration>>,
    speed: Mutex<Option<FakeSpeed>>,
    model: Mutex<MachineModel>,
    asked: AtomicUsize,
    before_claim: Mutex<Option<BeforeClaim>>,
}

/// What a benchmark of any disk says.
#[derive(Clone)]
pub enum FakeSpeed {
    Figures(DiskFigures),
    /// It fails, for this reason.
    Unsupported(&'static str),
}

/// What another program does to a disk.
type BeforeClaim = Box<dyn FnOnce(&Platter) + Send>;

/// The disks that are plugged in, by kernel name.
#[derive(Default)]
pub struct Inventory {
    disks: BTreeMap<KernelName, (RawDisk, Arc<Platter>)>,
    next_minor: u32,
}

impl Default for FakeHost {
    fn default() -> Self {
        let inventory = Arc::new(Mutex::new(Inventory::default()));
        let power = Arc::<Power>::default();
        Self {
            state: FakeState::new(Arc::clone(&power)),
            md: FakeArrays::new(Arc::clone(&inventory), Arc::clone(&power)),
            power,
            filesystems: FakeFilesystems::new(Arc::clone(&inventory)),
            mounts: FakeMounts::new(Arc::clone(&inventory)),
            inventory,
            clock: Mutex::default(),
            start: Mutex::new(Some(MachineStart { boot_id: "boot-1".to_owned(), first_process: 1 })),
            reports: Mutex::default(),
            io_errors: Mutex::default(),
            writes: Mutex::default(),
            arrays: Mutex::default(),
            lights: Mutex::default(),
            busy: Mutex::default(),
            speed: Mutex::default(),
            model: Mutex::default(),
            asked: AtomicUsize::default(),
            before_claim: Mutex::default(),
        }
    }
}

pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Inventory {
    /// The number of the whole disk at a node.
    pub(super) fn number(&self, node: &Path) -> Option<DevNo> {
        self.disks.get(node.file_name()?.to_str()?).map(|(raw, _)| raw.devno)
    }

    /// Finds disk and partition number behind a device node; number 0 is the whole disk.
    pub(super) fn resolve(&self, node: &Path) -> Option<(Arc<Platter>, u32)> {
        let name = node.file_name()?.to_str()?;
        if let Some((_, platter)) = self.disks.get(name) {
            return Some((Arc::clone(platter), 0));
        }
        let (disk, number) = name.rsplit_once('p')?;
        let (_, platter) = self.disks.get(disk)?;
        Some((Arc::clone(platter), number.parse().ok()?))
    }
}

impl FakeHost {
    /// Plugs a new, blank disk in; its serial number is its identity.
    pub fn add_disk(&self, name: &str, serial: &str, geometry: Geometry) -> Arc<Platter> {
        let platter = Arc::new(Platter::new(name, geometry, Arc::clone(&self.power)));
        self.plug(name, serial, Arc::clone(&platter));
        platter
    }

    /// Plugs a platter in under a (new) name.
    pub fn plug(&self, name: &str, serial: &str, platter: Arc<Platter>) {
        let mut inventory = locked(&self.inventory);
        inventory.next_minor += 1;
        let raw = raw_disk(name, serial, platter.geometry, inventory.next_minor);
        inventory.disks.insert(name.into(), (raw, platter));
    }

    /// Pulls a disk out.
    pub fn unplug(&self, name: &str) -> Option<Arc<Platter>> {
        locked(&self.inventory).disks.remove(name).map(|(_, platter)| platter)
    }

    /// Changes what the kernel says of a disk.
    pub fn edit(&self, name: &str, edit: impl FnOnce(&mut RawDisk)) {
        if let Some((raw, _)) = locked(&self.inventory).disks.get_mut(name) {
            edit(raw);
        }
    }

    /// What a disk says of its health from now on, and nothing else.
    pub fn set_health(&self, name: &str, health: Health) {
        self.set_report(name, DiskReport::of(health));
    }

    /// What a disk reports from now on.
    pub fn set_report(&self, name: &str, report: DiskReport) {
        locked(&self.reports).insert(name.into(), report);
    }

    /// What the kernel has counted of a disk. Nothing, until this is called.
    pub fn set_writes(&self, name: &str, counted: WriteCounts) {
        locked(&self.writes).insert(name.into(), counted);
    }

    pub fn set_io_errors(&self, name: &str, counted: IoErrors) {
        locked(&self.io_errors).insert(name.into(), counted);
    }

    /// The slot of a disk has a light from now on.
    pub fn add_slot_light(&self, name: &str) {
        locked(&self.lights).insert(name.into(), Lit::Off);
    }

    /// For how long a disk was busy until now. Never, until this is called.
    pub fn set_busy_time(&self, name: &str, time: Duration) {
        locked(&self.busy).insert(name.into(), time);
    }

    /// What a benchmark of any disk says from now on.
    pub fn set_speed(&self, speed: FakeSpeed) {
        *locked(&self.speed) = Some(speed);
    }

    /// What its firmware says from now on.
    pub fn set_model(&self, model: MachineModel) {
        *locked(&self.model) = model;
    }

    /// What the kernel says of the md arrays below a device from now on.
    pub fn set_arrays(&self, name: &str, arrays: Vec<ArrayState>) {
        locked(&self.arrays).insert(name.into(), arrays);
    }

    /// What the kernel says of the filesystem that is mounted at `target` from now on.
    pub fn set_filesystem_state(&self, target: &Path, state: FilesystemState) {
        self.mounts.set_filesystem_state(target, state);
    }

    /// Another program acts just before the next claim, and after its last scan.
    pub fn before_the_next_claim(&self, does: impl FnOnce(&Platter) + Send + 'static) {
        *locked(&self.before_claim) = Some(Box::new(does));
    }

    /// How often disks were asked for a report.
    pub fn health_asked(&self) -> usize {
        self.asked.load(Ordering::Relaxed)
    }

    pub fn platter(&self, name: &str) -> Option<Arc<Platter>> {
        locked(&self.inventory).disks.get(name).map(|(_, platter)| Arc::clone(platter))
    }

    pub fn advance(&self, by: Duration) {
        *locked(&self.clock) += by;
    }

    /// Power back on: memory is gone, and the disks hold what `fate` left of unsynced effects.
    pub fn reboot(&self, fate: Fate) {
        for (_, platter) in locked(&self.inventory).disks.values() {
            platter.power_cycle(fate);
        }
        self.mounts.forget_all();
        if let Some(start) = locked(&self.start).as_mut() {
            start.boot_id.push('+');
        }
        self.md.forget_all();
        self.power.restore();
        for (_, platter) in locked(&self.inventory).disks.values() {
            platter.boot();
        }
    }

    /// What the kernel says of the start of the machine from now on.
    pub fn set_machine_start(&self, boot_id: &str, first_process: u64) {
        *locked(&self.start) = Some(MachineStart { boot_id: boot_id.to_owned(), first_process });
    }

    /// The process was killed and starts again: the kernel kept everything that was mapped, mounted or unsynced.
    pub fn restart_process(&self) {
        self.power.restore();
    }

    /// What a fake mkfs has to do next: `None` succeeds, `Some(error words)` fails.
    pub fn fail_mkfs(&self, message: Option<&str>) {
        self.filesystems.fail_mkfs(message);
    }
}

impl Host for FakeHost {
    fn scan(&self) -> Result<Vec<RawDisk>, HostError> {
        if self.power.is_off() {
            return Err(HostError::Unsupported { what: "the power is off".to_owned() });
        }
        let mut all: Vec<RawDisk> = locked(&self.inventory).disks.values().map(|(raw, _)| raw.clone()).collect();
        all.extend(self.md.members());
        Ok(all)
    }

    fn probe(&self, disk: &RawDisk) -> Probe {
        let Some((platter, _)) = locked(&self.inventory).resolve(&disk.path) else {
            return Probe::Failed("no such device".to_owned());
        };
        platter.until_it_answers("probe");
        let tail = platter.geometry.size.saturating_sub(4096);
        if ![0, tail].into_iter().all(|start| platter.is_readable(Extent { start, end: start + 4096 })) {
            return Probe::Failed("read: Input/output error".to_owned());
        }
        let mut head = vec![0; 4096];
        platter.peek(0, &mut head);
        let mut contents = ProbeResult { busy: platter.is_in_use(0), ..ProbeResult::default() };
        let sector = platter.geometry.sector as usize;
        if head.get(sector..sector + 8) == Some(b"EFI PART") {
            contents.table = Some("gpt".to_owned());
        } else if head[510..512] == [0x55, 0xaa] {
            contents.table = Some("PMBR".to_owned());
        } else {
            let mut tail = [0; 8];
            platter.peek(platter.geometry.size - u64::from(platter.geometry.sector), &mut tail);
            if &tail == b"EFI PART" {
                contents.table = Some("gpt (backup only)".to_owned());
            }
        }
        if let Some(found) = filesystems::read_marker(&platter, 0) {
            contents.signatures.push(Signature {
                kind: found.kind,
                usage: "filesystem".to_owned(),
                label: None,
                uuid: found.uuid.map(|u| u.to_string()),
                offset: 0,
            });
        }
        Probe::Read(contents)
    }

    fn report(&self, disk: &RawDisk) -> DiskReport {
        self.asked.fetch_add(1, Ordering::Relaxed);
        if let Some(platter) = self.platter(&disk.name) {
            platter.until_it_answers("report");
        }
        let silent = || DiskReport::of(Health::Unknown("a fake disk says nothing of itself".to_owned()));
        locked(&self.reports).get(&disk.name).cloned().unwrap_or_else(silent)
    }

    fn io_errors(&self, disk: &RawDisk) -> Option<IoErrors> {
        locked(&self.io_errors).get(&disk.name).copied()
    }

    fn writes(&self, disk: &RawDisk) -> Option<WriteCounts> {
        locked(&self.writes).get(&disk.name).copied()
    }

    fn arrays(&self, disk: &RawDisk) -> Vec<ArrayState> {
        locked(&self.arrays).get(&disk.name).cloned().unwrap_or_default()
    }

    fn busy_time(&self, disk: &RawDisk) -> Option<Duration> {
        Some(locked(&self.busy).get(&disk.name).copied().unwrap_or_default())
    }

    fn benchmark(&self, mount: &Mount, _bounds: BenchmarkBounds) -> Result<DiskFigures, HostError> {
        let what = match locked(&self.speed).clone() {
            Some(FakeSpeed::Figures(figures)) => return Ok(figures),
            Some(FakeSpeed::Unsupported(what)) => what.to_owned(),
            None => format!("nobody has said how fast the disk at {} is", mount.target.display()),
        };
        Err(HostError::Unsupported { what })
    }

    fn model(&self) -> MachineModel {
        locked(&self.model).clone()
    }

    fn slot_light(&self, disk: &RawDisk) -> Option<SlotLight> {
        let lit = locked(&self.lights).get(&disk.name).copied()?;
        Some(SlotLight { path: format!("/sys/slot/{}/locate", disk.name).into(), lit })
    }

    fn set_slot_light(&self, disk: &RawDisk, lit: Lit) -> Result<SlotLight, HostError> {
        locked(&self.lights).insert(disk.name.clone(), lit);
        self.slot_light(disk).ok_or_else(|| HostError::Unsupported { what: "it has no light".to_owned() })
    }

    fn open(&self, disk: &RawDisk, access: Access) -> Result<Arc<dyn Disk>, HostError> {
        let found = locked(&self.inventory).disks.get(&disk.name).cloned();
        let Some((raw, platter)) = found else {
            return Err(HostError::Changed { path: disk.path.clone(), why: "it is gone".to_owned() });
        };
        if raw.devno != disk.devno {
            return Err(HostError::Changed { path: disk.path.clone(), why: "another device has its name".to_owned() });
        }
        platter.until_it_answers("open");
        if platter.fails("open") {
            let source = std::io::Error::from_raw_os_error(nix::libc::EIO);
            return Err(HostError::Io { what: "open", object: disk.path.display().to_string(), source });
        }
        let is_alone = matches!(access, Access::Alone | Access::Claim);
        if is_alone && let Some(does) = locked(&self.before_claim).take() {
            does(&platter);
        }
        if is_alone && platter.is_in_use(0) {
            return Err(HostError::Busy { object: disk.path.display().to_string() });
        }
        Ok(Arc::new(FakeDisk { platter, name: disk.name.to_string() }))
    }

    fn filesystems(&self) -> &dyn Filesystems {
        &self.filesystems
    }

    fn md(&self) -> &dyn Arrays {
        &self.md
    }

    fn mounts(&self) -> &dyn Mounts {
        &self.mounts
    }

    fn state(&self) -> &dyn StateStore {
        &self.state
    }

    fn own_mounts(&self) -> PathBuf {
        "/state/filesystems".into()
    }

    fn machine_start(&self) -> Option<MachineStart> {
        locked(&self.start).clone()
    }

    fn monotonic(&self) -> Duration {
        *locked(&self.clock)
    }
}

fn raw_disk(name: &str, serial: &str, geometry: Geometry, minor: u32) -> RawDisk {
    let path = PathBuf::from(format!("/dev/{name}"));
    RawDisk {
        size: geometry.size,
        logical_sector: geometry.sector,
        physical_sector: geometry.sector,
        model: Some("Fake Disk".to_owned()),
        serial: Some(serial.to_owned()),
        offloads_zeroes: geometry.offloads_zeroes,
        discards: true,
        diskseq: Some(u64::from(minor)),
        ..RawDisk::named(name.into(), path, DevNo { major: 240, minor }, DeviceKind::Disk)
    }
}
