//! A client's end of a socket that `server` serves: the command line, the demo and tests are its callers.

use std::path::Path;

use hyper_util::rt::TokioIo;
use tonic::transport::{Channel, Endpoint, Error};

use super::proto::agent::agent_client::AgentClient;

/// An inventory of thousands of disks is longer than what gRPC takes by itself.
const MOST_BYTES: usize = 64 << 20;

/// A client of the agent behind a socket.
pub async fn agent(socket: &Path) -> Result<AgentClient<Channel>, Error> {
    Ok(AgentClient::new(connect(socket).await?).max_decoding_message_size(MOST_BYTES))
}

/// A gRPC channel over a Unix socket.
pub async fn connect(socket: &Path) -> Result<Channel, Error> {
    let socket = socket.to_owned();
    let connector = tower::service_fn(move |_| {
        let socket = socket.clone();
        async move { tokio::net::UnixStream::connect(socket).await.map(TokioIo::new) }
    });
    Endpoint::from_static("http://localhost").connect_with_connector(connector).await
}
