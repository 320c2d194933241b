/// Which members come and go.
mod members {
    use std::time::Duration;

    use super::super::*;
    use crate::device::sample::{disk, label, unclaimed};

    /// A disk of the pool, by its kernel name.
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
        let theirs = Device { verdict: Verdict::Theirs(Reason::Busy), ..ours("sda") };
        assert_eq!(decided(vec![theirs, unclaimed("sdb")], &Members::default()), []);
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

/// To which sets they belong.
mod owners {
    use super::super::*;
    use crate::claim::sample;

    fn rule(name: &str, uid: &str) -> Arc<Rule> {
        let rule = sample::rule(name);
        Arc::new(Rule { set: SetRef { uid: uid.into(), ..rule.set.clone() }, ..rule })
    }

    fn member(of: &Rule) -> Owned {
        Owned {
            id: DiskId::named("gpt-1"),
            set: of.set.clone(),
            layouts: vec![of.layout.clone()],
            is_ready: true,
            is_writable: true,
            is_done_with: false,
            rule: None,
        }
    }

    fn offer(rule: &Arc<Rule>) -> Action {
        Action::Offer { id: DiskId::named("gpt-1"), rule: Some(Arc::clone(rule)) }
    }

    #[test]
    fn a_member_offers_by_its_set_once_and_by_none_when_that_is_gone() {
        let [fast, slow] = [rule("fast", "1"), rule("slow", "2")];
        let rules = [Arc::clone(&slow), Arc::clone(&fast)];
        assert_eq!(belong(&[member(&fast)], &rules), [offer(&fast)]);
        let attached = Owned { rule: Some(Arc::clone(&fast)), ..member(&fast) };
        assert_eq!(belong(std::slice::from_ref(&attached), &rules), []);
        assert_eq!(belong(&[attached], &[slow]), [Action::Offer { id: DiskId::named("gpt-1"), rule: None }]);
    }

    #[test]
    fn a_set_that_was_made_again_under_its_name_has_its_new_uid_written_if_it_asks_for_the_same_layout() {
        let [before, again] = [rule("fast", "1"), rule("fast", "2")];
        let rename = Action::Rename { id: DiskId::named("gpt-1"), set: again.set.clone() };
        assert_eq!(belong(&[member(&before)], std::slice::from_ref(&again)), [rename, offer(&again)]);
        let busy = Owned { is_writable: false, ..member(&before) };
        assert_eq!(belong(&[busy], std::slice::from_ref(&again)), [offer(&again)]);
        let other = Owned { layouts: vec![Layout::RawDevice {}], ..member(&before) };
        assert_eq!(belong(&[other], &[again]), []);
    }

    #[test]
    fn a_disk_is_released_when_it_is_done_with_and_its_set_says_so() {
        let releases = Arc::new(Rule { reclaim: Reclaim::Release, ..sample::rule("fast") });
        let done = Owned { is_done_with: true, rule: Some(Arc::clone(&releases)), ..member(&releases) };
        assert_eq!(release(std::slice::from_ref(&done)), [Action::Release { id: DiskId::named("gpt-1") }]);
        let keeps =
            Owned { rule: Some(Arc::new(Rule { reclaim: Reclaim::Keep, ..(*releases).clone() })), ..done.clone() };
        let used = Owned { is_done_with: false, ..done.clone() };
        let away = Owned { is_ready: false, ..done.clone() };
        let of_nobody = Owned { rule: None, ..done };
        assert_eq!(release(&[keeps, used, away, of_nobody]), []);
    }
}

/// Which of the elected disks are claimed and wiped.
mod takings {
    use std::time::Duration;

    use super::super::*;
    use crate::claim::sample;
    use crate::device::{Reason, label::Layout, sample::unclaimed};

    fn claim(set: &str, name: &str) -> ElectedClaim {
        let set = sample::rule(set).set;
        let device = unclaimed(name).id;
        ElectedClaim { set, device, name: name.into(), layout: Layout::Carved {}, zeros: true }
    }

    fn claimed(chosen: &[ElectedClaim], read: &ZeroCheck, rule: Rule, has: &BTreeMap<SetRef, u32>) -> Vec<KernelName> {
        claims(chosen.to_vec(), read, &[rule], has, |_, _| Vec::new()).into_iter().map(|claim| claim.name).collect()
    }

    #[test]
    fn the_first_disks_of_a_set_are_claimed_together_or_not_yet() {
        let two = || Rule { min_devices: 2, ..sample::rule("fast") };
        let chosen = [claim("fast", "sda"), claim("fast", "sdb")];
        let none = BTreeMap::new();
        assert_eq!(claimed(&chosen, &ZeroCheck::default(), two(), &none), ["sda", "sdb"]);
        let unread = ZeroCheck { unread: BTreeSet::from(["sda".into()]), ..ZeroCheck::default() };
        assert_eq!(claimed(&chosen, &unread, two(), &none), [""; 0]);
        let has = BTreeMap::from([(two().set, 1)]);
        assert_eq!(claimed(&chosen, &unread, two(), &has), ["sdb"]);
        let at_most_one = Rule { max_devices: Some(1), ..two() };
        assert_eq!(claimed(&chosen[1..], &ZeroCheck::default(), at_most_one, &none), ["sdb"]);
    }

    #[test]
    fn a_set_that_chose_a_disk_with_something_on_it_claims_nothing_in_this_pass() {
        let chosen = [claim("fast", "sda"), claim("fast", "sdb")];
        let wrong = ZeroCheck { wrong: BTreeSet::from([chosen[0].set.clone()]), ..ZeroCheck::default() };
        assert_eq!(claimed(&chosen, &wrong, sample::rule("fast"), &BTreeMap::new()), [""; 0]);
    }

    #[test]
    fn what_looks_free_and_is_promised_is_theirs_and_everything_else_is_as_it_was_seen() {
        let used = || Verdict::Theirs(Reason::NoMedium);
        let devices = vec![unclaimed("sda"), unclaimed("sdb"), Device { verdict: used(), ..unclaimed("sdc") }];
        let seen = Snapshot { at: Duration::from_secs(7), devices };
        let promise =
            |path: &str| Promise { volume: "pv-1".into(), provisioner: None, path: path.into(), device: None };
        let verdicts = |promises: &[Promise]| {
            let judged = with_promises(&seen, promises);
            assert_eq!(judged.at, seen.at);
            judged.devices.into_iter().map(|device| device.verdict).collect::<Vec<_>>()
        };
        let theirs = Verdict::Theirs(Reason::Promised { volume: "pv-1".into(), provisioner: None });
        assert_eq!(verdicts(&[promise("/dev/sda"), promise("/dev/sdc")]), [theirs, Verdict::Unclaimed, used()]);
        assert_eq!(verdicts(&[]), [Verdict::Unclaimed, Verdict::Unclaimed, used()]);
    }

    #[test]
    fn a_disk_that_others_promise_keeps_what_is_on_it() {
        let snapshot = Snapshot { at: Duration::ZERO, devices: vec![unclaimed("sda"), unclaimed("sdb")] };
        let wipe = |name: &str| ElectedWipe { set: sample::rule("fast").set, name: name.into() };
        let promise = Promise { volume: "pv-1".into(), provisioner: None, path: "/dev/sda".into(), device: None };
        let decided = wipes(vec![wipe("sda"), wipe("sdb"), wipe("sdz")], &[promise], &snapshot);
        let why = Reason::Promised { volume: "pv-1".into(), provisioner: None };
        let spare = ContentAction::Spare { wipe: wipe("sda"), why };
        assert_eq!(decided, [spare, ContentAction::Wipe { at: 1, wipe: wipe("sdb") }]);
    }
}
