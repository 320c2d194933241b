//! What a disk reports of itself, and what the kernel counted while it was used.

use std::fmt;

/// What a disk says; `Failing` and `Unknown` with words for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    Passed,
    Failing(String),
    Unknown(String),
}

/// One thing that a disk warns of; texts are words for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DiskWarning {
    SpareLow,
    Temperature,
    Unreliable,
    ReadOnly,
    BackupFailed,
    PersistentMemory,
    PredictsFailure(String),
    Other(String),
}

impl fmt::Display for DiskWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::SpareLow => "spare space is low",
            Self::Temperature => "it is too hot or too cold",
            Self::Unreliable => "its reliability is degraded by media errors",
            Self::ReadOnly => "it has become read-only",
            Self::BackupFailed => "the backup of its volatile memory failed",
            Self::PersistentMemory => "its persistent memory is read-only or unreliable",
            Self::PredictsFailure(words) | Self::Other(words) => words,
        })
    }
}

/// What a disk reports of itself (SMART), as far as it reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskReport {
    pub health: Health,
    /// Empty unless `health` is `Failing`.
    pub warnings: Vec<DiskWarning>,
    pub media_errors: Option<u64>,
    /// Entries that NVMe's log of errors has had. Many disks count commands that they do not know, too.
    pub error_log_entries: Option<u64>,
    pub spare_percent: Option<u8>,
    /// `spare_percent` below it is a warning of the disk's own.
    pub spare_threshold_percent: Option<u8>,
    /// May be above 100: a disk can outlive what its maker expects. 255 stands for all above 254.
    pub used_percent: Option<u8>,
    pub temperature_celsius: Option<i16>,
}

impl DiskReport {
    /// A report of nothing else.
    pub fn of(health: Health) -> Self {
        Self {
            health,
            warnings: Vec::new(),
            media_errors: None,
            error_log_entries: None,
            spare_percent: None,
            spare_threshold_percent: None,
            used_percent: None,
            temperature_celsius: None,
        }
    }
}

/// Commands to a disk that failed, as the kernel has counted them since it found the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IoErrors {
    pub errors: u64,
    pub timeouts: u64,
}

/// WriteCounts to a device, as the kernel counts them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteCounts {
    /// They have begun and not ended.
    pub under_way: u64,
    /// Those that have ended since it found the device; for a mapped one before Linux 6.3, those that have begun.
    pub counted: u64,
}
