//! `/healthz`, `/readyz` and `/metrics` of a role.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::http::StatusCode;
use axum::routing::get;
use prometheus::{Registry, TextEncoder};

use crate::csi::Readiness;

/// Why HTTP cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    #[error("could not listen on {address} (--http)")]
    Listen {
        address: SocketAddr,
        #[source]
        source: std::io::Error,
    },
    #[error("could not serve HTTP")]
    Serve(#[source] std::io::Error),
}

/// Called before each scrape, so that gauges cost nothing in between.
pub type Refresh = Arc<dyn Fn() + Send + Sync>;

/// Serves until `stop`.
pub async fn serve(
    address: SocketAddr,
    readiness: Readiness,
    registry: Registry,
    refresh: Refresh,
    stop: impl Future<Output = ()> + Send + 'static,
) -> Result<(), HttpError> {
    let listener = tokio::net::TcpListener::bind(address).await;
    let listener = listener.map_err(|source| HttpError::Listen { address, source })?;
    let ready = move || {
        let ready = readiness.is_ready();
        async move { if ready { (StatusCode::OK, "ready\n") } else { (StatusCode::SERVICE_UNAVAILABLE, "not ready yet\n") } }
    };
    // A scrape at the same time would read what another one has just reset.
    let alone = Arc::new(Mutex::new(()));
    let metrics = move || {
        let (registry, refresh, alone) = (registry.clone(), Arc::clone(&refresh), Arc::clone(&alone));
        async move {
            let text = tokio::task::spawn_blocking(move || {
                let _alone = alone.lock().unwrap_or_else(PoisonError::into_inner);
                refresh();
                TextEncoder::new().encode_to_string(&registry.gather())
            });
            match text.await {
                Ok(Ok(text)) => (StatusCode::OK, text),
                Ok(Err(error)) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")),
                Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")),
            }
        }
    };
    let router = Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics));
    axum::serve(listener, router).with_graceful_shutdown(stop).await.map_err(HttpError::Serve)
}
