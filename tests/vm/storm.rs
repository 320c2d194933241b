//! Many creates and deletes at once while udev is made to read the disk all the time.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use tonic::{Code, Status};

use crate::bench::Bench;
use crate::csi::Use;
use crate::disks::{Bus, Disk};
use crate::guest::LIMIT;
use crate::hotplug::await_ours;
use crate::report::Report;

const NAME: &str = "storm";
/// Volumes that stay all the time, and volumes that are made at once, every other of which is deleted again.
const STANDING: usize = 20;
const AT_ONCE: usize = 100;
const MIB: u64 = 16;
/// udev holds the disk's lock most of the time, and each table write waits for it.
const TIMEOUT: Duration = Duration::from_secs(900);

pub fn disk() -> Disk {
    Disk::new(NAME, Bus::Scsi).mib(4096)
}

pub fn check(bench: &mut Bench, report: &mut Report) {
    let name = "100 creates and deletes at once under `udevadm trigger`: no partition vanishes, by-partuuid is right";
    report.check(name, || storm(bench));
    // Also if it ended early.
    bench.guest.run("touch /run/storm-over; kill $(cat /run/storm-monitor) 2>/dev/null || true");
}

fn storm(bench: &mut Bench) {
    await_ours(bench, NAME);
    let standing = bench.csi(async |csi| {
        let mut ids = Vec::new();
        for number in 0..STANDING {
            ids.push(csi.create(&format!("standing-{number}"), NAME, MIB, Use::Block).await.unwrap());
        }
        ids
    });
    let parts: BTreeSet<String> = partitions(bench, &standing).into_iter().collect();
    // The kernel reports each partition that goes away. A process that closes a disk after writing makes udev read its
    // table again. None of this is a unit of systemd, which is as busy with the events as udev and may answer only
    // after minutes.
    bench.guest.run(
        "D=$(disk storm); S=/sys/block/${D#/dev/}; rm -f /run/storm-*
         setsid udevadm monitor --kernel --subsystem-match=block >/run/storm-events 2>&1 &
         echo $! >/run/storm-monitor
         setsid bash -c \"until [[ -e /run/storm-over ]]; do : 1<>$D; udevadm trigger --action=change $S $S/${S##*/}*; udevadm settle; sleep 0.5; done; touch /run/storm-ended\" >/dev/null 2>&1 &
         until grep -q KERNEL /run/storm-events; do sleep 0.1; done",
    );
    let (kept, deleted) = bench.csi(async |csi| {
        let one = async |number: usize| {
            let mut csi = csi.clone();
            let name = format!("storm-{number}");
            let id = until_done(async || csi.create(&name, NAME, MIB, Use::Block).await).await;
            if number.is_multiple_of(2) {
                return (Some(id), None);
            }
            until_done(async || csi.delete(&id).await).await;
            (None, Some(id))
        };
        let all = futures::future::join_all((0..AT_ONCE).map(one)).await;
        let (kept, deleted): (Vec<_>, Vec<_>) = all.into_iter().unzip();
        let ids = |all: Vec<Option<String>>| all.into_iter().flatten().collect::<Vec<String>>();
        (ids(kept), ids(deleted))
    });
    bench.guest.run("touch /run/storm-over");
    bench.eventually("udev has done what it was asked for", |bench| {
        let settled = bench.guest.try_run("test -e /run/storm-ended; udevadm settle --timeout=60", LIMIT);
        settled.map(drop).map_err(|error| error.to_string())
    });
    bench
        .guest
        .run("kill $(cat /run/storm-monitor); while kill -0 $(cat /run/storm-monitor); do sleep 0.1; done 2>/dev/null");
    let events = bench.guest.run("grep remove /run/storm-events || true");
    let removed: Vec<&str> =
        events.lines().filter_map(|line| line.split_whitespace().nth(2)?.rsplit('/').next()).collect();
    let vanished: Vec<&&str> = removed.iter().filter(|name| parts.contains(**name)).collect();
    assert!(vanished.is_empty(), "partitions of volumes that nobody touched vanished: {vanished:?}");
    assert_eq!(removed.len(), deleted.len(), "as many partitions went as volumes were deleted: {events}");
    let after: BTreeSet<String> = partitions(bench, &standing).into_iter().collect();
    assert_eq!(after, parts, "the volumes that nobody touched have the partitions that they had");
    let all: Vec<String> = standing.iter().chain(&kept).cloned().collect();
    let nodes: BTreeSet<String> = partitions(bench, &all).into_iter().collect();
    assert_eq!(nodes.len(), all.len(), "each volume has a partition of its own");
    let listed = bench.csi(async |csi| csi.list().await);
    assert!(all.iter().all(|id| listed.contains_key(id)), "{listed:?}");
    let links = bench.guest.run("ls /dev/disk/by-partuuid");
    let stale: Vec<&String> = deleted.iter().filter(|id| links.contains(id.as_str())).collect();
    assert!(stale.is_empty(), "links of deleted volumes are left: {stale:?}");
    bench.guest.run("sgdisk --verify $(disk storm) | grep -q 'No problems found'");
    bench.csi(async |csi| {
        for id in &all {
            csi.delete(id).await.unwrap();
        }
    });
}

/// A call that is repeated, as an orchestrator does it, if it timed out or was asked to retry.
pub async fn until_done<T>(mut call: impl AsyncFnMut() -> Result<T, Status>) -> T {
    let until = Instant::now() + TIMEOUT;
    loop {
        match call().await {
            Ok(done) => return done,
            Err(status) if !matches!(status.code(), Code::Aborted | Code::Cancelled | Code::DeadlineExceeded) => {
                panic!("{status:?}")
            }
            Err(status) if Instant::now() > until => panic!("not within {TIMEOUT:?}: {status:?}"),
            Err(_) => tokio::time::sleep(Duration::from_secs(1)).await,
        }
    }
}

/// The kernel's names of the partitions of volumes: the targets of their links, if the devices there confirm it.
fn partitions(bench: &mut Bench, ids: &[String]) -> Vec<String> {
    let script: String = ids
        .iter()
        .map(|id| {
            format!(
                "N=$(readlink -e /dev/disk/by-partuuid/{id}); [[ $(blkid -p -o value -s PART_ENTRY_UUID $N) == {id} ]]; echo ${{N#/dev/}}\n"
            )
        })
        .collect();
    bench.guest.run(&format!("udevadm settle --timeout=60\n{script}")).lines().map(str::to_owned).collect()
}
