//! A folder of a filesystem as if it were the root of one: no name that is given to it leads out of the folder.

use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use crate::host::{Emptying, FilesystemRoot, FsUsage, HostError, ProjectId, ProjectQuota, ProjectUsage, QuotaState};

/// Its path stays relative to the open root, which follows no link: so it is looked up in the filesystem that was proven.
pub struct Below {
    root: Arc<dyn FilesystemRoot>,
    folder: PathBuf,
}

impl Below {
    pub fn new(root: Arc<dyn FilesystemRoot>, folder: &str) -> Self {
        Self { root, folder: folder.into() }
    }

    fn at(&self, path: &Path) -> Result<PathBuf, HostError> {
        if !path.components().all(|part| matches!(part, Component::Normal(_))) {
            return Err(HostError::Unsupported { what: format!("{} is no path below a folder", path.display()) });
        }
        // Without a slash at its end.
        Ok(if path.as_os_str().is_empty() { self.folder.clone() } else { self.folder.join(path) })
    }
}

impl FilesystemRoot for Below {
    fn names(&self, folder: &Path) -> Result<Vec<String>, HostError> {
        self.root.names(&self.at(folder)?)
    }

    fn read(&self, file: &Path) -> Result<Option<String>, HostError> {
        self.root.read(&self.at(file)?)
    }

    fn write(&self, file: &Path, text: &str) -> Result<(), HostError> {
        self.root.write(&self.at(file)?, text)
    }

    fn remove_file(&self, file: &Path) -> Result<(), HostError> {
        self.root.remove_file(&self.at(file)?)
    }

    fn make_folder(&self, folder: &Path, mode: u32) -> Result<(), HostError> {
        self.root.make_folder(&self.at(folder)?, mode)
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<(), HostError> {
        self.root.rename(&self.at(from)?, &self.at(to)?)
    }

    fn empty_some(&self, folder: &Path, most: usize) -> Result<Emptying, HostError> {
        self.root.empty_some(&self.at(folder)?, most)
    }

    fn remove_empty(&self, folder: &Path) -> Result<(), HostError> {
        self.root.remove_empty(&self.at(folder)?)
    }

    fn usage(&self) -> Result<FsUsage, HostError> {
        self.root.usage()
    }
}

impl ProjectQuota for Below {
    fn quota_state(&self) -> Result<QuotaState, HostError> {
        self.root.quota_state()
    }

    fn project_usage(&self, project: ProjectId) -> Result<ProjectUsage, HostError> {
        self.root.project_usage(project)
    }

    fn limit_project(&self, project: ProjectId, most_bytes: u64) -> Result<(), HostError> {
        self.root.limit_project(project, most_bytes)
    }

    fn project_of(&self, folder: &Path) -> Result<ProjectId, HostError> {
        self.root.project_of(&self.at(folder)?)
    }

    fn put_in_project(&self, folder: &Path, project: ProjectId) -> Result<(), HostError> {
        self.root.put_in_project(&self.at(folder)?, project)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::fake::FakeHost;
    use crate::host::{FsKind, Geometry, Host as _, Mounts as _};

    #[test]
    fn no_name_leads_out_of_the_folder() {
        let host = FakeHost::default();
        host.add_disk("fake0", "S", Geometry { size: 64 << 20, sector: 512, offloads_zeroes: true });
        let (node, at) = (Path::new("/dev/fake0"), Path::new("/mnt/a"));
        host.filesystems().make(FsKind::Xfs, node, uuid::Uuid::nil()).expect("made");
        host.mounts.mount(node, at, FsKind::Xfs, &[]).expect("mounted");
        let root = host.mounts.open_root(at, node).expect("opened");
        root.write(Path::new("photos"), "of somebody").expect("written");
        root.make_folder(Path::new("own"), 0o700).expect("made");
        let below = Below::new(Arc::clone(&root), "own");
        below.write(Path::new("file"), "ours").expect("written");
        assert_eq!(root.read(Path::new("own/file")).expect("read").as_deref(), Some("ours"));
        assert_eq!(below.names(Path::new("")).expect("read"), ["file"]);
        for out in ["../photos", "/photos", "a/../../photos"] {
            let out = Path::new(out);
            assert!(below.read(out).is_err() && below.write(out, "").is_err() && below.remove_file(out).is_err());
            assert!(below.rename(out, Path::new("x")).is_err() && below.rename(Path::new("file"), out).is_err());
            assert!(below.empty_some(out, 9).is_err() && below.remove_empty(out).is_err() && below.names(out).is_err());
        }
        assert_eq!(root.read(Path::new("photos")).expect("read").as_deref(), Some("of somebody"));
    }
}
