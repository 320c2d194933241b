//! What the provisioner or the driver refuses however much room there is: nobody has to wait for that.

use k8s_openapi::api::core::v1::PersistentVolumeClaimSpec;
use k8s_openapi::api::storage::v1::StorageClass;

use super::answer::AnswerStep;
use crate::volume::TOPOLOGY_KEY;

/// The modes of a claim that one node can serve.
const ON_ONE_NODE: [&str; 2] = ["ReadWriteOnce", "ReadWriteOncePod"];
/// Parameters with this prefix are for the provisioner.
const OF_PROVISIONER: &str = "csi.storage.k8s.io/";

/// No node can serve the claim, however much room it has.
#[derive(Debug)]
pub struct Unserved {
    pub step: Option<AnswerStep>,
    pub why: String,
    pub next: String,
}

pub fn unserved<T>(step: Option<AnswerStep>, why: impl Into<String>, next: impl Into<String>) -> Result<T, Unserved> {
    Err(Unserved { step, why: why.into(), next: next.into() })
}

/// What a claim asks for that no local volume has.
pub fn of_claim(spec: &PersistentVolumeClaimSpec) -> Result<(), Unserved> {
    let mut modes = spec.access_modes.iter().flatten();
    if let Some(mode) = modes.find(|mode| !ON_ONE_NODE.contains(&mode.as_str())) {
        return unserved(
            None,
            format!("it asks for {mode}, and a local volume is used on one node only"),
            "make the claim again with accessModes [ReadWriteOnce]",
        );
    }
    let of_ref = spec.data_source_ref.as_ref().map(|source| (&source.kind, &source.name));
    let source = of_ref.or(spec.data_source.as_ref().map(|source| (&source.kind, &source.name)));
    if let Some((kind, name)) = source {
        return unserved(
            None,
            format!(
                "it is to begin with the data of {kind} {name} (dataSource), and localpool makes empty volumes only"
            ),
            "make the claim again without dataSource and dataSourceRef, and copy the data with a pod",
        );
    }
    if spec.selector.is_some() {
        return unserved(
            None,
            "it has a selector, and then no volume is made for it: it only gets a PersistentVolume that is there already",
            "make the claim again without selector",
        );
    }
    Ok(())
}

/// What a StorageClass says that the driver does not know.
pub fn of_class(name: &str, class: &StorageClass) -> Result<(), Unserved> {
    let again = format!("make StorageClass {name} again with that corrected: its fields cannot be changed");
    let parameters = class.parameters.iter().flatten();
    for (key, value) in parameters.filter(|(key, _)| !key.starts_with(OF_PROVISIONER)) {
        let wrong = match key.as_str() {
            "class" if value.is_empty() => "class is empty".to_owned(),
            "set" if value.split('/').count() != 2 => format!("set has to be NAMESPACE/NAME, and is {value:?}"),
            "class" | "set" => continue,
            other => format!("{other} is unknown: the known ones are class and set"),
        };
        return unserved(None, format!("the parameters of its StorageClass are refused: {wrong}"), again);
    }
    let terms = class.allowed_topologies.iter().flatten();
    let mut keys = terms.flat_map(|term| term.match_label_expressions.iter().flatten()).map(|wanted| &wanted.key);
    match keys.find(|key| *key != TOPOLOGY_KEY) {
        Some(key) => unserved(
            None,
            format!(
                "the allowedTopologies of its StorageClass have the key {key}, and localpool only knows {TOPOLOGY_KEY}"
            ),
            again,
        ),
        None => Ok(()),
    }
}
