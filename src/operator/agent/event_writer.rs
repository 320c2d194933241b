//! Writes the Events of an agent, one after the other.
//!
//! Takes in what happened to what; gives out Events. Those of a volume are about its claim, where a
//! PersistentVolumeClaim has it, else about the PoolVolume.

use k8s_openapi::api::core::v1::ObjectReference;
use kube::{Client, Resource as _};

use crate::api::crd::{CLAIM_UID_ANNOTATION, PoolVolume};
use crate::device::NodeName;
use crate::operator::api_server::error::error_message;
use crate::operator::event::queue::{EventSubject, QueuedEvent, QueuedEvents};
use crate::operator::event::writer::EventWriter;

/// Writes what is queued, until nobody can queue anything.
pub async fn keep(client: Client, node: NodeName, mut queued: QueuedEvents) {
    let events = EventWriter::new(client, node.as_str());
    while let Some(QueuedEvent { about, action, note }) = queued.recv().await {
        let about = match about {
            EventSubject::Object(object) => *object,
            EventSubject::Volume(volume) => claim_or_volume(&volume),
        };
        if let Err(error) = events.write(&about, action, &note).await {
            tracing::warn!(
                reason = note.reason,
                note = note.note,
                error = error_message(&error),
                "an Event is not written"
            );
        }
    }
}

fn claim_or_volume(volume: &PoolVolume) -> ObjectReference {
    bound_claim(volume).unwrap_or_else(|| volume.object_ref(&()))
}

/// The claim that has the volume now, as the controller says in the object.
fn bound_claim(volume: &PoolVolume) -> Option<ObjectReference> {
    let uid = volume.annotation(CLAIM_UID_ANNOTATION)?;
    let (namespace, name) = volume.claim()?.split_once('/')?;
    Some(ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("PersistentVolumeClaim".to_owned()),
        namespace: Some(namespace.to_owned()),
        name: Some(name.to_owned()),
        uid: Some(uid.to_owned()),
        ..ObjectReference::default()
    })
}
