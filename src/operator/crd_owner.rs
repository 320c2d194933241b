//! Whose objects of a kind are: ours where the CRD that serves them is ours, else those of whoever made it.
//!
//! Under another owner's CRD nothing is written: the Local Storage Operator writes the status of its sets itself and makes
//! their classes, and two who write the same never end. Agents say in their DevicePool why nothing is claimed.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{Api, Client, Resource};
use tokio::sync::OnceCell;

use super::client::within;
use super::error::Error;
use crate::api::crd::has_our_schema;

/// Asked once in a pass, and only where something is to be written.
pub struct Whose {
    crds: Api<CustomResourceDefinition>,
    name: String,
    ours: OnceCell<bool>,
}

impl Whose {
    pub fn of<K: Resource<DynamicType = ()>>(client: &Client) -> Self {
        let name = format!("{}.{}", K::plural(&()), K::group(&()));
        Self { crds: Api::all(client.clone()), name, ours: OnceCell::new() }
    }

    pub async fn are_ours(&self) -> Result<bool, Error> {
        let ask = async || {
            let what = format!("reading the CRD {}", self.name);
            Ok(has_our_schema(&within(&what, self.crds.get(&self.name)).await?))
        };
        self.ours.get_or_try_init(ask).await.copied()
    }
}
