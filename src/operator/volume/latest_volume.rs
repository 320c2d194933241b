//! The last known state of one object, from the watch or from the answers to our own requests, whichever is newer: a
//! watch that lags behind our own write must not undo what we know.
//!
//! It is of one call. The store does not do this: an answer that an object is gone would need a memory of gone objects
//! there, for all calls, until the next list.

use std::sync::Arc;

use kube::ResourceExt as _;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::api::crd::PoolVolume;
use crate::operator::store::{Revision, Store, StoreState};
use crate::volume::VolumeId;

/// One PoolVolume, as one call knows it.
pub struct LatestVolume {
    store: Store<PoolVolume>,
    changes: watch::Receiver<StoreState>,
    name: String,
    last: Option<Arc<PoolVolume>>,
    /// The watch has shown the object that `last` is a state of.
    watched: bool,
    /// UIDs of objects that are gone, though the watch may still show them.
    gone: Vec<String>,
}

impl LatestVolume {
    pub fn new(store: &Store<PoolVolume>, id: VolumeId) -> Self {
        let (changes, name) = (store.changes(), id.to_string());
        let mut latest = Self { store: store.clone(), changes, name, last: None, watched: false, gone: Vec::new() };
        latest.look();
        latest
    }

    /// What is known now.
    pub fn look(&mut self) -> Option<Arc<PoolVolume>> {
        // Before the look: a change during it then signals again.
        self.changes.borrow_and_update();
        let shown = self.store.get(&self.name);
        let shown = shown.filter(|object| object.uid().is_none_or(|uid| !self.gone.contains(&uid)));
        match (&shown, &self.last) {
            (Some(new), Some(old)) if newer(new, old) || new.uid() == old.uid() => {
                self.watched = true;
                if newer(new, old) {
                    self.last = shown;
                }
            }
            (Some(_), None) => (self.last, self.watched) = (shown, true),
            (Some(_), Some(_)) => {}
            (None, Some(old)) if self.watched => {
                self.gone.extend(old.uid());
                (self.last, self.watched) = (None, false);
            }
            (None, _) => {}
        }
        self.last.clone()
    }

    /// Takes in the answer to a request.
    pub fn learn(&mut self, object: Option<PoolVolume>) {
        match object {
            Some(object) => {
                let same = self.last.as_ref().is_some_and(|last| last.uid() == object.uid());
                if !same {
                    self.gone.extend(self.last.as_ref().and_then(|last| last.uid()));
                    self.watched = false;
                }
                self.last = Some(Arc::new(object));
            }
            None => {
                self.gone.extend(self.last.take().and_then(|last| last.uid()));
                self.watched = false;
            }
        }
    }

    /// Waits for any change, at most until then.
    pub async fn changed(&mut self, until: Instant) {
        // The watch ends only when the process does; the time limit holds either way.
        let _ = tokio::time::timeout_at(until, self.changes.changed()).await;
    }
}

fn newer(new: &PoolVolume, old: &PoolVolume) -> bool {
    Revision::of(new).is_after(&Revision::of(old))
}

#[cfg(test)]
mod tests {
    use super::super::sample::in_phase;
    use super::*;
    use crate::api::crd::Phase;

    fn state(uid: &str, version: u32) -> PoolVolume {
        let mut object = in_phase(Phase::Pending);
        object.metadata.uid = Some(uid.to_owned());
        object.metadata.resource_version = Some(version.to_string());
        object
    }

    fn latest(shown: Option<PoolVolume>) -> LatestVolume {
        let id = state("a", 1).name_any().parse().expect("an id");
        LatestVolume::new(&Store::of(shown, |_, _| false), id)
    }

    fn show(latest: &mut LatestVolume, shown: Option<PoolVolume>) {
        latest.store = Store::of(shown, |_, _| false);
    }

    fn latest_of(latest: &mut LatestVolume) -> Option<(String, String)> {
        latest.look().map(|object| (object.uid().expect("set"), object.resource_version().expect("set")))
    }

    fn is(uid: &str, version: &str) -> Option<(String, String)> {
        Some((uid.to_owned(), version.to_owned()))
    }

    #[test]
    fn a_watch_that_lags_behind_our_own_write_undoes_nothing() {
        let mut latest = latest(None);
        assert_eq!(latest_of(&mut latest), None);
        latest.learn(Some(state("a", 5)));
        assert_eq!(latest_of(&mut latest), is("a", "5"), "the watch has not shown it yet");
        show(&mut latest, Some(state("a", 4)));
        assert_eq!(latest_of(&mut latest), is("a", "5"));
        show(&mut latest, Some(state("a", 7)));
        assert_eq!(latest_of(&mut latest), is("a", "7"));
        show(&mut latest, None);
        assert_eq!(latest_of(&mut latest), None, "the watch has shown it before, so it is gone");
    }

    #[test]
    fn what_was_withdrawn_stays_gone_though_the_watch_still_shows_it() {
        let mut latest = latest(Some(state("a", 5)));
        assert_eq!(latest_of(&mut latest), is("a", "5"));
        latest.learn(None);
        assert_eq!(latest_of(&mut latest), None);
        latest.learn(Some(state("b", 9)));
        assert_eq!(latest_of(&mut latest), is("b", "9"));
        show(&mut latest, None);
        assert_eq!(latest_of(&mut latest), is("b", "9"), "that was the end of the former one");
        show(&mut latest, Some(state("b", 9)));
        assert_eq!(latest_of(&mut latest), is("b", "9"));
        show(&mut latest, Some(state("c", 11)));
        assert_eq!(latest_of(&mut latest), is("c", "11"));
    }
}
