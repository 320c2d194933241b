//! The machine that this process runs on: the wiring of the real parts into one [`Host`].

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::array_state::{self, ArrayState};
use super::arrays::RealArrays;
use super::block::Disk;
use super::disk::RealDisk;
use super::disk_figures::{BenchmarkBounds, DiskFigures, MachineModel};
use super::dying::Dying;
use super::error::HostError;
use super::filesystem::RealFilesystems;
use super::health::{DiskReport, IoErrors, WriteCounts};
use super::machine_start::MachineStart;
use super::mount::RealMounts;
use super::port::{Access, Arrays, Filesystems, Host, Mount, Mounts};
use super::raw::{Probe, RawDisk};
use super::roots::Roots;
use super::slot_light::{Lit, SlotLight};
use super::state::{StateDir, StateStore};
use super::timeout::{DEVICE_TIMEOUT, Timeouts};
use super::{benchmark, signature, smart, sysfs};

/// Linux, as its kernel shows it here and now.
pub struct RealHost {
    roots: Roots,
    filesystems: RealFilesystems,
    mounts: RealMounts,
    state: StateDir,
    /// Killed agents whose place this one took: what they began on a disk that hangs may still complete.
    after: Vec<Dying>,
    /// Timeout of the scan as a whole: it reads files, and follows links into filesystems that may hang.
    timeouts: Mutex<Timeouts<()>>,
    /// The fixed point of [`Host::monotonic`]. `Instant` is CLOCK_MONOTONIC: no clock change moves it.
    began: Instant,
}

impl RealHost {
    /// `state` is the directory whose lock the caller holds, or one that it will not write to.
    pub fn new(roots: Roots, filesystems: RealFilesystems, state: StateDir) -> Self {
        let timeouts = Mutex::new(Timeouts::new(DEVICE_TIMEOUT));
        Self { roots, filesystems, mounts: RealMounts, state, after: Vec::new(), timeouts, began: Instant::now() }
    }

    /// The same for an agent that follows agents that were killed and cannot end.
    pub fn after(mut self, dying: Vec<Dying>) -> Self {
        self.after = dying;
        self
    }

    /// No write of this process may come before one of its predecessor, and a disk that the predecessor waits for
    /// answers no read either.
    fn prove_quiet(&self, disk: &RawDisk) -> Result<(), HostError> {
        match self.after.iter().find(|after| after.may_write(disk.devno)) {
            Some(Dying { pid, .. }) => {
                let what = "which the previous agent, killed but not ended, waits for";
                Err(HostError::Busy { object: format!("{}, {what} (pid {pid}),", disk.path.display()) })
            }
            None => Ok(()),
        }
    }

    /// The same with another timeout for a scan that hangs.
    #[cfg(any(test, feature = "testing"))]
    pub fn waiting_at_most(mut self, bound: Duration) -> Self {
        self.timeouts = Mutex::new(Timeouts::new(bound));
        self
    }
}

impl Host for RealHost {
    fn scan(&self) -> Result<Vec<RawDisk>, HostError> {
        let roots = self.roots.clone();
        let mut timeouts = self.timeouts.lock().unwrap_or_else(PoisonError::into_inner);
        timeouts.ask(&(), move || sysfs::scan(&roots)).unwrap_or_else(|why| {
            let source = std::io::Error::other(why);
            Err(HostError::Io { what: "cannot look at", object: "the machine's block devices".to_owned(), source })
        })
    }

    fn probe(&self, disk: &RawDisk) -> Probe {
        match self.prove_quiet(disk) {
            Ok(()) => signature::probe(disk),
            Err(waits) => Probe::Failed(waits.to_string()),
        }
    }

    fn report(&self, disk: &RawDisk) -> DiskReport {
        smart::ask(disk)
    }

    fn io_errors(&self, disk: &RawDisk) -> Option<IoErrors> {
        sysfs::io_errors(&self.roots, disk)
    }

    fn writes(&self, disk: &RawDisk) -> Option<WriteCounts> {
        sysfs::writes(&self.roots, disk)
    }

    fn arrays(&self, disk: &RawDisk) -> Vec<ArrayState> {
        array_state::read(&self.roots.sys, disk.devno)
    }

    fn busy_time(&self, disk: &RawDisk) -> Option<Duration> {
        sysfs::busy_time(&self.roots, disk)
    }

    fn benchmark(&self, mount: &Mount, bounds: BenchmarkBounds) -> Result<DiskFigures, HostError> {
        benchmark::benchmark(&self.roots.proc, mount, bounds)
    }

    fn model(&self) -> MachineModel {
        benchmark::machine_model(&self.roots.sys)
    }

    fn slot_light(&self, disk: &RawDisk) -> Option<SlotLight> {
        sysfs::slot_light(&self.roots, disk)
    }

    fn set_slot_light(&self, disk: &RawDisk, lit: Lit) -> Result<SlotLight, HostError> {
        sysfs::set_slot_light(&self.roots, disk, lit)
    }

    fn open(&self, disk: &RawDisk, access: Access) -> Result<Arc<dyn Disk>, HostError> {
        self.prove_quiet(disk)?;
        Ok(Arc::new(RealDisk::open(disk, access)?))
    }

    fn filesystems(&self) -> &dyn Filesystems {
        &self.filesystems
    }

    fn md(&self) -> &dyn Arrays {
        &RealArrays
    }

    fn mounts(&self) -> &dyn Mounts {
        &self.mounts
    }

    fn state(&self) -> &dyn StateStore {
        &self.state
    }

    fn own_mounts(&self) -> PathBuf {
        // As the mount table has it: a link on the way would hide what is mounted there.
        let state = self.state.path();
        std::fs::canonicalize(state).unwrap_or_else(|_| state.to_owned()).join("filesystems")
    }

    fn machine_start(&self) -> Option<MachineStart> {
        MachineStart::read(&self.roots.proc)
    }

    fn monotonic(&self) -> Duration {
        self.began.elapsed()
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{OpenOptions, create_dir_all};
    use std::os::unix::fs::OpenOptionsExt;

    use nix::libc::O_NONBLOCK;
    use nix::sys::stat::Mode;

    use super::*;
    use crate::host::error::chain;

    #[test]
    fn a_scan_that_hangs_is_given_up_and_works_again_when_that_ends() {
        let machine = tempfile::tempdir().expect("a folder");
        let disk = machine.path().join("sys/block/sda");
        create_dir_all(&disk).expect("a folder");
        std::fs::write(disk.join("dev"), "8:0").expect("a file");
        let [dev, records] = ["dev", "run/udev/data"].map(|folder| machine.path().join(folder));
        create_dir_all(dev).expect("a folder");
        create_dir_all(&records).expect("a folder");
        // Opening a FIFO waits for the other end.
        let fifo = records.join("b8:0");
        nix::unistd::mkfifo(&fifo, Mode::S_IRUSR | Mode::S_IWUSR).expect("a FIFO");
        let state = StateDir::at(&machine.path().join("state"));
        let roots = Roots { proc: "/proc".into(), ..Roots::under(machine.path()) };
        let host = RealHost::new(roots, RealFilesystems::default(), state);
        let host = host.waiting_at_most(Duration::from_millis(200));
        for _ in 0..2 {
            let why = chain(&host.scan().expect_err("it hangs"));
            assert_eq!(
                why,
                "cannot look at the machine's block devices: opening or reading it took more than 200ms; it is read \
                 again when that ends"
            );
        }
        // The other end comes and goes.
        drop(OpenOptions::new().write(true).custom_flags(O_NONBLOCK).open(&fifo).expect("somebody reads it"));
        std::fs::remove_file(&fifo).expect("removed");
        let works = (0..10_000).any(|_| {
            std::thread::sleep(Duration::from_millis(1));
            host.scan().is_ok()
        });
        assert!(works, "{:?}", host.scan());
    }
}
