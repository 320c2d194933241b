//! Who owns the objects of a kind: we do if the CRD that serves them is ours, else its maker does.
//!
//! Under another owner's CRD nothing is written: the Local Storage Operator writes the status of its sets and makes
//! their classes itself, and two writers of the same would never end. Agents say in their DevicePool why nothing is
//! claimed.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{Api, Client, Resource};
use tokio::sync::OnceCell;

use crate::api::crd::has_our_schema;
use crate::operator::api_server::client::within;
use crate::operator::api_server::error::OperatorError;

/// Read once in a pass, and only if something has to be written.
pub struct CrdOwnership {
    crds: Api<CustomResourceDefinition>,
    name: String,
    ours: OnceCell<bool>,
}

impl CrdOwnership {
    pub fn of<K: Resource<DynamicType = ()>>(client: &Client) -> Self {
        let name = format!("{}.{}", K::plural(&()), K::group(&()));
        Self { crds: Api::all(client.clone()), name, ours: OnceCell::new() }
    }

    pub async fn are_ours(&self) -> Result<bool, OperatorError> {
        let ask = async || {
            let what = format!("reading the CRD {}", self.name);
            Ok(has_our_schema(&within(&what, self.crds.get(&self.name)).await?))
        };
        self.ours.get_or_try_init(ask).await.copied()
    }
}
