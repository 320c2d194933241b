//! What a LocalVolumeDiscovery is doing, in one word: the reason of its conditions.

use crate::device::word_enum;

word_enum! {
    /// One word; the controller writes it.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub enum DiscoveryReason {
        Running,
        Starting,
        /// No node is selected, or none accepts the pods.
        NoNode,
        PodsFailing,
        /// Nothing is wrong.
        AsExpected,
        /// Another object is in charge.
        NotInCharge,
        /// The controller has no DaemonSet to run.
        NotConfigured,
        /// The spec cannot be read.
        Invalid,
        DaemonSetNotWritten,
    }
}
