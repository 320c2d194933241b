//! A bare device after its journal was lost: whatever is written on it, it is not taken, and not written.

use std::collections::BTreeMap;

use localpool::device::label::{ErasePolicy, Layout, VolumeRecord, VolumeUsage};
use localpool::pool::{BareVolume, WantedUsage};

use crate::crash::disk;
use crate::crash::life::{Life, Machine, life, machine, start};
use crate::node::{MIB, id, request};

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
    let pass = (0..3).map(|_| lost.agent.pass().expect("a pass")).last().expect("three");
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
        .change_bare(&again.pool.bare_devices()[0].id, |claim| claim.volume = Some(block_volume()))
        .expect("written");
    let mut forged = start(&life, &machine.host).expect("starts");
    forged.passes().expect("a pass");
    assert!(forged.pool.labelled_disks().is_empty(), "the label in a tenant's volume claims nothing");
    assert_eq!(forged.pool.volumes().len(), 1, "and the volume stays what it is");
    assert!(forged.pool.usable(id("a")).is_ok());

    // A free device of the journal that has data has had another user meanwhile.
    forged.pool.delete(id("a")).expect("deleted");
    forged.pool.work_until_idle().expect("erased");
    machine.disk.poke(0, &[0x77; 4096]);
    let before = machine.disk.content();
    let mut disputed = start(&life, &machine.host).expect("starts");
    let pass = disputed.agent.pass().expect("a pass");
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

fn block_volume() -> BareVolume {
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
