//! What is on a device: every signature and table that libblkid knows, and what it does not see.
//!
//! Takes in a scanned [`RawDisk`] or a node; gives out [`ProbeResult`] or a filesystem's identity. Only reads.
//!
//! libblkid reads through the page cache, in its own buffers, so it cannot use O_DIRECT. The clean pages of the device
//! are dropped first (posix_fadvise), so that it reads the medium: a whole disk that somebody holds open keeps pages
//! that a write through one of its partitions has made old. BLKFLSBUF would also write back and drop what others have
//! in flight, so we do not call it. Dirty pages stay and are read as they are, which is right: they are newer than the
//! medium.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use libblkid_rs::{BlkidErr, BlkidProbe, BlkidProbeRet, BlkidSafeprobeRet, BlkidSublks, BlkidSublksFlags};
use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use nix::libc;
use uuid::Uuid;

use super::command::close_for_good;
use super::disk::{Mode, open_verified};
use super::error::{HostError, chain};
use super::ioctl;
use super::port::FsIdentity;
use super::raw::{DeviceKind, Dm, Probe, ProbeResult, RawDisk, Signature};
use super::table;

/// More results than any real device has; beyond it libblkid loops for ever.
const MOST_RESULTS: usize = 256;

/// Looks at a disk. What cannot be read is `Failed`, never blank.
pub fn probe(disk: &RawDisk) -> Probe {
    match read_content(disk) {
        Ok(contents) => Probe::Read(contents),
        Err(error) => Probe::Failed(chain(&error)),
    }
}

/// The filesystem (or whatever else has a signature) on a device node.
pub fn identify(device: &Path) -> Result<Option<FsIdentity>, HostError> {
    let failed = |what| move |source| HostError::Io { what, object: device.display().to_string(), source };
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(device).map_err(failed("open"))?;
    forget_pages(&file).map_err(failed("drop the cached pages of"))?;
    let unread = |error: BlkidErr| failed("identify the filesystem on")(io::Error::other(error));
    let mut probe = superblock_probe(&file, Tables::Ignored).map_err(unread)?;
    match probe.do_safeprobe().map_err(unread)? {
        BlkidSafeprobeRet::None => Ok(None),
        BlkidSafeprobeRet::Success => Ok(value(&probe, "TYPE")
            .map(|kind| FsIdentity { kind, uuid: value(&probe, "UUID").and_then(|text| Uuid::parse_str(&text).ok()) })),
        BlkidSafeprobeRet::Ambiguous => {
            let all = recognised(&file, Tables::Ignored).map_err(unread)?;
            let kinds: Vec<String> = all.signatures.into_iter().map(|signature| signature.kind).collect();
            Ok(Some(FsIdentity { kind: format!("ambivalent: {}", kinds.join(", ")), uuid: None }))
        }
    }
}

fn read_content(disk: &RawDisk) -> Result<ProbeResult, HostError> {
    if let DeviceKind::Dm(dm) = &disk.kind
        && libblkid_skips(dm)
    {
        let what = format!("{} is internal to LVM or Stratis", disk.path.display());
        return Err(HostError::Unsupported { what });
    }
    let failed = |what| move |source| HostError::Io { what, object: disk.path.display().to_string(), source };
    let file = open_verified(disk, Mode::Read, 0)?;
    forget_pages(&file).map_err(failed("drop the cached pages of"))?;
    let size = ioctl::size(&file).map_err(failed("read the size of"))?;
    if size == 0 {
        // An unbound loop device, an empty drive: nothing to read is not the same as nothing there.
        return Err(HostError::Unsupported { what: format!("{} has no size", disk.path.display()) });
    }
    let headers = Headers::read(size, |at, buf| file.read_exact_at(buf, at)).map_err(failed("read"))?;
    let Recognised { tables, signatures } =
        recognised(&file, Tables::Wanted).map_err(|error| failed("recognise what is on")(io::Error::other(error)))?;
    let mut contents = ProbeResult { table: headers.table(&tables, &signatures), signatures, busy: false };
    if contents.table.is_none() && contents.signatures.is_empty() {
        contents.busy = is_held(disk)?;
    }
    Ok(contents)
}

/// Asks by O_EXCL, and only a device that looks blank: as long as that open lasts, the kernel refuses somebody else's
/// mount of the device or of one of its partitions.
fn is_held(disk: &RawDisk) -> Result<bool, HostError> {
    match open_verified(disk, Mode::Read, libc::O_EXCL) {
        Ok(held) => {
            close_for_good(held);
            Ok(false)
        }
        Err(HostError::Busy { .. }) => Ok(true),
        Err(error) => Err(error),
    }
}

/// libblkid finds nothing, whatever is there, on devices that LVM and Stratis keep to themselves.
fn libblkid_skips(dm: &Dm) -> bool {
    let lvm_layer = dm.uuid.strip_prefix("LVM-").is_some_and(|rest| rest.contains('-'));
    lvm_layer || dm.uuid.starts_with("stratis-1-private")
}

fn forget_pages(file: &File) -> io::Result<()> {
    Ok(posix_fadvise(file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED)?)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Tables {
    Wanted,
    Ignored,
}

/// Everything that libblkid finds.
#[derive(Default)]
struct Recognised {
    tables: Vec<String>,
    signatures: Vec<Signature>,
}

fn superblock_probe(file: &File, tables: Tables) -> Result<BlkidProbe, BlkidErr> {
    let mut probe = BlkidProbe::new()?;
    probe.set_device(file.as_raw_fd(), 0, 0)?;
    probe.enable_superblocks(true)?;
    probe.set_superblock_flags(BlkidSublksFlags::new(vec![
        BlkidSublks::Type,
        BlkidSublks::Usage,
        BlkidSublks::Label,
        BlkidSublks::Uuid,
        BlkidSublks::Magic,
        // A superblock whose checksum is wrong is damaged, not absent.
        BlkidSublks::Badcsum,
    ]))?;
    probe.enable_partitions(tables == Tables::Wanted)?;
    Ok(probe)
}

/// Goes on after each find, so that two filesystems on one device are two signatures and not an error.
fn recognised(file: &File, tables: Tables) -> Result<Recognised, BlkidErr> {
    let mut probe = superblock_probe(file, tables)?;
    let mut found = Recognised::default();
    for _ in 0..MOST_RESULTS {
        match probe.do_probe()? {
            BlkidProbeRet::Done => return Ok(found),
            BlkidProbeRet::Success => {}
        }
        if let Some(kind) = value(&probe, "TYPE") {
            found.signatures.push(Signature {
                kind,
                usage: value(&probe, "USAGE").unwrap_or_else(|| "other".into()),
                label: value(&probe, "LABEL"),
                uuid: value(&probe, "UUID"),
                offset: value(&probe, "SBMAGIC_OFFSET").and_then(|text| text.parse().ok()).unwrap_or(0),
            });
        }
        found.tables.extend(value(&probe, "PTTYPE"));
    }
    Err(BlkidErr::Other(format!("more than {MOST_RESULTS} signatures")))
}

/// A value of the last find; `None` if it has none, or one that is not text.
fn value(probe: &BlkidProbe, name: &str) -> Option<String> {
    probe.lookup_value(name).ok().filter(|text| !text.is_empty())
}

/// The sectors where tables begin and end, as we read them ourselves: libblkid needs a protective MBR and the right
/// sector size to see a GPT, and it never sees a lone backup.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Headers {
    primary_gpt: bool,
    backup_gpt: bool,
    protective_mbr: bool,
    boot_magic: bool,
}

impl Headers {
    /// Looks for both sector sizes, whatever the device says: an image may have been made for the other.
    fn read(size: u64, read: impl Fn(u64, &mut [u8]) -> io::Result<()>) -> io::Result<Self> {
        let has_gpt = |at: Option<u64>| -> io::Result<bool> {
            let mut magic = [0; 8];
            match at {
                Some(at) if at + 512 <= size => read(at, &mut magic)?,
                _ => return Ok(false),
            }
            Ok(&magic == table::SIGNATURE)
        };
        let mut first = [0; 512];
        if size >= 512 {
            read(0, &mut first)?;
        }
        let boot_magic = first[510..] == table::BOOT_SIGNATURE;
        let types = [450, 466, 482, 498].map(|at| first[at]);
        Ok(Self {
            primary_gpt: has_gpt(Some(512))? || has_gpt(Some(4096))?,
            backup_gpt: has_gpt(size.checked_sub(512))? || has_gpt(size.checked_sub(4096))?,
            protective_mbr: boot_magic && types.contains(&table::PROTECTIVE),
            boot_magic,
        })
    }

    /// One name for all that was seen; the most specific first.
    fn table(&self, known: &[String], signatures: &[Signature]) -> Option<String> {
        // libblkid's name for a protective MBR without a GPT that it accepts.
        if let Some(kind) = known.iter().find(|kind| *kind != "PMBR") {
            return Some(kind.clone());
        }
        let name = if self.primary_gpt {
            "gpt (damaged)"
        } else if self.backup_gpt {
            "gpt (backup only)"
        } else if self.protective_mbr || !known.is_empty() {
            "protective MBR"
        } else if self.boot_magic && signatures.is_empty() {
            // With a signature it is that filesystem's boot sector.
            "boot sector"
        } else {
            return None;
        };
        Some(name.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: u64 = 64 << 10;

    fn headers(writes: &[(u64, &[u8])]) -> Headers {
        let mut disk = vec![0_u8; usize::try_from(SIZE).unwrap()];
        for (at, bytes) in writes {
            let at = usize::try_from(*at).unwrap();
            disk[at..at + bytes.len()].copy_from_slice(bytes);
        }
        Headers::read(SIZE, |at, buf| {
            let at = usize::try_from(at).unwrap();
            buf.copy_from_slice(&disk[at..at + buf.len()]);
            Ok(())
        })
        .unwrap()
    }

    #[test]
    fn a_gpt_header_is_seen_at_either_end_for_either_sector_size() {
        for at in [512, 4096] {
            assert_eq!(headers(&[(at, table::SIGNATURE)]), Headers { primary_gpt: true, ..Headers::default() });
            assert_eq!(headers(&[(SIZE - at, table::SIGNATURE)]), Headers { backup_gpt: true, ..Headers::default() });
        }
        assert_eq!(headers(&[(1024, table::SIGNATURE)]), Headers::default());
    }

    #[test]
    fn a_protective_mbr_needs_type_and_boot_magic_and_any_of_the_four_entries_will_do() {
        for at in [450, 466, 482, 498] {
            assert!(headers(&[(at, &[table::PROTECTIVE]), (510, &table::BOOT_SIGNATURE)]).protective_mbr);
            assert!(!headers(&[(at, &[table::PROTECTIVE])]).protective_mbr);
        }
    }

    #[test]
    fn the_most_telling_name_wins_and_a_blank_disk_has_none() {
        let all = Headers { primary_gpt: true, backup_gpt: true, protective_mbr: true, boot_magic: true };
        let name = |headers: Headers, known: &[&str]| {
            headers.table(&known.iter().map(|kind| (*kind).to_owned()).collect::<Vec<_>>(), &[])
        };
        assert_eq!(name(all, &["PMBR", "gpt"]).as_deref(), Some("gpt"));
        assert_eq!(name(all, &["PMBR"]).as_deref(), Some("gpt (damaged)"));
        assert_eq!(name(Headers { primary_gpt: false, ..all }, &[]).as_deref(), Some("gpt (backup only)"));
        let mbr = Headers { primary_gpt: false, backup_gpt: false, ..all };
        assert_eq!(name(mbr, &[]).as_deref(), Some("protective MBR"));
        assert_eq!(name(Headers { protective_mbr: false, ..mbr }, &[]).as_deref(), Some("boot sector"));
        assert_eq!(name(Headers::default(), &[]), None);
    }

    #[test]
    fn the_boot_sector_of_a_filesystem_is_no_table() {
        let fat = Signature { kind: "vfat".into(), usage: "filesystem".into(), label: None, uuid: None, offset: 0 };
        let headers = Headers { boot_magic: true, ..Headers::default() };
        assert_eq!(headers.table(&[], &[fat]), None);
    }

    #[test]
    fn a_read_error_is_never_blank() {
        let error = Headers::read(SIZE, |at, _| if at == SIZE - 512 { Err(io::Error::other("bad")) } else { Ok(()) });
        assert!(error.is_err());
    }

    #[test]
    fn what_libblkid_does_not_look_at_is_not_called_blank() {
        let dm = |uuid: &str| Dm { name: "x".into(), uuid: uuid.into(), suspended: false };
        assert!(libblkid_skips(&dm("LVM-0123456789abcdef-real")));
        assert!(libblkid_skips(&dm("stratis-1-private-abc")));
        assert!(!libblkid_skips(&dm("LVM-0123456789abcdef")));
        assert!(!libblkid_skips(&dm("mpath-3600")));
        assert!(!libblkid_skips(&dm("")));
    }
}
