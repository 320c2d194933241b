//! The agent's own service: what the command line asks of a running agent, as only the agent may touch the disks.

use std::error::Error;
use std::pin::Pin;
use std::sync::Arc;

use futures::Stream;
use futures::stream::unfold;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status};

use super::proto::agent::agent_server::Agent;
use super::proto::agent::{
    DiskRequest, InventoryReply, InventoryRequest, LocateRequest, Report, SetAsideRequest, SetsRequest, SettleRequest,
    VolumeRequest, WatchRequest,
};
use crate::agent::{AdminError, AgentHandle, Run, Verb};
use crate::claim::Rule;
use crate::device::NodeName;
use crate::health::Board;
use crate::host::Lit;
use crate::pool::{Change, Pool};
use crate::show::devices::{Format, ShowError, styled};
use crate::show::{Heads, Paint, TableStyle};
use crate::show::{health, volumes};
use crate::volume::VolumeId;

pub struct AgentService {
    agent_handle: AgentHandle,
    pool: Arc<Pool>,
    pass_signal: PassSignal,
    read_sets: ReadSets,
    health: Board,
}

/// The sets of some documents for a node of that name, or what is wrong with the documents.
pub type ReadSets = fn(&str, &NodeName) -> Result<Vec<Rule>, Box<dyn Error + Send + Sync>>;

/// Signals each pass of the agent, and the end of all passes.
#[derive(Clone)]
pub struct PassSignal {
    pub passed: watch::Receiver<u64>,
    pub stop: CancellationToken,
}

impl PassSignal {
    /// Waits for the next pass; false at the end.
    async fn next(&mut self) -> bool {
        tokio::select! {
            passed = self.passed.changed() => passed.is_ok(),
            () = self.stop.cancelled() => false,
        }
    }
}

type Replies = Pin<Box<dyn Stream<Item = Result<InventoryReply, Status>> + Send>>;

impl AgentService {
    pub fn new(agent_handle: AgentHandle, pool: Arc<Pool>, pass_signal: PassSignal, read_sets: ReadSets) -> Self {
        Self { agent_handle, pool, pass_signal, read_sets, health: Board::default() }
    }

    /// Reports the health that is on this board.
    pub fn with_health(self, health: Board) -> Self {
        Self { health, ..self }
    }

    async fn verb(&self, verb: Verb) -> Result<Response<Report>, Status> {
        let agent_handle = self.agent_handle.clone();
        let lines = blocking(move || agent_handle.verb(verb)).await???;
        Ok(Response::new(Report { lines }))
    }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Status> {
    tokio::task::spawn_blocking(work).await.map_err(|e| Status::internal(e.to_string()))
}

fn volume_id(text: &str) -> Result<VolumeId, Status> {
    text.parse().map_err(|e| Status::invalid_argument(format!("volume_id: {e}")))
}

async fn inventory(agent_handle: AgentHandle, format: Format, style: TableStyle) -> Result<String, Status> {
    let shown = blocking(move || agent_handle.inventory()).await??;
    Ok(styled(&shown, format, style)?)
}

/// How a list is wanted. Whoever asks may print it later, so it has no colours.
fn read_request(request: &InventoryRequest) -> Result<(Format, TableStyle), Status> {
    let heads = if request.no_headers { Heads::Hidden } else { Heads::Shown };
    Ok((request.output.parse()?, TableStyle { heads, paint: Paint::Plain }))
}

/// What `localpool health` prints.
fn health_of(pool: &Pool, board: &Board, format: Format) -> Result<String, ShowError> {
    let disks: Vec<_> = pool.disk_views().into_iter().map(|view| (view.clone(), board.of_disk(&view))).collect();
    let volumes: Vec<_> = pool.volumes().into_iter().map(|view| (view.clone(), board.of_volume(&view))).collect();
    health::render(&disks, &volumes, board.paths().as_deref(), format)
}

#[tonic::async_trait]
impl Agent for AgentService {
    async fn inventory(&self, request: Request<InventoryRequest>) -> Result<Response<InventoryReply>, Status> {
        let (format, style) = read_request(&request.into_inner())?;
        let text = inventory(self.agent_handle.clone(), format, style).await?;
        Ok(Response::new(InventoryReply { text }))
    }

    async fn watch_inventory(&self, _: Request<WatchRequest>) -> Result<Response<Replies>, Status> {
        let mut pass_signal = self.pass_signal.clone();
        // The first answer does not wait for a pass.
        pass_signal.passed.mark_changed();
        let state = (pass_signal, self.agent_handle.clone(), String::new());
        let replies = unfold(state, async |(mut pass_signal, agent_handle, mut last)| {
            while pass_signal.next().await {
                match inventory(agent_handle.clone(), Format::Json, TableStyle::default()).await {
                    Ok(text) if text == last => {}
                    Ok(text) => {
                        last.clone_from(&text);
                        return Some((Ok(InventoryReply { text }), (pass_signal, agent_handle, last)));
                    }
                    Err(status) => return Some((Err(status), (pass_signal, agent_handle, last))),
                }
            }
            None
        });
        Ok(Response::new(Box::pin(replies)))
    }

    async fn volumes(&self, request: Request<InventoryRequest>) -> Result<Response<InventoryReply>, Status> {
        let (format, style) = read_request(&request.into_inner())?;
        let pool = Arc::clone(&self.pool);
        let views = blocking(move || pool.volumes()).await?;
        Ok(Response::new(InventoryReply { text: volumes::styled(&views, format, style)? }))
    }

    async fn health(&self, request: Request<InventoryRequest>) -> Result<Response<InventoryReply>, Status> {
        let format = request.into_inner().output.parse()?;
        let (pool, board) = (Arc::clone(&self.pool), self.health.clone());
        let text = blocking(move || health_of(&pool, &board, format)).await??;
        Ok(Response::new(InventoryReply { text }))
    }

    async fn release_disk(&self, request: Request<DiskRequest>) -> Result<Response<Report>, Status> {
        let DiskRequest { disk, dry_run } = request.into_inner();
        self.verb(Verb::ReleaseDisk { disk, run: Run::asked(dry_run) }).await
    }

    async fn give_up_disk(&self, request: Request<DiskRequest>) -> Result<Response<Report>, Status> {
        let DiskRequest { disk, dry_run } = request.into_inner();
        self.verb(Verb::GiveUpDisk { disk, run: Run::asked(dry_run) }).await
    }

    async fn adopt_disk(&self, request: Request<DiskRequest>) -> Result<Response<Report>, Status> {
        let DiskRequest { disk, dry_run } = request.into_inner();
        self.verb(Verb::AdoptDisk { disk, run: Run::asked(dry_run) }).await
    }

    async fn locate_disk(&self, request: Request<LocateRequest>) -> Result<Response<Report>, Status> {
        let LocateRequest { disk, off, dry_run } = request.into_inner();
        let lit = if off { Lit::Off } else { Lit::On };
        self.verb(Verb::LocateDisk { disk, lit, run: Run::asked(dry_run) }).await
    }

    async fn plan_sets(&self, request: Request<SetsRequest>) -> Result<Response<Report>, Status> {
        let sets = (self.read_sets)(&request.into_inner().documents, &self.pool.owner().node);
        let sets = sets.map_err(|errors| Status::invalid_argument(errors.to_string()))?;
        self.verb(Verb::PlanSets { sets }).await
    }

    async fn set_aside_journal(&self, request: Request<SetAsideRequest>) -> Result<Response<Report>, Status> {
        let SetAsideRequest { dry_run } = request.into_inner();
        self.verb(Verb::SetAsideJournal { run: Run::asked(dry_run) }).await
    }

    async fn settle_volume(&self, request: Request<SettleRequest>) -> Result<Response<Report>, Status> {
        let SettleRequest { volume_id, keep, dry_run } = request.into_inner();
        let id = self::volume_id(&volume_id)?;
        self.verb(Verb::SettleVolume { volume: id, keep, run: Run::asked(dry_run) }).await
    }

    async fn adopt_volume(&self, request: Request<VolumeRequest>) -> Result<Response<Report>, Status> {
        let VolumeRequest { volume_id, dry_run } = request.into_inner();
        let id = self::volume_id(&volume_id)?;
        let pool = Arc::clone(&self.pool);
        let adopted = blocking(move || match dry_run {
            true => pool.would_adopt_volume(id),
            // Its object reports it too, if there are objects.
            false => pool.adopt_volume(id).inspect(|_| pool.nudge()),
        });
        let outcome = adopted.await?.map_err(AdminError::from)?;
        let line = match (outcome, dry_run) {
            (Change::AlreadySo | Change::Kept, _) => format!("volume {id} needs no adoption"),
            (Change::Done, true) => format!("would make volume {id} usable"),
            (Change::Done, false) => format!("volume {id} is usable now"),
        };
        Ok(Response::new(Report { lines: vec![line] }))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use jiff::Timestamp;

    use super::*;
    use crate::device::Owner;
    use crate::health::{CheckupResult, Finding, HealthReason, PathKind, PathResult, WatchedPath};
    use crate::host::fake::FakeHost;
    use crate::pool::Workers;

    #[test]
    fn what_is_wrong_with_a_path_of_another_provisioner_is_printed_until_it_is_well() {
        let owner = Owner { cluster: "c".to_owned(), node: "n".into() };
        let pool = Pool::open(Arc::new(FakeHost::default()), owner, Workers::Caller).expect("a pool");
        let board = Board::default();
        let (path, kind) = ("/mnt/disks/a".into(), PathKind::Filesystem);
        let (volume, uid) = ("local-pv-1".into(), "uid-1".into());
        board.watch(vec![WatchedPath { volume, uid, path, capacity: 1, kind, is_mounted: true, claim: None }]);
        let printed = |format| health_of(&pool, &board, format).expect("it can be written");
        assert!(!printed(Format::Table).contains("healthy"), "nobody has looked");
        let update = |findings| {
            let paths = [("uid-1".into(), PathResult { findings, is_mount_point: false, identity: None })].into();
            board.update(CheckupResult { paths, ..CheckupResult::default() }, Timestamp::UNIX_EPOCH, Duration::ZERO);
        };
        update(vec![Finding::new(HealthReason::NotMountPoint, "nothing is mounted at /mnt/disks/a any more")]);
        let text = printed(Format::Table);
        let head = "PersistentVolume local-pv-1 (/mnt/disks/a): NotMountPoint, Inaccessible, since 1970-01-01T00:00";
        assert!(text.starts_with(head) && !text.contains("healthy"), "{text}");
        let value: serde_json::Value = serde_json::from_str(&printed(Format::Json)).expect("JSON");
        let row = &value["unhealthy"][0];
        let words = ["kind", "id", "reason", "severity", "message"].map(|key| row[key].as_str().unwrap_or_default());
        let message = "nothing is mounted at /mnt/disks/a any more";
        assert_eq!(words, ["PersistentVolume", "local-pv-1", "NotMountPoint", "Inaccessible", message]);
        update(vec![]);
        let well = "healthy: 0 disks, 0 volumes and 1 local PersistentVolume of other provisioners\n";
        let text = printed(Format::Table);
        assert!(text.starts_with(well), "{text}");
    }
}
