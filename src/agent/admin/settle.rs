//! The verb that settles a conflict, in words.

use std::sync::Arc;

use uuid::Uuid;

use super::{AdminError, tense};
use crate::agent::reconciler::Reconciler;
use crate::device::size::Size;
use crate::pool::VolumeView;

impl Reconciler {
    pub(super) fn settle(&mut self, id: Uuid, keep: &str, dry_run: bool) -> Result<Vec<String>, AdminError> {
        let disk = match self.find(keep) {
            Ok((_, device, member)) => member.map_or(device.id.text, |member| member.id().to_owned()),
            // One that is away is named by its id.
            Err(AdminError::NoSuchDisk(disk)) => disk,
            Err(error) => return Err(error),
        };
        let settlement = self.pool().settlement(id, &disk)?;
        let mut lines =
            vec![format!("{} volume {id} on {}", tense(dry_run, "keep", "kept"), described(&settlement.kept))];
        for aside in &settlement.aside {
            // What a dry run made up is not what will be.
            let fresh = if dry_run { "a fresh id".to_owned() } else { format!("the id {} ({})", aside.id, aside.name) };
            let give = tense(dry_run, "give", "gave");
            lines.push(format!("{give} {fresh} to what is on {}: found, its data as it is", described(&aside.was)));
        }
        if !dry_run {
            let (pool, wanted) = (Arc::clone(self.pool()), settlement.clone());
            // One at a time of a volume: settled both ways, it would be on no disk.
            self.done_in_time(&id.to_string(), move || pool.settle(&wanted))?;
            lines.extend(settlement.aside.iter().map(|aside| {
                format!("`localpool volume adopt {}` makes that a volume that can be used or deleted", aside.id)
            }));
        }
        Ok(lines)
    }
}

/// What tells one of several from another.
fn described(view: &VolumeView) -> String {
    let made = if view.formatted { "formatted" } else { "never formatted" };
    format!("{} (disk {}, {}, {made})", view.node.display(), view.disk, Size(view.size))
}
