//! Bytes, zeros, locks and identity of an open disk.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use localpool::host::{Access, BlockDevice, Disk, Extent, HostError, Mapping, PartitionMap, RawDisk, RealDisk};
use localpool_testing::MIB;

use crate::fixture::{Loop, SECTORS, extent};
use crate::needs_root;

fn pattern(len: usize, salt: usize) -> Vec<u8> {
    (0..len).map(|at| u8::try_from((at * 31 + at / 251 + salt) % 256).unwrap()).collect()
}

fn read(disk: &RealDisk, offset: u64, len: usize) -> Vec<u8> {
    let mut buf = vec![0xee; len];
    disk.read_at(offset, &mut buf).unwrap();
    buf
}

#[test]
fn loop_what_is_written_is_read_back_at_any_offset_and_length() {
    needs_root!();
    for sector in SECTORS {
        let disk = Loop::new(16 * MIB, sector);
        let open = disk.own();
        assert_eq!((open.geometry().size, open.geometry().sector), (16 * MIB, sector));
        let data = pattern(3 * 1024 * 1024 + 8192, 7);
        open.write_at(MIB, &data).unwrap();
        open.sync().unwrap();
        for (from, len) in [(0, data.len()), (1, 1), (511, 2), (4095, 8194), (1024 * 1024 - 3, 1024 * 1024 + 7), (9, 0)]
        {
            assert_eq!(read(&open, MIB + from as u64, len), data[from..from + len], "{len} bytes from {from}");
        }
        // On the medium, not only in a cache: it is in the image.
        let mut image = vec![0; data.len()];
        File::open(&disk.image).unwrap().read_exact_at(&mut image, MIB).unwrap();
        assert!(image == data);
        assert_eq!(read(&open, 16 * MIB - 5, 5), [0; 5]);
    }
}

#[test]
fn loop_a_write_of_less_than_whole_sectors_or_beyond_the_end_is_refused_and_changes_nothing() {
    needs_root!();
    for sector in SECTORS {
        let disk = Loop::new(4 * MIB, sector);
        let open = disk.own();
        let step = u64::from(sector);
        let whole = pattern(sector as usize, 1);
        for (offset, data) in [
            (0, &whole[1..]),
            (step / 2, &whole[..]),
            (4 * MIB, &whole[..]),
            (4 * MIB - step, &[whole.clone(), whole.clone()].concat()[..]),
            (u64::MAX - 3, &whole[..]),
        ] {
            let error = open.write_at(offset, data).unwrap_err();
            assert_eq!(error.source.kind(), std::io::ErrorKind::InvalidInput, "{error}: {}", error.source);
        }
        assert!(open.zero(Extent { start: 1, end: step }).is_err());
        assert!(open.zero(Extent { start: 4 * MIB, end: 4 * MIB + step }).is_err());
        assert!(open.discard(Extent { start: 0, end: step + 1 }).is_err());
        let mut beyond = [0; 2];
        assert!(open.read_at(4 * MIB - 1, &mut beyond).is_err());
        assert!(read(&open, 0, 4 << 20).iter().all(|byte| *byte == 0));
    }
}

#[test]
fn loop_a_zeroed_range_reads_as_zeros_and_its_neighbours_stay() {
    needs_root!();
    for sector in SECTORS {
        let disk = Loop::new(8 * MIB, sector);
        let open = disk.own();
        let data = pattern(8 << 20, 3);
        open.write_at(0, &data).unwrap();
        let range = Extent { start: MIB - u64::from(sector), end: 5 * MIB + u64::from(sector) };
        open.zero(range).unwrap();
        open.discard(range).unwrap();
        open.sync().unwrap();
        let (start, end) = (usize::try_from(range.start).unwrap(), usize::try_from(range.end).unwrap());
        let now = read(&open, 0, 8 << 20);
        assert!(now[start..end].iter().all(|byte| *byte == 0));
        assert!(now[..start] == data[..start] && now[end..] == data[end..]);
    }
}

#[test]
fn loop_more_than_one_gibibyte_is_zeroed_to_its_end() {
    needs_root!();
    let disk = Loop::new(2200 * MIB, 512);
    let open = disk.own();
    let marks = [0, 1023 * MIB, 1024 * MIB, 2048 * MIB, 2199 * MIB];
    for at in marks {
        open.write_at(at, &pattern(4096, 1)).unwrap();
    }
    open.zero(extent(0, 2199)).unwrap();
    for at in &marks[..4] {
        assert!(read(&open, *at, 4096).iter().all(|byte| *byte == 0), "at {at}");
    }
    assert_eq!(read(&open, 2199 * MIB, 4096), pattern(4096, 1));
}

#[test]
fn loop_data_that_a_partition_still_had_in_its_cache_never_comes_back_over_the_zeros() {
    needs_root!();
    let disk = Loop::new(64 * MIB, 512);
    let open = disk.own();
    open.map(2, extent(4, 36)).unwrap();
    let node = open.node(2);
    let mut tenant = OpenOptions::new().write(true).open(&node).unwrap();
    tenant.write_all(&pattern(16 << 20, 9)).unwrap();
    drop(tenant);
    // A reader that stays open also keeps the pages of the whole disk.
    let mut reader = File::open(&disk.node).unwrap();
    reader.read_exact(&mut vec![0; 36 << 20]).unwrap();

    open.unmap(2).unwrap();
    open.zero(extent(4, 36)).unwrap();
    open.sync().unwrap();
    nix::unistd::sync();
    assert!(read(&open, 4 * MIB, 32 << 20).iter().all(|byte| *byte == 0));
    let mut image = vec![0; 32 << 20];
    File::open(&disk.image).unwrap().read_exact_at(&mut image, 4 * MIB).unwrap();
    assert!(image.iter().all(|byte| *byte == 0));
}

#[test]
fn loop_a_disk_opened_to_look_is_not_changed() {
    needs_root!();
    let disk = Loop::new(8 * MIB, 512);
    let reader = RealDisk::open(&disk.raw(), Access::ReadOnly).unwrap();
    assert!(reader.write_at(0, &pattern(512, 1)).is_err());
    assert!(reader.zero(extent(0, 1)).is_err());
    for changed in [reader.map(1, extent(1, 2)), reader.unmap(1), reader.resize(1, extent(1, 3))] {
        assert!(matches!(changed, Err(HostError::Unsupported { .. })), "{changed:?}");
    }
    assert_eq!(reader.mapped().unwrap(), []);
    assert_eq!(read(&reader, 0, 512), [0; 512]);
}

#[test]
fn loop_a_disk_that_took_the_number_or_the_node_of_another_is_never_opened() {
    needs_root!();
    let disk = Loop::aside(8 * MIB, 512, 231);
    let scanned = disk.raw();
    let refused = |raw: &RawDisk, access| match RealDisk::open(raw, access) {
        Err(HostError::Changed { why, .. }) => why,
        other => panic!("{other:?}"),
    };
    for access in [Access::ReadOnly, Access::Own, Access::Claim] {
        let mut other = scanned.clone();
        other.devno.minor += 1;
        assert!(refused(&other, access).contains("it is device"));
        let mut reused = scanned.clone();
        reused.diskseq = scanned.diskseq.map(|sequence| sequence - 1);
        assert!(refused(&reused, access).contains("another disk has taken its number"));
        let mut gone = scanned.clone();
        gone.path = disk.file("nothing");
        assert_eq!(refused(&gone, access), "the node is gone");
        let mut file = scanned.clone();
        file.path = disk.image.clone();
        assert_eq!(refused(&file, access), "it is not a block device");
    }
    // The kernel counts this itself: the same device with the same file, bound again.
    localpool_testing::run("losetup", &["--detach", disk.path()]);
    localpool_testing::run("losetup", &[disk.path(), disk.image.to_str().unwrap()]);
    assert!(refused(&scanned, Access::Own).contains("another disk has taken its number"));
}

#[test]
fn loop_a_claim_needs_a_disk_that_nobody_holds_and_lets_nobody_hold_it() {
    needs_root!();
    let disk = Loop::new(8 * MIB, 512);
    let exclusive = || OpenOptions::new().read(true).custom_flags(nix::libc::O_EXCL).open(&disk.node);

    let theirs = exclusive().unwrap();
    assert!(matches!(RealDisk::open(&disk.raw(), Access::Claim), Err(HostError::Busy { .. })));
    // Our own disk is still opened: exclusiveness is asked for only once.
    drop(disk.own());
    drop(theirs);

    let locked = File::open(&disk.node).unwrap();
    locked.lock().unwrap();
    assert!(matches!(RealDisk::open(&disk.raw(), Access::Claim), Err(HostError::Busy { .. })));
    drop(locked);

    let claim = RealDisk::open(&disk.raw(), Access::Claim).unwrap();
    assert_eq!(exclusive().unwrap_err().raw_os_error(), Some(nix::libc::EBUSY));
    // The kernel lets nobody use a partition of a held disk, so the hold ends with the first one.
    claim.map(1, extent(1, 2)).unwrap();
    claim.prove_unused(1).unwrap();
    drop(claim);
    drop(exclusive().unwrap());
}

/// udev does that with each disk that somebody has written to, if nobody locks it at that moment.
#[test]
fn loop_nobody_can_drop_the_partitions_of_a_disk_that_waits_for_its_lock() {
    needs_root!();
    let disk = Loop::with_table(16 * MIB);
    let ours = disk.own();
    ours.map(3, extent(2, 4)).unwrap();
    let reader = File::open(&disk.node).unwrap();
    reader.lock_shared().unwrap();
    let node = ours.node(3);
    let is_open = || {
        let open = std::fs::read_dir("/proc/self/fd").unwrap();
        open.filter_map(|entry| std::fs::read_link(entry.unwrap().path()).ok()).any(|path| path == node)
    };
    assert!(!is_open());
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| ours.exclusive().map(drop));
        while !is_open() && !waiting.is_finished() {
            std::thread::yield_now();
        }
        for _ in 0..20 {
            // The kernel itself does not look at locks.
            let reread = Command::new("blockdev").args(["--rereadpt", disk.path()]).output().unwrap();
            assert!(!reread.status.success(), "the table was read again");
            assert_eq!(ours.mapped().unwrap(), [Mapping { number: 3, extent: extent(2, 4) }]);
        }
        reader.unlock().unwrap();
        waiting.join().unwrap().unwrap();
    });
    assert!(!is_open(), "it would keep the partition from being unmapped");
}

#[test]
fn loop_an_exclusive_lock_waits_for_others_names_them_and_is_shared_again_after() {
    needs_root!();
    let disk = Loop::new(8 * MIB, 512);
    let ours = disk.own().waiting_at_most(Duration::from_millis(150));
    assert!(File::open(&disk.node).unwrap().try_lock().is_err(), "an open disk has no lock");
    // A shared lock for life keeps out neither udev nor a second process of localpool.
    drop(disk.own());

    let mut tool = Command::new("flock")
        .args(["--shared", disk.path(), "-c", "echo locked; read line"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = [0; 7];
    tool.stdout.as_mut().unwrap().read_exact(&mut output).unwrap();
    let began = Instant::now();
    let Err(error) = ours.exclusive() else { panic!("the lock was given while a tool has it") };
    assert!(began.elapsed() < Duration::from_secs(20));
    let message = error.to_string();
    assert!(message.contains(disk.path()) && message.contains(&format!("pid {}", tool.id())), "{message}");
    drop(tool.stdin.take());
    tool.wait().unwrap();

    let other = File::open(&disk.node).unwrap();
    let guard = ours.exclusive().unwrap();
    assert!(other.try_lock_shared().is_err());
    drop(guard);
    other.try_lock_shared().unwrap();
    assert!(other.try_lock().is_err(), "the shared lock is gone");
}

#[test]
fn loop_a_device_that_ends_inside_a_sector_is_cut_to_whole_ones() {
    needs_root!();
    let disk = Loop::new(4 * MIB + 512, 4096);
    let kernel: u64 =
        fs::read_to_string(format!("/sys/class/block/{}/size", disk.name())).unwrap().trim().parse().unwrap();
    let open = disk.own();
    assert!(open.geometry().size <= kernel * 512);
    assert_eq!(open.geometry().size, 4 * MIB);
    open.write_at(4 * MIB - 4096, &pattern(4096, 1)).unwrap();
    assert_eq!(read(&open, 4 * MIB - 4096, 4096), pattern(4096, 1));
}
