//! What a disk says of its own health: the SMART log of NVMe, SMART RETURN STATUS of ATA, the informational exceptions
//! of SCSI; and what the last two report besides (`ata`, `scsi`).
//!
//! Takes in a scanned disk, gives out a [`DiskReport`]. The decoding is pure, from bytes to values, by the
//! specifications; asking opens the node read-only. A device that does not say, or cannot be asked (a partition, a loop
//! device, virtio, a disk behind a USB bridge or a RAID controller), is [`Health::Unknown`], never Passed. If nothing
//! else finds that it does not answer, it is read. A value that no disk can have is not reported.

mod ata;
mod page;
mod scsi;

use std::fs::File;
use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

use nix::libc;

use self::page::{PageAnswer, Unanswered};
use super::block::BlockDevice as _;
use super::disk::{Mode, RealDisk, open_verified};
use super::error::{HostError, chain};
use super::health::{DiskReport, DiskWarning, Health};
use super::ioctl::{self, ScsiReply};
use super::port::Access;
use super::raw::{DeviceKind, RawDisk};

/// How long a disk may take to answer.
const ANSWER_AT_MOST: Duration = Duration::from_secs(10);
/// How long all further questions to it may take. By then it is awake, and a person waits who asks for devices.
const DETAILS_AT_MOST: Duration = Duration::from_secs(5);
/// Log page 02h of NVMe.
const NVME_SMART: u8 = 0x02;
const NVME_SMART_BYTES: usize = 512;
/// Log page 2Fh of SCSI, and as much of it as is read.
const EXCEPTIONS: u8 = 0x2f;
const EXCEPTIONS_BYTES: u8 = 252;
/// The number of a log page, and the bit that says that it is a subpage, which is another log.
const PAGE: u8 = 0x7f;
/// The registers LBA mid and high as a healthy ATA disk leaves them, and as a failing one turns them.
const ATA_GOOD: (u8, u8) = (0x4f, 0xc2);
const ATA_FAILING: (u8, u8) = (0xf4, 0x2c);

/// How a disk is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Language {
    Nvme,
    Ata,
    Scsi,
}

/// Why a disk is not asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
enum NotAsked {
    #[error("only whole NVMe, SATA and SAS disks report their health")]
    NoDisk,
    #[error("it is not an NVMe, SATA or SAS disk")]
    OtherDisk,
    /// Bridges are known to stop at commands that they do not know.
    #[error("it is behind a USB bridge, which is not asked")]
    UsbBridge,
}

/// Asks a disk.
pub fn ask(disk: &RawDisk) -> DiskReport {
    let language = match language(disk) {
        Ok(language) => language,
        Err(why) => {
            if !disk.has_timeouts() {
                read(disk);
            }
            return unknown(&why.to_string());
        }
    };
    let answer = open_verified(disk, Mode::Read, libc::O_NONBLOCK).and_then(|file| speak(&file, disk, language));
    answer.unwrap_or_else(|error| unknown(&chain(&error)))
}

/// Whether it answers is all that a device can say that reports nothing. What it answers does not matter.
fn read(disk: &RawDisk) {
    if let Ok(disk) = RealDisk::open(disk, Access::ReadOnly) {
        let _ = disk.read_at(0, &mut [0]);
    }
}

fn unknown(why: &str) -> DiskReport {
    DiskReport::of(Health::Unknown(why.to_owned()))
}

fn warns(of: DiskWarning) -> DiskReport {
    DiskReport { warnings: vec![of.clone()], ..DiskReport::of(Health::Failing(of.to_string())) }
}

fn language(disk: &RawDisk) -> Result<Language, NotAsked> {
    if disk.kind != DeviceKind::Disk {
        return Err(NotAsked::NoDisk);
    }
    match disk.transport.as_deref() {
        _ if disk.name.starts_with("nvme") => Ok(Language::Nvme),
        _ if !disk.name.starts_with("sd") => Err(NotAsked::OtherDisk),
        Some("sata") => Ok(Language::Ata),
        Some("usb") => Err(NotAsked::UsbBridge),
        _ => Ok(Language::Scsi),
    }
}

fn speak(file: &File, disk: &RawDisk, language: Language) -> Result<DiskReport, HostError> {
    let failed = |source| HostError::Io { what: "ask the health of", object: disk.path.display().to_string(), source };
    Ok(match language {
        Language::Nvme => {
            let mut log = [0; NVME_SMART_BYTES];
            ioctl::nvme_log(file, NVME_SMART, &mut log, ANSWER_AT_MOST).map_err(failed)?;
            of_nvme(&log)
        }
        Language::Ata => {
            let reply = ioctl::scsi_command(file, &ATA_RETURN_STATUS, &mut [], ANSWER_AT_MOST).map_err(failed)?;
            match of_ata(&reply) {
                report @ DiskReport { health: Health::Unknown(_), .. } => report,
                report => ata::complete(report, details(file, ata::SECTOR)),
            }
        }
        Language::Scsi => {
            let mut page = [0; EXCEPTIONS_BYTES as usize];
            let reply = ioctl::scsi_command(file, &LOG_SENSE, &mut page, ANSWER_AT_MOST).map_err(failed)?;
            match of_scsi(&reply, &page) {
                report @ DiskReport { health: Health::Unknown(_), .. } => report,
                report => scsi::complete(report, details(file, scsi::PAGE)),
            }
        }
    })
}

/// Asks what the disk need not know, one question after the other.
fn details<const N: usize>(file: &File, bytes: usize) -> impl FnMut(&[u8; N]) -> PageAnswer {
    let end = Instant::now() + DETAILS_AT_MOST;
    move |command: &[u8; N]| {
        let left = end.checked_duration_since(Instant::now()).ok_or(Unanswered)?;
        let mut page = vec![0; bytes];
        let reply = ioctl::scsi_command(file, command, &mut page, left.max(Duration::from_millis(1)));
        page::answer(&reply.map_err(|_| Unanswered)?, page)
    }
}

/// ATA PASS-THROUGH (16) of SMART RETURN STATUS (B0h, DAh): no data; the registers come back in the sense data.
const ATA_RETURN_STATUS: [u8; 16] =
    [0x85, 3 << 1, 1 << 5, 0, 0xda, 0, 0, 0, 0, 0, ATA_GOOD.0, 0, ATA_GOOD.1, 0, 0xb0, 0];
/// LOG SENSE of the current values of page 2Fh.
const LOG_SENSE: [u8; 10] = [0x4d, 0, (1 << 6) | EXCEPTIONS, 0, 0, 0, 0, 0, EXCEPTIONS_BYTES, 0];

/// The bits of the critical warning, byte 0 of the log.
const NVME_WARNINGS: [DiskWarning; 6] = [
    DiskWarning::SpareLow,
    DiskWarning::Temperature,
    DiskWarning::Unreliable,
    DiskWarning::ReadOnly,
    DiskWarning::BackupFailed,
    DiskWarning::PersistentMemory,
];
/// What a sensor of a disk may read: beyond these its word is no temperature.
const POSSIBLE_CELSIUS: RangeInclusive<i16> = -100..=200;

fn of_nvme(log: &[u8]) -> DiskReport {
    let Some(warning) = log.first() else { return unknown("its SMART log is empty") };
    // No real disk has no temperature and no spare, nor all of it.
    if [0, 0xff].contains(warning) && log.iter().all(|byte| byte == warning) {
        return unknown("its SMART log reports nothing");
    }
    let known = NVME_WARNINGS.into_iter().enumerate();
    let mut warnings: Vec<DiskWarning> =
        known.filter(|(bit, _)| warning & (1 << bit) != 0).map(|(_, warning)| warning).collect();
    if warning >> NVME_WARNINGS.len() != 0 {
        warnings.push(DiskWarning::Other("an unknown warning".to_owned()));
    }
    let failures = warnings.iter().filter(|warning| **warning != DiskWarning::Temperature);
    let messages: Vec<String> = failures.map(ToString::to_string).collect();
    let health = match messages.is_empty() {
        true => Health::Passed,
        false => Health::Failing(format!("critical warning: {}", messages.join(", "))),
    };
    // A disk that has spare space has a threshold for it; virtual ones fill in neither.
    let has_spare = log.get(3..5).is_some_and(|both| both != [0, 0]);
    let spare = |at: usize| log.get(at).copied().filter(|percent| has_spare && *percent <= 100);
    let kelvin = bytes_at(log, 1).map(u16::from_le_bytes).and_then(|kelvin| i16::try_from(kelvin).ok());
    let count = |at| bytes_at(log, at).map(u128::from_le_bytes).map(|count| u64::try_from(count).unwrap_or(u64::MAX));
    DiskReport {
        health,
        warnings,
        unanswered: Vec::new(),
        media_errors: count(160),
        pending_sectors: None,
        reallocated_sectors: None,
        error_log_entries: count(176),
        spare_percent: spare(3),
        spare_threshold_percent: spare(4),
        used_percent: log.get(5).copied(),
        temperature_celsius: kelvin.map(|kelvin| kelvin - 273).filter(|celsius| POSSIBLE_CELSIUS.contains(celsius)),
    }
}

fn bytes_at<const N: usize>(log: &[u8], at: usize) -> Option<[u8; N]> {
    log.get(at..)?.first_chunk().copied()
}

fn of_ata(reply: &ScsiReply) -> DiskReport {
    match ata_registers(&reply.sense) {
        Some(ATA_GOOD) => DiskReport::of(Health::Passed),
        Some(ATA_FAILING) => warns(DiskWarning::PredictsFailure("a SMART attribute is below its threshold".to_owned())),
        Some(_) => unknown("its SMART status is neither good nor bad; is SMART turned off?"),
        None => unknown("it does not answer SMART RETURN STATUS"),
    }
}

/// LBA mid and high, from an ATA status return descriptor or from sense data of the fixed format.
fn ata_registers(sense: &[u8]) -> Option<(u8, u8)> {
    match sense.first()? & 0x7f {
        0x72 | 0x73 => {
            let mut rest = sense.get(8..)?;
            while let [code, length, ..] = rest {
                if (*code, *length) == (0x09, 0x0c) {
                    return Some((*rest.get(9)?, *rest.get(11)?));
                }
                rest = rest.get(2 + usize::from(*length)..)?;
            }
            None
        }
        // "ATA pass-through information available"
        0x70 | 0x71 if sense.get(12..14)? == [0x00, 0x1d] => Some((*sense.get(10)?, *sense.get(11)?)),
        _ => None,
    }
}

fn of_scsi(reply: &ScsiReply, page: &[u8]) -> DiskReport {
    if reply.status != 0 {
        return unknown("it has no log of informational exceptions");
    }
    // Header of the page, then parameter 0: code, control, length, additional sense code and its qualifier, and the
    // temperature, which older disks do not have.
    let (code, qualifier, temperature) = match page {
        [head, _, _, _, 0, 0, _, length, code, qualifier, rest @ ..] if head & PAGE == EXCEPTIONS && *length >= 2 => {
            (*code, *qualifier, rest.first().filter(|_| *length >= 3))
        }
        _ => return unknown("its log of informational exceptions cannot be read"),
    };
    let report = match (code, qualifier) {
        (0, _) => DiskReport::of(Health::Passed),
        (0x5d, _) => warns(DiskWarning::PredictsFailure(format!("it predicts its failure (5Dh/{qualifier:02X}h)"))),
        // It has one exception at a time.
        (0x0b, 0x01) => DiskReport { warnings: vec![DiskWarning::Temperature], ..DiskReport::of(Health::Passed) },
        (0x0b, _) => warns(DiskWarning::Other(format!("it warns (0Bh/{qualifier:02X}h)"))),
        _ => warns(DiskWarning::Other(format!("it reports an exception ({code:02X}h/{qualifier:02X}h)"))),
    };
    // 0 and FFh: it has no sensor.
    let known = temperature.filter(|celsius| ![0, 0xff].contains(*celsius)).map(|celsius| i16::from(*celsius));
    DiskReport { temperature_celsius: known.filter(|celsius| POSSIBLE_CELSIUS.contains(celsius)), ..report }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::raw::{DevNo, Partition};

    fn reply(sense: &[u8]) -> ScsiReply {
        ScsiReply { status: 2, sense: sense.to_vec() }
    }

    fn says(report: &DiskReport, health: &Health, warnings: &[DiskWarning]) {
        assert_eq!((&report.health, &report.warnings[..]), (health, warnings));
    }

    fn failing(message: &str) -> Health {
        Health::Failing(message.to_owned())
    }

    fn is_unknown(report: &DiskReport) -> bool {
        matches!(report.health, Health::Unknown(_)) && *report == DiskReport::of(report.health.clone())
    }

    #[test]
    fn each_bit_of_the_critical_warning_of_nvme_is_named() {
        let mut log = [0; NVME_SMART_BYTES];
        (log[1], log[3]) = (0x36, 100);
        says(&of_nvme(&log), &Health::Passed, &[]);
        for (bit, warning) in NVME_WARNINGS.into_iter().enumerate() {
            log[0] = 1 << bit;
            let health = match warning {
                DiskWarning::Temperature => Health::Passed,
                _ => failing(&format!("critical warning: {warning}")),
            };
            says(&of_nvme(&log), &health, &[warning]);
        }
        log[0] = 0b11;
        let both = [DiskWarning::SpareLow, DiskWarning::Temperature];
        says(&of_nvme(&log), &failing("critical warning: spare space is low"), &both);
        log[0] = 0b1000_0101;
        let message = "spare space is low, its reliability is degraded by media errors, an unknown warning";
        let unknown = DiskWarning::Other("an unknown warning".to_owned());
        let warnings = [DiskWarning::SpareLow, DiskWarning::Unreliable, unknown];
        says(&of_nvme(&log), &failing(&format!("critical warning: {message}")), &warnings);
    }

    #[test]
    fn the_numbers_of_the_log_of_nvme_are_at_their_places() {
        let mut log: Vec<u8> = (0..NVME_SMART_BYTES).map(|at| u8::try_from(at % 251).unwrap()).collect();
        (log[1], log[2]) = (0x36, 0x01);
        let wanted = DiskReport {
            media_errors: Some(u64::MAX),
            error_log_entries: Some(u64::MAX),
            spare_percent: Some(3),
            spare_threshold_percent: Some(4),
            used_percent: Some(5),
            temperature_celsius: Some(0x136 - 273),
            ..DiskReport::of(Health::Passed)
        };
        assert_eq!(of_nvme(&log), wanted);
        log[168..176].fill(0);
        let counted = u64::from_le_bytes([160, 161, 162, 163, 164, 165, 166, 167]);
        assert_eq!(of_nvme(&log), DiskReport { media_errors: Some(counted), ..wanted.clone() });
        log[184..192].fill(0);
        let entries = u64::from_le_bytes([176, 177, 178, 179, 180, 181, 182, 183]);
        let both = DiskReport { media_errors: Some(counted), error_log_entries: Some(entries), ..wanted.clone() };
        assert_eq!(of_nvme(&log), both);
        // Where it is short, the rest of it is not known.
        assert_eq!(of_nvme(&log[..191]), DiskReport { error_log_entries: None, ..both });
        assert_eq!(of_nvme(&log[..175]), DiskReport { media_errors: None, error_log_entries: None, ..wanted });
        let warm = DiskReport { temperature_celsius: Some(0x136 - 273), ..DiskReport::of(Health::Passed) };
        assert_eq!(of_nvme(&log[..3]), warm);
    }

    #[test]
    fn what_no_disk_can_have_is_not_reported_and_is_no_warning() {
        for log in [&[0; NVME_SMART_BYTES][..], &[0xff; NVME_SMART_BYTES], &[]] {
            assert!(is_unknown(&of_nvme(log)), "a log that nobody filled");
        }
        let read = |kelvin: u16, spare: u8, threshold: u8| {
            let mut log = [0; NVME_SMART_BYTES];
            log[1..3].copy_from_slice(&kelvin.to_le_bytes());
            (log[3], log[4], log[5]) = (spare, threshold, 1);
            let report = of_nvme(&log);
            says(&report, &Health::Passed, &[]);
            (report.temperature_celsius, report.spare_percent, report.spare_threshold_percent)
        };
        assert_eq!(read(0, 101, 10), (None, None, Some(10)));
        // Some disks write degrees Celsius here.
        assert_eq!(read(40, 100, 255), (None, Some(100), None));
        assert_eq!(read(u16::MAX, 0, 10), (None, Some(0), Some(10)));
        assert_eq!(read(263, 5, 0), (Some(-10), Some(5), Some(0)));
        assert_eq!(read(323, 0, 0), (Some(50), None, None), "a virtual disk");
    }

    #[test]
    fn an_answer_of_an_unknown_version_or_shape_is_neither_healthy_nor_failing() {
        let good = ScsiReply { status: 0, sense: Vec::new() };
        // A subpage of the log, a parameter of another code, one that is too short, a page of another number.
        for page in [
            [0x6f, 1, 0, 8, 0, 0, 3, 4, 0x5d, 0, 31, 0],
            [0x2f, 0, 0, 8, 0, 7, 3, 4, 0x5d, 0, 31, 0],
            [0x2f, 0, 0, 8, 0, 0, 3, 1, 0x5d, 0, 31, 0],
            [0x19, 0, 0, 8, 0, 0, 3, 4, 0x5d, 0, 31, 0],
        ] {
            assert!(is_unknown(&of_scsi(&good, &page)), "{page:x?}");
        }
        // Registers that say neither good nor bad, sense data of a vendor's format, a descriptor of another length.
        let other_length = [0x72, 1, 0, 0x1d, 0, 0, 0, 14, 0x09, 0x0d, 0, 0, 0, 0, 0, 0, 0, 0xf4, 0, 0x2c, 0, 0];
        for sense in [&descriptors(0x2c, 0xf4)[..], &[0x7f; 32], &other_length] {
            assert!(is_unknown(&of_ata(&reply(sense))), "{sense:x?}");
        }
        // The log of NVMe has no version: one that nobody filled is no log of any.
        for byte in [0, 0xff] {
            assert!(is_unknown(&of_nvme(&[byte; NVME_SMART_BYTES])));
        }
    }

    /// Descriptor sense data: a descriptor of another kind, then the ATA status return.
    fn descriptors(mid: u8, high: u8) -> Vec<u8> {
        let mut sense = vec![0x72, 0x01, 0x00, 0x1d, 0, 0, 0, 18, 0x02, 0x02, 0, 0];
        sense.extend([0x09, 0x0c, 0, 0, 0, 0, 0, 0, 0, mid, 0, high, 0, 0x50]);
        sense
    }

    #[test]
    fn an_ata_disk_says_by_two_registers_whether_it_is_failing() {
        let passed = DiskReport::of(Health::Passed);
        assert_eq!(of_ata(&reply(&descriptors(0x4f, 0xc2))), passed);
        let message = "a SMART attribute is below its threshold";
        let predicts = DiskWarning::PredictsFailure(message.to_owned());
        let bad = DiskReport { warnings: vec![predicts], ..DiskReport::of(failing(message)) };
        assert_eq!(of_ata(&reply(&descriptors(0xf4, 0x2c))), bad);
        let fixed = |mid, high| vec![0x70, 0, 1, 0, 0x50, 0, 0, 10, 0, 0, mid, high, 0x00, 0x1d, 0, 0, 0, 0];
        assert_eq!(of_ata(&reply(&fixed(0x4f, 0xc2))), passed);
        assert_eq!(of_ata(&reply(&fixed(0xf4, 0x2c))), bad);
        for sense in [descriptors(0, 0), vec![], vec![0x72], vec![0x70; 12], descriptors(0x4f, 0xc2)[..20].to_vec()] {
            assert!(is_unknown(&of_ata(&reply(&sense))), "{sense:x?}");
        }
        // A refusal: illegal request, invalid field in the command.
        assert!(is_unknown(&of_ata(&reply(&[0x70, 0, 5, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0x24, 0]))));
    }

    #[test]
    fn a_scsi_disk_says_by_its_informational_exceptions() {
        let page = |code, qualifier| [0x2f, 0, 0, 8, 0, 0, 3, 4, code, qualifier, 31, 0];
        let good = ScsiReply { status: 0, sense: Vec::new() };
        let warned = |code, qualifier, message: &str, warning: fn(String) -> DiskWarning| {
            says(&of_scsi(&good, &page(code, qualifier)), &failing(message), &[warning(message.to_owned())]);
        };
        says(&of_scsi(&good, &page(0, 0)), &Health::Passed, &[]);
        warned(0x5d, 0x10, "it predicts its failure (5Dh/10h)", DiskWarning::PredictsFailure);
        says(&of_scsi(&good, &page(0x0b, 0x01)), &Health::Passed, &[DiskWarning::Temperature]);
        warned(0x0b, 0x02, "it warns (0Bh/02h)", DiskWarning::Other);
        warned(0x44, 0x00, "it reports an exception (44h/00h)", DiskWarning::Other);
        for page in [&[0; 12][..], &[0x2f, 0, 0, 0], &[], &[0x2e, 0, 0, 8, 0, 0, 3, 4, 0, 0, 0, 0]] {
            assert!(is_unknown(&of_scsi(&good, page)), "{page:x?}");
        }
        assert!(is_unknown(&of_scsi(&reply(&[]), &page(0, 0))));
    }

    #[test]
    fn a_scsi_disk_may_say_how_warm_it_is() {
        let good = ScsiReply { status: 0, sense: Vec::new() };
        let celsius = |length, temperature| {
            let report = of_scsi(&good, &[0x2f, 0, 0, 8, 0, 0, 3, length, 0x5d, 0, temperature, 0]);
            assert!(matches!(report.health, Health::Failing(_)));
            report.temperature_celsius
        };
        assert_eq!(celsius(4, 31), Some(31));
        assert_eq!([celsius(2, 31), celsius(4, 0), celsius(4, 0xff), celsius(4, 201)], [None; 4]);
        assert_eq!(of_scsi(&good, &[0x2f, 0, 0, 6, 0, 0, 3, 4, 0, 0]), DiskReport::of(Health::Passed), "it is short");
    }

    #[test]
    fn a_disk_is_asked_in_its_own_language_and_what_has_none_is_unknown() {
        let disk = |name: &str, transport: Option<&str>, kind: DeviceKind| RawDisk {
            transport: transport.map(str::to_owned),
            ..RawDisk::named(name.into(), "/nowhere".into(), DevNo { major: 0, minor: 0 }, kind)
        };
        for (name, transport, wanted) in [
            ("nvme0n1", Some("nvme"), Ok(Language::Nvme)),
            ("nvme0n1", Some("tcp"), Ok(Language::Nvme)),
            ("sda", Some("sata"), Ok(Language::Ata)),
            ("sda", Some("sas"), Ok(Language::Scsi)),
            ("sda", None, Ok(Language::Scsi)),
            ("sda", Some("usb"), Err(())),
            ("vda", Some("virtio"), Err(())),
            ("mmcblk0", Some("mmc"), Err(())),
        ] {
            assert_eq!(
                language(&disk(name, transport, DeviceKind::Disk)).map_err(drop),
                wanted,
                "{name} {transport:?}"
            );
        }
        let partition = Partition { disk: "sda".into(), number: 1, start: 0, part_uuid: None, part_label: None };
        for kind in [DeviceKind::Partition(partition), DeviceKind::Loop(None), DeviceKind::Rom] {
            assert!(is_unknown(&ask(&disk("sda1", Some("sata"), kind))));
        }
        assert!(is_unknown(&ask(&disk("sda", Some("sata"), DeviceKind::Disk))), "it is not there");
    }
}
