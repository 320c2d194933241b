//! Our values in the types of CSI's messages.

use crate::device::NodeName;
use crate::rpc::proto;
use crate::volume::TOPOLOGY_KEY;

pub(super) fn topology(node: &NodeName) -> proto::Topology {
    proto::Topology { segments: [(TOPOLOGY_KEY.to_owned(), node.to_string())].into() }
}
