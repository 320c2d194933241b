//! What a scan says about twenty-four machines that are kept as text, about a generated one, and about this one.
//!
//! The machines are in fixtures/machines; loop_host/scan.rs has what needs real devices.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod hardware;
mod in_use;
mod lsblk;
mod network;
mod stacked;
mod unreadable;

use std::path::Path;

use localpool::host::sysfs::scan;
use localpool::host::{MountHow, MountUse, RawDisk, Roots};
use localpool_testing::machines;

struct Machine {
    folder: tempfile::TempDir,
    disks: Vec<RawDisk>,
}

impl Machine {
    fn root(&self) -> &Path {
        self.folder.path()
    }

    fn names(&self) -> Vec<&str> {
        self.disks.iter().map(|disk| disk.name.as_str()).collect()
    }

    fn disk(&self, name: &str) -> &RawDisk {
        self.disks.iter().find(|disk| disk.name == name).unwrap_or_else(|| panic!("no {name} in {:?}", self.names()))
    }

    /// Links without the machine's folder.
    fn links(&self, name: &str) -> Vec<&str> {
        let dev = self.root().join("dev");
        self.disk(name).links.iter().map(|link| link.strip_prefix(&dev).unwrap().to_str().unwrap()).collect()
    }

    fn mounts(&self, name: &str) -> Vec<(&str, u64, MountHow)> {
        let mounts = self.disk(name).mounts.iter();
        mounts.map(|MountUse { target, namespace, how }| (target.to_str().unwrap(), *namespace, *how)).collect()
    }
}

fn texts() -> impl Iterator<Item = (String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/machines");
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    files
        .filter(|file| file.extension().is_some_and(|extension| extension == "txt"))
        .map(|file| (file.file_stem().unwrap().to_str().unwrap().to_owned(), std::fs::read_to_string(&file).unwrap()))
}

fn machine(name: &str) -> Machine {
    let (_, text) = texts().find(|(found, _)| found == name).unwrap_or_else(|| panic!("no machine {name}"));
    let folder = tempfile::tempdir().unwrap();
    machines::build(folder.path(), &text);
    let disks = scan(&Roots::under(folder.path())).unwrap();
    Machine { folder, disks }
}

fn shown(text: &Option<String>) -> &str {
    text.as_deref().unwrap_or("-")
}

const HERE: u64 = 4026531840;
const FS: MountHow = MountHow::Filesystem;

#[test]
fn every_device_of_every_machine_has_a_node_under_its_own_dev() {
    let mut machines = 0;
    for (name, _) in texts() {
        let m = machine(&name);
        machines += 1;
        for disk in &m.disks {
            assert_eq!(disk.path, m.root().join("dev").join(disk.name.as_str()), "{name}");
            assert!(disk.links.iter().all(|link| link.starts_with(m.root())), "{name}");
            if name != "failing" {
                assert_eq!(disk.unreadable, None, "{name}: {}", disk.name);
            }
        }
    }
    assert!(machines >= 24, "{machines}");
}
