//! What distinguishes an object from the others of its kind: `namespace/name`, or only the name.

use std::borrow::Borrow;
use std::fmt;

use kube::ResourceExt;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObjectKey(String);

impl ObjectKey {
    pub fn of(object: &impl ResourceExt) -> Self {
        Self(match object.namespace() {
            Some(namespace) => format!("{namespace}/{}", object.name_any()),
            None => object.name_any(),
        })
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// So that a map can be asked with the name of an object that has no namespace.
impl Borrow<str> for ObjectKey {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
impl From<&str> for ObjectKey {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}
