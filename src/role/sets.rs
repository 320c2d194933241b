//! Sets that a person wrote: a file, or documents that a command sends to its agent.

use std::error::Error;
use std::path::Path;

use anyhow::{Context as _, Result};

use crate::api::{Node, SetError, SetErrors, parse_sets};
use crate::claim::Rule;
use crate::device::NodeName;

/// The documents of a file; `-` is standard input.
#[allow(clippy::disallowed_methods, reason = "wiring: the file that a person named, read once")]
pub fn documents(file: &Path) -> Result<String> {
    match file.as_os_str() == "-" {
        true => std::io::read_to_string(std::io::stdin()).context("standard input cannot be read"),
        false => {
            std::fs::read_to_string(file).with_context(|| format!("the file of sets {} cannot be read", file.display()))
        }
    }
}

/// Each set for a node of that name, and what is wrong with the others.
pub fn read(documents: &str, node: &NodeName) -> (Vec<Rule>, Vec<SetError>) {
    parse_sets(documents, &Node::standalone(node.clone()))
}

/// All sets, or what is wrong with those that are not valid.
pub fn read_all(documents: &str, node: &NodeName) -> Result<Vec<Rule>, SetErrors> {
    match read(documents, node) {
        (rules, errors) if errors.is_empty() => Ok(rules),
        (_, errors) => Err(SetErrors(errors)),
    }
}

/// The same for the agent's service, which knows nothing of the objects that users write.
pub fn read_for_service(documents: &str, node: &NodeName) -> Result<Vec<Rule>, Box<dyn Error + Send + Sync>> {
    Ok(read_all(documents, node)?)
}
