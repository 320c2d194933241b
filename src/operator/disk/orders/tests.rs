use serde_json::{Value, json};

use super::*;
use crate::device::{label::Layout, sample::set};

fn pool(disks: Value, orders: Value) -> DevicePool {
    let pool = json!({
        "apiVersion": "localpool.dev/v1alpha1", "kind": "DevicePool", "metadata": {"name": "n"},
        "spec": {"disks": disks}, "status": {"orders": orders},
    });
    serde_json::from_value(pool).expect("a DevicePool")
}

fn status(order: &str, state: &str) -> Value {
    json!({"disk": "gpt-1", "order": order, "state": state, "message": "m"})
}

fn states(orders: &DiskOrders) -> Vec<(DiskOrder, OrderState)> {
    orders.all().into_iter().map(|status| (status.order, status.state)).collect()
}

#[test]
fn an_order_is_carried_out_once_whoever_did_it_and_begins_again_when_it_changes() {
    let orders = DiskOrders::default();
    let release = json!({"gpt-1": {"order": "Release"}});
    assert!(orders.take_in(Some(&pool(release.clone(), json!([status("Release", "Done")])))));
    assert_eq!((states(&orders), orders.open().len()), (vec![(DiskOrder::Release, OrderState::Done)], 0));
    assert!(!orders.take_in(Some(&pool(release.clone(), json!([])))), "a status that was lost changes nothing here");
    assert!(orders.take_in(Some(&pool(json!({"gpt-1": {"order": "Adopt"}}), json!([status("Release", "Done")])))));
    assert_eq!(states(&orders), [(DiskOrder::Adopt, OrderState::Waiting)]);
    let [adopt] = &orders.open()[..] else { panic!("one waits") };
    assert!(orders.set(adopt, (OrderState::Refused, "no".to_owned())));
    assert!(!orders.set(adopt, (OrderState::Refused, "no".to_owned())), "nothing new");
    assert!(orders.open().is_empty());
    assert!(!orders.take_in(None), "an object that is deleted and applied again orders nothing new");
    assert_eq!(states(&orders), [(DiskOrder::Adopt, OrderState::Refused)]);
    assert!(orders.take_in(Some(&pool(json!({"gpt-1": {}}), json!([])))));
    assert!(orders.all().is_empty());
    assert!(!orders.set(adopt, (OrderState::Done, String::new())), "nobody orders it any more");
    assert!(orders.take_in(Some(&pool(release, json!([])))));
    assert_eq!(states(&orders), [(DiskOrder::Release, OrderState::Waiting)], "ordered again");
}

#[test]
fn an_order_stands_as_long_as_the_object_has_it_for_that_disk() {
    let release: DiskOrderStatus = serde_json::from_value(status("Release", "Waiting")).expect("a status");
    let stands = |disks: Value| is_ordered(&release, &pool(disks, json!([])));
    assert!(stands(json!({"gpt-1": {"order": "Release"}, "gpt-2": {"order": "Adopt"}})));
    let others = [
        json!({}),
        json!({"gpt-1": {}}),
        json!({"gpt-1": {"cordon": true}}),
        json!({"gpt-1": {"order": "GiveUp"}}),
        json!({"gpt-1": {"order": "Drain"}, "gpt-2": {"order": "Release"}}),
    ];
    for disks in others {
        assert!(!stands(disks.clone()), "{disks}");
    }
}

#[test]
fn what_can_lose_something_never_lies_in_wait_and_what_cannot_be_done_yet_does() {
    let id = DiskId::named("gpt-1");
    let refused = [
        AdminError::Here { disk: id.clone(), at: "/dev/x".into(), why: "w".to_owned() },
        AdminError::NotInPool { disk: "d".to_owned(), why: "w".to_owned() },
        AdminError::NotAdoptable { disk: "d".to_owned(), why: "w".to_owned() },
    ];
    for error in refused {
        assert_eq!(after(Err(error)).0, OrderState::Refused);
    }
    for error in [AdminError::Missing(id), AdminError::NoSuchDisk("d".to_owned())] {
        assert_eq!(after(Err(error)).0, OrderState::Waiting);
    }
    assert_eq!(after(Ok(vec!["a".to_owned(), "b".to_owned()])), (OrderState::Done, "a; b".to_owned()));
}

#[test]
fn the_end_of_an_order_is_one_event_and_waiting_is_none() {
    let of = |state: &str| vec![serde_json::from_value(status("Release", state)).expect("a status")];
    let reasons = |before: &[DiskOrderStatus], now: &[DiskOrderStatus]| {
        events(before, now).into_iter().map(|(_, note)| note.reason).collect::<Vec<_>>()
    };
    let (waits, done, refused) = (of("Waiting"), of("Done"), of("Refused"));
    assert_eq!(reasons(&[], &waits), [] as [String; 0]);
    assert_eq!(reasons(&waits, &done), ["DiskOrderDone"]);
    assert_eq!(reasons(&done, &done), [] as [String; 0]);
    assert_eq!(reasons(&waits, &refused), ["DiskOrderRefused"]);
}

fn view(standing: Standing, volumes: usize) -> DiskView {
    DiskView {
        id: DiskId::named("gpt-1"),
        path: "/dev/sda".into(),
        model: None,
        layout: Layout::Carved {},
        array: None,
        set: set("s"),
        size: 9,
        free: 9,
        erasing: 0,
        reserved: 0,
        erasure: crate::pool::Erasure::default(),
        volumes,
        partitions: 0,
        standing,
        host_mount: crate::pool::HostMount::None,
        owned: true,
        busy: None,
        failing: None,
        array_problem: None,
        cordon: None,
    }
}

#[test]
fn only_a_disk_that_can_be_read_and_has_nothing_is_empty() {
    let not_ready = || Standing::NotReady("it cannot be read".to_owned());
    let chosen = ["v".to_owned()];
    let waiting = [
        (view(not_ready(), 0), &[][..]),
        (view(Standing::Missing, 0), &[]),
        (view(Standing::Ready, 1), &[]),
        // A volume that is accepted, and made a moment later.
        (view(Standing::Ready, 0), &chosen),
        (DiskView { erasing: 1, ..view(Standing::Ready, 0) }, &[]),
    ];
    for (disk, on_it) in &waiting {
        for order in [DiskOrder::Drain, DiskOrder::Release] {
            let step = step(order, Some(disk), on_it, &ArrayAbove::None);
            assert!(matches!(step, OrderStep::Waits(_)), "{order:?} of {disk:?}: {step:?}");
        }
    }
    let empty = view(Standing::Ready, 0);
    assert!(matches!(step(DiskOrder::Drain, Some(&empty), &[], &ArrayAbove::None), OrderStep::Done(_)));
    assert_eq!(step(DiskOrder::Release, Some(&empty), &[], &ArrayAbove::None), OrderStep::Due(DiskTask::Release));
    assert!(
        matches!(step(DiskOrder::Drain, None, &[], &ArrayAbove::None), OrderStep::Waits(_)),
        "a slip in the id is no empty disk"
    );
}

#[test]
fn a_member_of_an_array_is_not_empty_before_the_array_has_left_the_pool() {
    let member = view(Standing::Ready, 0);
    let array = |on_it: &[&str]| ArrayAbove::Here {
        id: DiskId::named("gpt-array"),
        on_it: on_it.iter().map(|name| (*name).to_owned()).collect(),
    };
    for order in [DiskOrder::Drain, DiskOrder::Release] {
        let why = |array: &ArrayAbove| match step(order, Some(&member), &[], array) {
            OrderStep::Waits(why) => why,
            done => panic!("{done:?}"),
        };
        let full = why(&array(&["a", "b"]));
        assert!(full.contains("member of the array gpt-array, which has volumes: 2 (a, b)"), "{full}");
        assert!(full.contains("order Drain and then Release for gpt-array instead"), "{full}");
        // It takes new volumes as long as nobody closes it.
        assert!(why(&array(&[])).contains("Release for gpt-array"));
        assert!(why(&ArrayAbove::Lacking).contains("nobody knows what is on that"));
    }
    assert_eq!(step(DiskOrder::GiveUp, Some(&member), &[], &array(&["a"])), OrderStep::Due(DiskTask::GiveUp));
}
