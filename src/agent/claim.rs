//! Claiming: which set takes which blank disk, the last scan, and the first writes.
//!
//! Takes in a snapshot and the sets; holds an election on what is known, and claims what it gives.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use self::error::{ClaimError, TakeError};
use self::first_writes::Taking;
use super::again::Again;
use super::blank::NotBlank;
use super::decide::{self, OF_BARE, owner};
use super::known_disks::inform;
use super::pass_state::PassState;
use super::question::{Answers, VolumesUnknown, Wanted};
use super::reconciler::Reconciler;
use super::wipe::{as_if_blank, not_wiped, orders_wipe_of};
use crate::claim::{
    Ballot, Candidacy, ElectedClaim, Election, LayoutError, NodeMatch, Promise, Rule, SetOutcome, devices_to_ask, elect,
};
use crate::device::{
    Device, DiskId, Snapshot, Verdict, disk_of, id,
    label::{Hardware, Layout, Quota, SetRef},
};
use crate::host::{Geometry, HostError, KernelName, ModuleLoading, chain};
use crate::pool::{data_area, places};

mod error;
mod first_writes;

impl Reconciler {
    /// One election for all: blank disks are claimed, and where none is, content goes that a LocalVolume orders to go.
    /// Gives what each set takes and does not take, and whether one chose a disk that it must not have.
    pub(super) fn take(&mut self, snapshot: &mut Snapshot, pass: &mut PassState) -> (Vec<SetOutcome>, ChosenWrong) {
        // Others take filesystems, and no disks.
        let of_disks = self.rules.iter().filter(|rule| rule.filesystems.is_none());
        let rules: Vec<Rule> = of_disks.map(|rule| (**rule).clone()).collect();
        self.watch_content(snapshot, &rules);
        let mut election = self.elect(snapshot, &rules);
        if !takes_some(&election) {
            return (election.outcomes, ChosenWrong(false));
        }
        let promises = match self.leave_promised(snapshot, pass) {
            Ok(Promised { all, snapshot: None }) => all,
            Ok(Promised { all, snapshot: Some(judged) }) => {
                *snapshot = judged;
                election = self.elect(snapshot, &rules);
                all
            }
            Err(error) => {
                let Election { claims, wipes, outcomes } = election;
                let why = chain(&error);
                tracing::warn!(why, "nothing is claimed");
                pass.again.add(Again::Promise, error.retryable());
                pass.problems.extend(claims.into_iter().map(|claim| (claim.name, why.clone())));
                pass.problems.extend(wipes.into_iter().map(|wipe| (wipe.name.clone(), not_wiped(&wipe, &why))));
                return (outcomes, ChosenWrong(false));
            }
        };
        let Election { claims, wipes, outcomes } = election;
        let read = self.read_zeros(&snapshot.devices, &claims, pass);
        let places = |rule: &Rule, count: usize| self.places(rule, count);
        for claim in decide::claims(claims, &read, &rules, &self.counts(&rules), places) {
            self.claim(claim, snapshot, pass);
        }
        // What was just claimed is another disk than the one that was elected on.
        if pass.claimed.is_empty() {
            self.wipe(decide::wipes(wipes, &promises, snapshot), snapshot, pass);
        }
        (outcomes, ChosenWrong(!read.wrong.is_empty()))
    }

    /// Disks that other provisioners promise are theirs in this pass; the next one asks again, as no event of this
    /// machine answers questions about promises.
    pub(super) fn leave_promised(&mut self, snapshot: &Snapshot, pass: &mut PassState) -> Result<Promised, TakeError> {
        let all = self.promises()?;
        let judged = decide::with_promises(snapshot, &all);
        let mut is_other = false;
        for (before, now) in snapshot.devices.iter().zip(&judged.devices) {
            let (true, Verdict::Theirs(reason)) = (before.verdict != now.verdict, &now.verdict) else { continue };
            pass.again.add(Again::Promise, reason.may_pass());
            pass.problems.insert(now.raw.name.clone(), reason.to_string());
            is_other = true;
        }
        Ok(Promised { all, snapshot: is_other.then_some(judged) })
    }

    /// The promises of others about this node's disks, asked for by this pass or the one before. Nothing is taken where
    /// the journal cannot say what is ours.
    pub(super) fn promises(&mut self) -> Result<Vec<Promise>, TakeError> {
        self.pool.journal().sound().map_err(TakeError::Journal)?;
        let Answers { volumes, promises } = self.ask(Wanted::All).map_err(VolumesUnknown::from)?;
        match self.learn_volumes(volumes)? {
            true => Err(TakeError::Learnt),
            false => Ok(promises?),
        }
    }

    /// Forgets the claims that have ended, and what was read of their disks before. Gives the kernel names of those
    /// that are under way.
    pub(super) fn end_claims(&mut self) -> BTreeSet<KernelName> {
        let (errands, discovery) = (&self.errands, &mut self.memory.discovery);
        self.claims_under_way.retain(|id, (name, _)| {
            let is_under_way = errands.is_waiting_for(&id.into());
            if !is_under_way {
                discovery.changed(name);
            }
            is_under_way
        });
        self.claims_under_way.values().map(|(name, _)| name.clone()).collect()
    }

    /// Reads the disks that must hold zeros.
    fn read_zeros(&mut self, devices: &[Device], claims: &[ElectedClaim], pass: &mut PassState) -> decide::ZeroCheck {
        let mut read = decide::ZeroCheck::default();
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
                    pass.again.add(Again::Claim, unread.retryable());
                    pass.problems.insert(elected.name.clone(), chain(&unread));
                    read.unread.insert(elected.name.clone());
                }
            }
        }
        read
    }

    fn claim(&mut self, claim: ElectedClaim, snapshot: &Snapshot, pass: &mut PassState) {
        match self.claim_one(&snapshot.devices, &claim) {
            Ok(()) => pass.claimed.push(claim.name),
            Err(error) => {
                let problem = chain(&error);
                tracing::warn!(disk = claim.name.as_str(), problem, "a disk was not claimed");
                let may_pass = error.retryable() || self.memory.is_first_refusal(snapshot, &claim.name);
                pass.again.add(Again::Claim, may_pass);
                pass.problems.insert(claim.name, problem);
            }
        }
    }

    /// The last scan, then label, tables, protective MBR; the exclusive handle goes only when a shared one is open. A
    /// bare device gets nothing written: its exclusive handle goes before the journal has its claim.
    fn claim_one(&mut self, devices: &[Device], elected: &ElectedClaim) -> Result<(), ClaimError> {
        let was = devices.iter().find(|device| device.raw.name == elected.name);
        let was = was.ok_or(ClaimError::Gone)?;
        inform(&mut self.memory.discovery, &self.pool);
        let now = self.memory.discovery.reread(&self.host, was)?;
        self.take_now(devices, now, elected.set.clone(), elected.layout.clone())
    }

    /// The same for an array of disks of a set, which is for that set alone. It may have been released, and be somebody
    /// else's since: what would keep a disk from an election keeps the array from its set.
    pub(super) fn claim_array(&mut self, snapshot: &Snapshot, was: &Device, rule: &Rule) -> Result<(), ClaimError> {
        if let Some(promise) = decide::promise_of(&self.promises()?, was, snapshot) {
            return Err(ClaimError::Promised(promise));
        }
        if rule.wants_zeros(self.doubts(snapshot).are_of(&was.raw)) {
            self.memory.blanks.known(was, snapshot.at).map_err(NotBlank::from)?;
            self.memory.blanks.prove(&self.host, &was.raw)?;
        }
        inform(&mut self.memory.discovery, &self.pool);
        let now = self.memory.discovery.reread_unchanged(&self.host, was)?;
        self.take_now(&snapshot.devices, now, rule.set.clone(), rule.layout.clone())
    }

    fn take_now(&mut self, devices: &[Device], now: Device, set: SetRef, layout: Layout) -> Result<(), ClaimError> {
        let rule = self.rules.iter().find(|rule| rule.set == set).cloned();
        let (id, name) = (now.id.clone(), now.raw.name.clone());
        let disk = disk_of(devices, &now.raw);
        let (own, whole) = (Hardware::of(id::hardware_id(&now.raw, disk), &now.raw), id::whole_disk(&now.raw, disk));
        let taking = Taking { pool: Arc::clone(&self.pool), host: Arc::clone(&self.host), now, own, whole, rule };
        self.claims_under_way.insert(id.clone(), (name.clone(), set.clone()));
        let claimed = self.errands.errand_now(&id, move |late| taking.take(set, layout, late));
        if claimed.is_ok() {
            self.claims_under_way.remove(&id);
        }
        self.memory.discovery.changed(&name);
        claimed?
    }
}

/// The input of an election: the known facts of each device, and how many disks each set has.
impl Reconciler {
    /// The disks that these sets take, and have wiped. A device is asked for its health only if the election depends on
    /// it.
    pub(super) fn elect(&mut self, snapshot: &Snapshot, rules: &[Rule]) -> Election {
        let (counts, astray, released) =
            (self.counts(rules), self.astray(snapshot, rules), self.pool.journal().released());
        let candidacies = self.candidacies(snapshot, rules);
        let lacks = self.lacking(snapshot, rules);
        let open_places = self.open_places();
        let ballot = Ballot {
            rules,
            devices: &snapshot.devices,
            candidacies: &candidacies,
            claimed: &counts,
            open_places: &open_places,
            astray: &astray,
            released: &released,
            fits,
            lacks: &lacks,
        };
        let asked = devices_to_ask(&ballot);
        if asked.is_empty() {
            return elect(&ballot);
        }
        let mut candidacies = candidacies.clone();
        for device in snapshot.devices.iter().filter(|device| asked.contains(&device.raw.name)) {
            let health = self.memory.healths.of(&self.host, &device.raw, snapshot.at);
            candidacies.entry(device.raw.name.clone()).or_default().health = Some(health);
        }
        elect(&Ballot { candidacies: &candidacies, ..ballot })
    }

    /// What the machine lacks for what a set asks for, for each set: to keep folders within their sizes, to make
    /// arrays, or to mount them for the node.
    fn lacking(&mut self, snapshot: &Snapshot, rules: &[Rule]) -> BTreeMap<SetRef, LayoutError> {
        let quota = || self.host.mounts().supports_project_quota(ModuleLoading::Allowed);
        let is_some_free = snapshot.devices.iter().any(|device| device.verdict == Verdict::Unclaimed);
        let arrays = || if is_some_free { self.host.md().supported() } else { Ok(()) };
        let mut lacking = lacking_for(rules, |rule| rule.layout == LIMITED, quota, |why| LayoutError::NoQuota { why });
        lacking.extend(lacking_for(rules, |rule| rule.array.is_some(), arrays, |why| LayoutError::NoArrays { why }));
        lacking.extend(is_some_free.then(|| self.host_paths_lacking(rules)).into_iter().flatten());
        lacking
    }

    /// Nothing is taken for a path of the node that nothing could be mounted at.
    fn host_paths_lacking(&mut self, rules: &[Rule]) -> Vec<(SetRef, LayoutError)> {
        let (paths, host) = (&mut self.memory.host_paths, &self.host);
        let asking = rules.iter().filter(|rule| rule.node == NodeMatch::Selected);
        let lacks = |rule: &Rule| {
            let why = paths.unusable(host, rule.host_mount.as_ref()?)?;
            Some((rule.set.clone(), LayoutError::NoHostMount { why }))
        };
        asking.filter_map(lacks).collect()
    }

    /// The known facts of each device, without asking any.
    fn candidacies(&self, snapshot: &Snapshot, rules: &[Rule]) -> BTreeMap<KernelName, Candidacy> {
        let doubts = self.doubts(snapshot);
        let of = |device: &Device| Candidacy {
            ripeness: self.memory.watch.ripeness(device),
            is_bare: self.pool.bare_claim_of(snapshot, device).is_some(),
            may_be_ours: doubts.are_of(&device.raw),
            not_zeros: self.memory.blanks.known(device, snapshot.at).err(),
            health: None,
            wipe: rules
                .iter()
                .any(|rule| orders_wipe_of(rule, device))
                .then(|| doubts.may_wipe(device, snapshot).map(|()| self.memory.wipes.ripeness(&as_if_blank(device)))),
        };
        snapshot.devices.iter().map(|device| (device.raw.name.clone(), of(device))).collect()
    }

    /// The disks of the pool, those that are away too, each by its id and with the set that it counts for. Of a set
    /// that was made again, those count as well on which its UID cannot be written now.
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
        let under_way = self.claims_under_way.iter().filter(|(id, _)| self.errands.is_waiting_for(&(*id).into()));
        let under_way = under_way.map(|(_, (_, set))| set.clone());
        for set in self.placed(rules).into_iter().map(|(set, _)| set).chain(under_way) {
            *counts.entry(set).or_default() += 1;
        }
        counts
    }

    /// How many disks each class of a LocalVolume has that none of its paths leads to now, missing ones too.
    fn astray(&self, snapshot: &Snapshot, rules: &[Rule]) -> BTreeMap<SetRef, u32> {
        let is = |device: &&Device, id: &DiskId| {
            device.id == *id || self.pool.bare_claim_of(snapshot, device).is_some_and(|(bare, _)| bare == *id)
        };
        let here = |id: &DiskId| snapshot.devices.iter().find(|device| is(device, id));
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
}

/// Whether a set chose a disk that holds bytes which nothing recognises: it gives way, and the set chooses again.
pub(super) struct ChosenWrong(pub bool);

/// The promises of others about this node's disks.
pub(super) struct Promised {
    pub all: Vec<Promise>,
    /// The snapshot for the election instead, if a device that looked free is promised.
    pub snapshot: Option<Snapshot>,
}

/// Whether there is something that a set takes, would take, or has wiped.
fn takes_some(election: &Election) -> bool {
    let Election { claims, wipes, outcomes } = election;
    !claims.is_empty() || !wipes.is_empty() || outcomes.iter().any(|outcome| !outcome.would_take.is_empty())
}

/// The layout for which the kernel must have project quota.
const LIMITED: Layout = Layout::Directory { quota: Quota::Project };

/// Asks the machine only where a set wants to know, and once for all of them.
fn lacking_for(
    rules: &[Rule],
    asks: impl Fn(&Rule) -> bool,
    supported: impl FnOnce() -> Result<(), HostError>,
    lacks: impl Fn(String) -> LayoutError,
) -> BTreeMap<SetRef, LayoutError> {
    let asking: Vec<&Rule> = rules.iter().filter(|rule| asks(rule)).collect();
    if asking.is_empty() {
        return BTreeMap::new();
    }
    match supported() {
        Ok(()) => BTreeMap::new(),
        Err(error) => asking.iter().map(|rule| (rule.set.clone(), lacks(chain(&error)))).collect(),
    }
}

/// The smallest member of an array: there is room for md's own data, and for something beside it.
const LEAST_MEMBER: u64 = 32 << 20;

/// Whether a rule's layout fits on a device.
fn fits(rule: &Rule, device: &Device) -> Result<(), LayoutError> {
    let geometry = Geometry { size: device.raw.size, sector: device.raw.logical_sector, offloads_zeroes: false };
    if rule.array.is_some() {
        return match data_area(&geometry)?.len() {
            LEAST_MEMBER.. => Ok(()),
            room => Err(LayoutError::DoesNotHold { count: 1, each: LEAST_MEMBER, needed: LEAST_MEMBER, room }),
        };
    }
    match rule.layout.carves() {
        true => data_area(&geometry).map(drop),
        false => places(&geometry, &rule.layout).map(drop),
    }
}

#[cfg(test)]
mod tests;
