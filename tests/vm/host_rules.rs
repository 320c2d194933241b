//! A host that boots as docs/hosts.md advises. For labelled disks, only the rules of `localpool udev-rules` keep it off
//! what tenants wrote: its lists of groups and arrays name the tenants' too. No rule knows bare devices: there these
//! lists do it, and the fact that the host finds its own filesystem by the hardware.

use crate::bench::Bench;
use crate::csi::{Use, target};
use crate::disks::{Bus, Disk};
use crate::guest::LIMIT;
use crate::hotplug::await_ours;
use crate::report::Report;
use crate::volumes::Volume;

/// A labelled disk that the guest's initramfs does not see; its set has the same name.
const LABELLED: &str = "hot-nvme";
/// The set of the disks that are used as bare devices.
const BARE: &str = "host-rules";
/// A disk of the host's own with two filesystems. It comes when all others are there, so a copy of it would come first.
const OWN: &str = "host-own";
const RULES: &str = "/etc/udev/rules.d/60-localpool.rules";
const FILES: &str = "/etc/lvm/lvmlocal.conf /etc/mdadm/mdadm.conf /etc/fstab";

/// What a tenant writes to the device `D`. The tenant's own machine does it: nothing of it runs here.
struct Tenant {
    name: &'static str,
    class: &'static str,
    mib: u64,
    make: &'static str,
}

const fn labelled(name: &'static str, make: &'static str) -> Tenant {
    Tenant { name, class: LABELLED, mib: 64, make }
}

const fn bare(name: &'static str, make: &'static str) -> Tenant {
    Tenant { name, class: BARE, mib: 950, make }
}

/// Group and array of a labelled volume are among those that the host starts, as if they were its own.
const TENANTS: [Tenant; 7] = [
    labelled("group", "group tenantsvg"),
    labelled("array", "array tenants; mdadm --examine --brief $D >>/etc/mdadm/mdadm.conf"),
    labelled("root", "mkfs.ext4 -q -F -L $(findmnt -no LABEL /) -U $(findmnt -no UUID /) $D"),
    labelled("filesystem", "dd if=${OWN}1 of=$D bs=1M conv=fsync,notrunc status=none"),
    bare("bare-group", "group barevg"),
    bare("bare-array", "array bare"),
    // Its partition has the PARTUUID of the host's partition.
    bare(
        "bare-disk",
        "dd if=$OWN of=$D bs=1M conv=fsync,notrunc status=none; sfdisk --quiet --no-reread --no-tell-kernel --delete $D 1",
    ),
];

const TOOLS: &str = r#"
    group() { pvcreate -q $D; vgcreate -q $1 $D; lvcreate -q -y -Zn -l 50%FREE -n data $1; vgchange -q -an $1; }
    array() {
        mdadm --quiet --create /dev/md/$1 --metadata=1.2 --level=1 --raid-devices=1 --force --run $D
        udevadm settle; mdadm --quiet --stop /dev/md/$1
    }
"#;

/// What is the host's own, and what its configuration starts. Its array is found by a member: if the initramfs starts
/// it after a power cut, it has another name than when it was made.
const OWNS: &str = r##"
    HOLDERS=/sys/class/block/$(basename $(disk md-a))/holders
    for try in {1..200}; do [[ -z $(ls $HOLDERS) ]] || break; sleep 1; done
    printf 'label: gpt\nsize=24M\nsize=24M\n' | sfdisk --quiet --wipe=always --wipe-partitions=always $OWN; udevadm settle
    for part in 1 2; do mkfs.ext4 -q -F ${OWN}$part; done; udevadm settle; mkdir -p /mnt/own-by-{uuid,hardware}
    # The disk is plugged in when the guest is up, which takes minutes beside other work.
    OPTIONS=nofail,x-systemd.device-timeout=1200
    for file in $FILES; do echo '# Of the check' >>$file; done
    echo 'activation { auto_activation_volume_list = [ "guestvg", "tenantsvg" ] }' >>/etc/lvm/lvmlocal.conf
    lvmconfig activation/auto_activation_volume_list | grep -q guestvg
    UUID=$(mdadm --detail /dev/$(ls $HOLDERS) | awk '$1 == "UUID" {print $3}')
    printf 'ARRAY /dev/md/running UUID=%s\nAUTO -all\n' $UUID >>/etc/mdadm/mdadm.conf
    echo "UUID=$(blkid -p -o value -s UUID ${OWN}1) /mnt/own-by-uuid ext4 $OPTIONS 0 0
$(ls /dev/disk/by-id/usb-*host-own*-part2) /mnt/own-by-hardware ext4 $OPTIONS 0 0" >>/etc/fstab
"##;

/// A volume of a tenant.
struct Written {
    tenant: &'static Tenant,
    id: String,
    /// The serial of its device, if that is bare.
    serial: Option<String>,
    sum: String,
}

/// What exists after the boot.
struct Scene {
    room: [i64; 2],
    files: Volume,
    written: Vec<Written>,
}

type CheckFn = fn(&mut Bench, &Scene);

const CHECKS: [(&str, CheckFn); 4] = [
    (
        "with the udev rules alone a boot starts no group or array of labelled volumes, and goes by no UUID in them",
        labelled_are_let_be,
    ),
    (
        "with lists of groups and arrays, and a mount by the hardware, a boot uses nothing that is in bare volumes",
        bare_are_let_be,
    ),
    (
        "with the filter of LVM, vgs and vgchange see no group of labelled volumes, and all of the host's own",
        lvm_sees_only_the_hosts_own,
    ),
    ("after a boot beside them, volumes have each byte that tenants wrote, and all of it is erased", all_is_erased),
];

fn disks() -> Vec<Disk> {
    let bare = (1..=3).map(|number| Disk::new(&format!("{BARE}-{number}"), Bus::Scsi).mib(1000));
    bare.chain([Disk::new(OWN, Bus::Usb).mib(64).used()]).collect()
}

pub fn check(bench: &mut Bench, report: &mut Report) {
    if !CHECKS.iter().any(|(name, _)| report.wants(name)) {
        return;
    }
    if !bench.guest.is_own() {
        return CHECKS.iter().for_each(|(name, _)| report.skipped(name, "the guest is kept up by another run"));
    }
    let disks = disks();
    for disk in &disks {
        bench.guest.add_drive(disk);
        bench.guest.plug(disk);
    }
    let (mut scene, mut volumes) = (None, Vec::new());
    for (name, look) in CHECKS {
        report.check(name, || {
            let scene = scene.get_or_insert_with(|| boots(bench, &disks, &mut volumes));
            look(bench, scene);
        });
    }
    // Also if it ended early.
    let end = format!(
        "set +e; sed -i '/^# localpool: begin/,/^# localpool: end/d' /etc/lvm/lvmlocal.conf
         umount /mnt/own-by-uuid /mnt/own-by-hardware; vgchange -q -an tenantsvg barevg
         for array in /dev/md/*tenants* /dev/md/*bare*; do mdadm --quiet --stop $array; done
         rm -f {RULES}; sed -i '/^# Of the check/,$d' {FILES}; systemctl daemon-reload; udevadm control --reload; udevadm settle; sync"
    );
    let _ = bench.guest.try_run(&end, LIMIT);
    bench.csi(async |csi| {
        for id in &volumes {
            let _ = csi.unpublish(id).await;
            let _ = csi.unstage(id).await;
            let _ = csi.delete(id).await;
        }
    });
    for disk in &disks {
        if disk.name != OWN {
            bench.take_out(disk);
        } else if bench.guest.try_run(&format!("disk {OWN}"), LIMIT).is_ok() {
            bench.guest.unplug(disk);
            bench.guest.remove_drive(disk);
        }
    }
}

fn boots(bench: &mut Bench, disks: &[Disk], volumes: &mut Vec<String>) -> Scene {
    let is_bare = |disk: &&Disk| disk.name != OWN;
    let of_pool = || [LABELLED].into_iter().chain(disks.iter().filter(is_bare).map(|disk| disk.name.as_str()));
    of_pool().for_each(|disk| await_ours(bench, disk));
    bench.guest.run(&format!(
        "/opt/localpool udev-rules --install-in $(dirname {RULES}) >/dev/null; udevadm control --reload
         FILES='{FILES}' OWN=$(disk {OWN}); {OWNS}"
    ));
    let room = room(bench);
    let files = bench.volume("tenants-files", LABELLED, 64, Use::Ext4);
    volumes.push(files.id.clone());
    let mut written = Vec::new();
    for tenant in &TENANTS {
        let id = bench.volume(&format!("tenants-{}", tenant.name), tenant.class, tenant.mib, Use::Block).id;
        volumes.push(id.clone());
        let node = format!("D=$(lsblk -dno PATH {})", target(&id));
        bench.guest.run(&format!("{TOOLS} OWN=$(disk {OWN}); {node}; {}; udevadm settle; sync", tenant.make));
        let serial = (tenant.class == BARE).then(|| {
            let serial = bench.guest.run(&format!("{node}; disk | awk -v D=$D '$2 == D {{print $1}}'"));
            serial.trim().to_owned()
        });
        let sum = sum(bench, &id);
        written.push(Written { tenant, id, serial, sum });
    }
    bench.guest.run("sync");
    let idle = bench.idle();
    let is_needed = |disk: &&Disk| idle.iter().all(|idle| idle.name != disk.name);
    bench.boot_again(|all| all.iter().filter(is_needed).chain(disks.iter().filter(is_bare)).cloned().collect());
    // Once the host's own group and array are there, so is everything else that it starts by itself.
    bench.guest.run(
        "for try in {1..200}; do [[ -e /dev/guestvg/blank && -e /dev/md/running ]] && udevadm settle && exit; sleep 1; done
         echo the volume group and the array of the host itself are not started; exit 1",
    );
    for disk in disks.iter().filter(|disk| !is_bare(disk)) {
        bench.guest.add_drive(disk);
        bench.guest.plug(disk);
    }
    bench.guest.run(
        "for try in {1..200}; do findmnt /mnt/own-by-uuid && findmnt /mnt/own-by-hardware && exit; sleep 1; done
         echo the filesystems of the host itself are not mounted; exit 1",
    );
    Scene { room, files, written }
}

fn labelled_are_let_be(bench: &mut Bench, scene: &Scene) {
    let mut wrong = used_by_host(bench, scene, LABELLED);
    wrong += &bench.guest.run(&format!(
        "OWN=$(disk {OWN}); lead() {{ [[ $(readlink -f $1) == $2 ]] || echo \"$1 leads to $(readlink -f $1), and not to $2\"; }}
         ROOT=$(findmnt -no SOURCE /); lead /dev/disk/by-uuid/$(findmnt -no UUID /) $ROOT; lead /dev/disk/by-label/$(findmnt -no LABEL /) $ROOT
         lead /dev/disk/by-uuid/$(blkid -p -o value -s UUID ${{OWN}}1) ${{OWN}}1
         S=$(findmnt -no SOURCE /mnt/own-by-uuid); [[ $S == ${{OWN}}1 ]] || echo \"$S is mounted by its UUID, and not ${{OWN}}1\""
    ));
    assert!(wrong.is_empty(), "{wrong}");
}

fn bare_are_let_be(bench: &mut Bench, scene: &Scene) {
    let mut wrong = used_by_host(bench, scene, BARE);
    wrong += &bench.guest.run(&format!(
        "S=$(findmnt -no SOURCE /mnt/own-by-hardware); [[ $S == $(disk {OWN} 2) ]] || echo \"$S is mounted by the hardware, and not that of {OWN}\""
    ));
    assert!(wrong.is_empty(), "{wrong}");
}

fn lvm_sees_only_the_hosts_own(bench: &mut Bench, scene: &Scene) {
    let groups = |bench: &mut Bench| bench.guest.run("vgs --noheadings -o vg_name | sort | xargs");
    assert!(groups(bench).contains("tenantsvg"), "LVM sees it by itself, whatever udev has of it");
    bench.guest.run("/opt/localpool lvm-filter --install-in /etc/lvm");
    let seen = groups(bench);
    assert!(seen.contains("guestvg") && !seen.contains("tenantsvg"), "{seen}");
    bench
        .guest
        .run("if vgchange -q -ay tenantsvg; then echo it starts the group of a tenant; exit 1; fi; udevadm settle");
    let wrong = used_by_host(bench, scene, LABELLED);
    assert!(wrong.is_empty(), "{wrong}");
}

fn all_is_erased(bench: &mut Bench, scene: &Scene) {
    let Scene { room: before, files, written } = scene;
    await_ours(bench, LABELLED);
    for serial in written.iter().filter_map(|written| written.serial.as_ref()) {
        await_ours(bench, serial);
    }
    let all: Vec<&String> = [&files.id].into_iter().chain(written.iter().map(|written| &written.id)).collect();
    bench.csi(async |csi| {
        let listed = csi.list().await;
        for id in &all {
            assert!(listed.get(*id).is_some_and(|condition| !condition.abnormal), "{id}: {listed:?}");
            // Its pod has ended with the machine.
            csi.unpublish(id).await.unwrap();
            csi.unstage(id).await.unwrap();
        }
    });
    bench.use_again(files);
    bench.has_its_data(files);
    bench.put_away(files);
    for Written { tenant, id, sum: before, .. } in written {
        bench.csi(async |csi| {
            csi.stage(id, Use::Block).await.unwrap();
            csi.publish(id, Use::Block).await.unwrap();
        });
        assert_eq!(sum(bench, id), *before, "the host wrote to the volume {}", tenant.name);
    }
    let wrong = used_by_host(bench, scene, LABELLED) + &used_by_host(bench, scene, BARE);
    assert!(wrong.is_empty(), "{wrong}");
    bench.csi(async |csi| {
        for id in &all {
            csi.unpublish(id).await.unwrap();
            csi.unstage(id).await.unwrap();
            csi.delete(id).await.unwrap();
        }
    });
    bench.eventually("all of it is erased, and free again", |bench| {
        let now = self::room(bench);
        if now == *before { Ok(()) } else { Err(format!("{now:?} bytes are free, and were {before:?}")) }
    });
}

/// What the host has over the volumes of a class, and, where the rules apply, the links by their content; a line each.
fn used_by_host(bench: &mut Bench, scene: &Scene, class: &str) -> String {
    let look = |written: &Written| match &written.serial {
        None => format!(
            "look {} $(readlink -e /dev/disk/by-partuuid/{}) by-uuid by-label\n",
            written.tenant.name, written.id
        ),
        Some(serial) => format!("look {} $(disk {serial})\n", written.tenant.name),
    };
    let looks: String = scene.written.iter().filter(|written| written.tenant.class == class).map(look).collect();
    bench.guest.run(&format!(
        "look() {{
             local tenant=$1 name=${{2#/dev/}}; shift 2
             for sys in /sys/class/block/$name /sys/class/block/$name/$name*; do
                 [[ -e $sys/holders ]] || continue
                 for by in $(ls $sys/holders); do echo \"$tenant: ${{sys##*/}} is held by $by\"; done
                 for on in $(findmnt -rno TARGET -S /dev/${{sys##*/}}); do echo \"$tenant: ${{sys##*/}} is mounted on $on\"; done
             done
             for by; do for link in /dev/disk/$by/*; do
                 [[ $(readlink -f $link) != /dev/$name ]] || echo \"$tenant: $link leads to $name\"
             done; done
         }}
         {looks}"
    ))
}

/// What classes can still offer.
fn room(bench: &mut Bench) -> [i64; 2] {
    bench.csi(async |csi| {
        [csi.capacity(LABELLED, Use::Ext4).await.unwrap(), csi.capacity(BARE, Use::Ext4).await.unwrap()]
    })
}

/// The checksum of the first and the last bytes, where all formats have their signature.
fn sum(bench: &mut Bench, id: &str) -> String {
    bench.guest.run(&format!("{{ head -c 8M {0}; tail -c 8M {0}; }} | sha256sum", target(id)))
}
