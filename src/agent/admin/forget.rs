//! `localpool disk give-up`, and `disk release` of a disk that is away, or that the journal does not know. Nothing can be wiped there: the
//! pool stops waiting for it, and for what was on it.
//!
//! Takes in its id; gives out what was done or would be.

use super::AdminError;
use crate::agent::{
    question::{OwnError, Wanted},
    reconciler::Reconciler,
    verb::Run,
};
use crate::device::{Believed, Device, DiskId, may_be_hardware};
use crate::pool::{DiskView, LostClaim, LostVolume, Member, PoolError, ReportedVolume, Standing, VolumeView};

/// Goes on after the volume's name.
const GIVEN_UP: &str = "is given up: deleting it succeeds, and erases nothing";

/// What becomes of a disk with our label that was not dead.
const HELD: &str = "if it comes back, nothing on it is offered, used or erased until `localpool disk adopt`";

impl Reconciler {
    pub(super) fn is_missing(&self, text: &str) -> bool {
        self.pool().disk_views().iter().any(|disk| disk.id.as_str() == text && disk.standing == Standing::Missing)
    }

    /// The verb that does nothing to a disk that is here: `release` wipes one that has no volume.
    pub(super) fn give_up_named(&mut self, text: &str, run: Run) -> Result<Vec<String>, AdminError> {
        self.pool().journal().sound().map_err(PoolError::from)?;
        if let Ok((_, device, member)) = self.find(text)
            && device.believed == Believed::Yes
            && !self.is_missing(text)
        {
            let why = "the node has it".to_owned();
            let Device { id, raw, .. } = &device;
            return Err(match member {
                Some(_) => AdminError::Here { disk: id.clone(), at: raw.path.clone(), why },
                None => AdminError::not_in_pool(text, &device),
            });
        }
        self.give_up_missing(&DiskId::named(text), run)
    }

    /// A disk that is away, by its id.
    pub(super) fn forget(&mut self, id: &DiskId, run: Run) -> Result<Vec<String>, AdminError> {
        let known = self.pool().disk_views().into_iter().find(|disk| disk.id == *id);
        let Some(DiskView { path, standing, .. }) = known else { return self.give_up_unknown(id, run) };
        match standing {
            Standing::Missing => {}
            Standing::NotReady(why) => {
                let why = format!("{why}; to give it up, unplug it first");
                return Err(AdminError::Here { disk: id.clone(), at: path, why });
            }
            Standing::Ready => return Err(AdminError::NoSuchDisk(id.to_string())),
        }
        let was = match path.as_os_str().is_empty() {
            true => String::new(),
            false => format!(" (it was {})", path.display()),
        };
        let mut lines = vec![
            format!("{} {id}, which is missing{was}", run.tense("give up", "gave up")),
            "another disk may take its place in the set".to_owned(),
        ];
        match self.pool().member(id) {
            // Nothing on a bare device says that it was ours.
            Some(Member::Bare(member)) => {
                let adopt = format!("if it comes back, no set claims it until `localpool disk adopt {id}`");
                match member.view() {
                    Some(VolumeView { id, record, .. }) => {
                        let name = record.map_or_else(String::new, |record| record.name);
                        lines.push(format!("volume {id} ({name}) is given up; its data stays on the device"));
                        lines.push(adopt + ", and then only if it is blank");
                    }
                    None => lines.push(adopt),
                }
                lines.extend(self.pool().journal().contradiction(id).iter().flat_map(LostClaim::volumes).map(given_up));
            }
            _ => {
                let known = self.pool().journal().known(|known| known == id).into_iter();
                for volume in known.filter_map(|(_, known)| known.volumes).flatten() {
                    lines.push(format!("volume {volume} {GIVEN_UP}"));
                }
                lines.push(HELD.to_owned());
            }
        }
        if run == Run::Real && !self.pool().forget(id)? {
            return Err(AdminError::NoSuchDisk(id.to_string()));
        }
        Ok(lines)
    }

    /// What a release of a disputed bare device means for the volume that its PoolVolume has there.
    pub(super) fn given_up_with(&self, id: &DiskId) -> Vec<String> {
        let Some(reported) = self.pool().journal().contradiction(id) else { return Vec::new() };
        let stays = "the content of the device stays unchanged; sets claim the device only if it is blank";
        reported.volumes().map(given_up).chain([stays.to_owned()]).collect()
    }

    pub(super) fn has_lost(&self, id: &DiskId) -> bool {
        self.pool().journal().lost().contains_key(id)
    }

    /// A bare device that PoolVolumes have and the journal does not, here or away.
    pub(super) fn give_up_lost(&self, id: &DiskId, run: Run) -> Result<Vec<String>, AdminError> {
        let lost = self.pool().journal().lost().remove(id).unwrap_or_default();
        let mut lines =
            vec![format!("{} the bare device {id}, which the journal did not know", run.tense("give up", "gave up"))];
        lines.extend(lost.volumes().map(given_up));
        if lost.volume.is_none() {
            lines.push("if it has a volume, that volume is given up; this node does not know which one".to_owned());
        }
        lines.push(format!("no set claims it until `localpool disk adopt {id}`, and then only if it is blank"));
        if run == Run::Real {
            self.pool().journal().release(id).map_err(PoolError::from)?;
        }
        Ok(lines)
    }

    /// What PoolVolumes say now. The journal gets it in a dry run as well, because it is a fact.
    fn reported_volumes(&mut self) -> Result<Vec<ReportedVolume>, OwnError> {
        let own = self.ask(Wanted::Own)?.own?;
        self.learn_own(Ok(own.clone()))?;
        Ok(own)
    }

    /// One that is not in the journal: it died before that was lost, or before the state that was put back. PoolVolumes
    /// may name it.
    fn give_up_unknown(&mut self, id: &DiskId, run: Run) -> Result<Vec<String>, AdminError> {
        let own = self.reported_volumes().map_err(|source| AdminError::VolumesNotRead { disk: id.clone(), source })?;
        if self.has_lost(id) {
            return self.give_up_lost(id, run);
        }
        let on: Vec<ReportedVolume> = own.into_iter().filter(|reported| reported.disk == *id).collect();
        if on.is_empty() {
            return Err(AdminError::NoSuchDisk(id.to_string()));
        }
        let mut lines = vec![format!("{} {id}, which the journal did not know", run.tense("give up", "gave up"))];
        lines.extend(on.iter().filter_map(|reported| reported.volume.as_ref()).map(given_up));
        if !may_be_hardware(id.as_str()) {
            lines.push(HELD.to_owned());
        }
        if run == Run::Real {
            self.pool().journal().let_go_unknown(id).map_err(PoolError::from)?;
        }
        Ok(lines)
    }
}

fn given_up(volume: &LostVolume) -> String {
    let LostVolume { id, record, .. } = volume;
    format!("volume {id} ({}) {GIVEN_UP}", record.name)
}
