//! The reaction at work, on the leader.
//!
//! Each pass looks at all marked volumes, reads what it needs of some from the API server, and does at most one step for
//! each. What it does is in annotations of PersistentVolumes, so that the next leader goes on with it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use kube::{Client, ResourceExt as _};
use tokio::time::Instant;

use super::decide::decide;
use super::live::EvictionAnswer;
use super::marked::{MarkedVolume, marked_volumes};
use super::memory::ReactionMemory;
use super::perform::{DeedOutcome, Performer};
use super::reader::LiveReader;
use super::report;
use super::settings::{ReactionMode, ReactionSettings};
use super::tally::NodeTally;
use super::teller::{Teller, WORK, is_told, object_of};
use super::view::{Deed, ReactionStep, ReactionView};
use super::why::Why;
use crate::api::crd::PoolVolume;
use crate::operator::bytes::signed;
use crate::operator::leader_stores::LeaderStores;
use crate::operator::metrics::Metrics;
use crate::operator::persistent_volume::plan::Now;
use crate::operator::persistent_volume::refusals::Refusals;
use crate::operator::persistent_volume::view::View;
use crate::operator::reaction_metrics::ReactionMetrics;
use crate::operator::stores::Stores;

/// The wait after a pass that wrote something, and after one that did not.
const NEXT: Duration = Duration::from_secs(2);
const PACE: Duration = Duration::from_secs(30);
/// How many objects one pass writes.
const WRITES: usize = 50;
/// How often a pass decides: after each round of reads again.
const ROUNDS: usize = 3;
/// How soon the passes follow each other.
#[derive(Clone, Copy, Debug)]
struct Pace {
    next: Duration,
    waiting: Duration,
}

/// What makes the next pass begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NextPass {
    /// Something was written.
    Soon,
    /// Something is waited for.
    Later,
    /// Nothing is marked.
    WithAChange,
}

pub struct Reactor {
    client: Client,
    stores: Stores,
    own: LeaderStores,
    teller: Teller,
    performer: Performer,
    metrics: Metrics,
    settings: ReactionSettings,
    pace: Pace,
}

/// One write of a pass.
enum ReactionWrite<'v> {
    Act(&'v MarkedVolume, &'v Deed),
    Tell(&'v MarkedVolume, Why),
    /// The condition is not true any more.
    Forget(Arc<PoolVolume>),
}

impl ReactionWrite<'_> {
    /// By which it is known whether it was refused.
    fn key(&self) -> Option<String> {
        match self {
            Self::Act(volume, _) => Some(volume.uid.clone()),
            Self::Tell(volume, _) => Some(format!("{} told", volume.uid)),
            Self::Forget(volume) => volume.uid(),
        }
    }
}

impl Reactor {
    /// `client` must be `client_without_repetition`.
    pub fn new(
        client: Client,
        stores: Stores,
        own: LeaderStores,
        metrics: Metrics,
        settings: ReactionSettings,
        identity: &str,
    ) -> Self {
        Self {
            teller: Teller::new(client.clone(), stores.volumes.clone(), metrics.clone(), identity),
            stores,
            performer: Performer::new(client.clone(), own.volumes.clone()),
            own,
            metrics,
            settings,
            pace: Pace { next: NEXT, waiting: PACE },
            client,
        }
    }

    /// Sets another time between passes.
    #[cfg(any(test, feature = "testing"))]
    pub fn with_pace(mut self, between: Duration) -> Self {
        self.pace = Pace { next: between, waiting: between };
        self
    }

    /// Runs until it is dropped.
    pub async fn run(self) {
        let mut changes = self.own.changes(&self.stores);
        let mut memory = ReactionMemory::new(&self.settings);
        let (mut refusals, began) = (Refusals::new(), Instant::now());
        loop {
            // Any change after this starts another pass.
            changes.mark_unchanged();
            let next = match self.stores.are_synced() && self.own.are_synced() {
                true => self.pass(&mut memory, &mut refusals, began.elapsed()).await,
                false => NextPass::WithAChange,
            };
            if next == NextPass::WithAChange {
                changes.next().await;
            }
            tokio::time::sleep(if next == NextPass::Soon { self.pace.next } else { self.pace.waiting }).await;
        }
    }

    async fn pass(&self, memory: &mut ReactionMemory, refusals: &mut Refusals, elapsed: Duration) -> NextPass {
        let monotonic = SignedDuration::try_from(elapsed).unwrap_or(SignedDuration::MAX);
        let now = Now { wall: Timestamp::now(), monotonic };
        let cluster = View::of(&self.stores, &self.own.volumes);
        let mut view = self.view(&cluster, memory, now);
        let steps = self.decided(&mut view, memory, now).await;
        self.count(&view, memory.held(&steps));
        let writes = self.writes(&cluster, &view, &steps, memory);
        let (writes, waiting) = refusals.select(writes, ReactionWrite::key, WRITES, elapsed);
        let (mut written, mut failed) = (false, false);
        for write in writes {
            let done = self.carry_out(&cluster, &view, &write, memory).await;
            refusals.written(write.key(), done);
            // What is only told is not urgent: a rack that fails has many volumes.
            written |= done && matches!(write, ReactionWrite::Act(..));
            failed |= !done;
        }
        let again = refusals.end(failed, elapsed);
        match (written, view.volumes.is_empty() && waiting == 0 && again.is_none()) {
            (true, _) => NextPass::Soon,
            (false, false) => NextPass::Later,
            (false, true) => NextPass::WithAChange,
        }
    }

    fn view(&self, cluster: &View, memory: &mut ReactionMemory, now: Now) -> ReactionView {
        let settings = self.settings.clone();
        let mut volumes = marked_volumes(cluster, &self.own.classes.all(), now.wall);
        memory.sort(&mut volumes);
        let nodes = NodeTally::of(cluster, &volumes, now.wall);
        let past = memory.take_in(&volumes, nodes, settings.max_bad_nodes, now);
        let live = [].into();
        ReactionView { now: now.wall, settings, volumes, nodes, past, live }
    }

    /// Decides, reads what the decision asks for, and decides again.
    async fn decided(&self, view: &mut ReactionView, memory: &mut ReactionMemory, now: Now) -> Vec<ReactionStep> {
        let mut reader = LiveReader::new(self.client.clone(), self.settings.mode);
        let (mut steps, mut asked) = (decide(view), BTreeSet::new());
        let at: BTreeMap<String, usize> = index(view);
        for _ in 1..ROUNDS {
            let mut has_read = false;
            for ReactionStep { volume: uid, deed } in &steps {
                let Some(volume) = at.get(uid).map(|at| &view.volumes[*at]) else { continue };
                match deed {
                    Deed::Look if asked.insert(uid.clone()) => {
                        memory.looked(uid, now);
                        if let Some(live) = self.metrics.note(WORK, reader.read(volume).await) {
                            has_read |= view.live.insert(uid.clone(), live).is_none();
                        }
                    }
                    Deed::AskEviction(pod) => {
                        let answer = self.metrics.note(WORK, self.performer.may_evict(pod).await);
                        let answer = answer.unwrap_or(Some(EvictionAnswer::Failed));
                        if let Some(live) = view.live.get_mut(uid) {
                            live.eviction = answer;
                            has_read |= answer.is_some();
                        }
                    }
                    _ => {}
                }
            }
            if !has_read {
                break;
            }
            steps = decide(view);
        }
        steps
    }

    fn count(&self, view: &ReactionView, held_back: BTreeMap<Why, i64>) {
        let ReactionMetrics { steps: _, held, in_flight, oldest, bad_nodes, mode } = &self.metrics.reaction;
        held.reset();
        for (why, count) in held_back {
            held.with_label_values(&[why.word()]).set(count);
        }
        let records = || view.volumes.iter().filter_map(|volume| volume.record.as_ref());
        let began = records().filter_map(|record| Some(record.as_ref().ok()?.began.as_second()));
        in_flight.set(signed(records().count()));
        oldest.set(began.min().unwrap_or(0));
        bad_nodes.set(signed(view.nodes.bad));
        mode.with_label_values(&[self.settings.mode.word()]).set(1);
    }

    /// The steps first: what is only told can wait.
    fn writes<'v>(
        &self,
        cluster: &View,
        view: &'v ReactionView,
        steps: &'v [ReactionStep],
        memory: &ReactionMemory,
    ) -> Vec<ReactionWrite<'v>> {
        let (mut acts, mut others, at) = (Vec::new(), Vec::new(), index(view));
        for ReactionStep { volume: uid, deed } in steps {
            let Some(volume) = at.get(uid).map(|at| &view.volumes[*at]) else { continue };
            let object = object_of(cluster, volume);
            match deed {
                Deed::Look | Deed::AskEviction(_) => {}
                // It comes back with each restart.
                Deed::Report(Why::Recovering) => {}
                Deed::Report(why) if why.is_reported() => {
                    let is_written = object.is_none_or(|object| report::told_by(object) == Some(why.word()));
                    if !is_written || !is_told(object, memory, uid, *why) {
                        others.push(ReactionWrite::Tell(volume, *why));
                    }
                }
                Deed::Report(_) => {
                    let told = object.filter(|object| report::told_by(object).is_some());
                    others.extend(told.map(|object| ReactionWrite::Forget(Arc::clone(object))));
                }
                deed => acts.push(ReactionWrite::Act(volume, deed)),
            }
        }
        others.extend(self.out_of_date(cluster, view).map(ReactionWrite::Forget));
        acts.extend(others);
        acts
    }

    /// Those whose condition nobody keeps any more.
    fn out_of_date(&self, cluster: &View, view: &ReactionView) -> impl Iterator<Item = Arc<PoolVolume>> {
        let is_off = self.settings.mode == ReactionMode::Off;
        let is_kept = |volume: &&MarkedVolume| match object_of(cluster, volume) {
            // What became of it stays; why it waited does not, once it does not wait any more.
            Some(object) if volume.reacted.is_some() => volume.waits() || !report::is_why(object),
            _ => volume.waits() && (!is_off || volume.record.is_some()),
        };
        let kept = view.volumes.iter().filter(is_kept);
        let kept: BTreeSet<String> = kept.filter_map(|volume| object_of(cluster, volume)?.uid()).collect();
        let told = cluster.volumes.values().filter(|object| report::told_by(object).is_some()).cloned();
        told.filter(move |object| object.uid().is_none_or(|uid| !kept.contains(&uid)))
    }

    /// Whether nothing of it has to be tried again.
    async fn carry_out(
        &self,
        cluster: &View,
        view: &ReactionView,
        write: &ReactionWrite<'_>,
        memory: &mut ReactionMemory,
    ) -> bool {
        match write {
            ReactionWrite::Act(volume, deed) => {
                let live = view.live.get(&volume.uid);
                let told = match self.metrics.note(WORK, self.performer.perform(volume, live, deed).await) {
                    None => {
                        memory.refused(&volume.uid);
                        self.metrics.reaction.held.with_label_values(&[Why::Refused.word()]).inc();
                        self.teller.tell(cluster, volume, Why::Refused, memory).await;
                        return false;
                    }
                    Some(DeedOutcome::Changed) => return true,
                    Some(DeedOutcome::Refused) => {
                        return self.teller.tell(cluster, volume, Why::BudgetExhausted, memory).await;
                    }
                    Some(DeedOutcome::Done) => report::of_deed(volume, deed),
                };
                memory.forget(&volume.uid);
                let Some(told) = told else { return true };
                self.metrics.reaction.steps.with_label_values(&[told.word]).inc();
                tracing::warn!(volume = volume.volume.name_any(), step = told.word, "{}", told.event.note);
                self.teller.done(cluster, volume, &told).await
            }
            ReactionWrite::Tell(volume, why) => self.teller.tell(cluster, volume, *why, memory).await,
            ReactionWrite::Forget(object) => self.teller.write_condition(Some(object), None).await,
        }
    }
}

/// Where each volume is: there may be thousands.
fn index(view: &ReactionView) -> BTreeMap<String, usize> {
    view.volumes.iter().enumerate().map(|(at, volume)| (volume.uid.clone(), at)).collect()
}

impl Drop for Reactor {
    fn drop(&mut self) {
        self.metrics.reaction.reset();
    }
}
