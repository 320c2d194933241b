//! The port `Volumes` on this node's pool: each verb locks its volume and runs where blocking is allowed.

use std::sync::Arc;

use super::error::Error;
use super::locks::VolumeLocks;
use super::port::{Nodes, Volume, VolumeRequest, Volumes};
use crate::device::{NodeName, VolumeId};
use crate::health::Board;
use crate::host::chain;
use crate::pool::{Capacity, CreateRequest, NoPlace, Pool, PoolError, Selector, VolumeView, WantedUsage};

/// The volumes of one node, straight from its pool.
#[derive(Clone)]
pub struct LocalVolumes {
    pool: Arc<Pool>,
    locks: VolumeLocks,
    health: Board,
}

impl LocalVolumes {
    pub fn new(pool: Arc<Pool>, locks: VolumeLocks) -> Self {
        Self { pool, locks, health: Board::default() }
    }

    /// Reports the health that is on this board.
    pub fn with_health(self, health: Board) -> Self {
        Self { health, ..self }
    }

    /// Runs on a blocking thread, to its end, whether or not the caller waits for it.
    async fn locked<T: Send + 'static>(
        &self,
        id: VolumeId,
        error: fn(PoolError) -> Error,
        work: impl FnOnce(&Arc<Pool>) -> Result<T, PoolError> + Send + 'static,
    ) -> Result<T, Error> {
        let guard = self.locks.hold(id)?;
        let pool = Arc::clone(&self.pool);
        blocking(move || {
            let result = work(&pool);
            drop(guard);
            // If nothing changed, no new scan is needed.
            if result.as_ref().is_err_and(|error| error.failed_on().is_some() && !error.is_locked()) {
                pool.nudge();
            }
            result.map_err(error)
        })
        .await
    }
}

/// Moves blocking work off the async threads.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    let joined = tokio::task::spawn_blocking(work).await;
    joined.unwrap_or_else(|e| Err(Error::Internal(format!("a bug ended the operation: {e}"))))
}

impl Volumes for LocalVolumes {
    async fn create(&self, wanted: VolumeRequest) -> Result<Volume, Error> {
        let id = VolumeId::of_name(&wanted.name);
        let node = &self.pool.owner().node;
        // Of several preferred nodes only the first one counts: it is the scheduler's choice.
        let here = match &wanted.nodes {
            Nodes::Any => true,
            Nodes::Preferred(nodes) => nodes.first() == Some(node),
            Nodes::AnyOf(nodes) => nodes.contains(node),
        };
        if !here {
            return Err(Error::Exhausted(format!("this is node {node}, but the volume is requested on another node")));
        }
        let health = self.health.clone();
        self.locked(id, come_back, move |pool| {
            let VolumeRequest { name, required, limit, usage, parameters, selector, nodes: _, timeout: _ } = wanted;
            let request = CreateRequest { id, name, required, limit, usage, parameters, selector };
            let (view, _) = pool.create(&request)?;
            Ok(volume(pool, &health, &view))
        })
        .await
    }

    async fn delete(&self, id: VolumeId) -> Result<(), Error> {
        self.locked(id, come_back, move |pool| {
            pool.delete(id)?;
            pool.kick();
            Ok(())
        })
        .await
    }

    async fn expand(&self, id: VolumeId, required: u64, limit: Option<u64>) -> Result<Volume, Error> {
        let health = self.health.clone();
        self.locked(id, Error::from, move |pool| {
            pool.expand(id, required, limit).map(|view| volume(pool, &health, &view))
        })
        .await
    }

    async fn get(&self, id: VolumeId) -> Result<Option<Volume>, Error> {
        let (pool, health) = (Arc::clone(&self.pool), self.health.clone());
        blocking(move || Ok(pool.volume(id).ok().map(|view| volume(&pool, &health, &view)))).await
    }

    async fn list(&self) -> Result<Vec<Volume>, Error> {
        let (pool, health) = (Arc::clone(&self.pool), self.health.clone());
        blocking(move || {
            let mut views = pool.volumes();
            // A volume in conflict is on several disks, and is listed once.
            views.dedup_by_key(|view| view.id);
            Ok(views.iter().map(|view| volume(&pool, &health, view)).collect())
        })
        .await
    }

    async fn capacity(
        &self,
        selector: Selector,
        usage: Option<WantedUsage>,
        node: Option<NodeName>,
    ) -> Result<Capacity, Error> {
        let pool = Arc::clone(&self.pool);
        blocking(move || match node.is_none_or(|node| node == pool.owner().node) {
            true => Ok(match usage {
                Some(usage) => pool.capacity(&selector, usage),
                None => {
                    let given = |usage| pool.capacity(&selector, usage);
                    given(WantedUsage::Mount(None)).or(given(WantedUsage::Block))
                }
            }),
            false => Ok(Capacity::default()),
        })
        .await
    }
}

fn volume(pool: &Pool, health: &Board, view: &VolumeView) -> Volume {
    Volume {
        id: view.id,
        name: view.record.as_ref().map(|r| r.name.clone()).unwrap_or_default(),
        size: view.size,
        usage: view.record.as_ref().map(|r| r.usage),
        node: pool.owner().node.clone(),
        found: view.record.as_ref().is_some_and(|r| r.found),
        condition: health.of_volume(view),
    }
}

/// A volume that is, or may be, on a disk that is away can be made or deleted when the disk is back or given up.
fn come_back(error: PoolError) -> Error {
    match error {
        PoolError::DiskAway { .. } => Error::Aborted(chain(&error)),
        error => error.into(),
    }
}

impl From<PoolError> for Error {
    fn from(error: PoolError) -> Self {
        let message = chain(&error);
        if error.is_locked() {
            return Error::Aborted(message);
        }
        match error {
            PoolError::NoSuchVolume { .. } => Error::NotFound(message),
            PoolError::NoPlace(NoPlace::Limit { .. })
            | PoolError::CannotGrow { .. }
            | PoolError::CannotShrink { .. } => Error::OutOfRange(message),
            PoolError::NoPlace(NoPlace::NoDisk | NoPlace::Full { .. } | NoPlace::Cordoned { .. })
            | PoolError::NoSet(_) => Error::Exhausted(message),
            PoolError::WhichClass(_) => Error::Invalid(message),
            PoolError::Differs { .. } => Error::Exists(message),
            PoolError::InUse { .. }
            | PoolError::Found { .. }
            | PoolError::DiskAway { .. }
            | PoolError::Conflict { .. }
            | PoolError::NotSettled { .. }
            | PoolError::NotDescribed { .. } => Error::Precondition(message),
            PoolError::NotScanned { .. } | PoolError::VolumesNotRead { .. } | PoolError::BeingZeroed { .. } => {
                Error::Aborted(message)
            }
            error if error.is_full() => Error::Exhausted(message),
            PoolError::Apply(_)
            | PoolError::Journal(_)
            | PoolError::Bare(_)
            | PoolError::Filesystem(_)
            | PoolError::Hangs { .. } => Error::Internal(message),
        }
    }
}
