//! The outcomes of checks, one a line, as scripts/tier.bash sums them up.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::time::Duration;

/// Appends an outcome to the list whose path the environment has by this name, if it has one.
pub fn record(list: &str, outcome: &str, took: Duration, check: &str, why: &str) {
    let Some(path) = std::env::var_os(list) else { return };
    let mut file = OpenOptions::new().append(true).create(true).open(path).unwrap();
    // In one write, as several checks end at once.
    let line = format!("{outcome}\t{:.1}\t{check}\t{why}\n", took.as_secs_f64());
    file.write_all(line.as_bytes()).unwrap();
}
