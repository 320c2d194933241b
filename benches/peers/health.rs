//! Health: what a checkup of 500 mounted volumes costs, and how long after a disk is gone its volumes'
//! condition says so.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use localpool::host::{DeviceEvent, DeviceEvents, Mounts as _, RealMounts, Roots};

use crate::driver::{Client, Driver, Usage, block_on};
use crate::lab::{Disk, Image, Lab};
use crate::measure::{Aim, Better, Measurement, Report, Samples};
use crate::pace::Size;
use crate::process::processor_time;

const DISKS: u64 = 5;
const VOLUMES: Size = Size { full: 500, short: 10 };
const DISK: Size = Size { full: 2 << 30, short: 256 << 20 };
const VOLUME: u64 = 16 << 20;
const ROUNDS: Size = Size { full: 20, short: 2 };
/// A change of the mount table makes a checkup due a second later; this is enough for it to end.
const ROUND: Duration = Duration::from_secs(3);
/// Of one core: a checkup runs once a minute, so this is a sixth of a per mille.
const COST: f64 = 10.0;
/// The aim for what an event tells.
const SEEN: f64 = 10_000.0;

pub fn measure(lab: &Lab, report: &mut Report) -> Result<()> {
    let disks = lab.disks("pool", DISKS, lab.pace().of(DISK), Image::Allocated)?;
    let driver = Driver::start(lab, disks.len())?;
    let empty = checkups(lab, &driver, &[])?;
    let count = lab.pace().count(VOLUMES);
    let volumes = block_on(mounted(lab, &driver, count))?;
    let targets: Vec<PathBuf> = volumes.iter().map(|(_, target)| target.clone()).collect();
    let full = checkups(lab, &driver, &targets)?;
    for (name, what, cost) in [("0", "no volume", &empty), (&*count.to_string(), "its volumes mounted", &full)] {
        report.add(Measurement {
            name: format!("health-checkup-{name}"),
            what: format!(
                "A checkup of {DISKS} disks with {name} volumes ({what}): processor time of the whole driver"
            ),
            beside: "a loop that reads the mount table once and asks each of these filesystems for its usage"
                .to_owned(),
            unit: "ms",
            ours: cost.ours,
            baseline: cost.limit,
            better: Better::Smaller,
            n: lab.pace().count(ROUNDS),
            aims: vec![Aim::OursAtMost(COST)],
        });
    }
    unplug(lab, report, &disks, &driver, &volumes)?;
    targets.iter().try_for_each(|target| lab.unmount(target))?;
    volumes.iter().try_for_each(|(id, _)| lab.unmount(&Client::staging(lab, id)))
}

/// Mean processor times in milliseconds.
pub struct Cost {
    pub ours: f64,
    pub limit: f64,
}

/// What a checkup costs. The clock of processor time ticks each 10 ms: only the sum of many rounds says something.
pub fn checkups(lab: &Lab, driver: &Driver, targets: &[PathBuf]) -> Result<Cost> {
    let (own, rounds) = (std::process::id(), lab.pace().count(ROUNDS));
    let point = lab.path("mount-table");
    fs::create_dir_all(&point)?;
    let mut ours = Duration::ZERO;
    for _ in 0..rounds {
        let before = processor_time(driver.pid())?;
        let path = point.display().to_string();
        lab.run("mount", &["-t", "tmpfs", "localpool-bench", &path])?;
        lab.unmount(&point)?;
        std::thread::sleep(ROUND);
        ours += processor_time(driver.pid())?.saturating_sub(before);
    }
    let before = processor_time(own)?;
    for _ in 0..rounds {
        let table = RealMounts.table()?;
        ensure!(table.len() >= targets.len(), "the mount table is too short");
        for target in targets {
            RealMounts.usage(target)?;
        }
    }
    let limit = processor_time(own)?.saturating_sub(before);
    let mean = |all: Duration| all.as_secs_f64() * 1e3 / rounds as f64;
    Ok(Cost { ours: mean(ours), limit: mean(limit) })
}

/// Volumes with ext4 where a pod would have them, with their targets.
async fn mounted(lab: &Lab, driver: &Driver, count: usize) -> Result<Vec<(String, PathBuf)>> {
    let client = driver.client().await?;
    let mut volumes = Vec::new();
    for n in 0..count {
        let (id, _) = client.create(&format!("health-{n}"), VOLUME, Usage::Mount).await?;
        let target = client.publish(lab, &id, Usage::Mount).await?;
        volumes.push((id, target));
    }
    Ok(volumes)
}

/// Takes one disk after another away, as a pull does: from one moment to the next it has no sectors.
fn unplug(
    lab: &Lab,
    report: &mut Report,
    disks: &[Disk],
    driver: &Driver,
    volumes: &[(String, PathBuf)],
) -> Result<()> {
    let (mut seen, mut announced) = (Samples::default(), Samples::default());
    for disk in disks {
        // The pool fills one disk after another; the last ones may have none.
        let Some((id, target)) = volumes.iter().find(|(_, target)| is_on(target, disk)) else { continue };
        let events = DeviceEvents::subscribe(&Roots::default())?;
        fs::OpenOptions::new().write(true).open(disk.image())?.set_len(0)?;
        let began = Instant::now();
        lab.run("losetup", &["--set-capacity", disk.text()])?;
        announced.push(announcement(&events, disk, began)?);
        seen.push(block_on(condition(driver, id, target, began))?);
    }
    ensure!(seen.len() > 0, "no disk has a volume");
    report.add(Measurement {
        name: "health-unplug".to_owned(),
        what: format!("From a disk that loses its sectors to NodeGetVolumeStats saying so, {} volumes", volumes.len()),
        beside: "the kernel's event of it in a process that listens for nothing else".to_owned(),
        unit: "ms",
        ours: seen.median(),
        baseline: announced.median(),
        better: Better::Smaller,
        n: seen.len(),
        aims: vec![Aim::OursAtMost(SEEN)],
    });
    Ok(())
}

/// Whether what is mounted there is a partition of the disk.
fn is_on(target: &Path, disk: &Disk) -> bool {
    let table = RealMounts.table().unwrap_or_default();
    let mount = table.iter().find(|mount| mount.target == target);
    let device = mount.and_then(|mount| fs::canonicalize(format!("/sys/dev/block/{}", mount.device)).ok());
    device.is_some_and(|device| device.parent().is_some_and(|parent| parent.ends_with(disk.name())))
}

fn announcement(events: &DeviceEvents, disk: &Disk, began: Instant) -> Result<Duration> {
    while began.elapsed() < Duration::from_secs(10) {
        if events.next(Duration::from_secs(1))?.is_some_and(|event| concerns(&event, disk)) {
            return Ok(began.elapsed());
        }
    }
    bail!("the kernel announced no change of {}", disk.text())
}

fn concerns(event: &DeviceEvent, disk: &Disk) -> bool {
    matches!(event, DeviceEvent::Changed { name } if name.as_str() == disk.name())
}

/// Asks as kubelet does, but without a pause between the questions.
async fn condition(driver: &Driver, id: &str, target: &Path, began: Instant) -> Result<Duration> {
    let client = driver.client().await?;
    let limit = Duration::from_secs(120);
    while began.elapsed() < limit {
        let abnormal = client.is_abnormal(id, target).await?;
        if abnormal {
            return Ok(began.elapsed());
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    bail!("the condition of {id} is as before after {} s", limit.as_secs())
}
