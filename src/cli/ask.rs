//! Asks the agent of this machine. If none runs, this process acts as the agent for a moment, or pretends to in a dry
//! run.

use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, bail};
use tonic::transport::Channel;

use crate::agent::{Reconciler, Run, Verb, inventory};
use crate::device::{NodeName, Owner};
use crate::host::{DryHost, Host, Lit, StateDir, StateStore as _, chain};
use crate::operator::agent::CLUSTER_FILE;
use crate::pool::{JOURNAL, Pool};
use crate::role::{AGENT_SOCKET, machine, observer, sets};
use crate::rpc::{
    client,
    proto::agent::{
        DiskRequest, InventoryRequest, LocateRequest, SetAsideRequest, SetsRequest, SettleRequest, VolumeRequest,
        agent_client::AgentClient,
    },
};
use crate::show::devices::{Format, styled};
use crate::show::{Heads, TableStyle};
use crate::volume::VolumeId;

const SCANNING: &str = "reading the disks of this machine";

/// Where the agent of this machine is, and what it is called.
pub struct Local {
    pub state_dir: PathBuf,
    pub node: NodeName,
}

pub fn devices(local: &Local, output: Format, style: TableStyle) -> Result<String> {
    let request = inventory_request(output, style);
    if let Some(text) = ask(local, async |mut agent| Ok(agent.inventory(request).await?.into_inner().text))? {
        return Ok(text);
    }
    // Nobody keeps a pool here: look, and write nothing, not even a state directory.
    let (mut agent, pool) = agent_of(local)?;
    let snapshot = agent.scan().context(SCANNING)?;
    let pass = crate::agent::PassReport::of_scan(snapshot);
    Ok(styled(&inventory(&pool, &pass), output, style)?)
}

fn inventory_request(output: Format, style: TableStyle) -> InventoryRequest {
    InventoryRequest { output: output.name().to_owned(), no_headers: style.heads == Heads::Hidden }
}

pub fn volumes(local: &Local, output: Format, style: TableStyle) -> Result<String> {
    let request = inventory_request(output, style);
    let asked = ask(local, async |mut agent| Ok(agent.volumes(request).await?.into_inner().text))?;
    asked.ok_or_else(|| nobody(local))
}

/// What is wrong with the disks and volumes of this node, and with local PersistentVolumes of other provisioners.
pub fn health(local: &Local, output: Format, style: TableStyle) -> Result<String> {
    let request = inventory_request(output, style);
    let asked = ask(local, async |mut agent| Ok(agent.health(request).await?.into_inner().text))?;
    asked.ok_or_else(|| nobody(local))
}

pub fn release_disk(local: &Local, disk: &str, run: Run) -> Result<Vec<String>> {
    let request = DiskRequest { disk: disk.to_owned(), dry_run: run.is_dry() };
    let asked = ask(local, async |mut agent| Ok(agent.release_disk(request).await?.into_inner().lines))?;
    asked.map_or_else(|| alone(local, &Verb::ReleaseDisk { disk: disk.to_owned(), run }, run), Ok)
}

pub fn give_up_disk(local: &Local, disk: &str, run: Run) -> Result<Vec<String>> {
    let request = DiskRequest { disk: disk.to_owned(), dry_run: run.is_dry() };
    let asked = ask(local, async |mut agent| Ok(agent.give_up_disk(request).await?.into_inner().lines))?;
    asked.map_or_else(|| alone(local, &Verb::GiveUpDisk { disk: disk.to_owned(), run }, run), Ok)
}

pub fn adopt_disk(local: &Local, disk: &str, run: Run) -> Result<Vec<String>> {
    let request = DiskRequest { disk: disk.to_owned(), dry_run: run.is_dry() };
    let asked = ask(local, async |mut agent| Ok(agent.adopt_disk(request).await?.into_inner().lines))?;
    asked.map_or_else(|| alone(local, &Verb::AdoptDisk { disk: disk.to_owned(), run }, run), Ok)
}

/// Turns the light of a disk's slot on or off. Without an agent, this process looks for the disk, and writes only that.
pub fn locate_disk(local: &Local, disk: &str, lit: Lit, run: Run) -> Result<Vec<String>> {
    let request = LocateRequest { disk: disk.to_owned(), off: lit == Lit::Off, dry_run: run.is_dry() };
    if let Some(lines) = ask(local, async |mut agent| Ok(agent.locate_disk(request).await?.into_inner().lines))? {
        return Ok(lines);
    }
    Ok(agent_of(local)?.0.verb(&Verb::LocateDisk { disk: disk.to_owned(), lit, run })?)
}

pub fn adopt_volume(local: &Local, volume: &str, run: Run) -> Result<Vec<String>> {
    let _: VolumeId = volume.parse()?;
    let request = VolumeRequest { volume_id: volume.to_owned(), dry_run: run.is_dry() };
    let asked = ask(local, async |mut agent| Ok(agent.adopt_volume(request).await?.into_inner().lines))?;
    asked.ok_or_else(|| nobody(local))
}

/// Says which of several disks has a volume.
pub fn settle_volume(local: &Local, volume: VolumeId, keep: &str, run: Run) -> Result<Vec<String>> {
    let request = SettleRequest { volume_id: volume.to_string(), keep: keep.to_owned(), dry_run: run.is_dry() };
    let asked = ask(local, async |mut agent| Ok(agent.settle_volume(request).await?.into_inner().lines))?;
    let verb = Verb::SettleVolume { volume, keep: keep.to_owned(), run };
    asked.map_or_else(|| alone(local, &verb, run), Ok)
}

/// Begins a new journal and keeps the damaged one beside it.
pub fn set_aside_journal(local: &Local, run: Run) -> Result<Vec<String>> {
    let request = SetAsideRequest { dry_run: run.is_dry() };
    let asked = ask(local, async |mut agent| Ok(agent.set_aside_journal(request).await?.into_inner().lines))?;
    if asked.is_none() && matches!(StateDir::at(&local.state_dir).load(JOURNAL), Ok(None)) {
        bail!("there is no {JOURNAL} in {}", local.state_dir.display());
    }
    asked.map_or_else(|| alone(local, &Verb::SetAsideJournal { run }, run), Ok)
}

/// Forgets which cluster the node was in. A running agent has read that already, and does not change.
pub fn set_aside_cluster(local: &Local, run: Run) -> Result<Vec<String>> {
    let state = StateDir::at(&local.state_dir);
    let dir = local.state_dir.display();
    let cluster = match state.load(CLUSTER_FILE) {
        Err(error) if error.is_no_text() => "something that is not text".to_owned(),
        _ => observer::known_cluster(&state)?.with_context(|| format!("{dir} names no cluster"))?,
    };
    let then = "at its next start the agent asks the API server which cluster this is; disks whose label names another \
                cluster are not served until `localpool disk adopt`";
    let done = match run {
        Run::Dry => format!("would keep {CLUSTER_FILE} in {dir}, which names {cluster}, under another name"),
        Run::Real => {
            let kept = state.keep_copy(CLUSTER_FILE, "cluster.was")?;
            state.store(CLUSTER_FILE, "")?;
            format!("kept {CLUSTER_FILE} in {dir}, which names {cluster}, as {kept}")
        }
    };
    Ok(vec![done, then.to_owned()])
}

/// What the sets of a file would take here. A set that is not valid is an error; then nothing is planned.
pub fn plan_sets(local: &Local, documents: String) -> Result<Vec<String>> {
    let sets = sets::read_all(&documents, &local.node)?;
    if sets.is_empty() {
        bail!("the input contains no LocalVolumeSet");
    }
    let request = SetsRequest { documents };
    if let Some(lines) = ask(local, async |mut agent| Ok(agent.plan_sets(request).await?.into_inner().lines))? {
        return Ok(lines);
    }
    // As `devices`: looks, and writes nothing.
    Ok(agent_of(local)?.0.verb(&Verb::PlanSets { sets })?)
}

/// Asks the running agent; `None` if none runs, or none that answers because it was killed and cannot end.
fn ask<T>(
    local: &Local,
    question: impl AsyncFnOnce(AgentClient<Channel>) -> Result<T, tonic::Status>,
) -> Result<Option<T>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let socket = local.state_dir.join(AGENT_SOCKET);
        let agent = match client::agent(&socket).await {
            Ok(agent) => agent,
            Err(error) if is_denied(&error) => {
                bail!(
                    "the agent on {} cannot be asked: permission denied for {}; run this as root",
                    local.state_dir.display(),
                    socket.display()
                )
            }
            Err(_) => return Ok(None),
        };
        match question(agent).await {
            Ok(answer) => Ok(Some(answer)),
            Err(status) if is_nobody(&status) => Ok(None),
            Err(status) => Err(anyhow!("{}", status.message())),
        }
    })
}

/// This user may not open the socket.
fn is_denied(error: &tonic::transport::Error) -> bool {
    let is_denial = |cause: &std::io::Error| cause.kind() == ErrorKind::PermissionDenied;
    let mut causes = std::iter::successors(std::error::Error::source(error), |cause| cause.source());
    causes.any(|cause| cause.downcast_ref().is_some_and(is_denial))
}

/// The connection failed, not the call.
fn is_nobody(status: &tonic::Status) -> bool {
    std::error::Error::source(status).is_some_and(|source| source.is::<tonic::transport::Error>())
}

/// A verb while no agent runs.
fn alone(local: &Local, verb: &Verb, run: Run) -> Result<Vec<String>> {
    match run {
        Run::Dry => pretend(local, verb),
        Run::Real => be_agent(local, verb),
    }
}

/// Does a verb as the agent of this machine, under its lock.
fn be_agent(local: &Local, verb: &Verb) -> Result<Vec<String>> {
    let state = StateDir::open(&local.state_dir)?;
    let lock = state.try_lock()?.ok_or_else(|| does_not_answer(local))?;
    // The name goes onto labels.
    let cluster = match observer::known_cluster(&state)? {
        Some(cluster) => cluster,
        None => machine::identity(&state)?,
    };
    let owner = Owner { cluster, node: local.node.clone() };
    let (mut agent, _) = observer::agent(observer::machine_after(state, &lock), owner)?;
    agent.pass().context(SCANNING)?;
    Ok(agent.verb(verb)?)
}

/// Says what a verb would do, as an agent that only pretends to write; and what such an agent cannot know.
fn pretend(local: &Local, verb: &Verb) -> Result<Vec<String>> {
    let state = StateDir::at(&local.state_dir);
    if state.is_locked()? {
        return Err(does_not_answer(local));
    }
    let unknown = unknown(local, &state)?;
    let dry = Arc::new(DryHost::new(observer::machine(state)));
    let (mut agent, _) = agent_on(local, Arc::clone(&dry) as Arc<dyn Host>)?;
    agent.pass().context(SCANNING)?;
    let first = dry.written().into_iter().map(|disk| {
        format!("would first complete on {} what the agent had not completed when it stopped", disk.display())
    });
    let first: Vec<String> = first.collect();
    let lines = agent.verb(verb).map_err(|error| anyhow!("{} ({unknown})", chain(&error)))?;
    Ok(first.into_iter().chain(lines).chain([unknown]).collect())
}

/// What only a running agent or an existing state directory could say.
fn unknown(local: &Local, state: &StateDir) -> Result<String> {
    let mut message =
        format!("no agent uses the state directory {}: this was read from the disks alone", local.state_dir.display());
    let is_read = match state.load(JOURNAL) {
        Err(error) if error.is_no_text() => false,
        loaded => loaded?.is_some(),
    };
    if !is_read {
        message += "; without the journal it is not known which disks were released, and which bare devices belong to \
                  the pool";
    }
    if observer::known_cluster(state)?.is_none() {
        message += &match machine::known_identity(state)? {
            Some(identity) => format!("; the cluster is assumed to be `{identity}`"),
            None => "; it is not known which cluster its disks belong to".to_owned(),
        };
    }
    Ok(message)
}

/// The error if only a running agent could answer.
fn nobody(local: &Local) -> anyhow::Error {
    match StateDir::at(&local.state_dir).is_locked() {
        Ok(true) => does_not_answer(local),
        Ok(false) | Err(_) => {
            anyhow!("no agent uses the state directory {}: start the agent first", local.state_dir.display())
        }
    }
}

fn does_not_answer(local: &Local) -> anyhow::Error {
    anyhow!(
        "an agent uses the state directory {}, but does not answer: it has just started and reads the disks for the \
         first time, or it was killed and hangs; its log says which",
        local.state_dir.display()
    )
}

/// An agent of this machine that only looks.
fn agent_of(local: &Local) -> Result<(Reconciler, Arc<Pool>)> {
    agent_on(local, observer::machine(StateDir::at(&local.state_dir)))
}

fn agent_on(local: &Local, host: Arc<dyn Host>) -> Result<(Reconciler, Arc<Pool>)> {
    let cluster = observer::known_owner(host.state())?.unwrap_or_default();
    observer::agent(host, Owner { cluster, node: local.node.clone() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cluster_of_a_node_is_forgotten_and_kept_under_another_name_and_a_dry_run_does_nothing() {
        let dir = tempfile::tempdir().expect("a directory");
        let local = Local { state_dir: dir.path().to_owned(), node: "n".into() };
        assert!(set_aside_cluster(&local, Run::Real).is_err(), "there is none");
        let state = StateDir::at(dir.path());
        state.store(CLUSTER_FILE, "uid-1\n").expect("stored");
        let message = set_aside_cluster(&local, Run::Dry).expect("said").join("\n");
        assert!(message.contains("would keep") && message.contains("uid-1"), "{message}");
        assert_eq!(observer::known_cluster(&state).expect("read").as_deref(), Some("uid-1"));
        let message = set_aside_cluster(&local, Run::Real).expect("done").join("\n");
        let kept = message.split_whitespace().find(|word| word.starts_with("cluster.was-")).expect("its name");
        assert_eq!(state.load(kept).expect("read").as_deref(), Some("uid-1\n"));
        assert_eq!(observer::known_cluster(&state).expect("read"), None);
        let dir = tempfile::tempdir().expect("a directory");
        let local = Local { state_dir: dir.path().to_owned(), ..local };
        let state = StateDir::at(dir.path());
        std::fs::write(dir.path().join(CLUSTER_FILE), [0xff, 0xfe]).expect("written");
        let message = set_aside_cluster(&local, Run::Real).expect("done").join("\n");
        assert!(message.contains("not text"), "{message}");
        assert_eq!(observer::known_cluster(&state).expect("read"), None);
    }

    #[test]
    fn a_journal_that_is_no_text_stops_no_dry_run_and_no_answer_is_not_taken_for_nobody() {
        let dir = tempfile::tempdir().expect("a directory");
        let local = Local { state_dir: dir.path().to_owned(), node: "n".into() };
        let message = set_aside_journal(&local, Run::Real).expect_err("there is none").to_string();
        assert!(message.contains("there is no journal.json"), "{message}");
        std::fs::write(dir.path().join(JOURNAL), [0xff, 0xfe]).expect("written");
        let message = unknown(&local, &StateDir::at(dir.path())).expect("said");
        assert!(message.contains("without the journal") && message.contains("`standalone`"), "{message}");
        assert!(nobody(&local).to_string().contains("no agent uses the state directory"));
        let _held = StateDir::open(dir.path()).expect("there").try_lock().expect("read").expect("free");
        assert!(nobody(&local).to_string().contains("does not answer"));
        let message = plan_sets(&local, String::new()).expect_err("nothing to plan").to_string();
        assert!(message.contains("no LocalVolumeSet"), "{message}");
    }
}
