//! A client of the API server with a test between it and its user: it counts the requests for a path, and holds them
//! up.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use kube::Client;
use kube::client::Body;
use tokio::sync::watch;
use tonic::codegen::http::{Method, Request};
use tower::service_fn;

use crate::agent::PATIENCE;

pub struct Tap {
    /// `None`: requests of any method.
    method: Option<Method>,
    path: &'static str,
    requests: AtomicU64,
    is_open: watch::Sender<bool>,
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
        let (is_open, waiting) = (watch::Sender::new(true), watch::Sender::new(0));
        let tap = Arc::new(Self { method, path, requests: AtomicU64::new(0), is_open, waiting });
        let (client, of) = (client.clone(), Arc::clone(&tap));
        let service = service_fn(move |request: Request<Body>| {
            let (client, tap) = (client.clone(), Arc::clone(&of));
            async move {
                tap.pass(request.method(), request.uri().path()).await;
                client.send(request).await
            }
        });
        (tap, Client::new(service, "default"))
    }

    async fn pass(&self, method: &Method, path: &str) {
        if !path.starts_with(self.path) || self.method.as_ref().is_some_and(|ours| ours != method) {
            return;
        }
        self.requests.fetch_add(1, Ordering::SeqCst);
        self.waiting.send_modify(|waiting| *waiting += 1);
        let _ = self.is_open.subscribe().wait_for(|is_open| *is_open).await;
        self.waiting.send_modify(|waiting| *waiting -= 1);
    }

    pub fn requests(&self) -> u64 {
        self.requests.load(Ordering::SeqCst)
    }

    pub fn set_open(&self, is_open: bool) {
        self.is_open.send_replace(is_open);
    }

    /// Until a request is held up.
    pub async fn waited_at(&self) {
        let mut waiting = self.waiting.subscribe();
        let waited = waiting.wait_for(|waiting| *waiting > 0);
        tokio::time::timeout(PATIENCE, waited).await.expect("somebody asks").expect("it is ours");
    }
}
