//! Whose a disk is. *Theirs* is the default: only a disk that passes every question below is *Unclaimed*.
//!
//! Takes in all devices with what was found on them ([`Machine`]); gives out a [`Verdict`] for each. The questions, in
//! this order; the first that applies gives the verdict and its reason:
//!
//! 1. A fact could not be read: *Unknown*.
//! 2. An array of just the disks that are its members by their labels: decided by its own label, and without one
//!    *Theirs*, its set's.
//!    On one of our disks or volumes otherwise: *Theirs*, a tenant's, whatever it calls itself. Claimed bare: *Ours*,
//!    and what it shows is not looked at.
//!    A part of a multipath device or array, or a loop device over another device: *Theirs*. Before the label, as
//!    such a device shows the label of what it is a part of, or one that a tenant wrote into a volume.
//! 3. Our label: *Ours* or *Foreign*; damaged or newer: *Unknown*. A partition follows its disk. Before
//!    everything that is about use, as our volumes are mounted.
//! 4. In use, itself or anything on it: mounted, swap, node bind-mounted, held; a partition's disk is,
//!    as a whole.
//! 5. Offered by a link of another provisioner, itself, anything on it, or its disk: *Theirs*; *Unknown* if nobody
//!    can know that.
//! 6. Of a sort that is not known, itself or its disk: *Unknown*. Of a sort that is never taken: CD-ROM,
//!    floppy, RAM, zram, network, deleted backing file, no medium, read-only, removable, not running,
//!    zoned; boot partition; has partitions; too small: *Theirs*.
//! 7. Content: not looked at or not readable is *Unknown*; busy, a signature or a table is *Theirs*.

mod array;
mod evidence;
mod facts;
mod walk;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;

use self::array::MemberDisks;
pub use self::evidence::Evidence;
use self::facts::{by_content, mount_of, not_running, of_bad_sort, unusable, unusable_label};
use self::walk::Walk;
use super::disk_id::{DiskId, HardwareId};
use super::duplicate::Identities;
use super::id;
use super::judged::Verdict;
use super::node_name::NodeName;
use super::reason::Holder;
pub use super::reason::Reason;
use crate::host::{DeviceKind, Dm, ForeignLink, KernelName, MountHow, Probe, RawDisk};

/// The owner that a label of this pool names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// UID of the cluster, or `standalone`.
    pub cluster: String,
    pub node: NodeName,
}

/// All devices of a machine, indexed once so that each can be judged among the others.
#[derive(Debug)]
pub struct Machine<'a> {
    owner: &'a Owner,
    by_name: HashMap<&'a KernelName, &'a RawDisk>,
    /// Every path that leads to a device: its node, its links, and where its node is bind-mounted.
    by_path: HashMap<&'a Path, &'a KernelName>,
    /// Kernel name of a device to that of the loop device over it.
    loops_over: HashMap<&'a KernelName, &'a KernelName>,
    /// Hardware ids that our disks are on, or were last.
    ours: BTreeSet<&'a HardwareId>,
    /// Hardware ids that once were one of our disks, or a copy of one.
    copies: BTreeSet<&'a HardwareId>,
}

/// The verdict, if the facts of sysfs and the record decide it.
enum Decision {
    Decided(Verdict),
    ByContent,
}

/// A device that is built on one that may be a disk of the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Above {
    PoolDisk,
    Other,
}

impl<'a> Machine<'a> {
    pub fn new(owner: &'a Owner, all: &'a [RawDisk]) -> Self {
        let by_name = all.iter().map(|raw| (&raw.name, raw)).collect();
        let mut by_path = HashMap::new();
        for raw in all {
            let bound = raw.mounts.iter().filter(|used| used.how == MountHow::Node).map(|used| &used.target);
            by_path
                .extend([&raw.path].into_iter().chain(&raw.links).chain(bound).map(|path| (path.as_path(), &raw.name)));
        }
        let mut machine = Self {
            owner,
            by_name,
            by_path,
            loops_over: HashMap::new(),
            ours: BTreeSet::new(),
            copies: BTreeSet::new(),
        };
        machine.loops_over = all
            .iter()
            .filter_map(|raw| Some((*machine.by_path.get(raw.kind.backing()?.file.as_path())?, &raw.name)))
            .collect();
        machine
    }

    /// The same, with what is known of the hardware of our disks, which say nothing themselves while they cannot be
    /// read.
    pub fn knowing(self, last_on: &'a BTreeMap<DiskId, HardwareId>, identities: &'a Identities) -> Self {
        let originals = identities.values().filter_map(|identity| identity.original.as_ref());
        let ours = last_on.values().chain(originals).collect();
        let copies = identities.values().flat_map(|identity| &identity.copies).collect();
        Self { ours, copies, ..self }
    }

    pub fn get(&self, name: &KernelName) -> Option<&'a RawDisk> {
        self.by_name.get(name).copied()
    }

    /// The disk of a partition, if it is here.
    pub fn disk_of(&self, raw: &RawDisk) -> Option<&'a RawDisk> {
        self.get(&raw.kind.partition()?.disk)
    }

    /// Whether a device can carry a record at all: a whole device that is not a part of another one, and that answers.
    pub fn may_carry_record(&self, raw: &RawDisk) -> bool {
        let sort =
            matches!(raw.kind, DeviceKind::Disk | DeviceKind::Loop(Some(_)) | DeviceKind::Dm(_) | DeviceKind::Md(_));
        sort && raw.size > 0
            && raw.unreadable.is_none()
            && not_running(raw).is_none()
            && self.component(raw).is_none()
            && self.loop_over(raw).is_none()
    }

    /// Why a device that might carry a record is not asked for it, if that leaves the question open: it takes no
    /// commands, or the kernel found no size, as for a disk that died. A device that was built to be without a medium
    /// carries none.
    pub fn cannot_be_asked(&self, raw: &RawDisk) -> Option<String> {
        let stands_for_itself = self.component(raw).is_none() && self.loop_over(raw).is_none();
        let state =
            not_running(raw).filter(|_| matches!(raw.kind, DeviceKind::Disk | DeviceKind::Dm(_) | DeviceKind::Md(_)));
        let no_size =
            || (matches!(raw.kind, DeviceKind::Disk) && raw.size == 0 && !raw.removable).then_some(Reason::NoMedium);
        state.or_else(no_size).filter(|_| stands_for_itself).map(|reason| reason.to_string())
    }

    /// Why it could not be read whether a device carries our label; `None`: it could, or there is no need to.
    pub fn unread(&self, raw: &RawDisk, records: &HashMap<&KernelName, Evidence>) -> Option<String> {
        match records.get(&raw.name) {
            Some(Evidence::Failed(why)) => Some(format!("could not be read: {why}")),
            Some(Evidence::Unreadable(why)) => Some(unusable_label(why)),
            Some(_) => None,
            None => raw.unreadable.clone().or_else(|| self.cannot_be_asked(raw)),
        }
    }

    /// Whether only the content can decide.
    pub fn needs_probe(&self, raw: &RawDisk, records: &HashMap<&KernelName, Evidence>) -> bool {
        matches!(self.decide(raw, records), Decision::ByContent)
    }

    /// The verdict on `raw`. `records` is by kernel name; if it or its disk has none there, nothing is unclaimed.
    pub fn judge(&self, raw: &RawDisk, probe: &Probe, records: &HashMap<&KernelName, Evidence>) -> Verdict {
        match self.decide(raw, records) {
            Decision::Decided(verdict) => verdict,
            Decision::ByContent => {
                let record = match self.disk_of(raw) {
                    None => records.get(&raw.name),
                    // It is no surprise that the disk of a partition has a table.
                    Some(disk) => records.get(&disk.name).map(|record| match record {
                        Evidence::OtherTable(_) => &Evidence::None,
                        Evidence::None | Evidence::Valid(_) | Evidence::Unreadable(_) => record,
                        Evidence::Failed(_) | Evidence::Bare | Evidence::GivenUp => record,
                    }),
                };
                by_content(probe, record)
            }
        }
    }

    fn decide(&self, raw: &RawDisk, records: &HashMap<&KernelName, Evidence>) -> Decision {
        let disk = self.disk_of(raw);
        if let Some(what) = raw.unreadable.as_ref().or_else(|| disk?.unreadable.as_ref()) {
            return Decision::Decided(Verdict::Unknown(what.clone()));
        }
        let whole = disk.unwrap_or(raw);
        let array = self.members(records).array(whole);
        if let Some(verdict) = array.verdict(records.get(&whole.name), || self.by_record(whole, records)) {
            return Decision::Decided(verdict);
        }
        let built_on = self.built_on(raw, records);
        if built_on.is_none() && records.get(&raw.name) == Some(&Evidence::Bare) {
            return Decision::Decided(Verdict::Ours);
        }
        let component = || match self.members(records).member(&raw.name).is_some() {
            // The disk says what it is, whatever array was built on it.
            true => None,
            false => self.component(raw),
        };
        if let Some(reason) = built_on.or_else(component) {
            return Decision::Decided(Verdict::Theirs(reason));
        }
        if let Some(verdict) = self.by_record(disk.unwrap_or(raw), records) {
            return Decision::Decided(verdict);
        }
        if let Some(reason) = self.use_of(raw).or_else(|| disk.and_then(|disk| self.whole_disk_use(disk))) {
            return Decision::Decided(Verdict::Theirs(reason));
        }
        if let Some(verdict) = self.offer_of(raw) {
            return Decision::Decided(verdict);
        }
        if let DeviceKind::Other(sort) = &disk.unwrap_or(raw).kind {
            return Decision::Decided(Verdict::Unknown(format!("an unknown type of device: {sort}")));
        }
        if let (DeviceKind::Partition(partition), None) = (&raw.kind, disk) {
            return Decision::Decided(Verdict::Unknown(format!("its disk {} was not seen", partition.disk)));
        }
        match of_bad_sort(raw).or_else(|| disk.and_then(of_bad_sort)).or_else(|| unusable(raw)) {
            // They may be the partitions of one of our disks.
            Some(Reason::HasPartitions { .. }) if matches!(records.get(&raw.name), Some(Evidence::Failed(_))) => {
                Decision::ByContent
            }
            Some(reason) => Decision::Decided(Verdict::Theirs(reason)),
            None => Decision::ByContent,
        }
    }

    /// Our disks, as far as they may be members of arrays.
    fn members<'m>(
        &'m self,
        records: &'m HashMap<&KernelName, Evidence>,
    ) -> MemberDisks<'m, impl Fn(&RawDisk) -> bool> {
        let Self { owner: Owner { cluster, node }, by_name, ours, copies, .. } = self;
        let is_component = |disk: &RawDisk| self.component(disk).is_some();
        MemberDisks { cluster, node, by_name, ours, copies, records, is_component }
    }

    /// A path of a multipath device or a member of an array, or a partition of one.
    fn component(&self, raw: &RawDisk) -> Option<Reason> {
        let held = |raw: &RawDisk| {
            let mut whole = raw.holders.iter().map(|by| (by, self.holder(by)));
            let (of, how) = whole.find(|(_, how)| matches!(how, Holder::Array | Holder::Multipath))?;
            Some(Reason::Component { of: of.clone(), how })
        };
        held(raw).or_else(|| self.disk_of(raw).and_then(held))
    }

    /// A loop device over a block device; or anything on one of our volumes, or on a device that is one.
    fn built_on(&self, raw: &RawDisk, records: &HashMap<&KernelName, Evidence>) -> Option<Reason> {
        let on_bare = |raw: &RawDisk| match records.get(&raw.name)? {
            Evidence::Bare => Some(Reason::OnPoolVolume { below: raw.name.clone() }),
            Evidence::GivenUp => Some(Reason::OnGivenUp { below: raw.name.clone() }),
            Evidence::None | Evidence::OtherTable(_) | Evidence::Valid(_) => None,
            Evidence::Unreadable(_) | Evidence::Failed(_) => None,
        };
        if let Some(reason) = self.disk_of(raw).and_then(on_bare) {
            return Some(reason);
        }
        let raw = self.disk_of(raw).unwrap_or(raw);
        // A copy that became the disk may be built on the device that it was copied from.
        let above = match self.ours.contains(&id::hardware_id(raw, None)) {
            true => Above::PoolDisk,
            false => Above::Other,
        };
        self.loop_over(raw).or_else(|| {
            let mut below = Walk::from(&raw.slaves);
            while let Some(name) = below.next() {
                let Some(slave) = self.get(name) else { continue };
                let whole = self.disk_of(slave).unwrap_or(slave);
                if let Some(reason) = on_bare(slave).or_else(|| on_bare(whole)) {
                    return Some(reason);
                }
                if self.is_pool_disk(whole, records, above) {
                    return Some(Reason::OnPoolVolume { below: slave.name.clone() });
                }
                below.add(slave.slaves.iter().chain(&whole.slaves));
                // sysfs names no slave of a loop device.
                let behind = whole.kind.backing().and_then(|backing| self.by_path.get(backing.file.as_path()));
                match (behind, self.loop_over(whole)) {
                    (Some(behind), _) => below.visit([*behind]),
                    // Over a raw block volume whose bind mount we cannot see.
                    (None, Some(over)) => return Some(over),
                    (None, None) => {}
                }
            }
            None
        })
    }

    /// Whether a whole device has our label, or had it when it could be read: then what is built on it is a tenant's. A
    /// device that is a path or a member of something else is no such disk.
    fn is_pool_disk(&self, whole: &RawDisk, records: &HashMap<&KernelName, Evidence>, above: Above) -> bool {
        match records.get(&whole.name) {
            Some(Evidence::Valid(_) | Evidence::Unreadable(_)) => true,
            Some(Evidence::None | Evidence::OtherTable(_) | Evidence::Bare | Evidence::GivenUp) => false,
            Some(Evidence::Failed(_)) | None => {
                let hardware = id::hardware_id(whole, None);
                self.component(whole).is_none()
                    && (self.ours.contains(&hardware) || above == Above::Other && self.copies.contains(&hardware))
            }
        }
    }

    fn loop_over(&self, raw: &RawDisk) -> Option<Reason> {
        let file = &raw.kind.backing()?.file;
        // Kubelet's own directory of raw block volumes, in case we cannot see the bind mount.
        let over = self.by_path.contains_key(file.as_path()) || file.iter().any(|part| part == "volumeDevices");
        over.then(|| Reason::LoopOverDevice { device: file.clone() })
    }

    fn by_record(&self, whole: &RawDisk, records: &HashMap<&KernelName, Evidence>) -> Option<Verdict> {
        match records.get(&whole.name)? {
            // A bare disk was decided on before, with everything on it.
            Evidence::None | Evidence::OtherTable(_) | Evidence::Failed(_) | Evidence::Bare | Evidence::GivenUp => None,
            Evidence::Unreadable(why) => Some(Verdict::Unknown(unusable_label(why))),
            Evidence::Valid(label) if label.cluster == self.owner.cluster && label.node == self.owner.node => {
                Some(Verdict::Ours)
            }
            Evidence::Valid(label) => {
                Some(Verdict::Foreign { cluster: label.cluster.clone(), node: label.node.clone() })
            }
        }
    }

    /// How a device is in use: itself, its partitions, and whatever is built on any of these.
    fn use_of(&self, raw: &RawDisk) -> Option<Reason> {
        let tree = self.tree(raw);
        let any = |find: &dyn Fn(&RawDisk) -> Option<Reason>| tree.iter().find_map(|raw| find(raw));
        any(&|raw| mount_of(raw, MountHow::Filesystem))
            .or_else(|| any(&|raw| raw.swap.then(|| Reason::Swap { device: raw.name.clone() })))
            .or_else(|| any(&|raw| mount_of(raw, MountHow::Node)))
            .or_else(|| any(&|raw| self.held(raw)))
    }

    /// A device, and all that is on it.
    fn tree<'r>(&self, raw: &'r RawDisk) -> Vec<&'r RawDisk>
    where
        'a: 'r,
    {
        let mut tree = vec![raw];
        let mut above = Walk::from(raw.partitions.iter().chain(&raw.holders));
        while let Some(name) = above.next() {
            let Some(raw) = self.get(name) else { continue };
            above.add(raw.partitions.iter().chain(&raw.holders));
            tree.push(raw);
        }
        tree
    }

    /// The reason, if another provisioner offers it: the device, something on it, or its disk.
    fn offer_of(&self, raw: &RawDisk) -> Option<Verdict> {
        self.tree(raw).into_iter().chain(self.disk_of(raw)).find_map(|raw| match &raw.offered {
            ForeignLink::None => None,
            ForeignLink::By(by) => Some(Verdict::Theirs(Reason::Offered { device: raw.name.clone(), by: by.clone() })),
            ForeignLink::NotKnown(why) => Some(Verdict::Unknown(why.clone())),
        })
    }

    /// Use of a disk as a whole device, which leaves none of its partitions free.
    fn whole_disk_use(&self, disk: &RawDisk) -> Option<Reason> {
        let why = mount_of(disk, MountHow::Filesystem)
            .or_else(|| disk.swap.then(|| Reason::Swap { device: disk.name.clone() }))
            .or_else(|| mount_of(disk, MountHow::Node))
            .or_else(|| self.held(disk))?;
        Some(Reason::DiskInUse { disk: disk.name.clone(), why: Box::new(why) })
    }

    fn held(&self, raw: &RawDisk) -> Option<Reason> {
        let by_loop = || self.loops_over.get(&raw.name).map(|name| (*name, Holder::Loop));
        let (by, how) = raw.holders.first().map(|by| (by, self.holder(by))).or_else(by_loop)?;
        Some(Reason::Held { device: raw.name.clone(), by: by.clone(), how })
    }

    fn holder(&self, name: &KernelName) -> Holder {
        match self.get(name).map(|raw| &raw.kind) {
            Some(DeviceKind::Md(_)) => Holder::Array,
            Some(DeviceKind::Dm(Dm { uuid, .. })) if uuid.starts_with("mpath-") => Holder::Multipath,
            Some(DeviceKind::Dm(_)) => Holder::Mapped,
            Some(DeviceKind::Loop(_)) => Holder::Loop,
            _ if name.starts_with("bcache") => Holder::Bcache,
            Some(DeviceKind::Disk | DeviceKind::Partition(_) | DeviceKind::Rom | DeviceKind::Floppy) => Holder::Other,
            Some(DeviceKind::Ram | DeviceKind::Zram | DeviceKind::Network | DeviceKind::Other(_)) => Holder::Other,
            None => Holder::Other,
        }
    }
}

#[cfg(test)]
mod tests;
