//! How far the order of a person for a volume is, in one word: the reason of the condition `OrderDone`.

use crate::device::word_enum;

word_enum! {
    /// One word; the leader writes it.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub enum OrderReason {
        Done,
        /// It is carried out now.
        Due,
        /// Its agent has not adopted it yet.
        NotAdoptedYet,
        /// Only a volume in the phase Found can be adopted.
        NotAdoptable,
        /// The volume is on no disk, or is being made or deleted.
        NotReady,
        /// Its agent says in the message why the conflict is not settled.
        InConflict,
        BeingErased,
        /// The order is refused: a PersistentVolume names the volume.
        PersistentVolumeExists,
        NodeDeleted,
        /// A PersistentVolume may be on its way.
        UnclaimedTooShort,
        /// No agent has accepted the volume: its object is withdrawn.
        NotMade,
        /// Its agent would write the object again.
        NodeExists,
    }
}
