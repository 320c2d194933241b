//! The label: what one of our disks says about itself.
//!
//! It lives in partition entry 1 (1 MiB at 1 MiB) as two checksummed, sequence-numbered copies. The
//! table's entries decide what exists; the label describes it. It is written before the entry that it
//! describes, and a description without an entry is dropped.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::disk_id::HardwareId;
use super::node_name::NodeName;
use super::volume_id::VolumeId;
use crate::device::set_name::SetName;
use crate::device::set_uid::SetUid;
use crate::host::table::Ours;
use crate::host::{Extent, FsKind, RawDisk};

/// Partition type of entry 1.
pub const LABEL_TYPE: Uuid = Uuid::from_u128(0x6c6f6361_6c70_4f6f_8c6c_1abe1d15c000);
/// Partition type of a volume; the partition's GUID is the volume's id.
pub const VOLUME_TYPE: Uuid = Uuid::from_u128(0x6c6f6361_6c70_4f6f_8c6c_1abe1d15c001);
/// Partition type of a slot without a volume.
pub const FREE_SLOT_TYPE: Uuid = Uuid::from_u128(0x6c6f6361_6c70_4f6f_8c6c_1abe1d15c002);
/// Partition type of a deleted volume that is not erased yet; its GUID is random.
pub const ERASING_TYPE: Uuid = Uuid::from_u128(0x6c6f6361_6c70_4f6f_8c6c_1abe1d15c003);
/// Partition type of a pool filesystem, whose folders are volumes; the partition's GUID is its diskUUID.
pub const POOL_FILESYSTEM_TYPE: Uuid = Uuid::from_u128(0x6c6f6361_6c70_4f6f_8c6c_1abe1d15c004);
/// Partition type of a member of an array: no volume gets it.
pub const ARRAY_MEMBER_TYPE: Uuid = Uuid::from_u128(0x6c6f6361_6c70_4f6f_8c6c_1abe1d15c005);
/// Attribute bit of a volume, a pool filesystem or a member of an array: what is to be in it was made and was synced, the
/// filesystem or the array (bits 48 to 63 are the type's own).
pub const FORMATTED: u64 = 1 << 48;
/// Where the label partition is: 1 MiB at 1 MiB.
pub const LABEL_EXTENT: Extent = Extent { start: 1 << 20, end: 2 << 20 };
/// Where the first volume or slot may begin.
pub const DATA_START: u64 = 2 << 20;
/// The number of the partition of a disk that is a member of an array.
pub const MEMBER_NUMBER: u32 = 2;
/// What makes a partition table ours.
pub const OURS: Ours = Ours {
    label: LABEL_TYPE,
    extent: LABEL_EXTENT,
    types: &[LABEL_TYPE, VOLUME_TYPE, FREE_SLOT_TYPE, ERASING_TYPE, POOL_FILESYSTEM_TYPE, ARRAY_MEMBER_TYPE],
};
/// Version of the label that this code writes and reads; a newer one is never changed.
pub const FORMAT: u32 = 1;

/// What one of our disks says about itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Label {
    /// The GPT disk GUID, repeated: a label that was copied alone to another disk does not verify.
    pub disk: Uuid,
    /// UID of the cluster (of its kube-system namespace), or `standalone`.
    pub cluster: String,
    pub node: NodeName,
    pub hardware: Hardware,
    pub set: SetRef,
    pub layout: Layout,
    /// A release has begun: recovery ends it instead of taking the disk back.
    #[serde(default)]
    pub releasing: bool,
    /// A volume was made on it once.
    #[serde(default)]
    pub used: bool,
    /// A person gave it up while it was away: until a person adopts it, nothing on it is offered or used.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub given_up: bool,
    /// Free space that is known to read as zeros, sorted and disjoint. All other free space is dirty.
    pub clean: Vec<Extent>,
    /// By volume id.
    pub volumes: BTreeMap<VolumeId, VolumeRecord>,
    /// By the random GUID of the erasing entry.
    pub erasing: BTreeMap<Uuid, EraseRecord>,
}

/// The hardware that a label was written on, to tell a disk from a copy of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Hardware {
    /// The disk's id before it had a label: `wwid-…`, `serial-…`, `loop-…`.
    pub id: HardwareId,
    pub model: Option<String>,
    pub serial: Option<String>,
}

impl Hardware {
    pub fn of(id: HardwareId, raw: &RawDisk) -> Self {
        Self { id, model: raw.model.clone(), serial: raw.serial.clone() }
    }

    /// Whether this cannot be the other one. A fact that only one of them has decides nothing.
    pub fn differs_from(&self, other: &Self) -> bool {
        let serials = self.serial.as_ref().zip(other.serial.as_ref());
        self.id != other.id || serials.is_some_and(|(serial, other)| serial.trim() != other.trim())
    }
}

impl fmt::Display for Hardware {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.id)?;
        let parts = [("model", &self.model), ("serial", &self.serial)];
        parts.iter().try_for_each(|(what, text)| match text {
            Some(text) => write!(f, ", {what} {}", text.trim()),
            None => Ok(()),
        })
    }
}

/// The LocalVolumeSet that owns a disk: by UID, then by name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SetRef {
    #[serde(flatten)]
    pub name: SetName,
    pub uid: SetUid,
}

impl SetRef {
    pub fn new(name: SetName, uid: impl Into<SetUid>) -> Self {
        Self { name, uid: uid.into() }
    }

    /// Whether it is the same set, or one that was created again under its name.
    pub fn has_name_of(&self, other: &SetRef) -> bool {
        self.name == other.name
    }
}

/// `namespace/name`.
impl fmt::Display for SetRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.name.fmt(f)
    }
}

/// How volumes are cut from a disk (design: layouts of a pool disk). Sizes in bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "kind")]
pub enum Layout {
    /// One volume partition that fills the disk.
    Whole {},
    /// Slots of a size, of a count, or both; written when the disk is claimed.
    Slots { size: Option<u64>, count: Option<u32> },
    /// A partition of just the asked size.
    Carved {},
    /// A folder of one filesystem that fills the disk.
    Directory { quota: Quota },
    /// A member of an array. Volumes are on the array, which is a disk with a label of its own.
    Member(ArrayPlace),
    /// The bare device; no label, no table.
    RawDevice {},
}

/// Which array a disk is a member of, and as which of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ArrayPlace {
    /// The UUID that md knows the array by.
    pub array: Uuid,
    pub level: ArrayLevel,
    /// From 0.
    pub place: u32,
    /// How many members the array has.
    pub count: u32,
    /// Bytes that are on one member before those of the next one.
    pub chunk: u64,
}

/// What an array does with its members, in md's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ArrayLevel {
    /// Its size is that of all members, and each of them is needed.
    Raid0,
}

impl ArrayLevel {
    pub fn name(self) -> &'static str {
        match self {
            Self::Raid0 => "raid0",
        }
    }
}

/// `member 1 of 2 of the array …`, counted from 1 as people do.
impl fmt::Display for ArrayPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "member {} of {} of the array {}", self.place.saturating_add(1), self.count, self.array)
    }
}

/// What keeps a folder within the size of its volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Quota {
    /// Project quota of XFS: each folder is a project with a hard limit.
    Project,
    /// Nothing: sizes are counted, and one volume can use up the space of all.
    None,
}

impl Layout {
    /// The disk is cut into partitions for volumes.
    pub fn cuts(&self) -> bool {
        match self {
            Self::Slots { .. } | Self::Carved {} => true,
            Self::Whole {} | Self::Directory { .. } | Self::Member(_) | Self::RawDevice {} => false,
        }
    }

    /// Each volume gets a partition of just its size.
    pub fn carves(&self) -> bool {
        match self {
            Self::Carved {} => true,
            Self::Whole {} | Self::Slots { .. } | Self::Directory { .. } => false,
            Self::Member(_) | Self::RawDevice {} => false,
        }
    }

    /// Nothing on the disk says whose it is.
    pub fn is_bare(&self) -> bool {
        match self {
            Self::RawDevice {} => true,
            Self::Whole {} | Self::Slots { .. } | Self::Carved {} | Self::Directory { .. } | Self::Member(_) => false,
        }
    }

    /// Its volumes are folders of a filesystem of the pool.
    pub fn is_directory(&self) -> bool {
        match self {
            Self::Directory { .. } => true,
            Self::Whole {} | Self::Slots { .. } | Self::Carved {} | Self::Member(_) | Self::RawDevice {} => false,
        }
    }

    /// What keeps its volumes within their sizes; `None`: they are no folders.
    pub fn quota(&self) -> Option<Quota> {
        match self {
            Self::Directory { quota } => Some(*quota),
            Self::Whole {} | Self::Slots { .. } | Self::Carved {} | Self::Member(_) | Self::RawDevice {} => None,
        }
    }

    /// The place of its disk in an array; `None`: it is in none.
    pub fn member(&self) -> Option<ArrayPlace> {
        match self {
            Self::Member(place) => Some(*place),
            Self::Whole {} | Self::Slots { .. } | Self::Carved {} => None,
            Self::Directory { .. } | Self::RawDevice {} => None,
        }
    }
}

/// What a volume is, beyond its place on the disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VolumeRecord {
    /// The full CSI volume name.
    pub name: String,
    /// What CreateVolume asked for, in bytes; the limit is `None` if none was given.
    pub required: u64,
    pub limit: Option<u64>,
    pub parameters: BTreeMap<String, String>,
    pub usage: VolumeUsage,
    /// Bytes of the device that its filesystem was made for or last grown to; 0 without one.
    #[serde(default)]
    pub fs_size: u64,
    /// Came with an adopted disk and waits for `volume adopt`.
    #[serde(default)]
    pub found: bool,
}

/// How a tenant uses a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum VolumeUsage {
    Block,
    Mount(FsKind),
}

/// A deleted volume on its way to free space.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EraseRecord {
    /// The volume that it was.
    pub was: VolumeId,
    pub policy: ErasePolicy,
    /// Everything before this byte of the disk is erased, durably.
    pub cursor: u64,
}

/// What happens to the data of a deleted volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ErasePolicy {
    /// BLKZEROOUT, then BLKDISCARD as a hint.
    #[default]
    Discard,
    /// BLKZEROOUT only.
    Zero,
    /// Nothing: the space stays dirty.
    None,
}
