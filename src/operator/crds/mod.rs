//! `localpool crds`: prints our CRDs, or installs them in a cluster.
//!
//! A CRD of another owner (the Local Storage Operator's LocalVolumeSet) is never replaced unless that was asked for;
//! our schema annotation on a CRD shows that it is ours.
//! `definition` and `owner` say what the cluster has under their names.

pub(in crate::operator) mod definition;
pub(in crate::operator) mod owner;

use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, ResourceExt as _};

use crate::api::crd::{self, SCHEMA_ANNOTATION};
use crate::operator::api_server::error::OperatorError;

/// The field manager of our CRDs.
const MANAGER: &str = "localpool-crds";
/// How many times, and at which interval, a new CRD is read until it serves.
const READS: u32 = 100;
const BETWEEN: Duration = Duration::from_millis(200);

/// What to do with a CRD that another owner has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ownership {
    Respect,
    Take,
}

/// All CRDs as YAML documents.
pub fn yaml() -> Result<String, serde_saphyr::ser::Error> {
    let mut text = String::new();
    for crd in crd::all() {
        text.push_str("---\n");
        text.push_str(&serde_saphyr::to_string(&crd)?);
    }
    Ok(text)
}

/// Applies each CRD and waits until the API server serves it. Returns a line for each.
pub async fn apply(client: Client, ownership: Ownership) -> Result<Vec<String>, OperatorError> {
    let api: Api<CustomResourceDefinition> = Api::all(client);
    let mut lines = Vec::new();
    let mut refused = Vec::new();
    for crd in crd::all() {
        let name = crd.name_any();
        let found = api.get_opt(&name).await.map_err(OperatorError::api(format!("reading the CRD {name}")))?;
        let is_others = found.as_ref().is_some_and(|found| !found.annotations().contains_key(SCHEMA_ANNOTATION));
        if is_others && ownership == Ownership::Respect {
            refused.push(name);
            continue;
        }
        let params = PatchParams::apply(MANAGER).force();
        let applied = api.patch(&name, &params, &Patch::Apply(&crd)).await;
        let applied = applied.map_err(OperatorError::api(format!("applying the CRD {name}")))?;
        wait_until_served(&api, &name).await?;
        let what = match found {
            None => "made",
            Some(found) if found.resource_version() == applied.resource_version() => "is up to date",
            Some(_) => "changed",
        };
        lines.push(format!("{name} {what}"));
    }
    match refused.is_empty() {
        true => Ok(lines),
        false => Err(OperatorError::Refused(format!(
            "{} belongs to another owner and was not changed, so nothing new will be claimed; the chart's value \
             crds.takeOwnership (--take-ownership) replaces it and keeps its objects",
            refused.join(", ")
        ))),
    }
}

async fn wait_until_served(api: &Api<CustomResourceDefinition>, name: &str) -> Result<(), OperatorError> {
    for _ in 0..READS {
        let found = api.get(name).await.map_err(OperatorError::api(format!("reading the CRD {name}")))?;
        let conditions = found.status.and_then(|status| status.conditions).unwrap_or_default();
        let holds = |kind: &str| conditions.iter().any(|c| c.type_ == kind && c.status == "True");
        if holds("Established") {
            return Ok(());
        }
        let names = conditions.iter().find(|c| c.type_ == "NamesAccepted" && c.status == "False");
        if let Some(clash) = names {
            let why = clash.message.clone().unwrap_or_default();
            return Err(OperatorError::Refused(format!("the API server does not accept the names of {name}: {why}")));
        }
        tokio::time::sleep(BETWEEN).await;
    }
    Err(OperatorError::Refused(format!("the API server did not serve {name} in time; run this again")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_is_yaml_that_reads_back_as_the_same_crds() {
        let text = yaml().expect("it can be written");
        let read: Vec<CustomResourceDefinition> = serde_saphyr::from_multiple(&text).expect("it can be read");
        assert_eq!(read, crd::all());
    }
}
