//! What an expression sees of a device.

use std::collections::HashMap;
use std::sync::Arc;

use cel::objects::{Key, Value};

use crate::device::Device;
use crate::device::attachment::Attachment;
use crate::device::facts::{by_path, type_name, wwn};

/// The links of a device that an expression sees.
pub(super) const MOST_LINKS: usize = 64;

/// The one variable.
pub(super) const DEVICE: &str = "device";

pub(super) struct Observed<'a> {
    pub(super) device: &'a Device,
    pub(super) attachment: Attachment,
}

pub(super) type Fact = (&'static str, fn(&Observed<'_>) -> Value);

/// What `device` has, by the names of a LocalVolumeDiscoveryResult; and the kernel's name and all links. A text that is
/// not known is empty, a NUMA node that is not known -1: comparing it fails no expression.
pub(super) const FACTS: [Fact; 25] = [
    ("attachedBy", |seen| text(seen.attachment.by)),
    ("attachment", |seen| Value::from(seen.attachment.reach.to_string())),
    ("byPath", |seen| text(by_path(&seen.device.raw).as_deref())),
    ("deviceID", |seen| {
        let Device { link, raw, .. } = seen.device;
        if *link == raw.path { text(None) } else { Value::from(link.display().to_string()) }
    }),
    ("discard", |seen| Value::Bool(seen.device.raw.discards)),
    ("diskId", |seen| text(Some(seen.device.id.as_str()))),
    ("links", |seen| {
        let links = seen.device.raw.links.iter().take(MOST_LINKS);
        Value::from(links.map(|link| Value::from(link.display().to_string())).collect::<Vec<_>>())
    }),
    ("logicalSectorSize", |seen| Value::Int(seen.device.raw.logical_sector.into())),
    ("model", |seen| text(seen.device.raw.model.as_deref())),
    ("name", |seen| text(Some(&seen.device.raw.name))),
    ("numaNode", |seen| Value::Int(seen.device.raw.numa_node.map_or(-1, i64::from))),
    ("path", |seen| Value::from(seen.device.raw.path.display().to_string())),
    ("physicalSectorSize", |seen| Value::Int(seen.device.raw.physical_sector.into())),
    ("property", |seen| text(Some(if seen.device.raw.rotational { "Rotational" } else { "NonRotational" }))),
    ("readOnly", |seen| Value::Bool(seen.device.raw.read_only)),
    ("removable", |seen| Value::Bool(seen.device.raw.removable)),
    ("rotational", |seen| Value::Bool(seen.device.raw.rotational)),
    ("serial", |seen| text(seen.device.raw.serial.as_deref())),
    ("size", |seen| Value::Int(i64::try_from(seen.device.raw.size).unwrap_or(i64::MAX))),
    ("tran", |seen| text(seen.device.raw.transport.as_deref())),
    ("transport", |seen| text(seen.device.raw.transport.as_deref())),
    ("type", |seen| text(Some(type_name(&seen.device.raw)))),
    ("vendor", |seen| text(seen.device.raw.vendor.as_deref())),
    ("wwn", |seen| text(seen.device.raw.wwid.as_deref().and_then(wwn).as_deref())),
    ("zoned", |seen| text(seen.device.raw.zoned.as_deref())),
];

pub(super) fn facts(seen: &Observed<'_>) -> Value {
    let facts: HashMap<Key, Value> =
        FACTS.iter().map(|(name, fact)| (Key::String(Arc::new((*name).to_owned())), fact(seen))).collect();
    Value::from(facts)
}

/// Without the blanks that hardware pads its words with.
fn text(word: Option<&str>) -> Value {
    Value::from(word.unwrap_or_default().trim().to_owned())
}

pub(super) fn fields() -> String {
    FACTS.map(|(name, _)| name).join(", ")
}
