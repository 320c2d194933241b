//! Tells people what was done, and what holds a volume back: once, with Events and in the condition of its PoolVolume.

use std::sync::Arc;

use kube::{Api, Client, ResourceExt as _};
use serde_json::json;

use super::marked::MarkedVolume;
use super::memory::ReactionMemory;
use super::report::{self, ReactionReport};
use super::why::Why;
use crate::api::crd::PoolVolume;
use crate::operator::api_server::object_key::Uid;
use crate::operator::api_server::store::Store;
use crate::operator::api_server::write::{Write, patch_status};
use crate::operator::event::writer::EventWriter;
use crate::operator::kube_volume::{Backing, PersistentVolume};
use crate::operator::metrics::Metrics;
use crate::operator::persistent_volume::view::View;

/// The name of this work in metrics and logs.
pub const WORK: &str = "reaction";

pub struct Teller {
    client: Client,
    volumes: Store<PoolVolume>,
    events: EventWriter,
    metrics: Metrics,
}

impl Teller {
    pub fn new(client: Client, volumes: Store<PoolVolume>, metrics: Metrics, identity: &str) -> Self {
        Self { volumes, events: EventWriter::new(client.clone(), identity), metrics, client }
    }

    /// Writes the Event of a step. Gives whether nothing has to be tried again.
    pub async fn done(&self, cluster: &View, volume: &MarkedVolume, reported: &ReactionReport) -> bool {
        self.write_events(reported).await && self.write_condition(object_of(cluster, volume), Some(reported)).await
    }

    /// Writes the Event of a volume that waits.
    pub async fn tell(&self, cluster: &View, volume: &MarkedVolume, why: Why, memory: &mut ReactionMemory) -> bool {
        let (object, reported) = (object_of(cluster, volume), report::of_why(volume, why));
        if !is_reported(object, memory, &volume.uid, why) {
            if !self.write_events(&reported).await {
                return false;
            }
            memory.tell(&volume.uid, why);
        }
        self.write_condition(object, Some(&reported)).await
    }

    async fn write_events(&self, reported: &ReactionReport) -> bool {
        let mut is_done = true;
        for about in &reported.about {
            // Events of one reason and action are one Event with a count, whatever their notes say.
            is_done &=
                self.metrics.note(WORK, self.events.write(about, reported.word, &reported.event).await).is_some();
        }
        is_done
    }

    /// There is nothing to write for a volume without a PoolVolume.
    pub async fn write_condition(&self, object: Option<&Arc<PoolVolume>>, reported: Option<&ReactionReport>) -> bool {
        let Some(object) = object.filter(|object| object.status.is_some()) else { return true };
        let (api, name) = (Api::<PoolVolume>::all(self.client.clone()), object.name_any());
        let seen = json!({"uid": object.uid(), "resourceVersion": object.resource_version()});
        let change = json!({"metadata": seen, "status": {"conditions": report::conditions(object, reported)}});
        let what = format!("writing the condition {} of PoolVolume {name}", report::REACTION);
        let sent = self.volumes.list_count();
        let written = self.metrics.note(WORK, patch_status(&api, &name, &what, change).await);
        if let Some(Write::Done(written)) = written {
            self.volumes.learn(written, sent);
            return true;
        }
        written.is_some()
    }
}

/// That of a volume of this driver.
pub fn object_of<'c>(cluster: &'c View, volume: &MarkedVolume) -> Option<&'c Arc<PoolVolume>> {
    match &volume.backing {
        Backing::Volume(id) => cluster.volumes.get(id),
        Backing::Path(_) => None,
    }
}

/// Whether this process or an earlier one has reported it.
pub fn is_reported(
    object: Option<&Arc<PoolVolume>>,
    memory: &ReactionMemory,
    uid: &Uid<PersistentVolume>,
    why: Why,
) -> bool {
    memory.reported(uid) == Some(why) || object.is_some_and(|object| report::reported_by(object) == Some(why.word()))
}
