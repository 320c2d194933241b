//! Makes, checks, grows and names filesystems, by their own tools.
//!
//! Takes in a device node and what should be there; gives out success, or the tool's own last words.

use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use nix::errno::Errno;
use nix::libc;
use uuid::Uuid;

use super::command::{TimedCommand, close_for_good};
use super::error::HostError;
use super::extent::Extent;
use super::port::{Filesystems, FsIdentity, FsKind};
use super::{ioctl, signature};

const MIB: u64 = 1 << 20;
/// What is zeroed before a mkfs: every place at the start where libblkid looks for another filesystem (the
/// deepest is VMFS at 2 MiB), and at the end (RAID metadata, ZFS labels, a backup GPT).
const STALE_HEAD: u64 = 4 * MIB;
const STALE_TAIL: u64 = MIB;

impl FsKind {
    pub const ALL: [Self; 3] = [Self::Ext4, Self::Xfs, Self::Btrfs];

    /// As the kernel, blkid and a StorageClass call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ext4 => "ext4",
            Self::Xfs => "xfs",
            Self::Btrfs => "btrfs",
        }
    }

    /// The smallest device that mkfs takes: for ext4 with a journal, for btrfs rounded up to 10 MiB.
    pub fn minimum_bytes(self) -> u64 {
        match self {
            Self::Ext4 => 16 * MIB,
            Self::Xfs => 300 * MIB,
            Self::Btrfs => 110 * MIB,
        }
    }
}

/// A word that names no filesystem that we make.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{given:?} is not a supported filesystem: use ext4, xfs or btrfs")]
pub struct UnknownFilesystem {
    pub given: String,
}

impl FromStr for FsKind {
    type Err = UnknownFilesystem;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|kind| kind.name() == text)
            .ok_or_else(|| UnknownFilesystem { given: text.to_owned() })
    }
}

/// How long each tool may take. A caller that cannot wait that long answers ABORTED and asks again.
#[derive(Clone, Copy, Debug)]
pub struct FilesystemTimeouts {
    pub make: Duration,
    /// e2fsck reads all metadata: hours on a large rotating disk, and stopping it helps nobody.
    pub check: Duration,
    pub grow: Duration,
}

impl Default for FilesystemTimeouts {
    fn default() -> Self {
        let minutes = |count: u64| Duration::from_secs(60 * count);
        Self { make: minutes(15), check: minutes(6 * 60), grow: minutes(60) }
    }
}

/// The filesystems of this machine.
#[derive(Clone, Debug, Default)]
pub struct RealFilesystems {
    timeouts: FilesystemTimeouts,
    search_path: Option<OsString>,
}

impl RealFilesystems {
    #[cfg(any(test, feature = "testing"))]
    pub fn new(timeouts: FilesystemTimeouts) -> Self {
        Self { timeouts, search_path: None }
    }

    /// Takes the tools from elsewhere.
    #[cfg(any(test, feature = "testing"))]
    pub fn with_search_path(self, path: &OsStr) -> Self {
        Self { search_path: Some(path.to_owned()), ..self }
    }

    fn command(&self, program: &str, limit: Duration) -> TimedCommand {
        let command = TimedCommand::new(program, limit);
        match &self.search_path {
            Some(path) => command.search_path(path),
            None => command,
        }
    }

    /// Exit bits 1 and 2: errors corrected (2 asks for a reboot, which matters only to a mounted root, and ours
    /// is not mounted). Anything from 4 up: not corrected, not run, stopped, or a wrong call.
    fn e2fsck(&self, device: &Path, extra: &[&str]) -> Result<(), HostError> {
        let args = ["-p"].iter().chain(extra).map(OsStr::new).chain([device.as_os_str()]);
        let done = self.command("e2fsck", self.timeouts.check).args(args).run_allowing(&[0, 1, 2, 3])?;
        if done.code() != Some(0) {
            tracing::warn!(device = %device.display(), said = %done.stdout.trim(), "e2fsck corrected errors");
        }
        Ok(())
    }
}

impl Filesystems for RealFilesystems {
    fn make(&self, kind: FsKind, device: &Path, uuid: Uuid) -> Result<(), HostError> {
        // Open from before the first write to after the last: an error in writing back anything in between is
        // reported to this descriptor's fsync, even if the tool did not ask. Read-only, so that its close
        // makes no udev event.
        let witness = open(device, Hold::Shared)?;
        wipe_stale_signatures(device)?;
        let uuid = uuid.hyphenated().to_string();
        let (program, args) = match kind {
            FsKind::Ext4 => ("mkfs.ext4", ext4_args(&uuid)),
            FsKind::Xfs => {
                ("mkfs.xfs", vec!["-f".into(), "-q".into(), "-K".into(), "-m".into(), format!("uuid={uuid}")])
            }
            FsKind::Btrfs => ("mkfs.btrfs", vec!["-f".into(), "-q".into(), "-K".into(), "-U".into(), uuid]),
        };
        // An mkfs that was left behind could open the device later, when it holds data or belongs to another tenant.
        self.command(program, self.timeouts.make).ends_with_us().args(&args).args([device]).run()?;
        witness.sync_all().map_err(|source| failed("sync", device, source))
    }

    fn check(&self, kind: FsKind, device: &Path) -> Result<(), HostError> {
        match kind {
            FsKind::Ext4 => self.e2fsck(device, &[]),
            // Both replay their log on mount; their repair tools lose data, which is a decision for a person.
            FsKind::Xfs | FsKind::Btrfs => Ok(()),
        }
    }

    fn grow(&self, kind: FsKind, device: &Path, mounted_at: Option<&Path>) -> Result<(), HostError> {
        let grow = |program, args: &[&OsStr]| self.command(program, self.timeouts.grow).args(args).run().map(drop);
        match (kind, mounted_at) {
            (FsKind::Ext4, Some(_)) => {
                grow("resize2fs", &[device.as_os_str()]).map_err(|error| explain_refusal(error, device))
            }
            (FsKind::Ext4, None) => {
                // resize2fs refuses a filesystem that was not checked since its last mount.
                self.e2fsck(device, &["-f"])?;
                grow("resize2fs", &[device.as_os_str()])
            }
            (FsKind::Xfs, Some(target)) => grow("xfs_growfs", &["-d".as_ref(), target.as_os_str()]),
            (FsKind::Btrfs, Some(target)) => {
                grow("btrfs", &["filesystem".as_ref(), "resize".as_ref(), "max".as_ref(), target.as_os_str()])
            }
            (FsKind::Xfs | FsKind::Btrfs, None) => Err(HostError::Unsupported {
                what: format!("{} on {} grows only while it is mounted", kind.name(), device.display()),
            }),
        }
    }

    fn identify(&self, device: &Path) -> Result<Option<FsIdentity>, HostError> {
        signature::identify(device)
    }
}

/// No discard in any of the three: erase has done it when the space was freed, and a second time costs
/// seconds per TiB and may stall other volumes of the device.
fn ext4_args(uuid: &str) -> Vec<String> {
    let words = [
        "-F",
        "-q",
        // The reserve for root would be 5 % of a volume on which nobody is root.
        "-m",
        "0",
        // Below 512 MiB mke2fs takes blocks of 1 KiB. With those the filesystem cannot grow far, nor be on 4096-byte
        // sectors.
        "-b",
        "4096",
        // Inode tables are marked unused, never read before they are written, and zeroed by the kernel after the
        // mount. The journal is zeroed now: an old one in dirty space could be replayed after a crash.
        "-E",
        "nodiscard,lazy_itable_init=1,lazy_journal_init=0",
        "-U",
        uuid,
    ];
    words.map(str::to_owned).to_vec()
}

/// Zeros the places where libblkid would find an earlier filesystem. mkfs leaves some of them (mkfs.ext4 the
/// superblock of btrfs), and then nobody can say what is there; mkfs.btrfs refuses its own UUID when it runs
/// again after a crash.
fn wipe_stale_signatures(device: &Path) -> Result<(), HostError> {
    // Exclusively: whatever is mounted or held by another device stays whole.
    let file = open(device, Hold::Exclusive)?;
    let size = ioctl::size(&file).map_err(|source| failed("read the size of", device, source))?;
    let head = Extent { start: 0, end: STALE_HEAD.min(size) };
    let tail = Extent { start: size.saturating_sub(STALE_TAIL).next_multiple_of(4096).min(size), end: size };
    for range in [head, tail] {
        ioctl::zero_out(&file, range).map_err(|source| failed("zero old signatures of", device, source))?;
    }
    // Durable before mkfs begins: after a power cut there is the old filesystem, none, or the new one, but never two.
    file.sync_all().map_err(|source| failed("sync", device, source))?;
    // mkfs opens it exclusively next.
    close_for_good(file);
    Ok(())
}

/// The kernel requires a capability that a confined root may lack; if the error does not name it, nobody finds the
/// cause.
fn explain_refusal(error: HostError, device: &Path) -> HostError {
    match error {
        HostError::Command { stderr, .. } if stderr.contains("Permission denied to resize") => HostError::Unsupported {
            what: format!(
                "ext4 on {} grows while mounted only if this process has CAP_SYS_RESOURCE; unmounted it grows without \
                 it",
                device.display()
            ),
        },
        other => other,
    }
}

#[derive(Clone, Copy)]
enum Hold {
    Shared,
    Exclusive,
}

fn open(device: &Path, hold: Hold) -> Result<File, HostError> {
    let mut options = OpenOptions::new();
    match hold {
        Hold::Shared => options.read(true).custom_flags(libc::O_NONBLOCK),
        Hold::Exclusive => options.write(true).custom_flags(libc::O_EXCL | libc::O_NONBLOCK),
    };
    options.open(device).map_err(|source| match source.raw_os_error().map(Errno::from_raw) {
        Some(Errno::EBUSY) => HostError::Busy { object: device.display().to_string() },
        _ => failed("open", device, source),
    })
}

fn failed(what: &'static str, device: &Path, source: io::Error) -> HostError {
    HostError::Io { what, object: device.display().to_string(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filesystem_is_read_by_its_name_and_an_unknown_one_is_told_the_three() {
        for kind in FsKind::ALL {
            assert_eq!(kind.name().parse(), Ok(kind));
        }
        let error = "ext3".parse::<FsKind>().unwrap_err();
        assert_eq!(error.to_string(), "\"ext3\" is not a supported filesystem: use ext4, xfs or btrfs");
        assert!("EXT4".parse::<FsKind>().is_err() && "".parse::<FsKind>().is_err());
    }

    #[test]
    fn xfs_and_btrfs_say_that_they_grow_only_while_mounted() {
        for kind in [FsKind::Xfs, FsKind::Btrfs] {
            let error = RealFilesystems::default().grow(kind, Path::new("/dev/none"), None).unwrap_err();
            assert_eq!(error.to_string(), format!("{} on /dev/none grows only while it is mounted", kind.name()));
        }
    }
}
