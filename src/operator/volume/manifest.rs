//! `localpool volume pv`: the PersistentVolume and the claim of a volume that no PersistentVolume names, to apply them.
//!
//! Takes in the PoolVolume and what the person wants; gives out YAML. Changes nothing.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};
use std::str::FromStr;

use k8s_openapi::api::core::v1::{
    CSIPersistentVolumeSource, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, ObjectReference,
    PersistentVolume, PersistentVolumeClaim, PersistentVolumeClaimSpec, PersistentVolumeSpec, VolumeNodeAffinity,
    VolumeResourceRequirements,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Client, ResourceExt as _};

use super::objects::VolumeApi;
use crate::api::crd::{Phase, PoolVolume};
use crate::claim::VolumeMode;
use crate::operator::api_server::client::is_object_name;
use crate::operator::api_server::error::OperatorError;
use crate::operator::bytes::unsigned;
use crate::operator::kube_volume::{LivePersistentVolumes, PROVISIONED_BY};
use crate::operator::pool_volume::{filesystem, phase};
use crate::volume::{DRIVER_NAME, TOPOLOGY_KEY, VolumeId};

/// What a person wants to have.
#[derive(Clone, Debug)]
pub struct ManifestRequest {
    pub volume: VolumeId,
    /// The claim that is to have it; `None`: the one that had it last.
    pub claim: Option<PvcName>,
    /// `None`: the class that the volume was made for.
    pub storage_class: Option<String>,
    /// Such as `ReadWriteOnce`.
    pub access_mode: String,
}

/// The name of a claim: `namespace/name` as text.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PvcName {
    namespace: String,
    name: String,
}

impl PvcName {
    pub(in crate::operator) fn namespace(&self) -> &str {
        &self.namespace
    }

    pub(in crate::operator) fn name(&self) -> &str {
        &self.name
    }

    /// The line that deletes it.
    pub(in crate::operator) fn deletion(&self) -> String {
        format!("kubectl -n {} delete pvc {}", self.namespace, self.name)
    }
}

impl Display for PvcName {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not NAMESPACE/NAME")]
pub struct NoPvcName(String);

impl FromStr for PvcName {
    type Err = NoPvcName;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once('/') {
            Some((namespace, name)) if is_object_name(namespace) && is_object_name(name) => {
                Ok(Self { namespace: namespace.to_owned(), name: name.to_owned() })
            }
            _ => Err(NoPvcName(text.to_owned())),
        }
    }
}

/// Both objects as YAML documents.
pub async fn manifest(client: Client, request: ManifestRequest) -> Result<String, OperatorError> {
    let objects = VolumeApi::new(client.clone());
    let id = request.volume;
    let Some(object) = objects.volume(id).await? else {
        return Err(OperatorError::Refused(format!("there is no PoolVolume {id}")));
    };
    if let Some(persistent) = LivePersistentVolumes::new(client).naming(&id.to_string()).await? {
        let name = persistent.name_any();
        return Err(OperatorError::Refused(format!("PersistentVolume {name} names volume {id} already")));
    }
    let (persistent, claim) = documents(&object, request).map_err(|error| OperatorError::Refused(error.to_string()))?;
    let yaml = |document: Result<String, serde_saphyr::ser::Error>| {
        document.map_err(|error| OperatorError::Refused(format!("the manifest cannot be written: {error}")))
    };
    let (persistent, claim) = (yaml(serde_saphyr::to_string(&persistent))?, yaml(serde_saphyr::to_string(&claim))?);
    Ok(format!("---\n{persistent}---\n{claim}"))
}

/// Why there is no manifest.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
enum ManifestError {
    #[error("volume {0} is not Ready or Found: `kubectl get poolvolume {0} -o yaml` says why")]
    NotThere(String),
    #[error("its name {0:?} cannot be the name of a PersistentVolume: write one by hand, with the volumeHandle {1}")]
    Name(String, String),
    #[error("it is not known which claim had volume {0}: name one with --claim NAMESPACE/NAME")]
    NoClaim(String),
    #[error("it is not known which class volume {0} was made for: name one with --storage-class")]
    NoClass(String),
}

fn documents(
    object: &PoolVolume,
    request: ManifestRequest,
) -> Result<(PersistentVolume, PersistentVolumeClaim), ManifestError> {
    let ManifestRequest { volume: _, claim, storage_class, access_mode } = request;
    let (id, spec) = (object.name_any(), &object.spec);
    let size: Option<u64> = object.status.as_ref().and_then(|status| status.size).map(unsigned);
    let size = size.filter(|_| matches!(phase(object), Phase::Ready | Phase::Found));
    let size = size.ok_or_else(|| ManifestError::NotThere(id.clone()))?;
    if !is_object_name(&spec.volume_name) {
        return Err(ManifestError::Name(spec.volume_name.clone(), id));
    }
    let claim = claim.or_else(|| object.claim()?.parse().ok());
    let PvcName { namespace, name } = claim.ok_or_else(|| ManifestError::NoClaim(id.clone()))?;
    let class = storage_class.or_else(|| spec.parameters.get("class").cloned());
    let class = class.ok_or_else(|| ManifestError::NoClass(id.clone()))?;
    let wanted = ManifestTerms { namespace, name, class, access_mode, size };
    Ok((persistent_volume(object, &wanted), claim_of(object, &wanted)))
}

/// What both objects say.
struct ManifestTerms {
    namespace: String,
    name: String,
    class: String,
    access_mode: String,
    size: u64,
}

impl ManifestTerms {
    fn storage(&self) -> BTreeMap<String, Quantity> {
        BTreeMap::from([("storage".to_owned(), Quantity(self.size.to_string()))])
    }
}

fn mode(object: &PoolVolume) -> Option<String> {
    let mode = match object.spec.volume_mode {
        VolumeMode::Block => "Block",
        VolumeMode::Filesystem => "Filesystem",
    };
    Some(mode.to_owned())
}

fn persistent_volume(object: &PoolVolume, wanted: &ManifestTerms) -> PersistentVolume {
    let spec = &object.spec;
    let term = NodeSelectorRequirement {
        key: TOPOLOGY_KEY.to_owned(),
        operator: "In".to_owned(),
        values: Some(vec![spec.node.to_string()]),
    };
    let term = NodeSelectorTerm { match_expressions: Some(vec![term]), ..NodeSelectorTerm::default() };
    PersistentVolume {
        metadata: ObjectMeta {
            name: Some(spec.volume_name.clone()),
            annotations: Some(BTreeMap::from([(PROVISIONED_BY.to_owned(), DRIVER_NAME.to_owned())])),
            ..ObjectMeta::default()
        },
        spec: Some(PersistentVolumeSpec {
            access_modes: Some(vec![wanted.access_mode.clone()]),
            capacity: Some(wanted.storage()),
            claim_ref: Some(ObjectReference {
                namespace: Some(wanted.namespace.clone()),
                name: Some(wanted.name.clone()),
                ..ObjectReference::default()
            }),
            csi: Some(CSIPersistentVolumeSource {
                driver: DRIVER_NAME.to_owned(),
                volume_handle: object.name_any(),
                fs_type: filesystem(object).filter(|_| spec.volume_mode == VolumeMode::Filesystem).map(str::to_owned),
                ..CSIPersistentVolumeSource::default()
            }),
            node_affinity: Some(VolumeNodeAffinity {
                required: Some(NodeSelector { node_selector_terms: vec![term] }),
            }),
            // What was kept stays until somebody says otherwise.
            persistent_volume_reclaim_policy: Some("Retain".to_owned()),
            storage_class_name: Some(wanted.class.clone()),
            volume_mode: mode(object),
            ..PersistentVolumeSpec::default()
        }),
        status: None,
    }
}

fn claim_of(object: &PoolVolume, wanted: &ManifestTerms) -> PersistentVolumeClaim {
    let (namespace, name) = (Some(wanted.namespace.clone()), Some(wanted.name.clone()));
    let requests = Some(wanted.storage());
    PersistentVolumeClaim {
        metadata: ObjectMeta { name, namespace, ..ObjectMeta::default() },
        spec: Some(PersistentVolumeClaimSpec {
            access_modes: Some(vec![wanted.access_mode.clone()]),
            resources: Some(VolumeResourceRequirements { requests, ..VolumeResourceRequirements::default() }),
            storage_class_name: Some(wanted.class.clone()),
            volume_mode: mode(object),
            volume_name: Some(object.spec.volume_name.clone()),
            ..PersistentVolumeClaimSpec::default()
        }),
        status: None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::handle;
    use super::super::sample::in_phase;
    use super::*;
    use crate::api::crd::CLAIM_ANNOTATION;

    fn request(claim: Option<&str>, class: Option<&str>) -> ManifestRequest {
        ManifestRequest {
            volume: VolumeId::of_name("pvc-1"),
            claim: claim.map(|text| text.parse().expect("a name")),
            storage_class: class.map(str::to_owned),
            access_mode: "ReadWriteOnce".to_owned(),
        }
    }

    #[test]
    fn the_manifest_names_the_volume_its_node_its_size_and_the_claim_and_keeps_the_data() {
        let object = in_phase(Phase::Found);
        let (persistent, claim) = documents(&object, request(Some("d/data"), None)).expect("made");
        let order = handle::order(&persistent.clone().into()).expect("our own reader understands it");
        assert_eq!((order.node.to_string(), order.volume_name.as_str()), ("n".to_owned(), "pvc-1"));
        let spec = persistent.spec.expect("set");
        assert_eq!(spec.persistent_volume_reclaim_policy.as_deref(), Some("Retain"));
        assert_eq!(
            spec.csi.map(|csi| (csi.volume_handle, csi.fs_type)),
            Some((object.name_any(), Some("ext4".into())))
        );
        assert_eq!(spec.capacity.expect("set")["storage"].0, (1u64 << 30).to_string());
        let reference = spec.claim_ref.expect("set");
        assert_eq!((reference.namespace.as_deref(), reference.name.as_deref()), (Some("d"), Some("data")));
        let wanted = claim.spec.expect("set");
        assert_eq!(wanted.volume_name.as_deref(), Some("pvc-1"));
        assert_eq!(
            (wanted.storage_class_name.as_deref(), spec.storage_class_name.as_deref()),
            (Some("fast"), Some("fast"))
        );
    }

    #[test]
    fn the_claim_that_had_it_last_is_the_default_and_what_is_not_known_has_to_be_named() {
        let mut object = in_phase(Phase::Ready);
        let id = object.name_any();
        assert_eq!(documents(&object, request(None, None)).err(), Some(ManifestError::NoClaim(id.clone())));
        object.metadata.annotations = Some([(CLAIM_ANNOTATION.to_owned(), "d/had".to_owned())].into());
        let (_, claim) = documents(&object, request(None, None)).expect("made");
        assert_eq!((claim.namespace().as_deref(), claim.name_any().as_str()), (Some("d"), "had"));
        object.spec.parameters.clear();
        assert_eq!(documents(&object, request(None, None)).err(), Some(ManifestError::NoClass(id.clone())));
        assert!(documents(&object, request(None, Some("slow"))).is_ok());
        for phase in [Phase::Pending, Phase::Accepted, Phase::Rejected, Phase::Failed, Phase::Deleting] {
            let made = documents(&in_phase(phase), request(Some("d/x"), None));
            assert_eq!(made.err(), Some(ManifestError::NotThere(id.clone())), "{phase:?}");
        }
        object.spec.volume_name = "Not A Name".to_owned();
        let made = documents(&object, request(None, Some("slow")));
        assert!(matches!(made, Err(ManifestError::Name(_, _))), "{made:?}");
    }
}
