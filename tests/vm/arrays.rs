//! Arrays that the agent makes of the disks of a set: by the kernel's md, with what udev does meanwhile.

use crate::bench::Bench;
use crate::csi::Use;
use crate::disks::{Bus, Disk};
use crate::report::Report;
use crate::volumes::Volume;

/// The disks of the array of two, which is carved, and of the array of one, whose volumes are folders; each array has a
/// set of its own.
const TWO: [&str; 2] = ["array-two-a", "array-two-b"];
const ONE: &str = "array-one";
pub const SETS: [&str; 2] = ["array-two", "array-one"];
/// It is gone after a power cut.
const MARK: &str = "/run/arrays-were-checked";

pub fn disks() -> Vec<Disk> {
    // The array of two has a part that is on one of them alone.
    let mib = |name| if name == TWO[1] { 1280 } else { 1024 };
    TWO.into_iter().chain([ONE]).map(|name| Disk::new(name, Bus::Scsi).mib(mib(name))).collect()
}

pub fn check(bench: &mut Bench, report: &mut Report) -> Vec<Volume> {
    let mut volumes = Vec::new();
    report.check("the disks of a set become one array, also if it is one disk, and its volumes are used", || {
        bench.guest.run(&format!("touch {MARK}"));
        for set in SETS {
            await_array(bench, set);
            let usage = if set == ONE { Use::Xfs } else { Use::Ext4 };
            volumes.push(bench.volume(&format!("kept-{set}"), set, 100, usage));
        }
        let levels = bench.guest.run("cat /sys/block/md*/md/level | sort | uniq -c");
        assert!(levels.contains("raid0"), "{levels}");
    });
    report.check(
        "the filesystem of an array is mounted at a path of the node, and stays there while the agent restarts",
        || {
            let at = await_mount(bench);
            let name = at.strip_prefix("/mnt/raid-disks/").unwrap().to_owned();
            assert!(name.starts_with("gpt-"), "{at}");
            bench.guest.run(&format!("test -z \"$(ls -A {at})\"; echo kept > {at}/file; sync"));
            bench.stop_driver();
            bench.guest.run(&format!("grep kept {at}/file"));
            assert_eq!(await_mount(bench), at);
            bench.guest.run(&format!("grep kept {at}/file; test $(grep -c ' {at} ' /proc/mounts) = 1"));
            // Nothing gets below it while it is not mounted, and the agent mounts it again.
            bench.stop_driver();
            bench.guest.run(&format!("umount {at}; ! touch {at}/file"));
            assert_eq!(await_mount(bench), at);
            bench.guest.run(&format!("grep kept {at}/file"));
        },
    );
    report.check("what is made on an array of two disks has its stripes", || {
        await_array(bench, "array-two");
        let two = volumes.first().expect("its volume");
        bench.put_away(two);
        // XFS on less than 1 GiB has none.
        let ask = "udevadm settle; mkfs.ext4 -n -v -F -b 4096 /dev/disk/by-partuuid";
        let said = bench.guest.run(&format!("{ask}/{}", two.id));
        assert!(said.contains("Stride=128 blocks, Stripe width=256 blocks"), "{said}");
        bench.use_again(two);
    });
    report.check("a superblock that a tenant writes into a volume is no member of an array", || {
        await_array(bench, "array-two");
        hostile(bench);
    });
    report.check("an array that somebody stopped is started again, with its volumes", || {
        volumes.iter().for_each(|volume| bench.put_away(volume));
        stop(bench);
        bench.driver();
        have_their_data(bench, &volumes);
    });
    report.check("an array that somebody started under another name is the same array", || {
        volumes.iter().for_each(|volume| bench.put_away(volume));
        stop(bench);
        let [a, b] = TWO;
        bench.guest.run(&format!("mdadm --assemble /dev/md/elsewhere $(disk {b} 2) $(disk {a} 2); udevadm settle"));
        have_their_data(bench, &volumes);
    });
    report.check("an array that lost a member in use is started again when the member is back", || {
        let away = disks().remove(1);
        bench.guest.unplug(&away);
        bench.eventually("the agent says which member is missing", says_what_is_missing);
        volumes.iter().for_each(|volume| bench.put_away(volume));
        bench.guest.plug(&away);
        have_their_data(bench, &volumes);
    });
    volumes
}

/// Ends the driver, and the array of two.
fn stop(bench: &mut Bench) {
    let md = await_array(bench, "array-two");
    bench.stop_driver();
    bench.guest.run(&format!("udevadm settle; mdadm --stop {md}; udevadm settle"));
}

fn have_their_data(bench: &mut Bench, volumes: &[Volume]) {
    SETS.into_iter().for_each(|set| drop(await_array(bench, set)));
    for volume in volumes {
        bench.use_again(volume);
        bench.has_its_data(volume);
    }
}

/// Waits until the node has the filesystem of the array of one mounted; gives where.
fn await_mount(bench: &mut Bench) -> String {
    await_array(bench, ONE);
    bench.eventually("the filesystem of the array is mounted for the node", |bench| {
        let mounted = bench.guest.run("awk '$2 ~ \"^/mnt/raid-disks/\" {print $2}' /proc/mounts");
        match mounted.trim() {
            "" => Err(bench.guest.run("/opt/localpool devices --node-name guest -o wide")),
            at => Ok(at.to_owned()),
        }
    })
}

fn says_what_is_missing(bench: &mut Bench) -> Result<(), String> {
    let said = bench.guest.run("/opt/localpool devices --node-name guest -o wide");
    let is_said = said.contains("needs all of its members") || said.contains("misses member");
    if is_said { Ok(()) } else { Err(said) }
}

/// The disks are on other buses, perhaps. Then one of them is away, and back.
pub fn check_after_power_cut(bench: &mut Bench, report: &mut Report, volumes: &[Volume]) {
    let name = "after a power cut arrays are started with what is on them, and wait for a member that is missing";
    let was_cut = |bench: &mut Bench| bench.guest.run(&format!("test -e {MARK} || echo cut")).contains("cut");
    if report.wants(name) && !bench.guest.is_own() && !was_cut(bench) {
        return report.skipped(name, "the guest is kept up by another run");
    }
    report.check(name, || {
        // In a run of all checks it was cut by another one.
        if !was_cut(bench) {
            bench.boot_again(<[Disk]>::to_vec);
        }
        have_their_data(bench, volumes);
        let at = await_mount(bench);
        bench.guest.run(&format!("grep kept {at}/file"));
        volumes.iter().for_each(|volume| bench.put_away(volume));
        stop(bench);
        let away = Disk { bus: Bus::Scsi, ..disks().remove(1) };
        bench.guest.unplug(&away);
        bench.driver();
        bench.eventually("the agent says which member is missing", says_what_is_missing);
        // The kernel names an array and its members as they are in /dev.
        let here = TWO[0];
        bench
            .guest
            .run(&format!("! grep \"active .*raid0.* $(basename $(readlink -f $(disk {here} 2)))\\[\" /proc/mdstat"));
        bench.guest.plug(&away);
        have_their_data(bench, volumes);
        volumes.iter().for_each(|volume| bench.put_away(volume));
    });
    report.check(
        "an array is released from the top down, and its disks are blank then and free to be taken again",
        || {
            for volume in volumes {
                bench.csi(async |csi| csi.delete(&volume.id).await.unwrap());
            }
            let md = await_array(bench, "array-two");
            let member = bench.guest.run(&format!("disk {}", TWO[0]));
            let refused = format!("/opt/localpool disk release {} 2>&1 || true", member.trim());
            let said = bench.guest.run(&refused);
            assert!(said.contains("release the array itself first"), "{said}");
            bench.release(&md);
            bench.release(member.trim());
            bench.guest.run(&format!("udevadm settle; ! test -e {md}"));
            TWO.into_iter().for_each(|name| is_blank(bench, name));
            take_again(bench);
        },
    );
    report.check(
        "a member that is lost for good is given up, and the other one is free after that, and the lost one when it is back",
        || {
            await_array(bench, "array-two");
            let [here, away] = [0, 1].map(|at| disks().remove(at));
            let [id, lost] = [&here, &away].map(|disk| disk_id(bench, disk));
            bench.guest.unplug(&away);
            bench.eventually("the agent says which member is missing", says_what_is_missing);
            let said = bench.guest.run(&format!("/opt/localpool disk release {id} 2>&1 || true"));
            assert!(said.contains("if they are lost for good"), "{said}");
            bench.guest.run(&format!("/opt/localpool disk give-up {lost}"));
            unplug_what_may_be_a_member(bench, &id);
            bench.release(&id);
            is_blank(bench, TWO[0]);
            bench.guest.plug(&away);
            bench.release(&lost);
            is_blank(bench, TWO[1]);
            take_again(bench);
        },
    );
}

/// A disk of another check, whose label is damaged, may be the lost member where it says less of itself than that did: it
/// is unplugged, as the message says, like by `echo 1 >/sys/block/NAME/device/delete`.
fn unplug_what_may_be_a_member(bench: &mut Bench, id: &str) {
    bench.guest.run(&format!(
        "for try in {{1..9}}; do
             said=$(/opt/localpool disk release --dry-run {id} 2>&1) && exit
             name=$(sed -n 's|.*/dev/\\([a-z0-9]*\\) may be a member of its array.*unplug it if it is not.*|\\1|p' <<<$said)
             [[ $name ]] || {{ sleep 2; continue; }}
             case $name in
             sd*) echo 1 >/sys/block/$name/device/delete ;;
             nvme*) echo 1 >/sys/block/$name/device/device/remove ;;
             vd*) at=$(readlink -f /sys/block/$name/device); basename $at >/sys/bus/virtio/drivers/virtio_blk/unbind ;;
             esac
             udevadm settle
         done
         echo \"$said\"; exit 1"
    ));
}

fn is_blank(bench: &mut Bench, name: &str) {
    let said = bench
        .guest
        .run(&format!("udevadm settle; wipefs --no-act $(disk {name}); cmp --bytes=6M $(disk {name}) /dev/zero"));
    assert_eq!(said, "", "{name} is blank");
}

/// The set makes an array of its disks again, which were released.
fn take_again(bench: &mut Bench) {
    for name in TWO {
        bench.guest.run(&format!("/opt/localpool disk adopt $(disk {name})"));
    }
    await_array(bench, "array-two");
}

fn disk_id(bench: &mut Bench, disk: &Disk) -> String {
    let devices = bench.devices();
    let device = devices.iter().find(|device| device["serial"] == disk.serial.as_str());
    device.and_then(|device| device["diskId"].as_str()).expect("it is a disk of the pool").to_owned()
}

/// Waits until the array of a set is a disk of the pool; gives its node.
fn await_array(bench: &mut Bench, set: &str) -> String {
    bench.driver();
    let of = format!("vm/{set}");
    bench.eventually(&format!("the array of {set} is in the pool"), |bench| {
        let devices = bench.devices();
        let is_its = |device: &&serde_json::Value| device["set"] == of.as_str();
        let array = devices.iter().filter(is_its).find(|device| device["type"] == "raid");
        match array {
            Some(array) if array["verdict"] == "Ours" => Ok(array["path"].as_str().unwrap().to_owned()),
            _ => {
                let about = devices.iter().filter(|device| {
                    is_its(device)
                        || device["type"] == "raid"
                        || device["serial"].as_str().unwrap_or("").contains("array-")
                });
                Err(format!("{:?}", about.map(|device| device.to_string()).collect::<Vec<_>>()))
            }
        }
    })
}

/// A copy of a member's superblock in a volume, and an array that is built on that volume.
fn hostile(bench: &mut Bench) {
    let id = bench.csi(async |csi| {
        let id = csi.create("array-hostile", "hot-scsi", 64, Use::Block).await.unwrap();
        csi.stage(&id, Use::Block).await.unwrap();
        csi.publish(&id, Use::Block).await.unwrap();
        id
    });
    let volume = crate::csi::target(&id);
    let before = bench.devices();
    bench.guest.run(&format!(
        "dd if=$(disk {ONE} 2) of={volume} bs=4096 skip=1 seek=1 count=1 conv=fsync,notrunc status=none
         mdadm --incremental $(readlink -f {volume}) 2>/dev/null || true; udevadm settle"
    ));
    let verdicts = |devices: Vec<serde_json::Value>| -> Vec<String> {
        let ours = devices.into_iter().filter(|device| device["verdict"] == "Ours" && device["type"] == "raid");
        ours.map(|device| device["path"].as_str().unwrap().to_owned()).collect()
    };
    let (before, after) = (verdicts(before), verdicts(bench.devices()));
    assert_eq!(before, after, "no array more is ours, and none less");
    bench
        .guest
        .run(&format!("dd if=/dev/zero of={volume} bs=1M count=1 conv=fsync,notrunc status=none; udevadm settle"));
    bench.csi(async |csi| {
        csi.unpublish(&id).await.unwrap();
        csi.unstage(&id).await.unwrap();
        csi.delete(&id).await.unwrap();
    });
}
