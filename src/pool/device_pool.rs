//! All disks of this node's pool, and the verbs that `volume` calls. Every call blocks.
//!
//! A verb looks before it acts and may be repeated: what is there already is success.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use std::time::Duration;

use uuid::Uuid;

use super::bare::{BareDevice, BareError};
use super::choose::{Capacity, NoPlace, Offer, Wish, capacity, choose};
use super::disk::ApplyError;
use super::erase::Progress;
use super::journal::{BareClaim, KnownDisk};
use super::journal_store::{JournalStore, StoreError};
use super::labelled::{DiskView, LabelledDisk, PATIENCE, SHORT_PATIENCE, Standing, VolumeView};
use super::member::{Member, Taken};
use super::plan::NewVolume;
use super::request::difference;
pub use super::request::{CreateRequest, Outcome, Selector, WantedUsage};
use super::whereabouts::Unasked;
use crate::claim::rule::Rule;
use crate::device::discovery::Snapshot;
use crate::device::label::{VolumeRecord, VolumeUsage};
use crate::device::reason::Reason;
use crate::device::size::Size;
use crate::device::{Device, Verdict, id};
use crate::host::patience::PatienceError;
use crate::host::told::Told;
use crate::host::{FsKind, Host, chain};

/// How long an expansion waits for the erasure of the space that it needs.
const ERASE_WAIT: Duration = Duration::from_secs(2);
/// How long a stop waits for background work to come to the end of a chunk.
const LAST_CHUNK: Duration = Duration::from_secs(3);
/// How long the older label copy may stay behind: one write then serves all changes of a burst.
const MIRROR_AFTER: Duration = Duration::from_millis(50);

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
    #[error("volume {id} can grow to {growable_to} bytes ({}) at most, and {wanted} ({}) were asked for", Size(*growable_to), Size(*wanted))]
    CannotGrow { id: Uuid, wanted: u64, growable_to: u64 },
    #[error("volume {id} is in use: {why}")]
    InUse { id: Uuid, why: String },
    #[error("volume {id} was found on an adopted disk; `localpool volume adopt {id}` makes it usable")]
    Found { id: Uuid },
    #[error("the disk {disk} of volume {id} {why}")]
    DiskAway { id: Uuid, disk: String, why: String },
    #[error("the disks of this node were not looked at yet, and volume {id} may be on one of them")]
    NotLookedAt { id: Uuid },
    #[error("volume {id} cannot be used: {why}")]
    Conflict { id: Uuid, why: String },
    #[error("the conflict of volume {id} cannot be settled: {why}")]
    NotSettled { id: Uuid, why: String },
    #[error(
        "the label of disk {disk} does not describe volume {id}: its use is unknown, so it is kept and not touched"
    )]
    NotDescribed { id: Uuid, disk: String },
    /// Nobody sees anything of it before that is done.
    #[error("disk {disk} is being zeroed for volume {id}: {} are left; call again", Size(*left))]
    BeingZeroed { id: Uuid, disk: String, left: u64 },
    /// It is still being worked on.
    #[error("disk {disk} has not answered yet")]
    Hangs {
        disk: String,
        #[source]
        hangs: PatienceError,
    },
    #[error(transparent)]
    Journal(#[from] StoreError),
    #[error(transparent)]
    Raw(#[from] BareError),
    #[error(transparent)]
    Apply(#[from] ApplyError),
}

impl PoolError {
    /// No disk can take a volume now.
    pub fn is_no_place(&self) -> bool {
        matches!(self, Self::NoPlace(_) | Self::NoSet(_))
    }

    /// Others had the disk: nothing has changed, and the caller may come back.
    pub fn is_locked(&self) -> bool {
        match self {
            Self::Apply(error) => error.is_locked(),
            Self::Raw(error) => matches!(error, BareError::Stuck { .. }),
            Self::Hangs { .. } => true,
            _ => false,
        }
    }
}

/// The pool of one node.
pub struct Pool {
    owner: Owner,
    members: RwLock<BTreeMap<String, Member>>,
    journal: Arc<JournalStore>,
    workers: Workers,
    /// Disks whose background work failed when it was last tried.
    failed_work: Arc<Mutex<BTreeSet<String>>>,
    /// Told of each piece of background work that is done.
    worked: Arc<Told>,
    stopping: Arc<AtomicBool>,
    /// A pass has looked at the machine, and what it could not open.
    looked_at: AtomicBool,
    unread: RwLock<Vec<Unasked>>,
    /// Tells whoever keeps the pool that a pass is due.
    nudge: Arc<OnceLock<Box<dyn Fn() + Send + Sync>>>,
}

/// Who erases and cleans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workers {
    /// A thread per disk that has something to do.
    Threads,
    /// The caller, by [`Pool::work_until_idle`]: in a test every effect has its place.
    Caller,
}

/// Where a volume is to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// It is on a disk already.
    There,
    /// On the disk of that id.
    On(String),
}

/// What came of making a volume on one disk.
#[derive(Debug)]
pub enum Made {
    Volume(Box<VolumeView>, Outcome),
    /// The disk has no room for it, or not any more.
    Full,
    /// The disk failed, or others kept its lock, before anything of the volume was there.
    Failed(PoolError),
}

/// Whose disks they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// UID of the cluster, or `standalone`.
    pub cluster: String,
    pub node: String,
}

impl Pool {
    /// Reads the journal. Of a damaged one all is refused that only it could tell.
    pub fn open(host: Arc<dyn Host>, owner: Owner, workers: Workers) -> Result<Self, PoolError> {
        let journal = Arc::new(JournalStore::open(host)?);
        Ok(Self {
            owner,
            members: RwLock::default(),
            journal,
            workers,
            failed_work: Arc::default(),
            worked: Arc::default(),
            stopping: Arc::default(),
            looked_at: AtomicBool::default(),
            unread: RwLock::default(),
            nudge: Arc::default(),
        })
    }

    pub fn journal(&self) -> &Arc<JournalStore> {
        &self.journal
    }

    /// Who keeps the pool wants to know when background work has ended or a disk has failed.
    pub fn on_nudge(&self, nudge: impl Fn() + Send + Sync + 'static) {
        let _ = self.nudge.set(Box::new(nudge));
    }

    /// A pass is due: something changed that no device event tells of.
    pub fn nudge(&self) {
        if let Some(nudge) = self.nudge.get() {
            nudge();
        }
    }

    /// Gives a disk without volumes back: it is blank afterwards, and stays unclaimed.
    pub fn release(&self, member: &Member) -> Result<(), PoolError> {
        match member {
            Member::Labelled(member) => {
                let mut state = member.lock_in_time()?;
                // As it is called when it is blank: another bus or firmware than it was claimed on may call it otherwise.
                let hardware = id::hardware(&state.raw, None).text;
                let disk = state.disk()?;
                disk.can_release()?;
                self.journal.release_labelled(&hardware, &member.id)?;
                disk.release()?;
                // A look may have come in between.
                if let Err(error) = self.journal.forget(&member.id) {
                    tracing::warn!(disk = %member.id, error = %chain(&error), "the disk was given back, and is missed after a restart");
                }
            }
            Member::Bare(member) => member.release()?,
        }
        self.part(member.id());
        Ok(())
    }

    pub fn owner(&self) -> &Owner {
        &self.owner
    }

    /// All members, in the order of their ids.
    pub fn members(&self) -> Vec<Member> {
        self.members.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    pub fn member(&self, id: &str) -> Option<Member> {
        self.members.read().unwrap_or_else(PoisonError::into_inner).get(id).cloned()
    }

    /// The labelled members.
    pub fn labelled_disks(&self) -> Vec<Arc<LabelledDisk>> {
        let labelled = |member| match member {
            Member::Labelled(member) => Some(member),
            Member::Bare(_) => None,
        };
        self.members().into_iter().filter_map(labelled).collect()
    }

    /// The bare devices.
    pub fn bare_devices(&self) -> Vec<Arc<BareDevice>> {
        let raw = |member| match member {
            Member::Labelled(_) => None,
            Member::Bare(member) => Some(member),
        };
        self.members().into_iter().filter_map(raw).collect()
    }

    pub fn labelled_disk(&self, id: &str) -> Option<Arc<LabelledDisk>> {
        match self.member(id) {
            Some(Member::Labelled(member)) => Some(member),
            Some(Member::Bare(_)) | None => None,
        }
    }

    /// The claim of a bare device of ours, with its id, whatever it shows: the one way to ask for it. What a tenant built
    /// on our disks has no claim, though he may have given it the id of one.
    pub fn bare_claim_of(&self, set: &Snapshot, device: &Device) -> Option<(String, BareClaim)> {
        if matches!(device.verdict, Verdict::Theirs(Reason::OnPoolVolume { .. } | Reason::OnGivenUp { .. })) {
            return None;
        }
        let id = set.hardware_id(device);
        self.journal.bare_claim(&id).map(|claim| (id, claim))
    }

    /// The same, as the member that it is.
    pub fn bare_member_of(&self, set: &Snapshot, device: &Device) -> Option<Arc<BareDevice>> {
        match self.member(&self.bare_claim_of(set, device)?.0) {
            Some(Member::Bare(member)) => Some(member),
            Some(Member::Labelled(_)) | None => None,
        }
    }

    /// Disks with our label that were not here since this process began, by id.
    pub fn absent(&self) -> Vec<(String, KnownDisk)> {
        self.journal.known(|id| self.member(id).is_none())
    }

    /// A disk that is away is not missed any more; false: there is none of that id that is away. A bare device is not
    /// ours any more, should it come back; one with a label is.
    pub fn forget(&self, id: &str) -> Result<bool, PoolError> {
        match self.member(id) {
            Some(Member::Labelled(member)) if member.shown().standing != Standing::Missing => return Ok(false),
            Some(Member::Bare(member)) => {
                if member.shown().standing != Standing::Missing {
                    return Ok(false);
                }
                member.forget()?;
                self.part(id);
                return Ok(true);
            }
            Some(Member::Labelled(_)) => self.part(id),
            None if self.unread_of(id).is_some() => return Ok(false),
            None => {}
        }
        Ok(self.journal.let_go(id)?)
    }

    /// All disks of the pool, those that are away too.
    pub fn disk_views(&self) -> Vec<DiskView> {
        let absent = self.absent();
        let here = self.members().into_iter().filter_map(|member| member.disk_view());
        let absent = absent.into_iter().map(|(id, disk)| {
            let why = self.unread_of(&id).map(|unread| unread.why);
            DiskView { standing: why.map_or(Standing::Missing, Standing::NotReady), ..DiskView::absent(id, disk) }
        });
        here.chain(absent).collect()
    }

    /// A pass has looked at all disks, and could not open these, which carry our label.
    pub fn looked_at(&self, unread: Vec<Unasked>) {
        *self.unread.write().unwrap_or_else(PoisonError::into_inner) = unread;
        self.looked_at.store(true, Ordering::Release);
    }

    pub fn is_looked_at(&self) -> bool {
        self.looked_at.load(Ordering::Acquire)
    }

    pub(super) fn unread(&self) -> Vec<Unasked> {
        self.unread.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Why a disk of that id, which is here, could not be asked at the last look.
    pub(super) fn unread_of(&self, id: &str) -> Option<Unasked> {
        self.unread().into_iter().find(|unread| unread.disk == id)
    }

    pub fn join(&self, member: Member) {
        let mut members = self.members.write().unwrap_or_else(PoisonError::into_inner);
        members.insert(member.id().to_owned(), member);
    }

    pub(super) fn part(&self, id: &str) {
        self.members.write().unwrap_or_else(PoisonError::into_inner).remove(id);
    }

    /// All volumes, by id.
    pub fn volumes(&self) -> Vec<VolumeView> {
        let mut views: Vec<VolumeView> = self.members().iter().flat_map(Member::views).collect();
        self.mark_conflicts(&mut views);
        views.sort_by(|a, b| (a.id, &a.disk).cmp(&(b.id, &b.disk)));
        views
    }

    pub fn volume(&self, id: Uuid) -> Result<VolumeView, PoolError> {
        self.find(id).map(|(_, view)| view)
    }

    /// A volume that may be used: described, not waiting for adoption, on a disk that is here.
    pub fn usable(&self, id: Uuid) -> Result<VolumeView, PoolError> {
        self.find_usable(id).map(|(_, view)| view)
    }

    /// One that is in conflict says so in its view.
    fn find(&self, id: Uuid) -> Result<(Member, VolumeView), PoolError> {
        self.all_of(id).into_iter().next().ok_or(PoolError::NoSuchVolume { id })
    }

    /// The one volume of that id.
    fn find_sound(&self, id: Uuid) -> Result<(Member, VolumeView), PoolError> {
        let (member, view) = self.find(id)?;
        match view.conflict.clone() {
            Some(why) => Err(PoolError::Conflict { id, why }),
            None => Ok((member, view)),
        }
    }

    fn find_usable(&self, id: Uuid) -> Result<(Member, VolumeView), PoolError> {
        let found = self.find_sound(id);
        if matches!(found, Err(PoolError::NoSuchVolume { .. })) {
            self.is_nowhere_else(id)?;
        }
        let (member, view) = found?;
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
        let mut rules: Vec<Arc<Rule>> = self.members().iter().filter_map(Member::rule).collect();
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
        let mut failed = BTreeMap::new();
        loop {
            let disk = match self.place(request, &failed.keys().cloned().collect()) {
                Ok(Place::There) => None,
                Ok(Place::On(disk)) => Some(disk),
                // What stands in the way is the disk that failed, where one did.
                Err(error) if error.is_no_place() => return Err(failed.into_values().next().unwrap_or(error)),
                Err(error) => return Err(error),
            };
            match self.create_on(request, disk.as_deref())? {
                Made::Volume(view, outcome) => return Ok((*view, outcome)),
                // Another caller was faster: each round somebody wins.
                Made::Full => {}
                Made::Failed(error) => failed.extend(disk.map(|disk| (disk, error))),
            }
        }
    }

    /// Where a volume is to be made: not on disks that have `failed` it. Writes nothing, promises nothing.
    pub fn place(&self, request: &CreateRequest, failed: &BTreeSet<String>) -> Result<Place, PoolError> {
        // Doubted first: a disk that comes back in between is found then, or still missed.
        let may_be_made = self.may_be_made(request.id);
        if self.find(request.id).is_ok() {
            return Ok(Place::There);
        }
        may_be_made?;
        self.check_selector(&request.selector)?;
        let usage = self.usage(request.usage, &request.selector);
        let mut members = self.members();
        members.retain(|member| !failed.contains(member.id()));
        let offers = offers(&members, &request.selector, usage);
        if offers.is_empty() {
            return Err(PoolError::NoSet(request.selector.clone()));
        }
        let (index, _) = choose(&offers, &wish(request, usage))?;
        Ok(Place::On(members[index].id().to_owned()))
    }

    /// Makes a volume on that disk and no other one, or finds it made anywhere.
    pub fn create_on(&self, request: &CreateRequest, disk: Option<&str>) -> Result<Made, PoolError> {
        let may_be_made = self.may_be_made(request.id);
        if let Ok((member, _)) = self.find(request.id) {
            return self.existing(&member, request).map(|view| Made::Volume(Box::new(view), Outcome::AlreadySo));
        }
        may_be_made?;
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
        // Where another disk may serve, one that is slow is not worth waiting for.
        let is_alone = offers(&self.members(), &request.selector, usage).len() < 2;
        let patience = if is_alone { PATIENCE } else { SHORT_PATIENCE };
        let members: Vec<Member> = disk.and_then(|disk| self.member(disk)).into_iter().collect();
        // Another caller may take the place between the look and the lock.
        while let Ok((index, site)) = choose(&offers(&members, &request.selector, usage), &wish(request, usage)) {
            let taken = members[index].create(site, &volume, &self.journal, patience);
            match self.goes_on(&members[index], taken)? {
                Taken::ByUs => {
                    self.note(&members[index]);
                    self.give_work(&members[index]);
                    return Ok(Made::Volume(Box::new(self.volume(request.id)?), Outcome::Done));
                }
                Taken::ByOther => {}
                Taken::Failed(error) => {
                    tracing::warn!(volume = %request.name, error = %chain(&error), "a disk failed a new volume; another one is tried");
                    // Of a lock that others keep a look would find nothing.
                    if !error.is_locked() {
                        self.nudge();
                    }
                    return Ok(Made::Failed(error));
                }
            }
        }
        Ok(Made::Full)
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
    fn existing(&self, member: &Member, request: &CreateRequest) -> Result<VolumeView, PoolError> {
        let (_, view) = self.find_usable(request.id)?;
        let record = view.record.as_ref();
        if let Some(why) = record.and_then(|record| difference(record, view.size, request)) {
            return Err(PoolError::Differs { name: request.name.clone(), why });
        }
        member.remap()?;
        self.note(member);
        Ok(view)
    }

    /// Deletes a volume; its space is erased in the background. Not there, and on no disk that is away: success.
    pub fn delete(&self, id: Uuid) -> Result<Outcome, PoolError> {
        let may_be_called_deleted = self.may_be_called_deleted(id);
        if matches!(self.find(id), Err(PoolError::NoSuchVolume { .. })) {
            return may_be_called_deleted.map(|()| Outcome::AlreadySo);
        }
        let (member, _) = self.find_usable(id)?;
        member.delete(id)?;
        self.note(&member);
        Ok(Outcome::Done)
    }

    /// Grows a volume to at least `required` bytes.
    pub fn expand(&self, id: Uuid, required: u64, limit: Option<u64>) -> Result<VolumeView, PoolError> {
        let (member, view) = self.find_usable(id)?;
        if let Some(limit) = limit.filter(|limit| *limit < view.size) {
            let why = "the volume has already".to_owned();
            return Err(NoPlace::Limit { limit, least: view.size, why }.into());
        }
        // What is behind the volume may be on its way to free space: worth a moment.
        let grown = self.worked.attempt(ERASE_WAIT, || {
            // Asked first: an erasure that ends in between has freed what was refused.
            let erasing = member.is_erasing();
            match member.expand(&view, required) {
                Err(PoolError::CannotGrow { .. }) if erasing => {
                    self.give_work(&member);
                    None
                }
                done => Some(done),
            }
        });
        let done = grown.unwrap_or_else(|| member.expand(&view, required));
        self.goes_on(&member, done)?;
        self.grown(&member, id)
    }

    /// What a caller does not wait for goes on behind him.
    fn goes_on<T>(&self, member: &Member, done: Result<T, PoolError>) -> Result<T, PoolError> {
        if matches!(done, Err(PoolError::BeingZeroed { .. })) {
            self.give_work(member);
        }
        done
    }

    fn grown(&self, member: &Member, id: Uuid) -> Result<VolumeView, PoolError> {
        self.note(member);
        self.give_work(member);
        self.volume(id)
    }

    /// Before mkfs: whether it may be done, whatever is there.
    pub fn begin_format(&self, id: Uuid) -> Result<(), PoolError> {
        self.find_usable(id)?.0.begin_format(id)
    }

    /// Writes down that mkfs has ended and was synced.
    pub fn mark_formatted(&self, id: Uuid) -> Result<(), PoolError> {
        let (member, view) = self.find_usable(id)?;
        member.mark_formatted(&view)?;
        self.note(&member);
        self.give_work(&member);
        Ok(())
    }

    /// Writes down that the filesystem fills its volume of `size` bytes.
    pub fn mark_grown(&self, id: Uuid, size: u64) -> Result<(), PoolError> {
        let (member, _) = self.find_usable(id)?;
        member.mark_grown(id, size)?;
        self.note(&member);
        self.give_work(&member);
        Ok(())
    }

    /// Makes a found volume usable.
    pub fn adopt_volume(&self, id: Uuid) -> Result<Outcome, PoolError> {
        let (member, view) = self.find_sound(id)?;
        match &view.record {
            None => Err(PoolError::NotDescribed { id, disk: view.disk }),
            Some(record) if !record.found => Ok(Outcome::AlreadySo),
            Some(_) => {
                member.adopt_volume(id)?;
                self.note(&member);
                Ok(Outcome::Done)
            }
        }
    }

    /// A volume that nobody asks for: kept, and not usable until it is adopted. The disk remembers.
    pub fn disown_volume(&self, id: Uuid) -> Result<(), PoolError> {
        let (member, view) = self.find_sound(id)?;
        match &view.record {
            None => Err(PoolError::NotDescribed { id, disk: view.disk }),
            Some(record) if record.found => Ok(()),
            Some(_) => {
                member.disown_volume(id)?;
                self.note(&member);
                Ok(())
            }
        }
    }

    /// Before anybody is told that a disk was changed: the journal has it as it is. A full state directory costs that an earlier
    /// state of the disk may pass for it before the next pass, and not what was done.
    pub(super) fn note(&self, member: &Member) {
        let Member::Labelled(disk) = member else { return };
        if let Err(error) = self.journal.note(&disk.id, disk.shown().content.written, || disk.known()) {
            tracing::warn!(disk = %disk.id, error = %chain(&error), "an earlier state of it would pass for it after a restart");
        }
    }

    /// What there is to give now.
    pub fn capacity(&self, selector: &Selector, wanted: WantedUsage) -> Capacity {
        let usage = self.usage(wanted, selector);
        capacity(&offers(&self.members(), selector, usage), usage)
    }

    /// Starts a worker on each disk that has background work and none at it.
    pub fn kick(&self) {
        self.members().iter().for_each(|member| self.give_work(member));
    }

    /// Whether background work failed on a disk that is here: a pass tries it again, as no event tells when it may succeed.
    pub fn has_failed_work(&self) -> bool {
        let mut failed = self.failed_work.lock().unwrap_or_else(PoisonError::into_inner);
        failed.retain(|disk| self.member(disk).is_some_and(|member| member.is_usable()));
        !failed.is_empty()
    }

    fn give_work(&self, member: &Member) {
        if self.workers == Workers::Caller || self.stopping.load(Ordering::SeqCst) || member.set_worker(true) {
            return;
        }
        let (member, stopping, nudge) = (member.clone(), Arc::clone(&self.stopping), Arc::clone(&self.nudge));
        let (failed, told) = (Arc::clone(&self.failed_work), Arc::clone(&self.worked));
        std::thread::spawn(move || {
            let worked = run_worker(&member, &stopping, &told);
            let is_news = {
                let mut failed = failed.lock().unwrap_or_else(PoisonError::into_inner);
                match worked {
                    // The pass that this makes due says when it is tried again.
                    Ended::Failed => failed.insert(member.id().to_owned()),
                    Ended::Idle(progress) => failed.remove(member.id()) || progress == Progress::Worked,
                    Ended::Stopped => false,
                }
            };
            // Only now: what the next worker comes to must not be overtaken by what this one came to.
            if !matches!(worked, Ended::Idle(_)) {
                member.set_worker(false);
            }
            told.tell();
            if let (true, Some(nudge)) = (is_news, nudge.get()) {
                nudge();
            }
        });
    }

    /// Background workers end after their chunk. Those that are about to are waited for, so that a stop leaves both copies of a
    /// table alike; one whose disk hangs, or that has much before it, is cut off, as by any crash.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
        let busy = || {
            self.members()
                .into_iter()
                .filter(Member::has_worker)
                .map(|member| member.id().to_owned())
                .collect::<Vec<_>>()
        };
        if self.worked.attempt(LAST_CHUNK, || busy().is_empty().then_some(())).is_none() {
            tracing::info!(disks = busy().join(", "), "background work is cut off; it goes on at the next start");
        }
    }

    /// Does all background work here and now.
    pub fn work_until_idle(&self) -> Result<(), PoolError> {
        for member in self.members() {
            loop {
                match member.work()? {
                    Progress::Worked => {}
                    Progress::Unmirrored => member.mirror()?,
                    Progress::Idle => break,
                }
            }
        }
        Ok(())
    }
}

/// How a worker ended. One that found nothing more to do has taken itself off the disk.
enum Ended {
    Idle(Progress),
    Stopped,
    /// In an error, which is in the log.
    Failed,
}

/// Works until there is nothing to do; gives whether anything was done.
fn run_worker(member: &Member, stopping: &AtomicBool, told: &Told) -> Ended {
    let mut progress = Progress::Idle;
    while !stopping.load(Ordering::SeqCst) {
        let worked = member.work().and_then(|done| match done {
            Progress::Unmirrored => {
                std::thread::sleep(MIRROR_AFTER);
                member.mirror().map(|()| done)
            }
            Progress::Worked | Progress::Idle => Ok(done),
        });
        match worked {
            Ok(Progress::Worked) => {
                told.tell();
                progress = Progress::Worked;
            }
            // Nothing that anybody looks for.
            Ok(Progress::Unmirrored) => {}
            Ok(Progress::Idle) => return Ended::Idle(progress),
            Err(error) if error.is_locked() => {
                tracing::warn!(disk = member.id(), error = %chain(&error), "background work waits");
            }
            Err(error) => {
                tracing::error!(disk = member.id(), error = %chain(&error), "background work failed; it is tried again");
                return Ended::Failed;
            }
        }
    }
    Ended::Stopped
}

fn wish(request: &CreateRequest, usage: VolumeUsage) -> Wish {
    Wish { usage, required: request.required, limit: request.limit }
}

/// What each member that the selector means has to give.
fn offers(members: &[Member], selector: &Selector, usage: VolumeUsage) -> Vec<Offer<usize>> {
    let selected = |member: &Member| member.rule().is_some_and(|rule| selector.selects(&rule));
    let offer = |(index, member): (usize, &Member)| selected(member).then(|| member.offer(index, usage)).flatten();
    members.iter().enumerate().filter_map(offer).collect()
}
