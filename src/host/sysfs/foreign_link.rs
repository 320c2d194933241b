//! Disks that another provisioner offers: the Local Storage Operator by links in /mnt/local-storage, the static
//! provisioner by links or device nodes in its folders.
//!
//! Takes in /mnt and the scanned devices; marks `offered`. What is mounted below these folders is marked as mounted; a
//! folder that could be somebody's filesystem is not read.

use std::fs::{DirEntry, FileType, read_dir, read_link};
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileTypeExt;
use std::path::{Component, Path, PathBuf};

use crate::host::links::{DevTree, node_number};
use crate::host::raw::{ForeignLink, RawDisk};

/// The operator has a folder for each class there.
const OF_CLASSES: &str = "local-storage";
/// Where the static provisioner looks, as its documents and charts have it.
const PLAIN: [&str; 2] = ["disks", "fast-disks"];
/// How many links in a row are followed.
const HOPS: usize = 8;

pub(super) fn mark(mnt: &Path, tree: &DevTree, disks: &mut [RawDisk]) {
    let mut folders: Vec<PathBuf> = PLAIN.iter().map(|name| mnt.join(name)).collect();
    let of_classes = mnt.join(OF_CLASSES);
    match entries(&of_classes) {
        Ok(classes) => folders.extend(classes.iter().filter(|(_, kind)| kind.is_dir()).map(|(path, _)| path.clone())),
        Err(why) => mark_unknown(&of_classes, &why, disks),
    }
    for folder in &folders {
        match entries(folder) {
            Ok(found) => {
                for (path, kind) in found {
                    if let Some(index) = device(mnt, &path, kind, tree) {
                        disks[index].offered = ForeignLink::By(path);
                    }
                }
            }
            Err(why) => mark_unknown(folder, &why, disks),
        }
    }
}

/// Any device may be offered there: none is known not to be.
fn mark_unknown(folder: &Path, why: &io::Error, disks: &mut [RawDisk]) {
    let message = format!("it is not known whether a link in {} offers it: {why}", folder.display());
    for disk in disks.iter_mut().filter(|disk| disk.offered == ForeignLink::None) {
        disk.offered = ForeignLink::NotKnown(message.clone());
    }
}

/// The entries of a folder, sorted, without a look at what is mounted there; none if it is absent.
fn entries(folder: &Path) -> io::Result<Vec<(PathBuf, FileType)>> {
    let read = match read_dir(folder) {
        Ok(read) => read,
        Err(why) if matches!(why.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return Ok(Vec::new()),
        Err(why) => return Err(why),
    };
    let named = |entry: DirEntry| Ok((entry.path(), entry.file_type()?));
    let mut found = read.map(|entry| named(entry?)).collect::<io::Result<Vec<_>>>()?;
    found.sort_by(|(a, _), (b, _)| a.cmp(b));
    Ok(found)
}

/// The device that an entry leads to. A link that leads nowhere offers nothing.
fn device(mnt: &Path, path: &Path, kind: FileType, tree: &DevTree) -> Option<usize> {
    if kind.is_block_device() {
        return tree.by_number(node_number(path)?);
    }
    if !kind.is_symlink() {
        return None;
    }
    let mut at = path.to_owned();
    for _ in 0..HOPS {
        let target = absolute(at.parent()?, &read_link(&at).ok()?);
        if target.starts_with("/dev") {
            return tree.by_path(&target);
        }
        // Links are the host's, whose /mnt may be in sight under another name.
        at = match target.strip_prefix("/mnt") {
            Ok(below) => mnt.join(below),
            Err(_) => target,
        };
        if let Some(number) = node_number(&at) {
            return tree.by_number(number);
        }
    }
    None
}

/// Where the text of a link leads, without `..`.
fn absolute(folder: &Path, target: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in folder.join(target).components() {
        match part {
            Component::ParentDir => drop(plain.pop()),
            Component::CurDir => {}
            other => plain.push(other),
        }
    }
    plain
}
