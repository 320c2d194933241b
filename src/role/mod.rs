//! The wiring: each role joins the parts to a process. What the roles have in common is here: logs, the
//! agent's lock, the time that a stop may take.

pub mod controller;
pub mod discovery;
pub mod http;
pub mod machine;
mod metrics;
pub mod node;
pub mod observer;
mod set_metrics;
pub mod sets;
pub mod sidecar;
pub mod standalone;

use std::path::Path;
use std::time::Duration;

use crate::host::HostError;
use crate::host::agent_lock::AgentLock;
use crate::host::state::StateDir;

/// The name of the agent's own socket in the state directory.
pub const AGENT_SOCKET: &str = "agent.sock";
/// How long calls that are under way may take to end at a stop.
const GRACE: Duration = Duration::from_secs(8);

/// How log lines look.
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
    // What cannot be logged, as on a disk that is full, is lost: to complain of it would be a panic in whoever logs.
    let log = log.log_internal_errors(false);
    let _ = match format {
        LogFormat::Text => log.try_init(),
        LogFormat::Json => log.json().try_init(),
    };
}

/// Waits until this process is the one that may touch disks.
fn become_agent(path: &Path) -> Result<(StateDir, AgentLock), HostError> {
    let state = StateDir::open(path)?;
    if let Some(lock) = state.try_lock()? {
        return Ok((state, lock));
    }
    tracing::info!(state = %path.display(), "another process is the agent of this state directory; waiting, touching nothing");
    let lock = state.lock()?;
    Ok((state, lock))
}
