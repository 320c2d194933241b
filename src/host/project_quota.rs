//! Project quota: what keeps the files of a folder within a size, on a filesystem that other folders share.

use std::fmt;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::error::HostError;
use super::fs_usage::FsUsage;

/// What XFS counts the files of a folder under.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ProjectId(u32);

impl ProjectId {
    /// Of all files that are in no project.
    pub const NONE: Self = Self(0);

    pub const fn new(number: u32) -> Self {
        Self(number)
    }

    pub fn number(self) -> u32 {
        self.0
    }
}

impl fmt::Display for ProjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Whether the kernel may load a module to answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModuleLoading {
    Allowed,
    /// What is not loaded counts as not there.
    Forbidden,
}

/// What a mounted filesystem does with projects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuotaState {
    /// It counts their files, and keeps them within their limits.
    Enforced,
    /// It counts their files, and enforces no limit.
    NotEnforced,
    /// It does not count their files.
    NotCounted,
}

impl QuotaState {
    /// Why no limit holds, as it goes on after the filesystem; `None`: limits hold.
    pub fn why_off(self) -> Option<&'static str> {
        match self {
            Self::Enforced => None,
            Self::NotEnforced => Some("has its project quota switched off: it counts, and enforces no limit"),
            Self::NotCounted => Some("is mounted without project quota"),
        }
    }
}

/// What the files of a project use, and the most that they may use; `None`: no limit. Sizes in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProjectUsage {
    pub bytes: u64,
    pub inodes: u64,
    pub most_bytes: Option<u64>,
    pub most_inodes: Option<u64>,
    /// There is a soft limit of bytes or inodes, which becomes a hard one when it was exceeded for long enough.
    pub has_soft_limit: bool,
}

impl ProjectUsage {
    /// Nobody uses a byte or an inode of it.
    pub fn is_unused(&self) -> bool {
        self.bytes == 0 && self.inodes == 0
    }

    /// That many bytes are its hard limit, and it has no other.
    pub fn is_limited_to(&self, most_bytes: u64) -> bool {
        self.most_bytes == Some(most_bytes) && self.most_inodes.is_none() && !self.has_soft_limit
    }

    /// How full a volume of `size` bytes is, on a filesystem that is as full as `whole`.
    pub fn of_volume(&self, size: u64, whole: &FsUsage) -> FsUsage {
        let inodes = self.most_inodes.unwrap_or(whole.inodes);
        let left = inodes.saturating_sub(self.inodes);
        FsUsage {
            total: size,
            used: self.bytes,
            available: size.saturating_sub(self.bytes).min(whole.available),
            inodes,
            inodes_used: self.inodes,
            inodes_free: left.min(whole.inodes_free),
        }
    }
}

/// The projects of a filesystem, by its open root.
pub trait ProjectQuota {
    fn quota_state(&self) -> Result<QuotaState, HostError>;

    /// One that was never used has nothing.
    fn project_usage(&self, project: ProjectId) -> Result<ProjectUsage, HostError>;

    /// Sets the most bytes of a project, whatever it uses by now: one that has more cannot grow. It has no other limit
    /// then. Unlike all else that changes below a root this is not durable when the call returns: after a power cut the
    /// project may have the limit of before, or none. Less than 512 bytes and [`ProjectId::NONE`] are an error.
    fn limit_project(&self, project: ProjectId, most_bytes: u64) -> Result<(), HostError>;

    /// The project that a folder is of, with what is made in it. [`ProjectId::NONE`]: what is made in it has none.
    fn project_of(&self, folder: &Path) -> Result<ProjectId, HostError>;

    /// Makes a folder one of that project, with what is made in it from then on.
    fn put_in_project(&self, folder: &Path, project: ProjectId) -> Result<(), HostError>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_has_what_its_limit_allows_but_no_more_than_its_filesystem_has() {
        let whole = FsUsage { total: 1000, available: 300, used: 700, inodes: 50, inodes_free: 20, inodes_used: 30 };
        let used = ProjectUsage { bytes: 60, inodes: 3, most_bytes: Some(100), ..ProjectUsage::default() };
        let usage = used.of_volume(100, &whole);
        assert_eq!((usage.total, usage.used, usage.available), (100, 60, 40));
        assert_eq!((usage.inodes, usage.inodes_used, usage.inodes_free), (50, 3, 20));
        let limited = ProjectUsage { most_inodes: Some(5), ..used };
        assert_eq!((limited.of_volume(100, &whole).inodes, limited.of_volume(100, &whole).inodes_free), (5, 2));
        let full = FsUsage { available: 7, ..whole };
        assert_eq!(used.of_volume(100, &full).available, 7, "the filesystem has no more");
        // Its limit was set below what it had by then.
        assert_eq!(used.of_volume(50, &whole).available, 0);
    }

    #[test]
    fn a_project_with_any_limit_beside_that_of_its_bytes_is_not_limited_as_it_should_be() {
        let limited = ProjectUsage { most_bytes: Some(100), ..ProjectUsage::default() };
        assert!(limited.is_limited_to(100) && !limited.is_limited_to(99));
        assert!(!ProjectUsage { most_inodes: Some(5), ..limited }.is_limited_to(100));
        assert!(!ProjectUsage { has_soft_limit: true, ..limited }.is_limited_to(100));
        assert!(!ProjectUsage::default().is_limited_to(0));
    }

    #[test]
    fn only_a_filesystem_that_counts_and_enforces_keeps_limits() {
        assert_eq!(QuotaState::Enforced.why_off(), None);
        assert!(QuotaState::NotCounted.why_off().is_some_and(|why| why.contains("without project quota")));
        assert!(QuotaState::NotEnforced.why_off().is_some_and(|why| why.contains("switched off")));
    }
}
