//! Arrays that end with a disk which is given up: what is on an array is on all of its members.
//!
//! Takes in the disk that is away; gives out what is given up with it, and what a person can do with the rest.

use std::collections::BTreeSet;

use super::error::AdminError;
use crate::agent::array::{SeenArray, remainder};
use crate::agent::reconciler::Reconciler;
use crate::device::{Device, DiskId, HardwareId, Snapshot, duplicate::stable_hardware_id, label::ArrayPlace};
use crate::pool::{DiskView, GivenUpMember, Standing};

/// Goes on after the volume's name.
pub(super) const GIVEN_UP: &str = "is given up: deleting it succeeds, and erases nothing";

/// An array that cannot be used without a disk that is given up, or that is given up itself.
pub(super) struct ArrayLoss {
    pub id: DiskId,
    /// Those of its disks that are given up, the array too.
    pub away: Vec<DiskId>,
}

/// A member that was given up.
struct GivenUp {
    /// From 0.
    place: u32,
    /// Empty: nothing tells it from another disk.
    hardware: BTreeSet<HardwareId>,
}

/// Whether a disk that cannot be read may be a member of the array: where all of them are known, it would have to be one
/// that was given up.
fn may_be_member(device: &Device, array: &SeenArray<'_>, given_up: &[GivenUp]) -> bool {
    let count = array.members.first().map_or(u32::MAX, |first| first.place.count);
    let places: BTreeSet<u32> =
        array.members.iter().map(|member| member.place.place).chain(given_up.iter().map(|one| one.place)).collect();
    let is_each_known = (0..count).all(|place| places.contains(&place));
    let Some(hardware) = stable_hardware_id(&device.raw) else { return true };
    let is_other =
        |one: &GivenUp| !one.hardware.is_empty() && one.hardware.iter().all(|its| hardware.is_surely_other(its));
    !is_each_known || !given_up.iter().all(is_other)
}

impl Reconciler {
    /// A device that is left of an array without all of its members: nobody uses it.
    pub(super) fn is_left_of_an_array(&self, snapshot: &Snapshot, device: &Device) -> bool {
        let is_it = |array: &SeenArray<'_>| match remainder(array, snapshot) {
            Some(Ok(left)) => left.is_some_and(|left| left.raw.name == device.raw.name),
            Some(Err(_)) | None => false,
        };
        self.arrays(snapshot).iter().any(is_it)
    }

    /// The array that is lost with a disk that is away. `None`: there is none, or it is in the pool.
    pub(super) fn array_loss(&self, view: &DiskView) -> Option<ArrayLoss> {
        let array = view.array.or_else(|| view.member_of())?;
        let views = self.pool().disk_views();
        let whole = views.iter().find(|one| one.array == Some(array));
        let is_of_members = views.iter().any(|one| one.member_of() == Some(array));
        if !is_of_members || whole.is_some_and(|whole| whole.standing != Standing::Missing) {
            return None;
        }
        let away: BTreeSet<DiskId> = whole.into_iter().chain([view]).map(|one| one.id.clone()).collect();
        Some(ArrayLoss { id: DiskId::of_array(array), away: away.into_iter().collect() })
    }

    /// An array of which members are away that the journal does not know, by the id that it has without a label.
    pub(super) fn unknown_array_loss(&mut self, id: &DiskId) -> Result<Option<ArrayLoss>, AdminError> {
        let snapshot = self.scan()?;
        let is_it = |array: &&SeenArray<'_>| {
            let is_called = array.members.iter().any(|member| DiskId::of_array(member.place.array) == *id);
            is_called && remainder(array, &snapshot).is_some()
        };
        let arrays = self.arrays(&snapshot);
        let Some(array) = arrays.iter().find(is_it) else { return Ok(None) };
        if let Some(why) = self.may_be_here(&snapshot, array) {
            return Err(AdminError::NotYet { disk: id.clone(), why });
        }
        Ok(Some(ArrayLoss { id: id.clone(), away: Vec::new() }))
    }

    /// Why a member that nobody knows of may be here all the same: what cannot be read is not away, and a copy of one
    /// that was given up has its data.
    pub(super) fn may_be_here(&self, snapshot: &Snapshot, array: &SeenArray<'_>) -> Option<String> {
        let uuid = array.members.first()?.place.array;
        let is_known = |device: &Device| array.members.iter().any(|member| member.id == device.id);
        let is_of_it = |device: &&Device| {
            let place = device.label.as_ref().and_then(|label| label.layout.member());
            place.is_some_and(|place| place.array == uuid) && !is_known(device)
        };
        let labelled = snapshot.devices.iter().find(is_of_it).map(|device| {
            format!("{} has the label of a member of its array, and cannot be used now", device.raw.path.display())
        });
        labelled.or_else(|| {
            let given_up = self.given_up_members(array);
            let may_be = |device: &Device| !is_known(device) && may_be_member(device, array, &given_up);
            let (device, why) = self.unread_of_sets(snapshot).find(|(device, _)| may_be(device))?;
            Some(format!(
                "{} may be a member of its array, and {why}; unplug it if it is not",
                device.raw.path.display()
            ))
        })
    }

    /// The members of an array that the journal knows as given up, each with all hardware that it was seen on, copies too.
    fn given_up_members(&self, array: &SeenArray<'_>) -> Vec<GivenUp> {
        let journal = self.pool().journal();
        let identities = journal.identities();
        let is_of_it = |place: &ArrayPlace| array.members.first().is_some_and(|first| first.place.array == place.array);
        let members = journal.given_up_members().into_iter().filter(|(_, member)| is_of_it(&member.place));
        let with_hardware = members.map(|(id, GivenUpMember { place, hardware })| {
            let identity = identities.get(&id).cloned().unwrap_or_default();
            let hardware = hardware.into_iter().chain(identity.original).chain(identity.copies).collect();
            GivenUp { place: place.place, hardware }
        });
        with_hardware.collect()
    }

    /// The consequences for the array of a disk that is given up, and for the other members.
    pub(super) fn notes_on_loss(&self, disk: &DiskId, ArrayLoss { id, away }: &ArrayLoss) -> Vec<String> {
        let mut notes = Vec::new();
        for (whole, known) in self.pool().journal().known(|known| known != disk && away.contains(known)) {
            notes.push(format!("the array {whole} is given up with it"));
            let volumes = known.volumes.into_iter().flatten();
            notes.extend(volumes.map(|volume| format!("volume {volume} {GIVEN_UP}")));
        }
        let views = self.pool().disk_views();
        let place = |view: &DiskView| view.layout.member().filter(|place| DiskId::of_array(place.array) == *id);
        let here = views.iter().filter(|view| place(view).is_some() && view.standing == Standing::Ready);
        notes.extend(here.min_by_key(|view| place(view).map(|place| place.place)).map(|view| {
            let id = &view.id;
            format!("`localpool disk release {id}`, or the order Release, frees the disks of the array that are here")
        }));
        notes
    }
}
