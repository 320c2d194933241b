//! The parts of a role besides its sockets, each on a task or thread of its own: before the stop, none ends but by a
//! bug.
//!
//! Takes in the parts and the calls to serve; gives out how the role ended. A role that continued without a part would
//! report itself healthy and do nothing; a restart brings the part back.

use std::future::Future;
use std::time::Duration;

use anyhow::{Error, Result, anyhow};
use tokio::task::{JoinError, JoinHandle, JoinSet};
use tokio_util::sync::CancellationToken;

use super::with_grace;

/// How long the parts may take to end.
const END: Duration = Duration::from_secs(8);

/// All parts, each with a name for the log.
#[derive(Default)]
pub(super) struct Parts(JoinSet<(&'static str, Result<(), JoinError>)>);

impl Parts {
    pub fn add(&mut self, what: &'static str, part: JoinHandle<()>) {
        self.0.spawn(async move { (what, part.await) });
    }

    /// Adds tasks of one kind, each of which runs as long as the role.
    pub fn add_all(&mut self, what: &'static str, mut tasks: JoinSet<()>) {
        self.0.spawn(async move {
            match tasks.join_next().await {
                Some(ended) => (what, ended),
                None => std::future::pending().await,
            }
        });
    }

    pub fn add_thread(&mut self, what: &'static str, thread: std::thread::JoinHandle<()>) {
        let join = move || thread.join().unwrap_or_else(|bug| std::panic::resume_unwind(bug));
        self.add(what, tokio::task::spawn_blocking(join));
    }

    /// Waits for the first part that ends.
    pub async fn end(&mut self) -> Error {
        match self.0.join_next().await {
            Some(Ok((what, Ok(())))) => anyhow!("{what} ended unexpectedly"),
            Some(Ok((what, Err(bug)))) => Error::new(bug).context(format!("a bug ended {what}")),
            Some(Err(bug)) => Error::new(bug),
            None => std::future::pending().await,
        }
    }

    /// Serves until `stop`, or until a part ends.
    pub async fn serve(&mut self, stop: &CancellationToken, calls: impl Future<Output = Result<()>>) -> Result<()> {
        tokio::select! {
            ended = with_grace(stop, calls) => ended,
            why = self.end() => Err(why),
        }
    }

    /// Waits for the parts, after they were asked to end.
    pub async fn ended(mut self) {
        let all = async {
            while let Some(ended) = self.0.join_next().await {
                if let Ok((what, Err(bug))) = ended
                    && bug.is_panic()
                {
                    tracing::error!(error = %bug, "a bug ended {what}");
                }
            }
        };
        if tokio::time::timeout(END, all).await.is_err() {
            tracing::warn!(
                "work on a disk was still under way when the process ended; it converges after the next start"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::agent::{AgentHandle, Reconciler};
    use crate::device::Owner;
    use crate::host::{Host, fake::FakeHost};
    use crate::pool::{Pool, Workers};

    /// Far longer than anything here takes: what has not ended by then never ends.
    const AT_MOST: Duration = Duration::from_secs(60);

    /// Ends the agent's thread with the test: the runtime of a test waits for all of it.
    struct Stops(AgentHandle);

    impl Drop for Stops {
        fn drop(&mut self) {
            self.0.stop();
        }
    }

    fn agent(mut on_pass: impl FnMut() + Send + 'static) -> (Stops, std::thread::JoinHandle<()>) {
        let host: Arc<dyn Host> = Arc::new(FakeHost::default());
        let owner = Owner { cluster: "c".to_owned(), node: "n".into() };
        let pool = Arc::new(Pool::open(Arc::clone(&host), owner, Workers::Caller).expect("a pool"));
        let agent = Reconciler::new(host, Arc::clone(&pool), Duration::ZERO, Vec::new());
        let (agent_handle, thread) = AgentHandle::start(agent, pool, None, move |_| on_pass());
        (Stops(agent_handle), thread)
    }

    /// How a role with these parts ends if nobody stops it and its calls never end.
    async fn ends(mut parts: Parts) -> String {
        let stop = CancellationToken::new();
        let served = parts.serve(&stop, std::future::pending());
        let ended = tokio::time::timeout(AT_MOST, served).await.expect("the role goes on without it");
        format!("{:#}", ended.expect_err("it was not stopped"))
    }

    #[tokio::test]
    async fn a_bug_in_the_agents_thread_ends_the_role_with_an_error_that_says_so() {
        let (_agent, thread) = agent(|| panic!("a bug, on purpose"));
        let mut parts = Parts::default();
        parts.add_thread("the agent's thread", thread);
        let why = ends(parts).await;
        assert!(why.contains("a bug ended the agent's thread") && why.contains("a bug, on purpose"), "{why}");
    }

    #[tokio::test]
    async fn a_bug_in_a_task_ends_the_role_with_an_error_that_says_so_and_so_does_an_end() {
        let (_agent, thread) = agent(|| ());
        let mut parts = Parts::default();
        parts.add_thread("the agent's thread", thread);
        parts.add("a task", tokio::spawn(async { panic!("a bug, on purpose") }));
        let why = ends(parts).await;
        assert!(why.contains("a bug ended a task") && why.contains("a bug, on purpose"), "{why}");

        let mut parts = Parts::default();
        parts.add("a task", tokio::spawn(async {}));
        assert_eq!(ends(parts).await, "a task ended unexpectedly");

        let mut tasks = JoinSet::new();
        tasks.spawn(std::future::pending());
        tasks.spawn(async { panic!("a bug, on purpose") });
        let mut parts = Parts::default();
        parts.add_all("a watch", tasks);
        assert!(ends(parts).await.contains("a bug ended a watch"));
    }

    #[tokio::test]
    async fn a_role_whose_parts_live_ends_at_its_stop_without_an_error() {
        let (agent, thread) = agent(|| ());
        let mut parts = Parts::default();
        parts.add_thread("the agent's thread", thread);
        let stop = CancellationToken::new();
        stop.cancel();
        let stopped = stop.clone();
        let calls = async move {
            stopped.cancelled().await;
            Ok(())
        };
        parts.serve(&stop, calls).await.expect("a normal stop");
        drop(agent);
        parts.ended().await;
    }
}
