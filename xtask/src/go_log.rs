//! The output of `go test` for csi-sanity, and the table that the suite wrote. Pure.

use super::cargo_log::Counts;

/// Which lines a person wants to see during a run: tests, and the runs of csi-sanity, but not each spec.
pub fn is_shown(line: &str) -> bool {
    if line.starts_with("=== ") {
        return true;
    }
    let ended = ["--- PASS: ", "--- FAIL: ", "--- SKIP: "];
    let Some(name) = ended.iter().find_map(|how| line.trim_start().strip_prefix(how)) else { return false };
    let name = name.split(' ').next().unwrap_or_default();
    let mut parts = name.split('/').peekable();
    let is_test = parts.next().is_some_and(|test| test.starts_with("Test"));
    parts.next_if_eq(&"Kubernetes");
    let is_run = match (parts.next(), parts.next()) {
        (None, _) => true,
        (Some(layout), Some(mode)) => is_run(&format!("{layout}/{mode}")),
        (Some(_), None) => false,
    };
    is_test && is_run && parts.next().is_none()
}

/// Counts Go's own tests one by one, and the specs of `TestSanity` from the table.
pub fn count(log: &str, table: Option<&str>) -> Counts {
    let own = |how: &str| {
        let begins = format!("--- {how}: Test");
        log.lines().filter(|line| line.starts_with(&begins) && !line.contains(": TestSanity ")).count()
    };
    let specs = table.map(specs).unwrap_or_default();
    Counts {
        passed: own("PASS") + specs.passed,
        failed: own("FAIL") + specs.failed,
        skipped: own("SKIP") + specs.skipped,
    }
}

/// The rows of the table: `Whole/block  passed failed pending skipped …`.
pub fn specs(table: &str) -> Counts {
    let mut counts = Counts::default();
    for line in table.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        if words.len() >= 6 && is_run(words[0]) {
            let number = |at: usize| words[at].parse::<usize>().unwrap_or(0);
            counts.passed += number(1);
            counts.failed += number(2);
            counts.skipped += number(3) + number(4);
        }
    }
    counts
}

/// `Whole/block`, `Kubernetes/Whole/block`.
fn is_run(word: &str) -> bool {
    let lower = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_lowercase());
    let capital = |text: &&str| text.starts_with(|c: char| c.is_ascii_uppercase()) && lower(&text[1..]);
    let Some((before, last)) = word.rsplit_once('/') else { return false };
    lower(last) && before.split('/').all(|part| capital(&part))
}

/// How many groups of runs were not tried.
pub fn not_tried(log: &str) -> usize {
    let is_it =
        |line: &&str| line.starts_with(' ') && line.trim_start().starts_with("--- SKIP: TestSanity/Kubernetes ");
    log.lines().filter(is_it).count()
}

/// What went wrong if no test reports it: complaints and the lines after them, or the end of the log.
pub fn complaints(log: &str) -> Vec<&str> {
    const AFTER: usize = 3;
    let lines: Vec<&str> = log.lines().collect();
    let is_complaint = |line: &&str| line.starts_with("panic: ") || (line.starts_with(' ') && names_a_test_file(line));
    let mut shown = Vec::new();
    let mut until = 0;
    for (at, line) in lines.iter().enumerate() {
        if is_complaint(line) {
            until = at + AFTER + 1;
        }
        if at < until {
            shown.push(*line);
        }
    }
    match shown.is_empty() {
        true => lines[lines.len().saturating_sub(40)..].to_vec(),
        false => shown,
    }
}

fn names_a_test_file(line: &str) -> bool {
    let Some((file, _)) = line.trim_start().split_once("_test.go:") else { return false };
    !file.is_empty() && file.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "\
=== RUN   TestDescriptor
--- PASS: TestDescriptor (0.10s)
    --- PASS: TestDescriptor/a (0.01s)
--- FAIL: TestFacts (1.00s)
    facts_test.go:12: not so
        because
--- SKIP: TestLabKilled (0.00s)
    --- SKIP: TestSanity/Kubernetes (0.00s)
    --- PASS: TestSanity/Whole/block (9.00s)
--- PASS: TestSanity (10.00s)
";
    const TABLE: &str = "\
run                     passed failed pending skipped seconds
Whole/block                 70      0       1      20     9.1
Kubernetes/Whole/mount      68      2       0      20    11.0
total                      138      2       1      40
";

    #[test]
    fn tests_are_counted_one_by_one_and_the_suite_by_its_specs() {
        assert_eq!(specs(TABLE), Counts { passed: 138, failed: 2, skipped: 41 });
        assert_eq!(count(LOG, Some(TABLE)), Counts { passed: 139, failed: 3, skipped: 42 });
        assert_eq!(count(LOG, None), Counts { passed: 1, failed: 1, skipped: 1 });
        assert_eq!(not_tried(LOG), 1);
    }

    #[test]
    fn a_person_sees_tests_and_runs_but_not_parts_of_a_test() {
        let seen: Vec<&str> = LOG.lines().filter(|line| is_shown(line)).collect();
        assert!(!seen.iter().any(|line| line.contains("TestDescriptor/a")), "{seen:?}");
        assert_eq!(seen.len(), 7, "{seen:?}");
        assert!(is_shown("        --- PASS: TestSanity/Kubernetes/Carved/mount (3.00s)"));
    }

    #[test]
    fn a_complaint_is_shown_with_what_follows_it_and_else_the_end() {
        assert_eq!(complaints(LOG).first(), Some(&"    facts_test.go:12: not so"));
        assert_eq!(complaints(LOG).len(), 4);
        let long = "line\n".repeat(60);
        assert_eq!(complaints(&long).len(), 40);
    }
}
