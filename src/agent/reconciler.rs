//! One pass over the whole machine: disks leave, arrive, are claimed and released. Level-triggered: events
//! only say when to look, and each pass would do the same without them.
//!
//! `Reconciler` is used by one thread; the pool that it keeps is shared.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::again::Again;
use super::decide;
use super::disk_health_cache::DiskHealthCache;
use super::errands::Errands;
use super::known_disks::{inform, know_labelled};
use super::memory::{Memory, WipedDisk};
use super::pass_state::PassState;
use super::question::Question;
use crate::claim::{AskPromises, Rule, SetOutcome};
use crate::device::{Device, DiscoveryError, DiskId, Snapshot, Withholding, duplicate::Identities, label::SetRef};
use crate::health::FilesystemBoard;
use crate::host::{Backoff, Host, KernelName, Probe, ProbeResult};
use crate::pool::{ErrandKey, Pool, PoolError};

/// How soon to look again at a disk that somebody had open or locked, or that could not be claimed: no event announces
/// when that is over. Each scan in vain doubles it.
const RESCAN_AFTER: Duration = Duration::from_secs(1);
const RESCAN_AT_MOST: Duration = Duration::from_secs(300);

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
    /// What is known of the filesystems that an administrator named.
    pub(super) filesystems: FilesystemBoard,
    /// Why the PoolVolumes were not read when that was last tried.
    pub(super) volumes_unread: Option<String>,
    /// How many were begun.
    pub(super) passes: u64,
    /// Work on disks of the pool that may hang.
    pub(super) errands: Errands,
    /// Kernel name of each disk that a claim is under way on, or was before the last scan, and its set. By the id of
    /// the bare disk.
    pub(super) claims_under_way: BTreeMap<DiskId, (KernelName, SetRef)>,
    /// The last log line about each disk of the pool that cannot be used, by kernel name.
    pub(super) unusable: BTreeMap<KernelName, String>,
    /// The devices with one identity that the last scan saw together.
    pub(super) together: Identities,
}

/// The report of one pass: what it saw and did.
#[derive(Clone, Debug)]
pub struct PassReport {
    pub snapshot: Snapshot,
    /// Objections to disks, as text, by kernel name.
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
    /// A scan that did nothing.
    pub fn of_scan(snapshot: Snapshot) -> Self {
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
            errands: Errands::new(Arc::clone(&pool)),
            pool,
            host,
            rules: rules.into_iter().map(Arc::new).collect(),
            knows_sets: false,
            again: Backoff::new(RESCAN_AFTER, RESCAN_AT_MOST),
            question: Question::default(),
            filesystems: FilesystemBoard::of_none(),
            volumes_unread: None,
            passes: 0,
            claims_under_way: BTreeMap::new(),
            unusable: BTreeMap::new(),
            together: Identities::new(),
        }
    }

    /// Before a claim it asks what other provisioners promise.
    pub fn asking_promises(mut self, ask: AskPromises) -> Self {
        self.question.ask_promises(ask);
        self
    }

    /// A device or one of its partitions had an event, by kernel name. Gives whether a pass is due: the
    /// partitions of a pool disk come and go because localpool creates and removes them.
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
        self.attend_filesystems(&mut pass);
        self.unusable = std::mem::take(&mut pass.unusable);
        pass.unread.extend(self.may_be_ours(&snapshot, &claims_under_way));
        pass.unread.extend(self.unread_arrays(&snapshot));
        self.pool.scanned(std::mem::take(&mut pass.unread));
        let unsure = self.remember_copies(&snapshot);
        let actions = decide::belong(&self.owned(), &self.rules);
        self.perform(actions, &snapshot, &mut pass);
        know_labelled(&self.pool);
        self.say_uses();
        self.settle_arrays(&snapshot, &mut pass);
        self.report_wiped(&snapshot, &mut pass.problems);

        let (outcomes, wrong) = self.take(&mut snapshot, &mut pass);
        let has_busy = self.retry_busy();
        pass.again.add(Again::BusyPartition, has_busy);
        pass.again.add(Again::FailedWork, self.pool.has_failed_work());
        pass.again.add(Again::HostMount, self.pool.lacks_host_mount() || self.memory.host_paths.lacks_some());
        pass.again.add(Again::ClaimUnderWay, !self.claims_under_way.is_empty());
        pass.again.add(Again::VolumesUnread, !self.pool.journal().knows_volumes());
        pass.again.add(Again::Rescan, self.must_rescan(&snapshot));
        let again = self.again.after(pass.again.any());
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
        self.memory.blanks.begin_pass();
        self.memory.host_paths.begin_pass();
        match self.pool.journal().knows_volumes() {
            true => self.volumes_unread = None,
            false => self.know_volumes()?,
        }
        // Asked before the scan: what ends meanwhile is seen whole by the next one.
        let claims_under_way = self.end_claims();
        let snapshot = self.scan_beside(claims_under_way.clone())?;
        self.memory.watch.observe(snapshot.at, &snapshot.devices);
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
        snapshot.devices.iter().filter_map(|device| self.memory.watch.wait(device)).min()
    }

    /// Whether something may end soon without an event: another program's hold of a blank disk, the wait for a
    /// device that hangs, or what made a read fail.
    pub(super) fn must_rescan(&self, snapshot: &Snapshot) -> bool {
        self.memory.discovery.is_waiting()
            || self.memory.discovery.has_failed()
            || snapshot.devices.iter().any(is_only_busy)
    }

    /// Has the workers try again what was busy; gives whether there is any.
    pub(super) fn retry_busy(&self) -> bool {
        // A worker tries a bare device at each pass.
        self.pool.labelled_disks().iter().filter(|member| member.retry_busy()).count() > 0
            || self.pool.bare_devices().iter().any(|member| member.shown().busy.is_some())
    }

    /// The sets, from now on.
    pub fn set_rules(&mut self, rules: Vec<Rule>) {
        self.rules = rules.into_iter().map(Arc::new).collect();
        self.knows_sets = true;
    }

    /// The reports of the disks about themselves, for whoever else asks them.
    pub fn reports(&self) -> DiskHealthCache {
        self.memory.healths.reports().clone()
    }

    pub fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// A scan alone: decides and does nothing.
    pub fn scan(&mut self) -> Result<Snapshot, DiscoveryError> {
        self.scan_beside(BTreeSet::new())
    }

    /// The same while claims are under way on these disks.
    fn scan_beside(&mut self, claims: BTreeSet<KernelName>) -> Result<Snapshot, DiscoveryError> {
        inform(&mut self.memory.discovery, &self.pool);
        self.memory.discovery.withhold(Withholding { claims, known: self.labels_that_count() });
        self.memory.discovery.scan(&self.host)
    }

    /// Sets may claim a device again that was released, and what is on one that was given up is what it says it is.
    pub(super) fn readmit(&mut self, device: &Device, id: &DiskId) -> Result<(), PoolError> {
        self.pool.journal().readmit(id)?;
        self.memory.discovery.changed(&device.raw.name);
        Ok(())
    }
}

/// Nothing but another program's exclusive hold keeps it out of a claim.
fn is_only_busy(device: &Device) -> bool {
    let busy = ProbeResult { busy: true, ..ProbeResult::default() };
    device.probe == Probe::Read(busy)
}

#[cfg(test)]
mod hangs;
#[cfg(test)]
mod retries;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claim::sample;
    use crate::device::{Owner, Verdict};
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
        agent.memory.discovery = agent.memory.discovery.waiting_at_most(Duration::from_secs(3));
        sick.set_hangs(true);

        let mut claimed = Vec::new();
        for _ in 0..3 {
            let pass = agent.pass().expect("a pass");
            let Verdict::Unknown(why) = &pass.snapshot.devices[0].verdict else {
                panic!("{:?}", pass.snapshot.devices[0])
            };
            assert_eq!(
                why,
                "could not be read: opening or reading it took more than 3s; it is read again when that ends"
            );
            assert!(pass.ripe_in.is_some(), "no event announces when it answers");
            claimed.extend(pass.claimed);
        }
        assert_eq!((claimed, sick.write_count()), (vec!["fake1".into()], 0));

        sick.set_hangs(false);
        let mut claimed = Vec::new();
        while claimed.is_empty() {
            claimed = agent.pass().expect("a pass").claimed;
        }
        assert_eq!(claimed, ["fake0"]);
        assert_eq!(agent.pass().expect("a pass").ripe_in, None, "nothing to wait for any more");
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
            let pass = agent.pass().expect("a pass");
            (pass.ripe_in, pass.claimed)
        };

        disk.set_in_use(0, true);
        for pause in [RESCAN_AFTER, RESCAN_AFTER * 2, RESCAN_AFTER * 4] {
            assert_eq!(wait(), (Some(pause), vec![]));
        }
        disk.set_in_use(0, false);
        assert_eq!(wait(), (Some(Duration::ZERO), vec![]), "seen free once");
        assert_eq!(wait().1, ["fake0"]);
        assert_eq!(wait(), (None, vec![]), "nothing to look for any more");
    }
}
