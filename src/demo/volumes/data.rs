//! What a pod would do: write, read back, and have its usage measured.

use std::fs::{File, OpenOptions};
use std::path::Path;
use std::time::Instant;

use super::{DemoVolume, MIB, StepDone, bytes, text};
use crate::demo::{
    driver::{Clients, call},
    error::DemoError,
    lab::Lab,
};
use crate::device::Size;
use crate::host::{Extent, chain};
use crate::rpc::proto::{NodeGetVolumeStatsRequest, volume_usage::Unit};

/// What is written on each volume.
pub const WRITTEN: u64 = 8 * MIB;

impl DemoVolume {
    /// Bytes at the start, in the middle and at the end of a block volume, or as a file.
    pub fn write(&mut self, lab: &Lab) -> Result<StepDone, DemoError> {
        let data = self.data(&self.target(lab));
        let failed = |source| DemoError::io("write", data.display())(source);
        self.places = match self.kind.fs {
            Some(_) => vec![Extent { start: 0, end: WRITTEN }],
            None => {
                let third = WRITTEN / 4;
                let at = |start| Extent { start, end: start + third };
                vec![at(0), at(self.size / 2), at(self.size - third)]
            }
        };
        let begun = Instant::now();
        let file = OpenOptions::new().write(true).create(self.kind.fs.is_some()).truncate(false).open(&data);
        let crc = self.pattern.write(&file.map_err(failed)?, &self.places).map_err(failed)?;
        let written: u64 = self.places.iter().map(Extent::len).sum();
        let what = if self.kind.fs.is_some() { "file of" } else { "pattern of" };
        Ok(StepDone::new(begun, "random bytes, synced", format!("{what} {}, CRC-32 {crc:08x}", Size(written))))
    }

    pub fn read_back(&self, lab: &Lab) -> Result<StepDone, DemoError> {
        let begun = Instant::now();
        let crc = self.verify(&self.data(&self.target(lab)))?;
        Ok(StepDone::new(begun, "every byte as it was written", format!("every byte agrees, CRC-32 {crc:08x}")))
    }

    pub(super) fn verify(&self, data: &Path) -> Result<u32, DemoError> {
        let file = File::open(data).map_err(DemoError::io("read", data.display()))?;
        self.pattern.verify(&file, &self.places).map_err(|error| self.wrong(chain(&error)))
    }

    pub async fn stats(&self, clients: &mut Clients, lab: &Lab) -> Result<StepDone, DemoError> {
        let request = NodeGetVolumeStatsRequest {
            volume_id: self.id.clone(),
            volume_path: text(&self.target(lab)),
            staging_target_path: text(&self.staging(lab)),
        };
        let begun = Instant::now();
        let stats = call("NodeGetVolumeStats", self.label(), clients.node.node_get_volume_stats(request)).await?;
        let took = begun.elapsed();
        let condition = stats.volume_condition.unwrap_or_default();
        if condition.abnormal {
            return Err(self.wrong(format!("its condition is abnormal: {}", condition.message)));
        }
        let of = |unit: Unit| stats.usage.iter().find(|usage| usage.unit() == unit);
        let space = of(Unit::Bytes).ok_or_else(|| self.wrong("its stats have no bytes"))?;
        let (total, used) = (bytes(self.label(), space.total)?, bytes(self.label(), space.used)?);
        let Some(inodes) = of(Unit::Inodes).filter(|_| self.kind.fs.is_some()) else {
            if self.kind.fs.is_some() || total != self.size {
                return Err(self.wrong(format!("its stats say {total} bytes and no inodes, it has {}", self.size)));
            }
            return Ok(StepDone { detail: format!("{total} bytes"), gist: "size is right".into(), took });
        };
        if total > self.size || used < WRITTEN || inodes.used < 1 {
            let message = format!("its stats say {total} bytes, {used} used, {} inodes used", inodes.used);
            return Err(self.wrong(message));
        }
        let detail = format!("{} of {} used, {} of {} inodes", Size(used), Size(total), inodes.used, inodes.total);
        Ok(StepDone { detail, gist: "bytes and inodes are plausible".into(), took })
    }
}
