//! A client of the API server, one request to it, and which names an object can have.

use std::future::Future;
use std::time::Duration;

use kube::Client;
use kube::api::ListParams;
use kube::core::ObjectList;

use super::error::OperatorError;

/// How long one request may take.
const REQUEST: Duration = Duration::from_secs(10);

/// A client of the cluster that this process runs in, or that KUBECONFIG names. It sends a request again that the API
/// server has no time for (429, 503, 504).
pub async fn client() -> Result<Client, OperatorError> {
    client_of(config().await?)
}

/// One that sends each request once: the API server answers an eviction with 429 too, if a PodDisruptionBudget does not
/// allow it, and then an hour of repetition may not help.
pub async fn client_without_repetition() -> Result<Client, OperatorError> {
    let mut config = config().await?;
    config.default_retry = false;
    client_of(config)
}

async fn config() -> Result<kube::Config, OperatorError> {
    kube::Config::infer().await.map_err(|e| OperatorError::Config(Box::new(e)))
}

fn client_of(config: kube::Config) -> Result<Client, OperatorError> {
    Client::try_from(config).map_err(|e| OperatorError::Config(Box::new(e)))
}

/// One request, with a time limit.
pub(in crate::operator) async fn within<T>(
    what: &str,
    request: impl Future<Output = kube::Result<T>>,
) -> Result<T, OperatorError> {
    match tokio::time::timeout(REQUEST, request).await {
        Ok(answer) => answer.map_err(OperatorError::api(what)),
        Err(_) => {
            Err(OperatorError::Refused(format!("{what}: the API server did not answer in {} s", REQUEST.as_secs())))
        }
    }
}

/// Reads a list page by page, each as `fetch` reads it, until `find` finds something on one.
pub(in crate::operator) async fn find_in_pages<K: Clone, T, Page>(
    mut params: ListParams,
    fetch: impl Fn(ListParams) -> Page,
    mut find: impl FnMut(Vec<K>) -> Option<T>,
) -> Result<Option<T>, OperatorError>
where
    Page: Future<Output = Result<ObjectList<K>, OperatorError>>,
{
    loop {
        let ObjectList { items, metadata, .. } = fetch(params.clone()).await?;
        let found = find(items);
        match metadata.continue_.filter(|token| found.is_none() && !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(found),
        }
    }
}

/// A CSI name can be any text; one that is not a valid object name has no PersistentVolume, and would be another path.
pub(in crate::operator) fn is_object_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.');
    !name.is_empty() && name.chars().all(plain) && name.starts_with(|c: char| c.is_ascii_alphanumeric())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_csi_name_that_no_object_can_have_is_not_asked_for() {
        assert!(is_object_name("pvc-7c0e"));
        for name in ["", "../secrets", "a/b", "A", "ä", "-a", "a b"] {
            assert!(!is_object_name(name), "{name:?}");
        }
    }
}
