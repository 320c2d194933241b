//! Every block device of a Linux machine, from its /sys, /proc, /dev and /run. Opens no device.
//!
//! Takes in the four roots, so that a machine may be a folder; gives out [`RawDisk`]s. A device that
//! goes away meanwhile is left out; one that cannot be read says so in `unreadable`.

mod identity;
mod kind;
mod node;

use std::io::{Error, ErrorKind};
use std::path::{Path, PathBuf};

use identity::{Identity, NumaNodes};
use node::{Node, Notes, kernel_name, printable};

use super::links::DevTree;
use super::raw::{DevNo, Kind, Partition};
use super::udev::UdevDatabase;
use super::{HostError, RawDisk, in_use};

/// Where a machine's filesystems are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Roots {
    pub sys: PathBuf,
    pub proc: PathBuf,
    pub dev: PathBuf,
    pub run: PathBuf,
}

impl Default for Roots {
    fn default() -> Self {
        Self { sys: "/sys".into(), proc: "/proc".into(), dev: "/dev".into(), run: "/run".into() }
    }
}

impl Roots {
    /// A machine that is kept in a folder.
    pub fn under(folder: &Path) -> Self {
        let [sys, proc, dev, run] = ["sys", "proc", "dev", "run"].map(|name| folder.join(name));
        Self { sys, proc, dev, run }
    }
}

/// sysfs counts in these, whatever the disk's own sector is.
const SECTOR: u64 = 512;

/// All block devices: each disk, then its partitions by number.
pub fn scan(roots: &Roots) -> Result<Vec<RawDisk>, HostError> {
    let folder = roots.sys.join("block");
    let failed = |source| HostError::Io {
        what: "cannot list the block devices in",
        object: folder.display().to_string(),
        source,
    };
    let block = Node::open(&folder).map_err(failed)?;
    let mut entries = block.entries(".").map_err(failed)?;
    entries.sort_by_cached_key(|entry| natural(entry));

    let mut reader = Reader { block, dev: &roots.dev, numa: NumaNodes::default() };
    let mut disks: Vec<RawDisk> = entries.iter().flat_map(|entry| reader.disk(entry)).collect();
    let udev = UdevDatabase::read(&roots.run, &mut disks);
    let tree = DevTree::read(&roots.dev, &disks);
    tree.name_links(&mut disks, &udev);
    in_use::mark(roots, &tree, &mut disks)?;
    Ok(disks)
}

struct Reader<'a> {
    block: Node,
    dev: &'a Path,
    numa: NumaNodes,
}

impl Reader<'_> {
    /// A disk and its partitions; nothing where it has gone or has no node to open it by.
    fn disk(&mut self, entry: &str) -> Vec<RawDisk> {
        let mut notes = Notes::default();
        let node = match self.block.child(entry) {
            Ok(node) => node,
            Err(why) if gone(&why) => return Vec::new(),
            Err(why) => {
                notes.add("its directory in sysfs", &why);
                return vec![RawDisk { unreadable: notes.into_words(), ..blank(entry, self.dev) }];
            }
        };
        let Some((mut disk, entries)) = self.facts(entry, &node, &mut notes) else { return Vec::new() };
        if !notes.is_empty() && self.block.link(entry).is_err_and(|why| gone(&why)) {
            return Vec::new();
        }
        let inherited = notes.into_words();
        let mut partitions: Vec<RawDisk> = entries
            .iter()
            .filter(|name| name.starts_with(entry))
            .filter_map(|name| self.partition(&node, name, &disk, inherited.as_deref()))
            .collect();
        partitions.sort_by_key(|partition| match &partition.kind {
            Kind::Partition(partition) => partition.number,
            _ => 0,
        });
        disk.unreadable = inherited;
        disk.partitions = partitions.iter().map(|partition| partition.name.clone()).collect();
        partitions.insert(0, disk);
        partitions
    }

    /// The disk itself, and the names in its directory. `None` for the hidden path of an NVMe multipath
    /// head: it has no device node, and the head is the disk.
    fn facts(&mut self, entry: &str, node: &Node, notes: &mut Notes) -> Option<(RawDisk, Vec<String>)> {
        let entries = node.entries(".").unwrap_or_else(|why| {
            notes.add("its directory in sysfs", &why);
            Vec::new()
        });
        let has = |name: &str| entries.iter().any(|entry| entry == name);
        let uevent = Uevent::read(node);
        if uevent.devno.is_none() && node.positive("hidden") {
            return None;
        }
        let place = self.block.link(entry).unwrap_or_default();
        let kind = kind::kind(node, entry, has, notes);
        let Identity { vendor, model, serial, wwid, transport, state } = identity::identity(node, entry, &place, has);
        let state = match &kind {
            Kind::Dm(dm) => Some(if dm.suspended { "suspended".into() } else { "running".into() }),
            _ => state,
        };
        let logical_sector = notes.number(node, "queue/logical_block_size").unwrap_or(0);
        let disk = RawDisk {
            devno: devno(node, &uevent, notes),
            kind,
            size: bytes(notes, node, "size"),
            logical_sector,
            physical_sector: number(node, "queue/physical_block_size").unwrap_or(logical_sector),
            read_only: notes.flag(node, "ro"),
            removable: notes.flag(node, "removable"),
            rotational: node.positive("queue/rotational"),
            vendor,
            model,
            serial,
            wwid,
            transport,
            state,
            holders: holders(node, || has("bcache"), notes),
            slaves: notes.devices(node, "slaves"),
            offloads_zeroes: node.positive("queue/write_zeroes_max_bytes"),
            discards: node.positive("queue/discard_max_bytes"),
            zoned: zoned(node, notes),
            numa_node: self.numa.of(&self.block, &place),
            diskseq: uevent.diskseq.or_else(|| number(node, "diskseq")),
            ..blank(entry, self.dev)
        };
        Some((disk, entries))
    }

    /// `None` where the name in the disk's directory is no partition, or has gone.
    fn partition(&self, parent: &Node, entry: &str, disk: &RawDisk, inherited: Option<&str>) -> Option<RawDisk> {
        let node = parent.child(entry).ok()?;
        let uevent = Uevent::read(&node);
        let number = uevent.partition.or_else(|| number(&node, "partition"))?;
        let mut notes = Notes::default();
        let kind = Kind::Partition(Partition {
            disk: disk.name.clone(),
            number,
            start: bytes(&mut notes, &node, "start"),
            part_uuid: uevent.part_uuid.as_deref().and_then(gpt_uuid),
            part_label: uevent.part_label.clone(),
        });
        let partition = RawDisk {
            devno: devno(&node, &uevent, &mut notes),
            kind,
            size: bytes(&mut notes, &node, "size"),
            read_only: notes.flag(&node, "ro") || disk.read_only,
            holders: holders(&node, || node.child("bcache").is_ok(), &mut notes),
            slaves: Vec::new(),
            vendor: None,
            model: None,
            serial: None,
            wwid: None,
            name: kernel_name(entry),
            path: self.dev.join(kernel_name(entry)),
            ..disk.clone()
        };
        if !notes.is_empty() && parent.child(entry).is_err_and(|why| gone(&why)) {
            return None;
        }
        if let Some(words) = inherited {
            notes.say(format!("its disk {}: {words}", disk.name));
        }
        Some(RawDisk { unreadable: notes.into_words(), ..partition })
    }
}

/// A device of which nothing but the name is known.
fn blank(entry: &str, dev: &Path) -> RawDisk {
    let name = kernel_name(entry);
    RawDisk {
        path: dev.join(&name),
        name,
        devno: DevNo { major: 0, minor: 0 },
        kind: Kind::Other("unreadable".into()),
        size: 0,
        logical_sector: 0,
        physical_sector: 0,
        read_only: false,
        removable: false,
        rotational: false,
        vendor: None,
        model: None,
        serial: None,
        wwid: None,
        transport: None,
        state: None,
        links: Vec::new(),
        holders: Vec::new(),
        slaves: Vec::new(),
        partitions: Vec::new(),
        mounts: Vec::new(),
        swap: false,
        offloads_zeroes: false,
        discards: false,
        zoned: None,
        numa_node: None,
        diskseq: None,
        unreadable: None,
    }
}

/// What the `uevent` file says in one read; old kernels say less, and have a file for each instead.
#[derive(Default)]
struct Uevent {
    devno: Option<DevNo>,
    partition: Option<u32>,
    diskseq: Option<u64>,
    part_label: Option<String>,
    part_uuid: Option<String>,
}

impl Uevent {
    fn read(node: &Node) -> Self {
        let bytes = node.bytes("uevent").unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        let mut uevent = Self::default();
        let (mut major, mut minor) = (None, None);
        for (key, value) in text.lines().filter_map(|line| line.split_once('=')) {
            match key {
                "MAJOR" => major = value.parse().ok(),
                "MINOR" => minor = value.parse().ok(),
                "PARTN" => uevent.partition = value.parse().ok(),
                "DISKSEQ" => uevent.diskseq = value.parse().ok(),
                "PARTNAME" => uevent.part_label = printable(value.as_bytes()),
                "PARTUUID" => uevent.part_uuid = Some(value.to_owned()),
                _ => {}
            }
        }
        uevent.devno = major.zip(minor).map(|(major, minor)| DevNo { major, minor });
        uevent
    }
}

/// A GPT partition's GUID; the made-up ones of DOS tables contain the partition number and name nothing.
pub(crate) fn gpt_uuid(text: &str) -> Option<String> {
    let uuid = uuid::Uuid::try_parse(text).ok().filter(|_| text.len() == 36)?;
    Some(uuid.hyphenated().to_string())
}

fn devno(node: &Node, uevent: &Uevent, notes: &mut Notes) -> DevNo {
    let unknown = DevNo { major: 0, minor: 0 };
    uevent.devno.unwrap_or_else(|| {
        let text = notes.word(node, "dev");
        let number = text.split_once(':').and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)));
        if number.is_none() {
            notes.say(format!("dev is `{text}`, not a device number"));
        }
        number.map_or(unknown, |(major, minor)| DevNo { major, minor })
    })
}

fn bytes(notes: &mut Notes, node: &Node, attribute: &str) -> u64 {
    let sectors: u64 = notes.number(node, attribute).unwrap_or(0);
    sectors.checked_mul(SECTOR).unwrap_or_else(|| {
        notes.say(format!("{attribute} is {sectors} sectors, which no disk has"));
        0
    })
}

fn number<T: std::str::FromStr>(node: &Node, attribute: &str) -> Option<T> {
    node.text(attribute)?.parse().ok()
}

/// bcache shows the holder of a backing device only; its cache devices are held all the same.
fn holders(node: &Node, bcache: impl Fn() -> bool, notes: &mut Notes) -> Vec<String> {
    let mut holders = notes.devices(node, "holders");
    if holders.is_empty() && bcache() {
        let set = node.entries("bcache/set").unwrap_or_default();
        let backed = |name: &String| node.link(&format!("bcache/set/{name}/dev")).ok();
        holders.extend(set.iter().filter_map(backed).filter_map(|dev| Some(kernel_name(dev.file_name()?.to_str()?))));
        holders.sort();
        if holders.is_empty() {
            holders.push("bcache".into());
        }
    }
    holders
}

fn zoned(node: &Node, notes: &mut Notes) -> Option<String> {
    match node.bytes("queue/zoned") {
        Ok(text) => printable(&text).filter(|model| model != "none"),
        Err(why) if why.kind() == ErrorKind::NotFound => None,
        Err(why) => {
            notes.add("queue/zoned", &why);
            None
        }
    }
}

/// The device went away between two looks.
fn gone(why: &Error) -> bool {
    matches!(why.raw_os_error(), Some(code) if [nix::libc::ENOENT, nix::libc::ENODEV, nix::libc::ENXIO].contains(&code))
}

/// Orders `sda` before `sdaa` and `loop2` before `loop10`.
fn natural(entry: &str) -> Vec<(bool, u64, usize, String)> {
    let digit = |c: char| c.is_ascii_digit();
    let mut parts = Vec::new();
    let mut rest = entry;
    while let Some(first) = rest.chars().next() {
        let end = rest.find(|c: char| digit(c) != digit(first)).unwrap_or(rest.len());
        let (part, tail) = rest.split_at(end);
        parts.push((digit(first), part.parse().unwrap_or(0), part.len(), part.to_owned()));
        rest = tail;
    }
    parts
}
