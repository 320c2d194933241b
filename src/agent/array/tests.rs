use std::time::Duration;

use super::*;
use crate::device::label::ArrayLevel;
use crate::device::sample::{device, disk, md, partition, set};

const ARRAY: Uuid = Uuid::from_u128(7);

fn place(place: u32) -> ArrayPlace {
    ArrayPlace { array: ARRAY, level: ArrayLevel::Raid0, place, count: 2, chunk: CHUNK }
}

fn member(name: &str, number: u32) -> SeenMember {
    SeenMember {
        id: DiskId::named(format!("gpt-{name}")),
        name: Some(name.into()),
        place: place(number),
        set: set("pool"),
        is_made: false,
        is_used: false,
        node: Some(format!("/dev/{name}2").into()),
    }
}

fn nodes() -> Vec<PathBuf> {
    vec!["/dev/sda2".into(), "/dev/sdb2".into()]
}

/// Two members and what is built on them.
struct Case {
    members: Vec<SeenMember>,
    devices: Vec<Device>,
    permission: Permission,
}

fn case() -> Case {
    let part = |name| device(partition(name, MEMBER_NUMBER, None), Verdict::Ours);
    let devices = vec![
        device(disk("sda"), Verdict::Ours),
        part("sda"),
        device(disk("sdb"), Verdict::Ours),
        part("sdb"),
        part("sdc"),
    ];
    Case { members: vec![member("sdb", 1), member("sda", 0)], devices, permission: Permission::Claims }
}

impl Case {
    fn with_array(mut self, slaves: &[&str], verdict: Verdict) -> Self {
        self.devices.push(device(md("md127", slaves), verdict));
        self
    }

    fn all(mut self, change: impl Fn(&mut SeenMember)) -> Self {
        self.members.iter_mut().for_each(change);
        self
    }

    fn next(self) -> ArrayStep {
        let snapshot = Snapshot { at: Duration::ZERO, devices: self.devices };
        let all = arrays(self.members, &snapshot, |_| self.permission);
        assert_eq!(all.len(), 1, "{all:?}");
        next(&all[0], &snapshot)
    }
}

fn of_set() -> Verdict {
    Verdict::Theirs(Reason::OfSet { set: set("pool").name })
}

fn made(member: &mut SeenMember) {
    member.is_made = true;
}

fn used(member: &mut SeenMember) {
    (member.is_made, member.is_used) = (true, true);
}

const BOTH: [&str; 2] = ["sda2", "sdb2"];

fn stays(step: ArrayStep) -> String {
    match step {
        ArrayStep::Stays(why) => why,
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_array_is_made_once_in_the_order_of_its_places_then_settled_then_claimed() {
    assert_eq!(case().next(), ArrayStep::Make(nodes()));
    assert_eq!(case().with_array(&BOTH, of_set()).next(), ArrayStep::Settle { at: 5, is_fresh: true });
    let stopped = case().with_array(&BOTH, of_set()).all(|member| member.is_made = member.place.place == 0);
    assert_eq!(stopped.next(), ArrayStep::Settle { at: 5, is_fresh: false }, "what is there is kept from here on");
    assert_eq!(case().with_array(&BOTH, of_set()).all(made).next(), ArrayStep::Settle { at: 5, is_fresh: false });
    assert_eq!(case().with_array(&BOTH, of_set()).all(used).next(), ArrayStep::Claim { at: 5 });
    assert_eq!(case().with_array(&BOTH, Verdict::Ours).all(used).next(), ArrayStep::Nothing);
}

#[test]
fn an_array_that_was_made_is_started_and_never_made_again() {
    assert_eq!(case().all(used).next(), ArrayStep::Start(nodes()));
    assert_eq!(case().all(made).next(), ArrayStep::Start(nodes()));
    let half = case().all(|member| member.is_made = member.place.place == 1);
    assert_eq!(half.next(), ArrayStep::Start(nodes()));
    // Also if nobody asks for it any more.
    assert_eq!(Case { permission: Permission::Starts, ..case().all(used) }.next(), ArrayStep::Start(nodes()));
}

#[test]
fn nothing_is_made_or_claimed_that_nobody_asks_for() {
    let starts = |case: Case| Case { permission: Permission::Starts, ..case }.next();
    assert_eq!(starts(case()), ArrayStep::Nothing);
    assert_eq!(starts(case().with_array(&BOTH, of_set())), ArrayStep::Nothing);
    assert_eq!(starts(case().with_array(&BOTH, of_set()).all(used)), ArrayStep::Nothing);
}

#[test]
fn an_array_without_all_of_its_members_waits_and_says_which_are_missing() {
    let mut missing = case().all(used);
    missing.members.retain(|member| member.place.place == 0);
    assert!(stays(missing.next()).contains("misses member 2 of 2"));
    let away = case().all(used).all(|member| {
        if member.place.place == 1 {
            (member.name, member.node) = (None, None);
        }
    });
    assert!(stays(away.next()).contains("cannot be used now: gpt-sdb (member 2)"));
}

#[test]
fn a_partition_table_from_before_the_array_was_made_makes_no_new_array() {
    let earlier = case().all(|member| member.is_used = true);
    assert!(stays(earlier.next()).contains("neither started nor made again"));
}

#[test]
fn two_disks_of_one_place_and_labels_that_differ_stop_everything() {
    let mut twice = case();
    twice.members.push(member("sdc", 1));
    assert!(stays(twice.next()).contains("are both member 2 of 2"));
    let mut other = case();
    other.members[0].place.chunk = 4096;
    assert!(stays(other.next()).contains("say different things"));
}

#[test]
fn an_array_of_others_on_a_member_is_told_and_only_a_remainder_of_our_own_is_stopped() {
    let tenants = || Verdict::Theirs(Reason::OnPoolVolume { below: "sda2".into() });
    for slaves in [vec!["sda2", "sdc2"], vec!["sda2"], BOTH.to_vec()] {
        let why = stays(case().with_array(&slaves, tenants()).all(used).next());
        assert!(why.contains("mdadm --stop /dev/md127"), "{why}");
    }
    let over = |state: &str, slaves: &[&str]| {
        let mut case = case().with_array(slaves, tenants()).all(used);
        let array = case.devices.last_mut().expect("it was added");
        let kind = DeviceKind::Md(Md { uuid: None, level: None, state: Some(state.to_owned()) });
        array.raw = RawDisk { kind, ..array.raw.clone() };
        case.next()
    };
    for state in ["inactive", "broken"] {
        assert_eq!(over(state, &["sda2"]), ArrayStep::Stop { at: 5 });
        assert_eq!(over(state, &["sda2", "sdx2"]), ArrayStep::Stop { at: 5 });
        stays(over(state, &["sda2", "sdc2"]));
    }
    stays(over("clean", &["sda2"]));
    let of = |array: Uuid, slaves: &[&str]| {
        let mut case = case().with_array(slaves, tenants()).all(used);
        let last = case.devices.last_mut().expect("it was added");
        let kind = DeviceKind::Md(Md { uuid: Some(array.to_string()), level: None, state: Some("clean".to_owned()) });
        last.raw = RawDisk { kind, ..last.raw.clone() };
        case.next()
    };
    assert_eq!(of(ARRAY, &["sda2"]), ArrayStep::Stop { at: 5 }, "it lost a member that it cannot be without");
    assert_eq!(of(ARRAY, &["sda2", "sdx2"]), ArrayStep::Stop { at: 5 }, "what was pulled out is still listed");
    stays(of(Uuid::from_u128(8), &["sda2"]));
    stays(of(Uuid::from_u128(8), &["sda2", "sdx2"]));
    stays(of(ARRAY, &["sda2", "sdc2"]));
    stays(of(ARRAY, &BOTH));
}

#[test]
fn an_array_that_cannot_be_told_is_looked_at_again() {
    let unknown = case().with_array(&BOTH, Verdict::Unknown("no UUID".into())).all(used);
    assert!(matches!(unknown.next(), ArrayStep::Waits(why) if why.contains("no UUID")));
}

#[test]
fn other_disks_take_only_places_of_an_array_that_nothing_was_made_of() {
    let alone = |change: fn(&mut SeenMember)| {
        let mut first = member("sda", 0);
        change(&mut first);
        open_places(&[first])
    };
    assert_eq!(alone(|_| ()), [place(1)]);
    assert_eq!(alone(made), []);
    assert_eq!(alone(|member| member.is_used = true), []);
    let away = |member: &mut SeenMember| (member.name, member.node) = (None, None);
    assert_eq!(alone(away), [], "nobody knows whether it was made");
    assert_eq!(open_places(&[member("sda", 0), member("sdb", 1)]), []);
}

#[test]
fn what_is_left_of_an_array_is_of_its_members_alone_and_of_one_that_lacks_a_member_for_good() {
    let left = |case: &Case| {
        let snapshot = Snapshot { at: Duration::ZERO, devices: case.devices.clone() };
        let all = arrays(case.members.clone(), &snapshot, |_| Permission::GivenUp);
        remainder(&all[0], &snapshot).map(|left| left.map(|left| left.map(|device| device.raw.name.to_string())))
    };
    let without_b = |case: Case| {
        let is_here = |device: &Device| !device.raw.name.as_str().starts_with("sdb");
        let members = case.members.into_iter().filter(|member| member.place.place == 0).collect();
        Case { members, devices: case.devices.into_iter().filter(is_here).collect(), ..case }
    };
    assert_eq!(left(&case().all(used)), None, "it has all of its members");
    let mut away = case().all(used);
    (away.members[0].name, away.members[0].node) = (None, None);
    assert_eq!(left(&away), None, "one is only away");
    assert_eq!(left(&without_b(case().all(used))), Some(Ok(None)));
    let over = |state: &str, slaves: &[&str]| {
        let mut case = without_b(case().all(used)).with_array(slaves, Verdict::Theirs(Reason::Busy));
        let Some(RawDisk { kind: DeviceKind::Md(md), .. }) = case.devices.last_mut().map(|device| &mut device.raw)
        else {
            panic!("it is an array");
        };
        md.state = Some(state.to_owned());
        left(&case)
    };
    assert_eq!(over("broken", &BOTH), Some(Ok(Some("md127".to_owned()))));
    let strange = over("broken", &["sda2", "sdc2"]).expect("a member is lost").expect_err("something else is in it");
    assert!(strange.contains("find out who made it"), "{strange}");
}

#[test]
fn the_way_out_of_an_array_that_was_given_up_is_said_as_long_as_a_member_of_it_is_lost() {
    let given_up = |case: Case| stays(Case { permission: Permission::GivenUp, ..case }.next());
    let mut lost = case().all(used);
    lost.members.retain(|member| member.place.place == 0);
    let why = given_up(lost);
    assert!(
        why.ends_with("it was given up: `localpool disk release gpt-sda` frees all of its disks that are here"),
        "{why}"
    );
    let mut away = case().all(used);
    (away.members[0].name, away.members[0].node) = (None, None);
    assert!(!given_up(away).contains("given up"), "the other member may come back");
    let whole = Case { permission: Permission::GivenUp, ..case().all(used) };
    assert_eq!(whole.next(), ArrayStep::Start(nodes()), "it is whole again");
    let nothing = Case { permission: Permission::GivenUp, ..case() };
    assert_eq!(nothing.next(), ArrayStep::Nothing, "none is made of it");
}
