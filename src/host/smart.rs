//! What a disk says of its own health: the SMART log of NVMe, SMART RETURN STATUS of ATA, the informational exceptions
//! of SCSI.
//!
//! Takes in a scanned disk, gives out a [`Health`]. The decoding is pure, from bytes to values, by the specifications;
//! asking opens the node read-only. A device that does not say, or cannot be asked (a partition, a loop device, virtio,
//! a disk behind a USB bridge or a RAID controller), is [`Health::Unknown`], never Passed.

use std::fs::File;
use std::time::Duration;

use nix::libc;

use super::disk::{Mode, open_verified};
use super::error::{HostError, chain};
use super::health::Health;
use super::ioctl::{self, ScsiReply};
use super::raw::{Kind, RawDisk};

/// How long a disk may take to answer.
const ANSWER_AT_MOST: Duration = Duration::from_secs(10);
/// Log page 02h of NVMe.
const NVME_SMART: u8 = 0x02;
const NVME_SMART_BYTES: usize = 512;
/// Log page 2Fh of SCSI, and as much of it as is read.
const EXCEPTIONS: u8 = 0x2f;
const EXCEPTIONS_BYTES: u8 = 252;
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

/// Asks a disk.
pub fn ask(disk: &RawDisk) -> Health {
    let language = match language(disk) {
        Ok(language) => language,
        Err(why) => return Health::Unknown(why.to_owned()),
    };
    let answer = open_verified(disk, Mode::Read, libc::O_NONBLOCK).and_then(|file| speak(&file, disk, language));
    answer.unwrap_or_else(|error| Health::Unknown(chain(&error)))
}

fn language(disk: &RawDisk) -> Result<Language, &'static str> {
    if disk.kind != Kind::Disk {
        return Err("only whole disks of NVMe, SATA and SAS say how they are");
    }
    match disk.transport.as_deref() {
        _ if disk.name.starts_with("nvme") => Ok(Language::Nvme),
        _ if !disk.name.starts_with("sd") => Err("it is no disk of NVMe, SATA or SAS"),
        Some("sata") => Ok(Language::Ata),
        // Bridges are known to stop at commands that they do not know.
        Some("usb") => Err("it is behind a USB bridge, which is not asked"),
        _ => Ok(Language::Scsi),
    }
}

fn speak(file: &File, disk: &RawDisk, language: Language) -> Result<Health, HostError> {
    let failed = |source| HostError::Io { what: "ask the health of", object: disk.path.display().to_string(), source };
    Ok(match language {
        Language::Nvme => {
            let mut log = [0; NVME_SMART_BYTES];
            ioctl::nvme_log(file, NVME_SMART, &mut log, ANSWER_AT_MOST).map_err(failed)?;
            of_nvme(&log)
        }
        Language::Ata => {
            of_ata(&ioctl::scsi_command(file, &ATA_RETURN_STATUS, &mut [], ANSWER_AT_MOST).map_err(failed)?)
        }
        Language::Scsi => {
            let mut page = [0; EXCEPTIONS_BYTES as usize];
            let reply = ioctl::scsi_command(file, &LOG_SENSE, &mut page, ANSWER_AT_MOST).map_err(failed)?;
            of_scsi(&reply, &page)
        }
    })
}

/// ATA PASS-THROUGH (16) of SMART RETURN STATUS (B0h, DAh): no data; the registers come back in the sense data.
const ATA_RETURN_STATUS: [u8; 16] =
    [0x85, 3 << 1, 1 << 5, 0, 0xda, 0, 0, 0, 0, 0, ATA_GOOD.0, 0, ATA_GOOD.1, 0, 0xb0, 0];
/// LOG SENSE of the current values of page 2Fh.
const LOG_SENSE: [u8; 10] = [0x4d, 0, (1 << 6) | EXCEPTIONS, 0, 0, 0, 0, 0, EXCEPTIONS_BYTES, 0];

/// The bits of the critical warning, byte 0 of the log.
const NVME_WARNINGS: [&str; 6] = [
    "spare space is low",
    "it is too hot or too cold",
    "its reliability is degraded by media errors",
    "it has become read-only",
    "the backup of its volatile memory failed",
    "its persistent memory is read-only or unreliable",
];

fn of_nvme(log: &[u8]) -> Health {
    let Some(warning) = log.first() else { return Health::Unknown("its SMART log is empty".to_owned()) };
    if *warning == 0 {
        // A log of zeros alone: no temperature and no spare, which no real disk has.
        return match log.iter().all(|byte| *byte == 0) {
            true => Health::Unknown("its SMART log says nothing".to_owned()),
            false => Health::Passed,
        };
    }
    let names = NVME_WARNINGS.iter().enumerate().filter(|(bit, _)| warning & (1 << bit) != 0).map(|(_, name)| *name);
    let mut words: Vec<&str> = names.collect();
    if warning >> NVME_WARNINGS.len() != 0 {
        words.push("a warning that is not known here");
    }
    Health::Failing(format!("critical warning: {}", words.join(", ")))
}

fn of_ata(reply: &ScsiReply) -> Health {
    let unknown = |why: &str| Health::Unknown(why.to_owned());
    match ata_registers(&reply.sense) {
        Some(ATA_GOOD) => Health::Passed,
        Some(ATA_FAILING) => Health::Failing("a SMART attribute is below its threshold".to_owned()),
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

fn of_scsi(reply: &ScsiReply, page: &[u8]) -> Health {
    let unknown = |why: &str| Health::Unknown(why.to_owned());
    if reply.status != 0 {
        return unknown("it has no log of informational exceptions");
    }
    // Header of the page, then parameter 0: code, control, length, additional sense code and its qualifier.
    let (code, qualifier) = match page {
        [head, _, _, _, 0, 0, _, length, code, qualifier, ..] if head & 0x3f == EXCEPTIONS && *length >= 2 => {
            (*code, *qualifier)
        }
        _ => return unknown("its log of informational exceptions cannot be read"),
    };
    match code {
        0 => Health::Passed,
        0x5d => Health::Failing(format!("it predicts its failure (5Dh/{qualifier:02X}h)")),
        0x0b => Health::Failing(format!("it warns (0Bh/{qualifier:02X}h)")),
        _ => Health::Failing(format!("it reports an exception ({code:02X}h/{qualifier:02X}h)")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::raw::{DevNo, Partition};

    fn reply(sense: &[u8]) -> ScsiReply {
        ScsiReply { status: 2, sense: sense.to_vec() }
    }

    fn failing(words: &str) -> Health {
        Health::Failing(words.to_owned())
    }

    #[test]
    fn each_bit_of_the_critical_warning_of_nvme_is_named() {
        let mut log = [0; NVME_SMART_BYTES];
        assert!(matches!(of_nvme(&log), Health::Unknown(_)), "a log that nobody filled");
        (log[1], log[3]) = (0x36, 100);
        assert_eq!(of_nvme(&log), Health::Passed);
        for (bit, name) in NVME_WARNINGS.iter().enumerate() {
            log[0] = 1 << bit;
            assert_eq!(of_nvme(&log), failing(&format!("critical warning: {name}")));
        }
        log[0] = 0b1000_0101;
        let words = "spare space is low, its reliability is degraded by media errors, a warning that is not known here";
        assert_eq!(of_nvme(&log), failing(&format!("critical warning: {words}")));
        assert!(matches!(of_nvme(&[]), Health::Unknown(_)));
    }

    /// Descriptor sense data: a descriptor of another kind, then the ATA status return.
    fn descriptors(mid: u8, high: u8) -> Vec<u8> {
        let mut sense = vec![0x72, 0x01, 0x00, 0x1d, 0, 0, 0, 18, 0x02, 0x02, 0, 0];
        sense.extend([0x09, 0x0c, 0, 0, 0, 0, 0, 0, 0, mid, 0, high, 0, 0x50]);
        sense
    }

    #[test]
    fn an_ata_disk_says_by_two_registers_whether_it_is_failing() {
        assert_eq!(of_ata(&reply(&descriptors(0x4f, 0xc2))), Health::Passed);
        let bad = failing("a SMART attribute is below its threshold");
        assert_eq!(of_ata(&reply(&descriptors(0xf4, 0x2c))), bad);
        let fixed = |mid, high| vec![0x70, 0, 1, 0, 0x50, 0, 0, 10, 0, 0, mid, high, 0x00, 0x1d, 0, 0, 0, 0];
        assert_eq!(of_ata(&reply(&fixed(0x4f, 0xc2))), Health::Passed);
        assert_eq!(of_ata(&reply(&fixed(0xf4, 0x2c))), bad);
        for sense in [descriptors(0, 0), vec![], vec![0x72], vec![0x70; 12], descriptors(0x4f, 0xc2)[..20].to_vec()] {
            assert!(matches!(of_ata(&reply(&sense)), Health::Unknown(_)), "{sense:x?}");
        }
        // A refusal: illegal request, invalid field in the command.
        assert!(matches!(of_ata(&reply(&[0x70, 0, 5, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0x24, 0])), Health::Unknown(_)));
    }

    #[test]
    fn a_scsi_disk_says_by_its_informational_exceptions() {
        let page = |code, qualifier| [0x2f, 0, 0, 8, 0, 0, 3, 4, code, qualifier, 31, 0];
        let good = ScsiReply { status: 0, sense: Vec::new() };
        assert_eq!(of_scsi(&good, &page(0, 0)), Health::Passed);
        assert_eq!(of_scsi(&good, &page(0x5d, 0x10)), failing("it predicts its failure (5Dh/10h)"));
        assert_eq!(of_scsi(&good, &page(0x0b, 0x01)), failing("it warns (0Bh/01h)"));
        assert_eq!(of_scsi(&good, &page(0x44, 0x00)), failing("it reports an exception (44h/00h)"));
        for page in [&[0; 12][..], &[0x2f, 0, 0, 0], &[], &[0x2e, 0, 0, 8, 0, 0, 3, 4, 0, 0, 0, 0]] {
            assert!(matches!(of_scsi(&good, page), Health::Unknown(_)), "{page:x?}");
        }
        assert!(matches!(of_scsi(&reply(&[]), &page(0, 0)), Health::Unknown(_)));
    }

    #[test]
    fn a_disk_is_asked_in_its_own_language_and_what_has_none_is_unknown() {
        let disk = |name: &str, transport: Option<&str>, kind: Kind| RawDisk {
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
            assert_eq!(language(&disk(name, transport, Kind::Disk)).map_err(drop), wanted, "{name} {transport:?}");
        }
        let partition = Partition { disk: "sda".into(), number: 1, start: 0, part_uuid: None, part_label: None };
        for kind in [Kind::Partition(partition), Kind::Loop(None), Kind::Rom] {
            assert!(matches!(ask(&disk("sda1", Some("sata"), kind)), Health::Unknown(_)));
        }
        assert!(matches!(ask(&disk("sda", Some("sata"), Kind::Disk)), Health::Unknown(_)), "it is not there");
    }
}
