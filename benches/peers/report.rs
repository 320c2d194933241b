//! The run's results as files: one JSON document for each measurement, one Markdown page for people.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::json;

use crate::machine::Machine;
use crate::measure::{Report, short};

/// Writes `target/bench/*.json`; and the page, where the whole was measured.
pub fn write(machine: &Machine, report: &Report, whole: bool) -> Result<()> {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().context("the target directory has no parent")?;
    let folder = target.join("bench");
    if whole {
        // What is not measured any more must not look measured.
        let _ = fs::remove_dir_all(&folder);
    }
    fs::create_dir_all(&folder)?;
    for one in report.measurements() {
        let document = json!({
            "name": one.name,
            "unit": one.unit,
            "ours": one.ours,
            "baseline": one.baseline,
            "ratio": one.ratio(),
            "n": one.n,
        });
        fs::write(folder.join(format!("{}.json", one.name)), format!("{document:#}\n"))?;
    }
    println!("\n{} measurements in {}", report.measurements().len(), folder.display());
    if !whole {
        println!("docs/benchmarks.md stays as it is: only a part was measured");
        return Ok(());
    }
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/benchmarks.md");
    fs::write(&page, markdown(machine, report)?).with_context(|| format!("writing {}", page.display()))?;
    println!("{} is written", page.display());
    Ok(())
}

fn markdown(machine: &Machine, report: &Report) -> Result<String> {
    let mut page = String::new();
    writeln!(
        page,
        "# Benchmarks\n\nWritten by `make bench`; do not edit. `ratio` says how many times better localpool is than"
    )?;
    writeln!(
        page,
        "what stands beside it: above 1 it is. Aims are those of the project; a missed one is said, and fails nothing.\n"
    )?;
    writeln!(page, "| machine | |\n|---|---|")?;
    for (name, value) in &machine.0 {
        writeln!(page, "| {name} | {value} |")?;
    }
    writeln!(page, "\n| what | localpool | beside | baseline | ratio | n | aim |\n|---|---:|---|---:|---:|---:|---|")?;
    for one in report.measurements() {
        let (ours, baseline, ratio) = (short(one.ours), short(one.baseline), short(one.ratio()));
        let (what, unit, beside, n) = (&one.what, one.unit, &one.beside, one.n);
        writeln!(
            page,
            "| {what} | {ours} {unit} | {beside} | {baseline} {unit} | {ratio} | {n} | {} |",
            one.verdicts()
        )?;
    }
    writeln!(page)?;
    for note in report.notes() {
        writeln!(page, "- {note}")?;
    }
    Ok(page)
}
