//! The machine that a run's numbers belong to, in words.

use std::fmt;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

/// Name and value of each fact, in order.
pub struct Machine(pub Vec<(&'static str, String)>);

pub fn describe(images: &Path) -> Result<Machine> {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo")?;
    let processor = field(&cpuinfo, "model name").unwrap_or("unknown").to_owned();
    let cores = std::thread::available_parallelism()?;
    let memory = fs::read_to_string("/proc/meminfo")?;
    let kib: u64 = field(&memory, "MemTotal").and_then(|v| v.strip_suffix(" kB")).unwrap_or("0").parse()?;
    let load = fs::read_to_string("/proc/loadavg")?;
    let load = load.split(' ').next().unwrap_or_default().to_owned();
    let images = images.display().to_string();
    let below = output("findmnt", &["--noheadings", "--output", "FSTYPE,SOURCE,OPTIONS", "--target", &images])?;
    Ok(Machine(vec![
        ("Processor", processor),
        ("Cores", cores.to_string()),
        ("Memory", format!("{:.1} GiB", kib as f64 / (1 << 20) as f64)),
        ("Kernel", output("uname", &["-sr"])?),
        ("Filesystem below the image files", below.split_whitespace().collect::<Vec<_>>().join(" ")),
        ("Disks", "loop devices on image files that were allocated beforehand, through the page cache".to_owned()),
        (
            "fio, sgdisk, lsblk",
            [output("fio", &["--version"])?, sgdisk_version()?, output("lsblk", &["--version"])?].join("; "),
        ),
        ("Load (1 min) at the start", load),
        ("Date", output("date", &["-u", "+%Y-%m-%d"])?),
    ]))
}

fn sgdisk_version() -> Result<String> {
    let text = output("sgdisk", &["--version"])?;
    Ok(text.lines().next().unwrap_or_default().to_owned())
}

fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(name)?.trim_start().strip_prefix(':')).map(str::trim)
}

fn output(program: &str, args: &[&str]) -> Result<String> {
    let out = Command::new(program).args(args).output().with_context(|| format!("starting {program}"))?;
    if !out.status.success() {
        bail!("{program} ended with {}", out.status);
    }
    Ok(String::from_utf8_lossy(&out.stdout).trim().to_owned())
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<String> = self.0.iter().map(|(name, value)| format!("{name}: {value}")).collect();
        f.write_str(&lines.join("\n"))
    }
}
