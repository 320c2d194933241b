//! All decisions of a pass, as values. Pure.
//!
//! Takes in what was observed, what the pool has and what an election chose; gives out what is done, in its order.
//! There are five decisions: which members come and go (`come_and_go`), to which sets members belong (`belong`), which
//! of the elected disks are claimed (`claims`), whose content goes (`wipes`), and which members are released
//! (`release`). They are separate, as each sees the pool as the actions of the one before have left it: a disk that has
//! just come back counts for its set, nothing is wiped in a pass that has claimed a disk, and a disk that is released
//! in this pass counted for its set in the election.

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::claim::{ElectedClaim, ElectedWipe, Promise, Reclaim, Rule, promised};
use crate::device::{
    Believed, Device, DiskId, HardwareId, Reason, Snapshot, Verdict, id,
    label::{ArrayPlace, Layout, SetRef},
};
use crate::host::{DeviceKind, KernelName, RawDisk, is_unchanged};

/// The members of the pool, as far as a pass decides on them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Members {
    pub labelled: Vec<Labelled>,
    /// Bare devices of the journal, by id: as which device each is open; `None`: it is not.
    pub bare: BTreeMap<DiskId, Option<RawDisk>>,
    /// Hardware ids of the disks with our label, those that are away too, by disk id.
    pub hardware: BTreeMap<DiskId, HardwareId>,
}

/// A disk with our label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Labelled {
    pub id: DiskId,
    /// As which device it is or was here.
    pub raw: RawDisk,
    /// Bytes, as its table says.
    pub size: u64,
    pub is_usable: bool,
    pub is_missing: bool,
}

/// Something to be done to a member. Devices are named by their place in the snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// The disk is gone: its handle is given up, and what was on it stays known.
    Leave {
        id: DiskId,
    },
    /// The disk is here and must not be used.
    Refuse {
        at: usize,
        why: String,
    },
    /// The disk is here, and what is on it cannot be read: its handle is given up, and nothing takes its place.
    Withhold {
        id: DiskId,
        at: usize,
        why: String,
    },
    /// The disk is opened, and joins or comes back.
    Open {
        at: usize,
    },
    OpenBare {
        id: DiskId,
        at: usize,
    },
    /// Its device is gone, or nobody can tell which of several it is.
    LeaveBare {
        id: DiskId,
    },
    /// The set of the member is this one now: what is written of it changes.
    Rename {
        id: DiskId,
        set: SetRef,
    },
    /// The member offers by this rule from now on; `None`: it offers nothing.
    Offer {
        id: DiskId,
        rule: Option<Arc<Rule>>,
    },
    /// The disk is blank afterwards, and of no set.
    Release {
        id: DiskId,
    },
}

/// What becomes of the content of a disk that is nobody's, and that its set orders to be destroyed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ContentAction {
    /// It is destroyed.
    Wipe { at: usize, wipe: ElectedWipe },
    /// It stays on the disk all the same.
    Spare { wipe: ElectedWipe, why: Reason },
}

/// The first actions: members leave, arrive and are refused. `claims_under_way` has the kernel names of disks that this
/// agent is claiming.
pub fn come_and_go(snapshot: &Snapshot, members: &Members, claims_under_way: &BTreeSet<KernelName>) -> Vec<Action> {
    let mut actions = Vec::new();
    for member in &members.labelled {
        // One whose claim has just ended is seen by the next pass.
        let is_here = claims_under_way.contains(&member.raw.name)
            || snapshot.devices.iter().any(|device| is_same_device(device, &member.id, &member.raw));
        if member.is_missing || is_here {
            continue;
        }
        let is_unread = |device: &Device| device.unread.is_some() && is_same_node(device, &member.raw);
        match snapshot.devices.iter().position(is_unread) {
            Some(at) => actions.push(withhold(snapshot, &member.id, at)),
            None => actions.push(Action::Leave { id: member.id.clone() }),
        }
    }
    for (id, hardware) in &members.hardware {
        let is_withheld =
            actions.iter().any(|action| matches!(action, Action::Withhold { id: withheld, .. } if withheld == id));
        let is_here = members.labelled.iter().any(|member| member.id == *id && !member.is_missing);
        let is_it = |device: &Device| {
            device.unread.is_some()
                && !id::may_be_of_bridge(&device.raw, None)
                && id::hardware_id(&device.raw, None) == *hardware
        };
        if let (false, false, Some(at)) = (is_withheld, is_here, snapshot.devices.iter().position(is_it)) {
            actions.push(withhold(snapshot, id, at));
        }
    }
    // An array is opened after its members.
    let is_array = |device: &Device| matches!(device.raw.kind, DeviceKind::Md(_));
    let (arrays, disks): (Vec<_>, Vec<_>) = snapshot.devices.iter().enumerate().partition(|(_, one)| is_array(one));
    for (at, device) in disks.into_iter().chain(arrays) {
        if device.verdict != Verdict::Ours || device.label.is_none() {
            continue;
        }
        let known = members.labelled.iter().find(|member| member.id == device.id);
        match &device.believed {
            Believed::No(why) => actions.push(Action::Refuse { at, why: why.clone() }),
            Believed::Yes if known.is_some_and(|member| is_open_as(member, device)) => {}
            Believed::Yes => actions.push(Action::Open { at }),
        }
    }
    for (id, open_as) in &members.bare {
        actions.extend(match indices_of(snapshot, id)[..] {
            [at] if open_as.as_ref().is_some_and(|was| is_unchanged(was, &snapshot.devices[at].raw)) => None,
            [at] => Some(Action::OpenBare { id: id.clone(), at }),
            _ => Some(Action::LeaveBare { id: id.clone() }),
        });
    }
    actions
}

fn withhold(snapshot: &Snapshot, id: &DiskId, at: usize) -> Action {
    let why = snapshot.devices[at].unread.clone().unwrap_or_default();
    Action::Withhold { id: id.clone(), at, why }
}

/// Whether `device` is the disk `id` on the very device that `raw` was.
pub fn is_same_device(device: &Device, id: &DiskId, raw: &RawDisk) -> bool {
    device.id == *id && device.verdict == Verdict::Ours && is_same_node(device, raw)
}

/// Whether `device` is the very device that `raw` was, whatever is on it.
pub fn is_same_node(device: &Device, raw: &RawDisk) -> bool {
    (device.raw.incarnation(), &device.raw.name) == (raw.incarnation(), &raw.name)
}

fn is_open_as(member: &Labelled, device: &Device) -> bool {
    member.is_usable && member.size == device.raw.whole_sectors() && is_same_device(device, &member.id, &member.raw)
}

/// The places of the bare device with this id in the snapshot. A device that a tenant built on our disks does not
/// count: the tenant may have given it that id.
pub fn indices_of(snapshot: &Snapshot, id: &DiskId) -> Vec<usize> {
    let is_it = |device: &Device| {
        let is_built =
            matches!(device.verdict, Verdict::Theirs(Reason::OnPoolVolume { .. } | Reason::OnGivenUp { .. }));
        !is_built && snapshot.bare_id(device) == *id
    };
    (0..snapshot.devices.len()).filter(|at| is_it(&snapshot.devices[*at])).collect()
}

/// The layouts of sets that a bare device may belong to: one that takes whole disks takes partitions and mapped devices
/// as they are.
pub const OF_BARE: [Layout; 2] = [Layout::RawDevice {}, Layout::Whole {}];

/// A member, as far as it decides to which set it belongs, and whether it is released.
#[derive(Clone, Debug)]
pub struct Owned {
    pub id: DiskId,
    /// The set that claimed it, as the label or the journal says.
    pub set: SetRef,
    /// The layouts of sets that it may belong to, the likeliest first.
    pub layouts: Vec<Layout>,
    /// It can be read and written now.
    pub is_ready: bool,
    /// Its record of its set can be changed now.
    pub is_writable: bool,
    /// It had volumes, has none any more, and nothing of them is still to be erased.
    pub is_done_with: bool,
    /// The rule by which it offers space now.
    pub rule: Option<Arc<Rule>>,
}

/// Each member offers by the set that it names: by UID, else by name and layout. Then the new UID is written.
pub fn belong(members: &[Owned], rules: &[Arc<Rule>]) -> Vec<Action> {
    let mut actions = Vec::new();
    for member in members {
        let owner = owner(&member.set, &member.layouts, rules);
        if let Some(rule) = owner.filter(|rule| rule.set != member.set && member.is_writable) {
            actions.push(Action::Rename { id: member.id.clone(), set: rule.set.clone() });
        }
        if member.rule.as_ref().map(Arc::as_ptr) != owner.map(Arc::as_ptr) {
            actions.push(Action::Offer { id: member.id.clone(), rule: owner.cloned() });
        }
    }
    actions
}

/// A set that reclaims by release releases a disk when its last volume is gone and erased.
pub fn release(members: &[Owned]) -> Vec<Action> {
    let releases = |member: &&Owned| member.rule.as_ref().is_some_and(|rule| rule.reclaim == Reclaim::Release);
    let done_with = members.iter().filter(|member| member.is_done_with && member.is_ready).filter(releases);
    done_with.map(|member| Action::Release { id: member.id.clone() }).collect()
}

/// The set that owns a disk of one of these layouts: by UID, else another one of the same name and layout, which was
/// made after that was deleted.
pub fn owner<'r, R: Borrow<Rule>>(set: &SetRef, layouts: &[Layout], rules: &'r [R]) -> Option<&'r R> {
    let same_name = |of: &SetRef| of.has_name_of(set);
    let with = |layout: &Layout| {
        rules.iter().find(|rule| {
            let Rule { set, layout: its, array, .. } = Borrow::<Rule>::borrow(*rule);
            let is_its_member = layout.member().is_some_and(|place| *array == Some(place.level));
            same_name(set) && (its == layout || is_its_member)
        })
    };
    let by_uid = rules.iter().find(|rule| Borrow::<Rule>::borrow(*rule).set.uid == set.uid);
    by_uid.or_else(|| layouts.iter().find_map(with))
}

/// The disks on which zeros had to be, and were not found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ZeroCheck {
    /// Sets that chose a disk which holds something: each chooses again in the next pass, as its counts hold for disks
    /// that it may have.
    pub wrong: BTreeSet<SetRef>,
    /// Kernel names of the disks that could not be read.
    pub unread: BTreeSet<KernelName>,
}

/// Which of the elected disks are claimed. `has`: how many disks each set has. The disks that a set takes for an array are
/// claimed in the order of their places, each as the member of one.
pub fn claims(
    chosen: Vec<ElectedClaim>,
    read: &ZeroCheck,
    rules: &[Rule],
    has: &BTreeMap<SetRef, u32>,
    places: impl Fn(&Rule, usize) -> Vec<ArrayPlace>,
) -> Vec<ElectedClaim> {
    let elected = |set: &SetRef| chosen.iter().filter(|claim| claim.set == *set).count();
    let all: BTreeMap<SetRef, usize> = rules.iter().map(|rule| (rule.set.clone(), elected(&rule.set))).collect();
    let stands = |claim: &ElectedClaim| !read.wrong.contains(&claim.set) && !read.unread.contains(&claim.name);
    let stand: Vec<ElectedClaim> = chosen.into_iter().filter(stands).collect();
    // The first disks of a set are claimed together, or not yet: those that could not be read may be of no use to it.
    let is_enough = |claim: &&ElectedClaim| {
        let rule = rules.iter().find(|rule| rule.set == claim.set);
        let least = rule.map_or(0, |rule| rule.min_devices.min(rule.max_devices.unwrap_or(u32::MAX)));
        let now = stand.iter().filter(|other| other.set == claim.set).count();
        // An array never gets a member more.
        let are_all = rule.is_none_or(|rule| rule.array.is_none()) || all.get(&claim.set) == Some(&now);
        has.contains_key(&claim.set) || are_all && u32::try_from(now).unwrap_or(u32::MAX) >= least
    };
    let mut claims: Vec<ElectedClaim> = stand.iter().filter(is_enough).cloned().collect();
    for rule in rules.iter().filter(|rule| rule.array.is_some()) {
        let of_array: Vec<&mut ElectedClaim> = claims.iter_mut().filter(|claim| claim.set == rule.set).collect();
        for (claim, place) in of_array.into_iter().zip(places(rule, all.get(&rule.set).copied().unwrap_or(0))) {
            claim.layout = Layout::Member(place);
        }
    }
    // Never a disk by itself, where it was to be a member.
    let is_array = |set: &SetRef| rules.iter().any(|rule| rule.set == *set && rule.array.is_some());
    claims.retain(|claim| claim.layout.member().is_some() || !is_array(&claim.set));
    claims
}

/// What another provisioner promised a device in, its disk or one of its partitions.
pub fn promise_of(promises: &[Promise], device: &Device, snapshot: &Snapshot) -> Option<Reason> {
    let all: Vec<&RawDisk> = snapshot.devices.iter().map(|device| &device.raw).collect();
    promised(promises, &device.raw, &all)
}

/// A device that looks free and is promised by another provisioner is theirs.
pub fn with_promises(snapshot: &Snapshot, promises: &[Promise]) -> Snapshot {
    let judged = |device: &Device| {
        let why = match device.verdict {
            Verdict::Unclaimed => promise_of(promises, device, snapshot),
            Verdict::Ours | Verdict::Foreign { .. } | Verdict::Theirs(_) | Verdict::Unknown(_) => None,
        };
        Device { verdict: why.map_or_else(|| device.verdict.clone(), Verdict::Theirs), ..device.clone() }
    };
    Snapshot { at: snapshot.at, devices: snapshot.devices.iter().map(judged).collect() }
}

/// The content of a disk may be the data of a volume that another provisioner gave out.
pub fn wipes(chosen: Vec<ElectedWipe>, promises: &[Promise], snapshot: &Snapshot) -> Vec<ContentAction> {
    let decided = |wipe: ElectedWipe| {
        let at = snapshot.devices.iter().position(|device| device.raw.name == wipe.name)?;
        Some(match promise_of(promises, &snapshot.devices[at], snapshot) {
            Some(why) => ContentAction::Spare { wipe, why },
            None => ContentAction::Wipe { at, wipe },
        })
    };
    chosen.into_iter().filter_map(decided).collect()
}

#[cfg(test)]
mod tests;
