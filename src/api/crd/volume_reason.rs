//! Why a volume is not made, not deleted, or not as it should be: one word for machines.
//!
//! The agent writes it into the status of a PoolVolume, the controller goes by it. docs/kubernetes.md says for each what to do.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The words stand here and nowhere else: each is the name of its variant.
macro_rules! reasons {
    ($($(#[$doc:meta])* $reason:ident,)+) => {
        /// One word. That of a later version is kept as it is, and means nothing here.
        #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(from = "String", into = "String")]
        pub enum Reason {
            $($(#[$doc])* $reason,)+
            Other(String),
        }

        impl Reason {
            pub fn word(&self) -> &str {
                match self {
                    $(Self::$reason => stringify!($reason),)+
                    Self::Other(word) => word,
                }
            }
        }

        impl From<String> for Reason {
            fn from(word: String) -> Self {
                match word.as_str() {
                    $(stringify!($reason) => Self::$reason,)+
                    _ => Self::Other(word),
                }
            }
        }
    };
}

reasons! {
    /// The set's disks have no room for it now.
    Full,
    /// No set offers a disk for it here.
    NoSet,
    /// It is larger than any disk of the set could take.
    Limit,
    /// The spec asks for what cannot be.
    Invalid,
    Cordoned,
    /// It was asked for longer ago than any call lasts.
    Stale,
    /// The disk has a volume of this id already, and another one.
    Differs,
    /// Its disk failed it again and again, and has nothing of it.
    DiskFailed,
    /// Its node could not write down, again and again, that it has it; no disk is at fault.
    JournalFailed,
    /// Something has the device.
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
    /// Somebody else has the disk for the moment.
    Locked,
    Internal,
}

impl From<Reason> for String {
    fn from(reason: Reason) -> Self {
        reason.word().to_owned()
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_word_is_read_as_it_is_written_and_one_of_a_later_version_is_kept() {
        let later = Reason::Other("TooWarm".to_owned());
        for (reason, word) in [(Reason::Full, "Full"), (Reason::VolumeMissing, "VolumeMissing"), (later, "TooWarm")] {
            let text = serde_json::to_value(&reason).expect("JSON");
            assert_eq!((text.as_str(), reason.word()), (Some(word), word));
            assert_eq!(serde_json::from_value::<Reason>(text).expect("read"), reason);
        }
    }
}
