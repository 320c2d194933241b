//! The name of a PersistentVolume, of whatever provisioner.

use crate::host::{name_type, text_type};

/// The name of a PersistentVolume.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PvName(String);

text_type!(PvName);
name_type!(PvName);
