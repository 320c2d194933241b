//! How a named filesystem is, in one word: the reasons of its conditions in `status.diskStatus`; and what such a problem may
//! hide.

use super::config_file::ConfigProblem;
use super::directory::DocumentError;
use super::named_filesystem::{FilesystemProblem, Whose};

/// One word; the agent writes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FilesystemReason {
    Mounted,
    NotLookedAt,
    /// It takes no new volumes, as it is not ready.
    NotReady,
    SchedulingDisabled,
    InPool,
    NotChosen,
    NotTaken,
    GivenUp,
    Released,
    EntryInvalid,
    NotAnswering,
    NotReadable,
    NotMounted,
    SystemFilesystem,
    LocalpoolFilesystem,
    FilesystemNotSupported,
    WrongDisk,
    ConfigMissing,
    ConfigUnusable,
    ConfigNotWritten,
    DuplicateUuid,
    DuplicateFilesystem,
    ReadOnly,
    NoQuota,
}

impl FilesystemReason {
    pub fn word(self) -> &'static str {
        match self {
            Self::Mounted => "Mounted",
            Self::NotLookedAt => "NotLookedAt",
            Self::NotReady => "NotReady",
            Self::SchedulingDisabled => "SchedulingDisabled",
            Self::InPool => "InPool",
            Self::NotChosen => "NotChosen",
            Self::NotTaken => "NotTaken",
            Self::GivenUp => "GivenUp",
            Self::Released => "Released",
            Self::EntryInvalid => "EntryInvalid",
            Self::NotAnswering => "NotAnswering",
            Self::NotReadable => "NotReadable",
            Self::NotMounted => "NotMounted",
            Self::SystemFilesystem => "SystemFilesystem",
            Self::LocalpoolFilesystem => "LocalpoolFilesystem",
            Self::FilesystemNotSupported => "FilesystemNotSupported",
            Self::WrongDisk => "WrongDisk",
            Self::ConfigMissing => "ConfigMissing",
            Self::ConfigUnusable => "ConfigUnusable",
            Self::ConfigNotWritten => "ConfigNotWritten",
            Self::DuplicateUuid => "DuplicateUUID",
            Self::DuplicateFilesystem => "DuplicateFilesystem",
            Self::ReadOnly => "ReadOnly",
            Self::NoQuota => "NoQuota",
        }
    }
}

impl From<&FilesystemProblem> for FilesystemReason {
    fn from(problem: &FilesystemProblem) -> Self {
        match problem {
            FilesystemProblem::Entry(_) => Self::EntryInvalid,
            FilesystemProblem::Silent(_) => Self::NotAnswering,
            FilesystemProblem::Failed(_) => Self::NotReadable,
            FilesystemProblem::NotMounted { .. } => Self::NotMounted,
            FilesystemProblem::Whose(Whose::System) => Self::SystemFilesystem,
            FilesystemProblem::Whose(Whose::Localpool) => Self::LocalpoolFilesystem,
            FilesystemProblem::Kind(_) => Self::FilesystemNotSupported,
            FilesystemProblem::WrongDisk { .. } => Self::WrongDisk,
            FilesystemProblem::ConfigMissing { .. } | FilesystemProblem::ConfigLost(_) => Self::ConfigMissing,
            FilesystemProblem::ConfigUnusable(_) => Self::ConfigUnusable,
            FilesystemProblem::ConfigNotWritten(_) => Self::ConfigNotWritten,
            FilesystemProblem::DuplicateUuid { .. } => Self::DuplicateUuid,
            FilesystemProblem::DuplicateFilesystem { .. } => Self::DuplicateFilesystem,
            FilesystemProblem::ReadOnly => Self::ReadOnly,
            FilesystemProblem::NoQuota(_) => Self::NoQuota,
        }
    }
}

impl FilesystemProblem {
    /// Whether volumes of this node may be on it, though nobody knows its diskUUID.
    pub fn may_hide_volumes(&self) -> bool {
        match self {
            Self::Silent(_) | Self::Failed(_) | Self::DuplicateUuid { .. } => true,
            Self::DuplicateFilesystem { existing, new: _ } => existing.is_empty(),
            Self::ConfigUnusable(unusable) => match &unusable.why {
                ConfigProblem::Unread(_) => true,
                ConfigProblem::Refused(why) => !matches!(why.as_ref(), DocumentError::OtherNode { .. }),
            },
            Self::Entry(_) | Self::NotMounted { .. } | Self::Whose(_) | Self::Kind(_) | Self::ConfigNotWritten(_) => {
                false
            }
            // Without a diskUUID it is new.
            Self::WrongDisk { .. }
            | Self::ConfigMissing { .. }
            | Self::ConfigLost(_)
            | Self::ReadOnly
            | Self::NoQuota(_) => false,
        }
    }
}
