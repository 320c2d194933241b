//! Whether filesystems could be mounted for the node below a folder, before a disk is taken for that.
//!
//! Takes in folders; gives out what is in the way. A folder may be on a filesystem that hangs, so it is asked on a thread
//! of its own.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::host::{Host, chain, timeout::Timeouts};

/// A folder that answers at all does so at once.
const PATH_TIMEOUT: Duration = Duration::from_secs(5);

pub(super) struct HostPaths {
    timeouts: Timeouts<PathBuf>,
    /// One could not be used when it was last asked. No event says when it can be.
    lacks_some: bool,
}

impl Default for HostPaths {
    fn default() -> Self {
        Self { timeouts: Timeouts::new(PATH_TIMEOUT), lacks_some: false }
    }
}

impl HostPaths {
    /// Nothing was asked in this pass yet.
    pub fn begin_pass(&mut self) {
        self.lacks_some = false;
    }

    pub fn lacks_some(&self) -> bool {
        self.lacks_some
    }

    /// Why nothing can be mounted below a folder; `None`: something can.
    pub fn unusable(&mut self, host: &Arc<dyn Host>, folder: &Path) -> Option<String> {
        let (host, path) = (Arc::clone(host), folder.to_owned());
        let answer = self.timeouts.ask(&folder.to_owned(), move || host.mounts().can_show_on_host(&path));
        let why = match answer {
            Ok(Ok(())) => return None,
            Ok(Err(error)) => chain(&error),
            Err(hangs) => format!("{}: {}", folder.display(), chain(&hangs)),
        };
        self.lacks_some = true;
        Some(why)
    }
}
