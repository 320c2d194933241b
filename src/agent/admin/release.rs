//! `localpool disk release` of a disk that is here: its label and its tables go, or its bare claim ends.
//!
//! Takes in what the disk is called; gives out what was done or would be.

use std::path::Path;
use std::sync::Arc;

use super::error::AdminError;
use super::find::FoundDevice;
use super::plan::{Ran, VerbPlan};
use crate::agent::array::{Permission, SeenArray, remainder};
use crate::agent::{reconciler::Reconciler, verb::Run};
use crate::device::{Device, DiskId, Reason, Snapshot, Verdict};
use crate::host::{HostError, Probe, ProbeResult, RawDisk};
use crate::pool::{LabelledDisk, Member, PoolError};

/// A member that was proved to be releasable.
pub(super) struct Release {
    device: Device,
    member: Member,
    /// The consequences for the volumes that PoolVolumes have there.
    given_up: Vec<String>,
    /// It has no serial or WWN.
    is_known_by_path: bool,
    /// It is a member of an array that ends with it.
    array: Option<ArrayEnd>,
}

/// An array that ends.
struct ArrayEnd {
    id: DiskId,
    fate: ArrayFate,
    /// The md device, as it runs, or what is left of it; `None`: nothing is.
    built: Option<RawDisk>,
    /// Those that are here.
    members: Vec<Arc<LabelledDisk>>,
}

/// What becomes of what is on an array.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ArrayFate {
    /// Nothing is.
    Blank,
    /// It was given up, and cannot be read without the members that are lost.
    Lost,
}

impl Reconciler {
    pub(super) fn release(&mut self, text: &str, run: Run) -> Result<Vec<String>, AdminError> {
        // What is released is written down there: a dry run says so, too.
        self.pool().journal().sound().map_err(PoolError::from)?;
        if DiskId::named(text).is_filesystem() && !self.is_missing(text) {
            return self.release_mounted(&DiskId::named(text), run);
        }
        let found = match self.find(text) {
            Err(AdminError::NoSuchDisk(id)) => return self.forget(&DiskId::named(id), run),
            // Copies of a disk that is away have its id.
            Ok(FoundDevice { member: None, .. }) | Err(AdminError::Several { .. }) if self.is_missing(text) => {
                return self.forget(&DiskId::named(text), run);
            }
            Ok(FoundDevice { snapshot, device, member: None }) if self.has_lost(&snapshot.bare_id(&device)) => {
                let plan = self.giving_up_lost(&snapshot.bare_id(&device));
                return self.run(&plan, run);
            }
            found => found?,
        };
        let plan = self.release_of(text, found)?;
        self.run(&plan, run)
    }

    /// Proves that a device that is here may be released.
    pub(super) fn release_of(&self, text: &str, found: FoundDevice) -> Result<Release, AdminError> {
        let FoundDevice { snapshot, device, member } = found;
        let member = member.ok_or_else(|| AdminError::not_in_pool(text, &device))?;
        let array = match self.array_end(&snapshot, member.id()) {
            Some(end) => Some(end),
            None => self.lost_array_end(&snapshot, member.id())?,
        };
        match &member {
            Member::Labelled(_) if array.is_some() => {}
            Member::Labelled(member) => member.lock_in_time()?.disk()?.can_release()?,
            Member::Filesystem(filesystem) => {
                filesystem.can_release().map_err(PoolError::from)?;
                if let Some(disk) = filesystem.carrier.disk() {
                    disk.lock_in_time()?.disk()?.can_release()?;
                }
            }
            Member::Bare(member) => member.can_release().map_err(PoolError::from)?,
        }
        let given_up = self.given_up_with(member.id());
        let is_known_by_path = snapshot.bare_id(&device).is_path();
        Ok(Release { device, member, given_up, is_known_by_path, array })
    }

    /// The array that a disk is a member of, if it runs with all of its members and has no label: nothing is on it, as
    /// it was released itself, or never claimed.
    fn array_end(&self, snapshot: &Snapshot, id: &DiskId) -> Option<ArrayEnd> {
        let array = self.arrays(snapshot).into_iter().find(|array| array.members.iter().any(|one| one.id == *id))?;
        let [(_, built)] = array.built[..] else { return None };
        let is_blank = matches!(built.verdict, Verdict::Theirs(Reason::OfSet { .. }));
        let members = array.members.iter().filter_map(|member| self.pool().labelled_disk(&member.id)).collect();
        let (id, built) = (built.id.clone(), Some(built.raw.clone()));
        is_blank.then_some(ArrayEnd { id, fate: ArrayFate::Blank, built, members })
    }

    /// The array that a disk is a member of, if a person gave it up and it misses members: nobody can read what was on it.
    /// `None`: the disk says itself whether it may be released.
    fn lost_array_end(&self, snapshot: &Snapshot, id: &DiskId) -> Result<Option<ArrayEnd>, AdminError> {
        let arrays = self.arrays(snapshot);
        let is_of = |array: &&SeenArray<'_>| array.members.iter().any(|one| one.id == *id);
        let Some(array) = arrays.iter().find(is_of) else { return Ok(None) };
        let Some(uuid) = array.members.first().map(|first| first.place.array) else { return Ok(None) };
        let not_yet = |why: String| Err(AdminError::NotYet { disk: id.clone(), why });
        let left = remainder(array, snapshot);
        let built = match left {
            Some(left) if array.permission == Permission::GivenUp => match left {
                Ok(device) => device.map(|device| device.raw.clone()),
                Err(why) => return not_yet(why),
            },
            left => {
                let may_hold_data = array.members.iter().any(|one| one.id == *id && one.is_used);
                let misses_some = left.is_some() || array.members.iter().any(|one| one.name.is_none());
                return if may_hold_data && misses_some { not_yet(misses(array)) } else { Ok(None) };
            }
        };
        if self.pool().disk_views().iter().any(|view| view.array == Some(uuid)) {
            return Ok(None);
        }
        if let Some(why) = self.may_be_here(snapshot, array) {
            return not_yet(why);
        }
        let here = array.members.iter().filter(|member| member.name.is_some());
        let members = here.filter_map(|member| self.pool().labelled_disk(&member.id)).collect();
        Ok(Some(ArrayEnd { id: DiskId::of_array(uuid), fate: ArrayFate::Lost, built, members }))
    }

    /// Stopped anywhere, the array is there as it was, or it is none any more: then no member says that it may hold data, or
    /// a person gave it up, which is written down.
    fn end_array(&mut self, end: &ArrayEnd) -> Result<(), AdminError> {
        let ArrayEnd { id, fate, built, members } = end;
        let (host, id, fate, built, disks) =
            (Arc::clone(&self.host), id.clone(), *fate, built.clone(), members.clone());
        let first = members.first().map(|member| member.id.clone());
        let Some(first) = first else { return Ok(()) };
        self.errands.done_in_time(&first, move || {
            if let Some(built) = &built {
                if fate == ArrayFate::Blank {
                    holds_nothing(host.probe(built), &id, &built.path)?;
                }
                host.md().stop(built).map_err(AdminError::Array)?;
            }
            disks.iter().try_for_each(|disk| disk.member_is_unmade())?;
            Ok::<(), AdminError>(disks.iter().try_for_each(|disk| disk.clear_member())?)
        })?;
        for disk in members {
            self.give_up(&Member::Labelled(Arc::clone(disk)))?;
        }
        Ok(())
    }
}

/// Which members of an array are not here, and what a person can do about it.
fn misses(array: &SeenArray<'_>) -> String {
    let away = array.members.iter().filter(|member| member.name.is_none());
    let mut away: Vec<String> = away.map(|member| format!("{} ({})", member.id, member.place)).collect();
    if away.is_empty() {
        // The journal does not know it.
        away.extend(array.members.first().map(|first| DiskId::of_array(first.place.array).to_string()));
    }
    format!(
        "its array misses members, and may hold data: bring them back; if they are lost for good, give up {}, and release \
         this disk after that",
        away.join(" or ")
    )
}

/// Whoever found the array without a label may have put something there. What could not be read now is asked again.
fn holds_nothing(found: Probe, id: &DiskId, path: &Path) -> Result<(), AdminError> {
    let not_yet = |why: String| Err(AdminError::NotYet { disk: id.clone(), why });
    match found {
        Probe::Read(ProbeResult { busy: true, .. }) => {
            Err(AdminError::Array(HostError::Busy { object: path.display().to_string() }))
        }
        Probe::Read(ProbeResult { table, signatures, busy: false }) => {
            let signatures = signatures.into_iter().map(|found| found.kind);
            let tables = table.map(|table| format!("a {table} partition table"));
            let found: Vec<String> = tables.into_iter().chain(signatures).collect();
            match found.is_empty() {
                true => Ok(()),
                false => Err(AdminError::ArrayHolds { at: path.to_owned(), what: found.join(", ") }),
            }
        }
        Probe::Failed(why) => not_yet(format!("it is an array whose content could not be read: {why}")),
        Probe::NotRead => not_yet("it is an array whose content was not read".to_owned()),
    }
}

impl ArrayEnd {
    /// What becomes of it and of all of its members that are here.
    fn line(&self, ran: &Ran<()>) -> String {
        let Self { id, fate, built, members } = self;
        let path = |raw: &RawDisk| raw.path.display().to_string();
        let paths: Vec<String> = members.iter().map(|member| path(&member.shown().raw)).collect();
        let paths = paths.join(", ");
        let stopped = built.as_ref().map(|built| format!("{} {}", ran.tense("stop", "stopped"), path(built)));
        match (fate, stopped) {
            (ArrayFate::Blank, stopped) => {
                format!("{}, the blank array of {paths}, with all of them", stopped.unwrap_or_default())
            }
            (ArrayFate::Lost, stopped) => {
                let stopped = stopped.map_or_else(String::new, |stopped| format!("{stopped}, and "));
                let freed = ran.tense("free", "freed");
                format!(
                    "{stopped}{freed} {paths}: all disks that are here of the array {id}, which was given up and cannot be read \
                     without the others"
                )
            }
        }
    }
}

impl VerbPlan for Release {
    type Done = ();

    fn perform(&self, agent: &mut Reconciler) -> Result<(), AdminError> {
        match &self.array {
            Some(end) => agent.end_array(end),
            None => Ok(agent.give_up(&self.member)?),
        }
    }

    fn lines(&self, ran: &Ran<()>) -> Vec<String> {
        let (path, id) = (self.device.raw.path.display(), &self.device.id);
        let what = match &self.member {
            Member::Labelled(_) => ran.tense("wipe", "wiped") + " label and partition tables",
            Member::Filesystem(_) => ran.tense("wipe", "wiped") + " label, partition tables and filesystem",
            Member::Bare(_) => ran.tense("end", "ended") + " the bare claim",
        };
        let mut lines = vec![
            format!("{what} of {path} ({id})"),
            format!("no set claims it again until `localpool disk adopt {path}`"),
        ];
        lines.extend(self.array.as_ref().map(|end| end.line(ran)));
        lines.extend(self.given_up.iter().cloned());
        if self.is_known_by_path {
            lines.push(format!(
                "it has no serial or WWN: if it gets another path than {path}, a set that selects it may claim it"
            ));
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_array_that_could_not_be_read_is_asked_again_and_what_is_on_one_keeps_it() {
        let id = DiskId::named("md-1");
        let of = |found: Probe| holds_nothing(found, &id, Path::new("/dev/md127"));
        assert!(of(Probe::Read(ProbeResult::default())).is_ok());
        for unread in [Probe::Failed("Input/output error".to_owned()), Probe::NotRead] {
            let error = of(unread).expect_err("nobody knows what is on it");
            assert!(matches!(&error, AdminError::NotYet { disk, .. } if *disk == id), "{error}");
        }
        let table = ProbeResult { table: Some("gpt".to_owned()), ..ProbeResult::default() };
        assert!(matches!(of(Probe::Read(table)), Err(AdminError::ArrayHolds { .. })));
        let busy = ProbeResult { busy: true, ..ProbeResult::default() };
        assert!(matches!(of(Probe::Read(busy)), Err(AdminError::Array(_))));
    }
}
