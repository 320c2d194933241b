//! What Kubernetes calls a node: the name of the Node object, or the host name where there is no Kubernetes.
//!
//! It is not a device node (`/dev/sda`), which is a path, nor a NUMA node.

use serde::{Deserialize, Serialize};

use crate::host::{name_type, text_type};

/// The name of a node, written as its text: in a label, an object, a topology and a metric.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct NodeName(String);

text_type!(NodeName);
name_type!(NodeName);

impl PartialEq<String> for NodeName {
    fn eq(&self, other: &String) -> bool {
        self.0 == *other
    }
}
