//! A host that boots with the rules of `localpool udev-rules`, and with the list of volume groups that docs/hosts.md has for
//! bare devices: what tenants wrote into their volumes is not started, and no link leads to it.

use crate::bench::Bench;
use crate::csi::{Use, target};
use crate::disks::{Bus, Disk};
use crate::guest::LIMIT;
use crate::hotplug::await_ours;
use crate::report::Report;

/// A disk with a label, which the guest's initramfs does not see, and the set of its own.
const LABELLED: &str = "hot-nvme";
/// A disk that is used bare, and the set of its own.
const BARE: &str = "host-rules";
const RULES: &str = "/etc/udev/rules.d/60-localpool.rules";
const LVM: &str = "/etc/lvm/lvmlocal.conf";

/// What a tenant writes to the device `D`, and the size of it in MiB. Its own machine does it: nothing of it runs here.
const TENANTS: [(&str, &str, u64, &str); 4] = [
    (
        "group",
        LABELLED,
        64,
        "pvcreate -q $D; vgcreate -q tenantsvg $D; lvcreate -q -y -Zn -l 50%FREE -n data tenantsvg; vgchange -q -an tenantsvg",
    ),
    (
        "array",
        LABELLED,
        64,
        "mdadm --quiet --create /dev/md/tenants --metadata=1.2 --level=1 --raid-devices=1 --force --run $D
         udevadm settle; mdadm --quiet --stop /dev/md/tenants",
    ),
    ("root", LABELLED, 64, "mkfs.ext4 -q -F -L tenants-own -U $(findmnt -no UUID /) $D"),
    (
        "bare",
        BARE,
        900,
        "pvcreate -q $D; vgcreate -q barevg $D; lvcreate -q -y -Zn -l 50%FREE -n data barevg; vgchange -q -an barevg",
    ),
];

pub fn check(bench: &mut Bench, report: &mut Report) {
    let name =
        "with the udev rules a boot starts nothing that tenants wrote, no link leads to it, and all of it is erased";
    if !report.wants(name) {
        return;
    }
    if !bench.guest.is_own() {
        return report.skipped(name, "the guest is kept up by another run");
    }
    let disk = Disk::new(BARE, Bus::Scsi).mib(1000);
    bench.guest.add_drive(&disk);
    bench.guest.plug(&disk);
    let mut volumes = Vec::new();
    report.check(name, || boots(bench, &disk, &mut volumes));
    // Also where it ended early.
    let end = format!(
        "set +e; vgchange -q -an tenantsvg barevg; for array in /dev/md/*tenants*; do mdadm --quiet --stop $array; done
         rm -f {RULES}; sed -i '/^# Of the check/,$d' {LVM}; udevadm control --reload; udevadm settle; sync"
    );
    let _ = bench.guest.try_run(&end, LIMIT);
    bench.csi(async |csi| {
        for id in &volumes {
            let _ = csi.unpublish(id).await;
            let _ = csi.unstage(id).await;
            let _ = csi.delete(id).await;
        }
    });
    bench.take_out(&disk);
}

fn boots(bench: &mut Bench, disk: &Disk, volumes: &mut Vec<String>) {
    await_ours(bench, LABELLED);
    await_ours(bench, BARE);
    bench.guest.run(&format!(
        "/opt/localpool udev-rules --install-in $(dirname {RULES}) >/dev/null; udevadm control --reload
         printf '# Of the check\\nactivation {{\\n    auto_activation_volume_list = [ \"guestvg\" ]\\n}}\\n' >>{LVM}
         lvmconfig activation/auto_activation_volume_list | grep -q guestvg"
    ));
    let before = room(bench);
    let files = bench.volume("tenants-files", LABELLED, 64, Use::Ext4);
    volumes.push(files.id.clone());
    let mut tenants = Vec::new();
    for (name, class, mib, make) in TENANTS {
        let volume = bench.volume(&format!("tenants-{name}"), class, mib, Use::Block);
        volumes.push(volume.id.clone());
        bench.guest.run(&format!("D=$(lsblk -dno PATH {}); {make}; udevadm settle; sync", target(&volume.id)));
        tenants.push((volume.id.clone(), sum(bench, &volume.id)));
    }
    let root = bench.guest.run("findmnt -no UUID,SOURCE /");
    let (uuid, node) = root.trim().split_once(' ').expect("two words");
    let (uuid, node) = (uuid.to_owned(), node.trim().to_owned());
    bench.guest.run("sync");
    bench.boot_again(|disks| disks.iter().chain([disk]).cloned().collect());
    // What LVM and md start by themselves is there when that of the host itself is.
    bench.guest.run(
        "for try in {1..200}; do [[ -e /dev/guestvg/blank && -e /dev/md/running ]] && exit; sleep 1; done
         echo the volume group and the array of the host itself are not started; exit 1",
    );
    bench.driver();
    await_ours(bench, LABELLED);
    await_ours(bench, BARE);
    let linked = bench.guest.run(&format!("readlink -f /dev/disk/by-uuid/{uuid}"));
    assert_eq!(linked.trim(), node, "what the UUID of the host's root leads to");
    let all: Vec<String> = [&files.id].into_iter().chain(tenants.iter().map(|(id, _)| id)).cloned().collect();
    bench.csi(async |csi| {
        let listed = csi.list().await;
        for id in &all {
            assert!(listed.get(id).is_some_and(|condition| !condition.abnormal), "{id}: {listed:?}");
            // Its pod has ended with the machine.
            csi.unpublish(id).await.unwrap();
            csi.unstage(id).await.unwrap();
        }
    });
    bench.use_again(&files);
    bench.has_its_data(&files);
    bench.put_away(&files);
    for (id, written) in &tenants {
        bench.csi(async |csi| {
            csi.stage(id, Use::Block).await.unwrap();
            csi.publish(id, Use::Block).await.unwrap();
        });
        untouched(bench, id);
        assert_eq!(sum(bench, id), *written, "the host wrote to the volume {id}");
    }
    bench.csi(async |csi| {
        for id in &all {
            csi.unpublish(id).await.unwrap();
            csi.unstage(id).await.unwrap();
            csi.delete(id).await.unwrap();
        }
    });
    bench.eventually("all of it is erased, and free again", |bench| {
        let now = room(bench);
        if now == before { Ok(()) } else { Err(format!("{now:?} bytes are free, and were {before:?}")) }
    });
}

/// The host has nothing over the volume's device, and no link that goes by what is in it.
fn untouched(bench: &mut Bench, id: &str) {
    bench.guest.run(&format!(
        "D=$(lsblk -dno PATH {}); H=$(ls /sys/class/block/${{D#/dev/}}/holders); [[ -z $H ]] || {{ echo $D is held by $H; exit 1; }}
         for link in /dev/disk/by-{{uuid,label}}/*; do [[ $(readlink -f $link) != $D ]] || {{ echo $link leads to $D; exit 1; }}; done",
        target(id)
    ));
}

/// What classes have left.
fn room(bench: &mut Bench) -> [i64; 2] {
    bench.csi(async |csi| {
        [csi.capacity(LABELLED, Use::Ext4).await.unwrap(), csi.capacity(BARE, Use::Ext4).await.unwrap()]
    })
}

/// Of the first and the last bytes, where everybody writes what he is.
fn sum(bench: &mut Bench, id: &str) -> String {
    bench.guest.run(&format!("{{ head -c 8M {0}; tail -c 8M {0}; }} | sha256sum", target(id)))
}
