//! The objects that a user writes, read strictly and turned into the types of `device`.
//!
//! Takes in YAML, gives out [`Rule`](crate::claim::rule::Rule)s and one error for each document that is
//! not one. Nothing is guessed: an unknown field, a second spelling with another value or a quantity out
//! of range stops that document, and only it.

pub mod crd;
pub mod documents;
pub mod local_volume;
pub mod local_volume_discovery;
pub mod local_volume_set;
pub mod metadata;
pub mod node_selector;
pub mod quantity;
pub mod strict;

pub use local_volume::parse_volume;
pub use local_volume_discovery::{Discovery, parse_discovery};
pub use local_volume_set::{parse_set, parse_sets};
pub use node_selector::Node;

use strict::Problem;

/// A document that is not a valid LocalVolumeSet or LocalVolume, with all that is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetError {
    /// Counted from 1, empty documents too.
    pub document: usize,
    /// The line of the file where the document begins, counted from 1.
    pub line: usize,
    /// `namespace/name`, as far as it could be read.
    pub name: Option<String>,
    pub problems: Vec<Problem>,
}

impl std::fmt::Display for SetError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "document {} (line {}", self.document, self.line)?;
        if let Some(name) = &self.name {
            write!(f, ", {name}")?;
        }
        f.write_str("): ")?;
        for (index, problem) in self.problems.iter().enumerate() {
            let sign = if index > 0 { "; " } else { "" };
            write!(f, "{sign}{problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for SetError {}
