//! What the PoolVolumes of this node say of its disks, and what waits until they were heard: a journal can be lost with
//! the state directory, or be older than a volume. Bare devices with a volume that it does not know are nobody's to
//! claim, to wipe, to erase, or to read.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::question::{Answers, AskError, OwnError, Wanted};
use super::reconciler::Reconciler;
use crate::claim::{NoAnswer, NodeMatch, Rule};
use crate::device::{Device, DiscoveryError, Reason, Snapshot, Verdict, duplicate::stable_hardware_id};
use crate::host::{KernelName, RawDisk, chain};
use crate::pool::{AskVolumes, Knowledge, KnownDisk, ReportedVolume, Unasked};

impl Reconciler {
    /// Asks which disks have volumes: before each look until that was told once, and before a claim.
    pub fn asking_for_own(mut self, ask: AskVolumes) -> Self {
        self.question.ask_own(ask);
        self
    }

    /// What a tenant wrote into a bare device must not pass for a disk of the pool, and a volume that was made after
    /// the journal was written must not be erased as the one before it.
    pub(super) fn know_own(&mut self) -> Result<(), DiscoveryError> {
        if self.pool.journal().knows_volumes() {
            self.volumes_unread = None;
            return Ok(());
        }
        let error = match self.ask(Wanted::Own) {
            // The first answer often takes longer than a pass waits: that is not worth a word.
            Err(not_yet) => OwnError::from(not_yet),
            Ok(answers) => match self.learn_own(answers.own) {
                Ok(_) => {
                    self.volumes_unread = None;
                    return Ok(());
                }
                Err(error) => {
                    let why = chain(&error);
                    tracing::warn!(
                        why,
                        "the PoolVolumes of this node were not read: until they are, localpool erases nothing and \
                         makes no volume on a bare device, and adds no labelled disk that the journal does not know"
                    );
                    self.volumes_unread = Some(why);
                    error
                }
            },
        };
        // Only an empty journal waits. A sound one knows its devices; of a damaged one the ids were gleaned.
        match self.pool.journal().is_new() {
            true => Err(DiscoveryError::VolumesNotRead(Box::new(error))),
            false => Ok(()),
        }
    }

    /// Until the PoolVolumes were heard, a disk with our label that the journal does not know may be what a tenant
    /// wrote: it joins later. A damaged journal knows none of them, and keeps none out. Nor does who only looks, and
    /// has nobody to ask.
    pub(super) fn withhold_unknown_labels(&mut self, snapshot: &mut Snapshot) {
        let journal = Arc::clone(self.pool.journal());
        if !self.question.is_asked() || journal.knows_volumes() || journal.sound().is_err() {
            return;
        }
        let is_known = |device: &Device| {
            let is_its =
                |known: &KnownDisk| known.hardware.is_none() || known.hardware == stable_hardware_id(&device.raw);
            journal.known(|id| *id == device.id).iter().any(|(_, known)| is_its(known))
        };
        for device in snapshot.devices.iter_mut().filter(|device| device.label.is_some()) {
            if device.verdict != Verdict::Ours || is_known(device) {
                continue;
            }
            device.verdict = Verdict::Unknown(
                "it has a label of this node, but the journal does not know it: it joins the pool when the API server \
                 has listed the volumes of this node"
                    .to_owned(),
            );
            device.label = None;
            self.memory.discovery.changed(&device.raw.name);
        }
    }

    /// Disks that could not be read, where no journal says which disks there were: any that a set here selects may be
    /// ours, but for those that are being claimed.
    pub(super) fn may_be_ours(&self, snapshot: &Snapshot, claims_under_way: &BTreeSet<KernelName>) -> Vec<Unasked> {
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
        // A volume of the pool may be mounted: then the verdict speaks of that.
        let why = |device: &Device| match &device.verdict {
            Verdict::Unknown(why) => Some(why.clone()),
            // A tenant's.
            Verdict::Theirs(Reason::OnPoolVolume { .. } | Reason::OnGivenUp { .. }) => None,
            Verdict::Theirs(_) => device.unread.clone(),
            Verdict::Unclaimed | Verdict::Ours | Verdict::Foreign { .. } => None,
        };
        let unknown = |device: &Device| {
            let why = why(device).filter(|_| self.rules.iter().any(|rule| selects(rule, &device.raw)))?;
            let (disk, listed) = (device.id.clone(), BTreeSet::new());
            Some(Unasked { disk, why, listed, knowledge: Knowledge::None })
        };
        snapshot
            .devices
            .iter()
            .filter(|device| !claims_under_way.contains(&device.raw.name))
            .filter_map(unknown)
            .collect()
    }

    /// What the API server knows of this node's devices, if it says so within a moment. A later answer makes a pass
    /// due.
    pub(super) fn ask(&mut self, wanted: Wanted) -> Result<Answers, AskError> {
        let pool = Arc::clone(&self.pool);
        self.question.answer(self.passes, wanted, move || pool.nudge())
    }

    /// Writes down what was told. True: there is a device that was not known.
    pub(super) fn learn_own(&mut self, own: Result<Vec<ReportedVolume>, NoAnswer>) -> Result<bool, OwnError> {
        Ok(self.pool.journal().learn(own?)?)
    }
}
