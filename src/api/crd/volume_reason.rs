//! Why a volume is not made, not deleted, or not as it should be: one word for machines.
//!
//! The agent writes it into the status of a PoolVolume, and the controller acts on it. docs/kubernetes.md says what to
//! do about each.

use serde::{Deserialize, Serialize};

use crate::device::word_enum;

word_enum! {
    /// One word. A word of a later version is kept unchanged, and has no meaning here.
    #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(from = "String", into = "String")]
    pub enum VolumeReason {
        /// The set's disks have no room for it now.
        Full,
        /// No set offers a disk for it here.
        NoSet,
        /// It is larger than any disk of the set can hold.
        Limit,
        /// The spec asks for something impossible.
        Invalid,
        Cordoned,
        /// The request is older than any call lasts.
        Stale,
        /// The disk already has another volume with this id.
        Differs,
        /// Its disk failed again and again, and has no part of it.
        DiskFailed,
        /// Its node failed again and again to record the volume; no disk is at fault.
        JournalFailed,
        /// Something uses the device.
        InUse,
        Found,
        DiskMissing,
        VolumeMissing,
        /// It is, or may be, on several disks.
        Conflict,
        NotDescribed,
        BeingZeroed,
        CannotGrow,
        NoSuchVolume,
        /// Another process has the disk for the moment.
        Locked,
        Internal,
    }
}

impl From<VolumeReason> for String {
    fn from(reason: VolumeReason) -> Self {
        reason.word().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_word_is_read_as_it_is_written_and_one_of_a_later_version_is_kept() {
        let later = VolumeReason::Other("TooWarm".to_owned());
        for (reason, word) in
            [(VolumeReason::Full, "Full"), (VolumeReason::VolumeMissing, "VolumeMissing"), (later, "TooWarm")]
        {
            let text = serde_json::to_value(&reason).expect("JSON");
            assert_eq!((text.as_str(), reason.word()), (Some(word), word));
            assert_eq!(serde_json::from_value::<VolumeReason>(text).expect("read"), reason);
        }
    }
}
