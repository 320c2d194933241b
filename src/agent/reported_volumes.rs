//! The volumes that the PoolVolumes of this node have on its disks, and the work that waits until they were heard: a journal can be lost with
//! the state directory, or be older than a volume. Bare devices with a volume that it does not know are nobody's to
//! claim, to wipe, to erase, or to read.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::question::{Answers, AskError, VolumesUnknown, Wanted};
use super::reconciler::Reconciler;
use crate::claim::{NoAnswer, NodeMatch, Rule};
use crate::device::{Device, DiscoveryError, DiskId, HardwareId, Reason, Snapshot, Verdict};
use crate::host::{KernelName, RawDisk, chain};
use crate::pool::{AskVolumes, Knowledge, ReportedVolume, Unasked};

impl Reconciler {
    /// Asks which disks have volumes: before each scan until there was an answer, and before each claim.
    pub fn asking_for_volumes(mut self, ask: AskVolumes) -> Self {
        self.question.ask_volumes(ask);
        self
    }

    /// The bytes that a tenant wrote into a bare device must not pass for a disk of the pool, and a volume that was made after
    /// the journal was written must not be erased as the one before it.
    pub(super) fn know_volumes(&mut self) -> Result<(), DiscoveryError> {
        let error = match self.ask(Wanted::Volumes) {
            // The first answer often takes longer than a pass waits: that is not worth a word.
            Err(not_yet) => VolumesUnknown::from(not_yet),
            Ok(answers) => match self.learn_volumes(answers.volumes) {
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

    /// The labelled disks that the journal knows, and their hardware, for as long as no other label counts: until the
    /// PoolVolumes were heard, a disk with our label that the journal does not know may be what a tenant wrote, and
    /// joins later. `None`: all labels count. A damaged journal knows none of the disks, and keeps none out. Nor does
    /// an agent that only looks, and has nobody to ask.
    pub(super) fn labels_that_count(&self) -> Option<BTreeMap<DiskId, Option<HardwareId>>> {
        let journal = self.pool.journal();
        if !self.question.is_asked() || journal.knows_volumes() || journal.sound().is_err() {
            return None;
        }
        Some(journal.known(|_| true).into_iter().map(|(id, known)| (id, known.hardware)).collect())
    }

    /// Disks that could not be read, where no journal says which disks there were: any that a set here selects may be
    /// ours, but for those that are being claimed.
    pub(super) fn may_be_ours(&self, snapshot: &Snapshot, claims_under_way: &BTreeSet<KernelName>) -> Vec<Unasked> {
        if !self.pool.journal().is_in_doubt() {
            return Vec::new();
        }
        let unasked = |(device, why): (&Device, String)| Unasked {
            disk: device.id.clone(),
            why,
            listed: BTreeSet::new(),
            knowledge: Knowledge::None,
        };
        let unread = self.unread_of_sets(snapshot);
        unread.filter(|(device, _)| !claims_under_way.contains(&device.raw.name)).map(unasked).collect()
    }

    /// Devices that could not be read and that a set here selects, each with the reason.
    pub(super) fn unread_of_sets<'s>(&self, snapshot: &'s Snapshot) -> impl Iterator<Item = (&'s Device, String)> {
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
        let is_selected = move |device: &Device| self.rules.iter().any(|rule| selects(rule, &device.raw));
        snapshot.devices.iter().filter_map(move |device| {
            let why = why(device).filter(|_| is_selected(device))?;
            Some((device, why))
        })
    }

    /// The answers of the API server about this node's devices, if they come within a moment. A later answer makes a pass
    /// due.
    pub(super) fn ask(&mut self, wanted: Wanted) -> Result<Answers, AskError> {
        let pool = Arc::clone(&self.pool);
        self.question.answer(self.passes, wanted, move || pool.nudge())
    }

    /// Writes down the answer. True: there is a device that was not known.
    pub(super) fn learn_volumes(
        &mut self,
        volumes: Result<Vec<ReportedVolume>, NoAnswer>,
    ) -> Result<bool, VolumesUnknown> {
        Ok(self.pool.journal().learn(volumes?)?)
    }
}
