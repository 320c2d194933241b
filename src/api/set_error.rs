//! A document that is not valid.

use std::fmt;

use super::strict::Invalid;
use crate::device::SetName;

/// A document that is not a valid LocalVolumeSet or LocalVolume, with everything that is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetError {
    /// Counted from 1; empty documents count too.
    pub document: usize,
    /// The line of the file where the document begins, counted from 1.
    pub line: usize,
    /// As far as it could be read.
    pub name: Option<SetName>,
    pub problems: Invalid,
}

impl fmt::Display for SetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "document {} (line {}", self.document, self.line)?;
        if let Some(name) = &self.name {
            write!(f, ", {name}")?;
        }
        write!(f, "): {}", self.problems)
    }
}

impl std::error::Error for SetError {}

/// All documents of a file that are not valid; one line for each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetErrors(pub Vec<SetError>);

impl fmt::Display for SetErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, error) in self.0.iter().enumerate() {
            let sign = if index > 0 { "\n" } else { "" };
            write!(f, "{sign}{error}")?;
        }
        Ok(())
    }
}

impl std::error::Error for SetErrors {}
