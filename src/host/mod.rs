//! The machine, and the only place with effects.
//!
//! Takes in what the modules to its right decide; gives out what the kernel says ([`RawDisk`], [`Probe`], mounts) and
//! does what is asked of it (disk I/O, partition mapping, mkfs, mount). [`Host`] is the seam: `real::RealHost` talks to
//! Linux, and `dry::DryHost` shows another host but changes nothing on it. Tests have `fake::FakeHost`, a machine in
//! memory that loses unsynced writes and fails on purpose; the shipped program does not contain it.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "effects live here, and only here")]

pub mod agent_lock;
pub mod arrival;
pub mod backoff;
pub mod block;
pub mod command;
pub mod disk;
pub mod dry;
pub mod dying;
mod error;
pub mod events;
pub mod extent;
#[cfg(any(test, feature = "testing"))]
pub mod fake;
pub mod filesystem;
mod flock;
pub mod health;
mod hint;
mod holder;
pub mod in_use;
pub mod ioctl;
mod kernel_name;
pub mod links;
pub mod machine_id;
pub mod mount;
pub mod mountinfo;
pub mod natural_order;
pub mod pace;
pub mod patience;
mod port;
pub mod raw;
pub mod real;
mod roots;
pub mod signature;
pub mod smart;
pub mod state;
pub mod stdout;
pub mod swaps;
pub mod sysfs;
pub mod table;
pub mod told;
pub mod turn;
pub mod udev;
pub mod udev_events;
pub mod uevent;
mod wait;

pub use block::{BlockDevice, Disk, Geometry, IoError, Mapping, Openers, PartitionMap};
pub use error::{HostError, chain};
pub use extent::Extent;
pub use health::Health;
pub use hint::Hint;
pub use kernel_name::KernelName;
pub use port::{Access, Bind, Filesystems, FsIdentity, FsKind, Host, Mount, Mounts, TargetKind, Usage};
pub use raw::{Probe, RawDisk};
pub use roots::Roots;
pub use state::StateStore;
