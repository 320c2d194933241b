//! Making a volume: where, and there. A verb looks before it acts and may be repeated: what is there already is
//! success.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::choose::{Capacity, Demand, DiskOffer, NoPlace, capacity, choose};
use super::cordon::Cordon;
use super::device_pool::Pool;
use super::error::PoolError;
use super::member::Member;
use super::member::room::Attempt;
use super::plan::PlannedVolume;
use super::request::{Change, CreateRequest, Selector, WantedUsage, difference};
use super::view::VolumeView;
use crate::claim::Rule;
use crate::device::{
    DiskId, SetName,
    label::{Layout, VolumeRecord, VolumeUsage},
};
use crate::host::{DEVICE_LOCK_TIMEOUT, FsKind, SHORT_DEVICE_LOCK_TIMEOUT, chain};

/// Where a volume is to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Destination {
    /// It is on a disk already.
    There,
    /// On the disk of that id.
    On(DiskId),
}

/// What came of making a volume on one disk.
#[derive(Debug)]
pub enum Made {
    Volume(Box<VolumeView>, Change),
    /// The disk has no room for it, or not any more.
    Full,
    /// The disk failed, or others kept its lock, before anything of the volume was there.
    Failed(PoolError),
}

/// The disks of one class, together.
#[derive(Debug, Default)]
pub struct ClassDisks {
    pub size: u64,
    /// The size of those that can have more than one volume.
    pub divisible: u64,
    pub sets: BTreeSet<SetName>,
}

impl Pool {
    /// Makes a volume, or finds it made.
    pub fn create(&self, request: &CreateRequest) -> Result<(VolumeView, Change), PoolError> {
        let mut failed = BTreeMap::new();
        loop {
            let disk = match self.place(request, &failed.keys().cloned().collect()) {
                Ok(Destination::There) => None,
                Ok(Destination::On(disk)) => Some(disk),
                // What stands in the way is the disk that failed, where one did.
                Err(error) if error.is_no_place() => return Err(failed.into_values().next().unwrap_or(error)),
                Err(error) => return Err(error),
            };
            match self.create_on(request, disk.as_ref())? {
                Made::Volume(view, outcome) => return Ok((*view, outcome)),
                // Another caller was faster: each round somebody wins.
                Made::Full => {}
                Made::Failed(error) => failed.extend(disk.map(|disk| (disk, error))),
            }
        }
    }

    /// Where a volume is to be made: not on disks that have `failed` it, nor on cordoned ones. Writes nothing, promises
    /// nothing.
    pub fn place(&self, request: &CreateRequest, failed: &BTreeSet<DiskId>) -> Result<Destination, PoolError> {
        // Doubted first: a disk that comes back in between is found then, or still missed.
        let may_be_made = self.may_be_made(request.id);
        if self.find(request.id).is_ok() {
            return Ok(Destination::There);
        }
        may_be_made?;
        self.check_selector(&request.selector)?;
        let usage = self.usage(request.usage, &request.selector);
        let mut members = self.members();
        members.retain(|member| !failed.contains(member.id()));
        let all = offers(&members, &request.selector, usage);
        if all.is_empty() {
            return Err(PoolError::NoSet(request.selector.clone()));
        }
        let cordons: Vec<Option<Cordon>> = members.iter().map(|member| self.cordon(member)).collect();
        let (open, cordoned): (Vec<_>, Vec<_>) = all.into_iter().partition(|offer| cordons[offer.disk].is_none());
        let demand = demand(request, usage);
        let refusal = |error| match choose(&cordoned, &demand) {
            Ok((index, _)) => match cordons[index].clone() {
                Some(why) => NoPlace::Cordoned { disk: members[index].id().clone(), why },
                None => error,
            },
            Err(full) if open.is_empty() => full,
            Err(_) => error,
        };
        let (index, _) = choose(&open, &demand).map_err(refusal)?;
        Ok(Destination::On(members[index].id().clone()))
    }

    /// Makes a volume on that disk and no other one, or finds it made anywhere. It was chosen before: that it is
    /// cordoned by now does not count, unless it was given up meanwhile.
    pub fn create_on(&self, request: &CreateRequest, disk: Option<&DiskId>) -> Result<Made, PoolError> {
        let may_be_made = self.may_be_made(request.id);
        if let Ok((member, _)) = self.find(request.id) {
            return self.existing(&member, request).map(|view| Made::Volume(Box::new(view), Change::AlreadySo));
        }
        may_be_made?;
        let usage = self.usage(request.usage, &request.selector);
        let volume = PlannedVolume {
            id: request.id,
            record: VolumeRecord {
                name: request.name.clone(),
                required: request.required,
                limit: request.limit,
                parameters: request.parameters.clone(),
                usage,
                fs_size: 0,
                found: false,
            },
        };
        // Where another disk may serve, one that is slow is not worth waiting for.
        let is_alone = offers(&self.open_members(), &request.selector, usage).len() < 2;
        let timeout = if is_alone { DEVICE_LOCK_TIMEOUT } else { SHORT_DEVICE_LOCK_TIMEOUT };
        let members = disk.and_then(|disk| self.member(disk)).into_iter();
        let members: Vec<Member> = members.filter(|member| member.cordon().is_none()).collect();
        // Another caller may take the place between the choice and the lock.
        while let Ok((index, site)) = choose(&offers(&members, &request.selector, usage), &demand(request, usage)) {
            let taken = members[index].create(site, &volume, self.journal(), timeout);
            match self.goes_on(&members[index], taken)? {
                Attempt::ByUs => {
                    self.note(&members[index]);
                    self.background().give(&members[index]);
                    return Ok(Made::Volume(Box::new(self.volume(request.id)?), Change::Done));
                }
                Attempt::ByOther => {}
                Attempt::Failed(error) => {
                    tracing::warn!(volume = %request.name, error = %chain(&error), "a disk failed while a volume was made; another disk is tried");
                    // Of a lock that others keep a scan would find nothing.
                    if !error.is_locked() {
                        members[index].look_again();
                        self.nudge();
                    }
                    return Ok(Made::Failed(error));
                }
            }
        }
        Ok(Made::Full)
    }

    /// What there is to give now.
    pub fn capacity(&self, selector: &Selector, wanted: WantedUsage) -> Capacity {
        let usage = self.usage(wanted, selector);
        capacity(&offers(&self.open_members(), selector, usage))
    }

    /// The members that take new volumes.
    fn open_members(&self) -> Vec<Member> {
        let mut members = self.members();
        members.retain(|member| self.cordon(member).is_none());
        members
    }

    /// Without a class or a set, a request would get whatever disk fits: allowed only where there is one class.
    fn check_selector(&self, selector: &Selector) -> Result<(), PoolError> {
        if selector.class.is_some() || selector.set.is_some() {
            return Ok(());
        }
        let classes = self.classes();
        match classes.len() {
            0 | 1 => Ok(()),
            _ => Err(PoolError::WhichClass(classes.into_keys().collect::<Vec<_>>().join(", "))),
        }
    }

    /// The classes that sets offer the disks here to.
    pub fn classes(&self) -> BTreeMap<String, ClassDisks> {
        let mut classes: BTreeMap<String, ClassDisks> = BTreeMap::new();
        for member in self.members() {
            let (Some(rule), Some(view)) = (member.rule(), member.disk_view()) else { continue };
            let class = classes.entry(rule.class.clone()).or_default();
            class.size += view.own_size();
            class.divisible += match view.layout {
                Layout::Carved {} | Layout::Slots { .. } | Layout::Directory { .. } => view.size,
                Layout::Whole {} | Layout::Member(_) | Layout::RawDevice {} => 0,
            };
            class.sets.insert(view.set.name);
        }
        classes
    }

    /// A volume of that name is there: it must be what is asked for, and mapped.
    fn existing(&self, member: &Member, request: &CreateRequest) -> Result<VolumeView, PoolError> {
        let (_, view) = self.find_usable(request.id)?;
        let record = view.record.as_ref();
        if let Some(why) = record.and_then(|record| difference(record, view.size, request)) {
            return Err(PoolError::Differs { name: request.name.clone(), why });
        }
        member.remap()?;
        self.note(member);
        Ok(view)
    }

    /// The rules of the sets that `selector` means, oldest first.
    fn rules(&self, selector: &Selector) -> Vec<Arc<Rule>> {
        let mut rules: Vec<Arc<Rule>> = self.members().iter().filter_map(Member::rule).collect();
        rules.retain(|rule| selector.selects(rule));
        rules.sort_by(|a, b| (a.created, &a.set).cmp(&(b.created, &b.set)));
        rules.dedup_by(|a, b| a.set == b.set);
        rules
    }

    fn usage(&self, wanted: WantedUsage, selector: &Selector) -> VolumeUsage {
        match wanted {
            WantedUsage::Block => VolumeUsage::Block,
            WantedUsage::Mount(Some(kind)) => VolumeUsage::Mount(kind),
            WantedUsage::Mount(None) => {
                VolumeUsage::Mount(self.rules(selector).first().map_or(FsKind::Ext4, |rule| rule.fs))
            }
        }
    }

    /// What a caller does not wait for goes on behind him.
    pub(super) fn goes_on<T>(&self, member: &Member, done: Result<T, PoolError>) -> Result<T, PoolError> {
        if matches!(done, Err(PoolError::BeingZeroed { .. })) {
            self.background().give(member);
        }
        done
    }

    /// Before anybody hears that a disk was changed: the journal has it as it is. A full state directory costs that an
    /// earlier state of the disk may pass for it before the next pass, and not what was done.
    pub(super) fn note(&self, member: &Member) {
        let Some(disk) = member.labelled() else { return };
        if let Err(error) = self.journal().note(&disk.id, disk.shown().content.written, || member.known()) {
            tracing::warn!(disk = %disk.id, error = %chain(&error), "after a restart an earlier state of it would not \
                                                                     be noticed");
        }
    }
}

fn demand(request: &CreateRequest, usage: VolumeUsage) -> Demand {
    Demand { usage, required: request.required, limit: request.limit }
}

/// What each member that the selector means has to give.
fn offers(members: &[Member], selector: &Selector, usage: VolumeUsage) -> Vec<DiskOffer<usize>> {
    let selected = |member: &Member| member.rule().is_some_and(|rule| selector.selects(&rule));
    let offer = |(index, member): (usize, &Member)| selected(member).then(|| member.offer(index, usage)).flatten();
    members.iter().enumerate().filter_map(offer).collect()
}
