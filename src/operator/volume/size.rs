//! Giving a volume the size that its object asks for.
//!
//! Takes in the object, and the volume as it is; changes its disk, and writes what came of it.

use super::decide::{OnDisk, VolumeAction, decide};
use super::own_volume::{Requeue, ZEROING, unless_ordered};
use super::report::after;
use super::resize::Resize;
use super::work::VolumeReconcile;
use crate::api::crd::{Phase, PoolVolume, PoolVolumeStatus};
use crate::host::chain;
use crate::operator::api_server::error::{OperatorError, error_message};
use crate::operator::bytes::unsigned;
use crate::pool::{DiskView, Doubt, PoolError, VolumeView};

impl VolumeReconcile {
    /// Resizes it, and reports the result.
    pub async fn resize(
        &self,
        object: &PoolVolume,
        view: &VolumeView,
        wanted: Resize,
    ) -> Result<Requeue, OperatorError> {
        // Before anything is reported: that would give the object the present size.
        if let Some(why) = object.status.as_ref().and_then(|status| wanted.refusal(status, view.size)) {
            return self.report_resized(object, view, wanted, Some(why)).await;
        }
        if self.is_unpromised(view).await? {
            return Ok(match self.report(object, Some(view), Doubt::None).await? {
                Requeue::Done => Requeue::DiskBack,
                next => next,
            });
        }
        let Ok(guard) = self.volume.operator.locks.hold(self.volume.id) else { return Ok(Requeue::Again) };
        if wanted.limit.is_some() {
            let disk = OnDisk::Volume { record: view.record.as_ref(), size: view.size };
            let stands = |live: &PoolVolume| {
                decide(Some(live), &self.volume.operator.node, disk) == VolumeAction::Resize(wanted)
            };
            if let Some(next) = unless_ordered(self.volume.live(object).await?, stands) {
                return Ok(next);
            }
        }
        let id = self.volume.id;
        let resized = self
            .volume
            .blocking(move |pool| {
                let resized = pool.expand(id, unsigned(wanted.size), wanted.limit.map(unsigned));
                drop(guard);
                resized
            })
            .await?;
        self.volume.operator.pool_changed();
        let (view, error) = match resized {
            Ok(view) => (view, None),
            Err(PoolError::BeingZeroed { .. }) => return Ok(Requeue::After(ZEROING)),
            Err(error) if error.is_full() => (view.clone(), Some(chain(&error))),
            Err(
                error @ (PoolError::Apply(_)
                | PoolError::Bare(_)
                | PoolError::Filesystem(_)
                | PoolError::DiskAway { .. }),
            ) => {
                tracing::error!(
                    volume = self.volume.name(),
                    error = error_message(&error),
                    "the volume could not be given another size; trying again"
                );
                return Ok(self.volume.after_failure(&error));
            }
            Err(error) => (view.clone(), Some(chain(&error))),
        };
        self.report_resized(object, &view, wanted, error).await
    }

    async fn report_resized(
        &self,
        object: &PoolVolume,
        view: &VolumeView,
        wanted: Resize,
        error: Option<String>,
    ) -> Result<Requeue, OperatorError> {
        let status = PoolVolumeStatus {
            observed_size: Some(wanted.size),
            observed_size_limit: wanted.limit,
            resize_error: error,
            ..self.volume.ready(object, view, Phase::Ready)
        };
        self.volume.write(object, status).await?;
        Ok(after(view))
    }

    /// Whether its disk was not told yet what its set promises of it and reserves: a pass does that. One that is a
    /// partition grows into what is behind it, whatever its set says.
    async fn is_unpromised(&self, view: &VolumeView) -> Result<bool, OperatorError> {
        if view.directory.is_none() {
            return Ok(false);
        }
        if !self.config.complete || !self.pass.knows_all {
            return Ok(true);
        }
        if !self.config.sets.values().flatten().any(|rule| rule.set.uid == view.set.uid) {
            return Ok(false);
        }
        let disk = view.disk.clone();
        let is_told = move |view: &DiskView| view.id == disk && view.owned;
        Ok(!self.volume.blocking(move |pool| pool.disk_views().iter().any(is_told)).await?)
    }
}
