//! One name for one type, and one type for one name: no two types of `src/` are called the same, and those that the
//! glossary names exist.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use super::SOURCES;
use super::names::Names;

/// Names that two types may have, each with the reason.
const SHARED: [(&str, &str); 0] = [];

/// Words of the glossary that look like a type and are none.
const NO_TYPES: [(&str, &str); 1] = [("Claiming", "the type of a condition of the DevicePool")];

/// The types of each name, as places and lines; without those of tests and of traits.
fn types<'s>(sources: impl Iterator<Item = (&'s str, &'s str)>) -> BTreeMap<String, Vec<String>> {
    let mut types: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (place, text) in sources {
        for declared in Names::of(place, text).types.into_iter().filter(|declared| !declared.in_test) {
            types.entry(declared.name).or_default().push(format!("src/{place}.rs:{}", declared.line));
        }
    }
    types
}

fn shipped() -> impl Iterator<Item = (&'static str, &'static str)> {
    SOURCES.iter().filter(|(.., test)| !test).map(|(place, text, _)| (place.as_str(), text.as_str()))
}

#[test]
fn no_two_types_have_one_name() {
    let types = types(shipped());
    assert!(types.len() > 300, "only {} types were found", types.len());
    let is_shared = |name: &str| SHARED.iter().any(|(shared, _)| *shared == name);
    let twice: Vec<String> = types
        .iter()
        .filter(|(name, places)| places.len() > 1 && !is_shared(name))
        .map(|(name, places)| format!("{name}: {}", places.join(", ")))
        .collect();
    assert!(twice.is_empty(), "types of one name; call each what it is:\n{}", twice.join("\n"));
    for (name, _) in SHARED {
        assert!(types.get(name).is_some_and(|places| places.len() > 1), "{name} is one type now");
    }
}

#[test]
fn a_name_that_is_there_twice_is_found_in_modules_and_not_in_tests_and_traits() {
    let of = |texts: [&'static str; 2]| {
        let all = types(["pool/a", "host/b"].into_iter().zip(texts));
        all.into_iter().filter(|(_, places)| places.len() > 1).map(|(name, _)| name).collect::<Vec<_>>()
    };
    assert_eq!(of(["pub struct A;", "mod inner { pub(super) enum A { B } }"]), ["A"]);
    assert_eq!(of(["type A<'a> = &'a u8;", "trait A {}"]), ["A"]);
    assert_eq!(of(["struct A;", "#[cfg(test)]\nmod tests { struct A; }"]), [""; 0]);
    assert_eq!(of(["impl B for C { type A = u8; }", "impl B for D { type A = u8; } // struct A"]), [""; 0]);
    assert_eq!(of(["struct A;", "fn f() { struct A; let a: A = A; }"]), [""; 0]);
}

/// What the glossary says of the code: the spans of code in its last column.
fn spans(glossary: &str) -> BTreeSet<&str> {
    let rows = glossary.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| word |"));
    let last = rows.filter_map(|row| row.trim_end_matches(['|', ' ']).rsplit(" | ").next());
    last.flat_map(|column| column.split('`').skip(1).step_by(2)).collect()
}

#[test]
fn each_type_and_file_that_the_glossary_names_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let glossary = fs::read_to_string(root.join("docs/glossary.md")).expect("the document");
    let spans = spans(&glossary);
    assert!(spans.len() > 50, "only {} spans of code were found", spans.len());
    let types = types(shipped());
    let words: BTreeSet<String> = shipped()
        .flat_map(|(place, text)| Names::of(place, text).all.into_iter().flat_map(|named| named.path))
        .collect();
    let is_word = |part: &str| !part.is_empty() && part.chars().all(|c| c.is_alphanumeric() || c == '_');
    let mut wrong = Vec::new();
    for span in spans {
        let file = span.strip_suffix(".rs");
        if file.is_some_and(|file| !SOURCES.iter().any(|(place, ..)| place == file)) {
            wrong.push(format!("there is no src/{span}"));
        }
        let parts: Vec<&str> = span.split("::").collect();
        if !parts.iter().all(|part| is_word(part)) || NO_TYPES.iter().any(|(word, _)| *word == span) {
            continue;
        }
        let named = parts.iter().find(|part| part.starts_with(char::is_uppercase));
        if let Some(name) = named.filter(|name| !types.contains_key(**name)) {
            wrong.push(format!("{span}: there is no type {name}"));
        } else if let Some(part) = parts.iter().find(|part| !words.contains(**part)) {
            wrong.push(format!("{span}: nothing is called {part}"));
        }
    }
    assert!(wrong.is_empty(), "docs/glossary.md:\n{}", wrong.join("\n"));
}
