//! What the demo prints: a line for each step when it is done, and at the end one table and the disks before and after.

use std::fmt::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::host::stdout::{PrintError, print};

/// Prints a line. A reader that has gone away, as in `localpool demo | head`, stops nothing.
pub fn say(text: &str) {
    let _ = print(&format!("{text}\n"));
}

/// What was done so far.
#[derive(Debug)]
pub struct Report {
    begun: Instant,
    rows: Vec<StepRow>,
    pub before: String,
    pub after: String,
}

/// A step, with what happened to each volume in few words; the same words for many volumes are printed once.
#[derive(Debug)]
struct StepRow {
    step: &'static str,
    gists: Vec<(String, Vec<String>)>,
    took: Duration,
}

impl Report {
    pub fn begin(dir: &Path) -> Self {
        say(&format!("localpool demo: three sparse disks in {}, no other disk is written to\n", dir.display()));
        Self { begun: Instant::now(), rows: Vec::new(), before: String::new(), after: String::new() }
    }

    /// A step is done, for one volume or for all. `gist` is for the table, `detail` for the line.
    pub fn done(&mut self, step: &'static str, volume: Option<&str>, detail: &str, gist: &str, took: Duration) {
        say(format!("{:>9}  {step:<20}{:<13}{detail}", millis(took), volume.unwrap_or_default()).trim_end());
        let at = self.rows.iter().position(|row| row.step == step).unwrap_or(self.rows.len());
        if at == self.rows.len() {
            self.rows.push(StepRow { step, gists: Vec::new(), took: Duration::ZERO });
        }
        let row = &mut self.rows[at];
        row.took += took;
        let volumes = volume.map(str::to_owned);
        match row.gists.iter_mut().find(|(known, _)| known == gist) {
            Some((_, already)) => already.extend(volumes),
            None => row.gists.push((gist.to_owned(), volumes.into_iter().collect())),
        }
    }

    /// The closing table. Here it is an error if nobody can read it.
    pub fn finish(&self) -> Result<(), PrintError> {
        let table = table(&self.rows, self.begun.elapsed());
        print(&format!("\n{table}\ndisks before:\n{}\ndisks after:\n{}\n", self.before, self.after))
    }
}

fn millis(took: Duration) -> String {
    format!("{:.1} ms", took.as_secs_f64() * 1000.0)
}

fn table(rows: &[StepRow], all: Duration) -> String {
    let lines = rows.iter().flat_map(lines);
    let total = ("all", "every step succeeded".to_owned(), millis(all));
    let lines: Vec<(&str, String, String)> = lines.chain([total]).collect();
    let step_width = lines.iter().map(|(step, ..)| step.len()).max().unwrap_or(0);
    let message_width = lines.iter().map(|(_, message, _)| message.chars().count()).max().unwrap_or(0);
    let mut text = format!("{:<step_width$}  {:<message_width$}  {:>12}\n", "STEP", "WHAT HAPPENED", "MILLISECONDS");
    for (step, message, took) in lines {
        let took = took.trim_end_matches(" ms");
        let line = format!("{step:<step_width$}  {message:<message_width$}  {took:>12}");
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text
}

/// One line for each result, the time on the first.
fn lines(row: &StepRow) -> impl Iterator<Item = (&str, String, String)> {
    let alone = row.gists.len() == 1;
    row.gists.iter().enumerate().map(move |(index, (gist, volumes))| {
        let message = match (alone, volumes.as_slice()) {
            (_, []) => gist.clone(),
            (true, [_, _, ..]) => format!("all {}: {gist}", volumes.len()),
            _ => format!("{}: {gist}", volumes.join(", ")),
        };
        if index == 0 { (row.step, message, millis(row.took)) } else { ("", message, String::new()) }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_one_row_with_one_line_for_each_thing_that_happened() {
        let mut report = Report::begin(Path::new("/tmp/x"));
        let ms = Duration::from_millis;
        report.done("create", Some("a"), "", "carved", ms(1));
        report.done("create", Some("b"), "", "took a slot", ms(2));
        report.done("create", Some("c"), "", "carved", ms(3));
        report.done("stage", Some("a"), "", "mounted", ms(4));
        report.done("stage", Some("b"), "", "mounted", ms(4));
        report.done("stop", None, "", "in good order", ms(5));
        let lines: Vec<_> = report.rows.iter().flat_map(lines).collect();
        let line = |step, message: &str, took: &str| (step, message.to_owned(), took.to_owned());
        assert_eq!(
            lines,
            [
                line("create", "a, c: carved", "6.0 ms"),
                line("", "b: took a slot", ""),
                line("stage", "all 2: mounted", "8.0 ms"),
                line("stop", "in good order", "5.0 ms"),
            ]
        );
    }
}
