//! The requests of people to the pool: releasing disks here, those that are away in `forget`, taking them over in
//! `adopt`, finding them in `locate`.
//!
//! Each verb looks (`find`), and makes a plan of what it saw. `plan` does what was planned, or only says it.

mod adopt;
mod carry_out;
mod error;
mod find;
mod forget;
mod journal;
mod locate;
mod lost_array;
mod mounted;
mod plan;
mod relabel;
mod release;
mod settle;

pub use self::error::AdminError;
use super::reconciler::Reconciler;
use super::verb::Verb;

impl Reconciler {
    /// Does what a person asked, or says what it would do.
    pub fn verb(&mut self, verb: &Verb) -> Result<Vec<String>, AdminError> {
        match verb {
            Verb::ReleaseDisk { disk, run } => self.release(disk, *run),
            Verb::GiveUpDisk { disk, run } => self.give_up_named(disk, *run),
            Verb::AdoptDisk { disk, run } => self.adopt(disk, *run),
            Verb::Order { disk, task } => self.carry_out(disk, *task),
            Verb::LocateDisk { disk, lit, run } => self.locate(disk, *lit, *run),
            Verb::SettleVolume { volume, keep, run } => self.settle(*volume, keep, *run),
            Verb::SetAsideJournal { run } => self.set_aside_journal(*run),
            Verb::PlanSets { sets } => self.preview(sets),
        }
    }
}
