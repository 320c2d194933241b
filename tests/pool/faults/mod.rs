//! Disks that fail, leave, come back, grow and are copied, on a fake machine that does all this on purpose.

mod bare_devices;
mod claims;
mod copied_bare;
mod copies;
mod dead;
mod given_up;
mod nothing_known;
mod older;
mod older_journal;
mod older_state;
mod other_disk;
mod put_there;
mod refused;
mod swapped;
mod underneath;
mod unread;
mod zeroing;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use localpool::device::label::{ErasePolicy, Layout};
use localpool::host::fake::{FakeHost, Platter};
use localpool::host::{Access, DeviceKind, Extent, FsKind, Geometry, Host, Partition};
use uuid::Uuid;

use crate::node::{MIB, Node, geometry, rule};

/// Two disks, of which the smaller one is chosen first.
pub fn two_disks(layout: &Layout) -> (Arc<FakeHost>, [Arc<Platter>; 2], Node) {
    let host = Arc::new(FakeHost::default());
    let disks = [("fake0", 64), ("fake1", 96)]
        .map(|(name, mib)| host.add_disk(name, name, Geometry { size: mib * MIB, ..geometry() }));
    let mut node = started(&host, layout);
    node.passes().expect("claims");
    (host, disks, node)
}

pub fn started(host: &Arc<FakeHost>, layout: &Layout) -> Node {
    Node::start(host, vec![rule(layout, ErasePolicy::Discard)], Duration::ZERO).expect("starts")
}

/// Adds a partition as the kernel shows one, of 16 MiB on a disk.
pub fn partition(host: &FakeHost, disk: &str, guid: &str) -> String {
    let extent = Extent { start: MIB, end: 17 * MIB };
    let whole = host.scan().expect("a scan").into_iter().find(|raw| raw.name == disk).expect("it is there");
    host.open(&whole, Access::ReadOnly).expect("opens").map(1, extent).expect("mapped");
    let name = format!("{disk}p1");
    host.add_disk(&name, "", Geometry { size: extent.len(), ..geometry() });
    let own = Partition {
        disk: disk.into(),
        number: 1,
        start: extent.start,
        part_uuid: Some(guid.to_owned()),
        part_label: None,
    };
    host.edit(&name, |raw| raw.kind = DeviceKind::Partition(own));
    host.edit(disk, |raw| raw.partitions = vec![name.as_str().into()]);
    name
}

/// What mkfs does, an admin's or ours.
pub fn mkfs(host: &FakeHost, uuid: Uuid) {
    host.filesystems().make(FsKind::Ext4, Path::new("/dev/fake0"), uuid).expect("made");
}
