//! `localpool volume settle`, in words: of a volume on several disks which one it is, and of two volumes on a bare
//! device which one is there.

use std::sync::Arc;

use super::AdminError;
use crate::agent::{reconciler::Reconciler, verb::Run};
use crate::device::{DiskId, Size, VolumeId};
use crate::pool::{ErrandKey, LostClaim, PoolError, VolumeView};

impl Reconciler {
    pub(super) fn settle(&mut self, id: VolumeId, keep: &str, run: Run) -> Result<Vec<String>, AdminError> {
        let disk = match self.find(keep) {
            Ok((_, device, member)) => member.map_or(device.id, |member| member.id().clone()),
            // One that is away is named by its id.
            Err(AdminError::NoSuchDisk(disk)) => DiskId::named(disk),
            Err(error) => return Err(error),
        };
        if let Some(lost) = self.pool().journal().lost().remove(&disk) {
            return self.settle_claim(id, &disk, &lost, run);
        }
        let settlement = self.pool().settlement(id, &disk)?;
        let mut lines = vec![format!("{} volume {id} on {}", run.tense("keep", "kept"), described(&settlement.kept))];
        for aside in &settlement.aside {
            // What a dry run made up is not what will be.
            let fresh =
                if run == Run::Dry { "a fresh id".to_owned() } else { format!("the id {} ({})", aside.id, aside.name) };
            let give = run.tense("give", "gave");
            lines.push(format!(
                "{give} {fresh} to the volume on {}: it is found, and its data is unchanged",
                described(&aside.was)
            ));
        }
        if run == Run::Real {
            let (pool, wanted) = (Arc::clone(self.pool()), settlement.clone());
            // One at a time of a volume: settled both ways, it would be on no disk.
            self.done_in_time(ErrandKey::Volume(id), move || pool.settle(&wanted))?;
            lines.extend(settlement.aside.iter().map(|aside| {
                format!("`localpool volume adopt {}` makes that a volume that can be used or deleted", aside.id)
            }));
        }
        Ok(lines)
    }

    /// Which of several volumes is on a bare device: that of its claim, or one that PoolVolumes have there.
    fn settle_claim(
        &mut self,
        id: VolumeId,
        disk: &DiskId,
        lost: &LostClaim,
        run: Run,
    ) -> Result<Vec<String>, AdminError> {
        let claimed = self.pool().journal().bare_claim(disk).and_then(|claim| claim.volume);
        let of = |id: VolumeId, name: &str| format!("volume {id} ({name})");
        let of_claim = claimed.iter().map(|one| (one.id, one.record.name.clone()));
        let all: Vec<(VolumeId, String)> =
            lost.volumes().map(|one| (one.id, one.record.name.clone())).chain(of_claim).collect();
        let mut lines = match lost.volumes().find(|volume| volume.id == id) {
            Some(volume) => {
                let (snapshot, device, _) = self.find(disk.as_str())?;
                let kept = LostClaim { volume: Some(volume.clone()), others: Vec::new() };
                self.adopt_lost(&device, &snapshot.bare_id(&device), kept, run)?
            }
            None => {
                let kept = claimed.filter(|claimed| claimed.id == id).ok_or_else(|| {
                    let named: Vec<String> = all.iter().map(|(id, name)| of(*id, name)).collect();
                    let why =
                        format!("according to the PoolVolumes and the journal, disk {disk} has {}", named.join(" or "));
                    PoolError::NotSettled { id, why }
                })?;
                if run == Run::Real {
                    self.pool().journal().keep_claimed(disk).map_err(PoolError::from)?;
                }
                vec![format!("{} {} on disk {disk}", run.tense("keep", "kept"), of(kept.id, &kept.record.name))]
            }
        };
        let gone = all.iter().filter(|(other, _)| *other != id);
        lines.extend(gone.map(|(other, name)| {
            format!("{} is not there: deleting it succeeds, and erases nothing", of(*other, name))
        }));
        Ok(lines)
    }
}

/// What tells one of several from another.
fn described(view: &VolumeView) -> String {
    let made = if view.formatted { "formatted" } else { "never formatted" };
    format!("{} (disk {}, {}, {made})", view.path().display(), view.disk, Size(view.size))
}
