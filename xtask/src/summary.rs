//! The closing lines of a run: a row for each tier, what was skipped or went wrong and why, and the sum.

use std::fmt;
use std::process::ExitCode;

use super::cargo_log::Counts;

#[derive(Debug, Default)]
pub struct Summary {
    rows: Vec<(String, Counts, u64)>,
    notes: Vec<String>,
    /// A tier that a person named could not run completely.
    unable: bool,
    by_name: bool,
}

impl Summary {
    pub fn new(by_name: bool) -> Self {
        Self { by_name, ..Self::default() }
    }

    /// A tier of which no test ran has failed, whatever its program says.
    pub fn row(&mut self, tier: &str, mut counts: Counts, seconds: u64) {
        if counts == Counts::default() {
            counts.failed = 1;
            self.note(format!("failed: {tier}: no test ran"));
        }
        self.rows.push((tier.to_owned(), counts, seconds));
    }

    pub fn note(&mut self, message: String) {
        self.notes.push(message);
    }

    /// Part of a tier could not run here; the note has the reason.
    pub fn unable(&mut self, message: String) {
        self.note(message);
        self.unable = true;
    }

    fn total(&self) -> Counts {
        self.rows.iter().fold(Counts::default(), |sum, (_, row, _)| Counts {
            passed: sum.passed + row.passed,
            failed: sum.failed + row.failed,
            skipped: sum.skipped + row.skipped,
        })
    }

    pub fn is_success(&self) -> bool {
        self.total().failed == 0 && !(self.by_name && self.unable)
    }

    pub fn status(&self) -> ExitCode {
        print!("{self}");
        if self.is_success() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "\n=== summary")?;
        writeln!(f, "{:<24} {:>7} {:>7} {:>8} {:>8}", "tier", "passed", "failed", "skipped", "seconds")?;
        for (tier, Counts { passed, failed, skipped }, seconds) in &self.rows {
            writeln!(f, "{tier:<24} {passed:>7} {failed:>7} {skipped:>8} {seconds:>8}")?;
        }
        self.notes.iter().try_for_each(|note| writeln!(f, "{note}"))?;
        let Counts { passed, failed, skipped } = self.total();
        writeln!(f, "{passed} passed, {failed} failed, {skipped} skipped")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ran(counts: Counts, by_name: bool) -> Summary {
        let mut summary = Summary::new(by_name);
        summary.row("unit, property, crash", Counts { passed: 3, failed: 0, skipped: 0 }, 7);
        summary.row("loop", counts, 12);
        summary
    }

    #[test]
    fn it_closes_with_the_sum() {
        let mut summary = ran(Counts { passed: 1, failed: 0, skipped: 2 }, false);
        summary.note("skipped: loop: two".to_owned());
        let expected = "
=== summary
tier                      passed  failed  skipped  seconds
unit, property, crash          3       0        0        7
loop                           1       0        2       12
skipped: loop: two
4 passed, 0 failed, 2 skipped
";
        assert_eq!(summary.to_string(), expected);
    }

    #[test]
    fn a_failed_test_fails_and_so_does_a_tier_that_was_asked_for_and_could_not_run() {
        for (failed, by_name, unable, success) in
            [(0, false, false, true), (1, false, false, false), (0, false, true, true), (0, true, true, false)]
        {
            let mut summary = ran(Counts { passed: 1, failed, skipped: 0 }, by_name);
            if unable {
                summary.unable("skipped: loop: needs root".to_owned());
            }
            assert_eq!(summary.is_success(), success, "{failed} {by_name} {unable}");
        }
    }

    #[test]
    fn a_tier_of_which_no_test_ran_fails() {
        let summary = ran(Counts::default(), false);
        assert!(!summary.is_success() && summary.to_string().contains("failed: loop: no test ran"), "{summary}");
        assert!(ran(Counts { skipped: 1, ..Counts::default() }, false).is_success());
    }
}
