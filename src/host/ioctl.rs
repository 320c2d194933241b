//! The block ioctls that neither std nor nix wraps, extended attributes, quota, and a child that ends with its parent,
//! as safe functions. The only unsafe code of the crate.
//!
//! Takes in an open block device and plain numbers; gives out what the kernel said. Numbers and layouts
//! are those of linux/fs.h, linux/blkpg.h, linux/loop.h, linux/nvme_ioctl.h and scsi/sg.h.

#![allow(unsafe_code, reason = "no safe wrapper exists; each call says why it is sound")]

mod quota;

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use nix::errno::Errno;
use nix::libc::{c_char, c_int, c_void, lgetxattr};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use nix::unistd::{getpid, getppid};
use nix::{
    NixPath, ioctl_read_bad, ioctl_readwrite_bad, ioctl_write_ptr_bad, request_code_none, request_code_read,
    request_code_readwrite,
};

pub use self::quota::{
    QuotaNumbers, QuotaSwitches, allow_removal, forbid_changes, load_filesystem, may_call_quotactl_fd, project,
    quota_numbers, quota_switches, set_project, set_quota,
};
use super::extent::Extent;
use super::port::TargetAccess;

/// `struct blkpg_ioctl_arg`.
#[repr(C)]
struct BlkpgArg {
    op: c_int,
    flags: c_int,
    data_len: c_int,
    data: *mut c_void,
}

/// `struct blkpg_partition`: 152 bytes, the names unused by every kernel that we support.
#[repr(C)]
struct BlkpgPartition {
    start: i64,
    length: i64,
    number: c_int,
    device_name: [c_char; 64],
    volume_name: [c_char; 64],
}

const _: () = assert!(size_of::<BlkpgPartition>() == 152);

/// `struct loop_info64`. Of it only the file is of use here.
#[repr(C)]
struct LoopInfo {
    device: u64,
    inode: u64,
    rest: [u64; 27],
}

const _: () = assert!(size_of::<LoopInfo>() == 232);

/// `struct nvme_passthru_cmd`.
#[repr(C)]
#[derive(Default)]
struct NvmeCommand {
    opcode: u8,
    flags: u8,
    reserved: u16,
    namespace: u32,
    dword2: u32,
    dword3: u32,
    metadata: u64,
    address: u64,
    metadata_len: u32,
    data_len: u32,
    /// Command dwords 10 to 15.
    dwords: [u32; 6],
    timeout_ms: u32,
    result: u32,
}

const _: () = assert!(size_of::<NvmeCommand>() == 72);

/// `struct sg_io_hdr`.
#[repr(C)]
struct SgRequest {
    interface: c_int,
    direction: c_int,
    command_len: u8,
    sense_room: u8,
    segments: u16,
    data_len: u32,
    data: *mut c_void,
    command: *const u8,
    sense: *mut u8,
    timeout_ms: u32,
    flags: u32,
    pack_id: c_int,
    user: *mut c_void,
    status: u8,
    masked_status: u8,
    message_status: u8,
    sense_len: u8,
    host_status: u16,
    driver_status: u16,
    residue: c_int,
    duration: u32,
    info: u32,
}

const _: () = assert!(size_of::<SgRequest>() == 88);

#[derive(Clone, Copy)]
enum BlkpgOp {
    Add = 1,
    Delete = 2,
    Resize = 3,
}

const BLOCK: u8 = 0x12;

ioctl_write_ptr_bad!(blkroset, request_code_none!(BLOCK, 93), c_int);
ioctl_read_bad!(blkroget, request_code_none!(BLOCK, 94), c_int);
ioctl_read_bad!(blksszget, request_code_none!(BLOCK, 104), c_int);
ioctl_write_ptr_bad!(blkpg, request_code_none!(BLOCK, 105), BlkpgArg);
// Declared with size_t, answered with 64 bits.
ioctl_read_bad!(blkgetsize64, request_code_read!(BLOCK, 114, size_of::<usize>()), u64);
ioctl_write_ptr_bad!(blkdiscard, request_code_none!(BLOCK, 119), [u64; 2]);
ioctl_write_ptr_bad!(blkzeroout, request_code_none!(BLOCK, 127), [u64; 2]);
ioctl_read_bad!(loop_get_status64, 0x4c05, LoopInfo);
ioctl_readwrite_bad!(nvme_admin, request_code_readwrite!(b'N', 0x41, size_of::<NvmeCommand>()), NvmeCommand);
ioctl_readwrite_bad!(sg_io, 0x2285, SgRequest);
ioctl_read_bad!(blkgetdiskseq, request_code_read!(BLOCK, 128, size_of::<u64>()), u64);

/// Size in bytes.
pub fn size(device: impl AsFd) -> io::Result<u64> {
    let mut bytes = 0_u64;
    // SAFETY: the descriptor is open for the call, and the kernel writes 8 bytes to `bytes`.
    unsafe { blkgetsize64(device.as_fd().as_raw_fd(), &raw mut bytes) }?;
    Ok(bytes)
}

/// Logical sector in bytes.
pub fn sector(device: impl AsFd) -> io::Result<u32> {
    let mut bytes: c_int = 0;
    // SAFETY: the descriptor is open for the call, and the kernel writes one int to `bytes`.
    unsafe { blksszget(device.as_fd().as_raw_fd(), &raw mut bytes) }?;
    match u32::try_from(bytes) {
        Ok(sector) if sector.is_power_of_two() => Ok(sector),
        _ => Err(io::Error::new(io::ErrorKind::InvalidData, format!("a sector of {bytes} bytes"))),
    }
}

/// The sequence number of the disk behind the device; `None` on a kernel that keeps none.
pub fn disk_sequence(device: impl AsFd) -> io::Result<Option<u64>> {
    let mut sequence = 0_u64;
    // SAFETY: the descriptor is open for the call, and the kernel writes 8 bytes to `sequence`.
    match unsafe { blkgetdiskseq(device.as_fd().as_raw_fd(), &raw mut sequence) } {
        Ok(_) => Ok(Some(sequence)),
        Err(Errno::ENOTTY | Errno::EINVAL) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

/// LOOP_GET_STATUS64: device and inode of a loop device's file, even if no path of this process leads to it.
pub fn loop_file(device: impl AsFd) -> io::Result<(u64, u64)> {
    let mut info = LoopInfo { device: 0, inode: 0, rest: [0; 27] };
    // SAFETY: the descriptor is open for the call, and the kernel writes at most the size of `info` to it.
    unsafe { loop_get_status64(device.as_fd().as_raw_fd(), &raw mut info) }?;
    Ok((info.device, info.inode))
}

/// BLKROGET: whether the kernel refuses writes to the device or partition.
pub fn is_read_only(device: impl AsFd) -> io::Result<bool> {
    let mut flag: c_int = 0;
    // SAFETY: the descriptor is open for the call, and the kernel writes one int to `flag`.
    unsafe { blkroget(device.as_fd().as_raw_fd(), &raw mut flag) }?;
    Ok(flag != 0)
}

/// BLKROSET.
pub fn set_access(device: impl AsFd, access: TargetAccess) -> io::Result<()> {
    let flag = c_int::from(access.is_read_only());
    // SAFETY: the descriptor is open for the call, and the kernel reads one int from `flag`.
    unsafe { blkroset(device.as_fd().as_raw_fd(), &raw const flag) }?;
    Ok(())
}

/// BLKZEROOUT. The range must be whole sectors.
pub fn zero_out(device: impl AsFd, range: Extent) -> io::Result<()> {
    let start_and_length = [range.start, range.len()];
    // SAFETY: the descriptor is open for the call, and the kernel reads two u64 from the array.
    unsafe { blkzeroout(device.as_fd().as_raw_fd(), &raw const start_and_length) }?;
    Ok(())
}

/// BLKDISCARD. The range must be whole sectors.
pub fn discard(device: impl AsFd, range: Extent) -> io::Result<()> {
    let start_and_length = [range.start, range.len()];
    // SAFETY: the descriptor is open for the call, and the kernel reads two u64 from the array.
    unsafe { blkdiscard(device.as_fd().as_raw_fd(), &raw const start_and_length) }?;
    Ok(())
}

/// BLKPG_ADD_PARTITION.
pub fn add_partition(disk: impl AsFd, number: u32, extent: Extent) -> io::Result<()> {
    change_partition(disk, BlkpgOp::Add, number, extent)
}

/// BLKPG_DEL_PARTITION.
pub fn delete_partition(disk: impl AsFd, number: u32) -> io::Result<()> {
    change_partition(disk, BlkpgOp::Delete, number, Extent { start: 0, end: 0 })
}

/// BLKPG_RESIZE_PARTITION; the start must be the one that it has.
pub fn resize_partition(disk: impl AsFd, number: u32, extent: Extent) -> io::Result<()> {
    change_partition(disk, BlkpgOp::Resize, number, extent)
}

fn change_partition(disk: impl AsFd, op: BlkpgOp, number: u32, extent: Extent) -> io::Result<()> {
    let too_large = |_| io::Error::from(Errno::ERANGE);
    let mut partition = BlkpgPartition {
        start: i64::try_from(extent.start).map_err(too_large)?,
        length: i64::try_from(extent.len()).map_err(too_large)?,
        number: c_int::try_from(number).map_err(too_large)?,
        device_name: [0; 64],
        volume_name: [0; 64],
    };
    let arg = BlkpgArg { op: op as c_int, flags: 0, data_len: 152, data: (&raw mut partition).cast() };
    // SAFETY: the descriptor is open for the call; `arg` and the partition that it points to live on this
    // stack frame and have the layout that the kernel copies in. It writes to neither.
    unsafe { blkpg(disk.as_fd().as_raw_fd(), &raw const arg) }?;
    Ok(())
}

/// A log page of an NVMe controller (Get Log Page), for all of its namespaces. The buffer is whole dwords.
pub fn nvme_log(device: impl AsFd, page: u8, log: &mut [u8], timeout: Duration) -> io::Result<()> {
    let invalid = |_| io::Error::from(Errno::EINVAL);
    let bytes = u32::try_from(log.len()).map_err(invalid)?;
    let dwords = (bytes / 4).checked_sub(1).filter(|last| *last <= 0xffff && bytes % 4 == 0);
    let dwords = dwords.ok_or_else(|| io::Error::from(Errno::EINVAL))?;
    let mut command = NvmeCommand {
        opcode: 0x02,
        namespace: u32::MAX,
        address: log.as_mut_ptr() as u64,
        data_len: bytes,
        dwords: [dwords << 16 | u32::from(page), 0, 0, 0, 0, 0],
        timeout_ms: u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX),
        ..NvmeCommand::default()
    };
    // SAFETY: the descriptor is open for the call; the kernel reads `command`, writes its result, and writes at most
    // `data_len` bytes to `log`, which is that long and borrowed for the call.
    let status = unsafe { nvme_admin(device.as_fd().as_raw_fd(), &raw mut command) }?;
    match status {
        0 => Ok(()),
        status => Err(io::Error::other(format!("the controller refused it (status {status:#x})"))),
    }
}

/// The outcome of a SCSI command that reached the device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScsiReply {
    /// 0 is GOOD, 2 is CHECK CONDITION.
    pub status: u8,
    pub sense: Vec<u8>,
}

/// SG_IO of a command that reads at most `data`, or nothing if that is empty.
pub fn scsi_command(device: impl AsFd, command: &[u8], data: &mut [u8], timeout: Duration) -> io::Result<ScsiReply> {
    let invalid = |_| io::Error::from(Errno::EINVAL);
    let mut sense = [0_u8; 64];
    let mut request = SgRequest {
        interface: c_int::from(b'S'),
        direction: if data.is_empty() { -1 } else { -3 },
        command_len: u8::try_from(command.len()).map_err(invalid)?,
        sense_room: 64,
        segments: 0,
        data_len: u32::try_from(data.len()).map_err(invalid)?,
        data: data.as_mut_ptr().cast(),
        command: command.as_ptr(),
        sense: sense.as_mut_ptr(),
        timeout_ms: u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX),
        flags: 0,
        pack_id: 0,
        user: std::ptr::null_mut(),
        status: 0,
        masked_status: 0,
        message_status: 0,
        sense_len: 0,
        host_status: 0,
        driver_status: 0,
        residue: 0,
        duration: 0,
        info: 0,
    };
    // SAFETY: the descriptor is open for the call; the pointers lead to the command, `data` and `sense`, which live
    // until it ends and are as long as is said. The kernel writes to the last two and to `request` only.
    unsafe { sg_io(device.as_fd().as_raw_fd(), &raw mut request) }?;
    if request.host_status != 0 {
        return Err(io::Error::other(format!("the command did not reach it (host status {:#x})", request.host_status)));
    }
    let written = usize::from(request.sense_len).min(sense.len());
    Ok(ScsiReply { status: request.status, sense: sense[..written].to_vec() })
}

/// Whether a file has an extended attribute. Follows no link at the end of the path.
pub fn has_attribute(path: &Path, name: &CStr) -> io::Result<bool> {
    let ask = |path: &CStr| {
        // SAFETY: both texts end with NUL and live until the call ends; with a room of 0 the kernel writes nothing.
        Errno::result(unsafe { lgetxattr(path.as_ptr(), name.as_ptr(), std::ptr::null_mut(), 0) })
    };
    match path.with_nix_path(ask)? {
        Ok(_) => Ok(true),
        Err(Errno::ENODATA) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

/// Has the kernel kill the program when the thread that starts it ends, for whatever reason.
pub fn end_with_parent(command: &mut Command) {
    let parent = getpid();
    let bind = move || {
        set_pdeathsig(Signal::SIGKILL)?;
        // The parent may have ended before that.
        if getppid() == parent { Ok(()) } else { Err(Errno::ESRCH.into()) }
    };
    // SAFETY: between fork and exec this makes two system calls and nothing else: it takes no lock, allocates
    // nothing, and shares no memory with other threads.
    unsafe { command.pre_exec(bind) };
}
