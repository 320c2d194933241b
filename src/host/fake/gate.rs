//! What hangs on purpose: whoever passes waits until the gate is open again.

use std::sync::{Condvar, Mutex, PoisonError};

/// A gate that all operations of one thing pass.
#[derive(Default)]
pub struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// `all`, or the operation that hangs.
    what: Option<&'static str>,
    waiting: u32,
}

impl Gate {
    /// From now on one sort of operation waits, or `all`; `None`: whoever waits goes on.
    pub fn set_hangs_at(&self, what: Option<&'static str>) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).what = what;
        self.changed.notify_all();
    }

    /// Returns when such an operation does not wait any more.
    pub(super) fn pass(&self, what: &'static str) {
        let hangs = |state: &mut State| state.what.is_some_and(|at| at == "all" || at == what);
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if !hangs(&mut state) {
            return;
        }
        state.waiting += 1;
        self.changed.notify_all();
        let state = self.changed.wait_while(state, hangs);
        state.unwrap_or_else(PoisonError::into_inner).waiting -= 1;
    }

    /// Returns when somebody waits for it.
    pub fn until_somebody_waits(&self) {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.changed.wait_while(state, |state| state.waiting == 0));
    }

    /// How many wait for it now.
    pub fn waiting(&self) -> u32 {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).waiting
    }
}
