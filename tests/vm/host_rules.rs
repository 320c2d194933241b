//! The rules of `localpool udev-rules` on a host that boots: what tenants wrote into their volumes is not started, and
//! names nothing of the host.

use crate::bench::Bench;
use crate::csi::{Use, target};
use crate::guest::LIMIT;
use crate::hotplug::await_ours;
use crate::report::Report;
use crate::volumes::Volume;

/// A disk, and the set of its own.
const NAME: &str = "hot-scsi";
const RULES: &str = "/etc/udev/rules.d";

pub fn check(bench: &mut Bench, report: &mut Report) {
    let name = "with the udev rules a boot starts no tenant's array or volume group, and links the host's own root";
    if !report.wants(name) {
        return;
    }
    if !bench.guest.is_own() {
        return report.skipped(name, "the guest is kept up by another run");
    }
    report.check(name, || boots(bench));
    // Also where it ended early.
    let end = format!("rm -f {RULES}/*localpool*; mdadm --stop --scan --quiet || true; udevadm control --reload");
    let _ = bench.guest.try_run(&end, LIMIT);
}

fn boots(bench: &mut Bench) {
    await_ours(bench, NAME);
    let [group, array, root] = ["group", "array", "root"].map(|what| made(bench, what));
    // A tenant has these made by its own tools, on its own kernel: nothing of it runs here when the machine goes down.
    bench.guest.run(&format!(
        "pvcreate -q {0}; vgcreate -q stolenvg {0}; lvcreate -q -y -Zn -l 50%FREE -n data stolenvg; vgchange -q -an stolenvg
         mdadm --quiet --create /dev/md/stolen --metadata=1.2 --level=1 --raid-devices=1 --force --run {1}
         mdadm --quiet --stop /dev/md/stolen
         mkfs.ext4 -q -F -L guest-root -U \"$(findmnt -no UUID /)\" {2}
         /opt/localpool udev-rules --install-in {RULES}; sync",
        target(&group),
        target(&array),
        target(&root)
    ));
    let (uuid, node) = (
        bench.guest.run("findmnt -no UUID /").trim().to_owned(),
        bench.guest.run("readlink -f \"$(findmnt -no SOURCE /)\"").trim().to_owned(),
    );
    bench.boot_again(<[_]>::to_vec);
    bench.guest.run("udevadm settle");
    let started = bench.guest.run("dmsetup ls | grep stolen || true; ls /dev/md/*stolen* 2>/dev/null || true");
    assert_eq!(started, "", "what a tenant wrote was started by the host");
    for link in [format!("by-uuid/{uuid}"), "by-label/guest-root".to_owned()] {
        let linked = bench.guest.run(&format!("readlink -f /dev/disk/{link}"));
        assert_eq!(linked.trim(), node, "/dev/disk/{link}");
    }
    await_ours(bench, NAME);
    for id in [group, array, root] {
        bench.csi(async |csi| {
            csi.unpublish(&id).await.unwrap();
            csi.unstage(&id).await.unwrap();
            csi.delete(&id).await.unwrap();
        });
    }
}

/// A raw block volume in use.
fn made(bench: &mut Bench, what: &str) -> String {
    let Volume { id, .. } = bench.volume(&format!("tenants-{what}"), NAME, 64, Use::Block);
    id
}
