//! Measures what a disk of the pool can do, by a file in the filesystem of a volume on it whose pod waits for that.
//!
//! Takes in a disk and the volumes that wait; gives out figures, or why there are none now. A disk that anybody else uses
//! is not measured.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::checkup::mounted::by_disk;
use crate::device::label::VolumeUsage;
use crate::device::{DiskId, VolumeId};
use crate::health::Board;
use crate::host::{BenchmarkBounds, DiskFigures, Host, HostError, MachineModel, Mount};
use crate::pool::{Pool, Standing, VolumeView};

/// How long the steps of a benchmark take.
#[derive(Clone, Copy, Debug)]
pub struct BenchmarkPace {
    /// For how long a disk is watched before it counts as idle.
    pub watch: Duration,
    /// How soon to look again at one that is not.
    pub again: Duration,
    /// How long a pod waits for it to be idle.
    pub timeout: Duration,
}

impl Default for BenchmarkPace {
    fn default() -> Self {
        let [watch, again, timeout] = [10, 15, 600].map(Duration::from_secs);
        Self { watch, again, timeout }
    }
}

/// Why a disk was not measured.
#[derive(Debug, thiserror::Error)]
pub enum BenchmarkError {
    #[error("no volume on it whose pod waits is mounted")]
    NotMounted,
    #[error("it is not idle: {0}")]
    InUse(DiskUse),
    #[error("it cannot be used now")]
    Away(#[source] DiskAway),
    #[error(transparent)]
    Failed(HostError),
}

/// Who else uses a disk, or may use it.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum DiskUse {
    #[error("{0} is a raw block volume, which may be in use")]
    Block(VolumeId),
    #[error("what was deleted on it is being erased")]
    Erasing,
    #[error("volume {0} cannot be looked at, so it may be in use")]
    Unknown(VolumeId),
    #[error("volume {0} is mounted, whose pod does not wait")]
    Mounted(VolumeId),
    #[error("volume {0} has no mount that can be written")]
    NotWritable(VolumeId),
    #[error("the kernel does not say how busy it is")]
    NotSaid,
    /// Always in the same words: else each look would be news.
    #[error("it is busy with something else")]
    Busy,
    #[error("it is another device than before")]
    Exchanged,
}

/// Why a disk cannot be measured now.
#[derive(Debug, thiserror::Error)]
pub enum DiskAway {
    #[error("it is not there")]
    NotThere,
    #[error("{0}")]
    Unusable(String),
    #[error("it does not answer within {0} s")]
    NotAnswering(u64),
    #[error("the API server does not take that it begins")]
    NotTaken,
    #[error("the controller does not ask for it any more")]
    NotAsked,
    #[error("a command in a pod measures a disk of this node")]
    CommandRuns,
    #[error(transparent)]
    Host(HostError),
}

/// What no later try changes has failed. Anything else is over some time, or not.
impl From<HostError> for BenchmarkError {
    fn from(error: HostError) -> Self {
        match error {
            HostError::Unsupported { .. } | HostError::Command { .. } => Self::Failed(error),
            HostError::Io { .. }
            | HostError::Changed { .. }
            | HostError::Busy { .. }
            | HostError::Timeout { .. }
            | HostError::Kept { .. } => Self::Away(DiskAway::Host(error)),
        }
    }
}

/// The part of an agent that measures its disks.
#[derive(Clone)]
pub struct DiskBenchmarker {
    host: Arc<dyn Host>,
    pool: Arc<Pool>,
    /// Where volumes are mounted for kubelet.
    board: Board,
    pub pace: BenchmarkPace,
}

impl DiskBenchmarker {
    pub fn new(host: Arc<dyn Host>, pool: Arc<Pool>, board: Board) -> Self {
        Self { host, pool, board, pace: BenchmarkPace::default() }
    }

    /// Waits for other times.
    #[cfg(any(test, feature = "testing"))]
    pub fn with_pace(self, pace: BenchmarkPace) -> Self {
        Self { pace, ..self }
    }

    /// What the firmware says of the machine.
    pub fn machine(&self) -> MachineModel {
        self.host.model()
    }

    /// For how long the disk was busy until now. `None`: nobody knows. Blocks.
    pub fn busy_time(&self, disk: &DiskId) -> Option<Duration> {
        self.host.busy_time(&self.pool.member(disk)?.usable_raw()?)
    }

    /// Where it can be measured: in a filesystem of one of these volumes, if nobody uses any other volume of the disk.
    /// Blocks.
    pub fn place(&self, disk: &DiskId, waiting: &BTreeSet<VolumeId>) -> Result<Mount, BenchmarkError> {
        let member = self.pool.member(disk).ok_or(BenchmarkError::Away(DiskAway::NotThere))?;
        if let Some(why) = member.why_unusable() {
            return Err(BenchmarkError::Away(DiskAway::Unusable(why)));
        }
        let views = member.views();
        // Where the device of one is bound, no table says for sure.
        if let Some(block) = views.iter().find(|view| is_block(view)) {
            return Err(BenchmarkError::InUse(DiskUse::Block(block.id)));
        }
        if member.is_erasing() {
            return Err(BenchmarkError::InUse(DiskUse::Erasing));
        }
        let others = || views.iter().filter(|view| !waiting.contains(&view.id));
        if let Some(unknown) = others().find(|view| view.standing != Standing::Ready || view.record.is_none()) {
            return Err(BenchmarkError::InUse(DiskUse::Unknown(unknown.id)));
        }
        let (expected, table) = (self.board.expected(), self.host.mounts().table()?);
        let placed = by_disk(self.host.as_ref(), &views, &table, &expected).remove(disk).unwrap_or_default();
        let is_mounted = |id: &VolumeId| {
            let is_seen = placed.iter().any(|volume| volume.id == *id && !volume.places.targets.is_empty());
            is_seen || expected.contains_key(id)
        };
        if let Some(other) = others().find(|view| is_mounted(&view.id)) {
            return Err(BenchmarkError::InUse(DiskUse::Mounted(other.id)));
        }
        let writable = placed.iter().filter(|volume| waiting.contains(&volume.id)).find_map(|volume| volume.writable());
        // One that kubelet has mounted, and where no file can be made, has a pod that waits all the same.
        let hidden = views.iter().find(|view| waiting.contains(&view.id) && is_mounted(&view.id));
        writable.cloned().ok_or(match hidden {
            Some(view) => BenchmarkError::InUse(DiskUse::NotWritable(view.id)),
            None => BenchmarkError::NotMounted,
        })
    }

    /// Measures there. It takes a minute, or as long as the disk does. Blocks.
    pub fn benchmark(&self, disk: &DiskId, waiting: &BTreeSet<VolumeId>) -> Result<DiskFigures, BenchmarkError> {
        let place = self.place(disk, waiting)?;
        tracing::info!(%disk, at = %place.target.display(), "a disk is measured");
        Ok(self.host.benchmark(&place, BenchmarkBounds::default())?)
    }
}

fn is_block(view: &VolumeView) -> bool {
    view.record.as_ref().is_some_and(|record| !matches!(record.usage, VolumeUsage::Mount(_)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_no_later_try_changes_has_failed_at_once() {
        let text = || "fio".to_owned();
        let fails = |error: HostError| matches!(BenchmarkError::from(error), BenchmarkError::Failed(_));
        assert!(fails(HostError::Unsupported { what: text() }));
        assert!(fails(HostError::Command { program: text(), status: text(), stderr: text() }));
        assert!(!fails(HostError::Changed { path: "/m".into(), why: text() }));
        assert!(!fails(HostError::Timeout { program: text(), seconds: 1 }));
        assert!(!fails(HostError::Busy { object: text() }));
        assert!(!fails(HostError::Io { what: "open", object: text(), source: std::io::ErrorKind::NotFound.into() }));
    }
}
