//! Methods of one type may stand in several files, and each of these calls the others by `self.name()`: no import shows
//! that. So these calls are counted where they go in a circle, and there are no new ones.
//!
//! Only calls by `self` and `Self` are seen, and a type is told by its name, which no two types have.

use std::collections::{BTreeMap, BTreeSet};

use super::SOURCES;
use super::cycles::{Takes, lead_back};
use super::names::{Token, end_of_block, end_of_item, is_for_tests, tokens};

/// Types whose files call each other in a circle, and by how many calls. A type of its own for what the files share,
/// as `OwnVolume` and `JournalDocument` are, ends that.
const IN_CIRCLES: [(&str, usize); 1] = [("PoolFilesystem", 34)];

/// What the blocks `impl` of one file have of one type.
#[derive(Default)]
struct Methods {
    declared: BTreeSet<String>,
    called: Vec<String>,
}

/// By type.
fn methods(text: &str) -> BTreeMap<String, Methods> {
    let tokens = tokens(text);
    let word = |at: usize| tokens.get(at).map_or("", |token: &Token| &token.word);
    let mut found: BTreeMap<String, Methods> = BTreeMap::new();
    let mut at = 0;
    while at < tokens.len() {
        if let Some(after) = is_for_tests(&tokens[at..]) {
            at = end_of_item(&tokens, at + after);
            continue;
        }
        let begins_item = at == 0 || matches!(word(at - 1), "}" | ";" | "]" | "{" | "unsafe");
        if word(at) != "impl" || !begins_item {
            at += 1;
            continue;
        }
        let open = (at..tokens.len()).find(|at| word(*at) == "{").unwrap_or(tokens.len());
        let end = end_of_block(&tokens, open);
        let methods = found.entry(type_of(&tokens[at + 1..open])).or_default();
        for inside in open..end {
            match (word(inside), word(inside + 1), word(inside + 3)) {
                ("fn", name, _) => drop(methods.declared.insert(name.to_owned())),
                ("self", ".", "(" | "::") | ("Self", "::", "(" | "::") => {
                    methods.called.push(word(inside + 2).to_owned());
                }
                _ => {}
            }
        }
        at = end;
    }
    found
}

/// The type of a block, from what stands between `impl` and its brace: `<T> Trait<T> for Type<T> where …`.
fn type_of(head: &[Token]) -> String {
    let (mut depth, mut path, mut name) = (0_usize, true, String::new());
    for (at, token) in head.iter().enumerate() {
        let is_arrow = at > 0 && head[at - 1].word == "-";
        match token.word.as_str() {
            "<" => depth += 1,
            ">" if !is_arrow => depth = depth.saturating_sub(1),
            "for" if depth == 0 => (path, name) = (true, String::new()),
            "where" if depth == 0 => break,
            "&" | "mut" | "dyn" | "::" => path = true,
            word if depth == 0 && path => (path, name) = (false, word.to_owned()),
            _ => {}
        }
    }
    name
}

/// The calls between files that lead back to where they began, by type: `file -> file: name`.
fn in_circles<'s>(files: impl Iterator<Item = (&'s str, &'s str)>) -> BTreeMap<String, Vec<String>> {
    let mut types: BTreeMap<String, Vec<(&str, Methods)>> = BTreeMap::new();
    for (place, text) in files {
        for (name, methods) in methods(text) {
            types.entry(name).or_default().push((place, methods));
        }
    }
    let mut found = BTreeMap::new();
    for (name, files) in types {
        let mut calls: Vec<(&str, &str, &str)> = Vec::new();
        for (place, of) in &files {
            for method in of.called.iter().filter(|method| !of.declared.contains(*method)) {
                let homes = files.iter().filter(|(_, other)| other.declared.contains(method));
                calls.extend(homes.map(|(home, _)| (*place, *home, method.as_str())));
            }
        }
        let mut takes = Takes::new();
        for (place, home, _) in &calls {
            takes.entry((*place).to_owned()).or_default().insert((*home).to_owned());
        }
        let back = lead_back(&takes);
        let circular = calls.iter().filter(|(place, home, _)| back.contains(&(*place, *home)));
        let circular: Vec<String> =
            circular.map(|(place, home, method)| format!("src/{place} -> src/{home}: {method}")).collect();
        if !circular.is_empty() {
            found.insert(name, circular);
        }
    }
    found
}

#[test]
fn the_files_of_one_type_do_not_call_each_other_in_a_circle() {
    let shipped = SOURCES.iter().filter(|(place, _, test)| !test && !super::is_at(place, "host/fake"));
    let found = in_circles(shipped.map(|(place, text, _)| (place.as_str(), text.as_str())));
    let mut wrong = Vec::new();
    for (name, calls) in &found {
        let most = IN_CIRCLES.iter().find(|(known, _)| known == name).map_or(0, |(_, most)| *most);
        if calls.len() > most {
            wrong.push(format!(
                "{name}: {} calls, and at most {most} are known:\n  {}",
                calls.len(),
                calls.join("\n  ")
            ));
        }
    }
    for (name, _) in IN_CIRCLES.iter().filter(|(name, _)| !found.contains_key(*name)) {
        wrong.push(format!("{name}: there are none any more: remove its row"));
    }
    assert!(wrong.is_empty(), "the files of a type call each other in a circle:\n{}", wrong.join("\n"));
}

#[test]
fn calls_in_a_circle_are_found_by_method_and_type_and_others_are_not() {
    let of = |files: &[(&'static str, &'static str)]| {
        let found = in_circles(files.iter().copied());
        found.into_iter().map(|(name, calls)| format!("{name} {}", calls.join(", "))).collect::<Vec<_>>()
    };
    let a = ("agent/a", "impl A { fn one(&self) { self.two(); self.field(3) } }");
    let b = ("agent/b", "impl<T: Fn() -> u8> b::A<T> where T: X { fn two(&self) { Self::one(self) } }");
    let circle = ["A src/agent/a -> src/agent/b: two, src/agent/b -> src/agent/a: one"];
    assert_eq!(of(&[a, b]), circle);
    let of_trait = ("agent/b", "impl Port<u8> for &mut A<'_> { fn two(&self) { self.one::<u8>() } }");
    assert_eq!(of(&[a, of_trait]), circle, "also by a trait, and with a type between");
    let one_way = ("agent/b", "impl A { fn two(&self) { self.three(); other.one() } fn three(&self) {} }");
    let of_other = ("agent/b", "impl B { fn two(&self) { self.one() } }");
    let in_test =
        ("agent/b", "impl A { fn two(&self) {} }\n#[cfg(test)]\nmod tests { impl A { fn t(&self) { self.one() } } }");
    let argument = ("agent/b", "fn two(f: impl Fn()) -> impl Fn() { self.one() }\nimpl A { fn two(&self) {} }");
    for other in [one_way, of_other, in_test, argument] {
        assert_eq!(of(&[a, other]), [""; 0], "{}", other.1);
    }
}
