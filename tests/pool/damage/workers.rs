//! The threads that write the second copies: what they finish, and what a stop waits for.

use std::sync::Arc;
use std::time::Duration;

use localpool::agent::Reconciler;
use localpool::device::Owner;
use localpool::device::label::{ErasePolicy, Layout, VolumeRecord};
use localpool::device::record::{Sequenced, read_label};
use localpool::host::fake::{FakeHost, Platter};
use localpool::host::{Access, FsKind, Host};
use localpool::pool::{Pool, WantedUsage, Workers};

use crate::node::{BLOCK, MIB, geometry, id, request, rule};

/// A machine with a disk of the pool, whose background work is done by threads.
fn with_workers() -> (Arc<dyn Host>, Arc<Platter>, Arc<Pool>) {
    let host = Arc::new(FakeHost::default());
    let platter = host.add_disk("fake0", "SERIAL-1", geometry());
    let machine: Arc<dyn Host> = Arc::clone(&host) as Arc<dyn Host>;
    let owner = Owner { cluster: "test".to_owned(), node: "node-1".into() };
    let pool = Arc::new(Pool::open(Arc::clone(&machine), owner, Workers::Threads).expect("a pool"));
    let rules = vec![rule(&Layout::Carved {}, ErasePolicy::Discard)];
    let mut agent = Reconciler::new(Arc::clone(&machine), Arc::clone(&pool), Duration::ZERO, rules);
    for _ in 0..3 {
        agent.pass().expect("a pass");
    }
    (machine, platter, pool)
}

#[test]
fn what_a_change_wrote_is_soon_in_both_label_copies_without_anybody_asking() {
    let (machine, _, pool) = with_workers();
    let raw = machine.scan().expect("a scan").remove(0);
    let disk = machine.open(&raw, Access::ReadOnly).expect("opens");
    let settles = |what: &dyn Fn(&VolumeRecord) -> bool| {
        for _ in 0..1000 {
            let copies = read_label(&*disk);
            let says = |copy: &Result<Sequenced, _>| {
                copy.as_ref().is_ok_and(|copy| copy.label.volumes.get(&id("new")).is_some_and(what))
            };
            if says(&copies.a) && says(&copies.b) {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("one copy stays behind");
    };
    pool.create(&request("new", WantedUsage::Mount(Some(FsKind::Ext4)), 16 * MIB)).expect("made");
    settles(&|_| true);
    pool.mark_formatted(id("new")).expect("written");
    settles(&|record| record.fs_size == 16 * MIB);
    pool.expand(id("new"), 20 * MIB, None).expect("room");
    settles(&|record| record.required == 20 * MIB);
    pool.mark_grown(id("new"), 20 * MIB).expect("written");
    settles(&|record| record.fs_size == 20 * MIB);
    pool.stop();
}

#[test]
fn a_stop_waits_for_background_work_that_is_about_to_end_so_that_both_tables_say_the_same() {
    let (_machine, platter, pool) = with_workers();
    pool.create(&request("one", BLOCK, 16 * MIB)).expect("made");
    // The erasure ends in a write of the tables. It begins with the deletion.
    platter.set_hangs_at(Some("zero"));
    pool.delete(id("one")).expect("deleted");
    pool.kick();
    platter.until_somebody_waits();
    let answers = {
        let platter = Arc::clone(&platter);
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(50));
            platter.set_hangs_at(None);
        })
    };
    pool.stop();
    assert!(pool.members().iter().all(|member| !member.worker().is_set()), "somebody still works after the stop");
    pool.kick();
    assert!(pool.members().iter().all(|member| !member.worker().is_set()), "and somebody begins");
    answers.join().expect("no bug");
}
