//! `localpool volume settle`: of a volume on several disks which one it is, and of two volumes on a bare device which
//! one is there.

use std::sync::Arc;

use super::error::AdminError;
use super::find::FoundDevice;
use super::plan::{Ran, VerbPlan};
use crate::agent::{reconciler::Reconciler, verb::Run};
use crate::device::{DiskId, Size, VolumeId};
use crate::pool::{BareVolume, ErrandKey, LostClaim, PoolError, Settlement, VolumeView};

/// One of the disks that have a volume is the one whose volume it is.
struct SettledDisk {
    volume: VolumeId,
    settlement: Settlement,
}

/// The volume of a bare claim is the one that is on the device.
struct SettledClaim {
    disk: DiskId,
    kept: BareVolume,
}

impl Reconciler {
    pub(super) fn settle(&mut self, id: VolumeId, keep: &str, run: Run) -> Result<Vec<String>, AdminError> {
        let disk = match self.find(keep) {
            Ok(FoundDevice { device, member, .. }) => member.map_or(device.id, |member| member.id().clone()),
            // One that is away is named by its id.
            Err(AdminError::NoSuchDisk(disk)) => DiskId::named(disk),
            Err(error) => return Err(error),
        };
        if let Some(lost) = self.pool().journal().lost().remove(&disk) {
            return self.settle_claim(id, &disk, &lost, run);
        }
        let settlement = self.pool().settlement(id, &disk)?;
        self.run(&SettledDisk { volume: id, settlement }, run)
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
        let of_claim = claimed.iter().map(|one| (one.id, one.record.name.clone()));
        let all: Vec<(VolumeId, String)> =
            lost.volumes().map(|one| (one.id, one.record.name.clone())).chain(of_claim).collect();
        let mut lines = match lost.volumes().find(|volume| volume.id == id) {
            Some(volume) => {
                let FoundDevice { snapshot, device, .. } = self.find(disk.as_str())?;
                let kept = LostClaim { volume: Some(volume.clone()), others: Vec::new() };
                let adoption = self.adoption_of_lost(&device, &snapshot.bare_id(&device), kept)?;
                self.run(&adoption, run)?
            }
            None => {
                let kept = claimed.filter(|claimed| claimed.id == id).ok_or_else(|| {
                    let named: Vec<String> = all.iter().map(|(id, name)| volume(*id, name)).collect();
                    let why =
                        format!("according to the PoolVolumes and the journal, disk {disk} has {}", named.join(" or "));
                    PoolError::NotSettled { id, why }
                })?;
                self.run(&SettledClaim { disk: disk.clone(), kept }, run)?
            }
        };
        let gone = all.iter().filter(|(other, _)| *other != id);
        lines.extend(gone.map(|(other, name)| {
            format!("{} is not there: deleting it succeeds, and erases nothing", volume(*other, name))
        }));
        Ok(lines)
    }
}

impl VerbPlan for SettledDisk {
    type Done = ();

    fn perform(&self, agent: &mut Reconciler) -> Result<(), AdminError> {
        let (pool, wanted) = (Arc::clone(agent.pool()), self.settlement.clone());
        // One at a time of a volume: settled both ways, it would be on no disk.
        Ok(agent.errands.done_in_time(ErrandKey::Volume(self.volume), move || pool.settle(&wanted))?)
    }

    fn lines(&self, ran: &Ran<()>) -> Vec<String> {
        let Self { volume, settlement } = self;
        let mut lines =
            vec![format!("{} volume {volume} on {}", ran.tense("keep", "kept"), described(&settlement.kept))];
        for aside in &settlement.aside {
            // What a dry run made up is not what will be.
            let fresh = match ran {
                Ran::Dry => "a fresh id".to_owned(),
                Ran::Real(()) => format!("the id {} ({})", aside.id, aside.name),
            };
            let give = ran.tense("give", "gave");
            lines.push(format!(
                "{give} {fresh} to the volume on {}: it is found, and its data is unchanged",
                described(&aside.was)
            ));
        }
        if let Ran::Real(()) = ran {
            lines.extend(settlement.aside.iter().map(|aside| {
                format!("`localpool volume adopt {}` makes that a volume that can be used or deleted", aside.id)
            }));
        }
        lines
    }
}

impl VerbPlan for SettledClaim {
    type Done = ();

    fn perform(&self, agent: &mut Reconciler) -> Result<(), AdminError> {
        Ok(agent.pool().journal().keep_claimed(&self.disk).map_err(PoolError::from)?)
    }

    fn lines(&self, ran: &Ran<()>) -> Vec<String> {
        let Self { disk, kept } = self;
        vec![format!("{} {} on disk {disk}", ran.tense("keep", "kept"), volume(kept.id, &kept.record.name))]
    }
}

fn volume(id: VolumeId, name: &str) -> String {
    format!("volume {id} ({name})")
}

/// The volume in words that distinguish it from others with its id.
fn described(view: &VolumeView) -> String {
    let made = if view.formatted { "formatted" } else { "never formatted" };
    format!("{} (disk {}, {}, {made})", view.path().display(), view.disk, Size(view.size))
}
