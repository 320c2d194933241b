//! What a person asks for a filesystem that an administrator mounted and named: it is released, or used again. The pool
//! has no device of it, so nothing but the pool's own folder can be changed there.
//!
//! Takes in its id; gives out what was done or would be.

use std::sync::Arc;

use super::error::AdminError;
use super::plan::{Ran, VerbPlan};
use crate::agent::{reconciler::Reconciler, verb::Run};
use crate::device::DiskId;
use crate::host::chain;
use crate::pool::{CLAIM, Cordon, Member, OWN_FOLDER, PoolError, PoolFilesystem, Standing};

enum FilesystemPlan {
    Release(Arc<PoolFilesystem>),
    /// It was given up, and is back.
    TakeBack(Arc<PoolFilesystem>),
    /// It was released.
    Readmit(DiskId),
}

impl Reconciler {
    /// The pool's folder goes, if no volume is there and nothing of one.
    pub(super) fn release_mounted(&mut self, id: &DiskId, run: Run) -> Result<Vec<String>, AdminError> {
        let filesystem = self.mounted(id)?;
        match filesystem.standing() {
            Standing::Ready => {}
            Standing::NotReady(why) => return Err(AdminError::NotYet { disk: id.clone(), why }),
            Standing::Missing => return Err(AdminError::Missing(id.clone())),
        }
        filesystem.can_release().map_err(PoolError::from)?;
        self.run(&FilesystemPlan::Release(filesystem), run)
    }

    pub(super) fn adopt_mounted(&mut self, id: &DiskId, run: Run) -> Result<Vec<String>, AdminError> {
        if self.pool().journal().released().contains(id) {
            return self.run(&FilesystemPlan::Readmit(id.clone()), run);
        }
        let filesystem = self.mounted(id)?;
        let is_held = filesystem.carrier.shown().cordon() == Some(Cordon::GivenUp);
        match (is_held, filesystem.standing()) {
            (true, Standing::Ready) => self.run(&FilesystemPlan::TakeBack(filesystem), run),
            (_, Standing::Missing) => Err(AdminError::Missing(id.clone())),
            (_, Standing::NotReady(why)) => Err(AdminError::NotYet { disk: id.clone(), why }),
            (false, Standing::Ready) => Ok(vec![format!("{id} is in this node's pool")]),
        }
    }

    fn mounted(&self, id: &DiskId) -> Result<Arc<PoolFilesystem>, AdminError> {
        let found = self.pool().mounted_filesystems().into_iter().find(|filesystem| filesystem.id == *id);
        found.ok_or_else(|| AdminError::NoSuchDisk(id.to_string()))
    }
}

impl VerbPlan for FilesystemPlan {
    type Done = ();

    fn perform(&self, agent: &mut Reconciler) -> Result<(), AdminError> {
        match self {
            Self::Release(filesystem) => Ok(agent.give_up(&Member::Filesystem(Arc::clone(filesystem)))?),
            Self::Readmit(id) => Ok(agent.pool().journal().readmit(id).map(drop).map_err(PoolError::from)?),
            Self::TakeBack(filesystem) => {
                let taken = Arc::clone(filesystem);
                let not_yet = |why| AdminError::NotYet { disk: filesystem.id.clone(), why };
                let done = agent.errands.errand(&filesystem.id, move || taken.take_back());
                done.map_err(|hangs| not_yet(chain(&hangs)))?.map_err(|error| not_yet(chain(&error)))
            }
        }
    }

    fn lines(&self, ran: &Ran<()>) -> Vec<String> {
        match self {
            Self::Release(filesystem) => vec![
                format!("{} folder {OWN_FOLDER} with {CLAIM} of {}", ran.tense("remove", "removed"), place(filesystem)),
                "nothing else on that filesystem is touched".to_owned(),
                format!("no set takes it again until `localpool disk adopt {}`", filesystem.id),
            ],
            Self::TakeBack(filesystem) => {
                let mut lines = vec![format!("{} {} again", ran.tense("use", "use"), place(filesystem))];
                let volumes = filesystem.views().into_iter();
                lines.extend(volumes.map(|view| format!("volume {} can be used again, with its data", view.id)));
                lines
            }
            Self::Readmit(id) => vec![format!("{} a set take {id} again", ran.tense("let", "let"))],
        }
    }
}

fn place(filesystem: &PoolFilesystem) -> String {
    let path = filesystem.carrier.mount().map(|mount| mount.path().display().to_string()).unwrap_or_default();
    format!("{path} ({})", filesystem.id)
}
