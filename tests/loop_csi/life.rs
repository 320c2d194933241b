//! The life of a volume, from CreateVolume to erased space, for each layout, use and sector size.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use localpool::rpc::proto::volume_usage::Unit;
use localpool_testing::{MIB, run, text};
use nix::sys::stat::{major, minor};
use tonic::Code;

use crate::client::{Client, Made, assert_refused, create, of_kind, usage};
use crate::content::{first_dirty, pattern, write_synced};
use crate::driver::{CARVED, Driver, Start, WHOLE, set};
use crate::lab::{Disk, Lab, mount_table};

const USES: [Option<&str>; 4] = [None, Some("ext4"), Some("xfs"), Some("btrfs")];
const WRITTEN: usize = 1 << 20;
/// More than the least that xfs needs.
const ASKED: u64 = 310 * MIB;
const MORE: u64 = 64 * MIB;

/// How a disk is cut, and what it can then offer for raw block volumes: in all, and in one piece.
struct Case {
    layout: &'static str,
    disk: u64,
    gives: fn(disk: u64, all: u64, largest: u64) -> bool,
}

const SLOTS_BY_SIZE: Case = Case {
    layout: "partitioningSpec: {partSize: 320Mi}",
    disk: 1000 * MIB,
    // Three whole slots, and the rest is one too.
    gives: |disk, all, largest| largest == 320 * MIB && all > 3 * 320 * MIB && all > disk - 5 * MIB,
};
const SLOTS_BY_COUNT: Case = Case {
    layout: "partitioningSpec: {count: 2}",
    disk: 700 * MIB,
    gives: |disk, all, largest| all == 2 * largest && all > disk - 6 * MIB,
};
const SLOTS_BY_BOTH: Case = Case {
    layout: "partitioningSpec: {partSize: 320Mi, count: 2}",
    disk: 1000 * MIB,
    gives: |_, all, largest| largest == 320 * MIB && all == 2 * 320 * MIB,
};
const WHOLE_DISK: Case =
    Case { layout: WHOLE, disk: 400 * MIB, gives: |disk, all, largest| all == largest && all > disk - 3 * MIB };
/// The bare device: no label, no table.
const RAW_DEVICE: Case =
    Case { layout: "layout: RawDevice", disk: 400 * MIB, gives: |disk, all, largest| all == disk && largest == disk };
const CARVED_DISK: Case =
    Case { layout: CARVED, disk: 600 * MIB, gives: |disk, all, largest| all == largest && all > disk - 4 * MIB };

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn loop_a_volume_lives_and_leaves_zeros_on_a_whole_disk() {
    live_on(&WHOLE_DISK, 512).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn loop_a_volume_lives_and_leaves_zeros_on_a_whole_disk_of_4096_byte_sectors() {
    live_on(&WHOLE_DISK, 4096).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn loop_a_volume_lives_and_leaves_zeros_on_a_bare_device() {
    live_on(&RAW_DEVICE, 512).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn loop_a_volume_lives_and_leaves_zeros_on_a_bare_device_of_4096_byte_sectors() {
    live_on(&RAW_DEVICE, 4096).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn loop_a_volume_lives_and_leaves_zeros_in_a_slot_by_size() {
    live_on(&SLOTS_BY_SIZE, 512).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn loop_a_volume_lives_and_leaves_zeros_in_a_slot_by_size_on_4096_byte_sectors() {
    live_on(&SLOTS_BY_SIZE, 4096).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn loop_a_volume_lives_and_leaves_zeros_in_a_slot_by_count() {
    live_on(&SLOTS_BY_COUNT, 512).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn loop_a_volume_lives_and_leaves_zeros_in_a_slot_by_count_on_4096_byte_sectors() {
    live_on(&SLOTS_BY_COUNT, 4096).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn loop_a_volume_lives_and_leaves_zeros_in_a_slot_by_size_and_count() {
    live_on(&SLOTS_BY_BOTH, 512).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn loop_a_volume_lives_and_leaves_zeros_in_a_slot_by_size_and_count_on_4096_byte_sectors() {
    live_on(&SLOTS_BY_BOTH, 4096).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn loop_a_volume_lives_grows_and_leaves_zeros_on_a_carved_disk() {
    live_on(&CARVED_DISK, 512).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn loop_a_volume_lives_grows_and_leaves_zeros_on_a_carved_disk_of_4096_byte_sectors() {
    live_on(&CARVED_DISK, 4096).await;
}

async fn live_on(case: &Case, sector: u32) {
    let lab = if case.layout == RAW_DEVICE.layout { crate::lab!(alone) } else { crate::lab!() };
    let disk = lab.disk_of("pool", case.disk, sector);
    let start = Start::new(&lab, &set(&lab, "fast", "pool.img", case.layout));
    let (mut driver, mut client) = start.ready().await;
    let (all, largest) = client.capacity("fast", &of_kind(None)).await;
    assert!((case.gives)(case.disk, all, largest), "{} gives {all} in all and {largest} in one", case.layout);
    for fs in USES {
        (driver, client) = Life { lab: &lab, disk: &disk, fs }.live(driver, client, case.layout == CARVED).await;
    }
    assert_eq!(lab.mounts(), [] as [PathBuf; 0]);
    driver.stop();
    match case.layout == RAW_DEVICE.layout {
        true => assert!(disk.is_blank(), "something is left on a bare device"),
        false => disk.assert_tables_verify(),
    }
}

struct Life<'a> {
    lab: &'a Lab,
    disk: &'a Disk,
    fs: Option<&'static str>,
}

impl Life<'_> {
    fn staging(&self) -> PathBuf {
        self.lab.path("staging")
    }

    fn target(&self) -> PathBuf {
        self.lab.path("pods/a/volume")
    }

    async fn live(self, driver: Driver, mut client: Client, grows: bool) -> (Driver, Client) {
        let capability = of_kind(self.fs);
        let before = client.capacity("fast", &capability).await;
        let made = client.create(create(&self.lab.named("pvc-1"), "fast", ASKED, &capability)).await;
        assert!(made.size >= ASKED, "{made:?}");
        assert_eq!(client.ids().await, std::slice::from_ref(&made.id));
        client.stage(&made.id, &self.staging(), &capability).await.unwrap();
        client.publish(&made.id, &self.staging(), &self.target(), &capability).await.unwrap();
        let extent = self.extent();
        self.write(&made);
        self.assert_measured(&mut client, &made).await;

        let start = driver.start.clone();
        driver.kill();
        self.assert_reads_back(&made);
        let (driver, mut client) = start.ready().await;
        client.stage(&made.id, &self.staging(), &capability).await.unwrap();
        client.publish(&made.id, &self.staging(), &self.target(), &capability).await.unwrap();
        self.assert_reads_back(&made);

        let size = match grows {
            true => self.grow(&mut client, &made).await,
            false => self.grow_up_to_its_size(&mut client, &made).await,
        };
        self.assert_reads_back(&made);
        let whole = (extent.0, extent.0 + size);
        assert_eq!(self.extent(), whole, "the partition is as large as it was said");
        assert!(first_dirty(&self.disk.image, whole.0, whole.1).is_some(), "there is data to erase");

        client.unpublish(&made.id, &self.target()).await.unwrap();
        client.unstage(&made.id, &self.staging()).await.unwrap();
        assert!(!self.target().exists(), "a target is removed");
        client.delete(&made.id).await.unwrap();
        assert_eq!(client.ids().await, [] as [String; 0]);
        client.await_capacity("fast", &capability, before).await;
        assert_eq!(first_dirty(&self.disk.image, whole.0, whole.1), None, "{:?} was not erased", self.fs);
        (driver, client)
    }

    /// Where on the disk the published volume is, from the kernel.
    fn extent(&self) -> (u64, u64) {
        let node = match self.fs {
            None => self.target(),
            Some(_) => {
                let table = mount_table();
                table.iter().find(|mount| mount.target == self.target()).expect("it is mounted").source.clone()
            }
        };
        let device = fs::metadata(node).unwrap().rdev();
        let sysfs = format!("/sys/dev/block/{}:{}", major(device), minor(device));
        // A whole device has a size, and no start.
        let bytes = |name: &str| {
            let sectors = fs::read_to_string(format!("{sysfs}/{name}")).unwrap_or_default();
            sectors.trim().parse::<u64>().unwrap_or(0) * 512
        };
        (bytes("start"), bytes("start") + bytes("size"))
    }

    /// Where a raw block volume gets its pattern: at both ends and in the middle.
    fn places(&self, made: &Made) -> [u64; 3] {
        let len = WRITTEN as u64;
        [0, made.size / 2 / MIB * MIB, made.size - len]
    }

    fn write(&self, made: &Made) {
        if self.fs.is_some() {
            write_synced(&self.target().join("data"), &pattern(7, WRITTEN)).unwrap();
            // btrfs updates the used space only when a transaction ends.
            run("sync", &["--file-system", text(&self.target())]);
            return;
        }
        let device = OpenOptions::new().write(true).open(self.target()).unwrap();
        for at in self.places(made) {
            device.write_all_at(&pattern(at, WRITTEN), at).unwrap();
        }
        device.sync_all().unwrap();
    }

    fn assert_reads_back(&self, made: &Made) {
        if self.fs.is_some() {
            let read = fs::read(self.target().join("data")).unwrap();
            return assert!(read == pattern(7, WRITTEN), "{:?} does not read back", self.fs);
        }
        let device = File::open(self.target()).unwrap();
        for at in self.places(made) {
            let mut read = vec![0; WRITTEN];
            device.read_exact_at(&mut read, at).unwrap();
            assert!(read == pattern(at, WRITTEN), "the block volume does not read back at {at}");
        }
    }

    async fn assert_measured(&self, client: &mut Client, made: &Made) {
        let size = i64::try_from(made.size).unwrap();
        for path in [self.target(), self.staging()] {
            if self.fs.is_none() && path == self.staging() {
                continue;
            }
            let stats = client.stats(&made.id, &path).await.unwrap();
            assert!(!stats.volume_condition.as_ref().unwrap().abnormal, "{stats:?}");
            let bytes = usage(&stats, Unit::Bytes).expect("bytes are always reported");
            let Some(fs) = self.fs else {
                assert_eq!((bytes.total, usage(&stats, Unit::Inodes)), (size, None), "{stats:?}");
                continue;
            };
            let written = i64::try_from(WRITTEN).unwrap();
            assert!(bytes.used >= written && bytes.available > 0 && bytes.total <= size, "{fs}: {stats:?}");
            assert!(bytes.total > size / 2 && bytes.used + bytes.available <= bytes.total, "{fs}: {stats:?}");
            let inodes = usage(&stats, Unit::Inodes).expect("inodes of a filesystem");
            // btrfs has no fixed number of inodes, and reports 0.
            let used = if fs == "btrfs" { inodes.total == 0 } else { inodes.used > 0 && inodes.available > 0 };
            assert!(used && inodes.used + inodes.available == inodes.total, "{fs}: {stats:?}");
        }
    }

    async fn filesystem_bytes(&self, client: &mut Client, made: &Made) -> u64 {
        let stats = client.stats(&made.id, &self.target()).await.unwrap();
        u64::try_from(usage(&stats, Unit::Bytes).unwrap().total).unwrap()
    }

    /// Grows it while it is in use; returns the new size.
    async fn grow(&self, client: &mut Client, made: &Made) -> u64 {
        let wanted = made.size + MORE;
        let was = self.filesystem_bytes(client, made).await;
        for _ in 0..2 {
            assert_eq!(client.expand(&made.id, wanted, 0).await.unwrap(), (wanted, self.fs.is_some()));
        }
        match client.node_expand(&made.id, &self.target(), wanted).await {
            Ok(size) => assert_eq!(size, wanted),
            Err(refused) => self.grow_at_stage(client, made, refused).await,
        }
        let is = self.filesystem_bytes(client, made).await;
        assert!(is >= was + MORE * 9 / 10 && is <= wanted, "{:?} had {was} bytes, and has {is}", self.fs);
        assert_eq!(client.node_expand(&made.id, &self.target(), wanted).await.unwrap(), wanted, "once more");

        let refused = client.expand(&made.id, self.disk.size(), 0).await;
        let growable = client.capacity("fast", &of_kind(None)).await.1 + wanted;
        assert_refused(refused, Code::OutOfRange, &[&growable.to_string(), &self.disk.size().to_string()]);
        wanted
    }

    /// The kernel only lets a process with CAP_SYS_RESOURCE grow a mounted ext4, and root here may lack it: then the
    /// driver says so, and the filesystem grows when it is staged again.
    async fn grow_at_stage(&self, client: &mut Client, made: &Made, refused: tonic::Status) {
        assert_eq!(self.fs, Some("ext4"), "{refused}");
        assert_refused(Err::<(), _>(refused), Code::FailedPrecondition, &["CAP_SYS_RESOURCE"]);
        let capability = of_kind(self.fs);
        client.unpublish(&made.id, &self.target()).await.unwrap();
        client.unstage(&made.id, &self.staging()).await.unwrap();
        client.stage(&made.id, &self.staging(), &capability).await.unwrap();
        client.publish(&made.id, &self.staging(), &self.target(), &capability).await.unwrap();
    }

    /// Layouts of fixed places: for the size that is there already, there is nothing to do, and there is no more.
    async fn grow_up_to_its_size(&self, client: &mut Client, made: &Made) -> u64 {
        for wanted in [made.size, made.size - MIB] {
            assert_eq!(client.expand(&made.id, wanted, 0).await.unwrap().0, made.size);
            assert_eq!(client.node_expand(&made.id, &self.target(), wanted).await.unwrap(), made.size);
        }
        let refused = client.expand(&made.id, made.size + 1, 0).await;
        assert_refused(refused, Code::OutOfRange, &[&format!("grow to {} bytes", made.size)]);
        let below = client.expand(&made.id, MIB, made.size - 1).await;
        assert_refused(below, Code::OutOfRange, &[&made.size.to_string()]);
        made.size
    }
}

/// What a published volume shows is on the disk, not only in memory.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn loop_what_was_synced_to_a_block_volume_is_on_the_disk_at_the_place_of_its_partition() {
    let lab = crate::lab!();
    let disk = lab.disk("pool", 64 * MIB);
    let (_driver, mut client) = Start::new(&lab, &set(&lab, "fast", "pool.img", CARVED)).ready().await;
    let made = client.create(create(&lab.named("pvc-1"), "fast", 16 * MIB, &of_kind(None))).await;
    let life = Life { lab: &lab, disk: &disk, fs: None };
    client.publish(&made.id, &life.staging(), &life.target(), &of_kind(None)).await.unwrap();
    life.write(&made);
    let (start, end) = life.extent();
    assert_eq!(end - start, made.size);
    assert!(disk.read(start, WRITTEN) == pattern(0, WRITTEN));
    assert!(Path::new(&life.target()).exists());
}

/// A line that cannot be logged would make the logging thread panic: the agent itself, or an answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn loop_a_driver_whose_log_is_on_a_full_disk_serves_on() {
    let lab = crate::lab!();
    let disk = lab.disk("pool", 64 * MIB);
    let start = Start::new(&lab, &set(&lab, "fast", "pool.img", CARVED)).logging_to("/dev/full");
    let (driver, mut client) = start.ready().await;
    driver.await_verdict(&disk.node, "Ours", "in pool");
    let made = client.create(create(&lab.named("pvc-1"), "fast", 16 * MIB, &of_kind(None))).await;
    client.delete(&made.id).await.unwrap();
    driver.stop();
}
