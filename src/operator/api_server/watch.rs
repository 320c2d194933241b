//! The watches: one event loop, which keeps a store in step with the API server.
//!
//! Takes in what to watch, and a store or a callback. If the API server does not serve a kind (its CRD comes later, or
//! is gone), that is logged once and the watch waits; what was known of it stays until it is listed again. An object
//! that cannot be read (a later version wrote it) affects no other object.

use std::fmt::Debug;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::future::ready;
use futures::{Stream, StreamExt as _, stream};
use kube::core::{DeserializeGuard, DynamicObject};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::utils::Backoff;
use kube::runtime::watcher::{self, Config, DefaultBackoff, Event, watcher};
use kube::{Api, Resource, ResourceExt};
use serde::de::DeserializeOwned;

use crate::operator::api_server::error::error_message;
use crate::operator::api_server::object_key::ObjectKey;
use crate::operator::api_server::store::{ByKey, Decoded, Readability, Revision, Store, UnreadObject};

/// What is watched.
pub struct Watched<T> {
    api: Api<T>,
    config: Config,
    /// The name of the objects in messages.
    what: &'static str,
}

impl<T> Watched<T> {
    pub fn all(api: Api<T>, what: &'static str) -> Self {
        Self::some(api, Config::default(), what)
    }

    /// The objects that a selector selects.
    pub fn some(api: Api<T>, config: Config, what: &'static str) -> Self {
        Self { api, config, what }
    }
}

/// What changed in a store.
pub(in crate::operator) enum StoreEvent<'a> {
    /// All objects.
    List,
    /// One object, as it is now.
    Object(&'a ObjectKey),
    /// An object that cannot be read.
    Unread,
    Gone(&'a ObjectKey),
}

/// Keeps a store for ever.
pub async fn keep<K, T>(store: Store<K>, watched: Watched<T>, decode: impl Fn(T) -> Decoded<K>)
where
    K: ResourceExt,
    T: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    keep_with_events(&store, watched, decode, |_| {}).await;
}

/// Keeps a store for ever, and reports each event after it is in the store.
pub(in crate::operator) async fn keep_with_events<K, T>(
    store: &Store<K>,
    watched: Watched<T>,
    decode: impl Fn(T) -> Decoded<K>,
    on_event: impl FnMut(StoreEvent<'_>),
) where
    K: ResourceExt,
    T: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let Watched { api, config, what } = watched;
    follow(store, what, watch_events(api, config).backoff(between_tries()), decode, on_event).await;
}

/// The same of those objects that `wanted` wants, of a kind of which there are very many. What it says of an object must not change
/// as long as the object is there.
pub(in crate::operator) async fn keep_wanted<K, T>(
    store: &Store<K>,
    watched: Watched<T>,
    wanted: impl Fn(&T) -> bool,
    decode: impl Fn(T) -> Decoded<K>,
) where
    K: ResourceExt,
    T: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let Watched { api, config, what } = watched;
    let events = watch_events(api, config).backoff(between_tries());
    follow(store, what, only_wanted(events, wanted), decode, |_| {}).await;
}

/// Without the objects that nobody wants.
fn only_wanted<T>(
    events: impl Stream<Item = watcher::Result<Event<T>>>,
    wanted: impl Fn(&T) -> bool,
) -> impl Stream<Item = watcher::Result<Event<T>>> {
    events.filter(move |event| {
        ready(match event {
            Ok(Event::InitApply(object) | Event::Apply(object)) => wanted(object),
            _ => true,
        })
    })
}

fn watch_events<T>(api: Api<T>, config: Config) -> impl Stream<Item = watcher::Result<Event<T>>>
where
    T: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    listed_after_absence(move || watcher(api.clone(), config.clone()))
}

/// The events of a watch, which begins again with a list when the API server was away: its etcd may have been put back
/// from a backup meanwhile. A watch that goes on from a version of the future hears nothing until that is reached.
fn listed_after_absence<T, S>(begin: impl Fn() -> S) -> impl Stream<Item = watcher::Result<Event<T>>>
where
    S: Stream<Item = watcher::Result<Event<T>>>,
{
    let watch = Box::pin(begin());
    stream::unfold((watch, begin), async |(mut watch, begin)| {
        let event = watch.next().await?;
        if event.as_ref().is_err_and(is_absence) {
            watch.set(begin());
        }
        Some((event, (watch, begin)))
    })
}

/// The waits between tries, with jitter: many watches fail at once, and do not all come back at once.
struct CappedBackoff(DefaultBackoff);

/// Long enough that the watches of a large cluster do not keep an API server down, short enough for whoever waits for
/// a CRD.
const LONGEST_INTERVAL: Duration = Duration::from_secs(5);

impl Iterator for CappedBackoff {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        self.0.next().map(|wait| wait.min(LONGEST_INTERVAL))
    }
}

impl Backoff for CappedBackoff {
    /// Nothing: kube resets after each event, and each try to list begins with one, so the waits would never grow. They
    /// begin again when the last failure is two minutes ago.
    fn reset(&mut self) {}
}

fn between_tries() -> CappedBackoff {
    CappedBackoff(DefaultBackoff::default())
}

/// When a mirror is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportOn {
    /// Once the objects were listed, and after each change.
    Changes,
    /// And after each list, even if nothing changed: the API server may now decode what it stores by another
    /// definition.
    Lists,
}

/// Reports all objects of a watch, by name, for ever.
pub async fn mirror<K>(watched: Watched<DeserializeGuard<K>>, report_on: ReportOn, changed: impl FnMut(ByKey<K>))
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + PartialEq + Send + 'static,
{
    let Watched { api, config, what } = watched;
    reflect(what, watch_events(api, config).backoff(between_tries()), report_on, changed).await;
}

async fn reflect<K>(
    what: &str,
    events: impl Stream<Item = watcher::Result<Event<DeserializeGuard<K>>>>,
    report_on: ReportOn,
    mut changed: impl FnMut(ByKey<K>),
) where
    K: Resource<DynamicType = ()> + PartialEq,
{
    let store = Store::new(|a: &K, b| a == b);
    let mut last = None;
    let on_event = |event: StoreEvent<'_>| {
        let now = store.by_key();
        if last.as_ref() != Some(&now) || (report_on == ReportOn::Lists && matches!(event, StoreEvent::List)) {
            last = Some(now.clone());
            changed(now);
        }
    };
    follow(&store, what, events, decoded, on_event).await;
}

/// An object as it came.
pub fn decoded<K: Resource<DynamicType = ()>>(guard: DeserializeGuard<K>) -> Decoded<K> {
    let (key, revision) = (ObjectKey::of(&guard), Revision::of(&guard));
    guard.0.map_err(|invalid| UnreadObject { key, revision, why: invalid.error, stand_in: None })
}

/// An object; if it cannot be read, `stand_in` makes its stand-in.
pub fn decoded_or<K>(stand_in: fn(&DynamicObject) -> Option<K>) -> impl Fn(DynamicObject) -> Decoded<K>
where
    K: Resource<DynamicType = ()> + DeserializeOwned,
{
    move |object| {
        let (key, revision) = (ObjectKey::of(&object), Revision::of(&object));
        let stand_in = stand_in(&object).map(Arc::new);
        object.try_parse::<K>().map_err(|error| UnreadObject { key, revision, why: error.to_string(), stand_in })
    }
}

/// The event loop.
pub(in crate::operator) async fn follow<K: ResourceExt, T: ResourceExt>(
    store: &Store<K>,
    what: &str,
    events: impl Stream<Item = watcher::Result<Event<T>>>,
    decode: impl Fn(T) -> Decoded<K>,
    mut on_event: impl FnMut(StoreEvent<'_>),
) {
    let decode = |mut object: T| {
        object.managed_fields_mut().clear();
        decode(object)
    };
    let (mut listed, mut trouble) = (Vec::new(), Trouble::default());
    let mut events = pin!(events);
    while let Some(event) = events.next().await {
        if let Some(message) = trouble.message(&event) {
            message.log(what);
        }
        match &event {
            Ok(Event::Init) => {}
            Ok(_) => store.set_old(false),
            // Each such watch begins again with a list.
            Err(error) if is_absence(error) => store.set_old(true),
            Err(_) => {}
        }
        match event {
            Ok(Event::Init) => listed = Vec::new(),
            Ok(Event::InitApply(object)) => listed.push(decode(object)),
            Ok(Event::InitDone) => {
                let readings = store.replace(std::mem::take(&mut listed));
                readings.into_iter().for_each(|reading| say(what, reading));
                on_event(StoreEvent::List);
            }
            Ok(Event::Apply(object)) => {
                let (key, object) = (ObjectKey::of(&object), decode(object));
                let now = if object.is_ok() { StoreEvent::Object(&key) } else { StoreEvent::Unread };
                if let Some(reading) = store.put(object) {
                    say(what, reading);
                }
                store.find();
                on_event(now);
            }
            Ok(Event::Delete(object)) => {
                store.remove(&object);
                store.find();
                on_event(StoreEvent::Gone(&ObjectKey::of(&object)));
            }
            Err(error) if is_missing(&error) => store.lose(),
            Err(_) => {}
        }
    }
}

/// Logs whether an object can be read.
fn say(what: &str, reading: Readability) {
    match reading {
        Readability::Lost { key, why } => {
            tracing::warn!(what, name = key.as_str(), "an object cannot be read, and is ignored: {why}");
        }
        Readability::Back { key } => tracing::info!(what, name = key.as_str(), "an object can be read again"),
    }
}

/// The state of a watch that fails: each reason is logged once, and the end of the failure once.
#[derive(Default)]
struct Trouble(Option<String>);

#[derive(Debug, PartialEq, Eq)]
enum TroubleMessage {
    Fails(String),
    Over,
}

impl Trouble {
    fn message<K>(&mut self, event: &watcher::Result<Event<K>>) -> Option<TroubleMessage> {
        match event {
            // Sent before the list is requested: only its first object or its end proves that the list comes in.
            Ok(Event::Init) => None,
            Ok(_) => self.0.take().map(|_| TroubleMessage::Over),
            Err(error) => {
                let text = error_message(error);
                let before = self.0.replace(text.clone());
                (before.as_ref() != Some(&text)).then_some(TroubleMessage::Fails(text))
            }
        }
    }
}

impl TroubleMessage {
    fn log(&self, what: &str) {
        match self {
            Self::Fails(error) => {
                tracing::warn!(what, error, "cannot watch; trying again, and using the last known objects");
            }
            Self::Over => tracing::info!(what, "the API server answers again"),
        }
    }
}

/// Whether a watch could not go on because nobody answered for the API server, because it does not have that version, or
/// because whoever watches may not any more. One that is only asked to be slower goes on where it was.
fn is_absence(error: &watcher::Error) -> bool {
    match error {
        watcher::Error::WatchStartFailed(kube::Error::Api(status)) => {
            status.code >= 500 || [401, 403, 410].contains(&status.code)
        }
        watcher::Error::WatchStartFailed(_) => true,
        _ => false,
    }
}

/// Whether the API server does not serve the kind.
fn is_missing(error: &watcher::Error) -> bool {
    match error {
        watcher::Error::InitialListFailed(kube::Error::Api(status))
        | watcher::Error::WatchStartFailed(kube::Error::Api(status))
        | watcher::Error::WatchFailed(kube::Error::Api(status)) => status.code == 404,
        watcher::Error::WatchError(status) => status.code == 404,
        _ => false,
    }
}

#[cfg(test)]
mod tests;
