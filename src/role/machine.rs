//! The owner of the disks of a machine without a cluster, as their labels have it: `standalone`, and the identity of
//! the machine. So two machines with one name, as with `localhost`, do not take each other's disks.
//!
//! Takes in the state directory and the machine's id; gives out the text that labels have in place of a cluster. It is
//! recorded at the first start: it stays even if the machine's id changes.

use std::path::Path;

use anyhow::{Context, Result, bail};
use uuid::Uuid;

use crate::host::{
    StateDir, StateStore, chain,
    machine_id::{MACHINE_ID, derived},
};
use crate::pool::JOURNAL;

/// The identity in all labels that were written before machines were told apart.
const ANY: &str = "standalone";
/// The document of the state directory with the identity.
const FILE: &str = "standalone";

/// The identity of this state directory, recorded if it was not yet.
pub fn identity(state: &StateDir) -> Result<String> {
    identity_of(state, Path::new(MACHINE_ID))
}

/// The same, for a caller that must not write. `None`: unknown before the first start.
pub fn known_identity(state: &dyn StateStore) -> Result<Option<String>> {
    Ok(find(state, Path::new(MACHINE_ID))?.map(|found| found.identity))
}

fn identity_of(state: &StateDir, machine_id: &Path) -> Result<String> {
    let found = find(state, machine_id)?;
    let is_known = found.is_some();
    let MachineIdentity { identity, is_recorded } =
        found.unwrap_or_else(|| MachineIdentity::not_recorded(of_machine(Uuid::new_v4())));
    if is_recorded {
        return Ok(identity);
    }
    match state.store_first(FILE, format!("{identity}\n")) {
        // The next start gets the same result, as long as no journal exists without a recorded identity.
        Err(error) if is_known => {
            tracing::warn!(error = %chain(&error), identity, "the identity of this machine could not be recorded")
        }
        written => written.context("recording the identity of this machine")?,
    }
    Ok(identity)
}

#[derive(Debug, PartialEq)]
struct MachineIdentity {
    identity: String,
    /// In the state directory.
    is_recorded: bool,
}

impl MachineIdentity {
    fn not_recorded(identity: String) -> Self {
        Self { identity, is_recorded: false }
    }
}

/// The identity from the state directory or the machine.
fn find(state: &dyn StateStore, machine_id: &Path) -> Result<Option<MachineIdentity>> {
    if let Some(text) = state.load(FILE)? {
        let identity = text.trim();
        if !is_identity(identity) {
            let own = derived(machine_id)?
                .map_or_else(|| "what their labels say".to_owned(), |id| format!("`{}`", of_machine(id)));
            bail!(
                "the file `{FILE}` in the state directory does not say which machine this is: {identity:?}. Write one line into \
                 it: {own}, or `{ANY}` if the disks were claimed by a version that did not distinguish machines; `localpool devices --state-dir /nowhere` shows the cluster of disks that have neither"
            );
        }
        return Ok(Some(MachineIdentity { identity: identity.to_owned(), is_recorded: true }));
    }
    // It has disks already, whose labels name no machine.
    let has_journal = match state.load(JOURNAL) {
        Err(error) if error.is_no_text() => true,
        loaded => loaded?.is_some(),
    };
    if has_journal {
        return Ok(Some(MachineIdentity::not_recorded(ANY.to_owned())));
    }
    Ok(derived(machine_id)?.map(|id| MachineIdentity::not_recorded(of_machine(id))))
}

fn of_machine(id: Uuid) -> String {
    format!("{ANY}-{id}")
}

fn is_identity(text: &str) -> bool {
    let id = text.strip_prefix(ANY).and_then(|rest| rest.strip_prefix('-'));
    text == ANY || id.is_some_and(|id| Uuid::try_parse(id).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new() -> (tempfile::TempDir, StateDir) {
        let dir = tempfile::tempdir().expect("a directory");
        let state = StateDir::open(&dir.path().join("state")).expect("made");
        (dir, state)
    }

    fn machine(dir: &tempfile::TempDir, id: &str) -> std::path::PathBuf {
        let path = dir.path().join("machine-id");
        StateDir::at(dir.path()).store("machine-id", id).expect("written");
        path
    }

    const ONE: &str = "0123456789abcdef0123456789abcdef";
    const OTHER: &str = "fedcba9876543210fedcba9876543210";

    #[test]
    fn a_machine_is_told_from_others_and_stays_itself_with_a_new_state_directory() {
        let ((dir, state), (other_dir, other_state)) = (new(), new());
        let one = identity_of(&state, &machine(&dir, ONE)).expect("told");
        let other = identity_of(&other_state, &machine(&other_dir, OTHER)).expect("told");
        assert_ne!(one, other);
        assert!(is_identity(&one) && one != ANY, "{one}");
        let again = StateDir::open(&dir.path().join("again")).expect("made");
        assert_eq!(find(&again, &machine(&dir, ONE)).expect("told"), Some(MachineIdentity::not_recorded(one.clone())));
        assert_eq!(identity_of(&again, &machine(&dir, ONE)).expect("told"), one);
    }

    #[test]
    fn what_is_written_down_stays_whatever_becomes_of_the_machines_id() {
        for first in [ONE, ""] {
            let (dir, state) = new();
            let identity = identity_of(&state, &machine(&dir, first)).expect("told");
            assert_eq!(identity_of(&state, &machine(&dir, OTHER)).expect("told"), identity, "{first:?}");
        }
        let (dir, state) = new();
        assert_eq!(find(&state, &dir.path().join("none")).expect("no error"), None, "who only looks makes none up");
    }

    #[test]
    fn a_state_directory_that_has_disks_and_names_no_machine_keeps_what_their_labels_say() {
        let (dir, state) = new();
        state.store(JOURNAL, "{}").expect("written");
        assert_eq!(identity_of(&state, &machine(&dir, ONE)).expect("told"), "standalone");
        assert_eq!(state.load(FILE).expect("read").as_deref(), Some("standalone\n"));
    }

    #[test]
    fn a_file_that_says_something_else_stops_the_start_with_what_to_write_into_it() {
        for text in ["", "standalon", "standalone-", "standalone-7", "c-1"] {
            let (dir, state) = new();
            state.store(FILE, text).expect("written");
            let error = identity_of(&state, &machine(&dir, ONE)).expect_err(text).to_string();
            assert!(
                error.contains("`standalone` in the state directory")
                    && error.contains(&of_machine(derived(&machine(&dir, ONE)).expect("read").expect("an id"))),
                "{error}"
            );
        }
    }
}
