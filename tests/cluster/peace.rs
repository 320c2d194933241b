//! Whose turn it is among the checks that restart things: they run at once, prepare and look together, and take turns
//! only where they disturb. What is the same for some of them (the agents are away) is done once for all of these.

use std::sync::{Arc, LazyLock};
use std::time::Instant;

use serde_json::json;
use tokio::sync::{Mutex, OwnedRwLockWriteGuard, RwLock, watch};

use crate::check::Space;
use crate::cluster::{HOME, SOON, eventually, kubectl};

/// Many look and prepare, or one disturbs; who waits to disturb goes before those who come later.
static PEACE: LazyLock<Arc<RwLock<()>>> = LazyLock::new(Arc::default);
static ABSENCE: Mutex<Absence> = Mutex::const_new(Absence { checks: 0, turn: None, begun: None });
/// Checks that will ask for the absence of the agents, and have not yet: it begins when the last of them is there.
static EXPECTED: LazyLock<watch::Sender<usize>> = LazyLock::new(|| watch::Sender::new(0));

/// A check that will need the agents to be away. It ends with the check, or when the check has come to that.
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

/// While nobody disturbs.
pub async fn quietly<T>(work: impl Future<Output = T>) -> T {
    let _peace = PEACE.read().await;
    work.await
}

/// While nobody else is in the middle of anything.
pub async fn disturbing<T>(work: impl Future<Output = T>) -> T {
    let _turn = PEACE.write().await;
    let begun = Instant::now();
    let done = work.await;
    // All of these add up to what the tier takes.
    eprintln!("its turn took {:.1} s", begun.elapsed().as_secs_f64());
    done
}

/// While the agents are away, for all checks that expect it; they are back when it returns, also for a check that fails
/// in it.
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
    // All of them see the agents come back, so nobody goes on before.
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

/// Takes the agents away, as a person would who wants them elsewhere.
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
    kubectl(&["-n", HOME, "rollout", "status", "daemonset/localpool-node", "--timeout=2m"]).await;
}
