//! The pool is stopped after every single durable effect of a whole life: claim, create, mkfs, expand, delete, erase,
//! create again, release. Whatever then happens to unsynced data, a restart converges: no acknowledged volume is lost,
//! none is given out twice, nothing of an earlier tenant is shown, nothing leaks.

mod fake_node;
#[path = "crash/several.rs"]
mod several;

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use fake_node::{MIB, Node, id, request, rule};
use localpool::device::VolumeId;
use localpool::device::label::{ErasePolicy, Layout, VolumeRecord, VolumeUsage};
use localpool::host::fake::{FakeHost, Fate, Platter};
use localpool::host::{Extent, FsKind, Geometry, Host};
use localpool::pool::{BareVolume, Pool, Standing, WantedUsage};

/// How the process ends at the chosen effect.
#[derive(Clone, Copy, Debug)]
enum End {
    PowerCut(Fate),
    Killed,
}

const ENDS: [End; 6] = [
    End::PowerCut(Fate::Whole),
    End::PowerCut(Fate::Torn),
    End::PowerCut(Fate::Unreadable),
    End::PowerCut(Fate::LastLost),
    End::PowerCut(Fate::Lost),
    End::Killed,
];

/// The answers that callers of the pool got.
#[derive(Clone, Debug, Default)]
struct Told {
    /// Volumes that were acknowledged, with the bytes that the tenant wrote at the start and the end.
    volumes: BTreeMap<&'static str, Tenant>,
    /// The step that had not been answered when the process ended.
    pending: Option<Step>,
    done: usize,
}

#[derive(Clone, Debug)]
struct Tenant {
    least: u64,
    /// The pattern that it wrote, if it did.
    pattern: Option<u8>,
    formatted: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Claim,
    Create(&'static str, WantedUsage, u64),
    Format(&'static str),
    Write(&'static str, u8),
    Expand(&'static str, u64),
    Delete(&'static str),
    Work,
    Release,
}

struct Life {
    layout: Layout,
    geometry: Geometry,
    erase: ErasePolicy,
    steps: Vec<Step>,
}

fn life(layout: Layout, geometry: Geometry, erase: ErasePolicy) -> Life {
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

struct Machine {
    host: Arc<FakeHost>,
    disk: Arc<Platter>,
}

fn machine(life: &Life) -> Machine {
    let host = Arc::new(FakeHost::default());
    let disk = host.add_disk("fake0", "SERIAL-1", life.geometry);
    if life.layout != (Layout::RawDevice {}) {
        // Data of an earlier owner that no probe finds: it looks blank, but is not zero.
        disk.poke(5 * MIB, &[0x55; 8192]);
        disk.poke(life.geometry.size / 2, &[0x55; 8192]);
    }
    Machine { host, disk }
}

fn start(life: &Life, host: &Arc<FakeHost>) -> Result<Node, String> {
    Node::start(host, vec![rule(&life.layout, life.erase)], Duration::ZERO)
}

fn extent_of(pool: &Pool, volume: VolumeId) -> Option<Extent> {
    let bare = pool.bare_devices().iter().find_map(|m| m.view().filter(|v| v.id == volume));
    let bare = bare.map(|view| Extent { start: 0, end: view.size });
    bare.or_else(|| {
        pool.labelled_disks().iter().find_map(|m| m.lock().content().volume(volume).map(|v| v.entry.extent))
    })
}

fn free_bytes(pool: &Pool) -> u64 {
    let labelled: u64 = pool.labelled_disks().iter().map(|m| m.lock().content().free().total()).sum();
    let claims = pool.journal().bare_claims();
    let bare = claims.iter().filter(|(_, claim)| claim.volume.is_none() && claim.erasing.is_none());
    labelled + bare.map(|(_, claim)| claim.size).sum::<u64>()
}

/// The kernel has exactly this partition for the volume; a bare device has no partition.
fn assert_mapped(machine: &Machine, pool: &Pool, volume: VolumeId, at: &str) {
    if pool.bare_devices().is_empty() {
        let extent = extent_of(pool, volume);
        assert_eq!(machine.disk.mapping(number(pool, volume)), extent, "{at}: the kernel has it");
    }
}

trait Living {
    /// Does one step, with every check that its caller would do.
    fn step(&mut self, machine: &Machine, step: Step, told: &mut Told) -> Result<(), String>;
}

impl Living for Node {
    fn step(&mut self, machine: &Machine, step: Step, told: &mut Told) -> Result<(), String> {
        let words = |e: localpool::pool::PoolError| localpool::host::chain(&e);
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
                let (view, _) = self.pool.create(&request(name, usage, size)).map_err(words)?;
                assert!(view.size >= size);
                let extent = extent_of(&self.pool, view.id).expect("it was made");
                assert_mapped(machine, &self.pool, view.id, "create");
                if view.record.expect("described").usage == VolumeUsage::Block {
                    assert!(machine.disk.is_zero(extent), "a raw block volume shows only zeros at first: {extent}");
                }
                told.volumes.insert(name, Tenant { least: size, pattern: None, formatted: false });
                Ok(())
            }
            Step::Format(name) => {
                let view = self.pool.usable(id(name)).map_err(words)?;
                if !view.formatted {
                    self.pool.begin_format(view.id).map_err(words)?;
                    let made = machine.host.filesystems().make(FsKind::Ext4, &view.node, view.id.uuid());
                    made.map_err(|e| e.to_string())?;
                    self.pool.mark_formatted(view.id).map_err(words)?;
                }
                told.volumes.get_mut(name).expect("it exists").formatted = true;
                Ok(())
            }
            Step::Write(name, pattern) => {
                let extent = extent_of(&self.pool, id(name)).expect("it exists");
                machine.disk.poke(extent.start + 4096, &[pattern; 4096]);
                machine.disk.poke(extent.start + 3 * MIB, &[pattern; 4096]);
                told.volumes.get_mut(name).expect("it exists").pattern = Some(pattern);
                Ok(())
            }
            Step::Expand(name, size) => {
                let before = extent_of(&self.pool, id(name)).expect("it exists");
                let view = self.pool.expand(id(name), size, None).map_err(words)?;
                assert!(view.size >= size);
                let after = extent_of(&self.pool, id(name)).expect("it exists");
                let added = Extent { start: before.end, end: after.end };
                assert!(machine.disk.is_zero(added), "what expansion adds to a raw volume is zero");
                assert_mapped(machine, &self.pool, view.id, "expand");
                told.volumes.get_mut(name).expect("it exists").least = size;
                Ok(())
            }
            Step::Delete(name) => {
                let there = self.pool.volume(id(name)).is_ok() && !self.pool.labelled_disks().is_empty();
                let was = there.then(|| number(&self.pool, id(name)));
                self.pool.delete(id(name)).map_err(words)?;
                let mapped = was.and_then(|number| machine.disk.mapping(number));
                assert_eq!(mapped, None, "a deleted volume has no device any more");
                told.volumes.remove(name);
                Ok(())
            }
            Step::Work => self.pool.work_until_idle().map_err(words),
            Step::Release => {
                for member in self.pool.members() {
                    self.pool.release(&member).map_err(words)?;
                }
                Ok(())
            }
        }
    }
}

fn number(pool: &Pool, volume: VolumeId) -> u32 {
    let found = pool.labelled_disks().iter().find_map(|m| m.lock().content().volume(volume).map(|v| v.number));
    found.expect("it exists")
}

/// Continues after `told`, until the end or until the power is off.
fn run(life: &Life, machine: &Machine, told: &mut Told) -> Result<(), String> {
    let mut running = start(life, &machine.host)?;
    if told.done > 0 && !life.steps[..told.done].contains(&Step::Release) {
        running.passes()?;
    }
    while let Some(step) = life.steps.get(told.done).copied() {
        told.pending = Some(step);
        running.step(machine, step, told)?;
        told.pending = None;
        told.done += 1;
    }
    Ok(())
}

/// Everything that must hold after a restart, wherever the life was cut off.
fn check(life: &Life, machine: &Machine, told: &Told, at: &str) {
    let mut running = start(life, &machine.host).unwrap_or_else(|e| panic!("{at}: {e}"));
    running.passes().unwrap_or_else(|e| panic!("{at}: {e}"));
    let views = running.pool.volumes();
    for (name, tenant) in &told.volumes {
        let view = views.iter().find(|v| v.id == id(name));
        let gone_is_fine = told.pending == Some(Step::Delete(name));
        let Some(view) = view else {
            assert!(gone_is_fine, "{at}: acknowledged volume {name} is lost");
            continue;
        };
        assert!(view.size >= tenant.least, "{at}: {name} shrank");
        assert_eq!(view.record.as_ref().map(|r| r.name.as_str()), Some(*name), "{at}: its description is there");
        assert!(view.formatted || !tenant.formatted, "{at}: {name} would be formatted again");
        let extent = extent_of(&running.pool, view.id).expect("it is there");
        if let Some(pattern) = tenant.pattern {
            for offset in [4096, 3 * MIB] {
                let mut bytes = [0; 4096];
                machine.disk.peek(extent.start + offset, &mut bytes);
                assert!(bytes.iter().all(|b| *b == pattern), "{at}: data of {name} at {offset}");
            }
        }
        assert_mapped(machine, &running.pool, view.id, at);
    }
    for view in &views {
        let pending = |name: &str| matches!(told.pending, Some(Step::Create(n, ..) | Step::Delete(n)) if n == name);
        let known = ["a", "b", "c"].iter().any(|n| id(n) == view.id && (told.volumes.contains_key(n) || pending(n)));
        assert!(known, "{at}: a volume that nobody was told of, or that was deleted: {view:?}");
    }
    for member in running.pool.labelled_disks() {
        let state = member.lock();
        let content = state.content();
        for clean in content.clean().iter() {
            assert!(machine.disk.is_zero(*clean), "{at}: {clean} is called clean and is not");
            let used = content.volumes().any(|v| v.entry.extent.overlaps(clean));
            assert!(!used, "{at}: {clean} is called clean and is in use");
        }
    }
    running.pool.work_until_idle().unwrap_or_else(|e| panic!("{at}: {e}"));
    if !running.pool.members().is_empty() {
        let used: u64 = running.pool.volumes().iter().map(|v| v.size).sum();
        let all = all_bytes(life);
        let lost = all - used - free_bytes(&running.pool);
        // A carved volume of whole MiB leaves no gaps; slots are all there or none is.
        assert_eq!(lost, 0, "{at}: space is leaked");
    }
}

fn all_bytes(life: &Life) -> u64 {
    let fresh = machine(life);
    let mut running = start(life, &fresh.host).expect("starts");
    running.passes().expect("claims");
    free_bytes(&running.pool)
}

fn sgdisk_finds_no_problem(machine: &Machine, dir: &std::path::Path, at: &str) {
    let image = dir.join("disk.img");
    let size = machine.disk.geometry.size;
    let file = std::fs::File::create(&image).expect("an image");
    file.set_len(size).expect("a size");
    let copy = |offset: u64, len: usize| {
        use std::os::unix::fs::FileExt;
        let mut bytes = vec![0; len];
        machine.disk.peek(offset, &mut bytes);
        file.write_all_at(&bytes, offset).expect("written");
    };
    copy(0, 64 * 1024);
    copy(size - 64 * 1024, 64 * 1024);
    let output = Command::new("sgdisk").arg("-v").arg(&image).output().expect("sgdisk is installed");
    let words = String::from_utf8_lossy(&output.stdout);
    assert!(words.contains("No problems found"), "{at}: {words}");
}

fn stop_everywhere(layout: Layout, geometry: Geometry, erase: ErasePolicy) {
    let life = life(layout, geometry, erase);
    let whole = machine(&life);
    let mut told = Told::default();
    run(&life, &whole, &mut told).expect("the life without a stop");
    let effects = whole.host.power.spent();
    assert!(effects > 10, "a life has many effects: {effects}");
    let mut tail = vec![0; 64 * 1024];
    whole.disk.peek(geometry.size - tail.len() as u64, &mut tail);
    assert!(whole.disk.is_zero(Extent { start: 0, end: 2 * MIB }) && tail.iter().all(|b| *b == 0), "released is blank");
    let dir = tempfile::tempdir().expect("a directory");
    let labelled = life.layout != (Layout::RawDevice {});
    for n in 1..=effects {
        for end in ENDS {
            let at = format!("{:?}, {end:?} after effect {n} of {effects}", life.layout);
            let machine = machine(&life);
            let mut told = Told::default();
            machine.host.power.cut_after(n);
            let stopped = run(&life, &machine, &mut told);
            assert!(stopped.is_err() && machine.host.power.is_off(), "{at}: it was not stopped: {stopped:?}");
            if matches!(end, End::PowerCut(Fate::Unreadable)) && told.done == 0 {
                // The disk is not yet provably ours, so it is not touched.
                continue;
            }
            match end {
                End::PowerCut(fate) => machine.host.reboot(fate),
                End::Killed => machine.host.restart_process(),
            }
            if told.pending != Some(Step::Release) {
                check(&life, &machine, &told, &at);
                if matches!(end, End::PowerCut(Fate::Torn))
                    && n % 7 == 0
                    && told.done > 0
                    && labelled
                    && geometry.sector == 512
                {
                    sgdisk_finds_no_problem(&machine, dir.path(), &at);
                }
            }
            let rest = run(&life, &machine, &mut told);
            rest.unwrap_or_else(|e| panic!("{at}: the rest of its life fails at {:?}: {e}", told.pending));
        }
    }
}

fn disk(sector: u32, offloads_zeroes: bool) -> Geometry {
    Geometry { size: 64 * MIB, sector, offloads_zeroes }
}

#[test]
fn a_carved_disk_converges_after_a_stop_at_any_effect() {
    stop_everywhere(Layout::Carved {}, disk(512, true), ErasePolicy::Discard);
}

#[test]
fn a_carved_disk_that_cannot_zero_by_itself_converges_after_a_stop_at_any_effect() {
    stop_everywhere(Layout::Carved {}, disk(4096, false), ErasePolicy::Zero);
}

#[test]
fn a_carved_disk_without_erasure_shows_no_raw_volume_what_was_there() {
    stop_everywhere(Layout::Carved {}, disk(512, true), ErasePolicy::None);
}

#[test]
fn a_disk_of_slots_converges_after_a_stop_at_any_effect() {
    stop_everywhere(Layout::Slots { size: None, count: Some(3) }, disk(512, false), ErasePolicy::Discard);
}

#[test]
fn a_whole_disk_converges_after_a_stop_at_any_effect() {
    stop_everywhere(Layout::Whole {}, disk(512, true), ErasePolicy::Discard);
}

#[test]
fn a_large_volume_that_is_zeroed_in_pieces_converges_after_a_stop_at_any_effect() {
    let large = Geometry { size: 256 * MIB, ..disk(512, true) };
    stop_everywhere(Layout::Whole {}, large, ErasePolicy::None);
}

#[test]
fn a_bare_device_converges_after_a_stop_at_any_effect() {
    stop_everywhere(Layout::RawDevice {}, disk(512, false), ErasePolicy::Discard);
}

#[test]
fn a_bare_device_whose_journal_is_lost_is_not_taken_while_it_holds_data_and_is_disputed_where_the_journal_is_wrong() {
    let life = life(Layout::RawDevice {}, disk(512, true), ErasePolicy::Discard);
    let machine = machine(&life);
    let mut running = start(&life, &machine.host).expect("starts");
    running.passes().expect("claims");
    running.pool.create(&request("a", WantedUsage::Block, MIB)).expect("made");
    // No probe recognises the tenant's bytes.
    machine.disk.poke(0, &[0x77; 4096]);

    machine.host.state.lose();
    let mut lost = start(&life, &machine.host).expect("starts");
    let pass = (0..3).map(|_| lost.agent.pass().expect("looks")).last().expect("three");
    assert!(lost.pool.members().is_empty(), "it is not taken again");
    let left = &pass.outcomes[0].rejected;
    assert!(left[0].1.to_string().contains("unrecognised data"), "{left:?}");

    // What a tenant writes decides nothing, not even a label of this very node.
    machine.disk.poke(0, &[0; 4096]);
    let mut again = start(&life, &machine.host).expect("starts");
    again.passes().expect("claims");
    assert_eq!(again.pool.bare_devices().len(), 1);
    let tenant = machine_with_a_label(&life);
    machine.disk.put_content(tenant.disk.content());
    again
        .pool
        .journal()
        .change_bare(&again.pool.bare_devices()[0].id, |claim| claim.volume = Some(raw_volume()))
        .expect("written");
    let mut forged = start(&life, &machine.host).expect("starts");
    forged.passes().expect("looks");
    assert!(forged.pool.labelled_disks().is_empty(), "the label in a tenant's volume claims nothing");
    assert_eq!(forged.pool.volumes().len(), 1, "and the volume stays what it is");
    assert!(forged.pool.usable(id("a")).is_ok());

    // A free device of the journal that has data has had another user meanwhile.
    forged.pool.delete(id("a")).expect("deleted");
    forged.pool.work_until_idle().expect("erased");
    machine.disk.poke(0, &[0x77; 4096]);
    let before = machine.disk.content();
    let mut disputed = start(&life, &machine.host).expect("starts");
    let pass = disputed.agent.pass().expect("looks");
    assert!(pass.problems["fake0"].contains("claim disputed"), "{:?}", pass.problems);
    assert!(disputed.pool.create(&request("b", WantedUsage::Block, MIB)).is_err());
    disputed.pool.work_until_idle().expect("nothing to do");
    assert!(machine.disk.content() == before, "a disputed device is untouched");
}

/// The same disk as if a node with this name had claimed it with a label.
fn machine_with_a_label(life: &Life) -> Machine {
    let labelled = Life { layout: Layout::Carved {}, steps: Vec::new(), ..*life };
    let machine = machine(&labelled);
    start(&labelled, &machine.host).expect("starts").passes().expect("claims");
    machine
}

fn raw_volume() -> BareVolume {
    let wanted = request("a", WantedUsage::Block, MIB);
    let record = VolumeRecord {
        name: wanted.name,
        required: MIB,
        limit: None,
        parameters: BTreeMap::new(),
        usage: VolumeUsage::Block,
        fs_size: 0,
        found: false,
    };
    BareVolume { id: wanted.id, record, formatting: false, formatted: false }
}
