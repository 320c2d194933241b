//! A life: its steps, the machine that it is on, and the answers that its callers got.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use localpool::device::VolumeId;
use localpool::device::label::{ErasePolicy, Layout, VolumeUsage};
use localpool::host::fake::{FakeHost, Platter};
use localpool::host::{Extent, FsKind, Geometry, Host};
use localpool::pool::{Pool, Standing, WantedUsage};

use crate::node::{MIB, Node, id, request, rule};

/// The answers that callers of the pool got.
#[derive(Clone, Debug, Default)]
pub struct Acknowledged {
    /// Volumes that were acknowledged, with the bytes that the tenant wrote at the start and the end.
    pub volumes: BTreeMap<&'static str, Tenant>,
    /// The step that had not been answered when the process ended.
    pub pending: Option<Step>,
    pub done: usize,
}

#[derive(Clone, Debug)]
pub struct Tenant {
    pub least: u64,
    /// The pattern that it wrote, if it did.
    pub pattern: Option<u8>,
    pub formatted: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Claim,
    Create(&'static str, WantedUsage, u64),
    Format(&'static str),
    Write(&'static str, u8),
    Expand(&'static str, u64),
    Delete(&'static str),
    Work,
    Release,
}

pub struct Life {
    pub layout: Layout,
    pub geometry: Geometry,
    pub erase: ErasePolicy,
    pub steps: Vec<Step>,
}

pub fn life(layout: Layout, geometry: Geometry, erase: ErasePolicy) -> Life {
    let ext4 = WantedUsage::Mount(Some(FsKind::Ext4));
    let mut steps = vec![Step::Claim, Step::Create("a", ext4, 16 * MIB), Step::Format("a"), Step::Write("a", 0xaa)];
    let one_volume = matches!(layout, Layout::Whole {} | Layout::RawDevice {});
    if !one_volume {
        steps.extend([
            // Cleans space that a device without offload cannot zero at once.
            Step::Work,
            Step::Create("b", WantedUsage::Block, 4 * MIB),
            Step::Write("b", 0xbb),
        ]);
    }
    if matches!(layout, Layout::Carved {}) {
        steps.extend([Step::Expand("b", 6 * MIB), Step::Delete("a"), Step::Expand("b", 7 * MIB)]);
    } else {
        steps.push(Step::Delete("a"));
    }
    steps.extend([Step::Work, Step::Create("c", WantedUsage::Block, 5 * MIB), Step::Write("c", 0xcc)]);
    if !one_volume {
        steps.push(Step::Delete("b"));
    }
    steps.extend([Step::Delete("c"), Step::Work, Step::Release]);
    Life { layout, geometry, erase, steps }
}

pub struct Machine {
    pub host: Arc<FakeHost>,
    pub disk: Arc<Platter>,
}

pub fn machine(life: &Life) -> Machine {
    let host = Arc::new(FakeHost::default());
    let disk = host.add_disk("fake0", "SERIAL-1", life.geometry);
    if life.layout != (Layout::RawDevice {}) {
        // Data of an earlier owner that no probe finds: it looks blank, but is not zero.
        disk.poke(5 * MIB, &[0x55; 8192]);
        disk.poke(life.geometry.size / 2, &[0x55; 8192]);
    }
    Machine { host, disk }
}

pub fn start(life: &Life, host: &Arc<FakeHost>) -> Result<Node, String> {
    Node::start(host, vec![rule(&life.layout, life.erase)], Duration::ZERO)
}

pub fn extent_of(pool: &Pool, volume: VolumeId) -> Option<Extent> {
    let bare = pool.bare_devices().iter().find_map(|m| m.view().filter(|v| v.id == volume));
    let bare = bare.map(|view| Extent { start: 0, end: view.size });
    bare.or_else(|| {
        pool.labelled_disks().iter().find_map(|m| m.lock().content().volume(volume).map(|v| v.entry.extent))
    })
}

pub fn free_bytes(pool: &Pool) -> u64 {
    let labelled: u64 = pool.labelled_disks().iter().map(|m| m.lock().content().free().total()).sum();
    let claims = pool.journal().bare_claims();
    let bare = claims.iter().filter(|(_, claim)| claim.volume.is_none() && claim.erasing.is_none());
    labelled + bare.map(|(_, claim)| claim.size).sum::<u64>()
}

/// The kernel has exactly this partition for the volume; a bare device has no partition.
pub fn assert_mapped(machine: &Machine, pool: &Pool, volume: VolumeId, at: &str) {
    if pool.bare_devices().is_empty() {
        let extent = extent_of(pool, volume);
        assert_eq!(machine.disk.mapping(number(pool, volume)), extent, "{at}: the kernel has it");
    }
}

pub trait Living {
    /// Does one step, with every check that its caller would do.
    fn step(&mut self, machine: &Machine, step: Step, acknowledged: &mut Acknowledged) -> Result<(), String>;
}

impl Living for Node {
    fn step(&mut self, machine: &Machine, step: Step, acknowledged: &mut Acknowledged) -> Result<(), String> {
        let message = |e: localpool::pool::PoolError| localpool::host::chain(&e);
        match step {
            Step::Claim => {
                self.passes()?;
                let bare = self.pool.bare_devices().iter().any(|m| m.shown().standing == Standing::Ready);
                match bare || self.pool.labelled_disks().iter().any(|m| m.lock().is_usable()) {
                    true => Ok(()),
                    false => Err("not claimed".to_owned()),
                }
            }
            Step::Create(name, usage, size) => {
                let (view, _) = self.pool.create(&request(name, usage, size)).map_err(message)?;
                assert!(view.size >= size);
                let extent = extent_of(&self.pool, view.id).expect("it was made");
                assert_mapped(machine, &self.pool, view.id, "create");
                if view.record.expect("described").usage == VolumeUsage::Block {
                    assert!(machine.disk.is_zero(extent), "a raw block volume shows only zeros at first: {extent}");
                }
                acknowledged.volumes.insert(name, Tenant { least: size, pattern: None, formatted: false });
                Ok(())
            }
            Step::Format(name) => {
                let view = self.pool.usable(id(name)).map_err(message)?;
                if !view.formatted {
                    self.pool.begin_format(view.id).map_err(message)?;
                    let made = machine.host.filesystems().make(FsKind::Ext4, &view.node, view.id.uuid());
                    made.map_err(|e| e.to_string())?;
                    self.pool.mark_formatted(view.id).map_err(message)?;
                }
                acknowledged.volumes.get_mut(name).expect("it exists").formatted = true;
                Ok(())
            }
            Step::Write(name, pattern) => {
                let extent = extent_of(&self.pool, id(name)).expect("it exists");
                machine.disk.poke(extent.start + 4096, &[pattern; 4096]);
                machine.disk.poke(extent.start + 3 * MIB, &[pattern; 4096]);
                acknowledged.volumes.get_mut(name).expect("it exists").pattern = Some(pattern);
                Ok(())
            }
            Step::Expand(name, size) => {
                let before = extent_of(&self.pool, id(name)).expect("it exists");
                let view = self.pool.expand(id(name), size, None).map_err(message)?;
                assert!(view.size >= size);
                let after = extent_of(&self.pool, id(name)).expect("it exists");
                let added = Extent { start: before.end, end: after.end };
                assert!(machine.disk.is_zero(added), "what expansion adds to a block volume is zero");
                assert_mapped(machine, &self.pool, view.id, "expand");
                acknowledged.volumes.get_mut(name).expect("it exists").least = size;
                Ok(())
            }
            Step::Delete(name) => {
                let there = self.pool.volume(id(name)).is_ok() && !self.pool.labelled_disks().is_empty();
                let was = there.then(|| number(&self.pool, id(name)));
                self.pool.delete(id(name)).map_err(message)?;
                let mapped = was.and_then(|number| machine.disk.mapping(number));
                assert_eq!(mapped, None, "a deleted volume has no device any more");
                acknowledged.volumes.remove(name);
                Ok(())
            }
            Step::Work => self.pool.work_until_idle().map_err(message),
            Step::Release => {
                for member in self.pool.members() {
                    self.pool.release(&member).map_err(message)?;
                }
                Ok(())
            }
        }
    }
}

pub fn number(pool: &Pool, volume: VolumeId) -> u32 {
    let found = pool.labelled_disks().iter().find_map(|m| m.lock().content().volume(volume).map(|v| v.number));
    found.expect("it exists")
}

/// Continues after `acknowledged`, until the end or until the power is off.
pub fn run(life: &Life, machine: &Machine, acknowledged: &mut Acknowledged) -> Result<(), String> {
    let mut running = start(life, &machine.host)?;
    if acknowledged.done > 0 && !life.steps[..acknowledged.done].contains(&Step::Release) {
        running.passes()?;
    }
    while let Some(step) = life.steps.get(acknowledged.done).copied() {
        acknowledged.pending = Some(step);
        running.step(machine, step, acknowledged)?;
        acknowledged.pending = None;
        acknowledged.done += 1;
    }
    Ok(())
}
