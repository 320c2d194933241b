//! Counts calls: how many by method and code, and how long they took.
//!
//! Takes in the routes of a server, gives them out with counters around them.

use std::time::Duration;

use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use prometheus::{HistogramOpts, HistogramVec, IntCounterVec, Opts, Registry};
use tokio::time::Instant;
use tonic::Code;
use tonic::service::Routes;

/// Upper bounds in seconds: a volume takes milliseconds, unless somebody waits for a disk.
const BUCKETS: [f64; 12] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0];

/// What was called. `role` is part of the names: `localpool_<role>_rpc_…`.
#[derive(Clone)]
pub struct Calls {
    handled: IntCounterVec,
    seconds: HistogramVec,
}

impl Calls {
    pub fn new(registry: &Registry, role: &str) -> Result<Self, prometheus::Error> {
        let name = |end: &str| format!("localpool_{role}_rpc_{end}");
        let opts = Opts::new(name("total"), "CSI calls, by method and gRPC code.");
        let handled = IntCounterVec::new(opts, &["method", "code"])?;
        let opts = HistogramOpts::new(name("seconds"), "How long CSI calls took, by method and gRPC code.");
        let seconds = HistogramVec::new(opts.buckets(BUCKETS.to_vec()), &["method", "code"])?;
        registry.register(Box::new(handled.clone()))?;
        registry.register(Box::new(seconds.clone()))?;
        Ok(Self { handled, seconds })
    }

    fn record(&self, method: &str, code: Code, took: Duration) {
        let labels = [method, name(code)];
        self.handled.with_label_values(&labels).inc();
        self.seconds.with_label_values(&labels).observe(took.as_secs_f64());
    }

    /// The same routes, counted.
    pub fn around(&self, routes: Routes) -> Routes {
        let calls = self.clone();
        let count = move |request: Request, next: Next| {
            let calls = calls.clone();
            async move {
                let began = Instant::now();
                // `/csi.v1.Controller/CreateVolume`: a path that is not one of our methods gets no time series of its
                // own.
                let path = request.uri().path().to_owned();
                let response = next.run(request).await;
                let status = response.headers().get("grpc-status").and_then(|value| value.to_str().ok());
                // A refusal has no body, so its code is in the headers; a success has its code at the end.
                let code = status.map_or(Code::Ok, |text| Code::from_bytes(text.as_bytes()));
                let method = match (code, path.rsplit_once('/')) {
                    (Code::Unimplemented, _) | (_, None) => "other",
                    (_, Some((_, method))) => method,
                };
                calls.record(method, code, began.elapsed());
                response
            }
        };
        Routes::from(routes.into_axum_router().layer(from_fn(count)))
    }
}

/// As the specification of gRPC writes it.
fn name(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "CANCELLED",
        Code::Unknown => "UNKNOWN",
        Code::InvalidArgument => "INVALID_ARGUMENT",
        Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
        Code::NotFound => "NOT_FOUND",
        Code::AlreadyExists => "ALREADY_EXISTS",
        Code::PermissionDenied => "PERMISSION_DENIED",
        Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
        Code::FailedPrecondition => "FAILED_PRECONDITION",
        Code::Aborted => "ABORTED",
        Code::OutOfRange => "OUT_OF_RANGE",
        Code::Unimplemented => "UNIMPLEMENTED",
        Code::Internal => "INTERNAL",
        Code::Unavailable => "UNAVAILABLE",
        Code::DataLoss => "DATA_LOSS",
        Code::Unauthenticated => "UNAUTHENTICATED",
    }
}

#[cfg(test)]
mod tests {
    use super::super::proto::identity_client::IdentityClient;
    use super::super::proto::identity_server::IdentityServer;
    use super::super::proto::node_client::NodeClient;
    use super::super::proto::{NodeGetInfoRequest, ProbeRequest};
    use super::super::{IdentityService, Readiness, client, server};
    use super::*;

    #[tokio::test]
    async fn calls_are_counted_by_method_and_code_over_a_real_socket() {
        let registry = Registry::new();
        let calls = Calls::new(&registry, "test").expect("fresh names");
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("csi.sock");
        let listener = server::bind(&path).expect("bound");
        let routes = calls.around(Routes::new(IdentityServer::new(IdentityService::new(Readiness::default()))));
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let serving = tokio::spawn(server::serve(listener, routes, async {
            let _ = stopped.await;
        }));
        let channel = client::connect(&path).await.expect("connected");
        for _ in 0..2 {
            IdentityClient::new(channel.clone()).probe(ProbeRequest {}).await.expect("an answer");
        }
        let refused = NodeClient::new(channel).node_get_info(NodeGetInfoRequest {}).await;
        assert_eq!(refused.expect_err("not served").code(), Code::Unimplemented);
        let count = |method: &str, code: &str| calls.handled.with_label_values(&[method, code]).get();
        assert_eq!((count("Probe", "OK"), count("other", "UNIMPLEMENTED")), (2, 1));
        assert_eq!(calls.seconds.with_label_values(&["Probe", "OK"]).get_sample_count(), 2);
        stop.send(()).expect("serving");
        serving.await.expect("no panic").expect("served");
    }
}
