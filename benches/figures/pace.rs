//! What is measured, by the arguments: which groups, and how much of everything: all that the figures need, or just
//! enough to see that it still works.

use std::process::ExitCode;

use anyhow::{Result, bail};

/// What a short run says at its end.
pub const ENDED: &str = "all of it works; the figures of so short a run say nothing, and none is written";

/// A size or a number of rounds, in either form.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    pub full: u64,
    pub short: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    Full,
    /// `--short`: no figure of it says anything, and none is written.
    Short,
}

impl Pace {
    pub fn of_arguments() -> Self {
        if std::env::args().any(|word| word == "--short") { Self::Short } else { Self::Full }
    }

    pub fn of(self, size: Size) -> u64 {
        match self {
            Self::Full => size.full,
            Self::Short => size.short,
        }
    }

    /// `of`, to count by.
    pub fn count(self, size: Size) -> usize {
        usize::try_from(self.of(size)).expect("the sizes are constants that fit")
    }
}

/// Runs the benchmark if cargo was asked for it. `cargo test --all-targets` starts it too, and must not wait minutes
/// for it: `elsewhere` is the command that measures.
pub fn main(name: &str, elsewhere: &str, run: impl FnOnce() -> Result<()>) -> ExitCode {
    if !std::env::args().any(|word| word == "--bench") {
        println!("{name}: measures only under {elsewhere}");
        return ExitCode::SUCCESS;
    }
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{name}: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Those of the groups that the arguments name, in their order; all of them if none is named.
pub fn groups(all: &[&'static str]) -> Result<Vec<&'static str>> {
    let wanted: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with("--")).collect();
    if let Some(unknown) = wanted.iter().find(|word| !all.contains(&word.as_str())) {
        bail!("there is no group {unknown}; there are {}", all.join(", "));
    }
    let is_wanted = |name: &&str| wanted.is_empty() || wanted.iter().any(|word| word == *name);
    Ok(all.iter().copied().filter(|name| is_wanted(name)).collect())
}
