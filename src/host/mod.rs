//! The machine, and the only place with effects.
//!
//! Takes in what the modules to its right decide; gives out what the kernel says ([`RawDisk`], [`Probe`], mounts) and
//! does what is asked of it (disk I/O, partition mapping, mkfs, mount). [`Host`] is the seam: `real::RealHost` talks to
//! Linux, and `dry::DryHost` shows another host but changes nothing on it. Tests have `fake::FakeHost`, a machine in
//! memory that loses unsynced writes and fails on purpose; the shipped program does not contain it.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "effects live here, and only here")]

mod agent_lock;
mod announcements;
mod array_state;
mod arrays;
mod backoff;
mod benchmark;
mod block;
mod command;
mod device_event;
mod device_lock;
mod directory_tree;
mod disk;
mod disk_figures;
mod dry;
mod dying;
mod error;
mod events;
mod extent;
#[cfg(any(test, feature = "testing"))]
pub mod fake;
mod file_watch;
mod filesystem;
mod filesystem_root;
mod filesystem_state;
mod flock;
mod fs_usage;
mod health;
mod holder;
mod in_use;
pub mod ioctl;
mod kernel_name;
pub mod links;
pub mod machine_id;
mod machine_start;
mod mount;
mod mountinfo;
mod natural_order;
mod new_file;
mod notifier;
mod pace;
mod port;
mod process_start;
mod project_quota;
mod raw;
mod real;
mod roots;
pub mod signature;
mod slot_light;
mod smart;
pub mod state;
pub mod stdout;
pub mod sysfs;
pub mod table;
mod text_types;
pub mod timeout;
mod udev;
mod udev_events;
mod wait;

pub use agent_lock::AgentLock;
pub use announcements::Announcements;
pub use array_state::ArrayState;
pub use backoff::Backoff;
pub use block::{BlockDevice, Disk, Geometry, IoError, Mapping, Openers, PartitionMap};
pub use command::TimedCommand;
pub use device_event::DeviceEvent;
pub use device_lock::{
    DEVICE_LOCK_TIMEOUT, DeviceLock, DeviceLockGuard, LockTimeout, SHORT_DEVICE_LOCK_TIMEOUT, Shows,
};
pub use disk::RealDisk;
pub use disk_figures::{BenchmarkBounds, DiskFigures, MachineModel};
pub use dry::DryHost;
pub use error::{HostError, SharedError, chain};
pub use events::DeviceEvents;
pub use extent::Extent;
pub use file_watch::FileWatch;
pub use filesystem::{FilesystemTimeouts, RealFilesystems, UnknownFilesystem};
pub use filesystem_root::{Emptying, FilesystemRoot};
pub use filesystem_state::FilesystemState;
pub use fs_usage::FsUsage;
pub use health::{DiskNumber, DiskReport, DiskWarning, Health, IoErrors, WriteCounts};

pub use in_use::UNSEEN_NAMESPACE;
pub use kernel_name::KernelName;
pub use machine_start::MachineStart;
pub use mount::RealMounts;
pub use natural_order::natural_order;
pub use new_file::{is_there, write_new};
pub use notifier::Notifier;
pub use pace::{ZeroingBudget, zero_for_a_moment};
pub use port::{
    Access, Arrays, DeviceLimits, Filesystems, FsIdentity, FsKind, Host, Mount, MountSource, Mounted,
    MountedFilesystem, Mounts, NewArray, NoMountPoint, PathState, TargetAccess, TargetKind,
};
pub use project_quota::{ModuleLoading, ProjectId, ProjectQuota, ProjectUsage, QuotaState};
pub use raw::{
    DevNo, DeviceKind, Dm, ForeignLink, Incarnation, LoopBacking, Md, MountHow, MountUse, Partition, Probe,
    ProbeResult, RawDisk, Signature, is_unchanged,
};
pub use real::RealHost;
pub use roots::Roots;
pub use slot_light::{Lit, SlotLight};
pub use state::{StateDir, StateStore};
pub(crate) use text_types::{name_type, text_type};
