//! All disks of this node's pool, and the verbs that `volume` calls. Every call blocks.
//!
//! A verb looks before it acts and may be repeated: what is there already is success.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use uuid::Uuid;

use super::disk::ApplyError;
use super::erase::{Progress, work};
use super::member::{Member, Standing, VolumeView};
use crate::device::label::{ErasePolicy, VolumeRecord, VolumeUsage};
use crate::device::rule::Rule;
use crate::host::{FsKind, Host, HostError, chain};
use crate::pool::choose::{Capacity, NoPlace, Wish, capacity, choose};
use crate::pool::journal::{JOURNAL, Journal, JournalError};
use crate::pool::plan::{NewVolume, PlanError, adopt_volume, delete, formatted, grown};

/// Which disks a request may use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selector {
    /// The StorageClass that a set offers its disks to.
    pub class: Option<String>,
    /// `namespace/name` of one set.
    pub set: Option<String>,
}

/// What a volume is to be used as; a filesystem may be left to the set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WantedUsage {
    Block,
    Mount(Option<FsKind>),
}

/// A volume that is asked for.
#[derive(Clone, Debug)]
pub struct CreateRequest {
    pub id: Uuid,
    /// The full CSI name.
    pub name: String,
    pub required: u64,
    pub limit: Option<u64>,
    pub usage: WantedUsage,
    pub parameters: BTreeMap<String, String>,
    pub selector: Selector,
}

/// Whether a verb changed something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Done,
    AlreadySo,
}

/// Why a verb did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum PoolError {
    #[error("there is no volume {id} on this node")]
    NoSuchVolume { id: Uuid },
    #[error("{0}")]
    NoPlace(#[from] NoPlace),
    #[error("no disk of this node's pool is offered to {0}")]
    NoSet(Selector),
    #[error("the parameter `class` is missing, and there is more than one to choose from: {0}")]
    WhichClass(String),
    #[error("volume {name} exists with other properties: {why}")]
    Differs { name: String, why: String },
    #[error("volume {id} can grow to {growable_to} bytes at most, and {wanted} were asked for")]
    CannotGrow { id: Uuid, wanted: u64, growable_to: u64 },
    #[error("volume {id} is in use")]
    InUse { id: Uuid },
    #[error("volume {id} was found on an adopted disk; `localpool volume adopt {id}` makes it usable")]
    Found { id: Uuid },
    #[error("the disk {disk} of volume {id} {why}")]
    DiskAway { id: Uuid, disk: String, why: String },
    #[error(
        "the label of disk {disk} does not describe volume {id}: its use is unknown, so it is kept and not touched"
    )]
    NotDescribed { id: Uuid, disk: String },
    #[error("space next to the volume is being cleaned; try again")]
    Cleaning,
    #[error("the state directory")]
    Journal(#[source] HostError),
    #[error(transparent)]
    BadJournal(#[from] JournalError),
    #[error(transparent)]
    Apply(#[from] ApplyError),
}

/// The pool of one node.
pub struct Pool {
    host: Arc<dyn Host>,
    owner: Owner,
    members: RwLock<BTreeMap<String, Arc<Member>>>,
    journal: Mutex<Journal>,
    workers: Workers,
    stopping: Arc<AtomicBool>,
}

/// Who erases and cleans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workers {
    /// A thread per disk that has something to do.
    Threads,
    /// The caller, by [`Pool::work_until_idle`]: in a test every effect has its place.
    Caller,
}

/// Whose disks they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// UID of the cluster, or `standalone`.
    pub cluster: String,
    pub node: String,
}

impl Pool {
    /// Reads the journal; a damaged one stops the process, as going on would forget what it says.
    pub fn open(host: Arc<dyn Host>, owner: Owner, workers: Workers) -> Result<Self, PoolError> {
        let text = host.state().load(JOURNAL).map_err(PoolError::Journal)?;
        let journal = Mutex::new(Journal::parse(text.as_deref())?);
        Ok(Self { host, owner, members: RwLock::default(), journal, workers, stopping: Arc::default() })
    }

    fn journal(&self) -> MutexGuard<'_, Journal> {
        self.journal.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the journal, durably before it counts.
    fn write_journal<T>(&self, change: impl FnOnce(&mut Journal) -> T) -> Result<T, PoolError> {
        let mut journal = self.journal();
        let mut next = journal.clone();
        let result = change(&mut next);
        if next != *journal {
            self.host.state().store(JOURNAL, &next.to_text()).map_err(PoolError::Journal)?;
            *journal = next;
        }
        Ok(result)
    }

    /// Blank disks that are not claimed again until somebody adopts them, by id.
    pub fn released(&self) -> BTreeSet<String> {
        self.journal().released.clone()
    }

    /// Gives a disk without volumes back: it is blank afterwards, and stays unclaimed.
    pub fn release(&self, member: &Member) -> Result<(), PoolError> {
        let mut state = member.lock();
        let hardware = state.content().label.hardware.id.clone();
        let disk = state.disk()?;
        disk.can_release()?;
        self.write_journal(|journal| journal.released.insert(hardware))?;
        disk.release()?;
        drop(state);
        self.part(&member.id);
        Ok(())
    }

    /// A disk that was given back may be claimed again.
    pub fn readmit(&self, hardware: &str) -> Result<Outcome, PoolError> {
        let was = self.write_journal(|journal| journal.released.remove(hardware))?;
        Ok(if was { Outcome::Done } else { Outcome::AlreadySo })
    }

    pub fn owner(&self) -> &Owner {
        &self.owner
    }

    /// Members in the order of their ids.
    pub fn members(&self) -> Vec<Arc<Member>> {
        self.members.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    pub fn member(&self, id: &str) -> Option<Arc<Member>> {
        self.members.read().unwrap_or_else(PoisonError::into_inner).get(id).cloned()
    }

    pub(super) fn join(&self, member: Member) {
        let mut members = self.members.write().unwrap_or_else(PoisonError::into_inner);
        members.insert(member.id.clone(), Arc::new(member));
    }

    pub(super) fn part(&self, id: &str) {
        self.members.write().unwrap_or_else(PoisonError::into_inner).remove(id);
    }

    /// All volumes, by id.
    pub fn volumes(&self) -> Vec<VolumeView> {
        let mut views: Vec<VolumeView> = self.members().iter().flat_map(|member| member.views()).collect();
        views.sort_by_key(|view| view.id);
        views
    }

    pub fn volume(&self, id: Uuid) -> Result<VolumeView, PoolError> {
        self.find(id).map(|(_, view)| view)
    }

    /// A volume that may be used: described, not waiting for adoption, on a disk that is here.
    pub fn usable(&self, id: Uuid) -> Result<VolumeView, PoolError> {
        self.find_usable(id).map(|(_, view)| view)
    }

    fn find(&self, id: Uuid) -> Result<(Arc<Member>, VolumeView), PoolError> {
        let found = self.members().into_iter().find_map(|member| member.view(id).map(|view| (member, view)));
        found.ok_or(PoolError::NoSuchVolume { id })
    }

    fn find_usable(&self, id: Uuid) -> Result<(Arc<Member>, VolumeView), PoolError> {
        let (member, view) = self.find(id)?;
        let disk = view.disk.clone();
        match (&view.record, &view.standing) {
            (None, _) => Err(PoolError::NotDescribed { id, disk }),
            (Some(record), _) if record.found => Err(PoolError::Found { id }),
            (_, Standing::Missing) => Err(PoolError::DiskAway { id, disk, why: "is missing".to_owned() }),
            (_, Standing::NotReady(why)) => Err(PoolError::DiskAway { id, disk, why: format!("is not ready: {why}") }),
            (Some(_), Standing::Ready) => Ok((member, view)),
        }
    }

    /// The rules of the sets that `selector` means, oldest first.
    fn rules(&self, selector: &Selector) -> Vec<Arc<Rule>> {
        let members = self.members();
        let mut rules: Vec<Arc<Rule>> = members.iter().filter_map(|m| m.lock().rule.clone()).collect();
        rules.retain(|rule| selector.selects(rule));
        rules.sort_by(|a, b| (a.created, &a.set).cmp(&(b.created, &b.set)));
        rules.dedup_by(|a, b| a.set == b.set);
        rules
    }

    fn usage(&self, wanted: WantedUsage, selector: &Selector) -> VolumeUsage {
        match wanted {
            WantedUsage::Block => VolumeUsage::Block,
            WantedUsage::Mount(Some(kind)) => VolumeUsage::Mount(kind),
            WantedUsage::Mount(None) => {
                VolumeUsage::Mount(self.rules(selector).first().map_or(FsKind::Ext4, |rule| rule.fs))
            }
        }
    }

    /// Makes a volume, or finds it made.
    pub fn create(&self, request: &CreateRequest) -> Result<(VolumeView, Outcome), PoolError> {
        if let Ok((member, view)) = self.find(request.id) {
            return self.existing(&member, view, request).map(|view| (view, Outcome::AlreadySo));
        }
        self.check_selector(&request.selector)?;
        let usage = self.usage(request.usage, &request.selector);
        let volume = NewVolume {
            id: request.id,
            record: VolumeRecord {
                name: request.name.clone(),
                required: request.required,
                limit: request.limit,
                parameters: request.parameters.clone(),
                usage,
                fs_size: 0,
                found: false,
            },
        };
        let wish = Wish { usage, required: request.required, limit: request.limit };
        // Another caller may take a place between the look and the lock; each round somebody wins.
        loop {
            let members = self.members();
            let offers: Vec<_> = members
                .iter()
                .enumerate()
                .filter_map(|(index, member)| {
                    let state = member.lock();
                    let selected = state.rule.as_ref().is_some_and(|rule| request.selector.selects(rule));
                    selected.then(|| state.offer(index, usage)).flatten()
                })
                .collect();
            if offers.is_empty() {
                return Err(PoolError::NoSet(request.selector.clone()));
            }
            let (index, site) = choose(&offers, &wish)?;
            match members[index].lock().create(site, &volume) {
                Ok(()) => break,
                Err(ApplyError::Plan { source: PlanError::Taken { .. } | PlanError::TableFull, .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok((self.volume(request.id)?, Outcome::Done))
    }

    /// Without a class or a set, a request would get whatever disk fits: allowed only where there is one class.
    fn check_selector(&self, selector: &Selector) -> Result<(), PoolError> {
        if selector.class.is_some() || selector.set.is_some() {
            return Ok(());
        }
        let mut classes: Vec<String> = self.rules(selector).iter().map(|rule| rule.class.clone()).collect();
        classes.sort();
        classes.dedup();
        match classes.len() {
            0 | 1 => Ok(()),
            _ => Err(PoolError::WhichClass(classes.join(", "))),
        }
    }

    /// A volume of that name is there: it must be what is asked for, and mapped.
    fn existing(&self, member: &Member, view: VolumeView, request: &CreateRequest) -> Result<VolumeView, PoolError> {
        let (_, view) = self.find_usable(view.id)?;
        if let Some(why) = difference(&view, request) {
            return Err(PoolError::Differs { name: request.name.clone(), why });
        }
        member.lock().disk()?.recover_mappings()?;
        Ok(view)
    }

    /// Deletes a volume; its space is erased in the background. Not there: success.
    pub fn delete(&self, id: Uuid) -> Result<Outcome, PoolError> {
        if matches!(self.find(id), Err(PoolError::NoSuchVolume { .. })) {
            return Ok(Outcome::AlreadySo);
        }
        let (member, _) = self.find_usable(id)?;
        let mut state = member.lock();
        let policy = state.rule.as_ref().map_or(ErasePolicy::default(), |rule| rule.erase);
        match state.disk()?.change(|content| delete(content, id, policy, Uuid::new_v4())) {
            Ok(()) => Ok(Outcome::Done),
            Err(error) if error.is_busy() => Err(PoolError::InUse { id }),
            Err(error) => Err(error.into()),
        }
    }

    /// Grows a volume to at least `required` bytes.
    pub fn expand(&self, id: Uuid, required: u64, limit: Option<u64>) -> Result<VolumeView, PoolError> {
        let (member, view) = self.find_usable(id)?;
        if let Some(limit) = limit.filter(|limit| *limit < view.size) {
            let why = "the volume has already".to_owned();
            return Err(NoPlace::Limit { limit, least: view.size, why }.into());
        }
        let grown = member.lock().expand(id, required);
        match grown {
            Ok(()) => self.volume(id),
            Err(ApplyError::Plan { source: PlanError::CannotGrow { id, wanted, growable_to }, .. }) => {
                Err(PoolError::CannotGrow { id, wanted, growable_to })
            }
            Err(ApplyError::Plan { source: PlanError::Taken { .. }, .. }) => Err(PoolError::Cleaning),
            Err(error) => Err(error.into()),
        }
    }

    /// Writes down that mkfs has ended and was synced.
    pub fn mark_formatted(&self, id: Uuid) -> Result<(), PoolError> {
        let (member, _) = self.find_usable(id)?;
        let mut state = member.lock();
        Ok(state.disk()?.change(|content| formatted(content, id))?)
    }

    /// Writes down that the filesystem fills its volume of `size` bytes.
    pub fn mark_grown(&self, id: Uuid, size: u64) -> Result<(), PoolError> {
        let (member, _) = self.find_usable(id)?;
        let mut state = member.lock();
        Ok(state.disk()?.change(|content| grown(content, id, size))?)
    }

    /// Makes a found volume usable.
    pub fn adopt_volume(&self, id: Uuid) -> Result<Outcome, PoolError> {
        let (member, view) = self.find(id)?;
        match &view.record {
            None => Err(PoolError::NotDescribed { id, disk: view.disk }),
            Some(record) if !record.found => Ok(Outcome::AlreadySo),
            Some(_) => {
                member.lock().disk()?.change(|content| adopt_volume(content, id))?;
                Ok(Outcome::Done)
            }
        }
    }

    /// What there is to give now.
    pub fn capacity(&self, selector: &Selector, wanted: WantedUsage) -> Capacity {
        let usage = self.usage(wanted, selector);
        let offers: Vec<_> = self
            .members()
            .iter()
            .enumerate()
            .filter_map(|(index, member)| {
                let state = member.lock();
                let selected = state.rule.as_ref().is_some_and(|rule| selector.selects(rule));
                selected.then(|| state.offer(index, usage)).flatten()
            })
            .collect();
        capacity(&offers, usage)
    }

    /// Starts a worker on each disk that has erasing or cleaning to do and none at it.
    pub fn kick(&self) {
        if self.workers == Workers::Caller {
            return;
        }
        for member in self.members() {
            let idle = !std::mem::replace(&mut member.lock().worker, true);
            if idle {
                let stopping = Arc::clone(&self.stopping);
                std::thread::spawn(move || run_worker(&member, &stopping));
            }
        }
    }

    /// Background workers end after their chunk.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }

    /// Does all background work here and now.
    pub fn work_until_idle(&self) -> Result<(), PoolError> {
        for member in self.members() {
            while work(&member)? == Progress::Worked {}
        }
        Ok(())
    }
}

fn run_worker(member: &Member, stopping: &AtomicBool) {
    while !stopping.load(Ordering::Relaxed) {
        match work(member) {
            Ok(Progress::Worked) => {}
            Ok(Progress::Idle) => return,
            Err(error) => {
                tracing::error!(disk = %member.id, error = %chain(&error), "background work stopped");
                break;
            }
        }
    }
    member.lock().worker = false;
}

impl Selector {
    pub fn selects(&self, rule: &Rule) -> bool {
        let class = self.class.as_ref().is_none_or(|class| *class == rule.class);
        let set = self.set.as_ref().is_none_or(|set| *set == format!("{}/{}", rule.set.namespace, rule.set.name));
        class && set
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.class, &self.set) {
            (None, None) => f.write_str("anybody"),
            (Some(class), None) => write!(f, "class {class}"),
            (None, Some(set)) => write!(f, "set {set}"),
            (Some(class), Some(set)) => write!(f, "class {class} by set {set}"),
        }
    }
}

/// What keeps an existing volume from being the one that is asked for.
fn difference(view: &VolumeView, request: &CreateRequest) -> Option<String> {
    let record = view.record.as_ref()?;
    let size = view.size;
    if size < request.required {
        return Some(format!("it has {size} bytes, and {} are asked for", request.required));
    }
    if let Some(limit) = request.limit.filter(|limit| *limit < size) {
        return Some(format!("it has {size} bytes, and the limit is {limit}"));
    }
    let same_usage = match (record.usage, request.usage) {
        (VolumeUsage::Block, WantedUsage::Block) | (VolumeUsage::Mount(_), WantedUsage::Mount(None)) => true,
        (VolumeUsage::Mount(a), WantedUsage::Mount(Some(b))) => a == b,
        _ => false,
    };
    if !same_usage {
        return Some(format!("it was made as {}", usage_words(record.usage)));
    }
    (record.parameters != request.parameters).then(|| "it was made with other parameters".to_owned())
}

pub fn usage_words(usage: VolumeUsage) -> String {
    match usage {
        VolumeUsage::Block => "a raw block volume".to_owned(),
        VolumeUsage::Mount(kind) => format!("a mount volume with {}", kind.name()),
    }
}
