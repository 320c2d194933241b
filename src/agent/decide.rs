//! What a pass does, as values. Pure.
//!
//! Takes in what was observed and what the pool has; gives out actions, which are performed in their order. Here is which members
//! come and go; whose they are is in `owner`, and which disks are claimed and wiped in `taking`. Each is decided on what the one before
//! made: a disk that has just come back counts for its set, and one that has just been claimed is no other set's.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::claim::{Elected, Rule, Wipe};
use crate::device::discovery::Snapshot;
use crate::device::label::SetRef;
use crate::device::reason::Reason;
use crate::device::{Believed, Device, DiskId, HardwareId, Verdict, id};
use crate::host::raw::is_unchanged;
use crate::host::{KernelName, RawDisk};

/// What the pool has, as far as a pass decides on it.
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
    /// The disk is gone: its handle is given up, and what it held stays known.
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
    /// A free disk is claimed.
    Claim(Elected),
    /// What is on a disk is destroyed.
    Wipe {
        at: usize,
        wipe: Wipe,
    },
    /// A disk keeps what is on it, though its set orders a wipe.
    Spare {
        wipe: Wipe,
        why: Reason,
    },
    /// The disk is blank afterwards, and of no set.
    GiveBack {
        id: DiskId,
    },
}

/// What comes first: members leave, arrive and are refused. `claims_under_way` has the kernel names of disks that this
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
        let is_told = actions.iter().any(|action| matches!(action, Action::Withhold { id: told, .. } if told == id));
        let is_here = members.labelled.iter().any(|member| member.id == *id && !member.is_missing);
        let is_it = |device: &Device| {
            device.unread.is_some()
                && !id::may_be_of_bridge(&device.raw, None)
                && id::hardware(&device.raw, None) == *hardware
        };
        if let (false, false, Some(at)) = (is_told, is_here, snapshot.devices.iter().position(is_it)) {
            actions.push(withhold(snapshot, id, at));
        }
    }
    for (at, device) in snapshot.devices.iter().enumerate() {
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
        actions.extend(match places_of(snapshot, id)[..] {
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

/// Where a bare device of this id is in the snapshot. What a tenant built on our disks is none, though he may have given it the id
/// of one.
pub fn places_of(snapshot: &Snapshot, id: &DiskId) -> Vec<usize> {
    let is_it = |device: &Device| {
        let is_built =
            matches!(device.verdict, Verdict::Theirs(Reason::OnPoolVolume { .. } | Reason::OnGivenUp { .. }));
        !is_built && snapshot.bare_id(device) == *id
    };
    (0..snapshot.devices.len()).filter(|at| is_it(&snapshot.devices[*at])).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::device::sample::{disk, label, unclaimed};

    /// A disk of ours, by its kernel name.
    fn ours(name: &str) -> Device {
        let label = label("c", "n");
        Device {
            id: DiskId::labelled(label.disk),
            verdict: Verdict::Ours,
            label: Some(label.into()),
            ..unclaimed(name)
        }
    }

    fn snapshot(devices: Vec<Device>) -> Snapshot {
        Snapshot { at: Duration::ZERO, devices }
    }

    fn member(device: &Device) -> Labelled {
        Labelled {
            id: device.id.clone(),
            raw: device.raw.clone(),
            size: device.raw.size,
            is_usable: true,
            is_missing: false,
        }
    }

    fn with(labelled: Vec<Labelled>) -> Members {
        Members { labelled, ..Members::default() }
    }

    fn decided(devices: Vec<Device>, members: &Members) -> Vec<Action> {
        come_and_go(&snapshot(devices), members, &BTreeSet::new())
    }

    #[test]
    fn a_labelled_disk_is_opened_once_and_again_when_it_has_changed_or_is_another_device() {
        let here = || ours("sda");
        let open = [Action::Open { at: 0 }];
        assert_eq!(decided(vec![here()], &Members::default()), open);
        assert_eq!(decided(vec![here()], &with(vec![member(&here())])), []);
        let unusable = Labelled { is_usable: false, ..member(&here()) };
        assert_eq!(decided(vec![here()], &with(vec![unusable])), open);
        let grown = Labelled { size: 1, ..member(&here()) };
        assert_eq!(decided(vec![here()], &with(vec![grown])), open);
        // Under another name: it left, and comes back.
        let moved = ours("sdb");
        let id = moved.id.clone();
        assert_eq!(decided(vec![moved], &with(vec![member(&here())])), [Action::Leave { id }, Action::Open { at: 0 }]);
    }

    #[test]
    fn a_disk_that_is_away_leaves_once_and_not_while_its_claim_is_under_way() {
        let gone = member(&ours("sda"));
        let leave = [Action::Leave { id: gone.id.clone() }];
        assert_eq!(decided(vec![], &with(vec![gone.clone()])), leave);
        let missing = Labelled { is_missing: true, is_usable: false, ..gone.clone() };
        assert_eq!(decided(vec![], &with(vec![missing])), []);
        let claims_under_way = BTreeSet::from(["sda".into()]);
        assert_eq!(come_and_go(&snapshot(vec![]), &with(vec![gone]), &claims_under_way), []);
    }

    #[test]
    fn a_disk_that_must_not_be_used_is_refused_and_one_of_somebody_else_is_nobodys_business() {
        let copy = Device { believed: Believed::No("a copy".to_owned()), ..ours("sda") };
        assert_eq!(decided(vec![copy], &Members::default()), [Action::Refuse { at: 0, why: "a copy".to_owned() }]);
        let foreign = Device { verdict: Verdict::Theirs(Reason::Busy), ..ours("sda") };
        assert_eq!(decided(vec![foreign, unclaimed("sdb")], &Members::default()), []);
    }

    #[test]
    fn a_bare_device_is_opened_where_it_alone_has_the_id_and_left_where_none_or_two_have_it() {
        let device = |name: &str| Device { raw: RawDisk { serial: Some("S".into()), ..disk(name) }, ..unclaimed(name) };
        let id = snapshot(vec![]).bare_id(&device("sda"));
        let bare = |open_as| Members { bare: BTreeMap::from([(id.clone(), open_as)]), ..Members::default() };
        let leave = [Action::LeaveBare { id: id.clone() }];
        assert_eq!(decided(vec![device("sda")], &bare(None)), [Action::OpenBare { id: id.clone(), at: 0 }]);
        assert_eq!(decided(vec![device("sda")], &bare(Some(device("sda").raw))), []);
        assert_eq!(decided(vec![], &bare(Some(device("sda").raw))), leave);
        assert_eq!(decided(vec![device("sda"), device("sdb")], &bare(None)), leave);
        // A tenant's, inside of his volume.
        let on = Reason::OnPoolVolume { below: "/dev/sdx".into() };
        let built = Device { verdict: Verdict::Theirs(on), ..device("sda") };
        assert_eq!(decided(vec![built], &bare(None)), leave);
    }
}
