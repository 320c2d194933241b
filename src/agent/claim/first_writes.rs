//! The exclusive open of a disk before its claim, the last checks, and the first writes. Nothing is written to a bare
//! device: the journal says whose it is.
//!
//! Takes in what the last scan saw; the disk is a member of the pool afterwards. It runs on its own thread, because the
//! disk may hang.

use std::sync::Arc;

use super::error::ClaimError;
use crate::agent::open::member;
use crate::claim::Rule;
use crate::device::{
    Device, DiskId, Owner,
    label::{Hardware, Layout, SetRef},
};
use crate::host::{Access, Disk, Host, Openers, Probe, ProbeResult, chain, timeout::Late};
use crate::pool::{
    BareClaim, BareDevice, LabelledDisk, LastSeen, Member, NewLabel, Opened, Pool, PoolDisk, reads_as_zeros,
};

/// A disk that is being claimed, for a thread of its own.
pub(super) struct Taking {
    pub pool: Arc<Pool>,
    pub host: Arc<dyn Host>,
    pub now: Device,
    pub own: Hardware,
    /// The whole disk that it is, or is on.
    pub whole: Option<Hardware>,
    pub rule: Option<Arc<Rule>>,
}

impl Taking {
    pub fn take(self, set: SetRef, layout: Layout, late: &Late) -> Result<(), ClaimError> {
        let Self { pool, host, now, own, whole, rule } = self;
        let exclusive = host.open(&now.raw, Access::Claim)?;
        // A test of a new disk has it open for hours, and not exclusively: it would write over what comes here.
        exclusive.prove_unopened(Openers::Writers)?;
        // Once more, now that nobody else can have it alone: mkfs may have come and gone since the scan.
        match host.probe(&now.raw) {
            Probe::Read(ProbeResult { table: None, signatures, busy: _ }) if signatures.is_empty() => {}
            Probe::Failed(why) => return Err(ClaimError::Probe(why)),
            Probe::Read(_) | Probe::NotRead => return Err(ClaimError::NotBlank),
        }
        if layout.is_bare() {
            // What nobody has a record of must at least look unused.
            if !reads_as_zeros(&*exclusive)? {
                return Err(ClaimError::NotZeros);
            }
            late.check()?;
            return claim_bare(&pool, host, (&now, whole), exclusive, set, rule);
        }
        late.check()?;
        let Owner { cluster, node } = pool.owner().clone();
        let claim = NewLabel { geometry: exclusive.geometry(), cluster, node, hardware: own, set, layout };
        let claimed = PoolDisk::claim(Arc::clone(&exclusive), &claim)?;
        let id = claimed.content().label.disk;
        drop(claimed);
        let own = host.open(&now.raw, Access::Own)?;
        drop(exclusive);
        let Opened::Ours(disk) = PoolDisk::open(own, id, pool.owner(), &LastSeen::default())? else {
            return Err(ClaimError::BlankAgain);
        };
        let id = DiskId::labelled(id);
        tracing::info!(disk = %id, path = %now.raw.path.display(), set = %claim.set.name, "claimed a disk");
        let member = member(LabelledDisk::new(id, now.raw, disk, rule), &host);
        pool.join(member.clone());
        // It is claimed by now; the next pass opens what could not be made.
        if let Member::Filesystem(filesystem) = member
            && let Err(error) = filesystem.arrive(pool.owner(), &LastSeen::default())
        {
            tracing::warn!(disk = %filesystem.id, error = %chain(&error), "a claimed disk has no filesystem yet");
        }
        Ok(())
    }
}

/// A bare device carries no label: the journal says whose it is.
fn claim_bare(
    pool: &Pool,
    host: Arc<dyn Host>,
    (now, whole): (&Device, Option<Hardware>),
    exclusive: Arc<dyn Disk>,
    set: SetRef,
    rule: Option<Arc<Rule>>,
) -> Result<(), ClaimError> {
    let claim = BareClaim { hardware: whole.clone(), ..BareClaim::new(set, exclusive.geometry().size) };
    drop(exclusive);
    tracing::info!(disk = %now.id, path = %now.raw.path.display(), set = %claim.set.name, "claimed a bare device");
    pool.journal().claim_bare(&now.id, claim)?;
    let member = BareDevice::new(now.id.clone(), host, Arc::clone(pool.journal()));
    let member = Arc::new(member);
    pool.join(Member::Bare(Arc::clone(&member)));
    member.arrive(&now.raw, whole)?;
    member.lock().rule = rule;
    Ok(())
}
