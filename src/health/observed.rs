//! What an observation of a disk means: findings. Pure.

use super::finding::Finding;
use super::reason::HealthReason;
use crate::host::{DiskReport, DiskWarning, IoErrors};

/// What one look at a disk of the pool has seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiskObservation {
    /// What it reported last; `None`: it has not been asked, or has not answered.
    pub report: Option<DiskReport>,
    /// What the kernel has counted; `None`: it does not count, as for NVMe.
    pub io: Option<IoErrors>,
    /// It has not answered for longer than a disk may take; in words.
    pub silent: Option<String>,
}

/// The counters of a disk at the last look. A counter counts as an error only where it rises under our eyes: what
/// happened before the agent began, or in another machine, is no news.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiskCounters {
    media_errors: Option<u64>,
    io: Option<IoErrors>,
}

impl DiskCounters {
    /// What is wrong, and the counters for the next look.
    pub fn findings(&mut self, seen: &DiskObservation) -> Vec<Finding> {
        let mut findings = Vec::new();
        findings.extend(seen.silent.as_ref().map(|why| Finding::new(HealthReason::DiskNotAnswering, why.clone())));
        if let Some(report) = &seen.report {
            findings.extend(of_report(report));
            let rise = risen(self.media_errors, report.media_errors);
            findings.extend(rise.map(|rise| {
                let words =
                    format!("the disk reports {rise} more media errors, {} in all", report.media_errors.unwrap_or(0));
                Finding::new(HealthReason::DiskMediaErrors, words)
            }));
            self.media_errors = report.media_errors.or(self.media_errors);
        }
        if let Some(io) = seen.io {
            let before = self.io.replace(io);
            let rise = |of: fn(&IoErrors) -> u64| risen(before.as_ref().map(of), Some(of(&io)));
            let (errors, timeouts) = (rise(|io| io.errors), rise(|io| io.timeouts));
            if errors.or(timeouts).is_some() {
                let (errors, timeouts) = (errors.unwrap_or(0), timeouts.unwrap_or(0));
                let words = format!(
                    "{errors} more commands to the disk failed and {timeouts} timed out; {} and {} since the kernel found it",
                    io.errors, io.timeouts
                );
                findings.push(Finding::new(HealthReason::DiskIoErrors, words));
            }
        }
        findings
    }
}

/// By how much a counter rose. One that went down has begun again.
fn risen(before: Option<u64>, now: Option<u64>) -> Option<u64> {
    now?.checked_sub(before?).filter(|rise| *rise > 0)
}

fn of_report(report: &DiskReport) -> Vec<Finding> {
    let mut findings: Vec<Finding> = Vec::new();
    for warning in &report.warnings {
        let (reason, words) = match warning {
            DiskWarning::SpareLow => (HealthReason::DiskSpareLow, spare(report)),
            DiskWarning::Temperature => (HealthReason::DiskTemperature, temperature(report)),
            DiskWarning::ReadOnly => (HealthReason::DiskReadOnly, "the disk has become read-only".to_owned()),
            DiskWarning::Unreliable
            | DiskWarning::BackupFailed
            | DiskWarning::PersistentMemory
            | DiskWarning::PredictsFailure(_)
            | DiskWarning::Other(_) => (HealthReason::DiskFailing, format!("the disk reports: {warning}")),
        };
        match findings.iter_mut().find(|finding| finding.reason == reason) {
            // Several warnings of one kind are one finding.
            Some(finding) => finding.message.push_str(&format!(", {warning}")),
            None => findings.push(Finding::new(reason, words)),
        }
    }
    if let Some(used) = report.used_percent.filter(|used| *used >= 100) {
        let words = format!("the disk has used {used} % of the endurance that it is rated for");
        findings.push(Finding::new(HealthReason::DiskWornOut, words));
    }
    findings
}

fn spare(report: &DiskReport) -> String {
    match (report.spare_percent, report.spare_threshold_percent) {
        (Some(spare), Some(threshold)) => {
            format!("the disk has {spare} % of its spare space left; it warns below {threshold} %")
        }
        _ => "the disk warns that its spare space is low".to_owned(),
    }
}

fn temperature(report: &DiskReport) -> String {
    match report.temperature_celsius {
        // The degrees change all the time, and each change would be a write.
        Some(degrees) if degrees > 40 => "the disk warns that it is too hot".to_owned(),
        Some(degrees) if degrees < 10 => "the disk warns that it is too cold".to_owned(),
        _ => "the disk warns that it is too hot or too cold".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::Health;

    fn report(warnings: Vec<DiskWarning>) -> DiskReport {
        DiskReport { warnings, ..DiskReport::of(Health::Failing("words".to_owned())) }
    }

    fn seen(report: DiskReport) -> DiskObservation {
        DiskObservation { report: Some(report), ..DiskObservation::default() }
    }

    fn words(findings: &[Finding]) -> Vec<&str> {
        findings.iter().map(|finding| finding.reason.word()).collect()
    }

    #[test]
    fn each_warning_has_its_reason_and_two_of_one_reason_are_one_finding() {
        for (warning, word) in [
            (DiskWarning::SpareLow, "DiskSpareLow"),
            (DiskWarning::Temperature, "DiskTemperature"),
            (DiskWarning::Unreliable, "DiskFailing"),
            (DiskWarning::ReadOnly, "DiskReadOnly"),
            (DiskWarning::BackupFailed, "DiskFailing"),
            (DiskWarning::PersistentMemory, "DiskFailing"),
            (DiskWarning::PredictsFailure("it predicts its failure".to_owned()), "DiskFailing"),
            (DiskWarning::Other("a bit".to_owned()), "DiskFailing"),
        ] {
            let findings = DiskCounters::default().findings(&seen(report(vec![warning])));
            assert_eq!(words(&findings), [word]);
        }
        let both = report(vec![DiskWarning::Unreliable, DiskWarning::BackupFailed]);
        let findings = DiskCounters::default().findings(&seen(both));
        assert_eq!(words(&findings), ["DiskFailing"]);
        assert!(
            findings[0].message.ends_with("media errors, the backup of its volatile memory failed"),
            "{findings:?}"
        );
    }

    #[test]
    fn wear_and_spare_are_said_in_numbers_and_a_healthy_report_says_nothing() {
        let worn = DiskReport {
            used_percent: Some(104),
            spare_percent: Some(3),
            spare_threshold_percent: Some(10),
            ..report(vec![DiskWarning::SpareLow])
        };
        let findings = DiskCounters::default().findings(&seen(worn));
        assert_eq!(words(&findings), ["DiskSpareLow", "DiskWornOut"]);
        assert!(findings[0].message.contains("3 %") && findings[1].message.contains("104 %"), "{findings:?}");
        let fine = DiskReport { used_percent: Some(99), media_errors: Some(7), ..DiskReport::of(Health::Passed) };
        assert_eq!(DiskCounters::default().findings(&seen(fine)), []);
        let nothing = DiskReport::of(Health::Unknown("it is behind a USB bridge".to_owned()));
        assert_eq!(DiskCounters::default().findings(&seen(nothing)), []);
    }

    #[test]
    fn a_counter_is_an_error_only_where_it_rises_under_our_eyes() {
        let mut counters = DiskCounters::default();
        let mut look = |media_errors, errors, timeouts| {
            let report = DiskReport { media_errors, ..DiskReport::of(Health::Passed) };
            let io = Some(IoErrors { errors, timeouts });
            words(&counters.findings(&DiskObservation { io, ..seen(report) })).join(" ")
        };
        assert_eq!(look(Some(5), 100, 2), "", "it was so before we came");
        assert_eq!(look(Some(5), 100, 2), "");
        assert_eq!(look(Some(6), 100, 3), "DiskMediaErrors DiskIoErrors");
        assert_eq!(look(None, 101, 3), "DiskIoErrors");
        assert_eq!(look(Some(6), 101, 3), "", "a report without the counter forgets nothing");
        assert_eq!(look(Some(0), 0, 0), "", "it began again");
        assert_eq!(look(Some(1), 0, 0), "DiskMediaErrors");
    }

    #[test]
    fn a_silent_disk_is_a_finding_of_its_own() {
        let silent = DiskObservation { silent: Some("it has not answered".to_owned()), ..DiskObservation::default() };
        assert_eq!(words(&DiskCounters::default().findings(&silent)), ["DiskNotAnswering"]);
    }
}
