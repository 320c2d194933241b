//! Disks of the pool with damage: sectors that cannot be read, partitions that others use, and what other programs
//! wrote.

mod in_use;
mod sectors;
mod workers;
mod written_over;

use std::sync::Arc;

use localpool::host::fake::{FakeDisk, FakeHost, Platter};
use localpool::host::{FsKind, Geometry};
use localpool::pool::{VolumeView, WantedUsage};

use crate::node::{BLOCK, MIB, geometry, id, request, start};

/// Two volumes on a disk at rest; the disk, and how the volumes are reported.
pub fn at_rest(sector: u32) -> (Arc<FakeHost>, Arc<Platter>, Vec<VolumeView>) {
    let host = Arc::new(FakeHost::default());
    let disk = host.add_disk("fake0", "SERIAL-1", Geometry { sector, ..geometry() });
    let mut node = start(&host);
    node.passes().expect("claims");
    let ext4 = WantedUsage::Mount(Some(FsKind::Ext4));
    node.pool.create(&request("fs", ext4, 16 * MIB)).expect("room");
    node.pool.mark_formatted(id("fs")).expect("written");
    node.pool.create(&request("raw", BLOCK, MIB)).expect("room");
    node.pool.work_until_idle().expect("writes the older label copy, too");
    (host, disk, node.pool.volumes())
}

/// The disk as seen by another node that shares it.
pub fn shared(disk: &Arc<Platter>) -> FakeDisk {
    FakeDisk { platter: Arc::clone(disk), name: "fake0".to_owned() }
}
