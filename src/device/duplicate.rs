//! Several devices with one identity: a `dd` copy, a restored snapshot, two paths to one disk.
//!
//! Takes in all devices, changes only those that share an id with another. Of our disks, the one whose
//! hardware is on record in the label stays Ready; where none or several are, nobody can tell, and all
//! are NotReady. An unclaimed device that shares its id with anything becomes *Theirs*: there is another
//! way to it or another one of it, and somebody may use that.

use std::collections::HashMap;
use std::path::PathBuf;

use super::reason::Reason;
use super::{Device, Standing, Verdict, id};
use crate::host::raw::Kind;

/// Settles which device of each shared identity may be used. The order of `devices` does not matter.
pub fn settle(devices: &mut [Device]) {
    let mut by_id: HashMap<String, Vec<usize>> = HashMap::new();
    for (index, device) in devices.iter().enumerate().filter(|(_, device)| counts(device)) {
        by_id.entry(device.id.text.clone()).or_default().push(index);
    }
    for group in by_id.into_values().filter(|group| group.len() > 1) {
        settle_group(devices, &group);
    }
    follow_disks(devices);
}

/// The partitions of a pool disk follow it, and the hidden paths of a disk are the disk. What a tenant built on a volume
/// has whatever id he gave it.
fn counts(device: &Device) -> bool {
    match device.verdict {
        Verdict::Ours | Verdict::Foreign { .. } => device.label.is_some(),
        Verdict::Theirs(Reason::OnPoolVolume { .. }) => false,
        Verdict::Unclaimed | Verdict::Theirs(_) | Verdict::Unknown(_) => !matches!(device.raw.kind, Kind::Other(_)),
    }
}

fn settle_group(devices: &mut [Device], group: &[usize]) {
    let mut recorded = group.iter().copied().filter(|index| is_on_record(&devices[*index]));
    let believed = recorded.next().filter(|_| recorded.next().is_none());
    for &index in group.iter().filter(|index| Some(**index) != believed) {
        let mut others: Vec<PathBuf> =
            group.iter().filter(|other| **other != index).map(|other| devices[*other].raw.path.clone()).collect();
        others.sort();
        let trusted = believed.map(|index| devices[index].raw.path.clone());
        let device = &mut devices[index];
        let id = device.id.text.clone();
        match device.verdict {
            Verdict::Ours | Verdict::Foreign { .. } => {}
            Verdict::Theirs(_) | Verdict::Unknown(_) => continue,
            Verdict::Unclaimed => {
                device.verdict = Verdict::Theirs(Reason::SameIdentity { id, others });
                continue;
            }
        }
        let tail = match trusted {
            Some(path) => format!("; {} is the hardware that the label was written on", path.display()),
            None => "; which one the label was written on cannot be told: take the others away".to_owned(),
        };
        device.standing = Standing::NotReady(format!("{}{tail}", Reason::SameIdentity { id, others }));
    }
}

fn is_on_record(device: &Device) -> bool {
    let hardware = id::hardware(&device.raw, None);
    hardware.stable && device.label.as_ref().is_some_and(|label| label.hardware.id == hardware.text)
}

fn follow_disks(devices: &mut [Device]) {
    let not_ready: HashMap<String, Standing> = devices
        .iter()
        .filter(|device| device.standing != Standing::Ready)
        .map(|device| (device.raw.name.clone(), device.standing.clone()))
        .collect();
    for device in devices.iter_mut() {
        if let Kind::Partition(partition) = &device.raw.kind
            && let Some(standing) = not_ready.get(&partition.disk)
        {
            device.standing = standing.clone();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::DiskId;
    use super::super::sample::{device, disk, label, partition};
    use super::*;
    use crate::host::RawDisk;

    /// A disk of ours on hardware `naa.<number>`, with a label that was written on `naa.1`.
    fn ours(name: &str, number: u32) -> Device {
        let label = label("c", "n");
        let raw = RawDisk { wwid: Some(format!("naa.{number}")), ..disk(name) };
        let id = DiskId { text: format!("gpt-{}", label.disk), stable: true };
        Device { id, label: Some(label), ..device(raw, Verdict::Ours) }
    }

    fn ready(devices: &[Device]) -> Vec<&str> {
        devices.iter().filter(|d| d.standing == Standing::Ready).map(|d| d.raw.name.as_str()).collect()
    }

    #[test]
    fn the_disk_whose_hardware_is_on_record_stays_ready_and_its_copy_does_not() {
        for mut devices in [[ours("sda", 1), ours("sdb", 2)], [ours("sdb", 2), ours("sda", 1)]] {
            settle(&mut devices);
            assert_eq!(ready(&devices), ["sda"]);
            let copy = devices.iter().find(|device| device.raw.name == "sdb").unwrap();
            let Standing::NotReady(why) = &copy.standing else { unreachable!() };
            assert!(why.contains("/dev/sda is the hardware that the label was written on"), "{why}");
        }
    }

    #[test]
    fn where_none_or_two_are_on_record_nobody_is_ready() {
        for (one, two) in [(2, 3), (1, 1)] {
            let mut devices = [ours("sda", one), ours("sdb", two), ours("sdc", 4)];
            settle(&mut devices);
            assert_eq!(ready(&devices), Vec::<&str>::new(), "{one} {two}");
            assert!(devices.iter().all(|device| device.verdict == Verdict::Ours));
        }
    }

    #[test]
    fn hardware_known_only_by_path_proves_nothing() {
        let mut devices = [ours("sda", 9), ours("sdb", 9)];
        for device in &mut devices {
            device.raw.wwid = None;
            device.label.as_mut().unwrap().hardware.id = "path-/dev/sda".into();
        }
        settle(&mut devices);
        assert_eq!(ready(&devices), Vec::<&str>::new());
    }

    #[test]
    fn a_single_disk_is_ready_on_whatever_hardware_it_comes_back() {
        let mut devices = [ours("sda", 5)];
        settle(&mut devices);
        assert_eq!(ready(&devices), ["sda"]);
    }

    #[test]
    fn two_paths_to_an_unclaimed_disk_are_both_left_alone() {
        let path = |name| device(RawDisk { wwid: Some("naa.5000".into()), ..disk(name) }, Verdict::Unclaimed);
        let other = device(RawDisk { wwid: Some("naa.6000".into()), ..disk("sdz") }, Verdict::Unclaimed);
        let mut devices = [path("sda"), other, path("sdb")];
        settle(&mut devices);
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
        for other in [Verdict::Theirs(Reason::Busy), Verdict::Unknown("not looked at yet".into())] {
            let mut devices = [path("sda", Verdict::Unclaimed), path("sdb", other.clone())];
            settle(&mut devices);
            assert!(matches!(devices[0].verdict, Verdict::Theirs(Reason::SameIdentity { .. })), "{other:?}");
            assert_eq!(devices[1].verdict, other);
        }
        let hidden = RawDisk { kind: Kind::Other("hidden".into()), ..path("nvme0c0n1", Verdict::Unclaimed).raw };
        let mut devices = [path("nvme0n1", Verdict::Unclaimed), device(hidden, Verdict::Unknown("hidden".into()))];
        settle(&mut devices);
        assert_eq!(devices[0].verdict, Verdict::Unclaimed);
    }

    #[test]
    fn partitions_of_a_copy_follow_their_disk() {
        let mut devices = [ours("sda", 1), ours("sdb", 2)].to_vec();
        for name in ["sda", "sdb"] {
            let guid = Some("6c6f6361-0000-4000-8000-000000000001");
            devices.push(device(partition(name, 1, guid), Verdict::Ours));
        }
        settle(&mut devices);
        assert_eq!(ready(&devices), ["sda", "sda1"]);
    }
}
