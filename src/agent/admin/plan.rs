//! The plan of a verb: what was decided, and is not done yet.
//!
//! Whoever makes a plan reads, and changes nothing. A verb writes in one place only, which a dry run does not reach.

use super::error::AdminError;
use crate::agent::{reconciler::Reconciler, verb::Run};

/// The deed of a verb, and the lines that a person reads about it.
pub(super) trait VerbPlan {
    /// The result that is known only when it is done.
    type Done;

    fn perform(&self, agent: &mut Reconciler) -> Result<Self::Done, AdminError>;

    /// Says what it would do, or what it did.
    fn lines(&self, ran: &Ran<Self::Done>) -> Vec<String>;
}

/// How a plan ended.
pub(super) enum Ran<Done> {
    Dry,
    Real(Done),
}

impl<Done> Ran<Done> {
    /// `would wipe`, or `wiped`.
    pub fn tense(&self, verb: &str, done: &str) -> String {
        let run = match self {
            Self::Dry => Run::Dry,
            Self::Real(_) => Run::Real,
        };
        run.tense(verb, done)
    }
}

impl Reconciler {
    /// Does what was planned, or says what it would do.
    pub(super) fn run<P: VerbPlan>(&mut self, plan: &P, run: Run) -> Result<Vec<String>, AdminError> {
        let ran = match run {
            Run::Dry => Ran::Dry,
            Run::Real => Ran::Real(plan.perform(self)?),
        };
        Ok(plan.lines(&ran))
    }
}
