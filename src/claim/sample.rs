//! Rules for tests.

use super::rule::{Blankness, Filter, NodeMatch, Reclaim, Rule};
use crate::device::device_type::DeviceType;
use crate::device::label::Layout;
use crate::device::sample::set;
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
        layout: Layout::Whole {},
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
