//! Tables of the documents that are made of the tables of the code: facts of devices, list filters of sets, reasons of
//! health, and what holds the reaction back. With `UPDATE_DOCS=1` they are written, else they have to be what would be written.

use std::collections::BTreeSet;

use localpool::claim::{ElementKind, FieldOrigin, LIST_FILTERS, ListFilter};
use localpool::device::{
    Fact, FactKind, FieldRank,
    fact_table::{FACTS, in_results},
};
use localpool::health::{FACES, REASONS, ReasonRow, Subject};
use localpool::operator::controller::Why;

use crate::{read, root};

const END: &str = "<!-- end of table -->\n";

/// The document, the name of the table in it, its head, and its rows.
type Made = (&'static str, &'static str, &'static [&'static str], fn() -> Vec<Vec<String>>);

const SETS: &str = "docs/local-volume-sets.md";
const DISCOVERY: &str = "docs/discovery.md";
const HEALTH: &str = "docs/health.md";

const REACTION: &str = "docs/reaction.md";

const TABLES: [Made; 7] = [
    (REACTION, "whys", &["why", "meaning"], whys),
    (HEALTH, "faces", &["face", "where the reason is seen"], faces),
    (HEALTH, "reasons", &["reason", "of a", "severity", "faces", "meaning", "what to do"], reasons),
    (SETS, "list filters", &["field", "type", "`device.`", "meaning"], lists),
    (SETS, "facts in expressions", &["`device.`", "type", "meaning"], expressions),
    (DISCOVERY, "the operator's fields", &["field", "type", "meaning"], || {
        results(|rank| rank == FieldRank::Operators)
    }),
    (DISCOVERY, "the added fields", &["field", "type", "meaning"], || results(|rank| rank != FieldRank::Operators)),
];

fn whys() -> Vec<Vec<String>> {
    Why::ALL.iter().map(|why| vec![format!("`{}`", why.word()), why.sentence().to_owned()]).collect()
}

fn code(words: &[&str]) -> String {
    words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ")
}

fn kind(kind: FactKind) -> String {
    match kind {
        FactKind::Text => "text".to_owned(),
        FactKind::Word(words) => code(words),
        FactKind::Bytes | FactKind::Int32 | FactKind::Int64 => "number".to_owned(),
        FactKind::Boolean => "true or false".to_owned(),
        FactKind::Texts => "list of texts".to_owned(),
    }
}

fn lists() -> Vec<Vec<String>> {
    let row = |list: &ListFilter| {
        let elements = match list.elements {
            ElementKind::Parts | ElementKind::Words => "list of texts",
            ElementKind::Globs(_) => "list of globs",
            ElementKind::Numbers { .. } => "list of numbers",
        };
        let whose = match list.origin {
            FieldOrigin::Operators => "",
            FieldOrigin::Ours => "*added:* ",
        };
        let facts = FACTS.iter().filter(|fact| list.facts.contains(&fact.name));
        let names: Vec<&str> = facts.filter_map(|fact| fact.expressions().last()).collect();
        vec![code(&[list.field]), format!("{whose}{elements}"), code(&names), list.what.to_owned()]
    };
    LIST_FILTERS.iter().map(row).collect()
}

fn reasons() -> Vec<Vec<String>> {
    let row = |row: &ReasonRow| {
        let subject = match row.subject {
            Subject::Disk => "disk",
            Subject::Volume => "volume",
            Subject::PersistentVolume => "PersistentVolume",
        };
        let severity = row.severity.word().to_owned();
        vec![code(&[row.word]), subject.to_owned(), severity, seen(row), row.meaning.to_owned(), row.action.to_owned()]
    };
    REASONS.iter().map(row).collect()
}

/// Where a reason is seen.
fn seen(row: &ReasonRow) -> String {
    row.faces().into_iter().map(|face| face.words(row)).collect::<Vec<_>>().join(", ")
}

fn faces() -> Vec<Vec<String>> {
    FACES.iter().map(|(name, what)| vec![(*name).to_owned(), (*what).to_owned()]).collect()
}

/// A fact of several names is one row.
fn expressions() -> Vec<Vec<String>> {
    let row = |fact: &Fact| {
        let names: Vec<&str> = fact.expressions().collect();
        (!names.is_empty()).then(|| vec![code(&names), kind(fact.kind()), fact.what.to_owned()])
    };
    FACTS.iter().filter_map(row).collect()
}

fn results(has: fn(FieldRank) -> bool) -> Vec<Vec<String>> {
    let rows = in_results().filter(|(_, field)| has(field.rank));
    rows.map(|(fact, field)| vec![code(&[field.name]), kind(fact.kind()), fact.what.to_owned()]).collect()
}

fn line(cells: &[String]) -> String {
    format!("| {} |\n", cells.join(" | "))
}

/// The document with this table as it is to be.
fn with_table(text: &str, (file, name, head, rows): &Made) -> String {
    let begin = format!("<!-- table of {name}: `UPDATE_DOCS=1 cargo test --test documents` writes it -->\n");
    let place = text.split_once(&begin).and_then(|(before, rest)| Some((before, rest.split_once(END)?.1)));
    let (before, after) = place.unwrap_or_else(|| panic!("{file} has no place for the table of {name}: {begin}{END}"));
    let head: Vec<String> = head.iter().map(|head| (*head).to_owned()).collect();
    let rule = format!("|{}\n", "---|".repeat(head.len()));
    let rows: String = rows().iter().map(|row| line(row)).collect();
    format!("{before}{begin}{}{rule}{rows}{END}{after}", line(&head))
}

#[test]
fn the_tables_of_the_documents_are_those_of_the_code() {
    let files: BTreeSet<&str> = TABLES.iter().map(|(file, ..)| *file).collect();
    for file in files {
        let text = read(file);
        let wanted =
            TABLES.iter().filter(|(of, ..)| *of == file).fold(text.clone(), |text, made| with_table(&text, made));
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::write(root().join(file), &wanted).unwrap();
        } else {
            assert!(text == wanted, "{file} is not fresh: UPDATE_DOCS=1 cargo test --test documents");
        }
    }
}

#[test]
fn the_order_in_which_lists_are_asked_is_the_one_that_is_documented() {
    let text = read(SETS).split_whitespace().collect::<Vec<_>>().join(" ");
    let order = code(&ListFilter::in_turn().iter().map(|list| list.field).collect::<Vec<_>>());
    assert!(text.contains(&order), "{SETS} does not have them in the order {order}");
}
