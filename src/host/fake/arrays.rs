//! Fake md: a mark in each member says of which array it is, and the bytes of an array are on a platter of its own,
//! which outlives everything, as its members would.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use uuid::Uuid;

use super::{Inventory, Platter, Power, locked};
use crate::host::block::Geometry;
use crate::host::error::HostError;
use crate::host::port::{Arrays, NewArray};
use crate::host::raw::{DevNo, DeviceKind, Md, Partition, RawDisk};
use crate::host::{Extent, KernelName};

const MAGIC: &[u8; 8] = b"FAKEMD\0\0";
/// Where md has its superblock: this far into a member.
const SUPERBLOCK: u64 = 4096;
/// What md takes of each member.
const OVERHEAD: u64 = 1 << 20;

/// Makes, starts and stops arrays.
pub struct FakeArrays {
    inventory: Arc<Mutex<Inventory>>,
    power: Arc<Power>,
    known: Mutex<BTreeMap<Uuid, FakeArray>>,
    /// What the machine lacks for arrays.
    lacking: Mutex<Option<String>>,
    /// The array that gets the number of the next one that is to be stopped.
    next: Mutex<Option<Uuid>>,
}

/// An array that was made once.
struct FakeArray {
    platter: Arc<Platter>,
    /// Nodes of its members; `None`: it is stopped.
    running: Option<Vec<PathBuf>>,
    name: KernelName,
}

/// A partition that may be a member.
struct MemberPlace {
    platter: Arc<Platter>,
    disk: KernelName,
    number: u32,
    extent: Extent,
}

impl FakeArrays {
    pub(super) fn new(inventory: Arc<Mutex<Inventory>>, power: Arc<Power>) -> Self {
        Self { inventory, power, known: Mutex::default(), lacking: Mutex::default(), next: Mutex::default() }
    }

    /// No array can be made here any more, for this reason.
    pub fn set_lacking(&self, what: &str) {
        *locked(&self.lacking) = Some(what.to_owned());
    }

    /// The bytes of an array, whether it runs or not.
    pub fn platter(&self, uuid: Uuid) -> Option<Arc<Platter>> {
        locked(&self.known).get(&uuid).map(|array| Arc::clone(&array.platter))
    }

    /// The kernel name of an array that runs.
    pub fn running(&self, uuid: Uuid) -> Option<KernelName> {
        locked(&self.known).get(&uuid).filter(|array| array.running.is_some()).map(|array| array.name.clone())
    }

    /// What the kernel says of an array that lost a member while it ran.
    pub fn break_down(&self, uuid: Uuid) {
        let Some(name) = self.running(uuid) else { return };
        if let Some((RawDisk { kind: DeviceKind::Md(md), .. }, _)) = locked(&self.inventory).disks.get_mut(&name) {
            md.state = Some("broken".to_owned());
        }
    }

    /// Before the next array is stopped somebody else has ended it, and started this one, which has its number then.
    pub fn take_number_of_the_next_stop(&self, uuid: Uuid) {
        *locked(&self.next) = Some(uuid);
    }

    fn give_number_of(&self, name: &KernelName, uuid: Uuid) {
        for array in locked(&self.known).values_mut().filter(|array| array.name == *name) {
            array.running = None;
        }
        let mut inventory = locked(&self.inventory);
        let Some((_, platter)) = inventory.disks.remove(name) else { return };
        inventory.next_minor += 1;
        let array = FakeArray { platter: Arc::clone(&platter), running: None, name: name.clone() };
        let raw = raw_array(uuid, &array, &[], inventory.next_minor);
        inventory.disks.insert(name.clone(), (raw, platter));
    }

    /// No array runs any more.
    pub(super) fn forget_all(&self) {
        for array in locked(&self.known).values_mut() {
            array.running = None;
            locked(&self.inventory).disks.remove(&array.name);
        }
    }

    /// The partitions that are members of arrays that run, as the kernel lists them.
    pub(super) fn members(&self) -> Vec<RawDisk> {
        let known = locked(&self.known);
        let running = known.values().filter_map(|array| Some((&array.name, array.running.as_ref()?)));
        let of = |(name, nodes): (&KernelName, &Vec<PathBuf>)| -> Vec<RawDisk> {
            let member = |node: &PathBuf| self.place(node).ok().map(|place| place.raw(node, name));
            nodes.iter().filter_map(member).collect()
        };
        running.flat_map(of).collect()
    }

    fn place(&self, node: &Path) -> Result<MemberPlace, HostError> {
        let missing = || HostError::Unsupported { what: format!("{} is not there", node.display()) };
        let (platter, number) = locked(&self.inventory).resolve(node).ok_or_else(missing)?;
        let extent = platter.mapping(number).ok_or_else(missing)?;
        let disk = node.file_name().and_then(|name| name.to_str()?.rsplit_once('p')).ok_or_else(missing)?.0;
        Ok(MemberPlace { disk: disk.into(), platter, number, extent })
    }

    fn start(&self, uuid: Uuid, nodes: &[PathBuf], places: &[MemberPlace]) -> Result<(), HostError> {
        if let Some(place) = places.iter().find(|place| place.platter.is_in_use(place.number)) {
            return Err(HostError::Busy { object: place.disk.to_string() });
        }
        self.power.check().map_err(off)?;
        let mut known = locked(&self.known);
        let count = known.len();
        let size = places.iter().map(|place| place.extent.len() - OVERHEAD).sum();
        let array = known.entry(uuid).or_insert_with(|| {
            let name = format!("md{}", 127 - count);
            let geometry = Geometry { size, sector: 512, offloads_zeroes: true };
            let platter = Arc::new(Platter::new(&name, geometry, Arc::clone(&self.power)));
            FakeArray { platter, running: None, name: name.as_str().into() }
        });
        places.iter().for_each(|place| place.platter.set_in_use(place.number, true));
        array.running = Some(nodes.to_vec());
        array.platter.boot();
        let mut inventory = locked(&self.inventory);
        inventory.next_minor += 1;
        let raw = raw_array(uuid, array, nodes, inventory.next_minor);
        inventory.disks.insert(array.name.clone(), (raw, Arc::clone(&array.platter)));
        Ok(())
    }
}

impl MemberPlace {
    fn raw(&self, node: &Path, array: &KernelName) -> RawDisk {
        let name = node.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let kind = DeviceKind::Partition(Partition {
            disk: self.disk.clone(),
            number: self.number,
            start: self.extent.start,
            part_uuid: None,
            part_label: None,
        });
        RawDisk {
            size: self.extent.len(),
            logical_sector: 512,
            physical_sector: 512,
            holders: vec![array.clone()],
            ..RawDisk::named(name.into(), node.to_owned(), DevNo { major: 259, minor: self.number }, kind)
        }
    }

    fn mark(&self) -> Option<(Uuid, u32, u32)> {
        let mut bytes = [0; 32];
        self.platter.peek(self.extent.start + SUPERBLOCK, &mut bytes);
        let number = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        (&bytes[..8] == MAGIC).then(|| {
            let uuid = Uuid::from_slice(&bytes[8..24]).expect("sixteen bytes");
            (uuid, number(24), number(28))
        })
    }

    fn set_mark(&self, uuid: Uuid, place: u32, count: u32) {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..24].copy_from_slice(uuid.as_bytes());
        bytes[24..28].copy_from_slice(&place.to_le_bytes());
        bytes[28..].copy_from_slice(&count.to_le_bytes());
        self.platter.poke(self.extent.start + SUPERBLOCK, &bytes);
    }
}

impl Arrays for FakeArrays {
    fn supported(&self) -> Result<(), HostError> {
        match locked(&self.lacking).clone() {
            None => Ok(()),
            Some(what) => Err(HostError::Unsupported { what }),
        }
    }

    fn make(&self, array: &NewArray) -> Result<(), HostError> {
        let places: Vec<MemberPlace> = array.members.iter().map(|node| self.place(node)).collect::<Result<_, _>>()?;
        if places.iter().any(|place| place.platter.is_in_use(place.number)) {
            return Err(refused("cannot open a device: Device or resource busy"));
        }
        let count = u32::try_from(places.len()).expect("few");
        for (number, place) in (0..).zip(&places) {
            // As a real one is: on the disk when mdadm goes on.
            place.platter.spend_on("write").map_err(off)?;
            place.set_mark(array.uuid, number, count);
        }
        self.start(array.uuid, &array.members, &places)
    }

    fn assemble(&self, uuid: Uuid, members: &[PathBuf]) -> Result<(), HostError> {
        let places: Vec<MemberPlace> = members.iter().map(|node| self.place(node)).collect::<Result<_, _>>()?;
        let count = u32::try_from(places.len()).expect("few");
        let mut found: Vec<u32> = Vec::new();
        for place in &places {
            match place.mark() {
                Some((of, number, all)) if of == uuid && all == count => found.push(number),
                Some(_) => return Err(refused(&format!("{} has wrong uuid", place.disk))),
                None => return Err(refused(&format!("no superblock on {}", place.disk))),
            }
        }
        found.sort_unstable();
        if !found.iter().copied().eq(0..count) {
            return Err(refused("a member is there twice"));
        }
        self.start(uuid, members, &places)
    }

    fn stop(&self, scanned: &RawDisk) -> Result<(), HostError> {
        if let Some(uuid) = locked(&self.next).take() {
            self.give_number_of(&scanned.name, uuid);
        }
        let now = locked(&self.inventory).disks.get(&scanned.name).map(|(raw, _)| raw.clone());
        if !now.is_some_and(|now| now.incarnation() == scanned.incarnation() && uuid_of(&now) == uuid_of(scanned)) {
            let why = "another device has its name".to_owned();
            return Err(HostError::Changed { path: scanned.path.clone(), why });
        }
        let mut known = locked(&self.known);
        let is_it = |array: &&mut FakeArray| array.running.is_some() && array.name == scanned.name;
        let Some(array) = known.values_mut().find(is_it) else { return Ok(()) };
        if array.platter.is_in_use(0) {
            return Err(HostError::Busy { object: scanned.path.display().to_string() });
        }
        for node in array.running.take().unwrap_or_default() {
            if let Ok(place) = self.place(&node) {
                place.platter.set_in_use(place.number, false);
            }
        }
        locked(&self.inventory).disks.remove(&array.name);
        Ok(())
    }
}

fn uuid_of(raw: &RawDisk) -> Option<&String> {
    match &raw.kind {
        DeviceKind::Md(md) => md.uuid.as_ref(),
        _ => None,
    }
}

fn refused(why: &str) -> HostError {
    HostError::Command { program: "mdadm".to_owned(), status: "exit code 1".to_owned(), stderr: why.to_owned() }
}

fn off(source: std::io::Error) -> HostError {
    HostError::Io { what: "make or start", object: "an array".to_owned(), source }
}

fn raw_array(uuid: Uuid, array: &FakeArray, nodes: &[PathBuf], minor: u32) -> RawDisk {
    let name = |node: &PathBuf| node.file_name().and_then(|name| name.to_str()).unwrap_or_default().into();
    let kind = DeviceKind::Md(Md {
        uuid: Some(uuid.to_string()),
        level: Some("raid0".to_owned()),
        state: Some("clean".to_owned()),
    });
    let path = PathBuf::from(format!("/dev/{}", array.name));
    RawDisk {
        size: array.platter.geometry.size,
        logical_sector: array.platter.geometry.sector,
        physical_sector: array.platter.geometry.sector,
        slaves: nodes.iter().map(name).collect(),
        diskseq: Some(u64::from(minor)),
        ..RawDisk::named(array.name.clone(), path, DevNo { major: 9, minor }, kind)
    }
}
