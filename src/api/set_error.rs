//! A document that is not valid.

use std::fmt;

use super::strict::Problem;
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
    pub problems: Vec<Problem>,
}

impl fmt::Display for SetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
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
