//! A bare device of the pool is its tenant's to the last byte: what is built on it is given to nobody else, and what is
//! on it says nothing about the pool.

use serde_json::Value;
use tonic::Code;

use crate::bench::Bench;
use crate::csi::{Use, target};
use crate::disks::{Bus, Disk};
use crate::driver::MIN_AGE;
use crate::guest::LIMIT;
use crate::hotplug::{self, await_ours};
use crate::report::Report;

/// A disk, and the set that takes it whole.
const NAME: &str = "bare-tenant";
/// Classes that would take what is built on it.
const GREEDY: [&str; 2] = ["second-tenant", "third-tenant"];
/// A labelled disk of the pool; the tenant has a copy of its label.
const LABELLED: &str = "hot-scsi";

/// In the reason why nobody else may have what is built on it.
const OF_POOL: &str = "which belongs to a pool disk";

/// What the tenant builds on the device `D`, and its node.
struct Build {
    what: &'static str,
    make: &'static str,
    node: &'static str,
    /// If the host keeps it: the words with which a delete is refused. Otherwise it is taken apart when the device
    /// joins the pool.
    kept: Option<&'static str>,
    end: &'static str,
}

const BUILDS: [Build; 3] = [
    Build {
        what: "a partition",
        make: "printf 'label: gpt\\nsize=100M\\n' | sfdisk --quiet --wipe=always $D; blockdev --rereadpt $DISK",
        node: "$(ls ${DISK}?*)",
        kept: None,
        end: "",
    },
    Build {
        what: "an array",
        make: "wipefs --quiet --all $DISK; mdadm --quiet --create /dev/md/tenant --metadata=1.0 --level=1 --raid-devices=1 --force --run $DISK",
        node: "$(readlink -f /dev/md/tenant)",
        kept: Some("held by md"),
        end: "mdadm --quiet --stop /dev/md/tenant; mdadm --quiet --zero-superblock $DISK",
    },
    Build {
        what: "a logical volume",
        make: "wipefs --quiet --all $DISK; pvcreate --quiet $DISK; vgcreate --quiet tenantvg $DISK; \
               lvcreate --quiet --yes --size 100M --name data tenantvg",
        node: "$(readlink -f /dev/tenantvg/data)",
        kept: Some("(tenantvg-data)"),
        end: "vgchange --quiet --activate n tenantvg; vgremove --quiet --force tenantvg; pvremove --quiet $DISK",
    },
];

pub fn check(bench: &mut Bench, report: &mut Report) {
    let (built, array, label) = (
        "what a tenant builds on its bare volume is given to nobody else, also after a restart of the driver",
        "a whole pool disk that a tenant copies into an array on its bare volume does not take that disk's place",
        "a label that a tenant copies onto its bare volume makes nothing ours and takes nothing from the pool",
    );
    if ![built, array, label].iter().any(|name| report.wants(name)) {
        return;
    }
    let disk = Disk::new(NAME, Bus::Scsi).mib(1200);
    bench.guest.add_drive(&disk);
    bench.guest.plug(&disk);
    let mut volume = None;
    report.check(built, || {
        let id = volume.get_or_insert_with(|| whole(bench)).clone();
        BUILDS.iter().for_each(|build| is_kept(bench, &id, build));
    });
    report.check(array, || {
        let id = volume.get_or_insert_with(|| whole(bench)).clone();
        copied_into_array(bench, &id);
    });
    report.check(label, || {
        let id = volume.get_or_insert_with(|| whole(bench)).clone();
        copied_label(bench, &id);
        bench.csi(async |csi| csi.delete(&id).await.unwrap());
    });
    // Also if it ended early.
    if bench.guest.try_run(&format!("disk {LABELLED}"), LIMIT).is_err() {
        bench.guest.plug(&pulled());
    }
    for build in &BUILDS {
        let _ = bench.guest.try_run(&with_disk(build.end), LIMIT);
    }
    if let Some(id) = &volume {
        bench.csi(async |csi| {
            let _ = csi.unpublish(id).await;
            let _ = csi.unstage(id).await;
            let _ = csi.delete(id).await;
        });
    }
    bench.take_out(&disk);
}

/// The volume of the whole device.
fn whole(bench: &mut Bench) -> String {
    await_ours(bench, NAME);
    bench.csi(async |csi| csi.create(NAME, NAME, 900, Use::Block).await.unwrap())
}

fn with_disk(script: &str) -> String {
    format!("DISK=$(disk {NAME}); {script}")
}

/// The tenant builds, its pod ends, and the driver starts again while the construction stands.
fn is_kept(bench: &mut Bench, id: &str, build: &Build) {
    make(bench, id, build.make);
    let node = bench.guest.run(&with_disk(&format!("echo {}", build.node))).trim().to_owned();
    assert!(node.starts_with("/dev/") && !node.contains(' '), "{} is {node:?}", build.what);
    bench.driver_again();
    await_ours(bench, NAME);
    // Longer than a blank device must stay blank before it is taken.
    bench.guest.run(&format!("sleep {}; udevadm settle", 2 * MIN_AGE.as_secs()));
    match build.kept {
        Some(holder) => {
            is_tenants(bench, &node, build.what);
            let refused = bench.csi(async |csi| csi.delete(id).await).expect_err("it is in use");
            assert_eq!(refused.code(), Code::FailedPrecondition, "{refused:?}");
            assert!(refused.message().contains(holder), "who holds it: {refused:?}");
        }
        None => drop(bench.guest.run(&format!("! test -e {node}"))),
    }
    for class in GREEDY {
        let stolen = bench.csi(async |csi| csi.create("stolen", class, 64, Use::Block).await);
        assert!(stolen.is_err(), "{} of a tenant's volume was given to another: {stolen:?}", build.what);
    }
    is_well(bench, id);
    bench.guest.run(&with_disk(&format!("{}\nudevadm settle", build.end)));
}

/// A tenant builds while one of its pods has the volume.
fn make(bench: &mut Bench, id: &str, script: &str) {
    bench.csi(async |csi| {
        csi.stage(id, Use::Block).await.unwrap();
        csi.publish(id, Use::Block).await.unwrap();
    });
    bench.guest.run(&with_disk(&format!("D={}; {script}; udevadm settle", target(id))));
    bench.csi(async |csi| {
        csi.unpublish(id).await.unwrap();
        csi.unstage(id).await.unwrap();
    });
}

fn is_tenants(bench: &mut Bench, node: &str, what: &str) {
    let device = bench.by_path().remove(node).unwrap_or(Value::Null);
    let reason = device["reason"].as_str().unwrap_or_default();
    assert!(device["verdict"] == "Theirs" && reason.contains(OF_POOL), "{what} is {device}");
}

fn pulled() -> Disk {
    hotplug::disks().into_iter().find(|disk| disk.name == LABELLED).expect("a disk")
}

/// An array of the pool disk's size, with both of its tables and its label; the driver sees it while that disk is away.
fn copied_into_array(bench: &mut Bench, id: &str) {
    let pulled = pulled();
    await_ours(bench, LABELLED);
    let kept = bench.volume("in-a-copied-disk", LABELLED, 32, Use::Ext4);
    bench.put_away(&kept);
    let last = pulled.mib - 1;
    let copied = format!(
        "wipefs --quiet --all $DISK
         mdadm --quiet --create /dev/md/tenant --metadata=1.2 --level=1 --raid-devices=1 --force --run --size={}K $DISK
         udevadm settle; FROM=$(disk {LABELLED}); [[ $(blockdev --getsz $FROM) == $(blockdev --getsz /dev/md/tenant) ]]
         dd if=$FROM of=/dev/md/tenant bs=1M count=3 conv=fsync status=none
         dd if=$FROM of=/dev/md/tenant bs=1M skip={last} seek={last} conv=fsync status=none; sgdisk --verify /dev/md/tenant",
        pulled.mib << 10
    );
    make(bench, id, &copied);
    bench.guest.unplug(&pulled);
    bench.driver_again();
    await_ours(bench, NAME);
    bench.guest.run(&format!("sleep {}; udevadm settle", 2 * MIN_AGE.as_secs()));
    let node = bench.guest.run("readlink -e /dev/md/tenant").trim().to_owned();
    is_tenants(bench, &node, "the array");
    let staged = bench.csi(async |csi| csi.stage(&kept.id, Use::Ext4).await);
    assert!(staged.is_err(), "a volume of a disk that is away was found in another tenant's");
    bench.guest.plug(&pulled);
    await_ours(bench, LABELLED);
    is_tenants(bench, &node, "the array");
    is_well(bench, id);
    is_well(bench, &kept.id);
    bench.use_again(&kept);
    bench.has_its_data(&kept);
    bench.put_away(&kept);
    bench.csi(async |csi| csi.delete(&kept.id).await.unwrap());
    bench
        .guest
        .run(&with_disk("mdadm --quiet --stop /dev/md/tenant; mdadm --quiet --zero-superblock $DISK; udevadm settle"));
}

/// The first MiBs of a pool disk have its table and its label.
fn copied_label(bench: &mut Bench, id: &str) {
    let kept = bench.volume("beside-a-copied-label", LABELLED, 32, Use::Ext4);
    bench.guest.run(&with_disk(&format!(
        "dd if=$(disk {LABELLED}) of=$DISK bs=1M count=3 conv=fsync status=none; udevadm settle"
    )));
    bench.driver_again();
    await_ours(bench, NAME);
    await_ours(bench, LABELLED);
    is_well(bench, id);
    is_well(bench, &kept.id);
    bench.has_its_data(&kept);
    bench.put_away(&kept);
    bench.csi(async |csi| csi.delete(&kept.id).await.unwrap());
}

fn is_well(bench: &mut Bench, id: &str) {
    let listed = bench.csi(async |csi| csi.list().await);
    let condition = listed.get(id).unwrap_or_else(|| panic!("{id} is not among {listed:?}"));
    assert!(!condition.abnormal, "{condition:?}");
}
