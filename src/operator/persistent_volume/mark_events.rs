//! The Events of marks, as Kubernetes' proposal has them. One that could not be written with its mark is kept: the mark
//! is there, so no later pass would miss it.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Resource as _;
use kube::runtime::events::EventType;

use super::marks::MarkChange;
use super::refusals::WriteEnd;
use crate::operator::api_server::error::OperatorError;
use crate::operator::api_server::object_key::Uid;
use crate::operator::event::EventNote;
use crate::operator::event::writer::EventWriter;
use crate::operator::kube_volume::PersistentVolume;

/// How many may wait: those of a rack whose Events are all refused.
const ROOM: usize = 1024;

/// The Event of one mark of one PersistentVolume.
#[derive(Debug)]
pub struct MarkEvent {
    about: ObjectReference,
    /// Of the annotation.
    mark: String,
    note: EventNote,
}

/// By which it is known whether the Event of a mark was refused.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MarkKey {
    volume: Uid<PersistentVolume>,
    mark: String,
}

impl MarkEvent {
    pub fn all_of(volume: &PersistentVolume, change: &MarkChange) -> Vec<Arc<Self>> {
        let about = volume.object_ref(&());
        let event = |verb: &str, mark: &String| {
            let note = EventNote {
                type_: EventType::Normal,
                reason: format!("{verb}PVSucceeded"),
                note: format!("{verb} PV successfully with annotation key: {mark}"),
            };
            Arc::new(Self { about: about.clone(), mark: mark.clone(), note })
        };
        let marked = change.marked.iter().map(|mark| event("Mark", mark));
        marked.chain(change.unmarked.iter().map(|mark| event("Unmark", mark))).collect()
    }

    /// That a mark comes and that it goes have one: of the two only the later one is news.
    pub fn key(&self) -> MarkKey {
        let volume = self.about.uid.as_deref().unwrap_or_default().into();
        MarkKey { volume, mark: self.mark.clone() }
    }
}

/// Writes them, and has those that wait.
pub struct MarkEvents {
    writer: EventWriter,
    waiting: WaitingEvents,
    /// One was not written in this pass: no other one is tried, as each may take as long as a request may.
    are_refused: bool,
}

impl MarkEvents {
    pub fn new(writer: EventWriter) -> Self {
        Self { writer, waiting: WaitingEvents::default(), are_refused: false }
    }

    /// From now on they are tried again.
    pub fn begin_pass(&mut self) {
        self.are_refused = false;
    }

    pub fn waiting(&self) -> impl Iterator<Item = Arc<MarkEvent>> {
        self.waiting.0.values().cloned()
    }

    /// Writes one that waits. Refused: it waits on.
    pub async fn write_late(&mut self, event: &Arc<MarkEvent>) -> Result<WriteEnd, OperatorError> {
        match self.waiting.has(event) {
            true => self.write(event).await,
            // A later one has taken its place, or is written.
            false => Ok(WriteEnd::Done),
        }
    }

    /// Writes one. If that fails, it waits. Refused, without an error: it waits, and was not tried.
    pub async fn write(&mut self, event: &Arc<MarkEvent>) -> Result<WriteEnd, OperatorError> {
        if self.are_refused {
            self.waiting.after(event, WriteEnd::Refused);
            return Ok(WriteEnd::Refused);
        }
        // Events of one reason and action are one Event with a count, whatever their notes say.
        let written = self.writer.write(&event.about, &event.mark, &event.note).await;
        self.are_refused = written.is_err();
        self.waiting.after(event, if written.is_ok() { WriteEnd::Done } else { WriteEnd::Refused });
        written.map(|()| WriteEnd::Done)
    }
}

#[derive(Debug, Default)]
struct WaitingEvents(BTreeMap<MarkKey, Arc<MarkEvent>>);

impl WaitingEvents {
    fn has(&self, event: &Arc<MarkEvent>) -> bool {
        self.0.get(&event.key()).is_some_and(|waiting| Arc::ptr_eq(waiting, event))
    }

    /// What came of a try.
    fn after(&mut self, event: &Arc<MarkEvent>, end: WriteEnd) {
        let key = event.key();
        if end == WriteEnd::Done {
            self.0.remove(&key);
        } else if self.0.len() < ROOM || self.0.contains_key(&key) {
            self.0.insert(key, Arc::clone(event));
        } else {
            let EventNote { reason, note, .. } = &event.note;
            tracing::warn!(volume = event.about.name, reason, note, "too many Events wait: one is not written");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(volume: &str, marked: &[&str], unmarked: &[&str]) -> Vec<Arc<MarkEvent>> {
        let mut object = PersistentVolume::default();
        object.metadata.uid = Some(volume.to_owned());
        let [marked, unmarked] =
            [marked, unmarked].map(|marks| marks.iter().map(|mark| (*mark).to_owned()).collect::<Vec<_>>());
        MarkEvent::all_of(&object, &MarkChange { marked, unmarked, ..MarkChange::default() })
    }

    #[test]
    fn each_mark_that_comes_or_goes_is_an_event_of_its_own() {
        let all = events("uid", &["DiskMissing", "NodeGone"], &["DiskFailing"]);
        let notes: Vec<&str> = all.iter().map(|event| event.note.note.as_str()).collect();
        assert_eq!(
            notes,
            [
                "Mark PV successfully with annotation key: DiskMissing",
                "Mark PV successfully with annotation key: NodeGone",
                "Unmark PV successfully with annotation key: DiskFailing",
            ]
        );
        assert!(all.iter().all(|event| event.note.type_ == EventType::Normal), "{all:?}");
    }

    #[test]
    fn one_that_is_not_written_waits_until_it_is_and_no_more_wait_than_there_is_room_for() {
        let mut waiting = WaitingEvents::default();
        let [one] = events("uid", &["DiskMissing"], &[]).try_into().expect("one");
        waiting.after(&one, WriteEnd::Refused);
        waiting.after(&one, WriteEnd::Refused);
        assert_eq!(waiting.0.len(), 1);
        for number in 0..ROOM {
            waiting.after(&events(&number.to_string(), &["DiskMissing"], &[])[0], WriteEnd::Refused);
        }
        assert_eq!(waiting.0.len(), ROOM);
        waiting.after(&one, WriteEnd::Refused);
        assert!(waiting.0.contains_key(&one.key()), "the first one keeps its place");
        waiting.after(&one, WriteEnd::Done);
        assert!(!waiting.0.contains_key(&one.key()));
    }

    #[test]
    fn of_a_mark_that_comes_and_goes_only_the_last_event_waits_and_none_once_that_is_written() {
        let mut waiting = WaitingEvents::default();
        let (mark, unmark) = (&events("uid", &["DiskMissing"], &[])[0], &events("uid", &[], &["DiskMissing"])[0]);
        waiting.after(mark, WriteEnd::Refused);
        waiting.after(unmark, WriteEnd::Refused);
        assert!(waiting.has(unmark) && !waiting.has(mark));
        waiting.after(mark, WriteEnd::Done);
        assert!(waiting.0.is_empty(), "the newest Event must say what holds: {waiting:?}");
    }
}
