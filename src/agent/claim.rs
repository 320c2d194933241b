//! Claiming: which set takes which blank disk, the last look, and the first writes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use self::error::{ClaimError, TakeError};
use super::blank::NotBlank;
use super::met::Met;
use super::owner::{OF_BARE, owner};
use super::question::{Answers, OwnError, Wanted};
use super::reconciler::Reconciler;
use super::taking;
use super::wipe::{as_if_blank, not_wiped, orders_wipe_of};
use crate::claim::{Ballot, Elected, Election, Facts, LayoutError, Outcome, Promise, Rule, elect, promised, to_ask};
use crate::device::DiskId;
use crate::device::discovery::{Snapshot, disk_of};
use crate::device::label::{Hardware, Layout, SetRef};
use crate::device::ownership::Owner;
use crate::device::record::judged_record;
use crate::device::{Device, Verdict, id};
use crate::host::patience::Late;
use crate::host::raw::Contents;
use crate::host::{Access, Disk, Geometry, Host, KernelName, Openers, Probe, RawDisk, chain};
use crate::pool::{
    BareClaim, BareDevice, LabelledDisk, LastSeen, Member, NewLabel, Opened, Pool, PoolDisk, data_area, places,
    reads_as_zeros,
};

mod error;

impl Reconciler {
    /// One election for all: blank disks are claimed, and where none is, content goes that a LocalVolume orders to go. Gives what
    /// each set takes and does not take, and whether one chose a disk that it must not have.
    pub(super) fn take(&mut self, set: &mut Snapshot, met: &mut Met) -> (Vec<Outcome>, ChosenWrong) {
        let rules: Vec<Rule> = self.rules.iter().map(|rule| (**rule).clone()).collect();
        self.watch_content(set, &rules);
        let mut election = self.elect(set, &rules);
        if !takes_some(&election) {
            return (election.outcomes, ChosenWrong(false));
        }
        let promises = match self.leave_promised(set, met) {
            Ok(Promised { all, on: 0 }) => all,
            Ok(Promised { all, on: _ }) => {
                election = self.elect(set, &rules);
                all
            }
            Err(error) => {
                let Election { claims, wipes, outcomes } = election;
                let why = chain(&error);
                tracing::warn!(why, "nothing is claimed");
                met.again |= error.retryable();
                met.problems.extend(claims.into_iter().map(|claim| (claim.name, why.clone())));
                met.problems.extend(wipes.into_iter().map(|wipe| (wipe.name.clone(), not_wiped(&wipe, &why))));
                return (outcomes, ChosenWrong(false));
            }
        };
        let Election { claims, wipes, outcomes } = election;
        let read = self.read_zeros(&set.devices, &claims, met);
        let claims = taking::claims(claims, &read, &rules, &self.counts(&rules));
        self.perform(claims, set, met);
        // What was just claimed is another disk than the one that was elected on.
        if met.claimed.is_empty() {
            self.perform(taking::wipes(wipes, &promises, set), set, met);
        }
        (outcomes, ChosenWrong(!read.wrong.is_empty()))
    }

    /// Disks that other provisioners promise are theirs in this pass; the next one asks anew, as no event of this
    /// machine tells of promises.
    pub(super) fn leave_promised(&mut self, set: &mut Snapshot, met: &mut Met) -> Result<Promised, TakeError> {
        let all = self.promises()?;
        let raws: Vec<RawDisk> = set.devices.iter().map(|device| device.raw.clone()).collect();
        let raws: Vec<&RawDisk> = raws.iter().collect();
        let mut on = 0;
        for device in set.devices.iter_mut().filter(|device| device.verdict == Verdict::Unclaimed) {
            if let Some(reason) = promised(&all, &device.raw, &raws) {
                met.again |= reason.may_pass();
                met.problems.insert(device.raw.name.clone(), reason.to_string());
                device.verdict = Verdict::Theirs(reason);
                on += 1;
            }
        }
        Ok(Promised { all, on })
    }

    /// What others promise of this node's disks, asked for by this pass or the one before. Nothing is taken where the journal cannot say what is ours.
    pub(super) fn promises(&mut self) -> Result<Vec<Promise>, TakeError> {
        self.pool.journal().sound().map_err(TakeError::Journal)?;
        let Answers { own, promises } = self.ask(Wanted::All).map_err(OwnError::from)?;
        match self.learn_own(own)? {
            true => Err(TakeError::Learnt),
            false => Ok(promises?),
        }
    }

    /// What these sets take, and have wiped.
    pub(super) fn elect(&mut self, set: &Snapshot, rules: &[Rule]) -> Election {
        let (counts, astray, given_back) =
            (self.counts(rules), self.astray(set, rules), self.pool.journal().released());
        let facts = self.facts(set, rules);
        let ballot = Ballot {
            rules,
            devices: &set.devices,
            facts: &facts,
            claimed: &counts,
            astray: &astray,
            given_back: &given_back,
            fits,
        };
        let asked = to_ask(&ballot);
        if asked.is_empty() {
            return elect(&ballot);
        }
        let mut facts = facts.clone();
        for device in set.devices.iter().filter(|device| asked.contains(&device.raw.name)) {
            let health = self.memory.healths.of(&self.host, &device.raw, set.at);
            facts.entry(device.raw.name.clone()).or_default().health = Some(health);
        }
        elect(&Ballot { facts: &facts, ..ballot })
    }

    /// What is known of each device, without asking any.
    fn facts(&self, set: &Snapshot, rules: &[Rule]) -> BTreeMap<KernelName, Facts> {
        let doubts = self.doubts(set);
        let of = |device: &Device| Facts {
            ripeness: self.memory.watch.ripeness(device),
            is_bare: self.pool.bare_claim_of(set, device).is_some(),
            may_be_ours: doubts.are_of(&device.raw),
            not_zeros: self.memory.blanks.known(device, set.at).err(),
            health: None,
            wipe: rules
                .iter()
                .any(|rule| orders_wipe_of(rule, device))
                .then(|| doubts.may_wipe(device, set).map(|()| self.memory.wipes.ripeness(&as_if_blank(device)))),
        };
        set.devices.iter().map(|device| (device.raw.name.clone(), of(device))).collect()
    }

    /// Forgets the claims that have ended, and what was read of their disks before. Gives the kernel names of those that
    /// are under way.
    pub(super) fn claims_under_way(&mut self) -> BTreeSet<KernelName> {
        let (errands, discovery) = (&self.errands, &mut self.memory.discovery);
        self.claiming.retain(|id, (name, _)| {
            let is_under_way = errands.is_waiting_for(&id.into());
            if !is_under_way {
                discovery.changed(name);
            }
            is_under_way
        });
        self.claiming.values().map(|(name, _)| name.clone()).collect()
    }

    /// The disks of the pool, those that are away too, each by its id and with the set that it counts for. Of a set that was made
    /// again, those count as well on which its UID cannot be written now.
    fn placed(&self, rules: &[Rule]) -> Vec<(SetRef, DiskId)> {
        let of = |set: SetRef, layouts: &[Layout]| owner(&set, layouts, rules).map_or(set, |rule| rule.set.clone());
        let labelled = self.pool.labelled_disks().into_iter().map(|member| {
            let label = Arc::clone(&member.shown().content.label);
            (of(label.set.clone(), std::slice::from_ref(&label.layout)), member.id.clone())
        });
        let bare = self.pool.journal().bare_claims().into_iter().map(|(id, claim)| (of(claim.set, &OF_BARE), id));
        let absent = self.pool.absent().into_iter().map(|(id, disk)| (of(disk.set, &[disk.layout]), id));
        labelled.chain(bare).chain(absent).collect()
    }

    /// How many disks each set has.
    fn counts(&self, rules: &[Rule]) -> BTreeMap<SetRef, u32> {
        let mut counts = BTreeMap::new();
        let claiming = self.claiming.iter().filter(|(id, _)| self.errands.is_waiting_for(&(*id).into()));
        let claiming = claiming.map(|(_, (_, set))| set.clone());
        for set in self.placed(rules).into_iter().map(|(set, _)| set).chain(claiming) {
            *counts.entry(set).or_default() += 1;
        }
        counts
    }

    /// Reads the disks that must hold zeros.
    fn read_zeros(&mut self, devices: &[Device], claims: &[Elected], met: &mut Met) -> taking::ZeroCheck {
        self.memory.blanks.begin_pass();
        let mut read = taking::ZeroCheck::default();
        for elected in claims {
            let device = devices.iter().find(|device| device.raw.name == elected.name);
            let Some(device) = device.filter(|_| elected.zeros) else { continue };
            match self.memory.blanks.prove(&self.host, &device.raw) {
                Ok(()) => {}
                Err(NotBlank::Holds(problem)) => {
                    tracing::warn!(disk = elected.name.as_str(), %problem, "a disk is not blank");
                    read.wrong.insert(elected.set.clone());
                }
                Err(unread) => {
                    met.again |= unread.retryable();
                    met.problems.insert(elected.name.clone(), chain(&unread));
                    read.unread.insert(elected.name.clone());
                }
            }
        }
        read
    }

    /// How many disks each class of a LocalVolume has that none of its paths leads to now, missing ones too.
    fn astray(&self, set: &Snapshot, rules: &[Rule]) -> BTreeMap<SetRef, u32> {
        let is = |device: &&Device, id: &DiskId| {
            device.id == *id || self.pool.bare_claim_of(set, device).is_some_and(|(bare, _)| bare == *id)
        };
        let here = |id: &DiskId| set.devices.iter().find(|device| is(device, id));
        let of = self.placed(rules);
        let mut astray = BTreeMap::new();
        for rule in rules {
            let Some(named) = &rule.named else { continue };
            let own = of.iter().filter(|(set, _)| *set == rule.set);
            let lost = own.filter(|(_, id)| !here(id).is_some_and(|device| named.names(&device.raw))).count();
            astray.insert(rule.set.clone(), u32::try_from(lost).unwrap_or(u32::MAX));
        }
        astray
    }

    /// The last look, then label, tables, protective MBR; the exclusive handle goes only when a shared one is open. A bare
    /// device gets nothing written: its exclusive handle goes before the journal has its claim.
    pub(super) fn claim_one(&mut self, devices: &[Device], elected: &Elected) -> Result<(), ClaimError> {
        let was = devices.iter().find(|device| device.raw.name == elected.name);
        let was = was.ok_or(ClaimError::Gone)?;
        self.inform();
        let now = self.memory.discovery.confirm(&self.host, judged_record, was)?;
        let rule = self.rules.iter().find(|rule| rule.set == elected.set).cloned();
        let (id, name) = (now.id.clone(), now.raw.name.clone());
        let disk = disk_of(devices, &now.raw);
        let (own, whole) = (Hardware::of(id::hardware(&now.raw, disk), &now.raw), id::whole_disk(&now.raw, disk));
        let taking = Taking { pool: Arc::clone(&self.pool), host: Arc::clone(&self.host), now, own, whole, rule };
        let (set, layout) = (elected.set.clone(), elected.layout.clone());
        self.claiming.insert(id.clone(), (name.clone(), elected.set.clone()));
        let claimed = self.errand_now(&id, move |late| taking.take(set, layout, late));
        if claimed.is_ok() {
            self.claiming.remove(&id);
        }
        self.memory.discovery.changed(&name);
        claimed?
    }
}

/// Whether a set chose a disk that holds bytes which nothing recognises: it gives way, and the set chooses anew.
pub(super) struct ChosenWrong(pub bool);

/// What others promise of this node's disks.
pub(super) struct Promised {
    pub all: Vec<Promise>,
    /// On how many devices that looked free.
    pub on: usize,
}

/// A disk that is being claimed, for a thread of its own.
struct Taking {
    pool: Arc<Pool>,
    host: Arc<dyn Host>,
    now: Device,
    own: Hardware,
    /// The whole disk that it is, or is on.
    whole: Option<Hardware>,
    rule: Option<Arc<Rule>>,
}

impl Taking {
    fn take(self, set: SetRef, layout: Layout, late: &Late) -> Result<(), ClaimError> {
        let Self { pool, host, now, own, whole, rule } = self;
        let exclusive = host.open(&now.raw, Access::Claim)?;
        // A test of a new disk has it open for hours, and not exclusively: it would write over what comes here.
        exclusive.prove_unopened(Openers::Writers)?;
        // Once more, now that nobody else can have it alone: mkfs may have come and gone since the look.
        match host.probe(&now.raw) {
            Probe::Looked(Contents { table: None, signatures, busy: _ }) if signatures.is_empty() => {}
            Probe::Failed(why) => return Err(ClaimError::Probe(why)),
            Probe::Looked(_) | Probe::NotLooked => return Err(ClaimError::NotBlank),
        }
        if layout == (Layout::RawDevice {}) {
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
        pool.join(Member::Labelled(Arc::new(LabelledDisk::new(id, now.raw, disk, rule))));
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
    let claim = BareClaim {
        set,
        hardware: whole.clone(),
        generation: 1,
        size: exclusive.geometry().size,
        clean: false,
        cleaned: 0,
        used: false,
        volume: None,
        erasing: None,
        erasing_usage: None,
    };
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

/// Whether there is something that a set takes, would take, or has wiped.
fn takes_some(election: &Election) -> bool {
    let Election { claims, wipes, outcomes } = election;
    !claims.is_empty() || !wipes.is_empty() || outcomes.iter().any(|outcome| !outcome.would_take.is_empty())
}

/// Whether a rule's layout fits on a device.
fn fits(rule: &Rule, device: &Device) -> Result<(), LayoutError> {
    let geometry = Geometry { size: device.raw.size, sector: device.raw.logical_sector, offloads_zeroes: false };
    match rule.layout {
        Layout::Carved {} => data_area(&geometry).map(drop),
        _ => places(&geometry, &rule.layout).map(drop),
    }
}

#[cfg(test)]
mod tests;
