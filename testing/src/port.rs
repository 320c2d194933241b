//! A port that stays one's own before its server listens there.

use std::net::{Ipv4Addr, SocketAddr};

use tokio::net::TcpSocket;

/// A port on loopback. The kernel gives it to nobody else while this lives, but to a server of the same user that asks
/// to share it (`SO_REUSEPORT`): this one never listens.
pub struct Port(TcpSocket);

impl Port {
    pub fn take() -> Self {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.set_reuseport(true).expect("of Linux");
        socket.bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).expect("a port");
        Self(socket)
    }

    pub fn number(&self) -> u16 {
        self.0.local_addr().expect("it is bound").port()
    }
}
