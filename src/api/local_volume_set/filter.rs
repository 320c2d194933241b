//! The filter of a LocalVolumeSet: `deviceInclusionSpec` and `deviceExclusionSpec`.
//!
//! Takes in the spec, gives out a [`Filter`] and which of its bounds were written; what is wrong goes to the problems.

use crate::api::quantity;
use crate::api::strict::{Case, Field, Object};
use crate::claim::{Expression, Filter, Glob, MinHealth};
use crate::device::device_type::DeviceType;

/// What a set without `minSize` takes at least.
const DEFAULT_MIN_SIZE: u64 = 1 << 30;
const MOST_NAME_FILTERS: usize = 64;

/// The filter, and which of its bounds the user wrote.
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
    let (mut include, _) = spec.field(&["deviceInclusionSpec"]).object();
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
    let models = include.field(&["models"]).strings().unwrap_or_default();
    let vendors = include.field(&["vendors"]).strings().unwrap_or_default();
    let paths = globs(&include.field(&["paths"]));
    let serials = globs_in_any_case(&include.field(&["serials"]));
    let wwns = globs_in_any_case(&include.field(&["wwns"]));
    let transports = include.field(&["transports"]).strings().unwrap_or_default();
    let sector_sizes = sectors(&include.field(&["sectorSizes"]));
    let numa_nodes = numbers(&include.field(&["numaNodes"]), 0, i64::from(i32::MAX));
    let numa_nodes = numa_nodes.into_iter().filter_map(|node| i32::try_from(node).ok()).collect();
    let expression = expression(&include.field(&["expression"]));
    let healths = [("NotFailing", MinHealth::NotFailing), ("Passed", MinHealth::Passed)];
    let min_health = include.field(&["minHealth"]).one_of(&healths, Case::Exact);
    let path = include.path().to_owned();
    include.finish();

    let (mut exclude, _) = spec.field(&["deviceExclusionSpec"]).object();
    let names = exclude.field(&["deviceNameFilter"]);
    let exclude_names = globs(&names);
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
        models,
        vendors,
        paths,
        serials,
        wwns,
        transports,
        sector_sizes,
        numa_nodes,
        exclude_names,
        exclude_network,
        expression,
        min_health,
    };
    ReadFilter { rule, given_min, given_max, path }
}

/// A list of words, each once; `None` where there is no list.
fn words<T: Copy + PartialEq>(field: &Field<'_, '_>, known: &[(&str, T)]) -> Option<Vec<T>> {
    let mut found = Vec::new();
    for word in field.list()?.iter().filter_map(|element| element.one_of(known, Case::Exact)) {
        if !found.contains(&word) {
            found.push(word);
        }
    }
    Some(found)
}

fn numbers(field: &Field<'_, '_>, least: i64, most: i64) -> Vec<i64> {
    field.list().unwrap_or_default().iter().filter_map(|element| element.integer(least, most)).collect()
}

/// What a disk's logical sector can be.
fn sectors(field: &Field<'_, '_>) -> Vec<u32> {
    let mut found = Vec::new();
    for element in field.list().unwrap_or_default() {
        match element.integer(512, 1 << 16).and_then(|bytes| u32::try_from(bytes).ok()) {
            Some(bytes) if bytes.is_power_of_two() => found.push(bytes),
            Some(bytes) => element.problem(format!("is {bytes}: a sector has 512, 4096 or another power of two bytes")),
            None => {}
        }
    }
    found
}

fn globs(field: &Field<'_, '_>) -> Vec<Glob> {
    globs_of(field, str::to_owned)
}

/// In lower case, as what they are compared with.
fn globs_in_any_case(field: &Field<'_, '_>) -> Vec<Glob> {
    globs_of(field, str::to_lowercase)
}

fn globs_of(field: &Field<'_, '_>, spelt: impl Fn(&str) -> String) -> Vec<Glob> {
    let patterns = field.strings().unwrap_or_default();
    let told = |pattern: &String| Glob::parse(&spelt(pattern)).map_err(|error| field.problem(error.to_string())).ok();
    patterns.iter().filter_map(told).collect()
}

fn expression(field: &Field<'_, '_>) -> Option<Expression> {
    Expression::parse(field.string()?).map_err(|error| field.problem(error.to_string())).ok()
}
