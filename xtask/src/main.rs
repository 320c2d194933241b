//! Tasks of the project that are more than a list of commands. The scripts build it and call it, each with
//! the name of its task.
//!
//! Takes in the name of a task and its arguments; gives out what the task prints, and its exit status: 0; 1 if the task
//! failed, as when a test did or a tier that was asked for could not run; 2 if the arguments are wrong.

mod cargo_log;
mod cluster;
mod go_log;
mod machine;
mod process;
mod results;
mod sbom;
mod summary;
mod tier;
mod tiers;
mod tree;

use std::io;
use std::path::Path;
use std::process::ExitCode;

use tier::Tier;

const USAGE: &str = "usage: xtask test | results FILE | cluster | machine | sbom, each with its arguments";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        ["test", arguments @ ..] => test(arguments).unwrap_or_else(|problem| failure("scripts/test", &problem, 2)),
        ["results", file] => ended("results", results::print(Path::new(file)).map(|()| ExitCode::SUCCESS)),
        ["cluster", arguments @ ..] => ended("test-cluster", cluster::run(arguments)),
        ["machine", arguments @ ..] => ended("machine", machine::run(arguments)),
        ["sbom", arguments @ ..] => ended("sbom", sbom::run(arguments).map(|()| ExitCode::SUCCESS)),
        _ => failure("xtask", USAGE, 2),
    }
}

fn test(arguments: &[&str]) -> Result<ExitCode, String> {
    if let ["--plan", tiers @ ..] = arguments {
        asked(tiers)?.all.iter().for_each(|tier| println!("{}", tier.name()));
        return Ok(ExitCode::SUCCESS);
    }
    Ok(ended("scripts/test", tiers::run(&asked(arguments)?).map(|summary| summary.status())))
}

/// The exit status of a task; says why it failed.
fn ended(task: &str, done: io::Result<ExitCode>) -> ExitCode {
    done.unwrap_or_else(|error| failure(task, &error.to_string(), 1))
}

fn failure(task: &str, problem: &str, status: u8) -> ExitCode {
    eprintln!("{task}: {problem}");
    ExitCode::from(status)
}

/// Which tiers run, and whether a person named them.
pub struct Asked {
    pub all: Vec<Tier>,
    pub by_name: bool,
}

fn asked(arguments: &[&str]) -> Result<Asked, String> {
    let named: Result<Vec<Tier>, String> = arguments.iter().map(|word| word.parse()).collect();
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
