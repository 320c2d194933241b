//! What a disk is: its identity, the label on it, whose it is.
//!
//! Takes in [`RawDisk`]s from `host`, gives out [`Device`]s. Pure but for `discovery`, the one file
//! that asks a `Host` to look.

mod attachment;
mod device_type;
mod discovery;
mod disk_id;
pub mod duplicate;
mod fact;
pub mod fact_table;
mod filesystem_name;
mod free;
pub mod id;
mod judged;
pub mod label;
pub mod lvm_filter;
mod node_name;
mod ownership;
mod pv_name;
mod reason;
pub mod record;
mod remembered;
#[cfg(any(test, feature = "testing"))]
pub mod sample;
mod set_name;
mod set_uid;
mod size;
pub mod udev_rules;
mod volume_id;
mod withheld;
mod word_enum;

pub use attachment::{Attachment, Attachments, Reach};
pub use device_type::{DeviceType, device_type, type_name};
pub use discovery::{Discovery, DiscoveryError, Snapshot, disk_of};
pub use disk_id::{DiskId, HardwareId, may_be_hardware};
pub use fact::{
    Alignment, Fact, FactKind, FactValue, Facts, FieldRank, Observed, ResultField, ShownVerdict, TableColumn,
    TableWidth,
};
pub use filesystem_name::FilesystemName;
pub use free::NotFree;
pub use judged::{Believed, Device, Verdict};
pub use node_name::NodeName;
pub use ownership::Owner;
pub use pv_name::PvName;
pub use reason::{Holder, Reason};
pub use remembered::{Memo, REMEMBERED_FOR, Remembered};
pub use set_name::SetName;
pub use set_uid::SetUid;
pub use size::{Size, signed};
pub use volume_id::VolumeId;
pub use withheld::Withholding;
pub(crate) use word_enum::word_enum;
