//! Volumes that are folders of one filesystem, on a kernel that has quota for XFS: each is kept within its size, and
//! the others write on.

use localpool::rpc::proto::volume_usage::Unit;
use localpool_testing::MIB;
use tonic::{Code, Status};

use crate::bench::Bench;
use crate::client::usage;
use crate::csi::{Use, target};
use crate::disks::{Bus, Disk};
use crate::hotplug::await_ours;
use crate::report::Report;

/// The disk, its set and its class.
const NAME: &str = "folders";
/// Volumes that are there in each check: one is filled, and the other one is its neighbour.
const FULL: &str = "folder-full";
const BESIDE: &str = "folder-beside";
/// In MiB.
const SIZE: u64 = 64;
/// It is gone after a power cut.
const MARK: &str = "/run/folders-were-checked";

type Look = fn(&mut Bench, &str, &str);

const CHECKS: [(&str, Look); 6] = [
    ("of two folders on one filesystem the one that is full has no space, and its stats say so", fill_one),
    ("a folder in use grows, and shrinks as far as its files allow", resize),
    ("limits of folders hold after another start of the agent, whatever was done to them meanwhile", start_again),
    ("where somebody switches limits off nothing is promised on that filesystem until they are on", switch_off),
    ("a deleted folder is free space only when nobody has a file of it open", delete_open),
    ("a folder with thousands of files that is deleted keeps what is mounted in it", delete_many),
];

pub fn disk() -> Disk {
    Disk::new(NAME, Bus::Scsi).mib(1024)
}

pub fn check(bench: &mut Bench, report: &mut Report) {
    bench.guest.run(&format!("touch {MARK}"));
    for (name, look) in CHECKS {
        report.check(name, || {
            let [full, beside] = volumes(bench);
            look(bench, &full, &beside);
        });
    }
}

/// What [`delete_many`] has left, and then the end of both volumes.
pub fn check_after_power_cut(bench: &mut Bench, report: &mut Report) {
    let name = "limits of folders hold after a power cut, and deleted folders free all of their space";
    if report.wants(name) && bench.guest.run(&format!("! test -e {MARK} || echo there")).contains("there") {
        return report.skipped(name, "there was no power cut");
    }
    report.check("a removal that a power cut has stopped is brought to its end", || {
        await_ours(bench, NAME);
        bench.eventually("the folder of a deleted volume is gone", |bench| match trash(bench).as_str() {
            "0" => Ok(()),
            more => Err(format!("{more} are left")),
        });
    });
    report.check(name, || {
        let [full, beside] = volumes(bench);
        assert_full(bench, &full);
        write(bench, &beside, 8);
        let sizes = stats(bench, &full)[0] + stats(bench, &beside)[0];
        let before = bench.csi(async |csi| {
            let before = csi.capacity(NAME, Use::Xfs).await.unwrap();
            for id in [&full, &beside] {
                csi.unpublish(id).await.unwrap();
                csi.unstage(id).await.unwrap();
                csi.delete(id).await.unwrap();
            }
            before
        });
        let empty = before + i64::try_from(sizes).unwrap();
        bench.eventually("the space of both is free", |bench| {
            let now = bench.csi(async |csi| csi.capacity(NAME, Use::Xfs).await.unwrap());
            if now == empty && trash(bench) == "0" { Ok(()) } else { Err(format!("{now} of {empty}")) }
        });
    });
}

/// Both volumes, in use: made, or found.
fn volumes(bench: &mut Bench) -> [String; 2] {
    await_ours(bench, NAME);
    [FULL, BESIDE].map(|name| {
        bench.csi(async |csi| {
            // Another check may have left it smaller or larger.
            let made = match csi.create(name, NAME, SIZE, Use::Xfs).await {
                Err(status) if status.code() == Code::AlreadyExists => csi.create(name, NAME, 1, Use::Xfs).await,
                made => made,
            };
            let id = made.unwrap();
            csi.stage(&id, Use::Xfs).await.unwrap();
            csi.publish(&id, Use::Xfs).await.unwrap();
            id
        })
    })
}

/// Writes a file of that many MiB, which has room.
fn write(bench: &mut Bench, id: &str, mib: u64) {
    let file = target(id) + "/data";
    bench.guest.run(&format!("dd if=/dev/urandom of={file} bs=1M count={mib} conv=fsync status=none"));
}

/// Total, used and available, in bytes.
fn stats(bench: &mut Bench, id: &str) -> [u64; 3] {
    let stats = bench.csi(async |csi| csi.stats(id).await.unwrap());
    assert!(stats.volume_condition.as_ref().is_some_and(|condition| !condition.abnormal), "{stats:?}");
    let inodes = usage(&stats, Unit::Inodes).expect("inodes");
    assert!(inodes.used >= 1 && inodes.used < 100, "of the volume alone: {inodes:?}");
    let bytes = usage(&stats, Unit::Bytes).expect("bytes");
    [bytes.total, bytes.used, bytes.available].map(|bytes| u64::try_from(bytes).unwrap())
}

/// Fills a volume, which must end at its size.
fn assert_full(bench: &mut Bench, id: &str) {
    let [total, ..] = stats(bench, id);
    let (file, more) = (target(id) + "/fill", total / MIB + 16);
    let said = bench.guest.run(&format!(
        "if dd if=/dev/zero of={file} bs=1M count={more} conv=fsync 2>/run/said; then echo it took {more} MiB; fi
         cat /run/said; df --output=size --block-size=1 {} | tail -n 1",
        target(id)
    ));
    assert!(said.contains("No space left on device") && !said.contains("it took"), "{said}");
    assert_eq!(said.lines().last().map(str::trim), Some(total.to_string().as_str()), "what its pod sees: {said}");
    let [total, used, available] = stats(bench, id);
    assert!(used <= total && used + 2 * MIB > total && available < 2 * MIB, "{used} and {available} of {total}");
}

/// Where the pool has the filesystem mounted.
fn mounted(bench: &mut Bench) -> String {
    let find = format!("findmnt -rno TARGET,FSROOT -S $(disk {NAME} 2) | awk '$2 == \"/\" {{print $1}}' | head -n 1");
    let at = bench.guest.run(&find).trim().to_owned();
    assert!(!at.is_empty(), "the filesystem is not mounted");
    at
}

/// How many folders of deleted volumes are there still.
fn trash(bench: &mut Bench) -> String {
    let at = mounted(bench);
    bench.guest.run(&format!("ls {at}/trash | wc -l")).trim().to_owned()
}

fn fill_one(bench: &mut Bench, full: &str, beside: &str) {
    write(bench, beside, 8);
    let [_, before, _] = stats(bench, beside);
    assert_full(bench, full);
    write(bench, beside, 24);
    let [total, used, available] = stats(bench, beside);
    assert_eq!(total, SIZE * MIB);
    assert!(used >= before.min(8 * MIB) + 16 * MIB, "{used}, and {before} before");
    assert!(available > 0 && available + used <= total, "{available} and {used} of {total}");
}

fn resize(bench: &mut Bench, full: &str, beside: &str) {
    assert_full(bench, full);
    let expand = |bench: &mut Bench, mib, most| bench.csi(async |csi| csi.expand(full, mib, most).await);
    assert_eq!(expand(bench, SIZE + 32, 0).unwrap(), SIZE + 32);
    write(bench, full, 16);
    let refused: Status = expand(bench, 1, 48).expect_err("its files use more");
    assert!(refused.code() == Code::OutOfRange && refused.message().contains("cannot shrink to"), "{refused}");
    bench.guest.run(&format!("rm {}/fill; sync", target(full)));
    // The kernel frees what was removed a moment later.
    bench.eventually("it shrinks once its files use less", |bench| {
        let shrunk = expand(bench, 1, 48).map_err(|status| status.to_string())?;
        if shrunk == 48 { Ok(()) } else { Err(format!("{shrunk} MiB")) }
    });
    assert_full(bench, full);
    assert_eq!(stats(bench, full)[0], 48 * MIB);
    write(bench, beside, 24);
}

fn start_again(bench: &mut Bench, full: &str, beside: &str) {
    bench.stop_driver();
    let at = mounted(bench);
    bench.guest.run(&format!(
        "P=$(lsattr -pd {at}/volumes/{full} | awk '{{print $1}}'); [[ $P -gt 0 ]]
         xfs_quota -x -c \"limit -p bhard=0 $P\" {at}
         dd if=/dev/zero of={}/beyond bs=1M count={} conv=fsync status=none; rm {0}/beyond; sync",
        target(full),
        2 * SIZE
    ));
    bench.driver();
    await_ours(bench, NAME);
    bench.eventually("what was beyond its limit is gone", |bench| {
        let [total, used, _] = stats(bench, full);
        if used <= total { Ok(()) } else { Err(format!("{used} of {total}")) }
    });
    assert_full(bench, full);
    write(bench, beside, 24);
}

fn switch_off(bench: &mut Bench, _: &str, _: &str) {
    let at = mounted(bench);
    bench.guest.run(&format!("xfs_quota -x -c 'disable -p' {at}"));
    let create = |bench: &mut Bench| bench.csi(async |csi| csi.create("folder-late", NAME, 1, Use::Xfs).await);
    let refused = create(bench);
    // Also if this ends early.
    let said = bench.guest.run("/opt/localpool devices --node-name guest");
    bench.guest.run(&format!("xfs_quota -x -c 'enable -p' {at}"));
    let refused = refused.expect_err("nothing is promised").to_string();
    assert!(refused.contains("has its project quota switched off"), "{refused}; {said}");
    let late = bench.eventually("limits hold again", |bench| create(bench).map_err(|status| status.to_string()));
    bench.csi(async |csi| csi.delete(&late).await.unwrap());
}

fn capacity(bench: &mut Bench) -> i64 {
    bench.csi(async |csi| csi.capacity(NAME, Use::Xfs).await.unwrap())
}

/// A volume that a check has for itself, and the space beside it.
fn published(bench: &mut Bench, name: &str, mib: u64) -> (String, i64) {
    let id = bench.csi(async |csi| {
        let id = csi.create(name, NAME, mib, Use::Xfs).await.unwrap();
        csi.stage(&id, Use::Xfs).await.unwrap();
        csi.publish(&id, Use::Xfs).await.unwrap();
        id
    });
    (id, capacity(bench))
}

fn delete(bench: &mut Bench, id: &str) {
    put_away(bench, id);
    bench.csi(async |csi| csi.delete(id).await.unwrap());
}

fn put_away(bench: &mut Bench, id: &str) {
    bench.csi(async |csi| {
        csi.unpublish(id).await.unwrap();
        csi.unstage(id).await.unwrap();
    });
}

/// Waits until the agent says why something is not removed.
fn await_reason(bench: &mut Bench, why: &str) {
    bench.eventually("the agent says what is not removed, and why", |bench| {
        let said = bench.guest.run("/opt/localpool devices --node-name guest -o wide");
        if said.contains("could not be removed") && said.contains(why) { Ok(()) } else { Err(said) }
    });
}

fn delete_open(bench: &mut Bench, _: &str, _: &str) {
    let (id, beside) = published(bench, "folder-open", 16);
    write(bench, &id, 8);
    let (at, staging) = (target(&id), crate::csi::staging(&id));
    // As a process that kept the volume when its pod ended.
    let process = bench.guest.run(&format!(
        "( exec 3<{at}/data; exec sleep 100000 ) </dev/null >/dev/null 2>&1 & echo $!; umount -l {at}; umount -l {staging}"
    ));
    delete(bench, &id);
    await_reason(bench, "are open still");
    assert_eq!((capacity(bench), trash(bench).as_str()), (beside, "1"), "its space is nobody's");
    bench.guest.run(&format!("kill {}", process.trim()));
    let free = beside + i64::try_from(16 * MIB).unwrap();
    bench.eventually("the space is free", |bench| match (capacity(bench), trash(bench)) {
        (now, left) if now == free && left == "0" => Ok(()),
        (now, left) => Err(format!("{now} of {free}, {left} are left")),
    });
}

/// Leaves it to the power cut.
fn delete_many(bench: &mut Bench, full: &str, beside: &str) {
    let (id, there) = published(bench, "folder-many", 64);
    let at = target(&id);
    bench.guest.run(&format!(
        "mkdir -p {at}/kept/in; cd {at}; seq 5000 | xargs touch; mkdir d; cd d; seq 5000 | xargs touch; sync"
    ));
    put_away(bench, &id);
    // While it is published, the mount would be below its target as well, and hold that.
    bench.guest.run(&format!(
        "P=$(findmnt -rno TARGET,FSROOT -S $(disk {NAME} 2) | awk '$2 == \"/\" {{print $1}}' | head -n 1)
         mount -t tmpfs none $P/volumes/{id}/kept/in; echo of-somebody > $P/volumes/{id}/kept/in/file"
    ));
    bench.csi(async |csi| csi.delete(&id).await.unwrap());
    // Others are served meanwhile.
    write(bench, beside, 8);
    assert!(stats(bench, full)[0] > 0);
    await_reason(bench, "something is mounted there");
    let pool = mounted(bench);
    let left = bench.guest.run(&format!("cd {pool}/trash/*; find . -mount | sort | tr '\n' ' '; cat kept/in/file"));
    assert_eq!(left.trim(), ". ./kept ./kept/in of-somebody", "all else is gone");
    assert_eq!(capacity(bench), there);
}
