//! The run's results as files: one JSON document for each measurement, one Markdown page for people.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::json;

use crate::machine::Machine;
use crate::measure::{Report, short};

/// Where a run's results belong.
pub struct Page {
    /// Below the project's folder.
    pub file: &'static str,
    pub title: &'static str,
    pub words: &'static str,
    /// Of the names of its measurements; the run without one has all other names.
    pub prefix: &'static str,
}

/// All prefixes that a run has for itself.
const PREFIXES: [&str; 1] = ["kubernetes-"];

impl Page {
    fn owns(&self, name: &str) -> bool {
        let prefix = PREFIXES.into_iter().find(|prefix| name.starts_with(prefix)).unwrap_or("");
        prefix == self.prefix
    }
}

/// Writes `target/bench/*.json`; and the page, where the whole was measured.
pub fn write(page: &Page, machine: &Machine, report: &Report, whole: bool) -> Result<()> {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().context("the target directory has no parent")?;
    let folder = target.join("bench");
    fs::create_dir_all(&folder)?;
    if whole {
        // What is not measured any more must not look measured.
        for entry in fs::read_dir(&folder)? {
            let entry = entry?;
            if entry.file_name().to_str().is_some_and(|name| page.owns(name)) {
                fs::remove_file(entry.path())?;
            }
        }
    }
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
        println!("{} stays as it is: only a part was measured", page.file);
        return Ok(());
    }
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(page.file);
    fs::write(&file, markdown(page, machine, report)?).with_context(|| format!("writing {}", file.display()))?;
    println!("{} is written", file.display());
    Ok(())
}

fn markdown(page: &Page, machine: &Machine, report: &Report) -> Result<String> {
    let Page { title, words, .. } = page;
    let mut page = String::new();
    writeln!(
        page,
        "# {title}\n\nWritten by `make bench`; do not edit. `ratio` says how many times better localpool is than"
    )?;
    writeln!(
        page,
        "what stands beside it: above 1 it is. Aims are those of the project; a missed one is said, and fails nothing."
    )?;
    writeln!(page, "{words}\n")?;
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
