//! `/healthz`, `/readyz` and `/metrics` of a role.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::http::StatusCode;
use axum::routing::get;
use prometheus::{Registry, TextEncoder};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::rpc::Readiness;

/// Why HTTP cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    #[error("could not listen on {address} ({flag})")]
    Listen {
        address: SocketAddr,
        flag: &'static str,
        #[source]
        source: std::io::Error,
    },
    #[error("could not serve HTTP")]
    Serve(#[source] std::io::Error),
}

/// How long to wait before a port that is in use is tried again.
const AGAIN: Duration = Duration::from_secs(1);

/// Called before each scrape, so that gauges cost nothing in between.
pub type Refresh = Arc<dyn Fn() + Send + Sync>;

/// Serves until `stop`.
pub async fn serve(
    address: SocketAddr,
    readiness: Readiness,
    registry: Registry,
    refresh: Refresh,
    stop: CancellationToken,
) -> Result<(), HttpError> {
    let Some(listener) = listen(address, "--http", &stop).await? else { return Ok(()) };
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
    axum::serve(listener, router).with_graceful_shutdown(stop.cancelled_owned()).await.map_err(HttpError::Serve)
}

/// Waits for a port that is in use: a process that was killed keeps its own until the disk answers that it waits for,
/// and the disks of its node need an agent meanwhile. `None`: it is time to stop.
pub(super) async fn listen(
    address: SocketAddr,
    flag: &'static str,
    stop: &CancellationToken,
) -> Result<Option<TcpListener>, HttpError> {
    let mut is_told = false;
    loop {
        match TcpListener::bind(address).await {
            Ok(listener) => return Ok(Some(listener)),
            Err(source) if source.kind() == ErrorKind::AddrInUse => {
                if !is_told {
                    tracing::warn!(%address, "the address of {flag} is in use, perhaps by a process of localpool that was killed and cannot end; trying again");
                    is_told = true;
                }
            }
            Err(source) => return Err(HttpError::Listen { address, flag, source }),
        }
        tokio::select! {
            () = stop.cancelled() => return Ok(None),
            () = tokio::time::sleep(AGAIN) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_address_that_is_in_use_is_waited_for_and_one_that_cannot_be_had_is_an_error() {
        let other = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let (address, stop) = (other.local_addr().expect("its address"), CancellationToken::new());
        let waiting = tokio::spawn({
            let stop = stop.clone();
            async move { listen(address, "--http", &stop).await }
        });
        tokio::time::sleep(AGAIN * 2).await;
        assert!(!waiting.is_finished());
        drop(other);
        let listener = waiting.await.expect("no panic").expect("no error").expect("it is free");
        assert_eq!(listener.local_addr().expect("its address"), address);
        stop.cancel();
        assert!(listen(address, "--http", &stop).await.expect("no error").is_none(), "it stops while it waits");
        // Of documentation: no machine has it.
        assert!(listen("192.0.2.1:1".parse().expect("an address"), "--http", &stop).await.is_err());
    }
}
