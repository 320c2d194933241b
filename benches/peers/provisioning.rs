//! CreateVolume and DeleteVolume through the driver's socket, on carved disks; beside `sgdisk` with `partx`,
//! and beside the bare limit: the same bytes, written and synced without any of the rest.
//!
//! Ours and what stands beside it take turns, so that what the machine does meanwhile hits all alike.

use std::time::Instant;

use anyhow::{Result, anyhow};

use crate::driver::{Client, Driver, Usage, block_on};
use crate::lab::{Disk, Image, Lab};
use crate::measure::{Aim, Better, Measurement, Report, Samples};
use crate::pace::Size;
use crate::partitioning::{Bare, Sgdisk};

const MIB: u64 = 1 << 20;
const DISK: Size = Size { full: 2 << 30, short: 512 << 20 };
/// ext4 is not made smaller.
const VOLUME: u64 = 16 * MIB;
/// Volumes that are there at once: what one disk holds with room to place them, and a multiple of `CALLERS`.
const BATCH: Size = Size { full: 96, short: 16 };
/// After the first one, which warms up.
const BATCHES: Size = Size { full: 3, short: 1 };
const CALLERS: usize = 16;
const PAIRS: Size = Size { full: 200, short: 2 };
const POOL_OF_SEVERAL: u64 = 4;

/// Volumes that are made one after another, and then deleted.
#[derive(Clone, Copy)]
struct Batch {
    number: u64,
    volumes: usize,
}

/// What calls took.
#[derive(Default)]
struct Calls {
    create: Samples,
    delete: Samples,
    /// Creates in a second, batch by batch.
    rate: Samples,
}

impl Calls {
    fn extend(&mut self, other: Self) {
        let Self { create, delete, rate } = other;
        self.create.extend(create);
        self.delete.extend(delete);
        self.rate.extend(rate);
    }
}

/// All that was measured of one usage.
struct Found {
    /// CreateVolume on space that no volume ever had.
    first: Samples,
    one: Calls,
    many: Calls,
    pairs: Samples,
    sgdisk: Sgdisk,
    bare: Bare,
}

/// What the kernel counted on a disk.
#[derive(Clone, Copy, Debug)]
struct Written {
    writes: u64,
    bytes: u64,
    flushes: u64,
}

pub fn measure(lab: &Lab, report: &mut Report) -> Result<()> {
    let mut rate_limit = Samples::default();
    let mut bytes = None;
    let (size, volumes) = (lab.pace().of(DISK), lab.pace().count(BATCH));
    for usage in [Usage::Mount, Usage::Block] {
        let disk = lab.disk("pool-a.img", size, Image::Allocated)?;
        let driver = Driver::start(lab, 1)?;
        let (first, written) = block_on(one_caller(&driver, &disk, usage, Batch { number: 0, volumes }))?;
        // The kernel would count the zeros of a new disk's block volumes as written too.
        let bytes = *bytes.get_or_insert_with(|| {
            report.note(written.to_message(volumes));
            written.bytes
        });
        let (mut sgdisk, mut bare) = (Sgdisk::new(lab, size, VOLUME)?, Bare::new(lab, size, bytes)?);
        let (mut one, mut many) = (Calls::default(), Calls::default());
        for number in 1..=lab.pace().of(BATCHES) {
            let batch = Batch { number, volumes };
            sgdisk.create(lab)?;
            bare.one(volumes)?;
            one.extend(block_on(one_caller(&driver, &disk, usage, batch))?.0);
            bare.many(CALLERS, volumes)?;
            many.extend(block_on(callers(&driver, usage, batch))?);
            sgdisk.delete(lab)?;
        }
        let pairs = block_on(pairs(&driver, usage, lab.pace().of(PAIRS)))?;
        drop(driver);
        rate_limit.extend(bare.many_rate.clone());
        Found { first: first.create, one, many, pairs, sgdisk, bare }.add(report, usage);
    }
    several_disks(lab, report, &rate_limit)
}

fn several_disks(lab: &Lab, report: &mut Report, limit: &Samples) -> Result<()> {
    let disks = lab.disks("pool", POOL_OF_SEVERAL, lab.pace().of(DISK), Image::Allocated)?;
    let driver = Driver::start(lab, disks.len())?;
    let volumes = lab.pace().count(BATCH);
    block_on(callers(&driver, Usage::Mount, Batch { number: 0, volumes }))?;
    let mut many = Calls::default();
    for number in 1..=lab.pace().of(BATCHES) {
        let batch = Batch { number, volumes };
        many.extend(block_on(callers(&driver, Usage::Mount, batch))?);
    }
    drop(driver);
    let what = format!("CreateVolume, mount, {CALLERS} callers on {POOL_OF_SEVERAL} disks");
    report.add(rate("create-volume-mount-16-callers-4-disks-rate", &what, &many, limit));
    Ok(())
}

impl Found {
    fn add(&self, report: &mut Report, usage: Usage) {
        let Self { first, one, many, pairs, sgdisk, bare } = self;
        let name = usage.name();
        let tools = |verb: &str| format!("sgdisk -{verb} + partx");
        let limit = "the same bytes written and synced";
        let at_once = "CreateVolume then DeleteVolume at once";
        let rows = [
            ("create-volume", "CreateVolume, 1 caller", &one.create, &*tools("n"), &sgdisk.create),
            ("create-volume-limit", "CreateVolume, 1 caller", &one.create, limit, &bare.one),
            ("create-volume-new-space", "CreateVolume, 1 caller, never used space", first, &tools("n"), &sgdisk.create),
            ("delete-volume", "DeleteVolume, 1 caller", &one.delete, &tools("d"), &sgdisk.delete),
            ("create-delete-pair", at_once, pairs, "sgdisk and partx, both", &sgdisk.both()),
            (
                "create-volume-16-callers",
                "CreateVolume, 16 callers on one disk",
                &many.create,
                &tools("n"),
                &sgdisk.create,
            ),
            (
                "delete-volume-16-callers",
                "DeleteVolume, 16 callers on one disk",
                &many.delete,
                &tools("d"),
                &sgdisk.delete,
            ),
        ];
        for (slug, what, ours, beside, baseline) in rows {
            for percent in [50, 99] {
                let aimed = slug == "create-volume" && percent == 50;
                report.add(Measurement {
                    name: format!("{slug}-{name}-p{percent}"),
                    what: format!("{what}, {name}, p{percent}"),
                    beside: beside.to_owned(),
                    unit: "ms",
                    ours: ours.percentile(percent),
                    baseline: baseline.percentile(percent),
                    better: Better::Smaller,
                    n: ours.len(),
                    aims: if aimed { vec![Aim::OursBelow(5.0), Aim::RatioAtLeast(100.0)] } else { Vec::new() },
                });
            }
        }
        let what = format!("CreateVolume, {CALLERS} callers on one disk, {name}");
        report.add(rate(&format!("create-volume-16-callers-{name}-rate"), &what, many, &bare.many_rate));
    }
}

fn rate(name: &str, what: &str, many: &Calls, limit: &Samples) -> Measurement {
    Measurement {
        name: name.to_owned(),
        what: format!("{what}: volumes in a second"),
        beside: format!("the same bytes written and synced by {CALLERS} threads on one disk"),
        unit: "1/s",
        ours: many.rate.median(),
        baseline: limit.median(),
        better: Better::Larger,
        n: many.create.len(),
        aims: Vec::new(),
    }
}

/// A batch of volumes, made and then deleted one by one, and erased; and what a create writes.
async fn one_caller(driver: &Driver, disk: &Disk, usage: Usage, batch: Batch) -> Result<(Calls, Written)> {
    let client = driver.client().await?;
    let room = client.available(usage).await?;
    let (mut calls, mut ids) = (Calls::default(), Vec::new());
    let before = Written::on(disk)?;
    let Batch { number, volumes } = batch;
    for n in 0..volumes {
        let (id, took) = client.create(&format!("one-{}-{number}-{n}", usage.name()), VOLUME, usage).await?;
        calls.create.push(took);
        ids.push(id);
    }
    let written = before.per_volume(Written::on(disk)?, volumes);
    for id in &ids {
        calls.delete.push(client.delete(id).await?);
    }
    client.wait_available(room, usage).await?;
    Ok((calls, written))
}

async fn pairs(driver: &Driver, usage: Usage, pairs: u64) -> Result<Samples> {
    let client = driver.client().await?;
    let mut both = Samples::default();
    for n in 0..pairs {
        let (id, create) = client.create(&format!("pair-{}-{n}", usage.name()), VOLUME, usage).await?;
        both.push(create + client.delete(&id).await?);
    }
    Ok(both)
}

/// Callers with connections of their own, each of which makes its share of a batch and then deletes it.
async fn callers(driver: &Driver, usage: Usage, batch: Batch) -> Result<Calls> {
    let mut clients = Vec::new();
    for _ in 0..CALLERS {
        clients.push(driver.client().await?);
    }
    let room = clients[0].available(usage).await?;
    let mut calls = Calls::default();
    let Batch { number, volumes } = batch;
    let began = Instant::now();
    let mut tasks = tokio::task::JoinSet::new();
    for (caller, client) in clients.iter().cloned().enumerate() {
        let name = format!("many-{}-{number}-{caller}", usage.name());
        tasks.spawn(create_share(client, name, usage, volumes / CALLERS));
    }
    let mut shares = Vec::new();
    while let Some(share) = tasks.join_next().await {
        let (samples, ids) = share??;
        calls.create.extend(samples);
        shares.push(ids);
    }
    calls.rate.push_value(volumes as f64 / began.elapsed().as_secs_f64());
    let mut tasks = tokio::task::JoinSet::new();
    for (client, ids) in clients.iter().cloned().zip(shares) {
        tasks.spawn(delete_share(client, ids));
    }
    while let Some(share) = tasks.join_next().await {
        calls.delete.extend(share??);
    }
    clients[0].wait_available(room, usage).await?;
    Ok(calls)
}

async fn create_share(client: Client, name: String, usage: Usage, volumes: usize) -> Result<(Samples, Vec<String>)> {
    let (mut samples, mut ids) = (Samples::default(), Vec::new());
    for n in 0..volumes {
        let (id, took) = client.create(&format!("{name}-{n}"), VOLUME, usage).await?;
        samples.push(took);
        ids.push(id);
    }
    Ok((samples, ids))
}

async fn delete_share(client: Client, ids: Vec<String>) -> Result<Samples> {
    let mut samples = Samples::default();
    for id in &ids {
        samples.push(client.delete(id).await?);
    }
    Ok(samples)
}

impl Written {
    /// The kernel's counters (Documentation/block/stat.rst): fields 5, 7 in units of 512 bytes, and 16.
    fn on(disk: &Disk) -> Result<Self> {
        let text = std::fs::read_to_string(format!("/sys/block/{}/stat", disk.name()))?;
        let fields: Vec<u64> = text.split_whitespace().map(str::parse).collect::<Result<_, _>>()?;
        let field =
            |number: usize| fields.get(number - 1).copied().ok_or_else(|| anyhow!("{text:?} has no field {number}"));
        let flushes = field(16)?;
        // A flush that carries no data counts as a write too.
        Ok(Self { writes: field(5)?.saturating_sub(flushes), bytes: field(7)? * 512, flushes })
    }

    fn per_volume(self, after: Self, volumes: usize) -> Self {
        let mean = |before: u64, after: u64| after.saturating_sub(before).div_ceil(volumes as u64);
        Self {
            writes: mean(self.writes, after.writes),
            bytes: mean(self.bytes, after.bytes).next_multiple_of(512),
            flushes: mean(self.flushes, after.flushes),
        }
    }

    fn to_message(self, volumes: usize) -> String {
        let Self { writes, bytes, flushes } = self;
        format!(
            "CreateVolume made {writes} writes of {bytes} bytes together and {flushes} flushes (counted by the kernel on \
             the disk, mean of its first {volumes} volumes): label, backup table and primary table, each synced. The bare \
             limit is the same writes and syncs by a loop that does nothing else."
        )
    }
}
