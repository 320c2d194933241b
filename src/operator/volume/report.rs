//! What the object reports about a volume that is here, and how a lost object is restored.
//!
//! Takes in what is on disk and what the object says; writes the status, or the object again.

use kube::api::PostParams;

use super::order;
use super::own_volume::{Requeue, unless_ordered};
use super::queue::VOLUME_RETRY;
use super::reported_volumes::described_by;
use super::status::{self, Refusal};
use super::work::VolumeReconcile;
use crate::api::crd::{PERSISTENT_VOLUME_ANNOTATION, Phase, PoolVolume, PoolVolumeStatus, VolumeOrder, VolumeReason};
use crate::health::Finding;
use crate::host::chain;
use crate::operator::api_server::error::{OperatorError, error_message};
use crate::operator::bytes::unsigned;
use crate::operator::pool_volume::{request, restored};
use crate::pool::{Doubt, Standing, VolumeView, difference};

impl VolumeReconcile {
    pub async fn report(
        &self,
        object: &PoolVolume,
        view: Option<&VolumeView>,
        doubt: Doubt,
    ) -> Result<Requeue, OperatorError> {
        self.settle_orders.take_in(self.volume.id, object);
        let Some(view) = view else {
            self.volume.write(object, status::missing(object, doubt.message(), &self.volume.operator.process)).await?;
            return Ok(Requeue::DiskBack);
        };
        // Whichever of the volumes is right, the object keeps its phase.
        if view.conflict.is_some() {
            let phase = match object.status.as_ref().map_or(Phase::Pending, |status| status.phase) {
                Phase::Found => Phase::Found,
                Phase::Pending | Phase::Rejected | Phase::Accepted | Phase::Failed => Phase::Ready,
                Phase::Ready | Phase::Deleting => Phase::Ready,
            };
            let (next, trouble) = match object.spec.order {
                Some(VolumeOrder::Settle) if !order::is_done(object) => match self.settle(object).await? {
                    (next, None) => return Ok(next),
                    (Requeue::Done, trouble) => (after(view), trouble),
                    waits => waits,
                },
                Some(VolumeOrder::Settle | VolumeOrder::Adopt | VolumeOrder::Erase | VolumeOrder::Abandon) | None => {
                    (after(view), None)
                }
            };
            let status = self.volume.ready(object, view, phase);
            self.volume
                .write(object, PoolVolumeStatus { message: trouble.or(status.message.clone()), ..status })
                .await?;
            return Ok(next);
        }
        self.settle_orders.end(self.volume.id);
        let phase = object.status.as_ref().map_or(Phase::Pending, |status| status.phase);
        if let (Phase::Pending | Phase::Accepted | Phase::Rejected | Phase::Failed, Some(record)) =
            (phase, &view.record)
        {
            let differs = match request(object) {
                Ok(wanted) => difference(record, view.size, &wanted),
                Err(invalid) => Some(chain(&invalid)),
            };
            if let Some(why) = differs {
                let message = format!("a volume of this name is on disk {} already: {why}", view.disk);
                return self
                    .volume
                    .refuse(object, Phase::Rejected, Refusal { reason: VolumeReason::Differs, message })
                    .await;
            }
        }
        if view.record.as_ref().is_some_and(|record| record.found) {
            return self.report_found(object, view).await;
        }
        let phase = phase_on_disk(phase, view);
        self.volume.write(object, self.volume.ready(object, view, phase)).await?;
        Ok(if phase == Phase::Accepted { Requeue::Again } else { after(view) })
    }

    /// If the label has lost the description of a volume, the volume gets it again from its object. It stays as it was
    /// if that cannot be done, or if the object does not say which filesystem it has.
    pub async fn describe_again(&self, object: &PoolVolume, view: VolumeView) -> Result<VolumeView, OperatorError> {
        let is_its = object
            .status
            .as_ref()
            .is_some_and(|status| status.size.is_some() && status.disk.as_ref() == Some(&view.disk));
        if !is_its
            || object.spec.node != self.volume.operator.node
            || view.conflict.is_some()
            || view.standing != Standing::Ready
        {
            return Ok(view);
        }
        let Some((id, mut record)) = described_by(object, None).filter(|(id, _)| *id == view.id) else {
            return Ok(view);
        };
        if view.directory.is_some() {
            record.required = last_size(object, record.required);
        }
        let disk = view.disk.clone();
        Ok(match self.volume.blocking(move |pool| pool.describe_volume(id, &disk, &record)).await? {
            Ok(described) => {
                tracing::warn!(
                    volume = self.volume.name(),
                    disk = %described.disk,
                    "the label had lost its description of a volume; it was restored from the object"
                );
                described
            }
            Err(error) => {
                tracing::error!(
                    volume = self.volume.name(),
                    error = chain(&error),
                    "the label does not describe a volume, and its description could not be restored from the object"
                );
                view
            }
        })
    }

    /// A found volume: usable once a PersistentVolume names it for this node, or a person orders it. The controller
    /// says in the object when there is one; only then the agent asks.
    async fn report_found(&self, object: &PoolVolume, view: &VolumeView) -> Result<Requeue, OperatorError> {
        let is_named = object.annotation(PERSISTENT_VOLUME_ANNOTATION).is_some();
        let (phase, trouble) = match object.spec.order {
            Some(VolumeOrder::Adopt) if !order::is_done(object) => {
                if let Some(next) = unless_ordered(self.volume.live(object).await?, |live| order::stands(object, live))
                {
                    return Ok(next);
                }
                match self.adopt().await {
                    Ok(()) => (Phase::Ready, None),
                    Err(error) => (Phase::Found, Some(error_message(&error))),
                }
            }
            Some(VolumeOrder::Adopt | VolumeOrder::Erase | VolumeOrder::Abandon | VolumeOrder::Settle) | None
                if is_named =>
            {
                (self.phase_of(view).await?, None)
            }
            Some(VolumeOrder::Adopt | VolumeOrder::Erase | VolumeOrder::Abandon | VolumeOrder::Settle) | None => {
                (Phase::Found, None)
            }
        };
        let is_due = phase == Phase::Found && (is_named || trouble.is_some());
        let status = self.volume.ready(object, view, phase);
        self.volume.write(object, PoolVolumeStatus { message: trouble.or(status.message.clone()), ..status }).await?;
        Ok(if is_due { Requeue::Again } else { after(view) })
    }

    async fn adopt(&self) -> Result<(), OperatorError> {
        let id = self.volume.id;
        let adopted = self.volume.blocking(move |pool| pool.adopt_volume(id)).await?;
        adopted.map(|_| ()).map_err(|error| OperatorError::Refused(chain(&error)))
    }

    /// Ready if a PersistentVolume names it; else found, which the disk records.
    async fn phase_of(&self, view: &VolumeView) -> Result<Phase, OperatorError> {
        let Some(record) = &view.record else { return Ok(Phase::Found) };
        if view.conflict.is_some() {
            return Ok(Phase::Found);
        }
        let is_named = self.volume.operator.questions.named_by(self.volume.id).await?.is_some();
        let id = self.volume.id;
        let done = match is_named {
            true => self.volume.blocking(move |pool| pool.adopt_volume(id).map(|_| ())).await?,
            // If it is not found any more, a person has adopted it since the pass: the next pass sees that.
            false if record.found => Ok(()),
            false => self.volume.blocking(move |pool| pool.disown_volume(id)).await?,
        };
        done.map_err(|error| OperatorError::Refused(chain(&error)))?;
        Ok(if is_named { Phase::Ready } else { Phase::Found })
    }

    /// A volume without an object: its data is here, so the object is written again.
    pub async fn restore(&self, view: &VolumeView) -> Result<Requeue, OperatorError> {
        let Some(record) = &view.record else { return Ok(Requeue::Done) };
        let disk = view.disk.clone();
        if !self.volume.blocking(move |pool| pool.journal().is_undisputed(&disk)).await? {
            // Another object may name the device: then a person decides which volume is there.
            return Ok(Requeue::DiskBack);
        }
        let phase = self.phase_of(view).await?;
        let name = self.volume.name();
        self.volume.operator.count(|writes| &writes.volume);
        let sent = self.volume.known.list_count();
        let made =
            self.volume.api().create(&PostParams::default(), &restored(view, record, &self.volume.operator.node)).await;
        let object = match made {
            Ok(object) => object,
            Err(kube::Error::Api(status)) if status.code == 409 => {
                let api = self.volume.api();
                let object = api.get(&name).await.map_err(OperatorError::api(format!("reading PoolVolume {name}")))?;
                if object.spec.node != self.volume.operator.node {
                    tracing::error!(
                        volume = name,
                        other = object.spec.node.as_str(),
                        "the volume is on a disk of this node, but its object names another disk; nothing is done \
                         until one of the two is gone"
                    );
                    return Ok(Requeue::Again);
                }
                self.volume.known.learn(object, sent);
                return Ok(Requeue::After(VOLUME_RETRY));
            }
            Err(error) => {
                return Err(OperatorError::api(format!(
                    "writing PoolVolume {name} again, whose data is on disk {}",
                    view.disk
                ))(error));
            }
        };
        tracing::warn!(
            volume = name,
            ?phase,
            "the object of a volume was missing, and is written again: its data is on disk"
        );
        self.volume.known.learn(object.clone(), sent);
        self.volume.write(&object, self.volume.ready(&object, view, phase)).await?;
        Ok(after(view))
    }
}

/// When to look again at a volume that was reported like this. A pass is compared with the one before it: what was
/// reported between the two, and ended with the second one, neither of them shows.
pub(super) fn after(view: &VolumeView) -> Requeue {
    let is_found = view.record.as_ref().is_some_and(|record| record.found);
    if Finding::of_volume(view).is_empty() && !is_found { Requeue::Done } else { Requeue::DiskBack }
}

/// The size that a folder had, which nothing but its object and its record says: it may have grown since it was made, or
/// become smaller. An object that does not know it may have asked for more than at first.
fn last_size(object: &PoolVolume, required: u64) -> u64 {
    let size = object.status.as_ref().and_then(|status| status.size).filter(|size| *size > 0);
    size.map_or_else(|| required.max(unsigned(object.spec.size.unwrap_or_default())), unsigned)
}

/// The phase of a volume that a disk has and that nobody has to claim.
fn phase_on_disk(phase: Phase, view: &VolumeView) -> Phase {
    match phase {
        // A volume without a description is not adopted by this.
        Phase::Found if view.record.is_none() => Phase::Found,
        // No claim must get one that cannot be used before a person adopts its disk.
        Phase::Accepted if view.given_up => Phase::Accepted,
        Phase::Pending | Phase::Rejected | Phase::Accepted | Phase::Failed => Phase::Ready,
        Phase::Ready | Phase::Found | Phase::Deleting => Phase::Ready,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::label::VolumeRecord;
    use crate::operator::bytes::signed;
    use crate::operator::volume::sample::{GIB, in_phase, record, view};

    #[test]
    fn a_folder_has_the_size_that_it_had_last_and_not_its_first_one() {
        let mut object = in_phase(Phase::Ready);
        object.spec.size = Some(signed(7 * GIB));
        for (known, size) in [(Some(5 * GIB), 5 * GIB), (Some(GIB / 2), GIB / 2), (Some(0), 7 * GIB), (None, 7 * GIB)] {
            object.status.as_mut().expect("set").size = known.map(signed);
            assert_eq!(last_size(&object, GIB), size, "{known:?}");
        }
        object.spec.size = None;
        assert_eq!(last_size(&object, GIB), GIB);
    }

    #[test]
    fn a_volume_on_a_disk_that_was_given_up_is_not_ready_for_a_claim_that_waits_for_it() {
        let kept = VolumeView { given_up: true, ..view() };
        for (phase, of_kept, of_other) in [
            (Phase::Accepted, Phase::Accepted, Phase::Ready),
            (Phase::Ready, Phase::Ready, Phase::Ready),
            (Phase::Pending, Phase::Ready, Phase::Ready),
        ] {
            assert_eq!((phase_on_disk(phase, &kept), phase_on_disk(phase, &view())), (of_kept, of_other), "{phase:?}");
        }
        assert_eq!(phase_on_disk(Phase::Found, &view()), Phase::Found, "nobody describes it");
    }

    #[test]
    fn what_was_reported_of_a_volume_that_cannot_be_used_is_looked_at_after_the_next_pass_whatever_that_changed() {
        let well = VolumeView { record: Some(record()), ..view() };
        let found = VolumeRecord { found: true, ..record() };
        let not_ready = Standing::NotReady("a write failed".to_owned());
        for (view, next) in [
            (well.clone(), Requeue::Done),
            (VolumeView { standing: not_ready, ..well.clone() }, Requeue::DiskBack),
            (VolumeView { standing: Standing::Missing, ..well.clone() }, Requeue::DiskBack),
            (VolumeView { given_up: true, ..well.clone() }, Requeue::DiskBack),
            (VolumeView { conflict: Some("no limit".to_owned()), ..well.clone() }, Requeue::DiskBack),
            (VolumeView { record: Some(found), ..well }, Requeue::DiskBack),
            (view(), Requeue::DiskBack),
        ] {
            assert_eq!(after(&view), next, "{view:?}");
        }
    }
}
