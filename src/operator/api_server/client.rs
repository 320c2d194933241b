//! A client of the API server, one request to it, and which names an object can have.

use std::ffi::OsString;
use std::fmt;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::time::Duration;

use kube::Client;
use kube::api::ListParams;
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::core::ObjectList;

use crate::host::is_there;
use crate::operator::api_server::error::OperatorError;

/// How long one request may take.
const REQUEST: Duration = Duration::from_secs(10);

/// The environment variable that names files, as kubectl reads it.
const KUBECONFIG: &str = "KUBECONFIG";

/// A client of the cluster that this process runs in, or that KUBECONFIG names. It sends a request again that the API
/// server has no time for (429, 503, 504).
pub async fn client() -> Result<Client, OperatorError> {
    of_config(config_of(ClusterChoice::default()).await?.0)
}

/// Which cluster a person means, and as whom.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterChoice {
    /// `None`: what KUBECONFIG names, or the file in the home folder.
    pub kubeconfig: Option<PathBuf>,
    /// `None`: the current one.
    pub context: Option<String>,
}

/// Which cluster was asked, for messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AskedCluster {
    /// `None`: the account of a pod asked.
    context: Option<String>,
    server: String,
}

impl fmt::Display for AskedCluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.context {
            Some(context) => write!(f, "context {context}, server {}", self.server),
            None => write!(f, "the cluster of this pod, server {}", self.server),
        }
    }
}

/// A client of the cluster that a person means, and which one that is. Who chooses nothing gets that of [`client`].
pub async fn client_of(choice: ClusterChoice) -> Result<(Client, AskedCluster), OperatorError> {
    let (config, context) = config_of(choice).await?;
    let server = config.cluster_url.to_string().trim_end_matches('/').to_owned();
    Ok((of_config(config)?, AskedCluster { context, server }))
}

/// The configuration of a cluster, and the context that it is from.
async fn config_of(choice: ClusterChoice) -> Result<(kube::Config, Option<String>), OperatorError> {
    let unusable = |error| OperatorError::Config(Box::new(error));
    let ClusterChoice { kubeconfig, context } = choice;
    let named = match kubeconfig {
        Some(file) => Some(read("--kubeconfig", &file)?),
        None => named_by(std::env::var_os(KUBECONFIG))?,
    };
    let is_chosen = named.is_some() || context.is_some();
    // Nothing was chosen: what lies in the home folder counts, if it can be used, and else the account of the pod.
    let read = match named {
        Some(named) => Ok(named),
        None => Kubeconfig::read(),
    };
    let config = match read {
        Ok(read) => {
            let name = context.clone().or_else(|| read.current_context.clone());
            let options = KubeConfigOptions { context, ..KubeConfigOptions::default() };
            kube::Config::from_custom_kubeconfig(read, &options).await.map(|config| (config, name))
        }
        Err(error) => Err(error),
    };
    match config {
        Err(_) if !is_chosen => {
            let inferred = kube::Config::infer().await.map_err(|error| OperatorError::Config(Box::new(error)))?;
            Ok((inferred, None))
        }
        config => config.map_err(unusable),
    }
}

/// What is in the files that KUBECONFIG names. As with kubectl, one that is missing does not count beside others.
fn named_by(variable: Option<OsString>) -> Result<Option<Kubeconfig>, OperatorError> {
    let files: Vec<PathBuf> =
        std::env::split_paths(&variable.unwrap_or_default()).filter(|file| !file.as_os_str().is_empty()).collect();
    let Some(first) = files.first() else { return Ok(None) };
    if !files.iter().any(|file| is_there(file)) {
        return read(KUBECONFIG, first).map(Some);
    }
    let mut merged = Kubeconfig::default();
    for file in files.iter().filter(|file| is_there(file)) {
        merged = merged.merge(read(KUBECONFIG, file)?).map_err(|source| unusable_file(KUBECONFIG, file, source))?;
    }
    Ok(Some(merged))
}

fn read(named_by: &'static str, file: &Path) -> Result<Kubeconfig, OperatorError> {
    Kubeconfig::read_from(file).map_err(|source| unusable_file(named_by, file, source))
}

fn unusable_file(named_by: &'static str, file: &Path, source: KubeconfigError) -> OperatorError {
    // The cause alone: the rest of that error repeats the file.
    let source: Box<dyn std::error::Error + Send + Sync> = match source {
        KubeconfigError::ReadConfig(cause, _) => Box::new(cause),
        source => Box::new(source),
    };
    OperatorError::Kubeconfig { file: file.to_owned(), named_by, source }
}

/// One that sends each request once: the API server answers an eviction with 429 too, if a PodDisruptionBudget does not
/// allow it, and then an hour of repetition may not help.
pub async fn client_without_repetition() -> Result<Client, OperatorError> {
    let (mut config, _) = config_of(ClusterChoice::default()).await?;
    config.default_retry = false;
    of_config(config)
}

fn of_config(config: kube::Config) -> Result<Client, OperatorError> {
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
    use crate::operator::api_server::error::error_message;

    #[test]
    fn files_of_the_environment_that_are_not_there_are_named_and_count_not_beside_one_that_is() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = |name: &str| folder.path().join(name);
        let read = |files: &[PathBuf]| named_by(Some(std::env::join_paths(files).expect("paths")));
        let error = |files: &[PathBuf]| error_message(&read(files).expect_err("unusable"));
        assert!(named_by(None).expect("nothing").is_none() && named_by(Some("".into())).expect("nothing").is_none());
        let missing = file("missing").display().to_string();
        let said = error(&[file("missing"), file("too")]);
        assert!(
            said.contains(&format!("the file {missing}, which KUBECONFIG names, cannot be used: No such")),
            "{said}"
        );
        assert_eq!(said.matches(&missing).count(), 1, "{said}");
        let contexts = "apiVersion: v1\nkind: Config\ncurrent-context: a\n";
        std::fs::write(file("there"), contexts).expect("written");
        let merged = read(&[file("missing"), file("there")]).expect("usable").expect("one");
        assert_eq!(merged.current_context.as_deref(), Some("a"));
        std::fs::write(file("broken"), "a: [").expect("written");
        let said = error(&[file("broken"), file("there")]);
        assert!(said.contains(&file("broken").display().to_string()), "{said}");
    }

    #[test]
    fn a_csi_name_that_no_object_can_have_is_not_asked_for() {
        assert!(is_object_name("pvc-7c0e"));
        for name in ["", "../secrets", "a/b", "A", "ä", "-a", "a b"] {
            assert!(!is_object_name(name), "{name:?}");
        }
    }
}
