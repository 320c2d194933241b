//! The reaction at work, on the leader.
//!
//! Each pass looks at all marked volumes, reads what it needs of some from the API server, and does at most one step
//! for each. What it does is in annotations of PersistentVolumes, so that the next leader goes on with it; what it has
//! watched is in an annotation of the Lease.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use kube::{Client, ResourceExt as _};
use tokio::time::Instant;

use super::decide::decide;
use super::handover::own_watch;
use super::lease_annotation::{LeaseAnnotation, Tenure};
use super::live::EvictionAnswer;
use super::marked::{MarkedVolume, marked_volumes};
use super::memory::ReactionMemory;
use super::perform::{DeedOutcome, Performer};
use super::reader::LiveReader;
use super::report;
use super::settings::{ReactionMode, ReactionSettings};
use super::tally::NodeTally;
use super::teller::{Teller, WORK};
use super::view::{Deed, ReactionStep, ReactionView};
use super::why::Why;
use super::writes::{ReactionKey, ReactionWrite, index, writes};
use crate::operator::bytes::signed;
use crate::operator::leader::lease::Lease;
use crate::operator::leader::stores::LeaderStores;
use crate::operator::metrics::Metrics;
use crate::operator::metrics::reaction::ReactionMetrics;
use crate::operator::persistent_volume::plan::Now;
use crate::operator::persistent_volume::refusals::{Refusals, WriteEnd};
use crate::operator::persistent_volume::view::View;
use crate::operator::stores::Stores;

/// The wait after a pass that wrote something, and after one that did not.
const PASS_INTERVAL: Duration = Duration::from_secs(2);
const WAITING_INTERVAL: Duration = Duration::from_secs(30);
/// How many objects one pass writes.
const WRITES: usize = 50;
/// How often a pass decides: after each round of reads again.
const ROUNDS: usize = 3;
/// How often at most it leaves to the next leader what it has watched.
const LEAVE: Duration = Duration::from_secs(20);

/// How soon the passes follow each other, how often what was watched is left to the next leader, and how long that one
/// watches itself.
#[derive(Clone, Copy, Debug)]
struct Pace {
    next: Duration,
    waiting: Duration,
    leave: Duration,
    own_watch: SignedDuration,
}

/// The reasons that make the next pass begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NextPass {
    /// Something was written.
    Soon,
    /// Something is waited for.
    Later,
    /// Nothing is marked.
    WithAChange,
    /// Not all objects are read yet.
    OnceRead,
}

pub struct Reactor {
    client: Client,
    stores: Stores,
    own: LeaderStores,
    teller: Teller,
    performer: Performer,
    metrics: Metrics,
    settings: ReactionSettings,
    lease: Lease,
    pace: Pace,
}

/// The state that a pass keeps for the next one.
struct ReactionState {
    memory: ReactionMemory,
    refusals: Refusals<ReactionKey>,
    annotation: LeaseAnnotation,
}

impl Reactor {
    /// `client` must be `client_without_repetition`. `lease` is the one that this process leads by.
    pub fn new(
        client: Client,
        stores: Stores,
        own: LeaderStores,
        metrics: Metrics,
        settings: ReactionSettings,
        lease: Lease,
    ) -> Self {
        Self {
            teller: Teller::new(client.clone(), stores.volumes.clone(), metrics.clone(), &lease.identity),
            stores,
            performer: Performer::new(client.clone(), own.volumes.clone()),
            own,
            metrics,
            pace: Pace {
                next: PASS_INTERVAL,
                waiting: WAITING_INTERVAL,
                leave: LEAVE,
                own_watch: own_watch(settings.recover_after),
            },
            settings,
            lease,
            client,
        }
    }

    /// Sets another time between passes.
    #[cfg(any(test, feature = "testing"))]
    pub fn with_pace(mut self, between: Duration) -> Self {
        self.pace = Pace { next: between, waiting: between, ..self.pace };
        self
    }

    /// Sets other times for how often it leaves what it has watched, and for which it watches itself.
    #[cfg(any(test, feature = "testing"))]
    pub fn with_handover(mut self, leave: Duration, own_watch: SignedDuration) -> Self {
        self.pace = Pace { leave, own_watch, ..self.pace };
        self
    }

    /// Runs until it is dropped.
    pub async fn run(self) {
        let mut changes = self.own.changes(&self.stores);
        let mut state = ReactionState {
            memory: ReactionMemory::new(&self.settings, self.pace.own_watch),
            refusals: Refusals::new(),
            annotation: LeaseAnnotation::new(self.client.clone(), self.lease.clone(), self.pace.leave),
        };
        let began = Instant::now();
        loop {
            // Any change after this starts another pass.
            changes.mark_unchanged();
            let next = match self.stores.are_synced() && self.own.are_synced() {
                true => {
                    self.take_over(&mut state).await;
                    let next = self.pass(&mut state, began.elapsed()).await;
                    state.memory.end_pass(monotonic(began.elapsed()));
                    next
                }
                false => NextPass::OnceRead,
            };
            let wait = match next {
                NextPass::Soon | NextPass::OnceRead => self.pace.next,
                NextPass::Later | NextPass::WithAChange => self.pace.waiting,
            };
            if matches!(next, NextPass::WithAChange | NextPass::OnceRead) {
                changes.next().await;
            }
            tokio::time::sleep(wait).await;
        }
    }

    /// Before the first pass. Whoever cannot read what was left counts from zero.
    async fn take_over(&self, state: &mut ReactionState) {
        let taken = state.annotation.take().await.inspect_err(|error| self.metrics.failed(WORK, error));
        if let Ok(Some(handover)) = taken {
            state.memory.take_over(handover);
        }
    }

    /// Leaves to the next leader what was watched until now.
    async fn leave(&self, state: &mut ReactionState, volumes: &[MarkedVolume], now: Now, elapsed: Duration) -> Tenure {
        let handover = match self.settings.mode {
            ReactionMode::Off => None,
            ReactionMode::DryRun | ReactionMode::On => state.memory.handover(volumes, now),
        };
        let left = state.annotation.leave(handover, elapsed).await;
        left.inspect_err(|error| self.metrics.failed(WORK, error)).unwrap_or(Tenure::Ours)
    }

    async fn pass(&self, state: &mut ReactionState, elapsed: Duration) -> NextPass {
        let now = Now { wall: Timestamp::now(), monotonic: monotonic(elapsed) };
        let cluster = View::of(&self.stores, &self.own.volumes);
        let mut view = self.view(&cluster, &mut state.memory, now);
        if self.leave(state, &view.volumes, now, elapsed).await == Tenure::Lost {
            return state.stand_back();
        }
        let steps = self.decided(&mut view, &mut state.memory, now).await;
        self.count(&view, state.memory.waiting(&steps));
        let planned = writes(&cluster, &view, &steps, &state.memory);
        if planned.iter().any(|write| matches!(write, ReactionWrite::Act(..))) {
            let tenure = state.annotation.tenure().await;
            match tenure.inspect_err(|error| self.metrics.failed(WORK, error)) {
                Ok(Tenure::Ours) => {}
                Ok(Tenure::Lost) => return state.stand_back(),
                Err(_) => return NextPass::Later,
            }
        }
        let ReactionState { memory, refusals, annotation: _ } = state;
        let (writes, waiting) = refusals.select(planned, ReactionWrite::key, WRITES, elapsed);
        let (mut written, mut pass) = (false, WriteEnd::Done);
        for write in writes {
            let end = match self.carry_out(&cluster, &view, &write, memory).await {
                true => WriteEnd::Done,
                false => WriteEnd::Refused,
            };
            refusals.written(write.key(), end);
            match end {
                // What is only reported is not urgent: a rack that fails has many volumes.
                WriteEnd::Done => written |= matches!(write, ReactionWrite::Act(..)),
                WriteEnd::Refused => pass = WriteEnd::Refused,
            }
        }
        let again = refusals.end(pass, elapsed);
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
        let at = index(view);
        for _ in 1..ROUNDS {
            let mut has_read = false;
            for ReactionStep { volume: uid, deed } in &steps {
                let Some(volume) = at.get(uid).map(|at| &view.volumes[*at]) else { continue };
                match deed {
                    Deed::Read if asked.insert(uid.clone()) => {
                        memory.note_read(uid, now);
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
                    Deed::Read | Deed::Begin(_) | Deed::DeletePvc(_) | Deed::Evict(_) | Deed::Cancel(..) => {}
                    Deed::Finish(_) | Deed::Stop(..) | Deed::DeleteVolume | Deed::Explain(_) => {}
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
                let reported = match self.metrics.note(WORK, self.performer.perform(volume, live, deed).await) {
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
                let Some(reported) = reported else { return true };
                self.metrics.reaction.steps.with_label_values(&[reported.word]).inc();
                tracing::warn!(volume = volume.volume.name_any(), step = reported.word, "{}", reported.event.note);
                self.teller.done(cluster, volume, &reported).await
            }
            ReactionWrite::Tell(volume, why) => self.teller.tell(cluster, volume, *why, memory).await,
            ReactionWrite::Forget(object) => self.teller.write_condition(Some(object), None).await,
        }
    }
}

impl ReactionState {
    /// Another leader is responsible, or was. Nobody knows what was meanwhile.
    fn stand_back(&mut self) -> NextPass {
        tracing::warn!("another controller leads, or has led meanwhile: recoverAfter begins again");
        self.memory.begin_again();
        NextPass::Later
    }
}

fn monotonic(elapsed: Duration) -> SignedDuration {
    SignedDuration::try_from(elapsed).unwrap_or(SignedDuration::MAX)
}

impl Drop for Reactor {
    fn drop(&mut self) {
        self.metrics.reaction.reset();
    }
}
