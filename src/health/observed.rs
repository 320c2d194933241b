//! What an observation of a disk or of a volume's mounts means: findings. Pure.

use std::collections::BTreeSet;
use std::path::PathBuf;

use super::array;
use super::finding::Finding;
use super::reason::HealthReason;
use crate::host::{ArrayState, DeviceLimits, DiskReport, DiskWarning, FilesystemState, FsUsage, IoErrors};

/// What one checkup of a disk of the pool has seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiskObservation {
    /// What it reported last; `None`: it has not been asked, or has not answered.
    pub report: Option<DiskReport>,
    /// What the kernel has counted; `None`: it does not count, as for NVMe.
    pub io: Option<IoErrors>,
    /// It has not answered for longer than a disk may take; as text.
    pub silent: Option<String>,
    /// Writes to it are under way, and none has ended for long; as text.
    pub stuck: Option<String>,
    /// The md arrays that it is built on.
    pub arrays: Vec<ArrayState>,
}

/// The number of failed commands between two checkups from which on they are errors of the disk. The kernel also counts
/// each command that a disk does not know, and sends several of those when it reads a disk's properties again, as after
/// a change of partitions.
const MANY_ERRORS: u64 = 20;

/// The counters of a disk at the last checkup. A counter counts as an error only where it rises under our eyes: what
/// happened before the agent began, or in another machine, is no news.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiskCounters {
    media_errors: Option<u64>,
    pending_sectors: Option<u64>,
    io: Option<IoErrors>,
}

impl DiskCounters {
    /// What is wrong, and the counters for the next checkup.
    pub fn findings(&mut self, observation: &DiskObservation) -> Vec<Finding> {
        let mut findings = Vec::new();
        findings
            .extend(observation.silent.as_ref().map(|why| Finding::new(HealthReason::DiskNotAnswering, why.clone())));
        findings.extend(observation.stuck.as_ref().map(|why| Finding::new(HealthReason::DiskWritesStuck, why.clone())));
        findings.extend(array::findings(&observation.arrays));
        if let Some(report) = &observation.report {
            findings.extend(of_report(report));
            findings.extend(self.media_errors(report));
        }
        if let Some(io) = observation.io {
            let before = self.io.replace(io);
            let rise = |of: fn(&IoErrors) -> u64| risen(before.as_ref().map(of), Some(of(&io)));
            let (errors, timeouts) = (rise(|io| io.errors), rise(|io| io.timeouts));
            let errors = errors.filter(|rise| *rise >= MANY_ERRORS);
            if errors.or(timeouts).is_some() {
                let (errors, timeouts) = (errors.unwrap_or(0), timeouts.unwrap_or(0));
                let message = format!(
                    "{errors} more commands to the disk failed and {timeouts} timed out; {} and {} since the kernel found it",
                    io.errors, io.timeouts
                );
                findings.push(Finding::new(HealthReason::DiskIoErrors, message));
            }
        }
        findings
    }

    /// Data that the disk has lost since the last checkup. A sector that it replaced is not lost: its own verdict says
    /// when there are too many of those.
    fn media_errors(&mut self, report: &DiskReport) -> Option<Finding> {
        let errors = risen(self.media_errors, report.media_errors);
        let pending = risen(self.pending_sectors, report.pending_sectors);
        self.media_errors = report.media_errors.or(self.media_errors);
        self.pending_sectors = report.pending_sectors.or(self.pending_sectors);
        let all = |count: Option<u64>| count.unwrap_or(0);
        let parts = [
            errors.map(|rise| format!("{rise} more media errors, {} in all", all(report.media_errors))),
            pending.map(|rise| format!("{rise} more sectors that it cannot read, {} now", all(report.pending_sectors))),
        ];
        let said = parts.into_iter().flatten().reduce(|one, other| format!("{one}; {other}"))?;
        Some(Finding::new(HealthReason::DiskMediaErrors, format!("the disk reports {said}")))
    }
}

/// What is known of a volume without its disk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VolumePlaces {
    /// Bytes.
    pub capacity: u64,
    /// Where its filesystem or its device node is mounted.
    pub targets: BTreeSet<PathBuf>,
    /// Where it is or should be mounted, and something else is on top.
    pub covered: BTreeSet<PathBuf>,
    /// One of its mounts is for writing.
    pub is_writable: bool,
}

/// What one checkup of a volume has seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VolumeObservation {
    pub places: VolumePlaces,
    /// Targets where another filesystem answers.
    pub hidden: BTreeSet<PathBuf>,
    /// `None`: no filesystem of it is mounted, or it could not be read.
    pub state: Option<FilesystemState>,
    pub usage: Option<SeenUsage>,
    /// `None`: it is gone, or has not been asked yet.
    pub device: Option<DeviceLimits>,
    pub answered: AnsweredAt,
}

/// How full a filesystem is, and whose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeenUsage {
    /// The volume's own.
    Own(FsUsage),
    /// The one that the volume is a folder of. Its size and what is used of it say nothing of the volume; its inodes are
    /// those of all.
    Shared(FsUsage),
}

impl SeenUsage {
    fn own(&self) -> Option<&FsUsage> {
        match self {
            Self::Own(usage) => Some(usage),
            Self::Shared(_) => None,
        }
    }

    /// What is wrong if no file can be made any more.
    fn without_inodes(&self) -> Option<&'static str> {
        let (usage, message) = match self {
            Self::Own(usage) => (usage, "the filesystem has no free inode"),
            Self::Shared(usage) => (usage, "the filesystem that the volume shares with others has no free inode"),
        };
        // One that makes inodes as it needs them reports none in all.
        (usage.inodes > 0 && usage.inodes_free == 0).then_some(message)
    }
}

/// Where a volume has said how it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum AnsweredAt {
    /// It was not asked, or each question failed.
    #[default]
    NoMount,
    /// All its mounts are of one filesystem, so that is known. What covers the others is not.
    SomeMount,
    /// Or it has no filesystem, and its device was asked.
    EachMount,
}

impl VolumeObservation {
    /// The same. What nobody has answered this time is as it was when somebody did.
    pub fn after(mut self, last: Option<&Self>) -> Self {
        let Some(last) = last else { return self };
        match self.answered {
            AnsweredAt::EachMount => {}
            AnsweredAt::SomeMount => self.hidden.extend(last.hidden.iter().cloned()),
            AnsweredAt::NoMount => (self.hidden, self.state) = (last.hidden.clone(), last.state),
        }
        // A filesystem that answered may still not say what of it is used.
        if self.state.is_some() {
            self.usage = self.usage.or(last.usage);
        }
        self
    }

    /// The same, but for what is known without the disk.
    pub fn now_at(self, places: VolumePlaces) -> Self {
        // A late answer does not know that the volume has grown since.
        let device = self.device.filter(|_| places.capacity == self.places.capacity);
        if places.targets.is_empty() {
            return Self { places, device, ..Self::default() };
        }
        let hidden = self.hidden.intersection(&places.targets).cloned().collect();
        Self { places, hidden, device, ..self }
    }

    /// What is wrong. `expected` are the targets where it was mounted for kubelet, and not unmounted for it.
    pub fn findings(&self, expected: &BTreeSet<PathBuf>) -> Vec<Finding> {
        let mut findings = Vec::new();
        let mut find = |reason, message: String| findings.push(Finding::new(reason, message));
        let VolumePlaces { targets, covered, .. } = &self.places;
        let lost: Vec<&PathBuf> = expected.difference(targets).filter(|target| !covered.contains(*target)).collect();
        if let Some(message) = listed(&lost) {
            find(HealthReason::NotMountPoint, format!("the volume is not mounted any more at {message}"));
        }
        if let Some(message) = self.wrong_device(expected) {
            find(HealthReason::WrongDevice, message);
        }
        if let Some(device) = &self.device {
            if let Some(message) = self.above(device.size) {
                find(HealthReason::CapacityAboveDevice, message);
            }
            if device.is_read_only && self.places.is_writable {
                find(HealthReason::DeviceReadOnly, "the device of the volume is read-only".to_owned());
            }
        }
        of_filesystem(self.state.unwrap_or_default()).for_each(|(reason, message)| find(reason, message));
        if let Some(message) = self.usage.as_ref().and_then(SeenUsage::without_inodes) {
            find(HealthReason::InodesExhausted, message.to_owned());
        }
        findings
    }
}

impl VolumeObservation {
    fn wrong_device(&self, expected: &BTreeSet<PathBuf>) -> Option<String> {
        let VolumePlaces { targets, covered, .. } = &self.places;
        let above: BTreeSet<&PathBuf> = covered.intersection(targets).chain(&self.hidden).collect();
        let above = listed(&above.into_iter().collect::<Vec<_>>());
        let instead: Vec<&PathBuf> = covered.difference(targets).filter(|target| expected.contains(*target)).collect();
        let instead = listed(&instead);
        let all = [
            above.map(|message| format!("another mount covers the volume at {message}")),
            instead.map(|message| format!("what is mounted is not the present device of the volume at {message}")),
        ];
        all.into_iter().flatten().reduce(|one, other| format!("{one}; {other}"))
    }

    fn above(&self, device: u64) -> Option<String> {
        let capacity = self.places.capacity;
        if capacity > device {
            return Some(format!("the device has {device} bytes, and the volume {capacity}"));
        }
        let own = self.usage.as_ref().and_then(SeenUsage::own);
        let filesystem = own.map(|usage| usage.total.max(usage.used)).filter(|size| *size > device);
        filesystem.map(|size| format!("the device has {device} bytes, and its filesystem {size}"))
    }
}

/// What is wrong with a mounted filesystem.
pub(super) fn of_filesystem(state: FilesystemState) -> impl Iterator<Item = (HealthReason, String)> {
    let FilesystemState { is_read_only, errors, is_shut_down } = state;
    let shut_down = || (HealthReason::FilesystemShutDown, "the filesystem has shut down after an error".to_owned());
    let read_only = || (HealthReason::FilesystemReadOnly, "the filesystem is read-only".to_owned());
    let errors = errors.filter(|errors| *errors > 0).map(|errors| {
        // The count may rise all the time, and each change would be a write.
        let message = match 10_u64.pow(errors.ilog10()) {
            1 => "the filesystem has counted errors".to_owned(),
            many => format!("the filesystem has counted {many} errors or more"),
        };
        (HealthReason::FilesystemErrors, message)
    });
    is_shut_down.then(shut_down).into_iter().chain(is_read_only.then(read_only)).chain(errors)
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
        let (reason, message) = match warning {
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
            None => findings.push(Finding::new(reason, message)),
        }
    }
    if let Some(used) = report.used_percent.filter(|used| *used >= 100) {
        let message = format!("the disk has used {used} % of the endurance that it is rated for");
        findings.push(Finding::new(HealthReason::DiskWornOut, message));
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

    fn reasons(findings: &[Finding]) -> Vec<&str> {
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
            assert_eq!(reasons(&findings), [word]);
        }
        let both = report(vec![DiskWarning::Unreliable, DiskWarning::BackupFailed]);
        let findings = DiskCounters::default().findings(&observation(both));
        assert_eq!(reasons(&findings), ["DiskFailing"]);
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
        assert_eq!(reasons(&findings), ["DiskSpareLow", "DiskWornOut"]);
        assert!(findings[0].message.contains("3 %") && findings[1].message.contains("104 %"), "{findings:?}");
        let fine = DiskReport { used_percent: Some(99), media_errors: Some(7), ..DiskReport::of(Health::Passed) };
        assert_eq!(DiskCounters::default().findings(&observation(fine)), []);
        let nothing = DiskReport::of(Health::Unknown("it is behind a USB bridge".to_owned()));
        assert_eq!(DiskCounters::default().findings(&observation(nothing)), []);
    }

    #[test]
    fn a_sector_that_cannot_be_read_is_a_media_error_and_one_that_was_replaced_is_none() {
        let mut counters = DiskCounters::default();
        let mut update = |media_errors, pending_sectors, reallocated| {
            let reallocated_sectors = Some(reallocated);
            let report =
                DiskReport { media_errors, pending_sectors, reallocated_sectors, ..DiskReport::of(Health::Passed) };
            let findings = counters.findings(&observation(report));
            findings.iter().map(|finding| format!("{}: {}", finding.reason.word(), finding.message)).collect::<String>()
        };
        assert_eq!(update(Some(1), Some(4), 0), "", "it was so before we came");
        assert_eq!(update(Some(1), Some(4), 900), "");
        let lost = "DiskMediaErrors: the disk reports 2 more sectors that it cannot read, 6 now";
        assert_eq!(update(Some(1), Some(6), 900), lost);
        assert_eq!([update(Some(1), None, 900), update(None, Some(0), 906)], ["", ""], "it has replaced them");
        let both = "DiskMediaErrors: the disk reports 1 more media errors, 2 in all; 1 more sectors that it cannot read, 1 now";
        assert_eq!(update(Some(2), Some(1), 906), both);
    }

    #[test]
    fn a_counter_is_an_error_only_where_it_rises_under_our_eyes() {
        let mut counters = DiskCounters::default();
        let mut update = |media_errors, errors, timeouts| {
            let report = DiskReport { media_errors, ..DiskReport::of(Health::Passed) };
            let io = Some(IoErrors { errors, timeouts });
            reasons(&counters.findings(&DiskObservation { io, ..observation(report) })).join(" ")
        };
        assert_eq!(update(Some(5), 100, 2), "", "it was so before we came");
        assert_eq!(update(Some(5), 100, 2), "");
        assert_eq!(update(Some(6), 100, 3), "DiskMediaErrors DiskIoErrors");
        assert_eq!(update(None, 119, 3), "", "the kernel has asked for what the disk does not know");
        assert_eq!(update(None, 139, 3), "DiskIoErrors");
        assert_eq!(update(Some(6), 139, 3), "", "a report without the counter forgets nothing");
        assert_eq!(update(Some(0), 0, 0), "", "it began again");
        assert_eq!(update(Some(1), 0, 0), "DiskMediaErrors");
    }

    #[test]
    fn a_volume_is_judged_by_its_mounts_and_the_state_of_its_filesystem() {
        let paths = |paths: &[&str]| paths.iter().map(PathBuf::from).collect::<BTreeSet<_>>();
        let places = VolumePlaces { targets: paths(&["/a", "/b"]), capacity: 100, ..VolumePlaces::default() };
        let fine = VolumeObservation { places: places.clone(), ..VolumeObservation::default() };
        assert_eq!(fine.findings(&paths(&["/a"])), []);
        assert_eq!(fine.findings(&BTreeSet::new()), [], "nobody asked for it");
        let findings = fine.findings(&paths(&["/a", "/b\nc", "/d"]));
        assert_eq!(reasons(&findings), ["NotMountPoint"]);
        assert_eq!(findings[0].message, "the volume is not mounted any more at /b\\nc and 1 more paths");
        let hidden = VolumeObservation { hidden: paths(&["/a"]), ..fine.clone() };
        assert_eq!(reasons(&hidden.findings(&paths(&["/a"]))), ["WrongDevice"]);
        let in_state = |state| VolumeObservation { state: Some(state), ..fine.clone() }.findings(&BTreeSet::new());
        let state = FilesystemState::default();
        assert_eq!(in_state(FilesystemState { errors: Some(0), ..state }), []);
        let reasons_in = |state| reasons(&in_state(state)).join(" ");
        assert_eq!(reasons_in(FilesystemState { is_shut_down: true, ..state }), "FilesystemShutDown");
        assert_eq!(
            reasons_in(FilesystemState { is_read_only: true, errors: Some(2), ..state }),
            "FilesystemReadOnly FilesystemErrors"
        );
        let message_of = |errors| in_state(FilesystemState { errors: Some(errors), ..state }).remove(0).message;
        assert_eq!(message_of(20), message_of(99), "a count that rises all the time is not a change each time");
        let usage =
            |inodes, inodes_free| FsUsage { total: 9, available: 9, used: 0, inodes, inodes_free, inodes_used: 0 };
        let with = |usage| VolumeObservation { usage: Some(usage), ..fine.clone() }.findings(&BTreeSet::new());
        for of in [SeenUsage::Own, SeenUsage::Shared] {
            assert_eq!(reasons(&with(of(usage(10, 0)))), ["InodesExhausted"]);
            assert_eq!(with(of(usage(10, 1))), []);
            assert_eq!(with(of(usage(0, 0))), [], "btrfs has no fixed number of inodes");
        }
    }

    #[test]
    fn a_volume_is_judged_by_what_is_on_top_of_its_targets_and_by_its_device() {
        let paths = |paths: &[&str]| paths.iter().map(PathBuf::from).collect::<BTreeSet<_>>();
        let places = VolumePlaces { capacity: 100, targets: paths(&["/a"]), ..VolumePlaces::default() };
        let device = DeviceLimits { size: 100, is_read_only: false };
        let seen = |places: &VolumePlaces, device| {
            let seen = VolumeObservation { places: places.clone(), device: Some(device), ..Default::default() };
            seen.findings(&paths(&["/a"]))
        };
        assert_eq!(seen(&places, device), []);
        let covered = VolumePlaces { covered: paths(&["/a"]), ..places.clone() };
        let findings = seen(&covered, device);
        assert_eq!(reasons(&findings), ["WrongDevice"]);
        assert_eq!(findings[0].message, "another mount covers the volume at /a");
        let instead = VolumePlaces { targets: paths(&[]), ..covered.clone() };
        let findings = seen(&instead, device);
        assert_eq!(reasons(&findings), ["WrongDevice"], "something is mounted there");
        assert!(findings[0].message.contains("not the present device"), "{findings:?}");
        let unexpected = VolumeObservation { places: instead, ..Default::default() };
        assert_eq!(unexpected.findings(&paths(&[])), [], "that is nobody's business");

        let small = DeviceLimits { size: 99, ..device };
        assert_eq!(reasons(&seen(&places, small)), ["CapacityAboveDevice"]);
        let usage = FsUsage { total: 101, inodes: 1, inodes_free: 1, ..FsUsage::default() };
        let full = VolumeObservation {
            places: places.clone(),
            usage: Some(SeenUsage::Own(usage)),
            device: Some(device),
            ..Default::default()
        };
        assert_eq!(reasons(&full.findings(&paths(&[]))), ["CapacityAboveDevice"]);
        let shared = VolumeObservation { usage: Some(SeenUsage::Shared(usage)), ..full.clone() };
        assert_eq!(shared.findings(&paths(&[])), [], "that is not of the volume");
        let read_only = DeviceLimits { is_read_only: true, ..device };
        assert_eq!(seen(&places, read_only), [], "it was published read-only, or not at all");
        let writable = VolumePlaces { is_writable: true, ..places };
        assert_eq!(reasons(&seen(&writable, read_only)), ["DeviceReadOnly"]);
        let capacity = full.places.capacity;
        let grown = full.clone().now_at(VolumePlaces { capacity: capacity + 1, ..full.places.clone() });
        assert_eq!(grown.device, None, "it was looked at before the volume grew");
        let gone = full.now_at(VolumePlaces { capacity, ..VolumePlaces::default() });
        assert_eq!((gone.usage, gone.device), (None, Some(device)), "a device stays one without a mount");
    }

    #[test]
    fn a_silent_disk_is_a_finding_of_its_own() {
        let silent = DiskObservation { silent: Some("it has not answered".to_owned()), ..DiskObservation::default() };
        assert_eq!(reasons(&DiskCounters::default().findings(&silent)), ["DiskNotAnswering"]);
    }
}
