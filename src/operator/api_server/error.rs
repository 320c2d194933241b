//! Why a request did not reach the cluster or was not done, and the message about it.

use std::path::PathBuf;

use kube::core::dynamic::ParseDynamicObjectError;

use crate::claim::NoAnswer;

/// For messages: who can install our CRDs, as the roles of agent and controller cannot.
pub const HOW: &str =
    "`helm upgrade`, or an administrator's `kubectl apply --server-side` of what `localpool crds` prints";

/// Why a request did not reach the cluster, or was not done.
#[derive(Debug, thiserror::Error)]
pub enum OperatorError {
    #[error("no Kubernetes API server is known: neither a service account nor KUBECONFIG names a usable one")]
    Config(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("the file {}, which {named_by} names, cannot be used", file.display())]
    Kubeconfig {
        file: PathBuf,
        /// The variable or the flag.
        named_by: &'static str,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    #[error("{what}")]
    Api {
        /// What was being done to which object.
        what: String,
        #[source]
        source: Box<kube::Error>,
    },
    /// A later version wrote the object.
    #[error("PoolVolume {name}, which may be on any device, cannot be read")]
    Unreadable {
        name: String,
        #[source]
        source: ParseDynamicObjectError,
    },
    #[error("{0}")]
    Refused(String),
}

impl OperatorError {
    pub fn api(what: impl Into<String>) -> impl FnOnce(kube::Error) -> Self {
        let what = what.into();
        move |source| Self::Api { what, source: Box::new(source) }
    }

    /// To the agent: what it asked of the API server was not answered.
    pub fn no_answer(self) -> NoAnswer {
        NoAnswer::Failed(Box::new(WithCauses(self)))
    }

    /// The HTTP code of the API server's answer, if there was one.
    pub fn code(&self) -> Option<u16> {
        match self {
            Self::Api { source, .. } => match &**source {
                kube::Error::Api(status) => Some(status.code),
                _ => None,
            },
            Self::Config(_) | Self::Kubeconfig { .. } | Self::Unreadable { .. } | Self::Refused(_) => None,
        }
    }

    pub fn is_not_found(&self) -> bool {
        self.code() == Some(404)
    }

    /// A PodDisruptionBudget does not allow an eviction now, or the API server has too much to do.
    pub fn is_too_many_requests(&self) -> bool {
        self.code() == Some(429)
    }

    /// Somebody else changed the object first, or it is there already.
    pub fn is_conflict(&self) -> bool {
        self.code() == Some(409)
    }
}

/// An error whose `Display` has its causes, in the words for people.
#[derive(Debug)]
struct WithCauses(OperatorError);

impl std::fmt::Display for WithCauses {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&error_message(&self.0))
    }
}

impl std::error::Error for WithCauses {}

/// What went wrong, as text. The message of an API server's answer is enough; the answer about a kind that is not
/// served does not help by itself.
pub fn error_message(error: &(dyn std::error::Error + 'static)) -> String {
    let mut messages: Vec<String> = Vec::new();
    let mut cause = Some(error);
    while let Some(error) = cause {
        let api =
            error.downcast_ref::<kube::Error>().or_else(|| error.downcast_ref::<Box<kube::Error>>().map(|e| &**e));
        if let Some(kube::Error::Api(status)) = api {
            messages.push(match status.message.contains("404 page not found") {
                true => format!("the API server does not serve this kind: is its CRD there? {} creates it", HOW),
                false => status.message.clone(),
            });
            break;
        }
        let next = error.to_string();
        // Many errors repeat their causes in their own messages.
        if !messages.iter().any(|before| before.contains(&next)) {
            messages.push(next);
        }
        cause = error.source();
    }
    messages.join(": ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_of_the_api_server_is_told_by_its_message_alone() {
        let status = |message: &str, code| {
            let status = kube::core::Status { message: message.to_owned(), code, ..Default::default() };
            kube::Error::Api(Box::new(status))
        };
        let forbidden = OperatorError::api("reading x")(status("x is forbidden", 403));
        assert_eq!(error_message(&forbidden), "reading x: x is forbidden");
        let unserved = OperatorError::api("listing y")(status("404 page not found", 404));
        assert!(error_message(&unserved).contains("`helm upgrade`"));
        assert_eq!(error_message(&OperatorError::Refused("no".to_owned())), "no");
    }

    #[test]
    fn no_cause_is_told_twice() {
        let file = std::io::Error::other("no such file");
        let read = kube::config::KubeconfigError::ReadConfig(file, "/x".into());
        let error = OperatorError::Config(Box::new(read));
        assert_eq!(error_message(&error).matches("no such file").count(), 1, "{}", error_message(&error));
    }
}
