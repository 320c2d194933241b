//! What documents, the chart, runbooks and messages tell a person to type after `localpool`: each is a subcommand that
//! exists, with options that it has, and has a row in `ELSEWHERE`. A runbook that names a verb of an earlier version
//! helps nobody.

use std::path::{Path, PathBuf};

use clap::CommandFactory;
use clap::error::ErrorKind;
use localpool::cli::{Cli, Plugin};
use regex::Regex;

use crate::{read, root, row, shown};

/// For whatever a person has to fill in: an id, a disk, a folder.
const ANYTHING: &str = "00000000-0000-4000-8000-000000000000";
/// For NAMESPACE/NAME.
const A_CLAIM: &str = "default/data";

/// Files below a folder with one of these endings.
fn below(folder: &str, endings: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    let mut open = vec![root().join(folder)];
    while let Some(path) = open.pop() {
        if path.is_dir() {
            open.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        } else if endings.iter().any(|ending| path.to_string_lossy().ends_with(ending)) {
            found.push(path.strip_prefix(root()).unwrap().to_str().unwrap().to_owned());
        }
    }
    found.sort();
    found
}

/// What follows `localpool ` in the commands of a text: those in code spans, and the lines of shell blocks.
fn typed(file: &str) -> Vec<String> {
    let text = read(file);
    let code = Regex::new("`([^`]+)`").unwrap();
    let spans = |text: &str| code.captures_iter(text).map(|span| span[1].to_owned()).collect::<Vec<_>>();
    let all = match Path::new(file).extension().and_then(|ending| ending.to_str()) {
        Some("md") => shown(&text),
        // A string continues after a backslash, and a comment after its slashes.
        Some("rs") => spans(&Regex::new(r"\\?\n\s*(//[/!]? )?").unwrap().replace_all(&text, " ")),
        _ => spans(&text),
    };
    let begins = Regex::new(r"(^|-- )localpool +(?<verb>[a-z][a-z-]*( .*)?)$").unwrap();
    let one_line = all.iter().map(|command| command.split_whitespace().collect::<Vec<_>>().join(" "));
    one_line.filter_map(|command| begins.captures(&command).map(|found| found["verb"].to_owned())).collect()
}

/// Every way to read it: with one of several values, and with everything that may be left out.
fn readings(command: &str) -> Vec<Vec<String>> {
    let mut readings = vec![Vec::new()];
    let plain = command.replace(['[', ']', '\\', '"'], "");
    for word in plain.split_whitespace().take_while(|word| !word.starts_with(['|', '<', '>', '&', '#', '…'])) {
        // A redirection, as in `2> log`.
        if word.starts_with(|c: char| c.is_ascii_digit()) && word.ends_with('>') {
            break;
        }
        let is_name = word.starts_with(|c: char| c.is_ascii_uppercase() || matches!(c, '{' | '$'));
        let values: Vec<&str> = match is_name {
            true if word.contains('/') => vec![A_CLAIM],
            true => vec![ANYTHING],
            false => word.split('|').collect(),
        };
        readings = readings
            .into_iter()
            .flat_map(|reading: Vec<String>| {
                values.iter().map(move |value| reading.iter().cloned().chain([(*value).to_owned()]).collect())
            })
            .collect();
    }
    readings
}

/// What is wrong with it; a missing argument is not.
fn wrong(command: &str) -> Option<String> {
    wrong_for(Cli::command(), command)
}

fn wrong_for(program: clap::Command, command: &str) -> Option<String> {
    readings(command).into_iter().find_map(|words| {
        let words = ["localpool".to_owned()].into_iter().chain(words);
        let error = program.clone().try_get_matches_from(words).err()?;
        let is_short = matches!(
            error.kind(),
            ErrorKind::MissingRequiredArgument
                | ErrorKind::MissingSubcommand
                | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
                | ErrorKind::DisplayHelp
                | ErrorKind::DisplayVersion
        );
        (!is_short).then(|| error.to_string().lines().next().unwrap_or_default().to_owned())
    })
}

#[test]
fn every_line_of_localpool_that_a_person_is_told_to_type_is_one_that_it_knows() {
    let documents = ["README.md".to_owned(), "CONTRIBUTING.md".to_owned()];
    let charts = below("charts", &[".md", ".yaml", ".txt", ".tpl"]);
    let all: Vec<String> = documents.into_iter().chain(below("docs", &[".md"])).chain(charts).collect();
    let mut found = Vec::new();
    let mut problems = Vec::new();
    for file in all.iter().chain(&below("src", &[".rs"])) {
        for command in typed(file) {
            if let Some(why) = wrong(&command) {
                problems.push(format!("{file}: `localpool {command}`: {why}"));
            }
            if row(&format!("localpool {command}")).is_none() {
                problems.push(format!("{file}: `localpool {command}` has no row in ELSEWHERE"));
            }
            found.push((file.clone(), command));
        }
    }
    assert!(problems.is_empty(), "\n{}\n", problems.join("\n"));
    for file in
        ["README.md", "docs/troubleshooting.md", "docs/runbooks/LocalpoolDiskMissing.md", "src/pool/whereabouts.rs"]
    {
        assert!(found.iter().any(|(of, _)| of == file), "no command was found in {file}: this test reads nothing");
    }
    assert!(PathBuf::from(&found[0].0).is_relative() && found.len() > 100, "only {} were found", found.len());
}

/// What is code in a file: in sentences, each span in one line; and each line of a block.
fn code(file: &str) -> Vec<String> {
    let text = read(file);
    let (line_end, span) = (Regex::new(r"\\?\n *").unwrap(), Regex::new("`([^`]+)`").unwrap());
    let spans = |text: &str| {
        // A string continues after a backslash, and a table has no bare bar.
        let text = line_end.replace_all(text, " ").replace("\\|", "|");
        span.captures_iter(&text).map(|span| span[1].to_owned()).collect::<Vec<_>>()
    };
    if !file.ends_with(".md") {
        return spans(&text);
    }
    let parts = text.split("```").enumerate();
    let each = parts.flat_map(|(number, part)| match number % 2 {
        0 => spans(part),
        _ => part.lines().skip(1).map(str::to_owned).collect(),
    });
    each.collect()
}

#[test]
fn every_line_of_the_plugin_that_a_person_is_told_to_type_is_one_that_it_knows() {
    let begins = Regex::new(r"kubectl localpool +(?<verb>[a-z][^`\n]*)").unwrap();
    let files = below("docs", &[".md"]).into_iter().chain(below("src", &[".rs"])).chain(["README.md".to_owned()]);
    let mut count = 0;
    for file in files {
        for span in code(&file) {
            for said in begins.captures_iter(&span) {
                let problem = wrong_for(Plugin::command(), &said["verb"]);
                assert_eq!(problem, None, "{file}: `kubectl localpool {}`", &said["verb"]);
                count += 1;
            }
        }
    }
    assert!(count > 40, "only {count} were found");
    assert!(wrong_for(Plugin::command(), "devices").is_some() && wrong_for(Plugin::command(), "why disks").is_some());
}

#[test]
fn a_line_that_localpool_does_not_know_is_told() {
    for good in [
        "disk",
        "disk adopt",
        "devices -o table\\|wide",
        "volume settle {id} --keep DISK [--dry-run]",
        "devices | head",
    ] {
        assert_eq!(wrong(good), None, "{good}");
    }
    for bad in [
        "disk give-away ID",
        "devices --all",
        "volume settle --for DISK",
        "state set-aside pool",
        "devices -o xml|wide",
    ] {
        assert!(wrong(bad).is_some(), "{bad}");
    }
}
