//! A client of the API server whose watches a test can hold up: what they have to show comes later, as over a slow
//! connection.

use axum::body::Body as LateBody;
use futures::StreamExt as _;
use kube::Client;
use kube::client::Body;
use tokio::sync::watch;
use tonic::codegen::http::{Request, Response};
use tower::service_fn;

pub struct LateWatch(watch::Sender<bool>);

impl LateWatch {
    /// For watches of this path.
    pub fn on(path: &'static str, client: &Client) -> (Self, Client) {
        let is_open = watch::Sender::new(true);
        let (client, gate) = (client.clone(), is_open.subscribe());
        let service = service_fn(move |request: Request<Body>| {
            let (client, gate) = (client.clone(), gate.clone());
            let is_watch = request.uri().query().is_some_and(|query| query.contains("watch=true"));
            let is_late = is_watch && request.uri().path() == path;
            async move {
                let (head, body) = client.send(request).await?.into_parts();
                let body = LateBody::new(body);
                let body = if is_late { late(body, gate) } else { body };
                Ok::<_, kube::Error>(Response::from_parts(head, body))
            }
        });
        (Self(is_open), Client::new(service, "default"))
    }

    pub fn set_open(&self, is_open: bool) {
        self.0.send_replace(is_open);
    }
}

/// The same body, each part of it when the gate is open.
fn late(body: LateBody, gate: watch::Receiver<bool>) -> LateBody {
    LateBody::from_stream(body.into_data_stream().then(move |part| {
        let mut gate = gate.clone();
        async move {
            // Whoever ends the gate waits for nothing more.
            let _ = gate.wait_for(|is_open| *is_open).await;
            part
        }
    }))
}
