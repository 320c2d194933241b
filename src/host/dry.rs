//! A machine on which nothing is changed: for a dry run, beside the real one.
//!
//! Takes in another host; gives out what that one shows. Disks are opened only to look. What is written, mapped or
//! stored is kept in memory and read back from there; the other host never sees it. What cannot be pretended (mounts,
//! filesystems, an exclusive claim) is refused.

mod mounts;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use uuid::Uuid;

use super::array_state::ArrayState;
use super::block::{BlockDevice, Disk, Geometry, IoError, Mapping, Openers, PartitionMap};
use super::error::HostError;
use super::extent::Extent;
use super::health::{DiskReport, IoErrors, WriteCounts};
use super::machine_start::MachineStart;
use super::port::{Access, Arrays, Filesystems, FsIdentity, FsKind, Host, Mounts, NewArray};
use super::raw::{Probe, RawDisk};
use super::slot_light::{Lit, SlotLight};
use super::state::StateStore;

/// The machine.
pub struct DryHost {
    real: Arc<dyn Host>,
    written: Arc<Mutex<BTreeSet<PathBuf>>>,
    documents: Mutex<BTreeMap<String, String>>,
}

/// One of its disks.
struct DryDisk {
    real: Arc<dyn Disk>,
    /// The paths of all disks that something was written to.
    written: Arc<Mutex<BTreeSet<PathBuf>>>,
    /// What was written, in order; no bytes: zeros.
    writes: Mutex<Vec<(Extent, Option<Vec<u8>>)>>,
    mapped: Mutex<BTreeMap<u32, Extent>>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn refused<T>(what: &str, object: &Path) -> Result<T, HostError> {
    Err(HostError::Unsupported { what: format!("a dry run does not {what} {}", object.display()) })
}

impl DryHost {
    pub fn new(real: Arc<dyn Host>) -> Self {
        Self { real, written: Arc::default(), documents: Mutex::default() }
    }

    /// The disks that would have been written to so far.
    pub fn written(&self) -> Vec<PathBuf> {
        locked(&self.written).iter().cloned().collect()
    }
}

impl Host for DryHost {
    fn scan(&self) -> Result<Vec<RawDisk>, HostError> {
        self.real.scan()
    }

    fn probe(&self, disk: &RawDisk) -> Probe {
        self.real.probe(disk)
    }

    fn report(&self, disk: &RawDisk) -> DiskReport {
        self.real.report(disk)
    }

    fn io_errors(&self, disk: &RawDisk) -> Option<IoErrors> {
        self.real.io_errors(disk)
    }

    fn writes(&self, disk: &RawDisk) -> Option<WriteCounts> {
        self.real.writes(disk)
    }

    fn arrays(&self, disk: &RawDisk) -> Vec<ArrayState> {
        self.real.arrays(disk)
    }

    fn slot_light(&self, disk: &RawDisk) -> Option<SlotLight> {
        self.real.slot_light(disk)
    }

    fn set_slot_light(&self, disk: &RawDisk, _lit: Lit) -> Result<SlotLight, HostError> {
        refused("turn on or off the light of", &disk.path)
    }

    fn open(&self, disk: &RawDisk, access: Access) -> Result<Arc<dyn Disk>, HostError> {
        match access {
            Access::ReadOnly | Access::Alone => self.real.open(disk, access),
            Access::Own => {
                let real = self.real.open(disk, Access::ReadOnly)?;
                let mapped = real.mapped()?.into_iter().map(|one| (one.number, one.extent)).collect();
                let written = Arc::clone(&self.written);
                Ok(Arc::new(DryDisk { real, written, writes: Mutex::default(), mapped: Mutex::new(mapped) }))
            }
            Access::Claim => refused("claim", &disk.path),
        }
    }

    fn filesystems(&self) -> &dyn Filesystems {
        self
    }

    fn machine_start(&self) -> Option<MachineStart> {
        self.real.machine_start()
    }

    fn md(&self) -> &dyn Arrays {
        self
    }

    fn mounts(&self) -> &dyn Mounts {
        self
    }

    fn state(&self) -> &dyn StateStore {
        self
    }

    fn own_mounts(&self) -> PathBuf {
        self.real.own_mounts()
    }

    fn monotonic(&self) -> Duration {
        self.real.monotonic()
    }
}

impl StateStore for DryHost {
    fn load(&self, name: &str) -> Result<Option<String>, HostError> {
        let pretended = locked(&self.documents).get(name).cloned();
        pretended.map_or_else(|| self.real.state().load(name), |text| Ok(Some(text)))
    }

    fn store(&self, name: &str, text: &str) -> Result<(), HostError> {
        locked(&self.documents).insert(name.to_owned(), text.to_owned());
        Ok(())
    }

    fn append(&self, name: &str, text: &str) -> Result<(), HostError> {
        let before = self.load(name)?.unwrap_or_default();
        self.store(name, &(before + text))
    }

    fn remove(&self, _: &str) -> Result<(), HostError> {
        Ok(())
    }

    fn keep_copy(&self, name: &str, _: &str) -> Result<String, HostError> {
        refused("copy", Path::new(name))
    }
}

impl Filesystems for DryHost {
    fn make(&self, _: FsKind, device: &Path, _: Uuid) -> Result<(), HostError> {
        refused("make a filesystem on", device)
    }

    fn check(&self, _: FsKind, device: &Path) -> Result<(), HostError> {
        refused("repair the filesystem on", device)
    }

    fn grow(&self, _: FsKind, device: &Path, _: Option<&Path>) -> Result<(), HostError> {
        refused("grow the filesystem on", device)
    }

    fn identify(&self, device: &Path) -> Result<Option<FsIdentity>, HostError> {
        self.real.filesystems().identify(device)
    }
}

impl Arrays for DryHost {
    fn supported(&self) -> Result<(), HostError> {
        self.real.md().supported()
    }

    fn make(&self, array: &NewArray) -> Result<(), HostError> {
        refused("make an array of", array.members.first().map_or(Path::new("nothing"), PathBuf::as_path))
    }

    fn assemble(&self, _: Uuid, members: &[PathBuf]) -> Result<(), HostError> {
        refused("start the array of", members.first().map_or(Path::new("nothing"), PathBuf::as_path))
    }

    fn stop(&self, array: &RawDisk) -> Result<(), HostError> {
        refused("stop", &array.path)
    }
}

impl DryDisk {
    fn pretend(&self, range: Extent, bytes: Option<Vec<u8>>) {
        locked(&self.written).insert(self.real.path());
        locked(&self.writes).push((range, bytes));
    }
}

impl BlockDevice for DryDisk {
    fn geometry(&self) -> Geometry {
        self.real.geometry()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), IoError> {
        self.real.read_at(offset, buf)?;
        for (range, bytes) in locked(&self.writes).iter() {
            range.lay_over(bytes.as_deref(), offset, buf);
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> Result<(), IoError> {
        let end = offset.saturating_add(data.len() as u64);
        self.pretend(Extent { start: offset, end }, Some(data.to_vec()));
        Ok(())
    }

    fn zero(&self, range: Extent) -> Result<(), IoError> {
        self.pretend(range, None);
        Ok(())
    }

    fn discard(&self, _: Extent) -> Result<(), IoError> {
        Ok(())
    }

    fn sync(&self) -> Result<(), IoError> {
        Ok(())
    }
}

impl PartitionMap for DryDisk {
    fn mapped(&self) -> Result<Vec<Mapping>, HostError> {
        Ok(locked(&self.mapped).iter().map(|(number, extent)| Mapping { number: *number, extent: *extent }).collect())
    }

    fn map(&self, number: u32, extent: Extent) -> Result<(), HostError> {
        locked(&self.mapped).insert(number, extent);
        Ok(())
    }

    /// Refuses if a partition is in use, as the kernel would.
    fn unmap(&self, number: u32) -> Result<(), HostError> {
        self.prove_unused(number)?;
        locked(&self.mapped).remove(&number);
        Ok(())
    }

    fn resize(&self, number: u32, extent: Extent) -> Result<(), HostError> {
        self.map(number, extent)
    }

    fn prove_unused(&self, number: u32) -> Result<(), HostError> {
        self.real.prove_unused(number)
    }

    fn hold(&self, _: u32) -> Result<(), HostError> {
        Ok(())
    }

    fn node(&self, number: u32) -> PathBuf {
        self.real.node(number)
    }
}

impl Disk for DryDisk {
    fn exclusive(&self) -> Result<Box<dyn Send + '_>, HostError> {
        Ok(Box::new(()))
    }

    fn prove_unopened(&self, who: Openers) -> Result<(), HostError> {
        self.real.prove_unopened(who)
    }

    fn path(&self) -> PathBuf {
        self.real.path()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::fake::FakeHost;
    use crate::host::{FilesystemState, ModuleLoading, TargetAccess};

    #[test]
    fn what_is_written_on_a_dry_machine_is_read_back_there_and_nowhere_else() {
        let fake = Arc::new(FakeHost::default());
        fake.add_disk("fake0", "one", Geometry { size: 1 << 20, sector: 512, offloads_zeroes: true });
        let raw = fake.scan().expect("a scan").remove(0);
        let real = fake.open(&raw, Access::Own).expect("opened");
        real.write_at(0, &[1; 2048]).expect("written");
        let dry = DryHost::new(Arc::clone(&fake) as Arc<dyn Host>);
        let disk = dry.open(&raw, Access::Own).expect("opened");
        assert_eq!(dry.written(), [] as [PathBuf; 0]);
        disk.write_at(512, &[2; 1024]).expect("pretended");
        disk.zero(Extent { start: 1024, end: 1 << 20 }).expect("pretended");
        disk.write_at(1536, &[3; 512]).expect("pretended");
        disk.sync().expect("pretended");
        disk.map(1, Extent { start: 512, end: 1024 }).expect("pretended");
        let read = |disk: &dyn Disk| {
            let mut bytes = vec![9; 2560];
            disk.read_at(256, &mut bytes).expect("read");
            [0, 300, 800, 1300, 2000].map(|at| bytes[at])
        };
        assert_eq!(read(&*disk), [1, 2, 0, 3, 0]);
        assert_eq!(disk.mapped().expect("said").len(), 1);
        assert_eq!(read(&*real), [1, 1, 1, 1, 0]);
        assert_eq!(real.mapped().expect("said"), []);
        assert_eq!(dry.written(), std::slice::from_ref(&raw.path));
        dry.state().store("journal.json", "dry").expect("pretended");
        assert_eq!(dry.state().load("journal.json").expect("read").as_deref(), Some("dry"));
        assert_eq!(fake.state().load("journal.json").expect("read"), None);
    }

    #[test]
    fn what_a_dry_machine_says_of_arrays_and_filesystems_is_what_the_other_one_says() {
        let fake = Arc::new(FakeHost::default());
        fake.add_disk("fake0", "one", Geometry { size: 1 << 20, sector: 512, offloads_zeroes: true });
        let raw = fake.scan().expect("a scan").remove(0);
        fake.mounts().mount(&raw.path, Path::new("/t"), FsKind::Ext4, &[]).expect("mounted");
        let dry = DryHost::new(Arc::clone(&fake) as Arc<dyn Host>);
        let mount = dry.mounts().table().expect("a table").remove(0);
        let states = || (dry.arrays(&raw), dry.mounts().filesystem_state(&mount).expect("said"));
        assert_eq!(states(), (vec![], FilesystemState::default()));
        let array = ArrayState {
            name: "md0".into(),
            level: None,
            state: "clean".to_owned(),
            degraded: Some(1),
            disks: Some(2),
        };
        let filesystem = FilesystemState { is_read_only: true, errors: Some(7), is_shut_down: false };
        fake.set_arrays("fake0", vec![array.clone()]);
        fake.set_filesystem_state(Path::new("/t"), filesystem);
        assert_eq!(states(), (vec![array], filesystem));
    }

    #[test]
    fn a_dry_machine_asks_for_quota_without_having_a_module_loaded() {
        let fake = Arc::new(FakeHost::default());
        let dry = DryHost::new(Arc::clone(&fake) as Arc<dyn Host>);
        dry.mounts().supports_project_quota(ModuleLoading::Allowed).expect("said");
        assert!(!fake.mounts.was_asked_to_load());
        fake.mounts().supports_project_quota(ModuleLoading::Allowed).expect("said");
        assert!(fake.mounts.was_asked_to_load());
    }

    #[test]
    fn what_cannot_be_pretended_is_refused_by_its_name() {
        let fake = Arc::new(FakeHost::default());
        fake.add_disk("fake0", "one", Geometry { size: 1 << 20, sector: 512, offloads_zeroes: true });
        let raw = fake.scan().expect("a scan").remove(0);
        let dry = DryHost::new(fake);
        let path = Path::new("/x");
        let refused = [
            dry.open(&raw, Access::Claim).map(drop),
            dry.filesystems().make(FsKind::Ext4, path, Uuid::nil()),
            dry.mounts().mount(path, path, FsKind::Ext4, &[]),
            dry.mounts().unmount(path),
            dry.mounts().set_access(path, TargetAccess::ReadOnly),
        ];
        for one in refused {
            let error = one.expect_err("it would be done").to_string();
            assert!(error.starts_with("a dry run does not "), "{error}");
        }
    }
}
