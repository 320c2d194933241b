//! The CRDs under which sets and LocalVolumes are written: what they are, and whether they have changed.
//!
//! Takes in a client; gives out [`Definitions`]. Another owner's CRD prunes fields that it does not know, and a pruned
//! field may have kept a disk out (`dryRun`). For a minute after a CRD was replaced, the API server still decodes what
//! a watch gives by the CRD that the watch began with: so what was seen is believed only if the CRD is ours and was
//! ours before.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{Api, Client, ResourceExt as _};

use crate::api::crd::{set_crd, volume_crd, why_not_ours};
use crate::host::chain;
use crate::operator::api_server::error::HOW;

/// The cluster's CRDs of both kinds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Definitions {
    pub of_sets: Definition,
    pub of_volumes: Definition,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Definition {
    Ours(CrdGeneration),
    /// The CRD of the Local Storage Operator, or of another version.
    Other {
        name: String,
        why: String,
        generation: CrdGeneration,
    },
    Absent,
    /// It could not be read.
    Unread,
}

/// Why nothing new is claimed by what was seen under a definition.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotBelieved {
    #[error("the CRD {name} is not of this version of localpool ({why}), so {so}: {HOW} updates it")]
    Other { name: String, why: String, so: &'static str },
    #[error("a CRD of the sets has just changed: the sets are read again")]
    Replaced,
    #[error("the CRD of {kind} has not been read yet")]
    NotRead { kind: &'static str },
}

/// UID and generation: if either differs, it is another definition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CrdGeneration(Option<String>, Option<i64>);

impl Definitions {
    pub async fn read(client: &Client) -> Self {
        let (sets, volumes) = (set_crd().name_any(), volume_crd().name_any());
        Self { of_sets: Definition::read(client, &sets).await, of_volumes: Definition::read(client, &volumes).await }
    }

    pub fn are_unread(&self) -> bool {
        [&self.of_sets, &self.of_volumes].contains(&&Definition::Unread)
    }
}

impl Definition {
    async fn read(client: &Client, name: &str) -> Self {
        let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
        match crds.get_opt(name).await {
            Ok(Some(crd)) => {
                let generation = CrdGeneration(crd.uid(), crd.metadata.generation);
                match why_not_ours(&crd) {
                    None => Self::Ours(generation),
                    Some(why) => Self::Other { name: name.to_owned(), why, generation },
                }
            }
            Ok(None) => Self::Absent,
            Err(error) => {
                let error = chain(&error);
                tracing::warn!(
                    crd = name,
                    error,
                    "the CRD could not be read; until it is read, its objects claim nothing"
                );
                Self::Unread
            }
        }
    }

    pub fn is_ours(&self) -> bool {
        matches!(self, Self::Ours(_))
    }

    /// Whether the definition can be believed, or why not. `None`: not known yet.
    pub fn believed(&self, so: &'static str) -> Option<Result<(), NotBelieved>> {
        match self {
            Self::Ours(_) => Some(Ok(())),
            Self::Other { name, why, generation: _ } => {
                Some(Err(NotBelieved::Other { name: name.clone(), why: why.clone(), so }))
            }
            Self::Absent | Self::Unread => None,
        }
    }
}
