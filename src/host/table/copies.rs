//! The two copies of a table on a disk, and which of them is to be believed.
//!
//! Reads only. The backup is where a sound primary says, else in the last sector; we look at both places ourselves,
//! since libblkid does not see a lone backup.

use std::fmt;

use super::codec::{self, Header};
use super::ends::Ends;
use super::error::TableError;
use super::lba::Lba;
use super::over;
use super::partitions::{Ours, SECTORS, Table};
use crate::host::block::{BlockDevice, Geometry, IoError};

/// A piece of a table on the disk, in the order in which they are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    Backup,
    Primary,
    Mbr,
}

/// What sector 0 holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mbr {
    /// No boot signature.
    None,
    /// One record, of type EE from sector 1: a GPT follows.
    Protective,
    /// A protective record and others beside it.
    Hybrid,
    /// A DOS partition table, or a boot sector, and how many of its records are in use.
    Dos { records: usize },
}

/// What was read of a table. Nothing is chosen yet.
#[derive(Debug)]
pub struct TableCopies {
    pub geometry: Geometry,
    pub mbr: Result<Mbr, IoError>,
    pub primary: Result<Table, TableError>,
    pub backup: Result<Table, TableError>,
    /// The sector where the backup's header was looked for; on a disk that has grown not its last one.
    pub backup_at: Lba,
    /// The other sector size, if a GPT signature is where a disk with that sector size has it.
    pub other_sector: Result<Option<u32>, IoError>,
    /// What somebody made over the primary or the MBR; looked for if one of them is not sound.
    pub over: Option<&'static str>,
}

/// A localpool table, and what has to be rewritten before the disk has both copies again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    pub table: Table,
    /// The copy that it was read from: never the MBR.
    pub good: Part,
    /// Sorted; empty when nothing is to be done.
    pub stale: Vec<Part>,
}

/// Why a disk has no localpool table.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TableRefusal {
    #[error("no partition table")]
    Absent,
    /// Somebody else's; the text says what was found.
    #[error("{0}")]
    OfOthers(String),
    /// A localpool table, but contradicted by what lies beside it in a way that no stopped write explains.
    #[error("{0}")]
    Broken(String),
    #[error("the partition table cannot be read: {0}")]
    Unreadable(String),
}

/// Reads MBR, primary and backup. Each keeps its own failure.
pub fn read_copies(dev: &dyn BlockDevice) -> TableCopies {
    let ends = &Ends::read(dev);
    let geometry = dev.geometry();
    let ((primary, backup), backup_at) = if SECTORS.contains(&geometry.sector) {
        let last = Lba::last_of(geometry.size, geometry.sector);
        let header = read_header(ends, Lba::PRIMARY, last);
        let backup_at = header.as_ref().map_or(last, |header| header.alternate);
        ((header.and_then(|header| read_table(ends, &header)), copy_at(ends, backup_at)), backup_at)
    } else {
        let unknown = || Err(TableError::Sector { sector: geometry.sector });
        ((unknown(), unknown()), Lba(0))
    };
    let mbr = read_mbr(ends);
    let is_whole = primary.is_ok() && matches!(mbr, Ok(Mbr::Protective));
    let over = if is_whole || !SECTORS.contains(&geometry.sector) { None } else { over::find(ends) };
    TableCopies { geometry, mbr, primary, backup, backup_at, other_sector: read_other_sector(ends), over }
}

/// The copy whose header is at sector `at`.
pub(super) fn read_copy(dev: &dyn BlockDevice, at: Lba) -> Result<Table, TableError> {
    copy_at(&Ends::unread(dev), at)
}

fn copy_at(dev: &Ends<'_>, at: Lba) -> Result<Table, TableError> {
    let Geometry { size, sector, .. } = dev.geometry();
    read_header(dev, at, Lba::last_of(size, sector)).and_then(|header| read_table(dev, &header))
}

fn read_header(dev: &Ends<'_>, at: Lba, last: Lba) -> Result<Header, TableError> {
    let Geometry { size, sector, .. } = dev.geometry();
    if at == Lba(0) || at > last {
        return Err(TableError::TooSmall { size });
    }
    let mut block = vec![0; sector as usize];
    let read = dev.read_at(at.start(sector), &mut block);
    read.map_err(|source| TableError::Unreadable { disk: None, source })?;
    codec::header(&block, at, last)
}

fn read_table(dev: &Ends<'_>, header: &Header) -> Result<Table, TableError> {
    let sector = dev.geometry().sector;
    let mut array = vec![0; codec::array_bytes(header, sector)];
    let read = dev.read_at(header.array.start(sector), &mut array);
    read.map_err(|source| TableError::Unreadable { disk: Some(header.disk), source })?;
    codec::table(header, &array, sector)
}

fn read_mbr(dev: &Ends<'_>) -> Result<Mbr, IoError> {
    let Geometry { size, sector, .. } = dev.geometry();
    if sector < 512 || size < u64::from(sector) {
        return Ok(Mbr::None);
    }
    let mut block = vec![0; sector as usize];
    dev.read_at(0, &mut block)?;
    if block[510..512] != codec::BOOT_SIGNATURE {
        return Ok(Mbr::None);
    }
    let used: Vec<&[u8]> = block[446..510].chunks_exact(16).filter(|record| record.iter().any(|b| *b != 0)).collect();
    let protective = |record: &&[u8]| record[4] == codec::PROTECTIVE && record[8..12] == [1, 0, 0, 0];
    Ok(match (used.iter().any(protective), used.len()) {
        (true, 1) => Mbr::Protective,
        (true, _) => Mbr::Hybrid,
        (false, records) => Mbr::Dos { records },
    })
}

/// Looks for a GPT that was written while the disk had sectors of the other size.
fn read_other_sector(dev: &Ends<'_>) -> Result<Option<u32>, IoError> {
    let Geometry { size, sector, .. } = dev.geometry();
    let Some(other) = SECTORS.into_iter().find(|other| *other != sector) else { return Ok(None) };
    if !SECTORS.contains(&sector) || size < 3 * 4096 {
        return Ok(None);
    }
    for offset in [Lba::PRIMARY, Lba::last_of(size, other)].map(|lba| lba.start(other)) {
        // Whole sectors only, as O_DIRECT wants: the signature is somewhere in the one that is read.
        let start = offset - offset % u64::from(sector);
        let mut block = vec![0; sector as usize];
        dev.read_at(start, &mut block)?;
        let within = usize::try_from(offset - start).expect("less than a sector");
        if block[within..].starts_with(codec::SIGNATURE) {
            return Ok(Some(other));
        }
    }
    Ok(None)
}

/// Which copy to believe, and what to repair beside it: never what somebody made over one of them.
pub fn choose(copies: &TableCopies, ours: &Ours) -> Result<Choice, TableRefusal> {
    let choice = believe(copies, ours)?;
    let is_at_start = |part: &Part| matches!(part, Part::Primary | Part::Mbr);
    match copies.over.filter(|_| choice.stale.iter().any(is_at_start)) {
        Some(over) => Err(TableRefusal::Broken(format!(
            "{over} was made over localpool's partition table, of which only the copy at the end of the disk remains; \
             localpool does not touch it. If nobody needs it, `wipefs --offset` removes it, and the pool uses the disk \
             again, with what remains of its volumes"
        ))),
        None => Ok(choice),
    }
}

/// A sound primary wins, as it does in the kernel; the backup counts only if the primary is absent, damaged or
/// unreadable, and only with our label. If two copies contradict each other more than a stopped write explains,
/// somebody made them so, and nothing is repaired automatically.
fn believe(copies: &TableCopies, ours: &Ours) -> Result<Choice, TableRefusal> {
    match (&copies.primary, &copies.backup) {
        (Ok(primary), backup) => choose_primary(copies, primary, backup, ours),
        // A sector that a drive lost in the middle of a write cannot be read until it is written again.
        (Err(damage @ TableError::Unreadable { .. }), Ok(backup)) if backup.is_ours(ours) => {
            choose_backup(copies, damage, backup, ours)
        }
        (Err(TableError::Unreadable { source, .. }), _) => Err(unreadable(source)),
        (Err(e), _) if !e.is_damage() => Err(TableRefusal::OfOthers(e.to_string())),
        (Err(damage), Ok(backup)) => choose_backup(copies, damage, backup, ours),
        (Err(_), Err(TableError::Unreadable { source, .. })) => Err(unreadable(source)),
        (Err(_), Err(e)) if !e.is_damage() => Err(TableRefusal::OfOthers(format!("a lone backup: {e}"))),
        (Err(primary), Err(backup)) => Err(without_table(copies, primary, backup)),
    }
}

fn choose_primary(
    copies: &TableCopies,
    primary: &Table,
    backup: &Result<Table, TableError>,
    ours: &Ours,
) -> Result<Choice, TableRefusal> {
    if !primary.is_ours(ours) {
        return Err(TableRefusal::OfOthers("a GPT without localpool's label".into()));
    }
    let mut stale = Vec::new();
    let of = backup.as_ref().map_or_else(TableError::disk, |backup| Some(backup.disk()));
    if let Some(disk) = of.filter(|disk| *disk != primary.disk()) {
        return Err(two_disks(primary, disk));
    }
    match backup {
        Ok(backup) if backup == primary => {}
        Ok(_) | Err(TableError::Unreadable { .. }) => stale.push(Part::Backup),
        Err(e) if e.is_damage() => stale.push(Part::Backup),
        Err(e) => return Err(TableRefusal::Broken(format!("localpool's table with the backup of another one: {e}"))),
    }
    stale.extend(stale_mbr(copies)?);
    Ok(Choice { table: primary.clone(), good: Part::Primary, stale })
}

fn choose_backup(
    copies: &TableCopies,
    damage: &TableError,
    backup: &Table,
    ours: &Ours,
) -> Result<Choice, TableRefusal> {
    if !backup.is_ours(ours) {
        return Err(TableRefusal::OfOthers(format!("a backup GPT without localpool's label ({damage})")));
    }
    if let Some(disk) = damage.disk().filter(|disk| *disk != backup.disk()) {
        return Err(two_disks(backup, disk));
    }
    let mut stale = vec![Part::Primary];
    stale.extend(stale_mbr(copies)?);
    Ok(Choice { table: backup.clone(), good: Part::Backup, stale })
}

/// Whether the MBR is missing or unreadable. One with partitions in it is refused: other systems would use them.
fn stale_mbr(copies: &TableCopies) -> Result<Option<Part>, TableRefusal> {
    match &copies.mbr {
        Ok(Mbr::Protective) => Ok(None),
        Ok(Mbr::None) | Err(_) => Ok(Some(Part::Mbr)),
        Ok(mbr @ (Mbr::Hybrid | Mbr::Dos { .. })) => {
            Err(TableRefusal::Broken(format!("localpool's table under {mbr}")))
        }
    }
}

fn without_table(copies: &TableCopies, primary: &TableError, backup: &TableError) -> TableRefusal {
    let absent = |e: &TableError| matches!(e, TableError::NoSignature { .. });
    match (&copies.other_sector, &copies.mbr) {
        _ if !absent(primary) || !absent(backup) => {
            TableRefusal::OfOthers(format!("a damaged GPT: {primary}; {backup}"))
        }
        (Err(e), _) | (_, Err(e)) => unreadable(e),
        (Ok(Some(sector)), _) => TableRefusal::OfOthers(format!("a GPT for sectors of {sector} bytes")),
        (Ok(None), Ok(Mbr::None)) => TableRefusal::Absent,
        (Ok(None), Ok(Mbr::Protective)) => TableRefusal::OfOthers("a protective MBR without a GPT".into()),
        (Ok(None), Ok(mbr)) => TableRefusal::OfOthers(mbr.to_string()),
    }
}

fn two_disks(table: &Table, other: uuid::Uuid) -> TableRefusal {
    TableRefusal::Broken(format!("two partition tables, of disk {} and of disk {other}", table.disk()))
}

fn unreadable(error: &IoError) -> TableRefusal {
    TableRefusal::Unreadable(format!("{error}: {}", error.source))
}

impl fmt::Display for Mbr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "no MBR",
            Self::Protective => "a protective MBR",
            Self::Hybrid => "a hybrid MBR",
            Self::Dos { .. } => "a DOS partition table or boot sector",
        })
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Backup => "backup table",
            Self::Primary => "primary table",
            Self::Mbr => "protective MBR",
        })
    }
}
