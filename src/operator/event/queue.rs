//! The Events that an agent has yet to write: nobody waits for them, and what does not fit is only in the log. What
//! holds now is in the status.

use k8s_openapi::api::core::v1::ObjectReference;
use tokio::sync::mpsc;

use crate::api::crd::PoolVolume;
use crate::operator::event::EventNote;

/// How many may wait. A disk that dies has an Event for each of its volumes.
const ROOM: usize = 1024;

/// Where to put an Event.
#[derive(Clone)]
pub struct EventQueue(mpsc::Sender<QueuedEvent>);

/// Where they are taken from.
pub type QueuedEvents = mpsc::Receiver<QueuedEvent>;

pub struct QueuedEvent {
    pub about: EventSubject,
    pub action: &'static str,
    pub note: EventNote,
}

/// What an Event is about.
pub enum EventSubject {
    Object(Box<ObjectReference>),
    /// A volume, or the claim that has it.
    Volume(Box<PoolVolume>),
}

impl EventQueue {
    pub fn new() -> (Self, QueuedEvents) {
        let (sender, queued) = mpsc::channel(ROOM);
        (Self(sender), queued)
    }

    pub fn put(&self, about: EventSubject, action: &'static str, note: EventNote) {
        if let Err(refused) = self.0.try_send(QueuedEvent { about, action, note }) {
            let EventNote { reason, note, .. } = refused.into_inner().note;
            tracing::warn!(reason, note, "too many Events wait: one is not written");
        }
    }
}
