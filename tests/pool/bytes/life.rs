//! The life of a disk that ends in the same bytes each time: it is claimed with GUIDs that never change, and gets three
//! volumes in places that are not chosen. One is formatted, one was found, and one is deleted and not erased yet.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use localpool::claim::Rule;
use localpool::device::id::hardware_id;
use localpool::device::label::{DATA_START, ErasePolicy, Hardware, Layout, Quota, VolumeRecord, VolumeUsage};
use localpool::host::fake::FakeHost;
use localpool::host::{Access, DEVICE_LOCK_TIMEOUT, Extent, FilesystemRoot, FsKind, Host};
use localpool::pool::{Attempt, NewLabel, PlannedVolume, PoolDisk, Site, delete};
use uuid::Uuid;

use crate::bytes::image;
use crate::node::{MIB, Node, id, problem, rule};

/// Of each volume.
pub const SIZE: u64 = 16 * MIB;
/// As Kubernetes calls a volume: too long for the name of a partition.
pub const DATA: &str = "pvc-0d5b9f2c-9c0c-4f7e-8a4e-3a8b5d1f2e6c";
pub const FOUND: &str = "found";
pub const GONE: &str = "gone";

/// A disk that is made, and compared with its fixture.
pub struct Case {
    /// The name of the fixture. Those of earlier versions have more behind it.
    pub name: &'static str,
    pub layout: Layout,
    pub size: u64,
    pub sector: u32,
}

/// With both sectors, and each type of partition that localpool makes. A filesystem has no bytes of localpool's: the fake
/// machine has a mark in its place, and its files are compared.
pub static CASES: [Case; 4] = [
    Case { name: "carved-512", layout: Layout::Carved {}, size: 96 * MIB, sector: 512 },
    Case { name: "carved-4096", layout: Layout::Carved {}, size: 96 * MIB, sector: 4096 },
    Case {
        name: "slots-4096",
        layout: Layout::Slots { size: Some(SIZE), count: Some(4) },
        size: 96 * MIB,
        sector: 4096,
    },
    Case { name: "directory-512", layout: Layout::Directory { quota: Quota::None }, size: 512 * MIB, sector: 512 },
];

impl Case {
    pub fn start(&self, host: &Arc<FakeHost>) -> Node {
        Node::start(host, vec![self.rule()], Duration::ZERO).expect("starts")
    }

    fn rule(&self) -> Rule {
        rule(&self.layout, ErasePolicy::Discard)
    }

    pub fn usage(&self, name: &str) -> VolumeUsage {
        match (self.layout.is_directory(), name) {
            (true, _) => VolumeUsage::Mount(FsKind::Xfs),
            (false, DATA) => VolumeUsage::Mount(FsKind::Ext4),
            (false, _) => VolumeUsage::Block,
        }
    }

    /// What a volume is when it is made.
    pub fn record(&self, name: &str) -> VolumeRecord {
        VolumeRecord {
            name: name.to_owned(),
            required: SIZE,
            limit: Some(2 * SIZE),
            parameters: BTreeMap::from([("class".to_owned(), "fast".to_owned())]),
            usage: self.usage(name),
            fs_size: 0,
            found: false,
        }
    }

    /// The place of the first, second or third volume, whatever the pool would choose: another choice is no other
    /// format.
    fn site(&self, place: u32) -> Site {
        match self.layout {
            Layout::Slots { .. } => Site::Slot(2 + place),
            Layout::Whole {} | Layout::Member(_) | Layout::RawDevice {} => {
                panic!("{} holds one volume, and this life has three", self.name)
            }
            Layout::Carved {} | Layout::Directory { .. } => {
                let start = DATA_START + u64::from(place) * SIZE;
                Site::Space(Extent { start, end: start + SIZE })
            }
        }
    }
}

/// No two of its bytes are alike, so that their order is seen.
fn guid(number: u8) -> Uuid {
    Uuid::from_u128(0x0123_4567_89ab_4cde_8f10_3254_7698_ba00 + u128::from(number))
}

/// A machine with the disk, and the node that made it.
pub fn make(case: &Case) -> (Arc<FakeHost>, Node) {
    let host = image::blank(case.size, case.sector);
    claim(&host, case);
    let mut node = case.start(&host);
    assert_eq!(problem(&mut node, image::DISK), "", "{}", case.name);
    let member = node.pool.members().remove(0);
    for (place, name) in (0..).zip([DATA, FOUND, GONE]) {
        let volume = PlannedVolume { id: id(name), record: case.record(name) };
        let made = member.create(case.site(place), &volume, node.pool.journal(), DEVICE_LOCK_TIMEOUT);
        assert!(matches!(made, Ok(Attempt::ByUs)), "{}: {name}: {made:?}", case.name);
        write(&host, &node, name);
    }
    node.pool.mark_formatted(id(DATA)).expect("formatted");
    node.pool.disown_volume(id(FOUND)).expect("disowned");
    delete_gone(&host, &node);
    (host, node)
}

/// As the agent does it, which takes GUIDs at random.
pub fn claim(host: &FakeHost, case: &Case) {
    let raw = host.scan().expect("a scan").remove(0);
    let disk = host.open(&raw, Access::Claim).expect("opens");
    let wanted = NewLabel {
        geometry: disk.geometry(),
        cluster: "test".to_owned(),
        node: "node-1".into(),
        hardware: Hardware::of(hardware_id(&raw, None), &raw),
        set: case.rule().set,
        layout: case.layout.clone(),
    };
    let mut count = 0xc0;
    let next = || {
        count += 1;
        guid(count)
    };
    PoolDisk::claim_with(disk, &wanted, next).expect("claims");
}

/// With what is random in it replaced.
fn delete_gone(host: &FakeHost, node: &Node) {
    let fixed = guid(0xe5);
    let Some(root) = root(host, node) else {
        let disk = node.pool.labelled_disks().remove(0);
        return disk.change(|content| delete(content, id(GONE), ErasePolicy::Discard, fixed)).expect("deleted");
    };
    node.pool.delete(id(GONE)).expect("deleted");
    let trash = Path::new("trash");
    let name = root.names(trash).expect("read").remove(0);
    let (kept, _random) = name.rsplit_once('.').expect("volume, size, and what is random");
    root.rename(&trash.join(&name), &trash.join(format!("{kept}.{}", fixed.simple()))).expect("renamed");
}

/// The root of the filesystem that the disk's volumes are in; `None`: they are partitions.
pub fn root(host: &FakeHost, node: &Node) -> Option<Arc<dyn FilesystemRoot>> {
    let disk = node.pool.disk_views().remove(0);
    let at = host.own_mounts().join(disk.id.as_str());
    let open = || host.mounts().open_root(&at, Path::new(image::PARTITION)).expect("mounted");
    disk.layout.is_directory().then(open)
}

/// What the tenant of a volume has in it.
pub fn words(name: &str) -> String {
    format!("data of the tenant of {name}")
}

fn write(host: &FakeHost, node: &Node, name: &str) {
    match root(host, node) {
        Some(root) => root.write(&file(name), &words(name)).expect("written"),
        None => image::platter(host).poke(start_of(node, name), words(name).as_bytes()),
    }
}

pub fn read(host: &FakeHost, node: &Node, name: &str) -> String {
    match root(host, node) {
        Some(root) => root.read(&file(name)).expect("read").unwrap_or_default(),
        None => {
            let mut bytes = vec![0; words(name).len()];
            image::platter(host).peek(start_of(node, name), &mut bytes);
            String::from_utf8_lossy(&bytes).into_owned()
        }
    }
}

fn file(name: &str) -> PathBuf {
    Path::new("volumes").join(id(name).to_string()).join("file")
}

fn start_of(node: &Node, name: &str) -> u64 {
    let shown = node.pool.labelled_disks().remove(0).shown();
    let volume = shown.content.volume(id(name)).expect("it is on the disk");
    volume.entry.extent.start
}
