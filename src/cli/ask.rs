//! Asking the agent of this machine; where none runs, being it for a moment.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, bail};
use tonic::transport::Channel;

use crate::csi::client;
use crate::csi::proto::agent::agent_client::AgentClient;
use crate::csi::proto::agent::{DiskRequest, InventoryRequest, SetsRequest, VolumeRequest};
use crate::device::show::{Format, render};
use crate::host::state::StateDir;
use crate::pool::apply::admin::inventory;
use crate::pool::apply::agent::Agent;
use crate::pool::apply::keeper::Verb;
use crate::pool::apply::pool::{Owner, Pool};
use crate::role::standalone::CLUSTER;
use crate::role::{AGENT_SOCKET, looking, sets};
use crate::volume::VolumeId;

/// Where the agent of this machine is, and what it is called.
pub struct Local {
    pub state_dir: PathBuf,
    pub node: String,
}

pub fn devices(local: &Local, output: Format) -> Result<String> {
    if let Some(text) = ask(local, async |mut agent| {
        let request = InventoryRequest { output: output.name().to_owned() };
        Ok(agent.inventory(request).await?.into_inner().text)
    })? {
        return Ok(text);
    }
    // Nobody keeps a pool here: look, and write nothing, not even a state directory.
    let (mut agent, pool) = agent_of(local)?;
    let set = agent.look().context("looking at the disks of this machine")?;
    let pass = crate::pool::apply::agent::Pass::of_look(set);
    Ok(render(&inventory(&pool, &pass), output)?)
}

pub fn volumes(local: &Local, output: Format) -> Result<String> {
    if let Some(text) = ask(local, async |mut agent| {
        let request = InventoryRequest { output: output.name().to_owned() };
        Ok(agent.volumes(request).await?.into_inner().text)
    })? {
        return Ok(text);
    }
    bail!("no agent runs on {}: start it first", local.state_dir.display())
}

pub fn release_disk(local: &Local, disk: &str, dry_run: bool) -> Result<Vec<String>> {
    let request = DiskRequest { disk: disk.to_owned(), dry_run };
    let asked = ask(local, async |mut agent| Ok(agent.release_disk(request).await?.into_inner().lines))?;
    asked.map_or_else(|| be_agent(local, &Verb::ReleaseDisk { disk: disk.to_owned(), dry_run }), Ok)
}

pub fn adopt_disk(local: &Local, disk: &str, dry_run: bool) -> Result<Vec<String>> {
    let request = DiskRequest { disk: disk.to_owned(), dry_run };
    let asked = ask(local, async |mut agent| Ok(agent.adopt_disk(request).await?.into_inner().lines))?;
    asked.map_or_else(|| be_agent(local, &Verb::AdoptDisk { disk: disk.to_owned(), dry_run }), Ok)
}

pub fn adopt_volume(local: &Local, volume: &str, dry_run: bool) -> Result<Vec<String>> {
    let _: VolumeId = volume.parse()?;
    let request = VolumeRequest { volume_id: volume.to_owned(), dry_run };
    let asked = ask(local, async |mut agent| Ok(agent.adopt_volume(request).await?.into_inner().lines))?;
    asked.ok_or_else(|| anyhow!("no agent runs on {}: start it first", local.state_dir.display()))
}

/// What the sets of a file would take here. Each that is not valid is an error; nothing is planned then.
pub fn plan_sets(local: &Local, documents: String) -> Result<Vec<String>> {
    let sets = sets::read_all(&documents, &local.node).map_err(|words| anyhow!(words))?;
    let request = SetsRequest { documents };
    if let Some(lines) = ask(local, async |mut agent| Ok(agent.plan_sets(request).await?.into_inner().lines))? {
        return Ok(lines);
    }
    // As `devices`: look, and write nothing.
    Ok(agent_of(local)?.0.verb(&Verb::PlanSets { sets })?)
}

/// Asks the running agent; `None` where none runs.
fn ask<T>(
    local: &Local,
    question: impl AsyncFnOnce(AgentClient<Channel>) -> Result<T, tonic::Status>,
) -> Result<Option<T>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let Ok(agent) = client::agent(&local.state_dir.join(AGENT_SOCKET)).await else { return Ok(None) };
        question(agent).await.map(Some).map_err(|status| anyhow!("{}", status.message()))
    })
}

/// Does a verb as the agent of this machine, under its lock.
fn be_agent(local: &Local, verb: &Verb) -> Result<Vec<String>> {
    let state = StateDir::open(&local.state_dir)?;
    let lock = state.try_lock()?;
    let _lock = lock
        .ok_or_else(|| anyhow!("another process is the agent on {}, and does not answer", local.state_dir.display()))?;
    let (mut agent, _) = agent_of(local)?;
    agent.pass().context("looking at the disks of this machine")?;
    Ok(agent.verb(verb)?)
}

fn agent_of(local: &Local) -> Result<(Agent, Arc<Pool>)> {
    let state = StateDir::at(&local.state_dir);
    let cluster = looking::known_cluster(&state)?.unwrap_or_else(|| CLUSTER.to_owned());
    looking::agent(state, Owner { cluster, node: local.node.clone() })
}
