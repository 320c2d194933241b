//! What others use of a filesystem that an administrator mounted: it is no space for volumes.

use super::PoolFilesystemState;
use super::carrier::Carrier;
use crate::device::label::Quota;
use crate::host::FilesystemRoot;
use crate::pool::{directory::capacity, filesystem_error::FilesystemError};

/// Measures it. Where nothing is counted by projects nobody can tell theirs from ours: it is all theirs then.
pub fn measure(
    carrier: &Carrier,
    state: &PoolFilesystemState,
    root: &dyn FilesystemRoot,
) -> Result<(), FilesystemError> {
    if carrier.mount().is_none() {
        return Ok(());
    }
    let unchanged = |source| FilesystemError::Unchanged { disk: carrier.id().clone(), source };
    let usage = root.usage().map_err(unchanged)?;
    let is_counted = carrier.layout().quota() == Some(Quota::Project);
    let projects = if is_counted { state.table.read().projects() } else { Vec::new() };
    let mut ours = 0_u64;
    for project in projects {
        ours = ours.saturating_add(root.project_usage(project).map_err(unchanged)?.bytes);
    }
    let own_needs = usage.total - capacity(usage.total);
    let others = usage.used.saturating_sub(ours).saturating_sub(own_needs);
    state.table.change().set_others(others);
    Ok(())
}

/// Before a promise of that many bytes: others may have used the space since it was measured.
pub fn prove_space(
    carrier: &Carrier,
    state: &PoolFilesystemState,
    root: &dyn FilesystemRoot,
    bytes: u64,
) -> Result<(), FilesystemError> {
    if carrier.mount().is_none() {
        return Ok(());
    }
    let unchanged = |source| FilesystemError::Unchanged { disk: carrier.id().clone(), source };
    let available = root.usage().map_err(unchanged)?.available;
    // Whatever others use: all that was promised has room beside it.
    let has_room = u128::from(available) >= state.table.read().promised() + u128::from(bytes);
    if has_room { Ok(()) } else { measure(carrier, state, root) }
}
