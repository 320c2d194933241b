//! Which disks of the pool are members of which arrays, and which places an array has for others.
//!
//! Takes in the members of the pool and the sets; gives out values, on which `array` decides. It changes nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use uuid::Uuid;

use super::array::{CHUNK, Permission, SeenArray, SeenMember, arrays, open_places};
use super::known_disks::last_on;
use super::reconciler::Reconciler;
use crate::claim::{NodeMatch, Rule};
use crate::device::{
    Device, DiskId, Reason, Snapshot, Verdict,
    label::{ArrayPlace, SetRef},
};
use crate::pool::{Knowledge, KnownDisk, LabelledDisk, Unasked};

impl Reconciler {
    /// All arrays that disks of the pool are members of.
    pub(super) fn arrays<'s>(&self, snapshot: &'s Snapshot) -> Vec<SeenArray<'s>> {
        let journal = self.pool.journal();
        let released = journal.released();
        let permission = |member: &SeenMember| {
            let id = DiskId::of_array(member.place.array);
            if journal.has_given_up(&id) {
                return Permission::GivenUp;
            }
            let is_released = released.contains(&id);
            let claims = |rule: &&Arc<Rule>| {
                rule.set == member.set && rule.array.is_some() && !rule.dry_run && rule.node == NodeMatch::Selected
            };
            match self.rules.iter().any(|rule| claims(&rule)) && !is_released {
                true => Permission::Claims,
                false => Permission::Starts,
            }
        };
        arrays(self.array_members(), snapshot, permission)
    }

    /// The arrays that may have volumes which nobody can look for: what is on them was not read, and no journal says it.
    pub(super) fn unread_arrays(&self, snapshot: &Snapshot) -> Vec<Unasked> {
        let mut known: BTreeSet<DiskId> = last_on(&self.pool).into_values().map(DiskId::from).collect();
        known.extend(self.pool.journal().released());
        let unread = |array: SeenArray<'_>| {
            let held = array.members.iter().find(|member| member.is_used && member.node.is_some())?;
            let is_blank =
                |(_, built): &(usize, &Device)| matches!(built.verdict, Verdict::Theirs(Reason::OfSet { .. }));
            let disk = DiskId::of_array(held.place.array);
            // What was on one that was given up nobody waits for.
            let is_given_up = array.permission == Permission::GivenUp;
            let is_read = is_given_up || known.contains(&disk) || array.built.iter().any(is_blank);
            let why = format!("is the array that {} is a member of, and was not started yet", held.id);
            (!is_read).then(|| Unasked { disk, why, listed: BTreeSet::new(), knowledge: Knowledge::Part })
        };
        self.arrays(snapshot).into_iter().filter_map(unread).collect()
    }

    /// The disks of the pool that are members of arrays, those that are away too.
    fn array_members(&self) -> Vec<SeenMember> {
        let here = |disk: Arc<LabelledDisk>| {
            let shown = disk.shown();
            let member = shown.array_member()?;
            let is_usable = shown.is_usable();
            Some(SeenMember {
                id: disk.id.clone(),
                name: is_usable.then(|| shown.raw.name.clone()),
                place: member.place,
                set: shown.content.label.set.clone(),
                is_made: member.is_made,
                is_used: member.is_used,
                node: member.node.filter(|_| is_usable && !shown.content.label.given_up),
            })
        };
        // Whether its array was made only the disk itself says: it may have been, so nothing takes a place beside it.
        let away = |(id, known): (DiskId, KnownDisk)| {
            let place = known.layout.member()?;
            let (is_made, is_used) = (true, true);
            Some(SeenMember { id, name: None, place, set: known.set, is_made, is_used, node: None })
        };
        let labelled = self.pool.labelled_disks().into_iter().filter_map(here);
        labelled.chain(self.pool.absent().into_iter().filter_map(away)).collect()
    }

    /// The places that disks which a set takes now get: those that its array lacks, or all of a new one.
    pub(super) fn places(&self, rule: &Rule, count: usize) -> Vec<ArrayPlace> {
        let Some(level) = rule.array else { return Vec::new() };
        let open = self.open_by_set().remove(&rule.set);
        let Ok(count) = u32::try_from(count) else { return Vec::new() };
        open.unwrap_or_else(|| {
            let array = Uuid::new_v4();
            (0..count).map(|place| ArrayPlace { array, level, place, count, chunk: CHUNK }).collect()
        })
    }

    /// How many disks the array of each set lacks that has one.
    pub(super) fn open_places(&self) -> BTreeMap<SetRef, u32> {
        let open = self.open_by_set().into_iter();
        open.map(|(set, places)| (set, u32::try_from(places.len()).unwrap_or(u32::MAX))).collect()
    }

    /// The same, as places. A set that has no member of an array is not among them.
    fn open_by_set(&self) -> BTreeMap<SetRef, Vec<ArrayPlace>> {
        let mut by_array: BTreeMap<Uuid, Vec<SeenMember>> = BTreeMap::new();
        for member in self.array_members() {
            by_array.entry(member.place.array).or_default().push(member);
        }
        let mut open: BTreeMap<SetRef, Vec<ArrayPlace>> = BTreeMap::new();
        let under_way = |set: &SetRef| self.claims_under_way.values().any(|(_, of)| of == set);
        let released = self.pool.journal().released();
        for (array, members) in by_array {
            let Some(set) = members.first().map(|member| member.set.clone()) else { continue };
            // What is being claimed has a place that nobody sees yet; what a person ended is not made again.
            let id = DiskId::of_array(array);
            let is_whole = under_way(&set) || released.contains(&id) || self.pool.journal().has_given_up(&id);
            let places = if is_whole { Vec::new() } else { open_places(&members) };
            open.entry(set).or_default().extend(places);
        }
        open
    }
}
