//! The verb for a journal that was damaged: it is kept beside a new one, which forgets some of it.

use super::error::AdminError;
use super::plan::{Ran, VerbPlan};
use crate::agent::reconciler::Reconciler;
use crate::agent::verb::Run;
use crate::device::DiskId;
use crate::pool::{JOURNAL, PoolError, StoreError};

/// A journal in the place of the damaged one.
struct NewJournal {
    /// The bare devices whose claims it forgets.
    lost: Vec<DiskId>,
}

impl Reconciler {
    pub(super) fn set_aside_journal(&mut self, run: Run) -> Result<Vec<String>, AdminError> {
        let journal = self.pool().journal();
        if journal.sound().is_ok() {
            return Err(PoolError::from(StoreError::Sound).into());
        }
        let lost = journal.lost().into_keys().collect();
        self.run(&NewJournal { lost }, run)
    }
}

impl VerbPlan for NewJournal {
    /// The name that the damaged one has now.
    type Done = String;

    fn perform(&self, agent: &mut Reconciler) -> Result<String, AdminError> {
        Ok(agent.pool().journal().set_aside().map_err(PoolError::from)?)
    }

    fn lines(&self, ran: &Ran<String>) -> Vec<String> {
        let first = match ran {
            Ran::Dry => format!("would keep {JOURNAL} as journal.damaged-TIME beside it, and begin a new one"),
            Ran::Real(kept) => format!("kept {JOURNAL} as {kept} beside it, and began a new one"),
        };
        let mut lines = vec![first];
        match self.lost.is_empty() {
            true => lines.push(
                "forgotten: which bare devices the pool had, if it had any, because their ids cannot be read; a device \
                 with a filesystem or data is not touched, and a blank one may be claimed again"
                    .to_owned(),
            ),
            false => lines.push(
                "forgotten: the claims of these bare devices, and their volumes; each device is not touched and not \
                 read until `localpool disk adopt ID` lets its content decide who owns it:"
                    .to_owned(),
            ),
        }
        lines.extend(self.lost.iter().map(|id| format!("  {id}")));
        lines.push(
            "forgotten: disks that are missing, and the volumes on them: they are not reported as missing, and such a \
             volume may be made a second time, which is a conflict when the disk comes back"
                .to_owned(),
        );
        lines.push(
            "forgotten: disks that were released, if their ids cannot be read, and which disks are known copies of \
             others; what is in the labels of disks is not forgotten"
                .to_owned(),
        );
        lines
    }
}
