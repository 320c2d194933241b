//! The wiring: each role joins the parts to a process. What the roles share is here: logs, and the time that a stop may
//! take.
//!
//! The roles are public parts, each with its settings. So are those whose functions say little without their name.

pub mod controller;
pub mod discovery;
mod disk_metrics;
mod host_rules;
pub mod http;
pub mod machine;
mod metrics;
pub mod node;
pub mod observer;
mod parts;
mod registry;
mod running;
pub mod sets;
mod sidecar;
pub mod standalone;
pub mod status_page;

use std::future::Future;
use std::time::Duration;

use anyhow::Result;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

pub use host_rules::{install_lvm_filter, install_udev_rules};
pub use metrics::NodeMetrics;
pub use sidecar::Sidecar;

/// The name of the agent's own socket in the state directory.
pub const AGENT_SOCKET: &str = "agent.sock";
/// How long calls that are under way may take to end at a stop.
const STOP_GRACE: Duration = Duration::from_secs(8);
/// How long a stop may take as a whole: the chart gives a pod 30 s.
const LONGEST_STOP: Duration = Duration::from_secs(20);

/// The format of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    Text,
    Json,
}

fn log_to_stderr(format: LogFormat) {
    let filter = tracing_subscriber::EnvFilter::try_from_env("LOCALPOOL_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info"));
    let colours = std::io::IsTerminal::is_terminal(&std::io::stderr());
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(colours);
    // A line that cannot be logged, as on a full disk, is lost: an error about it would be a panic in the code that
    // logs.
    let log = log.log_internal_errors(false);
    let _ = match format {
        LogFormat::Text => log.try_init(),
        LogFormat::Json => log.json().try_init(),
    };
}

/// The runtime of a role: few workers, on which nothing may wait for a disk.
pub fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()
}

/// Runs a role until it ends by itself, or SIGTERM or SIGINT cancels its token and it has had time to end.
fn run<Work: Future<Output = Result<()>>>(work: impl FnOnce(CancellationToken) -> Work) -> Result<()> {
    let runtime = runtime()?;
    let result = runtime.block_on(until_stopped(work));
    // Work that outlived its call is not waited for: every stop is a normal stop.
    runtime.shutdown_timeout(Duration::from_millis(100));
    result
}

async fn until_stopped<Work: Future<Output = Result<()>>>(work: impl FnOnce(CancellationToken) -> Work) -> Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let stop = CancellationToken::new();
    let work = work(stop.clone());
    tokio::pin!(work);
    tokio::select! {
        ended = &mut work => return ended,
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    tracing::info!("stopping");
    stop.cancel();
    tokio::time::timeout(LONGEST_STOP, work).await.unwrap_or_else(|_| {
        tracing::warn!("work was still under way when the process ended; it continues after the next start");
        Ok(())
    })
}

/// Serves until `stop`; then the calls that are under way have some time to end.
async fn with_grace(stop: &CancellationToken, calls: impl Future<Output = Result<()>>) -> Result<()> {
    let overdue = async {
        stop.cancelled().await;
        tokio::time::sleep(STOP_GRACE).await;
    };
    tokio::select! {
        ended = calls => ended,
        () = overdue => {
            tracing::warn!("calls were still under way when the process ended; they converge after the next start");
            Ok(())
        }
    }
}
