//! The background work of a pool filesystem: folders of deleted volumes are removed bit by bit, then that of its disk.

use std::path::Path;

use super::PoolFilesystem;
use crate::pool::{
    directory::TRASH,
    erase::{GIVE_WAY, Progress, work},
    error::PoolError,
};

/// So many entries are removed before others have their turn.
const AT_ONCE: usize = 1000;

impl PoolFilesystem {
    pub fn work(&self) -> Result<Progress, PoolError> {
        if self.is_usable() && self.remove_some()? {
            std::thread::sleep(GIVE_WAY);
            return Ok(Progress::Worked);
        }
        let done = work(&self.carrier)?;
        // Who deleted a volume meanwhile may have found this worker still at it.
        let is_late = done == Progress::Idle && self.is_usable() && self.is_erasing() && self.carrier.worker.begin();
        Ok(if is_late { Progress::Worked } else { done })
    }

    /// A bounded part of the next folder; false: there is none. The folder belongs to nobody else meanwhile.
    fn remove_some(&self) -> Result<bool, PoolError> {
        let (root, name) = {
            let state = self.lock.lock();
            let Some(name) = state.trash.first().cloned() else { return Ok(false) };
            (self.root(&state)?, name)
        };
        let trash = Path::new(TRASH);
        let removed = root.remove_some(&trash.join(&name), trash, AT_ONCE);
        let mut state = self.lock.lock();
        match removed {
            Ok(false) => {}
            Ok(true) => {
                // Parts that were too deep are there under names of their own now.
                state.trash = root.names(trash).map_err(self.failed())?;
                self.erased.volume();
            }
            Err(error) => {
                // One that cannot be removed keeps the others from nothing.
                state.trash.retain(|other| *other != name);
                state.trash.push(name);
                return Err(self.failed()(error).into());
            }
        }
        Ok(true)
    }
}
