//! The claim that a person asks about.

use crate::operator::api_server::error::OperatorError;
use crate::operator::volume::PvcName;

/// The claim as a person names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PvcAsked {
    /// `NAME`, or `NAMESPACE/NAME`.
    pub claim: String,
    pub namespace: Option<String>,
}

impl PvcAsked {
    /// `default` is the namespace of the kubeconfig's context.
    pub fn name(&self, default: &str) -> Result<PvcName, OperatorError> {
        let Self { claim, namespace } = self;
        let (namespace, name) = match (claim.split_once('/'), namespace) {
            (None, given) => (given.as_deref().unwrap_or(default), claim.as_str()),
            (Some((namespace, name)), None) => (namespace, name),
            (Some((namespace, name)), Some(given)) if namespace == given => (namespace, name),
            (Some((namespace, _)), Some(given)) => {
                return Err(OperatorError::Refused(format!(
                    "{claim} names the namespace {namespace}, and --namespace names {given}"
                )));
            }
        };
        format!("{namespace}/{name}").parse().map_err(|_| {
            OperatorError::Refused(format!("{claim:?} is not the name of a claim: use NAMESPACE/NAME, or NAME with -n"))
        })
    }
}
