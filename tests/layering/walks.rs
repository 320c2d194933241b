//! The walks of docs/architecture.md: what a reader opens to follow one change from its cause to its end.

use std::collections::BTreeSet;
use std::fs;

use super::{SOURCES, takes_from};

struct Walk {
    name: String,
    most: usize,
    /// Each file, and whether it is reached otherwise than by a call.
    files: Vec<(String, bool)>,
}

/// The files of a line are the first path in backticks; what follows it explains.
fn walks(text: &str) -> Vec<Walk> {
    let mut walks: Vec<Walk> = Vec::new();
    let (mut heading, mut is_inside) = ("", false);
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("### ") {
            (heading, is_inside) = (name, false);
        } else if let Some(most) = line.strip_prefix("<!-- walk: at most ").and_then(|rest| rest.strip_suffix(" -->")) {
            walks.push(Walk { name: heading.to_owned(), most: most.parse().expect("a number"), files: Vec::new() });
            is_inside = true;
        } else if line.starts_with("## ") {
            is_inside = false;
        }
        let Some(walk) = walks.last_mut().filter(|_| is_inside) else { continue };
        let numbered = line.split_once(". ").filter(|(number, _)| number.parse::<usize>().is_ok());
        let file = numbered.and_then(|(_, step)| step.split('`').nth(1)).and_then(|file| file.strip_suffix(".rs"));
        if let (Some((_, step)), Some(file)) = (numbered, file) {
            walk.files.push((file.to_owned(), step.starts_with('⇢')));
        }
    }
    walks
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
fn each_walk_of_the_architecture_is_as_short_as_it_says_and_goes_from_file_to_file() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let walks = walks(&fs::read_to_string(root.join("docs/architecture.md")).expect("the document"));
    assert_eq!(walks.len(), 3);
    let mut wrong = Vec::new();
    for Walk { name, most, files } in &walks {
        let distinct: BTreeSet<&str> = files.iter().map(|(file, _)| file.as_str()).collect();
        assert_eq!(distinct.len(), files.len(), "{name}: a file stands twice");
        assert!((10..=*most).contains(&files.len()), "{name}: {} files, at most {most}", files.len());
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
