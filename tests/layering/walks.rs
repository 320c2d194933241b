//! The walks of docs/architecture.md: what a reader opens to follow one change from its cause to its end.

use std::collections::BTreeSet;
use std::fs;

use super::{SOURCES, takes_from};

struct Walk {
    name: String,
    /// How many files the document says that it has.
    length: usize,
    /// Each file that it names, and whether it is reached otherwise than by a call.
    files: Vec<(String, bool)>,
}

/// From the mark below a heading to the next heading. Each name of a file counts, also one that is only mentioned.
fn walks(text: &str) -> Vec<Walk> {
    let mut walks: Vec<Walk> = Vec::new();
    let (mut heading, mut is_inside) = ("", false);
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("### ") {
            (heading, is_inside) = (name, false);
        } else if let Some(length) = line.strip_prefix("<!-- walk: ").and_then(|rest| rest.strip_suffix(" files -->")) {
            let length = length.parse().expect("a number");
            walks.push(Walk { name: heading.to_owned(), length, files: Vec::new() });
            is_inside = true;
        } else if line.starts_with("## ") {
            is_inside = false;
        }
        if let Some(walk) = walks.last_mut().filter(|_| is_inside) {
            walk.files.extend(named(line));
        }
    }
    walks
}

/// The files that stand in backticks in a line, without `.rs`, and whether a ⇢ stands before each. A ⇢ at the end of a
/// line is none: it stands beside its file.
fn named(line: &str) -> Vec<(String, bool)> {
    let parts: Vec<&str> = line.split('`').collect();
    let pairs = parts.chunks_exact(2).map(|pair| (pair[0], pair[1]));
    let files = pairs.filter_map(|(before, name)| Some((name.strip_suffix(".rs")?, before.ends_with("⇢ "))));
    files.map(|(file, by_channel)| (file.to_owned(), by_channel)).collect()
}

/// What a file imports, and what it gets through the facade of another module.
fn is_connected(file: &str, with: &str) -> bool {
    let imports = |place: &str| -> BTreeSet<&'static str> {
        let (place, text, _) = SOURCES.iter().find(|(found, ..)| found == place).expect("it is there");
        takes_from(place, text)
    };
    let is_facade_of = |facade: &str, file: &str| {
        facade.strip_suffix("/mod").is_some_and(|module| file.starts_with(&format!("{module}/")))
    };
    let one_way = |from: &str, to: &str| imports(from).iter().any(|taken| *taken == to || is_facade_of(taken, to));
    one_way(file, with) || one_way(with, file)
}

#[test]
fn each_file_that_a_walk_names_counts_also_one_that_is_only_mentioned() {
    let steps = "1. `a.rs` asks `b/mod.rs` and\n   ⇢ `c.rs` for `Thing`.\n\nSee `d.rs`.";
    let found = walks(&format!("### A\n`x.rs`\n<!-- walk: 4 files -->\n{steps}\n## B\n1. `e.rs`\n"));
    let files: Vec<(&str, bool)> = found[0].files.iter().map(|(file, channel)| (file.as_str(), *channel)).collect();
    assert_eq!((found.len(), found[0].name.as_str(), found[0].length), (1, "A", 4));
    assert_eq!(files, [("a", false), ("b/mod", false), ("c", true), ("d", false)]);
}

#[test]
fn each_walk_of_the_architecture_has_as_many_files_as_it_says_and_goes_from_file_to_file() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let walks = walks(&fs::read_to_string(root.join("docs/architecture.md")).expect("the document"));
    assert_eq!(walks.len(), 3);
    let mut wrong = Vec::new();
    for Walk { name, length, files } in &walks {
        let distinct: BTreeSet<&str> = files.iter().map(|(file, _)| file.as_str()).collect();
        assert_eq!(distinct.len(), files.len(), "{name}: a file stands twice");
        assert_eq!(files.len(), *length, "{name}: it says that it has {length} files");
        for (at, (file, by_channel)) in files.iter().enumerate() {
            if !SOURCES.iter().any(|(place, _, test)| place == file && !test) {
                wrong.push(format!("{name}: there is no src/{file}.rs"));
            } else if at > 0 && !by_channel && !files[..at].iter().any(|(before, _)| is_connected(file, before)) {
                wrong.push(format!("{name}: nothing before src/{file}.rs leads to it"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
