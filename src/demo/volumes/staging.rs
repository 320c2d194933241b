//! Stages, publishes and takes down a volume, each time with a look at the mount table.

use std::path::Path;
use std::time::Instant;

use super::{DemoVolume, Growth, StepDone, capability, text};
use crate::demo::{
    driver::{Clients, call},
    error::DemoError,
    lab::Lab,
};
use crate::device::Size;
use crate::host::{Mounts, RealMounts};
use crate::rpc::proto::{
    NodePublishVolumeRequest, NodeStageVolumeRequest, NodeUnpublishVolumeRequest, NodeUnstageVolumeRequest,
};

impl DemoVolume {
    pub async fn stage(&mut self, clients: &mut Clients, lab: &Lab) -> Result<StepDone, DemoError> {
        let staging = self.staging(lab);
        let request = NodeStageVolumeRequest {
            volume_id: self.id.clone(),
            staging_target_path: text(&staging),
            volume_capability: Some(capability(self.kind.fs)),
            ..Default::default()
        };
        let begun = Instant::now();
        call("NodeStageVolume", self.label(), clients.node.node_stage_volume(request)).await?;
        let took = begun.elapsed();
        let Some(fs) = self.kind.fs else {
            return Ok(StepDone { detail: "nothing to do".into(), gist: "raw: nothing to do".into(), took });
        };
        self.expect_mounted(lab, &staging, Some(fs.name()))?;
        let total = RealMounts.usage(&staging).map_err(DemoError::host("measure the filesystem"))?.total;
        if let Growth::AtNextStage { had } = self.growth {
            if total <= had {
                return Err(self.wrong(format!("its filesystem still has {total} bytes after it was staged again")));
            }
            self.growth = Growth::Done;
            let detail = format!("{} grew from {} to {}, its file is whole", fs.name(), Size(had), Size(total));
            self.verify(&self.data(&staging))?;
            return Ok(StepDone { detail, gist: "filesystem grown to its volume".into(), took });
        }
        let detail = format!("{} made and mounted, {}", fs.name(), Size(total));
        Ok(StepDone { detail, gist: "filesystem made and mounted".into(), took })
    }

    pub async fn publish(&mut self, clients: &mut Clients, lab: &Lab) -> Result<StepDone, DemoError> {
        let target = self.target(lab);
        let request = NodePublishVolumeRequest {
            volume_id: self.id.clone(),
            staging_target_path: text(&self.staging(lab)),
            target_path: text(&target),
            volume_capability: Some(capability(self.kind.fs)),
            ..Default::default()
        };
        let begun = Instant::now();
        call("NodePublishVolume", self.label(), clients.node.node_publish_volume(request)).await?;
        let (gist, fs) = match self.kind.fs {
            Some(fs) => ("bind-mounted for a pod", Some(fs.name())),
            None => ("device node bind-mounted for a pod", None),
        };
        let done = StepDone::new(begun, gist, text(&target));
        self.expect_mounted(lab, &target, fs)?;
        Ok(done)
    }

    fn expect_mounted(&self, lab: &Lab, target: &Path, fs: Option<&str>) -> Result<(), DemoError> {
        let mounts = lab.mounts()?;
        let found = mounts.iter().find(|mount| mount.target == target);
        match found {
            Some(mount) if fs.is_none_or(|fs| fs == mount.fs_type) => Ok(()),
            Some(mount) => Err(self.wrong(format!("{} is mounted at {}", mount.fs_type, target.display()))),
            None => Err(self.wrong(format!("nothing is mounted at {}", target.display()))),
        }
    }

    pub async fn take_down(&self, clients: &mut Clients, lab: &Lab) -> Result<StepDone, DemoError> {
        let (target, staging) = (self.target(lab), self.staging(lab));
        let begun = Instant::now();
        let request = NodeUnpublishVolumeRequest { volume_id: self.id.clone(), target_path: text(&target) };
        call("NodeUnpublishVolume", self.label(), clients.node.node_unpublish_volume(request)).await?;
        self.unstage(clients, lab).await?;
        let done = StepDone::new(begun, "unmounted, target removed", "");
        if target.exists() || lab.mounts()?.iter().any(|mount| [&target, &staging].contains(&&mount.target)) {
            return Err(self.wrong("something is still mounted, or its target is still there"));
        }
        Ok(done)
    }

    pub async fn unstage(&self, clients: &mut Clients, lab: &Lab) -> Result<(), DemoError> {
        let staging_target_path = text(&self.staging(lab));
        let request = NodeUnstageVolumeRequest { volume_id: self.id.clone(), staging_target_path };
        call("NodeUnstageVolume", self.label(), clients.node.node_unstage_volume(request)).await.map(drop)
    }
}
