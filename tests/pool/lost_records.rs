//! Folders whose record is lost, cannot be read or has no space, and what is written in its place.

use localpool::device::label::VolumeRecord;
use localpool::host::fake::Fault;
use localpool::host::{Extent, chain};

use crate::directory_quota::{SIZE, XFS, again, create, limit, limited, message_of, record, root, write};
use crate::node::{MIB, Node, id, request};

/// What others know of a volume, with the size that they know.
fn known(node: &Node, size: u64) -> VolumeRecord {
    let record = node.pool.volume(id("a")).expect("made").record.expect("described");
    VolumeRecord { required: size, ..record }
}

#[test]
fn a_folder_is_described_again_with_the_size_that_is_known_and_never_with_less_than_its_files_use() {
    for (size, text, is) in [(5, None, 5), (1, None, 3), (5, Some("{\"format\": 1, \"siz"), 5)] {
        let (host, _disk, node) = limited();
        create(&node, "a", 5 * MIB);
        let (root, known) = (root(&host, &node), known(&node, size * MIB));
        write(&*root, "a", 3 * MIB).expect("it has room");
        match text {
            None => root.remove_file(&record("a")).expect("removed"),
            Some(text) => root.write(&record("a"), text).expect("written"),
        }
        let node = again(&host, node);
        let disk = node.pool.disk_views().remove(0).id;
        let view = node.pool.describe_volume(id("a"), &disk, &known).expect("described");
        assert_eq!((view.size, limit(&*root, "a")), (is * MIB, Some(is * MIB)));
    }
}

#[test]
fn a_record_that_could_not_be_read_is_taken_as_it_is_when_it_can_be_and_never_replaced() {
    let (host, disk, node) = limited();
    create(&node, "a", MIB);
    node.pool.expand(id("a"), 5 * MIB, None).expect("there is room");
    let (root, known) = (root(&host, &node), known(&node, MIB));
    let text = root.read(&record("a")).expect("read").expect("there");
    let unreadable = |times| disk.inject(Fault { what: "record read", range: Extent { start: 0, end: SIZE }, times });
    unreadable(1);
    let node = again(&host, node);
    assert!(message_of(node.pool.usable(id("a"))).contains("does not describe volume"));
    let id_of_disk = node.pool.disk_views().remove(0).id;
    unreadable(1);
    let why = message_of(node.pool.describe_volume(id("a"), &id_of_disk, &known));
    assert!(why.contains("cannot be read, and is not replaced") && why.contains("Input/output error"), "{why}");
    assert_eq!(root.read(&record("a")).expect("read").as_ref(), Some(&text));
    let view = node.pool.describe_volume(id("a"), &id_of_disk, &known).expect("read");
    assert_eq!((view.size, limit(&*root, "a")), (5 * MIB, Some(5 * MIB)));
    assert_eq!(root.read(&record("a")).expect("read"), Some(text));
    node.pool.usable(id("a")).expect("it is described");
}

#[test]
fn a_record_of_a_later_version_is_never_replaced() {
    let (host, _disk, node) = limited();
    create(&node, "a", MIB);
    let (root, known) = (root(&host, &node), known(&node, MIB));
    let text = root.read(&record("a")).expect("read").expect("there");
    let later = text.replace("\"format\": 1", "\"format\": 2");
    root.write(&record("a"), &later).expect("written");
    let node = again(&host, node);
    let disk = node.pool.disk_views().remove(0).id;
    let why = message_of(node.pool.describe_volume(id("a"), &disk, &known));
    assert!(why.contains("it has format 2, written by a later version of localpool"), "{why}");
    assert_eq!(root.read(&record("a")).expect("read"), Some(later));
}

#[test]
fn a_filesystem_without_space_for_a_record_is_full_and_has_not_failed() {
    let (_host, disk, node) = limited();
    create(&node, "a", MIB);
    disk.inject(Fault { what: "tree full", range: Extent { start: 0, end: SIZE }, times: u32::MAX });
    for refused in [
        node.pool.create(&request("b", XFS, MIB)).expect_err("there is no space"),
        node.pool.expand(id("a"), 10 * MIB, None).expect_err("there is no space"),
    ] {
        assert!(refused.is_full() && chain(&refused).contains("No space left on device"), "{refused:?}");
    }
    disk.clear_faults();
    create(&node, "b", MIB);
    assert_eq!(node.pool.expand(id("a"), 10 * MIB, None).expect("it has space").size, 10 * MIB);
}
