//! The filter of a LocalVolumeSet: `deviceInclusionSpec` and `deviceExclusionSpec`.
//!
//! Takes in the spec, gives out a [`Filter`] and which of its bounds were given; errors are added to the problems.

use crate::api::{
    quantity,
    strict::{Case, Field, Object},
};
use crate::claim::{ElementKind, Expression, Filter, Glob, GlobCase, LIST_FILTERS, ListElement, ListFilter, MinHealth};
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
    let types = words(&include.field(&["deviceTypes", "devices"]), &TYPES).unwrap_or_else(|| vec![DeviceType::Disk]);
    let properties = [("Rotational", true), ("NonRotational", false)];
    let rotational = words(&include.field(&["deviceMechanicalProperties", "deviceMechanicalProperty"]), &properties)
        .unwrap_or_default();
    let given_min = include.field(&["minSize"]).quantity();
    let max_field = include.field(&["maxSize"]);
    let given_max = max_field.quantity();
    let min_size = given_min.unwrap_or(DEFAULT_MIN_SIZE);
    if given_max.is_some_and(|most| most < min_size) {
        let default = if given_min.is_none() { " (the default)" } else { "" };
        max_field.problem(format!("is below minSize {}{default}: no device could match", quantity::format(min_size)));
    }
    let lists = LIST_FILTERS.iter().map(|list| (list.field, elements(list, &include.field(&[list.field])))).collect();
    let expression = expression(&include.field(&["expression"]));
    let healths = [("NotFailing", MinHealth::NotFailing), ("Passed", MinHealth::Passed)];
    let min_health = include.field(&["minHealth"]).one_of(&healths, Case::Exact);
    let path = include.path().to_owned();
    include.finish();

    let mut exclude = spec.field(&["deviceExclusionSpec"]).object();
    let names = exclude.field(&["deviceNameFilter"]);
    let exclude_names = globs(&names, GlobCase::Exact);
    if exclude_names.len() > MOST_NAME_FILTERS {
        names.problem(format!("has {} patterns; at most {MOST_NAME_FILTERS} are allowed", exclude_names.len()));
    }
    let exclude_network = exclude.field(&["excludeNetworkDisks"]).boolean().unwrap_or(false);
    exclude.finish();
    let rule = Filter {
        types,
        rotational,
        min_size,
        max_size: given_max,
        lists,
        exclude_names,
        exclude_network,
        expression,
        min_health,
    };
    ReadFilter { rule, given_min, given_max, path }
}

/// A list of words, each once; `None` if there is no list.
fn words<T: Copy + PartialEq>(field: &Field<'_, '_>, known: &[(&str, T)]) -> Option<Vec<T>> {
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
