//! Why a set does not take a device, as a value; its words are made here and nowhere else.

use std::fmt;

use super::mismatch::Mismatch;
use super::ripeness::Ripeness;
use super::rule::Unwell;
use super::unfit::LayoutError;
use super::wipe::NotWiped;
use crate::device::{NotFree, label::SetRef};

/// Why a set does not take a device now; `Display` is a sentence for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rejection {
    NodeNotSelected,
    /// The cluster's definition of sets is not this version's.
    HeldBack,
    /// The node has a taint that the set does not tolerate.
    Tainted,
    /// Another operator takes disks on this node.
    StandsBack,
    /// A LocalVolume, and none of its paths leads to the device.
    NotNamed,
    Filter(Mismatch),
    Verdict(NotFree),
    /// Its content alone keeps it out, and the set orders that to be destroyed.
    Content {
        why: NotFree,
        then: ContentFate,
    },
    DoesNotFit(LayoutError),
    NotZeros(NotZeros),
    Health(Unwell),
    Released,
    UnstableIdentity,
    /// What it is called may be the name of the USB bridge that it is in.
    NamedByBridge,
    /// A partition or a mapped device, and the set cuts its disks into partitions.
    HoldsNoTable,
    OlderSet(SetRef),
    /// The set would have the disk, and another one has it.
    InSet(SetRef),
    Full {
        most: u32,
    },
    /// A LocalVolume that has a disk for each of its paths.
    AllNamed {
        most: u32,
    },
    /// Only the kernel's name leads here, and of what the LocalVolume has some is not where its paths lead.
    Renumbered {
        astray: u32,
    },
    BelowMinimum {
        matching: u32,
        least: u32,
    },
    TooYoung(Ripeness),
    /// The first claim waits until as many devices as the set asks for at least are ripe.
    WaitsForMinimum {
        ripe: u32,
        least: u32,
    },
    /// The array is made of all devices that match, so it waits until all of them are ripe.
    WaitsForAll {
        ripe: u32,
        all: u32,
    },
    /// The set has an array, which takes no more members.
    ArrayIsWhole,
}

/// What a device holds that must hold nothing but zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it holds unrecognised data, first seen at byte {first}")]
pub struct NotZeros {
    pub first: u64,
}

/// What becomes of a device whose content a set orders to be destroyed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ContentFate {
    /// It is wiped, at the latest when its time has come.
    Wipe,
    /// It would be, were this no dry run, as far as that is known without reading its table.
    WouldWipe,
    /// Its content stays, whoever orders what.
    Spare(NotWiped),
    /// The set would not take it if it were blank.
    Reject(Box<Rejection>),
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NodeNotSelected => f.write_str("the set does not select this node, by its nodeSelector or its nodeExclusions"),
            Self::HeldBack => f.write_str(
                "nothing new is claimed: the cluster's CRDs are not of this version; status.sets of the DevicePool has \
                 the details",
            ),
            Self::Tainted => f.write_str("the node has a taint that the set's tolerations do not tolerate"),
            Self::StandsBack => f.write_str(
                "nothing new is claimed on this node: the Local Storage Operator's diskmaker runs here, or that is not known yet",
            ),
            Self::NotNamed => f.write_str("no path of the LocalVolume leads to it"),
            Self::Filter(mismatch) => mismatch.fmt(f),
            Self::Verdict(why) => why.fmt(f),
            Self::Content { why, then } => write!(f, "{why}; {then}"),
            Self::DoesNotFit(why) if why.is_of_machine() => write!(f, "{why}"),
            Self::DoesNotFit(why) => write!(f, "does not fit: {why}"),
            Self::NotZeros(why) => why.fmt(f),
            Self::Health(why) => why.fmt(f),
            Self::Released => f.write_str("released; `localpool disk adopt` lets sets claim it again"),
            Self::UnstableIdentity => {
                f.write_str("it is known only by its path, so it cannot be used without a label: another disk may have \
                             that path after a reboot")
            }
            Self::NamedByBridge => f.write_str(
                "it is on USB, so it cannot be used without a label: its bridge may give the same name to another \
                 disk; use a layout with a label, which identifies the disk",
            ),
            Self::HoldsNoTable => f.write_str("it cannot have a partition table, and the set has a partitioningSpec"),
            Self::InSet(set) => write!(f, "the set {set} has it"),
            Self::OlderSet(set) => write!(f, "the older set {set} takes it"),
            Self::Full { most } => write!(f, "the set has reached its maxDeviceCount of {most}"),
            Self::AllNamed { most: 1 } => f.write_str("the LocalVolume already has a disk for its only path here"),
            Self::AllNamed { most } => {
                write!(f, "the LocalVolume already has a disk for each of its {most} paths here")
            }
            Self::Renumbered { astray } => write!(
                f,
                "{astray} of the LocalVolume's disks here {} not where its paths lead, so this name may have been \
                 another disk's: if this disk is meant, name it by a link in /dev/disk/by-id",
                if *astray == 1 { "is" } else { "are" }
            ),
            Self::BelowMinimum { matching, least } => {
                let what = if *matching == 1 { "device matches" } else { "devices match" };
                write!(f, "only {matching} {what}; the set's minDeviceCount is {least}")
            }
            Self::TooYoung(Ripeness::Waiting(remaining)) => {
                write!(f, "seen too recently: it must stay unchanged for {} s more", remaining.as_secs_f64().ceil())
            }
            Self::TooYoung(_) => f.write_str("seen too recently: it must stay unchanged for a while"),
            Self::WaitsForMinimum { ripe, least } => {
                write!(f, "waits for the set's minDeviceCount of {least}: {ripe} seen for long enough")
            }
            Self::WaitsForAll { ripe, all } => write!(
                f,
                "waits for the others: the set's array is made of all {all} devices that match, {ripe} of which were seen \
                 for long enough"
            ),
            Self::ArrayIsWhole => f.write_str("the set has made its array here, which takes no more members"),
        }
    }
}

impl fmt::Display for ContentFate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // Without the seconds that are left: each would be a write of a status.
            Self::Wipe => {
                f.write_str("it will be wiped when it has stayed unchanged for a while, as the LocalVolume orders")
            }
            Self::WouldWipe => f.write_str("it would be wiped first, unless its table has partitions"),
            Self::Spare(spared) => write!(f, "not wiped: {spared}"),
            Self::Reject(rejection) => write!(f, "not wiped: {rejection}"),
        }
    }
}
