//! `bundle`: all that somebody who helps has to see, in one archive, and no secrets.
//!
//! Takes in objects, and the logs of localpool's own pods; gives out a tar.gz (`archive`). What an object may show is decided
//! by `scrub`. Whatever cannot be read is named in the archive, and does not keep the rest away.

mod archive;
mod kinds;
mod scrub;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{ApiResource, DynamicObject, ListParams, LogParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};

use self::archive::Archive;
use self::kinds::{BundledKind, KINDS, OwnObjects};
use self::scrub::scrubbed;
use super::reader::{cluster_case, own_pods, pods_of_pvcs};
use super::status;
use crate::operator::api_server::client::{find_in_pages, within};
use crate::operator::api_server::error::{OperatorError, error_message};

/// How many objects one answer of the API server holds.
const PAGE: u32 = 500;
/// Of each container, at most: its last lines say most.
const LOG_LINES: i64 = 20_000;

/// What was collected.
pub struct Bundle {
    /// A tar.gz.
    pub bytes: Vec<u8>,
    /// One line for each thing that could not be read.
    pub problems: Vec<String>,
}

/// Collects everything. `at` is the time of the files, in seconds since 1970.
pub async fn bundle(client: Client, at: u64) -> Result<Bundle, OperatorError> {
    let mut collected = Collected { archive: Archive::new(at), problems: Vec::new() };
    collected.summary(&client).await;
    let read = own_pods(&client).await;
    let pods = collected.or_problem(read).unwrap_or_default();
    if pods.is_empty() {
        collected.problems.push(
            "no pod of localpool was found: its logs, its leases and the Events of its namespace are not there"
                .to_owned(),
        );
    }
    collected.objects(&client, &pods).await;
    for pod in &pods {
        collected.logs(&client, pod).await;
    }
    let Collected { mut archive, problems } = collected;
    archive.add("not-read.txt", problems.iter().map(|line| format!("{line}\n")).collect::<String>().as_bytes());
    let failed = |error: std::io::Error| OperatorError::Refused(format!("the archive cannot be made: {error}"));
    Ok(Bundle { bytes: archive.bytes().map_err(failed)?, problems })
}

struct Collected {
    archive: Archive,
    problems: Vec<String>,
}

impl Collected {
    /// What a person looks at first.
    async fn summary(&mut self, client: &Client) {
        let server = within("reading the version of the API server", client.apiserver_version()).await;
        let server = self.or_problem(server).map(|info| info.git_version);
        let versions = json!({"program": env!("CARGO_PKG_VERSION"), "apiServer": server});
        self.json("versions.json", &versions);
        let case = cluster_case(client).await;
        let Some(case) = self.or_problem(case) else { return };
        let found = status::status(&case, env!("CARGO_PKG_VERSION"));
        self.json("status.json", &json!(found));
        self.archive.add("problems.txt", found.problems_text().as_bytes());
    }

    async fn objects(&mut self, client: &Client, pods: &[Pod]) {
        let users = pods_of_pvcs(client).await;
        let mut own = OwnObjects::of(pods, self.or_problem(users).unwrap_or_default());
        // The order matters: what is ours among the later kinds follows from the earlier ones.
        for kind in &KINDS {
            let listed = list(client, kind, &own).await;
            let Some(found) = self.or_problem(listed) else { continue };
            let found: Vec<Value> = found.into_iter().filter(|object| own.has(kind, object)).collect();
            found.iter().for_each(|object| own.learn(kind, object));
            let list = json!({"apiVersion": "v1", "kind": "List",
                              "items": found.into_iter().map(scrubbed).collect::<Vec<_>>()});
            self.json(&format!("objects/{}.json", kind.plural), &list);
        }
    }

    async fn logs(&mut self, client: &Client, pod: &Pod) {
        let (namespace, name) = (pod.namespace().unwrap_or_default(), pod.name_any());
        let pods: Api<Pod> = Api::namespaced(client.clone(), &namespace);
        let statuses = pod.status.iter().flat_map(|status| {
            let all = status.init_container_statuses.iter().chain(&status.container_statuses);
            all.flatten().map(|one| (one.name.clone(), one.restart_count))
        });
        for (container, restarts) in statuses {
            for previous in [false, true].into_iter().take(if restarts > 0 { 2 } else { 1 }) {
                let params = LogParams {
                    container: Some(container.clone()),
                    previous,
                    tail_lines: Some(LOG_LINES),
                    timestamps: true,
                    ..LogParams::default()
                };
                let what = format!("reading the log of {namespace}/{name}, container {container}");
                let read = within(&what, pods.logs(&name, &params)).await;
                let ending = if previous { ".previous.log" } else { ".log" };
                if let Some(text) = self.or_problem(read) {
                    self.archive.add(&format!("logs/{name}/{container}{ending}"), text.as_bytes());
                }
            }
        }
    }

    fn json(&mut self, path: &str, value: &Value) {
        self.archive.add(path, format!("{value:#}\n").as_bytes());
    }

    fn or_problem<T>(&mut self, read: Result<T, OperatorError>) -> Option<T> {
        match read {
            Ok(read) => Some(read),
            Err(error) => {
                let line = error_message(&error);
                if !self.problems.contains(&line) {
                    self.problems.push(line);
                }
                None
            }
        }
    }
}

/// All objects of a kind, with all their fields.
async fn list(client: &Client, kind: &BundledKind, own: &OwnObjects) -> Result<Vec<Value>, OperatorError> {
    let BundledKind { group, version, kind: name, plural, .. } = kind;
    let resource = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, name), plural);
    let mut found = Vec::new();
    let namespaces = own.namespaces_of(kind);
    let apis: Vec<Api<DynamicObject>> = match namespaces {
        None => vec![Api::all_with(client.clone(), &resource)],
        Some(some) => some.iter().map(|one| Api::namespaced_with(client.clone(), one, &resource)).collect(),
    };
    for api in apis {
        let what = format!("listing {plural}");
        let fetch = async |params| within(&what, api.list(&params)).await;
        let take = |page: Vec<DynamicObject>| -> Option<()> {
            found.extend(page.into_iter().filter_map(|object| serde_json::to_value(object).ok()));
            None
        };
        find_in_pages(ListParams::default().limit(PAGE), fetch, take).await?;
    }
    Ok(found)
}
