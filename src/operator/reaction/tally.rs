//! How many nodes are bad: many at once are more likely a split of the network than the death of as many disks.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};

use super::marked::{HomeState, MarkedVolume, home_state};
use crate::device::NodeName;
use crate::operator::persistent_volume::view::View;

/// How long a Node that was deleted counts as bad: whoever makes a cluster smaller deletes many on purpose.
const DELETED: SignedDuration = SignedDuration::from_hours(1);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeTally {
    pub bad: usize,
    pub all: usize,
}

impl NodeTally {
    /// Of the nodes that have a DevicePool or a marked volume. Bad is a node that is not ready, one whose agent does
    /// not answer, and one with a volume that is lost, whether anybody chose it or not, but for those that were
    /// dealt with (Released).
    pub fn of(view: &View, marked: &[MarkedVolume], now: Timestamp) -> Self {
        let nodes = view.nodes_by_name();
        let mut all: BTreeSet<NodeName> = marked.iter().map(|volume| volume.node.clone()).collect();
        let mut bad: BTreeSet<NodeName> = marked.iter().filter(|volume| is_bad(volume, now)).map(node_of).collect();
        for pool in &view.pools {
            let name = pool.node();
            let state = home_state(nodes.get(&name).copied(), Some(pool));
            if matches!(state, HomeState::Silent | HomeState::NotReady | HomeState::Fenced) {
                bad.insert(name.clone());
            }
            all.insert(name);
        }
        Self { bad: bad.len(), all: all.len() }
    }

    /// One bad node is never many.
    pub fn are_many(self, max_percent: u8) -> bool {
        self.bad > (self.all * usize::from(max_percent) / 100).max(1)
    }
}

fn node_of(volume: &MarkedVolume) -> NodeName {
    volume.node.clone()
}

fn is_bad(volume: &MarkedVolume, now: Timestamp) -> bool {
    let is_new = || volume.lost_since.is_none_or(|since| now.duration_since(since) < DELETED);
    volume.volume.phase.is_usable() && !volume.losses.is_empty() && (volume.home != HomeState::Gone || is_new())
}
