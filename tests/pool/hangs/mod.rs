//! What hangs under an operation, on a fake machine: nothing else waits for it.

mod disks;
mod served;

use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use localpool::device::label::{ErasePolicy, Layout};
use localpool::host::Geometry;
use localpool::host::fake::{FakeHost, Platter};
use localpool::pool::{Change, Pool, PoolError};

use crate::node::{MIB, MOUNT, Node, id, request, rule};

/// Far longer than an answer takes on a busy machine; an operation that hangs takes for ever.
pub const AT_MOST: Duration = Duration::from_secs(60);

/// Two disks with a volume each: `small` on the disk that is chosen first, and `large` on the other one.
pub fn two_disks(layout: &Layout) -> (Arc<FakeHost>, [Arc<Platter>; 2], Node) {
    let host = Arc::new(FakeHost::default());
    let disk = |name, mib| host.add_disk(name, name, Geometry { size: mib * MIB, sector: 512, offloads_zeroes: true });
    let disks = [disk("fake0", 64), disk("fake1", 256)];
    let mut node = Node::start(&host, vec![rule(layout, ErasePolicy::Discard)], Duration::ZERO).expect("starts");
    node.passes().expect("claims");
    node.pool.create(&request("small", MOUNT, 16 * MIB)).expect("room");
    node.pool.create(&request("large", MOUNT, 100 * MIB)).expect("room");
    for (volume, disk) in [("small", "fake0"), ("large", "fake1")] {
        let node = node.pool.volume(id(volume)).expect("it was made").node;
        assert!(node.to_string_lossy().contains(disk), "{volume} is at {}", node.display());
    }
    (host, disks, node)
}

/// An operation that does not answer in time hangs.
pub fn answers<T: Send + 'static>(what: &str, pool: &Arc<Pool>, call: impl FnOnce(&Pool) -> T + Send + 'static) -> T {
    let (reply, answer) = mpsc::channel();
    let pool = Arc::clone(pool);
    thread::spawn(move || reply.send(call(&pool)));
    answer.recv_timeout(AT_MOST).unwrap_or_else(|_| panic!("{what} waits for a disk that it has nothing to do with"))
}

/// Begins to delete a volume on a disk that hangs.
pub fn delete_that_hangs(node: &Node, disk: &Platter, volume: &str) -> JoinHandle<Result<Change, PoolError>> {
    disk.set_hangs(true);
    let (pool, id) = (Arc::clone(&node.pool), id(volume));
    let deleting = thread::spawn(move || pool.delete(id));
    disk.until_somebody_waits();
    deleting
}
