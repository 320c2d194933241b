//! How a node's pool is, in one word: the reasons of the conditions of a DevicePool, but for those that are a reason of its
//! disks' health.

use crate::device::word_enum;

word_enum! {
    /// One word; the agent writes it, and of the condition `Ready` the controller.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub enum PoolReason {
        /// Nothing is wrong.
        AgentReady,
        Cordoned,
        JournalDamaged,
        VolumesNotRead,
        /// The CRDs are not of this version.
        HeldBack,
        DiskmakerRuns,
        NotKnown,
        /// All disks of the spec are in the pool.
        InPool,
        NotInPool,
        /// Each default disk has its name.
        Named,
        NotMounted,
        AnnotationInvalid,
    }
}
