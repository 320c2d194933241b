//! Volumes that are folders of one filesystem: what one more costs where ten are there, and where ten thousand are; and
//! so a start and a checkup. No quota limits them, as loop devices are for any kernel.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use localpool::host::{Mounts as _, RealMounts};

use crate::driver::{Client, Driver, FOLDERS, Usage, block_on};
use crate::health::checkups;
use crate::lab::{Image, Lab};
use crate::measure::{Aim, Better, Measurement, Report, Samples};
use crate::pace::Size;
use crate::process::Memory;

/// Volumes that are there all the while, and the name of their driver.
const FEW: (&str, Size) = ("few", Size { full: 10, short: 4 });
const MANY: (&str, Size) = ("many", Size { full: 10_000, short: 40 });
/// With room for them and for what is deleted. No block of it is written but those of the filesystem itself.
const DISK: Size = Size { full: 14 << 30, short: 1 << 30 };
const VOLUME: u64 = 1 << 20;
const PAIRS: Size = Size { full: 500, short: 5 };
const STARTS: Size = Size { full: 5, short: 1 };
const CALLERS: usize = 16;
/// One more volume costs about the same, however many there are: a folder of thousands costs XFS itself a quarter more.
const ALIKE: f64 = 0.8;

/// What was measured.
#[derive(Default)]
struct Found {
    create: Samples,
    delete: Samples,
    /// All of them.
    pairs: Duration,
    start: Samples,
    /// Milliseconds of processor time.
    checkup: f64,
    /// In MiB.
    resident: f64,
}

/// A driver with a disk of its own, and as many volumes on it.
struct Side {
    name: &'static str,
    driver: Driver,
    volumes: usize,
    found: Found,
}

pub fn measure(lab: &Lab, report: &mut Report) -> Result<()> {
    let size = lab.pace().of(DISK);
    let disk = |(name, _)| lab.disk(&format!("{name}-a.img"), size, Image::Sparse);
    let _disks = [disk(FEW)?, disk(MANY)?];
    // Before the disks go, and after the drivers.
    let _mounted = Mounted(lab);
    let [mut few, mut many] = [Side::start(lab, FEW)?, Side::start(lab, MANY)?];
    // In turns, so that what the machine does meanwhile hits both alike.
    for n in 0..lab.pace().of(PAIRS) {
        [&mut few, &mut many].into_iter().try_for_each(|side| side.pair(n))?;
    }
    for side in [&mut few, &mut many] {
        side.found.checkup = checkups(lab, &side.driver, &[])?.ours;
    }
    for _ in 0..lab.pace().of(STARTS) {
        [&mut few, &mut many].into_iter().try_for_each(|side| side.start_again(lab))?;
    }
    for side in [&mut few, &mut many] {
        side.found.resident = Memory::of(side.driver.pid())?.resident;
    }
    add(report, &few, &many);
    Ok(())
}

impl Side {
    fn start(lab: &Lab, (name, volumes): (&'static str, Size)) -> Result<Self> {
        let volumes = lab.pace().count(volumes);
        let driver = Driver::start_as(lab, name, 1, FOLDERS)?;
        block_on(fill(&driver, volumes))?;
        Ok(Self { name, driver, volumes, found: Found::default() })
    }

    /// One more volume, which goes again.
    fn pair(&mut self, n: u64) -> Result<()> {
        let (create, delete) = block_on(async {
            let client = self.driver.client().await?;
            let (id, create) = client.create(&format!("pair-{n}"), VOLUME, Usage::Folder).await?;
            Ok((create, client.delete(&id).await?))
        })?;
        self.found.create.push(create);
        self.found.delete.push(delete);
        self.found.pairs += create + delete;
        Ok(())
    }

    fn start_again(&mut self, lab: &Lab) -> Result<()> {
        self.driver.end()?;
        let began = Instant::now();
        self.driver = Driver::spawn(lab, self.name)?;
        block_on(is_served(&self.driver, self.volumes - 1))?;
        self.found.start.push(began.elapsed());
        Ok(())
    }
}

/// What the driver has mounted; unmounted when this is dropped.
struct Mounted<'l>(&'l Lab);

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        let table = RealMounts.table().unwrap_or_default();
        for mount in table.iter().rev().filter(|mount| mount.target.starts_with(self.0.dir())) {
            if let Err(error) = self.0.unmount(&mount.target) {
                eprintln!("peers: {} stays mounted: {error:#}", mount.target.display());
            }
        }
    }
}

fn name(number: usize) -> String {
    format!("folder-{number}")
}

/// Volumes that are made by several callers.
async fn fill(driver: &Driver, volumes: usize) -> Result<()> {
    let mut tasks = tokio::task::JoinSet::new();
    for caller in 0..CALLERS {
        let client = driver.client().await?;
        tasks.spawn(async move {
            for number in (caller..volumes).step_by(CALLERS) {
                client.create(&name(number), VOLUME, Usage::Folder).await?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    Ok(())
}

/// Waits until the driver finds a volume that is there.
async fn is_served(driver: &Driver, number: usize) -> Result<()> {
    let deadline = Instant::now() + Duration::from_secs(60);
    let ask = async || {
        let client: Client = driver.client().await?;
        client.create(&name(number), VOLUME, Usage::Folder).await
    };
    while let Err(error) = ask().await {
        if Instant::now() > deadline {
            bail!("after 60 s its volumes are not served: {error:#}: {}", driver.log_tail());
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    Ok(())
}

fn add(report: &mut Report, few: &Side, many: &Side) {
    let there = |side: &Side| format!("with {} volumes on the filesystem", side.volumes);
    let mut row = |slug: &str, what: &str, unit, of: fn(&Found) -> f64, better, n| {
        report.add(Measurement {
            name: format!("folders-{slug}"),
            what: format!("Folders: {what}, {}", there(many)),
            beside: format!("the same {}", there(few)),
            unit,
            ours: of(&many.found),
            baseline: of(&few.found),
            better,
            n,
            aims: if slug == "pairs" { vec![Aim::RatioAtLeast(ALIKE)] } else { Vec::new() },
        });
    };
    let (pairs, starts) = (many.found.create.len(), many.found.start.len());
    let rate = |found: &Found| found.create.len() as f64 / found.pairs.as_secs_f64();
    row("pairs", "CreateVolume then DeleteVolume, pairs in a second", "1/s", rate, Better::Larger, pairs);
    row("create-p50", "CreateVolume, p50", "ms", |found| found.create.median(), Better::Smaller, pairs);
    row("create-p99", "CreateVolume, p99", "ms", |found| found.create.percentile(99), Better::Smaller, pairs);
    row("delete-p50", "DeleteVolume, p50", "ms", |found| found.delete.median(), Better::Smaller, pairs);
    row("delete-p99", "DeleteVolume, p99", "ms", |found| found.delete.percentile(99), Better::Smaller, pairs);
    let served = "from a start of the driver until a volume is served";
    row("start", served, "ms", |found| found.start.median(), Better::Smaller, starts);
    let checkup = "a checkup, processor time of the whole driver";
    row("checkup", checkup, "ms", |found| found.checkup, Better::Smaller, 1);
    row("rss", "memory of the driver, resident (VmRSS)", "MiB", |found| found.resident, Better::Smaller, 1);
}
