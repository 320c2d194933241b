//! Disks, filesystems and mounts that fail on a real kernel: each failure has its reason on every face, and none after
//! its repair, while a volume on another disk is healthy and can be written.

mod groups;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use localpool_testing::found;

use self::groups::{Act, Failure, Group, LVM, MAPPED, Repair, Seen, disks, groups};
use crate::bench::Bench;
use crate::csi::{Use, staging, target};
use crate::driver::SOON;
use crate::faces::{self, Others};
use crate::guest::LIMIT;
use crate::hotplug::await_ours;
use crate::report::Report;
use crate::volumes::Volume;

/// A disk that does not fail; its set has the same name.
const WELL: &str = "hot-virtio";
/// How long there is no checkup without an event.
const BY_TIME: Duration = Duration::from_secs(60);

/// What the scripts share: a user that writes and does not give up, and another mapping of a logical volume.
const SHARED: &str = r#"
    WRITER=writer${TARGET//\//-}
    again() {
        systemd-run --quiet --collect --unit="$WRITER" bash -c "while :; do $1 || sleep 1; done"
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
    let disks = disks();
    for disk in &disks {
        bench.guest.add_drive(disk);
        bench.guest.plug(disk);
    }
    map(bench);
    for group in groups {
        let mut volumes = Vec::new();
        report.check(group.name, || fail(bench, &group, &mut volumes));
        // Also if it ended early.
        for (volume, Failure { class, ends, .. }) in volumes.iter().zip(&group.failures) {
            let _ = catch_unwind(AssertUnwindSafe(|| act(bench, volume, class, ends)));
        }
        bench.csi(async |csi| {
            for Volume { id, .. } in &volumes {
                let _ = csi.unpublish(id).await;
                let _ = csi.unstage(id).await;
                let _ = csi.delete(id).await;
            }
        });
    }
    unmap(bench);
    let (lvm, pooled) = disks.split_last().expect("it is the last");
    pooled.iter().for_each(|disk| bench.take_out(disk));
    bench.guest.unplug(lvm);
    bench.guest.remove_drive(lvm);
    frozen(bench, "suspend");
}

fn fail(bench: &mut Bench, group: &Group, volumes: &mut Vec<Volume>) {
    let Group { failures, seen, repair, .. } = group;
    await_ours(bench, WELL);
    for (at, Failure { class, usage, .. }) in failures.iter().enumerate() {
        await_class(bench, class, *usage);
        volumes.push(bench.volume(&format!("{at} of {}", group.name), class, least(*usage), *usage));
    }
    volumes.push(bench.volume("failing-not", WELL, 32, Use::Ext4));
    let (well, failing) = volumes.split_last().expect("it was made last");
    let scene = Scene { seen: *seen, failing, well, others: faces::others(bench, volumes) };
    let each = |reasons: fn(&Failure) -> &'static [&'static str]| failures.iter().map(reasons).collect::<Vec<_>>();
    scene.await_reasons(bench, &each(|_| &[]));
    for (volume, failure) in failing.iter().zip(failures) {
        act(bench, volume, failure.class, &failure.begins);
    }
    let begun = Instant::now();
    scene.await_reasons(bench, &each(|failure| failure.reasons));
    let failed = Instant::now();
    for (volume, failure) in failing.iter().zip(failures) {
        act(bench, volume, failure.class, &failure.ends);
    }
    if *repair == Repair::MountedAgain {
        failing.iter().for_each(|volume| bench.put_away(volume));
        failing.iter().for_each(|volume| bench.use_again(volume));
    }
    let ended = Instant::now();
    scene.await_reasons(bench, &each(|failure| failure.held));
    let [failed_after, gone_after] = [failed - begun, ended.elapsed()].map(|time| time.as_secs_f64());
    println!(
        "    all on every face {failed_after:.1} s after the last failure, and gone {gone_after:.1} s after the last repair"
    );
    if *seen == Seen::ByEvent {
        assert!(failed.elapsed() < BY_TIME, "one of two checkups in a minute was due by an event");
    }
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
    seen: Seen,
    failing: &'a [Volume],
    well: &'a Volume,
    /// What `localpool health` prints of all else.
    others: Others,
}

impl Scene<'_> {
    /// Waits until each failing volume, and its disk, has exactly these reasons on every face, and nothing else has new
    /// ones; and writes to the volume that is well.
    fn await_reasons(&self, bench: &mut Bench, wanted: &[&[&str]]) {
        let look = || {
            if self.seen == Seen::AtNextCheckup {
                // Any mount of the node makes the next checkup due at once.
                bench.guest.run("mount -t tmpfs next /mnt; umount /mnt");
            }
            let failing = self.failing.iter().zip(wanted.iter().copied());
            let all: Vec<_> = failing.chain([(self.well, &[][..])]).collect();
            faces::show(bench, &all, &self.others)
        };
        if let Err(why) = found(SOON, Duration::from_millis(500), look) {
            panic!("not within {SOON:?}: {why}");
        }
        let target = target(&self.well.id);
        let write = format!("timeout 60 dd if=/dev/urandom of={target}/other bs=64k count=4 conv=fsync status=none");
        bench.guest.run(&write);
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

/// Makes the logical volumes.
fn map(bench: &mut Bench) {
    bench.guest.run(&format!(
        "D=$(disk {LVM}); pvcreate --quiet $D; vgcreate --quiet failing $D
         for name in ext4 xfs btrfs; do
             lvcreate --quiet --yes --size 360M --name $name failing
             dmsetup table failing-$name >/run/failing-$name.table
         done"
    ));
}

fn unmap(bench: &mut Bench) {
    let mapped = MAPPED.map(|(class, _)| format!("readlink -f /dev/mapper/{class}"));
    let nodes = crate::verdicts::printed(bench, &mapped);
    let devices = bench.by_path();
    for id in nodes.iter().filter_map(|node| devices.get(node)?["diskId"].as_str()) {
        bench.release(id);
    }
    let _ = bench.guest.try_run("vgremove --quiet --yes --force failing", LIMIT);
}
