//! What a command asks: an agent on its socket and an API server, both run by the test. Each answers every question as
//! if all were well, so that every verb has something to print, and changes nothing.

use std::fs;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex};

use axum::extract::Request as HttpRequest;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response as HttpResponse};
use futures::{Stream, StreamExt as _, stream};
use localpool::rpc::proto::agent::agent_server::{Agent, AgentServer};
use localpool::rpc::proto::agent::*;
use localpool::rpc::server;
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tonic::service::Routes;
use tonic::{Request, Response, Status};

use crate::{FOUND, GONE, NOBODY};

const JSON: [(&str, &str); 1] = [("content-type", "application/json")];

/// Both of them, until this is dropped.
pub struct Answers {
    /// The state directory of the agent that answers.
    pub state: PathBuf,
    /// Names the API server.
    pub kubeconfig: PathBuf,
    asked: Arc<Mutex<Vec<String>>>,
    _runtime: Runtime,
}

impl Answers {
    pub fn begin(folder: &Path) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let (state, kubeconfig) = (folder.join("answers"), folder.join("kubeconfig"));
        let asked: Arc<Mutex<Vec<String>>> = Arc::default();
        let address = runtime.block_on(async {
            let socket = server::bind(&state.join("agent.sock")).unwrap();
            tokio::spawn(server::serve(socket, Routes::new(AgentServer::new(Content)), std::future::pending()));
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let asked = Arc::clone(&asked);
            let answer = move |request: HttpRequest| {
                asked.lock().unwrap().push(format!("{} {}", request.method(), request.uri().path()));
                std::future::ready(api(&request))
            };
            tokio::spawn(async { axum::serve(listener, axum::Router::new().fallback(answer)).await });
            address
        });
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "test",
            "clusters": [{"name": "test", "cluster": {"server": format!("http://{address}")}}],
            "users": [{"name": "test", "user": {}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        });
        fs::write(&kubeconfig, config.to_string()).unwrap();
        fs::write(state.join("cluster"), "a-cluster\n").unwrap();
        Self { state, kubeconfig, asked, _runtime: runtime }
    }

    /// Requests to the API server since the last call: method and path.
    pub fn asked(&self) -> Vec<String> {
        std::mem::take(&mut self.asked.lock().unwrap())
    }
}

/// The kinds of which it has none: an empty list.
const NONE: [&str; 10] = [
    "nodes",
    "pods",
    "events",
    "leases",
    "localvolumesets",
    "localvolumes",
    "localvolumediscoveries",
    "localvolumediscoveryresults",
    "persistentvolumeclaims",
    "storageclasses",
];

/// An API server that has a claim and two volumes: one on a node that it does not have, and one that nobody claims.
fn api(request: &HttpRequest) -> HttpResponse {
    let path = request.uri().path();
    let found = if path.ends_with("/persistentvolumes") {
        json!({"apiVersion": "v1", "kind": "PersistentVolumeList", "metadata": {}, "items": []})
    } else if path.ends_with(&format!("/poolvolumes/{NOBODY}")) && request.method() == "GET" {
        volume(NOBODY, "nobody")
    } else if path.ends_with(&format!("/poolvolumes/{FOUND}")) && request.method() == "GET" {
        json!({
            "apiVersion": "localpool.dev/v1alpha1", "kind": "PoolVolume", "metadata": {"name": FOUND, "uid": "f", "annotations": {"localpool.dev/claim": "default/had"}},
            "spec": {"node": "somebody", "volumeName": "pvc-2", "required": 1, "volumeMode": "Block",
                     "parameters": {"class": "fast"}},
            "status": {"phase": "Found", "size": 1 << 20},
        })
    } else if path.ends_with("/devicepools") || path.ends_with("/devicepools/somebody") {
        let disk = json!({
            "id": NOBODY, "path": "/dev/sda", "layout": "Carved", "set": "d/s", "size": 1, "free": 0, "volumes": 2,
            "state": "Ready",
        });
        let pool = json!({
            "apiVersion": "localpool.dev/v1alpha1", "kind": "DevicePool", "metadata": {"name": "somebody", "uid": "p"},
            "spec": {}, "status": {"disks": [disk]},
        });
        match path.ends_with("s") {
            true => {
                json!({"apiVersion": "localpool.dev/v1alpha1", "kind": "DevicePoolList", "metadata": {}, "items": [pool]})
            }
            false => pool,
        }
    } else if path.ends_with("/poolvolumes") {
        // A node that is gone has one.
        let is_gone = request.uri().query().is_some_and(|query| query.contains(GONE));
        let items: Vec<Value> = is_gone.then(|| volume(NOBODY, GONE)).into_iter().collect();
        json!({"apiVersion": "localpool.dev/v1alpha1", "kind": "PoolVolumeList", "metadata": {}, "items": items})
    } else if path.ends_with("/persistentvolumeclaims/data") {
        let spec = json!({"storageClassName": "fast", "resources": {"requests": {"storage": "1Gi"}}});
        json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data", "uid": "d"}, "spec": spec})
    } else if NONE.iter().any(|kind| path.ends_with(&format!("/{kind}"))) {
        json!({"apiVersion": "v1", "kind": "List", "metadata": {}, "items": []})
    } else if path == "/version" {
        let text = [
            "buildDate",
            "compiler",
            "gitCommit",
            "gitTreeState",
            "gitVersion",
            "goVersion",
            "major",
            "minor",
            "platform",
        ];
        Value::Object(text.into_iter().map(|key| (key.to_owned(), json!("1"))).collect())
    } else if path.ends_with("/nodes/somebody") {
        json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": {"name": "somebody"}})
    } else {
        let status = json!({
            "apiVersion": "v1", "kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404,
            "message": format!("{path} is not here"),
        });
        return (StatusCode::NOT_FOUND, JSON, status.to_string()).into_response();
    };
    (JSON, found.to_string()).into_response()
}

fn volume(id: &str, node: &str) -> Value {
    json!({
        "apiVersion": "localpool.dev/v1alpha1", "kind": "PoolVolume", "metadata": {"name": id, "uid": "u"},
        "spec": {"node": node, "volumeName": "pvc-1", "required": 1, "volumeMode": "Block"},
    })
}

/// An agent that accepts every request.
struct Content;

type Replies = Pin<Box<dyn Stream<Item = Result<InventoryReply, Status>> + Send>>;
type Reply = Result<Response<Report>, Status>;

fn reply(what: &str) -> Reply {
    Ok(Response::new(Report { lines: vec![format!("{what}: done"), "and that is all".to_owned()] }))
}

#[tonic::async_trait]
impl Agent for Content {
    async fn inventory(&self, _: Request<InventoryRequest>) -> Result<Response<InventoryReply>, Status> {
        Ok(Response::new(InventoryReply { text: "{\"devices\": []}\n".to_owned() }))
    }

    async fn watch_inventory(&self, _: Request<WatchRequest>) -> Result<Response<Replies>, Status> {
        let first = stream::iter([Ok(InventoryReply { text: "{\"devices\": []}".to_owned() })]);
        Ok(Response::new(Box::pin(first.chain(stream::pending()))))
    }

    async fn volumes(&self, _: Request<InventoryRequest>) -> Result<Response<InventoryReply>, Status> {
        Ok(Response::new(InventoryReply { text: "{\"volumes\": []}\n".to_owned() }))
    }

    async fn health(&self, _: Request<InventoryRequest>) -> Result<Response<InventoryReply>, Status> {
        Ok(Response::new(InventoryReply { text: "{\"unhealthy\": []}\n".to_owned() }))
    }

    async fn release_disk(&self, _: Request<DiskRequest>) -> Reply {
        reply("release")
    }

    async fn give_up_disk(&self, _: Request<DiskRequest>) -> Reply {
        reply("give up")
    }

    async fn adopt_disk(&self, _: Request<DiskRequest>) -> Reply {
        reply("adopt")
    }

    async fn locate_disk(&self, _: Request<LocateRequest>) -> Reply {
        reply("locate")
    }

    async fn plan_sets(&self, _: Request<SetsRequest>) -> Reply {
        reply("plan")
    }

    async fn adopt_volume(&self, _: Request<VolumeRequest>) -> Reply {
        reply("adopt")
    }

    async fn settle_volume(&self, _: Request<SettleRequest>) -> Reply {
        reply("settle")
    }

    async fn set_aside_journal(&self, _: Request<SetAsideRequest>) -> Reply {
        reply("set aside")
    }
}
