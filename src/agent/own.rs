//! Bare devices with volumes that others know of and the journal does not: it was lost with the state directory, or is
//! older than the volume. They are nobody's to claim, to wipe, to erase, or to read.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::question::{Answers, Wanted};
use super::reconciler::Reconciler;
use crate::claim::{NodeMatch, Rule};
use crate::device::discovery::{DiscoveryError, Snapshot};
use crate::device::duplicate::hardware;
use crate::device::reason::Reason;
use crate::device::{Device, Verdict};
use crate::host::{RawDisk, chain};
use crate::pool::{AskOwn, Knowledge, KnownDisk, ToldVolume, Unasked};

impl Reconciler {
    /// Asks others on which bare devices volumes are: before the first look, and before a claim.
    pub fn asking_for_own(mut self, ask: AskOwn) -> Self {
        self.question.ask_own(ask);
        self
    }

    /// Before the first look, and before each one until it was told once: what a tenant wrote into a bare device must not pass for
    /// a disk of ours, nor a volume that is younger than the journal for what that erases.
    pub(super) fn know_own(&mut self) -> Result<(), DiscoveryError> {
        if self.pool.journal().is_compared() {
            return Ok(());
        }
        let told = self.ask(Wanted::Own).and_then(|told| told.own);
        let Err(why) = told.and_then(|own| self.learn_own(own)) else { return Ok(()) };
        // What a sound journal knows does not wait for that, and the text of a damaged one has told what it could.
        if self.pool.journal().is_new() {
            return Err(DiscoveryError::NotTold(why));
        }
        if self.pool.is_looked_at() {
            tracing::warn!(
                why,
                "which bare devices have volumes is known from the journal alone; nothing is erased there"
            );
        }
        Ok(())
    }

    /// Until then, a disk with our label that the journal does not know may be what a tenant wrote: it joins later.
    pub(super) fn leave_unknown_labels(&mut self, set: &mut Snapshot) {
        let journal = Arc::clone(self.pool.journal());
        if journal.is_compared() || journal.sound().is_err() {
            return;
        }
        let is_known = |device: &Device| {
            let is_its = |known: &KnownDisk| known.hardware.is_none() || known.hardware == hardware(&device.raw);
            journal.known(|id| id == device.id.text).iter().any(|(_, known)| is_its(known))
        };
        for device in set.devices.iter_mut().filter(|device| device.label.is_some()) {
            if device.verdict != Verdict::Ours || is_known(device) {
                continue;
            }
            device.verdict = Verdict::Unknown(
                "it has our label, and the journal of this node does not know it: the API server was not heard yet on whether a \
                 volume is there"
                    .to_owned(),
            );
            device.label = None;
            self.memory.discovery.changed(&device.raw.name);
        }
    }

    /// Disks that could not be read, where no journal says which disks there were: any that a set here selects may be ours, but
    /// for those that are being claimed.
    pub(super) fn may_be_ours(&self, set: &Snapshot, claiming: &BTreeSet<String>) -> Vec<Unasked> {
        if !self.pool.journal().is_in_doubt() {
            return Vec::new();
        }
        let selects = |rule: &Rule, raw: &RawDisk| {
            // Nothing is known of the size of a dead one.
            let size = if raw.size == 0 { rule.filter.min_size } else { raw.size };
            rule.node == NodeMatch::Selected
                && rule.named.as_ref().is_none_or(|named| named.names(raw))
                && rule.filter.matches(&RawDisk { size, ..raw.clone() }, None).is_ok()
        };
        // A volume of ours may be mounted: then the verdict speaks of that.
        let why = |device: &Device| match &device.verdict {
            Verdict::Unknown(why) => Some(why.clone()),
            // A tenant's.
            Verdict::Theirs(Reason::OnPoolVolume { .. } | Reason::OnGivenUp { .. }) => None,
            Verdict::Theirs(_) => device.unread.clone(),
            Verdict::Unclaimed | Verdict::Ours | Verdict::Foreign { .. } => None,
        };
        let unknown = |device: &Device| {
            let why = why(device).filter(|_| self.rules.iter().any(|rule| selects(rule, &device.raw)))?;
            let (disk, listed) = (device.id.text.clone(), BTreeSet::new());
            Some(Unasked { disk, why, listed, knowledge: Knowledge::None })
        };
        set.devices.iter().filter(|device| !claiming.contains(&device.raw.name)).filter_map(unknown).collect()
    }

    /// What the API server knows of this node's devices, if it says so within a moment. A later answer makes a pass due.
    pub(super) fn ask(&mut self, wanted: Wanted) -> Result<Answers, String> {
        let pool = Arc::clone(&self.pool);
        self.question.answer(self.passes, wanted, move || pool.nudge())
    }

    /// True: there is a device that was not known.
    pub(super) fn learn_own(&mut self, own: Vec<ToldVolume>) -> Result<bool, String> {
        self.pool.journal().learn(own).map_err(|error| chain(&error))
    }
}
