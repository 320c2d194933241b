//! What there is to see of a labelled disk without its lock, and what it has to give.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use crate::claim::Rule;
use crate::device::DiskId;
use crate::device::label::VolumeUsage;
use crate::host::RawDisk;
use crate::pool::choose::{DiskOffer, offer};
use crate::pool::content::{Content, VolumeEntry};
use crate::pool::cordon::Cordon;
use crate::pool::view::{Standing, VolumeView};

/// What there is to see of a member without its lock.
pub struct LabelledShown {
    pub raw: RawDisk,
    pub content: Content,
    pub standing: Standing,
    pub rule: Option<Arc<Rule>>,
    /// Device nodes of its volumes, by number; none while it is not open.
    pub(super) nodes: BTreeMap<u32, PathBuf>,
}

impl LabelledShown {
    /// What of it somebody uses, though no volume is there, and what that costs.
    pub fn held(&self) -> Option<String> {
        let held: Vec<&str> = self.content.held.values().map(|held| held.why.as_str()).collect();
        (!held.is_empty())
            .then(|| format!("{}: not offered, and not erased, before that ends; tried again", held.join("; ")))
    }

    pub fn is_usable(&self) -> bool {
        self.standing == Standing::Ready
    }

    /// Why it takes no new volumes, as its label says.
    pub fn cordon(&self) -> Option<Cordon> {
        self.content.label.given_up.then_some(Cordon::GivenUp)
    }

    /// What it has to give for `usage`, where its set exists and allows that.
    pub fn offer(&self, member: usize, usage: VolumeUsage) -> Option<DiskOffer<usize>> {
        let rule = self.rule.as_ref()?;
        (rule.allows(usage) && self.is_usable()).then(|| offer(member, &self.content, usage))
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
