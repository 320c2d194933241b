//! The outcomes of a tier whose checks write a list: a line for each, with its outcome, seconds, name and reason, by
//! tabs. Takes in the list, gives out the table that closes the run.

use std::fmt;
use std::fs;
use std::io;
use std::path::Path;

/// Prints the table of a list. A list that is missing is one without a check.
pub fn print(file: &Path) -> io::Result<()> {
    let text = match fs::read_to_string(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        read => read?,
    };
    print!("\n=== summary\n{}", Results::read(&text));
    Ok(())
}

struct Check<'a> {
    outcome: &'a str,
    seconds: f64,
    name: &'a str,
    why: &'a str,
}

struct Results<'a>(Vec<Check<'a>>);

impl<'a> Results<'a> {
    fn read(text: &'a str) -> Self {
        let check = |line: &'a str| {
            let mut parts = line.splitn(4, '\t');
            let mut next = || parts.next().unwrap_or_default();
            Check { outcome: next(), seconds: next().parse().unwrap_or(0.0), name: next(), why: next() }
        };
        Self(text.lines().map(check).collect())
    }

    fn count(&self, outcome: &str) -> usize {
        self.0.iter().filter(|check| check.outcome == outcome).count()
    }
}

impl fmt::Display for Results<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:<8} {:>8}  check", "outcome", "seconds")?;
        for Check { outcome, seconds, name, why } in &self.0 {
            let why = if why.is_empty() { String::new() } else { format!(" ({why})") };
            writeln!(f, "{outcome:<8} {seconds:>8.1}  {name}{why}")?;
        }
        let red: Vec<_> = self.0.iter().filter(|check| check.outcome == "FAILED" && !check.why.is_empty()).collect();
        for (index, Check { name, why, .. }) in red.iter().enumerate() {
            let gap = if index == 0 { "\n" } else { "" };
            writeln!(f, "{gap}FAILED   {name}\n    {why}")?;
        }
        let (passed, failed, skipped) = (self.count("ok"), self.count("FAILED"), self.count("skipped"));
        writeln!(f, "{passed} passed, {failed} failed, {skipped} skipped")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_closes_with_what_failed_and_why_and_with_the_sum() {
        let list = "ok\t1.25\ta pod runs\t\nskipped\t0.00\ta node restarts\tneeds the machine\n\
                    FAILED\t12.00\ta disk is found\t2 disks, not 3\nFAILED\t3\tanother\t\n";
        let expected = "\
outcome   seconds  check
ok            1.2  a pod runs
skipped       0.0  a node restarts (needs the machine)
FAILED       12.0  a disk is found (2 disks, not 3)
FAILED        3.0  another

FAILED   a disk is found
    2 disks, not 3
1 passed, 2 failed, 1 skipped
";
        assert_eq!(Results::read(list).to_string(), expected);
        assert_eq!(Results::read("").count("ok"), 0);
    }
}
