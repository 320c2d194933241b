//! What callers ask of the pool, and how a request is held against what exists. Pure.

use std::collections::BTreeMap;
use std::fmt;

use crate::claim::Rule;
use crate::device::{
    SetName, VolumeId,
    label::{VolumeRecord, VolumeUsage},
};
use crate::host::FsKind;

/// Which disks a request may use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selector {
    /// The StorageClass that a set offers its disks to.
    pub class: Option<String>,
    /// One set.
    pub set: Option<SetName>,
}

/// What a volume is to be used as; a filesystem may be left to the set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WantedUsage {
    Block,
    Mount(Option<FsKind>),
}

impl WantedUsage {
    /// Whether a volume that was made for `made` is what is wanted; a filesystem left open agrees with any.
    pub fn accepts(self, made: VolumeUsage) -> bool {
        match (made, self) {
            (VolumeUsage::Block, Self::Block) | (VolumeUsage::Mount(_), Self::Mount(None)) => true,
            (VolumeUsage::Mount(made), Self::Mount(Some(wanted))) => made == wanted,
            (VolumeUsage::Block, Self::Mount(_)) | (VolumeUsage::Mount(_), Self::Block) => false,
        }
    }
}

/// A volume that is asked for.
#[derive(Clone, Debug)]
pub struct CreateRequest {
    pub id: VolumeId,
    /// The full CSI name.
    pub name: String,
    pub required: u64,
    pub limit: Option<u64>,
    pub usage: WantedUsage,
    pub parameters: BTreeMap<String, String>,
    pub selector: Selector,
}

/// Whether a verb changed something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    Done,
    AlreadySo,
    /// Of a deletion: nothing is erased, as a person gave the disk up, and has not adopted it since.
    Kept,
}

impl Selector {
    pub fn selects(&self, rule: &Rule) -> bool {
        let class = self.class.as_ref().is_none_or(|class| *class == rule.class);
        let set = self.set.as_ref().is_none_or(|set| *set == rule.set.name);
        class && set
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.class, &self.set) {
            (None, None) => f.write_str("anybody"),
            (Some(class), None) => write!(f, "class {class}"),
            (None, Some(set)) => write!(f, "set {set}"),
            (Some(class), Some(set)) => write!(f, "class {class} by set {set}"),
        }
    }
}

/// What keeps an existing volume of `size` bytes from being the one that is asked for.
pub fn difference(record: &VolumeRecord, size: u64, request: &CreateRequest) -> Option<String> {
    if size < request.required {
        return Some(format!("it has {size} bytes, and {} are asked for", request.required));
    }
    if let Some(limit) = request.limit.filter(|limit| *limit < size) {
        return Some(format!("it has {size} bytes, and the limit is {limit}"));
    }
    if !request.usage.accepts(record.usage) {
        return Some(format!("it was made as {}", usage_text(record.usage)));
    }
    (record.parameters != request.parameters).then(|| "it was made with other parameters".to_owned())
}

fn usage_text(usage: VolumeUsage) -> String {
    match usage {
        VolumeUsage::Block => "a raw block volume".to_owned(),
        VolumeUsage::Mount(kind) => format!("a mount volume with {}", kind.name()),
    }
}
