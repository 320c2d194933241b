//! An API server that does what a real one cannot be made to do.

use std::sync::{Arc, Mutex, PoisonError};

use jiff::SignedDuration;
use kube::client::Body;
use serde_json::Value;
use tonic::codegen::http::{Request, Response};
use tower::service_fn;

use super::*;
use crate::operator::reaction::handover::CalmWatched;
use crate::operator::reaction::marked::HomeState;

/// What an API server does that this process cannot make a real one do.
#[derive(Clone, Copy, PartialEq)]
enum Odd {
    /// It takes the annotation out of each write, as a webhook can.
    Strips,
    /// The lease is renewed right before the first write.
    ConflictsOnce,
}

/// An annotation in a Lease that `me` has, and how many writes were answered.
fn annotation(odd: Odd) -> (LeaseAnnotation, Arc<Mutex<Vec<u16>>>) {
    let (writes, text) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(Value::Null)));
    let seen = Arc::clone(&writes);
    let service = service_fn(move |request: Request<Body>| {
        let (writes, text) = (Arc::clone(&writes), Arc::clone(&text));
        async move {
            let is_write = request.method().as_str() == "PATCH";
            let body = request.into_body().collect_bytes().await.expect("a body");
            let mut text = text.lock().unwrap_or_else(PoisonError::into_inner);
            let mut writes = writes.lock().unwrap_or_else(PoisonError::into_inner);
            let code = match is_write {
                true if odd == Odd::ConflictsOnce && writes.is_empty() => 409,
                true | false => 200,
            };
            if is_write {
                writes.push(code);
                let change: Value = serde_json::from_slice(&body).expect("JSON");
                if code == 200 && odd != Odd::Strips {
                    *text = change["metadata"]["annotations"][HANDOVER].clone();
                }
            }
            let annotations = if text.is_null() { json!({}) } else { json!({HANDOVER: *text}) };
            let answer = match code {
                200 => json!({
                    "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                    "metadata": {"name": "lease", "uid": "u", "resourceVersion": "1", "annotations": annotations},
                    "spec": {"holderIdentity": "me"},
                }),
                _ => json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Conflict",
                    "message": "renewed", "code": code}),
            };
            let answer = Response::builder().status(code).body(Body::from(answer.to_string().into_bytes()));
            Ok::<_, kube::Error>(answer.expect("an answer"))
        }
    });
    let lease = Lease { namespace: "n".to_owned(), name: "lease".to_owned(), identity: "me".to_owned() };
    (LeaseAnnotation::new(Client::new(service, "n"), lease, Duration::from_secs(20)), seen)
}

fn watched(seconds: i64) -> Option<Handover> {
    let lasted = SignedDuration::from_secs(seconds);
    let cluster =
        CalmWatched { calm: lasted, max_bad_nodes: 10, steady_clock: lasted, unwatched: SignedDuration::ZERO };
    Handover::of(Timestamp::UNIX_EPOCH, cluster, vec![(("pv".into(), None), HomeState::Ready, lasted)])
}

#[tokio::test]
async fn where_the_annotation_does_not_stay_the_leader_goes_on_all_the_same() {
    let (mut annotation, _) = annotation(Odd::Strips);
    assert_eq!(annotation.take().await.expect("an answer"), None);
    for seconds in [20_i64, 40, 60] {
        let now = Duration::from_secs(seconds.unsigned_abs());
        assert_eq!(annotation.leave(watched(seconds), now).await.expect("an answer"), Tenure::Ours, "{seconds}");
    }
}

#[tokio::test]
async fn what_is_renewed_between_the_read_and_the_write_is_written_again_at_once() {
    let (mut annotation, writes) = annotation(Odd::ConflictsOnce);
    assert_eq!(annotation.leave(watched(20), Duration::ZERO).await.expect("an answer"), Tenure::Ours);
    assert_eq!(*writes.lock().unwrap_or_else(PoisonError::into_inner), [409, 200]);
}
