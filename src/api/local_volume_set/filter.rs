//! The filter of a LocalVolumeSet: `deviceInclusionSpec` and `deviceExclusionSpec`.
//!
//! Takes in the spec, gives out a [`Filter`] and which of its bounds were given; errors are added to the problems.

use crate::api::{
    quantity,
    strict::{Case, Field, Object},
};
use crate::claim::{
    ElementKind, Expression, Filter, FilterSection, Glob, GlobCase, LIST_FILTERS, ListElement, ListFilter, MinHealth,
    VALUE_FILTERS, ValueCheck, ValueFilter, ValueKind,
};
use crate::device::DeviceType;

/// The smallest disk that a set without `minSize` takes.
const DEFAULT_MIN_SIZE: u64 = 1 << 30;
const MOST_NAME_FILTERS: usize = 64;

/// The filter, and which of its bounds the user gave.
pub(super) struct ReadFilter {
    pub rule: Filter,
    pub given_min: Option<u64>,
    pub given_max: Option<u64>,
    pub path: String,
}

const TYPES: [(&str, DeviceType); 6] = [
    ("disk", DeviceType::Disk),
    ("part", DeviceType::Part),
    ("loop", DeviceType::Loop),
    ("mpath", DeviceType::Mpath),
    ("RawDisk", DeviceType::Disk),
    ("Partition", DeviceType::Part),
];

pub(super) fn read(spec: &mut Object<'_, '_>) -> ReadFilter {
    let mut include = spec.field(&["deviceInclusionSpec"]).object();
    let types = choices(&include.field(&["deviceTypes", "devices"]), &TYPES).unwrap_or_else(|| vec![DeviceType::Disk]);
    let properties = [("Rotational", true), ("NonRotational", false)];
    let rotational = choices(&include.field(&["deviceMechanicalProperties", "deviceMechanicalProperty"]), &properties)
        .unwrap_or_default();
    let mut rule = Filter { rotational, min_size: DEFAULT_MIN_SIZE, ..Filter::any_of(types) };
    let (with_size, later): (Vec<&ValueFilter>, Vec<_>) =
        VALUE_FILTERS.iter().partition(|value| matches!(value.check, ValueCheck::Facts(_)));
    let read = values(&with_size, FilterSection::Inclusion, &mut include, &mut rule);
    let given_min = read.contains(&"minSize").then_some(rule.min_size);
    if rule.max_size.is_some_and(|most| most < rule.min_size) {
        let default = if given_min.is_none() { " (the default)" } else { "" };
        let least = quantity::format(rule.min_size);
        include.field(&["maxSize"]).problem(format!("is below minSize {least}{default}: no device could match"));
    }
    rule.lists = LIST_FILTERS.iter().map(|list| (list.field, elements(list, &include.field(&[list.field])))).collect();
    values(&later, FilterSection::Inclusion, &mut include, &mut rule);
    let path = include.path().to_owned();
    include.finish();

    let mut exclude = spec.field(&["deviceExclusionSpec"]).object();
    let names = exclude.field(&["deviceNameFilter"]);
    rule.exclude_names = globs(&names, GlobCase::Exact);
    if rule.exclude_names.len() > MOST_NAME_FILTERS {
        names.problem(format!("has {} patterns; at most {MOST_NAME_FILTERS} are allowed", rule.exclude_names.len()));
    }
    values(&with_size, FilterSection::Exclusion, &mut exclude, &mut rule);
    values(&later, FilterSection::Exclusion, &mut exclude, &mut rule);
    exclude.finish();
    ReadFilter { given_max: rule.max_size, rule, given_min, path }
}

/// Gives the filter the values of one section, and the caller the fields of these. What is absent or wrong stays as it
/// was.
fn values(
    all: &[&ValueFilter],
    section: FilterSection,
    object: &mut Object<'_, '_>,
    filter: &mut Filter,
) -> Vec<&'static str> {
    let mut read = Vec::new();
    for value in all.iter().filter(|value| value.section == section) {
        let field = object.field(&[value.field]);
        let given = match value.kind {
            ValueKind::Bytes(put) => field.quantity().map(|bytes| put(filter, bytes)),
            ValueKind::Flag(put) => field.boolean().map(|flag| put(filter, flag)),
            ValueKind::Health(put) => field.one_of(&MinHealth::WORDS, Case::Exact).map(|least| put(filter, least)),
            ValueKind::Expression(put) => expression(&field).map(|expression| put(filter, expression)),
        };
        read.extend(given.map(|()| value.field));
    }
    read
}

/// A list of words, each once; `None` if there is no list.
fn choices<T: Copy + PartialEq>(field: &Field<'_, '_>, known: &[(&str, T)]) -> Option<Vec<T>> {
    let mut found = Vec::new();
    for word in field.list()?.iter().filter_map(|element| element.one_of(known, Case::Exact)) {
        if !found.contains(&word) {
            found.push(word);
        }
    }
    Some(found)
}

/// The valid elements of a list.
fn elements(list: &ListFilter, field: &Field<'_, '_>) -> Vec<ListElement> {
    let texts = || field.strings().unwrap_or_default().into_iter();
    match list.elements {
        ElementKind::Parts | ElementKind::Words => texts().map(ListElement::Text).collect(),
        ElementKind::Globs(case) => globs(field, case).into_iter().map(ListElement::Glob).collect(),
        ElementKind::Numbers { least, most, check } => {
            let read = |element: Field<'_, '_>| {
                let number = element.integer(least, most)?;
                check(number).map_err(|wrong| element.problem(wrong.to_string())).ok()?;
                Some(ListElement::Number(number))
            };
            field.list().unwrap_or_default().into_iter().filter_map(read).collect()
        }
    }
}

fn globs(field: &Field<'_, '_>, case: GlobCase) -> Vec<Glob> {
    let patterns = field.strings().unwrap_or_default();
    let spelt = |pattern: &str| match case {
        GlobCase::Exact => pattern.to_owned(),
        GlobCase::Any => pattern.to_lowercase(),
    };
    let parsed = |pattern: &String| Glob::parse(&spelt(pattern)).map_err(|error| field.problem(error.to_string())).ok();
    patterns.iter().filter_map(parsed).collect()
}

fn expression(field: &Field<'_, '_>) -> Option<Expression> {
    Expression::parse(field.string()?).map_err(|error| field.problem(error.to_string())).ok()
}
