//! ControllerExpandVolume: asks the node for a larger volume, and waits for its answer.

use serde_json::json;
use tokio::time::Instant;

use super::{CHANGE_TIMEOUT, ClusterVolumes, NOTICE_TIMEOUT, answer, unknown};
use crate::operator::volume::expand::{ExpandFacts, ExpandStep, step};
use crate::operator::volume::latest_volume::LatestVolume;
use crate::operator::write::Write;
use crate::volume::{Error, Volume, VolumeId};

impl ClusterVolumes {
    pub(super) async fn grow(self, id: VolumeId, required: u64, limit: Option<u64>) -> Result<Volume, Error> {
        let (grace_at, over_at) = (Instant::now() + NOTICE_TIMEOUT, Instant::now() + CHANGE_TIMEOUT);
        let mut latest = LatestVolume::new(&self.stores.volumes, id);
        if latest.look().is_none() {
            self.look_again(&mut latest, id).await?;
        }
        let mut asked = false;
        loop {
            let object = latest.look();
            let now = Instant::now();
            let node_exists = object.as_ref().is_none_or(|object| self.node_exists(&object.spec.node));
            let facts = ExpandFacts { node_exists, asked, grace: now >= grace_at, over: now >= over_at };
            let (size, after) = match step(object.as_deref(), required, limit, facts) {
                ExpandStep::Answer(Ok(())) => return answer(object.as_deref()),
                ExpandStep::Answer(Err(error)) => return Err(error),
                ExpandStep::Wait => {
                    latest.changed(if now < grace_at { grace_at } else { over_at }).await;
                    continue;
                }
                ExpandStep::Ask(size) => (size, None),
                ExpandStep::TakeBack(size, error) => (size, Some(error)),
            };
            let Some(object) = object else { continue };
            match self.objects.change(&object, json!({ "size": size })).await.map_err(unknown)? {
                Write::Done(_) if after.is_some() => return after.map_or_else(|| answer(Some(&object)), Err),
                Write::Done(now) => {
                    asked = true;
                    latest.learn(Some(now));
                }
                Write::Changed => self.look_again(&mut latest, id).await?,
            }
        }
    }
}
