//! The label of a disk that a person takes as it is.

use std::sync::Arc;

use super::error::AdminError;
use crate::agent::reconciler::Reconciler;
use crate::device::{Device, Owner, label::Label};
use crate::host::Access;
use crate::pool::{LastSeen, Opened, PoolDisk, PoolError, relabel};

impl Reconciler {
    /// Changes the label of a disk that is no member now, and that a person takes as it is, whatever was seen of it
    /// before.
    pub(super) fn relabel(
        &mut self,
        device: &Device,
        change: impl FnOnce(&mut Label) + Send + 'static,
    ) -> Result<(), AdminError> {
        let Some(label) = device.label.clone() else {
            let (disk, why) = (device.raw.path.display().to_string(), "it has no label".to_owned());
            return Err(AdminError::NotAdoptable { disk, why });
        };
        let (host, raw) = (Arc::clone(&self.host), device.raw.clone());
        let (pool, id) = (Arc::clone(&self.pool), device.id.clone());
        let last_number = pool.journal().last_seen(&id).written;
        self.errands.done_in_time::<AdminError>(&device.id, move || {
            let disk = host.open(&raw, Access::Own).map_err(AdminError::Open)?;
            let was = Owner { cluster: label.cluster.clone(), node: label.node.clone() };
            let opened = PoolDisk::open(disk, label.disk, &was, &LastSeen::default())?;
            let Opened::Ours(mut disk) = opened else { return Ok(()) };
            disk.outnumber(last_number);
            disk.change(|content| {
                let mut label = content.pruned_label();
                label.given_up = false;
                change(&mut label);
                Ok(relabel(label))
            })?;
            // Where one copy rots, the other one is as new.
            disk.mirror()?;
            // As long as the journal says otherwise, all this can be done again.
            Ok(pool.journal().take_as_it_is(&id, disk.content().written).map_err(PoolError::from)?)
        })?;
        self.memory.discovery.changed(&device.raw.name);
        Ok(())
    }
}
