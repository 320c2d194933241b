//! Writes to an object in the state that was seen: the first to change it wins, and the other looks again.

use std::fmt::Debug;

use k8s_openapi::NamespaceResourceScope;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, Resource, ResourceExt as _};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::operator::api_server::client::within;
use crate::operator::api_server::error::OperatorError;

/// The outcome of a write.
#[derive(Debug)]
pub enum Write<T> {
    Done(T),
    /// Somebody else was first, or the object is gone: look again.
    Changed,
}

impl<T> Write<T> {
    pub fn of(answer: Result<T, OperatorError>) -> Result<Self, OperatorError> {
        match answer {
            Ok(done) => Ok(Self::Done(done)),
            Err(error) if error.is_conflict() || error.is_not_found() => Ok(Self::Changed),
            Err(error) => Err(error),
        }
    }

    pub fn map<U>(self, with: impl FnOnce(T) -> U) -> Write<U> {
        match self {
            Self::Done(done) => Write::Done(with(done)),
            Self::Changed => Write::Changed,
        }
    }
}

/// Changes an object in part. Only a change that has a resourceVersion or a UID is one of the state that was seen.
pub async fn patch<K: Clone + Debug + DeserializeOwned>(
    api: &Api<K>,
    name: &str,
    what: &str,
    change: Value,
) -> Result<Write<K>, OperatorError> {
    Write::of(within(what, api.patch(name, &PatchParams::default(), &Patch::Merge(change))).await)
}

/// The same for the status.
pub async fn patch_status<K: Clone + Debug + DeserializeOwned>(
    api: &Api<K>,
    name: &str,
    what: &str,
    change: Value,
) -> Result<Write<K>, OperatorError> {
    Write::of(within(what, api.patch_status(name, &PatchParams::default(), &Patch::Merge(change))).await)
}

/// Writes the status of an object in a namespace, whatever is there. An object that is gone has no status.
pub async fn write_status<K>(client: &Client, object: &K, status: &impl Serialize) -> Result<Write<K>, OperatorError>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned,
{
    let (namespace, name) = (object.namespace().unwrap_or_default(), object.name_any());
    let what = format!("writing the status of {} {namespace}/{name}", K::kind(&()));
    patch_status(&Api::namespaced(client.clone(), &namespace), &name, &what, json!({ "status": status })).await
}
