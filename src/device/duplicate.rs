//! Several devices with one identity: a `dd` copy, a restored snapshot, two paths to one disk.
//!
//! Takes in all devices and what is known of the hardware of our disks; changes the devices that share an id with
//! another, and those that are known copies. Of several with the id of one of our disks, the one that was in use last
//! is believed, as it has what was written last. If nobody remembers, it is the one whose own label names its hardware.
//! If that fits none or several, nobody can know, and none is believed. What was seen beside the believed one is a copy
//! from then on: even if it is alone later, it is not believed until a person adopts it. The same holds for a device
//! that comes while the disk itself is here and cannot be read, for as long as that lasts. An unclaimed device that
//! shares its id with anything becomes *Theirs*: it is reached in two ways or exists twice, and somebody may use the
//! other one.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::disk_id::{DiskId, HardwareId};
use super::id;
use super::judged::{Believed, Device, Verdict};
use super::reason::Reason;
use crate::host::{DeviceKind, KernelName, RawDisk};

/// Which hardware is one of our disks, and which was only seen beside it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Identity {
    /// The hardware that was in use last, or that a person chose.
    pub original: Option<HardwareId>,
    /// None of these takes the place of the original by itself.
    pub copies: BTreeSet<HardwareId>,
}

pub type Identities = BTreeMap<DiskId, Identity>;

/// Settles which device of each identity may be used. The order of `devices` does not matter.
pub fn settle(devices: &mut [Device], known: &Identities) {
    let unknown = Identity::default();
    for (id, group) in groups(devices, counts) {
        let identity = known.get(&id).unwrap_or(&unknown);
        match group[..] {
            [alone] => settle_alone(&mut devices[alone], identity),
            _ => settle_group(devices, &group, identity),
        }
    }
    follow_disks(devices);
}

/// What these devices, settled, say of the hardware of each of our disks that is there several times. Two paths to one
/// disk are not copies.
pub fn seen_together(devices: &[Device]) -> Identities {
    let ours = |device: &Device| device.verdict == Verdict::Ours && device.label.is_some();
    let mut identities = Identities::new();
    for (id, group) in groups(devices, ours).into_iter().filter(|(_, group)| group.len() > 1) {
        let believed = group.iter().copied().find(|index| devices[*index].believed == Believed::Yes);
        let others = |index: usize| match believed {
            Some(believed) => vec![believed],
            None => group.iter().copied().filter(|other| *other != index).collect(),
        };
        let is_copy = |index: &usize| {
            let own = ways(devices, &devices[*index]);
            Some(*index) != believed && others(*index).iter().all(|o| ways(devices, &devices[*o]).is_disjoint(&own))
        };
        let copies =
            group.iter().copied().filter(is_copy).filter_map(|index| stable_hardware_id(&devices[index].raw)).collect();
        identities.insert(
            id,
            Identity { original: believed.and_then(|index| stable_hardware_id(&devices[index].raw)), copies },
        );
    }
    identities
}

/// The stable ids of a device's hardware, and those of the paths that a multipath device is made of.
fn ways(devices: &[Device], device: &Device) -> BTreeSet<HardwareId> {
    let below = devices.iter().filter(|below| device.raw.slaves.contains(&below.raw.name));
    below.chain([device]).filter_map(|way| stable_hardware_id(&way.raw)).collect()
}

/// The hardware id of one of our disks, if it distinguishes the disk from others.
pub fn stable_hardware_id(raw: &RawDisk) -> Option<HardwareId> {
    Some(id::hardware_id(raw, None)).filter(|hardware| !hardware.is_path())
}

fn groups(devices: &[Device], which: impl Fn(&Device) -> bool) -> HashMap<DiskId, Vec<usize>> {
    let mut by_id: HashMap<DiskId, Vec<usize>> = HashMap::new();
    for (index, device) in devices.iter().enumerate().filter(|(_, device)| which(device)) {
        by_id.entry(device.id.clone()).or_default().push(index);
    }
    by_id
}

/// Not the partitions of a pool disk, which follow it, and not the hidden paths of a disk, which are the disk. What a
/// tenant built on a volume has whatever id the tenant gave it.
fn counts(device: &Device) -> bool {
    match device.verdict {
        Verdict::Ours | Verdict::Foreign { .. } => device.label.is_some(),
        Verdict::Theirs(Reason::OnPoolVolume { .. } | Reason::OnGivenUp { .. }) => false,
        Verdict::Unclaimed | Verdict::Theirs(_) | Verdict::Unknown(_) => {
            !matches!(device.raw.kind, DeviceKind::Other(_))
        }
    }
}

fn is_known_copy(device: &Device, identity: &Identity) -> bool {
    let ours = device.verdict == Verdict::Ours && device.label.is_some();
    ours && stable_hardware_id(&device.raw).is_some_and(|hardware| identity.copies.contains(&hardware))
}

fn settle_alone(device: &mut Device, identity: &Identity) {
    if !is_known_copy(device, identity) {
        return;
    }
    let (id, path) = (&device.id, device.raw.path.display());
    device.believed = Believed::No(match &identity.original {
        Some(original) => format!(
            "a copy of the pool disk {id}: it was seen together with the original ({original}), and never replaces it \
             automatically; bring the original back, or, if that is impossible, use this one instead: `localpool disk \
             adopt {path}`"
        ),
        None => format!(
            "one of several devices with the identity {id} that were seen together, and it is not known which one is \
             the disk: `localpool disk adopt {path}` chooses this one"
        ),
    });
}

/// The one that may be used. The one in use last comes before what a label says: if a disk was replaced by a copy of
/// it, both may be on record, and the one that comes back is the older one.
fn believed(devices: &[Device], group: &[usize], identity: &Identity) -> Option<usize> {
    let eligible: Vec<usize> =
        group.iter().copied().filter(|index| !is_known_copy(&devices[*index], identity)).collect();
    let is_original = |index: &usize| identity.original == Some(id::hardware_id(&devices[*index].raw, None));
    let used: Vec<usize> = eligible.iter().copied().filter(is_original).collect();
    let recorded: Vec<usize> = eligible.into_iter().filter(|index| is_on_record(&devices[*index])).collect();
    match (&used[..], &recorded[..]) {
        ([one], _) | ([], [one]) => Some(*one),
        _ => None,
    }
}

fn settle_group(devices: &mut [Device], group: &[usize], identity: &Identity) {
    let believed = believed(devices, group, identity);
    let trusted = believed.map(|index| {
        let why = if is_on_record(&devices[index]) { "that the label was written on" } else { "that is in use" };
        format!("; {} is the hardware {why}", devices[index].raw.path.display())
    });
    for &index in group.iter().filter(|index| Some(**index) != believed) {
        let mut others: Vec<PathBuf> =
            group.iter().filter(|other| **other != index).map(|other| devices[*other].raw.path.clone()).collect();
        others.sort();
        let device = &mut devices[index];
        let id = device.id.clone();
        match device.verdict {
            Verdict::Ours | Verdict::Foreign { .. } => {}
            Verdict::Theirs(_) | Verdict::Unknown(_) => continue,
            Verdict::Unclaimed => {
                device.verdict = Verdict::Theirs(Reason::SameIdentity { id, others });
                continue;
            }
        }
        let tail = trusted.clone().unwrap_or_else(|| {
            let path = device.raw.path.display();
            format!("; it is not known which of them is the disk: `localpool disk adopt {path}` chooses this one")
        });
        device.believed = Believed::No(format!("{}{tail}", Reason::SameIdentity { id, others }));
    }
}

/// The arrays whose members are here, and which nobody has started: they are no devices, and have their data all the same.
fn stopped_arrays(devices: &[Device]) -> Vec<(HardwareId, (PathBuf, String))> {
    let here: BTreeSet<HardwareId> = devices.iter().map(|device| id::hardware_id(&device.raw, None)).collect();
    let stopped = |device: &Device| {
        let array = device.label.as_ref()?.layout.member()?.array;
        let hardware = HardwareId::named(format!("md-{}", array.hyphenated()));
        let why = "is a member of it, which is not started".to_owned();
        (!here.contains(&hardware)).then(|| (hardware, (device.raw.path.clone(), why)))
    };
    devices.iter().filter(|device| device.verdict == Verdict::Ours).filter_map(stopped).collect()
}

/// A disk that is here and cannot be read has the data, whatever else has its id. `last` is the hardware that each of
/// our disks was last on, even if that is only a path.
pub fn settle_unread(devices: &mut [Device], last: &BTreeMap<DiskId, HardwareId>) {
    let mut unread: HashMap<HardwareId, (PathBuf, String)> = devices
        .iter()
        // A dock gives its name to whatever disk is in it: that this one cannot be read says nothing about an earlier
        // one.
        .filter(|device| !id::may_be_of_bridge(&device.raw, None))
        .filter_map(|device| {
            let hardware = id::hardware_id(&device.raw, None);
            Some((hardware, (device.raw.path.clone(), device.unread.clone()?)))
        })
        .collect();
    unread.extend(stopped_arrays(devices));
    let is_ours = |device: &&mut Device| device.verdict == Verdict::Ours && device.believed == Believed::Yes;
    for device in devices.iter_mut().filter(is_ours) {
        let Some(label) = &device.label else { continue };
        let used = last.get(&device.id).cloned();
        let written_on = || Some(label.hardware.id.clone()).filter(|hardware| !hardware.is_path());
        let original = used.or_else(written_on).filter(|hardware| *hardware != id::hardware_id(&device.raw, None));
        if let Some((at, why)) = original.and_then(|hardware| unread.get(&hardware)) {
            let (id, path) = (&device.id, device.raw.path.display());
            device.believed = Believed::No(format!(
                "a copy of the pool disk {id}: the original is present, as {at}, and {why}; repair or unplug the \
                 original, or use this one instead: `localpool disk adopt {path}`",
                at = at.display()
            ));
        }
    }
    follow_disks(devices);
}

fn is_on_record(device: &Device) -> bool {
    let recorded = device.label.as_ref().map(|label| &label.hardware.id);
    recorded.is_some() && stable_hardware_id(&device.raw).as_ref() == recorded
}

fn follow_disks(devices: &mut [Device]) {
    let not_ready: HashMap<KernelName, Believed> = devices
        .iter()
        .filter(|device| device.believed != Believed::Yes)
        .map(|device| (device.raw.name.clone(), device.believed.clone()))
        .collect();
    for device in devices.iter_mut() {
        if let DeviceKind::Partition(partition) = &device.raw.kind
            && let Some(believed) = not_ready.get(&partition.disk)
        {
            device.believed = believed.clone();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::sample::{device, disk, dm, label, partition};
    use super::*;

    /// One of our disks on hardware `naa.<number>`, with a label that was written on `naa.1`.
    fn ours(name: &str, number: u32) -> Device {
        let label = label("c", "n");
        let raw = RawDisk { wwid: Some(format!("naa.{number}")), ..disk(name) };
        let id = DiskId::labelled(label.disk);
        Device { id, label: Some(label.into()), ..device(raw, Verdict::Ours) }
    }

    fn ready(devices: &[Device]) -> Vec<&str> {
        devices.iter().filter(|d| d.believed == Believed::Yes).map(|d| d.raw.name.as_str()).collect()
    }

    #[test]
    fn the_disk_whose_hardware_is_on_record_stays_ready_and_its_copy_does_not() {
        for mut devices in [[ours("sda", 1), ours("sdb", 2)], [ours("sdb", 2), ours("sda", 1)]] {
            settle(&mut devices, &Identities::new());
            assert_eq!(ready(&devices), ["sda"]);
            let copy = devices.iter().find(|device| device.raw.name == "sdb").unwrap();
            let Believed::No(why) = &copy.believed else { unreachable!() };
            assert!(why.contains("/dev/sda is the hardware that the label was written on"), "{why}");
        }
    }

    #[test]
    fn where_none_or_two_are_on_record_nobody_is_ready() {
        for (one, two) in [(2, 3), (1, 1)] {
            let mut devices = [ours("sda", one), ours("sdb", two), ours("sdc", 4)];
            settle(&mut devices, &Identities::new());
            assert_eq!(ready(&devices), Vec::<&str>::new(), "{one} {two}");
            assert!(devices.iter().all(|device| device.verdict == Verdict::Ours));
        }
    }

    #[test]
    fn hardware_known_only_by_path_proves_nothing() {
        let mut devices = [ours("sda", 9), ours("sdb", 9)];
        for device in &mut devices {
            device.raw.wwid = None;
            Arc::make_mut(device.label.as_mut().unwrap()).hardware.id = HardwareId::named("path-/dev/sda");
        }
        settle(&mut devices, &Identities::new());
        assert_eq!(ready(&devices), Vec::<&str>::new());
    }

    fn naa(number: &str) -> HardwareId {
        HardwareId::named(format!("wwid-naa.{number}"))
    }

    fn known(original: &str, copies: &[&str]) -> Identities {
        let copies = copies.iter().map(|copy| naa(copy)).collect();
        let identity = Identity { original: Some(naa(original)), copies };
        Identities::from([(DiskId::labelled(label("c", "n").disk), identity)])
    }

    fn ready_with(known: &Identities, mut devices: Vec<Device>) -> Vec<String> {
        settle(&mut devices, known);
        ready(&devices).into_iter().map(str::to_owned).collect()
    }

    #[test]
    fn a_known_copy_is_not_ready_also_when_it_is_alone() {
        let copied = known("1", &["2"]);
        assert_eq!(ready_with(&copied, vec![ours("sdb", 2)]), [] as [&str; 0]);
        assert_eq!(ready_with(&copied, vec![ours("sda", 1)]), ["sda"]);
        assert_eq!(ready_with(&copied, vec![ours("sdc", 3)]), ["sdc"], "on other hardware, and never seen beside it");
        let mut alone = [ours("sdb", 2)];
        settle(&mut alone, &copied);
        let Believed::No(why) = &alone[0].believed else { unreachable!() };
        assert!(why.contains("(wwid-naa.1)") && why.contains("`localpool disk adopt /dev/sdb`"), "{why}");
    }

    #[test]
    fn the_hardware_that_is_in_use_is_believed_beside_others_where_the_label_names_none_of_them() {
        assert_eq!(ready_with(&known("5", &[]), vec![ours("sda", 5), ours("sdb", 2)]), ["sda"], "re-cabled");
        assert_eq!(ready_with(&known("5", &["2"]), vec![ours("sda", 6), ours("sdb", 2)]), [] as [&str; 0]);
        // Adopted: the old original is a copy, though the label names it.
        assert_eq!(ready_with(&known("2", &["1"]), vec![ours("sda", 1), ours("sdb", 2)]), ["sdb"]);
        assert_eq!(
            ready_with(&known("5", &[]), vec![ours("sda", 1), ours("sdb", 5)]),
            ["sdb"],
            "what came back is older"
        );
    }

    #[test]
    fn what_is_seen_beside_the_believed_disk_is_a_copy_and_another_way_to_it_is_none() {
        let copies = |mut devices: Vec<Device>| {
            settle(&mut devices, &Identities::new());
            let identity = seen_together(&devices).into_values().next().unwrap_or_default();
            (identity.original, identity.copies.iter().map(HardwareId::as_str).collect::<Vec<_>>().join(" "))
        };
        let one = || Some(naa("1"));
        assert_eq!(copies(vec![ours("sda", 1)]), (None, String::new()));
        assert_eq!(copies(vec![ours("sda", 1), ours("sdb", 2)]), (one(), "wwid-naa.2".to_owned()));
        assert_eq!(copies(vec![ours("sda", 2), ours("sdb", 3)]), (None, "wwid-naa.2 wwid-naa.3".to_owned()));
        assert_eq!(copies(vec![ours("sda", 1), ours("sdb", 1)]), (None, String::new()), "two paths");
        let mut multipath = Device { raw: dm("dm-0", "mpath-1", &["sdb"]), ..ours("dm-0", 1) };
        let member = device(ours("sdb", 1).raw, Verdict::Theirs(Reason::Busy));
        assert_eq!(copies(vec![ours("sda", 1), multipath.clone(), member.clone()]), (one(), String::new()));
        multipath.raw.slaves.clear();
        assert_eq!(copies(vec![ours("sda", 1), multipath, member]), (one(), "dm-mpath-1".to_owned()));
        let mut elsewhere = ours("sdb", 2);
        elsewhere.verdict = Verdict::Foreign { cluster: "c".into(), node: "other".into() };
        assert_eq!(copies(vec![ours("sda", 1), elsewhere]), (None, String::new()), "it joins no pool by itself");
    }

    #[test]
    fn a_single_disk_is_ready_on_whatever_hardware_it_comes_back() {
        let mut devices = [ours("sda", 5)];
        settle(&mut devices, &Identities::new());
        assert_eq!(ready(&devices), ["sda"]);
    }

    #[test]
    fn two_paths_to_an_unclaimed_disk_are_both_left_alone() {
        let path = |name| device(RawDisk { wwid: Some("naa.5000".into()), ..disk(name) }, Verdict::Unclaimed);
        let other = device(RawDisk { wwid: Some("naa.6000".into()), ..disk("sdz") }, Verdict::Unclaimed);
        let mut devices = [path("sda"), other, path("sdb")];
        settle(&mut devices, &Identities::new());
        let Verdict::Theirs(reason) = &devices[0].verdict else { unreachable!() };
        assert_eq!(
            reason.to_string(),
            "has the same identity (wwid-naa.5000) as /dev/sdb: a copy, or another path to the same disk"
        );
        assert!(matches!(devices[2].verdict, Verdict::Theirs(_)));
        assert_eq!(devices[1].verdict, Verdict::Unclaimed);
    }

    #[test]
    fn an_unclaimed_disk_with_a_path_that_is_theirs_or_unknown_is_left_alone() {
        let path = |name, verdict| device(RawDisk { wwid: Some("naa.5000".into()), ..disk(name) }, verdict);
        for other in [Verdict::Theirs(Reason::Busy), Verdict::Unknown("not read yet".into())] {
            let mut devices = [path("sda", Verdict::Unclaimed), path("sdb", other.clone())];
            settle(&mut devices, &Identities::new());
            assert!(matches!(devices[0].verdict, Verdict::Theirs(Reason::SameIdentity { .. })), "{other:?}");
            assert_eq!(devices[1].verdict, other);
        }
        let hidden = RawDisk { kind: DeviceKind::Other("hidden".into()), ..path("nvme0c0n1", Verdict::Unclaimed).raw };
        let mut devices = [path("nvme0n1", Verdict::Unclaimed), device(hidden, Verdict::Unknown("hidden".into()))];
        settle(&mut devices, &Identities::new());
        assert_eq!(devices[0].verdict, Verdict::Unclaimed);
    }

    #[test]
    fn partitions_of_a_copy_follow_their_disk() {
        let mut devices = [ours("sda", 1), ours("sdb", 2)].to_vec();
        for name in ["sda", "sdb"] {
            let guid = Some("6c6f6361-0000-4000-8000-000000000001");
            devices.push(device(partition(name, 1, guid), Verdict::Ours));
        }
        settle(&mut devices, &Identities::new());
        assert_eq!(ready(&devices), ["sda", "sda1"]);
    }
}
