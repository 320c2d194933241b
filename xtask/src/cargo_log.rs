//! The output of cargo's tests. Pure: takes in the lines, gives out how many passed, failed and were skipped, and why.

use std::collections::BTreeSet;

/// The results of the tests of a tier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub passed: usize,
    pub failed: usize,
    pub skipped: usize,
}

/// The names that `-- --list` prints.
pub fn listed(output: &str) -> BTreeSet<String> {
    output.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect()
}

/// Whether a test needs loop devices: the last part of its path begins with `loop_`.
pub fn needs_loop_devices(name: &str) -> bool {
    name.rsplit("::").next().is_some_and(|last| last.starts_with("loop_"))
}

/// Which lines a person wants to see during a run.
pub fn is_shown(line: &str) -> bool {
    let running = line.trim_start();
    let is_indented = running.len() < line.len();
    (is_indented && (running.starts_with("Running") || running.starts_with("Doc-tests")))
        || line.starts_with("test result: ")
        || (line.starts_with("test ") && line.ends_with(" FAILED"))
        || line.starts_with("error")
}

/// Counts a run, and returns the tests that reported that they cannot run here, with the reason: cargo counts them as
/// passed.
pub fn count(log: &str) -> (Counts, BTreeSet<String>) {
    let mut counts = Counts::default();
    for line in log.lines().filter_map(|line| line.strip_prefix("test result: ")) {
        let number = |what: &str| number_before(line, what);
        counts.passed += number("passed");
        counts.failed += number("failed");
        counts.skipped += number("ignored");
    }
    let skipped = skipped(log);
    counts.passed = counts.passed.saturating_sub(skipped.len());
    counts.skipped += skipped.len();
    (counts, skipped)
}

/// `12` of `ok. 12 passed; 0 failed`.
fn number_before(line: &str, what: &str) -> usize {
    let words: Vec<&str> = line.split_whitespace().collect();
    let is_it = |pair: &&[&str]| pair[1].trim_end_matches(';') == what;
    words.windows(2).find(is_it).and_then(|pair| pair[0].parse().ok()).unwrap_or(0)
}

fn skipped(log: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut test = None;
    for line in log.lines() {
        let of_test = line.strip_prefix("---- ").and_then(|line| line.strip_suffix(" stdout ----"));
        if let Some(name) = of_test {
            test = Some(name);
        } else if let (Some(name), Some(why)) = (test, line.strip_prefix("skipped: ")) {
            found.insert(format!("{name}: {why}"));
            test = None;
        }
    }
    found
}

/// What the failed tests printed.
pub fn failures(log: &str) -> Vec<&str> {
    let mut shown = Vec::new();
    let mut is_inside = false;
    for line in log.lines() {
        is_inside = (is_inside || line == "failures:") && !line.starts_with("test result:");
        if is_inside {
            shown.push(line);
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "
     Running unittests src/lib.rs (target/debug/deps/localpool-1)
test a::b ... ok
test c ... FAILED

successes:

---- lab::needs_xfs stdout ----
skipped: the kernel has no xfs

---- lab::talks stdout ----
something else
---- lab::needs_xfs stdout ----
skipped: the kernel has no xfs

failures:

---- c stdout ----
panicked at the disco

failures:
    c

test result: FAILED. 9 passed; 1 failed; 2 ignored; 0 measured; 3 filtered out; finished in 1.00s

   Doc-tests localpool
test result: ok. 4 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s
error: test failed, to rerun pass `--lib`
";

    #[test]
    fn all_results_are_added_up_and_a_test_that_skipped_itself_did_not_pass() {
        let (counts, skipped) = count(LOG);
        assert_eq!(counts, Counts { passed: 12, failed: 1, skipped: 3 });
        assert_eq!(skipped.into_iter().collect::<Vec<_>>(), ["lab::needs_xfs: the kernel has no xfs"]);
        assert_eq!(count("error: could not compile"), (Counts::default(), BTreeSet::new()));
    }

    #[test]
    fn what_failed_is_shown_up_to_the_result() {
        let shown = failures(LOG);
        assert_eq!((shown.first(), shown.last()), (Some(&"failures:"), Some(&"")));
        assert!(shown.contains(&"panicked at the disco") && shown.contains(&"    c"), "{shown:?}");
    }

    #[test]
    fn a_person_sees_what_runs_what_failed_and_the_results() {
        let seen: Vec<&str> = LOG.lines().filter(|line| is_shown(line)).collect();
        assert_eq!(seen.len(), 6, "{seen:?}");
        assert!(!is_shown("Running late") && !is_shown("test a ... ok"));
    }

    #[test]
    fn a_test_needs_loop_devices_if_its_own_name_says_so() {
        let names = listed(
            "tests::loop_a: test\nloop_b: test\nloop_c::plain: test\na_loop_device: test\n4 tests, 0 benchmarks",
        );
        let of_loop: Vec<_> = names.iter().filter(|name| needs_loop_devices(name)).map(String::as_str).collect();
        assert_eq!((names.len(), of_loop), (4, vec!["loop_b", "tests::loop_a"]));
    }
}
