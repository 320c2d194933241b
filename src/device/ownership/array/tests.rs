use std::sync::Arc;

use super::*;
use crate::device::label::{ArrayLevel, Layout};
use crate::device::ownership::{Machine, Owner};
use crate::device::sample::{blank, disk, label, md, partition};

const ARRAY: Uuid = Uuid::from_u128(0x0123_4567_89ab_4cde_8f10_3254_7698_ba01);
const MD: &str = "md127";

fn owner() -> Owner {
    Owner { cluster: "c".into(), node: "n".into() }
}

/// A machine of two disks that are members of one array, the array, a partition of it, and a disk with a volume.
struct Built {
    all: Vec<RawDisk>,
    labels: Vec<(&'static str, Evidence)>,
}

fn member_label(place: u32) -> Label {
    let place = ArrayPlace { array: ARRAY, level: ArrayLevel::Raid0, place, count: 2, chunk: 512 << 10 };
    let disk = Uuid::from_u128(u128::from(place.place) + 100);
    Label { disk, layout: Layout::Member(place), ..label("c", "n") }
}

fn member(name: &str) -> RawDisk {
    let raw = partition(name, MEMBER_NUMBER, None);
    let DeviceKind::Partition(own) = raw.kind.clone() else { unreachable!() };
    let kind = DeviceKind::Partition(crate::host::Partition { start: DATA_START, ..own });
    RawDisk { kind, holders: vec![MD.into()], ..raw }
}

fn array(slaves: &[&str]) -> RawDisk {
    let kind = DeviceKind::Md(Md {
        uuid: Some(ARRAY.to_string()),
        level: Some("raid0".to_owned()),
        state: Some("clean".to_owned()),
    });
    RawDisk { kind, ..md(MD, slaves) }
}

fn built() -> Built {
    let of = |name: &str, partitions: &[&str]| RawDisk {
        partitions: partitions.iter().map(|name| (*name).into()).collect(),
        ..disk(name)
    };
    let all = vec![
        of("sda", &["sda2"]),
        member("sda"),
        of("sdb", &["sdb2"]),
        member("sdb"),
        array(&["sda2", "sdb2"]),
        partition(MD, 2, None),
        of("sdc", &["sdc2"]),
        partition("sdc", 2, None),
    ];
    let valid = |label| Evidence::Valid(Arc::new(label));
    let labels =
        vec![("sda", valid(member_label(0))), ("sdb", valid(member_label(1))), ("sdc", valid(label("c", "n")))];
    Built { all, labels }
}

impl Built {
    fn label(&mut self, name: &'static str, evidence: Evidence) {
        self.labels.retain(|(known, _)| *known != name);
        self.labels.push((name, evidence));
    }

    fn verdict(&self, name: &str) -> Verdict {
        let owner = owner();
        let machine = Machine::new(&owner, &self.all);
        let mut records: HashMap<&KernelName, Evidence> =
            self.all.iter().map(|raw| (&raw.name, Evidence::None)).collect();
        for (name, evidence) in &self.labels {
            let raw = machine.get(&(*name).into()).expect("it is there");
            records.insert(&raw.name, evidence.clone());
        }
        machine.judge(machine.get(&name.into()).expect("it is there"), &blank(), &records)
    }

    fn change(&mut self, name: &str, change: impl FnOnce(&mut RawDisk)) {
        change(self.all.iter_mut().find(|raw| raw.name.as_str() == name).expect("it is there"));
    }
}

fn is_a_tenants(verdict: &Verdict) -> bool {
    matches!(verdict, Verdict::Theirs(Reason::OnPoolVolume { .. }))
}

#[test]
fn an_array_of_all_its_members_is_decided_by_its_own_label_and_without_one_it_is_of_their_set() {
    let mut built = built();
    let Verdict::Theirs(reason) = built.verdict(MD) else { panic!("it is free for nobody else") };
    assert_eq!(reason.to_string(), "an array of disks of the set default/pool, and no other may use it");
    for name in ["sda", "sda2", "sdb", "sdb2"] {
        assert_eq!(built.verdict(name), Verdict::Ours, "{name}");
    }
    built.label(MD, Evidence::Valid(Arc::new(label("c", "n"))));
    assert_eq!(built.verdict(MD), Verdict::Ours);
    assert_eq!(built.verdict("md127p2"), Verdict::Ours, "a volume on it");
    built.label(MD, Evidence::Valid(Arc::new(label("c", "other"))));
    assert!(matches!(built.verdict(MD), Verdict::Foreign { .. }));
    built.label(MD, Evidence::Unreadable("torn".into()));
    assert!(matches!(built.verdict(MD), Verdict::Unknown(_)));
    built.label(MD, Evidence::Failed("EIO".into()));
    assert!(matches!(built.verdict(MD), Verdict::Unknown(_)));
    built.label(MD, Evidence::OtherTable("dos".into()));
    assert!(matches!(built.verdict(MD), Verdict::Theirs(Reason::OfSet { .. })));
}

#[test]
fn what_a_tenant_builds_on_a_volume_of_an_array_is_the_tenants() {
    let mut built = built();
    built.label(MD, Evidence::Valid(Arc::new(label("c", "n"))));
    built.all.push(md("md9", &["md127p2"]));
    built.label("md9", Evidence::Valid(Arc::new(label("c", "n"))));
    assert!(is_a_tenants(&built.verdict("md9")));
}

type Spoil = fn(&mut Built);

#[test]
fn an_array_that_is_not_built_of_just_its_members_is_a_tenants_whatever_it_says() {
    let spoilt: [(&str, Spoil); 13] = [
        ("it lost a member, and does not run any more", |built| {
            built.change(MD, |raw| {
                let DeviceKind::Md(md) = &mut raw.kind else { unreachable!() };
                md.state = Some("broken".into());
            });
        }),
        ("a volume with the superblock of a member is in it", |built| {
            built.change(MD, |raw| raw.slaves = vec!["sda2".into(), "sdc2".into()]);
        }),
        ("a volume is in it as well", |built| {
            built.change(MD, |raw| raw.slaves = vec!["sda2".into(), "sdb2".into(), "sdc2".into()]);
        }),
        ("only volumes are in it", |built| built.change(MD, |raw| raw.slaves = vec!["sdc2".into()])),
        ("a member is missing", |built| built.change(MD, |raw| raw.slaves = vec!["sda2".into()])),
        ("it has another UUID", |built| {
            built.change(MD, |raw| {
                raw.kind = DeviceKind::Md(Md { uuid: Some(Uuid::nil().to_string()), level: None, state: None });
            });
        }),
        ("it has another level", |built| {
            built.change(MD, |raw| {
                let uuid = Some(ARRAY.to_string());
                raw.kind = DeviceKind::Md(Md { uuid, level: Some("raid1".into()), state: None });
            });
        }),
        ("one label names another array", |built| {
            let mut other = member_label(1);
            let Layout::Member(place) = &mut other.layout else { unreachable!() };
            place.array = Uuid::from_u128(7);
            built.label("sdb", Evidence::Valid(Arc::new(other)));
        }),
        ("two labels have one place", |built| {
            built.label("sdb", Evidence::Valid(Arc::new(Label { disk: ARRAY, ..member_label(0) })));
        }),
        ("one label is of another set", |built| {
            let set = crate::device::sample::set("other");
            built.label("sdb", Evidence::Valid(Arc::new(Label { set, ..member_label(1) })));
        }),
        ("one label is of another node", |built| {
            let node: NodeName = "other".into();
            built.label("sdb", Evidence::Valid(Arc::new(Label { node, ..member_label(1) })));
        }),
        ("one disk is being released", |built| {
            built.label("sdb", Evidence::Valid(Arc::new(Label { releasing: true, ..member_label(1) })));
        }),
        ("another partition of a member's disk is in it", |built| {
            built.change("sdb2", |raw| {
                let DeviceKind::Partition(own) = &mut raw.kind else { unreachable!() };
                own.start = DATA_START + (1 << 20);
            });
        }),
    ];
    for (what, spoil) in spoilt {
        for label_on_it in [None, Some(label("c", "n"))] {
            let mut built = built();
            if let Some(label) = label_on_it {
                built.label(MD, Evidence::Valid(Arc::new(label)));
            }
            spoil(&mut built);
            let verdict = built.verdict(MD);
            assert!(is_a_tenants(&verdict), "{what}: {verdict:?}");
            assert!(is_a_tenants(&built.verdict("md127p2")), "{what}");
        }
    }
}

#[test]
fn an_array_of_members_whose_uuid_nobody_says_is_unknown() {
    let mut built = built();
    built.label(MD, Evidence::Valid(Arc::new(label("c", "n"))));
    built.change(MD, |raw| {
        raw.kind = DeviceKind::Md(Md { uuid: None, level: Some("raid0".into()), state: None });
    });
    let Verdict::Unknown(why) = built.verdict(MD) else { panic!("nobody says which array it is") };
    assert!(why.contains("array UUID"), "{why}");
}

#[test]
fn members_whose_label_cannot_be_read_make_nothing_ours() {
    let mut built = built();
    built.label(MD, Evidence::Valid(Arc::new(label("c", "n"))));
    for evidence in [Evidence::Failed("EIO".into()), Evidence::Unreadable("torn".into()), Evidence::None] {
        built.label("sdb", evidence);
        assert!(is_a_tenants(&built.verdict(MD)), "by the member that can be read");
    }
}

#[test]
fn an_array_that_may_be_built_of_the_copy_of_a_member_is_not_ours() {
    let mut built = built();
    built.label(MD, Evidence::Valid(Arc::new(label("c", "n"))));
    assert_eq!(built.verdict(MD), Verdict::Ours);
    built.label("sdc", Evidence::Valid(Arc::new(member_label(1))));
    assert!(is_a_tenants(&built.verdict(MD)), "nobody says which of both is the member");
}
