//! Marks PersistentVolumes, and removes the marks.
//!
//! Each pass looks at everything and writes what differs. It starts when something changed, when the previous pass did
//! not do everything, or when a state has lasted long enough to count.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::mark_events::{MarkEvent, MarkEvents, MarkKey};
use super::marks::MarkChange;
use super::plan::{MarkPlan, Now, Planner};
use super::refusals::{Refusals, WriteEnd};
use super::reserve::{Reservation, ReservePolicy};
use super::view::View;
use super::volume_plan::VolumeChange;
use super::watch_list::WatchList;
use crate::agent::Run;
use crate::api::crd::{DevicePool, PERSISTENT_VOLUME_ANNOTATION, PoolVolume, VolumeOrder};
use crate::operator::api_server::error::OperatorError;
use crate::operator::api_server::object_key::Uid;
use crate::operator::api_server::store::Store;
use crate::operator::api_server::write::{Write, patch, patch_status};
use crate::operator::event::writer::EventWriter;
use crate::operator::kube_volume::PersistentVolume;
use crate::operator::metrics::Metrics;
use crate::operator::status::steady::GRACE;
use crate::operator::stores::Stores;
use crate::operator::volume::objects::VolumeApi;
use crate::operator::volume::{AskedBy, erase_of, give_up, given_up_lines};

/// Changes come in bursts; a pass waits for the end of one. It looks at all PersistentVolumes, and has time.
const SETTLE: Duration = Duration::from_secs(1);
/// How many PersistentVolumes one pass writes, and how long after it the next one begins: a rack that fails at once
/// must not keep the API server from those who mend it.
const WRITES: usize = 50;
const WRITES_INTERVAL: Duration = Duration::from_secs(1);
/// The name of this work in metrics and logs.
const WORK: &str = "monitor";

/// The monitor of Kubernetes' proposal (docs/health.md), for one replica.
pub struct Monitor {
    client: Client,
    stores: Stores,
    volumes: Store<PersistentVolume>,
    events: MarkEvents,
    metrics: Metrics,
    grace: SignedDuration,
    reserve: ReservePolicy,
}

impl Monitor {
    /// `volumes` are all PersistentVolumes, as the leader watches them.
    pub fn new(
        client: Client,
        stores: Stores,
        volumes: Store<PersistentVolume>,
        metrics: Metrics,
        reserve: ReservePolicy,
        identity: &str,
    ) -> Self {
        Self {
            stores,
            volumes,
            events: MarkEvents::new(EventWriter::new(client.clone(), identity)),
            metrics,
            grace: GRACE,
            reserve,
            client,
        }
    }

    /// Sets another time after which the state of a node counts.
    #[cfg(any(test, feature = "testing"))]
    pub fn with_grace(mut self, grace: SignedDuration) -> Self {
        self.grace = grace;
        self
    }

    /// Runs until it is dropped.
    pub async fn run(mut self) {
        let mut changes = self.stores.changes().and(self.volumes.changes());
        let (mut refusals, mut planner) = (Refusals::new(), Planner::new(self.grace, self.reserve.clone()));
        let began = Instant::now();
        loop {
            // Any change after this starts another pass.
            changes.mark_unchanged();
            let due = match self.stores.are_synced() && self.volumes.is_synced() {
                true => {
                    let now = began.elapsed();
                    let monotonic = SignedDuration::try_from(now).unwrap_or(SignedDuration::MAX);
                    let plan =
                        planner.plan(&View::of(&self.stores, &self.volumes), Now { wall: Timestamp::now(), monotonic });
                    self.perform(plan, &mut refusals, now).await
                }
                false => None,
            };
            let again = due.unwrap_or(Duration::MAX);
            let _ = tokio::time::timeout(again, changes.next()).await;
            tokio::time::sleep(SETTLE).await;
        }
    }

    /// Returns when there is something to do even if nothing changes.
    async fn perform(
        &mut self,
        plan: MarkPlan,
        refusals: &mut Refusals<PlannedKey>,
        now: Duration,
    ) -> Option<Duration> {
        self.count(&plan);
        self.events.begin_pass();
        let due = plan.due;
        let late = self.events.waiting().map(PlannedWrite::Event);
        let all = PlannedWrite::all_of(plan).into_iter().chain(late).collect();
        let (writes, waiting) = refusals.select(all, PlannedWrite::key, WRITES, now);
        let (mut pass, mut written) = (WriteEnd::Done, false);
        for write in writes {
            let end = self.carry_out(&write, refusals).await;
            refusals.written(write.key(), end);
            match end {
                WriteEnd::Done => written = true,
                WriteEnd::Refused => pass = WriteEnd::Refused,
            }
        }
        let due = due.map(|due| Duration::try_from(due).unwrap_or_default());
        let next = (waiting > 0 && written).then_some(WRITES_INTERVAL);
        due.into_iter().chain(next).chain(refusals.end(pass, now)).min()
    }

    async fn carry_out(&mut self, write: &PlannedWrite, refusals: &mut Refusals<PlannedKey>) -> WriteEnd {
        match write {
            PlannedWrite::Marks(volume, change) => match self.note(self.write(volume, change).await) {
                Some(Write::Done(())) => {
                    for event in MarkEvent::all_of(volume, change) {
                        let written = self.events.write(&event).await;
                        refusals.written(Some(PlannedKey::Event(event.key())), self.event_end(written));
                    }
                    WriteEnd::Done
                }
                Some(Write::Changed) => WriteEnd::Done,
                None => WriteEnd::Refused,
            },
            PlannedWrite::Event(event) => {
                let written = self.events.write_late(event).await;
                self.event_end(written)
            }
            PlannedWrite::Reservation(volume, change) => self.end(self.reserve(volume, *change).await),
            PlannedWrite::WatchList(pool, list) => self.end(self.write_list(pool, list).await),
            PlannedWrite::Volume(volume, change) => self.end(self.change(volume, change).await),
        }
    }

    fn count(&self, plan: &MarkPlan) {
        self.metrics.unclaimed.set(plan.volumes.unclaimed);
        self.metrics.unwatched.set(plan.unwatched);
        self.metrics.marked.reset();
        for (reason, count) in &plan.marked {
            self.metrics.marked.with_label_values(&[reason.word()]).set(*count);
        }
    }

    /// Changed: it was deleted meanwhile, and the watch starts another pass.
    async fn write(&self, volume: &PersistentVolume, change: &MarkChange) -> Result<Write<()>, OperatorError> {
        let (api, name) = (Api::all(self.client.clone()), volume.name_any());
        let sent = self.volumes.list_count();
        // The UID: another PersistentVolume of that name is another volume.
        let change = json!({"metadata": {"uid": volume.uid(), "annotations": change.annotations}});
        let written = patch(&api, &name, &format!("marking PersistentVolume {name}"), change).await?;
        Ok(written.map(|written| self.volumes.learn(written, sent)))
    }

    /// Only if nobody has changed it meanwhile: a claim may just be bound.
    async fn reserve(
        &self,
        volume: &PersistentVolume,
        reservation: Reservation,
    ) -> Result<Write<PersistentVolume>, OperatorError> {
        let (api, name) = (Api::all(self.client.clone()), volume.name_any());
        let spec = self.reserve.spec(volume, reservation);
        let change = json!({"metadata": exactly(volume), "spec": spec});
        patch(&api, &name, &format!("reserving PersistentVolume {name}"), change).await
    }

    async fn change(&self, volume: &PoolVolume, change: &VolumeChange) -> Result<(), OperatorError> {
        let (api, name) = (Api::<PoolVolume>::all(self.client.clone()), volume.name_any());
        let what = format!("writing PoolVolume {name}");
        match change {
            VolumeChange::CarryOut(order) => self.order(volume, *order).await,
            VolumeChange::Conditions(all) => {
                let change = json!({"metadata": exactly(volume), "status": {"conditions": all}});
                patch_status(&api, &name, &what, change).await.map(|_| ())
            }
            VolumeChange::Annotations(annotations) => {
                let change = json!({"metadata": {"uid": volume.uid(), "annotations": annotations}});
                patch(&api, &name, &what, change).await.map(|_| ())
            }
        }
    }

    /// Reads the object again from the API server before it does anything: the order may have been taken back since the
    /// watch showed it, or refused by our own last write.
    async fn order(&self, volume: &PoolVolume, order: VolumeOrder) -> Result<(), OperatorError> {
        let name = volume.name_any();
        let live = VolumeApi::new(self.client.clone()).get(&name).await?;
        let stands = |live: &PoolVolume| live.uid() == volume.uid() && live.spec.order == Some(order);
        let Some(live) = live.filter(stands) else { return Ok(()) };
        let client = self.client.clone();
        let lines = match order {
            VolumeOrder::Erase => erase_of(client, live, AskedBy::Order, Run::Real).await?,
            VolumeOrder::Abandon => {
                give_up(client, &live, Run::Real).await?;
                given_up_lines(&live, None, Run::Real)
            }
            // The agent does it.
            VolumeOrder::Adopt | VolumeOrder::Settle => Vec::new(),
        };
        tracing::warn!(volume = name, ?order, "a person's order is carried out: {}", lines.join("; "));
        Ok(())
    }

    async fn write_list(&self, pool: &DevicePool, list: &WatchList) -> Result<(), OperatorError> {
        let (api, name) = (Api::<DevicePool>::all(self.client.clone()), pool.name_any());
        let sent = self.stores.pools.list_count();
        let WatchList { volumes, omitted } = list;
        if *omitted > 0 && pool.spec.persistent_volumes_omitted == 0 {
            tracing::warn!(
                node = name,
                "{omitted} local PersistentVolumes are not watched: the list of their node is full"
            );
        }
        let more = (*omitted > 0).then_some(omitted);
        let spec = json!({"persistentVolumes": volumes, "persistentVolumesOmitted": more});
        let change = json!({"metadata": {"uid": pool.uid()}, "spec": spec});
        let what = format!("writing the PersistentVolumes of DevicePool {name}");
        match patch(&api, &name, &what, change).await? {
            Write::Done(written) if WatchList::in_spec(&written) == *list => self.stores.pools.learn(written, sent),
            Write::Changed => {}
            // Otherwise it would be written again with each change of the cluster.
            Write::Done(_) => {
                let why = "the API server does not keep them; apply this version's CustomResourceDefinitions";
                return Err(OperatorError::Refused(format!("{what}: {why}")));
            }
        }
        Ok(())
    }

    fn event_end(&self, event: Result<WriteEnd, OperatorError>) -> WriteEnd {
        event.inspect_err(|error| self.metrics.failed(WORK, error)).unwrap_or(WriteEnd::Refused)
    }

    fn end<T>(&self, written: Result<T, OperatorError>) -> WriteEnd {
        self.note(written).map_or(WriteEnd::Refused, |_| WriteEnd::Done)
    }

    fn note<T>(&self, written: Result<T, OperatorError>) -> Option<T> {
        self.metrics.note(WORK, written)
    }
}

/// By which only the state that was seen is changed.
fn exactly(object: &impl kube::ResourceExt) -> Value {
    json!({"uid": object.uid(), "resourceVersion": object.resource_version()})
}

/// One request of a plan.
enum PlannedWrite {
    Marks(Arc<PersistentVolume>, MarkChange),
    Reservation(Arc<PersistentVolume>, Reservation),
    WatchList(Arc<DevicePool>, WatchList),
    Volume(Arc<PoolVolume>, VolumeChange),
    /// Of a mark that was written before.
    Event(Arc<MarkEvent>),
}

/// By which it is known whether a request was refused: marks and the reservation of one volume are two.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum PlannedKey {
    Marks(Uid<PersistentVolume>),
    Reservation(Uid<PersistentVolume>),
    WatchList(Uid<DevicePool>),
    Conditions(Uid<PoolVolume>),
    Annotations(Uid<PoolVolume>),
    Order(Uid<PoolVolume>),
    Event(MarkKey),
}

impl PlannedWrite {
    /// What people and agents wait for comes first: the marks of a rack that fails at once take minutes.
    fn all_of(plan: MarkPlan) -> Vec<Self> {
        let MarkPlan { changes, reservations, watch_lists, volumes, .. } = plan;
        let lists = watch_lists.into_iter().map(|(pool, list)| Self::WatchList(pool, list));
        let volumes = volumes.changes.into_iter().map(|(volume, change)| Self::Volume(volume, change));
        let (awaited, volumes): (Vec<_>, Vec<_>) = volumes.partition(Self::is_awaited);
        let reservations = reservations.into_iter().map(|(volume, change)| Self::Reservation(volume, change));
        let changes = changes.into_iter().map(|(volume, change)| Self::Marks(volume, change));
        awaited.into_iter().chain(lists).chain(reservations).chain(changes).chain(volumes).collect()
    }

    /// A person waits for an order, and the agent of a found volume for the PersistentVolume that names it.
    fn is_awaited(&self) -> bool {
        match self {
            Self::Volume(_, VolumeChange::CarryOut(_)) => true,
            Self::Volume(_, VolumeChange::Annotations(all)) => all.contains_key(PERSISTENT_VOLUME_ANNOTATION),
            Self::Volume(_, VolumeChange::Conditions(_)) => false,
            Self::Marks(..) | Self::Reservation(..) | Self::WatchList(..) | Self::Event(..) => false,
        }
    }

    fn key(&self) -> Option<PlannedKey> {
        match self {
            Self::Marks(volume, _) => Uid::of(&**volume).map(PlannedKey::Marks),
            Self::Reservation(volume, _) => Uid::of(&**volume).map(PlannedKey::Reservation),
            Self::WatchList(pool, _) => Uid::of(&**pool).map(PlannedKey::WatchList),
            Self::Event(event) => Some(PlannedKey::Event(event.key())),
            Self::Volume(volume, change) => Uid::of(&**volume).map(|uid| match change {
                VolumeChange::Conditions(_) => PlannedKey::Conditions(uid),
                VolumeChange::Annotations(_) => PlannedKey::Annotations(uid),
                VolumeChange::CarryOut(_) => PlannedKey::Order(uid),
            }),
        }
    }
}

impl Drop for Monitor {
    /// Another replica counts from now on.
    fn drop(&mut self) {
        self.metrics.marked.reset();
        self.metrics.unclaimed.set(0);
        self.metrics.unwatched.set(0);
    }
}

#[cfg(test)]
mod tests;
