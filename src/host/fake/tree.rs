//! A filesystem's folders and files in memory. They are on the platter: they outlive mounts, processes and power cuts.
//!
//! Each change is one durable effect, as the real one is synced when it returns: before a cut it is done, or not at all.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::Platter;
use crate::host::error::HostError;
use crate::host::filesystem_root::FilesystemRoot;
use crate::host::fs_usage::FsUsage;

/// Files with their texts, and folders; all by their path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tree(BTreeMap<PathBuf, Option<String>>);

/// An open root.
pub(super) struct FakeRoot {
    pub platter: Arc<Platter>,
    pub start: u64,
    pub size: u64,
}

impl Tree {
    fn in_folder<'a>(&'a self, folder: &'a Path) -> impl Iterator<Item = &'a Path> {
        self.0.keys().map(PathBuf::as_path).filter(move |path| path.parent() == Some(folder))
    }

    fn has_folder(&self, path: &Path) -> bool {
        path.as_os_str().is_empty() || self.0.get(path) == Some(&None)
    }

    fn remove_below(&mut self, path: &Path) {
        self.0.retain(|known, _| !known.starts_with(path));
    }
}

impl FakeRoot {
    fn failed(what: &'static str, path: &Path, source: io::Error) -> HostError {
        HostError::Io { what, object: path.display().to_string(), source }
    }

    /// Changes the tree, or leaves it as it is.
    fn change(
        &self,
        what: &'static str,
        path: &Path,
        change: impl FnOnce(&mut Tree) -> Result<(), i32>,
    ) -> Result<(), HostError> {
        let fault = match what {
            "write" => "tree write",
            "make" => "tree make",
            "move" => "tree move",
            _ => "tree remove",
        };
        let spent = self.platter.spend_on(fault);
        let mut trees = self.platter.trees();
        let tree = trees.entry(self.start).or_default();
        let done = spent.and_then(|()| change(tree).map_err(io::Error::from_raw_os_error));
        done.map_err(|source| Self::failed(what, path, source))
    }

    fn look<T>(&self, look: impl FnOnce(&Tree) -> T) -> Result<T, HostError> {
        self.platter.until_it_answers("tree");
        self.platter.check_power().map_err(|source| Self::failed("read", Path::new(""), source))?;
        Ok(look(self.platter.trees().entry(self.start).or_default()))
    }
}

impl FilesystemRoot for FakeRoot {
    fn names(&self, folder: &Path) -> Result<Vec<String>, HostError> {
        let name = |path: &Path| path.file_name().map(|name| name.to_string_lossy().into_owned());
        self.look(|tree| tree.in_folder(folder).filter_map(name).collect())
    }

    fn read(&self, file: &Path) -> Result<Option<String>, HostError> {
        self.look(|tree| tree.0.get(file).cloned().flatten())
    }

    fn write(&self, file: &Path, text: &str) -> Result<(), HostError> {
        self.change("write", file, |tree| {
            if !tree.has_folder(file.parent().unwrap_or(Path::new(""))) {
                return Err(nix::libc::ENOENT);
            }
            tree.0.insert(file.to_owned(), Some(text.to_owned()));
            Ok(())
        })
    }

    fn remove_file(&self, file: &Path) -> Result<(), HostError> {
        self.change("remove", file, |tree| {
            tree.0.remove(file);
            Ok(())
        })
    }

    fn make_folder(&self, folder: &Path, _mode: u32) -> Result<(), HostError> {
        self.change("make", folder, |tree| {
            tree.0.entry(folder.to_owned()).or_insert(None);
            Ok(())
        })
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<(), HostError> {
        self.change("move", from, |tree| {
            if tree.0.contains_key(to) {
                return Err(nix::libc::EEXIST);
            }
            if !tree.0.contains_key(from) {
                return Err(nix::libc::ENOENT);
            }
            let moved = |path: &PathBuf| match path.strip_prefix(from) {
                Ok(inner) if inner.as_os_str().is_empty() => to.to_owned(),
                Ok(inner) => to.join(inner),
                Err(_) => path.clone(),
            };
            tree.0 = std::mem::take(&mut tree.0).into_iter().map(|(path, node)| (moved(&path), node)).collect();
            Ok(())
        })
    }

    fn remove_some(&self, path: &Path, _aside: &Path, most: usize) -> Result<bool, HostError> {
        let mut is_gone = false;
        self.change("remove", path, |tree| {
            let below: Vec<PathBuf> = tree.0.keys().rev().filter(|known| known.starts_with(path)).cloned().collect();
            is_gone = below.len() <= most;
            below.iter().take(most).for_each(|known| tree.remove_below(known));
            Ok(())
        })?;
        Ok(is_gone)
    }

    fn usage(&self) -> Result<FsUsage, HostError> {
        let used = self.look(|_| self.size / 100)?;
        Ok(FsUsage { total: self.size, used, available: self.size - used, ..FsUsage::default() })
    }
}
