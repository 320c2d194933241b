//! One eviction. kube has `Api::evict`, but it writes `delete_options`, which the API server does not know: without its
//! preconditions, any pod of that name would be evicted.

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::Eviction;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{DeleteOptions, ObjectMeta, Preconditions};
use kube::api::PostParams;
use kube::{Api, Client};

use super::view::PodRef;
use crate::operator::api_server::client::within;
use crate::operator::api_server::error::OperatorError;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EvictionRun {
    Real,
    /// Whether it would be allowed now.
    Dry,
}

/// An error with the code 429: a PodDisruptionBudget does not allow it now. The client must not send
/// it again by itself.
pub async fn evict(client: &Client, pod: &PodRef, run: EvictionRun) -> Result<(), OperatorError> {
    let what = format!("evicting pod {}/{}", pod.namespace, pod.name);
    let params = PostParams { dry_run: run == EvictionRun::Dry, ..PostParams::default() };
    let api: Api<Pod> = Api::namespaced(client.clone(), pod.namespace.as_str());
    let eviction = eviction(pod);
    let asked = api.create_subresource("eviction", &pod.name, &params, &eviction);
    within::<serde_json::Value>(&what, asked).await.map(drop)
}

fn eviction(PodRef { namespace, name, uid, resource_version }: &PodRef) -> Eviction {
    let exactly = Preconditions { uid: Some(uid.to_string()), resource_version: Some(resource_version.clone()) };
    Eviction {
        delete_options: Some(DeleteOptions { preconditions: Some(exactly), ..DeleteOptions::default() }),
        metadata: ObjectMeta {
            name: Some(name.clone()),
            namespace: Some(namespace.to_string()),
            ..ObjectMeta::default()
        },
    }
}
