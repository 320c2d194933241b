//! Project quota of XFS: which project a file or folder is of, what a project uses, and its limit; and the other
//! attributes that are read and written with the project.
//!
//! Takes in an open file or folder of the filesystem; gives out what the kernel said. Numbers and layouts are those of
//! linux/fs.h, linux/quota.h and linux/dqblk_xfs.h.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};

use nix::errno::Errno;
use nix::libc::{SYS_fsopen, SYS_quotactl_fd, c_long, syscall};
use nix::{ioctl_read, ioctl_write_ptr};

/// `struct fsxattr`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct FileAttributes {
    flags: u32,
    extent_size: u32,
    extents: u32,
    project: u32,
    copy_extent_size: u32,
    rest: [u32; 2],
}

const _: () = assert!(size_of::<FileAttributes>() == 28);

/// `struct fs_disk_quota`. Blocks are of 512 bytes.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct DiskQuota {
    version: i8,
    kind: i8,
    /// Which of the fields are to be set.
    mask: u16,
    id: u32,
    blocks_hard: u64,
    blocks_soft: u64,
    inodes_hard: u64,
    inodes_soft: u64,
    blocks: u64,
    inodes: u64,
    rest: [u64; 7],
}

const _: () = assert!(size_of::<DiskQuota>() == 112);

/// `struct fs_quota_statv`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct QuotaStatus {
    version: i8,
    pad: u8,
    flags: u16,
    in_core: u32,
    rest: [u64; 19],
}

const _: () = assert!(size_of::<QuotaStatus>() == 160);

/// FS_XFLAG_IMMUTABLE and FS_XFLAG_APPEND: not even root changes or removes it.
const KEPT: u32 = 0x8 | 0x10;
/// FS_XFLAG_IMMUTABLE alone: nothing is made in a folder.
const IMMUTABLE: u32 = 0x8;
/// FS_XFLAG_PROJINHERIT: what is made in the folder is of its project.
const INHERITS: u32 = 0x200;
/// FS_PROJ_QUOTA.
const OF_PROJECT: i8 = 2;
/// FS_DQ_ISOFT, FS_DQ_IHARD, FS_DQ_BSOFT and FS_DQ_BHARD: all limits of bytes and inodes.
const ALL_LIMITS: u16 = 0b1111;
/// FS_QUOTA_PDQ_ACCT and FS_QUOTA_PDQ_ENFD.
const COUNTED: u16 = 1 << 4;
const ENFORCED: u16 = 1 << 5;
const BLOCK: u64 = 512;
/// PRJQUOTA.
const PROJECTS: u32 = 2;
const FSOPEN_CLOEXEC: c_long = 1;

ioctl_read!(get_attributes, b'X', 31, FileAttributes);
ioctl_write_ptr!(set_attributes, b'X', 32, FileAttributes);

/// The subcommands of XFS, as quotactl(2) takes them for projects.
#[derive(Clone, Copy)]
enum QuotaCommand {
    Get = 3,
    SetLimits = 4,
    Status = 8,
}

impl QuotaCommand {
    fn code(self) -> u32 {
        ((u32::from(b'X') << 8) + self as u32) << 8 | PROJECTS
    }
}

/// What a filesystem does with projects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuotaSwitches {
    pub is_counted: bool,
    pub is_enforced: bool,
}

/// What the files of a project use, and may use; 0: no limit. Sizes in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QuotaNumbers {
    pub bytes: u64,
    pub inodes: u64,
    pub most_bytes: u64,
    pub most_inodes: u64,
    /// There is a soft limit of bytes or inodes, which becomes a hard one when it was exceeded for long enough.
    pub has_soft_limit: bool,
}

/// The project of a file or folder, and whether what is made in it is of that project.
pub fn project(file: impl AsFd) -> io::Result<(u32, bool)> {
    let found = attributes(file)?;
    Ok((found.project, found.flags & INHERITS != 0))
}

/// Makes a folder one of that project, with what is made in it from then on.
pub fn set_project(folder: impl AsFd, project: u32) -> io::Result<()> {
    let before = attributes(&folder)?;
    write_attributes(folder, FileAttributes { project, flags: before.flags | INHERITS, ..before })
}

/// Takes away what forbids that a file or folder, or what is in it, is removed (chattr(1), `i` and `a`).
pub fn allow_removal(file: impl AsFd) -> io::Result<()> {
    let before = attributes(&file)?;
    match before.flags & KEPT {
        0 => Ok(()),
        _ => write_attributes(file, FileAttributes { flags: before.flags & !KEPT, ..before }),
    }
}

/// Keeps everybody from making something in a folder (chattr(1), `i`). Not each filesystem can.
pub fn forbid_changes(folder: impl AsFd) -> io::Result<()> {
    let before = attributes(&folder)?;
    match before.flags & IMMUTABLE {
        0 => write_attributes(folder, FileAttributes { flags: before.flags | IMMUTABLE, ..before }),
        _ => Ok(()),
    }
}

fn write_attributes(file: impl AsFd, wanted: FileAttributes) -> io::Result<()> {
    // SAFETY: the descriptor is open for the call, and the kernel reads the size of `wanted` from it.
    unsafe { set_attributes(file.as_fd().as_raw_fd(), &raw const wanted) }?;
    Ok(())
}

fn attributes(file: impl AsFd) -> io::Result<FileAttributes> {
    let mut found = FileAttributes::default();
    // SAFETY: the descriptor is open for the call, and the kernel writes the size of `found` to it.
    unsafe { get_attributes(file.as_fd().as_raw_fd(), &raw mut found) }?;
    Ok(found)
}

/// What the filesystem that a file is on does with projects.
pub fn quota_switches(file: impl AsFd) -> io::Result<QuotaSwitches> {
    let mut status = QuotaStatus { version: 1, ..QuotaStatus::default() };
    let (fd, command) = (file.as_fd().as_raw_fd(), QuotaCommand::Status.code());
    // SAFETY: the descriptor is open for the call, and the kernel writes at most the size of `status` to it: that of
    // the version that it reads there.
    let asked = unsafe { syscall(SYS_quotactl_fd, fd, command, 0_u32, &raw mut status) };
    match Errno::result(asked) {
        Ok(_) => {
            let has = |flag| status.flags & flag != 0;
            Ok(QuotaSwitches { is_counted: has(COUNTED), is_enforced: has(ENFORCED) })
        }
        // None of its quotas is on, or it knows none.
        Err(Errno::ENOSYS | Errno::EINVAL) => Ok(QuotaSwitches { is_counted: false, is_enforced: false }),
        Err(errno) => Err(errno.into()),
    }
}

/// What a project has on the filesystem that a file is on. One that was never used has nothing.
pub fn quota_numbers(file: impl AsFd, project: u32) -> io::Result<QuotaNumbers> {
    let mut quota = DiskQuota::default();
    match quota_call(file.as_fd().as_raw_fd(), QuotaCommand::Get, project, &mut quota) {
        Ok(()) => Ok(QuotaNumbers {
            bytes: quota.blocks.saturating_mul(BLOCK),
            inodes: quota.inodes,
            most_bytes: quota.blocks_hard.saturating_mul(BLOCK),
            most_inodes: quota.inodes_hard,
            has_soft_limit: quota.blocks_soft > 0 || quota.inodes_soft > 0,
        }),
        Err(Errno::ENOENT) => Ok(QuotaNumbers::default()),
        Err(errno) => Err(errno.into()),
    }
}

/// Sets the most bytes of a project, whatever it uses by now: one that has more cannot grow. It has no other limit then.
/// EINVAL: less than 512 bytes, as 0 is no limit; or project 0, as its limits are what all other projects begin with.
pub fn set_quota(file: impl AsFd, project: u32, most_bytes: u64) -> io::Result<()> {
    let mut wanted = only_limit(project, most_bytes)?;
    Ok(quota_call(file.as_fd().as_raw_fd(), QuotaCommand::SetLimits, project, &mut wanted)?)
}

/// A hard limit of bytes, and no limit of any other sort.
fn only_limit(project: u32, most_bytes: u64) -> Result<DiskQuota, Errno> {
    let blocks_hard = most_bytes / BLOCK;
    match project == 0 || blocks_hard == 0 {
        true => Err(Errno::EINVAL),
        false => Ok(DiskQuota {
            version: 1,
            kind: OF_PROJECT,
            mask: ALL_LIMITS,
            id: project,
            blocks_hard,
            ..DiskQuota::default()
        }),
    }
}

fn quota_call(fd: RawFd, command: QuotaCommand, project: u32, quota: &mut DiskQuota) -> Result<(), Errno> {
    // SAFETY: `Get` and `SetLimits` read or write one `struct fs_disk_quota`, which `quota` is, and which is borrowed
    // for the call. A descriptor that is not open is an error.
    let called = unsafe { syscall(SYS_quotactl_fd, fd, command.code(), project, &raw mut *quota) };
    Errno::result(called).map(drop)
}

/// Whether this process can call quotactl_fd(2). ENOSYS: the kernel is older than Linux 5.14.
pub fn may_call_quotactl_fd() -> Result<(), Errno> {
    let nothing: RawFd = -1;
    match quota_call(nothing, QuotaCommand::Get, 0, &mut DiskQuota::default()) {
        Err(Errno::EBADF) => Ok(()),
        Err(errno) => Err(errno),
        // Nobody was asked who knows which descriptors there are.
        Ok(()) => Err(Errno::UnknownErrno),
    }
}

/// Has the kernel load the module of a filesystem, as a mount would.
pub fn load_filesystem(name: &CStr) -> io::Result<()> {
    // SAFETY: the name ends with NUL and lives until the call ends.
    let opened = unsafe { syscall(SYS_fsopen, name.as_ptr(), FSOPEN_CLOEXEC) };
    let fd = RawFd::try_from(Errno::result(opened)?).map_err(|_| io::Error::from(Errno::EBADF))?;
    // SAFETY: the kernel has just opened it, and nobody else knows it.
    drop(unsafe { OwnedFd::from_raw_fd(fd) });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_of_bytes_takes_every_other_limit_away() {
        let wanted = only_limit(7, 1 << 20).expect("a limit");
        assert_eq!((wanted.mask, wanted.id, wanted.blocks_hard), (0xf, 7, 2048));
        assert_eq!((wanted.blocks_soft, wanted.inodes_hard, wanted.inodes_soft), (0, 0, 0));
    }

    #[test]
    fn the_limit_of_project_0_and_one_below_a_block_are_refused_before_the_kernel_is_asked() {
        let file = std::fs::File::open("/").expect("opened");
        for (project, most_bytes) in [(0, 1 << 20), (7, 511)] {
            let refused = set_quota(&file, project, most_bytes).expect_err("refused");
            assert_eq!(refused.raw_os_error(), Some(nix::libc::EINVAL), "project {project}, {most_bytes} bytes");
        }
    }
}
