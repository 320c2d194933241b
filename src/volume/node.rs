//! Staging, publishing and measuring volumes on this node: what `publish` decides, done by the host.
//!
//! Every verb holds its volume's lock and runs on a blocking thread to its end, whether or not the caller waits: an
//! mkfs that outlasts the call continues, and a repeated call gets the answer to come back.

mod refusal;
mod work;

use std::sync::Arc;
use std::time::Duration;

use self::work::{AfterUnmount, Work};
use super::error::Error;
use super::local::blocking;
use super::locks::VolumeLocks;
use super::publish::checked_path;
use super::request::{PublishRequest, StageRequest, Stats};
use crate::device::{NodeName, VolumeId};
use crate::health::{Board, Condition};
use crate::host::Host;
use crate::pool::Pool;

/// The node's side of volumes.
#[derive(Clone)]
pub struct NodeVolumes {
    host: Arc<dyn Host>,
    pool: Arc<Pool>,
    locks: VolumeLocks,
    /// A filesystem that hangs costs one thread, however many measurements are asked for.
    measured: VolumeLocks,
    health: Board,
}

/// How long a measurement waits for another one of the same volume.
const MEASURED_WITHIN: Duration = Duration::from_secs(5);

impl NodeVolumes {
    pub fn new(host: Arc<dyn Host>, pool: Arc<Pool>, locks: VolumeLocks) -> Self {
        Self { host, pool, locks, measured: VolumeLocks::default(), health: Board::default() }
    }

    /// Reports the health that is on this board.
    pub fn with_health(self, health: Board) -> Self {
        Self { health, ..self }
    }

    fn work(&self) -> Work {
        Work { host: Arc::clone(&self.host), pool: Arc::clone(&self.pool), health: self.health.clone() }
    }

    pub fn node_name(&self) -> &NodeName {
        &self.pool.owner().node
    }

    async fn locked<T: Send + 'static>(
        &self,
        id: VolumeId,
        work: impl FnOnce(&Work) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let guard = self.locks.hold(id)?;
        let work_on = self.work();
        blocking(move || {
            let result = work(&work_on);
            drop(guard);
            result
        })
        .await
    }

    pub async fn stage(&self, request: StageRequest) -> Result<(), Error> {
        let staging = checked_path("staging_target_path", &request.staging)?;
        self.locked(request.id, move |work| work.stage(request.id, &staging, &request.access_type)).await
    }

    pub async fn unstage(&self, id: VolumeId, staging: &str) -> Result<(), Error> {
        let staging = checked_path("staging_target_path", staging)?;
        self.locked(id, move |work| work.take_down(id, "staging_target_path", &staging, AfterUnmount::KeepTarget)).await
    }

    pub async fn publish(&self, request: PublishRequest) -> Result<(), Error> {
        let target = checked_path("target_path", &request.target)?;
        let staging = checked_path("staging_target_path", &request.staging)?;
        self.locked(request.id, move |work| work.publish(&request, &staging, &target)).await
    }

    pub async fn unpublish(&self, id: VolumeId, target: &str) -> Result<(), Error> {
        let target = checked_path("target_path", target)?;
        self.locked(id, move |work| work.take_down(id, "target_path", &target, AfterUnmount::RemoveTarget)).await
    }

    pub async fn stats(&self, id: VolumeId, path: &str) -> Result<Stats, Error> {
        let work = self.work();
        let path = path.to_owned();
        let turn = async {
            loop {
                match self.measured.hold(id) {
                    Ok(guard) => break guard,
                    Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
                }
            }
        };
        let hangs =
            |_| Error::Aborted(format!("an earlier measurement of volume {id} has not ended: its disk may hang"));
        let guard = tokio::time::timeout(MEASURED_WITHIN, turn).await.map_err(hangs)?;
        blocking(move || {
            let stats = work.stats(id, &path);
            drop(guard);
            stats
        })
        .await
    }

    /// What is wrong with a volume, as far as this node knows. Waits for no disk.
    pub async fn health(&self, id: VolumeId) -> Result<Condition, Error> {
        let work = self.work();
        blocking(move || Ok(work.health.of_volume(&work.pool.volume(id)?))).await
    }

    /// What is wrong with each disk of the pool, by its id. Waits for no disk.
    pub async fn disks_health(&self) -> Result<Vec<(String, Condition)>, Error> {
        let work = self.work();
        let of = move || {
            work.pool.disk_views().iter().map(|view| (view.id.to_string(), work.health.of_disk(view))).collect()
        };
        blocking(move || Ok(of())).await
    }

    /// Grows the filesystem to the size of its volume; returns that size.
    pub async fn expand(&self, id: VolumeId, path: &str, required: u64) -> Result<u64, Error> {
        let path = path.to_owned();
        self.locked(id, move |work| work.expand(id, &path, required)).await
    }
}
