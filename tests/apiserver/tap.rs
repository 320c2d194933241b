//! A client of the API server with a test between it and its user: it counts the requests for a path, and holds them
//! up or refuses them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use kube::Client;
use kube::client::Body;
use serde_json::json;
use tokio::sync::watch;
use tonic::codegen::http::{Method, Request, Response};
use tower::service_fn;

use crate::agent::TIMEOUT;

/// What becomes of requests.
#[derive(Clone, Copy, PartialEq)]
pub enum TapState {
    Open,
    /// They wait until it is another one.
    Closed,
    /// The answer is an error.
    Refusing,
}

pub struct Tap {
    /// `None`: requests of any method.
    method: Option<Method>,
    path: &'static str,
    requests: AtomicU64,
    state: watch::Sender<TapState>,
    waiting: watch::Sender<u64>,
}

impl Tap {
    /// For requests whose path has this prefix.
    pub fn on(path: &'static str, client: &Client) -> (Arc<Self>, Client) {
        Self::of(None, path, client)
    }

    /// For requests that create an object.
    pub fn on_creates(path: &'static str, client: &Client) -> (Arc<Self>, Client) {
        Self::of(Some(Method::POST), path, client)
    }

    /// For requests that read.
    pub fn on_reads(path: &'static str, client: &Client) -> (Arc<Self>, Client) {
        Self::of(Some(Method::GET), path, client)
    }

    /// For requests that change a part of an object.
    pub fn on_patches(path: &'static str, client: &Client) -> (Arc<Self>, Client) {
        Self::of(Some(Method::PATCH), path, client)
    }

    fn of(method: Option<Method>, path: &'static str, client: &Client) -> (Arc<Self>, Client) {
        let (state, waiting) = (watch::Sender::new(TapState::Open), watch::Sender::new(0));
        let tap = Arc::new(Self { method, path, requests: AtomicU64::new(0), state, waiting });
        let (client, of) = (client.clone(), Arc::clone(&tap));
        let service = service_fn(move |request: Request<Body>| {
            let (client, tap) = (client.clone(), Arc::clone(&of));
            async move {
                match tap.pass(request.method(), request.uri().path()).await {
                    TapState::Refusing => Ok(refusal()),
                    TapState::Open | TapState::Closed => client.send(request).await,
                }
            }
        });
        (tap, Client::new(service, "default"))
    }

    async fn pass(&self, method: &Method, path: &str) -> TapState {
        if !path.starts_with(self.path) || self.method.as_ref().is_some_and(|ours| ours != method) {
            return TapState::Open;
        }
        self.requests.fetch_add(1, Ordering::SeqCst);
        self.waiting.send_modify(|waiting| *waiting += 1);
        let mut states = self.state.subscribe();
        let state = states.wait_for(|state| *state != TapState::Closed).await.map(|state| *state);
        self.waiting.send_modify(|waiting| *waiting -= 1);
        state.unwrap_or(TapState::Open)
    }

    pub fn requests(&self) -> u64 {
        self.requests.load(Ordering::SeqCst)
    }

    pub fn set_open(&self, is_open: bool) {
        self.set(if is_open { TapState::Open } else { TapState::Closed });
    }

    pub fn set(&self, state: TapState) {
        self.state.send_replace(state);
    }

    /// Until a request is held up.
    pub async fn waited_at(&self) {
        let mut waiting = self.waiting.subscribe();
        let waited = waiting.wait_for(|waiting| *waiting > 0);
        tokio::time::timeout(TIMEOUT, waited).await.expect("somebody asks").expect("it is ours");
    }
}

fn refusal() -> Response<Body> {
    let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "InternalError",
        "message": "the test refuses it", "code": 500});
    let body = Body::from(status.to_string().into_bytes());
    Response::builder().status(500).body(body).expect("a response")
}
