//! Everything that is wrong with one disk or volume, the worst first.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use super::answer::AnswerOf;
use super::finding::{Finding, FoundBy};
use super::reason::{HealthReason, LossScope, Severity};

/// The word for a disk or a volume with which nothing is wrong.
pub const HEALTHY: &str = "Healthy";

/// What is wrong with one disk or volume. Empty: it is healthy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Condition {
    findings: Vec<Finding>,
    /// What has not answered this process yet: what only that can say is not known.
    unanswered: BTreeSet<AnswerOf>,
    /// How long after its first checkup this process looked last; `None`: it did not.
    looked_for: Option<Duration>,
}

impl Condition {
    /// The worst comes first, and of equally bad ones the one that the table of reasons has first.
    pub fn of(mut findings: Vec<Finding>) -> Self {
        findings.sort_by(|a, b| b.reason.severity().cmp(&a.reason.severity()).then_with(|| a.reason.cmp(&b.reason)));
        Self { findings, unanswered: BTreeSet::new(), looked_for: None }
    }

    pub(super) fn awaiting(self, unanswered: BTreeSet<AnswerOf>) -> Self {
        Self { unanswered, ..self }
    }

    pub(super) fn looked_for(self, looked_for: Option<Duration>) -> Self {
        Self { looked_for, ..self }
    }

    /// The same, where nobody could be asked: the disk is not here.
    pub fn unheard(self) -> Self {
        self.awaiting(AnswerOf::ALL.into())
    }

    /// Whether all that was asked has ended. If it has not, that nothing was found says nothing.
    pub fn is_answered(&self) -> bool {
        !self.unanswered.contains(&AnswerOf::Questions)
    }

    /// Whether it is known where the volume should be mounted, and where it is.
    pub fn knows_mounts(&self) -> bool {
        !self.unanswered.contains(&AnswerOf::Mounts)
    }

    /// The same, and what the object had before, as long as nobody has answered this process about it, and for as long
    /// as what comes and goes is held. Without that, each restart would say that all is well, and a moment later that it
    /// is not.
    pub fn after(&self, earlier: &Self) -> Self {
        let is_new = |finding: &&Finding| self.findings.iter().all(|found| found.reason != finding.reason);
        let earlier = earlier.findings.iter().filter(|finding| is_new(finding) && self.outlasts(finding));
        Self::of(self.findings.iter().chain(earlier).cloned().collect())
    }

    fn outlasts(&self, earlier: &Finding) -> bool {
        let is_open = earlier.reason.needs().is_some_and(|answer| self.unanswered.contains(&answer));
        // When its cause went, nobody can say: perhaps not before this process began.
        let is_held = self.looked_for.is_some_and(|time| time < earlier.reason.lasts_at_least());
        if !is_open && !is_held {
            return false;
        }
        // A controller of an earlier version takes each loss for one that was found. Where nobody has confirmed it, the
        // agent or the CRD is of that version, and then a loss stays as long as it did there: until the first checkup.
        let is_loss = earlier.reason.loss() != LossScope::Never;
        let is_confirmed = matches!(earlier.found_by, FoundBy::Told(Some(_)));
        !is_loss || is_confirmed || self.unanswered.contains(&AnswerOf::Kernel)
    }

    /// The same, and the volume is not mounted where it should be: seen before a checkup of all mounts sees it.
    pub fn and_unmounted(self, target: &Path) -> Self {
        self.and_at(HealthReason::NotMountPoint, "the volume is not mounted any more", target)
    }

    /// The same, and something else is mounted where the volume should be.
    pub fn and_covered(self, target: &Path) -> Self {
        self.and_at(HealthReason::WrongDevice, "something else is mounted", target)
    }

    fn and_at(mut self, reason: HealthReason, what: &str, target: &Path) -> Self {
        if !self.findings.iter().any(|finding| finding.reason == reason) {
            let message = format!("{what} at {}", target.display().to_string().escape_debug());
            self.findings.push(Finding::new(reason, message));
        }
        Self::of(self.findings)
    }

    pub fn is_healthy(&self) -> bool {
        self.findings.is_empty()
    }

    /// Whether it can be used at all.
    pub fn is_accessible(&self) -> bool {
        self.severity().is_none_or(|severity| severity == Severity::Degraded)
    }

    /// How bad the worst of it is; `None`: it is healthy.
    pub fn severity(&self) -> Option<Severity> {
        self.findings.first().map(|finding| finding.reason.severity())
    }

    /// The worst reason in one word, or `Healthy`.
    pub fn word(&self) -> &str {
        self.findings.first().map_or(HEALTHY, |finding| finding.reason.word())
    }

    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }

    /// All of it as one text; empty if it is healthy.
    pub fn message(&self) -> String {
        let messages: Vec<&str> = self.findings.iter().map(|finding| finding.message.as_str()).collect();
        messages.join("; ")
    }
}

impl From<Finding> for Condition {
    fn from(finding: Finding) -> Self {
        Self::of(vec![finding])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_comes_first_and_a_degraded_volume_can_be_used() {
        let warm = Finding::new(HealthReason::DiskTemperature, "it is hot");
        let gone = Finding::new(HealthReason::DiskMissing, "it is not there");
        let lost = Finding::new(HealthReason::VolumeMissing, "it is gone");
        let condition = Condition::of(vec![warm.clone(), gone.clone()]);
        assert_eq!((condition.word(), condition.is_accessible()), ("DiskMissing", false));
        assert_eq!(condition.message(), "it is not there; it is hot");
        assert_eq!(Condition::of(vec![warm.clone(), gone, lost]).word(), "VolumeMissing");
        assert!(Condition::from(warm).is_accessible());
        let healthy = Condition::default();
        assert_eq!((healthy.word(), healthy.is_healthy(), healthy.message().as_str()), (HEALTHY, true, ""));
    }
}
