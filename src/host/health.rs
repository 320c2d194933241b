//! What a disk reports of itself, and what the kernel counted while it was used.

use std::fmt;

/// What a disk says; `Failing` and `Unknown` with words for people. A temperature is no failure: it passes, and a disk
/// that was too hot keeps its data.
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
            Self::PredictsFailure(message) | Self::Other(message) => message,
        })
    }
}

/// A number that some disks are asked for apart from their verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskNumber {
    /// With the warning that it is beyond what the maker allows.
    Temperature,
    Wear,
    MediaErrors,
    PendingSectors,
    ReallocatedSectors,
}

/// What a disk reports of itself (SMART), as far as it reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskReport {
    pub health: Health,
    /// If `health` is not `Failing`, a temperature at most.
    pub warnings: Vec<DiskWarning>,
    /// It was asked for these, and has not answered: that they are not here says nothing. One that it does not have is
    /// not among them.
    pub unanswered: Vec<DiskNumber>,
    /// Data that it could not read or correct in all its life.
    pub media_errors: Option<u64>,
    /// Sectors that it cannot read now.
    pub pending_sectors: Option<u64>,
    /// Sectors that it has replaced by spare ones.
    pub reallocated_sectors: Option<u64>,
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
            unanswered: Vec::new(),
            media_errors: None,
            pending_sectors: None,
            reallocated_sectors: None,
            error_log_entries: None,
            spare_percent: None,
            spare_threshold_percent: None,
            used_percent: None,
            temperature_celsius: None,
        }
    }

    /// The same. What the disk has not answered this time is as in `last`, which is of the same device.
    pub fn after(mut self, last: &Self) -> Self {
        for number in &self.unanswered {
            match number {
                DiskNumber::Temperature => {
                    self.temperature_celsius = last.temperature_celsius;
                    let warned = last.warnings.iter().filter(|warning| **warning == DiskWarning::Temperature);
                    self.warnings.extend(warned.cloned());
                }
                DiskNumber::Wear => self.used_percent = last.used_percent,
                DiskNumber::MediaErrors => self.media_errors = last.media_errors,
                DiskNumber::PendingSectors => self.pending_sectors = last.pending_sectors,
                DiskNumber::ReallocatedSectors => self.reallocated_sectors = last.reallocated_sectors,
            }
        }
        // Neither has it ever answered those.
        self.unanswered.retain(|number| last.unanswered.contains(number));
        self
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
