//! Whose turn it is among the checks that restart things: they run at once, prepare and look together, and take turns
//! only when they disturb. If several of them need the same (the agents are away), it is done once for all of them.

use std::sync::{Arc, LazyLock};
use std::time::Instant;

use serde_json::json;
use tokio::sync::{Mutex, OwnedRwLockWriteGuard, RwLock, watch};

use crate::check::Space;
use crate::cluster::{HOME, SOON, eventually, kubectl};

/// Many look and prepare, or one disturbs; whoever waits to disturb goes before those who come later.
static PEACE: LazyLock<Arc<RwLock<()>>> = LazyLock::new(Arc::default);
static ABSENCE: Mutex<Absence> = Mutex::const_new(Absence { checks: 0, turn: None, begun: None });
/// The number of checks that will need the agents to be away but have not asked yet: the absence begins with the last
/// of them.
static EXPECTED: LazyLock<watch::Sender<usize>> = LazyLock::new(|| watch::Sender::new(0));

/// A check that will need the agents to be away. This ends with the check, or when the check asks.
pub struct Expected(());

impl Expected {
    pub fn new() -> Self {
        EXPECTED.send_modify(|checks| *checks += 1);
        Self(())
    }
}

impl Drop for Expected {
    fn drop(&mut self) {
        EXPECTED.send_modify(|checks| *checks -= 1);
    }
}

struct Absence {
    checks: usize,
    turn: Option<OwnedRwLockWriteGuard<()>>,
    begun: Option<Instant>,
}

/// Runs while nobody disturbs.
pub async fn quietly<T>(work: impl Future<Output = T>) -> T {
    let _peace = PEACE.read().await;
    work.await
}

/// Runs while nobody else is in the middle of anything.
pub async fn disturbing<T>(work: impl Future<Output = T>) -> T {
    let _turn = PEACE.write().await;
    let begun = Instant::now();
    let done = work.await;
    // The times of all turns add up to what the tier takes.
    eprintln!("its turn took {:.1} s", begun.elapsed().as_secs_f64());
    done
}

/// Runs while the agents are away, for all checks that need it; they are back when it returns, also if a check fails in
/// it.
pub async fn without_agents<T>(space: &Space, expected: Expected, work: impl AsyncFnOnce() -> T) -> T {
    drop(expected);
    EXPECTED.subscribe().wait_for(|checks| *checks == 0).await.expect("it is never dropped");
    {
        let mut absence = ABSENCE.lock().await;
        if absence.turn.is_none() {
            absence.turn = Some(Arc::clone(&PEACE).write_owned().await);
            absence.begun = Some(Instant::now());
            away(space).await;
        }
        absence.checks += 1;
    }
    let ended = futures::FutureExt::catch_unwind(std::panic::AssertUnwindSafe(work())).await;
    // All of them see the agents come back, so nobody continues before.
    let mut absence = ABSENCE.lock().await;
    absence.checks -= 1;
    let last = absence.checks == 0;
    if last {
        back(space).await;
        absence.turn = None;
        eprintln!("the agents were away for {:.1} s", absence.begun.map_or(0.0, |begun| begun.elapsed().as_secs_f64()));
    }
    drop(absence);
    if !last {
        quietly(async {}).await;
    }
    match ended {
        Ok(value) => value,
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

/// Removes the agents, as a person would who wants them elsewhere.
async fn away(space: &Space) {
    let nowhere = json!({"spec": {"template": {"spec": {"nodeSelector": {"no-such-label": "yes"}}}}});
    space.patch("DaemonSet", Some(HOME), "localpool-node", &nowhere).await;
    let gone = async || {
        let pods = space.list("Pod", Some(HOME)).await;
        let left = pods.iter().filter(|pod| pod["metadata"]["labels"]["app.kubernetes.io/component"] == "node").count();
        if left == 0 { Ok(()) } else { Err(left) }
    };
    eventually("the agents are gone", SOON, gone).await;
}

async fn back(space: &Space) {
    let here = json!({"spec": {"template": {"spec": {"nodeSelector": {"no-such-label": null}}}}});
    space.patch("DaemonSet", Some(HOME), "localpool-node", &here).await;
    kubectl(&["-n", HOME, "rollout", "status", "daemonset/localpool-node", "--timeout=5m"]).await;
}
