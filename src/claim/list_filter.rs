//! The filters of a set that are lists: a row for each, in the order in which a set is read. The strict reader, the
//! schema of LocalVolumeSets, [`Filter::matches`](super::Filter::matches) and the documents use this table.
//!
//! Takes in what a device reports, gives out nothing or the first [`Mismatch`]. Pure.

use std::collections::BTreeMap;

use super::glob::Glob;
use super::mismatch::Mismatch;
use crate::host::RawDisk;

/// A row of the table.
#[derive(Clone, Copy, Debug)]
pub struct ListFilter {
    /// Below `spec.deviceInclusionSpec`.
    pub field: &'static str,
    /// For documents: a sentence without its end, with names set as code.
    pub what: &'static str,
    /// In the schema, which is what `kubectl explain` shows.
    pub description: &'static str,
    pub origin: FieldOrigin,
    pub elements: ElementKind,
    /// Elements for documents and tests.
    pub example: &'static [&'static str],
    /// The facts of a device that it is compared with.
    pub facts: &'static [&'static str],
    /// Its place among the lists that are asked, by tens: the first that does not match gives the reason.
    pub turn: u8,
    /// What the device reports: several texts if it has several names, none if it does not report one.
    says: fn(&RawDisk) -> Vec<String>,
    /// The reason, as a sentence for people, from the first of these texts and from what is wanted.
    why: fn(Option<&str>, &str) -> String,
}

/// Whose field it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldOrigin {
    Operators,
    Ours,
}

/// What a list has, and how it is compared.
#[derive(Clone, Copy, Debug)]
pub enum ElementKind {
    /// Parts of a name, in any case of letters.
    Parts,
    /// Words, in any case of letters.
    Words,
    Globs(GlobCase),
    /// Whole numbers within bounds; `check` says what else is wrong with one.
    Numbers {
        least: i64,
        most: i64,
        check: fn(i64) -> Result<(), WrongNumber>,
    },
}

/// Why a number within bounds is none that a device can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WrongNumber {
    #[error("is {bytes}: a sector has 512, 4096 or another power of two bytes")]
    NoSector { bytes: i64 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GlobCase {
    Exact,
    /// Patterns are kept in lower case, as what they are compared with.
    Any,
}

/// One of a list, as a set has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListElement {
    Text(String),
    Glob(Glob),
    Number(i64),
}

pub static LIST_FILTERS: &[ListFilter] = &[
    ListFilter {
        field: "models",
        what: "parts of the model's name, case-insensitive",
        description: "Case-insensitive parts of the model's name.",
        origin: FieldOrigin::Operators,
        elements: ElementKind::Parts,
        example: &["MZQL2"],
        facts: &["model"],
        turn: 20,
        says: |raw| raw.model.clone().into_iter().collect(),
        why: |is, _| named("model", is, "is not in models"),
    },
    ListFilter {
        field: "vendors",
        what: "parts of the vendor's name, case-insensitive",
        description: "Case-insensitive parts of the vendor's name.",
        origin: FieldOrigin::Operators,
        elements: ElementKind::Parts,
        example: &["samsung"],
        facts: &["vendor"],
        turn: 10,
        says: |raw| raw.vendor.clone().into_iter().collect(),
        why: |is, _| named("vendor", is, "is not in vendors"),
    },
    ListFilter {
        field: "paths",
        what: "device node, links below `/dev/disk`, file of a loop device",
        description: "Globs over device node, links, and a loop device's file.",
        origin: FieldOrigin::Ours,
        elements: ElementKind::Globs(GlobCase::Exact),
        example: &["/dev/disk/by-path/pci-0000:3b:*"],
        facts: &["path", "links"],
        turn: 80,
        says: paths,
        why: |_, _| "no path of it matches paths".to_owned(),
    },
    ListFilter {
        field: "serials",
        what: "serial number, case-insensitive",
        description: "Globs over the serial number, in any case of letters.",
        origin: FieldOrigin::Ours,
        elements: ElementKind::Globs(GlobCase::Any),
        example: &["S64*"],
        facts: &["serial"],
        turn: 30,
        says: |raw| raw.serial.clone().into_iter().collect(),
        why: |is, _| named("serial", is, "matches none of serials"),
    },
    ListFilter {
        field: "wwns",
        what: "WWN (`0x5000…`, `naa.5000…`, `eui.…`), case-insensitive",
        description: "Globs over the WWN (0x5000..., naa.5000..., eui....), in any case of letters.",
        origin: FieldOrigin::Ours,
        elements: ElementKind::Globs(GlobCase::Any),
        example: &["eui.*", "0x5002538*"],
        facts: &["wwn", "wwid"],
        turn: 40,
        says: wwns,
        why: |is, _| match is {
            Some(is) => format!("its WWN {is} matches none of wwns"),
            None => "it has no WWN".to_owned(),
        },
    },
    ListFilter {
        field: "transports",
        what: "how it is attached, as lsblk names it: `nvme`, `sata`, `sas`, `virtio`, `usb`, …",
        description: "How it is attached, as lsblk names it: nvme, sata, sas, virtio, usb, iscsi, fc, ...",
        origin: FieldOrigin::Ours,
        elements: ElementKind::Words,
        example: &["nvme", "sas"],
        facts: &["transport"],
        turn: 50,
        says: |raw| raw.transport.clone().into_iter().collect(),
        why: |is, wanted| match is {
            Some(is) => format!("it is attached by {is}, not {wanted}"),
            None => format!("it is not known how it is attached, and the set requires {wanted}"),
        },
    },
    ListFilter {
        field: "sectorSizes",
        what: "bytes of a logical sector: 512, 4096",
        description: "Bytes of a logical sector: 512, 4096.",
        origin: FieldOrigin::Ours,
        elements: ElementKind::Numbers { least: 512, most: 1 << 16, check: power_of_two },
        example: &["512", "4096"],
        facts: &["sectorSize"],
        turn: 60,
        says: |raw| vec![raw.logical_sector.to_string()],
        why: |is, wanted| format!("its sectors have {} bytes, not {wanted}", is.unwrap_or("unknown")),
    },
    ListFilter {
        field: "numaNodes",
        what: "the NUMA nodes that it may be on",
        description: "The NUMA nodes that it may be on.",
        origin: FieldOrigin::Ours,
        elements: ElementKind::Numbers { least: 0, most: i32::MAX as i64, check: |_| Ok(()) },
        example: &["0"],
        facts: &["numaNode"],
        turn: 70,
        says: |raw| raw.numa_node.map(|node| node.to_string()).into_iter().collect(),
        why: |is, wanted| match is {
            Some(is) => format!("it is on NUMA node {is}, not {wanted}"),
            None => "its NUMA node is not known".to_owned(),
        },
    },
];

fn named(what: &str, is: Option<&str>, but: &str) -> String {
    match is {
        Some(is) => format!("its {what} {is:?} {but}"),
        None => format!("it reports no {what}"),
    }
}

fn paths(raw: &RawDisk) -> Vec<String> {
    let file = raw.kind.backing().map(|backing| &backing.file);
    [&raw.path].into_iter().chain(&raw.links).chain(file).map(|path| path.to_string_lossy().into_owned()).collect()
}

/// The kernel says `naa.5000…`, udev and lsblk `0x5000…`.
fn wwns(raw: &RawDisk) -> Vec<String> {
    let Some(wwid) = &raw.wwid else { return Vec::new() };
    let wwn = wwid.strip_prefix("naa.").map_or(wwid.clone(), |number| format!("0x{number}"));
    vec![wwn, wwid.clone()]
}

fn power_of_two(bytes: i64) -> Result<(), WrongNumber> {
    match bytes.unsigned_abs().is_power_of_two() {
        true => Ok(()),
        false => Err(WrongNumber::NoSector { bytes }),
    }
}

impl ListFilter {
    /// All of them, in the order in which they are asked.
    #[cfg(any(test, feature = "testing"))]
    pub fn in_turn() -> Vec<&'static Self> {
        let mut lists: Vec<&Self> = LIST_FILTERS.iter().collect();
        lists.sort_by_key(|list| list.turn);
        lists
    }

    fn check(&self, wanted: &[ListElement], raw: &RawDisk) -> Result<(), Mismatch> {
        let values = (self.says)(raw);
        if values.iter().any(|value| wanted.iter().any(|element| self.is(element, value))) {
            return Ok(());
        }
        let wanted: Vec<String> = wanted.iter().map(ListElement::shown).collect();
        let why = (self.why)(values.first().map(String::as_str), &wanted.join(" or "));
        Err(Mismatch::Field { field: self.field, why })
    }

    fn is(&self, element: &ListElement, value: &str) -> bool {
        match (element, self.elements) {
            (ListElement::Text(part), ElementKind::Parts) => value.to_lowercase().contains(&part.to_lowercase()),
            (ListElement::Text(word), _) => value.eq_ignore_ascii_case(word),
            (ListElement::Glob(glob), ElementKind::Globs(GlobCase::Exact)) => glob.matches(value),
            (ListElement::Glob(glob), _) => glob.matches(value.to_lowercase().trim()),
            (ListElement::Number(number), _) => value == number.to_string(),
        }
    }
}

impl ListElement {
    fn shown(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Glob(glob) => glob.text().to_owned(),
            Self::Number(number) => number.to_string(),
        }
    }
}

/// The lists of one set, by their fields. An empty or absent one matches every device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FilterLists(BTreeMap<&'static str, Vec<ListElement>>);

impl FilterLists {
    pub fn get(&self, field: &str) -> &[ListElement] {
        self.0.get(field).map_or(&[], Vec::as_slice)
    }

    /// Whether the device matches an element of each list. A device that does not report the fact matches none.
    pub(super) fn select(&self, raw: &RawDisk) -> Result<(), Mismatch> {
        let mut given: Vec<_> = LIST_FILTERS.iter().filter_map(|list| Some((list, self.0.get(list.field)?))).collect();
        given.sort_by_key(|(list, _)| list.turn);
        given.into_iter().try_for_each(|(list, wanted)| list.check(wanted, raw))
    }
}

impl FromIterator<(&'static str, Vec<ListElement>)> for FilterLists {
    fn from_iter<T: IntoIterator<Item = (&'static str, Vec<ListElement>)>>(lists: T) -> Self {
        Self(lists.into_iter().filter(|(_, wanted)| !wanted.is_empty()).collect())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::device::{
        Attachment, FactValue, Observed, Reach,
        fact_table::{FACTS, facts},
        sample::{disk, unclaimed},
    };

    #[test]
    fn no_field_and_no_turn_is_there_twice() {
        assert_eq!(LIST_FILTERS.iter().map(|list| list.field).collect::<BTreeSet<_>>().len(), LIST_FILTERS.len());
        assert_eq!(LIST_FILTERS.iter().map(|list| list.turn).collect::<BTreeSet<_>>().len(), LIST_FILTERS.len());
    }

    #[test]
    fn a_list_is_compared_with_the_facts_that_it_names() {
        let raw = RawDisk {
            vendor: Some("ATA".into()),
            model: Some("ST8000".into()),
            serial: Some("S1".into()),
            wwid: Some("naa.5000".into()),
            transport: Some("sas".into()),
            numa_node: Some(1),
            links: vec!["/dev/disk/by-id/a".into(), "/dev/disk/by-id/b".into()],
            ..disk("sda")
        };
        let device = crate::device::Device { raw, ..unclaimed("sda") };
        let attachment = Attachment { reach: Reach::Local, by: None };
        let facts = facts(&Observed { device: &device, attachment, shown_verdict: None });
        for list in LIST_FILTERS {
            let values = (list.says)(&device.raw);
            for name in list.facts {
                let fact = FACTS.iter().find(|fact| fact.name == *name).expect("a fact of the table");
                let known =
                    fact.among(&facts).unwrap_or_else(|| panic!("give the device of this test the fact {name}"));
                let known = match known {
                    FactValue::Text(text) => vec![text],
                    FactValue::Integer(number) => vec![number.to_string()],
                    FactValue::Texts(texts) => texts,
                    other => panic!("{name}: {other:?} is no text and no number"),
                };
                assert!(
                    known.iter().all(|known| values.contains(known)),
                    "{}: {name} is {known:?}, not {values:?}",
                    list.field
                );
            }
        }
    }
}
