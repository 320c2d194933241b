//! Everything that must hold after a restart, wherever a life was cut off.

use crate::crash::life::{Acknowledged, Life, Machine, Step, assert_mapped, extent_of, free_bytes, machine, start};
use crate::node::{MIB, id};

/// Everything that must hold after a restart, wherever the life was cut off.
pub fn check(life: &Life, machine: &Machine, acknowledged: &Acknowledged, at: &str) {
    let mut running = start(life, &machine.host).unwrap_or_else(|e| panic!("{at}: {e}"));
    running.passes().unwrap_or_else(|e| panic!("{at}: {e}"));
    let views = running.pool.volumes();
    for (name, tenant) in &acknowledged.volumes {
        let view = views.iter().find(|v| v.id == id(name));
        let gone_is_fine = acknowledged.pending == Some(Step::Delete(name));
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
        let pending =
            |name: &str| matches!(acknowledged.pending, Some(Step::Create(n, ..) | Step::Delete(n)) if n == name);
        let known =
            ["a", "b", "c"].iter().any(|n| id(n) == view.id && (acknowledged.volumes.contains_key(n) || pending(n)));
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
