//! What the driver's process holds in memory: without a volume, and with 500 on five disks.

use std::time::Duration;

use anyhow::Result;

use crate::driver::{Driver, Usage, block_on};
use crate::lab::{Image, Lab};
use crate::measure::{Aim, Measurement, Report};
use crate::pace::Size;
use crate::process::Memory;

const DISKS: u64 = 5;
const VOLUMES: Size = Size { full: 500, short: 10 };
const DISK: Size = Size { full: 1 << 30, short: 128 << 20 };
const VOLUME: u64 = 4 << 20;
/// Of the resident set.
const AIM: f64 = 15.0;
/// Until background work has ended.
const SETTLE: Duration = Duration::from_secs(2);

pub fn measure(lab: &Lab, report: &mut Report) -> Result<()> {
    let disks = lab.disks("pool", DISKS, lab.pace().of(DISK), Image::Allocated)?;
    let driver = Driver::start(lab, disks.len())?;
    std::thread::sleep(SETTLE);
    add(report, "idle", "the driver, idle, 5 disks", Memory::of(driver.pid())?);
    let volumes = lab.pace().count(VOLUMES);
    block_on(async {
        let client = driver.client().await?;
        for n in 0..volumes {
            client.create(&format!("memory-{n}"), VOLUME, Usage::Block).await?;
        }
        Ok(())
    })?;
    std::thread::sleep(SETTLE);
    let (name, what) = (format!("{volumes}-volumes"), format!("the driver with {volumes} volumes on 5 disks"));
    add(report, &name, &what, Memory::of(driver.pid())?);
    drop(driver);
    drop(disks);
    Ok(())
}

fn add(report: &mut Report, name: &str, what: &str, memory: Memory) {
    let Memory { resident, anonymous, proportional, highest } = memory;
    let kinds = [
        ("rss", "resident (VmRSS)", resident, vec![Aim::OursBelow(AIM)]),
        ("anon", "of that its own, anonymous (RssAnon)", anonymous, Vec::new()),
        ("pss", "proportional (Pss)", proportional, Vec::new()),
        ("peak", "highest resident so far (VmHWM)", highest, Vec::new()),
    ];
    for (kind, words, value, aims) in kinds {
        let (name, what) = (format!("memory-{name}-{kind}"), format!("Memory of {what}: {words}"));
        report.add(Measurement::memory(name, what, value, AIM, aims));
    }
}
