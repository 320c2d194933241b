use std::collections::BTreeSet;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use kube::client::Body;
use prometheus::Registry;
use serde_json::Value;
use tonic::codegen::http::{Method, Request, Response, StatusCode};

use super::super::answer::unanswered;
use super::*;

/// What was asked of the API server: each method and path.
type Requests = Arc<Mutex<Vec<String>>>;

/// An API server with one Node for each name, and without PersistentVolumes, that refuses each write of `refused`.
fn server(requests: &Requests, refused: &'static str) -> Client {
    let requests = Arc::clone(requests);
    let answer = move |request: Request<Body>| {
        let requests = Arc::clone(&requests);
        async move {
            let (method, path) = (request.method().clone(), request.uri().path().to_owned());
            requests.lock().expect("no panic").push(format!("{method} {path}"));
            let name = path.rsplit('/').next().unwrap_or_default();
            let (status, object) = match method {
                Method::PATCH if name == refused => (StatusCode::FORBIDDEN, refusal()),
                Method::PATCH => {
                    let change = request.into_body().collect_bytes().await.expect("a body");
                    let change: Value = serde_json::from_slice(&change).expect("JSON");
                    let metadata = json!({"name": name, "uid": name, "resourceVersion": "2"});
                    (StatusCode::OK, json!({"metadata": metadata, "spec": change["spec"]}))
                }
                _ if name == "persistentvolumes" => (StatusCode::OK, json!({"metadata": {}, "items": []})),
                _ => (StatusCode::OK, json!({"metadata": {"name": name}})),
            };
            let response = Response::builder().status(status).body(Body::from(object.to_string().into_bytes()));
            Ok::<_, Infallible>(response.expect("a response"))
        }
    };
    Client::new(tower::service_fn(answer), "default")
}

fn refusal() -> Value {
    json!({"kind": "Status", "status": "Failure", "message": "no", "reason": "Forbidden", "code": 403})
}

fn asking(name: &str) -> DevicePool {
    let mut pool = DevicePool::new(name, Default::default());
    pool.metadata.uid = Some(name.to_owned());
    pool.metadata.resource_version = Some("1".to_owned());
    let question = PoolQuestion { token: name.to_owned(), promises: true, volumes: Vec::new() };
    pool.status.get_or_insert_default().question = Some(question);
    pool
}

fn metrics() -> Metrics {
    Metrics::new(&Registry::new()).expect("metrics")
}

#[tokio::test]
async fn one_reading_answers_all_who_ask_though_one_of_them_cannot_be_answered() {
    let (requests, stores) = (Requests::default(), Stores::default());
    let names: BTreeSet<String> = (0..100).map(|n| format!("n{n:02}")).collect();
    names.iter().for_each(|name| drop(stores.pools.put(Ok(asking(name)))));
    let answerer = Answerer::new(server(&requests, "n01"), stores.clone(), metrics());
    let (due, _) = Asked::default().due(stores.pools.all(), |_| true, Duration::ZERO);
    answerer.answer(due).await;
    let requests = requests.lock().expect("no panic").clone();
    let of = |start: &str| requests.iter().filter(|request| request.starts_with(start)).count();
    assert_eq!((of("GET /api/v1/persistentvolumes"), of("PATCH")), (1, 100), "{requests:?}");
    let unanswered: Vec<String> =
        stores.pools.all().iter().filter(|pool| unanswered(pool).is_some()).map(|pool| pool.name_any()).collect();
    assert_eq!(unanswered, ["n01"]);
}

#[tokio::test]
async fn what_is_asked_about_volumes_alone_needs_no_node() {
    let (requests, stores) = (Requests::default(), Stores::default());
    let mut pool = asking("n");
    pool.status.get_or_insert_default().question.as_mut().expect("set").promises = false;
    stores.pools.put(Ok(pool));
    let answerer = Answerer::new(server(&requests, ""), stores.clone(), metrics());
    let (due, _) = Asked::default().due(stores.pools.all(), |_| false, Duration::ZERO);
    answerer.answer(due).await;
    let requests = requests.lock().expect("no panic").clone();
    assert!(requests.iter().all(|request| !request.contains("/nodes/")), "{requests:?}");
    assert_eq!(stores.pools.get("n").map(|pool| unanswered(&pool).is_none()), Some(true));
}
