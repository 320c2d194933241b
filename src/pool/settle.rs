//! Saying which of several disks has a volume: the others keep their data, under another id.

use uuid::Uuid;

use super::device_pool::Pool;
use super::error::PoolError;
use super::member::Member;
use super::view::{Standing, VolumeView};
use crate::device::{DiskId, VolumeId};

/// How a conflict is settled: nothing is erased by that.
#[derive(Clone)]
pub struct Settlement {
    id: VolumeId,
    pub kept: VolumeView,
    pub aside: Vec<Aside>,
}

/// A volume that becomes another one.
#[derive(Clone)]
pub struct Aside {
    member: Member,
    pub was: VolumeView,
    pub id: VolumeId,
    pub name: String,
}

/// The longest part of a name that one of another volume begins with: objects take 128 characters.
const NAME_PART: usize = 100;

impl Pool {
    /// What keeping the volume on disk `keep` means for the other disks that have it. All of them must be here: what
    /// is on one that is away cannot be changed.
    pub fn settlement(&self, id: VolumeId, keep: &DiskId) -> Result<Settlement, PoolError> {
        let refused = |why: String| PoolError::NotSettled { id, why };
        let (kept, others): (Vec<_>, Vec<_>) = self.all_of(id).into_iter().partition(|(member, _)| member.id() == keep);
        let (_, kept) = kept.into_iter().next().ok_or_else(|| {
            refused(format!("disk {keep} does not have it; `localpool volumes -o wide` says which disks do"))
        })?;
        let why = kept.conflict.clone().ok_or_else(|| refused("it is on one disk only".to_owned()))?;
        let is_here = |disk: &DiskId| *disk == kept.disk || others.iter().any(|(member, _)| member.id() == disk);
        let all_usable =
            others.iter().map(|(_, view)| view).chain([&kept]).all(|view| view.standing == Standing::Ready);
        let is_elsewhere = self.unasked().iter().any(|one| one.listed.contains(&id) && !is_here(&one.disk));
        // With no other, its own disk says that it cannot be used: no choice of a disk changes that.
        if !all_usable || is_elsewhere || others.is_empty() {
            return Err(refused(why));
        }
        let aside = others.into_iter().map(|(member, was)| {
            let fresh = Uuid::new_v4().simple().to_string();
            let name: String = was.record.iter().flat_map(|record| record.name.chars()).take(NAME_PART).collect();
            let name = format!("{name}-aside-{}", &fresh[..8]);
            Aside { member, was, id: VolumeId::of_name(&name), name }
        });
        Ok(Settlement { id, kept, aside: aside.collect() })
    }

    /// Does it, one disk after the other: stopped in between it leaves a conflict of fewer disks.
    pub fn settle(&self, settlement: &Settlement) -> Result<(), PoolError> {
        for Aside { member, was, id, name } in &settlement.aside {
            member.give_other_id(settlement.id, *id, name, self.journal()).map_err(|error| match error {
                PoolError::InUse { why, .. } => {
                    let (node, disk) = (was.path().display(), &was.disk);
                    let why = format!("{node} on disk {disk} is in use: {why}; unmount it there first");
                    PoolError::NotSettled { id: settlement.id, why }
                }
                error => error,
            })?;
            self.note(member);
        }
        Ok(())
    }
}
