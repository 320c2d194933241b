//! Tables of the documents that are made of the tables of the code: facts of devices, filters of sets, reasons of health, and what holds the reaction back. With `UPDATE_DOCS=1` they are written, else they have to be
//! what would be written.

use std::collections::BTreeSet;

use localpool::claim::{
    EXPRESSION_MAX_BYTES, ElementKind, FieldOrigin, FilterSection, ListFilter, MinHealth, VALUE_FILTERS, ValueCheck,
    ValueFilter, ValueKind,
};
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

const TABLES: [Made; 9] = [
    (SETS, "value filters", &["field", "type", "meaning", "default"], || values(FilterSection::Inclusion)),
    (SETS, "exclusions", &["field", "type", "meaning", "default"], || values(FilterSection::Exclusion)),
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

/// The filters that are one value, of one section.
fn values(section: FilterSection) -> Vec<Vec<String>> {
    let row = |value: &ValueFilter| {
        let kind = match value.kind {
            ValueKind::Bytes(_) => "quantity: bytes, or as `1Gi`".to_owned(),
            ValueKind::Flag(_) => "`true` or `false`".to_owned(),
            ValueKind::Health(_) => MinHealth::WORDS.map(|(word, _)| format!("`{word}`")).join(" or "),
            ValueKind::Expression(_) => format!("text of up to {EXPRESSION_MAX_BYTES} bytes"),
        };
        let kind = format!("{}{kind}", whose(value.origin));
        vec![code(&[value.field]), kind, value.what.to_owned(), value.default.to_owned()]
    };
    VALUE_FILTERS.iter().filter(|value| value.section == section).map(row).collect()
}

fn whose(origin: FieldOrigin) -> &'static str {
    match origin {
        FieldOrigin::Operators => "",
        FieldOrigin::Ours => "*added:* ",
    }
}

/// The list filters, in the order in which a device is compared with them.
fn lists() -> Vec<Vec<String>> {
    let row = |list: &ListFilter| {
        let elements = match list.elements {
            ElementKind::Parts | ElementKind::Words => "list of texts",
            ElementKind::Globs(_) => "list of globs",
            ElementKind::Numbers { .. } => "list of numbers",
        };
        let facts = FACTS.iter().filter(|fact| list.facts.contains(&fact.name));
        let names: Vec<&str> = facts.filter_map(|fact| fact.expressions().last()).collect();
        vec![code(&[list.field]), format!("{}{elements}", whose(list.origin)), code(&names), list.what.to_owned()]
    };
    ListFilter::in_turn().into_iter().map(row).collect()
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
    row.faces().into_iter().map(|face| face.text(row)).collect::<Vec<_>>().join(", ")
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
    let begin = format!("<!-- table of {name}: `UPDATE_DOCS=1 cargo test -F testing --test documents` writes it -->\n");
    let place = text.split_once(&begin).and_then(|(before, rest)| Some((before, rest.split_once(END)?.1)));
    let (before, after) = place.unwrap_or_else(|| panic!("{file} has no place for the table of {name}: {begin}{END}"));
    let head: Vec<String> = head.iter().map(|head| (*head).to_owned()).collect();
    let rule = format!("|{}\n", "---|".repeat(head.len()));
    let rows: String = rows().iter().map(|row| line(row)).collect();
    format!("{before}{begin}{}{rule}{rows}{END}{after}", line(&head))
}

/// The document of sets, with each list and each value in the example that has all fields.
fn with_filters_in_example(text: &str) -> String {
    let list = |list: &ListFilter| {
        let element = |word: &&str| match list.elements {
            ElementKind::Globs(_) => format!("'{word}'"),
            ElementKind::Parts | ElementKind::Words | ElementKind::Numbers { .. } => (*word).to_owned(),
        };
        format!("    {}: [{}]\n", list.field, list.example.iter().map(element).collect::<Vec<_>>().join(", "))
    };
    let values = |section, with_size| {
        let wanted = move |value: &&ValueFilter| {
            value.section == section && matches!(value.check, ValueCheck::Facts(_)) == with_size
        };
        VALUE_FILTERS.iter().filter(wanted).map(|value| format!("    {}: {}\n", value.field, value.example))
    };
    let included = values(FilterSection::Inclusion, true)
        .chain(ListFilter::in_turn().into_iter().map(list))
        .chain(values(FilterSection::Inclusion, false));
    let excluded = values(FilterSection::Exclusion, true).chain(values(FilterSection::Exclusion, false));
    let begin = ("    deviceMechanicalProperties: [NonRotational]\n", "  deviceExclusionSpec:\n");
    let text = with_lines(text, begin, included.collect());
    with_lines(&text, ("    deviceNameFilter: ['nvme0*']\n", "  partitioningSpec: {partSize: 50Gi"), excluded.collect())
}

/// The document of sets with these lines between those two.
fn with_lines(text: &str, (first, last): (&str, &str), lines: String) -> String {
    let place = text.split_once(first).and_then(|(before, rest)| Some((before, rest.split_once(last)?.1)));
    let (before, after) = place.unwrap_or_else(|| panic!("{SETS} has no example with {first} and then {last}"));
    format!("{before}{first}{lines}{last}{after}")
}

#[test]
fn the_tables_of_the_documents_are_those_of_the_code() {
    let files: BTreeSet<&str> = TABLES.iter().map(|(file, ..)| *file).collect();
    for file in files {
        let text = read(file);
        let begun = if file == SETS { with_filters_in_example(&text) } else { text.clone() };
        let wanted = TABLES.iter().filter(|(of, ..)| *of == file).fold(begun, |text, made| with_table(&text, made));
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::write(root().join(file), &wanted).unwrap();
        } else {
            assert!(text == wanted, "{file} is not fresh: UPDATE_DOCS=1 cargo test -F testing --test documents");
        }
    }
}
