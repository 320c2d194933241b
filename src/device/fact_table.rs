//! The facts of a device: a row for each, in the order of JSON. The tables and JSON of `localpool devices`,
//! expressions of sets, LocalVolumeDiscoveryResults, their schema and the documents use this table.
//!
//! Takes in a device, gives out [`Facts`]. Pure.

mod readers;

use self::readers::{ATTACHED_BY, LINK, PROPERTIES, ROTATIONAL};
pub use self::readers::{CHILDREN, EMPTY, PATH, POOL_PARTITION, REFUSAL, VERDICT};
use self::readers::{by_path, device_id, fstype, is_empty, property, wwn};
use super::device_type::type_name;
use super::fact::Output::{Discovery, Expression, Json, Table};
use super::fact::Read::{Boolean, Bytes, Derived, Int32, Int64, Text, Texts, Word};
use super::fact::{Fact, FactKind, Facts, Observed, Output, Read, ResultField};
use super::fact::{identity, narrow, operators, ours, wide};
use super::label::Label;

const REACHES: &[&str] = &["Local", "Network", "Unknown"];
pub static FACTS: &[Fact] = &[
    fact(
        PATH,
        "the device node; it may change after a reboot",
        Text(|observed| Some(observed.raw().path.display().to_string())),
        &[Json, Table(narrow(10, "DEVICE")), Expression("path"), Discovery(operators("path"))],
    ),
    fact("name", "the kernel's name", Text(|observed| Some(observed.raw().name.to_string())), &[Expression("name")]),
    fact(
        "diskId",
        "the name that localpool has for the disk, without a path or a size",
        Text(|observed| Some(observed.device.id.to_string())),
        &[Json, Table(wide(150, "ID")), Expression("diskId"), Discovery(identity("diskId"))],
    ),
    fact(
        "stableId",
        "whether the disk id is the same after a reboot and on another port",
        Boolean(|observed| Some(!observed.device.id.is_path())),
        &[Json],
    ),
    fact(
        VERDICT,
        "who owns it: `Unclaimed`, `Ours`, `Theirs` or `Unknown`",
        Text(|observed| Some(observed.shown_verdict?.verdict.to_owned())),
        &[Json, Table(narrow(140, "VERDICT"))],
    ),
    fact(
        "reason",
        "why, in words",
        Text(|observed| Some(observed.shown_verdict?.reason.clone())),
        &[Json, Table(narrow(200, "WHY"))],
    ),
    fact(
        REFUSAL,
        "why nobody may claim it, in words that stay the same as long as the reason does; absent if it may be claimed",
        Text(|observed| observed.shown_verdict?.refusal.clone()),
        &[Json],
    ),
    fact(
        "size",
        "bytes",
        Bytes(|observed| observed.raw().size),
        &[Json, Table(narrow(20, "SIZE").right()), Expression("size"), Discovery(operators("size"))],
    ),
    fact(
        "type",
        "as lsblk shows it: `disk`, `part`, `lvm`, `mpath`, `loop`, `raid`, `crypt`, `dm`, `rom`, `other`",
        Text(|observed| Some(type_name(observed.raw()).to_owned())),
        &[Json, Table(narrow(30, "TYPE")), Expression("type"), Discovery(operators("type"))],
    ),
    fact(
        "vendor",
        "as the hardware reports it",
        Text(|observed| observed.raw().vendor.clone()),
        &[Json, Expression("vendor"), Discovery(operators("vendor"))],
    ),
    fact(
        "model",
        "as the hardware reports it",
        Text(|observed| observed.raw().model.clone()),
        &[Json, Table(narrow(40, "MODEL")), Expression("model"), Discovery(operators("model"))],
    ),
    fact(
        "serial",
        "as the hardware reports it",
        Text(|observed| observed.raw().serial.clone()),
        &[Json, Table(wide(50, "SERIAL")), Expression("serial"), Discovery(operators("serial"))],
    ),
    fact("wwid", "the world wide id, as the kernel writes it", Text(|observed| observed.raw().wwid.clone()), &[Json]),
    fact(
        "wwn",
        "the world wide name, as udev and lsblk write it",
        Text(|observed| observed.raw().wwid.as_deref().and_then(wwn)),
        &[Json, Table(wide(160, "WWN")), Expression("wwn"), Discovery(ours("wwn"))],
    ),
    fact(
        LINK,
        "the best link in `/dev/disk`; the device node if there is none",
        Text(|observed| Some(observed.device.link.display().to_string())),
        &[Json, Table(wide(170, "LINK"))],
    ),
    fact(
        "deviceID",
        "the best link in `/dev/disk/by-id`, in the operator's order; empty if there is none",
        Derived(FactKind::Text, device_id),
        &[Expression("deviceID"), Discovery(operators("deviceID"))],
    ),
    fact(
        "links",
        "all links below `/dev/disk` (the first 64)",
        Texts(|observed| observed.raw().links.iter().map(|link| link.display().to_string()).collect()),
        &[Expression("links")],
    ),
    fact(
        "byPath",
        "the link in `/dev/disk/by-path`",
        Text(|observed| by_path(observed.raw())),
        &[Json, Table(wide(180, "BY-PATH")), Expression("byPath"), Discovery(ours("byPath"))],
    ),
    fact(
        "transport",
        "the transport, as lsblk's TRAN: `nvme`, `sata`, `sas`, `usb`, `iscsi`, `fc`, `tcp`, `virtio`",
        Text(|observed| observed.raw().transport.clone()),
        &[Json, Table(wide(60, "TRANSPORT")), Expression("tran"), Expression("transport"), Discovery(ours("tran"))],
    ),
    fact(
        "attachment",
        "whether it is in the machine or over a network; `Unknown` if only a hypervisor knows",
        Word(REACHES, |observed| observed.attachment.reach.to_string()),
        &[Json, Table(wide(70, "ATTACHED").with(ATTACHED_BY)), Expression("attachment"), Discovery(ours("attachment"))],
    ),
    fact(
        ATTACHED_BY,
        "how that is known, such as `iSCSI`, `Fibre Channel`, `NVMe over TCP`, `Amazon EBS` or `virtio`",
        Text(|observed| observed.attachment.by.map(str::to_owned)),
        &[Json, Expression("attachedBy"), Discovery(ours("attachedBy"))],
    ),
    fact(
        "sectorSize",
        "bytes of a logical sector",
        Int64(|observed| observed.raw().logical_sector.into()),
        &[
            Json,
            Table(wide(80, "SECTOR").right()),
            Expression("logicalSectorSize"),
            Discovery(ours("logicalSectorSize")),
        ],
    ),
    fact(
        "physicalSectorSize",
        "bytes of a physical sector",
        Int64(|observed| observed.raw().physical_sector.into()),
        &[
            Json,
            Table(wide(90, "PHYSICAL").right()),
            Expression("physicalSectorSize"),
            Discovery(ours("physicalSectorSize")),
        ],
    ),
    fact(
        ROTATIONAL,
        "whether it is a rotating disk",
        Boolean(|observed| Some(observed.raw().rotational)),
        &[Json, Table(wide(100, "ROTATIONAL")), Expression("rotational")],
    ),
    fact(
        "property",
        "whether it is a rotating disk",
        Derived(FactKind::Word(&PROPERTIES), property),
        &[Expression("property"), Discovery(operators("property"))],
    ),
    fact(
        "readOnly",
        "whether it refuses writes",
        Boolean(|observed| Some(observed.raw().read_only)),
        &[Json, Expression("readOnly")],
    ),
    fact(
        "removable",
        "whether the kernel calls its medium removable",
        Boolean(|observed| Some(observed.raw().removable)),
        &[Json, Expression("removable")],
    ),
    fact(
        "discard",
        "whether it accepts discards",
        Boolean(|observed| Some(observed.raw().discards)),
        &[Json, Table(wide(110, "DISCARD")), Expression("discard"), Discovery(ours("discard"))],
    ),
    fact(
        "zoned",
        "`host-managed` or `host-aware`",
        Text(|observed| observed.raw().zoned.clone()),
        &[Json, Table(wide(120, "ZONED")), Expression("zoned"), Discovery(ours("zoned"))],
    ),
    fact(
        "numaNode",
        "its NUMA node",
        Int32(|observed| observed.raw().numa_node),
        &[Json, Table(wide(130, "NUMA")), Expression("numaNode"), Discovery(ours("numaNode"))],
    ),
    fact(
        "fstype",
        "the first signature found, or the filesystem or swap that is in use on it",
        Text(fstype),
        &[Json, Discovery(operators("fstype"))],
    ),
    fact(
        CHILDREN,
        "its partitions, and the devices that are built on it",
        Texts(|observed| {
            observed.raw().partitions.iter().chain(&observed.raw().holders).map(|name| format!("/dev/{name}")).collect()
        }),
        &[Json, Table(wide(190, "CHILDREN")), Discovery(ours("children"))],
    ),
    fact(
        "set",
        "the set that a pool disk belongs to, as `namespace/name`",
        Text(|observed| observed.device.label.as_deref().map(|Label { set, .. }| set.to_string())),
        &[Json],
    ),
    fact(
        EMPTY,
        "a disk without content: a loop device without a file, a drive without a medium",
        Boolean(|observed| is_empty(observed.raw()).then_some(true)),
        &[Json],
    ),
    fact(
        POOL_PARTITION,
        "a partition that the pool has made on a disk of its own: a volume, room for one, or the label",
        Boolean(|observed| observed.shown_verdict?.pool_partition.then_some(true)),
        &[Json],
    ),
];

/// All that can be read of a device.
pub fn facts(observed: &Observed<'_>) -> Facts {
    FACTS.iter().filter_map(|fact| Some((fact.name, fact.of(observed)?))).collect()
}

/// The facts that are in JSON, in its order.
pub fn in_json() -> impl Iterator<Item = &'static Fact> {
    FACTS.iter().filter(|fact| fact.is_in_json())
}

/// The facts that a result has, with their fields.
pub fn in_results() -> impl Iterator<Item = (&'static Fact, ResultField)> {
    FACTS.iter().filter_map(|fact| Some((fact, fact.result()?)))
}

/// The facts that an expression sees, each with its name there.
pub fn in_expressions() -> impl Iterator<Item = (&'static str, &'static Fact)> {
    FACTS.iter().flat_map(|fact| fact.expressions().map(move |name| (name, fact)))
}

const fn fact(name: &'static str, what: &'static str, read: Read, shown: &'static [Output]) -> Fact {
    Fact { name, what, read, shown }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::device::attachment::Reach;

    #[test]
    fn the_schema_of_results_has_each_word_for_where_a_device_is() {
        for reach in [Reach::Local, Reach::Network, Reach::Unknown] {
            // A new variant needs a place in the list above and in `REACHES`.
            match reach {
                Reach::Local | Reach::Network | Reach::Unknown => {}
            }
            assert!(REACHES.contains(&&*reach.to_string()), "{reach}");
        }
    }

    #[test]
    fn the_schema_has_the_sentence_of_a_fact_without_its_marks() {
        let described = |name: &str| FACTS.iter().find(|fact| fact.name == name).map(Fact::description);
        assert_eq!(described("size").as_deref(), Some("Bytes."));
        assert_eq!(described("zoned").as_deref(), Some("host-managed or host-aware."));
        for Fact { name, what, .. } in FACTS {
            assert!(!what.ends_with('.') && what.matches('`').count() % 2 == 0, "{name}: {what}");
            assert!(!what.starts_with("localpool"), "{name}: the schema would begin with a capital");
        }
    }

    /// That no name stands for two facts in one place.
    fn once<T: Ord + std::fmt::Debug>(all: Vec<T>) {
        let (count, once) = (all.len(), all.iter().collect::<BTreeSet<_>>().len());
        assert_eq!(count, once, "{all:?}");
    }

    #[test]
    fn each_fact_is_shown_somewhere_and_no_name_or_column_is_there_twice() {
        for fact in FACTS {
            assert!(!fact.shown.is_empty(), "{} is shown nowhere", fact.name);
            let more = |holds: fn(&Output) -> bool| fact.shown.iter().filter(|output| holds(output)).count() > 1;
            assert!(!more(|output| matches!(output, Table(_))), "{} has two columns", fact.name);
            assert!(!more(|output| matches!(output, Discovery(_))), "{} has two fields", fact.name);
            // A row of a table and a result are made of what is in JSON.
            let is_made = fact.column().is_some() || fact.result().is_some();
            assert!(fact.is_in_json() || matches!(fact.read, Derived(..)) || !is_made, "{} reaches neither", fact.name);
        }
        once(FACTS.iter().map(|fact| fact.name).collect());
        once(FACTS.iter().filter_map(|fact| Some(fact.column()?.at)).collect());
        once(FACTS.iter().filter_map(|fact| Some(fact.column()?.head)).collect());
        once(in_expressions().map(|(name, _)| name).collect());
        once(in_results().map(|(_, field)| field.name).collect());
    }
}
