//! Where volumes are mounted for kubelet, in a document of the state directory: the next process of the agent misses
//! them there, too.
//!
//! Takes in the document of an earlier process, and gives the board what of it still counts; then takes in what the
//! board expects, and keeps it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::health::{Board, TargetsByVolume};
use crate::host::{Host, HostError, MachineStart, chain};

/// The name of the document in the state directory.
pub const TARGETS: &str = "targets.json";
/// The version that this code writes and reads.
const FORMAT: u32 = 1;

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct TargetsDocument {
    format: u32,
    #[serde(flatten)]
    start: MachineStart,
    targets: TargetsByVolume,
}

/// Why a document says nothing.
#[derive(Debug, thiserror::Error)]
enum TargetsDocumentError {
    #[error("it is damaged")]
    Damaged(#[from] serde_json::Error),
    #[error("it has format {0}, and this version of localpool reads format {FORMAT}")]
    Format(u32),
    #[error(transparent)]
    NoText(HostError),
}

impl TargetsDocument {
    fn parse(text: &str) -> Result<Self, TargetsDocumentError> {
        #[derive(Deserialize)]
        struct Head {
            format: u32,
        }
        let Head { format } = serde_json::from_str(text)?;
        if format != FORMAT {
            return Err(TargetsDocumentError::Format(format));
        }
        Ok(serde_json::from_str(text)?)
    }

    fn to_text(&self) -> String {
        serde_json::to_string(self).expect("a target is text: it came in a request")
    }
}

/// The document, and what is known of it.
pub struct KeptTargets {
    host: Arc<dyn Host>,
    board: Board,
    /// `None`: whether something is mounted still, the next process could not tell.
    start: Option<MachineStart>,
    /// Its text; `None`: it must be written, whatever it says.
    text: Option<String>,
}

impl KeptTargets {
    pub fn new(host: Arc<dyn Host>, board: Board) -> Self {
        let start = host.machine_start();
        Self { host, board, start, text: None }
    }

    /// Tells the board what an earlier process left. It reads the document, and looks at targets where nothing is
    /// mounted.
    pub fn recall(&mut self) -> Result<(), HostError> {
        let (text, read) = match self.host.state().load(TARGETS) {
            Ok(Some(text)) => (Some(text.clone()), TargetsDocument::parse(&text).map(Some)),
            Ok(None) => (self.start.clone().map(|start| document(start, TargetsByVolume::new())), Ok(None)),
            Err(error) if error.is_no_text() => (None, Err(TargetsDocumentError::NoText(error))),
            Err(error) => return Err(error),
        };
        if self.start.is_none() {
            tracing::warn!(
                document = TARGETS,
                "/proc does not say which start of the machine this is: nothing is kept"
            );
        }
        let left = match read {
            // After another start nothing is mounted, and nothing is missed.
            Ok(document) => document.filter(|document| Some(&document.start) == self.start.as_ref()),
            Err(error) => {
                let why = chain(&error);
                tracing::warn!(document = TARGETS, why, "where volumes were mounted before is not known");
                None
            }
        };
        let left = left.map(|document| self.still_there(document.targets)).unwrap_or_default();
        self.text = text;
        self.board.recall(left);
        Ok(())
    }

    /// Those whose path exists. What cannot be asked counts as there.
    fn still_there(&self, mut targets: TargetsByVolume) -> TargetsByVolume {
        let mounts = self.host.mounts();
        let mounted: BTreeSet<PathBuf> = match mounts.table() {
            Ok(table) => table.into_iter().map(|mount| mount.target).collect(),
            Err(error) => {
                tracing::warn!(error = %chain(&error), "which targets are left is not known: all of them count");
                return targets;
            }
        };
        // A mounted filesystem that hangs would not answer.
        let is_gone =
            |target: &Path| !mounted.contains(target) && mounts.has_target(target).is_ok_and(|is_there| !is_there);
        targets.values_mut().for_each(|targets| targets.retain(|target| !is_gone(target)));
        targets.retain(|_, targets| !targets.is_empty());
        targets
    }

    /// Keeps what the board expects now; gives its number. Durable when it returns; the same again is not written.
    pub fn keep(&mut self) -> Result<u64, HostError> {
        let (number, targets) = self.board.targets_to_keep();
        let Some(start) = self.start.clone() else { return Ok(number) };
        let text = document(start, targets);
        if self.text.as_ref() != Some(&text) {
            // If it fails, either may be there.
            self.text = None;
            self.host.state().store(TARGETS, &text)?;
            self.text = Some(text);
        }
        Ok(number)
    }
}

fn document(start: MachineStart, targets: TargetsByVolume) -> String {
    TargetsDocument { format: FORMAT, start, targets }.to_text()
}

#[cfg(test)]
mod tests;
