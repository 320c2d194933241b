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
    Err(UnreadObject { key: key(node), revision: Revision::of(node), why: why.to_owned(), stand_in: None })
}

fn cache() -> Cache<Meta> {
    Cache::new(|a, b| a.metadata == b.metadata)
}

/// Which object is known as `a`, and its version.
fn known(cache: &Cache<Meta>) -> Option<(String, String)> {
    cache.get("a").map(|node| (node.uid().expect("set"), node.resource_version().expect("set")))
}

fn is(uid: &str, version: u32) -> Option<(String, String)> {
    Some((uid.to_owned(), version.to_string()))
}

fn lost(why: &str) -> Readability {
    Readability::Lost { key: "a".to_owned(), why: why.to_owned() }
}

fn back() -> Readability {
    Readability::Back { key: "a".to_owned() }
}

#[test]
fn that_an_object_cannot_be_read_is_said_once_for_each_reason_and_once_that_it_can_be_again() {
    let cache = cache();
    let watched = |why: &str| cache.put(unread(&state("u", 1), why));
    let listed = |why: &str| cache.replace(vec![unread(&state("u", 1), why)]);
    assert_eq!(listed("no such phase"), [lost("no such phase")]);
    assert_eq!((watched("no such phase"), listed("no such phase")), (None, vec![]));
    assert_eq!(watched("no such mode"), Some(lost("no such mode")));
    assert_eq!(listed("no such mode"), [], "it was said before the list began anew");
    assert_eq!(cache.put(Ok(state("u", 2))), Some(back()));
    assert_eq!((cache.put(Ok(state("u", 3))), cache.replace(vec![Ok(state("u", 3))])), (None, vec![]));
    assert_eq!(watched("no such mode"), Some(lost("no such mode")));
    assert_eq!(cache.replace(vec![Ok(state("u", 4))]), [back()], "a list says it as well");
    assert_eq!(cache.replace(vec![Ok(state("u", 4))]), []);
    // An object that is gone does not become readable again.
    assert_eq!(watched("no such mode"), Some(lost("no such mode")));
    cache.remove(&state("u", 5));
    assert_eq!(cache.put(Ok(state("v", 6))), None);
}

#[test]
fn an_object_that_was_made_again_and_cannot_be_read_does_not_keep_the_one_before_it_alive() {
    for by_list in [false, true] {
        let cache = cache();
        let tell = |object: Decoded<Meta>| match by_list {
            true => drop(cache.replace(vec![object])),
            false => drop(cache.put(object)),
        };
        tell(Ok(state("first", 1)));
        tell(unread(&state("first", 2), "why"));
        assert_eq!(known(&cache), is("first", 1), "the last that was known of it stays");
        tell(unread(&state("second", 3), "why"));
        assert_eq!(known(&cache), None, "by a list: {by_list}");
        cache.remove(&state("first", 2));
        assert!(cache.unread("a").is_some(), "that was the end of the former one");
        tell(Ok(state("second", 4)));
        assert_eq!((known(&cache), cache.unread("a")), (is("second", 4), None));
    }
}

#[test]
fn what_stands_in_for_an_object_counts_until_it_can_be_read_or_goes_and_never_beside_it() {
    fn group_of(node: &Meta) -> Option<&str> {
        node.metadata.uid.as_deref()
    }
    let cache = Cache::grouped(|a: &Meta, b| a.metadata == b.metadata, group_of);
    let versions = || cache.all_groups().iter().map(|node| node.resource_version().expect("set")).collect::<Vec<_>>();
    let stood_in = |uid: &str, version| {
        let stand_in = Some(Arc::new(state("stand-in", 0)));
        unread(&state(uid, version), "why").map_err(|unread| UnreadObject { stand_in, ..unread })
    };
    cache.put(Ok(state("first", 1)));
    cache.put(stood_in("first", 2));
    assert_eq!(versions(), ["1"], "what was known of it counts");
    cache.put(stood_in("second", 3));
    assert_eq!(versions(), ["0"], "that one is gone");
    cache.put(Ok(state("second", 4)));
    assert_eq!(versions(), ["4"]);
    cache.put(stood_in("third", 5));
    cache.learn(state("third", 6), cache.list_count());
    assert_eq!(versions(), ["6"]);
    cache.remove(&state("third", 7));
    assert_eq!((versions(), cache.unread("a")), (vec![], None));
    cache.put(stood_in("fourth", 8));
    let mut changes = cache.changes();
    cache.remove(&state("fourth", 9));
    assert!(versions().is_empty() && changes.has_changed().expect("open"), "its room is free again");
    changes.mark_unchanged();
}

#[test]
fn what_is_known_is_never_undone_by_an_older_state_but_by_a_list() {
    let cache = cache();
    cache.replace(vec![Ok(state("u", 4))]);
    cache.learn(state("u", 3), cache.list_count());
    assert_eq!(known(&cache), is("u", 4));
    cache.learn(state("u", 6), cache.list_count());
    cache.put(Ok(state("u", 5)));
    assert_eq!(known(&cache), is("u", 6));
    // From a cluster that was restored from a backup.
    cache.replace(vec![Ok(state("u", 2))]);
    assert_eq!(known(&cache), is("u", 2));
}

#[test]
fn a_late_answer_about_an_object_whose_end_was_told_does_not_bring_it_back() {
    let cache = cache();
    cache.replace(vec![Ok(state("u", 3)), Ok(named("b", "b", 4))]);
    cache.learn(state("u", 4), cache.list_count());
    assert_eq!(known(&cache), is("u", 4), "it is there");
    cache.remove(&state("u", 6));
    cache.learn(state("u", 5), cache.list_count());
    assert_eq!(known(&cache), None);
    cache.put(unread(&state("v", 8), "why"));
    cache.remove(&state("v", 8));
    cache.learn(state("v", 7), cache.list_count());
    assert_eq!(known(&cache), None);
    cache.learn(state("made again", 9), cache.list_count());
    assert_eq!(known(&cache), is("made again", 9));
    cache.put(Ok(state("made again", 9)));
    cache.replace(vec![Ok(named("b", "b", 11))]);
    cache.learn(state("made again", 10), cache.list_count());
    assert_eq!(known(&cache), None, "a list tells of its end as well");
    // From a cluster that was restored from a backup.
    cache.replace(vec![Ok(named("b", "b", 4))]);
    cache.learn(state("v", 5), cache.list_count());
    assert_eq!(known(&cache), is("v", 5));
}

#[test]
fn a_late_answer_about_an_object_that_a_list_does_not_have_does_not_bring_it_back() {
    let cache = cache();
    cache.replace(vec![Ok(state("u", 3))]);
    let sent = cache.list_count();
    cache.replace(vec![]);
    cache.learn(state("u", 4), sent);
    assert_eq!(known(&cache), None, "nothing tells whether the list or the answer is newer");
    cache.learn(state("made again", 9), cache.list_count());
    assert_eq!(known(&cache), is("made again", 9));
    // Of one that is there the versions tell.
    let sent = cache.list_count();
    cache.replace(vec![Ok(state("made again", 9))]);
    cache.learn(state("made again", 10), sent);
    assert_eq!(known(&cache), is("made again", 10));
}

#[test]
fn a_state_that_cannot_be_read_and_what_was_known_before_it_change_at_once() {
    let cache = cache();
    cache.put(Ok(state("u", 1)));
    let whole = Arc::new(std::sync::atomic::AtomicBool::new(true));
    std::thread::scope(|scope| {
        let (reader, seen) = (cache.clone(), Arc::clone(&whole));
        let looks = scope.spawn(move || {
            for _ in 0..20_000 {
                let objects = reader.read();
                if !objects.all.contains_key("a") {
                    seen.store(false, std::sync::atomic::Ordering::Relaxed);
                }
            }
        });
        let mut version = 2;
        while !looks.is_finished() {
            cache.put(unread(&state("u", version), "why"));
            cache.learn(state("u", version + 1), cache.list_count());
            version += 2;
        }
    });
    assert!(whole.load(std::sync::atomic::Ordering::Relaxed), "it was away for a moment");
}

#[test]
fn a_change_rings_and_nothing_else_does() {
    let cache = cache();
    let mut changes = cache.changes();
    let mut rang = || {
        let rang = changes.has_changed().expect("open");
        changes.mark_unchanged();
        rang
    };
    cache.replace(vec![Ok(state("u", 1))]);
    assert!(rang());
    cache.put(Ok(state("u", 1)));
    cache.learn(state("u", 1), cache.list_count());
    cache.remove(&named("b", "u", 2));
    cache.remove(&state("other", 2));
    cache.find();
    assert!(!rang());
    cache.put(unread(&state("u", 2), "why"));
    assert!(rang());
    cache.put(Ok(state("u", 1)));
    assert!(rang(), "that it can be read is a change, whatever it says");
    cache.lose();
    assert!(rang() && !cache.is_synced());
    cache.find();
    assert!(rang() && cache.is_synced());
    cache.remove(&state("u", 3));
    assert!(rang());
}

#[test]
fn what_was_never_listed_is_not_found_by_an_event() {
    let cache = cache();
    cache.find();
    assert!(!cache.is_synced());
}
