//! The machine that a run's numbers belong to, in words.

use std::fmt;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::Result;

use crate::process::printed;

/// Name and value of each fact, in order.
pub struct Machine(pub Vec<(&'static str, String)>);

/// `more` is what a run has to say of its disks and tools.
pub fn describe(images: &Path, more: Vec<(&'static str, String)>) -> Result<Machine> {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo")?;
    let processor = field(&cpuinfo, "model name").unwrap_or("unknown").to_owned();
    let cores = std::thread::available_parallelism()?;
    let memory = fs::read_to_string("/proc/meminfo")?;
    let kib: u64 = field(&memory, "MemTotal").and_then(|v| v.strip_suffix(" kB")).unwrap_or("0").parse()?;
    let load = fs::read_to_string("/proc/loadavg")?;
    let load = load.split(' ').next().unwrap_or_default().to_owned();
    let images = images.display().to_string();
    let below = output("findmnt", &["--noheadings", "--output", "FSTYPE,SOURCE,OPTIONS", "--target", &images])?;
    let mut facts = vec![
        ("Processor", processor),
        ("Cores", cores.to_string()),
        ("Memory", format!("{:.1} GiB", kib as f64 / (1 << 20) as f64)),
        ("Kernel", output("uname", &["-sr"])?),
        ("Filesystem below the image files", below.split_whitespace().collect::<Vec<_>>().join(" ")),
    ];
    facts.extend(more);
    facts.push(("Load (1 min) at the start", load));
    facts.push(("Date", output("date", &["-u", "+%Y-%m-%d"])?));
    Ok(Machine(facts))
}

fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(name)?.trim_start().strip_prefix(':')).map(str::trim)
}

/// What a program prints, without spaces around it.
pub fn output(program: &str, args: &[&str]) -> Result<String> {
    Ok(printed(Command::new(program).args(args))?.trim().to_owned())
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<String> = self.0.iter().map(|(name, value)| format!("{name}: {value}")).collect();
        f.write_str(&lines.join("\n"))
    }
}
