//! A disk from its claim to its release: when it is claimed, cleaned, grown, released and taken over.

use std::sync::Arc;
use std::time::Duration;

use localpool::agent::{Run, Verb};
use localpool::claim::Reclaim;
use localpool::device::label::{ErasePolicy, Layout};
use localpool::host::fake::FakeHost;
use localpool::host::{Extent, FsKind, Geometry, Host};
use localpool::pool::{PoolError, Selector, WantedUsage};

use crate::node::{BLOCK, MIB, Node, carved, geometry, id, request, rule, start};

#[test]
fn a_disk_that_has_grown_keeps_its_volumes_and_gives_the_new_room_to_carved_ones_only() {
    for layout in [Layout::Carved {}, Layout::Slots { size: None, count: Some(2) }] {
        let host = Arc::new(FakeHost::default());
        let disk = host.add_disk("fake0", "SERIAL-1", geometry());
        let rules = || vec![rule(&layout, ErasePolicy::Discard)];
        let mut node = Node::start(&host, rules(), Duration::ZERO).expect("starts");
        node.passes().expect("claims");
        node.pool.create(&request("a", BLOCK, MIB)).expect("made");
        let places = |node: &Node| node.pool.labelled_disks()[0].lock().content().free().total();
        let before = places(&node);

        host.unplug("fake0");
        let larger = Geometry { size: 128 * MIB, ..geometry() };
        let grown = host.add_disk("fake0", "SERIAL-1", larger);
        grown.put_content(disk.content());
        node.passes().expect("a pass");
        assert!(node.pool.usable(id("a")).is_ok());
        let gained = places(&node) - before;
        match layout {
            Layout::Carved {} => assert_eq!(gained, 64 * MIB),
            _ => assert_eq!(gained, 0, "a grown device gets no new slots"),
        }
        let mut tail = [0; 8];
        grown.peek(128 * MIB - 512, &mut tail);
        assert_eq!(&tail, b"EFI PART", "the backup is at the end again");
    }
}

#[test]
fn a_disk_that_is_formatted_30_seconds_after_it_appears_is_never_claimed_by_default() {
    let host = Arc::new(FakeHost::default());
    let disk = host.add_disk("fake0", "SERIAL-1", geometry());
    let rules = vec![rule(&Layout::Carved {}, ErasePolicy::Discard)];
    let mut node = Node::start(&host, rules, Duration::from_secs(60)).expect("starts");
    node.agent.pass().expect("a pass");
    host.advance(Duration::from_secs(30));
    host.filesystems().make(FsKind::Ext4, std::path::Path::new("/dev/fake0"), id("theirs").uuid()).expect("formatted");
    let before = disk.content();
    for _ in 0..10 {
        host.advance(Duration::from_secs(30));
        node.agent.pass().expect("a pass");
    }
    assert!(node.pool.members().is_empty());
    assert!(disk.content() == before, "and it was not written to");

    let blank = host.add_disk("fake1", "SERIAL-2", geometry());
    node.agent.pass().expect("a pass");
    host.advance(Duration::from_secs(59));
    assert!(node.agent.pass().expect("a pass").claimed.is_empty(), "too young");
    assert_eq!(blank.write_count(), 0);
    host.advance(Duration::from_secs(1));
    assert_eq!(node.agent.pass().expect("a pass").claimed, ["fake1"]);
}

#[test]
fn a_released_disk_is_blank_and_stays_unclaimed_until_it_is_adopted() {
    let (_host, disk, mut node) = carved();
    node.pool.create(&request("a", BLOCK, MIB)).expect("made");
    let release = |run| Verb::ReleaseDisk { disk: "/dev/fake0".to_owned(), run };
    assert!(node.agent.verb(&release(Run::Real)).is_err(), "it holds a volume");
    node.pool.delete(id("a")).expect("deleted");
    assert!(node.agent.verb(&release(Run::Real)).is_err(), "it is being erased");
    node.pool.work_until_idle().expect("erased");
    let before = disk.content();
    node.agent.verb(&release(Run::Dry)).expect("a dry run");
    assert!(disk.content() == before);
    node.agent.verb(&release(Run::Real)).expect("released");
    assert!(disk.is_zero(Extent { start: 0, end: 64 * MIB }));
    node.passes().expect("a pass");
    assert!(node.pool.members().is_empty(), "not claimed again");
    node.agent.verb(&Verb::AdoptDisk { disk: "/dev/fake0".to_owned(), run: Run::Real }).expect("adopted");
    node.passes().expect("a pass");
    assert_eq!(node.pool.labelled_disks().len(), 1);
}

#[test]
fn of_a_disk_that_only_its_path_names_a_release_says_for_how_long_it_holds() {
    for (serial, lines) in [("S", 2), ("", 3)] {
        let host = Arc::new(FakeHost::default());
        host.add_disk("fake0", serial, geometry());
        let set = rule(&Layout::Carved {}, ErasePolicy::Discard);
        let mut node = Node::start(&host, vec![set], Duration::ZERO).expect("starts");
        node.passes().expect("claims");
        let release = Verb::ReleaseDisk { disk: "/dev/fake0".to_owned(), run: Run::Real };
        let output = node.agent.verb(&release).expect("released");
        assert_eq!(output.len(), lines, "{output:?}");
        assert!(lines < 3 || output[2].contains("no serial or WWN"), "{output:?}");
    }
}

#[test]
fn a_set_that_reclaims_by_release_gives_a_disk_back_after_its_last_volume_and_not_before_its_first() {
    for layout in [Layout::Carved {}, Layout::RawDevice {}] {
        let host = Arc::new(FakeHost::default());
        let disk = host.add_disk("fake0", "SERIAL-1", geometry());
        let mut set = rule(&layout, ErasePolicy::Discard);
        set.reclaim = Reclaim::Release;
        let mut node = Node::start(&host, vec![set], Duration::ZERO).expect("starts");
        node.passes().expect("claims");
        assert_eq!(node.pool.members().len(), 1, "an unused disk is kept");
        node.pool.create(&request("a", BLOCK, MIB)).expect("made");
        node.passes().expect("a pass");
        node.pool.delete(id("a")).expect("deleted");
        node.passes().expect("a pass");
        assert_eq!(node.pool.members().len(), 1, "it is not erased yet");
        node.pool.work_until_idle().expect("erased");
        node.passes().expect("a pass");
        assert!(node.pool.members().is_empty(), "{layout:?}");
        assert!(disk.is_zero(Extent { start: 0, end: 64 * MIB }), "{layout:?}");
        node.passes().expect("a pass");
        assert!(node.pool.members().is_empty(), "no set claims it again by itself");
    }
}

#[test]
fn a_deleted_set_keeps_its_volumes_and_offers_nothing_and_one_made_again_takes_the_disk_over() {
    let (host, _, node) = carved();
    node.pool.create(&request("a", BLOCK, MIB)).expect("made");
    drop(node);
    let mut orphaned = Node::start(&host, Vec::new(), Duration::ZERO).expect("starts");
    orphaned.passes().expect("a pass");
    assert!(orphaned.pool.usable(id("a")).is_ok(), "the volume stays");
    assert!(matches!(orphaned.pool.create(&request("b", BLOCK, MIB)), Err(PoolError::NoSet(_))));

    let remade = |uid: &str, layout: Layout| {
        let mut set = rule(&layout, ErasePolicy::Discard);
        set.set.uid = uid.into();
        set
    };
    let other = vec![remade("2", Layout::Whole {})];
    let mut other = Node::start(&host, other, Duration::ZERO).expect("starts");
    other.passes().expect("a pass");
    assert!(other.pool.create(&request("b", BLOCK, MIB)).is_err(), "another layout is another set");

    let mut node = Node::start(&host, vec![remade("2", Layout::Carved {})], Duration::ZERO).expect("starts");
    node.passes().expect("a pass");
    node.pool.create(&request("b", BLOCK, MIB)).expect("it offers again");
    assert_eq!(node.pool.labelled_disks()[0].lock().content().label.set.uid, "2", "and the label says so");
}

#[test]
fn a_disk_that_is_being_cleaned_offers_all_its_space_to_filesystems_and_the_clean_part_to_block_volumes() {
    let host = Arc::new(FakeHost::default());
    let slow = Geometry { size: 256 * MIB, offloads_zeroes: false, ..geometry() };
    host.add_disk("fake0", "SERIAL-1", slow);
    let mut node = start(&host);
    node.passes().expect("claims");
    let offered = |wanted| node.pool.capacity(&Selector::default(), wanted).available;
    let ext4 = WantedUsage::Mount(Some(FsKind::Ext4));
    assert_eq!((offered(ext4), offered(BLOCK)), (253 * MIB, 0), "nothing is clean yet");
    node.pool.members()[0].work().expect("one chunk");
    let clean = offered(BLOCK);
    assert!((62 * MIB..253 * MIB).contains(&clean), "{clean}");
    assert_eq!(offered(ext4), 253 * MIB, "a filesystem takes space as it is");
    node.pool.create(&request("fs", ext4, 200 * MIB)).expect("it fits nowhere but over what is still dirty");
    node.pool.work_until_idle().expect("cleaned");
    assert_eq!(offered(BLOCK), 53 * MIB);
}
