//! Builds the tests once, and runs the tiers one after the other.
//!
//! Tests are assigned to tiers by exact names: a filter of cargo matches part of a name, and would also take tests of
//! another tier.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;
use std::{env, thread};

use super::Asked;
use super::cargo_log::{self, Counts};
use super::go_log;
use super::process::{answer, command, logged, output, run as run_command};
use super::summary::Summary;
use super::tier::Tier;
use super::tree;

/// As `.ci/run` builds them, so that nothing is built twice.
const CARGO_TEST: [&str; 5] = ["test", "--locked", "--workspace", "--features", "testing"];

const TARGETS_OF_APISERVER: [&str; 4] = ["--test", "apiserver", "--test", "chart"];

/// How many tests run at a time.
const THREADS: &str = "RUST_TEST_THREADS";

/// The number of csi-sanity runs: one for each layout and mode, standalone and on Kubernetes.
const SANITY_RUNS: usize = 12;
const SANITY_RUNS_ON_KUBERNETES: usize = 6;

struct Tests {
    root: PathBuf,
    /// Cargo's target directory, absolute.
    target: PathBuf,
    is_root: bool,
    /// Tests by exact name.
    of_loop: BTreeSet<String>,
    of_apiserver: BTreeSet<String>,
    summary: Summary,
}

/// Runs the tiers, each to its end, even if an earlier one failed.
pub fn run(asked: &Asked) -> io::Result<Summary> {
    let root = tree::root()?;
    let target = tree::target(&root);
    fs::create_dir_all(target.join("test"))?;
    let is_root = output(command("id", &root).arg("-u"))?.trim() == "0";
    let (of_loop, of_apiserver) = build(&root)?;
    let mut tests = Tests { root, target, is_root, of_loop, of_apiserver, summary: Summary::new(asked.by_name) };
    for tier in &asked.all {
        match tier {
            Tier::Unit => tests.unit()?,
            Tier::Loop => tests.loop_devices()?,
            Tier::Apiserver => tests.apiserver()?,
            Tier::Sanity => tests.sanity()?,
        }
    }
    Ok(tests.summary)
}

/// As many as there are cores, unless a person says another number: what .cargo/config.toml says is for a `cargo test` by
/// hand.
fn threads() -> io::Result<String> {
    let cores = || Ok(thread::available_parallelism()?.to_string());
    env::var(THREADS).or_else(|_| cores())
}

fn begin(message: &str) {
    println!("\n=== {message}");
}

/// Returns the names of the tests that need loop devices, and of those that need an API server.
fn build(root: &Path) -> io::Result<(BTreeSet<String>, BTreeSet<String>)> {
    begin("building the tests");
    let cargo = || {
        let mut cargo = command("cargo", root);
        cargo.args(CARGO_TEST);
        cargo
    };
    run_command(cargo().arg("--no-run"))?;
    let list = |targets: &[&str]| output(cargo().args(targets).args(["--", "--list"]));
    let of_apiserver = cargo_log::listed(&list(&TARGETS_OF_APISERVER)?);
    let all = cargo_log::listed(&list(&[])?);
    let is_loop = |name: &&String| cargo_log::needs_loop_devices(name) && !of_apiserver.contains(*name);
    let of_loop: BTreeSet<String> = all.iter().filter(is_loop).cloned().collect();
    match of_loop.is_empty() || of_apiserver.is_empty() {
        // Without names, cargo would run all tests.
        true => Err(io::Error::other("cargo lists no test of the tiers loop or apiserver")),
        false => Ok((of_loop, of_apiserver)),
    }
}

impl Tests {
    fn log(&self, tier: Tier) -> PathBuf {
        self.target.join("test").join(format!("{}.log", tier.name()))
    }

    fn unit(&mut self) -> io::Result<()> {
        let others = self.of_loop.union(&self.of_apiserver);
        let skips: Vec<String> = others.flat_map(|name| ["--skip".to_owned(), name.clone()]).collect();
        self.cargo_tier(Tier::Unit, "unit, property, crash", &[], &skips, &[])
    }

    fn loop_devices(&mut self) -> io::Result<()> {
        let names: Vec<String> = self.of_loop.iter().cloned().collect();
        if !self.is_root {
            let message = format!("skipped: loop: {} tests need root, for loop devices and mounts", names.len());
            self.none_of(Tier::Loop, names.len(), message);
            return Ok(());
        }
        self.cargo_tier(Tier::Loop, "loop", &[], &names, &[])
    }

    fn apiserver(&mut self) -> io::Result<()> {
        let cluster = match self.script("scripts/cluster-program")? {
            Ok(cluster) => cluster,
            Err(why) => {
                let count = self.of_apiserver.len();
                self.none_of(Tier::Apiserver, count, format!("skipped: apiserver: {count} tests: {why}"));
                return Ok(());
            }
        };
        // These tests wait most of the time.
        let environment = [("LOCALPOOL_CLUSTER_BIN", cluster.as_str()), (THREADS, "4")];
        self.cargo_tier(Tier::Apiserver, "apiserver", &TARGETS_OF_APISERVER, &[], &environment)
    }

    /// A tier that cannot run here at all.
    fn none_of(&mut self, tier: Tier, skipped: usize, message: String) {
        self.summary.unable(message);
        self.summary.row(tier.name(), Counts { skipped, ..Counts::default() }, 0);
    }

    /// The output of one of our scripts; if it fails, its output is the reason.
    fn script(&self, path: &str) -> io::Result<Result<String, String>> {
        answer(&mut command(self.root.join(path), &self.root))
    }

    fn cargo_tier(
        &mut self,
        tier: Tier,
        title: &str,
        targets: &[&str],
        tests: &[String],
        environment: &[(&str, &str)],
    ) -> io::Result<()> {
        begin(title);
        let begun = Instant::now();
        let log = self.log(tier);
        let mut cargo = command("cargo", &self.root);
        cargo.args(CARGO_TEST).arg("--no-fail-fast").args(targets);
        cargo.env(THREADS, threads()?);
        cargo.args(["--", "--show-output", "--exact"]).args(tests).envs(environment.iter().copied());
        let (status, text) = logged(&mut cargo, &log, cargo_log::is_shown)?;
        let (mut counts, skipped) = cargo_log::count(&text);
        skipped.into_iter().for_each(|why| self.summary.note(format!("skipped: {title}: {why}")));
        if !status.success() {
            cargo_log::failures(&text).iter().for_each(|line| println!("{line}"));
            if counts.failed == 0 {
                counts.failed = 1;
                self.summary.note(format!("failed: {title}: cargo ended with {status}; see {}", log.display()));
            }
        }
        self.summary.row(title, counts, begun.elapsed().as_secs());
        Ok(())
    }

    fn sanity(&mut self) -> io::Result<()> {
        begin("sanity");
        let begun = Instant::now();
        if let Err(why) = self.script("scripts/go-version")? {
            self.none_of(Tier::Sanity, 1, format!("skipped: sanity: {why}"));
            return Ok(());
        }
        let table = self.target.join("test/sanity.summary");
        // The table of an earlier run.
        let _ = fs::remove_file(&table);
        let mut go = self.go_test(&table)?;
        let log = self.log(Tier::Sanity);
        let (status, text) = logged(&mut go, &log, go_log::is_shown)?;
        let table = fs::read_to_string(&table).ok();
        table.iter().for_each(|table| print!("{table}"));
        let mut counts = go_log::count(&text, table.as_deref());
        self.not_tried(&text, table.as_deref(), &mut counts);
        if !status.success() && counts.failed == 0 {
            counts.failed = 1;
            self.summary.note(format!("failed: sanity: go test ended with {status}; see {}", log.display()));
            go_log::complaints(&text).iter().for_each(|line| println!("{line}"));
        }
        let specs = table.as_deref().map(go_log::specs).unwrap_or_default();
        if self.is_root && counts.failed == 0 && specs.passed == 0 {
            counts.failed = 1;
            self.summary.note(format!("failed: sanity: no spec of csi-sanity passed; see {}", log.display()));
        }
        self.summary.row(Tier::Sanity.name(), counts, begun.elapsed().as_secs());
        Ok(())
    }

    /// Everything that can run here. The binary was built with the tests: a build of its own would use other features
    /// of the dependencies, and would build all of them again.
    fn go_test(&mut self, table: &Path) -> io::Result<Command> {
        let mut go = command("go", &self.root.join("sanity"));
        go.args(["test", "-count=1", "-v", "-timeout", "30m"]);
        let mut cluster = String::new();
        if !self.is_root {
            go.args(["-run", "Official|Difference"]);
            let message =
                format!("skipped: sanity: the {SANITY_RUNS} runs of csi-sanity need root, for loop devices and mounts");
            self.summary.unable(message);
        } else {
            match self.script("scripts/cluster-program")? {
                Ok(program) => cluster = program,
                Err(why) => self.summary.unable(format!(
                    "skipped: sanity: the {SANITY_RUNS_ON_KUBERNETES} runs of csi-sanity on Kubernetes: {why}"
                )),
            }
        }
        go.arg("./...").env("LOCALPOOL_BIN", self.target.join("debug/localpool"));
        go.env("LOCALPOOL_CLUSTER_BIN", cluster).env("LOCALPOOL_SANITY_SUMMARY", table);
        Ok(go)
    }

    fn not_tried(&mut self, log: &str, table: Option<&str>, counts: &mut Counts) {
        let specs = table.map(go_log::specs).unwrap_or_default();
        if specs.skipped > 0 {
            self.summary.note(format!(
                "skipped: sanity: {} specs, by the suite itself: pending there, or for a capability that the driver does \
                 not advertise (named above)",
                specs.skipped
            ));
        }
        counts.skipped += match self.is_root {
            true => SANITY_RUNS_ON_KUBERNETES * go_log::not_tried(log),
            false => SANITY_RUNS,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::{SANITY_RUNS, SANITY_RUNS_ON_KUBERNETES};

    #[test]
    fn the_suite_runs_once_for_each_layout_and_mode_standalone_and_on_kubernetes() {
        let suite = include_str!("../../sanity/sanity_test.go");
        let list = |begin: &str, end: &str| suite.split_once(begin).and_then(|(_, rest)| rest.split_once(end));
        let (layouts, _) = list("var layouts = []layout{", "\n}").expect("the list of layouts");
        let (modes, _) = list("var accessTypes = []string{", "}").expect("the list of modes");
        let runs = layouts.matches("{name: ").count() * modes.split(',').count();
        assert_eq!((SANITY_RUNS_ON_KUBERNETES, SANITY_RUNS), (runs, 2 * runs));
    }
}
