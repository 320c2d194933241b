//! What a set is called: `namespace/name`.
//!
//! A LocalVolumeSet has the name of its object. Each class of a LocalVolume is a set, too, and is called
//! `namespace/<name of the object>/<class>`.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The namespace and the name of a set. Another set can have it later: the owner of a disk is a
/// [`super::label::SetRef`], which has the UID as well.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SetName {
    pub namespace: String,
    pub name: String,
}

impl SetName {
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }

    /// From `namespace/name`. A text without a slash has no namespace, so no set has that name.
    pub fn parse(text: &str) -> Self {
        let (namespace, name) = text.split_once('/').unwrap_or(("", text));
        Self::new(namespace, name)
    }

    /// The set of one class of the LocalVolume of this name.
    pub fn of_class(&self, class: &str) -> Self {
        Self::new(&self.namespace, format!("{}/{class}", self.name))
    }

    /// Whether this is a class of the LocalVolume `object`.
    pub fn is_class_of(&self, object: &SetName) -> bool {
        let class = self.name.strip_prefix(&object.name).and_then(|rest| rest.strip_prefix('/'));
        self.namespace == object.namespace && class.is_some()
    }
}

impl fmt::Display for SetName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_read_as_it_is_written_and_one_without_a_namespace_is_no_sets() {
        for text in ["storage/fast", "storage/lv/class"] {
            assert_eq!(SetName::parse(text).to_string(), text);
        }
        assert_eq!(SetName::parse("storage/lv/class"), SetName::new("storage", "lv/class"));
        assert_ne!(SetName::parse("fast"), SetName::new("default", "fast"));
        assert_eq!(SetName::parse("").namespace, "");
    }

    #[test]
    fn a_class_of_a_local_volume_is_told_from_a_set_whose_name_begins_alike() {
        let volume = SetName::new("storage", "lv");
        assert_eq!(volume.of_class("fast"), SetName::new("storage", "lv/fast"));
        assert!(volume.of_class("fast").is_class_of(&volume));
        for other in [SetName::new("storage", "lv-2/fast"), SetName::new("other", "lv/fast"), volume.clone()] {
            assert!(!other.is_class_of(&volume), "{other}");
        }
    }
}
