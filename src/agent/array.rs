//! What becomes of an array of disks of the pool: it is made once, started after a boot, and claimed for its set. Pure.
//!
//! Takes in what the members say and which md devices are built on them; gives out the next step, or what is in the way.
//! An array that may hold data is never made again: people learn what is not there, or is not as the labels say.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use uuid::Uuid;

use crate::device::{
    Device, DiskId, Reason, Snapshot, Verdict,
    label::{ArrayPlace, MEMBER_NUMBER, SetRef},
};
use crate::host::{DeviceKind, KernelName, Md, RawDisk};

/// Bytes that are on one member before those of the next one: md's own choice.
pub const CHUNK: u64 = 512 << 10;

/// A disk with the label of a member, here or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenMember {
    pub id: DiskId,
    /// As which device it is here; `None`: it is away.
    pub name: Option<KernelName>,
    pub place: ArrayPlace,
    pub set: SetRef,
    pub is_made: bool,
    pub is_used: bool,
    /// The node of its partition; `None`: the disk cannot be used now.
    pub node: Option<PathBuf>,
}

/// What the set of an array, as it is now, lets the agent do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permission {
    /// Its set is there, and claims on this node.
    Claims,
    /// Nobody asks for it, or a person released it: what is there is started, and nothing is made.
    Starts,
    /// The same, and a person gave it up: without all of its members they may be released.
    GivenUp,
}

/// An array, and what is built on its members.
#[derive(Clone, Debug)]
pub struct SeenArray<'s> {
    pub members: Vec<SeenMember>,
    /// The md devices that have a member of it, with their places in the snapshot.
    pub built: Vec<(usize, &'s Device)>,
    pub permission: Permission,
}

/// What is done next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ArrayStep {
    Nothing,
    /// It stays so until somebody does something.
    Stays(String),
    /// It may be over without an event.
    Waits(String),
    /// The array is made of these nodes, in this order.
    Make(Vec<PathBuf>),
    Start(Vec<PathBuf>),
    /// An md device that is built on members of the array alone, and does not run.
    Stop {
        at: usize,
    },
    /// The array runs, and its members do not say yet that it was made. `is_fresh`: what was on them before may still be
    /// seen in it.
    Settle {
        at: usize,
        is_fresh: bool,
    },
    Claim {
        at: usize,
    },
}

/// All arrays that the disks of the pool are members of, by their UUIDs.
pub fn arrays<'s>(
    members: Vec<SeenMember>,
    snapshot: &'s Snapshot,
    permission: impl Fn(&SeenMember) -> Permission,
) -> Vec<SeenArray<'s>> {
    let mut by_array: BTreeMap<Uuid, Vec<SeenMember>> = BTreeMap::new();
    for member in members {
        by_array.entry(member.place.array).or_default().push(member);
    }
    let seen = |mut members: Vec<SeenMember>| {
        members.sort_by_key(|member| (member.place.place, member.id.clone()));
        let built = snapshot.devices.iter().enumerate().filter(|(_, device)| is_built_on(device, &members, snapshot));
        let built = built.collect();
        let permission = members.first().map_or(Permission::Starts, &permission);
        SeenArray { members, built, permission }
    };
    by_array.into_values().map(seen).collect()
}

fn is_built_on(device: &Device, members: &[SeenMember], snapshot: &Snapshot) -> bool {
    matches!(device.raw.kind, DeviceKind::Md(_)) && device.raw.slaves.iter().any(|name| is_of(name, members, snapshot))
}

/// Whether a device is the partition of one of these members.
fn is_of(name: &KernelName, members: &[SeenMember], snapshot: &Snapshot) -> bool {
    let found = snapshot.devices.iter().find(|device| device.raw.name == *name);
    let partition = found.and_then(|device| device.raw.kind.partition());
    partition.is_some_and(|partition| {
        partition.number == MEMBER_NUMBER && members.iter().any(|member| member.name.as_ref() == Some(&partition.disk))
    })
}

/// The disks that an md device is an array of, by their labels.
pub fn members_below(snapshot: &Snapshot, at: usize) -> Vec<DiskId> {
    let RawDisk { kind: DeviceKind::Md(_), slaves, .. } = &snapshot.devices[at].raw else { return Vec::new() };
    let named = |name: &KernelName| snapshot.devices.iter().find(|device| device.raw.name == *name);
    let member = |slave: &KernelName| {
        let disk = named(&named(slave)?.raw.kind.partition()?.disk)?;
        disk.label.as_ref()?.layout.member().map(|_| disk.id.clone())
    };
    slaves.iter().filter_map(member).collect()
}

/// The next step of one array.
pub fn next(array: &SeenArray<'_>, snapshot: &Snapshot) -> ArrayStep {
    let SeenArray { members, built, permission } = array;
    if let Err(why) = complete(members) {
        return ArrayStep::Stays(with_way_out(why, array));
    }
    let nodes: Option<Vec<PathBuf>> = members.iter().map(|member| member.node.clone()).collect();
    let Some(nodes) = nodes else { return ArrayStep::Stays(unusable(members)) };
    let (some_made, all_made) =
        (members.iter().any(|member| member.is_made), members.iter().all(|member| member.is_made));
    let all_used = members.iter().all(|member| member.is_used);
    let claims = *permission == Permission::Claims;
    match built[..] {
        [] if some_made => ArrayStep::Start(nodes),
        [] if claims => ArrayStep::Make(nodes),
        [] => ArrayStep::Nothing,
        [(at, device)] => match &device.verdict {
            Verdict::Theirs(Reason::OfSet { .. }) if !all_made || !all_used => match claims || some_made {
                true => ArrayStep::Settle { at, is_fresh: !some_made },
                false => ArrayStep::Nothing,
            },
            Verdict::Theirs(Reason::OfSet { .. }) if claims => ArrayStep::Claim { at },
            Verdict::Theirs(Reason::OfSet { .. }) | Verdict::Ours | Verdict::Foreign { .. } => ArrayStep::Nothing,
            Verdict::Unknown(why) => ArrayStep::Waits(format!("the array {}: {why}", device.raw.name)),
            Verdict::Theirs(_) | Verdict::Unclaimed => of_others(at, device, members, snapshot),
        },
        ref several => {
            let names: Vec<&str> = several.iter().map(|(_, device)| device.raw.name.as_str()).collect();
            ArrayStep::Stays(format!("several arrays are built on its members: {}", names.join(", ")))
        }
    }
}

/// An array that is not the one of the labels. What a member came late for, or was lost for while it ran, is put out of
/// the way: nobody gets anything from it, and md says so if somebody has it open.
fn of_others(at: usize, device: &Device, members: &[SeenMember], snapshot: &Snapshot) -> ArrayStep {
    match is_remainder(device, members, snapshot) {
        true => ArrayStep::Stop { at },
        false => ArrayStep::Stays(of_somebody(&device.raw.name)),
    }
}

/// What is left of an array, of these members alone.
fn is_remainder(device: &Device, members: &[SeenMember], snapshot: &Snapshot) -> bool {
    // sysfs still lists a member that was pulled out, and nothing has its name before the array lets go of it.
    let is_gone = |slave: &KernelName| snapshot.devices.iter().all(|device| device.raw.name != *slave);
    let (ours, rest): (Vec<&KernelName>, Vec<&KernelName>) =
        device.raw.slaves.iter().partition(|slave| is_of(slave, members, snapshot));
    let is_over = |state: &str| ["inactive", "broken"].contains(&state);
    let is_over = matches!(&device.raw.kind, DeviceKind::Md(Md { state: Some(state), .. }) if is_over(state));
    let count = members.first().map_or(0, |first| usize::try_from(first.place.count).unwrap_or(usize::MAX));
    let lacks_some = is_named_as(&device.raw, members) && ours.len() < count;
    (is_over || lacks_some) && rest.into_iter().all(is_gone)
}

fn of_somebody(name: &KernelName) -> String {
    format!(
        "{name} is built on it, and is not the array that the labels of its members name: find out who made it; \
         `mdadm --stop /dev/{name}` ends it"
    )
}

/// What is left of an array that misses members which nobody waits for. `None`: nobody knows a member less than it has. An
/// error says what else is built on the members.
pub fn remainder<'s>(array: &SeenArray<'s>, snapshot: &Snapshot) -> Option<Result<Option<&'s Device>, String>> {
    let SeenArray { members, built, permission: _ } = array;
    if missing(members).is_empty() {
        return None;
    }
    Some(match built[..] {
        [] => Ok(None),
        [(_, device)] if is_remainder(device, members, snapshot) => Ok(Some(device)),
        [(_, device), ..] => Err(of_somebody(&device.raw.name)),
    })
}

fn with_way_out(why: String, array: &SeenArray<'_>) -> String {
    let here =
        array.members.iter().find(|member| member.name.is_some()).filter(|_| !missing(&array.members).is_empty());
    match (array.permission, here) {
        (Permission::GivenUp, Some(here)) => {
            let id = &here.id;
            format!("{why}; it was given up: `localpool disk release {id}` frees all of its disks that are here")
        }
        (Permission::GivenUp | Permission::Claims | Permission::Starts, _) => why,
    }
}

/// Whether md calls it the array that the labels of these members name.
fn is_named_as(raw: &RawDisk, members: &[SeenMember]) -> bool {
    let DeviceKind::Md(Md { uuid: Some(uuid), .. }) = &raw.kind else { return false };
    let Ok(uuid) = Uuid::try_parse(uuid) else { return false };
    members.first().is_some_and(|member| member.place.array == uuid)
}

/// Whether all members are known, each once, and say the same.
fn complete(members: &[SeenMember]) -> Result<(), String> {
    let Some(first) = members.first() else { return Err("it has no members".to_owned()) };
    let ArrayPlace { array, count, .. } = first.place;
    let same = |member: &SeenMember| ArrayPlace { place: 0, ..member.place } == ArrayPlace { place: 0, ..first.place };
    if let Some(other) = members.iter().find(|member| !same(member)) {
        return Err(format!("{} and {} say different things of the array {array}", first.id, other.id));
    }
    if let Some(pair) = members.windows(2).find(|pair| pair[0].place.place == pair[1].place.place) {
        let [one, other] = [&pair[0], &pair[1]].map(|member| &member.id);
        return Err(format!(
            "{one} and {other} are both {}: `localpool disk release` of the one that is not wanted ends that",
            pair[0].place
        ));
    }
    let missing = missing(members);
    if !missing.is_empty() {
        let places: Vec<String> = missing.iter().map(|place| (place + 1).to_string()).collect();
        let places = places.join(", ");
        return Err(format!(
            "the array {array} misses member {places} of {count}, and nothing on it can be used without all of them"
        ));
    }
    // The array held something once, and here it looks as if it had not been made.
    match members.iter().find(|member| member.is_used && !member.is_made && member.node.is_some()) {
        Some(earlier) => Err(format!(
            "{} has a partition table from before its array was made: the array is neither started nor made again",
            earlier.id
        )),
        None => Ok(()),
    }
}

fn missing(members: &[SeenMember]) -> Vec<u32> {
    let here: BTreeSet<u32> = members.iter().map(|member| member.place.place).collect();
    let count = members.first().map_or(0, |first| first.place.count);
    (0..count).filter(|place| !here.contains(place)).collect()
}

fn unusable(members: &[SeenMember]) -> String {
    let away = members.iter().filter(|member| member.node.is_none());
    let ids: Vec<String> = away.map(|member| format!("{} (member {})", member.id, member.place.place + 1)).collect();
    format!("its array needs all of its members, and these cannot be used now: {}", ids.join(", "))
}

/// The places of an array that other disks may take: nothing was made yet, and the disks that had them were never
/// labelled. Of a member that is away, or cannot be read, nobody knows whether the array was made: it counts as one
/// that may hold data.
pub fn open_places(members: &[SeenMember]) -> Vec<ArrayPlace> {
    let is_untouched = members.iter().all(|member| member.name.is_some() && !member.is_made && !member.is_used);
    let Some(first) = members.first().filter(|_| is_untouched) else { return Vec::new() };
    missing(members).into_iter().map(|place| ArrayPlace { place, ..first.place }).collect()
}

#[cfg(test)]
mod tests;
