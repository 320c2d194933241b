//! The journal in the state directory, one writer at a time. A change counts when it is durable; who reads sees what is,
//! and waits for no writer.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use uuid::Uuid;

use super::earlier::Seen;
use super::journal::{BareClaim, JOURNAL, Journal, KnownDisk, LostClaim, LostVolume};
use crate::device::duplicate::Identities;
use crate::host::{Host, HostError, chain};

/// The journal, in memory and in its document.
pub struct JournalStore {
    host: Arc<dyn Host>,
    journal: RwLock<Arc<Journal>>,
    /// Held by whoever changes it.
    writing: Mutex<()>,
    making: Mutex<Making>,
    /// The document lacks something that is known here.
    is_behind: AtomicBool,
    /// What is wrong with the document: it is not written over, and what it may say is neither known nor denied.
    damage: Mutex<Option<String>>,
    /// There was no document when the process began.
    is_new: bool,
}

/// A bare device of this node that a volume is on, by id, and the volume where it is known.
pub type ToldVolume = (String, Option<LostVolume>);

/// Asks others for all of them; the words say why that cannot be told. It may take a while.
pub type AskOwn = Box<dyn FnMut() -> Result<Vec<ToldVolume>, String> + Send>;

/// The volumes that are being made now: a look at their disk may not show them yet.
#[derive(Default)]
struct Making {
    /// Each with its disk.
    now: BTreeSet<(String, Uuid)>,
    /// How many were begun since the process began.
    begun: u64,
}

/// A volume that is being made: the journal keeps it on its disk at least until this is dropped. What a look at the
/// disk finds must be as new as the disk by then.
pub struct Begun<'j> {
    store: &'j JournalStore,
    disk: String,
    volume: Uuid,
    before: Before,
}

/// What the journal said before a volume was begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Before {
    /// Nothing of the disk.
    NoDisk,
    NotListed,
    /// The volume might have been on the disk already.
    Listed,
}

/// What was being made before a disk was looked at.
pub struct BeforeLook {
    now: BTreeSet<(String, Uuid)>,
    begun: u64,
}

/// Why the journal was not read or not written.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("could not use the state directory")]
    State(#[source] HostError),
    #[error(
        "{JOURNAL} in the state directory of this node cannot be used: {0}; what is on labelled disks is served, nothing is \
         claimed, and what only this file could tell is refused, until `localpool state set-aside journal` begins a new one"
    )]
    Damaged(String),
    #[error("{JOURNAL} can be read, and nothing is wrong with it: it stays where it is")]
    Sound,
    #[error("the journal has no claim of {0} any more")]
    NoClaim(String),
}

impl JournalStore {
    /// Reads the document. A damaged one stays as it is until somebody sets it aside.
    pub fn open(host: Arc<dyn Host>) -> Result<Self, StoreError> {
        let damaged = |journal: Journal, error: &dyn std::error::Error| {
            let why = chain(error);
            tracing::error!("{}", StoreError::Damaged(why.clone()));
            (journal, Some(why))
        };
        let loaded = host.state().load(JOURNAL);
        let is_new = matches!(loaded, Ok(None));
        let (journal, damage) = match loaded {
            Ok(text) => match Journal::parse(text.as_deref()) {
                Ok(journal) => (journal, None),
                Err(error) => damaged(Journal::glean(text.as_deref().unwrap_or_default()), &error),
            },
            Err(error) if error.is_no_text() => damaged(Journal::default(), &error),
            Err(error) => return Err(StoreError::State(error)),
        };
        Ok(Self {
            host,
            journal: RwLock::new(Arc::new(journal)),
            writing: Mutex::default(),
            making: Mutex::default(),
            is_behind: AtomicBool::new(false),
            damage: Mutex::new(damage),
            is_new,
        })
    }

    /// An error, as long as the document cannot be used.
    pub fn sound(&self) -> Result<(), StoreError> {
        let damage = self.damage.lock().unwrap_or_else(PoisonError::into_inner);
        damage.clone().map_or(Ok(()), |why| Err(StoreError::Damaged(why)))
    }

    /// Begins a new document with what could be gleaned from a damaged one, which is kept beside it. Gives the name that
    /// it has then.
    pub fn set_aside(&self) -> Result<String, StoreError> {
        let _turn = self.turn();
        if self.sound().is_ok() {
            return Err(StoreError::Sound);
        }
        let state = self.host.state();
        let kept = state.keep_copy(JOURNAL, "journal.damaged").map_err(StoreError::State)?;
        state.store(JOURNAL, &self.journal().to_text()).map_err(StoreError::State)?;
        *self.damage.lock().unwrap_or_else(PoisonError::into_inner) = None;
        Ok(kept)
    }

    /// Devices that had, or may have had, a claim in a journal that was lost.
    pub fn lost(&self) -> BTreeMap<String, LostClaim> {
        self.journal().lost.clone()
    }

    /// The document does not say all: there was none, or it cannot be used.
    pub fn is_in_doubt(&self) -> bool {
        self.is_new || self.sound().is_err()
    }

    /// Volumes are on these devices, as others know. Those without a claim had one that was lost, unless a person has given
    /// them up. True: there is one more.
    pub fn learn_lost(&self, told: Vec<ToldVolume>) -> Result<bool, StoreError> {
        let learn = |journal: &mut Journal| {
            let before = journal.lost.clone();
            for (disk, volume) in told {
                if journal.raw.contains_key(&disk) || journal.released.contains(&disk) {
                    continue;
                }
                let lost = journal.lost.entry(disk).or_default();
                lost.volume = lost.volume.take().or(volume);
            }
            before != journal.lost
        };
        match self.sound() {
            Ok(()) => self.change(|journal| Ok(learn(journal))),
            // It counts in this process, and from when there is a document again.
            Err(_) => Ok(self.remember(&self.turn(), learn)),
        }
    }

    /// A lost claim is one again.
    pub fn take_up(&self, disk: &str, claim: BareClaim) -> Result<(), StoreError> {
        self.change(|journal| {
            if let Some(volume) = &claim.volume {
                journal.take_from_disks(volume.id);
            }
            journal.lost.remove(disk);
            journal.let_go.remove(disk);
            journal.raw.insert(disk.to_owned(), claim);
            Ok(())
        })
    }

    /// Such a device is not ours any more: what is on it says whose it is. False: it was none.
    pub fn give_up_lost(&self, disk: &str) -> Result<bool, StoreError> {
        self.change(|journal| Ok(journal.lost.remove(disk).is_some()))
    }

    /// As it is now.
    fn journal(&self) -> Arc<Journal> {
        Arc::clone(&self.journal.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whoever has its turn to change the journal keeps nobody from reading it, however long a write takes.
    fn turn(&self) -> MutexGuard<'_, ()> {
        self.writing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn show(&self, next: Journal) {
        *self.journal.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(next);
    }

    fn change<T>(&self, change: impl FnOnce(&mut Journal) -> Result<T, StoreError>) -> Result<T, StoreError> {
        self.change_in(&self.turn(), change)
    }

    fn change_in<T>(
        &self,
        _turn: &MutexGuard<'_, ()>,
        change: impl FnOnce(&mut Journal) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.sound()?;
        let was = self.journal();
        let mut next = Journal::clone(&was);
        let result = change(&mut next)?;
        if next != *was {
            self.host.state().store(JOURNAL, &next.to_text()).map_err(StoreError::State)?;
            self.show(next);
        }
        Ok(result)
    }

    /// A change that counts in this process, and from when a document is written next.
    fn remember<T>(&self, _turn: &MutexGuard<'_, ()>, change: impl FnOnce(&mut Journal) -> T) -> T {
        let mut next = Journal::clone(&self.journal());
        let result = change(&mut next);
        self.show(next);
        result
    }

    /// Blank disks that are not claimed again until somebody adopts them, by id.
    pub fn released(&self) -> BTreeSet<String> {
        self.journal().released.clone()
    }

    /// Remembers not to claim a disk again; its raw claim, if it had one, ends with the same write.
    pub fn release(&self, disk: &str) -> Result<(), StoreError> {
        self.change(|journal| {
            let claim = journal.raw.remove(disk);
            if claim.is_some_and(|claim| claim.volume.is_some() || claim.erasing.is_some()) {
                journal.given_up.insert(disk.to_owned());
            }
            journal.let_go.insert(disk.to_owned());
            journal.released.insert(disk.to_owned());
            Ok(())
        })
    }

    /// The same of a disk with our label, before that is wiped: stopped in between, nobody misses it, and one that is still
    /// there is known again with the next look.
    pub fn release_labelled(&self, hardware: &str, id: &str) -> Result<(), StoreError> {
        self.change(|journal| {
            journal.released.insert(hardware.to_owned());
            journal.disks.remove(id);
            journal.let_go.insert(id.to_owned());
            Ok(())
        })
    }

    /// Disks with our label, here or away, by id: those that `wanted` selects.
    pub fn known(&self, wanted: impl Fn(&str) -> bool) -> Vec<(String, KnownDisk)> {
        let journal = self.journal();
        let disks = journal.disks.iter().filter(|(id, _)| wanted(id));
        disks.map(|(id, disk)| (id.clone(), disk.clone())).collect()
    }

    fn making(&self) -> MutexGuard<'_, Making> {
        self.making.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// To be asked before a disk is looked at for [`Self::know`].
    pub fn before_look(&self) -> BeforeLook {
        let Making { now, begun } = &*self.making();
        BeforeLook { now: now.clone(), begun: *begun }
    }

    /// A disk with our label is here, and a look that began after `before` found `disk`. What was being made meanwhile
    /// stays on it. Written only where it is not known just so.
    pub fn know(&self, id: &str, disk: KnownDisk, before: &BeforeLook) -> Result<(), StoreError> {
        self.know_in(&self.turn(), id, disk, before)
    }

    /// A disk that is known has been changed, and its label has that number since: before anybody is told of the change, it
    /// is known as it is, so that no earlier state of it passes for it later. Of several changes at once one is written.
    pub fn note(&self, id: &str, number: u64, look: impl FnOnce() -> Option<KnownDisk>) -> Result<(), StoreError> {
        if self.seen(id).written >= number {
            return Ok(());
        }
        let turn = self.turn();
        // Whoever had the turn before may have seen this change. A disk that was given back meanwhile is not missed.
        if self.seen(id).written >= number || !self.journal().disks.contains_key(id) {
            return Ok(());
        }
        let before = self.before_look();
        look().map_or(Ok(()), |disk| self.know_in(&turn, id, disk, &before))
    }

    fn know_in(
        &self,
        turn: &MutexGuard<'_, ()>,
        id: &str,
        disk: KnownDisk,
        before: &BeforeLook,
    ) -> Result<(), StoreError> {
        // A change that was noted since this look: an open disk never has less than the journal says.
        let is_older = |journal: &Journal| journal.disks.get(id).is_some_and(|known| known.written > disk.written);
        if self.sound().is_err() {
            // It is missed in this process, and from when there is a document again.
            self.remember(turn, |journal| {
                if !is_older(journal) {
                    journal.disks.insert(id.to_owned(), disk.clone());
                }
            });
            return Ok(());
        }
        self.change_in(turn, |journal| {
            journal.let_go.remove(id);
            if is_older(journal) {
                return Ok(());
            }
            let mut disk = disk.clone();
            if disk.volumes.is_some() {
                disk.list(before.now.iter().filter(|(on, _)| on == id).map(|(_, volume)| *volume));
                // One that was begun since may have ended, too: the next look tells.
                if self.making().begun != before.begun {
                    let listed = journal.disks.get(id).and_then(|known| known.volumes.as_ref());
                    disk.list(listed.into_iter().flatten().copied());
                }
            }
            journal.disks.insert(id.to_owned(), disk);
            Ok(())
        })
    }

    /// A volume may be on that disk from now on, and is on no other one that can be asked. `known` is what the disk was
    /// before; what the journal has there besides is kept until a look at it.
    pub fn begin(&self, volume: Uuid, disk: &str, known: KnownDisk) -> Result<Begun<'_>, StoreError> {
        {
            let mut making = self.making();
            making.now.insert((disk.to_owned(), volume));
            making.begun += 1;
        }
        // From here on it ends by itself, also where the journal is not written.
        let mut begun = Begun { store: self, disk: disk.to_owned(), volume, before: Before::Listed };
        begun.before = self.change(|journal| {
            let was = journal.disks.get(disk);
            let listed = was.and_then(|known| known.volumes.clone()).unwrap_or_default();
            let before = match was {
                None => Before::NoDisk,
                Some(_) if listed.contains(&volume) => Before::Listed,
                Some(_) => Before::NotListed,
            };
            journal.take_from_disks(volume);
            let mut known = known;
            known.list(listed.into_iter().chain([volume]));
            journal.disks.insert(disk.to_owned(), known);
            Ok(before)
        })?;
        Ok(begun)
    }

    /// A disk with our label is not missed any more; false: it was not known.
    pub fn forget(&self, id: &str) -> Result<bool, StoreError> {
        self.change(|journal| Ok(journal.disks.remove(id).is_some()))
    }

    /// What was last seen of a disk with our label.
    pub fn seen(&self, id: &str) -> Seen {
        self.journal().disks.get(id).map(KnownDisk::seen).unwrap_or_default()
    }

    /// A disk is taken as it is, whatever was seen of it before, and its label has that number since: in this process also where
    /// the document cannot be used.
    pub fn take_as_it_is(&self, id: &str, number: u64) -> Result<(), StoreError> {
        let take = |journal: &mut Journal| {
            if let Some(known) = journal.disks.get_mut(id) {
                known.written = number;
            }
        };
        match self.sound() {
            Ok(()) => self.change(|journal| {
                take(journal);
                Ok(())
            }),
            Err(_) => {
                self.remember(&self.turn(), take);
                Ok(())
            }
        }
    }

    /// The same of a disk that is away, as a person says so.
    pub fn let_go(&self, id: &str) -> Result<bool, StoreError> {
        self.change(|journal| {
            let was_known = journal.disks.remove(id).is_some();
            if was_known {
                journal.let_go.insert(id.to_owned());
            }
            Ok(was_known)
        })
    }

    /// Whether a person gave up that disk, labelled or bare: what was on it is waited for no more, also where a bare device that
    /// is back may be had by anybody.
    pub fn has_given_up(&self, id: &str) -> bool {
        let journal = self.journal();
        journal.let_go.contains(id) || journal.given_up.contains(id)
    }

    /// Which hardware was a disk of ours, and which a copy.
    pub fn identities(&self) -> Identities {
        self.journal().identities.clone()
    }

    /// The same, as it is known now. It counts in this process even where it could not be written down.
    pub fn identify(&self, change: impl FnOnce(&mut Identities)) -> Result<(), StoreError> {
        let _turn = self.turn();
        let was = self.journal();
        let mut next = Journal::clone(&was);
        change(&mut next.identities);
        let is_news = next != *was;
        if is_news {
            self.show(next);
        }
        if self.sound().is_err() || !is_news && !self.is_behind.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.is_behind.store(true, Ordering::Relaxed);
        self.host.state().store(JOURNAL, &self.journal().to_text()).map_err(StoreError::State)?;
        self.is_behind.store(false, Ordering::Relaxed);
        Ok(())
    }

    /// A released disk may be claimed again; false: it may already.
    pub fn readmit(&self, disk: &str) -> Result<bool, StoreError> {
        self.change(|journal| {
            let was_given_up = journal.given_up.remove(disk);
            Ok(journal.released.remove(disk) || was_given_up)
        })
    }

    /// Bare devices that were given up with what a tenant wrote on them.
    pub fn given_up(&self) -> BTreeSet<String> {
        self.journal().given_up.clone()
    }

    /// Raw claims, by disk id.
    pub fn bare_claims(&self) -> Vec<(String, BareClaim)> {
        self.journal().raw.iter().map(|(disk, claim)| (disk.clone(), claim.clone())).collect()
    }

    /// Hardware ids of the devices that are claimed bare, or were as far as anybody knows.
    pub fn bare_ids(&self) -> BTreeSet<String> {
        let journal = self.journal();
        journal.raw.keys().chain(journal.lost.keys()).cloned().collect()
    }

    pub fn bare_claim(&self, disk: &str) -> Option<BareClaim> {
        self.journal().raw.get(disk).cloned()
    }

    pub fn claim_bare(&self, disk: &str, claim: BareClaim) -> Result<(), StoreError> {
        self.change(|journal| {
            journal.let_go.remove(disk);
            journal.raw.insert(disk.to_owned(), claim);
            Ok(())
        })
    }

    /// Changes a raw claim; its generation grows with each change.
    pub fn change_bare<T>(&self, disk: &str, change: impl FnOnce(&mut BareClaim) -> T) -> Result<T, StoreError> {
        self.change(|journal| {
            let claim = journal.raw.get_mut(disk).ok_or_else(|| StoreError::NoClaim(disk.to_owned()))?;
            let before = claim.clone();
            let result = change(claim);
            if *claim != before {
                claim.generation = before.generation + 1;
            }
            let made = claim.volume.as_ref().filter(|_| before.volume.is_none()).map(|volume| volume.id);
            // It was on no disk that can be asked.
            if let Some(volume) = made {
                journal.take_from_disks(volume);
            }
            Ok(result)
        })
    }
}

impl Begun<'_> {
    /// Nothing of the volume is on that disk after all, by this.
    pub fn withdraw(self) -> Result<(), StoreError> {
        if self.before == Before::Listed {
            return Ok(());
        }
        self.store.change(|journal| {
            let Some(known) = journal.disks.get_mut(&self.disk) else { return Ok(()) };
            known.strike(self.volume);
            // A disk that was given back meanwhile is not missed.
            if self.before == Before::NoDisk && known.volumes.as_ref().is_none_or(BTreeSet::is_empty) {
                journal.disks.remove(&self.disk);
            }
            Ok(())
        })
    }
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        self.store.making().now.remove(&(self.disk.clone(), self.volume));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::label::{Layout, SetRef};
    use crate::host::fake::FakeHost;

    const A: Uuid = Uuid::from_u128(1);
    const B: Uuid = Uuid::from_u128(2);

    fn store() -> JournalStore {
        JournalStore::open(Arc::new(FakeHost::default())).expect("a journal")
    }

    fn disk(volumes: &[Uuid]) -> KnownDisk {
        KnownDisk {
            set: SetRef { namespace: "d".to_owned(), name: "s".to_owned(), uid: "u".to_owned() },
            layout: Layout::Carved {},
            path: "/dev/fake0".into(),
            model: None,
            hardware: None,
            size: 1 << 30,
            written: 1,
            volumes: Some(volumes.iter().copied().collect()),
            unseen: BTreeSet::new(),
        }
    }

    fn look(store: &JournalStore, id: &str, volumes: &[Uuid]) {
        let before = store.before_look();
        store.know(id, disk(volumes), &before).expect("written");
    }

    fn on(store: &JournalStore, id: &str) -> Vec<Uuid> {
        let known = store.known(|disk| disk == id).pop();
        known.and_then(|(_, known)| known.volumes).into_iter().flatten().collect()
    }

    #[test]
    fn a_look_that_began_before_a_change_does_not_take_back_what_was_noted_of_it() {
        let store = store();
        look(&store, "one", &[A]);
        let (before, found) = (store.before_look(), disk(&[A]));
        store.note("one", 2, || Some(KnownDisk { written: 2, ..disk(&[]) })).expect("written");
        store.know("one", found, &before).expect("written");
        assert_eq!((store.seen("one").written, on(&store, "one")), (2, vec![]));
    }

    #[test]
    fn of_several_changes_at_once_one_is_written_and_a_disk_that_was_given_back_is_not_missed() {
        let store = store();
        look(&store, "one", &[A]);
        store.note("one", 2, || Some(KnownDisk { written: 4, ..disk(&[]) })).expect("written");
        store.note("one", 4, || panic!("it was seen by the one before")).expect("nothing to write");
        store.release_labelled("wwid-one", "one").expect("written");
        store.note("one", 5, || panic!("it is not missed any more")).expect("nothing to write");
        assert!(store.known(|_| true).is_empty() && store.has_given_up("one"));
    }

    #[test]
    fn a_volume_stays_on_its_disk_until_what_was_begun_has_ended_and_a_later_look_does_not_find_it() {
        let store = store();
        let begun = store.begin(A, "one", disk(&[])).expect("written");
        look(&store, "one", &[]);
        assert_eq!(on(&store, "one"), [A], "the look may be older than the volume");
        // Another one begins with what was found before, and ends while somebody looks.
        let before = store.before_look();
        drop(begun);
        drop(store.begin(B, "one", disk(&[])).expect("written"));
        store.know("one", disk(&[A]), &before).expect("written");
        assert_eq!(on(&store, "one"), [A, B]);
        look(&store, "one", &[B]);
        assert_eq!(on(&store, "one"), [B]);
    }

    #[test]
    fn what_was_withdrawn_is_on_no_disk_unless_it_may_have_been_there_before() {
        let store = store();
        store.begin(A, "one", disk(&[])).expect("written").withdraw().expect("written");
        assert!(store.known(|_| true).is_empty(), "a disk that was given back meanwhile is not missed");
        look(&store, "one", &[]);
        store.begin(A, "one", disk(&[])).expect("written").withdraw().expect("written");
        assert_eq!(on(&store, "one"), Vec::<Uuid>::new());
        drop(store.begin(A, "one", disk(&[])).expect("written"));
        store.begin(A, "one", disk(&[])).expect("written").withdraw().expect("nothing to write");
        assert_eq!(on(&store, "one"), [A], "the first time may have left it there");
        drop(store.begin(A, "two", disk(&[])).expect("written"));
        assert_eq!((on(&store, "one"), on(&store, "two")), (Vec::new(), vec![A]));
    }
}
