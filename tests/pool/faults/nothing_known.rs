//! The state directory was lost, and with it all knowledge of disks that cannot be read now.

use std::path::PathBuf;
use std::sync::Arc;

use localpool::device::Verdict;
use localpool::host::{
    Extent, Geometry, MountHow, MountUse,
    fake::{FakeHost, Platter, SparseBytes},
};
use localpool::pool::{Change, PoolError};

use crate::node::{BLOCK, MIB, Node, carved, id, request, start};

const ALL: Extent = Extent { start: 0, end: 64 * MIB };

/// A disk with a volume that cannot be read, what is on it, and an agent that knows nothing of it.
fn unread() -> (Arc<FakeHost>, Arc<Platter>, SparseBytes, Node) {
    let (host, disk, node) = carved();
    node.pool.create(&request("a", BLOCK, MIB)).expect("made");
    drop(node);
    host.state.lose();
    let content = disk.content();
    disk.lose(ALL);
    let mut node = start(&host);
    node.passes().expect("a pass");
    (host, disk, content, node)
}

#[test]
fn a_volume_is_not_called_deleted_while_a_disk_cannot_be_read_and_nothing_tells_what_is_on_it() {
    let (_host, disk, content, mut node) = unread();
    let refused = node.pool.delete(id("a")).expect_err("it may be there");
    assert!(matches!(refused, PoolError::DiskAway { .. }), "{refused:?}");
    let message = refused.to_string();
    assert!(message.contains("could not be read") && message.contains("unplug it"), "{message}");
    disk.put_content(content);
    node.agent.event(&"fake0".into());
    node.passes().expect("a pass");
    assert_eq!(node.pool.delete(id("a")).expect("it is there"), Change::Done);

    // It is gone for good: nobody waits for it.
    let (host, _disk, _content, mut node) = unread();
    host.unplug("fake0");
    node.passes().expect("a pass");
    assert_eq!(node.pool.delete(id("a")).expect("as far as anybody knows"), Change::AlreadySo);
}

#[test]
fn a_disk_that_cannot_be_read_keeps_no_deletion_waiting_where_the_journal_knows_all_disks() {
    let (host, _disk, node) = carved();
    drop(node);
    let other = host.add_disk("fake1", "SERIAL-2", Geometry { size: 64 * MIB, sector: 512, offloads_zeroes: true });
    other.lose(ALL);
    let mut node = start(&host);
    node.passes().expect("a pass");
    assert_eq!(node.pool.delete(id("a")).expect("it is nowhere"), Change::AlreadySo);
    node.pool.create(&request("a", BLOCK, MIB)).expect("made");
}

#[test]
fn a_disk_that_cannot_be_read_and_may_have_anything_keeps_no_new_volume_waiting() {
    let (host, _disk, _content, mut node) = unread();
    host.add_disk("fake1", "SERIAL-2", Geometry { size: 64 * MIB, sector: 512, offloads_zeroes: true });
    node.passes().expect("claims");
    node.pool.create(&request("b", BLOCK, MIB)).expect("made");
    assert_eq!(node.pool.delete(id("b")).expect("it is here"), Change::Done);
}

type Fails = Box<dyn Fn(&FakeHost, &Platter)>;

/// Its verdict then has another reason than that it could not be read.
#[test]
fn nor_while_a_disk_is_dead_to_the_kernel_or_is_in_use_and_cannot_be_read() {
    let target = PathBuf::from("/var/lib/kubelet/pods/p/volumes/v/mount");
    let mounted = MountUse { target, namespace: 1, how: MountHow::Filesystem };
    let ways: [(&str, Fails); 3] = [
        ("offline", Box::new(|host, _| host.edit("fake0", |raw| raw.state = Some("offline".to_owned())))),
        ("of no size", Box::new(|host, _| host.edit("fake0", |raw| raw.size = 0))),
        (
            "in use",
            Box::new(move |host, disk| {
                host.edit("fake0", |raw| raw.mounts = vec![mounted.clone()]);
                disk.lose(ALL);
            }),
        ),
    ];
    for (name, fails) in ways {
        let (host, disk, node) = carved();
        node.pool.create(&request("a", BLOCK, MIB)).expect("made");
        drop(node);
        host.state.lose();
        let content = disk.content();
        fails(&host, &disk);
        let mut node = start(&host);
        let pass = node.passes().expect("a pass");
        let verdict = &pass.snapshot.devices[0].verdict;
        assert!(matches!(verdict, Verdict::Theirs(_)), "{name}: {verdict:?}");
        let refused = node.pool.delete(id("a")).expect_err("it may be there");
        assert!(matches!(refused, PoolError::DiskAway { .. }), "{name}: {refused:?}");
        host.edit("fake0", |raw| (raw.state, raw.size, raw.mounts) = (None, 64 * MIB, Vec::new()));
        disk.put_content(content);
        node.agent.event(&"fake0".into());
        node.passes().expect("a pass");
        assert_eq!(node.pool.delete(id("a")).expect("it is there"), Change::Done, "{name}");
    }
}
