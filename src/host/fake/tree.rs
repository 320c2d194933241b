//! A filesystem's folders and files in memory. They are on the platter: they outlive mounts, processes and power cuts.
//!
//! Each change is one durable effect, as the real one is synced when it returns: before a cut it is done, or not at
//! all. Only limits are gone after a cut.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use super::mounts::FakeQuota;
use super::{Platter, locked};
use crate::host::error::HostError;
use crate::host::filesystem_root::{Emptying, FilesystemRoot};
use crate::host::fs_usage::FsUsage;
use crate::host::project_quota::{ProjectId, ProjectQuota, ProjectUsage, QuotaState};

/// What is on a filesystem.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tree {
    nodes: BTreeMap<PathBuf, TreeNode>,
    /// In bytes, by project.
    limits: BTreeMap<ProjectId, u64>,
}

/// A file or a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
struct TreeNode {
    /// `None`: it is a folder.
    text: Option<String>,
    project: ProjectId,
}

/// An open root.
pub(super) struct FakeRoot {
    pub platter: Arc<Platter>,
    pub start: u64,
    pub size: u64,
    /// It was mounted with project quota.
    pub counts: bool,
    pub quota: Arc<Mutex<FakeQuota>>,
}

impl Tree {
    fn in_folder<'a>(&'a self, folder: &'a Path) -> impl Iterator<Item = &'a Path> {
        self.nodes.keys().map(PathBuf::as_path).filter(move |path| path.parent() == Some(folder))
    }

    fn has_folder(&self, path: &Path) -> bool {
        path.as_os_str().is_empty() || self.nodes.get(path).is_some_and(|node| node.text.is_none())
    }

    fn project(&self, path: &Path) -> ProjectId {
        self.nodes.get(path).map_or(ProjectId::NONE, |node| node.project)
    }

    /// The project that what is made at this path gets.
    fn inherited(&self, path: &Path) -> ProjectId {
        path.parent().map_or(ProjectId::NONE, |folder| self.project(folder))
    }

    /// Each byte of a text, and each file and folder.
    fn usage(&self, project: ProjectId) -> ProjectUsage {
        let of = || self.nodes.values().filter(|node| node.project == project);
        let bytes = of().filter_map(|node| node.text.as_ref()).map(|text| text.len() as u64).sum();
        let most_bytes = self.limits.get(&project).copied();
        ProjectUsage { bytes, inodes: of().count() as u64, most_bytes, ..ProjectUsage::default() }
    }

    /// Of all files.
    fn bytes(&self) -> u64 {
        self.nodes.values().filter_map(|node| node.text.as_ref()).map(|text| text.len() as u64).sum()
    }

    /// Whether a text of that length has room at a path, in the project that it is in or would be in.
    fn has_room(&self, path: &Path, length: u64) -> bool {
        let before = self.nodes.get(path);
        let project = before.map_or_else(|| self.inherited(path), |node| node.project);
        let had = before.and_then(|node| node.text.as_ref()).map_or(0, |text| text.len() as u64);
        let ProjectUsage { bytes, most_bytes, .. } = self.usage(project);
        length <= had || most_bytes.is_none_or(|most| bytes - had + length <= most)
    }

    /// They are not durable.
    pub(super) fn forget_limits(&mut self) {
        self.limits.clear();
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
            "limit" => "tree limit",
            "put in a project" => "tree project",
            _ => "tree remove",
        };
        let spent = self.platter.spend_on(fault);
        let mut trees = self.platter.trees();
        let tree = trees.entry(self.start).or_default();
        let done = spent.and_then(|()| change(tree).map_err(io::Error::from_raw_os_error));
        done.map_err(|source| Self::failed(what, path, source))
    }

    /// What the filesystem has of the project can be read.
    fn prove_sound(&self, what: &'static str, project: ProjectId) -> Result<(), HostError> {
        match *locked(&self.quota) == FakeQuota::Damaged(project) {
            true => Err(Self::failed(what, Path::new(""), io::Error::from_raw_os_error(nix::libc::EUCLEAN))),
            false => Ok(()),
        }
    }

    fn read<T>(&self, read: impl FnOnce(&Tree) -> T) -> Result<T, HostError> {
        self.platter.until_it_answers("tree");
        self.platter.check_power().map_err(|source| Self::failed("read", Path::new(""), source))?;
        Ok(read(self.platter.trees().entry(self.start).or_default()))
    }
}

impl FilesystemRoot for FakeRoot {
    fn names(&self, folder: &Path) -> Result<Vec<String>, HostError> {
        let name = |path: &Path| path.file_name().map(|name| name.to_string_lossy().into_owned());
        self.read(|tree| tree.in_folder(folder).filter_map(name).collect())
    }

    fn read(&self, file: &Path) -> Result<Option<String>, HostError> {
        if file.starts_with("records") && self.platter.fails("record read") {
            return Err(Self::failed("read", file, io::Error::from_raw_os_error(nix::libc::EIO)));
        }
        self.read(|tree| tree.nodes.get(file).and_then(|node| node.text.clone()))
    }

    fn write(&self, file: &Path, text: &str) -> Result<(), HostError> {
        if self.platter.fails("tree full") {
            return Err(Self::failed("write", file, io::Error::from_raw_os_error(nix::libc::ENOSPC)));
        }
        self.change("write", file, |tree| {
            if !tree.has_folder(file.parent().unwrap_or(Path::new(""))) {
                return Err(nix::libc::ENOENT);
            }
            if !tree.has_room(file, text.len() as u64) {
                return Err(nix::libc::ENOSPC);
            }
            let project = tree.nodes.get(file).map_or_else(|| tree.inherited(file), |node| node.project);
            tree.nodes.insert(file.to_owned(), TreeNode { text: Some(text.to_owned()), project });
            Ok(())
        })
    }

    fn remove_file(&self, file: &Path) -> Result<(), HostError> {
        self.change("remove", file, |tree| {
            tree.nodes.remove(file);
            Ok(())
        })
    }

    fn make_folder(&self, folder: &Path, _mode: u32) -> Result<(), HostError> {
        self.change("make", folder, |tree| {
            let made = TreeNode { text: None, project: tree.inherited(folder) };
            tree.nodes.entry(folder.to_owned()).or_insert(made);
            Ok(())
        })
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<(), HostError> {
        self.change("move", from, |tree| {
            if tree.nodes.contains_key(to) {
                return Err(nix::libc::EEXIST);
            }
            if !tree.nodes.contains_key(from) {
                return Err(nix::libc::ENOENT);
            }
            let moved = |path: &PathBuf| match path.strip_prefix(from) {
                Ok(inner) if inner.as_os_str().is_empty() => to.to_owned(),
                Ok(inner) => to.join(inner),
                Err(_) => path.clone(),
            };
            let inherits = tree.inherited(to);
            if inherits != ProjectId::NONE && inherits != tree.project(from) {
                return Err(nix::libc::EXDEV);
            }
            tree.nodes = std::mem::take(&mut tree.nodes).into_iter().map(|(path, node)| (moved(&path), node)).collect();
            Ok(())
        })
    }

    /// One entry with each call, so that a stop may come between any two.
    fn empty_some(&self, folder: &Path, _most: usize) -> Result<Emptying, HostError> {
        let last =
            self.read(|tree| tree.nodes.keys().rfind(|path| *path != folder && path.starts_with(folder)).cloned())?;
        let Some(last) = last else { return Ok(Emptying::Empty) };
        self.remove_file(&last)?;
        Ok(Emptying::Begun)
    }

    fn remove_empty(&self, folder: &Path) -> Result<(), HostError> {
        self.change("remove", folder, |tree| {
            if tree.in_folder(folder).next().is_some() {
                return Err(nix::libc::ENOTEMPTY);
            }
            tree.nodes.remove(folder);
            Ok(())
        })
    }

    fn usage(&self) -> Result<FsUsage, HostError> {
        let used = self.read(|tree| self.size / 100 + tree.bytes())?;
        Ok(FsUsage { total: self.size, used, available: self.size - used, ..FsUsage::default() })
    }
}

impl ProjectQuota for FakeRoot {
    fn quota_state(&self) -> Result<QuotaState, HostError> {
        self.read(|_| match (self.counts, *locked(&self.quota)) {
            (false, _) => QuotaState::NotCounted,
            (true, FakeQuota::SwitchedOff) => QuotaState::NotEnforced,
            (true, FakeQuota::AsMounted | FakeQuota::NotInKernel) => QuotaState::Enforced,
            (true, FakeQuota::Ignored | FakeQuota::Damaged(_)) => QuotaState::Enforced,
        })
    }

    fn project_usage(&self, project: ProjectId) -> Result<ProjectUsage, HostError> {
        self.prove_sound("read the quota of a project", project)?;
        self.read(|tree| tree.usage(project))
    }

    fn limit_project(&self, project: ProjectId, most_bytes: u64) -> Result<(), HostError> {
        self.prove_sound("limit", project)?;
        let quota = *locked(&self.quota);
        self.change("limit", Path::new(""), |tree| {
            if !self.counts {
                return Err(nix::libc::ENOSYS);
            }
            if [0, u32::MAX].contains(&project.number()) || most_bytes < 512 {
                return Err(nix::libc::EINVAL);
            }
            if quota != FakeQuota::Ignored {
                tree.limits.insert(project, most_bytes);
            }
            Ok(())
        })
    }

    fn project_of(&self, folder: &Path) -> Result<ProjectId, HostError> {
        let found = self.read(|tree| tree.has_folder(folder).then(|| tree.project(folder)))?;
        let no_folder = || io::Error::from_raw_os_error(nix::libc::ENOTDIR);
        found.ok_or_else(|| Self::failed("open", folder, no_folder()))
    }

    fn put_in_project(&self, folder: &Path, project: ProjectId) -> Result<(), HostError> {
        self.change("put in a project", folder, |tree| {
            let node = tree.nodes.get_mut(folder).ok_or(nix::libc::ENOENT)?;
            node.project = project;
            Ok(())
        })
    }
}
