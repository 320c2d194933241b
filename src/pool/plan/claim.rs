//! Claiming a blank disk: label, then backup table, then primary, the protective MBR last; then the label's partition
//! is mapped, so that the disk has one before it has volumes. Before all of it, the ends of what becomes a member of an
//! array become zeros.
//!
//! Stopped before the backup is whole, the disk is still blank to everybody (the label alone means
//! nothing) and is claimed again. Stopped later, the backup with our label is our own unfinished claim.

use std::collections::BTreeMap;
use std::sync::Arc;

use uuid::Uuid;

use super::array::clear_ends;
use super::step::{Plan, PlanError, Step};
use crate::device::NodeName;
use crate::device::label::{
    ARRAY_MEMBER_TYPE, FREE_SLOT_TYPE, Hardware, LABEL_EXTENT, LABEL_TYPE, Label, Layout, POOL_FILESYSTEM_TYPE, SetRef,
};
use crate::host::Geometry;
use crate::host::table::{Entry, Name, Table};
use crate::pool::content::Content;
use crate::pool::layout::{data_area, places};

/// The partition that holds the label.
pub const LABEL_NUMBER: u32 = 1;

/// What a claim writes on a disk.
#[derive(Clone, Debug)]
pub struct NewLabel {
    pub geometry: Geometry,
    pub cluster: String,
    pub node: NodeName,
    pub hardware: Hardware,
    pub set: SetRef,
    pub layout: Layout,
}

/// Plans a claim; `random` gives fresh GUIDs (disk, label entry, slots).
pub fn claim(claim: &NewLabel, mut random: impl FnMut() -> Uuid) -> Result<(Plan, Content), PlanError> {
    let NewLabel { geometry, cluster, node, hardware, set, layout } = claim.clone();
    data_area(&geometry)?;
    let label_entry = Entry {
        kind: LABEL_TYPE,
        guid: random(),
        extent: LABEL_EXTENT,
        attributes: 0,
        name: Name::tail("localpool label"),
    };
    let mut table = Table::new(random(), geometry)?.with(LABEL_NUMBER, Some(label_entry))?;
    let (kind, name) = match layout {
        Layout::Directory { .. } => (POOL_FILESYSTEM_TYPE, "localpool volumes"),
        Layout::Member(_) => (ARRAY_MEMBER_TYPE, "localpool array"),
        Layout::Whole {} | Layout::Slots { .. } | Layout::Carved {} | Layout::RawDevice {} => {
            (FREE_SLOT_TYPE, "localpool free")
        }
    };
    for (number, extent) in (LABEL_NUMBER + 1..).zip(places(&geometry, &layout)?) {
        let slot = Entry { kind, guid: random(), extent, attributes: 0, name: Name::tail(name) };
        table = table.with(number, Some(slot))?;
    }
    let table = Arc::new(table);
    let label = Arc::new(Label {
        disk: table.disk(),
        cluster,
        node,
        hardware,
        set,
        layout,
        releasing: false,
        used: false,
        given_up: false,
        clean: Vec::new(),
        volumes: BTreeMap::new(),
        erasing: BTreeMap::new(),
    });
    let steps =
        [Step::Label(Arc::clone(&label)), Step::FirstTable(Arc::clone(&table)), Step::Map(LABEL_NUMBER, LABEL_EXTENT)];
    // What an earlier owner left of an array would come to life as soon as there is a partition around it.
    let members = table.entries().values().filter(|entry| entry.kind == ARRAY_MEMBER_TYPE);
    let zeros: Vec<Step> = members.flat_map(|entry| clear_ends(entry.extent)).collect();
    let plan = Plan(zeros.into_iter().chain(steps).collect());
    Ok((plan, Content { geometry, table, label, written: 0, busy: BTreeMap::new() }))
}
