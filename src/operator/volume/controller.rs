//! The port `Volumes` on the objects of a cluster: asks the node's agent through a PoolVolume, and waits for
//! its answer on the watch. What is done next is decided in `create`, `delete` and `expand`; this does it.

use std::time::Duration;

use k8s_openapi::api::core::v1::PersistentVolume;
use kube::ResourceExt as _;
use serde_json::json;
use tokio::time::Instant;

use super::create::{AfterWithdrawal, CreateFacts, CreateStep, WaitUntil};
use super::delete::{DeleteFacts, DeleteStep};
use super::erased::{Erased, PersistentVolumeId};
use super::expand::{ExpandFacts, ExpandStep};
use super::in_vain::InVain;
use super::objects::{VolumeApi, Write};
use super::{create, delete, expand, handle, node_capacity, spec, view};
use crate::api::crd::{Intent, Phase, PoolVolume};
use crate::host::chain;
use crate::operator::controller::caches::Caches;
use crate::operator::latest::Sight;
use crate::volume::{Capacity, Error, Selector, Volume, VolumeId, VolumeLocks, VolumeRequest, Volumes, WantedUsage};

/// How long a deletion or an expansion is waited for.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long an agent gets to notice what has just changed.
const GRACE: Duration = Duration::from_secs(3);
/// How long before the end of a caller's patience it is answered, at most.
const MARGIN: Duration = Duration::from_secs(1);

/// Volumes of a cluster.
#[derive(Clone)]
pub struct ClusterVolumes {
    pub(in crate::operator) objects: VolumeApi,
    pub(in crate::operator) caches: Caches,
    pub(in crate::operator) locks: VolumeLocks,
    pub(in crate::operator) in_vain: InVain,
    pub(in crate::operator) erased: Erased,
}

impl ClusterVolumes {
    pub(super) fn node_exists(&self, node: &str) -> bool {
        self.caches.nodes.get(node).is_some()
    }

    /// Without a view of the cluster nothing can be said of it.
    fn synced(&self) -> Result<(), Error> {
        self.caches.are_synced().then_some(()).ok_or_else(|| {
            Error::Aborted("the controller does not know the cluster's objects yet; try again".to_owned())
        })
    }

    /// Runs to its end, whether or not the caller waits for it: what was begun is not left half done.
    async fn to_its_end<T, F>(&self, id: VolumeId, work: impl FnOnce(Self) -> F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Error>> + Send + 'static,
    {
        self.synced()?;
        let guard = self.locks.hold(id)?;
        let work = work(self.clone());
        let task = tokio::spawn(async move {
            let result = work.await;
            drop(guard);
            result
        });
        task.await.unwrap_or_else(|e| Err(Error::Internal(format!("the operation ended in a bug: {e}"))))
    }

    async fn make(self, id: VolumeId, wanted: VolumeRequest) -> Result<Volume, Error> {
        let began = Instant::now();
        let silent_at = began + wanted.patience * 3 / 4;
        let over_at = began + wanted.patience.saturating_sub(MARGIN.min(wanted.patience / 8));
        let mut sight = Sight::new(&self.caches.volumes, id.to_string());
        let mut own = None;
        let mut refusal: Option<Error> = None;
        let mut tried = Vec::new();
        loop {
            let seen = sight.look();
            if let Some(pending) = seen.as_deref().filter(|seen| spec::phase(seen) == Phase::Pending) {
                own = pending.uid();
            }
            let now = Instant::now();
            let facts = CreateFacts {
                own_uid: own.as_deref(),
                node_exists: seen.as_ref().is_none_or(|seen| self.node_exists(&seen.spec.node)),
                silent: now >= silent_at,
                over: now >= over_at,
            };
            // Nobody else is asked so late.
            if let Some(refusal) = refusal.take_if(|_| seen.is_none() && facts.silent) {
                return Err(refusal);
            }
            match create::step(&wanted, seen.as_deref(), facts) {
                CreateStep::Make => {
                    let node = match (self.choose(&wanted, &tried), refusal.take()) {
                        (Ok(node), _) => node,
                        (Err(_), Some(refusal)) => return Err(refusal),
                        (Err(error), None) => return Err(error),
                    };
                    match self.objects.create(&spec::object(&wanted, &node)).await.map_err(unknown)? {
                        Write::Done(made) => {
                            own = made.uid();
                            sight.learn(Some(made));
                        }
                        Write::Changed => self.look_again(&mut sight, id).await?,
                    }
                }
                CreateStep::Wait(WaitUntil::Silent) => sight.changed(silent_at).await,
                CreateStep::Wait(WaitUntil::Over) => sight.changed(over_at).await,
                CreateStep::Withdraw(then) => {
                    let Some(seen) = seen else { continue };
                    match self.objects.withdraw(&seen).await.map_err(unknown)? {
                        Write::Changed => self.look_again(&mut sight, id).await?,
                        Write::Done(()) => {
                            sight.learn(None);
                            match then {
                                AfterWithdrawal::Anew => {}
                                AfterWithdrawal::Elsewhere(error) => {
                                    tried.push(seen.spec.node.clone());
                                    refusal = Some(error);
                                }
                                AfterWithdrawal::Answer(error) => return Err(error),
                            }
                        }
                    }
                }
                CreateStep::Answer(Ok(())) => return answer(seen.as_deref()),
                CreateStep::Answer(Err(error)) => return Err(error),
            }
        }
    }

    async fn look_again(&self, sight: &mut Sight, id: VolumeId) -> Result<(), Error> {
        sight.learn(self.objects.get(&id.to_string()).await.map_err(unknown)?);
        Ok(())
    }

    async fn erase(self, id: VolumeId) -> Result<(), Error> {
        let name = id.to_string();
        let (grace_at, over_at) = (Instant::now() + GRACE, Instant::now() + PATIENCE);
        let mut sight = Sight::new(&self.caches.volumes, name.clone());
        self.look_again(&mut sight, id).await?;
        let (mut persistent, mut ordered, mut told) = (None, false, None);
        loop {
            let seen = sight.look();
            ordered |= seen.as_ref().is_some_and(|seen| seen.spec.intent == Intent::Delete);
            let now = Instant::now();
            let node_exists = seen.as_ref().is_none_or(|seen| self.node_exists(&seen.spec.node));
            let (grace, over) = (now >= grace_at, now >= over_at);
            let facts = DeleteFacts { node_exists, persistent: persistent == Some(true), ordered, grace, over };
            let act = delete::step(seen.as_deref(), facts);
            let done = match (act, seen) {
                (DeleteStep::Answer(answer), _) => {
                    if let (Ok(()), Some(told)) = (&answer, told) {
                        self.erased.note(id, told);
                    }
                    return answer;
                }
                (DeleteStep::Trace, _) => {
                    let Some(volume) = self.trace(id).await? else { return Ok(()) };
                    let Some(object) = self.order_of(id, &volume)? else { return Ok(()) };
                    told = named(&volume);
                    self.objects.create(&object).await.map(|done| done.map(Some))
                }
                // Asked when it matters, and not before: the object may have been written again since the call began.
                (DeleteStep::Withdraw, Some(_)) if persistent.is_none() => {
                    persistent = Some(self.objects.persistent_volume(&name).await.map_err(unknown)?.is_some());
                    continue;
                }
                (DeleteStep::Withdraw, Some(seen)) => match self.objects.withdraw(&seen).await.map_err(unknown)? {
                    Write::Done(()) => return Ok(()),
                    Write::Changed => Ok(Write::Changed),
                },
                (DeleteStep::Order, Some(seen)) => {
                    if let Some(volume) = self.objects.persistent_volume_of(&seen).await.map_err(unknown)? {
                        unbound(id, &volume)?;
                        told = named(&volume);
                    }
                    self.objects.order(&seen).await.map(|done| done.map(Some))
                }
                (DeleteStep::Delete, Some(seen)) => self.objects.delete(&seen).await,
                (_, _) => {
                    sight.changed(if now < grace_at { grace_at } else { over_at }).await;
                    continue;
                }
            };
            match done.map_err(unknown)? {
                Write::Done(now) => sight.learn(now),
                Write::Changed => self.look_again(&mut sight, id).await?,
            }
        }
    }

    /// The PersistentVolume that tells of a volume whose object is missing, unless its deletion was answered.
    async fn trace(&self, id: VolumeId) -> Result<Option<PersistentVolume>, Error> {
        if let Some(told) = self.erased.of(id) {
            let still = self.objects.persistent_volume_named(&told.name).await.map_err(unknown)?;
            if still.as_ref().and_then(named).as_ref() == Some(&told) {
                return Ok(None);
            }
        }
        self.objects.persistent_volume(&id.to_string()).await.map_err(unknown)
    }

    /// The object that orders a volume erased whose own object is missing; `None` where its node is missing, too.
    fn order_of(&self, id: VolumeId, volume: &PersistentVolume) -> Result<Option<PoolVolume>, Error> {
        unbound(id, volume)?;
        let spec = handle::order(volume).map_err(|why| {
            let name = volume.name_any();
            Error::Precondition(format!("volume {id} has no object, and its PersistentVolume {name} {why}"))
        })?;
        if !self.node_exists(&spec.node) {
            tracing::info!(volume = %id, node = spec.node, "deleted without its data: neither object nor node exist");
            return Ok(None);
        }
        Ok(Some(spec::of_spec(id, spec)))
    }

    async fn grow(self, id: VolumeId, required: u64, limit: Option<u64>) -> Result<Volume, Error> {
        let (grace_at, over_at) = (Instant::now() + GRACE, Instant::now() + PATIENCE);
        let mut sight = Sight::new(&self.caches.volumes, id.to_string());
        if sight.look().is_none() {
            self.look_again(&mut sight, id).await?;
        }
        let mut asked = false;
        loop {
            let seen = sight.look();
            let now = Instant::now();
            let node_exists = seen.as_ref().is_none_or(|seen| self.node_exists(&seen.spec.node));
            let facts = ExpandFacts { node_exists, asked, grace: now >= grace_at, over: now >= over_at };
            let (size, after) = match expand::step(seen.as_deref(), required, limit, facts) {
                ExpandStep::Answer(Ok(())) => return answer(seen.as_deref()),
                ExpandStep::Answer(Err(error)) => return Err(error),
                ExpandStep::Wait => {
                    sight.changed(if now < grace_at { grace_at } else { over_at }).await;
                    continue;
                }
                ExpandStep::Ask(size) => (size, None),
                ExpandStep::TakeBack(size, error) => (size, Some(error)),
            };
            let Some(seen) = seen else { continue };
            match self.objects.change(&seen, json!({ "size": size })).await.map_err(unknown)? {
                Write::Done(_) if after.is_some() => return after.map_or_else(|| answer(Some(&seen)), Err),
                Write::Done(now) => {
                    asked = true;
                    sight.learn(Some(now));
                }
                Write::Changed => self.look_again(&mut sight, id).await?,
            }
        }
    }
}

/// The volume of an object that is Ready.
fn answer(object: Option<&PoolVolume>) -> Result<Volume, Error> {
    let volume = object.and_then(|object| view::volume(object, true));
    volume.ok_or_else(|| Error::Internal("the object of the volume is Ready and has no size".to_owned()))
}

/// What a PersistentVolume is known by.
fn named(volume: &PersistentVolume) -> Option<PersistentVolumeId> {
    Some(PersistentVolumeId { name: volume.name_any(), uid: volume.uid()? })
}

/// A volume that a claim has is erased for nobody: the provisioner asks only for what was released.
fn unbound(id: VolumeId, volume: &PersistentVolume) -> Result<(), Error> {
    match handle::bound_to(volume) {
        None => Ok(()),
        Some(claim) => Err(Error::Precondition(format!(
            "volume {id} is not deleted: its PersistentVolume {} is Bound to the claim {claim}; delete that claim first",
            volume.name_any()
        ))),
    }
}

/// Nobody knows whether a request that failed was done: the caller comes back.
fn unknown(error: crate::operator::Error) -> Error {
    match error.code() {
        // What the API server refuses it refuses again.
        Some(400 | 403 | 422) => Error::Internal(chain(&error)),
        _ => Error::Aborted(chain(&error)),
    }
}

impl Volumes for ClusterVolumes {
    const WEIGHED_BEFORE: bool = true;

    async fn create(&self, wanted: VolumeRequest) -> Result<Volume, Error> {
        let id = VolumeId::of_name(&wanted.name);
        let made = self.to_its_end(id, |this| this.make(id, wanted)).await?;
        tracing::info!(volume = %id, name = made.name, node = made.node, size = made.size, "the volume is there");
        Ok(made)
    }

    async fn delete(&self, id: VolumeId) -> Result<(), Error> {
        self.to_its_end(id, |this| this.erase(id)).await?;
        tracing::info!(volume = %id, "the volume is gone");
        Ok(())
    }

    async fn expand(&self, id: VolumeId, required: u64, limit: Option<u64>) -> Result<Volume, Error> {
        let grown = self.to_its_end(id, |this| this.grow(id, required, limit)).await?;
        tracing::info!(volume = %id, size = grown.size, "the volume is large enough");
        Ok(grown)
    }

    async fn get(&self, id: VolumeId) -> Result<Option<Volume>, Error> {
        self.synced()?;
        let name = id.to_string();
        let object = self.caches.volumes.get(&name);
        if let (None, Some(why)) = (&object, self.caches.volumes.unread(&name)) {
            return Err(Error::Aborted(format!(
                "PoolVolume {name} is there, and cannot be read by this version: {why}"
            )));
        }
        Ok(object.and_then(|object| view::volume(&object, self.node_exists(&object.spec.node))))
    }

    async fn list(&self) -> Result<Vec<Volume>, Error> {
        self.synced()?;
        let all = self.caches.volumes.all();
        Ok(all.iter().filter_map(|object| view::volume(object, self.node_exists(&object.spec.node))).collect())
    }

    async fn capacity(
        &self,
        selector: Selector,
        usage: Option<WantedUsage>,
        node: Option<String>,
    ) -> Result<Capacity, Error> {
        self.synced()?;
        if self.offered(&selector, None).is_err() {
            return Ok(Capacity::ANYTHING);
        }
        let in_vain = || self.in_vain.of(&selector, node.as_deref()?, Instant::now());
        let usage = usage.or_else(in_vain);
        let mut rooms = self.rooms(node.as_ref().map(std::slice::from_ref), &selector, usage);
        rooms.retain(|name, _| self.node_exists(name));
        Ok(node_capacity::total(rooms.values()))
    }
}
