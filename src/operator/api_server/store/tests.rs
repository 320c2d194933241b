use kube::core::PartialObjectMeta;

use k8s_openapi::api::core::v1::Node;

use super::*;

type Meta = PartialObjectMeta<Node>;

/// A state of the object `a`.
fn state(uid: &str, version: u32) -> Meta {
    named("a", uid, version)
}

fn named(name: &str, uid: &str, version: u32) -> Meta {
    let mut node = Meta::default();
    node.metadata.name = Some(name.to_owned());
    node.metadata.uid = Some(uid.to_owned());
    node.metadata.resource_version = Some(version.to_string());
    node
}

/// The same state, which cannot be read.
fn unread(node: &Meta, why: &str) -> Decoded<Meta> {
    Err(UnreadObject { key: ObjectKey::of(node), revision: Revision::of(node), why: why.to_owned(), stand_in: None })
}

fn store() -> Store<Meta> {
    Store::new(|a, b| a.metadata == b.metadata)
}

/// Which object is known as `a`, and its version.
fn known(store: &Store<Meta>) -> Option<(String, String)> {
    store.get("a").map(|node| (node.uid().expect("set"), node.resource_version().expect("set")))
}

fn is(uid: &str, version: u32) -> Option<(String, String)> {
    Some((uid.to_owned(), version.to_string()))
}

fn lost(why: &str) -> Readability {
    Readability::Lost { key: "a".into(), why: why.to_owned() }
}

fn back() -> Readability {
    Readability::Back { key: "a".into() }
}

#[test]
fn that_an_object_cannot_be_read_is_said_once_for_each_reason_and_once_that_it_can_be_again() {
    let store = store();
    let watched = |why: &str| store.put(unread(&state("u", 1), why));
    let listed = |why: &str| store.replace(vec![unread(&state("u", 1), why)]);
    assert_eq!(listed("no such phase"), [lost("no such phase")]);
    assert_eq!((watched("no such phase"), listed("no such phase")), (None, vec![]));
    assert_eq!(watched("no such mode"), Some(lost("no such mode")));
    assert_eq!(listed("no such mode"), [], "it was said before the list began again");
    assert_eq!(store.put(Ok(state("u", 2))), Some(back()));
    assert_eq!((store.put(Ok(state("u", 3))), store.replace(vec![Ok(state("u", 3))])), (None, vec![]));
    assert_eq!(watched("no such mode"), Some(lost("no such mode")));
    assert_eq!(store.replace(vec![Ok(state("u", 4))]), [back()], "a list says it as well");
    assert_eq!(store.replace(vec![Ok(state("u", 4))]), []);
    // An object that is gone does not become readable again.
    assert_eq!(watched("no such mode"), Some(lost("no such mode")));
    store.remove(&state("u", 5));
    assert_eq!(store.put(Ok(state("v", 6))), None);
}

#[test]
fn an_object_that_was_made_again_and_cannot_be_read_does_not_keep_the_one_before_it_alive() {
    for by_list in [false, true] {
        let store = store();
        let take_in = |object: Decoded<Meta>| match by_list {
            true => drop(store.replace(vec![object])),
            false => drop(store.put(object)),
        };
        take_in(Ok(state("first", 1)));
        take_in(unread(&state("first", 2), "why"));
        assert_eq!(known(&store), is("first", 1), "the last that was known of it stays");
        take_in(unread(&state("second", 3), "why"));
        assert_eq!(known(&store), None, "by a list: {by_list}");
        store.remove(&state("first", 2));
        assert!(store.unread("a").is_some(), "that was the end of the former one");
        take_in(Ok(state("second", 4)));
        assert_eq!((known(&store), store.unread("a")), (is("second", 4), None));
    }
}

#[test]
fn what_stands_in_for_an_object_counts_until_it_can_be_read_or_goes_and_never_beside_it() {
    fn group_of(node: &Meta) -> Option<NodeName> {
        node.metadata.uid.as_deref().map(NodeName::from)
    }
    let store = Store::grouped(|a: &Meta, b| a.metadata == b.metadata, group_of);
    let versions = || store.all_groups().iter().map(|node| node.resource_version().expect("set")).collect::<Vec<_>>();
    let stood_in = |uid: &str, version| {
        let stand_in = Some(Arc::new(state("stand-in", 0)));
        unread(&state(uid, version), "why").map_err(|unread| UnreadObject { stand_in, ..unread })
    };
    store.put(Ok(state("first", 1)));
    store.put(stood_in("first", 2));
    assert_eq!(versions(), ["1"], "what was known of it counts");
    store.put(stood_in("second", 3));
    assert_eq!(versions(), ["0"], "that one is gone");
    store.put(Ok(state("second", 4)));
    assert_eq!(versions(), ["4"]);
    store.put(stood_in("third", 5));
    store.learn(state("third", 6), store.list_count());
    assert_eq!(versions(), ["6"]);
    store.remove(&state("third", 7));
    assert_eq!((versions(), store.unread("a")), (vec![], None));
    store.put(stood_in("fourth", 8));
    let mut changes = store.changes();
    store.remove(&state("fourth", 9));
    assert!(versions().is_empty() && changes.has_changed().expect("open"), "its room is free again");
    changes.mark_unchanged();
}

#[test]
fn what_is_known_is_never_undone_by_an_older_state_but_by_a_list() {
    let store = store();
    store.replace(vec![Ok(state("u", 4))]);
    store.learn(state("u", 3), store.list_count());
    assert_eq!(known(&store), is("u", 4));
    store.learn(state("u", 6), store.list_count());
    store.put(Ok(state("u", 5)));
    assert_eq!(known(&store), is("u", 6));
    // From a cluster that was restored from a backup.
    store.replace(vec![Ok(state("u", 2))]);
    assert_eq!(known(&store), is("u", 2));
}

#[test]
fn a_late_answer_about_an_object_whose_end_was_told_does_not_bring_it_back() {
    let store = store();
    store.replace(vec![Ok(state("u", 3)), Ok(named("b", "b", 4))]);
    store.learn(state("u", 4), store.list_count());
    assert_eq!(known(&store), is("u", 4), "it is there");
    store.remove(&state("u", 6));
    store.learn(state("u", 5), store.list_count());
    assert_eq!(known(&store), None);
    store.put(unread(&state("v", 8), "why"));
    store.remove(&state("v", 8));
    store.learn(state("v", 7), store.list_count());
    assert_eq!(known(&store), None);
    store.learn(state("made again", 9), store.list_count());
    assert_eq!(known(&store), is("made again", 9));
    store.put(Ok(state("made again", 9)));
    store.replace(vec![Ok(named("b", "b", 11))]);
    store.learn(state("made again", 10), store.list_count());
    assert_eq!(known(&store), None, "a list announces its end as well");
    // From a cluster that was restored from a backup.
    store.replace(vec![Ok(named("b", "b", 4))]);
    store.learn(state("v", 5), store.list_count());
    assert_eq!(known(&store), is("v", 5));
}

#[test]
fn a_late_answer_about_an_object_that_a_list_does_not_have_does_not_bring_it_back() {
    let store = store();
    store.replace(vec![Ok(state("u", 3))]);
    let sent = store.list_count();
    store.replace(vec![]);
    store.learn(state("u", 4), sent);
    assert_eq!(known(&store), None, "nothing tells whether the list or the answer is newer");
    store.learn(state("made again", 9), store.list_count());
    assert_eq!(known(&store), is("made again", 9));
    // Of one that is there the versions tell.
    let sent = store.list_count();
    store.replace(vec![Ok(state("made again", 9))]);
    store.learn(state("made again", 10), sent);
    assert_eq!(known(&store), is("made again", 10));
}

#[test]
fn a_state_that_cannot_be_read_and_what_was_known_before_it_change_at_once() {
    let store = store();
    store.put(Ok(state("u", 1)));
    let whole = Arc::new(std::sync::atomic::AtomicBool::new(true));
    std::thread::scope(|scope| {
        let (reader, is_whole) = (store.clone(), Arc::clone(&whole));
        let reader = scope.spawn(move || {
            for _ in 0..20_000 {
                let objects = reader.read();
                if !objects.all.contains_key("a") {
                    is_whole.store(false, std::sync::atomic::Ordering::Relaxed);
                }
            }
        });
        let mut version = 2;
        while !reader.is_finished() {
            store.put(unread(&state("u", version), "why"));
            store.learn(state("u", version + 1), store.list_count());
            version += 2;
        }
    });
    assert!(whole.load(std::sync::atomic::Ordering::Relaxed), "it was away for a moment");
}

#[test]
fn a_change_rings_and_nothing_else_does() {
    let store = store();
    let mut changes = store.changes();
    let mut rang = || {
        let rang = changes.has_changed().expect("open");
        changes.mark_unchanged();
        rang
    };
    store.replace(vec![Ok(state("u", 1))]);
    assert!(rang());
    store.put(Ok(state("u", 1)));
    store.learn(state("u", 1), store.list_count());
    store.remove(&named("b", "u", 2));
    store.remove(&state("other", 2));
    store.find();
    assert!(!rang());
    store.put(unread(&state("u", 2), "why"));
    assert!(rang());
    store.put(Ok(state("u", 1)));
    assert!(rang(), "that it can be read is a change, whatever it says");
    store.lose();
    assert!(rang() && !store.is_synced());
    store.find();
    assert!(rang() && store.is_synced());
    store.remove(&state("u", 3));
    assert!(rang());
}

#[test]
fn what_was_never_listed_is_not_found_by_an_event() {
    let store = store();
    store.find();
    assert!(!store.is_synced());
}
