//! Who may take a device: what rules select, how ripe it is, and which rule takes which.
//!
//! Takes in [`Device`](crate::device::Device)s and rules, gives out an election. Pure.

mod ballot;
mod election;
mod expression;
mod filesystem_choice;
mod glob;
mod list_filter;
mod mismatch;
mod named;
mod no_answer;
mod promise;
mod rejection;
mod ripeness;
mod rule;
#[cfg(any(test, feature = "testing"))]
pub mod sample;
mod unfit;
mod value_filter;
mod wipe;

pub use ballot::{Ballot, Candidacy};
pub use election::{ElectedClaim, ElectedWipe, Election, SetOutcome, devices_to_ask, elect};
pub use expression::{EXPRESSION_MAX_BYTES, Expression};
pub use filesystem_choice::FilesystemChoice;
pub use glob::Glob;
pub use list_filter::{ElementKind, FieldOrigin, FilterLists, GlobCase, LIST_FILTERS, ListElement, ListFilter};
pub use named::NamedPaths;
pub use no_answer::NoAnswer;
pub use promise::{AskPromises, Promise, promised};
pub use rejection::{NotZeros, Rejection};
pub use ripeness::{Ripeness, Watchlist};
pub use rule::{
    Blankness, Filter, MinHealth, NodeMatch, OVERPROVISION, Provisioning, Reclaim, Rule, Toleration,
    TolerationOperator, VolumeMode,
};
pub use unfit::LayoutError;
pub use value_filter::{FilterSection, VALUE_FILTERS, ValueCheck, ValueFilter, ValueKind};
pub use wipe::{NotWiped, may_wipe};
