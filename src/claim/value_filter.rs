//! The filters of a set that are one value: a row for each, in the order in which a set is read. The strict reader, the
//! schema of LocalVolumeSets, [`Filter::matches`](super::Filter::matches), the documents and their example use this
//! table.
//!
//! Takes in what a device reports, gives out nothing or the first [`Mismatch`]. Pure.

use super::expression::Expression;
use super::list_filter::FieldOrigin;
use super::mismatch::Mismatch;
use super::rule::{Filter, MinHealth};
use crate::host::RawDisk;

/// A row of the table.
pub struct ValueFilter {
    pub section: FilterSection,
    pub field: &'static str,
    /// For documents: a sentence without its end, with names set as code.
    pub what: &'static str,
    /// In the schema, which is what `kubectl explain` shows.
    pub description: &'static str,
    pub origin: FieldOrigin,
    pub kind: ValueKind,
    /// For documents: what holds without it.
    pub default: &'static str,
    /// A value for documents and tests, as in YAML.
    pub example: &'static str,
    /// How a device is compared with it, by what the device reports.
    pub check: ValueCheck,
}

/// Where in the spec a filter is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FilterSection {
    Inclusion,
    Exclusion,
}

impl FilterSection {
    /// Its field in `spec`.
    pub fn field(self) -> &'static str {
        match self {
            Self::Inclusion => "deviceInclusionSpec",
            Self::Exclusion => "deviceExclusionSpec",
        }
    }
}

/// What a value is, and how a filter gets it.
#[derive(Clone, Copy)]
pub enum ValueKind {
    Bytes(fn(&mut Filter, u64)),
    Flag(fn(&mut Filter, bool)),
    Health(fn(&mut Filter, MinHealth)),
    Expression(fn(&mut Filter, Expression)),
}

/// When a device is compared with a value.
pub enum ValueCheck {
    /// With its size, in the order of the rows.
    Facts(fn(&Filter, &RawDisk) -> Result<(), Mismatch>),
    /// Later: it needs more than the facts of the one device (`election/suits.rs`).
    Later,
}

pub static VALUE_FILTERS: &[ValueFilter] = &[
    ValueFilter {
        section: FilterSection::Inclusion,
        field: "minSize",
        what: "the smallest device; an explicit `0` means no minimum",
        description: "The size of the smallest device. Default: 1Gi; 0 means no minimum.",
        origin: FieldOrigin::Operators,
        kind: ValueKind::Bytes(|filter, size| filter.min_size = size),
        default: "`1Gi`",
        example: "100Gi",
        check: ValueCheck::Facts(|filter, raw| match raw.size < filter.min_size {
            true => Err(Mismatch::TooSmall { size: raw.size, least: filter.min_size }),
            false => Ok(()),
        }),
    },
    ValueFilter {
        section: FilterSection::Inclusion,
        field: "maxSize",
        what: "the largest device",
        description: "The size of the largest device.",
        origin: FieldOrigin::Operators,
        kind: ValueKind::Bytes(|filter, size| filter.max_size = Some(size)),
        default: "no limit",
        example: "4Ti",
        check: ValueCheck::Facts(|filter, raw| match filter.max_size.filter(|most| raw.size > *most) {
            Some(most) => Err(Mismatch::TooLarge { size: raw.size, most }),
            None => Ok(()),
        }),
    },
    ValueFilter {
        section: FilterSection::Inclusion,
        field: "expression",
        what: "what else must be true of it, in [CEL](#expressions)",
        description: "One more condition for a device, in CEL, such as: device.size > 1000000000000 && device.vendor != 'ATA'.",
        origin: FieldOrigin::Ours,
        kind: ValueKind::Expression(|filter, expression| filter.expression = Some(expression)),
        default: "all",
        example: "\"!device.removable && device.size % 4096 == 0\"",
        check: ValueCheck::Later,
    },
    ValueFilter {
        section: FilterSection::Inclusion,
        field: "minHealth",
        what: "what the disk must report about [its own health](#health)",
        description: "What a device must report about its own health (SMART). NotFailing: no failure. Passed: that it is healthy; excludes devices that report nothing. Absent: the device is not asked.",
        origin: FieldOrigin::Ours,
        kind: ValueKind::Health(|filter, health| filter.min_health = Some(health)),
        default: "not asked",
        example: "NotFailing",
        check: ValueCheck::Later,
    },
    ValueFilter {
        section: FilterSection::Exclusion,
        field: "excludeNetworkDisks",
        what: "exclude disks that are attached over a network ([how that is detected](discovery.md#local-or-over-a-network))",
        description: "Exclude disks whose data comes over a network, as far as the machine can tell. Default: false.",
        origin: FieldOrigin::Ours,
        kind: ValueKind::Flag(|filter, exclude| filter.exclude_network = exclude),
        default: "`false`",
        example: "true",
        check: ValueCheck::Later,
    },
];

impl Filter {
    /// Whether the device is as the values say that are compared with its facts; else the first mismatch.
    pub(super) fn check_values(&self, raw: &RawDisk) -> Result<(), Mismatch> {
        VALUE_FILTERS.iter().try_for_each(|value| match value.check {
            ValueCheck::Facts(check) => check(self, raw),
            ValueCheck::Later => Ok(()),
        })
    }
}
