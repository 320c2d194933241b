//! The projects of a filesystem, by the descriptor of its root.

use std::io;
use std::path::Path;

use super::DirectoryTree;
use crate::host::error::HostError;
use crate::host::ioctl;
use crate::host::project_quota::{ProjectId, ProjectQuota, ProjectUsage, QuotaState};

impl DirectoryTree {
    fn failed_at(&self, what: &'static str, path: &Path) -> impl Fn(io::Error) -> HostError + use<> {
        let object = self.object(path);
        move |source| HostError::Io { what, object: object.clone(), source }
    }
}

impl ProjectQuota for DirectoryTree {
    fn quota_state(&self) -> Result<QuotaState, HostError> {
        let failed = self.failed_at("ask for the project quota of", Path::new(""));
        let found = ioctl::quota_switches(&self.root).map_err(failed)?;
        Ok(match (found.is_counted, found.is_enforced) {
            (true, true) => QuotaState::Enforced,
            (true, false) => QuotaState::NotEnforced,
            (false, _) => QuotaState::NotCounted,
        })
    }

    fn project_usage(&self, project: ProjectId) -> Result<ProjectUsage, HostError> {
        let failed = self.failed_at("read the quota of a project of", Path::new(""));
        let found = ioctl::quota_numbers(&self.root, project.number()).map_err(failed)?;
        let limit = |most: u64| (most > 0).then_some(most);
        Ok(ProjectUsage {
            bytes: found.bytes,
            inodes: found.inodes,
            most_bytes: limit(found.most_bytes),
            most_inodes: limit(found.most_inodes),
            has_soft_limit: found.has_soft_limit,
        })
    }

    fn limit_project(&self, project: ProjectId, most_bytes: u64) -> Result<(), HostError> {
        let failed = self.failed_at("limit a project of", Path::new(""));
        ioctl::set_quota(&self.root, project.number(), most_bytes).map_err(failed)
    }

    fn project_of(&self, folder: &Path) -> Result<ProjectId, HostError> {
        let opened = self.folder(folder).map_err(self.fail("open", folder))?;
        let (number, inherits) = ioctl::project(&opened).map_err(self.failed_at("ask for the project of", folder))?;
        Ok(if inherits { ProjectId::new(number) } else { ProjectId::NONE })
    }

    fn put_in_project(&self, folder: &Path, project: ProjectId) -> Result<(), HostError> {
        let opened = self.folder(folder).map_err(self.fail("open", folder))?;
        let put = ioctl::set_project(&opened, project.number()).and_then(|()| Ok(nix::unistd::fsync(&opened)?));
        put.map_err(self.failed_at("set the project of", folder))
    }
}
