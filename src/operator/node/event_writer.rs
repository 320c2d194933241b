//! Writes the Events of an agent, one after the other.
//!
//! Takes in what happened to what; gives out Events. Those of a volume are about its claim, where a
//! PersistentVolumeClaim has it, else about the PoolVolume.

use k8s_openapi::api::core::v1::{ObjectReference, PersistentVolume};
use kube::{Client, Resource as _, ResourceExt as _};

use crate::api::crd::PoolVolume;
use crate::device::NodeName;
use crate::operator::client::is_object_name;
use crate::operator::error::{OperatorError, error_message};
use crate::operator::event_queue::{EventSubject, QueuedEvent, QueuedEvents};
use crate::operator::event_writer::EventWriter;
use crate::operator::volume::objects::{VolumeApi, is_of};

/// Writes what is queued, until nobody can queue anything.
pub async fn keep(client: Client, node: NodeName, mut queued: QueuedEvents) {
    let (events, volumes) = (EventWriter::new(client.clone(), node.as_str()), VolumeApi::new(client));
    while let Some(QueuedEvent { about, action, note }) = queued.recv().await {
        let about = match about {
            EventSubject::Object(object) => *object,
            EventSubject::Volume(volume) => claim_or_volume(&volumes, &volume).await,
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

async fn claim_or_volume(volumes: &VolumeApi, volume: &PoolVolume) -> ObjectReference {
    let claim = match persistent_volume(volumes, volume).await {
        Ok(found) => found.and_then(bound_claim),
        Err(error) => {
            tracing::warn!(
                volume = volume.name_any(),
                error = error_message(&error),
                "an Event is about the PoolVolume, not about its claim"
            );
            None
        }
    };
    claim.unwrap_or_else(|| volume.object_ref(&()))
}

/// The provisioner gives it the name of the volume; one that a person created may have any name, and is not searched
/// for: each search reads all PersistentVolumes.
async fn persistent_volume(
    volumes: &VolumeApi,
    volume: &PoolVolume,
) -> Result<Option<PersistentVolume>, OperatorError> {
    let name = &volume.spec.volume_name;
    if !is_object_name(name) {
        return Ok(None);
    }
    Ok(volumes.persistent_volume_named(name).await?.filter(|found| is_of(found, &volume.name_any())))
}

/// The claim that a PersistentVolume is bound to.
fn bound_claim(volume: PersistentVolume) -> Option<ObjectReference> {
    volume.status.filter(|status| status.phase.as_deref() == Some("Bound"))?;
    let ObjectReference { namespace, name, uid, .. } = volume.spec?.claim_ref?;
    Some(ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("PersistentVolumeClaim".to_owned()),
        namespace,
        name,
        uid,
        ..ObjectReference::default()
    })
}
