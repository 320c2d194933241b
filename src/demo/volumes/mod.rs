//! A volume of the demo, from the outside: what is asked for, the CSI calls of its life, and the proof that each call
//! did what it answered.

mod data;
mod growth;
mod staging;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::error::DemoError;
use crate::demo::{
    disks::LoopDisk,
    driver::{Clients, call},
    lab::Lab,
    pattern::Pattern,
};
use crate::device::{Size, signed};
use crate::host::{Extent, FsKind};
use crate::rpc::proto::{
    CapacityRange, CreateVolumeRequest, DeleteVolumeRequest, VolumeCapability,
    volume_capability::{AccessMode, AccessType, BlockVolume, MountVolume, access_mode::Mode},
};

const MIB: u64 = 1 << 20;

/// What kind of volume is asked for.
#[derive(Clone, Copy, Debug)]
pub struct VolumeKind {
    pub label: &'static str,
    /// Which of the lab's disks it lands on, by the class of its set.
    pub disk: usize,
    pub class: &'static str,
    /// `None` is a raw block device.
    pub fs: Option<FsKind>,
    pub size: u64,
    /// The size to grow to. It fits into what the volume already has if its layout has fixed sizes.
    pub grow_to: u64,
    /// What CreateVolume makes on the disk, as text.
    pub how: &'static str,
}

/// A volume that was made.
#[derive(Debug)]
pub struct DemoVolume {
    pub kind: VolumeKind,
    pub id: String,
    size: u64,
    number: u32,
    pub extent: Extent,
    pattern: Pattern,
    /// What was written to it.
    places: Vec<Extent>,
    pub growth: Growth,
}

/// What happened to its filesystem when the volume grew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Growth {
    Done,
    /// ext4, if the driver lacks CAP_SYS_RESOURCE: its size when the volume grew.
    AtNextStage {
        had: u64,
    },
}

/// What a step did: its words, and how long the driver took.
pub struct StepDone {
    pub detail: String,
    pub gist: String,
    pub took: Duration,
}

impl StepDone {
    fn new(begun: Instant, gist: &str, detail: impl Into<String>) -> Self {
        Self { detail: detail.into(), gist: gist.to_owned(), took: begun.elapsed() }
    }
}

impl DemoVolume {
    pub async fn create(
        clients: &mut Clients,
        disk: &LoopDisk,
        kind: VolumeKind,
    ) -> Result<(Self, StepDone), DemoError> {
        let request = CreateVolumeRequest {
            name: format!("demo-{}", kind.label),
            capacity_range: range(kind.size),
            volume_capabilities: vec![capability(kind.fs)],
            parameters: [("class".to_owned(), kind.class.to_owned())].into(),
            ..Default::default()
        };
        let begun = Instant::now();
        let made = call("CreateVolume", kind.label, clients.controller.create_volume(request)).await?;
        let took = begun.elapsed();
        let made = made.volume.ok_or_else(|| DemoError::wrong(kind.label, "CreateVolume answered without a volume"))?;
        let size = bytes(kind.label, made.capacity_bytes)?;
        let guid = uuid::Uuid::parse_str(&made.volume_id)
            .map_err(|_| DemoError::wrong(kind.label, format!("its id is {:?}", made.volume_id)))?;
        let Some((number, extent)) = disk.partition(guid)? else {
            return Err(DemoError::wrong(kind.label, format!("{} has no partition of its id", disk.path().display())));
        };
        if extent.len() != size || size < kind.size {
            let message = format!("asked for {}, answered {size}, and its partition has {}", kind.size, extent.len());
            return Err(DemoError::wrong(kind.label, message));
        }
        let place = Size(extent.start);
        let detail =
            format!("{}: {} at {place} of {}, partition {number}", kind.how, Size(size), disk.path().display());
        let pattern = Pattern::new(uuid::Uuid::new_v4().as_u64_pair().0);
        let volume =
            Self { kind, id: made.volume_id, size, number, extent, pattern, places: Vec::new(), growth: Growth::Done };
        Ok((volume, StepDone { detail, gist: kind.how.to_owned(), took }))
    }

    pub fn label(&self) -> &'static str {
        self.kind.label
    }

    fn staging(&self, lab: &Lab) -> PathBuf {
        lab.path(&format!("staging-{}", self.label()))
    }

    fn target(&self, lab: &Lab) -> PathBuf {
        lab.path(&format!("target-{}", self.label()))
    }

    /// Where its bytes are: the published device node, or a file on the published filesystem.
    fn data(&self, mounted: &Path) -> PathBuf {
        if self.kind.fs.is_some() { mounted.join("data") } else { mounted.to_owned() }
    }

    fn wrong(&self, what: impl Into<String>) -> DemoError {
        DemoError::wrong(self.label(), what)
    }

    /// Deletes it, whatever it holds.
    pub async fn remove(&self, clients: &mut Clients) -> Result<(), DemoError> {
        let request = DeleteVolumeRequest { volume_id: self.id.clone(), ..Default::default() };
        call("DeleteVolume", self.label(), clients.controller.delete_volume(request)).await.map(drop)
    }

    /// Deletes it; returns where it was, and proof that it held something.
    pub async fn delete(&mut self, clients: &mut Clients, disk: &LoopDisk) -> Result<StepDone, DemoError> {
        let guid = uuid::Uuid::parse_str(&self.id).map_err(|_| self.wrong("its id is not a UUID"))?;
        let found = disk.partition(guid)?.ok_or_else(|| self.wrong("its partition is gone before it was deleted"))?;
        if found.0 != self.number || found.1.start != self.extent.start {
            return Err(self.wrong(format!("it moved from {} to {}", self.extent, found.1)));
        }
        self.extent = found.1;
        let held = disk.content(self.extent)?.not_zero;
        if held == 0 {
            return Err(self.wrong("its range reads as zeros before it was deleted"));
        }
        let begun = Instant::now();
        self.remove(clients).await?;
        Ok(StepDone::new(begun, "deleted", format!("its range held {} of data other than zeros", Size(held))))
    }
}

fn capability(fs: Option<FsKind>) -> VolumeCapability {
    let access_type = match fs {
        Some(fs) => AccessType::Mount(MountVolume { fs_type: fs.name().to_owned(), ..Default::default() }),
        None => AccessType::Block(BlockVolume {}),
    };
    let mode = AccessMode { mode: Mode::SingleNodeWriter.into() };
    VolumeCapability { access_mode: Some(mode), access_type: Some(access_type) }
}

fn range(size: u64) -> Option<CapacityRange> {
    Some(CapacityRange { required_bytes: signed(size), limit_bytes: 0 })
}

fn bytes(object: &str, wire: i64) -> Result<u64, DemoError> {
    u64::try_from(wire).map_err(|_| DemoError::wrong(object, format!("the driver answered {wire} bytes")))
}

fn text(path: &Path) -> String {
    path.display().to_string()
}
