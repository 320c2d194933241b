//! Disks of the pool that stop answering while the driver runs, as behind a stuck controller: everything that waits for
//! them waits in the kernel and cannot be killed, and every call about another disk is answered.

use std::time::Duration;

use tokio::task::JoinHandle;
use tonic::Status;

use crate::bench::{Bench, UNIT};
use crate::csi::{Csi, Use};
use crate::disks::{Bus, Disk};
use crate::hotplug::await_ours;
use crate::report::Report;
use crate::storm::until_done;
use crate::volumes::Volume;

/// A disk of the pool with a label, a bare device with a volume, and a bare device without one.
const STUCK: [&str; 3] = [LABELLED, "stuck-bare", "stuck-free"];
const LABELLED: &str = "stuck-labelled";
/// The set of both bare devices.
const BARE: &str = "stuck-bare";
/// Volumes that are requested from the stuck disks, with class and MiB: on the disk without one, and in the free space
/// of another.
const MADE: [(&str, &str, u64); 2] = [("stuck-made", BARE, 900), ("stuck-more", LABELLED, 32)];
/// A disk that answers; its set has the same name.
const WELL: &str = "hot-nvme";
/// The unit of the driver that follows the killed one.
const NEXT: &str = "localpool-next";
/// How long an answer may take in an emulated guest, on a busy machine. Anything that waits for a stuck disk takes as
/// long as that is stuck.
const AN_ANSWER: Duration = Duration::from_secs(20);

pub fn check(bench: &mut Bench, report: &mut Report) {
    let name =
        "while disks of the pool are stuck, every call about another one is answered, and theirs end when they do";
    if !report.wants(name) {
        return;
    }
    let disks = STUCK.map(|name| Disk::new(name, Bus::Scsi).mib(1000));
    for disk in &disks {
        bench.guest.add_drive(disk);
        bench.guest.plug(disk);
    }
    let mut volumes = Vec::new();
    report.check(name, || stuck(bench, &disks, &mut volumes));
    // Also if it ended early: nothing that waits for them can end before.
    disks.iter().for_each(|disk| bench.guest.thaw(disk));
    bench.csi(async |csi| {
        for Volume { id, .. } in &volumes {
            let _ = csi.unpublish(id).await;
            let _ = csi.unstage(id).await;
            let _ = csi.delete(id).await;
        }
    });
    bench.connection = None;
    bench.guest.run(&format!("systemctl stop csi-port {NEXT} {UNIT} 2>/dev/null || true"));
    bench.unit = UNIT;
    bench.driver();
    disks.iter().for_each(|disk| bench.take_out(disk));
}

fn stuck(bench: &mut Bench, disks: &[Disk], volumes: &mut Vec<Volume>) {
    STUCK.iter().for_each(|name| await_ours(bench, name));
    let mut volume = |name, class, mib, usage| {
        volumes.push(bench.volume(name, class, mib, usage));
        volumes.last().expect("the one that was made").clone()
    };
    let well = volume("stuck-well", WELL, 64, Use::Ext4);
    let labelled = volume("stuck-labelled", LABELLED, 64, Use::Ext4);
    let leaving = volume("stuck-leaving", LABELLED, 64, Use::Ext4);
    let bare = volume("stuck-bare", BARE, 900, Use::Block);
    [&well, &bare, &leaving].iter().for_each(|volume| bench.put_away(volume));
    disks.iter().for_each(|disk| bench.guest.freeze(disk));
    read_each(bench);
    let calls = bench.csi(async |csi| {
        // The answer does not matter.
        drop(in_time("stats of a volume on a stuck disk", csi.stats(&labelled.id)).await);
        let calls = calls_that_hang(csi, [&leaving.id, &bare.id], &labelled.id);
        serve(csi, &well.id).await;
        serve(csi, &well.id).await;
        calls
    });
    let devices = "timeout 60 /opt/localpool devices --node-name guest >/dev/null";
    bench.guest.run(devices);
    are_stuck(bench);
    disks.iter().for_each(|disk| bench.guest.thaw(disk));
    bench.csi(async |csi| {
        for call in calls {
            let ended = tokio::time::timeout(AN_ANSWER, call).await;
            drop(ended.expect("a call about a disk that answers again ends").unwrap());
        }
        until_done(async || csi.unpublish(&labelled.id).await).await;
        until_done(async || csi.unstage(&labelled.id).await).await;
        for id in [&leaving.id, &bare.id] {
            until_done(async || csi.delete(id).await).await;
        }
        make_each(csi).await;
    });
    killed(bench, disks, &well);
    bench.use_again(&labelled);
    bench.has_its_data(&labelled);
    bench.put_away(&labelled);
    bench.csi(async |csi| {
        for id in [&labelled.id, &well.id] {
            csi.delete(id).await.unwrap();
        }
    });
}

/// The driver cannot end, as it waits for the stuck disks; meanwhile the next one serves all others, and later these as
/// well.
fn killed(bench: &mut Bench, disks: &[Disk], well: &Volume) {
    disks.iter().for_each(|disk| bench.guest.freeze(disk));
    read_each(bench);
    let process = bench.guest.run("systemctl show --property=MainPID --value localpool").trim().to_owned();
    bench.csi(async |csi| {
        let _calls = MADE.map(|wanted| create(csi, wanted));
        serve(csi, &well.id).await;
    });
    bench.connection = None;
    bench.guest.run("systemctl kill --signal=KILL localpool; rm /run/localpool/csi.sock");
    // The remains of the first driver still have its unit.
    bench.unit = NEXT;
    bench.driver();
    bench.eventually("the next driver has looked at the disks that answer", |bench| {
        let is_ready = bench.csi(async |csi| csi.probe().await.unwrap());
        if is_ready { Ok(()) } else { Err("it is not ready".to_owned()) }
    });
    bench.csi(async |csi| serve(csi, &well.id).await);
    are_stuck(bench);
    bench.guest.run(&format!("grep -h ^State /proc/{process}/task/*/status | grep -q D"));
    disks.iter().for_each(|disk| bench.guest.thaw(disk));
    STUCK.iter().for_each(|name| await_ours(bench, name));
    bench.csi(async |csi| make_each(csi).await);
}

async fn make_each(csi: &mut Csi) {
    for (name, class, mib) in MADE {
        let made = until_done(async || csi.create(name, class, mib, Use::Block).await.map_err(again_if_cordoned)).await;
        until_done(async || csi.delete(&made).await).await;
    }
}

/// A disk that did not answer takes no new volumes until a checkup has its answer.
fn again_if_cordoned(refused: Status) -> Status {
    if refused.message().contains("it takes no new volumes") { Status::aborted(refused.message()) } else { refused }
}

fn are_stuck(bench: &mut Bench) {
    let waiting = bench.guest.run("systemctl is-active stuck-{labelled,bare,free} || true");
    assert_eq!(waiting, "active\n".repeat(STUCK.len()), "the disks are stuck all the time");
}

/// Reads from them wait in the kernel; otherwise nothing was tested here.
fn read_each(bench: &mut Bench) {
    let read = |name: &&str| {
        format!(
            "systemd-run --quiet --collect --unit={name} dd if=$(disk {name}) of=/dev/null bs=64k count=4 iflag=direct\n"
        )
    };
    bench.guest.run(&STUCK.iter().map(read).collect::<String>());
}

/// Work on each of the stuck disks, which waits for the disk or is asked to retry.
fn calls_that_hang(csi: &Csi, deleted: [&String; 2], mounted: &str) -> Vec<JoinHandle<Result<(), Status>>> {
    let (mut node, mounted) = (csi.clone(), mounted.to_owned());
    let leave = tokio::spawn(async move {
        node.unpublish(&mounted).await?;
        node.unstage(&mounted).await
    });
    let delete = |id: &String| {
        let (mut csi, id) = (csi.clone(), id.clone());
        tokio::spawn(async move { csi.delete(&id).await })
    };
    [leave].into_iter().chain(deleted.map(delete)).chain(MADE.map(|wanted| create(csi, wanted))).collect()
}

fn create(csi: &Csi, (name, class, mib): (&'static str, &'static str, u64)) -> JoinHandle<Result<(), Status>> {
    let mut csi = csi.clone();
    tokio::spawn(async move { csi.create(name, class, mib, Use::Block).await.map(drop) })
}

/// Every call of an orchestrator for a volume on a disk that answers, and for a new one.
async fn serve(csi: &mut Csi, id: &str) {
    assert!(in_time("Probe", csi.probe()).await.unwrap());
    in_time("Stage", csi.stage(id, Use::Ext4)).await.unwrap();
    in_time("Publish", csi.publish(id, Use::Ext4)).await.unwrap();
    in_time("Stats", csi.stats(id)).await.unwrap();
    in_time("Unpublish", csi.unpublish(id)).await.unwrap();
    in_time("Unstage", csi.unstage(id)).await.unwrap();
    for class in [WELL, LABELLED, BARE] {
        in_time("GetCapacity", csi.capacity(class, Use::Ext4)).await.unwrap();
    }
    let made = in_time("Create", csi.create("stuck-beside", WELL, 32, Use::Ext4)).await.unwrap();
    in_time("Delete", csi.delete(&made)).await.unwrap();
    assert!(!in_time("List", csi.list()).await.contains_key(&made));
}

async fn in_time<T>(what: &str, call: impl Future<Output = T>) -> T {
    let answer = tokio::time::timeout(AN_ANSWER, call).await;
    answer.unwrap_or_else(|_| panic!("{what} waits for a disk that it has nothing to do with"))
}
