//! What there is to see of a labelled disk without its lock.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use crate::claim::Rule;
use crate::device::DiskId;
use crate::device::label::{ArrayPlace, FORMATTED, VolumeUsage};
use crate::host::RawDisk;
use crate::pool::content::{Content, VolumeEntry};
use crate::pool::cordon::Cordon;
use crate::pool::view::{Standing, VolumeView};

/// What there is to see of a member without its lock.
pub struct LabelledShown {
    pub raw: RawDisk,
    pub content: Content,
    pub standing: Standing,
    pub rule: Option<Arc<Rule>>,
    /// Device nodes of its volumes and of its member of an array, by number; none while it is not open.
    pub(super) nodes: BTreeMap<u32, PathBuf>,
}

/// What a disk says of the array that it is a member of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArrayMember {
    pub place: ArrayPlace,
    /// The array has its superblock there.
    pub is_made: bool,
    /// The array may hold data.
    pub is_used: bool,
    /// The node of its partition; `None`: it is not open.
    pub node: Option<PathBuf>,
}

impl LabelledShown {
    /// `None`: it is a member of no array.
    pub fn array_member(&self) -> Option<ArrayMember> {
        let place = self.content.label.layout.member()?;
        let entry = self.content.array_member();
        Some(ArrayMember {
            place,
            is_made: entry.is_some_and(|(_, entry)| entry.attributes & FORMATTED != 0),
            is_used: self.content.label.used,
            node: entry.and_then(|(number, _)| self.nodes.get(&number).cloned()),
        })
    }

    /// What of it somebody uses, though no volume is there, and what that costs.
    pub fn busy(&self) -> Option<String> {
        let busy: Vec<&str> = self.content.busy.values().map(|busy| busy.why.as_str()).collect();
        (!busy.is_empty())
            .then(|| format!("{}: not offered, and not erased, before that ends; tried again", busy.join("; ")))
    }

    pub fn is_usable(&self) -> bool {
        self.standing == Standing::Ready
    }

    /// Why it takes no new volumes, as its label says.
    pub fn cordon(&self) -> Option<Cordon> {
        self.content.label.given_up.then_some(Cordon::GivenUp)
    }

    pub(super) fn view(&self, member: &DiskId, volume: &VolumeEntry<'_>) -> VolumeView {
        let content = &self.content;
        let mut into = content.unpartitioned();
        let block = volume.record.is_some_and(|r| r.usage == VolumeUsage::Block);
        if block && !content.geometry.offloads_zeroes {
            into = into.intersection(&content.clean());
        }
        VolumeView {
            id: volume.id(),
            record: volume.record.cloned(),
            size: volume.size(),
            formatted: volume.formatted(),
            growable_to: content.growable_to(volume.id(), &into).unwrap_or(volume.size()),
            set: content.label.set.clone(),
            disk: member.clone(),
            standing: self.standing.clone(),
            given_up: content.label.given_up,
            conflict: None,
            node: self.nodes.get(&volume.number).cloned().unwrap_or_default(),
            directory: None,
        }
    }
}
