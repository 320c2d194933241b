//! Whether an md device is an array of our own disks. Its UUID alone says nothing: a tenant can write a superblock with
//! that UUID into a volume.
//!
//! Takes in the devices and what their disks say; gives out what it is. An array is ours if each device that it is built
//! on is the partition of a member of it, and all members are there.

use std::collections::{BTreeSet, HashMap};

use uuid::Uuid;

use super::evidence::Evidence;
use super::facts::{NO_ARRAY_UUID, NOT_READ};
use crate::device::disk_id::HardwareId;
use crate::device::id;
use crate::device::judged::Verdict;
use crate::device::label::{ArrayPlace, DATA_START, Label, MEMBER_NUMBER};
use crate::device::node_name::NodeName;
use crate::device::reason::Reason;
use crate::host::{DeviceKind, KernelName, Md, RawDisk};

/// What md says of an array that gives no data: of one that was begun, of one that was stopped, and of one that lost a
/// member.
const NOT_RUNNING: [&str; 3] = ["inactive", "clear", "broken"];

/// What an md device is, as far as our disks are concerned.
#[derive(Clone, Copy, Debug)]
pub enum Array<'r> {
    /// Built of just the members that our disks say it has; one of their labels.
    Ours(&'r Label),
    /// The same, but nobody says which array it is.
    NotNamed,
    /// Anything else, and what is no array.
    Other,
}

impl Array<'_> {
    /// Decided by the label on the array. Without one it belongs to the set of its members, and is never free.
    pub fn verdict(self, record: Option<&Evidence>, by_label: impl FnOnce() -> Option<Verdict>) -> Option<Verdict> {
        let label = match self {
            Self::Ours(label) => label,
            Self::NotNamed => return Some(Verdict::Unknown(NO_ARRAY_UUID.to_owned())),
            Self::Other => return None,
        };
        Some(by_label().unwrap_or_else(|| match record {
            Some(Evidence::Failed(why)) => Verdict::Unknown(format!("could not be read: {why}")),
            None => Verdict::Unknown(NOT_READ.to_owned()),
            Some(_) => Verdict::Theirs(Reason::OfSet { set: label.set.name.clone() }),
        }))
    }
}

/// The disks of this node that may be members of arrays.
pub struct MemberDisks<'m, C> {
    pub cluster: &'m str,
    pub node: &'m NodeName,
    pub by_name: &'m HashMap<&'m KernelName, &'m RawDisk>,
    /// Hardware ids that our disks are on, or were last; and of copies of them.
    pub ours: &'m BTreeSet<&'m HardwareId>,
    pub copies: &'m BTreeSet<&'m HardwareId>,
    pub records: &'m HashMap<&'m KernelName, Evidence>,
    /// Whether a disk is a path or a member of something else as a whole.
    pub is_component: C,
}

impl<'m, C: Fn(&RawDisk) -> bool> MemberDisks<'m, C> {
    pub fn array(&self, raw: &RawDisk) -> Array<'m> {
        let DeviceKind::Md(Md { uuid, level, state }) = &raw.kind else { return Array::Other };
        // What does not run is no array of anybody, whatever sysfs still lists below it.
        if state.as_deref().is_some_and(|state| NOT_RUNNING.contains(&state)) {
            return Array::Other;
        }
        let members: Option<Vec<(&'m Label, ArrayPlace)>> = raw.slaves.iter().map(|slave| self.member(slave)).collect();
        let Some(members) = members else { return Array::Other };
        let Some((label, first)) = members.first().copied() else { return Array::Other };
        let is_of_first = |(other, place): &(&Label, ArrayPlace)| {
            other.set.has_name_of(&label.set) && ArrayPlace { place: first.place, ..*place } == first
        };
        let places: BTreeSet<u32> = members.iter().map(|(_, place)| place.place).collect();
        let is_whole = members.len() == places.len() && u32::try_from(places.len()) == Ok(first.count);
        let is_level = level.as_deref() == Some(first.level.name());
        if !is_whole || !is_level || !members.iter().all(is_of_first) {
            return Array::Other;
        }
        match uuid.as_deref().map(Uuid::try_parse) {
            Some(Ok(uuid)) if uuid == first.array => Array::Ours(label),
            Some(_) => Array::Other,
            None => Array::NotNamed,
        }
    }

    /// The label of the disk whose member partition a device is, and its place, whatever array has it now.
    pub fn member(&self, name: &KernelName) -> Option<(&'m Label, ArrayPlace)> {
        let partition = self.by_name.get(name)?.kind.partition()?;
        let disk = *self.by_name.get(&partition.disk)?;
        let label = self.records.get(&disk.name)?.label()?;
        let is_own = (label.cluster.as_str(), &label.node) == (self.cluster, self.node) && !label.releasing;
        // A label in an array or in a mapped device is none that says who is a member of an array.
        let is_disk = matches!(disk.kind, DeviceKind::Disk | DeviceKind::Loop(_)) && !(self.is_component)(disk);
        // A copy of a member has its label, and md does not tell them apart either.
        let hardware = id::hardware_id(disk, None);
        let has_label = |other: &Evidence| other.label().is_some_and(|other| other.disk == label.disk);
        let is_only = || self.records.values().filter(|other| has_label(other)).count() == 1;
        let is_disk = is_disk && !self.copies.contains(&hardware) && (self.ours.contains(&hardware) || is_only());
        let is_entry = (partition.number, partition.start) == (MEMBER_NUMBER, DATA_START);
        label.layout.member().filter(|_| is_own && is_disk && is_entry).map(|place| (label.as_ref(), place))
    }
}

#[cfg(test)]
mod tests;
