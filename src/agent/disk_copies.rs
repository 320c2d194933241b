//! Copies of pool disks: what is remembered of them.

use super::reconciler::Reconciler;
use crate::device::{
    DiskId, HardwareId, Snapshot,
    duplicate::{Identities, seen_together, stable_hardware_id},
};
use crate::host::chain;

impl Reconciler {
    /// The disks in use whose hardware can be recognized later.
    fn in_use(&self) -> Vec<(DiskId, HardwareId)> {
        let used = |member: &crate::pool::LabelledDisk| {
            let shown = member.shown();
            let used = stable_hardware_id(&shown.raw).filter(|_| shown.is_usable())?;
            Some((member.id.clone(), used))
        };
        self.pool.labelled_disks().iter().filter_map(|member| used(member)).collect()
    }

    /// Writes down what is a copy. A disk that was moved may still be listed where it was, so that takes two scans
    /// which see the same, the second with nothing remembered. Gives whether that one is due.
    pub(super) fn remember_copies(&mut self, snapshot: &Snapshot) -> bool {
        let mut found = seen_together(&snapshot.devices);
        let known = self.pool.journal().identities();
        let is_known = |id: &DiskId, copy: &HardwareId| known.get(id).is_some_and(|known| known.copies.contains(copy));
        found.retain(|id, found| found.copies.iter().any(|copy| !is_known(id, copy)));
        let before = std::mem::replace(&mut self.together, found.clone());
        let (sure, unsure): (Identities, Identities) =
            found.into_iter().partition(|(id, found)| before.get(id) == Some(found));
        for device in snapshot.devices.iter().filter(|device| unsure.contains_key(&device.id)) {
            self.memory.discovery.changed(&device.raw.name);
        }
        let used = self.in_use();
        let written = self.pool.journal().identify(|identities| {
            for (id, found) in sure {
                tracing::warn!(disk = id.as_str(), copies = ?found.copies, "a disk of the pool has copies; none of them replaces it automatically");
                let identity = identities.entry(id).or_default();
                identity.copies.extend(found.copies);
                identity.original = found.original.or(identity.original.take());
            }
            // A disk with copies may come back on other hardware.
            for (id, used) in used {
                identities.entry(id).and_modify(|identity| identity.original = Some(used));
            }
        });
        if let Err(error) = written {
            tracing::warn!(error = %chain(&error), "which disks are copies would not be known after a restart");
        }
        !unsure.is_empty()
    }
}
