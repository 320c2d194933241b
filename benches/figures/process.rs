//! What the kernel says of a process: its memory.

use anyhow::{Result, anyhow};

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
        let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
        let rollup = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
        Ok(Self {
            resident: mebibytes(&status, "VmRSS:")?,
            anonymous: mebibytes(&status, "RssAnon:")?,
            proportional: mebibytes(&rollup, "Pss:")?,
            highest: mebibytes(&status, "VmHWM:")?,
        })
    }
}

fn mebibytes(text: &str, field: &str) -> Result<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix(field));
    let kib = line.and_then(|rest| rest.trim().strip_suffix("kB")).ok_or_else(|| anyhow!("no {field} in kB"))?;
    Ok(kib.trim().parse::<f64>()? / 1024.0)
}
