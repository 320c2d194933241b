//! Which claims a pod uses. Pure.

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;

/// The names of the claims that a pod uses; that of an ephemeral volume is made of the pod's name and its own.
pub(in crate::operator) fn claims(pod: &Pod) -> Vec<String> {
    let volumes = pod.spec.as_ref().and_then(|spec| spec.volumes.as_deref()).unwrap_or_default();
    let names = volumes.iter().filter_map(|volume| match (&volume.persistent_volume_claim, &volume.ephemeral) {
        (Some(claim), _) => Some(claim.claim_name.clone()),
        (None, Some(_)) => Some(format!("{}-{}", pod.name_any(), volume.name)),
        (None, None) => None,
    });
    names.collect()
}
