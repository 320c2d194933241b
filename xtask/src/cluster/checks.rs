//! The checks of the cluster tier, part by part: `tests/cluster/main.rs` says what the parts are.

use std::collections::BTreeSet;
use std::io;
use std::process::ExitCode;

use super::super::cargo_log;
use super::super::process::{child, command, followed, output};
use super::super::tree;
use super::say;

/// Each part, and how many of its checks run at once.
const PARTS: [(&str, usize); 4] = [("together", 16), ("turns", 12), ("alone", 1), ("last", 1)];

/// Runs the checks of the program whose names have the word, each part to its end. Fails if a check does.
pub fn run(program: &str, word: &str) -> io::Result<ExitCode> {
    let root = tree::root()?;
    let logs = tree::target(&root).join("test");
    let names = cargo_log::listed(&output(command(program, &root).arg("--list"))?);
    let mut ended = ExitCode::SUCCESS;
    for (part, threads) in PARTS {
        let checks = of_part(&names, part, word);
        if checks.is_empty() {
            continue;
        }
        say(format_args!("checks: {part}"));
        let mut run = child(program, &root);
        run.arg(format!("--test-threads={threads}")).args(["--show-output", "--exact"]).args(checks);
        let (status, text) = followed(&mut run, &logs.join(format!("cluster-{part}.log")), is_shown)?;
        if !status.success() {
            cargo_log::failures(&text).iter().for_each(|line| println!("{line}"));
            ended = ExitCode::FAILURE;
        }
    }
    Ok(ended)
}

fn of_part<'a>(names: &'a BTreeSet<String>, part: &str, word: &str) -> Vec<&'a str> {
    let is_of =
        |name: &&String| name.strip_prefix(part).is_some_and(|rest| rest.starts_with("::")) && name.contains(word);
    names.iter().filter(is_of).map(String::as_str).collect()
}

/// Which lines a person wants to see during a run: each check that ended, and the results.
fn is_shown(line: &str) -> bool {
    line.starts_with("test result")
        || (line.starts_with("test ") && (line.ends_with(" ok") || line.ends_with(" FAILED")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_has_the_checks_of_its_module_and_a_word_may_be_anywhere_in_their_names() {
        let names = cargo_log::listed(
            "alone::node::the_node_restarts: test\ntogether::pods::a_pod_runs: test\n\
             together::a_node: test\ntogetherness::a: test\n",
        );
        assert_eq!(of_part(&names, "together", ""), ["together::a_node", "together::pods::a_pod_runs"]);
        assert_eq!(of_part(&names, "together", "pod"), ["together::pods::a_pod_runs"]);
        assert!(of_part(&names, "last", "").is_empty());
    }

    #[test]
    fn a_person_sees_how_each_check_ended_and_not_what_it_prints() {
        let lines =
            ["test a::b ... ok", "test a ... FAILED", "test result: ok. 2 passed", "running 2 tests", "test b ..."];
        let seen: Vec<&str> = lines.into_iter().filter(|line| is_shown(line)).collect();
        assert_eq!(seen.len(), 3, "{seen:?}");
    }
}
