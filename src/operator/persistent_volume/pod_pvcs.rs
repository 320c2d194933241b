//! The pods of a namespace, and which claims each uses.

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, Volume};
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt as _};

use crate::operator::api_server::client::{find_in_pages, within};
use crate::operator::api_server::error::OperatorError;
use crate::operator::api_server::object_key::ObjectName;

/// How many pods one answer of the API server holds: a namespace may have thousands. Only this many are kept at a time.
const PAGE: u32 = 500;

/// Reads the pods of a namespace as they are now: all of them, or an error.
pub(in crate::operator) async fn each_pod(
    client: &Client,
    namespace: &str,
    mut take: impl FnMut(Pod),
) -> Result<(), OperatorError> {
    let (pods, what): (Api<Pod>, _) =
        (Api::namespaced(client.clone(), namespace), format!("listing the pods of {namespace}"));
    let fetch = async |params| within(&what, pods.list(&params)).await;
    let take = |page: Vec<Pod>| {
        page.into_iter().for_each(&mut take);
        None::<()>
    };
    find_in_pages(ListParams::default().limit(PAGE), fetch, take).await.map(drop)
}

/// The names of the claims that a pod uses.
pub(in crate::operator) fn pvc_names(pod: &Pod) -> Vec<ObjectName<PersistentVolumeClaim>> {
    let volumes = pod.spec.as_ref().and_then(|spec| spec.volumes.as_deref()).unwrap_or_default();
    pvc_names_of(&pod.name_any(), volumes)
}

/// The same of a pod of this name with these volumes; that of an ephemeral volume is made of the pod's name and its own.
pub(in crate::operator) fn pvc_names_of(pod: &str, volumes: &[Volume]) -> Vec<ObjectName<PersistentVolumeClaim>> {
    let names = volumes.iter().filter_map(|volume| match (&volume.persistent_volume_claim, &volume.ephemeral) {
        (Some(pvc), _) => Some(pvc.claim_name.clone()),
        (None, Some(_)) => Some(format!("{pod}-{}", volume.name)),
        (None, None) => None,
    });
    names.map(ObjectName::from).collect()
}
