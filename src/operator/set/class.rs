//! The StorageClass of each set and of each class of a LocalVolume: created if none has that name, not touched if it
//! belongs to another provisioner. Pure.

use std::collections::BTreeMap;

use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;

use crate::operator::api_server::object_key::ObjectName;
use crate::volume::DRIVER_NAME;

/// Ties a class to the set that it was made for.
const OWNER: &str = "local.storage.openshift.io/owner-";
const MANAGED_BY: (&str, &str) = ("app.kubernetes.io/managed-by", "localpool");
/// The most bytes of a label's value.
const LABEL: usize = 63;

/// The name of a StorageClass.
pub type ClassName = ObjectName<StorageClass>;

/// The state of the class of a set.
#[derive(Clone, Debug, PartialEq)]
pub enum Class {
    Missing,
    /// Its provisioner is our driver, whoever made it.
    Ours,
    OtherProvisioner {
        provisioner: String,
    },
    /// The API server refuses it, for this reason.
    Refused(String),
}

pub fn class_of(found: Option<&StorageClass>) -> Class {
    match found {
        None => Class::Missing,
        Some(class) if class.provisioner == DRIVER_NAME => Class::Ours,
        Some(class) => Class::OtherProvisioner { provisioner: class.provisioner.clone() },
    }
}

/// The class that a set or a LocalVolume gets.
pub fn make<K: Resource<DynamicType = ()>>(name: &ClassName, object: &K) -> StorageClass {
    let of = |text: &Option<String>| text.clone().unwrap_or_default();
    let owner = [
        ("kind", K::kind(&()).into_owned()),
        ("name", of(&object.meta().name)),
        ("namespace", of(&object.meta().namespace)),
    ];
    // A name may be too long for a label; then the class is tied to nothing.
    let owner = owner.into_iter().filter(|(_, value)| value.len() <= LABEL);
    let mut labels: BTreeMap<String, String> = owner.map(|(key, value)| (format!("{OWNER}{key}"), value)).collect();
    labels.insert(MANAGED_BY.0.to_owned(), MANAGED_BY.1.to_owned());
    StorageClass {
        metadata: ObjectMeta { name: Some(name.to_string()), labels: Some(labels), ..ObjectMeta::default() },
        provisioner: DRIVER_NAME.to_owned(),
        parameters: Some(BTreeMap::from([("class".to_owned(), name.to_string())])),
        reclaim_policy: Some("Delete".to_owned()),
        volume_binding_mode: Some("WaitForFirstConsumer".to_owned()),
        allow_volume_expansion: Some(true),
        ..StorageClass::default()
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample::{local_volume, set};
    use super::*;

    #[test]
    fn a_missing_class_leads_to_our_driver_and_says_whose_it_is() {
        let class = make(&"fast".into(), &set("disks", "fast"));
        assert_eq!(class_of(Some(&class)), Class::Ours);
        assert_eq!(class.parameters.as_ref().and_then(|all| all.get("class")).map(String::as_str), Some("fast"));
        assert_eq!(class.volume_binding_mode.as_deref(), Some("WaitForFirstConsumer"));
        let labels = class.metadata.labels.expect("labels");
        for (key, value) in [("kind", "LocalVolumeSet"), ("name", "disks"), ("namespace", "storage")] {
            assert_eq!(labels[&format!("local.storage.openshift.io/owner-{key}")], value);
        }
        let labels = make(&"fast".into(), &local_volume("lv", &[])).metadata.labels.expect("labels");
        assert_eq!(labels["local.storage.openshift.io/owner-kind"], "LocalVolume");
        let long = make(&"fast".into(), &set(&"x".repeat(64), "fast")).metadata.labels.expect("labels");
        assert!(!long.contains_key("local.storage.openshift.io/owner-name"));
    }

    #[test]
    fn another_provisioners_class_is_told_from_ours() {
        let other = StorageClass { provisioner: "kubernetes.io/no-provisioner".to_owned(), ..StorageClass::default() };
        assert_eq!(class_of(Some(&other)), Class::OtherProvisioner { provisioner: other.provisioner.clone() });
        assert_eq!(class_of(None), Class::Missing);
    }
}
