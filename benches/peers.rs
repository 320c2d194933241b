//! `make bench`: localpool beside what an administrator would use instead, on this machine, in one run.
//!
//! Takes in the release binary and the machine; gives out `target/bench/*.json` and `docs/benchmarks.md`.
//! Aims are printed as met or not met; timing never fails the run. `make bench-check` (`--short`) is the same with a
//! few rounds of everything, to see that it works; it writes no figure. Every disk that is written to is an image file
//! of the run's own, behind a loop device of its own.

#![allow(clippy::cast_precision_loss, reason = "figures for people")]

#[path = "peers/data_path.rs"]
mod data_path;
#[path = "peers/discovery.rs"]
mod discovery;
#[path = "peers/driver.rs"]
mod driver;
#[path = "peers/folders.rs"]
mod folders;
#[path = "peers/health.rs"]
mod health;
#[path = "peers/lab.rs"]
mod lab;
#[path = "figures/machine.rs"]
mod machine;
#[allow(dead_code, reason = "the other benchmarks use the rest")]
#[path = "figures/measure.rs"]
mod measure;
#[path = "peers/memory.rs"]
mod memory;
#[path = "figures/pace.rs"]
mod pace;
#[path = "peers/partitioning.rs"]
mod partitioning;
#[path = "figures/process.rs"]
mod process;
#[path = "peers/provisioning.rs"]
mod provisioning;
#[path = "figures/report.rs"]
mod report;

use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Result, bail};

use crate::lab::Lab;
use crate::measure::Report;
use crate::pace::Pace;
use crate::report::Page;

/// A part of the run, by the name that chooses it: `cargo bench --bench peers -- memory`.
type Group = (&'static str, fn(&Lab, &mut Report) -> Result<()>);

const GROUPS: [Group; 6] = [
    ("provisioning", provisioning::measure),
    ("discovery", discovery::measure),
    ("data-path", data_path::measure),
    ("memory", memory::measure),
    ("health", health::measure),
    ("folders", folders::measure),
];

const PAGE: Page = Page {
    file: "docs/benchmarks.md",
    title: "Benchmarks",
    words: "Kubernetes has [a page of its own](benchmarks-kubernetes.md).\n\n\
            sgdisk sleeps for one second each time it has written a table (`DiskIO::DiskSync`, before it asks the kernel to\n\
            read the table again). Nearly all of its time here is that second, so the ratios beside it say little. Those\n\
            beside the same bytes, written and synced, say what localpool itself costs.\n\n\
            ![Some of the figures as bars](images/benchmarks.svg)",
    prefix: "",
};

/// Everything that is run beside the driver, and the Debian package that has it.
const TOOLS: [(&str, &str); 7] = [
    ("fio", "fio"),
    ("sgdisk", "gdisk"),
    ("partx", "util-linux"),
    ("losetup", "util-linux"),
    ("lsblk", "util-linux"),
    ("fallocate", "util-linux"),
    ("findmnt", "util-linux"),
];

fn main() -> ExitCode {
    if let Some(code) = lab::janitor() {
        return code;
    }
    pace::main("peers", "`cargo bench --bench peers`", run)
}

fn run() -> Result<()> {
    let wanted = pace::groups(&GROUPS.map(|(name, _)| name))?;
    let groups: Vec<&Group> = GROUPS.iter().filter(|(name, _)| wanted.contains(name)).collect();
    check_needs()?;
    let pace = Pace::of_arguments();
    let lab = Lab::new(pace)?;
    let machine = machine::describe(lab.dir(), disks_and_tools()?)?;
    println!("{machine}\n");
    let mut report = Report::default();
    for (name, measure) in &groups {
        let began = Instant::now();
        println!("{name} ...");
        measure(&lab, &mut report)?;
        println!("  ({:.0} s)", began.elapsed().as_secs_f64());
    }
    drop(lab);
    if pace == Pace::Short {
        println!("{}", pace::ENDED);
        return Ok(());
    }
    let whole = groups.len() == GROUPS.len();
    report::write(&PAGE, &machine, &report, whole)
}

fn disks_and_tools() -> Result<Vec<(&'static str, String)>> {
    let sgdisk = machine::output("sgdisk", &["--version"])?;
    let sgdisk = sgdisk.lines().next().unwrap_or_default().to_owned();
    let tools = [machine::output("fio", &["--version"])?, sgdisk, machine::output("lsblk", &["--version"])?];
    Ok(vec![
        ("Disks", "loop devices on image files that were allocated beforehand, through the page cache".to_owned()),
        ("fio, sgdisk, lsblk", tools.join("; ")),
    ])
}

/// Says everything that is missing at once, before anything is begun.
fn check_needs() -> Result<()> {
    let mut missing = Vec::new();
    if !nix::unistd::geteuid().is_root() {
        missing.push("root, for loop devices and partitions".to_owned());
    }
    let paths: Vec<_> = std::env::var_os("PATH").map(|path| std::env::split_paths(&path).collect()).unwrap_or_default();
    for (tool, package) in TOOLS {
        if !paths.iter().any(|dir: &std::path::PathBuf| dir.join(tool).is_file()) {
            missing.push(format!("{tool} (Debian: apt-get install {package})"));
        }
    }
    match missing.is_empty() {
        true => Ok(()),
        false => bail!("the benchmarks need {}", missing.join("; ")),
    }
}
