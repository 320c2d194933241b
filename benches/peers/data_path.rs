//! fio on a published raw block volume, beside the same range of the raw loop device below it.
//!
//! Runs are short and take turns, so that what the machine does meanwhile hits both alike: raw, volume, raw,
//! volume. How far the raw runs differ among themselves is said beside the result.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::{Context, Result, anyhow};
use nix::sys::stat::{major, minor};
use serde_json::Value;

use crate::driver::{Driver, Usage, block_on};
use crate::lab::{Disk, Image, Lab};
use crate::measure::{Aim, Better, Measurement, Report, Samples, short};
use crate::pace::Size;

const DISK: u64 = 2 << 30;
const VOLUME: Size = Size { full: 1 << 30, short: 32 << 20 };
const ROUNDS: Size = Size { full: 15, short: 1 };
const SECONDS: &str = "1";

struct Work {
    name: &'static str,
    what: &'static str,
    rw: &'static str,
    block: &'static str,
    depth: &'static str,
    unit: &'static str,
}

const WORK: [Work; 4] = [
    Work {
        name: "fio-4k-random-read",
        what: "fio random read, 4 KiB, depth 16",
        rw: "randread",
        block: "4k",
        depth: "16",
        unit: "IOPS",
    },
    Work {
        name: "fio-4k-random-write",
        what: "fio random write, 4 KiB, depth 16",
        rw: "randwrite",
        block: "4k",
        depth: "16",
        unit: "IOPS",
    },
    Work {
        name: "fio-1m-read",
        what: "fio sequential read, 1 MiB, depth 4",
        rw: "read",
        block: "1m",
        depth: "4",
        unit: "MiB/s",
    },
    Work {
        name: "fio-1m-write",
        what: "fio sequential write, 1 MiB, depth 4",
        rw: "write",
        block: "1m",
        depth: "4",
        unit: "MiB/s",
    },
];

/// Where fio works: a device, and where on it.
struct Range<'a> {
    device: &'a Path,
    offset: u64,
    length: u64,
}

pub fn measure(lab: &Lab, report: &mut Report) -> Result<()> {
    let disk = lab.disk("pool-a.img", DISK, Image::Allocated)?;
    let driver = Driver::start(lab, 1)?;
    let (length, rounds) = (lab.pace().of(VOLUME), lab.pace().count(ROUNDS));
    let published = block_on(async {
        let client = driver.client().await?;
        let (id, _) = client.create("data-path", length, Usage::Block).await?;
        client.publish(lab, &id, Usage::Block).await
    })?;
    let volume = Range { device: &published, offset: 0, length };
    let raw = Range { device: disk.path(), offset: start_of_volume(&disk, &published)?, length };
    // Every block is written once, so that none is slower for being new.
    let fill = Work { name: "fill", what: "", rw: "write", block: "1m", depth: "4", unit: "MiB/s" };
    fio(lab, &fill, &volume, Length::Once)?;
    for work in &WORK {
        let (mut ours, mut theirs) = (Samples::default(), Samples::default());
        for _ in 0..rounds {
            theirs.push_value(fio(lab, work, &raw, Length::Timed)?);
            ours.push_value(fio(lab, work, &volume, Length::Timed)?);
        }
        let spread = |samples: &Samples| {
            let part = |percent| short(samples.percentile(percent));
            format!("{} to {}", part(25), part(75))
        };
        report.note(format!(
            "{}: half of the raw runs lie within {} {unit}, half of those on the volume within {}.",
            work.what,
            spread(&theirs),
            spread(&ours),
            unit = work.unit
        ));
        report.add(Measurement {
            name: work.name.to_owned(),
            what: work.what.to_owned(),
            beside: "the same range of the loop device".to_owned(),
            unit: work.unit,
            ours: ours.median(),
            baseline: theirs.median(),
            better: Better::Larger,
            n: rounds,
            aims: vec![Aim::RatioAtLeast(0.98)],
        });
    }
    lab.unmount(&published)?;
    Ok(())
}

enum Length {
    Once,
    Timed,
}

/// Runs fio; gives operations in a second, of 1 MiB or of 4 KiB.
fn fio(lab: &Lab, work: &Work, range: &Range<'_>, length: Length) -> Result<f64> {
    let (offset, size) = (range.offset.to_string(), range.length.to_string());
    let device = range.device.to_str().ok_or_else(|| anyhow!("a device path is not UTF-8"))?;
    let (name, file) = (format!("--name={}", work.name), format!("--filename={device}"));
    let (offset, size) = (format!("--offset={offset}"), format!("--size={size}"));
    let (rw, block, depth) =
        (format!("--rw={}", work.rw), format!("--bs={}", work.block), format!("--iodepth={}", work.depth));
    let mut args = vec![&*name, &file, &offset, &size, &rw, &block, &depth];
    args.extend(["--direct=1", "--ioengine=libaio", "--allow_file_create=0", "--output-format=json"]);
    let runtime = format!("--runtime={SECONDS}");
    if matches!(length, Length::Timed) {
        args.extend(["--time_based", &*runtime, "--ramp_time=200ms"]);
    }
    let json: Value = serde_json::from_str(&lab.run("fio", &args)?).context("reading fio's output")?;
    let iops = |side: &str| json["jobs"][0][side]["iops"].as_f64();
    let (read, write) = iops("read").zip(iops("write")).ok_or_else(|| anyhow!("fio says no IOPS: {json}"))?;
    Ok(read + write)
}

/// In bytes from the start of its disk. The published node says which partition it is; the disk has others.
fn start_of_volume(disk: &Disk, published: &Path) -> Result<u64> {
    let device = std::fs::metadata(published)?.rdev();
    let name = format!("{}:{}", major(device), minor(device));
    let partition = std::fs::canonicalize(format!("/sys/dev/block/{name}"))
        .with_context(|| format!("{} is no block device that the kernel knows ({name})", published.display()))?;
    if partition.parent().and_then(Path::file_name) != Some(disk.name().as_ref()) {
        return Err(anyhow!("what is published is {}, and no partition of {}", partition.display(), disk.text()));
    }
    Ok(std::fs::read_to_string(partition.join("start"))?.trim().parse::<u64>()? * 512)
}
