//! A client's end of a socket that `server` serves: the command line, the demo and tests are its callers.

use std::path::Path;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use tonic::transport::{Channel, Endpoint, Error};

use super::proto::agent::agent_client::AgentClient;

/// An inventory of thousands of disks is longer than gRPC accepts by default.
const MOST_BYTES: usize = 64 << 20;

/// A process that lives answers a ping at once, however long its answer to a call takes. A process that was killed and
/// cannot end because a disk hangs under it keeps its socket, and answers nothing.
const PING_EVERY: Duration = Duration::from_secs(5);
const PING_WITHIN: Duration = Duration::from_secs(10);

/// A client of the agent behind a socket. Calls end in a transport error if nobody answers.
pub async fn agent(socket: &Path) -> Result<AgentClient<Channel>, Error> {
    let endpoint = endpoint().http2_keep_alive_interval(PING_EVERY).keep_alive_timeout(PING_WITHIN);
    Ok(AgentClient::new(connect_to(endpoint, socket).await?).max_decoding_message_size(MOST_BYTES))
}

/// A gRPC channel over a Unix socket.
pub async fn connect(socket: &Path) -> Result<Channel, Error> {
    connect_to(endpoint(), socket).await
}

/// The same, whose calls may take no longer.
#[cfg(feature = "testing")]
pub async fn connect_within(socket: &Path, limit: Duration) -> Result<Channel, Error> {
    connect_to(endpoint().timeout(limit), socket).await
}

fn endpoint() -> Endpoint {
    Endpoint::from_static("http://localhost")
}

async fn connect_to(endpoint: Endpoint, socket: &Path) -> Result<Channel, Error> {
    let socket = socket.to_owned();
    let connector = tower::service_fn(move |_| {
        let socket = socket.clone();
        async move { tokio::net::UnixStream::connect(socket).await.map(TokioIo::new) }
    });
    endpoint.connect_with_connector(connector).await
}
