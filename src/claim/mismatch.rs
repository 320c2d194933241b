//! Why a filter does not select a device.

use std::fmt;

use crate::device::{DeviceType, Size};
use crate::host::KernelName;

/// Why a filter does not select a device; `Display` is a sentence for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mismatch {
    Type {
        is: &'static str,
        wanted: Vec<DeviceType>,
    },
    NestedPartition {
        disk: KernelName,
    },
    TooSmall {
        size: u64,
        least: u64,
    },
    TooLarge {
        size: u64,
        most: u64,
    },
    Mechanical {
        rotational: bool,
    },
    /// This list or value does not select it; the text says why.
    Field {
        field: &'static str,
        why: String,
    },
    Excluded {
        by: String,
    },
    /// What says that it is, if it is known.
    Network {
        by: Option<&'static str>,
    },
    /// The set's expression is not true for it.
    Expression {
        text: String,
    },
    /// It cannot be said whether it is.
    ExpressionFails {
        text: String,
        why: String,
    },
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Type { is, wanted } if wanted.is_empty() => write!(f, "its type is {is}, and deviceTypes is empty"),
            Self::Type { is, wanted } => {
                let wanted: Vec<_> = wanted.iter().map(ToString::to_string).collect();
                write!(f, "its type is {is}, not {}", wanted.join(" or "))
            }
            Self::NestedPartition { disk } => write!(f, "a partition of {disk}, which is a partition itself"),
            Self::TooSmall { size, least } => write!(f, "{} ({size} bytes) is below minSize {least}", Size(*size)),
            Self::TooLarge { size, most } => write!(f, "{} ({size} bytes) is above maxSize {most}", Size(*size)),
            Self::Mechanical { rotational: true } => f.write_str("it is Rotational"),
            Self::Mechanical { rotational: false } => f.write_str("it is NonRotational"),
            Self::Field { field: _, why } => f.write_str(why),
            Self::Excluded { by } => write!(f, "its name is excluded by {by:?} of deviceNameFilter"),
            Self::Network { by } => {
                write!(
                    f,
                    "its data comes over a network ({}), and excludeNetworkDisks is set",
                    by.unwrap_or("by its bus")
                )
            }
            Self::Expression { text } => write!(f, "the expression is not true for it: {text}"),
            Self::ExpressionFails { text, why } => {
                write!(f, "the expression cannot be evaluated for it: {why}: {text}")
            }
        }
    }
}
