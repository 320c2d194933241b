use futures::stream;
use k8s_openapi::api::core::v1::Node;
use kube::core::PartialObjectMeta;
use serde_json::json;

use super::*;
use crate::api::crd::PoolVolume;
use crate::device::NodeName;
use crate::operator::pool_volume;

type Meta = PartialObjectMeta<Node>;

fn node(name: &str, version: &str) -> Meta {
    let mut node = Meta::default();
    node.metadata.name = Some(name.to_owned());
    node.metadata.labels = Some([("v".to_owned(), version.to_owned())].into());
    node
}

fn status(code: u16) -> watcher::Error {
    let status = kube::core::Status { code, ..kube::core::Status::default() };
    watcher::Error::InitialListFailed(kube::Error::Api(Box::new(status)))
}

async fn play(store: &Store<Meta>, events: Vec<watcher::Result<Event<Meta>>>) {
    follow(store, "Nodes", stream::iter(events), Ok, |_| {}).await;
}

#[tokio::test]
async fn a_list_replaces_what_was_there_and_a_watch_changes_it() {
    let store = Store::new(|a: &Meta, b| a.metadata.labels == b.metadata.labels);
    assert!(!store.is_synced());
    play(&store, vec![Ok(Event::Init), Ok(Event::InitApply(node("a", "1")))]).await;
    assert!(!store.is_synced() && store.all().is_empty(), "half a list is none");
    play(&store, vec![Ok(Event::Init), Ok(Event::InitApply(node("b", "1"))), Ok(Event::InitDone)]).await;
    assert!(store.is_synced() && store.get("a").is_none() && store.get("b").is_some());
    let mut changes = store.changes();
    play(&store, vec![Ok(Event::Apply(node("b", "1")))]).await;
    assert!(!changes.has_changed().expect("open"), "nothing that matters changed");
    play(&store, vec![Ok(Event::Apply(node("b", "2"))), Ok(Event::Delete(node("b", "2")))]).await;
    assert!(changes.has_changed().expect("open") && store.all().is_empty());
    changes.mark_unchanged();
    play(&store, vec![Ok(Event::Delete(node("b", "2")))]).await;
    assert!(!changes.has_changed().expect("open"));
}

#[tokio::test]
async fn a_list_that_broke_off_is_no_part_of_the_next_one() {
    let store = Store::new(|_: &Meta, _| false);
    let broken = [Ok(Event::Init), Ok(Event::InitApply(node("a", "1"))), Err(status(500))];
    let whole = [Ok(Event::Init), Ok(Event::InitApply(node("b", "1"))), Ok(Event::InitDone)];
    play(&store, broken.into_iter().chain(whole).collect()).await;
    assert!(store.get("a").is_none() && store.get("b").is_some());
}

#[tokio::test]
async fn a_watch_that_found_no_api_server_or_lost_its_right_lists_again_and_one_that_is_to_be_slower_goes_on() {
    let failed = |code| {
        let status = kube::core::Status { code, ..kube::core::Status::default() };
        Err(watcher::Error::WatchStartFailed(kube::Error::Api(Box::new(status))))
    };
    let away = || Err(watcher::Error::WatchStartFailed(kube::Error::LinesCodecMaxLineLengthExceeded));
    let lists = async |failure: watcher::Result<Event<Meta>>| {
        let (begun, failure) = (std::cell::Cell::new(0), std::cell::Cell::new(Some(failure)));
        let begin = || {
            begun.set(begun.get() + 1);
            stream::iter([Ok(Event::Init), Ok(Event::InitDone)].into_iter().chain(failure.take()).collect::<Vec<_>>())
        };
        let events: Vec<_> = listed_after_absence(begin).collect().await;
        let lists = events.iter().filter(|event| matches!(event, Ok(Event::InitDone))).count();
        assert_eq!(lists, begun.get());
        lists
    };
    assert_eq!([lists(away()).await, lists(failed(503)).await, lists(failed(410)).await], [2; 3]);
    assert_eq!([lists(failed(401)).await, lists(failed(403)).await], [2, 2], "what it has is old by then");
    assert_eq!([lists(failed(404)).await, lists(failed(429)).await], [1, 1]);
}

#[tokio::test]
async fn a_group_is_what_its_objects_say_now() {
    fn group_of(node: &Meta) -> Option<NodeName> {
        node.metadata.labels.as_ref()?.get("v").map(|node| node.as_str().into())
    }
    let store = Store::grouped(|_: &Meta, _| false, group_of);
    let names = |group: &str| store.group(&group.into()).iter().map(|node| node.name_any()).collect::<Vec<_>>();
    let list = [Event::Init, Event::InitApply(node("a", "1")), Event::InitApply(node("b", "1")), Event::InitDone];
    play(&store, list.map(Ok).into()).await;
    assert_eq!((names("1"), names("2")), (vec!["a".to_owned(), "b".to_owned()], vec![]));
    play(&store, vec![Ok(Event::Apply(node("a", "2"))), Ok(Event::Delete(node("b", "1")))]).await;
    assert_eq!((names("1"), names("2")), (vec![], vec!["a".to_owned()]));
    play(&store, vec![Ok(Event::Init), Ok(Event::InitDone)]).await;
    assert!(store.all_groups().is_empty());
}

#[tokio::test]
async fn of_very_many_objects_only_those_that_are_wanted_are_kept() {
    let store = Store::new(|a: &Meta, b| a.metadata.labels == b.metadata.labels);
    let wanted = |node: &Meta| node.labels()["v"] == "1";
    let list = [Event::Init, Event::InitApply(node("a", "1")), Event::InitApply(node("b", "2")), Event::InitDone];
    let changes = [Event::Apply(node("c", "2")), Event::Apply(node("d", "1")), Event::Delete(node("b", "2"))];
    let events = stream::iter(list.into_iter().chain(changes).map(Ok));
    follow(&store, "Nodes", only_wanted(events, wanted), Ok, |_| {}).await;
    let names: Vec<String> = store.all().iter().map(|node| node.name_any()).collect();
    assert!(store.is_synced());
    assert_eq!(names, ["a", "d"]);
}

#[tokio::test]
async fn a_kind_that_the_server_does_not_know_is_not_ready_until_it_is_served_and_what_was_known_stays() {
    let store = Store::new(|_: &Meta, _| false);
    play(&store, vec![Ok(Event::Init), Ok(Event::InitApply(node("a", "1"))), Ok(Event::InitDone)]).await;
    play(&store, vec![Err(status(500))]).await;
    assert!(store.is_synced(), "what is known stays known while the server is away");
    let away = || Err(watcher::Error::WatchStartFailed(kube::Error::LinesCodecMaxLineLengthExceeded));
    play(&store, vec![away(), Ok(Event::Init), Err(status(500))]).await;
    assert!(store.is_synced() && store.is_old(), "and it is that of before");
    let refused = kube::core::Status { code: 403, ..kube::core::Status::default() };
    let other: Store<Meta> = Store::new(|_: &Meta, _| false);
    let listed = [Ok(Event::Init), Ok(Event::InitDone)].into_iter();
    let ended = Err(watcher::Error::WatchStartFailed(kube::Error::Api(Box::new(refused))));
    play(&other, listed.chain([ended]).collect()).await;
    assert!(other.is_synced() && other.is_old(), "whoever may not watch any more hears of nothing");
    play(&store, vec![Ok(Event::Init), Ok(Event::InitApply(node("a", "1"))), Ok(Event::InitDone)]).await;
    assert!(!store.is_old());
    play(&store, vec![Err(status(404)), Ok(Event::Init), Err(status(404))]).await;
    assert!(!store.is_synced() && store.get("a").is_some());
    play(&store, vec![Ok(Event::Init), Ok(Event::InitDone)]).await;
    assert!(store.is_synced() && store.get("a").is_none());
    // A watch that continues where it was reports no list.
    play(&store, vec![Err(status(404)), Ok(Event::Apply(node("a", "2")))]).await;
    assert!(store.is_synced() && store.get("a").is_some());
}

#[test]
fn a_watch_that_fails_is_said_once_for_each_reason_and_once_that_it_is_over_also_when_it_goes_on_without_a_list() {
    let failed = |message: &str| {
        let status = kube::core::Status { message: message.to_owned(), code: 404, ..Default::default() };
        Err::<Event<Meta>, _>(watcher::Error::WatchStartFailed(kube::Error::Api(Box::new(status))))
    };
    let fails = |message: Option<TroubleMessage>, why: &str| match message {
        Some(TroubleMessage::Fails(text)) => text.contains(why),
        Some(TroubleMessage::Over) | None => false,
    };
    let mut trouble = Trouble::default();
    let mut message = |event| trouble.message(&event);
    assert_eq!(message(Ok(Event::InitDone)), None, "nothing was wrong");
    for served in
        [Event::InitApply(node("a", "1")), Event::InitDone, Event::Apply(node("a", "1")), Event::Delete(node("a", "1"))]
    {
        assert!(fails(message(failed("away")), "away"));
        assert_eq!([message(failed("away")), message(Ok(Event::Init)), message(failed("away"))], [None, None, None]);
        assert!(fails(message(failed("forbidden")), "forbidden"));
        assert_eq!([message(Ok(Event::Init)), message(Ok(served))], [None, Some(TroubleMessage::Over)]);
        assert_eq!(message(Ok(Event::Apply(node("a", "1")))), None);
    }
}

#[test]
fn two_watches_that_fail_at_once_are_not_tried_again_at_once() {
    let waits = || between_tries().take(4).collect::<Vec<_>>();
    assert_ne!(waits(), waits());
}

#[test]
fn the_waits_grow_though_each_try_begins_with_an_event() {
    let mut waits = between_tries();
    let mut next = || {
        // As kube does with the event that begins a list.
        waits.reset();
        waits.next().expect("it never gives up")
    };
    let first = next();
    assert!(first < Duration::from_secs(2), "{first:?}");
    assert_eq!((0..6).map(|_| next()).last(), Some(LONGEST_INTERVAL));
    assert_eq!(next(), LONGEST_INTERVAL, "a CRD that comes late is found soon all the same");
}

fn volume(name: &str, phase: &str, size: Option<u64>) -> Event<DynamicObject> {
    let value = json!({
        "apiVersion": "localpool.dev/v1alpha1", "kind": "PoolVolume", "metadata": {"name": name},
        "spec": {"node": "n", "volumeName": name, "required": 7, "volumeMode": "Block", "parameters": {"class": "fast"}},
        "status": {"phase": phase, "size": size},
    });
    Event::Apply(serde_json::from_value(value).expect("an object"))
}

async fn watched(store: &Store<PoolVolume>, events: Vec<Event<DynamicObject>>) {
    let events = stream::iter(events.into_iter().map(Ok));
    follow(store, "PoolVolumes", events, decoded_or(pool_volume::unread), |_| {}).await;
}

fn listed<K>(events: Vec<Event<K>>) -> Vec<Event<K>> {
    let list = events.into_iter().map(|event| match event {
        Event::Apply(object) => Event::InitApply(object),
        other => other,
    });
    [Event::Init].into_iter().chain(list).chain([Event::InitDone]).collect()
}

#[tokio::test]
async fn a_volume_that_cannot_be_read_is_there_with_what_was_known_of_it_and_stops_no_other() {
    let store = Store::<PoolVolume>::grouped(|a, b| a == b, |volume| pool_volume::promised_on(volume).cloned());
    let promised = || store.group(&"n".into()).iter().map(|volume| volume.name_any()).collect::<Vec<_>>();
    watched(&store, listed(vec![volume("a", "Pending", None), volume("b", "Ready", Some(7))])).await;
    assert_eq!(promised(), ["a"]);
    // Once by the watch and once by a list.
    for events in
        [vec![volume("a", "Melting", None)], listed(vec![volume("a", "Melting", None), volume("b", "Ready", Some(7))])]
    {
        watched(&store, events).await;
        assert!(store.unread("a").is_some_and(|why| why.contains("Melting")));
        assert!(store.get("a").is_some() && store.get("b").is_some(), "it was treated as absent");
        assert_eq!(promised(), ["a"], "what it takes stays promised");
    }
    watched(&store, vec![volume("a", "Ready", Some(7))]).await;
    assert_eq!((store.unread("a"), promised()), (None, Vec::<String>::new()));
    watched(&store, vec![volume("a", "Melting", None)]).await;
    watched(&store, listed(vec![])).await;
    assert!(store.unread("a").is_none() && store.get("a").is_none(), "a list says all there is");
}

#[tokio::test]
async fn a_volume_that_could_never_be_read_takes_its_place_until_it_is_on_a_disk_or_goes() {
    let store = Store::<PoolVolume>::grouped(|a, b| a == b, |volume| pool_volume::promised_on(volume).cloned());
    let promised = || store.group(&"n".into()).iter().map(|volume| volume.spec.required).sum::<i64>();
    watched(&store, listed(vec![volume("a", "Melting", None), volume("b", "Melting", Some(7))])).await;
    assert!(store.unread("a").is_some() && store.unread("b").is_some());
    assert!(store.get("a").is_none() && store.all().is_empty(), "nobody acts on what stands in for it");
    assert_eq!(promised(), 7, "the disk that has b counts it already");
    watched(&store, vec![volume("a", "Pending", None)]).await;
    assert_eq!((promised(), store.unread("a")), (7, None), "and is not counted twice");
    let mut changes = store.changes();
    watched(&store, vec![volume("c", "Melting", None)]).await;
    assert!(changes.has_changed().expect("open"));
    assert_eq!(promised(), 14);
    let Event::Apply(gone) = volume("c", "Melting", None) else { panic!() };
    watched(&store, vec![Event::Delete(gone)]).await;
    assert_eq!((promised(), store.unread("c")), (7, None));
    changes.mark_unchanged();
}

/// An object as it comes over the wire: one that is not of this version is not readable.
fn guarded(name: &str, version: u32, phase: &str) -> Event<DeserializeGuard<PoolVolume>> {
    let value = json!({
        "apiVersion": "localpool.dev/v1alpha1", "kind": "PoolVolume",
        "metadata": {"name": name, "uid": name, "resourceVersion": version.to_string()},
        "spec": {"node": "n", "volumeName": "v", "required": 1, "volumeMode": "Block"},
        "status": {"phase": phase},
    });
    Event::Apply(serde_json::from_value(value).expect("guarded"))
}

/// The names that a mirror reported, each time.
async fn mirrored(report_on: ReportOn, events: Vec<Event<DeserializeGuard<PoolVolume>>>) -> Vec<String> {
    let mut reported = Vec::new();
    let events = stream::iter(events.into_iter().map(Ok));
    let changed = |objects: ByKey<PoolVolume>| {
        reported.push(objects.keys().map(ObjectKey::as_str).collect::<Vec<_>>().join(","));
    };
    reflect("PoolVolumes", events, report_on, changed).await;
    reported
}

#[tokio::test]
async fn a_mirrored_object_that_this_version_cannot_read_holds_up_no_other() {
    let events = listed(vec![guarded("a", 1, "Melting"), guarded("b", 2, "Ready")])
        .into_iter()
        .chain([guarded("b", 3, "Melting"), guarded("a", 4, "Ready")])
        .chain(listed(vec![guarded("a", 5, "Melting")]));
    assert_eq!(mirrored(ReportOn::Changes, events.collect()).await, ["b", "a,b", "a"]);
}

#[tokio::test]
async fn a_mirror_tells_what_there_is_once_and_then_only_of_changes() {
    let list = || listed(vec![guarded("a", 1, "Ready"), guarded("b", 2, "Melting")]);
    let events = || {
        let events = list().into_iter().chain(list()).chain([guarded("a", 1, "Ready"), guarded("b", 3, "Melting")]);
        events.chain([guarded("a", 4, "Ready")]).collect()
    };
    assert_eq!(mirrored(ReportOn::Changes, events()).await, ["a", "a"]);
    assert_eq!(mirrored(ReportOn::Lists, events()).await, ["a", "a", "a"]);
    assert_eq!(mirrored(ReportOn::Changes, listed(vec![])).await, [""], "that there is nothing is reported as well");
}
