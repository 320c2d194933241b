//! Disks, filesystems and mounts that fail on a real kernel: each failure has its reason on every face, and none after
//! its repair, while a volume on another disk is healthy and can be written.

mod groups;
mod recorded;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use localpool_testing::found;

pub use self::recorded::hold;

use self::groups::{ARRAY, Act, Failure, Group, LVM, MAPPED, MEMBERS, Noticed, Repair, below, groups, pooled};
use crate::bench::Bench;
use crate::csi::{Csi, Use, staging, target};
use crate::driver::{AT_ONCE, SOON};
use crate::faces::{self, Others};
use crate::guest::LIMIT;
use crate::hotplug::await_ours;
use crate::report::Report;
use crate::volumes::{Volume, WantedVolume};

/// A disk that does not fail; its set has the same name.
const WELL: &str = "hot-virtio";
/// How long there is no checkup without an event.
const A_MINUTE: Duration = Duration::from_secs(60);
/// Any mount of the node makes a checkup due.
const EVENT: &str = "mount -t tmpfs next /mnt; umount /mnt";

/// What the scripts share: a user that writes again and again, and does not give up; and another mapping of a logical
/// volume.
const SHARED: &str = r#"
    WRITER=writer${TARGET//\//-}
    again() {
        systemd-run --quiet --collect --unit="$WRITER" bash -c "while :; do $1 || sleep 1; sleep 0.2; done"
        sleep 1
    }
    write() {
        again "dd if=/dev/urandom of=$TARGET/other bs=64k count=16 conv=fsync,notrunc
               touch $TARGET/other && sync --file-system $TARGET"
    }
    overwrite() { again "dd if=/dev/urandom of=$TARGET bs=64k count=16 seek=128 oflag=direct conv=notrunc"; }
    stop() { systemctl stop "$WRITER" 2>/dev/null || true; }
    remap() {
        read -r _ size _ below </run/$CLASS.table
        dmsetup suspend --nolockfs $CLASS
        dmsetup load $CLASS --table "0 $size ${1//BELOW/$below}"
        dmsetup resume --noudevsync $CLASS
    }
"#;

pub fn check(bench: &mut Bench, report: &mut Report) {
    let groups = groups();
    if !groups.iter().any(|group| report.wants(group.name)) {
        return;
    }
    // mkfs.btrfs looks at all devices of the node, and would wait for this one of another case.
    let frozen = |bench: &mut Bench, verb| drop(bench.guest.try_run(&format!("dmsetup {verb} frozen"), LIMIT));
    frozen(bench, "resume");
    let (pooled, below) = (pooled(), below());
    for disk in pooled.iter().chain(&below) {
        bench.guest.add_drive(disk);
        bench.guest.plug(disk);
    }
    map(bench);
    for group in groups {
        let mut volumes = Vec::new();
        let mut is_whole = false;
        report.check(group.name, || {
            fail(bench, &group, &mut volumes);
            is_whole = true;
        });
        // The failures of a check that ended early would be there for the next one.
        if !is_whole {
            for (volume, Failure { class, ends, .. }) in volumes.iter().zip(&group.failures) {
                let _ = catch_unwind(AssertUnwindSafe(|| act(bench, volume, class, ends)));
            }
        }
        bench.csi(async |csi| {
            let all = volumes.iter().map(|volume| remove(csi.clone(), volume));
            futures::future::join_all(all).await;
        });
    }
    unmap(bench);
    pooled.iter().for_each(|disk| bench.take_out(disk));
    for disk in &below {
        bench.guest.unplug(disk);
        bench.guest.remove_drive(disk);
    }
    // A scan that has begun to read it would not end, and neither would the driver.
    bench.stop_driver();
    frozen(bench, "suspend");
}

/// Again and again, as an orchestrator does it: a disk that has just been repaired may still be open somewhere.
async fn remove(mut csi: Csi, Volume { id, .. }: &Volume) {
    let until = Instant::now() + SOON;
    let mut once = async || {
        csi.unpublish(id).await?;
        csi.unstage(id).await?;
        csi.delete(id).await
    };
    while let Err(status) = once().await {
        if Instant::now() > until {
            return println!("    {id} is not deleted: {status}");
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

fn fail(bench: &mut Bench, group: &Group, volumes: &mut Vec<Volume>) {
    let Group { failures, noticed, gone, repair, .. } = group;
    await_ours(bench, WELL);
    failures.iter().for_each(|Failure { class, usage, .. }| await_class(bench, class, *usage));
    let names: Vec<String> = (0..failures.len()).map(|at| format!("{at} of {}", group.name)).collect();
    let failing = names.iter().zip(failures).map(|(name, Failure { class, usage, .. })| {
        let wanted: WantedVolume<'_> = (name, class, least(*usage), *usage);
        wanted
    });
    let wanted: Vec<_> = failing.chain([("failing-not", WELL, 32, Use::Ext4)]).collect();
    *volumes = bench.volumes(&wanted);
    let (well, failing) = volumes.split_last().expect("it was made last");
    let scene = Scene { failing, well, others: faces::others(bench, volumes) };
    let each = |reasons: fn(&Failure) -> &'static [&'static str]| failures.iter().map(reasons).collect::<Vec<_>>();
    scene.await_reasons(bench, &each(|_| &[]));
    for (volume, failure) in failing.iter().zip(failures) {
        act(bench, volume, failure.class, &failure.begins);
    }
    for (volume, Failure { class, shows, .. }) in failing.iter().zip(failures) {
        let wait = format!("until {shows}; do sleep 0.2; done 2>/dev/null");
        bench.guest.run(&in_guest(&volume.id, class, &wait));
    }
    scene.await_in_time(bench, *noticed, "on every face", &each(|failure| failure.reasons));
    for (volume, failure) in failing.iter().zip(failures) {
        act(bench, volume, failure.class, &failure.ends);
    }
    if *repair == Repair::MountedAgain {
        failing.iter().for_each(|volume| bench.put_away(volume));
        failing.iter().for_each(|volume| bench.use_again(volume));
    }
    scene.await_in_time(bench, *gone, "gone", &each(|failure| failure.held));
    volumes.iter().for_each(|volume| bench.has_its_data(volume));
}

/// The least that its filesystem needs, in MiB.
fn least(usage: Use) -> u64 {
    match usage {
        Use::Xfs => 300,
        Use::Btrfs => 112,
        Use::Ext4 | Use::Block => 64,
    }
}

fn act(bench: &mut Bench, volume: &Volume, class: &str, act: &Act) {
    bench.guest.run(&in_guest(&volume.id, class, act.script));
    (act.deed)(bench);
}

fn in_guest(id: &str, class: &str, script: &str) -> String {
    format!("CLASS={class} STAGING={} TARGET={}\n{SHARED}\n{script}", staging(id), target(id))
}

/// The volumes of a group, and what is wrong beside them.
struct Scene<'a> {
    failing: &'a [Volume],
    well: &'a Volume,
    others: Others,
}

impl Scene<'_> {
    /// What has just happened must be on all faces in its time.
    fn await_in_time(&self, bench: &mut Bench, noticed: Noticed, how: &str, wanted: &[&[&str]]) {
        let happened = faces::now(bench);
        let limit = match noticed {
            Noticed::ByEvent => AT_ONCE,
            Noticed::ByTime => A_MINUTE + AT_ONCE,
            Noticed::AtNextCheckup => {
                bench.guest.run(EVENT);
                AT_ONCE
            }
            Noticed::AfterSilence(seconds) => {
                let half = f64::from(seconds) / 2.0;
                bench.guest.run(&format!("{EVENT}; sleep {half}; {EVENT}; sleep {half}; {EVENT}"));
                Duration::from_secs(seconds.into()) + AT_ONCE
            }
        };
        let took = self.await_reasons(bench, wanted).saturating_sub(happened);
        println!("    {how} after {:.1} s, of {} s", took.as_secs_f64(), limit.as_secs());
        assert!(took <= limit, "{how} only after {took:?}, not within {limit:?}");
    }

    /// Waits until each failing volume, and its disk, has exactly these reasons on every face, and nothing else has new
    /// ones; says when; and writes to the volume that is well.
    fn await_reasons(&self, bench: &mut Bench, wanted: &[&[&str]]) -> Duration {
        let failing = self.failing.iter().zip(wanted.iter().copied());
        let all: Vec<_> = failing.chain([(self.well, &[][..])]).collect();
        let shown = found(SOON, Duration::from_millis(200), || faces::show(bench, &all, &self.others));
        let at = shown.unwrap_or_else(|why| panic!("not within {SOON:?}: {why}"));
        let target = target(&self.well.id);
        let write = format!("timeout 60 dd if=/dev/urandom of={target}/other bs=64k count=4 conv=fsync status=none");
        bench.guest.run(&write);
        at
    }
}

/// Waits until a class has a device.
fn await_class(bench: &mut Bench, class: &str, usage: Use) {
    bench.eventually(&format!("{class} has a device"), |bench| {
        match bench.csi(async |csi| csi.capacity(class, usage).await) {
            Ok(bytes) if bytes > 0 => Ok(()),
            other => Err(format!("{other:?}")),
        }
    });
}

/// Makes the array and the logical volumes.
fn map(bench: &mut Bench) {
    let [one, other] = MEMBERS;
    bench.guest.run(&format!(
        "mdadm --quiet --create /dev/md/{ARRAY} --metadata=1.2 --level=1 --raid-devices=2 --bitmap=internal \\
             --assume-clean --run $(disk {one}) $(disk {other})
         vgcreate --quiet failing_array /dev/md/{ARRAY}; lvcreate --quiet --yes --extents 100%FREE --name data failing_array"
    ));
    bench.guest.run(&format!(
        "D=$(disk {LVM}); pvcreate --quiet $D; vgcreate --quiet failing $D
         for name in ext4 xfs btrfs; do
             lvcreate --quiet --yes --size 360M --name $name failing
             dmsetup table failing-$name >/run/failing-$name.table
         done"
    ));
}

fn unmap(bench: &mut Bench) {
    let mapped = MAPPED.iter().map(|(class, _)| format!("readlink -f /dev/mapper/{class}"));
    let made: Vec<String> = mapped.chain(["readlink -f /dev/mapper/failing_array-data".to_owned()]).collect();
    let nodes = crate::verdicts::printed(bench, &made);
    let devices = bench.by_path();
    for id in nodes.iter().filter_map(|node| devices.get(node)?["diskId"].as_str()) {
        bench.release(id);
    }
    let _ = bench.guest.try_run("vgremove --quiet --yes --force failing failing_array", LIMIT);
    let [one, other] = MEMBERS;
    let end = format!("mdadm --stop /dev/md/{ARRAY}; mdadm --zero-superblock $(disk {one}) $(disk {other})");
    let _ = bench.guest.try_run(&end, LIMIT);
}
