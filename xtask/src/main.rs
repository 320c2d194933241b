//! Tasks of the project that are more than a few lines of bash. `scripts/test` builds it and calls it.
//!
//! Takes in the name of a task and its arguments; gives out what the task prints, and its exit status: 0; 1 if a test
//! failed or a tier that was asked for could not run; 2 if the arguments are wrong.

mod cargo_log;
mod go_log;
mod process;
mod summary;
mod tier;
mod tiers;

use std::process::ExitCode;

use tier::Tier;

const USAGE: &str = "usage: scripts/test [--plan] [unit] [loop] [apiserver] [sanity]      (all four by default)";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        ["test", "--plan", tiers @ ..] => asked(tiers).map(|asked| {
            asked.all.iter().for_each(|tier| println!("{}", tier.name()));
            ExitCode::SUCCESS
        }),
        ["test", tiers @ ..] => asked(tiers).map(|asked| match tiers::run(&asked) {
            Ok(summary) => summary.status(),
            Err(error) => failure(&error.to_string(), 1),
        }),
        _ => Err(USAGE.to_owned()),
    };
    done.unwrap_or_else(|problem| failure(&problem, 2))
}

fn failure(problem: &str, status: u8) -> ExitCode {
    eprintln!("scripts/test: {problem}");
    ExitCode::from(status)
}

/// Which tiers run, and whether a person named them.
pub struct Asked {
    pub all: Vec<Tier>,
    pub by_name: bool,
}

fn asked(words: &[&str]) -> Result<Asked, String> {
    let named: Result<Vec<Tier>, String> = words.iter().map(|word| word.parse()).collect();
    let named = named?;
    let by_name = !named.is_empty();
    Ok(Asked { all: if by_name { named } else { Tier::ALL.to_vec() }, by_name })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_name_all_tiers_run_and_an_unknown_one_is_refused_with_those_that_there_are() {
        let all = asked(&[]).unwrap_or_else(|why| panic!("{why}"));
        assert_eq!((all.all.len(), all.by_name), (4, false));
        let two = asked(&["loop", "sanity"]).unwrap_or_else(|why| panic!("{why}"));
        assert_eq!((two.all, two.by_name), (vec![Tier::Loop, Tier::Sanity], true));
        let refused = asked(&["unit", "lop"]).err().unwrap_or_default();
        assert_eq!(refused, "no tier is called 'lop'; they are unit, loop, apiserver, sanity");
    }
}
