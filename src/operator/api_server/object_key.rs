//! What distinguishes an object from the others of its kind: its key, its name, its UID.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::fmt;
use std::marker::PhantomData;

use kube::ResourceExt;
use serde::{Deserialize, Serialize};

/// `namespace/name`, or only the name of an object without a namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObjectKey(String);

impl ObjectKey {
    pub fn of(object: &impl ResourceExt) -> Self {
        match object.namespace() {
            Some(namespace) => Self::new(&namespace, &object.name_any()),
            None => Self(object.name_any()),
        }
    }

    pub fn new(namespace: &str, name: &str) -> Self {
        Self(format!("{namespace}/{name}"))
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

/// The UID of an object of the kind `K`: another object of that name has another one. Written as its text.
#[derive(Serialize, Deserialize)]
#[serde(transparent, bound = "")]
pub struct Uid<K>(String, PhantomData<fn() -> K>);

/// The name of an object of the kind `K`, without its namespace. Written as its text.
#[derive(Serialize, Deserialize)]
#[serde(transparent, bound = "")]
pub struct ObjectName<K>(String, PhantomData<fn() -> K>);

impl<K: ResourceExt> Uid<K> {
    /// `None`: the API server has not made the object yet.
    pub fn of(object: &K) -> Option<Self> {
        object.uid().map(Self::from)
    }
}

impl<K: ResourceExt> ObjectName<K> {
    pub fn of(object: &K) -> Self {
        object.name_any().into()
    }
}

impl<K> ObjectName<K> {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Makes a struct of one `String` for each kind a text of its own. The kind is no value, so nothing is asked of it.
macro_rules! text_of_kind {
    ($name:ident) => {
        impl<K> From<String> for $name<K> {
            fn from(text: String) -> Self {
                Self(text, PhantomData)
            }
        }

        impl<K> From<&str> for $name<K> {
            fn from(text: &str) -> Self {
                text.to_owned().into()
            }
        }

        impl<K> Clone for $name<K> {
            fn clone(&self) -> Self {
                self.0.clone().into()
            }
        }

        impl<K> Default for $name<K> {
            fn default() -> Self {
                String::new().into()
            }
        }

        impl<K> PartialEq for $name<K> {
            fn eq(&self, other: &Self) -> bool {
                self.0 == other.0
            }
        }

        impl<K> Eq for $name<K> {}

        impl<K> PartialOrd for $name<K> {
            fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
                Some(self.cmp(other))
            }
        }

        impl<K> Ord for $name<K> {
            fn cmp(&self, other: &Self) -> Ordering {
                self.0.cmp(&other.0)
            }
        }

        /// With a text from outside, such as a field of an object.
        impl<K> PartialEq<str> for $name<K> {
            fn eq(&self, other: &str) -> bool {
                self.0 == other
            }
        }

        impl<K> PartialEq<&str> for $name<K> {
            fn eq(&self, other: &&str) -> bool {
                self.0 == *other
            }
        }

        impl<K> fmt::Display for $name<K> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }

        /// Prints as a plain text.
        impl<K> fmt::Debug for $name<K> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&self.0, f)
            }
        }
    };
}

text_of_kind!(Uid);
text_of_kind!(ObjectName);

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{Node, Pod};
    use serde_json::json;

    use super::*;

    #[test]
    fn an_object_is_known_by_its_namespace_its_name_and_its_uid() {
        let pod: Pod =
            serde_json::from_value(json!({"metadata": {"namespace": "d", "name": "a", "uid": "u"}})).expect("a pod");
        assert_eq!(ObjectKey::of(&pod), ObjectKey::new("d", "a"));
        assert_eq!((ObjectName::of(&pod).as_str(), Uid::of(&pod)), ("a", Some("u".into())));
        let node: Node = serde_json::from_value(json!({"metadata": {"name": "n"}})).expect("a node");
        assert_eq!((ObjectKey::of(&node).as_str(), Uid::of(&node)), ("n", None));
    }

    #[test]
    fn a_uid_and_a_name_are_written_as_their_text() {
        let (uid, name): (Uid<Pod>, ObjectName<Pod>) = ("u".into(), "a".into());
        assert_eq!(json!([uid, name]), json!(["u", "a"]));
        assert_eq!(serde_json::from_value::<Uid<Pod>>(json!("u")).expect("a text"), uid);
        assert_eq!(serde_json::from_value::<ObjectName<Pod>>(json!("a")).expect("a text"), name);
        assert_eq!((format!("{name:>3}"), format!("{uid:?}")), ("  a".to_owned(), "\"u\"".to_owned()));
    }
}
