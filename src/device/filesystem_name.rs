//! What a person calls a filesystem that they mounted: its key in the DevicePool.

use serde::{Deserialize, Serialize};

use crate::host::{name_type, text_type};

/// The name of a named filesystem, written as its text.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FilesystemName(String);

text_type!(FilesystemName);
name_type!(FilesystemName);
