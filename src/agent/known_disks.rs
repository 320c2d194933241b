//! What is known of the disks of the pool, for those who see only a device or a document: discovery and the journal.
//!
//! Takes in the pool; gives out which hardware its disks are, and writes down how they are.

use std::collections::{BTreeMap, BTreeSet};

use crate::device::{
    Discovery, DiskId, HardwareId,
    duplicate::{Identities, Identity},
    id,
};
use crate::host::chain;
use crate::pool::{Member, Pool, Standing::Missing};

/// Tells discovery what no device can say: before each scan and each confirmation.
pub(super) fn inform(discovery: &mut Discovery, pool: &Pool) {
    discovery.claimed_bare(pool.journal().bare_ids());
    discovery.given_up(pool.journal().given_up());
    discovery.identities_are(identities(pool), last_on(pool));
}

/// Which hardware our disks are: what is in use now, else what the journal says. What is here has no other's path.
pub(super) fn identities(pool: &Pool) -> Identities {
    let journal = pool.journal();
    let mut identities = journal.identities();
    for (id, known) in journal.known(|_| true) {
        // Of those with copies it says itself which one is the disk, or that nobody knows.
        identities.entry(id).or_insert(Identity { original: known.hardware, copies: BTreeSet::new() });
    }
    for member in pool.labelled_disks() {
        let shown = member.shown();
        let here = Some(id::hardware_id(&shown.raw, None)).filter(|_| shown.standing != Missing);
        let identity = identities.entry(member.id.clone()).or_default();
        identity.original = match identity.original.take() {
            Some(known) if !shown.is_usable() => Some(known),
            known => here.or(known),
        };
    }
    identities
}

/// The hardware that each disk of the pool, here or away, was last on, by disk id. Where nothing tells it from others
/// that is its path: enough to doubt what else calls itself by its name, and never to believe it.
pub(super) fn last_on(pool: &Pool) -> BTreeMap<DiskId, HardwareId> {
    let identities = identities(pool);
    let members = pool.labelled_disks().into_iter().map(|member| member.id.clone());
    let mut last = pool.journal().last_hardware();
    for id in members.chain(last.keys().cloned()).collect::<Vec<_>>() {
        if let Some(original) = identities.get(&id).and_then(|identity| identity.original.clone()) {
            last.insert(id, original);
        }
    }
    last
}

/// The journal has each disk as it is now.
pub(super) fn know_labelled(pool: &Pool) {
    pool.members().iter().for_each(|member| know(pool, member));
}

/// The journal has the disk as it is now, should it be away later. A full state directory costs the memory of the disk,
/// and nothing of the use of what is on it.
pub(super) fn know(pool: &Pool, member: &Member) {
    let journal = pool.journal();
    let before = journal.before_scan();
    let (id, Some(disk)) = (member.id(), member.known()) else { return };
    let is_held = member.labelled().is_some_and(|disk| disk.shown().content.label.given_up);
    let known = journal.know(id, disk, &before);
    if let Err(error) = known.and_then(|()| if is_held { journal.is_held(id) } else { Ok(()) }) {
        tracing::warn!(disk = %id, error = %chain(&error), "after a restart it would not be reported as missing");
    }
}
