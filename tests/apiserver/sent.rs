//! A client of the API server that notes when its user marked a PersistentVolume or wrote an Event, and that refuses
//! Events for as long as a test wants it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use kube::Client;
use kube::client::Body;
use serde_json::json;
use tonic::codegen::http::{Method, Request, Response};
use tower::service_fn;

#[derive(Default)]
pub struct Sent {
    marks: Mutex<Vec<Instant>>,
    events: Mutex<Vec<Instant>>,
    refuses_events: AtomicBool,
}

impl Sent {
    pub fn through(client: &Client) -> (Arc<Self>, Client) {
        let (sent, client) = (Arc::<Self>::default(), client.clone());
        let of = Arc::clone(&sent);
        let service = service_fn(move |request: Request<Body>| {
            let (client, sent) = (client.clone(), Arc::clone(&of));
            async move {
                match sent.refuses(&request) {
                    Some(refusal) => Ok(refusal),
                    None => client.send(request).await,
                }
            }
        });
        (sent, Client::new(service, "default"))
    }

    fn refuses(&self, request: &Request<Body>) -> Option<Response<Body>> {
        let has = |kind: &str| request.uri().path().split('/').any(|part| part == kind);
        let sent = match *request.method() {
            Method::PATCH if has("persistentvolumes") => &self.marks,
            Method::POST if has("events") => &self.events,
            _ => return None,
        };
        sent.lock().unwrap_or_else(PoisonError::into_inner).push(Instant::now());
        let is_refused = has("events") && self.refuses_events.load(Ordering::SeqCst);
        is_refused.then(|| {
            let status = json!({
                "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "InternalError", "code": 500,
                "message": "etcdserver: request timed out",
            });
            let answer = Response::builder().status(500).header("content-type", "application/json");
            answer.body(Body::from(status.to_string().into_bytes())).expect("an answer")
        })
    }

    pub fn refuse_events(&self, are_refused: bool) {
        self.refuses_events.store(are_refused, Ordering::SeqCst);
    }

    /// How many Events were sent, refused ones too.
    pub fn events(&self) -> usize {
        times(&self.events).len()
    }

    /// No more marks than that were sent in any such time, and no more Events.
    pub fn assert_at_most(&self, most: usize, time: Duration) {
        for (what, sent) in [("marks", times(&self.marks)), ("Events", times(&self.events))] {
            assert!(sent.len() > most, "{} {what} say nothing about {most}", sent.len());
            let fastest = sent.windows(most + 1).map(|sent| sent[most] - sent[0]).min();
            assert!(fastest >= Some(time), "{} {what} in {fastest:?}", most + 1);
        }
    }
}

fn times(sent: &Mutex<Vec<Instant>>) -> Vec<Instant> {
    sent.lock().unwrap_or_else(PoisonError::into_inner).clone()
}
