//! NodeDiskSetup: read strictly. A field of the proposal that localpool does not read is refused with what to do
//! instead, so an object means the same to a later version that reads it.
//!
//! Takes in the object, gives out what it asks for, or everything that is wrong with it. What it asks of disks is the spec
//! of a LocalVolumeSet (`set`), which is read as any other one.

mod benchmark;
mod placement;
mod set;

use serde_json::{Map, Value};

use self::benchmark::read_options;
pub use self::benchmark::{BenchmarkOptions, BenchmarkPlace, PodCommand, PrecomputedUse};
use self::placement::NodePlacement;
use super::metadata;
use super::node_selector::{Node, may_select};
use super::strict::{Field, Invalid, Problems};

const API_VERSION: &str = "localpool.dev/v1alpha1";
const KIND: &str = "NodeDiskSetup";
const NOT_IT: &str = "is not NodeDiskSetup";

/// A valid NodeDiskSetup.
#[derive(Clone, Debug, PartialEq)]
pub struct DiskSetup {
    pub disks: DisksUse,
    /// The spec of its LocalVolumeSet, with the nodeSelector and tolerations of its placement.
    pub set: Map<String, Value>,
    /// `None`: nothing is measured, and whoever waits for a result gets an empty one.
    pub benchmark: Option<BenchmarkOptions>,
}

/// Whether disks are set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DisksUse {
    SetUp,
    /// No more than are set up already.
    AsTheyAre,
}

impl DiskSetup {
    /// Whether it is for this node.
    pub fn selects(&self, node: &Node) -> bool {
        self.node_selector().is_none_or(|selector| may_select(selector, node))
    }

    /// The nodes that it is for; `None`: all.
    pub fn node_selector(&self) -> Option<&Value> {
        self.set.get(set::NODE_SELECTOR)
    }
}

pub fn parse_disk_setup(value: &Value) -> Result<DiskSetup, Invalid> {
    let problems = Problems::default();
    let read = read(value, &problems);
    problems.judge(read)
}

/// The nodes that an object is for, whatever is wrong with the rest of it; `Ok(None)`: all.
pub fn parse_placement(value: &Value) -> Result<Option<Value>, Invalid> {
    let problems = Problems::default();
    let spec = metadata::read_object(value, (API_VERSION, KIND), NOT_IT, &problems);
    let selector = spec.map(|(_, mut spec)| NodePlacement::read(&mut spec).node_selector);
    problems.judge(selector)
}

fn read(value: &Value, problems: &Problems) -> Option<DiskSetup> {
    let (_, mut spec) = metadata::read_object(value, (API_VERSION, KIND), NOT_IT, problems)?;
    let placement = NodePlacement::read(&mut spec);
    let is_off = |field: Field<'_, '_>| field.boolean().unwrap_or(false);
    let disks = if is_off(spec.field(&["diskSetupDisabled"])) { DisksUse::AsTheyAre } else { DisksUse::SetUp };
    let set = set::read(&mut spec, &placement, problems);
    let is_disabled = is_off(spec.field(&["diskBenchmarkDisabled"]));
    let options = read_options(spec.field(&["diskBenchmarkOptions"]).object());
    spec.finish();
    Some(DiskSetup { disks, set, benchmark: (!is_disabled).then_some(options) })
}

#[cfg(test)]
mod tests;
