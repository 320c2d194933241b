//! A gate that makes operations hang on purpose: whoever passes waits until it is open again.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Longer than anything takes, also on a machine that is busy with something else.
const TIMEOUT: Duration = Duration::from_secs(120);

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
    /// How many of those that wait may go on.
    let_through: u32,
}

impl Gate {
    /// From now on operations of one sort, or on one path, wait, or `all`; `None`: those that wait continue.
    pub fn set_hangs_at(&self, what: Option<&'static str>) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).what = what;
        self.changed.notify_all();
    }

    /// Returns when operations of this sort need not wait any more.
    pub(super) fn pass(&self, what: &str) {
        let hangs = |state: &mut State| state.what.is_some_and(|at| at == "all" || at == what);
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if !hangs(&mut state) {
            return;
        }
        state.waiting += 1;
        self.changed.notify_all();
        let waits = |state: &mut State| hangs(state) && state.let_through == 0;
        let mut state = self.changed.wait_while(state, waits).unwrap_or_else(PoisonError::into_inner);
        state.waiting -= 1;
        state.let_through = state.let_through.saturating_sub(1);
        self.changed.notify_all();
    }

    /// Lets one that waits through, and returns when it has gone.
    pub fn let_one_through(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.let_through = 1;
        self.changed.notify_all();
        drop(self.changed.wait_while(state, |state| state.let_through > 0));
    }

    /// Returns when somebody waits at it. A test that waits for what never comes must end.
    pub fn until_somebody_waits(&self) {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let (state, _) = self
            .changed
            .wait_timeout_while(state, TIMEOUT, |state| state.waiting == 0)
            .unwrap_or_else(PoisonError::into_inner);
        assert!(state.waiting > 0, "nobody waits at the gate");
    }

    /// How many operations wait at it now.
    pub fn waiting(&self) -> u32 {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).waiting
    }
}
