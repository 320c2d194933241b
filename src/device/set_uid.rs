//! The UID of a set: that of its object, and for one class of a LocalVolume `<UID of the object>/<class>`.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Another set that has the name later has another one. Labels have it as its text.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SetUid(String);

impl SetUid {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<String> for SetUid {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl From<&str> for SetUid {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

/// With a text from outside, such as a field of an object.
impl PartialEq<&str> for SetUid {
    fn eq(&self, other: &&str) -> bool {
        self.0 == *other
    }
}

impl fmt::Display for SetUid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// Prints as a plain text.
impl fmt::Debug for SetUid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}
