//! Growth of a volume that is in use.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Instant;

use super::data::WRITTEN;
use super::{DemoVolume, Growth, StepDone, bytes, capability, range, text};
use crate::demo::{
    driver::{Clients, call},
    error::DemoError,
    lab::Lab,
};
use crate::device::Size;
use crate::host::{Extent, FsKind, Mounts, RealMounts, ioctl};
use crate::rpc::proto::{ControllerExpandVolumeRequest, NodeExpandVolumeRequest};

impl DemoVolume {
    /// Grows it while it is published.
    pub async fn expand(&mut self, clients: &mut Clients, lab: &Lab) -> Result<StepDone, DemoError> {
        let target = self.target(lab);
        let before = self.measure(&target)?;
        let request = ControllerExpandVolumeRequest {
            volume_id: self.id.clone(),
            capacity_range: range(self.kind.grow_to),
            volume_capability: Some(capability(self.kind.fs)),
            ..Default::default()
        };
        let begun = Instant::now();
        let grown =
            call("ControllerExpandVolume", self.label(), clients.controller.controller_expand_volume(request)).await?;
        let request = NodeExpandVolumeRequest {
            volume_id: self.id.clone(),
            volume_path: text(&target),
            staging_target_path: text(&self.staging(lab)),
            capacity_range: range(self.kind.grow_to),
            volume_capability: Some(capability(self.kind.fs)),
            ..Default::default()
        };
        let answer = call("NodeExpandVolume", self.label(), clients.node.node_expand_volume(request)).await;
        let took = begun.elapsed();
        let new = bytes(self.label(), grown.capacity_bytes)?;
        if new < self.kind.grow_to {
            return Err(self.wrong(format!("{} were asked for and {new} answered", self.kind.grow_to)));
        }
        let old = std::mem::replace(&mut self.size, new);
        let (gist, detail) = match answer {
            Err(refused) if self.waits_for_stage(&refused) => {
                self.growth = Growth::AtNextStage { had: before };
                let message = "ext4 grows at the next stage (no CAP_SYS_RESOURCE here)";
                (format!("partition grown; {message}"), format!("partition {} to {}; {message}", Size(old), Size(new)))
            }
            Err(error) => return Err(error),
            Ok(_) if new == old => {
                let message = "the size is fixed and asked for less: success without work";
                (message.to_owned(), format!("{} asked, {} there: nothing to do", Size(self.kind.grow_to), Size(new)))
            }
            Ok(_) => {
                let after = self.measure(&target)?;
                if after <= before {
                    return Err(self.wrong(format!("{before} bytes before it was expanded, {after} after")));
                }
                let message = format!("{} to {}, seen as {} at its target", Size(old), Size(new), Size(after));
                ("grown while in use".to_owned(), message)
            }
        };
        Ok(StepDone { detail, gist, took })
    }

    /// Only ext4 may fail so, and only if this process really lacks the capability.
    fn waits_for_stage(&self, error: &DemoError) -> bool {
        let refused = matches!(error, DemoError::Refused { code: tonic::Code::FailedPrecondition, .. });
        refused && self.kind.fs == Some(FsKind::Ext4) && !has_sys_resource()
    }

    /// Bytes of the filesystem or of the device at a target.
    fn measure(&self, target: &Path) -> Result<u64, DemoError> {
        if self.kind.fs.is_some() {
            return Ok(RealMounts.usage(target).map_err(DemoError::host("measure the filesystem"))?.total);
        }
        let node = File::open(target).and_then(ioctl::size);
        node.map_err(DemoError::io("measure", target.display()))
    }

    /// The space that expansion added to a block volume reads as zeros and can be written.
    pub fn use_growth(&mut self, lab: &Lab) -> Result<(), DemoError> {
        let last = self.places.last().map_or(0, |place| place.end);
        if self.kind.fs.is_some() || last >= self.size {
            return Ok(());
        }
        let target = self.target(lab);
        let failed = |source| DemoError::io("use what was added to", target.display())(source);
        let file = OpenOptions::new().read(true).write(true).open(&target).map_err(failed)?;
        let added = Extent { start: last, end: self.size.min(last + WRITTEN) };
        let mut bytes = vec![1; usize::try_from(added.len()).unwrap_or(0)];
        file.read_exact_at(&mut bytes, added.start).map_err(failed)?;
        if bytes.iter().any(|byte| *byte != 0) {
            return Err(self.wrong("what expansion added is not zero"));
        }
        self.places.push(added);
        self.pattern.write(&file, &self.places).map(drop).map_err(failed)
    }
}

/// CAP_SYS_RESOURCE is bit 24.
fn has_sys_resource() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & (1 << 24) != 0)
}
