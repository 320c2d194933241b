//! Processes: what one prints, and what the kernel says of one: its memory, and the processor time that it used.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};

/// Runs a program to its end; gives its standard output. If it fails, its standard error is in the error.
pub fn printed(command: &mut Command) -> Result<String> {
    let program = command.get_program().display().to_string();
    let out = command.output().with_context(|| format!("starting {program}"))?;
    if !out.status.success() {
        let words: Vec<_> = command.get_args().map(|word| word.display().to_string()).collect();
        let why = String::from_utf8_lossy(&out.stderr);
        bail!("{program} {} ended with {}: {}", words.join(" "), out.status, why.trim());
    }
    Ok(String::from_utf8_lossy(&out.stdout).into_owned())
}

/// In MiB.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    pub resident: f64,
    pub anonymous: f64,
    pub proportional: f64,
    pub highest: f64,
}

impl Memory {
    pub fn of(pid: u32) -> Result<Self> {
        let read = |file: &str| {
            let path = format!("/proc/{pid}/{file}");
            std::fs::read_to_string(&path).with_context(|| format!("reading {path}"))
        };
        let (status, rollup) = (read("status")?, read("smaps_rollup")?);
        Ok(Self {
            resident: mebibytes(&status, "VmRSS:")?,
            anonymous: mebibytes(&status, "RssAnon:")?,
            proportional: mebibytes(&rollup, "Pss:")?,
            highest: mebibytes(&status, "VmHWM:")?,
        })
    }
}

/// Of all its threads, also of those that ended; in steps of 10 ms (proc_pid_stat(5), utime and stime).
pub fn processor_time(pid: u32) -> Result<Duration> {
    let path = format!("/proc/{pid}/stat");
    let text = std::fs::read_to_string(&path).with_context(|| format!("reading {path}"))?;
    // The name of the program may have spaces and brackets.
    let (_, fields) = text.rsplit_once(") ").ok_or_else(|| anyhow!("{path} has no name"))?;
    let ticks = fields.split(' ').skip(11).take(2).map(str::parse::<u64>).sum::<Result<u64, _>>()?;
    Ok(Duration::from_millis(ticks * 10))
}

fn mebibytes(text: &str, field: &str) -> Result<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix(field));
    let kib = line.and_then(|rest| rest.trim().strip_suffix("kB")).ok_or_else(|| anyhow!("no {field} in kB"))?;
    Ok(kib.trim().parse::<f64>()? / 1024.0)
}
