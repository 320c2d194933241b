//! Which NodeDiskSetup is for which node: of several, the oldest. Pure.

use std::sync::Arc;

use jiff::Timestamp;
use kube::{Resource as _, ResourceExt as _};
use serde_json::Value;

use crate::api::crd::NodeDiskSetup;
use crate::api::{DiskSetup, Invalid, Node, parse_disk_setup, parse_placement};

/// An object, and what it asks for.
#[derive(Clone, Debug)]
pub struct ReadSetup {
    pub object: Arc<NodeDiskSetup>,
    pub reading: Result<DiskSetup, Invalid>,
    /// The nodes that it is for, or is meant for if it has a slip; `None`: all, or nobody can say.
    pub nodes: Option<Value>,
}

/// All of them, the oldest first.
#[derive(Clone, Debug, Default)]
pub struct Setups(Vec<ReadSetup>);

/// The one that is for a node, as its place among all.
#[derive(Clone, Copy, Debug)]
pub struct NodeSetup<'a> {
    pub place: usize,
    pub setup: &'a DiskSetup,
    /// When the object was made: pods of older volumes do not know of it.
    pub since: Timestamp,
}

impl Setups {
    pub fn of(mut objects: Vec<Arc<NodeDiskSetup>>) -> Self {
        objects.retain(|object| object.metadata.deletion_timestamp.is_none());
        objects.sort_by_key(|object| (created(object), object.name_any()));
        Self(objects.into_iter().map(ReadSetup::of).collect())
    }

    pub fn all(&self) -> &[ReadSetup] {
        &self.0
    }

    /// The oldest valid one that selects a node.
    #[cfg(test)]
    pub fn for_node(&self, node: &Node) -> Option<NodeSetup<'_>> {
        self.selecting(node).next()
    }

    /// All valid ones that select a node, the oldest first.
    pub fn selecting(&self, node: &Node) -> impl Iterator<Item = NodeSetup<'_>> {
        self.0.iter().enumerate().filter_map(move |(place, ReadSetup { object, reading, nodes: _ })| {
            let setup = reading.as_ref().ok().filter(|setup| setup.selects(node))?;
            Some(NodeSetup { place, setup, since: created(object) })
        })
    }
}

impl ReadSetup {
    fn of(object: Arc<NodeDiskSetup>) -> Self {
        let value = value(&object);
        let reading = value.as_ref().map_err(Clone::clone).and_then(parse_disk_setup);
        let nodes = value.as_ref().ok().and_then(|value| parse_placement(value).ok()?);
        Self { object, reading, nodes }
    }
}

fn value(object: &NodeDiskSetup) -> Result<Value, Invalid> {
    let mut value = serde_json::to_value(object).map_err(Invalid::whole)?;
    // An object of a list does not say it.
    value["apiVersion"] = NodeDiskSetup::api_version(&()).into();
    value["kind"] = NodeDiskSetup::kind(&()).into();
    Ok(value)
}

fn created(object: &NodeDiskSetup) -> Timestamp {
    object.creation_timestamp().map_or(Timestamp::MAX, |time| time.0)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::sample;
    use super::*;

    #[test]
    fn of_two_for_one_node_the_older_counts_and_one_that_is_not_valid_is_for_none() {
        let young = sample::setup("a", "2026-01-02T00:00:00Z", json!({}));
        let old = sample::setup("b", "2026-01-01T00:00:00Z", json!({"placement": {"nodeSelector": {"disk": "ssd"}}}));
        let wrong = sample::setup("c", "2025-01-01T00:00:00Z", json!({"localDisksPath": "/"}));
        let setups = Setups::of([young, old, wrong].map(Arc::new).into());
        let node = |value: &str| Node { name: "n".into(), labels: [("disk".to_owned(), value.to_owned())].into() };
        let name = |found: NodeSetup<'_>| setups.all()[found.place].object.name_any();
        assert_eq!(setups.for_node(&node("ssd")).map(name).as_deref(), Some("b"));
        assert_eq!(setups.for_node(&node("hdd")).map(name).as_deref(), Some("a"));
        assert!(setups.all()[0].reading.is_err(), "the oldest is the one that is not valid");
        let mut gone = sample::setup("d", "2024-01-01T00:00:00Z", json!({}));
        gone.metadata.deletion_timestamp = gone.metadata.creation_timestamp.clone();
        assert!(Setups::of(vec![Arc::new(gone)]).for_node(&node("ssd")).is_none(), "it is being deleted");
    }
}
