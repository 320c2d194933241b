//! Sectors that cannot be read, written or zeroed.

use std::sync::Arc;

use localpool::host::fake::{FakeHost, Fault};
use localpool::host::{Extent, Geometry, Host};
use localpool::pool::{JOURNAL, Standing};

use crate::damage::at_rest;
use crate::node::{BLOCK, MIB, carved, geometry, id, request, standing, start};

#[test]
fn each_sector_of_table_and_label_that_cannot_be_read_is_written_again_and_costs_no_volume() {
    for sector in [512, 4096] {
        let (host, disk, volumes) = at_rest(sector);
        let content = disk.content();
        let journal = host.state().load(JOURNAL).expect("read").expect("there is one");
        let sector = u64::from(sector);
        let copy = sector + (128 * 128_u64).next_multiple_of(sector);
        let end = disk.geometry.size;
        for area in [0..sector + copy, end - copy..end, MIB..2 * MIB] {
            for start_of in area.clone().step_by(usize::try_from(sector).expect("small")) {
                let lost = Extent { start: start_of, end: start_of + sector };
                disk.put_content(content.clone());
                host.state().store(JOURNAL, &journal).expect("the state of that time");
                disk.lose(lost);
                let mut node = start(&host);
                let pass = node.passes().expect("a pass");
                assert!(pass.problems.is_empty(), "{lost}: {:?}", pass.problems);
                assert_eq!(node.pool.volumes(), volumes, "{lost}");
                for volume in &volumes {
                    node.pool.usable(volume.id).unwrap_or_else(|e| panic!("{lost}: {e}"));
                }
                // In the space of the label only its text is read, and matters.
                if area.start != MIB || start_of % (MIB / 2) < 4096 {
                    assert!(disk.is_readable(lost), "{lost} is written again");
                }
            }
        }
    }
}

#[test]
fn a_sector_of_a_table_that_is_lost_under_a_running_disk_fails_no_request() {
    for (start_of, end) in [(0, 512), (512, 1024), (1024, 1536), (64 * MIB - 512, 64 * MIB)] {
        let (_host, disk, node) = carved();
        let lost = Extent { start: start_of, end };
        disk.lose(lost);
        node.pool.create(&request("new", BLOCK, MIB)).unwrap_or_else(|e| panic!("{lost}: {e}"));
        assert_eq!(standing(&node), Standing::Ready);
    }
}

#[test]
fn a_sector_that_cannot_be_written_again_keeps_its_disk_out_and_says_so() {
    let (host, disk, _) = at_rest(512);
    let header = Extent { start: 512, end: 1024 };
    disk.lose(header);
    disk.inject(Fault { what: "write", range: header, times: u32::MAX });
    let mut node = start(&host);
    let pass = node.passes().expect("a pass");
    assert!(pass.problems["fake0"].contains("could not repair the partition table"), "{:?}", pass.problems);
    disk.clear_faults();
    node.passes().expect("a pass");
    node.pool.usable(id("fs")).expect("back");
}

#[test]
fn a_sector_of_free_space_that_cannot_be_zeroed_keeps_no_other_space_from_being_cleaned() {
    let host = Arc::new(FakeHost::default());
    let disk = host.add_disk("fake0", "SERIAL-1", Geometry { offloads_zeroes: false, ..geometry() });
    let mut node = start(&host);
    node.passes().expect("claims");
    let bad = Extent { start: 20 * MIB, end: 20 * MIB + 512 };
    disk.inject(Fault { what: "zero", range: bad, times: u32::MAX });
    let told = node.pool.work_until_idle().expect_err("it is reported when all else is done");
    assert!(told.to_string().contains("clean"), "{told}");
    let left = node.pool.labelled_disks()[0].lock().content().dirty();
    assert!(left.contains(&bad) && left.total() <= 16 * MIB, "{left:?}");
    assert!(!node.pool.labelled_disks()[0].lock().is_unmirrored(), "nor the label from its second copy");
    node.pool.create(&request("a", BLOCK, MIB)).expect("room");
    disk.clear_faults();
    node.passes().expect("a pass");
    node.pool.work_until_idle().expect("cleaned");
    assert!(node.pool.labelled_disks()[0].lock().content().dirty().is_empty());
}

#[test]
fn a_sector_that_cannot_be_zeroed_keeps_no_other_deleted_volume_from_being_erased() {
    for offloads_zeroes in [true, false] {
        let host = Arc::new(FakeHost::default());
        let disk = host.add_disk("fake0", "SERIAL-1", Geometry { offloads_zeroes, ..geometry() });
        let mut node = start(&host);
        node.passes().expect("claims");
        node.pool.work_until_idle().expect("cleans");
        let sick = node.pool.create(&request("sick", BLOCK, 4 * MIB)).expect("made").0;
        node.pool.create(&request("well", BLOCK, 4 * MIB)).expect("made");
        let extent = node.pool.labelled_disks()[0].shown().content.volume(sick.id).expect("there").entry.extent;
        let sector = Extent { start: extent.start + MIB, end: extent.start + MIB + 512 };
        disk.inject(Fault { what: "zero", range: sector, times: u32::MAX });
        for name in ["sick", "well"] {
            node.pool.delete(id(name)).expect("deleted");
        }
        for _ in 0..20 {
            // It fails and reports that; a pass has it tried again.
            let _ = node.pool.work_until_idle();
        }
        let erasing: Vec<u64> = node.pool.disk_views().iter().map(|view| view.erasing).collect();
        assert_eq!(erasing, [4 * MIB], "only what cannot be zeroed waits");
        disk.clear_faults();
        node.pool.work_until_idle().expect("erases");
        assert_eq!(node.pool.disk_views()[0].erasing, 0);
    }
}
