//! The pool is stopped after every single durable effect of a whole life: claim, create, mkfs, expand, delete, erase,
//! create again, release. Whatever then happens to unsynced data, a restart converges: no acknowledged volume is lost,
//! none is given out twice, nothing of an earlier tenant is shown, nothing leaks.

pub mod array;
mod bare;
mod check;
mod directory;
mod host_mount;
mod life;
pub mod lost_array;
mod several;

use std::process::Command;

use localpool::device::label::{ErasePolicy, Layout};
use localpool::host::fake::Fate;
use localpool::host::{Extent, Geometry};

use crate::crash::check::check;
use crate::crash::life::{Acknowledged, Machine, Step, life, machine, run};
use crate::node::MIB;

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
    let message = String::from_utf8_lossy(&output.stdout);
    assert!(message.contains("No problems found"), "{at}: {message}");
}

fn stop_everywhere(layout: Layout, geometry: Geometry, erase: ErasePolicy) {
    let life = life(layout, geometry, erase);
    let whole = machine(&life);
    let mut acknowledged = Acknowledged::default();
    run(&life, &whole, &mut acknowledged).expect("the life without a stop");
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
            let mut acknowledged = Acknowledged::default();
            machine.host.power.cut_after(n);
            let stopped = run(&life, &machine, &mut acknowledged);
            assert!(stopped.is_err() && machine.host.power.is_off(), "{at}: it was not stopped: {stopped:?}");
            if matches!(end, End::PowerCut(Fate::Unreadable)) && acknowledged.done == 0 {
                // The disk is not yet provably ours, so it is not touched.
                continue;
            }
            match end {
                End::PowerCut(fate) => machine.host.reboot(fate),
                End::Killed => machine.host.restart_process(),
            }
            if acknowledged.pending != Some(Step::Release) {
                check(&life, &machine, &acknowledged, &at);
                if matches!(end, End::PowerCut(Fate::Torn))
                    && n % 7 == 0
                    && acknowledged.done > 0
                    && labelled
                    && geometry.sector == 512
                {
                    sgdisk_finds_no_problem(&machine, dir.path(), &at);
                }
            }
            let rest = run(&life, &machine, &mut acknowledged);
            rest.unwrap_or_else(|e| panic!("{at}: the rest of its life fails at {:?}: {e}", acknowledged.pending));
        }
    }
}

pub fn disk(sector: u32, offloads_zeroes: bool) -> Geometry {
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
fn a_carved_disk_without_erasure_shows_no_block_volume_what_was_there() {
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
