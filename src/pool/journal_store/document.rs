//! The document of the journal in the state directory, one writer at a time. A change counts when it is durable; who
//! reads sees what is, and waits for no writer.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use crate::host::{Host, StateStore, chain};
use crate::pool::error::StoreError;
use crate::pool::journal::{JOURNAL, Journal};

/// Held by whoever changes the journal, and what is beside it.
pub(super) type JournalTurn<'j> = MutexGuard<'j, ()>;

/// The journal, in memory and in its document.
pub(super) struct JournalDocument {
    host: Arc<dyn Host>,
    journal: RwLock<Arc<Journal>>,
    /// Held by whoever changes it.
    writing: Mutex<()>,
    /// The document lacks something that is known here.
    is_behind: AtomicBool,
    /// The damage of the document: it is not written over, and what it may say is neither known nor denied.
    damage: Mutex<Option<String>>,
}

/// What a document says, or what could be gleaned from a damaged one.
pub(super) struct ReadJournal {
    pub journal: Journal,
    pub damage: Option<String>,
    /// There was none.
    pub is_new: bool,
}

impl ReadJournal {
    /// A damaged one stays as it is until somebody sets it aside.
    pub fn of(state: &dyn StateStore) -> Result<Self, StoreError> {
        let damaged = |journal: Journal, error: &dyn std::error::Error| {
            let why = chain(error);
            tracing::error!("{}", StoreError::Damaged(why.clone()));
            (journal, Some(why))
        };
        let loaded = state.load(JOURNAL);
        let is_new = matches!(loaded, Ok(None));
        let (journal, damage) = match loaded {
            Ok(text) => match Journal::parse(text.as_deref()) {
                Ok(journal) => (journal, None),
                Err(error) => damaged(Journal::glean(text.as_deref().unwrap_or_default()), &error),
            },
            Err(error) if error.is_no_text() => damaged(Journal::default(), &error),
            Err(error) => return Err(StoreError::State(error)),
        };
        Ok(Self { journal, damage, is_new })
    }
}

impl JournalDocument {
    pub fn new(host: Arc<dyn Host>, journal: Journal, damage: Option<String>) -> Self {
        Self {
            host,
            journal: RwLock::new(Arc::new(journal)),
            writing: Mutex::default(),
            is_behind: AtomicBool::new(false),
            damage: Mutex::new(damage),
        }
    }

    /// Where it is, and what is beside it.
    pub fn state(&self) -> &dyn StateStore {
        self.host.state()
    }

    /// An error, as long as the document cannot be used.
    pub fn sound(&self) -> Result<(), StoreError> {
        let damage = self.damage.lock().unwrap_or_else(PoisonError::into_inner);
        damage.clone().map_or(Ok(()), |why| Err(StoreError::Damaged(why)))
    }

    /// Begins a new document with what could be gleaned from a damaged one, which is kept beside it. Gives the name
    /// that it has then.
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

    /// As it is now.
    pub fn journal(&self) -> Arc<Journal> {
        Arc::clone(&self.journal.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whoever has its turn to change the journal keeps nobody from reading it, however long a write takes.
    pub fn turn(&self) -> JournalTurn<'_> {
        self.writing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn show(&self, next: Journal) {
        *self.journal.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(next);
    }

    pub fn change<T>(&self, change: impl FnOnce(&mut Journal) -> Result<T, StoreError>) -> Result<T, StoreError> {
        self.change_in(&self.turn(), change)
    }

    pub fn change_in<T>(
        &self,
        _turn: &JournalTurn<'_>,
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
    pub fn remember<T>(&self, _turn: &JournalTurn<'_>, change: impl FnOnce(&mut Journal) -> T) -> T {
        let mut next = Journal::clone(&self.journal());
        let result = change(&mut next);
        self.show(next);
        result
    }

    /// A change that counts in this process even where it could not be written down.
    pub fn change_anyway(&self, change: impl FnOnce(&mut Journal)) -> Result<(), StoreError> {
        let _turn = self.turn();
        let was = self.journal();
        let mut next = Journal::clone(&was);
        change(&mut next);
        let is_changed = next != *was;
        if is_changed {
            self.show(next);
        }
        if self.sound().is_err() || !is_changed && !self.is_behind.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.is_behind.store(true, Ordering::Relaxed);
        self.host.state().store(JOURNAL, &self.journal().to_text()).map_err(StoreError::State)?;
        self.is_behind.store(false, Ordering::Relaxed);
        Ok(())
    }
}
