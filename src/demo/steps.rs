//! What the demo shows, in order.

use std::fs;
use std::time::{Duration, Instant};

use super::driver::{self, Clients, Driver, call};
use super::error::DemoError;
use super::lab::Lab;
use super::report::Report;
use super::volumes::{DemoVolume, Growth, StepDone, VolumeKind};
use crate::device::Size;
use crate::host::{FsKind, TimedCommand};
use crate::rpc::proto::{ControllerGetVolumeRequest, GetCapacityRequest, ListVolumesRequest};

const MIB: u64 = 1 << 20;
const DEVICES_MAY_TAKE: Duration = Duration::from_secs(30);
const CLAIMS_WITHIN: Duration = Duration::from_secs(20);
const ERASES_WITHIN: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// A disk for each layout: name, size, and the partitioning of its set.
const DISKS: [(&str, u64, &str); 3] = [
    ("whole", 1024 * MIB, ""),
    ("slots", 2048 * MIB, "  partitioningSpec: {count: 4}\n"),
    ("carved", 4096 * MIB, "  partitioningSpec: {mode: Dynamic}\n"),
];

const NEIGHBOURS: [&str; 3] = ["neighbour-1", "neighbour-2", "neighbour-3"];

const CARVED: VolumeKind = VolumeKind {
    label: "",
    disk: 2,
    class: "demo-carved",
    fs: None,
    size: 256 * MIB,
    grow_to: 384 * MIB,
    how: "carved to size",
};

/// Block, ext4 and xfs on the layout where volumes grow, and a filesystem on each layout with fixed sizes.
const KINDS: [VolumeKind; 5] = [
    VolumeKind { label: "carved-block", ..CARVED },
    VolumeKind { label: "carved-ext4", fs: Some(FsKind::Ext4), ..CARVED },
    VolumeKind { label: "carved-xfs", fs: Some(FsKind::Xfs), size: 320 * MIB, grow_to: 448 * MIB, ..CARVED },
    VolumeKind {
        label: "slots-ext4",
        disk: 1,
        class: "demo-slots",
        fs: Some(FsKind::Ext4),
        size: 300 * MIB,
        grow_to: 400 * MIB,
        how: "took a free slot",
    },
    VolumeKind {
        label: "whole-xfs",
        disk: 0,
        class: "demo-whole",
        fs: Some(FsKind::Xfs),
        size: 512 * MIB,
        grow_to: 900 * MIB,
        how: "took a whole disk",
    },
];

/// Everything from the first disk to the end of the driver. The lab's owner takes the lab down.
pub async fn run(lab: &mut Lab, report: &mut Report) -> Result<(), DemoError> {
    let begun = Instant::now();
    for (name, size, _) in DISKS {
        lab.attach(name, size)?;
    }
    let names: Vec<String> =
        lab.disks().iter().map(|d| format!("{} ({})", d.path().display(), Size(d.size()))).collect();
    report.done("make disks", None, &names.join(", "), "three sparse loop disks", begun.elapsed());
    fs::write(driver::sets(lab), sets(lab)).map_err(DemoError::io("write", driver::sets(lab).display()))?;
    report.before = devices(lab)?;

    let begun = Instant::now();
    let (driver, mut clients) = Driver::start(lab).await?;
    let capacity = claimed(&mut clients).await?;
    let free = format!("pid {}, {} available", driver.pid(), Size(capacity.iter().sum()));
    report.done("start the driver", None, &free, "three disks claimed, one by each set", begun.elapsed());

    let mut volumes = create(&mut clients, lab, report).await?;
    put_to_use(&mut clients, lab, report, &mut volumes).await?;
    let (driver, mut clients) = kill_and_restart(driver, lab, report, &volumes).await?;
    take_away(&mut clients, lab, report, &mut volumes).await?;
    erased(&mut clients, lab, report, &volumes, &capacity).await?;
    report.after = devices(lab)?;

    let begun = Instant::now();
    driver.stop().await?;
    report.done("stop the driver", None, "SIGTERM, exit code 0", "in good order", begun.elapsed());
    Ok(())
}

/// Makes all volumes. A volume that is carved right after another leaves that one no room to grow, so neighbours are
/// made between them, and deleted again.
async fn create(clients: &mut Clients, lab: &Lab, report: &mut Report) -> Result<Vec<DemoVolume>, DemoError> {
    let (mut volumes, mut neighbours) = (Vec::new(), Vec::new());
    for kind in KINDS {
        let disk = &lab.disks()[kind.disk];
        let (volume, done) = DemoVolume::create(clients, disk, kind).await?;
        report_step(report, "CreateVolume", &volume, &done);
        volumes.push(volume);
        if kind.class == CARVED.class {
            let size = kind.grow_to - kind.size;
            let neighbour = VolumeKind { label: NEIGHBOURS[neighbours.len()], size, grow_to: size, ..CARVED };
            neighbours.push(DemoVolume::create(clients, disk, neighbour).await?.0);
        }
    }
    let begun = Instant::now();
    let mut free = available(clients, CARVED.class).await?;
    for neighbour in neighbours {
        neighbour.remove(clients).await?;
        free += neighbour.extent.len();
    }
    wait_for_capacity(clients, CARVED.class, free).await?;
    let gist = "neighbours of the carved volumes deleted and erased: room to grow";
    report.done("make room", None, gist, gist, begun.elapsed());
    Ok(volumes)
}

/// From NodeStageVolume to the growth of each volume, with data on it.
async fn put_to_use(
    clients: &mut Clients,
    lab: &Lab,
    report: &mut Report,
    volumes: &mut [DemoVolume],
) -> Result<(), DemoError> {
    for volume in &mut *volumes {
        let done = volume.stage(clients, lab).await?;
        report_step(report, "NodeStageVolume", volume, &done);
    }
    for volume in &mut *volumes {
        let done = volume.publish(clients, lab).await?;
        report_step(report, "NodePublishVolume", volume, &done);
    }
    for volume in &mut *volumes {
        let done = volume.write(lab)?;
        report_step(report, "write", volume, &done);
    }
    for volume in &*volumes {
        let done = volume.stats(clients, lab).await?;
        report_step(report, "NodeGetVolumeStats", volume, &done);
    }
    for volume in volumes {
        let done = volume.expand(clients, lab).await?;
        volume.use_growth(lab)?;
        report_step(report, "expand", volume, &done);
    }
    Ok(())
}

/// From a look at the data, after the restart, to DeleteVolume of each.
async fn take_away(
    clients: &mut Clients,
    lab: &Lab,
    report: &mut Report,
    volumes: &mut [DemoVolume],
) -> Result<(), DemoError> {
    for volume in &*volumes {
        let done = volume.read_back(lab)?;
        report_step(report, "read back", volume, &done);
    }
    for volume in &*volumes {
        let done = volume.take_down(clients, lab).await?;
        report_step(report, "unpublish, unstage", volume, &done);
    }
    for volume in volumes.iter_mut().filter(|volume| volume.growth != Growth::Done) {
        let done = volume.stage(clients, lab).await?;
        report_step(report, "stage again", volume, &done);
        volume.unstage(clients, lab).await?;
    }
    for volume in volumes {
        let done = volume.delete(clients, &lab.disks()[volume.kind.disk]).await?;
        report_step(report, "DeleteVolume", volume, &done);
    }
    Ok(())
}

fn report_step(report: &mut Report, step: &'static str, volume: &DemoVolume, done: &StepDone) {
    let StepDone { detail, gist, took } = done;
    report.done(step, Some(volume.label()), detail, gist, *took);
}

/// A set for each disk, which takes only that one.
fn sets(lab: &Lab) -> String {
    let set = |(disk, (name, _, partitioning)): (&super::disks::LoopDisk, (&str, u64, &str))| {
        format!(
            "---\napiVersion: local.storage.openshift.io/v1alpha1\nkind: LocalVolumeSet\n\
             metadata: {{name: demo-{name}, namespace: default}}\nspec:\n  storageClassName: demo-{name}\n\
             {partitioning}  deviceInclusionSpec:\n    deviceTypes: [loop]\n    paths: [{:?}]\n",
            disk.image()
        )
    };
    lab.disks().iter().zip(DISKS).map(set).collect()
}

/// What `localpool devices` prints of the demo's disks, and of blank disks beside them, which the demo does not touch.
fn devices(lab: &Lab) -> Result<String, DemoError> {
    let binary = driver::binary()?;
    let command = TimedCommand::new(&binary.display().to_string(), DEVICES_MAY_TAKE);
    let state_dir = driver::state_dir(lab);
    let args = ["devices".as_ref(), "--state-dir".as_ref(), state_dir.as_os_str()];
    let printed = command.args(args).run().map_err(DemoError::host("list the disks"))?.stdout;
    let ours = |line: &&str| {
        let first = line.split_whitespace().next().unwrap_or_default();
        let verdict = line.split("  ").any(|cell| cell.trim() == "Unclaimed");
        first == "DEVICE" || verdict || lab.disks().iter().any(|disk| disk.path().as_os_str() == first)
    };
    Ok(printed.lines().filter(ours).map(|line| format!("{line}\n")).collect())
}

async fn available(clients: &mut Clients, class: &str) -> Result<u64, DemoError> {
    let parameters = [("class".to_owned(), class.to_owned())].into();
    let request = GetCapacityRequest { parameters, ..Default::default() };
    let answer = call("GetCapacity", class, clients.controller.get_capacity(request)).await?;
    u64::try_from(answer.available_capacity).map_err(|_| DemoError::wrong(class, "its capacity is negative"))
}

/// Space that is being erased is not capacity: once it counts, it has been erased.
async fn wait_for_capacity(clients: &mut Clients, class: &str, wanted: u64) -> Result<(), DemoError> {
    let until = Instant::now() + ERASES_WITHIN;
    loop {
        match available(clients, class).await? {
            bytes if bytes == wanted => return Ok(()),
            bytes if Instant::now() >= until => {
                return Err(DemoError::wrong(class, format!("{bytes} bytes to give out, and {wanted} should be")));
            }
            _ => tokio::time::sleep(POLL_INTERVAL).await,
        }
    }
}

/// Waits until each class has its disk; returns the bytes that each offers.
async fn claimed(clients: &mut Clients) -> Result<Vec<u64>, DemoError> {
    let until = Instant::now() + CLAIMS_WITHIN;
    let mut capacity = Vec::new();
    for (name, ..) in DISKS {
        let class = format!("demo-{name}");
        loop {
            match available(clients, &class).await? {
                0 if Instant::now() >= until => return Err(DemoError::wrong(&class, "its disk was not claimed")),
                0 => tokio::time::sleep(POLL_INTERVAL).await,
                bytes => break capacity.push(bytes),
            }
        }
    }
    Ok(capacity)
}

/// SIGKILL while every volume is in use; the next driver finds them all again.
async fn kill_and_restart(
    driver: Driver,
    lab: &Lab,
    report: &mut Report,
    volumes: &[DemoVolume],
) -> Result<(Driver, Clients), DemoError> {
    let old = driver.pid();
    let begun = Instant::now();
    driver.kill()?;
    let (driver, mut clients) = Driver::start(lab).await?;
    let took = begun.elapsed();
    for volume in volumes {
        let request = ControllerGetVolumeRequest { volume_id: volume.id.clone() };
        let answer =
            call("ControllerGetVolume", volume.label(), clients.controller.controller_get_volume(request)).await?;
        let condition = answer.status.and_then(|status| status.volume_condition).unwrap_or_default();
        if condition.abnormal {
            return Err(DemoError::wrong(volume.label(), format!("abnormal after the restart: {}", condition.message)));
        }
    }
    let message = format!("pid {old} killed, pid {} ready, {} volumes known and healthy", driver.pid(), volumes.len());
    report.done("kill -9, restart", None, &message, "all volumes known and healthy again", took);
    Ok((driver, clients))
}

/// Waits until each class offers as much as at first, and reads every range that was a volume.
async fn erased(
    clients: &mut Clients,
    lab: &Lab,
    report: &mut Report,
    volumes: &[DemoVolume],
    capacity: &[u64],
) -> Result<(), DemoError> {
    let list = call("ListVolumes", "the pool", clients.controller.list_volumes(ListVolumesRequest::default())).await?;
    if !list.entries.is_empty() {
        return Err(DemoError::wrong("the pool", format!("it still lists {} volumes", list.entries.len())));
    }
    for ((name, ..), whole) in DISKS.into_iter().zip(capacity) {
        wait_for_capacity(clients, &format!("demo-{name}"), *whole).await?;
    }
    for volume in volumes {
        let begun = Instant::now();
        let content = lab.disks()[volume.kind.disk].content(volume.extent)?;
        if content.not_zero > 0 {
            let message = format!("{} of its bytes are not zero after it was erased", content.not_zero);
            return Err(DemoError::wrong(volume.label(), message));
        }
        let message =
            format!("{} read as zeros, {} of it holes in the image", Size(volume.extent.len()), Size(content.holes));
        report.done("read erased range", Some(volume.label()), &message, "zeros, and capacity again", begun.elapsed());
    }
    Ok(())
}
