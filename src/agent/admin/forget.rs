//! `localpool disk give-up`, and `disk release` of a disk that is away, or that the journal does not know. Nothing can
//! be wiped there: the pool stops waiting for it, and for what was on it.
//!
//! Takes in its id; gives out what was done or would be.

use super::error::AdminError;
use super::find::{FoundDevice, is_called};
use super::lost_array::{ArrayLoss, GIVEN_UP};
use super::plan::{Ran, VerbPlan};
use crate::agent::{
    question::{VolumesUnknown, Wanted},
    reconciler::Reconciler,
    verb::Run,
};
use crate::device::{Believed, Device, DiskId, may_be_hardware};
use crate::pool::{DiskView, LostClaim, LostVolume, Member, PoolError, ReportedVolume, Standing, VolumeView};

/// The fate of a disk with our label that was not dead.
const HELD: &str = "if it comes back, nothing on it is offered, used or erased until `localpool disk adopt`";

/// A disk that the pool waits for no more.
pub(super) struct GivingUp {
    disk: DiskId,
    known: KnownAs,
    /// The array that is lost with it.
    array: Option<ArrayLoss>,
    /// The consequences for the disk and for the volumes on it.
    notes: Vec<String>,
}

/// Where the pool has the disk.
enum KnownAs {
    Missing {
        /// Its last path, in brackets.
        was: String,
    },
    /// A bare device that PoolVolumes have, and the journal has not.
    Lost,
    /// A labelled disk that PoolVolumes have, and the journal has not.
    Unknown,
    /// An array that misses members which the journal does not know.
    Array,
}

impl Reconciler {
    /// The verb that does nothing to a disk that is here: `release` wipes one that has no volume.
    pub(super) fn give_up_named(&mut self, text: &str, run: Run) -> Result<Vec<String>, AdminError> {
        self.pool().journal().sound().map_err(PoolError::from)?;
        if let Ok(FoundDevice { snapshot, device, member }) = self.find(text)
            && device.believed == Believed::Yes
            && !self.is_missing(text)
            && !self.is_left_of_an_array(&snapshot, &device)
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

    /// Never gives up a disk that is here, in whatever state, and does not wait until it is missing.
    pub(super) fn give_up_missing(&mut self, disk: &DiskId, run: Run) -> Result<Vec<String>, AdminError> {
        let snapshot = self.scan()?;
        // A copy of it is another disk.
        let is_it = |device: &&Device| device.believed == Believed::Yes && is_called(&snapshot, device, disk);
        let is_whole = |device: &&Device| !self.is_left_of_an_array(&snapshot, device);
        if let Some(device) = snapshot.devices.iter().filter(is_it).find(is_whole) {
            let why = "the node has it".to_owned();
            return Err(AdminError::Here { disk: disk.clone(), at: device.raw.path.clone(), why });
        }
        match self.forget(disk, run) {
            Err(AdminError::NoSuchDisk(_)) if self.pool().journal().has_given_up(disk) => {
                Ok(vec![format!("{disk} is given up")])
            }
            done => done,
        }
    }

    /// A disk that is away, by its id.
    pub(super) fn forget(&mut self, id: &DiskId, run: Run) -> Result<Vec<String>, AdminError> {
        let plan = self.giving_up(id)?;
        self.run(&plan, run)
    }

    fn giving_up(&mut self, id: &DiskId) -> Result<GivingUp, AdminError> {
        let known = self.pool().disk_views().into_iter().find(|disk| disk.id == *id);
        let Some(view) = known else {
            return match self.unknown_array_loss(id)? {
                Some(array) => {
                    let notes = self.notes_on_loss(id, &array);
                    Ok(GivingUp { disk: id.clone(), known: KnownAs::Array, array: Some(array), notes })
                }
                None => self.giving_up_unknown(id),
            };
        };
        let (place, array) = (place_of(&view), self.array_loss(&view));
        let DiskView { path, standing, .. } = view;
        match standing {
            Standing::Missing => {}
            Standing::NotReady(why) => {
                let why = format!("{why}; to give it up, unplug it first");
                return Err(AdminError::Here { disk: id.clone(), at: path, why });
            }
            Standing::Ready if id.is_filesystem() => {
                let why = "the filesystem is mounted there".to_owned();
                return Err(AdminError::Here { disk: id.clone(), at: path, why });
            }
            Standing::Ready => return Err(AdminError::NoSuchDisk(id.to_string())),
        }
        let was = match path.as_os_str().is_empty() {
            true => String::new(),
            false => format!(" (it was {})", path.display()),
        };
        let mut notes = vec![place.to_owned()];
        match self.pool().member(id) {
            // Nothing on a bare device says that it was ours.
            Some(Member::Bare(member)) => {
                let adopt = format!("if it comes back, no set claims it until `localpool disk adopt {id}`");
                match member.view() {
                    Some(VolumeView { id, record, .. }) => {
                        let name = record.map_or_else(String::new, |record| record.name);
                        notes.push(format!("volume {id} ({name}) is given up; its data stays on the device"));
                        notes.push(adopt + ", and then only if it is blank");
                    }
                    None => notes.push(adopt),
                }
                notes.extend(self.pool().journal().contradiction(id).iter().flat_map(LostClaim::volumes).map(given_up));
            }
            Some(Member::Labelled(_) | Member::Filesystem(_)) | None => {
                let known = self.pool().journal().known(|known| known == id).into_iter();
                for volume in known.filter_map(|(_, known)| known.volumes).flatten() {
                    notes.push(format!("volume {volume} {GIVEN_UP}"));
                }
                notes.push(HELD.to_owned());
            }
        }
        notes.extend(array.iter().flat_map(|array| self.notes_on_loss(id, array)));
        Ok(GivingUp { disk: id.clone(), known: KnownAs::Missing { was }, array, notes })
    }

    /// The consequences of a release of a disputed bare device for the volume that its PoolVolume has there.
    pub(super) fn given_up_with(&self, id: &DiskId) -> Vec<String> {
        let Some(reported) = self.pool().journal().contradiction(id) else { return Vec::new() };
        let stays = "the content of the device stays unchanged; sets claim the device only if it is blank";
        reported.volumes().map(given_up).chain([stays.to_owned()]).collect()
    }

    pub(super) fn has_lost(&self, id: &DiskId) -> bool {
        self.pool().journal().lost().contains_key(id)
    }

    /// A bare device that PoolVolumes have and the journal does not, here or away.
    pub(super) fn giving_up_lost(&self, id: &DiskId) -> GivingUp {
        let lost = self.pool().journal().lost().remove(id).unwrap_or_default();
        let mut notes: Vec<String> = lost.volumes().map(given_up).collect();
        if lost.volume.is_none() {
            notes.push("if it has a volume, that volume is given up; this node does not know which one".to_owned());
        }
        notes.push(format!("no set claims it until `localpool disk adopt {id}`, and then only if it is blank"));
        GivingUp { disk: id.clone(), known: KnownAs::Lost, array: None, notes }
    }

    /// The volumes that PoolVolumes name now. The journal gets them in a dry run as well, because they are a fact.
    fn reported_volumes(&mut self) -> Result<Vec<ReportedVolume>, VolumesUnknown> {
        let volumes = self.ask(Wanted::Volumes)?.volumes?;
        self.learn_volumes(Ok(volumes.clone()))?;
        Ok(volumes)
    }

    /// One that is not in the journal: it died before that was lost, or before the state that was put back. PoolVolumes
    /// may name it.
    fn giving_up_unknown(&mut self, id: &DiskId) -> Result<GivingUp, AdminError> {
        let reported =
            self.reported_volumes().map_err(|source| AdminError::VolumesNotRead { disk: id.clone(), source })?;
        if self.has_lost(id) {
            return Ok(self.giving_up_lost(id));
        }
        let on: Vec<ReportedVolume> = reported.into_iter().filter(|reported| reported.disk == *id).collect();
        if on.is_empty() {
            return Err(AdminError::NoSuchDisk(id.to_string()));
        }
        let mut notes: Vec<String> = on.iter().filter_map(|reported| reported.volume.as_ref()).map(given_up).collect();
        if !may_be_hardware(id.as_str()) {
            notes.push(HELD.to_owned());
        }
        Ok(GivingUp { disk: id.clone(), known: KnownAs::Unknown, array: None, notes })
    }
}

impl VerbPlan for GivingUp {
    type Done = ();

    fn perform(&self, agent: &mut Reconciler) -> Result<(), AdminError> {
        let Self { disk, known, array, notes: _ } = self;
        if let Some(ArrayLoss { id, away }) = array {
            return match agent.pool().forget_array(id, away)? {
                true => Ok(()),
                false => Err(AdminError::NoSuchDisk(disk.to_string())),
            };
        }
        match known {
            KnownAs::Missing { .. } => match agent.pool().forget(disk)? {
                true => Ok(()),
                false => Err(AdminError::NoSuchDisk(disk.to_string())),
            },
            KnownAs::Lost => Ok(agent.pool().journal().release(disk).map_err(PoolError::from)?),
            KnownAs::Array => Ok(()),
            KnownAs::Unknown => Ok(agent.pool().journal().let_go_unknown(disk).map_err(PoolError::from)?),
        }
    }

    fn lines(&self, ran: &Ran<()>) -> Vec<String> {
        let Self { disk, known, array: _, notes } = self;
        let gave = ran.tense("give up", "gave up");
        let what = match known {
            KnownAs::Missing { was } => format!("{gave} {disk}, which is missing{was}"),
            KnownAs::Lost => format!("{gave} the bare device {disk}, which the journal did not know"),
            KnownAs::Unknown => format!("{gave} {disk}, which the journal did not know"),
            KnownAs::Array => format!("{gave} the array {disk}, of which members are missing"),
        };
        [what].into_iter().chain(notes.iter().cloned()).collect()
    }
}

/// Who may follow the disk in its set.
fn place_of(view: &DiskView) -> &'static str {
    match (view.member_of(), view.array) {
        (Some(_), _) => "no disk takes its place in its array, and what was on the array is lost with it",
        (None, Some(_)) => "it is an array: its set takes no disk here before the members are out of the pool, too",
        (None, None) => "another disk may take its place in the set",
    }
}

fn given_up(volume: &LostVolume) -> String {
    let LostVolume { id, record, .. } = volume;
    format!("volume {id} ({}) {GIVEN_UP}", record.name)
}
