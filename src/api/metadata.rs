//! The head of an object: its kind and its `metadata`, as far as a set or a LocalVolume needs them.
//!
//! Takes in the object or the field, gives out name, UID and age, and the spec to be read. An object that no API server
//! has seen gets a UID that is derived from its name, so that it is the same object at the next start.

use uuid::Uuid;

use serde_json::Value;

use super::strict::{Field, Object, Problems};
use crate::device::{SetName, label::SetRef};

/// The UUID namespace for the UIDs of objects that come from a file.
const FILE_UIDS: Uuid = Uuid::from_u128(0x6c6f6361_6c70_4f6f_8c6c_5e7d0c0de001);

/// Kubernetes' own fields that have no meaning here.
const IGNORED: [&str; 11] = [
    "annotations",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "finalizers",
    "generateName",
    "generation",
    "labels",
    "managedFields",
    "ownerReferences",
    "resourceVersion",
    "selfLink",
];

/// The content of `metadata`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metadata {
    pub set: SetRef,
    /// Seconds since the epoch; `None` if not given.
    pub created: Option<i64>,
}

/// Reads an object up to its spec; `None` if it has no spec, or is of another kind, which `otherwise` tells: more
/// problems about another kind's fields would not help.
pub fn read_object<'v, 'p>(
    value: &'v Value,
    (api_version, kind): (&str, &str),
    otherwise: &str,
    problems: &'p Problems,
) -> Option<(Option<Metadata>, Object<'v, 'p>)> {
    let mut object = Object::root(value, problems);
    let kind_field = object.field(&["kind"]).required();
    if kind_field.string().is_some_and(|other| other != kind) {
        kind_field.problem(otherwise);
        return None;
    }
    let version = object.field(&["apiVersion"]).required();
    if version.string().is_some_and(|other| other != api_version) {
        version.problem(format!("is not {api_version}"));
    }
    let metadata = read(object.field(&["metadata"]));
    let spec = object.field(&["spec"]).required().object();
    object.ignore(&["status"]);
    object.finish();
    spec.is_given().then_some((metadata, spec))
}

/// Reads the field; `None` if it has no usable name.
pub fn read(field: Field<'_, '_>) -> Option<Metadata> {
    let mut object = field.required().object();
    object.ignore(&IGNORED);
    let name_field = object.field(&["name"]).required();
    let name = name_field.string();
    let namespace_field = object.field(&["namespace"]);
    let namespace = namespace_field.string().unwrap_or("default");
    let uid_field = object.field(&["uid"]);
    let uid = uid_field.string();
    let created_field = object.field(&["creationTimestamp"]);
    let created = created_field.string().and_then(|text| {
        let seconds = rfc3339(text);
        if seconds.is_none() {
            created_field.problem(format!("{text:?} is not a time such as 2020-03-17T09:33:43Z"));
        }
        seconds
    });
    object.finish();

    let name = name?;
    if !is_dns_name(name, 253, '.') {
        name_field.problem(format!("{name:?} is not a name: use at most 253 lower case letters, digits, '-' and '.'"));
    }
    if !is_dns_name(namespace, 63, '-') {
        namespace_field
            .problem(format!("{namespace:?} is not a namespace: use at most 63 lower case letters, digits and '-'"));
    }
    if uid.is_some_and(|uid| uid.is_empty() || uid.len() > 128 || uid.contains(|c: char| !c.is_ascii_graphic())) {
        uid_field.problem("is not a UID");
    }
    let name = SetName::new(namespace, name);
    let from_name = || Uuid::new_v5(&FILE_UIDS, name.to_string().as_bytes()).to_string();
    let uid = uid.map_or_else(from_name, str::to_owned);
    Some(Metadata { set: SetRef::new(name, uid), created })
}

/// Whether this is a valid name of a Kubernetes object.
pub(super) fn is_object_name(name: &str) -> bool {
    is_dns_name(name, 253, '.')
}

/// Lower case letters, digits, `-` and `also`; a letter or digit at both ends of each part.
fn is_dns_name(name: &str, most: usize, also: char) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let label =
        |part: &str| part.starts_with(plain) && part.ends_with(plain) && part.chars().all(|c| plain(c) || c == '-');
    name.len() <= most && if also == '.' { name.split('.').all(label) } else { label(name) }
}

/// Seconds since the epoch of `2020-03-17T09:33:43Z`, with an optional fraction or offset.
fn rfc3339(text: &str) -> Option<i64> {
    // The crate also accepts a space instead of the `T`, and Kubernetes does not.
    let is_parted = matches!(text.as_bytes().get(10), Some(b'T' | b't'));
    let time = is_parted.then(|| text.parse::<jiff::Timestamp>().ok())??;
    Some(time.as_second())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::strict::Problems;
    use super::*;

    fn parse(metadata: &Value) -> (Option<Metadata>, Vec<String>) {
        let (value, problems) = (json!({"metadata": metadata}), Problems::default());
        let mut object = Object::root(&value, &problems);
        let read = read(object.field(&["metadata"]));
        object.finish();
        (read, problems.into_vec().iter().map(ToString::to_string).collect())
    }

    #[test]
    fn a_uid_follows_from_the_name_and_only_from_it() {
        let uid = |metadata: Value| parse(&metadata).0.unwrap().set.uid;
        let own = uid(json!({"name": "a"}));
        assert_eq!(own, uid(json!({"name": "a", "namespace": "default", "labels": {"x": "y"}})));
        assert_ne!(own, uid(json!({"name": "a", "namespace": "other"})));
        assert_ne!(own, uid(json!({"name": "b"})));
        assert_eq!(own, "01fe970d-93d4-5875-a0ab-3b388c2c7190", "labels on disks hold it: it must never change");
        assert_eq!(uid(json!({"name": "a", "uid": "0f0e"})), "0f0e");
    }

    #[test]
    fn times_are_read_as_seconds_since_the_epoch() {
        for (text, seconds) in [
            ("1970-01-01T00:00:00Z", 0),
            ("2020-03-17T09:33:43Z", 1_584_437_623),
            ("2020-03-17T10:33:43+01:00", 1_584_437_623),
            ("2020-03-17T09:33:43.123456Z", 1_584_437_623),
            ("2000-02-29T23:59:59-00:30", 951_870_599),
            ("1969-12-31T23:59:59Z", -1),
            ("2100-03-01T00:00:00Z", 4_107_542_400),
        ] {
            assert_eq!(rfc3339(text), Some(seconds), "{text}");
        }
        for text in [
            "",
            "2020-03-17",
            "2020-03-17 09:33:43Z",
            "2020-3-17T09:33:43Z",
            "2021-02-29T00:00:00Z",
            "2020-13-01T00:00:00Z",
            "2020-03-17T24:00:00Z",
            "2020-03-17T09:33:43",
            "2020-03-17T09:33:43.Z",
            "2020-03-17T09:33:43+1:00",
            "2020-03-17T09:33:43Zé",
            "20é0-03-17T09:33:43Z",
        ] {
            assert_eq!(rfc3339(text), None, "{text}");
        }
    }

    #[test]
    fn names_that_kubernetes_would_refuse_are_refused() {
        for name in ["", "A", "a_b", "-a", "a-", "a..b", "../x", "a/b", &"a".repeat(254)] {
            let (_, problems) = parse(&json!({"name": name}));
            assert!(problems.iter().any(|problem| problem.contains("is not a name")), "{name}: {problems:?}");
        }
        for namespace in ["", "localStorage", "a.b", &"a".repeat(64)] {
            let (_, problems) = parse(&json!({"name": "a", "namespace": namespace}));
            assert!(problems.iter().any(|problem| problem.contains("is not a namespace")), "{namespace}: {problems:?}");
        }
        assert_eq!(parse(&json!({})).0, None);
        assert_eq!(
            parse(&json!({"nmae": "a"})).1,
            ["metadata.name: is required", "metadata.nmae: unknown field; did you mean name?"]
        );
        assert_eq!(parse(&json!({"name": "a", "uid": "a b"})).1, ["metadata.uid: is not a UID"]);
        assert!(parse(&json!({"name": "a", "creationTimestamp": "yesterday"})).1[0].contains("is not a time"));
        assert_eq!(
            parse(&json!({"name": "a.b-c", "namespace": "x", "creationTimestamp": null})).1,
            Vec::<String>::new()
        );
    }
}
