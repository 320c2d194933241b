//! Everything that is wrong with one disk or volume, the worst first.

use std::path::Path;

use super::finding::Finding;
use super::reason::{HealthReason, Severity, Source};

/// The word for a disk or a volume with which nothing is wrong.
pub const HEALTHY: &str = "Healthy";

/// What is wrong with one disk or volume. Empty: it is healthy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Condition {
    findings: Vec<Finding>,
    /// No look has been taken yet: what only a look finds is not known.
    awaits_look: bool,
}

impl Condition {
    /// The worst comes first, and of equally bad ones the one that the table of reasons has first.
    pub fn of(mut findings: Vec<Finding>) -> Self {
        findings.sort_by(|a, b| b.reason.severity().cmp(&a.reason.severity()).then_with(|| a.reason.cmp(&b.reason)));
        Self { findings, awaits_look: false }
    }

    pub(super) fn awaiting_look(self, awaits_look: bool) -> Self {
        Self { awaits_look, ..self }
    }

    /// The same, and before the first look of this process what the process before it has found. Without that, each
    /// restart would say that all is well, and a moment later that it is not.
    pub fn after(&self, earlier: &Self) -> Self {
        let found = |finding: &&Finding| finding.reason.row().is_some_and(|row| row.source == Source::Look);
        let earlier = earlier.findings.iter().filter(|_| self.awaits_look).filter(found);
        Self::of(self.findings.iter().chain(earlier).cloned().collect())
    }

    /// The same, and the volume is not mounted where it should be: seen before a look at all mounts sees it.
    pub fn and_unmounted(self, target: &Path) -> Self {
        self.and_at(HealthReason::NotMountPoint, "the volume is not mounted any more", target)
    }

    /// The same, and something else is mounted where the volume should be.
    pub fn and_covered(self, target: &Path) -> Self {
        self.and_at(HealthReason::WrongDevice, "something else is mounted", target)
    }

    fn and_at(mut self, reason: HealthReason, what: &str, target: &Path) -> Self {
        if !self.findings.iter().any(|finding| finding.reason == reason) {
            let words = format!("{what} at {}", target.display().to_string().escape_debug());
            self.findings.push(Finding::new(reason, words));
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
