//! The outcome of each check: a line when it is known, a line of numbers at the end, and the list that
//! scripts/test-vm prints.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::time::Instant;

use localpool_testing::record;

pub struct Report {
    /// Only checks with this word in their name are run.
    word: String,
    passed: usize,
    failed: usize,
    skipped: usize,
}

impl Report {
    pub fn new(word: &str) -> Self {
        Self { word: word.to_owned(), passed: 0, failed: 0, skipped: 0 }
    }

    pub fn wants(&self, name: &str) -> bool {
        name.contains(&self.word)
    }

    /// Runs a check, which fails by a panic. Its name is the promise that it proves.
    pub fn check(&mut self, name: &str, body: impl FnOnce()) {
        if !self.wants(name) {
            return;
        }
        let begun = Instant::now();
        let ended = catch_unwind(AssertUnwindSafe(body)).map_err(|panic| {
            let message = panic.downcast_ref::<String>().cloned();
            message.or_else(|| panic.downcast_ref::<&str>().map(|message| (*message).to_owned())).unwrap_or_default()
        });
        self.outcome(name, begun, ended);
    }

    /// A check that has its outcome already.
    pub fn outcome(&mut self, name: &str, begun: Instant, ended: Result<(), String>) {
        if !self.wants(name) {
            return;
        }
        let (word, why) = match &ended {
            Ok(()) => ("ok", ""),
            Err(why) => ("FAILED", why.as_str()),
        };
        match ended {
            Ok(()) => self.passed += 1,
            Err(_) => self.failed += 1,
        }
        self.line(word, begun, name, why);
    }

    pub fn skipped(&mut self, name: &str, why: &str) {
        if self.wants(name) {
            self.skipped += 1;
            self.line("skipped", Instant::now(), name, why);
        }
    }

    fn line(&self, outcome: &str, begun: Instant, name: &str, why: &str) {
        let seconds = begun.elapsed().as_secs_f64();
        println!("{outcome:<8} {seconds:8.1}  {name}");
        if !why.is_empty() {
            println!("    {}", why.replace('\n', "\n    "));
        }
        let why = why.lines().next().unwrap_or_default().replace('\t', " ");
        record("LOCALPOOL_VM_RESULTS", outcome, begun.elapsed(), name, &why);
    }

    pub fn end(self) -> ExitCode {
        println!("{} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped);
        if self.failed == 0 && self.passed > 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}
