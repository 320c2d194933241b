//! Which device a path under /dev leads to.
//!
//! Takes in /dev/disk and /dev/mapper, and udev's database if those cannot be seen; gives every device its links, and
//! resolves the paths that mounts and swaps name.

use std::collections::{BTreeMap, HashMap};
use std::fs::{read_dir, read_link};
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Component, Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, open, openat2};
use nix::sys::stat::{Mode, SFlag, fstat};

use super::error::HostError;
use super::raw::{DevNo, DeviceKind, RawDisk};
use super::udev::UdevDatabase;

/// /dev, as far as it names block devices. Devices are positions in the slice that it was read with.
#[derive(Debug)]
pub struct DevTree {
    dev: PathBuf,
    by_name: HashMap<PathBuf, usize>,
    by_number: HashMap<DevNo, usize>,
    /// Relative to /dev.
    links: BTreeMap<PathBuf, usize>,
}

/// Nothing is done with what is opened but to look at it.
const PLAIN: OFlag = OFlag::O_PATH.union(OFlag::O_CLOEXEC);

/// How many links in a row are followed.
const HOPS: usize = 8;

impl DevTree {
    pub fn read(dev: &Path, disks: &[RawDisk]) -> Result<Self, HostError> {
        let numbered = disks.iter().enumerate().filter(|(_, disk)| disk.devno != DevNo { major: 0, minor: 0 });
        let mut tree = Self {
            dev: dev.to_owned(),
            by_name: disks.iter().enumerate().map(|(index, disk)| (PathBuf::from(disk.name.as_str()), index)).collect(),
            by_number: numbered.map(|(index, disk)| (disk.devno, index)).collect(),
            links: BTreeMap::new(),
        };
        for folder in names_in(&dev.join("disk"))? {
            tree.read_links(&Path::new("disk").join(folder))?;
        }
        tree.read_links(Path::new("mapper"))?;
        // Without udev, libdevmapper makes nodes of its own here, by the name of the mapping.
        for (index, disk) in disks.iter().enumerate() {
            if let DeviceKind::Dm(dm) = &disk.kind {
                let node = Path::new("mapper").join(&dm.name);
                if !dm.name.is_empty() && dev.join(&node).symlink_metadata().is_ok() {
                    tree.links.entry(node).or_insert(index);
                }
            }
        }
        Ok(tree)
    }

    fn read_links(&mut self, folder: &Path) -> Result<(), HostError> {
        for name in names_in(&self.dev.join(folder))? {
            let link = folder.join(name);
            if let Some(index) = self.follow(&link) {
                self.links.insert(link, index);
            }
        }
        Ok(())
    }

    /// Gives every device its links, sorted. udev's database counts only if /dev has no such link.
    pub fn name_links(&self, disks: &mut [RawDisk], udev: &UdevDatabase) {
        for (link, index) in &self.links {
            disks[*index].links.push(self.dev.join(link));
        }
        for (link, owner) in udev.owners() {
            let wanted = link.starts_with("disk") || link.starts_with("mapper");
            if let Some(index) = self.by_number.get(&owner)
                && wanted
                && !self.links.contains_key(link)
            {
                disks[*index].links.push(self.dev.join(link));
            }
        }
        for disk in disks {
            disk.links.sort();
        }
    }

    pub fn by_number(&self, devno: DevNo) -> Option<usize> {
        self.by_number.get(&devno).copied()
    }

    /// The device of a kernel name, or of a path relative to /dev that is one.
    pub fn by_name(&self, name: &Path) -> Option<usize> {
        self.by_name.get(name).copied()
    }

    /// The device that a path leads to, as some process wrote it: `/dev/sda1`, `/dev/mapper/root`, `/dev/vg/lv`,
    /// or a node elsewhere.
    pub fn by_path(&self, path: &Path) -> Option<usize> {
        let Ok(below) = path.strip_prefix("/dev").or_else(|_| path.strip_prefix(&self.dev)) else {
            return self.by_number(node_number(path)?);
        };
        let below = normal(below)?;
        self.by_name(&below)
            .or_else(|| self.links.get(&below).copied())
            .or_else(|| self.follow(&below))
            .or_else(|| self.by_number(node_number(&self.dev.join(&below))?))
    }

    fn follow(&self, link: &Path) -> Option<usize> {
        let mut link = link.to_owned();
        for _ in 0..HOPS {
            let target = read_link(self.dev.join(&link)).ok()?;
            let below = match target.strip_prefix("/dev") {
                Ok(below) => below.to_owned(),
                Err(_) if target.is_absolute() => return None,
                Err(_) => link.parent()?.join(&target),
            };
            link = normal(&below)?;
            if let Some(index) = self.by_name(&link) {
                return Some(index);
            }
        }
        None
    }
}

/// The number of a block device node.
pub fn node_number(node: &Path) -> Option<DevNo> {
    let found = std::fs::metadata(node).ok().filter(|found| found.file_type().is_block_device())?;
    Some(DevNo::of(found.rdev()))
}

/// The root of the host's processes; `None`: they are not in sight.
pub(super) fn host_root(proc: &Path) -> Option<OwnedFd> {
    open(&proc.join("1/root"), PLAIN | OFlag::O_DIRECTORY, Mode::empty()).ok()
}

/// What a path leads to below a root, with the links of that root.
pub(super) fn open_below(root: &OwnedFd, path: &Path) -> Result<OwnedFd, Errno> {
    openat2(root, path, OpenHow::new().flags(PLAIN).resolve(ResolveFlag::RESOLVE_IN_ROOT))
}

/// The block device that a path leads to on the host. If the host's processes are not in sight, as this
/// process sees the path.
pub fn device_on_host(path: &Path) -> Option<DevNo> {
    let Some(root) = host_root(Path::new("/proc")) else { return node_number(path) };
    let found = fstat(open_below(&root, path).ok()?).ok()?;
    let is_block = SFlag::from_bits_truncate(found.st_mode) & SFlag::S_IFMT == SFlag::S_IFBLK;
    is_block.then(|| DevNo::of(found.st_rdev))
}

/// Takes `..` out of a path; `None` if it climbs above its start.
fn normal(path: &Path) -> Option<PathBuf> {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::Normal(name) => plain.push(name),
            Component::ParentDir => {
                if !plain.pop() {
                    return None;
                }
            }
            Component::CurDir => {}
            Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(plain)
}

/// The entries of a folder; none if it is absent.
pub(super) fn names_in(folder: &Path) -> Result<Vec<PathBuf>, HostError> {
    let failed = |source| HostError::Io { what: "cannot list", object: folder.display().to_string(), source };
    let entries = match read_dir(folder) {
        Ok(entries) => entries,
        Err(why) if matches!(why.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return Ok(Vec::new()),
        Err(why) => return Err(failed(why)),
    };
    entries.map(|entry| Ok(PathBuf::from(entry.map_err(failed)?.file_name()))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_climb_above_dev_lead_nowhere() {
        assert_eq!(normal(Path::new("disk/by-id/../../sda")), Some("sda".into()));
        assert_eq!(normal(Path::new("disk/../../sda")), None);
        assert_eq!(normal(Path::new("/sda")), None);
    }
}
