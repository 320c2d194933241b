//! Whether a device suits a set: what the set says of devices, whether the device is of use to it, and whether it may
//! take it.
//!
//! Takes in one set's turn and a device; gives out nothing, or the first reason against it. The order of the questions
//! is the order in which people read the reasons.

use super::turn::{SetTurn, TakenBy};
use crate::claim::{
    mismatch::Mismatch,
    rejection::{ContentFate, Rejection},
    ripeness::Ripeness,
    rule::{Blankness, NodeMatch},
};
use crate::device::{Attachment, Device, NotFree, Reach, Verdict, id, label::SetRef};
use crate::host::{DeviceKind, Health, RawDisk};

/// Whether the kernel maps partitions on it: not on a partition, and not on a mapped device.
pub(super) fn holds_table(raw: &RawDisk) -> bool {
    !matches!(raw.kind, DeviceKind::Partition(_) | DeviceKind::Dm(_))
}

impl<'a> SetTurn<'_, 'a> {
    pub(super) fn ripeness(&self, device: &Device) -> Ripeness {
        if self.rule.dry_run { Ripeness::Ripe } else { self.hall.candidacy(device).ripeness }
    }

    /// A disk of the pool is worth a word only to another set that would have it too.
    pub(super) fn is_contested(&self, why: &Rejection) -> bool {
        matches!(why, Rejection::InSet(owner) if !self.is_named_like(owner))
    }

    pub(super) fn is_own(&self, device: &Device) -> bool {
        device.label.as_ref().is_some_and(|label| self.is_named_like(&label.set))
    }

    /// This set, or an earlier one of its name.
    pub(super) fn is_named_like(&self, set: &SetRef) -> bool {
        set.has_name_of(&self.rule.set)
    }

    pub(super) fn is_bare_use(&self, device: &Device) -> bool {
        !holds_table(&device.raw) || self.rule.layout.is_bare()
    }

    pub(super) fn wants_zeros(&self, device: &Device) -> bool {
        self.is_bare_use(device) || self.rule.blankness == Blankness::Zeros || self.hall.candidacy(device).may_be_ours
    }

    pub(super) fn orders_wipe(&self) -> bool {
        self.rule.named.as_ref().is_some_and(|named| named.wipe)
    }

    pub(super) fn is_wipeable(&self, device: &Device) -> bool {
        matches!(self.hall.candidacy(device).wipe, Some(Ok(_)))
    }

    /// What is said of a device that is not blank: only a set that orders its content to go says what becomes of that.
    pub(super) fn content(&self, why: NotFree, then: ContentFate) -> Rejection {
        match (self.orders_wipe(), then) {
            (false, _) => Rejection::Verdict(why),
            (true, ContentFate::Wipe) if self.rule.dry_run => Rejection::Content { why, then: ContentFate::WouldWipe },
            (true, then) => Rejection::Content { why, then },
        }
    }

    pub(super) fn suits(&self, device: &'a Device, taken: &TakenBy<'_>) -> Result<(), Rejection> {
        self.selects(device)?;
        device.free().map_err(Rejection::Verdict)?;
        self.may_take(device, taken)
    }

    /// The same of a device whose content may go, were it blank; and since when that content has been there.
    pub(super) fn suits_when_wiped(&self, device: &'a Device, taken: &TakenBy<'_>) -> Result<Ripeness, ContentFate> {
        let ripeness = match &self.hall.candidacy(device).wipe {
            Some(Ok(ripeness)) => *ripeness,
            Some(Err(spared)) => return Err(ContentFate::Spare(spared.clone())),
            None => Ripeness::Unseen,
        };
        self.may_take(device, taken).map_err(|why| ContentFate::Reject(Box::new(why)))?;
        Ok(if self.rule.dry_run { Ripeness::Ripe } else { ripeness })
    }

    /// By what the set says of devices.
    pub(super) fn selects(&self, device: &'a Device) -> Result<(), Rejection> {
        match self.rule.node {
            NodeMatch::Selected => {}
            NodeMatch::NotSelected => return Err(Rejection::NodeNotSelected),
            NodeMatch::HeldBack => return Err(Rejection::HeldBack),
            NodeMatch::Tainted => return Err(Rejection::Tainted),
            NodeMatch::StandsBack => return Err(Rejection::StandsBack),
        }
        if self.rule.named.as_ref().is_some_and(|named| !named.names(&device.raw)) {
            return Err(Rejection::NotNamed);
        }
        self.rule.filter.matches(&device.raw, self.disk_of(device)).map_err(Rejection::Filter)?;
        if self.rule.filter.exclude_network {
            let Attachment { reach, by } = self.hall.attachments.of(&device.raw);
            if reach == Reach::Network {
                return Err(Rejection::Filter(Mismatch::Network { by }));
            }
        }
        if let Some(expression) = &self.rule.filter.expression {
            expression.selects(device, self.hall.attachments.of(&device.raw)).map_err(Rejection::Filter)?;
        }
        match (&device.verdict, &device.label) {
            (Verdict::Ours, Some(label)) => Err(Rejection::InSet(label.set.clone())),
            _ => Ok(()),
        }
    }

    /// The disk that a partition is on.
    pub(super) fn disk_of(&self, device: &Device) -> Option<&'a RawDisk> {
        match &device.raw.kind {
            DeviceKind::Partition(partition) => self.hall.disks.get(&partition.disk).copied(),
            _ => None,
        }
    }

    /// Whether a device that nobody has is of use to the set.
    pub(super) fn can_use(&self, device: &'a Device) -> Result<(), Rejection> {
        let ballot = self.hall.ballot;
        if ballot.released.contains(&device.id) {
            return Err(Rejection::Released);
        }
        let astray = ballot.astray.get(&self.rule.set).copied().unwrap_or(0);
        if astray > 0 && self.rule.named.as_ref().is_some_and(|named| named.names_by_number_only(&device.raw)) {
            return Err(Rejection::Renumbered { astray });
        }
        if !holds_table(&device.raw) && (self.rule.layout.cuts() || self.rule.layout.is_directory()) {
            return Err(Rejection::HoldsNoTable);
        }
        if self.is_bare_use(device) && device.id.is_path() {
            return Err(Rejection::UnstableIdentity);
        }
        if self.is_bare_use(device) && id::may_be_of_bridge(&device.raw, self.disk_of(device)) {
            return Err(Rejection::NamedByBridge);
        }
        (ballot.fits)(self.rule, device).map_err(Rejection::DoesNotFit)?;
        match &self.hall.candidacy(device).not_zeros {
            Some(why) if self.wants_zeros(device) => Err(Rejection::NotZeros(*why)),
            _ => Ok(()),
        }
    }

    pub(super) fn may_take(&self, device: &'a Device, taken: &TakenBy<'_>) -> Result<(), Rejection> {
        self.can_use(device)?;
        if let Some(least) = self.rule.filter.min_health {
            let silent = || Health::Unknown("it was not asked".to_owned());
            let health = self.hall.candidacy(device).health.clone().unwrap_or_else(silent);
            least.check(&health).map_err(Rejection::Health)?;
        }
        match taken.get(&device.raw.name) {
            Some(older) => Err(Rejection::OlderSet((*older).clone())),
            None => Ok(()),
        }
    }
}
