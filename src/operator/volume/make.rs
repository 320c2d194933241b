//! Making a volume: accept or reject it, then use the first disk that can take it.
//!
//! Takes in an object that asks for a volume; gives out the volume, or why it is not made here. The status names the
//! disk before the first write to it.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::new_volume;
use super::queue::VOLUME_RETRY;
use super::status::{self, Refusal};
use super::work::{NotMade, Requeue, VolumeReconcile, ZEROING};
use crate::api::crd::{Phase, PoolVolume, PoolVolumeStatus, VolumeReason};
use crate::host::chain;
use crate::operator::error::OperatorError;
use crate::operator::pool_volume::{request, stale};
use crate::pool::{CreateRequest, Destination, Doubt, Made, PoolError, VolumeView};
use crate::volume::VolumeGuard;

impl VolumeReconcile {
    /// Accepts or rejects it; the acceptance is written before the first write to a disk.
    pub async fn consider(&self, object: &PoolVolume) -> Result<Requeue, OperatorError> {
        if !self.config.complete || !self.pass.knows_all {
            // Every volume is looked at again once the config is complete, and after the pass that uses its sets.
            return Ok(Requeue::Done);
        }
        let wanted = match request(object) {
            Ok(wanted) => wanted,
            Err(invalid) => {
                let message = chain(&invalid);
                return self.refuse(object, Phase::Rejected, Refusal { reason: VolumeReason::Invalid, message }).await;
            }
        };
        let placed = self.blocking(move |pool| pool.place(&wanted, &BTreeSet::new())).await?;
        // It may be on that disk already. Then no other node may make it, whether or not this node takes new volumes.
        if let Err(error @ PoolError::DiskAway { disk, .. }) = &placed {
            let message = Some(chain(error));
            self.write(object, PoolVolumeStatus { message, ..status::accepted(disk) }).await?;
            return Ok(Requeue::DiskBack);
        }
        if self.config.cordoned {
            let message =
                format!("node {} is cordoned (DevicePool spec.cordon): no new volumes there", self.operator.node);
            return self.refuse(object, Phase::Rejected, Refusal { reason: VolumeReason::Cordoned, message }).await;
        }
        if let Some(message) = stale(object, (self.operator.clock)()) {
            return self.refuse(object, Phase::Rejected, Refusal { reason: VolumeReason::Stale, message }).await;
        }
        let disk = match placed {
            Ok(Destination::On(disk)) => disk,
            // It appeared after the look.
            Ok(Destination::There) => return Ok(Requeue::After(VOLUME_RETRY)),
            Err(error) => {
                return self.refuse(object, Phase::Rejected, Refusal::of(&error, &self.operator.node)).await;
            }
        };
        if !new_volume::is_new(object)
            && let Some(refusal) = self.was_made_before().await?
        {
            return self.refuse(object, Phase::Rejected, refusal).await;
        }
        let accepted = self.write(object, status::accepted(&disk)).await?;
        self.make(&accepted).await
    }

    /// A PersistentVolume is only created for a volume that exists: if there is one, and no disk has the volume, an
    /// empty one must not take its place.
    pub async fn was_made_before(&self) -> Result<Option<Refusal>, OperatorError> {
        let claimed_by = self.operator.questions.claimed_by(self.id).await?;
        let message = |name: String| {
            format!(
                "node {}: the PersistentVolume {name} names the volume, but no disk of this node has it: no empty one \
                 is made in its place. Bring its disk back, or delete the claim",
                self.operator.node
            )
        };
        Ok(claimed_by.map(|name| Refusal { reason: VolumeReason::VolumeMissing, message: message(name) }))
    }

    pub async fn make(&self, object: &PoolVolume) -> Result<Requeue, OperatorError> {
        let wanted = match request(object) {
            Ok(wanted) => wanted,
            Err(invalid) => {
                let message = chain(&invalid);
                return self.refuse(object, Phase::Failed, Refusal { reason: VolumeReason::Invalid, message }).await;
            }
        };
        let Ok(guard) = self.operator.locks.hold(self.id) else { return Ok(Requeue::Again) };
        let (object, made) = self.make_on_some_disk(object, &wanted, &Arc::new(guard)).await?;
        self.operator.pool_changed();
        match made {
            Ok(view) => {
                self.write(
                    &object,
                    status::ready(&object, &view, &self.operator.health.of_volume(&view), Phase::Ready),
                )
                .await?;
                Ok(Requeue::Done)
            }
            // Nothing was written: another volume was faster.
            Err(error @ (PoolError::NoPlace(_) | PoolError::NoSet(_) | PoolError::WhichClass(_))) => {
                self.refuse(&object, Phase::Failed, Refusal::of(&error, &self.operator.node)).await
            }
            // The disk is still being zeroed.
            Err(error @ PoolError::BeingZeroed { .. }) => {
                self.write(&object, status::delayed(&object, chain(&error))).await?;
                Ok(Requeue::After(ZEROING))
            }
            Err(error) => {
                let message = chain(&error);
                tracing::error!(volume = self.name(), why = message, "a volume could not be made; trying again");
                self.operator.pool.nudge();
                self.write(&object, status::delayed(&object, message)).await?;
                Ok(Refusal::not_made(&error).map_or(Requeue::Again, Requeue::NotMade))
            }
        }
    }

    /// Makes it on the disk that the object names, or on another one if that disk has no room or fails. The status
    /// names each disk before the first write to it. Returns the object after that.
    async fn make_on_some_disk(
        &self,
        object: &PoolVolume,
        wanted: &CreateRequest,
        guard: &Arc<VolumeGuard>,
    ) -> Result<(PoolVolume, Result<VolumeView, PoolError>), OperatorError> {
        let mut object = object.clone();
        let (mut tried, mut failure) = (BTreeSet::new(), None);
        loop {
            let named = object.status.as_ref().and_then(|status| status.disk.clone());
            let disk = match named.filter(|disk| !tried.contains(disk)) {
                Some(disk) => Some(disk),
                None => {
                    let (wanted, tried) = (wanted.clone(), tried.clone());
                    match self.blocking(move |pool| pool.place(&wanted, &tried)).await? {
                        Ok(Destination::There) => None,
                        Ok(Destination::On(disk)) => {
                            object = self.write(&object, status::accepted(&disk)).await?;
                            Some(disk)
                        }
                        Err(error) if error.is_no_place() => return Ok((object, Err(failure.unwrap_or(error)))),
                        Err(error) => return Ok((object, Err(error))),
                    }
                }
            };
            let (wanted, guard, on) = (wanted.clone(), Arc::clone(guard), disk.clone());
            let made = self.blocking(move |pool| {
                let made = pool.create_on(&wanted, on.as_ref());
                drop(guard);
                made
            });
            match made.await? {
                Ok(Made::Volume(view, _)) => return Ok((object, Ok(*view))),
                Ok(Made::Full) => tried.extend(disk),
                Ok(Made::Failed(error)) => {
                    failure = Some(error);
                    tried.extend(disk);
                }
                Err(error) => return Ok((object, Err(error))),
            }
        }
    }

    /// It may be on a disk that cannot be asked: it is not made elsewhere.
    pub async fn wait(&self, object: &PoolVolume, doubt: Doubt) -> Result<Requeue, OperatorError> {
        if let Some(words) = doubt.words() {
            self.write(object, status::delayed(object, words)).await?;
        }
        Ok(Requeue::DiskBack)
    }

    /// Another node may make it.
    pub async fn give_up(&self, object: &PoolVolume, failed: &NotMade) -> Result<Requeue, OperatorError> {
        let disk = object.status.as_ref().and_then(|status| status.disk.as_ref());
        let refusal = failed.why.clone().given_up(&self.operator.node, disk, failed.times);
        self.refuse(object, Phase::Failed, refusal).await
    }
}
