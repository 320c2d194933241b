//! Why a verb was not done, in words for the person who asked.

use std::path::PathBuf;

use crate::agent::question::VolumesUnknown;
use crate::device::{Device, DiscoveryError, DiskId};
use crate::host::HostError;
use crate::pool::{ApplyError, PoolError};
use crate::show::ListedDevice;

/// Why a verb was not done.
#[derive(Debug, thiserror::Error)]
pub enum AdminError {
    #[error("this node has no disk {0}; `localpool devices -o wide` lists ids, paths and links")]
    NoSuchDisk(String),
    #[error("{disk} is the id of several devices, {}: name one of them by its path", list(paths))]
    Several { disk: String, paths: Vec<PathBuf> },
    #[error("{disk} is not in the pool: {why}")]
    NotInPool { disk: String, why: String },
    #[error("{disk} cannot be taken over: {why}")]
    NotAdoptable { disk: String, why: String },
    #[error(
        "{disk} ({}) is not missing: {why}; only a missing disk is given up: name it by its id in status.disks of the \
         DevicePool",
        at.display()
    )]
    Here { disk: DiskId, at: PathBuf, why: String },
    #[error("this node has no disk {disk}, and the API server does not report whether a volume of this node is on it")]
    VolumesNotRead {
        disk: DiskId,
        #[source]
        source: VolumesUnknown,
    },
    #[error("{0} is missing: it can be given up, or released when it is back")]
    Missing(DiskId),
    #[error("{disk} cannot be used now: {why}")]
    NotYet { disk: DiskId, why: String },
    #[error("{disk} is missing, so its slot is not known; look for {was}")]
    NotLocatable { disk: DiskId, was: String },
    #[error(
        "Linux knows no light of the slot of {} ({disk}): neither an enclosure, nor an LED of a PCIe port, nor an attention \
         indicator of a PCIe slot; find the disk by {marks}",
        path.display()
    )]
    NoLight { disk: DiskId, path: PathBuf, marks: String },
    #[error("the light of the slot could not be changed")]
    Light(#[source] HostError),
    #[error("the machine's disks could not be read")]
    Scan(#[from] DiscoveryError),
    #[error("the disk could not be opened")]
    Open(#[source] HostError),
    #[error("{} is an array without a label, and holds something that localpool did not make: {what}", at.display())]
    ArrayHolds { at: PathBuf, what: String },
    #[error("the array could not be stopped")]
    Array(#[source] HostError),
    #[error(transparent)]
    Disk(#[from] ApplyError),
    #[error(transparent)]
    Pool(#[from] PoolError),
}

impl AdminError {
    pub(super) fn not_in_pool(text: &str, device: &Device) -> Self {
        let why = crate::show::verdict_and_reason(&ListedDevice { device: device.clone(), note: None }).1;
        Self::NotInPool { disk: text.to_owned(), why }
    }
}

fn list(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(" and ")
}
