//! Our values in the types of CSI's messages.

use super::proto;
use crate::device::NodeName;
use crate::volume::TOPOLOGY_KEY;

/// Bytes as CSI counts them.
pub(super) fn wire(size: u64) -> i64 {
    i64::try_from(size).unwrap_or(i64::MAX)
}

pub(super) fn topology(node: &NodeName) -> proto::Topology {
    proto::Topology { segments: [(TOPOLOGY_KEY.to_owned(), node.to_string())].into() }
}
