//! Which agent a command asks, and which node this is.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::Args;

use super::ask::Local;
use crate::device::NodeName;

#[derive(Debug, Args)]
pub(super) struct StateArgs {
    /// Directory of the agent's lock, journal and socket; says which agent a command asks
    #[arg(long, default_value = "/var/lib/localpool", env = "LOCALPOOL_STATE_DIR", hide_env_values = true)]
    pub(super) state_dir: PathBuf,
    /// Name of this node, as it is written on its disks [default: the host name]
    #[arg(long, env = "LOCALPOOL_NODE_NAME", hide_env_values = true)]
    pub(super) node_name: Option<String>,
}

impl StateArgs {
    pub(super) fn node(&self) -> Result<NodeName> {
        let node = match &self.node_name {
            Some(name) => name.clone(),
            None => host_name()?,
        };
        if node.is_empty() || node.len() > 253 {
            bail!("--node-name has {} bytes; it needs 1 to 253", node.len());
        }
        Ok(node.into())
    }

    pub(super) fn local(&self) -> Result<Local> {
        Ok(Local { state_dir: self.state_dir.clone(), node: self.node()? })
    }
}

fn host_name() -> Result<String> {
    let name = nix::unistd::gethostname().context("the host name could not be read: pass --node-name")?;
    name.into_string().map_err(|_| anyhow::anyhow!("the host name is not UTF-8: pass --node-name"))
}
