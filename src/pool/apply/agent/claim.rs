//! Claiming: which set takes which blank disk, the last look, and the first writes.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Agent, judged_record};
use crate::device::discovery::DeviceSet;
use crate::device::election::{Ballot, Claim as Elected, Election, Outcome, elect};
use crate::device::label::{Hardware, Layout, SetRef};
use crate::device::rule::Rule;
use crate::device::{Device, id};
use crate::host::{Access, Disk, Geometry, chain};
use crate::pool::apply::disk::{Opened, PoolDisk};
use crate::pool::apply::member::Member;
use crate::pool::apply::pool::Owner;
use crate::pool::apply::raw::{RawMember, reads_as_zeros};
use crate::pool::apply::seat::Seat;
use crate::pool::journal::RawClaim;
use crate::pool::layout::{data_area, places};
use crate::pool::plan::Claim;

impl Agent {
    pub(super) fn claim(
        &mut self,
        set: &DeviceSet,
        problems: &mut BTreeMap<String, String>,
    ) -> (Vec<String>, Vec<Outcome>) {
        let rules: Vec<Rule> = self.rules.iter().map(|rule| (**rule).clone()).collect();
        let (devices, election) = self.elect(set, &rules);
        let mut claimed = Vec::new();
        for elected in &election.claims {
            match self.claim_one(&devices, elected) {
                Ok(()) => claimed.push(elected.name.clone()),
                Err(problem) => {
                    tracing::warn!(disk = elected.name, problem, "a disk was not claimed");
                    problems.insert(elected.name.clone(), problem);
                }
            }
        }
        (claimed, election.outcomes)
    }

    /// What these sets take of the devices that are no bare ones of the pool; and those devices.
    pub(super) fn elect(&self, set: &DeviceSet, rules: &[Rule]) -> (Vec<Device>, Election) {
        let mut counts: BTreeMap<SetRef, u32> = BTreeMap::new();
        for member in self.pool.members() {
            *counts.entry(member.lock().content().label.set.clone()).or_default() += 1;
        }
        let raw_claims = self.pool.journal().raw_claims();
        for (_, claim) in &raw_claims {
            *counts.entry(claim.set.clone()).or_default() += 1;
        }
        let released = self.pool.journal().released();
        let free = |device: &&Device| raw_claims.iter().all(|(id, _)| *id != device.id.text);
        let devices: Vec<Device> = set.devices.iter().filter(free).cloned().collect();
        let election = elect(&Ballot {
            rules,
            devices: &devices,
            claimed: &counts,
            given_back: &released,
            ripeness: &|device| self.watch.ripeness(device),
            fits: &fits,
        });
        (devices, election)
    }

    /// The last look, then label, tables, protective MBR; the exclusive handle goes only when a shared one is open.
    fn claim_one(&mut self, devices: &[Device], elected: &Elected) -> Result<(), String> {
        let was = devices.iter().find(|device| device.raw.name == elected.name);
        let was = was.ok_or_else(|| "it is gone".to_owned())?;
        let now = self.discovery.confirm(&self.host, judged_record, was).map_err(|e| chain(&e))?;
        let exclusive = self.host.open(&now.raw, Access::Claim).map_err(|e| chain(&e))?;
        if elected.layout == (Layout::RawDevice {}) {
            return self.claim_raw(&now, exclusive, elected);
        }
        let Owner { cluster, node } = self.pool.owner().clone();
        let hardware =
            Hardware { id: now.id.text.clone(), model: now.raw.model.clone(), serial: now.raw.serial.clone() };
        let claim = Claim {
            geometry: exclusive.geometry(),
            cluster,
            node,
            hardware,
            set: elected.set.clone(),
            layout: elected.layout.clone(),
        };
        PoolDisk::claim(Arc::clone(&exclusive), &claim).map_err(|e| chain(&e))?;
        self.discovery.changed(&now.raw.name);
        let own = self.host.open(&now.raw, Access::Own).map_err(|e| chain(&e))?;
        drop(exclusive);
        let Opened::Ours(disk) = PoolDisk::open(own).map_err(|e| chain(&e))? else {
            return Err("it is blank again after it was claimed".to_owned());
        };
        let id = id::labelled(disk.content().table.disk()).text;
        let rule = self.rules.iter().find(|rule| rule.set == elected.set).cloned();
        tracing::info!(disk = %id, path = %now.raw.path.display(), set = %elected.set.name, "claimed a disk");
        self.pool.join(Seat::Labelled(Arc::new(Member::new(id, now.raw, disk, rule))));
        Ok(())
    }

    /// A bare device carries no label: what nobody has a record of must at least look unused.
    fn claim_raw(&self, now: &Device, exclusive: Arc<dyn Disk>, elected: &Elected) -> Result<(), String> {
        if !reads_as_zeros(&*exclusive).map_err(|e| chain(&e))? {
            return Err("it holds bytes that nothing recognises, and a raw device must read as zeros".to_owned());
        }
        let claim = RawClaim {
            set: elected.set.clone(),
            generation: 1,
            size: exclusive.geometry().size,
            clean: false,
            volume: None,
            erasing: None,
        };
        drop(exclusive);
        self.pool.journal().claim_raw(&now.id.text, claim).map_err(|e| chain(&e))?;
        let journal = Arc::clone(self.pool.journal());
        let member = RawMember::new(now.id.text.clone(), Arc::clone(&self.host), journal, now.raw.clone());
        member.arrive(&now.raw);
        member.lock().rule = self.rules.iter().find(|rule| rule.set == elected.set).cloned();
        tracing::info!(disk = %now.id, path = %now.raw.path.display(), set = %elected.set.name, "claimed a bare device");
        self.pool.join(Seat::Raw(Arc::new(member)));
        Ok(())
    }
}

/// Whether a rule's layout fits on a device.
fn fits(rule: &Rule, device: &Device) -> Result<(), String> {
    let geometry = Geometry { size: device.raw.size, sector: device.raw.logical_sector, offloads_zeroes: false };
    match rule.layout {
        Layout::Carved {} => data_area(&geometry).map(drop),
        _ => places(&geometry, &rule.layout).map(drop),
    }
    .map_err(|e| e.to_string())
}
