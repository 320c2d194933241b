//! What an observation of a disk or of a volume's mounts means: findings. Pure.

use std::collections::BTreeSet;
use std::path::PathBuf;

use super::finding::Finding;
use super::reason::HealthReason;
use crate::host::{DiskReport, DiskWarning, FilesystemState, FsUsage, IoErrors};

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
    pub fn findings(&mut self, observation: &DiskObservation) -> Vec<Finding> {
        let mut findings = Vec::new();
        findings
            .extend(observation.silent.as_ref().map(|why| Finding::new(HealthReason::DiskNotAnswering, why.clone())));
        if let Some(report) = &observation.report {
            findings.extend(of_report(report));
            let rise = risen(self.media_errors, report.media_errors);
            findings.extend(rise.map(|rise| {
                let words =
                    format!("the disk reports {rise} more media errors, {} in all", report.media_errors.unwrap_or(0));
                Finding::new(HealthReason::DiskMediaErrors, words)
            }));
            self.media_errors = report.media_errors.or(self.media_errors);
        }
        if let Some(io) = observation.io {
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

/// What one look at the mounts of a volume with a filesystem has seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VolumeObservation {
    /// Where its filesystem is mounted.
    pub targets: BTreeSet<PathBuf>,
    /// Those of them that another filesystem covers.
    pub hidden: BTreeSet<PathBuf>,
    /// `None`: it is not mounted, or could not be read.
    pub state: Option<FilesystemState>,
    pub usage: Option<FsUsage>,
}

impl VolumeObservation {
    /// The same, but for the mounts, which are known without the disk.
    pub fn now_at(self, targets: BTreeSet<PathBuf>) -> Self {
        if targets.is_empty() {
            return Self::default();
        }
        let hidden = self.hidden.intersection(&targets).cloned().collect();
        Self { targets, hidden, ..self }
    }

    /// What is wrong. `expected` are the targets where it was mounted for kubelet, and not unmounted for it.
    pub fn findings(&self, expected: &BTreeSet<PathBuf>) -> Vec<Finding> {
        let mut findings = Vec::new();
        let mut find = |reason, words: String| findings.push(Finding::new(reason, words));
        let lost: Vec<&PathBuf> = expected.difference(&self.targets).collect();
        if let Some(words) = listed(&lost) {
            find(HealthReason::NotMountPoint, format!("the volume is not mounted any more at {words}"));
        }
        let hidden: Vec<&PathBuf> = self.hidden.iter().collect();
        if let Some(words) = listed(&hidden) {
            find(HealthReason::WrongDevice, format!("another filesystem covers the volume at {words}"));
        }
        let state = self.state.unwrap_or_default();
        if state.is_shut_down {
            find(HealthReason::FilesystemShutDown, "the filesystem has shut down after an error".to_owned());
        }
        if state.is_read_only {
            find(HealthReason::FilesystemReadOnly, "the filesystem is read-only".to_owned());
        }
        if let Some(errors) = state.errors.filter(|errors| *errors > 0) {
            // The count may rise all the time, and each change would be a write.
            let words = match 10_u64.pow(errors.ilog10()) {
                1 => "the filesystem has counted errors".to_owned(),
                many => format!("the filesystem has counted {many} errors or more"),
            };
            find(HealthReason::FilesystemErrors, words);
        }
        // A filesystem that makes inodes as it needs them reports none in all.
        if self.usage.as_ref().is_some_and(|usage| usage.inodes > 0 && usage.inodes_free == 0) {
            find(HealthReason::InodesExhausted, "the filesystem has no free inode".to_owned());
        }
        findings
    }
}

/// The first of these paths, and how many there are besides.
fn listed(paths: &[&PathBuf]) -> Option<String> {
    let first = paths.first()?.display().to_string();
    // A path may contain anything, and must not control a terminal.
    let first = first.escape_debug();
    Some(match paths.len() {
        1 => first.to_string(),
        more => format!("{first} and {} more paths", more - 1),
    })
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

    fn observation(report: DiskReport) -> DiskObservation {
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
            let findings = DiskCounters::default().findings(&observation(report(vec![warning])));
            assert_eq!(words(&findings), [word]);
        }
        let both = report(vec![DiskWarning::Unreliable, DiskWarning::BackupFailed]);
        let findings = DiskCounters::default().findings(&observation(both));
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
        let findings = DiskCounters::default().findings(&observation(worn));
        assert_eq!(words(&findings), ["DiskSpareLow", "DiskWornOut"]);
        assert!(findings[0].message.contains("3 %") && findings[1].message.contains("104 %"), "{findings:?}");
        let fine = DiskReport { used_percent: Some(99), media_errors: Some(7), ..DiskReport::of(Health::Passed) };
        assert_eq!(DiskCounters::default().findings(&observation(fine)), []);
        let nothing = DiskReport::of(Health::Unknown("it is behind a USB bridge".to_owned()));
        assert_eq!(DiskCounters::default().findings(&observation(nothing)), []);
    }

    #[test]
    fn a_counter_is_an_error_only_where_it_rises_under_our_eyes() {
        let mut counters = DiskCounters::default();
        let mut look = |media_errors, errors, timeouts| {
            let report = DiskReport { media_errors, ..DiskReport::of(Health::Passed) };
            let io = Some(IoErrors { errors, timeouts });
            words(&counters.findings(&DiskObservation { io, ..observation(report) })).join(" ")
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
    fn a_volume_is_judged_by_its_mounts_and_the_state_of_its_filesystem() {
        let paths = |paths: &[&str]| paths.iter().map(PathBuf::from).collect::<BTreeSet<_>>();
        let fine = VolumeObservation { targets: paths(&["/a", "/b"]), ..VolumeObservation::default() };
        assert_eq!(fine.findings(&paths(&["/a"])), []);
        assert_eq!(fine.findings(&BTreeSet::new()), [], "nobody asked for it");
        let findings = fine.findings(&paths(&["/a", "/b\nc", "/d"]));
        assert_eq!(words(&findings), ["NotMountPoint"]);
        assert_eq!(findings[0].message, "the volume is not mounted any more at /b\\nc and 1 more paths");
        let hidden = VolumeObservation { hidden: paths(&["/a"]), ..fine.clone() };
        assert_eq!(words(&hidden.findings(&paths(&["/a"]))), ["WrongDevice"]);
        let in_state = |state| VolumeObservation { state: Some(state), ..fine.clone() }.findings(&BTreeSet::new());
        let state = FilesystemState::default();
        assert_eq!(in_state(FilesystemState { errors: Some(0), ..state }), []);
        let words_in = |state| words(&in_state(state)).join(" ");
        assert_eq!(words_in(FilesystemState { is_shut_down: true, ..state }), "FilesystemShutDown");
        assert_eq!(
            words_in(FilesystemState { is_read_only: true, errors: Some(2), ..state }),
            "FilesystemReadOnly FilesystemErrors"
        );
        let message_of = |errors| in_state(FilesystemState { errors: Some(errors), ..state }).remove(0).message;
        assert_eq!(message_of(20), message_of(99), "a count that rises all the time is not a change each time");
        let usage =
            |inodes, inodes_free| FsUsage { total: 9, available: 9, used: 0, inodes, inodes_free, inodes_used: 0 };
        let with = |usage| VolumeObservation { usage: Some(usage), ..fine.clone() }.findings(&BTreeSet::new());
        assert_eq!(words(&with(usage(10, 0))), ["InodesExhausted"]);
        assert_eq!(with(usage(0, 0)), [], "btrfs has no fixed number of inodes");
    }

    #[test]
    fn a_silent_disk_is_a_finding_of_its_own() {
        let silent = DiskObservation { silent: Some("it has not answered".to_owned()), ..DiskObservation::default() };
        assert_eq!(words(&DiskCounters::default().findings(&silent)), ["DiskNotAnswering"]);
    }
}
