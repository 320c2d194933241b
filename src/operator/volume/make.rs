//! Making a volume: accept or reject it, then use the first disk that can take it.
//!
//! Takes in an object that asks for a volume; gives out the volume, or why it is not made here. The status names the
//! disk before the first write to it.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::create::is_new;
use super::own_volume::{Requeue, ZEROING};
use super::queue::VOLUME_RETRY;
use super::report::after;
use super::status::{self, Refusal};
use super::work::{NotMade, VolumeReconcile};
use crate::api::crd::{Phase, PoolVolume, PoolVolumeStatus, VolumeReason};
use crate::host::chain;
use crate::operator::api_server::error::OperatorError;
use crate::operator::api_server::object_key::ObjectName;
use crate::operator::kube_volume::PersistentVolume;
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
            Err(invalid) => return self.volume.refuse(object, Phase::Rejected, Refusal::invalid(&invalid)).await,
        };
        let placed = self.volume.blocking(move |pool| pool.place(&wanted, &BTreeSet::new())).await?;
        // It may be on that disk already. Then no other node may make it, whether or not this node takes new volumes.
        if let Err(error @ PoolError::DiskAway { disk, .. }) = &placed {
            let message = Some(chain(error));
            self.volume.write(object, PoolVolumeStatus { message, ..status::accepted(disk) }).await?;
            return Ok(Requeue::DiskBack);
        }
        if self.config.cordoned {
            let message = format!(
                "node {} is cordoned (DevicePool spec.cordon): no new volumes there",
                self.volume.operator.node
            );
            return self
                .volume
                .refuse(object, Phase::Rejected, Refusal { reason: VolumeReason::Cordoned, message })
                .await;
        }
        if let Some(message) = stale(object, (self.volume.operator.clock)()) {
            return self.volume.refuse(object, Phase::Rejected, Refusal { reason: VolumeReason::Stale, message }).await;
        }
        let disk = match placed {
            Ok(Destination::On(disk)) => disk,
            // It appeared after the pass.
            Ok(Destination::There) => return Ok(Requeue::After(VOLUME_RETRY)),
            Err(error) => {
                return self
                    .volume
                    .refuse(object, Phase::Rejected, Refusal::of(&error, &self.volume.operator.node))
                    .await;
            }
        };
        if !is_new(object)
            && let Some(refusal) = self.was_made_before().await?
        {
            return self.volume.refuse(object, Phase::Rejected, refusal).await;
        }
        let accepted = self.volume.write(object, status::accepted(&disk)).await?;
        self.make(&accepted).await
    }

    /// A PersistentVolume is only created for a volume that exists: if there is one, and no disk has the volume, an
    /// empty one must not take its place.
    pub async fn was_made_before(&self) -> Result<Option<Refusal>, OperatorError> {
        let named_by = self.volume.operator.questions.named_by(self.volume.id).await?;
        let message = |name: ObjectName<PersistentVolume>| {
            format!(
                "node {}: the PersistentVolume {name} names the volume, but no disk of this node has it: no empty one \
                 is made in its place. Bring its disk back, or delete the claim",
                self.volume.operator.node
            )
        };
        Ok(named_by.map(|name| Refusal { reason: VolumeReason::VolumeMissing, message: message(name) }))
    }

    pub async fn make(&self, object: &PoolVolume) -> Result<Requeue, OperatorError> {
        let wanted = match request(object) {
            Ok(wanted) => wanted,
            Err(invalid) => return self.volume.refuse(object, Phase::Failed, Refusal::invalid(&invalid)).await,
        };
        let Ok(guard) = self.volume.operator.locks.hold(self.volume.id) else { return Ok(Requeue::Again) };
        let (object, made) = self.make_on_some_disk(object, &wanted, &Arc::new(guard)).await?;
        self.volume.operator.pool_changed();
        match made {
            Ok(view) => {
                self.volume.write(&object, self.volume.ready(&object, &view, Phase::Ready)).await?;
                Ok(after(&view))
            }
            // Nothing was written: another volume was faster.
            Err(error @ (PoolError::NoPlace(_) | PoolError::NoSet(_) | PoolError::WhichClass(_))) => {
                self.volume.refuse(&object, Phase::Failed, Refusal::of(&error, &self.volume.operator.node)).await
            }
            // No later try has more space before somebody frees it.
            Err(error) if error.is_full() => {
                self.volume.refuse(&object, Phase::Failed, Refusal::of(&error, &self.volume.operator.node)).await
            }
            // The disk is still being zeroed.
            Err(error @ PoolError::BeingZeroed { .. }) => {
                self.volume.write(&object, status::delayed(&object, chain(&error))).await?;
                Ok(Requeue::After(ZEROING))
            }
            Err(error) => {
                let message = chain(&error);
                tracing::error!(volume = self.volume.name(), why = message, "a volume could not be made; trying again");
                self.volume.operator.pool.nudge();
                self.volume.write(&object, status::delayed(&object, message)).await?;
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
                    match self.volume.blocking(move |pool| pool.place(&wanted, &tried)).await? {
                        Ok(Destination::There) => None,
                        Ok(Destination::On(disk)) => {
                            object = self.volume.write(&object, status::accepted(&disk)).await?;
                            Some(disk)
                        }
                        Err(error) if error.is_no_place() => return Ok((object, Err(failure.unwrap_or(error)))),
                        Err(error) => return Ok((object, Err(error))),
                    }
                }
            };
            let (wanted, guard, on) = (wanted.clone(), Arc::clone(guard), disk.clone());
            let made = self.volume.blocking(move |pool| {
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
        if let Some(message) = doubt.message() {
            self.volume.write(object, status::delayed(object, message)).await?;
        }
        Ok(Requeue::DiskBack)
    }

    /// Another node may make it.
    pub async fn give_up(&self, object: &PoolVolume, failed: &NotMade) -> Result<Requeue, OperatorError> {
        let disk = object.status.as_ref().and_then(|status| status.disk.as_ref());
        let refusal = failed.why.clone().given_up(&self.volume.operator.node, disk, failed.times);
        self.volume.refuse(object, Phase::Failed, refusal).await
    }
}
