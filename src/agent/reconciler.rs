//! One pass over the whole machine: disks leave, arrive, are claimed and released. Level-triggered: events
//! only say when to look, and each pass would do the same without them.
//!
//! `Reconciler` is used by one thread; the pool that it keeps is shared.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::decide;
use super::memory::{Memory, WipedDisk};
use super::pass_state::PassState;
use super::question::Question;
use super::reports::Reports;
use crate::claim::{AskPromises, Ripeness, Rule, SetOutcome};
use crate::device::{Device, DiscoveryError, DiskId, Snapshot, Verdict, duplicate::Identities, label::SetRef};
use crate::host::{Backoff, Host, KernelName, Probe, ProbeResult, chain, timeout::Timeouts};
use crate::pool::{ErrandKey, Member, Pool, PoolError};

/// How soon to look again at a disk that somebody had open or locked, or that could not be claimed: no event tells
/// when that is over. Each look in vain doubles it.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
const LOOK_AGAIN_AT_MOST: Duration = Duration::from_secs(300);

/// How long a pass waits for one disk to be opened or written before it goes on with the others.
const ERRAND: Duration = Duration::from_secs(5);

/// Keeps the pool in step with the machine.
pub struct Reconciler {
    pub(super) pool: Arc<Pool>,
    pub(super) host: Arc<dyn Host>,
    pub(super) memory: Memory,
    pub(super) rules: Vec<Arc<Rule>>,
    /// `set_rules` was called.
    knows_sets: bool,
    pub(super) again: Backoff,
    pub(super) question: Question,
    /// Why the PoolVolumes were not read when that was last tried.
    pub(super) volumes_unread: Option<String>,
    /// How many were begun.
    pub(super) passes: u64,
    /// Work on disks of the pool that may hang.
    pub(super) errands: Timeouts<ErrandKey>,
    /// Kernel name of each disk that a claim is under way on, or was before the last look, and its set. By the id of
    /// the bare disk.
    pub(super) claims_under_way: BTreeMap<DiskId, (KernelName, SetRef)>,
    /// What the log has been told of disks of the pool that cannot be used, by kernel name.
    pub(super) unusable: BTreeMap<KernelName, String>,
    /// What the last look saw together.
    pub(super) together: Identities,
}

/// What one pass saw and did.
#[derive(Clone, Debug)]
pub struct PassReport {
    pub snapshot: Snapshot,
    /// What stands against a disk, in words, by kernel name.
    pub problems: BTreeMap<KernelName, String>,
    /// For each set, what it takes and what it leaves, and why.
    pub outcomes: Vec<SetOutcome>,
    /// Disks that were claimed, by kernel name.
    pub claimed: Vec<KernelName>,
    /// The last disks that were wiped since the process began: who reads only some of the reports misses none.
    pub wiped: Vec<WipedDisk>,
    /// The sets had been handed over before it began, and the PoolVolumes were asked for and not still awaited: what no
    /// member offers now, none offers.
    pub knows_all: bool,
    /// Why the PoolVolumes could not be read. Bare devices offer nothing until they are.
    pub volumes_unread: Option<String>,
    /// When the next pass is due, if nothing happens before: a disk may be ripe then, or this pass changed what it saw.
    pub ripe_in: Option<Duration>,
}

impl PassReport {
    /// A look that did nothing.
    pub fn of_look(snapshot: Snapshot) -> Self {
        Self {
            snapshot,
            problems: BTreeMap::new(),
            outcomes: Vec::new(),
            claimed: Vec::new(),
            wiped: Vec::new(),
            knows_all: false,
            volumes_unread: None,
            ripe_in: None,
        }
    }
}

impl Reconciler {
    pub fn new(host: Arc<dyn Host>, pool: Arc<Pool>, min_age: Duration, rules: Vec<Rule>) -> Self {
        Self {
            memory: Memory::new(pool.owner().clone(), min_age),
            pool,
            host,
            rules: rules.into_iter().map(Arc::new).collect(),
            knows_sets: false,
            again: Backoff::new(LOOK_AGAIN, LOOK_AGAIN_AT_MOST),
            question: Question::default(),
            volumes_unread: None,
            passes: 0,
            errands: Timeouts::new(ERRAND),
            claims_under_way: BTreeMap::new(),
            unusable: BTreeMap::new(),
            together: Identities::new(),
        }
    }

    /// Before a claim it asks what other provisioners promise.
    pub fn asking_elsewhere(mut self, ask: AskPromises) -> Self {
        self.question.ask_promises(ask);
        self
    }

    /// A device or one of its partitions had an event, by kernel name. Gives whether a pass is due: the
    /// partitions of a pool disk come and go by our own hand.
    pub fn event(&mut self, name: &KernelName) -> bool {
        if self.is_on_pool_disk(name) {
            return false;
        }
        self.memory.changed(name);
        true
    }

    /// udev has written down what it knows of a device, by kernel name. What is on the device, and since when, stands;
    /// its names and links may be others.
    pub fn described(&self, name: &KernelName) -> bool {
        !self.is_on_pool_disk(name)
    }

    /// An NVMe controller reports something of itself, by kernel name: its disks are asked how they are. What is on
    /// them, and since when, stands.
    pub fn reported(&mut self, controller: &KernelName) -> bool {
        self.memory.healths.reports().reported(controller);
        true
    }

    /// Whether it is a partition of a pool disk.
    pub(super) fn is_on_pool_disk(&self, name: &KernelName) -> bool {
        self.pool.labelled_disks().iter().any(|member| {
            let shown = member.shown();
            shown.is_usable() && *name != shown.raw.name && name.is_or_is_on(&shown.raw.name)
        })
    }

    /// Events were lost: a pass is due.
    pub fn events_lost(&mut self) -> bool {
        self.memory.all_changed();
        true
    }

    /// Observes, decides and performs, until the pool is what the rules and the machine make of it.
    pub fn pass(&mut self) -> Result<PassReport, DiscoveryError> {
        let (mut snapshot, claims_under_way) = self.observe()?;
        let had_read_volumes = self.pool.journal().knows_volumes();
        let mut pass = PassState::default();
        let actions = decide::come_and_go(&snapshot, &self.members(), &claims_under_way);
        self.perform(actions, &snapshot, &mut pass);
        self.report_bare(&snapshot, &mut pass);
        self.unusable = std::mem::take(&mut pass.unusable);
        pass.unread.extend(self.may_be_ours(&snapshot, &claims_under_way));
        self.pool.looked_at(std::mem::take(&mut pass.unread));
        let unsure = self.remember_copies(&snapshot);
        let actions = decide::belong(&self.owned(), &self.rules);
        self.perform(actions, &snapshot, &mut pass);
        self.know_labelled();
        self.report_wiped(&snapshot, &mut pass.problems);

        let (outcomes, wrong) = self.take(&mut snapshot, &mut pass);
        let again = self.retry_held()
            || self.pool.has_failed_work()
            || pass.again
            || !self.claims_under_way.is_empty()
            || !self.pool.journal().knows_volumes()
            || self.must_look_again(&snapshot);
        let again = self.again.after(again);
        let actions = decide::release(&self.owned());
        self.perform(actions, &snapshot, &mut pass);
        self.pool.kick();

        // What turned out not to be blank gives way to others.
        let read_since = !had_read_volumes && self.pool.journal().knows_volumes();
        let stale = (unsure || wrong.0 || pass.is_stale() || read_since).then_some(Duration::ZERO);
        let ripe_in = [self.next_ripe(&snapshot), again, self.wipe_in(&snapshot), stale].into_iter().flatten().min();
        let (PassState { problems, claimed, .. }, volumes_unread) = (pass, self.volumes_unread.clone());
        let knows_all = self.knows_sets && (had_read_volumes || volumes_unread.is_some());
        let wiped = self.memory.last_wiped.clone();
        Ok(PassReport { ripe_in, snapshot, problems, outcomes, claimed, wiped, knows_all, volumes_unread })
    }

    /// The machine as it is now, and the kernel names of the disks that a claim is under way on.
    pub(super) fn observe(&mut self) -> Result<(Snapshot, BTreeSet<KernelName>), DiscoveryError> {
        self.passes += 1;
        self.know_own()?;
        // Asked before the look: what ends meanwhile is seen whole by the next one.
        let claims_under_way = self.end_claims();
        let mut snapshot = self.look()?;
        for device in snapshot.devices.iter_mut().filter(|device| claims_under_way.contains(&device.raw.name)) {
            // What was read is a part of our own work: nothing is begun there, and nothing of it is remembered.
            device.verdict = Verdict::Unknown("it is being claimed, and has not answered yet".to_owned());
            device.label = None;
            self.memory.discovery.changed(&device.raw.name);
        }
        self.memory.watch.look(snapshot.at, &snapshot.devices);
        self.memory.forget_gone(&snapshot);
        let is = |device: &Device, id: &DiskId| device.id == *id || snapshot.bare_id(device) == *id;
        self.errands.count_only(|on| match on {
            ErrandKey::Disk(id) => snapshot.devices.iter().any(|device| is(device, id)),
            ErrandKey::Volume(_) | ErrandKey::Light(_) => false,
        });
        Ok((snapshot, claims_under_way))
    }

    /// When the next free disk is ripe.
    pub(super) fn next_ripe(&self, snapshot: &Snapshot) -> Option<Duration> {
        let waiting = |device: &Device| match self.memory.watch.ripeness(device) {
            Ripeness::Waiting(time) => Some(time),
            Ripeness::Ripe | Ripeness::Unseen => None,
        };
        snapshot.devices.iter().filter_map(waiting).min()
    }

    /// Whether something that no event tells of may end soon: another program's hold of a blank disk, the wait for a
    /// device that hangs, or what made a read fail.
    pub(super) fn must_look_again(&self, snapshot: &Snapshot) -> bool {
        self.memory.discovery.is_waiting()
            || self.memory.discovery.has_failed()
            || snapshot.devices.iter().any(is_only_busy)
    }

    /// Has the workers try again what somebody held; gives whether there is any.
    pub(super) fn retry_held(&self) -> bool {
        // A worker tries a bare device at each pass.
        self.pool.labelled_disks().iter().filter(|member| member.retry_held()).count() > 0
            || self.pool.bare_devices().iter().any(|member| member.shown().held.is_some())
    }

    /// The sets, from now on.
    pub fn set_rules(&mut self, rules: Vec<Rule>) {
        self.rules = rules.into_iter().map(Arc::new).collect();
        self.knows_sets = true;
    }

    /// What the disks reported of themselves, for whoever else asks them.
    pub fn reports(&self) -> Reports {
        self.memory.healths.reports().clone()
    }

    pub fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// Looks, and does nothing.
    pub fn look(&mut self) -> Result<Snapshot, DiscoveryError> {
        self.inform();
        let mut snapshot = self.memory.discovery.look(&self.host)?;
        self.withhold_unknown_labels(&mut snapshot);
        Ok(snapshot)
    }

    /// Tells discovery what no device can say: before each look and each confirmation.
    pub(super) fn inform(&mut self) {
        self.memory.discovery.claimed_bare(self.pool.journal().bare_ids());
        self.memory.discovery.given_up(self.pool.journal().given_up());
        self.memory.discovery.identities_are(self.identities(), self.last_on());
    }

    /// Sets may claim a device again that was released, and what is on one that was given up is what it says it is.
    pub(super) fn readmit(&mut self, device: &Device, id: &DiskId) -> Result<(), PoolError> {
        self.pool.journal().readmit(id)?;
        self.memory.discovery.changed(&device.raw.name);
        Ok(())
    }

    /// The journal has each disk as it is now.
    pub(super) fn know_labelled(&self) {
        self.pool.members().iter().for_each(|member| self.know(member));
    }

    /// The journal has the disk as it is now, should it be away later. A full state directory costs the memory of the
    /// disk, and nothing of the use of what is on it.
    pub(super) fn know(&self, member: &Member) {
        let journal = self.pool.journal();
        let before = journal.before_look();
        let (id, Some(disk)) = (member.id(), member.known()) else { return };
        let is_held = member.labelled().is_some_and(|disk| disk.shown().content.label.given_up);
        let known = journal.know(id, disk, &before);
        if let Err(error) = known.and_then(|()| if is_held { journal.is_held(id) } else { Ok(()) }) {
            tracing::warn!(disk = %id, error = %chain(&error), "after a restart it would not be reported as \
                                                                       missing");
        }
    }

    /// What a person asked of one disk; where that hangs, so says the answer.
    pub(super) fn done_in_time<E: From<PoolError> + Send + 'static>(
        &mut self,
        on: impl Into<ErrandKey>,
        work: impl FnOnce() -> Result<(), E> + Send + 'static,
    ) -> Result<(), E> {
        let on = on.into();
        let hangs = |hangs| Err(PoolError::Hangs { on: on.clone(), hangs }.into());
        self.errand(on.clone(), work).unwrap_or_else(hangs)
    }

    /// Releases a disk; the next look reads it again.
    pub fn give_up(&mut self, member: &Member) -> Result<(), PoolError> {
        let name = member.kernel_name();
        let (pool, given) = (Arc::clone(&self.pool), member.clone());
        let released = self.done_in_time(member.id(), move || pool.release(&given));
        if let Some(name) = name {
            self.memory.discovery.changed(&name);
        }
        released
    }
}

/// Nothing but another program's exclusive hold keeps it out of a claim.
fn is_only_busy(device: &Device) -> bool {
    let busy = ProbeResult { busy: true, ..ProbeResult::default() };
    device.probe == Probe::Looked(busy)
}

#[cfg(test)]
mod hangs;
#[cfg(test)]
mod retries;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claim::sample;
    use crate::device::Owner;
    use crate::host::{Geometry, fake::FakeHost};
    use crate::pool::Workers;

    #[test]
    fn a_device_that_hangs_is_unknown_and_the_others_are_claimed_and_it_is_claimed_when_it_answers() {
        let host = Arc::new(FakeHost::default());
        let geometry = Geometry { size: 64 << 20, sector: 512, offloads_zeroes: true };
        let [sick, _well] = ["fake0", "fake1"].map(|name| host.add_disk(name, name, geometry));
        let owner = Owner { cluster: "c".to_owned(), node: "n".into() };
        let pool = Arc::new(Pool::open(host.clone(), owner, Workers::Caller).expect("a pool"));
        let mut agent = Reconciler::new(host, pool, Duration::ZERO, vec![sample::rule("set")]);
        agent.memory.discovery = agent.memory.discovery.waiting_at_most(Duration::from_millis(500));
        sick.set_hangs(true);

        let mut claimed = Vec::new();
        for _ in 0..3 {
            let pass = agent.pass().expect("a look");
            let Verdict::Unknown(why) = &pass.snapshot.devices[0].verdict else {
                panic!("{:?}", pass.snapshot.devices[0])
            };
            assert_eq!(
                why,
                "could not be read: opening or reading it took more than 500ms; it is read again when that ends"
            );
            assert!(pass.ripe_in.is_some(), "no event tells when it answers");
            claimed.extend(pass.claimed);
        }
        assert_eq!((claimed, sick.write_count()), (vec!["fake1".into()], 0));

        sick.set_hangs(false);
        let mut claimed = Vec::new();
        while claimed.is_empty() {
            claimed = agent.pass().expect("a look").claimed;
        }
        assert_eq!(claimed, ["fake0"]);
        assert_eq!(agent.pass().expect("a look").ripe_in, None, "nothing to wait for any more");
    }

    #[test]
    fn a_blank_disk_that_another_program_holds_for_a_moment_is_claimed_soon_after_without_an_event() {
        let host = Arc::new(FakeHost::default());
        let geometry = Geometry { size: 64 << 20, sector: 512, offloads_zeroes: true };
        let disk = host.add_disk("fake0", "SERIAL-1", geometry);
        let owner = Owner { cluster: "c".to_owned(), node: "n".into() };
        let pool = Arc::new(Pool::open(host.clone(), owner, Workers::Caller).expect("a pool"));
        let mut agent = Reconciler::new(host, pool, Duration::ZERO, vec![sample::rule("set")]);
        let mut wait = || {
            let pass = agent.pass().expect("a look");
            (pass.ripe_in, pass.claimed)
        };

        disk.set_in_use(0, true);
        for pause in [LOOK_AGAIN, LOOK_AGAIN * 2, LOOK_AGAIN * 4] {
            assert_eq!(wait(), (Some(pause), vec![]));
        }
        disk.set_in_use(0, false);
        assert_eq!(wait(), (Some(Duration::ZERO), vec![]), "seen free once");
        assert_eq!(wait().1, ["fake0"]);
        assert_eq!(wait(), (None, vec![]), "nothing to look for any more");
    }
}
