//! What became of a NodeDiskSetup, in one word: the reason of its condition.

use crate::device::word_enum;

word_enum! {
    /// One word; the leader writes it.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub enum SetupReason {
        Valid,
        Invalid,
        SelectsNoNode,
        // An older object has nodes that it selects, too.
        SharesNodes,
        DisksReady,
        DisksNotReady,
        // The set of its disks cannot be made.
        SetRefused,
        // Commands run in the pods that wait.
        RunsInPods,
        // Disks are measured on the node instead: in some namespaces nothing may be run in pods.
        NoExecRight,
        // A command cannot begin yet: there is no pod or container to run it in.
        NoContainer,
    }
}
