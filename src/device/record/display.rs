//! A record in words, for people who ask why a disk is not used.

use std::fmt;

use super::Record;
use crate::device::label::FORMAT;

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Record::Nothing => f.write_str("no partition table and no label"),
            Record::OtherTable(message) | Record::Unreadable(message) | Record::Broken(message) => f.write_str(message),
            Record::Ours(own) => write!(f, "a disk of set {}", own.label.set),
            Record::UnfinishedClaim(_) | Record::TornClaim { .. } => f.write_str("a claim that was interrupted"),
            Record::UnfinishedRelease { .. } => f.write_str("a release that was interrupted"),
            Record::Newer(FORMAT) => f.write_str(
                "a label whose content only a later version of localpool understands; its node needs that version",
            ),
            Record::Newer(format) => write!(f, "a label of format {format}, written by a later version of localpool"),
        }
    }
}
