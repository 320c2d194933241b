//! A running agent: the threads of agent and checkups, and what the roles that have one need of them.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;

use super::metrics::NodeMetrics;
use super::parts::Parts;
use super::sets;
use crate::agent::{AgentHandle, Checkup, CheckupHandle, Reconciler, TargetThread};
use crate::health::{Board, HealthChange};
use crate::host::{AgentLock, Announcements, DeviceEvents, Host, Roots, StateDir};
use crate::operator::agent::PassSummary;
use crate::pool::Pool;
use crate::rpc::{AgentService, PassSignal, Readiness, proto::agent::agent_server::AgentServer};

/// Waits until this process is the one that may touch disks. `None`: stopped meanwhile.
pub async fn become_agent(path: PathBuf, stop: &CancellationToken) -> Result<Option<(StateDir, AgentLock)>> {
    let locked = tokio::task::spawn_blocking(move || -> Result<_> {
        let state = StateDir::open(&path)?;
        if let Some(lock) = state.try_lock()? {
            return Ok((state, lock));
        }
        tracing::info!(state = %path.display(), "another process is the agent of this state directory; waiting, touching nothing");
        let lock = state.lock()?;
        Ok((state, lock))
    });
    tokio::select! {
        locked = locked => locked?.context("taking the agent's lock").map(Some),
        () = stop.cancelled() => Ok(None),
    }
}

pub struct RunningAgent {
    pub handle: AgentHandle,
    pub checkups: CheckupHandle,
    pub board: Board,
    /// What the last pass found, if there was one.
    pub passes: watch::Receiver<Option<Arc<PassSummary>>>,
    /// With its threads.
    pub parts: Parts,
    pool: Arc<Pool>,
    targets: TargetThread,
    pass_signal: PassSignal,
}

impl RunningAgent {
    /// `metrics` has the figures of the pool from now on, and `readiness` becomes ready with the first pass.
    /// Each checkup calls `health_changed` with what it changed.
    pub fn start(
        agent: Reconciler,
        (host, pool): (&Arc<dyn Host>, &Arc<Pool>),
        metrics: &NodeMetrics,
        readiness: Readiness,
        health_changed: impl Fn(HealthChange) + Send + 'static,
        stop: &CancellationToken,
    ) -> Result<Self> {
        let events = DeviceEvents::subscribe(&Roots::default()).context("subscribing to device events")?;
        let mounts = Announcements::of_mounts(&Roots::default()).context("subscribing to changes of mounts")?;
        let arrays = Announcements::of_arrays(&Roots::default()).context("subscribing to changes of md arrays")?;
        let announcements = [mounts].into_iter().chain(arrays).collect();
        let board = metrics.health();
        let agent = agent.attending(board.filesystems());
        metrics.watch(pool, host);
        let (pass_sender, passes) = watch::channel(None);
        metrics.sets.watch(passes.clone());
        let checkup = Checkup::new(Arc::clone(host), Arc::clone(pool), board.clone(), agent.reports());
        let (checkups, checkup_thread) = CheckupHandle::start(checkup, announcements, health_changed);
        let after_recall = checkups.clone();
        let (targets, target_thread) = TargetThread::start(Arc::clone(host), board.clone(), move || after_recall.due());
        let after_pass = checkups.clone();
        let (count_passes, passed) = watch::channel(0);
        let (handle, thread) = AgentHandle::start(agent, Arc::clone(pool), Some(events), move |pass| {
            pass_sender.send_replace(Some(Arc::new(PassSummary::of(pass))));
            count_passes.send_modify(|count| *count += 1);
            readiness.set_ready();
            after_pass.due();
        });
        let mut parts = Parts::default();
        parts.add_thread("the agent's thread", thread);
        parts.add_thread("the checkup's thread", checkup_thread);
        parts.add_thread("the thread that keeps targets", target_thread);
        let pass_signal = PassSignal { passed, stop: stop.clone() };
        Ok(Self { handle, checkups, board, passes, parts, pool: Arc::clone(pool), targets, pass_signal })
    }

    /// What people ask of the agent.
    pub fn service(&self) -> Routes {
        let (pool, pass_signal) = (Arc::clone(&self.pool), self.pass_signal.clone());
        let service = AgentService::new(self.handle.clone(), pool, pass_signal, sets::read_for_service);
        Routes::new(AgentServer::new(service.with_health(self.board.clone())))
    }

    /// Asks all parts to end, and waits for them.
    pub async fn stop(self) {
        self.checkups.stop();
        self.targets.stop();
        self.handle.stop();
        self.parts.ended().await;
    }
}
