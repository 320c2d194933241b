//! Rules for tests.

use super::glob::Glob;
use super::list_filter::{ElementKind, FilterLists, GlobCase, LIST_FILTERS, ListElement, ListFilter};
use super::rule::{Blankness, Filter, NodeMatch, Provisioning, Reclaim, Rule};
use crate::device::{DeviceType, label::Layout, sample::set};
use crate::host::FsKind;

/// A set of that name that takes every disk.
pub fn rule(name: &str) -> Rule {
    Rule {
        set: set(name),
        created: 0,
        position: 0,
        node: NodeMatch::Selected,
        tolerations: Vec::new(),
        class: "fast".into(),
        array: None,
        layout: Layout::Whole {},
        host_mount: None,
        provisioning: Provisioning::default(),
        filesystems: None,
        filter: filter(),
        blankness: Blankness::Signatures,
        named: None,
        min_devices: 0,
        max_devices: None,
        volume_mode: None,
        fs: FsKind::Ext4,
        erase: crate::device::label::ErasePolicy::Discard,
        reclaim: Reclaim::Keep,
        dry_run: false,
    }
}

pub fn filter() -> Filter {
    Filter::any_of(vec![DeviceType::Disk])
}

/// Lists of a set as its reader gives them.
pub fn lists(all: &[(&str, &[&str])]) -> FilterLists {
    let list = |(field, words): &(&str, &[&str])| {
        let list = LIST_FILTERS.iter().find(|list| list.field == *field).expect("a list of the table");
        (list.field, words.iter().map(|word| element(list, word)).collect())
    };
    all.iter().map(list).collect()
}

fn element(list: &ListFilter, word: &str) -> ListElement {
    match list.elements {
        ElementKind::Parts | ElementKind::Words => ListElement::Text(word.to_owned()),
        ElementKind::Globs(GlobCase::Exact) => ListElement::Glob(Glob::parse(word).expect("a glob")),
        ElementKind::Globs(GlobCase::Any) => ListElement::Glob(Glob::parse(&word.to_lowercase()).expect("a glob")),
        ElementKind::Numbers { .. } => ListElement::Number(word.parse().expect("a number")),
    }
}

/// All of them but one.
pub fn without(all: &FilterLists, field: &str) -> FilterLists {
    LIST_FILTERS
        .iter()
        .filter(|list| list.field != field)
        .map(|list| (list.field, all.get(list.field).to_vec()))
        .collect()
}
